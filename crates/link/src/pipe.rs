//! One direction of a link.

use std::collections::VecDeque;

use manyways_trace::scenario::{
    CapacitySpec, DelaySpec, DirectionSpec, Discipline, LinkState, LossSpec, QueueSpec,
};
use manyways_unit::{Random, Size, Span, Time};

use crate::capacity::{Capacity, Cursor, TraceClock, need_of};
use crate::codel::Codel;
use crate::delay::Delay;
use crate::flight::{Arrival, Flight};
use crate::loss::Loss;
use crate::packet::{Segment, Train};
use crate::queue::Queue;
use crate::{Cause, Output, Packet, Stats};

/// What one direction of a link does to packets: they wait in a queue, the wire carries them one
/// after the other, some are lost on it, the others arrive after a delay.
///
/// Feed it with [`handle`](Self::handle), drain it with [`poll`](Self::poll), and call `poll` again
/// at [`next_wakeup`](Self::next_wakeup) at the latest. Every method first brings the pipe to its
/// `now`, so that calling more often never changes what happens or when. Time must not go back: an
/// earlier `now` counts as the latest one seen, but for `poll`, which gives what is due by its own.
/// Of what falls on the same moment, departures and delivery opportunities come first, then arrivals
/// and changes.
///
/// # Capacity
/// All sizes are IP bytes.
/// - Unlimited: a packet departs when it arrives.
/// - A rate, constant or in steps: within a busy period the wire has carried `n` bits at the first
///   whole nanosecond by which the rate has offered `n`; rounding does not add up. A packet's bits
///   may straddle steps; a step of rate zero carries nothing.
/// - Delivery opportunities (Mahimahi's): each delivers up to its size to what waits at that
///   moment. A packet that is larger than what is left goes on with the next opportunity and
///   departs with its last byte; what is left serves the next waiting packet at once; bytes that
///   nobody waits for are lost. A packet that arrives at the moment of an opportunity is too late
///   for it. An opportunity at exactly the period belongs to the end of that lap.
///
/// All traces of a pipe share one position: zero at [`Time::ZERO`], or what
/// [`restart`](Self::restart) said. They repeat after their period.
///
/// # Queue
/// The limit counts what waits: a packet leaves the queue when its first bit can move. A packet that
/// finds the link idle always enters. A limit in time is time × rate (of a trace: its mean rate),
/// at least 1500 bytes; without a capacity there is no limit in time. Of a super-packet, the
/// leading segments that fit enter. Drop-tail drops the rest. Drop-head drops the oldest waiting
/// segments until the arriving one fits, which may be others of the same packet; one that could
/// never fit is dropped itself. CoDel follows RFC 8289 and drops the tail at the limit.
///
/// # Loss and delay
/// Loss is drawn for each segment as it leaves the wire, so that lost packets use capacity. The
/// delay is the trace's value at that moment, plus jitter, uniform within ± its span, and never
/// below zero. Unless the spec allows reordering, a packet arrives no earlier than the one before
/// it. Loss and jitter draw from separate streams of the seed.
///
/// # Down
/// A link that goes down drops what waits, what is being sent and what is in flight, and then all
/// that arrives. A modem that loses its bearer flushes its buffer, and what was in the air
/// finds nobody: a link that kept its packets would deliver, seconds later, segments that their
/// sender has long repeated.
///
/// # Held
/// Who owns the pipe may know of something that keeps the wire from starting, such as a radio that is
/// asleep: [`hold`](Self::hold). Until then all that arrives waits in the queue, within its limit.
#[derive(Clone, Debug)]
pub struct Pipe {
    now: Time,
    clock: TraceClock,
    state: LinkState,
    capacity_spec: CapacitySpec,
    capacity: Capacity,
    /// Up to where the capacity is used; meaningless while the link is idle.
    cursor: Cursor,
    /// The wire takes nothing up before this.
    held: Time,
    /// When the latest packet left the wire.
    departed: Option<Time>,
    service: Option<Service>,
    queue_spec: QueueSpec,
    queue: Queue,
    codel: Option<Codel>,
    loss: Loss,
    delay: Delay,
    flight: Flight,
    /// When the latest packet arrives: the earliest moment for the next one, if in order.
    latest: Time,
    drops: Drops,
    stats: Stats,
}

