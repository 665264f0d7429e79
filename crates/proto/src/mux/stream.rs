//! State of a stream at one endpoint, from its opening until it is removed.

use manyways_unit::{Span, Time};

use super::class_queue::QueueKey;
use super::control::ControlMessage;
use super::receive::ReceiveHalf;
use super::send::SendHalf;
use super::{CarrierId, Destination, Mux, Output, Payload, ResetCode, StreamId};
use crate::ranges::{Range, Ranges};

/// Fraction of the unused credit by which the window of a stream may exceed its base: 1/8.
const WINDOW_DIVISOR: u64 = 8;
/// Time since the last grant or byte for which the unused grant of a stream counts. An idle connection
/// keeps a large window without reserving credit.
const GRANT_LIFETIME: Span = Span::from_secs(1);
/// Interval at which received bytes extend this time.
const USE_INTERVAL: Span = Span::from_millis(250);

#[derive(Debug)]
pub(super) struct Stream<P> {
    pub label: u8,
    /// Number of the label changes; needed because carriers may deliver them in any order.
    pub revision: u32,
    /// State of the `Open` message at the client. `None` if it is acknowledged.
    pub pending_open: Option<PendingOpen>,
    /// Whether this endpoint knows the target: always at a client, after `Open` at a gateway.
    pub is_open: bool,
    /// Whether the client expects a confirmation of the connection.
    pub confirms: bool,
    pub send: SendHalf<P>,
    pub receive: ReceiveHalf<P>,
    /// Bytes of the session's leases that belong to this stream.
    pub leased: u64,
    /// Number of recent grants, and of recent bytes at intervals of [`USE_INTERVAL`].
    pub grants: u32,
    /// When received bytes were last counted as such.
    pub used_at: Time,
    /// Place in a queue. `None` if the stream has nothing to send.
    pub queue_key: Option<(Queue, QueueKey)>,
    /// Whether the application must wait before it writes more.
    pub is_write_blocked: bool,
    pub reset: Option<LocalReset>,
    /// Copies that carriers must send, for the `redundant` scheduler.
    pub copies: Vec<PendingCopy>,
}

/// Data that was sent over other carriers and must also be sent over this one.
#[derive(Debug)]
pub(super) struct PendingCopy {
    pub carrier: CarrierId,
    pub bytes: Ranges,
    /// Whether the `Open` message must be sent.
    pub includes_open: bool,
    /// Whether the end of the stream must be sent.
    pub fin: bool,
}

/// Queue of a waiting stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Queue {
    /// Waits for its turn.
    Ready,
    /// Waits for credit of the session.
    Blocked,
}

#[derive(Debug)]
pub(super) struct PendingOpen {
    pub destination: Destination,
    /// Whether the message is in flight.
    pub is_in_flight: bool,
    /// Whether the message was ever sent, so that the peer may know the stream.
    pub was_sent: bool,
}

/// State of this endpoint's reset of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalReset {
    pub code: ResetCode,
    pub is_acked: bool,
}

impl<P: Payload> Stream<P> {
    pub(super) fn new(label: u8, max: u64, window: u64) -> Self {
        Self {
            label,
            revision: 0,
            pending_open: None,
            is_open: false,
            confirms: false,
            send: SendHalf::new(max),
            receive: ReceiveHalf::new(window),
            leased: 0,
            grants: 0,
            used_at: Time::ZERO,
            queue_key: None,
            is_write_blocked: false,
            reset: None,
            copies: Vec::new(),
        }
    }

    /// Returns the queue of the stream, or `None` if it has nothing to send that its credit
    /// permits.
    pub(super) fn queue(&self, session_has_credit: bool) -> Option<Queue> {
        let opens = self.pending_open.as_ref().is_some_and(|open| !open.is_in_flight);
        if opens || !self.copies.is_empty() || self.send.is_ready_without_credit() {
            return Some(Queue::Ready);
        }
        let queue = if session_has_credit { Queue::Ready } else { Queue::Blocked };
        self.send.is_ready().then_some(queue)
    }
}

impl<P: Payload> Mux<P> {
    pub(super) fn open(&mut self, id: StreamId, label: u8, target: Destination, confirm: bool) {
        let mut stream = Stream::new(label, self.peer_stream_credit, self.config.stream_credit);
        stream.pending_open =
            Some(PendingOpen { destination: target, is_in_flight: false, was_sent: false });
        stream.is_open = true;
        stream.confirms = confirm;
        self.opened_streams.insert(Range::new(id.0, id.0 + 1));
        self.streams.insert(id, stream);
        self.edit(id, |_| {});
    }

