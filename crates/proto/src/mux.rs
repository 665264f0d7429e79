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

mod bottleneck;
pub(crate) mod bulk_window;
mod carrier;
mod class_queue;
mod control;
mod datagram;
mod delivery_rate;
mod event;
mod flight;
mod flow_load;
mod incoming;
mod message;
mod outgoing;
mod passage;
mod probe;
mod queue;
mod rebalance;
mod receive;
mod recent_min;
mod second_hop;
mod send;
mod stall;
mod stream;
mod unloaded_rtt;
mod write_limit;

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;

use manyways_unit::{Span, Time};

pub use carrier::{CarrierId, Direction, TransportInfo};
pub use event::{Counters, Input, Output};
pub use message::{
    DecodeError, Destination, FlowId, Hello, Label, LoanMessage, MAX_MESSAGE, MAX_PAYLOAD, Message,
    RefuseCode, ResetCode, Seed, StreamId, TicketId, VERSION, Welcome,
};

pub use rebalance::Rebalance;
pub use second_hop::HopEstimate;

use crate::ranges::Ranges;
use crate::sched::{PathSet, PathView, Schedulers, StreamPolicy};
use carrier::Carrier;
use class_queue::{ClassQueue, QueueKey};
use control::ControlMessage;
use datagram::Datagrams;
use stream::Stream;

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

/// The way of ACKs of messages that came over a lender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Feedback {
    /// Over the lender.
    Lender,
    /// Over the lender, which passes them on only while the gateway sends.
    OnDemand,
    /// Over a carrier without a lender, as far as there is one: the client does not know whether the
    /// radio of the lender is on. A gateway answers over the lender, whose radio is on.
    #[default]
    Flexible,
}

/// Maximum number of messages about loans that wait for a carrier.
const MAX_LOAN_MESSAGES: usize = 64;
/// Interval at which the transport is sampled while bulk data waits for the window beside a call.
const GATE_INTERVAL: Span = Span::from_millis(1);

/// Limits of an endpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    pub role: Role,
    /// Receive credit of the session: bytes of all streams that are buffered until applications
    /// consume them.
    pub credit: u64,
    /// Receive credit of one stream. `credit` / 2 / `stream_credit` streams without a reader do not
    /// block another stream.
    pub stream_credit: u64,
    /// Maximum to which the receive window of one stream may grow.
    pub max_stream_credit: u64,
    /// Maximum number of open streams of the peer.
    pub streams: u64,
    /// Maximum number of open datagram flows of the peer.
    pub flows: u64,
    /// Bytes of all streams that are kept until the peer acknowledges them. One stream may keep
    /// half of the unused part, and at least 16 KiB.
    pub max_unacked: u64,
    /// Time in the queue after which a datagram is dropped.
    pub datagram_timeout: Span,
    /// Maximum reinjection budget in bytes. The budget starts at this value, and grows by a
    /// twentieth of each sent byte of a stream up to this value.
    pub max_reinjection_budget: u64,
    /// Which messages are recalled from a lender.
    pub rebalance: Rebalance,
    pub hop_estimate: HopEstimate,
    /// Which carrier acknowledges the messages that came over a lender.
    pub feedback: Feedback,
}

impl Config {
    /// Creates the default limits of `role`.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            credit: 128 << 20,
            stream_credit: 1 << 20,
            max_stream_credit: 16 << 20,
            streams: 32_768,
            flows: 4_096,
            max_unacked: 96 << 20,
            datagram_timeout: Span::from_millis(150),
            max_reinjection_budget: 512 << 10,
            rebalance: Rebalance::default(),
            hop_estimate: HopEstimate::default(),
            feedback: Feedback::default(),
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
    opened_streams: Ranges,
    labels: HashMap<u8, (u64, StreamPolicy)>,
    schedulers: Schedulers,
    /// Streams with data to send, by label.
    ready: ClassQueue<StreamId>,
    /// Streams that wait for credit of the session, by label.
    blocked: ClassQueue<StreamId>,
    /// Bytes in the send queues of all streams that stream credit permits.
    backlog: u64,
    control_queue: ClassQueue<ControlMessage>,
    /// Place of each notice in `control_queue`.
    control_keys: HashMap<ControlMessage, QueueKey>,
    outputs: VecDeque<Output<P>>,
    datagrams: Datagrams<P>,
    /// Bytes that datagrams have sent more than streams while both waited.
    debt: i64,
    /// Send credit of the session that the peer granted, and the used part.
    send_credit: u64,
    send_credit_used: u64,
    peer_stream_credit: u64,
    /// Receive credit of the session: the granted, the received and the consumed bytes.
    receive_credit: u64,
    receive_credit_used: u64,
    consumed: u64,
    /// Receive credit of all streams above the base credit of each stream.
    leased: u64,
    /// Recent grants of stream credit, oldest first.
    grants: VecDeque<(Time, StreamId)>,
    /// Received pieces that wait for earlier bytes of their stream.
    pieces: usize,
    /// Bytes of all streams that may need a retransmission.
    unacked_bytes: u64,
    /// Paths that traffic has used.
    used_paths: PathSet,
    /// The carrier of the last received traffic.
    last_receiver: Option<CarrierId>,
    /// Messages about loans that are not sent yet.
    loan_messages: VecDeque<LoanMessage>,
    /// When bulk data waited last for the window beside a call. `None` if it does not.
    gated_at: Option<Time>,
    /// Remaining reinjection budget in bytes; negative if the last message was larger than the
    /// rest.
    reinjection_budget: i64,
    counters: Counters,
}

