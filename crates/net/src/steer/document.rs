//! The JSON documents of `manyways steer status` and `manyways steer why`. `docs/steer.md` describes them.

use manyways_model::select::{
    Decider, Decision, Goal, Indicator, Known, Lane, LaneState, SelectionReason, Sizes, Source,
    Specificity, Steering,
};
use manyways_unit::Time;
use serde::{Deserialize, Serialize};

use super::source::{SourceKind, SourceStatus};

/// The status of a running `manyways steer run`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SteerStatus {
    /// Version of manyways.
    pub version: String,
    pub uptime_seconds: f64,
    /// Whether the networks of new flows are chosen, beside those of bonds.
    pub chooses_new_flows: bool,
    pub networks: Vec<NetworkDocument>,
    pub choices: Vec<ChoiceDocument>,
    pub preferences: Vec<PreferenceDocument>,
    /// Faults that last: one sentence each.
    pub faults: Vec<String>,
}

manyways_record::document!(SteerStatus, "manyways.steer-status/1");

/// The explanation of a decision about one transfer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SteerWhy {
    pub host: Option<String>,
    pub app: Option<String>,
    pub sizes: SizesDocument,
    pub networks: Vec<NetworkDocument>,
    /// `None` if no network can be used.
    pub decision: Option<DecisionDocument>,
    /// Networks that carry new flows now.
    pub new_flows: Vec<String>,
}

manyways_record::document!(SteerWhy, "manyways.steer-why/1");

/// The result of `manyways steer prefer`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SteerPreference {
    /// The network that is preferred from now on; `None` for none.
    pub network: Option<String>,
    /// Only for this application.
    pub app: Option<String>,
    /// 0 at the end of a preference.
    pub seconds: f64,
    /// Why this ends with the process: one sentence.
    pub warning: Option<String>,
}

manyways_record::document!(SteerPreference, "manyways.steer-preference/1");

/// The sizes that a decision expects.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SizesDocument {
    pub median_bytes: u64,
    /// Where they come from: `request`, `app-and-host`, `host`, `app`, `all`, or `default` if nothing is
    /// known.
    pub source: String,
    /// Bytes and probabilities, at most 64.
    pub distribution: Vec<(u64, f64)>,
}

/// A network.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NetworkDocument {
    pub network: String,
    /// `wifi`, `cellular`, `ethernet` or `other`.
    pub kind: String,
    /// Why it cannot be used: one sentence. `None` if it can.
    pub unusable: Option<String>,
    /// Whether bytes cost money.
    pub metered: bool,
    pub indicators: Vec<IndicatorDocument>,
    /// Why sources of indicators are silent: one sentence each.
    pub silent_sources: Vec<String>,
    /// Whether it is probed, and why.
    pub probing: String,
    /// Why the last probe has no result.
    pub probe_missing: Option<String>,
    /// Bytes of probes this month, and their limit.
    pub probe_bytes: u64,
    pub probe_limit_bytes: Option<u64>,
    /// Used and elapsed share of the data plan.
    pub plan_used: Option<f64>,
    pub plan_elapsed: Option<f64>,
}

/// A value of an indicator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct IndicatorDocument {
    pub name: String,
    pub value: f64,
    pub age_seconds: f64,
    /// `signal`, `probe` or `traffic`.
    pub source: String,
}

/// The networks of flows, and the last decision.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ChoiceDocument {
    /// `new-flows`, or the goal of streams of a bond.
    pub flows: String,
    /// Empty: the host's own routes apply.
    pub networks: Vec<String>,
    pub since_seconds: f64,
    pub decision: Option<DecisionDocument>,
}

/// A network that the user prefers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PreferenceDocument {
    pub network: String,
    pub app: Option<String>,
    pub remaining_seconds: f64,
}

/// A decision and its reasons.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DecisionDocument {
    /// Exponents of the objective, with battery and plan.
    pub speed: f64,
    pub energy: f64,
    pub money: f64,
    pub at_least_bps: Option<u64>,
    /// The networks that were taken.
    pub networks: Vec<String>,
    /// `best`, `fast-enough`, `none-fast-enough`, `kept` or `dwelling`.
    pub reason: String,
    /// The second best choice; with `kept` and `dwelling`, the best one.
    pub runner_up: Option<Vec<String>>,
    /// That the choice is better than the runner-up.
    pub probability: f64,
    /// The network that the user prefers.
    pub preferred: Option<String>,
    pub choices: Vec<RatedDocument>,
}

/// A choice with its prediction and the terms of its objective.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RatedDocument {
    pub networks: Vec<String>,
    /// Predicted seconds for the median size, and the limits of 80 %.
    pub seconds: f64,
    pub low_seconds: f64,
    pub high_seconds: f64,
    pub bytes_per_second: f64,
    pub joules_per_byte: f64,
    pub price: f64,
    /// ln O, and its standard deviation.
    pub objective: f64,
    pub deviation: f64,
    /// `model` or `closed-form`.
    pub predictor: String,
    /// Whether usual values stand for a network that nothing has measured.
    pub assumed: bool,
    /// Features of the model that were not measured.
    pub unknown: Vec<String>,
}

/// Name of flows in documents and events.
pub(super) fn flows(lane: &Lane) -> String {
    match lane {
        Lane::NewFlows => "new-flows".to_owned(),
        Lane::Streams(goal) => goal.clone(),
    }
}

