//! Writes a file: bodies while the recording runs, then the HAR and the directory.

mod body;

use std::collections::{BTreeSet, HashSet};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::mem;

use flate2::{Compression, Crc};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::format::{DEFLATED, Directory, ENTRY_LENGTH, Entry, STORED, deflate, is_ratio_allowed};
use super::{Digest, HAR_NAME, MAX_BODY, MAX_HAR, Recovered, SMALL, body_name};

pub use body::BodyWriter;

/// Cuts a file to a length in bytes, for example `|file, length| file.set_len(length)`.
pub type Cut<W> = fn(&mut W, u64) -> io::Result<()>;

/// Writes the file of a recording.
///
/// A body that cannot be written, for example because the disk is full, is given up: the file is cut
/// to the member before it, and a later, shorter one may fit. The writer has no buffer, so that an
/// error belongs to the body that was written; the file should not have one either.
#[derive(Debug)]
pub struct Writer<W> {
    pub(super) file: W,
    pub(super) cut: Cut<W>,
    members: Vec<(Digest, Entry)>,
    known: HashSet<Digest>,
    /// Position behind the last whole body.
    end: u64,
    /// Whether HAR and directory are behind it.
    is_finished: bool,
    /// Maximum length of a body that is kept in memory until it ends.
    pub(super) memory: usize,
}

/// Why a body was not stored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BodyError {
    #[error("the body was not recorded: {0}")]
    File(io::Error),
    #[error("the body was not recorded: its source failed: {0}")]
    Source(io::Error),
    #[error("the body was not recorded: it has more than {MAX_BODY} bytes")]
    TooLong,
    #[error("the body was not recorded: an earlier part of it could not be written")]
    GivenUp,
}

/// Why a recording was not completed. Its bodies are in the file; see [`recover`](super::recover).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FinishError {
    #[error("the recording was not completed: {0}")]
    File(io::Error),
    #[error("the recording was not completed: its HAR has {length} bytes, more than {MAX_HAR}")]
    HarTooLong { length: u64 },
}

/// A part that was not written.
struct Shortfall {
    error: io::Error,
    /// Bytes of the part that the file accepted.
    accepted: u64,
}

impl<W: Write + Seek> Writer<W> {
    /// Begins a recording in an empty file. `cut` is called with the file when a part of it has to
    /// go.
    pub fn new(file: W, cut: Cut<W>) -> Self {
        Self::behind(Recovered::default(), file, cut)
    }

    /// Continues a recording behind its whole bodies.
    ///
    /// # Errors
    /// The file cannot be cut to their length.
    pub fn resume(mut file: W, cut: Cut<W>, recovered: Recovered) -> io::Result<Self> {
        cut(&mut file, recovered.length)?;
        Ok(Self::behind(recovered, file, cut))
    }

    fn behind(recovered: Recovered, file: W, cut: Cut<W>) -> Self {
        let known = recovered.digests().copied().collect();
        let Recovered { members, length: end, .. } = recovered;
        Self { file, cut, members, known, end, is_finished: false, memory: SMALL as usize }
    }

    /// Length of the file so far in bytes, without HAR and directory.
    pub fn length(&self) -> u64 {
        self.end
    }

    /// Whether the file has the body.
    pub fn contains(&self, digest: &Digest) -> bool {
        self.known.contains(digest)
    }

    /// Stores a body, unless the file has it. A body up to 1 MiB is compressed if that makes it
    /// shorter by an eighth; a longer one never, because the ratio to which a stream will be
    /// compressed is not known before its end, and readers limit it.
    ///
    /// # Errors
    /// The body is too long or cannot be written; the file is as before.
    pub fn add_body(&mut self, bytes: &[u8]) -> Result<Digest, BodyError> {
        let digest = Digest(Sha256::digest(bytes).into());
        if self.contains(&digest) {
            return Ok(digest);
        }
        if bytes.len() > self.memory {
            let mut body = self.begin_body();
            body.write(bytes)?;
            return body.end();
        }
        let member = Member::packed(bytes, Compression::fast(), is_worthwhile);
        let entry = member.entry(self.end);
        let part = [entry.local_header(&body_name(&digest)), member.content].concat();
        self.append(&part).map_err(|shortfall| BodyError::File(shortfall.error))?;
        self.keep(digest, entry);
        Ok(digest)
    }

