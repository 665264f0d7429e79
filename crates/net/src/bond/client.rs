//! The client: one carrier on each path, as [`Dialer`] decides, and one session over all paths.

mod lenders;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, pending, ready};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use manyways_proto::bond::carrier;
use manyways_proto::bond::dial::{self, CarrierTransport, Dialer, Event as DialEvent, Output};
use manyways_proto::bond::dial::{Failure, FailureKind, Loss, PacketSize, TransportChoice};
use manyways_proto::bond::interception::AddressFamilies;
use manyways_proto::bond::path::PathState;
use manyways_proto::happy_eyeballs;
use manyways_proto::mux::{CarrierId, Config, Feedback, FlowId, Hello, HopEstimate, Input};
use manyways_proto::mux::{Destination, RefuseCode, VERSION};
use manyways_proto::mux::{Rebalance, Role, StreamId};
use manyways_proto::sched::PathId;
use manyways_sys::clock::Clock;
use manyways_unit::Span;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, Connection};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

pub use lenders::Lender;
pub(super) use lenders::keep_alive;
use lenders::{Pipe, Ticket};

use super::carrier::{CarrierError, CarrierIo, Chunk, TcpCarrier};
use super::flow_counters::StreamTotals;
use super::gateway_proof::GatewayProof;
use super::handshake::{self, AttemptError, HandshakeError, LossCause};
use super::key::{PrivateKey, PublicKey};
use super::quic::{self, QuicCarrier};
use super::session::{OpeningStream, SessionEvent, SessionHandle, StreamRequest};
use super::{timer, tls};
use crate::path::{PathSpec, RaceError, race, socket, udp_socket};

/// Name in the handshakes, without meaning: the client authenticates the gateway by its key.
const SERVER_NAME: &str = "gateway.invalid";
/// Segments of TCP in packets of 1,200 bytes and IPv4, the first size of QUIC (RFC 9000 §14).
const SMALL_SEGMENT: u32 = 1_160;

/// The gateway of a client, and the options of its carriers.
#[derive(Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Addresses at which the gateway listens. Each path tries the addresses of its families.
    pub gateway: Vec<SocketAddr>,
    pub gateway_key: PublicKey,
    pub key: PrivateKey,
    /// Name and port of the gateway, resolved again when no path reaches the gateway. `None` if the
    /// gateway has fixed addresses.
    pub gateway_name: Option<String>,
    /// Transports over which paths are dialled.
    pub transport: TransportChoice,
    /// Interval of keepalive packets on an idle TCP carrier, which keep NAT mappings. `None` if
    /// disabled.
    pub keepalive: Option<Duration>,
    /// Firewall mark of the client's own sockets.
    pub socket_mark: Option<u32>,
    /// Time without paths after which the gateway may have ended the session; the next connection
    /// then starts a new one. At most the time for which the gateway keeps it.
    pub session_lifetime: Span,
    /// Treatment of paths over lenders.
    pub lending: LendingConfig,
}

/// Treatment of paths over lenders, at one end.
#[derive(Clone, Copy, Debug, Default)]
pub struct LendingConfig {
    pub rebalance: Rebalance,
    pub estimate: HopEstimate,
    pub feedback: Feedback,
}

impl LendingConfig {
    pub(super) fn apply(self, mut config: Config) -> Config {
        config.rebalance = self.rebalance;
        config.hop_estimate = self.estimate;
        config.feedback = self.feedback;
        config
    }
}

impl ClientOptions {
    /// Creates options for a gateway with fixed addresses, without keepalive packets and socket
    /// mark.
    pub fn new(gateway: Vec<SocketAddr>, gateway_key: PublicKey, key: PrivateKey) -> Self {
        Self {
            gateway,
            gateway_key,
            key,
            gateway_name: None,
            transport: TransportChoice::default(),
            keepalive: None,
            socket_mark: None,
            session_lifetime: dial::Config::default().session_lifetime,
            lending: LendingConfig::default(),
        }
    }
}

