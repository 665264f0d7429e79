//! A part file next to the output file, which gets the output's name when it is complete.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use manyways_proto::fetch::{DiskSpace, Ranges};
use manyways_sys::filesystem::free_bytes;
use manyways_unit::Size;

use super::destination::{
    OutputFile, OutputKind, inherit, is_named, open_own, publish, with_suffix,
};
use super::write_buffer::WriteBuffer;
use super::{Leftover, SinkError, write_error};
use crate::fetch::digest::file_sha256;
use crate::fetch::location::Location;
use crate::fetch::resume::{MAX_FILE_SIZE, ResumeState};

/// Bytes at the end of a part file that make room for the resume file on a full disk.
const ROOM_FOR_RESUME_FILE: u64 = 64 << 10;
/// Unit of [`MetadataExt::blocks`].
const BLOCK: u64 = 512;

/// The files of one download.
#[derive(Debug)]
pub(in crate::fetch) struct Files {
    /// Without symbolic links.
    target: PathBuf,
    part: PathBuf,
    resume_path: PathBuf,
    file: Arc<File>,
    write_buffer: WriteBuffer,
    /// Whether the output is a device such as `/dev/null`, which is written directly.
    is_device: bool,
    /// Whether a resume file exists.
    has_resume_file: bool,
    /// Whether the files belong to an earlier download that is not continued. They remain until
    /// there are bytes to replace them.
    is_replaced: bool,
    /// Whether a flush of the part file failed. The kernel reports such a failure once; a later
    /// flush can succeed although bytes are lost.
    has_lost_bytes: Arc<AtomicBool>,
}

impl Files {
    /// Opens the files for `url`; with `resume`, an earlier download is continued.
    pub(in crate::fetch) fn open(
        output: &Path,
        url: &Location,
        resume: bool,
    ) -> Result<(Self, Leftover), SinkError> {
        let target = OutputFile::locate(output)?;
        if target.kind == OutputKind::Device {
            let file = OpenOptions::new().write(true).open(&target.path);
            let mut file = file.map_err(|error| write_error(&target.path, error))?;
            if file.stream_position().is_err() {
                return Err(SinkError::NotSeekable(output.to_owned()));
            }
            return Ok((Self::new(target, file, false, false), Leftover::Nothing));
        }
        target.check_replaceable()?;
        let file = target.open_part()?;
        match file.try_lock() {
            // Another download may have given the file its name after it was opened here.
            Ok(()) if is_named(&file, &target.part) => {}
            Ok(()) | Err(TryLockError::WouldBlock) => {
                return Err(SinkError::Busy(output.to_owned()));
            }
            // Some file systems do not support locks.
            Err(TryLockError::Error(error)) => tracing::debug!("no lock: {error}"),
        }
        let (state, part) = (&target.resume_file, &target.part);
        let saved = state.exists();
        let leftover = match (saved, resume) {
            (false, _) => Leftover::Nothing,
            (true, true) => Leftover::Resumed(read_matching_state(state, part, &file, url)?),
            (true, false) => Leftover::Replaced(read_resume_file(state).ok()),
        };
        let is_replaced = matches!(leftover, Leftover::Replaced(_));
        let mut sink = Self::new(target, file, saved, is_replaced);
        if !saved {
            sink.restart()?;
        }
        Ok((sink, leftover))
    }

    fn new(target: OutputFile, file: File, has_resume_file: bool, is_replaced: bool) -> Self {
        let OutputFile { path, part, resume_file, kind } = target;
        Self {
            target: path,
            part,
            resume_path: resume_file,
            file: Arc::new(file),
            write_buffer: WriteBuffer::default(),
            is_device: kind == OutputKind::Device,
            has_resume_file,
            is_replaced,
            has_lost_bytes: Arc::default(),
        }
    }

