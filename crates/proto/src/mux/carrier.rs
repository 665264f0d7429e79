//! State of a carrier: unacknowledged messages, accepted bytes, and loss of the connection.

use std::collections::VecDeque;

use manyways_unit::{Rate, Size, Span, Time};

use super::bottleneck::Bottleneck;
use super::bulk_window::{BulkWindow, RttSample};
use super::delivery_rate::DeliveryRate;
use super::flight::Flight;
use super::message::{FlowId, MAX_PAYLOAD, StreamId};
use super::passage::Passage;
use super::probe::Probe;
use super::second_hop::{Acknowledged, HopEstimate, HopState};
use super::unloaded_rtt::UnloadedRtt;
use crate::ranges::{Range, Ranges};
use crate::sched::{PathId, PathView};

/// A connection between client and gateway. The shell assigns the number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CarrierId(pub u64);

/// A direction, from the point of view of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Send,
    Receive,
}

/// State of the transport under a carrier, as the transport reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportInfo {
    /// Smoothed RTT.
    pub rtt: Span,
    /// Minimum RTT of the recent past, or the closest known value.
    pub min_rtt: Span,
    /// Mean deviation of the RTT.
    pub rtt_var: Span,
    pub congestion_window: Size,
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
    pub sent: u64,
    /// Maximum length of a datagram with the header of the mux. `None` on a byte stream.
    pub max_datagram: Option<usize>,
}

impl TransportInfo {
    /// Creates the assumed condition of a new connection: an initial window of ten segments (RFC
    /// 6928) in `rtt`.
    pub fn initial(rtt: Span) -> Self {
        let window = Size::from_bytes(10 * 1_448);
        Self {
            rtt,
            min_rtt: rtt,
            rtt_var: half(rtt),
            congestion_window: window,
            slow_start: true,
            in_flight: Some(Size::ZERO),
            unsent: Size::ZERO,
            rate: Rate::of(window, rtt.max(Span::from_micros(50))),
            acknowledged: 0,
            sent: 0,
            max_datagram: None,
        }
    }

    /// Returns the bytes in flight; 0 if unknown.
    pub fn bytes_in_flight(&self) -> Size {
        self.in_flight.unwrap_or_default()
    }
}

/// Content of a sent message, as far as a retransmission over another carrier needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SentContent {
    Open { stream: StreamId, length: u64 },
    Opened { stream: StreamId },
    Data { stream: StreamId, range: Range, fin: bool },
    Reset { stream: StreamId },
    StreamCredit { stream: StreamId },
    Credit,
    Relabel { id: u8 },
    Assign { stream: StreamId },
    CloseFlow { flow: FlowId, label: u8 },
    PathDown { path: PathId },
}

fn half(span: Span) -> Span {
    Span::from_nanos(span.as_nanos() / 2)
}

impl SentContent {
    /// Returns the bytes of a stream in the message.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Open { length, .. } => *length,
            Self::Data { range, .. } => range.len(),
            _ => 0,
        }
    }
}

/// A message that the peer has not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentMessage {
    pub sent_at: Time,
    pub content: SentContent,
    /// Whether the content was also assigned to another carrier because this one stalled.
    pub is_reinjected: bool,
    /// Whether the lender was asked to drop it, and the content was given to another carrier. An ACK
    /// then only shows that it was one of the two.
    pub is_recalled: bool,
}

/// A carrier over a device that lends its network.
#[derive(Debug)]
pub(super) struct Loan {
    pub join: u32,
    pub hop: HopState,
    pub passage: Passage,
    /// Numbers of messages that the lender may drop.
    droppable: Ranges,
    /// When messages were last recalled.
    pub recalled_at: Option<Time>,
}

