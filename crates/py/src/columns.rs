//! Columns in the layout of Arrow (the columnar format's "Physical Memory Layout").

use manyways_record::table::{Batch, Data, Kind, Schema, Values};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

/// Returns the name of a kind in Python.
pub fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Time => "time",
        Kind::Span => "span",
        Kind::Count | Kind::Flow => "count",
        Kind::Number => "number",
        Kind::Flag => "flag",
        Kind::Text | Kind::Address | Kind::Name => "text",
    }
}

/// Returns the number of rows of a table, and for each column its name, the number of absent values
/// and its buffers.
pub fn table<'py>(py: Python<'py>, schema: &Schema, batch: &Batch) -> PyResult<Bound<'py, PyDict>> {
    let columns = PyDict::new(py);
    for ((name, ..), values) in schema.columns.iter().zip(batch.columns()) {
        let absent = values.present.iter().filter(|is_there| !**is_there).count();
        let validity =
            (absent > 0).then(|| PyBytes::new(py, &pack_bits(values.present.iter().copied())));
        let data = PyList::empty(py);
        for buffer in buffers(values) {
            data.append(PyBytes::new(py, &buffer))?;
        }
        columns.set_item(name, (absent, validity, data))?;
    }
    let table = PyDict::new(py);
    table.set_item("rows", batch.rows())?;
    table.set_item("columns", columns)?;
    Ok(table)
}

/// Returns the buffers after the validity bitmap.
fn buffers(values: &Values) -> Vec<Vec<u8>> {
    let present = &values.present;
    match &values.data {
        Data::Integer(all) => vec![fill_rows(present, all, i64::to_le_bytes)],
        Data::Number(all) => vec![fill_rows(present, all, f64::to_le_bytes)],
        Data::Flag(all) => {
            let mut all = all.iter().copied();
            vec![pack_bits(
                present.iter().map(|is_there| *is_there && all.next().unwrap_or_default()),
            )]
        }
        Data::Text(text, ends) => {
            let (mut ends, mut end) = (ends.iter(), 0_u64);
            let mut offsets = Vec::with_capacity((present.len() + 1) * 8);
            offsets.extend(end.to_le_bytes());
            for is_there in present {
                if *is_there && let Some(next) = ends.next() {
                    end = *next as u64;
                }
                offsets.extend(end.to_le_bytes());
            }
            vec![offsets, text.clone().into_bytes()]
        }
    }
}

/// Places the values in their rows, with zeros for absent values.
fn fill_rows<T: Copy>(present: &[bool], all: &[T], bytes: fn(T) -> [u8; 8]) -> Vec<u8> {
    let mut all = all.iter();
    let mut buffer = Vec::with_capacity(present.len() * 8);
    for is_there in present {
        let value = if *is_there { all.next() } else { None };
        buffer.extend(value.map_or([0; 8], |value| bytes(*value)));
    }
    buffer
}

/// Packs eight flags into a byte, the first one in the lowest bit.
fn pack_bits(flags: impl ExactSizeIterator<Item = bool>) -> Vec<u8> {
    let mut bytes = vec![0; flags.len().div_ceil(8)];
    for (index, flag) in flags.enumerate() {
        bytes[index / 8] |= u8::from(flag) << (index % 8);
    }
    bytes
}
