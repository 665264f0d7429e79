//! Signals of a file, as if a radio reported them now.

use manyways_model::select::Indicator;
use manyways_trace::signal::{Sample, Signal, SignalTrace};
use manyways_unit::Time;

use super::ledger::{Reading, Scope};
use super::{Feed, Ticker};

/// A trace that is repeated from a time on.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Playback {
    trace: SignalTrace,
    start: Time,
}

impl Playback {
    pub(super) fn new(trace: SignalTrace, start: Time) -> Self {
        Self { trace, start }
    }

    /// The signals at a time; `None` before the start.
    fn at(&self, now: Time) -> Option<&Sample> {
        (now >= self.start).then(|| self.trace.repeated_at(now.since(self.start)))
    }
}

/// Reports the signals at each poll.
pub(super) async fn run(feed: Feed, mut ticker: Ticker, network: String, playback: Playback) {
    loop {
        let now = feed.now();
        if let Some(sample) = playback.at(now) {
            feed.report(now, &network, &readings(sample), Scope::Complete);
        }
        if !ticker.pause().await {
            return;
        }
    }
}

/// The indicators of a sample.
pub(super) fn readings(sample: &Sample) -> [Reading; Signal::ALL.len()] {
    Signal::ALL.map(|signal| reading(signal, sample))
}

fn reading(signal: Signal, sample: &Sample) -> Reading {
    let indicator = match signal {
        Signal::Rssi => Indicator::Rssi,
        Signal::Rsrp => Indicator::Rsrp,
        Signal::Rsrq => Indicator::Rsrq,
        Signal::Snr => Indicator::Snr,
        Signal::Cqi => Indicator::Cqi,
    };
    (indicator, sample.get(signal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, millis: &[u64]) -> Vec<Option<f64>> {
        let trace = SignalTrace::parse(text.as_bytes()).unwrap();
        let playback = Playback::new(trace, Time::from_millis(10_000));
        let at = |millis: &u64| playback.at(Time::from_millis(*millis))?.get(Signal::Rssi);
        millis.iter().map(at).collect()
    }

    #[test]
    fn a_trace_is_repeated_from_its_start() {
        let text = "time,rssi\n5,-61\n6,-70\n8,-80\n";
        let times = [9_999, 10_000, 10_999, 11_000, 13_000, 14_999, 15_000, 16_000, 510_000];
        let found = at(text, &times);
        let expected = [
            None,
            Some(-61.0),
            Some(-61.0),
            Some(-70.0),
            Some(-80.0),
            Some(-80.0),
            Some(-61.0),
            Some(-70.0),
            Some(-61.0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_single_line_holds_for_ever() {
        let found = at("time,rssi\n5,-61\n", &[0, 10_000, 11_000, 99_500]);
        assert_eq!(found, [None, Some(-61.0), Some(-61.0), Some(-61.0)]);
    }
}
