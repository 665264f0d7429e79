//! Timers of a radio as text and JSON.

use manyways_model::radio::infer::Estimate;
use manyways_model::radio::ladder::Timer;
use serde_json::{Value, json};

use manyways_report::number::seconds;

/// One sentence per line.
pub fn sentences(all: &[Timer]) -> String {
    let mut text = String::new();
    for (place, timer) in all.iter().enumerate() {
        let ends = &timer.ends;
        if place == 0 {
            text.push_str(&format!(
                "While connected, a round trip takes {}.\n",
                seconds(ends.awake)
            ));
        }
        let when = match ends.onset.value == ends.completion.value {
            true => format!("After a gap of {}", between(&ends.onset)),
            false => format!(
                "After a gap of {} sometimes, of {} always",
                between(&ends.onset),
                between(&ends.completion)
            ),
        };
        let longer = seconds(timer.promotion);
        text.push_str(&format!("{when} a round trip takes at least {longer} longer.\n"));
    }
    text
}

fn between(estimate: &Estimate) -> String {
    format!(
        "{} (95 %: {} to {})",
        seconds(estimate.value),
        seconds(estimate.least),
        seconds(estimate.most)
    )
}

pub fn document(all: &[Timer]) -> Vec<Value> {
    // The upper bound is infinite if the longest gaps do not determine it.
    let finite = |secs: f64| if secs.is_finite() { json!(secs) } else { Value::Null };
    let estimate = |one: &Estimate| {
        json!({
            "seconds": finite(one.value), "least": finite(one.least), "most": finite(one.most)
        })
    };
    let each = |timer: &Timer| {
        json!({
            "onset": estimate(&timer.ends.onset),
            "completion": estimate(&timer.ends.completion),
            "round_trip_seconds": timer.round_trip,
            "promotion_seconds": timer.promotion,
            "slow_above_seconds": timer.ends.limit,
            "slow_shares": timer.ends.slow,
        })
    };
    all.iter().map(each).collect()
}
