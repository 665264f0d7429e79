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

mod carrier;
mod datagram;
mod message;
mod receive;
mod send;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Debug;

use manyways_trace::{Span, Time};

pub use carrier::{CarrierId, Condition};
pub use message::{
    DecodeError, FlowId, Hello, Label, MOST_MESSAGE, MOST_PAYLOAD, Message, RefuseCode, ResetCode,
    StreamId, Target, VERSION, Welcome,
};

use crate::ranges::{Range, Ranges};
use crate::sched::{Choice, Job, Kind, PathSet, Schedulers, Treatment, View};
use carrier::{Carrier, What};
use datagram::{Datagrams, Verdict};
use message::MOST_DATA_HEADER;
use receive::ReceiveHalf;
use send::SendHalf;

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
    /// The same for one stream at its beginning…
    pub stream_credit: u64,
    /// …and at most, when its reader is fast.
    pub most_stream_credit: u64,
    /// How many streams the peer may have open.
    pub streams: u64,
    /// How many datagram flows the peer may have open.
    pub flows: u64,
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
            credit: 32 << 20,
            stream_credit: 2 << 20,
            most_stream_credit: 16 << 20,
            streams: 32_768,
            flows: 4_096,
            stale: Span::from_millis(150),
            reinjection: 512 << 10,
        }
    }
}

/// What happened.
#[derive(Debug)]
pub enum Input<P> {
    /// A carrier is there.
    Attach {
        /// Its number, not used before.
        carrier: CarrierId,
        /// The path that it takes.
        path: crate::sched::PathId,
        /// What is known of it.
        condition: Condition,
    },
    /// A carrier is gone.
    Detach {
        /// Which one.
        carrier: CarrierId,
    },
    /// What a carrier's transport says.
    Condition {
        /// Which carrier.
        carrier: CarrierId,
        /// What it says.
        condition: Condition,
    },
    /// A carrier takes so many bytes now, counted anew.
    Room {
        /// Which carrier.
        carrier: CarrierId,
        /// How many bytes.
        bytes: usize,
    },
    /// The peer allows this from the beginning, as its first message says.
    Allowance {
        /// Bytes of all streams.
        credit: u64,
        /// Bytes of a stream.
        stream_credit: u64,
    },
    /// A message came.
    Message {
        /// Over this carrier.
        carrier: CarrierId,
        /// What it says.
        message: Message<P>,
    },
    /// The application wants a connection. Only a client's does.
    Open {
        /// Its number: one more than the one before.
        stream: StreamId,
        /// How it is treated.
        label: u8,
        /// Where to.
        target: Target,
    },
    /// The application wrote.
    Write {
        /// To which stream.
        stream: StreamId,
        /// What.
        data: P,
    },
    /// The application has nothing more to write.
    Finish {
        /// Which stream.
        stream: StreamId,
    },
    /// The stream ends now, in both directions.
    Reset {
        /// Which one.
        stream: StreamId,
        /// Why.
        code: ResetCode,
    },
    /// The application took bytes that were delivered.
    Consumed {
        /// Of which stream.
        stream: StreamId,
        /// How many.
        bytes: u64,
    },
    /// A label stands for this from now on, for streams that have it too.
    Relabel {
        /// The label's number.
        id: u8,
        /// What it stands for.
        treatment: Treatment,
    },
    /// A stream gets another label. Only a client gives labels.
    Assign {
        /// Which stream.
        stream: StreamId,
        /// Its new label.
        label: u8,
    },
    /// A datagram of an application, or of a server.
    Datagram {
        /// Its flow.
        flow: FlowId,
        /// How it is treated; a gateway repeats what the client said.
        label: u8,
        /// Where it goes, or whence it comes.
        peer: Target,
        /// What it says.
        data: P,
    },
    /// A flow is over.
    CloseFlow {
        /// Which one.
        flow: FlowId,
    },
}

/// What to do.
#[derive(Debug)]
pub enum Output<P> {
    /// Send this.
    Send {
        /// Over this carrier.
        carrier: CarrierId,
        /// The message.
        message: Message<P>,
    },
    /// Connect to where an application wants to go.
    Open {
        /// For this stream.
        stream: StreamId,
        /// How it is treated.
        label: u8,
        /// Where to.
        target: Target,
    },
    /// Give this to the application.
    Data {
        /// Of this stream.
        stream: StreamId,
        /// The next bytes.
        data: P,
    },
    /// The peer has nothing more to write.
    Finished {
        /// On which stream.
        stream: StreamId,
    },
    /// The stream has ended before its end.
    Reset {
        /// Which one.
        stream: StreamId,
        /// Why.
        code: ResetCode,
    },
    /// The application may write again, see [`Mux::appetite`].
    Hungry {
        /// To which stream.
        stream: StreamId,
    },
    /// Nothing is left of the stream.
    Closed {
        /// Which one.
        stream: StreamId,
    },
    /// A datagram came.
    Datagram {
        /// Of this flow.
        flow: FlowId,
        /// How it is treated.
        label: u8,
        /// Where it goes, or whence it comes.
        peer: Target,
        /// What it says.
        data: P,
    },
    /// The peer's flow is over.
    CloseFlow {
        /// Which one.
        flow: FlowId,
    },
    /// A carrier has not got through for longer than it should take. It is used only where there
    /// is no other until it does; a new one may get through.
    Suspect {
        /// Which one.
        carrier: CarrierId,
    },
    /// The peer broke a rule: the carrier is to be closed.
    Breach {
        /// Over which carrier.
        carrier: CarrierId,
        /// What it did.
        what: &'static str,
    },
    /// The peer says that the session is over.
    Bye,
}

