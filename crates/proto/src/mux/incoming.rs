//! Processing of received messages.

use manyways_unit::Time;

use super::carrier::{Carrier, SentContent};
use super::datagram::ReceiveOutcome;
use super::receive;
use super::stream::{LocalReset, Stream};
use super::{
    CarrierId, Destination, Label, LoanMessage, Message, Mux, Output, Payload, ResetCode, Role,
    StreamId,
};
use crate::ranges::Range;

/// Maximum number of remembered gaps in the stream numbers.
const MAX_STREAM_GAPS: usize = 32_768;
/// Bytes of session credit per stored piece: a piece that waits for earlier bytes has a cost
/// beyond its bytes.
const BYTES_PER_PIECE: u64 = 128;
/// Number of stored pieces that need no credit in addition.
const FREE_PIECES: u64 = 8_192;
/// Minimum number of streams above the limit that are refused one by one.
const MIN_EXCESS_STREAMS: u64 = 256;
/// Maximum distance of a stream number from the largest known one.
const MAX_STREAM_JUMP: u64 = 1 << 20;

impl<P: Payload> Mux<P> {
    pub(super) fn receive(
        &mut self,
        now: Time,
        id: CarrierId,
        message: Message<P>,
    ) -> Result<(), &'static str> {
        let Some(carrier) = self.carrier(id) else { return Ok(()) };
        let path = carrier.path;
        carrier.on_received(now, message.payload().map_or(0, |data| data.len()));
        if message.is_ack_eliciting() {
            carrier.receive(now);
        }
        if matches!(message, Message::Datagram { .. } | Message::Part { .. }) {
            carrier.on_datagram_received(now);
        }
        if message.is_traffic() {
            carrier.on_used(now);
            self.used_paths = self.used_paths.with(path);
            self.last_receiver = Some(id);
        }
        match message {
            Message::Open { stream, label, destination: target, confirm, data } => {
                self.on_open(now, stream, label, target, confirm, data)?;
            }
            Message::Opened { stream } => {
                if self.config.role == Role::Gateway {
                    return Err("it confirmed a stream to the gateway");
                }
                if self.ensure_stream(stream)? {
                    self.on_opened(stream);
                }
            }
            Message::Data { stream, offset, fin, data } => {
                if self.ensure_stream(stream)? {
                    self.on_data(now, stream, offset, fin, data)?;
                }
            }
            Message::Reset { stream, code, end } => {
                if self.ensure_stream(stream)? {
                    self.on_reset(stream, code, end)?;
                }
            }
            Message::StreamCredit { stream, max_offset: most } => {
                let was = self.edit(stream, |stream| {
                    stream.send.grant(most);
                    stream.queue_key.is_some() || stream.send.is_ready()
                });
                if was == Some(true) {
                    self.notify_writable(stream);
                }
            }
            Message::Credit { max_total: most } => {
                self.send_credit = self.send_credit.max(most);
            }
            Message::Ack { count } => self.on_ack(now, (id, id), count)?,
            Message::AckOf { join, count } => {
                if let Some(carrier) = self.lent_carrier(join) {
                    carrier.on_alive(now);
                    let of = carrier.id;
                    self.on_ack(now, (of, id), count)?;
                }
            }
            Message::DatagramsOf { join, count } => {
                if let Some(carrier) = self.lent_carrier(join)
                    && !carrier.on_datagram_report(now, count)
                {
                    return Err("it received datagrams that were never sent");
                }
            }
            Message::Loan(message) => {
                let is_expected = matches!(
                    (&message, self.config.role),
                    (LoanMessage::Request { .. }, Role::Gateway)
                        | (
                            LoanMessage::Ticket { .. }
                                | LoanMessage::Refused { .. }
                                | LoanMessage::Forged { .. },
                            Role::Client
                        )
                );
                if !is_expected {
                    return Err("it spoke of a loan out of turn");
                }
                self.outputs.push_back(Output::Loan(message));
            }
            Message::Recalled { first, last } => {
                if let Some(carrier) = self.carrier(id) {
                    carrier.permit_drop(first, last)?;
                }
            }
            Message::Relabel(label) => self.on_relabel(label)?,
            Message::Datagram { flow, number, label, peer, data } => {
                match self.datagrams.receive(path, flow, label, number) {
                    ReceiveOutcome::Deliver => {
                        self.outputs.push_back(Output::Datagram { flow, label, peer, data });
                    }
                    ReceiveOutcome::Duplicate => {}
                    ReceiveOutcome::Refused => self.counters.dropped += 1,
                }
            }
            Message::Part { flow, number, index, count, label, peer, data } => {
                let part = (index, count);
                let whole = self.datagrams.receive_part(path, flow, label, number, part, data);
                if let Some(data) = whole {
                    self.outputs.push_back(Output::Datagram { flow, label, peer, data });
                }
            }
            Message::Assign { stream, label, revision } => {
                if self.config.role == Role::Client {
                    return Err("it gave the client a label");
                }
                if self.ensure_stream(stream)? {
                    self.edit(stream, |stream| {
                        if revision > stream.revision {
                            (stream.label, stream.revision) = (label, revision);
                        }
                    });
                    self.requeue_control(stream);
                    self.restart_checks();
                }
            }
            Message::CloseFlow { flow } => {
                if self.datagrams.close(flow).is_some() {
                    self.outputs.push_back(Output::CloseFlow { flow });
                }
            }
            Message::PathDown { path } => self.outputs.push_back(Output::PathDown { path }),
            Message::Ping { number } => {
                if let Some(carrier) = self.carrier(id) {
                    carrier.pong = Some(number);
                }
            }
            Message::Pong { .. } => {}
            Message::Bye => self.outputs.push_back(Output::Bye),
            Message::Hello(_) | Message::Welcome(_) | Message::Refuse(..) => {
                return Err("it greeted twice");
            }
        }
        Ok(())
    }

    /// Returns whether the stream of a message exists. A new one is created; `false` if it was
    /// closed.
    pub(super) fn ensure_stream(&mut self, id: StreamId) -> Result<bool, &'static str> {
        if self.streams.contains_key(&id) {
            return Ok(true);
        }
        if self.opened_streams.covers(Range::new(id.0, id.0.saturating_add(1))) {
            return Ok(false);
        }
        if self.config.role == Role::Client {
            return Err("it spoke of a stream that was never opened");
        }
        if id.0 > self.opened_streams.end() + MAX_STREAM_JUMP {
            return Err("its stream numbers are not in order");
        }
        self.opened_streams.insert(Range::new(id.0, id.0 + 1));
        if self.opened_streams.count() > MAX_STREAM_GAPS {
            // The streams of the oldest gap count as closed. A client that abandons streams before
            // it opens them leaves these gaps.
            let end = self.opened_streams.iter().nth(1).map_or(0, |range| range.end);
            self.opened_streams.insert(Range::new(0, end));
        }
        // Above the limit, the stream is created and refused when it is opened, because a client
        // can open many streams before it receives the first refusal. A peer that exceeds the limit
        // further violates the protocol.
        let max = self.config.streams.saturating_add(self.config.streams.max(MIN_EXCESS_STREAMS));
        if self.streams.len() as u64 >= max {
            return Err("it opened far more streams than allowed");
        }
        let window = self.config.stream_credit;
        self.streams.insert(id, Stream::new(0, self.peer_stream_credit, window));
        Ok(true)
    }

    pub(super) fn on_open(
        &mut self,
        now: Time,
        id: StreamId,
        label: Label,
        target: Destination,
        confirm: bool,
        data: P,
    ) -> Result<(), &'static str> {
        if self.config.role == Role::Client {
            return Err("it opened a stream to the client");
        }
        self.on_relabel(label)?;
        if !self.ensure_stream(id)? {
            self.counters.received += data.len() as u64;
            self.counters.duplicate += data.len() as u64;
            return Ok(());
        }
        let over = self.streams.len() as u64 > self.config.streams;
        let first = self.edit(id, |stream| {
            if stream.revision == 0 {
                stream.label = label.id;
            }
            stream.confirms |= confirm;
            !std::mem::replace(&mut stream.is_open, true) && stream.reset.is_none()
        });
        self.requeue_control(id);
        if first == Some(true) {
            if over {
                self.reset(id, ResetCode::Limit);
                self.outputs.push_back(Output::StreamRefused);
            } else {
                self.outputs.push_back(Output::Open {
                    stream: id,
                    label: label.id,
                    destination: target,
                });
            }
        }
        self.on_data(now, id, 0, false, data)
    }

    /// Reports the first confirmation of a stream.
    fn on_opened(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if std::mem::take(&mut stream.confirms) && stream.reset.is_none() {
            self.outputs.push_back(Output::Opened { stream: id });
        }
    }

    pub(super) fn on_data(
        &mut self,
        now: Time,
        id: StreamId,
        offset: u64,
        fin: bool,
        data: P,
    ) -> Result<(), &'static str> {
        self.counters.received += data.len() as u64;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let past = offset.saturating_add(data.len() as u64);
        // Before the data is stored: a peer that ignores its credit must not fill the memory.
        if self.receive_credit_used.saturating_add(stream.receive.credit_needed(past))
            > self.receive_credit
        {
            return Err("it sent more in all than it may");
        }
        if self.pieces as u64 > FREE_PIECES + self.config.credit / BYTES_PER_PIECE {
            return Err("it sent bytes in too many pieces without those before them");
        }
        let before = stream.receive.piece_count();
        let received =
            stream.receive.receive(offset, data, fin).map_err(|violation| match violation {
                receive::ProtocolViolation::FlowControl => "it sent more on a stream than it may",
                receive::ProtocolViolation::FinalSize => "it sent bytes past the end of a stream",
            })?;
        self.counters.duplicate += received.duplicate;
        self.receive_credit_used += received.credit_used;
        if stream.is_open {
            while let Some(data) = stream.receive.deliver() {
                self.outputs.push_back(Output::Data { stream: id, data });
            }
            if stream.receive.take_end() {
                self.outputs.push_back(Output::Finished { stream: id });
            }
        }
        self.pieces = (self.pieces + stream.receive.piece_count()).saturating_sub(before);
        self.on_grant_used(now, id);
        self.release_credit(received.discarded);
        self.close_if_done(id);
        Ok(())
    }

    pub(super) fn on_reset(
        &mut self,
        id: StreamId,
        code: ResetCode,
        end: u64,
    ) -> Result<(), &'static str> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let fresh = match stream.receive.has_final_size() {
            // The peer had finished its direction, and now ends the other one.
            true => 0,
            false
                if self.receive_credit_used.saturating_add(stream.receive.credit_needed(end))
                    > self.receive_credit =>
            {
                return Err("it sent more in all than it may");
            }
            false => {
                stream.receive.on_reset(end).map_err(|_| "its reset does not fit its bytes")?
            }
        };
        self.pieces -= stream.receive.piece_count().min(self.pieces);
        let remaining = stream.receive.discard();
        let answer = stream.reset.is_none() && !stream.send.is_done();
        let tell = stream.reset.is_none() && stream.is_open;
        self.receive_credit_used += fresh;
        self.update_lease(id);
        self.release_credit(fresh + remaining);
        if tell {
            self.outputs.push_back(Output::Reset { stream: id, code });
        }
        if answer {
            self.reset(id, ResetCode::Aborted);
        } else if let Some(stream) = self.streams.get_mut(&id)
            && stream.reset.is_none()
        {
            stream.reset = Some(LocalReset { code, is_acked: true });
        }
        self.close_if_done(id);
        Ok(())
    }

    pub(super) fn on_relabel(&mut self, label: Label) -> Result<(), &'static str> {
        if self.config.role == Role::Client {
            return Err("it gave the client a label");
        }
        let entry = self.labels.entry(label.id).or_insert((0, label.stream_policy));
        if label.version >= entry.0 && *entry != (label.version, label.stream_policy) {
            *entry = (label.version, label.stream_policy);
            self.restart_checks();
        }
        Ok(())
    }

    /// Processes that a lender has dropped the next message. Returns whether it was recalled.
    pub(super) fn on_dropped(&mut self, now: Time, id: CarrierId) -> bool {
        let Some(carrier) = self.carrier(id) else { return true };
        if !carrier.may_drop() {
            return false;
        }
        carrier.on_alive(now);
        carrier.receive(now);
        true
    }

    /// Returns the carrier of a loan.
    fn lent_carrier(&mut self, join: u32) -> Option<&mut Carrier> {
        let is_of =
            |carrier: &&mut Carrier| carrier.loan.as_ref().is_some_and(|loan| loan.join == join);
        self.carriers.iter_mut().find(is_of)
    }

    /// Processes the ACK of messages of the carrier `id`, which came over the carrier `via`.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        (id, via): (CarrierId, CarrierId),
        count: u64,
    ) -> Result<(), &'static str> {
        let Some(at) = self.carriers.iter().position(|carrier| carrier.id == id) else {
            return Ok(());
        };
        let count = self.carriers[at]
            .on_ack(now, count)
            .ok_or("it acknowledged data that was never sent")?;
        let (mut acked, mut last) = (0, (0, now));
        for _ in 0..count {
            let Some(sent) = self.carriers[at].take_oldest() else { break };
            if sent.is_recalled {
                continue;
            }
            let bytes = sent.content.bytes();
            acked += bytes;
            if bytes > 0 {
                last = (bytes, sent.sent_at);
            }
            match sent.content {
                SentContent::Open { stream, length } => {
                    self.edit(stream, |stream| {
                        stream.pending_open = None;
                        stream.send.on_ack(Range::new(0, length), false);
                    });
                    self.notify_writable(stream);
                    self.close_if_done(stream);
                }
                SentContent::Data { stream, range, fin } => {
                    if sent.is_reinjected {
                        self.counters.spurious += range.len();
                    }
                    self.edit(stream, |stream| stream.send.on_ack(range, fin));
                    self.notify_writable(stream);
                    self.close_if_done(stream);
                }
                SentContent::Reset { stream } => {
                    if let Some(Stream { reset: Some(reset), .. }) = self.streams.get_mut(&stream) {
                        reset.is_acked = true;
                        self.close_if_done(stream);
                    }
                }
                _ => {}
            }
        }
        if acked > 0 {
            let other = self.carriers.iter().find(|carrier| carrier.id == via && via != id);
            let back = other.map(Carrier::shortest_delivery);
            self.carriers[at].on_bytes_acked(now, acked, last, back);
        }
        Ok(())
    }
}
