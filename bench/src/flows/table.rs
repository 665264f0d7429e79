//! The results as Markdown, which reads well on a terminal too.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::record::{CellRecord, Results};
use manyways_rig::sample::{Quartiles, ratio};
use manyways_rig::target;

/// What stands above the cells of a part.
const PARTS: [(&str, &str); 4] = [
    ("a", "Packet headers, and what else reads them"),
    ("b", "Whole packets"),
    ("c", "Connections that are alive"),
    ("d", "Captures that grow"),
];

const METHOD: &str = "\
- Captures are made by a generator (bench/src/flows/capture.rs), the same bytes for the same shape: \
TCP connections of 1 to 4 questions and answers, with stamps that echo, windows that double, one \
segment in some thousands that comes again; half of them begin like HTTP, half like TLS.
- Parts a and b read a file that is in memory: it and the program are gone through just before each \
run, as some systems take out what nobody has used for a minute, and others run for as long. \
`manyways flows` is also asked once, outside of the measurement, whether it finds all packets.
- In a round every contender reads the file once, one after the other, in an order that is shuffled \
by a seeded generator. Ratios are the median of the rounds' own ratios.
- Time is from the start of the process to its end. What contenders print goes to /dev/null.
- manyways-1 and all others run on one core alone (taskset); manyways-2 is `--threads 2` on all \
cores. With -tables it writes all tables into a folder. -untrained is a plain `cargo \
build`; all other figures are of what `make release` builds, for which the compiler has seen runs on \
captures of the same generator, fewer, smaller and of other shapes. manyways-1-twice is manyways-1 twice at \
once, one on each of two cores: twice the rate that is given for it is what two cores of this \
machine can do.
- tshark: `tshark -n -q -z conv,tcp -r`. tcptrace: `tcptrace -lW -n`. NFStream: all flows of \
`NFStreamer(source, n_meters=1)`, which is several processes: its memory is that of the largest.
- They do not say the same things of a flow: tshark's table has counts and durations, NFStream's \
flows counts and the application. tcptrace's are next to ours.
- Memory is the most that was resident (`ru_maxrss`).
- Parts c and d come through a pipe from the generator, which runs on another core, so that no file \
has to be held. Its time is not in the time of a processor, which is what counts there; the time to \
the end has it where it is slower.
- Part c: no connection ends. The generator keeps the pipe open until the reader has read all and \
sleeps; its peak until then is what counts, so that rows which wait to be written do not.";

/// The whole page.
pub fn markdown(results: &Results) -> String {
    let mut out = String::from("# manyways flows beside what else there is\n\n");
    let _ = writeln!(
        out,
        "Written by `make bench`. Figures are medians (quartiles). Missed targets come first.\n"
    );
    out.push_str(&target::rows(&results.targets));
    for (letter, title) in PARTS {
        let cells = results.cells.iter().filter(|cell| cell.part == letter);
        for (index, cell) in cells.enumerate() {
            if index == 0 {
                let _ = writeln!(out, "\n## ({letter}) {title}");
            }
            self::cell(&mut out, cell);
        }
    }
    let machine = &results.machine;
    let _ = writeln!(
        out,
        "\n## How it was measured\n{METHOD}\n\n{} cores, kernel {}; {}. Seed {}; {:.0} minutes.",
        machine.cores,
        machine.kernel,
        machine.programs.join(", "),
        results.seed,
        results.seconds / 60.0
    );
    out
}

fn cell(out: &mut String, cell: &CellRecord) {
    let _ = writeln!(out, "\n### {}\n{}. Rounds: {}.", cell.name, cell.title, cell.rounds);
    if let Some(error) = &cell.error {
        let _ = writeln!(out, "\nNot measured: {error}.");
        return;
    }
    for words in &cell.left_out {
        let _ = writeln!(out, "Left out: {words}.");
    }
    let _ = writeln!(
        out,
        "{} packets, {:.0} MB. Other work on this machine in the minute before: {:.1} cores.",
        cell.capture.packets,
        cell.capture.bytes as f64 / 1e6,
        cell.load
    );
    let is_stream = cell.part == "c" || cell.part == "d";
    let rates = "million packets/s | GB/s | manyways-1 over this";
    let times = "seconds | processor seconds | peak, MiB | peak before the end, MiB";
    match is_stream {
        true => {
            let _ = writeln!(out, "\n| | {times} |\n|---|---|---|---|---|");
        }
        false => {
            let _ = writeln!(out, "\n| | {rates} | processor seconds | peak, MiB |");
            let _ = writeln!(out, "|---|---|---|---|---|---|");
        }
    }
    for name in cell.contenders() {
        let cpu = spread(&cell.values(name, |run| Some(run.cpu)), 1.0);
        let mebi = f64::from(1 << 20);
        let peak = spread(&cell.values(name, |run| Some(run.memory as f64)), mebi);
        let row = match is_stream {
            true => vec![
                name.to_owned(),
                spread(&cell.values(name, |run| Some(run.seconds)), 1.0),
                cpu,
                peak,
                spread(&cell.values(name, |run| run.live.map(|bytes| bytes as f64)), mebi),
            ],
            false => {
                let rates = cell.packet_rates(name);
                let over = ratio(&cell.packet_rates("manyways-1"), &rates);
                let over = over.filter(|_| name != "manyways-1");
                vec![
                    name.to_owned(),
                    spread(&rates, 1e6),
                    spread(&cell.byte_rates(name), 1e9),
                    over.map_or("–".to_owned(), |over| format!("{:.2}", over.pairs)),
                    cpu,
                    peak,
                ]
            }
        };
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
    for run in cell.runs.iter().filter(|run| run.failed.is_some()) {
        let why = run.failed.as_deref().unwrap_or_default();
        let _ = writeln!(out, "\n{} failed in round {}: {why}.", run.contender, run.round + 1);
    }
}

fn spread(values: &BTreeMap<u32, f64>, unit: f64) -> String {
    let values = values.values().map(|value| value / unit);
    let Some(Quartiles { lower, median, upper }) = Quartiles::of(values) else {
        return "–".into();
    };
    let places = if median >= 20.0 { 1 } else { 3 };
    format!("{median:.places$} ({lower:.places$}–{upper:.places$})")
}
