//! The tables of a cell.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use manyways_rig::page::{Page, rounded, table};
use manyways_rig::results::ResultsOf;
use manyways_rig::sample::{Quartiles, ratio};

use super::drive::Driver;
use super::record::{Record, byte_rates, packet_rates, values};

pub fn page(results: &ResultsOf<Driver>) -> String {
    let page = Page {
        title: "manyways flows beside what else there is",
        intro: "Written by `make bench`. Figures are medians (quartiles). Missed targets come first.",
        parts: &[
            ("a", "Packet headers, and what else reads them"),
            ("b", "Whole packets"),
            ("c", "Connections that are alive"),
            ("d", "Captures that grow"),
        ],
        method: include_str!("method.md"),
        sockets: String::new(),
    };
    page.markdown(results, figures)
}

fn figures(out: &mut String, cell: &Record) {
    let _ = writeln!(
        out,
        "{} packets, {:.0} MB. Other work on this machine in the minute before: {:.1} cores.\n",
        cell.more.capture.packets,
        cell.more.capture.bytes as f64 / 1e6,
        cell.more.load
    );
    let is_stream = cell.part == "c" || cell.part == "d";
    let head = match is_stream {
        true => " | seconds | processor seconds | peak, MiB | peak before the end, MiB",
        false => {
            " | million packets/s | GB/s | manyways-1 over this | processor seconds | peak, MiB"
        }
    };
    let mut names = cell.each(|run| Some(&run.contender));
    names.sort_unstable();
    let row = |name: &str| {
        let cpu = spread(&values(cell, name, |run| Some(run.cpu)), 1.0);
        let mebi = f64::from(1 << 20);
        let peak = spread(&values(cell, name, |run| Some(run.memory as f64)), mebi);
        if is_stream {
            let seconds = spread(&values(cell, name, |run| Some(run.seconds)), 1.0);
            let live = values(cell, name, |run| run.live.map(|bytes| bytes as f64));
            return vec![name.to_owned(), seconds, cpu, peak, spread(&live, mebi)];
        }
        let rates = packet_rates(cell, name);
        let over = ratio(&packet_rates(cell, "manyways-1"), &rates);
        let over = over.filter(|_| name != "manyways-1");
        let over = over.map_or("–".to_owned(), |over| format!("{:.2}", over.pairs));
        let bytes = spread(&byte_rates(cell, name), 1e9);
        vec![name.to_owned(), spread(&rates, 1e6), bytes, over, cpu, peak]
    };
    table(out, head, names.into_iter().map(row));
}

fn spread(values: &BTreeMap<u32, f64>, unit: f64) -> String {
    rounded(Quartiles::of(values.values().map(|value| value / unit)))
}
