//! `manyways._native`: captures to columns, and the energy of radios, for the Python package in
//! `python/`.
//!
//! Python opens files and decompresses them; this crate converts their bytes to tables or smaller
//! captures. A column is passed as the buffers of Arrow's columnar format, which Python assembles,
//! so that this crate needs no Arrow library.
#![forbid(unsafe_code)]

mod capture;
mod columns;
mod excerpt;
mod file;
mod radio;

use manyways_flows::analysis;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// The Python module.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::capture::Captures;
    #[pymodule_export]
    use super::excerpt::Excerpt;
    #[pymodule_export]
    use super::radio::{PolicySpec, Radio, Trace, policies, radios, workloads};
    #[pymodule_export]
    use super::schemas;
}

/// Returns the documentation of all tables: for each its name, the name and version of its schema,
/// and the meaning of a row, and for each column its name, kind and meaning.
#[pyfunction]
fn schemas(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let all = analysis::schemas();
    let tables = all.iter().map(|schema| {
        let columns: Vec<_> = schema
            .columns
            .iter()
            .map(|(name, kind, about)| (*name, columns::kind(*kind), *about))
            .collect();
        (schema.table, schema.id, schema.about, columns)
    });
    PyList::new(py, tables.collect::<Vec<_>>())
}
