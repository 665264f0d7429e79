//! `manyways probe http`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use manyways_net::fetch::Location;
use manyways_net::path::Trust;
use manyways_net::probe::{Http, HttpVersion, Measurement, Report};
use manyways_report::number::bytes;
use manyways_report::text::table;
use manyways_unit::human;
use manyways_unit::{Size, Span};

use super::run::{Options, cell, measure_on};
use crate::failure::Failure;

/// Measure the phases of an HTTP request
///
/// Looks up the name, connects, and sends one GET request, without following a redirect.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways probe http https://example.org/
  manyways probe http https://example.org/file --max-body 10MB --http1
  manyways probe http http://192.0.2.1:8080/ --via wlan0 --json

Exit code: 0 when at least one network was measured; 1 when none was; 2 when the arguments are
invalid; 130 when a signal ends the probe.")]
pub struct Args {
    /// http:// or https:// URL
    url: String,
    /// Use HTTP/1.1
    #[arg(long, conflicts_with = "http2")]
    http1: bool,
    /// Use HTTP/2, also without TLS
    #[arg(long)]
    http2: bool,
    /// Read at most this much of the body
    #[arg(long, value_name = "BYTES", default_value = "1MB", value_parser = human::bytes)]
    max_body: Size,
    /// Maximum duration of connection and transfer
    #[arg(short = 'W', long, value_name = "TIME", default_value = "30s", value_parser = Span::from_str)]
    timeout: Span,
    /// Trust the certificates in this file instead of those of the system
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// The URL of an argument.
pub fn location(url: &str) -> Result<Location, Failure> {
    Location::parse(url).map_err(|error| Failure::usage(error.to_string()).maybe_hint(error.hint()))
}

/// The trusted certificates of an option.
pub fn trust(file: Option<&PathBuf>) -> Trust {
    file.map_or(Trust::System, |file| Trust::File(file.clone()))
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let version = match (args.http1, args.http2) {
        (true, _) => HttpVersion::Http1,
        (_, true) => HttpVersion::Http2,
        _ => HttpVersion::Any,
    };
    let probe = Http {
        version,
        max_body: args.max_body,
        timeout: args.timeout,
        trust: trust(args.cacert.as_ref()),
        ..Http::new(location(&args.url)?)
    };
    let networks = || args.options.networks_to(&probe.location);
    measure_on(&probe, &args.options, networks, |_| Ok(()), text)
}

fn text(reports: &[Report]) -> String {
    let head = [
        "NETWORK",
        "SERVER",
        "PROTOCOL",
        "STATUS",
        "LOOKUP",
        "CONNECT",
        "TLS",
        "FIRST BYTE",
        "BODY",
        "TOTAL",
        "SIZE",
    ];
    let rows: Vec<Vec<String>> = reports
        .iter()
        .filter_map(|report| {
            let Some(Measurement::Http(http)) = &report.measurement else { return None };
            let phases = &http.phases;
            let known = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
            Some(vec![
                report.context.interface.clone(),
                known(http.server.map(|server| server.to_string())),
                known(http.protocol.map(str::to_owned)),
                known(http.status.map(|status| status.to_string())),
                cell(phases.lookup),
                cell(phases.connect),
                cell(phases.tls),
                cell(phases.first_byte),
                cell(phases.body),
                cell(phases.total),
                bytes(http.body.as_bytes()),
            ])
        })
        .collect();
    if rows.is_empty() { String::new() } else { table(&head, rows) }
}