/// A change of a client's paths, session or gateway.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClientEvent {
    /// A path has a carrier.
    PathUp {
        /// Name of the path.
        path: String,
        /// Small if larger packets are lost on the path.
        packets: PacketSize,
    },
    /// A path has lost its carrier.
    PathDown {
        /// Name of the path.
        path: String,
        reason: Arc<Loss<CarrierError>>,
    },
    /// No carrier could be established on a path.
    PathFailed {
        /// Name of the path.
        path: String,
        reason: ConnectFailure,
    },
    /// A new session has replaced the previous one, whose connections have ended.
    SessionRenewed,
    /// The gateway does not run, and the connections of the session have ended.
    GatewayGone,
    /// The gateway's name resolves to other addresses.
    GatewayMoved { addresses: Vec<SocketAddr> },
}

/// The failure to establish a carrier on a path.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectFailure {
    /// The gateway has not answered within this time.
    #[error("no answer within {} s", .0.as_secs_f64())]
    TimedOut(Span),
    /// Carriers connect, and carry nothing.
    #[error("it connects to the gateway, and then nothing gets through")]
    Barren,
    /// An attempt has failed.
    #[error(transparent)]
    Handshake(#[from] Arc<HandshakeError>),
}

impl ConnectFailure {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TimedOut(_) => HandshakeError::Timeout.hint(),
            Self::Barren => Some(
                "a firewall or a tunnel on the way may drop large packets or unknown protocols",
            ),
            Self::Handshake(error) => error.hint(),
        }
    }
}

impl From<Failure<AttemptError>> for ConnectFailure {
    fn from(failure: Failure<AttemptError>) -> Self {
        match failure {
            Failure::TimedOut(span) => Self::TimedOut(span),
            Failure::Barren => Self::Barren,
            Failure::Failed(AttemptError(error)) => Self::Handshake(error),
        }
    }
}

/// An event for the subscriber of a client's traffic.
#[derive(Debug)]
pub(super) enum TrafficEvent {
    /// A path was added, or a path or its carrier has changed.
    PathsChanged,
    /// The stream with this number has reached its byte threshold.
    ByteThreshold(u64),
    /// A stream has ended.
    StreamClosed(StreamTotals),
}

/// A client of a bond; cheap to clone.
#[derive(Clone)]
pub struct Client(Rc<Inner>);

struct Inner {
    dialer: RefCell<Dialer<AttemptError, CarrierError>>,
    config: dial::Config,
    clock: Clock,
    /// Notified when the next wakeup of the dialer may have changed.
    timer: Notify,
    /// Addresses of the gateway, watched by other tasks.
    gateway: watch::Sender<Vec<SocketAddr>>,
    gateway_name: Option<String>,
    key: PrivateKey,
    lending: LendingConfig,
    tls: Arc<ClientConfig>,
    /// Whether the gateway gives tickets for lenders; `None` before its first welcome.
    lends: Cell<Option<bool>>,
    /// Attempts that wait for a ticket.
    tickets: RefCell<HashMap<PathId, oneshot::Sender<Result<Ticket, String>>>>,
    proof: Arc<GatewayProof>,
    socket_mark: Option<u32>,
    keepalive: Option<Duration>,
    handle: SessionHandle,
    session: Cell<[u8; 16]>,
    families: watch::Sender<Option<AddressFamilies>>,
    paths: RefCell<Vec<Path>>,
    /// Receivers of the datagrams of each flow.
    flows: RefCell<HashMap<FlowId, mpsc::UnboundedSender<(Destination, Bytes)>>>,
    next_flow: Cell<u32>,
    events: mpsc::UnboundedSender<ClientEvent>,
    traffic_events: RefCell<Option<mpsc::UnboundedSender<TrafficEvent>>>,
    driver: Cell<Option<AbortHandle>>,
}

struct Path {
    spec: PathSpec,
    /// `Some` over a lender.
    pipe: Option<Arc<Pipe>>,
    /// The task that connects; `None` if there is no attempt.
    attempt: Option<AbortHandle>,
}

