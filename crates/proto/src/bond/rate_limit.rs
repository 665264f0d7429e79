//! Rate limit of a client: all bytes that its applications send, and all that they receive.

use manyways_unit::{Rate, Size, Span, Time};

/// Burst size, as time at the full rate.
const BURST: Span = Span::from_millis(20);
/// Maximum chunk size, as time at the full rate.
const CHUNK_TIME: Span = Span::from_millis(10);
/// Minimum chunk size in bytes.
const MIN_CHUNK: usize = 4 << 10;

/// Direction of traffic, seen from the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From applications to servers.
    Up = 0,
    /// From servers to applications.
    Down = 1,
}

/// A rate limit for each direction: a token bucket, stored as the time at which it is empty (GCRA,
/// ITU-T I.371).
#[derive(Clone, Debug)]
pub struct RateLimit {
    rate: Rate,
    free_at: [Time; 2],
}

impl RateLimit {
    pub fn new(rate: Rate) -> Self {
        Self { rate, free_at: [Time::ZERO; 2] }
    }

    /// Changes the rate. A new rate clears the bucket, because debt from a lower rate would take
    /// too long.
    pub fn set(&mut self, rate: Rate) {
        if self.rate != rate {
            *self = Self::new(rate);
        }
    }

    /// Returns the wait until more bytes can pass, or `None` if they can pass now.
    pub fn wait_time(&self, now: Time, direction: Direction) -> Option<Span> {
        let wait = self.free_at[direction as usize].since(now);
        Some(wait).filter(|wait| !wait.is_zero())
    }

    /// Returns the maximum bytes that can pass at once.
    pub fn max_chunk(&self) -> usize {
        let bytes = self.rate.size_in(CHUNK_TIME).as_bytes();
        usize::try_from(bytes).unwrap_or(usize::MAX).max(MIN_CHUNK)
    }

    /// Records `bytes` that have passed.
    pub fn charge(&mut self, now: Time, direction: Direction, bytes: usize) {
        let earliest = Time::ZERO + now.since(Time::ZERO).saturating_sub(BURST);
        let takes = self.rate.time_for(Size::from_bytes(bytes as u64));
        let free_at = &mut self.free_at[direction as usize];
        *free_at = (*free_at).max(earliest) + takes;
    }

    /// Returns whether a datagram can pass, and records its bytes in this case.
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
            let max = a_second + a_second / 50 + 2 * limit.max_chunk() as u64;
            assert!((a_second..=max).contains(&bytes), "{mbps}: {bytes}");
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
