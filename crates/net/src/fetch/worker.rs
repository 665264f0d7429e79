//! One task a path: it holds the path's connection and has at most one request under way.
//!
//! What it does can be broken off at any time by a new command: the work is a future that is
//! dropped. An HTTP/2 stream is then reset with CANCEL and its connection stays; an HTTP/1.1
//! connection is closed, for the rest of the body would have to be read to keep it.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use manyways_proto::fetch::{Fault, Head, PathId, Range, RequestId, Validator};
use rustls::ClientConfig;
use tokio::sync::{mpsc, oneshot};

use super::PathSpec;
use super::dial::{Connection, Protocol, dial};
use super::exchange::{self, Broken};
use super::late::Late;
use super::location::Location;

/// What the transfer tells a worker.
pub(super) enum Command {
    /// A new transfer: from now on report there.
    Begin(mpsc::Sender<Message>),
    /// Make sure that there is a connection for this object.
    Connect(Arc<Location>),
    /// Ask for the object.
    Ask(Ask),
    /// Break this request off.
    Cancel(RequestId),
    /// Break everything off and close the connection.
    Disconnect,
    /// The transfer is over: break everything off, and say so.
    End(oneshot::Sender<()>),
}

/// A request in words of HTTP.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) request: RequestId,
    pub(super) location: Arc<Location>,
    pub(super) headers: Arc<HeaderMap>,
    /// Headers only for the origin that the user named: credentials.
    pub(super) private: Arc<HeaderMap>,
    pub(super) home: Arc<Location>,
    pub(super) range: Option<Range>,
    pub(super) if_range: Option<Validator>,
    /// Follow redirects: the first request does, the others use where it ended.
    pub(super) follow: bool,
}

/// What a worker reports.
pub(super) struct Message {
    pub(super) path: PathId,
    pub(super) what: What,
}

pub(super) enum What {
    Connected(Peer),
    ConnectFailed(Fault),
    /// The object is elsewhere, and is asked for there.
    Moved(Location),
    Head(RequestId, Head, Peer),
    Bytes(RequestId, Bytes),
    Finished(RequestId),
    Failed(RequestId, Fault),
}

/// Who answers, and how.
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
    path: Arc<PathSpec>,
    tls: Arc<ClientConfig>,
    late: Late,
    commands: mpsc::UnboundedReceiver<Command>,
    reports: Option<mpsc::Sender<Message>>,
    connection: Option<Connection>,
    work: Option<Work>,
}

/// What is under way; at its end it hands back the connection, if that can be used again.
struct Work {
    request: Option<RequestId>,
    future: Pin<Box<dyn Future<Output = Option<Connection>> + Send>>,
}

impl Worker {
    /// Starts the task of a path and returns where to send its commands; it ends when that is
    /// dropped.
    pub(super) fn spawn(
        id: PathId,
        path: Arc<PathSpec>,
        tls: Arc<ClientConfig>,
        late: Late,
    ) -> mpsc::UnboundedSender<Command> {
        let (sender, commands) = mpsc::unbounded_channel();
        let (reports, connection, work) = (None, None, None);
        let worker = Self { id, path, tls, late, commands, reports, connection, work };
        tokio::spawn(worker.run());
        sender
    }