#[derive(Debug)]
pub(super) struct Carrier {
    pub id: CarrierId,
    pub path: PathId,
    pub loan: Option<Box<Loan>>,
    /// Bytes that the carrier accepts now.
    pub writable_bytes: usize,
    pub transport_info: TransportInfo,
    unloaded_rtt: UnloadedRtt,
    flight: Flight,
    bottleneck: Bottleneck,
    delivery_rate: DeliveryRate,
    bulk_window: BulkWindow,
    /// Bytes of streams in `sent`.
    unacked_bytes: u64,
    /// Whether to send a ping.
    pub needs_ping: bool,
    probe: Probe,
    /// Bytes that were given to the transport since the last reported condition.
    unreported_bytes: u64,
    /// Time of the last bytes in `unreported_bytes`.
    last_submit_at: Time,
    pub sent: VecDeque<SentMessage>,
    /// Number of the oldest entries of `sent` that were already checked for reinjection.
    checked: usize,
    acked: u64,
    /// Received messages that need an ACK, and how many of them were acknowledged.
    received: u64,
    received_acked: u64,
    pub ack_at: Option<Time>,
    /// Time of the last evidence that the carrier works.
    alive_at: Time,
    /// The same of its transport. That of a lender may work although nothing passes the lender.
    transport_alive_at: Time,
    /// Time since which the transport waits for an ACK of any bytes. `None` if all are
    /// acknowledged.
    unacked_since: Option<Time>,
    /// Time of the last message, sent or received, that results from traffic of an application;
    /// at least the time of the start where an earlier carrier of the path had any.
    last_used_at: Option<Time>,
    /// Whether the carrier has not got through for longer than expected.
    pub is_suspect: bool,
    /// Whether it gets no new messages as long as there is another carrier.
    pub is_retired: bool,
    /// The value of `suspect` that was last reported to the shell.
    pub reported_suspect: bool,
    suspect_since: Time,
    pub pong: Option<u32>,
}

/// Number of unacknowledged messages at which an ACK is sent at once.
const MAX_UNACKED_MESSAGES: u64 = 16;
/// Maximum delay of an ACK.
const MAX_ACK_DELAY: Span = Span::from_millis(10);
/// Time by which an ACK over a lender may be later than one over a single connection: both hops have
/// queues, and it may come over another carrier.
const LENDER_SLACK: Span = Span::from_millis(100);
/// Maximum number of separate ranges of messages that a lender may drop.
const MAX_RECALLS: usize = 1_024;
/// Maximum delay of a transport's delayed ACK (Linux: 40 to 200 ms).
const TRANSPORT_ACK_DELAY: Span = Span::from_millis(200);
/// Minimum time without an ACK before a carrier is suspect. A busy peer responds some milliseconds
/// late.
const MIN_SUSPECT_TIMEOUT: Span = Span::from_millis(60);
/// Time in which a message should pass the path, so that other messages can be sent in between.
const MAX_MESSAGE_TIME: Span = Span::from_millis(4);
/// The same over a lender, where each message has a longer header, and is a TLS record of its own.
const MAX_LENT_MESSAGE_TIME: Span = Span::from_millis(8);
/// Minimum of the message size that `MAX_MESSAGE_TIME` allows, in bytes.
const MIN_PAYLOAD_LIMIT: usize = 1_400;

impl Carrier {
    pub(super) fn new(now: Time, id: CarrierId, path: PathId, info: TransportInfo) -> Self {
        Self {
            id,
            path,
            loan: None,
            writable_bytes: 0,
            transport_info: info,
            unloaded_rtt: UnloadedRtt::default(),
            flight: Flight::default(),
            bottleneck: Bottleneck::default(),
            delivery_rate: DeliveryRate::default(),
            bulk_window: BulkWindow::default(),
            unacked_bytes: 0,
            needs_ping: false,
            probe: Probe::default(),
            unreported_bytes: 0,
            last_submit_at: now,
            sent: VecDeque::new(),
            checked: 0,
            acked: 0,
            received: 0,
            received_acked: 0,
            ack_at: None,
            alive_at: now,
            transport_alive_at: now,
            unacked_since: None,
            last_used_at: None,
            is_suspect: false,
            is_retired: false,
            reported_suspect: false,
            suspect_since: now,
            pong: None,
        }
    }

    pub(super) fn path_view(&self, now: Time) -> PathView {
        let view = self.unblocked_view();
        // Includes the next message that the carrier could get.
        let ahead = view.unsent.as_bytes() + self.max_payload() as u64;
        let opens_in = self.flight.window_delay(now, &self.transport_info, view.rtt, ahead);
        PathView { window_delay: opens_in, ..view }
    }

