//! Runs `nft` and `ip`.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::Error;
use crate::signal;

/// Time after which a program is killed: the caller has other things to renew, and must be able to end.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs `nft` commands as one transaction.
pub(crate) fn nft(script: &str) -> Result<(), Error> {
    run("nft", &["-f", "-"], script).map(drop)
}

/// Checks whether the kernel accepts these `nft` commands, without changes.
pub(crate) fn nft_check(script: &str) -> Result<(), Error> {
    run("nft", &["-c", "-f", "-"], script).map(drop)
}

/// Returns the table without its counters, as text; `None` if it does not exist.
pub(crate) fn nft_table(name: &str) -> Result<Option<String>, Error> {
    match run("nft", &["-n", "-s", "list", "table", "inet", name], "") {
        Ok(text) => Ok(Some(text)),
        Err(Error::Refused { stderr, .. }) if stderr.contains("No such file") => Ok(None),
        Err(error) => Err(error),
    }
}

/// Runs one `ip` command; returns its output.
pub(crate) fn ip(arguments: &[&str]) -> Result<String, Error> {
    run("ip", arguments, "")
}

/// Runs `ip` commands of one family, one in each line.
pub(crate) fn ip_batch(family: &str, lines: &str) -> Result<(), Error> {
    run("ip", &[family, "-batch", "-"], lines).map(drop)
}

/// Returns the options of `ip` for the families that this kernel supports.
pub(crate) fn families() -> Vec<&'static str> {
    let has = |family: &&str| *family == "-4" || fs::exists("/proc/net/if_inet6").unwrap_or(false);
    ["-4", "-6"].into_iter().filter(has).collect()
}

fn run(program: &'static str, arguments: &[&str], input: &str) -> Result<String, Error> {
    run_within(LIMIT, program, arguments, input)
}

fn run_within(
    limit: Duration,
    program: &'static str,
    arguments: &[&str],
    input: &str,
) -> Result<String, Error> {
    let mut child = Command::new(program)
        .args(arguments)
        // Error messages are parsed in English.
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C ends a whole process group: the rules must be removed even then.
        .process_group(0)
        .spawn()
        .map_err(|error| match (error.kind(), program) {
            (ErrorKind::NotFound, "nft") => Error::NoProgram { program, package: "nftables" },
            (ErrorKind::NotFound, _) => Error::NoProgram { program, package: "iproute2" },
            _ => Error::NotStarted { program, error },
        })?;
    let (ended, end) = mpsc::channel::<()>();
    let group = -(child.id() as i32);
    let watch = move || {
        let is_late = end.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        if is_late {
            let _ = signal::send(group, libc::SIGKILL);
        }
        is_late
    };
    let watch = thread::Builder::new().name("time limit".to_owned()).spawn(watch);
    if let Some(mut stdin) = child.stdin.take() {
        // A program that stops reading prints the reason on its standard error.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output();
    drop(ended);
    let is_late = watch.is_ok_and(|watch| watch.join().unwrap_or_default());
    let output = output.map_err(|error| Error::NotStarted { program, error })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    if is_late {
        let stderr = format!("it was killed, because it took longer than {} s", limit.as_secs());
        return Err(Error::Refused { program, stderr });
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("Operation not permitted") {
        return Err(Error::NotPermitted);
    }
    // nft repeats the script after the error message.
    let stderr = stderr.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    Err(Error::Refused { program, stderr: stderr.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_killed() {
        let run = |limit, script: &str| run_within(limit, "sh", &["-c", script], "");
        assert_eq!(run(LIMIT, "echo a").unwrap(), "a\n");
        // A child of the program has its output, too.
        let late = run(Duration::from_millis(50), "sleep 600 & sleep 600").unwrap_err();
        assert!(late.to_string().contains("took longer than"), "{late}");
    }
}
