//! `manyways bond status`: prints the status of a running client or gateway.

mod screen;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use manyways_net::bond::control::{
    self, BondRole, ControlRequest, ControlResponse, ControlSocketError,
};

use crate::failure::Failure;
use crate::output;

/// Show the networks of a running client and the traffic on each of them.
///
/// On a terminal, the status is refreshed every second until Ctrl-C; otherwise it is printed once.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways bond status
  manyways bond status --json | jq '.paths[] | {name, rtt_seconds}'
  manyways bond status --watch --json          (a line each second)

docs/bond-status.md explains each value.")]
pub struct Args {
    /// The client's name, where it has one: `bond client --name`.
    #[arg(long, value_name = "NAME", default_value = "default")]
    name: String,
    /// Ask a gateway that runs here, not a client.
    #[arg(long)]
    gateway: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Refresh every second, even if stdout is not a terminal.
    #[arg(long, conflicts_with = "once")]
    watch: bool,
    /// Print once, even on a terminal.
    #[arg(long)]
    once: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let terminal = io::stdout().is_terminal() && !args.json;
    let again = args.watch || (terminal && !args.once);
    loop {
        let text = text(args)?;
        match terminal && again {
            true => output::screen(&text),
            false => output::text(&text),
        }
        if !again || output::is_lost() {
            break;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(args: &Args) -> Result<String> {
    let role = if args.gateway { BondRole::Gateway } else { BondRole::Client };
    let response = control::ask(role, &args.name, &ControlRequest::Status).map_err(failure)?;
    let json = |text: serde_json::Result<String>| text.map(|text| text + "\n");
    Ok(match response {
        ControlResponse::Status(status) if args.json => json(serde_json::to_string(&status))?,
        ControlResponse::Status(status) => screen::client(&status),
        ControlResponse::GatewayStatus(status) if args.json => {
            json(serde_json::to_string(&status))?
        }
        ControlResponse::GatewayStatus(status) => screen::gateway(&status),
        response => return Err(unexpected(response).into()),
    })
}

/// Converts an error of the control socket, with a hint.
pub fn failure(error: ControlSocketError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        ControlSocketError::NotRunning { role, name } if control::is_run_by_root(role, &name) => {
            failure.hint("root runs one of that name: ask as root, as with sudo")
        }
        ControlSocketError::NotRunning { role: BondRole::Client, .. } => {
            failure.hint("start one with `manyways bond client`, as the same user; --name names it")
        }
        ControlSocketError::NotRunning { .. } => failure
            .hint("start one with `manyways bond gateway`, as the same user; --name names it"),
        ControlSocketError::InvalidName(_) => failure.code(2),
        _ => failure,
    }
}

/// Converts a response that does not answer the request.
pub fn unexpected(response: ControlResponse) -> Failure {
    match response {
        ControlResponse::Refused { message, hint } => match hint {
            Some(hint) => Failure::new(message).hint(hint),
            None => Failure::new(message),
        },
        _ => Failure::new("the answer does not match the request")
            .hint("is it another version of manyways?"),
    }
}
