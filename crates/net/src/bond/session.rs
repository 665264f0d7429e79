//! A session in the world: the carriers and the applications' sockets around one [`Mux`]. Both
//! ends are this; who opens streams, and where they lead, is the owner's.
//!
//! All of a session runs on one thread. Each carrier and each application has a task that waits for
//! its socket; whatever happens is told to the core, and [`Session::pump`] does what it says.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use manyways_proto::mux::{
    CarrierId, Condition, Config, FlowId, Input, Message, Mux, Output, ResetCode, StreamId, Target,
};
use manyways_proto::sched::{PathId, Treatment};
use manyways_sys::clock::Clock;
use manyways_trace::{Span, Time};
use socket2::SockRef;
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;

use super::carrier::{CarrierError, Chunk, Io, Vitals};
use super::quic;
use super::tally::{Counted, Shares, Tally};

/// An application's socket is read in pieces of this at most.
const READ: usize = 64 << 10;
/// What the kernel says of a carrier is asked for no more often.
const LOOK: Span = Span::from_micros(300);
/// An application's socket that takes nothing keeps so much of what came at most in one write.
const WRITES: usize = 32;

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
        path: PathId,
    },
    /// A carrier has ended.
    Lost {
        carrier: CarrierId,
        path: PathId,
        why: CarrierError,
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
}

struct Slot {
    io: Io,
    path: PathId,
    /// The kernel takes no more.
    blocked: bool,
    dirty: bool,
    looked_at: Option<Time>,
    wake: Rc<Notify>,
    task: Option<AbortHandle>,
}

/// An application's end of a stream.
struct Application {
    /// None while it is being connected.
    socket: Option<Rc<TcpStream>>,
    /// What came and was not taken.
    outbox: VecDeque<Bytes>,
    /// The peer has nothing more to write.
    finished: bool,
    reads: bool,
    blocked: bool,
    wake: Rc<Notify>,
    task: Option<AbortHandle>,
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

    /// Another carrier is there, greetings exchanged.
    /// Those messages of it are there that came `early`, with the greeting.
    pub(super) fn attach(&self, path: PathId, mut io: Io, early: Vec<Message<Chunk>>) -> CarrierId {
        let wake = Rc::new(Notify::new());
        let transport = match &io {
            Io::Tcp(io) => Ok(Rc::clone(&io.stream)),
            Io::Quic(io) => Err(io.connection.clone()),
        };
        let condition = io.condition().unwrap_or_else(|| Condition::fresh(Span::from_millis(100)));
        let id = self.with(|session| {
            let id = CarrierId(session.next_carrier);
            session.next_carrier += 1;
            let now = session.clock.now();
            let slot = Slot {
                io,
                path,
                blocked: false,
                dirty: false,
                looked_at: None,
                wake: Rc::clone(&wake),
                task: None,
            };
            session.carriers.insert(id, slot);
            session.mux.handle(now, Input::Attach { carrier: id, path, condition });
            id
        });
        let session = Rc::downgrade(&self.0);
        let task = match transport {
            Ok(stream) => tokio::task::spawn_local(drive_tcp(session, id, stream, wake)),
            Err(connection) => tokio::task::spawn_local(drive_quic(session, id, connection, wake)),
        };
        self.with(|session| {
            if let Some(slot) = session.carriers.get_mut(&id) {
                slot.task = Some(task.abort_handle());
            }
            let now = session.clock.now();
            for message in early {
                session.tally.received(path, &message);
                session.mux.handle(now, Input::Message { carrier: id, message });
            }
            session.pump();
        });
        id
    }

    /// Ends a carrier.
    pub(super) fn detach(&self, id: CarrierId) {
        self.with(|session| {
            session.remove_carrier(id);
            session.pump();
        });
    }

    /// An application's connection becomes a stream. `first` was read of it already.
    pub(super) fn open(
        &self,
        socket: TcpStream,
        target: Target,
        label: u8,
        first: Bytes,
    ) -> (StreamId, u64) {
        let (stream, number) = self.with(|session| {
            let stream = StreamId(session.next_stream);
            session.next_stream += 1;
            let number = session.tally.begin(stream);
            session.tally.wrote(stream, first.len());
            let now = session.clock.now();
            let application = Application::new();
            session.applications.insert(stream, application);
            session.mux.handle(now, Input::Open { stream, label, target });
            if !first.is_empty() {
                session.mux.handle(now, Input::Write { stream, data: Chunk(first) });
            }
            (stream, number)
        });
        self.adopt(stream, socket);
        (stream, number)
    }

