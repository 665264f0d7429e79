//! Timers and powers inferred from files of measurements.

mod document;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use manyways_capture::Source;
use manyways_model::radio::Profile;
use manyways_model::radio::csv::CsvError;
use manyways_model::radio::gap_sweep::{self, InferredTimer};
use manyways_model::radio::infer::InferenceError;
use manyways_model::radio::powers::{Monitor, PowerFit, PowerFitError, Powers};
use manyways_model::radio::probes::{PowerSampleReader, ProbeReader};
use manyways_unit::{Span, Time};

pub(crate) use self::document::timers as timer_documents;
pub use self::document::{Document, TimerDocument};
use super::lines::each_line;
use super::trace::{Progress, Trace, TraceError};

/// Timers inferred from a file of probes.
#[derive(Clone, Debug)]
pub struct Inferred {
    /// Number of answered probes.
    pub probes: usize,
    pub timers: Result<Vec<InferredTimer>, InferenceError>,
}

/// Reason why nothing can be inferred.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InferError {
    /// A file of measurements cannot be read.
    #[error(transparent)]
    Measurements(TraceError),
    #[error(transparent)]
    Trace(TraceError),
    #[error("cannot fit powers: {0}")]
    Powers(#[from] PowerFitError),
}

impl InferError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Measurements(TraceError::Line { error, .. }) => error.hint.clone(),
            Self::Measurements(_) => None,
            Self::Trace(error) => Some(error.hint()),
            Self::Powers(PowerFitError::TooLong) => Some("choose a longer --window".to_owned()),
            Self::Powers(_) => Some(
                "the samples and the trace must overlap for some minutes on one clock (--offset)"
                    .to_owned(),
            ),
        }
    }
}

/// Passes the lines after the first one to `each`, with the reader that `new` makes of the first.
fn read<R>(
    path: &Path,
    stop: &Arc<AtomicBool>,
    new: impl Fn(&str) -> Result<R, CsvError>,
    mut each: impl FnMut(&mut R, &str) -> Result<(), CsvError>,
) -> Result<(), InferError> {
    let mut reader = None;
    let source = Source::from_path(path).map_err(|error| InferError::Measurements(error.into()))?;
    let line = |line: &str| {
        match &mut reader {
            None => reader = Some(new(line)?),
            Some(reader) => each(reader, line)?,
        }
        Ok(true)
    };
    each_line(&path.display().to_string(), &source, stop, false, line)
        .map_err(InferError::Measurements)
}

/// Infers timers from the probes in a file, or in standard input if the path is `-`.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn timers(path: &Path) -> Result<Inferred, InferError> {
    let mut all = Vec::new();
    read(path, &Arc::default(), ProbeReader::new, |reader, line| {
        all.extend(reader.line(line)?);
        Ok(())
    })?;
    Ok(Inferred { probes: all.len(), timers: gap_sweep::infer_timers(&all) })
}

/// Reads the samples of a power monitor. `offset` seconds are added to their times.
///
/// # Errors
/// Fails if the file cannot be read, or has too many samples.
pub fn samples(
    path: &Path,
    profile: &Profile,
    window: Span,
    offset: f64,
    stop: &Arc<AtomicBool>,
) -> Result<PowerFit, InferError> {
    let mut monitor = Monitor::new(window);
    let later = |at: Time| {
        let nanos = at.as_nanos() as i128 + (offset * 1e9).round() as i128;
        u64::try_from(nanos).ok().map(Time::from_nanos)
    };
    read(path, stop, PowerSampleReader::new, |reader, line| {
        if let Some((at, watts)) = reader.line(line)?
            && let Some(at) = later(at)
        {
            monitor.sample(at, watts);
        }
        Ok(())
    })?;
    Ok(PowerFit::new(profile, monitor)?)
}

/// Fits powers to the samples by the packets of a trace.
///
/// # Errors
/// Fails if the trace cannot be read, or if trace and samples have too little in common.
pub fn powers(
    mut fit: PowerFit,
    trace: &mut Trace,
    progress: &Progress,
) -> Result<Powers, InferError> {
    trace.read(progress, |packet| fit.push_packet(packet)).map_err(InferError::Trace)?;
    Ok(fit.finish()?)
}
