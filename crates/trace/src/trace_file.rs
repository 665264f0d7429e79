//! Trace files: bytes in, a [`LinkTrace`] or delay steps out, or the line that is wrong and why.
//!
//! | Format | A line | Means |
//! |---|---|---|
//! | `mahimahi` | `12` | 12 ms after the start one 1504-byte packet may leave; the last line is the period |
//! | `bytes` | `3,250000` | from second 3 on, 250000 bytes a second |
//! | `mbps` | `3 2.5` | from second 3 on, 2.5 Mbit/s |
//! | `ms` | `3 40` | from second 3 on, 40 ms one-way delay |
//! | `json` | `[{"duration_ms": 1000, "bandwidth_kbps": 2000, "latency_ms": 80}]` | for 1 s 2 Mbit/s and 80 ms round-trip time, half of it each way |
//!
//! The format is seen from the content; [`Format`] can be named where that is wrong. In tables
//! the first line is the start of the trace whatever its time; a line holds until the next one
//! begins, the last as long as the one before it (one second where there is only one). A table
//! separated by commas may begin with a line of column names; `#` starts a comment line.
//!
//! `latency_ms` is a round-trip time: the simulators that brought this format spend it once
//! between a request and the first byte of its answer.
//!
//! Limits: [`MAX_BYTES`] a file, [`MAX_ENTRIES`] entries, [`MAX_PERIOD`], [`MAX_DELAY`] and [`MAX_RATE`].

mod json;
mod lines;

use crate::{InvalidTrace, LinkTrace, Steps};
use manyways_unit::{Rate, Size, Span};

/// The largest file that is read.
pub const MAX_BYTES: usize = 64 << 20;
/// The most lines or opportunities in a trace.
pub const MAX_ENTRIES: usize = 8_000_000;
/// The longest period of a trace.
pub const MAX_PERIOD: Span = Span::from_secs(1_000 * 3_600);
/// The longest one-way delay, of a trace and of any other part of a link: beyond every path on earth and
/// to other planets.
pub const MAX_DELAY: Span = Span::from_secs(3_600);
/// The highest rate in a trace.
pub const MAX_RATE: Rate = Rate::from_mbps(1_000_000);

/// Bytes of one opportunity in a Mahimahi trace.
pub const MAHIMAHI_PACKET: Size = Size::from_bytes(1504);

/// How a trace file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Milliseconds of each delivery opportunity.
    Mahimahi,
    /// `second,bytes a second`.
    Bytes,
    /// `seconds Mbit/s`.
    Mbps,
    /// `seconds milliseconds`, for delay.
    Ms,
    /// A list of `duration_ms`, `bandwidth_kbps`, `latency_ms`.
    Json,
}

impl Format {
    /// Every format with the name that `trace:FORMAT:FILE` gives it.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("mahimahi", Self::Mahimahi),
        ("bytes", Self::Bytes),
        ("mbps", Self::Mbps),
        ("ms", Self::Ms),
        ("json", Self::Json),
    ];

    /// The format of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, format)| *format)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }
}

/// Why bytes do not make a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A line is wrong.
    #[error("line {line}: {reason}")]
    Line {
        /// Counted from one.
        line: usize,
        /// One sentence.
        reason: String,
    },
    /// No line of content.
    #[error("the trace is empty")]
    Empty,
    /// More than [`MAX_BYTES`].
    #[error("the trace is larger than {} MiB", MAX_BYTES >> 20)]
    TooLarge,
    /// No known format looks like this.
    #[error(
        "the format of the trace is unknown: a line is one number (Mahimahi), `second,bytes` or `seconds value`"
    )]
    UnknownFormat,
    /// A capacity was wanted and the format holds delays, or the other way round.
    #[error("a `{}` trace says nothing about {wanted}", .format.name())]
    WrongKind {
        /// The file's format.
        format: Format,
        /// `capacity` or `delay`.
        wanted: &'static str,
    },
    /// The content makes no trace as a whole.
    #[error(transparent)]
    Invalid(#[from] InvalidTrace),
}

impl TraceError {
    fn line(line: usize, reason: impl Into<String>) -> Self {
        Self::Line { line, reason: reason.into() }
    }
}

/// Reads the capacity of a link; `format` where it is known, else it is seen from the content.
pub fn capacity(bytes: &[u8], format: Option<Format>) -> Result<LinkTrace, TraceError> {
    match detect(bytes, format, Format::Mbps)? {
        Format::Mahimahi => lines::mahimahi(bytes),
        Format::Bytes => Ok(LinkTrace::Rates(lines::bytes_per_second(bytes)?)),
        Format::Mbps => Ok(LinkTrace::Rates(lines::mbps(bytes)?)),
        Format::Json => Ok(LinkTrace::Rates(json::rates(bytes)?)),
        format @ Format::Ms => Err(TraceError::WrongKind { format, wanted: "capacity" }),
    }
}

/// Reads the one-way delay of a link; `format` where it is known, else it is seen from the
/// content.
pub fn delay(bytes: &[u8], format: Option<Format>) -> Result<Steps<Span>, TraceError> {
    match detect(bytes, format, Format::Ms)? {
        Format::Ms => lines::milliseconds(bytes),
        Format::Json => json::delays(bytes),
        format => Err(TraceError::WrongKind { format, wanted: "delay" }),
    }
}

/// The format of the content; two columns parted by blanks are `two_columns`.
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
