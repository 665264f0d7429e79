//! Work on another thread, with its progress on the terminal, that a signal stops.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use manyways_sys::poll::Waker;
use manyways_sys::signal::Termination;

/// Display of the progress.
pub struct Display<'a> {
    pub bar: ProgressBar,
    /// Interval of updates in milliseconds.
    pub interval: u16,
    pub update: &'a dyn Fn(&ProgressBar),
}

/// Runs `work`; the first signal sets `stop`. If `ends_at_once`, a second signal ends the process.
/// Returns the result and the signal, if any.
pub fn watched<T: Send>(
    display: Display<'_>,
    stop: &AtomicBool,
    ends_at_once: bool,
    work: impl FnOnce() -> T + Send,
) -> Result<(T, Option<i32>)> {
    let Display { bar, interval, update } = display;
    let termination = Termination::take().context("cannot watch for signals")?;
    let done = Waker::new().context("cannot wait for the end of the work")?;
    let (result, signal) = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            // Also after a panic.
            let _done = Done(&done);
            work()
        });
        let (mut signal, mut is_done) = (None, false);
        while !is_done {
            // An error here appears again when the thread is joined.
            let (ended, is_over) =
                termination.wait_timeout(interval, &done).unwrap_or((None, true));
            is_done = is_over;
            update(&bar);
            if let (Some(first), Some(_), true) = (signal, &ended, ends_at_once) {
                bar.finish_and_clear();
                std::process::exit(128 + first);
            }
            signal = signal.or(ended.map(|ended| ended.signal));
            // The work may have set the flag too.
            if signal.is_some() {
                stop.store(true, Ordering::Relaxed);
            }
        }
        bar.finish_and_clear();
        (work.join(), signal)
    });
    match result {
        Ok(result) => Ok((result, signal)),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Wakes the waiting thread when dropped.
struct Done<'a>(&'a Waker);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// A style for a bar.
pub fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// The exit code of work that this signal stopped, or else `code`.
pub fn stopped(signal: Option<i32>, code: ExitCode) -> ExitCode {
    signal.map_or(code, |signal| ExitCode::from(128 + signal as u8))
}
