//! What was measured, as it is written to the results file and read back to go on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::contender::PathSaid;
use crate::results;

/// Name and version of the results' schema.
pub const SCHEMA: &str = "manyways.bench-get/1";

/// Everything.
pub type Results = results::Results<CellRecord>;

/// One cell.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CellRecord {
    /// Its name.
    pub name: String,
    /// Its letter.
    pub part: String,
    /// For people.
    pub title: String,
    /// The links' names, in the order of every list of links.
    pub links: Vec<String>,
    /// Their rates towards the device, on average.
    pub link_bps: Vec<u64>,
    /// Whether connections were warm.
    pub warm: bool,
    /// Whether the links stayed as they were.
    pub constant: bool,
    /// How many rounds there were to be.
    pub rounds: u32,
    /// What was planned, to tell whether a result can be kept.
    pub plan: String,
    /// The congestion control of every socket that was looked at.
    pub sockets: Sockets,
    /// Every fetch.
    pub runs: Vec<Run>,
    /// T\*: when the round's single-path curves sum to an object.
    pub ideal: Vec<Moment>,
    /// The fluid bound.
    pub fluid: Vec<Moment>,
    /// How often the links did not become quiet after a fetch, and were cut off for a moment.
    pub restless: u32,
    /// How long all of it took, in seconds.
    pub seconds: f64,
    /// Contenders that could not run, and why.
    pub left_out: Vec<String>,
    /// Why it came to nothing, if it did.
    pub error: Option<String>,
}

/// The congestion control of every socket of two transfers in the middle of them, both sides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sockets {
    /// Of `manyways get` over all links.
    pub get: Vec<String>,
    /// Of the subflows of kernel MPTCP; empty where it did not run.
    pub mptcp: Vec<String>,
}

/// A time that belongs to a round and a size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Which round.
    pub round: u32,
    /// Which object.
    pub bytes: u64,
    /// Since the transfer's start.
    pub seconds: f64,
}

/// One fetch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Which round.
    pub round: u32,
    /// Who.
    pub contender: String,
    /// The object's size.
    pub bytes: u64,
    /// How much of it was wanted, where that is not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<u64>,
    /// How long the transfer took; nothing where it failed.
    pub seconds: Option<f64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// IP bytes that each link delivered to the device, until all was quiet.
    pub link_bytes: Vec<u64>,
    /// What each path did, where the contender tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathSaid>,
    /// Seconds from the last byte of a request to the first of the next on the same path, and that
    /// path's name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<(String, f64)>,
    /// Seconds that a response was expected to take, and that it took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<(f64, f64)>,
    /// When one path alone had so much of the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reached: Vec<(u64, f64)>,
    /// Bytes a second between its first byte and its last, of one path alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// When the link changed, in seconds since the transfer's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_at: Option<f64>,
    /// Bytes that were missing then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
}

impl CellRecord {
    /// The times of a contender for an object, by round.
    pub fn times(&self, contender: &str, bytes: u64) -> BTreeMap<u32, f64> {
        let alone = contender.strip_suffix(" alone").is_some();
        let mut times: BTreeMap<u32, f64> = self
            .runs
            .iter()
            .filter(|run| run.contender == contender && run.bytes == bytes && run.stop.is_none())
            .filter_map(|run| Some((run.round, run.seconds?)))
            .collect();
        if alone && times.is_empty() {
            // A larger object over one path begins with the smaller one.
            let runs = self.runs.iter().filter(|run| run.contender == contender);
            times = runs
                .filter_map(|run| {
                    let moment = run.reached.iter().find(|reached| reached.0 == bytes)?;
                    Some((run.round, moment.1))
                })
                .collect();
        }
        times
    }

    /// T\* by round.
    pub fn ideal(&self, bytes: u64) -> BTreeMap<u32, f64> {
        by_round(&self.ideal, bytes)
    }

    /// The fluid bound by round.
    pub fn fluid(&self, bytes: u64) -> BTreeMap<u32, f64> {
        by_round(&self.fluid, bytes)
    }

    /// Every size, in order.
    pub fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.fluid.iter().map(|moment| moment.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Every contender for an object, in the order of the first round's plan.
    pub fn contenders(&self, bytes: u64) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for run in &self.runs {
            let there = run.bytes == bytes || run.reached.iter().any(|r| r.0 == bytes);
            if there && !names.contains(&run.contender.as_str()) {
                names.push(&run.contender);
            }
        }
        names
    }

    /// How many of a contender's fetches of an object failed, and how many there were.
    pub fn failures(&self, contender: &str, bytes: u64) -> (usize, usize) {
        let of = |run: &&Run| run.contender == contender && run.bytes == bytes;
        let failed = self.runs.iter().filter(of).filter(|run| run.failed.is_some()).count();
        (failed, self.runs.iter().filter(of).count())
    }
}

fn by_round(moments: &[Moment], bytes: u64) -> BTreeMap<u32, f64> {
    let of = moments.iter().filter(|moment| moment.bytes == bytes);
    of.map(|moment| (moment.round, moment.seconds)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(round: u32, contender: &str, bytes: u64, seconds: Option<f64>) -> Run {
        let failed = seconds.is_none().then(|| "no".to_owned());
        Run { round, contender: contender.into(), bytes, seconds, failed, ..Run::default() }
    }

    #[test]
    fn a_failure_has_no_time_and_is_counted() {
        let runs = vec![run(0, "a", 5, Some(1.0)), run(1, "a", 5, None), run(1, "a", 6, Some(2.0))];
        let cell = CellRecord { runs, ..CellRecord::default() };
        assert_eq!(cell.times("a", 5), BTreeMap::from([(0, 1.0)]));
        assert_eq!(cell.failures("a", 5), (1, 2));
    }

    #[test]
    fn a_path_alone_has_a_time_for_every_size_that_it_passed() {
        let large = Run { reached: vec![(5, 0.5)], ..run(3, "wifi alone", 9, Some(1.0)) };
        let cell = CellRecord { runs: vec![large], ..CellRecord::default() };
        assert_eq!(cell.times("wifi alone", 5), BTreeMap::from([(3, 0.5)]));
        assert_eq!(cell.times("wifi alone", 9), BTreeMap::from([(3, 1.0)]));
        assert_eq!(cell.contenders(5), ["wifi alone"]);
        assert!(cell.contenders(7).is_empty());
    }

    #[test]
    fn what_is_written_reads_back() {
        let cell = CellRecord {
            runs: vec![Run { waits: vec![(0.1, 0.2)], ..run(0, "a", 5, None) }],
            ..CellRecord::default()
        };
        let text = serde_json::to_string(&cell).unwrap();
        let back: CellRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(back.runs, cell.runs);
    }
}
