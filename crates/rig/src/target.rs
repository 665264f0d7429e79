//! What was to be reached, what was, and the table that says so.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::sample::median;

/// One thing to be reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// What is measured.
    pub what: String,
    /// What it shall be.
    pub wanted: String,
    /// What it is.
    pub measured: String,
    /// Whether that is enough.
    pub verdict: Verdict,
}

/// Whether a target was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It was, in every cell that counts.
    Met,
    /// It was not, in one at least.
    Missed,
    /// There is nothing to be reached.
    Told,
    /// None of the cells that it needs ran.
    NotMeasured,
}

/// A figure that a target speaks of, and where it was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Which.
    pub place: String,
    /// How much.
    pub value: f64,
}

/// How large a figure may be.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// Not more.
    AtMost(f64),
    /// Not less.
    AtLeast(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
        }
    }
}

/// A target that every figure has to meet.
pub fn each(what: String, bound: Bound, figures: Vec<Figure>) -> Target {
    let wanted = match bound {
        Bound::AtMost(bound) => format!("<= {bound:.2}"),
        Bound::AtLeast(bound) => format!(">= {bound:.2}"),
    };
    let worse = |a: &&Figure, b: &&Figure| match bound {
        Bound::AtMost(_) => a.value.total_cmp(&b.value),
        Bound::AtLeast(_) => b.value.total_cmp(&a.value),
    };
    let measured = figures.iter().max_by(worse).map(|worst| {
        let held = figures.iter().filter(|figure| bound.holds(figure.value)).count();
        let mut words = spread(&figures, worst);
        if figures.len() > 1 {
            let _ = write!(words, "; {held} of {} hold", figures.len());
        }
        (words, held == figures.len())
    });
    target(what, wanted, measured)
}

/// A target for the median of the figures, and a weaker one for each.
pub fn middle_and_worst(what: String, (middle, most): (f64, f64), figures: &[Figure]) -> Target {
    let wanted = format!("median <= {middle:.2}, none > {most:.2}");
    let median = median(figures.iter().map(|figure| figure.value));
    let worst = figures.iter().max_by(|a, b| a.value.total_cmp(&b.value));
    let measured = median
        .zip(worst)
        .map(|(median, worst)| (spread(figures, worst), median <= middle && worst.value <= most));
    target(what, wanted, measured)
}

/// The only figure, or the middle and the worst of several.
fn spread(figures: &[Figure], worst: &Figure) -> String {
    let [only] = figures else {
        let middle = median(figures.iter().map(|figure| figure.value)).unwrap_or_default();
        return format!("median {middle:.3}, worst {:.3} ({})", worst.value, worst.place);
    };
    format!("{:.3} ({})", only.value, only.place)
}

/// A target with what was measured and whether that is enough.
pub fn target(what: String, wanted: String, measured: Option<(String, bool)>) -> Target {
    let (measured, verdict) = match measured {
        Some((measured, true)) => (measured, Verdict::Met),
        Some((measured, false)) => (measured, Verdict::Missed),
        None => ("–".to_owned(), Verdict::NotMeasured),
    };
    Target { what, wanted, measured, verdict }
}

/// There is nothing to be reached.
pub fn told_only(target: Target) -> Target {
    match target.verdict {
        Verdict::NotMeasured => target,
        _ => Target { verdict: Verdict::Told, ..target },
    }
}

/// The same, for comparison alone.
pub fn as_measured(target: Target) -> Target {
    Target { wanted: "as measured".to_owned(), ..told_only(target) }
}

/// Misses first, and last what was not measured.
pub fn missed_first(mut targets: Vec<Target>) -> Vec<Target> {
    targets.sort_by_key(|target| match target.verdict {
        Verdict::Missed => 0,
        Verdict::Met => 1,
        Verdict::Told => 2,
        Verdict::NotMeasured => 3,
    });
    targets
}

/// The table of the targets.
pub fn rows(targets: &[Target]) -> String {
    let mut out = String::from("| What | Target | Measured | |\n|---|---|---|---|\n");
    for target in targets {
        let verdict = match target.verdict {
            Verdict::Met => "met",
            Verdict::Missed => "**missed**",
            Verdict::Told => "",
            Verdict::NotMeasured => "not measured",
        };
        let row = [&target.what, &target.wanted, &target.measured].map(String::as_str);
        let _ = writeln!(out, "| {} | {verdict} |", row.join(" | "));
    }
    out
}