    /// Checks that the disk has space for an object, of which `done` bytes are in the part file.
    pub(super) fn check_space(&self, length: Size, done: Size) -> Result<(), SinkError> {
        if self.is_device {
            return Ok(());
        }
        let metadata = self.file.metadata().map_err(|error| write_error(&self.part, error))?;
        let free = free_bytes(&self.file).unwrap_or_else(|error| {
            tracing::debug!("free space of {}: {error}", self.part.display());
            None
        });
        // The bytes of an older download that is not continued are freed before the first write.
        let allocated = Size::from_bytes(metadata.blocks().saturating_mul(BLOCK));
        let space = DiskSpace { free: free.map(Size::from_bytes), allocated };
        match (space.shortage(length, done), space.free) {
            (Some(needed), Some(free)) => {
                Err(SinkError::TooSmall { path: self.target.clone(), needed, free })
            }
            _ => Ok(()),
        }
    }

    /// Discards the files of an older download, because the object is known. Returns whether there
    /// were any.
    pub(super) fn begin(&mut self) -> Result<bool, SinkError> {
        let older = self.is_replaced;
        if older {
            self.restart()?;
        }
        Ok(older)
    }

    /// Writes or buffers bytes at an offset.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), SinkError> {
        let (path, file) = (if self.is_device { &self.target } else { &self.part }, &self.file);
        let put = self.write_buffer.put(at, bytes, |at, bytes| file.write_all_at(bytes, at));
        put.map_err(|error| write_error(path, error))
    }

    /// Writes the buffered bytes.
    pub(super) fn flush(&mut self) -> Result<(), SinkError> {
        let (path, file) = (if self.is_device { &self.target } else { &self.part }, &self.file);
        let flushed = self.write_buffer.flush(|at, bytes| file.write_all_at(bytes, at));
        flushed.map_err(|error| write_error(path, error))
    }

    /// Received bytes that are buffered and not in the file.
    pub(super) fn unwritten(&self) -> Ranges {
        self.write_buffer.buffered().collect()
    }

    /// Discards all written bytes and the resume file.
    pub(super) fn restart(&mut self) -> Result<(), SinkError> {
        self.write_buffer.clear();
        if self.is_device {
            return Ok(());
        }
        self.is_replaced = false;
        self.has_lost_bytes.store(false, Ordering::Relaxed);
        self.remove_resume_file();
        self.file.set_len(0).map_err(|error| write_error(&self.part, error))
    }

    /// Like [`Files::remove_resume_file`], for a resume file that was written in the meantime.
    pub(super) fn remove_stale_resume_file(&mut self) {
        self.has_resume_file = !self.is_device;
        self.remove_resume_file();
    }

    fn remove_resume_file(&mut self) {
        if std::mem::take(&mut self.has_resume_file)
            && let Err(error) = std::fs::remove_file(&self.resume_path)
        {
            tracing::debug!("{}: {error}", self.resume_path.display());
        }
    }

    /// Returns the step that makes `saved` durable: first the bytes, then the resume file. The step
    /// blocks and owns its data, so that it can run concurrently with the download.
    pub(super) fn checkpoint(
        &mut self,
        saved: &ResumeState,
    ) -> impl FnOnce() -> Result<(), SinkError> + Send + 'static {
        self.has_resume_file |= !self.is_device;
        let (file, device) = (Arc::clone(&self.file), self.is_device);
        let (part, state) = (self.part.clone(), self.resume_path.clone());
        let has_lost_bytes = Arc::clone(&self.has_lost_bytes);
        let text = saved.to_json();
        move || {
            if device {
                return Ok(());
            }
            check_flushed(&has_lost_bytes, &part)?;
            file.sync_data().map_err(|error| {
                has_lost_bytes.store(true, Ordering::Relaxed);
                write_error(&part, error)
            })?;
            let fresh = with_suffix(&state, "-new");
            // A killed run may have left one.
            let _ = std::fs::remove_file(&fresh);
            // A URL may contain a secret.
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh);
            let file = file.map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => write_error(&fresh, error),
                _ => write_error(&state, error),
            })?;
            let write = || -> io::Result<()> {
                io::Write::write_all(&mut &file, text.as_bytes())?;
                file.sync_data()?;
                std::fs::rename(&fresh, &state)
            };
            write().map_err(|error| {
                let _ = std::fs::remove_file(&fresh);
                write_error(&state, error)
            })
        }
    }

    /// Shortens the part file if `error` is that the disk has no room for the resume file of `url`.
    /// The bytes that an earlier resume file describes remain. Returns the new length.
    pub(super) fn make_room(&mut self, error: &SinkError, url: &str) -> Option<u64> {
        if !matches!(error, SinkError::Full(path) if *path == self.resume_path) {
            return None;
        }
        let kept = self.latest_state(url).map_or(0, |saved| saved.done.end());
        let length = self.file.metadata().ok()?.len();
        let shorter = length.saturating_sub(ROOM_FOR_RESUME_FILE).max(kept);
        if shorter >= length {
            return None;
        }
        self.file.set_len(shorter).ok()?;
        Some(shorter)
    }

    /// The state that the latest resume file of `url` describes.
    pub(super) fn latest_state(&self, url: &str) -> Option<ResumeState> {
        let url = Location::parse(url).ok()?;
        read_matching_state(&self.resume_path, &self.part, &self.file, &url).ok()
    }

    /// Gives the complete object its name. With `is_synced` it is made durable first, so that a
    /// crash leaves no zeros under that name. Returns the number of other hard links of the replaced
    /// file.
    pub(super) fn finish(&mut self, length: u64, is_synced: bool) -> Result<u64, SinkError> {
        self.flush()?;
        if self.is_device {
            return Ok(0);
        }
        check_flushed(&self.has_lost_bytes, &self.part)?;
        let older = std::fs::symlink_metadata(&self.target).ok().filter(Metadata::is_file);
        let whole = || -> io::Result<()> {
            self.file.set_len(length)?;
            match &older {
                Some(older) => inherit(&self.file, &self.target, older)?,
                None => publish(&self.file, &self.target),
            }
            if is_synced {
                let synced = self.file.sync_data();
                self.has_lost_bytes.fetch_or(synced.is_err(), Ordering::Relaxed);
                synced?;
            }
            std::fs::rename(&self.part, &self.target)
        };
        whole().map_err(|error| write_error(&self.target, error))?;
        self.remove_resume_file();
        Ok(older.map_or(0, |older| older.nlink().saturating_sub(1)))
    }

    /// Removes the files of a download that cannot be continued.
    pub(super) fn discard(&mut self) {
        if self.is_replaced {
            return;
        }
        self.remove_resume_file();
        if !self.is_device
            && let Err(error) = std::fs::remove_file(&self.part)
        {
            tracing::debug!("{}: {error}", self.part.display());
        }
    }

    /// The part file; `None` if the output is a device, which cannot be continued.
    pub(super) fn part(&self) -> Option<&Path> {
        (!self.is_device).then_some(&self.part)
    }

    /// Returns the step that computes the SHA-256 of the part file; blocking.
    pub(super) fn sha256(&self) -> impl FnOnce() -> Result<[u8; 32], SinkError> + Send + 'static {
        let path = self.part.clone();
        let device = self.is_device;
        let target = self.target.clone();
        move || {
            if device {
                return Err(SinkError::NotAFile(target));
            }
            file_sha256(&path).map_err(|source| SinkError::Write { path, source })
        }
    }
}

