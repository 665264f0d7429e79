//! The results as Markdown, which reads well on a terminal too: targets first, then the cells part
//! by part, then how it was measured.

use std::fmt::Write as _;

use crate::cell::CellRecord;
use crate::results::Results;
use crate::sample::Quartiles;
use crate::target;

/// What a page says beside its figures.
pub struct Page<'a> {
    /// Its heading.
    pub title: &'a str,
    /// The paragraph below the heading.
    pub intro: &'a str,
    /// The letter and the heading of each part.
    pub parts: &'a [(&'a str, &'a str)],
    /// How it was measured: a list.
    pub method: &'a str,
    /// What was seen of the sockets' congestion control, as sentences that end with a space; may be
    /// empty.
    pub sockets: String,
}

impl Page<'_> {
    /// The whole page. `body` writes what stands below a cell's heading: its tables.
    pub fn markdown<R, M>(
        &self,
        results: &Results<R, M>,
        body: impl Fn(&mut String, &CellRecord<R, M>),
    ) -> String {
        let mut out = format!("# {}\n\n{}\n\n", self.title, self.intro);
        out.push_str(&target::rows(&results.targets));
        for (letter, title) in self.parts {
            let cells = results.cells.iter().filter(|cell| cell.part == *letter);
            for (index, cell) in cells.enumerate() {
                if index == 0 {
                    let _ = writeln!(out, "\n## ({letter}) {title}");
                }
                cell_section(&mut out, cell, &body);
            }
        }
        let machine = &results.machine;
        let _ = writeln!(
            out,
            "\n## How it was measured\n{}\n\n{} cores, kernel {}; {}. {}Seed {}; {:.0} minutes.",
            self.method.trim_end(),
            machine.cores,
            machine.kernel,
            machine.programs.join(", "),
            self.sockets,
            results.seed,
            results.seconds / 60.0
        );
        if !results.left_out.is_empty() {
            let _ = writeln!(out, "\nNot measured:\n");
            for words in &results.left_out {
                let _ = writeln!(out, "- {words}");
            }
        }
        out
    }
}

fn cell_section<R, M>(
    out: &mut String,
    cell: &CellRecord<R, M>,
    body: impl Fn(&mut String, &CellRecord<R, M>),
) {
    let _ = writeln!(out, "\n### {}\n{}. Rounds: {}.", cell.name, cell.title, cell.rounds);
    if let Some(error) = &cell.error {
        let _ = writeln!(out, "\nNot measured: {error}.");
        return;
    }
    for words in &cell.left_out {
        let _ = writeln!(out, "Left out: {words}.");
    }
    if cell.restless > 0 {
        let times = cell.restless;
        let _ = writeln!(out, "After {times} runs the links were cut off to become quiet.");
    }
    body(out, cell);
    let reasons = cell.reasons();
    if !reasons.is_empty() {
        let _ = writeln!(out, "\nFailures: {reasons}.");
    }
}

/// A table. Its columns are separated in `head` as in Markdown: `" | seconds | failed"`.
pub fn table(out: &mut String, head: &str, rows: impl IntoIterator<Item = impl AsRef<[String]>>) {
    let columns = head.split(" | ").count();
    let _ = writeln!(out, "| {head} |\n|{}", "---|".repeat(columns));
    for row in rows {
        let _ = writeln!(out, "| {} |", row.as_ref().join(" | "));
    }
}

/// The median and the quartiles with so many decimals, or a dash.
pub fn spread(quartiles: Option<Quartiles>, decimals: usize) -> String {
    let Some(Quartiles { lower, median, upper }) = quartiles else { return "–".into() };
    format!("{median:.decimals$} ({lower:.decimals$}–{upper:.decimals$})")
}

/// The same with three decimals, or one where the median is large.
pub fn rounded(quartiles: Option<Quartiles>) -> String {
    spread(quartiles, if quartiles.is_some_and(|all| all.median >= 20.0) { 1 } else { 3 })
}
