//! Classes of packets, and counters of a limited number of kinds.

use std::collections::BTreeMap;

/// Maximum number of kinds that a [`Tally`] distinguishes.
const MAX_KINDS: usize = 1_024;

/// The class of a packet; each packet has exactly one. It has no content, because it is returned for
/// each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Tcp,
    TcpMalformed,
    Udp,
    UdpMalformed,
    OtherIp,
    NotIp,
    Bluetooth,
    /// A fragment that completes no packet.
    Fragment,
}

/// Packets by kind. Random bytes have tens of thousands of numbers of protocols, so kinds that
/// appear after many others count together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally<K> {
    kinds: BTreeMap<K, u64>,
    others: u64,
}

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Self { kinds: BTreeMap::new(), others: 0 }
    }
}

impl<K: Copy + Ord> Tally<K> {
    pub fn add(&mut self, kind: K, packets: u64) {
        if let Some(count) = self.kinds.get_mut(&kind) {
            *count += packets;
        } else if self.kinds.len() < MAX_KINDS {
            self.kinds.insert(kind, packets);
        } else {
            self.others += packets;
        }
    }

    pub fn add_all(&mut self, other: &Self) {
        for (kind, packets) in other.iter() {
            self.add(kind, packets);
        }
        self.others += other.others;
    }

    /// The kinds in their order, each with its packets.
    pub fn iter(&self) -> impl Iterator<Item = (K, u64)> {
        self.kinds.iter().map(|(kind, packets)| (*kind, *packets))
    }

    /// Packets of this kind.
    pub fn get(&self, kind: K) -> u64 {
        self.kinds.get(&kind).copied().unwrap_or_default()
    }

    /// Packets of all kinds that are not distinguished.
    pub fn others(&self) -> u64 {
        self.others
    }

    /// All packets.
    pub fn total(&self) -> u64 {
        self.kinds.values().sum::<u64>() + self.others
    }
}

impl<K: Copy + Ord> FromIterator<(K, u64)> for Tally<K> {
    fn from_iter<T: IntoIterator<Item = (K, u64)>>(all: T) -> Self {
        let mut tally = Self::default();
        all.into_iter().for_each(|(kind, packets)| tally.add(kind, packets));
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_is_limited_and_loses_no_packets() {
        let all: Tally<u32> = (0..5_000).map(|kind| (kind, 2)).collect();
        assert_eq!((all.iter().count(), all.total()), (MAX_KINDS, 10_000));
        let mut sum: Tally<u32> = (4_000..5_000).map(|kind| (kind, 1)).collect();
        sum.add_all(&all);
        assert_eq!((sum.iter().count(), sum.total()), (MAX_KINDS, 11_000));
        assert_eq!((sum.get(4_000), sum.get(0), sum.get(4_999)), (1, 2, 1));
    }
}
