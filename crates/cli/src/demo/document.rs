//! The result as JSON.

use manyways_lab::DEFAULT_CC;
use manyways_unit::{Rate, Span};
use serde::Serialize;
use serde_json::{Value, json};

use super::SIZE;
use super::contender::{Run, RunOutcome};
use super::outcome::{Outcome, request};
use super::setting::{NETWORKS, Network, QUEUE};

/// The output of `--json`, described in docs/demo.md.
#[derive(Serialize)]
pub struct Document(Value);

manyways_record::document!(Document, "manyways.demo/2");

pub fn document(outcome: &Outcome) -> Document {
    let link = |one: &Network| {
        json!({
            "name": one.name,
            "label": one.label,
            "down_bps": one.down.as_bps(),
            "up_bps": one.up.as_bps(),
            "round_trip_seconds": one.round_trip.as_secs_f64(),
            "queue_seconds": QUEUE.as_secs_f64(),
        })
    };
    Document(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "links": NETWORKS.iter().map(link).collect::<Vec<_>>(),
        "congestion_control": DEFAULT_CC,
        "server": outcome.server,
        "object": { "bytes": SIZE.as_bytes(), "sha256": outcome.sha256 },
        "fluid_bound": {
            "seconds": outcome.bound.as_secs_f64(),
            "transfer_seconds": (outcome.bound - request()).as_secs_f64(),
            "request_seconds": request().as_secs_f64(),
        },
        "contenders": outcome.runs.iter().map(|run| run_json(run, outcome)).collect::<Vec<_>>(),
    }))
}

fn run_json(run: &Run, outcome: &Outcome) -> Value {
    let (status, reason) = match &run.outcome {
        RunOutcome::Delivered(_) => ("delivered", None),
        RunOutcome::Failed(reason) => ("failed", Some(reason)),
        RunOutcome::Skipped(reason) => ("skipped", Some(reason)),
    };
    let links = NETWORKS.iter().zip(run.delivered()).zip(run.parts());
    let links = links.map(|((network, bytes), share)| {
        json!({ "name": network.name, "down_bytes": bytes, "share": share })
    });
    let samples = run.samples.iter();
    let samples = samples.map(
        |sample| json!({ "seconds": sample.at.as_secs_f64(), "down_bytes": sample.delivered }),
    );
    let (report, elapsed) = (run.report(), run.elapsed());
    let seconds = elapsed.map(Span::as_secs_f64);
    json!({
        "name": run.contender.name,
        "label": run.contender.label,
        "about": run.contender.about,
        "status": status,
        "reason": reason,
        "seconds": seconds,
        "process_seconds": run.process.map(Span::as_secs_f64),
        "longest_gap_seconds": run.longest_gap().as_secs_f64(),
        "rate_bps": elapsed.map(|elapsed| Rate::of(SIZE, elapsed).as_bps()),
        "bound_ratio": seconds.map(|seconds| seconds / outcome.bound.as_secs_f64()),
        // A delivered file has the bytes of the server's.
        "bytes": report.map(|_| SIZE.as_bytes()),
        "sha256": report.map(|_| &outcome.sha256),
        "protocol": report.map(|report| &report.protocol),
        "links": links.collect::<Vec<_>>(),
        "mptcp": run.mptcp,
        "requests": run.requests(),
        "timeline": samples.collect::<Vec<_>>(),
    })
}
