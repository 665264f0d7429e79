use super::*;

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

fn rates(text: &str) -> Steps<Rate> {
    match capacity(text.as_bytes(), None).unwrap() {
        LinkTrace::Rates(steps) => steps,
        other => panic!("{other:?}"),
    }
}

fn parse_error(text: &str) -> String {
    capacity(text.as_bytes(), None).unwrap_err().to_string()
}

#[test]
fn mahimahi() {
    let trace = capacity(b"0\n0\n3\n10\n", None).unwrap();
    let at = vec![ms(0), ms(0), ms(3), ms(10)];
    assert_eq!(trace, LinkTrace::Opportunities { at, size: MAHIMAHI_PACKET, period: ms(10) });
    assert_eq!(parse_error("5\n4\n"), "line 2: the time is earlier than on the previous line");
    assert_eq!(
        parse_error("0\n0\n"),
        "line 2: the last time is the trace's period and must be more than 0"
    );
    assert_eq!(parse_error("1\n2.5\n"), "line 2: `2.5` is not a whole number of milliseconds");
    assert_eq!(parse_error("1\n-2\n"), "line 2: `-2` is not a whole number of milliseconds");
    assert_eq!(parse_error("1\n99999999999\n"), "line 2: a trace lasts at most 3600000 s");
}

#[test]
fn bytes_a_second() {
    let steps = rates("1,125000\r\n2,0\r\n4,250000");
    assert_eq!(
        steps.steps(),
        [(ms(0), Rate::from_mbps(1)), (ms(1000), Rate::ZERO), (ms(3000), Rate::from_mbps(2))]
    );
    assert_eq!(steps.period(), ms(5000));
    assert_eq!(rates("second,bytes\n0,1\n").steps(), [(ms(0), Rate::from_bps(8))]);
    assert_eq!(
        parse_error("1,2\n1,3\n"),
        "line 2: the time is not later than on the previous line"
    );
    assert_eq!(
        parse_error("1,2\n2;3\n"),
        "line 2: seconds and bytes a second parted by a comma were expected"
    );
    assert_eq!(parse_error("1,2\nsecond,bytes\n"), "line 2: `second` is not a number of seconds");
    assert_eq!(parse_error("1,-2\n"), "line 1: `-2` is not a possible number of bytes a second");
    assert_eq!(parse_error("second,bytes\n"), "the trace is empty");
}

#[test]
fn a_byte_order_mark_is_skipped() {
    for text in ["3\n10\n", "3,1\n", "3 1\n", "second,bytes\n1,2\n", "# comment\n3 1\n"] {
        let marked = format!("\u{feff}{text}");
        assert_eq!(capacity(marked.as_bytes(), None), capacity(text.as_bytes(), None), "{text}");
    }
    let marked = "\u{feff}[{\"duration_ms\": 1, \"bandwidth_kbps\": 1, \"latency_ms\": 80}]";
    assert_eq!(delay(marked.as_bytes(), None).unwrap().steps(), [(ms(0), ms(40))]);
    assert_eq!(delay("\u{feff}0 40".as_bytes(), None).unwrap().steps(), [(ms(0), ms(40))]);
}

#[test]
fn mbit_a_second() {
    let steps = rates("# walking\n0 45.0\n1.5\t0.5\n\n");
    assert_eq!(steps.steps(), [(ms(0), Rate::from_mbps(45)), (ms(1500), Rate::from_kbps(500))]);
    assert_eq!(steps.period(), ms(3000));
    assert_eq!(rates("7 3").period(), ms(1000));
    assert_eq!(parse_error("0 1\n1 nan\n"), "line 2: `nan` is not a possible number of Mbit/s");
    assert_eq!(
        parse_error("0 1\n1 9999999\n"),
        "line 2: `9999999` is not a possible number of Mbit/s"
    );
    assert_eq!(
        parse_error("0 1\n1\n"),
        "line 2: seconds and Mbit/s parted by a space or tab were expected"
    );
}

#[test]
fn json_holds_rates_and_round_trip_times() {
    let text = br#"[{"duration_ms": 840, "bandwidth_kbps": 16823, "latency_ms": 25},
        {"duration_ms": 0, "bandwidth_kbps": 1, "latency_ms": 1},
        {"duration_ms": 1000.5, "bandwidth_kbps": 0.5, "latency_ms": 20}]"#;
    let LinkTrace::Rates(steps) = capacity(text, None).unwrap() else { panic!() };
    assert_eq!(steps.steps(), [(ms(0), Rate::from_kbps(16_823)), (ms(840), Rate::from_bps(500))]);
    assert_eq!(steps.period(), Span::from_micros(1_840_500));
    let delay = delay(text, None).unwrap();
    assert_eq!(delay.steps(), [(ms(0), Span::from_micros(12_500)), (ms(840), ms(10))]);
    assert_eq!(
        parse_error("[\n{\"duration_ms\": 1,\n\"bandwidth_kbps\": -1, \"latency_ms\": 1}]"),
        "line 3: a number from 0 to 1e12 was expected"
    );
    assert_eq!(parse_error("[]"), "the trace is empty");
    assert!(parse_error("[{\"duration_ms\": 1}]").starts_with("line 1: missing field"));
}

#[test]
fn delays() {
    let steps = delay(b"0 40\n1 60.5\n", None).unwrap();
    assert_eq!(steps.steps(), [(ms(0), ms(40)), (ms(1000), Span::from_micros(60_500))]);
    assert_eq!(
        delay(b"1\n2\n", None).unwrap_err().to_string(),
        "a `mahimahi` trace contains no delay"
    );
    assert_eq!(
        capacity(b"0 40\n", Some(Format::Ms)).unwrap_err().to_string(),
        "a `ms` trace contains no capacity"
    );
}

#[test]
fn a_named_format_is_not_guessed() {
    assert!(matches!(
        capacity(b"1,5\n", Some(Format::Mahimahi)),
        Err(TraceError::Line { line: 1, .. })
    ));
    for (name, format) in Format::NAMES {
        assert_eq!(Format::named(name), Some(format));
        assert_eq!(format.name(), name);
    }
}

#[test]
fn invalid_traces_are_refused() {
    assert_eq!(parse_error(""), "the trace is empty");
    assert_eq!(parse_error("# nothing\n"), "the trace is empty");
    assert!(parse_error("hello\n").starts_with("the format of the trace is unknown"));
    assert_eq!(
        capacity(b"1\n\xff\n", None),
        Err(TraceError::line(2, "the line is not UTF-8 text"))
    );
    assert_eq!(capacity(&vec![b'\n'; MAX_BYTES + 1], None), Err(TraceError::TooLarge));
    assert_eq!(delay(b"\n\n", None), Err(TraceError::Empty));
    let zero = r#"[{"duration_ms": 0, "bandwidth_kbps": 1, "latency_ms": 1}]"#;
    assert_eq!(parse_error(zero), "a trace needs at least one entry");
}
