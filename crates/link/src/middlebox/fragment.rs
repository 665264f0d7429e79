//! Only the first fragment of a packet has ports; this remembers where the others belong.

use std::net::IpAddr;

use manyways_unit::{Span, Time};

use crate::segment::header::Ip;

/// Fragmented packets that are known at a time; the latest replaces the earliest.
const ROOM: usize = 64;

/// How long the fragments of one packet may take: what Linux waits for them.
const PATIENCE: Span = Span::from_secs(30);

/// The packet that a fragment is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Train {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    pub id: u32,
}

impl Train {
    pub fn new(ip: &Ip, packet: &[u8], id: u32) -> Self {
        let [source, destination] = addresses(ip, packet);
        // IPv6 fragments say what the fragmented part begins with, which may be anything.
        let protocol = if ip.v6 { 0 } else { ip.protocol };
        Self { source, destination, protocol, id }
    }
}

/// Source and destination.
pub(super) fn addresses(ip: &Ip, packet: &[u8]) -> [IpAddr; 2] {
    let both = ip.addresses(packet);
    let (source, destination) = both.split_at(both.len() / 2);
    [source, destination].map(|bytes| {
        if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
            return v4.into();
        }
        let mut v6 = [0; 16];
        v6.copy_from_slice(bytes);
        v6.into()
    })
}

/// The trains whose first fragment went through lately, and the address inside.
#[derive(Clone, Debug, Default)]
pub(super) struct Trains {
    known: Vec<(Train, IpAddr, Time)>,
    next: usize,
}

impl Trains {
    pub fn insert(&mut self, now: Time, train: Train, inside: IpAddr) {
        if self.known.len() < ROOM {
            self.known.push((train, inside, now));
        } else {
            self.known[self.next] = (train, inside, now);
            self.next = (self.next + 1) % ROOM;
        }
    }

    pub fn find(&self, now: Time, train: &Train) -> Option<IpAddr> {
        // The latest first: identifications are used again.
        let (before, after) = self.known.split_at(self.next);
        before
            .iter()
            .rev()
            .chain(after.iter().rev())
            .find(|(known, _, at)| known == train && now.since(*at) < PATIENCE)
            .map(|(_, inside, _)| *inside)
    }
}
