//! The results as text.

use manyways_net::steer::simulate::{Document, GoalResult, RuleResult};
use manyways_report::number::{count, percent, plural};
use manyways_report::text::table;
use manyways_unit::human::printable;

pub fn text(found: &Document) -> String {
    let mut text = format!(
        "{}: {} at {}, over {}.{}\n",
        printable(&found.table),
        plural(found.cases as u64, "decision"),
        plural(found.places as u64, "place"),
        found.choices.join(", "),
        match found.skipped {
            0 => String::new(),
            some => format!(" Skipped: {} without the time of every choice.", count(some as u64)),
        }
    );
    for goal in &found.goals {
        text.push('\n');
        text.push_str(&goal_table(found, goal));
    }
    if !found.errors.is_empty() {
        let rows = found.errors.iter().map(|one| {
            let mut row = vec![one.rule.clone(), one.choice.to_owned()];
            row.extend([one.p10, one.median, one.p90, one.p99].map(percent));
            row
        });
        text.push('\n');
        text.push_str(&table(
            &["completion times", "over", "10 %", "median", "90 %", "99 %"],
            rows,
        ));
    }
    text.push_str(
        "\nrecovered: share of the regret of the best fixed network that is avoided; near: within 5 % of \
         the\nbest choice; regret: mean of ln(best objective / own). completion times: quantiles of the \
         relative error.\n",
    );
    text
}

fn goal_table(found: &Document, goal: &GoalResult) -> String {
    let mut head = vec![&*goal.goal, "recovered", "near", "right", "regret"];
    head.extend(&found.choices);
    let mut text = table(&head, goal.rules.iter().map(|rule| cells(found, rule)));
    let words = match goal.rules.iter().all(|rule| rule.recovered.is_none()) {
        true => format!("Nothing to recover: {} is always the best.\n", goal.best_fixed),
        false => {
            let GoalResult { best_fixed, fixed_regret, .. } = goal;
            format!("The best fixed network is {best_fixed}, with a regret of {fixed_regret:.3}.\n")
        }
    };
    text.push_str(&words);
    text
}

/// Table cells of a rule.
pub fn cells(found: &Document, rule: &RuleResult) -> Vec<String> {
    let mut cells = vec![
        rule.rule.clone(),
        rule.recovered.map_or("–".to_owned(), percent),
        percent(rule.near),
        percent(rule.right),
        format!("{:.3}", rule.regret),
    ];
    let share = |choice: &&str| percent(rule.choices.get(choice).copied().unwrap_or_default());
    cells.extend(found.choices.iter().map(share));
    cells
}