/// What a session has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Bytes of streams that were sent, all copies counted.
    pub sent: u64,
    /// Of these, sent again because a carrier stalled…
    pub reinjected: u64,
    /// …though it brought them after all.
    pub spurious: u64,
    /// Bytes of streams that came.
    pub received: u64,
    /// Of these, for the second time.
    pub repeated: u64,
    /// Datagrams that were dropped before they were sent: stale, or too many.
    pub dropped: u64,
    /// Bytes of messages that are not the application's.
    pub headers: u64,
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
    /// Streams with something to send, the most urgent first.
    ready: BTreeMap<std::cmp::Reverse<u8>, VecDeque<StreamId>>,
    /// Those that wait for credit of the session.
    broke: Vec<StreamId>,
    /// Bytes that wait in all streams.
    backlog: u64,
    notices: VecDeque<Notice>,
    outputs: VecDeque<Output<P>>,
    datagrams: Datagrams<P>,
    /// Credit of the session: what the peer granted and what of it is used…
    granted: u64,
    used: u64,
    peer_stream_credit: u64,
    /// …and what this end granted, what of it came, and what of that was consumed.
    most: u64,
    fresh: u64,
    consumed: u64,
    /// The carrier that brought something last.
    recent: Option<CarrierId>,
    reinjection: u64,
    counters: Counters,
}

#[derive(Debug)]
struct Stream<P> {
    label: u8,
    /// What a client has to say before any byte.
    open: Option<Open>,
    /// Whether the peer of the client knows what the stream is for.
    is_open: bool,
    send: SendHalf<P>,
    receive: ReceiveHalf<P>,
    /// It is in the queue of those that have something to send.
    queued: bool,
    /// The shell was told to wait before it writes more.
    full: bool,
    reset: Option<Reset>,
    /// Copies that carriers owe, where every path gets one.
    owed: Vec<(CarrierId, Ranges)>,
}

#[derive(Debug)]
struct Open {
    target: Target,
    /// It is on its way.
    sent: bool,
    /// It has ever been: the peer may know of it.
    ever: bool,
}

/// How far this end's reset of a stream is.
#[derive(Clone, Copy, Debug)]
struct Reset {
    code: ResetCode,
    arrived: bool,
}

/// What is to be said, and is no data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Notice {
    Reset(StreamId),
    StreamCredit(StreamId),
    Credit,
    Relabel(u8),
    Assign(StreamId),
    CloseFlow(FlowId),
}

/// What a stream may have written and not sent at least.
const LEAST_APPETITE: u64 = 128 << 10;
/// …and at most: what the faster paths could send before a slow one delivers is less.
const MOST_APPETITE: u64 = 4 << 20;
/// So many streams are looked at for one that its scheduler does not keep waiting.
const MOST_WAITING: usize = 64;
/// Stream numbers may be so far ahead of those that were seen.
const MOST_AHEAD: u64 = 1 << 20;

