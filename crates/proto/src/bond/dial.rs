//! A client keeps one carrier to its gateway on every path, and one session over all of them:
//! [`Dialer`] says when to dial which path, over TCP or QUIC, and when the session begins again.
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
//! - A path is dialled again after a pause that doubles ([`Config::first_backoff`]); news of the
//!   path ends the pause at once.
//! - TCP comes first. Where a middlebox drops it, QUIC may get through: it is tried when TCP does
//!   not answer in time, or has been refused more often than
//!   [`Config::tcp_failures_before_quic`] since it last worked.
//! - A carrier that does not get through for [`Config::suspect_grace`] gets a successor: a NAT may
//!   have forgotten it. It is kept until the successor is there.
//! - An idle QUIC carrier may end; its path is then asleep until an application has something to
//!   send.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;

use manyways_unit::{Span, Time};

use super::path::PathState;
use crate::mux::CarrierId;
use crate::sched::PathId;

/// What carries a carrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CarrierTransport {
    /// TCP with TLS.
    Tcp,
    /// QUIC.
    Quic,
}

impl CarrierTransport {
    /// The stable word for it.
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

/// Over which transports a client dials.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TransportChoice {
    /// Over this one alone.
    Only(CarrierTransport),
    /// TCP, and QUIC on a path where TCP does not get through.
    #[default]
    TcpThenQuic,
}

/// The times and counts of a [`Dialer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Over which transports it dials.
    pub transport: TransportChoice,
    /// Whether the gateway has a name that can be looked up again.
    pub has_name: bool,
    /// The first pause after a failure; each one is twice as long as the one before.
    pub first_backoff: Span,
    /// The longest pause.
    pub max_backoff: Span,
    /// How soon a path is dialled again whose session the gateway does not know.
    pub renewal_pause: Span,
    /// An attempt may take this long: connecting over one transport or both, and the handshake.
    pub attempt_timeout: Span,
    /// Connecting over TCP may take this long before QUIC is tried.
    pub tcp_timeout: Span,
    /// Connecting over QUIC after TCP may take this long.
    pub quic_timeout: Span,
    /// Connecting over QUIC to one of the gateway's addresses may take this long.
    pub quic_address_timeout: Span,
    /// Where TCP once got through, it may fail this often without a timeout before QUIC is tried: a
    /// gateway that restarts refuses connections for a moment.
    pub tcp_failures_before_quic: u8,
    /// How long a carrier may be suspect before its path is dialled again.
    pub suspect_grace: Span,
    /// The gateway's name is looked up at most this often.
    pub lookup_interval: Span,
    /// When all paths have been asleep for longer than this, the gateway may have ended the
    /// session, and a new one begins.
    pub session_lifetime: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            transport: TransportChoice::default(),
            has_name: false,
            first_backoff: Span::from_millis(200),
            max_backoff: Span::from_secs(30),
            renewal_pause: Span::from_millis(50),
            attempt_timeout: Span::from_secs(10),
            tcp_timeout: Span::from_secs(3),
            quic_timeout: Span::from_secs(6),
            quic_address_timeout: Span::from_secs(3),
            tcp_failures_before_quic: 4,
            suspect_grace: Span::from_millis(800),
            lookup_interval: Span::from_secs(5),
            session_lifetime: Span::from_secs(30),
        }
    }
}

/// What follows from a failed attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// The next attempt may succeed.
    Transient,
    /// The peer did not answer: something on the path may drop the transport's packets.
    Timeout,
    /// The same over any transport, until somebody changes something at one of the two ends.
    Permanent,
    /// The gateway does not know the session.
    UnknownSession,
}

/// Why an attempt has failed, in the words of the shell.
pub trait Reason: PartialEq {
    /// What follows from it.
    fn kind(&self) -> FailureKind;
}

/// Why a path has no carrier.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure<F> {
    /// The attempt took longer than [`Config::attempt_timeout`].
    #[error("no answer within {} s", .0.as_secs_f64())]
    TimedOut(Span),
    /// What the shell says.
    #[error("{0}")]
    Failed(F),
}

/// Why a path has lost its carrier.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Loss<L> {
    /// The interface of the path does not work.
    #[error("its link is down")]
    LinkDown,
    /// The carrier has ended.
    #[error("{0}")]
    Ended(L),
}

