//! The result as a table with notes.

use manyways_report::text;
use manyways_rig::links::fluid_bound;
use manyways_rig::programs::{program, version};
use manyways_unit::{Rate, Span};
use sha2::{Digest, Sha256};

use super::SIZE;
use super::contender::{Run, RunOutcome};
use super::setting::{NETWORKS, links};

/// Longest acceptable gap between samples, which are due every 100 ms. A machine with a longer gap
/// also delays the emulator.
const MAX_SAMPLE_GAP: Span = Span::from_millis(400);

/// The data of the table, the report and the JSON.
pub struct Outcome {
    /// Name and version.
    pub server: String,
    /// SHA-256 of the file.
    pub sha256: String,
    /// The fluid bound.
    pub bound: Span,
    pub runs: Vec<Run>,
}

impl Outcome {
    pub fn new(object: &[u8], runs: Vec<Run>) -> Self {
        let nginx = program("nginx").and_then(|nginx| version(&nginx, "-v"));
        Self {
            server: nginx.unwrap_or_else(|| "nginx".to_owned()).replace('/', " "),
            sha256: hex(object),
            bound: bound(),
            runs,
        }
    }

    /// Whether a contender ran and failed.
    pub fn failed(&self) -> bool {
        self.runs.iter().any(|run| matches!(run.outcome, RunOutcome::Failed(_)))
    }

    /// The heading and the rows of the table; the last row is the bound.
    pub fn table(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let head = vec!["contender", "seconds", "Mbit/s", "share by link", "× bound"];
        let bound = self.bound.as_secs_f64();
        let row = |label: &str, seconds: f64, shares: String| {
            let speed = SIZE.as_bytes() as f64 * 8.0 / seconds / 1e6;
            let [seconds, speed, ratio] =
                [seconds, speed, seconds / bound].map(|figure| format!("{figure:.2}"));
            vec![label.to_owned(), seconds, speed, shares, ratio]
        };
        let run = |run: &Run| {
            let label = run.contender.label;
            let without =
                |words: [&str; 4]| std::iter::once(label).chain(words).map(str::to_owned).collect();
            match &run.outcome {
                RunOutcome::Delivered(report) => row(label, report.seconds, run.shares()),
                RunOutcome::Failed(_) => without(["failed", "", "", ""]),
                RunOutcome::Skipped(_) => without(["-"; 4]),
            }
        };
        let bound = row("fluid bound", bound, String::new());
        (head, self.runs.iter().map(run).chain([bound]).collect())
    }

