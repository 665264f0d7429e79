//! Reassembly of IP fragments.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use manyways_unit::{Span, Time};

use super::{Datagram, Fragment};

/// Maximum number of incomplete packets; the oldest is forgotten first.
const INCOMPLETE: usize = 1_024;
/// Maximum number of fragments of a packet.
const PARTS: usize = 64;
/// Time after which an incomplete packet is discarded, as in Linux.
const PATIENCE: Span = Span::from_secs(30);
/// Maximum length of a packet.
const LONGEST: usize = 65_535;

/// Fragments of packets that are not complete yet.
#[derive(Debug, Default)]
pub struct Fragments {
    packets: HashMap<Key, Packet>,
    /// Oldest first; packets that are complete by now may remain in the queue.
    order: VecDeque<(Time, Key)>,
}

/// A reassembled packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// The payload up to the first byte that was not captured.
    pub payload: Vec<u8>,
    /// Number of payload bytes, captured or not.
    pub carried: usize,
    /// Number of fragments.
    pub parts: usize,
    /// Number of bytes of all fragments, with their headers.
    pub length: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    id: u32,
}

#[derive(Debug, Default)]
struct Packet {
    parts: Vec<Part>,
    /// Payload length; `None` until the last fragment has arrived.
    length: Option<usize>,
}

#[derive(Debug)]
struct Part {
    begin: usize,
    length: usize,
    /// Length with the IP headers.
    whole: usize,
    /// The captured bytes.
    bytes: Vec<u8>,
}

impl Fragments {
    /// Adds a fragment. Returns the packet if the fragment completes it.
    pub fn add(&mut self, now: Time, datagram: &Datagram<'_>, part: Fragment) -> Option<Whole> {
        self.forget(now);
        let (begin, length) = (part.offset as usize, datagram.carried);
        if begin + length > LONGEST {
            return None;
        }
        let Datagram { source, destination, .. } = *datagram;
        let key = Key { source, destination, id: part.id };
        let packet = self.packets.entry(key).or_insert_with(|| {
            self.order.push_back((now, key));
            Packet::default()
        });
        if !part.has_more {
            packet.length = Some(begin + length);
        }
        let bytes = datagram.payload.to_vec();
        packet.add(Part { begin, length, whole: datagram.length, bytes });
        let whole = packet.whole()?;
        self.packets.remove(&key);
        Some(whole)
    }

    fn forget(&mut self, now: Time) {
        while let Some((since, key)) = self.order.front() {
            let is_old = now.since(*since) > PATIENCE || self.order.len() > INCOMPLETE;
            if self.packets.contains_key(key) && !is_old {
                break;
            }
            self.packets.remove(key);
            self.order.pop_front();
        }
    }
}

impl Packet {
    /// Adds a fragment; of fragments with the same offset, the first is kept.
    fn add(&mut self, part: Part) {
        let place = self.parts.partition_point(|other| other.begin < part.begin);
        let is_here = self.parts.get(place).is_some_and(|other| other.begin == part.begin);
        if !is_here && self.parts.len() < PARTS {
            self.parts.insert(place, part);
        }
    }

