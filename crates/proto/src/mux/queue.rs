//! Queues of streams with data to send and of streams that wait for credit of the session.

use std::cmp::Reverse;

use super::stream::Queue;
use super::turns::{Place, Turns};
use super::{Mux, Payload, StreamId};

/// Maximum number of streams of a label that are checked for one that its scheduler serves now.
pub(super) const MOST_WAITING: usize = 64;

impl<P: Payload> Mux<P> {
    /// Appends the stream to `queue`.
    pub(super) fn line_up(&mut self, id: StreamId, queue: Option<Queue>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let class = stream.label.into();
        stream.place = queue.map(|queue| match queue {
            Queue::Ready => (queue, self.ready.add(class, id)),
            Queue::Broke => (queue, self.broke.add(class, id)),
        });
    }

    /// Removes the stream from its queue.
    pub(super) fn leave(&mut self, id: StreamId) {
        let place = self.streams.get_mut(&id).and_then(|stream| stream.place.take());
        match place {
            Some((Queue::Ready, place)) => drop(self.ready.take(place)),
            Some((Queue::Broke, place)) => drop(self.broke.take(place)),
            None => {}
        }
    }

    /// Moves streams that wait for credit of the session back to the send queue, highest priority
    /// first. At most [`MOST_WAITING`] of each label, because the credit may suffice for only one.
    pub(super) fn unblock(&mut self) {
        if self.granted <= self.used || self.broke.is_empty() {
            return;
        }
        for place in self.in_turn(&self.broke) {
            for _ in 0..MOST_WAITING {
                let Some((_, id)) = self.broke.from(place) else { break };
                self.edit(*id, |_| {});
            }
        }
    }

    /// Returns the first entry of each label, highest priority first.
    pub(super) fn in_turn(&self, turns: &Turns<StreamId>) -> Vec<Place> {
        let priority = |place: &Place| Reverse(self.treatment_of(place.class as u8).priority);
        let mut places: Vec<Place> = turns.firsts().collect();
        places.sort_by_key(|place| (priority(place), place.ticket));
        places
    }
}
