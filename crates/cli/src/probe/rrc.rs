//! `manyways probe rrc`: `manyways radio probe` as a probe.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use clap::ValueHint;
use manyways_model::radio::gap_sweep::GapSweep;
use manyways_net::probe::{Measurement, Report, Rrc};
use manyways_net::radio::probe::host_and_port;
use manyways_report::text::table;
use manyways_unit::Span;

use super::run::{Options, measure};
use crate::failure::Failure;
use crate::radio::sentences;

/// Measure the timers of the radio of a cellular network
///
/// Sends a small packet after gaps of different lengths, as `manyways radio probe` does, within a
/// predicted cost. Ctrl-Z pauses the probe; --resume continues a file after its end.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways probe rrc example.org --via wwan0
  manyways probe rrc 192.0.2.1:443 --via wwan0 --to 16s --step 250ms --cost
  manyways probe rrc example.org --via wwan0 --resume

Exit code: 0 when at least one network was measured; 1 when none was; 2 when the arguments are
invalid; 130 when a signal ends the probe.")]
pub struct Args {
    /// Name or address: probed by ICMP echo, else by TCP to port 443 or 80; with a port, by TCP
    #[arg(value_name = "HOST[:PORT]")]
    target: String,
    /// Shortest gap
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = Span::from_str)]
    from: Span,
    /// Longest gap
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = Span::from_str)]
    to: Span,
    /// Step between gap lengths, and so the resolution of timers
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = Span::from_str)]
    step: Span,
    /// Probes of each gap length
    #[arg(long, value_name = "N", default_value_t = GapSweep::DEFAULT.rounds,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Seed of the order
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// File of the results [default: radio-probe-IFACE.csv]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Continue an existing file
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let (host, port) = host_and_port(&args.target).map_err(|_| {
        Failure::usage(format!("`{}` has no port after the colon", args.target))
            .hint("write it like example.org, 192.0.2.1:443 or [2001:db8::1]:443")
    })?;
    let probe = Rrc {
        port,
        sweep: GapSweep { min: args.from, max: args.to, step: args.step, rounds: args.rounds },
        seed: args.seed,
        output: args.output.clone(),
        is_resumed: args.resume,
        ..Rrc::new(host)
    };
    measure(&probe, &args.options, &[], text)
}

fn text(reports: &[Report]) -> String {
    let head = ["NETWORK", "METHOD", "GAPS", "MEASURED", "RESTARTED", "LOST", "FILE"];
    let (mut rows, mut found) = (Vec::new(), String::new());
    for report in reports {
        let Some(Measurement::Rrc(rrc)) = &report.measurement else { continue };
        rows.push(vec![
            report.context.interface.clone(),
            rrc.method.clone(),
            rrc.planned.to_string(),
            rrc.answered.to_string(),
            rrc.disturbed.to_string(),
            rrc.lost.to_string(),
            rrc.file.display().to_string(),
        ]);
        match &rrc.timers {
            Some(Ok(timers)) => found.push_str(&sentences(timers)),
            Some(Err(error)) => found.push_str(&format!("No timer was found: {error}.\n")),
            None => {}
        }
    }
    if rows.is_empty() { String::new() } else { table(&head, rows) + &found }
}
