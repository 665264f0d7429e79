//! A table of transfers at many places: what probes and signals show of Wi-Fi and LTE before a
//! decision, and how long the transfer then takes over each choice.
//!
//! Three sets of places: [`recorded`] (a), [`crossed`] (b) and [`generated`] (c). All seeds, ranges
//! and parameters are constants, committed before any policy was run on the data.

mod crossed;
mod generated;
mod place;
mod process;
mod recorded;
mod signal_log;

use std::fmt;
use std::path::{Path, PathBuf};

use manyways_rig::links::{find_pairs, mean_rate, round_trip};
use manyways_rig::results::write;

use self::place::{NETWORKS, Place};
use self::recorded::Recording;
use self::signal_log::SignalLog;

/// Write the table of transfers for `manyways steer`.
#[derive(clap::Args)]
pub struct DataArgs {
    /// Only this set; all three without.
    #[arg(long, value_name = "SET")]
    set: Option<Set>,
    /// The folder to write to.
    #[arg(long, value_name = "DIR", default_value = "target/steer")]
    out: PathBuf,
    /// Only the first places of each set.
    #[arg(long, value_name = "N")]
    places: Option<usize>,
    /// The folder with recorded pairs; MANYWAYS_PAIRS in the environment has the same effect.
    #[arg(long, value_name = "DIR")]
    pairs: Option<PathBuf>,
    /// The archive with logs of signals; MANYWAYS_SIGNALS in the environment has the same effect.
    #[arg(long, value_name = "FILE")]
    signals: Option<PathBuf>,
}

/// The sets of places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Set {
    A,
    B,
    C,
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
        })
    }
}

/// Writes the tables.
///
/// # Errors
/// One sentence, if a file cannot be read or written.
pub fn write_data(args: &DataArgs) -> Result<(), String> {
    for set in [Set::A, Set::B, Set::C] {
        if args.set.is_some_and(|only| only != set) {
            continue;
        }
        let mut places = places(set, args)?;
        places.truncate(args.places.unwrap_or(usize::MAX));
        if !places.is_empty() {
            write_places(&args.out.join(format!("{set}.places.csv")), &places)?;
        }
    }
    Ok(())
}

/// The places of a set; none if its recordings are missing and no option names them.
fn places(set: Set, args: &DataArgs) -> Result<Vec<Place>, String> {
    if set == Set::C {
        return generated::places();
    }
    let pairs = find_pairs(args.pairs.as_deref(), &format!("set {set}"), &mut Vec::new())?;
    let recordings: Vec<Recording> = pairs.iter().filter_map(Recording::of).collect();
    if set == Set::A {
        return Ok(recorded::places(&recordings));
    }
    let logs = SignalLog::find(args.signals.as_deref())?;
    crossed::places(&recordings, &logs)
}

/// Writes the properties of the places, which no policy sees: seconds, Mbit/s and, for each network,
/// how many decisions have a signal.
fn write_places(file: &Path, places: &[Place]) -> Result<(), String> {
    let mut text = "place,group,decisions".to_owned();
    for network in NETWORKS {
        text += &format!(",{network}.round-trip,{network}.rate,{network}.signals");
    }
    for place in places {
        text += &format!("\n{},{},{}", place.name, place.group, place.decisions().count());
        for (link, signals) in place.links.iter().zip(&place.signals) {
            let (round_trip, rate) =
                (round_trip(link).as_secs_f64(), mean_rate(link).as_mbps_f64());
            let known = place.decisions().filter(|second| !signals.before(*second).is_empty());
            text += &format!(",{round_trip:.6},{rate:.6},{}", known.count());
        }
    }
    write(file, &(text + "\n"))
}

#[cfg(test)]
mod tests;
