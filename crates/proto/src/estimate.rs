//! What a path is worth, from the bytes that it brought.

mod offer;

use std::collections::VecDeque;

use manyways_unit::{Rate, Size, Span, Time};

pub use offer::{Look, Losses, Offer};

/// A sample closes after this much, as in MP-H2 §3.3.
const SAMPLE: u64 = 20_000;
/// The average reaches back over this much.
const WINDOW: u64 = 500_000;

/// What a path was worth when it was used last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conditions {
    /// Its throughput.
    pub rate: Rate,
    /// Its application round trip: from a request to the head of its answer.
    pub rtt: Span,
}

/// The throughput of one path: samples of at least 20 KB, averaged over the last 500 KB.
///
/// Each sample weighs as much as the time that it took, so the average is the rate that a download
/// of the window's bytes had. Only the time in which bytes were due counts: the shell's silence
/// between two requests is no sample, see [`Throughput::resume`].
#[derive(Clone, Debug, Default)]
pub struct Throughput {
    samples: VecDeque<(u64, Span)>,
    bytes: u64,
    span: Span,
    open: u64,
    since: Option<Time>,
}

impl Throughput {
    /// Bytes are due from now on: a response has begun.
    pub fn resume(&mut self, now: Time) {
        self.since = Some(now);
        self.open = 0;
    }

    /// Whether bytes are due.
    pub fn is_running(&self) -> bool {
        self.since.is_some()
    }

    /// No bytes are due any more. The sample that was open is too short to tell and is dropped.
    pub fn pause(&mut self) {
        self.since = None;
        self.open = 0;
    }

    /// `bytes` arrived.
    pub fn observe(&mut self, now: Time, bytes: u64) {
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.open += bytes;
        let span = now.since(since);
        if self.open < SAMPLE || span.is_zero() {
            return;
        }
        self.samples.push_back((self.open, span));
        self.bytes += self.open;
        self.span += span;
        self.open = 0;
        self.since = Some(now);
        while let Some(&(bytes, span)) = self.samples.front()
            && self.bytes - bytes >= WINDOW
        {
            self.samples.pop_front();
            self.bytes -= bytes;
            self.span -= span;
        }
    }

    /// The rate as of now, or `None` before the first sample.
    ///
    /// While bytes are due and fail to come, the estimate falls: the open sample counts as soon as
    /// it makes the answer lower.
    pub fn rate(&self, now: Time) -> Option<Rate> {
        if self.samples.is_empty() {
            return None;
        }
        let closed = Rate::of(Size::from_bytes(self.bytes), self.span);
        let Some(since) = self.since else { return Some(closed) };
        let with_open =
            Rate::of(Size::from_bytes(self.bytes + self.open), self.span + now.since(since));
        Some(closed.min(with_open))
    }
}

/// The application round trip of one path: from a request to the head of its answer.
#[derive(Clone, Debug, Default)]
pub struct RoundTrip {
    samples: VecDeque<Span>,
    least: Option<Span>,
}

impl RoundTrip {
    /// The mean is of so many samples, as in MP-H2 §3.4.1.
    const SAMPLES: usize = 5;

    /// One was measured.
    pub fn observe(&mut self, sample: Span) {
        self.samples.push_back(sample);
        if self.samples.len() > Self::SAMPLES {
            self.samples.pop_front();
        }
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
    }

    /// The latest.
    pub fn last(&self) -> Option<Span> {
        self.samples.back().copied()
    }

    /// The mean of the last five.
    pub fn mean(&self) -> Option<Span> {
        let sum: u64 = self.samples.iter().map(|sample| sample.as_nanos()).sum();
        let count = self.samples.len() as u64;
        (count > 0).then(|| Span::from_nanos(sum / count))
    }

    /// Whether the latest is hardly longer than the smallest, and there was one before: nothing
    /// waits in a queue.
    pub fn is_flat(&self) -> bool {
        let pair = self.last().zip(self.least()).filter(|_| self.samples.len() > 1);
        pair.is_some_and(|(last, least)| last * 4 <= least * 5)
    }

    /// The smallest of all: what is left when nothing waits in a queue.
    pub fn least(&self) -> Option<Span> {
        self.least
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
        // 500 KB later nothing of it is left: 10 KB every 20 ms is 4 Mbit/s.
        for i in 1..=60 {
            throughput.observe(Time::from_millis(1_000 + 20 * i), 10_000);
        }
        assert_eq!(throughput.rate(Time::from_millis(2_200)), Some(Rate::from_mbps(4)));
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
