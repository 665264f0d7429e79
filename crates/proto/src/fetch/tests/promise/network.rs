//! Random networks: paths with rates that change, lost bursts and deaths.
//!
//! The ranges were fixed before the first run and are never narrowed.

use manyways_unit::{Random, Rate, Span, Time};

use super::super::simulation::{Link, RunOutcome, Server, Simulation};
use crate::fetch::{Config, PathId, Scheduler};

/// Number of paths.
const PATHS: (u64, u64) = (2, 3);
/// Length of the object in bytes, log-uniform.
const LENGTH: (f64, f64) = (64e3, 16e6);
/// Round trip in seconds, log-uniform.
const RTT: (f64, f64) = (0.01, 0.2);
/// Mean rate of a path in bit/s, log-uniform.
const RATE: (f64, f64) = (1e6, 50e6);
/// Number of changes of a path's rate, uniform.
const RATE_CHANGES: u64 = 6;
/// Factor of a changed rate to the mean rate, log-uniform.
const RATE_FACTOR: (f64, f64) = (0.25, 4.0);
/// Number of lost bursts of a path, uniform.
const BURSTS: u64 = 3;
/// Duration of the recovery of a lost burst in round trips, uniform; at least [`MIN_RECOVERY`] in
/// half of the cases (a retransmission timeout).
const RECOVERY: (f64, f64) = (1.0, 3.0);
const MIN_RECOVERY: f64 = 0.2;
/// Probability that a path dies. At least one path of a network survives.
const DEATH: f64 = 0.12;
/// Changes occur in the time that all paths need at their mean rates, times this.
const HORIZON: f64 = 1.5;

/// A change of a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Change {
    Rate(Rate),
    /// A burst is lost: for this time nothing arrives.
    Burst(Span),
    /// From now on nothing arrives.
    Death,
}

#[derive(Clone, Debug)]
pub(super) struct NetworkPath {
    pub(super) rate: Rate,
    pub(super) rtt: Span,
    /// In the order of time.
    changes: Vec<(Time, Change)>,
}

#[derive(Clone, Debug)]
pub(super) struct Network {
    pub(super) length: u64,
    pub(super) paths: Vec<NetworkPath>,
}

fn log_uniform(random: &mut Random, (low, high): (f64, f64)) -> f64 {
    low * (high / low).powf(random.uniform())
}

fn rate(bps: f64) -> Rate {
    Rate::from_bps(bps as u64)
}

impl Network {
    /// The network with this number.
    pub(super) fn random(number: u64) -> Self {
        let mut random = Random::for_purpose(number, 41);
        let count = PATHS.0 + random.up_to(PATHS.1 - PATHS.0);
        let length = log_uniform(&mut random, LENGTH) as u64;
        let means: Vec<f64> = (0..count).map(|_| log_uniform(&mut random, RATE)).collect();
        let rtts: Vec<f64> = (0..count).map(|_| log_uniform(&mut random, RTT)).collect();
        let slowest = rtts.iter().copied().fold(0.0, f64::max);
        let horizon = HORIZON * (length as f64 * 8.0 / means.iter().sum::<f64>() + 2.0 * slowest);
        let survivor = random.up_to(count - 1);
        let paths = (0..count).zip(means.into_iter().zip(rtts));
        let paths = paths.map(|(id, (mean, rtt))| {
            let mut changes = Vec::new();
            let at =
                |random: &mut Random| Time::ZERO + Span::from_secs_f64(horizon * random.uniform());
            for _ in 0..random.up_to(RATE_CHANGES) {
                let factor = log_uniform(&mut random, RATE_FACTOR);
                changes.push((at(&mut random), Change::Rate(rate(mean * factor))));
            }
            for _ in 0..random.up_to(BURSTS) {
                let rtts = RECOVERY.0 + (RECOVERY.1 - RECOVERY.0) * random.uniform();
                let least = if random.chance(0.5) { MIN_RECOVERY } else { 0.0 };
                let pause = Span::from_secs_f64((rtt * rtts).max(least));
                changes.push((at(&mut random), Change::Burst(pause)));
            }
            if random.chance(DEATH) && id != survivor {
                changes.push((at(&mut random), Change::Death));
            }
            changes.sort_unstable();
            NetworkPath { rate: rate(mean), rtt: Span::from_secs_f64(rtt), changes }
        });
        Self { length, paths: paths.collect() }
    }

    /// Begins a fetch over these paths of the network.
    fn simulation(&self, config: Config, paths: &[&NetworkPath]) -> Simulation {
        let links = paths
            .iter()
            .map(|path| Link { has_slow_start: true, ..Link::new(path.rate, path.rtt) });
        let links: Vec<Link> = links.collect();
        Simulation::new(config, Server::of(self.length), &links)
    }

    /// Fetches over all paths. Returns the simulation at its end, and the sum of the detection
    /// times of the paths that died.
    pub(super) fn fetch(&self) -> (Simulation, Span) {
        let paths: Vec<&NetworkPath> = self.paths.iter().collect();
        let mut simulation = self.simulation(Config::default(), &paths);
        let (outcome, detection) = play(&mut simulation, &paths);
        assert_eq!(outcome, RunOutcome::Done, "{self:?}");
        simulation.check_file();
        (simulation, detection)
    }

