//! A command of the user that prints indicators.

pub(super) mod lines;

use std::io::{self, PipeReader};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use manyways_sys::command::RunningCommand;
use manyways_unit::human::quoted;
use thiserror::Error;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::unix::pipe;
use tokio::select;
use tokio::time::timeout;

use self::lines::{LineLimit, Lines, WrongLine, WrongLineReason};
use super::backoff::Backoff;
use super::ledger::Scope;
use super::{Feed, Ticker};

const BUFFER: usize = 16 << 10;
/// Time for output that is still on its way.
const LAST_OUTPUT: Duration = Duration::from_millis(100);

/// Why a command no longer reports.
#[derive(Debug, Error)]
enum CommandEnd {
    #[error("it cannot be started: {0}")]
    Start(#[source] io::Error),
    #[error("its output cannot be read: {0}")]
    Read(#[source] io::Error),
    #[error("it closed its output")]
    Closed,
    #[error("it ended with {0}")]
    Ended(ExitStatus),
}

/// Runs the command, and again after it has ended.
pub(super) async fn run(
    feed: Feed,
    mut ticker: Ticker,
    command: Vec<String>,
    network: Option<String>,
) {
    let name = quoted(command.first().map_or("", String::as_str));
    let mut backoff = Backoff::new();
    loop {
        let began = feed.now();
        let end = select! {
            end = follow(&feed, &command, network.clone()) => end,
            () = ticker.end() => return,
        };
        let wait = backoff.on_failure(feed.now().since(began));
        feed.fail(&format!("the command `{name}` is started again in {wait}, because {end}"));
        if !ticker.wait(wait).await {
            return;
        }
    }
}

/// Reports lines until the command ends. Kills the rest of its process group, also if it is dropped.
async fn follow(feed: &Feed, command: &[String], network: Option<String>) -> CommandEnd {
    // On this thread, not on one for blocking calls: the kernel kills the command when its thread ends.
    let (mut running, output) = match start(command) {
        Ok(started) => started,
        Err(error) => return CommandEnd::Start(error),
    };
    let prepared = running.as_fd().try_clone_to_owned().and_then(|process| {
        #[expect(deprecated, reason = "what replaces it is unsafe, and this crate has none")]
        let process = AsyncFd::with_interest(process, Interest::READABLE)?;
        Ok((process, pipe::Receiver::from_owned_fd(OwnedFd::from(output))?))
    });
    let (process, mut output) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return CommandEnd::Read(error),
    };
    let mut lines = (Lines::new(network), LineLimit::default());
    let mut buffer = vec![0; BUFFER];
    loop {
        select! {
            length = output.read(&mut buffer) => match length {
                Ok(0) => break,
                Ok(length) => report(feed, &mut lines, &buffer[..length]),
                Err(error) => return CommandEnd::Read(error),
            },
            _ = process.readable() => break,
        }
    }
    // A program closes its output just before it has ended.
    let _ = timeout(LAST_OUTPUT, process.readable()).await;
    let status = running.try_wait();
    // The last lines, unless a process of another group keeps the output open.
    let rest = async {
        while let Ok(length @ 1..) = output.read(&mut buffer).await {
            report(feed, &mut lines, &buffer[..length]);
        }
    };
    let _ = timeout(LAST_OUTPUT, rest).await;
    match status {
        Ok(Some(status)) => CommandEnd::Ended(status),
        _ => CommandEnd::Closed,
    }
}

fn start(command: &[String]) -> io::Result<(RunningCommand, PipeReader)> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(writer);
    Ok((RunningCommand::start(command)?, reader))
}

fn report(feed: &Feed, (lines, limit): &mut (Lines, LineLimit), bytes: &[u8]) {
    for line in lines.on_bytes(bytes) {
        let wrong = |number| WrongLine { number, reason: WrongLineReason::TooMany };
        let line = if limit.allows(feed.now()) { line } else { Err(wrong(lines.count())) };
        match line {
            Ok(line) => feed.report(feed.now(), &line.network, &line.readings, Scope::Partial),
            Err(wrong) => feed.drop_one(&wrong.to_string()),
        }
    }
}
