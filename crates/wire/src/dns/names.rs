//! The names that an address was resolved from.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use manyways_unit::{Span, Time};

use super::Answer;
use crate::HostName;

/// Memory limits and durations of [`Names`] and [`super::Resolutions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of addresses.
    pub addresses: usize,
    /// Maximum number of names of an address. An address of a content network serves many.
    pub names: usize,
    /// Minimum time for which a name is kept, even if its TTL is shorter: applications keep
    /// addresses beyond the TTL.
    pub min_retention: Span,
    /// Maximum time for which a name is kept; overrides `shortest`.
    pub max_retention: Span,
}

impl Default for Limits {
    /// 4,096 addresses with 4 names each, for 5 minutes to one day: at most about 5 MB.
    fn default() -> Self {
        Self {
            addresses: 4096,
            names: 4,
            min_retention: Span::from_secs(5 * 60),
            max_retention: Span::from_secs(24 * 60 * 60),
        }
    }
}

/// Keeps the names that an address was resolved from. At the limit, expired entries are removed
/// first, then those not seen for the longest time.
#[derive(Clone, Debug, Default)]
pub struct Names {
    limits: Limits,
    addresses: HashMap<IpAddr, Entry>,
    /// Addresses in the order of their last response.
    by_age: BTreeMap<u64, IpAddr>,
    /// Number of responses so far; the next key in `heard`.
    response_count: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    /// Key in [`Names::by_age`].
    sequence: u64,
    /// Names with their expiry times, the most recent first.
    names: Vec<(HostName, Time)>,
}

impl Names {
    /// Creates an empty memory.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Stores the names of a response received at `now`. A known name of an address becomes its
    /// most recent one.
    pub fn learn(&mut self, now: Time, answered: &Answer) {
        if self.addresses.len() + answered.addresses.len() > self.limits.addresses {
            self.forget_expired(now);
        }
        for (address, lifetime) in &answered.addresses {
            let lifetime =
                (*lifetime).max(self.limits.min_retention).min(self.limits.max_retention);
            self.response_count += 1;
            let entry = self
                .addresses
                .entry(*address)
                .or_insert_with(|| Entry { sequence: self.response_count, names: Vec::new() });
            self.by_age.remove(&entry.sequence);
            self.by_age.insert(self.response_count, *address);
            entry.sequence = self.response_count;
            entry.names.retain(|(name, expiry)| *name != answered.name && *expiry > now);
            entry.names.insert(0, (answered.name.clone(), now + lifetime));
            entry.names.truncate(self.limits.names);
        }
        while self.addresses.len() > self.limits.addresses {
            let Some((_, address)) = self.by_age.pop_first() else { break };
            self.addresses.remove(&address);
        }
    }

    /// The names of an address that are valid at `now`, the most recent first.
    pub fn all(&self, now: Time, address: IpAddr) -> impl Iterator<Item = &HostName> {
        let names = self.addresses.get(&address).map_or(&[][..], |entry| &entry.names);
        names.iter().filter(move |(_, expiry)| *expiry > now).map(|(name, _)| name)
    }

    /// The most recent name of an address that is valid at `now`.
    pub fn newest(&self, now: Time, address: IpAddr) -> Option<&HostName> {
        self.all(now, address).next()
    }

