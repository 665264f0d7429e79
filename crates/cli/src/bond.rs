//! `manyways bond`: sends the traffic of every application over every network.

mod check;
mod client;
mod event_log;
mod gateway;
pub mod keygen;
mod lend;
mod listen;
mod lookup;
mod pair;
pub mod policy;
pub mod status;
mod why;

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use manyways_net::bond::metrics;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

use crate::failure::Failure;

/// Carry every application over every network, through your own gateway.
///
/// The client intercepts connections and datagrams of applications and sends them over all networks
/// at once to the gateway, which forwards them. Applications need no change.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways bond keygen gateway.key                 (on the server; prints the public key)
  manyways bond keygen phone.key                   (on the device)
  manyways bond gateway --listen 0.0.0.0:4433 --key gateway.key --allow allow
  manyways bond client --gateway gw.example:4433 --gateway-key KEY --key phone.key

docs/bond.md explains the setup of a bond step by step.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Keygen(keygen::Args),
    Gateway(gateway::Args),
    Client(client::Args),
    Status(status::Args),
    Why(why::Args),
    Check(check::Args),
    Lend(lend::Args),
    Pair(pair::PairArgs),
    Unpair(pair::UnpairArgs),
}

impl Args {
    /// Returns the default log filter. A gateway logs its clients unless it is quiet.
    pub fn log(&self) -> &'static str {
        match &self.command {
            Command::Gateway(args) if !args.quiet => "info",
            _ => "warn",
        }
    }
}

pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Keygen(args) => keygen::run(&args),
        Command::Gateway(args) => gateway::run(args),
        Command::Client(args) => client::run(args),
        Command::Status(args) => status::run(&args),
        Command::Why(args) => why::run(args),
        Command::Check(args) => check::run(&args),
        Command::Lend(args) => lend::run(args),
        Command::Pair(args) => pair::pair(args),
        Command::Unpair(args) => pair::unpair(&args),
    }
}

/// Runs a future on this thread, with local tasks and timers.
fn run_local<R>(work: impl Future<Output = Result<R>>) -> Result<R> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot start")?;
    let done = LocalSet::new().block_on(&runtime, work);
    runtime.shutdown_background();
    done
}

/// Serves metrics, and prints the address.
async fn serve_metrics<T>(at: SocketAddr, quiet: bool, text: impl Fn() -> T + 'static) -> Result<()>
where
    T: Future<Output = String> + 'static,
{
    let bound = metrics::serve(at, text).await.map_err(|error| {
        Failure::new(format!("cannot listen on {at} for metrics: {error}")).hint(listen::hint(
            at,
            &error,
            "name another port with --metrics",
        ))
    })?;
    if !quiet {
        eprintln!("manyways: metrics on http://{bound}/metrics");
    }
    Ok(())
}

/// Returns a future that is ready after SIGINT or SIGTERM.
fn stop_signal() -> Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
