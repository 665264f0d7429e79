//! One task per path. It owns the path's connection and has at most one request at a time over
//! HTTP/1.1, and two over HTTP/2.
//!
//! A new command can cancel the work at any time: the work is a future that is dropped. An HTTP/2
//! stream is then reset with CANCEL and its connection remains. An HTTP/1.1 connection is closed,
//! because otherwise the rest of the body would have to be read.
//!
//! Each path follows redirects itself: a signed URL may be bound to the client's address.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use http::HeaderMap;
use manyways_proto::fetch::{
    Fault, FaultClass, Head, PathId, Range, RedirectConfig, Redirects, RequestId, Validator,
};
use manyways_unit::Span;
use tokio::sync::{mpsc, oneshot};

use super::dial::{Connection, Means, Protocol, dial};
use super::exchange::{self, Broken, Credit};
use super::late::Late;
use super::location::{Location, Origin};
use super::{PathSpec, Spawner};

/// A command of the transfer.
pub(super) enum Command {
    /// Begin a new transfer, and report to this channel.
    Begin(mpsc::Sender<Message>),
    /// Connect to the origin of this object unless connected, with this window for each stream.
    Connect(Arc<Location>, u32),
    /// Set the window of each stream.
    Window(u32),
    /// Let the server send this many more bytes of this request.
    Credit(RequestId, usize),
    /// Replace the properties of the path: its addresses or name servers have changed.
    Path(Arc<PathSpec>),
    /// Measure the application RTT.
    Ping,
    /// Send a request.
    Ask(Ask),
    /// Cancel this request.
    Cancel(RequestId),
    /// Cancel all requests and close the connection.
    Disconnect,
    /// End the transfer: cancel all requests, and confirm that.
    End(oneshot::Sender<()>),
}

/// The HTTP properties of a request.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) request: RequestId,
    pub(super) location: Arc<Location>,
    pub(super) headers: Arc<HeaderMap>,
    /// Headers that are sent only to the origin of the job's URL: credentials.
    pub(super) private: Arc<HeaderMap>,
    pub(super) home: Arc<Location>,
    pub(super) range: Option<Range>,
    pub(super) if_range: Option<Validator>,
    pub(super) credit: Credit,
}

/// A report of a worker.
pub(super) struct Message {
    pub(super) path: PathId,
    pub(super) what: What,
}

pub(super) enum What {
    Connected(Peer),
    ConnectFailed(Fault),
    /// A redirect is followed to this URL.
    Moved(Location),
    /// With the SHA-256 of the whole object from `Repr-Digest`.
    Head(RequestId, Head, Option<[u8; 32]>, Peer),
    Bytes(RequestId, Bytes),
    Finished(RequestId),
    Failed(RequestId, Fault),
    /// A PING was acknowledged.
    Pong,
    /// The RTT of the kernel, for a connection without PINGs.
    RoundTrip(Span),
}

/// The server of a path, and its HTTP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Peer {
    pub(super) server: SocketAddr,
    pub(super) protocol: Protocol,
}

impl From<&Connection> for Peer {
    fn from(connection: &Connection) -> Self {
        Self { server: connection.server, protocol: connection.protocol() }
    }
}

pub(super) struct Worker {
    id: PathId,
    means: Means,
    held: Held,
    commands: mpsc::UnboundedReceiver<Command>,
    reports: Option<mpsc::Sender<Message>>,
    pongs: mpsc::UnboundedReceiver<()>,
    work: Vec<Work>,
}

/// A connection attempt or request that is under way.
struct Work {
    /// `None` for a connection attempt.
    request: Option<RequestId>,
    credit: Credit,
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// State that the requests of a path share.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<Things>>);

#[derive(Default)]
struct Things {
    /// An open HTTP/2 connection, or an HTTP/1.1 connection without a request.
    connection: Option<Connection>,
    /// Target of this path's redirects, in the current transfer.
    moved: Option<Location>,
}

impl Held {
    fn lock(&self) -> MutexGuard<'_, Things> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a usable connection; a connection to another server is closed.
    fn take(&self, origin: &Origin) -> Option<Connection> {
        let mut things = self.lock();
        let held = things.connection.take().filter(|held| held.serves(origin))?;
        things.connection = held.twin();
        Some(held)
    }

