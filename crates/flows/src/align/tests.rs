//! Chains of points with known delays.

use manyways_unit::{Span, Time};
use proptest::prelude::*;

use super::*;
use manyways_wire::stream::Piece;
use manyways_wire::tcp::Seq;

/// Pseudorandom bytes; different for each seed.
pub(super) fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..count).map(|_| next()).collect()
}

fn at(micros: u64) -> Time {
    Time::ZERO + Span::from_secs(1_700_000_000) + Span::from_micros(micros)
}

fn millis(millis: i64) -> Difference {
    Difference::from_nanos(millis * 1_000_000)
}

/// A track of these bytes in pieces of `cut` bytes, of which `kept` are captured, each at its time.
fn track(
    direction: ChainDirection,
    bytes: &[u8],
    cut: usize,
    kept: usize,
    time: impl Fn(u64) -> Time,
) -> Track {
    let mut track = Track::new(direction, "music", None);
    fill(&mut track, bytes, cut, kept, time);
    track
}

fn fill(track: &mut Track, bytes: &[u8], cut: usize, kept: usize, time: impl Fn(u64) -> Time) {
    for piece in bytes.chunks(cut) {
        let bytes = &piece[..piece.len().min(kept)];
        let at = time(track.length());
        track.push(Piece { at, bytes, length: piece.len() as u64 });
    }
}

fn whole(bytes: &[u8], cut: usize) -> Track {
    track(ChainDirection::Forward, bytes, cut, usize::MAX, |offset| at(offset * 10))
}

/// The track of a TCP connection's bytes, with or without the initial sequence numbers of its two
/// SYNs.
fn tcp(port: u16, first: u32, isns: [Option<u32>; 2], length: u64) -> Track {
    let end = |port: u16| ([192, 0, 2, 1], port).into();
    let [isn, other_isn] = isns.map(|isn| isn.map(Seq));
    let carries = TrackContent::Bytes;
    let origin = SequenceSource {
        sender: end(443),
        receiver: end(port),
        content: carries,
        first_seq: Seq(first),
        isn,
        peer_isn: other_isn,
    };
    let mut track = Track::new(ChainDirection::Forward, port.to_string(), Some(origin));
    track.push(Piece::uncaptured(at(0), length));
    track
}

fn found(first: &[Track], second: &[Track]) -> Vec<(usize, usize, MatchEvidence)> {
    let pairing = pairing::pair(first, second);
    pairing.matches.iter().map(|found| (found.first, found.second, found.evidence)).collect()
}

#[test]
fn numbers_tell_which_connection_it_is() {
    let both = [Some(99), Some(7)];
    let first = [tcp(1, 100, both, 50), tcp(2, 100, [None; 2], 50), tcp(3, 5, [Some(4), None], 9)];
    let second = [tcp(3, 100, both, 60), tcp(2, 120, [None; 2], 50), tcp(4, 5, [Some(4), None], 9)];
    let expected = [
        (0, 0, MatchEvidence::BothIsns),
        (1, 1, MatchEvidence::Tuple),
        (2, 2, MatchEvidence::OneIsn),
    ];
    assert_eq!(found(&first, &second), expected);
    let same: Vec<CommonRange> = pairing::pair(&first, &second)
        .matches
        .iter()
        .flat_map(|found| found.common.clone())
        .collect();
    assert_eq!(same[0], CommonRange { first: 0, second: 0, length: 50 });
    assert_eq!(same[1], CommonRange { first: 20, second: 0, length: 30 });
    assert_eq!(found(&second, &first).len(), 3);
}

