//! Records the HTTP traffic of the commands in a lab.
//!
//! A [`Recorder`] stands between the links of a lab and the internet. Each TCP connection to the
//! ports 80 and 443 ends in it. It connects to the origin first, with the server name and the
//! protocols of the client, and answers the client with the protocol that the origin chose and a
//! certificate for the origin's names, issued by the machine's [`Authority`]. Then it passes all
//! bytes on unchanged and observes them, so that both ends speak with each other and not with a
//! proxy. What it cannot read it passes on unread, and lists.

mod arrival;
mod assembly;
mod coding;
mod connection;
mod files;
mod interception;
mod origin;
mod pipe;
mod roots;
mod spool;
#[cfg(test)]
mod tests;
mod tunnels;
mod writer;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use manyways_sys::clock::Clock;
use manyways_sys::netns::NetNs;
use manyways_unit::{Span, Time};
use manyways_wire::archive::container::FinishError;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::connection::{Shared, serve};
use self::roots::Roots;
use self::spool::Spool;
use self::tunnels::Tunnels;
use self::writer::ArchiveWriter;
use crate::authority::{Authority, AuthorityError};
use crate::path::TrustError;

#[cfg(feature = "replay")]
pub(crate) use self::files::beside;
pub use self::files::{ArchiveFile, FileError};
pub use self::tunnels::ServerKey;
pub use self::writer::{RepairError, Written, journal_of, repair};

/// Maximum number of connections at a time. Later ones wait.
const MAX_CONNECTIONS: usize = 2_000;
/// Time for the connections to end after the recording.
const LAST_WRITES: Duration = Duration::from_secs(3);
/// Pause after a connection that could not be accepted, for example because there is no descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of different notes.
const MAX_NOTES: usize = 1_000;

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct RecorderOptions {
    /// The archive, which must not exist.
    pub archive: PathBuf,
    /// Name of the recording program with its version.
    pub creator: String,
    /// Interfaces on which the connections enter.
    pub interfaces: Vec<String>,
    /// Whether the namespace reaches the internet over IPv6. True if it reaches none.
    pub leads_ipv6_out: bool,
    /// Roots that are trusted besides those of the host.
    pub origin_ca: Option<PathBuf>,
    /// Host names whose connections are not read, each with the names below it.
    pub bypassed: Vec<String>,
}

/// Why there is no recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    #[error("cannot create {}: {error}", path.display())]
    Create { path: PathBuf, error: io::Error },
    #[error("the lab's connections cannot be redirected to the recorder: {0}")]
    Interception(io::Error),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error("cannot start the recorder: {0}")]
    Start(io::Error),
    #[error(transparent)]
    Finish(#[from] FinishError),
}

/// Something that a user should know about a recording.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Note {
    /// There was no connection to a server.
    Unreachable { server: SocketAddr, reason: io::ErrorKind },
    /// The certificate of a server is not accepted; so the client got a bad one, too.
    BadCertificate { server: ServerKey },
    /// A client refused the certificate of the recorder.
    Refused { server: ServerKey },
}

/// Notes and how often each was made.
pub type NoteCounts = BTreeMap<Note, u64>;

#[derive(Debug, Default)]
struct Notes(NoteCounts);

impl Notes {
    fn add(&mut self, note: Note) {
        if self.0.len() < MAX_NOTES || self.0.contains_key(&note) {
            *self.0.entry(note).or_default() += 1;
        }
    }
}

/// A recording that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    pub written: Written,
    pub notes: NoteCounts,
}

/// The wall clock without its jumps.
#[derive(Clone, Copy, Debug)]
struct Wall {
    clock: Clock,
    epoch: Span,
}

impl Wall {
    fn start() -> Self {
        let clock = Clock::start();
        Self { clock, epoch: clock.epoch() }
    }

    /// Time since the Unix epoch.
    fn now(self) -> Time {
        self.clock.now() + self.epoch
    }
}

/// A recorder that runs.
pub struct Recorder {
    thread: JoinHandle<io::Result<NoteCounts>>,
    stop: watch::Sender<bool>,
    writer: ArchiveWriter,
}

impl Recorder {
    /// Starts to record what enters a network namespace.
    ///
    /// # Errors
    /// [`RecordError`] contains the cause.
    pub fn start(
        namespace: &NetNs,
        authority: Authority,
        options: &RecorderOptions,
    ) -> Result<Self, RecordError> {
        let roots = Roots::new(options.origin_ca.clone())?;
        let distrusted = Authority::distrusted()?;
        let (interfaces, leads_out) = (&options.interfaces, options.leads_ipv6_out);
        let sockets = namespace.run(|| interception::install(interfaces, leads_out));
        let sockets = sockets.map_err(RecordError::Interception)?;
        let created = ArchiveWriter::create(&options.archive, &options.creator);
        let (writer, sink) = created.map_err(|error| {
            let path = options.archive.clone();
            RecordError::Create { path, error }
        })?;
        let folder = options.archive.parent().filter(|folder| !folder.as_os_str().is_empty());
        let spool = Spool::new(folder.unwrap_or(Path::new(".")));
        let namespace = namespace.try_clone().map_err(RecordError::Start)?;
        let bypassed = options.bypassed.clone();
        let (stop, stopped) = watch::channel(false);
        let run = move || {
            namespace.enter()?;
            let shared = Shared {
                clock: Wall::start(),
                sink,
                spool,
                roots,
                authority,
                distrusted,
                tunnels: RefCell::new(Tunnels::new(bypassed)),
                notes: RefCell::default(),
                next: Cell::new(0),
                stop: stopped,
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(tokio::task::LocalSet::new().run_until(accept(shared, sockets)))
        };
        let thread = std::thread::Builder::new().name("recorder".to_owned()).spawn(run);
        Ok(Self { thread: thread.map_err(RecordError::Start)?, stop, writer })
    }

    /// Ends the recording: exchanges that are not complete have a second for it.
    ///
    /// # Errors
    /// The archive cannot be completed; see [`repair`].
    pub fn finish(self) -> Result<Recording, RecordError> {
        let _ = self.stop.send(true);
        let panicked = |_| Err(io::Error::other("the recorder panicked"));
        let notes = self.thread.join().unwrap_or_else(panicked).map_err(RecordError::Start)?;
        Ok(Recording { written: self.writer.finish()?, notes })
    }
}

/// Accepts connections until the recording ends.
async fn accept(shared: Shared, sockets: [TcpListener; 2]) -> io::Result<NoteCounts> {
    let shared = Rc::new(shared);
    let [v4, v6] = sockets.map(|socket| {
        socket.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(socket)
    });
    let (v4, v6) = (v4?, v6?);
    let mut stop = shared.stop.clone();
    let mut tasks = JoinSet::new();
    loop {
        let has_space = tasks.len() < MAX_CONNECTIONS;
        let accepted = tokio::select! {
            accepted = v4.accept(), if has_space => accepted,
            accepted = v6.accept(), if has_space => accepted,
            Some(_) = tasks.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((client, peer)) => {
                tasks.spawn_local(serve(Rc::clone(&shared), client, peer));
            }
            Err(error) => {
                tracing::debug!("a connection is not accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    let ended =
        tokio::time::timeout(LAST_WRITES, async { while tasks.join_next().await.is_some() {} });
    let _ = ended.await;
    tasks.shutdown().await;
    let notes = std::mem::take(&mut shared.notes.borrow_mut().0);
    Ok(notes)
}
