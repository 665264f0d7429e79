//! Samples of one download: delivered bytes per link, every 100 ms, and a live display on a
//! terminal.

use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use manyways_unit::{Rate, Size, Span};

use super::setting::NETWORKS;
use crate::get::share;

/// Interval of the samples.
pub const INTERVAL: Span = Span::from_millis(100);
/// Number of samples over which the displayed rate is averaged.
const RATE_SAMPLES: usize = 10;

/// Bytes that the links had delivered to the device at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Time since the start of the process.
    pub at: Span,
    /// IP bytes by link.
    pub delivered: Vec<u64>,
}

/// Makes times relative to the start of the program's own clock, `elapsed` before the end of the
/// process. The start of a process can take long on a busy machine and is not part of the download.
/// The end of the process is not part of it either, so the start is at most the last sample without
/// bytes.
pub fn relative_to_start(samples: Vec<Sample>, elapsed: Span) -> Vec<Sample> {
    let Some(end) = samples.last().map(|sample| sample.at) else { return samples };
    let none = |sample: &&Sample| sample.delivered.iter().all(|bytes| *bytes == 0);
    let silent = samples.iter().take_while(none).last().map(|sample| sample.at);
    let start = (end - elapsed).min(silent.unwrap_or_default());
    let before = samples.iter().take_while(|sample| sample.at <= start).count();
    let kept = samples.into_iter().skip(before.saturating_sub(1));
    kept.map(|sample| Sample { at: sample.at - start, ..sample }).collect()
}

/// The live display of one download; without a terminal there is none.
pub struct Display {
    bars: Option<Bars>,
}

struct Bars {
    group: MultiProgress,
    total: ProgressBar,
    links: Vec<ProgressBar>,
}

impl Display {
    pub fn new(label: &str, size: Size) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { bars: None };
        }
        let all = MultiProgress::new();
        let style = |template: &str| {
            // The templates are constants; an invalid one would fall back to the default.
            ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("█▌·")
        };
        let add = |name: &str, template: &str| {
            // A bar must be in the group before it is drawn: a separate bar would draw itself on
            // another line.
            let bar = all.add(ProgressBar::new(size.as_bytes()).with_style(style(template)));
            bar.set_prefix(name.to_owned());
            bar
        };
        let whole = add(label, "{prefix:<18} [{bar:32.bold}] {msg}");
        let colours = ["blue", "yellow"];
        let links = NETWORKS.iter().zip(colours.iter().cycle()).map(|(link, colour)| {
            let template = format!("  over {{prefix:<11}} [{{bar:32.{colour}}}] {{msg}}");
            add(link.label, &template)
        });
        let links = links.collect();
        Self { bars: Some(Bars { group: all, total: whole, links }) }
    }

    pub fn show(&mut self, samples: &[Sample]) {
        let (Some(bars), Some(last)) = (&self.bars, samples.last()) else { return };
        let sum: u64 = last.delivered.iter().sum();
        bars.total.set_position(sum);
        bars.total.set_message(format!("{:.1} s", last.at.as_secs_f64()));
        let earlier = &samples[samples.len().saturating_sub(1 + RATE_SAMPLES)];
        for (index, bar) in bars.links.iter().enumerate() {
            let delivered = last.delivered[index];
            bar.set_position(delivered);
            let recent = Size::from_bytes(delivered - earlier.delivered[index]);
            let rate = Rate::of(recent, last.at - earlier.at).as_mbps_f64();
            let share = share(Size::from_bytes(delivered), Size::from_bytes(sum));
            bar.set_message(format!("{share:>5}  {rate:4.1} Mbit/s"));
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Some(bars) = &self.bars {
            bars.group.clear().unwrap_or_else(|error| tracing::debug!("progress: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_from_the_start_of_the_programs_own_clock() {
        let sample =
            |millis, bytes| Sample { at: Span::from_millis(millis), delivered: vec![bytes] };
        let samples = [(0, 0), (100, 0), (200, 0), (300, 9), (400, 10)];
        let samples = samples.map(|(at, bytes)| sample(at, bytes)).to_vec();
        let rebased = relative_to_start(samples, Span::from_millis(250));
        assert_eq!(rebased, [sample(0, 0), sample(50, 0), sample(150, 9), sample(250, 10)]);
        // A program whose end takes longer than its start.
        let samples = [(0, 0), (100, 0), (200, 4), (500, 9)].map(|(at, bytes)| sample(at, bytes));
        let rebased = relative_to_start(samples.to_vec(), Span::from_millis(250));
        assert_eq!(rebased, [sample(0, 0), sample(100, 4), sample(400, 9)]);
        assert_eq!(relative_to_start(Vec::new(), Span::from_millis(1)), []);
    }
}
