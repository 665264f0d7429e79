//! A lender: lets paired devices reach their gateway over a network of this one.
//!
//! It listens for pipes, dials only the gateway on which both devices have agreed, and passes sealed
//! messages on between the two ([`relay`]). It needs no privileges.

mod greetings;
mod lent_network;
mod pairing;
mod pairs;
mod relay;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{pending, ready};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use manyways_proto::bond::egress::EgressFilter;
use manyways_proto::bond::pairing::{Code, CodeError};
use manyways_proto::bond::usage::Usage;
use manyways_proto::happy_eyeballs;
use manyways_proto::mux::{LoanMessage, Message, RefuseCode, TicketId};
use manyways_sys::clock::Clock;
use manyways_sys::interface;
use manyways_sys::socket::{set_user_timeout, tcp_state};
use manyways_unit::{Size, Span, Time};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::ServerName;
use rustls::{Connection, ServerConfig};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use self::greetings::Greetings;
use self::lent_network::{Port, is_lent};
use self::pairing::{Guess, NAME_TAKEN};
pub use self::pairing::{PairError, pair};
pub use self::pairs::{AddDeviceError, PairFile, PairFileError, PairedDevice, PairedRole};
use self::relay::Progress;
use super::carrier::{CarrierIo, TcpCarrier};
use super::client::keep_alive;
use super::gateway_proof::GatewayProof;
use super::handshake;
use super::key::{PrivateKey, PublicKey};
use super::path_monitor::today;
use super::tls;
use super::usage::UsageFile;
use crate::path::{PathSpec, RaceError, race, socket};

/// Time in which a device completes the handshake of its pipe, and the gateway that of its path.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time in which the gateway accepts a connection, and in which it has also taken the ticket: less than
/// a client waits for the lender, so that it gets the reason.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const REDEEM_TIMEOUT: Duration = Duration::from_millis(2_600);
/// Time for which one of the two ends of a loan may leave data unacknowledged, or accept none, before
/// it counts as away. Both read at all times.
const PEER_TIMEOUT: Span = Span::from_secs(10);
/// Maximum number of connections in a handshake.
const MAX_HANDSHAKES: usize = 32;
/// Maximum number of devices that pair at once.
const MAX_PAIRINGS: usize = 8;
/// Name in the handshakes, without meaning.
const SERVER_NAME: &str = "gateway.invalid";
/// Name of the counter in the usage file.
const USAGE_NAME: &str = "lent";
/// Interval at which the usage is counted and saved, and the limit is compared.
const COUNT_INTERVAL: Duration = Duration::from_millis(500);

/// Options of a lender.
#[derive(Debug)]
#[non_exhaustive]
pub struct LendOptions {
    /// Addresses at which other devices find this one.
    pub listen: Vec<SocketAddr>,
    pub key: PrivateKey,
    /// Name of this device, for the others.
    pub name: String,
    /// The network that is lent; `None` leaves it to the kernel.
    pub via: Option<PathSpec>,
    /// Bytes of the network in a month, or since the start, after which it is lent no more.
    pub limit: Option<LendLimit>,
    /// Gateways are dialled at public addresses, and at these.
    pub egress: EgressFilter,
    pub pairs: PairFile,
    pub usage: UsageFile,
    /// Bytes that may wait here for each of the two connections of a loan.
    pub buffer: Size,
    /// Time after which an end that takes nothing counts as away.
    pub peer_timeout: Span,
}

/// Bytes that a device lends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LendLimit {
    pub size: Size,
    /// Whether the size is for each calendar month, and not for each start.
    pub monthly: bool,
}

impl LendOptions {
    pub fn new(
        (listen, name): (Vec<SocketAddr>, String),
        key: PrivateKey,
        pairs: PairFile,
        usage: UsageFile,
    ) -> Self {
        let egress = EgressFilter::default();
        let (via, limit, buffer) = (None, None, relay::BUFFER);
        let peer_timeout = PEER_TIMEOUT;
        Self { listen, key, name, via, limit, egress, pairs, usage, buffer, peer_timeout }
    }
}

/// Failure to start a lender.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LendError {
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The lent network must not be open to strangers.
    #[error("it would listen on the lent network: {0} is not the address of another one")]
    ListenOnLent(IpAddr),
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error("{0}")]
    Pairs(#[from] PairFileError),
    #[error("the system gives no random numbers")]
    Random,
}

