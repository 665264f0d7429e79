//! A line per path and one for the whole, on a terminal and only when it takes over a second.

use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use manyways_net::fetch::{Event, Progress};
use manyways_trace::{Rate, Size, Span};

/// Shorter transfers show nothing.
const PATIENCE: Span = Span::from_secs(1);

pub struct Display {
    quiet: bool,
    terminal: bool,
    bars: Option<Bars>,
}

struct Bars {
    all: MultiProgress,
    whole: ProgressBar,
    paths: Vec<ProgressBar>,
}

impl Display {
    pub fn new(quiet: bool) -> Self {
        Self { quiet, terminal: std::io::stderr().is_terminal(), bars: None }
    }

    pub fn show(&mut self, event: Event<'_>) {
        if self.quiet {
            return;
        }
        match event {
            Event::Note(words) => self.say(words),
            Event::Moved(to) => tracing::info!("moved to {to}"),
            Event::Connected { path, server, protocol } => {
                tracing::info!("{path}: {server} speaks {}", protocol.name());
            }
            Event::Progress(progress) if self.terminal && progress.elapsed >= PATIENCE => {
                self.bars.get_or_insert_with(|| Bars::new(progress)).update(progress);
            }
            _ => {}
        }
    }

    pub fn clear(&mut self) {
        if let Some(bars) = self.bars.take() {
            bars.all.clear().unwrap_or_else(|error| tracing::debug!("progress: {error}"));
        }
    }

    fn say(&self, words: &str) {
        match &self.bars {
            Some(bars) => bars.all.suspend(|| eprintln!("manyways: {words}")),
            None => eprintln!("manyways: {words}"),
        }
    }
}

impl Bars {
    fn new(progress: &Progress) -> Self {
        let all = MultiProgress::new();
        let style = |template: &str| {
            // The templates are constants; one that is wrong shows nothing instead.
            ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("█▌·")
        };
        let line = style("{prefix:>10} [{bar:24}] {msg}");
        let add = |name: &str| {
            let bar = all.add(ProgressBar::new(1).with_style(line.clone()));
            bar.set_prefix(name.to_owned());
            bar
        };
        let paths = progress.paths.iter().map(|path| add(&path.name)).collect();
        let whole = add("all");
        Self { all, whole, paths }
    }

    fn update(&self, progress: &Progress) {
        let length = progress.length.unwrap_or(progress.done).as_bytes().max(1);
        for (bar, path) in self.paths.iter().zip(&progress.paths) {
            bar.set_length(length);
            bar.set_position(path.bytes.as_bytes());
            let rate = path.rate.unwrap_or(Rate::ZERO);
            let share = share(path.bytes, progress.done);
            bar.set_message(format!("{share:>4}  {:>10}  {rate}", path.bytes.to_string()));
        }
        self.whole.set_length(length);
        self.whole.set_position(progress.done.as_bytes());
        let rate: Rate = progress.paths.iter().filter_map(|path| path.rate).sum();
        let left = progress.length.map(|length| length.saturating_sub(progress.done));
        let eta = left.filter(|_| !rate.is_zero()).map(|left| rate.time_for(left));
        let eta = eta.map_or_else(String::new, |eta| format!("  {:.0} s left", eta.as_secs_f64()));
        self.whole.set_message(format!("      {:>10}  {rate}{eta}", progress.done.to_string()));
    }
}

/// A part of the whole in percent.
pub fn share(part: Size, whole: Size) -> String {
    if whole.is_zero() {
        return "-".to_owned();
    }
    format!("{:.0} %", 100.0 * part.as_bytes() as f64 / whole.as_bytes() as f64)
}
