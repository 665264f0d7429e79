//! Names in a response, for the flows that follow.

use std::net::IpAddr;

use manyways_unit::Span;

use crate::HostName;
use crate::dns::message::{Data, Message};
use crate::dns::{Answer, Kind, Rcode, resolve};

/// The addresses of a name, or the name of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// A client resolved a name to addresses.
    Addresses {
        client: IpAddr,
        /// The name and at least one captured address.
        answered: Answer,
    },
    /// A client resolved an address to its name.
    Pointer {
        /// The queried address.
        address: IpAddr,
        /// The first name of the address.
        name: HostName,
        /// TTL of the PTR record.
        lifetime: Span,
    },
}

impl Resolution {
    /// `None` if the response contains neither.
    pub(super) fn read(client: IpAddr, message: &Message) -> Option<Self> {
        let question = message.question.as_ref().filter(|question| question.is_internet())?;
        if message.rcode() != Rcode::NO_ERROR {
            return None;
        }
        if question.kind == Kind::PTR {
            let address = reverse_address(&question.name)?;
            return message.internet_answers().find_map(|record| {
                // In a delegation of a part of a network (RFC 2317), the PTR record has another
                // owner name.
                let Data::Pointer(name) = &record.data else { return None };
                let name = HostName::parse(name.as_bytes())?;
                Some(Self::Pointer { address, name, lifetime: record.ttl })
            });
        }
        let name = HostName::parse(question.name.as_bytes())?;
        let (_, addresses) = resolve(message, name.as_str());
        let answered = Answer { id: message.id, name, addresses };
        (!answered.addresses.is_empty()).then_some(Self::Addresses { client, answered })
    }
}

/// The address in a name below `in-addr.arpa` or `ip6.arpa` (RFC 1035, 3.5; RFC 3596, 2.5).
fn reverse_address(name: &str) -> Option<IpAddr> {
    if let Some(digits) = name.strip_suffix(".ip6.arpa") {
        let mut address = 0_u128;
        let mut count = 0;
        for (offset, digit) in digits.split('.').enumerate().take(33) {
            let digit = u128::from_str_radix(digit, 16).ok().filter(|_| digit.len() == 1)?;
            address |= digit.checked_shl(4 * offset as u32)?;
            count += 1;
        }
        return (count == 32).then(|| IpAddr::from(address.to_be_bytes()));
    }
    let mut bytes = [0; 4];
    let mut parts = name.strip_suffix(".in-addr.arpa")?.rsplit('.');
    for byte in &mut bytes {
        let part = parts.next()?;
        *byte = part.parse().ok().filter(|_| part.bytes().all(|digit| digit.is_ascii_digit()))?;
    }
    parts.next().is_none().then(|| bytes.into())
}
