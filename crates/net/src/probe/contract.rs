//! The promises of every probe, and the frame in which it runs.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use manyways_model::probe::cost::{Allowance, Cost, LimitReached, Plan, Transfer};
use manyways_model::radio::Profile;
use manyways_sys::clock::Clock;
use manyways_sys::interface::Kind;
use manyways_sys::socket::tcp_state;
use manyways_unit::{Size, Span, Time};
use tokio::net::TcpStream;

use super::network::{Network, Traffic};
use super::page::PageError;
use super::pause::PauseSignal;
use super::queue;
use super::report::{Ending, Measurement, Report};
use crate::browser::BrowserError;
use crate::path::{LookupError, PathSpec, plain};

/// A measurement of a network.
pub trait Probe: Send + Sync {
    /// Name in results, for example `ping`.
    fn name(&self) -> &'static str;

    /// The measured object, as the user named it.
    fn target(&self) -> String;

    /// Checks the parameters, and returns the transfers with upper bounds of their bytes and times.
    ///
    /// # Errors
    /// A parameter is invalid.
    fn plan(&self) -> Result<Plan, InvalidParameter>;

    /// Whether the probe waits at [`Run::pause_point`] while it is paused. Others run to their end.
    fn can_pause(&self) -> bool {
        false
    }

    /// Measures. The probe asks [`Run::spend`] before it sends, and passes its result so far to
    /// [`Run::report`], because it can be stopped at any time.
    fn run<'a>(&'a self, run: &'a mut Run) -> Running<'a>;
}

/// A probe that runs.
pub type Running<'a> = Pin<Box<dyn Future<Output = Result<(), ProbeError>> + Send + 'a>>;

/// A parameter that a probe refuses, as a sentence.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidParameter(pub String);

