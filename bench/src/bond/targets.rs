//! Target values of `manyways bond`, and whether they were met.

use manyways_rig::sample::{best, median, quantile, ratio};
use manyways_rig::target::{Bound, Figure, Target, every_figure, target};

use super::plan::{IDLE_STREAMS, SCHEDULERS};
use super::record::{Record, extra_values, samples, tasks, values};
use super::task::{CALL_AND_MESSENGER, WITH_STORE};

const MPTCP: [&str; 2] = ["mptcp-wifi", "mptcp-lte"];
const DIRECT: [&str; 2] = ["direct-wifi", "direct-lte"];

/// Bytes that an idle carrier may use on its link: one TCP keep-alive and its acknowledgement, each
/// with an IPv4 header and TCP timestamps.
const MAX_KEEPALIVE_BYTES: f64 = 104.0;
/// Maximum share of spurious retransmissions, in percent of the received bytes.
const MAX_SPURIOUS_PERCENT: f64 = 1.0;

/// All targets with their measured values.
pub fn targets(cells: &[Record]) -> Vec<Target> {
    use Bound::{AtLeast, AtMost, Higher, Lower, Median};
    let over = |here: &str, others: &[&str]| {
        each_task(cells, here, |cell, task| over(cell, "bond", others, task))
    };
    let one = |here: &str, place: &str, figure: &dyn Fn(&Record) -> Option<f64>| {
        let figure =
            |cell: &Record| Some(Figure::new(place.to_owned() + &cell.name, figure(cell)?));
        selected(cells, here).filter_map(figure).collect::<Vec<_>>()
    };
    let worst = |here: &str, place: &str, contender: &str, task: &str| {
        let worst = |cell: &Record| values(cell, contender, task).into_values().reduce(f64::max);
        one(here, place, &worst)
    };
    let middle =
        |task: &'static str| move |cell: &Record| median(values(cell, "bond", task).into_values());
    let of_sum = |contender: &str| {
        one("e", "", &|cell| {
            let rate = |name: &str| median(values(cell, name, "bulk").into_values());
            Some(rate(contender)? / (rate(DIRECT[0])? + rate(DIRECT[1])?))
        })
    };
    let unequal = |name: &str, bound| {
        every_figure(
            format!("bulk / best single path, {name}"),
            AtLeast(bound),
            over(name, &DIRECT),
        )
    };
    let stall = |task: &str, bound| {
        let longest = worst("g", "the longest of ", "bond", task);
        every_figure(format!("stall of a 1 Mbit/s stream in ms, {task}"), AtMost(bound), longest)
    };
    let cellular = |contender| worst("m", "the most of ", contender, CALL_AND_MESSENGER);
    let store = |cell: &Record| median(extra_values(cell, "bond four-apps", WITH_STORE, "share"));
    let sum = "bulk / sum of the single paths' goodputs";
    let direct = "best single path without a gateway";
    let used = "bytes on cellular while call and messenger run";
    let (kernel, default) = (MPTCP[0], SCHEDULERS[0]);
    let only_median = |bound| Median(bound, f64::INFINITY);
    vec![
        every_figure("single file / best MPTCP primary", Median(0.75, 1.0), over("a", &MPTCP)),
        every_figure("many short flows / best MPTCP primary", only_median(0.65), over("b", &MPTCP)),
        every_figure(format!("many short flows / {direct}"), AtMost(1.05), over("b", &DIRECT)),
        every_figure(
            "request p95 during a bulk transfer / best direct",
            AtMost(1.2),
            over("c", &DIRECT),
        ),
        every_figure(sum, AtLeast(0.95), of_sum("bond")),
        every_figure(format!("{sum}, of {kernel}"), Higher, of_sum(kernel)),
        unequal("unequal-40-5", 1.05),
        unequal("unequal-100-5", 1.0),
        unequal("delays-50-50", 1.6),
        stall("interface down", 100.0),
        stall("silent black hole", 250.0),
        every_figure(
            "redundant: p99 of request latency under 2 % loss / best single path",
            AtMost(0.4),
            each_task(cells, "h", redundant),
        ),
        every_figure("UDP: added one-way delay in ms", AtMost(2.0), calls(cells, added_delay)),
        every_figure("UDP: datagrams out of order", AtMost(0.0), calls(cells, reordered)),
        every_figure(
            "loopback: Mbit/s through both ends",
            AtLeast(1500.0),
            one("j", "", &middle("bulk")),
        ),
        every_figure(
            "loopback: new streams a second",
            AtLeast(5000.0),
            one("j", "", &middle("new streams")),
        ),
        every_figure(
            "loopback: MiB of both ends with 20,000 idle streams",
            AtMost(300.0),
            each_task(cells, "j", idle),
        ),
        every_figure(
            format!("{default}, the default / the best scheduler (time; bulk the other way)"),
            Median(1.02, 1.1),
            each_task(cells, "k", over_schedulers),
        ),
        every_figure("page load / best MPTCP primary", only_median(0.85), over("l", &MPTCP)),
        every_figure(format!("page load / {direct}"), Lower, over("l", &DIRECT)),
        every_figure(
            format!("four-app policy: {used}"),
            AtMost(MAX_KEEPALIVE_BYTES),
            cellular("bond four-apps"),
        ),
        every_figure(format!("{kernel}: {used}"), Lower, cellular(kernel)),
        every_figure(
            "four-app policy: share of cellular with the app store",
            AtLeast(0.4),
            one("m", "", &store),
        ),
        reinjection(cells),
    ]
}

