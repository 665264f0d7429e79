//! How large the transfers of applications are, from those that have ended.
//!
//! The thesis (§3.2) takes 3 KB for a size that is unknown, and 100 KB for a chunked response: the
//! medians of its pages. Here an unknown size has a distribution: the sizes of earlier transfers of
//! the same application with the same host, or else of the host, the application or all.

use manyways_unit::{LruMap, Size, Span, Time, log_buckets};

use crate::radio::Direction;

/// Keys that are stored, at most; the one that was used least recently makes room.
const MAX_KEYS: usize = 4_096;
/// Time in which the weight of a transfer halves.
const HALF_LIFE: Span = Span::from_secs(14 * 86_400);
/// Weight of a key below which a less specific one answers.
const MIN_WEIGHT: f64 = 3.0;
/// Buckets to each doubling of a size are a power of two; this is its exponent.
const FINENESS: u32 = 1;
/// Weight of a bucket, at most.
const MAX_WEIGHT: f64 = 1e9;
/// A larger transfer counts as this.
const MAX_SIZE: Size = Size::from_bytes(1 << 36);

/// Application, host and direction of a transfer. The names are hashed by the caller, so that a file with this history
/// has none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HistoryKey {
    pub app: Option<u64>,
    pub host: Option<u64>,
    pub direction: Direction,
}

/// The key that answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Specificity {
    /// Nothing is known, so that the size is that of the thesis.
    Default,
    All,
    App,
    Host,
    AppAndHost,
}

/// A distribution of sizes.
#[derive(Clone, PartialEq, Debug)]
pub struct Sizes {
    /// Sizes with their probabilities; not empty.
    pub weighted: Vec<(Size, f64)>,
    pub specificity: Specificity,
}

/// The stored transfers of a key.
#[derive(Clone, PartialEq, Debug)]
pub struct HistoryEntry {
    pub key: HistoryKey,
    /// Time of the last transfer.
    pub at: Time,
    /// Bucket of the size and weight at `at`, in order of the size.
    pub buckets: Vec<(u16, f64)>,
}

/// Decayed numbers of transfers by size.
#[derive(Clone, PartialEq, Default, Debug)]
struct Counts {
    /// Bucket and weight at `at`, in order of the size.
    buckets: Vec<(u16, f64)>,
    at: Time,
}

/// The sizes of transfers that have ended.
#[derive(Clone, Default, Debug)]
pub struct History {
    keys: LruMap<HistoryKey, Counts>,
}

impl HistoryKey {
    /// The key, and the less specific ones.
    fn levels(self) -> impl Iterator<Item = (Self, Specificity)> {
        let Self { app, host, direction } = self;
        let with = |app, host| Self { app, host, direction };
        let both = app.and(host).map(|_| (self, Specificity::AppAndHost));
        let host = host.map(|host| (with(None, Some(host)), Specificity::Host));
        let app = app.map(|app| (with(Some(app), None), Specificity::App));
        [both, host, app, Some((with(None, None), Specificity::All))].into_iter().flatten()
    }
}

impl Sizes {
    /// One size, which is certain.
    pub fn known(size: Size) -> Self {
        Self { weighted: vec![(size, 1.0)], specificity: Specificity::AppAndHost }
    }

    /// The sizes of the thesis for a transfer that nothing is known of.
    pub fn unknown(is_chunked: bool) -> Self {
        let size = if is_chunked { 100_000 } else { 3_000 };
        Self { weighted: vec![(Size::from_bytes(size), 1.0)], specificity: Specificity::Default }
    }

    /// The sizes that are left after `passed` bytes, if the transfer goes on: those that would have
    /// ended before are excluded. `None` if all of them would.
    pub fn after(&self, passed: Size) -> Option<Self> {
        let left = self.weighted.iter().filter(|(size, _)| *size > passed);
        let weighted = left.map(|(size, weight)| (*size - passed, *weight)).collect();
        normalized(weighted, self.specificity)
    }

    /// The size that half of the transfers do not exceed.
    pub fn median(&self) -> Size {
        let mut sum = 0.0;
        let is_half = |(_, weight): &&(Size, f64)| {
            sum += weight;
            sum >= 0.5 - 1e-9
        };
        let last = self.weighted.last().map_or(Size::ZERO, |(size, _)| *size);
        self.weighted.iter().find(is_half).map_or(last, |(size, _)| *size)
    }
}

fn normalized(weighted: Vec<(Size, f64)>, specificity: Specificity) -> Option<Sizes> {
    let sum: f64 = weighted.iter().map(|(_, weight)| weight).sum();
    let weighted = weighted.into_iter().map(|(size, weight)| (size, weight / sum)).collect();
    (sum > 0.0).then_some(Sizes { weighted, specificity })
}

impl Counts {
    fn decay(&self, now: Time) -> f64 {
        (-(now.since(self.at).as_secs_f64() / HALF_LIFE.as_secs_f64())).exp2()
    }

