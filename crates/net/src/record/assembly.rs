//! The exchanges of a connection, assembled from what an observer reports.

use std::collections::HashMap;
use std::sync::Arc;

use manyways_unit::{Span, Time};
use manyways_wire::archive::{
    Abort, Arrival, Body, Exchange, Field, Interim, Request, Response, Timings,
};
use manyways_wire::exchange::{Event, RequestHead, ResponseHead, StreamId};
use manyways_wire::har::request_url;
use manyways_wire::stream::Endpoint;

use super::spool::{BodyBuffer, BodySource, Spool};

/// Maximum number of arrivals of a body that are recorded. Of a longer body every second one goes.
const MAX_ARRIVALS: usize = 1024;
/// Parts that arrive within this time are one arrival.
const SAME_ARRIVAL: Span = Span::from_micros(500);

/// Assembles the exchanges of a connection. All times are of the caller's clock.
pub(super) struct Assembly {
    is_secure: bool,
    /// Host of requests that name none.
    host: String,
    is_http2: bool,
    spool: Arc<Spool>,
    open: HashMap<StreamId, Draft>,
    /// Streams whose request was read and is not yet passed on to the server.
    unsent: Vec<StreamId>,
    /// Minimum round-trip time to the server so far.
    rtt: Option<Span>,
    /// Those of the connection, for its first exchange.
    handshakes: Handshakes,
}

/// Times that the connection took before its first exchange.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Handshakes {
    /// With that of TLS.
    pub(super) connect: Option<Span>,
    pub(super) tls: Option<Span>,
}

/// An exchange with its bodies, which are not in the archive yet: the digests are missing.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) exchange: Exchange,
    pub(super) request_body: Option<BodySource>,
    pub(super) response_body: Option<BodySource>,
}

/// The consequence of an event.
#[derive(Debug)]
pub(super) enum Outcome {
    Finished(Box<Finished>),
    /// The stream, or the connection in HTTP/1, has left HTTP.
    Upgraded,
}

/// An exchange that is not complete.
struct Draft {
    started: Time,
    handshakes: Handshakes,
    request: RequestHead,
    request_body: BodyBuffer,
    request_trailers: Option<Vec<Field>>,
    /// When the last byte of the request was passed on.
    request_end: Option<Time>,
    interim: Vec<(Time, u16, Vec<Field>)>,
    /// With the time of its first byte.
    response: Option<(Time, ResponseHead)>,
    response_body: BodyBuffer,
    response_trailers: Option<Vec<Field>>,
    arrivals: Vec<Arrival>,
}

impl Assembly {
    /// `host` is that of requests that name none.
    pub(super) fn new(
        is_secure: bool,
        host: String,
        is_http2: bool,
        handshakes: Handshakes,
        spool: &Arc<Spool>,
    ) -> Self {
        let spool = Arc::clone(spool);
        let (open, unsent) = (HashMap::new(), Vec::new());
        Self { is_secure, host, is_http2, spool, open, unsent, rtt: None, handshakes }
    }

    /// Whether an exchange is open.
    pub(super) fn is_busy(&self) -> bool {
        !self.open.is_empty()
    }

    /// Sets the minimum round-trip time to the server, which the server did not think.
    pub(super) fn set_rtt(&mut self, rtt: Option<Span>) {
        self.rtt = rtt;
    }

    /// Takes an event of bytes that were read at `now`.
    pub(super) fn handle(&mut self, now: Time, event: Event<'_>) -> Option<Outcome> {
        let (id, is_complete) = match event {
            Event::Request(id, request) => {
                let handshakes = std::mem::take(&mut self.handshakes);
                self.open.insert(id, Draft::new(now, request, handshakes, &self.spool));
                return None;
            }
            Event::Upgraded(id) => {
                self.open.remove(&id);
                return Some(Outcome::Upgraded);
            }
            Event::Abort(id, by) => return self.abort(now, id, by),
            Event::Interim(id, status, fields) => {
                self.open.get_mut(&id)?.interim.push((now, status, fields));
                return None;
            }
            Event::Response(id, head) => {
                self.open.get_mut(&id)?.response = Some((now, head));
                return None;
            }
            Event::Body(id, Endpoint::Client, bytes) => {
                self.open.get_mut(&id)?.request_body.push(bytes);
                return None;
            }
            Event::Body(id, Endpoint::Server, bytes) => {
                self.open.get_mut(&id)?.on_response_bytes(now, bytes);
                return None;
            }
            Event::End(id, Endpoint::Client, trailers) => {
                let draft = self.open.get_mut(&id)?;
                draft.request_trailers = Some(trailers);
                draft.request_end = Some(now);
                self.unsent.push(id);
                (id, draft.response_trailers.is_some())
            }
            Event::End(id, Endpoint::Server, trailers) => {
                let draft = self.open.get_mut(&id)?;
                draft.response_trailers = Some(trailers);
                (id, draft.request_trailers.is_some())
            }
        };
        if is_complete { self.finish(now, id, None) } else { None }
    }

    /// The bytes that were read so far from the client are on their way to the server at `now`.
    pub(super) fn on_passed_on(&mut self, now: Time) {
        for id in self.unsent.drain(..) {
            if let Some(draft) = self.open.get_mut(&id) {
                draft.request_end = Some(now);
            }
        }
    }

    /// Ends the recording: open exchanges are incomplete.
    pub(super) fn end(&mut self, now: Time) -> Vec<Finished> {
        let mut ids: Vec<StreamId> = self.open.keys().copied().collect();
        ids.sort_unstable();
        let outcomes = ids.into_iter().filter_map(|id| self.finish(now, id, Some(Abort::Recorder)));
        outcomes
            .filter_map(|outcome| match outcome {
                Outcome::Finished(finished) => Some(*finished),
                Outcome::Upgraded => None,
            })
            .collect()
    }

