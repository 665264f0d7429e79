//! Messages without payload: credit, resets, labels.

use manyways_unit::Time;

use super::carrier::{Carrier, What};
use super::stream::Stream;
use super::turns::Place;
use super::{FlowId, Label, Message, Mux, Payload, StreamId};
use crate::sched::{PathId, PathSet};

/// A queued message without payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Notice {
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
const OF_LABEL: u16 = 1 << 8;
/// Class of notices without a label.
const NO_LABEL: u16 = 1 << 9;

impl<P: Payload> Mux<P> {
    pub(super) fn notice(&mut self, notice: Notice) {
        if !self.noticed.contains_key(&notice) {
            let class = self.class_of(notice);
            self.noticed.insert(notice, self.notices.add(class, notice));
        }
    }

    /// Returns the queue class. The notices of a stream have the class of its label and use its
    /// paths.
    pub(super) fn class_of(&self, notice: Notice) -> u16 {
        match notice {
            Notice::Reset(id) | Notice::StreamCredit(id) | Notice::Assign(id) => {
                self.streams.get(&id).map_or(NO_LABEL, |stream| stream.label.into())
            }
            Notice::Relabel(id) | Notice::CloseFlow(_, id) => OF_LABEL | u16::from(id),
            Notice::Credit | Notice::PathDown(_) => NO_LABEL,
        }
    }

    pub(super) fn forget(&mut self, notice: Notice) -> bool {
        let place = self.noticed.remove(&notice);
        place.is_some_and(|place| self.notices.take(place).is_some())
    }

    /// Moves the notices of a stream to the class of its current label, or removes them if the
    /// stream is closed.
    pub(super) fn review_notices(&mut self, id: StreamId) {
        for notice in [Notice::Reset(id), Notice::StreamCredit(id), Notice::Assign(id)] {
            if self.forget(notice) && self.streams.contains_key(&id) {
                self.notice(notice);
            }
        }
    }

    pub(super) fn next_notice(&mut self, now: Time) -> Option<(usize, Message<P>)> {
        let mut places: Vec<Place> = self.notices.firsts().collect();
        places.sort_by_key(|place| place.ticket);
        for place in places {
            let Some(at) = self.carrier_for_notices(now, place.class) else { continue };
            while let Some((place, notice)) = self.notices.from(place) {
                let notice = *notice;
                self.notices.take(place);
                self.noticed.remove(&notice);
                if let Some((what, message)) = self.say(notice) {
                    self.carriers[at].keep(now, what);
                    return Some((at, message));
                }
            }
        }
        None
    }

    /// Returns the carrier for a class of notices if that carrier has room. Notices do not use
    /// other paths without need, because they would wake a path that a policy avoids.
    pub(super) fn carrier_for_notices(&self, now: Time, class: u16) -> Option<usize> {
        let paths = |class: u16| self.treatment_of(class as u8).paths;
        match class {
            NO_LABEL => {
                let in_use =
                    |carrier: &Carrier| Some(carrier.id) == self.recent && !carrier.suspect;
                match self.carriers.iter().position(in_use) {
                    Some(at) => (self.carriers[at].room > 0).then_some(at),
                    None => self.quickest(now, PathSet::ALL),
                }
            }
            _ if class & OF_LABEL == 0 => self.quickest(now, paths(class)),
            // The peer needs this notice, even over another path.
            _ if !self.carriers.iter().any(|carrier| paths(class).has(carrier.path)) => {
                self.quickest(now, PathSet::ALL)
            }
            _ => self.quickest(now, paths(class)),
        }
    }

    pub(super) fn say(&self, notice: Notice) -> Option<(What, Message<P>)> {
        Some(match notice {
            Notice::Reset(id) => {
                let stream = self.streams.get(&id)?;
                let code = stream.reset?.code;
                let end = stream.send.high();
                (What::Reset { stream: id }, Message::Reset { stream: id, code, end })
            }
            Notice::StreamCredit(id) => {
                let most = self.streams.get(&id)?.receive.granted()?;
                (What::StreamCredit { stream: id }, Message::StreamCredit { stream: id, most })
            }
            Notice::Credit => (What::Credit, Message::Credit { most: self.most }),
            Notice::Relabel(id) => (What::Relabel { id }, Message::Relabel(self.label(id))),
            Notice::Assign(id) => {
                let Stream { label, revision, .. } = *self.streams.get(&id)?;
                (What::Assign { stream: id }, Message::Assign { stream: id, label, revision })
            }
            Notice::CloseFlow(flow, label) => {
                (What::CloseFlow { flow, label }, Message::CloseFlow { flow })
            }
            // The path is up again, and the peer must not close its new carrier.
            Notice::PathDown(path) if self.carriers.iter().any(|c| c.path == path) => return None,
            Notice::PathDown(path) => (What::PathDown { path }, Message::PathDown { path }),
        })
    }

    pub(super) fn label(&self, id: u8) -> Label {
        let (version, treatment) = self.labels.get(&id).copied().unwrap_or_default();
        Label { id, version, treatment }
    }

    /// Returns the carrier with room on which a small message arrives first. Carriers that are not
    /// suspect precede suspect ones; among these, the most recently used carrier precedes the
    /// others.
    pub(super) fn quickest(&self, now: Time, paths: PathSet) -> Option<usize> {
        let usable = |at: &usize| self.carriers[*at].room > 0 && paths.has(self.carriers[*at].path);
        let recent = |at: &usize| Some(self.carriers[*at].id) != self.recent;
        (0..self.carriers.len()).filter(usable).min_by_key(|at| {
            let carrier = &self.carriers[*at];
            (carrier.suspect, recent(at), carrier.view(now).arrival())
        })
    }
}
