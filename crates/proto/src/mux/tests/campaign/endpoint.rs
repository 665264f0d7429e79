//! The mux of an endpoint with its carriers, as a shell drives it.

use std::collections::{BTreeMap, BTreeSet};

use super::network::{Item, Side};
use super::scenario::{End, Scenario};
use super::world::{Timer, World, ensure, violated};
use crate::bond::dial::{CarrierEnd, CarrierTransport};
use crate::mux::tests::simulation::{CLIENT, GATEWAY, Piece};
use crate::mux::{
    CarrierId, Config, Counters, Destination, FlowId, Input, Message, Mux, Output, Role, StreamId,
};
use crate::sched::PathId;

/// One endpoint of a session.
#[derive(Debug)]
pub struct Endpoint {
    pub session: u64,
    /// Which session with this number it is; 0 at a client before the first welcome.
    pub instance: u64,
    pub mux: Mux<Piece>,
    /// Connections of the carriers.
    pub carriers: BTreeMap<CarrierId, usize>,
    pub streams: BTreeMap<StreamId, usize>,
    pub flows: BTreeSet<FlowId>,
    /// Number of received messages, as the sign of life that a gateway counts.
    pub received: u64,
    /// Whether the mux has got an input since it was polled.
    pub is_due: bool,
    next_carrier: u64,
    counters: Counters,
}

/// An event for the owner of an endpoint, which gets it later.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    Lost { carrier: CarrierId, end: CarrierEnd },
    Suspect(CarrierId),
    Recovered(CarrierId),
    Bye,
}

/// Returns the limits of an endpoint.
pub fn config(scenario: &Scenario, role: Role) -> Config {
    let mut config = Config::new(role);
    let limits = scenario.limits;
    config.credit = limits.credit;
    config.stream_credit = limits.stream_credit;
    config.max_stream_credit = limits.max_stream_credit;
    config.max_unacked = limits.max_unacked;
    config.max_reinjection_budget = limits.max_reinjection_budget;
    config
}

/// Returns the destination of the stream with this number among all streams.
pub fn destination(number: usize) -> Destination {
    let [_, a, b, c] = (number as u32).to_be_bytes();
    Destination::Address([10, a, b, c].into(), 443)
}

/// Whether the client asks the gateway to confirm the connection of this stream.
pub fn asks_for_confirmation(number: usize) -> bool {
    number.is_multiple_of(2)
}

impl Endpoint {
    pub fn new(session: u64, config: Config) -> Self {
        Self {
            session,
            instance: 0,
            mux: Mux::new(config),
            carriers: BTreeMap::new(),
            streams: BTreeMap::new(),
            flows: BTreeSet::new(),
            received: 0,
            is_due: true,
            next_carrier: 0,
            counters: Counters::default(),
        }
    }

    /// Returns the endpoint of the next session of a client, without carriers.
    pub fn renewed(&self, session: u64, config: Config) -> Self {
        Self { next_carrier: self.next_carrier, ..Self::new(session, config) }
    }

    pub fn new_carrier(&mut self, connection: usize) -> CarrierId {
        let id = CarrierId(self.next_carrier);
        self.next_carrier += 1;
        self.carriers.insert(id, connection);
        id
    }

    /// Checks that counters grow and that memory stays within its limits.
    pub fn check(&mut self) {
        let (before, now) = (self.counters, self.mux.counters());
        let pairs = [
            (before.sent, now.sent),
            (before.reinjected, now.reinjected),
            (before.spurious, now.spurious),
            (before.received, now.received),
            (before.duplicate, now.duplicate),
            (before.dropped, now.dropped),
            (before.headers, now.headers),
        ];
        ensure!(pairs.iter().all(|(old, new)| old <= new), "a counter fell: {before:?}, {now:?}");
        ensure!(
            now.reinjected <= now.sent && now.duplicate <= now.received,
            "a counter exceeds its sum: {now:?}"
        );
        self.counters = now;
        let mux = &self.mux;
        let limit = mux.config.credit;
        let held = mux.unconsumed_bytes();
        ensure!(held <= limit, "{held} bytes are buffered for readers, the limit is {limit}");
        // A stream may keep 16 KiB even if the others fill the buffer.
        let limit = mux.config.max_unacked + ((mux.streams.len() as u64 + 1) << 14);
        let kept = mux.unacked_bytes;
        ensure!(kept <= limit, "{kept} bytes are kept until an ACK, the limit is {limit}");
        ensure!(
            mux.send_credit_used <= mux.send_credit,
            "{} bytes were sent with a credit of {}",
            mux.send_credit_used,
            mux.send_credit
        );
    }

    /// Checks that the sums of the mux equal those of its streams.
    pub fn check_sums(&self) {
        let mux = &self.mux;
        let streams = || mux.streams.values();
        let sums = [
            ("backlog", mux.backlog, streams().map(|stream| stream.send.backlog()).sum()),
            ("kept", mux.unacked_bytes, streams().map(|stream| stream.send.unacked_bytes()).sum()),
            ("leased", mux.leased, streams().map(|stream| stream.leased).sum()),
            (
                "pieces",
                mux.pieces as u64,
                streams().map(|stream| stream.receive.piece_count() as u64).sum(),
            ),
        ];
        for (name, total, sum) in sums {
            ensure!(total == sum, "{name}: the total is {total}, the streams have {sum}");
        }
    }

