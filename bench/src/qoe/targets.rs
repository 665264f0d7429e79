//! Target values of pages and films, and whether they were met.

use manyways_rig::sample::median;
use manyways_rig::target::{Bound, Figure, Target, as_measured, every_figure};

use super::one_network::{
    BBA_ALONE, BBA_CONTROLLED, BBA_SHARING, CBA_ALONE, CBA_CONTROLLED, CBA_SHARING, CONSTANT,
    CONSTANT_DASHJS, CONSTANT_VIRTUAL, TRACED, TRACED_VIRTUAL,
};
use super::pages::{F1, GRAPH, LATE_MEDIAN, LATE_MOST, LEAST_F1, WHAT_IF_MEDIAN, WHAT_IF_MOST};
use super::play::{BITRATE, PAUSED, RECEIVED, STALL_RATIO, STALLED};
use super::sabre;
use super::two_networks::{MPTCP, MSPLAYER, SERVE};
use crate::figures::{Record, values};

/// Stalls may differ by this many seconds, or by this part if that is more.
const STALL_SECONDS: f64 = 0.5;
const STALL_PART: f64 = 0.1;

/// All targets with their measured values.
pub fn targets(cells: &[Record]) -> Vec<Target> {
    use Bound::{AtLeast, AtMost, Higher, Within};
    let of = |part: &str, contender: &str, quantity: &str| {
        let meant = cells.iter().filter(|cell| cell.part == part);
        let figure = |cell: &Record| {
            let value = median(values(cell, contender, quantity).into_values())?;
            Some(Figure::new(&cell.name, value))
        };
        meant.filter_map(figure).collect::<Vec<_>>()
    };
    let ratio = |part: &str, contender: &str, other: &str, quantity: &str| {
        let others = of(part, other, quantity);
        let over = |one: Figure| {
            let other = others.iter().find(|other| other.case == one.case)?;
            Some(Figure { value: one.value / other.value, ..one })
        };
        of(part, contender, quantity).into_iter().filter_map(over).collect::<Vec<_>>()
    };
    // The figures of one cell, each named by its conditions.
    let named = |name: &'static str, figures: Vec<Figure>| {
        figures.into_iter().map(move |figure| Figure::new(name, figure.value))
    };
    let conditions = |value: &dyn Fn(&str, &str) -> Vec<Figure>| -> Vec<Figure> {
        let constant = named("constant", value(CONSTANT, CONSTANT_VIRTUAL));
        constant.chain(named("trace", value(TRACED, TRACED_VIRTUAL))).collect()
    };
    let stalls = |contender: &str, other: &str| {
        let others = of("b", other, STALLED);
        let pairs = of("b", contender, STALLED).into_iter().zip(others);
        pairs
            .map(|(one, other)| {
                let permitted = (other.value * STALL_PART).max(STALL_SECONDS);
                Figure { value: (one.value - other.value).abs() / permitted, ..one }
            })
            .collect()
    };
    let over_mptcp = |part| ratio(part, SERVE, MPTCP, BITRATE);
    let over_msplayer = |part| ratio(part, SERVE, MSPLAYER, BITRATE);
    let sharing = |quantity| {
        let plain = named("no load control", ratio("b", BBA_SHARING, CBA_SHARING, quantity));
        let controlled = ratio("b", BBA_CONTROLLED, CBA_CONTROLLED, quantity);
        plain.chain(named("load control", controlled)).collect::<Vec<_>>()
    };
    let pauses: Vec<Figure> = named("BBA", of("b", BBA_CONTROLLED, PAUSED))
        .chain(named("CBA", of("b", CBA_CONTROLLED, PAUSED)))
        .collect();
    vec![
        every_figure(
            "segments of the same rung as Sabre's, %",
            AtLeast(99.5),
            of("a", sabre::OURS, sabre::SAME),
        ),
        every_figure(
            "stalls / Sabre's on identical runs, ms",
            AtMost(1.0),
            of("a", sabre::OURS, sabre::DIFFERENCE),
        ),
        every_figure(
            "player over TCP / in virtual time: bitrate",
            Within(0.97, 1.03, 0),
            conditions(&|own, other| ratio("b", own, other, BITRATE)),
        ),
        every_figure(
            "the same: difference of the stalls / max(0.5 s, 10 %)",
            AtMost(1.0),
            conditions(&stalls),
        ),
        every_figure(
            "player over TCP / dash.js: bitrate",
            Within(0.9, 1.1, 0),
            ratio("b", CONSTANT, CONSTANT_DASHJS, BITRATE),
        ),
        every_figure(
            "two networks, get --serve / msplayer: bitrate, median",
            AtLeast(1.10),
            median_of(&over_msplayer("c")),
        ),
        every_figure(
            "two networks, get --serve / msplayer: bitrate, each",
            AtLeast(1.0),
            over_msplayer("c"),
        ),
        every_figure(
            "two networks, get --serve / kernel MPTCP: bitrate",
            AtLeast(0.99),
            over_mptcp("c"),
        ),
        every_figure(
            "recorded pairs, get --serve / kernel MPTCP: bitrate",
            AtLeast(0.97),
            over_mptcp("d"),
        ),
        every_figure(
            "recorded pairs, get --serve / msplayer: bitrate",
            AtLeast(1.08),
            over_msplayer("d"),
        ),
        every_figure(
            "recorded pairs, get --serve: stall ratio, %",
            AtMost(0.5),
            of("d", SERVE, STALL_RATIO),
        ),
        every_figure("edges of known pages: F1", AtLeast(0.98), of("e", GRAPH, F1)),
        every_figure("the same: F1 of the least load", Higher, of("e", GRAPH, LEAST_F1)),
        every_figure(
            "effect of a late object: median error, ms",
            AtMost(30.0),
            of("e", GRAPH, LATE_MEDIAN),
        ),
        every_figure(
            "effect of a late object: 90 % of the errors, ms",
            AtMost(90.0),
            of("e", GRAPH, LATE_MOST),
        ),
        every_figure(
            "page load under other conditions: median error, %",
            AtMost(10.0),
            of("e", GRAPH, WHAT_IF_MEDIAN),
        ),
        every_figure(
            "page load under other conditions: 90 % of the errors, %",
            AtMost(25.0),
            of("e", GRAPH, WHAT_IF_MOST),
        ),
        listed(
            "BBA / CBA alone: bitrate (paper: more at rates between the rungs)",
            &named("alone", ratio("b", BBA_ALONE, CBA_ALONE, BITRATE)).collect::<Vec<_>>(),
        ),
        listed("BBA / CBA sharing: received (paper, load control: 1.63)", &sharing(RECEIVED)),
        listed("BBA / CBA sharing: bitrate (paper, load control: 1.57)", &sharing(BITRATE)),
        listed("pauses with load control, s (paper: 2.9 and 22.9)", &pauses),
    ]
}

