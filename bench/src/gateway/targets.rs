//! Target values of a gateway, and whether they were met.
//!
//! A failed run of the gateway counts as infinitely slow. A failed run of what it is compared with is
//! left out, so that it does not lower the bar.

use std::collections::BTreeMap;

use manyways_rig::cell::Run;
use manyways_rig::sample::median;
use manyways_rig::target::{Bound, Figure, Target, every_figure, target};

use crate::bond::record::{Figures, Record, selects, tasks};

/// Maximum of a ratio to the earlier version, at the better end of its interval.
const MAX_RATIO: f64 = 1.03;
/// Percentage points of datagrams that a call may lose beyond the best single link.
const MAX_MORE_LOST: f64 = 0.5;
/// Quantile 0.975 of Student's distribution, for 1, 2, … degrees of freedom.
const STUDENT: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];

/// All targets with their measured values.
pub fn targets(cells: &[Record]) -> Vec<Target> {
    use Bound::{AtLeast, AtMost};
    let newcomer = |task: &str, bound| {
        let what = format!("a new client, 200 ms: {task}, s");
        every_figure(what, AtMost(bound), slowest(cells, "strangers", task))
    };
    let back = |task: &str| {
        let what = format!("gateway {task}: first new connection, s");
        every_figure(what, AtMost(3.0), slowest(cells, "return", task))
    };
    let mut all = vec![
        newcomer("TCP, strangers of one /24", 1.2),
        newcomer("TCP, strangers of 1000 /24s", 2.0),
        newcomer("QUIC, strangers of one /24", 1.2),
        newcomer("QUIC, strangers of 1000 /24s", 2.0),
        every_figure(
            "beside a greedy key: runs that succeeded, %",
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
        target(
            "call beside a download: datagrams lost, %",
            format!("<= best single link's + {MAX_MORE_LOST} points"),
            selected(cells, "call").find_map(loss_beside_single_links),
        ),
        target(
            "download beside a call: Mbit/s",
            ">= best single link's download beside a call",
            selected(cells, "call").find_map(rate_beside_single_links),
        ),
    ];
    all.extend(COMPARED.map(|(what, cell, task)| compared(cells, what, cell, task)));
    all
}

/// Comparisons with an earlier version: the name, the cell, and the task if not all count.
const COMPARED: [(&str, &str, Option<&str>); 5] = [
    ("bulk over loopback", "loopback", Some("bulk")),
    ("new streams over loopback", "loopback", Some("new streams")),
    ("files", "files", None),
    ("pages", "pages", None),
    ("fail-over", "stalls", None),
];

fn selected<'a>(cells: &'a [Record], name: &'a str) -> impl Iterator<Item = &'a Record> {
    cells.iter().filter(move |cell| cell.name == name)
}

fn with(cells: &[Record], name: &str, figure: fn(&Record) -> Option<f64>) -> Vec<Figure> {
    let figures = selected(cells, name).filter_map(|cell| Some(Figure::new(name, figure(cell)?)));
    figures.collect()
}

/// The slowest run of the gateway.
fn slowest(cells: &[Record], name: &str, task: &str) -> Vec<Figure> {
    let of = |cell: &Record| {
        let worst = judged(cell, "bond", task).into_values().reduce(f64::max)?;
        let (failed, all) = cell.failures(selects("bond", task));
        Some(Figure::new(format!("the slowest of {all} runs, {failed} failed"), worst))
    };
    selected(cells, name).filter_map(of).collect()
}

/// Whether a higher figure is better.
fn is_rate(task: &str) -> bool {
    matches!(task, "bulk" | "new streams")
}

/// The figures of a contender for a task, by round. A run without a figure counts as infinitely
/// slow: it failed, or the figure was infinite, for which JSON has no number.
pub fn judged(cell: &Record, contender: &str, task: &str) -> BTreeMap<u32, f64> {
    let worst = if is_rate(task) { 0.0 } else { f64::INFINITY };
    cell.values(selects(contender, task), |figures| Some(figures.value.unwrap_or(worst)))
}

/// [`judged`] without the failed runs, for a contender that sets the bar.
pub fn finished(cell: &Record, contender: &str, task: &str) -> BTreeMap<u32, f64> {
    let is_meant = selects(contender, task);
    let failed = cell.runs.iter().filter(|run| is_meant(run) && run.failed.is_some());
    let failed: Vec<u32> = failed.map(|run| run.round).collect();
    let mut figures = judged(cell, contender, task);
    figures.retain(|round, _| !failed.contains(round));
    figures
}

fn middle(cell: &Record, contender: &str, task: &str) -> Option<f64> {
    median(judged(cell, contender, task).into_values())
}

/// The median that another one is divided by; `None` if that would have no result.
fn bar(cell: &Record, contender: &str, task: &str) -> Option<f64> {
    median(finished(cell, contender, task).into_values()).filter(|bar| bar.is_finite())
}

const GREEDY: &str = "requests beside a greedy key";

fn success(cell: &Record) -> Option<f64> {
    let (failed, all) = cell.failures(selects("bond", GREEDY));
    (all > 0).then(|| 100.0 * (all - failed) as f64 / all as f64)
}

fn greedy_over_alone(cell: &Record) -> Option<f64> {
    Some(middle(cell, "bond", GREEDY)? / bar(cell, "bond", "requests, alone")?)
}

/// Names of the contenders that use one link only.
fn single_links(cell: &Record) -> impl Iterator<Item = String> {
    cell.links.iter().map(|link| format!("direct-{link}"))
}

const CALL: &str = "call beside a download";

fn over_single_links(cell: &Record) -> Option<f64> {
    let best = single_links(cell).filter_map(|name| bar(cell, &name, CALL)).reduce(f64::min)?;
    Some(middle(cell, "bond", CALL)? / best)
}

/// Both shares of lost datagrams in words, and whether that of the gateway is low enough.
fn loss_beside_single_links(cell: &Record) -> Option<(String, bool)> {
    let runs = |name: &str| cell.runs.iter().filter(selects_call(name)).collect::<Vec<_>>();
    let own = lost_percent(&runs("bond"))?;
    let others = single_links(cell).filter_map(|name| {
        let ended: Vec<_> = runs(&name).into_iter().filter(|run| run.failed.is_none()).collect();
        Some((lost_percent(&ended)?, name))
    });
    let (best, name) = others.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let words = format!("{own:.2}; best single link {best:.2} ({name})");
    Some((words, own <= best + MAX_MORE_LOST))
}

fn selects_call(name: &str) -> impl Fn(&&Run<Figures>) -> bool {
    let is_meant = selects(name, CALL);
    move |run| is_meant(run)
}

/// The share of lost datagrams over all runs; a failed run has lost all. `None` without a run.
fn lost_percent(runs: &[&Run<Figures>]) -> Option<f64> {
    let share = |run: &&Run<Figures>| {
        let count = |name: &str| run.figures.extra.get(name).copied();
        let share = Some(count("lost")? / count("sent")?);
        share.filter(|_| run.failed.is_none())
    };
    let all: f64 = runs.iter().map(|run| share(run).unwrap_or(1.0)).sum();
    (!runs.is_empty()).then(|| 100.0 * all / runs.len() as f64)
}

/// Both median rates of the download in words, and whether that of the gateway is high enough.
fn rate_beside_single_links(cell: &Record) -> Option<(String, bool)> {
    let rates = |name: &str, with_failed: bool| {
        let is_meant = selects(name, CALL);
        let is_meant = |run: &Run<Figures>| is_meant(run) && (with_failed || run.failed.is_none());
        let rate = |figures: &Figures| Some(figures.extra.get("Mbit/s").copied().unwrap_or(0.0));
        median(cell.values(is_meant, rate).into_values())
    };
    let own = rates("bond", true)?;
    let others = single_links(cell).filter_map(|name| Some((rates(&name, false)?, name)));
    let (best, name) = others.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some((format!("{own:.1}; best single link {best:.1} ({name})"), own >= best))
}

fn compared(cells: &[Record], what: &str, name: &str, only: Option<&str>) -> Target {
    let is_meant = |task: &&str| only.is_none_or(|only| *task == only);
    let lows = selected(cells, name).flat_map(|cell| {
        let tasks = tasks(cell).into_iter().filter(is_meant);
        tasks.filter_map(|task| low(cell, task)).collect::<Vec<_>>()
    });
    let over = if only.is_some_and(is_rate) {
        "the earlier version / this"
    } else {
        "this version / the earlier"
    };
    let what = format!("{what}, {over} one: lower end of the interval");
    every_figure(what, Bound::AtMost(MAX_RATIO), lows.collect())
}

/// The lower end of the interval of the ratio to the earlier version; above 1, the earlier version
/// was better. Infinite if this version failed where the earlier one did not.
fn low(cell: &Record, task: &str) -> Option<Figure> {
    let ratios = ratios(cell, task);
    let (failed, all) = cell.failures(selects("bond", task));
    if ratios.iter().any(|ratio| ratio.is_infinite()) || (ratios.len() < 2 && failed > 0) {
        let case = format!("{}, {task}: {failed} of {all} runs failed", cell.name);
        return Some(Figure::new(case, f64::INFINITY));
    }
    let (low, middle, high) = interval(&ratios)?;
    let case = format!("{}, {task}: {middle:.3}, {low:.3} to {high:.3}", cell.name);
    Some(Figure::new(case, low))
}

/// The ratios of the rounds in which the earlier version did not fail; above 1, it was better.
fn ratios(cell: &Record, task: &str) -> Vec<f64> {
    let own = judged(cell, "bond", task);
    let before = finished(cell, "before", task);
    let ratio = |(round, before): (&u32, &f64)| {
        let own = own.get(round)?;
        Some(if is_rate(task) { before / own } else { own / before })
    };
    before.iter().filter_map(ratio).collect()
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

    fn failed(contender: &str, task: &str, round: u32) -> Run<Figures> {
        let mut run = run(contender, task, round, 0.0);
        (run.figures.value, run.failed) = (None, Some("reset".to_owned()));
        run
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
            let runs = vec![run("bond", task, 0, 1.0), worst];
            verdict(&[cell("a", "strangers", runs)], "a new client, 200 ms: TCP, strangers of one")
        };
        assert_eq!(of(run("bond", task, 1, 1.2)), Verdict::Met);
        assert_eq!(of(run("bond", task, 1, 1.3)), Verdict::Missed);
        assert_eq!(of(failed("bond", task, 1)), Verdict::Missed, "a failed run is the slowest");
    }

    #[test]
    fn a_failed_run_is_worse_than_every_other() {
        let runs = |task| vec![run("bond", task, 0, 5.0), failed("bond", task, 1)];
        let of = |task| {
            let cell = cell("e", "files", runs(task));
            let finished = finished(&cell, "bond", task);
            (judged(&cell, "bond", task)[&1], finished.into_values().collect::<Vec<_>>())
        };
        assert_eq!(of("1 MB"), (f64::INFINITY, vec![5.0]));
        assert_eq!(of("bulk"), (0.0, vec![5.0]));
    }

    #[test]
    fn an_infinite_figure_is_one_in_the_results_file_too() {
        let runs = vec![run("bond", CALL, 0, f64::INFINITY)];
        let text = serde_json::to_string(&cell("d", "call", runs)).unwrap();
        let read: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(judged(&read, "bond", CALL)[&0], f64::INFINITY);
        assert_eq!(finished(&read, "bond", CALL)[&0], f64::INFINITY, "the run did not fail");
    }

    #[test]
    fn failed_runs_raise_the_median_but_no_bar() {
        let alone = "requests, alone";
        let of = |runs| greedy_over_alone(&cell("b", "greedy", runs));
        let own = || vec![run("bond", GREEDY, 0, 60.0), failed("bond", GREEDY, 1)];
        let one = || run("bond", alone, 0, 50.0);
        assert_eq!(of([own(), vec![one()]].concat()), Some(f64::INFINITY));
        let own = || vec![run("bond", GREEDY, 0, 60.0)];
        assert_eq!(of([own(), vec![one(), failed("bond", alone, 1)]].concat()), Some(1.2));
        assert_eq!(of([own(), vec![failed("bond", alone, 1)]].concat()), None, "no bar");
    }

    #[test]
    fn a_failed_request_is_a_miss() {
        let failed = failed("bond", GREEDY, 1);
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
            verdict(&[Record { links, ..cell("d", "call", runs) }], "call beside a download: p95")
        };
        assert_eq!((of(40.0), of(41.0)), (Verdict::Met, Verdict::Missed));
        assert_eq!(of(f64::INFINITY), Verdict::Missed);
    }

    /// A run of the call with this many of 400 datagrams lost and this rate of the download.
    fn call_run(contender: &str, round: u32, lost: f64, rate: f64) -> Run<Figures> {
        let mut run = run(contender, CALL, round, 50.0);
        let more = [("lost", lost), ("sent", 400.0), ("Mbit/s", rate)];
        run.figures.extra = more.map(|(name, value)| (name.to_owned(), value)).into();
        run
    }

    fn call_cell(runs: Vec<Run<Figures>>) -> Record {
        let links = vec!["vdsl".to_owned(), "4g".to_owned()];
        Record { links, ..cell("d", "call", runs) }
    }

    #[test]
    fn a_call_may_lose_half_a_point_more_than_the_best_single_link() {
        let of = |own: [Run<Figures>; 2]| {
            let others =
                [call_run("direct-vdsl", 0, 2.0, 40.0), call_run("direct-4g", 0, 40.0, 90.0)];
            let cells = [call_cell([own.to_vec(), others.to_vec()].concat())];
            let what = "call beside a download: datagrams";
            let all = targets(&cells);
            let found = all.into_iter().find(|target| target.quantity.starts_with(what)).unwrap();
            (found.verdict, found.measured)
        };
        let own = |round, lost| call_run("bond", round, lost, 80.0);
        let words = |own: &str| format!("{own}; best single link 0.50 (direct-vdsl)");
        assert_eq!(of([own(0, 2.0), own(1, 6.0)]), (Verdict::Met, words("1.00")));
        assert_eq!(of([own(0, 2.0), own(1, 7.0)]), (Verdict::Missed, words("1.13")));
        let failed = failed("bond", CALL, 1);
        assert_eq!(of([own(0, 2.0), failed]), (Verdict::Missed, words("50.25")));
    }

    #[test]
    fn a_download_beside_a_call_is_as_fast_as_over_the_best_single_link() {
        let of = |own: Vec<Run<Figures>>| {
            let others = vec![
                call_run("direct-vdsl", 0, 0.0, 40.0),
                call_run("direct-4g", 0, 0.0, 90.0),
                failed("direct-4g", CALL, 1),
            ];
            verdict(&[call_cell([own, others].concat())], "download beside a call")
        };
        let own = |round, rate| call_run("bond", round, 0.0, rate);
        assert_eq!(of(vec![own(0, 90.0)]), Verdict::Met);
        assert_eq!(of(vec![own(0, 89.0)]), Verdict::Missed);
        assert_eq!(of(vec![own(0, 95.0), failed("bond", CALL, 1)]), Verdict::Missed);
        assert_eq!(of(Vec::new()), Verdict::NotMeasured);
    }

    #[test]
    fn a_version_that_is_surely_worse_is_a_miss() {
        let of = |ours: [f64; 3], name, task: &str| {
            let mut runs: Vec<_> = (0..).zip(ours).map(|(n, v)| run("bond", task, n, v)).collect();
            runs.extend((0..3).map(|round| run("before", task, round, 100.0)));
            verdict(&[cell("e", name, runs)], if name == "files" { "files" } else { task })
        };
        assert_eq!(of([104.0, 104.5, 104.2], "files", "1 MB"), Verdict::Missed);
        assert_eq!(of([96.0, 95.5, 95.8], "files", "1 MB"), Verdict::Met);
        assert_eq!(of([90.0, 130.0, 110.0], "files", "1 MB"), Verdict::Met, "by chance");
        let rates = of([96.0, 95.5, 95.8], "loopback", "new streams");
        assert_eq!(rates, Verdict::Missed, "fewer a second");
        assert_eq!(of([96.0, 95.5, 95.8], "loopback", "bulk"), Verdict::Missed, "less a second");
        assert_eq!(of([104.0, 104.5, 104.2], "loopback", "bulk"), Verdict::Met);
    }

    #[test]
    fn a_version_that_fails_where_the_earlier_one_did_not_is_a_miss() {
        let task = "1 MB";
        let of = |ours: Run<Figures>, before: Run<Figures>, task: &str| {
            let mut runs = vec![ours, before];
            for round in 1..4 {
                let value = 100.0 + f64::from(round);
                runs.push(run("bond", task, round, value));
                runs.push(run("before", task, round, value));
            }
            let name = if task == "bulk" { "loopback" } else { "files" };
            verdict(&[cell("e", name, runs)], if task == "bulk" { task } else { name })
        };
        let here = |contender: &str| run(contender, task, 0, 100.0);
        let none = |contender: &str| failed(contender, task, 0);
        assert_eq!(of(here("bond"), here("before"), task), Verdict::Met);
        assert_eq!(of(none("bond"), here("before"), task), Verdict::Missed);
        assert_eq!(of(here("bond"), none("before"), task), Verdict::Met);
        assert_eq!(of(none("bond"), none("before"), task), Verdict::Met, "the others decide");
        let rates = [failed("bond", "bulk", 0), run("before", "bulk", 0, 100.0)];
        let [ours, before] = rates;
        assert_eq!(of(ours, before, "bulk"), Verdict::Missed);
        let all = vec![none("bond"), none("before")];
        assert_eq!(verdict(&[cell("e", "files", all)], "files"), Verdict::Missed, "never ended");
    }

    #[test]
    fn what_was_not_compared_is_not_met() {
        let all = targets(&[cell("e", "files", vec![run("bond", "1 MB", 0, 1.0)])]);
        assert!(all.iter().all(|target| target.verdict == Verdict::NotMeasured));
    }
}
