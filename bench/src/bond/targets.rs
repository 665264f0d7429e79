//! Target values of `manyways bond`, and whether they were met.

use std::collections::BTreeMap;

use manyways_rig::sample::{median, quantile, ratio};
use manyways_rig::target::{Bound, Figure, Target, as_measured, each, middle_and_worst, target};

use super::record::{Record, more, samples, tasks, values};
use super::task::{CALL_AND_MESSENGER, WITH_STORE};

const MPTCP: [&str; 2] = ["mptcp-wifi", "mptcp-lte"];
const DIRECT: [&str; 2] = ["direct-wifi", "direct-lte"];

/// Bytes that an idle carrier may use on its link: one TCP keep-alive and its acknowledgement, each
/// with an IPv4 header and TCP timestamps.
const KEEPALIVE: f64 = 104.0;
/// Maximum share of spurious retransmissions, in percent of the received bytes.
const SPURIOUS: f64 = 1.0;

/// All targets with their measured values.
pub fn targets(cells: &[Record]) -> Vec<Target> {
    let mut targets = Vec::from(over_mptcp(cells));
    targets.extend(over_direct(cells));
    targets.extend(bulk(cells));
    targets.extend(stalls(cells));
    targets.push(lossy(cells));
    targets.extend(calls(cells));
    targets.extend(loopback(cells));
    targets.extend(schedulers(cells));
    targets.extend(pages(cells));
    targets.extend(four_apps(cells));
    targets.push(reinjection(cells));
    targets
}

fn part<'a>(cells: &'a [Record], letter: &str) -> impl Iterator<Item = &'a Record> {
    cells.iter().filter(move |cell| cell.part == letter)
}

/// The figures of the best contender: the one with the smallest median, or the largest if `most`.
fn best(cell: &Record, names: &[&str], task: &str, most: bool) -> BTreeMap<u32, f64> {
    let sign = if most { -1.0 } else { 1.0 };
    let all = names.iter().map(|name| values(cell, name, task)).filter(|all| !all.is_empty());
    let key = |all: &BTreeMap<u32, f64>| {
        median(all.values().copied()).map_or(f64::INFINITY, |middle| middle * sign)
    };
    all.min_by(|a, b| key(a).total_cmp(&key(b))).unwrap_or_default()
}

/// bond divided by the best of `others`, for every task of the cells.
fn compared<'a>(
    cells: impl Iterator<Item = &'a Record>,
    others: &[&str],
    most: bool,
) -> Vec<Figure> {
    let mut figures = Vec::new();
    for cell in cells {
        for task in tasks(cell) {
            let over = ratio(&values(cell, "bond", task), &best(cell, others, task, most));
            let place = format!("{}, {task}", cell.name);
            figures.extend(over.map(|over| Figure { place, value: over.medians }));
        }
    }
    figures
}

fn over_mptcp(cells: &[Record]) -> [Target; 2] {
    let files = compared(part(cells, "a"), &MPTCP, false);
    let flows = compared(part(cells, "b"), &MPTCP, false);
    [
        middle_and_worst("single file / best MPTCP primary".to_owned(), (0.75, 1.0), &files),
        middle("many short flows / best MPTCP primary", 0.65, &flows),
    ]
}

/// A target for the median only.
fn middle(what: &str, bound: f64, figures: &[Figure]) -> Target {
    let target = middle_and_worst(what.to_owned(), (bound, f64::INFINITY), figures);
    Target { wanted: format!("median <= {bound:.2}"), ..target }
}

fn over_direct(cells: &[Record]) -> [Target; 2] {
    let flows = compared(part(cells, "b"), &DIRECT, false);
    let requests = compared(part(cells, "c"), &DIRECT, false);
    let name = "many short flows / best single path without a gateway";
    let p95 = "request p95 during a bulk transfer / best direct";
    [
        each(name.to_owned(), Bound::AtMost(1.05), flows),
        each(p95.to_owned(), Bound::AtMost(1.2), requests),
    ]
}