impl<P: Payload> Mux<P> {
    /// Creates a session without carriers.
    pub fn new(config: Config) -> Self {
        let max = config.credit;
        Self {
            datagrams: Datagrams::new(
                config.datagram_timeout,
                config.flows,
                config.role == Role::Gateway,
            ),
            reinjection_budget: config.max_reinjection_budget.cast_signed(),
            peer_stream_credit: 0,
            config,
            carriers: Vec::new(),
            streams: HashMap::new(),
            opened_streams: Ranges::new(),
            labels: HashMap::new(),
            schedulers: Schedulers::default(),
            ready: ClassQueue::new(),
            blocked: ClassQueue::new(),
            backlog: 0,
            control_queue: ClassQueue::new(),
            control_keys: HashMap::new(),
            outputs: VecDeque::new(),
            debt: 0,
            send_credit: 0,
            send_credit_used: 0,
            receive_credit: max,
            receive_credit_used: 0,
            consumed: 0,
            leased: 0,
            grants: VecDeque::new(),
            pieces: 0,
            unacked_bytes: 0,
            used_paths: PathSet::NONE,
            last_receiver: None,
            loan_messages: VecDeque::new(),
            gated_at: None,
            counters: Counters::default(),
        }
    }

    /// Processes an event that happened at `now`.
    pub fn handle(&mut self, now: Time, input: Input<P>) {
        match input {
            Input::Attach { carrier, path, transport_info: condition } => {
                let mut new = Carrier::new(now, carrier, path, condition);
                if self.used_paths.contains(path) {
                    new.on_used(now);
                }
                self.carriers.push(new);
                self.carriers.sort_by_key(|carrier| carrier.path);
                self.restart_checks();
            }
            Input::Lend { carrier, join, rtt } => {
                let estimate = self.config.hop_estimate;
                if let Some(carrier) = self.carrier(carrier) {
                    carrier.lend(now, join, estimate, rtt);
                }
            }
            Input::Dropped { carrier } => {
                if !self.on_dropped(now, carrier) {
                    self.outputs.push_back(Output::WrongDrop { carrier });
                }
            }
            Input::Loan(message) => {
                if self.loan_messages.len() < MAX_LOAN_MESSAGES {
                    self.loan_messages.push_back(message);
                }
            }
            Input::Retire { carrier } => {
                if let Some(carrier) = self.carrier(carrier) {
                    carrier.is_retired = true;
                }
            }
            Input::Detach { carrier } => self.detach(carrier),
            Input::TransportInfo { carrier, transport_info: condition } => {
                if let Some(carrier) = self.carrier(carrier) {
                    carrier.observe(now, condition);
                }
            }
            Input::Writable { carrier, bytes } => {
                if let Some(carrier) = self.carrier(carrier) {
                    carrier.writable_bytes = bytes;
                }
            }
            Input::InitialCredit { credit, stream_credit } => {
                self.send_credit = self.send_credit.max(credit);
                self.peer_stream_credit = self.peer_stream_credit.max(stream_credit);
                let max = self.peer_stream_credit;
                let ids: Vec<StreamId> = self.streams.keys().copied().collect();
                for id in ids {
                    self.edit(id, |stream| stream.send.grant(max));
                }
            }
            Input::Message { carrier, message } => {
                if let Err(what) = self.receive(now, carrier, message) {
                    self.outputs.push_back(Output::ProtocolViolation { carrier, violation: what });
                }
            }
            Input::Open { stream, label, destination: target, confirm } => {
                self.open(stream, label, target, confirm);
            }
            Input::Opened { stream } => {
                let confirms = self.streams.get(&stream).is_some_and(|stream| stream.confirms);
                if confirms {
                    self.queue_control(ControlMessage::Opened(stream));
                }
            }
            Input::Write { stream, data } => {
                self.edit(stream, |stream| stream.send.write(data));
            }
            Input::Finish { stream } => {
                self.edit(stream, |stream| stream.send.finish());
            }
            Input::Reset { stream, code } => self.reset(stream, code),
            Input::Consumed { stream, bytes } => self.consume(now, stream, bytes),
            Input::Relabel { id, stream_policy: treatment } => {
                let entry = self.labels.entry(id).or_insert((0, treatment));
                *entry = (entry.0 + 1, treatment);
                self.queue_control(ControlMessage::Relabel(id));
                self.restart_checks();
            }
            Input::Assign { stream, label } => {
                let told = self.edit(stream, |stream| {
                    stream.label = label;
                    stream.revision = stream.revision.saturating_add(1);
                    stream.pending_open.as_ref().is_none_or(|open| open.was_sent)
                });
                self.requeue_control(stream);
                self.restart_checks();
                if told == Some(true) {
                    self.queue_control(ControlMessage::Assign(stream));
                }
            }
            Input::Datagram { flow, label, peer, data } => {
                self.datagrams.push(now, flow, label, peer, data);
            }
            Input::PathDown { path } => self.queue_control(ControlMessage::PathDown(path)),
            Input::CloseFlow { flow } => {
                if let Some(Some(label)) = self.datagrams.close(flow) {
                    self.queue_control(ControlMessage::CloseFlow(flow, label));
                }
            }
        }
    }

