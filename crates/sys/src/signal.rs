//! Signals as events, and signals to others.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, pthread_sigmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

/// Takes the termination signals (INT, TERM, HUP) out of their usual course, for every thread
/// that is started after this; commands that are started get them as usual.
pub struct Termination(SignalFd);

/// One termination signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which one.
    pub signal: i32,
    /// From the terminal's keyboard, so that the foreground commands have it too.
    pub from_terminal: bool,
}

impl Termination {
    /// Call it before any thread is started.
    pub fn take() -> io::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?))
    }

    /// Waits for the next one.
    pub fn wait(&self) -> io::Result<Ended> {
        loop {
            if let Some(info) = self.0.read_signal()? {
                return Ok(Ended {
                    signal: info.ssi_signo as i32,
                    from_terminal: info.ssi_code == libc::SI_KERNEL,
                });
            }
        }
    }
}

impl AsFd for Termination {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sends a signal to a process, or to a process group by its negative number.
pub fn send(pid: i32, signal: i32) -> io::Result<()> {
    kill(Pid::from_raw(pid), Signal::try_from(signal)?)?;
    Ok(())
}
