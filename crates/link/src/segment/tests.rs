use etherparse::{IpHeaders, TcpHeader};
use proptest::prelude::*;

use super::test_packets::{V4, V6, offloaded, tcp, transport, udp, v4, v6, verify};
use super::*;

/// A packet as a socket would send it, before segmentation.
#[derive(Clone, Debug)]
struct SuperPacket {
    v6: bool,
    udp: bool,
    /// Words of IP options or extension headers.
    options: usize,
    tcp: TcpHeader,
    id: u16,
    payload: Vec<u8>,
}

impl SuperPacket {
    fn ip(&self, index: u32) -> IpHeaders {
        if self.v6 {
            v6(V6.0, V6.1, self.options)
        } else {
            v4(V4.0, V4.1, self.id.wrapping_add(index as u16), self.options)
        }
    }

    /// Returns the number of segments of `size` payload bytes, at least one.
    fn segments(&self, size: usize) -> usize {
        self.payload.len().div_ceil(size).max(1)
    }

    fn build(&self, size: usize) -> (Vec<u8>, Offload) {
        let mut packet = if self.udp {
            udp(self.ip(0), (self.tcp.source_port, 4433), &self.payload)
        } else {
            tcp(self.ip(0), &self.tcp, &self.payload)
        };
        let mut offload = offloaded(&mut packet, Some(size as u16));
        offload.ecn = self.tcp.cwr && !self.udp;
        (packet, offload)
    }

    /// Builds segment `index` independently, as it must be on a cable.
    fn segment(&self, size: usize, index: usize) -> Vec<u8> {
        let end = self.payload.len().min((index + 1) * size);
        let payload = &self.payload[index * size..end];
        let last = index + 1 == self.segments(size);
        let ip = self.ip(index as u32);
        if self.udp {
            return udp(ip, (self.tcp.source_port, 4433), payload);
        }
        let mut header = self.tcp.clone();
        header.sequence_number = header.sequence_number.wrapping_add((index * size) as u32);
        header.cwr &= index == 0;
        header.psh &= last;
        header.fin &= last;
        tcp(ip, &header, payload)
    }
}

prop_compose! {
    fn whole()(
        (v6, udp, psh, fin, cwr, ece) in any::<(bool, bool, bool, bool, bool, bool)>(),
        options in 0..=6_usize,
        tcp_options in 0..=10_usize,
        (port, id) in any::<(u16, u16)>(),
        sequence in any::<u32>(),
        length in prop_oneof![0..=3_000_usize, 0..=65_000_usize],
        seed in any::<u64>(),
    ) -> SuperPacket {
        let mut tcp = TcpHeader::new(port, 443, sequence, 1024);
        tcp.ack = true;
        tcp.acknowledgment_number = 77;
        (tcp.psh, tcp.fin, tcp.cwr, tcp.ece) = (psh, fin, cwr, ece);
        tcp.set_options_raw(&vec![1; tcp_options * 4]).unwrap();
        let mut random = manyways_unit::Random::new(seed);
        let payload = (0..length).map(|_| random.next_u64() as u8).collect();
        SuperPacket { v6, udp, options, tcp, id, payload }
    }
}

/// Returns the bytes of a slice, as `writev` would send them.
fn bytes(packet: &[u8], part: &Slice, header: &HeaderBuffer) -> Vec<u8> {
    [part.header(header), &packet[part.payload.clone()]].concat()
}

