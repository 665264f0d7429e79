//! One direction of a link.

use std::collections::VecDeque;

use manyways_trace::scenario::{
    CapacitySpec, DelaySpec, DirectionSpec, Discipline, LinkState, LossSpec, QueueSpec,
};
use manyways_unit::{Random, Size, Span, Time};

use crate::capacity::{Capacity, Cursor, TraceClock, nanobits_of};
use crate::codel::Codel;
use crate::delay::Delay;
use crate::flight::{Arrival, Flight};
use crate::loss::Loss;
use crate::medium::Share;
use crate::packet::{Segment, Train};
use crate::queue::Queue;
use crate::{Cause, Output, Packet, Stats};

/// Emulates one direction of a link: packets wait in a queue, the wire carries them one after the
/// other, some are lost on it, the others arrive after a delay.
///
/// Pass packets to [`handle`](Self::handle), take outputs from [`poll`](Self::poll), and call
/// `poll` again at [`next_wakeup`](Self::next_wakeup) at the latest. Every method first advances
/// the pipe to its `now`, so that additional calls change neither the outputs nor their times. Time
/// must not go back: a `now` before the latest one is replaced by the latest one, except in `poll`,
/// which returns outputs due at the given time. Events at the same time have an order: departures
/// and delivery opportunities come first, then arrivals and changes.
///
/// # Capacity
/// All sizes are IP bytes.
/// - Unlimited: a packet departs when it arrives.
/// - A rate, constant or in steps: within a busy period the wire has carried `n` bits at the first
///   whole nanosecond by which the rate has offered `n`; rounding does not add up. A packet's bits
///   may straddle steps; a step of rate zero carries nothing.
/// - Delivery opportunities (Mahimahi): each delivers up to its size from the packets that wait at
///   that time. A packet larger than the remaining size continues with the next opportunity and
///   departs with its last byte. The remaining size serves the next waiting packet at once; bytes
///   without a waiting packet are lost. A packet that arrives at the time of an opportunity cannot
///   use it. An opportunity at exactly the period belongs to the end of that period.
///
/// All traces of a pipe share one position: zero at [`Time::ZERO`], or the position set by
/// [`restart`](Self::restart). They repeat after their period.
///
/// # Queue
/// The limit applies to waiting packets: a packet leaves the queue when its first bit can move. A
/// packet that finds the link idle always enters. A limit in time is time × rate (of a trace: its
/// mean rate), at least 1500 bytes; without a capacity there is no limit in time. Of a
/// super-packet, the leading segments that fit enter. Drop-tail drops the others. Drop-head drops
/// the oldest waiting segments until the arriving one fits, including segments of the same packet;
/// a segment that can never fit is dropped itself. CoDel follows RFC 8289 and drops the tail at the
/// limit.
///
/// # Loss and delay
/// Loss is drawn for each segment when it leaves the wire, so that lost packets use capacity. The
/// delay is the value of the trace at that time plus jitter, uniform within ± its span, and never
/// below zero. Unless the spec allows reordering, a packet arrives no earlier than the previous
/// one. Loss and jitter draw from separate streams of the seed.
///
/// # Down
/// A link that goes down drops the packets that wait, are being sent or are in flight, and then all
/// packets that arrive. A real modem that loses its bearer flushes its buffer. A link that kept its
/// packets would deliver segments, seconds later, that their sender has already retransmitted.
///
/// # Paused
/// A paused link starts no packet until its state changes; a packet that is being sent and
/// packets in flight continue. Arriving packets wait in the queue, within its limit.
///
/// # Delayed start
/// The owner of the pipe may know a reason why the wire cannot start, such as an idle radio:
/// [`pause_until`](Self::pause_until). Until then all arriving packets wait in the queue, within
/// its limit.
///
/// # Shared air
/// A [`Medium`](crate::medium::Medium) may leave the link a part of its capacity. Limits of the queue
/// in time remain those of the whole capacity.
#[derive(Clone, Debug)]
pub struct Pipe {
    now: Time,
    clock: TraceClock,
    state: LinkState,
    capacity_spec: CapacitySpec,
    capacity: Capacity,
    /// The part of the capacity that packets use.
    share: Share,
    /// Position up to which the capacity is used; meaningless while the link is idle.
    cursor: Cursor,
    /// The wire starts no packet before this time.
    paused_until: Time,
    /// Departure time of the latest packet.
    departed: Option<Time>,
    service: Option<Service>,
    queue_spec: QueueSpec,
    queue: Queue,
    codel: Option<Codel>,
    loss: Loss,
    delay: Delay,
    flight: Flight,
    /// Latest arrival time: the earliest one for the next packet, unless reordering is allowed.
    latest: Time,
    drops: Drops,
    stats: Stats,
}