    fn whole(&self) -> Option<Whole> {
        let carried = self.length?;
        let mut reached = 0;
        for part in &self.parts {
            if part.begin > reached {
                return None;
            }
            reached = reached.max(part.begin + part.length);
        }
        if reached < carried {
            return None;
        }
        let mut payload = Vec::new();
        for part in &self.parts {
            // After a truncated fragment, later bytes would have a wrong offset.
            let Some(overlap) = payload.len().checked_sub(part.begin) else { break };
            payload.extend_from_slice(part.bytes.get(overlap..).unwrap_or_default());
        }
        payload.truncate(carried);
        let length = self.parts.iter().map(|part| part.whole).sum();
        Some(Whole { payload, carried, parts: self.parts.len(), length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(payload: &[u8], carried: usize) -> Datagram<'_> {
        Datagram {
            source: [192, 0, 2, 1].into(),
            destination: [192, 0, 2, 2].into(),
            protocol: 17,
            payload,
            carried,
            length: carried + 20,
            fragment: None,
            ecn: 0,
            id: 0,
            hop_limit: 64,
            is_tunnelled: false,
        }
    }

    fn at(offset: u32, has_more: bool) -> Fragment {
        Fragment { id: 7, offset, has_more }
    }

    #[test]
    fn fragments_in_any_order_are_reassembled() {
        let parts = [
            (&b"abcdefgh"[..], at(0, true)),
            (&b"ijklmnop"[..], at(8, true)),
            (&b"q"[..], at(16, false)),
        ];
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1]] {
            let mut fragments = Fragments::default();
            let mut whole = None;
            for (index, place) in order.into_iter().enumerate() {
                let (bytes, fragment) = parts[place];
                whole = fragments.add(Time::ZERO, &part(bytes, bytes.len()), fragment);
                assert_eq!(whole.is_some(), index == 2);
            }
            let payload = b"abcdefghijklmnopq".to_vec();
            let expected = Whole { payload, carried: 17, parts: 3, length: 17 + 3 * 20 };
            assert_eq!(whole, Some(expected));
            assert!(fragments.packets.is_empty());
        }
    }

    #[test]
    fn the_payload_ends_at_a_truncated_fragment() {
        let mut fragments = Fragments::default();
        assert_eq!(fragments.add(Time::ZERO, &part(b"abcd", 8), at(0, true)), None);
        let whole = fragments.add(Time::ZERO, &part(b"ijkl", 8), at(8, false));
        let payload = b"abcd".to_vec();
        assert_eq!(whole, Some(Whole { payload, carried: 16, parts: 2, length: 16 + 2 * 20 }));
    }

    #[test]
    fn duplicate_and_overlapping_fragments_have_no_effect() {
        let mut fragments = Fragments::default();
        assert_eq!(fragments.add(Time::ZERO, &part(b"abcdefgh", 8), at(0, true)), None);
        assert_eq!(fragments.add(Time::ZERO, &part(b"ABCDEFGH", 8), at(0, true)), None);
        let whole = fragments.add(Time::ZERO, &part(b"ijkl", 4), at(8, false));
        assert_eq!(whole.unwrap().payload, b"abcdefghijkl");
        // The second fragment begins within the first.
        assert_eq!(fragments.add(Time::ZERO, &part(&[1; 16], 16), at(0, true)), None);
        let whole = fragments.add(Time::ZERO, &part(&[2; 16], 16), at(8, false)).unwrap();
        assert_eq!(whole.payload, [[1; 16], [2; 16]].concat()[..24]);
        assert_eq!((whole.carried, whole.parts), (24, 2));
    }

    #[test]
    fn incomplete_packets_are_discarded() {
        let mut fragments = Fragments::default();
        assert_eq!(fragments.add(Time::ZERO, &part(b"abcdefgh", 8), at(0, true)), None);
        let late = Time::ZERO + Span::from_secs(31);
        assert_eq!(fragments.add(late, &part(b"i", 1), at(8, false)), None);
        assert_eq!(fragments.packets.len(), 1);
        for id in 100..5_000 {
            let fragment = Fragment { id, offset: 0, has_more: true };
            assert_eq!(fragments.add(late, &part(b"abcdefgh", 8), fragment), None);
            assert!(fragments.packets.len() <= INCOMPLETE + 1);
        }
        assert!(fragments.order.len() <= INCOMPLETE + 1);
        // Too long a packet, and too many fragments.
        assert_eq!(
            fragments.add(late, &part(&[0; 8], 8), Fragment { id: 1, ..at(65_528, false) }),
            None
        );
        for offset in 0..200 {
            let fragment = Fragment { id: 9_999, ..at(8 * offset, true) };
            assert_eq!(fragments.add(late, &part(&[0; 8], 8), fragment), None);
        }
        assert!(fragments.packets.values().all(|packet| packet.parts.len() <= PARTS));
    }
}
