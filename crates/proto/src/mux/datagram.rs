//! Datagrams of applications: no retransmission, no flow control, dropped when they are stale.
//!
//! Within a priority, flows with few queued datagrams (a call) are served before flows that fill
//! the queue.
//!
//! The datagrams of a flow stay on one carrier while it works, because reordering costs calls and
//! QUIC more than a second path gains. A call moves once another carrier is faster, so
//! that no datagram overtakes another one. Only `round-robin`, `minrtt` and `redundant` distribute
//! them.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use manyways_unit::{Size, Span, Time};

use super::Payload;
use super::carrier::{Carrier, CarrierId};
use super::class_queue::{ClassQueue, QueueKey};
use super::flow_load::FlowLoad;
use super::message::{Destination, FlowId, MAX_PARTS, MAX_PAYLOAD, Message};
use super::outgoing::head_length;
use crate::sched::{
    Assignment, PathId, PathSet, PathView, SchedulerKind, Schedulers, SendRequest, StreamPolicy,
};

/// Maximum number of queued bytes. Above it, the oldest datagram is dropped.
const MAX_QUEUED_BYTES: usize = 512 << 10;
/// Bytes that a queued datagram counts in addition to its payload, which may be empty.
const DATAGRAM_OVERHEAD: usize = 128;
/// Longest payload of a datagram of UDP over IPv4.
const MAX_DATAGRAM: usize = 65_507;
/// Bytes of the header of a part beyond that of a whole datagram.
const PART_HEADER: usize = 2;
/// Maximum number of datagrams that wait for further parts, and of the bytes of their parts.
const MAX_PARTIAL: usize = 64;
const MAX_PARTIAL_BYTES: usize = 512 << 10;
/// Maximum number of queued datagrams of a label that are checked for a carrier with room.
const MAX_SCANNED_DATAGRAMS: usize = 64;
/// Minimum gain of delivery time for which a call moves to another carrier.
const MIN_GAIN: Span = Span::from_millis(5);
/// Maximum time for which datagrams wait when a call moves.
const MAX_HOLD_TIME: Span = Span::from_millis(50);
/// Maximum queued datagrams of a flow that does not count as filling the queue.
const MAX_SPARSE_DATAGRAMS: u32 = 3;

#[derive(Debug)]
pub(super) struct Datagrams<P> {
    flows: HashMap<FlowId, Flow>,
    /// Queued datagrams; the class is the label and whether the flow fills the queue.
    queue: ClassQueue<QueuedDatagram<P>>,
    bytes: usize,
    /// Copies and parts that are assigned to a carrier, and their bytes.
    assigned: VecDeque<(Time, CarrierId, Message<P>)>,
    assigned_bytes: usize,
    /// Received datagrams without all their parts, oldest first.
    partial: VecDeque<Partial<P>>,
    timeout: Span,
    max_flows: u64,
    /// Whether the peer opens flows. At a client, a datagram of an unknown flow is one of a closed
    /// flow.
    accepts_flows: bool,
    /// When the first of the flows that move goes on.
    held_until: Option<Time>,
    dropped: u64,
}

#[derive(Debug)]
struct Flow {
    /// Number of the next datagram to send.
    next_number: u32,
    /// Label of the last datagram, sent or received. `None` before the first one.
    label: Option<u8>,
    received: ReplayWindow,
    carrier: Option<CarrierId>,
    /// Queued datagrams of the flow.
    queued: u32,
    /// Queued datagrams of the flow that wait in the class of flows that fill the queue.
    queued_bulk: u32,
    /// Path of the last received datagram.
    last_path: Option<PathId>,
    load: FlowLoad,
    last_sent_at: Time,
    /// Time until which datagrams wait, so that they do not overtake those of another carrier.
    held_until: Time,
}

/// A queued datagram and its carriers, as indexes.
#[derive(Debug)]
struct ReadyDatagram {
    key: QueueKey,
    at: usize,
    /// Carriers that get a copy.
    copies: Vec<usize>,
    /// A carrier to which the flow may move.
    faster: Option<usize>,
    priority: u8,
}

