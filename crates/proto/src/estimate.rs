//! Estimates the capacity and round-trip time of a path from received bytes.

mod capacity;

use std::collections::VecDeque;

use manyways_unit::{Rate, Size, Span, Time};

pub use capacity::{CapacityEstimate, CapacitySample, LossEstimate};

/// Minimum bytes of a sample (MP-H2, §3.3).
const MIN_SAMPLE_BYTES: u64 = 20_000;
/// Bytes of the samples in the average.
const AVERAGED_BYTES: u64 = 500_000;

/// Estimate of a path at its last use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathEstimate {
    pub rate: Rate,
    /// Time from a request to its response header.
    pub rtt: Span,
}

/// Throughput of one path: samples of at least 20 KB, averaged over the last 500 KB.
///
/// Each sample has the weight of its duration, so the average is the rate of a download of the
/// window's bytes. Only time in which bytes are expected counts; see [`Throughput::resume`].
#[derive(Clone, Debug, Default)]
pub struct Throughput {
    samples: VecDeque<(u64, Span)>,
    bytes: u64,
    duration: Span,
    open_bytes: u64,
    open_since: Option<Time>,
}

impl Throughput {
    /// Starts a sample, because a response has begun.
    pub fn resume(&mut self, now: Time) {
        self.open_since = Some(now);
        self.open_bytes = 0;
    }

    /// Returns whether bytes are expected.
    pub fn is_running(&self) -> bool {
        self.open_since.is_some()
    }

    /// Stops the measurement. The incomplete sample is too short and is dropped.
    pub fn pause(&mut self) {
        self.open_since = None;
        self.open_bytes = 0;
    }

    /// Records `bytes` received at `now`.
    pub fn observe(&mut self, now: Time, bytes: u64) {
        let Some(since) = self.open_since else {
            self.open_since = Some(now);
            return;
        };
        self.open_bytes += bytes;
        let span = now.since(since);
        if self.open_bytes < MIN_SAMPLE_BYTES || span.is_zero() {
            return;
        }
        self.samples.push_back((self.open_bytes, span));
        self.bytes += self.open_bytes;
        self.duration += span;
        self.open_bytes = 0;
        self.open_since = Some(now);
        while let Some(&(bytes, span)) = self.samples.front()
            && self.bytes - bytes >= AVERAGED_BYTES
        {
            self.samples.pop_front();
            self.bytes -= bytes;
            self.duration -= span;
        }
    }

    /// Returns the rate of the incomplete first sample at `now`; `None` if it is shorter than `min`.
    pub fn first_rate(&self, now: Time, min: Span) -> Option<Rate> {
        let elapsed = now.since(self.open_since?);
        let is_first = self.samples.is_empty() && elapsed >= min && !elapsed.is_zero();
        is_first.then(|| Rate::of(Size::from_bytes(self.open_bytes), elapsed))
    }

    /// Returns the rate at `now`, or `None` before the first sample.
    ///
    /// The incomplete sample counts as soon as it lowers the result, so the estimate falls while
    /// expected bytes do not arrive.
    pub fn rate(&self, now: Time) -> Option<Rate> {
        if self.samples.is_empty() {
            return None;
        }
        let closed = Rate::of(Size::from_bytes(self.bytes), self.duration);
        let Some(since) = self.open_since else { return Some(closed) };
        let with_open = Rate::of(
            Size::from_bytes(self.bytes + self.open_bytes),
            self.duration + now.since(since),
        );
        Some(closed.min(with_open))
    }
}

/// Application round-trip time of one path: from a request to its response header.
#[derive(Clone, Debug, Default)]
pub struct RoundTrip {
    samples: VecDeque<Span>,
    min_rtt: Option<Span>,
}

impl RoundTrip {
    /// Number of samples in the mean (MP-H2, §3.4.1).
    const SAMPLES: usize = 5;

    pub fn observe(&mut self, sample: Span) {
        self.samples.push_back(sample);
        if self.samples.len() > Self::SAMPLES {
            self.samples.pop_front();
        }
        self.min_rtt = Some(self.min_rtt.map_or(sample, |min| min.min(sample)));
    }

    /// Returns the latest sample.
    pub fn last(&self) -> Option<Span> {
        self.samples.back().copied()
    }

    /// Returns the mean of the last five samples.
    pub fn mean(&self) -> Option<Span> {
        let sum: u64 = self.samples.iter().map(|sample| sample.as_nanos()).sum();
        let count = self.samples.len() as u64;
        (count > 0).then(|| Span::from_nanos(sum / count))
    }

    /// Returns the smallest of all samples: the RTT without queueing delay.
    pub fn min_rtt(&self) -> Option<Span> {
        self.min_rtt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_a_constant_rate_and_forgets_an_old_one() {
        let mut throughput = Throughput::default();
        assert_eq!(throughput.rate(Time::ZERO), None);
        throughput.resume(Time::ZERO);
        // 10 KB every 10 ms is 8 Mbit/s.
        for i in 1..=100 {
            throughput.observe(Time::from_millis(10 * i), 10_000);
        }
        assert_eq!(throughput.rate(Time::from_millis(1_000)), Some(Rate::from_mbps(8)));
        // After another 500 KB only the new rate remains: 10 KB every 20 ms is 4 Mbit/s.
        for i in 1..=60 {
            throughput.observe(Time::from_millis(1_000 + 20 * i), 10_000);
        }
        assert_eq!(throughput.rate(Time::from_millis(2_200)), Some(Rate::from_mbps(4)));
    }

    #[test]
    fn an_incomplete_first_sample_has_a_rate_after_the_minimum_time() {
        let mut throughput = Throughput::default();
        let (start, min) = (Time::from_millis(10), Span::from_millis(50));
        throughput.resume(start);
        throughput.observe(start + Span::from_millis(20), 5_000);
        assert_eq!(throughput.rate(start + min), None);
        assert_eq!(throughput.first_rate(start + Span::from_millis(49), min), None);
        let at = start + Span::from_millis(100);
        assert_eq!(throughput.first_rate(at, min), Some(Rate::from_kbps(400)));
        throughput.observe(at, 15_000);
        assert_eq!(throughput.first_rate(at, min), None, "the sample is complete");
    }

    #[test]
    fn falls_while_bytes_are_due_and_not_while_they_are_not() {
        let mut throughput = Throughput::default();
        throughput.resume(Time::ZERO);
        throughput.observe(Time::from_millis(100), 100_000);
        let later = Time::from_millis(300);
        assert_eq!(throughput.rate(later), Some(Rate::from_bps(2_666_666)));
        throughput.pause();
        assert_eq!(throughput.rate(later), Some(Rate::from_mbps(8)));
    }
}
