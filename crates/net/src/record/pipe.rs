//! The bytes of a connection, passed on unchanged and observed.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use manyways_sys::socket::tcp_state;
use manyways_unit::{Span, Time};
use manyways_wire::archive::TunnelReason;
use manyways_wire::exchange::{Event, Fault, http1, http2};
use manyways_wire::stream::Endpoint;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Wall;
use super::arrival::Arrival;
use super::assembly::{Assembly, Finished, Outcome};
use super::writer::{ConnectionId, Sink};

/// Length of the buffer of each direction: two TLS records.
const BUFFER: usize = 32 << 10;

/// The reader of the bytes.
pub(super) enum Observer {
    Http1(http1::Observer),
    Http2(Box<http2::Observer>),
}

impl Observer {
    fn handle(
        &mut self,
        from: Endpoint,
        bytes: &[u8],
        each: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Fault> {
        match self {
            Self::Http1(observer) => observer.handle(from, bytes, each),
            Self::Http2(observer) => observer.handle(from, bytes, each),
        }
    }

    fn end(&mut self, from: Endpoint, each: &mut dyn FnMut(Event<'_>)) {
        match self {
            Self::Http1(observer) => observer.end(from, each),
            Self::Http2(observer) => observer.end(from, each),
        }
    }

    fn abort(&mut self, by: Endpoint, each: &mut dyn FnMut(Event<'_>)) {
        match self {
            Self::Http1(observer) => observer.abort(by, each),
            Self::Http2(observer) => observer.abort(by, each),
        }
    }
}

/// Bytes that were not recorded, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unread {
    pub(super) since: Time,
    pub(super) reason: TunnelReason,
    pub(super) sent: u64,
    pub(super) received: u64,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Both directions were closed.
    Closed,
    /// One endpoint reset it.
    Reset,
}

/// The observation of a connection.
pub(super) struct Observation {
    id: ConnectionId,
    clock: Wall,
    sink: Sink,
    /// The connection to the server, for its round-trip time.
    server: OwnedFd,
    /// When its bytes arrived, if they can be read later than that.
    arrival: Option<Arrival>,
    watched: RefCell<Watched>,
}

struct Watched {
    observer: Observer,
    assembly: Assembly,
    rtt: Option<Span>,
    /// Streams that left HTTP, or the connection after it left HTTP.
    unread: Vec<Unread>,
    /// Whether the last of `unread` is the whole connection.
    is_unread: bool,
}

impl Watched {
    /// Observes bytes, the first of which `arrived` then, and returns the exchanges that they complete.
    fn read(&mut self, arrived: Time, now: Time, from: Endpoint, bytes: &[u8]) -> Vec<Finished> {
        if self.is_unread {
            if let Some(unread) = self.unread.last_mut() {
                match from {
                    Endpoint::Client => unread.sent += bytes.len() as u64,
                    Endpoint::Server => unread.received += bytes.len() as u64,
                }
            }
            return Vec::new();
        }
        let Self { observer, assembly, .. } = self;
        let mut outcomes = Vec::new();
        let mut each = |event: Event<'_>| {
            let begins = matches!(event, Event::Interim(..) | Event::Response(..));
            outcomes.extend(assembly.handle(if begins { arrived } else { now }, event));
        };
        let read = observer.handle(from, bytes, &mut each);
        let finished = self.sort(now, outcomes);
        if let Err(fault) = read {
            tracing::debug!("the rest of a connection is not recorded: {fault}");
            self.leave(now, TunnelReason::NotHttp);
            self.is_unread = true;
        }
        finished
    }

    /// An endpoint has closed its direction.
    fn end(&mut self, now: Time, from: Endpoint) -> Vec<Finished> {
        let Self { observer, assembly, .. } = self;
        let mut outcomes = Vec::new();
        observer.end(from, &mut |event| outcomes.extend(assembly.handle(now, event)));
        self.sort(now, outcomes)
    }

    /// An endpoint has reset the connection.
    fn abort(&mut self, now: Time, by: Endpoint) -> Vec<Finished> {
        let Self { observer, assembly, .. } = self;
        let mut outcomes = Vec::new();
        observer.abort(by, &mut |event| outcomes.extend(assembly.handle(now, event)));
        self.sort(now, outcomes)
    }

    fn sort(&mut self, now: Time, outcomes: Vec<Outcome>) -> Vec<Finished> {
        let mut all = Vec::new();
        for outcome in outcomes {
            match outcome {
                Outcome::Finished(finished) => all.push(*finished),
                Outcome::Upgraded => {
                    self.leave(now, TunnelReason::Upgraded);
                    // In HTTP/2 only the stream has left.
                    self.is_unread = matches!(self.observer, Observer::Http1(_));
                }
            }
        }
        all
    }

    fn leave(&mut self, since: Time, reason: TunnelReason) {
        self.unread.push(Unread { since, reason, sent: 0, received: 0 });
    }
}

impl Observation {
    /// `server` is the descriptor of the connection to the server, and when its bytes arrive if they are
    /// not readable then.
    pub(super) fn new(
        id: ConnectionId,
        clock: Wall,
        sink: Sink,
        (server, arrival): (OwnedFd, Option<Arrival>),
        observer: Observer,
        assembly: Assembly,
    ) -> Self {
        let unread = Vec::new();
        let watched = Watched { observer, assembly, rtt: None, unread, is_unread: false };
        Self { id, clock, sink, server, arrival, watched: RefCell::new(watched) }
    }

