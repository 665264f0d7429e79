//! States of the exchanges and connections of a drive.

use std::collections::BTreeSet;

use manyways_unit::{Span, Time};

use super::outcome::{ConnectionOutcome, ExchangeOutcome};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Open(usize),
    Due(usize),
    /// The lag after the readiness of the connection has passed.
    Lag(usize),
    Cancel(usize),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Conditions are missing, or a timer or the connection is.
    #[default]
    Waiting,
    Sent,
    Over,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Running {
    pub(super) state: State,
    /// Exchanges that have to end or be sent first.
    pub(super) conditions: u8,
    /// Time at which all conditions so far are met.
    pub(super) due: Time,
    /// Exchanges and connections that wait for the end of this one, and for how long after it.
    pub(super) followers: Vec<(Follower, Span)>,
    /// Exchange that waits until the request is sent.
    pub(super) pipelined: Option<usize>,
    pub(super) times: ExchangeOutcome,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Follower {
    Exchange(usize),
    Connection(usize),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Closed,
    /// The action to open it was not yet returned.
    Requested,
    Opening,
    Ready(Time),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    pub(super) phase: Phase,
    /// Exchanges that are due, and wait until the connection is ready.
    pub(super) waiting: Vec<usize>,
    /// Exchanges with a request sent and a response to come.
    pub(super) in_flight: BTreeSet<usize>,
    /// Exchanges that are not over.
    pub(super) left: usize,
    /// Whether the result of the first attempt is awaited for the end of the drive.
    pub(super) is_planned: bool,
    pub(super) times: ConnectionOutcome,
}
