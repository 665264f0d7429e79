//! One direction of a link in real time: the pure core, and the interval at which it is served.

use manyways_link::{Output, Packet, Pipe, Stats};
use manyways_trace::LinkTrace;
use manyways_trace::scenario::{CapacitySpec, DirectionSpec, LinkState};
use manyways_unit::{Rate, Size, Span, Time};

/// From this rate on, emissions are batched: a wake-up per segment would take a core.
const BATCHING_RATE: Rate = Rate::from_mbps(250);
/// Interval of batched emissions in nanoseconds, and so the maximum delay of a packet. All links
/// share these times, so that one wake-up serves them all.
const BATCH_INTERVAL: u64 = 50_000;

/// The counters of one direction.
pub type LaneStats = Stats;

/// Window over which the rate of a trace of opportunities is averaged.
const RATE_WINDOW: Span = Span::from_millis(100);

/// One direction of a link in a running lab, and its statistics.
pub struct Lane {
    pipe: Pipe,
    spec: DirectionSpec,
    peak: Rate,
    /// A time and the position of the trace at that time.
    trace: (Time, Span),
    /// Earliest next emission, so that packets due soon leave together.
    next_emission: Time,
    /// Whether a packet left since `next_emission` was set.
    has_emitted: bool,
    max_lateness: Span,
}

impl Lane {
    pub fn new(spec: &DirectionSpec, seed: u64, now: Time, offset: Span) -> Self {
        let mut lane = Self {
            pipe: Pipe::new(spec, seed),
            spec: spec.clone(),
            peak: peak(&spec.capacity),
            trace: (now, offset),
            next_emission: Time::ZERO,
            has_emitted: false,
            max_lateness: Span::ZERO,
        };
        lane.restart(now, offset);
        lane
    }

    pub fn restart(&mut self, now: Time, offset: Span) {
        self.trace = (now, offset);
        self.max_lateness = Span::ZERO;
        self.pipe.restart(now, offset);
    }

    pub fn pipe(&mut self) -> &mut Pipe {
        &mut self.pipe
    }

    pub fn handle(&mut self, now: Time, packet: Packet) {
        self.pipe.handle(now, packet);
    }

    /// Delays the start of packets until `until`.
    pub fn delay_until(&mut self, now: Time, until: Time) {
        self.pipe.pause_until(now, until);
    }

    /// Returns the last time, up to `now`, at which the wire was busy.
    pub fn last_busy(&mut self, now: Time) -> Option<Time> {
        self.pipe.last_busy(now)
    }

    /// Applies the settings that differ in `spec`.
    pub fn change(&mut self, now: Time, spec: &DirectionSpec) {
        let old = std::mem::replace(&mut self.spec, spec.clone());
        if old.capacity != spec.capacity {
            self.peak = peak(&spec.capacity);
            self.pipe.set_capacity(now, spec.capacity.clone());
        }
        if old.delay != spec.delay {
            self.pipe.set_delay(now, spec.delay.clone());
        }
        if old.jitter != spec.jitter {
            self.pipe.set_jitter(now, spec.jitter);
        }
        if old.reorder != spec.reorder {
            self.pipe.set_reorder(now, spec.reorder);
        }
        if old.loss != spec.loss {
            self.pipe.set_loss(now, spec.loss);
        }
        if old.queue != spec.queue {
            self.pipe.set_queue(now, spec.queue);
        }
    }

    pub fn set_state(&mut self, now: Time, state: LinkState) {
        self.pipe.set_state(now, state);
    }

    /// Returns the maximum rate of this direction; more than any other rate if unlimited.
    pub fn peak_rate(&self) -> Rate {
        self.peak
    }

    /// Returns the capacity at `now`, whole even if the link shares an air; `None` if unlimited.
    pub fn rate(&self, now: Time) -> Option<Rate> {
        match &self.spec.capacity {
            CapacitySpec::Unlimited => None,
            CapacitySpec::Constant(rate) => Some(*rate),
            CapacitySpec::Trace { trace, .. } => {
                let (since, offset) = self.trace;
                let position = now.since(since) + offset;
                Some(match trace {
                    LinkTrace::Rates(steps) => *steps.at(position),
                    LinkTrace::Opportunities { at, size, period } => {
                        let end = Span::from_nanos(position.as_nanos() % period.as_nanos());
                        let start = end - RATE_WINDOW;
                        let count =
                            at.partition_point(|t| *t < end) - at.partition_point(|t| *t < start);
                        let bytes = Size::from_bytes(size.as_bytes() * count as u64);
                        Rate::of(bytes, end - start)
                    }
                })
            }
        }
    }

    pub fn poll(&mut self, now: Time) -> Option<Output> {
        if now < self.next_emission {
            return None;
        }
        let output = self.pipe.poll(now);
        if output.is_some() {
            self.has_emitted = true;
        } else if std::mem::take(&mut self.has_emitted) && self.peak >= BATCHING_RATE {
            self.next_emission =
                Time::from_nanos((now.as_nanos() / BATCH_INTERVAL + 1) * BATCH_INTERVAL);
        }
        output
    }

    /// Records that a packet that was due at `due` was released at `now`.
    pub fn record_release(&mut self, due: Time, now: Time) {
        self.max_lateness = self.max_lateness.max(now.since(due));
    }

    /// Returns the longest time between due and release since the last restart.
    pub fn max_lateness(&self) -> Span {
        self.max_lateness
    }

    pub fn next_wakeup(&self) -> Option<Time> {
        self.pipe.next_wakeup().map(|at| at.max(self.next_emission))
    }

    pub fn stats(&self) -> LaneStats {
        self.pipe.stats()
    }
}

fn peak(capacity: &CapacitySpec) -> Rate {
    match capacity {
        CapacitySpec::Unlimited => Rate::from_bps(u64::MAX),
        CapacitySpec::Constant(rate) => *rate,
        CapacitySpec::Trace { trace, .. } => match trace {
            LinkTrace::Opportunities { .. } => trace.mean_rate(),
            LinkTrace::Rates(steps) => {
                steps.steps().iter().map(|(_, rate)| *rate).max().unwrap_or_default()
            }
        },
    }
}
