//! How fast a client may be: what its applications send and receive in all, each way.

use manyways_unit::{Rate, Size, Span, Time};

/// What was not used may be caught up with, up to this much time's worth.
const BURST: Span = Span::from_millis(20);
/// A chunk takes this much time's worth at most…
const CHUNK_TIME: Span = Span::from_millis(10);
/// …and is no smaller than this.
const MIN_CHUNK: usize = 4 << 10;

/// From the client to servers, or back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From applications to servers.
    Up = 0,
    /// From servers to applications.
    Down = 1,
}

/// A rate limit each way: a token bucket, kept as the time at which it is empty (GCRA, ITU-T I.371).
#[derive(Clone, Debug)]
pub struct RateLimit {
    rate: Rate,
    free_at: [Time; 2],
}

impl RateLimit {
    /// A limit at which nothing has passed yet.
    pub fn new(rate: Rate) -> Self {
        Self { rate, free_at: [Time::ZERO; 2] }
    }

    /// Another rate begins with nothing owed: what passed at a lower one would take too long.
    pub fn set(&mut self, rate: Rate) {
        if self.rate != rate {
            *self = Self::new(rate);
        }
    }

    /// How long until more may pass; `None` where it may now.
    pub fn wait_time(&self, now: Time, direction: Direction) -> Option<Span> {
        let wait = self.free_at[direction as usize].since(now);
        Some(wait).filter(|wait| !wait.is_zero())
    }

    /// How much may pass at once, in bytes.
    pub fn max_chunk(&self) -> usize {
        let bytes = self.rate.size_in(CHUNK_TIME).as_bytes();
        usize::try_from(bytes).unwrap_or(usize::MAX).max(MIN_CHUNK)
    }

    /// This many bytes have passed.
    pub fn charge(&mut self, now: Time, direction: Direction, bytes: usize) {
        let earliest = Time::ZERO + now.since(Time::ZERO).saturating_sub(BURST);
        let takes = self.rate.time_for(Size::from_bytes(bytes as u64));
        let free_at = &mut self.free_at[direction as usize];
        *free_at = (*free_at).max(earliest) + takes;
    }

    /// Whether a datagram may pass; if so, it is charged.
    pub fn admit(&mut self, now: Time, direction: Direction, bytes: usize) -> bool {
        let passes = self.wait_time(now, direction).is_none();
        if passes {
            self.charge(now, direction, bytes);
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_the_rate_and_a_short_burst() {
        for mbps in [1, 100, 5_000] {
            let mut limit = RateLimit::new(Rate::from_mbps(mbps));
            let begin = Time::ZERO + Span::from_secs(100);
            let (mut now, mut bytes) = (begin, 0);
            // There is always more to send.
            while now.since(begin) < Span::from_secs(1) {
                match limit.wait_time(now, Direction::Up) {
                    Some(wait) => now += wait,
                    None => {
                        limit.charge(now, Direction::Up, limit.max_chunk());
                        bytes += limit.max_chunk() as u64;
                    }
                }
            }
            let a_second = mbps * 125_000;
            let most = a_second + a_second / 50 + 2 * limit.max_chunk() as u64;
            assert!((a_second..=most).contains(&bytes), "{mbps}: {bytes}");
            assert_eq!(limit.wait_time(begin, Direction::Down), None, "the other way is free");
        }
    }

    #[test]
    fn datagrams_beyond_it_do_not_pass() {
        let mut limit = RateLimit::new(Rate::from_mbps(1));
        let passed = (0..10_000_u64)
            .filter(|ms| limit.admit(Time::ZERO + Span::from_millis(*ms), Direction::Down, 1_250));
        // One each 10 ms.
        assert!((998..=1_003).contains(&passed.count()));
    }

    #[test]
    fn another_rate_owes_nothing() {
        let mut limit = RateLimit::new(Rate::from_bps(100));
        limit.charge(Time::ZERO, Direction::Up, 1_000);
        limit.set(Rate::from_bps(100));
        assert_eq!(limit.wait_time(Time::ZERO, Direction::Up), Some(Span::from_secs(80)));
        limit.set(Rate::from_bps(200));
        assert_eq!(limit.wait_time(Time::ZERO, Direction::Up), None);
    }
}
