//! Gaps that a radio is not measured in: the clock of a packet was wrong, or the recording paused.

use manyways_unit::{Span, Time};

/// A longer gap does not count as time of an idle radio.
pub(super) const MAX_GAP: Span = Span::from_secs(30 * 86_400);
/// The part of it that counts: longer than the tail of a radio.
const COUNTED: Span = Span::from_secs(60);

/// A gap above 30 days, of which one minute counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongGap {
    /// Time of the last packet before it.
    pub from: Time,
    /// Time of the first packet after it.
    pub to: Time,
    /// Packets since the previous long gap.
    pub packets_before: u64,
    /// Packets until the next long gap.
    pub packets_after: u64,
}

impl LongGap {
    /// The time that does not count.
    fn excess(&self) -> Span {
        self.to.since(self.from).saturating_sub(COUNTED)
    }
}

/// The long gaps of a trace, in order. The part with the most packets keeps its times; the others
/// are moved next to it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct LongGaps {
    all: Vec<LongGap>,
    /// Number of gaps before the part that keeps its times.
    kept: usize,
    last: Option<Time>,
    packets: u64,
}

impl LongGaps {
    /// Adds the next packet.
    pub fn push(&mut self, at: Time) {
        if let Some(last) = self.last
            && at.since(last) > MAX_GAP
        {
            self.end_part();
            let packets_before = std::mem::take(&mut self.packets);
            self.all.push(LongGap { from: last, to: at, packets_before, packets_after: 0 });
        }
        self.packets += 1;
        self.last = Some(at);
    }

    fn end_part(&mut self) {
        if let Some(gap) = self.all.last_mut() {
            gap.packets_after = self.packets;
        }
    }

    /// Ends the trace.
    pub fn finish(mut self) -> Self {
        self.end_part();
        let first = self.all.first().map_or(0, |gap| gap.packets_before);
        let mut most = first;
        for (index, gap) in self.all.iter().enumerate() {
            if gap.packets_after > most {
                (self.kept, most) = (index + 1, gap.packets_after);
            }
        }
        self
    }

    pub fn all(&self) -> &[LongGap] {
        &self.all
    }

    /// The time at which a packet counts.
    pub fn counted(&self, at: Time) -> Time {
        if self.all.is_empty() {
            return at;
        }
        let before = self.all.partition_point(|gap| gap.to <= at);
        let excess = |gaps: &[LongGap]| gaps.iter().fold(Span::ZERO, |sum, gap| sum + gap.excess());
        match before < self.kept {
            true => at + excess(&self.all[before..self.kept]),
            false => {
                Time::ZERO
                    + at.since(Time::ZERO).saturating_sub(excess(&self.all[self.kept..before]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn counted(secs: &[u64]) -> (Vec<u64>, Vec<(u64, u64)>) {
        let times: Vec<Time> = secs.iter().map(|secs| Time::from_millis(secs * 1_000)).collect();
        let mut gaps = LongGaps::default();
        times.iter().for_each(|at| gaps.push(*at));
        let gaps = gaps.finish();
        let secs = times.iter().map(|at| gaps.counted(*at).as_nanos() / 1_000_000_000).collect();
        (secs, gaps.all().iter().map(|gap| (gap.packets_before, gap.packets_after)).collect())
    }

    #[test]
    fn the_part_with_the_most_packets_keeps_its_times() {
        let year = 365 * DAY;
        assert_eq!(counted(&[5, 6, 6 + 30 * DAY]).1, [], "30 days are a pause");
        assert_eq!(counted(&[5, year, year + 1]), (vec![year - 60, year, year + 1], vec![(1, 2)]));
        assert_eq!(counted(&[5, 6, year]), (vec![5, 6, 66], vec![(2, 1)]));
        let three = counted(&[5, year, year + 1, year + 2, 3 * year, 5 * year]);
        assert_eq!(three.0, [year - 60, year, year + 1, year + 2, year + 62, year + 122]);
        assert_eq!(three.1, [(1, 3), (3, 1), (1, 1)]);
    }
}
