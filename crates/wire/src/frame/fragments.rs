//! Reassembly of IP fragments.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use manyways_unit::{Span, Time};

use super::{Fragment, IpPacket, ip};

/// Maximum number of incomplete packets; the oldest is forgotten first.
const MAX_INCOMPLETE_PACKETS: usize = 1_024;
/// Maximum number of fragments of a packet.
const MAX_FRAGMENTS: usize = 64;
/// Time after which an incomplete packet is discarded, as in Linux.
const REASSEMBLY_TIMEOUT: Span = Span::from_secs(30);
/// Maximum length of a packet.
const MAX_PACKET_LENGTH: usize = 65_535;

/// Fragments of packets that are not complete yet.
#[derive(Debug, Default)]
pub struct Fragments {
    packets: HashMap<Key, PartialPacket>,
    /// Oldest first; packets that are complete by now may remain in the queue.
    order: VecDeque<(Time, Key)>,
}

/// A reassembled packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassembled {
    /// Protocol number of the payload (IANA).
    pub protocol: u8,
    /// The payload up to the first byte that was not captured.
    pub payload: Vec<u8>,
    /// Number of payload bytes, captured or not.
    pub payload_length: usize,
    /// Number of fragments.
    pub fragments: usize,
    /// Number of bytes of all fragments, with their headers.
    pub length: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    /// Senders of IPv4 count identifications per protocol (RFC 791, 2.3). `None` in IPv6, where
    /// only the first fragment knows the protocol (RFC 8200, 4.5).
    protocol: Option<u8>,
    id: u32,
    /// Private addresses occur in many tunnels.
    tunnel: u32,
}

#[derive(Debug, Default)]
struct PartialPacket {
    fragments: Vec<StoredFragment>,
    /// Payload length; `None` until the last fragment has arrived.
    length: Option<usize>,
}

#[derive(Debug)]
struct StoredFragment {
    protocol: u8,
    offset: usize,
    length: usize,
    /// Length with the IP headers.
    packet_length: usize,
    /// The captured bytes.
    bytes: Vec<u8>,
}

impl Fragments {
    /// Adds a fragment. Returns the packet if the fragment completes it.
    pub fn add(
        &mut self,
        now: Time,
        datagram: &IpPacket<'_>,
        part: Fragment,
    ) -> Option<Reassembled> {
        self.remove_old(now);
        let (begin, length) = (part.offset as usize, datagram.payload_length);
        if begin + length > MAX_PACKET_LENGTH {
            return None;
        }
        let IpPacket { source, destination, protocol, .. } = *datagram;
        let key = Key {
            source,
            destination,
            protocol: source.is_ipv4().then_some(protocol),
            id: part.id,
            tunnel: part.tunnel,
        };
        let packet = self.packets.entry(key).or_insert_with(|| {
            self.order.push_back((now, key));
            PartialPacket::default()
        });
        if !part.has_more {
            packet.length = Some(begin + length);
        }
        let bytes = datagram.payload.to_vec();
        let packet_length = datagram.length;
        packet.add(StoredFragment { protocol, offset: begin, length, packet_length, bytes });
        let mut whole = packet.reassemble()?;
        self.packets.remove(&key);
        whole.skip_extensions(source.is_ipv6());
        Some(whole)
    }

    fn remove_old(&mut self, now: Time) {
        while let Some((since, key)) = self.order.front() {
            let is_old =
                now.since(*since) > REASSEMBLY_TIMEOUT || self.order.len() > MAX_INCOMPLETE_PACKETS;
            if self.packets.contains_key(key) && !is_old {
                break;
            }
            self.packets.remove(key);
            self.order.pop_front();
        }
    }
}

impl Reassembled {
    /// Returns the packet of which `fragment` is the last one that arrived.
    pub fn packet<'a>(&'a self, fragment: &IpPacket<'_>) -> IpPacket<'a> {
        IpPacket {
            source: fragment.source,
            destination: fragment.destination,
            protocol: self.protocol,
            payload: &self.payload,
            payload_length: self.payload_length,
            length: self.length,
            fragment: None,
            ecn: fragment.ecn,
            id: fragment.id,
            hop_limit: fragment.hop_limit,
            is_tunnelled: fragment.is_tunnelled,
        }
    }

    /// Skips the extension headers that the sender divided into fragments like the payload.
    fn skip_extensions(&mut self, is_v6: bool) {
        let (protocol, at) = ip::upper_layer(self.protocol, is_v6, &self.payload);
        let at = at.min(self.payload_length);
        self.protocol = protocol;
        self.payload.drain(..at.min(self.payload.len()));
        self.payload_length -= at;
    }
}

impl PartialPacket {
    /// Adds a fragment; of fragments with the same offset, the first is kept.
    fn add(&mut self, part: StoredFragment) {
        let offset = self.fragments.partition_point(|other| other.offset < part.offset);
        let is_here = self.fragments.get(offset).is_some_and(|other| other.offset == part.offset);
        if !is_here && self.fragments.len() < MAX_FRAGMENTS {
            self.fragments.insert(offset, part);
        }
    }

