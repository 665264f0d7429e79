//! Messages of the peer of a session: as bytes, and as messages in any order.

use std::collections::{BTreeMap, BTreeSet};

use manyways_proto::mux::{
    CarrierId, Config, Destination, FlowId, Input, MAX_MESSAGE, MAX_PAYLOAD, Message, Mux, Output,
    Payload, ResetCode, Role, StreamId, TransportInfo, VERSION,
};
use manyways_proto::sched::{PathId, PathSet, SchedulerKind, StreamPolicy};
use manyways_unit::{Span, Time};

pub(super) const MESSAGE_WORDS: &[&str] =
    &["mway\u{1}", "\0\0", "@\0", "\u{3}abc", "\u{1e}\u{4}", "\u{1e}\u{6}Wp", "\u{1e}\u{7}\u{1}"];
pub(super) const PEER_WORDS: &[&str] = &[
    "\u{10}\0\u{1}\u{5}\u{7f}\u{1}\u{3}\u{1}\0\0P\u{1}a\0\u{2}hi",
    "\u{11}\0\0\0\u{1}a",
    "\u{12}\u{1}\u{2}\0\u{1}a",
    "\u{13}\0\0\0",
    "\u{14}\0\u{40}\u{7f}",
    "\u{15}\u{40}\u{7f}",
    "\u{16}\u{1}",
    "\u{18}\u{1}\0\u{1}",
    "\u{1a}\0\u{1}\u{5}\u{7f}\u{1}\u{3}\u{1}\0\0P\u{1}a\0\0",
    "\u{1b}\0",
    "\u{1c}\u{1}\u{1}",
    "\u{1d}\0\u{3}",
    "\u{1e}\u{2}\u{1}\u{1}x",
    "\u{1e}\u{7}\u{1}",
];

/// A sequence of messages of one carrier.
pub(super) fn message(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((message, length))) = Message::decode(rest) {
        assert!(0 < length && length <= rest.len());
        let said = rest[..length].to_vec();
        rest = &rest[length..];
        // After another version, a Hello or a Welcome may contain anything.
        let is_other = match &message {
            Message::Hello(hello) => hello.version != VERSION,
            Message::Welcome(welcome) => welcome.version != VERSION,
            _ => false,
        };
        if is_other {
            continue;
        }
        let mut again = Vec::new();
        message.encode(&mut again);
        // A varint may be encoded longer than necessary.
        assert!(again.len() <= length && length <= MAX_MESSAGE);
        assert_eq!(Message::decode(&again), Ok(Some((message, again.len()))));
        // A truncated message is incomplete and not another message.
        for cut in [1, length / 2, length - 1] {
            assert!(cut >= length || Message::decode(&said[..cut]) == Ok(None));
        }
    }
}

#[derive(Clone, Debug)]
struct Chunk(Vec<u8>);

impl Payload for Chunk {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn slice(&self, from: usize, to: usize) -> Self {
        Self(self.0[from..to].to_vec())
    }
    fn empty() -> Self {
        Self(Vec::new())
    }
    fn join(first: &Self, second: &Self) -> Self {
        Self([&first.0[..], &second.0[..]].concat())
    }
}

const CREDIT: u64 = 40_000;
const STREAMS: u64 = 8;
const CARRIER_ROOM: usize = 4_000;

/// An endpoint under test, and the state of its applications.
struct Endpoint {
    mux: Mux<Chunk>,
    role: Role,
    now: Time,
    /// Bytes that may still be sent over each carrier.
    carrier_room: BTreeMap<CarrierId, usize>,
    carriers: u64,
    opened: u64,
    /// Delivered bytes that are not consumed.
    unconsumed: BTreeMap<StreamId, u64>,
    closed: BTreeSet<StreamId>,
}

