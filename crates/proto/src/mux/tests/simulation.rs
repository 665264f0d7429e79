//! Client and gateway of a session in virtual time, with carriers that are slow, stall and fail.

use std::collections::{BTreeMap, HashMap};

use manyways_unit::{Rate, Size, Span, Time};

use super::lane::Lane;
pub use super::lane::Link;
use super::lent::LentCarrier;
use crate::mux::{
    CarrierId, Config, Counters, Destination, FlowId, Input, LoanMessage, Message, Mux, Output,
    Payload, ResetCode, Role, StreamId, TransportInfo,
};
use crate::sched::{PathId, StreamPolicy};

/// Bytes `at` to `at + len` of the output of `of`, computed from their offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    pub source: (StreamId, Role),
    pub at: u64,
    pub len: usize,
}

impl Payload for Piece {
    fn len(&self) -> usize {
        self.len
    }
    fn slice(&self, from: usize, to: usize) -> Self {
        assert!(from <= to && to <= self.len, "{from}..{to} of {}", self.len);
        Self { at: self.at + from as u64, len: to - from, ..*self }
    }
    fn empty() -> Self {
        Self { source: (StreamId(0), Role::Client), at: 0, len: 0 }
    }
    fn join(first: &Self, second: &Self) -> Self {
        assert_eq!((first.source, first.at + first.len as u64), (second.source, second.at));
        Self { len: first.len + second.len, ..*first }
    }
}

struct Carrier {
    id: CarrierId,
    path: PathId,
    link: Link,
    /// Whether all data is lost.
    is_silent: bool,
    /// Maximum length of a datagram.
    datagram: Option<usize>,
    /// To the gateway, to the client.
    lanes: [Lane<Message<Piece>>; 2],
}

/// The application at one endpoint of a stream.
#[derive(Debug, Default)]
pub struct Application {
    /// Bytes that the application has not written yet.
    pub to_write: u64,
    pub written: u64,
    pub finishes: bool,
    finished: bool,
    pub received: u64,
    /// Bytes that the application has not consumed.
    pub unconsumed: u64,
    /// Whether the application consumes data at once.
    pub consumes: bool,
    /// Whether the gateway has confirmed the stream to the client.
    pub opened: bool,
    pub end: Option<Result<(), ResetCode>>,
    pub closed: bool,
    is_writable: bool,
    /// Times of received bytes, and the total at each time.
    pub arrivals: Vec<(Time, u64)>,
}

pub struct Simulation {
    pub now: Time,
    pub endpoints: [Mux<Piece>; 2],
    carriers: Vec<Carrier>,
    pub lent: Vec<LentCarrier>,
    next_carrier: u64,
    next_stream: u64,
    pub applications: [BTreeMap<StreamId, Application>; 2],
    pub datagrams: [Vec<(Time, FlowId, Piece)>; 2],
    /// Bytes delivered by each path, including headers.
    pub traffic: HashMap<PathId, u64>,
    pub suspects: Vec<(Time, CarrierId)>,
    pub recoveries: Vec<(Time, CarrierId)>,
    /// Messages of each carrier with their times.
    pub sent: Vec<(Time, CarrierId, Message<Piece>)>,
    pub violations: Vec<&'static str>,
    pub loan_messages: Vec<(usize, LoanMessage)>,
    pub steps: u64,
    /// Whether transports do not report their bytes in flight.
    pub hides_in_flight: bool,
    /// Whether the client asks for a confirmation of new streams.
    pub confirms: bool,
}

/// Index of the client.
pub const CLIENT: usize = 0;
pub const GATEWAY: usize = 1;

