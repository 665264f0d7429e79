//! The client: one carrier a network, kept up, and one session over all of them.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use manyways_proto::mux::{
    CarrierId, Config, FlowId, Hello, Input, RefuseCode, Role, StreamId, Target, VERSION,
};
use manyways_proto::sched::PathId;
use manyways_unit::Span;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, Connection};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::carrier::{CarrierError, Io, TcpCarrier};
use super::gateway::ABSENCE;
use super::greeting::{self, GreetError, PATIENCE};
use super::key::{PrivateKey, PublicKey};
use super::quic::{self, QuicCarrier};
use super::session::{Event, Handle};
use super::tally::Counted;
use super::tls;
use crate::fetch::PathSpec;
use crate::fetch::dial;

/// A path whose carrier ended is tried again after this, and after twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The gateway is known by its key, so the name in the handshake is nobody's.
const NOBODY: &str = "gateway.invalid";
/// TCP gets so long before QUIC is tried as well.
const TCP_PATIENCE: Duration = Duration::from_secs(3);
const QUIC_PATIENCE: Duration = Duration::from_secs(6);
/// Where TCP got through, it may be refused so often before QUIC is tried.
const TRUST: u8 = 4;
/// The gateway's next address is tried after this.
const STAGGER: Duration = Duration::from_millis(250);
/// A carrier that does not get through for so long may be forgotten on the way: another is tried.
const DOUBT: Duration = Duration::from_millis(800);
/// The gateway's name is looked up no more often.
const LOOKUP: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// When all paths have slept for so long, the gateway may forget the session before one is awake.
const FORGOTTEN: Duration = ABSENCE.saturating_sub(Duration::from_secs(15));

/// Who the gateway is, and who this is.
#[derive(Debug)]
pub struct Identity {
    /// Where the gateway listens; all of a family that a path has are tried.
    pub gateway: Vec<SocketAddr>,
    /// Its name and port, which may stand for other addresses one day.
    pub name: Option<String>,
    /// The gateway's key.
    pub gateway_key: PublicKey,
    /// The client's own.
    pub key: PrivateKey,
}

/// What carriers go over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// TCP with TLS.
    Tcp,
    /// QUIC.
    Quic,
    /// TCP, and QUIC on a path where TCP does not get through.
    #[default]
    Auto,
}

/// How a client keeps its carriers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Keeping {
    /// What they go over.
    pub transport: Transport,
    /// An idle TCP carrier is kept from being forgotten on the way by a packet so often.
    pub keepalive: Option<Duration>,
    /// What the client's own sockets bear.
    pub mark: Option<u32>,
}

/// What the client tells who looks on.
#[derive(Clone, Debug)]
pub enum Progress {
    /// A path has a carrier.
    Up {
        /// Its name.
        path: String,
    },
    /// A path has none any more.
    Down {
        /// Its name.
        path: String,
        /// Why.
        why: String,
    },
    /// A path got none.
    Failed {
        /// Its name.
        path: String,
        /// Why.
        why: Arc<GreetError>,
    },
    /// The gateway has forgotten the session; connections of before have ended.
    Renewed,
    /// The gateway's name stands for other addresses than before.
    Moved {
        /// These.
        to: Vec<SocketAddr>,
    },
}

/// What the client tells those that follow its traffic.
#[derive(Debug)]
pub(super) enum Noted {
    /// A path came, went or seems not to get through.
    Paths,
    /// The stream of that number has as many bytes as somebody wanted to know of.
    Reached(u64),
    /// A stream is over.
    Closed(Counted),
}

/// A client; cheap to clone.
#[derive(Clone)]
pub struct Client(Rc<Inner>);

struct Inner {
    gateway: watch::Sender<Vec<SocketAddr>>,
    /// Told when no path finds the gateway.
    lost: Notify,
    tls: Arc<ClientConfig>,
    mark: Option<u32>,
    transport: Transport,
    keepalive: Option<Duration>,
    handle: Handle,
    session: Cell<[u8; 16]>,
    /// The gateway knows the session.
    known: Cell<bool>,
    families: watch::Sender<Option<(bool, bool)>>,
    paths: RefCell<Vec<Path>>,
    /// Who waits for datagrams of a flow.
    flows: RefCell<HashMap<FlowId, mpsc::UnboundedSender<(Target, Bytes)>>>,
    next_flow: Cell<u32>,
    progress: mpsc::UnboundedSender<Progress>,
    notes: RefCell<Option<mpsc::UnboundedSender<Noted>>>,
}

