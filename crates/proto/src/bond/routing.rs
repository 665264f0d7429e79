//! Routing of connections and datagram flows of applications. [`FlowTable`] evaluates the policy
//! for each flow, again whenever the result may change, and returns the changes for the session.
//!
//! A running flow keeps properties that cannot change: a direct connection stays direct, and a
//! stream in the bond stays there if a rule then decides `direct`. A rule that blocks ends the
//! flow.

mod labels;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use manyways_unit::{Size, Span, Time};

use crate::mux::{Destination, FlowId, StreamId};
use crate::policy::{Decision, Engine, Environment, Explanation, Flow, Policy, Protocol};
use crate::sched::StreamPolicy;
use labels::{LabelChange, Labels};

/// Routing of a flow: the executed [`Decision`] of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Routing {
    /// Through the bond with this label.
    Bond(u8),
    /// Directly to the destination, without the bond.
    Direct,
    /// Refused.
    Block,
}

impl Routing {
    /// Returns the name in output; stable.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bond(_) => "bond",
            Self::Direct => "direct",
            Self::Block => "block",
        }
    }
}

impl From<Decision> for Routing {
    /// Converts a decision before its execution; in the bond the label is 0.
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::Bond(_) => Self::Bond(0),
            Decision::Direct => Self::Direct,
            Decision::Block => Self::Block,
        }
    }
}

/// How a flow is carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carriage {
    /// Not yet carried, or direct.
    None,
    /// As a stream, with its number among all streams of the client.
    Stream(StreamId, u64),
    /// As part of a datagram flow.
    Datagrams(FlowId),
}

/// Known properties of an application's flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowFacts {
    pub protocol: Protocol,
    pub destination: Destination,
    /// Requested name of the server in lower case. `None` if unknown.
    pub domain: Option<String>,
    /// File name of the program, or the kernel's name of the process. `None` if unknown.
    pub process: Option<String>,
    /// User ID. `None` if unknown.
    pub uid: Option<u32>,
    /// User name. `None` if unknown.
    pub user: Option<String>,
    /// Control group path. `None` if unknown.
    pub cgroup: Option<String>,
}

impl FlowFacts {
    /// Creates the facts of a flow without any other known property.
    pub fn new(protocol: Protocol, destination: Destination) -> Self {
        Self {
            protocol,
            destination,
            domain: None,
            process: None,
            uid: None,
            user: None,
            cgroup: None,
        }
    }

    /// Returns the properties for a policy after `bytes` of traffic.
    pub fn attributes(&self, bytes: u64) -> Flow<'_> {
        let (address, port) = match &self.destination {
            Destination::Address(address, port) => (Some(*address), *port),
            Destination::Name(_, port) => (None, *port),
        };
        Flow {
            process: self.process.as_deref(),
            user: self.user.as_deref(),
            uid: self.uid,
            cgroup: self.cgroup.as_deref(),
            domain: self.domain.as_deref(),
            address,
            bytes: Size::from_bytes(bytes),
            ..Flow::new(self.protocol, port)
        }
    }
}

/// Number of a flow in a [`FlowTable`], in order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AppFlowId(u64);

/// A connection of an application, or its datagrams to one destination.
#[derive(Clone, Debug)]
pub struct AppFlow {
    pub facts: FlowFacts,
    /// The deciding rule. `None` for the default.
    pub rule: Option<String>,
    pub routing: Routing,
    pub carriage: Carriage,
    /// Local and remote address of the application's socket.
    pub socket: (SocketAddr, SocketAddr),
    /// Start time.
    pub since: Time,
    /// Bytes sent by the application; not counted for a stream.
    pub up_bytes: u64,
    /// Bytes received by the application; not counted for a stream.
    pub down_bytes: u64,
    /// Whether the flow is delayed; the decision follows the release.
    pub is_delayed: bool,
    /// Whether the policy has decided or the flow is delayed, so that status output lists the flow.
    is_listed: bool,
    /// Number of bytes at which the policy may decide differently. `None` if never.
    reevaluate_at: Option<u64>,
}

/// An action for the shell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Set the policy of a label.
    DefineLabel {
        id: u8,
        stream_policy: StreamPolicy,
    },
    /// Change the label of a stream.
    AssignLabel {
        stream: StreamId,
        /// Already defined.
        label: u8,
    },
    EndStream(StreamId),
    /// Call [`FlowTable::evaluate`] when the stream reaches this number of bytes.
    SetThreshold {
        stream: StreamId,
        /// `None` to clear the threshold.
        bytes: Option<u64>,
    },
    /// The decision about a running stream has changed.
    Decided(AppFlowId),
    /// More than 255 rules have flows in the bond: flows of further rules are blocked. Reported
    /// once.
    LabelsExhausted,
}

/// Returns the bytes of a stream with this number, both directions together; `None` if the stream
/// has ended.
pub type StreamBytes<'a> = dyn Fn(StreamId, u64) -> Option<u64> + 'a;

