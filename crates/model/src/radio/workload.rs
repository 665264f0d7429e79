//! Generates traces of applications from a seed.
//!
//! The traces of the study from which the policies come are not public. [`alone`] generates the
//! trace of one application as the study describes its seven categories, [`mixed`] generates days
//! of a user with several applications, and [`heartbeats`] generates packets at equal intervals,
//! whose energy can be calculated by hand. [`apps`] contains the parameters.
//!
//! A trace is generated in order, packet by packet; only the list of times at which the device is
//! used grows with its length. Seeds are of two kinds: policies are developed with one kind and
//! evaluated with the other ([`is_held_back`]).

pub mod apps;
mod exchange;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use manyways_unit::{Random, Span, Time};

use self::apps::{APPS, Activity, App, user};
use self::exchange::Player;
pub use self::exchange::{Exchange, Path};
use super::{Direction, Packet};

/// Seeds below this are for development.
pub const HELD_BACK: u64 = 1_000;

const DAY: f64 = 86_400.0;
const HOUR: f64 = 3_600.0;
/// In seconds.
const SHORTEST_WAIT: f64 = 0.01;

/// Whether a seed is for evaluation only.
pub fn is_held_back(seed: u64) -> bool {
    seed >= HELD_BACK
}

/// A generator of a trace; iterates over its packets in order.
#[derive(Clone, Debug)]
pub struct Workload {
    names: Vec<String>,
    path: Path,
    /// In seconds.
    lasts: f64,
    sources: Vec<Source>,
    visits: Vec<Visit>,
    sessions: u32,
    /// Generated packets that are not yet returned.
    coming: BinaryHeap<Reverse<Coming>>,
    count: u64,
}

/// Time in microseconds, number in order of generation, packet.
type Coming = (u64, u64, Packet);

/// A time in which the user uses an application.
#[derive(Clone, Copy, Debug)]
struct Visit {
    begin: f64,
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
    visits_of: Option<usize>,
    /// Factor of all waits.
    pace: f64,
    random: Random,
    /// Next time in seconds; infinite if there is none.
    next: f64,
}

/// The trace of one application; the study uses two hours. An application with `is_used_alone` is
/// in use all the time.
pub fn alone(app: &App, seed: u64, lasts: Span) -> Workload {
    let mut workload = Workload::new(seed, lasts);
    let is_used = app.is_used_alone;
    workload.add(app, 0, seed, 1.0);
    if is_used {
        workload.visits.push(Visit { begin: 0.0, end: workload.lasts, app: 0 });
    }
    workload.begin();
    workload
}

/// The days of a user, from midnight, with a random selection of applications.
pub fn mixed(seed: u64, lasts: Span) -> Workload {
    let mut workload = Workload::new(seed, lasts);
    let mut random = Random::stream(seed, 1);
    let mut weights = [0.0; APPS.len()];
    for (place, app) in APPS.iter().enumerate() {
        let pace = user::PACE.from(&mut random);
        if random.chance(app.installed) {
            workload.add(app, place, seed, pace);
            weights[place] = app.weight;
        }
    }
    workload.visits = visits(&mut random, workload.lasts, &weights);
    workload.begin();
    workload
}

/// A packet of `bytes` bytes from the device at each multiple of `every`, the first one at time 0.
pub fn heartbeats(every: Span, bytes: u32, lasts: Span) -> impl Iterator<Item = Packet> {
    let step = every.as_nanos().max(1);
    (0..=lasts.as_nanos() / step).zip(0..).map(move |(number, session)| Packet {
        at: Time::from_nanos(number * step),
        direction: Direction::Up,
        bytes,
        app: 0,
        session,
    })
}

impl Workload {
    fn new(seed: u64, lasts: Span) -> Self {
        let mut random = Random::stream(seed, 0);
        let path = Path {
            round_trip: user::ROUND_TRIP.from(&mut random),
            down: user::RATE_DOWN.from(&mut random),
            up: user::RATE_UP.from(&mut random),
            loss: user::LOSS,
        };
        Self {
            names: Vec::new(),
            path,
            lasts: lasts.as_secs_f64(),
            sources: Vec::new(),
            visits: Vec::new(),
            sessions: 0,
            coming: BinaryHeap::new(),
            count: 0,
        }
    }

