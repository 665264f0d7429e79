//! Traces of what applications send and receive, made from a seed.
//!
//! The traces of the study that the policies come from are not public. [`alone`] makes one of a
//! single application as the study describes its seven categories, [`mixed`] the days of a user with
//! several of them, and [`heartbeats`] packets at even distances, for which every energy can be
//! worked out by hand. [`apps`] has the numbers.
//!
//! A trace comes in order, a packet at a time; as it grows longer, only a list of times at which the
//! device is used grows with it. Seeds are of two kinds, and what was developed with one kind is judged by the other: [`is_held_back`].

pub mod apps;
mod exchange;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use manyways_unit::{Random, Span, Time};

use self::apps::{APPS, Activity, App, user};
use self::exchange::Player;
pub use self::exchange::{Exchange, Path};
use super::{Direction, Packet};

/// Seeds below this are there to develop with.
pub const HELD_BACK: u64 = 1_000;

const DAY: f64 = 86_400.0;
const HOUR: f64 = 3_600.0;
/// Nothing happens more often than that: seconds.
const SHORTEST_WAIT: f64 = 0.01;

/// Whether a seed is there only to judge by: nothing is developed with it.
pub fn is_held_back(seed: u64) -> bool {
    seed >= HELD_BACK
}

/// A trace that is being made: its packets in order.
#[derive(Clone, Debug)]
pub struct Workload {
    names: Vec<String>,
    path: Path,
    /// Seconds.
    lasts: f64,
    sources: Vec<Source>,
    visits: Vec<Visit>,
    sessions: u32,
    /// Packets that exchanges have made and that nobody has had yet.
    coming: BinaryHeap<Reverse<Coming>>,
    count: u64,
}

/// By time, and then in the order in which they were made: microseconds, a number, the packet.
type Coming = (u64, u64, Packet);

/// A time for which somebody uses an application.
#[derive(Clone, Copy, Debug)]
struct Visit {
    begin: f64,
    end: f64,
    app: usize,
}

/// An activity of an application of this user.
#[derive(Clone, Debug)]
struct Source {
    activity: Activity,
    /// Of the names.
    name: u16,
    /// It happens in visits to this application only.
    visits_of: Option<usize>,
    /// Waits are so many times as long.
    pace: f64,
    random: Random,
    /// Its next time; infinite where there is none.
    next: f64,
}

/// Two hours, as in the study, or whatever is wished of one application alone. Where it is one that
/// is used, it is used all the time.
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

/// The days of a user, from midnight, with the applications that this user has.
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

/// A packet of so many bytes from the device, again and again, the first at the beginning.
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

    /// The applications by their numbers: what one does in the background bears its category's name,
    /// and what it does in use `.use` behind that.
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

    /// Every source finds its first time: in the background somewhere in its first wait, as nobody
    /// begins with the trace; in use at once.
    fn begin(&mut self) {
        for source in &mut self.sources {
            if source.visits_of.is_none() {
                let wait = source.wait();
                source.next = wait * source.random.unit();
            }
            source.settle(&self.visits);
        }
    }

    /// The source whose turn is next, and when that is.
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
        // No exchange makes packets that are earlier than itself.
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

    /// Moves its next time into a visit, where it has to be in one.
    fn settle(&mut self, visits: &[Visit]) {
        let Some(app) = self.visits_of else { return };
        let visit = visits.iter().find(|visit| visit.app == app && visit.end > self.next);
        self.next = visit.map_or(f64::INFINITY, |visit| self.next.max(visit.begin));
    }
}

/// How much happens at a time of the day, where the trace begins at midnight.
fn rhythm(at: f64) -> f64 {
    user::RHYTHM[((at % DAY) / HOUR) as usize % user::RHYTHM.len()]
}

/// When somebody takes to the device, and for which application; never for two at once.
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
        // By then the rhythm is another one, and a wait that has no memory begins anew.
        if waits > HOUR {
            continue;
        }
        let app = pick(random, weights);
        let end = now + user::VISIT.from(random);
        visits.push(Visit { begin: now, end, app });
        now = end;
    }
}

/// One of several, by weight.
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
