//! `manyways probe report`: a page of a series of comparisons.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueHint;
use manyways_net::probe::{PURPOSES, Series, SeriesRow};
use manyways_report::curves::{Axis, Curves, Line};
use manyways_report::number::{bits_per_second, bytes, percent, rate, span, utc_time};
use manyways_report::{Column, Page, TableRow};
use manyways_unit::{Rate, Span, quantile};

use crate::failure::Failure;
use crate::report_file::{self, check_distinct, check_folder};

/// Draw a series of comparisons as one HTML page
///
/// The page shows each network over time, and how often it was the best one for each purpose. It
/// has no external resources.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways probe report train.parquet
  manyways probe report train.parquet --output train.html

Exit code: 0; 1 when the file cannot be read or written; 2 when the arguments are invalid.")]
pub struct Args {
    /// File that `manyways probe compare --parquet` wrote
    #[arg(value_name = "SERIES", value_hint = ValueHint::FilePath)]
    series: PathBuf,
    /// The page [default: SERIES with the ending .html]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let output = args.output.clone().unwrap_or_else(|| args.series.with_extension("html"));
    check_folder(&output)?;
    check_distinct(&[&args.series], &[&output])?;
    let series = Series::read(&args.series).map_err(|error| {
        Failure::new(error.to_string()).hint("name a file that `manyways probe compare` wrote")
    })?;
    if series.rows().is_empty() {
        return Err(Failure::new(format!("{} has no comparison", args.series.display()))
            .hint("measure with `manyways probe compare --parquet FILE`")
            .into());
    }
    report_file::write(&output, &page(series.rows()))?;
    eprintln!("The report is in {}.", output.display());
    Ok(ExitCode::SUCCESS)
}

/// The page of a series with at least one row.
fn page(rows: &[SeriesRow]) -> String {
    let mut networks: BTreeMap<&str, Vec<&SeriesRow>> = BTreeMap::new();
    for row in rows {
        networks.entry(&row.interface).or_default().push(row);
    }
    let rounds = rows.iter().map(|row| row.round).max().unwrap_or(0);
    let begin = rows.iter().map(|row| row.started).min().unwrap_or_default();
    let end = rows.iter().map(|row| row.started).max().unwrap_or_default();
    let lead = format!(
        "{rounds} comparisons of {} networks from {} to {} (UTC).",
        networks.len(),
        utc_time(begin),
        utc_time(end),
    );
    let mut page = Page::new("Networks compared", &lead);
    page.heading("Best network");
    let columns = Column::of(
        ["Network", "10 KB", "1 MB", "10 MB", "Call", "Round trip", "Down", "Up", "Used"],
        &[0],
    );
    let lines = networks.iter().map(|(name, rows)| summary(name, rows));
    page.table(
        "Share of the comparisons in which a network was the best one, where that was sure, and \
         medians of its measurements",
        &columns,
        &lines.collect::<Vec<_>>(),
    );
    page.heading("Over time");
    // The unit of the axis of time.
    let duration = end.since(begin).as_secs_f64();
    let (unit, name) = if duration > 7_200.0 { (3_600.0, "hours") } else { (60.0, "minutes") };
    let mut draw =
        |title: &str, about: &str, y: Axis, value: &dyn Fn(&SeriesRow) -> Option<f64>| {
            let lines = networks.iter().map(|(name, rows)| Line {
                name: (*name).to_owned(),
                points: rows
                    .iter()
                    .filter_map(|row| {
                        Some((row.started.since(begin).as_secs_f64() / unit, value(row)?))
                    })
                    .collect(),
                is_filled: false,
            });
            let curves = Curves {
                title: title.to_owned(),
                description: about.to_owned(),
                x_axis: Axis::linear(name),
                y_axis: y,
                lines: lines.collect(),
            };
            page.figure(&curves.draw(), about);
        };
    let rates = || Axis { format: bits_per_second, ..Axis::linear("rate") };
    draw("Download", "Rate of 1 MB down.", rates(), &|row| row.down.map(bps));
    draw("Upload", "Rate of 1 MB up.", rates(), &|row| row.up.map(bps));
    draw("Round trip", "Median of the round trips.", Axis::linear("ms"), &|row| {
        row.round_trip.map(|one| one.as_millis_f64())
    });
    draw("Loss", "Lost share of the round trips.", Axis::percent("lost"), &|row| row.loss);
    let missing: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let message = row.message.as_ref()?;
            Some(format!("{}, {}: {message}", utc_time(row.started), row.interface))
        })
        .collect();
    if !missing.is_empty() {
        page.heading("Measurements that ended early");
        page.notes(&missing);
    }
    page.html(concat!("manyways ", env!("CARGO_PKG_VERSION"), " probe report"))
}

fn bps(rate: Rate) -> f64 {
    rate.as_bps() as f64
}

fn summary(name: &str, rows: &[&SeriesRow]) -> TableRow {
    let unknown = || "–".to_owned();
    let mut cells = vec![name.to_owned()];
    for place in 0..PURPOSES.len() {
        let sure: Vec<bool> = rows.iter().filter_map(|row| row.is_best[place]).collect();
        let best = sure.iter().filter(|is_best| **is_best).count();
        cells.push(match sure.len() {
            0 => unknown(),
            count => percent(best as f64 / count as f64),
        });
    }
    let median_rate = |value: fn(&SeriesRow) -> Option<Rate>| {
        let mut rates: Vec<u64> =
            rows.iter().filter_map(|row| value(row)).map(Rate::as_bps).collect();
        rates.sort_unstable();
        let median = rates.get(rates.len() / 2);
        median.map_or_else(unknown, |bps| rate(Rate::from_bps(*bps)))
    };
    let mut round_trips: Vec<Span> = rows.iter().filter_map(|row| row.round_trip).collect();
    round_trips.sort_unstable();
    cells.push(quantile::of_sorted(&round_trips, 0.5).map_or_else(unknown, span));
    cells.push(median_rate(|row| row.down));
    cells.push(median_rate(|row| row.up));
    cells.push(bytes(rows.iter().map(|row| row.used).fold(0, u64::saturating_add)));
    TableRow::plain(cells)
}

#[cfg(test)]
mod tests {
    use manyways_unit::Time;

    use super::*;

    fn row(round: u64, interface: &str, mbps: u64) -> SeriesRow {
        SeriesRow {
            round,
            started: Time::from_millis(1_700_000_000_000 + 600_000 * round),
            interface: interface.to_owned(),
            kind: "wifi".to_owned(),
            round_trip: Some(Span::from_millis(28)),
            jitter: None,
            loss: Some(0.0),
            down: Some(Rate::from_mbps(mbps)),
            up: None,
            together: None,
            deviation: None,
            is_best: [Some(mbps > 10), Some(mbps > 10), None, None],
            used: 2_000_000,
            message: (round == 3).then(|| "wlan0 <gone>".to_owned()),
        }
    }

    #[test]
    fn a_page_shows_the_share_of_best_networks_and_escapes_foreign_text() {
        let rows = [row(1, "wlan0", 20), row(2, "wlan0", 5), row(3, "wlan0", 20)];
        let page = page(&rows);
        assert!(page.contains("66.7 %") && page.contains("28 ms"), "{page}");
        assert!(page.contains("wlan0 &lt;gone&gt;") && !page.contains("<gone>"), "{page}");
        assert!(!page.contains("NaN"));
    }
}