/// Fails if bytes of the part file were lost.
fn check_flushed(has_lost_bytes: &AtomicBool, part: &Path) -> Result<(), SinkError> {
    if has_lost_bytes.load(Ordering::Relaxed) {
        let source = io::Error::other("an earlier flush failed");
        return Err(SinkError::Write { path: part.to_owned(), source });
    }
    Ok(())
}

fn read_resume_file(state: &Path) -> Result<ResumeState, SinkError> {
    let unusable = |why| SinkError::Resume { path: state.to_owned(), error: why };
    let mut bytes = Vec::new();
    open_own(OpenOptions::new().read(true), state)?
        .take(MAX_FILE_SIZE as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| write_error(state, error))?;
    ResumeState::parse(&bytes).map_err(unusable)
}

fn read_matching_state(
    state: &Path,
    part: &Path,
    file: &File,
    url: &Location,
) -> Result<ResumeState, SinkError> {
    let saved = read_resume_file(state)?;
    if !saved.may_be_of(url) {
        return Err(SinkError::OtherUrl { path: part.to_owned(), url: saved.url });
    }
    let length = file.metadata().map_err(|error| write_error(part, error))?.len();
    if length < saved.done.end() {
        return Err(SinkError::PartFileTooShort(part.to_owned()));
    }
    Ok(saved)
}

