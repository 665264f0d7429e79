//! `manyways radio`: radio energy and policies.

mod check;
mod control;
mod energy;
mod generate;
mod infer;
pub mod named_profile;
mod options;
mod probe;
mod profiles;
mod simulate;
mod traces;
mod whatif;

use std::process::ExitCode;

use anyhow::Result;

pub use self::infer::sentences;

/// Compute radio energy of packet traces, and compare policies
///
/// After the last packet a radio stays connected for seconds. This tail often takes more energy
/// than all packets together. These commands compute the energy of a packet trace on a network, the
/// energy of another traffic pattern, and the savings of policies for the radio's idle state.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways radio energy phone.pcap --profile lte --battery 4000mAh --report phone.html
  manyways radio whatif phone.pcap --profile lte --app .example.org --batch 5min
  manyways radio simulate --app mixed-day --seed 1-20
  manyways radio profiles
  manyways radio control --interface wwan0 --profile verizon-lte
  manyways radio probe --interface wwan0 --target example.org

Exit code: 0; 1 when it fails; 2 when the arguments are invalid.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Energy(Box<energy::Args>),
    Whatif(whatif::Args),
    Simulate(Box<simulate::Args>),
    Generate(generate::Args),
    Profiles(profiles::Args),
    Check(check::Args),
    Infer(infer::Args),
    Probe(probe::Args),
    Control(control::Args),
}

pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Energy(args) => energy::run(&args),
        Command::Whatif(args) => whatif::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Profiles(args) => profiles::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Infer(args) => infer::run(&args),
        Command::Control(args) => control::run(&args),
        Command::Probe(args) => probe::run(args),
    }
}

fn print(text: &str) -> Result<ExitCode> {
    crate::output::text(text);
    Ok(ExitCode::SUCCESS)
}
