//! Applications at the two endpoints of a stream, and the verdict on their bytes.

use manyways_unit::Span;

use super::endpoint::Endpoint;
use super::scenario::{ApplicationPlan, End, Reading};
use super::world::{Timer, World, ensure};
use crate::mux::tests::simulation::{CLIENT, GATEWAY, Piece};
use crate::mux::{Input, ResetCode, Role, StreamId};

pub const ROLES: [Role; 2] = [Role::Client, Role::Gateway];

/// A stream of an application.
#[derive(Debug)]
pub struct StreamRecord {
    pub session: u64,
    /// Number within the session.
    pub id: StreamId,
    pub connect: Span,
    pub is_refused: bool,
    pub applications: [Application; 2],
}

/// The application at one endpoint of a stream.
#[derive(Debug)]
pub struct Application {
    pub plan: ApplicationPlan,
    /// Whether the application has a connection; a server gets it later.
    pub is_connected: bool,
    pub written: u64,
    pub has_finished: bool,
    pub received: u64,
    pub unconsumed: u64,
    /// Whether the application has received the end of the other direction.
    pub peer_has_finished: bool,
    pub end: Option<StreamEnd>,
    has_timers: [bool; 2],
}

/// Why an application has no stream any longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamEnd {
    /// Both directions are complete.
    Complete,
    /// The application has reset the stream.
    Aborted(ResetCode),
    /// The mux has reported a reset of the other application.
    Reset(ResetCode),
    SessionEnded,
}

impl Application {
    pub fn new(plan: ApplicationPlan, is_connected: bool) -> Self {
        Self {
            plan,
            is_connected,
            written: 0,
            has_finished: false,
            received: 0,
            unconsumed: 0,
            peer_has_finished: false,
            end: None,
            has_timers: [false; 2],
        }
    }

    fn is_active(&self) -> bool {
        self.is_connected && self.end.is_none()
    }
}

