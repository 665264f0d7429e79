//! Transfers of the table of set (a), run again by emulation: `manyways get --via` over the same
//! links, from the same second of their traces, from a server with CUBIC.
//!
//! `get` also asks a name server and sets up TLS, which the table does not have. So its seconds are
//! those from its request on, and one round trip: the handshake of the table. The traces begin
//! early enough for the request to be sent when that of the table is.

use std::path::PathBuf;

use manyways_model::select::Role;
use manyways_model::select::model::Carriage;
use manyways_model::select::transfers::Transfer;
use manyways_rig::Origin;
use manyways_rig::cell::Cell as LabCell;
use manyways_rig::download::{Downloader, Fetch, Programs};
use manyways_rig::launch::{DriveError, Launcher};
use manyways_rig::links::{period, round_trip};
use manyways_rig::order::shuffle;
use manyways_rig::sample::median;
use manyways_rig::{Need, missing};
use manyways_sys::signal::Termination;
use manyways_trace::scenario::HostSpec;
use manyways_unit::{Size, Span};
use serde::Serialize;

use super::data::Place;

/// Cells, and the rounds in which all of them take turns.
const CELLS: usize = 8;
const ROUNDS: u32 = 3;
/// Seed of the drawn cells and of the links.
const SEED: u64 = 0x7374_6565_7205;
/// Sizes from which cells are drawn, and their longest time in the table, so that all runs together
/// take less than two minutes.
const SIZES: [u64; 3] = [100_000, 1_000_000, 10_000_000];
const LONGEST: f64 = 12.0;
/// Name of the server.
const HOST: &str = "www.lab";
/// From the start of the process to its first packet, if no run has shown it yet, and the round
/// trips before its request: name, TCP and TLS.
const START: f64 = 0.03;
const BEFORE: f64 = 3.0;

/// A cell.
#[derive(Clone, Debug, Serialize)]
pub struct Emulated {
    pub place: String,
    pub second: u64,
    pub network: &'static str,
    pub bytes: u64,
    /// Seconds in the table.
    pub table: f64,
    /// Seconds of the emulated rounds.
    pub rounds: Vec<f64>,
    /// Reasons of failed rounds.
    pub failures: Vec<String>,
}

impl Emulated {
    /// Median of the rounds / the seconds of the table; `None` if all rounds failed.
    pub fn ratio(&self) -> Option<f64> {
        Some(median(self.rounds.iter().copied())? / self.table)
    }
}

/// A reason why nothing can be emulated here; `None` if it can.
pub fn obstacle() -> Option<String> {
    missing(&[Need::Root, Need::Command("ip"), Need::Command("nginx")])
}

/// Runs all cells.
///
/// # Errors
/// One sentence, if a lab fails or a signal ends the benchmark.
pub fn emulate(
    places: &[Place],
    transfers: &[Transfer],
    manyways: PathBuf,
    termination: &Termination,
) -> Result<Vec<Emulated>, String> {
    let programs = Programs::find(manyways);
    let mut cells = drawn(transfers);
    // From the start of the process to its request.
    let mut leads: Vec<Vec<f64>> = vec![Vec::new(); cells.len()];
    for _ in 0..ROUNDS {
        for (cell, leads) in cells.iter_mut().zip(&mut leads) {
            let place = places.iter().find(|place| place.name == cell.place);
            let place = place.ok_or_else(|| format!("the place {} is missing", cell.place))?;
            let run = run(cell, place, &programs, termination, leads);
            match run.map_err(|error| error.to_string())? {
                Ok(seconds) => cell.rounds.push(seconds),
                Err(reason) => cell.failures.push(reason),
            }
        }
    }
    Ok(cells)
}