/// The next datagram to send.
#[derive(Debug)]
pub(super) struct NextDatagram<P> {
    /// Index of the carrier.
    pub at: usize,
    pub message: Message<P>,
    /// Carriers where bulk data yields to the call: its own, and the one that it may move to.
    pub yields: [Option<usize>; 2],
    pub priority: u8,
}

#[derive(Debug)]
struct Partial<P> {
    flow: FlowId,
    number: u32,
    parts: Vec<Option<P>>,
}

impl<P: Payload> Partial<P> {
    fn bytes(&self) -> usize {
        self.parts.iter().flatten().map(Payload::len).sum()
    }

    /// Joins the parts; `None` if one is missing.
    fn whole(&self) -> Option<P> {
        let mut parts = self.parts.iter();
        let first = parts.next()?.clone()?;
        parts.try_fold(first, |whole, part| Some(P::join(&whole, part.as_ref()?)))
    }
}

#[derive(Debug)]
struct QueuedDatagram<P> {
    queued_at: Time,
    flow: FlowId,
    label: u8,
    /// Whether the datagram waits in the class of flows that fill the queue.
    is_bulk: bool,
    peer: Destination,
    data: P,
}

/// Treatment of a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReceiveOutcome {
    Deliver,
    /// Received before.
    Duplicate,
    /// The limit of flows is reached.
    Refused,
}

/// Received numbers: the largest, and a bitmap of the 128 numbers up to it.
#[derive(Clone, Copy, Debug, Default)]
struct ReplayWindow {
    largest: u32,
    bits: u128,
}

impl ReplayWindow {
    /// Returns whether `number` was received before or is too old to tell.
    fn contains(mut self, number: u32) -> bool {
        !self.insert(number)
    }

    /// Records `number` and returns whether it is new. A number older than the bitmap counts as
    /// repeated.
    fn insert(&mut self, number: u32) -> bool {
        let ahead = number.wrapping_sub(self.largest);
        if self.bits == 0 {
            (self.largest, self.bits) = (number, 1);
            return true;
        }
        if ahead != 0 && ahead < u32::MAX / 2 {
            self.bits = if ahead < 128 { self.bits << ahead } else { 0 } | 1;
            self.largest = number;
            return true;
        }
        let behind = self.largest.wrapping_sub(number);
        if behind >= 128 || self.bits & 1 << behind != 0 {
            return false;
        }
        self.bits |= 1 << behind;
        true
    }
}

impl<P: Payload> Datagrams<P> {
    pub(super) fn new(stale: Span, most_flows: u64, accepts_flows: bool) -> Self {
        Self {
            flows: HashMap::new(),
            queue: ClassQueue::new(),
            bytes: 0,
            assigned: VecDeque::new(),
            assigned_bytes: 0,
            partial: VecDeque::new(),
            timeout: stale,
            max_flows: most_flows,
            accepts_flows,
            held_until: None,
            dropped: 0,
        }
    }

    pub(super) fn push(&mut self, now: Time, flow: FlowId, label: u8, peer: Destination, data: P) {
        if data.len() > MAX_DATAGRAM {
            self.dropped += 1;
            return;
        }
        let state = self.flows.entry(flow).or_insert_with(Flow::new);
        // After queued datagrams of the same class, because a change of class would reorder the
        // flow.
        let many = state.queued_bulk > 0 || state.queued >= MAX_SPARSE_DATAGRAMS;
        state.queued += 1;
        state.queued_bulk += u32::from(many);
        self.bytes += data.len() + DATAGRAM_OVERHEAD;
        let class = u16::from(label) << 1 | u16::from(many);
        self.queue
            .add(class, QueuedDatagram { queued_at: now, flow, label, is_bulk: many, peer, data });
        while self.bytes > MAX_QUEUED_BYTES {
            let oldest = self.queue.heads().min_by_key(|key| key.sequence);
            let Some(oldest) = oldest else { break };
            self.drop_one(oldest);
        }
    }

