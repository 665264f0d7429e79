//! What a client did, for its event log.

use std::cell::RefCell;
use std::collections::HashMap;

use manyways_proto::bond::path::PathState;
use manyways_proto::mux::Counters;
use manyways_proto::sched::PathId;
use manyways_record::event::Record;
use manyways_unit::Time;
use tokio::sync::mpsc;

use super::event::{BondEvent, BondOpen, BondShare};
use super::rules::{Fate, Traffic};
use super::surroundings::PathView;
use super::tally::Counted;

/// Tells what happens to whoever keeps a log.
#[derive(Debug, Default)]
pub struct Journal {
    records: Option<mpsc::UnboundedSender<Record<BondEvent>>>,
    said: RefCell<Said>,
}

/// What was said last.
#[derive(Debug, Default)]
struct Said {
    paths: HashMap<PathId, PathState>,
    reinjected: u64,
}

impl Journal {
    /// A journal, and what is told.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Record<BondEvent>>) {
        let (records, told) = mpsc::unbounded_channel();
        (Self { records: Some(records), ..Self::default() }, told)
    }

    /// Something happened, where somebody wants to know.
    pub(super) fn tell(&self, time: Time, event: impl FnOnce() -> BondEvent) {
        if let Some(records) = &self.records {
            let _ = records.send(Record { time, event: event() });
        }
    }

    /// The paths look like this now.
    pub(super) fn paths(&self, time: Time, views: &[PathView]) {
        if self.records.is_none() {
            return;
        }
        for view in views {
            let before = self.said.borrow_mut().paths.insert(view.facts.id, view.state);
            if before != Some(view.state) {
                let state = view.state.name().to_owned();
                self.tell(time, || BondEvent::BondPath { path: view.facts.name.clone(), state });
            }
        }
    }

    /// The session has done so much.
    pub(super) fn counters(&self, time: Time, counters: Counters) {
        let mut said = self.said.borrow_mut();
        if said.reinjected != counters.reinjected {
            said.reinjected = counters.reinjected;
            self.tell(time, || BondEvent::BondReinjection {
                bytes: counters.reinjected,
                spurious_bytes: counters.spurious,
            });
        }
    }
}

/// A connection became a stream.
pub(super) fn open(stream: u64, traffic: &Traffic) -> BondEvent {
    let facts = traffic.facts.borrow();
    BondEvent::BondOpen(BondOpen {
        stream,
        to: facts.to.to_string(),
        domain: facts.domain.as_ref().map(ToString::to_string),
        process: facts.process.clone(),
        rule: traffic.rule.borrow().clone(),
    })
}

/// The policy decided about it.
pub(super) fn decision(stream: Option<u64>, traffic: &Traffic) -> BondEvent {
    BondEvent::BondPolicy {
        stream,
        to: traffic.facts.borrow().to.to_string(),
        rule: traffic.rule.borrow().clone(),
        decision: traffic.fate.get().word().to_owned(),
    }
}

/// A stream is over. `name` is that of a path.
pub(super) fn close(
    now: Time,
    traffic: &Traffic,
    counted: &Counted,
    name: impl Fn(PathId) -> String,
) -> BondEvent {
    let share = |(path, share): (&PathId, &super::tally::Share)| {
        (name(*path), BondShare { sent: share.sent, received: share.received })
    };
    BondEvent::BondClose {
        stream: counted.number,
        seconds: now.since(traffic.since).as_secs_f64(),
        up_bytes: counted.up,
        down_bytes: counted.down,
        paths: counted.shares.iter().map(share).collect(),
    }
}

impl Fate {
    /// The word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Bond(_) => "bond",
            Self::Direct => "direct",
            Self::Block => "block",
        }
    }
}