fn bulk(cells: &[Record]) -> Vec<Target> {
    let of_sum = |contender: &str| -> Vec<Figure> {
        let one = |cell: &Record| {
            let rate = |name: &str| median(values(cell, name, "bulk").into_values());
            let sum = rate("direct-wifi")? + rate("direct-lte")?;
            Some(Figure { place: cell.name.clone(), value: rate(contender)? / sum })
        };
        part(cells, "e").filter_map(one).collect()
    };
    let sum = "bulk / sum of the single paths' goodputs";
    let mut targets = vec![
        each(sum.to_owned(), Bound::AtLeast(0.95), of_sum("bond")),
        as_measured(each(format!("{sum}, of {}", MPTCP[0]), Bound::AtLeast(0.0), of_sum(MPTCP[0]))),
    ];
    for (name, bound) in [("unequal-40-5", 1.05), ("unequal-100-5", 1.0), ("delays-50-50", 1.6)] {
        let here = || cells.iter().filter(|cell| cell.name == name);
        let what = format!("bulk / best single path, {name}");
        targets.push(each(what, Bound::AtLeast(bound), compared(here(), &DIRECT, true)));
    }
    targets
}

fn stalls(cells: &[Record]) -> Vec<Target> {
    let of = |(task, bound): (&str, f64)| {
        let longest = |cell: &Record| {
            let all = values(cell, "bond", task).into_values();
            let value = all.max_by(f64::total_cmp)?;
            Some(Figure { place: format!("the longest of {}", cell.name), value })
        };
        let figures = part(cells, "g").filter_map(longest).collect();
        let what = format!("stall of a 1 Mbit/s stream in ms, {task}");
        each(what, Bound::AtMost(bound), figures)
    };
    [("interface down", 100.0), ("silent black hole", 250.0)].map(of).into()
}

/// The 99th percentile over all rounds, redundant divided by the best single path.
fn lossy(cells: &[Record]) -> Target {
    let mut figures = Vec::new();
    for cell in part(cells, "h") {
        for task in tasks(cell) {
            let p99 = |name: &str| quantile(&samples(cell, name, task), 0.99);
            let single = DIRECT.iter().filter_map(|name| p99(name)).min_by(f64::total_cmp);
            let over = p99("bond redundant").zip(single).map(|(own, single)| own / single);
            figures.extend(over.map(|value| Figure { place: task.to_owned(), value }));
        }
    }
    let what = "redundant: p99 of request latency under 2 % loss / best single path";
    each(what.to_owned(), Bound::AtMost(0.4), figures)
}

fn calls(cells: &[Record]) -> [Target; 2] {
    let (mut added, mut reordered) = (Vec::new(), Vec::new());
    for cell in part(cells, "i") {
        let base = best(cell, &DIRECT, "call", false);
        for name in ["bond", "bond single"] {
            let middle = median(values(cell, name, "call").into_values());
            let over = middle.zip(median(base.values().copied())).map(|(own, base)| own - base);
            figures(&mut added, name, over);
            let all = more(cell, name, "call", "reordered");
            figures(&mut reordered, name, (!all.is_empty()).then(|| all.iter().sum()));
        }
    }
    [
        each("UDP: added one-way delay in ms".to_owned(), Bound::AtMost(2.0), added),
        each("UDP: datagrams out of order".to_owned(), Bound::AtMost(0.0), reordered),
    ]
}

fn figures(all: &mut Vec<Figure>, place: &str, value: Option<f64>) {
    all.extend(value.map(|value| Figure { place: place.to_owned(), value }));
}

fn loopback(cells: &[Record]) -> Vec<Target> {
    let of = |(task, what, bound): (&str, &str, Bound)| {
        let one = |cell: &Record| {
            let value = median(values(cell, "bond", task).into_values())?;
            Some(Figure { place: cell.name.clone(), value })
        };
        each(what.to_owned(), bound, part(cells, "j").filter_map(one).collect())
    };
    let targets = [
        ("bulk", "loopback: Mbit/s through both ends", Bound::AtLeast(1500.0)),
        ("new streams", "loopback: new streams a second", Bound::AtLeast(5000.0)),
    ];
    let mut targets: Vec<Target> = targets.map(of).into();
    targets.push(idle(cells));
    targets
}

