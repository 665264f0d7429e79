//! Which streams have something to send, and which of them wait for credit of the session.

use std::cmp::Reverse;

use super::stream::Queue;
use super::turns::{Place, Turns};
use super::{Mux, Payload, StreamId};

/// So many streams of a label are looked at for one that its scheduler does not keep waiting.
pub(super) const MOST_WAITING: usize = 64;

impl<P: Payload> Mux<P> {
    /// The stream waits at the end of a queue.
    pub(super) fn line_up(&mut self, id: StreamId, queue: Option<Queue>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let class = stream.label.into();
        stream.place = queue.map(|queue| match queue {
            Queue::Ready => (queue, self.ready.add(class, id)),
            Queue::Broke => (queue, self.broke.add(class, id)),
        });
    }

    /// The stream waits no more.
    pub(super) fn leave(&mut self, id: StreamId) {
        let place = self.streams.get_mut(&id).and_then(|stream| stream.place.take());
        match place {
            Some((Queue::Ready, place)) => drop(self.ready.take(place)),
            Some((Queue::Broke, place)) => drop(self.broke.take(place)),
            None => {}
        }
    }

    /// The session has credit: some of those that wait for it have their turn, the most urgent
    /// first. Not all, since the credit may be for one.
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

    /// The first of each label that waits, the most urgent label first.
    pub(super) fn in_turn(&self, turns: &Turns<StreamId>) -> Vec<Place> {
        let priority = |place: &Place| Reverse(self.treatment_of(place.class as u8).priority);
        let mut places: Vec<Place> = turns.firsts().collect();
        places.sort_by_key(|place| (priority(place), place.ticket));
        places
    }
}
