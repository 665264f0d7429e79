//! Conditions of a rule on paths and battery.

use std::fmt;

use manyways_unit::human::{self, InvalidValue};
use manyways_unit::{Rate, Size, Span};

use super::gauge::{Op, Reading, Test};
use super::leader::Leader;
use super::paths::{PathFacts, Paths, Surroundings};

/// Fraction by which a measured value must pass its bound before a condition ends, in percent.
pub(super) const MARGIN_PERCENT: u64 = 20;
/// Time for which a measured value must persist before a condition changes.
pub(super) const HOLD: Span = Span::from_secs(3);
/// Percentage points by which the battery must pass its bound before a condition ends.
const BATTERY_MARGIN: u64 = 3;
/// Integer representation of the fraction 1: parts per million.
const WHOLE: u64 = 1_000_000;

/// A condition of a rule.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Condition {
    pub(super) subject: Subject,
    pub(super) quantity: Quantity,
    pub(super) test: Test,
    /// As displayed: `wifi.rate <1mbit`.
    pub(super) text: String,
}

/// Subject of a condition. If several paths match, the best one counts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Subject {
    Device,
    Paths(Paths),
    LowestLatency(Paths),
}

/// Property of the subject.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Quantity {
    Battery,
    Charging,
    Up,
    Metered,
    Left,
    Rate,
    Load,
    Rtt,
    Loss,
}

/// Returns the remaining bytes of a path's data plan. `None` without a plan or without a count.
pub(super) type Left<'a> = &'a dyn Fn(&PathFacts) -> Option<Size>;

impl Quantity {
    pub(super) const OF_PATHS: [Self; 7] =
        [Self::Up, Self::Metered, Self::Left, Self::Rate, Self::Load, Self::Rtt, Self::Loss];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Battery => "battery",
            Self::Charging => "charging",
            Self::Up => "up",
            Self::Metered => "metered",
            Self::Left => "left",
            Self::Rate => "rate",
            Self::Load => "load",
            Self::Rtt => "rtt",
            Self::Loss => "loss",
        }
    }

    pub(super) fn is_yes_or_no(self) -> bool {
        matches!(self, Self::Charging | Self::Up | Self::Metered)
    }

    /// Returns whether the property is a measurement and therefore varies all the time.
    fn is_measured(self) -> bool {
        matches!(self, Self::Rate | Self::Load | Self::Rtt | Self::Loss)
    }

    /// Returns whether a change must persist before it counts. A path that is down counts at once.
    pub(super) fn has_to_last(self) -> bool {
        self.is_measured() || self == Self::Up
    }

    /// Returns whether a higher value is better.
    fn more_is_better(self) -> bool {
        matches!(self, Self::Up | Self::Left | Self::Rate)
    }

    /// Returns the value of a path that does not exist or is down.
    fn worst(self) -> u64 {
        match self {
            Self::Rtt => u64::MAX,
            Self::Load | Self::Loss => WHOLE,
            _ => 0,
        }
    }

    /// Returns the maximum value.
    fn largest(self) -> u64 {
        match self {
            Self::Battery => 100,
            Self::Load | Self::Loss => WHOLE,
            _ => u64::MAX,
        }
    }

    /// Returns the syntax of a comparison, for error messages.
    fn forms(self) -> &'static str {
        match self {
            Self::Battery => "<, <=, > or >= and a share, like \"<20%\"",
            Self::Left => "<, <=, > or >= and a size, like \">1GB\"",
            Self::Load => "<, <=, > or >= and a share, like \">80%\"",
            Self::Rtt => "<, <=, > or >= and a time, like \">150ms\"",
            Self::Loss => "<, <=, > or >= and a share, like \">2%\"",
            // The other properties are boolean and have no comparison.
            _ => "<, <=, > or >= and a value, like \"<1mbit\"",
        }
    }

    /// Parses the bound of a comparison.
    fn bound(self, text: &str) -> Result<u64, InvalidValue> {
        let share =
            |text| human::probability(text).map(|share| (share * WHOLE as f64).round() as u64);
        match self {
            Self::Left => human::bytes(text).map(Size::as_bytes),
            Self::Rate => text.parse().map(Rate::as_bps),
            Self::Rtt => text.parse().map(Span::as_nanos),
            Self::Battery => Ok(share(text)? / (WHOLE / 100)),
            _ => share(text),
        }
    }

    /// Returns a value as text.
    pub(super) fn show(self, value: u64) -> String {
        match self {
            Self::Battery => format!("{value} %"),
            Self::Charging | Self::Up | Self::Metered => (value == 1).to_string(),
            Self::Left => Size::from_bytes(value).to_string(),
            Self::Rate => Rate::from_bps(value).to_string(),
            Self::Rtt if value == u64::MAX => "endless".to_owned(),
            Self::Rtt => Span::from_nanos(value).to_string(),
            Self::Load | Self::Loss => format!("{} %", value as f64 / (WHOLE / 100) as f64),
        }
    }
}

