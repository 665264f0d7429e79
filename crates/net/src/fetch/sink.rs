//! Where the bytes go: into files, or to somebody who reads them in order.

mod files;
mod gather;
mod stream;

use std::io;
use std::path::{Path, PathBuf};

use manyways_proto::fetch::Ranges;

use super::dial::plain;
use super::resume::{ResumeError, Saved};
pub(super) use files::{Files, PART_SUFFIX, RESUME_SUFFIX, with_suffix};
pub use stream::Body;
pub(super) use stream::Stream;

/// What went wrong with the files of a download.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The disk, or the quota, is full.
    #[error("the disk is full: {path} cannot grow", path = .0.display())]
    Full(PathBuf),
    /// Anything else that the system says.
    #[error("{path} cannot be written: {why}", path = .path.display(), why = plain(.source))]
    Write {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The target is a folder, a pipe or a socket.
    #[error("{path} is not a file that can be written at any place", path = .0.display())]
    NotAFile(PathBuf),
    /// Another process has the unfinished file open.
    #[error("another download is writing {path}", path = .0.display())]
    Busy(PathBuf),
    /// The resume file cannot be used.
    #[error("the resume file {path} cannot be used: {why}", path = .path.display())]
    Resume {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: ResumeError,
    },
    /// The resume file belongs to another download.
    #[error("the unfinished download {path} is of another URL: {url}", path = .path.display())]
    OtherUrl {
        /// The unfinished file.
        path: PathBuf,
        /// Its URL.
        url: String,
    },
    /// Nobody reads the stream any more.
    #[error("nobody reads what is fetched any more")]
    Unread,
    /// The bytes of a stream cannot be taken back.
    #[error("the download would have to begin anew, and bytes of it are handed on already")]
    HandedOn,
    /// The unfinished file is shorter than the resume file says.
    #[error("the unfinished download {path} is shorter than its resume file says", path = .0.display())]
    Shorter(PathBuf),
}

/// Where the bytes of one download go.
#[derive(Debug)]
pub(super) enum Sink {
    Files(Files),
    Stream(Stream),
}

/// The blocking step of a checkpoint.
pub(super) type Save = Box<dyn FnOnce() -> Result<(), SinkError> + Send>;

/// What an earlier run left.
#[derive(Debug)]
pub(super) enum Left {
    /// Nothing.
    Nothing,
    /// What this run goes on with.
    Continued(Saved),
    /// What [`Files::begin`] will throw away, as far as it can be read.
    Older(Option<Saved>),
}

impl Sink {
    /// The object is there: an older download makes room for it. Says whether there was one.
    pub(super) fn begin(&mut self) -> Result<bool, SinkError> {
        match self {
            Self::Files(files) => files.begin(),
            Self::Stream(_) => Ok(false),
        }
    }

    /// Takes bytes in.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), SinkError> {
        match self {
            Self::Files(files) => files.write(at, bytes),
            Self::Stream(stream) => {
                stream.put(at, bytes);
                Ok(())
            }
        }
    }

    /// Forgets what was written, and that it could be continued.
    pub(super) fn restart(&mut self) -> Result<(), SinkError> {
        match self {
            Self::Files(files) => files.restart(),
            Self::Stream(stream) => stream.restart(),
        }
    }

    /// It was begun anew while a checkpoint was being written: what that says is not there.
    pub(super) fn forget_late(&mut self) {
        if let Self::Files(files) = self {
            files.forget_late();
        }
    }

    /// Whether all bytes have left.
    pub(super) fn is_drained(&self) -> bool {
        match self {
            Self::Files(_) => true,
            Self::Stream(stream) => stream.is_empty(),
        }
    }

    /// Hands bytes to the reader, and says up to where it has them. For files there is none.
    pub(super) async fn hand_on(&mut self) -> Result<u64, SinkError> {
        match self {
            Self::Files(_) => std::future::pending().await,
            Self::Stream(stream) => stream.hand_on().await,
        }
    }

    /// The bytes that came and did not get into the file.
    pub(super) fn unwritten(&self) -> Ranges {
        match self {
            Self::Files(files) => files.unwritten(),
            Self::Stream(_) => Ranges::new(),
        }
    }

    /// The unfinished file, where there is one.
    pub(super) fn part(&self) -> Option<&Path> {
        match self {
            Self::Files(files) => files.part(),
            Self::Stream(_) => None,
        }
    }

    /// Leaves nothing behind of a download that cannot be continued.
    pub(super) fn discard(&mut self) {
        if let Self::Files(files) = self {
            files.discard();
        }
    }

    /// The object is complete; `is_synced` makes it durable before it gets its name.
    pub(super) fn finish(&mut self, length: u64, is_synced: bool) -> Result<(), SinkError> {
        match self {
            Self::Files(files) => files.finish(length, is_synced),
            Self::Stream(_) => Ok(()),
        }
    }

    /// Writes what was gathered.
    pub(super) fn flush(&mut self) -> Result<(), SinkError> {
        match self {
            Self::Files(files) => files.flush(),
            Self::Stream(_) => Ok(()),
        }
    }

    /// Makes what `saved` says lasting, after a flush. `None` where that cannot be.
    pub(super) fn checkpoint(&mut self, saved: &Saved) -> Option<Save> {
        match self {
            Self::Files(files) => Some(Box::new(files.checkpoint(saved))),
            Self::Stream(_) => None,
        }
    }

    /// Whether [`Sink::sha256`] can say something.
    pub(super) fn can_be_hashed(&self) -> bool {
        match self {
            Self::Files(files) => files.part().is_some(),
            Self::Stream(_) => true,
        }
    }

    /// The SHA-256 of the whole object, where it can be had.
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

fn failed(path: &Path, source: io::Error) -> SinkError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            SinkError::Full(path.to_owned())
        }
        _ => SinkError::Write { path: path.to_owned(), source },
    }
}
