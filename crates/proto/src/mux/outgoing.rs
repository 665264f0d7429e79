//! Selection of the next message to send.

use std::cmp::Ordering;

use manyways_unit::{Size, Time};

use super::carrier::What;
use super::message::MOST_DATA_HEADER;
use super::queue::MOST_WAITING;
use super::send::Piece;
use super::stream::{Open, Owed};
use super::turns::Place;
use super::{CarrierId, Label, MOST_PAYLOAD, Message, Mux, Payload, Role, StreamId};
use crate::ranges::{Range, Ranges};
use crate::sched::{Choice, Job, Kind, Treatment, View};

/// Maximum number of bytes by which streams are ahead of datagrams of the same priority.
const MOST_AHEAD: i64 = 16 << 10;

impl<P: Payload> Mux<P> {
    /// Returns the next message and its carrier, or `None` if no message can be sent.
    pub(super) fn transmit(&mut self, now: Time) -> Option<(CarrierId, Message<P>)> {
        if self.carriers.iter().all(|carrier| carrier.room == 0) {
            return None;
        }
        let first = self.signs(now).or_else(|| self.next_notice(now));
        let first = first.or_else(|| self.datagrams.next_bound(now, &self.carriers));
        let (at, message) = match first {
            Some(found) => found,
            None if self.streams_first() => {
                self.next_piece(now).or_else(|| self.next_datagram(now))?
            }
            None => self.next_datagram(now).or_else(|| self.next_piece(now))?,
        };
        self.take_turn(&message);
        let payload = message.payload().map_or(0, Payload::len);
        let carrier = &mut self.carriers[at];
        let head = head_length(&message, payload);
        carrier.feed(now, head + payload);
        self.counters.headers += head as u64;
        Some((carrier.id, message))
    }

    /// Returns whether streams are served before datagrams: if their priority is higher, or if it
    /// is equal and datagrams have sent more than half of the bytes.
    fn streams_first(&self) -> bool {
        let Some(datagrams) = self.datagrams.priority(|label| Some(self.treatment_of(label)))
        else {
            return true;
        };
        let streams = self.ready.firsts();
        let streams = streams.map(|place| self.treatment_of(place.class as u8).priority).max();
        streams.is_some_and(|streams| match streams.cmp(&datagrams) {
            Ordering::Less => false,
            Ordering::Equal => self.debt > 0,
            Ordering::Greater => true,
        })
    }

    /// Accounts for the bytes of a message: datagrams get into debt while streams wait.
    fn take_turn(&mut self, message: &Message<P>) {
        let Some(payload) = message.payload() else { return };
        let bytes = payload.len() as i64;
        match message {
            Message::Datagram { .. } | Message::Half { .. } if self.ready.is_empty() => {}
            Message::Datagram { .. } | Message::Half { .. } => self.debt += bytes,
            _ => self.debt = (self.debt - bytes).max(-MOST_AHEAD),
        }
    }

    /// Returns the next ACK, ping or pong.
    pub(super) fn signs(&mut self, now: Time) -> Option<(usize, Message<P>)> {
        for (at, carrier) in self.carriers.iter_mut().enumerate().filter(|(_, c)| c.room > 0) {
            if let Some(number) = carrier.pong.take() {
                return Some((at, Message::Pong { number }));
            }
            if let Some(count) = carrier.take_ack(now) {
                return Some((at, Message::Ack { count }));
            }
            if std::mem::take(&mut carrier.ask) {
                return Some((at, Message::Ping { number: 0 }));
            }
        }
        None
    }

    pub(super) fn next_datagram(&mut self, now: Time) -> Option<(usize, Message<P>)> {
        let labels = &self.labels;
        // Only the client knows that an undefined label has the default treatment.
        let unknown = (self.config.role == Role::Client).then(Treatment::default);
        let treatment = |label: u8| labels.get(&label).map(|(_, t)| *t).or(unknown);
        let carriers = &self.carriers;
        let next = self.datagrams.next(now, carriers, &mut self.schedulers, treatment);
        self.counters.dropped += self.datagrams.take_dropped();
        next
    }