/// The packet that is being sent.
#[derive(Clone, Copy, Debug)]
struct Service {
    segment: Segment,
    from: Cursor,
    /// Nano-bits after `from`.
    need: u128,
    /// When it departs under the present capacity.
    done: Option<Cursor>,
}

/// Consecutive segments of one packet that were dropped together.
#[derive(Clone, Copy, Debug)]
struct Dropped {
    at: Time,
    id: u64,
    first: u32,
    count: u32,
    size: Size,
    cause: Cause,
}

impl Dropped {
    fn train(at: Time, train: Train, cause: Cause) -> Self {
        let (first, count, size) = (train.first, train.count(), train.size());
        Self { at, id: train.packet.id, first, count, size, cause }
    }

    fn segment(at: Time, segment: Segment, cause: Cause) -> Self {
        Self { at, id: segment.id, first: segment.index, count: 1, size: segment.size, cause }
    }
}

/// Drops that are counted and wait to be reported, in the order of time.
#[derive(Clone, Debug, Default)]
struct Drops(VecDeque<Dropped>);

impl Drops {
    fn push(&mut self, stats: &mut Stats, gone: Dropped) {
        if gone.count == 0 {
            return;
        }
        stats.dropped_mut(gone.cause).add(gone.count, gone.size);
        if let Some(back) = self.0.back_mut()
            && (back.at, back.id, back.cause) == (gone.at, gone.id, gone.cause)
            && back.first + back.count == gone.first
        {
            back.count += gone.count;
            back.size += gone.size;
        } else {
            self.0.push_back(gone);
        }
    }
}

const LOSS_STREAM: u64 = 1;
const JITTER_STREAM: u64 = 2;

impl Pipe {
    /// A link that is up and empty at [`Time::ZERO`], with its traces at their start.
    pub fn new(spec: &DirectionSpec, seed: u64) -> Self {
        let rate = Capacity::mean_rate(&spec.capacity);
        Self {
            now: Time::ZERO,
            clock: TraceClock::new(Time::ZERO, Span::ZERO),
            state: LinkState::Up,
            capacity_spec: spec.capacity.clone(),
            capacity: Capacity::new(&spec.capacity),
            cursor: Cursor::START,
            held: Time::ZERO,
            departed: None,
            service: None,
            queue_spec: spec.queue,
            queue: Queue::new(spec.queue, rate),
            codel: codel(spec.queue),
            loss: Loss::new(spec.loss, Random::stream(seed, LOSS_STREAM)),
            delay: Delay::new(spec.delay.clone(), spec.jitter, Random::stream(seed, JITTER_STREAM)),
            flight: Flight::new(spec.reorder),
            latest: Time::ZERO,
            drops: Drops::default(),
            stats: Stats::default(),
        }
    }

    /// `packet` arrives.
    pub fn handle(&mut self, now: Time, packet: Packet) {
        self.advance(now);
        let now = self.now;
        let mut train = Train { packet, first: 0, end: packet.segments, arrived: now };
        self.stats.arrived.add(train.count(), train.size());
        if self.state != LinkState::Up {
            self.drops.push(&mut self.stats, Dropped::train(now, train, Cause::Down));
            return;
        }
        while !train.is_empty() && self.is_idle() {
            if self.held <= now && self.passes_at_once() {
                self.depart(now, train.packet.id, train.first, train.count(), train.size());
                return;
            }
            self.cursor = self.capacity.begin(self.clock, now);
            self.queue.push(train.split_front(1));
            self.advance(now);
        }
        let Self { queue, drops, stats, .. } = self;
        queue.admit(train, |gone| drops.push(stats, Dropped::train(now, gone, Cause::Queue)));
    }

    /// The next thing that happened up to `now`, in the order of time (at the same moment,
    /// deliveries first), with the moment at which it happened. Consecutive segments of a packet
    /// that are due come as one. Call it until it returns none.
    pub fn poll(&mut self, now: Time) -> Option<Output> {
        self.advance(now);
        let drop_at = self.drops.0.front().map(|drop| drop.at);
        let deliver_at = self.flight.front().map(|arrival| arrival.at).filter(|at| *at <= now);
        if let Some(at) = drop_at
            && at <= now
            && deliver_at.is_none_or(|deliver_at| at < deliver_at)
        {
            let Dropped { at, id, first, count, cause, .. } = self.drops.0.pop_front()?;
            return Some(Output::Drop { at, id, first, count, cause });
        }
        deliver_at?;
        let mut whole = self.flight.pop()?;
        while let Some(next) = self.flight.front()
            && next.at <= now
            && drop_at.is_none_or(|drop_at| next.at <= drop_at)
            && whole.join(next)
        {
            self.flight.pop();
        }
        let Arrival { at, id, first, count, size } = whole;
        self.stats.in_flight.remove(count, size);
        self.stats.delivered.add(count, size);
        Some(Output::Deliver { at, id, first, count })
    }

