//! Deterministic randomness: the order of a round and the shape of a page depend only on a seed.

/// FNV-1a. The inputs are not hostile, so a keyed hash is not needed.
pub fn hash(text: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// `SplitMix64`.
pub struct Dice(u64);

impl Dice {
    /// Equal seeds give equal sequences.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `0..end`; `end` must not be zero.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns a number in `[0, 1)`.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a sample of the standard normal distribution (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let (radius, turn) = (1.0 - self.share(), self.share());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * turn).cos()
    }
}

/// Fisher-Yates shuffle; the order depends only on `seed`.
pub fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut dice = Dice::new(seed);
    for left in (1..items.len()).rev() {
        items.swap(left, dice.below(left + 1));
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
        let mut dice = Dice::new(1);
        let all: Vec<f64> = (0..10_000).map(|_| dice.normal()).collect();
        let mean = all.iter().sum::<f64>() / 10_000.0;
        let square = all.iter().map(|one| one * one).sum::<f64>() / 10_000.0;
        assert!(mean.abs() < 0.05 && (square - 1.0).abs() < 0.1, "{mean}, {square}");
    }
}
