//! The results as JSON.

use manyways_unit::Span;
use serde::Serialize;

use super::{Results, Sum, TraceResult};

/// The output of `radio simulate --json`.
#[derive(Debug, Serialize)]
pub struct Document {
    /// Whether a signal stopped the run; all values are of the packets read until then.
    stopped: bool,
    traces: Vec<Trace>,
    /// Over all traces: sums are divided, not averages.
    totals: Vec<Run>,
    /// One entry per trace and run.
    runs: Vec<Run>,
}

manyways_record::document!(Document, "manyways.radio-simulate/1");

#[derive(Debug, Serialize)]
struct Trace {
    name: String,
    packets: u64,
    seconds: f64,
}

/// Results of a policy on a radio.
#[derive(Debug, Serialize)]
pub struct Run {
    /// `None` for the sum of all traces.
    pub trace: Option<String>,
    pub profile: String,
    /// Swept values of the profile.
    pub variant: String,
    pub policy: String,
    pub joules: f64,
    pub saved: Option<f64>,
    pub saved_of_tail: Option<f64>,
    pub saved_of_oracle: Option<f64>,
    pub switches: u64,
    pub switches_by_status_quo: Option<f64>,
    pub switches_by_oracle: Option<f64>,
    pub joules_saved_per_switch: Option<f64>,
    pub false_switches: Option<f64>,
    pub missed_switches: Option<f64>,
    pub sleeps: u64,
    pub mean_wait_seconds: Option<f64>,
    /// Delay-tolerant sessions.
    pub sessions: u64,
    pub held: u64,
    pub mean_delay_seconds: Option<f64>,
    pub median_delay_seconds: Option<f64>,
    pub p95_delay_seconds: Option<f64>,
}

impl Document {
    /// If `is_stopped`, a signal stopped the run.
    pub fn new(results: &Results, is_stopped: bool) -> Self {
        let traces = results.traces.iter().map(|trace| Trace {
            name: trace.trace.clone(),
            packets: trace.trace_stats.packets,
            seconds: trace.trace_stats.lasts(),
        });
        let totals = (0..results.variants.jobs.len()).map(|run| {
            let quantiles =
                [0.5, 0.95].map(|share| results.delay(run, share).map(Span::as_secs_f64));
            run_document(results, run, None, &results.sum(run), quantiles)
        });
        Self {
            stopped: is_stopped,
            traces: traces.collect(),
            totals: totals.collect(),
            runs: runs(results),
        }
    }
}

/// The results of each trace and run.
pub(super) fn runs(results: &Results) -> Vec<Run> {
    let each = |trace: &TraceResult| {
        let runs = 0..results.variants.jobs.len();
        let runs = runs.map(|run| {
            let delays = &trace.runs[run].outcome.delays;
            let quantiles = [0.5, 0.95].map(|share| delays.quantile(share).map(Span::as_secs_f64));
            run_document(results, run, Some(trace), &results.trace_sum(trace, run), quantiles)
        });
        runs.collect::<Vec<Run>>()
    };
    results.traces.iter().flat_map(each).collect()
}

fn run_document(
    results: &Results,
    run: usize,
    trace: Option<&TraceResult>,
    sum: &Sum,
    [median, p95]: [Option<f64>; 2],
) -> Run {
    let finite = |value: f64| value.is_finite().then_some(value);
    let variants = &results.variants;
    let (profile, variant) = variants.names[variants.jobs[run].profile].clone();
    Run {
        trace: trace.map(|trace| trace.trace.clone()),
        profile,
        variant,
        policy: variants.policies[run].clone(),
        joules: sum.joules,
        saved: finite(sum.saved()),
        saved_of_tail: finite(sum.saved_of_tail()),
        saved_of_oracle: finite(sum.share_of_oracle()),
        switches: sum.switches,
        switches_by_status_quo: finite(sum.switches()),
        switches_by_oracle: finite(sum.switches_of_oracle()),
        joules_saved_per_switch: finite(sum.saved_per_switch()),
        false_switches: finite(sum.false_switches()),
        missed_switches: finite(sum.missed_switches()),
        sleeps: sum.sleeps,
        mean_wait_seconds: finite(sum.wait()),
        sessions: sum.sessions,
        held: sum.delayed,
        mean_delay_seconds: finite(sum.delay()),
        median_delay_seconds: median,
        p95_delay_seconds: p95,
    }
}
