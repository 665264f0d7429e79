//! `manyways._native`: captures to columns, and the energy of radios, for the Python package in
//! `python/`.
//!
//! Python opens files and decompresses them; here their bytes become tables, or smaller captures. A column crosses as
//! the buffers that Arrow's format has for it, and Python puts them together: no library of Arrow
//! is needed on this side.
#![forbid(unsafe_code)]

mod capture;
mod columns;
mod excerpt;
mod file;
mod radio;

use manyways_flows::analysis;
use manyways_record::table;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// What Python imports.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::capture::Captures;
    #[pymodule_export]
    use super::excerpt::Excerpt;
    #[pymodule_export]
    use super::radio::{Plan, Radio, Trace, plans, radios, workloads};
    #[pymodule_export]
    use super::schemas;

    /// The version of all schemas.
    #[pymodule_export]
    const SCHEMA_VERSION: u32 = super::table::VERSION;
}

/// What is said of all tables: for each its name, what a row is, and for each column its name, what
/// its values are and what it means.
#[pyfunction]
fn schemas(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let all = analysis::schemas();
    let tables = all.iter().map(|schema| {
        let columns: Vec<_> = schema
            .columns
            .iter()
            .map(|(name, kind, about)| (*name, columns::kind(*kind), *about))
            .collect();
        (schema.table, schema.about, columns)
    });
    PyList::new(py, tables.collect::<Vec<_>>())
}
