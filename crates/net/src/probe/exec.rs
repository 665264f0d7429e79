//! Any program as a probe.

use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use manyways_model::probe::cost::{Plan, Transfer};
use manyways_sys::command::RunningCommand;
use manyways_sys::interface::Counters;
use manyways_unit::{Size, Span};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::contract::{InvalidParameter, Probe, ProbeError, Run, Running};
use super::report::Measurement;

/// A program that measures a network, whose traffic is that of the interface while it runs.
///
/// In its arguments, `{interface}` and `{address}` stand for the network's interface and its first
/// address; the environment has them as `MANYWAYS_INTERFACE` and `MANYWAYS_ADDRESS`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exec {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Maximum bytes that the program sends.
    pub up: Size,
    /// Maximum bytes that it receives.
    pub down: Size,
    pub duration: Span,
}

/// Result of a program.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ExecReport {
    /// `None` if a signal ended the program, or it still runs.
    pub exit_code: Option<i32>,
    /// The signal that ended the program.
    pub signal: Option<i32>,
    /// Standard output.
    pub output: String,
    /// Whether the rest of the output was dropped.
    pub is_truncated: bool,
}

impl Exec {
    /// Maximum bytes of the output that are kept.
    const MAX_OUTPUT: usize = 1 << 20;
    /// From one look at the counters to the next, and so the excess over a limit.
    const INTERVAL: Duration = Duration::from_millis(20);

    async fn measure(&self, run: &mut Run) -> Result<(), ProbeError> {
        run.own_all_traffic();
        let (mut running, output) = self
            .start(run)
            .map_err(|error| ProbeError::Command(self.command[0].clone(), error.into()))?;
        let failed = |action| {
            let path = run.path().clone();
            move |error| ProbeError::io(&path, action, error)
        };
        let (read, wait) = (failed("read the output"), failed("wait for the command"));
        let mut output = pipe::Receiver::from_owned_fd(OwnedFd::from(output)).map_err(&read)?;
        let mut ticks = interval(Self::INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut counted = run.network().traffic();
        let (mut bytes, mut report) = (Vec::new(), ExecReport::default());
        let mut buffer = vec![0; 64 << 10];
        let mut is_open = true;
        run.report(Measurement::Exec(report.clone()));
        let status = loop {
            tokio::select! {
                length = output.read(&mut buffer), if is_open => {
                    let length = length.map_err(&read)?;
                    is_open = length > 0;
                    keep(&mut bytes, &mut report, &buffer[..length]);
                    run.report(Measurement::Exec(report.clone()));
                }
                _ = ticks.tick() => {
                    count(run, &mut counted)?;
                    if let Some(status) = running.try_wait().map_err(&wait)? {
                        break status;
                    }
                }
            }
        };
        // All processes that can write are gone.
        while is_open {
            let read = timeout(Self::INTERVAL, output.read(&mut buffer)).await;
            let length = read.unwrap_or(Ok(0)).unwrap_or(0);
            is_open = length > 0;
            keep(&mut bytes, &mut report, &buffer[..length]);
        }
        (report.exit_code, report.signal) = (status.code(), ExitStatus::signal(&status));
        run.report(Measurement::Exec(report));
        count(run, &mut counted)
    }

    fn start(&self, run: &Run) -> io::Result<(RunningCommand, PipeReader)> {
        let interface = run.network().interface();
        let address = interface.addresses.first().map_or_else(String::new, ToString::to_string);
        let fill = |word: &String| {
            word.replace("{interface}", &interface.name).replace("{address}", &address)
        };
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(&self.command[0]);
        command
            .args(self.command[1..].iter().map(fill))
            .env("MANYWAYS_INTERFACE", &interface.name)
            .env("MANYWAYS_ADDRESS", &address)
            .stdin(Stdio::null())
            .stdout(writer);
        Ok((RunningCommand::start(command)?, reader))
    }
}

/// Takes the traffic since the last call from the prediction.
pub(super) fn count(run: &mut Run, counted: &mut Option<Counters>) -> Result<(), ProbeError> {
    let (Some(before), Some(now)) = (*counted, run.network().traffic()) else { return Ok(()) };
    *counted = Some(now);
    let bytes = |now: u64, before: u64| Size::from_bytes(now.saturating_sub(before));
    run.observe(
        bytes(now.sent_bytes, before.sent_bytes),
        bytes(now.received_bytes, before.received_bytes),
    )
}

fn keep(bytes: &mut Vec<u8>, report: &mut ExecReport, more: &[u8]) {
    let room = Exec::MAX_OUTPUT - bytes.len();
    bytes.extend_from_slice(&more[..more.len().min(room)]);
    report.is_truncated |= more.len() > room;
    report.output = String::from_utf8_lossy(bytes).into_owned();
}

impl ExecReport {
    /// The output if it is one JSON value.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_str(&self.output).ok().filter(|_| !self.is_truncated)
    }
}

impl Probe for Exec {
    fn name(&self) -> &'static str {
        "exec"
    }

    fn target(&self) -> String {
        self.command.join(" ")
    }

    fn plan(&self) -> Result<Plan, InvalidParameter> {
        let refuse = |text: &str| Err(InvalidParameter(text.to_owned()));
        if self.command.first().is_none_or(String::is_empty) {
            return refuse("the command is missing");
        }
        if self.duration.is_zero() {
            return refuse("the duration is zero");
        }
        let duration = self.duration;
        Ok(Plan::new(vec![Transfer { start: Span::ZERO, duration, up: self.up, down: self.down }]))
    }

    fn run<'a>(&'a self, run: &'a mut Run) -> Running<'a> {
        Box::pin(self.measure(run))
    }
}
