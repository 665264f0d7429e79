//! The throughput of a carrier, as the published PAMS uses it: a moving average of the delivery rate.
//!
//! The window per round trip overstates it while the application sends less than the window permits.
//! Such a time shows nothing of the path, and is left out. TCP_INFO has a rate of its own with a flag
//! for that; it is of the last ACKs only, so acknowledged bytes are counted here.

use manyways_unit::{Rate, Size, Span, Time};

use super::carrier::TransportInfo;

/// Minimum length of a measurement; at least a round trip.
const MIN_LENGTH: Span = Span::from_millis(20);
/// Weight of a measurement: one in this number.
const WEIGHT: u64 = 4;

#[derive(Debug, Default)]
pub(super) struct DeliveryRate {
    /// Start of a measurement, and the bytes that were acknowledged then.
    start: Option<(Time, u64)>,
    /// Zero if there is no measurement.
    rate: Rate,
}

impl DeliveryRate {
    /// Processes the state of the transport.
    pub(super) fn observe(&mut self, now: Time, info: &TransportInfo) {
        // Without the bytes in flight, `acknowledged` may count something else.
        let is_limited_by_path = info.in_flight.is_some() && !info.unsent.is_zero();
        if !is_limited_by_path {
            self.start = None;
            return;
        }
        let &mut (since, from) = self.start.get_or_insert((now, info.acknowledged));
        let length = now.since(since);
        if length < info.rtt.max(MIN_LENGTH) {
            return;
        }
        let bytes = info.acknowledged.saturating_sub(from);
        let measured = Rate::of(Size::from_bytes(bytes), length);
        self.rate = match self.rate.is_zero() {
            true => measured,
            false => average(self.rate, measured),
        };
        self.start = Some((now, info.acknowledged));
    }

    /// Returns the average; the window per round trip while there is no measurement.
    pub(super) fn rate(&self, info: &TransportInfo) -> Rate {
        if self.rate.is_zero() { info.rate } else { self.rate }
    }
}

fn average(before: Rate, measured: Rate) -> Rate {
    let sum = u128::from(before.as_bps()) * u128::from(WEIGHT - 1) + u128::from(measured.as_bps());
    Rate::from_bps(u64::try_from(sum / u128::from(WEIGHT)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a transport for this time, of which `kbps` are acknowledged and `unsent` bytes wait.
    fn run(
        rate: &mut DeliveryRate,
        info: &mut TransportInfo,
        now: &mut Time,
        millis: u64,
        kbps: u64,
    ) {
        for _ in 0..millis {
            *now += Span::from_millis(1);
            info.acknowledged += kbps / 8;
            rate.observe(*now, info);
        }
    }

    #[test]
    fn it_is_measured_only_where_the_path_is_the_limit() {
        let (mut rate, mut now) = (DeliveryRate::default(), Time::from_millis(1));
        let mut info = TransportInfo::initial(Span::from_millis(50));
        info.rate = Rate::from_mbps(20);
        run(&mut rate, &mut info, &mut now, 1_000, 800);
        assert_eq!(rate.rate(&info), Rate::from_mbps(20), "the application sends little");
        info.unsent = Size::from_kib(10);
        run(&mut rate, &mut info, &mut now, 2_000, 8_000);
        let measured = rate.rate(&info).as_bps();
        assert!((7_900_000..8_100_000).contains(&measured), "{measured}");
        info.unsent = Size::ZERO;
        run(&mut rate, &mut info, &mut now, 2_000, 400);
        assert_eq!(rate.rate(&info).as_bps(), measured);
    }

    #[test]
    fn it_follows_within_some_round_trips() {
        let (mut rate, mut now) = (DeliveryRate::default(), Time::from_millis(1));
        let mut info = TransportInfo::initial(Span::from_millis(50));
        info.unsent = Size::from_kib(10);
        run(&mut rate, &mut info, &mut now, 1_000, 8_000);
        run(&mut rate, &mut info, &mut now, 60, 1_600);
        assert!(rate.rate(&info) > Rate::from_mbps(6), "{}", rate.rate(&info));
        run(&mut rate, &mut info, &mut now, 800, 1_600);
        assert!(rate.rate(&info) < Rate::from_mbps(2), "{}", rate.rate(&info));
    }
}
