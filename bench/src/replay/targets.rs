//! Target values of `record` and `replay`, and whether they were met.

use manyways_rig::sample::median;
use manyways_rig::target::{Bound, Figure, Target, every_figure};

use super::{drives, matching, mitmproxy, pages, recorder, same, servers, think};
use crate::figures::{Record, values};

/// All targets with their measured values.
pub fn targets(cells: &[Record]) -> Vec<Target> {
    use Bound::{AtLeast, AtMost, Higher, Lower, Within};
    let of = |prefix: &str, contender: &str, quantity: &str| {
        let meant = cells.iter().filter(|cell| cell.name.starts_with(prefix));
        let figure = |cell: &Record| {
            let value = median(values(cell, contender, quantity).into_values())?;
            Some(Figure::new(&cell.name, value))
        };
        meant.filter_map(figure).collect::<Vec<_>>()
    };
    let over = |prefix: &str, contender: &str, other: &str, quantity: &str| {
        let own = of(prefix, contender, quantity).into_iter();
        let others = of(prefix, other, quantity);
        let ratio = |one: Figure| {
            let other = others.iter().find(|other| other.case == one.case)?;
            Some(Figure { value: one.value / other.value, ..one })
        };
        own.filter_map(ratio).collect::<Vec<_>>()
    };
    let sum = |quantity| -> Vec<Figure> {
        let all = same::PROTOCOLS.map(|protocol| of("same", protocol, quantity));
        let sum: f64 = all.iter().flatten().map(|figure| figure.value).sum();
        let is_measured = all.iter().all(|figures| !figures.is_empty());
        if is_measured { vec![Figure::new("both protocols", sum)] } else { Vec::new() }
    };
    let matched = |contender, what| of("matching", contender, what);
    let (missed, wrong) = (matching::MISSED, matching::WRONG);
    let loads = |contender| over("pages", contender, pages::LIVE, pages::LOADED);
    let errors = |other| error_ratio(&loads(pages::REPLAY), &loads(other));
    let connections =
        |contender, other| over("recorder-connections", contender, other, recorder::CONNECTIONS);
    let mut all = vec![
        every_figure("exchanges compared", AtLeast(1_000.0), sum(same::COMPARED)),
        every_figure("exchanges that differ", AtMost(0.0), sum(same::DIFFERENT)),
        every_figure(
            "think time: median error, ms",
            AtMost(2.0),
            of("think", think::REPLAY, think::MEDIAN),
        ),
        every_figure(
            "think time: 95 % of the errors, ms",
            AtMost(5.0),
            of("think", think::REPLAY, think::MOST),
        ),
        every_figure("page load, replay / live", Within(0.95, 1.05, 1), loads(pages::REPLAY)),
        every_figure(
            "page load, mean error of replay / of mitmproxy",
            AtMost(0.5),
            errors(mitmproxy::MITMPROXY),
        ),
        every_figure(
            "page load, mean error of replay / of one server without think times",
            Lower,
            errors(pages::ONE_SERVER),
        ),
        every_figure("page load, mitmproxy / live", Lower, loads(mitmproxy::MITMPROXY)),
        every_figure(
            "page load, one server without think times / live",
            Lower,
            loads(pages::ONE_SERVER),
        ),
        every_figure(
            "page load, record / direct",
            AtMost(1.1),
            over("recorder-page", recorder::RECORD, recorder::DIRECT, pages::LOADED),
        ),
        every_figure(
            "new connections/s, record / mitmproxy",
            AtLeast(10.0),
            connections(recorder::RECORD, mitmproxy::MITMPROXY),
        ),
        every_figure(
            "new connections per second of its processor time, record / mitmproxy",
            Higher,
            over(
                "recorder-connections",
                recorder::RECORD,
                mitmproxy::MITMPROXY,
                recorder::OF_PROCESSOR,
            ),
        ),
        every_figure(
            "new connections/s, direct / mitmproxy",
            Higher,
            connections(recorder::DIRECT, mitmproxy::MITMPROXY),
        ),
        every_figure(
            "requests/s, replay / nginx",
            AtLeast(0.5),
            over("server", servers::REPLAY, servers::NGINX, servers::REQUESTS),
        ),
        every_figure("matching: missed, %", AtMost(1.0), matched(matching::OURS, missed)),
        every_figure("matching: wrong object, %", AtMost(0.1), matched(matching::OURS, wrong)),
        every_figure("Mahimahi's rule: missed, %", Lower, matched(matching::MAHIMAHI, missed)),
        every_figure("Mahimahi's rule: wrong object, %", Lower, matched(matching::MAHIMAHI, wrong)),
    ];
    all.extend(drives::targets(cells));
    all
}

