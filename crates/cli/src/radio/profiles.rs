//! `manyways radio profiles`: lists built-in profiles.

use std::process::ExitCode;

use anyhow::Result;
use manyways_model::radio::{Choice, Profile, profiles};
use serde::Serialize;

use super::known;
use manyways_report::number::{joules, seconds, watts};
use manyways_report::text::table;

/// List the built-in radio profiles, or print one as a file
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways radio profiles
  manyways radio profiles lte                  its file, with the source of every value
  manyways radio profiles lte > mine.toml      as a template for your own
  manyways radio profiles --json

`tail` is the time from the last packet to the release, and its energy. `threshold` is
the gap above which immediate fast dormancy saves energy.")]
pub struct Args {
    /// Print the file of this profile
    #[arg(value_name = "NAME", help = the_file_of())]
    name: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn the_file_of() -> String {
    let names: Vec<&str> = profiles::all().map(|(name, _)| name).collect();
    format!("Print the file of this profile: {}", names.join(", "))
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    profiles: Vec<Numbers>,
}

/// Key figures of a profile.
#[derive(Serialize)]
pub struct Numbers {
    pub name: String,
    pub title: String,
    pub technology: &'static str,
    pub send_watts: f64,
    pub receive_watts: f64,
    pub send_joules_per_mbit: f64,
    pub receive_joules_per_mbit: f64,
    pub burst_gap_seconds: f64,
    pub states: Vec<State>,
    /// `None` if the network never releases the radio.
    pub tail_seconds: Option<f64>,
    pub tail_joules: Option<f64>,
    pub switch_joules: f64,
    /// `None` if immediate fast dormancy never saves energy.
    pub threshold_seconds: Option<f64>,
}

#[derive(Serialize)]
pub struct State {
    pub name: String,
    pub watts: f64,
    /// Mean over a DRX cycle.
    pub mean_watts: f64,
    pub timer_seconds: Option<f64>,
    pub listen_every_seconds: Option<f64>,
    pub listen_for_seconds: Option<f64>,
    pub listen_watts: Option<f64>,
    pub demotion_joules: f64,
    pub promotion_joules: f64,
    pub promotion_delay_seconds: f64,
    pub released: bool,
    pub dormant: bool,
    pub source: String,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(name) = &args.name {
        let known = known::profile(name)?;
        let text = match args.json {
            true => json(vec![numbers(&known.name, &known.profile)])?,
            false => match profiles::all().find(|(one, _)| one == name) {
                Some((_, text)) => text.to_owned(),
                None => known::file(name.as_ref())?.1,
            },
        };
        return super::print(&text);
    }
    let all: Vec<Numbers> = profiles::all()
        .map(|(name, _)| known::profile(name).map(|known| numbers(name, &known.profile)))
        .collect::<Result<_, _>>()?;
    if args.json {
        return super::print(&json(all)?);
    }
    let mut rows = vec![
        ["name", "kind", "send", "receive", "tail", "", "threshold", "title"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for one in &all {
        rows.push(vec![
            one.name.clone(),
            one.technology.to_owned(),
            watts(one.send_watts),
            watts(one.receive_watts),
            one.tail_seconds.map_or("–".to_owned(), seconds),
            one.tail_joules.map_or("–".to_owned(), joules),
            one.threshold_seconds.map_or("–".to_owned(), seconds),
            one.title.clone(),
        ]);
    }
    super::print(&table(&rows))
}

/// One document for any number of profiles.
pub fn json(profiles: Vec<Numbers>) -> Result<String> {
    let document = Document { schema: "manyways.radio-profiles/1", profiles };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

pub fn numbers(name: &str, profile: &Profile) -> Numbers {
    let choice = Choice::of(profile);
    let finite = |value: f64| value.is_finite().then_some(value);
    let tail = finite(choice.stay.released());
    let transfer = &profile.transfer;
    let states = profile.states.iter().enumerate().map(|(place, state)| State {
        name: state.name.clone(),
        watts: state.power.as_watts(),
        mean_watts: state.mean_power().as_watts(),
        timer_seconds: state.timer.map(|timer| timer.as_secs_f64()),
        listen_every_seconds: state.listens.map(|listens| listens.cycle.as_secs_f64()),
        listen_for_seconds: state.listens.map(|listens| listens.lasts.as_secs_f64()),
        listen_watts: state.listens.map(|listens| listens.power.as_watts()),
        demotion_joules: state.demotion.as_joules(),
        promotion_joules: state.promotion.as_joules(),
        promotion_delay_seconds: state.promotion_delay.as_secs_f64(),
        released: state.is_released,
        dormant: place == profile.dormant,
        source: state.source.clone(),
    });
    Numbers {
        name: name.to_owned(),
        title: profile.title.clone(),
        technology: profile.technology.name(),
        send_watts: transfer.send.as_watts(),
        receive_watts: transfer.receive.as_watts(),
        send_joules_per_mbit: transfer.send_per_mbit.as_joules(),
        receive_joules_per_mbit: transfer.receive_per_mbit.as_joules(),
        burst_gap_seconds: transfer.burst_gap.as_secs_f64(),
        states: states.collect(),
        tail_seconds: tail,
        tail_joules: tail.map(|tail| choice.stay.energy(tail)),
        switch_joules: choice.switch().as_joules(),
        threshold_seconds: finite(choice.threshold()),
    }
}
