//! A command that runs beside us, and ends with us.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};

use crate::signal;
use crate::wait::pidfd;

/// A command in a process group of its own. It is readable (through [`AsFd`]) once it has ended; what
/// is still there of the group when this is dropped is killed, and nothing of it is left to reap.
///
/// Should our thread end without dropping it, as by SIGKILL, the command is killed, but not what it
/// has started.
#[derive(Debug)]
pub struct Running {
    child: Child,
    process: OwnedFd,
    status: Option<ExitStatus>,
}

impl Running {
    /// Starts it. It gets termination signals as usual, also where we have
    /// [taken](crate::signal::Termination) ours.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start(mut command: Command) -> io::Result<Self> {
        command.process_group(0);
        // SAFETY: the closure only makes system calls.
        unsafe {
            command.pre_exec(|| {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
                    return Err(io::Error::last_os_error());
                }
                signal::release()
            });
        }
        let mut child = command.spawn()?;
        match pidfd(child.id() as i32) {
            Ok(process) => Ok(Self { child, process, status: None }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// How it ended; none while it runs. What it left behind in its group is killed then.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() && self.has_ended()? {
            self.end()?;
        }
        Ok(self.status)
    }

    /// Kills it and all of its group.
    pub fn kill(&mut self) -> io::Result<()> {
        if self.status.is_none() {
            self.end()?;
        }
        Ok(())
    }

    /// Without reaping it: its number stays that of its group as long as nobody has.
    fn has_ended(&self) -> io::Result<bool> {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let mut fds = [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)];
        Ok(poll(&mut fds, PollTimeout::ZERO)? > 0)
    }

    fn end(&mut self) -> io::Result<()> {
        // Nobody is in the group any more: then this was all.
        let _ = signal::send(-(self.child.id() as i32), libc::SIGKILL);
        self.status = Some(self.child.wait()?);
        Ok(())
    }
}

impl AsFd for Running {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::null());
        // These tests may have been started with some of them ignored.
        signal::with_defaults(&mut command);
        command
    }

    fn wait(running: &mut Running) -> ExitStatus {
        let mut fds = [PollFd::new(running.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(60_000_u16)).unwrap();
        running.ended().unwrap().expect("it is readable")
    }

    #[test]
    fn its_end_is_told() {
        let mut running = Running::start(shell("exit 7")).unwrap();
        assert_eq!(wait(&mut running).code(), Some(7));
        // Again, though it was reaped.
        assert_eq!(running.ended().unwrap().and_then(|status| status.code()), Some(7));
        assert!(Running::start(Command::new("/nowhere")).is_err());
    }

    /// A script whose two processes hold a pipe open: it ends when both have.
    fn two(script: &str) -> (Running, io::PipeReader) {
        let (mut pipe, end) = io::pipe().unwrap();
        let mut command = shell(script);
        command.stdout(end);
        let running = Running::start(command).unwrap();
        pipe.read_exact(&mut [0; 6]).unwrap();
        (running, pipe)
    }

    #[test]
    fn all_of_it_is_killed() {
        let (mut running, mut pipe) = two("sleep 1000 & echo hello; wait; echo more");
        assert_eq!(running.ended().unwrap(), None);
        running.kill().unwrap();
        assert_eq!(running.ended().unwrap().and_then(|status| status.signal()), Some(9));
        assert_eq!(pipe.read_to_end(&mut Vec::new()).unwrap(), 0);
        let (running, mut pipe) = two("sleep 1000 & echo hello; wait; echo more");
        drop(running);
        assert_eq!(pipe.read_to_end(&mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn what_it_leaves_behind_is_killed() {
        let (mut running, mut pipe) = two("sleep 1000 & echo hello; exit 3");
        assert_eq!(wait(&mut running).code(), Some(3));
        assert_eq!(pipe.read_to_end(&mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn it_gets_its_signals_as_usual() {
        // In a thread of its own, as the block would stay.
        let blocked = std::thread::spawn(|| {
            let _termination = signal::Termination::take().unwrap();
            let mut running = Running::start(shell("kill -TERM $$; exit 0")).unwrap();
            wait(&mut running).signal()
        });
        assert_eq!(blocked.join().unwrap(), Some(libc::SIGTERM));
    }
}
