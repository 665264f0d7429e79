//! Selection of the path for the next message of a stream.
//!
//! [`StreamPolicy`] is the policy of a stream; [`SchedulerKind`] names the schedulers.
//! [`Schedulers`] has one scheduler of each kind, so that a stream can change its scheduler at any
//! time. A scheduler gets the permitted paths as [`PathView`]s and returns an [`Assignment`].

mod buffer_aware;
mod ecf;
mod minrtt;
mod round_robin;
mod single;
mod stream_policy;

use std::fmt::Debug;

use manyways_unit::{Rate, Size, Span};

pub use stream_policy::{PathId, PathSet, SchedulerKind, StreamPolicy, UnknownScheduler};

/// Amount of data to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendRequest {
    /// Pending bytes of this stream, including the next message.
    pub backlog: Size,
    /// Pending bytes of all streams, including this one.
    pub total: Size,
    /// Primary path of the stream, used by some schedulers.
    pub primary: Option<PathId>,
}

/// State of a usable path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathView {
    pub path: PathId,
    /// Whether the path accepts a message now.
    pub is_writable: bool,
    /// Smoothed RTT, including queueing delay.
    pub rtt: Span,
    /// Mean deviation of the RTT.
    pub rtt_var: Span,
    /// Congestion window.
    pub congestion_window: Size,
    /// Bytes in flight.
    pub in_flight: Size,
    /// Unsent bytes at this endpoint, in the kernel and in user space.
    pub unsent: Size,
    /// Rate at which unsent bytes are sent.
    pub rate: Rate,
    /// Time until the congestion window opens; zero if it is open.
    pub window_delay: Span,
    /// Time until all bytes in flight and unsent bytes have passed the bottleneck queue; zero if
    /// unknown.
    pub drain_time: Span,
}

/// Decision of a scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assignment {
    /// Send the message that starts `ahead` bytes into the backlog on the path at index `at`.
    Send {
        /// Index in the views.
        index: usize,
        /// Bytes that are left to faster paths.
        ahead: u64,
    },
    /// Send the next message on every path; the receiver uses the first copy.
    SendOnAll,
    /// Send nothing now, because waiting for a path without room is better.
    Wait,
}

/// A path scheduler.
pub trait Scheduler: Debug {
    /// Chooses among the permitted paths.
    fn choose(&mut self, request: &SendRequest, paths: &[PathView]) -> Assignment;
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

/// Sends copies on all paths.
#[derive(Debug, Default)]
struct Redundant;

impl Scheduler for Redundant {
    fn choose(&mut self, _: &SendRequest, _: &[PathView]) -> Assignment {
        Assignment::SendOnAll
    }
}

impl Schedulers {
    /// Runs the scheduler of this kind.
    pub fn choose(
        &mut self,
        kind: SchedulerKind,
        request: &SendRequest,
        paths: &[PathView],
    ) -> Assignment {
        let scheduler: &mut dyn Scheduler = match kind {
            SchedulerKind::MinRtt => &mut self.minrtt,
            SchedulerKind::RoundRobin => &mut self.round_robin,
            SchedulerKind::Redundant => &mut self.redundant,
            SchedulerKind::Single => &mut self.single,
            SchedulerKind::Ecf => &mut self.ecf,
            SchedulerKind::BufferAware => &mut self.buffer_aware,
        };
        scheduler.choose(request, paths)
    }
}

impl PathView {
    /// Returns the time until a message that is sent now arrives: the longer of unsent bytes and
    /// closed window, plus half an RTT; or the drain time of the bottleneck queue if that is
    /// longer.
    pub fn delivery_time(&self) -> Span {
        let wait = match self.rate.is_zero() {
            true => Span::ZERO,
            false => self.rate.time_for(self.unsent),
        };
        let arrival = wait.max(self.window_delay) + Span::from_nanos(self.rtt.as_nanos() / 2);
        arrival.max(self.drain_time)
    }
}

/// Returns the index of the view with the smallest key among the views that `fit`.
fn min_index<K: Ord>(
    paths: &[PathView],
    fit: impl Fn(&PathView) -> bool,
    of: impl Fn(&PathView) -> K,
) -> Option<usize> {
    let fitting = paths.iter().enumerate().filter(|(_, view)| fit(view));
    fitting.min_by_key(|(_, view)| of(view)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests;
