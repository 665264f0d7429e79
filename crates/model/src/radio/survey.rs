//! Properties of a whole trace that policies need in advance.

use manyways_unit::quantile::nearest_rank;
use manyways_unit::{Span, Time};

use super::{Decay, Packet, Profile};

/// Bits of precision: a bucket is a thousandth of its value wide.
const BITS: u32 = 10;

/// Histogram of gaps between packets with bounded size; its quantiles are exact to one thousandth.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    counts: Vec<u64>,
    all: u64,
}

/// Reads a trace once.
#[derive(Clone, Debug)]
pub struct Survey {
    gaps: Gaps,
    last: Option<Time>,
    /// For each radio: burst gap, time of the release, gaps longer than the burst gap, gaps longer
    /// than both.
    radios: Vec<(f64, f64, u64, u64)>,
}

impl Gaps {
    pub fn push(&mut self, gap: Span) {
        let place = place(gap.as_nanos());
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] += 1;
        self.all += 1;
    }

    /// The quantile of the gaps in seconds, rounded up by at most a thousandth; `None` without
    /// gaps.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = nearest_rank(self.all, share);
        let mut seen = 0;
        let place = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(end(place) as f64 / 1e9)
    }
}

/// Bucket of a number of nanoseconds; values below 2^[`BITS`] have one bucket each.
fn place(nanos: u64) -> usize {
    let exponent = (64 - nanos.leading_zeros()).saturating_sub(BITS);
    ((u64::from(exponent) << BITS) + (nanos >> exponent)) as usize
}

/// The largest value of a bucket.
fn end(place: usize) -> u64 {
    let place = place as u64;
    // After the first 2^BITS buckets, each exponent starts in the middle, at its highest bit.
    let exponent = (0..=64 - u64::from(BITS))
        .rev()
        .find(|exponent| (exponent << BITS) + (u64::from(*exponent > 0) << (BITS - 1)) <= place)
        .unwrap_or(0);
    let mantissa = place - (exponent << BITS);
    (mantissa << exponent) + ((1_u64 << exponent) - 1)
}

impl Survey {
    pub fn new<'a>(radios: impl IntoIterator<Item = &'a Profile>) -> Self {
        let radio = |profile: &Profile| {
            let released = Decay::from(profile, 0).released();
            (profile.transfer.burst_gap.as_secs_f64(), released, 0, 0)
        };
        Self { gaps: Gaps::default(), last: None, radios: radios.into_iter().map(radio).collect() }
    }

    pub fn push(&mut self, packet: &Packet) {
        let last = self.last.map_or(packet.at, |last| last.max(packet.at));
        if let Some(before) = self.last {
            let gap = last.since(before);
            self.gaps.push(gap);
            let secs = gap.as_secs_f64();
            for (burst_gap, released, bursts, periods) in &mut self.radios {
                *bursts += u64::from(secs > *burst_gap);
                *periods += u64::from(secs > *burst_gap && secs > *released);
            }
        }
        self.last = Some(last);
    }

    pub fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    /// Mean number of bursts from one release by the network to the next, for the radio at this
    /// index: k of MakeActive's fixed bound k·(t1 + t2).
    pub fn bursts_per_period(&self, radio: usize) -> f64 {
        let (_, _, bursts, periods) = self.radios[radio];
        (bursts + 1) as f64 / (periods + 1) as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::radio::{profiles, workload};

    #[test]
    fn bursts_are_counted_from_release_to_release() {
        let profile = profiles::named("att-hspa").unwrap().unwrap();
        let mut survey = Survey::new([&profile]);
        let mut now = Time::ZERO;
        // Three bursts, the last one of two packets, then a long gap; twice.
        for millis in [0, 5_000, 5_000, 300, 60_000, 5_000, 5_000, 300] {
            now += Span::from_millis(millis);
            let packet = workload::heartbeats(Span::from_secs(1), 1, Span::ZERO).next().unwrap();
            survey.push(&Packet { at: now, ..packet });
        }
        assert!((survey.bursts_per_period(0) - 3.0).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn a_quantile_is_right_to_a_thousandth(
            gaps in prop::collection::vec(0_u64..=u64::MAX / 2, 1..100),
            shifts in prop::collection::vec(0_u32..63, 100),
            share in 0.0_f64..=1.0,
        ) {
            let mut all: Vec<u64> = gaps.iter().zip(shifts).map(|(gap, by)| gap >> by).collect();
            let mut histogram = Gaps::default();
            all.iter().for_each(|nanos| histogram.push(Span::from_nanos(*nanos)));
            all.sort_unstable();
            let rank = ((share * all.len() as f64).ceil() as usize).max(1) - 1;
            let exact = all[rank] as f64 / 1e9;
            let found = histogram.quantile(share).unwrap();
            prop_assert!(found >= exact && found <= exact * (1.0 + 2.0 / 1_024.0) + 1e-12);
        }

        #[test]
        fn steps_do_not_overlap(nanos: u64) {
            let step = place(nanos);
            prop_assert!(end(step) >= nanos);
            prop_assert!(end(step) == u64::MAX || place(end(step) + 1) > step);
            prop_assert_eq!(place(end(step)), step);
        }
    }
}
