//! When to let a radio sleep.
//!
//! A [`Policy`] is told each packet and says how long to stay awake after it. None of them knows what
//! comes; [`Oracle`](super::meter::Oracle) does, and is no policy.

mod context;
mod make_active;
mod make_idle;
mod timer;

pub use context::Context;
pub use make_active::{Hold, Holding, Learn};
pub use make_idle::MakeIdle;
pub use timer::{Printed, StatusQuo, Timer};

use super::Packet;

/// Leaves it to the timers of the network: a wait that never ends.
pub const NEVER: f64 = f64::INFINITY;

/// Decides, after each packet, when the radio may sleep.
pub trait Policy {
    /// This packet passed, so many seconds after the one before it; nothing is known before the first.
    /// Says after how many seconds of silence to go to sleep, strictly after; [`NEVER`] where that is
    /// left to the network.
    fn observe(&mut self, packet: &Packet, gap: Option<f64>) -> f64;

    /// Whether it ever holds a session back: who does not is not asked about sessions.
    fn holds(&self) -> bool {
        false
    }

    /// A session that can wait begins at that second, whether or not the radio is released.
    fn begins(&mut self, _now: f64) {}

    /// The same session finds the radio released, and no other one is held back: for how many seconds
    /// to hold it back, and those that come until then. Called after [`Policy::begins`].
    fn hold(&mut self, _now: f64) -> f64 {
        0.0
    }
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn observe(&mut self, packet: &Packet, gap: Option<f64>) -> f64 {
        (**self).observe(packet, gap)
    }

    fn holds(&self) -> bool {
        (**self).holds()
    }

    fn begins(&mut self, now: f64) {
        (**self).begins(now);
    }

    fn hold(&mut self, now: f64) -> f64 {
        (**self).hold(now)
    }
}
