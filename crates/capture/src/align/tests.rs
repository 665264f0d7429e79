//! A server, a phone whose proxy delays data, and a wearable, with wrong clocks, in virtual time.
#![allow(clippy::unwrap_used, reason = "an error fails the test")]

use std::fs;

use manyways_flows::align::{Accuracy, ChainDirection, Difference, MatchEvidence, PartName};
use tempfile::TempDir;

use super::*;
use crate::Sources;

const SECOND: u64 = 1_000_000;
/// Start of the true time.
const BEGIN: u64 = 1_700_000_000 * SECOND;
const SERVER: ([u8; 4], u16) = ([198, 51, 100, 1], 443);
const PHONE: ([u8; 4], u16) = ([192, 0, 2, 9], 40_000);
const PROXY: ([u8; 4], u16) = ([10, 0, 0, 1], 5_000);
const WEARABLE: ([u8; 4], u16) = ([10, 0, 0, 2], 6_000);

type End = ([u8; 4], u16);

/// Packets with their true time in microseconds since [`BEGIN`].
#[derive(Default)]
struct Capture(Vec<(u64, Vec<u8>)>);

impl Capture {
    fn tcp(&mut self, at: u64, (from, to): (End, End), says: (u32, u32, u8), payload: &[u8]) {
        let (seq, ack, flags) = says;
        let mut bytes = vec![0x45, 0];
        bytes.extend((40 + payload.len() as u16).to_be_bytes());
        bytes.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
        bytes.extend([from.0, to.0].concat());
        bytes.extend([from.1, to.1].map(u16::to_be_bytes).concat());
        bytes.extend([seq, ack].map(u32::to_be_bytes).concat());
        bytes.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.extend(payload);
        self.0.push((at, bytes));
    }

    /// Adds data that the phone sends or receives over an L2CAP channel with PSM 0x1001.
    fn l2cap(&mut self, at: u64, is_sent: bool, channel: u16, payload: &[u8]) {
        let boundary: u16 = if is_sent { 0 } else { 2 };
        let header =
            [0x0b | boundary << 12, payload.len() as u16 + 4, payload.len() as u16, channel];
        let mut bytes = vec![0, 0, 0, u8::from(!is_sent), 2];
        bytes.extend(header.map(u16::to_le_bytes).concat());
        bytes.extend(payload);
        self.0.push((at, bytes));
    }

    fn opens_channel(&mut self) {
        for (is_sent, code, says) in [
            (true, 2, vec![0x1001_u16, 0x40]),
            (false, 3, vec![0x51, 0x40, 0, 0]),
            (true, 4, vec![0x51, 0]),
            (false, 5, vec![0x40, 0, 0]),
            (false, 4, vec![0x40, 0]),
            (true, 5, vec![0x51, 0, 0]),
        ] {
            let says: Vec<u8> = says.iter().flat_map(|number| number.to_le_bytes()).collect();
            let signal = [&[code, 7, says.len() as u8, 0], &says[..]].concat();
            self.l2cap(0, is_sent, 1, &signal);
        }
    }

    /// Writes a pcap file with a clock that is `ahead` microseconds and `ppm` millionths fast.
    fn file(mut self, link: u32, ahead: u64, ppm: u64) -> Vec<u8> {
        self.0.sort_by_key(|packet| packet.0);
        let mut file =
            [0xa1b2_c3d4_u32, 2 << 16 | 4, 0, 0, 1 << 16, link].map(u32::to_be_bytes).concat();
        for (at, bytes) in self.0 {
            let at = BEGIN + at + ahead + at * ppm / 1_000_000;
            let header = [at / SECOND, at % SECOND, bytes.len() as u64, bytes.len() as u64];
            file.extend(header.map(|number| (number as u32).to_be_bytes()).concat());
            file.extend(bytes);
        }
        file
    }
}

fn noise(mut seed: u64, count: usize) -> Vec<u8> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// A download of 120 bytes every 20 ms for 60 s through a phone: 20 ms to the phone and 30 ms back,
/// 7 ms in its buffer and 2 ms in its proxy, then 4 ms to the wearable and 6 ms back.
struct Testbed {
    folder: TempDir,
}

