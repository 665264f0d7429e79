//! The formats with one entry per line.

use super::{MAHIMAHI_PACKET, MAX_DELAY, MAX_ENTRIES, MAX_PERIOD, MAX_RATE, TraceError};
use crate::{InvalidTrace, LinkTrace, Steps};
use manyways_unit::human::{decimal, quoted};
use manyways_unit::{Rate, Span};

/// Iterates over lines with content and their numbers; blank lines and `#` comments are skipped.
fn content(bytes: &[u8]) -> impl Iterator<Item = Result<(usize, &str), TraceError>> {
    bytes.split(|byte| *byte == b'\n').enumerate().filter_map(|(index, line)| {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return None;
        }
        Some(match std::str::from_utf8(line) {
            Ok(text) => Ok((index + 1, text)),
            Err(_) => Err(TraceError::line(index + 1, "the line is not UTF-8 text")),
        })
    })
}

pub(super) fn mahimahi(bytes: &[u8]) -> Result<LinkTrace, TraceError> {
    let mut at = Vec::new();
    let mut last_line = 1;
    for line in content(bytes) {
        let (line, text) = line?;
        let millis: u64 = text.parse().map_err(|_| {
            TraceError::line(
                line,
                format!("`{}` is not a whole number of milliseconds", quoted(text)),
            )
        })?;
        let stamp = Span::from_millis(millis);
        if stamp > MAX_PERIOD {
            return Err(too_long(line));
        }
        if at.last().is_some_and(|last| *last > stamp) {
            return Err(TraceError::line(line, "the time is earlier than on the previous line"));
        }
        if at.len() == MAX_ENTRIES {
            return Err(too_many(line));
        }
        at.push(stamp);
        last_line = line;
    }
    let period = *at.last().ok_or(TraceError::Empty)?;
    LinkTrace::opportunities(at, MAHIMAHI_PACKET, period).map_err(|error| match error {
        InvalidTrace::ZeroPeriod => TraceError::line(
            last_line,
            "the last time is the trace's period and must be more than 0",
        ),
        other => other.into(),
    })
}

pub(super) fn bytes_per_second(bytes: &[u8]) -> Result<Steps<Rate>, TraceError> {
    table(bytes, Columns { comma: true, value: "bytes a second" }, |text| rate(text, 8))
}

pub(super) fn mbps(bytes: &[u8]) -> Result<Steps<Rate>, TraceError> {
    table(bytes, Columns { comma: false, value: "Mbit/s" }, |text| rate(text, 1_000_000))
}

pub(super) fn milliseconds(bytes: &[u8]) -> Result<Steps<Span>, TraceError> {
    table(bytes, Columns { comma: false, value: "milliseconds" }, |text| {
        decimal(text, 1_000_000).map(Span::from_nanos).filter(|span| *span <= MAX_DELAY)
    })
}

fn rate(text: &str, scale: u64) -> Option<Rate> {
    decimal(text, scale).map(Rate::from_bps).filter(|rate| *rate <= MAX_RATE)
}

struct Columns {
    comma: bool,
    value: &'static str,
}

fn table<T>(
    bytes: &[u8],
    columns: Columns,
    value: impl Fn(&str) -> Option<T>,
) -> Result<Steps<T>, TraceError> {
    let mut steps: Vec<(Span, T)> = Vec::new();
    let mut start = None;
    for (index, line) in content(bytes).enumerate() {
        let (line, text) = line?;
        let (time_text, value_text) = if columns.comma {
            text.split_once(',').map(|(a, b)| (a.trim(), b.trim()))
        } else {
            text.split_once([' ', '\t']).map(|(a, b)| (a, b.trim()))
        }
        .ok_or_else(|| {
            let parted = if columns.comma { "a comma" } else { "a space or tab" };
            TraceError::line(
                line,
                format!("seconds and {} parted by {parted} were expected", columns.value),
            )
        })?;
        let names = |text: &str| text.starts_with(|c: char| c.is_alphabetic() || c == '"');
        if index == 0 && columns.comma && names(time_text) && names(value_text) {
            continue;
        }
        let time = decimal(time_text, 1_000_000_000).map(Span::from_nanos).ok_or_else(|| {
            TraceError::line(line, format!("`{}` is not a number of seconds", quoted(time_text)))
        })?;
        let value = value(value_text).ok_or_else(|| {
            let value_text = quoted(value_text);
            TraceError::line(
                line,
                format!("`{value_text}` is not a possible number of {}", columns.value),
            )
        })?;
        let start = *start.get_or_insert(time);
        // Times before the start saturate to zero, which is not later than the first step.
        let since = time - start;
        if since > MAX_PERIOD {
            return Err(too_long(line));
        }
        if steps.last().is_some_and(|last| last.0 >= since) {
            return Err(TraceError::line(line, "the time is not later than on the previous line"));
        }
        if steps.len() == MAX_ENTRIES {
            return Err(too_many(line));
        }
        steps.push((since, value));
    }
    let last = match steps.as_slice() {
        [] => return Err(TraceError::Empty),
        [_] => Span::from_secs(1),
        [.., before, last] => last.0 + (last.0 - before.0),
    };
    Ok(Steps::new(steps, last)?)
}

fn too_long(line: usize) -> TraceError {
    TraceError::line(line, format!("a trace lasts at most {MAX_PERIOD}"))
}

fn too_many(line: usize) -> TraceError {
    TraceError::line(line, format!("a trace has at most {MAX_ENTRIES} entries"))
}
