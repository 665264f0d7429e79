//! The `manyways` command: parsing and output. Each subcommand is a separate module.
#![forbid(unsafe_code)]
// Also forbids the macros of the standard library by their full path, which `output` cannot hide.
#![deny(clippy::print_stdout, clippy::print_stderr)]

// First, because its macros apply only to the following modules.
#[macro_use]
mod output;

#[cfg(feature = "bond")]
mod bond;
#[cfg(feature = "demo")]
mod demo;
mod failure;
#[cfg(feature = "flows")]
mod flows;
#[cfg(feature = "get")]
mod get;
mod help;
#[cfg(feature = "lab")]
mod lab;
mod paths;
#[cfg(feature = "probe")]
mod probe;
#[cfg(feature = "radio")]
mod radio;
#[cfg(feature = "record")]
mod record;
#[cfg(feature = "replay")]
mod replay;
#[cfg(feature = "report")]
mod report_file;
mod shell_help;
#[cfg(feature = "steer")]
mod steer;
#[cfg(any(feature = "flows", feature = "radio"))]
mod watch;

use std::process::ExitCode;

use clap::{FromArgMatches, Parser, Subcommand};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::debug_fn;

use failure::Failure;

/// The flow analysis allocates millions of flows and frees them on other cores. The system's
/// allocator takes a tenth of the time there.
#[cfg(feature = "fast-alloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Make applications run well over every network a device has, and prove that it did.
#[derive(Parser)]
#[command(name = "manyways", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[cfg(feature = "get")]
    Get(Box<get::Args>),
    #[cfg(feature = "bond")]
    Bond(Box<bond::Args>),
    #[cfg(feature = "flows")]
    Flows(flows::Args),
    #[cfg(feature = "radio")]
    Radio(radio::Args),
    Paths(paths::Args),
    #[cfg(feature = "probe")]
    Probe(Box<probe::Args>),
    #[cfg(feature = "steer")]
    Steer(Box<steer::Args>),
    #[cfg(feature = "record")]
    Record(Box<record::Args>),
    #[cfg(feature = "replay")]
    Replay(Box<replay::Args>),
    #[cfg(feature = "demo")]
    Demo(demo::Args),
    #[cfg(feature = "lab")]
    Lab(lab::Args),
    Completions(shell_help::CompletionsArgs),
    Man(shell_help::ManArgs),
}

impl Command {
    /// Default log filter of the command.
    fn log(&self) -> &'static str {
        match self {
            #[cfg(feature = "bond")]
            Self::Bond(args) => args.log(),
            _ => "warn",
        }
    }
}

fn main() -> ExitCode {
    let mut command = help::command();
    let cli = command
        .try_get_matches_from_mut(std::env::args_os())
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match cli.map_err(|answer| answer.format(&mut command)) {
        Ok(cli) => cli,
        Err(answer) => return output::print_clap_message(&answer),
    };
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("MANYWAYS_LOG")
                .unwrap_or_else(|_| cli.command.log().into()),
        )
        .fmt_fields(debug_fn(output::log_field).delimited(" "))
        .with_writer(|| output::Log)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_target(false)
        .without_time()
        .init();
    let done = match cli.command {
        #[cfg(feature = "get")]
        Command::Get(args) => get::run(*args),
        #[cfg(feature = "bond")]
        Command::Bond(args) => bond::run(*args),
        #[cfg(feature = "flows")]
        Command::Flows(args) => flows::run(args),
        #[cfg(feature = "radio")]
        Command::Radio(args) => radio::run(args),
        Command::Paths(args) => paths::run(args),
        #[cfg(feature = "probe")]
        Command::Probe(args) => probe::run(*args),
        #[cfg(feature = "steer")]
        Command::Steer(args) => steer::run(*args),
        #[cfg(feature = "record")]
        Command::Record(args) => record::run(*args),
        #[cfg(feature = "replay")]
        Command::Replay(args) => replay::run(*args),
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::run(args),
        #[cfg(feature = "lab")]
        Command::Lab(args) => lab::run(args),
        Command::Completions(args) => shell_help::completions(args),
        Command::Man(args) => shell_help::man(args),
    };
    match done {
        Ok(code) => output::finish(code),
        Err(error) => Failure::from(error).report(),
    }
}