    /// The connection that a stream is for.
    pub(super) fn adopt(&self, id: StreamId, socket: TcpStream) {
        let _ = socket.set_nodelay(true);
        let socket = Rc::new(socket);
        let wake = self.with(|session| {
            let application = session.applications.get_mut(&id)?;
            application.socket = Some(Rc::clone(&socket));
            Some(Rc::clone(&application.wake))
        });
        // It was reset meanwhile.
        let Some(wake) = wake else { return };
        let handle = Rc::downgrade(&self.0);
        let task = tokio::task::spawn_local(async move {
            loop {
                let Some(session) = handle.upgrade() else { return };
                let interest = session.borrow().applications.get(&id).and_then(|application| {
                    let reads = application.reads.then_some(Interest::READABLE);
                    let writes = application.blocked.then_some(Interest::WRITABLE);
                    match (reads, writes) {
                        (Some(reads), Some(writes)) => Some(reads | writes),
                        (reads, writes) => reads.or(writes),
                    }
                });
                drop(session);
                let Some(interest) = interest else {
                    wake.notified().await;
                    continue;
                };
                let ready = tokio::select! {
                    ready = socket.ready(interest) => ready,
                    () = wake.notified() => continue,
                };
                let Some(session) = handle.upgrade() else { return };
                session.borrow_mut().application_ready(id, ready);
            }
        });
        self.with(|session| {
            if let Some(application) = session.applications.get_mut(&id) {
                application.task = Some(task.abort_handle());
            }
            session.write_out(id);
            session.pump();
        });
    }

    /// The connection that a stream is for does not come about.
    pub(super) fn refuse(&self, stream: StreamId, code: ResetCode) {
        self.with(|session| session.applications.remove(&stream));
        self.handle(Input::Reset { stream, code });
    }

