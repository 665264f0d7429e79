//! Writes an object to standard output.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

use manyways_net::fetch::Body;
use tokio::task::JoinHandle;

use crate::failure::Failure;

/// Writes all bytes on a separate thread, so that a slow reader blocks nothing else.
pub fn write(mut body: Body) -> JoinHandle<io::Result<()>> {
    tokio::task::spawn_blocking(move || {
        // `io::stdout` would search for line ends in its buffer.
        let mut out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        while let Some(piece) = body.blocking_next() {
            out.write_all(&piece)?;
        }
        Ok(())
    })
}

/// The failure for an error of standard output.
pub fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => {
            Failure::new("standard output was closed before the end of the download")
        }
        _ => Failure::new(format!("standard output cannot be written: {error}"))
            .hint("write to a file with -o"),
    }
}
