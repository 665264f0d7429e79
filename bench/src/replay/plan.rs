//! The plan: the cells with their contenders.

use std::path::Path;

use manyways_unit::Size;

use super::cells::{Cells, Drive, Link, Network, Pages, Recorder, Seeds, Server, Think};
use super::drives::{self, Class};
use super::mitmproxy::MITMPROXY;
use super::pages::{self, PageLoads};
use super::{matching, recorder, same, servers, think};

pub type Cell = manyways_rig::cell::Cell<&'static str, Experiment>;

/// The measured property of a cell.
#[derive(Clone, Debug, Default)]
pub enum Experiment {
    /// Status, head and body of exchanges.
    #[default]
    Same,
    Think(Think),
    /// Page loads of a browser.
    Pages(PageLoads),
    /// Page loads with and without the recorder.
    RecordedPage(PageLoads),
    /// New connections through a recorder, for so many seconds.
    Connections(u64),
    /// Requests for a body of this size, for so many seconds.
    Server(Size, u64),
    /// Requests of second runs.
    Matching(Seeds),
    /// Driven replays of an archive of this class.
    Drives(Class, Drive),
}

/// The cells in the order of their runs. Without the HAR files, those that need them are left out.
///
/// # Errors
/// One sentence, if the file of the cells is wrong.
pub fn plan(hars: &Path, left_out: &mut Vec<String>) -> Result<Vec<Cell>, String> {
    let cells = Cells::read()?;
    let mut all = Vec::new();
    let title = format!("{} exchanges of each protocol with nginx", same::EXCHANGES);
    all.push(cell('a', "same", title, same::PROTOCOLS.into(), 1, Experiment::Same));
    let think = cells.think;
    let title = format!(
        "round trips of {}; {} requests of each think time",
        think.rtts.join(", "),
        think.requests
    );
    let contenders = vec![think::LIVE, think::REPLAY];
    all.push(cell('b', "think", title, contenders, 1, Experiment::Think(think)));
    all.extend(page_loads(&cells.pages, hars, left_out));
    let Recorder { rounds, seconds, link } = cells.recorder;
    all.extend(recorded_page(&cells.pages, link, rounds, hars));
    let contenders = vec![recorder::RECORD, MITMPROXY, recorder::DIRECT];
    let title = "one request on each connection".to_owned();
    let experiment = Experiment::Connections(seconds);
    all.push(cell('d', "recorder-connections", title, contenders, rounds, experiment));
    let Server { sizes, seconds, rounds } = cells.server;
    for text in sizes {
        let size: Size = text.parse().map_err(|error| format!("cells.toml: {error}"))?;
        let title = format!("bodies of {size} over HTTP/2, one processor for each server");
        let contenders = vec![servers::REPLAY, servers::NGINX];
        let name = format!("server-{text}");
        all.push(cell('e', &name, title, contenders, rounds, Experiment::Server(size, seconds)));
    }
    let seeds = cells.matching.seeds;
    let title = format!("{} generated pages, seeds from {} on", seeds.count, seeds.first);
    let contenders = vec![matching::OURS, matching::MAHIMAHI];
    all.push(cell('f', "matching", title, contenders, 1, Experiment::Matching(seeds)));
    for class in [Class::Short, Class::Long] {
        match class == Class::Long || hars.join(format!("{}.har", cells.drive.short)).is_file() {
            true => all.push(drives(class, &cells.drive)),
            false => left_out.push(format!("driven replays of {}: no HAR file", cells.drive.short)),
        }
    }
    Ok(all)
}

fn drives(class: Class, drive: &Drive) -> Cell {
    let what = match class {
        Class::Short => format!("The page load {}", drive.short),
        Class::Long => format!("{} objects of {}", drive.long.objects, drive.long.size),
    };
    let conditions = drive.conditions.iter().zip(1..);
    let conditions = conditions.map(|(condition, number)| {
        format!("; {number}: {} and {}", condition.wifi.option("wifi"), condition.lte.option("lte"))
    });
    let title = what + &conditions.collect::<String>();
    let contenders = [drives::RECORDING].into_iter().chain(drives::WAYS).collect();
    let experiment = Experiment::Drives(class, drive.clone());
    cell('g', class.cell(), title, contenders, drive.rounds, experiment)
}

/// With the first page; that it is missing, its own cells say.
fn recorded_page(wanted: &Pages, link: Link, rounds: u32, hars: &Path) -> Option<Cell> {
    let site = wanted.sites.first().filter(|site| hars.join(format!("{site}.har")).is_file())?;
    let network = Network { name: "wan".to_owned(), link };
    let title = format!("{site} over {}", network.link.option(&network.name));
    let loads = PageLoads { site: site.clone(), network, think_seed: wanted.think_seed };
    let contenders = vec![recorder::RECORD, recorder::DIRECT];
    let experiment = Experiment::RecordedPage(loads);
    Some(cell('d', "recorder-page", title, contenders, rounds, experiment))
}

fn page_loads(wanted: &Pages, hars: &Path, left_out: &mut Vec<String>) -> Vec<Cell> {
    let mut all = Vec::new();
    for site in &wanted.sites {
        let file = hars.join(format!("{site}.har"));
        if !file.is_file() {
            left_out.push(format!("page loads of {site}: there is no {}", file.display()));
            continue;
        }
        for network in &wanted.networks {
            let name = format!("pages-{site}-{}", network.name);
            let title = format!("{site} over {}", network.link.option(&network.name));
            let mut contenders = vec![pages::LIVE, pages::REPLAY, MITMPROXY];
            if all.is_empty() {
                contenders.push(pages::ONE_SERVER);
            }
            let loads = PageLoads {
                site: site.clone(),
                network: network.clone(),
                think_seed: wanted.think_seed,
            };
            let experiment = Experiment::Pages(loads);
            all.push(cell('c', &name, title, contenders, wanted.rounds, experiment));
        }
    }
    all
}

fn cell(
    part: char,
    name: &str,
    title: String,
    contenders: Vec<&'static str>,
    rounds: u32,
    setting: Experiment,
) -> Cell {
    let name = name.to_owned();
    Cell { name, part, title, contenders, rounds, setting, ..Cell::default() }
}

/// Estimated duration of a cell, in seconds.
pub fn seconds(cell: &Cell) -> f64 {
    let run = match &cell.setting {
        Experiment::Same => 5.0,
        Experiment::Think(_) => 15.0,
        Experiment::Pages(_) | Experiment::RecordedPage(_) => 5.0,
        Experiment::Connections(seconds) | Experiment::Server(_, seconds) => *seconds as f64 + 2.0,
        Experiment::Matching(_) => 10.0,
        // Of all ways in all conditions, several at a time.
        Experiment::Drives(Class::Short, _) => return f64::from(cell.rounds) * 32.0,
        Experiment::Drives(Class::Long, _) => return f64::from(cell.rounds) * 21.0,
    };
    run * f64::from(cell.rounds) * cell.contenders.len() as f64
}
