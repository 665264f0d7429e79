//! Numbers by chance, of the kinds that traffic has.

use manyways_unit::Random;

/// How a number is drawn. All are at least zero where their parameters are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Draw {
    /// Always this.
    Always(f64),
    /// Anything between the two.
    Uniform(f64, f64),
    /// Exponential, cut off at `most`: waiting times between things that do not know each other.
    Exponential {
        /// Before it is cut off.
        mean: f64,
        /// What is above becomes this.
        most: f64,
    },
    /// Log-normal, cut off at `most`: sizes, and the time that people take.
    LogNormal {
        /// The middle.
        median: f64,
        /// Standard deviation of its natural logarithm.
        sigma: f64,
        /// What is above becomes this.
        most: f64,
    },
    /// Pareto, cut off at `most`: the heavy tail.
    Pareto {
        /// Nothing is below.
        least: f64,
        /// Its exponent: the smaller, the heavier.
        shape: f64,
        /// What is above becomes this.
        most: f64,
    },
    /// The first with that probability, else the second.
    Either(f64, &'static Draw, &'static Draw),
}

impl Draw {
    /// Draws one.
    pub fn from(&self, random: &mut Random) -> f64 {
        match *self {
            Self::Always(value) => value,
            Self::Uniform(least, most) => least + (most - least) * random.unit(),
            Self::Exponential { mean, most } => (-mean * rest(random).ln()).min(most),
            Self::LogNormal { median, sigma, most } => {
                (median * (sigma * normal(random)).exp()).min(most)
            }
            Self::Pareto { least, shape, most } => {
                (least * rest(random).powf(-1.0 / shape)).min(most)
            }
            Self::Either(chance, one, other) => {
                let which = if random.chance(chance) { one } else { other };
                which.from(random)
            }
        }
    }
}

/// Uniform from 0 to 1, without 0.
fn rest(random: &mut Random) -> f64 {
    1.0 - random.unit()
}

/// Of mean 0 and standard deviation 1 (Box and Muller, Annals of Mathematical Statistics, 1958).
fn normal(random: &mut Random) -> f64 {
    (-2.0 * rest(random).ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(draw: &Draw) -> Vec<f64> {
        let mut random = Random::new(1);
        let mut all: Vec<f64> = (0..40_000).map(|_| draw.from(&mut random)).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    fn at(sorted: &[f64], share: f64) -> f64 {
        sorted[(share * sorted.len() as f64) as usize]
    }

    /// Within two in a hundred: the error of a quantile of 40,000 is a fifth of that.
    fn is_about(seen: f64, wanted: f64) -> bool {
        (seen / wanted - 1.0).abs() < 0.02
    }

    #[test]
    fn quantiles_are_those_of_the_distribution() {
        let exponential = drawn(&Draw::Exponential { mean: 3.0, most: 1e9 });
        assert!(is_about(at(&exponential, 0.5), 3.0 * 2.0_f64.ln()));
        assert!(is_about(at(&exponential, 0.9), 3.0 * 10.0_f64.ln()));
        let log_normal = drawn(&Draw::LogNormal { median: 5.0, sigma: 0.7, most: 1e9 });
        assert!(is_about(at(&log_normal, 0.5), 5.0));
        assert!(is_about(at(&log_normal, 0.841_345), 5.0 * 0.7_f64.exp()));
        let pareto = drawn(&Draw::Pareto { least: 2.0, shape: 1.5, most: 1e9 });
        assert!(is_about(at(&pareto, 0.5), 2.0 * 2.0_f64.powf(1.0 / 1.5)));
        assert!(is_about(at(&pareto, 0.95), 2.0 * 20.0_f64.powf(1.0 / 1.5)));
        assert!(is_about(at(&drawn(&Draw::Uniform(10.0, 20.0)), 0.25), 12.5));
    }

    #[test]
    fn nothing_is_beyond_the_most() {
        for draw in [
            Draw::Exponential { mean: 3.0, most: 4.0 },
            Draw::LogNormal { median: 3.0, sigma: 1.0, most: 4.0 },
            Draw::Pareto { least: 3.0, shape: 1.0, most: 4.0 },
        ] {
            let all = drawn(&draw);
            assert_eq!(all[all.len() - 1], 4.0, "{draw:?}");
            assert!(all[0] > 0.0, "{draw:?}");
        }
    }

    #[test]
    fn either_is_drawn_as_often_as_it_says() {
        const FEW: Draw = Draw::Always(1.0);
        const MANY: Draw = Draw::Always(2.0);
        let ones = drawn(&Draw::Either(0.25, &FEW, &MANY));
        let ones = ones.iter().filter(|one| **one == 1.0).count();
        assert!((9_700..10_300).contains(&ones), "{ones}");
    }
}
