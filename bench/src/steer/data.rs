//! A table of transfers at many places: what probes and signals show of Wi-Fi and LTE before a
//! decision, and how long the transfer then takes over each choice.
//!
//! Three sets of places: [`recorded`] (a), [`crossed`] (b) and [`generated`] (c). All seeds, ranges
//! and parameters are constants, committed before any policy was run on the data.

mod crossed;
mod features;
mod generated;
mod place;
mod process;
mod recorded;
mod signal_log;
mod table;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::{fmt, fs, io};

use manyways_rig::links::{find_pairs, mean_rate, round_trip};
use manyways_rig::order::hash;
use manyways_rig::results::write;

pub use self::features::{BURST_BYTES, PROBE_BYTES, indicators};
pub use self::place::NETWORKS;
pub use self::place::Place;
use self::recorded::Recording;
use self::signal_log::SignalLog;

/// To be raised whenever the program would write other numbers for the same places.
const VERSION: u32 = 2;
/// Places between two lines on stderr.
const PROGRESS: usize = 10;

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
pub enum Set {
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

impl DataArgs {
    /// Whether `--set` allows a set.
    pub fn includes(&self, set: Set) -> bool {
        self.set.is_none_or(|only| only == set)
    }

    /// The file with the table of a set.
    pub fn table(&self, set: Set) -> PathBuf {
        self.out.join(format!("{set}.csv"))
    }
}

/// Writes `SET.csv`, the table, and `SET.places.csv`, the places. A table is kept if `SET.hash` has
/// the hash of the same places and of the same [`VERSION`].
///
/// # Errors
/// One sentence, if a file cannot be read or written.
pub fn write_data(args: &DataArgs) -> Result<(), String> {
    for set in [Set::A, Set::B, Set::C] {
        if !args.includes(set) {
            continue;
        }
        let mut places = places(set, args)?;
        places.truncate(args.places.unwrap_or(usize::MAX));
        if places.is_empty() {
            continue;
        }
        let file = |suffix: &str| args.out.join(format!("{set}.{suffix}"));
        let (table, hash_file) = (file("csv"), file("hash"));
        let key = format!("{:016x}\n", hash(&format!("{VERSION} {:?} {places:?}", table::SIZES)));
        if table.exists() && fs::read_to_string(&hash_file).is_ok_and(|kept| kept == key) {
            eprintln!("set {set}: {} is kept", table.display());
            continue;
        }
        // An interrupted run must not leave a table with the hash of another one.
        match fs::remove_file(&hash_file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(format!("{}: {error}", hash_file.display()));
            }
            _ => {}
        }
        write_places(&file("places.csv"), &places)?;
        write(&table, &(table::header() + &rows(set, &places)))?;
        write(&hash_file, &key)?;
    }
    Ok(())
}

/// The rows of all places in their order, computed on all cores.
fn rows(set: Set, places: &[Place]) -> String {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let found = Mutex::new(vec![String::new(); places.len()]);
    let work = || {
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(place) = places.get(index)
        {
            let rows = table::rows(place);
            found.lock().unwrap_or_else(|error| error.into_inner())[index] = rows;
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done % PROGRESS == 0 || done == places.len() {
                eprintln!("set {set}: {done} of {} places", places.len());
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    found.into_inner().unwrap_or_else(|error| error.into_inner()).concat()
}

/// The places of a set; none if its recordings are missing and no option names them.
pub fn places(set: Set, args: &DataArgs) -> Result<Vec<Place>, String> {
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
/// how many decisions have a signal and the bytes of its probes.
fn write_places(file: &Path, places: &[Place]) -> Result<(), String> {
    let mut text = "place,group,decisions".to_owned();
    for network in NETWORKS {
        text += &format!(",{network}.round-trip,{network}.rate,{network}.signals");
        text += &format!(",{network}.probe-bytes");
    }
    for place in places {
        text += &format!("\n{},{},{}", place.name, place.group, place.decisions().count());
        for (link, signals) in place.links.iter().zip(&place.signals) {
            let (round_trip, rate) =
                (round_trip(link).as_secs_f64(), mean_rate(link).as_mbps_f64());
            let known = place.decisions().filter(|second| !signals.before(*second).is_empty());
            text += &format!(",{round_trip:.6},{rate:.6},{}", known.count());
            text += &format!(",{}", PROBE_BYTES * place.decisions().count() as u64);
        }
    }
    write(file, &(text + "\n"))
}

#[cfg(test)]
mod tests;