/// Mean absolute logarithm of ratios, divided by that of others in the same cells.
fn error_ratio(own: &[Figure], others: &[Figure]) -> Vec<Figure> {
    let both = own.iter().filter_map(|one| {
        let other = others.iter().find(|other| other.case == one.case)?;
        Some((one.value.ln().abs(), other.value.ln().abs()))
    });
    let (own, others) = both.fold((0.0, 0.0), |sum, both| (sum.0 + both.0, sum.1 + both.1));
    let ratio = Figure::new("all cells", own / others);
    if others > 0.0 { vec![ratio] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use manyways_rig::cell::Run;
    use manyways_rig::target::Verdict;

    use super::*;
    use crate::figures::Figures;

    fn cell(name: &str, runs: &[(&str, &str, f64)]) -> Record {
        let run = |(contender, quantity, value): &(&str, &str, f64)| {
            let figures = Figures::of([(*quantity, *value)]);
            Run { contender: (*contender).to_owned(), ..Run::of(figures, None) }
        };
        Record { name: name.to_owned(), runs: runs.iter().map(run).collect(), ..Record::default() }
    }

    fn verdict(cells: &[Record], quantity: &str) -> Verdict {
        let all = targets(cells);
        all.iter().find(|target| target.quantity == quantity).unwrap().verdict
    }

    #[test]
    fn all_exchanges_of_both_protocols_have_to_be_the_same() {
        let of = |other: f64| {
            let runs = [("http1.1", same::DIFFERENT, 0.0), ("http2", same::DIFFERENT, other)];
            verdict(&[cell("same", &runs)], "exchanges that differ")
        };
        assert_eq!((of(0.0), of(1.0)), (Verdict::Met, Verdict::Missed));
        let half = cell("same", &[("http2", same::DIFFERENT, 0.0)]);
        assert_eq!(verdict(&[half], "exchanges that differ"), Verdict::NotMeasured);
    }

    #[test]
    fn a_replay_of_a_page_is_compared_with_the_live_page_and_with_mitmproxy() {
        let of = |replay: [f64; 3]| {
            let cells = replay.map(|replay| {
                let runs =
                    [(pages::LIVE, 2.0), (pages::REPLAY, replay), (mitmproxy::MITMPROXY, 1.6)];
                let runs = runs.map(|(contender, value)| (contender, pages::LOADED, value));
                cell(&format!("pages-{replay}"), &runs)
            });
            let ratio = verdict(&cells, "page load, replay / live");
            (ratio, verdict(&cells, "page load, mean error of replay / of mitmproxy"))
        };
        assert_eq!(of([2.0, 2.09, 2.2]), (Verdict::Met, Verdict::Met));
        // Too long in two cells; ln(1.25) is the error of mitmproxy.
        assert_eq!(of([2.0, 2.3, 2.2]), (Verdict::Missed, Verdict::Met));
        assert_eq!(of([1.6, 2.3, 2.2]), (Verdict::Missed, Verdict::Missed));
    }

    #[test]
    fn every_size_has_to_be_served_fast_enough() {
        let of = |small: f64| {
            let cells = [("server-10KB", small), ("server-1MB", 0.9)].map(|(name, own)| {
                let requests = servers::REQUESTS;
                cell(name, &[(servers::REPLAY, requests, own), (servers::NGINX, requests, 1.0)])
            });
            verdict(&cells, "requests/s, replay / nginx")
        };
        assert_eq!((of(0.5), of(0.49)), (Verdict::Met, Verdict::Missed));
    }
}
