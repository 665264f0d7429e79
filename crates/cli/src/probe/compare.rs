//! `manyways probe compare`.

use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use manyways_model::probe::compare::{Comparison, Purpose, Reason};
use manyways_net::probe::{
    self, Compare, CompareDocument, CompareReport, ComparedNetwork, Network, PURPOSES, Series,
};
use manyways_record::document;
use manyways_report::number::{bytes, percent, rate, seconds};
use manyways_report::text::table;
use manyways_unit::{Rate, Size, Span, human};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::run::{EndSignals, Options, block_on, cell, cost_text, remarks, spinner};
use super::server_args::ServerArgs;
use crate::failure::Failure;
use crate::report_file::check_folder;

/// Compare the networks of this host, and name the best one for each purpose
///
/// Measures on each network round trips and 1 MB down and up, one network after the other, and then
/// the downloads together, as the crowd app of Deng et al. did. With --every, repeats that until the
/// data limit or a signal, and writes a Parquet file that `manyways probe report` draws.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways probe compare probe.example.org --server-key KEY --key client.key
  manyways probe compare probe.example.org --server-key KEY --key client.key --via wlan0 --via wwan0 --json
  manyways probe compare probe.example.org --server-key KEY --key client.key --every 10m --cap 50MB \\
    --parquet train.parquet

An existing file of --parquet is continued; its bytes count for --cap.
Exit code: 0 when all networks were measured; 1 when one was not; 2 when the arguments are invalid;
130 when a signal ends the comparison.")]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// Bytes of each transfer
    #[arg(long, value_name = "BYTES", default_value = "1MB", value_parser = human::bytes)]
    bytes: Size,
    /// Number of round trips
    #[arg(long, value_name = "N", default_value_t = 10)]
    pings: u64,
    /// Maximum duration of each transfer
    #[arg(short, long, value_name = "TIME", default_value = "30s", value_parser = Span::from_str)]
    duration: Span,
    /// Name the best networks for transfers and calls that begin this long after the measurement
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = Span::from_str)]
    after: Span,
    /// Repeat the comparison, from the start of one to that of the next
    #[arg(long, value_name = "TIME", value_parser = Span::from_str)]
    every: Option<Span>,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let compare = Compare {
        bytes: args.bytes,
        pings: args.pings,
        duration: args.duration,
        after: args.after,
        ..Compare::new(args.server.server()?)
    };
    let target = compare.server.name();
    let settings = args.options.settings()?;
    let invalid = |error: probe::InvalidParameter| Failure::usage(error.to_string());
    let cost = compare.cost(2, &settings).map_err(invalid)?;
    if args.options.cost {
        print!("{}", cost_text(&cost));
        return Ok(ExitCode::SUCCESS);
    }
    let file = args.options.parquet.as_deref();
    if args.every.is_some() && file.is_none() {
        let hint = "name it with --parquet FILE";
        return Failure::refuse("--every needs a file for the results", hint);
    }
    if args.every.is_some_and(Span::is_zero) {
        return Failure::refuse("the interval of --every is zero", "use an interval like 10m");
    }
    file.map(check_folder).transpose()?;
    let series = file.map(Series::open).transpose();
    let series = series.map_err(|error| {
        Failure::new(error.to_string()).hint("name a new file, or one of this command")
    })?;
    let networks = args.options.networks(&[])?;
    let is_series = args.every.is_some();
    let rounds = Rounds { compare, settings, networks, series, every: args.every };
    let (report, is_stopped) = block_on(rounds.run(is_series && !args.options.json))??;
    match args.options.json {
        true => {
            let document = CompareDocument::new(target, &report);
            print!("{}", document::to_json(&document)?);
        }
        false if is_series => {}
        false => print!("{}", text(&report)),
    }
    Ok(match (is_stopped, report.is_complete) {
        (true, _) => ExitCode::from(130),
        (false, is_complete) => ExitCode::from(u8::from(!is_complete)),
    })
}

/// Comparisons, one or many.
struct Rounds {
    compare: Compare,
    settings: probe::Options,
    networks: Vec<Network>,
    series: Option<Series>,
    every: Option<Span>,
}

