//! Target values of `bond lend`, and whether they were met.

use manyways_rig::sample::median;
use manyways_rig::target::{Bound, Figure, Target, every_figure};

use super::plan::Load;
use crate::bond::record::{Record, extra_values, tasks};
use crate::gateway::targets::{finished, judged};

/// Share of the bytes of a segment that is payload.
const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;
/// Sum of the rates of the cell with a bound, in bit/s.
const BOUND_RATE: f64 = 13e6;
/// The shortest round-trip time there, in seconds.
const BOUND_DELAY: f64 = 0.08;

/// All targets with their measured values.
pub fn targets(cells: &[Record]) -> Vec<Target> {
    use Bound::{AtLeast, AtMost, Median};
    let over = |part: &str, own: &str, other: &str| {
        let of = |cell: &Record| {
            let figures = tasks(cell).into_iter().filter_map(|task| {
                let value = middle(cell, own, task)? / bar(cell, other, task)?;
                Some(Figure::new(format!("{}, {task}", cell.name), value))
            });
            figures.collect::<Vec<_>>()
        };
        selected(cells, part).flat_map(of).collect::<Vec<_>>()
    };
    let row = |part: &str, what: &str, bound, own: &str, other: &str| {
        every_figure(format!("{what}, {own} / {other}"), bound, over(part, own, other))
    };
    let extra = |name: &str, contender: &str, task: &str, what: &str| -> Vec<Figure> {
        let of = |cell: &Record| median(extra_values(cell, contender, task, what));
        let found =
            selected(cells, name).filter_map(|cell| Some(Figure::new(&cell.name, of(cell)?)));
        found.collect()
    };
    let twice = extra("pipe-drops", LEND, "4 MB", "duplicate");
    let twice = twice.into_iter().map(|one| Figure { value: one.value / 4e6 * 100.0, ..one });
    let each_pair = Median(0.82, f64::INFINITY);
    let paper = |bound| Median(bound, 1.03);
    vec![
        row("paper", "a file", paper(0.88), LEND, "kibbutz"),
        row("paper", "a file", paper(0.82), LEND, "COMBINE"),
        row("paper", "a file", paper(1.0), LEND, "tethered"),
        row("phones", "three devices", AtMost(0.70), "lend, 2 phones", "kibbutz"),
        row("uploads", "an upload", AtMost(0.90), LEND, "kibbutz"),
        every_figure("4 MB / bound", AtMost(1.12), over_bound(cells, "4 MB, warm", 4e6)),
        every_figure("10 MB / bound", AtMost(1.08), over_bound(cells, "10 MB, warm", 10e6)),
        every_figure(
            "10 MB: time between the ends of both paths / time",
            AtMost(0.05),
            extra("bound", LEND, "10 MB, warm", "end gap"),
        ),
        every_figure(
            "the same of minrtt (below this, the row above is void)",
            AtLeast(0.25),
            extra("bound", MINRTT, "10 MB, warm", "end gap"),
        ),
        row("pipe-drops", "the pipe drops", AtMost(0.50), LEND, "lend, no reinjection"),
        every_figure("the pipe drops: bytes that came twice, %", AtMost(3.0), twice.collect()),
        row("hs-drops", "the phone's network drops", AtMost(0.90), LEND, "tethered"),
        row("estimates", "the pipe is the slower half", AtMost(0.88), LEND, "lend, delay estimate"),
        row(
            "estimates",
            "the same without reinjection",
            AtMost(0.88),
            "lend, no reinjection",
            "lend, delay estimate, no reinjection",
        ),
        row("pipe-rises", "the pipe rises", AtMost(1.02), LEND, "lend, always feedback"),
        every_figure(
            "packets of the lender's network in the 2 s after its data",
            AtMost(0.0),
            most(cells, "pipe-rises", "packets after the data"),
        ),
        row("pairs", "recorded networks", each_pair, LEND, "kibbutz"),
        row("pairs", "recorded networks", Median(0.72, f64::INFINITY), LEND, "COMBINE"),
        every_figure(
            "a lender is killed: longest stall of the slowest run, ms",
            AtMost(250.0),
            slowest(cells, Load::Killed),
        ),
        every_figure(
            "a lender arrives: in use after, s, the slowest run",
            AtMost(1.0),
            slowest(cells, Load::Arrived),
        ),
        every_figure(
            "over a lender on one loopback, Gbit/s",
            AtLeast(1.0),
            selected(cells, "loopback")
                .filter_map(|cell| Some(Figure::new(&cell.name, middle(cell, LEND, "bulk")?)))
                .collect(),
        ),
    ]
}

const LEND: &str = "lend";
const MINRTT: &str = "lend, minrtt";

/// Cells of this name, or whose name begins with it and a dash.
fn selected<'a>(cells: &'a [Record], name: &'a str) -> impl Iterator<Item = &'a Record> {
    let is_meant = move |cell: &&Record| {
        let rest = cell.name.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || (name == "pairs" && rest.starts_with('-')))
    };
    cells.iter().filter(is_meant)
}

fn middle(cell: &Record, contender: &str, task: &str) -> Option<f64> {
    median(judged(cell, contender, task).into_values())
}

/// The median that another one is divided by; `None` if that would have no result.
fn bar(cell: &Record, contender: &str, task: &str) -> Option<f64> {
    median(finished(cell, contender, task).into_values()).filter(|bar| bar.is_finite())
}

