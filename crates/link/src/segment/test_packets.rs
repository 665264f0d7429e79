//! Test packets, built and checked by an independent implementation, `etherparse`.

use etherparse::checksum::Sum16BitWords;
use etherparse::{
    Icmpv4Slice, Icmpv6Slice, IpHeaders, IpNumber, Ipv4Header, Ipv6Extensions, Ipv6Header,
    Ipv6RawExtHeader, PacketBuilder, SlicedPacket, TcpHeader, TransportSlice,
};

use super::{Gso, Offload};

pub const V4: ([u8; 4], [u8; 4]) = ([10, 64, 1, 2], [198, 18, 0, 1]);
pub const V6: ([u8; 16], [u8; 16]) = (
    [0xfd, 0, 0, 0x64, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
    [0xfd, 0, 0, 0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
);

/// An IPv4 header with `options` words of options.
pub fn v4(source: [u8; 4], destination: [u8; 4], id: u16, options: usize) -> IpHeaders {
    let mut header = Ipv4Header::new(0, 64, IpNumber::TCP, source, destination).unwrap();
    header.identification = id;
    header.options = vec![1; options * 4][..].try_into().unwrap();
    IpHeaders::Ipv4(header, Default::default())
}

/// An IPv6 header with `extensions` words of eight bytes of hop-by-hop and destination options.
pub fn v6(source: [u8; 16], destination: [u8; 16], extensions: usize) -> IpHeaders {
    let extension = |words: usize| {
        (words > 0)
            .then(|| Ipv6RawExtHeader::new_raw(IpNumber::TCP, &vec![0; words * 8 - 2]).unwrap())
    };
    IpHeaders::Ipv6(
        Ipv6Header {
            traffic_class: 0,
            flow_label: Default::default(),
            payload_length: 0,
            next_header: IpNumber::TCP,
            hop_limit: 64,
            source,
            destination,
        },
        Ipv6Extensions {
            hop_by_hop_options: extension(extensions / 2),
            destination_options: extension(extensions.div_ceil(2)),
            ..Default::default()
        },
    )
}

pub fn tcp(ip: IpHeaders, header: &TcpHeader, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ip(ip).tcp_header(header.clone()).write(&mut packet, payload).unwrap();
    packet
}

pub fn udp(ip: IpHeaders, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ip(ip).udp(ports.0, ports.1).write(&mut packet, payload).unwrap();
    packet
}

/// Returns the offset of the transport header of a packet built here, and whether it is UDP.
pub fn transport(packet: &[u8]) -> (usize, bool) {
    let (ip, rest) = IpHeaders::from_slice(packet).unwrap();
    (packet.len() - rest.payload.len(), ip.next_header().unwrap() == IpNumber::UDP)
}

/// Leaves the checksum of a finished packet to the device; also its segmentation if `size` is
/// given.
pub fn offloaded(packet: &mut [u8], size: Option<u16>) -> Offload {
    let (start, udp) = transport(packet);
    let length = (packet.len() - start) as u16;
    let sum = if packet[0] >> 4 == 4 {
        Sum16BitWords::new()
            .add_4bytes(packet[12..16].try_into().unwrap())
            .add_4bytes(packet[16..20].try_into().unwrap())
    } else {
        Sum16BitWords::new()
            .add_16bytes(packet[8..24].try_into().unwrap())
            .add_16bytes(packet[24..40].try_into().unwrap())
    };
    let sum = sum.add_2bytes([0, if udp { 17 } else { 6 }]).add_2bytes(length.to_be_bytes());
    let offset = if udp { 6 } else { 16 };
    // The sum is already in memory order.
    packet[start + offset..start + offset + 2]
        .copy_from_slice(&(!sum.ones_complement()).to_ne_bytes());
    Offload {
        needs_csum: true,
        csum_start: start as u16,
        csum_offset: offset as u16,
        gso: match size {
            None => Gso::None,
            Some(_) if udp => Gso::UdpL4,
            Some(_) if packet[0] >> 4 == 4 => Gso::TcpV4,
            Some(_) => Gso::TcpV6,
        },
        gso_size: size.unwrap_or(0),
        hdr_len: if size.is_some() { 7 } else { 0 }, // wrong on purpose
        ecn: false,
    }
}

/// Panics unless all lengths and checksums of a wire packet are correct.
pub fn verify(packet: &[u8]) {
    let sliced = SlicedPacket::from_ip(packet).expect("a valid packet");
    let net = sliced.net.as_ref().expect("an IP packet");
    let payload = net.ip_payload_ref().expect("a payload");
    let v4 = net.ipv4_ref().map(|ip| {
        let header = ip.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum(), "IPv4 header checksum");
        assert_eq!(usize::from(header.total_len), packet.len(), "IPv4 length");
        (header.source, header.destination)
    });
    let v6 = net.ipv6_ref().map(|ip| {
        let header = ip.header();
        assert_eq!(usize::from(header.payload_length()) + 40, packet.len(), "IPv6 length");
        (header.source(), header.destination())
    });
    let right = |sum: Result<u16, _>| sum.expect("a length that fits");
    match sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            let sum = match (v4, v6) {
                (Some((from, to)), _) => right(tcp.calc_checksum_ipv4(from, to)),
                (_, Some((from, to))) => right(tcp.calc_checksum_ipv6(from, to)),
                _ => unreachable!(),
            };
            assert_eq!(tcp.checksum(), sum, "TCP checksum");
        }
        Some(TransportSlice::Udp(udp)) => {
            assert_eq!(usize::from(udp.length()), payload.payload.len(), "UDP length");
            let (header, data) = (udp.to_header(), udp.payload());
            let sum = match (v4, v6) {
                (Some((from, to)), _) => header.calc_checksum_ipv4_raw(from, to, data),
                (_, Some((from, to))) => header.calc_checksum_ipv6_raw(from, to, data),
                _ => unreachable!(),
            };
            if udp.checksum() != 0 || v6.is_some() {
                assert_eq!(udp.checksum(), right(sum), "UDP checksum");
            }
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            let sum = Sum16BitWords::new().add_slice(Icmpv4Slice::slice(&icmp)).ones_complement();
            assert_eq!(sum, 0, "ICMP checksum");
        }
        Some(TransportSlice::Icmpv6(icmp)) => {
            let (from, to) = v6.expect("ICMPv6 over IPv6");
            assert!(Icmpv6Slice::is_checksum_valid(&icmp, from, to), "ICMPv6 checksum");
        }
        _ => assert!(sliced.is_ip_payload_fragmented() || !payload.payload.is_empty()),
    }
}
