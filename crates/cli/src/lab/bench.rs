//! `lab bench`: measures the speed and accuracy of the emulator.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use manyways_lab::bench::{BenchConfig, BenchReport, DelayFigure, bench as measure};
use manyways_record::document;
use manyways_unit::{Rate, Span};

use super::{lab_failure, prepare};

/// Measure how fast and how exact the emulator is on this machine (about two minutes).
///
/// The exit code is 0 even if a target is missed; the table shows the miss.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  manyways lab bench --json bench.json")]
pub struct Args {
    /// Write the figures as JSON to this file (`-` for standard output).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table as Markdown to this file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Length of each TCP measurement, after a warm-up of two seconds.
    #[arg(long, value_name = "TIME", default_value = "8s")]
    length: Span,
    /// Number of delay measurements; each measures once without and once with the emulator.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
}

pub fn bench(args: Args) -> Result<ExitCode> {
    let registry = prepare()?;
    let config = BenchConfig { duration: args.length, rounds: args.rounds.max(1) };
    let report = measure(&registry, config, &mut |step| eprintln!("measuring: {step}"))
        .map_err(lab_failure)?;
    let table = table(&report);
    if let Some(file) = &args.markdown {
        std::fs::write(file, &table).with_context(|| format!("cannot write {}", file.display()))?;
    }
    match &args.json {
        Some(file) if file.as_os_str() == "-" => print!("{}", document::to_json(&report)?),
        Some(file) => {
            std::fs::write(file, document::to_json_pretty(&report)?)
                .with_context(|| format!("cannot write {}", file.display()))?;
            print!("{table}");
        }
        None => print!("{table}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Formats the report as Markdown, which is also readable on a terminal.
pub fn table(report: &BenchReport) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{} cores, kernel {}; 5 ms each way, 100 ms drop-tail queue, cubic.\n",
        report.cores, report.kernel
    );
    let _ = writeln!(out, "| TCP, configured rate | measured (IP bytes) | share | relay CPU |");
    let _ = writeln!(out, "|---|---|---|---|");
    let mut row = |label: String, set: u64, reached: u64, share: f64, cpu: f64| {
        let _ = writeln!(
            out,
            "| {label}{} | {} | {:.2} % | {:.0} % |",
            Rate::from_bps(set),
            Rate::from_bps(reached),
            share * 100.0,
            cpu * 100.0
        );
    };
    for figure in &report.rates {
        row(String::new(), figure.set_bps, figure.reached_bps, figure.share, figure.relay_cpu);
    }
    for figure in &report.together {
        let label = "one of four at once: ".to_owned();
        row(label, figure.set_bps, figure.reached_bps, figure.share, figure.relay_cpu);
    }
    let _ = writeln!(out, "\n| UDP, 10 packets/ms | smallest | median | 90 % | 99 % | lost |");
    let _ = writeln!(out, "|---|---|---|---|---|---|");
    let mut row = |label: &str, figure: &DelayFigure| {
        let _ = writeln!(
            out,
            "| {label} | {:.0} µs | {:.0} µs | {:.0} µs | {:.0} µs | {} of {} |",
            figure.min_us,
            figure.p50_us,
            figure.p90_us,
            figure.p99_us,
            figure.lost,
            figure.lost + figure.packets as u64
        );
    };
    row("added by the emulator", &report.delay);
    row("bare relay", &report.bare_delay);
    let trace = &report.trace;
    let _ = writeln!(
        out,
        "\nFull queue on a link that follows a trace of {} on average: in the worst of {} s, off by {} \
         bytes ({:.2} %).\n",
        Rate::from_bps(trace.mean_bps),
        trace.seconds,
        trace.worst_bytes,
        trace.worst_share * 100.0
    );
    let _ = writeln!(out, "| Target | bound | measured | |\n|---|---|---|---|");
    for target in &report.targets {
        let _ = writeln!(
            out,
            "| {} | {} | {:.4} | {} |",
            target.name,
            target.bound,
            target.measured,
            if target.met { "met" } else { "**missed**" }
        );
    }
    out
}
