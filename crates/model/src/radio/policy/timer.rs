//! What waits for the same time after every packet.

use super::{NEVER, Policy};
use crate::radio::Packet;

/// What networks do: nothing is asked of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatusQuo;

impl Policy for StatusQuo {
    fn observe(&mut self, _: &Packet, _: Option<f64>) -> f64 {
        NEVER
    }
}

/// Sleeps after the same time each time: 4.5 s after H. Falaki et al., "A first look at traffic on
/// smartphones", IMC 2010; the 95th percentile of a trace's own gaps; or the threshold of a profile.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    /// Seconds.
    pub wait: f64,
}

impl Policy for Timer {
    fn observe(&mut self, _: &Packet, _: Option<f64>) -> f64 {
        self.wait
    }
}

/// MakeIdle by its equations 4.1 and 4.2 as they are printed: what not switching takes does not depend
/// on the wait there, and switching takes the more the longer one waits, so that the best wait is
/// always none. Here to show what that does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Printed;

impl Policy for Printed {
    fn observe(&mut self, _: &Packet, _: Option<f64>) -> f64 {
        0.0
    }
}
