//! Tables in Parquet files, which may come from other hosts.

use std::io::{self, Write};

use manyways_capture::{Export, Format, Tables};
use manyways_net::probe::Series;
use tempfile::NamedTempFile;

pub(super) const WORDS: &[&str] = &[
    "PAR1",
    "manyways.schema",
    "manyways-comparison/1",
    "\u{26}\u{7}",
    "\u{16}\u{1}",
    "\u{15}\u{6}",
    "\u{19}\u{2c}",
    "\u{55}\u{2}",
    "\u{2}\0\0\0",
    "\u{3}\u{1}",
];

/// A file with these bytes.
fn file(bytes: &[u8]) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new()?;
    file.write_all(bytes)?;
    Ok(file)
}

/// A file of comparisons.
pub(super) fn probe_series(bytes: &[u8]) {
    let file = file(bytes).expect("there is room for a temporary file");
    match Series::read(file.path()) {
        Ok(series) => assert!(series.rows().iter().all(|row| row.interface.len() <= 1 << 12)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A table of TCP flows, in each format.
pub(super) fn flow_table(bytes: &[u8]) {
    let file = file(bytes).expect("there is room for a temporary file");
    let Ok(tables) = Tables::file(file.path(), "tcp") else { return };
    for format in [Format::Csv, Format::Tstat, Format::Ipfix] {
        let export = Export::new(&tables, format, None).expect("the table is in each format");
        let _ = export.write(io::sink());
    }
}