    /// Passes on the bytes of both directions until both have ended; `prefix` was read before. The
    /// future may be dropped; then call [`Self::end`].
    pub(super) async fn pass<C, S>(&self, prefix: Vec<u8>, client: C, server: S) -> Ending
    where
        C: AsyncRead + AsyncWrite,
        S: AsyncRead + AsyncWrite,
    {
        let (client_reader, client_writer) = tokio::io::split(client);
        let (server_reader, server_writer) = tokio::io::split(server);
        let up = self.copy(Endpoint::Client, prefix, client_reader, server_writer);
        let down = self.copy(Endpoint::Server, Vec::new(), server_reader, client_writer);
        match tokio::try_join!(up, down) {
            Ok(_) => Ending::Closed,
            Err(by) => {
                let finished = self.watched.borrow_mut().abort(self.clock.now(), by);
                self.send(finished).await;
                Ending::Reset
            }
        }
    }

    /// Whether an exchange is open.
    pub(super) fn is_busy(&self) -> bool {
        self.watched.borrow().assembly.is_busy()
    }

    /// Ends the recording of the connection, and returns the bytes that were not recorded.
    pub(super) async fn end(&self) -> Vec<Unread> {
        let now = self.clock.now();
        let finished = self.watched.borrow_mut().assembly.end(now);
        self.send(finished).await;
        self.sink.closed(self.id, now, self.watched.borrow().rtt);
        std::mem::take(&mut self.watched.borrow_mut().unread)
    }

    /// Passes on one direction. The error is the endpoint that reset the connection.
    async fn copy(
        &self,
        from: Endpoint,
        mut prefix: Vec<u8>,
        mut reader: impl AsyncRead + Unpin,
        mut writer: impl AsyncWrite + Unpin,
    ) -> Result<(), Endpoint> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let length = match prefix.is_empty() {
                true => reader.read(&mut buffer).await,
                false => Ok(0),
            };
            let bytes = match length {
                Ok(0) if !prefix.is_empty() => &prefix[..],
                Ok(0) => break,
                Ok(length) => &buffer[..length],
                // The end of TCP without the end of TLS: many servers and clients do that.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(_) => return Err(from),
            };
            let now = self.clock.now();
            let mut arrived = now;
            if from == Endpoint::Server {
                self.measure();
                arrived = self.arrival.as_ref().map_or(now, Arrival::time);
            }
            // Before the other endpoint can answer.
            let finished = self.watched.borrow_mut().read(arrived, now, from, bytes);
            self.send(finished).await;
            writer.write_all(bytes).await.map_err(|_| from.other())?;
            writer.flush().await.map_err(|_| from.other())?;
            if from == Endpoint::Client {
                self.watched.borrow_mut().assembly.on_passed_on(self.clock.now());
            }
            prefix.clear();
        }
        let finished = self.watched.borrow_mut().end(self.clock.now(), from);
        self.send(finished).await;
        // The other endpoint may be gone already.
        let _ = writer.shutdown().await;
        Ok(())
    }

    /// Reads the minimum round-trip time to the server.
    fn measure(&self) {
        let state = tcp_state(self.server.as_fd());
        let rtt = state.ok().and_then(|state| state.min_rtt.or(state.rtt));
        let mut watched = self.watched.borrow_mut();
        watched.rtt = rtt.or(watched.rtt);
        let rtt = watched.rtt;
        watched.assembly.set_rtt(rtt);
    }

    async fn send(&self, finished: Vec<Finished>) {
        let rtt = self.watched.borrow().rtt;
        for one in finished {
            self.sink.exchange(self.id, one, rtt).await;
        }
    }
}
