//! The thread that serves a zone over UDP and TCP.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use manyways_sys::clock::Clock;
use manyways_sys::poll::{Poller, Waker};
use manyways_unit::{Span, Time};

use super::{Transport, Verdict, Zone, decide, upstream_query, upstream_response};

/// Maximum number of TCP connections; a further one ends the one that was idle longest.
const MAX_CONNECTIONS: usize = 16;
/// Idle timeout of a TCP connection.
const IDLE_TIMEOUT: Span = Span::from_secs(10);
/// Maximum size of a query; a longer one over TCP ends the connection.
const MAX_QUERY_SIZE: usize = 4096;
/// Maximum number of queries that wait for the upstream server; further ones are not answered.
const MAX_PENDING_QUERIES: usize = 256;
/// Timeout of the upstream server.
const UPSTREAM_TIMEOUT: Span = Span::from_secs(5);
/// Queries read from UDP before the other sockets are served.
const READ_BATCH: usize = 64;

const UDP_TOKEN: u64 = 0;
const LISTENER_TOKEN: u64 = 1;
const WAKER_TOKEN: u64 = 2;
const UPSTREAM_TOKEN: u64 = 3;
const FIRST_CONNECTION_TOKEN: u64 = 4;

/// Counters of a resolver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Received queries, well-formed or not.
    pub queries: u64,
    /// Responses sent.
    pub responses: u64,
    /// Queries forwarded to the upstream server.
    pub forwarded: u64,
    /// Messages that were not queries and got no response.
    pub ignored: u64,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    queries: AtomicU64,
    responses: AtomicU64,
    forwarded: AtomicU64,
    ignored: AtomicU64,
}

/// A running name server, which stops when dropped.
pub struct Resolver {
    shared: Arc<Shared>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Resolver {
    /// Serves `zone` on bound sockets in any namespace. Queries for other names are forwarded to
    /// `upstream`, from the network namespace of the calling thread.
    pub fn start(
        zone: Zone,
        udp: UdpSocket,
        tcp: TcpListener,
        upstream: Option<SocketAddr>,
    ) -> io::Result<Self> {
        udp.set_nonblocking(true)?;
        tcp.set_nonblocking(true)?;
        let upstream = match upstream {
            Some(server) => {
                let any: IpAddr = match server {
                    SocketAddr::V4(_) => [0; 4].into(),
                    SocketAddr::V6(_) => [0; 16].into(),
                };
                let socket = UdpSocket::bind((any, 0))?;
                socket.set_nonblocking(true)?;
                match socket.connect(server) {
                    Ok(()) => Some(socket),
                    // The name server of an offline host can be unreachable.
                    Err(error) => {
                        tracing::debug!(%error, "upstream server unreachable: {server}");
                        None
                    }
                }
            }
            None => None,
        };
        let clock = Clock::start();
        let poller = Poller::new(clock)?;
        let waker = Arc::new(Waker::new()?);
        poller.add(udp.as_fd(), UDP_TOKEN)?;
        poller.add(tcp.as_fd(), LISTENER_TOKEN)?;
        poller.add(waker.as_fd(), WAKER_TOKEN)?;
        if let Some(upstream) = &upstream {
            poller.add(upstream.as_fd(), UPSTREAM_TOKEN)?;
        }
        let shared = Arc::new(Shared::default());
        let server = Server {
            zone,
            udp,
            tcp,
            upstream,
            clock,
            poller,
            shared: Arc::clone(&shared),
            connections: HashMap::new(),
            next_token: FIRST_CONNECTION_TOKEN,
            pending_queries: HashMap::new(),
        };
        let thread = thread::Builder::new().name("resolver".into()).spawn({
            // The waker must live as long as the poller that watches it.
            let waker = Arc::clone(&waker);
            move || {
                server.run();
                drop(waker);
            }
        })?;
        Ok(Self { shared, waker, thread: Some(thread) })
    }

    /// Returns the current counters.
    pub fn counters(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            queries: read(&self.shared.queries),
            responses: read(&self.shared.responses),
            forwarded: read(&self.shared.forwarded),
            ignored: read(&self.shared.ignored),
        }
    }

    /// Stops the server and waits until its sockets are closed.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // The thread itself has reported its panic.
            let _ = thread.join();
        }
    }
}

struct Server {
    zone: Zone,
    udp: UdpSocket,
    tcp: TcpListener,
    upstream: Option<UdpSocket>,
    clock: Clock,
    poller: Poller,
    shared: Arc<Shared>,
    connections: HashMap<u64, Connection>,
    next_token: u64,
    /// By the id of the query to the upstream server.
    pending_queries: HashMap<u16, PendingQuery>,
}

struct Connection {
    stream: TcpStream,
    /// Received part of the next query, with its length in front.
    partial_query: Vec<u8>,
    last_activity: Time,
}

struct PendingQuery {
    query: Vec<u8>,
    requester: Requester,
    deadline: Time,
}

#[derive(Clone, Copy)]
enum Requester {
    Udp(SocketAddr),
    Tcp(u64),
}

impl Server {
    fn run(mut self) {
        let mut ready = Vec::new();
        while !self.shared.stop.load(Ordering::Acquire) {
            let until = self.connections.values().map(|c| c.last_activity + IDLE_TIMEOUT).min();
            if let Err(error) = self.poller.wait(until, &mut ready) {
                tracing::error!(%error, "the resolver has ended: it cannot wait for queries");
                return;
            }
            let now = self.clock.now();
            self.connections.retain(|_, connection| now < connection.last_activity + IDLE_TIMEOUT);
            for token in ready.drain(..) {
                match token {
                    UDP_TOKEN => self.read_udp(),
                    LISTENER_TOKEN => self.accept(),
                    UPSTREAM_TOKEN => self.read_upstream(),
                    WAKER_TOKEN => {}
                    connection => {
                        if self.read_tcp(connection).is_err() {
                            self.connections.remove(&connection);
                        }
                    }
                }
            }
        }
    }