#[test]
fn a_megabit_super_packet_by_hand() {
    let mut header = TcpHeader::new(50_000, 443, u32::MAX - 1_000, 1_024);
    (header.psh, header.cwr, header.ack) = (true, true, true);
    let whole = SuperPacket {
        v6: false,
        udp: false,
        options: 0,
        tcp: header,
        id: u16::MAX,
        payload: (0..3_000).map(|i| i as u8).collect(),
    };
    let (packet, offload) = whole.build(1_448);
    let plan = plan(&packet, &offload).unwrap();
    assert_eq!((plan.segments, plan.segment, plan.last), (3, 1_488, 144));

    let mut buffer = Slice::header_buffer();
    let part = slice(&packet, &offload, &plan, 1, 2, &mut buffer);
    let header = part.header(&buffer);
    assert_eq!(part.payload, 40 + 1_448..3_040);
    assert_eq!(word(header, 2), 40 + 1_552, "total length");
    assert_eq!(word(header, 4), 0, "identification wraps");
    assert_eq!(header[24..28], 447_u32.to_be_bytes(), "sequence number wraps");
    assert_eq!(header[33], 0x18, "CWR gone, PSH kept on the last");
    assert_eq!((part.offload.gso, part.offload.gso_size), (Gso::TcpV4, 1_448));
    assert_eq!(part.offload.hdr_len, 40);
    assert_eq!(checksum::sum(&header[..20]), 0xffff, "IPv4 header checksum");

    let part = slice(&packet, &offload, &plan, 1, 1, &mut buffer);
    assert_eq!(part.header(&buffer)[33], 0x10, "PSH only on the last");
    assert_eq!((part.offload.gso, part.offload.gso_size), (Gso::None, 0));
}

#[test]
fn every_ordinary_packet_is_one_segment() {
    let offload = Offload::default();
    let one = plan(&[1, 2, 3], &offload).unwrap();
    assert_eq!((one.segments, one.segment, one.last), (1, 3, 3));
    let mut header = Slice::header_buffer();
    let part = slice(&[1, 2, 3], &offload, &one, 0, 1, &mut header);
    assert_eq!((part.header, part.payload, part.offload), (0..0, 0..3, offload));
    assert_eq!(plan(&[], &offload), Err(MalformedPacket::Length(0)));
}

#[test]
fn a_super_packet_without_a_sum_to_compute_gets_one() {
    // Forwarded packets may arrive like this: their checksum was verified and is not kept up to
    // date.
    for v6 in [false, true] {
        let tcp = TcpHeader::new(1, 2, 3, 4);
        let whole = SuperPacket { v6, udp: false, options: 0, tcp, id: 9, payload: vec![7; 5_000] };
        let (packet, offload) = whole.build(1_000);
        let offload = Offload { needs_csum: false, csum_start: 0, csum_offset: 0, ..offload };
        let plan = plan(&packet, &offload).unwrap();
        for index in 0..5 {
            let mut out = Vec::new();
            wire(&packet, &offload, &plan, index, &mut out);
            assert_eq!(out, whole.segment(1_000, index as usize));
        }
    }
}

#[test]
fn datagrams_without_a_checksum_stay_without() {
    let mut packet = udp(v4(V4.0, V4.1, 1, 0), (1, 2), &[5; 3_000]);
    packet[26..28].fill(0);
    let offload = Offload { gso: Gso::UdpL4, gso_size: 1_000, ..Offload::default() };
    let plan = plan(&packet, &offload).unwrap();
    let mut out = Vec::new();
    wire(&packet, &offload, &plan, 1, &mut out);
    assert_eq!(word(&out, 26), 0);
    verify(&out);
}

#[test]
fn a_datagrams_checksum_of_zero_is_written_as_ones() {
    let mut ones = 0;
    for payload in 0..=u16::MAX {
        let mut packet = udp(v4(V4.0, V4.1, 1, 0), (1, 2), &payload.to_be_bytes());
        let offload = offloaded(&mut packet, None);
        finish_checksum(&mut packet, &offload);
        verify(&packet);
        assert_ne!(word(&packet, 26), 0);
        ones += u32::from(word(&packet, 26) == 0xffff);
    }
    assert_eq!(ones, 1);
}

#[test]
fn congestion_window_reduced_is_set_only_in_the_first_run() {
    let mut tcp = TcpHeader::new(1, 2, 3, 4);
    tcp.cwr = true;
    let whole =
        SuperPacket { v6: true, udp: false, options: 0, tcp, id: 0, payload: vec![0; 4_000] };
    let (packet, offload) = whole.build(1_000);
    assert!(offload.ecn);
    let plan = plan(&packet, &offload).unwrap();
    let mut header = Slice::header_buffer();
    for (first, count, ecn) in [(0, 2, true), (1, 2, false), (0, 1, false), (0, 4, true)] {
        let part = slice(&packet, &offload, &plan, first, count, &mut header);
        assert_eq!(part.offload.ecn, ecn, "{first} {count}");
    }
}

