//! Current growth rate of a size.

use std::collections::VecDeque;

use manyways_unit::{Rate, Size, Span};

/// Period over which the rate is averaged.
const WINDOW: Span = Span::from_secs(2);
/// Time without growth after which there is no rate.
const RATE_TIMEOUT: Span = Span::from_secs(1);

/// Samples of a growing size.
#[derive(Default)]
pub struct RateMeter {
    /// Time and size of each sample; the first one is as old as the window.
    samples: VecDeque<(Span, Size)>,
    last_growth: Option<Span>,
}

impl RateMeter {
    /// Adds a sample.
    pub fn observe(&mut self, now: Span, size: Size) {
        if self.samples.back().is_some_and(|(_, before)| size > *before) {
            self.last_growth = Some(now);
        }
        self.samples.push_back((now, size));
        while self.samples.get(1).is_some_and(|(at, _)| *at + WINDOW <= now) {
            self.samples.pop_front();
        }
    }

    /// The current rate; `None` without growth.
    pub fn rate(&self, now: Span) -> Option<Rate> {
        let silent = self.last_growth.is_none_or(|grew| now - grew >= RATE_TIMEOUT);
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        (!silent).then(|| Rate::of(last.1 - first.1, last.0 - first.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_rate_before_the_first_byte_nor_in_a_silence() {
        let mut pace = RateMeter::default();
        let ms = Span::from_millis;
        assert_eq!(pace.rate(Span::ZERO), None);
        pace.observe(ms(0), Size::ZERO);
        pace.observe(ms(100), Size::ZERO);
        assert_eq!(pace.rate(ms(100)), None);
        for tick in 2..=30 {
            pace.observe(ms(100 * tick), Size::from_bytes(100_000 * tick));
        }
        assert_eq!(pace.rate(ms(3_000)), Some(Rate::from_mbps(8)));
        for tick in 31..=39 {
            pace.observe(ms(100 * tick), Size::from_bytes(3_000_000));
        }
        let falling = pace.rate(ms(3_900));
        assert!(falling.is_some_and(|rate| rate < Rate::from_mbps(5)), "{falling:?}");
        pace.observe(ms(4_000), Size::from_bytes(3_000_000));
        assert_eq!(pace.rate(ms(4_000)), None);
        pace.observe(ms(4_100), Size::from_bytes(3_100_000));
        assert!(pace.rate(ms(4_100)).is_some());
    }
}