    pub(super) fn next_piece(&mut self, now: Time) -> Option<(usize, Message<P>)> {
        self.unblock();
        let all_suspect = self.carriers.iter().all(|carrier| carrier.suspect);
        let views: Vec<(usize, View)> = self
            .carriers
            .iter()
            .enumerate()
            .filter(|(_, carrier)| all_suspect || !carrier.suspect)
            .map(|(at, carrier)| (at, carrier.view(now)))
            .collect();
        for Place { class, .. } in self.in_turn(&self.ready) {
            let treatment = self.treatment_of(class as u8);
            let usable: Vec<(usize, View)> =
                views.iter().filter(|(_, view)| treatment.paths.has(view.path)).copied().collect();
            if usable.iter().all(|(_, view)| !view.has_room) {
                continue;
            }
            let mut from = Place { class, ticket: 0 };
            for _ in 0..MOST_WAITING {
                let Some((place, id)) = self.ready.from(from) else { break };
                let id = *id;
                from = Place { ticket: place.ticket + 1, ..place };
                let found = self.serve(now, id, treatment, &usable);
                if found.is_some() {
                    // To the end of the queue: streams are served in turn.
                    self.leave(id);
                }
                // The stream may have no data left, or wait for credit.
                self.edit(id, |_| {});
                if found.is_some() {
                    self.tell_hungry(id);
                    return found;
                }
            }
        }
        None
    }

    /// Returns the next message of a stream if its scheduler sends one now.
    pub(super) fn serve(
        &mut self,
        now: Time,
        id: StreamId,
        treatment: Treatment,
        usable: &[(usize, View)],
    ) -> Option<(usize, Message<P>)> {
        if treatment.scheduler != Kind::Redundant
            && let Some(stream) = self.streams.get_mut(&id)
        {
            stream.owed.clear();
        }
        if let Some(copy) = self.serve_copy(now, id, usable) {
            return Some(copy);
        }
        let stream = self.streams.get(&id)?;
        let job = Job {
            backlog: Size::from_bytes(stream.send.backlog()),
            total: Size::from_bytes(self.backlog),
            primary: treatment.primary,
        };
        let views: Vec<View> = usable.iter().map(|(_, view)| *view).collect();
        let (at, ahead, everywhere) =
            match self.schedulers.choose(treatment.scheduler, &job, &views) {
                Choice::Wait => return None,
                Choice::Send { at, ahead } => (at, ahead, false),
                Choice::Everywhere => {
                    let first = views.iter().enumerate().filter(|(_, view)| view.has_room);
                    (first.min_by_key(|(_, view)| view.arrival())?.0, 0, true)
                }
            };
        let at = usable[at].0;
        let others: Vec<CarrierId> = match everywhere {
            true => usable
                .iter()
                .filter(|(other, _)| *other != at)
                .map(|(other, _)| self.carriers[*other].id)
                .collect(),
            false => Vec::new(),
        };
        self.send_piece(now, id, at, ahead, &others)
    }

    pub(super) fn send_piece(
        &mut self,
        now: Time,
        id: StreamId,
        at: usize,
        ahead: u64,
        others: &[CarrierId],
    ) -> Option<(usize, Message<P>)> {
        let carrier = &self.carriers[at];
        let room = carrier.room.saturating_sub(MOST_DATA_HEADER).max(1_400);
        let most = carrier.most_payload().min(room);
        let fresh = self.granted.saturating_sub(self.used);
        let label = self.label(self.streams.get(&id)?.label);
        // The first message contains the target and the first bytes.
        let opens = self.streams.get(&id).and_then(|stream| stream.open.as_ref());
        if let Some(Open { target, sent: false, .. }) = opens {
            let target = target.clone();
            let taken = self.edit(id, |stream| {
                if let Some(open) = &mut stream.open {
                    (open.sent, open.ever) = (true, true);
                }
                let piece = stream.send.take_first(most, fresh);
                (piece, stream.send.bytes(piece.range))
            });
            let (piece, data) = taken?;
            self.used += piece.fresh;
            let length = piece.range.len();
            self.count_sent(length);
            self.carriers[at].keep(now, What::Open { stream: id, length });
            self.owe(id, piece.range, true, false, others);
            return Some((at, Message::Open { stream: id, label, target, data }));
        }
        let taken = self.edit(id, |stream| {
            let piece = stream.send.take(ahead, most, fresh)?;
            Some((piece, stream.send.bytes(piece.range)))
        });
        let (piece, data) = taken??;
        self.used += piece.fresh;
        self.count_sent(piece.range.len());
        self.owe(id, piece.range, false, piece.fin, others);
        let (offset, fin) = (piece.range.start, piece.fin);
        self.carriers[at].keep(now, What::Data { stream: id, range: piece.range, fin });
        Some((at, Message::Data { stream: id, offset, fin, data }))
    }

