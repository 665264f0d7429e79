//! `manyways flows --live`: analysis of an interface.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use manyways_capture::{
    self, Devices, FolderError, Listener, Live, LiveError, Outcome, Plan, Sets, Watch,
};
use manyways_sys::signal::Termination;
use manyways_unit::{Size, Span};

use super::{faults, folder_failure, print, summary};
use crate::failure::Failure;

#[derive(clap::Args)]
#[command(next_help_heading = "Live captures")]
pub struct LiveArgs {
    /// Capture on this interface instead, or on any, until Ctrl-C. Tables come in sets, each a
    /// folder DIR/shard=TIME that is there once it is whole.
    #[arg(long, value_name = "IFACE", conflicts_with_all = ["captures", "from", "to", "force", "report"])]
    pub live: Option<String>,
    /// Begin a set of tables at multiples of this: 60, 15min, 24h. A flow is in that in which it ends.
    #[arg(long, value_name = "DURATION", default_value = "5min", value_parser = duration,
          requires = "live")]
    rotate: Span,
    /// Maximum number of sets; the oldest is deleted when another one is written.
    #[arg(long, value_name = "COUNT", requires_all = ["live", "output"],
          value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// Stop after this: 90, 15min, 2h.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "live")]
    duration: Option<Span>,
    /// How many bytes of a packet to look at. The default holds all headers and the longest hellos.
    #[arg(long, value_name = "BYTES", default_value_t = 2_048, requires = "live",
          value_parser = clap::value_parser!(u32).range(64..=65_535))]
    snap: u32,
    /// How much may wait in the kernel while all cores are busy.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = buffer,
          requires = "live")]
    buffer: Size,
    /// Write the packets as well, as far as they are looked at: capture.pcapng in each set.
    #[arg(long, requires_all = ["live", "output"], conflicts_with = "anonymize")]
    save_capture: bool,
    /// Take packets that are for other machines as well, as on a mirror port.
    #[arg(long, requires = "live")]
    promiscuous: bool,
}

/// Parses a duration; bare numbers are seconds.
fn duration(text: &str) -> Result<Span, String> {
    const FORMS: &str = "seconds, or a number with a unit: 90, 15min, 2h; from a second to a year";
    let seconds = text.parse::<u32>().map(|seconds| Span::from_secs(seconds.into()));
    let span = seconds.or_else(|_| Span::from_str(text)).map_err(|_| FORMS.to_owned())?;
    let (least, most) = (Span::from_secs(1), Span::from_secs(366 * 86_400));
    if (least..=most).contains(&span) { Ok(span) } else { Err(FORMS.to_owned()) }
}

fn buffer(text: &str) -> Result<Size, String> {
    let size = Size::from_str(text).map_err(|error| error.to_string())?;
    let (least, most) = (Size::from_kib(512), Size::from_mib(4_096));
    if (least..=most).contains(&size) { Ok(size) } else { Err("512KiB to 4GiB".to_owned()) }
}

pub fn run(
    interface: String,
    args: &LiveArgs,
    plan: &Plan,
    output: Option<&Path>,
    json: bool,
) -> Result<ExitCode> {
    // Must precede the start of any thread.
    let termination = Termination::take().context("cannot watch for signals")?;
    let devices = Devices {
        name: interface,
        snap: args.snap,
        buffer: args.buffer,
        promiscuous: args.promiscuous,
    };
    let live = Live::open(&devices).map_err(|error| failure(&error))?;
    let sets = output.map(|path| Sets::create(path, args.keep.map(|keep| keep as usize)));
    let mut sets = sets.transpose().map_err(|error| match error {
        FolderError::Taken(_) => Failure::new(error.to_string())
            .hint("name another folder: sets of a live capture are not mixed with others"),
        error => folder_failure(error),
    })?;
    eprintln!("manyways: capturing on {}", devices.name);
    let mut teller = Teller::new(output);
    let watch = Watch {
        rotate: output.map(|_| args.rotate),
        duration: args.duration,
        refresh: output.is_none() && teller.is_shown,
        save: args.save_capture,
    };
    let outcome =
        manyways_capture::follow(live, plan, &watch, sets.as_mut(), &termination, &mut teller);
    teller.bar.finish_and_clear();
    let outcome = outcome.map_err(|error| Failure::new(error.to_string()))?;
    let text = match json {
        true => serde_json::to_string(&summary::document(&outcome, &[], false))? + "\n",
        false => summary::text(&outcome, &[], None) + &teller.sets(),
    };
    print(&text)?;
    Ok(faults(&outcome))
}

fn failure(error: &LiveError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Shows the progress on a terminal, and writes the summary of a set into the set.
struct Teller<'a> {
    output: Option<&'a Path>,
    bar: ProgressBar,
    is_shown: bool,
    count: u64,
    last: Option<PathBuf>,
}

impl<'a> Teller<'a> {
    fn new(output: Option<&'a Path>) -> Self {
        let is_shown = io::stderr().is_terminal();
        let bar = if is_shown { ProgressBar::no_length() } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        Self { output, bar: bar.with_style(style), is_shown, count: 0, last: None }
    }

    /// The written sets.
    fn sets(&self) -> String {
        let name = self.last.as_deref().and_then(Path::file_name).unwrap_or_default();
        match (self.output, self.count) {
            (Some(path), 1) => format!("Tables       {} in {}\n", name.display(), path.display()),
            (Some(path), count) => {
                let (name, path) = (name.display(), path.display());
                format!("Tables       {count} sets in {path}, {name} the last\n")
            }
            (None, _) => String::new(),
        }
    }
}

impl Listener for Teller<'_> {
    fn manifest(&mut self, set: &Outcome, rows: &[(&str, u64)]) -> String {
        let document = summary::document(set, rows, false);
        serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
    }

    fn set(&mut self, path: &Path, set: &Outcome) {
        self.count += 1;
        self.last = Some(path.to_owned());
        let missed: u64 = set.captures.iter().map(|capture| capture.missed).sum();
        if missed > 0 {
            let what = format!(
                "manyways: {}: {} not captured, as there was no room for them; --buffer gives more",
                path.display(),
                summary::plural(missed, "packet")
            );
            self.bar.suspend(|| eprintln!("{what}"));
        }
    }

    fn progress(&mut self, so_far: &Outcome, going_on: usize) {
        if !self.is_shown {
            return;
        }
        let flows = format!("{} going on", summary::plural(going_on as u64, "flow"));
        let text = match self.output {
            None => format!("{}{:<12} {flows}", summary::text(so_far, &[], None), "Now"),
            Some(_) => {
                let packets = summary::plural(so_far.counters.packets, "packet");
                let missed: u64 = so_far.captures.iter().map(|capture| capture.missed).sum();
                let sets = summary::plural(self.count, "set");
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
