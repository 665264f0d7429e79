//! `manyways probe portal`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use manyways_model::probe::portal::Verdict;
use manyways_net::probe::{Measurement, Portal, Report};
use manyways_unit::Span;

use super::http::{location, trust};
use super::run::{Options, measure};

/// Find out whether a network reaches the internet, or only its login page
///
/// Requests a page whose answer is known over plain HTTP, and connects to the same host with TLS,
/// which no login page can imitate. No service is asked except the one that you name.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways probe portal http://example.org/generate_204
  manyways probe portal http://example.org/ --status 200
  manyways probe portal http://example.org/generate_204 --compare-with 198.51.100.53

Exit code: 0 when at least one network was measured; 1 when none was; 2 when the arguments are
invalid; 130 when a signal ends the probe.")]
pub struct Args {
    /// http:// URL of a page that you know
    url: String,
    /// Its status; with 204 the page has no body
    #[arg(long, value_name = "CODE", default_value_t = 204)]
    status: u16,
    /// Compare the addresses of the host with those of this name server
    #[arg(long, value_name = "ADDRESS")]
    compare_with: Option<IpAddr>,
    /// Maximum duration of each connection
    #[arg(short = 'W', long, value_name = "TIME", default_value = "10s", value_parser = Span::from_str)]
    timeout: Span,
    /// Trust the certificates in this file instead of those of the system
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let probe = Portal {
        status: args.status,
        second: args.compare_with,
        timeout: args.timeout,
        trust: trust(args.cacert.as_ref()),
        ..Portal::new(location(&args.url)?)
    };
    measure(&probe, &args.options, &[], text)
}

fn text(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        let Some(Measurement::Portal(portal)) = &report.measurement else { continue };
        let sentence = match &portal.verdict {
            Some(Verdict::Validated) => "reaches the internet".to_owned(),
            Some(Verdict::Captive { login: Some(login) }) => {
                format!("leads to a login page: {login}")
            }
            Some(Verdict::Captive { login: None }) => "leads to a login page".to_owned(),
            Some(Verdict::DnsLies) => {
                "has a name server with wrong answers, and reaches nothing else".to_owned()
            }
            Some(Verdict::NoInternet) => "does not reach the internet".to_owned(),
            None => "was not judged".to_owned(),
        };
        text.push_str(&format!("{} {sentence}.\n", report.context.interface));
    }
    text
}
