//! Queue with classes: first in, first out within a class, and a class can be skipped. Streams and
//! notices wait under their labels. A label whose paths accept nothing does not block other labels.

use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Turns<T> {
    waiting: BTreeMap<Place, T>,
    tickets: u64,
}

/// Position in the queue: class, and number in the order of arrival over all classes.
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

    /// Returns the oldest entry of each class.
    pub(super) fn firsts(&self) -> impl Iterator<Item = Place> + '_ {
        let mut next = Some(Place { class: 0, ticket: 0 });
        std::iter::from_fn(move || {
            let (place, _) = self.waiting.range(next?..).next()?;
            next = place.class.checked_add(1).map(|class| Place { class, ticket: 0 });
            Some(*place)
        })
    }

    /// Returns the entry at `place`, or else the next one of its class.
    pub(super) fn from(&self, place: Place) -> Option<(Place, &T)> {
        let last = Place { ticket: u64::MAX, ..place };
        self.waiting.range(place..=last).next().map(|(place, item)| (*place, item))
    }
}
