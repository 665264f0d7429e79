//! A timer as a descriptor, for event loops whose own timers count milliseconds.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use manyways_unit::Time;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::clock::Clock;

/// A `timerfd`, which is readable from the time on to which it is set.
#[derive(Debug)]
pub struct Timer {
    descriptor: TimerFd,
    clock: Clock,
}

impl Timer {
    /// Creates a timer that is not set. It uses `clock`.
    pub fn new(clock: Clock) -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Self { descriptor: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?, clock })
    }

    /// Sets the timer to another time, which may have passed. Until then, it is not readable.
    pub fn set(&self, at: Time) -> io::Result<()> {
        // An all-zero timer means "disarmed"; one nanosecond is also in the past.
        let nanos = self.clock.absolute(at).max(1);
        let at = TimeSpec::new((nanos / 1_000_000_000) as i64, (nanos % 1_000_000_000) as i64);
        self.descriptor.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        Ok(())
    }

    /// Makes the timer unreadable until the time to which it is set next.
    pub fn unset(&self) -> io::Result<()> {
        self.descriptor.unset()?;
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn is_readable(timer: &Timer, wait: PollTimeout) -> bool {
        poll(&mut [PollFd::new(timer.as_fd(), PollFlags::POLLIN)], wait).unwrap() == 1
    }

    #[test]
    fn a_timer_is_readable_from_its_time_on() {
        let clock = Clock::start();
        let timer = Timer::new(clock).unwrap();
        assert!(!is_readable(&timer, PollTimeout::ZERO));
        timer.set(Time::ZERO).unwrap();
        assert!(is_readable(&timer, PollTimeout::NONE));
        timer.set(Time::MAX).unwrap();
        assert!(!is_readable(&timer, PollTimeout::ZERO));
        let at = clock.now() + manyways_unit::Span::from_micros(200);
        timer.set(at).unwrap();
        assert!(is_readable(&timer, PollTimeout::NONE));
        assert!(clock.now() >= at);
        timer.unset().unwrap();
        assert!(!is_readable(&timer, PollTimeout::ZERO));
    }
}