/// What happened. `F` is why an attempt failed, `L` why a carrier ended.
#[derive(Clone, Debug)]
pub enum Input<F, L> {
    /// The path's addresses, or the state of its interface, may be others.
    PathChanged(PathId),
    /// The path's interface stopped working.
    LinkDown(PathId),
    /// The attempt has a connection on which both ends have proved their keys.
    Secured(PathId),
    /// The gateway has welcomed the carrier, which is attached to the session.
    Connected(PathId, CarrierId),
    /// The attempt has failed.
    Failed(PathId, F),
    /// A carrier has ended.
    Lost {
        /// Which one.
        carrier: CarrierId,
        /// Why.
        reason: L,
        /// Its transport ended it as nothing was sent for long.
        idle: bool,
        /// An application has a stream or a flow.
        in_use: bool,
    },
    /// A carrier does not get through.
    Suspect(CarrierId),
    /// A suspect carrier gets through again.
    Recovered(CarrierId),
    /// The gateway has ended the session.
    SessionEnded,
    /// An application has something to send.
    Demand {
        /// It, or another one, already had a stream or a flow.
        in_use: bool,
    },
    /// What the gateway's name stands for; empty where the look-up failed.
    Resolved(Vec<SocketAddr>),
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output<F, L> {
    /// Connect to the gateway on a path, exchange hello and welcome, and attach the carrier.
    Dial {
        /// On this path.
        path: PathId,
        /// Over this.
        transport: CarrierTransport,
    },
    /// End the attempt on a path.
    Abandon(PathId),
    /// Detach a carrier from the session.
    Detach(CarrierId),
    /// Tell the gateway that a path's interface does not work.
    AnnounceLinkDown(PathId),
    /// Begin another session: with another identifier, and without carriers, streams and flows.
    RenewSession,
    /// Look the gateway's name up.
    LookUp,
    /// Tell whoever wants to know.
    Event(Event<F, L>),
}

/// What a user may want to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<F, L> {
    /// A path has a carrier, or another one.
    Up(PathId),
    /// A path has lost its carrier. Not told where it falls asleep.
    Down(PathId, Loss<L>),
    /// A path gets no carrier. Told again only for another reason.
    Failed(PathId, Failure<F>),
    /// The gateway does not know the session, whose connections have ended.
    Renewed,
    /// The gateway's name stands for other addresses.
    Moved(Vec<SocketAddr>),
}

/// Dials the paths of one client, see the [module](self).
#[derive(Debug)]
pub struct Dialer<F, L> {
    config: Config,
    paths: Vec<Path<F>>,
    gateway: Vec<SocketAddr>,
    /// The gateway knows the session.
    is_known: bool,
    lookup: Lookup,
    outputs: VecDeque<Output<F, L>>,
}

#[derive(Debug, Default)]
struct Lookup {
    is_wanted: bool,
    is_under_way: bool,
    not_before: Time,
}

#[derive(Debug)]
struct Path<F> {
    carrier: Option<CarrierId>,
    is_suspect: bool,
    /// It has no carrier since then because nothing was to be sent.
    asleep: Option<Time>,
    activity: Activity<F>,
    backoff: Span,
    /// TCP may fail this often, not by a timeout, before QUIC is tried.
    tcp_failures_left: u8,
    /// The failure that was told last, since the last success.
    told: Option<Failure<F>>,
}

/// What is done for a path.
#[derive(Debug)]
enum Activity<F> {
    /// Nothing: it has a carrier, or is asleep.
    Settled,
    /// Nothing until its interface works.
    NoLink,
    /// It is dialled when the dialer is polled next.
    Due,
    /// It is dialled after a pause that grows.
    Backoff(Time),
    /// It is dialled after a pause that does not.
    Pause(Time),
    /// Its carrier is suspect, and is replaced if it still is then.
    Doubt(Time),
    Attempt(Attempt<F>),
}

#[derive(Debug)]
struct Attempt<F> {
    deadline: Time,
    stage: Stage<F>,
    /// There was news of the path meanwhile: if this fails, the next attempt follows at once.
    is_outdated: bool,
}

#[derive(Debug)]
enum Stage<F> {
    /// Over the only transport, or over TCP before QUIC, until then.
    Connecting(CarrierTransport, Option<Time>),
    /// Over QUIC until then, as TCP failed for that reason.
    FallenBack(Time, Failure<F>),
    /// Both ends are known, hello and welcome are exchanged.
    Handshake,
}