impl World<'_> {
    /// The application writes as much as it wants to and may.
    pub fn write(&mut self, end: End, number: usize) {
        let record = &mut self.streams[number];
        let (session, id) = (record.session, record.id);
        let application = &mut record.applications[end];
        if !application.is_active() || application.has_timers[0] {
            return;
        }
        let now = self.machines[end].time(self.now);
        let Some(endpoint) = self.client.endpoint_of(&mut self.gateway, end, session) else {
            return;
        };
        endpoint.is_due = true;
        let pace = application.plan.writes.filter(|_| !self.is_calm);
        let largest = pace.map_or(65_536, |(bytes, _)| bytes);
        loop {
            let rest = application.plan.bytes - application.written;
            let len = (endpoint.mux.writable_bytes(id) as u64).min(rest).min(largest);
            if len == 0 {
                break;
            }
            let source = (StreamId(number as u64), ROLES[end]);
            let data = Piece { source, at: application.written, len: len as usize };
            application.written += len;
            endpoint.mux.handle(now, Input::Write { stream: id, data });
            if let Some((_, interval)) = pace {
                application.has_timers[0] = true;
                self.timers.add(self.now + interval, Timer::Write(end, number));
                break;
            }
        }
        let is_last = application.written == application.plan.bytes;
        if is_last
            && (application.plan.finishes || self.is_calm)
            && !std::mem::replace(&mut application.has_finished, true)
        {
            endpoint.mux.handle(now, Input::Finish { stream: id });
        }
    }

    /// The application reads as much as it wants to and may.
    pub fn read(&mut self, end: End, number: usize) {
        let record = &mut self.streams[number];
        let (session, id) = (record.session, record.id);
        let application = &mut record.applications[end];
        if !application.is_active() || application.has_timers[1] || application.unconsumed == 0 {
            return;
        }
        let bytes = match application.plan.reads {
            _ if self.is_calm => application.unconsumed,
            Reading::AtOnce => application.unconsumed,
            Reading::Slow(bytes, interval) => {
                application.has_timers[1] = true;
                self.timers.add(self.now + interval, Timer::Read(end, number));
                application.unconsumed.min(bytes)
            }
            Reading::Never => return,
        };
        application.unconsumed -= bytes;
        let now = self.machines[end].time(self.now);
        if let Some(endpoint) = self.client.endpoint_of(&mut self.gateway, end, session) {
            endpoint.is_due = true;
            endpoint.mux.handle(now, Input::Consumed { stream: id, bytes });
        }
    }

    /// A timer of an application has expired.
    pub fn resume(&mut self, end: End, number: usize, reads: bool) {
        self.streams[number].applications[end].has_timers[usize::from(reads)] = false;
        match reads {
            true => self.read(end, number),
            false => self.write(end, number),
        }
    }

    /// The server of a stream answers or refuses.
    pub fn connect(&mut self, number: usize) {
        if self.streams[number].is_refused {
            return self.abort(GATEWAY, number, ResetCode::Refused);
        }
        self.streams[number].applications[GATEWAY].is_connected = true;
        let (session, id) = (self.streams[number].session, self.streams[number].id);
        let now = self.machines[GATEWAY].time(self.now);
        if let Some(endpoint) = self.client.endpoint_of(&mut self.gateway, GATEWAY, session)
            && endpoint.streams.contains_key(&id)
        {
            endpoint.is_due = true;
            endpoint.mux.handle(now, Input::Opened { stream: id });
        }
        self.read(GATEWAY, number);
        self.write(GATEWAY, number);
    }

    /// The application resets its stream.
    pub fn abort(&mut self, end: End, number: usize, code: ResetCode) {
        let record = &mut self.streams[number];
        if record.applications[end].end.is_some() {
            return;
        }
        let (session, id) = (record.session, record.id);
        let now = self.machines[end].time(self.now);
        let Some(endpoint) = self.client.endpoint_of(&mut self.gateway, end, session) else {
            return;
        };
        // The gateway does not know the stream yet.
        if !endpoint.streams.contains_key(&id) {
            return;
        }
        endpoint.is_due = true;
        record.applications[end].end = Some(StreamEnd::Aborted(code));
        endpoint.mux.handle(now, Input::Reset { stream: id, code });
    }

    pub fn on_data(&mut self, end: End, number: usize, data: Piece) {
        let peer = 1 - end;
        let application = &mut self.streams[number].applications[end];
        let expected = ((StreamId(number as u64), ROLES[peer]), application.received);
        let found = (data.source, data.at);
        ensure!(found == expected, "stream {number}: {data:?} arrived, not {expected:?}");
        ensure!(data.len > 0, "stream {number}: empty data was delivered");
        let is_open = application.end.is_none() && !application.peer_has_finished;
        ensure!(is_open, "stream {number}: {data:?} arrived after the end");
        application.received += data.len as u64;
        application.unconsumed += data.len as u64;
        self.read(end, number);
    }

    pub fn on_finished(&mut self, end: End, number: usize) {
        let peer = &self.streams[number].applications[1 - end];
        let (sent, has_finished) = (peer.written, peer.has_finished);
        let application = &mut self.streams[number].applications[end];
        ensure!(application.end.is_none(), "stream {number} finished after its end");
        ensure!(!application.peer_has_finished, "stream {number} finished twice");
        ensure!(
            has_finished && application.received == sent,
            "stream {number} finished cleanly with {} of {sent} bytes",
            application.received
        );
        application.peer_has_finished = true;
    }

    pub fn on_reset(&mut self, end: End, number: usize, code: ResetCode) {
        let cause = self.streams[number].applications[1 - end].end;
        let application = &mut self.streams[number].applications[end];
        ensure!(application.end.is_none(), "stream {number} was reset after its end");
        ensure!(
            cause == Some(StreamEnd::Aborted(code)),
            "stream {number} was reset without cause: {code:?}, the other end: {cause:?}"
        );
        application.end = Some(StreamEnd::Reset(code));
    }

    pub fn on_closed(&mut self, end: End, number: usize) {
        let application = &mut self.streams[number].applications[end];
        if application.end.is_none() {
            ensure!(
                application.peer_has_finished
                    && application.has_finished
                    && application.unconsumed == 0,
                "stream {number} was removed before its end: {application:?}"
            );
            application.end = Some(StreamEnd::Complete);
        }
    }

    /// The session of an endpoint ends, and with it the streams that the endpoint knows.
    pub fn end_streams(&mut self, end: End, endpoint: &Endpoint) {
        for number in endpoint.streams.values() {
            let application = &mut self.streams[*number].applications[end];
            application.end.get_or_insert(StreamEnd::SessionEnded);
        }
    }

    /// Checks the streams after the faults. Those of the current session have a clean end, or a
    /// reset of an application.
    pub fn check_streams(&self) {
        for (number, record) in self.streams.iter().enumerate() {
            let [client, gateway] = &record.applications;
            ensure!(client.end.is_some(), "stream {number} has not ended: {record:?}");
            let is_current = record.session == self.client.endpoint.session;
            ensure!(
                !is_current || client.end != Some(StreamEnd::SessionEnded),
                "stream {number} of the current session was ended: {record:?}"
            );
            let has_cause = |end| matches!(end, Some(StreamEnd::Aborted(_)));
            let is_aborted = has_cause(client.end) || has_cause(gateway.end);
            ensure!(
                !is_current || is_aborted || client.end == Some(StreamEnd::Complete),
                "stream {number} has an end without cause: {record:?}"
            );
            for (own, other) in [(client, gateway), (gateway, client)] {
                let is_whole = own.received == other.plan.bytes;
                ensure!(
                    own.end != Some(StreamEnd::Complete) || is_whole,
                    "stream {number} is complete without all bytes: {record:?}"
                );
            }
        }
    }

    /// Whether all applications of the client have ended their streams.
    pub fn has_open_streams(&self) -> bool {
        self.streams.iter().any(|record| record.applications[CLIENT].end.is_none())
    }
}
