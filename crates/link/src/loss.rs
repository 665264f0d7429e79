//! Decides which packets the wire loses.

use manyways_trace::scenario::LossSpec;

use manyways_unit::Random;

/// Decides for each packet, in the order in which packets leave the wire.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    spec: LossSpec,
    /// Gilbert-Elliott: whether the wire is in its bad state.
    bad: bool,
    random: Random,
}

impl Loss {
    pub fn new(spec: LossSpec, random: Random) -> Self {
        Self { spec, bad: false, random }
    }

    /// Sets the loss model from the next packet; a Gilbert-Elliott model starts in its good state.
    pub fn set(&mut self, spec: LossSpec) {
        self.spec = spec;
        self.bad = false;
    }

    /// Whether no packet can be lost.
    pub fn is_none(&self) -> bool {
        matches!(self.spec, LossSpec::None)
    }

    /// Returns whether the next packet is lost.
    pub fn draw(&mut self) -> bool {
        match self.spec {
            LossSpec::None => false,
            LossSpec::Independent(probability) => self.random.chance(probability),
            LossSpec::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                let leave = if self.bad { to_good } else { to_bad };
                self.bad ^= self.random.chance(leave);
                self.random.chance(if self.bad { loss_bad } else { loss_good })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(spec: LossSpec, n: usize) -> Vec<bool> {
        let mut loss = Loss::new(spec, Random::new(42));
        (0..n).map(|_| loss.draw()).collect()
    }

    fn share(lost: &[bool]) -> f64 {
        lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64
    }

    #[test]
    fn independent_loss_has_its_probability() {
        // Standard deviation: sqrt(0.01 × 0.99 / 100,000) = 0.0003.
        let lost = draws(LossSpec::Independent(0.01), 100_000);
        assert!((share(&lost) - 0.01).abs() < 0.0015, "{}", share(&lost));
        assert_eq!(share(&draws(LossSpec::None, 1_000)), 0.0);
        assert_eq!(share(&draws(LossSpec::Independent(1.0), 1_000)), 1.0);
    }

    #[test]
    fn gilbert_elliott_loses_in_bursts() {
        let spec =
            LossSpec::GilbertElliott { to_bad: 0.01, to_good: 0.25, loss_good: 0.0, loss_bad: 1.0 };
        let lost = draws(spec, 200_000);
        // Share of time in the bad state: 0.01 / (0.01 + 0.25) = 3.85 %.
        assert!((share(&lost) - 0.0385).abs() < 0.004, "{}", share(&lost));
        // A period in the bad state lasts 1 / 0.25 = 4 packets on average.
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let mean = lost.iter().filter(|lost| **lost).count() as f64 / bursts as f64;
        assert!((mean - 4.0).abs() < 0.3, "{mean}");
    }

    #[test]
    fn the_state_moves_before_the_packet() {
        let always = |loss_good, loss_bad| {
            let spec = LossSpec::GilbertElliott { to_bad: 1.0, to_good: 1.0, loss_good, loss_bad };
            draws(spec, 4)
        };
        assert_eq!(always(0.0, 1.0), [true, false, true, false]);
        assert_eq!(always(1.0, 0.0), [false, true, false, true]);
    }
}
