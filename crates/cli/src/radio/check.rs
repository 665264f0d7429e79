//! `manyways radio check`: checks and draws a profile.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use manyways_model::radio::{Choice, Profile};

use super::known;
use super::profiles::{Numbers, json, numbers};
use crate::report_file;
use crate::report_file::{check_folder, keep_apart};
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
const BAR: usize = 40;
const POINTS: usize = 800;

pub fn run(args: &Args) -> Result<ExitCode> {
    args.report.as_deref().map(check_folder).transpose()?;
    let outputs: Vec<&Path> = args.report.iter().map(PathBuf::as_path).collect();
    keep_apart(&[Path::new(&args.profile)], &outputs)?;
    let known = known::profile(&args.profile)?;
    let numbers = numbers(&known.name, &known.profile);
    if let Some(file) = &args.report {
        report_file::write(file, &html(&known.profile, &numbers))?;
        eprintln!("The drawing is in {}.", file.display());
    }
    match args.json {
        true => super::print(&json(vec![numbers])?),
        false => super::print(&text(&numbers)),
    }
}

fn text(numbers: &Numbers) -> String {
    let mut text = format!("{}\n\n", numbers.title);
    let most = numbers.states.iter().map(|state| state.mean_watts);
    let most = most.chain([numbers.send_watts, numbers.receive_watts]).fold(0.0, f64::max);
    let bar = |watts: f64| {
        let wide = if most > 0.0 { (watts / most * BAR as f64).round() as usize } else { 0 };
        "█".repeat(wide)
    };
    let row =
        |name: &str, mean: f64, timer: String| vec![name.to_owned(), watts(mean), timer, bar(mean)];
    let mut rows = vec![["state", "power", "until", ""].map(str::to_owned).to_vec()];
    rows.push(row("sending", numbers.send_watts, String::new()));
    rows.push(row("receiving", numbers.receive_watts, String::new()));
    for state in &numbers.states {
        let timer = state.timer_seconds.map_or("a packet".to_owned(), seconds);
        rows.push(row(&state.name, state.mean_watts, timer));
    }
    text.push_str(&table(&rows));
    text.push('\n');
    for line in lines(numbers) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Key figures as sentences.
fn lines(numbers: &Numbers) -> Vec<String> {
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

fn html(profile: &Profile, numbers: &Numbers) -> String {
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
    let columns = [
        ("State", manyways_report::Column::Words),
        ("Power", manyways_report::Column::Figures),
        ("Timer", manyways_report::Column::Figures),
        ("Demotion", manyways_report::Column::Figures),
        ("Promotion", manyways_report::Column::Figures),
        ("Delay", manyways_report::Column::Figures),
        ("Source", manyways_report::Column::Words),
    ];
    let lines: Vec<manyways_report::Line> = numbers
        .states
        .iter()
        .map(|state| manyways_report::Line {
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
fn end(choice: &Choice) -> f64 {
    let tail = choice.stay.released();
    if tail.is_finite() { (tail * 1.3).max(1e-3) } else { 60.0 }
}

fn power(profile: &Profile) -> Drawing {
    let choice = Choice::of(profile);
    let end = end(&choice);
    let mut points = Vec::new();
    // The mean over each step, so that DRX appears as its mean power.
    let step = end / POINTS as f64;
    for point in 0..POINTS {
        let at = point as f64 * step;
        let spent = spent(&choice, at + step) - spent(&choice, at);
        points.push((at, spent / step));
    }
    let curves = Curves {
        title: "Power after the last packet".to_owned(),
        description: "Decreases in steps with each demotion.".to_owned(),
        across: Axis::linear("seconds after the last packet"),
        up: Axis::linear("W"),
        lines: vec![Line { name: String::new(), points, is_filled: true }],
    };
    curves.draw()
}

/// Joules of the states alone; demotions take no time and would be spikes.
fn spent(choice: &Choice, at: f64) -> f64 {
    choice.stay.parts(at).map(|(_, _, joules, _)| joules).sum()
}

fn cost(profile: &Profile) -> Drawing {
    let choice = Choice::of(profile);
    let end = end(&choice);
    let line = |name: &str, cost: &dyn Fn(f64) -> f64| Line {
        name: name.to_owned(),
        points: (0..=POINTS)
            .map(|point| {
                let at = end * point as f64 / POINTS as f64;
                (at, cost(at))
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
        across: Axis::linear("gap in seconds"),
        up: Axis::linear("J"),
        lines: vec![
            line("the network's timers", &|at| choice.stay.cost(at)),
            line("immediate dormancy", &|at| choice.cost(at, 0.0)),
        ],
    };
    curves.draw()
}