/// A change of a lender.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LendEvent {
    /// A device uses the network.
    Joined(String),
    /// It no longer does, for this reason, after this number of bytes.
    Ended { device: String, reason: String, bytes: Size },
    /// A device was not served.
    Refused { device: String, reason: String },
    /// A device has paired.
    Paired(String),
    /// A device has not paired.
    NotPaired { from: SocketAddr, reason: String },
    /// The limit is reached; nothing more is lent.
    LimitReached(Size),
    /// A new month has begun after the limit was reached.
    LendsAgain,
}

/// A device that uses the network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoanStatus {
    pub device: String,
    /// Bytes of the lent network, in both directions.
    pub bytes: Size,
    /// Bytes that wait at this device.
    pub backlog: Size,
    pub since: Time,
}

/// A lender whose sockets are bound; cheap to clone.
#[derive(Clone)]
pub struct Lending(Rc<Inner>);

struct Inner {
    clock: Clock,
    key: PrivateKey,
    name: String,
    via: Option<PathSpec>,
    limit: Option<LendLimit>,
    egress: EgressFilter,
    pairs: PairFile,
    usage_file: UsageFile,
    buffer: Size,
    peer_timeout: Span,
    usage: RefCell<Usage>,
    /// Bytes of loans that have ended since the start and of attempts, and of all that are counted.
    ended_bytes: Cell<u64>,
    counted_bytes: Cell<u64>,
    tls: Arc<ServerConfig>,
    access: Arc<Mutex<Access>>,
    ports: RefCell<Vec<Port>>,
    addresses: Vec<SocketAddr>,
    loans: RefCell<BTreeMap<u64, Loan>>,
    next_loan: Cell<u64>,
    handshakes: Greetings,
    pairings: Greetings,
    /// Whether the limit is used up.
    is_over: Cell<bool>,
    /// Whether it ends.
    is_stopping: Cell<bool>,
    events: mpsc::UnboundedSender<LendEvent>,
}

/// The keys that the verification of TLS accepts.
#[derive(Default)]
struct Access {
    devices: Vec<PairedDevice>,
    code: Option<Code>,
}

struct Loan {
    device: String,
    key: PublicKey,
    since: Time,
    progress: Rc<Progress>,
}

impl Lending {
    /// Binds the sockets. [`Lending::run`] serves them.
    ///
    /// # Errors
    /// If an address cannot be bound or is of the lent network, or the paired devices cannot be read.
    pub fn bind(
        options: LendOptions,
    ) -> Result<(Self, mpsc::UnboundedReceiver<LendEvent>), LendError> {
        let clock = Clock::start();
        let devices = options.pairs.read()?;
        let access = Arc::new(Mutex::new(Access { devices: devices.clone(), code: None }));
        let shared = Arc::clone(&access);
        let accept = move |key: &PublicKey| {
            let access = shared.lock().unwrap_or_else(PoisonError::into_inner);
            access.devices.iter().any(|device| device.key == *key)
                || access.code.as_ref().is_some_and(|code| code.is_valid(clock.now()))
        };
        let protocols = [tls::PIPE_PROTOCOL, tls::PAIR_PROTOCOL];
        let tls = tls::server(&options.key, Arc::new(accept), &protocols)?;
        let (mut ports, mut addresses) = (Vec::new(), Vec::new());
        for address in &options.listen {
            let port = Port::open(*address, options.via.as_ref(), &devices)?;
            let bound = port.listener.local_addr();
            addresses.push(bound.map_err(|error| LendError::Listen(*address, error))?);
            ports.push(port);
        }
        let (events, receiver) = mpsc::unbounded_channel();
        let usage = RefCell::new(options.usage.load());
        let lending = Self(Rc::new(Inner {
            clock,
            key: options.key,
            name: options.name,
            via: options.via,
            limit: options.limit,
            egress: options.egress,
            pairs: options.pairs,
            usage_file: options.usage,
            buffer: options.buffer,
            peer_timeout: options.peer_timeout,
            usage,
            ended_bytes: Cell::new(0),
            counted_bytes: Cell::new(0),
            tls,
            access,
            ports: RefCell::new(ports),
            addresses,
            loans: RefCell::default(),
            next_loan: Cell::new(0),
            handshakes: Greetings::new(MAX_HANDSHAKES),
            pairings: Greetings::new(MAX_PAIRINGS),
            is_over: Cell::new(false),
            is_stopping: Cell::new(false),
            events,
        }));
        Ok((lending, receiver))
    }

