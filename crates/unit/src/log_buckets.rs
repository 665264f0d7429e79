//! Ranges that are as wide as a part of what is in them, so that few of them hold any number.

/// Which range a number is in, where each doubling has 2^`fineness` of them.
pub fn place(number: u64, fineness: u32) -> u16 {
    let doubling = number.checked_ilog2().unwrap_or(0).saturating_sub(fineness);
    // The bits behind the first of its doubling, and how many doublings there were.
    ((u64::from(doubling) << fineness) + (number >> doubling)) as u16
}

/// Where a range begins; behind the last one, the largest number.
pub fn beginning(place: u16, fineness: u32) -> u64 {
    let doubling = (u32::from(place) >> fineness).saturating_sub(1);
    let within = u64::from(place) - (u64::from(doubling) << fineness);
    u64::try_from(u128::from(within) << doubling.min(64)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_is_in_its_range(number: u64, fineness in 0_u32..=6) {
            let place = place(number, fineness);
            prop_assert!(beginning(place, fineness) <= number);
            let end = beginning(place + 1, fineness);
            prop_assert!(number < end || end == u64::MAX);
            let width = end - beginning(place, fineness);
            prop_assert!(width == 1 || width <= number.max(1) >> fineness);
        }
    }
}
