//! The event log: what happened when, one JSON object a line.
//!
//! The first line is a [`Header`], every other one a [`Record`]: a time in seconds since the
//! header's epoch and an [`Event`]. Within a schema version fields and kinds of events are only
//! added: a reader skips what it does not know. `docs/event-log.md` describes every field.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use manyways_unit::human::quoted;
use manyways_unit::{Span, Time};

/// Name and version of the schema in the header.
pub const SCHEMA: &str = "manyways.events/1";
/// The longest line that is read, in bytes.
pub const MAX_LINE: usize = 1 << 20;
/// The largest log that is read, in bytes.
pub const MAX_LOG: usize = 1 << 30;

/// The first line of a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// What wrote the log: `lab`, `get`, `bond`.
    pub tool: String,
    /// Its version.
    pub version: String,
    /// Wall-clock seconds since 1970 (UTC) at time zero of the records.
    pub epoch: f64,
    /// What the log is about: a scenario's name, a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

impl Header {
    /// The header of a log that starts at `epoch`, the wall-clock time since 1970.
    pub fn new(tool: &str, version: &str, epoch: Span) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            tool: tool.to_owned(),
            version: version.to_owned(),
            epoch: epoch.as_secs_f64(),
            subject: None,
        }
    }
}

/// One line after the header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Since the header's epoch; seconds in the file.
    #[serde(serialize_with = "as_seconds", deserialize_with = "from_seconds")]
    pub time: Time,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What can happen. Byte counts are IP bytes for links and body bytes for transfers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// One direction of a link, looked at regularly.
    LinkSample(LinkSample),
    /// A link was changed while it ran.
    LinkChange {
        /// Which link.
        link: String,
        /// What was set, as `key=value` words.
        set: Vec<String>,
    },
    /// A workload began; traces and events of the scenario restart here.
    WorkloadStart {
        /// Its name.
        workload: String,
    },
    /// A workload ended.
    WorkloadEnd {
        /// Its name.
        workload: String,
        /// Its exit code; none where it was killed.
        exit: Option<i32>,
        /// How long it ran.
        seconds: f64,
    },
    /// A transfer began.
    TransferStart {
        /// Counted from zero in the order of the command line.
        transfer: u32,
        /// What is fetched.
        url: String,
    },
    /// What one path has brought to a transfer so far.
    PathSample(PathSample),
    /// A path of a transfer came up, failed or was given up.
    PathState {
        /// Which transfer.
        transfer: u32,
        /// Name of the path.
        path: String,
        /// `up`, `stalled`, `down`.
        state: String,
        /// One sentence, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A request was sent.
    Request {
        /// Which transfer.
        transfer: u32,
        /// Name of the path.
        path: String,
        /// Counted from zero within the transfer.
        request: u64,
        /// The first byte that was asked for.
        from: u64,
        /// One past the last; none for a plain GET, which asks for all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<u64>,
    },
    /// The head of an answer came.
    Response {
        /// Which transfer.
        transfer: u32,
        /// Name of the path.
        path: String,
        /// Which request.
        request: u64,
        /// The status code.
        status: u16,
        /// The path's application round trip as it was estimated when the request was sent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected_seconds: Option<f64>,
    },
    /// Bytes of the object came; pieces that follow each other within 5 ms are one.
    Received {
        /// Which transfer.
        transfer: u32,
        /// Name of the path.
        path: String,
        /// Which request.
        request: u64,
        /// The first of them.
        from: u64,
        /// One past the last.
        to: u64,
    },
    /// What a request is to bring was changed.
    RangeEnd {
        /// Which transfer.
        transfer: u32,
        /// Name of the path.
        path: String,
        /// Which request.
        request: u64,
        /// One past the last byte that is still wanted of it.
        to: u64,
    },
    /// Nothing more comes of a request.
    RequestEnd {
        /// Which transfer.
        transfer: u32,
        /// Name of the path.
        path: String,
        /// Which request.
        request: u64,
        /// `finished` (all that was asked for), `cut` (all that was still wanted), `cancelled`,
        /// `failed`.
        how: String,
    },
    /// An application round trip was measured.
    Ping {
        /// Which transfer.
        transfer: u32,
        /// Name of the path.
        path: String,
        /// How long it took.
        rtt_seconds: f64,
        /// `h2` (a PING frame) or `tcp` (what the kernel measures).
        by: String,
    },
    /// A transfer ended.
    TransferEnd {
        /// Which transfer.
        transfer: u32,
        /// Whether the whole object is there.
        complete: bool,
        /// Body bytes written.
        bytes: u64,
    },
    /// A path of a bond came up, does not get through, sleeps or went.
    BondPath {
        /// Name of the path.
        path: String,
        /// `up`, `suspect`, `asleep`, `down`.
        state: String,
    },
    /// A bond carries a connection from now on.
    BondOpen(BondOpen),
    /// A policy decided about a connection of a bond, at its beginning or while it was under way.
    BondPolicy {
        /// Which connection; none of one that the bond does not carry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stream: Option<u64>,
        /// Where it goes.
        to: String,
        /// The rule; none for the default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// `bond`, `direct`, `block`.
        decision: String,
    },
    /// A connection that a bond carried is over.
    BondClose {
        /// Which one.
        stream: u64,
        /// How long it lasted.
        seconds: f64,
        /// What the application sent.
        up_bytes: u64,
        /// What came for it.
        down_bytes: u64,
        /// What was carried for that by path, all copies counted.
        paths: BTreeMap<String, BondShare>,
    },
    /// A bond sent bytes again since their path does not get through. Totals since it began.
    BondReinjection {
        /// Bytes that were sent again.
        bytes: u64,
        /// Of these, those that their path brought after all.
        spurious_bytes: u64,
    },
}

