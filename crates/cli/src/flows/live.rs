//! `manyways flows --live`: analysis of an interface.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use manyways_capture::{
    self, Document, FolderError, Listener, LiveCapture, LiveError, LiveInterface, LiveOptions,
    RunOptions, RunReport, Sets,
};
use manyways_record::document;
use manyways_sys::signal::Termination;
use manyways_unit::{Size, Span};

use super::{print, report_errors, summary};
use crate::failure::Failure;
use manyways_report::number::plural;

#[derive(clap::Args)]
#[command(next_help_heading = "Live captures")]
pub struct LiveArgs {
    /// Capture on this interface, or on `any`, until Ctrl-C. Tables are in sets: each set is a
    /// folder DIR/shard=TIME, which appears when it is complete.
    #[arg(long, value_name = "IFACE", conflicts_with_all = ["captures", "from", "to", "force", "report"])]
    pub live: Option<String>,
    /// Start a new set of tables at multiples of this time: 60, 15min, 24h. A flow is in the set
    /// in which it ends.
    #[arg(long, value_name = "DURATION", default_value = "5min", value_parser = duration,
          requires = "live")]
    rotate: Span,
    /// Maximum number of sets; the oldest set is deleted when a new set is written.
    #[arg(long, value_name = "COUNT", requires_all = ["live", "output"],
          value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// Stop after this: 90, 15min, 2h.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "live")]
    duration: Option<Span>,
    /// Captured bytes of each packet. The default covers all headers and the longest ClientHello.
    #[arg(long, value_name = "BYTES", default_value_t = 2_048, requires = "live",
          value_parser = clap::value_parser!(u32).range(64..=65_535))]
    snap: u32,
    /// Size of the kernel's buffer for packets that wait while all cores are busy.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = buffer,
          requires = "live")]
    buffer: Size,
    /// Also write the packets, up to --snap bytes of each: capture.pcapng in each set.
    #[arg(long, requires_all = ["live", "output"], conflicts_with = "anonymize")]
    save_capture: bool,
    /// Also capture packets for other machines, for example on a mirror port.
    #[arg(long, requires = "live")]
    promiscuous: bool,
}

/// Parses a duration; bare numbers are seconds.
fn duration(text: &str) -> Result<Span, String> {
    const FORMS: &str = "write seconds, or a number with a unit: 90, 15min, 2h; from 1 s to 1 year";
    let seconds = text.parse::<u32>().map(|seconds| Span::from_secs(seconds.into()));
    let span = seconds.or_else(|_| Span::from_str(text)).map_err(|_| FORMS.to_owned())?;
    let (min, max) = (Span::from_secs(1), Span::from_secs(366 * 86_400));
    if (min..=max).contains(&span) { Ok(span) } else { Err(FORMS.to_owned()) }
}

fn buffer(text: &str) -> Result<Size, String> {
    let size = Size::from_str(text).map_err(|error| error.to_string())?;
    let (min, max) = (Size::from_kib(512), Size::from_mib(4_096));
    if (min..=max).contains(&size) {
        Ok(size)
    } else {
        Err("write a size from 512KiB to 4GiB".to_owned())
    }
}

