//! Bodies on their way to the archive.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use manyways_wire::archive::container::MAX_BODY;

/// Up to this length, a body waits in memory until it is complete. Most have some kilobytes.
const MAX_IN_MEMORY: usize = 1 << 20;

/// The folder for long bodies that are not complete: that of the archive, so that the same disk has
/// to have space for them.
#[derive(Debug)]
pub(super) struct Spool {
    folder: PathBuf,
    next: AtomicU64,
}

impl Spool {
    pub(super) fn new(folder: &Path) -> Arc<Self> {
        Arc::new(Self { folder: folder.to_owned(), next: AtomicU64::new(0) })
    }

    /// Opens a file without a name, so that nothing remains of it.
    fn file(&self) -> io::Result<File> {
        let number = self.next.fetch_add(1, Relaxed);
        let path = self.folder.join(format!(".manyways-body-{}-{number}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(file)
    }
}

/// A body that arrives.
#[derive(Debug)]
pub(super) struct BodyBuffer {
    spool: Arc<Spool>,
    length: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Memory(Vec<u8>),
    File(File),
    /// Too long, or the disk is full: only the length is known.
    Lost,
}

/// The bytes of a body of which nothing more arrives.
#[derive(Debug)]
pub(super) enum BodySource {
    Memory(Vec<u8>),
    /// At its start.
    File(File),
    /// The body was too long, or could not be stored.
    Lost,
}

impl BodyBuffer {
    pub(super) fn new(spool: &Arc<Spool>) -> Self {
        Self { spool: Arc::clone(spool), length: 0, content: Content::Memory(Vec::new()) }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        if self.length > MAX_BODY {
            self.content = Content::Lost;
        }
        let stored = match &mut self.content {
            Content::Lost => return,
            Content::File(file) => file.write_all(bytes),
            Content::Memory(buffer) if buffer.len() + bytes.len() <= MAX_IN_MEMORY => {
                buffer.extend_from_slice(bytes);
                return;
            }
            Content::Memory(buffer) => {
                let moved = self.spool.file().and_then(|mut file| {
                    file.write_all(buffer)?;
                    file.write_all(bytes)?;
                    Ok(file)
                });
                moved.map(|file| self.content = Content::File(file))
            }
        };
        // The traffic goes on without its recording.
        if let Err(error) = stored {
            tracing::debug!("a body is not recorded: {error}");
            self.content = Content::Lost;
        }
    }

    /// Bytes so far.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn finish(self) -> BodySource {
        match self.content {
            Content::Memory(bytes) => BodySource::Memory(bytes),
            Content::File(mut file) => match file.rewind() {
                Ok(()) => BodySource::File(file),
                Err(_) => BodySource::Lost,
            },
            Content::Lost => BodySource::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn finished(spool: &Arc<Spool>, pieces: &[usize]) -> (u64, Option<Vec<u8>>) {
        let mut buffer = BodyBuffer::new(spool);
        for (number, length) in pieces.iter().enumerate() {
            buffer.push(&vec![number as u8; *length]);
        }
        let length = buffer.length();
        let bytes = match buffer.finish() {
            BodySource::Memory(bytes) => Some(bytes),
            BodySource::File(mut file) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).unwrap();
                Some(bytes)
            }
            BodySource::Lost => None,
        };
        (length, bytes)
    }

    #[test]
    fn long_bodies_wait_in_a_file_without_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path());
        for pieces in [&[][..], &[5], &[MAX_IN_MEMORY], &[MAX_IN_MEMORY, 1, 0, 70_000], &[3 << 20]]
        {
            let expected: Vec<u8> = (pieces.iter().enumerate())
                .flat_map(|(number, length)| vec![number as u8; *length])
                .collect();
            let (length, bytes) = finished(&spool, pieces);
            assert!(length == expected.len() as u64 && bytes == Some(expected), "{pieces:?}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_body_that_cannot_be_stored_keeps_its_length() {
        let spool = Spool::new(Path::new("/dev/null"));
        assert_eq!(finished(&spool, &[MAX_IN_MEMORY, 1, 5]), (MAX_IN_MEMORY as u64 + 6, None));
        assert_eq!(finished(&spool, &[7]), (7, Some(vec![0; 7])));
    }
}