/// The median as the only figure; none of none.
fn median_of(figures: &[Figure]) -> Vec<Figure> {
    let middle = median(figures.iter().map(|figure| figure.value));
    middle
        .map(|value| Figure::new(format!("median of {}", figures.len()), value))
        .into_iter()
        .collect()
}

/// All figures, without a requirement.
fn listed(what: &str, figures: &[Figure]) -> Target {
    let words = figures.iter().map(|figure| format!("{:.2} ({})", figure.value, figure.case));
    let words = words.collect::<Vec<_>>().join(", ");
    as_measured(what, Some(words).filter(|words| !words.is_empty()))
}

#[cfg(test)]
mod tests {
    use manyways_rig::cell::Run;
    use manyways_rig::target::Verdict;

    use super::*;
    use crate::figures::Figures;

    fn cell(part: &str, name: &str, runs: &[(&str, &str, f64)]) -> Record {
        let run = |(contender, quantity, value): &(&str, &str, f64)| Run {
            contender: (*contender).to_owned(),
            ..Run::of(Figures::of([(*quantity, *value)]), None)
        };
        let (part, name) = (part.to_owned(), name.to_owned());
        Record { part, name, runs: runs.iter().map(run).collect(), ..Record::default() }
    }

    fn verdict(cells: &[Record], what: &str) -> Verdict {
        let all = targets(cells);
        let found = all.iter().find(|target| target.quantity == what);
        found.unwrap_or_else(|| panic!("{what} is a target")).verdict
    }

    #[test]
    fn the_median_and_each_ratio_to_msplayer_are_separate_targets() {
        let of = |ratios: [f64; 3]| {
            let cells = ratios.iter().zip(["x", "y", "z"]).map(|(ratio, name)| {
                cell("c", name, &[(SERVE, BITRATE, *ratio), (MSPLAYER, BITRATE, 1.0)])
            });
            let cells: Vec<Record> = cells.collect();
            ["median", "each"]
                .map(|which| format!("two networks, get --serve / msplayer: bitrate, {which}"))
                .map(|what| verdict(&cells, &what))
        };
        assert_eq!(of([1.0, 1.1, 1.2]), [Verdict::Met, Verdict::Met]);
        assert_eq!(of([0.99, 1.1, 1.2]), [Verdict::Met, Verdict::Missed]);
        assert_eq!(of([1.05, 1.09, 1.2]), [Verdict::Missed, Verdict::Met]);
    }

    #[test]
    fn stalls_may_differ_by_half_a_second_or_a_tenth() {
        let of = |own: f64, other: f64| {
            let runs = [(TRACED, STALLED, own), (TRACED_VIRTUAL, STALLED, other)];
            let what = "the same: difference of the stalls / max(0.5 s, 10 %)";
            verdict(&[cell("b", "one-network", &runs)], what)
        };
        assert_eq!((of(0.5, 0.0), of(0.6, 0.0)), (Verdict::Met, Verdict::Missed));
        assert_eq!((of(10.9, 10.0), of(8.9, 10.0)), (Verdict::Met, Verdict::Missed));
    }

    #[test]
    fn each_quantile_of_pages_has_its_own_bound() {
        let of = |median: f64, most: f64| {
            let runs = [(GRAPH, LATE_MEDIAN, median), (GRAPH, LATE_MOST, most), (GRAPH, F1, 0.98)];
            let cells = [cell("e", "pages", &runs)];
            ["median error, ms", "90 % of the errors, ms"]
                .map(|which| verdict(&cells, &format!("effect of a late object: {which}")))
        };
        assert_eq!(of(30.0, 90.0), [Verdict::Met, Verdict::Met]);
        assert_eq!(of(30.5, 90.5), [Verdict::Missed, Verdict::Missed]);
    }
}
