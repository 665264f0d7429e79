//! Packets at equal intervals, for which the energies have a closed form.

use manyways_model::radio::{Outcome, profiles, workload};
use manyways_unit::Span;
use serde::Serialize;

use super::speed::simulate;

/// Pings at one interval on one carrier.
#[derive(Clone, Debug, Serialize)]
pub struct Ping {
    pub operator: String,
    pub interval_seconds: u64,
    /// Share of the tail energy that Oracle saves, by the closed form.
    pub oracle: f64,
    /// Share that MakeIdle saves, by simulation.
    pub makeidle: f64,
    pub context: f64,
    /// Maximum relative difference between simulation and closed form, for the energies of the
    /// network's timers and of Oracle.
    pub difference: f64,
}

/// Powers, timers and switch energy as published, independent of the profiles.
const OPERATORS: [(&str, [f64; 2], [f64; 2], f64); 4] = [
    ("att-hspa", [0.916, 0.659], [6.2, 10.4], 1.10),
    ("tmobile-3g", [0.445, 0.343], [3.2, 16.3], 0.857 * 0.445 * 3.6),
    ("verizon-3g", [1.130, 1.130], [9.8, 0.0], 0.857 * 1.130 * 1.2),
    ("verizon-lte", [1.325, 0.0], [10.2, 0.0], 0.857 * 1.325 * 0.6),
];

/// Simulates pings every 5 to 60 s, in steps of 5 s, with each operator.
pub fn pings() -> Vec<Ping> {
    let each = OPERATORS.iter().flat_map(|operator| (1..=12).map(move |n| (operator, 5 * n)));
    each.filter_map(|(operator, interval)| ping(operator, interval)).collect()
}

fn ping(
    (name, power, timers, switch): &(&str, [f64; 2], [f64; 2], f64),
    interval: u64,
) -> Option<Ping> {
    const BEATS: u64 = 400;
    let profile = profiles::named(name)?.ok()?;
    let packets = || {
        workload::heartbeats(
            Span::from_secs(interval),
            100,
            Span::from_secs(interval * (BEATS - 1)),
        )
    };
    let run = |policy| simulate(&profile, policy, packets()).ok();
    let gap = interval as f64;
    let awake = [gap.min(timers[0]), (gap - timers[0]).clamp(0.0, timers[1])];
    let tail: f64 = awake.iter().zip(power).map(|(secs, watts)| secs * watts).sum();
    let is_released = gap > timers[0] + timers[1];
    let stay = tail + if is_released { *switch } else { 0.0 };
    // The radio is idle before the first packet and after the last one: one more switch.
    let whole: f64 = timers.iter().zip(power).map(|(secs, watts)| secs * watts).sum();
    let status_quo = switch + (BEATS - 1) as f64 * stay + whole;
    let oracle = switch + (BEATS - 1) as f64 * stay.min(*switch);
    let (simulated, knows) = (run("status-quo")?, run("oracle")?);
    let difference = |simulated: f64, closed: f64| (simulated / closed - 1.0).abs();
    let difference = difference(simulated.account.total(), status_quo)
        .max(difference(knows.account.total(), oracle));
    let saved = |outcome: &Outcome| {
        (simulated.account.total() - outcome.account.total()) / simulated.account.tail_energy()
    };
    Some(Ping {
        operator: (*name).to_owned(),
        interval_seconds: interval,
        oracle: 1.0 - oracle / status_quo,
        makeidle: saved(&run("makeidle")?),
        context: saved(&run("context")?),
        difference,
    })
}
