//! The largest of any number of shares, in bounded memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// Counters of one entry.
pub trait EntryCounters: Default {
    /// The sort key.
    fn size(&self) -> u64;
    /// Adds the counters of another entry.
    fn add(&mut self, other: &Self);
}

/// The largest entries. When there are more than `MOST`, the smaller half is merged into one.
#[derive(Clone, Debug, Default)]
pub struct TopEntries<S, const MOST: usize> {
    entries: HashMap<String, S>,
    others: S,
    /// The name of each address, for at most `MOST` addresses; `None` if an address has several
    /// names.
    names: HashMap<String, Option<String>>,
}

impl<S: EntryCounters, const MOST: usize> TopEntries<S, MOST> {
    /// Adds to the entry of `name`. Without a name, adds to the entry of the address, which
    /// [`Self::largest`] merges into the entry of the address's name, if the address has exactly
    /// one.
    pub fn add_address(&mut self, address: String, name: Option<String>, more: &S) {
        let Some(name) = name else { return self.add_name(address, more) };
        let has_room = self.names.len() < MOST;
        match self.names.get_mut(&address) {
            Some(known) if known.as_ref() != Some(&name) => *known = None,
            None if has_room => {
                self.names.insert(address, Some(name.clone()));
            }
            Some(_) | None => {}
        }
        self.add_name(name, more);
    }

    /// Adds to the entry of `name`.
    pub fn add_name(&mut self, name: String, more: &S) {
        if self.entries.len() >= MOST && !self.entries.contains_key(&name) {
            self.halve();
        }
        self.entries.entry(name).or_default().add(more);
    }

    /// Returns the `max` largest entries, largest first, and the sum of all others.
    pub fn largest(&self, max: usize) -> (Vec<(&str, S)>, S) {
        // Sorted, because the first entry of a name may set properties of the whole name.
        let known: BTreeMap<&String, &S> = self.entries.iter().collect();
        let mut named: BTreeMap<&str, S> = BTreeMap::new();
        for (key, share) in known {
            named.entry(self.name(key)).or_default().add(share);
        }
        let mut all: Vec<(&str, S)> = named.into_iter().collect();
        all.sort_by_key(|(_, share)| Reverse(share.size()));
        let rest = all.split_off(max.min(all.len()));
        let mut others = S::default();
        others.add(&self.others);
        rest.iter().for_each(|(_, share)| others.add(share));
        (all, others)
    }

    /// Returns the name to show for a name or an address.
    fn name<'a>(&'a self, key: &'a str) -> &'a str {
        self.names.get(key).and_then(Option::as_deref).unwrap_or(key)
    }

    fn halve(&mut self) {
        let mut sizes: Vec<u64> = self.entries.values().map(EntryCounters::size).collect();
        let middle = MOST / 2;
        let (_, middle, _) = sizes.select_nth_unstable(middle);
        let (middle, others) = (*middle, &mut self.others);
        self.entries.retain(|_, share| {
            let stays = share.size() > middle;
            if !stays {
                others.add(share);
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl EntryCounters for u64 {
        fn size(&self) -> u64 {
            *self
        }

        fn add(&mut self, other: &Self) {
            *self += other;
        }
    }

    #[test]
    fn the_smaller_half_goes_and_nothing_is_lost() {
        let mut busiest: TopEntries<u64, 8> = TopEntries::default();
        for number in 1..=20_u64 {
            busiest.add_name(format!("{:02}", number * 8 % 21), &(number * 8 % 21));
            assert!(busiest.entries.len() <= 8);
        }
        busiest.add_name("20".to_owned(), &5);
        let (largest, others) = busiest.largest(2);
        assert_eq!(largest[0], ("20", 25));
        let sum: u64 = largest.iter().map(|(_, share)| *share).sum();
        assert_eq!(sum + others, 210 + 5);
    }

    #[test]
    fn a_server_is_one_row_whether_or_not_a_flow_tells_its_name() {
        let mut busiest: TopEntries<u64, 8> = TopEntries::default();
        let mut add = |address: &str, name: Option<&str>, bytes: u64| {
            busiest.add_address(address.to_owned(), name.map(str::to_owned), &bytes);
        };
        add("192.0.2.1", None, 10);
        add("192.0.2.1", Some("example.net"), 1);
        add("192.0.2.2", Some("example.net"), 2);
        add("192.0.2.2", None, 20);
        // Two names share an address: the flow without a name may belong to either.
        add("192.0.2.3", Some("one.example"), 3);
        add("192.0.2.3", Some("two.example"), 4);
        add("192.0.2.3", None, 30);
        let rows = [("example.net", 33), ("192.0.2.3", 30), ("two.example", 4)];
        assert_eq!(busiest.largest(3), (rows.into(), 3));
    }

    #[test]
    fn of_equals_the_first_by_name_comes_first() {
        let mut busiest: TopEntries<u64, 8> = TopEntries::default();
        ["b", "a", "c"].iter().for_each(|name| busiest.add_name((*name).to_owned(), &1));
        let names: Vec<&str> = busiest.largest(2).0.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
