//! Destinations of the received bytes: files, or a reader that takes them in order.

mod destination;
mod files;
mod stream;
mod write_buffer;

use std::io;
use std::path::{Path, PathBuf};

use manyways_proto::fetch::{Range, Ranges};
use manyways_unit::Size;

use super::resume::{ResumeError, ResumeState};
use crate::path::plain;
pub(super) use destination::OutputFile;
pub(super) use files::Files;
pub use stream::Body;
pub(super) use stream::Stream;

/// Error of a download's destination.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The disk, or the quota, is full.
    #[error("the disk is full: {path} cannot grow", path = .0.display())]
    Full(PathBuf),
    /// The disk has less free space than the rest of the object needs.
    #[error(
        "the disk is too small for {path}: {needed} are needed, and {free}",
        path = .path.display(), free = free_text(*.needed, *.free)
    )]
    TooSmall {
        /// The output file.
        path: PathBuf,
        needed: Size,
        free: Size,
    },
    /// Any other I/O error.
    #[error("{path} cannot be written: {why}", path = .path.display(), why = plain(.source))]
    Write { path: PathBuf, source: io::Error },
    /// The output is a folder, or a file without a name.
    #[error("{path} is not a regular file", path = .0.display())]
    NotAFile(PathBuf),
    /// The output is a pipe, a socket or a terminal.
    #[error("{path} is not seekable, but bytes arrive out of order", path = .0.display())]
    NotSeekable(PathBuf),
    /// The name of the output is longer than the file system permits.
    #[error("the file name is too long: {length} bytes, and at most {limit} are allowed")]
    NameTooLong {
        /// In bytes.
        length: usize,
        limit: usize,
    },
    /// A file or symbolic link that this download must not replace or follow.
    #[error("{path} {reason}", path = .path.display())]
    Unusable {
        path: PathBuf,
        /// For example "is read-only for this user".
        reason: &'static str,
    },
    /// Another process has locked the part file.
    #[error("another download is writing {path}", path = .0.display())]
    Busy(PathBuf),
    /// The resume file cannot be used.
    #[error("the resume file {path} cannot be used: {error}", path = .path.display())]
    Resume { path: PathBuf, error: ResumeError },
    /// The resume file belongs to another URL.
    #[error("the unfinished download {path} is of another URL: {url}", path = .path.display())]
    OtherUrl {
        /// The part file.
        path: PathBuf,
        /// URL in the resume file.
        url: String,
    },
    /// The reader of the stream was dropped.
    #[error("the reader of standard output has closed it")]
    ReaderClosed,
    /// The download must restart, but the reader has already taken bytes.
    #[error(
        "the download would have to start over, but part of it was already written to standard output"
    )]
    AlreadyDelivered,
    /// The part file is shorter than the ranges of its resume file.
    #[error("the unfinished download {path} is shorter than its resume file states", path = .0.display())]
    PartFileTooShort(PathBuf),
}

/// Destination of one download.
#[derive(Debug)]
pub(super) enum Sink {
    Files(Files),
    Stream(Stream),
}

/// The blocking step of a checkpoint.
pub(super) type CheckpointStep = Box<dyn FnOnce() -> Result<(), SinkError> + Send>;

/// Result of an earlier run.
#[derive(Debug)]
pub(super) enum Leftover {
    Nothing,
    /// Continued by this run.
    Resumed(ResumeState),
    /// Discarded by [`Files::begin`]; `None` if the resume file cannot be read.
    Replaced(Option<ResumeState>),
}

impl Sink {
    /// Discards the files of an older download, because the object is known. Returns whether there
    /// were any.
    pub(super) fn begin(&mut self) -> Result<bool, SinkError> {
        match self {
            Self::Files(files) => files.begin(),
            Self::Stream(_) => Ok(false),
        }
    }

    /// Checks that the disk has space for an object, of which `done` bytes are present.
    pub(super) fn check_space(&self, length: Size, done: Size) -> Result<(), SinkError> {
        match self {
            Self::Files(files) => files.check_space(length, done),
            Self::Stream(_) => Ok(()),
        }
    }

