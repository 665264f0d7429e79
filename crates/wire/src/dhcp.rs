//! How hosts get their IPv4 addresses (RFC 2131, RFC 2132), and what they say of themselves when
//! they do: their hardware address, often a name, and which parameters they ask for in which order.
//! That order is the same for all hosts with the same software, and so tells it.
//!
//! [`Message`] is what one datagram between the ports 67 and 68 says, and [`Leases`] joins what a
//! host asked for with the address that it got. DHCPv6 is another protocol and not read here.

mod leases;
mod options;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::Ipv4Addr;

use manyways_unit::Span;

pub use leases::{Lease, LeaseLimits, Leases};

use options::Options;

/// The address field of the hardware has so many bytes.
const HARDWARE_LIMIT: usize = 16;
/// The number of Ethernet and of Wi-Fi among the kinds of hardware.
const ETHERNET: u8 = 1;

/// A message between a host and a DHCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whether it is one to the host.
    pub is_reply: bool,
    /// What it is about; none when that was cut away, and in messages of BOOTP.
    pub kind: Option<Kind>,
    /// The number that the host chose for the exchange.
    pub exchange: u32,
    /// The host.
    pub hardware: Hardware,
    /// The address that the host has already.
    pub client: Option<Ipv4Addr>,
    /// The address that the host is given, or offered.
    pub assigned: Option<Ipv4Addr>,
    /// The address that the host asks for.
    pub requested: Option<Ipv4Addr>,
    /// How long the address may be used, [`Span::MAX`] without end; in a question, how long the
    /// host would like to.
    pub lease: Option<Span>,
    /// What is said of the host.
    pub facts: Facts,
    /// It was cut, or is broken, somewhere behind the hardware address: there may have been more.
    pub is_partial: bool,
}

/// What a host says of itself. In texts, what is no visible ASCII and no space is written as `\`
/// with three decimal digits, and before a backslash is another; each is at most 1,020 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The numbers of the parameters that it asks for, in its order and with commas between them,
    /// as in `1,3,6,15` (RFC 2132, 9.8).
    pub fingerprint: Option<Box<str>>,
    /// The class of its vendor, which names the software more often (RFC 2132, 9.13).
    pub vendor: Option<Box<str>>,
    /// How it calls itself (RFC 2132, 3.14), or in a reply, how it is to.
    pub hostname: Option<Box<str>>,
}

/// What a message is about (RFC 2132, 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The host looks for servers.
    Discover,
    /// A server offers an address.
    Offer,
    /// The host asks for an address, or for longer.
    Request,
    /// The host found that another one uses the address.
    Decline,
    /// The server grants it.
    Ack,
    /// The server refuses it.
    Nak,
    /// The host needs the address no more.
    Release,
    /// The host has an address and asks for the other parameters.
    Inform,
    /// What later documents added.
    Other(u8),
}

/// The address of a host's network interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hardware {
    kind: u8,
    length: u8,
    bytes: [u8; HARDWARE_LIMIT],
}

impl Message {
    /// Reads what is there of a datagram's payload that has `length` bytes. None when the address
    /// of the hardware is not there or it is no such message.
    pub fn read(bytes: &[u8], length: usize) -> Option<Self> {
        let is_reply = match bytes.first()? {
            1 => false,
            2 => true,
            _ => return None,
        };
        let hardware = Hardware::read(*bytes.get(1)?, *bytes.get(2)?, bytes.get(28..44)?)?;
        let is_cut = bytes.len() < length;
        let (options, is_whole) = Options::read(bytes);
        let may_be = is_cut && bytes.len() < options::BEGIN;
        if !options.is_dhcp && !may_be {
            return None;
        }
        Some(Self {
            is_reply,
            kind: options.kind,
            exchange: u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?),
            hardware,
            client: address(bytes.get(12..)?),
            assigned: address(bytes.get(16..)?),
            requested: address(&options.requested),
            lease: options.lease(),
            facts: options.facts(),
            is_partial: is_cut || !is_whole,
        })
    }
}

/// The address at the beginning of these bytes, when it is one.
fn address(bytes: &[u8]) -> Option<Ipv4Addr> {
    let address = Ipv4Addr::from(*bytes.first_chunk::<4>()?);
    (!address.is_unspecified()).then_some(address)
}

impl Facts {
    /// What the later message says counts, and what it does not say stays as it was.
    fn learn(&mut self, later: Self) {
        for (known, said) in [
            (&mut self.fingerprint, later.fingerprint),
            (&mut self.vendor, later.vendor),
            (&mut self.hostname, later.hostname),
        ] {
            if said.is_some() {
                *known = said;
            }
        }
    }
}

impl From<u8> for Kind {
    fn from(number: u8) -> Self {
        match number {
            1 => Self::Discover,
            2 => Self::Offer,
            3 => Self::Request,
            4 => Self::Decline,
            5 => Self::Ack,
            6 => Self::Nak,
            7 => Self::Release,
            8 => Self::Inform,
            other => Self::Other(other),
        }
    }
}

impl Hardware {
    fn read(kind: u8, length: u8, field: &[u8]) -> Option<Self> {
        let mut bytes = [0; HARDWARE_LIMIT];
        let there = field.get(..usize::from(length))?;
        bytes.get_mut(..there.len())?.copy_from_slice(there);
        Some(Self { kind, length, bytes })
    }

    /// The bytes of the address.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    /// The address on an Ethernet or a Wi-Fi.
    pub fn mac(&self) -> Option<[u8; 6]> {
        self.as_bytes().try_into().ok().filter(|_| self.kind == ETHERNET)
    }
}

impl fmt::Display for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.as_bytes().iter().enumerate() {
            write!(f, "{}{byte:02x}", if place == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{self}", self.kind)
    }
}
