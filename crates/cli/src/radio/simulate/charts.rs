//! Charts of policies: bars by policy, and curves by swept parameter.

use std::collections::BTreeMap;

use manyways_model::radio::compare::Sum;
use manyways_net::radio::runs::Results;
use manyways_report::bars::{Bar, Bars};
use manyways_report::curves::{Axis, Curves, Line};
use manyways_report::number::{seconds, span};
use manyways_report::svg::Drawing;

/// The policy that decides when to go idle, and the one that delays sessions.
fn split(policy: &str) -> (String, String) {
    match policy.split_once('+') {
        Some((sleeps, holds)) => (sleeps.to_owned(), format!("+ {holds}")),
        None => (policy.to_owned(), String::new()),
    }
}

/// A bar for each policy on a radio; `value` returns the value of a bar, its label, and a remark.
pub fn bars(
    results: &Results,
    profile: usize,
    title: &str,
    axis: &str,
    value: impl Fn(&Sum) -> (f64, String, String),
) -> Drawing {
    let variants = &results.variants;
    let bar = |run: usize| {
        let (value, words, about) = value(&results.sum(run));
        let name = split(&variants.policies[run]);
        Bar {
            label: name.0,
            about: name.1,
            value: value.is_finite().then_some(value),
            annotations: (words, about),
            parts: vec![1.0],
            strong: false,
        }
    };
    Bars {
        title: title.to_owned(),
        description: "A bar for each policy.".to_owned(),
        axis: axis.to_owned(),
        mark: None,
        legend: Vec::new(),
        bars: variants.runs(profile).into_iter().map(bar).collect(),
    }
    .draw()
}

/// Bars of the mean delays on a radio; `None` if no policy delays sessions.
pub fn delays(results: &Results, profile: usize) -> Option<Drawing> {
    let variants = &results.variants;
    let runs: Vec<usize> = variants
        .runs(profile)
        .into_iter()
        .filter(|run| variants.jobs[*run].plan.delays_sessions())
        .collect();
    if runs.is_empty() {
        return None;
    }
    let bar = |run: usize| {
        let name = split(&variants.policies[run]);
        let mean = results.sum(run).delay();
        let median = results.delay(run, 0.5);
        let words = median.map_or(String::new(), |median| format!("median {}", span(median)));
        Bar {
            label: name.0,
            about: name.1,
            value: mean.is_finite().then_some(mean),
            annotations: (seconds(mean), words),
            parts: vec![1.0],
            strong: false,
        }
    };
    let chart = Bars {
        title: "Delays".to_owned(),
        description: "Mean delay of the delayed sessions, by policy.".to_owned(),
        axis: "seconds".to_owned(),
        mark: None,
        legend: Vec::new(),
        bars: runs.into_iter().map(bar).collect(),
    };
    Some(chart.draw())
}

/// Charts for each swept parameter of a policy or radio: savings and errors (figure 4-13 of Deng's
/// thesis).
pub fn swept(results: &Results) -> Vec<(Drawing, String)> {
    let variants = &results.variants;
    let mut charts = Vec::new();
    for sweep in variants.sweeps.iter().filter(|sweep| sweep.values.len() > 1) {
        // Grouped by policy with a line for each radio; for parameters of radios, the other way
        // round.
        let mut groups: BTreeMap<String, BTreeMap<String, Vec<(f64, Sum)>>> = BTreeMap::new();
        for run in (0..variants.jobs.len()).filter(|run| !variants.hidden[*run]) {
            let (name, tried) = &variants.names[variants.jobs[run].profile];
            let policy = &variants.policies[run];
            let sum = results.sum(run);
            if let Some((value, rest)) =
                split_parameter(policy, &format!(":{}=", sweep.key), &[':', '+'])
            {
                let radio = variants.name(variants.jobs[run].profile);
                groups.entry(rest).or_default().entry(radio).or_default().push((value, sum));
            } else if let Some((value, rest)) =
                split_parameter(tried, &format!("{}=", sweep.key), &[' '])
            {
                let radio = format!("{name} {rest}").trim().to_owned();
                groups
                    .entry(radio)
                    .or_default()
                    .entry(policy.clone())
                    .or_default()
                    .push((value, sum));
            }
        }
        for (group, lines) in groups {
            let points = |values: &[(f64, Sum)], value: fn(&Sum) -> f64| {
                let points = values.iter().map(|(at, sum)| (*at, value(sum)));
                let mut points: Vec<(f64, f64)> =
                    points.filter(|(_, value)| value.is_finite()).collect();
                points.sort_by(|one, other| one.0.total_cmp(&other.0));
                points
            };
            let line = |name: String, points| Line { name, points, is_filled: false };
            let saved = lines
                .iter()
                .map(|(name, values)| line(name.clone(), points(values, Sum::saved)))
                .collect();
            let wrong = lines.iter().flat_map(|(name, values)| {
                [
                    line(format!("{name} false"), points(values, Sum::false_switches)),
                    line(format!("{name} missed"), points(values, Sum::missed_switches)),
                ]
            });
            let captions = [
                format!("{group}: energy saved, by {}.", sweep.key),
                format!("{group}: wrong decisions, by {} (as figure 4-13).", sweep.key),
            ];
            for (lines, caption) in [saved, wrong.collect::<Vec<Line>>()].into_iter().zip(captions)
            {
                let chart = Curves {
                    title: caption.clone(),
                    description: "Each value holds until the next one.".to_owned(),
                    x_axis: Axis::linear(&sweep.key),
                    y_axis: Axis { min_end: None, ..Axis::percent("share") },
                    lines,
                };
                charts.push((chart.draw(), caption));
            }
        }
    }
    charts
}

/// The number after a mark, up to one of the end characters, and the text without both.
fn split_parameter(text: &str, mark: &str, ends: &[char]) -> Option<(f64, String)> {
    let (before, rest) = text.split_once(mark)?;
    let end = rest.find(ends).unwrap_or(rest.len());
    let value = rest[..end].parse().ok()?;
    Some((value, format!("{before}{}", &rest[end..]).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_separated_from_the_text() {
        let of = |text: &str, mark: &str| split_parameter(text, mark, &[':', '+', ' ']);
        let both = "makeidle:n=50+makeactive:experts=20";
        let rest = "makeidle+makeactive:experts=20".to_owned();
        assert_eq!(of(both, ":n="), Some((50.0, rest)));
        assert_eq!(
            of("e-switch=0.5 turn-off=0.1", "e-switch="),
            Some((0.5, "turn-off=0.1".to_owned()))
        );
        assert_eq!(of("makeidle", ":n="), None);
    }
}
