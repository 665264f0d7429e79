//! Tables and targets of the drives.

use manyways_model::drive::oracles::{Condition, Configuration, Oracle, evaluate};
use manyways_rig::page::{failed, table};
use manyways_rig::sample::median;
use manyways_rig::target::{Target, reported_only, target};
use manyways_unit::Span;

use super::{Class, RECORDING, WAYS, quantity};
use crate::figures::{Record, quantities, values};

/// The classes, and what an oracle saves in Deng's thesis, in per cent of the time of TCP over Wi-Fi: that
/// of single paths, and those of MPTCP.
const CLASSES: [(Class, &str, &str, &str); 2] = [
    (Class::Short, "short flows", "50", "15 to 35"),
    (Class::Long, "long flows", "42", "up to 50"),
];

/// Median app response times of a way, by condition, in seconds.
fn medians(cell: &Record, way: &str) -> Vec<Option<f64>> {
    let one = |number| median(values(cell, way, &quantity(number)).into_values());
    (1..=count(cell)).map(one).collect()
}

fn count(cell: &Record) -> usize {
    let is_condition = |name: &String| name.starts_with("condition ");
    let of = |way: &&str| quantities(cell, way).into_iter().filter(is_condition).count();
    WAYS.iter().map(of).max().unwrap_or(0)
}

/// Which way is the fastest in which condition (figures 2-22 and 2-24 of the thesis).
pub fn figures(out: &mut String, cell: &Record) {
    let described = quantities(cell, RECORDING).into_iter().filter_map(|name| {
        let value = median(values(cell, RECORDING, &name).into_values())?;
        Some(format!("{value:.1} {name}"))
    });
    let described: Vec<String> = described.collect();
    out.push_str(&format!("\nRecording: {}.\n\n", described.join("; ")));
    let all: Vec<(&str, Vec<Option<f64>>)> = cell
        .distinct(|run| Some(run.contender.as_str()).filter(|name| *name != RECORDING))
        .into_iter()
        .map(|way| (way, medians(cell, way)))
        .collect();
    let least = |number: usize| {
        let times = all.iter().filter_map(|(_, times)| times.get(number).copied().flatten());
        times.min_by(f64::total_cmp)
    };
    let rows = all.iter().map(|(way, times)| {
        let cells = times.iter().enumerate().map(|(number, time)| match time {
            Some(time) if Some(*time) == least(number) => format!("**{time:.3}**"),
            Some(time) => format!("{time:.3}"),
            None => "–".to_owned(),
        });
        let failures = failed(cell.failures(|run| run.contender == *way));
        let row = std::iter::once((*way).to_owned()).chain(cells).chain([failures]);
        row.collect::<Vec<_>>()
    });
    let head = (1..=count(cell)).map(|number| format!(" | {}", quantity(number)));
    table(out, &format!("{} | failed", head.collect::<String>()), rows);
}

/// Time that the oracles, `get` and a bond save.
pub fn targets(cells: &[Record]) -> Vec<Target> {
    let mut all = Vec::new();
    for (class, flows, single, multipath) in CLASSES {
        let cell = cells.iter().find(|cell| cell.name == class.cell());
        let times = |way| cell.map(|cell| medians(cell, way)).unwrap_or_default();
        let mut conditions = vec![Condition::default(); cell.map_or(0, count)];
        for (configuration, way) in Configuration::ALL.into_iter().zip(WAYS) {
            for (condition, time) in conditions.iter_mut().zip(times(way)) {
                if let Some(time) = time {
                    condition.set(configuration, Span::from_secs_f64(time));
                }
            }
        }
        let mut row = |who: &str, thesis: Option<&str>, normalised: Option<f64>| {
            let words = normalised.map(|normalised| format!("{:.1}", 100.0 * (1.0 - normalised)));
            let thesis =
                thesis.map_or("as measured".to_owned(), |share| format!("thesis: {share}"));
            let quantity = format!("{flows}, {who}: less time than TCP over Wi-Fi, %");
            all.push(reported_only(target(quantity, thesis, words.map(|words| (words, true)))));
        };
        for evaluation in evaluate(&conditions) {
            let thesis =
                if evaluation.oracle == Oracle::SinglePathTcp { single } else { multipath };
            let mean = evaluation.mean.map(|mean| mean.normalised);
            row(evaluation.oracle.name(), Some(thesis), mean);
        }
        for way in ["get", "bond"] {
            let pairs = times(way).into_iter().zip(times(WAYS[0]));
            let ratios: Vec<f64> = pairs.filter_map(|(own, wifi)| Some(own? / wifi?)).collect();
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            row(way, None, Some(mean).filter(|mean| mean.is_finite()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use manyways_rig::cell::Run;

    use super::*;
    use crate::figures::Figures;

    fn record(seconds: &[(&str, [f64; 2])]) -> Record {
        let run = |(way, times): &(&str, [f64; 2])| Run {
            contender: (*way).to_owned(),
            ..Run::of(Figures::of([(quantity(1), times[0]), (quantity(2), times[1])]), None)
        };
        let runs = seconds.iter().map(run).collect();
        Record { name: Class::Long.cell().to_owned(), runs, ..Record::default() }
    }

    #[test]
    fn what_is_saved_is_compared_with_the_thesis() {
        let cell = record(&[
            (WAYS[0], [10.0, 4.0]),
            (WAYS[1], [5.0, 8.0]),
            (WAYS[4], [4.0, 3.0]),
            (WAYS[5], [3.0, 5.0]),
            ("bond", [2.5, 3.0]),
        ]);
        let targets = targets(std::slice::from_ref(&cell));
        let found: Vec<_> = targets[7..].iter().map(|row| row.measured.as_str()).collect();
        // Single path: 0.5 and 1; decoupled: 0.3 and 0.75; a bond: 0.25 and 0.75.
        assert_eq!(found, ["25.0", "47.5", "–", "–", "–", "–", "50.0"]);
        assert!(targets[..7].iter().all(|row| row.measured == "–"));
        assert_eq!(targets[7].required, "thesis: 42");
        let mut page = String::new();
        figures(&mut page, &cell);
        assert!(page.contains("| bond | **2.500** | **3.000** |"), "{page}");
        assert!(page.contains("| TCP over lte | 5.000 | 8.000 |"), "{page}");
    }
}