impl<F: Reason + Clone, L> Dialer<F, L> {
    /// A dialer without paths, to a gateway at these addresses.
    pub fn new(config: Config, gateway: Vec<SocketAddr>) -> Self {
        Self {
            config,
            paths: Vec::new(),
            gateway,
            is_known: false,
            lookup: Lookup::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Another path, which is dialled at once.
    pub fn add_path(&mut self) -> PathId {
        let id = PathId(u8::try_from(self.paths.len()).unwrap_or(u8::MAX));
        self.paths.push(Path {
            carrier: None,
            is_suspect: false,
            asleep: None,
            activity: Activity::Due,
            backoff: self.config.first_backoff,
            tcp_failures_left: 0,
            told: None,
        });
        id
    }

    /// Takes note of what happened.
    pub fn handle(&mut self, now: Time, input: Input<F, L>) {
        match input {
            Input::PathChanged(path) => self.wake(path),
            Input::LinkDown(path) => self.link_down(path),
            Input::Secured(path) => self.secured(path),
            Input::Connected(path, carrier) => self.connected(path, carrier),
            Input::Failed(path, error) => self.failed(now, path, Failure::Failed(error)),
            Input::Lost { carrier, reason, idle, in_use } => {
                self.lost(now, carrier, reason, idle && !in_use);
            }
            Input::Suspect(carrier) => self.suspect(now, carrier),
            Input::Recovered(carrier) => {
                if let Some((_, path)) = self.path_of(carrier) {
                    path.is_suspect = false;
                    if matches!(path.activity, Activity::Backoff(_)) {
                        path.activity = Activity::Settled;
                    }
                }
            }
            Input::SessionEnded => self.renew(),
            Input::Demand { in_use } => self.demand(now, in_use),
            Input::Resolved(found) => self.resolved(now, found),
        }
    }

    /// What to do next; nothing where all is done that can be at `now`.
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

    /// When to call [`Dialer::poll`] again if nothing happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let paths = self.paths.iter().filter_map(|path| match &path.activity {
            Activity::Settled | Activity::NoLink => None,
            Activity::Due => Some(Time::ZERO),
            Activity::Backoff(at) | Activity::Pause(at) | Activity::Doubt(at) => Some(*at),
            Activity::Attempt(attempt) => Some(match &attempt.stage {
                Stage::Connecting(_, Some(at)) | Stage::FallenBack(at, _) => {
                    attempt.deadline.min(*at)
                }
                Stage::Connecting(_, None) | Stage::Handshake => attempt.deadline,
            }),
        });
        let lookup = self.lookup.is_wanted && !self.lookup.is_under_way;
        let lookup = lookup.then_some(self.lookup.not_before);
        let queued = (!self.outputs.is_empty()).then_some(Time::ZERO);
        paths.chain(lookup).chain(queued).min()
    }

    /// Where the gateway listens.
    pub fn gateway(&self) -> &[SocketAddr] {
        &self.gateway
    }

    /// Whether the gateway knows the session: the hello then asks to resume it.
    pub fn resumes(&self) -> bool {
        self.is_known
    }

    /// How a path is; down where there is no such path.
    pub fn state(&self, path: PathId) -> PathState {
        self.paths.get(usize::from(path.0)).map_or(PathState::Down, |path| {
            match (path.carrier, path.asleep) {
                (Some(_), _) if path.is_suspect => PathState::Suspect,
                (Some(_), _) => PathState::Up,
                (None, Some(_)) => PathState::Asleep,
                (None, None) => PathState::Down,
            }
        })
    }

    /// Whether a path has a carrier that gets through, or would have one if there were anything to
    /// send.
    pub fn is_connected(&self) -> bool {
        (0..self.paths.len())
            .any(|at| matches!(self.state(PathId(at as u8)), PathState::Up | PathState::Asleep))
    }

    /// Whether [`Input::Demand`] would change anything: it is cheap to ask before every datagram.
    pub fn is_asleep(&self) -> bool {
        self.paths.iter().any(|path| path.asleep.is_some())
    }

    fn path(&mut self, id: PathId) -> Option<&mut Path<F>> {
        self.paths.get_mut(usize::from(id.0))
    }

    fn path_of(&mut self, carrier: CarrierId) -> Option<(PathId, &mut Path<F>)> {
        let at = self.paths.iter().position(|path| path.carrier == Some(carrier))?;
        Some((PathId(at as u8), &mut self.paths[at]))
    }

    fn tell(&mut self, event: Event<F, L>) {
        self.outputs.push_back(Output::Event(event));
    }

    /// There is news of a path: what waits is tried now.
    fn wake(&mut self, id: PathId) {
        let first_backoff = self.config.first_backoff;
        let Some(path) = self.path(id) else { return };
        match &mut path.activity {
            Activity::Attempt(attempt) => attempt.is_outdated = true,
            Activity::Backoff(_) | Activity::Pause(_) => {
                path.backoff = first_backoff;
                path.activity = Activity::Due;
            }
            Activity::Doubt(_) => path.activity = Activity::Due,
            Activity::NoLink => path.activity = Activity::Due,
            Activity::Settled => {
                if path.carrier.is_none() && path.asleep.is_none() {
                    path.activity = Activity::Due;
                }
            }
            Activity::Due => {}
        }
    }

    fn link_down(&mut self, id: PathId) {
        let Some(path) = self.path(id) else { return };
        let Some(carrier) = path.carrier.take() else { return };
        path.is_suspect = false;
        match path.activity {
            // Its addresses may be others when it works again.
            Activity::Settled | Activity::Doubt(_) => path.activity = Activity::NoLink,
            _ => {}
        }
        self.outputs.push_back(Output::Detach(carrier));
        self.outputs.push_back(Output::AnnounceLinkDown(id));
        self.tell(Event::Down(id, Loss::LinkDown));
    }

    fn secured(&mut self, id: PathId) {
        let left = self.config.tcp_failures_before_quic;
        let Some(path) = self.path(id) else { return };
        let Activity::Attempt(attempt) = &mut path.activity else { return };
        if let Stage::Connecting(CarrierTransport::Tcp, Some(_)) = attempt.stage {
            path.tcp_failures_left = left;
        }
        attempt.stage = Stage::Handshake;
    }

    fn connected(&mut self, id: PathId, carrier: CarrierId) {
        let first_backoff = self.config.first_backoff;
        let is_expected = |path: &&mut Path<F>| matches!(path.activity, Activity::Attempt(_));
        let Some(path) = self.path(id).filter(is_expected) else {
            // Its attempt was abandoned.
            return self.outputs.push_back(Output::Detach(carrier));
        };
        let old = path.carrier.replace(carrier);
        path.is_suspect = false;
        path.asleep = None;
        path.backoff = first_backoff;
        path.told = None;
        path.activity = Activity::Settled;
        self.is_known = true;
        self.outputs.extend(old.map(Output::Detach));
        self.tell(Event::Up(id));
    }

    /// An attempt has failed: QUIC may be tried, or there is a pause.
    fn failed(&mut self, now: Time, id: PathId, why: Failure<F>) {
        let pause = now + self.config.renewal_pause;
        let Some(path) = self.path(id) else { return };
        let Activity::Attempt(attempt) = &mut path.activity else { return };
        let kind = match &why {
            Failure::TimedOut(_) => FailureKind::Timeout,
            Failure::Failed(error) => error.kind(),
        };
        let stage = std::mem::replace(&mut attempt.stage, Stage::Handshake);
        let why = match stage {
            Stage::Connecting(CarrierTransport::Tcp, Some(_)) if kind != FailureKind::Permanent => {
                let trusted = path.tcp_failures_left > 0;
                path.tcp_failures_left = path.tcp_failures_left.saturating_sub(1);
                if kind == FailureKind::Timeout || !trusted {
                    return self.fall_back(now, id, why);
                }
                why
            }
            // What TCP failed for says more than that nothing answers over QUIC either.
            Stage::FallenBack(_, of_tcp) if kind != FailureKind::Permanent => of_tcp,
            _ => why,
        };
        if kind == FailureKind::UnknownSession {
            path.activity = Activity::Pause(pause);
            self.renew();
            // The renewal itself is no reason to ask again at once.
            self.paths[usize::from(id.0)].activity = Activity::Pause(pause);
            return;
        }
        self.give_up(now, id, why);
    }

    fn fall_back(&mut self, now: Time, id: PathId, why: Failure<F>) {
        let until = now + self.config.quic_timeout;
        let Some(path) = self.path(id) else { return };
        if let Activity::Attempt(attempt) = &mut path.activity {
            attempt.stage = Stage::FallenBack(until, why);
            self.outputs.push_back(Output::Dial { path: id, transport: CarrierTransport::Quic });
        }
    }

    /// The attempt on a path is over, without a carrier.
    fn give_up(&mut self, now: Time, id: PathId, why: Failure<F>) {
        let first_backoff = self.config.first_backoff;
        let Some(path) = self.path(id) else { return };
        let is_outdated = matches!(&path.activity, Activity::Attempt(one) if one.is_outdated);
        let needs_none = match path.carrier {
            Some(_) => !path.is_suspect,
            None => path.asleep.is_some(),
        };
        path.activity = if needs_none {
            Activity::Settled
        } else if is_outdated {
            path.backoff = first_backoff;
            Activity::Due
        } else {
            Activity::Backoff(now + path.backoff)
        };
        let is_news = path.told.as_ref() != Some(&why);
        if is_news {
            path.told = Some(why.clone());
            self.tell(Event::Failed(id, why));
        }
        if self.config.has_name && !self.is_connected() {
            self.lookup.is_wanted = true;
        }
    }

    fn lost(&mut self, now: Time, carrier: CarrierId, reason: L, falls_asleep: bool) {
        let Some((id, path)) = self.path_of(carrier) else { return };
        path.carrier = None;
        path.is_suspect = false;
        if falls_asleep {
            path.asleep = Some(now);
            // An attempt under way goes on.
            if !matches!(path.activity, Activity::Attempt(_)) {
                path.activity = Activity::Settled;
            }
        } else {
            self.wake(id);
            self.tell(Event::Down(id, Loss::Ended(reason)));
        }
    }

    fn suspect(&mut self, now: Time, carrier: CarrierId) {
        let until = now + self.config.suspect_grace;
        let Some((id, path)) = self.path_of(carrier) else { return };
        path.is_suspect = true;
        match path.activity {
            Activity::Settled => path.activity = Activity::Doubt(until),
            _ => self.wake(id),
        }
    }

    /// The gateway does not know the session: another one begins.
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
        self.tell(Event::Renewed);
    }

    /// Forgets the session. An attempt under way is for the one that is over, and begins again.
    fn begin_session(&mut self) {
        self.is_known = false;
        self.outputs.push_back(Output::RenewSession);
        for at in 0..self.paths.len() {
            if matches!(self.paths[at].activity, Activity::Attempt(_)) {
                self.paths[at].activity = Activity::Due;
                self.outputs.push_back(Output::Abandon(PathId(at as u8)));
            }
        }
    }

    fn demand(&mut self, now: Time, in_use: bool) {
        let last = self.paths.iter().filter_map(|path| path.asleep).max();
        let is_old = last.is_some_and(|since| now.since(since) > self.config.session_lifetime);
        let is_gone = self.paths.iter().all(|path| path.carrier.is_none());
        // What is sent in a session that the gateway has ended would be lost.
        if self.is_known && is_old && is_gone && !in_use {
            self.begin_session();
        }
        for path in &mut self.paths {
            if path.asleep.take().is_some() && matches!(path.activity, Activity::Settled) {
                path.activity = Activity::Due;
            }
        }
    }

    fn resolved(&mut self, now: Time, found: Vec<SocketAddr>) {
        self.lookup.is_under_way = false;
        self.lookup.not_before = now + self.config.lookup_interval;
        let known: HashSet<&SocketAddr> = self.gateway.iter().collect();
        // A resolver may change the order each time.
        if found.is_empty() || known == found.iter().collect() {
            return;
        }
        self.gateway.clone_from(&found);
        self.tell(Event::Moved(found));
        for at in 0..self.paths.len() {
            self.wake(PathId(at as u8));
        }
    }

    /// Does what is due for a path.
    fn advance(&mut self, now: Time, id: PathId) {
        let config = self.config;
        let Some(path) = self.path(id) else { return };
        match &mut path.activity {
            Activity::Settled | Activity::NoLink => {}
            Activity::Due => self.dial(now, id),
            Activity::Backoff(at) if *at <= now => {
                path.backoff = (path.backoff * 2).min(config.max_backoff);
                self.dial(now, id);
            }
            Activity::Pause(at) if *at <= now => self.dial(now, id),
            Activity::Doubt(at) if *at <= now => match path.is_suspect {
                true => self.dial(now, id),
                false => path.activity = Activity::Settled,
            },
            Activity::Attempt(attempt) => {
                let is_late = match &attempt.stage {
                    _ if attempt.deadline <= now => {
                        // Nothing follows within this attempt.
                        attempt.stage = Stage::Handshake;
                        true
                    }
                    Stage::Connecting(_, Some(at)) | Stage::FallenBack(at, _) => *at <= now,
                    Stage::Connecting(_, None) | Stage::Handshake => false,
                };
                if is_late {
                    self.outputs.push_back(Output::Abandon(id));
                    self.failed(now, id, Failure::TimedOut(config.attempt_timeout));
                }
            }
            Activity::Backoff(_) | Activity::Pause(_) | Activity::Doubt(_) => {}
        }
    }

    fn dial(&mut self, now: Time, id: PathId) {
        let config = self.config;
        let (transport, until) = match config.transport {
            TransportChoice::Only(transport) => (transport, None),
            TransportChoice::TcpThenQuic => (CarrierTransport::Tcp, Some(now + config.tcp_timeout)),
        };
        let Some(path) = self.path(id) else { return };
        path.activity = Activity::Attempt(Attempt {
            deadline: now + config.attempt_timeout,
            stage: Stage::Connecting(transport, until),
            is_outdated: false,
        });
        self.outputs.push_back(Output::Dial { path: id, transport });
    }
}

#[cfg(test)]
mod tests;
