//! Selection of the path with the lowest latency, with hysteresis.

use manyways_unit::{Span, Time};

use super::paths::PathFacts;
use crate::sched::{PathId, PathSet};

/// Fraction by which the RTT of another path must be shorter, in percent.
pub(super) const MARGIN_PERCENT: u64 = 20;
/// Time for which the RTT must be shorter.
pub(super) const HYSTERESIS: Span = Span::from_secs(3);

/// The current lowest-latency path of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct LowestLatencyPath {
    path: Option<PathId>,
    /// Time since which another path is better.
    contradicted_since: Option<Time>,
}

impl LowestLatencyPath {
    /// Processes the RTTs at `now`. A path that is down is replaced at once.
    pub(super) fn observe(&mut self, now: Time, paths: PathSet, known: &[PathFacts]) {
        let up = || known.iter().filter(|path| path.up && paths.contains(path.id));
        let best = up().filter_map(|path| path.rtt.map(|rtt| (rtt, path.id))).min();
        let Some(leader) = up().find(|path| Some(path.id) == self.path) else {
            *self = Self { path: best.map(|(_, id)| id), contradicted_since: None };
            return;
        };
        let Some((best, id)) = best else {
            self.contradicted_since = None;
            return;
        };
        let is_better = leader.rtt.is_none_or(|rtt| {
            let enough = u128::from(rtt.as_nanos()) * u128::from(100 - MARGIN_PERCENT);
            u128::from(best.as_nanos()) * 100 < enough
        });
        if !is_better {
            self.contradicted_since = None;
            return;
        }
        let since = *self.contradicted_since.get_or_insert(now);
        if now.since(since) >= HYSTERESIS {
            *self = Self { path: Some(id), contradicted_since: None };
        }
    }

    /// Returns the path, or `None` while no RTT is known.
    pub(super) fn path(&self) -> Option<PathId> {
        self.path
    }

    /// Returns when the path changes if the RTTs stay the same.
    pub(super) fn changes_at(&self) -> Option<Time> {
        self.contradicted_since.map(|since| since + HYSTERESIS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn paths(rtts: [Option<u64>; 2]) -> Vec<PathFacts> {
        let path = |(id, rtt): (u8, Option<u64>)| PathFacts {
            rtt: rtt.map(Span::from_millis),
            ..PathFacts::new(PathId(id), format!("path{id}"), "wifi")
        };
        (0..).zip(rtts).map(path).collect()
    }

    #[test]
    fn the_lead_changes_for_a_clear_advantage_that_lasts() {
        let all = PathSet::ALL;
        let mut lowest_latency = LowestLatencyPath::default();
        lowest_latency.observe(at(0), all, &paths([None, None]));
        assert_eq!(lowest_latency.path(), None);
        lowest_latency.observe(at(1), all, &paths([Some(50), Some(60)]));
        assert_eq!(lowest_latency.path(), Some(PathId(0)));
        lowest_latency.observe(at(10), all, &paths([Some(50), Some(40)]));
        lowest_latency.observe(at(10_000), all, &paths([Some(50), Some(40)]));
        assert_eq!(lowest_latency.path(), Some(PathId(0)), "a fifth is not clear enough");
        lowest_latency.observe(at(20_000), all, &paths([Some(50), Some(39)]));
        assert_eq!(lowest_latency.changes_at(), Some(at(23_000)));
        lowest_latency.observe(at(21_000), all, &paths([Some(50), Some(50)]));
        lowest_latency.observe(at(22_000), all, &paths([Some(50), Some(39)]));
        lowest_latency.observe(at(24_999), all, &paths([Some(50), Some(39)]));
        assert_eq!(lowest_latency.path(), Some(PathId(0)), "it did not last");
        lowest_latency.observe(at(25_000), all, &paths([Some(50), Some(39)]));
        assert_eq!(lowest_latency.path(), Some(PathId(1)));
        // Without any known RTT, the path does not change.
        lowest_latency.observe(at(60_000), all, &paths([None, None]));
        assert_eq!(lowest_latency.path(), Some(PathId(1)));
    }

    #[test]
    fn who_is_down_leads_no_more() {
        let all = PathSet::ALL;
        let mut lowest_latency = LowestLatencyPath::default();
        let mut known = paths([Some(10), Some(60)]);
        lowest_latency.observe(at(0), all, &known);
        known[0].up = false;
        lowest_latency.observe(at(1), all, &known);
        assert_eq!(lowest_latency.path(), Some(PathId(1)));
        known[0].up = true;
        lowest_latency.observe(at(2), all, &known);
        assert_eq!(lowest_latency.path(), Some(PathId(1)), "back again, but for how long?");
    }
}