#[test]
fn headers_without_end_are_refused() {
    let tcp = TcpHeader::new(1, 2, 3, 4);
    let whole = |options| {
        let tcp = tcp.clone();
        SuperPacket { v6: true, udp: false, options, tcp, id: 0, payload: vec![0; 4_000] }
    };
    let (packet, offload) = whole(24).build(1_000); // 40 + 192 + 20
    assert_eq!(plan(&packet, &offload).unwrap().segments, 4);
    let (packet, offload) = whole(25).build(1_000);
    assert_eq!(plan(&packet, &offload), Err(MalformedPacket::Headers));
}

#[test]
fn contradictory_headers_are_refused() {
    let whole = |v6, udp| SuperPacket {
        v6,
        udp,
        options: 0,
        tcp: TcpHeader::new(1, 2, 3, 4),
        id: 0,
        payload: vec![0; 4_000],
    };
    let (packet, offload) = whole(false, false).build(1_000);
    let refused = |packet: &[u8], offload: Offload| plan(packet, &offload).unwrap_err();
    for gso in [Gso::TcpV6, Gso::UdpL4] {
        assert_eq!(refused(&packet, Offload { gso, ..offload }), MalformedPacket::Headers);
    }
    assert_eq!(
        refused(&packet, Offload { gso: Gso::Other(3), ..offload }),
        MalformedPacket::Kind(3)
    );
    assert_eq!(refused(&packet, Offload { gso_size: 0, ..offload }), MalformedPacket::SegmentSize);
    assert_eq!(refused(&packet, Offload { csum_start: 24, ..offload }), MalformedPacket::Checksum);
    assert_eq!(
        refused(&packet, Offload { gso: Gso::None, csum_start: 4_023, ..offload }),
        MalformedPacket::Checksum
    );
    assert_eq!(refused(&packet[..4_039], offload), MalformedPacket::Headers);
    assert_eq!(refused(&[&packet[..], &[0]].concat(), offload), MalformedPacket::Headers);
    let mut fragment = packet.clone();
    fragment[6] |= 0x20;
    assert_eq!(refused(&fragment, offload), MalformedPacket::Headers);
    let mut short = packet;
    short[32] = 0x40; // a TCP header of 16 bytes
    assert_eq!(refused(&short, offload), MalformedPacket::Headers);
    let (packet, offload) = whole(true, true).build(1_000);
    assert_eq!(refused(&packet, Offload { gso: Gso::TcpV6, ..offload }), MalformedPacket::Headers);
}

#[test]
fn the_largest_packets_are_cut_at_their_last_byte() {
    for v6 in [false, true] {
        let room = 65_535 - if v6 { 20 } else { 40 };
        let tcp = TcpHeader::new(1, 2, 3, 4);
        let whole = SuperPacket { v6, udp: false, options: 0, tcp, id: 0, payload: vec![1; room] };
        let (packet, offload) = whole.build(1_448);
        let plan = plan(&packet, &offload).unwrap();
        let mut out = Vec::new();
        wire(&packet, &offload, &plan, plan.segments - 1, &mut out);
        assert_eq!(out, whole.segment(1_448, plan.segments as usize - 1));
    }
}

