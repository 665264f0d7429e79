//! Benchmarks that compare manyways with other programs. All contenders run in turn in the same
//! run, and the same endpoints measure them.
//!
//! `manyways-bench bond` compares `manyways bond` with the kernel's Multipath TCP, one network and
//! direct connections. `manyways-bench gateway` measures the gateway of a bond under strangers, beside
//! a greedy client and after a restart. `manyways-bench get` compares `manyways get` with one network, fixed chunks,
//! aria2 and the kernel's Multipath TCP. `manyways-bench lend` compares `manyways bond lend` with
//! COMBINE, kibbutz and tethering. `manyways-bench flows` compares `manyways flows` with
//! tshark, tcptrace and NFStream. `manyways-bench probe` compares `manyways probe` with the settings
//! of emulated links, and with fping, iperf3, mtr and dig. `manyways-bench qoe` measures the players of
//! films and the graphs of pages, beside Sabre, dash.js, MSPlayer and the kernel's Multipath TCP.
//! `manyways-bench radio` compares policies for the radio on held-out traces. `manyways-bench replay` compares replays with what they replay,
//! and with nginx and mitmproxy. `manyways-bench steer` measures how near the choices of `manyways
//! steer` are to the best ones. `manyways-bench rattan` compares the emulator with Rattan.
//! `manyways lab bench` measures properties of manyways alone.
#![forbid(unsafe_code)]

mod bond;
mod capture;
mod figures;
mod flows;
mod gateway;
mod get;
mod keys;
mod lend;
mod options;
mod probe;
mod qoe;
mod radio;
mod rattan;
mod replay;
mod shell;
mod steer;
mod traffic;
mod virtual_tcp;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use manyways_rig::results::write;
use manyways_unit::Span;

use crate::rattan::compare::{Config, compare};
use crate::rattan::{install, table};

#[derive(Parser)]
#[command(name = "manyways-bench", about = "Set manyways beside what other people use")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bond(bond::BondArgs),
    Flows(flows::FlowsArgs),
    Gateway(gateway::GatewayArgs),
    Get(get::GetArgs),
    Lend(lend::LendArgs),
    Probe(probe::ProbeArgs),
    Qoe(qoe::QoeArgs),
    Radio(radio::RadioArgs),
    Rattan(RattanArgs),
    Replay(replay::ReplayArgs),
    #[command(hide = true)]
    Capture(capture::CaptureSpec),
    #[command(hide = true)]
    Forecast(probe::ForecastArgs),
    #[command(hide = true)]
    Forward(traffic::ForwardArgs),
    #[command(hide = true)]
    Load(traffic::LoadArgs),
    #[command(hide = true)]
    Serve(traffic::ServeArgs),
    Steer(steer::SteerArgs),
    #[command(hide = true)]
    SteerData(steer::DataArgs),
    #[command(hide = true)]
    SteerDefault(steer::DefaultArgs),
    #[command(hide = true)]
    KnownPageLoad(qoe::KnownPageLoadArgs),
    #[command(hide = true)]
    KnownPageServe(qoe::KnownPageServeArgs),
    #[command(hide = true)]
    Origin(replay::OriginArgs),
    #[command(hide = true)]
    PageOrigins(replay::PageOriginsArgs),
    #[command(hide = true)]
    Connect(replay::ConnectArgs),
    #[command(hide = true)]
    Replayed(replay::ReplayedArgs),
    #[command(hide = true)]
    Splice(traffic::SpliceArgs),
    #[command(hide = true)]
    Strangers(traffic::StrangersArgs),
    #[command(hide = true)]
    Visit(traffic::VisitArgs),
}

/// Compare the emulator with Rattan 0.1.1 (about 13 minutes, as root).
///
/// Without --rattan it builds Rattan once with `cargo install`. If Rattan cannot be built or
/// does not run, the report contains the reason, and the exit code is 0.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  manyways-bench rattan --json rattan.json")]
struct RattanArgs {
    /// Write the figures as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables as Markdown to this file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// How long each TCP measurement takes, after two seconds of warm-up.
    #[arg(long, value_name = "TIME", default_value = "2s")]
    length: Span,
    /// How often everything is measured.
    #[arg(long, value_name = "N", default_value_t = 10)]
    rounds: u32,
    /// Rattan's worker threads; its own default is 1.
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: u32,
    /// The rattan binary to use instead of building one.
    #[arg(long, value_name = "FILE")]
    rattan: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Bond(args) => bond::run(args),
        Command::Flows(args) => flows::run(args),
        Command::Gateway(args) => gateway::run(args),
        Command::Get(args) => get::run(args),
        Command::Lend(args) => lend::run(args),
        Command::Probe(args) => probe::run(args),
        Command::Qoe(args) => qoe::run(args),
        Command::Radio(args) => radio::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Rattan(args) => run(args).map(|()| ExitCode::SUCCESS),
        Command::Capture(shape) => capture::make(&shape).map(|()| ExitCode::SUCCESS),
        Command::Forecast(args) => probe::forecast(&args).map(|()| ExitCode::SUCCESS),
        Command::Forward(args) => traffic::forward(&args).map(|()| ExitCode::SUCCESS),
        Command::Load(args) => traffic::load(&args).map(|()| ExitCode::SUCCESS),
        Command::Serve(args) => traffic::serve(&args).map(|()| ExitCode::SUCCESS),
        Command::Steer(args) => steer::run(args),
        Command::SteerDefault(args) => steer::write_default(&args).map(|()| ExitCode::SUCCESS),
        Command::SteerData(args) => steer::write_data(&args).map(|()| ExitCode::SUCCESS),
        Command::Strangers(args) => traffic::strangers(&args).map(|()| ExitCode::SUCCESS),
        Command::KnownPageLoad(args) => tool(traffic::run(qoe::known_page_load(&args))),
        Command::KnownPageServe(args) => tool(qoe::known_page_serve(&args)),
        Command::Origin(args) => tool(replay::origin(&args)),
        Command::PageOrigins(args) => tool(traffic::run(replay::page_origins(&args))),
        Command::Visit(args) => traffic::visit(&args).map(|()| ExitCode::SUCCESS),
        Command::Connect(args) => tool(replay::connect(&args)),
        Command::Replayed(args) => tool(replay::replayed(&args)),
        Command::Splice(args) => traffic::splice(&args).map(|()| ExitCode::SUCCESS),
    };
    match done {
        Ok(code) => code,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The outcome of a hidden command.
fn tool(done: std::io::Result<()>) -> Result<ExitCode, String> {
    done.map(|()| ExitCode::SUCCESS).map_err(|error| error.to_string())
}

fn run(args: RattanArgs) -> Result<(), String> {
    let binary = args.rattan.map_or_else(install::binary, Ok);
    let config = Config {
        length: args.length,
        rounds: args.rounds.max(1),
        workers: args.workers.max(1),
        binary: binary.map_err(|error| error.to_string()),
    };
    let report = compare(&config, &mut |step| eprintln!("measuring: {step}"))
        .map_err(|error| error.to_string())?;
    let table = table::markdown(&report);
    if let Some(file) = &args.markdown {
        write(file, &table)?;
    }
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
        write(file, &(text + "\n"))?;
    }
    print!("{table}");
    Ok(())
}
