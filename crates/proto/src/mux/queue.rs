//! Queues of streams with data to send and of streams that wait for credit of the session.

use std::cmp::Reverse;

use super::class_queue::{ClassQueue, QueueKey};
use super::stream::Queue;
use super::{Mux, Payload, StreamId};

/// Maximum number of streams of a label that are checked for one that its scheduler serves now.
pub(super) const MAX_SCANNED_STREAMS: usize = 64;

impl<P: Payload> Mux<P> {
    /// Appends the stream to `queue`.
    pub(super) fn enqueue(&mut self, id: StreamId, queue: Option<Queue>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let class = stream.label.into();
        stream.queue_key = queue.map(|queue| match queue {
            Queue::Ready => (queue, self.ready.add(class, id)),
            Queue::Blocked => (queue, self.blocked.add(class, id)),
        });
    }

    /// Removes the stream from its queue.
    pub(super) fn dequeue(&mut self, id: StreamId) {
        let place = self.streams.get_mut(&id).and_then(|stream| stream.queue_key.take());
        match place {
            Some((Queue::Ready, place)) => drop(self.ready.take(place)),
            Some((Queue::Blocked, place)) => drop(self.blocked.take(place)),
            None => {}
        }
    }

    /// Moves streams that wait for credit of the session back to the send queue, highest priority
    /// first. At most [`MAX_SCANNED_STREAMS`] of each label, because the credit may suffice for
    /// only one.
    pub(super) fn unblock(&mut self) {
        if self.send_credit <= self.send_credit_used || self.blocked.is_empty() {
            return;
        }
        for key in self.queue_heads(&self.blocked) {
            for _ in 0..MAX_SCANNED_STREAMS {
                let Some((_, id)) = self.blocked.at_or_after(key) else { break };
                self.edit(*id, |_| {});
            }
        }
    }

    /// Returns the first entry of each label, highest priority first.
    pub(super) fn queue_heads(&self, turns: &ClassQueue<StreamId>) -> Vec<QueueKey> {
        let priority = |place: &QueueKey| Reverse(self.label_policy(place.class as u8).priority);
        let mut places: Vec<QueueKey> = turns.heads().collect();
        places.sort_by_key(|key| (priority(key), key.sequence));
        places
    }
}
