//! The thread that writes the archive.
//!
//! Bodies go into the archive as they complete. The exchanges are written at its end, because they
//! are one member; until then, each is a line of the journal beside the archive, a HAR of one
//! entry, from which [`repair`] completes the archive of a recorder that was killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use manyways_unit::{Span, Time};
use manyways_wire::archive::container::{FinishError, Writer, recover};
use manyways_wire::archive::{Archive, Body, Connection, Digest, Exchange, Field, Tunnelled};
use manyways_wire::har::{self, Content};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::assembly::Finished;
use super::coding::{decoded, is_coded};
use super::spool::BodySource;

/// Bytes of bodies in memory that may wait for the disk; the traffic waits if there are more.
const MAX_WAITING: usize = 64 << 20;
/// Maximum length of a line of the journal, in bytes.
const MAX_LINE: u64 = 64 << 20;

/// Returns the path of the journal of an archive.
pub fn journal_of(archive: &Path) -> PathBuf {
    let mut name = archive.as_os_str().to_owned();
    name.push(".journal");
    name.into()
}

/// A recording that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub archive: Archive,
    /// Bodies of which only the length was recorded, because they were too long or the disk was
    /// full.
    pub lost_bodies: u64,
}

/// Number of a connection of the recording.
pub(super) type ConnectionId = usize;

enum Message {
    Opened(ConnectionId, Box<Connection>),
    Exchange {
        id: ConnectionId,
        finished: Box<Finished>,
        /// Minimum round-trip time of the connection so far.
        rtt: Option<Span>,
        _space: Option<OwnedSemaphorePermit>,
    },
    Closed {
        id: ConnectionId,
        at: Time,
        rtt: Option<Span>,
    },
    Tunnelled(Tunnelled),
}

/// Where the connections send what they recorded.
#[derive(Clone)]
pub(super) struct Sink {
    sender: mpsc::Sender<Message>,
    space: Arc<Semaphore>,
}

impl Sink {
    pub(super) fn opened(&self, id: ConnectionId, connection: Connection) {
        self.send(Message::Opened(id, Box::new(connection)));
    }

    /// Waits while too many bytes wait for the disk. `rtt` is the minimum round-trip time so far.
    pub(super) async fn exchange(&self, id: ConnectionId, finished: Finished, rtt: Option<Span>) {
        let bodies = [&finished.request_body, &finished.response_body];
        let waiting = |body: &&Option<BodySource>| match body {
            Some(BodySource::Memory(bytes)) => bytes.len(),
            _ => 0,
        };
        let bytes = bodies.iter().map(waiting).sum::<usize>().min(MAX_WAITING) as u32;
        let space = Arc::clone(&self.space).acquire_many_owned(bytes).await;
        let finished = Box::new(finished);
        self.send(Message::Exchange { id, finished, rtt, _space: space.ok() });
    }

    pub(super) fn closed(&self, id: ConnectionId, at: Time, rtt: Option<Span>) {
        self.send(Message::Closed { id, at, rtt });
    }

    pub(super) fn tunnelled(&self, tunnelled: Tunnelled) {
        self.send(Message::Tunnelled(tunnelled));
    }

    fn send(&self, message: Message) {
        // The thread ends only after all senders.
        let _ = self.sender.send(message);
    }
}

/// A recording that is being written.
pub(super) struct ArchiveWriter {
    path: PathBuf,
    thread: JoinHandle<Draft>,
}

impl ArchiveWriter {
    /// Creates the archive and its journal, which only this user can read. `creator` is the name of
    /// the recording program with its version.
    ///
    /// # Errors
    /// A file exists already, or cannot be made.
    pub(super) fn create(path: &Path, creator: &str) -> io::Result<(Self, Sink)> {
        let journal_path = journal_of(path);
        let archive = create(path)?;
        let journal = create(&journal_path).inspect_err(|_| {
            let _ = fs::remove_file(path);
        })?;
        let (sender, receiver) = mpsc::channel();
        let mut draft = Draft::new(Writer::new(archive, |file, length| file.set_len(length)));
        draft.archive.creator = creator.to_owned();
        draft.journal = Some(Journal { file: journal, length: 0 });
        let thread = std::thread::Builder::new().name("archive".to_owned()).spawn(move || {
            receiver.iter().for_each(|message| draft.handle(message));
            draft
        })?;
        let space = Arc::new(Semaphore::new(MAX_WAITING));
        Ok((Self { path: path.to_owned(), thread }, Sink { sender, space }))
    }