    /// Ends a stream; the application is told that it ended badly.
    pub(super) fn end(&self, stream: StreamId) {
        self.with(|session| {
            session.abort(stream);
            session.pump();
        });
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

    /// The wall clock when its time began.
    pub(super) fn epoch(&self) -> Span {
        self.clock.epoch()
    }

    /// What each carrier is doing.
    pub(super) fn status(&mut self) -> Vec<(CarrierId, CarrierStatus)> {
        let suspects: Vec<CarrierId> =
            self.mux.carriers().filter(|(.., suspect)| *suspect).map(|(id, ..)| id).collect();
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

    /// Whether a carrier does not get through.
    pub(super) fn is_suspect(&self, id: CarrierId) -> bool {
        self.mux.carriers().any(|(carrier, _, suspect)| carrier == id && suspect)
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

    fn carrier_ready(&mut self, id: CarrierId, ready: io::Result<Ready>) {
        let Some(slot) = self.carriers.get_mut(&id) else { return };
        let Io::Tcp(io) = &mut slot.io else { return };
        let mut messages = Vec::new();
        let done = match ready {
            Ok(ready) => {
                let mut done = Ok(());
                if ready.is_readable() || ready.is_read_closed() {
                    done = io.read(&mut self.buffer, |message| messages.push(message));
                }
                if done.is_ok() && (ready.is_writable() || ready.is_write_closed()) {
                    done = io.flush().map(|all| slot.blocked = !all);
                }
                done
            }
            Err(error) => Err(error.into()),
        };
        self.take_messages(id, messages, done);
    }

    /// Does what a QUIC carrier has for us, and has it call when there is more. Ready when it is
    /// gone.
    fn poll_quic(&mut self, id: CarrierId, context: &mut Context<'_>) -> Poll<()> {
        let Some(slot) = self.carriers.get_mut(&id) else { return Poll::Ready(()) };
        let Io::Quic(io) = &mut slot.io else { return Poll::Ready(()) };
        let mut messages = Vec::new();
        let mut done = io.poll_read(context, &mut self.buffer, |message| messages.push(message));
        if done.is_ok() && slot.blocked {
            match io.poll_flush(context) {
                Poll::Ready(flushed) => {
                    slot.blocked = false;
                    done = flushed;
                }
                Poll::Pending => {}
            }
        }
        self.take_messages(id, messages, done);
        Poll::Pending
    }

    fn take_messages(
        &mut self,
        id: CarrierId,
        messages: Vec<Message<Chunk>>,
        done: Result<(), CarrierError>,
    ) {
        let now = self.clock.now();
        let Some(path) = self.carriers.get(&id).map(|slot| slot.path) else { return };
        for message in messages {
            self.tally.received(path, &message);
            self.mux.handle(now, Input::Message { carrier: id, message });
        }
        if let Err(why) = done {
            self.lose(id, why);
        }
        self.pump();
    }

    fn lose(&mut self, id: CarrierId, why: CarrierError) {
        if let Some(path) = self.remove_carrier(id) {
            let _ = self.events.send(Event::Lost { carrier: id, path, why });
        }
    }

    fn remove_carrier(&mut self, id: CarrierId) -> Option<PathId> {
        let slot = self.carriers.remove(&id)?;
        slot.io.close(false);
        let now = self.clock.now();
        self.mux.handle(now, Input::Detach { carrier: id });
        let (received, sent) = slot.io.traffic();
        self.tally.carrier_ended(slot.path, received, sent);
        // The task may be the caller: it ends when it waits next.
        if let Some(task) = slot.task {
            task.abort();
        }
        Some(slot.path)
    }

    fn application_ready(&mut self, id: StreamId, ready: io::Result<Ready>) {
        let Ok(ready) = ready else { return self.abort(id) };
        if ready.is_writable() || ready.is_write_closed() {
            if let Some(application) = self.applications.get_mut(&id) {
                application.blocked = false;
            }
            self.write_out(id);
        }
        if ready.is_readable() || ready.is_read_closed() {
            self.read_in(id);
        }
        self.pump();
    }

    fn read_in(&mut self, id: StreamId) {
        let now = self.clock.now();
        let Some(application) = self.applications.get_mut(&id) else { return };
        let Some(socket) = application.socket.as_ref().filter(|_| application.reads) else {
            return;
        };
        let appetite = self.mux.appetite(id);
        if appetite == 0 {
            application.reads = false;
            return;
        }
        let most = appetite.min(READ);
        if self.scratch.capacity() - self.scratch.len() < most.min(READ / 4) {
            self.scratch.reserve(READ);
        }
        let mut limited = bytes::BufMut::limit(&mut self.scratch, most);
        match socket.try_read_buf(&mut limited) {
            Ok(0) => {
                application.reads = false;
                self.mux.handle(now, Input::Finish { stream: id });
            }
            Ok(count) => {
                let data = Chunk(self.scratch.split().freeze());
                let due = self.tally.wrote(id, count);
                self.mux.handle(now, Input::Write { stream: id, data });
                self.tell_reached(due);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.abort(id),
        }
    }

    /// The application is gone.
    fn abort(&mut self, id: StreamId) {
        let now = self.clock.now();
        self.mux.handle(now, Input::Reset { stream: id, code: ResetCode::Aborted });
        self.forget(id, true);
    }

    /// Gives the application what came for it.
    fn write_out(&mut self, id: StreamId) {
        let now = self.clock.now();
        let Some(application) = self.applications.get_mut(&id) else { return };
        let Some(socket) = application.socket.clone() else { return };
        let mut taken = 0;
        let mut broken = false;
        while !application.outbox.is_empty() {
            let slices: Vec<io::IoSlice<'_>> =
                application.outbox.iter().take(WRITES).map(|data| io::IoSlice::new(data)).collect();
            match socket.try_write_vectored(&slices) {
                Ok(mut count) => {
                    taken += count as u64;
                    while count > 0
                        && let Some(first) = application.outbox.front_mut()
                    {
                        let part = count.min(first.len());
                        first.advance(part);
                        count -= part;
                        if first.is_empty() {
                            application.outbox.pop_front();
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    application.blocked = true;
                    application.wake.notify_one();
                    break;
                }
                Err(_) => {
                    broken = true;
                    break;
                }
            }
        }
        if taken > 0 {
            self.mux.handle(now, Input::Consumed { stream: id, bytes: taken });
        }
        if broken {
            return self.abort(id);
        }
        let Some(application) = self.applications.get_mut(&id) else { return };
        if application.finished && application.outbox.is_empty() {
            let _ = SockRef::from(&*socket).shutdown(std::net::Shutdown::Write);
        }
    }

    fn tell_reached(&self, due: Option<u64>) {
        if let Some(number) = due {
            let _ = self.events.send(Event::Reached { number });
        }
    }

    /// Drops an application's socket; with `reset` it is told that it ended badly.
    fn forget(&mut self, id: StreamId, reset: bool) {
        let Some(application) = self.applications.remove(&id) else { return };
        if let Some(counted) = self.tally.end(id) {
            let _ = self.events.send(Event::Closed { counted });
        }
        if reset && let Some(socket) = &application.socket {
            let _ = SockRef::from(&**socket).set_linger(Some(Duration::ZERO));
        }
        // The task may be the caller: it ends when it waits next.
        if let Some(task) = application.task {
            task.abort();
        }
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
            self.flush();
        }
        let wakeup = self.mux.next_wakeup();
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

    fn tell_room(&mut self, now: Time) {
        for (id, slot) in &mut self.carriers {
            if slot.blocked {
                self.mux.handle(now, Input::Room { carrier: *id, bytes: 0 });
                continue;
            }
            if slot.looked_at.is_none_or(|at| now.since(at) >= LOOK)
                && let Some(condition) = slot.io.condition()
            {
                slot.looked_at = Some(now);
                self.mux.handle(now, Input::Condition { carrier: *id, condition });
            }
            let bytes = slot.io.room();
            self.mux.handle(now, Input::Room { carrier: *id, bytes });
        }
    }

    fn flush(&mut self) {
        let mut lost = Vec::new();
        for (id, slot) in self.carriers.iter_mut().filter(|(_, slot)| slot.dirty) {
            slot.dirty = false;
            match slot.io.flush() {
                Ok(true) => {}
                Ok(false) => {
                    slot.blocked = true;
                    slot.wake.notify_one();
                }
                Err(why) => lost.push((*id, why)),
            }
        }
        for (id, why) in lost {
            self.lose(id, why);
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
                    self.lose(id, CarrierError::Down);
                }
                return;
            }
            Output::Suspect { carrier } => Event::Suspect { path: path(self, carrier) },
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

impl Application {
    fn new() -> Self {
        Self {
            socket: None,
            outbox: VecDeque::new(),
            finished: false,
            reads: true,
            blocked: false,
            wake: Rc::new(Notify::new()),
            task: None,
        }
    }
}

/// Waits for a TCP carrier's socket.
async fn drive_tcp(
    session: Weak<RefCell<Session>>,
    id: CarrierId,
    stream: Rc<TcpStream>,
    wake: Rc<Notify>,
) {
    loop {
        let Some(alive) = session.upgrade() else { return };
        let blocked = alive.borrow().carriers.get(&id).map(|slot| slot.blocked);
        drop(alive);
        // One that ended is always ready: this would go on without ever waiting, and an abort waits
        // for that.
        let Some(blocked) = blocked else { return };
        let interest = match blocked {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        let ready = tokio::select! {
            ready = stream.ready(interest) => ready,
            () = wake.notified() => continue,
        };
        let Some(alive) = session.upgrade() else { return };
        alive.borrow_mut().carrier_ready(id, ready);
    }
}

/// Waits for a QUIC carrier's stream and datagrams.
async fn drive_quic(
    session: Weak<RefCell<Session>>,
    id: CarrierId,
    connection: quinn::Connection,
    wake: Rc<Notify>,
) {
    let mut datagrams = true;
    loop {
        let stream = poll_fn(|context| match session.upgrade() {
            Some(alive) => alive.borrow_mut().poll_quic(id, context),
            None => Poll::Ready(()),
        });
        tokio::select! {
            () = stream => return,
            () = wake.notified() => {}
            datagram = connection.read_datagram(), if datagrams => {
                let Ok(bytes) = datagram else {
                    // Why it has ended is said by the stream, which is to be heard still.
                    datagrams = false;
                    continue;
                };
                let Some(message) = quic::datagram(&bytes) else { continue };
                let Some(alive) = session.upgrade() else { return };
                alive.borrow_mut().take_messages(id, vec![message], Ok(()));
            }
        }
    }
}
