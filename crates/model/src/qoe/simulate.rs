//! A player in virtual time over a trace of a network.
//!
//! The network is that of Sabre (Spiteri, Sitaraman, Sparacio, MMSys 2018): a request has one round trip
//! of latency, and then the segment arrives at the rate of the trace. There is no congestion control.

use manyways_unit::{Rate, Size, Span, Time};

use super::film::Film;
use super::player::{Config, Ending, Input, Output, Player, Session};

/// A part of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub duration: Span,
    pub rate: Rate,
    /// From a request to the first byte of its response.
    pub latency: Span,
}

/// A network, which repeats its periods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    periods: Vec<Period>,
    /// Start of each period.
    starts: Vec<Span>,
    /// Duration of all.
    duration: Span,
}

/// A trace that is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the trace of the network never carries a byte")]
pub struct CarriesNothing;

impl Network {
    /// Maximum number of periods; further ones are left out.
    const MAX_PERIODS: usize = 10_000_000;

    /// Creates a network. Periods without a duration are left out.
    ///
    /// # Errors
    /// No period has a rate.
    pub fn new(periods: impl IntoIterator<Item = Period>) -> Result<Self, CarriesNothing> {
        let lasting = periods.into_iter().filter(|period| !period.duration.is_zero());
        let periods: Vec<Period> = lasting.take(Self::MAX_PERIODS).collect();
        if periods.iter().all(|period| period.rate.is_zero()) {
            return Err(CarriesNothing);
        }
        let mut duration = Span::ZERO;
        let mut starts = Vec::with_capacity(periods.len());
        for period in &periods {
            starts.push(duration);
            duration += period.duration;
        }
        Ok(Self { periods, starts, duration })
    }

    /// A network that does not change.
    ///
    /// # Errors
    /// The rate is zero.
    pub fn constant(rate: Rate, latency: Span) -> Result<Self, CarriesNothing> {
        Self::new([Period { duration: Span::from_secs(3_600), rate, latency }])
    }

    /// The periods from a time on; the first one is cut.
    fn from(&self, time: Time) -> impl Iterator<Item = Period> + '_ {
        let into = Span::from_nanos(time.as_nanos() % self.duration.as_nanos());
        let index = self.starts.partition_point(|start| *start <= into).saturating_sub(1);
        let passed = into.saturating_sub(self.starts[index]);
        let first = self.periods[index];
        let left = first.duration.saturating_sub(passed);
        let rest = self.periods.iter().copied().cycle().skip(index + 1);
        std::iter::once(Period { duration: left, ..first }).chain(rest)
    }

    /// When the first byte of the response to a request arrives. If the latency changes meanwhile, each
    /// part of the round trip takes its own.
    fn first_byte(&self, request: Time) -> Time {
        let (mut at, mut left) = (request, 1.0);
        for period in self.from(request) {
            let needed = Span::from_secs_f64(left * period.latency.as_secs_f64());
            if needed <= period.duration {
                return at + needed;
            }
            at += period.duration;
            left -= period.duration.as_secs_f64() / period.latency.as_secs_f64();
        }
        at
    }

    /// When so many bits have arrived that began to arrive at `from`.
    fn arrival(&self, from: Time, bits: f64) -> Time {
        let (mut at, mut left) = (from, bits);
        for period in self.from(from) {
            let rate = period.rate.as_bps() as f64;
            let carried = rate * period.duration.as_secs_f64();
            if left <= carried {
                let nanos = if left > 0.0 { (left / rate * 1e9).ceil() } else { 0.0 };
                return at + Span::from_nanos(nanos as u64);
            }
            at += period.duration;
            left -= carried;
        }
        at
    }

    /// Bits that arrive between two times.
    fn bits(&self, from: Time, until: Time) -> f64 {
        let (mut left, mut bits) = (until.since(from), 0.0);
        for period in self.from(from) {
            let span = left.min(period.duration);
            bits += period.rate.as_bps() as f64 * span.as_secs_f64();
            left = left.saturating_sub(span);
            if left.is_zero() {
                break;
            }
        }
        bits
    }
}

