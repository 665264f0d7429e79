//! Connections of peers that have not authenticated themselves yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::IpAddr;

use manyways_unit::{Span, Time};

/// Limits of [`PendingHandshakes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HandshakeConfig {
    /// Maximum number of pending handshakes of each [`Standing`]. Above it, one is abandoned: the
    /// oldest of the prefix that has most, so that no network can take the places of others.
    pub max_pending: usize,
    /// Timeout of a handshake.
    pub timeout: Span,
    /// Addresses of authenticated clients that are remembered.
    pub max_known: usize,
}

impl Default for HandshakeConfig {
    fn default() -> Self {
        Self { max_pending: 256, timeout: Span::from_secs(10), max_known: 4_096 }
    }
}

/// Number of a handshake, in order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HandshakeId(u64);

/// Evidence that a peer has shown. Peers of one standing never take the places of another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Standing {
    /// Nothing.
    Stranger,
    /// A client authenticated itself from this address before.
    Known,
    /// It knows the public key of the gateway.
    Proved,
}

impl Standing {
    pub const COUNT: u64 = 3;
}

/// Reason for which a handshake is abandoned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Abandonment {
    TimedOut,
    /// Too many handshakes are pending, and most of them are of this prefix.
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

/// The part of an address that one network has: 24 bits of IPv4, 48 bits of IPv6.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Prefix {
    V4([u8; 3]),
    V6([u8; 6]),
}

impl Prefix {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let [a, b, c, _] = address.octets();
                Self::V4([a, b, c])
            }
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, ..] = address.octets();
                Self::V6([a, b, c, d, e, f])
            }
        }
    }
}

/// Handshakes in progress.
#[derive(Debug)]
pub struct PendingHandshakes {
    config: HandshakeConfig,
    pending: BTreeMap<HandshakeId, Pending>,
    /// The pending handshakes of each prefix.
    groups: BTreeMap<(Standing, Prefix), BTreeSet<HandshakeId>>,
    /// Addresses of authenticated clients, in the order of their last authentication.
    known: BTreeMap<IpAddr, u64>,
    known_order: BTreeMap<u64, IpAddr>,
    next: u64,
    abandoned: VecDeque<(HandshakeId, IpAddr, Abandonment)>,
}

#[derive(Debug)]
struct Pending {
    from: IpAddr,
    standing: Standing,
    until: Time,
}

impl PendingHandshakes {
    pub fn new(config: HandshakeConfig) -> Self {
        Self {
            config,
            pending: BTreeMap::new(),
            groups: BTreeMap::new(),
            known: BTreeMap::new(),
            known_order: BTreeMap::new(),
            next: 0,
            abandoned: VecDeque::new(),
        }
    }

    /// The standing of a peer that connects.
    pub fn standing(&self, from: IpAddr, is_proved: bool) -> Standing {
        match is_proved {
            true => Standing::Proved,
            false if self.known.contains_key(&from.to_canonical()) => Standing::Known,
            false => Standing::Stranger,
        }
    }

    /// Whether half of the places of a standing are taken. Then, the addresses of its next peers
    /// must be validated, because spoofed ones could take many places (RFC 9000 §8.1), and nothing
    /// is computed for strangers.
    pub fn is_crowded(&self, standing: Standing) -> bool {
        self.count(standing) >= self.config.max_pending.div_ceil(2)
    }

    fn count(&self, standing: Standing) -> usize {
        let groups = self.groups.iter().filter(|((own, _), _)| *own == standing);
        groups.map(|(_, group)| group.len()).sum()
    }

    /// Adds a handshake with the peer at `from`.
    pub fn begin(&mut self, now: Time, from: IpAddr, is_proved: bool) -> HandshakeId {
        let id = HandshakeId(self.next);
        self.next += 1;
        let standing = self.standing(from, is_proved);
        self.insert(id, Pending { from, standing, until: now + self.config.timeout });
        id
    }

    /// Notes that a pending peer knows the public key of the gateway.
    pub fn prove(&mut self, id: HandshakeId) {
        if let Some(pending) = self.remove(id) {
            self.insert(id, Pending { standing: Standing::Proved, ..pending });
        }
    }

