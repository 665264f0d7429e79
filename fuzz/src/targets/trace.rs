//! Parsers of traces, scenarios and event logs.

use manyways_lab::signal::SignalDocument;
use manyways_record::document;
use manyways_record::event::{self, EventFamily};
use manyways_trace::link_text;
use manyways_trace::scenario::{self, CapacitySpec, DelaySpec, LinkSpec};
use manyways_trace::signal::{Signal, SignalTrace};
use manyways_trace::trace_file::{self, Format};
use manyways_trace::{LinkTrace, Steps};
use manyways_unit::{Rate, Size, Span};

pub(super) const TRACE_WORDS: &[&str] =
    &["duration_ms", "bandwidth_kbps", "latency_ms", "[{", "}]", "1e12", "second,bytes\n", "\r\n"];
pub(super) const VALUE_WORDS: &[&str] =
    &["mbit", "/s", "ms", "µs", "min", "KiB", "MB", "%", ".", " "];
pub(super) const LINK_WORDS: &[&str] = &[
    ",down=",
    ",up=",
    "trace:",
    "json:",
    "delay=",
    "down-",
    "up-",
    "loss=ge:",
    "1%:",
    "queue=",
    "100p",
    "aqm=codel:target=",
    ":interval=",
    "middlebox=nat:idle=",
    ",signal=trace:walk.csv",
    ",shares=home",
    "state=silent",
    "unlimited",
];
pub(super) const SCENARIO_WORDS: &[&str] = &[
    "[link.a]\n",
    "[host.b]\n",
    "[[event]]\n",
    "[[workload]]\n",
    "[[expect]]\n",
    "at = \"1s\"\n",
    "when = \"a.down_bytes >= 1KB\"\n",
    "until = \"a.up_dropped >= 1\"\n",
    "state = \"paused\"\n",
    "link = \"a\"\n",
    "signal = \"trace:walk.csv\"\n",
    "names = [\"x@a\"]\n",
    "extra-delay.a = \"1s\"\n",
    "is = \"<= 1\"\n",
    "\"\"\"",
    "link.a.b.c = 1\n",
    "1979-05-27",
    "{ a = ",
    "# ",
];
pub(super) const EVENT_WORDS: &[&str] = &[
    "{\"schema\":\"manyways.events/2\"",
    "\"time\":",
    "\"event\":\"link-sample\"",
    "null",
    "\"up\"",
    "\n",
    "}}",
    "\"dropped_packets\":{",
];

/// With the format detected, and with each explicit format.
fn formats() -> impl Iterator<Item = Option<Format>> {
    [None].into_iter().chain(Format::NAMES.into_iter().map(|(_, format)| Some(format)))
}

pub(super) fn capacity(bytes: &[u8]) {
    for format in formats() {
        let Ok(trace) = trace_file::capacity(bytes, format) else { continue };
        assert!(!trace.period().is_zero() && trace.period() <= trace_file::MAX_PERIOD * 2);
        assert!(
            trace.mean_rate() <= trace_file::MAX_RATE
                || matches!(trace, LinkTrace::Opportunities { .. })
        );
        match &trace {
            LinkTrace::Opportunities { at, period, .. } => {
                assert!(at.is_sorted());
                assert_eq!(at.last(), Some(period));
            }
            LinkTrace::Rates(steps) => check_order(steps),
        }
    }
}

pub(super) fn delay(bytes: &[u8]) {
    for format in formats() {
        if let Ok(steps) = trace_file::delay(bytes, format) {
            check_order(&steps);
        }
    }
}

fn check_order<T: PartialEq + std::fmt::Debug>(steps: &Steps<T>) {
    assert!(steps.steps().is_sorted_by(|a, b| a.0 < b.0));
    let total: Span = steps.with_durations().map(|(span, _)| span).sum();
    assert_eq!(total, steps.period());
    let (at, value) = &steps.steps()[steps.steps().len() / 2];
    assert_eq!(steps.at(*at + steps.period()), value);
}

pub(super) fn values(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = (text.parse::<Span>(), text.parse::<Rate>(), text.parse::<Size>());
    let _ = manyways_unit::human::yes_or_no(text);
    if let Ok(probability) = manyways_unit::human::probability(text) {
        assert!((0.0..=1.0).contains(&probability));
    }
}

