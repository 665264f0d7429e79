//! Events in the order of their times, although packets are delivered late.

use std::vec::Drain;

use manyways_unit::Time;

use super::super::event::RadioEvent;

/// Events that are not reported yet, because an earlier one can still follow.
#[derive(Debug, Default)]
pub(super) struct EventOrder(Vec<(Time, RadioEvent)>);

impl EventOrder {
    pub(super) fn push(&mut self, at: Time, event: RadioEvent) {
        let index = self.0.partition_point(|(earlier, _)| *earlier <= at);
        self.0.insert(index, (at, event));
    }

    /// Time of the earliest event.
    pub(super) fn first(&self) -> Option<Time> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Removes the events at the times that are `due`, which later times must not be if an earlier
    /// one is not.
    pub(super) fn take(&mut self, due: impl Fn(Time) -> bool) -> Drain<'_, (Time, RadioEvent)> {
        let end = self.0.partition_point(|(at, _)| due(*at));
        self.0.drain(..end)
    }
}

#[cfg(test)]
mod tests {
    use manyways_unit::Span;

    use super::*;

    /// A command ends after a packet that the kernel delivers later.
    #[test]
    fn times_do_not_go_back() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let mut events = EventOrder::default();
        let times = |events: &mut EventOrder, until| -> Vec<Time> {
            events.take(|time| time <= at(until)).map(|(time, _)| time).collect()
        };
        events.push(at(1_558), RadioEvent::RadioDown);
        assert_eq!(times(&mut events, 1_508), []);
        events.push(at(1_535), RadioEvent::RadioBond { up: true });
        assert_eq!(events.first(), Some(at(1_535)));
        events.push(at(1_600), RadioEvent::RadioDown);
        assert_eq!(times(&mut events, 1_558), [at(1_535), at(1_558)]);
        assert_eq!(events.first(), Some(at(1_600)));
    }
}
