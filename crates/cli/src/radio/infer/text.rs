//! Inferred values as text.

use manyways_model::radio::Profile;
use manyways_model::radio::calibrate::Doubts;
use manyways_model::radio::gap_sweep::InferredTimer;
use manyways_model::radio::infer::Estimate;
use manyways_model::radio::powers::{Finding, Powers, Quantity};
use manyways_model::radio::profiles::Known;
use manyways_net::radio::infer::Inferred;

use manyways_report::number::{count, joules, percent, seconds, watts};
use manyways_report::text::table;

pub fn text(inferred: Option<&Inferred>, fitted: Option<(&Powers, &Known)>) -> String {
    let mut text = String::new();
    if let Some(Inferred { probes, timers }) = inferred {
        text.push_str(&format!("{} answered probes.\n", count(*probes as u64)));
        match timers {
            Ok(timers) => text.push_str(&sentences(timers)),
            Err(error) => text.push_str(&format!("No timer was found: {error}.\n")),
        }
    }
    if let Some((powers, known)) = fitted {
        text.push_str(&powers_text(powers, known));
    }
    text
}

fn powers_text(powers: &Powers, known: &Known) -> String {
    let profile = &known.profile;
    let row = |(quantity, finding): &(Quantity, Finding)| {
        let (fitted, error) = match finding {
            Finding::Determined(fitted) => {
                (show(*quantity, fitted.value), show(*quantity, fitted.error))
            }
            _ => ("not determined".to_owned(), String::new()),
        };
        let own = show(*quantity, profile.value_in_trace(powers, *quantity));
        vec![profile.name_of(*quantity), fitted, error, own]
    };
    let head = ["", "fitted", "±", "in the profile"];
    let mut text = table(&head, powers.findings.iter().map(row));
    text.push_str(&format!(
        "\n{} windows of {}, samples {} apart; {} of the variance is explained by the states of \
         {}'s timers. The power of the last state includes the rest of the device.\n",
        count(powers.windows as u64),
        seconds(powers.window.as_secs_f64()),
        seconds(powers.sample_interval.as_secs_f64()),
        percent(powers.explained_variance),
        known.name
    ));
    for note in notes(powers, profile) {
        text.push_str(&note);
        text.push('\n');
    }
    text
}

/// Notes on values that are not determined or not plausible.
fn notes(powers: &Powers, profile: &Profile) -> Vec<String> {
    let Doubts { unseen, groups, vague, bounded, short, long } = profile.doubts(powers);
    let all = |quantities: &[Quantity]| names(quantities, profile, "; ");
    let states = |places: &[usize]| {
        let names: Vec<&str> = places.iter().map(|place| &*profile.states[*place].name).collect();
        names.join("; ")
    };
    let mut notes = Vec::new();
    if !unseen.is_empty() {
        notes.push(format!("Not in the trace: {}.", all(&unseen)));
    }
    for group in groups {
        notes.push(format!(
            "Not separable in this trace, so not determined individually: {}.",
            all(&group)
        ));
    }
    if !vague.is_empty() {
        notes.push(format!("Too uncertain for a profile: {}.", all(&vague)));
    }
    for (quantity, fitted) in
        bounded.iter().filter_map(|one| Some((*one, powers.determined(*one)?)))
    {
        notes.push(format!(
            "Fitted value was negative and is set to 0: {}, {} ± {}.",
            profile.name_of(quantity),
            show(quantity, fitted.unbounded),
            show(quantity, fitted.error)
        ));
    }
    if !short.is_empty() {
        notes.push(format!(
            "Shorter than a window, so that their power is derived from parts of windows: {}.",
            states(&short)
        ));
    }
    if !long.is_empty() {
        notes.push(format!(
            "Longer than a window, so that their energy may be in the powers of the next states: \
             promotions from {}.",
            states(&long)
        ));
    }
    notes
}

/// Names of quantities.
pub fn names(quantities: &[Quantity], profile: &Profile, between: &str) -> String {
    let names: Vec<String> = quantities.iter().map(|one| profile.name_of(*one)).collect();
    names.join(between)
}

/// A value in the unit of a quantity.
fn show(quantity: Quantity, value: f64) -> String {
    if quantity.is_power() { watts(value) } else { joules(value) }
}

/// The timers, one sentence per line.
pub fn sentences(all: &[InferredTimer]) -> String {
    let mut text = String::new();
    for (place, timer) in all.iter().enumerate() {
        let ends = &timer.expiry;
        if place == 0 {
            text.push_str(&format!(
                "While connected, a round trip takes {}.\n",
                seconds(ends.connected_rtt)
            ));
        }
        let when = match ends.onset.value == ends.completion.value {
            true => format!("After a gap of {}", between(&ends.onset)),
            false => format!(
                "Sometimes after a gap of {}, and always after a gap of {},",
                between(&ends.onset),
                between(&ends.completion)
            ),
        };
        let longer = seconds(timer.promotion_delay);
        text.push_str(&format!("{when} a round trip takes at least {longer} longer.\n"));
    }
    text
}

fn between(estimate: &Estimate) -> String {
    format!(
        "{} (95 %: {} to {})",
        seconds(estimate.value),
        seconds(estimate.lower),
        seconds(estimate.upper)
    )
}
