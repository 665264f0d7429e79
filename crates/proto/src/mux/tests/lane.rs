//! One direction of an emulated carrier: ordered and reliable, with a rate and a delay.

use std::collections::VecDeque;

use manyways_unit::{Rate, Size, Span, Time};

use crate::mux::TransportInfo;

/// A path between client and gateway.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub rate: Rate,
    pub rtt: Span,
    /// Delay of the queue at the bottleneck that the transport fills.
    pub queue: Span,
}

/// Unsent bytes in a kernel, as set by TCP_NOTSENT_LOWAT.
const UNSENT: usize = 16 << 10;

/// Items of type `T` in flight.
#[derive(Debug)]
pub struct Lane<T> {
    /// Time at which all previous items are sent.
    free_at: Time,
    items: VecDeque<InFlight<T>>,
    /// Bytes of the items in flight.
    bytes: usize,
    delivered: u64,
    /// Time that the last delivered item waited at the bottleneck.
    delay: Span,
}

#[derive(Debug)]
struct InFlight<T> {
    arrival: Time,
    departure: Time,
    size: usize,
    item: T,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self {
            free_at: Time::ZERO,
            items: VecDeque::new(),
            bytes: 0,
            delivered: 0,
            delay: Span::ZERO,
        }
    }
}

impl<T> Lane<T> {
    pub fn submit(&mut self, now: Time, link: &Link, size: usize, item: T) {
        self.free_at = self.free_at.max(now) + link.rate.time_for(Size::from_bytes(size as u64));
        let (departure, arrival) =
            (departure(now, self.free_at, link), self.free_at + half(link.rtt));
        self.bytes += size;
        self.items.push_back(InFlight { arrival, departure, size, item });
    }

    /// Removes and returns the next item if it has arrived, with its size.
    pub fn take_arrived(&mut self, now: Time) -> Option<(usize, T)> {
        self.items.front().filter(|first| first.arrival <= now)?;
        self.take_next()
    }

    /// Removes and returns the next item, whether or not it has arrived.
    pub fn take_next(&mut self) -> Option<(usize, T)> {
        let InFlight { size, item, departure, arrival } = self.items.pop_front()?;
        self.delay = arrival.since(departure);
        self.bytes -= size;
        self.delivered += size as u64;
        Some((size, item))
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        (self.bytes, self.free_at) = (0, Time::ZERO);
        self.items.clear();
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns the times of the next arrival and of the next departure, which makes room.
    pub fn next_events(&self, now: Time) -> [Option<Time>; 2] {
        let room = self.items.get(self.departed(now)).map(|next| next.departure);
        [self.items.front().map(|first| first.arrival), room]
    }

    /// Sends all items again after a time in which all of them were lost.
    pub fn resend(&mut self, now: Time, link: &Link) {
        let mut at = now;
        for item in &mut self.items {
            at += link.rate.time_for(Size::from_bytes(item.size as u64));
            (item.departure, item.arrival) = (departure(now, at, link), at + half(link.rtt));
        }
        self.free_at = at;
    }

    /// Returns the state of the transport, and the bytes that it accepts. `is_silent` is whether
    /// all items are lost now; `hides_in_flight` is whether the transport does not report its bytes
    /// in flight.
    pub fn report(
        &self,
        now: Time,
        link: &Link,
        is_silent: bool,
        hides_in_flight: bool,
        max_datagram: Option<usize>,
    ) -> (TransportInfo, usize) {
        let unsent = match is_silent && !hides_in_flight {
            true => self.bytes,
            false => self.items.range(self.departed(now)..).map(|item| item.size).sum(),
        };
        let in_flight = Size::from_bytes((self.bytes - unsent) as u64);
        let info = TransportInfo {
            rtt: link.rtt.max(half(link.rtt) + self.delay),
            min_rtt: link.rtt,
            rtt_var: Span::from_millis(2),
            congestion_window: link.rate.size_in(link.rtt + link.queue) + Size::from_bytes(14_480),
            slow_start: false,
            in_flight: (!hides_in_flight).then_some(in_flight),
            unsent: Size::from_bytes(unsent as u64),
            rate: link.rate,
            acknowledged: self.delivered,
            sent: self.delivered + in_flight.as_bytes(),
            max_datagram,
        };
        (info, UNSENT.saturating_sub(unsent))
    }

    /// Returns the number of items that have departed.
    fn departed(&self, now: Time) -> usize {
        self.items.partition_point(|item| item.departure <= now)
    }
}

/// The time at which an item leaves that the bottleneck has sent at `sent`.
fn departure(now: Time, sent: Time, link: &Link) -> Time {
    now.max(Time::ZERO + sent.since(Time::ZERO + link.queue))
}

pub fn half(span: Span) -> Span {
    Span::from_nanos(span.as_nanos() / 2)
}