    /// Returns the addresses at which it listens, with their ports.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.0.addresses
    }

    /// Returns the paired devices.
    pub fn devices(&self) -> Vec<String> {
        self.access(|access| access.devices.iter().map(|device| device.name.clone()).collect())
    }

    /// Makes a code for one device that pairs within two minutes, and returns its digits.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub fn show_code(&self) -> Result<String, LendError> {
        // Random numbers above the largest multiple of a million would prefer some codes.
        let mut bytes = [0; 4];
        let number = loop {
            SystemRandom::new().fill(&mut bytes).map_err(|_| LendError::Random)?;
            let number = u32::from_be_bytes(bytes);
            if number < u32::MAX / 1_000_000 * 1_000_000 {
                break number;
            }
        };
        let code = Code::new(self.0.clock.now(), number);
        let digits = code.digits().to_owned();
        self.access(|access| access.code = Some(code));
        Ok(digits)
    }

    /// Whether a code is valid.
    pub fn shows_code(&self) -> bool {
        let now = self.0.clock.now();
        self.access(|access| access.code.as_ref().is_some_and(|code| code.is_valid(now)))
    }

    /// Returns the devices that use the network now.
    pub fn status(&self) -> Vec<LoanStatus> {
        let loans = self.0.loans.borrow();
        let status = |loan: &Loan| LoanStatus {
            device: loan.device.clone(),
            bytes: Size::from_bytes(loan.progress.bytes.get()),
            backlog: Size::from_bytes(loan.progress.backlog.get()),
            since: loan.since,
        };
        loans.values().map(status).collect()
    }

    /// Returns the lent bytes that count for the limit.
    pub fn used(&self) -> Size {
        match self.0.limit {
            Some(LendLimit { monthly: true, .. }) => {
                self.0.usage.borrow().used(USAGE_NAME, 1, today())
            }
            _ => Size::from_bytes(self.bytes()),
        }
    }

    pub fn now(&self) -> Time {
        self.0.clock.now()
    }

    /// Serves until `stop` is ready, then lets running loans pass on what they have, until `hurry` is
    /// ready. Runs on the calling thread's local tasks.
    pub async fn run(&self, stop: impl Future<Output = ()>, hurry: impl Future<Output = ()>) {
        for port in self.0.ports.take() {
            tokio::task::spawn_local(self.clone().accept(port));
        }
        let counter = self.clone();
        tokio::select! {
            () = stop => {}
            () = counter.count() => {}
        }
        self.0.is_stopping.set(true);
        self.leave();
        let mut interval = tokio::time::interval(Duration::from_millis(50));
        let mut hurry = std::pin::pin!(hurry);
        while !self.0.loans.borrow().is_empty() {
            tokio::select! {
                () = &mut hurry => break,
                _ = interval.tick() => self.review_devices(),
            }
        }
        self.save_usage();
    }

    /// Whether no more devices are served.
    fn is_closed(&self) -> bool {
        self.0.is_over.get() || self.0.is_stopping.get()
    }

    /// Informs all devices that this one lends no more.
    fn leave(&self) {
        for loan in self.0.loans.borrow().values() {
            loan.progress.leave.notify_one();
        }
    }

    /// Bytes of all loans since the start.
    fn bytes(&self) -> u64 {
        let loans = self.0.loans.borrow();
        self.0.ended_bytes.get() + loans.values().map(|loan| loan.progress.bytes.get()).sum::<u64>()
    }

    /// Counts the bytes, ends loans of devices that are no longer paired, and ends all at the
    /// limit; never returns.
    async fn count(self) {
        let mut interval = tokio::time::interval(COUNT_INTERVAL);
        loop {
            interval.tick().await;
            self.save_usage();
            self.review_devices();
            self.review_limit(self.used());
        }
    }

    /// Ends all loans when the limit is reached, and lends again in a new month.
    fn review_limit(&self, used: Size) {
        let Some(limit) = self.0.limit else { return };
        let is_over = used >= limit.size;
        match (self.0.is_over.replace(is_over), is_over) {
            (false, true) => {
                self.leave();
                self.tell(LendEvent::LimitReached(used));
            }
            (true, false) => self.tell(LendEvent::LendsAgain),
            _ => {}
        }
    }

    fn save_usage(&self) {
        let bytes = self.bytes();
        let new = bytes.saturating_sub(self.0.counted_bytes.replace(bytes));
        if new == 0 {
            return;
        }
        let mut usage = self.0.usage.borrow_mut();
        usage.add(USAGE_NAME, 1, today(), new);
        if let Err(error) = self.0.usage_file.save(&mut usage) {
            tracing::warn!("cannot save the lent bytes of this month: {error}");
        }
    }

    /// Reads the paired devices again, because `manyways bond unpair` may have removed one.
    fn review_devices(&self) {
        match self.0.pairs.read() {
            Ok(devices) => {
                let loans = self.0.loans.borrow();
                let gone = |loan: &&Loan| !devices.iter().any(|device| device.key == loan.key);
                loans.values().filter(gone).for_each(|loan| loan.progress.is_revoked.set(true));
                self.access(|access| access.devices = devices);
            }
            Err(error) => tracing::warn!("cannot read the paired devices: {error}"),
        }
    }

    fn access<R>(&self, with: impl FnOnce(&mut Access) -> R) -> R {
        with(&mut self.0.access.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell(&self, event: LendEvent) {
        let _ = self.0.events.send(event);
    }

    async fn accept(self, port: Port) {
        let device: Rc<Option<String>> = Rc::new(port.device);
        loop {
            match port.listener.accept().await {
                Ok((stream, from)) => {
                    let (lending, device) = (self.clone(), Rc::clone(&device));
                    self.0.handshakes.run(|id| lending.greet(id, stream, from, device));
                }
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Finds out who has connected, over which interface of this device, and serves it.
    async fn greet(self, id: u64, stream: TcpStream, from: SocketAddr, device: Rc<Option<String>>) {
        keep_alive(&stream, self.0.peer_timeout);
        let acceptor = TlsAcceptor::from(Arc::clone(&self.0.tls));
        let accepted = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await;
        self.0.handshakes.finish(id);
        let stream = match accepted {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!("{from}: {error}"),
            Err(_) => return tracing::debug!("{from}: no handshake in time"),
        };
        let connection = stream.get_ref().1;
        let Some(key) = tls::peer_key(connection.peer_certificates()) else { return };
        match connection.alpn_protocol() {
            Some(tls::PAIR_PROTOCOL) => {
                let lending = self.clone();
                self.0.pairings.run(|id| async move {
                    lending.pair(stream, from, key).await;
                    lending.0.pairings.finish(id);
                });
            }
            _ => {
                let found = self.access(|access| {
                    access.devices.iter().find(|device| device.key == key).cloned()
                });
                // A stranger, while a code is valid.
                let Some(borrower) = found else { return };
                let (stream, tls) = stream.into_inner();
                let pipe = TcpCarrier::new(stream, Connection::Server(tls));
                self.lend(borrower, pipe, device.as_deref()).await;
            }
        }
    }

    async fn pair(
        &self,
        mut stream: tokio_rustls::server::TlsStream<TcpStream>,
        from: SocketAddr,
        key: PublicKey,
    ) {
        let now = || self.0.clock.now();
        let begun = self.access(|access| access.code.as_ref().map(|code| code.begin(now())));
        let digits = match begun.unwrap_or(Err(CodeError::None)) {
            Ok(digits) => digits,
            Err(error) => return pairing::answer(&mut stream, Err(error.to_string())).await,
        };
        let own = (self.0.key.public(), self.0.name.as_str());
        let spend = || self.with_code(&digits, |code| code.spend(now()))?;
        let result = match pairing::serve(&mut stream, &digits, own, key, spend).await {
            Ok(Guess::Right(device)) => self.store(device, &digits),
            Ok(Guess::Wrong) => {
                let error = self.with_code(&digits, |code| code.wrong());
                Err(error.unwrap_or_else(|error| error).to_string())
            }
            // Nothing was proved. A stranger could fill the screen with such lines.
            Err(error) => {
                tracing::debug!("{from} has not paired: {error}");
                return pairing::answer(&mut stream, Err(error.to_string())).await;
            }
        };
        if let Err(reason) = &result {
            self.tell(LendEvent::NotPaired { from, reason: reason.clone() });
        }
        pairing::answer(&mut stream, result).await;
    }

    /// Calls `with` for the code of these digits, unless another one has replaced it.
    fn with_code<R>(
        &self,
        digits: &str,
        with: impl FnOnce(&mut Code) -> R,
    ) -> Result<R, CodeError> {
        self.access(|access| {
            let code = access.code.as_mut().filter(|code| code.digits() == digits);
            code.map(with).ok_or(CodeError::None)
        })
    }

    /// Stores a device that has proved that it knows the code, which is for one device.
    fn store(&self, device: PairedDevice, digits: &str) -> Result<(), String> {
        self.with_code(digits, |_| ()).map_err(|error| error.to_string())?;
        let name = device.name.clone();
        match self.0.pairs.add(device) {
            Ok(()) => {
                self.access(|access| access.code = None);
                self.review_devices();
                self.tell(LendEvent::Paired(name));
                Ok(())
            }
            Err(error) => {
                // Its user may try again, under another name.
                let _ = self.with_code(digits, Code::give_back);
                match error {
                    AddDeviceError::NameTaken(_) => Err(NAME_TAKEN.to_owned()),
                    error => Err(format!("the lender cannot store it: {error}")),
                }
            }
        }
    }

    /// Serves the pipe of a paired device.
    async fn lend(&self, device: PairedDevice, pipe: TcpCarrier, over: Option<&str>) {
        let name = device.name.clone();
        let mut pipe = CarrierIo::Tcp(Box::new(pipe));
        let joined = timeout(HANDSHAKE_TIMEOUT, self.join(&device, &mut pipe, over)).await;
        let (far, holds_acks) = match joined.unwrap_or_else(|_| Err("no answer in time".to_owned()))
        {
            Ok(found) => found,
            Err(reason) => {
                handshake::send_refusal(&mut pipe, RefuseCode::Limit, reason.clone()).await;
                let _ = timeout(HANDSHAKE_TIMEOUT, pipe.flush_all()).await;
                return self.tell(LendEvent::Refused { device: name, reason });
            }
        };
        let CarrierIo::Tcp(mut pipe) = pipe else { return };
        pipe.relay();
        let progress = Rc::new(Progress::default());
        let loan = Loan {
            device: name.clone(),
            key: device.key,
            since: self.0.clock.now(),
            progress: Rc::clone(&progress),
        };
        let id = self.0.next_loan.get();
        self.0.next_loan.set(id + 1);
        self.0.loans.borrow_mut().insert(id, loan);
        // It may have stopped while the device got the answer.
        if self.is_closed() {
            progress.leave.notify_one();
        }
        self.tell(LendEvent::Joined(name.clone()));
        let ended =
            relay::run(*pipe, far, (holds_acks, self.0.buffer), Rc::clone(&progress), self.0.clock)
                .await;
        self.0.loans.borrow_mut().remove(&id);
        let bytes = progress.bytes.get();
        self.0.ended_bytes.set(self.0.ended_bytes.get() + bytes);
        let reason = ended.map_or_else(|error| error.to_string(), |()| "it was stopped".to_owned());
        self.tell(LendEvent::Ended { device: name, reason, bytes: Size::from_bytes(bytes) });
    }

    /// Reads what the device wants, and connects to its gateway.
    async fn join(
        &self,
        device: &PairedDevice,
        pipe: &mut CarrierIo,
        over: Option<&str>,
    ) -> Result<(TcpCarrier, bool), String> {
        let messages = pipe.messages().await.map_err(|error| error.to_string())?;
        let Some(Message::Loan(LoanMessage::Join { ticket, holds_acks })) = messages.first() else {
            return Err("the other end does not speak the protocol of manyways bond".to_owned());
        };
        let is_open = || match self.is_closed() {
            true => Err("it has stopped to lend, or its limit is used up".to_owned()),
            false => Ok(()),
        };
        is_open()?;
        let (far, rtt) = self.connect(device, *ticket, over).await?;
        is_open()?;
        pipe.queue(&Message::Loan(LoanMessage::Joined { rtt }));
        pipe.flush_all().await.map_err(|error| error.to_string())?;
        Ok((far, *holds_acks))
    }

    /// Connects to the gateway of a device, and redeems its ticket.
    async fn connect(
        &self,
        device: &PairedDevice,
        ticket: TicketId,
        over: Option<&str>,
    ) -> Result<(TcpCarrier, Span), String> {
        let PairedRole::Borrower { gateway, gateway_key } = &device.role else {
            return Err("no gateway was agreed on".to_owned());
        };
        let own = interface::addresses().unwrap_or_default();
        let is_permitted = |to: &&SocketAddr| self.0.egress.permits(&own, to.ip());
        let permitted: Vec<SocketAddr> = gateway.iter().filter(is_permitted).copied().collect();
        if permitted.is_empty() {
            let reason = "its gateway has no public address; --permit NETWORK allows another one";
            return Err(reason.to_owned());
        }
        if over.is_some_and(|over| is_lent(over, self.0.via.as_ref(), &permitted)) {
            let reason = "the lent network is the one between the two devices; --via names another";
            return Err(reason.to_owned());
        }
        let began = Instant::now();
        let config = happy_eyeballs::Config::default();
        let raced = race(config, ready(Ok(permitted)), pending(), |to| self.dial(to), |_| false);
        let reason = "the gateway does not answer over the lent network";
        let (stream, _) = match timeout(CONNECT_TIMEOUT, raced).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(RaceError::Failed(Some(error)))) => {
                return Err(format!("{reason}: {}", crate::path::plain(&error)));
            }
            Ok(Err(RaceError::Failed(None) | RaceError::TimedOut)) | Err(_) => {
                return Err(reason.to_owned());
            }
        };
        // The bytes of an attempt count, too, also if it fails.
        let meter = stream.as_fd().try_clone_to_owned().ok();
        let redeemed = self.redeem(gateway_key, stream, ticket);
        let redeemed = timeout_at(began + REDEEM_TIMEOUT, redeemed).await;
        let redeemed = redeemed.unwrap_or_else(|_| Err(reason.to_owned()));
        // The relay counts from here.
        let (received, sent) = redeemed.as_ref().map_or((0, 0), |(far, _)| far.byte_counts());
        let cost = meter.as_ref().map_or(0, bytes_of).saturating_sub(received + sent);
        self.0.ended_bytes.set(self.0.ended_bytes.get() + cost);
        redeemed
    }

    /// Makes sure that the gateway has the agreed key, and redeems a ticket.
    async fn redeem(
        &self,
        gateway_key: &PublicKey,
        stream: TcpStream,
        ticket: TicketId,
    ) -> Result<(TcpCarrier, Span), String> {
        let text = |error: &dyn std::fmt::Display| format!("no connection to the gateway: {error}");
        // No keepalive: it would keep the radio awake.
        let _ = set_user_timeout(stream.as_fd(), self.0.peer_timeout);
        let tls = tls::client(&self.0.key, *gateway_key, tls::ALPN_PROTOCOL);
        let tls = tls.map_err(|error| text(&error))?;
        let name = ServerName::try_from(SERVER_NAME).map_err(|error| text(&error))?;
        let proof = GatewayProof::new(gateway_key);
        let protocols = vec![tls::ALPN_PROTOCOL.to_vec(), proof.protocol()];
        let connector = TlsConnector::from(tls);
        let connected = connector.with_alpn(protocols).connect(name, stream).await;
        let connected = connected.map_err(|error| text(&error))?;
        let (stream, tls) = connected.into_inner();
        let rtt = tcp_state(stream.as_fd()).ok().and_then(|state| state.rtt).unwrap_or_default();
        let far = TcpCarrier::new(stream, Connection::Client(tls));
        let mut far = CarrierIo::Tcp(Box::new(far));
        far.queue(&Message::Loan(LoanMessage::Redeem { ticket }));
        far.flush_all().await.map_err(|error| text(&error))?;
        let messages = far.messages().await.map_err(|error| text(&error))?;
        match messages.into_iter().next() {
            Some(Message::Loan(LoanMessage::Redeemed)) => {}
            Some(Message::Refuse(_, words)) => return Err(format!("the gateway refuses: {words}")),
            _ => return Err(text(&"it does not know lenders")),
        }
        let CarrierIo::Tcp(mut far) = far else { return Err(text(&"it is not TCP")) };
        far.relay();
        Ok((*far, rtt))
    }

    async fn dial(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = match &self.0.via {
            Some(via) => socket(via, to)?,
            None if to.is_ipv4() => tokio::net::TcpSocket::new_v4()?,
            None => tokio::net::TcpSocket::new_v6()?,
        };
        socket.connect(to).await
    }
}

/// Returns the bytes that a connection has carried in both directions, with TLS.
fn bytes_of(socket: &OwnedFd) -> u64 {
    tcp_state(socket.as_fd())
        .map_or(0, |state| state.bytes_sent.as_bytes() + state.bytes_received.as_bytes())
}

#[cfg(test)]
mod tests;
