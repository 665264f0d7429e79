//! Trace arguments of the radio commands.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use manyways_model::radio::profile::Technology;
use manyways_net::radio::trace::{
    LongGap, PacketSelection, Progress, Trace, TraceError, TraceGenerator,
};
use manyways_report::number::{plural, span as span_text, utc_time};
use manyways_unit::Prefix;
use manyways_unit::Span;

use crate::failure::Failure;
use crate::watch::{self, Display};

/// Trace arguments.
#[derive(clap::Args)]
pub struct TraceArgs {
    /// Traces: folder or packet table of `manyways flows --packets`, capture, CSV with the columns
    /// time,bytes,direction and optionally app, port and flow, or - for standard input
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Addresses of the device in captures; may be repeated. Without this option the device is the
    /// endpoint that starts a flow
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    local: Vec<Prefix>,
}

/// Arguments of generated traces.
#[derive(clap::Args)]
pub struct GeneratorArgs {
    /// Generate a trace: mixed-day, or one of news, im, microblog, game-ad, email, social, finance;
    /// may be repeated
    #[arg(long, value_name = "APP", value_delimiter = ',')]
    app: Vec<String>,
    /// Seeds: 1, 1-20 or 1,5,9
    #[arg(long, value_name = "SEEDS", default_value = "1", value_parser = seeds, requires = "app")]
    seed: Seeds,
    /// Length of generated traces [default: 2h for an application, 2d for mixed-day]
    #[arg(long, value_name = "TIME", value_parser = span, alias = "lasts")]
    duration: Option<Span>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds(pub Vec<u64>);

/// A duration: `30s`, `2h`, `2d`.
pub fn span(text: &str) -> Result<Span, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok());
    let span = match days {
        Some(days) => days.checked_mul(86_400).map(Span::from_secs),
        None => humantime::parse_duration(text)
            .ok()
            .and_then(|time| u64::try_from(time.as_nanos()).ok())
            .map(Span::from_nanos),
    };
    const MAX_DAYS: u64 = 3_660;
    span.filter(|span| !span.is_zero() && *span <= Span::from_secs(MAX_DAYS * 86_400))
        .ok_or_else(|| format!("write a time above 0 and up to {MAX_DAYS}d, like 30s, 2h or 2d"))
}

pub fn prefix(text: &str) -> Result<Prefix, String> {
    text.parse().map_err(|_| "write an address, or one with a length, like 10.0.0.0/8".to_owned())
}

fn seeds(text: &str) -> Result<Seeds, String> {
    const MOST: u64 = 100_000;
    let wrong = || format!("write up to {MOST} whole numbers, like 1, 1-20 or 1,5,9");
    let mut all = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
        let (from, to) = (number(from)?, number(to)?);
        if from > to || to - from >= MOST {
            return Err(wrong());
        }
        all.extend(from..=to);
    }
    Ok(Seeds(all))
}

impl GeneratorArgs {
    /// Length of the traces, if given.
    pub fn duration(&self) -> Option<Span> {
        self.duration
    }

    /// Parameters of each generated trace.
    pub fn generated(&self) -> Vec<TraceGenerator> {
        let lasts = |app: &str| match app {
            "mixed-day" => Span::from_secs(2 * 86_400),
            _ => Span::from_secs(2 * 3_600),
        };
        let each = |app: &String| {
            let made = move |seed: &u64| TraceGenerator {
                app: app.clone(),
                seed: *seed,
                duration: self.duration.unwrap_or_else(|| lasts(app)),
            };
            self.seed.0.iter().map(made).collect::<Vec<_>>()
        };
        self.app.iter().flat_map(each).collect()
    }
}

impl TraceArgs {
    pub fn paths(&self) -> &[PathBuf] {
        &self.traces
    }

    pub fn has_local(&self) -> bool {
        !self.local.is_empty()
    }

