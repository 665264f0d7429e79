//! A client keeps one carrier to its gateway on each path, and one session over all carriers.
//! [`Dialer`] decides when to dial a path, over TCP or QUIC, and when to start a new session.
//!
//! ```text
//!            AddPath            Due                      Failed, late
//!               │        ┌───────────────── Backoff ◄──────────────────┐
//!               ▼        ▼       dial                                  │
//!              Due ──────────────────────────────► Attempt ────────────┤
//!               ▲                                     │ Connected      │ UnknownSession:
//!               │ Wake        Suspect                 ▼                │ Pause, then Due
//!  Asleep ──────┤   Doubt ◄───────────────────── Settled               │
//!     ▲         │     │  still suspect              │                  │
//!     │         └─────┘                             │ Lost: Due; idle and unused: Asleep
//!     └─────────────────────────────────────────────┘ LinkDown: NoLink until PathChanged
//! ```
//!
//! - A path is dialled again after a backoff that doubles ([`Config::first_backoff`]). A change of
//!   the path ends the backoff, and so does an application that has data to send while no path
//!   works. Where the gateway refuses connections, the backoff is short: a refusal costs a packet,
//!   and the network is up.
//! - TCP is tried first. QUIC may get through a middlebox that drops TCP: it is tried if TCP has a
//!   timeout, or fails more often than [`Config::tcp_failures_before_quic`] since its last success.
//! - A carrier that is suspect for [`Config::suspect_grace`] is replaced, because a NAT may have
//!   lost its mapping. The old carrier stays until the new one is connected.
//! - Where two carriers in a row get suspect before they have carried more than a handshake, large
//!   packets may be lost without an ICMP message (a black hole of the path's MTU, RFC 2923): the next
//!   carrier has [`PacketSize::Small`], and the one after it is over QUIC. If data does not pass over
//!   any of them, the path is suspect and is dialled after a backoff, until data passes.
//! - A gateway that has ended its carriers and refuses connections on every path does not run any longer,
//!   and its session is lost: its streams end at once, not when the gateway is back.
//! - A path over a lender is dialled while the gateway knows the session, over TCP, and often: the
//!   lender may come at any time, and an attempt costs a packet on the local network. After a lender
//!   has changed messages it is not dialled for [`Config::first_distrust`], longer each time.
//! - An idle QUIC carrier may end. Its path is then asleep until an application has data to send.

mod path;

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;

use manyways_unit::{Span, Time};

use self::path::{Activity, Attempt, Path, Stage, Way};
use super::path::PathState;
use crate::mux::{CarrierId, Direction};
use crate::sched::PathId;

/// Transport protocol of a carrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CarrierTransport {
    /// TCP with TLS.
    Tcp,
    Quic,
}

impl CarrierTransport {
    /// Returns the name in configuration files and output; stable.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Quic => "quic",
        }
    }
}

impl fmt::Display for CarrierTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Length of the packets of a TCP carrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PacketSize {
    /// As the kernel chooses.
    #[default]
    Normal,
    /// At most as long as the first packets of QUIC, which a path has to carry.
    Small,
}

/// Transports over which a client dials.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TransportChoice {
    /// Only this transport.
    Only(CarrierTransport),
    /// TCP, then QUIC on a path where TCP fails.
    #[default]
    TcpThenQuic,
}

