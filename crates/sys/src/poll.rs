//! Waits for descriptors and for a time, in nanoseconds.
//!
//! An `epoll` set that includes one absolute `timerfd`: timer slack delays `epoll_pwait2` but not a
//! `timerfd`, and tokio's timers have a resolution of milliseconds.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use manyways_unit::Time;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::clock::Clock;

/// Token of the timer; tokens of descriptors must be smaller.
const TIMER_TOKEN: u64 = u64::MAX;

/// A set of descriptors to read from, and one timer.
pub struct Poller {
    epoll: Epoll,
    timer: TimerFd,
    clock: Clock,
    armed: Option<Time>,
    /// Whether the timer fired and was not set since; it then counts as ready.
    has_fired: bool,
    events: Vec<EpollEvent>,
}

impl Poller {
    /// Creates an empty set whose timer uses `clock`.
    pub fn new(clock: Clock) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER_TOKEN))?;
        Ok(Self {
            epoll,
            timer,
            clock,
            armed: None,
            has_fired: false,
            events: vec![EpollEvent::empty(); 64],
        })
    }

    /// Adds a descriptor; [`Poller::wait`] returns `token` while the descriptor is readable.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token))?;
        Ok(())
    }

    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.epoll.delete(fd)?;
        Ok(())
    }

    /// Waits until a descriptor is readable or until `until` (forever, if `None`). Stores the
    /// tokens of the readable descriptors in `ready`.
    pub fn wait(&mut self, until: Option<Time>, ready: &mut Vec<u64>) -> io::Result<()> {
        ready.clear();
        if until != self.armed || self.has_fired {
            match until {
                Some(time) => {
                    // An all-zero timer means "disarmed"; one nanosecond is also in the past.
                    let nanos = self.clock.absolute(time).max(1);
                    let at = TimeSpec::new(
                        (nanos / 1_000_000_000) as i64,
                        (nanos % 1_000_000_000) as i64,
                    );
                    self.timer
                        .set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
                }
                None => self.timer.unset()?,
            }
            self.armed = until;
            self.has_fired = false;
        }
        let count = match self.epoll.wait(&mut self.events, EpollTimeout::NONE) {
            Ok(count) => count,
            Err(Errno::EINTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in &self.events[..count] {
            match event.data() {
                // Setting the timer resets its readiness, so it need not be read.
                TIMER_TOKEN => self.has_fired = true,
                token => ready.push(token),
            }
        }
        Ok(())
    }
}

/// Wakes a [`Poller`] from another thread.
pub struct Waker(EventFd);

impl Waker {
    /// Creates a waker to add to a poller (through [`AsFd`]).
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        Ok(Self(EventFd::from_value_and_flags(0, flags)?))
    }

    /// Makes the descriptor readable.
    pub fn wake(&self) {
        // A full counter is already readable.
        let _ = self.0.write(1);
    }

    /// Makes the descriptor unreadable.
    pub fn clear(&self) {
        let _ = self.0.read();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use manyways_unit::Span;

    use super::*;

    const TOKEN: u64 = 7;

    #[test]
    fn a_timer_that_fired_wakes_once() {
        let clock = Clock::start();
        let mut poller = Poller::new(clock).unwrap();
        let waker = Waker::new().unwrap();
        poller.add(waker.as_fd(), TOKEN).unwrap();
        let mut ready = Vec::new();
        poller.wait(Some(clock.now()), &mut ready).unwrap();
        assert!(ready.is_empty());
        // Without descriptors and time, only the waker ends the wait.
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            poller.wait(None, &mut ready).unwrap();
        });
        assert_eq!(ready, [TOKEN]);
    }

    #[test]
    fn the_same_moment_can_be_waited_for_again() {
        let clock = Clock::start();
        let mut poller = Poller::new(clock).unwrap();
        let until = clock.now() + Span::from_micros(200);
        let mut ready = Vec::new();
        for _ in 0..2 {
            poller.wait(Some(until), &mut ready).unwrap();
            assert!(clock.now() >= until);
        }
    }
}
