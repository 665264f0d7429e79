//! `replay --drive`: the recorded requests themselves, over each way to use the links.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use manyways_lab::registry::Registry;
use manyways_lab::{Lab, LabSpec, Node, address};
use manyways_net::authority::Authority;
use manyways_net::fetch::{PathSpec, Trust};
use manyways_net::replay::driver::{Driven, Fetching, Script, Way, run};
use manyways_net::replay::{Contents, Layout, Options, Outcome, Served, Server, listen};
use manyways_record::document::to_json_pretty;
use manyways_report::text::table;
use serde::Serialize;

use super::bond::{Bond, add_gateway};
use crate::failure::Failure;
use crate::lab::lab_failure;
use crate::report_file;

/// Congestion control of single paths, of `get` and of the bond, as most servers and phones have it.
const SINGLE_PATH_CC: &str = "cubic";
/// Of MPTCP whose subflows are independent, as in Deng's thesis.
const DECOUPLED_CC: &str = "reno";
/// Of MPTCP whose subflows are coupled (RFC 6356).
const COUPLED_CC: &str = "lia";
/// Congestion controls of this kernel.
const AVAILABLE_CC: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// The JSON document.
#[derive(Serialize)]
struct ReplayDrive {
    recording: String,
    exchanges: usize,
    connections: usize,
    rounds: usize,
    ways: Vec<WayRow>,
}
manyways_record::document!(ReplayDrive, "manyways.replay-drive/1");

/// One way to use the links.
#[derive(Serialize)]
struct WayRow {
    name: String,
    congestion_control: String,
    /// Why it was not run. `None` if it was.
    not_run: Option<String>,
    /// Median of the runs without failed exchanges.
    app_response_seconds: Option<f64>,
    /// The same, divided by that of the first way.
    ratio: Option<f64>,
    runs: Vec<RunRow>,
}

#[derive(Serialize)]
struct RunRow {
    app_response_seconds: Option<f64>,
    last_byte_seconds: Option<f64>,
    failed: usize,
    /// Requests that no recorded exchange answered.
    missed: usize,
    /// Whether all exchanges ended within the time limit.
    is_complete: bool,
}

/// A way and how it is set up.
struct Choice {
    name: String,
    cc: String,
    kind: Kind,
    not_run: Option<String>,
}

enum Kind {
    Direct(Way),
    /// As `manyways get` does.
    Get,
    Bond,
}

/// The values that all runs share.
pub struct Drive<'a> {
    pub registry: &'a Registry,
    pub file: &'a Path,
    pub contents: Arc<Contents>,
    pub layout: &'a Layout,
    pub authority: Arc<Authority>,
    pub options: Options,
    pub rounds: usize,
    /// Congestion control of all ways, if the user chose one.
    pub cc: Option<String>,
    pub json: Option<&'a Path>,
}

