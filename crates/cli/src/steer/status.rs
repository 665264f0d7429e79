//! `manyways steer status`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use manyways_net::steer::protocol::{SteerRequest, SteerResponse};
use manyways_record::document;

use super::{ask, text, unexpected};
use crate::output;

/// Show the networks, their indicators, and the choices of a running `steer run`
///
/// On a terminal, the status is refreshed every second until Ctrl-C; otherwise it is printed once.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways steer status
  manyways steer status --once
  manyways steer status --json | jq '.choices[] | {flows, networks}'

Exit code: 0; 1 when no `steer run` of this user runs here.")]
pub struct Args {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Print once, even on a terminal
    #[arg(long)]
    once: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let again = io::stdout().is_terminal() && !args.json && !args.once;
    loop {
        let status = match ask(&SteerRequest::Status)? {
            SteerResponse::Status(status) => status,
            response => return Err(unexpected(response).into()),
        };
        match (args.json, again) {
            (true, _) => output::text(&document::to_json(&*status)?),
            (false, true) => output::screen(&text::status(&status)),
            (false, false) => output::text(&text::status(&status)),
        }
        if !again || output::has_failed() {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}