/// A connection that a bond carries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BondOpen {
    /// Counted from zero.
    pub stream: u64,
    /// Where it goes: an address or a name, and the port.
    pub to: String,
    /// The name of the server, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The application, where a rule asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// The rule of the policy; none for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// What one path carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BondShare {
    /// From the device.
    pub sent: u64,
    /// To the device.
    pub received: u64,
}

/// Counters of one direction of a link; all but the queue are totals since the log began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkSample {
    /// Which link.
    pub link: String,
    /// `down` (towards the device) or `up`.
    pub direction: Way,
    /// What its capacity is now; none where it is unlimited.
    pub rate_bps: Option<u64>,
    /// Bytes that came out at the other end.
    pub delivered_bytes: u64,
    /// Bytes that wait now.
    pub queue_bytes: u64,
    /// Packets that wait now.
    pub queue_packets: u64,
    /// Packets that are gone, by cause.
    pub dropped_packets: Drops,
}

/// A direction in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Towards the device.
    Down,
    /// From the device.
    Up,
}

/// Packets that are gone, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// No room in the queue.
    pub queue: u64,
    /// CoDel's decision.
    pub aqm: u64,
    /// Lost on the wire.
    pub loss: u64,
    /// The link was down.
    pub down: u64,
    /// A middlebox let them not pass.
    #[serde(default)]
    pub middlebox: u64,
}

/// What one path has brought to a transfer so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathSample {
    /// Which transfer.
    pub transfer: u32,
    /// Name of the path.
    pub path: String,
    /// Body bytes since the transfer began.
    pub bytes: u64,
    /// The path's rate as it is estimated now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
}

/// Why a log does not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// There is not even a header.
    #[error("the event log is empty")]
    Empty,
    /// More than [`MAX_LOG`].
    #[error("the event log is larger than {} MiB", MAX_LOG >> 20)]
    TooLarge,
    /// The first line names another schema.
    #[error("this is an event log of schema `{0}`, not {SCHEMA}")]
    Schema(String),
    /// A line is wrong.
    #[error("line {line}: {reason}")]
    Line {
        /// Counted from one.
        line: usize,
        /// One sentence.
        reason: String,
    },
}

/// A header or a record as a line of the log, with its line feed.
pub fn line<T: Serialize>(entry: &T) -> String {
    // None of the types here can fail: their keys are strings and non-finite numbers become null.
    let mut text = serde_json::to_string(entry).unwrap_or_default();
    text.push('\n');
    text
}

/// A log that has been read.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// Its first line.
    pub header: Header,
    /// The records in the order of the file, without those of unknown kinds.
    pub records: Vec<Record>,
    /// How many records of unknown kinds were skipped.
    pub skipped: u64,
}

/// Reads a whole log. A last line without its line feed was cut off by a killed writer and is
/// left out when it does not read.
pub fn parse(bytes: &[u8]) -> Result<Log, EventError> {
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
            header = Some(self::header(line).map_err(|error| match error {
                HeaderError::Schema(schema) => EventError::Schema(schema),
                HeaderError::Json(reason) => wrong(reason),
            })?);
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

enum HeaderError {
    Schema(String),
    Json(String),
}

fn header(line: &[u8]) -> Result<Header, HeaderError> {
    #[derive(Deserialize)]
    struct Version {
        schema: String,
    }
    // The schema first: another version may have other fields.
    let Version { schema } = serde_json::from_slice(line).map_err(|error| {
        HeaderError::Json(format!("no header of an event log: {}", what(&error)))
    })?;
    if schema != SCHEMA {
        return Err(HeaderError::Schema(quoted(&schema)));
    }
    serde_json::from_slice(line).map_err(|error| HeaderError::Json(what(&error)))
}

/// A record, or none when its kind is unknown.
fn record(line: &[u8]) -> Result<Option<Record>, String> {
    #[derive(Deserialize)]
    struct Kind {
        event: String,
    }
    let Kind { event } = serde_json::from_slice(line).map_err(|error| what(&error))?;
    if !KINDS.contains(&event.as_str()) {
        return Ok(None);
    }
    serde_json::from_slice(line).map(Some).map_err(|error| what(&error))
}

/// Every kind of event as it stands in a log.
pub const KINDS: [&str; 19] = [
    "link-sample",
    "link-change",
    "workload-start",
    "workload-end",
    "transfer-start",
    "path-sample",
    "path-state",
    "request",
    "response",
    "received",
    "range-end",
    "request-end",
    "ping",
    "transfer-end",
    "bond-path",
    "bond-open",
    "bond-policy",
    "bond-close",
    "bond-reinjection",
];

/// The error without serde_json's line number, which counts inside one line of the log.
fn what(error: &serde_json::Error) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = error.to_string();
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

fn as_seconds<S: Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

fn from_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    // Up to here a double holds every nanosecond through both conversions.
    if !(0.0..2e6).contains(&seconds) {
        return Err(D::Error::custom("a time is from 0 to 2e6 seconds"));
    }
    Ok(Time::ZERO + Span::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests;
