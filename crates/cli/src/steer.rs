//! `manyways steer`: the network for each transfer.

mod prefer;
mod run;
mod simulate;
mod status;
mod text;
mod train;
mod why;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use manyways_model::select::Goal;
use manyways_net::control::{self, ControlSocketError};
use manyways_net::steer::input::{InputError, read_goal};
use manyways_net::steer::protocol::{SERVICE, SteerRequest, SteerResponse};
use manyways_unit::human::quoted;
use manyways_unit::nearest::nearest;

use crate::failure::Failure;

/// The goals that have names.
const GOALS: [(&str, Goal); 3] =
    [("fast", Goal::FAST), ("balanced", Goal::BALANCED), ("thrifty", Goal::THRIFTY)];

/// Choose the network for each transfer
///
/// A model predicts from indicators of the networks how long a transfer will take over each one. `run`
/// chooses networks while it runs, and `status`, `why` and `prefer` talk to it; `train` makes a model of
/// transfers that have ended, and `simulate` compares it with simpler rules.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo manyways steer run --goal balanced
  sudo manyways steer why www.example.com
  sudo manyways steer prefer lte --for 10m
  manyways steer simulate transfers.csv
  manyways steer train transfers.csv --output model.json
  manyways steer simulate later.csv --model model.json --report rules.html

Exit code: 0; 1 when it fails; 2 when the arguments are invalid. The table, the JSON and the goals are
documented in docs/steer.md.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Run(Box<run::Args>),
    Status(status::Args),
    Why(why::Args),
    Prefer(prefer::Args),
    Train(train::Args),
    Simulate(simulate::Args),
}

pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Run(args) => run::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Why(args) => why::run(args),
        Command::Prefer(args) => prefer::run(args),
        Command::Train(args) => train::run(&args),
        Command::Simulate(args) => simulate::run(&args),
    }
}

/// The name of a file for output; its folder is not the reader's concern.
fn file_name(file: &Path) -> String {
    file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}

fn input_failure(error: InputError) -> Failure {
    let hint = match &error {
        InputError::Read { .. } => None,
        InputError::Table { .. } => {
            Some("the columns of a table of transfers are in docs/steer.md".to_owned())
        }
        InputError::Model { .. } => {
            Some("`manyways steer train TABLE --output MODEL` makes a model".to_owned())
        }
        InputError::Goal { error, .. } => error.hint.clone(),
        _ => None,
    };
    match error {
        InputError::Read { .. } => Failure::new(error.to_string()).hint("name a file that exists"),
        _ => Failure::usage(error.to_string()).maybe_hint(hint),
    }
}

/// The goal of this name or in this file.
fn goal(name: &str) -> Result<Goal, Failure> {
    named_goal(name).map(|(goal, _)| goal)
}

/// The goal of this name or in this file, and the text of the file.
fn named_goal(name: &str) -> Result<(Goal, Option<String>), Failure> {
    if let Some(goal) = Goal::named(name) {
        return Ok((goal, None));
    }
    let path = Path::new(name);
    if !path.exists() && !name.contains('/') && path.extension().is_none() {
        let names = GOALS.map(|(name, _)| name);
        let hint = match nearest(name, names) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => format!("name a file, or one of {}", names.join(", ")),
        };
        return Failure::refuse(format!("there is no goal `{}`", quoted(name)), hint);
    }
    let (goal, text) = read_goal(path).map_err(input_failure)?;
    Ok((goal, Some(text)))
}

/// Sends a request to the running `steer run` of this user.
fn ask(request: &SteerRequest) -> Result<SteerResponse, Failure> {
    control::ask(&SERVICE, request).map_err(|error| {
        let failure = Failure::new(error.to_string());
        match error {
            ControlSocketError::NotRunning(service) if control::is_run_by_root(&service) => {
                failure.hint("root runs it: run this command as root, for example with sudo")
            }
            ControlSocketError::NotRunning(_) => {
                failure.hint("start it with `sudo manyways steer run`")
            }
            _ => failure,
        }
    })
}

/// Converts a response that does not answer the request.
fn unexpected(response: SteerResponse) -> Failure {
    match response {
        SteerResponse::Refused { message, hint } => Failure::new(message).maybe_hint(hint),
        _ => Failure::new("the answer does not match the request")
            .hint("does the other process run another version of manyways?"),
    }
}