#[test]
fn ports_that_are_used_again_and_proxies_with_the_server_s_address_are_others() {
    let (old, new) = ([Some(99), None], [Some(5_000), None]);
    let first = [tcp(1, 100, old, 50), tcp(1, 5_001, new, 50)];
    let second = [tcp(1, 5_001, new, 50), tcp(1, 100, old, 50)];
    assert_eq!(
        found(&first, &second),
        [(0, 1, MatchEvidence::TupleAndIsns), (1, 0, MatchEvidence::TupleAndIsns)]
    );
    assert_eq!(found(&first[..1], &second[..1]), [], "another connection");
    let near = tcp(1, 110, [Some(109), None], 50);
    assert_eq!(found(&first[..1], &[near]), [], "a proxy's, whose numbers happen to be near");
    assert_eq!(found(&[tcp(1, 100, [None; 2], 50)], &[tcp(1, 150, [None; 2], 50)]), []);
    // Two tracks with the same initial sequence number of one SYN are ambiguous.
    let twice = [tcp(8, 100, old, 50), tcp(9, 100, old, 50)];
    assert_eq!(found(&[tcp(7, 100, old, 50)], &twice), []);
    assert_eq!(found(&twice, &[tcp(7, 100, old, 50)]), []);
    // The more certain match wins.
    let sure = [tcp(8, 100, old, 50), tcp(7, 100, old, 50)];
    assert_eq!(found(&[tcp(7, 100, old, 50)], &sure), [(0, 1, MatchEvidence::TupleAndIsns)]);
    let mut back = tcp(1, 100, old, 50);
    back = Track::new(ChainDirection::Reverse, "", back.source().copied());
    back.push(Piece::uncaptured(at(0), 50));
    assert_eq!(found(&[tcp(1, 100, old, 50)], &[back]), []);
}

#[test]
fn one_number_does_not_stand_against_the_bytes() {
    let with = |port, seed| {
        let origin = tcp(port, 100, [Some(99), None], 0).source().copied();
        let mut track = Track::new(ChainDirection::Forward, "", origin);
        fill(&mut track, &noise(seed, 3_000), 1_000, 1_000, at);
        track
    };
    assert_eq!(found(&[with(1, 1)], &[with(2, 1)]), [(0, 0, MatchEvidence::OneIsn)]);
    assert_eq!(found(&[with(1, 1)], &[with(2, 2)]), []);
}

#[test]
fn the_same_bytes_are_found_in_any_segments() {
    let streams: Vec<Vec<u8>> = (0..5).map(|seed| noise(seed, 40 << (2 * seed))).collect();
    let first: Vec<Track> = streams.iter().map(|bytes| whole(bytes, 1_448)).collect();
    // The second capture begins later in each stream, and has another order.
    for (skipped, cut) in [(0, 990), (7, 1), (5, 1_448)] {
        let second: Vec<Track> =
            streams.iter().rev().map(|bytes| whole(&bytes[skipped..], cut)).collect();
        let pairing = pairing::pair(&first, &second);
        assert_eq!((pairing.matches.len(), &pairing.ambiguous[..]), (5, &[][..]));
        for (number, found) in pairing.matches.iter().enumerate() {
            assert_eq!(
                (found.first, found.second, found.evidence),
                (number, 4 - number, MatchEvidence::Content)
            );
            let length = (streams[number].len() - skipped) as u64;
            let first = skipped as u64;
            assert_eq!(found.common, [CommonRange { first, second: 0, length }]);
            assert_eq!(found.differing, 0);
        }
    }
}

#[test]
fn cut_packets_and_missed_ones_are_found() {
    let bytes = noise(1, 200_000);
    let first = [whole(&bytes, 1_448)];
    // The payload that a snap length of 96 bytes leaves.
    let cut = track(ChainDirection::Forward, &bytes, 1_448, 30, at);
    let pairing = pairing::pair(&first, &[cut]);
    assert_eq!(pairing.matches[0].common, [CommonRange { first: 0, second: 0, length: 200_000 }]);
    assert_eq!(pairing.matches[0].differing, 0);
    let mut holed = Track::new(ChainDirection::Forward, "", None);
    for (number, piece) in bytes.chunks(1_000).enumerate() {
        match number % 3 {
            0 => holed.skip(1_000),
            _ => holed.push(Piece::captured(at(0), piece)),
        }
    }
    let pairing = pairing::pair(&first, &[holed]);
    let found = &pairing.matches[0];
    assert_eq!(
        (found.differing, &found.common[..]),
        (0, &[CommonRange { first: 0, second: 0, length: 200_000 }][..])
    );
}

