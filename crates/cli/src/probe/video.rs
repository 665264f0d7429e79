//! `manyways probe video`.

mod make;

use std::process::ExitCode;

use anyhow::Result;

/// Make films for measurements of players
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Make(make::Args),
}

pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Make(args) => make::run(args),
    }
}
