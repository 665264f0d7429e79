//! Estimates offset and drift of two clocks from the times at which the same bytes passed both
//! points.
//!
//! The apparent delay from the first point to the second is the delay plus the clock offset, and in
//! the other direction the delay minus the offset. So, if both clocks are steady, the offset over
//! time is a line below all differences of the first direction and above all of the second: it is
//! between the hulls of both (the geometry is that of Zhang, Liu and Xia, "Clock synchronization
//! algorithms for network measurements", INFOCOM 2002). Its slope is chosen as by Moon, Skelly and
//! Towsley for one direction ("Estimation and removal of clock skew from network delay
//! measurements", INFOCOM 1999): it minimizes the distance to all points, here for both directions
//! together.
//!
//! The estimate of the offset is the middle between the lines of that slope that touch the hulls,
//! which is exact if the minimum delays of both directions are equal. Packets do not show whether
//! they are, so the error bound is half of the minimum round-trip time.

use std::fmt;

use manyways_unit::{Span, Time};

use super::Difference;
use super::hull::{Hull, Side};

/// A larger drift is not plausible (the Linux kernel corrects no more).
const MAX_DRIFT: f64 = 500e-6;
/// Minimum time in nanoseconds for a drift: in less time, delays vary more than clocks.
const MIN_BASELINE: i64 = 10_000_000_000;
/// Minimum number of samples per direction for a drift.
const MIN_SAMPLES: usize = 8;
/// Number of parts of the time in which the line is compared with the samples.
const PART_COUNT: usize = 16;
/// Tolerance for this comparison, because delays vary.
const RESIDUAL_TOLERANCE: Span = Span::from_millis(1);

/// Parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Ppm(pub f64);

/// Relation of two clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockAlignment {
    /// The clock of the point that is nearer to the start of the chain.
    pub first: u32,
    /// The other clock.
    pub second: u32,
    /// Time of `offset`, by the first clock: the middle of the time with samples in both
    /// directions.
    pub at: Time,
    /// The second clock minus the first one. `None` if bytes passed in only one direction.
    pub offset: Option<Difference>,
    /// Drift of the second clock relative to the first. `None` with too few samples.
    pub drift: Option<Ppm>,
    /// Maximum error of the offset at [`Self::at`], whatever the delays are, if the drift is exact;
    /// an error of the drift adds its effect over half of the measured time. `None` if the clocks
    /// are not steady or the offset is unknown.
    pub max_error: Option<Span>,
    /// Maximum deviation of parts of the time from offset and drift, beyond the effect of varying
    /// delays. `None` if too few parts have samples in both directions.
    pub residual: Option<Span>,
    /// Whether a line with a small residual fits; otherwise a clock was set during the measurement.
    pub is_steady: bool,
    /// Number of samples from the first point to the second, and back.
    pub samples: [u64; 2],
}

/// Times at which the same bytes passed the first and the second point, by the clock of each.
pub type Times = (Time, Time);