    /// When to call [`poll`](Self::poll) at the latest; none while nothing would happen.
    ///
    /// It is never later than the next delivery. Drops may be reported with the delivery that
    /// follows them, so that a busy link needs one wake-up a packet, not two.
    pub fn next_wakeup(&self) -> Option<Time> {
        let arrival = self.flight.front().map(|arrival| arrival.at);
        let drop = self.drops.0.front().map(|drop| drop.at);
        let reported = [arrival, drop].into_iter().flatten().min();
        // In order, nobody who has yet to depart arrives before those in flight.
        if arrival.is_some() && !self.flight.reorders() {
            return reported;
        }
        [reported, self.next_step()].into_iter().flatten().min()
    }

    /// All traces stand at `offset` from now on. Packets inside stay.
    pub fn restart(&mut self, now: Time, offset: Span) {
        self.change_capacity(now, |pipe| pipe.clock = TraceClock::new(pipe.now, offset));
    }

    /// The wire takes up no packet before `until`; with a moment that is over, it does from now on.
    /// This replaces what was said before. The packet that is being sent goes on. Where the wire has
    /// opportunities, those up to then are lost.
    pub fn hold(&mut self, now: Time, until: Time) {
        self.advance(now);
        self.held = until.max(self.now);
    }

    /// When the wire was last busy, up to `now`: that very moment while a packet is being sent or waits
    /// for anything but the end of a [`hold`](Self::hold); none if never.
    pub fn last_busy(&mut self, now: Time) -> Option<Time> {
        self.advance(now);
        let is_busy = self.service.is_some() || !self.queue.is_empty() && self.held <= self.now;
        if is_busy { Some(self.now) } else { self.departed }
    }

    /// A new capacity. The packet that is being sent goes on with what is left of it; a queue with a
    /// limit in time takes its new size. A trace stands where all traces of the pipe stand.
    pub fn set_capacity(&mut self, now: Time, spec: CapacitySpec) {
        self.change_capacity(now, |pipe| {
            pipe.capacity = Capacity::new(&spec);
            pipe.queue.set(pipe.queue_spec, Capacity::mean_rate(&spec));
            pipe.capacity_spec = spec;
        });
    }

    /// A new delay, for packets that leave the wire from now on.
    pub fn set_delay(&mut self, now: Time, spec: DelaySpec) {
        self.advance(now);
        self.delay.set(spec);
    }

    /// A new jitter, for packets that leave the wire from now on.
    pub fn set_jitter(&mut self, now: Time, jitter: Span) {
        self.advance(now);
        self.delay.set_jitter(jitter);
    }

    /// Whether packets that leave the wire from now on may overtake each other.
    pub fn set_reorder(&mut self, now: Time, reorder: bool) {
        self.advance(now);
        self.latest = self.flight.set_reorder(reorder).unwrap_or_default().max(self.latest);
    }

    /// A new loss, for packets that leave the wire from now on.
    pub fn set_loss(&mut self, now: Time, spec: LossSpec) {
        self.advance(now);
        self.loss.set(spec);
    }

    /// A new limit and discipline, for packets that arrive from now on: those that wait stay, even
    /// where they are more than the new limit. CoDel starts afresh.
    pub fn set_queue(&mut self, now: Time, spec: QueueSpec) {
        self.advance(now);
        self.queue_spec = spec;
        self.queue.set(spec, Capacity::mean_rate(&self.capacity_spec));
        self.codel = codel(spec);
    }

