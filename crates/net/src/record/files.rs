//! Recordings as files: opened, checked, and converted from and to HAR.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Component, Path, PathBuf};

use manyways_wire::archive::container::{
    self, ContainerError, FinishError, MAX_HAR, Problem, Reader, Writer,
};
use manyways_wire::archive::{Archive, Body, Digest, Field, without_credentials};
use manyways_wire::har::{self, Content, HarError, Import, Warning};

use super::coding::{decoded, is_coded};
use super::writer::{create, text, without};

/// First bytes of a zip archive.
const ZIP: &[u8] = b"PK";

/// Why a recording cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error("{}: {error}", path.display())]
    Container { path: PathBuf, error: ContainerError },
    #[error("{}: {error}", path.display())]
    Har { path: PathBuf, error: HarError },
    #[error("{} has more than {MAX_HAR} bytes", path.display())]
    TooLong { path: PathBuf },
    #[error(transparent)]
    Finish(#[from] FinishError),
}

/// An opened recording.
pub struct ArchiveFile {
    pub archive: Archive,
    /// Faults of single entries.
    pub warnings: Vec<Warning>,
    /// Entries of a HAR file that are not in the archive.
    pub left_out: usize,
    bodies: Bodies,
}

enum Bodies {
    Zip(Reader<BufReader<File>>),
    /// Those that a HAR file contains.
    Memory(HashMap<Digest, Vec<u8>>),
}

impl ArchiveFile {
    /// Opens a recording: an archive, or a HAR file of any program, whose bodies may be in files
    /// beside it.
    ///
    /// # Errors
    /// The file cannot be read, or is neither.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let failed = |error| FileError::Read { path: path.to_owned(), error };
        let bad_har = |error| FileError::Har { path: path.to_owned(), error };
        let mut file = File::open(path).map_err(failed)?;
        let mut start = Vec::new();
        (&mut file).take(ZIP.len() as u64).read_to_end(&mut start).map_err(failed)?;
        file.rewind().map_err(failed)?;
        if start == ZIP {
            let bad_zip = |error| FileError::Container { path: path.to_owned(), error };
            let mut reader = Reader::open(BufReader::new(file)).map_err(bad_zip)?;
            let text = reader.har().map_err(bad_zip)?;
            let Import { archive, warnings, left_out, .. } =
                har::read(text.as_bytes()).map_err(bad_har)?;
            return Ok(Self { archive, warnings, left_out, bodies: Bodies::Zip(reader) });
        }
        let mut text = Vec::new();
        file.take(MAX_HAR + 1).read_to_end(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_HAR {
            return Err(FileError::TooLong { path: path.to_owned() });
        }
        let import = har::read_with_files(&text, |name| beside(path, name)).map_err(bad_har)?;
        let Import { archive, bodies, warnings, left_out } = import;
        let bodies = Bodies::Memory(bodies.into_iter().collect());
        Ok(Self { archive, warnings, left_out, bodies })
    }

    /// Compares the bodies with the exchanges. Reads all of them.
    pub fn check(&mut self) -> Vec<Problem> {
        match &mut self.bodies {
            Bodies::Zip(reader) => container::check(reader, &self.archive),
            // They were read from it.
            Bodies::Memory(_) => Vec::new(),
        }
    }

    /// Returns the bytes of a body. `None` if they are hollow, missing or damaged.
    fn body(&mut self, body: &Body) -> Option<Vec<u8>> {
        let digest = body.digest?;
        match &mut self.bodies {
            Bodies::Zip(reader) => reader.body(&digest).ok(),
            Bodies::Memory(bodies) => bodies.get(&digest).cloned(),
        }
    }

    /// Writes the recording as one HAR file, with the bodies in it, which only this user can read.
    /// Returns the number of fields with credentials that were left out.
    ///
    /// # Errors
    /// The file exists, or cannot be written.
    pub fn export(mut self, path: &Path, with_credentials: bool) -> Result<usize, FileError> {
        let failed = |error| FileError::Write { path: path.to_owned(), error };
        let mut archive = std::mem::take(&mut self.archive);
        let removed = if with_credentials { 0 } else { without_credentials(&mut archive) };
        let file = create(path).map_err(failed)?;
        let mut out = BufWriter::new(file);
        let content = |body: &Body, fields: &[Field]| match self.body(body) {
            None => Content::Omitted,
            Some(bytes) if is_coded(fields) => Content::Embedded {
                // A body that cannot be decoded is shown as it is.
                decoded: Cow::Owned(decoded(fields, &bytes).unwrap_or_else(|| bytes.clone())),
                encoded: Some(Cow::Owned(bytes)),
            },
            Some(bytes) => Content::Embedded { decoded: Cow::Owned(bytes), encoded: None },
        };
        har::write(&archive, content, &mut out)
            .and_then(|()| out.flush())
            .inspect_err(|_| drop(fs::remove_file(path)))
            .map_err(failed)?;
        Ok(removed)
    }

    /// Writes the recording as an archive, which only this user can read.
    ///
    /// # Errors
    /// The file exists, or cannot be written.
    pub fn store(mut self, path: &Path) -> Result<(), FileError> {
        let failed = |error| FileError::Write { path: path.to_owned(), error };
        let file = create(path).map_err(failed)?;
        let mut writer = Writer::new(file, |file, length| file.set_len(length));
        let exchanges = std::mem::take(&mut self.archive.exchanges);
        for exchange in &exchanges {
            let response = exchange.response.as_ref().and_then(|response| response.body.as_ref());
            for body in exchange.request.body.as_ref().into_iter().chain(response) {
                let Some(bytes) = self.body(body) else { continue };
                // A body that does not fit is hollow then, as in a recording.
                if let Err(error) = writer.add_body(&bytes) {
                    tracing::warn!("{error}");
                }
            }
        }
        self.archive.exchanges = exchanges;
        let all = self.archive.exchanges.iter().flat_map(|exchange| {
            let response = exchange.response.as_ref().and_then(|response| response.body);
            exchange.request.body.into_iter().chain(response)
        });
        let lost = all.filter_map(|body| body.digest).filter(|digest| !writer.contains(digest));
        let lost = lost.collect();
        let archive = without(&self.archive, &lost);
        writer.finish(|dropped| text(&without(&archive, dropped))).map_err(|error| {
            let _ = fs::remove_file(path);
            FileError::Finish(error)
        })?;
        Ok(())
    }
}

/// Reads a file in the folder of a HAR file. Names with folders are refused, because they are foreign
/// and could lead elsewhere.
pub(crate) fn beside(har: &Path, name: &str) -> Option<Vec<u8>> {
    let mut components = Path::new(name).components();
    let (Some(Component::Normal(name)), None) = (components.next(), components.next()) else {
        return None;
    };
    let path = har.parent()?.join(name);
    // A link could lead elsewhere, and opening a pipe could wait for ever.
    let facts = fs::symlink_metadata(&path).ok()?;
    if !facts.is_file() || facts.len() > container::MAX_BODY {
        return None;
    }
    fs::read(path).ok()
}
