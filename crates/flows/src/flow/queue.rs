//! A queue that rarely has more than one element.

use std::collections::VecDeque;
use std::{mem, slice};

/// A queue that stores one element without an allocation.
#[derive(Clone, Debug, Default)]
pub(super) enum Queue<T> {
    #[default]
    Empty,
    One(T),
    #[allow(clippy::box_collection, reason = "a queue takes four pointers, and few have one")]
    Many(Box<VecDeque<T>>),
}

impl<T> Queue<T> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(_) => 1,
            Self::Many(all) => all.len(),
        }
    }

    pub(super) fn front(&self) -> Option<&T> {
        match self {
            Self::Empty => None,
            Self::One(one) => Some(one),
            Self::Many(all) => all.front(),
        }
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Empty => None,
            Self::One(one) => Some(one),
            Self::Many(all) => all.front_mut(),
        }
    }

    pub(super) fn back(&self) -> Option<&T> {
        match self {
            Self::Empty => None,
            Self::One(one) => Some(one),
            Self::Many(all) => all.back(),
        }
    }

    pub(super) fn back_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Empty => None,
            Self::One(one) => Some(one),
            Self::Many(all) => all.back_mut(),
        }
    }

    #[inline]
    pub(super) fn push_back(&mut self, one: T) {
        match self {
            Self::Many(all) => all.push_back(one),
            _ => *self = self.extended(one, false),
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        match self {
            Self::Many(all) => {
                let first = all.pop_front();
                if all.is_empty() {
                    // Release the allocation: most connections are idle most of the time.
                    *self = Self::Empty;
                }
                first
            }
            _ => match mem::take(self) {
                Self::One(one) => Some(one),
                _ => None,
            },
        }
    }

    /// Inserts an element before the element at `index`, or at the end.
    pub(super) fn insert(&mut self, index: usize, one: T) {
        match self {
            Self::Many(all) => all.insert(index.min(all.len()), one),
            _ => *self = self.extended(one, index == 0),
        }
    }

    /// Returns the number of leading elements for which `is_before` is true; the queue must be
    /// partitioned.
    pub(super) fn partition_point(&self, mut is_before: impl FnMut(&T) -> bool) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(one) => is_before(one).into(),
            Self::Many(all) => all.partition_point(is_before),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let (one, other) = match self {
            Self::Empty => (&[][..], &[][..]),
            Self::One(one) => (slice::from_ref(one), &[][..]),
            Self::Many(all) => all.as_slices(),
        };
        one.iter().chain(other)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let (one, other) = match self {
            Self::Empty => (&mut [][..], &mut [][..]),
            Self::One(one) => (slice::from_mut(one), &mut [][..]),
            Self::Many(all) => all.as_mut_slices(),
        };
        one.iter_mut().chain(other)
    }

    /// Returns a queue of at most one element with another one.
    fn extended(&mut self, one: T, is_first: bool) -> Self {
        match mem::take(self) {
            Self::One(other) => {
                let mut all = VecDeque::with_capacity(4);
                all.extend(if is_first { [one, other] } else { [other, one] });
                Self::Many(Box::new(all))
            }
            _ => Self::One(one),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_does_what_a_deque_does(steps in prop::collection::vec((0_u8..5, 0_usize..5), 0..60)) {
            let (mut queue, mut deque) = (Queue::default(), VecDeque::new());
            for (number, (what, index)) in steps.into_iter().enumerate() {
                let index = index.min(deque.len());
                match what {
                    0 | 1 => {
                        queue.push_back(number);
                        deque.push_back(number);
                    }
                    2 => {
                        queue.insert(index, number);
                        deque.insert(index, number);
                    }
                    3 => prop_assert_eq!(queue.pop_front(), deque.pop_front()),
                    _ => {
                        queue.iter_mut().for_each(|one| *one += 1_000);
                        deque.iter_mut().for_each(|one| *one += 1_000);
                    }
                }
                prop_assert!(queue.iter().eq(&deque));
                prop_assert_eq!((queue.front(), queue.back()), (deque.front(), deque.back()));
                prop_assert_eq!(queue.front_mut().copied(), deque.front().copied());
                prop_assert_eq!(queue.back_mut().copied(), deque.back().copied());
                prop_assert_eq!(queue.len(), deque.len());
                let is_before = |one: &usize| *one < 1_000;
                let before = queue.iter().take_while(|one| is_before(one)).count();
                if queue.iter().skip(before).all(|one| !is_before(one)) {
                    prop_assert_eq!(queue.partition_point(is_before), before);
                }
            }
        }
    }
}
