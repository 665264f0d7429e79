//! Waiting for a child, a deadline and a termination signal at once.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::process::{Child, ExitStatus};

use manyways_trace::{Span, Time};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::clock::Clock;
use crate::signal::{Ended, Termination};

/// What came first.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// The child ended.
    Exited(ExitStatus),
    /// Time ran out.
    TimedOut,
    /// Somebody wants us to end.
    Signal(Ended),
}

/// Waits for `child`, at most for `patience`, and for a termination signal if there is a source of
/// them.
pub fn wait(
    child: &mut Child,
    patience: Option<Span>,
    termination: Option<&Termination>,
) -> io::Result<Outcome> {
    let clock = Clock::start();
    let deadline = patience.map(|patience| Time::ZERO + patience);
    let process = pidfd(child.id() as i32)?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Outcome::Exited(status));
        }
        let mut fds = vec![PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        fds.extend(termination.map(|t| PollFd::new(t.as_fd(), PollFlags::POLLIN)));
        let timeout = match deadline {
            None => PollTimeout::NONE,
            Some(deadline) => {
                let left = deadline.since(clock.now());
                if left.is_zero() {
                    return Ok(Outcome::TimedOut);
                }
                // Rounded up, so that the last round does not spin.
                let millis = left.as_nanos().div_ceil(1_000_000).min(i32::MAX as u64) as i32;
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

/// A descriptor that is readable once a process has ended.
pub(crate) fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call only makes a new descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
