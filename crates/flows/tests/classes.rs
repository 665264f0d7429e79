//! Each packet is in exactly one class, whatever its bytes are.
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it opens the files")]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use manyways_flows::analysis::{Analysis, Counters, Settings};
use manyways_flows::filter::Filter;
use manyways_unit::{Span, Time};
use manyways_wire::capture::{Interface, LinkType, Packet, Reader, Step};
use manyways_wire::frame::Unread;
use proptest::prelude::*;

const LINKS: [u16; 16] = [0, 1, 9, 50, 51, 101, 104, 105, 108, 113, 127, 187, 192, 228, 276, 999];

fn analyses() -> Vec<Analysis> {
    ["", "ip or ip6 or arp", "not port 53"]
        .map(|text| {
            let mut settings = Settings::default();
            settings.filter =
                (!text.is_empty()).then(|| Arc::new(text.parse::<Filter>().expect("a filter")));
            Analysis::new(settings)
        })
        .into()
}

fn pass(analyses: &mut [Analysis], interface: &Interface, packet: &Packet<'_>) {
    for analysis in analyses {
        analysis.handle_packet(interface, packet);
        while analysis.poll().is_some() {}
    }
}

/// Passes frames of a link type.
fn pass_frames(link: u16, frames: &[(&[u8], usize)]) -> Vec<Counters> {
    let interface =
        Interface { link: LinkType(link), snap_length: 0, name: String::new(), dropped: 0 };
    let mut all = analyses();
    for (index, (bytes, length)) in frames.iter().enumerate() {
        let packet = Packet {
            at: Time::ZERO + Span::from_micros(index as u64),
            interface: 0,
            bytes,
            length: (*length).max(bytes.len()),
            is_sent: None,
            dropped_before: 0,
            is_out_of_order: false,
        };
        pass(&mut all, &interface, &packet);
    }
    let counters: Vec<Counters> = all.iter().map(|one| one.counters().clone()).collect();
    assert_eq!(counters[0].packets, frames.len() as u64, "without a filter, every frame counts");
    counters
}

fn check(counters: &Counters, what: &str) {
    let classes = counters.tcp
        + counters.tcp_malformed
        + counters.udp
        + counters.udp_malformed
        + counters.other_protocols
        + counters.undecoded.total()
        + counters.bluetooth
        + counters.other_fragments;
    assert_eq!(classes, counters.packets, "{what}: {counters:?}");
    let in_udp = |unread| matches!(unread, Unread::Udp(..));
    let named = counters.unread.iter().filter(|(unread, _)| !in_udp(*unread));
    let named: u64 = named.map(|(_, packets)| packets).sum();
    assert_eq!(named, counters.other_protocols, "{what}: every protocol has its number");
}

/// Passes a capture as far as it can be read; returns the number of packets.
fn pass_capture(file: &[u8]) -> u64 {
    let (mut reader, mut rest, mut all) = (Reader::default(), file, analyses());
    while let Ok(Step::Packet(_, length) | Step::Other(length)) = reader.clone().step(rest) {
        if let Ok(Step::Packet(packet, _)) = reader.step(rest) {
            pass(&mut all, &reader.interfaces()[packet.interface].clone(), &packet);
        }
        rest = &rest[length..];
    }
    all.iter().for_each(|one| check(one.counters(), "a capture"));
    all[0].counters().packets
}

/// Every file of the fuzz corpus, with the name of its folder.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let list = |folder: &Path| {
        let all = std::fs::read_dir(folder).expect("the corpus");
        all.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
    };
    let folders = list(&folder);
    assert!(folders.len() > 20, "{folders:?}");
    let mut files = Vec::new();
    for folder in folders {
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        for file in list(&folder) {
            files.push((name.clone(), std::fs::read(file).expect("a file")));
        }
    }
    files
}

/// The link type and the frame of a seed.
fn frame_of(seed: &[u8]) -> Option<(u16, &[u8])> {
    let (link, frame) = seed.split_first_chunk()?;
    Some((u16::from_be_bytes(*link), frame))
}

static FRAMES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let seeds = corpus().into_iter().filter(|(name, _)| name == "frame");
    seeds.filter_map(|(_, seed)| frame_of(&seed).map(|(_, frame)| frame.to_vec())).collect()
});

