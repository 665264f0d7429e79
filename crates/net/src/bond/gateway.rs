//! The gateway: lets clients in and takes their connections on.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use manyways_proto::mux::{
    Config, Hello, Input, RefuseCode, ResetCode, Role, StreamId, Target, VERSION, Welcome,
};
use manyways_sys::interface;
use manyways_unit::Rate;
use manyways_unit::human::counted;
use rustls::Connection;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

use super::allow::{AllowFile, Guest, Limits};
use super::carrier::{Io, TcpCarrier};
use super::door::Door;
use super::handshake;
use super::key::{PrivateKey, PublicKey};
use super::limit::{Limit, Way};
use super::quic::{self, QuicCarrier};
use super::session::{Event, Handle};
use super::status::Totals;
use super::strangers::Strangers;
use super::tls;
use super::udp::Outlets;

/// A session without carriers is kept for so long: its client may be changing networks.
pub(super) const ABSENCE: Duration = Duration::from_secs(45);
/// Where there is no room for another session of a key, those that are there get so long to give a
/// sign of life.
const DOUBT: Duration = Duration::from_secs(5);
/// How long a handshake may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// A client that says nothing for so long may have lost its power.
const IDLE: Duration = Duration::from_secs(3600);
/// A server gets so long to answer.
const CONNECT: Duration = Duration::from_secs(15);
/// Its next address is tried beside the one before it after this (RFC 8305 §5).
const STAGGER: Duration = Duration::from_millis(250);
/// Who is to go is looked for so often.
const SWEEP: Duration = Duration::from_secs(5);
const MOST_ADDRESSES: usize = 8;
/// So many keys that are not known are remembered.
const MOST_STRANGERS: usize = 1000;

/// What a gateway is told.
#[derive(Debug)]
pub struct GatewayConfig {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Its own key.
    pub key: PrivateKey,
    /// Whom it lets in.
    pub allow: AllowFile,
    /// Where it lets them go.
    pub door: Door,
}

/// Why a gateway does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// It cannot listen there.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// It does not know which addresses are its own, where no client may go.
    #[error("cannot tell this host's addresses: {0}")]
    Addresses(#[from] interface::ListError),
}

struct Gateway {
    allow: AllowFile,
    door: Door,
    /// This host's addresses, as they were lately.
    own: RefCell<Vec<IpAddr>>,
    sessions: RefCell<HashMap<(PublicKey, [u8; 16]), Session>>,
    /// Of the keys that have one.
    limits: RefCell<HashMap<PublicKey, Limit>>,
}

struct Session {
    handle: Handle,
    guest: Guest,
    carriers: u32,
    empty_since: Option<Instant>,
    /// It was asked for a sign of life.
    doubted: bool,
    /// Its key was not in the allow-file lately.
    unlisted: bool,
    /// Does what its client wants.
    server: AbortHandle,
}

/// Name and version of the schema of [`GatewayStatus`].
pub const STATUS_SCHEMA: &str = "manyways.bond-gateway-status/1";

/// What a gateway is doing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// [`STATUS_SCHEMA`].
    pub schema: String,
    /// Its version.
    pub version: String,
    /// Its clients.
    pub sessions: Vec<SessionStatus>,
}

/// What one session of a client is doing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SessionStatus {
    /// The client's name in the allow-file.
    pub client: String,
    /// Streams that are open.
    pub stream_count: usize,
    /// Its paths, by the client's numbers.
    pub paths: Vec<SessionPath>,
    /// Since it began.
    pub totals: Totals,
}

/// One path of a session.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SessionPath {
    /// The client's number for it.
    pub path: u8,
    /// `up`, `suspect` or `down`.
    pub state: String,
    /// Its round trip.
    pub rtt_seconds: Option<f64>,
    /// What came since the session began.
    pub received_bytes: u64,
    /// What went.
    pub sent_bytes: u64,
}

/// Tells what a gateway is doing while it runs; cheap to clone.
#[derive(Clone)]
pub struct Onlooker(Rc<Gateway>);

