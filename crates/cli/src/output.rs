//! Standard output and standard error of every command.
//!
//! The macros in this module hide the standard library's `print!` and its relatives in the whole
//! crate. The standard macros panic if a write fails (`>/dev/full`, `| head -1`); these do not.
//! They also escape the text with [`printable_lines`], because names in it originate from captures,
//! servers and files.
//!
//! A standard output that its reader has closed is not an error. Any other write error sets the
//! exit code in [`finish`]. A write error of standard error is ignored.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use manyways_unit::human::{printable, printable_lines};
use tracing::field::Field;
use tracing_subscriber::fmt::format::Writer;

use crate::failure::Failure;

/// Writes to standard output.
macro_rules! print {
    ($($arg:tt)*) => { $crate::output::text(&::std::format!($($arg)*)) };
}

/// Writes a line to standard output.
#[cfg(any(feature = "get", feature = "bond", feature = "lab"))]
macro_rules! println {
    () => { $crate::output::text("\n") };
    ($($arg:tt)*) => { $crate::output::text(&(::std::format!($($arg)*) + "\n")) };
}

/// Writes to standard error.
#[cfg(any(feature = "demo", feature = "bond"))]
macro_rules! eprint {
    ($($arg:tt)*) => { $crate::output::remark(&::std::format!($($arg)*)) };
}

/// Writes one line to standard error. A line end within it can only originate from a foreign name.
macro_rules! eprintln {
    () => { $crate::output::remark("\n") };
    ($($arg:tt)*) => { $crate::output::remark_line(&::std::format!($($arg)*)) };
}

/// The first write error of standard output.
static WRITE_ERROR: OnceLock<io::Error> = OnceLock::new();

/// Writes text or JSON to standard output. Nothing is written after the first error.
pub fn text(text: &str) {
    bytes(printable_lines(text).as_bytes());
}

/// Replaces the last line of standard error, which has no line end.
#[cfg(feature = "bond")]
pub fn status_line(text: &str) {
    let line = format!("\r\x1b[2K{}", printable(text));
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// As [`text`], but replaces the content of the terminal.
#[cfg(feature = "bond")]
pub fn screen(text: &str) {
    // One write, to avoid flicker.
    bytes(format!("\x1b[H\x1b[J{}", printable_lines(text)).as_bytes());
}

/// Writes bytes to standard output without escaping.
pub fn bytes(bytes: &[u8]) {
    if has_failed() {
        return;
    }
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) {
        let _ = WRITE_ERROR.set(error);
    }
}

/// Whether a write to standard output has failed, so that later output is of no use.
pub fn has_failed() -> bool {
    WRITE_ERROR.get().is_some()
}

/// Writes to standard error.
pub fn remark(text: &str) {
    let _ = io::stderr().lock().write_all(printable_lines(text).as_bytes());
}

/// Writes one line to standard error; leading line ends are kept as empty lines.
pub fn remark_line(line: &str) {
    let words = line.trim_start_matches('\n');
    let room = &line[..line.len() - words.len()];
    remark(&format!("{room}{}\n", printable(words)));
}

/// Prints help or the version instead of a command, with exit code 0, or a usage error, with exit
/// code 2.
pub fn print_clap_message(answer: &clap::Error) -> ExitCode {
    let words = answer.render().to_string();
    match printable_lines(&words) {
        // A word of the command line may be a file name from a glob pattern.
        Cow::Owned(harmless) => remark(&harmless),
        // In colours if these are enabled.
        Cow::Borrowed(_) => {
            if let Err(error) = answer.print() {
                let _ = WRITE_ERROR.set(error);
            }
        }
    }
    match answer.use_stderr() {
        true => ExitCode::from(2),
        false => finish(ExitCode::SUCCESS),
    }
}

/// Returns the exit code of a command that succeeded with `code`: 1 if its output is incomplete,
/// unless the reader closed the pipe.
pub fn finish(code: ExitCode) -> ExitCode {
    let flushed = io::stdout().flush();
    match WRITE_ERROR.get().or(flushed.as_ref().err()) {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Failure::new(format!("cannot write to standard output: {error}")).report()
        }
        _ => code,
    }
}

/// Standard error as the writer of the log. Write errors are ignored, because the log would panic.
pub struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().lock().write_all(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a field of a log event, whose value may originate from outside.
pub fn log_field(out: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let value = format!("{value:?}");
    match field.name() {
        "message" => write!(out, "{}", printable(&value)),
        name => write!(out, "{name}={}", printable(&value)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::field::MakeExt;
    use tracing_subscriber::fmt::format::debug_fn;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(line)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_name_in_a_log_line_neither_colours_nor_ends_it() {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt()
            .fmt_fields(debug_fn(log_field).delimited(" "))
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .with_target(false)
            .without_time()
            .finish();
        tracing::subscriber::with_default(log, || {
            let name = "a\x1b[31m\nb\u{9b}";
            tracing::warn!(%name, number = 3, "from {name}");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let name = "a\\u001b[31m\\u000ab\\u009b";
        assert_eq!(text, format!(" WARN from {name} name={name} number=3\n"));
    }
}