/// Flows of a client's applications, and the policy for them.
#[derive(Debug)]
pub struct FlowTable {
    engine: Engine,
    observed_at: Time,
    labels: Labels,
    flows: BTreeMap<AppFlowId, AppFlow>,
    streams: BTreeMap<u64, AppFlowId>,
    next_id: u64,
    labels_exhausted: bool,
    outputs: VecDeque<Output>,
    /// Redefinitions of used labels; sent after flows have left these labels.
    redefined: VecDeque<Output>,
}

impl FlowTable {
    /// Creates a table without flows and path observations.
    pub fn new(policy: Policy) -> Self {
        Self {
            engine: Engine::new(policy),
            observed_at: Time::ZERO,
            labels: Labels::default(),
            flows: BTreeMap::new(),
            streams: BTreeMap::new(),
            next_id: 0,
            labels_exhausted: false,
            outputs: VecDeque::new(),
            redefined: VecDeque::new(),
        }
    }

    pub fn policy(&self) -> &Policy {
        self.engine.policy()
    }

    /// Replaces the policy, also for running flows.
    pub fn replace_policy(&mut self, now: Time, policy: Policy, bytes: &StreamBytes<'_>) {
        self.engine.replace(now, policy);
        self.evaluate_all(bytes);
    }

    /// Updates the state of paths and battery at `now`.
    pub fn observe(&mut self, now: Time, environment: &Environment, bytes: &StreamBytes<'_>) {
        self.observed_at = now;
        if self.engine.observe(now, environment) {
            self.evaluate_all(bytes);
        }
    }

