use proptest::prelude::*;

use super::*;

/// Writes numbers in either byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Writer {
    is_big: bool,
}

const BIG: Writer = Writer { is_big: true };
const LITTLE: Writer = Writer { is_big: false };

impl Writer {
    fn u16(self, number: u16) -> Vec<u8> {
        if self.is_big { number.to_be_bytes() } else { number.to_le_bytes() }.into()
    }

    fn u32(self, number: u32) -> Vec<u8> {
        if self.is_big { number.to_be_bytes() } else { number.to_le_bytes() }.into()
    }

    fn u64(self, number: u64) -> Vec<u8> {
        if self.is_big { number.to_be_bytes() } else { number.to_le_bytes() }.into()
    }

    fn u32s(self, numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| self.u32(*number)).collect()
    }

    fn pcap(self, magic: u32, link: u32) -> Vec<u8> {
        [self.u32(magic), self.u16(2), self.u16(4), self.u32s(&[0, 0, 96, link])].concat()
    }

    fn block(self, kind: u32, content: &[u8]) -> Vec<u8> {
        let padding = vec![0; content.len().next_multiple_of(4) - content.len()];
        let length = 12 + content.len() + padding.len();
        let ends = self.u32(length as u32);
        [&self.u32(kind)[..], &ends, content, &padding, &ends].concat()
    }

    fn section(self) -> Vec<u8> {
        let content =
            [self.u32(0x1a2b_3c4d), self.u16(1), self.u16(0), self.u64(u64::MAX)].concat();
        self.block(0x0a0d_0d0a, &content)
    }

    fn options(self, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, value) in options {
            bytes.extend([self.u16(*kind), self.u16(value.len() as u16), value.to_vec()].concat());
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes.extend([0; 4]);
        bytes
    }

    fn interface(self, link: u16, snap: u32, options: &[(u16, &[u8])]) -> Vec<u8> {
        let content = [self.u16(link), vec![0; 2], self.u32(snap), self.options(options)].concat();
        self.block(1, &content)
    }

    fn packet(self, interface: u32, ticks: u64, bytes: &[u8], options: &[(u16, &[u8])]) -> Vec<u8> {
        let length = bytes.len() as u32;
        let said = [interface, (ticks >> 32) as u32, ticks as u32, length, length + 1000];
        let padding = vec![0; bytes.len().next_multiple_of(4) - bytes.len()];
        let content = [&self.u32s(&said)[..], bytes, &padding, &self.options(options)].concat();
        self.block(6, &content)
    }
}

/// The checked properties of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    nanos: u64,
    interface: usize,
    bytes: Vec<u8>,
    length: usize,
    is_sent: Option<bool>,
    dropped: u64,
}

impl From<Packet<'_>> for Seen {
    fn from(packet: Packet<'_>) -> Self {
        Self {
            nanos: packet.at.as_nanos(),
            interface: packet.interface,
            bytes: packet.bytes.into(),
            length: packet.length,
            is_sent: packet.is_sent,
            dropped: packet.dropped_before,
        }
    }
}

/// Reads all packets. Returns the reader, the packets, the number of bytes read, and the error; the
/// input grows by at most `max` bytes more than requested.
fn read(file: &[u8], max: usize) -> (Reader, Vec<Seen>, usize, Option<FormatError>) {
    let (mut reader, mut seen, mut at) = (Reader::default(), Vec::new(), 0);
    let mut end = max.min(file.len());
    loop {
        let before = reader.interfaces().len();
        match reader.step(&file[at..end]) {
            Ok(Step::Packet(packet, length)) => {
                assert!(packet.interface < before);
                assert!(packet.length >= packet.bytes.len());
                seen.push(packet.into());
                at += length;
            }
            Ok(Step::Other(length)) => at += length,
            Ok(Step::More(length)) => {
                assert!(length > end - at, "{length} are there at {at}");
                if end == file.len() {
                    return (reader, seen, at, None);
                }
                end = (at + length + max).min(file.len());
            }
            Err(broken) => return (reader, seen, at, Some(broken)),
        }
        assert!(at <= end);
    }
}

