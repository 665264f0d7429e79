//! How far two clocks are apart, by the times at which the same bytes passed both points.
//!
//! What goes from the first point to the second seems to take its delay and the clocks' offset, what
//! goes back its delay less that offset. So the offset over time is a line below all of the first and
//! above all of the second differences, if both clocks are steady: what is known of it for certain
//! is that it is between the hulls of both (the geometry is that of Zhang, Liu and Xia, "Clock
//! synchronization algorithms for network measurements", INFOCOM 2002). Its slope is chosen as Moon,
//! Skelly and Towsley chose it for one way ("Estimation and removal of clock skew from network delay
//! measurements", INFOCOM 1999), so that all points together are nearest to it, here for both ways
//! at once.
//!
//! The middle between the lines of that slope that touch the hulls is taken for the offset: that is
//! right where the shortest delays of both ways are alike. If they are not, nobody can tell from
//! packets, so half of the shortest round trip is the bound of its error.

use std::fmt;

use manyways_unit::{Span, Time};

use super::Difference;
use super::hull::{Hull, Side};

/// A clock that is faster or slower than that is out of order (the kernel of Linux corrects no
/// more).
const MOST_DRIFT: f64 = 500e-6;
/// Within less, delays change by more than clocks do.
const LEAST_BASE: i64 = 10_000_000_000;
/// Of fewer samples a way no drift is estimated.
const LEAST_SAMPLES: usize = 8;
/// In so many parts of the time the line is compared with what is known of the part alone.
const PARTS: usize = 16;
/// What parts may differ from the line by, because delays vary.
const NOISE: Span = Span::from_millis(1);

/// Millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Ppm(pub f64);

/// Two clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// The clock of the point next to the chain's beginning…
    pub first: u32,
    /// …and the other one.
    pub second: u32,
    /// When the offset is this one, by the first clock: in the middle of the time that both ways
    /// tell of.
    pub at: Time,
    /// The second clock less the first one; none where bytes went one way only.
    pub offset: Option<Difference>,
    /// How much faster the second clock is; none where there is too little to tell.
    pub drift: Option<Ppm>,
    /// The true offset at [`Self::at`] differs by no more, whatever the delays of both ways are, if
    /// the drift is right: a wrong one adds its error in half of the time that was seen. None where the clocks are not steady or the offset is not known.
    pub bound: Option<Span>,
    /// How far parts of the time contradict the offset and the drift, beyond what delays that vary
    /// can make of it; none where too few parts have both ways.
    pub residual: Option<Span>,
    /// No line at all fits, or none without a large residual: a clock was set in between.
    pub is_steady: bool,
    /// How many samples there were from the first to the second, and back.
    pub samples: [u64; 2],
}

/// When the same bytes passed the first point and the second one, by the clock of each.
pub type Times = (Time, Time);