    /// Returns the view of an open congestion window.
    pub(super) fn unblocked_view(&self) -> PathView {
        let info = &self.transport_info;
        let unsent = info.unsent + Size::from_bytes(self.unreported_bytes);
        PathView {
            path: self.path,
            is_writable: self.writable_bytes > 0,
            rtt: self.unloaded_rtt.rtt(info),
            rtt_var: info.rtt_var,
            congestion_window: info.congestion_window,
            in_flight: info.bytes_in_flight(),
            unsent,
            rate: info.rate,
            delivery_rate: self.delivery_rate.rate(info),
            window_delay: Span::ZERO,
            drain_time: self.bottleneck.drain_time(info, info.bytes_in_flight() + unsent),
            second_hop: self
                .loan
                .as_ref()
                .map(|loan| loan.hop.view(self.shortest_delivery(), self.relayed_bytes())),
        }
    }

    /// Returns the bytes that have left the first hop and are not acknowledged.
    fn relayed_bytes(&self) -> u64 {
        self.unacked_bytes.saturating_sub(self.outstanding_bytes())
    }

    pub(super) fn lend(&mut self, now: Time, join: u32, estimate: HopEstimate, rtt: Span) {
        self.loan = Some(Box::new(Loan {
            join,
            hop: HopState::new(estimate, rtt),
            passage: Passage::new(now),
            droppable: Ranges::new(),
            recalled_at: None,
        }));
    }

    /// Returns the view of streams of this priority, which keep a window beside a call.
    pub(super) fn bulk_view(&self, now: Time, priority: u8) -> PathView {
        let view = self.path_view(now);
        let Some(window) = self.bulk_window.limit(now, priority) else { return view };
        PathView {
            is_writable: view.is_writable && self.outstanding_bytes() < window,
            congestion_window: view.congestion_window.min(Size::from_bytes(window)),
            ..view
        }
    }

    /// Returns the bytes that have not arrived as far as this endpoint knows, unsent ones included.
    fn outstanding_bytes(&self) -> u64 {
        let unreported = match self.transport_info.in_flight {
            Some(_) => self.unreported_bytes,
            // Counted when the messages were sent.
            None => 0,
        };
        self.outstanding_after(&self.transport_info) + unreported
    }

    fn outstanding_after(&self, info: &TransportInfo) -> u64 {
        info.in_flight.map_or(self.unacked_bytes, |bytes| (bytes + info.unsent).as_bytes())
    }

    /// Returns the smallest known round-trip time: that of a carrier without a queue.
    fn base_rtt(&self) -> Span {
        self.bulk_window.base_rtt().unwrap_or(self.transport_info.min_rtt)
    }

    /// Returns the longest time until a message that is sent now arrives: all of the queue may be
    /// on the way there.
    pub(super) fn longest_delivery(&self) -> Span {
        let info = &self.transport_info;
        let queued = info.rate.time_for(Size::from_bytes(self.outstanding_bytes()));
        info.rtt.max(queued).saturating_sub(half(self.base_rtt()))
    }

    /// Returns the shortest time in which a message arrives.
    pub(super) fn shortest_delivery(&self) -> Span {
        half(self.base_rtt())
    }

    /// Records that a datagram of a call uses the carrier.
    pub(super) fn on_call(&mut self, now: Time, priority: u8) {
        let (outstanding, rtt) = (self.outstanding_bytes(), self.transport_info.rtt);
        self.bulk_window.on_call(now, priority, outstanding, rtt);
    }

    /// Records that bulk data waits for its window.
    pub(super) fn on_bulk_window_full(&mut self) {
        self.bulk_window.on_full();
    }

    pub(super) fn observe(&mut self, now: Time, info: TransportInfo) {
        if info.acknowledged > self.transport_info.acknowledged {
            self.transport_alive_at = now;
            if self.loan.is_none() {
                self.alive_at = now;
            }
            // An ACK of the peer's transport does not show that large packets arrive here.
            self.is_suspect &= self.probe.unanswered_since().is_some() || self.loan.is_some();
        }
        if self.is_all_acknowledged(now, &info) {
            self.unacked_since = None;
        }
        // A ping would keep the radio of a lender on.
        self.needs_ping |=
            self.unloaded_rtt.observe(&self.transport_info, &info) && self.loan.is_none();
        let rtt = self.flight.observe(now, &info);
        self.bottleneck.observe(now, &self.transport_info, &info, rtt);
        self.delivery_rate.observe(now, &info);
        if info.acknowledged > self.transport_info.acknowledged {
            let outstanding = self.outstanding_after(&info);
            let sample = RttSample {
                smoothed: info.rtt,
                // A transport that reports no bytes in flight reports no measured deviation either.
                deviation: info.in_flight.map_or(Span::ZERO, |_| info.rtt_var),
                min: info.min_rtt,
            };
            self.bulk_window.observe(now, sample, outstanding);
        }
        self.transport_info = info;
        self.unreported_bytes = 0;
    }