    /// Checks that nothing is left of the streams.
    pub fn check_empty(&self) {
        self.check_sums();
        let mux = &self.mux;
        ensure!(mux.streams.is_empty(), "streams are left: {:?}", mux.streams);
        ensure!(
            mux.ready.is_empty() && mux.blocked.is_empty(),
            "closed streams are queued: {:?}, {:?}",
            mux.ready,
            mux.blocked
        );
        let (flows, known) = (mux.datagrams.flow_count(), &self.flows);
        ensure!(flows <= known.len(), "{flows} flows are left, the shell knows {known:?}");
    }
}

impl World<'_> {
    pub fn endpoint(&mut self, end: End, session: u64) -> Option<&mut Endpoint> {
        self.client.endpoint_of(&mut self.gateway, end, session)
    }

    /// Executes the outputs of a mux until there are no more.
    pub fn pump(&mut self, end: End, session: u64) {
        let (now, clock) = (self.now, self.machines[end].time(self.now));
        let Some(endpoint) = self.client.endpoint_of(&mut self.gateway, end, session) else {
            return;
        };
        endpoint.is_due = false;
        for (carrier, connection) in &endpoint.carriers {
            let connection = &self.connections[connection];
            let path = &self.paths[usize::from(connection.path.0)];
            let (transport_info, bytes) = connection.report(now, path, end);
            let carrier = *carrier;
            endpoint.mux.handle(clock, Input::TransportInfo { carrier, transport_info });
            endpoint.mux.handle(clock, Input::Writable { carrier, bytes });
        }
        let mut count = 0;
        while let Some(endpoint) = self.endpoint(end, session)
            && let Some(output) = endpoint.mux.poll(clock)
        {
            count += 1;
            ensure!(count < 100_000, "the mux has outputs without end: {output:?}");
            self.execute(end, session, output);
        }
        if let Some(endpoint) = self.endpoint(end, session) {
            endpoint.check();
        }
    }

    fn execute(&mut self, end: End, session: u64, output: Output<Piece>) {
        let Some(endpoint) = self.client.endpoint_of(&mut self.gateway, end, session) else {
            return;
        };
        match output {
            Output::Send { carrier, message } => {
                let Some(id) = endpoint.carriers.get(&carrier).copied() else {
                    violated(format!("{message:?} was sent on {carrier:?}, which is closed"))
                };
                self.send(id, end, Item::Message(message));
            }
            Output::Open { stream, destination: target, .. } => {
                ensure!(end == GATEWAY, "{stream:?} was opened to the client");
                let is_it = |(number, record): &(usize, &super::application::StreamRecord)| {
                    (record.session, record.id, destination(*number))
                        == (session, stream, target.clone())
                };
                let found = self.streams.iter().enumerate().find(is_it).map(|(number, _)| number);
                let Some(number) = found else {
                    violated(format!("{stream:?} to {target:?} was never opened"))
                };
                let before = endpoint.streams.insert(stream, number);
                ensure!(before.is_none(), "stream {number} was opened twice");
                let at = self.now + self.streams[number].connect;
                self.timers.add(at, Timer::Connect(number));
            }
            Output::Opened { stream } => {
                let number = endpoint.number(stream);
                ensure!(end == CLIENT && asks_for_confirmation(number), "{number} did not ask");
            }
            Output::Data { stream, data } => {
                let number = endpoint.number(stream);
                self.on_data(end, number, data);
            }
            Output::Finished { stream } => {
                let number = endpoint.number(stream);
                self.on_finished(end, number);
            }
            Output::Reset { stream, code } => {
                // If opening and reset arrive together, a gateway does not report the opening.
                if end == CLIENT || endpoint.streams.contains_key(&stream) {
                    let number = endpoint.number(stream);
                    self.on_reset(end, number, code);
                }
            }
            Output::Writable { stream } => {
                let number = endpoint.number(stream);
                self.write(end, number);
            }
            Output::Closed { stream } => {
                if let Some(number) = endpoint.streams.remove(&stream) {
                    self.on_closed(end, number);
                }
            }
            Output::Datagram { flow, data, .. } => {
                endpoint.flows.insert(flow);
                self.on_datagram(end, session, flow, data);
            }
            Output::CloseFlow { flow } => {
                endpoint.flows.remove(&flow);
            }
            Output::PathDown { path } => {
                let connections = &self.connections;
                let gone = endpoint.carriers.iter();
                let gone = gone.filter(|(_, id)| connections[id].path == path);
                for carrier in gone.map(|(carrier, _)| *carrier).collect::<Vec<_>>() {
                    self.on_carrier_lost(end, session, carrier, CarrierEnd::Broken);
                }
            }
            Output::Suspect { carrier, .. } => self.notify(end, session, Notice::Suspect(carrier)),
            Output::Recovered { carrier } => self.notify(end, session, Notice::Recovered(carrier)),
            Output::ProtocolViolation { violation, .. } => {
                violated(format!("endpoint {end} reports a violation: {violation}"))
            }
            Output::Loan(message) => violated(format!("nobody sent {message:?}")),
            Output::WrongDrop { carrier } | Output::Recall { carrier, .. } => {
                violated(format!("{carrier:?} has no lender and was asked to drop messages"))
            }
            Output::StreamRefused => {}
            Output::Bye => self.notify(end, session, Notice::Bye),
        }
    }

    pub fn send(&mut self, id: usize, from: End, item: Item) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let path = &self.paths[usize::from(connection.path.0)];
            connection.submit(self.now, path, from, item);
        }
    }

    /// An endpoint closes a connection.
    pub fn close(&mut self, id: usize, end: End) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if std::mem::replace(&mut connection.sides[end], Side::Closed) != Side::Closed {
            self.send(id, end, Item::Close);
        }
    }

    /// Attaches a connection to a session after its handshake.
    pub fn attach(&mut self, end: End, session: u64, id: usize) -> Option<CarrierId> {
        let clock = self.machines[end].time(self.now);
        let connection = &self.connections[&id];
        let path = connection.path;
        let (info, _) = connection.report(self.now, &self.paths[usize::from(path.0)], end);
        let endpoint = self.endpoint(end, session)?;
        let carrier = endpoint.new_carrier(id);
        endpoint.is_due = true;
        endpoint.mux.handle(clock, Input::Attach { carrier, path, transport_info: info });
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.sides[end] = Side::Carrier(session, carrier);
        }
        Some(carrier)
    }

    /// Ends a carrier without a notice.
    pub fn detach(&mut self, end: End, session: u64, carrier: CarrierId) -> bool {
        let clock = self.machines[end].time(self.now);
        let Some(endpoint) = self.endpoint(end, session) else { return false };
        let Some(id) = endpoint.carriers.remove(&carrier) else { return false };
        endpoint.is_due = true;
        endpoint.mux.handle(clock, Input::Detach { carrier });
        self.close(id, end);
        true
    }

    pub fn on_carrier_lost(&mut self, end: End, session: u64, carrier: CarrierId, how: CarrierEnd) {
        if self.detach(end, session, carrier) {
            self.notify(end, session, Notice::Lost { carrier, end: how });
        }
    }

    fn notify(&mut self, end: End, session: u64, notice: Notice) {
        match end {
            CLIENT => self.client.notices.push_back(notice),
            _ => self.gateway.notices.push_back((session, notice)),
        }
    }

    /// A message of the mux arrives.
    pub fn on_message(
        &mut self,
        end: End,
        session: u64,
        carrier: CarrierId,
        message: Message<Piece>,
    ) {
        let clock = self.machines[end].time(self.now);
        if let Some(endpoint) = self.endpoint(end, session) {
            endpoint.received += 1;
            endpoint.is_due = true;
            endpoint.mux.handle(clock, Input::Message { carrier, message });
        }
    }

    /// Ends a session at an endpoint: its streams are reset, its carriers are closed.
    pub fn end_session(&mut self, end: End, endpoint: &Endpoint) {
        self.end_streams(end, endpoint);
        for id in endpoint.carriers.values() {
            self.send(*id, end, Item::Message(Message::Bye));
            self.close(*id, end);
        }
    }

    /// A share of a connection's data arrives, and the rest is lost with the connection.
    pub fn break_connection(&mut self, id: usize, shares: [u8; 2], notices: [bool; 2]) {
        for end in [CLIENT, GATEWAY] {
            let Some(connection) = self.connections.get_mut(&id) else { return };
            for item in connection.cut(end, shares[end]) {
                self.deliver(id, 1 - end, item);
            }
        }
        let lost = |world: &mut Self, end| {
            let side = world.connections.get(&id).map(|connection| connection.sides[end]);
            match side {
                Some(Side::Carrier(session, carrier)) => {
                    world.on_carrier_lost(end, session, carrier, CarrierEnd::Broken);
                }
                Some(Side::Handshake) => world.deliver(id, end, Item::Close),
                _ => {}
            }
        };
        for end in [CLIENT, GATEWAY] {
            if notices[end] {
                lost(self, end);
            }
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.is_lost = true;
        }
    }

    /// Returns the newest connection on a path that is a carrier of the client.
    pub fn newest_carrier(&self, path: PathId) -> Option<usize> {
        let mut newest = self.connections.iter().rev();
        let is_it = |connection: &super::network::Connection| {
            connection.path == path && matches!(connection.sides[CLIENT], Side::Carrier(..))
        };
        newest.find(|(_, connection)| is_it(connection)).map(|(id, _)| *id)
    }

    pub fn is_tcp(&self, id: usize) -> bool {
        self.connections.get(&id).is_some_and(|one| one.transport == CarrierTransport::Tcp)
    }
}

impl Endpoint {
    fn number(&self, stream: StreamId) -> usize {
        match self.streams.get(&stream) {
            Some(number) => *number,
            None => violated(format!("an output names {stream:?}, which is not open")),
        }
    }
}