#[test]
fn what_repeats_is_ambiguous() {
    let zeros = || whole(&[0; 5_000], 1_000);
    let pairing = pairing::pair(&[zeros()], &[zeros()]);
    assert_eq!((pairing.matches, pairing.ambiguous), (vec![], vec![0]));
    // The same file over two connections.
    let file = || whole(&noise(1, 5_000), 1_000);
    let pairing = pairing::pair(&[file(), file()], &[file()]);
    assert_eq!((pairing.matches, pairing.ambiguous), (vec![], vec![0]));
    // Zeros within unique bytes are part of the match.
    let bytes = [noise(1, 3_000), vec![0; 3_000], noise(2, 3_000)].concat();
    let pairing = pairing::pair(&[whole(&bytes, 1_000), zeros()], &[whole(&bytes, 700)]);
    assert_eq!(pairing.matches.len(), 1);
    assert_eq!(pairing.matches[0].common, [CommonRange { first: 0, second: 0, length: 9_000 }]);
}

#[test]
fn the_same_head_alone_is_no_match() {
    let head = b"HTTP/1.1 200 OK\r\nServer: a server that says much of itself\r\n".to_vec();
    let of = |seed| whole(&[head.clone(), noise(seed, 4_000)].concat(), 1_000);
    let pairing = pairing::pair(&[of(1)], &[of(2)]);
    assert_eq!((pairing.matches, pairing.ambiguous), (vec![], vec![0]));
    let pairing = pairing::pair(&[of(1), of(3)], &[of(2), of(3)]);
    assert_eq!(pairing.matches.len(), 1);
    assert_eq!((pairing.matches[0].first, pairing.matches[0].second), (1, 1));
    assert_eq!(found(&[whole(&noise(1, 31), 31)], &[whole(&noise(1, 31), 31)]), [], "too short");
}

#[test]
fn a_proxy_may_carry_all_in_one_stream_of_frames() {
    let streams = [noise(1, 60_000), noise(2, 40_000)];
    let first = [whole(&streams[0], 1_448), whole(&streams[1], 1_448)];
    let mut framed = Vec::new();
    let mut frames = Vec::new();
    let mut parts = streams.each_ref().map(|bytes| bytes.chunks(2_000));
    for number in 0..50 {
        let stream = usize::from(number % 5 > 2);
        let part = parts[stream].next().unwrap();
        framed.extend([0x7e, number, stream as u8, 0, 7, 0xd0]);
        frames.push((stream, framed.len() as u64));
        framed.extend(part);
    }
    let pairing = pairing::pair(&first, &[whole(&framed, 990)]);
    assert_eq!(pairing.matches.len(), 2);
    for found in &pairing.matches {
        let expected: Vec<u64> =
            frames.iter().filter(|frame| frame.0 == found.first).map(|frame| frame.1).collect();
        assert_eq!(found.common.len(), expected.len());
        for (same, (number, begin)) in found.common.iter().zip((0..).zip(expected)) {
            let shift = i128::from(begin) - number * 2_000;
            assert_eq!(i128::from(same.second) - i128::from(same.first), shift);
            assert!(same.length > 1_300, "{same:?}");
        }
    }
}

#[test]
fn many_streams_and_long_ones_are_fast() {
    let long = noise(77, 6_000_000);
    let found = pairing::pair(&[whole(&long, 1_448)], &[whole(&long, 16_000)]);
    assert_eq!(found.matches[0].common, [CommonRange { first: 0, second: 0, length: 6_000_000 }]);
    let tracks: Vec<Track> = (0..500).map(|_| tcp(1, 100, [None; 2], 5)).collect();
    assert!(pairing::pair(&tracks, &tracks).matches.is_empty());
}

