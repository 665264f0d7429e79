//! One task per path. It owns the path's connection and has at most one request at a time over
//! HTTP/1.1, and two over HTTP/2.
//!
//! A new command can cancel the work at any time: the work is a future that is dropped. An HTTP/2
//! stream is then reset with CANCEL and its connection remains. An HTTP/1.1 connection is closed,
//! because otherwise the rest of the body would have to be read.
//!
//! Each path follows redirects itself: a signed URL may be bound to the client's address.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use http::HeaderMap;
use manyways_proto::fetch::{
    Head, PathError, PathErrorKind, PathId, Range, RedirectConfig, RedirectMemory, Redirects,
    RequestId, Validator,
};
use manyways_unit::Span;
use tokio::sync::{mpsc, oneshot};

use super::dial::{Connection, DialParams, Http1Origins, Protocol, dial};
use super::discarded::DiscardedBytes;
use super::exchange::{self, Credit, RequestError};
use super::location::{Location, Origin};
use super::{PathSpec, WorkerConfig};

/// How often a request that the server has not processed is repeated at once.
const MAX_REFUSALS: u32 = 3;

/// A command of the transfer.
pub(super) enum Command {
    /// Begin a new transfer, and report to this channel.
    Begin(mpsc::Sender<Message>),
    /// Connect to the origin of this object unless connected, with this window for each stream and
    /// this one for the connection.
    Connect(Arc<Location>, u32, u32),
    /// Set the window of each stream.
    Window(u32),
    /// Set the window of the connection.
    ConnectionWindow(u32),
    /// Let the server send this many more bytes of this request.
    Credit(RequestId, usize),
    /// Replace the properties of the path: its addresses or name servers have changed.
    Path(Arc<PathSpec>),
    /// Begin the next requests at their URL, not at the target of earlier redirects.
    ForgetRedirect,
    /// Measure the application RTT.
    Ping,
    /// Send a request.
    Request(RequestParams),
    /// Cancel this request.
    Cancel(RequestId),
    /// Cancel all requests and close the connection.
    Disconnect,
    /// End the transfer: cancel all requests, and confirm that.
    End(oneshot::Sender<()>),
}

/// The HTTP properties of a request.
#[derive(Clone)]
pub(super) struct RequestParams {
    pub(super) request: RequestId,
    pub(super) location: Arc<Location>,
    pub(super) headers: Arc<HeaderMap>,
    /// Headers that are sent only to the origin of the job's URL: credentials.
    pub(super) private_headers: Arc<HeaderMap>,
    pub(super) original: Arc<Location>,
    pub(super) range: Option<Range>,
    pub(super) if_range: Option<Validator>,
    pub(super) credit: Credit,
}

/// A report of a worker.
pub(super) struct Message {
    pub(super) path: PathId,
    pub(super) event: WorkerEvent,
}

pub(super) enum WorkerEvent {
    /// With the smallest round trip of TCP, if it is known.
    Connected(Peer, Option<Span>),
    ConnectFailed(PathError),
    /// A redirect is followed to this URL.
    Redirected(Location),
    Head(RequestId, Box<Answer>, Peer),
    Bytes(RequestId, Bytes),
    Finished(RequestId),
    Failed(RequestId, PathError),
    /// A PING was acknowledged.
    Pong,
    /// The RTT of the kernel, for a connection without PINGs.
    SmoothedRtt(Span),
    /// No RTT can be measured now.
    PingFailed,
}

/// The head of a response.
pub(super) struct Answer {
    pub(super) head: Head,
    pub(super) headers: HeaderMap,
    /// The URL that answered.
    pub(super) location: Arc<Location>,
    /// The SHA-256 of the whole object from `Repr-Digest`.
    pub(super) announced: Option<[u8; 32]>,
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
    params: DialParams,
    shared: SharedState,
    commands: mpsc::UnboundedReceiver<Command>,
    reports: Option<mpsc::Sender<Message>>,
    pongs: mpsc::UnboundedReceiver<()>,
    /// Results of PINGs that wait for room in the channel of the reports.
    measured: VecDeque<WorkerEvent>,
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
struct SharedState(Arc<Mutex<ConnectionState>>);

#[derive(Default)]
struct ConnectionState {
    /// An open HTTP/2 connection, or an HTTP/1.1 connection without a request.
    connection: Option<Connection>,
    /// Target of this path's redirects, in the current transfer.
    redirects: RedirectMemory<Location>,
}

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a usable connection; a connection to another server is closed.
    fn take(&self, origin: &Origin) -> Option<Connection> {
        let mut things = self.lock();
        let held = things.connection.take().filter(|held| held.is_usable_for(origin))?;
        things.connection = held.second_handle();
        Some(held)
    }

    /// Stores a new or unused connection.
    fn put(&self, connection: Connection) {
        self.lock().connection = Some(connection);
    }