    fn weight(&self, now: Time) -> f64 {
        self.buckets.iter().map(|(_, weight)| weight).sum::<f64>() * self.decay(now)
    }

    fn add(&mut self, now: Time, size: Size) {
        let decay = self.decay(now);
        for (_, weight) in &mut self.buckets {
            *weight *= decay;
        }
        self.at = self.at.max(now);
        let bucket = log_buckets::index(size.min(MAX_SIZE).as_bytes(), FINENESS);
        match self.buckets.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(place) => self.buckets[place].1 += 1.0,
            Err(place) => self.buckets.insert(place, (bucket, 1.0)),
        }
    }

    fn sizes(&self, specificity: Specificity) -> Option<Sizes> {
        let middle = |bucket: u16| {
            let bounds = [bucket, bucket + 1].map(|one| log_buckets::lower_bound(one, FINENESS));
            Size::from_bytes(bounds[0].midpoint(bounds[1]))
        };
        let weighted = self.buckets.iter().map(|(bucket, weight)| (middle(*bucket), *weight));
        normalized(weighted.collect(), specificity)
    }
}

impl History {
    /// Adds a transfer that has ended. A clock that was set back does not weigh it more.
    pub fn add(&mut self, now: Time, key: HistoryKey, size: Size) {
        for (key, _) in key.levels() {
            self.keys.refresh_or_insert_with(key, Counts::default).add(now, size);
        }
        while self.keys.len() > MAX_KEYS {
            self.keys.pop_oldest();
        }
    }

    /// The sizes to expect, from the most specific key with enough transfers.
    pub fn sizes(&self, now: Time, key: HistoryKey, is_chunked: bool) -> Sizes {
        let known = key.levels().find_map(|(key, specificity)| {
            let counts = self.keys.get(&key).filter(|counts| counts.weight(now) >= MIN_WEIGHT)?;
            counts.sizes(specificity)
        });
        known.unwrap_or_else(|| Sizes::unknown(is_chunked))
    }

    /// All keys with their weights, the one that was used least recently first.
    pub fn entries(&self) -> impl Iterator<Item = HistoryEntry> {
        self.keys.iter().map(|(key, counts)| HistoryEntry {
            key: *key,
            at: counts.at,
            buckets: counts.buckets.clone(),
        })
    }

    /// A history with these entries. Leaves out weights and buckets that no history has.
    pub fn of_entries(entries: impl IntoIterator<Item = HistoryEntry>) -> Self {
        let mut keys = LruMap::default();
        for HistoryEntry { key, at, mut buckets } in entries {
            let last = log_buckets::index(MAX_SIZE.as_bytes(), FINENESS);
            buckets.retain(|(bucket, weight)| {
                *bucket <= last && weight.is_finite() && (0.0..=MAX_WEIGHT).contains(weight)
            });
            buckets.sort_by_key(|(bucket, _)| *bucket);
            buckets.dedup_by_key(|(bucket, _)| *bucket);
            keys.insert(key, Counts { buckets, at });
            if keys.len() > MAX_KEYS {
                keys.pop_oldest();
            }
        }
        Self { keys }
    }

    /// Forgets all transfers.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: Span = Span::from_secs(86_400);

    fn key(app: u64, host: u64) -> HistoryKey {
        HistoryKey { app: Some(app), host: Some(host), direction: Direction::Down }
    }

    fn day(days: u64) -> Time {
        Time::ZERO + DAY * days
    }

    fn with(transfers: &[(HistoryKey, u64)]) -> History {
        let mut history = History::default();
        for (key, size) in transfers {
            history.add(day(0), *key, Size::from_bytes(*size));
        }
        history
    }

    #[test]
    fn an_unknown_size_is_that_of_the_thesis() {
        let history = History::default();
        let sizes = |is_chunked| history.sizes(day(0), key(1, 1), is_chunked).median().as_bytes();
        assert_eq!((sizes(false), sizes(true)), (3_000, 100_000));
    }

    #[test]
    fn the_most_specific_key_with_enough_transfers_answers() {
        let history = with(&[
            (key(1, 1), 1_000),
            (key(1, 1), 1_000),
            (key(1, 1), 1_000),
            (key(2, 2), 1_000_000),
            (key(2, 2), 1_000_000),
            (key(2, 3), 1_000_000),
        ]);
        let of = |app, host| {
            let sizes = history.sizes(day(0), key(app, host), false);
            (sizes.specificity, sizes.median().as_bytes())
        };
        assert_eq!(of(1, 1), (Specificity::AppAndHost, 896));
        assert_eq!(of(9, 1), (Specificity::Host, 896));
        assert_eq!(of(2, 2), (Specificity::App, 917_504));
        assert_eq!(of(2, 1), (Specificity::Host, 896), "the host says more than the application");
        assert_eq!(of(9, 9).0, Specificity::All);
        let up = HistoryKey { direction: Direction::Up, ..key(1, 1) };
        assert_eq!(history.sizes(day(0), up, false).specificity, Specificity::Default);
        let no_host = HistoryKey { host: None, ..key(1, 1) };
        assert_eq!(history.sizes(day(0), no_host, false).specificity, Specificity::App);
    }