impl ClockAlignment {
    /// Estimates the relation from samples of both directions. `None` without samples.
    pub fn estimate(clocks: [u32; 2], forth: &[Times], back: &[Times]) -> Option<Self> {
        let start = forth.iter().chain(back).map(|(first, _)| *first).min()?;
        let points = |times: &[Times]| -> Vec<(i64, i64)> {
            let point = |(first, second): &Times| {
                let x = Difference::between(start, *first).as_nanos();
                (x, Difference::between(*first, *second).as_nanos())
            };
            times.iter().map(point).collect()
        };
        let both = [points(forth), points(back)];
        let fit = Fit {
            hulls: [Hull::of(both[0].clone(), Side::Below), Hull::of(both[1].clone(), Side::Above)],
        };
        let middle = fit.middle();
        let slope = both
            .iter()
            .all(|points| points.is_empty() || points.len() >= MIN_SAMPLES)
            .then(|| fit.slope())
            .flatten();
        let between = fit.tangent_bounds(slope, middle);
        let offset = between.map(|(below, above)| below / 2 + above / 2);
        let residual = offset.zip(slope).and_then(|(offset, slope)| {
            residual(&both, fit.common_range()?, |x| line_at(offset, slope, x, middle))
        });
        let room = between.map(|(below, above)| (above / 2).saturating_sub(below / 2));
        let is_steady = fit.is_separable()
            && residual.is_none_or(|residual| {
                let bound = Span::from_nanos(room.unwrap_or_default().max(0) as u64);
                residual <= RESIDUAL_TOLERANCE.max(Span::from_nanos(bound.as_nanos() / 4))
            });
        // The division rounds down.
        let bound = room.and_then(|room| u64::try_from(room.saturating_add(1)).ok());
        Some(Self {
            first: clocks[0],
            second: clocks[1],
            at: start + Span::from_nanos(middle.max(0) as u64),
            offset: offset.map(Difference::from_nanos),
            // A slope that no clock has is not a drift.
            drift: slope.filter(|slope| slope.abs() < MAX_DRIFT).map(|slope| Ppm(slope * 1e6)),
            max_error: bound.map(Span::from_nanos).filter(|_| is_steady),
            residual,
            is_steady,
            samples: both.map(|points| points.len() as u64),
        })
    }

    /// The second clock minus the first one, at a time of the first one.
    pub fn offset_at(&self, at: Time) -> Option<Difference> {
        self.offset.map(|offset| offset.plus(self.offset_change(at)))
    }

    /// Change of the offset since [`Self::at`].
    pub fn offset_change(&self, at: Time) -> Difference {
        let since = Difference::between(self.at, at).as_nanos();
        let slope = self.drift.map_or(0.0, |drift| drift.0 / 1e6);
        Difference::from_nanos((since as f64 * slope) as i64)
    }
}

impl fmt::Display for Ppm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ppm", self.0)
    }
}

/// Hulls below all samples of one direction, and above all of the other.
struct Fit {
    hulls: [Option<Hull>; 2],
}

impl Fit {
    fn all(&self) -> impl Iterator<Item = &Hull> {
        self.hulls.iter().flatten()
    }

    /// Returns the time range of both hulls.
    fn common_range(&self) -> Option<(i64, i64)> {
        let from = self.all().filter_map(Hull::range).map(|range| range.0).max()?;
        let to = self.all().filter_map(Hull::range).map(|range| range.1).min()?;
        (from <= to).then_some((from, to))
    }

    fn middle(&self) -> i64 {
        self.common_range().map_or(0, |(from, to)| from + (to - from) / 2)
    }

    /// Returns the minimum and maximum offset.
    fn offset_bounds(&self, x: i64) -> Option<(i64, i64)> {
        let [forth, back] = &self.hulls;
        Some((back.as_ref()?.height_at(x)?, forth.as_ref()?.height_at(x)?))
    }

    /// Returns the range of the offset with a known drift: between lines of that slope, which all
    /// samples determine, not only those near `x`.
    fn tangent_bounds(&self, slope: Option<f64>, x: i64) -> Option<(i64, i64)> {
        let between = self.offset_bounds(x)?;
        let [Some(forth), Some(back)] = &self.hulls else { return None };
        let Some(slope) = slope.filter(|slope| slope.abs() < MAX_DRIFT) else {
            return Some(between);
        };
        let room = (back.tangent(slope, x), forth.tangent(slope, x));
        Some(if room.0 <= room.1 { room } else { between })
    }

    /// Whether a straight line fits between the hulls: at each corner, the hull of the first
    /// direction is above the other.
    fn is_separable(&self) -> bool {
        let corners = self.all().flat_map(|hull| hull.corners());
        corners
            .filter_map(|(x, _)| self.offset_bounds(*x))
            .chain(self.offset_bounds(self.middle()))
            .all(|(below, above)| below <= above)
    }

