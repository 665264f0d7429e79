//! Loads of pages in Chromium: the edges, the slack and the predictions of their graphs beside known edges
//! and measured loads.
//!
//! [`known`] serves pages with known edges, [`apps`] serves web applications, [`load`] loads a page, [`lab`]
//! runs loads in a lab, and [`rounds`] runs all of them; [`edges`], [`late`] and [`what_if`] each compare
//! what they are named after.

mod apps;
mod edges;
mod known;
mod lab;
mod late;
mod load;
mod rounds;
mod what_if;

use manyways_rig::cell::Run;
use manyways_rig::launch::DriveError;
use manyways_unit::Span;

use super::Qoe;
use super::cells::Pages;
use super::plan::Cell;
use crate::figures::{Figures, Record};
use crate::shell::Shell;

pub use self::edges::{F1, LEAST_F1};
pub use self::known::{KnownPageServeArgs, known_page_serve};
pub use self::late::{LATE_MEDIAN, LATE_MOST};
pub use self::load::{KnownPageLoadArgs, known_page_load};
pub use self::what_if::{WHAT_IF_MEDIAN, WHAT_IF_MOST};

/// The only contender.
pub const GRAPH: &str = "graph of a load";
/// Name of the far side.
const HOST: &str = "origin.lab";
/// Seconds of a load with the start and the end of the browser, of the start of a lab, and of the
/// preparation of the applications.
const LOAD_SECONDS: f64 = 2.8;
const LAB_SECONDS: f64 = 1.5;
const APPS_SECONDS: f64 = 8.0;

/// Estimated duration.
pub fn seconds(pages: &Pages, rounds: u32) -> f64 {
    let known = pages.known.len();
    let changed = what_if::COUNT * (pages.what_if.known + apps::COUNT);
    let loads = known * (1 + pages.late.objects) + apps::COUNT + changed;
    let labs = 1 + what_if::COUNT;
    let of = |labs: usize, loads: usize| labs as f64 * LAB_SECONDS + loads as f64 * LOAD_SECONDS;
    APPS_SECONDS + of(1, known) + f64::from(rounds) * of(labs, loads)
}

pub fn measure(
    qoe: &Qoe,
    cell: &Cell,
    pages: &Pages,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let shell = Shell::new(&qoe.tools)?;
    let loads = Loads { shell: &shell, pages, rounds: cell.rounds, seed: qoe.tools.seed };
    let outcome = loads.measure(&mut record.skipped, progress)?;
    // All rounds together have one result.
    record.runs.push(Run { contender: GRAPH.to_owned(), ..Figures::run(outcome) });
    Ok(())
}

/// Parameters of all loads.
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

/// A page that is loaded.
struct Subject {
    name: String,
    /// Of a known page.
    seed: Option<u64>,
    /// Commands of its servers.
    servers: Vec<String>,
    /// A command before its loads.
    before: String,
    url: String,
    /// The same from a server that takes no time.
    prompt_url: String,
}

#[cfg(test)]
impl Subject {
    fn named(name: &str) -> Self {
        let [before, url, prompt_url] = [(); 3].map(|()| String::new());
        Self { name: name.to_owned(), seed: None, servers: Vec::new(), before, url, prompt_url }
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