/// Messages and other inputs in any order, to both endpoints.
pub(super) fn peer(bytes: &[u8]) {
    for role in [Role::Client, Role::Gateway] {
        let mut end = Endpoint::new(role);
        let mut rest = bytes;
        while let Some((first, after)) = rest.split_first() {
            // A byte below 0x80 may start a message of the peer; any other byte is a local event.
            rest = match Message::decode(rest) {
                Ok(Some((message, length))) if *first < 0x80 => {
                    let message = message.map(|data| Chunk(data.to_vec()));
                    end.receive(message);
                    &rest[length..]
                }
                _ => {
                    let (argument, after) = after.split_first().unwrap_or((&0, &[]));
                    end.apply_input(*first, *argument);
                    after
                }
            };
            end.run_outputs();
        }
    }
}

impl Endpoint {
    fn new(role: Role) -> Self {
        let mut config = Config::new(role);
        config.credit = CREDIT;
        config.stream_credit = CREDIT / 4;
        config.max_stream_credit = CREDIT / 2;
        config.streams = STREAMS;
        config.flows = STREAMS;
        config.max_unacked = CREDIT;
        let mut end = Self {
            mux: Mux::new(config),
            role,
            now: Time::ZERO,
            carrier_room: BTreeMap::new(),
            carriers: 0,
            opened: 0,
            unconsumed: BTreeMap::new(),
            closed: BTreeSet::new(),
        };
        end.attach(0);
        end.attach(1);
        end.handle(Input::InitialCredit { credit: 10_000, stream_credit: 5_000 });
        end
    }

    fn handle(&mut self, input: Input<Chunk>) {
        self.mux.handle(self.now, input);
    }

    fn attach(&mut self, path: u8) {
        let (carrier, path) = (CarrierId(self.carriers), PathId(path % 4));
        self.carriers += 1;
        let info = TransportInfo::initial(Span::from_millis(20));
        self.handle(Input::Attach { carrier, path, transport_info: info });
        self.carrier_room.insert(carrier, 0);
    }

    fn receive(&mut self, message: Message<Chunk>) {
        if let Some(carrier) = self.carrier_room.keys().next().copied() {
            self.handle(Input::Message { carrier, message });
        }
    }

    fn stream(&self, argument: u8) -> StreamId {
        StreamId(u64::from(argument) % 16)
    }

