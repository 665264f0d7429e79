//! Convex hull of points, from below or from above.

/// Larger coordinates are limited to this, so that a product of two fits in 128 bits.
const MAX_COORDINATE: i64 = 1 << 61;

/// Side of the points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Below,
    Above,
}

/// The hull on one side, as its corners from left to right.
#[derive(Clone, Debug)]
pub(super) struct Hull {
    corners: Vec<(i64, i64)>,
    side: Side,
    /// Mean of all points.
    mean: (f64, f64),
}

impl Hull {
    /// Computes the hull of points in any order. `None` without points.
    pub fn of(mut points: Vec<(i64, i64)>, side: Side) -> Option<Self> {
        if points.is_empty() {
            return None;
        }
        points.iter_mut().for_each(|(x, y)| {
            (*x, *y) = (
                (*x).clamp(-MAX_COORDINATE, MAX_COORDINATE),
                side.orient((*y).clamp(-MAX_COORDINATE, MAX_COORDINATE)),
            );
        });
        points.sort_unstable();
        points.dedup_by_key(|(x, _)| *x);
        let mean = |of: fn(&(i64, i64)) -> i64| {
            points.iter().map(|point| of(point) as f64).sum::<f64>() / points.len() as f64
        };
        let mean_y = mean(|(_, y)| *y);
        let mean = (mean(|(x, _)| *x), if side == Side::Below { mean_y } else { -mean_y });
        let mut corners: Vec<(i64, i64)> = Vec::new();
        for point in points {
            while let [.., before, last] = corners[..] {
                if !is_above(before, last, point) {
                    break;
                }
                corners.pop();
            }
            corners.push(point);
        }
        corners.iter_mut().for_each(|(_, y)| *y = side.orient(*y));
        Some(Self { corners, side, mean })
    }

    /// Returns the first and last `x`.
    pub fn range(&self) -> Option<(i64, i64)> {
        Some((self.corners.first()?.0, self.corners.last()?.0))
    }

    pub fn corners(&self) -> &[(i64, i64)] {
        &self.corners
    }

    /// Returns the height at `x`. `None` outside of the range.
    pub fn height_at(&self, x: i64) -> Option<i64> {
        let behind = self.corners.partition_point(|(place, _)| *place < x);
        let (next, y) = *self.corners.get(behind)?;
        if next == x {
            return Some(y);
        }
        let (before, from) = *self.corners.get(behind.checked_sub(1)?)?;
        let [rise, run] = [i128::from(y) - i128::from(from), i128::from(next) - i128::from(before)];
        let gone = i128::from(x) - i128::from(before);
        i64::try_from(i128::from(from) + rise * gone / run).ok()
    }

    /// Returns the slopes of the edges.
    pub fn slopes(&self) -> impl Iterator<Item = f64> {
        self.corners.windows(2).map(|pair| match pair {
            [from, to] => slope(*from, *to),
            _ => 0.0,
        })
    }

    /// Returns the height at `x` of the tangent with this slope.
    pub fn tangent(&self, slope: f64, x: i64) -> i64 {
        let (from, y) = self.tangent_corner(slope);
        y.saturating_add((slope * (x as f64 - from as f64)) as i64)
    }

    /// Returns the mean distance of all points from the tangent with this slope.
    pub fn distance(&self, slope: f64) -> f64 {
        let (x, y) = self.tangent_corner(slope);
        let (x, y) = (x as f64, y as f64);
        ((self.mean.1 - y) - slope * (self.mean.0 - x)).abs()
    }

    /// Returns the derivative of that distance, for a slightly larger slope.
    pub fn distance_slope(&self, slope: f64) -> f64 {
        let growth = self.tangent_corner(slope).0 as f64 - self.mean.0;
        if self.side == Side::Below { growth } else { -growth }
    }

    /// Returns the corner that a tangent with a slightly larger slope touches.
    fn tangent_corner(&self, steepness: f64) -> (i64, i64) {
        let passed = |pair: &(usize, f64)| match self.side {
            Side::Below => pair.1 <= steepness,
            Side::Above => pair.1 > steepness,
        };
        let passed = self.slopes().enumerate().take_while(passed).count();
        self.corners.get(passed).copied().unwrap_or_default()
    }
}

impl Side {
    fn orient(self, y: i64) -> i64 {
        match self {
            Self::Below => y,
            Self::Above => -y,
        }
    }
}

/// Whether the middle point is on the line between its neighbours, or above it.
fn is_above(before: (i64, i64), middle: (i64, i64), behind: (i64, i64)) -> bool {
    let [x, y] = [middle.0 - before.0, middle.1 - before.1].map(i128::from);
    let (to_x, to_y) =
        (i128::from(behind.0) - i128::from(before.0), i128::from(behind.1) - i128::from(before.1));
    y * to_x >= to_y * x
}

fn slope(from: (i64, i64), to: (i64, i64)) -> f64 {
    (to.1 as f64 - from.1 as f64) / (to.0 as f64 - from.0 as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hull_goes_below_or_above_all() {
        let points = vec![(4, 0), (0, 2), (1, 9), (2, 0), (3, 1), (4, 5), (8, 4), (6, 3), (6, 2)];
        let below = Hull::of(points.clone(), Side::Below).unwrap();
        assert_eq!(below.corners(), [(0, 2), (2, 0), (4, 0), (8, 4)]);
        assert_eq!(
            (below.height_at(1), below.height_at(5), below.height_at(8), below.height_at(9)),
            (Some(1), Some(1), Some(4), None)
        );
        assert_eq!(
            (
                below.tangent_corner(-0.5).0,
                below.tangent_corner(0.0).0,
                below.tangent_corner(2.0).0
            ),
            (2, 4, 8)
        );
        let above = Hull::of(points, Side::Above).unwrap();
        assert_eq!(above.corners(), [(0, 2), (1, 9), (8, 4)]);
        assert_eq!(
            (
                above.tangent_corner(-0.5).0,
                above.tangent_corner(-1.0).0,
                above.tangent_corner(8.0).0
            ),
            (1, 8, 0)
        );
        assert!(Hull::of(Vec::new(), Side::Below).is_none());
        let flat = Hull::of(vec![(0, 0), (2, 4), (4, 2)], Side::Below).unwrap();
        assert_eq!((flat.distance(0.0), flat.distance(0.5)), (2.0, 1.0));
    }

    #[test]
    fn no_number_is_too_large() {
        let most = vec![(i64::MIN, i64::MAX), (0, i64::MIN), (5, i64::MAX), (i64::MAX, i64::MAX)];
        for side in [Side::Below, Side::Above] {
            let hull = Hull::of(most.clone(), side).unwrap();
            let (from, to) = hull.range().unwrap();
            assert!(
                (-9..9).all(|part| hull.height_at(from / 9 * part).is_some() || from.max(to) > 0)
            );
            assert!(hull.slopes().all(f64::is_finite));
        }
    }
}
