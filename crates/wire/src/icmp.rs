//! Messages of ICMP (RFC 792) and ICMPv6 (RFC 4443) that answer a probe.

use std::net::IpAddr;

/// Bytes of an ICMP header.
const HEADER: usize = 8;

/// A message of ICMP or ICMPv6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Icmp {
    EchoReply {
        identifier: u16,
        sequence: u16,
    },
    /// A router discarded a packet because its TTL or hop limit had reached zero.
    TimeExceeded(QuotedPacket),
    /// A packet could not be delivered.
    Unreachable {
        /// Whether the host itself has no program for the packet.
        is_port: bool,
        quoted: QuotedPacket,
    },
}

/// The start of the packet that caused an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotedPacket {
    pub destination: IpAddr,
    /// Protocol above IP, for example 17 for UDP.
    pub protocol: u8,
    /// The first bytes above IP, which every router must quote.
    pub start: [u8; 8],
}

impl Icmp {
    /// Reads an ICMP message of IPv4. `None` for a message of another type, or a broken one.
    pub fn read_v4(message: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER] = message.first_chunk()?;
        let quoted = || QuotedPacket::read_v4(&message[HEADER..]);
        match (header[0], header[1]) {
            (0, 0) => Some(Self::echo_reply(header)),
            (3, code) => Some(Self::Unreachable { is_port: code == 3, quoted: quoted()? }),
            (11, 0) => Some(Self::TimeExceeded(quoted()?)),
            _ => None,
        }
    }

    /// Reads an ICMPv6 message. `None` for a message of another type, or a broken one.
    pub fn read_v6(message: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER] = message.first_chunk()?;
        let quoted = || QuotedPacket::read_v6(&message[HEADER..]);
        match (header[0], header[1]) {
            (129, 0) => Some(Self::echo_reply(header)),
            (1, code) => Some(Self::Unreachable { is_port: code == 4, quoted: quoted()? }),
            (3, 0) => Some(Self::TimeExceeded(quoted()?)),
            _ => None,
        }
    }

    fn echo_reply(header: &[u8; HEADER]) -> Self {
        let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        Self::EchoReply { identifier: short(4), sequence: short(6) }
    }
}

impl QuotedPacket {
    fn read_v4(packet: &[u8]) -> Option<Self> {
        let header: &[u8; 20] = packet.first_chunk()?;
        let (version, length) = (header[0] >> 4, usize::from(header[0] & 0x0f) * 4);
        let start: &[u8; 8] = packet.get(length.max(header.len())..)?.first_chunk()?;
        let destination: [u8; 4] = header[16..20].try_into().ok()?;
        let quoted = Self { destination: destination.into(), protocol: header[9], start: *start };
        (version == 4).then_some(quoted)
    }

    /// Probes have no extension headers, so that a packet with one is none of them.
    fn read_v6(packet: &[u8]) -> Option<Self> {
        let header: &[u8; 40] = packet.first_chunk()?;
        let start: &[u8; 8] = packet.get(header.len()..)?.first_chunk()?;
        let destination: [u8; 16] = header[24..40].try_into().ok()?;
        let quoted = Self { destination: destination.into(), protocol: header[6], start: *start };
        (header[0] >> 4 == 6).then_some(quoted)
    }
}

/// The payload of an IPv4 packet, as a raw socket receives it. `None` if its header is incomplete.
pub fn payload_v4(packet: &[u8]) -> Option<&[u8]> {
    let length = usize::from(packet.first()? & 0x0f) * 4;
    packet.get(length.max(20)..)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quoted_v4(options: usize) -> Vec<u8> {
        let mut packet = vec![0; 20 + options];
        packet[0] = 0x40 + (5 + options / 4) as u8;
        packet[9] = 17;
        packet[16..20].copy_from_slice(&[192, 0, 2, 1]);
        [packet, (1..=8).collect()].concat()
    }

    #[test]
    fn a_router_quotes_the_packet_that_it_discarded() {
        let expected = QuotedPacket {
            destination: [192, 0, 2, 1].into(),
            protocol: 17,
            start: [1, 2, 3, 4, 5, 6, 7, 8],
        };
        for options in [0, 4, 40] {
            let message = [&[11, 0, 0, 0, 0, 0, 0, 0][..], &quoted_v4(options)].concat();
            assert_eq!(Icmp::read_v4(&message), Some(Icmp::TimeExceeded(expected)), "{options}");
            assert_eq!(Icmp::read_v4(&message[..message.len() - 1]), None);
        }
        let message = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &quoted_v4(0)].concat();
        let unreachable = Icmp::Unreachable { is_port: true, quoted: expected };
        assert_eq!(Icmp::read_v4(&message), Some(unreachable));
    }

    #[test]
    fn six_has_other_numbers() {
        let destination: std::net::Ipv6Addr = "2001:db8::1".parse().unwrap();
        let mut packet = vec![0; 40];
        (packet[0], packet[6]) = (0x60, 58);
        packet[24..40].copy_from_slice(&destination.octets());
        let message = [&[3, 0, 0, 0, 0, 0, 0, 0][..], &packet, &[9; 8]].concat();
        let quoted = QuotedPacket { destination: destination.into(), protocol: 58, start: [9; 8] };
        assert_eq!(Icmp::read_v6(&message), Some(Icmp::TimeExceeded(quoted)));
        assert_eq!(Icmp::read_v4(&message), None);
        let reply = [129, 0, 0, 0, 1, 2, 3, 4];
        let expected = Icmp::EchoReply { identifier: 0x0102, sequence: 0x0304 };
        assert_eq!(Icmp::read_v6(&reply), Some(expected));
        assert_eq!(Icmp::read_v6(&[128, 0, 0, 0, 1, 2, 3, 4]), None);
    }

    #[test]
    fn the_payload_follows_the_options_of_the_header() {
        assert_eq!(payload_v4(&quoted_v4(4)), Some(&[1, 2, 3, 4, 5, 6, 7, 8][..]));
        assert_eq!(payload_v4(&[0x46; 19]), None);
    }

    proptest! {
        #[test]
        fn no_packet_panics(packet in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = (Icmp::read_v4(&packet), Icmp::read_v6(&packet), payload_v4(&packet));
        }
    }
}