    pub(super) fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Returns the priority of the next queued datagram, or `None` if the queue is empty.
    pub(super) fn priority(&self, policy: impl Fn(u8) -> Option<StreamPolicy>) -> Option<u8> {
        let places = self.queue.heads();
        places.map(|key| priority_of(key, &policy)).max()
    }

    /// Removes `flow`. `None` if it did not exist, `Some(None)` if no datagram of it was sent or
    /// received.
    pub(super) fn close(&mut self, flow: FlowId) -> Option<Option<u8>> {
        if self.flows.get(&flow).is_some_and(|flow| flow.queued > 0) {
            self.queue.retain(|waiting| waiting.flow != flow);
        }
        self.bytes = self.queue.iter().map(|waiting| waiting.data.len() + DATAGRAM_OVERHEAD).sum();
        self.partial.retain(|partial| partial.flow != flow);
        self.flows.remove(&flow).map(|flow| flow.label)
    }

    /// Processes a datagram received over `path`.
    pub(super) fn receive(
        &mut self,
        path: PathId,
        id: FlowId,
        label: u8,
        number: u32,
    ) -> ReceiveOutcome {
        let Some(flow) = self.flow(path, id, label) else { return ReceiveOutcome::Refused };
        match flow.received.insert(number) {
            true => ReceiveOutcome::Deliver,
            false => ReceiveOutcome::Duplicate,
        }
    }

    /// Processes a received part, `index` of `count`, and returns the datagram once all are there.
    pub(super) fn receive_part(
        &mut self,
        path: PathId,
        id: FlowId,
        label: u8,
        number: u32,
        (index, count): (u8, u8),
        data: P,
    ) -> Option<P> {
        // A part alone does not open a flow: it may be late, and nothing would close the flow.
        let flow = self.flows.get(&id);
        if flow.is_none() && !self.accepts_flows
            || flow.is_some_and(|flow| flow.received.contains(number))
        {
            return None;
        }
        let is_it = |partial: &Partial<P>| (partial.flow, partial.number) == (id, number);
        let place = self.partial.iter().position(is_it).unwrap_or_else(|| {
            let parts = std::iter::repeat_with(|| None).take(usize::from(count)).collect();
            self.partial.push_back(Partial { flow: id, number, parts });
            self.partial.len() - 1
        });
        // A peer that splits a datagram in two ways at once means nothing by the second one.
        let partial = &mut self.partial[place];
        if partial.parts.len() == usize::from(count)
            && let Some(part) = partial.parts.get_mut(usize::from(index))
        {
            part.get_or_insert(data);
        }
        if let Some(whole) = partial.whole() {
            self.partial.remove(place);
            self.flow(path, id, label)?.received.insert(number);
            return Some(whole);
        }
        while self.partial.len() > MAX_PARTIAL
            || self.partial.iter().map(Partial::bytes).sum::<usize>() > MAX_PARTIAL_BYTES
        {
            self.partial.pop_front();
        }
        None
    }

    fn flow(&mut self, path: PathId, id: FlowId, label: u8) -> Option<&mut Flow> {
        let has_room = self.accepts_flows && (self.flows.len() as u64) < self.max_flows;
        if !has_room && !self.flows.contains_key(&id) {
            return None;
        }
        let flow = self.flows.entry(id).or_insert_with(Flow::new);
        flow.last_path = Some(path);
        flow.label = Some(label);
        Some(flow)
    }

    /// Returns the number of dropped datagrams since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Returns when the oldest queued datagram becomes stale, or a held one can go.
    pub(super) fn next_wakeup(&self) -> Option<Time> {
        let firsts = self.queue.heads().filter_map(|key| self.queue.at_or_after(key));
        let stale = firsts.map(|(_, first)| first.queued_at + self.timeout + Span::from_nanos(1));
        stale.chain(self.held_until).min()
    }

    /// Forgets when held datagrams can go, until [`Self::next`] finds them again.
    pub(super) fn reset_hold(&mut self) {
        self.held_until = None;
    }

