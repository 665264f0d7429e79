//! Selection of the next message to send.

use std::cmp::Ordering;

use manyways_unit::{Size, Time};

use super::carrier::{Carrier, SentContent};
use super::class_queue::QueueKey;
use super::message::MAX_DATA_HEADER;
use super::queue::MAX_SCANNED_STREAMS;
use super::send::Piece;
use super::stream::{PendingCopy, PendingOpen};
use super::{CarrierId, Feedback, Label, MAX_PAYLOAD, Message, Mux, Payload, Role, StreamId};
use crate::ranges::{Range, Ranges};
use crate::sched::{Assignment, PathSet, PathView, SchedulerKind, SendRequest, StreamPolicy};

/// Maximum number of bytes by which streams are ahead of datagrams of the same priority.
const MAX_STREAM_LEAD: i64 = 16 << 10;

impl<P: Payload> Mux<P> {
    /// Returns the next message and its carrier, or `None` if no message can be sent.
    pub(super) fn transmit(&mut self, now: Time) -> Option<(CarrierId, Message<P>)> {
        // The waits are found again below, if a carrier accepts anything.
        self.gated_at = None;
        self.datagrams.reset_hold();
        if self.carriers.iter().all(|carrier| carrier.writable_bytes == 0) {
            return None;
        }
        let first = self.next_signal(now).or_else(|| self.next_control(now));
        let first = first.or_else(|| self.datagrams.next_assigned(now, &self.carriers));
        // A datagram makes no debt if the streams had their turn and could not use it.
        let mut makes_debt = true;
        let (at, message) = match first {
            Some(found) => found,
            None if self.prefers_streams() => {
                let piece = self.next_piece(now);
                makes_debt = piece.is_some();
                piece.or_else(|| self.next_datagram(now))?
            }
            None => self.next_datagram(now).or_else(|| self.next_piece(now))?,
        };
        if makes_debt {
            self.update_debt(&message);
        }
        let payload = message.payload().map_or(0, Payload::len);
        let carrier = &mut self.carriers[at];
        let head = head_length(&message, payload);
        carrier.on_submitted(now, head + payload);
        if matches!(message, Message::Datagram { .. } | Message::Part { .. }) {
            carrier.on_datagram_sent(now);
        }
        if message.is_traffic() {
            carrier.on_used(now);
            self.used_paths = self.used_paths.with(carrier.path);
        }
        self.counters.headers += head as u64;
        Some((carrier.id, message))
    }

    /// Returns whether streams are served before datagrams: if their priority is higher, or if it
    /// is equal and datagrams have sent more than half of the bytes.
    fn prefers_streams(&self) -> bool {
        let Some(datagrams) = self.datagrams.priority(|label| Some(self.label_policy(label)))
        else {
            return true;
        };
        let streams = self.ready.heads();
        let streams = streams.map(|key| self.label_policy(key.class as u8).priority).max();
        streams.is_some_and(|streams| match streams.cmp(&datagrams) {
            Ordering::Less => false,
            Ordering::Equal => self.debt > 0,
            Ordering::Greater => true,
        })
    }

    /// Accounts for the bytes of a message: datagrams get into debt while streams wait.
    fn update_debt(&mut self, message: &Message<P>) {
        let Some(payload) = message.payload() else { return };
        let bytes = payload.len() as i64;
        match message {
            Message::Datagram { .. } | Message::Part { .. } if self.ready.is_empty() => {}
            Message::Datagram { .. } | Message::Part { .. } => self.debt += bytes,
            _ => self.debt = (self.debt - bytes).max(-MAX_STREAM_LEAD),
        }
    }

