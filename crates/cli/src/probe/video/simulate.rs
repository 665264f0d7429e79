//! `manyways probe video --simulate`: films in virtual time.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use manyways_model::qoe::player::{Ending, Session};
use manyways_model::qoe::simulate::{Network, Period, play};
use manyways_net::probe::SessionDocument;
use manyways_record::document;
use manyways_report::text::table;
use manyways_trace::{LinkTrace, trace_file};
use manyways_unit::{Rate, Size, Span};
use serde::Serialize;

use super::Args;
use super::film_file::film;
use super::page::{Course, lead, page};
use super::text::{COLUMNS, cells};
use crate::failure::Failure;
use crate::report_file;

/// Time over which delivery opportunities become a rate.
const BUCKET: Span = Span::from_millis(100);

/// The output of `probe video --simulate --json`.
#[derive(Serialize)]
struct Document {
    film: String,
    trace: String,
    results: Vec<ResultDocument>,
}

manyways_record::document!(Document, "manyways.probe-video-simulation/1");

#[derive(Serialize)]
struct ResultDocument {
    rule: String,
    #[serde(flatten)]
    session: SessionDocument,
}

pub(super) fn run(args: &Args, target: &str, trace: &Path) -> Result<ExitCode> {
    let film = film(Path::new(target))?.with_duration(args.duration);
    let network = network(trace, args.latency)?;
    let sessions: Vec<(String, Session, Ending)> = args
        .rule
        .iter()
        .map(|rule| {
            let (session, ending) = play(&film, &args.player(*rule), &network);
            (rule.to_string(), session, ending)
        })
        .collect();
    if let Some(file) = &args.html {
        let courses = sessions.iter().map(|(name, session, _)| Course {
            name: name.clone(),
            session,
            film: &film,
        });
        let courses: Vec<Course<'_>> = courses.collect();
        report_file::write(file, &page(&lead(target), "Rule", &courses))?;
    }
    if args.options.json {
        let results = sessions.iter().map(|(rule, session, ending)| ResultDocument {
            rule: rule.clone(),
            session: SessionDocument::of(session, &film, Some(*ending)),
        });
        let document = Document {
            film: target.to_owned(),
            trace: trace.display().to_string(),
            results: results.collect(),
        };
        print!("{}", document::to_json(&document)?);
        return Ok(ExitCode::SUCCESS);
    }
    let rows = sessions.iter().map(|(rule, session, _)| {
        let mut row = vec![rule.clone()];
        row.extend(cells(session, &film));
        row
    });
    let head: Vec<&str> = ["RULE"].into_iter().chain(COLUMNS).collect();
    print!("{}", table(&head, rows.collect::<Vec<_>>()));
    Ok(ExitCode::SUCCESS)
}

fn network(file: &Path, latency: Span) -> Result<Network, Failure> {
    let unusable = |why: String| {
        Failure::usage(format!("{} is not a trace: {why}", file.display()))
            .hint("docs/lab.md lists the formats of traces")
    };
    let bytes = fs::read(file).map_err(|error| unusable(error.to_string()))?;
    let capacity =
        trace_file::capacity(&bytes, None).map_err(|error| unusable(error.to_string()))?;
    let delays = trace_file::delay(&bytes, Some(trace_file::Format::Json)).ok();
    // The delay of a JSON trace is that of one way.
    let delay = |at: Span| delays.as_ref().map_or(latency, |delays| *delays.at(at) * 2);
    let periods: Vec<Period> = match &capacity {
        LinkTrace::Rates(rates) => {
            let steps = rates.steps().iter().zip(rates.with_durations());
            let period = |((start, _), (duration, rate)): (&(Span, Rate), (Span, &Rate))| Period {
                duration,
                rate: *rate,
                latency: delay(*start),
            };
            steps.map(period).collect()
        }
        LinkTrace::Opportunities { at, size, period } => {
            let count = period.as_nanos().div_ceil(BUCKET.as_nanos());
            let mut sizes = vec![Size::ZERO; usize::try_from(count).unwrap_or(1).max(1)];
            for at in at {
                let bucket = (at.as_nanos() / BUCKET.as_nanos()) as usize;
                let last = sizes.len() - 1;
                sizes[bucket.min(last)] += *size;
            }
            let period = |size| Period { duration: BUCKET, rate: Rate::of(size, BUCKET), latency };
            sizes.into_iter().map(period).collect()
        }
    };
    Network::new(periods).map_err(|error| unusable(error.to_string()))
}
