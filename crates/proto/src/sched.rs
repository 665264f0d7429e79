//! Selection of the path for the next message of a stream.
//!
//! [`StreamPolicy`] is the policy of a stream; [`SchedulerKind`] names the schedulers.
//! [`Schedulers`] has one scheduler of each kind, so that a stream can change its scheduler at any
//! time. A scheduler gets the permitted paths as [`PathView`]s and returns an [`Assignment`].

mod buffer_aware;
mod ecf;
mod minrtt;
mod pams;
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
    /// Rate at which unsent bytes are sent: the window per round trip, or a measured rate.
    pub rate: Rate,
    /// Average of the rate at which bytes were delivered while the path was the limit.
    pub delivery_rate: Rate,
    /// Time until the congestion window opens; zero if it is open.
    pub window_delay: Span,
    /// Time until all bytes in flight and unsent bytes have passed the bottleneck queue; zero if
    /// unknown.
    pub drain_time: Span,
    /// The way from the device that relays the path to the receiver; `None` for a direct path.
    pub second_hop: Option<SecondHop>,
}

/// The second connection of a path over another device, which has a buffer between the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SecondHop {
    /// Rate at which the device passes bytes on; zero if unknown.
    pub rate: Rate,
    /// Delay of one way, without a wait at the device.
    pub delay: Span,
    pub wait: DeviceWait,
}

/// Estimate of the time that a message waits at a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceWait {
    /// It waits until the bytes before it have been passed on.
    Backlog {
        /// Bytes that have left the first connection and are not known to have arrived.
        bytes: Size,
        /// Time from the arrival of bytes until this is known here.
        lag: Span,
    },
    /// As long as an earlier message has waited.
    Measured(Span),
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
    min_pad: pams::MinPad,
    published_pams: pams::Pams,
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
            SchedulerKind::BufferAware | SchedulerKind::Pams => &mut self.buffer_aware,
            SchedulerKind::MinPad => &mut self.min_pad,
            SchedulerKind::PublishedPams => &mut self.published_pams,
        };
        scheduler.choose(request, paths)
    }
}

impl PathView {
    /// Returns the time until a message that is sent now arrives: the longer of unsent bytes and
    /// closed window, plus half an RTT; or the drain time of the bottleneck queue if that is
    /// longer. On a path over another device, the message also waits there.
    pub fn delivery_time(&self) -> Span {
        let wait = match self.rate.is_zero() {
            true => Span::ZERO,
            false => self.rate.time_for(self.unsent),
        };
        let arrival = wait.max(self.window_delay) + Span::from_nanos(self.rtt.as_nanos() / 2);
        let arrival = arrival.max(self.drain_time);
        let Some(hop) = &self.second_hop else { return arrival };
        match hop.wait {
            DeviceWait::Measured(wait) => arrival + wait + hop.delay,
            DeviceWait::Backlog { bytes, lag } => {
                // Includes what the device passes on while the message is on its way.
                let before = self.unsent + self.in_flight + bytes;
                let passed_on = match hop.rate.is_zero() {
                    true => Span::ZERO,
                    false => hop.rate.time_for(before),
                };
                (arrival + hop.delay).max(passed_on.saturating_sub(lag))
            }
        }
    }

    /// Returns the rate at which unsent bytes reach the receiver.
    pub fn end_rate(&self) -> Rate {
        self.with_second_hop(self.rate)
    }

    /// Returns the average rate at which bytes have reached the receiver.
    pub fn end_delivery_rate(&self) -> Rate {
        self.with_second_hop(self.delivery_rate)
    }

    fn with_second_hop(&self, rate: Rate) -> Rate {
        match &self.second_hop {
            Some(hop) if !hop.rate.is_zero() => rate.min(hop.rate),
            _ => rate,
        }
    }
}

impl SecondHop {
    /// Returns the round-trip time, without a wait at the device.
    pub fn rtt(&self) -> Span {
        self.delay * 2
    }

    /// Returns the bytes that wait at the device or in the queue of its network; `None` while its
    /// rate is unknown.
    pub fn backlog(&self) -> Option<Size> {
        match self.wait {
            DeviceWait::Backlog { bytes, .. } if bytes.is_zero() => Some(Size::ZERO),
            _ if self.rate.is_zero() => None,
            // The other bytes are on their way from the device, or have arrived.
            DeviceWait::Backlog { bytes, lag } => {
                Some(bytes.saturating_sub(self.rate.size_in(self.delay + lag)))
            }
            DeviceWait::Measured(wait) => Some(self.rate.size_in(wait)),
        }
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
