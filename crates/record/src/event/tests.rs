use super::*;

fn all_kinds() -> Vec<Record> {
    let at = |millis, event| Record { time: Time::from_millis(millis), event };
    vec![
        at(0, Event::WorkloadStart { workload: "fetch".into() }),
        at(
            100,
            Event::LinkSample(LinkSample {
                link: "wifi".into(),
                direction: Way::Down,
                rate_bps: Some(10_000_000),
                delivered_bytes: 125_000,
                queue_bytes: 3_000,
                queue_packets: 2,
                dropped_packets: Drops { queue: 1, ..Drops::default() },
            }),
        ),
        at(200, Event::LinkChange { link: "wifi".into(), set: vec!["state=silent".into()] }),
        at(250, Event::TransferStart { transfer: 0, url: "https://origin.lab/8M".into() }),
        at(
            300,
            Event::PathSample(PathSample {
                transfer: 0,
                path: "lte".into(),
                bytes: 1,
                rate_bps: None,
            }),
        ),
        at(
            350,
            Event::PathState {
                transfer: 0,
                path: "lte".into(),
                state: "down".into(),
                reason: Some("no route".into()),
            },
        ),
        at(
            360,
            Event::Request {
                transfer: 0,
                path: "lte".into(),
                request: 1,
                from: 4_000_000,
                to: Some(8_000_000),
            },
        ),
        at(
            370,
            Event::Response {
                transfer: 0,
                path: "lte".into(),
                request: 1,
                status: 206,
                expected_seconds: Some(0.065),
            },
        ),
        at(
            375,
            Event::Received {
                transfer: 0,
                path: "lte".into(),
                request: 1,
                from: 4_000_000,
                to: 4_016_384,
            },
        ),
        at(380, Event::RangeEnd { transfer: 0, path: "lte".into(), request: 1, to: 6_000_000 }),
        at(
            385,
            Event::RequestEnd { transfer: 0, path: "lte".into(), request: 1, how: "cut".into() },
        ),
        at(
            390,
            Event::Ping { transfer: 0, path: "lte".into(), rtt_seconds: 0.0655, by: "h2".into() },
        ),
        at(400, Event::TransferEnd { transfer: 0, complete: true, bytes: 8_000_000 }),
        at(410, Event::BondPath { path: "lte".into(), state: "suspect".into() }),
        at(
            420,
            Event::BondOpen(BondOpen {
                stream: 0,
                to: "192.0.2.1:443".into(),
                domain: Some("www.example.com".into()),
                process: None,
                rule: Some("calls".into()),
            }),
        ),
        at(
            430,
            Event::BondPolicy {
                stream: Some(0),
                to: "192.0.2.1:443".into(),
                rule: None,
                decision: "bond".into(),
            },
        ),
        at(440, Event::BondReinjection { bytes: 1_400, spurious_bytes: 0 }),
        at(
            450,
            Event::BondClose {
                stream: 0,
                seconds: 0.03,
                up_bytes: 77,
                down_bytes: 1_000,
                paths: [("lte".to_owned(), BondShare { sent: 77, received: 1_000 })].into(),
            },
        ),
        at(500, Event::WorkloadEnd { workload: "fetch".into(), exit: Some(0), seconds: 0.5 }),
    ]
}

fn log(records: &[Record]) -> String {
    let header = Header::new("lab", "0.1.0", Span::from_millis(1_700_000_000_500));
    let records: String = records.iter().map(line).collect();
    line(&header) + &records
}

#[test]
fn a_log_reads_back() {
    let records = all_kinds();
    let text = log(&records);
    let read = parse(text.as_bytes()).unwrap();
    assert_eq!(read.header.epoch, 1_700_000_000.5);
    assert_eq!((read.records, read.skipped), (records, 0));
}

#[test]
fn every_nanosecond_reads_back() {
    for nanos in (0..64).map(|shift| 1_999_999_999_999_999_u64 >> shift) {
        let event = Event::WorkloadStart { workload: "a".into() };
        let records = [Record { time: Time::from_nanos(nanos), event }];
        assert_eq!(parse(log(&records).as_bytes()).unwrap().records, records);
    }
}

#[test]
fn lines_are_flat_objects_with_seconds() {
    let lines: Vec<String> = all_kinds().iter().map(line).collect();
    assert_eq!(
        lines[1],
        "{\"time\":0.1,\"event\":\"link-sample\",\"link\":\"wifi\",\"direction\":\"down\",\
         \"rate_bps\":10000000,\"delivered_bytes\":125000,\"queue_bytes\":3000,\
         \"queue_packets\":2,\"dropped_packets\":{\"queue\":1,\"aqm\":0,\"loss\":0,\"down\":0,\
         \"middlebox\":0}}\n"
    );
    assert_eq!(
        lines[2],
        "{\"time\":0.2,\"event\":\"link-change\",\"link\":\"wifi\",\"set\":[\"state=silent\"]}\n"
    );
}

#[test]
fn every_kind_is_known_to_the_reader() {
    let kinds: Vec<String> = all_kinds()
        .iter()
        .map(|record| {
            let value = serde_json::to_value(record).unwrap();
            value["event"].as_str().unwrap().to_owned()
        })
        .collect();
    for kind in KINDS {
        assert!(kinds.iter().any(|seen| seen == kind), "{kind}");
    }
    assert_eq!(kinds.len(), KINDS.len());
}

#[test]
fn unknown_kinds_and_fields_are_skipped() {
    let text = log(&[])
        + "{\"time\":1,\"event\":\"volcano\",\"lava\":true}\n"
        + "{\"time\":2,\"event\":\"workload-start\",\"workload\":\"a\",\"new\":1}\n";
    let read = parse(text.as_bytes()).unwrap();
    assert_eq!((read.records.len(), read.skipped), (1, 1));
}

#[test]
fn a_line_that_is_wrong_is_named_but_a_torn_end_is_forgiven() {
    let good = log(&all_kinds());
    let torn = &good[..good.len() - 10];
    assert_eq!(parse(torn.as_bytes()).unwrap().records.len(), all_kinds().len() - 1);
    let wrong = log(&[]) + "{\"time\":-1,\"event\":\"workload-start\",\"workload\":\"a\"}\n";
    assert_eq!(
        parse(wrong.as_bytes()).unwrap_err().to_string(),
        "line 2: a time is from 0 to 2e6 seconds"
    );
    assert_eq!(parse(b""), Err(EventError::Empty));
    assert_eq!(
        parse(b"{\"schema\":\"manyways.events/9\"}\n"),
        Err(EventError::Schema("manyways.events/9".into()))
    );
    assert!(matches!(parse(b"hello\n"), Err(EventError::Line { line: 1, .. })));
}

#[test]
fn the_document_s_example_reads_and_names_every_kind() {
    let document = include_str!("../../../../docs/event-log.md");
    let example = document.rsplit("```json\n").next().unwrap().split("```").next().unwrap();
    let read = parse(example.as_bytes()).unwrap();
    assert_eq!((read.records.len(), read.skipped), (4, 0));
    for kind in KINDS {
        assert!(document.contains(&format!("`{kind}`")), "{kind}");
    }
}
