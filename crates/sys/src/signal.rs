//! Signals as events, signals to others, and who has the terminal that sends some of them.

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

/// Takes the termination signals (INT, QUIT, TERM, HUP) out of their usual course, for every thread
/// that is started after this; commands that are started in a sandbox get them as usual.
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
        let set = termination();
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?))
    }

    /// Waits for the next one.
    pub fn wait(&self) -> io::Result<Ended> {
        loop {
            if let Some(info) = self.0.read_signal()? {
                return Ok(Ended {
                    signal: info.ssi_signo as i32,
                    from_terminal: info.ssi_code == libc::SI_KERNEL
                        && matches!(info.ssi_signo as i32, libc::SIGINT | libc::SIGQUIT),
                });
            }
        }
    }
}

impl Termination {
    /// The next one, if there is one already.
    pub fn now(&self) -> io::Result<Option<Ended>> {
        self.first(&mut [PollFd::new(self.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO)
    }

    /// The next one, if it comes within so many milliseconds and before somebody wakes us; and
    /// whether somebody did.
    pub fn within(&self, millis: u16, waker: &Waker) -> io::Result<(Option<Ended>, bool)> {
        let mut fds = [self.as_fd(), waker.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let ended = self.first(&mut fds, PollTimeout::from(millis))?;
        Ok((ended, is_readable(&fds[1])))
    }

    /// Waits for these, of which the first is our own.
    fn first(&self, fds: &mut [PollFd<'_>], patience: PollTimeout) -> io::Result<Option<Ended>> {
        match poll(fds, patience) {
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

fn termination() -> SigSet {
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}

/// Gives the calling thread its termination signals back. Safe between `fork` and `exec`, across
/// which the others' blocking would last.
pub(crate) fn release() -> io::Result<()> {
    pthread_sigmask(SigmaskHow::SIG_UNBLOCK, Some(&termination()), None)?;
    Ok(())
}

/// Lets `command` start with the default action of each signal and with no signal blocked, whatever
/// this process has inherited: a shell starts background jobs with SIGINT ignored, and `nohup`
/// ignores SIGHUP.
pub fn with_defaults(command: &mut Command) -> &mut Command {
    /// Signals are numbered from 1 to this; Linux has 64 on every architecture that Rust's standard
    /// library supports, except MIPS.
    const LAST: i32 = 64;
    let set_all = || {
        for signal in 1..=LAST {
            // SAFETY: SIG_DFL runs no code of ours. SIGKILL, SIGSTOP and the C library's own two
            // refuse the call and keep their action.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        Ok(())
    };
    // SAFETY: the closure makes only system calls.
    unsafe { command.pre_exec(set_all) }
}

/// Sends a signal to a process, or to a process group by its negative number.
pub fn send(pid: i32, signal: i32) -> io::Result<()> {
    kill(Pid::from_raw(pid), Signal::try_from(signal)?)?;
    Ok(())
}

/// The terminal, which comes back to our process group when this is dropped.
///
/// A shell with job control that we started takes the terminal for itself. It cannot give it back
/// when it ends: in its process namespace our group has no number.
#[derive(Debug)]
pub struct Foreground(File);

impl Foreground {
    /// Nothing where there is no terminal, or where it is not ours now: ask before the shell that
    /// takes it is started.
    pub fn keep() -> Option<Self> {
        let terminal = File::open("/dev/tty").ok()?;
        (tcgetpgrp(&terminal).ok()? == getpgrp()).then(|| Self(terminal))
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        // Who asks for the terminal from the background is stopped by this signal otherwise.
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
        // SAFETY: nothing in these tests sends this signal.
        unsafe { libc::signal(libc::SIGUSR2, libc::SIG_IGN) };
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGUSR1);
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&blocked), None).unwrap();
        // The C library ignores two signals of its own between 31 and 34, which are of no concern.
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
