//! A list that is empty nearly always.

use std::ops::{Deref, DerefMut};

/// A list that takes the room of a pointer while it is empty.
#[allow(clippy::box_collection, reason = "an empty Vec takes three pointers")]
#[derive(Clone, Debug)]
pub(super) struct Few<T>(Option<Box<Vec<T>>>);

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Few<T> {
    pub(super) fn push(&mut self, one: T) {
        self.0.get_or_insert_default().push(one);
    }

    /// Puts one before the one at this index.
    pub(super) fn insert(&mut self, index: usize, one: T) {
        self.0.get_or_insert_default().insert(index, one);
    }

    /// The one at this index; the others stay in their order.
    pub(super) fn remove(&mut self, index: usize) -> Option<T> {
        let list = self.0.as_deref_mut().filter(|list| index < list.len())?;
        let one = list.remove(index);
        if list.is_empty() {
            self.0 = None;
        }
        Some(one)
    }

    pub(super) fn retain_mut(&mut self, keep: impl FnMut(&mut T) -> bool) {
        let Some(list) = &mut self.0 else { return };
        list.retain_mut(keep);
        if list.is_empty() {
            self.0 = None;
        }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.0.as_deref_mut().map_or(&mut [], Vec::as_mut_slice)
    }
}
