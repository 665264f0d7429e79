//! The user's command that sends the radio to idle.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use manyways_model::radio::control::DormancyRequest;
use manyways_sys::command::RunningCommand;
use manyways_unit::{Span, Time};

use crate::radio::event::{CommandEnd, RadioEvent};

/// Runs the command, one process at a time. Its input is empty, and its output goes to standard
/// error, because standard output is for events.
#[derive(Debug)]
pub struct Exec {
    /// Argument of `/bin/sh -c`.
    command: String,
    /// Timeout after which the command is killed.
    timeout: Span,
    /// Environment variables, in addition to those of each dormancy.
    variables: Vec<(&'static str, String)>,
    running: Option<(RunningCommand, Time)>,
}

/// Result and duration of a command.
#[derive(Debug)]
pub(super) struct CommandResult {
    outcome: CommandOutcome,
    duration: Span,
}

#[derive(Debug)]
enum CommandOutcome {
    Exit(ExitStatus),
    TimedOut,
    Stopped,
    NotStarted(io::Error),
}

impl CommandResult {
    /// Whether the command reported success.
    pub(super) fn has_succeeded(&self) -> bool {
        matches!(&self.outcome, CommandOutcome::Exit(status) if status.success())
    }
}

impl From<CommandResult> for RadioEvent {
    fn from(CommandResult { outcome: how, duration: lasts }: CommandResult) -> Self {
        let (ended, exit, signal, reason) = match how {
            CommandOutcome::Exit(status) => match status.code() {
                Some(code) => (CommandEnd::Exit, Some(code), None, None),
                None => (CommandEnd::Signal, None, status.signal().or(Some(0)), None),
            },
            CommandOutcome::TimedOut => (CommandEnd::TimedOut, None, None, None),
            CommandOutcome::Stopped => (CommandEnd::Stopped, None, None, None),
            CommandOutcome::NotStarted(error) => {
                (CommandEnd::NotStarted, None, None, Some(error.to_string()))
            }
        };
        Self::RadioCommand { ended, exit, signal, seconds: lasts.as_secs_f64(), reason }
    }
}

impl Exec {
    /// `command` is the argument of `/bin/sh -c`.
    pub fn new(command: String, patience: Span, variables: Vec<(&'static str, String)>) -> Self {
        Self { command, timeout: patience, variables, running: None }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// End of the running command's timeout.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.running.as_ref().map(|(_, began)| *began + self.timeout)
    }

    /// Starts the command. The returned descriptor is readable when the command has ended.
    pub(super) fn start(
        &mut self,
        now: Time,
        sleep: &DormancyRequest,
    ) -> Result<BorrowedFd<'_>, CommandResult> {
        match self.spawn(sleep) {
            Ok(running) => Ok(self.running.insert((running, now)).0.as_fd()),
            Err(error) => Err(CommandResult {
                outcome: CommandOutcome::NotStarted(error),
                duration: Span::ZERO,
            }),
        }
    }

    fn spawn(&self, sleep: &DormancyRequest) -> io::Result<RunningCommand> {
        let says = io::stderr().as_fd().try_clone_to_owned()?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&self.command).stdin(Stdio::null()).stdout(says);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env("MANYWAYS_IDLE_SECONDS", format!("{:.3}", sleep.gap.as_secs_f64()));
        command.env("MANYWAYS_WAIT_SECONDS", format!("{:.3}", sleep.wait.as_secs_f64()));
        RunningCommand::start(command)
    }

    /// Returns the result of an ended command, and kills the command after the timeout.
    pub(super) fn poll(&mut self, now: Time) -> io::Result<Option<CommandResult>> {
        let Some((running, began)) = &mut self.running else { return Ok(None) };
        let lasts = now.since(*began);
        let outcome = match running.try_wait()? {
            Some(status) => CommandOutcome::Exit(status),
            None if lasts >= self.timeout => {
                running.kill()?;
                CommandOutcome::TimedOut
            }
            None => return Ok(None),
        };
        // This closes the descriptor that was readable.
        self.running = None;
        Ok(Some(CommandResult { outcome, duration: lasts }))
    }

    /// Kills the running command.
    pub(super) fn stop(self, now: Time) -> Option<CommandResult> {
        let (running, began) = self.running?;
        drop(running);
        Some(CommandResult { outcome: CommandOutcome::Stopped, duration: now.since(began) })
    }
}