/// A phone's proxy between a server and a wearable with different clocks. Bytes are read 7 ms and
/// written 9 ms after their arrival; the path to the server takes 20 ms in one direction and 35 ms
/// in the other, the path to the wearable 4 ms and 6 ms.
struct Proxied {
    points: [Point; 4],
    log: String,
}

const SECOND: u64 = 1_000_000;

fn server(micros: u64) -> Time {
    at(micros + 3_200_000 - micros * 40 / 1_000_000)
}

fn wearable(micros: u64) -> Time {
    at(micros + 50_000 + micros * 15 / 1_000_000)
}

fn proxied() -> Proxied {
    // A piece per 20 ms for 60 s, down and up; each third waits up to 30 ms in each part.
    let down = noise(11, 3_000 * 120);
    let up = noise(12, 3_000 * 120);
    let sent = |place: u64| SECOND + 20_000 * (place / 120);
    let wait = |place: u64, part: u64| {
        let piece = place / 120;
        if piece.is_multiple_of(3) { (piece * (part + 7) * 7_919) % 30_000 } else { 0 }
    };
    // True times at the server, phone, read, write and wearable.
    let downs = |place: u64| {
        let came = sent(place) + 20_000 + wait(place, 1);
        let gone = came + 9_000;
        [sent(place), came, came + 7_000, gone, gone + 4_000 + wait(place, 2)]
    };
    let ups = |place: u64| {
        let came = sent(place) + 6_000 + wait(place, 3);
        let gone = came + 9_000;
        [gone + 35_000 + wait(place, 4), gone, came + 7_000, came, sent(place)]
    };
    let point = |location, clock, number: usize, cut, time: fn(u64) -> Time| {
        let along =
            track(ChainDirection::Forward, &down, cut, 1_000, |byte| time(downs(byte)[number]));
        let against =
            track(ChainDirection::Reverse, &up, cut, 1_000, |byte| time(ups(byte)[number]));
        Point { location, clock, tracks: vec![along, against] }
    };
    let points = [
        point(PointLocation::Server, 0, 0, 120, server),
        point(PointLocation::PhoneIn, 1, 1, 120, at),
        point(PointLocation::PhoneOut, 1, 3, 60, at),
        point(PointLocation::Wearable, 2, 4, 40, wearable),
    ];
    let mut log = "time,stream,offset,point\n".to_owned();
    for offset in (0..down.len() as u64).step_by(120) {
        for (number, point) in [(2, "read"), (3, "write")] {
            let micros = downs(offset)[number] + 1_700_000_000 * SECOND;
            let time = format!("{}.{:06}", micros / SECOND, micros % SECOND);
            log += &format!("{time},music,{},{point}\n", offset + 120);
        }
    }
    Proxied { points, log }
}

fn part(report: &Report, name: PartName, direction: ChainDirection) -> &Part {
    report.part(name, direction).unwrap_or_else(|| panic!("{name:?} {direction:?}"))
}

/// Whether two values differ by less than 0.1 ms.
fn is_near(one: Difference, other: Difference) -> bool {
    one.less(other).abs() < Span::from_micros(100)
}