/// Timeouts and limits of a [`Dialer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    pub transport: TransportChoice,
    /// Whether the gateway has a host name that can be resolved again.
    pub has_name: bool,
    /// Backoff after the first failure; doubles with each further one.
    pub first_backoff: Span,
    pub max_backoff: Span,
    /// The same from attempt to attempt while connections are refused, and while an application has
    /// data to send and no path works.
    pub refused_backoff: Span,
    /// Delay before a path is dialled again after the gateway did not know the session.
    pub renewal_pause: Span,
    /// Timeout of an attempt, including both transports and the handshake.
    pub attempt_timeout: Span,
    /// Pause between attempts to reach a lender that does not answer.
    pub lender_pause: Span,
    /// The same as `attempt_timeout` over a lender.
    pub lender_timeout: Span,
    /// Time for which a lender is not used after it has changed messages; doubles each time, until
    /// the lender is paired again.
    pub first_distrust: Span,
    pub max_distrust: Span,
    /// Timeout of the TCP connection before QUIC is tried.
    pub tcp_timeout: Span,
    /// Timeout of the QUIC connection after TCP has failed.
    pub quic_timeout: Span,
    /// The same after TCP was refused, so that the round trip is no longer than that.
    pub quic_timeout_after_refusal: Span,
    /// Timeout of the QUIC connection to one of the gateway's addresses.
    pub quic_address_timeout: Span,
    /// Failures of TCP, other than timeouts, that are tolerated after a success before QUIC is
    /// tried. A gateway refuses connections while it restarts.
    pub tcp_failures_before_quic: u8,
    /// Time for which a carrier may be suspect before its path is dialled again.
    pub suspect_grace: Span,
    /// Minimum interval between lookups of the gateway's name.
    pub lookup_interval: Span,
    /// Time after which a gateway may have ended a session whose paths are all asleep. The next
    /// demand then starts a new session.
    pub session_lifetime: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            transport: TransportChoice::default(),
            has_name: false,
            first_backoff: Span::from_millis(200),
            max_backoff: Span::from_secs(30),
            refused_backoff: Span::from_secs(2),
            renewal_pause: Span::from_millis(50),
            attempt_timeout: Span::from_secs(10),
            lender_pause: Span::from_millis(400),
            lender_timeout: Span::from_secs(3),
            first_distrust: Span::from_secs(30),
            max_distrust: Span::from_secs(300),
            tcp_timeout: Span::from_secs(3),
            quic_timeout: Span::from_secs(6),
            quic_timeout_after_refusal: Span::from_secs(2),
            quic_address_timeout: Span::from_secs(3),
            tcp_failures_before_quic: 4,
            suspect_grace: Span::from_millis(800),
            lookup_interval: Span::from_secs(5),
            session_lifetime: Span::from_secs(30),
        }
    }
}

/// Consequence of a failed attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// The next attempt may succeed.
    Transient,
    /// Nothing listens at the gateway's address, or a middlebox answers in its place.
    Refused,
    /// No response from the peer: the path may drop packets of this transport.
    Timeout,
    /// There is no host at the address.
    Absent,
    /// Fails over any transport until the configuration of client or gateway changes.
    Permanent,
    /// The gateway does not know the session.
    UnknownSession,
    /// The lender has changed, left out or repeated messages.
    Forged,
}

/// Reason of a failed attempt; defined by the shell.
pub trait Reason: PartialEq {
    fn kind(&self) -> FailureKind;
}

impl<F: Reason> Failure<F> {
    /// Whether there was no answer.
    fn is_silence(&self) -> bool {
        matches!(self.kind(), FailureKind::Timeout | FailureKind::Refused | FailureKind::Absent)
    }

    fn kind(&self) -> FailureKind {
        match self {
            Self::TimedOut(_) => FailureKind::Timeout,
            Self::Barren => FailureKind::Transient,
            Self::Failed(reason) => reason.kind(),
        }
    }
}

/// Reason for which a path has no carrier.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure<F> {
    /// The attempt exceeded [`Config::attempt_timeout`].
    #[error("no answer within {} s", .0.as_secs_f64())]
    TimedOut(Span),
    /// Carriers connect, and carry nothing.
    #[error("it connects, and then nothing gets through")]
    Barren,
    /// The reason from the shell.
    #[error("{0}")]
    Failed(F),
}

/// Reason for which a path has lost its carrier.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Loss<L> {
    /// The interface of the path is down.
    #[error("its link is down")]
    LinkDown,
    /// The carrier has ended.
    #[error("{0}")]
    Ended(L),
    /// The lender has changed, left out or repeated messages, and is not used for this time.
    #[error("{0}; it is not used for {pause} s", pause = .1.as_secs_f64())]
    Forged(L, Span),
}

