//! Time, processor time and memory of processes.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command};

use manyways_sys::clock::Clock;
use manyways_sys::signal::Termination;
use manyways_sys::wait::{Outcome, Usage, wait_with_usage};
use manyways_unit::Span;

use crate::launch::{DriveError, read_all, system};

/// A process that does nothing for this time waits for input.
const IDLE: Span = Span::from_millis(300);

/// An ended process.
#[derive(Debug)]
pub struct EndedProcess {
    /// From its start to its end.
    pub seconds: f64,
    pub usage: Usage,
    /// Empty if standard output is not a pipe.
    pub stdout: String,
    /// Reason of the failure; `None` if the process succeeded.
    pub failed: Option<String>,
}

impl EndedProcess {
    /// Processor time in seconds.
    pub fn cpu(&self) -> f64 {
        self.usage.cpu.as_secs_f64()
    }

    /// Returns standard output.
    ///
    /// # Errors
    /// The reason, if the process failed.
    pub fn output(self) -> Result<String, String> {
        self.failed.map_or(Ok(self.stdout), Err)
    }
}

/// Runs a process until it ends. It is killed after `timeout`, which starts when the process closes
/// standard output, if that is a pipe.
///
/// # Errors
/// If the process cannot be started or watched, or if a signal ends the whole benchmark.
pub fn measure(
    command: &mut Command,
    timeout: Span,
    termination: Option<&Termination>,
) -> Result<EndedProcess, DriveError> {
    let clock = Clock::start();
    let mut child = command.spawn().map_err(system("start a contender"))?;
    let stdout = read_all(child.stdout.take());
    let (usage, failed) = end_of(&mut child, timeout, termination)?;
    Ok(EndedProcess { seconds: clock.now().as_secs_f64(), usage, stdout, failed })
}

/// Waits for the end of a child, which is killed after `timeout`. The second value is the reason if
/// it failed.
///
/// # Errors
/// If the child cannot be watched, or if a signal ends the whole benchmark.
pub fn end_of(
    child: &mut Child,
    timeout: Span,
    termination: Option<&Termination>,
) -> Result<(Usage, Option<String>), DriveError> {
    let (outcome, usage) =
        wait_with_usage(child, Some(timeout), termination).map_err(system("watch a contender"))?;
    let failed = match outcome {
        Outcome::Exited(status) => (!status.success()).then(|| status.to_string()),
        Outcome::TimedOut | Outcome::Signal(_) => {
            let _ = child.kill();
            let _ = child.wait();
            Some("it took too long".to_owned())
        }
    };
    match outcome {
        Outcome::Signal(ended) => Err(DriveError::Stopped(ended.signal)),
        _ => Ok((usage, failed)),
    }
}

/// Peak resident memory of a process in bytes, once the process waits for input, or after `timeout`.
pub fn idle_memory(pid: u32, timeout: Span) -> Option<u64> {
    let busy = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat.rsplit(')').next()?.split_whitespace();
        Some((fields.next()? == "R", fields.nth(10)?.to_owned(), fields.next()?.to_owned()))
    };
    let clock = Clock::start();
    let mut before = busy()?;
    while clock.now().as_secs_f64() < timeout.as_secs_f64() {
        std::thread::sleep(IDLE.into());
        let now = busy()?;
        if now == before && !now.0 {
            break;
        }
        before = now;
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1_024)
}

/// Reads a file once, so that it is in the page cache: some systems evict files that were not used
/// for a minute, and other contenders run for longer.
///
/// # Errors
/// If the file cannot be read.
pub fn into_page_cache(file: &Path) -> io::Result<()> {
    let mut bytes = vec![0; 1 << 20];
    let mut reader = File::open(file)?;
    while reader.read(&mut bytes)? > 0 {}
    Ok(())
}

/// Load average of this machine over the last minute; zero if it is unknown.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_process_is_measured_and_killed_when_its_time_is_up() {
        let run = |script: &str, timeout| {
            let mut command = Command::new("sh");
            measure(command.args(["-c", script]).stdout(Stdio::piped()), timeout, None).unwrap()
        };
        let done = run("echo out", Span::from_secs(60));
        assert!(done.usage.memory.as_bytes() > 0 && done.seconds > 0.0);
        assert_eq!(done.output().unwrap(), "out\n");
        assert!(run("exit 3", Span::from_secs(60)).output().unwrap_err().contains("status: 3"));
        let killed = run("exec >&-; exec sleep 1000", Span::from_millis(10));
        assert!(killed.output().unwrap_err().ends_with("it took too long"));
    }
}
