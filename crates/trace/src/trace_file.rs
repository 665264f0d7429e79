//! Parses trace files: bytes in, a [`LinkTrace`] or delay steps out, or the line of the error.
//!
//! | Format | A line | Means |
//! |---|---|---|
//! | `mahimahi` | `12` | 12 ms after the start one 1504-byte packet may leave; the last line is the period |
//! | `bytes` | `3,250000` | from second 3 on, 250000 bytes a second |
//! | `mbps` | `3 2.5` | from second 3 on, 2.5 Mbit/s |
//! | `ms` | `3 40` | from second 3 on, 40 ms one-way delay |
//! | `json` | `[{"duration_ms": 1000, "bandwidth_kbps": 2000, "latency_ms": 80}]` | for 1 s 2 Mbit/s and 80 ms round-trip time, half of it each way |
//!
//! The format is detected from the content; [`Format`] overrides the detection. In tables the first
//! line is the start of the trace, whatever its time. A line holds until the next one begins, the
//! last line as long as the previous one (one second if it is the only one). A table separated by
//! commas may begin with a line of column names; `#` starts a comment line. A byte order mark at the
//! start is skipped.
//!
//! `latency_ms` is a round-trip time: the simulators that introduced this format apply it once
//! between a request and the first byte of its response.
//!
//! Limits: [`MAX_BYTES`] a file, [`MAX_ENTRIES`] entries, [`MAX_PERIOD`], [`MAX_DELAY`] and
//! [`MAX_RATE`].

mod json;
mod lines;

use crate::{InvalidTrace, LinkTrace, Steps};
use manyways_unit::human::without_bom;
use manyways_unit::{Rate, Size, Span};

/// Maximum size of a file in bytes.
pub const MAX_BYTES: usize = 64 << 20;
/// Maximum number of lines or opportunities in a trace.
pub const MAX_ENTRIES: usize = 8_000_000;
/// Maximum period of a trace.
pub const MAX_PERIOD: Span = Span::from_secs(1_000 * 3_600);
/// Maximum one-way delay, of a trace and of any other part of a link: one hour, more than any path
/// on Earth has.
pub const MAX_DELAY: Span = Span::from_secs(3_600);
/// Maximum rate in a trace.
pub const MAX_RATE: Rate = Rate::from_mbps(1_000_000);

/// Bytes of one opportunity in a Mahimahi trace.
pub const MAHIMAHI_PACKET: Size = Size::from_bytes(1504);

/// Format of a trace file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One time in milliseconds per delivery opportunity.
    Mahimahi,
    /// `second,bytes per second`.
    Bytes,
    /// `seconds Mbit/s`.
    Mbps,
    /// `seconds milliseconds`, for delay.
    Ms,
    /// A list of `duration_ms`, `bandwidth_kbps`, `latency_ms`.
    Json,
}

impl Format {
    /// All formats with their names in `trace:FORMAT:FILE`.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("mahimahi", Self::Mahimahi),
        ("bytes", Self::Bytes),
        ("mbps", Self::Mbps),
        ("ms", Self::Ms),
        ("json", Self::Json),
    ];

    /// Returns the format with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, format)| *format)
    }

    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }
}

/// Reasons why bytes are not a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A line is malformed.
    #[error("line {line}: {reason}")]
    Line {
        /// Counted from one.
        line: usize,
        /// One sentence.
        reason: String,
    },
    /// No line with content.
    #[error("the trace is empty")]
    Empty,
    /// More than [`MAX_BYTES`].
    #[error("the trace is larger than {} MiB", MAX_BYTES >> 20)]
    TooLarge,
    /// The content matches no known format.
    #[error(
        "the format of the trace is unknown: a line is one number (Mahimahi), `second,bytes` or `seconds value`"
    )]
    UnknownFormat,
    /// A capacity was expected and the format contains delays, or vice versa.
    #[error("a `{}` trace contains no {wanted}", .format.name())]
    WrongKind {
        /// The file's format.
        format: Format,
        /// `capacity` or `delay`.
        wanted: &'static str,
    },
    /// The content as a whole is not a trace.
    #[error(transparent)]
    Invalid(#[from] InvalidTrace),
}

impl TraceError {
    fn line(line: usize, reason: impl Into<String>) -> Self {
        Self::Line { line, reason: reason.into() }
    }
}

/// Parses the capacity of a link; `None` detects the format from the content.
pub fn capacity(bytes: &[u8], format: Option<Format>) -> Result<LinkTrace, TraceError> {
    let bytes = without_bom(bytes);
    match detect(bytes, format, Format::Mbps)? {
        Format::Mahimahi => lines::mahimahi(bytes),
        Format::Bytes => Ok(LinkTrace::Rates(lines::bytes_per_second(bytes)?)),
        Format::Mbps => Ok(LinkTrace::Rates(lines::mbps(bytes)?)),
        Format::Json => Ok(LinkTrace::Rates(json::rates(bytes)?)),
        format @ Format::Ms => Err(TraceError::WrongKind { format, wanted: "capacity" }),
    }
}

/// Parses the one-way delay of a link; `None` detects the format from the content.
pub fn delay(bytes: &[u8], format: Option<Format>) -> Result<Steps<Span>, TraceError> {
    let bytes = without_bom(bytes);
    match detect(bytes, format, Format::Ms)? {
        Format::Ms => lines::milliseconds(bytes),
        Format::Json => json::delays(bytes),
        format => Err(TraceError::WrongKind { format, wanted: "delay" }),
    }
}

/// Detects the format of the content; two columns separated by blanks are `two_columns`.
fn detect(bytes: &[u8], format: Option<Format>, two_columns: Format) -> Result<Format, TraceError> {
    if bytes.len() > MAX_BYTES {
        return Err(TraceError::TooLarge);
    }
    if let Some(format) = format {
        return Ok(format);
    }
    let first = bytes
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .find(|line| !line.is_empty() && !line.starts_with(b"#"))
        .ok_or(TraceError::Empty)?;
    let number = |field: &[u8]| {
        !field.is_empty() && field.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.'))
    };
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    if first.starts_with(b"[") {
        Ok(Format::Json)
    } else if first.contains(&b',') {
        Ok(Format::Bytes)
    } else if first.iter().any(blank) && first.split(blank).next().is_some_and(number) {
        Ok(two_columns)
    } else if number(first) {
        Ok(Format::Mahimahi)
    } else {
        Err(TraceError::UnknownFormat)
    }
}

#[cfg(test)]
mod tests;
