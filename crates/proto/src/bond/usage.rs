//! Bytes of each path since the last reset of its data plan, including earlier runs.

use std::collections::BTreeMap;

use manyways_unit::Size;

/// Maximum number of counted paths.
pub const MAX_PATHS: usize = 256;

/// Days since 1970-01-01 (UTC).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Day(pub i64);

impl Day {
    /// Returns the last day with day of month `reset_day`, from 1 to 28.
    pub fn period_start(self, reset_day: u8) -> Self {
        let day = self.day_of_month();
        let reset_day = i64::from(reset_day.clamp(1, 28));
        if day >= reset_day {
            return Self(self.0 - (day - reset_day));
        }
        let last = Self(self.0 - day);
        Self(last.0 - (last.day_of_month() - reset_day))
    }

    /// Returns the day of month, from 1 to 31 (Howard Hinnant, "chrono-compatible low-level date
    /// algorithms", `civil_from_days`).
    fn day_of_month(self) -> i64 {
        let days = self.0 + 719_468;
        let of_era = days.rem_euclid(146_097);
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        of_year - (153 * month + 2) / 5 + 1
    }
}

/// Usage of one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathUsage {
    /// First counted day.
    pub since: Day,
    /// Sent and received bytes.
    pub bytes: u64,
}

/// Usage by path name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UsageCounts(BTreeMap<String, PathUsage>);

impl UsageCounts {
    /// Returns all paths and their usage.
    pub fn iter(&self) -> impl Iterator<Item = (&str, PathUsage)> {
        self.0.iter().map(|(path, usage)| (path.as_str(), *usage))
    }

    /// Adds bytes of the period that began on `since`, and drops bytes of earlier periods.
    fn add(&mut self, path: &str, since: Day, bytes: u64) {
        if self.0.len() >= MAX_PATHS && !self.0.contains_key(path) {
            return;
        }
        let usage = self.0.entry(path.to_owned()).or_insert(PathUsage { since, bytes: 0 });
        if usage.since < since {
            *usage = PathUsage { since, bytes: 0 };
        }
        usage.bytes = usage.bytes.saturating_add(bytes);
    }

    fn used(&self, path: &str, since: Day) -> u64 {
        self.0.get(path).filter(|usage| usage.since >= since).map_or(0, |usage| usage.bytes)
    }
}

impl FromIterator<(String, PathUsage)> for UsageCounts {
    fn from_iter<I: IntoIterator<Item = (String, PathUsage)>>(paths: I) -> Self {
        Self(paths.into_iter().take(MAX_PATHS).collect())
    }
}

/// Usage counted by one client. Several clients of a host add to the same saved counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    counts: UsageCounts,
    /// Bytes that are not in the saved counts.
    unsaved: BTreeMap<String, PathUsage>,
}

impl Usage {
    /// Continues from saved counts.
    pub fn new(saved: UsageCounts) -> Self {
        Self { counts: saved, unsaved: BTreeMap::new() }
    }

    /// Adds `bytes` of a path whose data plan is reset on `reset_day` of each month.
    pub fn add(&mut self, path: &str, reset_day: u8, today: Day, bytes: u64) {
        let since = today.period_start(reset_day);
        self.counts.add(path, since, bytes);
        let empty = PathUsage { since, bytes: 0 };
        let unsaved = self.unsaved.entry(path.to_owned()).or_insert(empty);
        if unsaved.since < since {
            *unsaved = empty;
        }
        unsaved.bytes = unsaved.bytes.saturating_add(bytes);
    }

    /// Returns the bytes of a path since the last reset of its data plan.
    pub fn used(&self, path: &str, reset_day: u8, today: Day) -> Size {
        Size::from_bytes(self.counts.used(path, today.period_start(reset_day)))
    }

    /// Returns `saved` with the unsaved bytes added, or `None` if there are none.
    pub fn added_to(&self, mut saved: UsageCounts) -> Option<UsageCounts> {
        if self.unsaved.values().all(|usage| usage.bytes == 0) {
            return None;
        }
        for (path, usage) in &self.unsaved {
            saved.add(path, usage.since, usage.bytes);
        }
        Some(saved)
    }

    /// Records that these counts, from [`Usage::added_to`], were saved.
    pub fn on_saved(&mut self, counts: UsageCounts) {
        self.counts = counts;
        self.unsaved.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2024-03-14, in a leap year.
    const PI_DAY: Day = Day(19_796);

    #[test]
    fn a_period_starts_on_its_day() {
        assert_eq!(PI_DAY.day_of_month(), 14);
        assert_eq!(Day(0).day_of_month(), 1);
        assert_eq!(PI_DAY.period_start(1), Day(19_783));
        assert_eq!(PI_DAY.period_start(14), PI_DAY);
        // 15 February.
        assert_eq!(PI_DAY.period_start(15), Day(19_768));
        for day in 0..40_000 {
            let start = Day(day).period_start(15);
            assert_eq!(start.day_of_month(), 15, "{day}");
            assert!((0..31).contains(&(day - start.0)), "{day}");
        }
    }

    #[test]
    fn a_new_period_starts_at_zero_and_a_clock_that_jumps_back_loses_nothing() {
        let mut usage = Usage::default();
        usage.add("wwan0", 1, PI_DAY, 100);
        usage.add("wwan0", 1, Day(PI_DAY.0 + 17), 20);
        assert_eq!(usage.used("wwan0", 1, PI_DAY).as_bytes(), 120);
        let april = Day(PI_DAY.0 + 18);
        assert_eq!(usage.used("wwan0", 1, april), Size::ZERO);
        usage.add("wwan0", 1, april, 7);
        assert_eq!(usage.used("wwan0", 1, april).as_bytes(), 7);
        usage.add("wwan0", 1, PI_DAY, 1);
        assert_eq!(usage.used("wwan0", 1, april).as_bytes(), 8);
    }

    #[test]
    fn two_clients_add_to_the_same_saved_counts() {
        let (mut one, mut two) = (Usage::default(), Usage::default());
        one.add("wwan0", 1, PI_DAY, 100);
        two.add("wwan0", 1, PI_DAY, 50);
        let saved = one.added_to(UsageCounts::default()).unwrap();
        one.on_saved(saved.clone());
        assert_eq!(one.added_to(saved.clone()), None, "nothing is new");
        let saved = two.added_to(saved).unwrap();
        two.on_saved(saved.clone());
        assert_eq!(two.used("wwan0", 1, PI_DAY).as_bytes(), 150);
        assert_eq!(one.used("wwan0", 1, PI_DAY).as_bytes(), 100, "until it saves again");
        assert_eq!(Usage::new(saved).used("wwan0", 1, PI_DAY).as_bytes(), 150);
    }

    #[test]
    fn only_so_many_paths_are_counted() {
        let mut usage = Usage::default();
        for number in 0..MAX_PATHS + 3 {
            usage.add(&format!("{number:04}"), 1, PI_DAY, 5);
        }
        assert_eq!(usage.counts.iter().count(), MAX_PATHS);
        assert_eq!(usage.used("0000", 1, PI_DAY).as_bytes(), 5);
        assert_eq!(usage.used("0258", 1, PI_DAY), Size::ZERO);
    }
}
