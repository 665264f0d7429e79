//! Associates later fragments with the first one, because only the first fragment has ports.

use std::net::IpAddr;

use manyways_unit::{Span, Time};

use crate::segment::header::Ip;

/// Maximum number of fragmented packets; the latest replaces the earliest.
const MAX_PACKETS: usize = 64;

/// Time in which all fragments of a packet must pass; the reassembly timeout of Linux.
const REASSEMBLY_TIMEOUT: Span = Span::from_secs(30);

/// Key of the packet that a fragment belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FragmentKey {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    pub id: u32,
}

impl FragmentKey {
    pub fn new(ip: &Ip, packet: &[u8], id: u32) -> Self {
        let [source, destination] = addresses(ip, packet);
        // IPv6 fragments name the first header of the fragmented part, which can be any header.
        let protocol = if ip.v6 { 0 } else { ip.protocol };
        Self { source, destination, protocol, id }
    }
}

/// Returns source and destination.
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

/// Packets whose first fragment passed recently, with the inside address.
#[derive(Clone, Debug, Default)]
pub(super) struct FragmentTable {
    known: Vec<(FragmentKey, IpAddr, Time)>,
    next: usize,
}

impl FragmentTable {
    pub fn insert(&mut self, now: Time, train: FragmentKey, inside: IpAddr) {
        if self.known.len() < MAX_PACKETS {
            self.known.push((train, inside, now));
        } else {
            self.known[self.next] = (train, inside, now);
            self.next = (self.next + 1) % MAX_PACKETS;
        }
    }

    pub fn find(&self, now: Time, train: &FragmentKey) -> Option<IpAddr> {
        // Latest first: identifications are reused.
        let (before, after) = self.known.split_at(self.next);
        before
            .iter()
            .rev()
            .chain(after.iter().rev())
            .find(|(known, _, at)| known == train && now.since(*at) < REASSEMBLY_TIMEOUT)
            .map(|(_, inside, _)| *inside)
    }
}