proptest! {
    #[test]
    fn every_segment_equals_one_that_is_built_alone(whole in whole(), size in 200..=9_000_usize) {
        let (packet, offload) = whole.build(size);
        let plan = plan(&packet, &offload).unwrap();
        prop_assert_eq!(plan.segments as usize, whole.segments(size));
        let mut out = Vec::new();
        for index in 0..plan.segments {
            out.clear();
            wire(&packet, &offload, &plan, index, &mut out);
            let planned = if index + 1 == plan.segments { plan.last } else { plan.segment };
            prop_assert_eq!(out.len(), planned as usize);
            prop_assert_eq!(&out, &whole.segment(size, index as usize));
            verify(&out);
        }
    }

    #[test]
    fn a_slice_is_cut_into_the_same_segments(
        whole in whole(), size in 200..=3_000_usize, first: u32, count: u32,
    ) {
        let (packet, offload) = whole.build(size);
        let all = plan(&packet, &offload).unwrap();
        let first = first % all.segments;
        let count = 1 + count % (all.segments - first);
        let mut header = Slice::header_buffer();
        let part = slice(&packet, &offload, &all, first, count, &mut header);
        let cut = bytes(&packet, &part, &header);
        prop_assert_eq!(part.len(), cut.len());
        let again = plan(&cut, &part.offload).unwrap();
        prop_assert_eq!(again.segments, count);
        for index in 0..count {
            let (mut original, mut copy) = (Vec::new(), Vec::new());
            wire(&packet, &offload, &all, first + index, &mut original);
            wire(&cut, &part.offload, &again, index, &mut copy);
            prop_assert_eq!(original, copy);
        }
    }

    #[test]
    fn runs_put_together_are_the_whole(
        whole in whole(),
        size in 200..=3_000_usize,
        runs in prop::collection::vec(1..20_u32, 400),
    ) {
        let (packet, offload) = whole.build(size);
        let plan = plan(&packet, &offload).unwrap();
        let (mut first, mut payload) = (0, Vec::new());
        for run in runs {
            if first == plan.segments {
                break;
            }
            let count = run.min(plan.segments - first);
            let mut header = Slice::header_buffer();
            let part = slice(&packet, &offload, &plan, first, count, &mut header);
            let cut = bytes(&packet, &part, &header);
            let (start, udp) = transport(&cut);
            let header = if udp { 8 } else { usize::from(cut[start + 12] >> 4) * 4 };
            payload.extend_from_slice(&cut[start + header..]);
            first += count;
        }
        prop_assert_eq!(first, plan.segments);
        prop_assert_eq!(payload, whole.payload);
    }

    #[test]
    fn an_offload_header_survives(bytes: [u8; 10]) {
        let mut kept = bytes;
        kept[0] &= 1; // other flags are not kept
        prop_assert_eq!(Offload::from_bytes(&bytes).to_bytes(), kept);
    }

    #[test]
    fn any_bytes_are_planned_or_refused(
        packet in prop::collection::vec(any::<u8>(), 0..300), header: [u8; 10],
        runs in prop::collection::vec(any::<(u32, u32)>(), 5),
    ) {
        exercise(&packet, &header, &runs);
    }

    /// Slightly damaged packets get further than random bytes.
    #[test]
    fn damaged_packets_are_planned_or_refused(
        whole in whole(), size: u16,
        damage in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..4),
        cut in 0..80_usize,
        runs in prop::collection::vec(any::<(u32, u32)>(), 5),
    ) {
        let (mut packet, offload) = whole.build(usize::from(size));
        packet.truncate(packet.len() - cut.min(packet.len()));
        let mut header = offload.to_bytes();
        for (at, byte) in damage {
            // Segmentation depends only on headers.
            let at = at.index(header.len() + packet.len().min(120));
            if at < header.len() { header[at] = byte } else { packet[at - header.len()] = byte }
        }
        exercise(&packet, &header, &runs);
    }
}

/// Plans, cuts and finishes, whatever the bytes are.
fn exercise(packet: &[u8], header: &[u8; 10], runs: &[(u32, u32)]) {
    let offload = Offload::from_bytes(header);
    finish_checksum(&mut packet.to_vec(), &offload);
    let Ok(plan) = plan(packet, &offload) else { return };
    let total = u64::from(plan.segment) * u64::from(plan.segments - 1) + u64::from(plan.last);
    assert!(total >= packet.len() as u64);
    for &(first, count) in runs {
        let mut header = Slice::header_buffer();
        let part = slice(packet, &offload, &plan, first, count, &mut header);
        assert!(!part.is_empty() && part.payload.end <= packet.len());
        wire(packet, &offload, &plan, first, &mut Vec::new());
    }
}