impl Simulation {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl Fn(&mut Config)) -> Self {
        let end = |role| {
            let mut config = Config::new(role);
            change(&mut config);
            let (credit, stream_credit) = (config.credit, config.stream_credit);
            let mut mux = Mux::new(config);
            mux.handle(Time::ZERO, Input::InitialCredit { credit, stream_credit });
            mux
        };
        Self {
            now: Time::ZERO,
            endpoints: [end(Role::Client), end(Role::Gateway)],
            carriers: Vec::new(),
            lent: Vec::new(),
            next_carrier: 0,
            next_stream: 0,
            applications: Default::default(),
            datagrams: Default::default(),
            traffic: HashMap::new(),
            suspects: Vec::new(),
            recoveries: Vec::new(),
            sent: Vec::new(),
            violations: Vec::new(),
            loan_messages: Vec::new(),
            steps: 0,
            hides_in_flight: false,
            confirms: false,
        }
    }

    pub fn attach(&mut self, path: u8, link: Link) -> CarrierId {
        let id = CarrierId(self.next_carrier);
        self.next_carrier += 1;
        let path = PathId(path);
        let info = TransportInfo::initial(link.rtt);
        for end in &mut self.endpoints {
            end.handle(self.now, Input::Attach { carrier: id, path, transport_info: info });
        }
        self.carriers.push(Carrier {
            id,
            path,
            link,
            is_silent: false,
            datagram: None,
            lanes: Default::default(),
        });
        id
    }

    /// Attaches a carrier over a lender with this buffer.
    pub fn attach_lent(&mut self, path: u8, pipe: Link, far: Link, buffer: Size) -> CarrierId {
        self.attach_lent_with(path, pipe, far, buffer, far.rtt)
    }

    /// The same with a lender that claims this round-trip time to the gateway.
    pub fn attach_lent_with(
        &mut self,
        path: u8,
        pipe: Link,
        far: Link,
        buffer: Size,
        claimed: Span,
    ) -> CarrierId {
        let carrier = CarrierId(self.next_carrier);
        self.next_carrier += 1;
        let ends = [(pipe, claimed), (far, pipe.rtt)];
        for (end, (own, rtt)) in ends.into_iter().enumerate() {
            let transport_info = TransportInfo::initial(own.rtt);
            let path = PathId(path);
            self.endpoints[end].handle(self.now, Input::Attach { carrier, path, transport_info });
            let join = carrier.0 as u32;
            self.endpoints[end].handle(self.now, Input::Lend { carrier, join, rtt });
        }
        self.lent.push(LentCarrier::new(carrier, pipe, far, buffer));
        carrier
    }

    /// Removes a carrier over a lender with all that waits there.
    pub fn detach_lent(&mut self, id: CarrierId) {
        self.lent.retain(|carrier| carrier.id != id);
        for end in &mut self.endpoints {
            end.handle(self.now, Input::Detach { carrier: id });
        }
    }

    pub fn lent(&mut self, id: CarrierId) -> &mut LentCarrier {
        self.lent.iter_mut().find(|carrier| carrier.id == id).expect("a lent carrier")
    }

    /// Removes a carrier; `share` / 256 of its data in flight arrives before.
    pub fn detach(&mut self, id: CarrierId, share: u8) {
        let Some(at) = self.carriers.iter().position(|carrier| carrier.id == id) else { return };
        for (from, to) in [(CLIENT, GATEWAY), (GATEWAY, CLIENT)] {
            let lane = &mut self.carriers[at].lanes[from];
            // The rest goes with the carrier.
            let arriving = lane.len() * usize::from(share) / 256;
            let arriving: Vec<_> = (0..arriving).filter_map(|_| lane.take_next()).collect();
            for (_, message) in arriving {
                self.endpoints[to].handle(self.now, Input::Message { carrier: id, message });
            }
        }
        self.carriers.remove(at);
        for end in &mut self.endpoints {
            end.handle(self.now, Input::Detach { carrier: id });
        }
    }

    /// The client's interface of a carrier fails, and the client reports it.
    pub fn disconnect_link(&mut self, id: CarrierId) {
        let Some(carrier) = self.carriers.iter_mut().find(|carrier| carrier.id == id) else {
            return;
        };
        carrier.is_silent = true;
        let path = carrier.path;
        self.endpoints[CLIENT].handle(self.now, Input::Detach { carrier: id });
        self.endpoints[CLIENT].handle(self.now, Input::PathDown { path });
    }

    pub fn set_silent(&mut self, id: CarrierId, silent: bool) {
        let now = self.now;
        let Some(carrier) = self.carriers.iter_mut().find(|c| c.id == id) else { return };
        if carrier.is_silent && !silent {
            // Unacknowledged data is retransmitted.
            let link = carrier.link;
            carrier.lanes.iter_mut().for_each(|lane| lane.resend(now, &link));
        }
        carrier.is_silent = silent;
    }

    pub fn set_rate(&mut self, id: CarrierId, rate: Rate) {
        if let Some(carrier) = self.carriers.iter_mut().find(|c| c.id == id) {
            carrier.link.rate = rate;
        }
    }

    pub fn set_rtt(&mut self, id: CarrierId, rtt: Span) {
        if let Some(carrier) = self.carriers.iter_mut().find(|c| c.id == id) {
            carrier.link.rtt = rtt;
        }
    }

    pub fn limit_datagrams(&mut self, id: CarrierId, limit: usize) {
        if let Some(carrier) = self.carriers.iter_mut().find(|c| c.id == id) {
            carrier.datagram = Some(limit);
        }
    }

    pub fn carrier_ids(&self) -> Vec<CarrierId> {
        self.carriers.iter().map(|carrier| carrier.id).collect()
    }

    pub fn label(&mut self, id: u8, policy: StreamPolicy) {
        self.endpoints[CLIENT].handle(self.now, Input::Relabel { id, stream_policy: policy });
    }

    /// Opens a stream on which the client writes `up` bytes and the gateway `down` bytes.
    pub fn open(&mut self, label: u8, up: u64, down: u64) -> StreamId {
        self.open_with(label, up, down, true)
    }

    fn open_with(&mut self, label: u8, up: u64, down: u64, finishes: bool) -> StreamId {
        let stream = StreamId(self.next_stream);
        self.next_stream += 1;
        let target = Destination::Name("server.example".to_owned(), 443);
        let confirm = self.confirms;
        let open = Input::Open { stream, label, destination: target, confirm };
        self.endpoints[CLIENT].handle(self.now, open);
        for (applications, to_write) in self.applications.iter_mut().zip([up, down]) {
            let application =
                Application { to_write, finishes, consumes: true, ..Default::default() };
            applications.insert(stream, application);
        }
        self.write(CLIENT, stream);
        stream
    }

    /// Opens a stream on which an application writes when the test calls [`Simulation::feed`].
    pub fn open_quiet(&mut self, label: u8) -> StreamId {
        self.open_with(label, 1, 1, false)
    }

    /// Adds `bytes` to the data that the application has to write.
    pub fn feed(&mut self, end: usize, stream: StreamId, bytes: u64) {
        if let Some(application) = self.applications[end].get_mut(&stream) {
            application.to_write += bytes;
        }
        self.write(end, stream);
    }

    /// An application sends the `number`th datagram of a flow.
    pub fn datagram(&mut self, end: usize, flow: u32, label: u8, number: u64, len: usize) {
        let role = [Role::Client, Role::Gateway][end];
        let data = Piece { source: (StreamId(flow.into()), role), at: number << 20, len };
        let (flow, peer) = (FlowId(flow), Destination::Address([192, 0, 2, 1].into(), 3_478));
        self.endpoints[end].handle(self.now, Input::Datagram { flow, label, peer, data });
        self.execute_outputs();
    }

    /// The application writes the permitted bytes.
    pub fn write(&mut self, end: usize, stream: StreamId) {
        let Some(application) = self.applications[end].get_mut(&stream) else { return };
        application.is_writable = false;
        let role = [Role::Client, Role::Gateway][end];
        loop {
            let room = self.endpoints[end].writable_bytes(stream) as u64;
            let len = room.min(application.to_write - application.written).min(65_536);
            if len == 0 {
                break;
            }
            let data = Piece { source: (stream, role), at: application.written, len: len as usize };
            application.written += len;
            self.endpoints[end].handle(self.now, Input::Write { stream, data });
        }
        if application.written == application.to_write
            && application.finishes
            && !std::mem::replace(&mut application.finished, true)
        {
            self.endpoints[end].handle(self.now, Input::Finish { stream });
        }
    }

    pub fn consume(&mut self, end: usize, stream: StreamId) {
        let Some(application) = self.applications[end].get_mut(&stream) else { return };
        let bytes = std::mem::take(&mut application.unconsumed);
        self.endpoints[end].handle(self.now, Input::Consumed { stream, bytes });
    }

    pub fn reset(&mut self, end: usize, stream: StreamId) {
        // This endpoint does not know the stream yet, or no longer.
        if self.endpoints[end].stream_policy(stream).is_none() {
            return;
        }
        self.endpoints[end].handle(self.now, Input::Reset { stream, code: ResetCode::Aborted });
        if let Some(application) = self.applications[end].get_mut(&stream) {
            application.end.get_or_insert(Err(ResetCode::Aborted));
        }
    }

    /// Remaining state of both endpoints, for debugging.
    pub fn debug_state(&self) -> String {
        let mut text = String::new();
        for end in &self.endpoints {
            let (credit, notices) =
                ((end.send_credit, end.send_credit_used, end.receive_credit), &end.control_queue);
            text += &format!("{:?}: credit {credit:?}, {notices:?}, ", end.config.role);
            text += &format!("ready {:?}, broke {:?}\n", end.ready, end.blocked);
            for (id, stream) in &end.streams {
                text += &format!("  {id:?}: {stream:?}\n");
            }
        }
        text
    }

    pub fn counters(&self, end: usize) -> Counters {
        self.endpoints[end].counters()
    }

    /// Runs all due events until `until`.
    pub fn run_until(&mut self, until: Time) {
        self.execute_outputs();
        while let Some(next) = self.next_event().filter(|next| *next <= until) {
            self.now = next.max(self.now);
            self.steps += 1;
            // The number of messages at one time is bounded.
            assert!(self.steps < 2_000_000, "{:?}: {}", self.now, self.debug_state());
            self.arrive();
            self.execute_outputs();
        }
        self.now = self.now.max(until);
        self.execute_outputs();
    }

    pub fn run_for(&mut self, span: Span) {
        self.run_until(self.now + span);
    }

    fn next_event(&self) -> Option<Time> {
        let lanes = self.carriers.iter().filter(|carrier| !carrier.is_silent);
        let lanes = lanes.flat_map(|carrier| carrier.lanes.iter());
        let lanes = lanes.flat_map(|lane| lane.next_events(self.now));
        let ends = self.endpoints.iter().map(Mux::next_wakeup);
        let lent = self.lent.iter().map(|carrier| carrier.next_event(self.now));
        let next = lanes.chain(ends).chain(lent).flatten().min()?;
        // An endpoint without an action at its wakeup must not loop.
        Some(if next <= self.now { self.now + Span::from_micros(100) } else { next })
    }

    fn arrive(&mut self) {
        for at in 0..self.lent.len() {
            for (end, input) in self.lent[at].run(self.now) {
                self.endpoints[end].handle(self.now, input);
            }
        }
        for at in 0..self.carriers.len() {
            for (from, to) in [(CLIENT, GATEWAY), (GATEWAY, CLIENT)] {
                let carrier = &mut self.carriers[at];
                if carrier.is_silent {
                    continue;
                }
                let (id, path) = (carrier.id, carrier.path);
                let lane = &mut carrier.lanes[from];
                while let Some((size, message)) = lane.take_arrived(self.now) {
                    *self.traffic.entry(path).or_default() += size as u64;
                    self.endpoints[to].handle(self.now, Input::Message { carrier: id, message });
                }
            }
        }
    }

    /// Performs all current actions of both endpoints.
    fn execute_outputs(&mut self) {
        for end in [CLIENT, GATEWAY] {
            self.report_writable(end);
            while let Some(output) = self.endpoints[end].poll(self.now) {
                self.execute(end, output);
            }
            // A shell would poll forever.
            let next = self.endpoints[end].next_wakeup();
            assert!(next.is_none_or(|next| next > self.now), "{next:?} at {:?}", self.now);
        }
    }

    fn report_writable(&mut self, end: usize) {
        for lent in &self.lent {
            let (transport_info, bytes) = lent.report(self.now, end);
            let carrier = lent.id;
            self.endpoints[end].handle(self.now, Input::TransportInfo { carrier, transport_info });
            self.endpoints[end].handle(self.now, Input::Writable { carrier, bytes });
        }
        for carrier in &self.carriers {
            let (info, bytes) = carrier.lanes[end].report(
                self.now,
                &carrier.link,
                carrier.is_silent,
                self.hides_in_flight,
                carrier.datagram,
            );
            let id = carrier.id;
            self.endpoints[end]
                .handle(self.now, Input::TransportInfo { carrier: id, transport_info: info });
            self.endpoints[end].handle(self.now, Input::Writable { carrier: id, bytes });
        }
    }

    fn execute(&mut self, end: usize, output: Output<Piece>) {
        match output {
            Output::Loan(message) => self.loan_messages.push((end, message)),
            Output::Recall { carrier, first, last } => {
                let now = self.now;
                self.lent(carrier).recall(now, end, first, last);
            }
            Output::Send { carrier, message } => {
                let mut head = Vec::new();
                let payload = message.payload().map_or(0, |piece| piece.len);
                message.encode_head(payload, &mut head);
                let size = head.len() + payload;
                if let Some(lent) = self.lent.iter_mut().find(|lent| lent.id == carrier) {
                    self.sent.push((self.now, carrier, message.clone()));
                    lent.submit(self.now, end, size, message);
                    return;
                }
                let carrier = self.carriers.iter_mut().find(|c| c.id == carrier);
                let carrier = carrier.expect("a carrier that was attached");
                if matches!(message, Message::Datagram { .. } | Message::Part { .. }) {
                    assert!(carrier.datagram.is_none_or(|limit| size <= limit), "{size} bytes");
                }
                self.sent.push((self.now, carrier.id, message.clone()));
                carrier.lanes[end].submit(self.now, &carrier.link, size, message);
            }
            Output::Open { stream, .. } => {
                assert_eq!(end, GATEWAY);
                self.endpoints[GATEWAY].handle(self.now, Input::Opened { stream });
                self.write(GATEWAY, stream);
            }
            Output::Opened { stream } => {
                assert_eq!(end, CLIENT);
                let application = self.applications[CLIENT].get_mut(&stream);
                let application = application.expect("an open stream");
                assert!(!std::mem::replace(&mut application.opened, true), "confirmed twice");
            }
            Output::Data { stream, data } => {
                let peer = [Role::Gateway, Role::Client][end];
                let application = self.applications[end].get_mut(&stream).expect("an open stream");
                assert_eq!(application.end, None, "bytes after the end");
                assert_eq!((data.source, data.at), ((stream, peer), application.received));
                assert!(data.len > 0);
                application.received += data.len as u64;
                application.unconsumed += data.len as u64;
                application.arrivals.push((self.now, application.received));
                if application.consumes {
                    self.consume(end, stream);
                }
            }
            Output::Finished { stream } => self.ended(end, stream, Ok(())),
            Output::Reset { stream, code } => self.ended(end, stream, Err(code)),
            Output::Writable { stream } => self.write(end, stream),
            Output::Closed { stream } => {
                if let Some(application) = self.applications[end].get_mut(&stream) {
                    assert!(!std::mem::replace(&mut application.closed, true), "closed twice");
                }
            }
            Output::Datagram { flow, data, .. } => {
                self.datagrams[end].push((self.now, flow, data));
            }
            Output::CloseFlow { .. } => {}
            Output::PathDown { path } => {
                let gone = self.carriers.iter().filter(|carrier| carrier.path == path);
                for id in gone.map(|carrier| carrier.id).collect::<Vec<_>>() {
                    self.endpoints[end].handle(self.now, Input::Detach { carrier: id });
                }
            }
            Output::Suspect { carrier, .. } => self.suspects.push((self.now, carrier)),
            Output::Recovered { carrier } => self.recoveries.push((self.now, carrier)),
            Output::ProtocolViolation { violation: what, .. } => self.violations.push(what),
            Output::WrongDrop { .. } => self.violations.push("a wrong drop"),
            Output::StreamRefused | Output::Bye => {}
        }
    }

    fn ended(&mut self, end: usize, stream: StreamId, outcome: Result<(), ResetCode>) {
        let application = self.applications[end].get_mut(&stream).expect("an open stream");
        match (application.end, outcome) {
            (None, how) => application.end = Some(how),
            // A stream may be reset after one of its directions ended.
            (Some(Ok(())), Err(code)) => application.end = Some(Err(code)),
            (Some(before), how) => panic!("{stream:?} ended twice: {before:?}, {how:?}"),
        }
    }

    /// The longest time without new bytes of a stream at an endpoint, between the first and the
    /// last.
    pub fn longest_stall(&self, end: usize, stream: StreamId) -> Span {
        let arrivals = &self.applications[end][&stream].arrivals;
        arrivals.windows(2).map(|pair| pair[1].0.since(pair[0].0)).max().unwrap_or_default()
    }

    /// Time at which the client's application received the last byte of a stream.
    pub fn done_at(&self, stream: StreamId) -> Option<Time> {
        let application = &self.applications[CLIENT][&stream];
        application.end?.ok()?;
        application.arrivals.last().map(|(at, _)| *at)
    }
}

pub fn link(kbps: u64, rtt: u64) -> Link {
    Link { rate: Rate::from_kbps(kbps), rtt: Span::from_millis(rtt), queue: Span::ZERO }
}
