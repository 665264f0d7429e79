//! Selection of the path with the lowest latency, with hysteresis.

use manyways_unit::{Span, Time};

use super::paths::{PathFacts, Paths};
use crate::sched::PathId;

/// Fraction by which the RTT of another path must be shorter, in percent.
pub(super) const MARGIN_PERCENT: u64 = 20;
/// Time for which the RTT must be shorter.
pub(super) const HOLD: Span = Span::from_secs(3);

/// The current leader of a set of paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Leader {
    path: Option<PathId>,
    /// Time since which another path is better.
    turning: Option<Time>,
}

impl Leader {
    /// Processes the RTTs at `now`. A leader that is down is replaced at once.
    pub(super) fn observe(&mut self, now: Time, paths: &Paths, known: &[PathFacts]) {
        let up = || known.iter().filter(|path| path.up && paths.fits(path));
        let best = up().filter_map(|path| path.rtt.map(|rtt| (rtt, path.id))).min();
        let Some(leader) = up().find(|path| Some(path.id) == self.path) else {
            *self = Self { path: best.map(|(_, id)| id), turning: None };
            return;
        };
        let Some((best, id)) = best else {
            self.turning = None;
            return;
        };
        let is_better = leader.rtt.is_none_or(|rtt| {
            let enough = u128::from(rtt.as_nanos()) * u128::from(100 - MARGIN_PERCENT);
            u128::from(best.as_nanos()) * 100 < enough
        });
        if !is_better {
            self.turning = None;
            return;
        }
        let since = *self.turning.get_or_insert(now);
        if now.since(since) >= HOLD {
            *self = Self { path: Some(id), turning: None };
        }
    }

    /// Returns the leader, or `None` while no RTT is known.
    pub(super) fn path(&self) -> Option<PathId> {
        self.path
    }

    /// Returns when the leader changes if the RTTs stay the same.
    pub(super) fn turns_at(&self) -> Option<Time> {
        self.turning.map(|since| since + HOLD)
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
        let all = Paths::all();
        let mut leader = Leader::default();
        leader.observe(at(0), &all, &paths([None, None]));
        assert_eq!(leader.path(), None);
        leader.observe(at(1), &all, &paths([Some(50), Some(60)]));
        assert_eq!(leader.path(), Some(PathId(0)));
        leader.observe(at(10), &all, &paths([Some(50), Some(40)]));
        leader.observe(at(10_000), &all, &paths([Some(50), Some(40)]));
        assert_eq!(leader.path(), Some(PathId(0)), "a fifth is not clear enough");
        leader.observe(at(20_000), &all, &paths([Some(50), Some(39)]));
        assert_eq!(leader.turns_at(), Some(at(23_000)));
        leader.observe(at(21_000), &all, &paths([Some(50), Some(50)]));
        leader.observe(at(22_000), &all, &paths([Some(50), Some(39)]));
        leader.observe(at(24_999), &all, &paths([Some(50), Some(39)]));
        assert_eq!(leader.path(), Some(PathId(0)), "it did not last");
        leader.observe(at(25_000), &all, &paths([Some(50), Some(39)]));
        assert_eq!(leader.path(), Some(PathId(1)));
        // Without any known RTT, the leader does not change.
        leader.observe(at(60_000), &all, &paths([None, None]));
        assert_eq!(leader.path(), Some(PathId(1)));
    }

    #[test]
    fn who_is_down_leads_no_more() {
        let all = Paths::all();
        let mut leader = Leader::default();
        let mut known = paths([Some(10), Some(60)]);
        leader.observe(at(0), &all, &known);
        known[0].up = false;
        leader.observe(at(1), &all, &known);
        assert_eq!(leader.path(), Some(PathId(1)));
        known[0].up = true;
        leader.observe(at(2), &all, &known);
        assert_eq!(leader.path(), Some(PathId(1)), "back again, but for how long?");
    }
}
