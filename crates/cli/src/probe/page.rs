//! `manyways probe page`.

mod explain;
mod files;
mod html;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use clap::ValueHint;
use manyways_net::browser;
use manyways_net::probe::{Page, Report, WhatIf};
use manyways_unit::{Size, Span, human};

use super::http::location;
use super::run::{Options, measure_on};
use crate::failure::Failure;
use crate::report_file::{self, check_distinct, check_folder};

/// Measure when a page in a browser can be read and used, and what it waits for
///
/// Loads the page in a headless Chromium with a new profile. If this host has several networks, the
/// browser connects through a proxy on loopback that is bound to the measured one.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways probe page https://example.org/
  manyways probe page https://example.org/ --runs 5 --via wlan0 --json
  manyways probe page https://example.org/ --whatif rtt=0.5 --whatif rate=2,cpu=0.5 --whatif cached
  manyways probe page http://192.0.2.1:8080/ --har page.har --html page.html

Exit code: 0 when at least one network was measured, also if the page did not load completely; 1 when
none was; 2 when the arguments are invalid; 130 when a signal ends the probe. docs/qoe.md explains the
results.")]
pub struct Args {
    /// http:// or https:// URL
    url: String,
    /// Number of loads
    #[arg(long, value_name = "N", default_value_t = 1)]
    runs: u32,
    /// Maximum duration of a load
    #[arg(short = 'W', long, value_name = "TIME", default_value = "30s", value_parser = Span::from_str)]
    timeout: Span,
    /// Stop a load after this number of received bytes
    #[arg(long, value_name = "BYTES", default_value = "20MB", value_parser = human::bytes)]
    max_bytes: Size,
    /// Chromium or Chrome [default: chromium, chromium-browser or google-chrome in PATH]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::ExecutablePath)]
    browser: Option<PathBuf>,
    /// Write the requests of all loads into a HAR file, without bodies
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    har: Option<PathBuf>,
    /// Write the waterfall and the critical path as a page into this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
    /// Predict the load under other conditions; can be repeated: `cached`, or factors of round trips,
    /// rate and computation, such as `rtt=0.5`, `rate=2`, `cpu=0.5`, also several with commas between
    #[arg(long, value_name = "CHANGE", value_parser = WhatIf::from_str)]
    whatif: Vec<WhatIf>,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut page = Page::new(location(&args.url)?);
    page.runs = args.runs;
    page.timeout = args.timeout;
    page.max_bytes = args.max_bytes;
    if !args.options.cost {
        let found = browser::find(args.browser.as_deref());
        let found =
            found.map_err(|error| Failure::new(error.to_string()).maybe_hint(error.hint()))?;
        page.browser = Some(found);
    }
    page.what_ifs.clone_from(&args.whatif);
    let files: Vec<&Path> = [&args.har, &args.html, &args.options.parquet]
        .into_iter()
        .filter_map(|file| file.as_deref())
        .collect();
    files.iter().try_for_each(|file| check_folder(file))?;
    check_distinct(&[], &files)?;
    let location = page.location.clone();
    let networks = || args.options.networks_to(&location);
    let save = |reports: &[Report]| {
        args.har.as_deref().map(|file| files::write_har(file, reports)).transpose()?;
        let html = args.html.as_deref().map(|file| report_file::write(file, &html::html(reports)));
        html.transpose()?;
        Ok(())
    };
    measure_on(&page, &args.options, networks, save, text::text)
}
