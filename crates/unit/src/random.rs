//! Seeded randomness: the same seed produces the same experiment on every machine.

/// A small random generator (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014). Sufficient for simulated losses, unsuitable for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Creates the generator of one purpose among several that share a seed. Purposes draw
    /// independently, so that enabling one does not change the others.
    pub fn for_purpose(seed: u64, purpose: u64) -> Self {
        let mut parent = Self::new(seed);
        let mixed = parent.next_u64();
        Self::new(Self::new(mixed ^ purpose.wrapping_mul(GOLDEN_GAMMA)).next_u64())
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a uniform number from 0 (included) to 1 (excluded).
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns true with the given probability: never for 0 or NaN, always for 1.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// Returns a uniform number from 0 to `max`, both included.
    pub fn up_to(&mut self, max: u64) -> u64 {
        // The result is the high half of a product; its bias is below one in 2^64 / most.
        ((u128::from(self.next_u64()) * (u128::from(max) + 1)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // The first values of the reference implementation for seed 1234567.
        let mut random = Random::new(1_234_567);
        let seen = [random.next_u64(), random.next_u64(), random.next_u64()];
        assert_eq!(
            seen,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn streams_of_one_seed_differ() {
        let firsts: Vec<_> =
            (0..4).map(|purpose| Random::for_purpose(7, purpose).next_u64()).collect();
        for (i, first) in firsts.iter().enumerate() {
            assert!(!firsts[..i].contains(first));
        }
        assert_eq!(firsts[1], Random::for_purpose(7, 1).next_u64());
    }

    #[test]
    fn draws_cover_their_range() {
        let mut random = Random::new(1);
        let mut seen = [0_u32; 5];
        for _ in 0..50_000 {
            seen[random.up_to(4) as usize] += 1;
        }
        // 10,000 expected each; the standard deviation is 90.
        assert!(seen.iter().all(|n| (9_500..10_500).contains(n)), "{seen:?}");
        assert!((0..1000).all(|_| !random.chance(0.0) && random.chance(1.0)));
        assert!(!random.chance(f64::NAN));
        random.up_to(u64::MAX);
    }
}