    /// Returns the next ACK, ping or pong.
    pub(super) fn next_signal(&mut self, now: Time) -> Option<(usize, Message<P>)> {
        if !self.loan_messages.is_empty()
            && let Some(at) = self.fastest_carrier(now, PathSet::ALL)
            && let Some(message) = self.loan_messages.pop_front()
        {
            return Some((at, Message::Loan(message)));
        }
        let sends_probes = self.sends_probes();
        for at in 0..self.carriers.len() {
            let ack = self.next_ack(now, at).or_else(|| self.next_report(now, at));
            if ack.is_some() {
                return ack;
            }
            let carrier = &mut self.carriers[at];
            if carrier.writable_bytes == 0 {
                continue;
            }
            if let Some(number) = carrier.pong.take() {
                return Some((at, Message::Pong { number }));
            }
            let is_probe_due = carrier.probe_due_at().is_some_and(|at| at <= now) && sends_probes;
            if is_probe_due {
                carrier.on_probe_sent(now);
            }
            if std::mem::take(&mut carrier.needs_ping) || is_probe_due {
                return Some((at, Message::Ping { number: 0 }));
            }
        }
        None
    }

    /// Returns the ACK of the messages of the carrier at `at`, if one is due, and the carrier for it.
    fn next_ack(&mut self, now: Time, at: usize) -> Option<(usize, Message<P>)> {
        let carrier = &self.carriers[at];
        carrier.ack_at.filter(|due| *due <= now)?;
        let join = carrier.loan.as_ref().map(|loan| loan.join);
        let via = self.feedback_carrier(carrier)?;
        let count = self.carriers[at].take_ack(now)?;
        match join.filter(|_| self.carriers[via].id != self.carriers[at].id) {
            Some(join) => Some((via, Message::AckOf { join, count })),
            None => Some((via, Message::Ack { count })),
        }
    }

    /// Returns the report of the datagrams of the carrier at `at`, if one is due, and the carrier for
    /// it.
    fn next_report(&mut self, now: Time, at: usize) -> Option<(usize, Message<P>)> {
        let carrier = &self.carriers[at];
        carrier.report_at().filter(|due| *due <= now)?;
        let via = self.feedback_carrier(carrier)?;
        let loan = self.carriers[at].loan.as_mut()?;
        Some((via, Message::DatagramsOf { join: loan.join, count: loan.passage.take_report() }))
    }

    /// Returns the carrier for the ACKs of messages of `carrier`, if it has room.
    pub(super) fn feedback_carrier(&self, carrier: &Carrier) -> Option<usize> {
        let with_room = |at: &usize| self.carriers[*at].writable_bytes > 0;
        let is_elsewhere = carrier.loan.is_some()
            && self.config.role == Role::Client
            && self.config.feedback == Feedback::Flexible;
        if is_elsewhere {
            let direct = |at: &usize| {
                let other = &self.carriers[*at];
                other.loan.is_none() && !other.is_avoided()
            };
            let mut direct = (0..self.carriers.len()).filter(direct).peekable();
            if direct.peek().is_some() {
                return direct
                    .filter(with_room)
                    .min_by_key(|at| self.carriers[*at].transport_info.rtt);
            }
        }
        self.carriers.iter().position(|own| own.id == carrier.id).filter(with_room)
    }

    pub(super) fn next_datagram(&mut self, now: Time) -> Option<(usize, Message<P>)> {
        let labels = &self.labels;
        // Only the client knows that an undefined label has the default policy.
        let unknown = (self.config.role == Role::Client).then(StreamPolicy::default);
        let policy = |label: u8| labels.get(&label).map(|(_, t)| *t).or(unknown);
        let carriers = &self.carriers;
        let next = self.datagrams.next(now, carriers, &mut self.schedulers, policy);
        self.counters.dropped += self.datagrams.take_dropped();
        let next = next?;
        for at in next.yields.into_iter().flatten() {
            self.carriers[at].on_call(now, next.priority);
        }
        Some((next.at, next.message))
    }

