//! The clients of bonds whose auto rules follow the choices.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use manyways_model::select::Goal;
use manyways_proto::bond::path::PathState;
use manyways_unit::Size;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Done;
use crate::bond::control::{BondRole, ControlRequest, ControlResponse};
use crate::bond::{ChoiceRequest, Status};
use crate::control;
use crate::steer::protocol::EndedTransfer;

/// Seconds after which a client forgets a choice that is not renewed.
const LEASE: f64 = 15.0;

/// Time for the answer to a choice, for which other choices wait. The next report repeats it.
const ANSWER: Duration = Duration::from_secs(1);

/// A stream of a client: the program, the host, and the bytes to the device and from it.
type Stream = (Option<String>, Option<String>, u64, u64);

/// The state of a client.
#[derive(Debug, Default)]
pub(super) struct BondReport {
    name: String,
    goals: Vec<String>,
    /// Bytes of all paths so far.
    carried: Size,
    /// Seconds of round trips to the gateway.
    pub(super) round_trips: Vec<(String, f64)>,
    /// Networks whose carriers do not get through.
    pub(super) suspects: Vec<String>,
    streams: BTreeMap<u64, Stream>,
    /// Streams that have ended since the last report.
    pub(super) ended: Vec<EndedTransfer>,
    pub(super) fault: Option<String>,
}

/// A client, as of its last report.
#[derive(Debug, Default)]
struct Known {
    goals: Vec<String>,
    carried: Size,
    streams: BTreeMap<u64, Stream>,
    is_asked: bool,
}

/// All clients.
#[derive(Debug)]
pub(super) struct Bonds(BTreeMap<String, Known>);

impl Bonds {
    pub(super) fn new(names: &[String]) -> Self {
        Self(names.iter().map(|name| (name.clone(), Known::default())).collect())
    }

    /// Asks each client for its status, unless an earlier question waits for its answer.
    pub(super) fn ask(&mut self, done: &mpsc::UnboundedSender<Done>) {
        for (name, known) in self.0.iter_mut().filter(|(_, known)| !known.is_asked) {
            known.is_asked = true;
            let (name, before, done) = (name.clone(), known.streams.clone(), done.clone());
            spawn_blocking(move || {
                let report = report(name, &before);
                let _ = done.send(Done::Bond(report));
            });
        }
    }

    pub(super) fn on_report(&mut self, report: BondReport) {
        if let Some(known) = self.0.get_mut(&report.name) {
            (known.goals, known.streams) = (report.goals, report.streams);
            (known.carried, known.is_asked) = (report.carried, false);
        }
    }

    /// Bytes that the clients with rules of this goal have carried.
    pub(super) fn carried(&self, goal: &str) -> Size {
        let with_goal = self.0.values().filter(|known| known.goals.iter().any(|one| one == goal));
        with_goal.map(|known| known.carried).fold(Size::ZERO, |sum, one| sum + one)
    }

    /// The goals of the auto rules of all clients.
    pub(super) fn goals(&self) -> Vec<(String, Goal)> {
        let names: BTreeSet<&String> = self.0.values().flat_map(|known| &known.goals).collect();
        names.into_iter().filter_map(|name| Some((name.clone(), Goal::named(name)?))).collect()
    }

    fn with_goal(&self, goal: &str) -> impl Iterator<Item = &String> {
        self.0
            .iter()
            .filter(move |(_, known)| known.goals.iter().any(|one| one == goal))
            .map(|one| one.0)
    }

    /// Sends a choice to the clients with rules of this goal.
    pub(super) async fn choose(&self, goal: &str, networks: &[String]) -> Result<(), String> {
        let mut fault = Ok(());
        for name in self.with_goal(goal) {
            let (name, request) = (name.clone(), request(goal, networks));
            let late = format!("the bond {name} does not answer");
            let sent = timeout(ANSWER, spawn_blocking(move || ask(&name, &request))).await;
            let failed = |_| Err("a task of this process has failed".to_owned());
            match sent.map_or(Err(late), |sent| sent.unwrap_or_else(failed)) {
                Ok(ControlResponse::Chosen) => {}
                Ok(ControlResponse::Refused { message, .. }) | Err(message) => fault = Err(message),
                Ok(_) => fault = Err("the bond gives an answer to another question".to_owned()),
            }
        }
        fault
    }

    /// Repeats a choice. A fault shows in the next report.
    pub(super) fn renew(&self, goal: &str, networks: &[String]) {
        for name in self.with_goal(goal) {
            let (name, request) = (name.clone(), request(goal, networks));
            spawn_blocking(move || ask(&name, &request));
        }
    }

    /// Lets the rules of all clients use all paths again.
    pub(super) async fn release(&self) {
        for (goal, _) in self.goals() {
            let _ = self.choose(&goal, &[]).await;
        }
    }
}

fn request(goal: &str, networks: &[String]) -> ControlRequest {
    ControlRequest::Choose(ChoiceRequest {
        goal: goal.to_owned(),
        paths: networks.to_vec(),
        lease_seconds: (!networks.is_empty()).then_some(LEASE),
    })
}

fn ask(name: &str, request: &ControlRequest) -> Result<ControlResponse, String> {
    let service = BondRole::Client.service(name).map_err(|error| error.to_string())?;
    control::ask(&service, request).map_err(|error| error.to_string())
}

fn report(name: String, before: &BTreeMap<u64, Stream>) -> BondReport {
    match ask(&name, &ControlRequest::Status) {
        Ok(ControlResponse::Status(status)) => evaluate(name, before, &status),
        Ok(_) => BondReport {
            fault: Some(format!("the bond {name} gives no status of a client")),
            name,
            ..BondReport::default()
        },
        Err(fault) => BondReport { name, fault: Some(fault), ..BondReport::default() },
    }
}

fn evaluate(name: String, before: &BTreeMap<u64, Stream>, status: &Status) -> BondReport {
    let mut report = BondReport { name, goals: status.auto_goals.clone(), ..BondReport::default() };
    for path in &status.paths {
        report.carried += Size::from_bytes(path.received_bytes + path.sent_bytes);
        match path.state {
            PathState::Suspect => report.suspects.push(path.name.clone()),
            PathState::Up => {
                let round_trip = path.rtt_seconds.filter(|_| path.down_bps > 0);
                report.round_trips.extend(round_trip.map(|one| (path.name.clone(), one)));
            }
            _ => {}
        }
    }
    for stream in &status.streams {
        let Some(number) = stream.stream else { continue };
        let host = stream
            .domain
            .clone()
            .or_else(|| stream.destination.rsplit_once(':').map(|(host, _)| host.to_owned()));
        let known = (stream.process.clone(), host, stream.down_bytes, stream.up_bytes);
        report.streams.insert(number, known);
    }
    // A list that is full lacks streams that go on.
    if status.streams.len() == status.stream_count {
        for (number, (app, host, down, up)) in before {
            if report.streams.contains_key(number) {
                continue;
            }
            for (size, up) in [(*down, false), (*up, true)] {
                let (app, host) = (app.clone(), host.clone());
                report.ended.push(EndedTransfer { host, app, size, up });
            }
        }
    }
    report
}
