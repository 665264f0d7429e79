//! Charts of rules, in the order of the figures of Delphi (Deng's thesis, chapter 3).

use manyways_net::steer::simulate::{
    Document, Errors, GoalResult, Moment, RuleResult, SizeResult, Walk,
};
use manyways_report::bars::{Bar, Bars};
use manyways_report::curves::{Axis, Curves, Line};
use manyways_report::number::{bits_per_second, bytes, percent};
use manyways_report::svg::Drawing;

/// Lines in a chart, at most: there is a colour for each.
const MAX_LINES: usize = 6;
/// Share of the errors that a chart shows; few are larger by far.
const SHOWN: f64 = 0.95;

/// Errors of the completion times that a rule predicts, by choice (figure 3-4).
pub fn errors(rule: &str, errors: &[&Errors]) -> Drawing {
    let shown = |(_, share): &&(f64, f64)| *share <= SHOWN;
    let line = |one: &&Errors| Line {
        name: one.choice.to_owned(),
        points: one
            .distribution
            .iter()
            .filter(shown)
            .map(|(value, share)| (*value, *share))
            .collect(),
        is_filled: false,
    };
    Curves {
        title: format!("Errors of completion times, {rule}"),
        description: "Distribution of the relative error, a line for each choice.".to_owned(),
        x_axis: Axis { min_end: None, ..Axis::percent("|predicted / measured − 1|") },
        y_axis: Axis::percent("share of the transfers"),
        lines: errors.iter().map(line).collect(),
    }
    .draw()
}

/// The objective of the rules relative to another one, as distributions.
pub fn objective(
    goal: &GoalResult,
    title: &str,
    axis: Axis,
    points: impl Fn(&RuleResult) -> &[(f64, f64)],
) -> Drawing {
    let line = |rule: &&RuleResult| Line {
        name: rule.rule.clone(),
        points: points(rule).to_vec(),
        is_filled: false,
    };
    Curves {
        title: title.to_owned(),
        description: "Distribution over the decisions, a line for each rule.".to_owned(),
        x_axis: axis,
        y_axis: Axis::percent("share of the decisions"),
        lines: charted(goal).iter().map(line).collect(),
    }
    .draw()
}

/// Throughput by rule, with energy efficiency (figure 3-7).
pub fn throughput(goal: &GoalResult) -> Drawing {
    bars(goal, "Throughput and energy", "median Mbit/s", Vec::new(), |rule| {
        let energy = format!("{:.2} Mbit/J", rule.bits_per_joule / 1e6);
        let words = (bits_per_second(rule.bits_per_second), energy);
        (rule.bits_per_second / 1e6, words, vec![1.0])
    })
}

/// How often each choice is taken (figure 3-8).
pub fn choices(found: &Document, goal: &GoalResult) -> Drawing {
    let names: Vec<String> = found.choices.iter().map(|one| (*one).to_owned()).collect();
    bars(goal, "Choices", "% of the decisions", names, |rule| {
        let share = |choice: &&str| rule.choices.get(choice).copied().unwrap_or_default();
        (100.0, (String::new(), String::new()), found.choices.iter().map(share).collect())
    })
}

/// How often the best choice is taken (figure 3-9).
pub fn right(goal: &GoalResult) -> Drawing {
    bars(goal, "Right choices", "% of the decisions", Vec::new(), |rule| {
        let words = (percent(rule.right), format!("{} near", percent(rule.near)));
        (rule.right * 100.0, words, vec![1.0])
    })
}

fn bars(
    goal: &GoalResult,
    title: &str,
    axis: &str,
    legend: Vec<String>,
    value: impl Fn(&RuleResult) -> (f64, (String, String), Vec<f64>),
) -> Drawing {
    let bar = |rule: &RuleResult| {
        let (value, annotations, parts) = value(rule);
        let (label, about) = (rule.rule.clone(), String::new());
        Bar { label, about, value: Some(value), annotations, parts, strong: rule.rule == "model" }
    };
    Bars {
        title: title.to_owned(),
        description: "A bar for each rule.".to_owned(),
        axis: axis.to_owned(),
        mark: None,
        legend,
        bars: goal.rules.iter().map(bar).collect(),
    }
    .draw()
}

/// A value by the size of the transfers.
pub fn by_size(
    goal: &GoalResult,
    title: &str,
    axis: Axis,
    value: impl Fn(&SizeResult) -> f64,
) -> Drawing {
    let line = |rule: &&RuleResult| {
        let mut points: Vec<(f64, f64)> =
            rule.sizes.iter().map(|one| (one.up_to as f64, value(one))).collect();
        // The last step is as wide as a decade's half.
        points.extend(points.last().copied().map(|(at, value)| (at * 3.0, value)));
        Line { name: rule.rule.clone(), points, is_filled: false }
    };
    Curves {
        title: title.to_owned(),
        description: "A line for each rule, a step for each size.".to_owned(),
        x_axis: Axis::logarithmic("size of the transfer", |size| bytes(size as u64)),
        y_axis: axis,
        lines: charted(goal).iter().map(line).collect(),
    }
    .draw()
}

/// Throughput over time at one place (figure 3-12).
pub fn walk(found: &Document, walk: &Walk) -> Drawing {
    let first = walk.moments.first().map_or(0, |one| one.second);
    let rate = |took: f64| walk.size as f64 * 8.0 / took / 1e6;
    let line = |name: String, choice: &dyn Fn(&Moment) -> &'static str| {
        let known = walk.moments.iter();
        let points = known.filter_map(|one| {
            Some((one.second.saturating_sub(first) as f64, rate(*one.seconds.get(choice(one))?)))
        });
        Line { name, points: points.collect(), is_filled: false }
    };
    let mut lines: Vec<Line> =
        found.choices.iter().map(|name| line((*name).to_owned(), &|_| name)).collect();
    lines.push(line(walk.rule.clone(), &|one| one.taken));
    Curves {
        title: "Throughput over time".to_owned(),
        description: "A line for each choice, and one for the rule.".to_owned(),
        x_axis: Axis::linear("seconds since the first transfer"),
        y_axis: Axis::linear("Mbit/s"),
        lines,
    }
    .draw()
}

/// Rules that are drawn: those that predict and the oracle first, then the best of the others.
fn charted(goal: &GoalResult) -> Vec<&RuleResult> {
    let is_first = |rule: &&RuleResult| {
        ["model", "paper", "closed-form", "oracle"].contains(&rule.rule.as_str())
    };
    let (first, others): (Vec<&RuleResult>, Vec<&RuleResult>) =
        goal.rules.iter().partition(is_first);
    first.into_iter().chain(others).take(MAX_LINES).collect()
}