    #[test]
    fn old_transfers_lose_their_weight() {
        let mut history = with(&[(key(1, 1), 1_000); 8]);
        assert_eq!(history.sizes(day(14), key(1, 1), false).weighted.len(), 1);
        for _ in 0..3 {
            history.add(day(28), key(1, 1), Size::from_bytes(1_000_000));
        }
        let sizes = history.sizes(day(28), key(1, 1), false);
        // Two of eight are left after two half-lives.
        assert!((sizes.weighted[0].1 - 0.4).abs() < 1e-9, "{sizes:?}");
        assert_eq!(history.sizes(day(200), key(1, 1), false).specificity, Specificity::Default);
        history.clear();
        assert_eq!(history.sizes(day(28), key(1, 1), false).specificity, Specificity::Default);
    }

    #[test]
    fn a_clock_that_is_set_back_costs_no_weight() {
        let mut history = History::default();
        for days in [28, 28, 28, 0] {
            history.add(day(days), key(1, 1), Size::from_bytes(1_000));
        }
        for days in [0, 28] {
            let found = history.sizes(day(days), key(1, 1), false);
            assert_eq!(found.specificity, Specificity::AppAndHost, "day {days}");
        }
    }

    #[test]
    fn a_half_that_is_reached_is_the_median() {
        let history = with(&[(key(1, 1), 1_000), (key(1, 1), 1_000_000)].repeat(2));
        assert_eq!(history.sizes(day(0), key(1, 1), false).median().as_bytes(), 896);
    }

    #[test]
    fn bytes_that_passed_exclude_the_transfers_that_would_have_ended() {
        let history = with(&[(key(1, 1), 1_000), (key(1, 1), 1_000), (key(1, 1), 1_000_000)]);
        let sizes = history.sizes(day(0), key(1, 1), false);
        let rest = sizes.after(Size::from_bytes(10_000)).unwrap();
        assert_eq!(rest.weighted.len(), 1);
        assert_eq!(rest.weighted[0], (Size::from_bytes(907_504), 1.0));
        assert_eq!(sizes.after(Size::from_bytes(917_504)), None, "nothing is left of it");
        assert_eq!(sizes.after(Size::from_mib(8)), None);
    }

    #[test]
    fn a_history_is_the_same_after_its_entries_were_stored() {
        let history = with(&[(key(1, 1), 5_000), (key(1, 2), 100_000), (key(2, 2), 1 << 40)]);
        let back = History::of_entries(history.entries());
        assert!(back.entries().eq(history.entries()));
        assert_eq!(back.sizes(day(1), key(2, 2), false), history.sizes(day(1), key(2, 2), false));
        // Weights that no history has.
        let mut wrong: Vec<HistoryEntry> = history.entries().take(1).collect();
        wrong[0].buckets = vec![
            (1, f64::NAN),
            (2, -1.0),
            (u16::MAX, 1.0),
            (4, 1.0),
            (3, 5.0),
            (4, 9.0),
            (5, 1e10),
        ];
        let kept: Vec<HistoryEntry> = History::of_entries(wrong).entries().collect();
        assert_eq!(kept[0].buckets, [(3, 5.0), (4, 1.0)]);
    }

    #[test]
    fn a_history_has_a_limit() {
        let mut history = History::default();
        for host in 0..10_000 {
            history.add(day(0), key(1, host), Size::from_bytes(1_000));
        }
        assert_eq!(history.keys.len(), MAX_KEYS);
        let more = history.entries().chain((0..10).map(|host| HistoryEntry {
            key: key(2, host),
            at: day(0),
            buckets: Vec::new(),
        }));
        assert_eq!(History::of_entries(more).keys.len(), MAX_KEYS);
        assert_eq!(history.sizes(day(0), key(1, 0), false).specificity, Specificity::App);
    }

    proptest! {
        #[test]
        fn probabilities_sum_to_one_and_sizes_are_near(
            sizes in prop::collection::vec(1_u64..1 << 40, 3..40), days in 0_u64..20,
        ) {
            let mut history = History::default();
            for size in &sizes {
                history.add(day(days), key(1, 1), Size::from_bytes(*size));
            }
            let found = history.sizes(day(days), key(1, 1), false);
            let sum: f64 = found.weighted.iter().map(|(_, weight)| weight).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9);
            prop_assert!(found.weighted.is_sorted_by_key(|(size, _)| *size));
            let mut sorted = sizes.clone();
            sorted.sort_unstable();
            let median = sorted[(sorted.len() - 1) / 2].min(MAX_SIZE.as_bytes()) as f64;
            let ratio = found.median().as_bytes() as f64 / median;
            prop_assert!((0.6..=1.5).contains(&ratio), "{ratio} {sorted:?} {found:?}");
        }
    }
}