pub fn run(
    interface: String,
    args: &LiveArgs,
    plan: &RunOptions,
    output: Option<&Path>,
    json: bool,
) -> Result<ExitCode> {
    // Must precede the start of any thread.
    let termination = Termination::take().context("cannot watch for signals")?;
    let mut devices = LiveInterface::new(interface);
    devices.snap_length = args.snap;
    devices.buffer = args.buffer;
    devices.promiscuous = args.promiscuous;
    let live = LiveCapture::open(&devices).map_err(|error| failure(&error))?;
    let sets = output.map(|path| Sets::create(path, args.keep.map(|keep| keep as usize)));
    let mut sets = sets.transpose().map_err(|error| match error {
        FolderError::HasResults(_) => Failure::new(error.to_string()).hint(
            "name another folder: a live capture does not add sets to a folder with other tables",
        ),
        error => report_errors::of_folder(error),
    })?;
    eprintln!("manyways: capturing on {}", devices.name);
    let mut teller = ProgressListener::new(output);
    let mut watch = LiveOptions::default();
    watch.rotation_period = output.map(|_| args.rotate);
    watch.duration = args.duration;
    watch.summarize = output.is_none() && teller.is_visible;
    watch.save_packets = args.save_capture;
    let outcome =
        manyways_capture::run_live(live, plan, &watch, sets.as_mut(), &termination, &mut teller);
    teller.bar.finish_and_clear();
    let outcome = outcome.map_err(|error| Failure::new(error.to_string()))?;
    let text = match json {
        true => document::to_json(&Document::new(&outcome, &[], false))?,
        false => summary::text(&outcome, &[], None) + &teller.sets(),
    };
    print(&text)?;
    Ok(report_errors::report(&outcome))
}

fn failure(error: &LiveError) -> Failure {
    Failure::new(error.to_string()).maybe_hint(error.hint())
}

/// Shows the progress on a terminal, and writes the summary of a set into the set.
struct ProgressListener<'a> {
    output: Option<&'a Path>,
    bar: ProgressBar,
    is_visible: bool,
    count: u64,
    last: Option<PathBuf>,
}

impl<'a> ProgressListener<'a> {
    fn new(output: Option<&'a Path>) -> Self {
        let is_shown = io::stderr().is_terminal();
        let bar = if is_shown { ProgressBar::no_length() } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        Self { output, bar: bar.with_style(style), is_visible: is_shown, count: 0, last: None }
    }

    /// The written sets.
    fn sets(&self) -> String {
        let name = self.last.as_deref().and_then(Path::file_name).unwrap_or_default();
        match (self.output, self.count) {
            (Some(path), 1) => format!("Tables       {} in {}\n", name.display(), path.display()),
            (Some(path), count) => {
                let (name, path) = (name.display(), path.display());
                format!("Tables       {count} sets in {path}, the last is {name}\n")
            }
            (None, _) => String::new(),
        }
    }
}

impl Listener for ProgressListener<'_> {
    fn manifest(&mut self, set: &RunReport, rows: &[(&str, u64)]) -> String {
        let document = Document::new(set, rows, false);
        document::to_json_pretty(&document).unwrap_or_default()
    }

    fn on_set(&mut self, path: &Path, set: &RunReport) {
        self.count += 1;
        self.last = Some(path.to_owned());
        let dropped: u64 = set.captures.iter().map(|capture| capture.dropped).sum();
        if dropped > 0 {
            let what = format!(
                "manyways: {}: {} not captured, because the buffer was full; increase --buffer",
                path.display(),
                plural(dropped, "packet")
            );
            self.bar.suspend(|| eprintln!("{what}"));
        }
    }

    fn on_progress(&mut self, so_far: &RunReport, going_on: usize) {
        if !self.is_visible {
            return;
        }
        let flows = format!("{} active", plural(going_on as u64, "flow"));
        let text = match self.output {
            None => format!("{}{:<12} {flows}", summary::text(so_far, &[], None), "Now"),
            Some(_) => {
                let packets = plural(so_far.counters.packets, "packet");
                let missed: u64 = so_far.captures.iter().map(|capture| capture.dropped).sum();
                let sets = plural(self.count, "set");
                format!("{packets}, {missed} missed, {flows}, {sets} written")
            }
        };
        self.bar.set_message(text);
        self.bar.tick();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds_or_have_a_unit() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("15min", 900), ("24 h", 86_400)] {
            assert_eq!(duration(text), Ok(Span::from_secs(seconds)), "{text}");
        }
        for text in ["", "0", "-1", "0.5s", "9999h", "1e9999", "min"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(buffer("64MiB").is_ok() && buffer("1KiB").is_err() && buffer("9GiB").is_err());
    }
}
