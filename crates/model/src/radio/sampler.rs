//! Random numbers from the distributions that traffic models use.

use manyways_unit::Random;

/// A distribution. Values are not negative if the parameters are not.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Sampler {
    /// A constant.
    Constant(f64),
    /// Between the first and the second value.
    Uniform(f64, f64),
    /// Exponential, capped at `max`: intervals between independent events.
    Exponential {
        /// Mean before the cap.
        mean: f64,
        max: f64,
    },
    /// Log-normal, capped at `max`: sizes, and reaction times of users.
    LogNormal {
        median: f64,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
        max: f64,
    },
    /// Pareto, capped at `max`: heavy-tailed sizes.
    Pareto {
        /// Scale: the smallest value.
        scale: f64,
        /// Exponent; a smaller one gives a heavier tail.
        shape: f64,
        max: f64,
    },
    /// The first distribution with this probability, otherwise the second.
    Mixture(f64, &'static Sampler, &'static Sampler),
}

impl Sampler {
    /// Draws a value.
    pub fn sample(&self, random: &mut Random) -> f64 {
        match *self {
            Self::Constant(value) => value,
            Self::Uniform(least, most) => least + (most - least) * random.uniform(),
            Self::Exponential { mean, max: most } => {
                (-mean * positive_uniform(random).ln()).min(most)
            }
            Self::LogNormal { median, sigma, max: most } => {
                (median * (sigma * normal(random)).exp()).min(most)
            }
            Self::Pareto { scale: least, shape, max: most } => {
                (least * positive_uniform(random).powf(-1.0 / shape)).min(most)
            }
            Self::Mixture(chance, one, other) => {
                let which = if random.chance(chance) { one } else { other };
                which.sample(random)
            }
        }
    }
}

/// Uniform in (0, 1].
fn positive_uniform(random: &mut Random) -> f64 {
    1.0 - random.uniform()
}

/// A standard normal value (Box and Muller, Annals of Mathematical Statistics, 1958).
fn normal(random: &mut Random) -> f64 {
    (-2.0 * positive_uniform(random).ln()).sqrt() * (std::f64::consts::TAU * random.uniform()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(sampler: &Sampler) -> Vec<f64> {
        let mut random = Random::new(1);
        let mut all: Vec<f64> = (0..40_000).map(|_| sampler.sample(&mut random)).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    fn at(sorted: &[f64], share: f64) -> f64 {
        sorted[(share * sorted.len() as f64) as usize]
    }

    /// Within 2 %: five times the standard error of a quantile of 40 000 values.
    fn is_about(seen: f64, wanted: f64) -> bool {
        (seen / wanted - 1.0).abs() < 0.02
    }

    #[test]
    fn quantiles_are_those_of_the_distribution() {
        let exponential = drawn(&Sampler::Exponential { mean: 3.0, max: 1e9 });
        assert!(is_about(at(&exponential, 0.5), 3.0 * 2.0_f64.ln()));
        assert!(is_about(at(&exponential, 0.9), 3.0 * 10.0_f64.ln()));
        let log_normal = drawn(&Sampler::LogNormal { median: 5.0, sigma: 0.7, max: 1e9 });
        assert!(is_about(at(&log_normal, 0.5), 5.0));
        assert!(is_about(at(&log_normal, 0.841_345), 5.0 * 0.7_f64.exp()));
        let pareto = drawn(&Sampler::Pareto { scale: 2.0, shape: 1.5, max: 1e9 });
        assert!(is_about(at(&pareto, 0.5), 2.0 * 2.0_f64.powf(1.0 / 1.5)));
        assert!(is_about(at(&pareto, 0.95), 2.0 * 20.0_f64.powf(1.0 / 1.5)));
        assert!(is_about(at(&drawn(&Sampler::Uniform(10.0, 20.0)), 0.25), 12.5));
    }

    #[test]
    fn no_value_exceeds_the_maximum() {
        for sampler in [
            Sampler::Exponential { mean: 3.0, max: 4.0 },
            Sampler::LogNormal { median: 3.0, sigma: 1.0, max: 4.0 },
            Sampler::Pareto { scale: 3.0, shape: 1.0, max: 4.0 },
        ] {
            let all = drawn(&sampler);
            assert_eq!(all[all.len() - 1], 4.0, "{sampler:?}");
            assert!(all[0] > 0.0, "{sampler:?}");
        }
    }

    #[test]
    fn either_is_drawn_with_its_probability() {
        const FEW: Sampler = Sampler::Constant(1.0);
        const MANY: Sampler = Sampler::Constant(2.0);
        let ones = drawn(&Sampler::Mixture(0.25, &FEW, &MANY));
        let ones = ones.iter().filter(|one| **one == 1.0).count();
        assert!((9_700..10_300).contains(&ones), "{ones}");
    }
}
