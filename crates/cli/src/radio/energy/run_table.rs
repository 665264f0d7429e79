//! The radio's states over time as CSV.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use manyways_model::radio::profiles::Known;
use manyways_model::radio::timeline::Segment;
use manyways_unit::Time;

use crate::report_file::PartFile;

/// The timeline file.
pub struct Sheet {
    path: PathBuf,
    out: PartFile,
    /// The first error of [`Sheet::write`].
    written: io::Result<()>,
}

impl Sheet {
    pub fn create(path: &Path) -> Result<Self> {
        let failed = || format!("cannot write {}", path.display());
        let mut out = PartFile::create(path).with_context(failed)?;
        let written = out.write_all(b"trace,radio,begins,ends,state,joules\n");
        Ok(Self { path: path.to_owned(), out, written })
    }

    /// Writes a segment of a trace's timeline on a radio. [`Sheet::close`] reports the first error.
    pub fn write(&mut self, trace: &str, radio: &Known, segment: &Segment) {
        let secs = |time: Time| {
            format!("{}.{:09}", time.as_nanos() / 1_000_000_000, time.as_nanos() % 1_000_000_000)
        };
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let written = writeln!(
            self.out,
            "{},{},{},{},{},{:.9}",
            quoted(trace),
            quoted(&radio.name),
            secs(segment.start),
            secs(segment.end),
            quoted(segment.phase.name(&radio.profile)),
            segment.joules
        );
        if self.written.is_ok() {
            self.written = written;
        }
    }

    pub fn close(self) -> Result<()> {
        let Self { path, out, written } = self;
        written
            .and_then(|()| out.close())
            .with_context(|| format!("cannot write {}", path.display()))
    }
}
