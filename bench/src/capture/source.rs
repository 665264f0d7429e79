//! The process that generates a capture.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use manyways_rig::launch::{DriveError, system};
use manyways_rig::measure::{EndedProcess, end_of, idle_memory};
use manyways_sys::clock::Clock;
use manyways_sys::signal::Termination;
use manyways_unit::Span;

use super::{CaptureSpec, Written, write};

/// Time limit of a process that reads or writes one capture.
pub const TIMEOUT: Span = Span::from_secs(1_800);

/// A process that writes a capture to standard output and its size to standard error, and ends when
/// its standard input is closed. It is separate because a child's peak memory starts with that of
/// its parent.
pub struct Source(Child);

impl Source {
    /// Starts the process on the first core.
    fn start(shape: &CaptureSpec, stdout: Stdio) -> Result<Self, DriveError> {
        let this = std::env::current_exe().map_err(system("tell where this is"))?;
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(this).arg("capture");
        for (option, value) in [
            ("--flows", u64::from(shape.flows)),
            ("--packets", shape.packets),
            ("--snap", shape.snap as u64),
            ("--duration", shape.duration),
        ] {
            command.args([option, &value.to_string()]);
        }
        command.args(shape.open.then_some("--open"));
        command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped());
        Ok(Self(command.spawn().map_err(system("make a capture"))?))
    }

    /// Writes a whole capture to a file.
    pub fn write(
        shape: &CaptureSpec,
        file: &Path,
        termination: &Termination,
    ) -> Result<Written, DriveError> {
        let out = File::create(file).map_err(system("make a capture"))?;
        let mut source = Self::start(shape, out.into())?;
        let written = source.written()?;
        source.end(termination)?;
        Ok(written)
    }

    /// Runs a reader on a capture that is created concurrently, so that only the processor time is
    /// comparable. The second value is the reader's peak memory when it has read everything and the
    /// capture is not closed.
    pub fn feed(
        shape: &CaptureSpec,
        mut reader: Command,
        termination: &Termination,
    ) -> Result<(EndedProcess, Option<u64>, Written), DriveError> {
        let clock = Clock::start();
        let mut source = Self::start(shape, Stdio::piped())?;
        let pipe = source.0.stdout.take().map_or_else(Stdio::null, Stdio::from);
        let mut child = reader.stdin(pipe).spawn().map_err(system("start a contender"))?;
        // The command keeps the other end of the pipe open until it is dropped.
        drop(reader);
        let written = source.written();
        let live = written.as_ref().ok().and_then(|_| idle_memory(child.id(), TIMEOUT));
        source.end(termination)?;
        let (usage, failed) = end_of(&mut child, TIMEOUT, Some(termination))?;
        let seconds = clock.now().as_secs_f64();
        Ok((EndedProcess { seconds, usage, failed, stdout: String::new() }, live, written?))
    }

    /// Waits until the capture is complete.
    fn written(&mut self) -> Result<Written, DriveError> {
        let mut said = String::new();
        if let Some(stderr) = self.0.stderr.take() {
            BufReader::new(stderr).read_line(&mut said).map_err(system("make a capture"))?;
        }
        serde_json::from_str(&said)
            .map_err(|_| DriveError::Server(format!("no capture was made: {}", said.trim())))
    }

    /// Closes the capture.
    fn end(mut self, termination: &Termination) -> Result<(), DriveError> {
        drop(self.0.stdin.take());
        end_of(&mut self.0, TIMEOUT, Some(termination)).map(|_| ())
    }
}

/// Writes a capture to standard output, in the process of a [`Source`].
pub fn make(shape: &CaptureSpec) -> Result<(), String> {
    let mut out = BufWriter::with_capacity(1 << 20, std::io::stdout().lock());
    let written = write(shape, &mut out)
        .and_then(|written| out.into_inner().map(|_| written).map_err(|error| error.into_error()))
        .map_err(|error| format!("cannot write a capture: {error}"))?;
    eprintln!("{}", serde_json::to_string(&written).map_err(|error| error.to_string())?);
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}
