//! The gateway: its sessions, restarts and other clients.

use std::collections::{BTreeMap, VecDeque};

use manyways_unit::Time;

use super::client::session_number;
use super::endpoint::{Endpoint, Notice, config};
use super::network::{Item, Side};
use super::scenario::Stop;
use super::world::{World, ensure};
use crate::bond::dial::CarrierEnd;
use crate::bond::session::{
    Admission, ClientLimits, Config, EndReason, Input as SessionInput, Output as SessionOutput,
    Refusal, SessionId, Sessions,
};
use crate::mux::tests::simulation::{CLIENT, GATEWAY};
use crate::mux::{Hello, Input, Message, RefuseCode, Role, VERSION, Welcome};

/// The key of all clients.
const KEY: u8 = 7;
/// Sessions of other clients have numbers from here.
const RIVALS: u64 = 1 << 32;

pub struct Gateway {
    pub core: Sessions<u8>,
    /// Endpoints of the client's sessions.
    pub endpoints: BTreeMap<u64, Endpoint>,
    pub notices: VecDeque<(u64, Notice)>,
    /// Number of starts.
    run: u64,
    /// Number of sessions that have begun.
    begun: u64,
    pub is_running: bool,
    /// Whether its machine has no power.
    pub is_off: bool,
    limits: ClientLimits,
    rivals: u64,
}

impl Gateway {
    pub fn new(now: Time, sessions: u32) -> Self {
        let limits = ClientLimits { sessions, ..ClientLimits::default() };
        Self {
            core: Sessions::new(now, Config::default()),
            endpoints: BTreeMap::new(),
            notices: VecDeque::new(),
            run: 0,
            begun: 0,
            is_running: true,
            is_off: false,
            limits,
            rivals: 0,
        }
    }
}

fn id_of(session: u64) -> SessionId<u8> {
    SessionId { key: KEY, number: session_number(session) }
}

fn session_of(id: SessionId<u8>) -> u64 {
    u128::from_be_bytes(id.number) as u64
}

