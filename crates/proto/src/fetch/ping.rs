//! Measurement of the application round-trip time: when, and with which source.

use manyways_unit::{Rate, Size, Span, Time};

use super::path::Path;
use super::{Fetch, Output, PathId, Scheduler};

/// Interval of PINGs at the start of a path and near a decision.
const DENSE_PING_INTERVAL: Span = Span::from_millis(100);
/// Number of PINGs at the start of a path that use [`DENSE_PING_INTERVAL`].
const DENSE_PINGS: u32 = 30;
/// Interval of PINGs at other times. Servers count PINGs, and some allow one per second.
const SPARSE_PING_INTERVAL: Span = Span::from_secs(3);
/// A decision is near if the remaining bytes of a path take at most this time.
const MAX_DECISION_TIME: Span = Span::from_millis(600);
/// A path is silent if what it should bring is late by one round trip, and by at least this.
const MIN_SILENCE: Span = Span::from_millis(30);
/// Timeouts of an unresponsive path after which a missing answer means nothing.
const MAX_SILENCE_TIMEOUTS: u64 = 4;
/// Interval between readings of the transport's RTT on a connection without PINGs.
const TRANSPORT_RTT_INTERVAL: Span = Span::from_millis(500);

/// The RTT measurements of a path.
#[derive(Debug)]
pub(super) struct Pinger {
    /// When the unanswered PING was sent; `None` without one.
    sent_at: Option<Time>,
    /// Whether the path brought bytes long after the answer to this PING was due.
    is_overtaken: bool,
    /// When the latest measurement was requested; `None` if this connection had none.
    last_at: Option<Time>,
    /// When the latest RTT was measured.
    pub(super) measured_at: Time,
    count: u32,
    source: RttSource,
}

/// Source of the measured RTT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RttSource {
    Ping,
    Transport,
}

impl Pinger {
    pub(super) fn new(now: Time) -> Self {
        Self {
            sent_at: None,
            is_overtaken: false,
            last_at: None,
            measured_at: now,
            count: 0,
            source: RttSource::Ping,
        }
    }

    /// Begins the measurements of a new connection.
    pub(super) fn restart(&mut self) {
        self.sent_at = None;
        self.last_at = None;
    }
}

impl Path {
    /// Records the RTT of the acknowledged PING.
    pub(super) fn on_pong(&mut self, now: Time) {
        if let Some(sent_at) = self.pinger.sent_at.take() {
            self.pinger.measured_at = now;
            self.pinger.source = RttSource::Ping;
            self.round_trip.observe(now.since(sent_at));
        }
    }

    /// Records the smoothed RTT of the transport.
    pub(super) fn on_transport_rtt(&mut self, now: Time, rtt: Span) {
        self.pinger.sent_at = None;
        self.pinger.measured_at = now;
        self.pinger.source = RttSource::Transport;
        self.round_trip.observe(rtt);
    }

    /// Notes that the PING was not sent, and that the transport has no RTT.
    pub(super) fn on_ping_failed(&mut self) {
        self.pinger.sent_at = None;
        self.pinger.source = RttSource::Transport;
    }

    /// Notes that a part of a response arrived.
    pub(super) fn on_arrival(&mut self, now: Time) {
        self.last_activity_at = now;
        if let (Some(sent_at), Some(rtt)) = (self.pinger.sent_at, self.round_trip.mean()) {
            self.pinger.is_overtaken |= now >= sent_at + rtt + rtt.max(MIN_SILENCE);
        }
    }
}

impl Fetch {
    /// When the round-trip time of a path must next be measured.
    pub(super) fn next_ping_at(&self, id: PathId, path: &Path) -> Option<Time> {
        let pinger = &path.pinger;
        let is_measured = path.state.is_ready()
            && pinger.sent_at.is_none()
            && self.config.scheduler != Scheduler::Single
            && self.load_of(id) > 0;
        let pause = match pinger.last_at {
            None => Span::ZERO,
            Some(_) if pinger.source == RttSource::Transport => TRANSPORT_RTT_INTERVAL,
            Some(_) if pinger.count < DENSE_PINGS || self.is_decision_near(id, path) => {
                DENSE_PING_INTERVAL
            }
            Some(_) => SPARSE_PING_INTERVAL,
        };
        is_measured.then(|| pinger.last_at.unwrap_or(Time::ZERO) + pause)
    }

    /// Whether a path brings nothing at present: neither the answer to a PING nor to a request. A
    /// path may be used again if its server no longer answers PINGs.
    pub(super) fn is_silent(&self, now: Time, id: PathId) -> bool {
        self.silence_of(id).is_some_and(|(start, end)| (start..end).contains(&now))
    }

    /// When a path becomes silent if nothing arrives until then, and when it may be used again.
    /// `None` if nothing is expected to arrive, or if no RTT of the path was measured. A PING whose
    /// answer is missing although later bytes arrived shows nothing: a server need not answer it.
    fn silence_of(&self, id: PathId) -> Option<(Time, Time)> {
        let path = self.paths.get(&id)?;
        let rtt = path.round_trip.mean()?;
        let delay = path.response_delay.unwrap_or_default().max(rtt);
        let pinger = &path.pinger;
        let pongs = pinger.sent_at.filter(|_| !pinger.is_overtaken).map(|sent_at| sent_at + rtt);
        let heads = self.requests_of(id).filter(|(_, request)| !request.is_answered());
        let expected = heads.map(|(_, request)| request.sent + delay).chain(pongs).min()?;
        // An RTT of the transport may be an old one.
        let answered_at = Some(pinger.measured_at).filter(|_| pinger.source == RttSource::Ping);
        let last = answered_at.map_or(path.last_activity_at, |at| at.max(path.last_activity_at));
        let expected = expected.max(last + rtt);
        let start = expected + rtt.max(MIN_SILENCE);
        Some((start, start + self.unresponsive_timeout(id) * MAX_SILENCE_TIMEOUTS))
    }

    /// When silent paths may be used again.
    pub(super) fn silence_ends(&self) -> impl Iterator<Item = Time> {
        self.paths.keys().filter_map(|id| Some(self.silence_of(*id)?.1))
    }

    /// Whether a path will soon have received all requested bytes.
    fn is_decision_near(&self, id: PathId, path: &Path) -> bool {
        let remaining = self.requests_of(id).map(|(_, request)| request.remaining());
        let remaining = remaining.fold(0, u64::saturating_add);
        let rate = path.throughput.rate(self.scheduled_at).unwrap_or(Rate::ZERO);
        !rate.is_zero()
            && rate.time_for(Size::from_bytes(remaining))
                <= MAX_DECISION_TIME + self.response_delay(id).unwrap_or_default()
    }

    pub(super) fn ping(&mut self, now: Time) {
        let due = self
            .paths
            .iter()
            .filter(|(id, path)| self.next_ping_at(**id, path).is_some_and(|at| at <= now));
        let due: Vec<PathId> = due.map(|(id, _)| *id).collect();
        for id in due {
            if let Some(path) = self.paths.get_mut(&id) {
                path.pinger.sent_at = Some(now);
                path.pinger.is_overtaken = false;
                path.pinger.last_at = Some(now);
                path.pinger.count += 1;
                self.outputs.push_back(Output::Ping { path: id });
            }
        }
    }
}
