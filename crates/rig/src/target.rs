//! Target values, their measured values, and a table of both.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::sample::median;

/// A target value and its measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The measured quantity.
    pub quantity: String,
    /// The required value.
    pub required: String,
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
    Reported,
    /// No cell with the quantity was measured.
    NotMeasured,
}

/// A measured value and its cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name of the cell or other place of the measurement.
    pub case: String,
    pub value: f64,
}

impl Figure {
    pub fn new(place: impl Into<String>, value: f64) -> Self {
        Self { case: place.into(), value }
    }
}

/// Requirement on figures; bounds are inclusive.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// For each figure.
    AtMost(f64),
    /// For each figure.
    AtLeast(f64),
    /// From the first value to the second, for all figures but so many.
    Within(f64, f64, usize),
    /// For the median, and a weaker one for each figure; infinity if there is none.
    Median(f64, f64),
    /// None; lower is better.
    Lower,
    /// None; higher is better.
    Higher,
}

impl Bound {
    fn wanted(self) -> String {
        match self {
            Self::AtMost(bound) => format!("<= {bound:.2}"),
            Self::AtLeast(bound) => format!(">= {bound:.2}"),
            Self::Within(low, high, 0) => format!("{low:.2} to {high:.2}"),
            Self::Within(low, high, others) => {
                format!("{low:.2} to {high:.2}, in all but {others}")
            }
            Self::Median(median, f64::INFINITY) => format!("median <= {median:.2}"),
            Self::Median(median, most) => format!("median <= {median:.2}, none > {most:.2}"),
            Self::Lower | Self::Higher => AS_MEASURED.to_owned(),
        }
    }

    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) | Self::Median(_, bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
            Self::Within(low, high, _) => (low..=high).contains(&value),
            Self::Lower | Self::Higher => true,
        }
    }

    /// Number of figures for which it need not hold.
    fn exceptions(self) -> usize {
        if let Self::Within(.., exceptions) = self { exceptions } else { 0 }
    }

    /// The worst figure.
    fn worst(self, figures: &[Figure]) -> Option<&Figure> {
        figures.iter().max_by(|a, b| match self {
            Self::AtLeast(_) | Self::Higher => b.value.total_cmp(&a.value),
            Self::Within(low, high, _) => {
                let distance = |value: f64| (value - f64::midpoint(low, high)).abs();
                distance(a.value).total_cmp(&distance(b.value))
            }
            _ => a.value.total_cmp(&b.value),
        })
    }
}

/// In place of a required value.
const AS_MEASURED: &str = "as measured";

/// A target with its figures.
pub fn every_figure(what: impl Into<String>, bound: Bound, figures: Vec<Figure>) -> Target {
    let measured = bound.worst(&figures).map(|worst| {
        let held = figures.iter().filter(|figure| bound.holds(figure.value)).count();
        let mut words = spread(&figures, worst);
        let counts = matches!(bound, Bound::AtMost(_) | Bound::AtLeast(_) | Bound::Within(..));
        if figures.len() > 1 && counts {
            let _ = write!(words, "; {held} of {} hold", figures.len());
        }
        let is_median = match bound {
            Bound::Median(most, _) => {
                median(figures.iter().map(|figure| figure.value)).is_some_and(|all| all <= most)
            }
            _ => true,
        };
        (words, held + bound.exceptions() >= figures.len() && is_median)
    });
    let target = target(what, bound.wanted(), measured);
    if matches!(bound, Bound::Lower | Bound::Higher) { reported_only(target) } else { target }
}

/// The only figure, or the median and the worst of several.
fn spread(figures: &[Figure], worst: &Figure) -> String {
    let [only] = figures else {
        let middle = median(figures.iter().map(|figure| figure.value)).unwrap_or_default();
        return format!("median {middle:.3}, worst {:.3} ({})", worst.value, worst.case);
    };
    format!("{:.3} ({})", only.value, only.case)
}

