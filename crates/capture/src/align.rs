//! Captures of several points to what they have in common: reads each, and hands what passed to
//! `manyways_flows::align`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use manyways_flows::align::{Follow, Followed, Log, LogError, Place, Point, Report, orient};
use manyways_unit::Time;
use manyways_wire::capture::{Reader, Step};
use thiserror::Error;

use super::Progress;
use super::input::{Source, SourceError};

/// So many bytes of a capture are read together.
const LENGTH: usize = 256 << 10;
/// The longest log that is read.
pub const LOG: u64 = 1 << 30;

/// A capture and where it was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The capture.
    pub source: Source,
    /// Where.
    pub place: Place,
    /// The number of the clock that stamped it.
    pub clock: u32,
}

/// What captures have in common.
#[derive(Clone, Debug, Default)]
pub struct Alignment {
    /// What became of each capture, in the order of the points.
    pub captures: Vec<Taken>,
    /// What passed there.
    pub points: Vec<Point>,
    /// How it belongs together.
    pub report: Report,
}

/// What became of a capture.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Its name.
    pub name: String,
    /// How many packets were found in it.
    pub packets: u64,
    /// How many of them were of TCP or had data of Bluetooth.
    pub followed: u64,
    /// Directions of connections that were left out, as there are too many.
    pub left_out: u64,
    /// When the first packet passed, and the last.
    pub times: Option<(Time, Time)>,
    /// Why it was not read to its end, where it was not.
    pub fault: Option<String>,
}

/// Why nothing can be aligned.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AlignError {
    /// There are not two captures.
    #[error("one capture alone cannot be aligned")]
    Alone,
    /// A capture cannot be opened.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A capture has nothing that can be followed.
    #[error("{name} has no TCP and no Bluetooth data that can be followed{}", because(.fault))]
    Empty {
        /// Which.
        name: String,
        /// Why it was not read to its end, where it was not.
        fault: Option<String>,
    },
    /// The log cannot be read.
    #[error("cannot read {path}: {error}", path = .path.display())]
    Unread {
        /// Which.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: std::io::Error,
    },
    /// It has more than [`LOG`] bytes.
    #[error("{path} is longer than {LOG} bytes", path = .0.display())]
    Long(PathBuf),
    /// It says what cannot be.
    #[error("{path}, {error}", path = .path.display())]
    Log {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        #[source]
        error: LogError,
    },
    /// No two neighbours have a stream in common.
    #[error("no stream of one capture was found in the next one")]
    Nothing,
    /// A signal ended it.
    #[error("it was stopped before all captures were read")]
    Stopped,
}

fn because(fault: &Option<String>) -> String {
    fault.as_ref().map_or(String::new(), |fault| format!(": {fault}"))
}

impl AlignError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Alone => {
                Some("give the captures of two or more points, in the order of the path")
            }
            Self::Source(error) => Some(error.hint()),
            Self::Empty { .. } => {
                Some("captures are pcap, pcapng or btsnoop files with TCP or Bluetooth's HCI")
            }
            Self::Unread { .. } | Self::Long(_) => {
                Some("--log takes a file of `time,stream,offset,point` lines")
            }
            Self::Log { .. } => {
                Some("a line is like 1700000000.25,192.0.2.9:40000>198.51.100.1:443,1448,read")
            }
            Self::Nothing => Some(
                "captures must overlap in time and follow the path; of encrypted streams a proxy \
                 leaves nothing to recognise",
            ),
            Self::Stopped => None,
        }
    }
}

/// Reads the captures of points in the order of the path, and the log of the proxy on it.
pub fn align(
    sites: &[Site],
    log: Option<&Path>,
    progress: &Progress,
) -> Result<Alignment, AlignError> {
    if sites.len() < 2 {
        return Err(AlignError::Alone);
    }
    // The log is read first: what is wrong with it is found at once.
    let log = log.map(read_log).transpose()?;
    let mut captures = Vec::new();
    let mut followed = Vec::new();
    for site in sites {
        let (taken, tracks) = follow(&site.source, progress)?;
        if tracks.tracks.is_empty() {
            return Err(AlignError::Empty { name: taken.name, fault: taken.fault });
        }
        captures.push(taken);
        followed.push((site.place, tracks));
    }
    orient(&mut followed);
    let points: Vec<Point> = followed
        .into_iter()
        .zip(sites)
        .map(|((place, followed), site)| Point {
            place,
            clock: site.clock,
            tracks: followed.tracks,
        })
        .collect();
    let report = Report::new(&points, log.as_ref());
    if report.pairs.iter().all(|pair| pair.streams.is_empty()) {
        return Err(AlignError::Nothing);
    }
    Ok(Alignment { captures, points, report })
}

fn read_log(path: &Path) -> Result<Log, AlignError> {
    let unread = |error| AlignError::Unread { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unread)?;
    file.take(LOG + 1).read_to_end(&mut bytes).map_err(unread)?;
    if bytes.len() as u64 > LOG {
        return Err(AlignError::Long(path.to_owned()));
    }
    Log::read(&bytes).map_err(|error| AlignError::Log { path: path.to_owned(), error })
}

fn follow(source: &Source, progress: &Progress) -> Result<(Taken, Followed), AlignError> {
    let mut file = source.open(progress)?;
    let (mut reader, mut follow) = (Reader::default(), Follow::default());
    let (mut bytes, mut wanted, mut place, mut is_over) = (Vec::new(), LENGTH, 0_u64, false);
    let mut fault = None;
    while !is_over && fault.is_none() {
        if progress.stop.load(Ordering::Relaxed) {
            return Err(AlignError::Stopped);
        }
        let missing = wanted.saturating_sub(bytes.len()).max(1) as u64;
        match file.by_ref().take(missing).read_to_end(&mut bytes) {
            Ok(count) => is_over = (count as u64) < missing,
            Err(error) => {
                let behind = place + bytes.len() as u64;
                fault = Some(format!("cannot be read on after byte {behind}: {error}"));
            }
        }
        let mut at = 0;
        wanted = loop {
            match reader.step(bytes.get(at..).unwrap_or_default()) {
                Ok(Step::Packet(packet, length)) => {
                    if let Some(interface) = reader.interfaces().get(packet.interface) {
                        follow.packet(interface, &packet);
                        progress.packets.fetch_add(1, Ordering::Relaxed);
                    }
                    at += length;
                }
                Ok(Step::Other(length)) => at += length,
                Ok(Step::More(more)) => break more.max(LENGTH),
                Err(broken) => {
                    let behind = place + at as u64;
                    fault = fault.or(Some(format!("{broken} (at byte {behind})")));
                    break LENGTH;
                }
            }
        };
        bytes.drain(..at.min(bytes.len()));
        place += at as u64;
        if is_over && !bytes.is_empty() {
            let cut = format!("it ends in the middle of what begins at byte {place}");
            fault = fault.or(Some(cut));
        }
    }
    let followed = follow.finish();
    let taken = Taken {
        name: source.name(),
        packets: followed.packets,
        followed: followed.followed,
        left_out: followed.left_out,
        times: followed.times,
        fault,
    };
    Ok((taken, followed))
}

#[cfg(test)]
mod tests;