struct Path {
    spec: PathSpec,
    carrier: Option<CarrierId>,
    /// Since then it has none because there was nothing to say, and gets one when there is.
    asleep: Option<Instant>,
    /// TCP may fail so often before QUIC is tried.
    trust: u8,
    /// Told when its keeper shall look at once.
    wake: Rc<Notify>,
    keeper: AbortHandle,
}

impl Client {
    /// A client without paths, and what it tells. Runs on the calling thread's local tasks.
    ///
    /// # Errors
    /// Where TLS cannot be set up.
    pub fn new(
        identity: Identity,
        keeping: Keeping,
    ) -> Result<(Self, mpsc::UnboundedReceiver<Progress>), rustls::Error> {
        let tls = tls::client(&identity.key, identity.gateway_key)?;
        let (handle, events) = Handle::new(Config::new(Role::Client));
        let (progress, told) = mpsc::unbounded_channel();
        let client = Self(Rc::new(Inner {
            gateway: watch::Sender::new(identity.gateway),
            lost: Notify::new(),
            tls,
            mark: keeping.mark,
            transport: keeping.transport,
            keepalive: keeping.keepalive,
            handle,
            session: Cell::new(new_session()),
            known: Cell::new(false),
            families: watch::Sender::new(None),
            paths: RefCell::default(),
            flows: RefCell::default(),
            next_flow: Cell::new(0),
            progress,
            notes: RefCell::default(),
        }));
        client.0.handle.with(|session| session.tally.count_single());
        tokio::task::spawn_local(client.clone().listen(events));
        if let Some(name) = identity.name {
            tokio::task::spawn_local(client.clone().seek(name));
        }
        Ok((client, told))
    }

    /// Uses a path from now on, and keeps a carrier on it.
    pub fn add_path(&self, spec: PathSpec) -> PathId {
        let id = PathId(self.0.paths.borrow().len() as u8);
        let wake = Rc::new(Notify::new());
        let keeper = tokio::task::spawn_local(self.clone().keep(id, Rc::clone(&wake)));
        let keeper = keeper.abort_handle();
        self.0.paths.borrow_mut().push(Path {
            spec,
            carrier: None,
            asleep: None,
            trust: 0,
            wake,
            keeper,
        });
        self.note(Noted::Paths);
        id
    }

    /// What is known of the paths anew: their numbers and names stay.
    pub fn path_changed(&self, id: PathId, spec: PathSpec) {
        if let Some(path) = self.0.paths.borrow_mut().get_mut(usize::from(id.0)) {
            path.spec = spec;
            path.wake.notify_one();
        }
        self.note(Noted::Paths);
    }

    /// A path's interface works no more: what was under way there goes elsewhere at once.
    pub fn path_down(&self, id: PathId) {
        let carrier = self.take_carrier(id);
        if let Some(carrier) = carrier {
            self.0.handle.detach(carrier);
            // The gateway is not to find out by waiting.
            self.0.handle.handle(Input::PathDown { path: id });
            self.tell(Progress::Down { path: self.name(id), why: "its link is down".to_owned() });
        }
    }

    /// The paths' names, by number.
    pub fn paths(&self) -> Vec<String> {
        self.0.paths.borrow().iter().map(|path| path.spec.name.clone()).collect()
    }

    /// Where the gateway is.
    pub fn gateway(&self) -> Vec<SocketAddr> {
        self.0.gateway.borrow().clone()
    }

    /// Says when the gateway is somewhere else.
    pub(super) fn follow_gateway(&self) -> watch::Receiver<Vec<SocketAddr>> {
        self.0.gateway.subscribe()
    }

    /// Waits until the gateway has said which address families it reaches: IPv4, IPv6.
    pub async fn families(&self) -> (bool, bool) {
        let mut families = self.0.families.subscribe();
        loop {
            if let Some(known) = *families.borrow_and_update() {
                return known;
            }
            if families.changed().await.is_err() {
                return (false, false);
            }
        }
    }

    /// Which families the gateway reaches, if it has said so.
    pub fn known_families(&self) -> Option<(bool, bool)> {
        *self.0.families.borrow()
    }

    /// The wall clock at the origin of the client's times, since the Unix epoch.
    pub fn epoch(&self) -> Span {
        self.0.handle.with(|session| session.epoch())
    }