#[test]
fn the_parts_of_a_delay_are_found() {
    let Proxied { points, .. } = proxied();
    let report = Report::new(&points, None);
    assert_eq!(report.clocks().count(), 2);
    let (to_phone, to_wearable) = (report.pairs[0].clock.unwrap(), report.pairs[2].clock.unwrap());
    // The phone's clock minus the server's, and the wearable's minus the phone's.
    assert!((to_phone.drift.unwrap().0 - 40.0).abs() < 0.5, "{to_phone:?}");
    assert!((to_wearable.drift.unwrap().0 - 15.0).abs() < 0.5, "{to_wearable:?}");
    for (clock, bound) in [(to_phone, 27_500), (to_wearable, 5_000)] {
        let stated = clock.max_error.unwrap();
        assert!(is_near(
            Difference::between(Time::ZERO + stated, Time::ZERO + Span::from_micros(bound)),
            millis(0)
        ));
    }
    // The mean of both directions: the estimate with asymmetric delays.
    for (name, direction, min) in [
        (PartName::D1, ChainDirection::Forward, 27_500),
        (PartName::D1, ChainDirection::Reverse, 27_500),
        (PartName::D2AndD3, ChainDirection::Forward, 9_000),
        (PartName::D2AndD3, ChainDirection::Reverse, 9_000),
        (PartName::D4, ChainDirection::Forward, 5_000),
        (PartName::D4, ChainDirection::Reverse, 5_000),
    ] {
        let part = part(&report, name, direction);
        let min = Difference::from_nanos(min * 1_000);
        assert!(is_near(part.all.min, min), "{part:?}");
        assert!(is_near(part.all.median, min), "{part:?}");
        assert_eq!(part.all.bytes, 3_000 * 120);
        assert_eq!(part.crosses_clocks(), name != PartName::D2AndD3);
        if name != PartName::D2AndD3 {
            assert!(matches!(part.accuracy, Accuracy::ErrorBound(_)));
            assert!(part.all.p95 > part.all.median.plus(millis(20)), "{part:?}");
            assert!(part.all.max < min.plus(millis(31)), "{part:?}");
        }
    }
    assert!(report.part(PartName::D2, ChainDirection::Forward).is_none());
    assert_eq!(report.pairs[1].streams[0].delays.unwrap().max, millis(9));
    assert!(report.pairs[1].clock.is_none());
}

#[test]
fn a_log_parts_what_captures_cannot() {
    let Proxied { points, log } = proxied();
    let log = ProxyLog::read(log.as_bytes()).unwrap();
    let report = Report::new(&points, Some(&log));
    let d2 = part(&report, PartName::D2, ChainDirection::Forward);
    let d3 = part(&report, PartName::D3, ChainDirection::Forward);
    assert_eq!((d2.all.min, d2.all.max, d2.accuracy), (millis(7), millis(7), Accuracy::OneClock));
    assert_eq!((d3.all.min, d3.all.max, d3.accuracy), (millis(2), millis(2), Accuracy::OneClock));
    assert_eq!((d2.all.bytes, d3.all.bytes), (3_000 * 120, 3_000 * 120));
    assert_eq!(d2.points, [1, 2]);
    // The log names the downward stream, and both directions have that name: for the upward stream
    // the log contains times before the bytes exist, which the report includes unchanged.
    assert!(report.part(PartName::D2, ChainDirection::Reverse).is_some());
    // If the proxy wrote 1 ms before the capture, d4 begins at the write.
    let earlier: String = proxied()
        .log
        .lines()
        .skip(1)
        .filter(|line| line.ends_with("write"))
        .map(|line| {
            let (time, rest) = line.split_once(',').unwrap();
            let (secs, micros) = time.split_once('.').unwrap();
            let micros =
                secs.parse::<u64>().unwrap() * SECOND + micros.parse::<u64>().unwrap() - 1_000;
            format!("{}.{:06},{rest}\n", micros / SECOND, micros % SECOND)
        })
        .collect();
    let log = ProxyLog::read(earlier.as_bytes()).unwrap();
    let report = Report::new(&points, Some(&log));
    assert_eq!(part(&report, PartName::D2AndD3, ChainDirection::Forward).all.median, millis(8));
    assert!(is_near(part(&report, PartName::D4, ChainDirection::Forward).all.median, millis(6)));
    assert!(report.part(PartName::D3, ChainDirection::Forward).is_none());
}

