//! Messages without payload: credit, resets, labels.

use manyways_unit::Time;

use super::carrier::{Carrier, SentContent};
use super::class_queue::QueueKey;
use super::stream::Stream;
use super::{FlowId, Label, Message, Mux, Payload, StreamId};
use crate::sched::{PathId, PathSet};

/// A queued message without payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum ControlMessage {
    Opened(StreamId),
    Reset(StreamId),
    StreamCredit(StreamId),
    Credit,
    Relabel(u8),
    Assign(StreamId),
    /// The second field is the label of the flow.
    CloseFlow(FlowId, u8),
    PathDown(PathId),
}

/// Class of notices about a label, separate from the notices of its streams.
const LABEL_CLASS: u16 = 1 << 8;
/// Class of notices without a label.
const UNLABELLED_CLASS: u16 = 1 << 9;

impl<P: Payload> Mux<P> {
    pub(super) fn queue_control(&mut self, notice: ControlMessage) {
        if !self.control_keys.contains_key(&notice) {
            let class = self.control_class(notice);
            self.control_keys.insert(notice, self.control_queue.add(class, notice));
        }
    }

    /// Returns the queue class. The notices of a stream have the class of its label and use its
    /// paths.
    pub(super) fn control_class(&self, notice: ControlMessage) -> u16 {
        match notice {
            ControlMessage::Opened(id)
            | ControlMessage::Reset(id)
            | ControlMessage::StreamCredit(id)
            | ControlMessage::Assign(id) => {
                self.streams.get(&id).map_or(UNLABELLED_CLASS, |stream| stream.label.into())
            }
            ControlMessage::Relabel(id) | ControlMessage::CloseFlow(_, id) => {
                LABEL_CLASS | u16::from(id)
            }
            ControlMessage::Credit | ControlMessage::PathDown(_) => UNLABELLED_CLASS,
        }
    }

    pub(super) fn cancel_control(&mut self, notice: ControlMessage) -> bool {
        let place = self.control_keys.remove(&notice);
        place.is_some_and(|key| self.control_queue.take(key).is_some())
    }

    /// Moves the notices of a stream to the class of its current label, or removes them if the
    /// stream is closed.
    pub(super) fn requeue_control(&mut self, id: StreamId) {
        for notice in [
            ControlMessage::Opened(id),
            ControlMessage::Reset(id),
            ControlMessage::StreamCredit(id),
            ControlMessage::Assign(id),
        ] {
            if self.cancel_control(notice) && self.streams.contains_key(&id) {
                self.queue_control(notice);
            }
        }
    }

    pub(super) fn next_control(&mut self, now: Time) -> Option<(usize, Message<P>)> {
        let mut places: Vec<QueueKey> = self.control_queue.heads().collect();
        places.sort_by_key(|key| key.sequence);
        for key in places {
            let Some(at) = self.control_carrier(now, key.class) else { continue };
            while let Some((place, notice)) = self.control_queue.at_or_after(key) {
                let notice = *notice;
                self.control_queue.take(place);
                self.control_keys.remove(&notice);
                if let Some((what, message)) = self.control_message(notice) {
                    self.carriers[at].record_sent(now, what);
                    return Some((at, message));
                }
            }
        }
        None
    }

    /// Returns the carrier for a class of notices if that carrier has room. Notices do not use
    /// other paths without need, because they would wake a path that a policy avoids.
    pub(super) fn control_carrier(&self, now: Time, class: u16) -> Option<usize> {
        let paths = |class: u16| self.label_policy(class as u8).paths;
        match class {
            UNLABELLED_CLASS => {
                let in_use = |carrier: &Carrier| {
                    Some(carrier.id) == self.last_receiver
                        && !carrier.is_avoided()
                        && carrier.loan.is_none()
                };
                match self.carriers.iter().position(in_use) {
                    Some(at) => (self.carriers[at].writable_bytes > 0).then_some(at),
                    None => self.fastest_carrier(now, PathSet::ALL),
                }
            }
            _ if class & LABEL_CLASS == 0 => self.fastest_carrier(now, paths(class)),
            // The peer needs this notice, even over another path.
            _ if !self.has_reliable_carrier(paths(class)) => {
                self.fastest_carrier(now, PathSet::ALL)
            }
            _ => self.fastest_carrier(now, paths(class)),
        }
    }

    pub(super) fn control_message(
        &self,
        notice: ControlMessage,
    ) -> Option<(SentContent, Message<P>)> {
        Some(match notice {
            ControlMessage::Opened(id) => {
                // The client needs no confirmation of a connection that has ended since.
                self.streams.get(&id).filter(|stream| stream.reset.is_none())?;
                (SentContent::Opened { stream: id }, Message::Opened { stream: id })
            }
            ControlMessage::Reset(id) => {
                let stream = self.streams.get(&id)?;
                let code = stream.reset?.code;
                let end = stream.send.highest_offset();
                (SentContent::Reset { stream: id }, Message::Reset { stream: id, code, end })
            }
            ControlMessage::StreamCredit(id) => {
                let max = self.streams.get(&id)?.receive.granted()?;
                (
                    SentContent::StreamCredit { stream: id },
                    Message::StreamCredit { stream: id, max_offset: max },
                )
            }
            ControlMessage::Credit => {
                (SentContent::Credit, Message::Credit { max_total: self.receive_credit })
            }
            ControlMessage::Relabel(id) => {
                (SentContent::Relabel { id }, Message::Relabel(self.label(id)))
            }
            ControlMessage::Assign(id) => {
                let Stream { label, revision, .. } = *self.streams.get(&id)?;
                (
                    SentContent::Assign { stream: id },
                    Message::Assign { stream: id, label, revision },
                )
            }
            ControlMessage::CloseFlow(flow, label) => {
                (SentContent::CloseFlow { flow, label }, Message::CloseFlow { flow })
            }
            // The path is up again, and the peer must not close its new carrier.
            ControlMessage::PathDown(path) if self.carriers.iter().any(|c| c.path == path) => {
                return None;
            }
            ControlMessage::PathDown(path) => {
                (SentContent::PathDown { path }, Message::PathDown { path })
            }
        })
    }

    pub(super) fn label(&self, id: u8) -> Label {
        let (version, policy) = self.labels.get(&id).copied().unwrap_or_default();
        Label { id, version, stream_policy: policy }
    }

    /// Returns whether a carrier on one of these paths is not suspect.
    pub(super) fn has_reliable_carrier(&self, paths: PathSet) -> bool {
        self.carriers.iter().any(|carrier| !carrier.is_avoided() && paths.contains(carrier.path))
    }

    /// Returns the carrier with room on which a small message arrives first; one without a lender
    /// precedes the others, and then the most recently used one. A suspect carrier is used only if all carriers on these paths
    /// are suspect: a message on it would be reinjected at once, so that one that was reinjected
    /// would come again without end.
    pub(super) fn fastest_carrier(&self, now: Time, paths: PathSet) -> Option<usize> {
        let uses_avoided = !self.has_reliable_carrier(paths);
        let usable = |at: &usize| {
            let carrier = &self.carriers[*at];
            carrier.writable_bytes > 0
                && paths.contains(carrier.path)
                && (uses_avoided || !carrier.is_avoided())
        };
        // A notice is not worth the radio of a lender, nor the wait behind bulk data there.
        let rank = |at: &usize| {
            let carrier = &self.carriers[*at];
            (carrier.loan.is_some(), Some(carrier.id) != self.last_receiver)
        };
        (0..self.carriers.len())
            .filter(usable)
            .min_by_key(|at| (rank(at), self.carriers[*at].path_view(now).delivery_time()))
    }
}
