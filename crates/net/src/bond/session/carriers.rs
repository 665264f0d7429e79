//! The carriers of a session, and the tasks that wait for their sockets.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use manyways_proto::bond::carrier::{INITIAL_RTT, is_sample_due};
use manyways_proto::mux::{CarrierId, Direction, Input, Message, TransportInfo};
use manyways_proto::relay::Frame;
use manyways_proto::sched::PathId;
use manyways_unit::{Span, Time};
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::{Session, SessionEvent, SessionHandle};
use crate::bond::carrier::{CarrierError, CarrierIo, Chunk, Received, TcpCarrier};
use crate::bond::quic;

pub(super) struct CarrierSlot {
    pub(super) io: CarrierIo,
    pub(super) path: PathId,
    /// Whether the transport accepts no more data.
    pub(super) is_blocked: bool,
    pub(super) has_unflushed: bool,
    trial: Trial,
    /// When the transport was last sampled.
    pub(super) sampled_at: Option<Time>,
    pub(super) wake: Rc<Notify>,
    pub(super) task: Option<AbortHandle>,
}

impl SessionHandle {
    /// Adds a carrier after its handshake. `early` are the messages that arrived with the
    /// handshake.
    pub(in crate::bond) fn attach(
        &self,
        path: PathId,
        io: CarrierIo,
        early: Vec<Message<Chunk>>,
    ) -> CarrierId {
        let early = early.into_iter().map(Received::Message).collect();
        self.attach_with(path, io, early, |_, _| {})
    }

    /// Adds a carrier over a lender after its handshake: `join` is the number of the loan, `rtt` the
    /// round-trip time of the other half of the path.
    pub(in crate::bond) fn attach_lent(
        &self,
        path: PathId,
        mut io: TcpCarrier,
        (join, rtt): (u32, Span),
    ) -> Result<CarrierId, CarrierError> {
        let mut early = Vec::new();
        io.decrypt(|received| early.push(received))?;
        let io = CarrierIo::Tcp(Box::new(io));
        Ok(self.attach_with(path, io, early, |session, carrier| {
            let now = session.clock.now();
            session.mux.handle(now, Input::Lend { carrier, join, rtt });
        }))
    }

    fn attach_with(
        &self,
        path: PathId,
        mut io: CarrierIo,
        early: Vec<Received>,
        prepare: impl FnOnce(&mut Session, CarrierId),
    ) -> CarrierId {
        let wake = Rc::new(Notify::new());
        let transport = match &io {
            CarrierIo::Tcp(io) => Ok(Rc::clone(&io.stream)),
            CarrierIo::Quic(io) => Err(io.connection.clone()),
        };
        let info = io.transport_info().unwrap_or_else(|| TransportInfo::initial(INITIAL_RTT));
        let id = self.with(|session| {
            let id = CarrierId(session.next_carrier);
            session.next_carrier += 1;
            let now = session.clock.now();
            let trial =
                Trial { received: Some(io.byte_counts().0), acknowledged: Some(info.acknowledged) };
            let slot = CarrierSlot {
                io,
                path,
                is_blocked: false,
                has_unflushed: false,
                trial,
                sampled_at: None,
                wake: Rc::clone(&wake),
                task: None,
            };
            session.carriers.insert(id, slot);
            session.mux.handle(now, Input::Attach { carrier: id, path, transport_info: info });
            prepare(session, id);
            id
        });
        let session = Rc::downgrade(&self.0);
        let task = match transport {
            Ok(stream) => self.spawn(drive_tcp(session, id, stream, wake)),
            Err(connection) => self.spawn(drive_quic(session, id, connection, wake)),
        };
        self.with(|session| {
            if let Some(slot) = session.carriers.get_mut(&id) {
                slot.task = Some(task.abort_handle());
            }
            session.take_received(id, path, early);
            session.pump();
        });
        id
    }

    /// Ends a carrier without an event.
    pub(in crate::bond) fn detach(&self, id: CarrierId) {
        self.with(|session| {
            session.remove_carrier(id);
            session.pump();
        });
    }
}

/// Bytes of several packets of full size, more than a handshake.
const TRIAL: u64 = 4_000;