#[test]
fn a_log_begins_where_the_stream_does() {
    let origin = |first, isn| tcp(1, first, [isn, None], 0).source().copied();
    let named = |origin| {
        let mut track = Track::new(ChainDirection::Forward, "music", origin);
        fill(&mut track, &noise(1, 3_000), 1_000, 1_000, |_| at(0));
        track
    };
    let log = ProxyLog::read(b"1700000000.5,music,5000,read\n1700000001,music,9000,read").unwrap();
    let least = |origin| {
        let point = |location, tracks| Point { location, clock: 0, tracks };
        let points = [
            point(PointLocation::PhoneIn, vec![named(origin)]),
            point(PointLocation::PhoneOut, vec![named(None)]),
        ];
        let report = Report::new(&points, Some(&log));
        report.part(PartName::D2, ChainDirection::Forward).map(|part| (part.all.min, part.all.max))
    };
    assert_eq!(least(origin(1, Some(0))), Some((millis(500), millis(500))));
    assert_eq!(least(origin(4_001, Some(0))), Some((millis(500), millis(1_000))));
    assert_eq!(least(origin(5_001, Some(0))), Some((millis(1_000), millis(1_000))));
    assert_eq!(least(origin(4_001, None)), None, "nobody knows where it begins");
}

#[test]
fn one_way_only_is_above_the_least() {
    let Proxied { mut points, .. } = proxied();
    for point in &mut points {
        point.tracks.truncate(1);
    }
    let report = Report::new(&points, None);
    let d1 = part(&report, PartName::D1, ChainDirection::Forward);
    assert_eq!((d1.accuracy, d1.all.min), (Accuracy::RelativeToMin, millis(0)));
    assert!(d1.crosses_clocks() && is_near(d1.all.median, millis(0)));
    assert!(d1.all.max > millis(28) && d1.all.max < millis(31));
    let pair = &report.pairs[0];
    let (accuracy, series) = pair.series(&pair.streams[0]);
    assert_eq!(
        (accuracy, series.iter().min().copied()),
        (Accuracy::RelativeToMin, Some(millis(0)))
    );
    assert_eq!(
        part(&report, PartName::D2AndD3, ChainDirection::Forward).accuracy,
        Accuracy::OneClock
    );
}

#[test]
fn acknowledgements_are_a_way_back() {
    // A download: only ACKs go up, 30 ms after the arrival of the bytes.
    let point = |clock, is_second: bool, time: fn(u64) -> Time| {
        let origin = |carries| {
            tcp(1, 1, [Some(0), Some(5)], 0)
                .source()
                .map(|o| SequenceSource { content: carries, ..*o })
        };
        let mut down = Track::new(ChainDirection::Forward, "d", origin(TrackContent::Bytes));
        let mut up =
            Track::new(ChainDirection::Reverse, "a", origin(TrackContent::Acknowledgements));
        for number in 0..2_000 {
            let sent = number * 20_000 + SECOND;
            let [passes, acked] =
                if is_second { [sent + 20_000, sent + 50_000] } else { [sent, sent + 60_000] };
            down.push(Piece::uncaptured(time(passes), 1_448));
            up.push(Piece::uncaptured(time(acked), 1_448));
        }
        Point { location: PointLocation::Other, clock, tracks: vec![down, up] }
    };
    let points = [point(0, false, server), point(1, true, at)];
    let report = Report::new(&points, None);
    let clock = report.clocks().next().unwrap();
    assert_eq!(clock.samples, [2_000, 2_000]);
    assert!((clock.drift.unwrap().0 - 40.0).abs() < 0.5);
    assert!(is_near(
        part(&report, PartName::Other, ChainDirection::Forward).all.median,
        millis(15)
    ));
    assert!(report.part(PartName::Other, ChainDirection::Reverse).is_none(), "they are no bytes");
    assert_eq!(report.pairs[0].streams.len(), 2);
}

#[test]
fn what_was_sent_again_is_told() {
    let bytes = noise(4, 10_000);
    let mut first = track(ChainDirection::Forward, &bytes, 1_000, 1_000, |_| at(0));
    first.on_retransmission(3_000, 1_000);
    first.on_retransmission(9_000, 1_000);
    let late = |offset| at(if [3_000, 9_000].contains(&offset) { 300_000 } else { 10_000 });
    let second = track(ChainDirection::Forward, &bytes, 1_000, 1_000, late);
    let point = |clock, track| Point { location: PointLocation::Other, clock, tracks: vec![track] };
    let report = Report::new(&[point(0, first), point(0, second)], None);
    let part = &report.parts[0];
    assert_eq!((part.all.max, part.all.bytes), (millis(300), 10_000));
    let once = part.sent_once.unwrap();
    assert_eq!((once.max, once.bytes), (millis(10), 8_000));
}

