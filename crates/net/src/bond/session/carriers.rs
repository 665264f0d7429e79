//! The carriers of a session, and what waits for their sockets.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use manyways_proto::mux::{CarrierId, Condition, Input, Message};
use manyways_proto::sched::PathId;
use manyways_unit::{Span, Time};
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::{Event, Handle, Session};
use crate::bond::carrier::{CarrierError, Chunk, Io};
use crate::bond::quic;

/// What the kernel says of a carrier is asked for no more often.
const LOOK: Span = Span::from_micros(300);

pub(super) struct Slot {
    pub(super) io: Io,
    pub(super) path: PathId,
    /// The kernel takes no more.
    pub(super) blocked: bool,
    pub(super) dirty: bool,
    pub(super) looked_at: Option<Time>,
    pub(super) wake: Rc<Notify>,
    pub(super) task: Option<AbortHandle>,
}

impl Handle {
    /// Another carrier is there, greetings exchanged.
    /// Those messages of it are there that came `early`, with the greeting.
    pub(in crate::bond) fn attach(
        &self,
        path: PathId,
        mut io: Io,
        early: Vec<Message<Chunk>>,
    ) -> CarrierId {
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
    pub(in crate::bond) fn detach(&self, id: CarrierId) {
        self.with(|session| {
            session.remove_carrier(id);
            session.pump();
        });
    }
}

impl Session {
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

    pub(super) fn lose(&mut self, id: CarrierId, reason: CarrierError) {
        if let Some(path) = self.remove_carrier(id) {
            let _ = self.events.send(Event::Lost { carrier: id, path, reason });
        }
    }

    pub(super) fn remove_carrier(&mut self, id: CarrierId) -> Option<PathId> {
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

    pub(super) fn tell_room(&mut self, now: Time) {
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

    pub(super) fn flush(&mut self, now: Time) {
        let mut lost = Vec::new();
        for (id, slot) in self.carriers.iter_mut().filter(|(_, slot)| slot.dirty) {
            slot.dirty = false;
            match slot.io.flush() {
                Ok(true) => {}
                Ok(false) => {
                    slot.blocked = true;
                    slot.wake.notify_one();
                    // How things are now stands until it takes more.
                    if let Some(condition) = slot.io.condition() {
                        slot.looked_at = Some(now);
                        self.mux.handle(now, Input::Condition { carrier: *id, condition });
                    }
                }
                Err(why) => lost.push((*id, why)),
            }
        }
        for (id, why) in lost {
            self.lose(id, why);
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