    /// Completes the archive, after all [`Sink`]s have been dropped, and removes the journal.
    ///
    /// # Errors
    /// The archive cannot be completed. Archive and journal stay, for [`repair`].
    pub(super) fn finish(self) -> Result<Written, FinishError> {
        let panicked = |_| FinishError::File(io::Error::other("the archive's thread panicked"));
        let draft = self.thread.join().map_err(panicked)?;
        let written = draft.finish()?;
        let _ = fs::remove_file(journal_of(&self.path));
        Ok(written)
    }

    /// Ends as if the process were killed after all that was sent is written.
    #[cfg(test)]
    pub(super) fn abandon(self) {
        assert!(self.thread.join().is_ok());
    }
}

pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// The lines of the exchanges so far.
struct Journal {
    file: File,
    /// Length of its whole lines.
    length: u64,
}

impl Journal {
    /// Appends a line. What the disk has no space for is left out.
    fn append(&mut self, archive: &Archive) {
        let mut line = Vec::new();
        let written = har::write(archive, |_, _| Content::Omitted, &mut line)
            .and_then(|()| self.file.write_all(&line));
        match written {
            Ok(()) => self.length += line.len() as u64,
            Err(error) => {
                tracing::debug!("a line of the journal is missing: {error}");
                let cut = self.file.set_len(self.length);
                let _ = cut.and_then(|()| self.file.seek(SeekFrom::Start(self.length)));
            }
        }
    }
}

/// An archive without its end.
struct Draft {
    writer: Writer<File>,
    journal: Option<Journal>,
    /// The index is that of the archive.
    indices: BTreeMap<ConnectionId, usize>,
    archive: Archive,
    lost_bodies: u64,
}

impl Draft {
    fn new(writer: Writer<File>) -> Self {
        Self {
            writer,
            journal: None,
            indices: BTreeMap::new(),
            archive: Archive::default(),
            lost_bodies: 0,
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Opened(id, connection) => {
                self.indices.insert(id, self.archive.connections.len());
                self.archive.connections.push(*connection);
            }
            Message::Exchange { id, finished, rtt, _space } => {
                let Some(index) = self.indices.get(&id).copied() else { return };
                self.archive.connections[index].rtt = rtt;
                let Finished { mut exchange, request_body, response_body } = *finished;
                let request = &mut exchange.request;
                self.store(&mut request.body, request_body, &request.fields);
                if let Some(response) = &mut exchange.response {
                    self.store(&mut response.body, response_body, &response.fields);
                }
                let line = Archive {
                    creator: self.archive.creator.clone(),
                    connections: vec![self.archive.connections[index].clone()],
                    exchanges: vec![Exchange { connection: Some(0), ..exchange }],
                    ..Archive::default()
                };
                self.journal.iter_mut().for_each(|journal| journal.append(&line));
                let with_index = |exchange| Exchange { connection: Some(index), ..exchange };
                self.archive.exchanges.extend(line.exchanges.into_iter().map(with_index));
            }
            Message::Closed { id, at, rtt } => {
                let Some(index) = self.indices.remove(&id) else { return };
                let connection = &mut self.archive.connections[index];
                (connection.closed, connection.rtt) = (Some(at), rtt);
            }
            Message::Tunnelled(tunnelled) => {
                let line = Archive {
                    creator: self.archive.creator.clone(),
                    tunnelled: vec![tunnelled],
                    ..Archive::default()
                };
                self.journal.iter_mut().for_each(|journal| journal.append(&line));
                self.archive.tunnelled.extend(line.tunnelled);
            }
        }
    }

    /// Stores the bytes of a body, and sets its digest and, if it fits into memory, its length without
    /// the content coding of these fields.
    fn store(&mut self, body: &mut Option<Body>, bytes: Option<BodySource>, fields: &[Field]) {
        let (Some(body), Some(source)) = (body, bytes) else { return };
        body.decoded_length = match &source {
            _ if !is_coded(fields) => Some(body.length),
            BodySource::Memory(bytes) => decoded(fields, bytes).map(|bytes| bytes.len() as u64),
            BodySource::File(_) | BodySource::Lost => None,
        };
        let stored = match source {
            BodySource::Memory(bytes) => self.writer.add_body(&bytes).ok(),
            BodySource::File(mut file) => self.writer.copy_body(&mut file).ok(),
            BodySource::Lost => None,
        };
        body.digest = stored;
        self.lost_bodies += u64::from(stored.is_none());
    }

    fn finish(mut self) -> Result<Written, FinishError> {
        complete(&mut self.archive);
        let archive = &self.archive;
        let dropped = self.writer.finish(|dropped| text(&without(archive, dropped)))?;
        let mut written = Written { archive: self.archive, lost_bodies: self.lost_bodies };
        if !dropped.is_empty() {
            written.archive = without(&written.archive, &dropped);
            written.lost_bodies += dropped.len() as u64;
        }
        self.writer.into_inner().sync_all().map_err(FinishError::File)?;
        Ok(written)
    }
}

