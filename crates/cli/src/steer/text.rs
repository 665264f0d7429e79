//! Status, explanations and events as text.

use std::collections::{BTreeMap, BTreeSet};

use manyways_net::steer::document::{
    ChoiceDocument, DecisionDocument, NetworkDocument, SizesDocument, SteerStatus, SteerWhy,
};
use manyways_net::steer::event::SteerEvent;
use manyways_record::event::Record;
use manyways_report::number::{bits_per_second, bytes, digits, joules, percent, seconds};
use manyways_report::text::table;
use manyways_unit::human::printable;

/// An event as one line; `None` for events that are not printed as text.
pub fn event(record: &Record<SteerEvent>) -> Option<String> {
    let words = match &record.event {
        SteerEvent::SteerNetwork { network, unusable: None } => format!("{network}: can be used"),
        SteerEvent::SteerNetwork { network, unusable: Some(why) } => format!("{network}: {why}"),
        SteerEvent::SteerChoice { flows, networks, decision, .. } => {
            let reason = decision.as_deref().map(|one| format!(" ({})", summary(one)));
            format!("{}: {}{}", flows_name(flows), names(networks), reason.unwrap_or_default())
        }
        SteerEvent::SteerPreference { network, seconds: time, app } => {
            let app = app.as_ref().map(|app| format!(" for {app}")).unwrap_or_default();
            match *time > 0.0 {
                true => format!("{network} is preferred{app} for {}", seconds(*time)),
                false => format!("no network is preferred{app}"),
            }
        }
        _ => return None,
    };
    let at = record.time.as_nanos() as f64 / 1e9;
    Some(format!("{at:8.3} s  {}", printable(&words)))
}

fn flows_name(flows: &str) -> String {
    match flows {
        "new-flows" => "new connections".to_owned(),
        goal => format!("bond, {goal}"),
    }
}

fn names(networks: &[String]) -> String {
    match networks {
        [] => "the routes of this host".to_owned(),
        networks => networks.join(" + "),
    }
}

/// One choice beside the second best.
fn summary(decision: &DecisionDocument) -> String {
    let time = |networks: &[String]| {
        let choice = decision.choices.iter().find(|one| one.networks == networks)?;
        Some(seconds(choice.seconds))
    };
    let own = time(&decision.networks).unwrap_or_default();
    let other = decision
        .runner_up
        .as_ref()
        .and_then(|other| Some(format!("; {} {}", names(other), time(other)?)));
    format!("{own}{}: {}", other.unwrap_or_default(), reason(decision))
}

fn reason(decision: &DecisionDocument) -> String {
    let sure = percent(decision.probability);
    let other = decision.runner_up.as_deref().map(names);
    match decision.reason.as_str() {
        _ if decision.choices.len() == 1 && decision.preferred.is_none() => {
            "no other network can be used".to_owned()
        }
        _ if decision.preferred.is_some() => "you prefer it".to_owned(),
        "best" => match other {
            Some(other) => format!("better than {other} with a probability of {sure}"),
            None => "the best one".to_owned(),
        },
        "fast-enough" => "the cheapest one that is fast enough".to_owned(),
        "none-fast-enough" => "none is fast enough; this is the fastest one".to_owned(),
        "kept" => {
            let other = other.unwrap_or_else(|| "another one".to_owned());
            format!("kept; {other} is not better by enough ({sure})")
        }
        "dwelling" => "kept, because it was chosen a moment ago".to_owned(),
        other => other.to_owned(),
    }
}

pub fn status(status: &SteerStatus) -> String {
    let mut text = networks(&status.networks);
    for choice in &status.choices {
        text += &format!("\n{}", choice_text(choice));
    }
    if !status.chooses_new_flows {
        text += "\nNew connections outside bonds are left alone.\n";
    }
    for one in &status.preferences {
        let app = one.app.as_ref().map(|app| format!(" for {app}")).unwrap_or_default();
        let (network, left) = (&one.network, seconds(one.remaining_seconds));
        text +=
            &format!("\n{} is preferred{} for {left} more.\n", printable(network), printable(&app));
    }
    for fault in &status.faults {
        text += &format!("\nfault: {}\n", printable(fault));
    }
    text
}

