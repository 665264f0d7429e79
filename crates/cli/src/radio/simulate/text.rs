//! The results as text.

use manyways_unit::human::printable;

use manyways_model::radio::compare::Sum;
use manyways_net::radio::runs::Results;
use manyways_report::number::{digits, percent, seconds, span};
use manyways_report::text::table;

pub fn text(results: &Results, each: bool) -> String {
    let mut text = String::new();
    let variants = &results.variants;
    let holds = variants.jobs.iter().any(|job| job.plan.delays_sessions());
    for profile in 0..variants.profiles.len() {
        if profile > 0 {
            text.push('\n');
        }
        let name = variants.name(profile);
        let mut head = vec![&*name, "saved", "of tail", "of oracle", "switches", "/ oracle"];
        head.extend(["J/switch", "false", "missed", "wait"]);
        if holds {
            head.extend(["held", "delay", "median", "95 %"]);
        }
        let mut rows = Vec::new();
        for run in variants.runs(profile) {
            let mut row = vec![variants.policies[run].clone()];
            row.extend(cells(&results.sum(run)));
            if holds {
                row.extend(delays(results, run));
            }
            rows.push(row);
            if each && results.traces.len() > 1 {
                for trace in &results.traces {
                    let mut row = vec![format!("  {}", trace.trace)];
                    row.extend(cells(&results.trace_sum(trace, run)));
                    rows.push(row);
                }
            }
        }
        text.push_str(&table(&head, rows));
    }
    let packets: u64 = results.traces.iter().map(|trace| trace.trace_stats.packets).sum();
    text.push_str(&format!(
        "\n{}, {} packets. saved: share of the energy under the network's timers; switches: \
         ratio to those under these timers.\n",
        match &results.traces[..] {
            [one] => printable(&one.trace).into_owned(),
            all => format!("{} traces", all.len()),
        },
        manyways_report::number::count(packets)
    ));
    text
}

/// Table cells of a sum.
pub fn cells(sum: &Sum) -> Vec<String> {
    let number = |value: f64| {
        if value.is_finite() { format!("{value:.2}") } else { "–".to_owned() }
    };
    vec![
        percent(sum.saved()),
        percent(sum.saved_of_tail()),
        percent(sum.share_of_oracle()),
        number(sum.switches()),
        number(sum.switches_of_oracle()),
        if sum.switches > 0 { digits(sum.saved_per_switch()) } else { "–".to_owned() },
        percent(sum.false_switches()),
        percent(sum.missed_switches()),
        if sum.sleeps > 0 { seconds(sum.wait()) } else { "–".to_owned() },
    ]
}

fn delays(results: &Results, run: usize) -> Vec<String> {
    let sum = results.sum(run);
    if sum.delayed == 0 {
        return vec!["–".to_owned(); 4];
    }
    let quantile = |share| results.delay(run, share).map_or("–".to_owned(), span);
    vec![
        percent(sum.delayed as f64 / sum.sessions as f64),
        seconds(sum.delay()),
        quantile(0.5),
        quantile(0.95),
    ]
}
