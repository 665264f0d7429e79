//! The client: a dialer and a session.

use std::collections::{BTreeMap, VecDeque};

use manyways_unit::{Random, Span};

use super::application::{Application, StreamRecord};
use super::endpoint::{Endpoint, Notice, asks_for_confirmation, config, destination};
use super::gateway::Gateway;
use super::network::{Connection, Item, Side};
use super::scenario::{ApplicationPlan, End, Scenario};
use super::world::{Timer, World, ensure, violated};
use crate::bond::dial::{
    self, CarrierEnd, CarrierTransport, Dialer, FailureKind, Input as DialInput,
    Output as DialOutput, Reason,
};
use crate::mux::tests::simulation::CLIENT;
use crate::mux::{FlowId, Hello, Input, Message, RefuseCode, Role, StreamId, VERSION};
use crate::sched::PathId;

/// Reason of a failed attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    LinkDown,
    Closed,
    Refused(RefuseCode),
}

impl Reason for Cause {
    fn kind(&self) -> FailureKind {
        match self {
            Self::Refused(RefuseCode::UnknownSession) => FailureKind::UnknownSession,
            _ => FailureKind::Transient,
        }
    }
}

pub struct Client {
    pub dialer: Dialer<Cause, &'static str>,
    pub endpoint: Endpoint,
    pub notices: VecDeque<Notice>,
    /// Connections of the attempts.
    attempts: BTreeMap<PathId, usize>,
    next_stream: u64,
    /// The open flows of applications.
    flows: BTreeMap<u32, FlowId>,
    next_flow: u32,
    /// Paths, the link of which was down when they were dialled.
    failed_dials: Vec<PathId>,
    /// Number of sessions that have ended.
    pub renewals: u64,
}

impl Client {
    pub fn new(scenario: &Scenario) -> Self {
        let options = dial::Config {
            transport: scenario.transport,
            has_name: scenario.seed.is_multiple_of(2),
            ..dial::Config::default()
        };
        let mut dialer = Dialer::new(options, vec![([192, 0, 2, 1], 4433).into()]);
        for _ in &scenario.paths {
            dialer.add_path();
        }
        Self {
            dialer,
            endpoint: Endpoint::new(0, config(scenario, Role::Client)),
            notices: VecDeque::new(),
            attempts: BTreeMap::new(),
            next_stream: 0,
            flows: BTreeMap::new(),
            next_flow: 0,
            failed_dials: Vec::new(),
            renewals: 0,
        }
    }

    /// Returns an endpoint of a session; `None` if the endpoint does not have the session.
    pub fn endpoint_of<'a>(
        &'a mut self,
        gateway: &'a mut Gateway,
        end: End,
        session: u64,
    ) -> Option<&'a mut Endpoint> {
        match end {
            CLIENT => Some(&mut self.endpoint).filter(|endpoint| endpoint.session == session),
            _ => gateway.endpoints.get_mut(&session),
        }
    }

    pub fn is_in_use(&self) -> bool {
        self.endpoint.mux.stream_count() > 0 || !self.endpoint.flows.is_empty()
    }
}

