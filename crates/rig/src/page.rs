//! Results as Markdown that is readable on a terminal too: targets first, then the cells by part,
//! then the method.

use std::fmt::Write as _;

use crate::cell::CellRecord;
use crate::results::Results;
use crate::sample::Quartiles;
use crate::target;

/// The fixed texts of a results page.
pub struct Page<'a> {
    pub title: &'a str,
    /// The paragraph below the heading.
    pub intro: &'a str,
    /// The letter and the heading of each part.
    pub parts: &'a [(&'a str, &'a str)],
    /// The method, as a Markdown list.
    pub method: &'a str,
    /// The observed congestion control of the sockets: sentences that end with a space, or an empty
    /// string.
    pub sockets: String,
}

impl Page<'_> {
    /// Returns the whole page. `body` writes the tables below a cell's heading.
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

/// Writes a table. `head` separates the columns as in Markdown: `" | seconds | failed"`.
pub fn table(out: &mut String, head: &str, rows: impl IntoIterator<Item = impl AsRef<[String]>>) {
    let columns = head.split(" | ").count();
    let _ = writeln!(out, "| {head} |\n|{}", "---|".repeat(columns));
    for row in rows {
        let _ = writeln!(out, "| {} |", row.as_ref().join(" | "));
    }
}

/// The median and the quartiles with `decimals` decimals, or a dash if there are none.
pub fn spread(quartiles: Option<Quartiles>, decimals: usize) -> String {
    let Some(Quartiles { lower, median, upper }) = quartiles else { return "–".into() };
    format!("{median:.decimals$} ({lower:.decimals$}–{upper:.decimals$})")
}

/// [`spread`] with three decimals, or with one if the median is at least 20.
pub fn rounded(quartiles: Option<Quartiles>) -> String {
    spread(quartiles, if quartiles.is_some_and(|all| all.median >= 20.0) { 1 } else { 3 })
}
