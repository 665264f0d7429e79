//! Processing of received messages.

use manyways_unit::Time;

use super::carrier::What;
use super::datagram::Verdict;
use super::receive;
use super::stream::{Reset, Stream};
use super::{CarrierId, Label, Message, Mux, Output, Payload, ResetCode, Role, StreamId, Target};
use crate::ranges::Range;

/// Maximum number of remembered gaps in the stream numbers.
const MOST_GAPS: usize = 32_768;
/// Bytes of session credit per stored piece: a piece that waits for earlier bytes has a cost
/// beyond its bytes.
const BYTES_A_PIECE: u64 = 128;
/// Number of stored pieces that need no credit in addition.
const FREE_PIECES: u64 = 1_024;
/// Minimum number of streams above the limit that are refused one by one.
const SLACK: u64 = 256;
/// Maximum distance of a stream number from the largest known one.
const MOST_AHEAD: u64 = 1 << 20;

impl<P: Payload> Mux<P> {
    pub(super) fn receive(
        &mut self,
        now: Time,
        id: CarrierId,
        message: Message<P>,
    ) -> Result<(), &'static str> {
        let Some(carrier) = self.carrier(id) else { return Ok(()) };
        let path = carrier.path;
        carrier.lives(now);
        if message.counts() {
            carrier.receive(now);
        }
        if message.is_traffic() {
            self.recent = Some(id);
        }
        match message {
            Message::Open { stream, label, target, data } => {
                self.opened(stream, label, target, data)?;
            }
            Message::Data { stream, offset, fin, data } => {
                if self.expect(stream)? {
                    self.piece(stream, offset, fin, data)?;
                }
            }
            Message::Reset { stream, code, end } => {
                if self.expect(stream)? {
                    self.was_reset(stream, code, end)?;
                }
            }
            Message::StreamCredit { stream, most } => {
                let was = self.edit(stream, |stream| {
                    stream.send.grant(most);
                    stream.place.is_some() || stream.send.is_ready()
                });
                if was == Some(true) {
                    self.tell_hungry(stream);
                }
            }
            Message::Credit { most } => {
                self.granted = self.granted.max(most);
            }
            Message::Ack { count } => self.acknowledged(id, count)?,
            Message::Relabel(label) => self.relabel(label)?,
            Message::Datagram { flow, number, label, peer, data } => {
                match self.datagrams.receive(path, flow, label, number) {
                    Verdict::Deliver => {
                        self.outputs.push_back(Output::Datagram { flow, label, peer, data });
                    }
                    Verdict::Repeated => {}
                    Verdict::Refused => self.counters.dropped += 1,
                }
            }
            Message::Half { flow, number, second, label, peer, data } => {
                let whole = self.datagrams.receive_half(path, flow, label, number, second, data);
                if let Some(data) = whole {
                    self.outputs.push_back(Output::Datagram { flow, label, peer, data });
                }
            }
            Message::Assign { stream, label, revision } => {
                if self.config.role == Role::Client {
                    return Err("it gave the client a label");
                }
                if self.expect(stream)? {
                    self.edit(stream, |stream| {
                        if revision > stream.revision {
                            (stream.label, stream.revision) = (label, revision);
                        }
                    });
                    self.review_notices(stream);
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
    pub(super) fn expect(&mut self, id: StreamId) -> Result<bool, &'static str> {
        if self.streams.contains_key(&id) {
            return Ok(true);
        }
        if self.known.covers(Range::new(id.0, id.0.saturating_add(1))) {
            return Ok(false);
        }
        if self.config.role == Role::Client {
            return Err("it spoke of a stream that was never opened");
        }
        if id.0 > self.known.end() + MOST_AHEAD {
            return Err("its stream numbers are not in order");
        }
        self.known.insert(Range::new(id.0, id.0 + 1));
        if self.known.count() > MOST_GAPS {
            // The streams of the oldest gap count as closed. A client that abandons streams before
            // it opens them leaves these gaps.
            let end = self.known.iter().nth(1).map_or(0, |range| range.end);
            self.known.insert(Range::new(0, end));
        }
        // Above the limit, the stream is created and refused when it is opened, because a client
        // can open many streams before it receives the first refusal. A peer that exceeds the limit
        // further violates the protocol.
        let most = self.config.streams.saturating_add(self.config.streams.max(SLACK));
        if self.streams.len() as u64 >= most {
            return Err("it opened far more streams than allowed");
        }
        let window = self.config.stream_credit;
        self.streams.insert(id, Stream::new(0, self.peer_stream_credit, window));
        Ok(true)
    }

    pub(super) fn opened(
        &mut self,
        id: StreamId,
        label: Label,
        target: Target,
        data: P,
    ) -> Result<(), &'static str> {
        if self.config.role == Role::Client {
            return Err("it opened a stream to the client");
        }
        self.relabel(label)?;
        if !self.expect(id)? {
            self.counters.repeated += data.len() as u64;
            return Ok(());
        }
        let over = self.streams.len() as u64 > self.config.streams;
        let first = self.edit(id, |stream| {
            if stream.revision == 0 {
                stream.label = label.id;
            }
            !std::mem::replace(&mut stream.is_open, true) && stream.reset.is_none()
        });
        self.review_notices(id);
        if first == Some(true) {
            if over {
                self.reset(id, ResetCode::Limit);
            } else {
                self.outputs.push_back(Output::Open { stream: id, label: label.id, target });
            }
        }
        self.piece(id, 0, false, data)
    }

    pub(super) fn piece(
        &mut self,
        id: StreamId,
        offset: u64,
        fin: bool,
        data: P,
    ) -> Result<(), &'static str> {
        self.counters.received += data.len() as u64;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let past = offset.saturating_add(data.len() as u64);
        // Before the data is stored: a peer that ignores its credit must not fill the memory.
        if self.fresh.saturating_add(stream.receive.beyond(past)) > self.most {
            return Err("it sent more in all than it may");
        }
        if self.pieces as u64 > FREE_PIECES + self.config.credit / BYTES_A_PIECE {
            return Err("it sent bytes in too many pieces without those before them");
        }
        let before = stream.receive.pieces();
        let brought = stream.receive.receive(offset, data, fin).map_err(|breach| match breach {
            receive::Breach::Credit => "it sent more on a stream than it may",
            receive::Breach::End => "it sent bytes past the end of a stream",
        })?;
        self.counters.repeated += brought.repeated;
        self.fresh += brought.fresh;
        if stream.is_open {
            while let Some(data) = stream.receive.deliver() {
                self.outputs.push_back(Output::Data { stream: id, data });
            }
            if stream.receive.reached_end() {
                self.outputs.push_back(Output::Finished { stream: id });
            }
        }
        self.pieces = (self.pieces + stream.receive.pieces()).saturating_sub(before);
        self.settle(id);
        self.spend(brought.discarded);
        self.close_if_done(id);
        Ok(())
    }

