//! A session in the world: the carriers and the applications' sockets around one [`Mux`]. Both
//! ends are this; who opens streams, and where they lead, is the owner's.
//!
//! All of a session runs on one thread. Each carrier and each application has a task that waits for
//! its socket; whatever happens is told to the core, and [`Session::pump`] does what it says.

mod applications;
mod carriers;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use manyways_proto::mux::{
    CarrierId, Condition, Config, FlowId, Input, Message, Mux, Output, StreamId, Target,
};
use manyways_proto::sched::{PathId, Treatment};
use manyways_sys::clock::Clock;
use manyways_unit::Time;
use tokio::sync::{Notify, mpsc};

use super::carrier::{CarrierError, Chunk, Vitals};
use super::limit::Limit;
use super::tally::{Counted, Shares, Tally};
use applications::Application;
use carriers::Slot;

/// What the owner of a session has to deal with.
#[derive(Debug)]
pub(super) enum Event {
    /// Connect a stream, see [`Handle::adopt`] and [`Handle::refuse`].
    Open {
        stream: StreamId,
        target: Target,
    },
    Datagram {
        flow: FlowId,
        label: u8,
        peer: Target,
        data: Bytes,
    },
    CloseFlow {
        flow: FlowId,
    },
    /// A carrier does not get through.
    Suspect {
        carrier: CarrierId,
        path: PathId,
    },
    /// A suspect carrier gets through again.
    Recovered {
        carrier: CarrierId,
    },
    /// A carrier has ended.
    Lost {
        carrier: CarrierId,
        path: PathId,
        reason: CarrierError,
    },
    /// The peer's session is over.
    Bye,
    /// A stream has as many bytes as somebody wanted to know of.
    Reached {
        number: u64,
    },
    /// A stream that was counted is over.
    Closed {
        counted: Counted,
    },
}

/// A session that several tasks share.
#[derive(Clone)]
pub(super) struct Handle(Rc<RefCell<Session>>);

pub(super) struct Session {
    pub(super) mux: Mux<Chunk>,
    clock: Clock,
    carriers: HashMap<CarrierId, Slot>,
    next_carrier: u64,
    applications: HashMap<StreamId, Application>,
    next_stream: u64,
    events: mpsc::UnboundedSender<Event>,
    /// Told when the core wants to be asked at another time.
    timer: Rc<Notify>,
    wakeup: Option<Time>,
    buffer: Vec<u8>,
    scratch: BytesMut,
    pub(super) tally: Tally,
    /// How fast its applications may be in all…
    limit: Option<Limit>,
    /// …and those that wait for that.
    held: [VecDeque<StreamId>; 2],
}

/// What a session's carrier is doing.
#[derive(Clone, Debug)]
pub(super) struct CarrierStatus {
    pub(super) path: PathId,
    pub(super) kind: &'static str,
    pub(super) condition: Option<Condition>,
    pub(super) suspect: bool,
}

