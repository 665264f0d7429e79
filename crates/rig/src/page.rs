//! Results as Markdown that is readable on a terminal too: targets first, then the cells by part,
//! then the method.

use std::fmt::Write as _;

use crate::cell::CellRecord;
use crate::results::Results;
use crate::sample::{Quartiles, Ratio};
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
        if !results.skipped.is_empty() {
            let _ = writeln!(out, "\nNot measured:\n");
            for words in &results.skipped {
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
    for words in &cell.skipped {
        let _ = writeln!(out, "Left out: {words}.");
    }
    if cell.drain_failures > 0 {
        let times = cell.drain_failures;
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

/// Writes the rows of a table, without its head. `cells` separates the columns as in Markdown.
pub fn lines<T>(rows: impl IntoIterator<Item = T>, cells: impl Fn(T) -> String) -> String {
    rows.into_iter().map(|row| format!("| {} |\n", cells(row))).collect()
}

/// Replaces each `{name}` of a text by its value. A section that begins with `## ` is left out if it
/// contains an empty value.
pub fn fill(text: &str, values: &[(&str, String)]) -> String {
    let section = |section: &str| {
        let mut out = section.to_owned();
        for (name, value) in values {
            let name = format!("{{{name}}}");
            if value.is_empty() && out.starts_with("## ") && out.contains(&name) {
                return String::new();
            }
            out = out.replace(&name, value);
        }
        out
    };
    let mut all = text.split("\n## ");
    let first = section(all.next().unwrap_or_default());
    all.fold(first, |out, rest| match section(&format!("## {rest}")) {
        rest if rest.is_empty() => out,
        rest => out + "\n" + &rest,
    })
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

/// A row that names the rows below it, in a table with this number of columns.
pub fn heading(words: String, columns: usize) -> Vec<String> {
    let mut row = vec![String::new(); columns];
    row[0] = words;
    row
}

/// A figure with three decimals, or a dash if there is none.
pub fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"))
}

/// The ratio of the medians, and the median of the ratios.
pub fn ratios(over: Option<Ratio>) -> [String; 2] {
    [figure(over.map(|over| over.medians)), figure(over.map(|over| over.pairs))]
}

/// The number of failed runs and of all runs; empty if none failed.
pub fn failed((failed, all): (usize, usize)) -> String {
    if failed > 0 { format!("{failed} of {all}") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_without_its_table_is_left_out() {
        let text = "# {what}\n{gone}\n## A\n|a|\n|-|\n{gone}\n## B\n| n |\n|---|\n{rows}";
        let rows = lines([1, 2], |n| n.to_string());
        let values = [("what", "Title".into()), ("gone", String::new()), ("rows", rows)];
        let page = "# Title\n\n## B\n| n |\n|---|\n| 1 |\n| 2 |\n";
        assert_eq!(fill(text, &values), page);
    }
}
