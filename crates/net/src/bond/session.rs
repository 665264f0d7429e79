//! A session with its sockets: the carriers and the applications' connections around one [`Mux`].
//! Client and gateway use it. The client opens streams, the gateway connects them.
//!
//! A session runs on one thread. Each carrier and each application has a task that waits for its
//! socket and passes inputs to the core. [`Session::pump`] executes the core's outputs.

mod applications;
mod carriers;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use manyways_proto::bond::carrier;
use manyways_proto::bond::path::CarrierSample;
use manyways_proto::mux::{
    CarrierId, Config, Counters, Destination, Direction, FlowId, Input, LoanMessage, Message, Mux,
    Output, StreamId,
};
use manyways_proto::sched::{PathId, StreamPolicy};
use manyways_sys::clock::Clock;
use manyways_unit::Time;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::carrier::{CarrierError, Chunk};
use super::client_tasks::ClientTasks;
use super::flow_counters::{BytesByPath, FlowCounters, StreamTotals};
use super::rate_limit::SharedRateLimit;
use super::seal::SealError;
use applications::StreamSocket;
pub(super) use applications::{OpeningStream, StreamRequest};
use carriers::CarrierSlot;

/// An event for the owner of a session.
#[derive(Debug)]
pub(super) enum SessionEvent {
    /// A stream to connect: see [`SessionHandle::attach_socket`] and [`SessionHandle::refuse`].
    Open {
        stream: StreamId,
        target: Destination,
    },
    Datagram {
        flow: FlowId,
        label: u8,
        peer: Destination,
        data: Bytes,
    },
    CloseFlow {
        flow: FlowId,
    },
    /// The connection of a carrier does not get through.
    Suspect {
        carrier: CarrierId,
        path: PathId,
        /// The direction in which it does not get through, if it has carried no more than a
        /// handshake there.
        barren: Option<Direction>,
    },
    /// A carrier has carried more than a handshake in a direction.
    Delivered {
        carrier: CarrierId,
        direction: Direction,
    },
    /// The peer has opened more streams than it may.
    StreamRefused,
    /// The peer has sent a message about a loan.
    Loan(LoanMessage),
    /// The lender of a path stops to lend.
    LenderLeaves {
        path: PathId,
    },
    /// The connection of a suspect carrier gets through again.
    Recovered {
        carrier: CarrierId,
    },
    /// A carrier has ended.
    CarrierLost {
        carrier: CarrierId,
        path: PathId,
        reason: CarrierError,
    },
    /// The peer has ended the session.
    Bye,
    /// A stream has reached its byte threshold.
    ByteThreshold {
        number: u64,
    },
    /// A counted stream has ended.
    StreamClosed {
        totals: StreamTotals,
    },
}

/// A session that several tasks share.
#[derive(Clone)]
pub(super) struct SessionHandle(Rc<RefCell<Session>>);

pub(super) struct Session {
    pub(super) mux: Mux<Chunk>,
    /// Of the sessions before this one.
    earlier: Counters,
    clock: Clock,
    carriers: HashMap<CarrierId, CarrierSlot>,
    next_carrier: u64,
    applications: HashMap<StreamId, StreamSocket>,
    next_stream: u64,
    events: mpsc::UnboundedSender<SessionEvent>,
    /// Notified when an earlier wakeup is set.
    timer: Rc<Notify>,
    wakeup: Option<Time>,
    buffer: Vec<u8>,
    scratch: BytesMut,
    pub(super) counters: FlowCounters,
    /// Rate limit of all applications together.
    limit: Option<SharedRateLimit>,
    /// Streams that wait for the rate limit, by direction.
    rate_limited: [VecDeque<StreamId>; 2],
    carrier_config: carrier::Config,
    /// Where the tasks of a gateway's client run.
    tasks: Option<ClientTasks>,
}

impl SessionHandle {
    /// Creates a session without carriers, and the receiver of its events. Its tasks run among
    /// those of its client at a gateway.
    pub(super) fn new(
        config: Config,
        tasks: Option<ClientTasks>,
    ) -> (Self, mpsc::UnboundedReceiver<SessionEvent>) {
        let (events, received) = mpsc::unbounded_channel();
        let timer = Rc::new(Notify::new());
        let session = Session {
            mux: Mux::new(config),
            earlier: Counters::default(),
            clock: Clock::start(),
            carriers: HashMap::new(),
            next_carrier: 0,
            applications: HashMap::new(),
            next_stream: 0,
            events,
            timer: Rc::clone(&timer),
            wakeup: None,
            buffer: Vec::new(),
            scratch: BytesMut::new(),
            counters: FlowCounters::default(),
            limit: None,
            rate_limited: Default::default(),
            carrier_config: carrier::Config::default(),
            tasks,
        };
        let handle = Self(Rc::new(RefCell::new(session)));
        let weak = Rc::downgrade(&handle.0);
        handle.spawn(async move {
            loop {
                let Some(session) = weak.upgrade() else { break };
                let wait = {
                    let session = session.borrow();
                    session.wakeup.map(|at| Duration::from(at.since(session.clock.now())))
                };
                drop(session);
                match wait {
                    Some(wait) => {
                        tokio::select! {
                            () = tokio::time::sleep(wait) => {
                                let Some(session) = weak.upgrade() else { break };
                                session.borrow_mut().pump();
                            }
                            () = timer.notified() => {}
                        }
                    }
                    None => timer.notified().await,
                }
            }
        });
        (handle, received)
    }

