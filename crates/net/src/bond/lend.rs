//! A lender: lets paired devices reach their gateway over a network of this one.
//!
//! It listens for pipes, dials only the gateway on which both devices have agreed, and passes sealed
//! messages on between the two ([`relay`]). It needs no privileges.

mod pairing;
mod pairs;
mod relay;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{pending, ready};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use manyways_proto::bond::egress::EgressFilter;
use manyways_proto::bond::pairing::Code;
use manyways_proto::bond::usage::Usage;
use manyways_proto::happy_eyeballs;
use manyways_proto::mux::{LoanMessage, Message, RefuseCode, TicketId};
use manyways_sys::clock::Clock;
use manyways_sys::interface;
use manyways_sys::socket::tcp_state;
use manyways_unit::{Size, Span, Time};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::ServerName;
use rustls::{Connection, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use self::pairing::Guess;
pub use self::pairing::{PairError, pair};
pub use self::pairs::{PairFile, PairFileError, PairedDevice, PairedRole};
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
/// Time in which the gateway accepts a connection: less than a client waits for the lender, so that
/// it gets the reason.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of connections in a handshake.
const MAX_HANDSHAKES: usize = 32;
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
        Self { listen, key, name, via, limit, egress, pairs, usage, buffer }
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
    usage: RefCell<Usage>,
    /// Bytes of loans that have ended since the start, and of all loans that are counted.
    ended_bytes: Cell<u64>,
    counted_bytes: Cell<u64>,
    tls: Arc<ServerConfig>,
    access: Arc<Mutex<Access>>,
    listeners: RefCell<Vec<TcpListener>>,
    addresses: Vec<SocketAddr>,
    loans: RefCell<BTreeMap<u64, Loan>>,
    next_loan: Cell<u64>,
    handshakes: Cell<usize>,
    is_over: Cell<bool>,
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
        let access = Arc::new(Mutex::new(Access { devices, code: None }));
        let shared = Arc::clone(&access);
        let accept = move |key: &PublicKey| {
            let access = shared.lock().unwrap_or_else(PoisonError::into_inner);
            access.devices.iter().any(|device| device.key == *key)
                || access.code.as_ref().is_some_and(|code| code.is_valid(clock.now()))
        };
        let protocols = [tls::PIPE_PROTOCOL, tls::PAIR_PROTOCOL];
        let tls = tls::server(&options.key, Arc::new(accept), &protocols)?;
        let lent = options.via.as_ref().map_or(&[][..], |via| &via.addresses);
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for address in &options.listen {
            if lent.contains(&address.ip()) || address.ip().is_unspecified() {
                return Err(LendError::ListenOnLent(address.ip()));
            }
            let failed = |error| LendError::Listen(*address, error);
            let listener = super::gateway::listener(*address).map_err(failed)?;
            addresses.push(listener.local_addr().map_err(failed)?);
            listeners.push(listener);
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
            usage,
            ended_bytes: Cell::new(0),
            counted_bytes: Cell::new(0),
            tls,
            access,
            listeners: RefCell::new(listeners),
            addresses,
            loans: RefCell::default(),
            next_loan: Cell::new(0),
            handshakes: Cell::new(0),
            is_over: Cell::new(false),
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

    /// Serves until `stop` is ready, then lets running loans pass on what they have. Runs on the
    /// calling thread's local tasks.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        for listener in self.0.listeners.take() {
            tokio::task::spawn_local(self.clone().accept(listener));
        }
        let counter = self.clone();
        tokio::select! {
            () = stop => {}
            () = counter.count() => {}
        }
        self.leave();
        let mut interval = tokio::time::interval(Duration::from_millis(50));
        while !self.0.loans.borrow().is_empty() {
            interval.tick().await;
        }
        self.save_usage();
    }

    /// Informs all devices that this one lends no more.
    fn leave(&self) {
        self.0.is_over.set(true);
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
            let used = self.used();
            if let Some(limit) = self.0.limit
                && used >= limit.size
                && !self.0.is_over.get()
            {
                self.leave();
                self.tell(LendEvent::LimitReached(used));
            }
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
                loans.values().filter(gone).for_each(|loan| loan.progress.leave.notify_one());
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

    async fn accept(self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, from)) if self.0.handshakes.get() < MAX_HANDSHAKES => {
                    self.0.handshakes.set(self.0.handshakes.get() + 1);
                    let lending = self.clone();
                    tokio::task::spawn_local(async move {
                        lending.greet(stream, from).await;
                    });
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn greet(self, stream: TcpStream, from: SocketAddr) {
        keep_alive(&stream);
        let acceptor = TlsAcceptor::from(Arc::clone(&self.0.tls));
        let accepted = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await;
        self.0.handshakes.set(self.0.handshakes.get() - 1);
        let stream = match accepted {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!("{from}: {error}"),
            Err(_) => return tracing::debug!("{from}: no handshake in time"),
        };
        let connection = stream.get_ref().1;
        let Some(key) = tls::peer_key(connection.peer_certificates()) else { return };
        match connection.alpn_protocol() {
            Some(tls::PAIR_PROTOCOL) => self.pair(stream, from, key).await,
            _ => {
                let found = self.access(|access| {
                    access.devices.iter().find(|device| device.key == key).cloned()
                });
                // A stranger, while a code is valid.
                let Some(device) = found else { return };
                let (stream, tls) = stream.into_inner();
                let pipe = TcpCarrier::new(stream, Connection::Server(tls));
                self.lend(device, pipe).await;
            }
        }
    }

    async fn pair(
        &self,
        mut stream: tokio_rustls::server::TlsStream<TcpStream>,
        from: SocketAddr,
        key: PublicKey,
    ) {
        let now = self.0.clock.now();
        let begun = self.access(|access| access.code.as_mut().map(|code| code.begin(now)));
        let digits = match begun.unwrap_or(Err(manyways_proto::bond::pairing::CodeError::None)) {
            Ok(digits) => digits,
            Err(error) => return pairing::answer(&mut stream, Err(error.to_string())).await,
        };
        let own = (self.0.key.public(), self.0.name.as_str());
        let guess = pairing::serve(&mut stream, &digits, own, key).await;
        let failed = |lending: &Self| {
            lending.access(|access| access.code.as_mut().map(Code::fail)).map(|why| why.to_string())
        };
        let result = match guess {
            Ok(Guess::Right(device)) => {
                // It is for one device.
                self.access(|access| access.code = None);
                let name = device.name.clone();
                match self.0.pairs.add(device) {
                    Ok(()) => {
                        self.review_devices();
                        self.tell(LendEvent::Paired(name));
                        Ok(())
                    }
                    Err(error) => Err(format!("the lender cannot store it: {error}")),
                }
            }
            Ok(Guess::Wrong) => Err(failed(self).unwrap_or_default()),
            Err(error) => {
                failed(self);
                Err(error.to_string())
            }
        };
        if let Err(reason) = &result {
            self.tell(LendEvent::NotPaired { from, reason: reason.clone() });
        }
        pairing::answer(&mut stream, result).await;
    }

    /// Serves the pipe of a paired device.
    async fn lend(&self, device: PairedDevice, pipe: TcpCarrier) {
        let name = device.name.clone();
        let mut pipe = CarrierIo::Tcp(Box::new(pipe));
        let joined = timeout(HANDSHAKE_TIMEOUT, self.join(&device, &mut pipe)).await;
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
    ) -> Result<(TcpCarrier, bool), String> {
        let messages = pipe.messages().await.map_err(|error| error.to_string())?;
        let Some(Message::Loan(LoanMessage::Join { ticket, holds_acks })) = messages.first() else {
            return Err("the other end does not speak the protocol of manyways bond".to_owned());
        };
        if self.0.is_over.get() {
            return Err("it has stopped to lend, or its limit is used up".to_owned());
        }
        let (far, rtt) = self.connect(device, *ticket).await?;
        pipe.queue(&Message::Loan(LoanMessage::Joined { rtt }));
        pipe.flush_all().await.map_err(|error| error.to_string())?;
        Ok((far, *holds_acks))
    }

    /// Connects to the gateway of a device, and redeems its ticket.
    async fn connect(
        &self,
        device: &PairedDevice,
        ticket: TicketId,
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
        let text = |error: &dyn std::fmt::Display| format!("no connection to the gateway: {error}");
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

#[cfg(test)]
mod tests;