    /// Returns the next datagram and the index of its carrier.
    pub(super) fn next(
        &mut self,
        now: Time,
        carriers: &[Carrier],
        schedulers: &mut Schedulers,
        policy: impl Fn(u8) -> Option<StreamPolicy>,
    ) -> Option<NextDatagram<P>> {
        let mut firsts: Vec<QueueKey> = self.queue.heads().collect();
        firsts
            .sort_by_key(|key| (Reverse(priority_of(*key, &policy)), key.class & 1, key.sequence));
        firsts.into_iter().find_map(|first| {
            let ready = self.ready(now, first, carriers, schedulers, &policy)?;
            self.take(now, ready, carriers)
        })
    }

    /// Returns the first datagram of a class whose carrier has room.
    fn ready(
        &mut self,
        now: Time,
        first: QueueKey,
        carriers: &[Carrier],
        schedulers: &mut Schedulers,
        policy: impl Fn(u8) -> Option<StreamPolicy>,
    ) -> Option<ReadyDatagram> {
        let all_avoided = carriers.iter().all(|carrier| carrier.is_avoided());
        let mut from = first;
        for _ in 0..MAX_SCANNED_DATAGRAMS {
            let (key, waiting) = self.queue.at_or_after(from)?;
            from = QueueKey { sequence: key.sequence + 1, ..key };
            let QueuedDatagram { flow, label, data, .. } = waiting;
            let Some(state) = self.flows.get_mut(flow) else { continue };
            // A flow without a known label responds on the path of its last received datagram.
            let policy = policy(*label).unwrap_or_else(|| StreamPolicy {
                paths: state.last_path.map_or(PathSet::ALL, |path| PathSet::NONE.with(path)),
                ..StreamPolicy::default()
            });
            let usable: Vec<(usize, PathView)> = carriers
                .iter()
                .enumerate()
                .filter(|(_, c)| policy.paths.contains(c.path) && (all_avoided || !c.is_avoided()))
                .map(|(at, carrier)| (at, carrier.path_view(now)))
                .collect();
            let size = Size::from_bytes(data.len() as u64);
            let faster = faster_carrier(state, carriers, &usable, &policy);
            if let Some(at) = faster {
                state.move_to(at, carriers, &usable);
            }
            if state.held_until > now {
                let until = self.held_until.map_or(state.held_until, |at| at.min(state.held_until));
                self.held_until = Some(until);
                continue;
            }
            let Some(at) = choose_carrier(state, carriers, &usable, schedulers, &policy, size)
            else {
                continue;
            };
            let copies: Vec<usize> = match policy.scheduler {
                SchedulerKind::Redundant => {
                    usable.iter().map(|(other, _)| *other).filter(|other| *other != at).collect()
                }
                _ => Vec::new(),
            };
            return Some(ReadyDatagram { key, at, copies, faster, priority: policy.priority });
        }
        None
    }

    fn take(
        &mut self,
        now: Time,
        ready: ReadyDatagram,
        carriers: &[Carrier],
    ) -> Option<NextDatagram<P>> {
        let ReadyDatagram { key, at, copies, faster, priority } = ready;
        let QueuedDatagram { flow, label, peer, data, .. } = self.remove(key)?;
        let state = self.flows.get_mut(&flow)?;
        state.label = Some(label);
        state.load.on_sent(now, data.len());
        state.last_sent_at = now;
        let is_call = state.load.is_call();
        let number = state.next_number;
        state.next_number = state.next_number.wrapping_add(1);
        let mut messages = Vec::new();
        for at in std::iter::once(at).chain(copies.iter().copied()) {
            let whole = data.clone();
            let datagram =
                Message::Datagram { flow, number, label, peer: peer.clone(), data: whole };
            let head = head_length(&datagram, data.len());
            let max = carriers[at]
                .transport_info
                .max_datagram
                .map_or(MAX_PAYLOAD, |max| max.saturating_sub(head).min(MAX_PAYLOAD));
            if data.len() <= max {
                messages.push((at, datagram));
                continue;
            }
            let count = data.len().div_ceil(max.saturating_sub(PART_HEADER).max(1));
            let Some(count) = u8::try_from(count).ok().filter(|count| *count <= MAX_PARTS) else {
                self.dropped += 1;
                continue;
            };
            let size = data.len().div_ceil(usize::from(count));
            for index in 0..count {
                let begin = usize::from(index) * size;
                let data = data.slice(begin.min(data.len()), (begin + size).min(data.len()));
                let peer = peer.clone();
                let part = Message::Part { flow, number, index, count, label, peer, data };
                messages.push((at, part));
            }
        }
        // If the datagram is too long for the chosen carrier, the first copy may have no room.
        let first = messages.iter().position(|(to, _)| carriers[*to].writable_bytes > 0);
        let first = first.map(|index| messages.remove(index));
        for (at, message) in messages {
            self.assigned_bytes += queue_cost(&message);
            self.assigned.push_back((now, carriers[at].id, message));
        }
        while self.assigned_bytes > MAX_QUEUED_BYTES {
            self.take_assigned(0);
        }
        let yields = match is_call {
            true => [Some(at), faster],
            false => [None; 2],
        };
        let (at, message) = first?;
        Some(NextDatagram { at, message, yields, priority })
    }