#[test]
fn classes_add_up_to_the_packets_for_every_fuzz_corpus() {
    let mut packets = 0;
    for (name, bytes) in corpus() {
        packets += pass_capture(&bytes);
        // As frames: whole, truncated at every length, and in pieces.
        let (link, frame) = frame_of(&bytes).filter(|_| name == "frame").unwrap_or((1, &bytes));
        let cut = (0..frame.len().min(200)).map(|end| (&frame[..end], frame.len()));
        let whole = [(frame, frame.len()), (frame, frame.len() + 9)];
        let frames: Vec<_> = cut.chain(whole).chain(frame.chunks(60).map(|it| (it, 60))).collect();
        let links = if name == "frame" { vec![link] } else { vec![1, 101, 127, 276] };
        for link in links {
            for counters in pass_frames(link, &frames) {
                check(&counters, &name);
            }
        }
    }
    assert!(packets >= 20, "{packets} packets in captures");
}

proptest! {
    #[test]
    fn classes_add_up_to_the_packets_for_random_and_damaged_frames(
        link in prop::sample::select(LINKS.to_vec()),
        damaged in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), 0..120_usize),
            1..60,
        ),
        random in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..20),
    ) {
        let mut frames = random;
        for (seed, at, value, cut) in damaged {
            let mut bytes = FRAMES[seed.index(FRAMES.len())].clone();
            let at = at.index(bytes.len());
            bytes[at] = value;
            if cut < 60 {
                bytes.truncate(cut);
            }
            frames.push(bytes);
        }
        for link in [link, 1] {
            let frames: Vec<_> = frames.iter().map(|it| (&it[..], 80)).collect();
            for counters in pass_frames(link, &frames) {
                check(&counters, "frames");
            }
        }
    }
}

/// An IPv4 packet in Ethernet, with this field of fragments.
fn ethernet(part: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len()) as u16;
    let [a, b] = part.to_be_bytes();
    [
        &[2; 12][..],
        &[8, 0, 0x45, 0],
        &length.to_be_bytes(),
        &[0, 7, a, b, 64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1],
        payload,
    ]
    .concat()
}

fn datagram(length: u16) -> Vec<u8> {
    [&[5_000, 6_000, length, 0].map(u16::to_be_bytes).concat()[..], &[7; 100]].concat()
}

#[test]
fn a_datagram_without_a_readable_header_is_in_a_class_of_its_own() {
    let counters = |length, end: usize| {
        let frame = ethernet(0, 17, &datagram(length));
        let all = pass_frames(1, &[(&frame[..frame.len().min(end)], frame.len())]);
        all.iter().for_each(|counters| check(counters, "a datagram"));
        (all[0].udp, all[0].udp_malformed)
    };
    assert_eq!(counters(108, 999), (1, 0));
    assert_eq!(counters(108, 42), (1, 0), "a whole header");
    assert_eq!(counters(0, 999), (1, 0), "a merged packet");
    assert_eq!(counters(108, 38), (0, 1), "a truncated header");
    assert_eq!(counters(2_000, 999), (0, 1), "longer than the packet");
    assert_eq!(counters(7, 999), (0, 1), "shorter than the header");
}

#[test]
fn fragments_before_the_last_one_are_in_a_class_of_their_own() {
    let whole = datagram(108);
    let (first, last) = (ethernet(0x2000, 17, &whole[..56]), ethernet(7, 17, &whole[56..]));
    let other = ethernet(0x2000, 6, &[7; 8]);
    let frames: Vec<(&[u8], usize)> = [&first, &last, &other].map(|it| (&it[..], it.len())).into();
    let all = pass_frames(1, &frames);
    all.iter().for_each(|counters| check(counters, "fragments"));
    let of = |counters: &Counters| {
        [counters.packets, counters.udp, counters.fragments, counters.other_fragments]
    };
    assert_eq!(of(&all[0]), [3, 1, 3, 2]);
    assert_eq!(of(&all[1]), [2, 1, 2, 1], "with a filter, incomplete packets do not match");
}

#[test]
fn subframes_of_one_pair_of_addresses_are_analysed_and_the_frame_counts_once() {
    let subframe = |source: u8, port: u8| {
        let packet = ethernet(0, 17, &[0, port, 0, 9, 0, 8, 0, 0]);
        let mut subframe =
            [&[7; 12][..], &[0, 36, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &packet[14..]].concat();
        subframe[12 + 2 + 8 + 15] = source;
        subframe.resize(52, 0);
        subframe
    };
    let header = [&[0x88, 1][..], &[0; 22], &[0x80, 0]].concat();
    let frame = [header, subframe(1, 1), subframe(1, 2), subframe(3, 3)].concat();
    let all = pass_frames(105, &[(&frame, frame.len())]);
    all.iter().for_each(|counters| check(counters, "an aggregate"));
    let of = |counters: &Counters| {
        [counters.packets, counters.udp, counters.subframes, counters.unread_subframes]
    };
    assert_eq!(of(&all[0]), [1, 1, 1, 1]);
    assert_eq!(of(&all[1]), [1, 1, 1, 1]);
}
