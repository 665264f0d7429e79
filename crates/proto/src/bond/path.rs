//! State of a client's paths. [`PathMonitor`] converts samples of their carriers to the
//! [`Environment`] of a policy and to the output of `manyways bond status`.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;

use manyways_unit::{Rate, Size, Span, Time};

use super::dial::CarrierTransport;
use super::usage::{Day, Usage};
use crate::estimate::{CapacityEstimate, CapacitySample, LossEstimate};
use crate::mux::{CarrierId, TransportInfo};
use crate::policy::{Environment, PathFacts, Policy};
use crate::sched::{PathId, PathView, SecondHop};

/// State of a path, derived from its carriers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathState {
    /// Has a working carrier.
    Up,
    /// Has only carriers that do not get through.
    Suspect,
    /// Has no carrier because no application has data to send.
    Asleep,
    /// Has no carrier.
    Down,
}

impl PathState {
    /// Returns the name in output; stable.
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

/// Bytes of one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathBytes {
    /// Sent by this endpoint.
    pub sent: u64,
    /// Received by this endpoint.
    pub received: u64,
}

/// Transport statistics of a carrier, for status output and policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransportStats {
    /// Smoothed RTT. `None` if unknown.
    pub rtt: Option<Span>,
    /// Minimum RTT. `None` if the transport does not report it.
    pub min_rtt: Option<Span>,
    /// Whether data waits to be sent.
    pub has_backlog: bool,
    /// Sent packets with data, including retransmissions.
    pub sent_packets: u32,
    /// Packets that were retransmitted or declared lost.
    pub retransmitted_packets: u32,
}

/// Snapshot of a carrier.
#[derive(Clone, Copy, Debug)]
pub struct CarrierSample {
    pub id: CarrierId,
    pub transport: CarrierTransport,
    /// Whether the carrier does not get through.
    pub is_suspect: bool,
    /// State for the scheduler. `None` if unknown.
    pub transport_info: Option<TransportInfo>,
    /// State as the scheduler sees it. `None` if unknown.
    pub view: Option<PathView>,
    /// Statistics of the transport. `None` if unknown.
    pub stats: Option<TransportStats>,
}

impl CarrierSample {
    /// Returns the time until a byte that is sent now arrives, as the default scheduler predicts it.
    /// `None` if nothing gets through.
    pub fn delivery(&self) -> Option<Span> {
        self.view.filter(|_| !self.is_suspect).map(|view| view.delivery_time())
    }

    /// Returns the second hop of a carrier over a lender.
    fn second_hop(&self) -> Option<SecondHop> {
        self.view.and_then(|view| view.second_hop)
    }

    /// Returns the round-trip time of the whole path if that of the first hop is `first`.
    pub fn rtt_with(&self, first: Span) -> Span {
        first + self.second_hop().map_or(Span::ZERO, |hop| hop.rtt())
    }

    /// Returns the state of the lender, if the carrier is over one. `first_rtt` is the round-trip
    /// time to it.
    pub fn lender(&self, first_rtt: Option<Span>) -> Option<LenderSnapshot> {
        let hop = self.second_hop()?;
        Some(LenderSnapshot {
            address: None,
            first_hop_rtt: first_rtt,
            second_hop_rtt: Some(hop.rtt()),
            second_hop_rate: Some(hop.rate).filter(|rate| !rate.is_zero()),
            backlog: hop.backlog(),
        })
    }
}

/// State of a device that lends its network. All but the address is `None` if unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LenderSnapshot {
    /// Address of the device. `None` if another endpoint connects to it.
    pub address: Option<SocketAddr>,
    /// Smoothed RTT between this endpoint and the device.
    pub first_hop_rtt: Option<Span>,
    /// RTT between the device and the other endpoint, without a wait at the device.
    pub second_hop_rtt: Option<Span>,
    /// Rate at which the device passes on bytes of this endpoint.
    pub second_hop_rate: Option<Rate>,
    /// Bytes of this endpoint that wait at the device or in the queue of its network.
    pub backlog: Option<Size>,
}