    /// Returns whether no sent byte is in flight. If the transport does not report its bytes in
    /// flight, a new ACK counts for all bytes, except for bytes sent less than a quarter of an RTT
    /// ago.
    fn is_all_acknowledged(&self, now: Time, info: &TransportInfo) -> bool {
        match info.in_flight {
            _ if !info.unsent.is_zero() => false,
            Some(in_flight) => in_flight.is_zero(),
            None => {
                let min = Span::from_nanos(info.rtt.as_nanos() / 4);
                info.acknowledged > self.transport_info.acknowledged
                    && self.last_submit_at + min <= now
            }
        }
    }

    /// Records a received message with its payload in bytes: the carrier works.
    pub(super) fn on_received(&mut self, now: Time, bytes: usize) {
        self.on_alive(now);
        self.transport_alive_at = now;
        self.probe.on_received(bytes);
    }

    /// Records evidence that the carrier works. It does not show that a lender passes on what it gets
    /// in the other direction, or in another class.
    pub(super) fn on_alive(&mut self, now: Time) {
        self.alive_at = now;
        self.is_suspect &= self.withheld_at().is_some_and(|at| at <= now);
    }

    /// Records that a datagram was sent.
    pub(super) fn on_datagram_sent(&mut self, now: Time) {
        if let Some(loan) = &mut self.loan {
            loan.passage.on_datagram_sent(now);
        }
    }

    /// Records that a datagram was received.
    pub(super) fn on_datagram_received(&mut self, now: Time) {
        if let Some(loan) = &mut self.loan {
            loan.passage.on_datagram_received(now);
        }
    }

    /// Returns when a report of received datagrams is due.
    pub(super) fn report_at(&self) -> Option<Time> {
        self.loan.as_ref()?.passage.report_at()
    }

    /// Processes the number of datagrams that have come to the peer. Returns whether so many were
    /// sent.
    pub(super) fn on_datagram_report(&mut self, now: Time, count: u64) -> bool {
        let Some(loan) = &mut self.loan else { return false };
        let is_possible = loan.passage.on_report(count);
        self.on_alive(now);
        is_possible
    }

    /// Gives a lender another trial that was suspect only because of its datagrams.
    pub(super) fn end_distrust(&mut self, now: Time) {
        let ends = self.loan.as_mut().is_some_and(|loan| loan.passage.end_distrust(now));
        self.is_suspect &= !ends;
    }

    /// Records traffic of an application, in either direction.
    pub(super) fn on_used(&mut self, now: Time) {
        self.last_used_at = Some(now);
    }

    /// Returns when a probe is due. `None` if none is needed, for example because traffic does not
    /// use the path: it may be one that costs money.
    pub(super) fn probe_due_at(&self) -> Option<Time> {
        let last_used_at = self.last_used_at.filter(|_| self.writable_bytes > 0)?;
        let is_quiet = self.is_suspect || self.loan.is_some();
        if is_quiet { None } else { self.probe.due_at(last_used_at) }
    }

    pub(super) fn on_probe_sent(&mut self, now: Time) {
        self.probe.on_sent(now);
    }

    /// Whether other carriers are preferred to it for anything new.
    pub(super) fn is_avoided(&self) -> bool {
        self.is_suspect || self.is_retired
    }

    /// Returns the direction in which a suspect carrier does not get through.
    pub(super) fn silent_direction(&self) -> Direction {
        match self.unacked_since {
            Some(_) => Direction::Send,
            // The transport has delivered all; answers of the peer are missing.
            None => Direction::Receive,
        }
    }

