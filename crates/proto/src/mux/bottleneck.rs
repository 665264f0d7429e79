//! Estimates the queue at the bottleneck that a carrier's own bytes have filled.
//!
//! A congestion window above the bandwidth-delay product fills the queue before the bottleneck. The
//! smoothed RTT shows this queue one round trip late and only in part. The bytes in flight show it
//! at once: divided by the rate of the bottleneck, they give the time to drain. The rate is
//! measured from consecutive ACKs while the RTT shows a standing queue; without a queue, the ACK
//! rate does not show the capacity of the bottleneck.

use std::collections::VecDeque;

use manyways_unit::{Rate, Size, Span, Time};

use super::carrier::TransportInfo;

/// Number of rates of which the median is taken. An application-limited run of ACKs is too slow,
/// and a run of compressed ACKs is too fast.
const RATE_SAMPLES: usize = 9;
/// Minimum length of a rate measurement.
const MIN_MEASUREMENT: Span = Span::from_millis(2);

/// Estimate of the bottleneck rate of a path.
#[derive(Debug, Default)]
pub(super) struct Bottleneck {
    /// Start of the current run of ACKs: its time and the acknowledged bytes.
    ack_run: Option<(Time, u64)>,
    /// Time of the last ACK.
    last_ack_at: Time,
    /// Whether the last round trip was longer than the minimum RTT.
    is_queued: bool,
    rates: VecDeque<Rate>,
    /// Median of `rates`; zero if there are none.
    rate: Rate,
}

impl Bottleneck {
    /// Processes a new condition of the transport. `rtt` is the round-trip time of the last newly
    /// acknowledged packet, or `None` if unknown.
    pub(super) fn observe(
        &mut self,
        now: Time,
        before: &TransportInfo,
        info: &TransportInfo,
        rtt: Option<Span>,
    ) {
        // Without the bytes in flight, there is no evidence of a queue.
        let is_told = info.in_flight.is_some();
        if !is_told || info.acknowledged <= before.acknowledged {
            return;
        }
        let step = MIN_MEASUREMENT.max(Span::from_nanos(info.min_rtt.as_nanos() / 8));
        if let Some(rtt) = rtt {
            self.is_queued = rtt > info.min_rtt + step;
        }
        let is_in_row = now.since(self.last_ack_at) < step;
        let is_quiet = info.bytes_in_flight().is_zero() && info.unsent.is_zero();
        if is_quiet {
            // The capacity may have changed during a pause.
            self.rates.clear();
            self.rate = Rate::ZERO;
        }
        self.last_ack_at = now;
        let Some((since, from)) = self.ack_run.filter(|_| is_in_row && !is_quiet) else {
            self.ack_run = Some((now, info.acknowledged));
            return;
        };
        if now.since(since) < step {
            return;
        }
        self.ack_run = Some((now, info.acknowledged));
        if self.is_queued {
            let bytes = Size::from_bytes(info.acknowledged - from);
            self.rates.push_back(Rate::of(bytes, now.since(since)));
            if self.rates.len() > RATE_SAMPLES {
                self.rates.pop_front();
            }
            self.rate = median(self.rates.iter().copied().collect());
        }
    }

    /// Returns the time until `bytes` (in flight and unsent) have arrived if all of them pass the
    /// bottleneck; zero if its rate is unknown.
    pub(super) fn drain_time(&self, info: &TransportInfo, bytes: Size) -> Span {
        if self.rate.is_zero() {
            return Span::ZERO;
        }
        // The ACK arrives half a round trip after the data.
        let back = Span::from_nanos(info.min_rtt.as_nanos() / 2);
        self.rate.time_for(bytes).saturating_sub(back)
    }
}

