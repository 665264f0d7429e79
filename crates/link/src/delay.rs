//! Delay of packets between leaving the wire and arriving.

use manyways_trace::scenario::DelaySpec;
use manyways_unit::{Random, Span, Time};

use crate::capacity::TraceClock;

/// Propagation delay and jitter of one direction.
#[derive(Clone, Debug)]
pub(crate) struct Delay {
    spec: DelaySpec,
    jitter: Span,
    random: Random,
}

impl Delay {
    pub fn new(spec: DelaySpec, jitter: Span, random: Random) -> Self {
        Self { spec, jitter, random }
    }

    pub fn set(&mut self, spec: DelaySpec) {
        self.spec = spec;
    }

    pub fn set_jitter(&mut self, jitter: Span) {
        self.jitter = jitter;
    }

    pub fn has_jitter(&self) -> bool {
        !self.jitter.is_zero()
    }

    /// Returns the arrival time of a packet that leaves the wire at `at`.
    pub fn arrival(&mut self, clock: TraceClock, at: Time) -> Time {
        let delay = match &self.spec {
            DelaySpec::Constant(span) => *span,
            DelaySpec::Trace { steps, .. } => *steps.at(clock.position(at)),
        };
        if self.jitter.is_zero() {
            return at + delay;
        }
        let jitter = self.jitter.as_nanos();
        let more = Span::from_nanos(self.random.up_to(jitter.saturating_mul(2)));
        // `more` includes the jitter as an offset; subtracting it last keeps the delay from going
        // below 0.
        at + (delay + more).saturating_sub(self.jitter)
    }
}