    fn read_udp(&mut self) {
        let mut buffer = [0; MAX_QUERY_SIZE];
        for _ in 0..READ_BATCH {
            match self.udp.recv_from(&mut buffer) {
                Ok((length, from)) => self.on_query(&buffer[..length], Requester::Udp(from)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The client is gone: the error belongs to an earlier response.
                Err(_) => {}
            }
        }
    }

    fn accept(&mut self) {
        let stream = match self.tcp.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, for example: a waiting client must not keep this thread busy.
                if error.kind() != io::ErrorKind::WouldBlock {
                    self.close_idlest();
                }
                return;
            }
        };
        let token = self.next_token;
        if stream.set_nonblocking(true).is_err() || self.poller.add(stream.as_fd(), token).is_err()
        {
            return;
        }
        self.next_token += 1;
        if self.connections.len() >= MAX_CONNECTIONS {
            self.close_idlest();
        }
        let connection =
            Connection { stream, partial_query: Vec::new(), last_activity: self.clock.now() };
        self.connections.insert(token, connection);
    }

    fn close_idlest(&mut self) {
        let oldest =
            self.connections.iter().min_by_key(|(_, c)| c.last_activity).map(|(token, _)| *token);
        if let Some(oldest) = oldest {
            self.connections.remove(&oldest);
        }
    }

    /// Reads available bytes; an error ends the connection.
    fn read_tcp(&mut self, token: u64) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let mut buffer = [0; MAX_QUERY_SIZE];
        match connection.stream.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => connection.partial_query.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        connection.last_activity = self.clock.now();
        let mut questions = Vec::new();
        let mut rest = connection.partial_query.as_slice();
        while let [high, low, after @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if length > MAX_QUERY_SIZE {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let Some((question, after)) = after.split_at_checked(length) else { break };
            questions.push(question.to_vec());
            rest = after;
        }
        connection.partial_query = rest.to_vec();
        for question in questions {
            self.on_query(&question, Requester::Tcp(token));
        }
        Ok(())
    }

    fn on_query(&mut self, query: &[u8], asker: Requester) {
        self.shared.queries.fetch_add(1, Ordering::Relaxed);
        match decide(&self.zone, query, asker.transport()) {
            Verdict::Answer(answer) => self.reply(asker, &answer),
            Verdict::Forward(answer) => {
                if self.upstream.is_some() {
                    self.forward(query, asker);
                } else {
                    self.reply(asker, &answer);
                }
            }
            Verdict::Ignore => {
                self.shared.ignored.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn reply(&mut self, asker: Requester, answer: &[u8]) {
        self.shared.responses.fetch_add(1, Ordering::Relaxed);
        match asker {
            Requester::Udp(to) => {
                // Lost as on any network; the client repeats its query.
                let _ = self.udp.send_to(answer, to);
            }
            Requester::Tcp(token) => {
                let Some(connection) = self.connections.get_mut(&token) else { return };
                let Ok(length) = u16::try_from(answer.len()) else { return };
                let framed = [&length.to_be_bytes(), answer].concat();
                // A client that sends queries without reading fills the socket and loses the
                // connection.
                if connection.stream.write_all(&framed).is_err() {
                    self.connections.remove(&token);
                }
            }
        }
    }

    fn forward(&mut self, query: &[u8], asker: Requester) {
        let now = self.clock.now();
        self.pending_queries.retain(|_, waiting| now < waiting.deadline);
        if self.pending_queries.len() >= MAX_PENDING_QUERIES {
            return;
        }
        let Some(upstream) = &self.upstream else { return };
        let mut id = random_id();
        while self.pending_queries.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        let Some(question) = upstream_query(query, id) else { return };
        if upstream.send(&question).is_ok() {
            self.shared.forwarded.fetch_add(1, Ordering::Relaxed);
            let until = now + UPSTREAM_TIMEOUT;
            self.pending_queries.insert(
                id,
                PendingQuery { query: query.to_vec(), requester: asker, deadline: until },
            );
        }
    }

    fn read_upstream(&mut self) {
        let mut buffer = [0; MAX_QUERY_SIZE];
        for _ in 0..READ_BATCH {
            let Some(upstream) = &self.upstream else { return };
            let length = match upstream.recv(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The upstream server's port is closed: pending queries expire, as without a
                // response.
                Err(_) => continue,
            };
            let reply = &buffer[..length];
            let Some(id) = reply.first_chunk().map(|id| u16::from_be_bytes(*id)) else { continue };
            let Some(waiting) = self.pending_queries.get(&id) else { continue };
            let asker = waiting.requester;
            if let Some(answer) = upstream_response(&waiting.query, reply, asker.transport()) {
                self.pending_queries.remove(&id);
                self.reply(asker, &answer);
            }
        }
    }
}

impl Requester {
    fn transport(self) -> Transport {
        match self {
            Self::Udp(_) => Transport::Udp,
            Self::Tcp(_) => Transport::Tcp,
        }
    }
}

/// Returns an id that cannot be guessed: the standard library seeds its hashers from the system.
fn random_id() -> u16 {
    (RandomState::new().build_hasher().finish() & 0xffff) as u16
}
