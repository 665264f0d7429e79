//! Progress display: one line per path and one for the whole transfer, on a terminal and after one
//! second.

pub mod block;
mod line;
pub mod rate_meter;

use std::io::{IsTerminal, Write};

use manyways_net::fetch::{Event, Progress};
use manyways_sys::terminal;
use manyways_unit::{Rate, Span};

use block::Block;
pub use line::share;
use line::{Layout, PathLine, TotalLine};
use rate_meter::RateMeter;

/// Shorter transfers show no progress.
const DISPLAY_DELAY: Span = Span::from_secs(1);
/// Width of a terminal that does not report one.
const DEFAULT_WIDTH: u16 = 80;
/// Free columns at the right for the cursor and an echoed `^C`.
const MARGIN: usize = 3;

/// The progress display of one transfer.
pub struct Display {
    quiet: bool,
    terminal: bool,
    /// Notes about networks that failed before any useful byte. If all networks fail, the failure
    /// of the transfer reports the reason once.
    delayed_notes: Vec<String>,
    /// Whether a useful byte has arrived.
    has_useful_bytes: bool,
    block: Block,
    paths: Vec<RateMeter>,
}

impl Display {
    /// Creates a display. It prints no messages with `quiet`, and no progress with `plain` or
    /// without a terminal.
    pub fn new(quiet: bool, plain: bool) -> Self {
        let terminal = !plain && std::io::stderr().is_terminal();
        let (block, paths) = (Block::default(), Vec::new());
        let delayed_notes = Vec::new();
        Self { quiet, terminal, delayed_notes, has_useful_bytes: false, block, paths }
    }

    /// Shows an event.
    pub fn show(&mut self, event: Event<'_>) {
        if self.quiet {
            return;
        }
        match event {
            Event::Note(words) if !self.has_useful_bytes && reason(words).is_some() => {
                self.delayed_notes.push(words.to_owned());
            }
            Event::Note(words) => self.print_note(words),
            Event::Redirected(to) => tracing::info!("moved to {to}"),
            Event::Connected { path, server, protocol } => {
                tracing::info!("{path}: {server} speaks {}", protocol.name());
            }
            Event::Progress(progress) => {
                if !self.has_useful_bytes && progress.paths.iter().any(|path| !path.bytes.is_zero())
                {
                    self.has_useful_bytes = true;
                    self.print_delayed_notes("");
                }
                if self.terminal {
                    self.update(progress);
                }
            }
            _ => {}
        }
    }

    /// Ends the display: removes the progress lines, and prints the delayed notes whose reason is
    /// not in `failure`.
    pub fn finish(&mut self, failure: Option<&str>) {
        self.clear();
        self.print_delayed_notes(failure.unwrap_or_default());
    }

    fn clear(&mut self) {
        write_to_terminal(&self.block.erase(width()));
    }

    fn print_delayed_notes(&mut self, failure: &str) {
        for words in std::mem::take(&mut self.delayed_notes) {
            // The failure of all networks does not contain the name server of a reason.
            let reason = reason(&words).and_then(|reason| reason.split(", according to ").next());
            if !reason.is_some_and(|reason| failure.contains(reason)) {
                self.print_note(&words);
            }
        }
    }

    fn print_note(&mut self, words: &str) {
        self.clear();
        eprintln!("manyways: {words}");
    }

    fn update(&mut self, progress: &Progress) {
        self.measure(progress);
        if progress.elapsed < DISPLAY_DELAY {
            return;
        }
        let width = width();
        let lines = self.lines(progress, width.saturating_sub(MARGIN));
        write_to_terminal(&self.block.draw(&lines, width));
    }

    fn measure(&mut self, progress: &Progress) {
        self.paths.resize_with(progress.paths.len(), RateMeter::default);
        for (pace, path) in self.paths.iter_mut().zip(&progress.paths) {
            pace.observe(progress.elapsed, path.bytes);
        }
    }

    /// The rate of the whole is the sum of the rates of the paths, so that the numbers agree.
    fn lines(&self, progress: &Progress, width: usize) -> Vec<String> {
        let layout = Layout::new(width, progress.paths.iter().map(|path| path.name.as_str()));
        let (done, length) = (progress.done, progress.length);
        let rates: Vec<Option<Rate>> =
            self.paths.iter().map(|pace| pace.rate(progress.elapsed)).collect();
        let paths = progress.paths.iter().zip(&rates).map(|(path, rate)| {
            let (name, bytes, rtt) = (path.name.as_str(), path.bytes, path.rtt);
            PathLine { name, bytes, length, rate: *rate, rtt }.render(layout)
        });
        let mut lines: Vec<String> = paths.collect();
        let rate = rates.into_iter().flatten().sum();
        lines.push(TotalLine { done, length, rate }.render(layout));
        lines
    }
}

/// Returns the reason of a note about a network that is no longer used.
fn reason(note: &str) -> Option<&str> {
    Some(note.split_once(" is no longer used: ")?.1)
}

pub fn width() -> usize {
    usize::from(terminal::width(std::io::stderr()).unwrap_or(DEFAULT_WIDTH))
}

/// Writing to a closed terminal must not end the transfer.
pub fn write_to_terminal(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use manyways_net::fetch::PathProgress;
    use manyways_unit::Size;

    use super::*;

    #[test]
    fn shares_and_rates_of_the_networks_add_up() {
        let mut display = Display::new(false, true);
        let sample = |tick: u64| {
            let path = |name: &str, kb: u64| PathProgress {
                name: name.to_owned(),
                bytes: Size::from_bytes(kb * 1_000),
                // The estimate of the core also counts bytes that were of no use.
                rate: Some(Rate::from_mbps(100)),
                rtt: None,
            };
            // LTE joins late, and usb delivers nothing after the start.
            let (wifi, lte) = (50 * tick, 25 * tick.saturating_sub(10));
            Progress {
                elapsed: Span::from_millis(100 * tick),
                length: Some(Size::from_bytes(8_000_000)),
                done: Size::from_bytes((wifi + lte + 1_000) * 1_000),
                paths: vec![path("wifi", wifi), path("lte", lte), path("usb", 1_000)],
            }
        };
        (0..=40).for_each(|tick| display.measure(&sample(tick)));
        let lines = display.lines(&sample(40), 79);
        let column = |from: usize, to: usize| -> Vec<String> {
            let cut = |line: &String| line.chars().skip(from).take(to - from).collect::<String>();
            lines.iter().map(|line| cut(line).trim().to_owned()).collect()
        };
        assert_eq!(column(28, 33), ["25 %", "9 %", "12 %", "47 %"], "{lines:?}");
        assert_eq!(column(55, 66), ["4.00 Mbit/s", "2.00 Mbit/s", "waiting", "6.00 Mbit/s"]);
    }
}