/// Why a probe ended early.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The probe would exceed its prediction, or the limit of the user.
    #[error(transparent)]
    Limit(#[from] LimitReached),
    /// The name of the target has no address.
    #[error(transparent)]
    Unresolved(#[from] LookupError),
    /// The target has only addresses of families that the network does not have.
    #[error("{host} and {path} have no address family in common")]
    NoAddress { host: String, path: String },
    /// The network has no name server.
    #[error("no name server is known for {0}")]
    NoNameServer(String),
    /// This user may not do this.
    #[error("{0}")]
    NotPermitted(String),
    /// The interface is down or gone.
    #[error("{0} is gone or down")]
    InterfaceLost(String),
    /// No connection to a server.
    #[error("no connection to {0}: {error}", error = plain(.1))]
    Connect(SocketAddr, Arc<io::Error>),
    /// TLS with the server failed.
    #[error("{0}")]
    Tls(String),
    /// The server answers no valid HTTP.
    #[error("the HTTP exchange failed: {0}")]
    Http(String),
    /// Datagrams of this size do not pass in one piece.
    #[error("datagrams of {0} bytes are larger than the MTU of the path")]
    TooLarge(u16),
    /// The probe server refuses, or its connection was lost.
    #[error("{0}")]
    Server(String),
    /// A program that does not start.
    #[error("cannot run `{0}`: {error}", error = plain(.1))]
    Command(String, Arc<io::Error>),
    /// The timers of the radio could not be probed.
    #[error("{0}")]
    Radio(String),
    /// A page that was not loaded.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A film that cannot be played, or no longer.
    #[error("{0}")]
    Video(String),
    /// The browser in which a film plays.
    #[error(transparent)]
    Browser(#[from] BrowserError),
    /// Any other error of the system, with the action that failed.
    #[error("cannot {action}: {error}", error = plain(.error))]
    Io { action: &'static str, error: Arc<io::Error> },
}

impl ProbeError {
    /// The step that may help, where the error itself does not name it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Page(error) => error.hint(),
            // `probe video --browser` names the player.
            Self::Browser(error) => {
                error.hint().map(|hint| hint.replace("--browser", "--chromium"))
            }
            _ => None,
        }
    }

    /// An error of the system, which means that the interface is gone if it is.
    pub(super) fn io(path: &PathSpec, action: &'static str, error: io::Error) -> Self {
        if !path.has_carrier() {
            return Self::InterfaceLost(path.name.clone());
        }
        Self::Io { action, error: Arc::new(error) }
    }

    /// A connection that failed, which means that the interface is gone if it is.
    pub(super) fn connect(path: &PathSpec, server: SocketAddr, error: io::Error) -> Self {
        if !path.has_carrier() {
            return Self::InterfaceLost(path.name.clone());
        }
        Self::Connect(server, Arc::new(error))
    }
}

/// How probes are run.
#[derive(Clone, Default, Debug)]
pub struct Options {
    /// Maximum bytes of both directions.
    pub cap: Option<Size>,
    /// Bytes of earlier probes that count for the maximum.
    pub spent: Size,
    /// Repeat a measurement during which other programs used the interface.
    pub isolated: bool,
    /// Begin also while another probe uses the interface, instead of after it.
    pub parallel: bool,
    /// Profile of the radio, for the energy of the prediction.
    pub radio: Option<Profile>,
    /// Pauses the probe, if it can.
    pub pause: Option<PauseSignal>,
}

/// A running probe: the network, its cost so far, and the result so far.
pub struct Run {
    network: Network,
    clock: Clock,
    allowance: Arc<Mutex<Allowance>>,
    measurement: Arc<Mutex<Option<Measurement>>>,
    progress: Progress,
    pause: Option<PauseSignal>,
    is_sole: Arc<AtomicBool>,
}

/// Receives the result of a running probe so far.
pub type Progress = Arc<dyn Fn(&Measurement) + Send + Sync>;

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("network", &self.network.interface().name)
            .field("allowance", &self.allowance)
            .field("measurement", &self.measurement)
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    pub fn network(&self) -> &Network {
        &self.network
    }

    pub fn path(&self) -> &PathSpec {
        self.network.path()
    }

    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The clock of [`Self::now`].
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Takes the bytes of a packet or a transfer from the prediction, before it starts.
    ///
    /// # Errors
    /// The prediction or the data limit would be exceeded.
    pub fn spend(&mut self, up: Size, down: Size) -> Result<(), ProbeError> {
        let mut allowance = lock(&self.allowance);
        allowance.check(self.clock.now(), up, down)?;
        allowance.charge(up, down);
        Ok(())
    }

    /// Returns bytes that were taken, but not sent.
    pub(super) fn refund(&mut self, up: Size, down: Size) {
        lock(&self.allowance).refund(up, down);
    }

    /// Takes bytes that have already passed from the prediction.
    ///
    /// # Errors
    /// The prediction or the data limit is exceeded.
    pub(super) fn observe(&mut self, up: Size, down: Size) -> Result<(), ProbeError> {
        let mut allowance = lock(&self.allowance);
        let checked = allowance.check(self.clock.now(), up, down);
        allowance.charge(up, down);
        Ok(checked?)
    }

    /// Whether the caller wants a pause.
    pub fn is_paused(&self) -> bool {
        self.pause.as_ref().is_some_and(PauseSignal::is_wanted)
    }

    /// Waits until the caller ends the pause, if there is one. The time does not count.
    pub async fn pause_point(&mut self) {
        if !self.is_paused() {
            return;
        }
        let Some(pause) = &mut self.pause else { return };
        lock(&self.allowance).pause(self.clock.now());
        pause.report(true);
        pause.resumed().await;
        pause.report(false);
        lock(&self.allowance).resume(self.clock.now());
    }

    /// [`Self::pause_point`] of a thread of its own, until `stop`.
    pub(super) fn block_while_paused(&self, stop: &AtomicBool) {
        const POLL: Duration = Duration::from_millis(20);
        let Some(pause) = self.pause.as_ref().filter(|pause| pause.is_wanted()) else { return };
        lock(&self.allowance).pause(self.clock.now());
        pause.report(true);
        while pause.is_wanted() && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(POLL);
        }
        pause.report(false);
        lock(&self.allowance).resume(self.clock.now());
    }

    /// Counts the whole traffic of the interface as that of the probe, which cannot know its own.
    pub(super) fn own_all_traffic(&self) {
        self.is_sole.store(true, Ordering::Relaxed);
    }

    /// Keeps the result so far, and shows it to the caller of [`measure`].
    pub fn report(&mut self, measurement: Measurement) {
        (self.progress)(&measurement);
        *lock(&self.measurement) = Some(measurement);
    }

    /// A run for a part of the probe, with the same network and the same prediction, whose results
    /// go to `progress` instead.
    pub fn part(&self, progress: Progress) -> Self {
        Self {
            network: self.network.clone(),
            clock: self.clock,
            allowance: Arc::clone(&self.allowance),
            measurement: Arc::default(),
            progress,
            pause: self.pause.clone(),
            is_sole: Arc::clone(&self.is_sole),
        }
    }

    /// This run, for another thread.
    pub(super) fn same(&self) -> Self {
        let measurement = Arc::clone(&self.measurement);
        Self { measurement, ..self.part(Arc::clone(&self.progress)) }
    }

    /// A part whose results become those of this run by `wrap`.
    pub(super) fn wrapped(
        &self,
        wrap: impl Fn(&Measurement) -> Measurement + Send + Sync + 'static,
    ) -> Self {
        let (latest, progress) = (Arc::clone(&self.measurement), Arc::clone(&self.progress));
        self.part(Arc::new(move |measurement| {
            let measurement = wrap(measurement);
            progress(&measurement);
            *lock(&latest) = Some(measurement);
        }))
    }

    /// Reserves bytes of the prediction.
    pub(super) fn reserve(&mut self, up: Size, down: Size) -> Result<Reservation, ProbeError> {
        self.spend(up, down)?;
        Ok(Reservation { allowance: Arc::clone(&self.allowance), up, down, socket: None })
    }

    /// The result so far.
    pub(super) fn measurement(&self) -> Option<Measurement> {
        lock(&self.measurement).clone()
    }

    /// Looks up a name over the network. Returns its addresses in the order of the name server.
    pub(super) async fn resolve_all(&mut self, host: &str) -> Result<Vec<IpAddr>, ProbeError> {
        let Transfer { up, down, .. } = lookup(host);
        self.spend(up, down)?;
        Ok(self.path().resolver.lookup(host).await?)
    }

    /// Returns an address of the target of a family that the network has. Looks it up over the
    /// network, unless it is an address.
    pub(super) async fn resolve(&mut self, host: &str) -> Result<IpAddr, ProbeError> {
        let found = match host.parse() {
            Ok(address) => vec![address],
            Err(_) => self.resolve_all(host).await?,
        };
        let own = found.into_iter().find(|address| self.path().has_family(*address));
        own.ok_or_else(|| self.no_address(host))
    }

    pub(super) fn no_address(&self, host: &str) -> ProbeError {
        ProbeError::NoAddress { host: host.to_owned(), path: self.path().name.clone() }
    }
}

