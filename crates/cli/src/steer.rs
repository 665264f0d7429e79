//! `manyways steer`: the network for each transfer.

mod simulate;
mod train;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use manyways_net::steer::input::InputError;

use crate::failure::Failure;

/// Choose the network for each transfer
///
/// A model predicts from indicators of the networks how long a transfer will take over each one. These
/// commands train a model on transfers that have ended, and compare what a model and simpler rules
/// would have chosen.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
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
    Train(train::Args),
    Simulate(simulate::Args),
}

pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
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
