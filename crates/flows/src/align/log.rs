//! Log of the times at which bytes passed points without a capture: `time,stream,offset,point`
//! lines.
//!
//! ```text
//! time,stream,offset,point
//! 1700000000.250000000,music,1448,read
//! 1700000000.251,music,1448,write
//! ```
//!
//! At the time, in seconds since the Unix epoch, the first `offset` bytes of the stream had passed
//! the point: a first `read` that returned 1448 bytes logs 1448, and the next one adds to that.
//! `read` is the point at which a proxy receives bytes from the incoming stream, `write` the point
//! at which it passes them to the outgoing one; the name of the stream is that of its [`Track`].
//! Offsets that are not larger than earlier ones are ignored, so lines may be in any order of
//! streams. Empty lines and lines that begin with `#` are comments.

use std::collections::BTreeMap;

use manyways_unit::Time;
use manyways_unit::human::unix_seconds;
use thiserror::Error;

use super::ChainDirection;
use super::track::{MAX_TRACK_LEN, Track};
use manyways_wire::stream::Piece;

/// Maximum length of a line, in bytes.
pub const MAX_LINE_LEN: usize = 512;
/// Maximum number of lines.
pub const MAX_LINES: usize = 8_000_000;
/// Maximum number of streams, counted per point.
pub const MAX_STREAMS: usize = 4_096;
/// Name of the point at which a proxy receives bytes from the system.
pub const READ_POINT: &str = "read";
/// Name of the point at which a proxy passes bytes to the system.
pub const WRITE_POINT: &str = "write";

/// A parsed log.
#[derive(Clone, Debug, Default)]
pub struct ProxyLog {
    /// By point and stream.
    tracks: BTreeMap<String, BTreeMap<String, Track>>,
}

/// Error in a log, with its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {kind}")]
pub struct LogError {
    /// From 1.
    pub line: usize,
    pub kind: LogErrorKind,
}

/// Reason to reject a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LogErrorKind {
    /// Another number of fields than four.
    #[error("a line is `time,stream,offset,point`")]
    FieldCount,
    /// The time is invalid or too large.
    #[error("the time must be seconds since 1970, with up to 9 decimals")]
    Time,
    /// A name is empty or not UTF-8.
    #[error("the stream and the point must be names")]
    Name,
    /// The offset is not a number.
    #[error("the offset must be a whole number of bytes")]
    Offset,
    /// More than [`MAX_LINE_LEN`] bytes.
    #[error("the line has more than {MAX_LINE_LEN} bytes")]
    TooLong,
    /// More than [`MAX_LINES`] lines.
    #[error("the log has more than {MAX_LINES} lines")]
    TooManyLines,
    /// More than [`MAX_STREAMS`] streams.
    #[error("the log has more than {MAX_STREAMS} streams")]
    TooManyStreams,
}

impl ProxyLog {
    pub fn read(bytes: &[u8]) -> Result<Self, LogError> {
        let mut log = Self::default();
        let mut streams = 0;
        let mut is_first = true;
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let wrong = |reason| LogError { line: number + 1, kind: reason };
            if number >= MAX_LINES && !line.is_empty() {
                return Err(wrong(LogErrorKind::TooManyLines));
            }
            if line.len() > MAX_LINE_LEN {
                return Err(wrong(LogErrorKind::TooLong));
            }
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let is_head = std::mem::take(&mut is_first) && line.starts_with(b"time");
            if is_head {
                continue;
            }
            let row = Row::read(line).map_err(wrong)?;
            log.push(&row, &mut streams).map_err(wrong)?;
        }
        Ok(log)
    }

    /// Returns the names of the points, sorted.
    pub fn points(&self) -> impl Iterator<Item = &str> {
        self.tracks.keys().map(String::as_str)
    }

    /// Returns the times of a stream at a point. Offsets are those of the stream; the direction is
    /// meaningless.
    pub fn track(&self, point: &str, stream: &str) -> Option<&Track> {
        self.tracks.get(point)?.get(stream)
    }

    fn push(&mut self, row: &Row<'_>, streams: &mut usize) -> Result<(), LogErrorKind> {
        if self.track(row.point, row.stream).is_none() {
            if *streams == MAX_STREAMS {
                return Err(LogErrorKind::TooManyStreams);
            }
            *streams += 1;
            let track = Track::new(ChainDirection::Forward, row.stream, None);
            let point = self.tracks.entry(row.point.to_owned()).or_default();
            point.insert(row.stream.to_owned(), track);
        }
        let track = self.tracks.get_mut(row.point).and_then(|point| point.get_mut(row.stream));
        if let Some(track) = track {
            let length = row.offset.saturating_sub(track.length());
            track.push(Piece::uncaptured(row.time, length));
        }
        Ok(())
    }
}

