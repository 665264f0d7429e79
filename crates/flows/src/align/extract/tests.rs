use std::net::IpAddr;

use super::*;
use crate::align::tests::noise;
use crate::align::{MatchEvidence, PointLocation, orient, pairing};
use manyways_wire::capture::LinkType;

const SERVER: ([u8; 4], u16) = ([198, 51, 100, 1], 443);
const PHONE: ([u8; 4], u16) = ([192, 0, 2, 9], 40_000);

/// Passes an IPv4 TCP packet with `snap` captured bytes of the payload.
fn packet(
    follow: &mut TrackExtractor,
    millis: u64,
    is_down: bool,
    says: (u32, u32, u8),
    payload: &[u8],
    snap: usize,
) {
    let (from, to) = if is_down { (SERVER, PHONE) } else { (PHONE, SERVER) };
    let (seq, ack, flags) = says;
    let mut bytes = vec![0x45, 0];
    bytes.extend((40 + payload.len() as u16).to_be_bytes());
    bytes.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
    bytes.extend([from.0, to.0].concat());
    bytes.extend([from.1, to.1].map(u16::to_be_bytes).concat());
    bytes.extend([seq, ack].map(u32::to_be_bytes).concat());
    bytes.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend(payload);
    let interface =
        Interface { link: LinkType::RAW, snap_length: 0, name: String::new(), dropped: 0 };
    let at = Time::from_millis(millis);
    let (length, kept) = (bytes.len(), bytes.len() - payload.len() + snap.min(payload.len()));
    let packet = Packet {
        at,
        interface: 0,
        bytes: &bytes[..kept],
        length,
        is_sent: None,
        dropped_before: 0,
        is_out_of_order: false,
    };
    follow.handle_packet(&interface, &packet);
}

const SYN: u8 = 2;
const ACK: u8 = 16;

fn handshake(follow: &mut TrackExtractor, rtt: u64) {
    packet(follow, 0, false, (99, 0, SYN), b"", 0);
    packet(follow, rtt, true, (499, 100, SYN | ACK), b"", 0);
    packet(follow, rtt + 5, false, (100, 500, ACK), b"", 0);
}

fn runs(track: &Track) -> Vec<(u64, u64, u64, u64)> {
    let run = |run: &crate::align::track::Run| {
        (run.begin, run.end, run.at.as_nanos() / 1_000_000, run.known_bytes)
    };
    track.runs().iter().map(run).collect()
}

#[test]
fn both_directions_and_their_acknowledgements() {
    let mut follow = TrackExtractor::default();
    handshake(&mut follow, 20);
    packet(&mut follow, 30, false, (100, 500, ACK), b"ask", 99);
    packet(&mut follow, 60, true, (500, 103, ACK), &[1; 100], 30);
    packet(&mut follow, 90, false, (103, 600, ACK), b"", 0);
    let followed = follow.finish();
    let names: Vec<&str> = followed.tracks.iter().map(Track::name).collect();
    let (up, down) = ("192.0.2.9:40000>198.51.100.1:443", "198.51.100.1:443>192.0.2.9:40000");
    assert_eq!(names, [up, &format!("ack {down}"), down, &format!("ack {up}")]);
    let [asked, asked_acks, answer, answer_acks] = &followed.tracks[..] else { panic!() };
    assert_eq!(runs(asked), [(0, 3, 30, 3)]);
    assert_eq!(runs(asked_acks), [(0, 3, 60, 0)]);
    assert_eq!(runs(answer), [(0, 100, 60, 30)]);
    assert_eq!(runs(answer_acks), [(0, 100, 90, 0)]);
    assert_eq!(
        (asked.direction(), asked_acks.direction()),
        (ChainDirection::Reverse, ChainDirection::Forward)
    );
    let origin = answer.source().unwrap();
    assert_eq!(
        (origin.first_seq, origin.isn, origin.peer_isn),
        (Seq(500), Some(Seq(499)), Some(Seq(99)))
    );
    let acks = answer_acks.source().unwrap();
    assert_eq!(
        (acks.first_seq, acks.isn, acks.peer_isn),
        (Seq(500), Some(Seq(499)), Some(Seq(99)))
    );
    assert_eq!((answer.start(), followed.packets, followed.tracked_packets), (Some(0), 6, 6));
    assert_eq!(followed.server_rtts.values().copied().collect::<Vec<_>>(), [Span::from_millis(20)]);
}

#[test]
fn what_never_passed_has_no_time() {
    // With captured payload, and without: then only the length is known.
    for snap in [100, 0] {
        let mut follow = TrackExtractor::default();
        handshake(&mut follow, 20);
        packet(&mut follow, 30, true, (500, 100, ACK), &[1; 10], snap);
        packet(&mut follow, 40, true, (520, 100, ACK), &[2; 10], snap);
        packet(&mut follow, 50, true, (510, 100, ACK), &[3; 5], snap);
        // Acknowledged up to 525, so 515 to 520 is missing in the capture.
        packet(&mut follow, 60, false, (100, 525, ACK), b"", 0);
        packet(&mut follow, 70, true, (500, 100, ACK), &[1; 10], snap);
        packet(&mut follow, 80, true, (540, 100, ACK), &[1; 10], snap);
        let followed = follow.finish();
        let down = &followed.tracks[0];
        let passed: Vec<_> = runs(down).iter().map(|run| (run.0, run.1, run.2)).collect();
        assert_eq!(passed, [(0, 10, 30), (10, 15, 50), (20, 30, 40), (40, 50, 80)], "{snap}");
        assert_eq!(down.retransmitted(), [(0, 10)]);
        assert_eq!(down.length(), 50);
    }
}

