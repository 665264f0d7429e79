//! One endpoint of a session: multiplexes streams and datagrams over one or more carriers for each
//! path.
//!
//! [`Mux`] is the core. Both endpoints run the same code, except that only a client opens streams.
//! The shell reports events ([`Input`]), polls for actions ([`Mux::poll`]) and moves bytes. The
//! design follows MPFlex (§5.4.2); the message format ([`Message`]) is ours.
//!
//! Guarantees: every stream delivers exactly the written bytes, once and in order, while the
//! session exists, even if carriers are added, stall or fail. Streams do not block each other. A
//! peer cannot make this endpoint buffer more than the granted credit.

mod appetite;
mod bottleneck;
mod carrier;
mod datagram;
mod event;
mod flight;
mod incoming;
mod message;
mod notice;
mod outgoing;
mod queue;
mod quiet;
mod receive;
mod send;
mod stall;
mod stream;
mod turns;

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;

use manyways_unit::{Span, Time};

pub use carrier::{CarrierId, Condition};
pub use event::{Counters, Input, Output};
pub use message::{
    DecodeError, FlowId, Hello, Label, MOST_MESSAGE, MOST_PAYLOAD, Message, RefuseCode, ResetCode,
    StreamId, Target, VERSION, Welcome,
};

use crate::ranges::Ranges;
use crate::sched::{Schedulers, Treatment};
use carrier::Carrier;
use datagram::Datagrams;
use notice::Notice;
use stream::Stream;
use turns::{Place, Turns};

/// Bytes of an application; cheap to clone and to slice.
pub trait Payload: Clone + Debug {
    fn len(&self) -> usize;
    /// Returns the bytes from `from` up to but not including `to`.
    fn slice(&self, from: usize, to: usize) -> Self;
    fn empty() -> Self;
    /// Returns `first` followed by `second`.
    fn join(first: &Self, second: &Self) -> Self;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The role of an endpoint in a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Opens streams.
    Client,
    /// Accepts streams and connects to their targets.
    Gateway,
}

/// Limits of an endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    pub role: Role,
    /// Receive credit of the session: bytes of all streams that are buffered until applications
    /// consume them.
    pub credit: u64,
    /// Receive credit of one stream. `credit` / 2 / `stream_credit` streams without a reader do not
    /// block another stream.
    pub stream_credit: u64,
    /// Maximum to which the receive window of one stream may grow.
    pub most_stream_credit: u64,
    /// Maximum number of open streams of the peer.
    pub streams: u64,
    /// Maximum number of open datagram flows of the peer.
    pub flows: u64,
    /// Bytes of all streams that are kept until the peer acknowledges them. One stream may keep
    /// half of the unused part, and at least 16 KiB.
    pub most_kept: u64,
    /// Time in the queue after which a datagram is dropped.
    pub stale: Span,
    /// Maximum reinjection budget in bytes. The budget starts at this value, and grows by a
    /// twentieth of each sent byte of a stream up to this value.
    pub reinjection: u64,
}

impl Config {
    /// Creates the default limits of `role`.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            credit: 128 << 20,
            stream_credit: 1 << 20,
            most_stream_credit: 16 << 20,
            streams: 32_768,
            flows: 4_096,
            most_kept: 96 << 20,
            stale: Span::from_millis(150),
            reinjection: 512 << 10,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new(Role::Client)
    }
}

/// One endpoint of a session.
#[derive(Debug)]
pub struct Mux<P> {
    config: Config,
    carriers: Vec<Carrier>,
    streams: HashMap<StreamId, Stream<P>>,
    /// Numbers of all streams that were ever open.
    known: Ranges,
    labels: HashMap<u8, (u64, Treatment)>,
    schedulers: Schedulers,
    /// Streams with data to send, by label.
    ready: Turns<StreamId>,
    /// Streams that wait for credit of the session, by label.
    broke: Turns<StreamId>,
    /// Bytes in the send queues of all streams that stream credit permits.
    backlog: u64,
    notices: Turns<Notice>,
    /// Place of each notice in `notices`.
    noticed: HashMap<Notice, Place>,
    outputs: VecDeque<Output<P>>,
    datagrams: Datagrams<P>,
    /// Bytes that datagrams have sent more than streams while both waited.
    debt: i64,
    /// Send credit of the session that the peer granted, and the used part.
    granted: u64,
    used: u64,
    peer_stream_credit: u64,
    /// Receive credit of the session: the granted, the received and the consumed bytes.
    most: u64,
    fresh: u64,
    consumed: u64,
    /// Receive credit of all streams above the base credit of each stream.
    leased: u64,
    /// Recent grants of stream credit, oldest first.
    grants: VecDeque<(Time, StreamId)>,
    /// Received pieces that wait for earlier bytes of their stream.
    pieces: usize,
    /// Bytes of all streams that may need a retransmission.
    kept: u64,
    /// The carrier of the last received traffic.
    recent: Option<CarrierId>,
    /// Remaining reinjection budget in bytes; negative if the last message was larger than the
    /// rest.
    reinjection: i64,
    counters: Counters,
}

impl<P: Payload> Mux<P> {
    /// Creates a session without carriers.
    pub fn new(config: Config) -> Self {
        let most = config.credit;
        Self {
            datagrams: Datagrams::new(config.stale, config.flows),
            reinjection: config.reinjection.cast_signed(),
            peer_stream_credit: 0,
            config,
            carriers: Vec::new(),
            streams: HashMap::new(),
            known: Ranges::new(),
            labels: HashMap::new(),
            schedulers: Schedulers::default(),
            ready: Turns::new(),
            broke: Turns::new(),
            backlog: 0,
            notices: Turns::new(),
            noticed: HashMap::new(),
            outputs: VecDeque::new(),
            debt: 0,
            granted: 0,
            used: 0,
            most,
            fresh: 0,
            consumed: 0,
            leased: 0,
            grants: VecDeque::new(),
            pieces: 0,
            kept: 0,
            recent: None,
            counters: Counters::default(),
        }
    }

