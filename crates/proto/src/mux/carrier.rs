//! What is known of a carrier: what was sent over it and is not acknowledged, how much it takes
//! now, and whether it still gets through.

use std::collections::VecDeque;

use manyways_unit::{Rate, Size, Span, Time};

use super::bottleneck::Bottleneck;
use super::flight::Flight;
use super::message::{FlowId, MOST_PAYLOAD, StreamId};
use super::quiet::Quiet;
use crate::ranges::Range;
use crate::sched::{PathId, View};

/// A connection between the two ends, as the shell numbers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CarrierId(pub u64);

/// What the transport under a carrier says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The smoothed round trip.
    pub rtt: Span,
    /// The shortest one of late, or what comes next to it.
    pub least_rtt: Span,
    /// Its mean deviation.
    pub rtt_var: Span,
    /// The congestion window.
    pub window: Size,
    /// It grows by what is acknowledged.
    pub slow_start: bool,
    /// What was sent and is not acknowledged; none where it does not say.
    pub in_flight: Option<Size>,
    /// What waits to be sent for the first time.
    pub unsent: Size,
    /// How fast it goes: the window in a round trip, or what was measured.
    pub rate: Rate,
    /// All bytes that the peer's transport has acknowledged so far: more of them is a sign of
    /// life.
    pub acknowledged: u64,
    /// All bytes that it has sent so far, in the same count; zero where it does not say.
    pub departed: u64,
    /// How long a datagram may be, headers of ours included, where it is not part of a byte
    /// stream.
    pub datagram: Option<usize>,
}

impl Condition {
    /// What a new connection is taken for: ten packets in `rtt`.
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

    /// What is known to be on its way.
    pub fn flying(&self) -> Size {
        self.in_flight.unwrap_or_default()
    }
}

/// What a message said, as far as it matters if the carrier dies.
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

/// A message on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub at: Time,
    pub what: What,
    /// It was given to another carrier as well, since this one did not get through.
    pub again: bool,
}

#[derive(Debug)]
pub(super) struct Carrier {
    pub id: CarrierId,
    pub path: PathId,
    /// How many bytes it takes now.
    pub room: usize,
    pub condition: Condition,
    quiet: Quiet,
    flight: Flight,
    bottleneck: Bottleneck,
    /// A sign of life is wanted.
    pub ask: bool,
    /// Bytes that were given to it since the condition was told.
    fed: u64,
    /// When it was last given any.
    fed_at: Time,
    pub sent: VecDeque<Sent>,
    /// So many of these, the oldest, need not be looked at for one to give to another carrier.
    looked_at: usize,
    acked: u64,
    /// Messages that came, and how many of them the peer was told of.
    received: u64,
    told: u64,
    pub ack_at: Option<Time>,
    /// When there was a sign that it gets through.
    alive_at: Time,
    /// Since then its transport waits for an acknowledgement, of whatever it was given.
    waits_since: Option<Time>,
    /// When anything but signs of life was last sent or came.
    pub busy_at: Time,
    /// It has not got through for too long.
    pub suspect: bool,
    /// The owner was told that it is suspect, and not that it has recovered.
    pub told_suspect: bool,
    suspected_at: Time,
    pub pong: Option<u32>,
}

/// After so many messages an acknowledgement does not wait any more…
const ACK_EVERY: u64 = 16;
/// …and it waits no longer than this.
const ACK_DELAY: Span = Span::from_millis(10);
/// A transport's acknowledgement of little waits no longer than this (Linux: 40 to 200 ms).
const DELAYED_ACK: Span = Span::from_millis(200);
/// A carrier is suspect after this at the earliest: a busy peer is late by some milliseconds.
const LEAST_SUSPICION: Span = Span::from_millis(60);
/// A message fills the path for about so long, so that others get between its messages.
const MESSAGE_TIME: Span = Span::from_millis(4);
/// A message is no smaller than this for the sake of others.
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
        // With the message that it would be given next.
        let ahead = view.unsent.as_bytes() + self.most_payload() as u64;
        let opens_in = self.flight.opens_in(now, &self.condition, view.rtt, ahead);
        View { opens_in, ..view }
    }

    /// As if its congestion window were open.
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

    /// Whether nothing that it was given is on its way. Where the transport does not say, more that
    /// is acknowledged is all, but for what was given so shortly before that it cannot be.
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

    /// There is a sign that it gets through.
    pub(super) fn lives(&mut self, now: Time) {
        self.alive_at = now;
        self.suspect = false;
    }

    /// How many bytes of an application a message carries at most, for the others' sake.
    pub(super) fn most_payload(&self) -> usize {
        let turn = self.condition.rate.size_in(MESSAGE_TIME).as_bytes();
        usize::try_from(turn).unwrap_or(MOST_PAYLOAD).clamp(LEAST_MESSAGE, MOST_PAYLOAD)
    }

    /// So many bytes are on their way into it.
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

    /// The oldest message that was not looked at yet and no other carrier was given.
    pub(super) fn next_to_save(&mut self) -> Option<What> {
        while self.sent.get(self.looked_at)?.again {
            self.looked_at += 1;
        }
        self.sent.get(self.looked_at).map(|sent| sent.what)
    }

    /// That one was looked at, and given to another carrier or not.
    pub(super) fn looked_at(&mut self, again: bool) {
        if let Some(sent) = self.sent.get_mut(self.looked_at) {
            sent.again = again;
            self.looked_at += 1;
        }
    }

    /// Another carrier may take now what none could.
    pub(super) fn look_again(&mut self) {
        self.looked_at = 0;
    }

    /// The oldest message, which has arrived.
    pub(super) fn take_oldest(&mut self) -> Option<Sent> {
        self.looked_at = self.looked_at.saturating_sub(1);
        self.sent.pop_front()
    }

    /// A message that counts has come.
    pub(super) fn receive(&mut self, now: Time) {
        self.received += 1;
        self.busy_at = now;
        let at = if self.received - self.told >= ACK_EVERY { now } else { now + ACK_DELAY };
        self.ack_at = Some(self.ack_at.map_or(at, |before| before.min(at)));
    }

    /// The acknowledgement that is due.
    pub(super) fn take_ack(&mut self, now: Time) -> Option<u64> {
        self.ack_at.filter(|at| *at <= now)?;
        self.ack_at = None;
        self.told = self.received;
        Some(self.received)
    }

    /// What an acknowledgement of `count` messages adds to those before; nothing where so many
    /// were never sent.
    pub(super) fn acknowledged(&mut self, count: u64) -> Option<usize> {
        let more = usize::try_from(count.checked_sub(self.acked)?).ok()?;
        if more > self.sent.len() {
            return None;
        }
        self.acked = count;
        Some(more)
    }

    /// When it becomes suspect if nothing happens: so long after the last sign of life, or after
    /// the oldest message, as no answer takes. What the other end does not acknowledge, as datagrams
    /// and acknowledgements, its transport does, if later.
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

    /// When a suspect carrier is given up: it is not only late. Nothing where that changes nothing.
    pub(super) fn given_up_at(&self) -> Option<Time> {
        let matters = self.suspect && self.looked_at < self.sent.len();
        matters.then(|| self.suspected_at + self.patience() * 2)
    }
}