/// Cells of one network, no two at one place.
fn drawn(transfers: &[Transfer]) -> Vec<Emulated> {
    let mut order: Vec<usize> = (0..transfers.len()).collect();
    shuffle(&mut order, SEED);
    let mut cells: Vec<Emulated> = Vec::new();
    for one in order.into_iter().map(|index| &transfers[index]) {
        let Carriage::Only(role) = one.carriage else { continue };
        let is_new = cells.iter().all(|cell| cell.place != one.place);
        let is_meant = SIZES.contains(&one.size.as_bytes()) && one.seconds <= LONGEST;
        if is_new && is_meant && cells.len() < CELLS {
            cells.push(Emulated {
                place: one.place.clone(),
                second: one.second,
                network: role.name(),
                bytes: one.size.as_bytes(),
                table: one.seconds,
                rounds: Vec::new(),
                failures: Vec::new(),
            });
        }
    }
    cells
}

/// One download in a lab of its own; its seconds, or the reason why it failed.
fn run(
    cell: &Emulated,
    place: &Place,
    programs: &Programs,
    termination: &Termination,
    leads: &mut Vec<f64>,
) -> Result<Result<f64, String>, DriveError> {
    let network = usize::from(cell.network == Role::Lte.name());
    let (link, size) = (&place.links[network], Size::from_bytes(cell.bytes));
    let mut lab_cell =
        LabCell::<&'static str, ()>::over('e', "steer", place.links.to_vec(), Vec::new());
    let names = vec![(HOST.to_owned(), None)];
    lab_cell.hosts = vec![HostSpec { name: "origin".to_owned(), names, ..HostSpec::default() }];
    let mut launcher = Launcher::start(&lab_cell, "bench-steer", SEED, termination)?;
    let origin = Origin::start(&mut launcher.lab, 1, HOST, &[size])?;
    let links = place.links.as_slice();
    let (warm, stop_after, cache) = (false, None, None);
    let fetch = Fetch { programs, origin: &origin, links, warm, size, stop_after, cache };
    let round_trip = round_trip(link).as_secs_f64();
    let lead = median(leads.iter().copied()).unwrap_or(START + BEFORE * round_trip);
    // The request of the table is sent after the round trip of its handshake.
    let mut offset = cell.second as f64 + round_trip - lead;
    if offset < 0.0 {
        offset += links.iter().filter_map(period).min().unwrap_or_default().as_secs_f64();
    }
    let how = Downloader::Single(network);
    let when = (Span::from_secs_f64(offset), &[][..]);
    let done = fetch.run(how, &launcher, 4.0 * cell.table + 20.0, when, None)?;
    let report = match done.outcome {
        Ok(report) => report,
        Err(reason) => return Ok(Err(reason)),
    };
    let log = match done.log {
        Some(Ok(log)) => log,
        other => return Ok(Err(format!("its log cannot be read: {other:?}"))),
    };
    let Some(sent) = log.requests.first().map(|request| request.sent.as_secs_f64()) else {
        return Ok(Err("its log has no request".to_owned()));
    };
    leads.push(log.began + sent - launcher.unix_seconds(done.ended.start));
    Ok(Ok(report.seconds - sent + round_trip))
}

#[cfg(test)]
mod tests {
    use manyways_model::select::transfers::parse;

    use super::*;

    #[test]
    fn cells_are_of_different_places_one_network_and_a_moderate_time() {
        let mut table = "place,group,second,choice,size,seconds\n".to_owned();
        for place in 0..12 {
            for choice in ["wifi", "lte", "wifi+lte"] {
                for (size, seconds) in [(3_000, 0.1), (100_000, 0.5), (10_000_000, 13.0)] {
                    table += &format!("p{place},1,10,{choice},{size},{seconds}\n");
                }
            }
        }
        let transfers = parse(&table).unwrap();
        let cells = drawn(&transfers);
        let places: std::collections::BTreeSet<&str> =
            cells.iter().map(|cell| cell.place.as_str()).collect();
        assert_eq!((cells.len(), places.len()), (CELLS, CELLS));
        assert!(cells.iter().all(|cell| cell.bytes == 100_000 && cell.table == 0.5));
        let again: Vec<String> = drawn(&transfers).into_iter().map(|cell| cell.place).collect();
        assert_eq!(cells.iter().map(|cell| cell.place.clone()).collect::<Vec<_>>(), again);
    }
}
