//! Answers what-if questions about a trace from a file.

use std::sync::atomic::Ordering;

use manyways_model::radio::change::ChangeEffect;
use manyways_model::radio::energy::Battery;
use manyways_model::radio::profiles::Known;
use manyways_model::radio::whatif::{Alternative, Effect, Sum};
use manyways_model::radio::{DelayTolerance, Packet};
use serde::Serialize;

use super::trace::{Progress, Trace, TraceError};

/// A named alternative.
#[derive(Clone, Debug)]
pub struct Question {
    pub name: String,
    pub alternative: Alternative,
}

/// The output of `radio whatif --json`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Document {
    pub trace: String,
    pub profile: String,
    /// Names of the changed applications as given by the user; empty for all.
    pub applications: Vec<String>,
    pub packets: u64,
    pub seconds: f64,
    /// Whether a signal stopped the run, so that rows are missing.
    pub stopped: bool,
    /// The unchanged trace, then the questions, in order.
    pub lines: Vec<Line>,
}

manyways_record::document!(Document, "manyways.radio-whatif/2");

/// A traffic pattern and its energy.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Line {
    /// Name of the question.
    pub change: String,
    pub joules: f64,
    pub joules_saved: f64,
    /// Share of the energy without a change.
    pub saved: f64,
    pub mah: f64,
    pub switches: u64,
    pub sessions: u64,
    pub moved: u64,
    pub mean_move_seconds: Option<f64>,
    pub max_move_seconds: Option<f64>,
    /// `later`, `sooner`, or empty.
    pub direction: &'static str,
}

/// Reason why there are no answers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WhatIfError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// No packet of the trace belongs to the application.
    #[error("the trace has no such application")]
    NoApplication {
        /// Applications of the trace, sorted.
        known: Vec<String>,
    },
}

/// Answers the questions; `changes` selects the applications that change, whose names are
/// `applications`.
///
/// # Errors
/// Fails if the trace cannot be read, or none of its applications is selected.
pub fn run(
    trace: &mut Trace,
    known: &Known,
    questions: &[Question],
    (changes, applications): (&DelayTolerance, &[String]),
    battery: &Battery,
    progress: &Progress,
) -> Result<Document, WhatIfError> {
    let profile = &known.profile;
    let mut sum = Sum::new(profile);
    let seen = trace.read(progress, |packet| sum.push(packet))?;
    // All rows cover the same time: until the radio is released after the unchanged trace.
    let horizon = (seen.first.unwrap_or_default(), sum.end());
    let chosen: Vec<bool> = trace.apps().iter().map(|app| changes.is_delay_tolerant(app)).collect();
    if !chosen.contains(&true) {
        let mut known: Vec<String> = trace.apps().iter().map(|app| app.name.clone()).collect();
        known.sort_unstable();
        known.dedup();
        return Err(WhatIfError::NoApplication { known });
    }
    let is_chosen = |packet: &Packet| chosen.get(usize::from(packet.app)) == Some(&true);
    let (switches, before) = (sum.switches(), sum.joules(horizon.1));
    let line = |name: &str, Effect { joules, switches, moved }: Effect, moves: &'static str| {
        let is_moved = moved.changed > 0 && !moves.is_empty();
        Line {
            change: name.to_owned(),
            joules,
            joules_saved: before - joules,
            saved: (before - joules) / before,
            mah: battery.mah(joules),
            switches,
            sessions: moved.sessions,
            moved: moved.changed,
            mean_move_seconds: is_moved.then(|| moved.shift.as_secs_f64() / moved.changed as f64),
            max_move_seconds: is_moved.then_some(moved.max_shift.as_secs_f64()),
            direction: moves,
        }
    };
    let unchanged = Effect { joules: before, switches, moved: ChangeEffect::default() };
    let mut lines = vec![line("unchanged", unchanged, "")];
    for Question { name, alternative } in questions {
        if seen.is_stopped {
            break;
        }
        let effect = alternative
            .effect(profile, &is_chosen, horizon, |each| trace.read(progress, each).map(|_| ()))?;
        // Results of a part of the trace cannot be compared.
        if progress.stop.load(Ordering::Relaxed) {
            break;
        }
        lines.push(line(name, effect, alternative.direction()));
    }
    Ok(Document {
        trace: trace.name().to_owned(),
        profile: known.name.clone(),
        applications: applications.to_vec(),
        packets: seen.packets,
        seconds: seen.lasts(),
        stopped: false,
        lines,
    })
}