    fn abort(&mut self, now: Time, id: StreamId, by: Endpoint) -> Option<Outcome> {
        let draft = self.open.get(&id)?;
        // A server that has sent its response may refuse the rest of the request.
        let is_whole = draft.response_trailers.is_some() && by == Endpoint::Server;
        let abort = match by {
            Endpoint::Client => Abort::Client,
            Endpoint::Server => Abort::Server,
        };
        self.finish(now, id, (!is_whole).then_some(abort))
    }

    fn finish(&mut self, now: Time, id: StreamId, abort: Option<Abort>) -> Option<Outcome> {
        let draft = self.open.remove(&id)?;
        let host = draft.request.authority.as_deref().unwrap_or(&self.host);
        let is_secure = match draft.request.scheme.as_deref() {
            Some("http") => false,
            Some("https") => true,
            _ => self.is_secure,
        };
        let url = request_url(is_secure, host, &draft.request.target)
            .or_else(|| request_url(is_secure, &self.host, &draft.request.target));
        let Some(url) = url else {
            // No replay could ask for it: servers refuse such requests.
            tracing::debug!("a request is not recorded: it has no URL");
            return None;
        };
        let stream = self.is_http2.then_some(id);
        Some(Outcome::Finished(Box::new(draft.finish(now, url, stream, abort, self.rtt))))
    }
}

impl Draft {
    fn new(
        started: Time,
        request: RequestHead,
        handshakes: Handshakes,
        spool: &Arc<Spool>,
    ) -> Self {
        Self {
            started,
            handshakes,
            request,
            request_body: BodyBuffer::new(spool),
            request_trailers: None,
            request_end: None,
            interim: Vec::new(),
            response: None,
            response_body: BodyBuffer::new(spool),
            response_trailers: None,
            arrivals: Vec::new(),
        }
    }

    fn on_response_bytes(&mut self, now: Time, bytes: &[u8]) {
        self.response_body.push(bytes);
        let Some((first, _)) = &self.response else { return };
        let arrival = Arrival { after: now.since(*first), bytes: self.response_body.length() };
        match self.arrivals.last_mut() {
            Some(last) if arrival.after.saturating_sub(last.after) < SAME_ARRIVAL => {
                last.bytes = arrival.bytes;
            }
            _ => self.arrivals.push(arrival),
        }
        if self.arrivals.len() > MAX_ARRIVALS {
            let mut index = 0;
            // The last one stays: the number of arrivals is odd here.
            self.arrivals.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
    }

    fn finish(
        self,
        now: Time,
        url: String,
        stream: Option<u64>,
        abort: Option<Abort>,
        rtt: Option<Span>,
    ) -> Finished {
        let rtt = rtt.unwrap_or_default();
        let first_byte = self.response.as_ref().map(|(time, _)| *time);
        let wait = self.request_end.zip(first_byte);
        // A response may come before the end of the request.
        let wait = wait.map(|(sent, came)| came.since(sent));
        let timings = Timings {
            connect: self.handshakes.connect,
            tls: self.handshakes.tls,
            send: self.request_end.map(|sent| sent.since(self.started)),
            wait,
            receive: first_byte.map(|came| now.since(came)),
            ..Timings::default()
        };
        let after = |time: Time| Some(time.since(self.request_end?).saturating_sub(rtt));
        let interim = self.interim.into_iter().map(|(time, status, fields)| {
            let after = self.request_end.is_some_and(|sent| time >= sent).then(|| after(time));
            Interim { status, fields, after: after.flatten() }
        });
        let interim: Vec<Interim> = interim.collect();
        // The head of a request states whether it has a body (RFC 9112, 6.3), so that an empty one is one, too.
        let is_framed = |field: &Field| field.name.eq_ignore_ascii_case("transfer-encoding");
        let has_body = self.request.length.is_some() || self.request.fields.iter().any(is_framed);
        let (request_body, request_source) = body(self.request_body, self.request.length, has_body);
        let announced = self.response.as_ref().and_then(|(_, head)| head.length);
        let (response_body, response_source) = body(self.response_body, announced, false);
        let protocol = self.request.protocol;
        let response = self.response.map(|(_, head)| Response {
            status: head.status,
            reason: head.reason,
            protocol: head.protocol,
            fields: head.fields,
            interim,
            body: response_body,
            trailers: self.response_trailers.unwrap_or_default(),
            arrivals: self.arrivals,
        });
        let request = Request {
            method: self.request.method,
            url,
            protocol,
            fields: self.request.fields,
            body: request_body,
            trailers: self.request_trailers.unwrap_or_default(),
        };
        let exchange = Exchange {
            connection: None,
            stream,
            page: None,
            started: self.started,
            timings,
            request,
            think: wait.map(|wait| wait.saturating_sub(rtt)),
            response,
            abort,
        };
        Finished { exchange, request_body: request_source, response_body: response_source }
    }
}

/// Returns a body without its digest, and its bytes.
fn body(
    buffer: BodyBuffer,
    announced: Option<u64>,
    counts_empty: bool,
) -> (Option<Body>, Option<BodySource>) {
    if buffer.length() == 0 && !counts_empty {
        return (None, None);
    }
    let body = Body {
        length: buffer.length(),
        decoded_length: None,
        digest: None,
        is_length_announced: announced.is_some(),
    };
    (Some(body), Some(buffer.finish()))
}
