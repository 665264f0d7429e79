//! A list that is nearly always empty.

use std::ops::{Deref, DerefMut};

/// A list that takes the size of one pointer while it is empty.
#[allow(clippy::box_collection, reason = "an empty Vec takes three pointers")]
#[derive(Clone, Debug)]
pub struct ThinVec<T>(Option<Box<Vec<T>>>);

impl<T> Default for ThinVec<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> ThinVec<T> {
    pub fn push(&mut self, one: T) {
        self.vec_mut().push(one);
    }

    /// `Vec` would allocate capacity for four elements at the first push.
    fn vec_mut(&mut self) -> &mut Vec<T> {
        self.0.get_or_insert_with(|| Box::new(Vec::with_capacity(1)))
    }

    /// Appends clones of `more`.
    pub fn extend(&mut self, more: &[T])
    where
        T: Clone,
    {
        if !more.is_empty() {
            self.0.get_or_insert_default().extend_from_slice(more);
        }
    }

    /// Inserts `one` at `index` and shifts the later elements.
    pub fn insert(&mut self, index: usize, one: T) {
        self.vec_mut().insert(index, one);
    }

    /// Removes the element at `index`; the others keep their order. `None` if the index is out of
    /// range.
    pub fn remove(&mut self, index: usize) -> Option<T> {
        let list = self.0.as_deref_mut().filter(|list| index < list.len())?;
        let one = list.remove(index);
        if list.is_empty() {
            self.0 = None;
        }
        Some(one)
    }
}

impl<T> Deref for ThinVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl<T> DerefMut for ThinVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.0.as_deref_mut().map_or(&mut [], Vec::as_mut_slice)
    }
}
