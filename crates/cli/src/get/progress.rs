//! A line per path and one for the whole, on a terminal and only when it takes over a second.

mod block;
mod line;
mod pace;

use std::io::{IsTerminal, Write};

use manyways_net::fetch::{Event, Progress};
use manyways_sys::terminal;
use manyways_unit::{Rate, Span};

use block::Block;
pub use line::share;
use line::{Layout, PathLine, WholeLine};
use pace::Pace;

/// Shorter transfers show nothing.
const PATIENCE: Span = Span::from_secs(1);
/// Where a terminal does not say how wide it is.
const USUAL_WIDTH: u16 = 80;
/// Left free at the right: the cursor, and the `^C` that the terminal may echo there.
const MARGIN: usize = 3;

/// Shows one transfer.
pub struct Display {
    quiet: bool,
    terminal: bool,
    /// Networks that failed before any of them brought something: perhaps all do, and then the
    /// reason is said once, at the end.
    held: Vec<String>,
    /// Something came.
    came: bool,
    block: Block,
    whole: Pace,
    paths: Vec<Pace>,
}

impl Display {
    /// Shows nothing where it is to be quiet, and no bars where nobody sees them or where `plain`
    /// says that they would be in the way.
    pub fn new(quiet: bool, plain: bool) -> Self {
        let terminal = !plain && std::io::stderr().is_terminal();
        let (block, whole, paths) = (Block::default(), Pace::default(), Vec::new());
        Self { quiet, terminal, held: Vec::new(), came: false, block, whole, paths }
    }

    /// Something happened.
    pub fn show(&mut self, event: Event<'_>) {
        if self.quiet {
            return;
        }
        match event {
            Event::Note(words) if !self.came && reason(words).is_some() => {
                self.held.push(words.to_owned());
            }
            Event::Note(words) => self.say(words),
            Event::Moved(to) => tracing::info!("moved to {to}"),
            Event::Connected { path, server, protocol } => {
                tracing::info!("{path}: {server} speaks {}", protocol.name());
            }
            Event::Progress(progress) => {
                if !self.came && progress.paths.iter().any(|path| !path.bytes.is_zero()) {
                    self.came = true;
                    self.say_held("");
                }
                if self.terminal {
                    self.update(progress);
                }
            }
            _ => {}
        }
    }

    /// The transfer is over: takes the bars away, and says what is not in the words of its failure.
    pub fn finish(&mut self, failure: Option<&str>) {
        self.clear();
        self.say_held(failure.unwrap_or_default());
    }

    fn clear(&mut self) {
        put(&self.block.erase(width()));
    }

    fn say_held(&mut self, failure: &str) {
        for words in std::mem::take(&mut self.held) {
            // Which name server said it is not in what all networks have in common.
            let reason = reason(&words).and_then(|reason| reason.split(", according to ").next());
            if !reason.is_some_and(|reason| failure.contains(reason)) {
                self.say(&words);
            }
        }
    }

    fn say(&mut self, words: &str) {
        self.clear();
        eprintln!("manyways: {words}");
    }

    fn update(&mut self, progress: &Progress) {
        let now = progress.elapsed;
        self.whole.observe(now, progress.done);
        self.paths.resize_with(progress.paths.len(), Pace::default);
        for (pace, path) in self.paths.iter_mut().zip(&progress.paths) {
            pace.observe(now, path.bytes);
        }
        if now < PATIENCE {
            return;
        }
        let width = width();
        let lines = self.lines(progress, width.saturating_sub(MARGIN));
        put(&self.block.draw(&lines, width));
    }

    fn lines(&self, progress: &Progress, width: usize) -> Vec<String> {
        let layout = Layout::new(width, progress.paths.iter().map(|path| path.name.as_str()));
        let (done, length) = (progress.done, progress.length);
        let mut lines: Vec<String> = progress
            .paths
            .iter()
            .zip(&self.paths)
            .map(|(path, pace)| {
                // An estimate stays as it is while there is nothing to go by.
                let measured = pace.rate(progress.elapsed);
                let rate = measured.map(|measured| path.rate.unwrap_or(measured));
                let (name, bytes, rtt) = (path.name.as_str(), path.bytes, path.rtt);
                PathLine { name, bytes, done, length, rate, rtt }.fit(layout)
            })
            .collect();
        let rate = self.whole.rate(progress.elapsed).unwrap_or(Rate::ZERO);
        lines.push(WholeLine { done, length, rate }.fit(layout));
        lines
    }
}

/// Why a network is not used any more, where a note says that.
fn reason(note: &str) -> Option<&str> {
    Some(note.split_once(" is not used any more: ")?.1)
}

fn width() -> usize {
    usize::from(terminal::width(std::io::stderr()).unwrap_or(USUAL_WIDTH))
}

/// A terminal that is gone is no reason to stop.
fn put(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
