//! Many connections and datagrams of applications over a few carriers, one a path: one end of a
//! session.
//!
//! [`Mux`] is the core; both ends are the same code, but that only a client opens streams. The
//! shell tells it what happened ([`Input`]), asks what to do ([`Mux::poll`]), and moves bytes. The
//! protocol is that of MPFlex (§5.4.2) in its idea; its form is ours: [`Message`].
//!
//! What is promised: every stream delivers exactly the bytes that were written, once and in order,
//! as long as the session lives, whatever carriers come, stall and die. Streams do not wait for
//! each other. A peer can make this end hold no more than what it granted.

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

/// Bytes of an application: cheap to clone and to cut.
pub trait Payload: Clone + Debug {
    /// How many.
    fn len(&self) -> usize;
    /// Those from `from` up to but not including `to`.
    fn slice(&self, from: usize, to: usize) -> Self;
    /// None at all.
    fn empty() -> Self;
    /// Both, one after the other.
    fn join(first: &Self, second: &Self) -> Self;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Which end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Opens streams.
    Client,
    /// Is asked to.
    Gateway,
}

/// What an end allows and assumes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which end it is.
    pub role: Role,
    /// How many bytes of all streams it takes in before applications take them.
    pub credit: u64,
    /// The same for every stream. So many streams that nobody reads hold up no other one: half of
    /// `credit` divided by this.
    pub stream_credit: u64,
    /// What one stream may have at most, when its reader is fast and others leave it.
    pub most_stream_credit: u64,
    /// How many streams the peer may have open.
    pub streams: u64,
    /// How many datagram flows the peer may have open.
    pub flows: u64,
    /// How many bytes of applications are kept at most, until the peer has them. A stream may keep
    /// half of what the others leave, and 16 KiB in any case.
    pub most_kept: u64,
    /// A datagram that waited for so long is dropped.
    pub stale: Span,
    /// Bytes of a stream may be sent again on another carrier when theirs stalls, up to this and a
    /// twentieth of all that is sent.
    pub reinjection: u64,
}

impl Config {
    /// The defaults of an end.
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

/// One end of a session.
#[derive(Debug)]
pub struct Mux<P> {
    config: Config,
    carriers: Vec<Carrier>,
    streams: HashMap<StreamId, Stream<P>>,
    /// Streams that were ever open, by number.
    known: Ranges,
    labels: HashMap<u8, (u64, Treatment)>,
    schedulers: Schedulers,
    /// Streams with something to send, by label.
    ready: Turns<StreamId>,
    /// Those that wait for credit of the session.
    broke: Turns<StreamId>,
    /// Bytes that wait in all streams.
    backlog: u64,
    notices: Turns<Notice>,
    /// Where each of them waits.
    noticed: HashMap<Notice, Place>,
    outputs: VecDeque<Output<P>>,
    datagrams: Datagrams<P>,
    /// Bytes that datagrams took more than streams while both waited.
    debt: i64,
    /// Credit of the session: what the peer granted and what of it is used…
    granted: u64,
    used: u64,
    peer_stream_credit: u64,
    /// …and what this end granted, what of it came, and what of that was consumed.
    most: u64,
    fresh: u64,
    consumed: u64,
    /// What streams may hold beyond what every one may.
    leased: u64,
    /// When they were granted more, until some time after.
    grants: VecDeque<(Time, StreamId)>,
    /// Pieces of streams that wait for those before them.
    pieces: usize,
    /// Bytes of all streams that are kept because they may have to be sent again.
    kept: u64,
    /// The carrier that brought something last.
    recent: Option<CarrierId>,
    /// So many bytes may be sent again; it owes what the last message was too long.
    reinjection: i64,
    counters: Counters,
}

impl<P: Payload> Mux<P> {
    /// A session without carriers.
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

    /// Takes note of what happened at `now`.
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

    /// What to do next; nothing when all is done that can be at `now`.
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
        // What was sent may have made room for the application.
        self.outputs.pop_front()
    }

    /// When to call [`Mux::poll`] again if nothing happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let all_suspect = self.carriers.iter().all(|carrier| carrier.suspect);
        let carriers = self.carriers.iter().flat_map(|carrier| {
            let ack = carrier.ack_at.filter(|_| carrier.room > 0);
            let given_up = carrier.given_up_at().filter(|_| !all_suspect);
            [ack, carrier.suspect_at(), given_up]
        });
        carriers.flatten().chain(self.datagrams.next_wakeup()).min()
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The streams that are open.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// The carriers, and whether each is suspect.
    pub fn carriers(&self) -> impl Iterator<Item = (CarrierId, bool)> + '_ {
        self.carriers.iter().map(|carrier| (carrier.id, carrier.suspect))
    }

    /// What this end holds for the peer's streams: at most the credit that was granted.
    pub fn held(&self) -> u64 {
        self.streams.values().map(|stream| stream.receive.held()).sum()
    }

    /// What labels stand for now.
    pub fn labels(&self) -> Vec<(u8, Treatment)> {
        self.labels.iter().map(|(id, (_, treatment))| (*id, *treatment)).collect()
    }

    /// How a stream is treated now.
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
