//! Quantiles of samples that are all in memory. For samples that are too many to keep, see
//! [`crate::log_buckets`] and [`crate::Samples`].

/// The number, counted from 1, of the smallest of `count` sorted samples that at least `share` of
/// them do not exceed: the nearest-rank method. At least 1, also where there is no sample.
pub fn nearest_rank(count: u64, share: f64) -> u64 {
    ((share * count as f64).ceil() as u64).clamp(1, count.max(1))
}

/// The sample of [`nearest_rank`]; `None` where there is no sample.
pub fn of_sorted<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    sorted.get(nearest_rank(sorted.len() as u64, share) as usize - 1).copied()
}

/// The quantile on the straight line between the two samples next to it, method 7 of Hyndman and
/// Fan (1996): half of `[1.0, 2.0]` is 1.5. Infinite next to a smaller sample is infinite. `None`
/// where there is no sample.
pub fn interpolated(sorted: &[f64], share: f64) -> Option<f64> {
    let place = sorted.len().checked_sub(1)? as f64 * share.clamp(0.0, 1.0);
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    // The difference of two infinite samples is not a number.
    Some(if below == above { below } else { below + (above - below) * place.fract() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_rank_is_one_of_the_samples() {
        let hundred: Vec<u32> = (1..=100).collect();
        assert_eq!(of_sorted(&hundred, 0.95), Some(95));
        assert_eq!(of_sorted(&hundred, 0.991), Some(100));
        assert_eq!(of_sorted(&hundred, 1.0), Some(100));
        assert_eq!(of_sorted(&[7], 0.0), Some(7));
        assert_eq!(of_sorted::<u32>(&[], 0.5), None);
    }

    #[test]
    fn an_interpolated_quantile_lies_between_its_neighbours() {
        assert_eq!(interpolated(&[], 0.5), None);
        assert_eq!(interpolated(&[7.0], 0.25), Some(7.0));
        let four = [1.0, 2.0, 3.0, 4.0];
        let at = [0.0, 0.25, 0.5, 1.0].map(|share| interpolated(&four, share));
        assert_eq!(at, [1.0, 1.75, 2.5, 4.0].map(Some));
    }

    #[test]
    fn an_interpolated_quantile_of_infinite_samples_is_infinite() {
        let samples = [1.0, 2.0, f64::INFINITY, f64::INFINITY];
        let at = [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| interpolated(&samples, share));
        assert_eq!(at, [1.0, 1.75, f64::INFINITY, f64::INFINITY, f64::INFINITY].map(Some));
    }
}
