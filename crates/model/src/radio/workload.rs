//! Generates traces of applications from a seed.
//!
//! The traces of the study from which the policies come are not public. [`alone`] generates the
//! trace of one application as the study describes its seven categories, [`mixed`] generates days
//! of a user with several applications, and [`heartbeats`] generates packets at equal intervals,
//! whose energy can be calculated by hand. [`apps`] contains the parameters.
//!
//! A trace is generated in order, packet by packet; only the list of times at which the device is
//! used grows with its length. Seeds are of two kinds: policies are developed with one kind and
//! evaluated with the other ([`is_held_out`]).

pub mod apps;
mod exchange;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use manyways_unit::{Random, Span, Time};

use self::apps::{APPS, Activity, AppModel, user};
use self::exchange::PacketGenerator;
pub use self::exchange::{Exchange, Path};
use super::{Direction, Packet};

/// Seeds below this are for development.
pub const FIRST_HELD_OUT_SEED: u64 = 1_000;

const DAY: f64 = 86_400.0;
const HOUR: f64 = 3_600.0;
/// In seconds.
const MIN_WAIT: f64 = 0.01;

/// Whether a seed is for evaluation only.
pub fn is_held_out(seed: u64) -> bool {
    seed >= FIRST_HELD_OUT_SEED
}

/// A generator of a trace; iterates over its packets in order.
#[derive(Clone, Debug)]
pub struct Workload {
    names: Vec<String>,
    path: Path,
    /// In seconds.
    duration: f64,
    sources: Vec<Source>,
    visits: Vec<Visit>,
    /// The source with the earliest time; `None` if that is after the end of the trace.
    next_source: Option<usize>,
    sessions: u32,
    /// Generated packets that are not yet returned.
    upcoming: BinaryHeap<Reverse<PendingPacket>>,
    count: u64,
}

/// A generated packet, ordered by time and then by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct PendingPacket {
    micros: u64,
    /// In order of generation.
    number: u64,
    session: u32,
    bytes: u32,
    app: u16,
    direction: Direction,
}

/// A time in which the user uses an application.
#[derive(Clone, Copy, Debug)]
struct Visit {
    start: f64,
    end: f64,
    app: usize,
}

/// An activity of one of the user's applications.
#[derive(Clone, Debug)]
struct Source {
    activity: Activity,
    /// Index in the names.
    name: u16,
    /// Application whose visits contain the activity; `None` for the background.
    foreground_app: Option<usize>,
    /// Factor of all waits.
    wait_factor: f64,
    random: Random,
    /// Next time in seconds; infinite if there is none.
    next: f64,
}

/// The trace of one application; the study uses two hours. An application with
/// `is_foreground_alone` is in use all the time.
pub fn alone(app: &AppModel, seed: u64, duration: Span) -> Workload {
    let mut workload = Workload::new(seed, duration);
    let is_used = app.is_foreground_alone;
    workload.add(app, 0, seed, 1.0);
    if is_used {
        workload.visits.push(Visit { start: 0.0, end: workload.duration, app: 0 });
    }
    workload.init_sources();
    workload
}

/// The days of a user, from midnight, with a random selection of applications.
pub fn mixed(seed: u64, duration: Span) -> Workload {
    let mut workload = Workload::new(seed, duration);
    let mut random = Random::for_purpose(seed, 1);
    let mut weights = [0.0; APPS.len()];
    for (index, app) in APPS.iter().enumerate() {
        let pace = user::WAIT_FACTOR.sample(&mut random);
        if random.chance(app.install_share) {
            workload.add(app, index, seed, pace);
            weights[index] = app.usage_weight;
        }
    }
    workload.visits = visits(&mut random, workload.duration, &weights);
    workload.init_sources();
    workload
}

/// A packet of `bytes` bytes from the device at each multiple of `interval`, the first one at time
/// 0.
pub fn heartbeats(interval: Span, bytes: u32, duration: Span) -> impl Iterator<Item = Packet> {
    let step = interval.as_nanos().max(1);
    (0..=duration.as_nanos() / step).zip(0..).map(move |(number, session)| Packet {
        at: Time::from_nanos(number * step),
        direction: Direction::Up,
        bytes,
        app: 0,
        session,
    })
}

impl Workload {
    fn new(seed: u64, duration: Span) -> Self {
        let mut random = Random::for_purpose(seed, 0);
        let path = Path {
            round_trip: user::ROUND_TRIP.sample(&mut random),
            down: user::RATE_DOWN.sample(&mut random),
            up: user::RATE_UP.sample(&mut random),
            loss: user::LOSS,
        };
        Self {
            names: Vec::new(),
            path,
            duration: duration.as_secs_f64(),
            sources: Vec::new(),
            visits: Vec::new(),
            next_source: None,
            sessions: 0,
            upcoming: BinaryHeap::new(),
            count: 0,
        }
    }