/// The packet that is being sent.
#[derive(Clone, Copy, Debug)]
struct Service {
    segment: Segment,
    from: Cursor,
    /// Nano-bits of the whole capacity after `from`, more than the packet has if it uses a part.
    need: u128,
    /// Departure under the current capacity; `None` if never.
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

/// Drops that are counted but not yet reported, in the order of time.
#[derive(Clone, Debug, Default)]
struct Drops(VecDeque<Dropped>);

impl Drops {
    fn push(&mut self, stats: &mut Stats, dropped: Dropped) {
        if dropped.count == 0 {
            return;
        }
        stats.dropped_mut(dropped.cause).add(dropped.count, dropped.size);
        if let Some(back) = self.0.back_mut()
            && (back.at, back.id, back.cause) == (dropped.at, dropped.id, dropped.cause)
            && back.first + back.count == dropped.first
        {
            back.count += dropped.count;
            back.size += dropped.size;
        } else {
            self.0.push_back(dropped);
        }
    }
}

const LOSS_STREAM: u64 = 1;
const JITTER_STREAM: u64 = 2;

impl Pipe {
    /// Creates a link that is up and empty at [`Time::ZERO`], with its traces at their start.
    pub fn new(spec: &DirectionSpec, seed: u64) -> Self {
        let rate = Capacity::mean_rate(&spec.capacity);
        Self {
            now: Time::ZERO,
            clock: TraceClock::new(Time::ZERO, Span::ZERO),
            state: LinkState::Up,
            capacity_spec: spec.capacity.clone(),
            capacity: Capacity::new(&spec.capacity),
            share: Share::FULL,
            cursor: Cursor::START,
            paused_until: Time::ZERO,
            departed: None,
            service: None,
            queue_spec: spec.queue,
            queue: Queue::new(spec.queue, rate),
            codel: codel(spec.queue),
            loss: Loss::new(spec.loss, Random::for_purpose(seed, LOSS_STREAM)),
            delay: Delay::new(
                spec.delay.clone(),
                spec.jitter,
                Random::for_purpose(seed, JITTER_STREAM),
            ),
            flight: Flight::new(spec.reorder),
            latest: Time::ZERO,
            drops: Drops::default(),
            stats: Stats::default(),
        }
    }

