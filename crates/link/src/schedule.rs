//! Events at a time, and events when a counter has reached a value.

use std::collections::BTreeMap;

use manyways_trace::scenario::Counter;
use manyways_unit::{Span, Time};

use crate::Stats;

/// Counters of one link that a condition may name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// IP bytes delivered to the device.
    pub down_bytes: u64,
    /// IP bytes delivered to the far side.
    pub up_bytes: u64,
    /// Packets towards the device that were dropped.
    pub down_dropped: u64,
    /// Packets from the device that were dropped.
    pub up_dropped: u64,
    /// Promotions of the radio; 0 if the link has no radio.
    pub promotions: u64,
}

impl Counters {
    /// Creates the counters of a link from those of its directions.
    pub fn new(down: &Stats, up: &Stats, promotions: u64) -> Self {
        Self {
            down_bytes: down.delivered.size.as_bytes(),
            up_bytes: up.delivered.size.as_bytes(),
            down_dropped: down.dropped_packets(),
            up_dropped: up.dropped_packets(),
            promotions,
        }
    }

    /// Returns one of the counters.
    pub fn get(&self, counter: Counter) -> u64 {
        match counter {
            Counter::DownBytes => self.down_bytes,
            Counter::UpBytes => self.up_bytes,
            Counter::DownDropped => self.down_dropped,
            Counter::UpDropped => self.up_dropped,
            Counter::Promotions => self.promotions,
        }
    }
}

/// A condition on a counter of a link of the schedule's owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threshold {
    /// Index of the link.
    pub link: usize,
    pub counter: Counter,
    /// The condition holds from this value on.
    pub least: u64,
}

/// A time or a condition for which an event waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    At(Time),
    When(Threshold),
}

/// Future events with their content. Events at the same time keep the order of their addition.
///
/// Add events with [`at`](Self::at) and [`when`](Self::when). Report counters with
/// [`observe`](Self::observe) after each change, as long as the schedule
/// [`is_waiting`](Self::is_waiting) for one, then take events from [`poll`](Self::poll), again at
/// [`next_wakeup`](Self::next_wakeup) at the latest.
#[derive(Clone, Debug)]
pub struct Schedule<T> {
    timed: BTreeMap<(Time, u64), T>,
    waiting: Vec<Waiting<T>>,
    added: u64,
}

#[derive(Clone, Debug)]
struct Waiting<T> {
    threshold: Threshold,
    delay: Span,
    event: T,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self { timed: BTreeMap::new(), waiting: Vec::new(), added: 0 }
    }
}

impl<T> Schedule<T> {
    /// Adds an event at a time.
    pub fn at(&mut self, time: Time, event: T) {
        self.timed.insert((time, self.added), event);
        self.added += 1;
    }

    /// Adds an event that happens `delay` after the first observation for which the condition
    /// holds.
    pub fn when(&mut self, threshold: Threshold, delay: Span, event: T) {
        self.waiting.push(Waiting { threshold, delay, event });
    }

    /// Removes the events for which `keeps` returns false. Returns their number.
    pub fn retain(&mut self, keeps: impl Fn(&T) -> bool) -> usize {
        let before = self.timed.len() + self.waiting.len();
        self.timed.retain(|_, event| keeps(event));
        self.waiting.retain(|waiting| keeps(&waiting.event));
        before - self.timed.len() - self.waiting.len()
    }

    /// Returns the events with what each waits for: those of a time first.
    pub fn iter(&self) -> impl Iterator<Item = (Due, &T)> {
        let timed = self.timed.iter().map(|((time, _), event)| (Due::At(*time), event));
        let waiting = self.waiting.iter();
        timed.chain(waiting.map(|waiting| (Due::When(waiting.threshold), &waiting.event)))
    }

