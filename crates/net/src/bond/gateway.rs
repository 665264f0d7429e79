//! The gateway: authenticates clients and connects their streams to servers.

mod destinations;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::future::{Future, pending};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use manyways_proto::bond::dial::CarrierEnd;
use manyways_proto::bond::egress::EgressFilter;
use manyways_proto::bond::io_limits::IoLimits;
use manyways_proto::bond::rate_limit::Direction;
use manyways_proto::bond::session::{
    Admission, EndReason, Input as SessionInput, Output, Refusal, RefusalCause, Refusals,
    SessionId, Sessions,
};
use manyways_proto::bond::{carrier, session};
use manyways_proto::mux::{
    Config, Destination, Hello, Input, LoanMessage, Message, RefuseCode, Role, TicketId, VERSION,
    Welcome,
};
use manyways_sys::clock::Clock;
use manyways_sys::interface;
use manyways_sys::socket::set_user_timeout;
use manyways_unit::human::count_with_noun;
use manyways_unit::{Rate, Size, Span, Time};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::server::Acceptor;
use rustls::{Connection, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;

use super::allow::{AllowFile, AuthorizedClient};
use super::carrier::{CarrierIo, Chunk, TcpCarrier};
use super::client::LendingConfig;
use super::client_tasks::{AllTasks, ClientTasks};
use super::descriptors::Descriptors;
use super::gateway_proof::GatewayProof;
use super::gateway_status::{GatewayStatus, SessionStatus};
use super::handshake::{self, HandshakeError};
use super::key::{PrivateKey, PublicKey};
use super::listeners::accept_each;
use super::loans::{LentSession, Loans};
use super::memory::{self, Memory, SessionMemory};
use super::pending_handshakes::{Greeting, Handshake, PendingHandshakes};
use super::quic::{self, QuicCarrier};
use super::rate_limit::SharedRateLimit;
use super::seal::Way;
use super::session::{SessionEvent, SessionHandle};
use super::status::Totals;
use super::udp::FlowSockets;
use super::{timer, tls};
use crate::host_watch::HostWatch;

/// Limit of open files of a process if nothing has raised it.
const DEFAULT_OPEN_FILES: u64 = 1_024;
/// Maximum remembered unknown keys, of which each is logged once.
const MAX_UNKNOWN_KEYS: usize = 1000;
/// Time in which QUIC connections close at the end of the gateway.
const MAX_CLOSE_TIME: Duration = Duration::from_millis(200);
/// Maximum length of the queue of connections that are not accepted yet (listen(2)).
const MAX_PENDING_CONNECTIONS: i32 = 1024;
/// Time for which a lender may leave data unacknowledged, or accept none, before its connection ends.
/// Otherwise it would keep the session of a client that is away, too.
const LENDER_TIMEOUT: Span = Span::from_secs(30);

/// Options of a gateway.
#[derive(Debug)]
#[non_exhaustive]
pub struct GatewayOptions {
    /// Addresses at which the gateway listens, for TCP and UDP.
    pub listen: Vec<SocketAddr>,
    pub key: PrivateKey,
    pub allow: AllowFile,
    /// Destinations to which clients are allowed to connect.
    pub egress: EgressFilter,
    /// Idle timeout of QUIC connections.
    pub quic_idle_timeout: Span,
    /// Timing of sessions.
    pub session: session::Config,
    /// Limit of open files of this process.
    pub open_files: u64,
    /// Memory for the buffers of all clients together.
    pub memory: Size,
    /// Treatment of paths over lenders.
    pub lending: LendingConfig,
    /// Whether clients may use lenders.
    pub lends: bool,
}

impl GatewayOptions {
    /// Creates options for a gateway whose clients are allowed to connect to the public internet.
    pub fn new(listen: Vec<SocketAddr>, key: PrivateKey, allow: AllowFile) -> Self {
        Self {
            listen,
            key,
            allow,
            egress: EgressFilter::default(),
            quic_idle_timeout: carrier::Config::default().quic_idle_timeout,
            session: session::Config::default(),
            open_files: DEFAULT_OPEN_FILES,
            memory: memory::default_budget(),
            lending: LendingConfig::default(),
            lends: true,
        }
    }
}

/// Failure to start a gateway.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The gateway cannot listen on an address.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// QUIC cannot be set up.
    #[error("QUIC cannot be set up: {0}")]
    Quic(#[source] quic::SetupError),
    /// The addresses of this host, which the egress filter needs, cannot be listed.
    #[error("cannot list this host's addresses: {0}")]
    Addresses(#[from] interface::ListError),
}

/// The reason for the refusal of a carrier.
#[derive(Debug, thiserror::Error)]
enum RefusedConnection {
    #[error("its key is not in the allow file")]
    UnknownKey,
    #[error("its key was removed from the allow file")]
    RemovedKey,
    #[error("it expects a gateway with another key")]
    OtherGateway,
    #[error("it has no key")]
    NoKey,
    #[error("{0}")]
    Tls(#[source] io::Error),
    #[error("{0}")]
    Quic(#[from] quinn::ConnectionError),
    #[error("{0}")]
    Handshake(#[from] HandshakeError),
    #[error("{0}")]
    TooManySessions(TooManySessions),
    #[error("{0} has its share of the descriptors of this gateway")]
    NoDescriptor(String),
    #[error("many strangers connect, and it does not know the key of this gateway")]
    Stranger,
    #[error("it comes as a lender: {0}")]
    Lender(String),
}

/// A key has reached its limit of sessions.
#[derive(Debug)]
struct TooManySessions {
    client: String,
    count: usize,
}

impl fmt::Display for TooManySessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} already has {}", self.client, count_with_noun(self.count, "session"))
    }
}

impl RefusedConnection {
    fn cause(&self) -> RefusalCause {
        use quinn::ConnectionError::{TimedOut, TransportError};
        match self {
            Self::UnknownKey | Self::RemovedKey => RefusalCause::UnknownKey,
            Self::OtherGateway => RefusalCause::OtherGateway,
            Self::Tls(error) if error.kind() != io::ErrorKind::InvalidData => RefusalCause::Lost,
            Self::Quic(TimedOut) | Self::Handshake(HandshakeError::Timeout) => {
                RefusalCause::TimedOut
            }
            Self::NoKey | Self::Tls(_) | Self::Quic(TransportError(_)) => RefusalCause::Foreign,
            Self::Quic(_) | Self::Handshake(HandshakeError::ConnectionLost(_)) => {
                RefusalCause::Lost
            }
            Self::Handshake(_) => RefusalCause::Foreign,
            Self::Lender(_) => RefusalCause::UnknownKey,
            Self::TooManySessions(_) => RefusalCause::Sessions,
            Self::NoDescriptor(_) => RefusalCause::Descriptors,
            Self::Stranger => RefusalCause::Stranger,
        }
    }

    fn from_tls(error: io::Error) -> Self {
        Self::from_text(&error.to_string()).unwrap_or(Self::Tls(error))
    }

    fn from_quic(error: quinn::ConnectionError) -> Self {
        Self::from_text(&error.to_string()).unwrap_or(Self::Quic(error))
    }

    /// Recognizes key errors by their text, because one of the libraries reports them only as
    /// text.
    fn from_text(text: &str) -> Option<Self> {
        if text.contains("ApplicationVerificationFailure") {
            return Some(Self::UnknownKey);
        }
        // A TLS alert of the client.
        let is_alert = text.contains("AccessDenied") || text.contains("access denied");
        is_alert.then_some(Self::OtherGateway)
    }
}

struct State {
    clock: Clock,
    allow: AllowFile,
    egress: EgressFilter,
    limits: IoLimits,
    /// This host's addresses, as listed most recently.
    own_addresses: RefCell<Vec<IpAddr>>,
    core: RefCell<Sessions<PublicKey>>,
    /// Totals of the sessions that have ended, by client.
    ended: RefCell<BTreeMap<String, Totals>>,
    handshakes: PendingHandshakes,
    loans: Loans,
    descriptors: Descriptors,
    memory: Memory,
    lending: LendingConfig,
    lends: bool,
    tasks: AllTasks,
    /// When a client's lack of descriptors was logged.
    shortages: RefCell<HashMap<PublicKey, Time>>,
    proof: GatewayProof,
    sessions: RefCell<HashMap<SessionId<PublicKey>, ClientSession>>,
    /// Rate limits of the keys that have one.
    rate_limits: RefCell<HashMap<PublicKey, SharedRateLimit>>,
    /// Notified when the next wakeup of the core may have changed.
    timer: Notify,
}

struct ClientSession {
    handle: SessionHandle,
    client: String,
    /// Random number: an earlier session with the same identifier has another one.
    instance: u64,
    /// Receive credit of the session and of a stream.
    credit: (u64, u64),
    _memory: SessionMemory,
    /// The task that connects streams.
    server: AbortHandle,
}

impl ClientSession {
    /// Ends the streams, the carriers and the sockets of datagrams.
    fn end(&self) {
        self.handle.close();
        self.server.abort();
    }
}

/// Access to the status of a running gateway; cheap to clone.
#[derive(Clone)]
pub struct StatusHandle(Rc<State>);

impl StatusHandle {
    pub fn status(&self) -> GatewayStatus {
        let sessions = self.0.sessions.borrow();
        let status = |session: &ClientSession| {
            session.handle.with(|inner| SessionStatus::of(&session.client, inner))
        };
        let mut sessions: Vec<SessionStatus> = sessions.values().map(status).collect();
        sessions.sort_by(|a, b| a.client.cmp(&b.client));
        let (descriptors, used_descriptors) = self.0.descriptors.counts();
        GatewayStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sessions,
            ended: self.0.ended.borrow().clone(),
            descriptors,
            used_descriptors,
            refused: self.0.handshakes.refused(),
        }
    }
}

/// A gateway whose sockets are bound.
pub struct Gateway {
    listeners: Vec<TcpListener>,
    endpoints: Vec<quinn::Endpoint>,
    tls: Arc<ServerConfig>,
    state: Rc<State>,
}

impl Gateway {
    /// Binds the sockets. [`Gateway::run`] serves them.
    ///
    /// # Errors
    /// If an address cannot be bound, TLS or QUIC cannot be set up, or this host's addresses cannot
    /// be listed.
    pub fn bind(options: GatewayOptions) -> Result<Self, GatewayError> {
        let (allow, loans) = (options.allow.clone(), Loans::default());
        let clock = Clock::start();
        let tickets = loans.clone();
        let unknown = Mutex::new(UnknownKeys::default());
        let is_authorized = move |key: &PublicKey| {
            let is_known = allow.clients().find(key).is_some() || tickets.expects(clock.now(), key);
            let mut unknown = unknown.lock().unwrap_or_else(PoisonError::into_inner);
            if unknown.is_logged(clock.now(), key, is_known) {
                tracing::info!("unknown key {key}: not in the allow file");
            }
            is_known
        };
        let tls = tls::server(&options.key, Arc::new(is_authorized), &[tls::ALPN_PROTOCOL])?;
        let (mut listeners, mut endpoints) = (Vec::new(), Vec::new());
        for address in &options.listen {
            let failed = |error| GatewayError::Listen(*address, error);
            let listener = listener(*address, None).map_err(failed)?;
            // TCP and UDP use the same port if the system chooses the port.
            let bound = listener.local_addr().map_err(failed)?;
            listeners.push(listener);
            let socket = std::net::UdpSocket::bind(bound).map_err(failed)?;
            let endpoint =
                quic::gateway_endpoint(socket, &tls, &options.key, options.quic_idle_timeout);
            endpoints.push(endpoint.map_err(GatewayError::Quic)?);
        }
        let handshakes = PendingHandshakes::new(clock, options.open_files);
        let state = Rc::new(State {
            clock,
            allow: options.allow,
            egress: options.egress,
            limits: IoLimits::default(),
            own_addresses: RefCell::new(interface::addresses()?),
            core: RefCell::new(Sessions::new(clock.now(), options.session)),
            ended: RefCell::default(),
            descriptors: Descriptors::new(options.open_files, handshakes.max_sockets()),
            memory: Memory::new(options.memory),
            lending: options.lending,
            lends: options.lends,
            tasks: AllTasks::default(),
            handshakes,
            loans,
            shortages: RefCell::default(),
            proof: GatewayProof::new(&options.key.public()),
            sessions: RefCell::default(),
            rate_limits: RefCell::default(),
            timer: Notify::new(),
        });
        state.share_among(state.allow.clients().len());
        Ok(Self { listeners, endpoints, tls, state })
    }

    /// Returns the addresses at which the gateway listens, with their ports.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Connections of clients that the limit of open files permits, all together.
    pub fn max_connections(&self) -> u64 {
        self.state.descriptors.counts().0
    }

    pub fn status_handle(&self) -> StatusHandle {
        StatusHandle(Rc::clone(&self.state))
    }

    /// Serves until `stop` is ready. Runs on the calling thread's local tasks.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut accepts = Vec::new();
        for listener in self.listeners {
            let (tls, state) = (Arc::clone(&self.tls), Rc::clone(&self.state));
            accepts.push(tokio::task::spawn_local(state.accept_tcp(listener, tls)));
        }
        for endpoint in &self.endpoints {
            let state = Rc::clone(&self.state);
            accepts.push(tokio::task::spawn_local(state.accept_quic(endpoint.clone())));
        }
        tokio::select! {
            () = stop => {}
            () = self.state.review_sessions() => {}
            () = self.state.handshakes.run() => {}
            () = self.state.watch_addresses() => {}
        }
        accepts.iter().for_each(JoinHandle::abort);
        for (_, session) in self.state.sessions.borrow_mut().drain() {
            session.end();
        }
        // So that clients over QUIC know it, too.
        for endpoint in self.endpoints {
            quic::close_endpoint(&endpoint);
            let _ = timeout(MAX_CLOSE_TIME, endpoint.wait_idle()).await;
        }
    }
}

