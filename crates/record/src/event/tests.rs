use super::*;

/// A family for these tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Event {
    DoorOpen { door: String },
    DoorShut { door: String, seconds: f64 },
}

impl EventFamily for Event {
    const NAMES: &'static [&'static str] = &["door-open", "door-shut"];
}

fn records() -> Vec<Record<Event>> {
    let at = |millis, event| Record { time: Time::from_millis(millis), event };
    vec![
        at(100, Event::DoorOpen { door: "front".into() }),
        at(200, Event::DoorShut { door: "front".into(), seconds: 0.1 }),
    ]
}

fn read(text: &str) -> Result<Log<Event>, EventError> {
    parse(text.as_bytes())
}

fn log(records: &[Record<Event>]) -> String {
    let header = Header::new("lab", "0.1.0", Span::from_millis(1_700_000_000_500));
    let records: String = records.iter().map(line).collect();
    header.line() + &records
}

#[test]
fn a_log_reads_back() {
    let log = read(&log(&records())).unwrap();
    assert_eq!(log.header.epoch, 1_700_000_000.5);
    assert_eq!((log.records, log.skipped), (records(), 0));
}

#[test]
fn every_nanosecond_reads_back() {
    for nanos in (0..64).map(|shift| 1_999_999_999_999_999_u64 >> shift) {
        let event = Event::DoorOpen { door: "a".into() };
        let records = [Record { time: Time::from_nanos(nanos), event }];
        assert_eq!(read(&log(&records)).unwrap().records, records);
    }
}

#[test]
fn lines_are_flat_objects_with_seconds() {
    let lines: Vec<String> = records().iter().map(line).collect();
    assert_eq!(lines[0], "{\"time\":0.1,\"event\":\"door-open\",\"door\":\"front\"}\n");
}

#[test]
fn unknown_events_and_fields_are_skipped() {
    let text = log(&[])
        + "{\"time\":1,\"event\":\"volcano\",\"lava\":true}\n"
        + "{\"time\":2,\"event\":\"door-open\",\"door\":\"a\",\"new\":1}\n";
    let read = read(&text).unwrap();
    assert_eq!((read.records.len(), read.skipped), (1, 1));
}

#[test]
fn a_line_that_is_wrong_is_named_but_a_torn_end_is_forgiven() {
    let good = log(&records());
    assert_eq!(read(&good[..good.len() - 10]).unwrap().records.len(), records().len() - 1);
    let wrong = log(&[]) + "{\"time\":-1,\"event\":\"door-open\",\"door\":\"a\"}\n";
    assert_eq!(read(&wrong).unwrap_err().to_string(), "line 2: a time is from 0 to 2e6 seconds");
    assert_eq!(read(""), Err(EventError::Empty));
    assert_eq!(
        read("{\"schema\":\"manyways.events/9\"}\n"),
        Err(EventError::Header(DocumentError::Newer {
            found: "manyways.events/9".into(),
            read: "manyways.events/2"
        }))
    );
    assert!(matches!(read("hello\n"), Err(EventError::Header(DocumentError::Damaged(_)))));
}
