//! The name that a client resolved before it connected to an address.

use std::hash::Hash;
use std::net::IpAddr;

use manyways_unit::{Span, Time};

use super::{Limits, Resolution};
use crate::HostName;
use manyways_unit::LruMap;

/// The host that resolved a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueriedBy {
    Client,
    /// Another client, or the same client from another address.
    OtherClient,
}

/// Keeps, from responses of name servers, the names that each client resolved to an address, and
/// when. Flows are processed after their end, so queries for names give the time at which the flow
/// began.
#[derive(Clone, Debug)]
pub struct Resolutions {
    by_client: History<(IpAddr, IpAddr)>,
    by_address: History<IpAddr>,
    pointers: History<IpAddr>,
}

#[derive(Clone, Debug)]
struct History<K> {
    limits: Limits,
    /// Names for each key, the most recent first.
    entries: LruMap<K, Vec<NameEntry>>,
}

#[derive(Clone, Debug)]
struct NameEntry {
    name: HostName,
    valid_from: Time,
    valid_until: Time,
}

impl Default for Resolutions {
    /// 262,144 pairs of client and address, as many addresses for all clients, and as many names of
    /// addresses, with 4 names each, for 5 minutes to one day: at most about 800 MB if all names
    /// have maximum length, typically a fifth of that.
    fn default() -> Self {
        Self::new(Limits { addresses: 1 << 18, ..Limits::default() })
    }
}

impl Resolutions {
    /// Creates an empty memory. The limit of addresses also applies to pairs of client and address.
    /// At the limit, entries not seen for the longest time are removed first.
    pub fn new(limits: Limits) -> Self {
        Self {
            by_client: History::new(limits),
            by_address: History::new(limits),
            pointers: History::new(limits),
        }
    }

    /// Stores the names of a response received at `now`.
    pub fn learn(&mut self, now: Time, resolved: &Resolution) {
        match resolved {
            Resolution::Addresses { client, answered } => {
                for (address, lifetime) in &answered.addresses {
                    self.by_client.learn(now, (*client, *address), &answered.name, *lifetime);
                    self.by_address.learn(now, *address, &answered.name, *lifetime);
                }
            }
            Resolution::Pointer { address, name, lifetime } => {
                self.pointers.learn(now, *address, name, *lifetime);
            }
        }
    }

    /// The most recent name that was valid at `then`, the start of a flow, and that this client had
    /// resolved to the address; otherwise, the most recent one of another client.
    pub fn name(
        &self,
        then: Time,
        client: IpAddr,
        address: IpAddr,
    ) -> Option<(&HostName, QueriedBy)> {
        let own =
            self.by_client.newest(then, (client, address)).map(|name| (name, QueriedBy::Client));
        own.or_else(|| {
            self.by_address.newest(then, address).map(|name| (name, QueriedBy::OtherClient))
        })
    }

    /// The most recent name from a PTR lookup of the address, at any time, because networks rarely
    /// rename their addresses.
    pub fn reverse(&self, address: IpAddr) -> Option<&HostName> {
        self.pointers.entries.get(&address)?.first().map(|entry| &entry.name)
    }

    /// Number of pairs of client and address, and number of addresses with a PTR name.
    pub fn len(&self) -> (usize, usize) {
        (self.by_client.entries.len(), self.pointers.entries.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }
}

impl<K: Copy + Eq + Hash> History<K> {
    fn new(limits: Limits) -> Self {
        Self { limits, entries: LruMap::default() }
    }

    fn learn(&mut self, now: Time, key: K, name: &HostName, lifetime: Span) {
        let until = now + lifetime.max(self.limits.min_retention).min(self.limits.max_retention);
        let names = self.entries.refresh_or_insert_with(key, || Vec::with_capacity(1));
        match names.first_mut() {
            // The name was valid without interruption; its validity is extended.
            Some(last) if last.name == *name && last.valid_until >= now => {
                last.valid_until = last.valid_until.max(until);
            }
            _ => names
                .insert(0, NameEntry { name: name.clone(), valid_from: now, valid_until: until }),
        }
        names.truncate(self.limits.names);
        while self.entries.len() > self.limits.addresses {
            self.entries.pop_oldest();
        }
    }

