//! The event log: timed events, one JSON object per line.
//!
//! The first line is a [`Header`], every other one a [`Record`]: a time in seconds since the
//! header's epoch and an event of an [`EventFamily`]. Within a schema version, fields and events
//! are only added: a reader skips the events that its family does not have. `docs/event-log.md`
//! describes every field.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use manyways_unit::{Span, Time};

use crate::document::{self, DocumentError};

/// Maximum length of a line in bytes.
pub const MAX_LINE: usize = 1 << 20;
/// Maximum size of a log in bytes.
pub const MAX_LOG: usize = 1 << 30;

/// The first line of a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Subcommand that wrote the log: `lab`, `get`, `bond`.
    pub tool: String,
    /// Version of the program.
    pub version: String,
    /// Wall-clock seconds since 1970 (UTC) at time zero of the records.
    pub epoch: f64,
    /// Name of the scenario, or URL. `None` if the log has no subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

crate::document!(Header, "manyways.events/2");

impl Header {
    /// Creates the header of a log that starts at `epoch`, the wall-clock time since 1970.
    pub fn new(tool: &str, version: &str, epoch: Span) -> Self {
        Self {
            tool: tool.to_owned(),
            version: version.to_owned(),
            epoch: epoch.as_secs_f64(),
            subject: None,
        }
    }

    /// Formats the header as the first line of the log, with its line feed.
    pub fn line(&self) -> String {
        // Serialization of strings and numbers cannot fail.
        document::to_json(self).unwrap_or_default()
    }
}

/// One line after the header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record<E> {
    /// Since the header's epoch; seconds in the file.
    #[serde(serialize_with = "as_seconds", deserialize_with = "from_seconds")]
    pub time: Time,
    #[serde(flatten)]
    pub event: E,
}

/// The events of one subsystem: an enum that serde tags with `event`.
///
/// Each subsystem owns its events; a log contains the events of one family. Names are unique among
/// all families, and `docs/event-log.md` describes each.
pub trait EventFamily: Serialize + DeserializeOwned {
    /// The value of `event` for each variant.
    const NAMES: &'static [&'static str];
}

/// Reasons why a log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The log has no header.
    #[error("the event log is empty")]
    Empty,
    /// The log exceeds [`MAX_LOG`].
    #[error("the event log is larger than {} MiB", MAX_LOG >> 20)]
    TooLarge,
    /// The first line is not a [`Header`].
    #[error("the header of the event log is not readable: {0}")]
    Header(#[from] DocumentError),
    /// A line is malformed.
    #[error("line {line}: {reason}")]
    Line {
        /// Counted from one.
        line: usize,
        /// One sentence.
        reason: String,
    },
}

/// Formats a record as a line of the log, with its line feed.
pub fn line<E: Serialize>(record: &Record<E>) -> String {
    // Serialization of these types cannot fail: keys are strings, non-finite numbers become null.
    let mut text = serde_json::to_string(record).unwrap_or_default();
    text.push('\n');
    text
}

/// A log that has been read.
#[derive(Clone, Debug, PartialEq)]
pub struct Log<E> {
    pub header: Header,
    /// The records in the order of the file, without those of unknown events.
    pub records: Vec<Record<E>>,
    /// Number of skipped records of unknown events.
    pub skipped: u64,
}

/// Parses a whole log. A last line without a line feed comes from a killed writer and is skipped if
/// it is malformed.
pub fn parse<E: EventFamily>(bytes: &[u8]) -> Result<Log<E>, EventError> {
    if bytes.len() > MAX_LOG {
        return Err(EventError::TooLarge);
    }
    let mut header = None;
    let mut records = Vec::new();
    let mut skipped = 0;
    let mut lines = bytes.split(|byte| *byte == b'\n').enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let wrong = |reason: String| EventError::Line { line: index + 1, reason };
        if line.len() > MAX_LINE {
            return Err(wrong(format!("the line is longer than {MAX_LINE} bytes")));
        }
        if header.is_none() {
            header = Some(document::parse(line)?);
            continue;
        }
        match record(line) {
            Ok(Some(record)) => records.push(record),
            Ok(None) => skipped += 1,
            Err(_) if lines.peek().is_none() => {}
            Err(reason) => return Err(wrong(reason)),
        }
    }
    Ok(Log { header: header.ok_or(EventError::Empty)?, records, skipped })
}

/// Parses a record; `None` if its event is unknown.
fn record<E: EventFamily>(line: &[u8]) -> Result<Option<Record<E>>, String> {
    #[derive(Deserialize)]
    struct Kind {
        event: String,
    }
    let Kind { event } = serde_json::from_slice(line).map_err(|error| error_text(&error))?;
    if !E::NAMES.contains(&event.as_str()) {
        return Ok(None);
    }
    serde_json::from_slice(line).map(Some).map_err(|error| error_text(&error))
}

/// Returns the message without serde_json's line number, which counts within one line of the log.
fn error_text(error: &serde_json::Error) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = error.to_string();
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

fn as_seconds<S: Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

fn from_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    // Below this bound a double keeps every nanosecond through both conversions.
    if !(0.0..2e6).contains(&seconds) {
        return Err(D::Error::custom("a time is from 0 to 2e6 seconds"));
    }
    Ok(Time::ZERO + Span::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests;
