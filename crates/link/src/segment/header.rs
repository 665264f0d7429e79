//! Parses IPv4 and IPv6 headers just enough to find the transport header.

use super::checksum::word;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// Maximum number of extension headers; a packet with more counts as malformed.
const MAX_EXTENSIONS: usize = 8;

/// An IP header, with its extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    pub v6: bool,
    /// Protocol after the headers; for a later fragment, of the fragmented packet.
    pub protocol: u8,
    /// Offset of the transport header.
    pub transport: usize,
    /// End of the packet according to its header, at most the end of the bytes.
    pub end: usize,
    pub fragment: Fragment,
}

/// Whether a packet is part of a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fragment {
    /// Not a fragment.
    Unfragmented,
    /// The first fragment, with the transport header, and its identification.
    First(u32),
    /// A later fragment, without the transport header.
    Later(u32),
}

impl Fragment {
    fn new(id: u32, offset: u16, more: bool) -> Self {
        match (offset, more) {
            (0, false) => Self::Unfragmented,
            (0, true) => Self::First(id),
            _ => Self::Later(id),
        }
    }
}

impl Ip {
    /// Parses the header; `None` if the bytes are not an IP packet or are truncated.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        Self::parse_with(packet, true)
    }

    /// Like [`Self::parse`] for the packet that an ICMP error quotes, which may be truncated.
    pub fn parse_quote(quote: &[u8]) -> Option<Self> {
        Self::parse_with(quote, false)
    }

    fn parse_with(packet: &[u8], whole: bool) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::parse_v4(packet, whole),
            6 => Self::parse_v6(packet, whole),
            _ => None,
        }
    }

    fn parse_v4(packet: &[u8], whole: bool) -> Option<Self> {
        let header = usize::from(packet[0] & 0xf) * 4;
        if header < 20 || packet.len() < header {
            return None;
        }
        let total = usize::from(word(packet, 2));
        if total < header || (whole && total > packet.len()) {
            return None;
        }
        let flags = word(packet, 6);
        Some(Self {
            v6: false,
            protocol: packet[9],
            transport: header,
            end: total.min(packet.len()),
            fragment: Fragment::new(
                u32::from(word(packet, 4)),
                flags & 0x1fff,
                flags & 0x2000 != 0,
            ),
        })
    }

    fn parse_v6(packet: &[u8], whole: bool) -> Option<Self> {
        if packet.len() < 40 {
            return None;
        }
        let end = 40 + usize::from(word(packet, 4));
        if whole && end > packet.len() {
            return None;
        }
        let end = end.min(packet.len());
        let (mut protocol, mut at) = (packet[6], 40);
        let mut fragment = Fragment::Unfragmented;
        for _ in 0..=MAX_EXTENSIONS {
            let length = |unit| Some((usize::from(*packet[..end].get(at + 1)?), unit));
            let (count, unit) = match protocol {
                // Hop-by-hop options, routing, destination options, mobility, HIP, shim6.
                0 | 43 | 60 | 135 | 139 | 140 => length(8)?,
                // The length of the authentication header is in words, minus two.
                51 => {
                    let (count, _) = length(4)?;
                    (count + 1, 4)
                }
                44 => {
                    let header = packet[..end].get(at..at + 8)?;
                    let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                    let field = word(header, 2);
                    fragment = Fragment::new(id, field >> 3, field & 1 != 0);
                    if let Fragment::Later(_) = fragment {
                        return Some(Self {
                            v6: true,
                            protocol: header[0],
                            transport: at + 8,
                            end,
                            fragment,
                        });
                    }
                    (0, 8)
                }
                _ => return Some(Self { v6: true, protocol, transport: at, end, fragment }),
            };
            protocol = packet[at];
            at += (count + 1) * unit;
            if at > end {
                return None;
            }
        }
        None
    }

    /// Returns the source address followed by the destination address.
    pub fn addresses<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        if self.v6 { &packet[8..40] } else { &packet[12..20] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn extension_headers_are_followed() {
        let mut packet = vec![0_u8; 40];
        packet[0] = 0x60;
        packet[6] = 0; // hop-by-hop
        packet.extend([51, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]); // 16 bytes, then AH
        packet.extend([44, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]); // 12 bytes, then a fragment header
        packet.extend([6, 0, 0, 1, 0xde, 0xad, 0xbe, 0xef]); // the first fragment of TCP
        packet.extend([0; 20]);
        packet[5] = (packet.len() - 40) as u8;
        let ip = Ip::parse(&packet).unwrap();
        assert_eq!((ip.protocol, ip.transport, ip.end), (TCP, 76, 96));
        assert_eq!(ip.fragment, Fragment::First(0xdead_beef));
        packet[70] = 0x10; // at an offset: a later fragment
        assert_eq!(Ip::parse(&packet).unwrap().fragment, Fragment::Later(0xdead_beef));
        packet.truncate(70);
        assert_eq!(Ip::parse(&packet), None);
    }

    #[test]
    fn endless_extension_headers_are_malformed() {
        let mut packet = vec![0_u8; 40 + 8 * 20];
        packet[0] = 0x60;
        packet[5] = 160;
        assert_eq!(Ip::parse(&packet), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(mut packet in prop::collection::vec(any::<u8>(), 0..120), v6: bool) {
            if let Some(first) = packet.first_mut() {
                *first = if v6 { 0x60 } else { 0x40 | *first & 0xf };
            }
            for ip in [Ip::parse(&packet), Ip::parse_quote(&packet)].into_iter().flatten() {
                prop_assert!(ip.transport <= ip.end || !ip.v6);
                prop_assert!(ip.transport <= packet.len() && ip.end <= packet.len());
            }
        }
    }
}