impl Onlooker {
    /// What it is doing.
    pub fn status(&self) -> GatewayStatus {
        let sessions = self.0.sessions.borrow();
        let mut sessions: Vec<SessionStatus> = sessions.values().map(Session::status).collect();
        sessions.sort_by(|a, b| a.client.cmp(&b.client));
        GatewayStatus {
            schema: STATUS_SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sessions,
        }
    }
}

impl Session {
    /// Ends it: its connections, and the sockets of its datagrams.
    fn end(&self) {
        self.handle.close();
        self.server.abort();
    }

    fn status(&self) -> SessionStatus {
        self.handle.with(|session| {
            let carriers = session.status();
            let paths = session.traffic().into_iter().map(|(path, share)| {
                let own = carriers.iter().filter(|(_, carrier)| carrier.path == path);
                let newest = own.clone().next_back().map(|(_, carrier)| carrier);
                SessionPath {
                    path: path.0,
                    state: match newest {
                        None => "down",
                        Some(carrier) if carrier.suspect => "suspect",
                        Some(_) => "up",
                    }
                    .to_owned(),
                    rtt_seconds: newest
                        .and_then(|carrier| carrier.condition)
                        .map(|condition| condition.rtt.as_secs_f64()),
                    received_bytes: share.received,
                    sent_bytes: share.sent,
                }
            });
            SessionStatus {
                client: self.guest.name.clone(),
                stream_count: session.mux.stream_count(),
                paths: paths.collect(),
                totals: session.mux.counters().into(),
            }
        })
    }
}

/// A gateway that listens.
pub struct Listening {
    listeners: Vec<TcpListener>,
    endpoints: Vec<quinn::Endpoint>,
    acceptor: TlsAcceptor,
    gateway: Rc<Gateway>,
}

/// Binds the sockets. [`Listening::run`] serves them.
///
/// # Errors
/// Where it cannot listen, or TLS cannot be set up.
pub fn listen(config: GatewayConfig) -> Result<Listening, GatewayError> {
    let allow = config.allow.clone();
    let said = Mutex::new(HashSet::new());
    let doorman = move |key: &PublicKey| {
        let known = allow.guests().find(key).is_some();
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        say_key(&mut said, key, known);
        known
    };
    let tls = tls::gateway(&config.key, Arc::new(doorman))?;
    let (mut listeners, mut endpoints) = (Vec::new(), Vec::new());
    for address in &config.listen {
        let failed = |error| GatewayError::Listen(*address, error);
        let listener = listener(*address).map_err(failed)?;
        // The same port for both, where the system was to choose it.
        let bound = listener.local_addr().map_err(failed)?;
        listeners.push(listener);
        let socket = std::net::UdpSocket::bind(bound).map_err(failed)?;
        let endpoint = quic::gateway_endpoint(socket, &tls);
        endpoints.push(endpoint.map_err(|error| failed(io::Error::other(error)))?);
    }
    let acceptor = TlsAcceptor::from(tls);
    let gateway = Rc::new(Gateway {
        allow: config.allow,
        door: config.door,
        own: RefCell::new(interface::addresses()?),
        sessions: RefCell::default(),
        limits: RefCell::default(),
    });
    Ok(Listening { listeners, endpoints, acceptor, gateway })
}

fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    TcpListener::from_std(socket.into())
}

/// Whether this host has a way to an address. Nothing is sent: the kernel is asked.
fn has_way(own: &str, to: &str) -> bool {
    std::net::UdpSocket::bind(own).is_ok_and(|socket| socket.connect(to).is_ok())
}

impl Listening {
    /// The addresses at which it listens, ports included.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Somebody who tells what it does.
    pub fn onlooker(&self) -> Onlooker {
        Onlooker(Rc::clone(&self.gateway))
    }

