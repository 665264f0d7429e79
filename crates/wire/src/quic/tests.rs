use proptest::prelude::*;
use rustls::quic::Version;

use super::*;
use crate::sample::{ID, crypto, hello, message, sealed};

fn shop(said: Peek<ClientHello>) {
    let hello = said.complete().expect("the hello is complete");
    assert_eq!(hello.server_name.map(|name| name.to_string()).as_deref(), Some("shop.example.com"));
    assert_eq!(hello.protocols, [b"h3"]);
}

fn more(said: Peek<ClientHello>, whole: usize) {
    assert_eq!(said, Peek::More(whole));
}

fn one(frames: &[u8]) -> Vec<u8> {
    sealed(Version::V1, ID, 0, &[], frames)
}

#[test]
fn the_first_packet_of_either_version_shows_the_name() {
    for version in [Version::V1, Version::V2] {
        let datagram = sealed(version, ID, 0, &[], &crypto(0, &hello(version)));
        shop(Initials::new().datagram(&datagram));
        // With packets of other types after the Initial packet, and a packet number other than 0.
        let token = [7; 100];
        let mut datagram = sealed(version, ID, 0x0102_0304, &token, &crypto(0, &hello(version)));
        datagram.extend_from_slice(b"\xe3something else");
        shop(Initials::new().datagram(&datagram));
    }
}

#[test]
fn pieces_in_any_order_among_other_frames_are_joined() {
    let hello = hello(Version::V1);
    let (a, b) = (hello.len() / 3, hello.len() / 2);
    let frames = [
        &[1, 0, 0][..],
        &crypto(b, &hello[b..]),
        // Two acknowledged ranges; then the same with ECN counts.
        &[2, 9, 0, 1, 1, 2, 3],
        &[3, 9, 0, 1, 1, 2, 3, 4, 5, 6],
        &crypto(0, &hello[..a]),
        &[1],
        &crypto(a - 5, &hello[a - 5..b]),
    ]
    .concat();
    shop(Initials::new().datagram(&one(&frames)));
}

#[test]
fn a_hello_may_need_two_datagrams_in_any_order() {
    let hello = hello(Version::V1);
    let half = hello.len() / 2;
    let first = sealed(Version::V1, ID, 0, &[], &crypto(0, &hello[..20]));
    let second = sealed(Version::V1, ID, 1, &[], &crypto(20, &hello[20..half]));
    let third = sealed(Version::V1, ID, 2, &[], &crypto(half, &hello[half..]));

    let mut initials = Initials::new();
    more(initials.datagram(&first), hello.len());
    more(initials.datagram(&first), hello.len());
    more(initials.datagram(b"\x40no long header"), hello.len());
    let both = [&second[..], &third].concat();
    shop(initials.datagram(&both));

    let mut initials = Initials::new();
    more(initials.datagram(&third), 45);
    more(initials.datagram(&second), 45);
    shop(initials.datagram(&first));
}

#[test]
fn the_keys_stay_those_of_the_first_packet() {
    let hello = hello(Version::V1);
    let mut initials = Initials::new();
    more(initials.datagram(&one(&crypto(0, &hello[..20]))), hello.len());
    // The server has chosen a shorter connection ID in the meantime.
    let later = sealed(Version::V1, b"abc", 1, &[], &crypto(20, &hello[20..]));
    shop(initials.datagram(&later));
}

#[test]
fn a_retry_changes_the_keys() {
    let hello = hello(Version::V1);
    let frames = crypto(0, &hello[..20]);
    let mut other = sealed(Version::V1, ID, 0, &[], &frames);
    // The keys of one connection ID do not decrypt packets of another.
    other[6] ^= 1;
    assert_eq!(Initials::new().datagram(&other), Peek::No);

    let mut initials = Initials::new();
    initials.keys = Keys::of_client(keys::Version::One, b"the first");
    initials.datagrams = 1;
    shop(initials.datagram(&sealed(Version::V1, ID, 1, b"token", &crypto(0, &hello))));
}

#[test]
fn other_datagrams_are_rejected_at_once() {
    let good = one(&crypto(0, &hello(Version::V1)));
    // Another version, type and header form, a connection ID that is too long, another token
    // length, and a length beyond the datagram.
    for (at, to) in [(4, 9), (0, 0xe3), (0, 0x43), (5, 21), (15, 0x4f), (17, 0x7f)] {
        let mut bad = good.clone();
        bad[at] = to;
        assert_eq!(Initials::new().datagram(&bad), Peek::No, "{to:#x} at {at}");
    }
    for end in 0..good.len() {
        assert_eq!(Initials::new().datagram(&good[..end]), Peek::No, "{end}");
    }
    let short = sealed(Version::V1, b"short", 0, &[], &crypto(0, &hello(Version::V1)));
    assert_eq!(Initials::new().datagram(&short), Peek::No);
}

#[test]
fn invalid_frames_are_rejected() {
    for frames in [
        &[0x1c, 0, 0, 0][..],
        &[0x08, 0],
        &[6, 0, 0x50],
        &crypto(16 * 1024, b"x"),
        &[6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0],
        &crypto(0, &[2; 60]),
        // A ClientHello that is one byte too long.
        &crypto(0, &[1, 0, 0x3f, 0xfd, 3, 3]),
    ] {
        let mut initials = Initials::new();
        let datagram = one(frames);
        assert_eq!(initials.datagram(&datagram), Peek::No, "{frames:x?}");
        let good = one(&crypto(0, &hello(Version::V1)));
        assert_eq!(initials.datagram(&good), Peek::No, "reading has ended");
    }
    // A number of ranges that would take too long to read.
    let ranges = [&[2, 0, 0][..], &[0xff; 8], &[0]].concat();
    assert_eq!(Initials::new().datagram(&one(&ranges)), Peek::No);
}

#[test]
fn reading_ends_after_the_maximum_of_datagrams() {
    let hello = message(&[]);
    let mut initials = Initials::new();
    let nothing = one(&crypto(0, &hello[..10]));
    for _ in 1..MAX_DATAGRAMS {
        more(initials.datagram(&nothing), hello.len());
    }
    assert_eq!(initials.datagram(&nothing), Peek::No);
    assert_eq!(initials.datagram(&one(&crypto(0, &hello))), Peek::No);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn results_do_not_depend_on_split_and_order(
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        order in any::<u64>(),
        datagrams in 1_usize..6,
    ) {
        let hello = hello(Version::V1);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(hello.len())).collect();
        ends.extend([0, hello.len()]);
        ends.sort_unstable();
        let mut pieces: Vec<Vec<u8>> =
            ends.windows(2).map(|ends| crypto(ends[0], &hello[ends[0]..ends[1]])).collect();
        pieces.sort_by_key(|piece| piece.iter().fold(order, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        }));
        let mut initials = Initials::new();
        let each = pieces.len().div_ceil(datagrams);
        let mut said = Peek::No;
        for (packet, pieces) in pieces.chunks(each).enumerate() {
            let datagram = sealed(Version::V1, ID, packet as u32, &[], &pieces.concat());
            said = initials.datagram(&datagram);
            if !matches!(said, Peek::More(_)) {
                break;
            }
        }
        shop(said);
    }

    #[test]
    fn any_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        at in 0_usize..30,
        to in any::<u8>(),
    ) {
        Initials::new().datagram(&bytes);
        Initials::new().datagram(&one(&bytes));
        let mut datagram = one(&crypto(0, &hello(Version::V1)));
        datagram[at] = to;
        Initials::new().datagram(&datagram);
    }
}
