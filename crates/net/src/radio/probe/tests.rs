use std::net::TcpListener;

use manyways_model::radio::gap_sweep::{GapSweep, ProbeSchedule};
use proptest::prelude::*;

use super::*;

#[test]
fn a_target_is_a_host_with_or_without_a_port() {
    assert_eq!(host_and_port("example.org"), Ok(("example.org", None)));
    assert_eq!(host_and_port("example.org:443"), Ok(("example.org", Some(443))));
    assert_eq!(host_and_port("192.0.2.1:80"), Ok(("192.0.2.1", Some(80))));
    assert_eq!(host_and_port("2001:db8::1"), Ok(("2001:db8::1", None)));
    assert_eq!(host_and_port("[2001:db8::1]"), Ok(("2001:db8::1", None)));
    assert_eq!(host_and_port("[2001:db8::1]:80"), Ok(("2001:db8::1", Some(80))));
    assert!(host_and_port("example.org:https").is_err() && host_and_port("a:70000").is_err());
}

fn sample(idle: u64, round_trip: u64) -> GapSample {
    GapSample {
        planned_gap: Span::from_millis(idle),
        gap: Span::from_millis(idle + 1),
        round_trip: Span::from_micros(round_trip),
        restarts: 2,
    }
}

#[test]
fn a_record_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("probe.csv");
    let mut record = ProbeFile::open(&path, false).unwrap();
    record.add(&sample(300, 20_500), Span::from_millis(1_500)).unwrap();
    record.add(&sample(50, 140_000), Span::from_millis(2_500)).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let line = "0.3,0.020500,0.301000,2,1.500";
    assert_eq!(text.lines().nth(1), Some(line));
    // The process was killed within a line.
    std::fs::write(&path, format!("{text}0.1,0.1,0.1,0,17")).unwrap();
    let error = ProbeFile::open(&path, false).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    let mut again = ProbeFile::open(&path, true).unwrap();
    assert_eq!(again.probes(), record.probes());
    assert_eq!(again.planned_gaps(), [Span::from_millis(300), Span::from_millis(50)]);
    again.add(&sample(100, 30_000), Span::ZERO).unwrap();
    assert_eq!(ProbeFile::open(&path, true).unwrap().probes().len(), 3);
    std::fs::write(&path, "something else").unwrap();
    assert_eq!(ProbeFile::open(&path, true).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert!(ProbeFile::open(&folder.path().join("new.csv"), true).unwrap().probes().is_empty());
}

#[test]
fn accepted_and_refused_connections_are_answers() {
    let local = IpAddr::from([127, 0, 0, 1]);
    let server = TcpListener::bind((local, 0)).unwrap();
    let port = server.local_addr().unwrap().port();
    let mut line = Prober::open("lo", &[local], local, Some(port)).unwrap();
    assert_eq!(line.method(), Method::Connect(port));
    let answer = line.probe().unwrap();
    assert_eq!((answer.rtt.is_some(), answer.own_packets), (true, 4));
    drop(server);
    let answer = line.probe().unwrap();
    assert_eq!((answer.rtt.is_some(), answer.own_packets), (true, 2));
    let error = Prober::open("no-such-if", &[], local, None).unwrap_err();
    assert!(matches!(error, ProbeError::NoInterface(_)), "{error}");
}

#[test]
fn a_stopped_run_keeps_its_results() {
    let local = IpAddr::from([127, 0, 0, 1]);
    let server = TcpListener::bind((local, 0)).unwrap();
    let port = server.local_addr().unwrap().port();
    let mut line = Prober::open("lo", &[local], local, Some(port)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut record = ProbeFile::open(&folder.path().join("probe.csv"), false).unwrap();
    let hour = Span::from_secs(3_600);
    let sweep = GapSweep { min: hour, max: hour, step: hour, rounds: 1 };
    let mut plan = ProbeSchedule::new(&sweep, 1, &[]).unwrap();
    let mut looks = 0;
    let mut pause = |_: &ProbeSchedule, _: Span| {
        looks += 1;
        looks < 3
    };
    let done = run(&mut line, &mut plan, &mut record, &mut pause).unwrap();
    assert_eq!((done, looks, record.probes().len()), (false, 3, 0));
}

proptest! {
    #[test]
    fn no_text_panics(text in "[a-z0-9,.:\n -]{0,80}") {
        let _ = parse_file(&format!("{CSV_HEADER}{text}"));
        let _ = host_and_port(&text);
    }
}
