//! Inferred values as JSON. Fields are in alphabetical order.

use manyways_model::radio::gap_sweep::InferredTimer;
use manyways_model::radio::infer::Estimate;
use manyways_model::radio::powers::{Finding, Powers, Quantity};
use manyways_model::radio::profiles::Known;
use serde::Serialize;

use super::Inferred;

/// The output of `radio infer --json`.
#[derive(Debug, Serialize)]
pub struct Document {
    powers: Option<PowersDocument>,
    release: Option<Release>,
}

manyways_record::document!(Document, "manyways.radio-infer/2");

#[derive(Debug, Serialize)]
struct Release {
    no_timer: Option<String>,
    probes: usize,
    timers: Vec<TimerDocument>,
}

/// A timer in a document.
#[derive(Debug, Serialize)]
pub struct TimerDocument {
    completion: EstimateDocument,
    onset: EstimateDocument,
    promotion_seconds: f64,
    round_trip_seconds: f64,
    slow_above_seconds: f64,
    slow_shares: [f64; 3],
}

/// Infinite bounds are null: the longest gaps do not determine them.
#[derive(Debug, Serialize)]
struct EstimateDocument {
    least: f64,
    most: f64,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct PowersDocument {
    better_offset_seconds: Option<f64>,
    explained: f64,
    numbers: Vec<Number>,
    profile: String,
    sample_seconds: f64,
    window_seconds: f64,
    windows: usize,
}

#[derive(Debug, Serialize)]
struct Number {
    /// `told`, `vague`, `not-seen`, `not-apart`.
    found: &'static str,
    name: String,
    not_apart_from: Vec<String>,
    profile_value: f64,
    standard_error: Option<f64>,
    unbounded_value: Option<f64>,
    unit: &'static str,
    value: Option<f64>,
    whole_cycles_value: Option<f64>,
}

impl Document {
    /// `fitted` has the profile to whose states the powers were fitted.
    pub fn new(inferred: Option<&Inferred>, fitted: Option<(&Powers, &Known)>) -> Self {
        let release = |inferred: &Inferred| Release {
            no_timer: inferred.timers.as_ref().err().map(ToString::to_string),
            probes: inferred.probes,
            timers: timers(inferred.timers.as_deref().unwrap_or_default()),
        };
        Self {
            powers: fitted.map(|(powers, known)| powers_document(powers, known)),
            release: inferred.map(release),
        }
    }
}

fn powers_document(powers: &Powers, known: &Known) -> PowersDocument {
    let profile = &known.profile;
    let number = |(quantity, finding): &(Quantity, Finding)| {
        let told = powers.determined(*quantity);
        let (found, others) = match finding {
            Finding::Unobserved => ("not-seen", &[][..]),
            Finding::Indistinguishable(others) => ("not-apart", others.as_slice()),
            Finding::Determined(_) if profile.is_vague(powers, *quantity) => ("vague", &[][..]),
            Finding::Determined(_) => ("determined", &[][..]),
        };
        Number {
            found,
            name: profile.name_of(*quantity),
            not_apart_from: others.iter().map(|other| profile.name_of(*other)).collect(),
            profile_value: profile.value_in_trace(powers, *quantity),
            standard_error: told.map(|fitted| fitted.error),
            unbounded_value: told.map(|fitted| fitted.unbounded),
            unit: if quantity.is_power() { "W" } else { "J" },
            value: told.map(|fitted| fitted.value),
            whole_cycles_value: told.map(|fitted| fitted.whole_cycles()),
        }
    };
    PowersDocument {
        better_offset_seconds: powers.offset,
        explained: powers.explained_variance,
        numbers: powers.findings.iter().map(number).collect(),
        profile: known.name.clone(),
        sample_seconds: powers.sample_interval.as_secs_f64(),
        window_seconds: powers.window.as_secs_f64(),
        windows: powers.windows,
    }
}

/// The timers in documents, which have one entry for each.
pub fn timers(all: &[InferredTimer]) -> Vec<TimerDocument> {
    let estimate =
        |one: &Estimate| EstimateDocument { least: one.lower, most: one.upper, seconds: one.value };
    let timer = |timer: &InferredTimer| TimerDocument {
        completion: estimate(&timer.expiry.completion),
        onset: estimate(&timer.expiry.onset),
        promotion_seconds: timer.promotion_delay,
        round_trip_seconds: timer.round_trip,
        slow_above_seconds: timer.expiry.slow_threshold,
        slow_shares: timer.expiry.slow_shares,
    };
    all.iter().map(timer).collect()
}