impl<P: Payload> Mux<P> {
    /// A session without carriers.
    pub fn new(config: Config) -> Self {
        let most = config.credit;
        Self {
            datagrams: Datagrams::new(config.stale, config.flows),
            reinjection: config.reinjection,
            peer_stream_credit: 0,
            config,
            carriers: Vec::new(),
            streams: HashMap::new(),
            known: Ranges::new(),
            labels: HashMap::new(),
            schedulers: Schedulers::default(),
            ready: BTreeMap::new(),
            broke: Vec::new(),
            backlog: 0,
            notices: VecDeque::new(),
            outputs: VecDeque::new(),
            granted: 0,
            used: 0,
            most,
            fresh: 0,
            consumed: 0,
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
                // Whatever waited for this path has its turn.
                self.wake_all();
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
                self.unblock();
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
                self.notices.push_back(Notice::Relabel(id));
                self.wake_all();
            }
            Input::Assign { stream, label } => {
                let told = self.edit(stream, |stream| {
                    stream.label = label;
                    stream.open.as_ref().is_none_or(|open| open.ever)
                });
                if told == Some(true) {
                    self.notice(Notice::Assign(stream));
                }
            }
            Input::Datagram { flow, label, peer, data } => {
                self.datagrams.push(now, flow, label, peer, data);
            }
            Input::CloseFlow { flow } => {
                if self.datagrams.close(flow) {
                    self.notices.push_back(Notice::CloseFlow(flow));
                }
            }
        }
    }

    /// What to do next; nothing when all is done that can be at `now`.
    pub fn poll(&mut self, now: Time) -> Option<Output<P>> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        self.datagrams.drop_stale(now);
        self.look_for_stalls(now);
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if let Some((carrier, message)) = self.transmit(now) {
            return Some(Output::Send { carrier, message });
        }
        self.counters.dropped += self.datagrams.take_dropped();
        // What was sent may have made room for the application.
        self.outputs.pop_front()
    }

    /// When to call [`Mux::poll`] again if nothing happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let carriers = self.carriers.iter().flat_map(|carrier| {
            let ack = carrier.ack_at.filter(|_| carrier.room > 0);
            [ack, carrier.suspect_at()]
        });
        carriers.flatten().chain(self.datagrams.next_wakeup()).min()
    }

    /// How many bytes the application may write to a stream now. When it has written so many, or
    /// this is zero, [`Output::Hungry`] says when it may go on.
    pub fn appetite(&mut self, stream: StreamId) -> usize {
        let most = self.most_waiting();
        let Some(stream) = self.streams.get_mut(&stream) else { return 0 };
        if !stream.send.is_open() {
            return 0;
        }
        let room = most.saturating_sub(stream.send.waiting());
        // What a peer does not take in is not read from the application either.
        let held = (self.config.most_stream_credit * 2).saturating_sub(stream.send.held());
        let room = room.min(held);
        stream.full = room == 0;
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The streams that are open.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// The carriers with what is known of each: its number, its path, whether it is suspect.
    pub fn carriers(&self) -> impl Iterator<Item = (CarrierId, View, bool)> + '_ {
        self.carriers.iter().map(|carrier| (carrier.id, carrier.view(), carrier.suspect))
    }

    /// What this end holds for the peer's streams: at most the credit that was granted.
    pub fn held(&self) -> u64 {
        self.streams.values().map(|stream| stream.receive.held()).sum()
    }

    /// How a stream is treated now.
    pub fn treatment(&self, stream: StreamId) -> Option<Treatment> {
        self.streams.get(&stream).map(|stream| self.treatment_of(stream.label))
    }

    /// What labels stand for now.
    pub fn labels(&self) -> Vec<(u8, Treatment)> {
        self.labels.iter().map(|(id, (_, treatment))| (*id, *treatment)).collect()
    }

    fn treatment_of(&self, label: u8) -> Treatment {
        self.labels.get(&label).map_or_else(Treatment::default, |(_, treatment)| *treatment)
    }

    fn carrier(&mut self, id: CarrierId) -> Option<&mut Carrier> {
        self.carriers.iter_mut().find(|carrier| carrier.id == id)
    }

    /// So much may wait in a stream: what all paths send until the slowest of them delivers, or a
    /// scheduler could not tell what a slow path may skip.
    fn most_waiting(&self) -> u64 {
        let slowest = self.carriers.iter().map(|carrier| carrier.view().arrival()).max();
        let slowest = slowest.unwrap_or_default() + Span::from_millis(20);
        let rate: manyways_trace::Rate =
            self.carriers.iter().map(|carrier| carrier.condition.rate).sum();
        (rate.size_in(slowest).as_bytes() * 2).clamp(LEAST_APPETITE, MOST_APPETITE)
    }

    fn open(&mut self, id: StreamId, label: u8, target: Target) {
        let mut stream = Stream::new(label, self.peer_stream_credit, self.config.stream_credit);
        stream.open = Some(Open { target, sent: false, ever: false });
        stream.is_open = true;
        self.known.insert(Range::new(id.0, id.0 + 1));
        self.streams.insert(id, stream);
        self.edit(id, |_| {});
    }

    /// Changes a stream and sees to it that it is served, and that the sum of what waits is right.
    fn edit<R>(&mut self, id: StreamId, change: impl FnOnce(&mut Stream<P>) -> R) -> Option<R> {
        let stream = self.streams.get_mut(&id)?;
        let before = stream.send.backlog();
        let result = change(stream);
        let after = stream.send.backlog();
        self.backlog = (self.backlog + after).saturating_sub(before);
        if stream.is_ready() && !stream.queued {
            stream.queued = true;
            let priority = self.labels.get(&stream.label).map_or(1, |(_, t)| t.priority);
            self.ready.entry(std::cmp::Reverse(priority)).or_default().push_back(id);
        }
        Some(result)
    }

    fn wake_all(&mut self) {
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        // Priorities may be others now.
        self.ready.clear();
        for id in ids {
            self.edit(id, |stream| stream.queued = false);
        }
    }

    /// The session has credit again.
    fn unblock(&mut self) {
        for id in std::mem::take(&mut self.broke) {
            self.edit(id, |_| {});
        }
    }

    /// Everything that was on its way over a carrier is sent again.
    fn detach(&mut self, id: CarrierId) {
        let Some(at) = self.carriers.iter().position(|carrier| carrier.id == id) else { return };
        let carrier = self.carriers.remove(at);
        for sent in carrier.sent {
            self.send_again(sent.what);
        }
        for stream in self.streams.values_mut() {
            stream.owed.retain(|(owing, _)| *owing != id);
        }
        self.recent = self.recent.filter(|recent| *recent != id);
    }

    /// So many bytes are sent again.
    fn send_again(&mut self, what: What) -> u64 {
        let notice = match what {
            What::Open { stream, length } => {
                let again = self.edit(stream, |stream| {
                    if let Some(open) = &mut stream.open {
                        open.sent = false;
                    }
                    stream.send.lost(Range::new(0, length), false)
                });
                return again.unwrap_or_default();
            }
            What::Data { stream, range, fin } => {
                return self.edit(stream, |s| s.send.lost(range, fin)).unwrap_or_default();
            }
            What::Reset { stream } => Notice::Reset(stream),
            What::StreamCredit { stream } => Notice::StreamCredit(stream),
            What::Credit => Notice::Credit,
            What::Relabel { id } => Notice::Relabel(id),
            What::Assign { stream } => Notice::Assign(stream),
            What::CloseFlow { flow } => Notice::CloseFlow(flow),
        };
        self.notice(notice);
        0
    }

    fn notice(&mut self, notice: Notice) {
        if !self.notices.contains(&notice) {
            self.notices.push_back(notice);
        }
    }

    fn reset(&mut self, id: StreamId, code: ResetCode) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.reset.is_some() {
            return;
        }
        let left = stream.receive.discard();
        stream.owed.clear();
        // The application that ended it wants to hear no more.
        self.outputs.retain(|output| match output {
            Output::Open { stream, .. }
            | Output::Data { stream, .. }
            | Output::Finished { stream }
            | Output::Hungry { stream } => *stream != id,
            _ => true,
        });
        let Some(stream) = self.streams.get(&id) else { return };
        // One that the peer never heard of ends here.
        let unheard = stream.open.as_ref().is_some_and(|open| !open.ever);
        self.edit(id, |stream| {
            stream.reset = Some(Reset { code, arrived: unheard });
            stream.open = None;
            stream.send.abandon();
        });
        self.spend(left);
        if unheard {
            self.remove(id);
        } else {
            self.notice(Notice::Reset(id));
            self.close_if_done(id);
        }
    }

    fn consume(&mut self, now: Time, id: StreamId, bytes: u64) {
        let (round_trip, largest) = (self.round_trip(), self.config.most_stream_credit);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let more = stream.receive.consume(bytes);
        let granted = stream.receive.grant(now, round_trip, largest).is_some();
        if granted {
            self.notice(Notice::StreamCredit(id));
        }
        self.spend(more);
        self.close_if_done(id);
    }

    /// Bytes of the session's credit are free again.
    fn spend(&mut self, bytes: u64) {
        self.consumed += bytes;
        if self.most - self.consumed <= self.config.credit / 2 {
            self.most = self.consumed + self.config.credit;
            self.notice(Notice::Credit);
        }
    }

    /// The longest of all carriers.
    fn round_trip(&self) -> Span {
        self.carriers.iter().map(|carrier| carrier.condition.rtt).max().unwrap_or_default()
    }

    fn close_if_done(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        let sent = match &stream.reset {
            Some(reset) => reset.arrived,
            None => stream.send.is_done(),
        };
        if sent && stream.receive.is_done() && stream.open.is_none() {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: StreamId) {
        self.edit(id, |stream| stream.send.abandon());
        if self.streams.remove(&id).is_some() {
            self.outputs.push_back(Output::Closed { stream: id });
        }
    }
}

