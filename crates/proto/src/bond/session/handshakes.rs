//! Connections of unauthenticated peers.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::IpAddr;

use manyways_unit::{Span, Time};

/// Limits of [`PendingHandshakes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HandshakeConfig {
    /// Maximum number of pending handshakes. Above it, the oldest is abandoned: a client needs
    /// only two round trips, and an attacker cannot keep places.
    pub max_pending: usize,
    /// Timeout of a handshake.
    pub timeout: Span,
}

impl Default for HandshakeConfig {
    fn default() -> Self {
        Self { max_pending: 256, timeout: Span::from_secs(10) }
    }
}

/// Number of a handshake, in order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HandshakeId(u64);

/// Reason for which a handshake is abandoned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Abandonment {
    TimedOut,
    /// Too many handshakes are pending, and this is the oldest.
    TooMany,
}

impl fmt::Display for Abandonment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "no handshake in time",
            Self::TooMany => "too many pending handshakes",
        })
    }
}

/// Handshakes in progress.
#[derive(Debug)]
pub struct PendingHandshakes {
    config: HandshakeConfig,
    pending: BTreeMap<HandshakeId, Pending>,
    next_id: u64,
    abandoned: VecDeque<(HandshakeId, IpAddr, Abandonment)>,
}

#[derive(Debug)]
struct Pending {
    from: IpAddr,
    until: Time,
}

impl PendingHandshakes {
    pub fn new(config: HandshakeConfig) -> Self {
        Self { config, pending: BTreeMap::new(), next_id: 0, abandoned: VecDeque::new() }
    }

    /// Returns whether the next connection must validate its address, because spoofed addresses
    /// could take many places (RFC 9000 §8.1).
    pub fn needs_address_validation(&self) -> bool {
        self.pending.len() >= self.config.max_pending / 2
    }

    /// Adds a handshake with the peer at `from`.
    pub fn begin(&mut self, now: Time, from: IpAddr) -> HandshakeId {
        let id = HandshakeId(self.next_id);
        self.next_id += 1;
        self.pending.insert(id, Pending { from, until: now + self.config.timeout });
        if self.pending.len() > self.config.max_pending
            && let Some(victim) = self.oldest()
        {
            self.abandon(victim, Abandonment::TooMany);
        }
        id
    }

    /// Removes a handshake after success or failure.
    pub fn finish(&mut self, id: HandshakeId) {
        self.pending.remove(&id);
    }

    /// Returns the next abandoned handshake at `now`, the address of the peer and the reason.
    pub fn poll(&mut self, now: Time) -> Option<(HandshakeId, IpAddr, Abandonment)> {
        let oldest = self.pending.first_key_value();
        if let Some(late) = oldest.filter(|(_, one)| one.until <= now).map(|(id, _)| *id) {
            self.abandon(late, Abandonment::TimedOut);
        }
        self.abandoned.pop_front()
    }

    /// Returns the time of the next [`PendingHandshakes::poll`] if no input arrives before.
    pub fn next_wakeup(&self) -> Option<Time> {
        // All have the same timeout, so the oldest expires first.
        self.pending.first_key_value().map(|(_, pending)| pending.until)
    }

    /// Returns the oldest handshake.
    fn oldest(&self) -> Option<HandshakeId> {
        self.pending.keys().next().copied()
    }

    fn abandon(&mut self, id: HandshakeId, reason: Abandonment) {
        if let Some(pending) = self.pending.remove(&id) {
            self.abandoned.push_back((id, pending.from, reason));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn with_max_pending(max_pending: usize) -> PendingHandshakes {
        PendingHandshakes::new(HandshakeConfig { max_pending, ..HandshakeConfig::default() })
    }

    #[test]
    fn a_handshake_that_takes_too_long_is_abandoned() {
        let mut handshakes = with_max_pending(256);
        let slow = handshakes.begin(at(0), address(1));
        let quick = handshakes.begin(at(1), address(2));
        handshakes.finish(quick);
        assert_eq!(handshakes.next_wakeup(), Some(at(10_000)));
        assert_eq!(handshakes.poll(at(9_999)), None);
        let late = Some((slow, address(1), Abandonment::TimedOut));
        assert_eq!(handshakes.poll(at(10_000)), late);
        assert_eq!((handshakes.poll(at(10_000)), handshakes.next_wakeup()), (None, None));
    }

    #[test]
    fn however_many_are_silent_the_newest_has_its_time() {
        let mut handshakes = with_max_pending(256);
        let first = handshakes.begin(at(0), address(1));
        for number in 1..256 {
            assert_eq!(handshakes.needs_address_validation(), number >= 128, "{number}");
            handshakes.begin(at(number), address(1));
        }
        assert_eq!(handshakes.poll(at(256)), None);
        let newest = handshakes.begin(at(256), address(2));
        let oldest = Some((first, address(1), Abandonment::TooMany));
        assert_eq!(handshakes.poll(at(256)), oldest);
        for number in 0..255 {
            handshakes.begin(at(257), address(1));
            let (id, _, reason) = handshakes.poll(at(257)).unwrap();
            assert_eq!((reason, id == newest), (Abandonment::TooMany, false), "{number}");
        }
    }

    proptest! {
        #[test]
        fn they_are_bounded_and_each_ends_once(
            events in prop::collection::vec((0_u64..4_000, prop::option::of(0_usize..6)), 1..200),
        ) {
            let mut handshakes = with_max_pending(5);
            let mut pending = Vec::new();
            let mut now = at(0);
            for (pause, finish) in events {
                now += Span::from_millis(pause);
                match finish.filter(|at| *at < pending.len()) {
                    Some(index) => handshakes.finish(pending.remove(index)),
                    None => pending.push(handshakes.begin(now, address(1))),
                }
                while let Some((id, _, _)) = handshakes.poll(now) {
                    let place = pending.iter().position(|other| *other == id);
                    prop_assert!(place.is_some(), "abandoned twice, or after its end");
                    pending.remove(place.unwrap());
                }
                prop_assert!(pending.len() <= 5);
                prop_assert_eq!(handshakes.next_wakeup().is_some(), !pending.is_empty());
                prop_assert!(handshakes.next_wakeup().is_none_or(|at| at > now));
            }
        }
    }
}
