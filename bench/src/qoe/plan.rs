//! The plan: the cells with their contenders.

use manyways_rig::links::{Pair, describe, link, wifi_and_lte};
use manyways_trace::scenario::{CapacitySpec, LinkSpec};
use manyways_unit::{Rate, Span};

use super::cells::{self, Cells, OneNetwork, Sabre};
use super::play::Film;
use super::{one_network, pages, sabre, two_networks};
use crate::options::Mode;

pub type Cell = manyways_rig::cell::Cell<&'static str, Experiment>;

/// The measured property of a cell.
#[derive(Clone, Debug, Default)]
pub enum Experiment {
    /// Nothing.
    #[default]
    None,
    /// Films in virtual time beside those of Sabre.
    Sabre(Sabre),
    /// Films over one network each.
    OneNetwork(Film, OneNetwork),
    /// A film over two networks. Each round begins so much later in their traces.
    TwoNetworks(Film, Span),
    /// Loads of pages.
    Pages(cells::Pages),
}

/// The cells in the order of their runs. Those without their pair of traces are left out. The number of
/// labs at a time and the duration of films may differ from those of the cells.
///
/// # Errors
/// One sentence, if the file of the cells is wrong.
pub fn plan(
    mode: Mode,
    pairs: &[Pair],
    (jobs, duration): (Option<u32>, Option<Span>),
) -> Result<Vec<Cell>, String> {
    let mut cells = Cells::read()?;
    let film = &mut cells.film;
    film.jobs = jobs.map_or(film.jobs, |jobs| jobs as usize);
    film.duration = match (duration, mode) {
        (Some(duration), _) => duration,
        (None, Mode::Full) => film.full_duration,
        _ => film.duration,
    };
    let rounds = cells.film.rounds;
    let mut all = Vec::new();
    let title = "All traces and both films of Sabre".to_owned();
    let contenders = vec![sabre::OURS, sabre::SABRE];
    all.push(cell('a', "sabre", title, Vec::new(), contenders, 1, Experiment::Sabre(cells.sabre)));

    let one = cells.one_network;
    let film = Film::new(&cells.film, &one.ladder);
    if let Some(pair) = pairs.iter().find(|pair| pair.name == one.pair) {
        let links = one_network_links(&one, pair);
        let title = format!(
            "{}; BBA and CBA alone with {}, and sharing {}",
            links[..2].iter().map(describe).collect::<Vec<_>>().join("; "),
            one.alone,
            one.shared
        );
        let contenders = one_network::CONTENDERS.into();
        let experiment = Experiment::OneNetwork(film, one);
        all.push(cell('b', "one-network", title, links, contenders, rounds, experiment));
    }

    let two = cells.two_networks;
    let film = Film::new(&cells.film, &two.ladder);
    let mut over = |part, name: String, links: Vec<LinkSpec>, step| {
        let title = links.iter().map(describe).collect::<Vec<_>>().join(" + ");
        let contenders = two_networks::CONTENDERS.into();
        let experiment = Experiment::TwoNetworks(film.clone(), step);
        all.push(cell(part, &name, title, links, contenders, rounds, experiment));
    };
    for (wifi, lte) in two.rates {
        over('c', format!("two-{wifi}-{lte}"), wifi_and_lte(wifi, lte), Span::ZERO);
    }
    for name in &two.pairs {
        if let Some(pair) = pairs.iter().find(|pair| pair.name == *name) {
            let links = pair.scaled_links(two.scaled);
            over('d', format!("pair-{name}"), links, two.round_step);
        }
    }

    let pages = cells.pages;
    let capacity = CapacitySpec::Constant(pages.down);
    let links = vec![link("wan", capacity, pages.up, pages.delay * 2)];
    let title = format!("Known pages and applications in Chromium; {}", describe(&links[0]));
    let (rounds, contenders) = (pages.rounds, vec![pages::GRAPH]);
    all.push(cell('e', "pages", title, links, contenders, rounds, Experiment::Pages(pages)));
    Ok(all)
}

/// A link with a constant rate, and one with the shape of a trace.
fn one_network_links(one: &OneNetwork, pair: &Pair) -> Vec<LinkSpec> {
    let up = Rate::from_mbps(5);
    let constant = link("constant", CapacitySpec::Constant(one.rate), up, one.delay * 2);
    let wifi = pair.links().swap_remove(0);
    let factor = one.rate.as_bps() as f64 / manyways_rig::links::mean_rate(&wifi).as_bps() as f64;
    let wifi = pair.scaled_by(factor).swap_remove(0);
    let traced = link("traced", wifi.down.capacity, up, one.delay * 2);
    vec![constant, traced]
}

fn cell(
    part: char,
    name: &str,
    title: String,
    links: Vec<LinkSpec>,
    contenders: Vec<&'static str>,
    rounds: u32,
    setting: Experiment,
) -> Cell {
    let name = name.to_owned();
    Cell { name, part, title, links, contenders, rounds, setting, ..Cell::default() }
}

/// Estimated duration of a cell, in seconds.
pub fn seconds(cell: &Cell) -> f64 {
    match &cell.setting {
        Experiment::None => 0.0,
        Experiment::Sabre(_) => 25.0,
        // Each round has three labs.
        Experiment::OneNetwork(film, _) | Experiment::TwoNetworks(film, _) => {
            let turns = (3 * cell.rounds as usize).div_ceil(film.jobs);
            turns as f64 * (film.duration.as_secs_f64() + 2.0)
        }
        Experiment::Pages(pages) => pages::seconds(pages, cell.rounds),
    }
}