    /// Returns when to call [`observe`](Self::observe) again even if nothing changes.
    pub fn next_wakeup(&self) -> Option<Time> {
        let soonest = self.observed_at + Span::from_millis(1);
        self.engine.next_wakeup().map(|wakeup| wakeup.max(soonest))
    }

    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front().or_else(|| self.redefined.pop_front())
    }

    /// Adds a flow without a decision.
    pub fn begin(
        &mut self,
        now: Time,
        facts: FlowFacts,
        socket: (SocketAddr, SocketAddr),
    ) -> AppFlowId {
        let id = AppFlowId(self.next_id);
        self.next_id += 1;
        let flow = AppFlow {
            facts,
            rule: None,
            // Blocked until the policy has decided.
            routing: Routing::Block,
            carriage: Carriage::None,
            socket,
            since: now,
            up_bytes: 0,
            down_bytes: 0,
            is_delayed: false,
            is_listed: false,
            reevaluate_at: None,
        };
        self.flows.insert(id, flow);
        id
    }

    /// Removes a flow.
    pub fn end(&mut self, id: AppFlowId) {
        if let Some(flow) = self.flows.remove(&id)
            && let Carriage::Stream(_, number) = flow.carriage
        {
            self.streams.remove(&number);
        }
    }

    pub fn get(&self, id: AppFlowId) -> Option<&AppFlow> {
        self.flows.get(&id)
    }

    /// Returns the flow of the stream with this number.
    pub fn of_stream(&self, number: u64) -> Option<AppFlowId> {
        self.streams.get(&number).copied()
    }

    /// Returns the routing of a flow; `Block` for an unknown flow.
    pub fn routing(&self, id: AppFlowId) -> Routing {
        self.flows.get(&id).map_or(Routing::Block, |flow| flow.routing)
    }

    /// Returns all listed flows, oldest first.
    pub fn flows(&self) -> impl Iterator<Item = (AppFlowId, &AppFlow)> {
        self.flows.iter().filter(|(_, flow)| flow.is_listed).map(|(id, flow)| (*id, flow))
    }

    /// Returns the policy of a label, or `None` if the label is undefined.
    pub fn stream_policy(&self, label: u8) -> Option<StreamPolicy> {
        self.labels.stream_policy(label)
    }

    /// Returns the result of each rule for a flow.
    pub fn explain(&self, flow: &Flow<'_>) -> Explanation {
        self.engine.explain(flow)
    }

    /// Adds properties of a flow without a new decision.
    pub fn update_facts(&mut self, id: AppFlowId, learn: impl FnOnce(&mut FlowFacts)) {
        if let Some(flow) = self.flows.get_mut(&id) {
            learn(&mut flow.facts);
        }
    }

    /// Returns the decision about a flow without traffic, and the deciding rule.
    pub fn preview(&self, id: AppFlowId) -> (Decision, Option<String>) {
        let Some(flow) = self.flows.get(&id) else { return (Decision::Block, None) };
        let verdict = self.engine.decide(&flow.facts.attributes(0));
        (verdict.decision, verdict.rule.map(str::to_owned))
    }

    /// Marks a flow as delayed by a rule and lists it.
    pub fn delay(&mut self, id: AppFlowId, rule: Option<String>) {
        if let Some(flow) = self.flows.get_mut(&id) {
            (flow.is_delayed, flow.is_listed, flow.rule) = (true, true, rule);
        }
    }

    /// Ends the delay of a flow, which then has no decision.
    pub fn release(&mut self, id: AppFlowId) {
        if let Some(flow) = self.flows.get_mut(&id) {
            (flow.is_delayed, flow.is_listed) = (false, false);
        }
    }

    /// Sets how a flow is carried.
    pub fn set_carriage(&mut self, id: AppFlowId, carriage: Carriage) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.carriage = carriage;
        flow.is_listed = true;
        if let Carriage::Stream(stream, number) = carriage {
            self.streams.insert(number, id);
            self.outputs.push_back(Output::SetThreshold { stream, bytes: flow.reevaluate_at });
        }
    }

    /// Sets the total bytes of a direct connection.
    pub fn set_bytes(&mut self, id: AppFlowId, up: u64, down: u64) {
        if let Some(flow) = self.flows.get_mut(&id) {
            (flow.up_bytes, flow.down_bytes) = (up, down);
        }
    }

    /// Counts a datagram of a flow. Returns whether the policy has decided again.
    pub fn count_datagram(&mut self, id: AppFlowId, up: usize, down: usize) -> bool {
        let Some(flow) = self.flows.get_mut(&id) else { return false };
        flow.up_bytes += up as u64;
        flow.down_bytes += down as u64;
        let bytes = flow.up_bytes + flow.down_bytes;
        let is_due = flow.reevaluate_at.is_some_and(|at| bytes >= at);
        if is_due {
            self.evaluate(id, &|_, _| None);
        }
        is_due
    }

    /// Decides about a flow and lists it.
    pub fn evaluate(&mut self, id: AppFlowId, bytes: &StreamBytes<'_>) {
        let Some(flow) = self.flows.get(&id).filter(|flow| !flow.is_delayed) else { return };
        let (stream, bytes) = match flow.carriage {
            // A stream of an ended session may remain for a short time.
            Carriage::Stream(stream, number) => match bytes(stream, number) {
                Some(bytes) => (Some(stream), bytes),
                None => return,
            },
            Carriage::None | Carriage::Datagrams(_) => (None, flow.up_bytes + flow.down_bytes),
        };
        let attributes = flow.facts.attributes(bytes);
        let verdict = self.engine.decide(&attributes);
        let reevaluate_at = self.engine.reevaluate_at(&attributes).map(Size::as_bytes);
        let (decision, rule) = (verdict.decision, verdict.rule.map(str::to_owned));
        let (old, protocol) = (flow.routing, flow.facts.protocol);
        let carriage = flow.carriage;
        let routing = match decision {
            Decision::Block => Routing::Block,
            Decision::Direct => match (carriage, old) {
                (Carriage::Stream(..), _) | (Carriage::Datagrams(_), Routing::Bond(_)) => old,
                _ => Routing::Direct,
            },
            Decision::Bond(treatment) => self.route_into_bond(rule.as_deref(), treatment),
        };
        if let Some(stream) = stream {
            self.outputs.push_back(Output::SetThreshold { stream, bytes: reevaluate_at });
        }
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.is_listed = true;
        flow.reevaluate_at = reevaluate_at;
        if old == Routing::Direct && protocol == Protocol::Tcp {
            flow.rule = rule;
            return;
        }
        let changed = flow.rule != rule || (old != routing && bytes > 0);
        flow.routing = routing;
        flow.rule = rule;
        if let Some(stream) = stream {
            match routing {
                Routing::Bond(label) if routing != old => {
                    self.outputs.push_back(Output::AssignLabel { stream, label });
                }
                Routing::Block => self.outputs.push_back(Output::EndStream(stream)),
                _ => {}
            }
            if changed {
                self.outputs.push_back(Output::Decided(id));
            }
        }
    }

    fn evaluate_all(&mut self, bytes: &StreamBytes<'_>) {
        let listed: Vec<AppFlowId> = self.flows().map(|(id, _)| id).collect();
        for id in listed {
            self.evaluate(id, bytes);
        }
    }

    fn route_into_bond(&mut self, rule: Option<&str>, policy: StreamPolicy) -> Routing {
        let flows = &self.flows;
        let used = || {
            let labels = flows.values().filter_map(|flow| match flow.routing {
                Routing::Bond(label) => Some(label),
                Routing::Direct | Routing::Block => None,
            });
            labels.collect::<BTreeSet<u8>>()
        };
        let Some(label) = self.labels.assign(rule, policy, used) else {
            if !std::mem::replace(&mut self.labels_exhausted, true) {
                self.outputs.push_back(Output::LabelsExhausted);
            }
            return Routing::Block;
        };
        let define = Output::DefineLabel { id: label.id, stream_policy: policy };
        match label.change {
            LabelChange::Unchanged => {}
            LabelChange::New => self.outputs.push_back(define),
            LabelChange::Redefined => self.redefined.push_back(define),
        }
        Routing::Bond(label.id)
    }
}

#[cfg(test)]
mod tests;