    /// Returns the next action, or `None` if nothing is to be done at `now`.
    pub fn poll(&mut self, now: Time) -> Option<Output<P>> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        self.detect_stalls(now);
        self.rebalance(now);
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
        let all_suspect = self.carriers.iter().all(|carrier| carrier.is_suspect);
        let carriers = self.carriers.iter().flat_map(|carrier| {
            let acks = [carrier.ack_at, carrier.report_at()].into_iter().flatten().min();
            let ack = acks.filter(|_| self.feedback_carrier(carrier).is_some());
            let given_up = carrier.failure_deadline().filter(|_| !all_suspect);
            let probe = carrier.probe_due_at().filter(|_| self.sends_probes());
            [ack, carrier.suspect_at(), given_up, probe]
        });
        let gate = self.gated_at.map(|at| at + GATE_INTERVAL);
        carriers.flatten().chain(self.datagrams.next_wakeup()).chain(gate).min()
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Returns the carriers, each with whether it is suspect.
    pub fn carriers(&self) -> impl Iterator<Item = (CarrierId, bool)> + '_ {
        self.carriers.iter().map(|carrier| (carrier.id, carrier.is_suspect))
    }

    /// Returns the state of a carrier as a scheduler sees it; `None` if the carrier does not exist.
    pub fn path_view(&self, now: Time, id: CarrierId) -> Option<PathView> {
        let carrier = self.carriers.iter().find(|carrier| carrier.id == id)?;
        Some(carrier.path_view(now))
    }

    /// Returns the received bytes that applications have not consumed; at most the granted credit.
    pub fn unconsumed_bytes(&self) -> u64 {
        self.streams.values().map(|stream| stream.receive.unconsumed_bytes()).sum()
    }

    /// Returns the current labels and their policies.
    pub fn labels(&self) -> Vec<(u8, StreamPolicy)> {
        self.labels.iter().map(|(id, (_, policy))| (*id, *policy)).collect()
    }

    /// Returns the current policy of `stream`, or `None` if the stream does not exist.
    pub fn stream_policy(&self, stream: StreamId) -> Option<StreamPolicy> {
        self.streams.get(&stream).map(|stream| self.label_policy(stream.label))
    }

    fn label_policy(&self, label: u8) -> StreamPolicy {
        self.labels.get(&label).map_or_else(StreamPolicy::default, |(_, policy)| *policy)
    }

    /// Whether an application of this client may wait for data.
    fn sends_probes(&self) -> bool {
        let is_in_use = !self.streams.is_empty() || self.datagrams.flow_count() > 0;
        self.config.role == Role::Client && is_in_use
    }

    fn carrier(&mut self, id: CarrierId) -> Option<&mut Carrier> {
        self.carriers.iter_mut().find(|carrier| carrier.id == id)
    }
}

#[cfg(test)]
mod tests;
