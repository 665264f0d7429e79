//! Properties of a whole trace that policies need in advance.

use manyways_unit::quantile::nearest_rank;
use manyways_unit::{Span, Time};

use super::{Packet, Profile, TailEnergy};

/// Bits of precision: a bucket is a thousandth of its value wide.
const PRECISION_BITS: u32 = 10;

/// Histogram of gaps between packets with bounded size; its quantiles are exact to one thousandth.
#[derive(Clone, Debug, Default)]
pub struct GapHistogram {
    counts: Vec<u64>,
    total: u64,
}

/// Reads a trace once.
#[derive(Clone, Debug)]
pub struct TraceProfile {
    gaps: GapHistogram,
    last: Option<Time>,
    /// For each radio: burst gap, time of the release, gaps longer than the burst gap, gaps longer
    /// than both.
    radios: Vec<(Span, Span, u64, u64)>,
}

impl GapHistogram {
    pub fn push(&mut self, gap: Span) {
        let index = bucket_index(gap.as_nanos());
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
        self.total += 1;
    }

    /// The quantile of the gaps, rounded up by at most a thousandth; `None` without
    /// gaps.
    pub fn quantile(&self, share: f64) -> Option<Span> {
        let wanted = nearest_rank(self.total, share);
        let mut seen = 0;
        let index = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(Span::from_nanos(bucket_max(index)))
    }
}

/// Bucket of a number of nanoseconds; values below 2^[`PRECISION_BITS`] have one bucket each.
fn bucket_index(nanos: u64) -> usize {
    let exponent = (64 - nanos.leading_zeros()).saturating_sub(PRECISION_BITS);
    ((u64::from(exponent) << PRECISION_BITS) + (nanos >> exponent)) as usize
}

/// The largest value of a bucket.
fn bucket_max(index: usize) -> u64 {
    let index = index as u64;
    // After the first 2^BITS buckets, each exponent starts in the middle, at its highest bit.
    let exponent = (0..=64 - u64::from(PRECISION_BITS))
        .rev()
        .find(|exponent| {
            (exponent << PRECISION_BITS) + (u64::from(*exponent > 0) << (PRECISION_BITS - 1))
                <= index
        })
        .unwrap_or(0);
    let mantissa = index - (exponent << PRECISION_BITS);
    (mantissa << exponent) + ((1_u64 << exponent) - 1)
}

impl TraceProfile {
    pub fn new<'a>(radios: impl IntoIterator<Item = &'a Profile>) -> Self {
        let radio = |profile: &Profile| {
            let released = TailEnergy::from_state(profile, 0).idle_after();
            (profile.transfer.burst_gap, released, 0, 0)
        };
        Self {
            gaps: GapHistogram::default(),
            last: None,
            radios: radios.into_iter().map(radio).collect(),
        }
    }

    pub fn push(&mut self, packet: &Packet) {
        let last = self.last.map_or(packet.at, |last| last.max(packet.at));
        if let Some(before) = self.last {
            let gap = last.since(before);
            self.gaps.push(gap);
            for (burst_gap, released, bursts, periods) in &mut self.radios {
                *bursts += u64::from(gap > *burst_gap);
                *periods += u64::from(gap > *burst_gap && gap > *released);
            }
        }
        self.last = Some(last);
    }

    pub fn gaps(&self) -> &GapHistogram {
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
    use crate::radio::span;
    use proptest::prelude::*;

    use super::*;
    use crate::radio::{profiles, workload};

    #[test]
    fn bursts_are_counted_from_release_to_release() {
        let profile = profiles::named("att-hspa").unwrap().unwrap();
        let mut traffic = TraceProfile::new([&profile]);
        let mut now = Time::ZERO;
        // Three bursts, the last one of two packets, then a long gap; twice.
        for millis in [0, 5_000, 5_000, 300, 60_000, 5_000, 5_000, 300] {
            now += Span::from_millis(millis);
            let packet = workload::heartbeats(Span::from_secs(1), 1, Span::ZERO).next().unwrap();
            traffic.push(&Packet { at: now, ..packet });
        }
        assert!((traffic.bursts_per_period(0) - 3.0).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn a_quantile_is_right_to_a_thousandth(
            gaps in prop::collection::vec(0_u64..=u64::MAX / 2, 1..100),
            shifts in prop::collection::vec(0_u32..63, 100),
            share in 0.0_f64..=1.0,
        ) {
            let mut all: Vec<u64> = gaps.iter().zip(shifts).map(|(gap, by)| gap >> by).collect();
            let mut histogram = GapHistogram::default();
            all.iter().for_each(|nanos| histogram.push(Span::from_nanos(*nanos)));
            all.sort_unstable();
            let rank = ((share * all.len() as f64).ceil() as usize).max(1) - 1;
            let exact = all[rank] as f64 / 1e9;
            let found = histogram.quantile(share).unwrap();
            prop_assert!(found >= span(exact) && found <= span(exact * (1.0 + 2.0 / 1_024.0) + 1e-12));
        }

        #[test]
        fn steps_do_not_overlap(nanos: u64) {
            let step = bucket_index(nanos);
            prop_assert!(bucket_max(step) >= nanos);
            prop_assert!(bucket_max(step) == u64::MAX || bucket_index(bucket_max(step) + 1) > step);
            prop_assert_eq!(bucket_index(bucket_max(step)), step);
        }
    }
}