/// The cells with this letter or name.
fn selected<'a>(cells: &'a [Record], here: &'a str) -> impl Iterator<Item = &'a Record> {
    cells.iter().filter(move |cell| cell.part == here || cell.name == here)
}

/// A figure for every task of the cells.
fn each_task(
    cells: &[Record],
    here: &str,
    figure: impl Fn(&Record, &str) -> Option<f64>,
) -> Vec<Figure> {
    let mut figures = Vec::new();
    for cell in selected(cells, here) {
        for task in tasks(cell) {
            let place = format!("{}, {task}", cell.name);
            figures.extend(figure(cell, task).map(|value| Figure { case: place, value }));
        }
    }
    figures
}

/// A contender divided by the best of `others`; a rate is best if it is high.
fn over(cell: &Record, contender: &str, others: &[&str], task: &str) -> Option<f64> {
    let best = best(others.iter().map(|name| values(cell, name, task)), task == "bulk");
    ratio(&values(cell, contender, task), &best).map(|over| over.medians)
}

/// The 99th percentile over all rounds, redundant divided by the best single path.
fn redundant(cell: &Record, task: &str) -> Option<f64> {
    let p99 = |name: &str| quantile(&samples(cell, name, task), 0.99);
    let single = DIRECT.iter().filter_map(|name| p99(name)).reduce(f64::min)?;
    Some(p99("bond redundant")? / single)
}

/// A figure for each kind of bond in a call.
fn calls(cells: &[Record], figure: fn(&Record, &str) -> Option<f64>) -> Vec<Figure> {
    let both =
        |cell| ["bond", "bond single"].map(|name| Some(Figure::new(name, figure(cell, name)?)));
    selected(cells, "i").flat_map(both).flatten().collect()
}

fn added_delay(cell: &Record, name: &str) -> Option<f64> {
    let base = best(DIRECT.map(|name| values(cell, name, "call")), false);
    Some(median(values(cell, name, "call").into_values())? - median(base.into_values())?)
}

fn reordered(cell: &Record, name: &str) -> Option<f64> {
    extra_values(cell, name, "call", "reordered").into_iter().reduce(|sum, count| sum + count)
}

/// Scaled to the target's number of streams if the machine allows only fewer.
fn idle(cell: &Record, task: &str) -> Option<f64> {
    let count: f64 = task.strip_suffix(" idle streams")?.parse().ok()?;
    Some(median(values(cell, "bond", task).into_values())? * f64::from(IDLE_STREAMS) / count)
}

/// The default scheduler divided by the best of all schedulers.
fn over_schedulers(cell: &Record, task: &str) -> Option<f64> {
    let names = SCHEDULERS.map(|name| format!("bond {name}"));
    let over = over(cell, &names[0], &names.each_ref().map(String::as_str), task)?;
    Some(if task == "bulk" { 1.0 / over } else { over })
}

/// Over all pairs together; the worst pair is reported too.
fn reinjection(cells: &[Record]) -> Target {
    let (mut all, mut worst) = ((0.0, 0.0), None::<Figure>);
    for cell in selected(cells, "n") {
        for task in tasks(cell) {
            let sum = |what: &str| extra_values(cell, "bond", task, what).iter().sum::<f64>();
            let (spurious, came) = (sum("spurious"), sum("received"));
            if came > 0.0 {
                all = (all.0 + spurious, all.1 + came);
                let figure = Figure::new(&cell.name, 100.0 * spurious / came);
                worst = worst.filter(|worst| worst.value >= figure.value).or(Some(figure));
            }
        }
    }
    let measured = worst.map(|worst| {
        let share = 100.0 * all.0 / all.1;
        let words = format!(
            "{share:.3} of {:.0} MB, worst {:.3} ({})",
            all.1 / 1e6,
            worst.value,
            worst.case
        );
        (words, share <= MAX_SPURIOUS_PERCENT)
    });
    let what = "recorded pairs: % of what came that was sent again for nothing";
    target(what, format!("<= {MAX_SPURIOUS_PERCENT:.2} of all"), measured)
}

#[cfg(test)]
mod tests {
    use manyways_rig::cell::Run;
    use manyways_rig::target::{Verdict, missed_first};