impl World<'_> {
    /// Runs the gateway once. Returns whether anything was to do.
    pub fn run_gateway(&mut self) -> bool {
        let mut busy = false;
        while let Some((session, notice)) = self.gateway.notices.pop_front() {
            busy = true;
            self.log(|| format!("gateway: session {session}: {notice:?}"));
            match notice {
                Notice::Lost { .. } => self.sessions(SessionInput::Detached(id_of(session))),
                Notice::Suspect(_) | Notice::Recovered(_) => {}
                Notice::Bye => {
                    self.sessions(SessionInput::Ended(id_of(session)));
                    self.end_endpoint(session);
                }
            }
        }
        let clock = self.machines[GATEWAY].time(self.now);
        if self.gateway.core.next_wakeup() <= clock {
            busy = true;
            self.poll_sessions();
        }
        let endpoints = self.gateway.endpoints.values();
        let is_due = |endpoint: &&Endpoint| {
            endpoint.is_due || endpoint.mux.next_wakeup().is_some_and(|at| at <= clock)
        };
        let due: Vec<u64> = endpoints.filter(is_due).map(|endpoint| endpoint.session).collect();
        for session in due {
            busy = true;
            self.pump(GATEWAY, session);
        }
        busy
    }

    fn sessions(&mut self, input: SessionInput<u8>) {
        let clock = self.machines[GATEWAY].time(self.now);
        self.gateway.core.handle(clock, input);
    }

    pub fn poll_sessions(&mut self) {
        let clock = self.machines[GATEWAY].time(self.now);
        let mut count = 0;
        while let Some(output) = self.gateway.core.poll(clock) {
            count += 1;
            ensure!(count < 1_000, "the sessions have outputs without end: {output:?}");
            match output {
                SessionOutput::Review => {
                    let limits = self.gateway.limits;
                    self.gateway.core.review(clock, |_| Some(limits));
                }
                SessionOutput::End(id, reason) => {
                    let session = session_of(id);
                    self.log(|| format!("gateway: session {session} ends: {reason:?}"));
                    let endpoint = self.gateway.endpoints.get(&session);
                    let carriers = endpoint.map_or(0, |endpoint| endpoint.carriers.len());
                    let is_absent = matches!(reason, EndReason::Absent | EndReason::Evicted);
                    ensure!(
                        !is_absent || carriers == 0,
                        "session {session} with {carriers} carriers ends: {reason:?}"
                    );
                    self.end_endpoint(session);
                }
                SessionOutput::RequestLiveness(id) => {
                    let received = self.received(id);
                    self.sessions(SessionInput::Received(id, received));
                    let endpoint = self.gateway.endpoints.get(&session_of(id));
                    let carriers = endpoint.map(|endpoint| endpoint.carriers.values());
                    for id in carriers.into_iter().flatten().copied().collect::<Vec<_>>() {
                        let ping = Message::Ping { number: 0 };
                        self.send(id, GATEWAY, Item::Message(ping));
                    }
                }
                SessionOutput::CountReceived(id) => {
                    let received = self.received(id);
                    self.sessions(SessionInput::Received(id, received));
                }
                SessionOutput::SetRate(..) | SessionOutput::LimitsDeferred(_) => {}
            }
        }
    }

    /// Returns the sign of life of a session. Other clients give none.
    fn received(&self, id: SessionId<u8>) -> u64 {
        let endpoint = self.gateway.endpoints.get(&session_of(id));
        endpoint.map_or(0, |endpoint| endpoint.received)
    }

    fn end_endpoint(&mut self, session: u64) {
        if let Some(endpoint) = self.gateway.endpoints.remove(&session) {
            self.end_session(GATEWAY, &endpoint);
        }
    }

    /// An item arrives at the machine of the gateway.
    pub fn deliver_to_gateway(&mut self, id: usize, item: Item) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let run = self.gateway.run;
        if matches!(item, Item::Connect) && self.gateway.is_running {
            connection.run = Some(run);
            return self.send(id, GATEWAY, Item::Accept);
        }
        let is_known = self.gateway.is_running && connection.run == Some(run);
        match (connection.sides[GATEWAY], item) {
            (side, item) if !is_known || side == Side::Closed => {
                connection.sides[GATEWAY] = Side::Closed;
                // QUIC has no answer to packets of an unknown connection.
                if self.is_tcp(id) && !matches!(item, Item::Close) {
                    self.send(id, GATEWAY, Item::Close);
                }
            }
            (Side::Carrier(session, carrier), Item::Message(message)) => {
                self.on_message(GATEWAY, session, carrier, message);
            }
            (Side::Carrier(session, carrier), Item::Close) => {
                self.on_carrier_lost(GATEWAY, session, carrier, CarrierEnd::Closed);
            }
            (Side::Handshake, Item::Message(Message::Hello(hello))) => self.admit(id, hello),
            (Side::Handshake, _) => connection.sides[GATEWAY] = Side::Closed,
            (Side::Closed, _) | (Side::Carrier(..), _) => {}
        }
    }

    fn admit(&mut self, id: usize, hello: Hello) {
        let clock = self.machines[GATEWAY].time(self.now);
        let key = SessionId { key: KEY, number: hello.session };
        let session = session_of(key);
        let limits = self.gateway.limits;
        let admission = self.gateway.core.admit(clock, key, hello.resumes, limits);
        self.log(|| format!("gateway: hello {hello:?}: {admission:?}"));
        self.poll_sessions();
        match admission {
            Admission::Resume => {}
            Admission::Begin => {
                let mut endpoint = Endpoint::new(session, config(self.scenario, Role::Gateway));
                let (credit, stream_credit) = (hello.credit, hello.stream_credit);
                endpoint.mux.handle(clock, Input::InitialCredit { credit, stream_credit });
                self.gateway.begun += 1;
                endpoint.instance = self.gateway.begun;
                self.gateway.endpoints.insert(session, endpoint);
            }
            Admission::Refuse(refusal) => {
                let code = match refusal {
                    Refusal::UnknownSession => RefuseCode::UnknownSession,
                    Refusal::TooManySessions(_) => RefuseCode::Limit,
                };
                self.send(id, GATEWAY, Item::Message(Message::Refuse(code, String::new())));
                return self.close(id, GATEWAY);
            }
        }
        let Some(endpoint) = self.gateway.endpoints.get(&session) else { return };
        let instance = endpoint.instance;
        let own = self.scenario.limits;
        let welcome = Welcome {
            version: VERSION,
            credit: own.credit,
            stream_credit: own.stream_credit,
            streams: u64::from(limits.streams),
            v4: true,
            v6: true,
            lends: false,
            instance,
        };
        self.send(id, GATEWAY, Item::Message(Message::Welcome(welcome)));
        self.sessions(SessionInput::Attached(key));
        self.attach(GATEWAY, session, id);
    }

    pub fn stop_gateway(&mut self, how: Stop) {
        if !self.gateway.is_running {
            return;
        }
        for endpoint in std::mem::take(&mut self.gateway.endpoints).values() {
            match how {
                Stop::Shutdown => self.end_session(GATEWAY, endpoint),
                Stop::Kill | Stop::Crash => self.end_streams(GATEWAY, endpoint),
            }
        }
        let open = self.connections.iter_mut();
        let open = open.filter(|(_, connection)| connection.sides[GATEWAY] != Side::Closed);
        let open: Vec<usize> = open.map(|(id, _)| *id).collect();
        for id in open {
            // Without its process, a machine answers a new connection that is on its way.
            let is_accepted = self.connections[&id].run.is_some();
            if how != Stop::Crash && is_accepted && self.is_tcp(id) {
                self.close(id, GATEWAY);
            } else if is_accepted && let Some(connection) = self.connections.get_mut(&id) {
                connection.sides[GATEWAY] = Side::Closed;
            }
        }
        self.gateway.notices.clear();
        self.gateway.is_running = false;
        self.gateway.is_off = how == Stop::Crash;
    }

    pub fn start_gateway(&mut self) {
        if self.gateway.is_running {
            return;
        }
        let clock = self.machines[GATEWAY].time(self.now);
        self.gateway.core = Sessions::new(clock, Config::default());
        self.gateway.run += 1;
        (self.gateway.is_running, self.gateway.is_off) = (true, false);
    }

    /// Other clients start sessions and disappear without an end.
    pub fn admit_rivals(&mut self, count: u8) {
        if !self.gateway.is_running {
            return;
        }
        let clock = self.machines[GATEWAY].time(self.now);
        for _ in 0..count {
            self.gateway.rivals += 1;
            let id = id_of(RIVALS + self.gateway.rivals);
            let limits = self.gateway.limits;
            let admission = self.gateway.core.admit(clock, id, false, limits);
            if admission == Admission::Begin {
                self.sessions(SessionInput::Attached(id));
            }
        }
        self.poll_sessions();
    }

    /// The connections of the other clients end.
    pub fn detach_rivals(&mut self) {
        for rival in 1..=self.gateway.rivals {
            self.sessions(SessionInput::Detached(id_of(RIVALS + rival)));
        }
    }

    /// Checks that core and shell have the same sessions, and at most that of the client.
    pub fn check_sessions(&self) {
        let current = self.client.endpoint.session;
        for session in self.gateway.endpoints.keys() {
            ensure!(
                self.gateway.core.contains(id_of(*session)),
                "the core does not know session {session}"
            );
            ensure!(
                *session == current,
                "session {session} is left, the client has session {current}"
            );
        }
        ensure!(
            self.gateway.core.keys().is_empty() == self.gateway.endpoints.is_empty(),
            "the core has a session without carriers and streams"
        );
    }

    /// Checks that the carriers of the client exist.
    pub fn check_client(&self) {
        for (carrier, id) in &self.client.endpoint.carriers {
            let side = self.connections.get(id).map(|connection| connection.sides[CLIENT]);
            let expected = Side::Carrier(self.client.endpoint.session, *carrier);
            ensure!(side == Some(expected), "{carrier:?} of the client is {side:?}");
        }
    }
}
