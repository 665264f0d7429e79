//! Totals of all transfers, and the line with the rates on a terminal.

use std::collections::{HashMap, HashSet};
use std::io::IsTerminal;

use manyways_net::fetch::gateway::Counters;
use manyways_net::fetch::{Location, PathSpec, Progress, Report};
use manyways_unit::{Size, Time};
use serde::Serialize;

use crate::get::progress::block::Block;
use crate::get::progress::rate_meter::RateMeter;
use crate::get::progress::{width, write_to_terminal};

/// Notes that are printed, each once: the same ones would come with every object.
const MAX_NOTES: usize = 100;

/// The last line of `--json`, described in docs/get.md.
#[derive(Serialize)]
pub struct Summary {
    requests: u64,
    refused_requests: u64,
    transfers: u64,
    failed_transfers: u64,
    bytes: u64,
    metered_bytes: u64,
    duplicate_bytes: u64,
    paths: Vec<PathTotal>,
}

manyways_record::document!(Summary, "manyways.serve-summary/1");

/// The totals of a network.
#[derive(Clone, Default, Serialize)]
struct PathTotal {
    name: String,
    metered: bool,
    bytes: u64,
    requests: u64,
    duplicate_bytes: u64,
}

/// State of the outputs.
pub struct Board {
    is_terminal: bool,
    block: Block,
    /// In the order in which they became known.
    paths: Vec<PathTotal>,
    meters: Vec<RateMeter>,
    /// Bytes of each path in the transfers under way.
    running: HashMap<u64, Vec<(String, u64)>>,
    notes: HashSet<String>,
    transfers: u64,
    failed: u64,
    bytes: u64,
    metered: u64,
    duplicate: u64,
}

impl Board {
    pub fn new(paths: &[PathSpec]) -> Self {
        let paths = paths.iter().map(|path| PathTotal {
            name: path.name.clone(),
            metered: path.metered,
            ..PathTotal::default()
        });
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            block: Block::default(),
            paths: paths.collect(),
            meters: Vec::new(),
            running: HashMap::new(),
            notes: HashSet::new(),
            transfers: 0,
            failed: 0,
            bytes: 0,
            metered: 0,
            duplicate: 0,
        }
    }

    pub fn begin(&mut self, transfer: u64, url: &Location) {
        tracing::info!("transfer {transfer}: {url}");
        self.transfers += 1;
        self.running.insert(transfer, Vec::new());
    }

    pub fn progress(&mut self, transfer: u64, progress: &Progress) {
        let paths = progress.paths.iter();
        let bytes = paths.map(|path| (path.name.clone(), path.bytes.as_bytes())).collect();
        self.running.insert(transfer, bytes);
    }

    pub fn end(&mut self, transfer: u64, report: &Report, has_failed: bool) {
        self.running.remove(&transfer);
        self.failed += u64::from(has_failed);
        self.bytes += report.bytes.as_bytes();
        self.metered += report.metered.as_bytes();
        self.duplicate += report.duplicate.as_bytes();
        for path in &report.paths {
            let at = self.paths.iter().position(|known| known.name == path.name);
            let at = at.unwrap_or_else(|| {
                let (name, metered) = (path.name.clone(), path.metered);
                self.paths.push(PathTotal { name, metered, ..PathTotal::default() });
                self.paths.len() - 1
            });
            if let Some(total) = self.paths.get_mut(at) {
                total.bytes += path.bytes.as_bytes();
                total.requests += path.requests;
                total.duplicate_bytes += path.duplicate.as_bytes();
            }
        }
    }

    /// Prints a note, once.
    pub fn note(&mut self, words: &str) {
        if self.notes.len() < MAX_NOTES && self.notes.insert(words.to_owned()) {
            self.clear();
            eprintln!("manyways: {words}");
        }
    }

    pub fn fail(&mut self, url: &str, words: &str) {
        self.clear();
        eprintln!("manyways: {url}: {words}");
    }

    /// Draws the rate of each network on a terminal.
    pub fn show(&mut self, now: Time) {
        if !self.is_terminal {
            return;
        }
        self.meters.resize_with(self.paths.len(), RateMeter::default);
        let mut parts = Vec::new();
        let elapsed = now.since(Time::ZERO);
        for (path, meter) in self.paths.iter().zip(&mut self.meters) {
            let running = self.running.values().flatten().filter(|(name, _)| *name == path.name);
            let bytes = path.bytes + running.map(|(_, bytes)| bytes).sum::<u64>();
            meter.observe(elapsed, Size::from_bytes(bytes));
            let rate = meter.rate(elapsed).map_or("idle".to_owned(), |rate| rate.to_string());
            parts.push(format!("{} {rate}", path.name));
        }
        let (count, width) = (self.running.len(), width());
        let objects = if count == 1 { "object" } else { "objects" };
        let line: String = format!("{}  ({count} {objects})", parts.join("  "));
        let line = line.chars().take(width.saturating_sub(3)).collect();
        write_to_terminal(&self.block.draw(&[line], width));
    }

    pub fn clear(&mut self) {
        if self.is_terminal {
            write_to_terminal(&self.block.erase(width()));
        }
    }

    pub fn summary(&self, counters: Counters) -> Summary {
        Summary {
            requests: counters.requests,
            refused_requests: counters.refused,
            transfers: self.transfers,
            failed_transfers: self.failed,
            bytes: self.bytes,
            metered_bytes: self.metered,
            duplicate_bytes: self.duplicate,
            paths: self.paths.clone(),
        }
    }

    /// Prints the summary.
    pub fn print(&self, counters: Counters) {
        let bytes = Size::from_bytes(self.bytes);
        let requests = if counters.requests == 1 { "request" } else { "requests" };
        eprintln!("manyways: {bytes} for {} {requests}", counters.requests);
        let width = self.paths.iter().map(|path| path.name.len()).max().unwrap_or(0);
        for path in &self.paths {
            let bytes = Size::from_bytes(path.bytes);
            let share = crate::get::progress::share(bytes, Size::from_bytes(self.bytes));
            let metered = if path.metered { ", metered" } else { "" };
            eprintln!("  {:width$}  {share:>5}  {bytes}{metered}", path.name);
        }
        if self.failed > 0 {
            eprintln!("  objects that failed: {}", self.failed);
        }
    }
}

