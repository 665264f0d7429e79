//! `--events`: the event log of a client.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use manyways_net::bond::{BondEvent, Client, Journal};
use manyways_record::event::{Header, Record, line};
use tokio::sync::mpsc;

use crate::failure::Failure;

/// Starts an event log, and replaces the file. Runs on the calling thread's local tasks.
pub fn start(path: &Path, client: &Client) -> Result<Journal, Failure> {
    let header = Header::new("bond", env!("CARGO_PKG_VERSION"), client.epoch());
    let begin = || -> io::Result<BufWriter<File>> {
        // The log contains destinations: only the owner can read it.
        let file =
            File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let mut out = BufWriter::new(file);
        out.write_all(header.line().as_bytes())?;
        out.flush()?;
        Ok(out)
    };
    let mut out = begin().map_err(|error| {
        let words = format!("the event log {} cannot be written: {error}", path.display());
        Failure::new(words).hint("name another file with --events")
    })?;
    let (journal, mut records) = Journal::new();
    let path = path.to_owned();
    tokio::task::spawn_local(async move {
        while let Some(record) = records.recv().await {
            // The bond continues without its log.
            if let Err(error) = write(&mut out, &record, &mut records) {
                return tracing::warn!("the event log {} ends here: {error}", path.display());
            }
        }
    });
    Ok(journal)
}

/// Writes a record, and all records that are already queued.
fn write(
    out: &mut BufWriter<File>,
    record: &Record<BondEvent>,
    records: &mut mpsc::UnboundedReceiver<Record<BondEvent>>,
) -> io::Result<()> {
    out.write_all(line(record).as_bytes())?;
    while let Ok(record) = records.try_recv() {
        out.write_all(line(&record).as_bytes())?;
    }
    out.flush()
}