/// Orders the exchanges and sets the values that are known only at the end: the minimum round-trip time is that
/// of all connections to an address, because a short one can have seen a queue only.
fn complete(archive: &mut Archive) {
    archive.exchanges.sort_by_key(|exchange| exchange.started);
    archive.tunnelled.sort_by_key(|tunnelled| tunnelled.opened);
    let mut least: BTreeMap<IpAddr, Span> = BTreeMap::new();
    for connection in &archive.connections {
        if let (Some(server), Some(rtt)) = (connection.server, connection.rtt) {
            least.entry(server.ip()).and_modify(|known| *known = rtt.min(*known)).or_insert(rtt);
        }
    }
    for connection in &mut archive.connections {
        let known = connection.server.and_then(|server| least.get(&server.ip()).copied());
        connection.rtt = known.or(connection.rtt);
    }
    for exchange in &mut archive.exchanges {
        let connection = exchange.connection.and_then(|index| archive.connections.get(index));
        let rtt = connection.and_then(|connection| connection.rtt).unwrap_or_default();
        exchange.think = exchange.timings.wait.map(|wait| wait.saturating_sub(rtt));
    }
}

/// Returns the archive with these bodies hollow.
pub(super) fn without(archive: &Archive, dropped: &BTreeSet<Digest>) -> Archive {
    let mut archive = archive.clone();
    for exchange in &mut archive.exchanges {
        let response = exchange.response.as_mut().and_then(|response| response.body.as_mut());
        for body in exchange.request.body.as_mut().into_iter().chain(response) {
            body.digest = body.digest.filter(|digest| !dropped.contains(digest));
        }
    }
    archive
}

pub(super) fn text(archive: &Archive) -> String {
    let mut text = Vec::new();
    // Writing to memory does not fail, and HAR is text.
    let _ = har::write(archive, |_, _| Content::Omitted, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Why an archive could not be repaired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    #[error("cannot read {}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("there is no journal {}: the recording ended, or another file lies there", path.display())]
    NoJournal { path: PathBuf },
    #[error(transparent)]
    Finish(#[from] FinishError),
}

/// Completes the archive of a recorder that was killed, from its whole bodies and its journal. Bodies
/// that are not whole become hollow.
///
/// # Errors
/// [`RepairError`] contains the cause; no exchange is lost.
pub fn repair(path: &Path) -> Result<Written, RepairError> {
    let journal_path = journal_of(path);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| RepairError::File { path, error }
    };
    let journal = match File::open(&journal_path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(RepairError::NoJournal { path: journal_path });
        }
        opened => opened.map_err(failed(&journal_path))?,
    };
    let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(failed(path))?;
    let recovered = recover(&mut file).map_err(failed(path))?;
    let known: BTreeSet<Digest> = recovered.digests().copied().collect();
    let writer = Writer::resume(file, |file, length| file.set_len(length), recovered)
        .map_err(failed(path))?;
    let mut draft = Draft::new(writer);
    let mut reader = BufReader::new(journal);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        read.map_err(failed(&journal_path))?;
        // The last line may lack its end.
        let Some(text) = line.strip_suffix(b"\n") else { break };
        match har::read(text) {
            Ok(read) => draft.merge(read.archive),
            Err(error) => tracing::warn!("a line of the journal is damaged: {error}"),
        }
    }
    let mut written = draft.archive.clone();
    for exchange in &mut written.exchanges {
        let response = exchange.response.as_mut().and_then(|response| response.body.as_mut());
        for body in exchange.request.body.as_mut().into_iter().chain(response) {
            let digest = body.digest.filter(|digest| known.contains(digest));
            draft.lost_bodies += u64::from(digest.is_none());
            body.digest = digest;
        }
    }
    draft.archive = written;
    let written = draft.finish()?;
    let _ = fs::remove_file(journal_path);
    Ok(written)
}

impl Draft {
    /// Adds the exchanges of a line of the journal.
    fn merge(&mut self, line: Archive) {
        let connections = &mut self.archive.connections;
        let indices: Vec<usize> = (line.connections.into_iter())
            .map(|one| {
                let is_same = |known: &Connection| {
                    (known.server, known.client_port, known.opened)
                        == (one.server, one.client_port, one.opened)
                };
                match connections.iter().rposition(is_same) {
                    Some(index) => {
                        connections[index].rtt = one.rtt;
                        index
                    }
                    None => {
                        connections.push(one);
                        connections.len() - 1
                    }
                }
            })
            .collect();
        for exchange in line.exchanges {
            let connection = exchange.connection.and_then(|index| indices.get(index).copied());
            self.archive.exchanges.push(Exchange { connection, ..exchange });
        }
        self.archive.tunnelled.extend(line.tunnelled);
        self.archive.creator = line.creator;
    }
}
