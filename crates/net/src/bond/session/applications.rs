//! The sockets of applications, and the streams that they are.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use manyways_proto::mux::{Input, ResetCode, StreamId, Target};
use manyways_unit::Time;
use socket2::SockRef;
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::{Event, Handle, Session};
use crate::bond::carrier::Chunk;
use crate::bond::limit::{Limit, Way};

/// A socket is read in pieces of this at most.
const READ: usize = 64 << 10;
/// One that takes nothing keeps so much of what came at most in one write.
const WRITES: usize = 32;

/// An application's end of a stream.
pub(super) struct Application {
    /// None while it is being connected.
    pub(super) socket: Option<Rc<TcpStream>>,
    /// What came and was not taken.
    pub(super) outbox: VecDeque<Bytes>,
    /// The peer has nothing more to write.
    pub(super) finished: bool,
    pub(super) reads: bool,
    pub(super) blocked: bool,
    /// It waits for the session's limit, to write or to be read.
    pub(super) held: [bool; 2],
    pub(super) wake: Rc<Notify>,
    pub(super) task: Option<AbortHandle>,
}

impl Application {
    pub(super) fn new() -> Self {
        Self {
            socket: None,
            outbox: VecDeque::new(),
            finished: false,
            reads: true,
            blocked: false,
            held: [false; 2],
            wake: Rc::new(Notify::new()),
            task: None,
        }
    }
}

impl Handle {
    /// An application's connection becomes a stream. `first` was read of it already.
    pub(in crate::bond) fn open(
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
    pub(in crate::bond) fn adopt(&self, id: StreamId, socket: TcpStream) {
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
    pub(in crate::bond) fn refuse(&self, stream: StreamId, code: ResetCode) {
        self.with(|session| session.applications.remove(&stream));
        self.handle(Input::Reset { stream, code });
    }

    /// Ends a stream; the application is told that it ended badly.
    pub(in crate::bond) fn end(&self, stream: StreamId) {
        self.with(|session| {
            session.abort(stream);
            session.pump();
        });
    }
}

impl Session {
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
        let is_limited = is_limited(self.limit.as_ref(), Way::Down);
        if appetite == 0 || is_limited {
            application.reads = false;
            if is_limited {
                self.hold(Way::Down, id);
            }
            return;
        }
        let most = appetite.min(READ).min(self.limit.as_ref().map_or(READ, Limit::piece));
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
                if let Some(limit) = &self.limit {
                    limit.charge(Way::Down, count);
                }
                let due = self.tally.wrote(id, count);
                self.mux.handle(now, Input::Write { stream: id, data });
                self.tell_reached(due);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.abort(id),
        }
    }

    /// The application is gone.
    pub(super) fn abort(&mut self, id: StreamId) {
        let now = self.clock.now();
        self.mux.handle(now, Input::Reset { stream: id, code: ResetCode::Aborted });
        self.forget(id, true);
    }

    /// Gives the application what came for it.
    pub(super) fn write_out(&mut self, id: StreamId) {
        let now = self.clock.now();
        let Some(application) = self.applications.get_mut(&id) else { return };
        let Some(socket) = application.socket.clone() else { return };
        let mut taken = 0;
        let mut broken = false;
        let mut holds = false;
        while !application.outbox.is_empty() {
            holds = is_limited(self.limit.as_ref(), Way::Up);
            if holds {
                break;
            }
            let piece = self.limit.as_ref().map_or(usize::MAX, Limit::piece);
            let slices: Vec<io::IoSlice<'_>> = slices(&application.outbox, piece);
            match socket.try_write_vectored(&slices) {
                Ok(mut count) => {
                    if let Some(limit) = &self.limit {
                        limit.charge(Way::Up, count);
                    }
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
        if holds {
            self.hold(Way::Up, id);
        }
        let Some(application) = self.applications.get_mut(&id) else { return };
        if application.finished && application.outbox.is_empty() {
            let _ = SockRef::from(&*socket).shutdown(std::net::Shutdown::Write);
        }
    }

    /// An application waits for the session's limit.
    fn hold(&mut self, way: Way, id: StreamId) {
        if let Some(application) = self.applications.get_mut(&id)
            && !std::mem::replace(&mut application.held[way as usize], true)
        {
            self.held[way as usize].push_back(id);
        }
    }

    /// Those that waited for the session's limit go on, as far as it lets them, one after the other.
    pub(super) fn resume(&mut self) {
        for way in [Way::Up, Way::Down] {
            for _ in 0..self.held[way as usize].len() {
                if is_limited(self.limit.as_ref(), way) {
                    break;
                }
                let Some(id) = self.held[way as usize].pop_front() else { break };
                let Some(application) = self.applications.get_mut(&id) else { continue };
                application.held[way as usize] = false;
                match way {
                    Way::Up => self.write_out(id),
                    Way::Down => {
                        application.reads = true;
                        application.wake.notify_one();
                        self.read_in(id);
                    }
                }
            }
        }
    }

    /// When some of those that wait for the session's limit may go on.
    pub(super) fn resumes_at(&self, now: Time) -> Option<Time> {
        let limit = self.limit.as_ref()?;
        let ways = [Way::Up, Way::Down].into_iter();
        let waits = ways.filter(|way| !self.held[*way as usize].is_empty());
        waits.map(|way| now + limit.wait(way).unwrap_or_default()).min()
    }

    /// Whether the session's limit lets a datagram pass.
    pub(in crate::bond) fn passes(&self, way: Way, bytes: usize) -> bool {
        self.limit.as_ref().is_none_or(|limit| limit.passes(way, bytes))
    }

    pub(super) fn tell_reached(&self, due: Option<u64>) {
        if let Some(number) = due {
            let _ = self.events.send(Event::Reached { number });
        }
    }

    /// Drops an application's socket; with `reset` it is told that it ended badly.
    pub(super) fn forget(&mut self, id: StreamId, reset: bool) {
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
}

fn is_limited(limit: Option<&Limit>, way: Way) -> bool {
    limit.is_some_and(|limit| limit.wait(way).is_some())
}

/// What is written at once, `most` bytes or fewer.
fn slices(outbox: &VecDeque<Bytes>, mut most: usize) -> Vec<io::IoSlice<'_>> {
    let slices = outbox.iter().take(WRITES).map_while(|data| {
        let part = data.get(..data.len().min(most)).filter(|part| !part.is_empty())?;
        most -= part.len();
        Some(io::IoSlice::new(part))
    });
    slices.collect()
}