fn choice_text(choice: &ChoiceDocument) -> String {
    let since = seconds(choice.since_seconds);
    let heading =
        format!("{}: {}, for {since}", flows_name(&choice.flows), names(&choice.networks));
    let decision = choice.decision.as_ref().map(decision_text).unwrap_or_default();
    format!("{}\n{decision}", printable(&heading))
}

pub fn why(why: &SteerWhy) -> String {
    let transfer = match (&why.host, &why.app) {
        (Some(host), Some(app)) => format!("A transfer of {app} with {host}"),
        (Some(host), None) => format!("A transfer with {host}"),
        (None, Some(app)) => format!("A transfer of {app}"),
        (None, None) => "A transfer".to_owned(),
    };
    let taken = match &why.decision {
        Some(decision) => format!("would use {}: {}", names(&decision.networks), reason(decision)),
        None => "has no network that can be used".to_owned(),
    };
    let mut text = format!("{}.\n", printable(&format!("{transfer} {taken}")));
    text += &format!("Size: {}.\n", sizes(&why.sizes));
    if let Some(decision) = &why.decision {
        text += &format!("\n{}", decision_text(decision));
        if why.new_flows != decision.networks {
            let carried = format!("New connections use {} now", names(&why.new_flows));
            text += &format!("{}.\n", printable(&carried));
        }
    }
    text + "\n" + &networks(&why.networks)
}

fn sizes(sizes: &SizesDocument) -> String {
    let median = bytes(sizes.median_bytes);
    let of = |words: &str| format!("{median}, the median of earlier transfers {words}");
    match sizes.source.as_str() {
        "request" => format!("{median}, as stated"),
        "app-and-host" => of("of this application with this host"),
        "host" => of("with this host"),
        "app" => of("of this application"),
        "all" => of("of all applications"),
        _ => format!("{median}, because nothing is known"),
    }
}

/// The choices with their terms, the taken one marked.
fn decision_text(decision: &DecisionDocument) -> String {
    let row = |one: &manyways_net::steer::document::RatedDocument| {
        let mark = if one.networks == decision.networks { "*" } else { "" };
        let by = match (one.predictor.as_str(), one.assumed) {
            (_, true) => "assumed rate",
            ("model", _) => "model",
            _ => "closed form",
        };
        vec![
            mark.to_owned(),
            names(&one.networks),
            seconds(one.seconds),
            format!("{} to {}", seconds(one.low_seconds), seconds(one.high_seconds)),
            bits_per_second(one.bytes_per_second * 8.0),
            format!("{}/MB", joules(one.joules_per_byte * 1e6)),
            digits(one.price),
            format!("{:.2}", one.objective),
            by.to_owned(),
        ]
    };
    let head = ["", "choice", "time", "80 %", "speed", "energy", "price", "ln O", "by"];
    let mut text = table(&head, decision.choices.iter().map(row));
    let exponent =
        |name: &str, value: f64| (value != 0.0).then(|| format!("{name}^{}", digits(value)));
    text += &match decision.at_least_bps {
        Some(rate) => {
            format!("Goal: the cheapest choice of at least {}.\n", bits_per_second(rate as f64))
        }
        None => {
            let divisors = [exponent("energy", decision.energy), exponent("price", decision.money)];
            let divisors: Vec<String> = divisors.into_iter().flatten().collect();
            let speed = exponent("speed", decision.speed).unwrap_or_else(|| "1".to_owned());
            match divisors.is_empty() {
                true => format!("O = {speed}.\n"),
                false => format!("O = {speed} / ({}).\n", divisors.join(" · ")),
            }
        }
    };
    let unknown = unknown(decision);
    if !unknown.is_empty() {
        text += &format!("Not measured, so that the model does without: {}.\n", unknown.join("; "));
    }
    text
}