    /// Accepts an arriving packet.
    pub fn handle(&mut self, now: Time, packet: Packet) {
        self.advance(now);
        let now = self.now;
        let mut train = Train { packet, first: 0, end: packet.segments, arrived: now };
        self.stats.arrived.add(train.count(), train.size());
        if !self.state.accepts() {
            self.drops.push(&mut self.stats, Dropped::train(now, train, Cause::Down));
            return;
        }
        while !train.is_empty() && self.is_idle() {
            let starts = self.paused_until <= now && self.state != LinkState::Paused;
            if starts && self.has_uniform_outcome() {
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

    /// Returns the next output up to `now`, in the order of time (at the same time, deliveries
    /// first). Consecutive segments of a packet that are due are returned together. Call until
    /// `None`.
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

    /// Returns the latest time of the next [`poll`](Self::poll) call; `None` if no output is
    /// pending.
    ///
    /// The result is never later than the next delivery. Drops may be reported with the delivery
    /// that follows them, so that a busy link needs one wake-up per packet, not two.
    pub fn next_wakeup(&self) -> Option<Time> {
        let arrival = self.flight.front().map(|arrival| arrival.at);
        let drop = self.drops.0.front().map(|drop| drop.at);
        let reported = [arrival, drop].into_iter().flatten().min();
        // Without reordering, a packet that has not departed cannot arrive before the packets in
        // flight.
        if arrival.is_some() && !self.flight.reorders() {
            return reported;
        }
        [reported, self.next_step()].into_iter().flatten().min()
    }

    /// Sets the position of all traces to `offset`. Packets in the pipe stay.
    pub fn restart(&mut self, now: Time, offset: Span) {
        self.change_capacity(now, |pipe| pipe.clock = TraceClock::new(pipe.now, offset));
    }

    /// Delays the start of the next packet until `until`; a time in the past ends the delay. The
    /// call replaces the previous one. A packet that is being sent continues. Delivery
    /// opportunities up to `until` are lost.
    pub fn pause_until(&mut self, now: Time, until: Time) {
        self.advance(now);
        self.paused_until = until.max(self.now);
    }

    /// Returns the last time, up to `now`, at which the wire was busy: `now` while a packet is
    /// being sent or waits for anything except the end of a [`pause_until`](Self::pause_until).
    /// `None` if never.
    pub fn last_busy(&mut self, now: Time) -> Option<Time> {
        self.advance(now);
        let is_busy =
            self.service.is_some() || !self.queue.is_empty() && self.paused_until <= self.now;
        if is_busy { Some(self.now) } else { self.departed }
    }

    /// Sets the capacity. A packet that is being sent continues with its remaining bytes. A queue
    /// with a limit in time takes its new size. A new trace starts at the position of the pipe's
    /// traces.
    pub fn set_capacity(&mut self, now: Time, spec: CapacitySpec) {
        self.change_capacity(now, |pipe| {
            pipe.capacity = Capacity::new(&spec);
            pipe.queue.set(pipe.queue_spec, Capacity::mean_rate(&spec));
            pipe.capacity_spec = spec;
        });
    }

    /// Sets the part of the capacity that packets use. A packet that is being sent continues with its
    /// remaining bits.
    pub(crate) fn set_share(&mut self, now: Time, share: Share) {
        if share != self.share {
            self.change_capacity(now, |pipe| pipe.share = share);
        }
    }

    /// Whether a packet is being sent, or waits for anything except the end of a pause, at `now`.
    pub(crate) fn is_busy(&mut self, now: Time) -> bool {
        self.advance(now);
        self.service.is_some()
            || !self.queue.is_empty()
                && self.paused_until <= self.now
                && self.state != LinkState::Paused
    }

    /// Returns the next time at which [`is_busy`](Self::is_busy) can change without a call.
    pub(crate) fn next_change(&self) -> Option<Time> {
        let starts =
            (self.paused_until > self.now && !self.queue.is_empty()).then_some(self.paused_until);
        [starts, self.next_step()].into_iter().flatten().min()
    }

    /// Sets the delay of packets that leave the wire from now on.
    pub fn set_delay(&mut self, now: Time, spec: DelaySpec) {
        self.advance(now);
        self.delay.set(spec);
    }

    /// Sets the jitter of packets that leave the wire from now on.
    pub fn set_jitter(&mut self, now: Time, jitter: Span) {
        self.advance(now);
        self.delay.set_jitter(jitter);
    }

    /// Sets whether packets that leave the wire from now on may be reordered.
    pub fn set_reorder(&mut self, now: Time, reorder: bool) {
        self.advance(now);
        self.latest = self.flight.set_reorder(reorder).unwrap_or_default().max(self.latest);
    }

    /// Sets the loss model for packets that leave the wire from now on.
    pub fn set_loss(&mut self, now: Time, spec: LossSpec) {
        self.advance(now);
        self.loss.set(spec);
    }

    /// Sets limit and discipline for packets that arrive from now on. Waiting packets stay, even if
    /// they exceed the new limit. The state of CoDel is reset.
    pub fn set_queue(&mut self, now: Time, spec: QueueSpec) {
        self.advance(now);
        self.queue_spec = spec;
        self.queue.set(spec, Capacity::mean_rate(&self.capacity_spec));
        self.codel = codel(spec);
    }

    /// Sets the link up or down, or pauses it. [`LinkState::Silent`] and [`LinkState::NoCarrier`]
    /// have the same effect.
    pub fn set_state(&mut self, now: Time, state: LinkState) {
        self.advance(now);
        let now = self.now;
        if std::mem::replace(&mut self.state, state) == LinkState::Paused {
            // The capacity until now is unused.
            self.paused_until = self.paused_until.max(now);
        }
        if state.accepts() {
            return;
        }
        for gone in self.flight.cut(now) {
            self.stats.in_flight.remove(gone.count, gone.size);
            let Arrival { id, first, count, size, .. } = gone;
            let dropped = Dropped { at: now, id, first, count, size, cause: Cause::Down };
            self.drops.push(&mut self.stats, dropped);
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

    /// Returns counters and current contents at the latest `now`.
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

    /// Whether all segments that find the link idle currently have the same outcome.
    fn has_uniform_outcome(&self) -> bool {
        matches!(self.capacity, Capacity::Unlimited)
            && self.codel.is_none()
            && self.loss.is_none()
            && !self.delay.has_jitter()
    }

    /// Returns the time at which the wire starts or finishes its next packet.
    fn next_step(&self) -> Option<Time> {
        match &self.service {
            Some(service) => service.done.map(|done| done.at),
            None if self.queue.is_empty() || self.state == LinkState::Paused => None,
            None => self.capacity.ready(self.clock, self.start()),
        }
    }

    /// Returns the position from which the wire can carry the next packet.
    fn start(&self) -> Cursor {
        match self.cursor.at < self.paused_until {
            true => self.capacity.begin(self.clock, self.paused_until),
            false => self.cursor,
        }
    }

    /// Processes all events of the wire up to `now`, in the order of time.
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
                self.start_next(at);
            }
        }
    }

    /// Starts sending the next packet.
    fn start_next(&mut self, at: Time) {
        self.cursor = self.start();
        let Self { queue, codel, drops, stats, .. } = self;
        let next = match codel {
            None => queue.pop(),
            Some(codel) => codel.dequeue(at, queue, |gone| {
                drops.push(stats, Dropped::segment(at, gone, Cause::Aqm));
            }),
        };
        self.service = next.map(|segment| {
            let need = self.share.of_whole(nanobits_of(segment.size), Share::FULL);
            let done = self.capacity.carry(self.clock, self.cursor, need);
            Service { segment, from: self.cursor, need, done }
        });
    }

    /// Processes segments that leave the wire together.
    fn depart(&mut self, at: Time, id: u64, first: u32, count: u32, size: Size) {
        // Drawn for lost packets too, so that loss does not change the jitter of other packets.
        let mut arrival = self.delay.arrival(self.clock, at);
        self.departed = Some(at);
        if self.loss.draw() {
            let dropped = Dropped { at, id, first, count, size, cause: Cause::Loss };
            self.drops.push(&mut self.stats, dropped);
            return;
        }
        if !self.flight.reorders() {
            arrival = arrival.max(self.latest);
            self.latest = arrival;
        }
        self.stats.in_flight.add(count, size);
        self.flight.push(Arrival { at: arrival, id, first, count, size });
    }

    /// Applies a change of the capacity.
    fn change_capacity(&mut self, now: Time, change: impl FnOnce(&mut Self)) {
        self.advance(now);
        let share = self.share;
        let sent =
            self.service.map(|service| self.capacity.offered(self.clock, service.from, self.now));
        change(self);
        self.cursor = self.capacity.begin(self.clock, self.now);
        if let (Some(service), Some(sent)) = (&mut self.service, sent) {
            service.need = self.share.of_whole(service.need.saturating_sub(sent), share);
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
