//! The radio signal of an emulated interface: its lab publishes the samples in a file.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use manyways_record::document::{self, DocumentError};
use manyways_sys::clock::Clock;
use manyways_trace::signal::{MAX_PUBLISHED, PublishedSignal, SCHEMA, published_file};
use manyways_unit::Time;
use manyways_unit::human::quoted;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::task::spawn_blocking;

use super::ledger::Scope;
use super::playback::readings;
use super::{Feed, Ticker};

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct SignalDocument(PublishedSignal);

manyways_record::document!(SignalDocument, SCHEMA);

/// Why there is no signal.
#[derive(Debug, Error)]
enum NoSignal {
    #[error("this program does not run in a lab")]
    NoLab,
    #[error("the lab has no signal of `{0}`")]
    None(String),
    #[error("{file}: {error}")]
    Read { file: String, error: io::Error },
    #[error("{file}: {error}")]
    Damaged { file: String, error: DocumentError },
}

/// Returns the signal that the lab around this program publishes for an interface
/// (`signal=trace:FILE` of a link). `None` outside of a lab, without a signal, and with a warning if
/// the file cannot be used.
///
/// [`Sources::add_lab_signal`](super::Sources::add_lab_signal) also follows its changes.
pub fn lab_signal(interface: &str) -> Option<PublishedSignal> {
    signal_in(folder().as_deref(), interface)
}

/// The folder of the lab around this program.
pub(super) fn folder() -> Option<PathBuf> {
    std::env::var_os("LAB_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute())
}

fn signal_in(folder: Option<&Path>, interface: &str) -> Option<PublishedSignal> {
    let mut file = SignalFile::new(folder, interface);
    file.refresh();
    file.signal.ok()
}

/// Reports the signal at each poll. The file is read again when the lab has replaced it.
pub(super) async fn run(
    feed: Feed,
    mut ticker: Ticker,
    network: String,
    interface: String,
    folder: Option<PathBuf>,
) {
    let mut file = SignalFile::new(folder.as_deref(), &interface);
    loop {
        let mut moved = file;
        // A file may be long.
        let refreshed = spawn_blocking(move || {
            moved.refresh();
            moved
        });
        file = match refreshed.await {
            Ok(file) => file,
            // Only at the end of the runtime.
            Err(_) => return feed.fail("the file of the signal was not read"),
        };
        match &file.signal {
            Ok(signal) => {
                // The clock of the lab, which may be older than this program.
                let monotonic = Clock::start().absolute(Time::ZERO);
                let sample = signal.trace.repeated_at(signal.position(monotonic));
                feed.report(feed.now(), &network, &readings(sample), Scope::Complete);
            }
            Err(reason) => feed.fail(&reason.to_string()),
        }
        if !ticker.pause().await {
            return;
        }
    }
}

/// Device, inode, length and time of the last change: another one for each file that a lab publishes.
type Version = (u64, u64, u64, i64, i64);

fn version(file: &Metadata) -> Version {
    (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec())
}

/// The file of an interface, and its content when it was last read.
#[derive(Debug)]
struct SignalFile {
    interface: String,
    path: Option<PathBuf>,
    version: Option<Version>,
    signal: Result<PublishedSignal, NoSignal>,
}

impl SignalFile {
    fn new(folder: Option<&Path>, interface: &str) -> Self {
        let name = published_file(interface);
        let path = folder.zip(name).map(|(folder, name)| folder.join(name));
        let none = NoSignal::None(quoted(interface));
        let signal = Err(if folder.is_none() { NoSignal::NoLab } else { none });
        Self { interface: interface.to_owned(), path, version: None, signal }
    }

    /// Reads the file if it is not the same as the last time.
    fn refresh(&mut self) {
        let Some(path) = &self.path else { return };
        let file = |error| NoSignal::Read { file: path.display().to_string(), error };
        let found = match fs::metadata(path) {
            // Opening another kind, such as a pipe, could wait for ever.
            Ok(found) if !found.is_file() => Err(file(io::Error::other("it is not a file"))),
            Ok(found) if self.version == Some(version(&found)) => return,
            Ok(_) => read(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(NoSignal::None(quoted(&self.interface)))
            }
            Err(error) => Err(file(error)),
        };
        // `Err` also for a file that was read, but has no signal: it is read once.
        let (version, signal) = match found {
            Ok((version, signal)) => (Some(version), signal),
            Err(error) => (None, Err(error)),
        };
        let is_new = |reason: &&NoSignal| {
            self.signal.as_ref().err().map(ToString::to_string) != Some(reason.to_string())
        };
        if let Some(reason) = signal.as_ref().err().filter(is_new)
            && !matches!(reason, NoSignal::None(_))
        {
            tracing::warn!("the signal of {} is not used: {reason}", self.interface);
        }
        (self.version, self.signal) = (version, signal);
    }
}

type ReadSignal = (Version, Result<PublishedSignal, NoSignal>);

fn read(path: &Path) -> Result<ReadSignal, NoSignal> {
    let name = || path.display().to_string();
    let mut bytes = Vec::new();
    let version = File::open(path)
        .and_then(|file| {
            let version = version(&file.metadata()?);
            // A longer file is damaged, because its end is missing.
            file.take(MAX_PUBLISHED).read_to_end(&mut bytes)?;
            Ok(version)
        })
        .map_err(|error| NoSignal::Read { file: name(), error })?;
    let signal = document::parse::<SignalDocument>(&bytes).map(|document| document.0);
    Ok((version, signal.map_err(|error| NoSignal::Damaged { file: name(), error })))
}

#[cfg(test)]
mod tests;