    /// Carries an application's connection. `first` was read of it already. The stream, and its
    /// number among all of the client.
    pub fn carry(
        &self,
        socket: TcpStream,
        target: Target,
        label: u8,
        first: Bytes,
    ) -> (StreamId, u64) {
        self.rouse();
        self.0.handle.open(socket, target, label, first)
    }

    /// A flow of datagrams: its number, and what comes back.
    pub fn open_flow(&self) -> (FlowId, mpsc::UnboundedReceiver<(Target, Bytes)>) {
        let number = self.0.next_flow.get();
        self.0.next_flow.set(number.wrapping_add(1));
        self.rouse();
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.flows.borrow_mut().insert(FlowId(number), sender);
        (FlowId(number), receiver)
    }

    /// Sends a datagram of a flow.
    pub fn send(&self, flow: FlowId, label: u8, to: Target, data: Bytes) {
        self.rouse();
        let data = super::carrier::Chunk(data);
        self.0.handle.handle(Input::Datagram { flow, label, peer: to, data });
    }

    /// A flow is over.
    pub fn close_flow(&self, flow: FlowId) {
        if self.0.flows.borrow_mut().remove(&flow).is_some() {
            self.0.handle.with(|session| session.tally.end_flow(flow));
            self.0.handle.handle(Input::CloseFlow { flow });
        }
    }

