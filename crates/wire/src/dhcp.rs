//! DHCP for IPv4 (RFC 2131, RFC 2132): addresses of hosts and the facts that hosts report about
//! themselves, which are the hardware address, often a name, and the parameter request list. The
//! order of that list is the same for all hosts with the same software, and therefore identifies
//! the software.
//!
//! [`Message`] is one datagram between the ports 67 and 68. [`Leases`] joins the requests of hosts
//! with the addresses that servers granted. DHCPv6 is another protocol and is not read.

mod leases;
mod options;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::Ipv4Addr;

use manyways_unit::Span;

pub use leases::{Lease, LeaseLimits, Leases};

use options::Options;

/// Length of the field `chaddr` (RFC 2131, 2).
const MAX_HARDWARE_LENGTH: usize = 16;
/// Hardware type of Ethernet and Wi-Fi (`htype`).
const ETHERNET: u8 = 1;

/// A message between a host and a DHCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whether the message is from a server to a client.
    pub is_reply: bool,
    /// `None` if the option was truncated, and in messages of BOOTP.
    pub kind: Option<Kind>,
    /// Transaction ID (`xid`), chosen by the client.
    pub transaction_id: u32,
    /// Hardware address of the client.
    pub hardware: Hardware,
    /// Address that the client already has (`ciaddr`).
    pub client_address: Option<Ipv4Addr>,
    /// Address that the server offers or assigns (`yiaddr`).
    pub assigned: Option<Ipv4Addr>,
    /// Address that the client requests (RFC 2132, 9.1).
    pub requested: Option<Ipv4Addr>,
    /// Lease time: granted in a reply, requested in a message of the client. [`Span::MAX`] for an
    /// infinite lease.
    pub lease: Option<Span>,
    pub client_info: ClientInfo,
    /// Whether the message is truncated or broken after the hardware address, so that options may
    /// be missing.
    pub is_truncated: bool,
}

/// Facts that a client reports about itself. In texts, each byte that is neither visible ASCII nor
/// a space is written as `\` with three decimal digits, and a backslash is doubled; each text has
/// at most 1,020 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientInfo {
    /// Parameter request list: the option codes in the client's order, separated by commas, as in
    /// `1,3,6,15` (RFC 2132, 9.8).
    pub fingerprint: Option<Box<str>>,
    /// Vendor class identifier, which often names the software (RFC 2132, 9.13).
    pub vendor: Option<Box<str>>,
    /// Host name (RFC 2132, 3.14); in a reply, the name that the server assigns.
    pub hostname: Option<Box<str>>,
}

/// DHCP message type (RFC 2132, 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The client looks for servers.
    Discover,
    /// A server offers an address.
    Offer,
    /// The client requests an address, or extends its lease.
    Request,
    /// The client found that the address is already in use.
    Decline,
    /// The server grants the address.
    Ack,
    /// The server refuses the address.
    Nak,
    /// The client releases the address.
    Release,
    /// The client has an address and requests other parameters.
    Inform,
    /// A type of a later RFC.
    Other(u8),
}

/// Hardware address of a host's network interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hardware {
    kind: u8,
    length: u8,
    bytes: [u8; MAX_HARDWARE_LENGTH],
}

impl Message {
    /// Reads a datagram with a payload of `length` bytes, of which `bytes` were captured. `None` if
    /// the hardware address is missing or the datagram is not a DHCP message.
    pub fn read(bytes: &[u8], length: usize) -> Option<Self> {
        let is_reply = match bytes.first()? {
            1 => false,
            2 => true,
            _ => return None,
        };
        let hardware = Hardware::read(*bytes.get(1)?, *bytes.get(2)?, bytes.get(28..44)?)?;
        let is_cut = bytes.len() < length;
        let (options, is_whole) = Options::read(bytes);
        let may_be = is_cut && bytes.len() < options::OPTIONS_OFFSET;
        if !options.is_dhcp && !may_be {
            return None;
        }
        Some(Self {
            is_reply,
            kind: options.kind,
            transaction_id: u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?),
            hardware,
            client_address: address(bytes.get(12..)?),
            assigned: address(bytes.get(16..)?),
            requested: address(&options.requested),
            lease: options.lease(),
            client_info: options.client_info(),
            is_truncated: is_cut || !is_whole,
        })
    }
}

/// The address at the beginning of `bytes`; `None` if it is unspecified.
fn address(bytes: &[u8]) -> Option<Ipv4Addr> {
    let address = Ipv4Addr::from(*bytes.first_chunk::<4>()?);
    (!address.is_unspecified()).then_some(address)
}

impl ClientInfo {
    /// Replaces the facts that `later` contains, and keeps the others.
    fn update(&mut self, later: Self) {
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
        let mut bytes = [0; MAX_HARDWARE_LENGTH];
        let there = field.get(..usize::from(length))?;
        bytes.get_mut(..there.len())?.copy_from_slice(there);
        Some(Self { kind, length, bytes })
    }

    /// The address without padding.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    /// The MAC address; `None` if the hardware is not Ethernet or Wi-Fi.
    pub fn mac(&self) -> Option<[u8; 6]> {
        self.as_bytes().try_into().ok().filter(|_| self.kind == ETHERNET)
    }
}

impl fmt::Display for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (offset, byte) in self.as_bytes().iter().enumerate() {
            write!(f, "{}{byte:02x}", if offset == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{self}", self.kind)
    }
}
