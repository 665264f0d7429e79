//! Captures, fed in pieces.

use manyways_flows::analysis::{Aggregator, Analysis, Settings};
use manyways_unit::Prefix;
use manyways_unit::{Span, Time};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::columns;
use crate::file::{File, Times};

/// A capture that begins more than this time before the end of the previous one does not continue
/// it. A shorter step back is a clock step. The same value as in `manyways flows`.
const MAX_OVERLAP: Span = Span::from_secs(2);

/// Captures that are read one after the other.
#[pyclass]
pub struct Captures {
    settings: Settings,
    analysis: Analysis,
    aggregator: Option<Aggregator>,
    file: File,
    /// Time of the latest packet of all captures.
    latest: Option<Time>,
}

#[pymethods]
impl Captures {
    /// Raises ValueError if a prefix or `idle` is invalid.
    #[new]
    fn new(local: Vec<String>, packets: bool, idle: f64) -> PyResult<Self> {
        let prefix = |text: &String| {
            let wrong = |error| PyValueError::new_err(format!("{text} is not a prefix: {error}"));
            text.parse::<Prefix>().map_err(wrong)
        };
        let local = local.iter().map(prefix).collect::<PyResult<_>>()?;
        if !(idle > 0.0 && idle <= 86_400.0) {
            return Err(PyValueError::new_err(
                "idle must be more than 0 and at most 86400 seconds",
            ));
        }
        let mut settings = Settings::default();
        settings.local = local;
        settings.limits.idle = Span::from_nanos((idle * 1e9) as u64);
        settings.packets = packets;
        Ok(Self {
            analysis: Analysis::new(settings.clone()),
            aggregator: Some(Aggregator::new(&settings)),
            settings,
            file: File::default(),
            latest: None,
        })
    }

    /// Reads the next bytes of the capture.
    fn feed(&mut self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        if self.aggregator.is_none() {
            return Err(finished_error());
        }
        py.detach(|| self.analyze(bytes));
        Ok(())
    }

    /// Ends the capture; another one may follow. Returns the number of packets, the reason if the
    /// capture was not read to its end, and the times of the first and the latest packet.
    fn end(&mut self) -> (u64, Option<String>, Times) {
        std::mem::take(&mut self.file).finish()
    }

    /// Ends all captures and returns the columns of each table.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Some(mut aggregator) = self.aggregator.take() else { return Err(finished_error()) };
        py.detach(|| finish_flows(&mut self.analysis, &mut aggregator));
        let tables = PyDict::new(py);
        let mut result = Ok(());
        aggregator.flush(true, |schema, batch| {
            let table = || tables.set_item(schema.table, columns::table(py, schema, batch)?);
            if result.is_ok() {
                result = table();
            }
        });
        result.map(|()| tables)
    }
}

fn finished_error() -> PyErr {
    PyValueError::new_err("the tables were already returned")
}

/// Ends all flows and collects their records.
fn finish_flows(analysis: &mut Analysis, aggregator: &mut Aggregator) {
    analysis.finish();
    while let Some(record) = analysis.poll() {
        aggregator.add(record);
    }
}

impl Captures {
    fn analyze(&mut self, bytes: &[u8]) {
        let Self { settings, analysis, aggregator: Some(aggregator), file, latest } = self else {
            return;
        };
        file.feed(bytes, |file, packet, _| {
            let Some((interface, packet)) = packet else { return };
            if file.is_new() && latest.is_some_and(|is| packet.at + MAX_OVERLAP < is) {
                finish_flows(analysis, aggregator);
                *analysis = Analysis::new(settings.clone());
                *latest = None;
            }
            *latest = (*latest).max(Some(packet.at));
            analysis.handle_packet(interface, packet);
            while let Some(record) = analysis.poll() {
                aggregator.add(record);
            }
        });
    }
}
