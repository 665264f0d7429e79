//! Target values, their measured values, and a table of both.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::sample::median;

/// A target value and its measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The measured quantity.
    pub what: String,
    /// The required value.
    pub wanted: String,
    /// The measured value.
    pub measured: String,
    pub verdict: Verdict,
}

/// Result of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Met in every cell that counts.
    Met,
    /// Missed in at least one cell.
    Missed,
    /// Reported only; there is no required value.
    Told,
    /// No cell with the quantity was measured.
    NotMeasured,
}

/// A measured value and its cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name of the cell or other place of the measurement.
    pub place: String,
    pub value: f64,
}

/// Bound of a figure, inclusive.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    AtMost(f64),
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

/// A target with one bound for the median of the figures, and a weaker bound for each figure.
pub fn middle_and_worst(what: String, (middle, most): (f64, f64), figures: &[Figure]) -> Target {
    let wanted = format!("median <= {middle:.2}, none > {most:.2}");
    let median = median(figures.iter().map(|figure| figure.value));
    let worst = figures.iter().max_by(|a, b| a.value.total_cmp(&b.value));
    let measured = median
        .zip(worst)
        .map(|(median, worst)| (spread(figures, worst), median <= middle && worst.value <= most));
    target(what, wanted, measured)
}

/// The only figure, or the median and the worst of several.
fn spread(figures: &[Figure], worst: &Figure) -> String {
    let [only] = figures else {
        let middle = median(figures.iter().map(|figure| figure.value)).unwrap_or_default();
        return format!("median {middle:.3}, worst {:.3} ({})", worst.value, worst.place);
    };
    format!("{:.3} ({})", only.value, only.place)
}

/// A target with its measured value and whether it is met; `None` if it was not measured.
pub fn target(what: String, wanted: String, measured: Option<(String, bool)>) -> Target {
    let (measured, verdict) = match measured {
        Some((measured, true)) => (measured, Verdict::Met),
        Some((measured, false)) => (measured, Verdict::Missed),
        None => ("–".to_owned(), Verdict::NotMeasured),
    };
    Target { what, wanted, measured, verdict }
}

/// Marks a measured target as reported only.
pub fn told_only(target: Target) -> Target {
    match target.verdict {
        Verdict::NotMeasured => target,
        _ => Target { verdict: Verdict::Told, ..target },
    }
}

/// [`told_only`] with "as measured" as the required value.
pub fn as_measured(target: Target) -> Target {
    Target { wanted: "as measured".to_owned(), ..told_only(target) }
}

/// Sorts missed targets first and unmeasured ones last.
pub fn missed_first(mut targets: Vec<Target>) -> Vec<Target> {
    targets.sort_by_key(|target| match target.verdict {
        Verdict::Missed => 0,
        Verdict::Met => 1,
        Verdict::Told => 2,
        Verdict::NotMeasured => 3,
    });
    targets
}

/// The table of the targets in Markdown.
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