/// The features that were not measured, by role: `wifi rssi, snr`.
fn unknown(decision: &DecisionDocument) -> Vec<String> {
    let mut features: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for feature in decision.choices.iter().flat_map(|one| &one.unknown) {
        let (role, name) = feature.split_once('.').unwrap_or(("", feature));
        features.entry(role).or_default().insert(name);
    }
    let text = |(role, names): (&str, BTreeSet<&str>)| {
        let names: Vec<&str> = names.into_iter().collect();
        format!("{role} {}", names.join(", ")).trim().to_owned()
    };
    features.into_iter().map(text).collect()
}

fn networks(networks: &[NetworkDocument]) -> String {
    let mut text = String::new();
    for one in networks {
        let state = one.unusable.as_deref().unwrap_or("can be used");
        let metered = if one.metered { ", metered" } else { "" };
        let heading = format!("{} ({}{metered}): {state}", one.network, one.kind);
        text += &format!("{}\n", printable(&heading));
        let values: Vec<String> = one
            .indicators
            .iter()
            .map(|value| {
                let age = seconds(value.age_seconds.round());
                format!("{} {} ({age})", value.name, amount(&value.name, value.value))
            })
            .collect();
        if !values.is_empty() {
            let values = values.join(",\n");
            text += &wrapped("indicators", values.lines());
        }
        let missing =
            one.probe_missing.as_ref().map(|why| format!("; last: {why}")).unwrap_or_default();
        let limit =
            one.probe_limit_bytes.map(|limit| format!(" of {}", bytes(limit))).unwrap_or_default();
        let spent = bytes(one.probe_bytes);
        let probes = format!("{}{missing}; {spent}{limit} this month", one.probing);
        text += &wrapped("probes", probes.split(' '));
        if let (Some(used), Some(elapsed)) = (one.plan_used, one.plan_elapsed) {
            let (used, elapsed) = (percent(used), percent(elapsed));
            text += &format!("  plan        {used} is used, {elapsed} of its month has passed\n");
        }
        // Where one source has signals, another one need not.
        if one.indicators.iter().all(|value| value.source != "signal") {
            for silent in &one.silent_sources {
                text += &wrapped("no signal", silent.split(' '));
            }
        }
    }
    text
}

/// Pieces after a name, in lines of at most 100 columns.
fn wrapped<'a>(name: &str, pieces: impl IntoIterator<Item = &'a str>) -> String {
    const WIDTH: usize = 100;
    let begin = format!("  {name:<10} ");
    let indent = begin.chars().count();
    let (mut text, mut width) = (begin, indent);
    for piece in pieces {
        let piece = printable(piece);
        let length = 1 + piece.chars().count();
        if width > indent && width + length > WIDTH {
            text += &format!("\n{}", " ".repeat(indent));
            width = indent;
        }
        text += &format!(" {piece}");
        width += length;
    }
    text + "\n"
}

/// A value of an indicator with its unit.
fn amount(name: &str, value: f64) -> String {
    match name {
        "rssi" | "rsrp" => format!("{} dBm", digits(value)),
        "rsrq" | "snr" => format!("{} dB", digits(value)),
        "cqi" | "access-points" => digits(value),
        "udp-loss" => percent(value),
        "link-rate" | "udp-rate" | "udp-rate-before" | "own-rate" => bits_per_second(value * 1e6),
        _ => seconds(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_at_most_100_columns_and_their_words_stay_whole() {
        let words = "µs ".repeat(60) + &"x".repeat(120) + " end";
        let text = wrapped("probes", words.split(' '));
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [100, 100, 19, 134, 17]);
        assert!(text.starts_with("  probes      µs µs"));
        assert!(text.ends_with("\n              end\n"));
    }
}
