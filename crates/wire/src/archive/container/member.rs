//! The content of a member, checked while it is read.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Take};

use flate2::Crc;
use flate2::read::DeflateDecoder;
use sha2::{Digest as _, Sha256};

use super::format::{DEFLATED, Entry, LOCAL_LENGTH, LocalHeader};
use super::{ContainerError, Digest};

/// Reads the bytes of a body. The last bytes come only if length, CRC and SHA-256 of all are right;
/// otherwise reading fails with a [`ContainerError`] inside of the [`io::Error`].
pub struct BodyReader<'r, R> {
    source: Source<'r, R>,
    name: String,
    left: u64,
    crc: Crc,
    expected_crc: u32,
    hash: Option<(Sha256, Digest)>,
    is_verified: bool,
}

enum Source<'r, R> {
    Stored(Take<&'r mut R>),
    Deflated(Box<DeflateDecoder<Take<&'r mut R>>>),
}

/// The header before a member in a file.
pub(super) struct Header {
    pub(super) name: Vec<u8>,
    /// Without the position.
    pub(super) entry: Entry,
    /// Position of the content.
    pub(super) content: u64,
}

impl Header {
    /// Reads the header at a position. `None` if none is there.
    pub(super) fn read<R: Read + Seek>(file: &mut R, at: u64) -> io::Result<Option<Self>> {
        let mut bytes = [0; LOCAL_LENGTH];
        if !read_at(file, at, &mut bytes)? {
            return Ok(None);
        }
        let Some(header) = LocalHeader::parse(&bytes) else { return Ok(None) };
        let mut name = vec![0; header.name_length.into()];
        let is_whole = read_at(file, at + LOCAL_LENGTH as u64, &mut name)?;
        let content = at + header.length();
        Ok(is_whole.then_some(Self { name, entry: header.entry, content }))
    }
}

/// Fills the buffer from a position. Returns false if the file is shorter.
pub(super) fn read_at<R: Read + Seek>(
    file: &mut R,
    at: u64,
    buffer: &mut [u8],
) -> io::Result<bool> {
    file.seek(SeekFrom::Start(at))?;
    match file.read_exact(buffer) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        result => result.map(|()| true),
    }
}

impl<'r, R: Read + Seek> BodyReader<'r, R> {
    /// Begins at the content of a member, which is to be at `content`. `digest` is that of a body.
    pub(super) fn new(
        file: &'r mut R,
        name: String,
        entry: &Entry,
        content: u64,
        digest: Option<Digest>,
    ) -> io::Result<Self> {
        file.seek(SeekFrom::Start(content))?;
        let packed = file.take(entry.packed);
        let source = if entry.method == DEFLATED {
            Source::Deflated(Box::new(DeflateDecoder::new(packed)))
        } else {
            Source::Stored(packed)
        };
        let hash = digest.map(|digest| (Sha256::new(), digest));
        let (left, expected_crc) = (entry.size, entry.crc);
        Ok(Self { source, name, left, crc: Crc::new(), expected_crc, hash, is_verified: false })
    }

    /// Reads all bytes.
    pub(super) fn read_all(mut self) -> Result<Vec<u8>, ContainerError> {
        // A length that the directory states costs memory only when the bytes are there.
        let mut bytes = Vec::with_capacity(self.left.min(1 << 16) as usize);
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl<R: Read> BodyReader<'_, R> {
    fn read_source(&mut self, buffer: &mut [u8]) -> Result<usize, ContainerError> {
        let result = match &mut self.source {
            Source::Stored(stored) => stored.read(buffer),
            Source::Deflated(deflated) => deflated.read(buffer),
        };
        result.map_err(|error| match error.kind() {
            ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
                ContainerError::Damaged { name: self.name.clone() }
            }
            _ => ContainerError::Io(error),
        })
    }

    fn verify(&mut self) -> Result<(), ContainerError> {
        let name = self.name.clone();
        if self.read_source(&mut [0])? > 0 {
            return Err(ContainerError::Length { name });
        }
        if let Some((hash, expected)) = &self.hash {
            let found = Digest(hash.clone().finalize().into());
            if found != *expected {
                return Err(ContainerError::WrongHash { name, found });
            }
        }
        if self.crc.sum() != self.expected_crc {
            return Err(ContainerError::Damaged { name });
        }
        self.is_verified = true;
        Ok(())
    }
}

impl<R: Read> Read for BodyReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || self.is_verified {
            return Ok(0);
        }
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let part = buffer.get_mut(..wanted).unwrap_or_default();
        let count = if part.is_empty() { 0 } else { self.read_source(part)? };
        if count == 0 && self.left > 0 {
            return Err(ContainerError::Length { name: self.name.clone() }.into());
        }
        let part = part.get(..count).unwrap_or_default();
        self.left -= part.len() as u64;
        self.crc.update(part);
        if let Some((hash, _)) = &mut self.hash {
            hash.update(part);
        }
        if self.left == 0 {
            self.verify()?;
        }
        Ok(count)
    }
}
