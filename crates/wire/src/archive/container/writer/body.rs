//! A body whose bytes come in parts.

use std::io::{Seek, Write};
use std::mem;

use flate2::Crc;
use sha2::{Digest as _, Sha256};

use super::super::format::{Entry, LOCAL_LENGTH, STORED};
use super::super::{Digest, MAX_BODY, body_name};
use super::{BodyError, Writer};

/// Length of the header before a body: every name is as long as every other, so that the header
/// can be written when the digest is known.
const HEADER_LENGTH: usize = LOCAL_LENGTH + "bodies/".len() + 64;

/// Writes one body. Without [`BodyWriter::end`] it is given up.
///
/// Up to 1 MiB waits in memory. A longer body goes into the file behind zeros, in whose place its
/// header is written at its end: if the program is killed before, the file has no such member.
pub struct BodyWriter<'w, W: Write + Seek> {
    writer: &'w mut Writer<W>,
    /// All bytes so far, if nothing of them is in the file.
    waiting: Vec<u8>,
    state: State,
    hash: Sha256,
    crc: Crc,
    size: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    InMemory,
    InFile,
    GivenUp,
    Stored,
}

impl<'w, W: Write + Seek> BodyWriter<'w, W> {
    pub(super) fn new(writer: &'w mut Writer<W>) -> Self {
        let (waiting, hash, crc) = (Vec::new(), Sha256::new(), Crc::new());
        Self { writer, waiting, state: State::InMemory, hash, crc, size: 0 }
    }

    /// Length so far, in bytes.
    pub fn length(&self) -> u64 {
        self.size
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// The body is too long, or cannot be written: it is given up, and the file is as before.
    pub fn write(&mut self, part: &[u8]) -> Result<(), BodyError> {
        let size = self.size + part.len() as u64;
        if size > MAX_BODY {
            self.give_up();
            return Err(BodyError::TooLong);
        }
        if self.state == State::InMemory && size <= self.writer.memory as u64 {
            self.waiting.extend(part);
            self.size = size;
            return Ok(());
        }
        if self.state == State::InMemory {
            let begin = [&[0; HEADER_LENGTH], &self.waiting[..]].concat();
            self.state = State::InFile;
            self.hash.update(&self.waiting);
            self.crc.update(&self.waiting);
            self.waiting = Vec::new();
            self.write_at(0, &begin)?;
        }
        self.write_at(HEADER_LENGTH as u64 + self.size, part)?;
        self.hash.update(part);
        self.crc.update(part);
        self.size = size;
        Ok(())
    }

    /// Completes the body. If the file has it, it has it only once.
    ///
    /// # Errors
    /// The body cannot be written: it is given up, and the file is as before.
    pub fn end(mut self) -> Result<Digest, BodyError> {
        match self.state {
            State::InMemory => return self.writer.add_body(&mem::take(&mut self.waiting)),
            State::GivenUp | State::Stored => return Err(BodyError::GivenUp),
            State::InFile => {}
        }
        let digest = Digest(mem::take(&mut self.hash).finalize().into());
        if self.writer.contains(&digest) {
            self.give_up();
            return Ok(digest);
        }
        let (offset, size, crc) = (self.writer.end, self.size, self.crc.sum());
        let entry = Entry { offset, flags: 0, method: STORED, crc, packed: size, size };
        self.write_at(0, &entry.local_header(&body_name(&digest)))?;
        self.writer.keep(digest, entry);
        self.state = State::Stored;
        Ok(digest)
    }

    /// Writes at a position behind the last whole body.
    fn write_at(&mut self, at: u64, part: &[u8]) -> Result<(), BodyError> {
        if self.state != State::InFile {
            return Err(BodyError::GivenUp);
        }
        self.writer.write_at(self.writer.end + at, part).map_err(|shortfall| {
            self.give_up();
            BodyError::File(shortfall.error)
        })
    }

    fn give_up(&mut self) {
        if self.state == State::InFile {
            self.writer.cut_back();
        }
        self.state = State::GivenUp;
        self.waiting = Vec::new();
    }
}

impl<W: Write + Seek> Drop for BodyWriter<'_, W> {
    fn drop(&mut self) {
        if self.state == State::InFile {
            self.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn a_body_that_is_too_long_is_given_up() {
        let cut = |file: &mut Cursor<Vec<u8>>, length| {
            file.get_mut().truncate(length as usize);
            Ok(())
        };
        let mut writer = Writer::new(Cursor::new(Vec::new()), cut);
        let mut body = writer.begin_body();
        body.write(&vec![0; 2 << 20]).unwrap();
        body.size = MAX_BODY - 1;
        assert!(matches!(body.write(b"xy"), Err(BodyError::TooLong)));
        assert!(matches!(body.end(), Err(BodyError::GivenUp)));
        assert!(writer.into_inner().into_inner().is_empty());
    }
}
