//! `manyways bond status`: prints the status of a running client or gateway.

mod screen;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use manyways_net::bond::control::{BondRole, ControlRequest, ControlResponse};
use manyways_net::control::{self, ControlSocketError};
use manyways_record::document;

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
    /// Name of the client or gateway, as given with --name.
    #[arg(long, value_name = "NAME", default_value = "default")]
    name: String,
    /// Show a gateway that runs on this host, not a client.
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
        if !again || output::has_failed() {
            break;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(args: &Args) -> Result<String> {
    let role = if args.gateway { BondRole::Gateway } else { BondRole::Client };
    Ok(match ask(role, &args.name, &ControlRequest::Status)? {
        ControlResponse::Status(status) if args.json => document::to_json(&*status)?,
        ControlResponse::Status(status) => screen::client(&status),
        ControlResponse::GatewayStatus(status) if args.json => document::to_json(&status)?,
        ControlResponse::GatewayStatus(status) => screen::gateway(&status),
        response => return Err(unexpected(response).into()),
    })
}

/// Sends a request to the client or gateway with this name.
pub fn ask(
    role: BondRole,
    name: &str,
    request: &ControlRequest,
) -> Result<ControlResponse, Failure> {
    let response = role.service(name).and_then(|service| control::ask(&service, request));
    response.map_err(|error| failure(role, error))
}

/// Converts an error of the control socket of a client or gateway, with a hint.
pub fn failure(role: BondRole, error: ControlSocketError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        ControlSocketError::NotRunning(service) if control::is_run_by_root(&service) => {
            failure.hint("root runs a process with this name: run this command as root, for example with sudo")
        }
        ControlSocketError::NotRunning(_) => failure.hint(match role {
            BondRole::Client => {
                "start a client with `manyways bond client`, as the same user; --name selects another client"
            }
            BondRole::Gateway => {
                "start a gateway with `manyways bond gateway`, as the same user; --name selects another gateway"
            }
        }),
        ControlSocketError::InvalidName(_) => failure.code(2),
        _ => failure,
    }
}

/// Converts a response that does not answer the request.
pub fn unexpected(response: ControlResponse) -> Failure {
    match response {
        ControlResponse::Refused { message, hint } => Failure::new(message).maybe_hint(hint),
        _ => Failure::new("the answer does not match the request")
            .hint("does the other process run another version of manyways?"),
    }
}