/// Bytes that a carrier has carried beyond a handshake.
struct Trial {
    /// Received bytes when it was attached; `None` once it has received more.
    received: Option<u64>,
    /// The same of acknowledged bytes.
    acknowledged: Option<u64>,
}

impl Trial {
    /// Processes the received bytes. Returns whether they show now that large packets arrive.
    fn on_received(&mut self, bytes: u64) -> bool {
        self.received.take_if(|before| bytes >= *before + TRIAL).is_some()
    }

    /// The same for what the peer has acknowledged, in units of this many bytes.
    fn on_acknowledged(&mut self, count: u64, unit: u64) -> bool {
        self.acknowledged.take_if(|before| count >= *before + TRIAL / unit).is_some()
    }
}

impl Session {
    /// Whether a carrier has carried more than a handshake in this direction.
    pub(super) fn has_delivered(&mut self, id: CarrierId, direction: Direction) -> bool {
        let Some(slot) = self.carriers.get_mut(&id) else { return false };
        let is_news = match direction {
            Direction::Receive => slot.trial.on_received(slot.io.byte_counts().0),
            Direction::Send => slot.io.transport_info().is_some_and(|info| {
                slot.trial.on_acknowledged(info.acknowledged, slot.io.bytes_per_acknowledgement())
            }),
        };
        if is_news {
            let _ = self.events.send(SessionEvent::Delivered { carrier: id, direction });
        }
        match direction {
            Direction::Receive => slot.trial.received.is_none(),
            Direction::Send => slot.trial.acknowledged.is_none(),
        }
    }

    /// Returns the address of the other end of a carrier's connection.
    pub(in crate::bond) fn peer_address(&self, carrier: CarrierId) -> Option<SocketAddr> {
        match &self.carriers.get(&carrier)?.io {
            CarrierIo::Tcp(io) => io.stream.peer_addr().ok(),
            CarrierIo::Quic(io) => Some(io.connection.remote_address()),
        }
    }

    /// Asks the lender of a carrier to drop messages.
    pub(super) fn recall(&mut self, carrier: CarrierId, first: u64, last: u64) {
        if let Some(slot) = self.carriers.get_mut(&carrier)
            && let CarrierIo::Tcp(io) = &mut slot.io
        {
            io.queue_frame(&Frame::Recall { first, last });
            slot.has_unflushed = true;
        }
    }

    fn take_received(&mut self, id: CarrierId, path: PathId, received: Vec<Received>) {
        let now = self.clock.now();
        for one in received {
            match one {
                Received::Message(message) => {
                    self.counters.on_received(path, &message);
                    self.mux.handle(now, Input::Message { carrier: id, message });
                }
                Received::Dropped => self.mux.handle(now, Input::Dropped { carrier: id }),
                // Only a lender reads frames.
                Received::Frame(_) => {}
                Received::Leave => {
                    self.mux.handle(now, Input::Retire { carrier: id });
                    let _ = self.events.send(SessionEvent::LenderLeaves { path });
                }
            }
        }
    }

    fn on_carrier_ready(&mut self, id: CarrierId, ready: io::Result<Ready>) {
        let Some(slot) = self.carriers.get_mut(&id) else { return };
        let CarrierIo::Tcp(io) = &mut slot.io else { return };
        let mut received = Vec::new();
        let done = match ready {
            Ok(ready) => {
                let mut done = Ok(());
                if ready.is_readable() || ready.is_read_closed() {
                    done = io.read(&mut self.buffer, |one| received.push(one));
                }
                if done.is_ok() && (ready.is_writable() || ready.is_write_closed()) {
                    done = io.flush().map(|all| slot.is_blocked = !all);
                }
                done
            }
            Err(error) => Err(error.into()),
        };
        self.on_received_all(id, received, done);
    }

    /// Reads and writes a QUIC carrier, which wakes the task when there is more to do. Ready when
    /// the carrier has been removed.
    fn poll_quic(&mut self, id: CarrierId, context: &mut Context<'_>) -> Poll<()> {
        let Some(slot) = self.carriers.get_mut(&id) else { return Poll::Ready(()) };
        let CarrierIo::Quic(io) = &mut slot.io else { return Poll::Ready(()) };
        let mut received = Vec::new();
        let mut done = io.poll_read(context, &mut self.buffer, |message| {
            received.push(Received::Message(message));
        });
        if done.is_ok() && slot.is_blocked {
            match io.poll_flush(context) {
                Poll::Ready(flushed) => {
                    slot.is_blocked = false;
                    done = flushed;
                }
                Poll::Pending => {}
            }
        }
        self.on_received_all(id, received, done);
        Poll::Pending
    }

