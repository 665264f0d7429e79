//! Packets that came in parts, put together again.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use manyways_unit::{Span, Time};

use super::{Datagram, Fragment};

/// So many packets may be incomplete at a time; of more, the oldest are forgotten.
const INCOMPLETE: usize = 1_024;
/// So many parts a packet may have.
const PARTS: usize = 64;
/// So long a packet may be incomplete, as in Linux.
const PATIENCE: Span = Span::from_secs(30);
/// No packet is longer.
const LONGEST: usize = 65_535;

/// The parts that came so far of packets that are not complete yet.
#[derive(Debug, Default)]
pub struct Fragments {
    packets: HashMap<Key, Packet>,
    /// The oldest first; some of these are complete by now.
    order: VecDeque<(Time, Key)>,
}

/// A packet that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// What it carries, up to where a part of it was cut by the capture.
    pub payload: Vec<u8>,
    /// How many bytes it carries, captured or not.
    pub carried: usize,
    /// In how many parts it came.
    pub parts: usize,
    /// How many bytes these have, with their headers.
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
    /// How many bytes it has, once its last part is here.
    length: Option<usize>,
}

#[derive(Debug)]
struct Part {
    begin: usize,
    length: usize,
    /// The same with its headers.
    whole: usize,
    /// As much of it as was captured.
    bytes: Vec<u8>,
}

impl Fragments {
    /// Adds a part. What comes back is the packet that it completes.
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
    /// Of parts that are here already, the first is kept.
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
            // Where a part was cut, what follows has no place.
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
    fn parts_in_any_order_make_a_packet() {
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
    fn what_was_cut_ends_what_is_there() {
        let mut fragments = Fragments::default();
        assert_eq!(fragments.add(Time::ZERO, &part(b"abcd", 8), at(0, true)), None);
        let whole = fragments.add(Time::ZERO, &part(b"ijkl", 8), at(8, false));
        let payload = b"abcd".to_vec();
        assert_eq!(whole, Some(Whole { payload, carried: 16, parts: 2, length: 16 + 2 * 20 }));
    }

    #[test]
    fn parts_that_come_twice_or_overlap_change_nothing() {
        let mut fragments = Fragments::default();
        assert_eq!(fragments.add(Time::ZERO, &part(b"abcdefgh", 8), at(0, true)), None);
        assert_eq!(fragments.add(Time::ZERO, &part(b"ABCDEFGH", 8), at(0, true)), None);
        let whole = fragments.add(Time::ZERO, &part(b"ijkl", 4), at(8, false));
        assert_eq!(whole.unwrap().payload, b"abcdefghijkl");
        // The second begins within the first.
        assert_eq!(fragments.add(Time::ZERO, &part(&[1; 16], 16), at(0, true)), None);
        let whole = fragments.add(Time::ZERO, &part(&[2; 16], 16), at(8, false)).unwrap();
        assert_eq!(whole.payload, [[1; 16], [2; 16]].concat()[..24]);
        assert_eq!((whole.carried, whole.parts), (24, 2));
    }

    #[test]
    fn parts_are_not_kept_for_ever() {
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
        // And no packet is longer than can be, nor has more parts.
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