impl Handle {
    /// A session without carriers, whose owner listens to what comes back.
    pub(super) fn new(config: Config) -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (events, received) = mpsc::unbounded_channel();
        let timer = Rc::new(Notify::new());
        let session = Session {
            mux: Mux::new(config),
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
            tally: Tally::default(),
            limit: None,
            held: Default::default(),
        };
        let handle = Self(Rc::new(RefCell::new(session)));
        let weak = Rc::downgrade(&handle.0);
        tokio::task::spawn_local(async move {
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

    /// Tells the core something, and does what follows.
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

    /// Ends everything.
    pub(super) fn close(&self) {
        self.with(Session::close);
    }
}

impl Session {
    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// What each carrier is doing.
    pub(super) fn status(&mut self) -> Vec<(CarrierId, CarrierStatus)> {
        let suspects: Vec<CarrierId> =
            self.mux.carriers().filter(|(_, suspect)| *suspect).map(|(id, _)| id).collect();
        let mut all: Vec<(CarrierId, CarrierStatus)> = self
            .carriers
            .iter_mut()
            .map(|(id, slot)| {
                let status = CarrierStatus {
                    path: slot.path,
                    kind: slot.io.kind(),
                    condition: slot.io.condition(),
                    suspect: suspects.contains(id),
                };
                (*id, status)
            })
            .collect();
        all.sort_by_key(|(id, status)| (status.path, *id));
        all
    }

    /// What each path brought in all, in bytes of its connections.
    pub(super) fn traffic(&self) -> Shares {
        let mut traffic = self.tally.ended().clone();
        for slot in self.carriers.values() {
            let share = traffic.entry(slot.path).or_default();
            let (received, sent) = slot.io.traffic();
            share.sent += sent;
            share.received += received;
        }
        traffic
    }

    /// How each path's newest carrier does.
    pub(super) fn vitals(&self) -> HashMap<PathId, (CarrierId, Vitals)> {
        let mut states = HashMap::new();
        let mut ids: Vec<&CarrierId> = self.carriers.keys().collect();
        ids.sort();
        for id in ids {
            if let Some(slot) = self.carriers.get(id)
                && let Some(vitals) = slot.io.vitals()
            {
                states.insert(slot.path, (*id, vitals));
            }
        }
        states
    }

    /// Tells the core several things at once, and does what follows.
    pub(super) fn handle_all(&mut self, inputs: impl IntoIterator<Item = Input<Chunk>>) {
        let now = self.clock.now();
        for input in inputs {
            self.mux.handle(now, input);
        }
        self.pump();
    }

    /// How fast its applications may be in all. Those that wait for a limit that was go on.
    pub(super) fn set_limit(&mut self, limit: Option<Limit>) {
        self.limit = limit;
        self.pump();
    }

    /// Wants to hear from the other end over each carrier.
    pub(super) fn ask_for_life(&mut self) {
        for slot in self.carriers.values_mut() {
            slot.io.queue(&Message::Ping { number: 0 });
            // One that has ended says so elsewhere.
            let _ = slot.io.flush();
        }
    }

    /// What came since the session began, in bytes of connections.
    pub(super) fn received(&self) -> u64 {
        self.traffic().values().map(|share| share.received).sum()
    }

    pub(super) fn set_label(&mut self, id: u8, treatment: Treatment) {
        let now = self.clock.now();
        self.mux.handle(now, Input::Relabel { id, treatment });
        self.pump();
    }

    /// All begins anew: nothing of before is left but what labels stand for.
    pub(super) fn renew(&mut self, config: Config) {
        self.close();
        let labels = self.mux.labels();
        self.mux = Mux::new(config);
        self.next_stream = 0;
        for (id, treatment) in labels {
            self.set_label(id, treatment);
        }
    }

    fn close(&mut self) {
        for id in self.applications.keys().copied().collect::<Vec<_>>() {
            self.forget(id, true);
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

    /// Does what the core says until it says nothing more.
    pub(super) fn pump(&mut self) {
        let now = self.clock.now();
        self.resume();
        loop {
            self.tell_room(now);
            let mut sent = false;
            // Data for one application is written together.
            let mut fed: Option<StreamId> = None;
            while let Some(output) = self.mux.poll(now) {
                if let Some(before) = fed
                    && !matches!(&output, Output::Data { stream, .. } if *stream == before)
                {
                    fed = None;
                    self.write_out(before);
                }
                match output {
                    Output::Send { carrier, message } => {
                        if let Some(slot) = self.carriers.get_mut(&carrier) {
                            self.tally.sent(slot.path, &message);
                            slot.io.queue(&message);
                            slot.dirty = true;
                            sent = true;
                        }
                    }
                    Output::Data { stream, data } => {
                        let due = self.tally.brought(stream, data.0.len());
                        self.tell_reached(due);
                        if let Some(application) = self.applications.get_mut(&stream) {
                            application.outbox.push_back(data.0);
                            fed = (!application.blocked).then_some(stream);
                        }
                    }
                    output => self.obey(output),
                }
            }
            if let Some(stream) = fed {
                self.write_out(stream);
                sent = true;
            }
            if !sent {
                break;
            }
            self.flush(now);
        }
        let wakeup = self.mux.next_wakeup().into_iter().chain(self.resumes_at(now)).min();
        if wakeup != self.wakeup {
            // A later time than before is found out when the earlier one comes.
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

    fn obey(&mut self, output: Output<Chunk>) {
        let path = |session: &Self, carrier: CarrierId| {
            session.carriers.get(&carrier).map_or(PathId(0), |slot| slot.path)
        };
        let event = match output {
            Output::Open { stream, target, .. } => {
                self.applications.insert(stream, Application::new());
                Event::Open { stream, target }
            }
            Output::Finished { stream } => {
                if let Some(application) = self.applications.get_mut(&stream) {
                    application.finished = true;
                }
                return self.write_out(stream);
            }
            Output::Reset { stream, .. } => return self.forget(stream, true),
            Output::Closed { stream } => return self.forget(stream, false),
            Output::Hungry { stream } => {
                if let Some(application) = self.applications.get_mut(&stream) {
                    application.reads = true;
                    application.wake.notify_one();
                }
                return;
            }
            Output::Datagram { flow, label, peer, data } => {
                Event::Datagram { flow, label, peer, data: data.0 }
            }
            Output::CloseFlow { flow } => Event::CloseFlow { flow },
            Output::PathDown { path } => {
                let gone = self.carriers.iter().filter(|(_, slot)| slot.path == path);
                for id in gone.map(|(id, _)| *id).collect::<Vec<_>>() {
                    self.lose(id, CarrierError::LinkDown);
                }
                return;
            }
            Output::Suspect { carrier } => Event::Suspect { carrier, path: path(self, carrier) },
            Output::Recovered { carrier } => Event::Recovered { carrier },
            Output::Breach { carrier, what } => {
                tracing::warn!(
                    "a carrier is closed, since the other end broke the protocol: {what}"
                );
                return self.lose(carrier, CarrierError::Closed);
            }
            Output::Bye => Event::Bye,
            Output::Send { .. } | Output::Data { .. } => return,
        };
        let _ = self.events.send(event);
    }
}