#[test]
fn gaps_that_nobody_fills_have_no_time() {
    let mut follow = TrackExtractor::default();
    handshake(&mut follow, 20);
    packet(&mut follow, 30, true, (500, 100, ACK), &[1; 10], 0);
    for number in 0..200 {
        packet(
            &mut follow,
            40 + u64::from(number),
            true,
            (520 + number * 10, 100, ACK),
            &[1; 10],
            0,
        );
    }
    let followed = follow.finish();
    let down = &followed.tracks[0];
    assert_eq!((down.length(), down.runs().len()), (2_020, 201));
    assert_eq!(runs(down)[1], (20, 30, 40, 0));
}

#[test]
fn a_connection_without_its_beginning_has_numbers() {
    let mut follow = TrackExtractor::default();
    packet(&mut follow, 30, true, (u32::MAX - 4, 7, ACK), &[1; 10], 9);
    packet(&mut follow, 40, false, (7, 5, ACK), b"", 0);
    packet(&mut follow, 50, true, (5, 7, ACK), &[1; 10], 9);
    packet(&mut follow, 60, false, (7, 15, ACK), b"", 0);
    let followed = follow.finish();
    let origins: Vec<_> = followed.tracks.iter().filter_map(Track::source).collect();
    assert_eq!((origins[0].first_seq, origins[0].isn), (Seq(u32::MAX - 4), None));
    assert_eq!(origins[0].sender, SocketAddr::new(IpAddr::from(SERVER.0), SERVER.1));
    // The first ACK has no bytes, because there is no earlier ACK.
    assert_eq!(
        (origins[1].first_seq, origins[1].content),
        (Seq(5), TrackContent::Acknowledgements)
    );
    assert_eq!(runs(&followed.tracks[1]), [(0, 10, 60, 0)]);
    assert_eq!(runs(&followed.tracks[0]), [(0, 10, 30, 9), (10, 20, 50, 9)]);
}

#[test]
fn ports_that_are_used_again_are_other_streams() {
    let mut follow = TrackExtractor::default();
    for start in [0, 10_000] {
        packet(&mut follow, start, false, (99 + start as u32, 0, SYN), b"", 0);
        packet(&mut follow, start, false, (100 + start as u32, 0, ACK), b"ask", 9);
    }
    let followed = follow.finish();
    assert_eq!(followed.tracks[1].name(), "192.0.2.9:40000>198.51.100.1:443#2");
}

/// A connection with a server at this round-trip time from the capture point.
fn capture_tracks(rtt: u64, bytes: &[u8]) -> CaptureTracks {
    let mut follow = TrackExtractor::default();
    handshake(&mut follow, rtt);
    for (number, part) in (0..).zip(bytes.chunks(100)) {
        let offset = number * 100;
        packet(&mut follow, 100 + u64::from(offset), true, (500 + offset, 100, ACK), part, 100);
    }
    follow.finish()
}

#[test]
fn the_server_is_where_the_way_to_it_is_short() {
    let bytes = noise(3, 1_000);
    let ways = |location, trips: [u64; 2]| {
        let mut points = trips.map(|rtt| (location, capture_tracks(rtt, &bytes)));
        orient(&mut points);
        points.map(|(_, point)| point.tracks[0].direction())
    };
    assert_eq!(ways(PointLocation::Other, [10, 30]), [ChainDirection::Forward; 2]);
    assert_eq!(ways(PointLocation::Other, [30, 10]), [ChainDirection::Reverse; 2]);
    assert_eq!(ways(PointLocation::Server, [30, 10]), [ChainDirection::Forward; 2]);
}

#[test]
fn a_server_behind_a_proxy_gets_what_comes_from_before_it() {
    let bytes = noise(3, 2_000);
    let before = capture_tracks(10, &bytes);
    // The same bytes, but from the client of another connection.
    let mut follow = TrackExtractor::default();
    for (number, part) in (0..).zip(bytes.chunks(70)) {
        let offset = number * 70;
        packet(&mut follow, 900 + u64::from(offset), false, (7_000 + offset, 1, ACK), part, 100);
    }
    let mut points = [(PointLocation::PhoneIn, before), (PointLocation::PhoneOut, follow.finish())];
    assert!(pairing::pair(&points[0].1.tracks, &points[1].1.tracks).matches.is_empty());
    orient(&mut points);
    assert_eq!(points[1].1.tracks[0].direction(), ChainDirection::Forward);
    let found = pairing::pair(&points[0].1.tracks, &points[1].1.tracks);
    assert_eq!((found.matches.len(), found.matches[0].evidence), (1, MatchEvidence::Content));
}

proptest::proptest! {
    #[test]
    fn no_segments_panic(
        segments in proptest::collection::vec(
            (0_u64..9_000_000, proptest::bool::ANY, (proptest::num::u32::ANY, proptest::num::u32::ANY, proptest::num::u8::ANY), 0_usize..90, 0_usize..90),
            0..60,
        ),
        near in proptest::bool::ANY,
    ) {
        let mut follow = TrackExtractor::default();
        for (millis, is_down, (seq, ack, flags), length, snap) in segments {
            let (seq, ack) = if near { (seq % 300, ack % 300) } else { (seq, ack) };
            packet(&mut follow, millis, is_down, (seq, ack, flags), &vec![7; length], snap);
        }
        let followed = follow.finish();
        proptest::prop_assert_eq!(followed.tracks.len(), followed.connections.len());
    }
}
