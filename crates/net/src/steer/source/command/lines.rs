//! Indicators as lines of JSON.

use std::sync::Arc;

use manyways_model::select::{Indicator, Source};
use manyways_unit::human::printable;
use manyways_unit::{Span, Time};
use serde_json::{Map, Value};
use thiserror::Error;

/// Bytes of a line, at most.
pub const MAX_LINE: usize = 4096;
/// Lines of a second that are used, at most.
pub const MAX_RATE: u32 = 50;

/// Cuts the output of a command into lines, and parses them.
///
/// A line is an object, such as `{"network":"lte","rsrp":-97.5,"rsrq":-11,"snr":8,"cqi":9}`: the
/// name of a network, and signals by the names of their [`Indicator`]s. `null` is a signal that is
/// not known; one that is not there keeps its value. Other fields are ignored, also those of
/// indicators that are not signals. Empty lines are allowed.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// The network of lines without a name.
    network: Option<Arc<str>>,
    /// The beginning of a line.
    partial: Vec<u8>,
    /// Whether the rest of the current line is skipped.
    is_too_long: bool,
    /// Number of complete lines.
    count: u64,
}

/// Counts lines, so that a command that prints without a pause does not keep the process busy.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineLimit {
    /// Since when lines are counted.
    since: Time,
    count: u32,
}

impl LineLimit {
    /// Whether one more line is used.
    pub fn allows(&mut self, now: Time) -> bool {
        if now >= self.since + Span::from_secs(1) {
            *self = Self { since: now, count: 0 };
        }
        self.count += 1;
        self.count <= MAX_RATE
    }
}

/// A line with values, which are not yet checked.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Line {
    pub network: Arc<str>,
    /// `None`: not known.
    pub readings: Vec<(Indicator, Option<f64>)>,
}

/// A line that cannot be used; the `Display` is one sentence.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("line {number} of the command is not used: {reason}")]
pub struct WrongLine {
    /// Counted from one, since the start of the command.
    pub number: u64,
    pub reason: WrongLineReason,
}

/// Reason why a line cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum WrongLineReason {
    #[error("it has more than {MAX_LINE} bytes")]
    TooLong,
    #[error("it is not a JSON object: {0}")]
    NotJson(String),
    #[error("it does not name its network")]
    NoNetwork,
    #[error("`{0}` is not a number")]
    NotNumber(&'static str),
    #[error("it has no known signal")]
    NoSignal,
    #[error("there are more than {MAX_RATE} in a second")]
    TooMany,
}

impl Lines {
    pub fn new(network: Option<String>) -> Self {
        Self { network: network.map(Arc::from), ..Self::default() }
    }

