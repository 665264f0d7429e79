//! Lines of text from files.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use manyways_capture::Source;
use manyways_model::radio::csv::{CsvError, MAX_LINE};

use super::trace::TraceError;

/// Passes each line to `each` until it returns false; reading ends when `stop` is set. If `is_cut`,
/// the text may end within a line, which is then left out.
pub(super) fn each_line(
    name: &str,
    source: &Source,
    stop: &Arc<AtomicBool>,
    is_cut: bool,
    mut each: impl FnMut(&str) -> Result<bool, CsvError>,
) -> Result<(), TraceError> {
    let wrong = |error| TraceError::Line { name: name.to_owned(), error };
    let mut lines = BufReader::with_capacity(1 << 17, source.reader(stop)?);
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        number += 1;
        // One byte more than a line with its end can have, so that the reader detects a line that
        // is too long.
        let room = MAX_LINE as u64 + 3;
        let read = lines.by_ref().take(room).read_until(b'\n', &mut line);
        let read = read.map_err(|error| TraceError::Read { name: name.to_owned(), error })?;
        if read == 0 || is_cut && line.last() != Some(&b'\n') {
            return Ok(());
        }
        let text = str::from_utf8(&line).map_err(|_| {
            let sentence = "the line is not UTF-8 text".to_owned();
            wrong(CsvError { line: number, message: sentence, hint: None })
        })?;
        if !each(text).map_err(wrong)? {
            return Ok(());
        }
    }
}
