//! The sockets of streams: to applications at the client, to servers at the gateway.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use manyways_proto::bond::rate_limit::Direction;
use manyways_proto::mux::{Destination, Input, ResetCode, StreamId};
use manyways_unit::Time;
use manyways_wire::http::RequestBody;
use socket2::SockRef;
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::{Session, SessionEvent, SessionHandle};
use crate::bond::carrier::Chunk;
use crate::bond::descriptors::Descriptor;
use crate::bond::rate_limit::SharedRateLimit;

/// Maximum bytes of one read.
const READ_CHUNK: usize = 64 << 10;
/// Maximum pieces of one write.
const MAX_WRITE_SLICES: usize = 32;

/// The socket of a stream.
pub(super) struct StreamSocket {
    /// `None` while the connection is being established.
    pub(super) socket: Option<Rc<TcpStream>>,
    /// Received data that is not written to the socket yet.
    pub(super) unwritten: VecDeque<Bytes>,
    /// Whether the peer has finished its direction of the stream.
    pub(super) peer_finished: bool,
    /// Whether the task waits for data from the socket.
    pub(super) is_reading: bool,
    /// Whether the socket accepts no more data.
    pub(super) is_blocked: bool,
    /// Whether the stream waits for the session's rate limit, by direction.
    pub(super) rate_limited: [bool; 2],
    pub(super) wake: Rc<Notify>,
    pub(super) task: Option<AbortHandle>,
    /// Of the socket, at a gateway.
    descriptor: Option<Descriptor>,
    /// The receiver of the outcome of the gateway's connection, until it is known.
    pub(super) outcome: Option<oneshot::Sender<Result<(), ResetCode>>>,
    /// Delimits the bytes for the server; later bytes are discarded. Boxed, because few streams have
    /// one and there may be many thousands of streams.
    pub(super) body: Option<Box<RequestBody>>,
}

/// A stream to open for an application.
#[derive(Debug)]
pub(in crate::bond) struct StreamRequest {
    pub(in crate::bond) target: Destination,
    pub(in crate::bond) label: u8,
    /// The first bytes for the server.
    pub(in crate::bond) first: Bytes,
    /// Delimits the further bytes for the server; `None` if all bytes are for the server.
    pub(in crate::bond) body: Option<RequestBody>,
}

/// A stream that is opened without the application's socket until the gateway has connected to the
/// server.
#[derive(Debug)]
pub(in crate::bond) struct OpeningStream {
    pub(in crate::bond) stream: StreamId,
    /// Number among all streams of the client.
    pub(in crate::bond) number: u64,
    outcome: oneshot::Receiver<Result<(), ResetCode>>,
}

impl OpeningStream {
    /// Waits for the outcome of the gateway's connection.
    pub(in crate::bond) async fn outcome(&mut self) -> Result<(), ResetCode> {
        // The session or a rule of the policy has ended the stream.
        (&mut self.outcome).await.unwrap_or(Err(ResetCode::Aborted))
    }
}

impl StreamSocket {
    pub(super) fn new() -> Self {
        Self {
            socket: None,
            unwritten: VecDeque::new(),
            peer_finished: false,
            is_reading: true,
            is_blocked: false,
            rate_limited: [false; 2],
            wake: Rc::new(Notify::new()),
            task: None,
            descriptor: None,
            outcome: None,
            body: None,
        }
    }
}

impl SessionHandle {
    /// Opens a stream for an application's connection. Returns the stream and its number among all
    /// streams of the client.
    pub(in crate::bond) fn open(
        &self,
        socket: TcpStream,
        request: StreamRequest,
    ) -> (StreamId, u64) {
        let (stream, number) = self.with(|session| session.open(request, None));
        self.attach_socket(stream, socket, None);
        (stream, number)
    }

    /// Opens a stream, and asks the gateway to confirm its connection to the server.
    /// [`SessionHandle::attach_opened`] attaches the application's connection.
    pub(in crate::bond) fn open_confirmed(&self, request: StreamRequest) -> OpeningStream {
        let (sender, outcome) = oneshot::channel();
        let (stream, number) = self.with(|session| {
            let opened = session.open(request, Some(sender));
            session.pump();
            opened
        });
        OpeningStream { stream, number, outcome }
    }

    /// Attaches the connection of an application whose stream the gateway has confirmed. If the
    /// stream has ended since, the connection is reset.
    pub(in crate::bond) fn attach_opened(&self, opening: &OpeningStream, socket: TcpStream) {
        match self.with(|session| session.has_stream(opening)) {
            true => self.attach_socket(opening.stream, socket, None),
            false => {
                let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
            }
        }
    }

    /// Ends a stream without an application's connection, if it has not ended.
    pub(in crate::bond) fn abandon(&self, opening: &OpeningStream) {
        if self.with(|session| session.has_stream(opening)) {
            self.end(opening.stream);
        }
    }

