//! `manyways probe udp`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use manyways_net::probe::{Direction, Measurement, Report, Udp};
use manyways_report::number::percent;
use manyways_report::text::table;
use manyways_unit::Rate;

use super::run::{Options, cell, measure};
use super::server_args::ServerArgs;
use super::tcp::direction;

/// Measure loss, reordering and delay variation of UDP with a probe server
///
/// Sends datagrams at a constant rate. The receiver's clock need not agree with that of the sender.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways probe udp probe.example.org --server-key KEY --key client.key
  manyways probe udp probe.example.org --server-key KEY --key client.key --up --rate 5mbit -n 20000

Exit code: 0 when at least one network was measured; 1 when none was; 2 when the arguments are
invalid; 130 when a signal ends the probe.")]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// Send to the server
    #[arg(long)]
    up: bool,
    /// Number of datagrams
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1_000)]
    packets: u64,
    /// Bytes of UDP payload
    #[arg(short, long, value_name = "BYTES", default_value_t = 200)]
    size: u16,
    /// Rate of UDP payload
    #[arg(short, long, value_name = "RATE", default_value = "1mbit", value_parser = Rate::from_str)]
    rate: Rate,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let direction = if args.up { Direction::Up } else { Direction::Down };
    let probe = Udp {
        packets: args.packets,
        size: args.size,
        rate: args.rate,
        ..Udp::new(args.server.server()?, direction)
    };
    measure(&probe, &args.options, &[], text)
}

fn text(reports: &[Report]) -> String {
    let head = [
        "NETWORK",
        "DIRECTION",
        "SENT",
        "LOST",
        "REORDERED",
        "DUPLICATES",
        "VARIATION",
        "P90",
        "MAX",
    ];
    let rows: Vec<Vec<String>> = reports
        .iter()
        .filter_map(|report| {
            let Some(Measurement::Udp(udp)) = &report.measurement else { return None };
            let summary = &udp.summary;
            Some(vec![
                report.context.interface.clone(),
                direction(udp.direction).to_owned(),
                summary.sent.to_string(),
                summary.loss.map_or_else(|| "–".to_owned(), percent),
                summary.reordered.to_string(),
                summary.duplicates.to_string(),
                cell(summary.median_variation),
                cell(summary.p90_variation),
                cell(summary.max_variation),
            ])
        })
        .collect();
    if rows.is_empty() { String::new() } else { table(&head, rows) + &remarks(reports) }
}

/// Datagrams that came too fast for a receiver.
fn remarks(reports: &[Report]) -> String {
    let mut out = String::new();
    for report in reports {
        let Some(Measurement::Udp(udp)) = &report.measurement else { continue };
        let (name, dropped) = (&report.context.interface, udp.summary.dropped);
        let place = match udp.direction {
            Direction::Down => "this host",
            Direction::Up => "the server",
        };
        if dropped > 0 {
            let _ = writeln!(
                out,
                "{name}: {place} had no room for {dropped} datagrams, which are not lost."
            );
        }
    }
    out
}