/// Bytes for a connection. At its end, those that it did not need are free again.
pub(super) struct Reservation {
    allowance: Arc<Mutex<Allowance>>,
    up: Size,
    down: Size,
    socket: Option<OwnedFd>,
}

impl Reservation {
    /// Bytes of the packets that open and close a connection, in one direction.
    pub(super) const HANDSHAKE: u64 = 600;

    /// Names the connection, whose bytes the kernel counts.
    pub(super) fn of(&mut self, stream: &TcpStream) {
        self.socket = stream.as_fd().try_clone_to_owned().ok();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // Messages are small: their packets have more headers than content.
        let needed = |bytes: Size| Size::from_bytes(bytes.as_bytes() * 2 + Self::HANDSHAKE);
        let state = self.socket.as_ref().and_then(|socket| tcp_state(socket.as_fd()).ok());
        let (up, down) = match (state, &self.socket) {
            (Some(state), _) => (needed(state.bytes_sent), needed(state.bytes_received)),
            (None, Some(_)) => return,
            (None, None) => (needed(Size::ZERO), needed(Size::ZERO)),
        };
        lock(&self.allowance).refund(self.up.saturating_sub(up), self.down.saturating_sub(down));
    }
}

/// Upper bound of the look-up of a name: four queries of each family, each with an answer of the
/// largest size that EDNS permits. A literal address needs none.
pub(super) fn lookup(host: &str) -> Transfer {
    const QUERIES: u64 = 8;
    const MAX_QUERY: u64 = 320;
    const MAX_ANSWER: u64 = 1_280;
    let count = if host.parse::<IpAddr>().is_ok() { 0 } else { QUERIES };
    Transfer {
        start: Span::ZERO,
        duration: if count == 0 { Span::ZERO } else { Span::from_secs(26) },
        up: Size::from_bytes(count * MAX_QUERY),
        down: Size::from_bytes(count * MAX_ANSWER),
    }
}

/// Bytes of an IP header.
pub(super) fn ip_header(address: IpAddr) -> u64 {
    if address.is_ipv4() { 20 } else { 40 }
}

