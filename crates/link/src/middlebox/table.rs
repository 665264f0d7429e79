//! Mapping table of a NAT: inside endpoints and their outside ports.

use std::collections::HashMap;
use std::net::IpAddr;

use manyways_unit::{Random, Span, Time};

/// Maximum number of mappings; a new one then replaces the one that was idle longest.
pub const MAX_MAPPINGS: usize = 16_384;

/// Lowest external port that is chosen if the internal one is in use.
pub const FIRST_PORT: u16 = 1_024;

/// An inside endpoint: an address, and a port or an ICMP echo identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Endpoint {
    pub protocol: u8,
    pub address: IpAddr,
    pub port: u16,
}

#[derive(Clone, Debug)]
struct Mapping {
    inside: Endpoint,
    /// Outside port; `None` without translation.
    outside: Option<u16>,
    last_used: Time,
    /// Neighbours in the order of use; [`NONE`] at the ends.
    older: usize,
    newer: usize,
}

const NONE: usize = usize::MAX;

/// Mappings by inside endpoint and by outside port, and in the order of their last use. All
/// mappings have the same idle timeout, so the oldest is always the first to expire, and the check
/// for expired mappings is cheap.
#[derive(Clone, Debug)]
pub(super) struct Table {
    idle: Span,
    limit: usize,
    /// Latest time so far.
    now: Time,
    mappings: Vec<Mapping>,
    free: Vec<usize>,
    by_inside: HashMap<Endpoint, usize>,
    by_outside: HashMap<(u8, u16), usize>,
    oldest: usize,
    newest: usize,
    random: Random,
    pub created: u64,
    pub expired: u64,
    pub evicted: u64,
}

impl Table {
    pub fn new(idle: Span) -> Self {
        Self {
            idle,
            limit: MAX_MAPPINGS,
            now: Time::ZERO,
            mappings: Vec::new(),
            free: Vec::new(),
            by_inside: HashMap::new(),
            by_outside: HashMap::new(),
            oldest: NONE,
            newest: NONE,
            random: Random::new(u64::from_be_bytes(*b"the port")),
            created: 0,
            expired: 0,
            evicted: 0,
        }
    }

    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.clamp(1, MAX_MAPPINGS);
    }

    pub fn len(&self) -> usize {
        self.by_inside.len()
    }

    /// Removes expired mappings.
    pub fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(mapping) = self.mappings.get(self.oldest)
            && self.now.since(mapping.last_used) >= self.idle
        {
            self.remove(self.oldest);
            self.expired += 1;
        }
    }

    /// Removes all mappings.
    pub fn clear(&mut self) {
        while self.oldest != NONE {
            self.remove(self.oldest);
        }
    }

    /// Returns the mapping of an inside endpoint.
    pub fn inside(&self, endpoint: &Endpoint) -> Option<usize> {
        self.by_inside.get(endpoint).copied()
    }

    /// Returns the mapping of an outside port.
    pub fn outside(&self, protocol: u8, port: u16) -> Option<usize> {
        self.by_outside.get(&(protocol, port)).copied()
    }

    /// Returns the inside endpoint of a mapping.
    pub fn endpoint(&self, mapping: usize) -> Endpoint {
        self.mappings[mapping].inside
    }

    /// Returns the outside port, or the inside port without translation.
    pub fn port(&self, mapping: usize) -> u16 {
        let mapping = &self.mappings[mapping];
        mapping.outside.unwrap_or(mapping.inside.port)
    }

    /// Marks a mapping as used now.
    pub fn touch(&mut self, mapping: usize) {
        if self.newest != mapping {
            self.unlink(mapping);
            self.link(mapping);
        }
        self.mappings[mapping].last_used = self.now;
    }

    /// Creates the mapping of an inside endpoint that has none.
    pub fn insert(&mut self, inside: Endpoint, translate: bool) -> usize {
        if self.len() >= self.limit {
            self.remove(self.oldest);
            self.evicted += 1;
        }
        let outside = translate.then(|| self.choose_port(&inside));
        let mapping = Mapping { inside, outside, last_used: self.now, older: NONE, newer: NONE };
        let index = match self.free.pop() {
            Some(index) => {
                self.mappings[index] = mapping;
                index
            }
            None => {
                self.mappings.push(mapping);
                self.mappings.len() - 1
            }
        };
        self.by_inside.insert(inside, index);
        if let Some(port) = outside {
            self.by_outside.insert((inside.protocol, port), index);
        }
        self.link(index);
        self.created += 1;
        index
    }

    /// Returns the inside port if it is free, otherwise a random one. There are four times as many
    /// ports as mappings, so the search is short.
    fn choose_port(&mut self, inside: &Endpoint) -> u16 {
        let mut port = inside.port;
        if self.by_outside.contains_key(&(inside.protocol, port)) {
            port = FIRST_PORT + self.random.up_to(u64::from(u16::MAX - FIRST_PORT)) as u16;
        }
        while self.by_outside.contains_key(&(inside.protocol, port)) {
            port = if port == u16::MAX { FIRST_PORT } else { port + 1 };
        }
        port
    }

    fn remove(&mut self, index: usize) {
        self.unlink(index);
        let Mapping { inside, outside, .. } = self.mappings[index];
        self.by_inside.remove(&inside);
        if let Some(port) = outside {
            self.by_outside.remove(&(inside.protocol, port));
        }
        self.free.push(index);
    }

    fn link(&mut self, index: usize) {
        let before = std::mem::replace(&mut self.newest, index);
        (self.mappings[index].older, self.mappings[index].newer) = (before, NONE);
        match self.mappings.get_mut(before) {
            Some(before) => before.newer = index,
            None => self.oldest = index,
        }
    }

    fn unlink(&mut self, index: usize) {
        let Mapping { older, newer, .. } = self.mappings[index];
        match self.mappings.get_mut(older) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.mappings.get_mut(newer) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
    }
}