/// A download that runs.
#[derive(Clone, Copy)]
struct Transfer {
    size: Size,
    first_byte: Time,
    complete: Time,
    is_begun: bool,
    /// The latest report of its progress, and when its bits began to arrive.
    reported: Time,
    since: Time,
}

impl Transfer {
    /// Time and bits from one report of progress to the next, at least.
    const INTERVAL: Span = Span::from_millis(50);
    const STEP: f64 = 12_000.0;

    fn new(network: &Network, bits: f64, now: Time) -> Self {
        let size = Size::from_bytes((bits / 8.0).round() as u64);
        let first_byte = network.first_byte(now);
        let complete = network.arrival(first_byte, size.as_bits() as f64);
        Self { size, first_byte, complete, is_begun: false, reported: now, since: first_byte }
    }

    /// The next event, and its time.
    fn next(&self, network: &Network) -> (Time, Input) {
        if !self.is_begun {
            return (self.first_byte, Input::FirstByte { size: Some(self.size) });
        }
        let at = network.arrival(self.since, Self::STEP).max(self.reported + Self::INTERVAL);
        if at >= self.complete {
            return (self.complete, Input::Complete(self.size));
        }
        let bytes = network.bits(self.first_byte, at) / 8.0;
        (at, Input::Received(Size::from_bytes(bytes as u64)))
    }
}

/// Plays a film from the beginning to the end.
pub fn play(film: &Film, config: &Config, network: &Network) -> (Session, Ending) {
    let mut player = Player::new(Time::ZERO, film.clone(), config.clone());
    let mut transfer: Option<Transfer> = None;
    let mut now = Time::ZERO;
    loop {
        while let Some(output) = player.poll(now) {
            match output {
                Output::Fetch { segment, rung } => {
                    transfer = Some(Transfer::new(network, film.bits(segment, rung), now));
                }
                Output::Cancel => transfer = None,
                Output::Finished(ending) => return (player.session(now), ending),
            }
        }
        if let Some(running) = &mut transfer {
            let (at, input) = running.next(network);
            match input {
                Input::FirstByte { .. } => running.is_begun = true,
                Input::Received(_) => (running.reported, running.since) = (at, at),
                Input::Complete(_) | Input::Failed => transfer = None,
            }
            now = at;
            player.handle(now, input);
        } else if let Some(wakeup) = player.next_wakeup() {
            now = now.max(wakeup);
        } else {
            // A player that neither fetches nor waits has ended.
            return (player.session(now), Ending::Played);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(seconds: u64, kbps: u64, latency: u64) -> Period {
        Period {
            duration: Span::from_secs(seconds),
            rate: Rate::from_kbps(kbps),
            latency: Span::from_millis(latency),
        }
    }

    #[test]
    fn bits_arrive_at_the_rate_of_each_period_and_the_trace_repeats() {
        let network =
            Network::new([period(1, 1_000, 0), period(2, 0, 0), period(0, 9, 0)]).unwrap();
        let from = Time::from_millis(500);
        assert_eq!(network.arrival(from, 500_000.0), Time::from_millis(1_000));
        assert_eq!(network.arrival(from, 600_000.0), Time::from_millis(3_100));
        assert_eq!(
            network.arrival(Time::from_millis(9_000), 1_000_000.0),
            Time::from_millis(10_000)
        );
        assert!((network.bits(from, Time::from_millis(3_100)) - 600_000.0).abs() < 1e-3);
    }

    #[test]
    fn a_round_trip_takes_the_latency_of_each_period() {
        let network = Network::new([period(1, 1, 2_000), period(9, 1, 100)]).unwrap();
        // Half of the way in the first period, the other half in the second one.
        assert_eq!(network.first_byte(Time::ZERO), Time::from_millis(1_050));
    }

    #[test]
    fn a_trace_without_a_rate_is_no_network() {
        assert_eq!(Network::new([period(5, 0, 1)]), Err(CarriesNothing));
        assert_eq!(Network::new([]), Err(CarriesNothing));
        assert_eq!(Network::new([period(0, 5, 1)]), Err(CarriesNothing));
    }
}