    pub(super) fn next_piece(&mut self, now: Time) -> Option<(usize, Message<P>)> {
        self.unblock();
        let all_avoided = self.carriers.iter().all(|carrier| carrier.is_avoided());
        for QueueKey { class, .. } in self.queue_heads(&self.ready) {
            let policy = self.label_policy(class as u8);
            let mut usable: Vec<(usize, PathView)> = Vec::with_capacity(self.carriers.len());
            for (at, carrier) in self.carriers.iter_mut().enumerate() {
                if policy.paths.contains(carrier.path) && (all_avoided || !carrier.is_avoided()) {
                    let view = carrier.bulk_view(now, policy.priority);
                    if !view.is_writable && carrier.writable_bytes > 0 {
                        carrier.on_bulk_window_full();
                        self.gated_at = Some(now);
                    }
                    usable.push((at, view));
                }
            }
            if usable.iter().all(|(_, view)| !view.is_writable) {
                continue;
            }
            let mut from = QueueKey { class, sequence: 0 };
            for _ in 0..MAX_SCANNED_STREAMS {
                let Some((place, id)) = self.ready.at_or_after(from) else { break };
                let id = *id;
                from = QueueKey { sequence: place.sequence + 1, ..place };
                let found = self.serve_stream(now, id, policy, &usable);
                if found.is_some() {
                    // To the end of the queue: streams are served in turn.
                    self.dequeue(id);
                }
                // The stream may have no data left, or wait for credit.
                self.edit(id, |_| {});
                if found.is_some() {
                    self.notify_writable(id);
                    return found;
                }
            }
        }
        None
    }

