//! State of a carrier: unacknowledged messages, accepted bytes, and loss of the connection.

use std::collections::VecDeque;

use manyways_unit::{Rate, Size, Span, Time};

use super::bottleneck::Bottleneck;
use super::flight::Flight;
use super::message::{FlowId, MOST_PAYLOAD, StreamId};
use super::quiet::Quiet;
use crate::ranges::Range;
use crate::sched::{PathId, View};

/// A connection between client and gateway. The shell assigns the number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CarrierId(pub u64);

/// State of the transport under a carrier, as the transport reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Condition {
    /// Smoothed RTT.
    pub rtt: Span,
    /// Minimum RTT of the recent past, or the closest known value.
    pub least_rtt: Span,
    /// Mean deviation of the RTT.
    pub rtt_var: Span,
    pub window: Size,
    /// Whether each acknowledged byte grows the congestion window.
    pub slow_start: bool,
    /// Bytes in flight. `None` if the transport does not report them.
    pub in_flight: Option<Size>,
    /// Bytes in the send buffer that were never sent.
    pub unsent: Size,
    /// Delivery rate: the window per round trip, or a measured rate.
    pub rate: Rate,
    /// All bytes that the peer's transport has acknowledged. Growth shows that the carrier works.
    pub acknowledged: u64,
    /// All bytes that were sent, counted as in `acknowledged`; 0 if unknown.
    pub departed: u64,
    /// Maximum length of a datagram with the header of the mux. `None` on a byte stream.
    pub datagram: Option<usize>,
}

impl Condition {
    /// Creates the assumed condition of a new connection: an initial window of ten segments (RFC
    /// 6928) in `rtt`.
    pub fn fresh(rtt: Span) -> Self {
        let window = Size::from_bytes(10 * 1_448);
        Self {
            rtt,
            least_rtt: rtt,
            rtt_var: Span::from_nanos(rtt.as_nanos() / 2),
            window,
            slow_start: true,
            in_flight: Some(Size::ZERO),
            unsent: Size::ZERO,
            rate: Rate::of(window, rtt.max(Span::from_micros(50))),
            acknowledged: 0,
            departed: 0,
            datagram: None,
        }
    }

    /// Returns the bytes in flight; 0 if unknown.
    pub fn flying(&self) -> Size {
        self.in_flight.unwrap_or_default()
    }
}

/// Content of a sent message, as far as a retransmission over another carrier needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Open { stream: StreamId, length: u64 },
    Data { stream: StreamId, range: Range, fin: bool },
    Reset { stream: StreamId },
    StreamCredit { stream: StreamId },
    Credit,
    Relabel { id: u8 },
    Assign { stream: StreamId },
    CloseFlow { flow: FlowId, label: u8 },
    PathDown { path: PathId },
}

/// A message that the peer has not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub at: Time,
    pub what: What,
    /// Whether the content was also assigned to another carrier because this one stalled.
    pub again: bool,
}

#[derive(Debug)]
pub(super) struct Carrier {
    pub id: CarrierId,
    pub path: PathId,
    /// Bytes that the carrier accepts now.
    pub room: usize,
    pub condition: Condition,
    quiet: Quiet,
    flight: Flight,
    bottleneck: Bottleneck,
    /// Whether to send a ping.
    pub ask: bool,
    /// Bytes that were given to the transport since the last reported condition.
    fed: u64,
    /// Time of the last bytes in `fed`.
    fed_at: Time,
    pub sent: VecDeque<Sent>,
    /// Number of the oldest entries of `sent` that were already checked for reinjection.
    looked_at: usize,
    acked: u64,
    /// Received messages that need an ACK, and how many of them were acknowledged.
    received: u64,
    told: u64,
    pub ack_at: Option<Time>,
    /// Time of the last evidence that the carrier works.
    alive_at: Time,
    /// Time since which the transport waits for an ACK of any bytes. `None` if all are
    /// acknowledged.
    waits_since: Option<Time>,
    /// Time of the last message, sent or received, that needs an ACK.
    pub busy_at: Time,
    /// Whether the carrier has not got through for longer than expected.
    pub suspect: bool,
    /// The value of `suspect` that was last reported to the shell.
    pub told_suspect: bool,
    suspected_at: Time,
    pub pong: Option<u32>,
}

