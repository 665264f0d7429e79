//! The user's command that sends the radio to idle.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use manyways_model::radio::control::Sleep;
use manyways_sys::command::Running;
use manyways_unit::{Span, Time};

/// Runs the command, one process at a time. Its input is empty, and its output goes to standard
/// error, because standard output is for events.
#[derive(Debug)]
pub struct Exec {
    /// Argument of `/bin/sh -c`.
    command: String,
    /// Timeout after which the command is killed.
    patience: Span,
    /// Environment variables, in addition to those of each dormancy.
    variables: Vec<(&'static str, String)>,
    running: Option<(Running, Time)>,
}

/// Result and duration of a command.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ended {
    pub how: How,
    pub lasts: Span,
}

/// The way in which a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// By itself, with this code.
    Exit(i32),
    /// By a signal that is not ours.
    Signal(i32),
    /// Killed after the timeout.
    TimedOut,
    /// Killed at the end of the run.
    Stopped,
    /// Could not be started; the errno value.
    NotStarted(i32),
}

impl Ended {
    /// Whether the command reported success.
    pub fn has_succeeded(&self) -> bool {
        self.how == How::Exit(0)
    }
}

impl Exec {
    /// `command` is the argument of `/bin/sh -c`.
    pub fn new(command: String, patience: Span, variables: Vec<(&'static str, String)>) -> Self {
        Self { command, patience, variables, running: None }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// End of the running command's timeout.
    pub(super) fn until(&self) -> Option<Time> {
        self.running.as_ref().map(|(_, began)| *began + self.patience)
    }

    /// Starts the command. The returned descriptor is readable when the command has ended.
    pub(super) fn start(&mut self, now: Time, sleep: &Sleep) -> Result<BorrowedFd<'_>, Ended> {
        match self.spawn(sleep) {
            Ok(running) => Ok(self.running.insert((running, now)).0.as_fd()),
            Err(error) => {
                let how = How::NotStarted(error.raw_os_error().unwrap_or_default());
                Err(Ended { how, lasts: Span::ZERO })
            }
        }
    }

    fn spawn(&self, sleep: &Sleep) -> io::Result<Running> {
        let says = io::stderr().as_fd().try_clone_to_owned()?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&self.command).stdin(Stdio::null()).stdout(says);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env("MANYWAYS_IDLE_SECONDS", format!("{:.3}", sleep.idle.as_secs_f64()));
        command.env("MANYWAYS_WAIT_SECONDS", format!("{:.3}", sleep.wait));
        Running::start(command)
    }

    /// Returns the result of an ended command, and kills the command after the timeout.
    pub(super) fn poll(&mut self, now: Time) -> io::Result<Option<Ended>> {
        let Some((running, began)) = &mut self.running else { return Ok(None) };
        let lasts = now.since(*began);
        let how = match running.ended()? {
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => How::Exit(code),
                (None, signal) => How::Signal(signal.unwrap_or_default()),
            },
            None if lasts >= self.patience => {
                running.kill()?;
                How::TimedOut
            }
            None => return Ok(None),
        };
        // This closes the descriptor that was readable.
        self.running = None;
        Ok(Some(Ended { how, lasts }))
    }

    /// Kills the running command.
    pub(super) fn stop(self, now: Time) -> Option<Ended> {
        let (running, began) = self.running?;
        drop(running);
        Some(Ended { how: How::Stopped, lasts: now.since(began) })
    }
}
