//! Who has the most of something, of whom there may be any number.

use std::collections::HashMap;

/// What is counted of each of them.
pub trait Share: Default {
    /// What they are ordered by.
    fn size(&self) -> u64;
    /// What another one has as well.
    fn add(&mut self, other: &Self);
}

/// The largest of many. When there are more than `MOST`, the smaller half is counted together.
#[derive(Clone, Debug, Default)]
pub struct Busiest<S, const MOST: usize> {
    known: HashMap<String, S>,
    others: S,
}

impl<S: Share, const MOST: usize> Busiest<S, MOST> {
    /// More of the one of this name.
    pub fn with(&mut self, name: String, more: &S) {
        if self.known.len() >= MOST && !self.known.contains_key(&name) {
            self.halve();
        }
        self.known.entry(name).or_default().add(more);
    }

    /// Those with the most, at most so many, and what all others have.
    pub fn largest(&self, most: usize) -> (Vec<(&str, &S)>, S) {
        let mut all: Vec<(&str, &S)> =
            self.known.iter().map(|(name, share)| (name.as_str(), share)).collect();
        all.sort_unstable_by(|one, other| (other.1.size(), one.0).cmp(&(one.1.size(), other.0)));
        let rest = all.split_off(most.min(all.len()));
        let mut others = S::default();
        others.add(&self.others);
        rest.iter().for_each(|(_, share)| others.add(share));
        (all, others)
    }

    fn halve(&mut self) {
        let mut sizes: Vec<u64> = self.known.values().map(Share::size).collect();
        let middle = MOST / 2;
        let (_, middle, _) = sizes.select_nth_unstable(middle);
        let (middle, others) = (*middle, &mut self.others);
        self.known.retain(|_, share| {
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

    impl Share for u64 {
        fn size(&self) -> u64 {
            *self
        }

        fn add(&mut self, other: &Self) {
            *self += other;
        }
    }

    #[test]
    fn the_smaller_half_goes_and_nothing_is_lost() {
        let mut busiest: Busiest<u64, 8> = Busiest::default();
        for number in 1..=20_u64 {
            busiest.with(format!("{:02}", number * 8 % 21), &(number * 8 % 21));
            assert!(busiest.known.len() <= 8);
        }
        busiest.with("20".to_owned(), &5);
        let (largest, others) = busiest.largest(2);
        assert_eq!(largest[0], ("20", &25));
        let sum: u64 = largest.iter().map(|(_, share)| **share).sum();
        assert_eq!(sum + others, 210 + 5);
    }

    #[test]
    fn of_equals_the_first_by_name_comes_first() {
        let mut busiest: Busiest<u64, 8> = Busiest::default();
        ["b", "a", "c"].iter().for_each(|name| busiest.with((*name).to_owned(), &1));
        let names: Vec<&str> = busiest.largest(2).0.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
