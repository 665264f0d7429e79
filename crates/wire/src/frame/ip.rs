//! IP headers and the extension headers after them.
//!
//! Captured packets can be truncated anywhere, and packets merged by offloads have the length 0. A
//! packet is returned whenever its addresses were captured.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Cursor, Fragment, IpPacket};

/// Maximum number of extension headers.
const MAX_EXTENSION_HEADERS: usize = 8;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;
const HOST_IDENTITY: u8 = 139;
const SHIM6: u8 = 140;

/// Reads an IP packet of either version; `None` if the header is invalid or incomplete.
pub(super) fn ip_packet(rest: Cursor<'_>) -> Option<IpPacket<'_>> {
    match rest.u8(0)? >> 4 {
        4 => v4(rest),
        6 => v6(rest),
        _ => None,
    }
}

/// Reads an IPv4 packet.
#[inline(always)]
pub(super) fn v4(rest: Cursor<'_>) -> Option<IpPacket<'_>> {
    let fixed: &[u8; 20] = rest.bytes.first_chunk()?;
    let number = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let address = |at: usize| {
        IpAddr::V4(Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]))
    };
    let header = usize::from(fixed[0] & 0xf) * 4;
    if fixed[0] >> 4 != 4 || header < 20 {
        return None;
    }
    let (declared, part) = (number(2), number(6));
    let id = number(4);
    let fragment = Fragment {
        id: id.into(),
        offset: u32::from(part & 0x1fff) * 8,
        has_more: part & 0x2000 != 0,
        tunnel: 0,
    };
    let packet = FixedHeader {
        source: address(12),
        destination: address(16),
        length: match usize::from(declared) {
            declared if declared >= header => declared,
            _ => rest.length,
        },
        fragment: Some(fragment).filter(|part| part.has_more || part.offset > 0),
        ecn: fixed[1] & 3,
        id,
        hop_limit: fixed[8],
    };
    if fixed[9] == AUTHENTICATION {
        return Some(packet.skip_extensions(rest, AUTHENTICATION, header));
    }
    Some(packet.into_packet(rest, fixed[9], header))
}

fn v6(rest: Cursor<'_>) -> Option<IpPacket<'_>> {
    const HEADER: usize = 40;
    let address = |at: usize| -> Option<IpAddr> {
        let bytes: [u8; 16] = *rest.bytes.get(at..)?.first_chunk()?;
        Some(Ipv6Addr::from(bytes).into())
    };
    let packet = FixedHeader {
        source: address(8)?,
        destination: address(24)?,
        length: match rest.u16(4)? {
            0 => rest.length,
            declared => usize::from(declared) + HEADER,
        },
        fragment: None,
        ecn: rest.u8(1)? >> 4 & 3,
        id: 0,
        hop_limit: rest.u8(7)?,
    };
    Some(packet.skip_extensions(rest, rest.u8(6)?, HEADER))
}

/// Returns the protocol of the payload of a packet that was divided into fragments, and the position
/// of its header; `protocol` is the type of the header at the start of `bytes`.
pub(super) fn upper_layer(mut protocol: u8, is_v6: bool, bytes: &[u8]) -> (u8, usize) {
    let mut at = 0;
    for _ in 0..MAX_EXTENSION_HEADERS {
        let Some(length) = extension_length(protocol, is_v6, bytes, at) else { break };
        protocol = bytes[at];
        at += length;
    }
    (protocol, at)
}

/// Length of the extension header at `at`; `None` if there is another header, or if its first two
/// bytes were not captured. The header may end after the captured bytes.
fn extension_length(protocol: u8, is_v6: bool, bytes: &[u8], at: usize) -> Option<usize> {
    let length = usize::from(*bytes.get(at + 1)?);
    match protocol {
        HOP_BY_HOP | ROUTING | DESTINATION | MOBILITY | HOST_IDENTITY | SHIM6 if is_v6 => {
            Some((length + 1) * 8)
        }
        AUTHENTICATION => Some((length + 2) * 4),
        _ => None,
    }
}

/// Fields of the fixed IP header.
struct FixedHeader {
    source: IpAddr,
    destination: IpAddr,
    length: usize,
    fragment: Option<Fragment>,
    ecn: u8,
    id: u16,
    hop_limit: u8,
}

impl FixedHeader {
    /// Skips extension headers and returns the datagram; `protocol` is the type of the header at
    /// `at`.
    fn skip_extensions(
        mut self,
        rest: Cursor<'_>,
        mut protocol: u8,
        mut at: usize,
    ) -> IpPacket<'_> {
        for _ in 0..MAX_EXTENSION_HEADERS {
            // The headers in a fragment may be divided: they are read when the packet is whole.
            if self.fragment.is_some() {
                break;
            }
            let Some(next) = rest.u8(at) else { break };
            if protocol == FRAGMENT && self.source.is_ipv6() {
                let Some((part, id)) = rest.u16(at + 2).zip(rest.u32(at + 4)) else { break };
                let offset = (part & 0xfff8).into();
                let part = Fragment { id, offset, has_more: part & 1 == 1, tunnel: 0 };
                // Atomic fragments (RFC 6946): whole packets with a fragment header.
                self.fragment = Some(part).filter(|part| part.has_more || part.offset > 0);
                at += 8;
            } else {
                let header = extension_length(protocol, self.source.is_ipv6(), rest.bytes, at);
                let Some(length) = header else { break };
                at += length;
            }
            protocol = next;
        }
        self.into_packet(rest, protocol, at)
    }

    /// Returns the datagram whose payload begins at `at`.
    #[inline]
    fn into_packet(self, rest: Cursor<'_>, protocol: u8, at: usize) -> IpPacket<'_> {
        let length = self.length.max(at);
        let end = rest.bytes.len().min(length);
        IpPacket {
            source: self.source,
            destination: self.destination,
            protocol,
            payload: rest.bytes.get(at..end).unwrap_or_default(),
            payload_length: length - at,
            length,
            fragment: self.fragment,
            ecn: self.ecn,
            id: self.id,
            hop_limit: self.hop_limit,
            is_tunnelled: false,
        }
    }
}
