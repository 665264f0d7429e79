//! Delays of bytes between two points.

use manyways_unit::Time;

use super::Difference;
use super::pairing::CommonRange;
use super::track::Run;

/// Bytes that passed together, at both points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Their offset in the stream at the point that is nearer to the start of the chain.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Time at which they first passed that point, by its clock.
    pub first: Time,
    /// Time at which they first passed the other point, by its clock.
    pub second: Time,
    /// Whether the earlier point captured them again: the later one may have captured only the
    /// retransmission.
    pub was_retransmitted: bool,
}

impl Sample {
    /// Time from the point nearer to the start of the chain to the other one; the clocks may
    /// differ.
    pub fn difference(&self) -> Difference {
        Difference::between(self.first, self.second)
    }
}

/// Statistics of delays, weighted by bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Number of samples.
    pub count: u64,
    /// Number of bytes.
    pub bytes: u64,
    pub min: Difference,
    pub median: Difference,
    /// 95th percentile.
    pub p95: Difference,
    pub max: Difference,
}

impl Summary {
    /// Summarizes delays with their numbers of bytes. `None` if there are none.
    pub fn of(mut delays: Vec<(Difference, u64)>) -> Option<Self> {
        delays.sort_unstable();
        let (min, most) = (delays.first()?.0, delays.last()?.0);
        let bytes = delays.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let at = |share: u64| {
            let wanted = (u128::from(bytes) * u128::from(share)).div_ceil(100);
            let mut sum = 0;
            let reached = delays.iter().find(|(_, bytes)| {
                sum += u128::from(*bytes);
                sum >= wanted
            });
            reached.map_or(most, |(delay, _)| *delay)
        };
        Some(Self {
            count: delays.len() as u64,
            bytes,
            min,
            median: at(50),
            p95: at(95),
            max: most,
        })
    }
}

/// Calls the closure for each part of the common bytes that passed both points together; all inputs
/// are sorted. `again` has the retransmitted bytes of one of the points, by its own offsets;
/// `is_first` selects the first point.
pub(super) fn samples(
    same: &[CommonRange],
    first: &[Run],
    second: &[Run],
    again: &[(u64, u64)],
    is_first: bool,
) -> Vec<Sample> {
    let mut found = Vec::new();
    let (mut i, mut j, mut k) = (0, 0, 0);
    for same in same {
        let end = same.first.saturating_add(same.length);
        while let (Some(a), Some(b)) = (first.get(i), second.get(j)) {
            // Both as offsets of the first track.
            let (begin_b, end_b) = (same.in_first(b.begin), same.in_first(b.end));
            let begin = i128::from(a.begin.max(same.first)).max(begin_b);
            let until = i128::from(a.end.min(end)).min(end_b);
            if begin < until {
                let (offset, until) = (begin as u64, until as u64);
                let (from, to) = match is_first {
                    true => (offset, until),
                    false => (same.in_second(offset), same.in_second(until)),
                };
                while again.get(k).is_some_and(|(_, end)| *end <= from) {
                    k += 1;
                }
                let was_resent = again.get(k).is_some_and(|(begin, _)| *begin < to);
                let length = until - offset;
                found.push(Sample {
                    offset,
                    length,
                    first: a.at,
                    second: b.at,
                    was_retransmitted: was_resent,
                });
            }
            // The next stretch may need the run that reaches beyond this one.
            if i128::from(a.end).min(end_b) >= i128::from(end) {
                break;
            }
            match i128::from(a.end) <= end_b {
                true => i += 1,
                false => j += 1,
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(nanos: i64) -> Difference {
        Difference::from_nanos(nanos)
    }

    fn runs(of: &[(u64, u64, u64)]) -> Vec<Run> {
        let at = Time::from_nanos;
        of.iter()
            .map(|(begin, end, time)| Run {
                begin: *begin,
                end: *end,
                at: at(*time),
                known_bytes: 0,
            })
            .collect()
    }

    #[test]
    fn each_byte_counts() {
        let of = |delays: &[(i64, u64)]| {
            Summary::of(delays.iter().map(|(delay, bytes)| (nanos(*delay), *bytes)).collect())
        };
        assert_eq!(of(&[]), None);
        let some = of(&[(5, 90), (-3, 6), (100, 4)]).unwrap();
        assert_eq!((some.count, some.bytes), (3, 100));
        assert_eq!((some.min, some.median), (nanos(-3), nanos(5)));
        assert_eq!((some.p95, some.max), (nanos(5), nanos(100)));
        assert_eq!(of(&[(5, 89), (-3, 5), (100, 6)]).unwrap().p95, nanos(100));
        assert!(of(&[(1, u64::MAX), (2, u64::MAX)]).is_some());
    }

    #[test]
    fn cuts_of_both_make_samples() {
        let first = runs(&[(0, 10, 1), (10, 20, 2), (30, 40, 3)]);
        let second = runs(&[(5, 12, 11), (12, 50, 12)]);
        // Byte 0 of the first track is byte 5 of the second; the retransmission is 11..13 there.
        let same = [
            CommonRange { first: 0, second: 5, length: 18 },
            CommonRange { first: 19, second: 26, length: 12 },
        ];
        let found = samples(&same, &first, &second, &[(11, 13)], false);
        let told: Vec<_> = found
            .iter()
            .map(|s| {
                (s.offset, s.length, s.first.as_nanos(), s.second.as_nanos(), s.was_retransmitted)
            })
            .collect();
        assert_eq!(
            told,
            [
                (0, 7, 1, 11, true),
                (7, 3, 1, 12, true),
                (10, 8, 2, 12, false),
                (19, 1, 2, 12, false),
                (30, 1, 3, 12, false)
            ]
        );
        let resent: Vec<bool> = samples(&same, &first, &second, &[(3, 4), (17, 20)], true)
            .iter()
            .map(|s| s.was_retransmitted)
            .collect();
        assert_eq!(resent, [true, false, true, true, false]);
    }
}
