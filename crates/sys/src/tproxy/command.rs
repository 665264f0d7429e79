//! Runs `nft` and `ip`.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use super::Error;

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
    if let Some(mut stdin) = child.stdin.take() {
        // A program that stops reading prints the reason on its standard error.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| Error::NotStarted { program, error })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("Operation not permitted") {
        return Err(Error::NotPermitted);
    }
    // nft repeats the script after the error message.
    let stderr = stderr.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    Err(Error::Refused { program, stderr: stderr.trim().to_owned() })
}
