//! An opened recording: the requests that it answers, the heads of its responses, and their bodies.

mod prepare;
mod requests;
mod store;

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use manyways_model::matching::{Index, Rule};
use manyways_wire::archive::container::{ContainerError, MAX_HAR, Reader};
use manyways_wire::archive::{Archive, Connection, Digest, Exchange};
use manyways_wire::har::{self, HarError, Import, Warning};
use tokio::sync::mpsc;

use self::prepare::BodySource;
pub use self::prepare::End;
pub(super) use self::prepare::Prepared;
pub(super) use self::requests::decoded_body;
pub use self::store::{MAX_CACHED, MAX_WHOLE};
use self::store::{Positioned, Store};
use super::hollow::Hollow;
use crate::record::beside;

/// First bytes of a zip archive.
const ZIP: &[u8] = b"PK\x03\x04";

/// Why a recording cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    #[error("{path} cannot be read: {error}", path = .path.display())]
    Io { path: PathBuf, error: io::Error },
    /// It begins like a zip archive, and is not a valid recording.
    #[error(transparent)]
    Container(#[from] ContainerError),
    #[error(transparent)]
    Har(#[from] HarError),
    #[error("exchange {exchange}: the archive has no body {digest}")]
    MissingBody { exchange: usize, digest: Digest },
    #[error("exchange {exchange}: the body {digest} does not have the length that the HAR states")]
    BodyLength { exchange: usize, digest: Digest },
    #[error("the HAR is longer than {MAX_HAR} bytes")]
    TooLong,
}

/// A recording that can be replayed.
#[derive(Debug)]
pub struct Contents {
    archive: Archive,
    index: Index,
    is_ours: bool,
    prepared: Vec<Option<Prepared>>,
    store: Store,
    warnings: Vec<Warning>,
    /// Exchanges whose hollow body has no content coding, although the response had one.
    uncoded: Vec<usize>,
}

/// The bytes of a body, or of a part of it.
#[derive(Debug)]
pub struct Pieces(Source);

#[derive(Debug)]
enum Source {
    /// All, or nothing if it was taken.
    Whole(Option<Bytes>),
    Read(mpsc::Receiver<store::Piece>),
    Hollow {
        pieces: Box<Hollow>,
        skipped: u64,
        left: u64,
    },
}

impl Contents {
    /// Opens a recording of this program (a zip archive), or a HAR file. Bodies of a HAR file may be in
    /// files in its folder, as Playwright writes them. The index reads the bodies of the requests;
    /// other bodies are read, and compared with their digests, when they are asked for.
    ///
    /// # Errors
    /// The file cannot be read, is neither, or lacks a body.
    pub fn open(path: &Path, rule: Rule) -> Result<Self, OpenError> {
        let failed = |error| OpenError::Io { path: path.to_owned(), error };
        let mut file = File::open(path).map_err(failed)?;
        let mut start = Vec::new();
        (&mut file).take(ZIP.len() as u64).read_to_end(&mut start).map_err(failed)?;
        if start == ZIP {
            let file = Positioned::new(file);
            let mut reader = Reader::open(file.clone())?;
            let import = har::read(reader.har()?.as_bytes())?;
            check_bodies(&import.archive, |digest| reader.length(digest))?;
            let store = Store::of_archive(file, reader);
            return Self::new(import.archive, store, import.warnings, rule);
        }
        let mut har = start;
        file.take(MAX_HAR).read_to_end(&mut har).map_err(failed)?;
        if har.len() as u64 > MAX_HAR {
            return Err(OpenError::TooLong);
        }
        let import = har::read_with_files(&har, |name| beside(path, name))?;
        Self::of_import(import, rule)
    }

    /// Replays an archive whose bodies are in memory.
    ///
    /// # Errors
    /// A body is missing, or has another length than its exchange states.
    pub fn of_import(import: Import, rule: Rule) -> Result<Self, OpenError> {
        let Import { archive, bodies, warnings, .. } = import;
        let store = Store::of_bodies(bodies);
        check_bodies(&archive, |digest| Some(store.cached(digest)?.len() as u64))?;
        Self::new(archive, store, warnings, rule)
    }

    fn new(
        archive: Archive,
        store: Store,
        warnings: Vec<Warning>,
        rule: Rule,
    ) -> Result<Self, OpenError> {
        let index = requests::index(&archive, &store, rule)?;
        let prepared = prepare::all(&archive);
        let is_uncoded =
            |prepared: &Option<Prepared>| prepared.as_ref().is_some_and(|one| one.is_uncoded);
        let numbered = prepared.iter().enumerate();
        let uncoded =
            numbered.filter(|(_, prepared)| is_uncoded(prepared)).map(|(number, _)| number);
        let uncoded = uncoded.collect();
        let is_ours = rule == Rule::Ours;
        Ok(Self { archive, index, is_ours, prepared, store, warnings, uncoded })
    }

    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    /// The recorded requests, for look-ups and explanations; its numbers are those of
    /// [`Archive::exchanges`].
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Problems of a HAR file.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Exchanges that are served without their content coding: their body is hollow, and the coding is
    /// unknown, or the body too short for it.
    pub fn uncoded(&self) -> &[usize] {
        &self.uncoded
    }

    /// Addresses of the recorded servers, each once, in ascending order.
    pub fn servers(&self) -> Vec<SocketAddr> {
        let mut all: Vec<SocketAddr> =
            self.archive.connections.iter().filter_map(|connection| connection.server).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether [`Rule::Ours`] finds the exchanges.
    pub(super) fn is_ours(&self) -> bool {
        self.is_ours
    }

    pub(super) fn exchange(&self, number: usize) -> Option<&Exchange> {
        self.archive.exchanges.get(number)
    }

    /// Reads the bodies of all requests, each up to [`MAX_MATCHED_BODY`](super::MAX_MATCHED_BODY) bytes.
    pub(super) fn request_bodies(&self) -> Result<Vec<Bytes>, ContainerError> {
        let exchanges = self.archive.exchanges.iter();
        exchanges.map(|exchange| requests::body(exchange, &self.store)).collect()
    }

    pub(super) fn connections(&self) -> &[Connection] {
        &self.archive.connections
    }

    pub(super) fn prepared(&self, exchange: usize) -> Option<&Prepared> {
        self.prepared.get(exchange)?.as_ref()
    }

    /// Returns the pieces of a part of a response's body, if they are in memory.
    pub fn ready_pieces(&self, exchange: usize, range: &Range<u64>) -> Option<Pieces> {
        let length = range.end.saturating_sub(range.start);
        let Some(prepared) = self.prepared(exchange).filter(|_| length > 0) else {
            return Some(Pieces::whole(Bytes::new()));
        };
        match &prepared.source {
            BodySource::None => Some(Pieces::whole(Bytes::new())),
            BodySource::Stored(digest) => {
                self.store.cached(digest).map(|body| Pieces::whole(part(&body, range)))
            }
            BodySource::Hollow { coding, is_text } => {
                let pieces = Hollow::new(*coding, prepared.length, *is_text, exchange as u64);
                let pieces = Box::new(pieces);
                Some(Pieces(Source::Hollow { pieces, skipped: range.start, left: length }))
            }
        }
    }

    /// Reads a part of a response's body on a thread of tokio that may block: completely if the body has
    /// at most [`MAX_WHOLE`] bytes, else its first pieces.
    ///
    /// # Errors
    /// The body cannot be read, or differs from its digest.
    pub async fn pieces(
        self: &std::sync::Arc<Self>,
        exchange: usize,
        range: Range<u64>,
    ) -> Result<Pieces, ContainerError> {
        if let Some(ready) = self.ready_pieces(exchange, &range) {
            return Ok(ready);
        }
        let Some(prepared) = self.prepared(exchange) else {
            return Ok(Pieces::whole(Bytes::new()));
        };
        let BodySource::Stored(digest) = prepared.source else {
            return Ok(Pieces::whole(Bytes::new()));
        };
        let contents = self.clone();
        if prepared.length <= MAX_WHOLE {
            let read = tokio::task::spawn_blocking(move || contents.store.read(&digest));
            let body = read.await.map_err(io::Error::other)??;
            return Ok(Pieces::whole(part(&body, &range)));
        }
        let (sender, receiver) = mpsc::channel(store::PIECES_AHEAD);
        tokio::task::spawn_blocking(move || {
            let length = range.end.saturating_sub(range.start);
            contents.store.send(&digest, range.start, length, &sender);
        });
        Ok(Pieces(Source::Read(receiver)))
    }
}

impl Pieces {
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self(Source::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    /// Whether [`next`](Self::next) is known to return `None`.
    pub(super) fn is_ended(&self) -> bool {
        match &self.0 {
            Source::Whole(body) => body.is_none(),
            Source::Read(_) => false,
            Source::Hollow { left, .. } => *left == 0,
        }
    }

    /// Returns all bytes if they are one piece in memory, and none was taken.
    pub(super) fn as_whole(&self) -> Option<Bytes> {
        match &self.0 {
            Source::Whole(body) => Some(body.clone().unwrap_or_default()),
            Source::Read(_) | Source::Hollow { .. } => None,
        }
    }

    /// Returns the next bytes, at least one; `None` at the end.
    ///
    /// # Errors
    /// The archive cannot be read, or the body differs from its digest.
    pub async fn next(&mut self) -> Option<Result<Bytes, ContainerError>> {
        match &mut self.0 {
            Source::Whole(body) => body.take().map(Ok),
            Source::Read(receiver) => receiver.recv().await,
            Source::Hollow { pieces, skipped, left } => {
                while *left > 0 {
                    let piece = pieces.next()?;
                    let before = (piece.len() as u64).min(*skipped);
                    *skipped -= before;
                    let rest = piece.slice(before as usize..);
                    let rest =
                        rest.slice(..rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX)));
                    if !rest.is_empty() {
                        *left -= rest.len() as u64;
                        return Some(Ok(rest));
                    }
                }
                None
            }
        }
    }
}

fn part(body: &Bytes, range: &Range<u64>) -> Bytes {
    let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(body.len());
    let (start, end) = (place(range.start), place(range.end));
    if start <= end { body.slice(start..end) } else { Bytes::new() }
}

/// Checks that each body is there, with its length.
fn check_bodies(
    archive: &Archive,
    length: impl Fn(&Digest) -> Option<u64>,
) -> Result<(), OpenError> {
    for (exchange, one) in archive.exchanges.iter().enumerate() {
        let response = one.response.as_ref().and_then(|response| response.body);
        for body in one.request.body.into_iter().chain(response) {
            let Some(digest) = body.digest else { continue };
            match length(&digest) {
                None => return Err(OpenError::MissingBody { exchange, digest }),
                Some(length) if length != body.length => {
                    return Err(OpenError::BodyLength { exchange, digest });
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
