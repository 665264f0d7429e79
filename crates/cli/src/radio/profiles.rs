//! `manyways radio profiles`: lists built-in profiles.

use std::process::ExitCode;

use anyhow::Result;
use manyways_model::radio::profiles;
use manyways_net::radio::profiles::{Document, KeyFigures};
use manyways_record::document;

use super::named_profile;
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
    #[arg(value_name = "NAME", help = name_help())]
    name: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn name_help() -> String {
    let names: Vec<&str> = profiles::all().map(|(name, _)| name).collect();
    format!("Print the file of this profile: {}", names.join(", "))
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(name) = &args.name {
        let known = named_profile::find(name)?;
        let text = match args.json {
            true => document::to_json_pretty(&Document { profiles: vec![KeyFigures::of(&known)] })?,
            false => match profiles::all().find(|(one, _)| one == name) {
                Some((_, text)) => text.to_owned(),
                None => named_profile::read_profile(name.as_ref())?.1,
            },
        };
        return super::print(&text);
    }
    let all: Vec<KeyFigures> = profiles::all()
        .map(|(name, _)| named_profile::find(name).map(|known| KeyFigures::of(&known)))
        .collect::<Result<_, _>>()?;
    if args.json {
        return super::print(&document::to_json_pretty(&Document { profiles: all })?);
    }
    let head = ["name", "kind", "send", "receive", "tail", "", "threshold", "title"];
    let row = |one: &KeyFigures| {
        vec![
            one.name.clone(),
            one.technology.to_owned(),
            watts(one.send_watts),
            watts(one.receive_watts),
            one.tail_seconds.map_or("–".to_owned(), seconds),
            one.tail_joules.map_or("–".to_owned(), joules),
            one.threshold_seconds.map_or("–".to_owned(), seconds),
            one.title.clone(),
        ]
    };
    super::print(&table(&head, all.iter().map(row)))
}