    /// Up or down; here [`LinkState::Silent`] and [`LinkState::NoCarrier`] do the same.
    pub fn set_state(&mut self, now: Time, state: LinkState) {
        self.advance(now);
        self.state = state;
        if state == LinkState::Up {
            return;
        }
        let now = self.now;
        for gone in self.flight.cut(now) {
            self.stats.in_flight.remove(gone.count, gone.size);
            let Arrival { id, first, count, size, .. } = gone;
            let gone = Dropped { at: now, id, first, count, size, cause: Cause::Down };
            self.drops.push(&mut self.stats, gone);
        }
        if let Some(Service { segment, .. }) = self.service.take() {
            self.drops.push(&mut self.stats, Dropped::segment(now, segment, Cause::Down));
        }
        while let Some(train) = self.queue.pop_all() {
            self.drops.push(&mut self.stats, Dropped::train(now, train, Cause::Down));
        }
        self.codel = codel(self.queue_spec);
        self.latest = now;
    }

    /// Counters and what is inside, as of the latest `now`.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats;
        stats.backlog = self.queue.waiting();
        if let Some(service) = &self.service {
            stats.backlog.add(1, service.segment.size);
        }
        stats
    }

    fn is_idle(&self) -> bool {
        self.service.is_none() && self.queue.is_empty()
    }

    /// Whether segments that find the link idle all do the same thing now.
    fn passes_at_once(&self) -> bool {
        matches!(self.capacity, Capacity::Unlimited)
            && self.codel.is_none()
            && self.loss.is_none()
            && !self.delay.has_jitter()
    }

    /// When the wire takes up or finishes its next packet.
    fn next_step(&self) -> Option<Time> {
        match &self.service {
            Some(service) => service.done.map(|done| done.at),
            None if self.queue.is_empty() => None,
            None => self.capacity.ready(self.clock, self.start()),
        }
    }

    /// From where on the wire can carry the next packet.
    fn start(&self) -> Cursor {
        match self.cursor.at < self.held {
            true => self.capacity.begin(self.clock, self.held),
            false => self.cursor,
        }
    }

    /// Does all that happens on the wire up to `now`, in the order of time.
    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(at) = self.next_step()
            && at <= self.now
        {
            if let Some(Service { segment, done: Some(done), .. }) = self.service {
                self.service = None;
                self.cursor = done;
                self.depart(at, segment.id, segment.index, 1, segment.size);
            } else {
                self.take_up(at);
            }
        }
    }

    /// The wire takes up the next packet.
    fn take_up(&mut self, at: Time) {
        self.cursor = self.start();
        let Self { queue, codel, drops, stats, .. } = self;
        let next = match codel {
            None => queue.pop(),
            Some(codel) => codel.dequeue(at, queue, |gone| {
                drops.push(stats, Dropped::segment(at, gone, Cause::Aqm));
            }),
        };
        self.service = next.map(|segment| {
            let need = need_of(segment.size);
            let done = self.capacity.carry(self.clock, self.cursor, need);
            Service { segment, from: self.cursor, need, done }
        });
    }

    /// Segments leave the wire together.
    fn depart(&mut self, at: Time, id: u64, first: u32, count: u32, size: Size) {
        // Drawn for lost packets too, so that loss does not shift the jitter of the others.
        let mut arrival = self.delay.arrival(self.clock, at);
        self.departed = Some(at);
        if self.loss.draw() {
            let gone = Dropped { at, id, first, count, size, cause: Cause::Loss };
            self.drops.push(&mut self.stats, gone);
            return;
        }
        if !self.flight.reorders() {
            arrival = arrival.max(self.latest);
            self.latest = arrival;
        }
        self.stats.in_flight.add(count, size);
        self.flight.push(Arrival { at: arrival, id, first, count, size });
    }

    /// Applies a change of what the wire can carry.
    fn change_capacity(&mut self, now: Time, change: impl FnOnce(&mut Self)) {
        self.advance(now);
        let sent =
            self.service.map(|service| self.capacity.offered(self.clock, service.from, self.now));
        change(self);
        self.cursor = self.capacity.begin(self.clock, self.now);
        if let (Some(service), Some(sent)) = (&mut self.service, sent) {
            service.need = service.need.saturating_sub(sent);
            service.from = self.cursor;
            service.done = self.capacity.carry(self.clock, self.cursor, service.need);
        }
    }
}

fn codel(spec: QueueSpec) -> Option<Codel> {
    match spec.discipline {
        Discipline::Codel { target, interval } => Some(Codel::new(target, interval)),
        Discipline::DropTail | Discipline::DropHead => None,
    }
}

#[cfg(test)]
mod tests;
