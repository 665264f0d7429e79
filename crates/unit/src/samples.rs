//! Minimum and median of durations, in little memory.

use crate::{Span, log_buckets};

/// Up to this number, samples are stored exactly.
const MAX_EXACT: usize = 16;
/// Maximum number of ranges that are stored if there are more than [`MAX_EXACT`] samples.
const MAX_RANGES: usize = 64;
/// Ranges for each doubling, as a power of two: a range is 1.1 to 1.6 % wide.
const MAX_FINENESS: u32 = 6;
/// Minimum width of a range in nanoseconds, as a power of two.
const MIN_WIDTH_LOG2: u32 = 8;

/// Count, minimum and median of a duration. The minimum is exact, and so is the median of up to 16
/// samples (in microseconds). With more samples the error of the median is at most half a range,
/// 0.8 % of its value. If the samples spread over more than 64 ranges, the error doubles each time
/// the ranges are merged.
#[derive(Clone, Debug)]
pub struct Samples {
    min: Span,
    count: u32,
    fineness: u8,
    /// Number of cells in use.
    used: u8,
    /// Up to [`MAX_EXACT`] samples: microseconds. More: ranges in order, each with its index and
    /// count. The allocation grows in small steps, because every direction of every flow has
    /// `Samples`.
    cells: Box<[u32]>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    index: u16,
    count: u16,
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            min: Span::MAX,
            count: 0,
            fineness: MAX_FINENESS as u8,
            used: 0,
            cells: Box::default(),
        }
    }
}

impl Range {
    fn of(cell: u32) -> Self {
        Self { index: (cell >> 16) as u16, count: cell as u16 }
    }

    fn cell(self) -> u32 {
        u32::from(self.index) << 16 | u32::from(self.count)
    }
}

impl Samples {
    pub fn push(&mut self, span: Span) {
        self.min = self.min.min(span);
        let before = self.count as usize;
        self.count = self.count.saturating_add(1);
        if before < MAX_EXACT {
            self.insert(before, in_micros(span));
            return;
        }
        if before == MAX_EXACT {
            let all: Vec<u32> = self.used_cells().to_vec();
            self.used = 0;
            all.into_iter().for_each(|micros| self.add_to_range(Span::from_micros(micros.into())));
        }
        self.add_to_range(span);
    }

    /// Number of samples so far.
    pub fn count(&self) -> u64 {
        self.count.into()
    }

    /// Returns the minimum; `None` without samples.
    pub fn min(&self) -> Option<Span> {
        (self.count > 0).then_some(self.min)
    }

    /// Returns the median; `None` without samples.
    pub fn median(&self) -> Option<Span> {
        if self.count == 0 {
            return None;
        }
        if self.count as usize <= MAX_EXACT {
            let mut micros = [0; MAX_EXACT];
            let micros = &mut micros[..self.used_cells().len()];
            micros.copy_from_slice(self.used_cells());
            micros.sort_unstable();
            let two = [micros[(micros.len() - 1) / 2], micros[micros.len() / 2]];
            let nanos = two.into_iter().map(u64::from).sum::<u64>() * 500;
            // A duration below 1 µs is stored as 0; the minimum is exact.
            return Some(Span::from_nanos(nanos).max(self.min));
        }
        let ranges = || self.used_cells().iter().map(|cell| Range::of(*cell));
        let all: u64 = ranges().map(|range| u64::from(range.count)).sum();
        let at = |wanted: u64| {
            let mut before = 0;
            let is_it = |range: &Range| {
                before += u64::from(range.count);
                before > wanted
            };
            ranges().find(is_it).map_or(0, |range| range_middle(range.index, self.fineness))
        };
        let nanos = u64::midpoint(at((all - 1) / 2), at(all / 2));
        Some(Span::from_nanos(nanos).max(self.min))
    }

    fn used_cells(&self) -> &[u32] {
        &self.cells[..self.used.into()]
    }

    fn insert(&mut self, index: usize, cell: u32) {
        let used = usize::from(self.used);
        if used == self.cells.len() {
            let more = if used < MAX_EXACT { used + 2 } else { used * 2 };
            let mut more = vec![0; more];
            more[..used].copy_from_slice(&self.cells);
            self.cells = more.into();
        }
        if index < used {
            self.cells.copy_within(index..used, index + 1);
        }
        self.cells[index] = cell;
        self.used += 1;
    }

    fn add_to_range(&mut self, span: Span) {
        let place = range_index(span, self.fineness);
        let used = usize::from(self.used);
        match self.used_cells().binary_search_by_key(&place, |cell| Range::of(*cell).index) {
            Ok(index) => {
                if Range::of(self.cells[index]).count == u16::MAX {
                    // Halving all counts keeps the median.
                    for cell in &mut self.cells[..used] {
                        let Range { index: place, count } = Range::of(*cell);
                        *cell = Range { index: place, count: count - count / 2 }.cell();
                    }
                }
                self.cells[index] += 1;
            }
            Err(index) => {
                self.insert(index, Range { index: place, count: 1 }.cell());
                if usize::from(self.used) > MAX_RANGES {
                    self.coarsen();
                }
            }
        }
    }

