//! Spans of time, of which a few are kept.

use manyways_trace::Span;

/// So many are kept. The median of so many differs from that of all by an eighth of their standard
/// deviation or less in two of three cases.
const KEPT: usize = 256;

/// How long something took, each time. The shortest one is exact; others come from a sample in
/// which each has the same chance (Vitter's algorithm R), the same one in every run.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// In microseconds: a flow keeps many of these.
    kept: Vec<u32>,
    count: u64,
    least: Option<Span>,
}

impl Samples {
    /// One more.
    pub fn push(&mut self, span: Span) {
        self.least = Some(self.least.map_or(span, |least| least.min(span)));
        let micros = u32::try_from((span.as_nanos() + 500) / 1_000).unwrap_or(u32::MAX);
        self.count += 1;
        if self.kept.len() < KEPT {
            self.kept.push(micros);
            return;
        }
        let place = scatter(self.count) % self.count;
        if let Some(kept) = usize::try_from(place).ok().and_then(|place| self.kept.get_mut(place)) {
            *kept = micros;
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The shortest.
    pub fn least(&self) -> Option<Span> {
        self.least
    }

    /// The one that half of them are shorter than, to a microsecond.
    pub fn median(&self) -> Option<Span> {
        let mut kept = self.kept.clone();
        let middle = kept.len() / 2;
        if kept.is_empty() {
            return None;
        }
        let (below, upper, _) = kept.select_nth_unstable(middle);
        let upper = u64::from(*upper);
        let lower = match (middle * 2 == self.kept.len(), below.iter().max()) {
            (true, Some(lower)) => u64::from(*lower),
            _ => upper,
        };
        Some(Span::from_nanos((lower + upper) * 500))
    }
}

/// A number that looks like a random one (the last step of SplitMix64).
fn scatter(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(millis: impl IntoIterator<Item = u64>) -> Samples {
        let mut samples = Samples::default();
        millis.into_iter().for_each(|millis| samples.push(Span::from_millis(millis)));
        samples
    }

    #[test]
    fn few_are_exact() {
        let none = Samples::default();
        assert_eq!((none.count(), none.least(), none.median()), (0, None, None));
        let odd = of([30, 10, 20]);
        assert_eq!(odd.median(), Some(Span::from_millis(20)));
        assert_eq!((odd.count(), odd.least()), (3, Some(Span::from_millis(10))));
        assert_eq!(of([40, 10, 20, 30]).median(), Some(Span::from_millis(25)));
        assert_eq!(of([7]).median(), Some(Span::from_millis(7)));
    }

    #[test]
    fn of_many_each_has_the_same_chance() {
        let many = of(0..100_000);
        assert_eq!((many.count(), many.least()), (100_000, Some(Span::ZERO)));
        let median = many.median().unwrap().as_millis_f64();
        // The standard deviation of a median of 256 of these is some 3,100.
        assert!((median - 50_000.0).abs() < 10_000.0, "{median}");
        // Late ones are in it as well as early ones.
        let halves = of((0..50_000).map(|_| 1).chain((0..50_000).map(|_| 3)));
        let early = halves.kept.iter().filter(|micros| **micros == 1_000).count();
        assert!((90..166).contains(&early), "{early} of 256");
    }
}