/// Number of unacknowledged messages at which an ACK is sent at once.
const ACK_EVERY: u64 = 16;
/// Maximum delay of an ACK.
const ACK_DELAY: Span = Span::from_millis(10);
/// Maximum delay of a transport's delayed ACK (Linux: 40 to 200 ms).
const DELAYED_ACK: Span = Span::from_millis(200);
/// Minimum time without an ACK before a carrier is suspect. A busy peer responds some milliseconds
/// late.
const LEAST_SUSPICION: Span = Span::from_millis(60);
/// Time in which a message should pass the path, so that other messages can be sent in between.
const MESSAGE_TIME: Span = Span::from_millis(4);
/// Minimum of the message size that `MESSAGE_TIME` allows, in bytes.
const LEAST_MESSAGE: usize = 1_400;

impl Carrier {
    pub(super) fn new(now: Time, id: CarrierId, path: PathId, condition: Condition) -> Self {
        Self {
            id,
            path,
            room: 0,
            condition,
            quiet: Quiet::default(),
            flight: Flight::default(),
            bottleneck: Bottleneck::default(),
            ask: false,
            fed: 0,
            fed_at: now,
            sent: VecDeque::new(),
            looked_at: 0,
            acked: 0,
            received: 0,
            told: 0,
            ack_at: None,
            alive_at: now,
            waits_since: None,
            busy_at: now,
            suspect: false,
            told_suspect: false,
            suspected_at: now,
            pong: None,
        }
    }

    pub(super) fn view(&self, now: Time) -> View {
        let view = self.open_view();
        // Includes the next message that the carrier could get.
        let ahead = view.unsent.as_bytes() + self.most_payload() as u64;
        let opens_in = self.flight.opens_in(now, &self.condition, view.rtt, ahead);
        View { opens_in, ..view }
    }

    /// Returns the view of an open congestion window.
    pub(super) fn open_view(&self) -> View {
        let condition = &self.condition;
        let unsent = condition.unsent + Size::from_bytes(self.fed);
        View {
            path: self.path,
            has_room: self.room > 0,
            rtt: self.quiet.round_trip(condition),
            rtt_var: condition.rtt_var,
            window: condition.window,
            in_flight: condition.flying(),
            unsent,
            rate: condition.rate,
            opens_in: Span::ZERO,
            drains_in: self.bottleneck.drains_in(condition, condition.flying() + unsent),
        }
    }

    pub(super) fn observe(&mut self, now: Time, condition: Condition) {
        if condition.acknowledged > self.condition.acknowledged {
            self.lives(now);
        }
        if self.is_all_acknowledged(now, &condition) {
            self.waits_since = None;
        }
        self.ask |= self.quiet.observe(&self.condition, &condition);
        let trip = self.flight.observe(now, &condition);
        self.bottleneck.observe(now, &self.condition, &condition, trip);
        self.condition = condition;
        self.fed = 0;
    }

    /// Returns whether no sent byte is in flight. If the transport does not report its bytes in
    /// flight, a new ACK counts for all bytes, except for bytes sent less than a quarter of an RTT
    /// ago.
    fn is_all_acknowledged(&self, now: Time, condition: &Condition) -> bool {
        match condition.in_flight {
            _ if !condition.unsent.is_zero() => false,
            Some(in_flight) => in_flight.is_zero(),
            None => {
                let least = Span::from_nanos(condition.rtt.as_nanos() / 4);
                condition.acknowledged > self.condition.acknowledged && self.fed_at + least <= now
            }
        }
    }

    /// Records evidence that the carrier works.
    pub(super) fn lives(&mut self, now: Time) {
        self.alive_at = now;
        self.suspect = false;
    }

    /// Returns the maximum payload of a message in bytes, so that a message does not block others
    /// for long.
    pub(super) fn most_payload(&self) -> usize {
        let turn = self.condition.rate.size_in(MESSAGE_TIME).as_bytes();
        usize::try_from(turn).unwrap_or(MOST_PAYLOAD).clamp(LEAST_MESSAGE, MOST_PAYLOAD)
    }

