//! Figures of a download, and queries of the figures of a cell.

use std::collections::BTreeMap;

use manyways_rig::cell::{CellRecord, Run};
use manyways_rig::download::PathReport;
use serde::{Deserialize, Serialize};

pub type Record = CellRecord<Figures, Extra>;

/// Content of a cell's record in addition to its runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Extra {
    /// Mean downlink rate of each link.
    pub link_bps: Vec<u64>,
    /// Whether connections were warmed up.
    pub warm: bool,
    /// Whether the links did not change during a run.
    pub constant: bool,
    pub sockets: Sockets,
    /// T\*: the time at which the sum of the round's single-path curves reaches an object's size.
    pub ideal: Vec<LowerBound>,
    pub fluid: Vec<LowerBound>,
}

/// The congestion control of the sockets on both sides, read in the middle of two transfers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sockets {
    /// Sockets of `manyways get` over all links.
    pub get: Vec<String>,
    /// Subflows of kernel MPTCP; empty if it did not run.
    pub mptcp: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LowerBound {
    /// The round, from 0.
    pub round: u32,
    /// Size of the object.
    pub bytes: u64,
    /// From the start of the transfer.
    pub seconds: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub bytes: u64,
    /// Bytes after which the transfer ended; `None` for the whole object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<u64>,
    /// Duration of the transfer; `None` if it failed.
    pub seconds: Option<f64>,
    /// Delivered IP bytes of each link, towards the device, until all links were quiet.
    pub link_bytes: Vec<u64>,
    /// By path; empty if the contender does not report paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathReport>,
    /// Path name, and seconds between the last byte of a request and the first byte of the next one
    /// on that path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<(String, f64)>,
    /// Expected and measured response delay of each request, in seconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub response_delays: Vec<(f64, f64)>,
    /// Bytes of the object, and the time at which one path alone had received them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub single_path_times: Vec<(u64, f64)>,
    /// Bytes per second between the first and the last byte, of one path alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Time of the first link change, in seconds from the start of the transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_at: Option<f64>,
    /// Bytes that were missing at [`Self::event_at`].
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
    // A transfer of a larger object over one path includes the transfer of the smaller one.
    let reached =
        |run: &Figures| Some(run.single_path_times.iter().find(|reached| reached.0 == bytes)?.1);
    cell.values(|run| run.contender == contender, reached)
}

/// T\* or the fluid bound of an object, by round.
pub fn by_round(moments: &[LowerBound], bytes: u64) -> BTreeMap<u32, f64> {
    let of = moments.iter().filter(|bound| bound.bytes == bytes);
    of.map(|bound| (bound.round, bound.seconds)).collect()
}

/// Sorted sizes of all objects.
pub fn sizes(cell: &Record) -> Vec<u64> {
    let mut sizes: Vec<u64> = cell.extra.fluid.iter().map(|bound| bound.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// All contenders for an object, in the order of the plan.
pub fn contenders(cell: &Record, bytes: u64) -> Vec<&str> {
    cell.distinct(|run| {
        let passed = run.figures.single_path_times.iter().any(|reached| reached.0 == bytes);
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
        large.figures.single_path_times = vec![(5, 0.5)];
        let cell = Record { runs: vec![large], ..Record::default() };
        assert_eq!(times(&cell, "wifi alone", 5), BTreeMap::from([(3, 0.5)]));
        assert_eq!(times(&cell, "wifi alone", 9), BTreeMap::from([(3, 1.0)]));
        assert_eq!(contenders(&cell, 5), ["wifi alone"]);
        assert!(contenders(&cell, 7).is_empty());
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut run = run(0, "a", 5, None);
        run.figures.response_delays = vec![(0.1, 0.2)];
        let cell = Record { runs: vec![run], ..Record::default() };
        let text = serde_json::to_string(&cell).unwrap();
        let back: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(back.runs, cell.runs);
    }
}