    /// Whether an event waits for a counter.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Reports the counters of a link at `now`.
    pub fn observe(&mut self, now: Time, link: usize, counters: &Counters) {
        let holds = |waiting: &mut Waiting<T>| {
            let Threshold { link: of, counter, least } = waiting.threshold;
            of == link && counters.get(counter) >= least
        };
        let reached: Vec<_> = self.waiting.extract_if(.., holds).collect();
        for Waiting { delay, event, .. } in reached {
            self.at(now + delay, event);
        }
    }

    /// Returns the next event up to `now`, with its time. Call until `None`.
    pub fn poll(&mut self, now: Time) -> Option<(Time, T)> {
        let first = self.timed.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((time, _), event) = first.remove_entry();
        Some((time, event))
    }

    /// Returns the time of the next event; `None` if all events wait for a counter.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.timed.first_key_value().map(|((time, _), _)| *time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(link: usize, least: u64) -> Threshold {
        Threshold { link, counter: Counter::DownBytes, least }
    }

    fn all<T>(schedule: &mut Schedule<T>, now: u64) -> Vec<(u64, T)> {
        let next = || schedule.poll(Time::from_millis(now));
        std::iter::from_fn(next).map(|(at, event)| (at.as_nanos() / 1_000_000, event)).collect()
    }

    #[test]
    fn events_happen_at_their_times_in_the_order_of_addition() {
        let mut schedule = Schedule::default();
        for (at, name) in [(5, "b"), (3, "a"), (5, "c"), (9, "d")] {
            schedule.at(Time::from_millis(at), name);
        }
        assert_eq!(schedule.next_wakeup(), Some(Time::from_millis(3)));
        assert_eq!(all(&mut schedule, 2), []);
        assert_eq!(all(&mut schedule, 5), [(3, "a"), (5, "b"), (5, "c")]);
        assert_eq!(schedule.next_wakeup(), Some(Time::from_millis(9)));
        schedule.at(Time::from_millis(10), "e");
        schedule.when(bytes(0, 1), Span::ZERO, "f");
        schedule.when(bytes(0, 1), Span::ZERO, "g");
        let due = [Due::At(Time::from_millis(9)), Due::At(Time::from_millis(10))];
        let due = due.into_iter().chain([Due::When(bytes(0, 1)); 2]);
        assert!(schedule.iter().eq(due.zip(&["d", "e", "f", "g"])));
        assert_eq!(schedule.retain(|event| ["e", "g"].contains(event)), 2);
        schedule.observe(
            Time::from_millis(9),
            0,
            &Counters { down_bytes: 1, ..Counters::default() },
        );
        assert_eq!(all(&mut schedule, 99), [(9, "g"), (10, "e")]);
    }

    #[test]
    fn an_event_happens_once_when_its_counter_has_reached_the_value() {
        let mut schedule = Schedule::default();
        schedule.when(bytes(0, 1_000), Span::ZERO, "at once");
        schedule.when(bytes(0, 1_000), Span::from_millis(7), "later");
        schedule.when(bytes(1, 500), Span::ZERO, "other link");
        let seen = |down_bytes| Counters { down_bytes, up_bytes: 9_999, ..Counters::default() };
        schedule.observe(Time::from_millis(1), 0, &seen(999));
        assert!(schedule.is_waiting());
        assert_eq!((all(&mut schedule, 1), schedule.next_wakeup()), (vec![], None));
        schedule.observe(Time::from_millis(2), 0, &seen(1_000));
        assert_eq!(all(&mut schedule, 2), [(2, "at once")]);
        schedule.observe(Time::from_millis(3), 0, &seen(2_000));
        assert_eq!(all(&mut schedule, 9), [(9, "later")]);
        schedule.observe(Time::from_millis(9), 1, &seen(500));
        assert_eq!(all(&mut schedule, 9), [(9, "other link")]);
        assert!(!schedule.is_waiting());
    }

    #[test]
    fn each_counter_has_its_name() {
        let counters =
            Counters { down_bytes: 1, up_bytes: 2, down_dropped: 3, up_dropped: 4, promotions: 5 };
        let values = Counter::ALL.map(|counter| counters.get(counter));
        assert_eq!(values, [1, 2, 3, 4, 5]);
    }
}
