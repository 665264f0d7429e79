//! Histogram buckets whose width is proportional to their values: few buckets cover all numbers.

/// Returns the index of the bucket that contains `number`. Each doubling has 2^`fineness` buckets.
pub fn index(number: u64, fineness: u32) -> u16 {
    let doubling = number.checked_ilog2().unwrap_or(0).saturating_sub(fineness);
    // The leading bits of `number`, and the number of doublings.
    ((u64::from(doubling) << fineness) + (number >> doubling)) as u16
}

/// Returns the lower bound of a bucket; `u64::MAX` for indexes after the last bucket.
pub fn lower_bound(index: u16, fineness: u32) -> u64 {
    let doubling = (u32::from(index) >> fineness).saturating_sub(1);
    let within = u64::from(index) - (u64::from(doubling) << fineness);
    u64::try_from(u128::from(within) << doubling.min(64)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_is_in_its_range(number: u64, fineness in 0_u32..=6) {
            let place = index(number, fineness);
            prop_assert!(lower_bound(place, fineness) <= number);
            let end = lower_bound(place + 1, fineness);
            prop_assert!(number < end || end == u64::MAX);
            let width = end - lower_bound(place, fineness);
            prop_assert!(width == 1 || width <= number.max(1) >> fineness);
        }
    }
}
