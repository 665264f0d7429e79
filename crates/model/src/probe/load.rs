//! Round trips of an idle and of a loaded network: the delay of its queues.

use manyways_unit::{Span, quantile};

/// Additional delay under load from which a network counts as one with too large buffers.
pub const BUFFERBLOAT: Span = Span::from_millis(30);
/// Fewest round trips of a verdict.
const MIN_SAMPLES: usize = 5;
/// Share of the largest round trips that the responsiveness leaves out.
const TRIMMED: f64 = 0.05;

/// Round trips under one load, and what they show.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LoadSummary {
    /// Median without load.
    pub idle: Span,
    /// Median under load.
    pub loaded: Span,
    /// Round trips per minute under load: of the mean without the largest 5 %, as in the trimmed mean
    /// of draft-ietf-ippm-responsiveness, but of one kind of round trips.
    pub responsiveness: f64,
}

impl LoadSummary {
    /// Compares round trips without and with load; `None` if one has fewer than five.
    pub fn of(idle: &[Span], loaded: &[Span]) -> Option<Self> {
        let sorted = |spans: &[Span]| {
            let mut spans = spans.to_vec();
            spans.sort_unstable();
            (spans.len() >= MIN_SAMPLES).then_some(spans)
        };
        let (idle, loaded) = (sorted(idle)?, sorted(loaded)?);
        let kept = loaded.len() - (loaded.len() as f64 * TRIMMED) as usize;
        let mean = super::round_trips::mean(&loaded[..kept])?.as_secs_f64();
        Some(Self {
            idle: quantile::of_sorted(&idle, 0.5)?,
            loaded: quantile::of_sorted(&loaded, 0.5)?,
            responsiveness: if mean > 0.0 { 60.0 / mean } else { 0.0 },
        })
    }

    /// Delay of the queues that the load fills.
    pub fn queueing(&self) -> Span {
        self.loaded.saturating_sub(self.idle)
    }

    /// The delay of the queues if it is so large that calls and games suffer.
    pub fn bufferbloat(&self) -> Option<Span> {
        Some(self.queueing()).filter(|delay| *delay >= BUFFERBLOAT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(each: impl IntoIterator<Item = u64>) -> Vec<Span> {
        each.into_iter().map(Span::from_millis).collect()
    }

    #[test]
    fn the_queue_is_the_difference_of_the_medians() {
        let found = LoadSummary::of(&millis([20, 21, 22, 20, 90]), &millis(161..=180)).unwrap();
        assert_eq!((found.idle, found.loaded), (Span::from_millis(21), Span::from_millis(170)));
        assert_eq!(found.bufferbloat(), Some(Span::from_millis(149)));
        // Without the largest of twenty: 170 ms on average.
        assert!((found.responsiveness - 60.0 / 0.17).abs() < 1e-6, "{found:?}");
        let short = LoadSummary::of(&millis([20; 5]), &millis([49; 5])).unwrap();
        assert_eq!((short.queueing(), short.bufferbloat()), (Span::from_millis(29), None));
    }

    #[test]
    fn a_few_round_trips_are_no_verdict() {
        assert_eq!(LoadSummary::of(&millis([20; 5]), &millis([40; 4])), None);
        assert_eq!(LoadSummary::of(&[], &[]), None);
        let faster = LoadSummary::of(&millis([20; 5]), &millis([10; 5])).unwrap();
        assert_eq!(faster.queueing(), Span::ZERO);
    }
}
