//! Target values of a gateway, and whether they were met.

use std::collections::BTreeMap;

use manyways_rig::sample::median;
use manyways_rig::target::{Bound, Figure, Target, every_figure};

use crate::bond::record::{Record, selects, tasks, values};

/// Maximum of a ratio to the earlier version, at the better end of its interval.
const MAX_RATIO: f64 = 1.03;
/// Quantile 0.975 of Student's distribution, for 1, 2, … degrees of freedom.
const STUDENT: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];

/// All targets with their measured values.
pub fn targets(cells: &[Record]) -> Vec<Target> {
    use Bound::{AtLeast, AtMost};
    let slowest = |cell: &str, task: &str| {
        let found = selected(cells, cell).filter_map(|record| {
            let worst = values(record, "bond", task).into_values().reduce(f64::max)?;
            Some(Figure::new(format!("the longest of {task}"), worst))
        });
        found.collect::<Vec<_>>()
    };
    let newcomer = |task: &str, bound| {
        let what = format!("a new client, 200 ms: {task}, s");
        every_figure(what, AtMost(bound), slowest("strangers", task))
    };
    let back = |task: &str| {
        let what = format!("gateway {task}: first new connection, s");
        every_figure(what, AtMost(3.0), slowest("return", task))
    };
    let mut all = vec![
        newcomer("TCP, strangers of one /24", 1.2),
        newcomer("TCP, strangers of 1000 /24s", 2.0),
        newcomer("QUIC, strangers of one /24", 1.2),
        newcomer("QUIC, strangers of 1000 /24s", 2.0),
        every_figure(
            "beside a greedy key: runs without a failed request, %",
            AtLeast(100.0),
            with(cells, "greedy", success),
        ),
        every_figure(
            "beside a greedy key: p99 of a request / alone",
            AtMost(2.0),
            with(cells, "greedy", greedy_over_alone),
        ),
        back("back after 14 s"),
        back("back after 40 s"),
        every_figure(
            "call beside a download: p95 of the round trip / best single link",
            AtMost(0.8),
            with(cells, "call", over_single_links),
        ),
    ];
    let compared: Vec<Figure> =
        cells.iter().filter(|cell| cell.part == "e").flat_map(lows).collect();
    all.push(every_figure(
        "this version / the earlier one (time; rates the other way): lower end of the interval",
        AtMost(MAX_RATIO),
        compared,
    ));
    all
}

fn selected<'a>(cells: &'a [Record], name: &'a str) -> impl Iterator<Item = &'a Record> {
    cells.iter().filter(move |cell| cell.name == name)
}

fn with(cells: &[Record], name: &str, figure: fn(&Record) -> Option<f64>) -> Vec<Figure> {
    let figures = selected(cells, name).filter_map(|cell| Some(Figure::new(name, figure(cell)?)));
    figures.collect()
}

fn middle(cell: &Record, contender: &str, task: &str) -> Option<f64> {
    median(values(cell, contender, task).into_values())
}

const GREEDY: &str = "requests beside a greedy key";

fn success(cell: &Record) -> Option<f64> {
    let (failed, all) = cell.failures(selects("bond", GREEDY));
    (all > 0).then(|| 100.0 * (all - failed) as f64 / all as f64)
}

fn greedy_over_alone(cell: &Record) -> Option<f64> {
    Some(middle(cell, "bond", GREEDY)? / middle(cell, "bond", "requests, alone")?)
}

fn over_single_links(cell: &Record) -> Option<f64> {
    let task = "call beside a download";
    let single = cell.links.iter().map(|link| format!("direct-{link}"));
    let best = single.filter_map(|name| middle(cell, &name, task)).reduce(f64::min)?;
    Some(middle(cell, "bond", task)? / best)
}

/// For each task, the lower end of the interval of the ratio to the earlier version; above 1, the
/// earlier version was better.
fn lows(cell: &Record) -> Vec<Figure> {
    let low = |task: &&str| {
        let [own, before] = ["bond", "before"].map(|name| values(cell, name, task));
        let is_rate = matches!(*task, "bulk" | "new streams");
        let ratios = if is_rate { ratios(&before, &own) } else { ratios(&own, &before) };
        let (low, middle, high) = interval(&ratios)?;
        let case = format!("{}, {task}: {middle:.3}, {low:.3} to {high:.3}", cell.name);
        Some(Figure::new(case, low))
    };
    tasks(cell).iter().filter_map(low).collect()
}