fn median(mut rates: Vec<Rate>) -> Rate {
    rates.sort();
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(50);
    const PACKET: u64 = 1_000;

    /// A transport with a bottleneck of one packet per millisecond, 8 Mbit/s.
    struct Transport {
        bottleneck: Bottleneck,
        info: TransportInfo,
    }

    impl Transport {
        fn new() -> Self {
            let mut condition = TransportInfo::initial(RTT);
            condition.in_flight = Some(Size::from_bytes(PACKET));
            Self { bottleneck: Bottleneck::default(), info: condition }
        }

        /// `packets` are acknowledged, the last one with a round-trip time of `rtt` ms.
        fn report(&mut self, at: u64, packets: u64, trip: Option<u64>) {
            let before = self.info;
            self.info.acknowledged += packets * PACKET;
            let rtt = trip.map(Span::from_millis);
            self.bottleneck.observe(Time::from_millis(at), &before, &self.info, rtt);
        }

        fn drain_time(&self, packets: u64) -> Span {
            self.bottleneck.drain_time(&self.info, Size::from_bytes(packets * PACKET))
        }
    }

    #[test]
    fn what_fills_a_queue_takes_as_long_as_its_link_needs() {
        let mut transport = Transport::new();
        for at in 0..40 {
            transport.report(at, 1, Some(50 + at));
        }
        // The last of 100 packets is acknowledged after 100 ms, and arrived half an RTT before
        // that.
        assert_eq!(transport.drain_time(100), Span::from_millis(75));
        assert_eq!(transport.drain_time(10), Span::ZERO, "the path holds more");
        // The rate is also known from merged ACKs, and without departure times.
        let mut transport = Transport::new();
        transport.report(0, 5, Some(80));
        for at in 1..20 {
            transport.report(5 * at, 5, None);
        }
        assert_eq!(transport.drain_time(100), Span::from_millis(75));
    }

    #[test]
    fn what_was_not_held_up_says_nothing_of_the_link() {
        let mut transport = Transport::new();
        for at in 0..400 {
            // For example a call.
            transport.report(5 * at, 1, Some(51));
        }
        assert_eq!(transport.drain_time(100), Span::ZERO);
    }

    #[test]
    fn acknowledgements_that_were_held_up_do_not_change_the_rate() {
        let mut transport = Transport::new();
        for burst in 0..20 {
            let start = 60 * burst;
            for at in start..start + 20 {
                transport.report(at, 1, Some(70));
            }
            // Compressed ACKs, as of a link with twice the rate.
            transport.report(start + 22, 3, Some(70));
            transport.report(start + 24, 1, Some(70));
            transport.report(start + 29, 13, Some(70));
        }
        assert_eq!(transport.drain_time(100), Span::from_millis(75));
    }

    #[test]
    fn a_pause_between_bursts_is_no_time_that_the_link_took() {
        let mut transport = Transport::new();
        for burst in 0..20 {
            // Too short to measure.
            for at in 0..6 {
                transport.report(60 * burst + at, 1, Some(70));
            }
        }
        assert_eq!(transport.drain_time(100), Span::ZERO);
    }

    #[test]
    fn a_link_that_becomes_slower_is_noticed() {
        let mut transport = Transport::new();
        for at in 0..100 {
            transport.report(at, 1, Some(70));
        }
        for at in 0..20 {
            transport.report(100 + 4 * at, 1, Some(90));
        }
        assert!(
            transport.drain_time(100) > Span::from_millis(350),
            "{}",
            transport.drain_time(100)
        );
    }

    #[test]
    fn what_was_known_before_a_pause_is_forgotten() {
        let mut transport = Transport::new();
        for at in 0..40 {
            transport.report(at, 1, Some(70));
        }
        transport.info.in_flight = Some(Size::ZERO);
        transport.report(40, 1, Some(70));
        assert_eq!(transport.drain_time(100), Span::ZERO);
    }

    #[test]
    fn who_does_not_say_what_is_on_its_way_is_not_judged() {
        let mut transport = Transport::new();
        transport.info.in_flight = None;
        transport.info.unsent = Size::from_bytes(PACKET);
        for at in 0..100 {
            transport.report(at, 1, Some(90));
        }
        assert_eq!(transport.drain_time(100), Span::ZERO);
    }
}