/// A target with its measured value and whether it is met; `None` if it was not measured.
pub fn target(
    what: impl Into<String>,
    wanted: impl Into<String>,
    measured: Option<(String, bool)>,
) -> Target {
    let (measured, verdict) = match measured {
        Some((measured, true)) => (measured, Verdict::Met),
        Some((measured, false)) => (measured, Verdict::Missed),
        None => ("–".to_owned(), Verdict::NotMeasured),
    };
    Target { quantity: what.into(), required: wanted.into(), measured, verdict }
}

/// Marks a measured target as reported only.
pub fn reported_only(target: Target) -> Target {
    match target.verdict {
        Verdict::NotMeasured => target,
        _ => Target { verdict: Verdict::Reported, ..target },
    }
}

/// A value without a requirement; `None` if it was not measured.
pub fn as_measured(what: impl Into<String>, measured: Option<String>) -> Target {
    reported_only(target(what, AS_MEASURED, measured.map(|measured| (measured, true))))
}

/// Figures that are reported only.
pub fn told(what: &str, figures: Vec<Figure>) -> Target {
    let target = every_figure(what.to_owned(), Bound::AtLeast(1.0), figures);
    reported_only(Target { required: String::new(), ..target })
}

/// Sorts missed targets first and unmeasured ones last.
pub fn missed_first(mut targets: Vec<Target>) -> Vec<Target> {
    targets.sort_by_key(|target| match target.verdict {
        Verdict::Missed => 0,
        Verdict::Met => 1,
        Verdict::Reported => 2,
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
            Verdict::Reported => "",
            Verdict::NotMeasured => "not measured",
        };
        let row = [&target.quantity, &target.required, &target.measured].map(String::as_str);
        let _ = writeln!(out, "| {} | {verdict} |", row.join(" | "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_for_each_figure_or_for_the_median() {
        let of = |bound, values: &[f64]| {
            let figures = values.iter().map(|value| Figure::new("here", *value)).collect();
            let Target { required: wanted, measured, verdict, .. } =
                every_figure("what", bound, figures);
            (wanted, measured, verdict)
        };
        let words = |wanted: &str, measured: &str, verdict| {
            (wanted.to_owned(), measured.to_owned(), verdict)
        };
        let three = [1.0, 2.0, 9.0];
        assert_eq!(
            of(Bound::AtLeast(2.0), &three),
            words(">= 2.00", "median 2.000, worst 1.000 (here); 2 of 3 hold", Verdict::Missed)
        );
        let measured = "median 2.000, worst 9.000 (here); 2 of 3 hold";
        let all_but_one = words("1.00 to 2.00, in all but 1", measured, Verdict::Met);
        assert_eq!(of(Bound::Within(1.0, 2.0, 1), &three), all_but_one);
        let all = words("1.00 to 2.00", measured, Verdict::Missed);
        assert_eq!(of(Bound::Within(1.0, 2.0, 0), &three), all);
        let two = "median 2.000, worst 9.000 (here); 1 of 3 hold";
        let wanted = words("1.50 to 4.50, in all but 1", two, Verdict::Missed);
        assert_eq!(of(Bound::Within(1.5, 4.5, 1), &three), wanted);
        let measured = "median 2.000, worst 9.000 (here)";
        assert_eq!(
            of(Bound::Median(2.0, f64::INFINITY), &three),
            words("median <= 2.00", measured, Verdict::Met)
        );
        let both = "median <= 2.00, none > 8.00";
        assert_eq!(of(Bound::Median(2.0, 8.0), &three), words(both, measured, Verdict::Missed));
        assert_eq!(of(Bound::Median(1.0, 9.0), &three).2, Verdict::Missed);
        assert_eq!(of(Bound::Lower, &three), words("as measured", measured, Verdict::Reported));
        assert_eq!(of(Bound::Higher, &[]), words("as measured", "–", Verdict::NotMeasured));
    }
}
