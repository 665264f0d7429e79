//! What becomes of each connection and datagram flow of an application: [`FlowTable`] asks the
//! policy about each of them, again whenever its answer may differ, and says what the session has
//! to be told.
//!
//! A flow that is under way keeps to what cannot be changed any more: a connection that went past
//! the bond stays there, and so does a stream that the bond carries where a rule then says
//! `direct`. A rule that blocks ends it.

mod labels;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use manyways_unit::{Size, Span, Time};

use crate::mux::{FlowId, StreamId, Target};
use crate::policy::{Decision, Engine, Explanation, Flow, Policy, Protocol, Surroundings};
use crate::sched::Treatment;
use labels::{LabelChange, Labels};

/// What becomes of a flow: a policy's [`Decision`], carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Routing {
    /// It goes through the bond with this label.
    Bond(u8),
    /// It goes past the bond.
    Direct,
    /// It is refused.
    Block,
}

impl Routing {
    /// The stable word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bond(_) => "bond",
            Self::Direct => "direct",
            Self::Block => "block",
        }
    }
}

impl From<Decision> for Routing {
    /// A decision that is not carried out yet: in the bond it has no label of its own.
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
    /// Not yet, or past the bond.
    None,
    /// As a stream, with its number among all of the client.
    Stream(StreamId, u64),
    /// As a part of a datagram flow.
    Datagrams(FlowId),
}

/// What is known of an application's flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowFacts {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Where it goes.
    pub destination: Target,
    /// The name of the server in lower case, as it was asked for.
    pub domain: Option<String>,
    /// The file name of the program, or what the kernel calls the process.
    pub process: Option<String>,
    /// The number of the user.
    pub uid: Option<u32>,
    /// The name of the user.
    pub user: Option<String>,
    /// The control group.
    pub cgroup: Option<String>,
}

impl FlowFacts {
    /// A flow of which only this is known.
    pub fn new(protocol: Protocol, destination: Target) -> Self {
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

    /// What a policy may ask, when `bytes` have flowed.
    pub fn attributes(&self, bytes: u64) -> Flow<'_> {
        let (address, port) = match &self.destination {
            Target::Address(address, port) => (Some(*address), *port),
            Target::Name(_, port) => (None, *port),
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

/// The number of a flow in a [`FlowTable`], in the order in which they began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AppFlowId(u64);

/// A connection of an application, or its datagrams to one destination.
#[derive(Clone, Debug)]
pub struct AppFlow {
    /// What is known of it.
    pub facts: FlowFacts,
    /// The rule that decided; `None` for the default.
    pub rule: Option<String>,
    /// What becomes of it.
    pub routing: Routing,
    /// How it is carried.
    pub carriage: Carriage,
    /// The application's end of its socket, and the end that it talks to.
    pub socket: (SocketAddr, SocketAddr),
    /// When it began.
    pub since: Time,
    /// What the application sent, where it is not a stream.
    pub up_bytes: u64,
    /// What came for it, where it is not a stream.
    pub down_bytes: u64,
    /// It is delayed, and decided about when it is released.
    pub is_delayed: bool,
    /// The policy has decided about it at least once, or it is delayed: it is shown.
    is_listed: bool,
    /// The number of bytes at which the policy may decide otherwise.
    reevaluate_at: Option<u64>,
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// A label stands for this treatment from now on.
    DefineLabel {
        /// The label.
        id: u8,
        /// What it stands for.
        treatment: Treatment,
    },
    /// A stream gets another label.
    AssignLabel {
        /// The stream.
        stream: StreamId,
        /// The label, which is defined.
        label: u8,
    },
    /// End a stream.
    EndStream(StreamId),
    /// Call [`FlowTable::evaluate`] when the stream has this many bytes.
    SetThreshold {
        /// The stream.
        stream: StreamId,
        /// How many; `None`: never.
        bytes: Option<u64>,
    },
    /// A stream that is under way is decided about otherwise than before.
    Decided(AppFlowId),
    /// More than 255 rules have something to carry: the flows of further rules are blocked. Told
    /// once.
    LabelsExhausted,
}

/// How many bytes the stream of this number has in both directions together; `None` where it is
/// over.
pub type StreamBytes<'a> = dyn Fn(StreamId, u64) -> Option<u64> + 'a;

/// The flows of a client's applications, and the policy that decides about them.
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
    /// Labels that flows have already and that are redefined: after flows that leave them.
    redefined: VecDeque<Output>,
}

impl FlowTable {
    /// No flows yet, and nothing known of the paths.
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

    /// The policy that decides.
    pub fn policy(&self) -> &Policy {
        self.engine.policy()
    }

    /// Follows another policy from now on, also for what is under way.
    pub fn replace_policy(&mut self, now: Time, policy: Policy, bytes: &StreamBytes<'_>) {
        self.engine.replace(now, policy);
        self.evaluate_all(bytes);
    }

    /// The paths and the battery are like this at `now`.
    pub fn observe(&mut self, now: Time, surroundings: &Surroundings, bytes: &StreamBytes<'_>) {
        self.observed_at = now;
        if self.engine.observe(now, surroundings) {
            self.evaluate_all(bytes);
        }
    }

    /// When to [`observe`](Self::observe) again though nothing has changed.
    pub fn next_wakeup(&self) -> Option<Time> {
        let soonest = self.observed_at + Span::from_millis(1);
        self.engine.next_wakeup().map(|wakeup| wakeup.max(soonest))
    }

    /// What to do next.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front().or_else(|| self.redefined.pop_front())
    }

    /// A flow begins, which is not decided about yet.
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
            // No door is open before the policy opens it.
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

    /// A flow is over.
    pub fn end(&mut self, id: AppFlowId) {
        if let Some(flow) = self.flows.remove(&id)
            && let Carriage::Stream(_, number) = flow.carriage
        {
            self.streams.remove(&number);
        }
    }

    /// A flow.
    pub fn get(&self, id: AppFlowId) -> Option<&AppFlow> {
        self.flows.get(&id)
    }

    /// The flow that is the stream of this number.
    pub fn of_stream(&self, number: u64) -> Option<AppFlowId> {
        self.streams.get(&number).copied()
    }

    /// What becomes of a flow; blocked where there is none.
    pub fn routing(&self, id: AppFlowId) -> Routing {
        self.flows.get(&id).map_or(Routing::Block, |flow| flow.routing)
    }

    /// All flows that are under way, the oldest first.
    pub fn flows(&self) -> impl Iterator<Item = (AppFlowId, &AppFlow)> {
        self.flows.iter().filter(|(_, flow)| flow.is_listed).map(|(id, flow)| (*id, flow))
    }

    /// How flows with this label are treated.
    pub fn treatment(&self, label: u8) -> Option<Treatment> {
        self.labels.treatment(label)
    }

    /// What each rule says of a flow now.
    pub fn explain(&self, flow: &Flow<'_>) -> Explanation {
        self.engine.explain(flow)
    }

    /// More is known of a flow. It is not decided about again.
    pub fn learn(&mut self, id: AppFlowId, learn: impl FnOnce(&mut FlowFacts)) {
        if let Some(flow) = self.flows.get_mut(&id) {
            learn(&mut flow.facts);
        }
    }

    /// What the policy says of a flow before it has carried anything, and the rule that says it.
    pub fn preview(&self, id: AppFlowId) -> (Decision, Option<String>) {
        let Some(flow) = self.flows.get(&id) else { return (Decision::Block, None) };
        let verdict = self.engine.decide(&flow.facts.attributes(0));
        (verdict.decision, verdict.rule.map(str::to_owned))
    }

    /// A flow is delayed from now on under a rule, and shown so.
    pub fn delay(&mut self, id: AppFlowId, rule: Option<String>) {
        if let Some(flow) = self.flows.get_mut(&id) {
            (flow.is_delayed, flow.is_listed, flow.rule) = (true, true, rule);
        }
    }

    /// A flow is not delayed any more. It is not decided about yet.
    pub fn release(&mut self, id: AppFlowId) {
        if let Some(flow) = self.flows.get_mut(&id) {
            (flow.is_delayed, flow.is_listed) = (false, false);
        }
    }

    /// A flow is carried like this from now on.
    pub fn carry(&mut self, id: AppFlowId, carriage: Carriage) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.carriage = carriage;
        flow.is_listed = true;
        if let Carriage::Stream(stream, number) = carriage {
            self.streams.insert(number, id);
            self.outputs.push_back(Output::SetThreshold { stream, bytes: flow.reevaluate_at });
        }
    }

