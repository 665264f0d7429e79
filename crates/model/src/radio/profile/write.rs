//! Writes profile files.

use std::fmt::Write as _;

use manyways_unit::Span;

use super::{Profile, State};
use crate::radio::{Energy, Power};

/// Returns the text of a profile, which [`parse`](super::parse) reads back exactly.
pub fn write(profile: &Profile) -> String {
    let mut out = String::new();
    let mut line = |key: &str, value: String| {
        // Writing into a string does not fail.
        let _ = writeln!(out, "{key}{value}");
    };
    line("title = ", quoted(&profile.title));
    line("technology = ", quoted(profile.technology.name()));
    let transfer = &profile.transfer;
    line("\n[transfer]", String::new());
    line("send = ", power(transfer.send));
    line("receive = ", power(transfer.receive));
    line("send-per-mbit = ", energy(transfer.send_per_mbit));
    line("receive-per-mbit = ", energy(transfer.receive_per_mbit));
    line("burst-gap = ", span(transfer.burst_gap));
    line("source = ", quoted(&transfer.source));
    for (index, state) in profile.states.iter().enumerate() {
        let State { name, drx: listens, timer, is_idle: is_released, .. } = state;
        line("\n[[state]]", String::new());
        line("name = ", quoted(name));
        line("power = ", power(state.power));
        if let Some(listens) = listens {
            line("listen-every = ", span(listens.cycle));
            line("listen-for = ", span(listens.on_duration));
            line("listen-power = ", power(listens.power));
        }
        if let Some(timer) = timer {
            line("timer = ", span(*timer));
        }
        line("demotion = ", energy(state.demotion));
        line("promotion = ", energy(state.promotion));
        line("promotion-delay = ", span(state.promotion_delay));
        if *is_released {
            line("released = ", "true".to_owned());
        }
        if profile.dormant == index {
            line("dormant = ", "true".to_owned());
        }
        line("source = ", quoted(&state.source));
    }
    out
}

fn power(power: Power) -> String {
    // Adding 0.0 removes the sign of a negative zero.
    format!("\"{}W\"", power.as_watts() + 0.0)
}

fn energy(energy: Energy) -> String {
    format!("\"{}J\"", energy.as_joules() + 0.0)
}

/// In the largest unit in which the value is a whole number.
fn span(span: Span) -> String {
    let nanos = span.as_nanos();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
    let (unit, name) =
        units.into_iter().find(|(unit, _)| nanos.is_multiple_of(*unit)).unwrap_or((1, "ns"));
    format!("\"{}{name}\"", nanos / unit)
}

/// As a TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for one in text.chars() {
        match one {
            '"' | '\\' => out.extend(['\\', one]),
            one if one.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(one));
            }
            one => out.push(one),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::radio::profile::parse;
    use crate::radio::profiles;

    #[test]
    fn every_written_profile_is_read_back() {
        for (name, _) in profiles::all() {
            let profile = profiles::named(name).unwrap().unwrap();
            assert_eq!(parse(&write(&profile)), Ok(profile), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_written_value_is_read_back(
            watts in 0.0..1_000.0_f64,
            joules in 0.0..1e-3_f64,
            nanos in 0..86_400_000_000_000_u64,
            text in "[^\\x00-\\x1f\\x7f-\\u{9f}\u{2028}\u{2029}]{1,40}",
        ) {
            let mut profile = profiles::named("3g-i997").unwrap().unwrap();
            profile.title = format!("a{text}");
            profile.transfer.source = format!("b\"\\{text}");
            profile.transfer.receive = Power::watts(watts);
            profile.states[1].demotion = Energy::joules(joules);
            profile.states[1].timer = Some(Span::from_nanos(nanos));
            profile.dormant = 2;
            prop_assert_eq!(parse(&write(&profile)), Ok(profile));
        }
    }
}