    /// Returns the maximum payload of a message in bytes, so that a message does not block others
    /// for long.
    pub(super) fn max_payload(&self) -> usize {
        let rate = self.transport_info.rate;
        let second = self.loan.as_ref().map(|loan| loan.hop.rate()).filter(|rate| !rate.is_zero());
        let time = if self.loan.is_some() { MAX_LENT_MESSAGE_TIME } else { MAX_MESSAGE_TIME };
        let turn = rate.min(second.unwrap_or(rate)).size_in(time).as_bytes();
        usize::try_from(turn).unwrap_or(MAX_PAYLOAD).clamp(MIN_PAYLOAD_LIMIT, MAX_PAYLOAD)
    }

    /// Records `bytes` given to the transport at `now`.
    pub(super) fn on_submitted(&mut self, now: Time, bytes: usize) {
        self.unacked_since.get_or_insert(now);
        self.writable_bytes = self.writable_bytes.saturating_sub(bytes);
        self.unreported_bytes += bytes as u64;
        self.last_submit_at = now;
        self.flight.on_submitted(now, &self.transport_info, self.unreported_bytes);
    }

    pub(super) fn record_sent(&mut self, now: Time, what: SentContent) {
        self.unacked_bytes += what.bytes();
        self.sent.push_back(SentMessage {
            sent_at: now,
            content: what,
            is_reinjected: false,
            is_recalled: false,
        });
    }

    /// Returns the oldest message that was neither checked yet nor assigned to another carrier.
    pub(super) fn next_unchecked(&mut self) -> Option<SentContent> {
        let is_elsewhere = |sent: &SentMessage| sent.is_reinjected || sent.is_recalled;
        while is_elsewhere(self.sent.get(self.checked)?) {
            self.checked += 1;
        }
        self.sent.get(self.checked).map(|sent| sent.content)
    }

    /// Records the check of that message; `again` if the content was assigned to another carrier.
    pub(super) fn mark_checked(&mut self, again: bool) {
        if let Some(sent) = self.sent.get_mut(self.checked) {
            sent.is_reinjected = again;
            self.checked += 1;
        }
    }

    /// Restarts the check at the oldest message.
    pub(super) fn restart_check(&mut self) {
        self.checked = 0;
    }

    /// Removes the oldest message after its ACK.
    pub(super) fn take_oldest(&mut self) -> Option<SentMessage> {
        self.checked = self.checked.saturating_sub(1);
        let oldest = self.sent.pop_front()?;
        if !oldest.is_recalled {
            self.unacked_bytes -= oldest.content.bytes();
        }
        Some(oldest)
    }

    /// Records that `bytes` of streams were acknowledged: the last message had `last_bytes` and was
    /// sent at `sent_at`. `back` is the delay of the carrier of the ACK, if it is another one.
    pub(super) fn on_bytes_acked(
        &mut self,
        now: Time,
        bytes: u64,
        (last_bytes, sent_at): (u64, Time),
        back: Option<Span>,
    ) {
        let (first_delay, backlog) = (self.shortest_delivery(), self.relayed_bytes());
        if let Some(loan) = &mut self.loan {
            let response = now.since(sent_at);
            loan.hop.on_acknowledged(
                now,
                Acknowledged { bytes, last_bytes, response, first_delay, back, backlog },
            );
        }
    }

    /// Returns the bytes of streams that are neither acknowledged nor recalled.
    pub(super) fn unacked_bytes(&self) -> u64 {
        self.unacked_bytes
    }

    /// Returns the number of the oldest unacknowledged message.
    pub(super) fn first_unacked(&self) -> u64 {
        self.acked
    }

    /// Marks the message at this place of `sent` as recalled and returns its content.
    pub(super) fn recall(&mut self, at: usize) -> Option<SentContent> {
        let sent = self.sent.get_mut(at)?;
        sent.is_recalled = true;
        self.unacked_bytes -= sent.content.bytes();
        Some(sent.content)
    }