    /// A connection past the bond has carried this in all.
    pub fn set_bytes(&mut self, id: AppFlowId, up: u64, down: u64) {
        if let Some(flow) = self.flows.get_mut(&id) {
            (flow.up_bytes, flow.down_bytes) = (up, down);
        }
    }

    /// A datagram of a flow has passed. Whether the policy has decided about it again.
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

    /// Decides about a flow, and lists it.
    pub fn evaluate(&mut self, id: AppFlowId, bytes: &StreamBytes<'_>) {
        let Some(flow) = self.flows.get(&id).filter(|flow| !flow.is_delayed) else { return };
        let (stream, bytes) = match flow.carriage {
            // One of a session that is over may be here for a moment.
            Carriage::Stream(stream, number) => match bytes(stream, number) {
                Some(bytes) => (Some(stream), bytes),
                None => return,
            },
            Carriage::None | Carriage::Datagrams(_) => (None, flow.up_bytes + flow.down_bytes),
        };
        let attributes = flow.facts.attributes(bytes);
        let verdict = self.engine.decide(&attributes);
        let reevaluate_at = self.engine.ask_again_at(&attributes).map(Size::as_bytes);
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

    fn route_into_bond(&mut self, rule: Option<&str>, treatment: Treatment) -> Routing {
        let flows = &self.flows;
        let used = || {
            let labels = flows.values().filter_map(|flow| match flow.routing {
                Routing::Bond(label) => Some(label),
                Routing::Direct | Routing::Block => None,
            });
            labels.collect::<BTreeSet<u8>>()
        };
        let Some(label) = self.labels.assign(rule, treatment, used) else {
            if !std::mem::replace(&mut self.labels_exhausted, true) {
                self.outputs.push_back(Output::LabelsExhausted);
            }
            return Routing::Block;
        };
        let define = Output::DefineLabel { id: label.id, treatment };
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