    /// Serves until `stop` is ready. Runs on the calling thread's local tasks.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let strangers = Strangers::default();
        for listener in self.listeners {
            let (acceptor, gateway) = (self.acceptor.clone(), Rc::clone(&self.gateway));
            let strangers = strangers.clone();
            tokio::task::spawn_local(async move {
                loop {
                    let (stream, from) = match listener.accept().await {
                        Ok(accepted) => accepted,
                        Err(error) => {
                            // Out of descriptors, most likely: some may be free soon.
                            tracing::warn!("cannot accept a connection: {error}");
                            tokio::time::sleep(Duration::from_millis(100)).await;
                            continue;
                        }
                    };
                    let (acceptor, gateway) = (acceptor.clone(), Rc::clone(&gateway));
                    strangers.take(async move {
                        let greeted = timeout(PATIENCE, gateway.take_tcp(acceptor, stream)).await;
                        say(from, greeted);
                    });
                }
            });
        }
        for endpoint in self.endpoints {
            let (gateway, strangers) = (Rc::clone(&self.gateway), strangers.clone());
            tokio::task::spawn_local(async move {
                while let Some(incoming) = endpoint.accept().await {
                    let from = incoming.remote_address();
                    // Whoever has not shown that this is its address does so first.
                    if !incoming.remote_address_validated() && strangers.are_many() {
                        let _ = incoming.retry();
                        continue;
                    }
                    let gateway = Rc::clone(&gateway);
                    strangers.take(async move {
                        say(from, timeout(PATIENCE, gateway.take_quic(incoming)).await);
                    });
                }
            });
        }
        let gateway = Rc::clone(&self.gateway);
        let sweep = async move {
            loop {
                gateway.sweep();
                tokio::time::sleep(SWEEP).await;
                match interface::addresses() {
                    Ok(own) => *gateway.own.borrow_mut() = own,
                    Err(error) => tracing::debug!("cannot tell this host's addresses: {error}"),
                }
            }
        };
        tokio::select! {
            () = stop => {}
            () = sweep => {}
        }
        for (_, session) in self.gateway.sessions.borrow_mut().drain() {
            session.end();
        }
    }
}

