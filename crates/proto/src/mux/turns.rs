//! What waits for its turn, first come first served within a class, where a whole class may be
//! passed over: streams and notices wait under their labels, and a label whose paths take nothing
//! keeps nobody else waiting, however many wait under it.

use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Turns<T> {
    waiting: BTreeMap<Place, T>,
    tickets: u64,
}

/// Where something waits: its class, and its number in the order of arrival over all classes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub class: u16,
    pub ticket: u64,
}

impl<T> Turns<T> {
    pub(super) fn new() -> Self {
        Self { waiting: BTreeMap::new(), tickets: 0 }
    }

    pub(super) fn add(&mut self, class: u16, item: T) -> Place {
        let place = Place { class, ticket: self.tickets };
        self.tickets += 1;
        self.waiting.insert(place, item);
        place
    }

    pub(super) fn take(&mut self, place: Place) -> Option<T> {
        self.waiting.remove(&place)
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.waiting.retain(|_, item| keep(item));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.waiting.values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Who waits longest in each class.
    pub(super) fn firsts(&self) -> impl Iterator<Item = Place> + '_ {
        let mut next = Some(Place { class: 0, ticket: 0 });
        std::iter::from_fn(move || {
            let (place, _) = self.waiting.range(next?..).next()?;
            next = place.class.checked_add(1).map(|class| Place { class, ticket: 0 });
            Some(*place)
        })
    }

    /// Who waits at this place, or is the next of its class after it.
    pub(super) fn from(&self, place: Place) -> Option<(Place, &T)> {
        let last = Place { ticket: u64::MAX, ..place };
        self.waiting.range(place..=last).next().map(|(place, item)| (*place, item))
    }
}
