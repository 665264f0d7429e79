//! What the paths of a client are like: [`PathMonitor`] turns samples of their carriers into the
//! [`Surroundings`] that a policy asks about, and into what `manyways bond status` shows.

use std::collections::HashMap;
use std::fmt;

use manyways_unit::{Rate, Size, Span, Time};

use super::dial::CarrierTransport;
use super::usage::{Day, Usage};
use crate::estimate::{Look, Losses, Offer};
use crate::mux::{CarrierId, Condition};
use crate::policy::{PathFacts, Policy, Surroundings};
use crate::sched::PathId;

/// Whether a path can carry anything, as far as its carriers go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathState {
    /// It has a carrier that gets through.
    Up,
    /// It has a carrier, which does not get through.
    Suspect,
    /// It has no carrier as no application has anything to send, and gets one when one has.
    Asleep,
    /// It has no carrier.
    Down,
}

impl PathState {
    /// The stable word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Asleep => "asleep",
            Self::Down => "down",
        }
    }
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What one path carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathBytes {
    /// From this end.
    pub sent: u64,
    /// To this end.
    pub received: u64,
}

/// What a carrier's transport counts, for display and for policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransportStats {
    /// The smoothed round-trip time.
    pub rtt: Option<Span>,
    /// The smallest round-trip time, where the transport knows it.
    pub min_rtt: Option<Span>,
    /// Something waits to be sent.
    pub has_backlog: bool,
    /// Packets with data that were sent, retransmissions included.
    pub sent_packets: u32,
    /// Packets that were retransmitted or found lost.
    pub retransmitted_packets: u32,
}

/// A carrier at one time.
#[derive(Clone, Copy, Debug)]
pub struct CarrierSample {
    /// Its number.
    pub id: CarrierId,
    /// What carries it.
    pub transport: CarrierTransport,
    /// It does not get through.
    pub is_suspect: bool,
    /// What the scheduler knows of it.
    pub condition: Option<Condition>,
    /// What its transport counts.
    pub stats: Option<TransportStats>,
}

/// A path at one time.
#[derive(Clone, Debug)]
pub struct PathSample {
    /// Its number.
    pub id: PathId,
    /// The name of its interface.
    pub name: String,
    /// The kind of its network: `wifi`, `cellular`, `ethernet`, …
    pub kind: &'static str,
    /// Whether the system says that its bytes cost money.
    pub is_metered: bool,
    /// It has no carrier as nothing is to be sent.
    pub is_asleep: bool,
    /// What its carriers carried since the client began.
    pub bytes: PathBytes,
    /// Its carriers, the newest last: one that is replaced is there with its successor for a
    /// moment.
    pub carriers: Vec<CarrierSample>,
}

/// The device's battery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Battery {
    /// What it holds, in percent. `None` without a battery.
    pub level: Option<u8>,
    /// Whether it is being charged, or there is none.
    pub is_charging: Option<bool>,
}

/// The times of a [`PathMonitor`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Paths are sampled this often at least.
    pub sample_interval: Span,
    /// A path that is suspect for this long counts as down.
    pub suspect_timeout: Span,
    /// A path that was asleep counts as up for this long while it connects.
    pub wake_timeout: Span,
    /// Throughput is measured over at least this.
    pub rate_window: Span,
    /// The battery is read at most this often.
    pub battery_interval: Span,
    /// The counts of data plans are saved at most this often.
    pub save_interval: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sample_interval: Span::from_millis(500),
            suspect_timeout: Span::from_secs(1),
            wake_timeout: Span::from_secs(3),
            rate_window: Span::from_millis(900),
            battery_interval: Span::from_secs(10),
            save_interval: Span::from_secs(60),
        }
    }
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Read the battery, for [`PathMonitor::set_battery`].
    ReadBattery,
    /// Sample all paths, for [`PathMonitor::sample`].
    Sample,
    /// Save [`PathMonitor::usage_mut`].
    SaveUsage,
}