    /// Runs until `stop` is ready, and ends the session then.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        stop.await;
        self.0.handle.close();
        for path in self.0.paths.borrow().iter() {
            path.keeper.abort();
        }
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.0.handle
    }

    fn name(&self, id: PathId) -> String {
        let paths = self.0.paths.borrow();
        paths.get(usize::from(id.0)).map(|path| path.spec.name.clone()).unwrap_or_default()
    }

    /// Whom to tell what happens.
    pub(super) fn note_to(&self, notes: mpsc::UnboundedSender<Noted>) {
        self.0.notes.replace(Some(notes));
    }

    /// To whom a flow's datagrams go, also those that come past the bond.
    pub(super) fn receiver(&self, flow: FlowId) -> Option<mpsc::UnboundedSender<(Target, Bytes)>> {
        self.0.flows.borrow().get(&flow).cloned()
    }

    fn note(&self, noted: Noted) {
        if let Some(notes) = &*self.0.notes.borrow() {
            let _ = notes.send(noted);
        }
    }

    fn tell(&self, progress: Progress) {
        self.note(Noted::Paths);
        let _ = self.0.progress.send(progress);
    }

    fn take_carrier(&self, id: PathId) -> Option<CarrierId> {
        self.0.paths.borrow_mut().get_mut(usize::from(id.0))?.carrier.take()
    }

    async fn listen(self, mut events: mpsc::UnboundedReceiver<Event>) {
        while let Some(event) = events.recv().await {
            match event {
                Event::Lost { carrier, path, why } => {
                    let own = {
                        let mut paths = self.0.paths.borrow_mut();
                        let Some(path) = paths.get_mut(usize::from(path.0)) else { continue };
                        let own = path.carrier == Some(carrier);
                        if own {
                            path.carrier = None;
                            let sleeps = matches!(why, CarrierError::Silent) && !self.is_used();
                            path.asleep = sleeps.then(Instant::now);
                            path.wake.notify_one();
                        }
                        own && path.asleep.is_none()
                    };
                    if own {
                        self.tell(Progress::Down { path: self.name(path), why: why.to_string() });
                    }
                }
                Event::Suspect { path, .. } => {
                    self.note(Noted::Paths);
                    // A new connection may get through where an old one was forgotten on the way.
                    if let Some(path) = self.0.paths.borrow().get(usize::from(path.0)) {
                        path.wake.notify_one();
                    }
                }
                Event::Datagram { flow, peer, data, .. } => {
                    let flows = self.0.flows.borrow();
                    if let Some(receiver) = flows.get(&flow) {
                        let _ = receiver.send((peer, data));
                    }
                }
                Event::CloseFlow { flow } => {
                    self.0.flows.borrow_mut().remove(&flow);
                    self.0.handle.with(|session| session.tally.end_flow(flow));
                }
                Event::Reached { number } => self.note(Noted::Reached(number)),
                Event::Closed { counted } => self.note(Noted::Closed(counted)),
                Event::Bye => self.renew(),
                Event::Open { stream, .. } => {
                    tracing::debug!("the gateway opened stream {} to the client", stream.0);
                }
            }
        }
    }

    /// The gateway knows the session no more: a new one begins.
    fn renew(&self) {
        if !self.0.known.get() {
            return;
        }
        self.begin_anew();
        for path in self.0.paths.borrow_mut().iter_mut() {
            path.carrier = None;
            path.wake.notify_one();
        }
        self.tell(Progress::Renewed);
    }

    fn begin_anew(&self) {
        self.0.known.set(false);
        self.0.session.set(new_session());
        self.0.handle.with(|session| session.renew(Config::new(Role::Client)));
        self.0.flows.borrow_mut().clear();
    }

    /// Whether a path has a carrier that gets through as far as is known, or would have one if there
    /// were anything to say.
    pub fn is_connected(&self) -> bool {
        let is_suspect = |carrier| self.0.handle.with(|session| session.is_suspect(carrier));
        let paths = self.0.paths.borrow();
        paths.iter().any(|path| match path.carrier {
            Some(carrier) => !is_suspect(carrier),
            None => path.asleep.is_some(),
        })
    }

    /// Whether an application has a connection or a flow.
    fn is_used(&self) -> bool {
        let streams = self.0.handle.with(|session| session.mux.stream_count());
        streams > 0 || !self.0.flows.borrow().is_empty()
    }

    /// Somebody has something to say.
    fn rouse(&self) {
        // Said in a session that the gateway does not know any more, it would be lost.
        if self.0.known.get() && self.has_slept_long() && !self.is_used() {
            self.begin_anew();
        }
        for path in self.0.paths.borrow_mut().iter_mut() {
            if path.asleep.take().is_some() {
                path.wake.notify_one();
            }
        }
    }

    /// Whether no path has a carrier, and the last one to fall asleep did so long ago.
    fn has_slept_long(&self) -> bool {
        let paths = self.0.paths.borrow();
        let last = paths.iter().filter_map(|path| path.asleep).max();
        paths.iter().all(|path| path.carrier.is_none())
            && last.is_some_and(|since| since.elapsed() > FORGOTTEN)
    }

    pub(super) fn is_asleep(&self, id: PathId) -> bool {
        self.0.paths.borrow().get(usize::from(id.0)).is_some_and(|path| path.asleep.is_some())
    }

    /// Looks the gateway's name up anew when no path finds it where it was.
    async fn seek(self, name: String) {
        loop {
            self.0.lost.notified().await;
            match tokio::net::lookup_host(&name).await {
                Ok(found) => self.is_at(found.collect()),
                Err(error) => tracing::debug!("the gateway {name} is not found: {error}"),
            }
            tokio::time::sleep(LOOKUP).await;
        }
    }

    /// Dials the gateway there from now on, unless that is where it was.
    fn is_at(&self, found: Vec<SocketAddr>) {
        let known: HashSet<SocketAddr> = self.gateway().into_iter().collect();
        // A resolver may turn the addresses round each time.
        if found.is_empty() || known == found.iter().copied().collect() {
            return;
        }
        self.0.gateway.send_replace(found.clone());
        self.tell(Progress::Moved { to: found });
        for path in self.0.paths.borrow().iter() {
            path.wake.notify_one();
        }
    }

    /// Keeps a carrier on a path.
    async fn keep(self, id: PathId, wake: Rc<Notify>) {
        let mut pause = FIRST_PAUSE;
        let mut said = None;
        loop {
            while self.is_asleep(id) {
                wake.notified().await;
            }
            match timeout(PATIENCE, self.dial(id)).await.unwrap_or(Err(GreetError::Timeout)) {
                Ok(()) => {
                    pause = FIRST_PAUSE;
                    said = None;
                    self.tell(Progress::Up { path: self.name(id) });
                    self.until_useless(id, &wake).await;
                    continue;
                }
                Err(GreetError::Refused(RefuseCode::Unknown, _)) => {
                    self.renew();
                    // One that says so again and again is not to be asked without a pause.
                    tokio::time::sleep(FIRST_PAUSE / 4).await;
                    continue;
                }
                Err(why) => {
                    let words = why.to_string();
                    // One that has a carrier, which only seems not to get through, keeps it.
                    if said.as_ref() != Some(&words) {
                        let path = self.name(id);
                        self.tell(Progress::Failed { path, why: Arc::new(why) });
                        said = Some(words);
                    }
                    if !self.is_connected() {
                        self.0.lost.notify_one();
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                () = wake.notified() => pause = FIRST_PAUSE,
            }
        }
    }

    /// Returns when a path's carrier is gone, or does not get through for so long that another may.
    async fn until_useless(&self, id: PathId, wake: &Notify) {
        loop {
            wake.notified().await;
            let suspect = || {
                let paths = self.0.paths.borrow();
                let carrier = paths.get(usize::from(id.0))?.carrier?;
                Some(self.0.handle.with(|session| session.is_suspect(carrier)))
            };
            match suspect() {
                None => return,
                Some(false) => {}
                Some(true) => {
                    tokio::select! {
                        () = tokio::time::sleep(DOUBT) => {}
                        () = wake.notified() => {}
                    }
                    if suspect() != Some(false) {
                        return;
                    }
                }
            }
        }
    }

    async fn dial(&self, id: PathId) -> Result<(), GreetError> {
        let spec = {
            let paths = self.0.paths.borrow();
            let Some(path) = paths.get(usize::from(id.0)) else { return Err(GreetError::Timeout) };
            path.spec.clone()
        };
        let mut io = match self.0.transport {
            Transport::Tcp => self.dial_tcp(&spec).await?,
            Transport::Quic => self.dial_quic(&spec).await?,
            Transport::Auto => self.dial_either(id, &spec).await?,
        };
        let config = Config::new(Role::Client);
        let session = self.0.session.get();
        let hello = Hello {
            version: VERSION,
            session,
            path: id,
            resumes: self.0.known.get(),
            credit: config.credit,
            stream_credit: config.stream_credit,
        };
        let (welcome, early) = greeting::hello(&mut io, hello).await?;
        if self.0.session.get() != session {
            return Err(GreetError::Broken("the session was renewed meanwhile".to_owned()));
        }
        self.0.known.set(true);
        self.0.families.send_replace(Some((welcome.v4, welcome.v6)));
        let handle = &self.0.handle;
        let (credit, stream_credit) = (welcome.credit, welcome.stream_credit);
        handle.handle(Input::Allowance { credit, stream_credit });
        let old = self.take_carrier(id);
        let carrier = handle.attach(id, io, early);
        if let Some(path) = self.0.paths.borrow_mut().get_mut(usize::from(id.0)) {
            path.carrier = Some(carrier);
        }
        if let Some(old) = old {
            handle.detach(old);
        }
        Ok(())
    }

    /// TCP, and QUIC where it does not get through: what lets TCP down may let UDP pass.
    async fn dial_either(&self, id: PathId, spec: &PathSpec) -> Result<Io, GreetError> {
        let tcp = timeout(TCP_PATIENCE, self.dial_tcp(spec)).await;
        let why = match tcp.unwrap_or(Err(GreetError::Timeout)) {
            Ok(io) => {
                self.trust_tcp(id, |trust| *trust = TRUST);
                return Ok(io);
            }
            Err(why) if why.lasts() => return Err(why),
            Err(why) => why,
        };
        // A gateway that is started anew refuses for a moment what it takes again soon.
        let trusted = self.trust_tcp(id, |trust| std::mem::replace(trust, trust.saturating_sub(1)));
        if !matches!(why, GreetError::Timeout) && trusted > Some(0) {
            return Err(why);
        }
        match timeout(QUIC_PATIENCE, self.dial_quic(spec)).await {
            Ok(Ok(io)) => Ok(io),
            Ok(Err(clear)) if clear.lasts() => Err(clear),
            _ => Err(why),
        }
    }

    /// How often a path's TCP may fail before QUIC is tried.
    fn trust_tcp<R>(&self, id: PathId, change: impl FnOnce(&mut u8) -> R) -> Option<R> {
        let mut paths = self.0.paths.borrow_mut();
        paths.get_mut(usize::from(id.0)).map(|path| change(&mut path.trust))
    }

    async fn dial_tcp(&self, spec: &PathSpec) -> Result<Io, GreetError> {
        let stream = self.connect(spec).await?;
        // What a NAT on the way remembers lasts so long, and no longer.
        if let Some(idle) = self.0.keepalive {
            let keepalive = socket2::TcpKeepalive::new().with_time(idle);
            let keepalive = keepalive.with_interval(Duration::from_secs(10)).with_retries(3);
            let _ = socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive);
        }
        let name =
            ServerName::try_from(NOBODY).map_err(|error| GreetError::Broken(error.to_string()))?;
        let connector = TlsConnector::from(Arc::clone(&self.0.tls));
        let connected = connector.connect(name, stream).await;
        let (stream, tls) =
            connected.map_err(|error| GreetError::of_handshake(&error))?.into_inner();
        Ok(Io::Tcp(Box::new(TcpCarrier::new(stream, Connection::Client(tls)))))
    }

    async fn dial_quic(&self, spec: &PathSpec) -> Result<Io, GreetError> {
        let mut last = GreetError::Timeout;
        for server in self.servers(spec)? {
            match timeout(QUIC_PATIENCE / 2, self.dial_quic_at(spec, server)).await {
                Ok(Ok(io)) => return Ok(io),
                Ok(Err(why)) if why.lasts() => return Err(why),
                Ok(Err(why)) => last = why,
                Err(_) => {}
            }
        }
        Err(last)
    }

    async fn dial_quic_at(&self, spec: &PathSpec, server: SocketAddr) -> Result<Io, GreetError> {
        let plain = |error: io::Error| {
            let words = format!("no connection to {server}: {}", dial::plain(&error));
            GreetError::Connect(words)
        };
        let socket = dial::udp_socket(spec, server).map_err(plain)?;
        if let Some(mark) = self.0.mark {
            manyways_sys::socket::set_mark(&socket, mark).map_err(plain)?;
        }
        let endpoint = quic::client_endpoint(socket).map_err(plain)?;
        let config = quic::client_config(&self.0.tls).map_err(GreetError::Broken)?;
        let connecting = endpoint
            .connect_with(config, server, NOBODY)
            .map_err(|error| GreetError::Connect(error.to_string()))?;
        let connection = connecting.await.map_err(|error| GreetError::of_quic(&error))?;
        let streams = connection.open_bi().await.map_err(|error| GreetError::of_quic(&error))?;
        Ok(Io::Quic(Box::new(QuicCarrier::new(connection, streams, Some(endpoint)))))
    }

    /// The gateway's addresses for a path.
    fn servers(&self, spec: &PathSpec) -> Result<Vec<SocketAddr>, GreetError> {
        let failed = |words: &str| GreetError::Connect(words.to_owned());
        if !spec.has_carrier() {
            return Err(failed("its link is down"));
        }
        let mut servers = self.gateway();
        servers.retain(|server| spec.has_family(server.ip()));
        match servers.is_empty() {
            true => Err(failed("it has no address of a family that the gateway has")),
            false => Ok(servers),
        }
    }

    /// The first of the gateway's addresses that answers; each is tried beside those before it
    /// after a moment (RFC 8305 §5).
    async fn connect(&self, spec: &PathSpec) -> Result<TcpStream, GreetError> {
        let mut waiting = self.servers(spec)?.into_iter();
        let mut attempts = tokio::task::JoinSet::new();
        let mut last = GreetError::Timeout;
        loop {
            match waiting.next() {
                Some(server) => {
                    let (client, spec) = (self.clone(), spec.clone());
                    attempts.spawn_local(async move { client.connect_to(&spec, server).await });
                }
                None if attempts.is_empty() => return Err(last),
                None => {}
            }
            let more = waiting.len() > 0;
            let ended = tokio::select! {
                ended = attempts.join_next() => ended,
                () = tokio::time::sleep(STAGGER), if more => continue,
            };
            match ended {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err(why))) => last = why,
                _ => {}
            }
        }
    }

    async fn connect_to(
        &self,
        spec: &PathSpec,
        server: SocketAddr,
    ) -> Result<TcpStream, GreetError> {
        let server = &server;
        let failed = |words: String| GreetError::Connect(words);
        let plain = |error: io::Error| {
            failed(format!("no connection to {server}: {}", dial::plain(&error)))
        };
        let socket = dial::socket(spec, *server).map_err(plain)?;
        if let Some(mark) = self.0.mark {
            manyways_sys::socket::set_mark(&socket, mark).map_err(plain)?;
        }
        socket.connect(*server).await.map_err(plain)
    }
}

fn new_session() -> [u8; 16] {
    let mut id = [0; 16];
    // Without random numbers TLS would not have begun.
    let _ = SystemRandom::new().fill(&mut id);
    id
}
