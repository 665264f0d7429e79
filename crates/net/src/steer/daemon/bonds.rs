//! The clients of bonds whose auto rules follow the choices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use manyways_model::select::Goal;
use manyways_proto::bond::path::PathState;
use manyways_unit::Size;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Done;
use crate::bond::control::{BondRole, ControlRequest, ControlResponse};
use crate::bond::{ChoiceRequest, EndedStream, Status};
use crate::control;
use crate::steer::protocol::EndedTransfer;

/// Seconds after which a client forgets a choice that is not renewed.
const LEASE: f64 = 15.0;

/// Time for the answer to a choice, for which other choices wait. The next report repeats it.
const ANSWER: Duration = Duration::from_secs(1);

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
    /// The last streams that have ended, and the transfers of those that the report before has not.
    streams: Vec<EndedStream>,
    pub(super) ended: Vec<EndedTransfer>,
    pub(super) fault: Option<String>,
}

/// The choices for a client. Requests to it wait for each other, and each one has the choice of the moment
/// when it is sent, so that an old choice never follows a new one.
#[derive(Debug, Default)]
struct Wanted {
    /// The networks for each goal.
    networks: Mutex<BTreeMap<String, Vec<String>>>,
    sending: Mutex<()>,
}

/// A client, as of its last report.
#[derive(Debug, Default)]
struct Known {
    wanted: Arc<Wanted>,
    goals: Vec<String>,
    carried: Size,
    /// The last streams that had ended; `None` before the first report.
    ended: Option<Vec<EndedStream>>,
    is_asked: bool,
}

impl Wanted {
    fn set(&self, goal: &str, networks: &[String]) {
        locked(&self.networks).insert(goal.to_owned(), networks.to_vec());
    }

    fn send<R>(&self, goal: &str, send: impl FnOnce(&[String]) -> R) -> R {
        let _turn = locked(&self.sending);
        let networks = locked(&self.networks).get(goal).cloned().unwrap_or_default();
        send(&networks)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            let (name, before, done) = (name.clone(), known.ended.clone(), done.clone());
            spawn_blocking(move || {
                let report = report(name, before.as_deref());
                let _ = done.send(Done::Bond(report));
            });
        }
    }

    pub(super) fn on_report(&mut self, report: BondReport) {
        if let Some(known) = self.0.get_mut(&report.name) {
            known.is_asked = false;
            (known.goals, known.carried) = (report.goals, report.carried);
            // A client that does not answer has no streams to compare with.
            known.ended = report.fault.is_none().then_some(report.streams);
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

    /// Notes a choice; returns what sends it to each client with rules of this goal.
    fn want(
        &self,
        goal: &str,
        networks: &[String],
    ) -> impl Iterator<Item = impl FnOnce() -> Result<ControlResponse, String> + Send + use<>> {
        let with_goal =
            self.0.iter().filter(move |(_, known)| known.goals.iter().any(|one| one == goal));
        with_goal.map(move |(name, known)| {
            known.wanted.set(goal, networks);
            let (name, goal, wanted) = (name.clone(), goal.to_owned(), Arc::clone(&known.wanted));
            move || wanted.send(&goal, |networks| ask(&name, &request(&goal, networks)))
        })
    }

    /// Sends a choice to the clients with rules of this goal.
    pub(super) async fn choose(&self, goal: &str, networks: &[String]) -> Result<(), String> {
        let mut fault = Ok(());
        for send in self.want(goal, networks) {
            let late = "a bond does not answer".to_owned();
            let sent = timeout(ANSWER, spawn_blocking(send)).await;
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
        self.want(goal, networks).for_each(|send| drop(spawn_blocking(send)));
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

fn report(name: String, before: Option<&[EndedStream]>) -> BondReport {
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

fn evaluate(name: String, before: Option<&[EndedStream]>, status: &Status) -> BondReport {
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
    report.streams.clone_from(&status.ended);
    // Without a report before, it is unknown which ones were counted.
    let is_new = |one: &&EndedStream| before.is_some_and(|before| !before.contains(one));
    for one in status.ended.iter().filter(is_new) {
        let destination = one.destination.rsplit_once(':').map(|(host, _)| host.to_owned());
        let host = one.domain.clone().or(destination);
        for (size, up) in [(one.down_bytes, false), (one.up_bytes, true)] {
            let (app, host) = (one.process.clone(), host.clone());
            report.ended.push(EndedTransfer { host, app, size, up });
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(stream: u64, down_bytes: u64) -> EndedStream {
        EndedStream {
            stream,
            destination: "192.0.2.1:443".to_owned(),
            domain: None,
            process: Some("curl".to_owned()),
            up_bytes: 80,
            down_bytes,
        }
    }

    #[test]
    fn a_choice_that_is_repeated_late_is_the_new_one() {
        let bonds = Bonds(BTreeMap::from([(
            "a".to_owned(),
            Known { goals: vec!["fast".to_owned()], ..Known::default() },
        )]));
        let (lte, wifi) = (["lte".to_owned()], ["wifi".to_owned()]);
        let wanted = &bonds.0["a"].wanted;
        assert_eq!(bonds.want("fast", &lte).count(), 1, "its repetition waits for a thread");
        assert_eq!(bonds.want("thrifty", &lte).count(), 0);
        assert_eq!(bonds.want("fast", &wifi).count(), 1);
        assert_eq!(wanted.send("fast", <[String]>::to_vec), wifi);
        std::thread::scope(|scope| {
            let sent = wanted.send("fast", |networks| {
                let late = scope.spawn(|| wanted.send("fast", <[String]>::to_vec));
                wanted.set("fast", &lte);
                (networks.to_vec(), late)
            });
            assert_eq!(sent.0, wifi);
            assert_eq!(sent.1.join().unwrap(), lte, "it waited for the request before");
        });
    }

    #[test]
    fn a_stream_that_has_ended_is_counted_once() {
        let status = manyways_record::document::parse::<Status>(
            br#"{"schema":"manyways.bond-status/2","name":"a","version":"1","uptime_seconds":1,"policy":null,
            "paths":[],"stream_count":0,"streams":[],"totals":{"sent_bytes":0,"reinjected_bytes":0,
            "spurious_bytes":0,"received_bytes":0,"duplicate_bytes":0,"header_bytes":0,"dropped_datagrams":0}}"#,
        )
        .unwrap();
        let sizes = |before: Option<&[EndedStream]>, now: &[EndedStream]| -> Vec<u64> {
            let status = Status { ended: now.to_vec(), ..status.clone() };
            evaluate("a".to_owned(), before, &status).ended.iter().map(|one| one.size).collect()
        };
        // Numbers may begin again, after a restart of the client.
        let (first, second, other) = (ended(1, 3_000), ended(2, 500), ended(1, 7));
        assert!(sizes(None, std::slice::from_ref(&first)).is_empty(), "before this process");
        let before = [first.clone(), second];
        assert_eq!(sizes(Some(&before[..1]), &before), [500, 80]);
        assert_eq!(sizes(Some(&before), &[other]), [7, 80]);
        let report = evaluate("a".to_owned(), Some(&[]), &Status { ended: vec![first], ..status });
        assert_eq!(report.ended[0].host.as_deref(), Some("192.0.2.1"));
    }
}