#[cfg(test)]
mod tests {
    use manyways_net::fetch::PathProgress;

    use super::*;

    fn report(paths: &[(&str, u64)]) -> Report {
        let paths = paths.iter().map(|(name, bytes)| manyways_net::fetch::PathReport {
            name: (*name).to_owned(),
            metered: *name == "lte",
            limit_reached: false,
            server: None,
            protocol: None,
            bytes: Size::from_bytes(*bytes),
            requests: 2,
            rate: manyways_unit::Rate::ZERO,
            rtt: None,
            overshoot: Size::ZERO,
            duplicate: Size::from_bytes(1),
        });
        let paths: Vec<_> = paths.collect();
        Report {
            url: String::new(),
            bytes: paths.iter().map(|path| path.bytes).sum(),
            length: None,
            elapsed: manyways_unit::Span::ZERO,
            first_byte: None,
            sha256: None,
            validator: None,
            validator_kind: None,
            changed: false,
            version: None,
            metered: Size::ZERO,
            duplicate: Size::from_bytes(2),
            retries: 0,
            ignores_ranges: false,
            paths,
        }
    }

    #[test]
    fn totals_are_those_of_all_transfers_and_of_paths_that_joined() {
        let mut board = Board::new(&[PathSpec::from_address("wifi", [127, 0, 0, 1].into())]);
        let url = Location::parse("http://a/b").expect("a URL");
        board.begin(1, &url);
        board.begin(2, &url);
        let paths = vec![PathProgress {
            name: "wifi".into(),
            bytes: Size::from_bytes(5),
            rate: None,
            rtt: None,
        }];
        board.progress(1, &Progress { paths, ..Progress::default() });
        board.end(1, &report(&[("wifi", 10)]), false);
        board.end(2, &report(&[("wifi", 20), ("lte", 30)]), true);
        let summary = board.summary(Counters { requests: 3, refused: 1 });
        assert_eq!((summary.transfers, summary.failed_transfers, summary.bytes), (2, 1, 60));
        let paths: Vec<_> =
            summary.paths.iter().map(|path| (path.name.as_str(), path.bytes)).collect();
        assert_eq!(paths, [("wifi", 30), ("lte", 30)]);
        assert!(summary.paths[1].metered && board.running.is_empty());
    }
}
