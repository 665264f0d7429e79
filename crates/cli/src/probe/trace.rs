//! `manyways probe trace`.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use manyways_model::probe::trace::Hop;
use manyways_net::probe::{Measurement, Report, Trace, TraceMethod, TraceReport};
use manyways_report::number::{percent, span};
use manyways_report::text::table;
use manyways_unit::{Span, quantile};

use super::run::{Options, cell, measure};

/// Show the routers on the way to a target, and where delay and loss begin
///
/// Sends packets whose TTL ends at each router in turn, all on one of several equal routes. A router
/// that answers late or seldom itself does not count as the place of a delay or a loss.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways probe trace example.org
  manyways probe trace example.org --tcp 443 --rounds 100
  manyways probe trace 192.0.2.1 --udp --via wlan0 --json

It needs CAP_NET_RAW. To find a loss of 3 %, send some hundred rounds. Exit code: 0 when at least one
network was measured; 1 when none was; 2 when the arguments are invalid; 130 when a signal ends the
probe.")]
pub struct Args {
    /// Name or address
    target: String,
    /// Send datagrams instead of ICMP echoes, to port 33434 or this one
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "33434",
          conflicts_with = "tcp", value_parser = clap::value_parser!(u16).range(1..))]
    udp: Option<u16>,
    /// Send SYN packets to this port
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    tcp: Option<u16>,
    /// Number of packets to each router
    #[arg(short, long, value_name = "N", default_value_t = 10)]
    rounds: u64,
    /// Maximum number of routers
    #[arg(short, long, value_name = "N", default_value_t = 30)]
    max_hops: usize,
    /// From one packet to the next
    #[arg(short, long, value_name = "TIME", default_value = "20ms", value_parser = Span::from_str)]
    interval: Span,
    /// Time to wait for an answer
    #[arg(short = 'W', long, value_name = "TIME", default_value = "1s", value_parser = Span::from_str)]
    timeout: Span,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let method = match (args.udp, args.tcp) {
        (Some(port), _) => TraceMethod::Udp(port),
        (None, Some(port)) => TraceMethod::Tcp(port),
        (None, None) => TraceMethod::Icmp,
    };
    let probe = Trace {
        method,
        rounds: args.rounds,
        max_hops: args.max_hops,
        interval: args.interval,
        timeout: args.timeout,
        ..Trace::new(args.target.clone())
    };
    measure(&probe, &args.options, &[], text)
}

fn text(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        let Some(Measurement::Trace(trace)) = &report.measurement else { continue };
        text.push_str(&format!(
            "{} to {} ({}) by {}\n",
            report.context.interface,
            report.target,
            trace.address,
            trace.method.name()
        ));
        let head = ["HOP", "ADDRESS", "SENT", "LOST", "MIN", "MEDIAN", "MAX"];
        text.push_str(&table(&head, trace.hops.iter().enumerate().map(row)));
        text.push_str(&verdict(trace));
    }
    text
}

fn row((index, hop): (usize, &Hop)) -> Vec<String> {
    let mut sorted = hop.round_trips.clone();
    sorted.sort_unstable();
    let lost = hop.sent.saturating_sub(sorted.len() as u64) as f64 / hop.sent.max(1) as f64;
    let addresses: Vec<String> = hop.addresses.iter().map(ToString::to_string).collect();
    vec![
        (index + 1).to_string(),
        if addresses.is_empty() { "no answer".to_owned() } else { addresses.join(" ") },
        hop.sent.to_string(),
        percent(lost),
        cell(sorted.first().copied()),
        cell(quantile::of_sorted(&sorted, 0.5)),
        cell(sorted.last().copied()),
    ]
}

fn verdict(trace: &TraceReport) -> String {
    let mut text = String::new();
    if !trace.is_reached {
        text.push_str("The target does not answer.\n");
    }
    let place = |hop: usize, after: Option<usize>| match after {
        Some(after) => format!("between hops {after} and {hop}"),
        None => format!("before hop {hop}"),
    };
    if let Some(delay) = trace.delay {
        let place = place(delay.hop, delay.after);
        text.push_str(&format!("Most of the delay, {}, begins {place}.\n", span(delay.delay)));
    }
    if let Some(loss) = trace.loss {
        text.push_str(&format!(
            "A loss of {} begins {} (confidence {}).\n",
            percent(loss.loss),
            place(loss.hop, loss.after),
            percent(loss.confidence)
        ));
    }
    text
}
