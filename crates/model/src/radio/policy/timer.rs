//! Policies with a constant wait.

use manyways_unit::Span;

use super::{NEVER, Policy};
use crate::radio::Packet;

/// Leaves every release to the network's timers.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatusQuo;

impl Policy for StatusQuo {
    fn observe(&mut self, _: &Packet, _: Option<Span>) -> Span {
        NEVER
    }
}

/// Goes idle after a constant time: 4.5 s after H. Falaki et al., "A first look at traffic on
/// smartphones", IMC 2010; the 95th percentile of a trace's gaps; or the threshold of a profile.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    pub wait: Span,
}

impl Policy for Timer {
    fn observe(&mut self, _: &Packet, _: Option<Span>) -> Span {
        self.wait
    }
}

/// MakeIdle by equations 4.1 and 4.2 as printed. There the cost of not switching does not depend on
/// the wait, and the cost of switching grows with the wait, so the best wait is always zero.
/// Included to show this effect.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrintedMakeIdle;

impl Policy for PrintedMakeIdle {
    fn observe(&mut self, _: &Packet, _: Option<Span>) -> Span {
        Span::ZERO
    }
}