    /// Begins a body whose bytes come in parts. One at a time: those of several connections, which
    /// arrive interleaved, wait elsewhere until they are complete (see [`Self::copy_body`]).
    pub fn begin_body(&mut self) -> BodyWriter<'_, W> {
        BodyWriter::new(self)
    }

    /// Stores a body that another file has, unless this file has it.
    ///
    /// # Errors
    /// The body is too long, or cannot be read or written; the file is as before.
    pub fn copy_body(&mut self, source: &mut impl Read) -> Result<Digest, BodyError> {
        let mut body = self.begin_body();
        let mut part = vec![0; 1 << 16];
        loop {
            match source.read(&mut part) {
                Ok(0) => return body.end(),
                Ok(count) => body.write(part.get(..count).unwrap_or(&part))?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(BodyError::Source(error)),
            }
        }
    }

    /// Writes HAR and directory; then the file is a whole recording. The writer may be used on, and
    /// must then finish again, which replaces both.
    ///
    /// If they do not fit, the newest bodies give way until they do. `har` gets the digests of these
    /// and returns the text, in which these bodies are hollow; it is called for each attempt. The
    /// result is the last set. Bodies are only removed if that is sufficient.
    ///
    /// # Errors
    /// The file cannot be written, or has no space even without bodies, or the HAR is too long.
    pub fn finish(
        &mut self,
        mut har: impl FnMut(&BTreeSet<Digest>) -> String,
    ) -> Result<BTreeSet<Digest>, FinishError> {
        let mut dropped = BTreeSet::new();
        loop {
            let tail = self.tail(&self.members, self.end, &har(&dropped))?;
            let Err(Shortfall { error, accepted }) = self.append_tail(&tail) else {
                return Ok(dropped);
            };
            let remaining = self.without_newest(tail.len() as u64 - accepted);
            let mut all = dropped.clone();
            all.extend(self.members.iter().skip(remaining).map(|(digest, _)| digest));
            if !is_full(&error) || self.members.is_empty() {
                return Err(FinishError::File(error));
            }
            if remaining == 0 && self.tail(&[], 0, &har(&all))?.len() as u64 > self.end + accepted {
                return Err(FinishError::File(error));
            }
            self.drop_from(remaining);
            dropped = all;
        }
    }

    /// Returns the file.
    pub fn into_inner(self) -> W {
        self.file
    }

    /// Returns the bytes behind the bodies: the HAR and the directory.
    fn tail(
        &self,
        members: &[(Digest, Entry)],
        end: u64,
        har: &str,
    ) -> Result<Vec<u8>, FinishError> {
        let length = har.len() as u64;
        if length > MAX_HAR {
            return Err(FinishError::HarTooLong { length });
        }
        let member = Member::packed(har.as_bytes(), Compression::default(), is_allowed);
        let entry = member.entry(end);
        let mut tail = [entry.local_header(HAR_NAME), member.content].concat();
        let directory_at = tail.len();
        for (digest, body) in members {
            body.put_entry(&body_name(digest), &mut tail);
        }
        entry.put_entry(HAR_NAME, &mut tail);
        let directory = Directory {
            start: end + directory_at as u64,
            length: (tail.len() - directory_at) as u64,
            count: members.len() as u64 + 1,
        };
        directory.put_end(&mut tail);
        Ok(tail)
    }

    fn append_tail(&mut self, tail: &[u8]) -> Result<(), Shortfall> {
        self.append(tail)?;
        // Behind the end may be what an earlier cut that failed has left.
        let length = self.end + tail.len() as u64;
        let completed = (self.cut)(&mut self.file, length).and_then(|()| self.file.flush());
        self.is_finished = completed.is_ok();
        completed.map_err(|error| {
            self.cut_back();
            Shortfall { error, accepted: 0 }
        })
    }

    /// Number of bodies that may remain if this many bytes are needed.
    fn without_newest(&self, needed: u64) -> usize {
        let mut entries = 0;
        let newest = self.members.iter().rposition(|(digest, entry)| {
            entries += (ENTRY_LENGTH + body_name(digest).len()) as u64;
            self.end - entry.offset + entries >= needed
        });
        newest.unwrap_or(0)
    }

    fn drop_from(&mut self, first: usize) {
        for (digest, entry) in self.members.drain(first..) {
            self.known.remove(&digest);
            self.end = self.end.min(entry.offset);
        }
        self.cut_back();
    }

    fn keep(&mut self, digest: Digest, entry: Entry) {
        self.members.push((digest, entry));
        self.known.insert(digest);
        self.end = entry.offset + entry.least_length(&body_name(&digest));
    }

    /// Writes behind the last body, or cuts the file back to it.
    fn append(&mut self, part: &[u8]) -> Result<(), Shortfall> {
        self.write_at(self.end, part).inspect_err(|_| self.cut_back())
    }

    fn write_at(&mut self, at: u64, part: &[u8]) -> Result<(), Shortfall> {
        if mem::take(&mut self.is_finished) {
            // A directory behind other bytes than those of its bodies would be wrong.
            self.cut_back();
        }
        let mut rest = part;
        let mut result = self.file.seek(SeekFrom::Start(at)).map(|_| ());
        while result.is_ok() && !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => result = Err(ErrorKind::WriteZero.into()),
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => result = Err(error),
            }
        }
        let accepted = (part.len() - rest.len()) as u64;
        result.map_err(|error| Shortfall { error, accepted })
    }

    /// Removes the bytes behind the last body. If that fails, later bytes replace them, and
    /// [`Self::finish`] cuts again.
    fn cut_back(&mut self) {
        let _ = (self.cut)(&mut self.file, self.end);
    }
}

