//! The clocks of this machine.

use std::time::{SystemTime, UNIX_EPOCH};

use manyways_unit::{Span, Time};
use nix::time::{ClockId, clock_gettime};

/// The monotonic clock since its creation, which is the origin of one run's [`Time`]s.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: u64,
}

impl Clock {
    /// Creates a clock whose origin is now.
    pub fn start() -> Self {
        Self { origin: monotonic() }
    }

    /// Returns the time since the origin.
    pub fn now(&self) -> Time {
        Time::from_nanos(monotonic() - self.origin)
    }

    /// Converts a [`Time`] of this clock to the kernel's monotonic nanoseconds, for absolute
    /// timers.
    pub fn absolute(&self, time: Time) -> u64 {
        self.origin.saturating_add(time.as_nanos())
    }

    /// Returns the wall clock at the origin, as time since the Unix epoch; only for file headers.
    pub fn epoch(&self) -> Span {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Span::from(since) - Span::from_nanos(monotonic() - self.origin)
    }
}

/// Returns the processor time that the calling thread has used.
pub fn thread_cpu() -> Span {
    Span::from_nanos(read(ClockId::CLOCK_THREAD_CPUTIME_ID))
}

fn monotonic() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

fn read(clock: ClockId) -> u64 {
    // The two clocks in use exist on every Linux; a failure would be a kernel without clocks.
    clock_gettime(clock)
        .map(|t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
        .unwrap_or_default()
}