    /// Notes on the table, one or two sentences each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        notes.extend(self.starvation_warning());
        notes.extend(self.speedup());
        for run in &self.runs {
            let label = run.contender.label;
            match &run.outcome {
                RunOutcome::Failed(reason) => notes.push(format!("{label} failed: {reason}.")),
                RunOutcome::Skipped(reason) => {
                    notes.push(format!("{label} was skipped: {reason}."))
                }
                RunOutcome::Delivered(_) => {}
            }
        }
        for run in &self.runs {
            if let (Some(mptcp), RunOutcome::Delivered(_)) = (&run.mptcp, &run.outcome) {
                let shares = run.shares();
                notes.push(format!("Kernel MPTCP used {}: {shares}.", mptcp.describe()));
            }
        }
        for run in &self.runs {
            if let Some(Err(reason)) = &run.log {
                let label = run.contender.label;
                notes.push(format!("The requests of {label} are unknown: {reason}."));
            }
        }
        notes.push(self.bound_text());
        notes.push(
            "Each run is a new process with its own name look-up and connections; the time is \
             measured from the look-up to the last byte. One small request beforehand, which is \
             not counted, warms up the server. Shares are of the IP bytes that the links delivered. Each \
             contender ran once: this is a demonstration, not a benchmark."
                .to_owned(),
        );
        notes
    }

    /// A warning if the machine was too busy for reliable figures.
    fn starvation_warning(&self) -> Option<String> {
        let longest = self.runs.iter().map(Run::longest_gap).max().unwrap_or_default();
        (longest > MAX_SAMPLE_GAP).then(|| {
            format!(
                "This machine was too busy: the emulated links were delayed for up to {:.1} s. Do not \
                 trust these figures: run the demonstration again when the machine is idle.",
                longest.as_secs_f64()
            )
        })
    }

    /// The time of a contender; `None` if it did not deliver the file.
    pub fn seconds(&self, name: &str) -> Option<f64> {
        let run = self.runs.iter().find(|run| run.contender.name == name)?;
        Some(run.report()?.seconds)
    }

    /// The speedup by two networks, as one sentence.
    pub fn speedup(&self) -> Option<String> {
        let seconds = |name| self.seconds(name);
        let (both, wifi, lte) = (seconds("manyways")?, seconds("wifi")?, seconds("lte")?);
        let mut gain = format!(
            "manyways get fetched the file {:.2} times as fast as Wi-Fi alone and {:.2} times as \
             fast as LTE alone, without any change to the server.",
            wifi / both,
            lte / both
        );
        let others = [("kernel-mptcp", "kernel MPTCP"), ("fixed-chunk", "fixed chunks")];
        let times: Vec<String> = others
            .into_iter()
            .filter_map(|(name, words)| {
                Some(format!("{:.2} times that of {words}", both / seconds(name)?))
            })
            .collect();
        if !times.is_empty() {
            gain.push_str(&format!(" Its time was {}.", times.join(" and ")));
        }
        Some(gain)
    }

    /// The table and its notes.
    pub fn text(&self) -> String {
        let (head, rows) = self.table();
        let chars = |text: &str| text.chars().count();
        let width = |(column, name): (usize, &&str)| {
            rows.iter().map(|row| chars(&row[column])).fold(chars(name), usize::max)
        };
        let widths = head.iter().enumerate().map(width);
        let rule = widths.map(|width| "─".repeat(width)).collect::<Vec<_>>().join("  ");
        let table = text::table(&head, rows);
        let (head, rows) = table.split_once('\n').unwrap_or((&table, ""));
        let mut text = format!("{head}\n{rule}\n{rows}");
        text.push('\n');
        for note in self.notes() {
            text.push_str(&wrap(&note));
        }
        text
    }

    /// Derivation of the bound, in one line.
    fn bound_text(&self) -> String {
        let rate: Rate = NETWORKS.iter().map(|network| network.down).sum();
        let request = request();
        format!(
            "Fluid bound: {} MB at both link rates, {rate}, take {:.3} s; with one round trip \
             ({request}) for the request, {:.3} s. The bound ignores packet headers (3 to 5 %), \
             the name look-up and the handshakes, so no contender can reach 1.00.",
            SIZE.as_bytes() as f64 / 1e6,
            (self.bound - request).as_secs_f64(),
            self.bound.as_secs_f64(),
        )
    }
}

/// The SHA-256 of the bytes.
fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bound() -> Span {
    // Constant links always have a bound.
    let seconds = fluid_bound(&links(), Span::ZERO, &[], SIZE).unwrap_or_default();
    Span::from_secs_f64(seconds)
}

/// The shortest time from a request to the first byte of its response; a part of the bound.
pub fn request() -> Span {
    NETWORKS.iter().map(|network| network.round_trip).min().unwrap_or_default()
}

/// Wraps text at word boundaries.
pub fn wrap(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        let (five, long) = ("five ".repeat(20), "x".repeat(90));
        let lines = wrap(&five);
        assert_eq!(lines.lines().map(str::len).collect::<Vec<_>>(), [79, 19]);
        assert_eq!(wrap(&format!("a {long} b")), format!("a\n{long}\nb\n"));
        assert_eq!(wrap(""), "\n");
    }

    #[test]
    fn hashes_are_as_sha256sum_prints_them() {
        assert_eq!(hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn the_bound_is_all_links_at_full_rate_and_the_shortest_round_trip() {
        // 64 Mbit over 15 Mbit/s, and Wi-Fi's 2 × 14 ms.
        assert_eq!(bound() - request(), Span::from_nanos(4_266_666_667));
        assert_eq!(request(), Span::from_millis(28));
    }
}