    pub(super) fn count_sent(&mut self, bytes: u64) {
        self.counters.sent += bytes;
        let most = self.config.reinjection.cast_signed();
        self.reinjection = (self.reinjection + (bytes / 20).cast_signed()).min(most);
    }

    pub(super) fn owe(
        &mut self,
        id: StreamId,
        range: Range,
        opens: bool,
        fin: bool,
        others: &[CarrierId],
    ) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        for carrier in others.iter().copied() {
            let known = stream.owed.iter().position(|owed| owed.carrier == carrier);
            let at = known.unwrap_or_else(|| {
                let bytes = Ranges::new();
                stream.owed.push(Owed { carrier, bytes, opens: false, fin: false });
                stream.owed.len() - 1
            });
            let owed = &mut stream.owed[at];
            owed.bytes.insert(range);
            (owed.opens, owed.fin) = (owed.opens || opens, owed.fin || fin);
        }
    }

    /// Returns a copy of bytes that were already sent over another carrier.
    pub(super) fn serve_copy(
        &mut self,
        now: Time,
        id: StreamId,
        usable: &[(usize, View)],
    ) -> Option<(usize, Message<P>)> {
        let stream = self.streams.get_mut(&id)?;
        for (at, view) in usable.iter().filter(|(_, view)| view.has_room) {
            let carrier = &mut self.carriers[*at];
            debug_assert_eq!(view.path, carrier.path);
            let Some(index) = stream.owed.iter().position(|owed| owed.carrier == carrier.id) else {
                continue;
            };
            let owed = &mut stream.owed[index];
            let target = stream.open.as_ref().filter(|_| owed.opens).map(|open| &open.target);
            owed.opens = false;
            let piece = stream.send.again(&owed.bytes, carrier.most_payload());
            let (what, message) = if let Some(target) = target.cloned() {
                let first = piece.map(|piece| piece.range).filter(|range| range.start == 0);
                let range = first.unwrap_or(Range::new(0, 0));
                owed.bytes.remove(range);
                self.counters.sent += range.len();
                let (data, length) = (stream.send.bytes(range), range.len());
                let (version, treatment) =
                    self.labels.get(&stream.label).copied().unwrap_or_default();
                let label = Label { id: stream.label, version, treatment };
                let what = What::Open { stream: id, length };
                (what, Message::Open { stream: id, label, target, data })
            } else if let Some(Piece { range, fin, .. }) =
                piece.or_else(|| stream.send.end_again().filter(|_| owed.fin))
            {
                owed.bytes.remove(Range::new(0, range.end));
                owed.fin &= !fin;
                self.counters.sent += range.len();
                let (data, offset) = (stream.send.bytes(range), range.start);
                let what = What::Data { stream: id, range, fin };
                (what, Message::Data { stream: id, offset, fin, data })
            } else {
                stream.owed.swap_remove(index);
                continue;
            };
            if owed.bytes.is_empty() && !owed.fin {
                stream.owed.swap_remove(index);
            }
            carrier.keep(now, what);
            return Some((*at, message));
        }
        None
    }
}

/// Returns the length of a message without its payload.
pub(super) fn head_length<P>(message: &Message<P>, payload: usize) -> usize {
    let mut head = Vec::with_capacity(64);
    message.encode_head(payload.min(MOST_PAYLOAD), &mut head);
    head.len()
}