/// Simulates a file of each kind.
fn file(name: &str) -> Result<Vec<u8>, String> {
    match name {
        "delay.ms" => Ok(b"0 40\n1 60\n".to_vec()),
        "walk.csv" => Ok(b"time,rssi\n0,-61\n1.5,-70\n".to_vec()),
        "none" => Err("no such file".to_owned()),
        _ => Ok(b"1\n2\n9\n".to_vec()),
    }
}

fn is_complete(link: &LinkSpec) -> bool {
    let constant = |spec: &scenario::DirectionSpec| {
        !matches!(spec.capacity, CapacitySpec::Trace { .. })
            && !matches!(spec.delay, DelaySpec::Trace { .. })
    };
    constant(&link.down) && constant(&link.up) && link.signal.is_none()
}

pub(super) fn link(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match LinkSpec::parse(text, &mut file) {
        Err(error) => check_message(&error.to_string(), error.hint().as_deref()),
        Ok(link) => {
            let again = LinkSpec::parse(&link.to_string(), &mut file);
            // The name of a trace may have blanks at its ends, which printing does not preserve.
            if is_complete(&link) {
                assert_eq!(again, Ok(link));
            }
        }
    }
    if let Ok(changes) = link_text::changes(text.split_whitespace(), &mut file) {
        let mut link = LinkSpec::new("a");
        changes.iter().for_each(|change| link.apply(change));
    }
}

pub(super) fn scenario(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match scenario::parse(text, &mut file) {
        Ok(scenario) => {
            assert!(!scenario.links.is_empty());
            assert!(scenario.events.is_sorted_by_key(|event| event.at));
            let known = |name: &str| scenario.links.iter().any(|link| link.name == name);
            assert!(scenario.events.iter().all(|event| known(&event.link)));
        }
        Err(error) => {
            check_message(&error.message, error.hint.as_deref());
            let line = text.split('\n').nth(error.line - 1).unwrap_or_else(|| panic!("{error:?}"));
            assert!(error.column <= line.chars().count() + 1, "{error:?}");
        }
    }
}

fn check_message(message: &str, hint: Option<&str>) {
    for words in [Some(message), hint].into_iter().flatten() {
        assert!(!words.is_empty() && words.len() < 2_000, "{words:?}");
        assert!(!words.contains(char::is_control), "{words:?}");
    }
}

pub(super) fn event_log(bytes: &[u8]) {
    check_roundtrip::<manyways_lab::event::LabEvent>(bytes);
    check_roundtrip::<manyways_net::fetch::TransferEvent>(bytes);
    check_roundtrip::<manyways_net::bond::BondEvent>(bytes);
}

fn check_roundtrip<E: EventFamily + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let Ok(log) = event::parse::<E>(bytes) else { return };
    let mut text = log.header.line();
    text.extend(log.records.iter().map(event::line));
    let again = event::parse::<E>(text.as_bytes());
    assert_eq!(again.map(|log| log.records), Ok(log.records));
}

pub(super) const SIGNAL_WORDS: &[&str] =
    &["time,rssi", ",rsrp", ",rsrq", ",snr", ",cqi", "-61.5", "-", "\n", "1e9", "NaN", "# "];

/// A file of signals.
pub(super) fn signal(bytes: &[u8]) {
    let Ok(trace) = SignalTrace::parse(bytes) else { return };
    let samples = trace.samples();
    assert!(samples.is_sorted_by_key(|sample| sample.at));
    for sample in samples {
        assert_eq!(trace.at(sample.at).at, sample.at);
        let values = Signal::ALL.into_iter().filter_map(|signal| sample.get(signal));
        assert!(values.into_iter().all(f64::is_finite));
    }
}

pub(super) const LAB_SIGNAL_WORDS: &[&str] = &[
    "{\"schema\":\"manyways.lab-signal/1\",\"interface\":\"wifi\",\"source\":\"\",",
    "\"start_monotonic_nanoseconds\":-1,\"period_nanoseconds\":1,",
    "\"samples\":{\"nanoseconds\":[0",
    ",\"rssi\":[",
    ",\"cqi\":[null",
    "-61.5",
    "]}}",
];

/// The signal of a link, as a lab publishes it.
pub(super) fn lab_signal(bytes: &[u8]) {
    let Ok(read) = document::parse::<SignalDocument>(bytes) else { return };
    let text = document::to_json(&read).expect("its names are text");
    assert_eq!(document::parse(text.as_bytes()).as_ref(), Ok(&read));
    let SignalDocument(signal) = read;
    for monotonic in [0, 1, u64::MAX] {
        let sample = signal.trace.repeated_at(signal.position(monotonic));
        assert!(sample.at < signal.trace.period());
    }
}
