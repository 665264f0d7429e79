//! A part file next to the output file, which gets the output's name when it is complete.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use manyways_proto::fetch::Ranges;

use super::gather::Gather;
use super::{Left, SinkError, failed};
use crate::fetch::digest::of_file;
use crate::fetch::resume::{MOST_BYTES, Saved};

/// Suffix of part files.
pub(in crate::fetch) const PART_SUFFIX: &str = ".manyways-part";
/// Suffix of resume files.
pub(in crate::fetch) const RESUME_SUFFIX: &str = ".manyways";

/// The files of one download.
#[derive(Debug)]
pub(in crate::fetch) struct Files {
    target: PathBuf,
    part: PathBuf,
    state: PathBuf,
    file: Arc<File>,
    gather: Gather,
    /// Whether the output is a device such as `/dev/null`, which is written directly.
    device: bool,
    /// Whether a resume file exists.
    saved: bool,
    /// Whether the files belong to an earlier download that is not continued. They remain until
    /// there are bytes to replace them.
    older: bool,
}

impl Files {
    /// Opens the files for `url`; with `resume`, an earlier download is continued.
    pub(in crate::fetch) fn open(
        target: &Path,
        url: &str,
        resume: bool,
    ) -> Result<(Self, Left), SinkError> {
        let (part, state) = (with_suffix(target, PART_SUFFIX), with_suffix(target, RESUME_SUFFIX));
        let device = match std::fs::metadata(target) {
            Ok(metadata) if metadata.is_file() => false,
            Ok(metadata) if metadata.file_type().is_char_device() => true,
            Ok(_) => return Err(SinkError::NotAFile(target.to_owned())),
            Err(_) => false,
        };
        if device {
            let file = OpenOptions::new().write(true).open(target);
            let file = Arc::new(file.map_err(|error| failed(target, error))?);
            let (target, saved, older) = (target.to_owned(), false, false);
            let gather = Gather::default();
            let sink = Self { target, part, state, file, gather, device, saved, older };
            return Ok((sink, Left::Nothing));
        }
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&part);
        let file = open.map_err(|error| failed(&part, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SinkError::Busy(target.to_owned())),
            // Some file systems do not support locks.
            Err(TryLockError::Error(error)) => tracing::debug!("no lock: {error}"),
        }
        let saved = state.exists();
        let left = match (saved, resume) {
            (false, _) => Left::Nothing,
            (true, true) => Left::Continued(read_state(&state, &part, &file, url)?),
            (true, false) => Left::Older(read(&state).ok()),
        };
        let mut sink = Self {
            target: target.to_owned(),
            part,
            state,
            file: Arc::new(file),
            gather: Gather::default(),
            device,
            saved,
            older: matches!(left, Left::Older(_)),
        };
        if !saved {
            sink.restart()?;
        }
        Ok((sink, left))
    }

    /// Discards the files of an older download, because the object is known. Returns whether there
    /// were any.
    pub(super) fn begin(&mut self) -> Result<bool, SinkError> {
        let older = self.older;
        if older {
            self.restart()?;
        }
        Ok(older)
    }

    /// Writes or buffers bytes at an offset.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), SinkError> {
        let (path, file) = (if self.device { &self.target } else { &self.part }, &self.file);
        let put = self.gather.put(at, bytes, |at, bytes| file.write_all_at(bytes, at));
        put.map_err(|error| failed(path, error))
    }

    /// Writes the buffered bytes.
    pub(super) fn flush(&mut self) -> Result<(), SinkError> {
        let (path, file) = (if self.device { &self.target } else { &self.part }, &self.file);
        let flushed = self.gather.flush(|at, bytes| file.write_all_at(bytes, at));
        flushed.map_err(|error| failed(path, error))
    }

    /// Received bytes that are buffered and not in the file.
    pub(super) fn unwritten(&self) -> Ranges {
        self.gather.waiting().collect()
    }

    /// Discards all written bytes and the resume file.
    pub(super) fn restart(&mut self) -> Result<(), SinkError> {
        self.gather.clear();
        if self.device {
            return Ok(());
        }
        self.older = false;
        self.forget();
        self.file.set_len(0).map_err(|error| failed(&self.part, error))
    }

    /// Like [`Files::forget`], for a resume file that was written in the meantime.
    pub(super) fn forget_late(&mut self) {
        self.saved = !self.device;
        self.forget();
    }

    fn forget(&mut self) {
        if std::mem::take(&mut self.saved)
            && let Err(error) = std::fs::remove_file(&self.state)
        {
            tracing::debug!("{}: {error}", self.state.display());
        }
    }

    /// Returns the step that makes `saved` durable: first the bytes, then the resume file. The step
    /// blocks and owns its data, so that it can run concurrently with the download.
    pub(super) fn checkpoint(
        &mut self,
        saved: &Saved,
    ) -> impl FnOnce() -> Result<(), SinkError> + Send + 'static {
        self.saved |= !self.device;
        let (file, device) = (Arc::clone(&self.file), self.device);
        let (part, state) = (self.part.clone(), self.state.clone());
        let bytes = saved.to_bytes();
        move || {
            if device {
                return Ok(());
            }
            file.sync_data().map_err(|error| failed(&part, error))?;
            let fresh = with_suffix(&state, "-new");
            let write = || -> io::Result<()> {
                let file = OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    // A URL may contain a secret.
                    .mode(0o600)
                    .open(&fresh)?;
                io::Write::write_all(&mut &file, &bytes)?;
                file.sync_data()?;
                std::fs::rename(&fresh, &state)
            };
            write().map_err(|error| {
                let _ = std::fs::remove_file(&fresh);
                failed(&state, error)
            })
        }
    }

    /// Gives the complete object its name. With `is_synced` it is made durable first, so that a
    /// crash leaves no zeros under that name.
    pub(super) fn finish(&mut self, length: u64, is_synced: bool) -> Result<(), SinkError> {
        self.flush()?;
        if self.device {
            return Ok(());
        }
        let whole = || -> io::Result<()> {
            self.file.set_len(length)?;
            if is_synced {
                self.file.sync_data()?;
            }
            std::fs::rename(&self.part, &self.target)
        };
        whole().map_err(|error| failed(&self.target, error))?;
        self.forget();
        Ok(())
    }

    /// Removes the files of a download that cannot be continued.
    pub(super) fn discard(&mut self) {
        if self.older {
            return;
        }
        self.forget();
        if !self.device
            && let Err(error) = std::fs::remove_file(&self.part)
        {
            tracing::debug!("{}: {error}", self.part.display());
        }
    }

    /// The part file; `None` if the output is a device, which cannot be continued.
    pub(super) fn part(&self) -> Option<&Path> {
        (!self.device).then_some(&self.part)
    }

    /// Returns the step that computes the SHA-256 of the part file; blocking.
    pub(super) fn sha256(&self) -> impl FnOnce() -> Result<[u8; 32], SinkError> + Send + 'static {
        let path = self.part.clone();
        let device = self.device;
        let target = self.target.clone();
        move || {
            if device {
                return Err(SinkError::NotAFile(target));
            }
            of_file(&path).map_err(|source| SinkError::Write { path, source })
        }
    }
}

fn read(state: &Path) -> Result<Saved, SinkError> {
    let unusable = |why| SinkError::Resume { path: state.to_owned(), why };
    let mut bytes = Vec::new();
    File::open(state)
        .and_then(|opened| opened.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| failed(state, error))?;
    Saved::parse(&bytes).map_err(unusable)
}

fn read_state(state: &Path, part: &Path, file: &File, url: &str) -> Result<Saved, SinkError> {
    let saved = read(state)?;
    if saved.url != url {
        return Err(SinkError::OtherUrl { path: part.to_owned(), url: saved.url });
    }
    let length = file.metadata().map_err(|error| failed(part, error))?.len();
    if length < saved.done.end() {
        return Err(SinkError::Shorter(part.to_owned()));
    }
    Ok(saved)
}

pub(in crate::fetch) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}