#[cfg(test)]
mod tests {
    use manyways_proto::fetch::{Range, Validator};

    use super::super::Sink;
    use super::*;

    const URL: &str = "http://a/b";

    fn url() -> Location {
        Location::parse(URL).unwrap()
    }

    fn state(end: u64) -> ResumeState {
        ResumeState {
            url: URL.to_owned(),
            length: 1_000_000,
            validator: Validator::Etag("\"x\"".to_owned()),
            done: [Range::new(0, end)].into_iter().collect(),
        }
    }

    fn sink(folder: &Path) -> Sink {
        Sink::Files(Files::open(&folder.join("file"), &url(), false).unwrap().0)
    }

    /// After a failed flush the kernel reports success, although the bytes are lost.
    #[test]
    fn after_a_failed_flush_the_previous_resume_file_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = sink(folder.path());
        sink.write(0, &[1; 600_000]).unwrap();
        assert_eq!(sink.save(state(200_000)), Some(state(200_000)));
        let Sink::Files(files) = &sink else { unreachable!() };
        files.has_lost_bytes.store(true, Ordering::Relaxed);
        assert_eq!(sink.save(state(600_000)), Some(state(200_000)));
        let error = sink.finish(600_000, false).unwrap_err().to_string();
        assert!(error.ends_with("cannot be written: an earlier flush failed"), "{error}");
        drop(sink);
        let (_, leftover) = Files::open(&folder.path().join("file"), &url(), true).unwrap();
        assert!(matches!(leftover, Leftover::Resumed(saved) if saved == state(200_000)));
    }

    #[test]
    fn the_end_of_the_part_file_makes_room_for_the_resume_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = sink(folder.path());
        sink.write(0, &[1; 600_000]).unwrap();
        let Sink::Files(files) = &mut sink else { unreachable!() };
        let full = |path: &str| SinkError::Full(folder.path().join(path));
        let length = |files: &Files| files.file.metadata().unwrap().len();
        let shorter = 600_000 - ROOM_FOR_RESUME_FILE;
        assert_eq!(files.make_room(&full("file.manyways-part"), URL), None);
        assert_eq!(files.make_room(&full("file.manyways"), URL), Some(shorter));
        assert_eq!(length(files), shorter);
        // The bytes that the resume file lists remain.
        assert_eq!(sink.save(state(shorter - 10)), Some(state(shorter - 10)));
        let Sink::Files(files) = &mut sink else { unreachable!() };
        for room in [Some(shorter - 10), None] {
            assert_eq!(files.make_room(&full("file.manyways"), URL), room);
            assert_eq!(length(files), shorter - 10);
        }
    }

    /// The temporary files do not show why the resume file cannot be written.
    #[test]
    fn a_folder_in_place_of_the_new_resume_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = sink(folder.path());
        sink.write(0, &[1; 1000]).unwrap();
        std::fs::create_dir(folder.path().join("file.manyways-new")).unwrap();
        let error = sink.checkpoint(&state(1000)).unwrap()().unwrap_err().to_string();
        assert!(error.contains("file.manyways-new cannot be written: "), "{error}");
    }

    #[test]
    fn a_disk_without_space_is_too_small() {
        let folder = tempfile::tempdir().unwrap();
        let sink = sink(folder.path());
        sink.check_space(Size::from_mib(1), Size::ZERO).unwrap();
        let Sink::Files(files) = &sink else { unreachable!() };
        if free_bytes(&files.file).unwrap().is_none() {
            println!("skipped: the free space of this file system is unknown");
            return;
        }
        let all = Size::from_bytes(u64::MAX);
        let error = sink.check_space(all, Size::ZERO).unwrap_err();
        assert!(error.to_string().contains("the disk is too small for "), "{error}");
        sink.check_space(all, all).unwrap();
    }
}