/// An event. `F` is the reason of a failed attempt, `L` the reason for which a carrier ended.
#[derive(Clone, Debug)]
pub enum Input<F, L> {
    /// The addresses or the state of the path's interface may have changed.
    PathChanged(PathId),
    /// The interface of the path is down.
    LinkDown(PathId),
    /// A path is not used any longer, until it changes.
    Forget(PathId),
    /// Client and gateway of the attempt have authenticated each other.
    Secured(PathId),
    /// The gateway has accepted the carrier, which is attached to the session.
    Connected(PathId, CarrierId),
    Failed(PathId, F),
    /// A carrier has ended.
    Lost {
        carrier: CarrierId,
        reason: L,
        end: CarrierEnd,
        /// Whether an application has a stream or flow.
        in_use: bool,
    },
    /// A carrier does not get through.
    Suspect {
        carrier: CarrierId,
        /// The direction in which it does not get through, if it has carried no more than a
        /// handshake there.
        barren: Option<Direction>,
    },
    /// The gateway reports that the lender of this path has changed, left out or repeated messages.
    Forged(PathId, L),
    /// A carrier has carried more than a handshake in this direction.
    Delivered(CarrierId, Direction),
    /// A suspect carrier works again.
    Recovered(CarrierId),
    /// The gateway has ended the session.
    SessionEnded,
    /// An application has data to send.
    Demand {
        /// Whether any application already had a stream or flow.
        in_use: bool,
    },
    /// Addresses of the gateway's name; empty if the lookup failed.
    Resolved(Vec<SocketAddr>),
}

/// How a carrier ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CarrierEnd {
    /// The transport ended after its idle timeout.
    Idle,
    /// The peer closed or reset the connection.
    Closed,
    Broken,
    /// The lender has changed, left out or repeated messages.
    Forged,
}

/// An action for the shell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output<F, L> {
    /// Connect to the gateway on a path, exchange hello and welcome, and attach the carrier.
    Dial { path: PathId, transport: CarrierTransport, packets: PacketSize },
    /// End the attempt on a path.
    Abandon(PathId),
    /// Detach a carrier from the session.
    Detach(CarrierId),
    /// Inform the gateway that the interface of a path is down.
    AnnounceLinkDown(PathId),
    /// Start a new session with a new identifier, without carriers, streams and flows.
    RenewSession,
    /// Resolve the gateway's name.
    LookUp,
    /// Report an event.
    Event(Event<F, L>),
}

/// An event for the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<F, L> {
    /// A path has a new carrier, with small packets if others are lost.
    Up(PathId, PacketSize),
    /// A path has lost its carrier. Not reported if the path falls asleep.
    Down(PathId, Loss<L>),
    /// An attempt on a path failed. Reported again only if the reason changes.
    Failed(PathId, Failure<F>),
    /// The gateway does not know the session; its streams and flows have ended.
    Renewed,
    /// The gateway does not run; the streams and flows of the session have ended.
    GatewayGone,
    /// The gateway's name resolves to other addresses.
    Moved(Vec<SocketAddr>),
}

/// Dials the paths of one client; see the [module](self).
#[derive(Debug)]
pub struct Dialer<F, L> {
    config: Config,
    paths: Vec<Path<F>>,
    gateway: Vec<SocketAddr>,
    /// Whether the gateway knows the session.
    is_known: bool,
    /// The number that the gateway gave to the session; `None` before its first welcome.
    instance: Option<u64>,
    lookup: Lookup,
    outputs: VecDeque<Output<F, L>>,
}

#[derive(Debug, Default)]
struct Lookup {
    is_wanted: bool,
    is_under_way: bool,
    not_before: Time,
}

