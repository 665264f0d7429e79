//! The result of a run as JSON. Fields are in alphabetical order.

use std::path::Path;

use manyways_model::radio::gap_sweep::{InferredTimer, ProbeSchedule};
use manyways_model::radio::infer::InferenceError;
use serde::Serialize;

use super::Method;
use crate::radio::infer::{TimerDocument, timer_documents};

/// The output of `radio probe --json`.
#[derive(Debug, Serialize)]
pub struct Document {
    answered: usize,
    awake_round_trip_seconds: Option<f64>,
    disturbed: u64,
    file: String,
    given_up_seconds: Vec<f64>,
    interface: String,
    lost: u64,
    method: String,
    no_timer: Option<String>,
    planned: usize,
    target: String,
    timers: Vec<TimerDocument>,
    whole: bool,
}

manyways_record::document!(Document, "manyways.radio-probe/1");

impl Document {
    /// If `is_whole`, the run was not stopped.
    pub fn new(
        (interface, target): (&str, &str),
        method: Method,
        plan: &ProbeSchedule,
        file: &Path,
        is_whole: bool,
        found: &Result<Vec<InferredTimer>, InferenceError>,
    ) -> Self {
        let timers = found.as_deref().unwrap_or_default();
        Self {
            answered: plan.answered(),
            awake_round_trip_seconds: timers.first().map(|one| one.expiry.connected_rtt),
            disturbed: plan.disturbed(),
            file: file.display().to_string(),
            given_up_seconds: plan.abandoned().iter().map(|idle| idle.as_secs_f64()).collect(),
            interface: interface.to_owned(),
            lost: plan.lost(),
            method: method.description(),
            no_timer: found.as_ref().err().map(ToString::to_string),
            planned: plan.planned(),
            target: target.to_owned(),
            timers: timer_documents(timers),
            whole: is_whole,
        }
    }
}
