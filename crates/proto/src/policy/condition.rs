//! Conditions of a rule on paths and battery.

use std::fmt;

use manyways_unit::human::{self, InvalidValue};
use manyways_unit::{Rate, Size, Span};

use super::auto::AllowedPaths;
use super::hysteresis::{Comparison, Observation, Op};
use super::lowest_latency::LowestLatencyPath;
use super::paths::{Environment, PathFacts, PathSelector};

/// Fraction by which a measured value must pass its bound before a condition ends, in percent.
pub(super) const MARGIN_PERCENT: u64 = 20;
/// Time for which a measured value must persist before a condition changes.
pub(super) const HYSTERESIS: Span = Span::from_secs(3);
/// Percentage points by which the battery must pass its bound before a condition ends.
const BATTERY_MARGIN: u64 = 3;
/// Integer representation of the fraction 1: parts per million.
const PARTS_PER_MILLION: u64 = 1_000_000;

/// A condition of a rule.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Condition {
    pub(super) subject: Subject,
    pub(super) quantity: Quantity,
    pub(super) comparison: Comparison,
    /// As displayed: `wifi.rate <1mbit`.
    pub(super) text: String,
}

/// Subject of a condition. If several paths match, the best one counts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Subject {
    Device,
    Paths(PathSelector),
    LowestLatency(AllowedPaths),
}

/// Property of the subject.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Quantity {
    Battery,
    Charging,
    Up,
    Metered,
    Remaining,
    Rate,
    Load,
    Rtt,
    Loss,
}

/// Returns the remaining bytes of a path's data plan. `None` without a plan or without a count.
pub(super) type PlanRemaining<'a> = &'a dyn Fn(&PathFacts) -> Option<Size>;

impl Quantity {
    pub(super) const PATH_QUANTITIES: [Self; 7] =
        [Self::Up, Self::Metered, Self::Remaining, Self::Rate, Self::Load, Self::Rtt, Self::Loss];

    pub(super) fn keyword(self) -> &'static str {
        match self {
            Self::Battery => "battery",
            Self::Charging => "charging",
            Self::Up => "up",
            Self::Metered => "metered",
            Self::Remaining => "left",
            Self::Rate => "rate",
            Self::Load => "load",
            Self::Rtt => "rtt",
            Self::Loss => "loss",
        }
    }

    pub(super) fn is_boolean(self) -> bool {
        matches!(self, Self::Charging | Self::Up | Self::Metered)
    }

    /// Returns whether the property is a measurement and therefore varies all the time.
    fn is_measured(self) -> bool {
        matches!(self, Self::Rate | Self::Load | Self::Rtt | Self::Loss)
    }

    /// Returns whether a change must persist before it counts. A path that is down counts at once.
    pub(super) fn needs_hysteresis(self) -> bool {
        self.is_measured() || self == Self::Up
    }

    /// Returns whether a higher value is better.
    fn is_higher_better(self) -> bool {
        matches!(self, Self::Up | Self::Remaining | Self::Rate)
    }

    /// Returns the value of a path that does not exist or is down.
    fn worst_value(self) -> u64 {
        match self {
            Self::Rtt => u64::MAX,
            Self::Load | Self::Loss => PARTS_PER_MILLION,
            _ => 0,
        }
    }

    /// Returns the maximum value.
    fn max_value(self) -> u64 {
        match self {
            Self::Battery => 100,
            Self::Load | Self::Loss => PARTS_PER_MILLION,
            _ => u64::MAX,
        }
    }

    /// Returns the syntax of a comparison, for error messages.
    fn syntax(self) -> &'static str {
        match self {
            Self::Battery => "<, <=, > or >= and a share, like \"<20%\"",
            Self::Remaining => "<, <=, > or >= and a size, like \">1GB\"",
            Self::Load => "<, <=, > or >= and a share, like \">80%\"",
            Self::Rtt => "<, <=, > or >= and a time, like \">150ms\"",
            Self::Loss => "<, <=, > or >= and a share, like \">2%\"",
            // The other properties are boolean and have no comparison.
            _ => "<, <=, > or >= and a value, like \"<1mbit\"",
        }
    }

    /// Parses the bound of a comparison.
    fn parse_threshold(self, text: &str) -> Result<u64, InvalidValue> {
        let share = |text| {
            human::probability(text).map(|share| (share * PARTS_PER_MILLION as f64).round() as u64)
        };
        match self {
            Self::Remaining => human::bytes(text).map(Size::as_bytes),
            Self::Rate => text.parse().map(Rate::as_bps),
            Self::Rtt => text.parse().map(Span::as_nanos),
            Self::Battery => Ok(share(text)? / (PARTS_PER_MILLION / 100)),
            _ => share(text),
        }
    }

    /// Returns a value as text.
    pub(super) fn value_text(self, value: u64) -> String {
        match self {
            Self::Battery => format!("{value} %"),
            Self::Charging | Self::Up | Self::Metered => (value == 1).to_string(),
            Self::Remaining => Size::from_bytes(value).to_string(),
            Self::Rate => Rate::from_bps(value).to_string(),
            Self::Rtt if value == u64::MAX => "endless".to_owned(),
            Self::Rtt => Span::from_nanos(value).to_string(),
            Self::Load | Self::Loss => {
                format!("{} %", value as f64 / (PARTS_PER_MILLION / 100) as f64)
            }
        }
    }
}