    fn take_assigned(&mut self, index: usize) -> Option<(Time, CarrierId, Message<P>)> {
        let bound = self.assigned.remove(index)?;
        self.assigned_bytes -= queue_cost(&bound.2);
        Some(bound)
    }

    /// Returns the next copy or part that is assigned to a carrier with room.
    pub(super) fn next_assigned(
        &mut self,
        now: Time,
        carriers: &[Carrier],
    ) -> Option<(usize, Message<P>)> {
        // Ordered by time. Entries of a removed carrier also expire here.
        while self.assigned.front().is_some_and(|(at, ..)| now.since(*at) > self.timeout) {
            self.take_assigned(0);
        }
        let with_room = |id: CarrierId| {
            carriers.iter().position(|carrier| carrier.id == id && carrier.writable_bytes > 0)
        };
        if self.assigned.is_empty() || carriers.iter().all(|carrier| carrier.writable_bytes == 0) {
            return None;
        }
        while let Some(index) = self.assigned.iter().position(|(_, id, _)| with_room(*id).is_some())
        {
            let (_, id, message) = self.take_assigned(index)?;
            let (at, payload) = (with_room(id)?, message.payload().map_or(0, Payload::len));
            let length = head_length(&message, payload) + payload;
            if carriers[at].transport_info.max_datagram.is_none_or(|max| length <= max) {
                return Some((at, message));
            }
            // The maximum datagram length of the carrier has decreased since the split.
            self.dropped += 1;
        }
        None
    }

    /// Drops datagrams that waited longer than `stale`.
    pub(super) fn drop_stale(&mut self, now: Time) {
        if self.queue.is_empty() {
            return;
        }
        let firsts: Vec<QueueKey> = self.queue.heads().collect();
        for first in firsts {
            while let Some((place, waiting)) = self.queue.at_or_after(first)
                && now.since(waiting.queued_at) > self.timeout
            {
                self.drop_one(place);
            }
        }
    }

    fn drop_one(&mut self, key: QueueKey) {
        self.dropped += u64::from(self.remove(key).is_some());
    }

    /// Removes a datagram from the queue and from the counters of its flow.
    fn remove(&mut self, key: QueueKey) -> Option<QueuedDatagram<P>> {
        let waiting = self.queue.take(key)?;
        self.bytes -= waiting.data.len() + DATAGRAM_OVERHEAD;
        if let Some(flow) = self.flows.get_mut(&waiting.flow) {
            flow.queued -= 1;
            flow.queued_bulk -= u32::from(waiting.is_bulk);
        }
        Some(waiting)
    }
}

fn priority_of(key: QueueKey, policy: impl Fn(u8) -> Option<StreamPolicy>) -> u8 {
    policy((key.class >> 1) as u8).unwrap_or_default().priority
}

fn queue_cost<P: Payload>(message: &Message<P>) -> usize {
    DATAGRAM_OVERHEAD + message.payload().map_or(0, Payload::len)
}

