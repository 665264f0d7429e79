//! Alignment of captures from several points: reads each capture and passes its packets to
//! `manyways_flows::align`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use manyways_flows::align::{
    CaptureTracks, LogError, Point, PointLocation, ProxyLog, Report, TrackExtractor, orient,
};
use manyways_unit::Time;
use manyways_unit::human::count_with_noun;
use manyways_wire::capture::{Reader, Step};
use manyways_wire::frame::SkipReason;
use thiserror::Error;

use super::Progress;
use super::input::{Source, SourceError};

/// Number of bytes read at once.
const READ_LENGTH: usize = 256 << 10;
/// Maximum length of a log, in bytes.
pub const MAX_LOG_LENGTH: u64 = 1 << 30;

/// A capture and its capture point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointCapture {
    pub source: Source,
    pub point: PointLocation,
    /// Number of the clock that wrote its timestamps.
    pub clock: u32,
}

/// Result of an alignment.
#[derive(Clone, Debug, Default)]
pub struct Alignment {
    /// Each capture, in the order of the points.
    pub captures: Vec<AlignedCapture>,
    /// The streams found at each point.
    pub points: Vec<Point>,
    /// Delays and clock offsets between the points.
    pub report: Report,
}

/// Statistics of a capture.
#[derive(Clone, Debug)]
pub struct AlignedCapture {
    pub name: String,
    /// Packets in the capture.
    pub packets: u64,
    /// Packets of TCP or with Bluetooth data.
    pub followed: u64,
    /// Directions of connections that were ignored, because there were too many.
    pub skipped: u64,
    /// Number of packets of each link type that is not read.
    pub unread_links: BTreeMap<SkipReason, u64>,
    /// Times of the first and the last packet.
    pub times: Option<(Time, Time)>,
    /// Reason why the capture was not read to its end; `None` if it was.
    pub error: Option<String>,
}

/// Reason why captures cannot be aligned.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AlignError {
    /// Fewer than two captures.
    #[error("one capture alone cannot be aligned")]
    TooFewCaptures,
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A capture without a stream, whose link type is not read.
    #[error("cannot decode {} of {name}: {reason}", packet_count(.packets))]
    UnreadLink {
        /// Name of the capture.
        name: String,
        /// The most frequent link type that is not read, and its packets.
        reason: SkipReason,
        packets: u64,
    },
    /// A capture without a stream that can be followed.
    #[error("{name} contains no TCP or Bluetooth data that can be analysed{}", error_suffix(.error))]
    Empty {
        /// Name of the capture.
        name: String,
        /// Reason why the capture was not read to its end; `None` if it was.
        error: Option<String>,
    },
    #[error("cannot read {path}: {error}", path = .path.display())]
    LogUnreadable {
        path: PathBuf,
        /// Error of the system.
        #[source]
        error: std::io::Error,
    },
    /// The log is longer than [`MAX_LOG_LENGTH`] bytes.
    #[error("{path} is longer than {MAX_LOG_LENGTH} bytes", path = .0.display())]
    LogTooLong(PathBuf),
    /// The log has an invalid line.
    #[error("{path}, {error}", path = .path.display())]
    Log {
        path: PathBuf,
        /// The line and its error.
        #[source]
        error: LogError,
    },
    /// No two adjacent points have a stream in common.
    #[error("no stream of a capture was found in the next one")]
    NoCommonStream,
    /// Interrupted by a signal.
    #[error("interrupted before all captures were read")]
    Interrupted,
}

/// `1 packet`, `12 packets`.
fn packet_count(packets: &u64) -> String {
    count_with_noun(usize::try_from(*packets).unwrap_or(usize::MAX), "packet")
}

fn error_suffix(error: &Option<String>) -> String {
    error.as_ref().map_or(String::new(), |error| format!(": {error}"))
}

impl AlignError {
    /// Hint for the user; `None` if there is none.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TooFewCaptures => {
                Some("give the captures of two or more points, in the order of the path")
            }
            Self::Source(error) => Some(error.hint()),
            Self::UnreadLink { reason, .. } => reason.hint(),
            Self::Empty { .. } => {
                Some("give pcap, pcapng or btsnoop files with TCP or Bluetooth HCI")
            }
            Self::LogUnreadable { .. } | Self::LogTooLong(_) => {
                Some("--log takes a file of `time,stream,offset,point` lines")
            }
            Self::Log { .. } => {
                Some("a line is like 1700000000.25,192.0.2.9:40000>198.51.100.1:443,1448,read")
            }
            Self::NoCommonStream => Some(
                "give captures that overlap in time, in the order of the path; streams that a proxy \
                 encrypts again cannot be recognized",
            ),
            Self::Interrupted => None,
        }
    }
}

