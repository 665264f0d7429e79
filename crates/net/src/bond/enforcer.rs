//! Enforces a policy: supplies a [`FlowTable`] with facts about flows, paths and the battery, and
//! executes its decisions.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::time::Duration;

use manyways_proto::bond::choice::{Change, Choices};
use manyways_proto::bond::io_limits::IoLimits;
use manyways_proto::bond::path::{self, PathMonitor, PathSnapshot, PathState};
use manyways_proto::bond::routing::{AppFlow, AppFlowId, Carriage, FlowTable, Output, Routing};
use manyways_proto::mux::{Counters, Destination, FlowId, Input, StreamId};
use manyways_proto::policy::{Decision, Policy, Protocol};
use manyways_proto::sched::{PathId, StreamPolicy};
use manyways_sys::process;
use manyways_unit::Time;
use manyways_wire::dns::{self, Names};
use manyways_wire::quic::Initials;
use manyways_wire::{HostName, Peek};
use tokio::sync::{Notify, mpsc};

use super::client::{Client, TrafficEvent};
use super::delay_gate::{DelayGrant, DelayRequest, DelayedConnection, Gate};
use super::event::BondEvent;
use super::flow_counters::StreamTotals;
use super::flow_facts::{new_facts, server_name_in, set_owner};
use super::host_networks::HostNetworks;
use super::journal::{self, Journal};
use super::path_monitor::{read_battery, sample_paths, today};
use super::process_lookup::ProcessLookup;
use super::status::{EndedStream, MAX_ENDED};
use super::timer;
use super::usage::UsageFile;

/// Maximum DNS queries that wait for their responses. One more removes the oldest.
const MAX_DNS_QUERIES: usize = 256;

/// A flow in the table, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct TrackedFlow {
    enforcer: Weak<Inner>,
    pub(super) id: AppFlowId,
}

impl Drop for TrackedFlow {
    fn drop(&mut self) {
        if let Some(enforcer) = self.enforcer.upgrade() {
            enforcer.table.borrow_mut().end(self.id);
        }
    }
}

/// Enforces a policy on the traffic of a client; cheap to clone.
#[derive(Clone)]
pub struct PolicyEnforcer(Rc<Inner>);

struct Inner {
    client: Client,
    networks: HostNetworks,
    table: RefCell<FlowTable>,
    monitor: RefCell<PathMonitor>,
    usage_file: UsageFile,
    paths: RefCell<Vec<PathSnapshot>>,
    choices: RefCell<Choices>,
    processes: ProcessLookup,
    names: RefCell<Names>,
    /// Queries that were sent to name servers: the flow, the DNS ID and the name.
    dns_queries: RefCell<VecDeque<(FlowId, u16, HostName)>>,
    /// Flows that are streams, by stream number.
    streams: RefCell<BTreeMap<u64, Rc<TrackedFlow>>>,
    /// The last streams that have ended.
    ended: RefCell<VecDeque<EndedStream>>,
    gate: Gate,
    /// Notified when the next wakeup of the table may have changed.
    timer: Notify,
    journal: Journal,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PolicyEnforcer")
    }
}

