//! Datagrams of applications: no retransmission, no flow control, dropped when they are stale.
//!
//! Within a priority, flows with few queued datagrams (a call) are served before flows that fill
//! the queue.
//!
//! The datagrams of a flow stay on one carrier while it works, because reordering costs calls and
//! QUIC more than a second path gains. Only `round-robin`, `minrtt` and `redundant` distribute
//! them.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use manyways_unit::{Size, Span, Time};

use super::Payload;
use super::carrier::{Carrier, CarrierId};
use super::message::{FlowId, MOST_PAYLOAD, Message, Target};
use super::outgoing::head_length;
use super::turns::{Place, Turns};
use crate::sched::{Choice, Job, Kind, PathId, PathSet, Schedulers, Treatment, View};

/// Maximum number of queued bytes. Above it, the oldest datagram is dropped.
const MOST_WAITING: usize = 512 << 10;
/// Bytes that a queued datagram counts in addition to its payload, which may be empty.
const COST: usize = 128;
/// Maximum number of halves that wait for their other half.
const MOST_HALVES: usize = 64;
/// Maximum number of queued datagrams of a label that are checked for a carrier with room.
const MOST_LOOKED_AT: usize = 64;
/// Maximum queued datagrams of a flow that does not count as filling the queue.
const FEW: u32 = 3;

#[derive(Debug)]
pub(super) struct Datagrams<P> {
    flows: HashMap<FlowId, Flow>,
    /// Queued datagrams; the class is the label and whether the flow fills the queue.
    waiting: Turns<Waiting<P>>,
    bytes: usize,
    /// Copies and halves that are assigned to a carrier, and their bytes.
    bound: VecDeque<(Time, CarrierId, Message<P>)>,
    bound_bytes: usize,
    /// Received halves without their other half, oldest first.
    halves: VecDeque<Half<P>>,
    stale: Span,
    most_flows: u64,
    dropped: u64,
}

#[derive(Debug)]
struct Flow {
    /// Number of the next datagram to send.
    next: u32,
    /// Label of the last datagram, sent or received. `None` before the first one.
    label: Option<u8>,
    seen: Seen,
    carrier: Option<CarrierId>,
    /// Queued datagrams of the flow.
    waiting: u32,
    /// Queued datagrams of the flow that wait in the class of flows that fill the queue.
    many: u32,
    /// Path of the last received datagram.
    came: Option<PathId>,
}

#[derive(Debug)]
struct Half<P> {
    flow: FlowId,
    number: u32,
    second: bool,
    data: P,
}

#[derive(Debug)]
struct Waiting<P> {
    at: Time,
    flow: FlowId,
    label: u8,
    /// Whether the datagram waits in the class of flows that fill the queue.
    many: bool,
    peer: Target,
    data: P,
}

/// Treatment of a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Deliver,
    /// Received before.
    Repeated,
    /// The limit of flows is reached.
    Refused,
}

/// Received numbers: the largest, and a bitmap of the 128 numbers up to it.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    largest: u32,
    bits: u128,
}

impl Seen {
    /// Returns whether `number` was received before or is too old to tell.
    fn has(mut self, number: u32) -> bool {
        !self.is_first(number)
    }

