//! Target values of `record` and `replay`, and whether they were met.

use manyways_rig::sample::median;
use manyways_rig::target::{Bound, Figure, Target, every_figure};

use super::matching;
use super::record::{Record, values};

/// All targets with their measured values.
pub fn targets(cells: &[Record]) -> Vec<Target> {
    use Bound::{AtMost, Lower};
    let of = |prefix: &str, contender: &str, quantity: &str| {
        let meant = cells.iter().filter(|cell| cell.name.starts_with(prefix));
        let figure = |cell: &Record| {
            let value = median(values(cell, contender, quantity).into_values())?;
            Some(Figure::new(&cell.name, value))
        };
        meant.filter_map(figure).collect::<Vec<_>>()
    };
    let matched = |contender, what| of("matching", contender, what);
    vec![
        every_figure("requests missed, %", AtMost(1.0), matched(matching::OURS, matching::MISSED)),
        every_figure("wrong objects, %", AtMost(0.1), matched(matching::OURS, matching::WRONG)),
        every_figure(
            "Mahimahi's rule: requests missed, %",
            Lower,
            matched(matching::MAHIMAHI, matching::MISSED),
        ),
        every_figure(
            "Mahimahi's rule: wrong objects, %",
            Lower,
            matched(matching::MAHIMAHI, matching::WRONG),
        ),
    ]
}
