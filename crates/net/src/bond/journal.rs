//! Events of a client for its event log.

use std::cell::RefCell;
use std::collections::HashMap;

use manyways_proto::bond::path::{PathBytes, PathSnapshot, PathState};
use manyways_proto::bond::routing::AppFlow;
use manyways_proto::mux::Counters;
use manyways_proto::sched::PathId;
use manyways_record::event::Record;
use manyways_unit::Time;
use tokio::sync::mpsc;

use super::event::{BondEvent, BondOpen, BondShare};
use super::flow_counters::StreamTotals;

/// Sends records to the writer of an event log. The default sends none.
#[derive(Debug, Default)]
pub struct Journal {
    records: Option<mpsc::UnboundedSender<Record<BondEvent>>>,
    last_reported: RefCell<LastReported>,
}

#[derive(Debug, Default)]
struct LastReported {
    paths: HashMap<PathId, PathState>,
    reinjected: u64,
}

impl Journal {
    /// Creates a journal, and the receiver of its records.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Record<BondEvent>>) {
        let (records, receiver) = mpsc::unbounded_channel();
        (Self { records: Some(records), ..Self::default() }, receiver)
    }

    /// Records an event. `event` is only called if a log is written.
    pub(super) fn record(&self, time: Time, event: impl FnOnce() -> BondEvent) {
        if let Some(records) = &self.records {
            let _ = records.send(Record { time, event: event() });
        }
    }

    /// Records the state of each path whose state has changed.
    pub(super) fn paths(&self, time: Time, paths: &[PathSnapshot]) {
        if self.records.is_none() {
            return;
        }
        for path in paths {
            let before = self.last_reported.borrow_mut().paths.insert(path.facts.id, path.state);
            if before != Some(path.state) {
                let (path, state) = (path.facts.name.clone(), path.state);
                self.record(time, || BondEvent::BondPath { path, state });
            }
        }
    }

    /// Records the reinjected bytes if their number has changed.
    pub(super) fn counters(&self, time: Time, counters: Counters) {
        let mut last = self.last_reported.borrow_mut();
        if last.reinjected != counters.reinjected {
            last.reinjected = counters.reinjected;
            self.record(time, || BondEvent::BondReinjection {
                bytes: counters.reinjected,
                spurious_bytes: counters.spurious,
            });
        }
    }
}

/// Creates the event of a connection that has become a stream.
pub(super) fn open_event(stream: u64, flow: &AppFlow) -> BondEvent {
    BondEvent::BondOpen(BondOpen {
        stream,
        to: flow.facts.destination.to_string(),
        domain: flow.facts.domain.clone(),
        process: flow.facts.process.clone(),
        rule: flow.rule.clone(),
    })
}

/// Creates the event of a decision about a flow.
pub(super) fn policy_event(stream: Option<u64>, flow: &AppFlow) -> BondEvent {
    BondEvent::BondPolicy {
        stream,
        to: flow.facts.destination.to_string(),
        rule: flow.rule.clone(),
        decision: flow.routing.name().to_owned(),
    }
}

/// Creates the event of the end of a stream. `name` returns the name of a path.
pub(super) fn close_event(
    now: Time,
    flow: &AppFlow,
    totals: &StreamTotals,
    name: impl Fn(PathId) -> String,
) -> BondEvent {
    let share = |(path, bytes): (&PathId, &PathBytes)| {
        (name(*path), BondShare { sent: bytes.sent, received: bytes.received })
    };
    BondEvent::BondClose {
        stream: totals.number,
        seconds: now.since(flow.since).as_secs_f64(),
        up_bytes: totals.up,
        down_bytes: totals.down,
        paths: totals.paths.iter().map(share).collect(),
    }
}
