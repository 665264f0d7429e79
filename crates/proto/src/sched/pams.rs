//! PAMS, the pipe-aware multipath scheduler of MPBond (§4.3.3), as it was published: pipe-aware delays
//! and algorithm 1, or only the delays (minPAD).
//!
//! [`SchedulerKind::Pams`](super::SchedulerKind::Pams) is ours: [`buffer_aware`](super::buffer_aware)
//! with [`PathView::delivery_time`], which also counts bytes in flight and what the second hop passes
//! on meanwhile. Where algorithm 1 sends the next bytes over the target, ours sends those that the
//! busy paths would not have delivered by then, so that the receiver gets them in order.
//!
//! Th is the average of the delivery rate: of the first connection as its transport acknowledges bytes,
//! of the second one as the receiver does. Ours takes the window per round trip for the first one. That
//! overstates the throughput only while the application sends less than the window permits; but ours
//! divides only unsent bytes by it, of which there are none then, and
//! [`PathView::drain_time`] limits it by a rate that is measured from the last ACKs. It knows a
//! change of the window at once, and the average some round trips later.
//!
//! Deviation here: the delay of a path over a device is OWD₁ + max((B_s + B_p)/Th₂, B_s/Th₁) + OWD₂,
//! which is the published one without its division by B_s, which may be 0.

use manyways_unit::{Rate, Size, Span};

use super::{Assignment, DeviceWait, PathView, Scheduler, SendRequest, min_index};

/// Algorithm 1.
#[derive(Debug, Default)]
pub(super) struct Pams;

/// The path with room and the smallest delay, without algorithm 1.
#[derive(Debug, Default)]
pub(super) struct MinPad;

impl Scheduler for Pams {
    fn choose(&mut self, request: &SendRequest, paths: &[PathView]) -> Assignment {
        let Some(target) = min_index(paths, |view| view.is_writable, delay) else {
            return Assignment::Wait;
        };
        let until = delay(&paths[target]);
        let sooner = paths.iter().filter(|view| !view.is_writable).map(|view| {
            let lead = until.saturating_sub(delay(view));
            view.end_delivery_rate().size_in(lead).as_bytes()
        });
        if sooner.sum::<u64>() > request.backlog.as_bytes() {
            return Assignment::Wait;
        }
        Assignment::Send { index: target, ahead: 0 }
    }
}

impl Scheduler for MinPad {
    fn choose(&mut self, _: &SendRequest, paths: &[PathView]) -> Assignment {
        match min_index(paths, |view| view.is_writable, delay) {
            Some(index) => Assignment::Send { index, ahead: 0 },
            None => Assignment::Wait,
        }
    }
}

/// Returns the pipe-aware delay (PAD) of a path.
fn delay(view: &PathView) -> Span {
    let own = Span::from_nanos(view.rtt.as_nanos() / 2);
    let sent_in = time(view.delivery_rate, view.unsent);
    match &view.second_hop {
        None => own + sent_in,
        Some(hop) => match hop.wait {
            DeviceWait::Backlog { bytes, .. } => {
                own + sent_in.max(time(hop.rate, view.unsent + bytes)) + hop.delay
            }
            DeviceWait::Measured(wait) => own + sent_in + wait + hop.delay,
        },
    }
}

/// The time for bytes at a rate; zero while the rate is unknown.
fn time(rate: Rate, bytes: Size) -> Span {
    if rate.is_zero() { Span::ZERO } else { rate.time_for(bytes) }
}