    /// Lets other requests use this connection too.
    fn share(&self, connection: &Connection) {
        if let Some(twin) = connection.second_handle() {
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
        discarded: DiscardedBytes,
        spawner: &WorkerConfig,
    ) -> mpsc::UnboundedSender<Command> {
        let (sender, commands) = mpsc::unbounded_channel();
        let (told, pongs) = mpsc::unbounded_channel();
        let means = DialParams {
            path,
            tls: Arc::clone(&spawner.tls),
            discarded,
            window: 65_535,
            connection_window: 65_535,
            prior_knowledge: spawner.prior_knowledge,
            pongs: told,
            pings_disabled: Arc::default(),
            shared_addresses: spawner.shared_addresses.clone(),
            http1_origins: Http1Origins::default(),
            address_filter: spawner.address_filter.clone(),
        };
        let worker = Self {
            id,
            params: means,
            shared: SharedState::default(),
            commands,
            reports: None,
            pongs,
            measured: VecDeque::new(),
            work: Vec::new(),
        };
        tokio::spawn(worker.run());
        sender
    }

    async fn run(mut self) {
        loop {
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(command) => self.execute(command),
                    None => return,
                },
                Some(()) = self.pongs.recv() => self.measured.push_back(WorkerEvent::Pong),
                () = send_measured(self.id, self.reports.as_ref(), &mut self.measured),
                    if !self.measured.is_empty() => {}
                () = wait_any(&mut self.work) => {}
            }
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Begin(reports) => {
                self.work.clear();
                self.shared.lock().redirects = RedirectMemory::default();
                self.measured.clear();
                self.reports = Some(reports);
            }
            Command::Cancel(request) => self.work.retain(|work| work.request != Some(request)),
            Command::Disconnect => {
                let is_connecting = self.work.iter().any(|work| work.request.is_none());
                self.work.clear();
                let mut state = self.shared.lock();
                state.connection = None;
                if is_connecting {
                    state.redirects.on_unreachable();
                }
            }
            Command::End(ended) => {
                self.work.clear();
                self.measured.clear();
                self.reports = None;
                // The receiver may have been dropped.
                let _ = ended.send(());
            }
            Command::Window(bytes) => self.set_window(bytes),
            Command::ConnectionWindow(bytes) => self.set_connection_window(bytes),
            Command::Credit(request, bytes) => {
                if let Some(work) = self.work.iter().find(|work| work.request == Some(request)) {
                    work.credit.grant(bytes);
                }
            }
            Command::Path(path) => self.params.path = path,
            Command::ForgetRedirect => {
                self.shared.lock().redirects = RedirectMemory::default();
            }
            Command::Ping => self.ping(),
            Command::Connect(location, window, connection_window) => {
                self.set_connection_window(connection_window);
                self.connect(&location, window);
            }
            Command::Request(ask) => self.request(ask),
        }
    }

    /// Sets the window of the current connection, and of later ones.
    fn set_window(&mut self, bytes: u32) {
        if self.params.window != bytes
            && let Some(connection) = &self.shared.lock().connection
        {
            connection.set_window(bytes);
        }
        self.params.window = bytes;
    }

    /// Sets the window of the current connection itself, and of later ones.
    fn set_connection_window(&mut self, bytes: u32) {
        if self.params.connection_window != bytes
            && let Some(connection) = &self.shared.lock().connection
        {
            connection.set_connection_window(bytes);
        }
        self.params.connection_window = bytes;
    }

    fn ping(&mut self) {
        let rtt = match &*self.shared.lock() {
            ConnectionState { connection: Some(connection), .. } => {
                if !self.params.pings_disabled.load(Ordering::Relaxed) && connection.ping() {
                    return;
                }
                connection.smoothed_rtt()
            }
            _ => None,
        };
        let measured = rtt.map_or(WorkerEvent::PingFailed, WorkerEvent::SmoothedRtt);
        self.measured.push_back(measured);
    }

    fn reporter(&self) -> Option<Reporter> {
        Some(Reporter { path: self.id, reports: self.reports.clone()? })
    }

    fn connect(&mut self, location: &Location, window: u32) {
        let Some(reporter) = self.reporter() else { return };
        self.set_window(window);
        let (state, means) = (self.shared.clone(), self.params.clone());
        let target = state.lock().redirects.target();
        let origin = target.as_ref().unwrap_or(location).origin().clone();
        let future = async move {
            let connection = match state.take(&origin) {
                Some(connection) => Ok(connection),
                None => dial(&means, &origin).await,
            };
            let event = match connection {
                Ok(connection) => {
                    let (peer, rtt) = (Peer::from(&connection), connection.min_rtt());
                    state.put(connection);
                    WorkerEvent::Connected(peer, rtt)
                }
                Err(error) => {
                    state.lock().redirects.on_unreachable();
                    WorkerEvent::ConnectFailed(error)
                }
            };
            reporter.send(event).await;
        };
        self.work.clear();
        let credit = Credit::default();
        self.work.push(Work { request: None, credit, future: Box::pin(future) });
    }

    fn request(&mut self, ask: RequestParams) {
        let Some(reporter) = self.reporter() else { return };
        let (request, credit) = (ask.request, ask.credit.clone());
        // The request must wait for a connection attempt that is under way.
        let attempt = self.work.iter().position(|work| work.request.is_none());
        let before = attempt.map(|attempt| self.work.swap_remove(attempt));
        let (state, means) = (self.shared.clone(), self.params.clone());
        let future = async move {
            if let Some(before) = before {
                before.future.await;
            }
            let (fault, connection) = match perform(&reporter, &means, &state, ask).await {
                Ok(connection) => (None, connection),
                Err(RequestError { error: fault, connection, .. }) => (Some(fault), connection),
            };
            if let Some(connection) = connection {
                state.put(connection);
            }
            if let Some(error) = fault {
                if error.kind == PathErrorKind::EnhanceYourCalm {
                    means.pings_disabled.store(true, Ordering::Relaxed);
                }
                reporter.send(WorkerEvent::Failed(request, error)).await;
            }
        };
        self.work.push(Work { request: Some(request), credit, future: Box::pin(future) });
    }
}