impl SizesDocument {
    pub(super) fn new(sizes: &Sizes, is_requested: bool) -> Self {
        let source = match sizes.specificity {
            _ if is_requested => "request",
            Specificity::Default => "default",
            Specificity::All => "all",
            Specificity::App => "app",
            Specificity::Host => "host",
            Specificity::AppAndHost => "app-and-host",
        };
        let pair = |(size, weight): &(manyways_unit::Size, f64)| (size.as_bytes(), *weight);
        Self {
            median_bytes: sizes.median().as_bytes(),
            source: source.to_owned(),
            distribution: sizes.weighted.iter().take(64).map(pair).collect(),
        }
    }
}

impl NetworkDocument {
    /// Each network of a decider, with the state of its sources. `metered` and the bytes of probes are
    /// those of the shell.
    pub(super) fn new(
        now: Time,
        steering: &Steering,
        index: usize,
        sources: &[SourceStatus],
        probe_bytes: u64,
        probe_limit_bytes: Option<u64>,
    ) -> Self {
        let network = &steering.decider().networks[index];
        let value = |(indicator, known): (Indicator, Known)| IndicatorDocument {
            name: indicator.name().to_owned(),
            value: known.value,
            age_seconds: now.since(known.at).as_secs_f64(),
            source: match indicator.source() {
                Source::Passive => "signal",
                Source::Active => "probe",
                Source::Own => "traffic",
            }
            .to_owned(),
        };
        // Without traffic there is no rate.
        let is_fault = |kind: SourceKind| !matches!(kind, SourceKind::Counters | SourceKind::Own);
        let silence = |source: &SourceStatus| {
            let silence = source.silence.as_ref().filter(|_| is_fault(source.kind))?;
            Some(format!("{}: {silence}", source.kind.name()))
        };
        let probing = steering.probing(now, &network.name);
        Self {
            network: network.name.clone(),
            kind: network.kind.name().to_owned(),
            unusable: network.unusable.map(|why| why.to_string()),
            metered: network.price > 0.0,
            indicators: network.monitor.indicators().iter().map(value).collect(),
            silent_sources: sources.iter().filter_map(silence).collect(),
            probing: probing.map_or_else(String::new, |probing| probing.to_string()),
            probe_missing: steering.missing(&network.name).map(str::to_owned),
            probe_bytes,
            probe_limit_bytes,
            plan_used: network.plan.map(|(used, _)| used),
            plan_elapsed: network.plan.map(|(_, elapsed)| elapsed),
        }
    }
}

impl ChoiceDocument {
    pub(super) fn new(now: Time, decider: &Decider, lane: &LaneState) -> Self {
        Self {
            flows: flows(&lane.lane),
            networks: lane.networks.clone(),
            since_seconds: now.since(lane.since).as_secs_f64(),
            decision: lane.decision.as_ref().map(|one| DecisionDocument::new(decider, one)),
        }
    }
}

impl DecisionDocument {
    pub(super) fn new(decider: &Decider, decision: &Decision) -> Self {
        let names = |index: usize| -> Vec<String> {
            let networks = decision.rated[index].choice.networks();
            networks.map(|network| decider.networks[network].name.clone()).collect()
        };
        let selection = decision.selection;
        let Goal { speed, energy, money, at_least } = decision.goal;
        let rated = decision.rated.iter().enumerate().map(|(index, one)| RatedDocument {
            networks: names(index),
            seconds: one.prediction.seconds,
            low_seconds: one.prediction.low,
            high_seconds: one.prediction.high,
            bytes_per_second: one.terms.speed,
            joules_per_byte: one.terms.energy,
            price: one.terms.money,
            objective: one.terms.objective,
            deviation: one.terms.deviation,
            predictor: if one.is_closed_form { "closed-form" } else { "model" }.to_owned(),
            assumed: one.is_assumed,
            unknown: one.unknown.iter().map(|feature| feature.name()).collect(),
        });
        Self {
            speed,
            energy,
            money,
            at_least_bps: at_least.map(|rate| rate.as_bps()),
            networks: names(selection.best),
            reason: match selection.reason {
                SelectionReason::Best => "best",
                SelectionReason::FastEnough => "fast-enough",
                SelectionReason::NoneFastEnough => "none-fast-enough",
                SelectionReason::Kept => "kept",
                SelectionReason::Dwelling => "dwelling",
                _ => "other",
            }
            .to_owned(),
            runner_up: selection.runner_up.map(names),
            probability: selection.probability,
            preferred: decision.preferred.clone(),
            choices: rated.collect(),
        }
    }

    #[cfg(test)]
    pub(super) fn example() -> Self {
        let rated = |network: &str, seconds: f64| RatedDocument {
            networks: vec![network.to_owned()],
            seconds,
            low_seconds: seconds / 2.0,
            high_seconds: seconds * 2.0,
            bytes_per_second: 1e6 / seconds,
            joules_per_byte: 1e-6,
            price: 1.0,
            objective: -seconds,
            deviation: 0.5,
            predictor: "model".to_owned(),
            assumed: false,
            unknown: vec!["wifi.snr".to_owned()],
        };
        Self {
            speed: 1.0,
            energy: 0.0,
            money: 0.0,
            at_least_bps: None,
            networks: vec!["wlan0".to_owned()],
            reason: "best".to_owned(),
            runner_up: Some(vec!["wwan0".to_owned()]),
            probability: 0.8,
            preferred: None,
            choices: vec![rated("wlan0", 0.5), rated("wwan0", 2.0)],
        }
    }
}