    /// Processes an event that happened at `now`.
    pub fn handle(&mut self, now: Time, input: Input<P>) {
        match input {
            Input::Attach { carrier, path, condition } => {
                self.carriers.push(Carrier::new(now, carrier, path, condition));
                self.carriers.sort_by_key(|carrier| carrier.path);
                self.carriers.iter_mut().for_each(Carrier::look_again);
            }
            Input::Detach { carrier } => self.detach(carrier),
            Input::Condition { carrier, condition } => {
                if let Some(carrier) = self.carrier(carrier) {
                    carrier.observe(now, condition);
                }
            }
            Input::Room { carrier, bytes } => {
                if let Some(carrier) = self.carrier(carrier) {
                    carrier.room = bytes;
                }
            }
            Input::Allowance { credit, stream_credit } => {
                self.granted = self.granted.max(credit);
                self.peer_stream_credit = self.peer_stream_credit.max(stream_credit);
                let most = self.peer_stream_credit;
                let ids: Vec<StreamId> = self.streams.keys().copied().collect();
                for id in ids {
                    self.edit(id, |stream| stream.send.grant(most));
                }
            }
            Input::Message { carrier, message } => {
                if let Err(what) = self.receive(now, carrier, message) {
                    self.outputs.push_back(Output::Breach { carrier, what });
                }
            }
            Input::Open { stream, label, target } => self.open(stream, label, target),
            Input::Write { stream, data } => {
                self.edit(stream, |stream| stream.send.write(data));
            }
            Input::Finish { stream } => {
                self.edit(stream, |stream| stream.send.finish());
            }
            Input::Reset { stream, code } => self.reset(stream, code),
            Input::Consumed { stream, bytes } => self.consume(now, stream, bytes),
            Input::Relabel { id, treatment } => {
                let entry = self.labels.entry(id).or_insert((0, treatment));
                *entry = (entry.0 + 1, treatment);
                self.notice(Notice::Relabel(id));
            }
            Input::Assign { stream, label } => {
                let told = self.edit(stream, |stream| {
                    stream.label = label;
                    stream.revision = stream.revision.saturating_add(1);
                    stream.open.as_ref().is_none_or(|open| open.ever)
                });
                self.review_notices(stream);
                if told == Some(true) {
                    self.notice(Notice::Assign(stream));
                }
            }
            Input::Datagram { flow, label, peer, data } => {
                self.datagrams.push(now, flow, label, peer, data);
            }
            Input::PathDown { path } => self.notice(Notice::PathDown(path)),
            Input::CloseFlow { flow } => {
                if let Some(Some(label)) = self.datagrams.close(flow) {
                    self.notice(Notice::CloseFlow(flow, label));
                }
            }
        }
    }

    /// Returns the next action, or `None` if nothing is to be done at `now`.
    pub fn poll(&mut self, now: Time) -> Option<Output<P>> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        self.look_for_stalls(now);
        self.datagrams.drop_stale(now);
        self.counters.dropped += self.datagrams.take_dropped();
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if let Some((carrier, message)) = self.transmit(now) {
            return Some(Output::Send { carrier, message });
        }
        // Sent bytes may have made room for more bytes of the application.
        self.outputs.pop_front()
    }

    /// Returns the time of the next [`Mux::poll`] if no input arrives before, or `None` if no timer
    /// runs.
    pub fn next_wakeup(&self) -> Option<Time> {
        let all_suspect = self.carriers.iter().all(|carrier| carrier.suspect);
        let carriers = self.carriers.iter().flat_map(|carrier| {
            let ack = carrier.ack_at.filter(|_| carrier.room > 0);
            let given_up = carrier.given_up_at().filter(|_| !all_suspect);
            [ack, carrier.suspect_at(), given_up]
        });
        carriers.flatten().chain(self.datagrams.next_wakeup()).min()
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Returns the carriers, each with whether it is suspect.
    pub fn carriers(&self) -> impl Iterator<Item = (CarrierId, bool)> + '_ {
        self.carriers.iter().map(|carrier| (carrier.id, carrier.suspect))
    }

    /// Returns the received bytes that applications have not consumed; at most the granted credit.
    pub fn held(&self) -> u64 {
        self.streams.values().map(|stream| stream.receive.held()).sum()
    }

    /// Returns the current labels and their treatments.
    pub fn labels(&self) -> Vec<(u8, Treatment)> {
        self.labels.iter().map(|(id, (_, treatment))| (*id, *treatment)).collect()
    }

    /// Returns the current treatment of `stream`, or `None` if the stream does not exist.
    pub fn treatment(&self, stream: StreamId) -> Option<Treatment> {
        self.streams.get(&stream).map(|stream| self.treatment_of(stream.label))
    }

    fn treatment_of(&self, label: u8) -> Treatment {
        self.labels.get(&label).map_or_else(Treatment::default, |(_, treatment)| *treatment)
    }

    fn carrier(&mut self, id: CarrierId) -> Option<&mut Carrier> {
        self.carriers.iter_mut().find(|carrier| carrier.id == id)
    }
}

#[cfg(test)]
mod tests;