/// Returns the index of a carrier that would be faster for a call than its own one if it had no
/// queue: bulk data yields there, too, until the call can move.
fn faster_carrier(
    flow: &Flow,
    carriers: &[Carrier],
    usable: &[(usize, PathView)],
    policy: &StreamPolicy,
) -> Option<usize> {
    let moves = policy.scheduler.weighs_delays();
    if !flow.load.is_call() || !moves || policy.primary.is_some() {
        return None;
    }
    let kept = usable.iter().find(|(at, _)| Some(carriers[*at].id) == flow.carrier)?;
    let base = |at: usize| carriers[at].shortest_delivery();
    let (best, _) = usable.iter().min_by_key(|(at, _)| base(*at))?;
    let is_faster = *best != kept.0 && base(*best) + MIN_GAIN <= kept.1.delivery_time();
    is_faster.then_some(*best)
}

/// Returns the index of the carrier for the flow's next datagram, or `None` if that carrier has no
/// room.
fn choose_carrier(
    flow: &mut Flow,
    carriers: &[Carrier],
    usable: &[(usize, PathView)],
    schedulers: &mut Schedulers,
    policy: &StreamPolicy,
    size: Size,
) -> Option<usize> {
    let with_room = |at: usize| (carriers[at].writable_bytes > 0).then_some(at);
    let views = || -> Vec<PathView> { usable.iter().map(|(_, view)| *view).collect() };
    let request = SendRequest { backlog: size, total: size, primary: policy.primary };
    match policy.scheduler {
        SchedulerKind::RoundRobin | SchedulerKind::MinRtt => {
            match schedulers.choose(policy.scheduler, &request, &views()) {
                Assignment::Send { index: at, .. } => with_room(usable[at].0),
                _ => None,
            }
        }
        SchedulerKind::Redundant => {
            usable.iter().map(|(at, _)| *at).find(|at| carriers[*at].writable_bytes > 0)
        }
        SchedulerKind::Single
        | SchedulerKind::Ecf
        | SchedulerKind::BufferAware
        | SchedulerKind::MinPad
        | SchedulerKind::PublishedPams
        | SchedulerKind::Pams => {
            let primary = usable.iter().find(|(_, view)| Some(view.path) == policy.primary);
            let kept = usable.iter().find(|(at, _)| Some(carriers[*at].id) == flow.carrier);
            let first = || match policy.scheduler {
                SchedulerKind::Single => usable.first(),
                _ => usable.iter().min_by_key(|(_, view)| view.delivery_time()),
            };
            let at = primary.or(kept).or_else(first)?.0;
            flow.carrier = Some(carriers[at].id);
            with_room(at)
        }
    }
}

impl Flow {
    fn new() -> Self {
        Self {
            next_number: 0,
            label: None,
            received: ReplayWindow::default(),
            carrier: None,
            queued: 0,
            queued_bulk: 0,
            last_path: None,
            load: FlowLoad::new(),
            last_sent_at: Time::ZERO,
            held_until: Time::ZERO,
        }
    }

    /// Moves the flow to the carrier at `to` if it gains time there. The next datagrams wait until
    /// they cannot overtake the last one.
    fn move_to(&mut self, to: usize, carriers: &[Carrier], usable: &[(usize, PathView)]) {
        let view = |at: usize| usable.iter().find(|(other, _)| *other == at).map(|(_, view)| view);
        let kept = carriers.iter().position(|carrier| Some(carrier.id) == self.carrier);
        let Some((kept, before, after)) = kept.and_then(|at| Some((at, view(at)?, view(to)?)))
        else {
            return;
        };
        let gain = before.delivery_time().saturating_sub(after.delivery_time());
        let lead = carriers[kept].longest_delivery();
        let lead = lead.saturating_sub(carriers[to].shortest_delivery());
        if gain >= MIN_GAIN && lead <= MAX_HOLD_TIME {
            self.carrier = Some(carriers[to].id);
            self.held_until = self.last_sent_at + lead;
        }
    }
}