impl<P: Payload> Stream<P> {
    fn new(label: u8, most: u64, window: u64) -> Self {
        Self {
            label,
            open: None,
            is_open: false,
            send: SendHalf::new(most),
            receive: ReceiveHalf::new(window),
            queued: false,
            full: false,
            reset: None,
            owed: Vec::new(),
        }
    }

    fn is_ready(&self) -> bool {
        let opens = self.open.as_ref().is_some_and(|open| !open.sent);
        opens || self.send.is_ready() || !self.owed.is_empty()
    }
}

/// What comes.
impl<P: Payload> Mux<P> {
    fn receive(
        &mut self,
        now: Time,
        id: CarrierId,
        message: Message<P>,
    ) -> Result<(), &'static str> {
        let Some(carrier) = self.carrier(id) else { return Ok(()) };
        let path = carrier.path;
        carrier.lives(now);
        if message.counts() {
            carrier.receive(now);
            self.recent = Some(id);
        }
        match message {
            Message::Open { stream, label, target, data } => {
                self.opened(stream, label, target, data)?;
            }
            Message::Data { stream, offset, fin, data } => {
                if self.expect(stream)? {
                    self.piece(stream, offset, fin, data)?;
                }
            }
            Message::Reset { stream, code, end } => {
                if self.expect(stream)? {
                    self.was_reset(stream, code, end)?;
                }
            }
            Message::StreamCredit { stream, most } => {
                let was = self.edit(stream, |stream| {
                    stream.send.grant(most);
                    stream.is_ready()
                });
                if was == Some(true) {
                    self.tell_hungry(stream);
                }
            }
            Message::Credit { most } => {
                self.granted = self.granted.max(most);
                self.unblock();
            }
            Message::Ack { count } => self.acknowledged(id, count)?,
            Message::Relabel(label) => self.relabel(label)?,
            Message::Datagram { flow, number, label, peer, data } => {
                match self.datagrams.receive(path, flow, number) {
                    Verdict::Deliver => {
                        self.outputs.push_back(Output::Datagram { flow, label, peer, data });
                    }
                    Verdict::Repeated => {}
                    Verdict::Refused => self.counters.dropped += 1,
                }
            }
            Message::Half { flow, number, second, label, peer, data } => {
                let whole = self.datagrams.receive_half(path, flow, number, second, data);
                if let Some(data) = whole {
                    self.outputs.push_back(Output::Datagram { flow, label, peer, data });
                }
            }
            Message::Assign { stream, label } => {
                if self.config.role == Role::Client {
                    return Err("it gave the client a label");
                }
                self.edit(stream, |stream| stream.label = label);
            }
            Message::CloseFlow { flow } => {
                if self.datagrams.close(flow) {
                    self.outputs.push_back(Output::CloseFlow { flow });
                }
            }
            Message::Ping { number } => {
                if let Some(carrier) = self.carrier(id) {
                    carrier.pong = Some(number);
                }
            }
            Message::Pong { .. } => {}
            Message::Bye => self.outputs.push_back(Output::Bye),
            Message::Hello(_) | Message::Welcome(_) | Message::Refuse(..) => {
                return Err("it greeted twice");
            }
        }
        Ok(())
    }

    /// Whether the stream that a message is about is there, and not over. One that is new is made.
    fn expect(&mut self, id: StreamId) -> Result<bool, &'static str> {
        if self.streams.contains_key(&id) {
            return Ok(true);
        }
        if self.known.covers(Range::new(id.0, id.0.saturating_add(1))) {
            return Ok(false);
        }
        if self.config.role == Role::Client {
            return Err("it spoke of a stream that was never opened");
        }
        if id.0 > self.known.end() + MOST_AHEAD {
            return Err("its stream numbers are not in order");
        }
        self.known.insert(Range::new(id.0, id.0 + 1));
        // Beyond the limit it is made all the same, to be refused when it is opened; a peer that
        // goes on and on is one that does not listen.
        if self.streams.len() as u64 >= self.config.streams * 2 {
            return Err("it opened far more streams than allowed");
        }
        let window = self.config.stream_credit;
        self.streams.insert(id, Stream::new(0, self.peer_stream_credit, window));
        Ok(true)
    }

    fn opened(
        &mut self,
        id: StreamId,
        label: Label,
        target: Target,
        data: P,
    ) -> Result<(), &'static str> {
        if self.config.role == Role::Client {
            return Err("it opened a stream to the client");
        }
        self.relabel(label)?;
        let over = self.streams.len() as u64 >= self.config.streams;
        if !self.expect(id)? {
            self.counters.repeated += data.len() as u64;
            return Ok(());
        }
        let first = self.edit(id, |stream| {
            stream.label = label.id;
            !std::mem::replace(&mut stream.is_open, true) && stream.reset.is_none()
        });
        if first == Some(true) {
            if over {
                self.reset(id, ResetCode::Limit);
            } else {
                self.outputs.push_back(Output::Open { stream: id, label: label.id, target });
            }
        }
        self.piece(id, 0, false, data)
    }

    fn piece(&mut self, id: StreamId, offset: u64, fin: bool, data: P) -> Result<(), &'static str> {
        self.counters.received += data.len() as u64;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let brought = stream.receive.receive(offset, data, fin).map_err(|breach| match breach {
            receive::Breach::Credit => "it sent more on a stream than it may",
            receive::Breach::End => "it sent bytes past the end of a stream",
        })?;
        self.counters.repeated += brought.repeated;
        self.fresh += brought.fresh;
        if self.fresh > self.most {
            return Err("it sent more in all than it may");
        }
        if stream.is_open {
            while let Some(data) = stream.receive.deliver() {
                self.outputs.push_back(Output::Data { stream: id, data });
            }
            if stream.receive.reached_end() {
                self.outputs.push_back(Output::Finished { stream: id });
            }
        }
        self.spend(brought.discarded);
        self.close_if_done(id);
        Ok(())
    }

    fn was_reset(&mut self, id: StreamId, code: ResetCode, end: u64) -> Result<(), &'static str> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let fresh = match stream.receive.has_end() {
            // It had finished, and ends the other direction now.
            true => 0,
            false => stream.receive.cut(end).map_err(|_| "its reset does not fit its bytes")?,
        };
        let left = stream.receive.discard();
        let answer = stream.reset.is_none() && !stream.send.is_done();
        let tell = stream.reset.is_none() && stream.is_open;
        self.fresh += fresh;
        if self.fresh > self.most {
            return Err("it sent more in all than it may");
        }
        self.spend(fresh + left);
        if answer {
            self.reset(id, ResetCode::Aborted);
        } else if let Some(stream) = self.streams.get_mut(&id)
            && stream.reset.is_none()
        {
            stream.reset = Some(Reset { code, arrived: true });
        }
        if tell {
            self.outputs.push_back(Output::Reset { stream: id, code });
        }
        self.close_if_done(id);
        Ok(())
    }

    fn relabel(&mut self, label: Label) -> Result<(), &'static str> {
        if self.config.role == Role::Client {
            return Err("it gave the client a label");
        }
        let entry = self.labels.entry(label.id).or_insert((0, label.treatment));
        if label.version >= entry.0 && *entry != (label.version, label.treatment) {
            *entry = (label.version, label.treatment);
            self.wake_all();
        }
        Ok(())
    }

    fn acknowledged(&mut self, id: CarrierId, count: u64) -> Result<(), &'static str> {
        let Some(at) = self.carriers.iter().position(|carrier| carrier.id == id) else {
            return Ok(());
        };
        let count =
            self.carriers[at].acknowledged(count).ok_or("it acknowledged what was not sent")?;
        for _ in 0..count {
            let Some(sent) = self.carriers[at].sent.pop_front() else { break };
            match sent.what {
                What::Open { stream, length } => {
                    self.edit(stream, |stream| {
                        stream.open = None;
                        stream.send.arrived(Range::new(0, length), false);
                    });
                    self.tell_hungry(stream);
                    self.close_if_done(stream);
                }
                What::Data { stream, range, fin } => {
                    if sent.again {
                        self.counters.spurious += range.len();
                    }
                    self.edit(stream, |stream| stream.send.arrived(range, fin));
                    self.tell_hungry(stream);
                    self.close_if_done(stream);
                }
                What::Reset { stream } => {
                    if let Some(Stream { reset: Some(reset), .. }) = self.streams.get_mut(&stream) {
                        reset.arrived = true;
                        self.close_if_done(stream);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn tell_hungry(&mut self, id: StreamId) {
        let most = self.most_waiting();
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let room = stream.send.is_open() && stream.send.waiting() * 2 <= most;
        let held = stream.send.held() <= self.config.most_stream_credit * 3 / 2;
        if stream.full && room && held {
            stream.full = false;
            self.outputs.push_back(Output::Hungry { stream: id });
        }
    }
}

/// What goes.
impl<P: Payload> Mux<P> {
    /// Finds carriers that do not get through, and gives what they hold to others.
    fn look_for_stalls(&mut self, now: Time) {
        for carrier in &mut self.carriers {
            if carrier.suspect_at().is_some_and(|since| since <= now) {
                carrier.suspect = true;
                self.outputs.push_back(Output::Suspect { carrier: carrier.id });
            }
        }
        if self.carriers.iter().all(|carrier| carrier.suspect) {
            return;
        }
        for at in 0..self.carriers.len() {
            if !self.carriers[at].suspect {
                continue;
            }
            for index in 0..self.carriers[at].sent.len() {
                let sent = &mut self.carriers[at].sent[index];
                if sent.again {
                    continue;
                }
                if self.reinjection == 0 {
                    return;
                }
                sent.again = true;
                let what = sent.what;
                let bytes = self.send_again(what);
                self.counters.reinjected += bytes;
                self.reinjection = self.reinjection.saturating_sub(bytes);
            }
        }
    }

    /// The next message that goes, where one can.
    fn transmit(&mut self, now: Time) -> Option<(CarrierId, Message<P>)> {
        if self.carriers.iter().all(|carrier| carrier.room == 0) {
            return None;
        }
        let found = self
            .signs(now)
            .or_else(|| self.next_notice(now))
            .or_else(|| self.next_datagram(now))
            .or_else(|| self.next_piece(now))?;
        let (at, message) = found;
        let payload = message.payload().map_or(0, Payload::len);
        let carrier = &mut self.carriers[at];
        let head = head_length(&message, payload);
        carrier.feed(head + payload);
        self.counters.headers += head as u64;
        Some((carrier.id, message))
    }

    /// Acknowledgements and signs of life.
    fn signs(&mut self, now: Time) -> Option<(usize, Message<P>)> {
        for (at, carrier) in self.carriers.iter_mut().enumerate().filter(|(_, c)| c.room > 0) {
            if let Some(number) = carrier.pong.take() {
                return Some((at, Message::Pong { number }));
            }
            if let Some(count) = carrier.take_ack(now) {
                return Some((at, Message::Ack { count }));
            }
        }
        None
    }

    fn next_notice(&mut self, now: Time) -> Option<(usize, Message<P>)> {
        for _ in 0..self.notices.len() {
            let notice = self.notices.pop_front()?;
            let paths = match notice {
                Notice::Reset(stream) | Notice::StreamCredit(stream) | Notice::Assign(stream) => {
                    // One that is over has nothing to say.
                    let Some(treatment) = self.treatment(stream) else { continue };
                    treatment.paths
                }
                Notice::Credit | Notice::Relabel(_) | Notice::CloseFlow(_) => PathSet::ALL,
            };
            let Some(at) = self.quickest(paths) else {
                self.notices.push_back(notice);
                continue;
            };
            let Some((what, message)) = self.say(notice) else { continue };
            self.carriers[at].keep(now, what);
            return Some((at, message));
        }
        None
    }

    fn say(&self, notice: Notice) -> Option<(What, Message<P>)> {
        Some(match notice {
            Notice::Reset(id) => {
                let stream = self.streams.get(&id)?;
                let code = stream.reset?.code;
                let end = stream.send.high();
                (What::Reset { stream: id }, Message::Reset { stream: id, code, end })
            }
            Notice::StreamCredit(id) => {
                let most = self.streams.get(&id)?.receive.granted()?;
                (What::StreamCredit { stream: id }, Message::StreamCredit { stream: id, most })
            }
            Notice::Credit => (What::Credit, Message::Credit { most: self.most }),
            Notice::Relabel(id) => (What::Relabel { id }, Message::Relabel(self.label(id))),
            Notice::Assign(id) => {
                let label = self.streams.get(&id)?.label;
                (What::Assign { stream: id }, Message::Assign { stream: id, label })
            }
            Notice::CloseFlow(flow) => (What::CloseFlow { flow }, Message::CloseFlow { flow }),
        })
    }

    fn label(&self, id: u8) -> Label {
        let (version, treatment) = self.labels.get(&id).copied().unwrap_or_default();
        Label { id, version, treatment }
    }

    /// The carrier over which a small message arrives first, among those that have room; that
    /// which is in use rather than one that sleeps.
    fn quickest(&self, paths: PathSet) -> Option<usize> {
        let usable = |at: &usize| self.carriers[*at].room > 0 && paths.has(self.carriers[*at].path);
        let recent = |at: &usize| Some(self.carriers[*at].id) != self.recent;
        (0..self.carriers.len()).filter(usable).min_by_key(|at| {
            let carrier = &self.carriers[*at];
            (carrier.suspect, recent(at), carrier.view().arrival())
        })
    }

    fn next_datagram(&mut self, now: Time) -> Option<(usize, Message<P>)> {
        let labels = &self.labels;
        let treatment = |label: u8| labels.get(&label).map(|(_, treatment)| *treatment);
        let carriers = &self.carriers;
        self.datagrams.next(now, carriers, &mut self.schedulers, treatment)
    }

    fn next_piece(&mut self, now: Time) -> Option<(usize, Message<P>)> {
        let mut waited = Vec::new();
        let mut found = None;
        let all_suspect = self.carriers.iter().all(|carrier| carrier.suspect);
        let views: Vec<(usize, View)> = self
            .carriers
            .iter()
            .enumerate()
            .filter(|(_, carrier)| all_suspect || !carrier.suspect)
            .map(|(at, carrier)| (at, carrier.view()))
            .collect();
        while let Some(mut queue) = self.ready.first_entry() {
            let Some(id) = queue.get_mut().pop_front() else {
                queue.remove();
                continue;
            };
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            if !stream.is_ready() {
                stream.queued = false;
                continue;
            }
            let treatment = self.treatment_of(self.streams[&id].label);
            let usable: Vec<(usize, View)> =
                views.iter().filter(|(_, view)| treatment.paths.has(view.path)).copied().collect();
            match self.serve(now, id, treatment, &usable) {
                Served::Message(at, message) => {
                    found = Some((at, message));
                    // To the end of the queue: streams take turns.
                    self.edit(id, |stream| stream.queued = false);
                    self.tell_hungry(id);
                    break;
                }
                Served::Broke => {
                    self.broke.push(id);
                    if let Some(stream) = self.streams.get_mut(&id) {
                        stream.queued = false;
                    }
                }
                Served::Waits => {
                    waited.push(id);
                    if waited.len() >= MOST_WAITING {
                        break;
                    }
                }
            }
        }
        // In the order in which they were.
        for id in waited.into_iter().rev() {
            if let Some(stream) = self.streams.get(&id) {
                let priority = self.labels.get(&stream.label).map_or(1, |(_, t)| t.priority);
                self.ready.entry(std::cmp::Reverse(priority)).or_default().push_front(id);
            }
        }
        found
    }

    /// Sends the next message of a stream, if its scheduler wants that now.
    fn serve(
        &mut self,
        now: Time,
        id: StreamId,
        treatment: Treatment,
        usable: &[(usize, View)],
    ) -> Served<P> {
        if usable.iter().all(|(_, view)| !view.has_room) {
            return Served::Waits;
        }
        if treatment.scheduler != Kind::Redundant
            && let Some(stream) = self.streams.get_mut(&id)
        {
            stream.owed.clear();
        }
        if let Some(served) = self.serve_copy(now, id, usable) {
            return served;
        }
        let Some(stream) = self.streams.get(&id) else { return Served::Waits };
        let job = Job {
            backlog: manyways_trace::Size::from_bytes(stream.send.backlog()),
            total: manyways_trace::Size::from_bytes(self.backlog),
            primary: treatment.primary,
        };
        let views: Vec<View> = usable.iter().map(|(_, view)| *view).collect();
        let (at, ahead, everywhere) =
            match self.schedulers.choose(treatment.scheduler, &job, &views) {
                Choice::Wait => return Served::Waits,
                Choice::Send { at, ahead } => (at, ahead, false),
                Choice::Everywhere => {
                    let first = views.iter().enumerate().filter(|(_, view)| view.has_room);
                    match first.min_by_key(|(_, view)| view.arrival()) {
                        Some((at, _)) => (at, 0, true),
                        None => return Served::Waits,
                    }
                }
            };
        let at = usable[at].0;
        let others: Vec<CarrierId> = match everywhere {
            true => usable
                .iter()
                .filter(|(other, _)| *other != at)
                .map(|(other, _)| self.carriers[*other].id)
                .collect(),
            false => Vec::new(),
        };
        self.send_piece(now, id, at, ahead, &others)
    }

    fn send_piece(
        &mut self,
        now: Time,
        id: StreamId,
        at: usize,
        ahead: u64,
        others: &[CarrierId],
    ) -> Served<P> {
        let carrier = &self.carriers[at];
        let room = carrier.room.saturating_sub(MOST_DATA_HEADER).max(1_400);
        let most = carrier.most_payload().min(room);
        let fresh = self.granted.saturating_sub(self.used);
        let label = match self.streams.get(&id) {
            Some(stream) => self.label(stream.label),
            None => return Served::Waits,
        };
        // The first message has to say where to, and it carries the first bytes.
        let opens = self.streams.get(&id).and_then(|stream| stream.open.as_ref());
        if let Some(Open { target, sent: false, .. }) = opens {
            let target = target.clone();
            let taken = self.edit(id, |stream| {
                if let Some(open) = &mut stream.open {
                    (open.sent, open.ever) = (true, true);
                }
                let piece = stream.send.take_first(most, fresh);
                (piece, stream.send.bytes(piece.range))
            });
            let Some((piece, data)) = taken else { return Served::Waits };
            self.used += piece.fresh;
            let length = piece.range.len();
            self.count_sent(length);
            self.carriers[at].keep(now, What::Open { stream: id, length });
            self.owe(id, piece.range, others);
            return Served::Message(at, Message::Open { stream: id, label, target, data });
        }
        let taken = self.edit(id, |stream| {
            let piece = stream.send.take(ahead, most, fresh)?;
            Some((piece, stream.send.bytes(piece.range)))
        });
        let Some(Some((piece, data))) = taken else {
            let broke = fresh == 0 && self.streams.get(&id).is_some_and(|s| s.send.is_ready());
            return if broke { Served::Broke } else { Served::Waits };
        };
        self.used += piece.fresh;
        self.count_sent(piece.range.len());
        self.owe(id, piece.range, others);
        let (offset, fin) = (piece.range.start, piece.fin);
        self.carriers[at].keep(now, What::Data { stream: id, range: piece.range, fin });
        Served::Message(at, Message::Data { stream: id, offset, fin, data })
    }

    fn count_sent(&mut self, bytes: u64) {
        self.counters.sent += bytes;
        self.reinjection = (self.reinjection + bytes / 20).min(self.config.reinjection);
    }

    fn owe(&mut self, id: StreamId, range: Range, others: &[CarrierId]) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        for other in others {
            match stream.owed.iter_mut().find(|(carrier, _)| carrier == other) {
                Some((_, owed)) => owed.insert(range),
                None => stream.owed.push((*other, [range].into_iter().collect())),
            }
        }
    }

    /// The second copy of what another carrier was given already.
    fn serve_copy(
        &mut self,
        now: Time,
        id: StreamId,
        usable: &[(usize, View)],
    ) -> Option<Served<P>> {
        let stream = self.streams.get_mut(&id)?;
        let opens = stream.open.as_ref().map(|open| open.target.clone());
        for (at, view) in usable.iter().filter(|(_, view)| view.has_room) {
            let carrier = &self.carriers[*at];
            debug_assert_eq!(view.path, carrier.path);
            let Some(index) = stream.owed.iter().position(|(owing, _)| *owing == carrier.id) else {
                continue;
            };
            let most = carrier.most_payload();
            let Some(piece) = stream.send.again(&stream.owed[index].1, most) else {
                stream.owed.swap_remove(index);
                continue;
            };
            let owed = &mut stream.owed[index].1;
            owed.remove(Range::new(0, piece.range.end));
            if owed.is_empty() {
                stream.owed.swap_remove(index);
            }
            let data = stream.send.bytes(piece.range);
            let (range, fin, label) = (piece.range, piece.fin, stream.label);
            self.counters.sent += range.len();
            // The first message of a stream is as good as lost without where to.
            if range.start == 0
                && let Some(target) = opens
            {
                let label = self.label(label);
                let length = range.len();
                self.carriers[*at].keep(now, What::Open { stream: id, length });
                return Some(Served::Message(
                    *at,
                    Message::Open { stream: id, label, target, data },
                ));
            }
            self.carriers[*at].keep(now, What::Data { stream: id, range, fin });
            let offset = range.start;
            return Some(Served::Message(*at, Message::Data { stream: id, offset, fin, data }));
        }
        None
    }
}

enum Served<P> {
    Message(usize, Message<P>),
    /// Its scheduler waits for a better path, or no path has room.
    Waits,
    /// The session has no credit left.
    Broke,
}

/// How many bytes come before the application's.
fn head_length<P>(message: &Message<P>, payload: usize) -> usize {
    let mut head = Vec::with_capacity(64);
    message.encode_head(payload.min(MOST_PAYLOAD), &mut head);
    head.len()
}

impl Default for Config {
    fn default() -> Self {
        Self::new(Role::Client)
    }
}

#[cfg(test)]
mod tests;
