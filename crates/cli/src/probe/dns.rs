//! `manyways probe dns`.

use std::net::IpAddr;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use manyways_model::probe::dns::Lie;
use manyways_net::probe::{Dns, DnsReport, Measurement, QueryOutcome, QueryReport, Report};
use manyways_proto::resolve::{Family, Transport};
use manyways_report::text::table;
use manyways_unit::Span;

use super::run::{Options, cell, measure};

/// Query a name server, and check whether its answers are true
///
/// Queries A and AAAA records from the first name server of each network, and at the end a name that
/// cannot exist. A truncated answer is queried again over TCP.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways probe dns example.org
  manyways probe dns example.org --tcp --server 192.0.2.53
  manyways probe dns example.org --compare-with 198.51.100.53

Exit code: 0 when at least one network was measured; 1 when none was; 2 when the arguments are
invalid; 130 when a signal ends the probe.")]
pub struct Args {
    /// Host name
    name: String,
    /// Query over TCP instead of UDP
    #[arg(long)]
    tcp: bool,
    /// Query this name server instead of the network's own
    #[arg(long, value_name = "ADDRESS")]
    server: Option<IpAddr>,
    /// Compare the answers with those of this name server
    #[arg(long, value_name = "ADDRESS")]
    compare_with: Option<IpAddr>,
    /// Number of queries of each record
    #[arg(short, long, value_name = "N", default_value_t = 3)]
    count: u64,
    /// Time to wait for an answer
    #[arg(short = 'W', long, value_name = "TIME", default_value = "5s", value_parser = Span::from_str)]
    timeout: Span,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let probe = Dns {
        transport: if args.tcp { Transport::Tcp } else { Transport::Udp },
        server: args.server,
        second: args.compare_with,
        count: args.count,
        timeout: args.timeout,
        ..Dns::new(args.name.clone())
    };
    measure(&probe, &args.options, &[], text)
}

fn text(reports: &[Report]) -> String {
    let results = || {
        reports.iter().filter_map(|report| match &report.measurement {
            Some(Measurement::Dns(dns)) => Some((report, dns)),
            _ => None,
        })
    };
    let rows: Vec<Vec<String>> = results()
        .flat_map(|(report, dns)| {
            dns.queries.iter().map(|query| row(&report.context.interface, query))
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = ["NETWORK", "SERVER", "RECORD", "OVER", "TIME", "ANSWER"];
    let mut text = table(&head, rows);
    for (report, dns) in results() {
        for sentence in sentences(dns) {
            text.push_str(&format!("{}: {sentence}.\n", report.context.interface));
        }
    }
    text
}

fn row(network: &str, query: &QueryReport) -> Vec<String> {
    let answer = match &query.outcome {
        QueryOutcome::Addresses(addresses) if addresses.is_empty() => "none".to_owned(),
        QueryOutcome::Addresses(addresses) => {
            addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ")
        }
        QueryOutcome::NoSuchName => "no such name".to_owned(),
        QueryOutcome::Truncated => "truncated".to_owned(),
        QueryOutcome::Failed(error) => error.to_string(),
        QueryOutcome::TimedOut => "no answer".to_owned(),
    };
    vec![
        network.to_owned(),
        query.server.to_string(),
        match query.family {
            Family::V4 => "A",
            Family::V6 => "AAAA",
        }
        .to_owned(),
        match query.transport {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
        }
        .to_owned(),
        cell(query.time),
        answer,
    ]
}

fn sentences(dns: &DnsReport) -> Vec<String> {
    let lie = dns.lie.map(|lie| match lie {
        Lie::RewrittenNoName(address) => {
            format!("the name server gives {address} for a name that does not exist")
        }
        Lie::Private(address) => {
            format!("the name server gives the private address {address} for a public name")
        }
        Lie::Portal(address) => {
            format!("the name server gives {address}, the address of the login page")
        }
        Lie::Denied => "the name server denies a name that exists".to_owned(),
    });
    let rewrites = dns
        .rewrites_missing_names
        .filter(|rewrites| *rewrites)
        .map(|_| "the name server gives an address for names that do not exist".to_owned());
    lie.into_iter().chain(rewrites).collect()
}