    /// Returns the slope of the two lines, one below and one above, with the minimum distance to
    /// all points. The distance is convex in the slope, so the minimum is at the slope of an edge
    /// of a hull.
    ///
    /// The weight of a direction depends on how well a separate line fits it, because a direction
    /// with a growing queue has little information about clocks.
    fn slope(&self) -> Option<f64> {
        let (from, to) = self.common_range()?;
        if to.saturating_sub(from) < MIN_BASELINE {
            return None;
        }
        let mut slopes: Vec<f64> = self
            .all()
            .flat_map(Hull::slopes)
            .filter(|slope| slope.abs() < MAX_DRIFT)
            .chain([-MAX_DRIFT, MAX_DRIFT])
            .collect();
        slopes.sort_by(f64::total_cmp);
        let nearest = |growth: &dyn Fn(f64) -> f64| {
            let at = slopes.partition_point(|slope| growth(*slope) < 0.0);
            slopes.get(at).copied().unwrap_or(MAX_DRIFT)
        };
        let weighed: Vec<(&Hull, f64)> = self
            .all()
            .map(|hull| (hull, hull.distance(nearest(&|slope| hull.distance_slope(slope)))))
            .map(|(hull, distance)| (hull, 1.0 / distance.max(1.0)))
            .collect();
        Some(nearest(&|slope| {
            weighed.iter().map(|(hull, weight)| hull.distance_slope(slope) * weight).sum()
        }))
    }
}

fn line_at(offset: i64, slope: f64, x: i64, middle: i64) -> i64 {
    offset.saturating_add((slope * (x.saturating_sub(middle)) as f64) as i64)
}

/// Returns the maximum deviation of a part's offset from the line, minus the effect of longer
/// delays in the part: a queue in one direction moves the middle by half of its delay.
///
/// The minimum round-trip time is that of much shorter parts, and the second smallest of those: in
/// a part in which a clock was set, one direction may seem too fast.
fn residual(
    both: &[Vec<(i64, i64)>; 2],
    common: (i64, i64),
    line: impl Fn(i64) -> i64,
) -> Option<Span> {
    let mut halves: Vec<i64> = part_deviations(both, common, PART_COUNT * PART_COUNT, &line)
        .iter()
        .map(|(_, half)| *half)
        .collect();
    halves.sort_unstable();
    let shortest = *halves.get(1)?;
    let parts = part_deviations(both, common, PART_COUNT, &line);
    let beyond = parts.iter().map(|(middle, half)| {
        middle.saturating_abs().saturating_sub(half.saturating_sub(shortest).max(0))
    });
    let beyond = beyond.max().filter(|_| parts.len() > 1)?;
    Some(Span::from_nanos(beyond.max(0) as u64))
}

/// Returns, for parts of the time with samples in both directions, the deviation of the middle
/// between the minimum delays from the line, and half of the minimum round-trip time.
fn part_deviations(
    [forth, back]: &[Vec<(i64, i64)>; 2],
    (from, to): (i64, i64),
    count: usize,
    line: impl Fn(i64) -> i64,
) -> Vec<(i64, i64)> {
    let length = (to - from) / count as i64 + 1;
    let mut least = vec![None::<i64>; count];
    let mut most = vec![None::<i64>; count];
    let part = |x: i64| usize::try_from(x.checked_sub(from)?.div_euclid(length)).ok();
    for (x, y) in forth {
        let Some(min) = part(*x).and_then(|part| least.get_mut(part)) else { continue };
        let y = y.saturating_sub(line(*x));
        *min = Some(min.map_or(y, |min| min.min(y)));
    }
    for (x, y) in back {
        let Some(max) = part(*x).and_then(|part| most.get_mut(part)) else { continue };
        let y = y.saturating_sub(line(*x));
        *max = Some(max.map_or(y, |max| max.max(y)));
    }
    let both = least.iter().zip(&most).filter_map(|(min, max)| min.zip(*max));
    both.map(|(min, max)| (min / 2 + max / 2, (min / 2).saturating_sub(max / 2))).collect()
}

#[cfg(test)]
mod tests;