impl Client {
    /// Creates a client without paths, and the receiver of its events. Runs on the calling thread's
    /// local tasks.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(
        options: ClientOptions,
    ) -> Result<(Self, mpsc::UnboundedReceiver<ClientEvent>), rustls::Error> {
        let tls = tls::client(&options.key, options.gateway_key, tls::ALPN_PROTOCOL)?;
        let session_config = options.lending.apply(Config::new(Role::Client));
        let (handle, session_events) = SessionHandle::new(session_config, None);
        let (events, receiver) = mpsc::unbounded_channel();
        let mut config = dial::Config::default();
        config.transport = options.transport;
        config.has_name = options.gateway_name.is_some();
        config.session_lifetime = options.session_lifetime;
        let client = Self(Rc::new(Inner {
            dialer: RefCell::new(Dialer::new(config, options.gateway.clone())),
            config,
            clock: handle.with(|session| session.clock()),
            timer: Notify::new(),
            gateway: watch::Sender::new(options.gateway),
            gateway_name: options.gateway_name,
            key: options.key,
            lending: options.lending,
            tls,
            lends: Cell::new(None),
            tickets: RefCell::default(),
            proof: Arc::new(GatewayProof::new(&options.gateway_key)),
            socket_mark: options.socket_mark,
            keepalive: options.keepalive,
            handle,
            session: Cell::new(new_session()),
            families: watch::Sender::new(None),
            paths: RefCell::default(),
            flows: RefCell::default(),
            next_flow: Cell::new(0),
            events,
            traffic_events: RefCell::default(),
            driver: Cell::default(),
        }));
        client.0.handle.with(|session| session.counters.count_streams());
        tokio::task::spawn_local(client.clone().run_session_events(session_events));
        let driver = tokio::task::spawn_local(client.clone().drive());
        client.0.driver.set(Some(driver.abort_handle()));
        Ok((client, receiver))
    }

    /// Adds a path, and keeps a carrier on it.
    pub fn add_path(&self, spec: PathSpec) -> PathId {
        self.0.paths.borrow_mut().push(Path { spec, pipe: None, attempt: None });
        let id = self.0.dialer.borrow_mut().add_path();
        self.pump();
        self.notify_traffic(TrafficEvent::PathsChanged);
        id
    }

    /// Replaces the addresses or the interface of a path; its number stays.
    pub fn update_path(&self, id: PathId, spec: PathSpec) {
        if let Some(path) = self.0.paths.borrow_mut().get_mut(usize::from(id.0)) {
            path.spec = spec;
        }
        self.dialer(dial::Input::PathChanged(id));
        self.notify_traffic(TrafficEvent::PathsChanged);
    }

    /// Reports that the interface of a path is down. The session uses other paths at once.
    pub fn path_down(&self, id: PathId) {
        self.dialer(dial::Input::LinkDown(id));
    }

    /// Returns the names of the paths. The index is the number of the path.
    pub fn paths(&self) -> Vec<String> {
        self.0.paths.borrow().iter().map(|path| path.spec.name.clone()).collect()
    }

    /// Returns the addresses of the gateway.
    pub fn gateway(&self) -> Vec<SocketAddr> {
        self.0.gateway.borrow().clone()
    }

    /// Watches the addresses of the gateway.
    pub(super) fn watch_gateway(&self) -> watch::Receiver<Vec<SocketAddr>> {
        self.0.gateway.subscribe()
    }

    /// Waits until the gateway has reported the address families that it reaches.
    pub async fn address_families(&self) -> AddressFamilies {
        let mut families = self.0.families.subscribe();
        loop {
            if let Some(known) = *families.borrow_and_update() {
                return known;
            }
            if families.changed().await.is_err() {
                return AddressFamilies::default();
            }
        }
    }

    /// Returns the address families that the gateway reaches; `None` before its first welcome.
    pub fn known_address_families(&self) -> Option<AddressFamilies> {
        *self.0.families.borrow()
    }

    /// Returns the wall clock at the origin of the client's times, since the Unix epoch.
    pub fn epoch(&self) -> Span {
        self.0.clock.epoch()
    }

    /// Carries an application's connection, of which `first` is already read. Returns the stream
    /// and its number among all streams of the client.
    pub fn carry(
        &self,
        socket: TcpStream,
        target: Destination,
        label: u8,
        first: Bytes,
    ) -> (StreamId, u64) {
        self.carry_request(socket, StreamRequest { target, label, first, body: None })
    }

    /// Carries an application's connection.
    pub(super) fn carry_request(
        &self,
        socket: TcpStream,
        request: StreamRequest,
    ) -> (StreamId, u64) {
        self.wake_paths();
        self.0.handle.open(socket, request)
    }

    /// Opens a stream, and asks the gateway to confirm its connection to the server.
    pub(super) fn open_confirmed(&self, request: StreamRequest) -> OpeningStream {
        self.wake_paths();
        self.0.handle.open_confirmed(request)
    }

    /// Opens a flow of datagrams. Returns its number and the receiver of its replies.
    pub fn open_flow(&self) -> (FlowId, mpsc::UnboundedReceiver<(Destination, Bytes)>) {
        let number = self.0.next_flow.get();
        self.0.next_flow.set(number.wrapping_add(1));
        self.wake_paths();
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.flows.borrow_mut().insert(FlowId(number), sender);
        (FlowId(number), receiver)
    }

    /// Sends a datagram of a flow.
    pub fn send(&self, flow: FlowId, label: u8, to: Destination, data: Bytes) {
        self.wake_paths();
        self.0.handle.handle(Input::Datagram { flow, label, peer: to, data: Chunk(data) });
    }

    pub fn close_flow(&self, flow: FlowId) {
        if self.0.flows.borrow_mut().remove(&flow).is_some() {
            self.0.handle.with(|session| session.counters.end_flow(flow));
            self.0.handle.handle(Input::CloseFlow { flow });
        }
    }

    /// Runs until `stop` is ready, then ends the session.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        stop.await;
        self.0.handle.close();
        let attempts = self.0.paths.borrow_mut();
        let attempts = attempts.iter().filter_map(|path| path.attempt.as_ref());
        for task in attempts.chain(self.0.driver.take().as_ref()) {
            task.abort();
        }
    }

    pub(super) fn handle(&self) -> &SessionHandle {
        &self.0.handle
    }

    /// Sends traffic events to `events`, which replaces an earlier subscriber.
    pub(super) fn subscribe_traffic(&self, events: mpsc::UnboundedSender<TrafficEvent>) {
        self.0.traffic_events.replace(Some(events));
    }

    /// Returns the sender of datagrams to a flow's application, also for replies outside the bond.
    /// `None` if the flow is closed.
    pub(super) fn flow_receiver(
        &self,
        flow: FlowId,
    ) -> Option<mpsc::UnboundedSender<(Destination, Bytes)>> {
        self.0.flows.borrow().get(&flow).cloned()
    }

    /// Whether a path has a carrier that is not suspect, or has none only because no application
    /// has data to send.
    pub fn is_connected(&self) -> bool {
        self.0.dialer.borrow().is_connected()
    }

    pub(super) fn clock(&self) -> Clock {
        self.0.clock
    }

    pub(super) fn path_state(&self, id: PathId) -> PathState {
        self.0.dialer.borrow().state(id)
    }

    fn notify_traffic(&self, event: TrafficEvent) {
        if let Some(events) = &*self.0.traffic_events.borrow() {
            let _ = events.send(event);
        }
    }

    /// Whether an application has a stream or a flow.
    fn is_in_use(&self) -> bool {
        let streams = self.0.handle.with(|session| session.mux.stream_count());
        streams > 0 || !self.0.flows.borrow().is_empty()
    }

    /// Dials paths that are asleep or wait, because an application has data to send.
    fn wake_paths(&self) {
        if self.0.dialer.borrow().heeds_demand() {
            self.dialer(dial::Input::Demand { in_use: self.is_in_use() });
        }
    }

    async fn run_session_events(self, mut events: mpsc::UnboundedReceiver<SessionEvent>) {
        while let Some(event) = events.recv().await {
            match event {
                SessionEvent::CarrierLost { carrier, reason, .. } => {
                    let end = reason.end();
                    let in_use = self.is_in_use();
                    self.dialer(dial::Input::Lost { carrier, reason, end, in_use });
                }
                SessionEvent::Suspect { carrier, barren, .. } => {
                    self.notify_traffic(TrafficEvent::PathsChanged);
                    self.dialer(dial::Input::Suspect { carrier, barren });
                }
                SessionEvent::Delivered { carrier, direction } => {
                    self.dialer(dial::Input::Delivered(carrier, direction));
                }
                SessionEvent::Loan(message) => self.on_loan(message),
                SessionEvent::LenderLeaves { path } => {
                    tracing::debug!("the lender of path {} leaves", path.0);
                }
                SessionEvent::Recovered { carrier } => {
                    self.notify_traffic(TrafficEvent::PathsChanged);
                    self.dialer(dial::Input::Recovered(carrier));
                }
                SessionEvent::Datagram { flow, peer, data, .. } => {
                    let flows = self.0.flows.borrow();
                    if let Some(receiver) = flows.get(&flow) {
                        let _ = receiver.send((peer, data));
                    }
                }
                SessionEvent::CloseFlow { flow } => {
                    self.0.flows.borrow_mut().remove(&flow);
                    self.0.handle.with(|session| session.counters.end_flow(flow));
                }
                SessionEvent::ByteThreshold { number } => {
                    self.notify_traffic(TrafficEvent::ByteThreshold(number))
                }
                SessionEvent::StreamClosed { totals } => {
                    self.notify_traffic(TrafficEvent::StreamClosed(totals));
                }
                SessionEvent::Bye => self.dialer(dial::Input::SessionEnded),
                SessionEvent::StreamRefused => {}
                SessionEvent::Open { stream, .. } => {
                    tracing::debug!("the gateway opened stream {} to the client", stream.0);
                }
            }
        }
    }

    /// Polls the dialer when it is due.
    async fn drive(self) {
        loop {
            let wakeup = self.0.dialer.borrow().next_wakeup();
            tokio::select! {
                () = timer::until(&self.0.clock, wakeup) => self.pump(),
                () = self.0.timer.notified() => {}
            }
        }
    }

    /// Passes an input to the dialer, and executes its outputs.
    fn dialer(&self, input: dial::Input<AttemptError, CarrierError>) {
        self.0.dialer.borrow_mut().handle(self.0.clock.now(), input);
        self.pump();
    }

    fn pump(&self) {
        loop {
            let output = self.0.dialer.borrow_mut().poll(self.0.clock.now());
            match output {
                Some(output) => self.perform(output),
                None => break,
            }
        }
        self.0.timer.notify_one();
    }

    fn perform(&self, output: Output<AttemptError, CarrierError>) {
        match output {
            Output::Dial { path, transport, packets } => {
                let attempt = self.clone().attempt(path, transport, packets);
                let task = tokio::task::spawn_local(attempt);
                self.set_attempt(path, Some(task.abort_handle()));
            }
            Output::Abandon(path) => {
                if let Some(task) = self.set_attempt(path, None) {
                    task.abort();
                }
            }
            Output::Detach(carrier) => self.0.handle.detach(carrier),
            Output::AnnounceLinkDown(path) => self.0.handle.handle(Input::PathDown { path }),
            Output::RenewSession => {
                self.0.session.set(new_session());
                let lending = self.0.lending;
                self.0
                    .handle
                    .with(|session| session.restart(lending.apply(Config::new(Role::Client))));
                self.0.flows.borrow_mut().clear();
            }
            Output::LookUp => drop(tokio::task::spawn_local(self.clone().look_up())),
            Output::Event(event) => self.report(event),
        }
    }

    fn report(&self, event: DialEvent<AttemptError, CarrierError>) {
        let name = |id: PathId| {
            let paths = self.0.paths.borrow();
            paths.get(usize::from(id.0)).map(|path| path.spec.name.clone()).unwrap_or_default()
        };
        let event = match event {
            DialEvent::Up(path, packets) => ClientEvent::PathUp { path: name(path), packets },
            DialEvent::Down(path, reason) => {
                ClientEvent::PathDown { path: name(path), reason: Arc::new(reason) }
            }
            DialEvent::Failed(path, reason) => {
                ClientEvent::PathFailed { path: name(path), reason: reason.into() }
            }
            DialEvent::Renewed => ClientEvent::SessionRenewed,
            DialEvent::GatewayGone => ClientEvent::GatewayGone,
            DialEvent::Moved(to) => {
                self.0.gateway.send_replace(to.clone());
                ClientEvent::GatewayMoved { addresses: to }
            }
        };
        self.notify_traffic(TrafficEvent::PathsChanged);
        let _ = self.0.events.send(event);
    }

    fn set_attempt(&self, id: PathId, task: Option<AbortHandle>) -> Option<AbortHandle> {
        let mut paths = self.0.paths.borrow_mut();
        let path = paths.get_mut(usize::from(id.0))?;
        std::mem::replace(&mut path.attempt, task)
    }

    /// Resolves the gateway's name.
    async fn look_up(self) {
        let Some(name) = &self.0.gateway_name else { return };
        let found = match tokio::net::lookup_host(name).await {
            Ok(found) => found.collect(),
            Err(error) => {
                tracing::debug!("the gateway {name} cannot be resolved: {error}");
                Vec::new()
            }
        };
        self.dialer(dial::Input::Resolved(found));
    }

    /// Makes one attempt to establish a carrier on a path. The dialer may abandon it.
    async fn attempt(self, path: PathId, transport: CarrierTransport, packets: PacketSize) {
        if let Err(error) = self.connect(path, transport, packets).await {
            self.set_attempt(path, None);
            self.dialer(dial::Input::Failed(path, AttemptError(Arc::new(error))));
        }
    }

    async fn connect(
        &self,
        id: PathId,
        transport: CarrierTransport,
        packets: PacketSize,
    ) -> Result<(), HandshakeError> {
        let (spec, pipe) = {
            let paths = self.0.paths.borrow();
            let path = paths.get(usize::from(id.0)).ok_or(HandshakeError::LinkDown)?;
            (path.spec.clone(), path.pipe.clone())
        };
        if let Some(pipe) = pipe {
            return self.connect_lender(id, pipe).await;
        }
        let mut io = match transport {
            CarrierTransport::Tcp => self.connect_tcp(&spec, packets).await?,
            CarrierTransport::Quic => self.connect_quic(&spec).await?,
        };
        self.dialer(dial::Input::Secured(id));
        let config = Config::new(Role::Client);
        let hello = Hello {
            version: VERSION,
            session: self.0.session.get(),
            path: id,
            resumes: self.0.dialer.borrow().resumes(),
            credit: config.credit,
            stream_credit: config.stream_credit,
        };
        let (welcome, early) = handshake::send_hello(&mut io, hello).await?;
        self.0.dialer.borrow_mut().accept(welcome.instance).map_err(|kind| match kind {
            FailureKind::UnknownSession => {
                let words = "the session has begun again at the gateway".to_owned();
                HandshakeError::Refused(RefuseCode::UnknownSession, words)
            }
            _ => HandshakeError::OtherSession,
        })?;
        let families = AddressFamilies { v4: welcome.v4, v6: welcome.v6 };
        self.0.families.send_replace(Some(families));
        self.0.lends.set(Some(welcome.lends));
        let handle = &self.0.handle;
        let (credit, stream_credit) = (welcome.credit, welcome.stream_credit);
        handle.handle(Input::InitialCredit { credit, stream_credit });
        let carrier: CarrierId = handle.attach(id, io, early);
        self.set_attempt(id, None);
        self.dialer(dial::Input::Connected(id, carrier));
        Ok(())
    }

    async fn connect_tcp(
        &self,
        spec: &PathSpec,
        packets: PacketSize,
    ) -> Result<CarrierIo, HandshakeError> {
        let config = happy_eyeballs::Config::default();
        let connect = |server| self.connect_tcp_at(spec, server, packets);
        let stream = self.race(spec, config, connect).await?;
        // A NAT may remove the mapping of an idle connection after some minutes.
        if let Some(idle) = self.0.keepalive {
            let config = carrier::Config::default();
            let keepalive = socket2::TcpKeepalive::new()
                .with_time(idle)
                .with_interval(config.keepalive_interval.into())
                .with_retries(config.keepalive_probes);
            let _ = socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive);
        }
        let name = ServerName::try_from(SERVER_NAME).map_err(|error| {
            HandshakeError::ConnectionLost(LossCause::Io(io::Error::other(error)))
        })?;
        let connector = TlsConnector::from(Arc::clone(&self.0.tls));
        let protocols = vec![tls::ALPN_PROTOCOL.to_vec(), self.0.proof.protocol()];
        let connected = connector.with_alpn(protocols).connect(name, stream).await;
        let (stream, tls) = connected.map_err(HandshakeError::from_tls_io)?.into_inner();
        Ok(CarrierIo::Tcp(Box::new(TcpCarrier::new(stream, Connection::Client(tls)))))
    }

    async fn connect_quic(&self, spec: &PathSpec) -> Result<CarrierIo, HandshakeError> {
        let config = happy_eyeballs::Config::sequential(self.0.config.quic_address_timeout);
        self.race(spec, config, |server| self.connect_quic_at(spec, server)).await
    }

    /// Connects to one of the gateway's addresses that has a family of the path.
    async fn race<T, F>(
        &self,
        spec: &PathSpec,
        config: happy_eyeballs::Config,
        connect: impl Fn(SocketAddr) -> F,
    ) -> Result<T, HandshakeError>
    where
        F: Future<Output = Result<T, HandshakeError>>,
    {
        if !spec.has_carrier() {
            return Err(HandshakeError::LinkDown);
        }
        let mut servers = self.0.dialer.borrow().gateway().to_vec();
        servers.retain(|server| spec.has_family(server.ip()));
        if servers.is_empty() {
            return Err(HandshakeError::NoAddress);
        }
        let is_final = HandshakeError::is_permanent;
        let raced = race(config, ready(Ok(servers)), pending(), connect, is_final).await;
        raced.map(|(connection, _)| connection).map_err(|error| match error {
            RaceError::Failed(Some(error)) => error,
            RaceError::Failed(None) | RaceError::TimedOut => HandshakeError::Timeout,
        })
    }

    async fn connect_tcp_at(
        &self,
        spec: &PathSpec,
        server: SocketAddr,
        packets: PacketSize,
    ) -> Result<TcpStream, HandshakeError> {
        let failed = |error: io::Error| HandshakeError::Connect(server, error);
        let socket = socket(spec, server).map_err(failed)?;
        if packets == PacketSize::Small {
            // The limit of both directions: the gateway learns it from the handshake.
            socket2::SockRef::from(&socket).set_tcp_mss(SMALL_SEGMENT).map_err(failed)?;
        }
        if let Some(mark) = self.0.socket_mark {
            manyways_sys::socket::set_mark(&socket, mark).map_err(failed)?;
        }
        socket.connect(server).await.map_err(failed)
    }

    async fn connect_quic_at(
        &self,
        spec: &PathSpec,
        server: SocketAddr,
    ) -> Result<CarrierIo, HandshakeError> {
        let failed = |error: io::Error| HandshakeError::Connect(server, error);
        let socket = udp_socket(spec, server).map_err(failed)?;
        if let Some(mark) = self.0.socket_mark {
            manyways_sys::socket::set_mark(&socket, mark).map_err(failed)?;
        }
        let endpoint = quic::client_endpoint(socket).map_err(failed)?;
        let config =
            quic::client_config(&self.0.tls, &self.0.proof).map_err(HandshakeError::Quic)?;
        let connecting = endpoint
            .connect_with(config, server, SERVER_NAME)
            .map_err(|error| HandshakeError::Quic(error.into()))?;
        let connection = connecting.await.map_err(HandshakeError::from_quic)?;
        let streams = connection.open_bi().await.map_err(HandshakeError::from_quic)?;
        Ok(CarrierIo::Quic(Box::new(QuicCarrier::new(connection, streams, Some(endpoint)))))
    }
}

fn new_session() -> [u8; 16] {
    let mut id = [0; 16];
    // If the system has no random numbers, TLS fails first.
    let _ = SystemRandom::new().fill(&mut id);
    id
}