/// Reports one result when the channel has room. Without a receiver it is discarded.
async fn send_measured(
    path: PathId,
    reports: Option<&mpsc::Sender<Message>>,
    measured: &mut VecDeque<WorkerEvent>,
) {
    let room = match reports {
        Some(reports) => reports.reserve().await.ok(),
        None => None,
    };
    if let (Some(event), Some(room)) = (measured.pop_front(), room) {
        room.send(Message { path, event });
    }
}

/// Waits until one of the futures ends, and removes it.
async fn wait_any(work: &mut Vec<Work>) {
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
///
/// The request asks the target of earlier redirects. If that is refused, it asks the given URL.
async fn perform(
    reporter: &Reporter,
    means: &DialParams,
    state: &SharedState,
    mut request: RequestParams,
) -> Result<Option<Connection>, RequestError> {
    let mut reused_target = state.lock().redirects.target().map(Arc::new);
    if let Some(target) = &reused_target {
        request.location = Arc::clone(target);
    }
    let mut redirects = Redirects::new(RedirectConfig::default());
    let mut refusals = 0;
    loop {
        let connection = match state.take(request.location.origin()) {
            Some(connection) => connection,
            None => dial(means, request.location.origin()).await.inspect_err(|_| {
                state.lock().redirects.on_unreachable();
            })?,
        };
        state.share(&connection);
        let peer = Peer::from(&connection);
        let has_answered = Arc::clone(&connection.has_answered);
        let answer = match exchange::send(connection, &request).await {
            Ok(answer) => answer,
            Err(refused) if refused.error.kind == PathErrorKind::RefusedStream => {
                if refusals == MAX_REFUSALS {
                    return Err(refused);
                }
                refusals += 1;
                continue;
            }
            // A server may close an idle connection at the time of its reuse.
            Err(broken) if has_answered.load(Ordering::Relaxed) && broken.is_retryable => {
                state.lock().connection = None;
                continue;
            }
            Err(broken) => return Err(broken),
        };
        has_answered.store(true, Ordering::Relaxed);
        let status = answer.status();
        if let Some(target) = &reused_target
            && state.lock().redirects.on_reused(target, status)
        {
            reused_target = None;
            request.location = Arc::clone(&request.original);
            if let Some(connection) = answer.drain(redirects.config()).await {
                state.put(connection);
            }
            continue;
        }
        if let Some(target) = answer.redirect() {
            let location = exchange::follow_redirect(&request.location, &target, &mut redirects)?;
            reporter.send(WorkerEvent::Redirected(location.clone())).await;
            request.location = Arc::new(location);
            if let Some(connection) = answer.drain(redirects.config()).await {
                state.put(connection);
            }
            continue;
        }
        if redirects.is_redirected() {
            state.lock().redirects.on_redirected((*request.location).clone(), status);
        }
        let (mut answer, mut body) = answer.into_parts(&request);
        answer.head.is_redirected = reused_target.is_some() || redirects.is_redirected();
        reporter.send(WorkerEvent::Head(request.request, Box::new(answer), peer)).await;
        while let Some(bytes) = body.next().await? {
            reporter.send(WorkerEvent::Bytes(request.request, bytes)).await;
            body.on_delivered();
        }
        reporter.send(WorkerEvent::Finished(request.request)).await;
        return Ok(body.into_connection());
    }
}

struct Reporter {
    path: PathId,
    reports: mpsc::Sender<Message>,
}

impl Reporter {
    /// Sends a message. The transfer may have ended; then this work is cancelled too.
    async fn send(&self, what: WorkerEvent) {
        let _ = self.reports.send(Message { path: self.path, event: what }).await;
    }
}