/// An address as people know it: a socket for both families calls an IPv4 one by another name.
fn shown(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

/// Why a handshake failed. Of a key that is not known, the libraries say it in words of their own,
/// and one of them in nothing but words.
fn why(error: &dyn std::error::Error) -> String {
    let said = error.to_string();
    if said.contains("ApplicationVerificationFailure") {
        return "its key is not in the allow-file".to_owned();
    }
    // The client says so with an alert, and QUIC puts that in other words.
    if said.contains("AccessDenied") || said.contains("access denied") {
        return "it expects a gateway with another key".to_owned();
    }
    said
}

/// Tells the log of a key that is not known. It tries again and again, and is told once: each time
/// there is the line that says from where.
fn say_key(said: &mut HashSet<PublicKey>, key: &PublicKey, known: bool) {
    if known {
        said.remove(key);
        return;
    }
    // Bounded: anybody may come with any key.
    if said.len() >= MOST_STRANGERS {
        said.clear();
    }
    if said.insert(*key) {
        tracing::info!("{key} is not in the allow-file");
    }
}

/// Tells the log who was not let in.
fn say(from: SocketAddr, greeted: Result<Result<(), String>, tokio::time::error::Elapsed>) {
    let from = shown(from);
    match greeted {
        Ok(Ok(())) => {}
        Ok(Err(why)) => tracing::info!("{from} is not let in: {why}"),
        Err(_) => tracing::info!("{from} is not let in: it did not greet"),
    }
}

impl Gateway {
    /// Whether anything of a family can be reached from here: the internet, or what was opened.
    fn reaches(&self, v4: bool) -> bool {
        self.door.open.iter().any(|prefix| prefix.address().is_ipv4() == v4)
            || match v4 {
                true => has_way("0.0.0.0:0", "198.41.0.4:53"),
                false => has_way("[::]:0", "[2001:503:ba3e::2:30]:53"),
            }
    }

    /// A TCP connection that says nothing yet.
    async fn take_tcp(
        self: Rc<Self>,
        acceptor: TlsAcceptor,
        stream: TcpStream,
    ) -> Result<(), String> {
        let keepalive = socket2::TcpKeepalive::new().with_time(IDLE);
        let _ = socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive);
        let accepted = acceptor.accept(stream).await;
        let (stream, tls) = accepted.map_err(|error| why(&error))?.into_inner();
        let key = tls::peer_key(tls.peer_certificates()).ok_or("it has no key")?;
        self.take(key, Io::Tcp(Box::new(TcpCarrier::new(stream, Connection::Server(tls))))).await
    }

    /// The same over QUIC.
    async fn take_quic(self: Rc<Self>, incoming: quinn::Incoming) -> Result<(), String> {
        let connection = incoming.await.map_err(|error| why(&error))?;
        let key = tls::peer_key(quic::certificates(&connection).as_deref());
        let key = key.ok_or("it has no key")?;
        let streams = connection.accept_bi().await.map_err(|error| error.to_string())?;
        self.take(key, Io::Quic(Box::new(QuicCarrier::new(connection, streams, None)))).await
    }

    /// A carrier whose client has proved its key.
    async fn take(self: Rc<Self>, key: PublicKey, mut io: Io) -> Result<(), String> {
        let from = io.peer().map_or_else(|| "somewhere".to_owned(), shown);
        let guests = self.allow.guests();
        let guest = guests.find(&key).ok_or("its key is not in the allow-file any more")?.clone();
        let (hello, early) =
            handshake::read_hello(&mut io).await.map_err(|error| error.to_string())?;
        let id = (key, hello.session);
        let known = self.sessions.borrow().contains_key(&id);
        if hello.resumes && !known {
            let words = "it does not know this session, and may have been started anew";
            handshake::send_refusal(&mut io, RefuseCode::Unknown, words.to_owned()).await;
            return Ok(());
        }
        let count = || self.sessions.borrow().keys().filter(|(owner, _)| *owner == key).count();
        if !known && count() >= guest.limits.sessions as usize {
            self.end_absent(&key);
        }
        let own = count();
        if !known && own >= guest.limits.sessions as usize {
            self.doubt(&key);
            let words = format!("{} has {} already", guest.name, counted(own, "session"));
            handshake::send_refusal(&mut io, RefuseCode::Limit, words.clone()).await;
            return Err(words);
        }
        if !known {
            self.begin(id, guest.clone(), &hello);
        }
        let config = Config::new(Role::Gateway);
        let welcome = Welcome {
            version: VERSION,
            credit: config.credit,
            stream_credit: config.stream_credit,
            streams: u64::from(guest.limits.streams),
            v4: self.reaches(true),
            v6: self.reaches(false),
        };
        handshake::send_welcome(&mut io, welcome).await.map_err(|error| error.to_string())?;
        let mut sessions = self.sessions.borrow_mut();
        let Some(session) = sessions.get_mut(&id) else { return Ok(()) };
        session.carriers += 1;
        session.empty_since = None;
        let handle = session.handle.clone();
        drop(sessions);
        let path = hello.path;
        tracing::info!("{}: path {} from {from} over {}", guest.name, path.0, io.kind());
        handle.attach(path, io, early);
        Ok(())
    }

    fn begin(self: &Rc<Self>, id: (PublicKey, [u8; 16]), guest: Guest, hello: &Hello) {
        let mut config = Config::new(Role::Gateway);
        config.streams = u64::from(guest.limits.streams);
        config.flows = u64::from(guest.limits.flows);
        let (handle, events) = Handle::new(config);
        let (credit, stream_credit) = (hello.credit, hello.stream_credit);
        handle.handle(Input::Allowance { credit, stream_credit });
        let limit = self.limit(id.0, guest.limits.rate);
        handle.with(|session| session.set_limit(limit));
        tracing::info!("{}: a session begins", guest.name);
        let serve = Rc::clone(self).serve(id, guest.clone(), handle.clone(), events);
        let session = Session {
            handle,
            guest,
            carriers: 0,
            empty_since: Some(Instant::now()),
            doubted: false,
            unlisted: false,
            server: tokio::task::spawn_local(serve).abort_handle(),
        };
        self.sessions.borrow_mut().insert(id, session);
    }

    /// What the sessions of a key share.
    fn limit(&self, key: PublicKey, rate: Option<Rate>) -> Option<Limit> {
        let rate = rate?;
        let mut limits = self.limits.borrow_mut();
        let limit = limits.entry(key).or_insert_with(|| Limit::new(rate));
        limit.set(rate);
        Some(limit.clone())
    }

    /// Holds a session to what the allow-file says now, as far as that is possible under way.
    fn hold(&self, key: PublicKey, session: &mut Session, limits: Limits) {
        let before = std::mem::replace(&mut session.guest.limits, limits);
        let name = &session.guest.name;
        if before.rate != limits.rate {
            let limit = self.limit(key, limits.rate);
            session.handle.with(|session| session.set_limit(limit));
            let rate = limits.rate.map_or("without a limit".to_owned(), |rate| rate.to_string());
            tracing::info!("{name}: the rate is {rate} now");
        }
        // Its client was told of these when it came.
        if (before.streams, before.flows) != (limits.streams, limits.flows) {
            tracing::info!("{name}: the new limits of streams and flows are for its next session");
        }
    }

    /// Does what a session's client wants.
    async fn serve(
        self: Rc<Self>,
        id: (PublicKey, [u8; 16]),
        guest: Guest,
        handle: Handle,
        mut events: mpsc::UnboundedReceiver<Event>,
    ) {
        let name = guest.name;
        let outlets = Outlets::new(handle.clone());
        while let Some(event) = events.recv().await {
            match event {
                Event::Open { stream, target } => {
                    let (gateway, handle) = (Rc::clone(&self), handle.clone());
                    let name = name.clone();
                    tokio::task::spawn_local(async move {
                        gateway.connect(&name, &handle, stream, target).await;
                    });
                }
                Event::Datagram { flow, label, peer, data } => {
                    if !handle.with(|session| session.passes(Way::Up, data.len())) {
                        continue;
                    }
                    match self.one_address(&peer).await {
                        Some(to) => outlets.send(flow, label, to, &data).await,
                        None => tracing::debug!("{name}: a datagram to {peer:?} is dropped"),
                    }
                }
                Event::CloseFlow { flow } => outlets.close(flow),
                Event::Lost { path, reason, .. } => {
                    tracing::info!("{name}: path {} has ended: {reason}", path.0);
                    if let Some(session) = self.sessions.borrow_mut().get_mut(&id) {
                        session.carriers = session.carriers.saturating_sub(1);
                        if session.carriers == 0 {
                            session.empty_since = Some(Instant::now());
                        }
                    }
                }
                // A gateway does not count single streams.
                Event::Reached { .. } | Event::Closed { .. } | Event::Recovered { .. } => {}
                Event::Suspect { path, .. } => {
                    tracing::debug!("{name}: path {} does not get through", path.0);
                }
                Event::Bye => {
                    tracing::info!("{name}: the session ends");
                    self.sessions.borrow_mut().remove(&id);
                    return handle.close();
                }
            }
        }
    }

    /// Ends the session of a key whose client has been gone for longest, if there is one: it makes
    /// room for a client that was killed and started anew.
    fn end_absent(&self, key: &PublicKey) {
        let mut sessions = self.sessions.borrow_mut();
        let absent = sessions.iter().filter(|((owner, _), _)| owner == key);
        let absent = absent.filter_map(|(id, session)| Some((session.empty_since?, *id))).min();
        if let Some(gone) = absent.and_then(|(_, id)| sessions.remove(&id)) {
            tracing::info!("{}: a session ends, its client is gone", gone.guest.name);
            gone.end();
        }
    }

    /// Ends those sessions of a key that give no sign of life: where the power of a device fails,
    /// nobody says so, and it is to find room when it is back.
    fn doubt(self: &Rc<Self>, key: &PublicKey) {
        let mut sessions = self.sessions.borrow_mut();
        let own =
            sessions.iter_mut().filter(|((owner, _), session)| owner == key && !session.doubted);
        for (id, session) in own {
            session.doubted = true;
            let before = session.handle.with(|session| {
                session.ask_for_life();
                session.received()
            });
            let (gateway, id) = (Rc::clone(self), *id);
            tokio::task::spawn_local(async move {
                tokio::time::sleep(DOUBT).await;
                let mut sessions = gateway.sessions.borrow_mut();
                let Some(session) = sessions.get_mut(&id) else { return };
                session.doubted = false;
                if session.handle.with(|session| session.received()) == before {
                    tracing::info!("{}: a session ends, its client is silent", session.guest.name);
                    session.end();
                    sessions.remove(&id);
                }
            });
        }
    }

    /// Ends the sessions whose clients have been gone for long, and those of keys that are not let
    /// in any more; the others are held to the limits of now.
    fn sweep(&self) {
        let guests = self.allow.guests();
        self.sessions.borrow_mut().retain(|(key, _), session| {
            if let Some(guest) = guests.find(key) {
                self.hold(*key, session, guest.limits);
            }
            // An editor may empty the file before it fills it again, so one look is not enough.
            let unlisted = guests.find(key).is_none();
            let was_unlisted = std::mem::replace(&mut session.unlisted, unlisted);
            let why = if unlisted && was_unlisted {
                "its key is not in the allow-file any more"
            } else if session.empty_since.is_some_and(|since| since.elapsed() > ABSENCE) {
                "its client is gone"
            } else {
                return true;
            };
            tracing::info!("{}: the session ends, {why}", session.guest.name);
            session.end();
            false
        });
    }

    async fn connect(&self, name: &str, handle: &Handle, stream: StreamId, target: Target) {
        match timeout(CONNECT, self.reach(&target)).await.unwrap_or(Err(ResetCode::Timeout)) {
            Ok(socket) => {
                tracing::debug!("{name}: {target} is reached");
                handle.adopt(stream, socket);
            }
            Err(code) => {
                tracing::info!("{name}: {target} is not reached: {code:?}");
                handle.refuse(stream, code);
            }
        }
    }

    async fn reach(&self, target: &Target) -> Result<TcpStream, ResetCode> {
        let addresses = self.addresses(target).await?;
        let mut attempts = tokio::task::JoinSet::new();
        let mut waiting = addresses.into_iter();
        let mut last = ResetCode::Unreachable;
        loop {
            if let Some(address) = waiting.next() {
                attempts.spawn_local(TcpStream::connect(address));
            } else if attempts.is_empty() {
                return Err(last);
            }
            let more = waiting.len() > 0;
            let ended = tokio::select! {
                ended = attempts.join_next() => ended,
                () = tokio::time::sleep(STAGGER), if more => continue,
            };
            match ended {
                Some(Ok(Ok(socket))) => return Ok(socket),
                Some(Ok(Err(error))) => {
                    last = match error.kind() {
                        io::ErrorKind::ConnectionRefused => ResetCode::Refused,
                        io::ErrorKind::TimedOut => ResetCode::Timeout,
                        _ => ResetCode::Unreachable,
                    };
                }
                _ => {}
            }
        }
    }

    /// The addresses of a target that are open to clients.
    async fn addresses(&self, target: &Target) -> Result<Vec<SocketAddr>, ResetCode> {
        let found: Vec<SocketAddr> = match target {
            Target::Address(address, port) => vec![SocketAddr::new(*address, *port)],
            Target::Name(name, port) => match tokio::net::lookup_host((name.as_str(), *port)).await
            {
                Ok(found) => found.take(MOST_ADDRESSES).collect(),
                Err(_) => return Err(ResetCode::NoName),
            },
        };
        let own = self.own.borrow();
        let open: Vec<SocketAddr> =
            found.iter().copied().filter(|to| self.door.lets(&own, to.ip())).collect();
        match (found.is_empty(), open.is_empty()) {
            (true, _) => Err(ResetCode::NoName),
            (false, true) => Err(ResetCode::Forbidden),
            (false, false) => Ok(open),
        }
    }

    async fn one_address(&self, target: &Target) -> Option<SocketAddr> {
        self.addresses(target).await.ok()?.first().copied()
    }
}

/// An address that a flow's datagram came from, as the protocol says it.
pub(super) fn target(address: SocketAddr) -> Target {
    let ip: IpAddr = address.ip().to_canonical();
    Target::Address(ip, address.port())
}
