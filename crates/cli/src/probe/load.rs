//! `manyways probe load`.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use manyways_net::probe::{Direction, Load, Measurement, Report};
use manyways_report::number::{rate, span};
use manyways_report::text::table;
use manyways_unit::Size;
use manyways_unit::{Span, human};

use super::run::{Options, measure};
use super::server_args::ServerArgs;
use super::tcp::direction;

/// Measure how much the round trip grows under load: bufferbloat
///
/// Opens TCP connections to a probe server, first alone, and then beside a transfer in each direction.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways probe load probe.example.org --server-key KEY --key client.key
  manyways probe load probe.example.org --server-key KEY --key client.key --only up --via wlan0

Exit code: 0 when at least one network was measured; 1 when none was; 2 when the arguments are
invalid; 130 when a signal ends the probe.")]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// Load only one direction
    #[arg(long, value_name = "up|down", value_parser = one_direction)]
    only: Option<Direction>,
    /// Duration of each transfer
    #[arg(short, long, value_name = "TIME", default_value = "6s", value_parser = Span::from_str)]
    duration: Span,
    /// Maximum number of bytes of each transfer
    #[arg(long, value_name = "BYTES", default_value = "300MB", value_parser = human::bytes)]
    max: Size,
    #[command(flatten)]
    options: Options,
}

fn one_direction(text: &str) -> Result<Direction, String> {
    match text {
        "up" => Ok(Direction::Up),
        "down" => Ok(Direction::Down),
        _ => Err("`up` or `down`".to_owned()),
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut probe =
        Load { duration: args.duration, bytes: args.max, ..Load::new(args.server.server()?) };
    if let Some(only) = args.only {
        probe.directions = vec![only];
    }
    measure(&probe, &args.options, &[], text)
}

fn text(reports: &[Report]) -> String {
    let head = ["NETWORK", "LOAD", "RATE", "IDLE", "LOADED", "ROUND TRIPS A MINUTE"];
    let (mut rows, mut sentences) = (Vec::new(), String::new());
    for report in reports {
        let Some(Measurement::Load(load)) = &report.measurement else { continue };
        let name = &report.context.interface;
        for loaded in &load.directions {
            let known = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
            let summary = loaded.summary;
            rows.push(vec![
                name.clone(),
                direction(loaded.direction).to_owned(),
                known(loaded.rate.map(rate)),
                known(summary.map(|summary| span(summary.idle))),
                known(summary.map(|summary| span(summary.loaded))),
                known(summary.map(|summary| format!("{:.0}", summary.responsiveness))),
            ]);
            if let Some(delay) = summary.and_then(|summary| summary.bufferbloat()) {
                let end = match loaded.direction {
                    Direction::Up => "at this end",
                    Direction::Down => "at the other end of the access link",
                };
                sentences.push_str(&format!("{name}: bufferbloat of {} {end}.\n", span(delay)));
            }
        }
    }
    if rows.is_empty() { String::new() } else { table(&head, rows) + &sentences }
}