    /// Attaches the connection of a stream.
    pub(in crate::bond) fn attach_socket(
        &self,
        id: StreamId,
        socket: TcpStream,
        descriptor: Option<Descriptor>,
    ) {
        let _ = socket.set_nodelay(true);
        let socket = Rc::new(socket);
        let wake = self.with(|session| {
            let application = session.applications.get_mut(&id)?;
            application.socket = Some(Rc::clone(&socket));
            application.descriptor = descriptor;
            Some(Rc::clone(&application.wake))
        });
        // The stream was reset meanwhile.
        let Some(wake) = wake else { return };
        let handle = Rc::downgrade(&self.0);
        let task = self.spawn(async move {
            loop {
                let Some(session) = handle.upgrade() else { return };
                let interest = session.borrow().applications.get(&id).and_then(|application| {
                    let reads = application.is_reading.then_some(Interest::READABLE);
                    let writes = application.is_blocked.then_some(Interest::WRITABLE);
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
                session.borrow_mut().on_application_ready(id, ready);
            }
        });
        self.with(|session| {
            if let Some(application) = session.applications.get_mut(&id) {
                application.task = Some(task.abort_handle());
            }
            session.write_socket(id);
            session.pump();
        });
    }

    /// Resets a stream whose connection failed.
    pub(in crate::bond) fn refuse(&self, stream: StreamId, code: ResetCode) {
        self.with(|session| session.applications.remove(&stream));
        self.handle(Input::Reset { stream, code });
    }

    /// Ends a stream. The application's connection is reset.
    pub(in crate::bond) fn end(&self, stream: StreamId) {
        self.with(|session| {
            session.abort(stream);
            session.pump();
        });
    }
}

impl Session {
    /// Opens a stream. With `outcome`, the gateway confirms its connection to the server.
    fn open(
        &mut self,
        request: StreamRequest,
        outcome: Option<oneshot::Sender<Result<(), ResetCode>>>,
    ) -> (StreamId, u64) {
        let StreamRequest { target: destination, label, first, body } = request;
        let stream = StreamId(self.next_stream);
        self.next_stream += 1;
        let number = self.counters.begin(stream);
        self.counters.on_written(stream, first.len());
        let now = self.clock.now();
        let confirm = outcome.is_some();
        let body = body.map(Box::new);
        let application = StreamSocket { outcome, body, ..StreamSocket::new() };
        self.applications.insert(stream, application);
        self.mux.handle(now, Input::Open { stream, label, destination, confirm });
        if !first.is_empty() {
            self.mux.handle(now, Input::Write { stream, data: Chunk(first) });
        }
        (stream, number)
    }

    /// Whether a stream exists. Another session has other streams with the same identifiers.
    fn has_stream(&self, opening: &OpeningStream) -> bool {
        let totals = self.counters.stream(opening.stream);
        totals.is_some_and(|totals| totals.number == opening.number)
    }

    /// Reports the outcome of the gateway's connection, if it is the first report.
    pub(super) fn report_outcome(&mut self, id: StreamId, outcome: Result<(), ResetCode>) {
        let application = self.applications.get_mut(&id);
        if let Some(waiting) = application.and_then(|application| application.outcome.take()) {
            let _ = waiting.send(outcome);
        }
    }

    fn on_application_ready(&mut self, id: StreamId, ready: io::Result<Ready>) {
        let Ok(ready) = ready else { return self.abort(id) };
        if ready.is_writable() || ready.is_write_closed() {
            if let Some(application) = self.applications.get_mut(&id) {
                application.is_blocked = false;
            }
            self.write_socket(id);
        }
        if ready.is_readable() || ready.is_read_closed() {
            self.read_socket(id);
        }
        self.pump();
    }

    fn read_socket(&mut self, id: StreamId) {
        let now = self.clock.now();
        let Some(application) = self.applications.get_mut(&id) else { return };
        let Some(socket) = application.socket.as_ref().filter(|_| application.is_reading) else {
            return;
        };
        let appetite = self.mux.writable_bytes(id);
        let is_limited = is_limited(self.limit.as_ref(), Direction::Down);
        if appetite == 0 || is_limited {
            application.is_reading = false;
            if is_limited {
                self.queue_for_limit(Direction::Down, id);
            }
            return;
        }
        let max = self.limit.as_ref().map_or(READ_CHUNK, SharedRateLimit::max_chunk);
        let max = appetite.min(READ_CHUNK).min(max);
        if self.scratch.capacity() - self.scratch.len() < max.min(READ_CHUNK / 4) {
            self.scratch.reserve(READ_CHUNK);
        }
        let mut limited = bytes::BufMut::limit(&mut self.scratch, max);
        match socket.try_read_buf(&mut limited) {
            Ok(0) => {
                application.is_reading = false;
                self.mux.handle(now, Input::Finish { stream: id });
            }
            Ok(count) => {
                let mut data = self.scratch.split().freeze();
                let mut count = count;
                if let Some(body) = &mut application.body {
                    count = body.take(&data);
                    data.truncate(count);
                    if count == 0 {
                        return;
                    }
                }
                let data = Chunk(data);
                if let Some(limit) = &self.limit {
                    limit.charge(Direction::Down, count);
                }
                let due = self.counters.on_written(id, count);
                self.mux.handle(now, Input::Write { stream: id, data });
                self.notify_threshold(due);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.abort(id),
        }
    }

    /// Resets a stream and its connection.
    pub(super) fn abort(&mut self, id: StreamId) {
        let now = self.clock.now();
        self.mux.handle(now, Input::Reset { stream: id, code: ResetCode::Aborted });
        self.close_application(id, true);
    }

    /// Writes received data to the socket.
    pub(super) fn write_socket(&mut self, id: StreamId) {
        let now = self.clock.now();
        let Some(application) = self.applications.get_mut(&id) else { return };
        let Some(socket) = application.socket.clone() else { return };
        let mut taken = 0;
        let mut broken = false;
        let mut is_limited = false;
        while !application.unwritten.is_empty() {
            is_limited = self::is_limited(self.limit.as_ref(), Direction::Up);
            if is_limited {
                break;
            }
            let piece = self.limit.as_ref().map_or(usize::MAX, SharedRateLimit::max_chunk);
            let slices: Vec<io::IoSlice<'_>> = slices(&application.unwritten, piece);
            match socket.try_write_vectored(&slices) {
                Ok(mut count) => {
                    if let Some(limit) = &self.limit {
                        limit.charge(Direction::Up, count);
                    }
                    taken += count as u64;
                    while count > 0
                        && let Some(first) = application.unwritten.front_mut()
                    {
                        let part = count.min(first.len());
                        first.advance(part);
                        count -= part;
                        if first.is_empty() {
                            application.unwritten.pop_front();
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    application.is_blocked = true;
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
        if is_limited {
            self.queue_for_limit(Direction::Up, id);
        }
        let Some(application) = self.applications.get_mut(&id) else { return };
        if application.peer_finished && application.unwritten.is_empty() {
            let _ = SockRef::from(&*socket).shutdown(std::net::Shutdown::Write);
        }
    }

    /// Queues a stream for the session's rate limit.
    fn queue_for_limit(&mut self, direction: Direction, id: StreamId) {
        if let Some(application) = self.applications.get_mut(&id)
            && !std::mem::replace(&mut application.rate_limited[direction as usize], true)
        {
            self.rate_limited[direction as usize].push_back(id);
        }
    }

    /// Resumes streams that wait for the session's rate limit, in order, as far as the limit
    /// permits.
    pub(super) fn resume_limited(&mut self) {
        for direction in [Direction::Up, Direction::Down] {
            for _ in 0..self.rate_limited[direction as usize].len() {
                if is_limited(self.limit.as_ref(), direction) {
                    break;
                }
                let Some(id) = self.rate_limited[direction as usize].pop_front() else { break };
                let Some(application) = self.applications.get_mut(&id) else { continue };
                application.rate_limited[direction as usize] = false;
                match direction {
                    Direction::Up => self.write_socket(id),
                    Direction::Down => {
                        application.is_reading = true;
                        application.wake.notify_one();
                        self.read_socket(id);
                    }
                }
            }
        }
    }

    /// Returns when streams that wait for the session's rate limit can continue; `None` if no
    /// stream waits.
    pub(super) fn limit_wakeup(&self, now: Time) -> Option<Time> {
        let limit = self.limit.as_ref()?;
        let directions = [Direction::Up, Direction::Down].into_iter();
        let waiting = directions.filter(|one| !self.rate_limited[*one as usize].is_empty());
        waiting.map(|one| now + limit.wait_time(one).unwrap_or_default()).min()
    }

    /// Whether the session's rate limit admits a datagram.
    pub(in crate::bond) fn admit_datagram(&self, direction: Direction, bytes: usize) -> bool {
        self.limit.as_ref().is_none_or(|limit| limit.admit(direction, bytes))
    }

    pub(super) fn notify_threshold(&self, due: Option<u64>) {
        if let Some(number) = due {
            let _ = self.events.send(SessionEvent::ByteThreshold { number });
        }
    }

    /// Closes the socket of a stream; with `reset`, the connection is reset.
    pub(super) fn close_application(&mut self, id: StreamId, reset: bool) {
        let Some(application) = self.applications.remove(&id) else { return };
        if let Some(totals) = self.counters.end(id) {
            let _ = self.events.send(SessionEvent::StreamClosed { totals });
        }
        if reset && let Some(socket) = &application.socket {
            let _ = SockRef::from(&**socket).set_linger(Some(Duration::ZERO));
        }
        // If the caller is this task, the task ends when it waits next.
        if let Some(task) = application.task {
            task.abort();
        }
    }
}

fn is_limited(limit: Option<&SharedRateLimit>, direction: Direction) -> bool {
    limit.is_some_and(|limit| limit.wait_time(direction).is_some())
}

/// Returns the pieces of one write, at most `max` bytes.
fn slices(unwritten: &VecDeque<Bytes>, mut max: usize) -> Vec<io::IoSlice<'_>> {
    let slices = unwritten.iter().take(MAX_WRITE_SLICES).map_while(|data| {
        let part = data.get(..data.len().min(max)).filter(|part| !part.is_empty())?;
        max -= part.len();
        Some(io::IoSlice::new(part))
    });
    slices.collect()
}