/// What is known of a path beside the facts for a policy.
#[derive(Clone, Debug)]
pub struct PathSnapshot {
    /// What a policy may ask about.
    pub facts: PathFacts,
    /// How its carriers are.
    pub state: PathState,
    /// What carries its newest carrier.
    pub transport: Option<CarrierTransport>,
    /// What its carriers carried since the client began.
    pub bytes: PathBytes,
    /// What flows to this end now.
    pub down: Rate,
    /// What flows from this end now.
    pub up: Rate,
    /// What waits in the kernel at this end.
    pub unsent: Size,
    /// What was sent and is not acknowledged.
    pub in_flight: Size,
    /// What is left of its data plan; `None` without one.
    pub plan_remaining: Option<Size>,
}

/// Keeps what has to be known of paths over time.
#[derive(Debug)]
pub struct PathMonitor {
    config: Config,
    usage: Usage,
    paths: HashMap<PathId, MonitoredPath>,
    battery: Battery,
    /// When a sample is due, the battery is to be read, and usage is to be saved.
    sample_at: Time,
    battery_at: Time,
    save_at: Time,
}

#[derive(Debug, Default)]
struct MonitoredPath {
    capacity: Offer,
    losses: Losses,
    carrier: Option<CarrierId>,
    suspect_since: Option<Time>,
    /// When it was last seen asleep.
    asleep_at: Option<Time>,
    counted_bytes: u64,
    rate_sample: Option<(Time, PathBytes)>,
    down: Rate,
    up: Rate,
    rtt: Option<Span>,
    min_rtt: Option<Span>,
}

impl PathMonitor {
    /// Monitors from `now` on. Bytes are added to `usage`.
    pub fn new(now: Time, config: Config, usage: Usage) -> Self {
        Self {
            config,
            usage,
            paths: HashMap::new(),
            battery: Battery::default(),
            sample_at: now,
            battery_at: now,
            save_at: now + config.save_interval,
        }
    }

    /// Something has changed: a sample is due now.
    pub fn sample_now(&mut self, now: Time) {
        self.sample_at = self.sample_at.min(now);
    }

    /// What to do next; nothing where all is done that can be at `now`.
    pub fn poll(&mut self, now: Time) -> Option<Output> {
        if self.sample_at <= now {
            if self.battery_at <= now {
                self.battery_at = now + self.config.battery_interval;
                return Some(Output::ReadBattery);
            }
            self.sample_at = now + self.config.sample_interval;
            return Some(Output::Sample);
        }
        if self.save_at <= now {
            self.save_at = now + self.config.save_interval;
            return Some(Output::SaveUsage);
        }
        None
    }

    /// When to call [`PathMonitor::poll`] again if nothing happens before.
    pub fn next_wakeup(&self) -> Time {
        self.sample_at.min(self.save_at)
    }

    /// The battery is like this now.
    pub fn set_battery(&mut self, battery: Battery) {
        self.battery = battery;
    }

    /// The counts of data plans, to save them.
    pub fn usage_mut(&mut self) -> &mut Usage {
        &mut self.usage
    }

    /// All paths at `now`, which is on the day `today`. Data plans are those of `policy`.
    pub fn sample(
        &mut self,
        now: Time,
        today: Day,
        policy: &Policy,
        paths: &[PathSample],
    ) -> (Surroundings, Vec<PathSnapshot>) {
        let snapshots: Vec<PathSnapshot> =
            paths.iter().map(|path| self.sample_path(now, today, policy, path)).collect();
        let surroundings = Surroundings {
            paths: snapshots.iter().map(|path| path.facts.clone()).collect(),
            battery: self.battery.level,
            charging: self.battery.is_charging,
        };
        (surroundings, snapshots)
    }

