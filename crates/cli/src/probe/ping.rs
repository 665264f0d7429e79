//! `manyways probe ping`.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use manyways_net::probe::{Measurement, Ping, PingMethod, Report};
use manyways_report::number::percent;
use manyways_report::text::table;
use manyways_unit::Span;

use super::run::{Options, cell, measure};

/// Measure round trips, loss and jitter
///
/// Sends ICMP echoes, or opens TCP connections and resets them after the handshake. The packets are
/// sent at fixed intervals, whether the previous one was answered or not.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways probe ping example.org
  manyways probe ping 192.0.2.1 --tcp 443 --count 100 --interval 50ms
  manyways probe ping example.org --via wlan0 --json

An ICMP echo needs a group of net.ipv4.ping_group_range, or CAP_NET_RAW; --tcp needs neither.
Exit code: 0 when at least one network was measured, even if all packets were lost; 1 when none was;
2 when the arguments are invalid; 130 when a signal ends the probe.")]
pub struct Args {
    /// Name or address
    target: String,
    /// Open TCP connections to this port; a refusal is an answer too
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    tcp: Option<u16>,
    /// Number of packets
    #[arg(short, long, value_name = "N", default_value_t = 10)]
    count: u64,
    /// From one packet to the next
    #[arg(short, long, value_name = "TIME", default_value = "200ms", value_parser = Span::from_str)]
    interval: Span,
    /// Time to wait for an answer
    #[arg(short = 'W', long, value_name = "TIME", default_value = "2s", value_parser = Span::from_str)]
    timeout: Span,
    /// Payload bytes of an ICMP echo
    #[arg(short, long, value_name = "BYTES", default_value_t = 56)]
    size: u16,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let probe = Ping {
        method: args.tcp.map_or(PingMethod::Icmp, PingMethod::Tcp),
        count: args.count,
        interval: args.interval,
        timeout: args.timeout,
        payload: args.size,
        ..Ping::new(args.target.clone())
    };
    measure(&probe, &args.options, &[], text)
}

fn text(reports: &[Report]) -> String {
    let head = ["NETWORK", "ADDRESS", "SENT", "LOST", "MIN", "MEDIAN", "P90", "MAX", "JITTER"];
    let rows = reports.iter().filter_map(|report| match &report.measurement {
        Some(Measurement::Ping(ping)) => {
            let summary = &ping.summary;
            Some(vec![
                report.context.interface.clone(),
                ping.address.to_string(),
                summary.sent.to_string(),
                summary.loss.map_or_else(|| "–".to_owned(), percent),
                cell(summary.min),
                cell(summary.median),
                cell(summary.p90),
                cell(summary.max),
                cell(summary.jitter),
            ])
        }
        _ => None,
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() { String::new() } else { table(&head, rows) }
}
