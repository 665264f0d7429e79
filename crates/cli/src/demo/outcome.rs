//! The result: `manyways.demo/1` as JSON, and a table.

use std::fmt::Write as _;

use manyways_rig::programs::{program, version};
use manyways_unit::{Rate, Size, Span};
use serde::Serialize;
use serde_json::{Value, json};

use super::contender::{End, Run, hex};
use super::setting::{FluidBound, Setting};

/// The schema of the JSON, described in docs/demo.md.
const SCHEMA: &str = "manyways.demo/1";

/// Longest acceptable gap between samples, which are due every 100 ms. A machine with a longer gap
/// also delays the emulator.
const STARVED: Span = Span::from_millis(400);

/// The data of the table, the report and the JSON.
pub struct Outcome {
    pub links: Vec<LinkLine>,
    pub cc: String,
    pub server: String,
    pub bytes: u64,
    pub sha256: String,
    pub bound: FluidBound,
    pub runs: Vec<Run>,
    /// Derivation of the bound, in one line.
    pub bound_words: String,
    /// Description of the emulated networks, in one line and shorter.
    pub setting_words: String,
    pub setting_short: String,
}

/// One emulated link.
#[derive(Clone, Serialize)]
pub struct LinkLine {
    pub name: String,
    pub label: &'static str,
    pub down_bps: u64,
    pub up_bps: u64,
    pub round_trip_seconds: f64,
    pub queue_seconds: f64,
}

impl Outcome {
    pub fn new(setting: &Setting, object: &[u8], cc: &str, runs: Vec<Run>) -> Self {
        let bytes = object.len() as u64;
        let bound = setting.bound(Size::from_bytes(bytes));
        let rate: Rate = setting.links.iter().map(|link| link.down).sum();
        let megabytes = bytes as f64 / 1e6;
        let nginx = program("nginx").and_then(|nginx| version(&nginx, "-v"));
        let bound_words = format!(
            "Fluid bound: {megabytes} MB over {rate} in all takes {:.3} s; with the shortest round \
             trip ({}) for the request that is {:.3} s. It leaves out packet headers (3 to 5 %), \
             the name look-up and the handshakes, so no contender can reach 1.00.",
            bound.transfer.as_secs_f64(),
            bound.request,
            bound.total().as_secs_f64(),
        );
        let links = setting.links.iter().map(|link| LinkLine {
            name: link.spec.name.clone(),
            label: link.label,
            down_bps: link.down.as_bps(),
            up_bps: link.up.as_bps(),
            round_trip_seconds: link.round_trip.as_secs_f64(),
            queue_seconds: link.queue.as_secs_f64(),
        });
        Self {
            links: links.collect(),
            cc: cc.to_owned(),
            server: nginx.unwrap_or_else(|| "nginx".to_owned()).replace('/', " "),
            bytes,
            sha256: hex(object),
            bound,
            runs,
            bound_words,
            setting_words: setting.describe(cc),
            setting_short: setting.short(),
        }
    }

    /// Whether a contender ran and failed.
    pub fn failed(&self) -> bool {
        self.runs.iter().any(|run| matches!(run.end, End::Failed(_)))
    }

