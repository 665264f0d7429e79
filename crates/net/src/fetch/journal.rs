//! Records of a transfer, request by request, for its event log.

use std::collections::BTreeMap;
use std::sync::Arc;

use manyways_proto::fetch::{Coalescer, PathId, Piece, Range, RequestId};
use manyways_record::event::Record;
use manyways_unit::{Span, Time};

use super::PathSpec;
use super::event::{PingMethod, RequestOutcome, TransferEvent};
use super::report::Event;

/// Tracks all requests that are under way, and keeps records if they are configured.
pub(super) struct Journal {
    path_names: Option<Vec<String>>,
    requests: BTreeMap<RequestId, ActiveRequest>,
    records: Vec<Record<TransferEvent>>,
}

struct ActiveRequest {
    path: PathId,
    /// One past the last byte that is assigned to the request.
    end: u64,
    expected_delay: Option<Span>,
    pieces: Coalescer,
}

impl Journal {
    pub(super) fn new(wanted: bool, paths: &[Arc<PathSpec>]) -> Self {
        let names = wanted.then(|| paths.iter().map(|path| path.name.clone()).collect());
        Self { path_names: names, requests: BTreeMap::new(), records: Vec::new() }
    }

    /// Adds a path that joined after the start.
    pub(super) fn add_path(&mut self, name: &str) {
        if let Some(names) = &mut self.path_names {
            names.push(name.to_owned());
        }
    }

    /// Notes that an advised path is used, or that a path is no longer used because it is not advised.
    pub(super) fn on_use(&mut self, now: Time, path: PathId, is_used: bool) {
        let (state, reason) = if is_used { ("up", None) } else { ("down", Some("not advised")) };
        self.record(now, path, |path| TransferEvent::PathState {
            transfer: 0,
            path,
            state: state.to_owned(),
            reason: reason.map(str::to_owned),
        });
    }

    pub(super) fn path_of(&self, request: RequestId) -> Option<PathId> {
        self.requests.get(&request).map(|active| active.path)
    }

    pub(super) fn on_request(
        &mut self,
        now: Time,
        request: RequestId,
        path: PathId,
        range: Option<Range>,
        expected: Option<Span>,
    ) {
        let (from, end) = range.map_or((0, u64::MAX), |range| (range.start, range.end));
        let coalescer = Coalescer::new(from);
        let active = ActiveRequest { path, end, expected_delay: expected, pieces: coalescer };
        self.requests.insert(request, active);
        self.record(now, path, |path| TransferEvent::Request {
            transfer: 0,
            path,
            request: request.0,
            from,
            to: range.map(|range| range.end),
        });
    }

    pub(super) fn on_response(&mut self, now: Time, request: RequestId, status: u16) {
        let Some(active) = self.requests.get(&request) else { return };
        let expected_seconds = active.expected_delay.map(Span::as_secs_f64);
        self.record(now, active.path, |path| TransferEvent::Response {
            transfer: 0,
            path,
            request: request.0,
            status,
            expected_seconds,
        });
    }

    pub(super) fn on_received(&mut self, now: Time, request: RequestId, length: u64) {
        let Some(active) = self.requests.get_mut(&request) else { return };
        let path = active.path;
        if let Some(piece) = active.pieces.add(now, length) {
            self.record_piece(request, path, piece);
        }
    }

    pub(super) fn on_cut(&mut self, now: Time, request: RequestId, end: u64) {
        let Some(active) = self.requests.get_mut(&request) else { return };
        active.end = end;
        let path = active.path;
        self.record(now, path, |path| TransferEvent::Cut {
            transfer: 0,
            path,
            request: request.0,
            to: end,
        });
    }

    /// Ends a request that the core cancelled.
    pub(super) fn on_cancelled(&mut self, now: Time, request: RequestId) {
        let cut = self
            .requests
            .get(&request)
            .is_some_and(|active| active.pieces.next_offset() >= active.end);
        self.on_request_end(
            now,
            request,
            if cut { RequestOutcome::Cut } else { RequestOutcome::Cancelled },
        );
    }

    pub(super) fn on_request_end(
        &mut self,
        now: Time,
        request: RequestId,
        outcome: RequestOutcome,
    ) {
        self.flush(request);
        let Some(active) = self.requests.remove(&request) else { return };
        self.record(now, active.path, |path| TransferEvent::RequestEnd {
            transfer: 0,
            path,
            request: request.0,
            outcome,
        });
    }

    pub(super) fn on_ping(&mut self, now: Time, path: PathId, rtt: Span, by: PingMethod) {
        self.record(now, path, |path| TransferEvent::Ping {
            transfer: 0,
            path,
            rtt_seconds: rtt.as_secs_f64(),
            by,
        });
    }

    /// Passes the records to the callback.
    pub(super) fn emit(&mut self, on_event: &mut (dyn FnMut(Event<'_>) + Send)) {
        for record in self.records.drain(..) {
            on_event(Event::Record(&record));
        }
    }

    fn flush(&mut self, request: RequestId) {
        let Some(active) = self.requests.get_mut(&request) else { return };
        let path = active.path;
        if let Some(piece) = active.pieces.flush() {
            self.record_piece(request, path, piece);
        }
    }

    fn record_piece(
        &mut self,
        request: RequestId,
        path: PathId,
        Piece { start: from, end: to, at }: Piece,
    ) {
        self.record(at, path, |path| TransferEvent::Received {
            transfer: 0,
            path,
            request: request.0,
            from,
            to,
        });
    }

    fn record(&mut self, time: Time, path: PathId, event: impl FnOnce(String) -> TransferEvent) {
        let Some(names) = &self.path_names else { return };
        let name = names.get(path.0).cloned().unwrap_or_default();
        self.records.push(Record { time, event: event(name) });
    }
}