/// Whether the error means that a shorter file would do.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::FileTooLarge
            | ErrorKind::WriteZero
    )
}

/// A member before it has a position.
struct Member {
    method: u16,
    crc: u32,
    size: u64,
    content: Vec<u8>,
}

impl Member {
    /// Compresses the bytes, if the lengths with and without make `is_better` true.
    fn packed(bytes: &[u8], level: Compression, is_better: fn(u64, u64) -> bool) -> Self {
        let (mut crc, size) = (Crc::new(), bytes.len() as u64);
        crc.update(bytes);
        let content = packed(bytes, level, is_better);
        let method = if content.is_some() { DEFLATED } else { STORED };
        let content = content.unwrap_or_else(|| bytes.to_vec());
        Self { method, crc: crc.sum(), size, content }
    }

    fn entry(&self, offset: u64) -> Entry {
        let (method, crc, size) = (self.method, self.crc, self.size);
        Entry { offset, flags: 0, method, crc, packed: self.content.len() as u64, size }
    }
}

/// Bodies below this length do not become shorter.
const LEAST_PACKED: usize = 64;
/// Length of the part of a body by which its compression is decided.
const SAMPLE: usize = 4096;

fn packed(bytes: &[u8], level: Compression, is_better: fn(u64, u64) -> bool) -> Option<Vec<u8>> {
    let shorter = |part: &[u8], level| {
        let packed = deflate(part, level)?;
        is_better(packed.len() as u64, part.len() as u64).then_some(packed)
    };
    if bytes.len() < LEAST_PACKED {
        return None;
    }
    if let Some((sample, _)) = bytes.split_at_checked(SAMPLE) {
        // The beginning shows whether the content is compressed already, as images are.
        shorter(sample, Compression::fast())?;
    }
    shorter(bytes, level)
}

fn is_worthwhile(packed: u64, size: u64) -> bool {
    packed < size - size / 8
}

fn is_allowed(packed: u64, size: u64) -> bool {
    packed < size && is_ratio_allowed(packed, size)
}
