//! `replay why`: the answer to one request, and its reasons.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueHint;
use manyways_model::matching::{Answer, Candidate, Request};
use manyways_record::document::to_json_pretty;
use serde::Serialize;

use super::{RuleChoice, open};
use crate::failure::Failure;

/// Explain which recorded exchange answers a request
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways replay why page.zip 'https://example.com/search?q=x'
  manyways replay why page.zip https://example.com/form --method POST --data 'a=1&b=2'")]
pub struct Args {
    /// The recording
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Absolute URL of the request
    #[arg(value_name = "URL")]
    url: String,
    /// Method of the request
    #[arg(long, value_name = "NAME", default_value = "GET")]
    method: String,
    /// Body of the request
    #[arg(long, value_name = "TEXT", default_value = "")]
    data: String,
    /// A field of the request's head; may be repeated
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Rule by which recorded exchanges are found
    #[arg(long = "match", value_enum, default_value = "manyways")]
    rule: RuleChoice,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The JSON document.
#[derive(Serialize)]
struct ReplayWhy {
    url: String,
    /// `hit`, `approximate` or `miss`.
    answer: &'static str,
    /// URL of the recorded exchange that answers.
    exchange: Option<String>,
    threshold: f64,
    candidates: Vec<CandidateRow>,
}
manyways_record::document!(ReplayWhy, "manyways.replay-why/1");

#[derive(Serialize)]
struct CandidateRow {
    /// Number of the exchange, from 1.
    exchange: usize,
    url: String,
    score: f64,
    is_excluded: bool,
    differences: Vec<String>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let contents = open(&args.file, args.rule.rule())?;
    let fields: Vec<(&str, &[u8])> = (args.header.iter())
        .map(|text| match text.split_once(':') {
            Some((name, value)) => Ok((name.trim(), value.trim().as_bytes())),
            None => Failure::refuse(
                format!("`{text}` is not a field"),
                "write it like --header 'Accept: text/html'",
            ),
        })
        .collect::<Result<_, Failure>>()?;
    let Some(request) = Request::from_url(&args.method, &args.url) else {
        return Failure::refuse(
            format!("`{}` is not an absolute URL", args.url),
            "write it like https://example.com/",
        );
    };
    let request = Request { fields: &fields, body: args.data.as_bytes(), ..request };
    let explained = contents.index().explain(&request);
    let url = |id: usize| {
        let exchange = contents.archive().exchanges.get(id);
        exchange.map(|exchange| exchange.request.url.clone()).unwrap_or_default()
    };
    let answer = match &explained.answer {
        Answer::Hit(_) => "hit",
        Answer::Approximate { .. } => "approximate",
        Answer::Miss { .. } => "miss",
    };
    let row = |one: &Candidate| CandidateRow {
        exchange: one.id + 1,
        url: url(one.id),
        score: one.score,
        is_excluded: one.is_excluded,
        differences: one.differences.iter().map(ToString::to_string).collect(),
    };
    let why = ReplayWhy {
        url: args.url.clone(),
        answer,
        exchange: explained.answer.hit().map(|hit| url(hit.id)),
        threshold: explained.threshold,
        candidates: explained.candidates.iter().map(row).collect(),
    };
    if args.json {
        print!("{}", to_json_pretty(&why)?);
        return Ok(ExitCode::SUCCESS);
    }
    match &why.exchange {
        Some(url) if why.answer == "hit" => println!("hit: the recording has this request ({url})"),
        Some(url) => println!("approximate hit: {url} answers"),
        None => println!("miss: no recorded request is similar enough"),
    }
    if !why.candidates.is_empty() {
        println!("\nscores from {:.2} on answer:", why.threshold);
    }
    for one in &why.candidates {
        let excluded = if one.is_excluded { ", excluded" } else { "" };
        println!("  {:.2}{excluded}  {}", one.score, one.url);
        for difference in &one.differences {
            println!("        {difference}");
        }
    }
    Ok(ExitCode::SUCCESS)
}
