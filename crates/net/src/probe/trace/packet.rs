//! Packets of a trace. Without I/O.

use std::net::IpAddr;

use manyways_wire::icmp::{Icmp, QuotedPacket};

use super::TraceMethod;

/// Maximum bytes of a packet above IP.
pub(super) const LENGTH: usize = 40;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_V6: u8 = 58;

/// The fields that all packets of a trace have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FlowFields {
    pub(super) method: TraceMethod,
    pub(super) source: IpAddr,
    pub(super) target: IpAddr,
    /// Source port, or the identifier of ICMP.
    pub(super) port: u16,
}

impl FlowFields {
    /// The packet with a number, from the header above IP on.
    pub(super) fn packet(&self, number: u16) -> Vec<u8> {
        match self.method {
            TraceMethod::Icmp => self.echo(number),
            TraceMethod::Udp(port) => self.datagram(port, number),
            TraceMethod::Tcp(port) => self.syn(port, number),
        }
    }

    /// An echo whose payload keeps its checksum constant: number and complement cancel out.
    fn echo(&self, number: u16) -> Vec<u8> {
        let mut message = vec![0; LENGTH];
        message[0] = if self.target.is_ipv4() { 8 } else { 128 };
        message[4..6].copy_from_slice(&self.port.to_be_bytes());
        message[6..8].copy_from_slice(&number.to_be_bytes());
        message[8..10].copy_from_slice(&(!number).to_be_bytes());
        // The kernel computes the checksum of ICMPv6.
        if self.target.is_ipv4() {
            let sum = !fold(sum(&message));
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        message
    }

    /// A datagram whose checksum is its number; the payload makes it right. Zero would mean that
    /// there is no checksum.
    fn datagram(&self, port: u16, number: u16) -> Vec<u8> {
        let mut datagram = vec![0; LENGTH];
        datagram[0..2].copy_from_slice(&self.port.to_be_bytes());
        datagram[2..4].copy_from_slice(&port.to_be_bytes());
        datagram[4..6].copy_from_slice(&(LENGTH as u16).to_be_bytes());
        datagram[6..8].copy_from_slice(&(number + 1).to_be_bytes());
        let rest = !fold(sum(&datagram) + self.pseudo_header(UDP, LENGTH));
        datagram[8..10].copy_from_slice(&rest.to_be_bytes());
        datagram
    }

    /// A SYN whose sequence number ends in the number.
    fn syn(&self, port: u16, number: u16) -> Vec<u8> {
        const HEADER: usize = 20;
        let mut segment = vec![0; HEADER];
        segment[0..2].copy_from_slice(&self.port.to_be_bytes());
        segment[2..4].copy_from_slice(&port.to_be_bytes());
        segment[4..8].copy_from_slice(&self.sequence(number).to_be_bytes());
        // Header of five words; SYN; a window of 64 KB.
        (segment[12], segment[13]) = (5 << 4, 0x02);
        segment[14..16].copy_from_slice(&[0xff, 0xff]);
        let sum = !fold(sum(&segment) + self.pseudo_header(TCP, HEADER));
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        segment
    }

    fn sequence(&self, number: u16) -> u32 {
        u32::from(self.port) << 16 | u32::from(number)
    }

    fn pseudo_header(&self, protocol: u8, length: usize) -> u32 {
        let address = |address: IpAddr| match address {
            IpAddr::V4(v4) => sum(&v4.octets()),
            IpAddr::V6(v6) => sum(&v6.octets()),
        };
        address(self.source) + address(self.target) + u32::from(protocol) + length as u32
    }

    /// The number of the packet that an ICMP message from `from` answers, and whether the route ends
    /// there.
    pub(super) fn answered_by(&self, message: Icmp, from: IpAddr) -> Option<(u16, bool)> {
        match message {
            Icmp::EchoReply { identifier, sequence } => {
                let is_own = self.method == TraceMethod::Icmp && identifier == self.port;
                (is_own && from == self.target).then_some((sequence, true))
            }
            Icmp::TimeExceeded(quoted) => Some((self.number_in(&quoted)?, false)),
            Icmp::Unreachable { quoted, .. } => Some((self.number_in(&quoted)?, true)),
        }
    }

    /// The number of a quoted packet of this trace.
    fn number_in(&self, quoted: &QuotedPacket) -> Option<u16> {
        let short = |at: usize| u16::from_be_bytes([quoted.start[at], quoted.start[at + 1]]);
        let has_ports = |port: u16| short(0) == self.port && short(2) == port;
        let (protocol, is_own, number) = match self.method {
            TraceMethod::Icmp => {
                let (protocol, request) =
                    if self.target.is_ipv4() { (ICMP, 8) } else { (ICMP_V6, 128) };
                let is_own = quoted.start[0] == request && short(4) == self.port;
                (protocol, is_own, short(6))
            }
            TraceMethod::Udp(port) => (UDP, has_ports(port), short(6).wrapping_sub(1)),
            TraceMethod::Tcp(port) => {
                let number = short(6);
                (TCP, has_ports(port) && short(4) == self.port, number)
            }
        };
        let is_own = is_own && quoted.protocol == protocol && quoted.destination == self.target;
        is_own.then_some(number)
    }

    /// The number of the SYN that a segment of the target acknowledges or refuses.
    pub(super) fn acknowledged_by(&self, segment: &[u8]) -> Option<u16> {
        const SYN: u8 = 0x02;
        const RST: u8 = 0x04;
        const ACK: u8 = 0x10;
        let TraceMethod::Tcp(port) = self.method else { return None };
        let header: &[u8; 20] = segment.first_chunk()?;
        let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let acknowledged = (u32::from(short(8)) << 16 | u32::from(short(10))).wrapping_sub(1);
        let number = acknowledged as u16;
        let is_answer = header[13] & ACK != 0 && header[13] & (SYN | RST) != 0;
        let is_own = short(0) == port && short(2) == self.port;
        (is_answer && is_own && acknowledged == self.sequence(number)).then_some(number)
    }
}

/// The sum of the 16-bit words of RFC 1071, not yet folded.
fn sum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
    bytes.chunks(2).map(|pair| u32::from(word(pair))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flow(method: TraceMethod) -> FlowFields {
        FlowFields {
            method,
            source: IpAddr::from([192, 0, 2, 9]),
            target: IpAddr::from([198, 51, 100, 1]),
            port: 40_000,
        }
    }

    const METHODS: [TraceMethod; 3] =
        [TraceMethod::Icmp, TraceMethod::Udp(33_434), TraceMethod::Tcp(443)];

    fn quoted(flow: &FlowFields, number: u16) -> QuotedPacket {
        let protocol = match flow.method {
            TraceMethod::Icmp => ICMP,
            TraceMethod::Udp(_) => UDP,
            TraceMethod::Tcp(_) => TCP,
        };
        let start = *flow.packet(number).first_chunk().unwrap();
        QuotedPacket { destination: flow.target, protocol, start }
    }

    proptest! {
        /// Routers choose by the first four bytes above IP.
        #[test]
        fn all_packets_of_a_trace_take_one_route(number in 0..65_000u16, other in 0..65_000u16) {
            for method in METHODS {
                let flow = flow(method);
                prop_assert_eq!(&flow.packet(number)[..4], &flow.packet(other)[..4]);
            }
        }

        #[test]
        fn the_number_of_a_packet_is_found_in_its_quotation(number in 0..65_000u16) {
            let router = IpAddr::from([10, 0, 0, 1]);
            for method in METHODS {
                let flow = flow(method);
                let message = Icmp::TimeExceeded(quoted(&flow, number));
                prop_assert_eq!(flow.answered_by(message, router), Some((number, false)));
                let other = FlowFields { port: 40_001, ..flow };
                prop_assert_eq!(other.answered_by(message, router), None);
            }
        }

        #[test]
        fn checksums_are_right(number in 0..65_000u16) {
            for (method, protocol) in METHODS.into_iter().zip([ICMP, UDP, TCP]) {
                let flow = flow(method);
                let packet = flow.packet(number);
                let header = match method {
                    TraceMethod::Icmp => 0,
                    _ => flow.pseudo_header(protocol, packet.len()),
                };
                prop_assert_eq!(fold(sum(&packet) + header), 0xffff, "{:?}", method);
            }
        }

        #[test]
        fn no_segment_panics(segment in proptest::collection::vec(any::<u8>(), 0..40)) {
            for method in METHODS {
                let _ = flow(method).acknowledged_by(&segment);
            }
        }
    }

    #[test]
    fn an_open_and_a_closed_port_acknowledge_the_syn() {
        let flow = flow(TraceMethod::Tcp(443));
        let mut segment = [0; 20];
        segment[0..2].copy_from_slice(&443u16.to_be_bytes());
        segment[2..4].copy_from_slice(&flow.port.to_be_bytes());
        segment[8..12].copy_from_slice(&(flow.sequence(7) + 1).to_be_bytes());
        for flags in [0x12, 0x14] {
            segment[13] = flags;
            assert_eq!(flow.acknowledged_by(&segment), Some(7));
        }
        segment[13] = 0x10;
        assert_eq!(flow.acknowledged_by(&segment), None);
    }
}