impl PolicyEnforcer {
    /// Enforces a policy on the traffic of `client`. Runs on the calling thread's local tasks.
    pub fn start(
        client: Client,
        networks: HostNetworks,
        policy: Policy,
        usage_file: UsageFile,
        journal: Journal,
    ) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        client.subscribe_traffic(sender);
        let clock = client.clock();
        let monitor = PathMonitor::new(clock.now(), path::Config::default(), usage_file.load());
        let enforcer = Self(Rc::new(Inner {
            client,
            networks,
            table: RefCell::new(FlowTable::new(policy)),
            monitor: RefCell::new(monitor),
            usage_file,
            paths: RefCell::default(),
            choices: RefCell::default(),
            processes: ProcessLookup::new(IoLimits::default()),
            names: RefCell::default(),
            dns_queries: RefCell::default(),
            streams: RefCell::default(),
            ended: RefCell::default(),
            gate: Gate::new(clock),
            timer: Notify::new(),
            journal,
        }));
        enforcer.sample_now();
        tokio::task::spawn_local(enforcer.clone().run_traffic_events(events));
        tokio::task::spawn_local(enforcer.clone().run_sampling());
        enforcer
    }

    /// Replaces the policy, also for existing flows.
    pub fn replace_policy(&self, policy: Policy) {
        let rules: Vec<String> = policy.rules().map(str::to_owned).collect();
        self.with_table(|table, bytes| table.replace_policy(self.now(), policy, bytes));
        // An owner of the gate that named a removed rule loses the gate, and can request it
        // again.
        self.0.gate.retain_rules(&rules);
        self.0.monitor.borrow_mut().sample_now(self.now());
        self.0.timer.notify_one();
    }

    /// Lets a program delay new connections under some rules.
    ///
    /// # Errors
    /// If the policy lacks one of the rules, the delay is out of range, or another program owns the
    /// gate.
    pub fn delay(
        &self,
        request: &DelayRequest,
    ) -> Result<DelayGrant, manyways_proto::bond::delay_gate::DelayError> {
        let table = self.0.table.borrow();
        let rules: Vec<String> = table.policy().rules().map(str::to_owned).collect();
        let mut grant = self.0.gate.acquire(request, &rules)?;
        let direct = table.policy().direct_rules().map(str::to_owned);
        grant.direct_rules = direct.filter(|rule| request.rules.contains(rule)).collect();
        Ok(grant)
    }

    /// Saves the data usage after the end of the client, and lets the journal's reader receive the
    /// last records.
    pub async fn finish(&self) {
        self.sample_now();
        self.save_usage();
        // Records pass through several tasks, each of which is ready.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.0.client
    }

    pub(super) fn table(&self) -> std::cell::Ref<'_, FlowTable> {
        self.0.table.borrow()
    }

    /// Returns the paths of the latest sample.
    pub(super) fn paths(&self) -> Vec<PathSnapshot> {
        self.0.paths.borrow().clone()
    }

    pub(super) fn counters(&self) -> Counters {
        self.0.client.handle().with(|session| session.counters_of_streams())
    }

    pub(super) fn stream_policy(&self, label: u8) -> Option<StreamPolicy> {
        self.0.table.borrow().stream_policy(label)
    }

    pub(super) fn now(&self) -> Time {
        self.0.client.clock().now()
    }

    pub(super) fn routing(&self, flow: &TrackedFlow) -> Routing {
        self.0.table.borrow().routing(flow.id)
    }

    /// Whether more of a connection's first bytes may show the server's name.
    pub(super) fn needs_more_bytes(&self, to: &Destination, first: &[u8]) -> bool {
        matches!(to, Destination::Address(..))
            && self.0.table.borrow().policy().needs_domain()
            && matches!(server_name_in(first), Peek::More(_))
    }

    /// Adds a connection of the application at `from`, whose socket is connected to `via`. `first`
    /// are its first bytes. The policy does not decide about the connection yet.
    pub(super) async fn new_connection(
        &self,
        from: SocketAddr,
        via: SocketAddr,
        to: &Destination,
        first: &[u8],
    ) -> Rc<TrackedFlow> {
        let flow = self.new_flow(Protocol::Tcp, (from, via), to);
        if let Peek::Complete(Some(name)) = server_name_in(first) {
            self.learn_domain(&flow, &name);
        }
        self.find_name(&flow);
        self.find_owner(&flow).await;
        flow
    }

    /// Decides about a connection.
    pub(super) fn decide_connection(&self, flow: &Rc<TrackedFlow>) -> Routing {
        self.evaluate(flow.id);
        let routing = self.routing(flow);
        if !matches!(routing, Routing::Bond(_)) {
            self.record(flow.id, |flow| journal::policy_event(None, flow));
        }
        routing
    }

    /// Returns the delay of a connection before its decision; `None` if it need not wait. Until
    /// then the client sends the gateway nothing about the connection, because the networks should
    /// stay idle.
    pub(super) fn delay_for(&self, flow: &TrackedFlow) -> Option<DelayedConnection> {
        if !self.0.gate.is_owned() {
            return None;
        }
        let (decision, rule) = self.0.table.borrow().preview(flow.id);
        let delayed = match decision {
            Decision::Block => None,
            _ => self.0.gate.on_connection(rule.as_deref()),
        };
        if delayed.is_some() {
            self.0.table.borrow_mut().delay(flow.id, rule);
        }
        delayed
    }

    /// Waits until a connection is released. Returns false if `gone` is ready first.
    pub(super) async fn wait_while_delayed(
        &self,
        flow: &TrackedFlow,
        delayed: DelayedConnection,
        gone: impl Future<Output = ()>,
    ) -> bool {
        let is_released = delayed.wait(gone).await;
        self.0.table.borrow_mut().release(flow.id);
        is_released
    }

    /// Records that a connection has become a stream.
    pub(super) fn on_stream_opened(&self, flow: Rc<TrackedFlow>, stream: StreamId, number: u64) {
        self.0.table.borrow_mut().set_carriage(flow.id, Carriage::Stream(stream, number));
        self.apply();
        self.record(flow.id, |flow| journal::open_event(number, flow));
        self.0.streams.borrow_mut().insert(number, flow);
    }

    /// Sets the bytes that a direct connection has carried in total.
    pub(super) fn set_bytes(&self, flow: &TrackedFlow, up: u64, down: u64) {
        self.0.table.borrow_mut().set_bytes(flow.id, up, down);
    }

    /// Adds a flow for datagrams to a new destination of an application's socket. The policy does
    /// not decide about the flow yet.
    pub(super) fn new_datagram_flow(
        &self,
        flow: FlowId,
        from: SocketAddr,
        via: SocketAddr,
        to: &Destination,
    ) -> Rc<TrackedFlow> {
        let tracked = self.new_flow(Protocol::Udp, (from, via), to);
        self.0.table.borrow_mut().set_carriage(tracked.id, Carriage::Datagrams(flow));
        tracked
    }

    /// Searches the next datagram of a flow for the server's name, while `initials` is `Some`.
    pub(super) fn peek_datagram(
        &self,
        flow: &TrackedFlow,
        initials: &mut Option<Initials>,
        data: &[u8],
    ) {
        let Some(peeking) = initials else { return };
        let found = match peeking.datagram(data) {
            Peek::More(_) => return,
            Peek::Complete(hello) => hello.server_name,
            Peek::No => None,
        };
        *initials = None;
        if let Some(name) = found {
            self.learn_domain(flow, &name);
        }
    }

    /// Looks up the owner of a datagram flow if the policy needs it, then decides about the flow.
    pub(super) async fn decide_datagrams(&self, flow: &TrackedFlow) {
        self.find_owner(flow).await;
        self.decide_now(flow);
    }

    /// Decides about a datagram flow without a lookup of its owner.
    pub(super) fn decide_now(&self, flow: &TrackedFlow) {
        self.find_name(flow);
        self.evaluate(flow.id);
    }

    /// Whether the policy has a rule about the owner of a flow: its process, user or control group.
    fn needs_process_lookup(&self) -> bool {
        self.0.table.borrow().policy().needs_process()
    }

    /// Counts a datagram's payload bytes in one direction.
    pub(super) fn count_datagram(&self, flow: &TrackedFlow, up: usize, down: usize) {
        if self.0.table.borrow_mut().count_datagram(flow.id, up, down) {
            self.apply();
        }
    }

    /// Records a DNS query, so that its response can name addresses.
    pub(super) fn on_dns_query(&self, flow: FlowId, data: &[u8]) {
        if let Some(query) = dns::query(data) {
            let mut queries = self.0.dns_queries.borrow_mut();
            queries.push_back((flow, query.id, query.name));
            if queries.len() > MAX_DNS_QUERIES {
                queries.pop_front();
            }
        }
    }

    /// Learns names from a DNS response to a recorded query.
    pub(super) fn on_dns_response(&self, flow: FlowId, data: &[u8]) {
        let Some(response) = dns::answer(data) else { return };
        let mut queries = self.0.dns_queries.borrow_mut();
        let query = queries.iter().position(|(asker, id, name)| {
            *asker == flow && *id == response.id && *name == response.name
        });
        // A response without a query may be forged.
        if query.and_then(|at| queries.remove(at)).is_some() {
            self.0.names.borrow_mut().learn(self.now(), &response);
        }
    }

    /// Returns the name that was resolved to an address most recently.
    pub(super) fn name_of(&self, address: IpAddr) -> Option<HostName> {
        self.0.names.borrow().newest(self.now(), address).cloned()
    }

    /// Looks up the owners of flows without a known owner, within `IoLimits::status_owner_lookup`.
    pub async fn find_owners(&self) {
        let unknown: Vec<AppFlowId> = {
            let table = self.0.table.borrow();
            let unknown = table.flows().filter(|(_, flow)| flow.facts.uid.is_none());
            unknown.map(|(id, _)| id).collect()
        };
        let finding = async {
            for id in unknown {
                self.owner(id).await;
            }
        };
        let limit = IoLimits::default().status_owner_lookup;
        let _ = tokio::time::timeout(Duration::from(limit), finding).await;
    }

    fn new_flow(
        &self,
        protocol: Protocol,
        socket: (SocketAddr, SocketAddr),
        to: &Destination,
    ) -> Rc<TrackedFlow> {
        let facts = new_facts(protocol, to.clone());
        let id = self.0.table.borrow_mut().begin(self.now(), facts, socket);
        Rc::new(TrackedFlow { enforcer: Rc::downgrade(&self.0), id })
    }

    fn learn_domain(&self, flow: &TrackedFlow, name: &HostName) {
        self.0.table.borrow_mut().update_facts(flow.id, |facts| {
            facts.domain.get_or_insert_with(|| name.as_str().to_owned());
        });
    }

    /// Uses the name of an earlier DNS query if the flow has not shown a server name.
    fn find_name(&self, flow: &TrackedFlow) {
        let address = match self.0.table.borrow().get(flow.id).map(|flow| &flow.facts) {
            Some(facts) if facts.domain.is_none() => match facts.destination {
                Destination::Address(address, _) => address,
                Destination::Name(..) => return,
            },
            _ => return,
        };
        if let Some(name) = self.name_of(address) {
            self.learn_domain(flow, &name);
        }
    }

    async fn find_owner(&self, flow: &TrackedFlow) {
        if self.needs_process_lookup() {
            self.owner(flow.id).await;
        }
    }

    async fn owner(&self, id: AppFlowId) {
        let flow = self.0.table.borrow().get(id).map(|flow| (flow.facts.protocol, flow.socket));
        let Some((protocol, (local, remote))) = flow else { return };
        let protocol = match protocol {
            Protocol::Tcp => process::Protocol::Tcp,
            Protocol::Udp => process::Protocol::Udp,
        };
        if let Some(owner) = self.0.processes.find(local, remote, protocol).await {
            let user = self.0.processes.user_name(owner.uid);
            self.0.table.borrow_mut().update_facts(id, |facts| set_owner(facts, owner, user));
        }
    }

    /// Decides about one flow, and applies the decision to the session.
    fn evaluate(&self, id: AppFlowId) {
        self.with_table(|table, bytes| table.evaluate(id, bytes));
    }

    /// Changes the table, and executes its outputs. The second argument returns the bytes of a
    /// stream.
    fn with_table(
        &self,
        change: impl FnOnce(&mut FlowTable, &dyn Fn(StreamId, u64) -> Option<u64>),
    ) {
        let handle = self.0.client.handle();
        let bytes = |stream: StreamId, number: u64| {
            handle.with(|session| {
                let totals = session.counters.stream(stream);
                totals.filter(|one| one.number == number).map(StreamTotals::bytes)
            })
        };
        change(&mut self.0.table.borrow_mut(), &bytes);
        self.apply();
    }

    fn apply(&self) {
        let handle = self.0.client.handle();
        let (mut inputs, mut ends) = (Vec::new(), Vec::new());
        loop {
            let output = self.0.table.borrow_mut().poll();
            match output {
                None => break,
                Some(Output::DefineLabel { id, stream_policy: treatment }) => {
                    inputs.push(Input::Relabel { id, stream_policy: treatment });
                }
                Some(Output::AssignLabel { stream, label }) => {
                    inputs.push(Input::Assign { stream, label });
                }
                Some(Output::EndStream(stream)) => ends.push(stream),
                Some(Output::SetThreshold { stream, bytes }) => {
                    handle.with(|session| session.counters.set_threshold(stream, bytes));
                }
                Some(Output::Decided(id)) => self.record(id, |flow| {
                    let number = match flow.carriage {
                        Carriage::Stream(_, number) => Some(number),
                        _ => None,
                    };
                    journal::policy_event(number, flow)
                }),
                Some(Output::LabelsExhausted) => tracing::warn!(
                    "more than 255 rules are active; traffic of further rules is refused"
                ),
            }
        }
        if !inputs.is_empty() {
            handle.with(|session| session.handle_all(inputs));
        }
        for stream in ends {
            handle.end(stream);
        }
    }

    fn record(&self, id: AppFlowId, event: impl FnOnce(&AppFlow) -> BondEvent) {
        let table = self.0.table.borrow();
        if let Some(flow) = table.get(id) {
            self.0.journal.record(self.now(), || event(flow));
        }
    }

    fn add_ended(&self, id: AppFlowId, totals: &StreamTotals) {
        let table = self.0.table.borrow();
        let Some(facts) = table.get(id).map(|flow| &flow.facts) else { return };
        let mut ended = self.0.ended.borrow_mut();
        if ended.len() >= MAX_ENDED {
            ended.pop_front();
        }
        ended.push_back(EndedStream {
            stream: totals.number,
            destination: facts.destination.to_string(),
            domain: facts.domain.clone(),
            process: facts.process.clone(),
            up_bytes: totals.up,
            down_bytes: totals.down,
        });
    }

    /// The last streams that have ended, the oldest first.
    pub(super) fn ended(&self) -> Vec<EndedStream> {
        self.0.ended.borrow().iter().cloned().collect()
    }

    /// Changes the choices of paths. If they differ then, decides again about all flows.
    pub(super) fn with_choices<R>(&self, change: impl FnOnce(Time, &mut Choices) -> R) -> R {
        let result = change(self.now(), &mut self.0.choices.borrow_mut());
        self.run_monitor();
        // A lease, or a condition on the primary path of an auto rule, may have another wakeup.
        self.0.timer.notify_one();
        result
    }

    /// Records changed choices of paths. Returns whether there is one.
    fn record_choices(&self, now: Time) -> bool {
        let mut is_changed = false;
        loop {
            let change = self.0.choices.borrow_mut().poll(now);
            let Some(Change { goal, paths }) = change else { return is_changed };
            let goal = goal.to_string();
            self.0.journal.record(now, || BondEvent::BondChoice { goal, paths });
            is_changed = true;
        }
    }

    /// Samples paths and battery, and decides again if they have changed.
    fn sample_now(&self) {
        self.0.monitor.borrow_mut().sample_now(self.now());
        self.run_monitor();
    }

    fn run_monitor(&self) {
        let now = self.now();
        // In the event log a choice precedes the decisions that follow it.
        if self.record_choices(now) {
            self.0.monitor.borrow_mut().sample_now(now);
        }
        loop {
            let output = self.0.monitor.borrow_mut().poll(now);
            match output {
                None => break,
                Some(path::Output::ReadBattery) => {
                    self.0.monitor.borrow_mut().set_battery(read_battery());
                }
                Some(path::Output::Sample) => self.sample(now),
                Some(path::Output::SaveUsage) => self.save_usage(),
            }
        }
    }

    fn sample(&self, now: Time) {
        let known = self.0.networks.used_networks();
        let client = &self.0.client;
        let is_asleep = |id: PathId| client.path_state(id) == PathState::Asleep;
        let (samples, counters) = client.handle().with(|session| {
            (sample_paths(&known, session, is_asleep), session.counters_of_streams())
        });
        let (mut environment, paths) = {
            let table = self.0.table.borrow();
            self.0.monitor.borrow_mut().sample(now, today(), table.policy(), &samples)
        };
        environment.choices = self.0.choices.borrow().paths();
        self.0.journal.paths(now, &paths);
        self.0.journal.counters(now, counters);
        self.0.paths.replace(paths);
        self.with_table(|table, bytes| table.observe(now, &environment, bytes));
    }

    fn save_usage(&self) {
        let saved = self.0.usage_file.save(self.0.monitor.borrow_mut().usage_mut());
        if let Err(error) = saved {
            tracing::warn!("cannot save the data usage of this month: {error}");
        }
    }

    async fn run_sampling(self) {
        let clock = self.0.client.clock();
        loop {
            let due = self.0.monitor.borrow().next_wakeup();
            // A measured condition has held for its hysteresis.
            let lasts = self.0.table.borrow().next_wakeup();
            let lease_end = self.0.choices.borrow().next_wakeup();
            let wakeup = lasts.into_iter().chain(lease_end).chain([due]).min();
            tokio::select! {
                () = timer::until(&clock, wakeup) => {}
                () = self.0.timer.notified() => {}
            }
            if lasts.is_some_and(|at| at <= clock.now()) {
                self.0.monitor.borrow_mut().sample_now(clock.now());
            }
            self.run_monitor();
        }
    }

    async fn run_traffic_events(self, mut events: mpsc::UnboundedReceiver<TrafficEvent>) {
        while let Some(event) = events.recv().await {
            match event {
                TrafficEvent::PathsChanged => self.sample_now(),
                TrafficEvent::ByteThreshold(number) => {
                    let id = self.0.table.borrow().of_stream(number);
                    if let Some(id) = id {
                        self.evaluate(id);
                    }
                }
                TrafficEvent::StreamClosed(totals) => {
                    let closed = self.0.streams.borrow_mut().remove(&totals.number);
                    if let Some(flow) = closed {
                        self.add_ended(flow.id, &totals);
                        let names = self.0.client.paths();
                        let name =
                            |id: PathId| names.get(usize::from(id.0)).cloned().unwrap_or_default();
                        let now = self.now();
                        self.record(flow.id, |flow| journal::close_event(now, flow, &totals, name));
                    }
                }
            }
        }
    }
}