impl Clock {
    /// Of what went from the first point to the second, and of what went back. None without either.
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
            .all(|points| points.is_empty() || points.len() >= LEAST_SAMPLES)
            .then(|| fit.slope())
            .flatten();
        let between = fit.room(slope, middle);
        let offset = between.map(|(below, above)| below / 2 + above / 2);
        let residual = offset.zip(slope).and_then(|(offset, slope)| {
            residual(&both, fit.common()?, |x| line(offset, slope, x, middle))
        });
        let room = between.map(|(below, above)| (above / 2).saturating_sub(below / 2));
        let is_steady = fit.is_apart()
            && residual.is_none_or(|residual| {
                let bound = Span::from_nanos(room.unwrap_or_default().max(0) as u64);
                residual <= NOISE.max(Span::from_nanos(bound.as_nanos() / 4))
            });
        // Halves are rounded down.
        let bound = room.and_then(|room| u64::try_from(room.saturating_add(1)).ok());
        Some(Self {
            first: clocks[0],
            second: clocks[1],
            at: start + Span::from_nanos(middle.max(0) as u64),
            offset: offset.map(Difference::from_nanos),
            // A line as steep as a clock never is says that this is no drift.
            drift: slope.filter(|slope| slope.abs() < MOST_DRIFT).map(|slope| Ppm(slope * 1e6)),
            bound: bound.map(Span::from_nanos).filter(|_| is_steady),
            residual,
            is_steady,
            samples: both.map(|points| points.len() as u64),
        })
    }

    /// The second clock less the first one at a time of the first one.
    pub fn lead(&self, at: Time) -> Option<Difference> {
        self.offset.map(|offset| offset.plus(self.drifted(at)))
    }

    /// What the second clock gained since [`Self::at`].
    pub fn drifted(&self, at: Time) -> Difference {
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

/// What is below all that went forth, and above all that went back.
struct Fit {
    hulls: [Option<Hull>; 2],
}

impl Fit {
    fn all(&self) -> impl Iterator<Item = &Hull> {
        self.hulls.iter().flatten()
    }

    /// The time that both tell of.
    fn common(&self) -> Option<(i64, i64)> {
        let from = self.all().filter_map(Hull::range).map(|range| range.0).max()?;
        let to = self.all().filter_map(Hull::range).map(|range| range.1).min()?;
        (from <= to).then_some((from, to))
    }

    fn middle(&self) -> i64 {
        self.common().map_or(0, |(from, to)| from + (to - from) / 2)
    }

    /// The offset is at least, and at most.
    fn between(&self, x: i64) -> Option<(i64, i64)> {
        let [forth, back] = &self.hulls;
        Some((back.as_ref()?.at(x)?, forth.as_ref()?.at(x)?))
    }

    /// The same, if the drift is known: by lines of that slope, which all of the time has a part in,
    /// and not only what is near.
    fn room(&self, slope: Option<f64>, x: i64) -> Option<(i64, i64)> {
        let between = self.between(x)?;
        let [Some(forth), Some(back)] = &self.hulls else { return None };
        let Some(slope) = slope.filter(|slope| slope.abs() < MOST_DRIFT) else {
            return Some(between);
        };
        let room = (back.tangent(slope, x), forth.tangent(slope, x));
        Some(if room.0 <= room.1 { room } else { between })
    }

    /// A straight line has room between the hulls: wherever one of them has a corner, that of what
    /// went forth is above the other.
    fn is_apart(&self) -> bool {
        let corners = self.all().flat_map(|hull| hull.corners());
        corners
            .filter_map(|(x, _)| self.between(*x))
            .chain(self.between(self.middle()))
            .all(|(below, above)| below <= above)
    }

    /// The slope of the two lines, one below and one above, that all points are nearest to. The
    /// distance is convex in the slope, and its least is where one line lies on a hull.
    ///
    /// A way with a queue that grows all the time says little of clocks, so each way counts by how
    /// near a line of its own can be to it.
    fn slope(&self) -> Option<f64> {
        let (from, to) = self.common()?;
        if to.saturating_sub(from) < LEAST_BASE {
            return None;
        }
        let mut slopes: Vec<f64> = self
            .all()
            .flat_map(Hull::slopes)
            .filter(|slope| slope.abs() < MOST_DRIFT)
            .chain([-MOST_DRIFT, MOST_DRIFT])
            .collect();
        slopes.sort_by(f64::total_cmp);
        let nearest = |growth: &dyn Fn(f64) -> f64| {
            let at = slopes.partition_point(|slope| growth(*slope) < 0.0);
            slopes.get(at).copied().unwrap_or(MOST_DRIFT)
        };
        let weighed: Vec<(&Hull, f64)> = self
            .all()
            .map(|hull| (hull, hull.distance(nearest(&|slope| hull.growth(slope)))))
            .map(|(hull, distance)| (hull, 1.0 / distance.max(1.0)))
            .collect();
        Some(nearest(&|slope| {
            weighed.iter().map(|(hull, weight)| hull.growth(slope) * weight).sum()
        }))
    }
}

fn line(offset: i64, slope: f64, x: i64, middle: i64) -> i64 {
    offset.saturating_add((slope * (x.saturating_sub(middle)) as f64) as i64)
}

/// The most that a part's own offset differs from the line, less what longer delays of the part can
/// make of it: a queue in one way moves the middle by half of what it adds to the round trip.
///
/// The shortest round trip is that of much shorter parts, and the second one of those: in the part
/// in which a clock was set, one way may seem shorter than it ever was.
fn residual(
    both: &[Vec<(i64, i64)>; 2],
    common: (i64, i64),
    line: impl Fn(i64) -> i64,
) -> Option<Span> {
    let mut halves: Vec<i64> =
        parts(both, common, PARTS * PARTS, &line).iter().map(|(_, half)| *half).collect();
    halves.sort_unstable();
    let shortest = *halves.get(1)?;
    let parts = parts(both, common, PARTS, &line);
    let beyond = parts.iter().map(|(middle, half)| {
        middle.saturating_abs().saturating_sub(half.saturating_sub(shortest).max(0))
    });
    let beyond = beyond.max().filter(|_| parts.len() > 1)?;
    Some(Span::from_nanos(beyond.max(0) as u64))
}

/// For parts of the time in which both ways have samples: how far the middle between the shortest
/// delays of both is from the line, and half of the shortest round trip.
fn parts(
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
        let Some(least) = part(*x).and_then(|part| least.get_mut(part)) else { continue };
        let y = y.saturating_sub(line(*x));
        *least = Some(least.map_or(y, |least| least.min(y)));
    }
    for (x, y) in back {
        let Some(most) = part(*x).and_then(|part| most.get_mut(part)) else { continue };
        let y = y.saturating_sub(line(*x));
        *most = Some(most.map_or(y, |most| most.max(y)));
    }
    let both = least.iter().zip(&most).filter_map(|(least, most)| least.zip(*most));
    both.map(|(least, most)| (least / 2 + most / 2, (least / 2).saturating_sub(most / 2))).collect()
}

#[cfg(test)]
mod tests;