    /// Writes or buffers bytes at an offset.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), SinkError> {
        match self {
            Self::Files(files) => files.write(at, bytes),
            Self::Stream(stream) => {
                stream.put(at, bytes);
                Ok(())
            }
        }
    }

    /// Discards all written bytes and the resume file.
    pub(super) fn restart(&mut self) -> Result<(), SinkError> {
        match self {
            Self::Files(files) => files.restart(),
            Self::Stream(stream) => stream.restart(),
        }
    }

    /// Discards a resume file that was written during a restart and describes discarded bytes.
    pub(super) fn remove_stale_resume_file(&mut self) {
        if let Self::Files(files) = self {
            files.remove_stale_resume_file();
        }
    }

    /// Whether the reader has taken all bytes.
    pub(super) fn is_drained(&self) -> bool {
        match self {
            Self::Files(_) => true,
            Self::Stream(stream) => stream.is_empty(),
        }
    }

    /// Passes bytes to the reader. Returns the offset up to which it has received all. Pending for
    /// files.
    pub(super) async fn deliver(&mut self) -> Result<u64, SinkError> {
        match self {
            Self::Files(_) => std::future::pending().await,
            Self::Stream(stream) => stream.deliver().await,
        }
    }

    /// Received bytes that are buffered and not in the file.
    pub(super) fn unwritten(&self) -> Ranges {
        match self {
            Self::Files(files) => files.unwritten(),
            Self::Stream(_) => Ranges::new(),
        }
    }

    /// The part file; `None` for a stream or a device.
    pub(super) fn part(&self) -> Option<&Path> {
        match self {
            Self::Files(files) => files.part(),
            Self::Stream(_) => None,
        }
    }

    /// Removes the files of a download that cannot be continued.
    pub(super) fn discard(&mut self) {
        if let Self::Files(files) = self {
            files.discard();
        }
    }

    /// Completes the object; `is_synced` makes it durable before it gets its name. Returns the
    /// number of other hard links of the replaced file.
    pub(super) fn finish(&mut self, length: u64, is_synced: bool) -> Result<u64, SinkError> {
        match self {
            Self::Files(files) => files.finish(length, is_synced),
            Self::Stream(_) => Ok(0),
        }
    }

    /// Writes the state with which a later run continues. On a full disk, the end of the part file
    /// makes room for it. Returns the state that a later run finds; `None` without one.
    pub(super) fn save(&mut self, mut state: ResumeState) -> Option<ResumeState> {
        let Self::Files(files) = self else { return None };
        let mut outcome = files.checkpoint(&state)();
        if let Err(error) = &outcome
            && let Some(end) = files.make_room(error, &state.url)
        {
            state.done.remove(Range::new(end, u64::MAX));
            outcome = files.checkpoint(&state)();
        }
        let Err(error) = outcome else { return Some(state) };
        tracing::warn!("the resume file cannot be written: {error}");
        files.latest_state(&state.url)
    }

    /// Writes the buffered bytes.
    pub(super) fn flush(&mut self) -> Result<(), SinkError> {
        match self {
            Self::Files(files) => files.flush(),
            Self::Stream(_) => Ok(()),
        }
    }

    /// Returns the step that makes `saved` durable, after a flush; `None` for a stream.
    pub(super) fn checkpoint(&mut self, saved: &ResumeState) -> Option<CheckpointStep> {
        match self {
            Self::Files(files) => Some(Box::new(files.checkpoint(saved))),
            Self::Stream(_) => None,
        }
    }

    /// Whether [`Sink::sha256`] can return a hash.
    pub(super) fn can_be_hashed(&self) -> bool {
        match self {
            Self::Files(files) => files.part().is_some(),
            Self::Stream(_) => true,
        }
    }

    /// The SHA-256 of the whole object; `None` for a stream that was not hashed from its start.
    pub(super) async fn sha256(&mut self) -> Result<Option<[u8; 32]>, SinkError> {
        match self {
            Self::Files(files) => {
                files.flush()?;
                let hash = tokio::task::spawn_blocking(files.sha256()).await;
                hash.unwrap_or_else(|stopped| {
                    let path = files.part().map(Path::to_owned).unwrap_or_default();
                    Err(SinkError::Write { path, source: io::Error::other(stopped) })
                })
                .map(Some)
            }
            Self::Stream(stream) => Ok(stream.sha256()),
        }
    }
}

/// Rounded sizes must not look as if the object fits.
fn free_text(needed: Size, free: Size) -> String {
    if needed.to_string() == free.to_string() {
        return format!("{} less are free", needed.saturating_sub(free));
    }
    format!("{free} are free")
}

fn write_error(path: &Path, source: io::Error) -> SinkError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            SinkError::Full(path.to_owned())
        }
        _ => SinkError::Write { path: path.to_owned(), source },
    }
}
