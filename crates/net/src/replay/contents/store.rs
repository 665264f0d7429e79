//! Bodies, read from the archive when they are asked for.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use manyways_wire::archive::Digest;
use manyways_wire::archive::container::{ContainerError, Reader};
use tokio::sync::mpsc;

/// Bytes of bodies that are kept in memory, beside those of a HAR file.
pub const MAX_CACHED: usize = 64 << 20;
/// Longest body that is read as a whole and kept. Longer ones are read from the file in pieces each time.
pub const MAX_WHOLE: u64 = 1 << 20;
/// Readers of the archive that stay open for the next body.
const MAX_READERS: usize = 4;
/// Length of a piece of a long body.
const PIECE: usize = 256 << 10;
/// Pieces of a long body that are read ahead.
pub(super) const PIECES_AHEAD: usize = 2;

/// A part of a body.
pub(super) type Piece = Result<Bytes, ContainerError>;

/// Where bodies come from.
#[derive(Debug, Default)]
pub(super) struct Store {
    file: Option<Positioned>,
    /// Open readers that are not in use.
    readers: Mutex<Vec<Reader<Positioned>>>,
    cache: Mutex<Cache>,
    /// Those of a HAR file.
    given: HashMap<Digest, Bytes>,
}

/// A position of its own in a file that others read, too.
#[derive(Clone, Debug)]
pub(super) struct Positioned {
    file: Arc<File>,
    at: u64,
}

/// Bodies up to [`MAX_CACHED`] bytes; the one that was used least recently goes first.
#[derive(Debug, Default)]
struct Cache {
    bodies: HashMap<Digest, (Bytes, u64)>,
    /// Uses, the oldest first. An entry with another number than that of its body is outdated.
    uses: VecDeque<(Digest, u64)>,
    /// Number of the last use.
    last: u64,
    length: usize,
}

impl Store {
    /// Bodies in an open archive.
    pub(super) fn of_archive(file: Positioned, reader: Reader<Positioned>) -> Self {
        Self { file: Some(file), readers: Mutex::new(vec![reader]), ..Self::default() }
    }

    /// Bodies in memory.
    pub(super) fn of_bodies(bodies: Vec<(Digest, Vec<u8>)>) -> Self {
        let given = bodies.into_iter().map(|(digest, body)| (digest, Bytes::from(body))).collect();
        Self { given, ..Self::default() }
    }

    /// Returns a body that is in memory.
    pub(super) fn cached(&self, digest: &Digest) -> Option<Bytes> {
        self.given.get(digest).cloned().or_else(|| lock(&self.cache).get(digest))
    }

    /// Reads a body, and keeps it if it is not long. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or the body is damaged or missing.
    pub(super) fn read(&self, digest: &Digest) -> Result<Bytes, ContainerError> {
        if let Some(body) = self.cached(digest) {
            return Ok(body);
        }
        let mut reader = self.reader(digest)?;
        let body = Bytes::from(reader.body(digest)?);
        self.put_back(reader);
        if body.len() as u64 <= MAX_WHOLE {
            lock(&self.cache).insert(*digest, body.clone());
        }
        Ok(body)
    }

    /// Reads at most the first `max` bytes of a body, without keeping it.
    ///
    /// # Errors
    /// Those of [`read`](Self::read). A body that is not read to its end is not checked.
    pub(super) fn beginning(&self, digest: &Digest, max: u64) -> Result<Bytes, ContainerError> {
        if let Some(body) = self.given.get(digest) {
            return Ok(body.slice(..body.len().min(usize::try_from(max).unwrap_or(usize::MAX))));
        }
        let mut reader = self.reader(digest)?;
        let mut body = Vec::new();
        reader.open_body(digest)?.take(max).read_to_end(&mut body)?;
        self.put_back(reader);
        Ok(body.into())
    }

    /// Sends a part of a body in pieces, until the receiver is dropped. Blocks.
    pub(super) fn send(
        &self,
        digest: &Digest,
        skipped: u64,
        length: u64,
        pieces: &mpsc::Sender<Piece>,
    ) {
        if let Err(error) = self.try_send(digest, skipped, length, pieces) {
            // Without a receiver, the error does not matter.
            let _ = pieces.blocking_send(Err(error));
        }
    }