    pub fn labels(&self) -> Vec<&'static str> {
        self.links.iter().map(|link| link.label).collect()
    }

    /// The heading and the rows of the table; the last row is the bound.
    pub fn table(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let head = vec!["contender", "seconds", "Mbit/s", "share by link", "× bound"];
        let bound = self.bound.total().as_secs_f64();
        let speed = |seconds: f64| format!("{:.2}", self.bytes as f64 * 8.0 / seconds / 1e6);
        let mut lines: Vec<Vec<String>> = self
            .runs
            .iter()
            .map(|run| {
                let label = run.contender.label.to_owned();
                match &run.end {
                    End::Delivered(delivery) => {
                        let seconds = delivery.elapsed.as_secs_f64();
                        let shares = run.shares(&self.labels());
                        let ratio = format!("{:.2}", seconds / bound);
                        vec![label, format!("{seconds:.2}"), speed(seconds), shares, ratio]
                    }
                    End::Failed(_) => vec![label, "failed".into(), "".into(), "".into(), "".into()],
                    End::Skipped(_) => vec![label, "-".into(), "-".into(), "-".into(), "-".into()],
                }
            })
            .collect();
        let bound_line = [format!("{bound:.2}"), speed(bound), "".into(), "1.00".into()];
        lines.push(std::iter::once("fluid bound".to_owned()).chain(bound_line).collect());
        (head, lines)
    }

    /// Notes on the table, one or two sentences each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        notes.extend(self.starved());
        notes.extend(self.gain());
        for run in &self.runs {
            let label = run.contender.label;
            match &run.end {
                End::Failed(reason) => notes.push(format!("{label} failed: {reason}.")),
                End::Skipped(reason) => notes.push(format!("{label} was left out: {reason}.")),
                End::Delivered(_) => {}
            }
        }
        for run in &self.runs {
            if let (Some(mptcp), End::Delivered(_)) = (&run.mptcp, &run.end) {
                let shares = run.shares(&self.labels());
                notes.push(format!("Kernel MPTCP used {}: {shares}.", mptcp.describe()));
            }
        }
        for run in &self.runs {
            if let Some(Err(reason)) = &run.requests {
                let label = run.contender.label;
                notes.push(format!("What {label} asked for is not known: {reason}."));
            }
        }
        notes.push(self.bound_words.clone());
        notes.push(
            "Each run is a new process with its own name look-up and connections; the seconds are \
             its own, from the look-up to the last byte. One small request beforehand, which is \
             not counted, wakes the server. Shares are IP bytes that the links delivered. This is \
             one run each, a demonstration and no benchmark."
                .to_owned(),
        );
        notes
    }

    /// A warning if the machine was too busy for reliable figures.
    fn starved(&self) -> Option<String> {
        let longest = self.runs.iter().map(Run::longest_gap).max().unwrap_or_default();
        (longest > STARVED).then(|| {
            format!(
                "This machine was too busy: for {:.1} s at a time, the emulated links had to wait \
                 for it. Run the demonstration again when it is quiet, before you trust the figures.",
                longest.as_secs_f64()
            )
        })
    }

    /// The speedup by two networks, as one sentence.
    pub fn gain(&self) -> Option<String> {
        let seconds = |name: &str| {
            let run = self.runs.iter().find(|run| run.contender.name == name)?;
            Some(run.delivery()?.elapsed.as_secs_f64())
        };
        let (both, wifi, lte) = (seconds("manyways")?, seconds("wifi")?, seconds("lte")?);
        let mut gain = format!(
            "manyways get brought the file {:.2} times as fast as Wi-Fi alone and {:.2} times as \
             fast as LTE alone, without any change to the server.",
            wifi / both,
            lte / both
        );
        let others = [("kernel-mptcp", "kernel MPTCP"), ("fixed-chunk", "fixed chunks")];
        let times: Vec<String> = others
            .into_iter()
            .filter_map(|(name, words)| {
                Some(format!("{:.2} of that of {words}", both / seconds(name)?))
            })
            .collect();
        if !times.is_empty() {
            gain.push_str(&format!(" Its time was {}.", times.join(" and ")));
        }
        Some(gain)
    }

    /// The table and its notes.
    pub fn text(&self) -> String {
        let (head, lines) = self.table();
        let head: Vec<String> = head.into_iter().map(str::to_owned).collect();
        let width = |column: usize| {
            let cells = lines.iter().chain([&head]).map(|line| line[column].chars().count());
            cells.max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let mut text = String::new();
        let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        for line in [&head, &rule].into_iter().chain(&lines) {
            let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
                let width = *width;
                // Text is left-aligned, figures are right-aligned.
                if column == 0 || column == 3 {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
            let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
        text.push('\n');
        for note in self.notes() {
            text.push_str(&wrapped(&note));
        }
        text
    }

    fn run_json(&self, run: &Run) -> Value {
        let bound = self.bound.total().as_secs_f64();
        let (status, reason) = match &run.end {
            End::Delivered(_) => ("delivered", None),
            End::Failed(reason) => ("failed", Some(reason)),
            End::Skipped(reason) => ("skipped", Some(reason)),
        };
        let delivered = run.delivered();
        let sum: u64 = delivered.iter().map(|size| size.as_bytes()).sum();
        let links: Vec<Value> = self
            .links
            .iter()
            .zip(&delivered)
            .map(|(link, size)| {
                let bytes = size.as_bytes();
                let share = if sum == 0 { 0.0 } else { bytes as f64 / sum as f64 };
                json!({ "name": link.name, "down_bytes": bytes, "share": share })
            })
            .collect();
        let timeline: Vec<Value> = run
            .samples
            .iter()
            .map(|sample| {
                let bytes: Vec<u64> = sample.delivered.iter().map(|size| size.as_bytes()).collect();
                json!({ "seconds": sample.at.as_secs_f64(), "down_bytes": bytes })
            })
            .collect();
        let delivery = run.delivery();
        let seconds = delivery.map(|delivery| delivery.elapsed.as_secs_f64());
        json!({
            "name": run.contender.name,
            "label": run.contender.label,
            "about": run.contender.about,
            "status": status,
            "reason": reason,
            "seconds": seconds,
            "process_seconds": run.process.map(|process| process.as_secs_f64()),
            "longest_gap_seconds": run.longest_gap().as_secs_f64(),
            "rate_bps": delivery.map(|d| Rate::of(d.bytes, d.elapsed).as_bps()),
            "bound_ratio": seconds.map(|seconds| seconds / bound),
            "bytes": delivery.map(|d| d.bytes.as_bytes()),
            "sha256": delivery.map(|d| &d.sha256),
            "protocol": delivery.map(|d| &d.protocol),
            "links": links,
            "mptcp": run.mptcp,
            "requests": run.requests.as_ref().and_then(|requests| requests.as_ref().ok()),
            "timeline": timeline,
        })
    }
}

/// Wraps text at word boundaries.
pub fn wrapped(text: &str) -> String {
    const WIDTH: usize = 80;
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            lines.push('\n');
            width = 0;
        } else if width > 0 {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += length;
    }
    lines + "\n"
}

impl Serialize for Outcome {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let contenders: Vec<Value> = self.runs.iter().map(|run| self.run_json(run)).collect();
        json!({
            "schema": SCHEMA,
            "version": env!("CARGO_PKG_VERSION"),
            "links": self.links,
            "congestion_control": self.cc,
            "server": self.server,
            "object": { "bytes": self.bytes, "sha256": self.sha256 },
            "fluid_bound": {
                "seconds": self.bound.total().as_secs_f64(),
                "transfer_seconds": self.bound.transfer.as_secs_f64(),
                "request_seconds": self.bound.request.as_secs_f64(),
            },
            "contenders": contenders,
        })
        .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        let (five, long) = ("five ".repeat(20), "x".repeat(90));
        let lines = wrapped(&five);
        assert_eq!(lines.lines().map(str::len).collect::<Vec<_>>(), [79, 19]);
        assert_eq!(wrapped(&format!("a {long} b")), format!("a\n{long}\nb\n"));
        assert_eq!(wrapped(""), "\n");
    }
}