/// An operation on a track.
#[derive(Clone, Debug)]
enum Step {
    Push(u64, u16, u16, u64),
    Skip(u64),
    Retransmit(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (any::<u64>(), 0u16..400, 0u16..400, 0u64..600)
            .prop_map(|(time, from, count, more)| Step::Push(time, from, count, more)),
        1 => any::<u64>().prop_map(Step::Skip),
        1 => (0u64..500).prop_map(Step::Skip),
        1 => any::<(u64, u64)>().prop_map(|(offset, length)| Step::Retransmit(offset, length)),
    ];
    prop::collection::vec(step, 0..30)
}

fn built(direction: ChainDirection, isn: Option<u32>, steps: &[Step]) -> Track {
    // A few bytes, repeated, as in unusual streams.
    let bytes = noise(1, 800);
    let origin =
        isn.and_then(|isn| tcp(1, isn.wrapping_add(1), [Some(isn), None], 0).source().copied());
    let mut track = Track::new(direction, "a", origin);
    for step in steps {
        match *step {
            Step::Push(time, from, count, more) => {
                let bytes = &bytes[from.into()..][..count.into()];
                let length = more.max(count.into());
                track.push(Piece { at: Time::from_nanos(time), bytes, length });
            }
            Step::Skip(length) => track.skip(length),
            Step::Retransmit(place, length) => track.on_retransmission(place, length),
        }
    }
    track
}

proptest! {
    #[test]
    fn no_tracks_panic(
        all in prop::collection::vec((any::<bool>(), prop::option::of(any::<u32>()), steps()), 3..8),
        clocks in prop::array::uniform3(0u32..2),
    ) {
        let places = [PointLocation::PhoneIn, PointLocation::PhoneOut, PointLocation::Wearable];
        let mut points: Vec<Point> = places
            .into_iter()
            .zip(clocks)
            .map(|(location, clock)| Point { location, clock, tracks: Vec::new() })
            .collect();
        for (number, (is_along, isn, steps)) in all.iter().enumerate() {
            let direction = if *is_along { ChainDirection::Forward } else { ChainDirection::Reverse };
            points[number % 3].tracks.push(built(direction, *isn, steps));
            points[(number + 1) % 3].tracks.push(built(direction, *isn, steps));
        }
        let log = ProxyLog::read(b"1,a,100,read\n2,a,5000,read\n3,a,7000,write").unwrap();
        let report = Report::new(&points, Some(&log));
        for pair in &report.pairs {
            for stream in &pair.streams {
                let [a, b] = [(0, stream.matched.first), (1, stream.matched.second)]
                    .map(|(point, track)| &points[pair.points[point]].tracks[track]);
                for two in stream.matched.common.windows(2) {
                    prop_assert!(two[0].first + two[0].length <= two[1].first);
                    prop_assert!(two[0].second + two[0].length <= two[1].second);
                }
                let last = stream.matched.common.last().unwrap();
                prop_assert!(last.first + last.length <= a.length());
                prop_assert!(last.second + last.length <= b.length());
                pair.series(stream);
            }
        }
    }

    #[test]
    fn cuts_do_not_matter(cuts in prop::collection::vec(1usize..3_000, 1..20)) {
        let bytes = noise(5, 20_000);
        let mut track = Track::new(ChainDirection::Forward, "", None);
        let mut rest = &bytes[..];
        for cut in cuts.into_iter().cycle() {
            let (piece, behind) = rest.split_at(cut.min(rest.len()));
            track.push(Piece::captured(at(0), piece));
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        let whole = whole(&bytes, 20_000);
        let pairing = pairing::pair(&[whole], &[track]);
        prop_assert_eq!(&pairing.matches[0].common, &[CommonRange { first: 0, second: 0, length: 20_000 }]);
        prop_assert_eq!(pairing.matches[0].differing, 0);
    }
}
