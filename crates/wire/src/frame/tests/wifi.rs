use super::*;

const SNAP: [u8; 8] = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];

/// The header of a data frame with QoS.
fn header(quality: u8) -> Vec<u8> {
    [&[0x88, 1][..], &[0; 22], &[quality, 0]].concat()
}

fn subframe(packet: &[u8]) -> Vec<u8> {
    let length = (SNAP.len() + packet.len()) as u16;
    [&[7; 12][..], &length.to_be_bytes(), &SNAP, packet].concat()
}

#[test]
fn the_padding_of_a_radiotap_frame_is_skipped() {
    let packet = v4(6, b"payload");
    let [plain, extended] = [0x2_u32, 0x8000_0003].map(u32::to_le_bytes);
    let second = 0xa000_0000_u32.to_le_bytes();
    let of = |flags: u8, padding: &[u8]| {
        // Flags alone, and after two or three bitmaps and an aligned time.
        let short = [&[0, 0, 9, 0][..], &plain, &[flags]].concat();
        let last = 0x4_u32.to_le_bytes();
        let time = [&[9; 8][..], &[flags, 7]].concat();
        let long = [&[0, 0, 26, 0][..], &extended, &second, &last, &time].concat();
        let aligned = [&[0, 0, 26, 0][..], &extended, &last, &[0; 4], &time].concat();
        [short, long, aligned].map(|head| [&head[..], &header(0), padding, &SNAP, &packet].concat())
    };
    for frame in of(0x20, &[0, 0]).into_iter().chain(of(0x10, &[])) {
        is_the_packet(LinkType::RADIOTAP, &frame);
    }
    // The bitmaps continue beyond the header.
    let frame = [&[0, 0, 8, 0][..], &extended, &header(0), &SNAP, &packet].concat();
    is_the_packet(LinkType::RADIOTAP, &frame);
}

#[test]
fn every_subframe_of_an_aggregate_is_read() {
    let (first, second) = (v4(6, b"payload"), v4(17, b"second"));
    assert_eq!(subframe(&first).len() % 4, 1);
    let all = [header(0x80), subframe(&first), vec![0; 3], subframe(&second)].concat();
    let frame = [&all[..], &[0; 2], &subframe(b"")[..9]].concat();
    is_the_packet(LinkType::WIFI, &[header(0x80), subframe(&first)].concat());
    for (link, head) in [
        (LinkType::WIFI, &[][..]),
        (LinkType::RADIOTAP, &[0, 0, 8, 0, 0, 0, 0, 0]),
        (LinkType::PPI, &[0, 0, 8, 0, 105, 0, 0, 0]),
    ] {
        let frame = [head, &frame].concat();
        assert_eq!(read(link, &frame).unwrap().payload, b"payload");
        let further: Vec<_> = further_packets(link, &frame, frame.len()).collect();
        let found: Vec<_> = further.iter().flatten().map(|found| found.payload).collect();
        assert_eq!((further.len(), &found[..]), (1, &[&b"second"[..]][..]), "{link:?}");
        for end in 0..frame.len() {
            assert!(further_packets(link, &frame[..end], frame.len()).count() <= 1);
        }
    }
    let single = [&header(0)[..], &SNAP, &first].concat();
    assert_eq!(further_packets(LinkType::WIFI, &single, single.len()).count(), 0);
    assert_eq!(further_packets(LinkType::ETHERNET, &frame, frame.len()).count(), 0);
    // A subframe beyond the frame.
    let long = [header(0x80), vec![7; 12], vec![9, 9], SNAP.to_vec(), first].concat();
    assert_eq!(read(LinkType::WIFI, &long), Err(SkipReason::Broken));
}

#[test]
fn capwap_is_read_with_swapped_frame_control() {
    let packet = v4(6, b"payload");
    for control in [[0x08, 1], [1, 0x08], [2, 0x08], [0x0a, 0x08]] {
        let frame = [&control[..], &[0; 22], &SNAP, &packet].concat();
        let head = [0, 0x10, 3, 0, 0, 0, 0, 0];
        is_the_packet(LinkType::RAW, &udp(40_000, 5247, &[&head[..], &frame].concat()));
    }
}
