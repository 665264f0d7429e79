//! One long download at each recorded pair, one network at a time, which the decider may change at
//! any half second.
//!
//! Fluid, in virtual time: a network delivers its rate, but after a change only two round trips later
//! (a handshake and a request), and first with the windows of slow start. Nothing is sent over the
//! other network but probes, which the emulated link answers as it answers those of the tables.

use manyways_model::select::model::{DEFAULT, parse};
use manyways_model::select::{
    Choice, Decider, Goal, Indicator, Keeper, Monitor, Network, NetworkKind, ProbeLimits, Request,
    Sizes, Supply, TransferEnergy,
};
use manyways_rig::links::round_trip;
use manyways_trace::LinkTrace;
use manyways_trace::scenario::{CapacitySpec, LinkSpec};
use manyways_unit::{Size, Span, Time};
use serde::Serialize;

use super::data::{Place, indicators};

/// Time between decisions, and the step of the model; the first divides a second.
const DECISION: u64 = 500;
const STEP: u64 = 10;
/// When the download begins, in seconds of the traces, so that probes fit before it.
const START: u64 = 10;
/// Bytes of a first window.
const FIRST_WINDOW: f64 = 14_480.0;
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
    pub probes: u32,
}

/// Networks of a download, and the bytes that have arrived.
struct Model<'a> {
    links: &'a [LinkSpec; 2],
    /// Network that is used, since when its connection exists, in milliseconds.
    used: usize,
    since: u64,
    /// Bytes of each step.
    arrived: Vec<f64>,
    total: f64,
}

/// Runs a download for the rest of the traces.
///
/// # Errors
/// One sentence, if the default model is not valid.
pub fn download(place: &Place) -> Result<Download, String> {
    let default = parse(DEFAULT.trim_end()).map_err(|error| error.to_string())?;
    let end = (place.seconds.max(START + 1) - START) * 1_000;
    let limits = ProbeLimits { blind: Span::from_secs(5), ..ProbeLimits::default() };
    let kinds = [NetworkKind::Wifi, NetworkKind::Cellular];
    let network = |(link, kind): (&LinkSpec, NetworkKind)| Network {
        name: link.name.clone(),
        kind,
        monitor: Monitor::new(limits),
        unusable: None,
        energy: TransferEnergy::constant(1.0, 0.0),
        price: 0.0,
        plan: None,
    };
    let mut decider = Decider {
        goal: Goal::FAST,
        supply: Supply::Unknown,
        model: Some(default),
        networks: place.links.iter().zip(kinds).map(network).collect(),
        overrides: Vec::new(),
        switching_cost: 0.2,
    };
    let mut model =
        Model { links: &place.links, used: 0, since: 0, arrived: Vec::new(), total: 0.0 };
    let (mut switches, mut probes) = (0, 0);
    let mut keeper: Option<Keeper> = None;
    for millis in (0..end).step_by(STEP as usize) {
        let now = Time::from_millis(START * 1_000 + millis);
        if let Some(keeper) = &mut keeper {
            keeper.received(now, Size::from_bytes(model.total as u64));
        }
        if millis % DECISION == 0 {
            if keeper.is_some() {
                let (rate, used) = (model.recent_rate(), model.used);
                decider.networks[used].monitor.set(now, Indicator::OwnRate, rate);
            }
            if millis % 1_000 == 0 {
                for (index, network) in decider.networks.iter_mut().enumerate() {
                    if index != model.used || keeper.is_none() {
                        probes += u32::from(probe(&mut network.monitor, place, index, now));
                    }
                }
            }
            let kept = keeper.as_ref().map(|keeper| keeper.kept(now));
            let sizes = Sizes::known(decider.horizon(now));
            let request = Request { sizes: &sizes, app: None, kept, allows_both: false };
            let decision = decider.decide(now, &request).ok_or("no network")?;
            let best = decision.best().choice;
            match &mut keeper {
                None => keeper = Some(Keeper::new(now, best)),
                Some(_) if best == Choice::Only(model.used) => {}
                Some(keeper) => {
                    switches += 1;
                    keeper.changed(now, best);
                }
            }
            if let Choice::Only(best) = best
                && (millis == 0 || best != model.used)
            {
                (model.used, model.since) = (best, millis);
            }
        }
        model.step(millis);
    }
    Ok(model.evaluate(place, end, switches, probes))
}

/// Probes a network if its monitor wants to; true if it was probed.
fn probe(monitor: &mut Monitor, place: &Place, index: usize, now: Time) -> bool {
    let second = now.as_nanos() / 1_000_000_000;
    for (indicator, value) in place.signals[index].before(second) {
        monitor.set(now, *indicator, *value);
    }
    if !monitor.decide(now, true, Size::ZERO, Size::ZERO).is_probe() {
        return false;
    }
    let before = monitor.indicators().value(Indicator::UdpRate);
    for (indicator, value) in indicators(&place.links[index], &place.signals[index], second) {
        monitor.set(now, indicator, value);
    }
    let after = monitor.indicators().value(Indicator::UdpRate);
    let is_as_predicted = before
        .zip(after)
        .is_some_and(|(before, after)| (0.5..=2.0).contains(&(after / before.max(0.1))));
    monitor.probed(now, is_as_predicted);
    true
}

impl Model<'_> {
    fn step(&mut self, millis: u64) {
        let link = &self.links[self.used];
        let round_trip = round_trip(link).as_secs_f64();
        let age = (millis - self.since) as f64 / 1e3 - 2.0 * round_trip;
        let window = FIRST_WINDOW * 2_f64.powf((age / round_trip).clamp(0.0, 30.0).floor());
        let rate = match age >= 0.0 {
            true => bytes_a_second(link, millis).min(window / round_trip),
            false => 0.0,
        };
        let bytes = rate * STEP as f64 / 1e3;
        self.arrived.push(bytes);
        self.total += bytes;
    }

    /// Mbit/s of the last second, or since the connection delivers.
    fn recent_rate(&self) -> f64 {
        let steps = (1_000 / STEP) as usize;
        let recent: f64 = self.arrived.iter().rev().take(steps).sum();
        let measured = self.arrived.len().min(steps) as f64 * STEP as f64 / 1e3;
        recent * 8e-6 / measured.max(1e-3)
    }

    fn evaluate(&self, place: &Place, end: u64, switches: u32, probes: u32) -> Download {
        let seconds = 0..end / 1_000;
        let offered = |index: usize, second: u64| -> f64 {
            let steps = (0..1_000).step_by(STEP as usize);
            let rates = steps.map(|step| bytes_a_second(&self.links[index], second * 1_000 + step));
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
            place: place.name.clone(),
            of_oracle: self.arrived.iter().sum::<f64>() / oracle,
            wifi_alone: alone(0),
            lte_alone: alone(1),
            switches,
            slow_seconds: slow.longest,
            probes,
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
    steps.at(Span::from_millis(START * 1_000 + millis)).as_bps() as f64 / 8.0
}