    /// Application names by number: the category name for the background, with the suffix `.use`
    /// for use.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    fn add(&mut self, app: &AppModel, index: usize, seed: u64, pace: f64) {
        let kinds = [(app.background, None, ""), (app.foreground, Some(index), ".use")];
        for (activities, visits_of, behind) in kinds {
            let name = self.names.len() as u16;
            if !activities.is_empty() {
                self.names.push(format!("{}{behind}", app.name));
            }
            for activity in activities {
                let stream = 2 + self.sources.len() as u64;
                self.sources.push(Source {
                    activity: *activity,
                    name,
                    foreground_app: visits_of,
                    wait_factor: pace,
                    random: Random::for_purpose(seed, stream),
                    next: 0.0,
                });
            }
        }
    }

    /// Sets the first time of every source: in the background at a random part of the first wait,
    /// because the application was active before the trace; in use at once.
    fn init_sources(&mut self) {
        for source in &mut self.sources {
            if source.foreground_app.is_none() {
                let wait = source.wait();
                source.next = wait * source.random.uniform();
            }
            source.move_into_visit(&self.visits);
        }
        self.next_source = self.earliest_source();
    }

    fn earliest_source(&self) -> Option<usize> {
        let times = self.sources.iter().map(|source| source.next).enumerate();
        let first = times.min_by(|one, other| one.1.total_cmp(&other.1))?;
        (first.1 < self.duration).then_some(first.0)
    }

    fn generate(&mut self, index: usize) {
        let source = &mut self.sources[index];
        let exchanges =
            source.activity.exchange_count.sample(&mut source.random).round().max(1.0) as u32;
        let begin = source.next;
        for _ in 0..exchanges {
            let varies = user::ROUND_TRIP_FACTOR.sample(&mut source.random);
            let path = Path { round_trip: self.path.round_trip * varies, ..self.path };
            let (session, app) = (self.sessions, source.name);
            let (coming, count, duration) = (&mut self.upcoming, &mut self.count, self.duration);
            let emit = |at: f64, direction, bytes| {
                if at < duration {
                    let micros = (at * 1e6).round() as u64;
                    let number = *count;
                    coming.push(Reverse(PendingPacket {
                        micros,
                        number,
                        session,
                        bytes,
                        app,
                        direction,
                    }));
                    *count += 1;
                }
            };
            let exchange = source.activity.exchange;
            PacketGenerator { now: begin, path, random: &mut source.random, emit }
                .generate(&exchange);
            self.sessions = self.sessions.wrapping_add(1);
        }
        source.next += source.wait();
        source.move_into_visit(&self.visits);
        self.next_source = self.earliest_source();
    }
}

impl Iterator for Workload {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        // An exchange does not generate packets before its own start.
        while let Some(index) = self.next_source {
            let start = self.sources[index].next * 1e6;
            if self.upcoming.peek().is_some_and(|Reverse(first)| first.micros as f64 <= start) {
                break;
            }
            self.generate(index);
        }
        let Reverse(PendingPacket { micros, session, bytes, app, direction, .. }) =
            self.upcoming.pop()?;
        Some(Packet { at: Time::from_nanos(micros * 1_000), direction, bytes, app, session })
    }
}

impl Source {
    fn wait(&mut self) -> f64 {
        let wait = self.activity.interval.sample(&mut self.random) * self.wait_factor;
        let rhythm = if self.activity.is_diurnal { daily_activity(self.next) } else { 1.0 };
        (wait / rhythm).max(MIN_WAIT)
    }

    /// Moves the next time into a visit, if required.
    fn move_into_visit(&mut self, visits: &[Visit]) {
        let Some(app) = self.foreground_app else { return };
        let visit = visits.iter().find(|visit| visit.app == app && visit.end > self.next);
        self.next = visit.map_or(f64::INFINITY, |visit| self.next.max(visit.start));
    }
}

/// Relative activity at a time of day, for a trace that starts at midnight.
fn daily_activity(at: f64) -> f64 {
    user::DAILY_ACTIVITY[((at % DAY) / HOUR) as usize % user::DAILY_ACTIVITY.len()]
}

/// Visits of a user to applications, which do not overlap.
fn visits(random: &mut Random, duration: f64, weights: &[f64]) -> Vec<Visit> {
    let wait = DAY / user::VISITS_PER_DAY.sample(random);
    let mut visits = Vec::new();
    let mut now = 0.0;
    loop {
        let waits = -wait * f64::ln(1.0 - random.uniform()) / daily_activity(now);
        now += waits.min(HOUR);
        if now >= duration {
            return visits;
        }
        // After an hour the rhythm has changed, and a memoryless wait can be drawn again.
        if waits > HOUR {
            continue;
        }
        let app = weighted_index(random, weights);
        let end = now + user::VISIT_DURATION.sample(random);
        visits.push(Visit { start: now, end, app });
        now = end;
    }
}

/// Draws an index by weight.
fn weighted_index(random: &mut Random, weights: &[f64]) -> usize {
    let mut remaining = random.uniform() * weights.iter().sum::<f64>();
    let picked = weights.iter().position(|weight| {
        remaining -= weight;
        remaining < 0.0
    });
    picked.unwrap_or(0)
}

#[cfg(test)]
mod tests;