/// Aligns the captures of points, given in the order of the path, with the log of the proxy on it.
pub fn align(
    sites: &[PointCapture],
    log: Option<&Path>,
    progress: &Progress,
) -> Result<Alignment, AlignError> {
    if sites.len() < 2 {
        return Err(AlignError::TooFewCaptures);
    }
    // The log is read first, so that errors in the log are reported at once.
    let log = log.map(read_log).transpose()?;
    let mut captures = Vec::new();
    let mut followed = Vec::new();
    for capture in sites {
        let (taken, tracks) = follow_streams(&capture.source, progress)?;
        if tracks.tracks.is_empty() {
            return Err(no_stream(taken));
        }
        captures.push(taken);
        followed.push((capture.point, tracks));
    }
    orient(&mut followed);
    let points: Vec<Point> = followed
        .into_iter()
        .zip(sites)
        .map(|((location, followed), capture)| Point {
            location,
            clock: capture.clock,
            tracks: followed.tracks,
        })
        .collect();
    let report = Report::new(&points, log.as_ref());
    if report.pairs.iter().all(|pair| pair.streams.is_empty()) {
        return Err(AlignError::NoCommonStream);
    }
    Ok(Alignment { captures, points, report })
}

/// The reason why a capture has no stream.
fn no_stream(capture: AlignedCapture) -> AlignError {
    let AlignedCapture { name, error, unread_links, .. } = capture;
    match unread_links.into_iter().max_by_key(|(_, packets)| *packets) {
        Some((reason, packets)) => AlignError::UnreadLink { name, reason, packets },
        None => AlignError::Empty { name, error },
    }
}

fn read_log(path: &Path) -> Result<ProxyLog, AlignError> {
    let unread = |error| AlignError::LogUnreadable { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unread)?;
    file.take(MAX_LOG_LENGTH + 1).read_to_end(&mut bytes).map_err(unread)?;
    if bytes.len() as u64 > MAX_LOG_LENGTH {
        return Err(AlignError::LogTooLong(path.to_owned()));
    }
    ProxyLog::read(&bytes).map_err(|error| AlignError::Log { path: path.to_owned(), error })
}

fn follow_streams(
    source: &Source,
    progress: &Progress,
) -> Result<(AlignedCapture, CaptureTracks), AlignError> {
    let mut file = source.open(progress)?;
    let (mut reader, mut follow) = (Reader::default(), TrackExtractor::default());
    let (mut bytes, mut wanted, mut offset, mut is_over) = (Vec::new(), READ_LENGTH, 0_u64, false);
    let mut fault = None;
    while !is_over && fault.is_none() {
        if progress.stop.load(Ordering::Relaxed) {
            return Err(AlignError::Interrupted);
        }
        let missing = wanted.saturating_sub(bytes.len()).max(1) as u64;
        match file.by_ref().take(missing).read_to_end(&mut bytes) {
            Ok(count) => is_over = (count as u64) < missing,
            Err(error) => {
                let behind = offset + bytes.len() as u64;
                fault = Some(format!("cannot be read after byte {behind}: {error}"));
            }
        }
        let mut at = 0;
        wanted = loop {
            match reader.step(bytes.get(at..).unwrap_or_default()) {
                Ok(Step::Packet(packet, length)) => {
                    if let Some(interface) = reader.interfaces().get(packet.interface) {
                        follow.handle_packet(interface, &packet);
                        progress.packets.fetch_add(1, Ordering::Relaxed);
                    }
                    at += length;
                }
                Ok(Step::Other(length)) => at += length,
                Ok(Step::More(more)) => break more.max(READ_LENGTH),
                Err(broken) => {
                    let behind = offset + at as u64;
                    fault = fault.or(Some(format!("{broken} (at byte {behind})")));
                    break READ_LENGTH;
                }
            }
        };
        bytes.drain(..at.min(bytes.len()));
        offset += at as u64;
        if is_over && !bytes.is_empty() {
            let cut = format!("the capture ends in the middle of the block at byte {offset}");
            fault = fault.or(Some(cut));
        }
    }
    let followed = follow.finish();
    let capture = AlignedCapture {
        name: source.name(),
        packets: followed.packets,
        followed: followed.tracked_packets,
        skipped: followed.skipped,
        unread_links: followed.unread_links.clone(),
        times: followed.times,
        error: fault,
    };
    Ok((capture, followed))
}

#[cfg(test)]
mod tests;