    /// Records `bytes` given to the transport at `now`.
    pub(super) fn feed(&mut self, now: Time, bytes: usize) {
        self.waits_since.get_or_insert(now);
        self.room = self.room.saturating_sub(bytes);
        self.fed += bytes as u64;
        self.fed_at = now;
        self.flight.feed(now, &self.condition, self.fed);
    }

    pub(super) fn keep(&mut self, now: Time, what: What) {
        self.busy_at = now;
        self.sent.push_back(Sent { at: now, what, again: false });
    }

    /// Returns the oldest message that was neither checked yet nor assigned to another carrier.
    pub(super) fn next_to_save(&mut self) -> Option<What> {
        while self.sent.get(self.looked_at)?.again {
            self.looked_at += 1;
        }
        self.sent.get(self.looked_at).map(|sent| sent.what)
    }

    /// Records the check of that message; `again` if the content was assigned to another carrier.
    pub(super) fn looked_at(&mut self, again: bool) {
        if let Some(sent) = self.sent.get_mut(self.looked_at) {
            sent.again = again;
            self.looked_at += 1;
        }
    }

    /// Restarts the check at the oldest message, because another carrier may accept its content
    /// now.
    pub(super) fn look_again(&mut self) {
        self.looked_at = 0;
    }

    /// Removes the oldest message after its ACK.
    pub(super) fn take_oldest(&mut self) -> Option<Sent> {
        self.looked_at = self.looked_at.saturating_sub(1);
        self.sent.pop_front()
    }

    /// Records a received message that needs an ACK.
    pub(super) fn receive(&mut self, now: Time) {
        self.received += 1;
        self.busy_at = now;
        let at = if self.received - self.told >= ACK_EVERY { now } else { now + ACK_DELAY };
        self.ack_at = Some(self.ack_at.map_or(at, |before| before.min(at)));
    }

    /// Returns the count of received messages if an ACK is due.
    pub(super) fn take_ack(&mut self, now: Time) -> Option<u64> {
        self.ack_at.filter(|at| *at <= now)?;
        self.ack_at = None;
        self.told = self.received;
        Some(self.received)
    }

    /// Returns the number of newly acknowledged messages, or `None` if the count decreased or
    /// exceeds the sent messages.
    pub(super) fn acknowledged(&mut self, count: u64) -> Option<usize> {
        let more = usize::try_from(count.checked_sub(self.acked)?).ok()?;
        if more > self.sent.len() {
            return None;
        }
        self.acked = count;
        Some(more)
    }

    /// Returns when the carrier becomes suspect if no ACK arrives: after the last evidence or the
    /// oldest unacknowledged message, plus the expected response time. The peer's mux does not
    /// acknowledge datagrams and ACKs; its transport does, up to `DELAYED_ACK` later.
    pub(super) fn suspect_at(&self) -> Option<Time> {
        if self.suspect {
            return None;
        }
        let drain = self.condition.rate.time_for(self.condition.unsent).min(Span::from_millis(500));
        let oldest = self.sent.front().map(|sent| sent.at);
        let waits = self.waits_since.map(|since| since.max(self.alive_at) + DELAYED_ACK);
        let since = oldest.map(|at| at.max(self.alive_at)).into_iter().chain(waits).min()?;
        Some(since + self.patience() + drain)
    }

    fn patience(&self) -> Span {
        let patience = self.condition.rtt + self.condition.rtt_var * 4 + ACK_DELAY;
        patience.max(LEAST_SUSPICION)
    }

    pub(super) fn suspect(&mut self, now: Time) {
        (self.suspect, self.suspected_at) = (true, now);
    }

    /// Returns when a suspect carrier counts as failed, not only late. `None` if there is nothing
    /// to reinject.
    pub(super) fn given_up_at(&self) -> Option<Time> {
        let matters = self.suspect && self.looked_at < self.sent.len();
        matters.then(|| self.suspected_at + self.patience() * 2)
    }
}