struct Row<'a> {
    time: Time,
    stream: &'a str,
    offset: u64,
    point: &'a str,
}

impl<'a> Row<'a> {
    fn read(line: &'a [u8]) -> Result<Self, LogErrorKind> {
        let mut fields = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        let mut next = || fields.next().ok_or(LogErrorKind::FieldCount);
        let [at, stream, offset, point] = [next()?, next()?, next()?, next()?];
        if fields.next().is_some() {
            return Err(LogErrorKind::FieldCount);
        }
        let offset =
            number(offset).filter(|offset| *offset <= MAX_TRACK_LEN).ok_or(LogErrorKind::Offset)?;
        let time = unix_seconds(at).ok_or(LogErrorKind::Time)?;
        Ok(Self { time, stream: name(stream)?, offset, point: name(point)? })
    }
}

fn name(field: &[u8]) -> Result<&str, LogErrorKind> {
    let text = std::str::from_utf8(field).map_err(|_| LogErrorKind::Name)?;
    let is_good = !text.is_empty() && !text.chars().any(char::is_control);
    if is_good { Ok(text) } else { Err(LogErrorKind::Name) }
}

/// Accepts only digits, because the parser of the standard library accepts a sign.
fn number(field: &[u8]) -> Option<u64> {
    if !field.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrong(text: &str) -> (usize, LogErrorKind) {
        let error = ProxyLog::read(text.as_bytes()).unwrap_err();
        (error.line, error.kind)
    }

    #[test]
    fn lines_are_tracks() {
        let text = "# by hand\r\n\r\ntime,stream,offset,point\r\n1.5,a,100,read\n\
                    1.25 , b b , 7 , write\n2.000000001,a,250,read\n3,a,200,read\n3,a,250,write";
        let log = ProxyLog::read(text.as_bytes()).unwrap();
        assert_eq!(log.points().collect::<Vec<_>>(), ["read", "write"]);
        let read = log.track("read", "a").unwrap();
        let told: Vec<_> =
            read.runs().iter().map(|run| (run.begin, run.end, run.at.as_nanos())).collect();
        assert_eq!(told, [(0, 100, 1_500_000_000), (100, 250, 2_000_000_001)]);
        assert_eq!(log.track("write", "b b").unwrap().length(), 7);
        assert!(log.track("write", "c").is_none());
    }

    #[test]
    fn a_wrong_line_is_named() {
        assert_eq!(wrong("1,a,1,read\n1,a,1"), (2, LogErrorKind::FieldCount));
        assert_eq!(wrong("1,a,1,read,x"), (1, LogErrorKind::FieldCount));
        assert_eq!(wrong("time\n\ntime,a,1,read"), (3, LogErrorKind::Time));
        for time in ["", ".", "1.", ".5", "-1", "+1", "1e3", "1.0000000001", "18446744074", "1.2.3"]
        {
            assert_eq!(wrong(&format!("{time},a,1,read")), (1, LogErrorKind::Time), "{time}");
        }
        for offset in ["", "-1", "+1", "1.0", "18446744073709551616", "281474976710657"] {
            assert_eq!(wrong(&format!("1,a,{offset},read")), (1, LogErrorKind::Offset), "{offset}");
        }
        assert_eq!(wrong("1,,1,read"), (1, LogErrorKind::Name));
        assert_eq!(wrong("1,a,1, "), (1, LogErrorKind::Name));
        assert_eq!(wrong("1,a\u{7},1,read"), (1, LogErrorKind::Name));
        assert_eq!(ProxyLog::read(b"1,\xff,1,read").unwrap_err().kind, LogErrorKind::Name);
        assert_eq!(
            wrong(&format!("1,{},1,read", "a".repeat(MAX_LINE_LEN))),
            (1, LogErrorKind::TooLong)
        );
        let many: String = (0..=MAX_STREAMS).map(|n| format!("1,{n},1,read\n")).collect();
        assert_eq!(wrong(&many), (MAX_STREAMS + 1, LogErrorKind::TooManyStreams));
        let text = ProxyLog::read(b"1,a,x,read").unwrap_err().to_string();
        assert_eq!(text, "line 1: the offset must be a whole number of bytes");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ProxyLog::read(&bytes);
        }

        #[test]
        fn nearly_good_lines_do_not(text in "([0-9.]{0,22},[a-b,]{0,3},[0-9]{0,21},(read|write)?\n?){0,6}") {
            let _ = ProxyLog::read(text.as_bytes());
        }
    }
}
