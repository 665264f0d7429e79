//! The rate of an interface while it is busy.

use std::collections::VecDeque;

use manyways_unit::{Rate, Size, Span, Time};

/// A transfer has at least these bytes between two polls.
const MIN_BYTES: Size = Size::from_kib(16);
/// Smaller packets on average are those of calls, games or acknowledgments, not of a transfer.
const MIN_PACKET: u64 = 700;
/// In a shorter interval, a few packets that waited together are a high rate. It is added to the next.
const MIN_INTERVAL: Span = Span::from_millis(200);
/// Between polls that are farther apart, the host may have been suspended.
const MAX_INTERVAL: Span = Span::from_secs(30);

/// The counters of an interface since its creation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    pub received_bytes: u64,
    pub received_packets: u64,
    pub sent_bytes: u64,
    pub sent_packets: u64,
}

/// Reads the rate of transfers from counters of an interface.
///
/// A rate is that between two polls, and counts if the interface was busy also in the intervals
/// before and behind: in those, a transfer may have begun or ended. It is a lower bound of the
/// capacity: counters do not show that an application limits itself.
#[derive(Clone, Debug, Default)]
pub struct BusyMeter {
    last: Option<(Time, Traffic)>,
    /// Up to three intervals that follow each other.
    intervals: VecDeque<Interval>,
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    end: Time,
    /// `None`: not busy.
    rate: Option<Rate>,
}

impl BusyMeter {
    /// Takes the counters; returns a rate with the end of the interval to which it belongs.
    pub fn on_counters(&mut self, at: Time, now: Traffic) -> Option<(Time, Rate)> {
        if self.last.is_some_and(|(then, _)| at < then + MIN_INTERVAL) {
            return None;
        }
        let (then, before) = self.last.replace((at, now))?;
        let Some(rate) = rate(at.since(then), &before, &now) else {
            self.intervals.clear();
            return None;
        };
        self.intervals.push_back(Interval { end: at, rate });
        if self.intervals.len() > 3 {
            self.intervals.pop_front();
        }
        let is_busy = self.intervals.iter().all(|interval| interval.rate.is_some());
        let middle = self.intervals.get(1).filter(|_| self.intervals.len() == 3 && is_busy)?;
        Some((middle.end, middle.rate?))
    }
}

/// The rate of a transfer in its main direction, or `Some(None)` without one. `None` if the counters
/// are not comparable.
fn rate(interval: Span, before: &Traffic, now: &Traffic) -> Option<Option<Rate>> {
    if interval > MAX_INTERVAL {
        return None;
    }
    let direction = |bytes: Option<u64>, packets: Option<u64>| {
        let (bytes, packets) = (bytes?, packets?);
        let is_busy = bytes >= MIN_BYTES.as_bytes() && bytes / packets.max(1) >= MIN_PACKET;
        Some(is_busy.then(|| Rate::of(Size::from_bytes(bytes), interval)))
    };
    // A counter that decreases belongs to another interface of the same name.
    let down = direction(
        now.received_bytes.checked_sub(before.received_bytes),
        now.received_packets.checked_sub(before.received_packets),
    )?;
    let up = direction(
        now.sent_bytes.checked_sub(before.sent_bytes),
        now.sent_packets.checked_sub(before.sent_packets),
    )?;
    Some(down.max(up))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates in Mbit/s after polls every 500 ms, in each of which these bytes and packets were
    /// received.
    fn rates(polls: &[(u64, u64)]) -> Vec<(usize, u64, f64)> {
        let (mut meter, mut counters) = (BusyMeter::default(), Traffic::default());
        let mut found = Vec::new();
        for (index, (bytes, packets)) in polls.iter().enumerate() {
            counters.received_bytes += bytes;
            counters.received_packets += packets;
            counters.sent_bytes += packets * 66;
            counters.sent_packets += packets;
            let at = Time::from_millis(index as u64 * 500);
            if let Some((end, rate)) = meter.on_counters(at, counters) {
                found.push((index, end.as_nanos() / 1_000_000, rate.as_mbps_f64()));
            }
        }
        found
    }

    #[test]
    fn a_rate_counts_between_busy_intervals() {
        let (idle, full, half) = ((0, 0), (1_250_000, 850), (400_000, 270));
        assert_eq!(
            rates(&[idle, half, full, full, half, idle, idle]),
            [(3, 1_000, 20.0), (4, 1_500, 20.0)]
        );
        assert_eq!(rates(&[idle, full, idle, full, full, idle]), []);
    }

    #[test]
    fn calls_and_acknowledgments_are_not_busy() {
        assert_eq!(rates(&[(50_000, 250); 8]), []);
        assert_eq!(rates(&[(15_000, 10); 8]), []);
        assert_eq!(rates(&[(17_000, 12); 4]).len(), 1);
    }

    #[test]
    fn a_new_interface_or_a_suspended_host_starts_again() {
        let mut meter = BusyMeter::default();
        let mut poll = |millis: u64, bytes: u64| {
            let counters =
                Traffic { sent_bytes: bytes, sent_packets: bytes / 1_400, ..Traffic::default() };
            meter.on_counters(Time::from_millis(millis), counters).is_some()
        };
        let polls = [(0, 9), (1_000, 10), (2_000, 11), (3_000, 12), (4_000, 0), (5_000, 1)];
        let found: Vec<_> = polls.iter().map(|(at, mib)| poll(*at, mib << 20)).collect();
        assert_eq!(found, [false, false, false, true, false, false]);
        let polls = [(6_000, 2), (7_000, 3), (99_000, 4), (99_500, 5), (100_000, 6), (100_500, 7)];
        let found: Vec<_> = polls.iter().map(|(at, mib)| poll(*at, mib << 20)).collect();
        assert_eq!(found, [false, true, false, false, false, true]);
    }

    #[test]
    fn a_short_interval_is_added_to_the_next() {
        let mut meter = BusyMeter::default();
        let mut poll = |millis: u64, kilobytes: u64| {
            let received = kilobytes * 1_000;
            let traffic = Traffic {
                received_bytes: received,
                received_packets: received / 1_400,
                ..Traffic::default()
            };
            let found = meter.on_counters(Time::from_millis(millis), traffic);
            found.map(|(_, rate)| rate.as_mbps_f64())
        };
        let polls = [(0, 0), (500, 500), (1_000, 1_000), (1_010, 1_100), (1_500, 1_500)];
        let found: Vec<_> = polls.iter().map(|(at, total)| poll(*at, *total)).collect();
        assert_eq!(found, [None, None, None, None, Some(8.0)]);
        assert_eq!([poll(2_000, 2_000), poll(2_500, 2_500)], [Some(8.0); 2]);
    }
}