    /// Records that the lender may drop the messages of these numbers.
    pub(super) fn permit_drop(&mut self, first: u64, last: u64) -> Result<(), &'static str> {
        let received = self.received;
        let loan =
            self.loan.as_mut().ok_or("it recalled messages of a carrier without a lender")?;
        loan.droppable.remove(Range::new(0, received));
        loan.droppable.insert(Range::new(first, last.saturating_add(1).max(first)));
        // More are not under way at a time.
        if loan.droppable.count() > MAX_RECALLS {
            Err("it recalled too many messages")
        } else {
            Ok(())
        }
    }

    /// Returns whether the lender may drop the next message.
    pub(super) fn may_drop(&self) -> bool {
        let next = Range::new(self.received, self.received + 1);
        self.loan.as_ref().is_some_and(|loan| loan.droppable.covers(next))
    }

    /// Records a received message that needs an ACK.
    pub(super) fn receive(&mut self, now: Time) {
        self.received += 1;
        let at = if self.received - self.received_acked >= MAX_UNACKED_MESSAGES {
            now
        } else {
            now + MAX_ACK_DELAY
        };
        self.ack_at = Some(self.ack_at.map_or(at, |before| before.min(at)));
    }

    /// Returns the count of received messages if an ACK is due.
    pub(super) fn take_ack(&mut self, now: Time) -> Option<u64> {
        self.ack_at.filter(|at| *at <= now)?;
        self.ack_at = None;
        self.received_acked = self.received;
        Some(self.received)
    }

    /// Returns the number of newly acknowledged messages, or `None` if the count decreased or
    /// exceeds the sent messages.
    pub(super) fn on_ack(&mut self, now: Time, count: u64) -> Option<usize> {
        let more = match (count.checked_sub(self.acked), &self.loan) {
            // ACKs of messages over a lender come over several carriers.
            (None, Some(_)) => return Some(0),
            (more, _) => usize::try_from(more?).ok()?,
        };
        if more > self.sent.len() {
            return None;
        }
        self.acked = count;
        if more > 0
            && let Some(loan) = &mut self.loan
        {
            loan.passage.on_acked(now);
            self.on_alive(now);
        }
        Some(more)
    }

    /// Returns when the carrier becomes suspect if no ACK or pong arrives: after the last evidence,
    /// the oldest unacknowledged message or the probe, plus the expected response time. The peer's
    /// mux does not acknowledge datagrams and ACKs; its transport does, up to
    /// `TRANSPORT_ACK_DELAY` later.
    pub(super) fn suspect_at(&self) -> Option<Time> {
        if self.is_suspect {
            return None;
        }
        let oldest = self.sent.front().map(|sent| sent.sent_at);
        let waits = self
            .unacked_since
            .map(|since| since.max(self.transport_alive_at) + TRANSPORT_ACK_DELAY);
        let unacked = oldest.map(|at| at.max(self.alive_at));
        let unanswered = self.probe.unanswered_since();
        let since = [unacked, waits, unanswered].into_iter().flatten().min();
        let silent_at = since.map(|since| since + self.suspect_timeout() + self.drain_time());
        [silent_at, self.withheld_at()].into_iter().flatten().min()
    }

    /// Returns when a lender becomes suspect that passes on other messages than ours.
    fn withheld_at(&self) -> Option<Time> {
        let loan = self.loan.as_ref()?;
        let oldest = self.sent.front().map(|sent| sent.sent_at);
        let timeout = self.suspect_timeout() + self.drain_time();
        loan.passage.withheld_at(oldest, timeout, loan.hop.waited())
    }

    /// Returns the time in which unsent bytes leave.
    fn drain_time(&self) -> Span {
        let info = &self.transport_info;
        info.rate.time_for(info.unsent).min(Span::from_millis(500))
    }

    fn suspect_timeout(&self) -> Span {
        let timeout = self.transport_info.rtt + self.transport_info.rtt_var * 4 + MAX_ACK_DELAY;
        let second = self.loan.as_ref().map_or(Span::ZERO, |loan| loan.hop.rtt() + LENDER_SLACK);
        timeout.max(MIN_SUSPECT_TIMEOUT) + second
    }

    pub(super) fn mark_suspect(&mut self, now: Time) {
        (self.is_suspect, self.suspect_since) = (true, now);
        let timeout = self.suspect_timeout() + self.drain_time();
        if let Some(loan) = &mut self.loan {
            loan.passage.on_suspect(now, timeout);
        }
    }

    /// Returns when a suspect carrier counts as failed, not only late. `None` if there is nothing
    /// to reinject.
    pub(super) fn failure_deadline(&self) -> Option<Time> {
        let matters = self.is_suspect && self.checked < self.sent.len();
        matters.then(|| self.suspect_since + self.suspect_timeout() * 2)
    }
}