impl Test {
    /// Parses `text`, like `<1mbit`, for a numeric property.
    pub(super) fn read(
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
            .ok_or_else(|| InvalidValue::new(text, "a comparison", quantity.forms()))?;
        let bound = quantity.bound(bound)?;
        let (margin, hold) = match quantity {
            _ if quantity.is_measured() => (u128::from(bound) * u128::from(margin) / 100, hold),
            Quantity::Battery => (u128::from(BATTERY_MARGIN), Span::ZERO),
            // Decreases only, until the plan is reset.
            _ => (0, Span::ZERO),
        };
        let margin = u64::try_from(margin).unwrap_or(u64::MAX);
        let leave = match op {
            // A bound above the maximum could never be passed.
            Op::Below | Op::AtMost => bound.saturating_add(margin).min(quantity.largest()),
            _ => bound.saturating_sub(margin),
        };
        Ok(Self { op, bound, leave, hold })
    }

    pub(super) fn yes_or_no(yes: bool, hold: Span) -> Self {
        let bound = u64::from(yes);
        Self { op: Op::Is, bound, leave: bound, hold }
    }
}

impl Condition {
    /// Returns the reading for these surroundings. `leader` is the leader of the subject's paths.
    pub(super) fn reading(
        &self,
        surroundings: &Surroundings,
        leader: Option<&Leader>,
        left: Left<'_>,
    ) -> Reading {
        let known = |value: Option<u64>| value.map_or(Reading::Unknown, Reading::Value);
        let of_paths = |fits: &dyn Fn(&PathFacts) -> bool| {
            let paths = surroundings.paths.iter().filter(|path| fits(path));
            self.quantity.best(paths, left)
        };
        match &self.subject {
            Subject::Device if self.quantity == Quantity::Battery => {
                known(surroundings.battery.map(u64::from))
            }
            Subject::Device => known(surroundings.charging.map(u64::from)),
            Subject::Paths(paths) => of_paths(&|path| paths.fits(path)),
            Subject::LowestLatency(paths) => match leader.and_then(Leader::path) {
                Some(id) => of_paths(&|path| path.id == id),
                // Without a measured path, all of the subject's paths count.
                None => of_paths(&|path| paths.fits(path)),
            },
        }
    }
}

impl Quantity {
    /// Returns the value of the best of `paths`.
    fn best<'a>(
        self,
        paths: impl Iterator<Item = &'a PathFacts> + Clone,
        left: Left<'_>,
    ) -> Reading {
        let choose = |values: &mut dyn Iterator<Item = u64>| match self.more_is_better() {
            true => values.max(),
            false => values.min(),
        };
        let share = |share: f64| {
            (0.0..=1.0).contains(&share).then_some((share * WHOLE as f64).round() as u64)
        };
        let value = |path: &PathFacts| match self {
            Self::Up => Some(u64::from(path.up)),
            Self::Metered => Some(u64::from(path.metered)),
            Self::Left => left(path).map(Size::as_bytes),
            Self::Rate => path.rate.map(Rate::as_bps),
            Self::Load => path.load.and_then(share),
            Self::Rtt => path.rtt.map(Span::as_nanos),
            Self::Loss => path.loss.and_then(share),
            Self::Battery | Self::Charging => None,
        };
        if self.has_to_last() && !paths.clone().any(|path| path.up) {
            return Reading::Fact(self.worst());
        }
        let mut values =
            paths.clone().filter(|path| path.up || !self.is_measured()).filter_map(value);
        match choose(&mut values) {
            Some(value) => Reading::Value(value),
            None => Reading::Unknown,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