impl World<'_> {
    /// Passes an input to the dialer, and executes its outputs.
    pub fn dial(&mut self, input: DialInput<Cause, &'static str>) {
        let clock = self.machines[CLIENT].time(self.now);
        self.client.dialer.handle(clock, input);
        self.poll_dialer();
    }

    fn poll_dialer(&mut self) {
        let clock = self.machines[CLIENT].time(self.now);
        let mut count = 0;
        while let Some(output) = self.client.dialer.poll(clock) {
            count += 1;
            ensure!(count < 1_000, "the dialer has outputs without end: {output:?}");
            self.log(|| format!("dialer: {output:?}"));
            self.perform(output);
        }
    }

    fn perform(&mut self, output: DialOutput<Cause, &'static str>) {
        let session = self.client.endpoint.session;
        match output {
            DialOutput::Dial { path, transport, .. } => self.start_attempt(path, transport),
            DialOutput::Abandon(path) => {
                if let Some(id) = self.client.attempts.remove(&path) {
                    self.close(id, CLIENT);
                }
            }
            DialOutput::Detach(carrier) => drop(self.detach(CLIENT, session, carrier)),
            DialOutput::AnnounceLinkDown(path) => {
                let clock = self.machines[CLIENT].time(self.now);
                self.client.endpoint.is_due = true;
                self.client.endpoint.mux.handle(clock, Input::PathDown { path });
            }
            DialOutput::RenewSession => self.renew_session(),
            DialOutput::LookUp => {
                self.timers.add(self.now + Span::from_millis(50), Timer::Resolved);
            }
            DialOutput::Event(_) => {}
        }
    }

    fn start_attempt(&mut self, path: PathId, transport: CarrierTransport) {
        let state = &self.paths[usize::from(path.0)];
        if !state.has_link {
            self.client.attempts.remove(&path);
            return self.client.failed_dials.push(path);
        }
        let id = self.next_connection;
        self.next_connection += 1;
        let random = Random::for_purpose(self.scenario.seed, 1_000 + id as u64);
        let mut connection = Connection::new(self.now, path, transport, random);
        connection.is_lost = state.blocked.contains(&transport);
        self.connections.insert(id, connection);
        self.client.attempts.insert(path, id);
        self.update_interruptions();
        self.send(id, CLIENT, Item::Connect);
    }

    fn renew_session(&mut self) {
        let (session, instance) = (self.client.endpoint.session, self.client.endpoint.instance);
        let has_it = |endpoint: &Endpoint| endpoint.instance == instance;
        ensure!(
            !self.gateway.endpoints.get(&session).is_some_and(has_it) || !self.client.is_in_use(),
            "the client renews session {session}, which the gateway has and applications use"
        );
        self.client.renewals += 1;
        let options = config(self.scenario, Role::Client);
        let next = self.client.endpoint.renewed(session + 1, options);
        let old = std::mem::replace(&mut self.client.endpoint, next);
        self.end_session(CLIENT, &old);
        self.client.next_stream = 0;
        self.client.flows.clear();
        let clock = self.machines[CLIENT].time(self.now);
        for (id, stream_policy) in old.mux.labels() {
            self.client.endpoint.mux.handle(clock, Input::Relabel { id, stream_policy });
        }
    }

    /// Runs the client once. Returns whether anything was to do.
    pub fn run_client(&mut self) -> bool {
        let mut busy = false;
        for path in std::mem::take(&mut self.client.failed_dials) {
            busy = true;
            self.dial(DialInput::Failed(path, Cause::LinkDown));
        }
        while let Some(notice) = self.client.notices.pop_front() {
            busy = true;
            self.log(|| format!("client: {notice:?}"));
            let in_use = self.client.is_in_use();
            self.dial(match notice {
                Notice::Lost { carrier, end } => {
                    DialInput::Lost { carrier, reason: "ended", end, in_use }
                }
                Notice::Suspect(carrier) => DialInput::Suspect { carrier, barren: None },
                Notice::Recovered(carrier) => DialInput::Recovered(carrier),
                Notice::Bye => DialInput::SessionEnded,
            });
        }
        let clock = self.machines[CLIENT].time(self.now);
        if self.client.dialer.next_wakeup().is_some_and(|at| at <= clock) {
            busy = true;
            self.poll_dialer();
        }
        let endpoint = &self.client.endpoint;
        if endpoint.is_due || endpoint.mux.next_wakeup().is_some_and(|at| at <= clock) {
            busy = true;
            self.pump(CLIENT, endpoint.session);
        }
        busy
    }

    /// An item arrives at the client.
    pub fn deliver_to_client(&mut self, id: usize, item: Item) {
        let Some(connection) = self.connections.get(&id) else { return };
        let (path, side) = (connection.path, connection.sides[CLIENT]);
        match (side, item) {
            (Side::Closed, _) => {}
            (Side::Carrier(session, carrier), Item::Message(message)) => {
                self.on_message(CLIENT, session, carrier, message);
            }
            (Side::Carrier(session, carrier), Item::Close) => {
                self.on_carrier_lost(CLIENT, session, carrier, CarrierEnd::Closed);
            }
            (Side::Handshake, Item::Accept) => {
                self.dial(DialInput::Secured(path));
                let limits = self.scenario.limits;
                let hello = Hello {
                    version: VERSION,
                    session: session_number(self.client.endpoint.session),
                    path,
                    resumes: self.client.dialer.resumes(),
                    credit: limits.credit,
                    stream_credit: limits.stream_credit,
                };
                self.send(id, CLIENT, Item::Message(Message::Hello(hello)));
            }
            (Side::Handshake, Item::Message(Message::Welcome(welcome))) => {
                let clock = self.machines[CLIENT].time(self.now);
                match self.client.dialer.accept(welcome.instance) {
                    Ok(()) => {}
                    Err(FailureKind::UnknownSession) => {
                        let cause = Cause::Refused(RefuseCode::UnknownSession);
                        return self.fail(id, path, cause);
                    }
                    Err(_) => return self.fail(id, path, Cause::Closed),
                }
                self.client.endpoint.instance = welcome.instance;
                let (credit, stream_credit) = (welcome.credit, welcome.stream_credit);
                let session = self.client.endpoint.session;
                let input = Input::InitialCredit { credit, stream_credit };
                self.client.endpoint.mux.handle(clock, input);
                self.client.attempts.remove(&path);
                if let Some(carrier) = self.attach(CLIENT, session, id) {
                    self.dial(DialInput::Connected(path, carrier));
                }
            }
            (Side::Handshake, Item::Message(Message::Refuse(code, _))) => {
                self.fail(id, path, Cause::Refused(code));
            }
            (Side::Handshake, Item::Close) => self.fail(id, path, Cause::Closed),
            // A datagram may overtake the welcome, and is lost.
            (Side::Handshake, Item::Message(Message::Datagram { .. } | Message::Part { .. })) => {}
            (side, item) => violated(format!("the client got {item:?} in the state {side:?}")),
        }
    }

    fn fail(&mut self, id: usize, path: PathId, cause: Cause) {
        self.client.attempts.remove(&path);
        self.close(id, CLIENT);
        self.dial(DialInput::Failed(path, cause));
    }

    /// Dials sleeping paths, because an application has data to send.
    fn wake_paths(&mut self) {
        if self.client.dialer.heeds_demand() {
            let in_use = self.client.is_in_use();
            self.dial(DialInput::Demand { in_use });
        }
    }

    /// An application of the client opens a stream.
    pub fn open(
        &mut self,
        label: u8,
        plans: [ApplicationPlan; 2],
        connect: Span,
        is_refused: bool,
    ) {
        self.wake_paths();
        let number = self.streams.len();
        let id = StreamId(self.client.next_stream);
        self.client.next_stream += 1;
        let clock = self.machines[CLIENT].time(self.now);
        let endpoint = &mut self.client.endpoint;
        let destination = destination(number);
        let confirm = asks_for_confirmation(number);
        endpoint.mux.handle(clock, Input::Open { stream: id, label, destination, confirm });
        endpoint.streams.insert(id, number);
        let [up, down] = plans;
        self.streams.push(StreamRecord {
            session: endpoint.session,
            id,
            connect,
            is_refused,
            applications: [Application::new(up, true), Application::new(down, false)],
        });
        self.write(CLIENT, number);
    }

    /// Returns the flow of an application, which is opened if `opens`. A client never uses a number
    /// again.
    pub fn flow(&mut self, application: u32, opens: bool) -> Option<FlowId> {
        if opens {
            self.wake_paths();
            let next = &mut self.client.next_flow;
            let flow = *self.client.flows.entry(application).or_insert_with(|| {
                *next += 1;
                FlowId(*next)
            });
            self.client.endpoint.flows.insert(flow);
        }
        self.client.flows.get(&application).copied()
    }

    /// An application closes its flow.
    pub fn close_flow(&mut self, application: u32) {
        let Some(flow) = self.client.flows.remove(&application) else { return };
        let clock = self.machines[CLIENT].time(self.now);
        let endpoint = &mut self.client.endpoint;
        endpoint.flows.remove(&flow);
        endpoint.is_due = true;
        endpoint.mux.handle(clock, Input::CloseFlow { flow });
        self.datagrams.closed.insert(flow);
    }

    /// All applications close their flows.
    pub fn close_flows(&mut self) {
        for application in self.client.flows.keys().copied().collect::<Vec<_>>() {
            self.close_flow(application);
        }
    }
}

/// Returns the identifier of a session in a hello.
pub fn session_number(session: u64) -> [u8; 16] {
    u128::from(session).to_be_bytes()
}