    /// Merges neighbouring ranges in pairs.
    fn coarsen(&mut self) {
        let before = self.fineness;
        self.fineness = before.saturating_sub(1);
        let mut ranges: Vec<Range> =
            self.used_cells().iter().map(|cell| Range::of(*cell)).collect();
        for range in &mut ranges {
            range.index =
                range_index(Span::from_nanos(range_middle(range.index, before)), self.fineness);
        }
        ranges.dedup_by(|next, range| {
            let is_same = next.index == range.index;
            if is_same {
                range.count = range.count.saturating_add(next.count);
            }
            is_same
        });
        self.cells.iter_mut().zip(&ranges).for_each(|(cell, range)| *cell = range.cell());
        self.used = ranges.len() as u8;
    }
}

fn in_micros(span: Span) -> u32 {
    u32::try_from(span.as_nanos().saturating_add(500) / 1_000).unwrap_or(u32::MAX)
}

/// Returns the index of the range of a span. Each doubling has 2^fineness ranges.
fn range_index(span: Span, fineness: u8) -> u16 {
    log_buckets::index(span.as_nanos() >> MIN_WIDTH_LOG2, fineness.into())
}

/// Returns the middle of a range in nanoseconds.
fn range_middle(index: u16, fineness: u8) -> u64 {
    let begins = |place: u16| {
        log_buckets::lower_bound(place, fineness.into()).saturating_mul(1 << MIN_WIDTH_LOG2)
    };
    u64::midpoint(begins(index), begins(index.saturating_add(1)))
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
        assert_eq!((none.count(), none.min(), none.median()), (0, None, None));
        let odd = of([30, 10, 20]);
        assert_eq!(odd.median(), Some(Span::from_millis(20)));
        assert_eq!((odd.count(), odd.min()), (3, Some(Span::from_millis(10))));
        assert_eq!(of([40, 10, 20, 30]).median(), Some(Span::from_millis(25)));
        assert_eq!(of([7]).median(), Some(Span::from_millis(7)));
        let mut short = Samples::default();
        [310, 320, 330].into_iter().for_each(|nanos| short.push(Span::from_nanos(nanos)));
        assert_eq!(short.median(), Some(Span::from_nanos(310)), "never nothing");
    }

    /// Returns the relative error of the median.
    fn error(samples: &Samples, wanted: u64) -> f64 {
        let median = samples.median().unwrap().as_millis_f64();
        (median / wanted as f64 - 1.0).abs()
    }

    #[test]
    fn of_many_the_median_is_near() {
        // A round-trip time that varies by 10 %, in mixed order.
        for rtt in [1, 3, 10, 33, 250, 4_000_u64] {
            let mut samples = Samples::default();
            let spread = rtt * 100;
            for number in 0..10_001_u64 {
                let more = number * 7_919 % 10_001 * 2 * spread / 10_000;
                samples.push(Span::from_micros(rtt * 1_000 - spread + more));
            }
            assert!(error(&samples, rtt) < 0.009, "{rtt}: {:?}", samples.median());
            assert_eq!(samples.min(), Some(Span::from_micros(rtt * 900)));
            assert_eq!(samples.count(), 10_001);
        }
    }

    #[test]
    fn little_is_kept_however_they_spread() {
        let wide = of(0..100_000);
        assert!(wide.used_cells().len() <= MAX_RANGES && wide.cells.len() <= 2 * MAX_RANGES);
        assert_eq!((wide.count(), wide.min()), (100_000, Some(Span::ZERO)));
        assert!(error(&wide, 50_000) < 0.06, "{:?}", wide.median());
        let mut longest = of([1; 40]);
        [Span::MAX, Span::ZERO].into_iter().for_each(|span| longest.push(span));
        assert!(error(&longest, 1) < 0.009);
    }

    #[test]
    fn counts_that_are_full_are_halved() {
        let many = of((0..1_000_000).map(|number| if number % 5 < 2 { 10 } else { 20 }));
        assert!(error(&many, 20) < 0.009, "{:?}", many.median());
        let count = |cell: &u32| f64::from(Range::of(*cell).count);
        let counts: Vec<f64> = many.used_cells().iter().map(count).collect();
        assert!((counts[0] / counts[1] - 2.0 / 3.0).abs() < 0.02, "{counts:?}");
        // Earlier and later samples have the same weight.
        let of_each = [(10, 65_000), (20, 65_600), (30, 10_000)];
        let each = of_each.into_iter().flat_map(|(millis, count)| (0..count).map(move |_| millis));
        assert!(error(&of(each), 20) < 0.009);
    }
}