    /// Application names by number: the category name for the background, with the suffix `.use`
    /// for use.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    fn add(&mut self, app: &App, place: usize, seed: u64, pace: f64) {
        let kinds = [(app.background, None, ""), (app.in_use, Some(place), ".use")];
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
                    visits_of,
                    pace,
                    random: Random::stream(seed, stream),
                    next: 0.0,
                });
            }
        }
    }

    /// Sets the first time of every source: in the background at a random part of the first wait,
    /// because the application was active before the trace; in use at once.
    fn begin(&mut self) {
        for source in &mut self.sources {
            if source.visits_of.is_none() {
                let wait = source.wait();
                source.next = wait * source.random.unit();
            }
            source.settle(&self.visits);
        }
    }

    /// The source with the earliest time, and that time.
    fn first(&self) -> Option<(usize, f64)> {
        let times = self.sources.iter().map(|source| source.next).enumerate();
        let first = times.min_by(|one, other| one.1.total_cmp(&other.1))?;
        (first.1 < self.lasts).then_some(first)
    }

    fn play(&mut self, place: usize) {
        let source = &mut self.sources[place];
        let exchanges = source.activity.exchanges.from(&mut source.random).round().max(1.0) as u32;
        let begin = source.next;
        for _ in 0..exchanges {
            let varies = user::ROUND_TRIP_VARIES.from(&mut source.random);
            let path = Path { round_trip: self.path.round_trip * varies, ..self.path };
            let (session, app) = (self.sessions, source.name);
            let (coming, count, lasts) = (&mut self.coming, &mut self.count, self.lasts);
            let emit = |at: f64, direction, bytes| {
                if at < lasts {
                    let micros = (at * 1e6).round() as u64;
                    let at = Time::from_nanos(micros * 1_000);
                    let packet = Packet { at, direction, bytes, app, session };
                    coming.push(Reverse((micros, *count, packet)));
                    *count += 1;
                }
            };
            let exchange = source.activity.exchange;
            Player { now: begin, path, random: &mut source.random, emit }.play(&exchange);
            self.sessions = self.sessions.wrapping_add(1);
        }
        source.next += source.wait();
        source.settle(&self.visits);
    }
}

impl Iterator for Workload {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        // An exchange does not generate packets before its own start.
        while let Some((place, at)) = self.first() {
            let is_earlier = |coming: &Reverse<Coming>| coming.0.0 as f64 <= at * 1e6;
            if self.coming.peek().is_some_and(is_earlier) {
                break;
            }
            self.play(place);
        }
        self.coming.pop().map(|Reverse((_, _, packet))| packet)
    }
}

impl Source {
    fn wait(&mut self) -> f64 {
        let wait = self.activity.every.from(&mut self.random) * self.pace;
        let rhythm = if self.activity.has_rhythm { rhythm(self.next) } else { 1.0 };
        (wait / rhythm).max(SHORTEST_WAIT)
    }

    /// Moves the next time into a visit, if required.
    fn settle(&mut self, visits: &[Visit]) {
        let Some(app) = self.visits_of else { return };
        let visit = visits.iter().find(|visit| visit.app == app && visit.end > self.next);
        self.next = visit.map_or(f64::INFINITY, |visit| self.next.max(visit.begin));
    }
}

/// Relative activity at a time of day, for a trace that starts at midnight.
fn rhythm(at: f64) -> f64 {
    user::RHYTHM[((at % DAY) / HOUR) as usize % user::RHYTHM.len()]
}

/// Visits of a user to applications, which do not overlap.
fn visits(random: &mut Random, lasts: f64, weights: &[f64]) -> Vec<Visit> {
    let wait = DAY / user::VISITS.from(random);
    let mut visits = Vec::new();
    let mut now = 0.0;
    loop {
        let waits = -wait * f64::ln(1.0 - random.unit()) / rhythm(now);
        now += waits.min(HOUR);
        if now >= lasts {
            return visits;
        }
        // After an hour the rhythm has changed, and a memoryless wait can be drawn again.
        if waits > HOUR {
            continue;
        }
        let app = pick(random, weights);
        let end = now + user::VISIT.from(random);
        visits.push(Visit { begin: now, end, app });
        now = end;
    }
}

/// Draws an index by weight.
fn pick(random: &mut Random, weights: &[f64]) -> usize {
    let mut left = random.unit() * weights.iter().sum::<f64>();
    let picked = weights.iter().position(|weight| {
        left -= weight;
        left < 0.0
    });
    picked.unwrap_or(0)
}

#[cfg(test)]
mod tests;