    async fn run(mut self) {
        loop {
            let work = async {
                match &mut self.work {
                    Some(work) => work.future.as_mut().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                connection = work => {
                    self.work = None;
                    if connection.is_some() {
                        self.connection = connection;
                    }
                }
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Begin(reports) => {
                self.work = None;
                self.reports = Some(reports);
            }
            Command::Cancel(request) => {
                if self.work.as_ref().is_some_and(|work| work.request == Some(request)) {
                    self.work = None;
                }
            }
            Command::Disconnect => {
                self.work = None;
                self.connection = None;
            }
            Command::End(ended) => {
                self.work = None;
                self.reports = None;
                // Who does not wait for it need not know.
                let _ = ended.send(());
            }
            Command::Connect(location) => self.connect(location),
            Command::Ask(ask) => self.ask(ask),
        }
    }

    fn reporter(&self) -> Option<Reporter> {
        Some(Reporter { path: self.id, reports: self.reports.clone()? })
    }

    /// What a connection needs.
    fn means(&self) -> (Arc<PathSpec>, Arc<ClientConfig>, Late) {
        (Arc::clone(&self.path), Arc::clone(&self.tls), self.late.clone())
    }

    fn connect(&mut self, location: Arc<Location>) {
        let Some(reporter) = self.reporter() else { return };
        let held = self.connection.take().filter(|held| held.serves(location.origin()));
        let (path, tls, late) = self.means();
        let future = async move {
            let connection = match held {
                Some(held) => Ok(held),
                None => dial(&path, location.origin(), &tls, &late).await,
            };
            match connection {
                Ok(connection) => {
                    reporter.say(What::Connected(Peer::from(&connection))).await;
                    Some(connection)
                }
                Err(fault) => {
                    reporter.say(What::ConnectFailed(fault)).await;
                    None
                }
            }
        };
        self.work = Some(Work { request: None, future: Box::pin(future) });
    }

    fn ask(&mut self, ask: Ask) {
        let Some(reporter) = self.reporter() else { return };
        let request = ask.request;
        // A connection attempt that is still on has to go on: the request waits for it.
        let before = self.work.take().filter(|work| work.request.is_none());
        let mut held = self.connection.take();
        // An HTTP/2 connection outlives a request that is broken off.
        if let Some(connection) = &held
            && let Some(twin) = connection.twin()
        {
            self.connection = Some(twin);
        }
        let (path, tls, late) = self.means();
        let future = async move {
            if let Some(before) = before {
                held = before.future.await;
            }
            let means = (&*path, &tls, &late);
            match perform(&reporter, means, held, ask).await {
                Ok(connection) => connection,
                Err(Broken { fault, connection, .. }) => {
                    reporter.say(What::Failed(request, fault)).await;
                    connection
                }
            }
        };
        self.work = Some(Work { request: Some(request), future: Box::pin(future) });
    }
}

/// Sends a request, follows redirects where asked to, and reports the answer and its body.
async fn perform(
    reporter: &Reporter,
    (path, tls, late): (&PathSpec, &Arc<ClientConfig>, &Late),
    mut held: Option<Connection>,
    mut ask: Ask,
) -> Result<Option<Connection>, Broken> {
    let mut hops = 0;
    loop {
        let reused = held.take().filter(|held| held.serves(ask.location.origin()));
        let fresh = reused.is_none();
        let connection = match reused {
            Some(connection) => connection,
            None => dial(path, ask.location.origin(), tls, late).await?,
        };
        let peer = Peer::from(&connection);
        let answer = match exchange::send(connection, &ask).await {
            Ok(answer) => answer,
            // A server may close an idle connection at the very moment that it is used again.
            Err(broken) if !fresh && broken.unanswered => continue,
            Err(broken) => return Err(broken),
        };
        if let Some(target) = answer.redirect() {
            if !ask.follow {
                let words = "the server redirects a later request elsewhere";
                return Err(Broken::unfit(words));
            }
            hops += 1;
            let location = exchange::follow(&ask.location, &target, hops)?;
            reporter.say(What::Moved(location.clone())).await;
            ask.location = Arc::new(location);
            held = answer.skip().await;
            continue;
        }
        let (head, mut body) = answer.split();
        reporter.say(What::Head(ask.request, head, peer)).await;
        while let Some(bytes) = body.next().await? {
            reporter.say(What::Bytes(ask.request, bytes)).await;
            body.release();
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
    /// A transfer that is over does not listen any more, and has broken this work off.
    async fn say(&self, what: What) {
        let _ = self.reports.send(Message { path: self.path, what }).await;
    }
}