impl Drive<'_> {
    /// Runs all ways, interleaved, each in a lab of its own.
    pub fn run(&self, spec: &LabSpec) -> Result<ExitCode> {
        let script =
            Script::new(&self.contents, self.layout).context("cannot read the requests")?;
        let choices = choices(spec, self.cc.as_deref());
        let mut rows: Vec<WayRow> = choices.iter().map(WayRow::new).collect();
        let bar = ProgressBar::new((self.rounds * choices.len()) as u64);
        if !std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        for _ in 0..self.rounds {
            for (choice, row) in choices.iter().zip(&mut rows) {
                bar.set_message(choice.name.clone());
                if choice.not_run.is_none() {
                    row.runs.push(self.one(spec, &script, choice)?);
                }
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        rows.iter_mut().for_each(WayRow::finish);
        let base = rows.first().and_then(|row| row.app_response_seconds);
        for row in &mut rows {
            row.ratio = row.app_response_seconds.zip(base).map(|(own, base)| own / base);
        }
        let document = ReplayDrive {
            recording: self.file.display().to_string(),
            exchanges: script.plan().exchanges().len(),
            connections: script.plan().connections().len(),
            rounds: self.rounds,
            ways: rows,
        };
        document.print();
        if let Some(path) = self.json {
            let text = to_json_pretty(&document).context("cannot format the results")?;
            report_file::write(path, &text)?;
        }
        let has_result = document.ways.iter().any(|way| way.app_response_seconds.is_some());
        Ok(if has_result { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn one(&self, spec: &LabSpec, script: &Script, choice: &Choice) -> Result<RunRow> {
        let mut spec = spec.clone();
        spec.cc.clone_from(&choice.cc);
        if matches!(choice.kind, Kind::Bond) {
            add_gateway(&mut spec);
        }
        let mut lab = Lab::start(self.registry, spec).map_err(lab_failure)?;
        let is_mptcp = matches!(&choice.kind, Kind::Direct(way) if way.is_mptcp);
        let listeners = lab.namespace(Node::Host(0)).run(|| listen(&self.layout.ports, is_mptcp));
        let listeners = listeners.context("cannot listen in the lab")?;
        let certificates = Arc::clone(&self.authority);
        let server =
            Server::start(Arc::clone(&self.contents), self.options, certificates, listeners)
                .context("cannot start the servers of the replay")?;
        let (way, bond) = match &choice.kind {
            Kind::Direct(way) => (way.clone(), None),
            Kind::Get => (self.get(&lab)?, None),
            Kind::Bond => (Way::default(), Some(Bond::start(&mut lab)?)),
        };
        let authority = self.authority.certificate();
        let driven = lab.namespace(Node::Device(0)).run(|| run(script, &way, authority));
        drop(bond);
        let (served, _) = server.stop();
        let is_missed = |one: &&Served| matches!(one.outcome, Outcome::Miss { .. });
        let missed = served.iter().filter(is_missed).count();
        Ok(RunRow::new(&driven.context("cannot issue the requests")?, missed))
    }

    fn get(&self, lab: &Lab) -> Result<Way> {
        let trusted = lab.folder().join("authority.pem");
        fs::write(&trusted, self.authority.certificate_pem())
            .context("cannot write the certificate of the servers")?;
        let paths = lab.links().iter().enumerate().map(|(index, link)| {
            let addresses = address::device(index);
            let mut path = PathSpec::from_address(&link.name, addresses[0]);
            (path.device, path.addresses) = (Some(link.name.clone()), addresses.to_vec());
            path
        });
        let fetching = Fetching { paths: paths.collect(), trust: Trust::File(trusted) };
        let sources = address::device(0).to_vec();
        Ok(Way { sources, is_mptcp: false, fetching: Some(fetching) })
    }
}

fn choices(spec: &LabSpec, cc: Option<&str>) -> Vec<Choice> {
    let cc = |own: &str| cc.unwrap_or(own).to_owned();
    let available = fs::read_to_string(AVAILABLE_CC).unwrap_or_default();
    let way = |index: usize, is_mptcp| {
        Kind::Direct(Way { sources: address::device(index).to_vec(), is_mptcp, fetching: None })
    };
    let mut all = Vec::new();
    for (index, link) in spec.links.iter().enumerate() {
        let (name, cc) = (format!("TCP over {}", link.name), cc(SINGLE_PATH_CC));
        all.push(Choice { name, cc, kind: way(index, false), not_run: None });
    }
    if spec.links.len() < 2 {
        return all;
    }
    for (kind, own) in [("coupled", COUPLED_CC), ("decoupled", DECOUPLED_CC)] {
        for (index, link) in spec.links.iter().enumerate().take(2) {
            let cc = cc(own);
            let is_there = available.split_whitespace().any(|known| known == cc);
            let reason = format!("this kernel has no congestion control `{cc}`");
            all.push(Choice {
                name: format!("MPTCP, {kind}, first over {}", link.name),
                kind: way(index, true),
                not_run: (!is_there).then_some(reason),
                cc,
            });
        }
    }
    for (name, kind) in [("get", Kind::Get), ("bond", Kind::Bond)] {
        all.push(Choice { name: name.to_owned(), cc: cc(SINGLE_PATH_CC), kind, not_run: None });
    }
    all
}

impl WayRow {
    fn new(choice: &Choice) -> Self {
        Self {
            name: choice.name.clone(),
            congestion_control: choice.cc.clone(),
            not_run: choice.not_run.clone(),
            app_response_seconds: None,
            ratio: None,
            runs: Vec::new(),
        }
    }

    fn finish(&mut self) {
        let whole = self.runs.iter().filter(|run| run.failed == 0 && run.is_complete);
        let mut times: Vec<f64> = whole.filter_map(|run| run.app_response_seconds).collect();
        times.sort_by(f64::total_cmp);
        self.app_response_seconds = times.get(times.len() / 2).copied();
    }

    fn cells(&self) -> Vec<String> {
        let seconds = |seconds: Option<f64>| match seconds {
            Some(seconds) => format!("{seconds:.3} s"),
            None => String::new(),
        };
        let times = self.runs.iter().filter_map(|run| run.app_response_seconds);
        let (least, most) = times
            .fold((f64::MAX, 0.0_f64), |(least, most), time| (least.min(time), most.max(time)));
        let spread = match most > 0.0 {
            true => format!("{least:.3} to {most:.3} s"),
            false => String::new(),
        };
        let failed: usize = self.runs.iter().map(|run| run.failed).sum();
        let remark = match &self.not_run {
            Some(reason) => format!("not run: {reason}"),
            None => {
                let missed: usize = self.runs.iter().map(|run| run.missed).sum();
                let words = [(failed, "failed"), (missed, "without an answer")];
                let words = words.iter().filter(|(count, _)| *count > 0);
                let words = words.map(|(count, word)| format!("{count} requests {word}"));
                words.collect::<Vec<_>>().join(", ")
            }
        };
        vec![
            self.name.clone(),
            self.congestion_control.clone(),
            seconds(self.app_response_seconds),
            self.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            spread,
            remark,
        ]
    }
}

impl RunRow {
    fn new(driven: &Driven, missed: usize) -> Self {
        let outcome = &driven.outcome;
        Self {
            app_response_seconds: outcome.app_response_time().map(|span| span.as_secs_f64()),
            last_byte_seconds: outcome.last_byte_time().map(|span| span.as_secs_f64()),
            failed: outcome.failed(),
            missed,
            is_complete: driven.is_complete,
        }
    }
}

impl ReplayDrive {
    fn print(&self) {
        let head = ["way", "congestion control", "app response time", "ratio", "range", ""];
        print!("{}", table(&head, self.ways.iter().map(WayRow::cells)));
        let best = self.ways.iter().filter(|way| way.ratio.is_some());
        let best = best.min_by(|one, other| {
            one.ratio.partial_cmp(&other.ratio).unwrap_or(std::cmp::Ordering::Equal)
        });
        if let (Some(best), Some(first)) = (best, self.ways.first())
            && let Some(ratio) = best.ratio.filter(|ratio| *ratio < 1.0)
        {
            println!(
                "\nfastest: {}, {:.0} % less than {}",
                best.name,
                100.0 * (1.0 - ratio),
                first.name
            );
        }
    }
}

/// Rounds of a drive.
pub fn check_rounds(rounds: usize) -> Result<(), Failure> {
    match rounds {
        1..=1000 => Ok(()),
        _ => Failure::refuse("a drive has 1 to 1000 rounds", "for example --rounds 5"),
    }
}
