//! Loads of pages in Chromium: the edges, the slack and the predictions of their graphs beside known edges
//! and measured loads.
//!
//! [`known`] serves pages with known edges, [`load`] loads a page, [`lab`] runs loads in a lab, [`apps`]
//! serves web applications, and each other module runs the experiment of its name.

mod apps;
mod graph;
mod known;
mod lab;
mod late;
mod load;
mod what_if;

use manyways_rig::cell::Run;
use manyways_rig::launch::DriveError;
use manyways_unit::Span;

use super::Qoe;
use super::cells::Pages;
use super::plan::Cell;
use crate::figures::{Figures, Record};
use crate::shell::Shell;

pub use self::graph::{F1, LEAST_F1};
pub use self::known::{KnownPageServeArgs, known_page_serve};
pub use self::late::{LATE_MEDIAN, LATE_MOST};
pub use self::load::{KnownPageLoadArgs, known_page_load};
pub use self::what_if::{WHAT_IF_MEDIAN, WHAT_IF_MOST};

/// The only contender.
pub const GRAPH: &str = "graph of a load";
/// Name of the far side.
const HOST: &str = "origin.lab";
/// Seconds of a load with the start and the end of the browser, and of the start of a lab.
const LOAD_SECONDS: f64 = 2.9;
const LAB_SECONDS: f64 = 1.5;

/// The compared property.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// Edges with those of known pages.
    Graph,
    /// Predicted effects of late objects with measured ones.
    Late,
    /// Predicted loads over another network with measured ones.
    WhatIf,
}

impl Part {
    pub const ALL: [Self; 3] = [Self::Graph, Self::Late, Self::WhatIf];

    pub fn name(self) -> &'static str {
        match self {
            Self::Graph => "page-graph",
            Self::Late => "page-late",
            Self::WhatIf => "page-what-if",
        }
    }

    pub fn title(self, pages: &Pages) -> String {
        match self {
            Self::Graph => format!("Edges of {} known pages", pages.graph.seeds.len()),
            Self::Late => {
                let objects = pages.late.seeds.len() * pages.late.objects;
                format!("{objects} objects that come {} later", pages.late.delay)
            }
            Self::WhatIf => {
                let (rtt, rate) = (pages.what_if.rtt, pages.what_if.rate);
                format!("Round trip x {rtt}, rate x {rate}, and no network")
            }
        }
    }

    pub fn rounds(self, pages: &Pages) -> u32 {
        if matches!(self, Self::Graph) { 1 } else { pages.rounds }
    }

    pub fn seconds(self, pages: &Pages, rounds: u32) -> f64 {
        let rounds = f64::from(rounds);
        let labs = |labs: usize, loads: usize| {
            labs as f64 * LAB_SECONDS + (labs * loads) as f64 * LOAD_SECONDS
        };
        match self {
            Self::Graph => labs(1, pages.graph.seeds.len()),
            Self::Late => {
                let seeds = pages.late.seeds.len();
                labs(1, seeds) + rounds * labs(1, seeds * (pages.late.objects + 1))
            }
            Self::WhatIf => rounds * labs(4, pages.what_if.seeds.len() + apps::COUNT),
        }
    }
}

pub fn measure(
    qoe: &Qoe,
    cell: &Cell,
    (part, pages): (Part, &Pages),
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let shell = Shell::new(&qoe.tools)?;
    let experiment = Loads { shell: &shell, pages, rounds: cell.rounds, seed: qoe.tools.seed };
    let outcome = match part {
        Part::Graph => graph::measure(&experiment, progress),
        Part::Late => late::measure(&experiment, progress),
        Part::WhatIf => what_if::measure(&experiment, &mut record.skipped, progress),
    }?;
    // All rounds together have one result.
    record.runs.push(Run { contender: GRAPH.to_owned(), ..Figures::run(outcome) });
    Ok(())
}

/// Parameters of all parts.
struct Loads<'a> {
    shell: &'a Shell<'a>,
    pages: &'a Pages,
    rounds: u32,
    /// Of everything that is random.
    seed: u64,
}

impl Loads<'_> {
    /// The value of `--link` of the link, with factors of its round trip and of its rates.
    fn link(&self, rtt: f64, rate: f64) -> String {
        let Pages { down, up, delay, .. } = self.pages;
        let [down, up] = [down, up].map(|way| (way.as_bps() as f64 * rate) as u64);
        let delay = Span::from_secs_f64(delay.as_secs_f64() * rtt);
        format!("wan:down={down}bit,up={up}bit,delay={delay}")
    }
}

/// The median and 90 % of errors.
fn quantiles(mut errors: Vec<f64>) -> [f64; 2] {
    errors.sort_by(f64::total_cmp);
    [0.5, 0.9]
        .map(|share| manyways_unit::quantile::interpolated(&errors, share).unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_of_ten_errors_are_below_the_second_quantile() {
        let errors: Vec<f64> = (0..=10).rev().map(f64::from).collect();
        assert_eq!(quantiles(errors), [5.0, 9.0]);
    }
}