fn slowest(cells: &[Record], load: Load) -> Vec<Figure> {
    let worst = |cell: &Record| judged(cell, LEND, &load.name()).into_values().reduce(f64::max);
    let found =
        selected(cells, "lenders").filter_map(|cell| Some(Figure::new(&cell.name, worst(cell)?)));
    found.collect()
}

/// The largest further figure of the runs with the default settings.
fn most(cells: &[Record], name: &str, what: &str) -> Vec<Figure> {
    let of = |cell: &Record| extra_values(cell, LEND, "4 MB", what).into_iter().reduce(f64::max);
    let found = selected(cells, name).filter_map(|cell| Some(Figure::new(&cell.name, of(cell)?)));
    found.collect()
}

/// The median time over the shortest possible one: all payload that the paths can carry, of the
/// phone that of its slower half, and one round trip over the quickest path.
fn over_bound(cells: &[Record], task: &str, bytes: f64) -> Vec<Figure> {
    let of = |cell: &Record| {
        let bound = bytes * 8.0 / (BOUND_RATE * PAYLOAD_SHARE) + BOUND_DELAY;
        Some(Figure::new(&cell.name, middle(cell, LEND, task)? / bound))
    };
    selected(cells, "bound").filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use manyways_rig::cell::Run;
    use manyways_rig::target::Verdict;

    use super::*;
    use crate::bond::record::Figures;
    use crate::lend::plan::{self, NAMES, plan};
    use crate::options::Mode;

    fn run(contender: &str, task: &str, round: u32, value: f64) -> Run<Figures> {
        let figures = Figures { task: task.to_owned(), value: Some(value), ..Figures::default() };
        Run { contender: contender.to_owned(), round, ..Run::of(figures, None) }
    }

    fn cell(name: &str, runs: Vec<Run<Figures>>) -> Record {
        Record { name: name.into(), runs, ..Record::default() }
    }

    fn verdict(cells: &[Record], beginning: &str) -> Verdict {
        let all = targets(cells);
        all.iter().find(|target| target.quantity.starts_with(beginning)).unwrap().verdict
    }

    #[test]
    fn a_median_over_the_sizes_counts_and_no_size_may_be_slower() {
        let of = |small: f64, large: f64| {
            let runs = vec![
                run(LEND, "1 MB", 0, small),
                run("kibbutz", "1 MB", 0, 1.0),
                run(LEND, "4 MB", 0, large),
                run("kibbutz", "4 MB", 0, 1.0),
            ];
            verdict(&[cell("paper", runs)], "a file, lend / kibbutz")
        };
        assert_eq!(
            (of(0.9, 0.85), of(0.9, 0.9), of(0.5, 1.04)),
            (Verdict::Met, Verdict::Missed, Verdict::Missed)
        );
    }

    #[test]
    fn a_failed_run_is_the_slowest() {
        let mut failed = run(LEND, &Load::Killed.name(), 1, 0.0);
        (failed.figures.value, failed.failed) = (None, Some("reset".to_owned()));
        let runs = vec![run(LEND, &Load::Killed.name(), 0, 100.0)];
        let of = |runs| verdict(&[cell("lenders", runs)], "a lender is killed");
        assert_eq!(of(runs.clone()), Verdict::Met);
        assert_eq!(of([runs, vec![failed]].concat()), Verdict::Missed);
    }

    #[test]
    fn the_pairs_are_all_cells_of_their_name() {
        let runs = |own| vec![run(LEND, "4 MB", 0, own), run("kibbutz", "4 MB", 0, 1.0)];
        let of = |figures: [f64; 3]| {
            let cells = figures.map(|own| cell(&format!("pairs-{own}"), runs(own)));
            verdict(&cells, "recorded networks, lend / kibbutz")
        };
        assert_eq!((of([0.9, 0.8, 0.7]), of([0.9, 0.83, 0.7])), (Verdict::Met, Verdict::Missed));
    }

    #[test]
    fn the_bound_is_that_of_the_planned_links() {
        let cells = plan(Mode::Default, &[]);
        let cell = cells.iter().find(|cell| cell.name == "bound").unwrap();
        assert_eq!(plan::total_rate(cell, plan::LEND).as_bps() as f64, BOUND_RATE);
        let trip = manyways_rig::links::round_trip(&cell.links[0]) + plan::HOP * 2;
        assert_eq!(trip.as_secs_f64(), BOUND_DELAY);
        assert_eq!(cell.links[0].name, NAMES[0]);
    }

    #[test]
    fn all_that_is_planned_has_a_row() {
        let runs = |cell: &plan::Cell| {
            use manyways_rig::cell::Contender as _;
            let mut runs: Vec<_> = cell
                .contenders
                .iter()
                .map(|entry| run(&entry.name(&cell.links), &entry.load.name(), 0, 1.0))
                .collect();
            for run in &mut runs {
                for what in ["end gap", "duplicate", "packets after the data"] {
                    run.figures.extra.insert(what.to_owned(), 0.0);
                }
            }
            runs
        };
        let mut cells: Vec<Record> =
            plan(Mode::Default, &[]).iter().map(|one| cell(&one.name, runs(one))).collect();
        let file = ["kibbutz", "COMBINE", LEND].map(|name| run(name, "4 MB", 0, 1.0));
        cells.push(cell("pairs-x", file.to_vec()));
        for target in targets(&cells) {
            assert!(target.verdict != Verdict::NotMeasured, "{target:?}");
        }
    }
}