    fn apply_input(&mut self, what: u8, argument: u8) {
        let (stream, label) = (self.stream(argument), argument % 4);
        let carrier = self.carrier_room.keys().nth(usize::from(argument) % 3).copied();
        let target = Destination::Name("a".to_owned(), argument.into());
        match what % 18 {
            0 if self.role == Role::Client && self.opened < STREAMS => {
                let stream = StreamId(self.opened);
                self.opened += 1;
                let confirm = argument & 1 == 0;
                self.handle(Input::Open { stream, label, destination: target, confirm });
            }
            1 => {
                let max = self.mux.writable_bytes(stream).min(usize::from(argument) * 64);
                self.handle(Input::Write { stream, data: Chunk(vec![0; max]) });
            }
            2 => self.handle(Input::Finish { stream }),
            3 => {
                self.unconsumed.remove(&stream);
                self.handle(Input::Reset { stream, code: ResetCode::Aborted });
            }
            4 => {
                let bytes = self.unconsumed.remove(&stream).unwrap_or_default();
                self.handle(Input::Consumed { stream, bytes });
            }
            5 if self.role == Role::Client => {
                let scheduler =
                    SchedulerKind::ALL[usize::from(argument) % SchedulerKind::ALL.len()];
                let paths = PathSet::from_bits(u32::from(argument >> 4));
                let policy = StreamPolicy { scheduler, paths, priority: label, primary: None };
                self.handle(Input::Relabel { id: label, stream_policy: policy });
            }
            6 if self.role == Role::Client => self.handle(Input::Assign { stream, label }),
            7 => {
                let (flow, len) = (FlowId(label.into()), usize::from(argument) * 150);
                let data = Chunk(vec![1; len]);
                self.handle(Input::Datagram { flow, label, peer: target, data });
            }
            8 => self.handle(Input::CloseFlow { flow: FlowId(label.into()) }),
            9 => self.now += Span::from_millis(argument.into()),
            10 if self.carrier_room.len() < 3 => self.attach(argument),
            11 => {
                if let Some(carrier) = carrier {
                    self.carrier_room.remove(&carrier);
                    self.handle(Input::Detach { carrier });
                }
            }
            12 if self.role == Role::Gateway => self.handle(Input::Opened { stream }),
            13 => {
                if let Some(carrier) = carrier {
                    let mut info = TransportInfo::initial(Span::from_millis(20));
                    info.max_datagram = Some(usize::from(argument) * 8);
                    info.acknowledged = self.now.as_nanos() >> 27;
                    self.handle(Input::TransportInfo { carrier, transport_info: info });
                }
            }
            14 => {
                if let Some(carrier) = carrier {
                    let rtt = Span::from_millis(argument.into());
                    self.handle(Input::Lend { carrier, join: label.into(), rtt });
                }
            }
            15 => {
                if let Some(carrier) = carrier {
                    self.handle(Input::Dropped { carrier });
                }
            }
            16 => {
                if let Some(carrier) = carrier {
                    self.handle(Input::Retire { carrier });
                }
            }
            _ => {
                let carriers: Vec<CarrierId> = self.carrier_room.keys().copied().collect();
                for carrier in carriers {
                    let bytes = if argument & 1 == 0 { CARRIER_ROOM } else { 0 };
                    self.carrier_room.insert(carrier, bytes);
                    self.handle(Input::Writable { carrier, bytes });
                }
            }
        }
    }

    /// Executes all outputs and checks the limits.
    fn run_outputs(&mut self) {
        let mut steps = 0;
        while let Some(output) = self.mux.poll(self.now) {
            steps += 1;
            assert!(steps < 10_000, "it never comes to an end");
            self.check(output);
        }
        assert!(self.mux.next_wakeup().is_none_or(|next| next > self.now), "it asks for the past");
        assert!(
            self.mux.unconsumed_bytes() <= CREDIT,
            "{} bytes held",
            self.mux.unconsumed_bytes()
        );
        assert!(self.mux.stream_count() as u64 <= STREAMS + STREAMS.max(256));
    }

    fn check(&mut self, output: Output<Chunk>) {
        match output {
            Output::Send { carrier, message } => {
                let payload = message.payload().map_or(0, Payload::len);
                assert!(payload <= MAX_PAYLOAD);
                let room = self.carrier_room.get_mut(&carrier).expect("a carrier that is there");
                assert!(*room > 0, "it has no room");
                let mut head = Vec::new();
                message.encode_head(payload, &mut head);
                *room = room.saturating_sub(head.len() + payload);
            }
            Output::Open { stream, .. } => {
                assert_eq!(self.role, Role::Gateway);
                assert!(!self.closed.contains(&stream));
            }
            Output::Opened { stream } => {
                assert_eq!(self.role, Role::Client);
                assert!(!self.closed.contains(&stream));
            }
            Output::Data { stream, data } => {
                assert!(!data.is_empty() && !self.closed.contains(&stream));
                *self.unconsumed.entry(stream).or_default() += data.len() as u64;
            }
            Output::Finished { stream } | Output::Reset { stream, .. } => {
                assert!(!self.closed.contains(&stream), "it ended before");
            }
            Output::Closed { stream } => {
                assert!(self.closed.insert(stream), "closed twice");
                self.unconsumed.remove(&stream);
            }
            Output::Suspect { carrier, .. }
            | Output::ProtocolViolation { carrier, .. }
            | Output::WrongDrop { carrier } => {
                assert!(self.carrier_room.contains_key(&carrier));
            }
            _ => {}
        }
    }
}