/// Snapshot of a path.
#[derive(Clone, Debug)]
pub struct PathSample {
    pub id: PathId,
    /// Name of the interface.
    pub name: String,
    /// Access technology: `wifi`, `cellular`, `ethernet`, …
    pub kind: &'static str,
    /// Whether the system reports the network as metered.
    pub is_metered: bool,
    /// Address of the lender. `None` if it is a network of this device.
    pub lender: Option<SocketAddr>,
    /// Whether the path has no carrier because there is nothing to send.
    pub is_asleep: bool,
    /// Bytes of all carriers since the start of the client.
    pub bytes: PathBytes,
    /// Carriers, newest last. A replaced carrier exists together with its successor for a short
    /// time.
    pub carriers: Vec<CarrierSample>,
}

/// Battery of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Battery {
    /// Charge in percent. `None` without a battery.
    pub level: Option<u8>,
    /// Whether the battery is charging or there is no battery. `None` if unknown.
    pub is_charging: Option<bool>,
}

/// Timing of a [`PathMonitor`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Maximum interval between samples.
    pub sample_interval: Span,
    /// Time for which a suspect path counts as up.
    pub usable_after_suspect: Span,
    /// Time for which a path counts as up while it connects after it was asleep.
    pub wake_timeout: Span,
    /// Minimum interval of a throughput measurement.
    pub rate_window: Span,
    /// Minimum interval between reads of the battery.
    pub battery_interval: Span,
    /// Minimum interval between saves of the data plan usage.
    pub save_interval: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sample_interval: Span::from_millis(500),
            usable_after_suspect: Span::from_secs(1),
            wake_timeout: Span::from_secs(3),
            rate_window: Span::from_millis(900),
            battery_interval: Span::from_secs(10),
            save_interval: Span::from_secs(60),
        }
    }
}

/// An action for the shell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Read the battery and call [`PathMonitor::set_battery`].
    ReadBattery,
    /// Sample all paths and call [`PathMonitor::sample`].
    Sample,
    /// Save [`PathMonitor::usage_mut`].
    SaveUsage,
}

/// Snapshot of a path for status output and policies.
#[derive(Clone, Debug)]
pub struct PathSnapshot {
    /// Properties for a policy.
    pub facts: PathFacts,
    /// State of the path's carriers.
    pub state: PathState,
    /// Transport of the newest carrier. `None` without a carrier.
    pub transport: Option<CarrierTransport>,
    /// Bytes of all carriers since the start of the client.
    pub bytes: PathBytes,
    /// Current rate of received bytes.
    pub down: Rate,
    /// Current rate of sent bytes.
    pub up: Rate,
    /// Unsent bytes at this endpoint.
    pub unsent: Size,
    /// Bytes in flight.
    pub in_flight: Size,
    /// Predicted time until a byte that is sent now arrives. `None` if unknown.
    pub delivery: Option<Span>,
    /// `None` if it is a network of this device.
    pub lender: Option<LenderSnapshot>,
    /// Remaining bytes of the data plan. `None` without a plan.
    pub plan_remaining: Option<Size>,
}

/// Tracks the state of paths over time.
#[derive(Debug)]
pub struct PathMonitor {
    config: Config,
    usage: Usage,
    paths: HashMap<PathId, MonitoredPath>,
    battery: Battery,
    /// Times of the next sample, battery read and save.
    sample_at: Time,
    battery_at: Time,
    save_at: Time,
}

#[derive(Debug, Default)]
struct MonitoredPath {
    capacity: CapacityEstimate,
    losses: LossEstimate,
    carrier: Option<CarrierId>,
    suspect_since: Option<Time>,
    /// Time of the last sample in which the path was asleep.
    asleep_at: Option<Time>,
    counted_bytes: u64,
    rate_sample: Option<(Time, PathBytes)>,
    down: Rate,
    up: Rate,
    /// RTT of the whole path.
    rtt: Option<Span>,
    /// Minimum RTT of the transport.
    min_rtt: Option<Span>,
}

impl PathMonitor {
    /// Creates a monitor that starts at `now` and adds bytes to `usage`.
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

    /// Requests a sample now, because a path has changed.
    pub fn sample_now(&mut self, now: Time) {
        self.sample_at = self.sample_at.min(now);
    }

    /// Returns the next action, or `None` if nothing is to be done at `now`.
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

    /// Returns the time of the next [`PathMonitor::poll`].
    pub fn next_wakeup(&self) -> Time {
        self.sample_at.min(self.save_at)
    }

    pub fn set_battery(&mut self, battery: Battery) {
        self.battery = battery;
    }

    /// Returns the data plan usage, to save it.
    pub fn usage_mut(&mut self) -> &mut Usage {
        &mut self.usage
    }

