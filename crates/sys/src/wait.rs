//! Waits for a child, a deadline and a termination signal at once.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use manyways_unit::{Size, Span, Time};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::clock::Clock;
use crate::signal::{Termination, TerminationSignal};

/// The event that ended a wait.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// The child ended.
    Exited(ExitStatus),
    /// The time has passed.
    TimedOut,
    /// A termination signal was received.
    Signal(TerminationSignal),
}

/// Resources used by a process and the children that it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in user and kernel mode.
    pub cpu: Span,
    /// Maximum resident memory; for several processes, that of the largest. At least that of this
    /// process when it started the child.
    pub memory: Size,
}

/// Waits for `child`, at most for `timeout`, and for a termination signal if `termination` is
/// given.
pub fn wait(
    child: &mut Child,
    timeout: Option<Span>,
    termination: Option<&Termination>,
) -> io::Result<Outcome> {
    wait_until(child.id() as i32, timeout, termination, || child.try_wait())
}

/// Like [`wait`], and returns the resources of the child; zero if it has not ended. After it has
/// ended, `child` must not be queried again: its id may be reused.
pub fn wait_with_usage(
    child: &Child,
    timeout: Option<Span>,
    termination: Option<&Termination>,
) -> io::Result<(Outcome, Usage)> {
    let pid = child.id() as i32;
    let mut usage = Usage::default();
    let outcome = wait_until(pid, timeout, termination, || {
        let mut status = 0;
        // SAFETY: all zeros is a valid struct of numbers.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid.
        let found = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut used) };
        if found < 0 {
            return Err(io::Error::last_os_error());
        }
        let micros = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
        usage.cpu = Span::from_micros(micros(used.ru_utime) + micros(used.ru_stime));
        usage.memory = Size::from_bytes(used.ru_maxrss as u64 * 1_024);
        Ok((found == pid).then(|| ExitStatus::from_raw(status)))
    })?;
    Ok((outcome, usage))
}

fn wait_until(
    pid: i32,
    patience: Option<Span>,
    termination: Option<&Termination>,
    mut ended: impl FnMut() -> io::Result<Option<ExitStatus>>,
) -> io::Result<Outcome> {
    let clock = Clock::start();
    let deadline = patience.map(|patience| Time::ZERO + patience);
    let process = pidfd(pid)?;
    loop {
        if let Some(status) = ended()? {
            return Ok(Outcome::Exited(status));
        }
        let mut fds = vec![PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        fds.extend(termination.map(|t| PollFd::new(t.as_fd(), PollFlags::POLLIN)));
        let timeout = match deadline {
            None => PollTimeout::NONE,
            Some(deadline) => {
                let remaining = deadline.since(clock.now());
                if remaining.is_zero() {
                    return Ok(Outcome::TimedOut);
                }
                // Rounded up, so that the last iteration does not spin.
                let millis = remaining.as_nanos().div_ceil(1_000_000).min(i32::MAX as u64) as i32;
                PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
            }
        };
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let signalled =
            fds.get(1).and_then(PollFd::revents).is_some_and(|r| r.contains(PollFlags::POLLIN));
        if let Some(termination) = termination.filter(|_| signalled) {
            return Ok(Outcome::Signal(termination.wait()?));
        }
    }
}

/// Returns a descriptor that is readable once a process has ended.
pub(crate) fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call only creates a new descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
#[allow(clippy::zombie_processes, reason = "the tested code waits for them")]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_child_is_accounted_for() {
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exit 3";
        let child = Command::new("sh").args(["-c", busy]).spawn().unwrap();
        let (outcome, usage) = wait_with_usage(&child, None, None).unwrap();
        assert!(matches!(outcome, Outcome::Exited(status) if status.code() == Some(3)));
        assert!(!usage.cpu.is_zero(), "{usage:?}");
        assert!(usage.memory.as_bytes() > 100_000, "{usage:?}");
        // The child was reaped and cannot be waited for twice.
        assert!(wait_with_usage(&child, None, None).is_err());
    }

    #[test]
    fn a_child_that_takes_too_long_can_still_be_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let (outcome, usage) = wait_with_usage(&child, Some(Span::from_millis(20)), None).unwrap();
        assert!(matches!(outcome, Outcome::TimedOut));
        assert_eq!(usage, Usage { memory: usage.memory, ..Usage::default() });
        child.kill().unwrap();
        let (outcome, _) = wait_with_usage(&child, None, None).unwrap();
        assert!(matches!(outcome, Outcome::Exited(status) if !status.success()));
    }
}
