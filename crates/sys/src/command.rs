//! A child process that ends with its parent.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::signal;
use crate::wait::pidfd;

/// A command in a separate process group. It is readable (through [`AsFd`]) once it has ended.
/// Dropping it kills the remaining processes of the group and reaps the command.
///
/// If the thread ends without dropping it, for example by SIGKILL, the kernel kills the command,
/// but not its descendants.
#[derive(Debug)]
pub struct RunningCommand {
    child: Child,
    process: OwnedFd,
    status: Option<ExitStatus>,
}

impl RunningCommand {
    /// Starts a command. It receives termination signals as usual, even if this process has
    /// [taken](crate::signal::Termination) its own.
    ///
    /// # Errors
    /// If the command cannot be started.
    pub fn start(mut command: Command) -> io::Result<Self> {
        command.process_group(0);
        // SAFETY: the closure only makes system calls.
        unsafe {
            command.pre_exec(|| {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
                    return Err(io::Error::last_os_error());
                }
                signal::unblock_termination()
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

    /// [`Self::start`] of a command that has each of `files` open as the descriptor of its number,
    /// which is above those of the standard streams.
    ///
    /// # Errors
    /// If the command cannot be started.
    pub fn start_with_files(
        mut command: Command,
        files: Vec<(RawFd, OwnedFd)>,
    ) -> io::Result<Self> {
        /// Below, the files must not be while they are moved to their numbers.
        const ABOVE: RawFd = 100;
        let last = files.iter().map(|(number, _)| *number).max().unwrap_or(0);
        // The descriptor through which the new process reports that it cannot execute the command has
        // the lowest free number, which must not be one of these.
        let mut taken: Vec<OwnedFd> = Vec::new();
        for (_, file) in &files {
            while taken.last().is_none_or(|fd| fd.as_raw_fd() <= last) {
                taken.push(file.try_clone()?);
            }
        }
        let mut moved = vec![-1; files.len()];
        // SAFETY: the closure only makes system calls, on descriptors that it owns.
        unsafe {
            command.pre_exec(move || {
                for (moved, (_, file)) in moved.iter_mut().zip(&files) {
                    *moved = libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, ABOVE);
                    if *moved < 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                for (moved, (number, _)) in moved.iter().zip(&files) {
                    // The copy stays open when the command is executed.
                    if libc::dup2(*moved, *number) < 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        Self::start(command)
    }

    /// Returns the exit status; `None` while the command runs. Kills the remaining processes of its
    /// group.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() && self.has_ended()? {
            self.kill_and_reap()?;
        }
        Ok(self.status)
    }

    /// Waits until the command has ended, and returns its exit status. Kills the remaining processes
    /// of its group.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            let mut fds = [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Kills the command and its process group.
    pub fn kill(&mut self) -> io::Result<()> {
        if self.status.is_none() {
            self.kill_and_reap()?;
        }
        Ok(())
    }

    /// Does not reap the command: its pid, which names the group, is reused only after that.
    fn has_ended(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)];
        Ok(poll(&mut fds, PollTimeout::ZERO)? > 0)
    }

    fn kill_and_reap(&mut self) -> io::Result<()> {
        // Fails if no process of the group remains.
        let _ = signal::send(-(self.child.id() as i32), libc::SIGKILL);
        self.status = Some(self.child.wait()?);
        Ok(())
    }
}

impl AsFd for RunningCommand {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::null());
        // These tests may run with some signals ignored.
        signal::with_defaults(&mut command);
        command
    }

    #[test]
    fn the_exit_status_is_returned() {
        let mut running = RunningCommand::start(shell("exit 7")).unwrap();
        assert_eq!(running.wait().unwrap().code(), Some(7));
        // The status is also returned after the command was reaped.
        assert_eq!(running.try_wait().unwrap().and_then(|status| status.code()), Some(7));
        assert!(RunningCommand::start(Command::new("/nowhere")).is_err());
    }

    /// Starts a script whose two processes hold a pipe open. The pipe ends when both have ended.
    fn two_processes(script: &str) -> (RunningCommand, io::PipeReader) {
        let (mut pipe, end) = io::pipe().unwrap();
        let mut command = shell(script);
        command.stdout(end);
        let running = RunningCommand::start(command).unwrap();
        pipe.read_exact(&mut [0; 6]).unwrap();
        (running, pipe)
    }

    #[test]
    fn the_whole_process_group_is_killed() {
        let (mut running, mut pipe) = two_processes("sleep 1000 & echo hello; wait; echo more");
        assert_eq!(running.try_wait().unwrap(), None);
        running.kill().unwrap();
        assert_eq!(running.try_wait().unwrap().and_then(|status| status.signal()), Some(9));
        assert_eq!(pipe.read_to_end(&mut Vec::new()).unwrap(), 0);
        let (running, mut pipe) = two_processes("sleep 1000 & echo hello; wait; echo more");
        drop(running);
        assert_eq!(pipe.read_to_end(&mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn processes_left_by_a_command_are_killed() {
        let (mut running, mut pipe) = two_processes("sleep 1000 & echo hello; exit 3");
        assert_eq!(running.wait().unwrap().code(), Some(3));
        assert_eq!(pipe.read_to_end(&mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn a_command_finds_files_at_their_numbers() {
        let (mut answers, answer) = io::pipe().unwrap();
        let (question, mut questions) = io::pipe().unwrap();
        let files = vec![(3, OwnedFd::from(question)), (4, answer.into())];
        let mut running = RunningCommand::start_with_files(shell("cat <&3 >&4"), files).unwrap();
        questions.write_all(b"hello").unwrap();
        drop(questions);
        let mut said = String::new();
        answers.read_to_string(&mut said).unwrap();
        assert_eq!((said.as_str(), running.wait().unwrap().code()), ("hello", Some(0)));
        // A command that does not exist is an error also if these numbers were free.
        let (_, writer) = io::pipe().unwrap();
        let files = vec![(3, OwnedFd::from(writer))];
        let missing = RunningCommand::start_with_files(Command::new("/nowhere"), files);
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_command_receives_signals_as_usual() {
        // In a separate thread, because the signals stay blocked.
        let blocked = std::thread::spawn(|| {
            let _termination = signal::Termination::take().unwrap();
            let mut running = RunningCommand::start(shell("kill -TERM $$; exit 0")).unwrap();
            running.wait().unwrap().signal()
        });
        assert_eq!(blocked.join().unwrap(), Some(libc::SIGTERM));
    }
}