    /// Stores a new or unused connection.
    fn put(&self, connection: Connection) {
        self.lock().connection = Some(connection);
    }

    /// Lets other requests use this connection too.
    fn share(&self, connection: &Connection) {
        if let Some(twin) = connection.twin() {
            self.put(twin);
        }
    }
}

impl Worker {
    /// Starts the task of a path and returns the sender of its commands; the task ends when the
    /// sender is dropped.
    pub(super) fn spawn(
        id: PathId,
        path: Arc<PathSpec>,
        late: Late,
        spawner: &Spawner,
    ) -> mpsc::UnboundedSender<Command> {
        let (sender, commands) = mpsc::unbounded_channel();
        let (told, pongs) = mpsc::unbounded_channel();
        let means = Means {
            path,
            tls: Arc::clone(&spawner.tls),
            late,
            window: 65_535,
            prior_knowledge: spawner.prior_knowledge,
            pongs: told,
            calm: Arc::default(),
            answers: spawner.answers.clone(),
        };
        let (held, reports, work) = (Held::default(), None, Vec::new());
        let worker = Self { id, means, held, commands, reports, pongs, work };
        tokio::spawn(worker.run());
        sender
    }

    async fn run(mut self) {
        loop {
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                Some(()) = self.pongs.recv() => self.report(What::Pong),
                () = any(&mut self.work) => {}
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Begin(reports) => {
                self.work.clear();
                self.held.lock().moved = None;
                self.reports = Some(reports);
            }
            Command::Cancel(request) => self.work.retain(|work| work.request != Some(request)),
            Command::Disconnect => {
                self.work.clear();
                self.held.lock().connection = None;
            }
            Command::End(ended) => {
                self.work.clear();
                self.reports = None;
                // The receiver may have been dropped.
                let _ = ended.send(());
            }
            Command::Window(bytes) => self.set_window(bytes),
            Command::Credit(request, bytes) => {
                if let Some(work) = self.work.iter().find(|work| work.request == Some(request)) {
                    work.credit.grant(bytes);
                }
            }
            Command::Path(path) => self.means.path = path,
            Command::Ping => self.ping(),
            Command::Connect(location, window) => self.connect(&location, window),
            Command::Ask(ask) => self.ask(ask),
        }
    }

    /// Sets the window of the current connection, and of later ones.
    fn set_window(&mut self, bytes: u32) {
        if self.means.window != bytes
            && let Some(connection) = &self.held.lock().connection
        {
            connection.set_window(bytes);
        }
        self.means.window = bytes;
    }

    fn ping(&mut self) {
        let rtt = match &*self.held.lock() {
            Things { connection: Some(connection), .. } => {
                if !self.means.calm.load(Ordering::Relaxed) && connection.ping() {
                    return;
                }
                connection.round_trip()
            }
            _ => None,
        };
        if let Some(rtt) = rtt {
            self.report(What::RoundTrip(rtt));
        }
    }

    /// Reports without waiting. The message is lost if the channel is full.
    fn report(&self, what: What) {
        if let Some(reports) = &self.reports {
            let _ = reports.try_send(Message { path: self.id, what });
        }
    }

    fn reporter(&self) -> Option<Reporter> {
        Some(Reporter { path: self.id, reports: self.reports.clone()? })
    }