    pub(super) fn was_reset(
        &mut self,
        id: StreamId,
        code: ResetCode,
        end: u64,
    ) -> Result<(), &'static str> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let fresh = match stream.receive.has_end() {
            // The peer had finished its direction, and now ends the other one.
            true => 0,
            false if self.fresh.saturating_add(stream.receive.beyond(end)) > self.most => {
                return Err("it sent more in all than it may");
            }
            false => stream.receive.cut(end).map_err(|_| "its reset does not fit its bytes")?,
        };
        self.pieces -= stream.receive.pieces().min(self.pieces);
        let left = stream.receive.discard();
        let answer = stream.reset.is_none() && !stream.send.is_done();
        let tell = stream.reset.is_none() && stream.is_open;
        self.fresh += fresh;
        self.settle(id);
        self.spend(fresh + left);
        if tell {
            self.outputs.push_back(Output::Reset { stream: id, code });
        }
        if answer {
            self.reset(id, ResetCode::Aborted);
        } else if let Some(stream) = self.streams.get_mut(&id)
            && stream.reset.is_none()
        {
            stream.reset = Some(Reset { code, arrived: true });
        }
        self.close_if_done(id);
        Ok(())
    }

    pub(super) fn relabel(&mut self, label: Label) -> Result<(), &'static str> {
        if self.config.role == Role::Client {
            return Err("it gave the client a label");
        }
        let entry = self.labels.entry(label.id).or_insert((0, label.treatment));
        if label.version >= entry.0 && *entry != (label.version, label.treatment) {
            *entry = (label.version, label.treatment);
        }
        Ok(())
    }

    pub(super) fn acknowledged(&mut self, id: CarrierId, count: u64) -> Result<(), &'static str> {
        let Some(at) = self.carriers.iter().position(|carrier| carrier.id == id) else {
            return Ok(());
        };
        let count = self.carriers[at]
            .acknowledged(count)
            .ok_or("it acknowledged data that was never sent")?;
        for _ in 0..count {
            let Some(sent) = self.carriers[at].take_oldest() else { break };
            match sent.what {
                What::Open { stream, length } => {
                    self.edit(stream, |stream| {
                        stream.open = None;
                        stream.send.arrived(Range::new(0, length), false);
                    });
                    self.tell_hungry(stream);
                    self.close_if_done(stream);
                }
                What::Data { stream, range, fin } => {
                    if sent.again {
                        self.counters.spurious += range.len();
                    }
                    self.edit(stream, |stream| stream.send.arrived(range, fin));
                    self.tell_hungry(stream);
                    self.close_if_done(stream);
                }
                What::Reset { stream } => {
                    if let Some(Stream { reset: Some(reset), .. }) = self.streams.get_mut(&stream) {
                        reset.arrived = true;
                        self.close_if_done(stream);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