    /// Number of complete lines.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Takes output of the command; returns the lines that it completes.
    pub fn on_bytes(&mut self, bytes: &[u8]) -> Vec<Result<Line, WrongLine>> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, is_complete) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            if self.is_too_long || self.partial.len() + text.len() > MAX_LINE {
                self.is_too_long = true;
                self.partial.clear();
            } else {
                self.partial.extend_from_slice(text);
            }
            if is_complete {
                self.count += 1;
                let number = self.count;
                let line = self.line();
                let numbered = line.map_err(|reason| WrongLine { number, reason });
                lines.extend(numbered.transpose());
                self.partial.clear();
                self.is_too_long = false;
            }
        }
        lines
    }

    fn line(&self) -> Result<Option<Line>, WrongLineReason> {
        if self.is_too_long {
            return Err(WrongLineReason::TooLong);
        }
        let text = self.partial.trim_ascii();
        if text.is_empty() {
            return Ok(None);
        }
        let fields: Map<String, Value> = serde_json::from_slice(text).map_err(|error| {
            WrongLineReason::NotJson(printable(&error.to_string()).into_owned())
        })?;
        let network = match fields.get("network") {
            Some(Value::String(name)) if !name.is_empty() => Some(Arc::from(name.as_str())),
            Some(_) => None,
            None => self.network.clone(),
        };
        let network = network.ok_or(WrongLineReason::NoNetwork)?;
        let mut readings = Vec::new();
        for indicator in Indicator::ALL {
            if indicator.source() != Source::Passive {
                continue;
            }
            match fields.get(indicator.name()) {
                None => {}
                Some(Value::Null) => readings.push((indicator, None)),
                Some(Value::Number(number)) => readings.push((indicator, number.as_f64())),
                Some(_) => return Err(WrongLineReason::NotNumber(indicator.name())),
            }
        }
        match readings.is_empty() {
            true => Err(WrongLineReason::NoSignal),
            false => Ok(Some(Line { network, readings })),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &str) -> Vec<Result<Line, String>> {
        let lines = Lines::new(None).on_bytes(text.as_bytes());
        lines.into_iter().map(|line| line.map_err(|wrong| wrong.to_string())).collect()
    }

    fn wrong(text: &str) -> String {
        all(text).remove(0).unwrap_err()
    }

    #[test]
    fn known_fields_are_read_and_others_ignored() {
        let text = "{\"network\":\"lte\",\"rsrp\":-97.5,\"cqi\":9,\"snr\":null,\"ping-min\":0.1,\
                    \"cell\":{\"id\":7}}\r\n\n  \n{\"link-rate\":130,\"network\":\"wifi\"}\n{\"rs";
        let readings = vec![
            (Indicator::Rsrp, Some(-97.5)),
            (Indicator::Snr, None),
            (Indicator::Cqi, Some(9.0)),
        ];
        let lte = Line { network: "lte".into(), readings };
        let readings = vec![(Indicator::LinkRate, Some(130.0))];
        let wifi = Line { network: "wifi".into(), readings };
        assert_eq!(all(text), [Ok(lte), Ok(wifi)]);
    }

    #[test]
    fn a_line_without_a_network_is_about_the_network_of_the_command() {
        let mut lines = Lines::new(Some("lte".to_owned()));
        let found = lines.on_bytes(b"{\"cqi\":9}\n{\"cqi\":9,\"network\":\"wifi\"}\n");
        let names: Vec<_> = found.into_iter().map(|line| line.unwrap().network).collect();
        assert_eq!(names, ["lte".into(), "wifi".into()]);
    }

    #[test]
    fn a_wrong_line_is_named() {
        let prefix = "line 1 of the command is not used: ";
        for (text, reason) in [
            ("{\"cqi\":9}\n", "it does not name its network"),
            ("{\"network\":7,\"cqi\":9}\n", "it does not name its network"),
            ("{\"network\":\"\",\"cqi\":9}\n", "it does not name its network"),
            ("{\"network\":\"lte\",\"cqi\":\"9\"}\n", "`cqi` is not a number"),
            ("{\"network\":\"lte\",\"cell\":9}\n", "it has no known signal"),
        ] {
            assert_eq!(wrong(text), format!("{prefix}{reason}"));
        }
        for text in ["rsrp=-97\n", "[1]\n", "{\"network\":\"lte\",\"cqi\":NaN}\n", "\u{1b}[2J\n"] {
            let found = wrong(text);
            assert!(found.starts_with(&format!("{prefix}it is not a JSON object: ")), "{found}");
            assert!(!found.contains('\u{1b}'));
        }
        assert_eq!(wrong("\n\n#\n").split(' ').nth(1), Some("3"));
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_memory() {
        let mut lines = Lines::new(None);
        for _ in 0..1_000 {
            assert_eq!(lines.on_bytes(&[b'{'; 1_000]), []);
            assert!(lines.partial.capacity() <= 4 * MAX_LINE);
        }
        let found = lines.on_bytes(b"}\n{\"network\":\"lte\",\"cqi\":9}\n");
        let expected = "line 1 of the command is not used: it has more than 4096 bytes";
        assert_eq!(found[0].as_ref().unwrap_err().to_string(), expected);
        assert_eq!(&*found[1].as_ref().unwrap().network, "lte");
    }

    #[test]
    fn lines_of_a_second_have_a_limit() {
        let mut limit = LineLimit::default();
        let mut used =
            |millis: u64| (0..200).filter(|_| limit.allows(Time::from_millis(millis))).count();
        assert_eq!((used(0), used(999), used(1_000), used(5_000)), (50, 0, 50, 50));
    }

    proptest! {
        #[test]
        fn pieces_give_the_same_lines_as_the_whole(
            words in prop::collection::vec(
                prop::sample::select(vec!["{", "}", "\"network\":\"a\"", ",", "\"cqi\":9", "\n", "é", "\0"]),
                0..60,
            ),
            size in 1..9_usize,
        ) {
            let text = words.concat();
            let whole = Lines::new(None).on_bytes(text.as_bytes());
            let mut lines = Lines::new(None);
            let pieces: Vec<_> =
                text.as_bytes().chunks(size).flat_map(|piece| lines.on_bytes(piece)).collect();
            prop_assert_eq!(pieces, whole);
        }
    }
}