    /// Starts a task of the session.
    fn spawn(&self, task: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
        let tasks = self.with(|session| session.tasks.clone());
        match tasks {
            Some(tasks) => tasks.spawn(task),
            None => tokio::task::spawn_local(task),
        }
    }

    /// Passes an input to the core, and executes the outputs.
    pub(super) fn handle(&self, input: Input<Chunk>) {
        self.with(|session| {
            let now = session.clock.now();
            session.mux.handle(now, input);
            session.pump();
        });
    }

    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Session) -> R) -> R {
        act(&mut self.0.borrow_mut())
    }

    /// Ends all streams and carriers, and informs the peer.
    pub(super) fn close(&self) {
        self.with(Session::close);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Its timer sees that it is gone, and ends.
        self.timer.notify_one();
    }
}

impl Session {
    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// Samples the carriers, sorted by path and by the order in which they were attached.
    pub(super) fn carrier_samples(&mut self) -> Vec<(PathId, CarrierSample)> {
        let now = self.clock.now();
        let suspects: HashMap<CarrierId, bool> = self.mux.carriers().collect();
        let mux = &self.mux;
        let sample = |(id, slot): (&CarrierId, &mut CarrierSlot)| {
            let sample = CarrierSample {
                id: *id,
                transport: slot.io.transport(),
                is_suspect: suspects.get(id).copied().unwrap_or_default(),
                transport_info: slot.io.transport_info(),
                view: mux.path_view(now, *id),
                stats: slot.io.transport_stats(),
            };
            (slot.path, sample)
        };
        let mut all: Vec<(PathId, CarrierSample)> = self.carriers.iter_mut().map(sample).collect();
        all.sort_by_key(|(path, sample)| (*path, sample.id));
        all
    }

    /// Returns the encrypted bytes that each path has carried.
    pub(super) fn bytes_by_path(&self) -> BytesByPath {
        let mut paths = self.counters.closed_carriers().clone();
        for slot in self.carriers.values() {
            let bytes = paths.entry(slot.path).or_default();
            let (received, sent) = slot.io.byte_counts();
            bytes.sent += sent;
            bytes.received += received;
        }
        paths
    }

    /// Passes several inputs to the core, then executes the outputs.
    pub(super) fn handle_all(&mut self, inputs: impl IntoIterator<Item = Input<Chunk>>) {
        let now = self.clock.now();
        for input in inputs {
            self.mux.handle(now, input);
        }
        self.pump();
    }

    /// Sets the rate limit of all applications together. Streams that wait for the previous limit
    /// continue.
    pub(super) fn set_limit(&mut self, limit: Option<SharedRateLimit>) {
        self.limit = limit;
        self.pump();
    }

    /// Sends a ping over each carrier, which the peer answers.
    pub(super) fn request_liveness(&mut self) {
        for slot in self.carriers.values_mut() {
            slot.io.queue(&Message::Ping { number: 0 });
            // The task of the carrier reports an error.
            let _ = slot.io.flush();
        }
    }

    /// Returns the encrypted bytes that were received over all carriers.
    pub(super) fn received_bytes(&self) -> u64 {
        self.bytes_by_path().values().map(|bytes| bytes.received).sum()
    }

    /// Returns the counters of all sessions of this process: they never fall.
    pub(super) fn counters_of_streams(&self) -> Counters {
        self.earlier + self.mux.counters()
    }

    pub(super) fn set_label(&mut self, id: u8, policy: StreamPolicy) {
        let now = self.clock.now();
        self.mux.handle(now, Input::Relabel { id, stream_policy: policy });
        self.pump();
    }

    /// Starts another session, which keeps only the labels.
    pub(super) fn restart(&mut self, config: Config) {
        self.close();
        let labels = self.mux.labels();
        self.earlier = self.counters_of_streams();
        self.mux = Mux::new(config);
        self.next_stream = 0;
        for (id, policy) in labels {
            self.set_label(id, policy);
        }
    }

