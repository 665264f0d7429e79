//! Which path the next message of a stream takes.
//!
//! [`Treatment`] is what a policy says of a stream; [`Kind`] names the schedulers, and
//! [`Schedulers`] has one of each, so that a stream's can be switched while it runs. A scheduler
//! sees the paths that the stream may use as [`View`]s and answers with a [`Choice`].

mod buffer_aware;
mod ecf;
mod minrtt;
mod round_robin;
mod single;
mod treatment;

use std::fmt::Debug;

use manyways_unit::{Rate, Size, Span};

pub use treatment::{Kind, PathId, PathSet, Treatment, UnknownScheduler};

/// What is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// What waits in this stream, the next message included.
    pub backlog: Size,
    /// What waits in all streams, this one included.
    pub total: Size,
    /// The path that comes first, where a scheduler has one.
    pub primary: Option<PathId>,
}

/// What is known of a path that can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// Which one.
    pub path: PathId,
    /// Whether it takes a message now.
    pub has_room: bool,
    /// The smoothed round trip, queues of the network included.
    pub rtt: Span,
    /// Its mean deviation.
    pub rtt_var: Span,
    /// What the congestion window lets be on its way.
    pub window: Size,
    /// What is on its way.
    pub in_flight: Size,
    /// What waits at this end, in the kernel and before it.
    pub unsent: Size,
    /// How fast what waits is sent.
    pub rate: Rate,
    /// How long the congestion window stays full.
    pub opens_in: Span,
    /// How long what is on its way and waits takes to arrive, through the queues that it has made
    /// in the network; zero where that is not known.
    pub drains_in: Span,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Send the message that begins `ahead` bytes into the backlog on the path at this index.
    Send {
        /// The index among the views.
        at: usize,
        /// Those bytes before it are left to faster paths.
        ahead: u64,
    },
    /// Send the next message on every path; the first copy wins.
    Everywhere,
    /// Send nothing now: a path without room will have some soon enough.
    Wait,
}

/// A way to choose.
pub trait Scheduler: Debug {
    /// Chooses among the paths that the stream may use, at least one of which has room.
    fn choose(&mut self, job: &Job, paths: &[View]) -> Choice;
}

/// One scheduler of each kind.
#[derive(Debug, Default)]
pub struct Schedulers {
    minrtt: minrtt::MinRtt,
    round_robin: round_robin::RoundRobin,
    single: single::Single,
    ecf: ecf::Ecf,
    buffer_aware: buffer_aware::BufferAware,
    redundant: Redundant,
}

/// On every path.
#[derive(Debug, Default)]
struct Redundant;

impl Scheduler for Redundant {
    fn choose(&mut self, _: &Job, _: &[View]) -> Choice {
        Choice::Everywhere
    }
}

impl Schedulers {
    /// Asks the scheduler of this kind.
    pub fn choose(&mut self, kind: Kind, job: &Job, paths: &[View]) -> Choice {
        let scheduler: &mut dyn Scheduler = match kind {
            Kind::MinRtt => &mut self.minrtt,
            Kind::RoundRobin => &mut self.round_robin,
            Kind::Redundant => &mut self.redundant,
            Kind::Single => &mut self.single,
            Kind::Ecf => &mut self.ecf,
            Kind::BufferAware => &mut self.buffer_aware,
        };
        scheduler.choose(job, paths)
    }
}

impl View {
    /// When a message that is handed over now arrives: after what waits before it or when the
    /// window opens, and half a round trip, or after what is before it in the network's queues.
    pub fn arrival(&self) -> Span {
        let wait = match self.rate.is_zero() {
            true => Span::ZERO,
            false => self.rate.time_for(self.unsent),
        };
        let arrival = wait.max(self.opens_in) + Span::from_nanos(self.rtt.as_nanos() / 2);
        arrival.max(self.drains_in)
    }
}

/// The index of the view with the least of something, among those that `fit`.
fn least<K: Ord>(
    paths: &[View],
    fit: impl Fn(&View) -> bool,
    of: impl Fn(&View) -> K,
) -> Option<usize> {
    let fitting = paths.iter().enumerate().filter(|(_, view)| fit(view));
    fitting.min_by_key(|(_, view)| of(view)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests;
