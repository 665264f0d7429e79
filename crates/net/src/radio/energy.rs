//! Energy of a trace from a file.

mod document;

use manyways_model::radio::energy::{Accounting, By, Energies};
use manyways_model::radio::profiles::Known;
use manyways_model::radio::timeline::Segment;
use manyways_unit::Time;

pub use self::document::Document;
use super::trace::{Progress, Trace, TraceError, TraceStats};

/// Energy of a trace on a radio.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Name of the trace.
    pub trace: String,
    pub radio: Known,
    pub trace_stats: TraceStats,
    pub energies: Energies,
}

impl Measured {
    /// Joules a day; `None` if the trace is too short.
    pub fn daily_joules(&self) -> Option<f64> {
        const SHORTEST: f64 = 600.0;
        let lasts = self.trace_stats.lasts();
        (lasts >= SHORTEST).then(|| self.energies.account.total() / lasts * 86_400.0)
    }
}

/// Joules of all radios.
pub fn total(measured: &[Measured]) -> f64 {
    measured.iter().map(|one| one.energies.account.total()).sum()
}

/// Joules a day of all radios; `None` if one trace is too short.
pub fn a_day(measured: &[Measured]) -> Option<f64> {
    measured.iter().map(Measured::daily_joules).sum()
}

/// Reads a trace once, and passes each segment of the radio's timeline to `each`. `inputs` are the
/// times of the user's inputs, in order.
///
/// # Errors
/// Returns the fault of the trace.
pub fn measure(
    known: &Known,
    trace: &mut Trace,
    inputs: &[Time],
    by: By,
    progress: &Progress,
    mut each: impl FnMut(&Segment),
) -> Result<Measured, TraceError> {
    let mut accounting = Accounting::new(&known.profile, inputs.to_vec(), by);
    let seen = trace.read(progress, |packet| accounting.push(packet, &mut each))?;
    let energies = accounting.finish(trace.apps(), each);
    Ok(Measured {
        trace: trace.name().to_owned(),
        radio: known.clone(),
        trace_stats: seen,
        energies,
    })
}
