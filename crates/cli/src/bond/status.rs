//! `manyways bond status`: what a running client or gateway is doing.

mod screen;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use manyways_net::bond::control::{self, Answer, ControlError, End, Request};

use crate::failure::Failure;
use crate::output;

/// Show what a running client is doing: its networks, and what goes over which of them.
///
/// On a terminal it is shown again each second until Ctrl-C; elsewhere once.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways bond status
  manyways bond status --json | jq '.paths[] | {name, rtt_seconds}'
  manyways bond status --watch --json          (a line each second)

docs/bond-status.md says what each value means.")]
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
    /// Again each second, also where stdout is no terminal.
    #[arg(long, conflicts_with = "once")]
    watch: bool,
    /// Once, also on a terminal.
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
    let end = if args.gateway { End::Gateway } else { End::Client };
    let answer = control::ask(end, &args.name, &Request::Status).map_err(failure)?;
    let json = |text: serde_json::Result<String>| text.map(|text| text + "\n");
    Ok(match answer {
        Answer::Status(status) if args.json => json(serde_json::to_string(&status))?,
        Answer::Status(status) => screen::client(&status),
        Answer::GatewayStatus(status) if args.json => json(serde_json::to_string(&status))?,
        Answer::GatewayStatus(status) => screen::gateway(&status),
        answer => return Err(unexpected(answer).into()),
    })
}

/// What a user hears where nobody answers.
pub fn failure(error: ControlError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        ControlError::Nobody { end, name } if control::is_roots(end, &name) => {
            failure.hint("root runs one of that name: ask as root, as with sudo")
        }
        ControlError::Nobody { end: End::Client, .. } => {
            failure.hint("start one with `manyways bond client`, as the same user; --name names it")
        }
        ControlError::Nobody { .. } => failure
            .hint("start one with `manyways bond gateway`, as the same user; --name names it"),
        ControlError::Name(_) => failure.code(2),
        _ => failure,
    }
}

/// What a user hears where something else was answered than was asked.
pub fn unexpected(answer: Answer) -> Failure {
    match answer {
        Answer::Refused { sentence, hint } => match hint {
            Some(hint) => Failure::new(sentence).hint(hint),
            None => Failure::new(sentence),
        },
        _ => Failure::new("the answer is not what was asked for")
            .hint("is it another version of manyways?"),
    }
}