    fn try_send(
        &self,
        digest: &Digest,
        skipped: u64,
        length: u64,
        pieces: &mpsc::Sender<Piece>,
    ) -> Result<(), ContainerError> {
        let mut reader = self.reader(digest)?;
        let mut body = reader.open_body(digest)?;
        io::copy(&mut (&mut body).take(skipped), &mut io::sink())?;
        let mut left = length;
        while left > 0 {
            let mut piece = Vec::with_capacity(PIECE);
            let room = left.min(PIECE as u64);
            (&mut body).take(room).read_to_end(&mut piece)?;
            left -= (piece.len() as u64).min(left);
            if piece.is_empty() || pieces.blocking_send(Ok(piece.into())).is_err() {
                break;
            }
        }
        drop(body);
        self.put_back(reader);
        Ok(())
    }

    fn reader(&self, digest: &Digest) -> Result<Reader<Positioned>, ContainerError> {
        if let Some(reader) = lock(&self.readers).pop() {
            return Ok(reader);
        }
        let file = self.file.clone().ok_or(ContainerError::MissingBody { digest: *digest })?;
        Reader::open(file)
    }

    fn put_back(&self, reader: Reader<Positioned>) {
        let mut readers = lock(&self.readers);
        if readers.len() < MAX_READERS {
            readers.push(reader);
        }
    }
}

impl Positioned {
    pub(super) fn new(file: File) -> Self {
        Self { file: Arc::new(file), at: 0 }
    }
}

impl Read for Positioned {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Positioned {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.file.metadata()?.len().checked_add_signed(by),
        };
        self.at = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

impl Cache {
    fn get(&mut self, digest: &Digest) -> Option<Bytes> {
        let (body, used) = self.bodies.get_mut(digest)?;
        // Repeated use of the newest one needs no entry.
        if *used != self.last {
            self.last += 1;
            *used = self.last;
            self.uses.push_back((*digest, self.last));
        }
        let body = body.clone();
        if self.uses.len() > 2 * self.bodies.len() + 16 {
            let bodies = &self.bodies;
            self.uses.retain(|(digest, at)| bodies.get(digest).is_some_and(|(_, used)| used == at));
        }
        Some(body)
    }

    fn insert(&mut self, digest: Digest, body: Bytes) {
        if self.bodies.contains_key(&digest) {
            return;
        }
        self.last += 1;
        self.length += body.len();
        self.bodies.insert(digest, (body, self.last));
        self.uses.push_back((digest, self.last));
        while self.length > MAX_CACHED
            && let Some((digest, at)) = self.uses.pop_front()
        {
            if self.bodies.get(&digest).is_some_and(|(_, used)| *used == at)
                && let Some((body, _)) = self.bodies.remove(&digest)
            {
                self.length -= body.len();
            }
        }
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(byte: u8, length: usize) -> (Digest, Bytes) {
        (Digest([byte; 32]), Bytes::from(vec![byte; length]))
    }

    #[test]
    fn the_body_used_least_recently_leaves_the_full_cache() {
        let mut cache = Cache::default();
        let part = MAX_CACHED / 4;
        for byte in 0..4 {
            let (digest, bytes) = body(byte, part);
            cache.insert(digest, bytes);
        }
        assert!(cache.get(&Digest([0; 32])).is_some());
        let (digest, bytes) = body(4, part);
        cache.insert(digest, bytes);
        assert_eq!(cache.length, MAX_CACHED);
        assert!(cache.get(&Digest([1; 32])).is_none());
        for byte in [0, 2, 3, 4] {
            assert!(cache.get(&Digest([byte; 32])).is_some(), "{byte}");
        }
        // Uses do not add up.
        for _ in 0..100 {
            for byte in [0, 2, 3, 4] {
                cache.get(&Digest([byte; 32]));
            }
        }
        assert!(cache.uses.len() <= 2 * 4 + 17, "{}", cache.uses.len());
    }

    #[test]
    fn readers_of_one_file_have_positions_of_their_own() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, b"0123456789").unwrap();
        let mut first = Positioned::new(file);
        let mut second = first.clone();
        let mut two = [0; 2];
        first.read_exact(&mut two).unwrap();
        assert_eq!(second.seek(SeekFrom::End(-2)).unwrap(), 8);
        second.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"89");
        first.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"23");
        assert!(first.seek(SeekFrom::Current(-9)).is_err());
    }
}
