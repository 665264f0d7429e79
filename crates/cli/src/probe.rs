//! `manyways probe`: measurements of networks.

mod compare;
mod dns;
mod exec;
pub mod http;
mod load;
mod page;
mod ping;
mod portal;
mod report;
mod rrc;
mod run;
mod server;
mod server_args;
mod tcp;
mod trace;
mod udp;
pub mod video;

use std::process::ExitCode;

use anyhow::Result;

/// Measure the worth of each network, and find its faults
///
/// Every probe runs on each network of this host that can be used, one network after the other, and
/// never exceeds the cost that --cost predicts. What it measured until a data limit, a signal or a
/// failure remains.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways probe ping example.org
  manyways probe dns example.org --compare-with 192.0.2.53
  manyways probe trace example.org --via wlan0 --rounds 100
  manyways probe http https://example.org/ --json
  manyways probe page https://example.org/ --html page.html
  manyways probe portal http://example.org/generate_204
  manyways probe load probe.example.org --server-key KEY --key client.key

Exit code: 0 when at least one network was measured; 1 when none was; 2 when the arguments are
invalid; 130 when a signal ends the probe. The JSON is documented in docs/probe.md.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Ping(ping::Args),
    Dns(dns::Args),
    Trace(trace::Args),
    Http(http::Args),
    Portal(portal::Args),
    Tcp(tcp::Args),
    Udp(udp::Args),
    Video(Box<video::Args>),
    Load(load::Args),
    Page(page::Args),
    Compare(compare::Args),
    Report(report::Args),
    Rrc(rrc::Args),
    Exec(exec::Args),
    Server(server::Args),
}

pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Ping(args) => ping::run(&args),
        Command::Dns(args) => dns::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Http(args) => http::run(&args),
        Command::Portal(args) => portal::run(&args),
        Command::Tcp(args) => tcp::run(&args),
        Command::Udp(args) => udp::run(&args),
        Command::Video(args) => video::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Page(args) => page::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Rrc(args) => rrc::run(&args),
        Command::Exec(args) => exec::run(&args),
        Command::Server(args) => server::run(&args),
    }
}
