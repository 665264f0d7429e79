mod faults;
mod refusals;

use std::collections::BTreeSet;
use std::io::{self, Cursor, ErrorKind, Read, Seek, SeekFrom, Write};

use sha2::{Digest as _, Sha256};

use super::*;

const HAR: &str = r#"{"log": {"version": "1.2", "entries": []}}"#;

/// A file of limited length, on which one call may fail.
#[derive(Debug, Default)]
struct Disk {
    bytes: Vec<u8>,
    position: usize,
    limit: usize,
    calls: usize,
    /// Number of the write or cut that fails, from 1.
    failing_call: Option<usize>,
}

impl Disk {
    fn limited(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    fn call(&mut self) -> io::Result<()> {
        self.calls += 1;
        let fails = self.failing_call == Some(self.calls);
        if fails { Err(io::Error::other("unplugged")) } else { Ok(()) }
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.call()?;
        self.bytes.resize(length as usize, 0);
        Ok(())
    }
}

impl Write for Disk {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.call()?;
        let count = part.len().min(self.limit.saturating_sub(self.position));
        if count == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        let end = self.position + count;
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[self.position..end].copy_from_slice(&part[..count]);
        self.position = end;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Disk {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let SeekFrom::Start(position) = to else { return Err(ErrorKind::Unsupported.into()) };
        self.position = position as usize;
        Ok(position)
    }
}

fn writer(disk: Disk) -> Writer<Disk> {
    // Also short bodies are streamed, so that each byte of a file can be a limit.
    let mut writer = Writer::new(disk, Disk::cut as Cut<Disk>);
    writer.memory = 200;
    writer
}

fn digest(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

/// Bytes that cannot be compressed.
fn noise(length: usize, seed: u8) -> Vec<u8> {
    (0..length).flat_map(|block| digest(&[seed, block as u8]).0).take(length).collect()
}

/// Bodies to compress, to store and to stream, one of them empty.
fn bodies() -> Vec<Vec<u8>> {
    vec![b"<html>".repeat(30), noise(100, 1), Vec::new(), noise(400, 2), b"body {}".to_vec()]
}

fn archive(bodies: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = writer(Disk::limited(usize::MAX));
    for body in bodies {
        assert_eq!(writer.add_body(body).unwrap(), digest(body));
    }
    assert!(writer.finish(|_| HAR.into()).unwrap().is_empty());
    writer.into_inner().bytes
}

fn open(bytes: &[u8]) -> Result<Reader<Cursor<&[u8]>>, ContainerError> {
    Reader::open(Cursor::new(bytes))
}

/// Digests of the bodies of an archive, each of which is whole.
fn whole_bodies(bytes: &[u8]) -> BTreeSet<Digest> {
    let mut reader = open(bytes).unwrap();
    let digests: BTreeSet<Digest> = reader.digests().copied().collect();
    for digest in &digests {
        reader.body(digest).unwrap();
    }
    digests
}

#[test]
fn what_is_written_is_read() {
    let file = archive(&bodies());
    let mut reader = open(&file).unwrap();
    assert_eq!(reader.har().unwrap(), HAR);
    assert_eq!((reader.digests().count(), reader.ignored()), (5, 0));
    for body in bodies() {
        assert_eq!(reader.length(&digest(&body)), Some(body.len() as u64));
        assert_eq!(reader.body(&digest(&body)).unwrap(), body);
        let mut parts = reader.open_body(&digest(&body)).unwrap();
        let mut read = vec![0; body.len()];
        parts.read_exact(&mut read).unwrap();
        assert_eq!((read, parts.read(&mut [0]).unwrap()), (body, 0));
    }
    let error = reader.body(&digest(b"other")).unwrap_err();
    assert!(matches!(error, ContainerError::MissingBody { .. }), "{error}");
}

#[test]
fn another_zip_library_reads_it() {
    let mut library = zip::ZipArchive::new(Cursor::new(archive(&bodies()))).unwrap();
    let names: Vec<String> = library.file_names().map(|name| name.unwrap().into_owned()).collect();
    assert_eq!((names.len(), names.last().map(String::as_str)), (6, Some(HAR_NAME)));
    for body in bodies() {
        let mut member = library.by_name(&body_name(&digest(&body))).unwrap();
        let mut read = Vec::new();
        member.read_to_end(&mut read).unwrap();
        assert_eq!((read, member.unix_mode()), (body, Some(0o100600)));
    }
}

#[test]
fn an_archive_of_another_zip_library_is_read() {
    let mut library = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let deflated = zip::write::SimpleFileOptions::default();
    let stored = deflated.compression_method(zip::CompressionMethod::Stored);
    library.add_directory("bodies/", deflated).unwrap();
    for (body, options) in bodies().iter().zip([deflated, stored].iter().cycle()) {
        library.start_file(body_name(&digest(body)), *options).unwrap();
        library.write_all(body).unwrap();
    }
    library.start_file("har.har", deflated.large_file(true)).unwrap();
    library.write_all(HAR.as_bytes()).unwrap();
    library.set_comment("packed again").unwrap();
    let file = library.finish().unwrap().into_inner();
    let mut reader = open(&file).unwrap();
    assert_eq!((reader.har().unwrap().as_str(), reader.ignored()), (HAR, 1));
    assert_eq!(whole_bodies(&file), bodies().iter().map(|body| digest(body)).collect());
}

#[test]
fn a_body_is_stored_once() {
    let mut writer = writer(Disk::limited(usize::MAX));
    for body in [noise(100, 1), noise(400, 2)] {
        writer.add_body(&body).unwrap();
        let length = writer.length();
        writer.add_body(&body).unwrap();
        writer.copy_body(&mut &body[..]).unwrap();
        assert_eq!((writer.length(), writer.contains(&digest(&body))), (length, true));
        assert_eq!(writer.length(), length);
    }
    writer.finish(|_| HAR.into()).unwrap();
    assert_eq!(whole_bodies(&writer.into_inner().bytes).len(), 2);
}

#[test]
fn only_bodies_that_become_shorter_are_compressed() {
    let text = b"function f() { return 1; }\n".repeat(4000);
    let image = noise(8160, 7);
    let mut writer = Writer::new(Disk::limited(usize::MAX), Disk::cut);
    writer.add_body(&image).unwrap();
    let before = writer.length();
    assert_eq!(before, 101 + 8160);
    writer.add_body(&text).unwrap();
    assert!(writer.length() - before < text.len() as u64 / 50);
}

#[test]
fn a_body_in_parts_equals_a_body_in_one() {
    for body in bodies() {
        let mut writer = writer(Disk::limited(usize::MAX));
        let mut parts = writer.begin_body();
        for part in body.chunks(30) {
            parts.write(part).unwrap();
        }
        assert_eq!(parts.length(), body.len() as u64);
        assert_eq!(parts.end().unwrap(), digest(&body));
        writer.finish(|_| HAR.into()).unwrap();
        assert_eq!(writer.into_inner().bytes, archive(&[body]));
    }
}

#[test]
fn a_body_without_end_is_not_stored() {
    let mut writer = writer(Disk::limited(usize::MAX));
    writer.begin_body().write(&noise(400, 1)).unwrap();
    let mut source = Cursor::new(noise(300, 2)).chain(Unreadable);
    assert!(matches!(writer.copy_body(&mut source), Err(BodyError::Source(_))));
    assert_eq!((writer.length(), writer.into_inner().bytes.len()), (0, 0));
}

struct Unreadable;

impl Read for Unreadable {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(ErrorKind::ConnectionReset.into())
    }
}

#[test]
fn a_finished_recording_may_continue() {
    let mut writer = writer(Disk::limited(usize::MAX));
    writer.add_body(&bodies()[0]).unwrap();
    writer.finish(|_| HAR.repeat(9)).unwrap();
    for body in bodies() {
        writer.add_body(&body).unwrap();
    }
    writer.finish(|_| HAR.into()).unwrap();
    assert_eq!(writer.into_inner().bytes, archive(&bodies()));
}

#[test]
fn a_har_that_is_too_long_is_refused() {
    let mut writer = writer(Disk::limited(usize::MAX));
    let error = writer.finish(|_| " ".repeat(MAX_HAR as usize + 1)).unwrap_err();
    assert!(matches!(error, FinishError::HarTooLong { length: 268_435_457 }), "{error}");
}

#[test]
fn a_uniform_har_is_not_taken_for_a_bomb() {
    let har = " ".repeat(2 << 20);
    let mut writer = writer(Disk::limited(usize::MAX));
    writer.finish(|_| har.clone()).unwrap();
    assert_eq!(open(&writer.into_inner().bytes).unwrap().har().unwrap(), har);
}

#[test]
fn an_archive_may_have_more_than_65535_bodies() {
    let mut writer = writer(Disk::limited(usize::MAX));
    for number in 0..66_000_u32 {
        writer.add_body(&number.to_le_bytes()).unwrap();
    }
    writer.finish(|_| HAR.into()).unwrap();
    let file = writer.into_inner().bytes;
    assert_eq!(open(&file).unwrap().digests().count(), 66_000);
    assert_eq!(zip::ZipArchive::new(Cursor::new(&file)).unwrap().len(), 66_001);
    assert_eq!(recover(&mut Cursor::new(&file)).unwrap().digests().count(), 66_000);
}

/// A file that begins with a hole.
struct Behind(u64, Cursor<Vec<u8>>);

impl Behind {
    const HOLE: u64 = 5 << 30;
}

impl Seek for Behind {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0 = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(0) => Self::HOLE + self.1.get_ref().len() as u64,
            _ => return Err(ErrorKind::Unsupported.into()),
        };
        self.1.set_position(self.0.saturating_sub(Self::HOLE));
        Ok(self.0)
    }
}

impl Read for Behind {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let hole = Self::HOLE.saturating_sub(self.0).min(buffer.len() as u64) as usize;
        buffer[..hole].fill(0);
        let count = if hole > 0 { hole } else { self.1.read(buffer)? };
        self.0 += count as u64;
        Ok(count)
    }
}

impl Write for Behind {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.1.write(part)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_archive_may_be_longer_than_4_gib() {
    let recovered = Recovered { length: Behind::HOLE, ..Recovered::default() };
    let file = Behind(0, Cursor::new(Vec::new()));
    let mut writer = Writer::resume(file, |_, _| Ok(()), recovered).unwrap();
    for body in bodies() {
        writer.add_body(&body).unwrap();
    }
    writer.finish(|_| HAR.into()).unwrap();
    let mut reader = Reader::open(writer.into_inner()).unwrap();
    assert_eq!(reader.har().unwrap(), HAR);
    for body in bodies() {
        assert_eq!(reader.body(&digest(&body)).unwrap(), body);
    }
    let Reader { file, .. } = reader;
    assert_eq!(zip::ZipArchive::new(file).unwrap().len(), 6);
}
