//! `manyways probe tcp`.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use manyways_net::probe::{Direction, Measurement, Report, Tcp};
use manyways_report::number::{bytes, percent, rate, span};
use manyways_report::text::table;
use manyways_unit::human;
use manyways_unit::{Size, Span};

use super::run::{Options, measure};
use super::server_args::ServerArgs;

/// Measure the throughput of a TCP connection with a probe server
///
/// The rate is that without slow start. Without --full, the transfer ends as soon as the rate is known
/// with an error of 3 %.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways probe tcp probe.example.org --server-key KEY --key client.key
  manyways probe tcp probe.example.org --server-key KEY --key client.key --up --full
  manyways probe tcp 192.0.2.1:7464 --server-key KEY --key client.key --via wlan0 --max 20MB --json

Exit code: 0 when at least one network was measured; 1 when none was; 2 when the arguments are
invalid; 130 when a signal ends the probe.")]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// Measure the rate to the server
    #[arg(long)]
    up: bool,
    /// Transfer for the whole duration
    #[arg(long)]
    full: bool,
    /// Maximum duration
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = Span::from_str)]
    duration: Span,
    /// Maximum number of bytes
    #[arg(long, value_name = "BYTES", default_value = "300MB", value_parser = human::bytes)]
    max: Size,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let direction = if args.up { Direction::Up } else { Direction::Down };
    let probe = Tcp {
        duration: args.duration,
        is_full: args.full,
        bytes: args.max,
        ..Tcp::new(args.server.server()?, direction)
    };
    measure(&probe, &args.options, &[], text)
}

fn text(reports: &[Report]) -> String {
    let head = [
        "NETWORK",
        "DIRECTION",
        "RATE",
        "ERROR",
        "SLOW START",
        "BYTES",
        "DURATION",
        "RETRANSMITTED",
    ];
    let rows: Vec<Vec<String>> = reports
        .iter()
        .filter_map(|report| {
            let Some(Measurement::Tcp(tcp)) = &report.measurement else { return None };
            let known = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
            let retransmitted = tcp.samples.last().map(|sample| sample.retransmitted.to_string());
            Some(vec![
                report.context.interface.clone(),
                direction(tcp.direction).to_owned(),
                known(tcp.estimate.map(|estimate| rate(estimate.rate))),
                known(tcp.estimate.and_then(|estimate| estimate.error).map(percent)),
                known(tcp.estimate.map(|estimate| span(estimate.ramp))),
                bytes(tcp.bytes.as_bytes()),
                span(tcp.duration),
                known(retransmitted),
            ])
        })
        .collect();
    if rows.is_empty() { String::new() } else { table(&head, rows) }
}

pub fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up",
        Direction::Down => "down",
    }
}