/// Scaled to the target's number of streams if the machine allows only fewer.
fn idle(cells: &[Record]) -> Target {
    let one = |cell: &Record| {
        let task = *tasks(cell).iter().find(|task| task.ends_with(" idle streams"))?;
        let count: f64 = task.split(' ').next()?.parse().ok()?;
        let value = median(values(cell, "bond", task).into_values())?;
        let place = format!("from {task}");
        Some(Figure { place, value: value * f64::from(super::plan::CROWD) / count })
    };
    let what = "loopback: MiB of both ends with 20,000 idle streams";
    each(what.to_owned(), Bound::AtMost(300.0), part(cells, "j").filter_map(one).collect())
}

/// The default scheduler divided by the best of all schedulers, for every task.
fn schedulers(cells: &[Record]) -> Vec<Target> {
    let default = super::plan::SCHEDULERS[0];
    let one = |cell: &Record| {
        let mut figures = Vec::new();
        for task in tasks(cell) {
            let most = task == "bulk";
            let names: Vec<String> =
                super::plan::SCHEDULERS.iter().map(|name| format!("bond {name}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let own = values(cell, &format!("bond {default}"), task);
            let best = best(cell, &names, task, most);
            let over = if most { ratio(&best, &own) } else { ratio(&own, &best) };
            let place = format!("{}, {task}", cell.name);
            figures.extend(over.map(|over| Figure { place, value: over.medians }));
        }
        figures
    };
    let figures: Vec<Figure> = part(cells, "k").flat_map(one).collect();
    let what = format!("{default}, the default / the best scheduler (time; bulk the other way)");
    let target = middle_and_worst(what, (1.02, 1.1), &figures);
    vec![target]
}

fn pages(cells: &[Record]) -> [Target; 2] {
    let over = |others: &[&str]| compared(part(cells, "l"), others, false);
    let single = "page load / best single path without a gateway";
    [
        middle("page load / best MPTCP primary", 0.85, &over(&MPTCP)),
        as_measured(each(single.to_owned(), Bound::AtMost(1.0), over(&DIRECT))),
    ]
}

fn four_apps(cells: &[Record]) -> [Target; 3] {
    let most = |contender: &str| -> Vec<Figure> {
        let most = |cell: &Record| {
            let all = values(cell, contender, CALL_AND_MESSENGER).into_values();
            let value = all.max_by(f64::total_cmp)?;
            Some(Figure { place: format!("the most of {}", cell.name), value })
        };
        part(cells, "m").filter_map(most).collect()
    };
    let share = |cell: &Record| {
        let value = median(more(cell, "bond four-apps", WITH_STORE, "share"))?;
        Some(Figure { place: cell.name.clone(), value })
    };
    let what = "bytes on cellular while call and messenger run";
    let bound = Bound::AtMost(KEEPALIVE);
    let used = "four-app policy: share of cellular with the app store";
    let share = part(cells, "m").filter_map(share).collect();
    [
        each(format!("four-app policy: {what}"), bound, most("bond four-apps")),
        as_measured(each(format!("{}: {what}", MPTCP[0]), bound, most(MPTCP[0]))),
        each(used.to_owned(), Bound::AtLeast(0.4), share),
    ]
}

/// Over all pairs together; the worst pair is reported too.
fn reinjection(cells: &[Record]) -> Target {
    let (mut all, mut worst) = ((0.0, 0.0), None::<Figure>);
    for cell in part(cells, "n") {
        for task in tasks(cell) {
            let sum = |what: &str| more(cell, "bond", task, what).iter().sum::<f64>();
            let (spurious, came) = (sum("spurious"), sum("came"));
            if came > 0.0 {
                all = (all.0 + spurious, all.1 + came);
                let figure = Figure { place: cell.name.clone(), value: 100.0 * spurious / came };
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
            worst.place
        );
        (words, share <= SPURIOUS)
    });
    let what = "recorded pairs: % of what came that was sent again for nothing";
    target(what.to_owned(), format!("<= {SPURIOUS:.2} of all"), measured)
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
        targets.iter().find(|target| target.what.starts_with(beginning)).unwrap()
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
                run.figures.more = [("share".to_owned(), 0.5)].into();
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
            let more = [("spurious", spurious), ("came", 1000.0)];
            let more = more.map(|(name, value)| (name.to_owned(), value)).into();
            let mut run = run("bond", "sent again for nothing", 0.0);
            run.figures.more = more;
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