    fn on_received_all(
        &mut self,
        id: CarrierId,
        received: Vec<Received>,
        done: Result<(), CarrierError>,
    ) {
        let Some(path) = self.carriers.get(&id).map(|slot| slot.path) else { return };
        self.take_received(id, path, received);
        self.has_delivered(id, Direction::Receive);
        if let Err(error) = done {
            self.on_carrier_lost(id, error);
        }
        self.pump();
    }

    pub(super) fn on_carrier_lost(&mut self, id: CarrierId, reason: CarrierError) {
        if let Some(path) = self.remove_carrier(id) {
            let _ = self.events.send(SessionEvent::CarrierLost { carrier: id, path, reason });
        }
    }

    pub(super) fn remove_carrier(&mut self, id: CarrierId) -> Option<PathId> {
        let slot = self.carriers.remove(&id)?;
        slot.io.close(false);
        let now = self.clock.now();
        self.mux.handle(now, Input::Detach { carrier: id });
        let (received, sent) = slot.io.byte_counts();
        self.counters.on_carrier_closed(slot.path, received, sent);
        // If the caller is this task, the task ends when it waits next.
        if let Some(task) = slot.task {
            task.abort();
        }
        Some(slot.path)
    }

    pub(super) fn report_send_capacity(&mut self, now: Time) {
        for (id, slot) in &mut self.carriers {
            if slot.is_blocked {
                self.mux.handle(now, Input::Writable { carrier: *id, bytes: 0 });
                continue;
            }
            if is_sample_due(now, slot.sampled_at, &self.carrier_config)
                && let Some(info) = slot.io.transport_info()
            {
                slot.sampled_at = Some(now);
                let unit = slot.io.bytes_per_acknowledgement();
                if slot.trial.on_acknowledged(info.acknowledged, unit) {
                    let direction = Direction::Send;
                    let _ = self.events.send(SessionEvent::Delivered { carrier: *id, direction });
                }
                self.mux.handle(now, Input::TransportInfo { carrier: *id, transport_info: info });
            }
            let bytes = slot.io.writable_bytes();
            self.mux.handle(now, Input::Writable { carrier: *id, bytes });
        }
    }

    pub(super) fn flush(&mut self, now: Time) {
        let mut lost = Vec::new();
        for (id, slot) in self.carriers.iter_mut().filter(|(_, slot)| slot.has_unflushed) {
            slot.has_unflushed = false;
            match slot.io.flush() {
                Ok(true) => {}
                Ok(false) => {
                    slot.is_blocked = true;
                    slot.wake.notify_one();
                    // The carrier is not sampled again until it accepts more.
                    if let Some(info) = slot.io.transport_info() {
                        slot.sampled_at = Some(now);
                        self.mux.handle(
                            now,
                            Input::TransportInfo { carrier: *id, transport_info: info },
                        );
                    }
                }
                Err(error) => lost.push((*id, error)),
            }
        }
        for (id, error) in lost {
            self.on_carrier_lost(id, error);
        }
    }
}

/// Waits for the socket of a TCP carrier.
async fn drive_tcp(
    session: Weak<RefCell<Session>>,
    id: CarrierId,
    stream: Rc<TcpStream>,
    wake: Rc<Notify>,
) {
    loop {
        let Some(alive) = session.upgrade() else { return };
        let blocked = alive.borrow().carriers.get(&id).map(|slot| slot.is_blocked);
        drop(alive);
        // A closed socket is always ready: the task would never wait, and the abort would not
        // take effect.
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
        alive.borrow_mut().on_carrier_ready(id, ready);
    }
}

/// Waits for the stream and the datagrams of a QUIC carrier.
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
                    // The stream reports why the connection has ended, and may have unread data.
                    datagrams = false;
                    continue;
                };
                let Some(message) = quic::datagram(&bytes) else { continue };
                let Some(alive) = session.upgrade() else { return };
                alive.borrow_mut().on_received_all(id, vec![Received::Message(message)], Ok(()));
            }
        }
    }
}
