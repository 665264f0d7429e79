//! One long download at each recorded pair, one network at a time, which `steer run` may change at
//! any half second.
//!
//! Fluid, in virtual time, with the core of the daemon. A network delivers its rate, but after a
//! change only two round trips later (a handshake and a request), and first with the windows of slow
//! start. Nothing else is sent but probes, which take as long as those of the daemon, and which the
//! emulated link answers as it answers those of the tables.

use manyways_model::select::model::{DEFAULT, parse};
use manyways_model::select::{
    Action, BusyMeter, Goal, Indicator, Lane, NetworkFacts, NetworkKind, ProbeLimits, Settings,
    Stage, StageResult, Steering, Traffic, TransferEnergy,
};
use manyways_rig::links::round_trip;
use manyways_trace::LinkTrace;
use manyways_trace::scenario::{CapacitySpec, LinkSpec};
use manyways_unit::{Size, Span, Time};
use serde::Serialize;

use super::data::{BURST_BYTES, NETWORKS, Place, indicators};

/// Time between two polls, and the step of the model; the first divides a second.
const POLL: u64 = 500;
const STEP: u64 = 10;
/// When the daemon and the download begin, in seconds of the traces.
const DAEMON_START: u64 = 2;
const START: u64 = 10;
/// Bytes of a first window, and of a packet.
const FIRST_WINDOW: f64 = 14_480.0;
const PACKET: f64 = 1_500.0;
/// Name of the goal of the streams.
const GOAL: &str = "fast";
/// Milliseconds of ten pings without their round trip, and IP bytes of a stage of pings.
const PINGS_MILLIS: u64 = 1_000;
const PINGS_BYTES: u64 = 1_380;
/// Round trips of a burst: the request and its answer, and the burst.
const BURST_ROUND_TRIPS: f64 = 3.0;
/// A bond suspects a path on which nothing arrives for this long while data are under way.
const SUSPECT: u64 = 600;
/// Mbit/s below which a network is slow, and from which the other one is fast.
const SLOW: f64 = 1.0;
const FAST: f64 = 5.0;

/// A download.
#[derive(Clone, Debug, Serialize)]
pub struct Download {
    pub place: String,
    /// Bytes / those of the better network in each second.
    pub of_oracle: f64,
    /// The same of each network alone.
    pub wifi_alone: f64,
    pub lte_alone: f64,
    pub switches: u32,
    /// Longest time below 1 Mbit/s while the other network offers at least 5.
    pub slow_seconds: f64,
    pub bursts: u32,
    /// Bytes of probes / those of the download.
    pub probe_bytes: f64,
}

/// The host: the networks, a daemon, and the bytes that have arrived.
struct Host<'a> {
    place: &'a Place,
    steering: Steering,
    meters: [BusyMeter; 2],
    traffic: [Traffic; 2],
    /// Probes under way: when they end.
    probes: Vec<(u64, usize, Stage)>,
    bursts: u32,
    probe_bytes: u64,
    /// The network that is used, and since when its connection exists, in milliseconds of the traces.
    used: usize,
    since: u64,
    last_byte: u64,
    switches: u32,
    /// Bytes of each step.
    arrived: Vec<f64>,
    total: f64,
}

/// Runs a download for the rest of the traces.
///
/// # Errors
/// One sentence, if the default model is not valid.
pub fn download(place: &Place) -> Result<Download, String> {
    let mut host = Host::new(place)?;
    let end = place.seconds.max(START + 1) * 1_000;
    for millis in (DAEMON_START * 1_000..end).step_by(STEP as usize) {
        host.finish_probes(millis);
        if millis.is_multiple_of(POLL) {
            host.poll(millis);
        }
        host.act(millis);
        if millis >= START * 1_000 {
            host.step(millis);
        }
    }
    Ok(host.evaluate(end - START * 1_000))
}

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

