//! A command of the user's that sends the radio to sleep.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use manyways_model::radio::control::Sleep;
use manyways_sys::command::Running;
use manyways_unit::{Span, Time};

/// Runs it, one at a time. It gets no input, and what it says goes to standard error: standard output
/// is for what happens.
#[derive(Debug)]
pub struct Exec {
    /// For `/bin/sh -c`.
    command: String,
    /// It is killed when it takes longer.
    patience: Span,
    /// What it finds in its environment, beside what each sleep adds.
    variables: Vec<(&'static str, String)>,
    running: Option<(Running, Time)>,
}

/// A command is over.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ended {
    /// How.
    pub how: How,
    /// After so long.
    pub lasts: Span,
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// By itself, with this code.
    Exit(i32),
    /// A signal of somebody else's has killed it.
    Signal(i32),
    /// It was killed, as it took too long.
    TimedOut,
    /// It was killed, as the control is over.
    Stopped,
    /// It did not begin: the system's number of the error.
    NotStarted(i32),
}

impl Ended {
    /// Whether the radio sleeps now, as far as the command knows.
    pub fn has_succeeded(&self) -> bool {
        self.how == How::Exit(0)
    }
}

impl Exec {
    /// For `/bin/sh -c`, at most for so long, and with these variables in its environment.
    pub fn new(command: String, patience: Span, variables: Vec<(&'static str, String)>) -> Self {
        Self { command, patience, variables, running: None }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// When it has run for too long.
    pub(super) fn until(&self) -> Option<Time> {
        self.running.as_ref().map(|(_, began)| *began + self.patience)
    }

    /// Begins, and says what is readable once it has ended.
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

    /// Says whether it is over, and sees to that when it takes too long.
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
        // With it goes what was readable.
        self.running = None;
        Ok(Some(Ended { how, lasts }))
    }

    /// Kills what runs.
    pub(super) fn stop(self, now: Time) -> Option<Ended> {
        let (running, began) = self.running?;
        drop(running);
        Some(Ended { how: How::Stopped, lasts: now.since(began) })
    }
}
