//! Deterministic randomness: the order of a round and the shape of a page depend only on a seed.

use manyways_unit::Random;

/// FNV-1a. The inputs are not hostile, so a keyed hash is not needed.
pub fn hash(text: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Returns a number in `0..end`; `end` must not be zero.
pub fn below(random: &mut Random, end: usize) -> usize {
    (random.next_u64() % end as u64) as usize
}

/// Returns a sample of the standard normal distribution (Box and Muller).
pub fn normal(random: &mut Random) -> f64 {
    let (radius, turn) = (1.0 - random.uniform(), random.uniform());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * turn).cos()
}

/// Fisher-Yates shuffle; the order depends only on `seed`.
pub fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut random = Random::new(seed);
    for left in (1..items.len()).rev() {
        items.swap(left, below(&mut random, left + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_depends_on_the_seed_alone_and_loses_nobody() {
        let order = |seed| {
            let mut items: Vec<u32> = (0..10).collect();
            shuffle(&mut items, seed);
            items
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let mut sorted = order(3);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn normal_numbers_lie_around_zero_with_deviation_one() {
        let mut random = Random::new(1);
        let all: Vec<f64> = (0..10_000).map(|_| normal(&mut random)).collect();
        let mean = all.iter().sum::<f64>() / 10_000.0;
        let square = all.iter().map(|one| one * one).sum::<f64>() / 10_000.0;
        assert!(mean.abs() < 0.05 && (square - 1.0).abs() < 0.1, "{mean}, {square}");
    }
}