    fn connect(&mut self, location: &Location, window: u32) {
        let Some(reporter) = self.reporter() else { return };
        self.set_window(window);
        let (held, means) = (self.held.clone(), self.means.clone());
        let origin = held.lock().moved.as_ref().unwrap_or(location).origin().clone();
        let future = async move {
            let connection = match held.take(&origin) {
                Some(connection) => Ok(connection),
                None => dial(&means, &origin).await,
            };
            let what = match connection {
                Ok(connection) => {
                    let peer = Peer::from(&connection);
                    held.put(connection);
                    What::Connected(peer)
                }
                Err(fault) => What::ConnectFailed(fault),
            };
            reporter.say(what).await;
        };
        self.work.clear();
        let credit = Credit::default();
        self.work.push(Work { request: None, credit, future: Box::pin(future) });
    }

    fn ask(&mut self, ask: Ask) {
        let Some(reporter) = self.reporter() else { return };
        let (request, credit) = (ask.request, ask.credit.clone());
        // The request must wait for a connection attempt that is under way.
        let attempt = self.work.iter().position(|work| work.request.is_none());
        let before = attempt.map(|attempt| self.work.swap_remove(attempt));
        let (held, means) = (self.held.clone(), self.means.clone());
        let future = async move {
            if let Some(before) = before {
                before.future.await;
            }
            let (fault, connection) = match perform(&reporter, &means, &held, ask).await {
                Ok(connection) => (None, connection),
                Err(Broken { fault, connection, .. }) => (Some(fault), connection),
            };
            if let Some(connection) = connection {
                held.put(connection);
            }
            if let Some(fault) = fault {
                if fault.class == FaultClass::Calm {
                    means.calm.store(true, Ordering::Relaxed);
                }
                reporter.say(What::Failed(request, fault)).await;
            }
        };
        self.work.push(Work { request: Some(request), credit, future: Box::pin(future) });
    }
}

/// Waits until one of the futures ends, and removes it.
async fn any(work: &mut Vec<Work>) {
    poll_fn(|context| {
        for i in 0..work.len() {
            if work[i].future.as_mut().poll(context).is_ready() {
                work.swap_remove(i);
                return Poll::Ready(());
            }
        }
        Poll::Pending
    })
    .await;
}

/// Sends a request, follows redirects, and reports the response and its body. Returns the
/// connection if it can be reused.
async fn perform(
    reporter: &Reporter,
    means: &Means,
    held: &Held,
    mut ask: Ask,
) -> Result<Option<Connection>, Broken> {
    if let Some(moved) = &held.lock().moved {
        ask.location = Arc::new(moved.clone());
    }
    let mut redirects = Redirects::new(RedirectConfig::default());
    loop {
        let reused = held.take(ask.location.origin());
        let fresh = reused.is_none();
        let connection = match reused {
            Some(connection) => connection,
            None => dial(means, ask.location.origin()).await?,
        };
        held.share(&connection);
        let peer = Peer::from(&connection);
        let answer = match exchange::send(connection, &ask).await {
            Ok(answer) => answer,
            // A server may close an idle connection at the time of its reuse.
            Err(broken) if !fresh && broken.unanswered => {
                held.lock().connection = None;
                continue;
            }
            Err(broken) => return Err(broken),
        };
        if let Some(target) = answer.redirect() {
            let location = exchange::follow(&ask.location, &target, &mut redirects)?;
            reporter.say(What::Moved(location.clone())).await;
            ask.location = Arc::new(location);
            if let Some(connection) = answer.skip(redirects.config()).await {
                held.put(connection);
            }
            continue;
        }
        if redirects.is_redirected() {
            held.lock().moved = Some((*ask.location).clone());
        }
        let (head, announced, mut body) = answer.split();
        reporter.say(What::Head(ask.request, head, announced, peer)).await;
        while let Some(bytes) = body.next().await? {
            reporter.say(What::Bytes(ask.request, bytes)).await;
            body.taken();
        }
        reporter.say(What::Finished(ask.request)).await;
        return Ok(body.into_connection());
    }
}

struct Reporter {
    path: PathId,
    reports: mpsc::Sender<Message>,
}

impl Reporter {
    /// Sends a message. The transfer may have ended; then this work is cancelled too.
    async fn say(&self, what: What) {
        let _ = self.reports.send(Message { path: self.path, what }).await;
    }
}
