//! What is said and is no data: credit, resets, labels.

use manyways_unit::Time;

use super::carrier::{Carrier, What};
use super::stream::Stream;
use super::turns::Place;
use super::{FlowId, Label, Message, Mux, Payload, StreamId};
use crate::sched::{PathId, PathSet};

/// What is to be said, and is no data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Notice {
    Reset(StreamId),
    StreamCredit(StreamId),
    Credit,
    Relabel(u8),
    Assign(StreamId),
    /// With the label that the flow had.
    CloseFlow(FlowId, u8),
    PathDown(PathId),
}

/// Notices that wait under a label wait apart from those of its streams…
const OF_LABEL: u16 = 1 << 8;
/// …and those under no label apart from both.
const NO_LABEL: u16 = 1 << 9;

impl<P: Payload> Mux<P> {
    pub(super) fn notice(&mut self, notice: Notice) {
        if !self.noticed.contains_key(&notice) {
            let class = self.class_of(notice);
            self.noticed.insert(notice, self.notices.add(class, notice));
        }
    }

    /// Those of a stream wait under its label, for its paths.
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

    /// The notices of a stream wait under its label, which may be another now; all are forgotten
    /// where it is over.
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

    /// The carrier for notices that wait together, if it has room. None goes over a path without
    /// need, or one that a policy spares would be woken by it.
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
            // The other end has to know, and be it over another path.
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
            // It is back, and its new carrier is not to be closed for the sake of the old one.
            Notice::PathDown(path) if self.carriers.iter().any(|c| c.path == path) => return None,
            Notice::PathDown(path) => (What::PathDown { path }, Message::PathDown { path }),
        })
    }

    pub(super) fn label(&self, id: u8) -> Label {
        let (version, treatment) = self.labels.get(&id).copied().unwrap_or_default();
        Label { id, version, treatment }
    }

    /// The carrier over which a small message arrives first, among those that have room; that
    /// which is in use rather than one that sleeps.
    pub(super) fn quickest(&self, now: Time, paths: PathSet) -> Option<usize> {
        let usable = |at: &usize| self.carriers[*at].room > 0 && paths.has(self.carriers[*at].path);
        let recent = |at: &usize| Some(self.carriers[*at].id) != self.recent;
        (0..self.carriers.len()).filter(usable).min_by_key(|at| {
            let carrier = &self.carriers[*at];
            (carrier.suspect, recent(at), carrier.view(now).arrival())
        })
    }
}
