//! Queue with classes: first in, first out within a class, and a class can be skipped. Streams and
//! notices wait under their labels. A label whose paths accept nothing does not block other labels.

use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct ClassQueue<T> {
    entries: BTreeMap<QueueKey, T>,
    next_sequence: u64,
}

/// Position in the queue: class, and number in the order of arrival over all classes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct QueueKey {
    pub class: u16,
    pub sequence: u64,
}

impl<T> ClassQueue<T> {
    pub(super) fn new() -> Self {
        Self { entries: BTreeMap::new(), next_sequence: 0 }
    }

    pub(super) fn add(&mut self, class: u16, item: T) -> QueueKey {
        let key = QueueKey { class, sequence: self.next_sequence };
        self.next_sequence += 1;
        self.entries.insert(key, item);
        key
    }

    pub(super) fn take(&mut self, key: QueueKey) -> Option<T> {
        self.entries.remove(&key)
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.entries.retain(|_, item| keep(item));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the oldest entry of each class.
    pub(super) fn heads(&self) -> impl Iterator<Item = QueueKey> + '_ {
        let mut next = Some(QueueKey { class: 0, sequence: 0 });
        std::iter::from_fn(move || {
            let (key, _) = self.entries.range(next?..).next()?;
            next = key.class.checked_add(1).map(|class| QueueKey { class, sequence: 0 });
            Some(*key)
        })
    }

    /// Returns the entry at `key`, or else the next one of its class.
    pub(super) fn at_or_after(&self, key: QueueKey) -> Option<(QueueKey, &T)> {
        let last = QueueKey { sequence: u64::MAX, ..key };
        self.entries.range(key..=last).next().map(|(key, item)| (*key, item))
    }
}