impl Rounds {
    /// Returns the last comparison, and whether a signal ended it.
    async fn run(mut self, is_shown: bool) -> Result<(CompareReport, bool)> {
        let mut end = EndSignals::catch()?;
        let (stop, stopped) = watch::channel(false);
        let mut due = Instant::now();
        loop {
            self.compare.spent = self.spent();
            let bar = spinner();
            let show = |network: &Network, part: &str| {
                bar.set_message(format!("{}: {part}", network.interface().name));
            };
            let report = {
                let run = self.compare.run(&self.networks, &self.settings, stopped.clone(), &show);
                let mut run = std::pin::pin!(run);
                loop {
                    tokio::select! {
                        report = &mut run => break report,
                        () = end.recv() => {
                            stop.send_replace(true);
                        }
                    }
                }
            };
            bar.finish_and_clear();
            let report = report.map_err(|error| Failure::usage(error.to_string()))?;
            if let Some(series) = &mut self.series {
                series.add(&report).context("cannot write the results")?;
            }
            if is_shown {
                print!("{}\n", text(&report));
            }
            let is_stopped = *stopped.borrow();
            let Some(every) = self.every.filter(|_| !is_stopped) else {
                return Ok((report, is_stopped));
            };
            if report.is_limited() {
                eprintln!("The data limit of a network is reached.");
                return Ok((report, false));
            }
            let now = Instant::now();
            while due <= now {
                due += Duration::from(every);
            }
            tokio::select! {
                () = sleep_until(due) => {}
                () = end.recv() => return Ok((report, true)),
            }
        }
    }

    /// Bytes of earlier comparisons on each network.
    fn spent(&self) -> Vec<(String, Size)> {
        let rows = self.series.as_ref().map_or(&[][..], Series::rows);
        let of = |name: &str| {
            let used = rows.iter().filter(|row| row.interface == name).map(|row| row.used);
            Size::from_bytes(used.fold(0, u64::saturating_add))
        };
        let names = self.networks.iter().map(|network| network.interface().name.clone());
        names.map(|name| (name.clone(), of(&name))).collect()
    }
}

fn text(report: &CompareReport) -> String {
    let known = |rate_of: Option<Rate>| rate_of.map_or_else(|| "–".to_owned(), rate);
    let row = |network: &ComparedNetwork| {
        let context = &network.ping.context;
        vec![
            context.interface.clone(),
            context.kind.to_owned(),
            cell(network.round_trip()),
            cell(network.jitter()),
            network.loss().map_or_else(|| "–".to_owned(), percent),
            known(ComparedNetwork::rate(network.down.as_ref())),
            known(ComparedNetwork::rate(network.up.as_ref())),
            known(ComparedNetwork::rate(network.together.as_ref())),
            bytes(network.used().as_bytes()),
        ]
    };
    let head =
        ["NETWORK", "KIND", "ROUND TRIP", "JITTER", "LOST", "DOWN", "UP", "DOWN TOGETHER", "USED"];
    let mut text = table(&head, report.networks.iter().map(row));
    let advice = PURPOSES.iter().map(|(_, purpose)| advice(report, *purpose));
    text.push('\n');
    text.push_str(&table(&["FOR", "BEST", "SURE", "EXPECTED", "BECAUSE OF"], advice));
    let reports = report.networks.iter().flat_map(ComparedNetwork::reports);
    text + &remarks(reports)
}

/// The best network for a purpose, as a row.
fn advice(report: &CompareReport, purpose: Purpose) -> Vec<String> {
    let (indices, comparison) = report.compare(purpose);
    let Comparison { winner, certainty, reason, values } = comparison;
    let name = |index: usize| {
        let network = indices.get(index).and_then(|index| report.networks.get(*index));
        network.map_or("–", |network| network.ping.context.interface.as_str())
    };
    let value = |index: usize| match (purpose, values.get(index)) {
        (Purpose::Download(_), Some(time)) if time.is_finite() => seconds(*time),
        (Purpose::Call, Some(rating)) => format!("{rating:.0} of 100"),
        _ => "never".to_owned(),
    };
    let what = match purpose {
        Purpose::Download(size) => format!("download of {}", bytes(size.as_bytes())),
        Purpose::Call => "call".to_owned(),
    };
    let expected: Vec<String> =
        (0..values.len()).map(|index| format!("{} {}", name(index), value(index))).collect();
    vec![
        what,
        winner.map_or_else(|| "unsure".to_owned(), |index| name(index).to_owned()),
        if values.is_empty() { "–".to_owned() } else { percent(certainty) },
        expected.join(", "),
        match reason {
            Some(Reason::RoundTrip) => "round trip",
            Some(Reason::Rate) => "rate",
            Some(Reason::Loss) => "loss",
            None => "–",
        }
        .to_owned(),
    ]
}