    fn close(&mut self) {
        for id in self.applications.keys().copied().collect::<Vec<_>>() {
            self.close_application(id, true);
        }
        for (_, slot) in self.carriers.iter_mut() {
            slot.io.queue(&Message::Bye);
            let _ = slot.io.flush();
            slot.io.close(true);
        }
        for id in self.carriers.keys().copied().collect::<Vec<_>>() {
            self.remove_carrier(id);
        }
    }

    /// Executes the outputs of the core until there are no more.
    pub(super) fn pump(&mut self) {
        let now = self.clock.now();
        self.resume_limited();
        loop {
            self.report_send_capacity(now);
            let mut sent = false;
            // Consecutive data for one application is written together.
            let mut fed: Option<StreamId> = None;
            while let Some(output) = self.mux.poll(now) {
                if let Some(before) = fed
                    && !matches!(&output, Output::Data { stream, .. } if *stream == before)
                {
                    fed = None;
                    self.write_socket(before);
                }
                match output {
                    Output::Send { carrier, message } => {
                        if let Some(slot) = self.carriers.get_mut(&carrier) {
                            self.counters.on_sent(slot.path, &message);
                            slot.io.queue(&message);
                            slot.has_unflushed = true;
                            sent = true;
                        }
                    }
                    Output::Data { stream, data } => {
                        let due = self.counters.on_delivered(stream, data.0.len());
                        self.notify_threshold(due);
                        self.report_outcome(stream, Ok(()));
                        if let Some(application) = self.applications.get_mut(&stream) {
                            application.unwritten.push_back(data.0);
                            fed = (!application.is_blocked).then_some(stream);
                        }
                    }
                    output => self.execute(output),
                }
            }
            if let Some(stream) = fed {
                self.write_socket(stream);
                sent = true;
            }
            if !sent {
                break;
            }
            self.flush(now);
        }
        let wakeup = self.mux.next_wakeup().into_iter().chain(self.limit_wakeup(now)).min();
        if wakeup != self.wakeup {
            // A later wakeup takes effect when the earlier one is due.
            if wakeup
                .is_some_and(|at| self.wakeup.is_none_or(|before| at < before || before <= now))
            {
                self.timer.notify_one();
                self.wakeup = wakeup;
            } else if wakeup.is_none() || self.wakeup.is_some_and(|before| before <= now) {
                self.wakeup = wakeup;
            }
        }
    }

    fn execute(&mut self, output: Output<Chunk>) {
        let path = |session: &Self, carrier: CarrierId| {
            session.carriers.get(&carrier).map_or(PathId(0), |slot| slot.path)
        };
        let event = match output {
            Output::Open { stream, destination: target, .. } => {
                self.applications.insert(stream, StreamSocket::new());
                SessionEvent::Open { stream, target }
            }
            Output::Opened { stream } => return self.report_outcome(stream, Ok(())),
            Output::Finished { stream } => {
                self.report_outcome(stream, Ok(()));
                if let Some(application) = self.applications.get_mut(&stream) {
                    application.peer_finished = true;
                }
                return self.write_socket(stream);
            }
            Output::Reset { stream, code } => {
                self.report_outcome(stream, Err(code));
                return self.close_application(stream, true);
            }
            Output::Closed { stream } => return self.close_application(stream, false),
            Output::Writable { stream } => {
                if let Some(application) = self.applications.get_mut(&stream) {
                    application.is_reading = true;
                    application.wake.notify_one();
                }
                return;
            }
            Output::Datagram { flow, label, peer, data } => {
                SessionEvent::Datagram { flow, label, peer, data: data.0 }
            }
            Output::CloseFlow { flow } => SessionEvent::CloseFlow { flow },
            Output::PathDown { path } => {
                let gone = self.carriers.iter().filter(|(_, slot)| slot.path == path);
                for id in gone.map(|(id, _)| *id).collect::<Vec<_>>() {
                    self.on_carrier_lost(id, CarrierError::LinkDown);
                }
                return;
            }
            Output::Recall { carrier, first, last } => return self.recall(carrier, first, last),
            Output::Suspect { carrier, direction } => {
                let barren = (!self.has_delivered(carrier, direction)).then_some(direction);
                SessionEvent::Suspect { carrier, path: path(self, carrier), barren }
            }
            Output::Recovered { carrier } => SessionEvent::Recovered { carrier },
            Output::ProtocolViolation { carrier, violation: what } => {
                tracing::warn!("a carrier is closed: the peer has violated the protocol: {what}");
                return self.on_carrier_lost(carrier, CarrierError::Closed);
            }
            Output::WrongDrop { carrier } => {
                return self.on_carrier_lost(carrier, SealError::Number.into());
            }
            Output::StreamRefused => SessionEvent::StreamRefused,
            Output::Loan(message) => SessionEvent::Loan(message),
            Output::Bye => SessionEvent::Bye,
            Output::Send { .. } | Output::Data { .. } => return,
        };
        let _ = self.events.send(event);
    }
}
