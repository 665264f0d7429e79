//! When the radio goes idle.
//!
//! A [`Policy`] receives each packet and returns how long to stay connected after it. A policy does
//! not know later packets. [`Oracle`](super::meter::Oracle) does, and therefore does not implement
//! the trait.

mod context;
mod make_active;
mod make_idle;
mod timer;

pub use context::Context;
pub use make_active::{Hold, Holding, Learn};
pub use make_idle::MakeIdle;
pub use timer::{Printed, StatusQuo, Timer};

use super::Packet;

/// Wait that leaves the release to the network's timers.
pub const NEVER: f64 = f64::INFINITY;

/// Decides after each packet when the radio goes idle.
pub trait Policy {
    /// Adds a packet, `gap` seconds after the previous one (`None` for the first). Returns the
    /// seconds of idle time strictly after which to go idle, or [`NEVER`].
    fn observe(&mut self, packet: &Packet, gap: Option<f64>) -> f64;

    /// Whether the policy delays sessions; if not, [`Policy::begins`] and [`Policy::hold`] are not
    /// called.
    fn holds(&self) -> bool {
        false
    }

    /// A delay-tolerant session begins at this second, in any state of the radio.
    fn begins(&mut self, _now: f64) {}

    /// The same session finds the radio released while no other one is delayed: returns the seconds
    /// to delay it and those that follow meanwhile. Called after [`Policy::begins`].
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