    use super::*;
    use crate::bond::record::Figures;

    fn run(contender: &str, task: &str, value: f64) -> Run<Figures> {
        let figures = Figures { task: task.to_owned(), value: Some(value), ..Figures::default() };
        Run { contender: contender.to_owned(), ..Run::of(figures, None) }
    }

    fn cell(part: &str, name: &str, runs: Vec<Run<Figures>>) -> Record {
        Record { part: part.into(), name: name.into(), runs, ..Record::default() }
    }

    fn find<'a>(targets: &'a [Target], beginning: &str) -> &'a Target {
        targets.iter().find(|target| target.quantity.starts_with(beginning)).unwrap()
    }

    #[test]
    fn what_did_not_run_is_not_met() {
        let targets = targets(&[]);
        assert!(targets.iter().all(|target| target.verdict == Verdict::NotMeasured));
    }

    #[test]
    fn a_file_is_compared_with_the_better_primary_and_a_miss_comes_first() {
        let of = |own: f64| {
            let runs = vec![
                run("bond", "10 KB", own),
                run("mptcp-wifi", "10 KB", 2.0),
                run("mptcp-lte", "10 KB", 1.0),
                run("bond", "1 MB", 0.5),
                run("mptcp-lte", "1 MB", 1.0),
            ];
            targets(&[cell("a", "files", runs)])
        };
        assert_eq!(find(&of(0.7), "single file").verdict, Verdict::Met);
        let missed = missed_first(of(1.1));
        assert_eq!(missed[0].verdict, Verdict::Missed);
        assert!(
            missed[0].measured.contains("worst 1.100 (files, 10 KB)"),
            "{}",
            missed[0].measured
        );
    }

    #[test]
    fn bulk_is_compared_with_the_sum_or_the_best_of_the_links() {
        let runs = |own| {
            let links = [("direct-wifi", 6.0), ("direct-lte", 4.0)];
            let links = links.map(|(name, rate)| run(name, "bulk", rate));
            [vec![run("bond", "bulk", own)], links.into()].concat()
        };
        let of = |own| targets(&[cell("e", "sum-8-10", runs(own))]);
        assert_eq!(find(&of(9.6), "bulk / sum").verdict, Verdict::Met);
        assert_eq!(find(&of(9.4), "bulk / sum").verdict, Verdict::Missed);
        let of = |own| targets(&[cell("f", "unequal-40-5", runs(own))]);
        assert_eq!(find(&of(6.4), "bulk / best single path, unequal-40-5").verdict, Verdict::Met);
        assert_eq!(
            find(&of(6.2), "bulk / best single path, unequal-40-5").verdict,
            Verdict::Missed
        );
    }

    #[test]
    fn cellular_may_carry_a_keepalive_in_every_round_and_no_more() {
        let of = |bytes: [f64; 2]| {
            let run = |(round, bytes)| {
                let mut run = run("bond four-apps", CALL_AND_MESSENGER, bytes);
                run.figures.extra = [("share".to_owned(), 0.5)].into();
                Run { round, ..run }
            };
            targets(&[cell("m", "four-apps", (0..).zip(bytes).map(run).collect())])
        };
        let what = "four-app policy: bytes on cellular";
        assert_eq!(find(&of([0.0, 104.0]), what).verdict, Verdict::Met);
        assert_eq!(find(&of([105.0, 0.0]), what).verdict, Verdict::Missed);
    }

    #[test]
    fn reinjection_is_summed_over_all_pairs() {
        let pair = |name: &str, spurious: f64| {
            let more = [("spurious", spurious), ("received", 1000.0)];
            let more = more.map(|(name, value)| (name.to_owned(), value)).into();
            let mut run = run("bond", "sent again for nothing", 0.0);
            run.figures.extra = more;
            cell("n", name, vec![run])
        };
        let of = |worst| targets(&[pair("pairs-a", worst), pair("pairs-b", 2.0)]);
        let met = of(18.0);
        let met = find(&met, "recorded pairs");
        assert_eq!(
            (met.verdict, &*met.measured),
            (Verdict::Met, "1.000 of 0 MB, worst 1.800 (pairs-a)")
        );
        assert_eq!(find(&of(19.0), "recorded pairs").verdict, Verdict::Missed);
    }

    #[test]
    fn a_percentile_is_of_all_rounds() {
        let with = |contender: &str, last: f64| {
            let mut run = run(contender, "requests", 1.0);
            run.figures.samples = (0..98).map(|_| 1.0).chain([last, last]).collect();
            run
        };
        let of = |last| {
            let runs = vec![with("bond redundant", last), with("direct-wifi", 10.0)];
            targets(&[cell("h", "lossy", runs)])
        };
        assert_eq!(find(&of(4.0), "redundant").verdict, Verdict::Met);
        assert_eq!(find(&of(4.1), "redundant").verdict, Verdict::Missed);
    }
}