impl Comparison {
    /// Parses `text`, like `<1mbit`, for a numeric property.
    pub(super) fn parse(
        quantity: Quantity,
        text: &str,
        margin: u64,
        hold: Span,
    ) -> Result<Self, InvalidValue> {
        let trimmed = text.trim();
        let ops = [("<=", Op::AtMost), (">=", Op::AtLeast), ("<", Op::Below), (">", Op::Above)];
        let (op, bound) = ops
            .into_iter()
            .find_map(|(sign, op)| Some((op, trimmed.strip_prefix(sign)?)))
            .ok_or_else(|| InvalidValue::new(text, "a comparison", quantity.syntax()))?;
        let bound = quantity.parse_threshold(bound)?;
        let (margin, hold) = match quantity {
            _ if quantity.is_measured() => (u128::from(bound) * u128::from(margin) / 100, hold),
            Quantity::Battery => (u128::from(BATTERY_MARGIN), Span::ZERO),
            // Decreases only, until the plan is reset.
            _ => (0, Span::ZERO),
        };
        let margin = u64::try_from(margin).unwrap_or(u64::MAX);
        let leave = match op {
            // A bound above the maximum could never be passed.
            Op::Below | Op::AtMost => bound.saturating_add(margin).min(quantity.max_value()),
            _ => bound.saturating_sub(margin),
        };
        Ok(Self { op, threshold: bound, exit_threshold: leave, hysteresis: hold })
    }

    pub(super) fn boolean(yes: bool, hold: Span) -> Self {
        let bound = u64::from(yes);
        Self { op: Op::Is, threshold: bound, exit_threshold: bound, hysteresis: hold }
    }
}

impl Condition {
    /// Returns the observation in this environment. `lowest_latency` is the current lowest-latency
    /// path.
    pub(super) fn observation(
        &self,
        environment: &Environment,
        lowest_latency: Option<&LowestLatencyPath>,
        left: PlanRemaining<'_>,
    ) -> Observation {
        let known = |value: Option<u64>| value.map_or(Observation::Unknown, Observation::Measured);
        let of_paths = |fits: &dyn Fn(&PathFacts) -> bool| {
            let paths = environment.paths.iter().filter(|path| fits(path));
            self.quantity.best_value(paths, left)
        };
        match &self.subject {
            Subject::Device if self.quantity == Quantity::Battery => {
                known(environment.battery.map(u64::from))
            }
            Subject::Device => known(environment.charging.map(u64::from)),
            Subject::Paths(paths) => of_paths(&|path| paths.matches(path)),
            Subject::LowestLatency(paths) => match lowest_latency.and_then(LowestLatencyPath::path)
            {
                Some(id) => of_paths(&|path| path.id == id),
                // Without a measured path, all of the subject's paths count.
                None => {
                    let set = paths.path_set(environment);
                    of_paths(&|path| set.contains(path.id))
                }
            },
        }
    }
}

impl Quantity {
    /// Returns the value of the best of `paths`.
    fn best_value<'a>(
        self,
        paths: impl Iterator<Item = &'a PathFacts> + Clone,
        left: PlanRemaining<'_>,
    ) -> Observation {
        let choose = |values: &mut dyn Iterator<Item = u64>| match self.is_higher_better() {
            true => values.max(),
            false => values.min(),
        };
        let share = |share: f64| {
            (0.0..=1.0)
                .contains(&share)
                .then_some((share * PARTS_PER_MILLION as f64).round() as u64)
        };
        let value = |path: &PathFacts| match self {
            Self::Up => Some(u64::from(path.up)),
            Self::Metered => Some(u64::from(path.metered)),
            Self::Remaining => left(path).map(Size::as_bytes),
            Self::Rate => path.rate.map(Rate::as_bps),
            Self::Load => path.load.and_then(share),
            Self::Rtt => path.rtt.map(Span::as_nanos),
            Self::Loss => path.loss.and_then(share),
            Self::Battery | Self::Charging => None,
        };
        if self.needs_hysteresis() && !paths.clone().any(|path| path.up) {
            return Observation::Certain(self.worst_value());
        }
        let mut values =
            paths.clone().filter(|path| path.up || !self.is_measured()).filter_map(value);
        match choose(&mut values) {
            Some(value) => Observation::Measured(value),
            None => Observation::Unknown,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