fn whole(file: &[u8]) -> (Reader, Vec<Seen>) {
    let (reader, seen, at, broken) = read(file, file.len());
    assert_eq!((at, broken), (file.len(), None));
    assert_eq!(read(file, 1).1, seen, "the same byte by byte");
    (reader, seen)
}

fn seen(nanos: u64, bytes: &[u8], length: usize) -> Seen {
    Seen { nanos, interface: 0, bytes: bytes.into(), length, is_sent: None, dropped: 0 }
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn pcap_variants_are_read_in_both_byte_orders() {
    for writer in [LITTLE, BIG] {
        for (magic, nanos, more) in
            [(0xa1b2_c3d4, 1_000, 0), (0xa1b2_3c4d, 1, 0), (0xa1b2_cd34, 1_000, 8)]
        {
            // The upper half of the last field is the length of the frame check sequence.
            let mut file = writer.pcap(magic, 0x1400_0071);
            for (fraction, bytes) in [(7, &b"abc"[..]), (999, &[])] {
                file.extend(writer.u32s(&[3, fraction, bytes.len() as u32, 1500]));
                file.extend(vec![9; more]);
                file.extend(bytes);
            }
            let (reader, packets) = whole(&file);
            let expected = [
                seen(3 * SECOND + 7 * nanos, b"abc", 1500),
                seen(3 * SECOND + 999 * nanos, b"", 1500),
            ];
            assert_eq!(packets, expected, "{magic:x} {writer:?}");
            let interface =
                Interface { link: LinkType::SLL, snap_length: 96, name: String::new(), dropped: 0 };
            assert_eq!(reader.interfaces(), [interface]);
        }
    }
}

#[test]
fn system_specific_numbers_for_raw_ip_are_unified() {
    for link in [12, 14, 101] {
        let (reader, _) = whole(&LITTLE.pcap(0xa1b2_c3d4, link));
        assert_eq!(reader.interfaces()[0].link, LinkType::RAW);
    }
}

#[test]
fn the_original_length_is_at_least_the_captured_length() {
    let mut file = LITTLE.pcap(0xa1b2_c3d4, 1);
    file.extend(LITTLE.u32s(&[0, 0, 4, 2]));
    file.extend(b"abcd");
    assert_eq!(whole(&file).1, [seen(0, b"abcd", 4)]);
}

#[test]
fn sections_of_either_order_number_their_own_interfaces() {
    let mut file = Vec::new();
    for (writer, name) in [(BIG, "wlan0"), (LITTLE, "rmnet0")] {
        file.extend(writer.section());
        file.extend(writer.interface(1, 0, &[(2, name.as_bytes())]));
        file.extend(writer.interface(101, 50, &[(9, &[9])]));
        file.extend(writer.packet(1, 5 * SECOND + 1, b"one", &[]));
        file.extend(writer.packet(0, 5_000_002, b"nought", &[]));
    }
    let (reader, packets) = whole(&file);
    let interfaces: Vec<_> =
        reader.interfaces().iter().map(|i| (i.name.as_str(), i.link)).collect();
    assert_eq!(
        interfaces,
        [
            ("wlan0", LinkType::ETHERNET),
            ("", LinkType::RAW),
            ("rmnet0", LinkType::ETHERNET),
            ("", LinkType::RAW),
        ]
    );
    let passed: Vec<_> = packets.iter().map(|p| (p.interface, p.nanos, p.length)).collect();
    let (first, second) = (5 * SECOND + 1, 5 * SECOND + 2_000);
    assert_eq!(passed, [(1, first, 1003), (0, second, 1006), (3, first, 1003), (2, second, 1006)]);
}

#[test]
fn each_interface_has_its_clock_resolution_and_offset() {
    let nanos = |resolution: u8, offset: i64, ticks: u64| {
        let offset = LITTLE.u64(offset as u64);
        let options: [(u16, &[u8]); 2] = [(9, &[resolution]), (14, &offset)];
        let mut file = LITTLE.section();
        file.extend(LITTLE.interface(1, 0, &options));
        file.extend(LITTLE.packet(0, ticks, b"x", &[]));
        whole(&file).1[0].nanos
    };
    assert_eq!(nanos(6, 0, 1), 1_000);
    assert_eq!(nanos(0, 0, 7), 7 * SECOND);
    assert_eq!(nanos(3, 1, 7), SECOND + 7_000_000);
    assert_eq!(nanos(9, 0, 7), 7);
    assert_eq!(nanos(12, 0, 7_999), 7, "picoseconds");
    assert_eq!(nanos(0x80 | 10, 0, 512), SECOND / 2);
    assert_eq!(nanos(0x80 | 32, 0, 3 << 31), 3 * SECOND / 2);
    assert_eq!(nanos(6, -3, 5_000_000), 2 * SECOND);
    // Times outside the range are replaced by the nearest possible time.
    assert_eq!(nanos(6, -6, 5_000_000), 0);
    assert_eq!(nanos(0, i64::MAX, u64::MAX), Time::MAX.as_nanos());
    assert_eq!(nanos(100, 0, u64::MAX), 1);
    assert_eq!(nanos(0xff, 0, u64::MAX), 0);
}

#[test]
fn blocks_give_direction_and_drops() {
    for writer in [LITTLE, BIG] {
        let mut file = writer.section();
        file.extend(writer.interface(1, 4, &[]));
        let (inward, outward, lost) = (writer.u32(1), writer.u32(2), writer.u64(3));
        file.extend(writer.packet(0, 1, b"in", &[(1, b"a comment"), (2, &inward)]));
        file.extend(writer.packet(0, 2, b"out", &[(2, &outward), (4, &lost)]));
        // The obsolete packet block: a 16-bit interface, and the number of drops before the packet.
        let old = [writer.u16(0), writer.u16(5), writer.u32s(&[0, 3, 2, 9]), b"ab".into()].concat();
        file.extend(writer.block(2, &old));
        let old = [writer.u16(0), vec![255; 2], writer.u32s(&[0, 4, 0, 9])].concat();
        file.extend(writer.block(2, &old));
        // A packet without a time, truncated to the snap length.
        file.extend(writer.block(3, &[&writer.u32(60)[..], b"abcd"].concat()));
        file.extend(writer.block(0x0000_0bad, b"custom content"));
        let counts: [(u16, &[u8]); 3] =
            [(4, &writer.u64(100)), (5, &writer.u64(7)), (7, &writer.u64(2))];
        let content = [writer.u32s(&[0, 0, 0]), writer.options(&counts)].concat();
        file.extend(writer.block(5, &content));
        let (reader, packets) = whole(&file);
        let sent = |seen: Seen, is_sent| Seen { is_sent: Some(is_sent), ..seen };
        let after = |seen: Seen, lost| Seen { dropped: lost, ..seen };
        let expected = [
            sent(seen(1_000, b"in", 1002), false),
            after(sent(seen(2_000, b"out", 1003), true), 3),
            after(seen(3_000, b"ab", 9), 5),
            seen(4_000, b"", 9),
            seen(4_000, b"abcd", 60),
        ];
        assert_eq!(packets, expected);
        assert_eq!(reader.interfaces()[0].dropped, 9);
    }
}

/// A btsnoop file with a record for each entry: flags, drops so far, bytes.
fn btsnoop(link: u32, records: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let mut file = [&b"btsnoop\0"[..], &BIG.u32s(&[1, link])].concat();
    for (flags, drops, bytes) in records {
        let length = bytes.len() as u32;
        file.extend(BIG.u32s(&[length + 3, length, *flags, *drops]));
        // One millisecond after the epoch.
        file.extend(BIG.u64(0x00dc_ddb3_0f2f_8000 + 1_000));
        file.extend(*bytes);
    }
    file
}

#[test]
fn bluetooth_is_read_with_and_without_packet_types() {
    let packet = |interface, is_sent, lost, bytes: &[u8]| Seen {
        nanos: 1_000_000,
        interface,
        bytes: bytes.into(),
        length: bytes.len() + 3,
        is_sent,
        dropped: lost,
    };
    let records: [(u32, u32, &[u8]); 3] = [(0, 0, b"data"), (3, 2, b"event"), (1, 2, b"back")];
    let (reader, packets) = whole(&btsnoop(1001, &records));
    let links: Vec<LinkType> = reader.interfaces().iter().map(|i| i.link).collect();
    assert_eq!(links, [LinkType::HCI_DATA, LinkType::HCI_CONTROL]);
    let expected = [
        packet(0, Some(true), 0, b"data"),
        packet(1, Some(false), 2, b"event"),
        packet(0, Some(false), 0, b"back"),
    ];
    assert_eq!(packets, expected);

    let (reader, packets) = whole(&btsnoop(1002, &[(3, 0, b"\x04event")]));
    assert_eq!(reader.interfaces()[0].link, LinkType::HCI_H4);
    assert_eq!(packets, [packet(0, Some(false), 0, b"\x04event")]);

    let (reader, packets) =
        whole(&btsnoop(2001, &[(4, 0, b"a"), (0x1_0005, 0, b"b"), (8, 0, b"c"), (5, 0, b"d")]));
    let sent: Vec<Option<bool>> = packets.iter().map(|packet| packet.is_sent).collect();
    assert_eq!(sent, [Some(true), Some(false), None, Some(false)]);
    let places: Vec<usize> = packets.iter().map(|packet| packet.interface).collect();
    assert_eq!(places, [0, 1, 2, 0]);
    let interfaces: Vec<_> = reader.interfaces().iter().map(|i| (&i.name[..], i.link)).collect();
    let data = LinkType::HCI_DATA;
    assert_eq!(interfaces, [("hci0", data), ("hci1", data), ("hci0", LinkType::HCI_MONITOR_OTHER)]);
    // Unknown types are not rejected; the caller counts them.
    assert_eq!(whole(&btsnoop(1003, &[(0, 0, b"?")])).0.interfaces()[0].link, LinkType(1003));
}

fn why(file: &[u8]) -> String {
    let (_, _, _, broken) = read(file, file.len());
    broken.expect("the file is broken").to_string()
}

#[test]
fn broken_files_yield_an_error() {
    assert!(why(b"GIF89a and so on").starts_with("not a capture"));
    assert!(why(b"\x1f\x8b\x08\0").starts_with("not a capture"));
    let mut newer = LITTLE.pcap(0xa1b2_c3d4, 1);
    newer[4] = 3;
    assert_eq!(why(&newer), "pcap version 3 is not supported");
    let absurd = [LITTLE.pcap(0xa1b2_c3d4, 1), LITTLE.u32s(&[0, 0, u32::MAX, 5])].concat();
    assert_eq!(why(&absurd), "invalid length of a packet: 4294967295 bytes");
    let first = BIG.section();
    for length in [0_u32, 8, 13, 1 << 30] {
        let file = [first.clone(), BIG.u32s(&[6, length, 0])].concat();
        assert_eq!(why(&file), format!("invalid length of a block: {length} bytes"));
    }
    let mut file = [first.clone(), BIG.block(77, b"abcd")].concat();
    let end = file.len() - 1;
    file[end] = 20;
    assert_eq!(why(&file), "the lengths at the two ends of a block differ: 16 and 20 bytes");
    let early = [first.clone(), BIG.packet(0, 0, b"", &[])].concat();
    assert_eq!(why(&early), "a packet refers to interface 0 before its description");
    // Each section has its own interfaces.
    let known = [first.clone(), BIG.interface(1, 0, &[]), BIG.packet(0, 0, b"", &[])].concat();
    let twice = [&known[..], &first, &BIG.packet(0, 0, b"", &[])].concat();
    assert_eq!(read(&twice, twice.len()).1.len(), 1);
    assert!(why(&twice).starts_with("a packet refers to interface 0"));
    let short = [first.clone(), BIG.block(1, b"abcd")].concat();
    assert_eq!(why(&short), "invalid length of the description of an interface: 16 bytes");
    let said = BIG.u32s(&[0, 0, 0, 500, 500]);
    let longer = [first, BIG.interface(1, 0, &[]), BIG.block(6, &said)].concat();
    assert_eq!(why(&longer), "invalid length of a packet: 500 bytes");
}

#[test]
fn a_truncated_file_is_read_to_its_end() {
    let mut file = LITTLE.section();
    file.extend(LITTLE.interface(1, 0, &[]));
    let first = file.len();
    file.extend(LITTLE.packet(0, 1, b"abc", &[]));
    let second = file.len();
    file.extend(LITTLE.packet(0, 2, b"def", &[]));
    for end in first..file.len() {
        let (_, packets, at, broken) = read(&file[..end], end);
        assert_eq!(broken, None);
        assert_eq!((packets.len(), at), if end < second { (0, first) } else { (1, second) });
    }
    assert!(matches!(Reader::default().step(b""), Ok(Step::More(4))));
}

#[test]
fn zeros_after_the_last_packet_are_an_error() {
    let packet = BIG.u32s(&[1, 0, 4, 60, 0x4500_0000]);
    let pcapng = [LITTLE.section(), LITTLE.interface(1, 0, &[])].concat();
    let pcapng = [pcapng, LITTLE.packet(0, 7, b"four", &[])].concat();
    let bluetooth = btsnoop(1002, &[(4, 1, b"four")]);
    let pcap = [BIG.pcap(0xa1b2_c3d4, 1), packet].concat();
    for written in [pcap, pcapng, bluetooth] {
        let file = [&written[..], &[0; 4_096]].concat();
        let (_, found, at, broken) = read(&file, file.len());
        assert_eq!((found.len(), at, broken), (1, written.len(), Some(FormatError::Zeros)));
    }
    // An empty packet with a time is valid.
    let empty = [BIG.pcap(0xa1b2_c3d4, 1), BIG.u32s(&[1, 0, 0, 0])].concat();
    assert_eq!(whole(&empty).1.len(), 1);
}

#[test]
fn interfaces_have_a_limit() {
    let mut file = LITTLE.section();
    let one = LITTLE.interface(1, 0, &[]);
    for _ in 0..MAX_INTERFACES {
        file.extend(&one);
    }
    assert_eq!(read(&file, file.len()).3, None);
    file.extend(&one);
    assert_eq!(read(&file, file.len()).3, Some(FormatError::TooManyInterfaces));
}

/// One file of each format.
fn samples() -> Vec<Vec<u8>> {
    let mut old = LITTLE.pcap(0xa1b2_c3d4, 1);
    old.extend(LITTLE.u32s(&[1, 2, 3, 4]));
    old.extend(b"abc");
    let mut new = BIG.section();
    new.extend(BIG.interface(1, 0, &[(2, b"eth0"), (9, &[9])]));
    new.extend(BIG.packet(0, 1, b"abc", &[(2, &[0, 0, 0, 1])]));
    new.extend(BIG.block(5, &BIG.u32s(&[0, 0, 0])));
    vec![old, new, btsnoop(1001, &[(0, 0, b"data"), (3, 2, b"event")])]
}

proptest! {
    #[test]
    fn no_input_panics_and_results_do_not_depend_on_the_pieces(
        sample in 0_usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        more in prop::collection::vec(any::<u8>(), 0..40),
        most in 1_usize..50,
    ) {
        let mut file = samples().swap_remove(sample);
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        file.extend(more);
        let (_, all, end, why) = read(&file, file.len());
        let (_, parts, part_end, part_why) = read(&file, most);
        prop_assert_eq!((all, end, why), (parts, part_end, part_why));
    }

    #[test]
    fn any_bytes_yield_a_capture_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read(&bytes, bytes.len().max(1));
    }
}

#[test]
fn the_interface_name_gives_the_kind_of_network() {
    let network = |name: &str| {
        Interface { link: LinkType::RAW, snap_length: 0, name: name.to_owned(), dropped: 0 }
            .network()
    };
    for (name, wanted) in [
        ("wlan0", Some("wifi")),
        ("wlp2s0", Some("wifi")),
        ("rmnet_data0", Some("cellular")),
        ("v4-rmnet_data1", Some("cellular")),
        ("pdp_ip0", Some("cellular")),
        ("wwan0", Some("cellular")),
        ("lte0", Some("cellular")),
        ("bnep0", Some("bluetooth")),
        ("enp3s0", Some("ethernet")),
        ("en0", None),
        ("any", None),
        ("", None),
    ] {
        assert_eq!(network(name), wanted, "{name}");
    }
}
