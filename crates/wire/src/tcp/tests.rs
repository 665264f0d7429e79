use proptest::prelude::*;

use super::*;

fn header(options: &[u8]) -> Vec<u8> {
    let mut options = options.to_vec();
    options.resize(options.len().next_multiple_of(4), 0);
    let mut bytes = vec![0x1f, 0x90, 0x00, 0x50, 0, 0, 0, 9, 0, 0, 1, 0];
    bytes.extend([((20 + options.len()) << 2) as u8, 0x18, 0x02, 0x00, 0, 0, 0, 0]);
    bytes.extend(options);
    bytes
}

fn options(bytes: &[u8]) -> Options<'_> {
    Options::new(bytes, false)
}

#[test]
fn a_segment_is_read_complete_or_truncated() {
    let bytes = [header(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]), b"hello".to_vec()].concat();
    let segment = Segment::read(&bytes, bytes.len()).unwrap();
    assert_eq!((segment.source_port, segment.destination_port, segment.window), (8080, 80, 512));
    assert_eq!((segment.seq, segment.ack), (Seq(9), Seq(256)));
    assert!(segment.flags.has(Flags::ACK) && segment.flags.has(Flags::PSH));
    assert!(!segment.flags.has(Flags::SYN));
    assert_eq!(segment.options.timestamps(), Some(Timestamps { tsval: 1, tsecr: 2 }));
    assert_eq!((segment.payload, segment.length, segment.end()), (&b"hello"[..], 5, Seq(14)));
    for end in 0..bytes.len() {
        match Segment::read(&bytes[..end], bytes.len()) {
            None => assert!(end < 20),
            Some(cut) => {
                assert_eq!((cut.seq, cut.length), (segment.seq, 5));
                assert_eq!(cut.options.timestamps().is_some(), end >= 32);
                let options = cut.options;
                assert_eq!(
                    (options.is_truncated(), options.may_have_mptcp()),
                    (end < 32, end < 32)
                );
                assert!(segment.payload.starts_with(cut.payload));
            }
        }
    }
}

#[test]
fn an_invalid_header_is_rejected() {
    let mut short = header(&[]);
    short[12] = 0x40;
    assert_eq!(Segment::read(&short, 40), None);
    let long = header(&[1; 12]);
    assert_eq!(Segment::read(&long, 31), None, "the packet is shorter than that");
    assert!(Segment::read(&long, 32).is_some());
}

#[test]
fn syn_and_fin_have_numbers() {
    let mut bytes = header(&[]);
    for (flags, end) in [(0x02, 10), (0x11, 10), (0x03, 11), (0x10, 9)] {
        bytes[13] = flags;
        assert_eq!(Segment::read(&bytes, 20).unwrap().end(), Seq(end));
    }
}

#[test]
fn numbers_wrap() {
    assert_eq!(Seq(5).distance_from(Seq(u32::MAX)), 6);
    assert_eq!(Seq(u32::MAX).distance_from(Seq(5)), -6);
    assert_eq!(Seq(u32::MAX) + 2, Seq(1));
    let near = (7 << 32) + 10;
    assert_eq!(Seq(20).to_offset(near), near + 10);
    assert_eq!(Seq(u32::MAX).to_offset(near), near - 11);
    assert_eq!(Seq(3).to_offset((7 << 32) - 2), (7 << 32) + 3);
}

#[test]
fn the_options_of_a_syn() {
    let linux = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 7, 0, 0, 0, 0, 1, 3, 3, 7];
    let read = options(&linux);
    assert_eq!(
        (read.mss(), read.window_scale(), read.is_sack_permitted()),
        (Some(1460), Some(7), true)
    );
    assert_eq!(read.timestamps(), Some(Timestamps { tsval: 7, tsecr: 0 }));
    assert_eq!(options(&[3, 3, 200]).window_scale(), Some(14));
    let none = options(&[]);
    assert_eq!((none.mss(), none.window_scale(), none.is_sack_permitted()), (None, None, false));
}

#[test]
fn sack_has_up_to_four_ranges() {
    let numbers =
        |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<_>>();
    let three =
        [&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 5, 26][..], &numbers(&[5, 9, 1, 2, 11, 12])];
    let three = three.concat();
    let expected = [(Seq(5), Seq(9)), (Seq(1), Seq(2)), (Seq(11), Seq(12))];
    assert_eq!(options(&three).sack().as_slice(), expected);
    let four = [&[5, 34][..], &numbers(&[1, 2, 3, 4, 5, 6, 7, 8])].concat();
    assert_eq!(options(&four).sack().as_slice().len(), 4);
    assert!(options(&[5, 6, 0, 0, 0, 1]).sack().as_slice().is_empty(), "half of a range");
    assert!(options(&three[..30]).sack().as_slice().is_empty(), "truncated by the capture");
}

#[test]
fn mptcp_options_are_found_among_other_options() {
    let said = |bytes: &[u8]| {
        let read = options(bytes);
        let found: Vec<Vec<u8>> = read.mptcp().map(<[u8]>::to_vec).collect();
        assert_eq!(read.may_have_mptcp(), !found.is_empty());
        found
    };
    let stamps = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    let (syn, numbered) = ([30, 4, 0x01, 0x81], [30, 4, 0x20, 0]);
    assert_eq!(said(&stamps), [[0; 0]; 0]);
    assert_eq!(said(&[&stamps[..], &syn].concat()), [[0x01, 0x81]]);
    assert_eq!(said(&[&numbered[..], &stamps, &syn].concat()), [[0x20, 0], [0x01, 0x81]]);
    assert_eq!(said(&[&stamps[..], &syn[..3]].concat()), [[0; 0]; 0], "truncated by the capture");
}

#[test]
fn an_invalid_option_ends_the_list() {
    for broken in [&[8, 0, 2, 4][..], &[8, 1], &[2, 4, 5], &[0, 0, 2, 4, 5, 180], &[3]] {
        let read = options(broken);
        assert_eq!((read.mss(), read.timestamps()), (None, None), "{broken:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80), length in 0_usize..100_000) {
        if let Some(segment) = Segment::read(&bytes, length) {
            let read = segment.options;
            let _ = (read.mss(), read.window_scale(), read.sack(), read.mptcp().count(), segment.end());
        }
    }

    #[test]
    fn a_wrapped_number_is_restored_near_its_neighbour(near in any::<u64>(), step in -(1_i64 << 31)..1 << 31) {
        let number = near.wrapping_add_signed(step);
        prop_assert_eq!(Seq(number as u32).to_offset(near), number);
    }
}