fn ratios(ours: &BTreeMap<u32, f64>, theirs: &BTreeMap<u32, f64>) -> Vec<f64> {
    ours.iter().filter_map(|(round, own)| Some(own / theirs.get(round)?)).collect()
}

/// The interval (95 %) of the geometric mean of ratios: its lower end, the mean, the upper end.
fn interval(ratios: &[f64]) -> Option<(f64, f64, f64)> {
    let count = ratios.len() as f64;
    let student = *STUDENT.get(ratios.len().checked_sub(2)?).unwrap_or(&1.96);
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let mean = logs.iter().sum::<f64>() / count;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let half = student * (variance / count).sqrt();
    Some(((mean - half).exp(), mean.exp(), (mean + half).exp()))
}

#[cfg(test)]
mod tests {
    use manyways_rig::cell::Run;
    use manyways_rig::target::Verdict;

    use super::*;
    use crate::bond::record::Figures;

    fn run(contender: &str, task: &str, round: u32, value: f64) -> Run<Figures> {
        let figures = Figures { task: task.to_owned(), value: Some(value), ..Figures::default() };
        Run { contender: contender.to_owned(), round, ..Run::of(figures, None) }
    }

    fn cell(part: &str, name: &str, runs: Vec<Run<Figures>>) -> Record {
        Record { part: part.into(), name: name.into(), runs, ..Record::default() }
    }

    fn verdict(cells: &[Record], beginning: &str) -> Verdict {
        let all = targets(cells);
        all.iter().find(|target| target.quantity.starts_with(beginning)).unwrap().verdict
    }

    #[test]
    fn the_slowest_round_counts() {
        let task = "TCP, strangers of one /24";
        let of = |worst| {
            let runs = vec![run("bond", task, 0, 1.0), run("bond", task, 1, worst)];
            verdict(&[cell("a", "strangers", runs)], "a new client, 200 ms: TCP, strangers of one")
        };
        assert_eq!((of(1.2), of(1.3)), (Verdict::Met, Verdict::Missed));
    }

    #[test]
    fn a_failed_request_is_a_miss() {
        let mut failed = run("bond", GREEDY, 1, 0.0);
        (failed.figures.value, failed.failed) = (None, Some("reset".to_owned()));
        let of = |runs| verdict(&[cell("b", "greedy", runs)], "beside a greedy key: runs");
        assert_eq!(of(vec![run("bond", GREEDY, 0, 60.0)]), Verdict::Met);
        assert_eq!(of(vec![run("bond", GREEDY, 0, 60.0), failed]), Verdict::Missed);
    }

    #[test]
    fn a_call_is_compared_with_the_best_single_link() {
        let task = "call beside a download";
        let of = |own| {
            let runs = vec![
                run("bond", task, 0, own),
                run("direct-vdsl", task, 0, 165.0),
                run("direct-4g", task, 0, 50.0),
            ];
            let links = vec!["vdsl".to_owned(), "4g".to_owned()];
            verdict(&[Record { links, ..cell("d", "call", runs) }], "call beside")
        };
        assert_eq!((of(40.0), of(41.0)), (Verdict::Met, Verdict::Missed));
    }

    #[test]
    fn a_version_that_is_surely_worse_is_a_miss() {
        let of = |ours: [f64; 3], task: &str| {
            let mut runs: Vec<_> = (0..).zip(ours).map(|(n, v)| run("bond", task, n, v)).collect();
            runs.extend((0..3).map(|round| run("before", task, round, 100.0)));
            verdict(&[cell("e", "loopback", runs)], "this version")
        };
        assert_eq!(of([104.0, 104.5, 104.2], "1 MB"), Verdict::Missed);
        assert_eq!(of([96.0, 95.5, 95.8], "1 MB"), Verdict::Met);
        assert_eq!(of([96.0, 95.5, 95.8], "new streams"), Verdict::Missed, "fewer a second");
        assert_eq!(of([90.0, 130.0, 110.0], "1 MB"), Verdict::Met, "by chance");
    }
}