impl<'a> Host<'a> {
    fn new(place: &'a Place) -> Result<Self, String> {
        let settings = Settings {
            model: Some(parse(DEFAULT.trim_end()).map_err(|error| error.to_string())?),
            goal: Goal::FAST,
            limits: ProbeLimits::default(),
            ping_cost: Size::from_bytes(PINGS_BYTES),
            burst_cost: Some(Size::from_bytes(BURST_BYTES)),
            allows_both: false,
            chooses_new_flows: true,
        };
        let kinds = [NetworkKind::Wifi, NetworkKind::Cellular];
        let facts = |(name, kind): (&str, NetworkKind)| NetworkFacts {
            name: name.to_owned(),
            kind,
            unusable: None,
            energy: TransferEnergy::constant(1.0, 0.0),
            price: 0.0,
            plan: None,
            spent: Size::ZERO,
            monthly: None,
        };
        let start = at(DAEMON_START * 1_000);
        let mut steering = Steering::new(start, settings);
        steering.set_networks(start, NETWORKS.into_iter().zip(kinds).map(facts).collect());
        steering.set_goals(start, &[(GOAL.to_owned(), Goal::FAST)]);
        Ok(Self {
            place,
            steering,
            meters: Default::default(),
            traffic: Default::default(),
            probes: Vec::new(),
            bursts: 0,
            probe_bytes: 0,
            used: 0,
            since: START * 1_000,
            last_byte: START * 1_000,
            switches: 0,
            arrived: Vec::new(),
            total: 0.0,
        })
    }

    fn finish_probes(&mut self, millis: u64) {
        let (ended, open) = self.probes.iter().partition(|(end, ..)| *end <= millis);
        self.probes = open;
        let ended: Vec<(u64, usize, Stage)> = ended;
        for (_, index, stage) in ended {
            let (link, signals) = (&self.place.links[index], &self.place.signals[index]);
            let is_of_burst = |one: Indicator| {
                use Indicator::{UdpGapMean, UdpGapMedian, UdpGapP90, UdpLoss, UdpRate};
                matches!(one, UdpRate | UdpLoss | UdpGapMean | UdpGapMedian | UdpGapP90)
            };
            let is_meant = |(one, _): &(Indicator, f64)| match stage {
                Stage::Pings => one.is_ping() || *one == Indicator::DnsTime,
                Stage::Burst => is_of_burst(*one),
            };
            let found = indicators(link, signals, Span::from_millis(millis));
            let mut values: Vec<(Indicator, f64)> = found.into_iter().filter(is_meant).collect();
            let has_answer = values.iter().any(|(one, _)| one.is_ping());
            if stage == Stage::Pings && !has_answer {
                use Indicator::{PingDeviation, PingMax, PingMean, PingMin};
                values
                    .extend([PingMin, PingMax, PingMean, PingDeviation].map(|one| (one, f64::NAN)));
            }
            let result = StageResult { values, missing: None };
            self.steering.on_stage(at(millis), NETWORKS[index], stage, result);
        }
    }

    fn poll(&mut self, millis: u64) {
        let now = at(millis);
        for (index, name) in NETWORKS.into_iter().enumerate() {
            for (indicator, value) in self.place.signals[index].before(millis / 1_000) {
                self.steering.on_reading(now, name, *indicator, *value);
            }
            let traffic = self.traffic[index];
            if let Some((end, rate)) = self.meters[index].on_counters(now, traffic) {
                self.steering.on_reading(end, name, Indicator::OwnRate, rate.as_mbps_f64());
            }
            let (received, sent) = (traffic.received_bytes, traffic.sent_packets);
            self.steering.on_counters(now, name, received, sent);
        }
        if millis > START * 1_000 {
            let name = NETWORKS[self.used];
            if millis >= self.last_byte.max(self.since) + SUSPECT {
                self.steering.on_stall(now, name);
            } else if millis < self.last_byte + POLL {
                let seconds = round_trip(&self.place.links[self.used]).as_secs_f64();
                self.steering.on_reading(now, name, Indicator::OwnRoundTrip, seconds);
            }
            self.steering.on_bytes(now, GOAL, Size::from_bytes(self.total as u64));
        }
        self.steering.on_interval();
    }