    /// Returns the next message of a stream if its scheduler sends one now.
    pub(super) fn serve_stream(
        &mut self,
        now: Time,
        id: StreamId,
        policy: StreamPolicy,
        usable: &[(usize, PathView)],
    ) -> Option<(usize, Message<P>)> {
        if policy.scheduler != SchedulerKind::Redundant
            && let Some(stream) = self.streams.get_mut(&id)
        {
            stream.copies.clear();
        }
        if let Some(copy) = self.serve_copy(now, id, usable) {
            return Some(copy);
        }
        let stream = self.streams.get(&id)?;
        let request = SendRequest {
            backlog: Size::from_bytes(stream.send.backlog()),
            total: Size::from_bytes(self.backlog),
            primary: policy.primary,
        };
        let views: Vec<PathView> = usable.iter().map(|(_, view)| *view).collect();
        let (at, ahead, everywhere) =
            match self.schedulers.choose(policy.scheduler, &request, &views) {
                Assignment::Wait => return None,
                Assignment::Send { index: at, ahead } => (at, ahead, false),
                Assignment::SendOnAll => {
                    let first = views.iter().enumerate().filter(|(_, view)| view.is_writable);
                    (first.min_by_key(|(_, view)| view.delivery_time())?.0, 0, true)
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
        let room = carrier.writable_bytes.saturating_sub(MAX_DATA_HEADER).max(1_400);
        let max = carrier.max_payload().min(room);
        let fresh = self.send_credit.saturating_sub(self.send_credit_used);
        let label = self.label(self.streams.get(&id)?.label);
        // The first message contains the target and the first bytes.
        let opens = self.streams.get(&id).and_then(|stream| stream.pending_open.as_ref());
        if let Some(PendingOpen { destination: target, is_in_flight: false, .. }) = opens {
            let target = target.clone();
            let confirm = self.streams.get(&id)?.confirms;
            let taken = self.edit(id, |stream| {
                if let Some(open) = &mut stream.pending_open {
                    (open.is_in_flight, open.was_sent) = (true, true);
                }
                let piece = stream.send.take_first(max, fresh);
                (piece, stream.send.bytes(piece.range))
            });
            let (piece, data) = taken?;
            self.send_credit_used += piece.credit_used;
            let length = piece.range.len();
            self.count_sent(length);
            self.carriers[at].record_sent(now, SentContent::Open { stream: id, length });
            self.add_copies(id, piece.range, true, false, others);
            let destination = target;
            return Some((at, Message::Open { stream: id, label, destination, confirm, data }));
        }
        let taken = self.edit(id, |stream| {
            let piece = stream.send.take(ahead, max, fresh)?;
            Some((piece, stream.send.bytes(piece.range)))
        });
        let (piece, data) = taken??;
        self.send_credit_used += piece.credit_used;
        self.count_sent(piece.range.len());
        self.add_copies(id, piece.range, false, piece.fin, others);
        let (offset, fin) = (piece.range.start, piece.fin);
        self.carriers[at]
            .record_sent(now, SentContent::Data { stream: id, range: piece.range, fin });
        Some((at, Message::Data { stream: id, offset, fin, data }))
    }

    pub(super) fn count_sent(&mut self, bytes: u64) {
        self.counters.sent += bytes;
        let max = self.config.max_reinjection_budget.cast_signed();
        self.reinjection_budget = (self.reinjection_budget + (bytes / 20).cast_signed()).min(max);
    }

    pub(super) fn add_copies(
        &mut self,
        id: StreamId,
        range: Range,
        opens: bool,
        fin: bool,
        others: &[CarrierId],
    ) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        for carrier in others.iter().copied() {
            let known = stream.copies.iter().position(|owed| owed.carrier == carrier);
            let at = known.unwrap_or_else(|| {
                let bytes = Ranges::new();
                stream.copies.push(PendingCopy {
                    carrier,
                    bytes,
                    includes_open: false,
                    fin: false,
                });
                stream.copies.len() - 1
            });
            let owed = &mut stream.copies[at];
            owed.bytes.insert(range);
            (owed.includes_open, owed.fin) = (owed.includes_open || opens, owed.fin || fin);
        }
    }

    /// Returns a copy of bytes that were already sent over another carrier.
    pub(super) fn serve_copy(
        &mut self,
        now: Time,
        id: StreamId,
        usable: &[(usize, PathView)],
    ) -> Option<(usize, Message<P>)> {
        let stream = self.streams.get_mut(&id)?;
        for (at, view) in usable.iter().filter(|(_, view)| view.is_writable) {
            let carrier = &mut self.carriers[*at];
            debug_assert_eq!(view.path, carrier.path);
            let Some(index) = stream.copies.iter().position(|owed| owed.carrier == carrier.id)
            else {
                continue;
            };
            let owed = &mut stream.copies[index];
            let target = stream
                .pending_open
                .as_ref()
                .filter(|_| owed.includes_open)
                .map(|open| &open.destination);
            owed.includes_open = false;
            let piece = stream.send.next_copy(&owed.bytes, carrier.max_payload());
            let (content, message) = if let Some(target) = target.cloned() {
                let first = piece.map(|piece| piece.range).filter(|range| range.start == 0);
                let range = first.unwrap_or(Range::new(0, 0));
                owed.bytes.remove(range);
                self.counters.sent += range.len();
                let (data, length) = (stream.send.bytes(range), range.len());
                let (version, policy) = self.labels.get(&stream.label).copied().unwrap_or_default();
                let label = Label { id: stream.label, version, stream_policy: policy };
                let content = SentContent::Open { stream: id, length };
                let confirm = stream.confirms;
                (content, Message::Open { stream: id, label, destination: target, confirm, data })
            } else if let Some(Piece { range, fin, .. }) =
                piece.or_else(|| stream.send.fin_copy().filter(|_| owed.fin))
            {
                owed.bytes.remove(Range::new(0, range.end));
                owed.fin &= !fin;
                self.counters.sent += range.len();
                let (data, offset) = (stream.send.bytes(range), range.start);
                let content = SentContent::Data { stream: id, range, fin };
                (content, Message::Data { stream: id, offset, fin, data })
            } else {
                stream.copies.swap_remove(index);
                continue;
            };
            if owed.bytes.is_empty() && !owed.fin {
                stream.copies.swap_remove(index);
            }
            carrier.record_sent(now, content);
            return Some((*at, message));
        }
        None
    }
}

/// Returns the length of a message without its payload.
pub(super) fn head_length<P>(message: &Message<P>, payload: usize) -> usize {
    let mut head = Vec::with_capacity(64);
    message.encode_head(payload.min(MAX_PAYLOAD), &mut head);
    head.len()
}