    /// Records `number` and returns whether it is new. A number older than the bitmap counts as
    /// repeated.
    fn is_first(&mut self, number: u32) -> bool {
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
    pub(super) fn new(stale: Span, most_flows: u64) -> Self {
        Self {
            flows: HashMap::new(),
            waiting: Turns::new(),
            bytes: 0,
            bound: VecDeque::new(),
            bound_bytes: 0,
            halves: VecDeque::new(),
            stale,
            most_flows,
            dropped: 0,
        }
    }

    pub(super) fn push(&mut self, now: Time, flow: FlowId, label: u8, peer: Target, data: P) {
        if data.len() > 2 * MOST_PAYLOAD {
            self.dropped += 1;
            return;
        }
        let state = self.flows.entry(flow).or_insert_with(Flow::new);
        // After queued datagrams of the same class, because a change of class would reorder the
        // flow.
        let many = state.many > 0 || state.waiting >= FEW;
        state.waiting += 1;
        state.many += u32::from(many);
        self.bytes += data.len() + COST;
        let class = u16::from(label) << 1 | u16::from(many);
        self.waiting.add(class, Waiting { at: now, flow, label, many, peer, data });
        while self.bytes > MOST_WAITING {
            let oldest = self.waiting.firsts().min_by_key(|place| place.ticket);
            let Some(oldest) = oldest else { break };
            self.drop_one(oldest);
        }
    }

    /// Returns the priority of the next queued datagram, or `None` if the queue is empty.
    pub(super) fn priority(&self, treatment: impl Fn(u8) -> Option<Treatment>) -> Option<u8> {
        let places = self.waiting.firsts();
        places.map(|place| priority_of(place, &treatment)).max()
    }

    /// Removes `flow`. `None` if it did not exist, `Some(None)` if no datagram of it was sent or
    /// received.
    pub(super) fn close(&mut self, flow: FlowId) -> Option<Option<u8>> {
        if self.flows.get(&flow).is_some_and(|flow| flow.waiting > 0) {
            self.waiting.retain(|waiting| waiting.flow != flow);
        }
        self.bytes = self.waiting.iter().map(|waiting| waiting.data.len() + COST).sum();
        self.halves.retain(|half| half.flow != flow);
        self.flows.remove(&flow).map(|flow| flow.label)
    }

    /// Processes a datagram received over `path`.
    pub(super) fn receive(&mut self, path: PathId, id: FlowId, label: u8, number: u32) -> Verdict {
        let Some(flow) = self.flow(path, id, label) else { return Verdict::Refused };
        match flow.seen.is_first(number) {
            true => Verdict::Deliver,
            false => Verdict::Repeated,
        }
    }

    /// Processes a received half and returns the datagram once both halves are there.
    pub(super) fn receive_half(
        &mut self,
        path: PathId,
        id: FlowId,
        label: u8,
        number: u32,
        second: bool,
        data: P,
    ) -> Option<P> {
        let flow = self.flow(path, id, label)?;
        if flow.seen.has(number) {
            return None;
        }
        let find = |second: bool| {
            let is =
                move |half: &Half<P>| (half.flow, half.number, half.second) == (id, number, second);
            self.halves.iter().position(is)
        };
        if find(second).is_some() {
            return None;
        }
        let Some(half) = find(!second).and_then(|at| self.halves.remove(at)) else {
            if self.halves.len() >= MOST_HALVES {
                self.halves.pop_front();
            }
            self.halves.push_back(Half { flow: id, number, second, data });
            return None;
        };
        self.flow(path, id, label)?.seen.is_first(number);
        Some(if second { P::join(&half.data, &data) } else { P::join(&data, &half.data) })
    }

    fn flow(&mut self, path: PathId, id: FlowId, label: u8) -> Option<&mut Flow> {
        if self.flows.len() as u64 >= self.most_flows && !self.flows.contains_key(&id) {
            return None;
        }
        let flow = self.flows.entry(id).or_insert_with(Flow::new);
        flow.came = Some(path);
        flow.label = Some(label);
        Some(flow)
    }

    /// Returns the number of dropped datagrams since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Returns when the oldest queued datagram becomes stale.
    pub(super) fn next_wakeup(&self) -> Option<Time> {
        let firsts = self.waiting.firsts().filter_map(|place| self.waiting.from(place));
        firsts.map(|(_, first)| first.at + self.stale + Span::from_nanos(1)).min()
    }

    /// Returns the next datagram and the index of its carrier.
    pub(super) fn next(
        &mut self,
        now: Time,
        carriers: &[Carrier],
        schedulers: &mut Schedulers,
        treatment: impl Fn(u8) -> Option<Treatment>,
    ) -> Option<(usize, Message<P>)> {
        let mut firsts: Vec<Place> = self.waiting.firsts().collect();
        firsts.sort_by_key(|place| {
            (Reverse(priority_of(*place, &treatment)), place.class & 1, place.ticket)
        });
        firsts.into_iter().find_map(|first| {
            let (place, at, copies) = self.ready(now, first, carriers, schedulers, &treatment)?;
            self.take(now, place, at, &copies, carriers)
        })
    }

    /// Returns the first datagram of a class whose carrier has room, the index of that carrier, and
    /// the carriers that get a copy.
    fn ready(
        &mut self,
        now: Time,
        first: Place,
        carriers: &[Carrier],
        schedulers: &mut Schedulers,
        treatment: impl Fn(u8) -> Option<Treatment>,
    ) -> Option<(Place, usize, Vec<usize>)> {
        let all_suspect = carriers.iter().all(|carrier| carrier.suspect);
        let mut from = first;
        for _ in 0..MOST_LOOKED_AT {
            let (place, waiting) = self.waiting.from(from)?;
            from = Place { ticket: place.ticket + 1, ..place };
            let Waiting { flow, label, data, .. } = waiting;
            let Some(state) = self.flows.get_mut(flow) else { continue };
            // A flow without a known label responds on the path of its last received datagram.
            let treatment = treatment(*label).unwrap_or_else(|| Treatment {
                paths: state.came.map_or(PathSet::ALL, |path| PathSet::NONE.with(path)),
                ..Treatment::default()
            });
            let usable: Vec<(usize, View)> = carriers
                .iter()
                .enumerate()
                .filter(|(_, c)| treatment.paths.has(c.path) && (all_suspect || !c.suspect))
                .map(|(at, carrier)| (at, carrier.view(now)))
                .collect();
            let size = Size::from_bytes(data.len() as u64);
            let Some(at) = choose(state, carriers, &usable, schedulers, &treatment, size) else {
                continue;
            };
            let copies: Vec<usize> = match treatment.scheduler {
                Kind::Redundant => {
                    usable.iter().map(|(other, _)| *other).filter(|other| *other != at).collect()
                }
                _ => Vec::new(),
            };
            return Some((place, at, copies));
        }
        None
    }

    fn take(
        &mut self,
        now: Time,
        place: Place,
        at: usize,
        copies: &[usize],
        carriers: &[Carrier],
    ) -> Option<(usize, Message<P>)> {
        let Waiting { flow, label, peer, data, .. } = self.remove(place)?;
        let state = self.flows.get_mut(&flow)?;
        state.label = Some(label);
        let number = state.next;
        state.next = state.next.wrapping_add(1);
        let mut messages = Vec::new();
        for at in std::iter::once(at).chain(copies.iter().copied()) {
            let whole = data.clone();
            let datagram =
                Message::Datagram { flow, number, label, peer: peer.clone(), data: whole };
            // The header of a half has the same length as that of a whole datagram.
            let head = head_length(&datagram, data.len());
            let most = carriers[at]
                .condition
                .datagram
                .map_or(MOST_PAYLOAD, |most| most.saturating_sub(head).min(MOST_PAYLOAD));
            if data.len() <= most {
                messages.push((at, datagram));
                continue;
            }
            let middle = data.len().div_ceil(2);
            if middle > most {
                self.dropped += 1;
                continue;
            }
            for (second, data) in
                [(false, data.slice(0, middle)), (true, data.slice(middle, data.len()))]
            {
                let peer = peer.clone();
                messages.push((at, Message::Half { flow, number, second, label, peer, data }));
            }
        }
        let mut messages = messages.into_iter();
        let first = messages.next();
        for (at, message) in messages {
            self.bound_bytes += cost(&message);
            self.bound.push_back((now, carriers[at].id, message));
        }
        while self.bound_bytes > MOST_WAITING {
            self.unbind(0);
        }
        first
    }

    fn unbind(&mut self, index: usize) -> Option<(Time, CarrierId, Message<P>)> {
        let bound = self.bound.remove(index)?;
        self.bound_bytes -= cost(&bound.2);
        Some(bound)
    }

    /// Returns the next copy or half that is assigned to a carrier with room.
    pub(super) fn next_bound(
        &mut self,
        now: Time,
        carriers: &[Carrier],
    ) -> Option<(usize, Message<P>)> {
        // Ordered by time. Entries of a removed carrier also expire here.
        while self.bound.front().is_some_and(|(at, ..)| now.since(*at) > self.stale) {
            self.unbind(0);
        }
        let with_room = |id: CarrierId| {
            carriers.iter().position(|carrier| carrier.id == id && carrier.room > 0)
        };
        if self.bound.is_empty() || carriers.iter().all(|carrier| carrier.room == 0) {
            return None;
        }
        while let Some(index) = self.bound.iter().position(|(_, id, _)| with_room(*id).is_some()) {
            let (_, id, message) = self.unbind(index)?;
            let (at, payload) = (with_room(id)?, message.payload().map_or(0, Payload::len));
            let length = head_length(&message, payload) + payload;
            if carriers[at].condition.datagram.is_none_or(|most| length <= most) {
                return Some((at, message));
            }
            // The maximum datagram length of the carrier has decreased since the split.
            self.dropped += 1;
        }
        None
    }

    /// Drops datagrams that waited longer than `stale`.
    pub(super) fn drop_stale(&mut self, now: Time) {
        if self.waiting.is_empty() {
            return;
        }
        let firsts: Vec<Place> = self.waiting.firsts().collect();
        for first in firsts {
            while let Some((place, waiting)) = self.waiting.from(first)
                && now.since(waiting.at) > self.stale
            {
                self.drop_one(place);
            }
        }
    }

    fn drop_one(&mut self, place: Place) {
        self.dropped += u64::from(self.remove(place).is_some());
    }

    /// Removes a datagram from the queue and from the counters of its flow.
    fn remove(&mut self, place: Place) -> Option<Waiting<P>> {
        let waiting = self.waiting.take(place)?;
        self.bytes -= waiting.data.len() + COST;
        if let Some(flow) = self.flows.get_mut(&waiting.flow) {
            flow.waiting -= 1;
            flow.many -= u32::from(waiting.many);
        }
        Some(waiting)
    }
}

fn priority_of(place: Place, treatment: impl Fn(u8) -> Option<Treatment>) -> u8 {
    treatment((place.class >> 1) as u8).unwrap_or_default().priority
}

fn cost<P: Payload>(message: &Message<P>) -> usize {
    COST + message.payload().map_or(0, Payload::len)
}

/// Returns the index of the carrier for the flow's next datagram, or `None` if that carrier has no
/// room.
fn choose(
    flow: &mut Flow,
    carriers: &[Carrier],
    usable: &[(usize, View)],
    schedulers: &mut Schedulers,
    treatment: &Treatment,
    size: Size,
) -> Option<usize> {
    let with_room = |at: usize| (carriers[at].room > 0).then_some(at);
    let views = || -> Vec<View> { usable.iter().map(|(_, view)| *view).collect() };
    let job = Job { backlog: size, total: size, primary: treatment.primary };
    match treatment.scheduler {
        Kind::RoundRobin | Kind::MinRtt => {
            match schedulers.choose(treatment.scheduler, &job, &views()) {
                Choice::Send { at, .. } => with_room(usable[at].0),
                _ => None,
            }
        }
        Kind::Redundant => usable.iter().map(|(at, _)| *at).find(|at| carriers[*at].room > 0),
        Kind::Single | Kind::Ecf | Kind::BufferAware => {
            let primary = usable.iter().find(|(_, view)| Some(view.path) == treatment.primary);
            let kept = usable.iter().find(|(at, _)| Some(carriers[*at].id) == flow.carrier);
            let first = || match treatment.scheduler {
                Kind::Single => usable.first(),
                _ => usable.iter().min_by_key(|(_, view)| view.arrival()),
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
            next: 0,
            label: None,
            seen: Seen::default(),
            carrier: None,
            waiting: 0,
            many: 0,
            came: None,
        }
    }
}