    /// Number of addresses in memory, including expired ones.
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    fn forget_expired(&mut self, now: Time) {
        let heard = &mut self.by_age;
        self.addresses.retain(|_, entry| {
            let holds = entry.names.iter().any(|(_, expiry)| *expiry > now);
            if !holds {
                heard.remove(&entry.sequence);
            }
            holds
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answered(name: &str, addresses: &[u8], lifetime: u64) -> Answer {
        Answer {
            id: 1,
            name: HostName::parse(name.as_bytes()).unwrap(),
            addresses: addresses.iter().map(|n| (at(*n), Span::from_secs(lifetime))).collect(),
        }
    }

    fn at(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    fn seconds(seconds: u64) -> Time {
        Time::from_millis(seconds * 1000)
    }

    fn all(names: &Names, now: u64, n: u8) -> Vec<String> {
        names.all(seconds(now), at(n)).map(HostName::to_string).collect()
    }

    fn small() -> Names {
        let [shortest, longest] = [10, 100].map(Span::from_secs);
        Names::new(Limits {
            addresses: 3,
            names: 2,
            min_retention: shortest,
            max_retention: longest,
        })
    }

    #[test]
    fn the_newest_name_is_first_and_older_ones_follow() {
        let mut names = small();
        names.learn(seconds(0), &answered("a.example", &[1, 2], 50));
        names.learn(seconds(1), &answered("b.example", &[1], 50));
        assert_eq!(all(&names, 2, 1), ["b.example", "a.example"]);
        assert_eq!(all(&names, 2, 2), ["a.example"]);
        names.learn(seconds(2), &answered("a.example", &[1], 50));
        assert_eq!(all(&names, 3, 1), ["a.example", "b.example"]);
        names.learn(seconds(3), &answered("c.example", &[1], 50));
        assert_eq!(all(&names, 3, 1), ["c.example", "a.example"]);
        assert_eq!(names.newest(seconds(3), at(1)).map(HostName::as_str), Some("c.example"));
        assert_eq!(names.newest(seconds(3), at(9)), None);
    }

    #[test]
    fn a_name_holds_for_its_lifetime_within_the_limits() {
        let mut names = small();
        names.learn(seconds(0), &answered("short.example", &[1], 0));
        names.learn(seconds(0), &answered("middle.example", &[2], 50));
        names.learn(seconds(0), &answered("long.example", &[3], 5000));
        for (n, end) in [(1, 10), (2, 50), (3, 100)] {
            assert_eq!(all(&names, end - 1, n).len(), 1);
            assert_eq!(all(&names, end, n).len(), 0);
        }
    }

    #[test]
    fn a_name_that_has_expired_takes_no_room_from_one_that_holds() {
        let mut names = small();
        names.learn(seconds(0), &answered("a.example", &[1], 100));
        names.learn(seconds(1), &answered("b.example", &[1], 10));
        names.learn(seconds(20), &answered("c.example", &[1], 10));
        assert_eq!(all(&names, 21, 1), ["c.example", "a.example"]);
    }

    #[test]
    fn a_repeated_name_is_kept_longer() {
        let mut names = small();
        names.learn(seconds(0), &answered("a.example", &[1], 50));
        names.learn(seconds(40), &answered("a.example", &[1], 50));
        assert_eq!(all(&names, 89, 1), ["a.example"]);
    }

    #[test]
    fn expired_entries_are_removed_first_then_the_oldest() {
        let mut names = small();
        names.learn(seconds(0), &answered("a.example", &[1], 100));
        names.learn(seconds(1), &answered("b.example", &[2], 10));
        names.learn(seconds(2), &answered("c.example", &[3], 100));
        names.learn(seconds(20), &answered("d.example", &[4], 100));
        assert_eq!([1, 2, 3, 4].map(|n| all(&names, 21, n).len()), [1, 0, 1, 1]);
        names.learn(seconds(22), &answered("a.example", &[1], 100));
        names.learn(seconds(23), &answered("e.example", &[5], 10));
        assert_eq!([1, 3, 4, 5].map(|n| all(&names, 24, n).len()), [1, 0, 1, 1]);
    }

    proptest! {
        #[test]
        fn the_memory_keeps_the_newest_names_within_its_limits(
            steps in prop::collection::vec(
                (0_u64..40, "[a-e]", prop::collection::vec(0_u8..9, 1..3), 0_u64..120), 1..60),
        ) {
            let mut names = small();
            let mut now = 0;
            for (wait, name, addresses, lifetime) in steps {
                now += wait;
                names.learn(seconds(now), &answered(&name, &addresses, lifetime));
                prop_assert!(names.len() <= 3 && !names.is_empty());
                prop_assert_eq!(names.by_age.len(), names.len());
                for n in addresses {
                    let newest = names.newest(seconds(now), at(n)).map(HostName::to_string);
                    prop_assert_eq!(newest.as_ref(), Some(&name));
                }
                for n in 0..9 {
                    prop_assert!(all(&names, now, n).len() <= 2);
                }
            }
        }
    }
}
