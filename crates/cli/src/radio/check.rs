//! `manyways radio check`: checks and draws a profile.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use manyways_model::radio::{NEVER, Profile, SleepTradeoff};
use manyways_net::radio::profiles::{Document, KeyFigures};
use manyways_record::document;
use manyways_unit::Span;

use super::named_profile;
use crate::report_file;
use crate::report_file::{check_distinct, check_folder};
use manyways_report::Page;
use manyways_report::curves::{Axis, Curves, Line};
use manyways_report::number::{joules, seconds, watts};
use manyways_report::svg::Drawing;
use manyways_report::text::table;

/// Check a radio profile and draw it
///
/// Reports the place of an error in the file, or prints the states of the radio after the last
/// packet and the energy of a gap by its length.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways radio check mine.toml
  manyways radio check mine.toml --report mine.html
  manyways radio check lte --report lte.html       a built-in profile
  manyways radio check mine.toml --json

A built-in name takes precedence over a file of that name: write ./lte for the file `lte`.
Exit code: 0 when the profile is valid; 1 when the file cannot be read or the report not be written; 2 when
the profile is not valid, or no profile has that name.")]
pub struct Args {
    /// Profile: a built-in name or a file
    #[arg(value_name = "PROFILE")]
    profile: String,
    /// Write an HTML report with drawings, without external resources
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// In characters.
const BAR_LENGTH: usize = 40;
const POINTS: usize = 800;

pub fn run(args: &Args) -> Result<ExitCode> {
    args.report.as_deref().map(check_folder).transpose()?;
    let outputs: Vec<&Path> = args.report.iter().map(PathBuf::as_path).collect();
    check_distinct(&[Path::new(&args.profile)], &outputs)?;
    let known = named_profile::find(&args.profile)?;
    let numbers = KeyFigures::of(&known);
    if let Some(file) = &args.report {
        report_file::write(file, &html(&known.profile, &numbers))?;
        eprintln!("The drawing is in {}.", file.display());
    }
    match args.json {
        true => super::print(&document::to_json_pretty(&Document { profiles: vec![numbers] })?),
        false => super::print(&text(&numbers)),
    }
}

fn text(numbers: &KeyFigures) -> String {
    let mut text = format!("{}\n\n", numbers.title);
    let most = numbers.states.iter().map(|state| state.mean_watts);
    let max = most.chain([numbers.send_watts, numbers.receive_watts]).fold(0.0, f64::max);
    let bar = |watts: f64| {
        let wide = if max > 0.0 { (watts / max * BAR_LENGTH as f64).round() as usize } else { 0 };
        "█".repeat(wide)
    };
    let row =
        |name: &str, mean: f64, timer: String| vec![name.to_owned(), watts(mean), timer, bar(mean)];
    let mut rows = vec![
        row("sending", numbers.send_watts, String::new()),
        row("receiving", numbers.receive_watts, String::new()),
    ];
    for state in &numbers.states {
        let timer = state.timer_seconds.map_or("a packet".to_owned(), seconds);
        rows.push(row(&state.name, state.mean_watts, timer));
    }
    text.push_str(&table(&["state", "power", "until", ""], rows));
    text.push('\n');
    for line in lines(numbers) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Key figures as sentences.
fn lines(numbers: &KeyFigures) -> Vec<String> {
    let mut lines = Vec::new();
    match numbers.tail_seconds.zip(numbers.tail_joules) {
        Some((tail, spent)) => {
            lines.push(format!("The tail lasts {} and takes {}.", seconds(tail), joules(spent)))
        }
        None => lines.push("The network never releases the radio.".to_owned()),
    }
    lines.push(format!(
        "A switch (demotion and promotion) takes {}.",
        joules(numbers.switch_joules)
    ));
    lines.push(match numbers.threshold_seconds {
        Some(threshold) => format!(
            "Immediate fast dormancy saves energy in gaps of more than {}.",
            seconds(threshold)
        ),
        None => "Fast dormancy never saves energy.".to_owned(),
    });
    for state in numbers.states.iter().filter(|state| state.promotion_delay_seconds > 0.0) {
        lines.push(format!(
            "A packet in {} waits {} for the promotion.",
            state.name,
            seconds(state.promotion_delay_seconds)
        ));
    }
    lines
}

fn html(profile: &Profile, numbers: &KeyFigures) -> String {
    let mut page = Page::new(&numbers.title, "Power and energy of this radio without packets.");
    page.notes(&lines(numbers));
    page.heading("Tail");
    page.figure(&power(profile), "Power after the last packet, under the network's timers.");
    page.heading("Energy of a gap");
    page.figure(
        &cost(profile),
        "Up to the packet that ends the gap, including the promotion. Where the lines \
         cross is the threshold.",
    );
    let columns = manyways_report::Column::of(
        ["State", "Power", "Timer", "Demotion", "Promotion", "Delay", "Source"],
        &[0, 6],
    );
    let lines: Vec<manyways_report::TableRow> = numbers
        .states
        .iter()
        .map(|state| manyways_report::TableRow {
            cells: vec![
                state.name.clone(),
                watts(state.mean_watts),
                state.timer_seconds.map_or("–".to_owned(), seconds),
                joules(state.demotion_joules),
                joules(state.promotion_joules),
                seconds(state.promotion_delay_seconds),
                state.source.clone(),
            ],
            strong: false,
            faint: state.released,
        })
        .collect();
    page.heading("Values");
    page.table("States, with the mean power over a DRX cycle", &columns, &lines);
    page.html(&format!("manyways {} radio check", env!("CARGO_PKG_VERSION")))
}

/// End of the curves in seconds.
fn curve_end(tradeoff: &SleepTradeoff) -> f64 {
    let tail = tradeoff.stay.idle_after();
    if tail < NEVER { (tail.as_secs_f64() * 1.3).max(1e-3) } else { 60.0 }
}

fn power(profile: &Profile) -> Drawing {
    let tradeoff = SleepTradeoff::of(profile);
    let end = curve_end(&tradeoff);
    let mut points = Vec::new();
    // The mean over each step, so that DRX appears as its mean power.
    let step = end / POINTS as f64;
    for point in 0..POINTS {
        let at = point as f64 * step;
        let spent = state_energy(&tradeoff, at + step) - state_energy(&tradeoff, at);
        points.push((at, spent / step));
    }
    let curves = Curves {
        title: "Power after the last packet".to_owned(),
        description: "Decreases in steps with each demotion.".to_owned(),
        x_axis: Axis::linear("seconds after the last packet"),
        y_axis: Axis::linear("W"),
        lines: vec![Line { name: String::new(), points, is_filled: true }],
    };
    curves.draw()
}

/// Joules of the states alone; demotions take no time and would be spikes.
fn state_energy(tradeoff: &SleepTradeoff, at: f64) -> f64 {
    tradeoff.stay.energy_by_state(Span::from_secs_f64(at)).map(|(_, _, joules, _)| joules).sum()
}

fn cost(profile: &Profile) -> Drawing {
    let tradeoff = SleepTradeoff::of(profile);
    let end = curve_end(&tradeoff);
    let line = |name: &str, cost: &dyn Fn(Span) -> f64| Line {
        name: name.to_owned(),
        points: (0..=POINTS)
            .map(|point| {
                let at = end * point as f64 / POINTS as f64;
                (at, cost(Span::from_secs_f64(at)))
            })
            .collect(),
        is_filled: false,
    };
    let curves = Curves {
        title: "Energy of a gap".to_owned(),
        description:
            "Energy by the length of the gap: with the network's timers, and with fast dormancy \
                      at once."
                .to_owned(),
        x_axis: Axis::linear("gap in seconds"),
        y_axis: Axis::linear("J"),
        lines: vec![
            line("the network's timers", &|at| tradeoff.stay.cost(at)),
            line("immediate dormancy", &|at| tradeoff.cost(at, Span::ZERO)),
        ],
    };
    curves.draw()
}
