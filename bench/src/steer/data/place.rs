//! A place: two networks for some minutes, and the signals that they show.

use manyways_model::select::Indicator;
use manyways_rig::links::link;
use manyways_trace::scenario::{CapacitySpec, LinkSpec};
use manyways_trace::{LinkTrace, Steps};
use manyways_unit::{Random, Rate, Span};

/// Names of the networks, in the order of all arrays of two.
pub const NETWORKS: [&str; 2] = ["wifi", "lte"];
/// Rate up of all links: no recording has one.
const UP: Rate = Rate::from_mbps(10);
/// Ranges from which a place draws the round trips of Wi-Fi and LTE with empty queues (the
/// specification of `steer`).
const ROUND_TRIPS: [(Span, Span); 2] = [
    (Span::from_millis(15), Span::from_millis(60)),
    (Span::from_millis(35), Span::from_millis(120)),
];
/// Seconds after which a transfer ends without success; it then counts as this long.
pub const LONGEST: u64 = 120;
/// Seconds between decisions; the first one is this late too, so that probes fit before it.
const DECISION_INTERVAL: u64 = 10;

/// A place.
#[derive(Clone, Debug)]
pub struct Place {
    pub name: String,
    /// Places of one group are either all in training or all in test.
    pub group: String,
    /// Length in seconds; the traces repeat after their own periods.
    pub seconds: u64,
    pub links: [LinkSpec; 2],
    pub signals: [Signals; 2],
}

/// The signals of a network in each second; they repeat. Empty if nothing is known.
#[derive(Clone, Debug, Default)]
pub struct Signals(pub Vec<Vec<(Indicator, f64)>>);

impl Place {
    /// Creates a place with round trips from `random` and drop-tail queues of 150 ms.
    pub fn new(
        name: String,
        group: String,
        seconds: u64,
        down: [CapacitySpec; 2],
        random: &mut Random,
    ) -> Self {
        let round_trips = ROUND_TRIPS.map(|(low, high)| {
            Span::from_secs_f64(between(random, low.as_secs_f64(), high.as_secs_f64()))
        });
        let [wifi, lte] = down;
        let links = [
            link(NETWORKS[0], wifi, UP, round_trips[0]),
            link(NETWORKS[1], lte, UP, round_trips[1]),
        ];
        Self { name, group, seconds, links, signals: Default::default() }
    }

    /// The seconds at which a network is chosen.
    pub fn decisions(&self) -> impl Iterator<Item = u64> + use<> {
        (DECISION_INTERVAL..self.seconds).step_by(DECISION_INTERVAL as usize)
    }
}

impl Signals {
    /// The signals of the last whole second before `second`.
    pub fn before(&self, second: u64) -> &[(Indicator, f64)] {
        let length = self.0.len().max(1) as u64;
        self.0.get((second.saturating_sub(1) % length) as usize).map_or(&[], Vec::as_slice)
    }
}

/// A uniform number.
pub fn between(random: &mut Random, low: f64, high: f64) -> f64 {
    low + (high - low) * random.uniform()
}

/// A capacity with one rate per second, at least one. Repeats.
pub fn capacity(source: &str, rates: Vec<Rate>) -> Result<CapacitySpec, String> {
    let at = |second: usize| Span::from_secs(second as u64);
    let period = at(rates.len());
    let steps = rates.into_iter().enumerate().map(|(second, rate)| (at(second), rate));
    let steps = Steps::new(steps.collect(), period).map_err(|why| format!("{source}: {why}"))?;
    Ok(CapacitySpec::Trace { source: source.to_owned(), trace: LinkTrace::Rates(steps) })
}