    /// Takes the actions that are due.
    fn act(&mut self, millis: u64) {
        let index = |name: &str| usize::from(name == NETWORKS[1]);
        while let Some(action) = self.steering.poll(at(millis)) {
            match action {
                Action::Probe { network, stage } => {
                    let index = index(&network);
                    let round_trip = round_trip(&self.place.links[index]).as_secs_f64();
                    let (length, bytes) = match stage {
                        Stage::Pings => (PINGS_MILLIS + (round_trip * 1e3) as u64, PINGS_BYTES),
                        Stage::Burst => {
                            self.bursts += 1;
                            let length = BURST_ROUND_TRIPS * round_trip * 1e3;
                            (length as u64, BURST_BYTES)
                        }
                    };
                    self.probe_bytes += bytes;
                    self.probes.push((millis + length, index, stage));
                }
                Action::Choose { lane: Lane::Streams(_), networks } => {
                    let Some(chosen) = networks.first().map(|name| index(name)) else { continue };
                    let is_running = millis >= START * 1_000;
                    if chosen != self.used {
                        self.switches += u32::from(is_running);
                        self.used = chosen;
                        self.since = millis.max(START * 1_000);
                    }
                }
                Action::Choose { .. } => {}
            }
        }
    }

    fn step(&mut self, millis: u64) {
        let link = &self.place.links[self.used];
        let round_trip = round_trip(link).as_secs_f64();
        let age = (millis - self.since) as f64 / 1e3 - 2.0 * round_trip;
        let window = FIRST_WINDOW * 2_f64.powf((age / round_trip).clamp(0.0, 30.0).floor());
        let rate = match age >= 0.0 {
            true => bytes_a_second(link, millis).min(window / round_trip),
            false => 0.0,
        };
        let bytes = rate * STEP as f64 / 1e3;
        self.arrived.push(bytes);
        if bytes > 0.0 {
            self.last_byte = millis;
        }
        let before = self.total;
        self.total += bytes;
        let passed = self.total as u64 - before as u64;
        let packets = (self.total / PACKET) as u64 - (before / PACKET) as u64;
        let traffic = &mut self.traffic[self.used];
        traffic.received_bytes += passed;
        traffic.received_packets += packets;
        // An acknowledgment of two packets, and while nothing arrives, a probe of the sender.
        traffic.sent_packets += packets / 2 + u64::from(bytes == 0.0 && millis.is_multiple_of(200));
    }

    fn evaluate(&self, millis: u64) -> Download {
        let seconds = 0..millis / 1_000;
        let offered = |index: usize, second: u64| -> f64 {
            let from = (START + second) * 1_000;
            let steps = (from..from + 1_000).step_by(STEP as usize);
            let rates = steps.map(|step| bytes_a_second(&self.place.links[index], step));
            rates.sum::<f64>() * STEP as f64 / 1e3
        };
        let all: Vec<[f64; 2]> =
            seconds.map(|second| [offered(0, second), offered(1, second)]).collect();
        let oracle: f64 = all.iter().map(|both| both[0].max(both[1])).sum();
        let alone = |index: usize| all.iter().map(|both| both[index]).sum::<f64>() / oracle;
        let mut slow = Slow::default();
        for (second, both) in all.iter().enumerate() {
            let from = second * (1_000 / STEP) as usize;
            let got: f64 = self.arrived[from..][..(1_000 / STEP) as usize].iter().sum();
            let mbps = |bytes: f64| bytes * 8e-6;
            let is_slow = mbps(got) < SLOW && mbps(both[0].max(both[1])) >= FAST;
            slow.second(is_slow);
        }
        Download {
            place: self.place.name.clone(),
            of_oracle: self.total / oracle,
            wifi_alone: alone(0),
            lte_alone: alone(1),
            switches: self.switches,
            slow_seconds: slow.longest,
            bursts: self.bursts,
            probe_bytes: self.probe_bytes as f64 / self.total.max(1.0),
        }
    }
}

/// Length of a row of slow seconds.
#[derive(Default)]
struct Slow {
    now: f64,
    longest: f64,
}

impl Slow {
    fn second(&mut self, is_slow: bool) {
        self.now = if is_slow { self.now + 1.0 } else { 0.0 };
        self.longest = self.longest.max(self.now);
    }
}

fn bytes_a_second(link: &LinkSpec, millis: u64) -> f64 {
    let CapacitySpec::Trace { trace: LinkTrace::Rates(steps), .. } = &link.down.capacity else {
        return 0.0;
    };
    steps.at(Span::from_millis(millis)).as_bps() as f64 / 8.0
}