    fn sample_path(
        &mut self,
        now: Time,
        today: Day,
        policy: &Policy,
        path: &PathSample,
    ) -> PathSnapshot {
        let plan = policy.plan(&path.name, path.kind);
        let reset_day = plan.map_or(1, |plan| plan.from_day);
        let bytes = path.bytes.sent + path.bytes.received;
        let monitored = self.paths.entry(path.id).or_default();
        let new_bytes = bytes.saturating_sub(monitored.counted_bytes);
        monitored.counted_bytes = bytes;
        self.usage.add(&path.name, reset_day, today, new_bytes);
        let used = self.usage.used(&path.name, reset_day, today);
        let state = monitored.observe_state(now, path);
        let with_stats = path.carriers.iter().rev().find_map(|carrier| {
            let stats = carrier.stats?;
            Some((carrier.id, stats))
        });
        if let Some((carrier, stats)) = with_stats {
            monitored.observe_transport(now, carrier, Size::from_bytes(bytes), &stats);
        }
        monitored.measure_rates(now, self.config.rate_window, path.bytes);
        let newest = path.carriers.last();
        let condition = newest.and_then(|carrier| carrier.condition);
        PathSnapshot {
            facts: PathFacts {
                up: monitored.is_up(now, state, &self.config),
                metered: path.is_metered,
                used: Some(used),
                rate: monitored.capacity.rate(),
                load: monitored.capacity.load(),
                rtt: monitored.rtt,
                loss: monitored.losses.share(),
                ..PathFacts::new(path.id, path.name.clone(), path.kind)
            },
            state,
            transport: newest.map(|carrier| carrier.transport),
            bytes: path.bytes,
            down: monitored.down,
            up: monitored.up,
            unsent: condition.map(|condition| condition.unsent).unwrap_or_default(),
            in_flight: condition.map(|condition| condition.flying()).unwrap_or_default(),
            plan_remaining: plan.map(|plan| plan.monthly.saturating_sub(used)),
        }
    }
}

impl MonitoredPath {
    fn observe_state(&mut self, now: Time, path: &PathSample) -> PathState {
        let is_suspect =
            !path.carriers.is_empty() && path.carriers.iter().all(|carrier| carrier.is_suspect);
        self.suspect_since = match is_suspect {
            true => self.suspect_since.or(Some(now)),
            false => None,
        };
        match path.carriers.is_empty() {
            true if path.is_asleep => {
                self.asleep_at = Some(now);
                PathState::Asleep
            }
            true => PathState::Down,
            false if is_suspect => PathState::Suspect,
            false => PathState::Up,
        }
    }

    fn observe_transport(
        &mut self,
        now: Time,
        carrier: CarrierId,
        bytes: Size,
        stats: &TransportStats,
    ) {
        if self.carrier != Some(carrier) {
            // Its transport counts from the beginning, and may take another way.
            self.losses = Losses::default();
            self.min_rtt = None;
            self.carrier = Some(carrier);
        }
        self.losses.look(stats.sent_packets, stats.retransmitted_packets);
        self.rtt = stats.rtt.or(self.rtt);
        let seen = self.min_rtt.into_iter().chain(stats.rtt).min();
        self.min_rtt = stats.min_rtt.or(seen);
        let look =
            Look { bytes, rtt: stats.rtt, least_rtt: self.min_rtt, backlog: stats.has_backlog };
        self.capacity.look(now, look);
    }

    fn measure_rates(&mut self, now: Time, window: Span, bytes: PathBytes) {
        let Some((then, before)) = self.rate_sample else {
            self.rate_sample = Some((now, bytes));
            return;
        };
        let span = now.since(then);
        if span < window {
            return;
        }
        let rate =
            |now: u64, before: u64| Rate::of(Size::from_bytes(now.saturating_sub(before)), span);
        self.down = rate(bytes.received, before.received);
        self.up = rate(bytes.sent, before.sent);
        self.rate_sample = Some((now, bytes));
    }

    /// Whether a policy should count on it: one that is suspect or has just been woken still counts
    /// for a while, so that no flow changes its path for a moment's sake.
    fn is_up(&self, now: Time, state: PathState, config: &Config) -> bool {
        let within = |since: Option<Time>, span: Span| since.is_some_and(|at| now.since(at) < span);
        match state {
            PathState::Up | PathState::Asleep => true,
            PathState::Suspect => within(self.suspect_since, config.suspect_timeout),
            PathState::Down => within(self.asleep_at, config.wake_timeout),
        }
    }
}

#[cfg(test)]
mod tests;
