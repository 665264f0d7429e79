//! The results as an HTML page.

use manyways_net::steer::simulate::{Document, Errors, GoalResult};
use manyways_report::curves::Axis;
use manyways_report::number::{bytes, digits, plural};
use manyways_report::{Column, Page, TableRow};

use super::charts::{by_size, choices, errors, objective, right, throughput, walk};
use super::text::cells;

pub fn html(found: &Document) -> String {
    let lead = format!(
        "Rules that choose a network when a transfer starts, over {} at {}.",
        plural(found.cases as u64, "decision"),
        plural(found.places as u64, "place")
    );
    let mut page = Page::new("The network for each transfer", &lead);
    page.notes(&[format!("Table: {}. Choices: {}.", found.table, found.choices.join(", "))]);
    completion_times(&mut page, found);
    for goal in &found.goals {
        goal_part(&mut page, found, goal);
    }
    if let Some(one) = &found.walk {
        page.heading("Over time");
        let caption = format!(
            "Transfers of {} at {}, where a fixed network is furthest from the best choices; the last \
             line is what {} chose for the goal {} (as figure 3-12).",
            bytes(one.size),
            one.place,
            one.rule,
            one.goal
        );
        page.figure(&walk(found, one), &caption);
    }
    page.heading("How to read this");
    page.notes(&[
        "Objective: speed, energy and money of a transfer in one number, by the exponents of the goal. \
         Regret: ln of the best choice's objective over that of the taken one."
            .to_owned(),
        "Recovered: the share of the mean regret of the best fixed network that a rule avoids. That \
         network is known afterwards only; a rule below 0 % is worse than it."
            .to_owned(),
        "The oracle knows the completion times. A model that was trained on the same transfers looks \
         better here than it will be at other places."
            .to_owned(),
        "Figures are those of S. Deng's thesis, chapter 3 (Delphi).".to_owned(),
    ]);
    page.html(&format!("manyways {} steer simulate", env!("CARGO_PKG_VERSION")))
}

fn completion_times(page: &mut Page, found: &Document) {
    let mut rules: Vec<&str> = found.errors.iter().map(|one| one.rule.as_str()).collect();
    rules.dedup();
    if !rules.is_empty() {
        page.heading("Completion times");
    }
    for rule in rules {
        let own: Vec<&Errors> = found.errors.iter().filter(|one| one.rule == rule).collect();
        let caption = format!(
            "Relative error of the completion times that {rule} predicts, for 95 % of the transfers \
             (as figure 3-4)."
        );
        page.figure(&errors(rule, &own), &caption);
    }
}

fn goal_part(page: &mut Page, found: &Document, goal: &GoalResult) {
    page.heading(&format!("Goal: {}", goal.goal));
    page.notes(&[describe(goal)]);
    let mut headings = vec!["Rule", "Recovered", "Near", "Right", "Regret"];
    headings.extend(&found.choices);
    let column = |(index, name)| (name, if index == 0 { Column::Text } else { Column::Numbers });
    let columns: Vec<(&str, Column)> = headings.into_iter().enumerate().map(column).collect();
    let line = |rule| TableRow::plain(cells(found, rule));
    let lines: Vec<TableRow> = goal.rules.iter().map(line).collect();
    page.table("Rules, best first", &columns, &lines);
    page.figure(
        &throughput(goal),
        "Median throughput, and median megabits for a joule (as figure 3-7 and table 3.5).",
    );
    let axis = Axis { min_end: Some(1.0), ..Axis::linear("objective / best objective") };
    page.figure(
        &objective(goal, "Objective relative to the oracle", axis, |rule| &rule.of_oracle),
        "What a rule achieves of the best objective; a line further right is better (instead of the \
         frontier of figure 3-7).",
    );
    let axis = Axis::logarithmic("objective / that of the best fixed network", digits);
    page.figure(
        &objective(goal, "Objective relative to a fixed network", axis, |rule| &rule.of_fixed),
        "What a rule achieves compared with the best fixed network.",
    );
    page.figure(&choices(found, goal), "How often each choice is taken (as figure 3-8).");
    page.figure(&right(goal), "How often the best choice is taken (as figure 3-9).");
    let axis = Axis::linear("mean ln regret");
    page.figure(
        &by_size(goal, "Regret by size", axis, |one| one.regret),
        "What a rule loses, by the size of the transfers (figure 3-11b has the gain).",
    );
    let axis = Axis::percent("share of LTE");
    let lte = |choices: &std::collections::BTreeMap<&'static str, f64>| {
        choices.get("lte").copied().unwrap_or_default()
    };
    page.figure(
        &by_size(goal, "Choice by size", axis, |one| lte(&one.choices)),
        "How often LTE alone is taken, by size.",
    );
}

fn describe(goal: &GoalResult) -> String {
    let fixed = format!("The best fixed network is {}.", goal.best_fixed);
    match goal.at_least_bps {
        Some(rate) => format!(
            "The cheapest choice with at least {}. {fixed}",
            manyways_report::number::bits_per_second(rate as f64)
        ),
        None => {
            let GoalResult { speed, energy, money, .. } = goal;
            format!("Exponents: speed {speed}, energy {energy}, money {money}. {fixed}")
        }
    }
}