    /// Changes a stream, and then updates its queue and the counters of the session.
    pub(super) fn edit<R>(
        &mut self,
        id: StreamId,
        change: impl FnOnce(&mut Stream<P>) -> R,
    ) -> Option<R> {
        let stream = self.streams.get_mut(&id)?;
        let before = (stream.send.backlog(), stream.send.unacked_bytes());
        let result = change(stream);
        let after = (stream.send.backlog(), stream.send.unacked_bytes());
        self.backlog = (self.backlog + after.0).saturating_sub(before.0);
        self.unacked_bytes = (self.unacked_bytes + after.1).saturating_sub(before.1);
        let class = u16::from(stream.label);
        let queue = stream.queue(self.send_credit > self.send_credit_used);
        if stream.queue_key.map(|(queue, key)| (queue, key.class)) != queue.map(|q| (q, class)) {
            self.dequeue(id);
            self.enqueue(id, queue);
        }
        Some(result)
    }

    pub(super) fn reset(&mut self, id: StreamId, code: ResetCode) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.reset.is_some() {
            return;
        }
        self.pieces -= stream.receive.piece_count().min(self.pieces);
        let remaining = stream.receive.discard();
        stream.copies.clear();
        self.update_lease(id);
        // The application that ended the stream needs no more outputs for it.
        self.outputs.retain(|output| match output {
            Output::Open { stream, .. }
            | Output::Opened { stream }
            | Output::Data { stream, .. }
            | Output::Finished { stream }
            | Output::Writable { stream } => *stream != id,
            _ => true,
        });
        let Some(stream) = self.streams.get(&id) else { return };
        // A stream that was never announced to the peer ends here.
        let unheard = stream.pending_open.as_ref().is_some_and(|open| !open.was_sent);
        self.edit(id, |stream| {
            stream.reset = Some(LocalReset { code, is_acked: unheard });
            stream.pending_open = None;
            stream.send.abandon();
        });
        self.release_credit(remaining);
        if unheard {
            self.remove(id);
        } else {
            self.queue_control(ControlMessage::Reset(id));
            self.close_if_done(id);
        }
    }

    pub(super) fn consume(&mut self, now: Time, id: StreamId, bytes: u64) {
        let round_trip = self.max_rtt();
        self.expire_grants(now);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let more = stream.receive.consume(bytes);
        // A paused reader keeps its grants. Half of the session's credit is for these leases, the
        // other half for the base windows. Each stream gets a fraction of the unused leases, so
        // that some remain for others.
        let free = (self.config.credit / 2).saturating_sub(self.leased - stream.leased);
        let largest =
            (self.config.stream_credit + free / WINDOW_DIVISOR).min(self.config.max_stream_credit);
        let granted = stream.receive.grant(now, round_trip, largest).is_some();
        if granted {
            stream.grants += 1;
            self.grants.push_back((now, id));
            self.queue_control(ControlMessage::StreamCredit(id));
        }
        self.update_lease(id);
        self.release_credit(more);
        self.close_if_done(id);
    }

    /// Records that a stream uses its grant.
    pub(super) fn on_grant_used(&mut self, now: Time, id: StreamId) {
        self.expire_grants(now);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if now.since(stream.used_at) >= USE_INTERVAL {
            stream.used_at = now;
            stream.grants += 1;
            self.grants.push_back((now, id));
        }
        self.update_lease(id);
    }

    fn expire_grants(&mut self, now: Time) {
        while let Some((granted, id)) = self.grants.front().copied()
            && now.since(granted) >= GRANT_LIFETIME
        {
            self.grants.pop_front();
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.grants -= 1;
            }
            self.update_lease(id);
        }
    }

    /// Updates the sum of leases after a change of the receive half.
    pub(super) fn update_lease(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let lease = stream.receive.lease(stream.grants > 0);
        self.leased = self.leased - std::mem::replace(&mut stream.leased, lease) + lease;
    }

    /// Releases consumed credit of the session.
    pub(super) fn release_credit(&mut self, bytes: u64) {
        self.consumed += bytes;
        if self.consumed + self.config.credit - self.receive_credit >= self.config.credit / 8 {
            self.receive_credit = self.consumed + self.config.credit;
            self.queue_control(ControlMessage::Credit);
        }
    }

    /// Returns the longest RTT of all carriers.
    pub(super) fn max_rtt(&self) -> Span {
        self.carriers.iter().map(|carrier| carrier.transport_info.rtt).max().unwrap_or_default()
    }

    pub(super) fn close_if_done(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        let sent = match &stream.reset {
            Some(reset) => reset.is_acked,
            None => stream.send.is_done(),
        };
        if sent && stream.receive.is_done() && stream.pending_open.is_none() {
            self.remove(id);
        }
    }

    pub(super) fn remove(&mut self, id: StreamId) {
        self.edit(id, |stream| stream.send.abandon());
        self.dequeue(id);
        if let Some(stream) = self.streams.remove(&id) {
            self.leased -= stream.leased;
            self.requeue_control(id);
            self.outputs.push_back(Output::Closed { stream: id });
        }
    }
}