    /// Returns the standing of a pending peer.
    pub fn standing_of(&self, id: HandshakeId) -> Option<Standing> {
        self.pending.get(&id).map(|pending| pending.standing)
    }

    fn insert(&mut self, id: HandshakeId, pending: Pending) {
        let standing = pending.standing;
        self.groups.entry((standing, Prefix::of(pending.from))).or_default().insert(id);
        self.pending.insert(id, pending);
        if self.count(standing) > self.config.max_pending
            && let Some(victim) = self.victim(standing)
        {
            self.abandon(victim, Abandonment::TooMany);
        }
    }

    fn remove(&mut self, id: HandshakeId) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        let key = (pending.standing, Prefix::of(pending.from));
        if let Some(group) = self.groups.get_mut(&key) {
            group.remove(&id);
            if group.is_empty() {
                self.groups.remove(&key);
            }
        }
        Some(pending)
    }

    /// The oldest handshake of the prefix with most; of two such prefixes, that of the older one.
    fn victim(&self, standing: Standing) -> Option<HandshakeId> {
        let groups = self.groups.iter().filter(|((own, _), _)| *own == standing);
        let sized = groups.filter_map(|(_, group)| Some((group.len(), *group.first()?)));
        sized.max_by_key(|(size, oldest)| (*size, std::cmp::Reverse(*oldest))).map(|(_, id)| id)
    }

    /// Removes a handshake after success or failure.
    pub fn finish(&mut self, id: HandshakeId) {
        self.remove(id);
    }

    /// Notes that a pending peer is an authenticated client, and remembers its address.
    pub fn authenticate(&mut self, id: HandshakeId) {
        self.prove(id);
        let Some(pending) = self.pending.get(&id) else { return };
        let (from, order) = (pending.from.to_canonical(), self.next);
        self.next += 1;
        if let Some(before) = self.known.insert(from, order) {
            self.known_order.remove(&before);
        }
        self.known_order.insert(order, from);
        if self.known.len() > self.config.max_known
            && let Some((_, oldest)) = self.known_order.pop_first()
        {
            self.known.remove(&oldest);
        }
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

    fn abandon(&mut self, id: HandshakeId, reason: Abandonment) {
        if let Some(pending) = self.remove(id) {
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

    /// An address of another /24 than [`address`].
    fn elsewhere(network: u16) -> IpAddr {
        let [high, low] = network.to_be_bytes();
        IpAddr::from([10, high, low, 1])
    }

    fn with_max_pending(max_pending: usize) -> PendingHandshakes {
        PendingHandshakes::new(HandshakeConfig { max_pending, ..HandshakeConfig::default() })
    }

    #[test]
    fn a_handshake_that_takes_too_long_is_abandoned() {
        let mut handshakes = with_max_pending(256);
        let slow = handshakes.begin(at(0), address(1), false);
        let quick = handshakes.begin(at(1), address(2), false);
        handshakes.finish(quick);
        assert_eq!(handshakes.next_wakeup(), Some(at(10_000)));
        assert_eq!(handshakes.poll(at(9_999)), None);
        let late = Some((slow, address(1), Abandonment::TimedOut));
        assert_eq!(handshakes.poll(at(10_000)), late);
        assert_eq!((handshakes.poll(at(10_000)), handshakes.next_wakeup()), (None, None));
    }

    #[test]
    fn one_network_never_takes_the_place_of_another_one() {
        let mut handshakes = with_max_pending(256);
        let other = handshakes.begin(at(0), elsewhere(1), false);
        for number in 1..=10_000_u16 {
            assert_eq!(handshakes.is_crowded(Standing::Stranger), number >= 128, "{number}");
            handshakes.begin(at(1), address(number as u8), false);
            let abandoned = handshakes.poll(at(1));
            assert_eq!(abandoned.is_some(), number >= 256);
            assert!(
                abandoned.is_none_or(|(id, _, why)| { id != other && why == Abandonment::TooMany })
            );
        }
        assert_eq!(handshakes.standing_of(other), Some(Standing::Stranger));
        // Of two networks with as many, the one with the older handshake gives way.
        for network in 0..300 {
            handshakes.begin(at(2), elsewhere(network), false);
        }
        while handshakes.poll(at(2)).is_some() {}
        assert_eq!(handshakes.standing_of(other), None);
    }

    #[test]
    fn strangers_of_all_networks_never_take_the_place_of_who_knows_the_gateway() {
        let mut handshakes = with_max_pending(256);
        let first = handshakes.begin(at(0), address(1), false);
        handshakes.authenticate(first);
        handshakes.finish(first);
        let known = handshakes.begin(at(1), address(1), false);
        let proved = handshakes.begin(at(1), elsewhere(7), true);
        let late = handshakes.begin(at(1), elsewhere(8), false);
        handshakes.prove(late);
        for number in 0..20_000 {
            handshakes.begin(at(2), elsewhere(number), false);
            while let Some((id, ..)) = handshakes.poll(at(2)) {
                assert!(![known, proved, late].contains(&id));
            }
        }
        let standing = |id| handshakes.standing_of(id).unwrap();
        assert_eq!(standing(known), Standing::Known);
        assert_eq!((standing(proved), standing(late)), (Standing::Proved, Standing::Proved));
        assert!(
            handshakes.is_crowded(Standing::Stranger) && !handshakes.is_crowded(Standing::Proved)
        );
    }

    #[test]
    fn the_newest_known_addresses_are_remembered() {
        let config = HandshakeConfig { max_known: 2, ..HandshakeConfig::default() };
        let mut handshakes = PendingHandshakes::new(config);
        for last in [1, 2, 1, 3] {
            let id = handshakes.begin(at(0), address(last), false);
            handshakes.authenticate(id);
            handshakes.finish(id);
        }
        let is_known = |last| handshakes.standing(address(last), false) == Standing::Known;
        assert_eq!([1, 2, 3].map(is_known), [true, false, true]);
        let mapped = "::ffff:192.0.2.3".parse().unwrap();
        assert_eq!(handshakes.standing(mapped, false), Standing::Known);
    }

    #[test]
    fn a_network_of_ipv6_has_48_bits() {
        let prefix = |text: &str| Prefix::of(text.parse().unwrap());
        assert_eq!(prefix("2001:db8:1:2::3"), prefix("2001:db8:1:ffff::"));
        assert_ne!(prefix("2001:db8:1::"), prefix("2001:db8:2::"));
        assert_eq!(prefix("::ffff:192.0.2.1"), prefix("192.0.2.200"));
    }

    proptest! {
        #[test]
        fn they_are_bounded_and_each_ends_once(
            events in prop::collection::vec(
                (0_u64..4_000, prop::option::of((0_usize..6, 0_u8..3)), 0_u16..4, any::<bool>()),
                1..200,
            ),
        ) {
            let mut handshakes = with_max_pending(5);
            let mut pending = Vec::new();
            let mut now = at(0);
            for (pause, end, network, is_proved) in events {
                now += Span::from_millis(pause);
                match end.filter(|(at, _)| *at < pending.len()) {
                    Some((index, 0)) => handshakes.finish(pending.remove(index)),
                    Some((index, 1)) => handshakes.authenticate(pending[index]),
                    Some((index, _)) => handshakes.prove(pending[index]),
                    None => pending.push(handshakes.begin(now, elsewhere(network), is_proved)),
                }
                while let Some((id, _, _)) = handshakes.poll(now) {
                    let place = pending.iter().position(|other| *other == id);
                    prop_assert!(place.is_some(), "abandoned twice, or after its end");
                    pending.remove(place.unwrap());
                }
                for standing in [Standing::Stranger, Standing::Known, Standing::Proved] {
                    let of = |id: &&HandshakeId| handshakes.standing_of(**id) == Some(standing);
                    let count = pending.iter().filter(of).count();
                    prop_assert!(count <= 5 && count == handshakes.count(standing));
                }
                prop_assert_eq!(handshakes.pending.len(), pending.len());
                prop_assert_eq!(handshakes.next_wakeup().is_some(), !pending.is_empty());
                prop_assert!(handshakes.next_wakeup().is_none_or(|at| at > now));
            }
        }
    }
}