    /// Processes a sample of all paths at `now` on the day `today`, with the data plans of
    /// `policy`.
    pub fn sample(
        &mut self,
        now: Time,
        today: Day,
        policy: &Policy,
        paths: &[PathSample],
    ) -> (Environment, Vec<PathSnapshot>) {
        let snapshots: Vec<PathSnapshot> =
            paths.iter().map(|path| self.sample_path(now, today, policy, path)).collect();
        let environment = Environment {
            paths: snapshots.iter().map(|path| path.facts.clone()).collect(),
            battery: self.battery.level,
            charging: self.battery.is_charging,
            ..Environment::default()
        };
        (environment, snapshots)
    }

    fn sample_path(
        &mut self,
        now: Time,
        today: Day,
        policy: &Policy,
        path: &PathSample,
    ) -> PathSnapshot {
        let plan = policy.data_plan(&path.name, path.kind);
        let reset_day = plan.map_or(1, |plan| plan.reset_day);
        let bytes = path.bytes.sent + path.bytes.received;
        let monitored = self.paths.entry(path.id).or_default();
        let new_bytes = bytes.saturating_sub(monitored.counted_bytes);
        monitored.counted_bytes = bytes;
        self.usage.add(&path.name, reset_day, today, new_bytes);
        let used = self.usage.used(&path.name, reset_day, today);
        let state = monitored.observe_state(now, path);
        let with_stats = path.carriers.iter().rev().find_map(|carrier| {
            let stats = carrier.stats?;
            Some((carrier, stats))
        });
        if let Some((carrier, stats)) = with_stats {
            monitored.observe_transport(now, carrier, Size::from_bytes(bytes), &stats);
        }
        monitored.measure_rates(now, self.config.rate_window, path.bytes);
        let newest = path.carriers.last();
        let info = newest.and_then(|carrier| carrier.transport_info);
        PathSnapshot {
            facts: PathFacts {
                up: monitored.is_up(now, state, &self.config),
                metered: path.is_metered,
                plan_used: Some(used),
                rate: monitored.capacity.rate(),
                load: monitored.capacity.load(),
                rtt: monitored.rtt,
                loss: monitored.losses.fraction(),
                ..PathFacts::new(path.id, path.name.clone(), path.kind)
            },
            state,
            transport: newest.map(|carrier| carrier.transport),
            bytes: path.bytes,
            down: monitored.down,
            up: monitored.up,
            unsent: info.map(|info| info.unsent).unwrap_or_default(),
            in_flight: info.map(|info| info.bytes_in_flight()).unwrap_or_default(),
            delivery: newest.and_then(CarrierSample::delivery),
            lender: path.lender.map(|address| {
                let lender = newest
                    .and_then(|carrier| carrier.lender(carrier.stats.and_then(|stats| stats.rtt)));
                LenderSnapshot { address: Some(address), ..lender.unwrap_or_default() }
            }),
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
        carrier: &CarrierSample,
        bytes: Size,
        stats: &TransportStats,
    ) {
        if self.carrier != Some(carrier.id) {
            // A new transport starts its counters at 0, and may take another route.
            self.losses = LossEstimate::default();
            self.min_rtt = None;
            self.carrier = Some(carrier.id);
        }
        self.losses.observe(stats.sent_packets, stats.retransmitted_packets);
        self.rtt = stats.rtt.map(|first| carrier.rtt_with(first)).or(self.rtt);
        let seen = self.min_rtt.into_iter().chain(stats.rtt).min();
        self.min_rtt = stats.min_rtt.or(seen);
        let sample = CapacitySample {
            bytes,
            rtt: stats.rtt,
            min_rtt: self.min_rtt,
            has_backlog: stats.has_backlog,
        };
        self.capacity.observe(now, sample);
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

    /// Returns whether a policy counts the path as up. A suspect path and a path that wakes up
    /// count as up for a limited time, so that short interruptions do not move flows.
    fn is_up(&self, now: Time, state: PathState, config: &Config) -> bool {
        let within = |since: Option<Time>, span: Span| since.is_some_and(|at| now.since(at) < span);
        match state {
            PathState::Up | PathState::Asleep => true,
            PathState::Suspect => within(self.suspect_since, config.usable_after_suspect),
            PathState::Down => within(self.asleep_at, config.wake_timeout),
        }
    }
}

#[cfg(test)]
mod tests;
