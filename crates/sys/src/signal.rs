//! Termination signals as events, signals to other processes, and the terminal's foreground group.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, pthread_sigmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

use crate::poll::Waker;

/// Receives the termination signals (INT, QUIT, TERM, HUP) instead of their default action, for all
/// threads started later. Commands that are started in a sandbox receive them as usual.
pub struct Termination(SignalFd);

/// One termination signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminationSignal {
    /// Number of the signal.
    pub signal: i32,
    /// Whether the signal came from the terminal's keyboard, so that foreground commands received
    /// it, too.
    pub from_terminal: bool,
}

impl Termination {
    /// Call before starting any thread.
    pub fn take() -> io::Result<Self> {
        let set = termination_signals();
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?))
    }

    /// Waits for the next termination signal.
    pub fn wait(&self) -> io::Result<TerminationSignal> {
        loop {
            if let Some(info) = self.0.read_signal()? {
                return Ok(TerminationSignal {
                    signal: info.ssi_signo as i32,
                    from_terminal: info.ssi_code == libc::SI_KERNEL
                        && matches!(info.ssi_signo as i32, libc::SIGINT | libc::SIGQUIT),
                });
            }
        }
    }
}

impl Termination {
    /// Returns the next signal if one is pending; does not wait.
    pub fn try_wait(&self) -> io::Result<Option<TerminationSignal>> {
        self.wait_first(&mut [PollFd::new(self.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO)
    }

    /// Waits up to `millis` milliseconds for the next signal or the waker. Returns the signal, if
    /// any, and whether the waker is readable.
    pub fn wait_timeout(
        &self,
        millis: u16,
        waker: &Waker,
    ) -> io::Result<(Option<TerminationSignal>, bool)> {
        let mut fds = [self.as_fd(), waker.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let ended = self.wait_first(&mut fds, PollTimeout::from(millis))?;
        Ok((ended, is_readable(&fds[1])))
    }

    /// Waits for these descriptors, of which the first is the signal descriptor.
    fn wait_first(
        &self,
        fds: &mut [PollFd<'_>],
        timeout: PollTimeout,
    ) -> io::Result<Option<TerminationSignal>> {
        match poll(fds, timeout) {
            Ok(0) | Err(Errno::EINTR) => Ok(None),
            Ok(_) if fds.first().is_some_and(is_readable) => self.wait().map(Some),
            Ok(_) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Termination {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn is_readable(fd: &PollFd<'_>) -> bool {
    fd.revents().is_some_and(|events| events.contains(PollFlags::POLLIN))
}

fn termination_signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}

/// Unblocks the termination signals of the calling thread. Safe between `fork` and `exec`, across
/// which the signal mask would persist.
pub(crate) fn unblock_termination() -> io::Result<()> {
    pthread_sigmask(SigmaskHow::SIG_UNBLOCK, Some(&termination_signals()), None)?;
    Ok(())
}

/// Starts `command` with the default action of each signal and with no signal blocked, whatever
/// this process has inherited: a shell starts background jobs with SIGINT ignored, and `nohup`
/// ignores SIGHUP.
pub fn with_defaults(command: &mut Command) -> &mut Command {
    /// Highest signal number; 64 on every Linux architecture that Rust's standard library supports,
    /// except MIPS.
    const LAST: i32 = 64;
    let set_all = || {
        for signal in 1..=LAST {
            // SAFETY: SIG_DFL runs no code of this process. SIGKILL, SIGSTOP and two signals of the
            // C library reject the call and keep their action.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        Ok(())
    };
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(set_all) }
}

/// The signal by which a terminal stops a process (Ctrl-Z).
pub const TERMINAL_STOP: i32 = libc::SIGTSTP;

/// Stops this process until a shell or another process continues it.
pub fn stop_self() -> io::Result<()> {
    send(std::process::id() as i32, libc::SIGSTOP)
}

/// Sends a signal to a process, or to a process group if `pid` is negative.
pub fn send(pid: i32, signal: i32) -> io::Result<()> {
    kill(Pid::from_raw(pid), Signal::try_from(signal)?)?;
    Ok(())
}

/// The terminal; dropping it returns the foreground to the caller's process group.
///
/// A shell with job control that this process started takes the foreground. It cannot give it back
/// at its end: in its PID namespace the caller's group has no id.
#[derive(Debug)]
pub struct Foreground(File);

impl Foreground {
    /// Returns `None` without a terminal, or if this process is not in the foreground. Call before
    /// starting the shell that takes the foreground.
    pub fn save() -> Option<Self> {
        let terminal = File::open("/dev/tty").ok()?;
        (tcgetpgrp(&terminal).ok()? == getpgrp()).then(|| Self(terminal))
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        // Otherwise this signal stops a background process that requests the foreground.
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        let mut before = SigSet::empty();
        let _ = pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&stop), Some(&mut before));
        let _ = tcsetpgrp(&self.0, getpgrp());
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_default_signals_where_we_ignore_and_block_some() {
        // SAFETY: no test sends this signal.
        unsafe { libc::signal(libc::SIGUSR2, libc::SIG_IGN) };
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGUSR1);
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&blocked), None).unwrap();
        // The C library handles two signals between 31 and 34 itself, which are irrelevant here.
        let told = |command: &mut Command, field: &str| {
            let said = command.args([field, "/proc/self/status"]).output().unwrap();
            let said = String::from_utf8(said.stdout).unwrap();
            let mask = said.split_whitespace().last().unwrap();
            u64::from_str_radix(mask, 16).unwrap() & !(0b11 << 31)
        };
        for field in ["SigBlk", "SigIgn"] {
            assert_ne!(told(&mut Command::new("grep"), field), 0, "{field}");
            assert_eq!(told(with_defaults(&mut Command::new("grep")), field), 0, "{field}");
        }
        pthread_sigmask(SigmaskHow::SIG_UNBLOCK, Some(&blocked), None).unwrap();
    }
}
