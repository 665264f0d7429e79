//! Files with loads of a page.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use manyways_net::probe::{Report, page_archive};
use manyways_wire::har::{self, Content};

/// Writes all loads as one HAR file.
pub fn write_har(file: &Path, reports: &[Report]) -> Result<()> {
    let write = || {
        let mut out = BufWriter::new(File::create(file)?);
        har::write(&page_archive(reports), |_, _| Content::Omitted, &mut out)?;
        out.flush()
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}
