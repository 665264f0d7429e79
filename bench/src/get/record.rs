//! What is measured of a download, and how the figures of a cell are looked up.

use std::collections::BTreeMap;

use manyways_rig::cell::{CellRecord, Run};
use manyways_rig::download::PathReport;
use serde::{Deserialize, Serialize};

/// A cell.
pub type Record = CellRecord<Figures, More>;

/// What a cell has besides its runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct More {
    /// The links' rates towards the device, on average.
    pub link_bps: Vec<u64>,
    /// Whether connections were warm.
    pub warm: bool,
    /// Whether the links stayed as they were.
    pub constant: bool,
    /// The congestion control of every socket that was looked at.
    pub sockets: Sockets,
    /// T\*: when the round's single-path curves sum to an object.
    pub ideal: Vec<Moment>,
    /// The fluid bound.
    pub fluid: Vec<Moment>,
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

/// What is measured of a download.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The object's size.
    pub bytes: u64,
    /// How much of it was wanted, where that is not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<u64>,
    /// How long the transfer took; `None` where it failed.
    pub seconds: Option<f64>,
    /// IP bytes that each link delivered to the device, until all was quiet.
    pub link_bytes: Vec<u64>,
    /// What each path did, where the contender tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathReport>,
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

/// The times of a contender for an object, by round.
pub fn times(cell: &Record, contender: &str, bytes: u64) -> BTreeMap<u32, f64> {
    let whole = |run: &Run<Figures>| {
        run.contender == contender && run.figures.bytes == bytes && run.figures.stop.is_none()
    };
    let times = cell.values(whole, |run| run.seconds);
    if !times.is_empty() || !contender.ends_with(" alone") {
        return times;
    }
    // A larger object over one path begins with the smaller one.
    let reached = |run: &Figures| Some(run.reached.iter().find(|reached| reached.0 == bytes)?.1);
    cell.values(|run| run.contender == contender, reached)
}

/// T\* or the fluid bound of an object, by round.
pub fn by_round(moments: &[Moment], bytes: u64) -> BTreeMap<u32, f64> {
    let of = moments.iter().filter(|moment| moment.bytes == bytes);
    of.map(|moment| (moment.round, moment.seconds)).collect()
}

/// The size of every object, in order.
pub fn sizes(cell: &Record) -> Vec<u64> {
    let mut sizes: Vec<u64> = cell.more.fluid.iter().map(|moment| moment.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Every contender for an object, in the order of the plan.
pub fn contenders(cell: &Record, bytes: u64) -> Vec<&str> {
    cell.each(|run| {
        let passed = run.figures.reached.iter().any(|reached| reached.0 == bytes);
        (run.figures.bytes == bytes || passed).then_some(&*run.contender)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(round: u32, contender: &str, bytes: u64, seconds: Option<f64>) -> Run<Figures> {
        let failed = seconds.is_none().then(|| "no".to_owned());
        let figures = Figures { bytes, seconds, ..Figures::default() };
        Run { round, contender: contender.into(), failed, figures }
    }

    #[test]
    fn a_failure_has_no_time_and_is_counted() {
        let runs = vec![run(0, "a", 5, Some(1.0)), run(1, "a", 5, None), run(1, "a", 6, Some(2.0))];
        let cell = Record { runs, ..Record::default() };
        assert_eq!(times(&cell, "a", 5), BTreeMap::from([(0, 1.0)]));
        assert_eq!(cell.failures(|run| run.figures.bytes == 5), (1, 2));
    }

    #[test]
    fn a_path_alone_has_a_time_for_every_size_that_it_passed() {
        let mut large = run(3, "wifi alone", 9, Some(1.0));
        large.figures.reached = vec![(5, 0.5)];
        let cell = Record { runs: vec![large], ..Record::default() };
        assert_eq!(times(&cell, "wifi alone", 5), BTreeMap::from([(3, 0.5)]));
        assert_eq!(times(&cell, "wifi alone", 9), BTreeMap::from([(3, 1.0)]));
        assert_eq!(contenders(&cell, 5), ["wifi alone"]);
        assert!(contenders(&cell, 7).is_empty());
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut run = run(0, "a", 5, None);
        run.figures.waits = vec![(0.1, 0.2)];
        let cell = Record { runs: vec![run], ..Record::default() };
        let text = serde_json::to_string(&cell).unwrap();
        let back: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(back.runs, cell.runs);
    }
}