/// Runs a probe on a network. `stop` ends it early, `progress` sees its result so far.
///
/// # Errors
/// A parameter is invalid. Everything else that goes wrong is the [`Ending`] of the report.
pub async fn measure(
    probe: &dyn Probe,
    network: &Network,
    options: &Options,
    stop: impl Future<Output = ()>,
    progress: Progress,
) -> Result<Report, InvalidParameter> {
    const ATTEMPTS: u32 = 5;
    let predicted = probe.plan()?.cost(options.radio.as_ref());
    let mut stop = Box::pin(stop);
    let mut spent = options.spent;
    for attempt in 1.. {
        let turn = async {
            match options.parallel {
                true => None,
                false => Some(queue::turn(network.interface()).await),
            }
        };
        let _turn = tokio::select! {
            turn = turn => turn,
            () = &mut stop => return Ok(stopped(probe, network, predicted)),
        };
        let cap = options.cap;
        let looks_before = options.radio.is_some() || network.is_cellular();
        let pause = options.pause.clone();
        let one = Attempt { probe, network, predicted, cap, spent, pause, looks_before };
        let report = one.run(&mut stop, &progress).await;
        let is_disturbed = report.foreign.is_some_and(|foreign| foreign.is_noticeable());
        let is_last = attempt == ATTEMPTS || !matches!(report.ending, Ending::Complete);
        if !options.isolated || !is_disturbed || is_last {
            return Ok(Report { attempts: attempt, ..report });
        }
        spent += report.used.up + report.used.down;
    }
    unreachable!("the last attempt returns")
}

fn stopped(probe: &dyn Probe, network: &Network, predicted: Cost) -> Report {
    let used = Cost { up: Size::ZERO, down: Size::ZERO, duration: Span::ZERO, energy: None };
    Report {
        probe: probe.name(),
        target: probe.target(),
        context: network.context(),
        started: Clock::start().epoch(),
        attempts: 0,
        predicted,
        used,
        foreign: None,
        ending: Ending::Stopped,
        measurement: None,
    }
}

/// One attempt of a probe.
struct Attempt<'a> {
    probe: &'a dyn Probe,
    network: &'a Network,
    predicted: Cost,
    cap: Option<Size>,
    spent: Size,
    pause: Option<PauseSignal>,
    /// Whether the traffic before the probe is of interest.
    looks_before: bool,
}

impl Attempt<'_> {
    async fn run(
        &self,
        stop: &mut (impl Future<Output = ()> + Unpin),
        progress: &Progress,
    ) -> Report {
        let mut context = self.network.context();
        if self.looks_before {
            context.is_active_before = self.network.is_active().await;
        }
        let clock = Clock::start();
        // Now, because the wall clock may be set meanwhile, or the host may sleep.
        let started = clock.epoch();
        let mut run = Run {
            network: self.network.clone(),
            clock,
            allowance: Arc::new(Mutex::new(Allowance::new(
                clock.now(),
                self.predicted,
                self.cap,
                self.spent,
            ))),
            measurement: Arc::default(),
            progress: Arc::clone(progress),
            pause: self.pause.clone().filter(|_| self.probe.can_pause()),
            is_sole: Arc::default(),
        };
        let (allowance, is_sole) = (Arc::clone(&run.allowance), Arc::clone(&run.is_sole));
        let before = self.network.traffic();
        let ended = tokio::select! {
            ended = self.probe.run(&mut run) => Some(ended),
            () = stop => None,
            error = self.watch(&allowance, clock) => Some(Err(error)),
        };
        let used = lock(&run.allowance).used(clock.now());
        let both = before.zip(self.network.traffic());
        // Loopback counts what it sends as received, too.
        let is_loopback = self.network.interface().kind == Kind::Loopback;
        let both = both.filter(|_| !is_sole.load(Ordering::Relaxed) && !is_loopback);
        let foreign = both.map(|(before, after)| Traffic::foreign(before, after, used));
        let ending = match ended {
            None => Ending::Stopped,
            Some(Ok(())) => Ending::Complete,
            Some(Err(ProbeError::Limit(limit))) => Ending::Limit(limit),
            Some(Err(error)) => Ending::Failed(error),
        };
        Report {
            probe: self.probe.name(),
            target: self.probe.target(),
            context,
            started,
            attempts: 1,
            predicted: self.predicted,
            used,
            foreign,
            ending,
            measurement: run.measurement(),
        }
    }

    /// Ends when the probe has no time left, or the network is gone.
    async fn watch(&self, allowance: &Mutex<Allowance>, clock: Clock) -> ProbeError {
        const INTERVAL: Duration = Duration::from_millis(200);
        loop {
            let deadline = lock(allowance).deadline();
            let left = deadline.map(|deadline| Duration::from(deadline.since(clock.now())));
            if left.is_some_and(|left| left.is_zero()) {
                return LimitReached::Duration(self.predicted.duration).into();
            }
            tokio::time::sleep(left.unwrap_or(INTERVAL).min(INTERVAL)).await;
            // A connection would wait for packets that can no longer come.
            if !self.network.path().has_carrier() {
                return ProbeError::InterfaceLost(self.network.path().name.clone());
            }
        }
    }
}
