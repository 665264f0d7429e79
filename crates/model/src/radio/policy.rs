//! When the radio goes idle.
//!
//! A [`Policy`] receives each packet and returns how long to stay connected after it. A policy does
//! not know later packets. [`Oracle`](super::meter::Oracle) does, and therefore does not implement
//! the trait.

mod context;
mod make_active;
mod make_idle;
mod timer;

pub use context::ContextPolicy;
pub use make_active::{CombinedPolicy, DelayPolicy, LearnedDelay};
pub use make_idle::MakeIdle;
pub use timer::{PrintedMakeIdle, StatusQuo, Timer};

use manyways_unit::{Span, Time};

use super::Packet;

/// Wait that leaves the release to the network's timers.
pub const NEVER: Span = Span::MAX;

/// Decides after each packet when the radio goes idle.
pub trait Policy {
    /// Adds a packet and the gap before it (`None` for the first). Returns the time without a packet
    /// strictly after which to go idle, or [`NEVER`].
    fn observe(&mut self, packet: &Packet, gap: Option<Span>) -> Span;

    /// Whether the policy delays sessions; if not, [`Policy::on_session`] and
    /// [`Policy::session_delay`] are not called.
    fn delays_sessions(&self) -> bool {
        false
    }

    /// A delay-tolerant session begins, in any state of the radio.
    fn on_session(&mut self, _now: Time) {}

    /// The same session finds the radio released while no other one is delayed: returns the delay of
    /// it and of those that follow meanwhile. Called after [`Policy::on_session`].
    fn session_delay(&mut self, _now: Time) -> Span {
        Span::ZERO
    }
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn observe(&mut self, packet: &Packet, gap: Option<Span>) -> Span {
        (**self).observe(packet, gap)
    }

    fn delays_sessions(&self) -> bool {
        (**self).delays_sessions()
    }

    fn on_session(&mut self, now: Time) {
        (**self).on_session(now);
    }

    fn session_delay(&mut self, now: Time) -> Span {
        (**self).session_delay(now)
    }
}