    fn newest(&self, then: Time, key: K) -> Option<&HostName> {
        let names = self.entries.get(&key)?;
        names
            .iter()
            .find(|entry| entry.valid_from <= then && then < entry.valid_until)
            .map(|entry| &entry.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::Answer;

    fn at(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    fn seconds(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    fn host(name: &str) -> HostName {
        HostName::parse(name.as_bytes()).unwrap()
    }

    fn learn(memory: &mut Resolutions, now: u64, client: u8, name: &str, address: u8, life: u64) {
        let addresses = vec![(at(address), Span::from_secs(life))];
        let answered = Answer { id: 1, name: host(name), addresses };
        memory.learn(seconds(now), &Resolution::Addresses { client: at(client), answered });
    }

    fn name(memory: &Resolutions, then: u64, client: u8, address: u8) -> Option<(&str, QueriedBy)> {
        let found = memory.name(seconds(then), at(client), at(address));
        found.map(|(name, by)| (name.as_str(), by))
    }

    use QueriedBy::{Client, OtherClient};

    #[test]
    fn a_clients_own_lookup_has_precedence_over_others() {
        let mut memory = Resolutions::default();
        learn(&mut memory, 10, 1, "a.example", 9, 60);
        learn(&mut memory, 20, 2, "b.example", 9, 60);
        assert_eq!(name(&memory, 30, 1, 9), Some(("a.example", Client)));
        assert_eq!(name(&memory, 30, 2, 9), Some(("b.example", Client)));
        assert_eq!(name(&memory, 30, 3, 9), Some(("b.example", OtherClient)));
        assert_eq!(name(&memory, 30, 1, 8), None);
        assert_eq!(memory.len(), (2, 0));
    }

    #[test]
    fn names_are_those_valid_at_the_start_of_a_flow() {
        let mut memory = Resolutions::default();
        for (now, what) in [(10, "a.example"), (20, "b.example"), (30, "a.example")] {
            learn(&mut memory, now, 1, what, 9, 60);
        }
        assert_eq!(name(&memory, 9, 1, 9), None);
        assert_eq!(name(&memory, 10, 1, 9), Some(("a.example", Client)));
        assert_eq!(name(&memory, 25, 1, 9), Some(("b.example", Client)));
        assert_eq!(name(&memory, 35, 1, 9), Some(("a.example", Client)));
        // A repeated response adds no entry.
        (40..90).for_each(|now| learn(&mut memory, now, 1, "a.example", 9, 60));
        assert_eq!(name(&memory, 25, 1, 9), Some(("b.example", Client)));
        // A shorter lifetime does not shorten the validity.
        learn(&mut memory, 100, 1, "a.example", 9, 1_000);
        learn(&mut memory, 101, 1, "a.example", 9, 0);
        assert_eq!(name(&memory, 1_099, 1, 9), Some(("a.example", Client)));
    }

    #[test]
    fn a_name_holds_for_five_minutes_to_a_day() {
        let mut memory = Resolutions::default();
        let day = 24 * 60 * 60;
        for (address, life, end) in [(5, 0, 300), (6, 600, 600), (7, 10 * day, day)] {
            learn(&mut memory, 0, 1, "a.example", address, life);
            assert_eq!(name(&memory, end - 1, 1, address), Some(("a.example", Client)));
            assert_eq!(name(&memory, end, 1, address), None);
        }
    }

    #[test]
    fn a_ptr_record_names_an_address() {
        let mut memory = Resolutions::default();
        for (now, name) in [(1, "one.example"), (2, "two.example")] {
            let (name, lifetime) = (host(name), Span::ZERO);
            memory.learn(seconds(now), &Resolution::Pointer { address: at(9), name, lifetime });
        }
        assert_eq!(memory.reverse(at(9)), Some(&host("two.example")));
        assert_eq!((memory.reverse(at(8)), memory.len()), (None, (0, 1)));
        assert_eq!(name(&memory, 3, 1, 9), None);
    }

    #[test]
    fn the_memory_has_limits() {
        let limits = Limits { addresses: 3, names: 2, ..Limits::default() };
        let mut memory = Resolutions::new(limits);
        for client in 0..100 {
            learn(&mut memory, 1, client, "a.example", 200, 60);
            learn(&mut memory, 1, 250, &format!("{client}.example"), 201, 60);
            assert!(memory.len().0 <= 3);
            assert!(memory.by_client.entries.get(&(at(250), at(201))).unwrap().len() <= 2);
        }
        assert_eq!(name(&memory, 2, 97, 200), Some(("a.example", OtherClient)));
        assert_eq!(name(&memory, 2, 98, 200), Some(("a.example", Client)));
    }
}