#[test]
fn a_link_type_that_is_not_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut capture = Capture::default();
    capture.tcp(0, (PHONE, SERVER), (99, 0, 2), b"");
    fs::write(folder.path().join("a.pcap"), capture.file(147, 0, 0)).unwrap();
    let source = Sources::find(&[folder.path().join("a.pcap")]).unwrap().captures.remove(0);
    let point = PointCapture { source, point: PointLocation::Other, clock: 0 };
    let error = align(&[point.clone(), point], None, &Progress::default()).unwrap_err();
    assert!(error.to_string().starts_with("cannot decode 1 packet of "), "{error}");
    assert!(error.to_string().ends_with(": link type 147"), "{error}");
    assert!(error.hint().is_some());
}

const STEPS: u64 = 3_000;

impl Testbed {
    fn new(is_bluetooth: bool) -> Self {
        let [mut server, mut phone_in, mut phone_out, mut wearable]: [Capture; 4] =
            Default::default();
        let down = noise(1, STEPS as usize * 120);
        let mut log = "time,stream,offset,point\n".to_owned();
        let ways = [(PHONE, SERVER), (WEARABLE, PROXY)];
        for (capture, at) in [(&mut server, 30_000), (&mut phone_in, 0)] {
            let up = ways[0];
            let back = (up.1, up.0);
            capture.tcp(at, up, (99, 0, 2), b"");
            capture.tcp(if at == 0 { 50_000 } else { 30_000 }, back, (499, 100, 18), b"");
            capture.tcp(50_000 + at, up, (100, 500, 16), b"");
        }
        if is_bluetooth {
            phone_out.opens_channel();
        }
        for (number, part) in (0..).zip(down.chunks(120)) {
            let sent = SECOND + u64::from(number) * 20_000;
            // Every third segment is delayed in the network.
            let wait = if number % 3 == 0 { u64::from(number) * 7_919 % 19_000 } else { 0 };
            let came = sent + 20_000 + wait;
            let (read, gone) = (came + 7_000, came + 9_000);
            let at_wearable = gone + 4_000;
            let offset = number * 120;
            let (to_phone, to_server) = ((SERVER, PHONE), (PHONE, SERVER));
            server.tcp(sent, to_phone, (500 + offset, 100, 16), part);
            phone_in.tcp(came, to_phone, (500 + offset, 100, 16), part);
            phone_in.tcp(came, to_server, (100, 620 + offset, 16), b"");
            server.tcp(came + 30_000, to_server, (100, 620 + offset, 16), b"");
            let (there, back) = ((PROXY, WEARABLE), (WEARABLE, PROXY));
            match is_bluetooth {
                true => {
                    // The proxy adds one byte of framing before each part.
                    let framed = [&[number as u8], part].concat();
                    phone_out.l2cap(gone, true, 0x51, &framed);
                }
                false => {
                    // The phone is the client of this connection.
                    let (one, other) = part.split_at(50);
                    for (from, bytes) in [(0, one), (50, other)] {
                        let says = (900 + offset + from, 7, 16);
                        phone_out.tcp(gone, there, says, bytes);
                        wearable.tcp(at_wearable, there, says, bytes);
                    }
                    wearable.tcp(at_wearable, back, (7, 1_020 + offset, 16), b"");
                    phone_out.tcp(at_wearable + 6_000, back, (7, 1_020 + offset, 16), b"");
                }
            }
            for (micros, stream, point) in [
                (read, "198.51.100.1:443>192.0.2.9:40000", "read"),
                (gone, "10.0.0.1:5000>10.0.0.2:6000", "write"),
            ] {
                let at = BEGIN + micros;
                let time = format!("{}.{:06}", at / SECOND, at % SECOND);
                log += &format!("{time},{stream},{},{point}\n", offset + 120);
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, bytes: Vec<u8>| fs::write(folder.path().join(name), bytes).unwrap();
        // The clock of the server is 3.2 s ahead and 40 ppm fast, that of the wearable 0.05 s and
        // 15 ppm.
        write("server.pcap", server.file(101, 3_200_000, 40));
        write("phone-in.pcap", phone_in.file(101, 0, 0));
        write("phone-out.pcap", phone_out.file(if is_bluetooth { 201 } else { 101 }, 0, 0));
        write("wearable.pcap", wearable.file(101, 50_000, 15));
        write("log.csv", log.into_bytes());
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn capture(&self, name: &str, location: PointLocation, clock: u32) -> PointCapture {
        let source = Sources::find(&[self.path(name)]).unwrap().captures.remove(0);
        PointCapture { source, point: location, clock }
    }

    fn captures(&self) -> [PointCapture; 4] {
        [
            self.capture("server.pcap", PointLocation::Server, 0),
            self.capture("phone-in.pcap", PointLocation::PhoneIn, 1),
            self.capture("phone-out.pcap", PointLocation::PhoneOut, 1),
            self.capture("wearable.pcap", PointLocation::Wearable, 2),
        ]
    }
}

fn run(captures: &[PointCapture], log: Option<&Path>) -> Result<Alignment, AlignError> {
    align(captures, log, &Progress::default())
}

fn millis(millis: i64) -> Difference {
    Difference::from_nanos(millis * 1_000_000)
}

/// Within 0.1 ms.
fn is_near(one: Difference, other: Difference) -> bool {
    one.less(other).abs() < manyways_unit::Span::from_micros(100)
}

#[test]
fn the_parts_of_a_delay_are_found() {
    let testbed = Testbed::new(false);
    let Alignment { captures, report, .. } = run(&testbed.captures(), None).unwrap();
    assert!(captures.iter().all(|capture| capture.error.is_none() && capture.packets > STEPS));
    let clocks: Vec<_> = report.clocks().collect();
    // Phone relative to server, and wearable relative to phone.
    assert!((clocks[0].drift.unwrap().0 + 40.0).abs() < 0.5, "{clocks:?}");
    assert!((clocks[1].drift.unwrap().0 - 15.0).abs() < 0.5, "{clocks:?}");
    for (name, truth, taken, bound) in
        [(PartName::D1, 20, 25, 25), (PartName::D2AndD3, 9, 9, 0), (PartName::D4, 4, 5, 5)]
    {
        let part = report.part(name, ChainDirection::Forward).unwrap();
        assert!(is_near(part.all.median, millis(taken)), "{part:?}");
        assert_eq!(part.all.bytes, STEPS * 120, "{part:?}");
        match part.accuracy {
            Accuracy::OneClock => assert_eq!(bound, 0),
            Accuracy::ErrorBound(span) => {
                let bound_seen = Difference::from_nanos(span.as_nanos() as i64);
                assert!(is_near(bound_seen, millis(bound)), "{part:?}");
                assert!(part.all.median.less(millis(truth)).abs() <= span);
            }
            trust => panic!("{trust:?}"),
        }
        assert!(
            report.part(name, ChainDirection::Reverse).is_none(),
            "acknowledgments have no bytes"
        );
    }
    let d1 = report.part(PartName::D1, ChainDirection::Forward).unwrap();
    assert!(d1.all.max > millis(42) && d1.all.max < millis(45));
    let hows: Vec<_> = report
        .pairs
        .iter()
        .flat_map(|pair| &pair.streams)
        .map(|stream| stream.matched.evidence)
        .collect();
    assert_eq!(
        hows,
        [
            MatchEvidence::TupleAndIsns,
            MatchEvidence::TupleAndIsns,
            MatchEvidence::Content,
            MatchEvidence::Tuple,
            MatchEvidence::Tuple
        ]
    );
}

#[test]
fn a_log_splits_the_delay_in_the_phone() {
    let testbed = Testbed::new(false);
    let report = run(&testbed.captures(), Some(&testbed.path("log.csv"))).unwrap().report;
    let d2 = report.part(PartName::D2, ChainDirection::Forward).unwrap();
    assert_eq!((d2.all.min, d2.all.max, d2.accuracy), (millis(7), millis(7), Accuracy::OneClock));
    // The stream to the wearable was captured without its beginning, so the offsets in the log
    // cannot be assigned to its bytes; the times of the capture are used.
    let d3 = report.part(PartName::D3, ChainDirection::Forward).unwrap();
    assert_eq!((d3.all.min, d3.all.max), (millis(2), millis(2)));
}

#[test]
fn a_proxy_that_forwards_over_bluetooth_is_followed() {
    let testbed = Testbed::new(true);
    let report = run(&testbed.captures()[..3], None).unwrap();
    assert_eq!(report.points[2].tracks[0].name(), "psm/4097/sent");
    let part = report.report.part(PartName::D2AndD3, ChainDirection::Forward).unwrap();
    assert_eq!(
        (part.all.min, part.all.max, part.accuracy),
        (millis(9), millis(9), Accuracy::OneClock)
    );
    // In frames this short, not every frame has bytes that identify it.
    assert!(part.all.count > STEPS / 3, "{part:?}");
}

#[test]
fn round_trip_times_determine_the_order_of_the_path() {
    let testbed = Testbed::new(false);
    // The phone comes first, and the places are not given.
    let captures = [
        testbed.capture("phone-in.pcap", PointLocation::Other, 0),
        testbed.capture("server.pcap", PointLocation::Other, 1),
    ];
    let report = run(&captures, None).unwrap().report;
    let part = report.part(PartName::Other, ChainDirection::Reverse).unwrap();
    assert!(is_near(part.all.median, millis(25)), "{part:?}");
    assert!(report.part(PartName::Other, ChainDirection::Forward).is_none());
}

fn fails(captures: &[PointCapture], log: Option<&Path>) -> String {
    let error = run(captures, log).unwrap_err();
    assert!(error.hint().is_some_and(|hint| !hint.is_empty()));
    error.to_string()
}

#[test]
fn captures_that_cannot_be_aligned_yield_an_error() {
    let testbed = Testbed::new(false);
    let captures = testbed.captures();
    assert_eq!(fails(&captures[..1], None), "one capture alone cannot be aligned");
    let gone =
        [captures[0].clone(), Testbed::new(true).capture("server.pcap", PointLocation::Other, 1)];
    assert!(run(&gone, None).unwrap_err().to_string().contains("cannot read"));
    let write = |name: &str, bytes: &[u8]| fs::write(testbed.path(name), bytes).unwrap();
    write("text.pcap", b"this is a letter and no capture");
    let letter = [captures[0].clone(), testbed.capture("text.pcap", PointLocation::Other, 1)];
    let said = fails(&letter, None);
    assert!(said.contains("text.pcap contains no TCP") && said.contains("not a capture"), "{said}");
    let mut other = Capture::default();
    other.tcp(5, (PROXY, SERVER), (5, 5, 16), &noise(77, 500));
    write("other.pcap", &other.file(101, 0, 0));
    let others = [captures[0].clone(), testbed.capture("other.pcap", PointLocation::Other, 1)];
    assert_eq!(fails(&others, None), "no stream of a capture was found in the next one");
    write("broken.csv", b"1,a,5,read\n1,a,many,read\n");
    let said = fails(&captures, Some(&testbed.path("broken.csv")));
    assert!(said.ends_with("broken.csv, line 2: the offset must be a whole number of bytes"));
    let said = fails(&captures, Some(&testbed.path("none.csv")));
    assert!(said.contains("none.csv: No such file"), "{said}");
}

#[test]
fn a_truncated_capture_is_aligned_as_far_as_possible() {
    let testbed = Testbed::new(false);
    let path = testbed.path("server.pcap");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let Alignment { captures, report, .. } = run(&testbed.captures()[..2], None).unwrap();
    assert!(captures[0].error.as_ref().unwrap().starts_with("the capture ends in the middle"));
    assert!(report.part(PartName::D1, ChainDirection::Forward).unwrap().all.bytes > STEPS * 50);
}