impl<F: Reason + Clone, L> Dialer<F, L> {
    /// Creates a dialer without paths.
    pub fn new(config: Config, gateway: Vec<SocketAddr>) -> Self {
        Self {
            config,
            paths: Vec::new(),
            gateway,
            is_known: false,
            instance: None,
            lookup: Lookup::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Adds a path, which is dialled at once.
    pub fn add_path(&mut self) -> PathId {
        self.add(false)
    }

    /// Adds a path over a lender.
    pub fn add_lender(&mut self) -> PathId {
        self.add(true)
    }

    fn add(&mut self, is_lent: bool) -> PathId {
        let id = PathId(u8::try_from(self.paths.len()).unwrap_or(u8::MAX));
        self.paths.push(Path::new(is_lent, &self.config));
        id
    }

    /// Processes an event that happened at `now`.
    pub fn handle(&mut self, now: Time, input: Input<F, L>) {
        match input {
            Input::PathChanged(id) => {
                if let Some(path) = self.path(id) {
                    // It may lead elsewhere now.
                    (path.way, path.way_works, path.is_on_trial) = (Way::Normal, false, false);
                    path.lost = None;
                    (path.is_closed, path.is_refused) = (false, false);
                }
                self.wake(id);
            }
            Input::LinkDown(path) => self.on_link_down(path),
            Input::Forget(path) => self.on_forgotten(path),
            Input::Secured(path) => self.on_secured(path),
            Input::Connected(path, carrier) => self.on_connected(path, carrier),
            Input::Failed(path, error) => self.on_failed(now, path, Failure::Failed(error)),
            Input::Lost { carrier, reason, end, in_use } => {
                self.on_lost(now, carrier, reason, end, in_use);
            }
            Input::Suspect { carrier, barren } => self.on_suspect(now, carrier, barren),
            Input::Forged(id, reason) => {
                if self.path(id).is_some_and(|path| path.is_lent) {
                    self.distrust(now, id, reason);
                }
            }
            Input::Delivered(carrier, direction) => self.on_delivered(carrier, direction),
            Input::Recovered(carrier) => {
                if let Some((_, path)) = self.path_of(carrier) {
                    path.is_suspect = false;
                    path.barren = None;
                    if matches!(path.activity, Activity::Backoff(..)) {
                        path.activity = Activity::Settled;
                    }
                }
            }
            Input::SessionEnded => self.renew(),
            Input::Demand { in_use } => self.on_demand(now, in_use),
            Input::Resolved(found) => self.on_resolved(now, found),
        }
    }

    /// Returns the next action, or `None` if nothing is to be done at `now`.
    pub fn poll(&mut self, now: Time) -> Option<Output<F, L>> {
        for id in (0..self.paths.len()).map(|at| PathId(at as u8)) {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            self.advance(now, id);
        }
        let lookup = &mut self.lookup;
        if lookup.is_wanted && !lookup.is_under_way && lookup.not_before <= now {
            (lookup.is_wanted, lookup.is_under_way) = (false, true);
            self.outputs.push_back(Output::LookUp);
        }
        self.outputs.pop_front()
    }

    /// Returns the time of the next [`Dialer::poll`] if no input arrives before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let paths = self.paths.iter().filter_map(|path| path.next_wakeup(self.is_known));
        let lookup = self.lookup.is_wanted && !self.lookup.is_under_way;
        let lookup = lookup.then_some(self.lookup.not_before);
        let queued = (!self.outputs.is_empty()).then_some(Time::ZERO);
        paths.chain(lookup).chain(queued).min()
    }

    /// Returns the addresses of the gateway.
    pub fn gateway(&self) -> &[SocketAddr] {
        &self.gateway
    }

    /// Processes the number that a welcome has for the session.
    ///
    /// # Errors
    /// If it is not the session of earlier welcomes: the failure of the attempt. While a carrier of
    /// the session works, the welcome is a late one of a gateway that has restarted since, or the
    /// carrier will end soon.
    pub fn accept(&mut self, instance: u64) -> Result<(), FailureKind> {
        if *self.instance.get_or_insert(instance) == instance {
            return Ok(());
        }
        let works = |path: &Path<F>| path.carrier.is_some() && !path.is_suspect;
        match self.paths.iter().any(works) {
            true => Err(FailureKind::Transient),
            false => Err(FailureKind::UnknownSession),
        }
    }

    /// Returns whether the hello must resume a session that the gateway knows.
    pub fn resumes(&self) -> bool {
        self.is_known
    }

    /// Returns the state of a path; `Down` for an unknown path.
    pub fn state(&self, path: PathId) -> PathState {
        self.paths.get(usize::from(path.0)).map_or(PathState::Down, Path::state)
    }

    /// Returns whether any path has a working carrier or is asleep.
    pub fn is_connected(&self) -> bool {
        (0..self.paths.len())
            .any(|at| matches!(self.state(PathId(at as u8)), PathState::Up | PathState::Asleep))
    }

    /// Returns whether [`Input::Demand`] has an effect; cheap enough for each datagram.
    pub fn heeds_demand(&self) -> bool {
        self.paths.iter().any(|path| path.asleep_since.is_some()) || !self.is_connected()
    }

    fn path(&mut self, id: PathId) -> Option<&mut Path<F>> {
        self.paths.get_mut(usize::from(id.0))
    }

    fn path_of(&mut self, carrier: CarrierId) -> Option<(PathId, &mut Path<F>)> {
        let at = self.paths.iter().position(|path| path.carrier == Some(carrier))?;
        Some((PathId(at as u8), &mut self.paths[at]))
    }

    fn report(&mut self, event: Event<F, L>) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Ends the wait of a path, because the path has changed.
    fn wake(&mut self, id: PathId) {
        let first_backoff = self.config.first_backoff;
        if let Some(path) = self.path(id) {
            path.wake(first_backoff);
        }
    }

    fn on_link_down(&mut self, id: PathId) {
        let Some(path) = self.path(id) else { return };
        let Some(carrier) = path.carrier.take() else { return };
        path.is_suspect = false;
        match path.activity {
            // The interface may have other addresses when it works again.
            Activity::Settled | Activity::Suspect(_) => path.activity = Activity::NoLink,
            _ => {}
        }
        self.outputs.push_back(Output::Detach(carrier));
        self.outputs.push_back(Output::AnnounceLinkDown(id));
        self.report(Event::Down(id, Loss::LinkDown));
    }

    fn on_forgotten(&mut self, id: PathId) {
        self.on_link_down(id);
        let Some(path) = self.path(id) else { return };
        if matches!(path.activity, Activity::Attempt(_)) {
            self.outputs.push_back(Output::Abandon(id));
        }
        let first_distrust = self.config.first_distrust;
        if let Some(path) = self.path(id) {
            (path.activity, path.reported_failure) = (Activity::NoLink, None);
            path.distrust = first_distrust;
        }
    }

    fn on_secured(&mut self, id: PathId) {
        let left = self.config.tcp_failures_before_quic;
        let Some(path) = self.path(id) else { return };
        let Activity::Attempt(attempt) = &mut path.activity else { return };
        if let Stage::Connecting(CarrierTransport::Tcp, Some(_)) = attempt.stage {
            path.tcp_failures_left = left;
        }
        attempt.stage = Stage::Handshake;
        attempt.is_secured = true;
    }

    fn on_connected(&mut self, id: PathId, carrier: CarrierId) {
        let first_backoff = self.config.first_backoff;
        let is_expected = |path: &&mut Path<F>| matches!(path.activity, Activity::Attempt(_));
        let Some(path) = self.path(id).filter(is_expected) else {
            // The attempt was abandoned.
            return self.outputs.push_back(Output::Detach(carrier));
        };
        let old = path.carrier.replace(carrier);
        path.is_suspect = false;
        path.barren = None;
        (path.is_closed, path.is_refused) = (false, false);
        path.asleep_since = None;
        path.activity = Activity::Settled;
        let (packets, is_on_trial) = (path.way.packets(), path.is_on_trial);
        if !is_on_trial {
            path.backoff = first_backoff;
            path.reported_failure = None;
        }
        self.is_known = true;
        self.outputs.extend(old.map(Output::Detach));
        if !is_on_trial {
            self.report(Event::Up(id, packets));
        }
    }

    fn on_delivered(&mut self, carrier: CarrierId, direction: Direction) {
        let first_backoff = self.config.first_backoff;
        let Some((id, path)) = self.path_of(carrier) else { return };
        path.barren = path.barren.filter(|lost| *lost != direction);
        // Bytes that pass in one direction do not show that the other one is healed.
        if path.lost.is_some_and(|lost| lost != direction) {
            return;
        }
        path.lost = None;
        path.way_works = true;
        if path.way == Way::NormalAgain {
            path.way = Way::Normal;
        }
        if std::mem::take(&mut path.is_on_trial) {
            path.backoff = first_backoff;
            path.reported_failure = None;
            let packets = path.way.packets();
            self.report(Event::Up(id, packets));
        }
    }

    /// Processes a failed attempt: falls back to QUIC, or starts the backoff.
    fn on_failed(&mut self, now: Time, id: PathId, reason: Failure<F>) {
        let pause = now + self.config.renewal_pause;
        let Some(path) = self.path(id) else { return };
        let Activity::Attempt(attempt) = &mut path.activity else { return };
        let kind = reason.kind();
        let stage = std::mem::replace(&mut attempt.stage, Stage::Handshake);
        let reason = match stage {
            _ if path.is_lent => reason,
            Stage::Connecting(CarrierTransport::Tcp, Some(_)) if kind != FailureKind::Permanent => {
                let trusted = path.tcp_failures_left > 0;
                path.tcp_failures_left = path.tcp_failures_left.saturating_sub(1);
                if kind == FailureKind::Timeout || !trusted {
                    return self.fall_back(now, id, reason);
                }
                reason
            }
            // The reason of TCP is more specific than a missing response over QUIC.
            Stage::FallenBack(_, of_tcp) if kind != FailureKind::Permanent => of_tcp,
            _ => reason,
        };
        if kind == FailureKind::UnknownSession {
            path.activity = Activity::RenewalPause(pause);
            self.renew();
            // The renewal itself does not justify an immediate attempt.
            self.paths[usize::from(id.0)].activity = Activity::RenewalPause(pause);
            return;
        }
        self.give_up(now, id, reason);
    }

    fn fall_back(&mut self, now: Time, id: PathId, reason: Failure<F>) {
        let until = now
            + match reason.kind() {
                FailureKind::Refused => self.config.quic_timeout_after_refusal,
                _ => self.config.quic_timeout,
            };
        let Some(path) = self.path(id) else { return };
        if let Activity::Attempt(attempt) = &mut path.activity {
            attempt.stage = Stage::FallenBack(until, reason);
            let (transport, packets) = (CarrierTransport::Quic, PacketSize::Normal);
            self.outputs.push_back(Output::Dial { path: id, transport, packets });
        }
    }

    /// Ends the attempt of a path without a carrier.
    fn give_up(&mut self, now: Time, id: PathId, reason: Failure<F>) {
        let Config { first_backoff, refused_backoff, lender_pause, max_distrust, .. } = self.config;
        let Some(path) = self.path(id) else { return };
        let (began, is_outdated, was_secured) = match &path.activity {
            Activity::Attempt(attempt) => (attempt.began, attempt.is_outdated, attempt.is_secured),
            _ => (now, false, false),
        };
        let needs_none = match path.carrier {
            Some(_) => !path.is_suspect,
            None => path.asleep_since.is_some(),
        };
        if !std::mem::take(&mut path.way_works) {
            (path.way, path.lost) = (Way::Normal, None);
        }
        path.is_refused = reason.kind() == FailureKind::Refused;
        path.activity = if reason.kind() == FailureKind::Forged {
            Activity::Distrusted(now + path.next_distrust(max_distrust))
        } else if needs_none {
            Activity::Settled
        } else if is_outdated {
            path.backoff = first_backoff;
            Activity::Due
        } else if path.is_lent && reason.is_silence() && !was_secured {
            // A lender that is there, but not its network, has cost a ticket of the gateway.
            Activity::Backoff(began, now + lender_pause)
        } else if reason.kind() == FailureKind::Refused {
            Activity::Backoff(began, now.max(began + path.backoff.min(refused_backoff)))
        } else {
            Activity::Backoff(began, now + path.backoff)
        };
        let is_news = path.reported_failure.as_ref() != Some(&reason);
        if is_news {
            path.reported_failure = Some(reason.clone());
            self.report(Event::Failed(id, reason));
        }
        if self.config.has_name && !self.is_connected() {
            self.lookup.is_wanted = true;
        }
        self.end_lost_session();
    }

    /// Ends the session if the gateway that has it does not run.
    fn end_lost_session(&mut self) {
        let is_refused = |path: &Path<F>| {
            let has_none = path.carrier.is_none() && path.asleep_since.is_none();
            has_none
                && (path.is_lent || path.is_refused || matches!(path.activity, Activity::NoLink))
        };
        // A middlebox that refuses connections does not close those of the gateway.
        let was_closed = self.paths.iter().any(|path| path.is_closed);
        if self.is_known && was_closed && self.paths.iter().all(is_refused) {
            self.begin_session();
            self.report(Event::GatewayGone);
        }
    }

    fn on_lost(&mut self, now: Time, carrier: CarrierId, reason: L, end: CarrierEnd, in_use: bool) {
        let Some((id, path)) = self.path_of(carrier) else { return };
        path.carrier = None;
        path.is_suspect = false;
        path.is_closed = end == CarrierEnd::Closed;
        if end == CarrierEnd::Forged {
            return self.distrust(now, id, reason);
        }
        if end == CarrierEnd::Idle && !in_use {
            path.asleep_since = Some(now);
            // A running attempt continues.
            if !matches!(path.activity, Activity::Attempt(_)) {
                path.activity = Activity::Settled;
            }
        } else {
            self.wake(id);
            let is_attempt = |path: &&mut Path<F>| matches!(path.activity, Activity::Attempt(_));
            if let Some(path) = self.path(id).filter(is_attempt)
                && end == CarrierEnd::Closed
            {
                // The peer answers, perhaps only now: packets of this attempt may wait for long until
                // they are sent again.
                path.activity = Activity::Due;
                self.outputs.push_back(Output::Abandon(id));
            }
            self.report(Event::Down(id, Loss::Ended(reason)));
        }
    }

    /// Uses a lender no longer that has changed messages, until its time is over.
    fn distrust(&mut self, now: Time, id: PathId, reason: L) {
        let max_distrust = self.config.max_distrust;
        let Some(path) = self.path(id) else { return };
        let carrier = path.carrier.take();
        path.is_suspect = false;
        let is_attempt = matches!(path.activity, Activity::Attempt(_));
        // Both ends of the path may notice it, and the lender may be forgotten meanwhile.
        let is_news = !matches!(path.activity, Activity::Distrusted(_) | Activity::NoLink);
        let pause = is_news.then(|| path.next_distrust(max_distrust));
        if let Some(pause) = pause {
            path.activity = Activity::Distrusted(now + pause);
        }
        self.outputs.extend(carrier.map(Output::Detach));
        if is_attempt {
            self.outputs.push_back(Output::Abandon(id));
        }
        if let Some(pause) = pause {
            self.report(Event::Down(id, Loss::Forged(reason, pause)));
        }
    }

    fn on_suspect(&mut self, now: Time, carrier: CarrierId, barren: Option<Direction>) {
        let until = now + self.config.suspect_grace;
        let Some((id, path)) = self.path_of(carrier) else { return };
        path.is_suspect = true;
        path.barren = barren;
        match path.activity {
            Activity::Settled => path.activity = Activity::Suspect(until),
            _ => self.wake(id),
        }
    }

    /// Starts a new session, because the gateway does not know the current one.
    fn renew(&mut self) {
        if !self.is_known {
            return;
        }
        self.begin_session();
        for at in 0..self.paths.len() {
            let path = &mut self.paths[at];
            path.carrier = None;
            path.is_suspect = false;
            self.wake(PathId(at as u8));
        }
        self.report(Event::Renewed);
    }

    /// Drops the session. Running attempts belong to the old session and restart.
    fn begin_session(&mut self) {
        self.is_known = false;
        self.instance = None;
        self.outputs.push_back(Output::RenewSession);
        for at in 0..self.paths.len() {
            (self.paths[at].is_closed, self.paths[at].is_refused) = (false, false);
            if matches!(self.paths[at].activity, Activity::Attempt(_)) {
                self.paths[at].activity = Activity::Due;
                self.outputs.push_back(Output::Abandon(PathId(at as u8)));
            }
        }
    }

    fn on_demand(&mut self, now: Time, in_use: bool) {
        let last = self.paths.iter().filter_map(|path| path.asleep_since).max();
        let is_old = last.is_some_and(|since| now.since(since) > self.config.session_lifetime);
        let is_gone = self.paths.iter().all(|path| path.carrier.is_none());
        // Data sent in a session that the gateway has ended would be lost.
        if self.is_known && is_old && is_gone && !in_use {
            self.begin_session();
        }
        for path in &mut self.paths {
            if path.asleep_since.take().is_some() && matches!(path.activity, Activity::Settled) {
                path.activity = Activity::Due;
            }
        }
        if self.is_connected() {
            return;
        }
        let refused_backoff = self.config.refused_backoff;
        for path in &mut self.paths {
            if let Activity::Backoff(began, at) = &mut path.activity {
                *at = (*at).min(now.max(*began + refused_backoff));
            }
        }
    }

    fn on_resolved(&mut self, now: Time, found: Vec<SocketAddr>) {
        self.lookup.is_under_way = false;
        self.lookup.not_before = now + self.config.lookup_interval;
        let known: HashSet<&SocketAddr> = self.gateway.iter().collect();
        // A resolver may change the order.
        if found.is_empty() || known == found.iter().collect() {
            return;
        }
        self.gateway.clone_from(&found);
        self.report(Event::Moved(found));
        for at in 0..self.paths.len() {
            self.wake(PathId(at as u8));
        }
    }

    /// Performs due actions of a path.
    fn advance(&mut self, now: Time, id: PathId) {
        let (config, is_known) = (self.config, self.is_known);
        let Some(path) = self.path(id) else { return };
        match &mut path.activity {
            Activity::Settled | Activity::NoLink => {}
            Activity::Due if path.is_lent && !is_known => {}
            Activity::Due => self.dial(now, id),
            Activity::Backoff(_, at) if *at <= now && (is_known || !path.is_lent) => {
                path.backoff = (path.backoff * 2).min(config.max_backoff);
                self.dial(now, id);
            }
            Activity::RenewalPause(at) if *at <= now => self.dial(now, id),
            Activity::Distrusted(at) if *at <= now && (is_known || !path.is_lent) => {
                self.dial(now, id);
            }
            Activity::Suspect(at) if *at <= now => match (path.is_suspect, path.barren.is_some()) {
                (true, true) if !path.is_lent => self.try_next_way(now, id),
                (true, _) => self.dial(now, id),
                (false, _) => path.activity = Activity::Settled,
            },
            Activity::Attempt(attempt) => {
                let is_late = match &attempt.stage {
                    _ if attempt.deadline <= now => {
                        // This attempt has no further stage.
                        attempt.stage = Stage::Handshake;
                        true
                    }
                    Stage::Connecting(_, Some(at)) | Stage::FallenBack(at, _) => *at <= now,
                    Stage::Connecting(_, None) | Stage::Handshake => false,
                };
                if is_late {
                    let timeout = attempt.deadline.since(attempt.began);
                    self.outputs.push_back(Output::Abandon(id));
                    self.on_failed(now, id, Failure::TimedOut(timeout));
                }
            }
            Activity::Backoff(..)
            | Activity::RenewalPause(_)
            | Activity::Distrusted(_)
            | Activity::Suspect(_) => {}
        }
    }

    /// A carrier has connected, and nothing gets through.
    fn try_next_way(&mut self, now: Time, id: PathId) {
        let config = self.config;
        let Some(path) = self.path(id) else { return };
        path.lost = path.barren;
        match path.way.next(config.transport) {
            Some(way) => {
                (path.way, path.way_works) = (way, false);
                self.dial(now, id);
            }
            None => {
                (path.way, path.way_works, path.is_on_trial) = (Way::Normal, false, true);
                path.activity = Activity::Backoff(now, now + path.backoff);
                if path.reported_failure.as_ref() != Some(&Failure::Barren) {
                    path.reported_failure = Some(Failure::Barren);
                    self.report(Event::Failed(id, Failure::Barren));
                }
            }
        }
    }

    fn dial(&mut self, now: Time, id: PathId) {
        let config = self.config;
        let Some(path) = self.path(id) else { return };
        path.is_refused = false;
        let timeout = if path.is_lent { config.lender_timeout } else { config.attempt_timeout };
        let packets = path.way.packets();
        let (transport, until) = match (config.transport, path.way) {
            _ if path.is_lent => (CarrierTransport::Tcp, None),
            (TransportChoice::Only(transport), _) => (transport, None),
            (TransportChoice::TcpThenQuic, Way::Quic) => (CarrierTransport::Quic, None),
            (TransportChoice::TcpThenQuic, _) => {
                (CarrierTransport::Tcp, Some(now + config.tcp_timeout))
            }
        };
        path.activity = Activity::Attempt(Attempt {
            began: now,
            deadline: now + timeout,
            stage: Stage::Connecting(transport, until),
            is_secured: false,
            is_outdated: false,
        });
        self.outputs.push_back(Output::Dial { path: id, transport, packets });
    }
}

#[cfg(test)]
mod tests;