    pub fn open(
        &self,
        path: &Path,
        technology: Option<Technology>,
        progress: &Progress,
    ) -> Result<Trace, Failure> {
        let network = technology.map(network);
        let selection = PacketSelection { local: self.local.clone(), network };
        let trace = Trace::open(path, &selection, progress).map_err(failure)?;
        if self.has_local() && !trace.is_capture() {
            eprintln!("manyways: --local has no effect on {}: it is not a capture", trace.name());
        }
        for error in trace.errors() {
            eprintln!("manyways: {}: {error}", trace.name());
            eprintln!("hint: the results cover the packets before the fault");
        }
        for (sentence, hint) in trace.unread_links() {
            eprintln!("manyways: {}: {sentence}", trace.name());
            hint.into_iter().for_each(|hint| eprintln!("hint: {hint}"));
        }
        trace.long_gaps().iter().for_each(|gap| warn_of_gap(trace.name(), gap));
        Ok(trace)
    }
}

/// Warns of a gap that does not count.
fn warn_of_gap(name: &str, gap: &LongGap) {
    let lasts = span_text(gap.to.since(gap.from));
    let [from, to] = [gap.from, gap.to].map(utc_time);
    let [before, after] =
        [gap.packets_before, gap.packets_after].map(|packets| plural(packets, "packet"));
    eprintln!("manyways: {name}: no packet for {lasts}, from {from} to {to}; 60 s of it count");
    eprintln!(
        "hint: the clock of {before} before it or of {after} after it was wrong, or the recording paused"
    );
}

/// Network name in packet traces for a radio of this technology.
fn network(technology: Technology) -> &'static str {
    match technology {
        Technology::Wifi => "wifi",
        Technology::Bluetooth => "bluetooth",
        Technology::ThreeG | Technology::Lte | Technology::Nr => "cellular",
    }
}

pub fn failure(error: TraceError) -> Failure {
    let hint = error.hint();
    let failure = Failure::new(error.to_string()).hint(hint);
    match error {
        TraceError::UnknownModel(_) => failure.code(2),
        _ => failure,
    }
}

/// The exit code, after a message if a signal stopped the run.
pub fn code(signal: Option<i32>) -> ExitCode {
    if signal.is_some() {
        eprintln!("manyways: stopped before the end: results of the packets read until then");
    }
    watch::stopped(signal, ExitCode::SUCCESS)
}

/// Runs `work` with a progress display; a signal stops the work, and a second one ends the process.
/// Returns the result and the signal, if any.
pub fn with_progress<T: Send>(
    work: impl FnOnce(&Progress) -> Result<T> + Send,
) -> Result<(T, Option<i32>)> {
    /// Work of less than a second has no display.
    const HIDDEN: Duration = Duration::from_secs(1);
    let progress = Progress::default();
    let bar = match io::stderr().is_terminal() {
        true => ProgressBar::no_length().with_style(watch::style("{spinner} {msg} {elapsed}")),
        false => ProgressBar::hidden(),
    };
    let update = |bar: &ProgressBar| {
        if bar.elapsed() > HIDDEN {
            let packets = progress.packets.load(Ordering::Relaxed) as f64 / 1e6;
            bar.set_message(format!("{packets:.1} M packets"));
            bar.tick();
        }
    };
    let display = Display { bar, interval: 100, update: &update };
    let (result, signal) = watch::watched(display, &progress.stop, true, || work(&progress))?;
    Ok((result?, signal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_times_are_written_as_people_do() {
        assert_eq!(seeds("3"), Ok(Seeds(vec![3])));
        assert_eq!(seeds("1-3,7"), Ok(Seeds(vec![1, 2, 3, 7])));
        for wrong in ["", "3-1", "a", "1-", "0-99999999"] {
            assert!(seeds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(span("2d"), Ok(Span::from_secs(172_800)));
        assert_eq!(span("1h 30m"), Ok(Span::from_secs(5_400)));
        for wrong in ["", "0s", "2", "-1s", "99999999999999999999d", "4000d", "1000000h"] {
            let message = span(wrong).unwrap_err();
            assert!(message.contains("above 0 and up to 3660d"), "{wrong}: {message}");
        }
    }
}