    fn reassemble(&self) -> Option<Reassembled> {
        let carried = self.length?;
        let mut reached = 0;
        for part in &self.fragments {
            if part.offset > reached {
                return None;
            }
            reached = reached.max(part.offset + part.length);
        }
        if reached < carried {
            return None;
        }
        let mut payload = Vec::new();
        for part in &self.fragments {
            // After a truncated fragment, later bytes would have a wrong offset.
            let Some(overlap) = payload.len().checked_sub(part.offset) else { break };
            payload.extend_from_slice(part.bytes.get(overlap..).unwrap_or_default());
        }
        payload.truncate(carried);
        let length = self.fragments.iter().map(|part| part.packet_length).sum();
        Some(Reassembled {
            protocol: self.fragments.first()?.protocol,
            payload,
            payload_length: carried,
            fragments: self.fragments.len(),
            length,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(payload: &[u8], carried: usize) -> IpPacket<'_> {
        IpPacket {
            source: [192, 0, 2, 1].into(),
            destination: [192, 0, 2, 2].into(),
            protocol: 17,
            payload,
            payload_length: carried,
            length: carried + 20,
            fragment: None,
            ecn: 0,
            id: 0,
            hop_limit: 64,
            is_tunnelled: false,
        }
    }

    fn at(offset: u32, has_more: bool) -> Fragment {
        Fragment { id: 7, offset, has_more, tunnel: 0 }
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
            for (index, offset) in order.into_iter().enumerate() {
                let (bytes, fragment) = parts[offset];
                whole = fragments.add(Time::ZERO, &part(bytes, bytes.len()), fragment);
                assert_eq!(whole.is_some(), index == 2);
            }
            let payload = b"abcdefghijklmnopq".to_vec();
            let expected = Reassembled {
                protocol: 17,
                payload,
                payload_length: 17,
                fragments: 3,
                length: 17 + 3 * 20,
            };
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
        assert_eq!(
            whole,
            Some(Reassembled {
                protocol: 17,
                payload,
                payload_length: 16,
                fragments: 2,
                length: 16 + 2 * 20
            })
        );
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
        assert_eq!((whole.payload_length, whole.fragments), (24, 2));
    }

    /// Adds the fragments in this order; `None` unless the last one completes a packet.
    fn reassemble(fragments: &[(IpPacket<'_>, Fragment)]) -> Option<Reassembled> {
        let mut table = Fragments::default();
        let mut whole = None;
        for (packet, fragment) in fragments {
            assert_eq!(whole, None);
            whole = table.add(Time::ZERO, packet, *fragment);
        }
        whole
    }

    #[test]
    fn fragments_of_two_protocols_or_tunnels_are_not_mixed() {
        let (first, last) = (part(b"abcdefgh", 8), part(b"i", 1));
        let (begin, end) = (at(0, true), at(8, false));
        assert!(reassemble(&[(first, begin), (last, end)]).is_some());
        let other = IpPacket { protocol: 6, ..last };
        assert_eq!(reassemble(&[(first, begin), (other, end)]), None);
        assert_eq!(reassemble(&[(first, begin), (last, Fragment { tunnel: 1, ..end })]), None);
        // Both packets become complete.
        let (mut table, now) = (Fragments::default(), Time::ZERO);
        let other = IpPacket { protocol: 6, ..part(b"ABCDEFGH", 8) };
        assert_eq!(table.add(now, &first, begin), None);
        assert_eq!(table.add(now, &other, begin), None);
        let whole = table.add(now, &IpPacket { protocol: 6, ..last }, end).unwrap();
        assert_eq!((whole.protocol, &whole.payload[..]), (6, &b"ABCDEFGHi"[..]));
        let whole = table.add(now, &last, end).unwrap();
        assert_eq!((whole.protocol, &whole.payload[..]), (17, &b"abcdefghi"[..]));
    }

    #[test]
    fn the_first_fragment_of_ipv6_has_the_protocol() {
        const DESTINATION_OPTIONS: u8 = 60;
        let of = |protocol, payload| IpPacket {
            source: [1; 16].into(),
            destination: [2; 16].into(),
            protocol,
            ..part(payload, payload.len())
        };
        // The header in front of UDP is divided into fragments, too.
        let first = of(DESTINATION_OPTIONS, &[17, 0, 1, 4, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        // The value in a later fragment has no meaning.
        for other in [DESTINATION_OPTIONS, 17, 59] {
            let last = of(other, b"i");
            for order in [
                [(first, at(0, true)), (last, at(16, false))],
                [(last, at(16, false)), (first, at(0, true))],
            ] {
                let whole = reassemble(&order).unwrap();
                let packet = whole.packet(&last);
                assert_eq!(
                    (packet.protocol, packet.payload_length, packet.fragment),
                    (17, 9, None)
                );
                assert_eq!(packet.payload, [1, 2, 3, 4, 5, 6, 7, 8, b'i']);
            }
        }
    }

    #[test]
    fn incomplete_packets_are_discarded() {
        let mut fragments = Fragments::default();
        assert_eq!(fragments.add(Time::ZERO, &part(b"abcdefgh", 8), at(0, true)), None);
        let late = Time::ZERO + Span::from_secs(31);
        assert_eq!(fragments.add(late, &part(b"i", 1), at(8, false)), None);
        assert_eq!(fragments.packets.len(), 1);
        for id in 100..5_000 {
            let fragment = Fragment { id, ..at(0, true) };
            assert_eq!(fragments.add(late, &part(b"abcdefgh", 8), fragment), None);
            assert!(fragments.packets.len() <= MAX_INCOMPLETE_PACKETS + 1);
        }
        assert!(fragments.order.len() <= MAX_INCOMPLETE_PACKETS + 1);
        // Too long a packet, and too many fragments.
        assert_eq!(
            fragments.add(late, &part(&[0; 8], 8), Fragment { id: 1, ..at(65_528, false) }),
            None
        );
        for offset in 0..200 {
            let fragment = Fragment { id: 9_999, ..at(8 * offset, true) };
            assert_eq!(fragments.add(late, &part(&[0; 8], 8), fragment), None);
        }
        assert!(fragments.packets.values().all(|packet| packet.fragments.len() <= MAX_FRAGMENTS));
    }
}