    /// The ends of a fetch over the best single path, and of one over all paths by a scheduler that
    /// knows the future: each path delivers the bytes that a plain GET over it alone delivers by
    /// then.
    pub(super) fn rivals(&self) -> (Time, Time) {
        let mut single = Time::MAX;
        let mut arrivals: Vec<(Time, u64)> = Vec::new();
        for path in &self.paths {
            let config = Config { scheduler: Scheduler::Single, ..Config::default() };
            let mut simulation = self.simulation(config, &[path]);
            if play(&mut simulation, &[path]).0 == RunOutcome::Done {
                single = single.min(simulation.now);
            }
            let mut before = 0;
            for (at, done) in simulation.history {
                arrivals.push((at, done - before));
                before = done;
            }
        }
        arrivals.sort_unstable();
        let mut sum = 0;
        let last = arrivals.iter().find(|(_, bytes)| {
            sum += bytes;
            sum >= self.length
        });
        (single, last.map_or(Time::MAX, |(at, _)| *at))
    }

    /// The network with as few and as small properties as still have this property.
    pub(super) fn shrunk(mut self, has_property: impl Fn(&Self) -> bool) -> Self {
        loop {
            let smaller = self.smaller().into_iter().find(|network| has_property(network));
            match smaller {
                Some(network) => self = network,
                None => return self,
            }
        }
    }

    /// The number and kinds of the changes.
    pub(super) fn changes_in_words(&self) -> String {
        let changes = self.paths.iter().flat_map(|path| &path.changes);
        let (mut rates, mut bursts, mut deaths) = (0, 0, 0);
        for (_, change) in changes {
            *match change {
                Change::Rate(_) => &mut rates,
                Change::Burst(_) => &mut bursts,
                Change::Death => &mut deaths,
            } += 1;
        }
        format!("{rates} changes of rate, {bursts} lost bursts, {deaths} deaths")
    }

    /// Simpler networks, the simplest first.
    fn smaller(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for path in 0..self.paths.len() {
            let survives = |path: &NetworkPath| path.changes.iter().all(|c| c.1 != Change::Death);
            let others = self.paths.iter().enumerate().filter(|(other, _)| *other != path);
            if self.paths.len() > 2 && others.clone().any(|(_, other)| survives(other)) {
                let mut fewer = self.clone();
                fewer.paths.remove(path);
                all.push(fewer);
            }
            for change in 0..self.paths[path].changes.len() {
                let mut fewer = self.clone();
                fewer.paths[path].changes.remove(change);
                all.push(fewer);
            }
        }
        all
    }
}

/// Runs a fetch while its paths change. Returns its outcome, and the sum of the detection times of
/// the paths that died before the end.
fn play(simulation: &mut Simulation, paths: &[&NetworkPath]) -> (RunOutcome, Span) {
    let mut detection = Span::ZERO;
    for (at, path, change) in changes(paths) {
        while simulation.now < at {
            if let Some(end) = simulation.step(at) {
                return (end, detection);
            }
        }
        let id = PathId(path);
        match change {
            Change::Rate(rate) => simulation.set_rate(id, rate),
            Change::Burst(pause) => simulation.pause(id, pause),
            Change::Death => {
                detection += simulation.fetch.unresponsive_timeout(id);
                simulation.set_dead(id, true);
            }
        }
    }
    loop {
        if let Some(end) = simulation.step(Time::MAX) {
            return (end, detection);
        }
    }
}

/// The changes of all paths, in the order of time. Bursts that overlap are one.
fn changes(paths: &[&NetworkPath]) -> Vec<(Time, usize, Change)> {
    let mut all: Vec<(Time, usize, Change)> = Vec::new();
    for (id, path) in paths.iter().enumerate() {
        let others = path.changes.iter().filter(|(_, c)| !matches!(c, Change::Burst(_)));
        all.extend(others.map(|(at, change)| (*at, id, *change)));
        let bursts = path.bursts().into_iter();
        all.extend(bursts.map(|(from, to)| (from, id, Change::Burst(to.since(from)))));
    }
    all.sort_unstable();
    all
}

impl NetworkPath {
    /// Start and end of the pauses by lost bursts.
    fn bursts(&self) -> Vec<(Time, Time)> {
        let mut all: Vec<(Time, Time)> = Vec::new();
        for (from, change) in &self.changes {
            let Change::Burst(pause) = change else { continue };
            let to = *from + *pause;
            match all.last_mut() {
                Some((_, last)) if *last >= *from => *last = to.max(*last),
                _ => all.push((*from, to)),
            }
        }
        all
    }
}

#[test]
fn networks_are_reproducible_and_one_path_survives() {
    for number in 0..500 {
        let network = Network::random(number);
        assert_eq!(format!("{network:?}"), format!("{:?}", Network::random(number)));
        let dies = |path: &NetworkPath| path.changes.iter().any(|c| c.1 == Change::Death);
        assert!(!network.paths.iter().all(dies), "{network:?}");
    }
}