/// Listens at an address, for connections that arrive over this device.
pub(super) fn listener(address: SocketAddr, device: Option<&str>) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    if let Some(device) = device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    socket.bind(&address.into())?;
    socket.listen(MAX_PENDING_CONNECTIONS)?;
    TcpListener::from_std(socket.into())
}

pub(super) fn random_number() -> u64 {
    let mut bytes = [0; 8];
    // If the system has no random numbers, TLS fails first.
    let _ = SystemRandom::new().fill(&mut bytes);
    u64::from_be_bytes(bytes)
}

/// Whether this host has a route to an address. The kernel is queried; no packet is sent.
fn has_route(own: &str, to: &str) -> bool {
    std::net::UdpSocket::bind(own).is_ok_and(|socket| socket.connect(to).is_ok())
}

/// The process (EMFILE) or the host (ENFILE) has too many open files.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

/// Formats an address. An IPv4 address that is mapped to IPv6 is printed as IPv4.
pub(super) fn display_address(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

/// The unknown keys that were logged.
#[derive(Default)]
struct UnknownKeys {
    logged: HashSet<PublicKey>,
    refusals: Refusals,
}

impl UnknownKeys {
    /// Whether a key is logged: once, because a client retries, and some in a minute, because any
    /// peer can present any number of keys.
    fn is_logged(&mut self, now: Time, key: &PublicKey, is_known: bool) -> bool {
        if is_known {
            self.logged.remove(key);
            return false;
        }
        self.refusals.poll(now);
        if self.logged.contains(key) || !self.refusals.note(now, RefusalCause::UnknownKey) {
            return false;
        }
        if self.logged.len() >= MAX_UNKNOWN_KEYS {
            self.logged.clear();
        }
        self.logged.insert(*key)
    }
}

impl State {
    async fn accept_tcp(self: Rc<Self>, listener: TcpListener, tls: Arc<ServerConfig>) {
        accept_each(listener, self.limits, |stream, from| {
            let (tls, state) = (Arc::clone(&tls), Rc::clone(&self));
            self.handshakes.spawn(from, false, |handshake| async move {
                let result = Rc::clone(&state).handshake_tcp(&handshake, tls, stream).await;
                state.log_refused(from, result);
            });
        })
        .await;
    }

    async fn accept_quic(self: Rc<Self>, endpoint: quinn::Endpoint) {
        while let Some(incoming) = endpoint.accept().await {
            let from = incoming.remote_address();
            let is_proved = self.proof.is_valid(&incoming.orig_dst_cid());
            let is_validated = incoming.remote_address_validated();
            match self.handshakes.greet(from, is_proved, is_validated) {
                Greeting::ValidateAddress => {
                    let _ = incoming.retry();
                }
                Greeting::Refuse => {
                    incoming.refuse();
                    self.log_refused(from, Err(RefusedConnection::Stranger));
                }
                Greeting::Accept => {
                    let state = Rc::clone(&self);
                    self.handshakes.spawn(from, is_proved, |handshake| async move {
                        let result = Rc::clone(&state).handshake_quic(&handshake, incoming).await;
                        state.log_refused(from, result);
                    });
                }
            }
        }
    }

    fn log_refused(&self, from: SocketAddr, result: Result<(), RefusedConnection>) {
        if let Err(reason) = result {
            self.handshakes.refuse(from, reason.cause(), &reason);
        }
    }

    async fn handshake_tcp(
        self: Rc<Self>,
        handshake: &Handshake,
        tls: Arc<ServerConfig>,
        stream: TcpStream,
    ) -> Result<(), RefusedConnection> {
        let idle = carrier::Config::default().gateway_keepalive;
        let keepalive = socket2::TcpKeepalive::new().with_time(idle.into());
        let _ = socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive);
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await;
        let hello = hello.map_err(RefusedConnection::from_tls)?;
        let is_proved = self.proof.is_in(hello.client_hello().alpn().into_iter().flatten());
        // Before anything is computed for the peer.
        if !handshake.greet(is_proved) {
            return Err(RefusedConnection::Stranger);
        }
        let accepted = hello.into_stream(tls).await;
        let (stream, tls) = accepted.map_err(RefusedConnection::from_tls)?.into_inner();
        let key = tls::peer_key(tls.peer_certificates()).ok_or(RefusedConnection::NoKey)?;
        let carrier = TcpCarrier::new(stream, Connection::Server(tls));
        self.greet(handshake, key, CarrierIo::Tcp(Box::new(carrier))).await
    }

    async fn handshake_quic(
        self: Rc<Self>,
        handshake: &Handshake,
        incoming: quinn::Incoming,
    ) -> Result<(), RefusedConnection> {
        let connection = incoming.await.map_err(RefusedConnection::from_quic)?;
        let key = tls::peer_key(quic::certificates(&connection).as_deref());
        let key = key.ok_or(RefusedConnection::NoKey)?;
        let streams = connection.accept_bi().await?;
        let carrier = QuicCarrier::new(connection, streams, None);
        self.greet(handshake, key, CarrierIo::Quic(Box::new(carrier))).await
    }

    /// Admits a peer that has proved its key: a client, or a lender with a ticket.
    async fn greet(
        self: Rc<Self>,
        handshake: &Handshake,
        key: PublicKey,
        mut io: CarrierIo,
    ) -> Result<(), RefusedConnection> {
        let clients = self.allow.clients();
        self.share_among(clients.len());
        let client = clients.find(&key).cloned();
        if client.is_some() {
            handshake.authenticate();
            if let CarrierIo::Tcp(carrier) = &mut io {
                carrier.descriptor = self.descriptors.of(key).take();
            }
        } else if !self.loans.expects(self.clock.now(), &key) {
            return Err(RefusedConnection::RemovedKey);
        }
        match (handshake::read_greeting(&mut io).await?, client) {
            (handshake::Greeting::Hello(hello, early), Some(client)) => {
                self.admit(client, (key, hello), io, early).await
            }
            (handshake::Greeting::Hello(..), None) => Err(RefusedConnection::RemovedKey),
            (handshake::Greeting::Redeem(ticket), _) => {
                self.admit_lender(handshake, key, io, ticket).await
            }
        }
    }

    /// Attaches the connection of a lender to the session for which it has a ticket.
    async fn admit_lender(
        self: Rc<Self>,
        handshake: &Handshake,
        key: PublicKey,
        mut io: CarrierIo,
        ticket: TicketId,
    ) -> Result<(), RefusedConnection> {
        let refused = |reason: &dyn fmt::Display| RefusedConnection::Lender(reason.to_string());
        let found = self.loans.redeem(self.clock.now(), ticket, &key);
        let result = found.map_err(|error| refused(&error)).and_then(|loan| {
            let LentSession { id, instance } = loan.session;
            let sessions = self.sessions.borrow();
            let session = sessions.get(&id).filter(|session| session.instance == instance);
            let session = session.ok_or_else(|| refused(&"the session has ended"))?;
            let (client, handle) = (session.client.clone(), session.handle.clone());
            let descriptor = self.descriptors.of(id.key).take();
            let descriptor =
                descriptor.ok_or_else(|| RefusedConnection::NoDescriptor(client.clone()))?;
            Ok((loan, client, handle, descriptor))
        });
        let (loan, client, handle, descriptor) = match result {
            Ok(found) => found,
            Err(error) => {
                handshake::send_refusal(&mut io, RefuseCode::Ticket, error.to_string()).await;
                return Err(error);
            }
        };
        handshake.authenticate();
        let from = io.peer().map_or_else(|| "an unknown address".to_owned(), display_address);
        io.queue(&Message::Loan(LoanMessage::Redeemed));
        io.flush_all().await.map_err(|error| refused(&error))?;
        let CarrierIo::Tcp(mut carrier) = io else { return Err(refused(&"it came over QUIC")) };
        carrier.descriptor = Some(descriptor);
        let _ = set_user_timeout(carrier.stream.as_fd(), LENDER_TIMEOUT);
        if !carrier.seal(&loan.seed, Way::Down) {
            return Err(refused(&"the library has no keys"));
        }
        // The session may have ended, or begun again, while the answer was sent.
        let LentSession { id, instance } = loan.session;
        if self.sessions.borrow().get(&id).map(|one| one.instance) != Some(instance) {
            return Ok(());
        }
        let attached = handle.attach_lent(loan.path, *carrier, (loan.join, loan.rtt));
        attached.map_err(|error| {
            if error.end() == CarrierEnd::Forged {
                handle.handle(Input::Loan(LoanMessage::Forged { path: loan.path }));
            }
            refused(&error)
        })?;
        self.handle(SessionInput::Attached(id));
        tracing::info!("{client}: path {} over a lender from {from}", loan.path.0);
        Ok(())
    }

    /// Admits the carrier of a client.
    async fn admit(
        self: Rc<Self>,
        client: AuthorizedClient,
        (key, hello): (PublicKey, Hello),
        mut io: CarrierIo,
        early: Vec<Message<Chunk>>,
    ) -> Result<(), RefusedConnection> {
        let from = io.peer().map_or_else(|| "an unknown address".to_owned(), display_address);
        if matches!(&io, CarrierIo::Tcp(carrier) if carrier.descriptor.is_none()) {
            let refused = RefusedConnection::NoDescriptor(client.name);
            handshake::send_refusal(&mut io, RefuseCode::Limit, refused.to_string()).await;
            return Err(refused);
        }
        let id = SessionId { key, number: hello.session };
        let now = self.clock.now();
        let admission = self.core.borrow_mut().admit(now, id, hello.resumes, client.limits);
        self.pump();
        self.timer.notify_one();
        match admission {
            Admission::Resume => {}
            Admission::Begin => self.start_session(id, client.clone(), &hello),
            Admission::Refuse(Refusal::UnknownSession) => {
                let words = "unknown session: the gateway may have restarted";
                handshake::send_refusal(&mut io, RefuseCode::UnknownSession, words.to_owned())
                    .await;
                return Ok(());
            }
            Admission::Refuse(Refusal::TooManySessions(count)) => {
                let refusal = TooManySessions { client: client.name, count };
                let words = refusal.to_string();
                handshake::send_refusal(&mut io, RefuseCode::Limit, words).await;
                return Err(RefusedConnection::TooManySessions(refusal));
            }
        }
        let session = self
            .sessions
            .borrow()
            .get(&id)
            .map(|one| (one.handle.clone(), one.instance, one.credit));
        // It has ended meanwhile.
        let Some((handle, instance, (credit, stream_credit))) = session else { return Ok(()) };
        let welcome = Welcome {
            version: VERSION,
            credit,
            stream_credit,
            streams: u64::from(client.limits.streams),
            v4: self.has_family(true),
            v6: self.has_family(false),
            lends: self.lends,
            instance,
        };
        handshake::send_welcome(&mut io, welcome).await?;
        // The session may have ended, or begun again, while the welcome was sent.
        if self.sessions.borrow().get(&id).map(|one| one.instance) != Some(instance) {
            return Ok(());
        }
        self.handle(SessionInput::Attached(id));
        let path = hello.path;
        tracing::info!("{}: path {} from {from} over {}", client.name, path.0, io.transport());
        handle.attach(path, io, early);
        Ok(())
    }

    /// Sets the number of clients that share descriptors and memory.
    fn share_among(&self, clients: usize) {
        self.descriptors.set_clients(clients);
        self.memory.set_clients(clients);
    }

    /// Whether the gateway reaches a family of addresses: on the internet, or by an exception of
    /// the egress filter.
    fn has_family(&self, v4: bool) -> bool {
        self.egress.exceptions.iter().any(|prefix| prefix.address().is_ipv4() == v4)
            || match v4 {
                true => has_route("0.0.0.0:0", "198.41.0.4:53"),
                false => has_route("[::]:0", "[2001:503:ba3e::2:30]:53"),
            }
    }

    fn start_session(
        self: &Rc<Self>,
        id: SessionId<PublicKey>,
        client: AuthorizedClient,
        hello: &Hello,
    ) {
        let mut config = self.lending.apply(Config::new(Role::Gateway));
        config.streams = u64::from(client.limits.streams);
        config.flows = u64::from(client.limits.flows);
        let memory = self.memory.take(id.key, &mut config);
        let own_credit = (config.credit, config.stream_credit);
        let tasks = self.tasks.of(id.key);
        let (handle, events) = SessionHandle::new(config, Some(tasks.clone()));
        let (credit, stream_credit) = (hello.credit, hello.stream_credit);
        handle.handle(Input::InitialCredit { credit, stream_credit });
        let limit = self.rate_limit(id.key, client.limits.rate);
        handle.with(|session| session.set_limit(limit));
        let client = client.name;
        tracing::info!("{client}: session started");
        let serve =
            Rc::clone(self).serve(id, client.clone(), handle.clone(), tasks.clone(), events);
        let server = tasks.spawn(serve).abort_handle();
        let session = ClientSession {
            handle,
            client,
            instance: random_number(),
            credit: own_credit,
            _memory: memory,
            server,
        };
        self.sessions.borrow_mut().insert(id, session);
    }

    /// Forgets a session, except its totals.
    fn remove_session(&self, id: SessionId<PublicKey>) -> Option<ClientSession> {
        let session = self.sessions.borrow_mut().remove(&id)?;
        let totals: Totals = session.handle.with(|session| session.counters_of_streams()).into();
        let mut ended = self.ended.borrow_mut();
        let sum = ended.entry(session.client.clone()).or_default();
        *sum = *sum + totals;
        Some(session)
    }

    /// Returns the rate limit that the sessions of a key share; `None` if there is no limit.
    fn rate_limit(&self, key: PublicKey, rate: Option<Rate>) -> Option<SharedRateLimit> {
        let rate = rate?;
        let mut limits = self.rate_limits.borrow_mut();
        let limit = limits.entry(key).or_insert_with(|| SharedRateLimit::new(rate));
        limit.set(rate);
        Some(limit.clone())
    }

    /// Runs the core, which ends sessions of disconnected clients and applies changed limits; never
    /// returns.
    async fn review_sessions(&self) {
        loop {
            self.pump();
            let wakeup = self.core.borrow().next_wakeup();
            tokio::select! {
                () = timer::until(&self.clock, Some(wakeup)) => {}
                () = self.timer.notified() => {}
            }
        }
    }

    /// Lists this host's addresses, to which no client may connect, as soon as one is added; never
    /// returns.
    async fn watch_addresses(&self) {
        let failed = match HostWatch::open() {
            Ok(mut watch) => {
                // Those that were added before the watch.
                self.list_addresses();
                loop {
                    match watch.changes().await {
                        Ok(changes) => {
                            if changes.iter().any(|one| one.addresses || one.overflowed) {
                                self.list_addresses();
                            }
                        }
                        Err(error) => break error,
                    }
                }
            }
            Err(error) => error,
        };
        let interval = session::Config::default().review_interval;
        tracing::warn!("new addresses of this host are noticed within {interval}: {failed}");
        pending().await
    }

    fn list_addresses(&self) {
        match interface::addresses() {
            Ok(own) => *self.own_addresses.borrow_mut() = own,
            Err(error) => tracing::debug!("cannot list this host's addresses: {error}"),
        }
    }

    fn handle(&self, input: SessionInput<PublicKey>) {
        self.core.borrow_mut().handle(self.clock.now(), input);
    }

    fn pump(&self) {
        loop {
            let output = self.core.borrow_mut().poll(self.clock.now());
            match output {
                None => break,
                Some(output) => self.perform(output),
            }
        }
    }

    fn perform(&self, output: Output<PublicKey>) {
        let with = |id: &SessionId<PublicKey>| {
            let sessions = self.sessions.borrow();
            sessions.get(id).map(|one| (one.handle.clone(), one.client.clone()))
        };
        match output {
            Output::Review => {
                self.list_addresses();
                let clients = self.allow.clients();
                let limits_of = |key: &PublicKey| clients.find(key).map(|client| client.limits);
                self.core.borrow_mut().review(self.clock.now(), limits_of);
            }
            Output::End(id, reason) => {
                if let Some(session) = self.remove_session(id) {
                    let client = &session.client;
                    match reason {
                        EndReason::Evicted => {
                            tracing::info!("{client}: session evicted: {reason}");
                        }
                        _ => tracing::info!("{client}: session closed: {reason}"),
                    }
                    session.end();
                }
            }
            Output::RequestLiveness(id) => {
                if let Some((handle, _)) = with(&id) {
                    handle.with(|session| session.request_liveness());
                    let received = handle.with(|session| session.received_bytes());
                    self.handle(SessionInput::Received(id, received));
                }
            }
            Output::CountReceived(id) => {
                if let Some((handle, _)) = with(&id) {
                    let received = handle.with(|session| session.received_bytes());
                    self.handle(SessionInput::Received(id, received));
                }
            }
            Output::SetRate(id, rate) => {
                if let Some((handle, client)) = with(&id) {
                    let limit = self.rate_limit(id.key, rate);
                    handle.with(|session| session.set_limit(limit));
                    match rate {
                        Some(rate) => tracing::info!("{client}: rate limit changed to {rate}"),
                        None => tracing::info!("{client}: rate limit removed"),
                    }
                }
            }
            Output::LimitsDeferred(id) => {
                if let Some((_, client)) = with(&id) {
                    tracing::info!(
                        "{client}: new limits of streams and flows apply to the next session"
                    );
                }
            }
        }
    }

    /// Connects the streams of a session, and carries its datagrams.
    async fn serve(
        self: Rc<Self>,
        id: SessionId<PublicKey>,
        client: String,
        handle: SessionHandle,
        tasks: ClientTasks,
        mut events: mpsc::UnboundedReceiver<SessionEvent>,
    ) {
        let descriptors = self.descriptors.of(id.key);
        let sockets = FlowSockets::new(handle.clone(), descriptors.clone());
        while let Some(event) = events.recv().await {
            match event {
                SessionEvent::Open { stream, target } => {
                    let (state, handle) = (Rc::clone(&self), handle.clone());
                    let (client, descriptors) = (client.clone(), descriptors.clone());
                    let own = tasks.clone();
                    tasks.spawn(async move {
                        let shares = (&descriptors, &own);
                        state.connect(shares, &client, &handle, stream, target).await;
                    });
                }
                SessionEvent::Datagram { flow, label, peer, data } => {
                    let length = data.len();
                    if !handle.with(|session| session.admit_datagram(Direction::Up, length)) {
                        continue;
                    }
                    match self.first_address(&tasks, &peer).await {
                        Some(to) => sockets.send(flow, label, to, &data).await,
                        None => tracing::debug!("{client}: datagram to {peer} dropped"),
                    }
                }
                SessionEvent::CloseFlow { flow } => sockets.close(flow),
                SessionEvent::CarrierLost { path, reason, .. } => {
                    tracing::info!("{client}: path {} closed: {reason}", path.0);
                    if reason.end() == CarrierEnd::Forged {
                        handle.handle(Input::Loan(LoanMessage::Forged { path }));
                    }
                    self.handle(SessionInput::Detached(id));
                }
                SessionEvent::Suspect { path, .. } => {
                    tracing::debug!("{client}: path {} is suspect", path.0);
                }
                SessionEvent::Loan(LoanMessage::Request { path, lender, rtt }) => {
                    let instance = self.sessions.borrow().get(&id).map(|one| one.instance);
                    let Some(instance) = instance else { continue };
                    let (now, lender) = (self.clock.now(), PublicKey(lender));
                    let session = LentSession { id, instance };
                    let answer = if self.lends {
                        self.loans.answer(now, session, path, (lender, rtt))
                    } else {
                        let reason = HandshakeError::NoLending.to_string();
                        LoanMessage::Refused { path, reason }
                    };
                    handle.handle(Input::Loan(answer));
                }
                SessionEvent::StreamRefused => {
                    if self.is_shortage_news(id.key) {
                        let limits = self.allow.clients().find(&id.key).map(|one| one.limits);
                        let limit = limits.map_or(0, |limits| limits.streams);
                        tracing::warn!(
                            "{client}: connections are refused: it has {limit}, the limit of a session"
                        );
                    }
                }
                // A gateway does not count single streams.
                SessionEvent::ByteThreshold { .. }
                | SessionEvent::StreamClosed { .. }
                | SessionEvent::Recovered { .. }
                | SessionEvent::LenderLeaves { .. }
                | SessionEvent::Loan(_)
                | SessionEvent::Delivered { .. } => {}
                SessionEvent::Bye => {
                    tracing::info!("{client}: session closed");
                    self.handle(SessionInput::Ended(id));
                    self.remove_session(id);
                    return handle.close();
                }
            }
        }
    }
}

/// Converts an address to a target of the mux; an IPv4-mapped address becomes IPv4.
pub(super) fn to_destination(address: SocketAddr) -> Destination {
    let ip: IpAddr = address.ip().to_canonical();
    Destination::Address(ip, address.port())
}
