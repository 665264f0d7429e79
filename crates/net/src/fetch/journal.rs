//! Records of a transfer, request by request, for its event log.

use std::collections::BTreeMap;
use std::sync::Arc;

use manyways_proto::fetch::{Coalescer, PathId, Piece, Range, RequestId};
use manyways_record::event::Record;
use manyways_unit::{Span, Time};

use super::PathSpec;
use super::event::TransferEvent;
use super::report::Event;

/// Tracks all requests that are under way, and keeps records if they are configured.
pub(super) struct Journal {
    names: Option<Vec<String>>,
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
        Self { names, requests: BTreeMap::new(), records: Vec::new() }
    }

    /// Adds a path that joined after the start.
    pub(super) fn join(&mut self, name: &str) {
        if let Some(names) = &mut self.names {
            names.push(name.to_owned());
        }
    }

    pub(super) fn path_of(&self, request: RequestId) -> Option<PathId> {
        self.requests.get(&request).map(|active| active.path)
    }

    pub(super) fn request(
        &mut self,
        now: Time,
        request: RequestId,
        path: PathId,
        range: Option<Range>,
        expected: Option<Span>,
    ) {
        let (from, end) = range.map_or((0, u64::MAX), |range| (range.start, range.end));
        let pieces = Coalescer::new(from);
        let active = ActiveRequest { path, end, expected_delay: expected, pieces };
        self.requests.insert(request, active);
        self.record(now, path, |path| TransferEvent::Request {
            transfer: 0,
            path,
            request: request.0,
            from,
            to: range.map(|range| range.end),
        });
    }

    pub(super) fn response(&mut self, now: Time, request: RequestId, status: u16) {
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

    pub(super) fn received(&mut self, now: Time, request: RequestId, length: u64) {
        let Some(active) = self.requests.get_mut(&request) else { return };
        let path = active.path;
        if let Some(piece) = active.pieces.add(now, length) {
            self.record_piece(request, path, piece);
        }
    }

    pub(super) fn range_end(&mut self, now: Time, request: RequestId, end: u64) {
        let Some(active) = self.requests.get_mut(&request) else { return };
        active.end = end;
        let path = active.path;
        self.record(now, path, |path| TransferEvent::RangeEnd {
            transfer: 0,
            path,
            request: request.0,
            to: end,
        });
    }

    /// Ends a request that the core cancelled.
    pub(super) fn cancelled(&mut self, now: Time, request: RequestId) {
        let cut = self
            .requests
            .get(&request)
            .is_some_and(|active| active.pieces.next_offset() >= active.end);
        self.end(now, request, if cut { "cut" } else { "cancelled" });
    }

    pub(super) fn end(&mut self, now: Time, request: RequestId, how: &str) {
        self.flush(request);
        let Some(active) = self.requests.remove(&request) else { return };
        self.record(now, active.path, |path| TransferEvent::RequestEnd {
            transfer: 0,
            path,
            request: request.0,
            how: how.to_owned(),
        });
    }

    pub(super) fn ping(&mut self, now: Time, path: PathId, rtt: Span, by: &str) {
        self.record(now, path, |path| TransferEvent::Ping {
            transfer: 0,
            path,
            rtt_seconds: rtt.as_secs_f64(),
            by: by.to_owned(),
        });
    }

    /// Passes the records to the callback.
    pub(super) fn tell(&mut self, on_event: &mut (dyn FnMut(Event<'_>) + Send)) {
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

    fn record_piece(&mut self, request: RequestId, path: PathId, Piece { from, to, at }: Piece) {
        self.record(at, path, |path| TransferEvent::Received {
            transfer: 0,
            path,
            request: request.0,
            from,
            to,
        });
    }

    fn record(&mut self, time: Time, path: PathId, event: impl FnOnce(String) -> TransferEvent) {
        let Some(names) = &self.names else { return };
        let name = names.get(path.0).cloned().unwrap_or_default();
        self.records.push(Record { time, event: event(name) });
    }
}
