//! The streams of a connection, each with one exchange (RFC 9113, 5.1 and 8.1).

use std::collections::BTreeMap;

use super::head::Head;
use crate::exchange::{Event, Trailers};
use crate::stream::Endpoint;

/// Maximum number of exchanges that are not complete. Most servers permit 100 or 128 at a time.
pub const MAX_OPEN_STREAMS: usize = 16_384;

/// Streams whose exchange is not complete. Of all others, only the highest number is known.
#[derive(Debug)]
pub(super) struct Streams {
    open: BTreeMap<u32, Stream>,
    /// Highest number of a stream that the client opened.
    last_request: u32,
    /// Highest number of a stream that the server promised.
    last_promise: u32,
    /// Numbers above which an endpoint does not process the streams of the other one.
    last_of_client: u32,
    last_of_server: u32,
}

#[derive(Debug)]
struct Stream {
    is_head: bool,
    is_connect: bool,
    is_request_complete: bool,
    /// Whether the head of the final response has arrived.
    has_response: bool,
    is_response_complete: bool,
}

impl Stream {
    /// Whether the message of an endpoint has begun, and is not complete.
    fn is_sent_by(&self, from: Endpoint) -> bool {
        match from {
            Endpoint::Client => !self.is_request_complete,
            Endpoint::Server => self.has_response && !self.is_response_complete,
        }
    }

    /// Whether the message of an endpoint has not begun, so that a part of its body is malformed.
    fn is_before_head_of(&self, from: Endpoint) -> bool {
        from == Endpoint::Server && !self.has_response
    }
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            open: BTreeMap::new(),
            last_request: 0,
            last_promise: 0,
            last_of_client: u32::MAX,
            last_of_server: u32::MAX,
        }
    }
}

impl Streams {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether neither endpoint has used the stream. The frames of a stream that was closed are
    /// ignored: its sender may not know that yet.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        id > if is_promised(id) { self.last_promise } else { self.last_request }
    }

    /// The client has sent a head: of a request, or trailers.
    pub(super) fn client_head(
        &mut self,
        id: u32,
        head: Head,
        is_last: bool,
        each: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), &'static str> {
        if !self.is_idle(id) {
            self.trailers(id, Endpoint::Client, head, is_last, each);
            return Ok(());
        }
        if is_promised(id) {
            return Err("a request on a stream of the server");
        }
        self.last_request = id;
        self.request(id, head, each)?;
        if is_last {
            self.end(id, Endpoint::Client, Trailers::new(), each);
        }
        // The endpoints send at the same time: these frames were sent before GOAWAY arrived.
        if id > self.last_of_server {
            self.abort(id, Endpoint::Server, each);
        }
        Ok(())
    }

    /// The server has promised the response to a request that it makes up.
    pub(super) fn promise(
        &mut self,
        id: u32,
        head: Head,
        each: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), &'static str> {
        if !is_promised(id) || !self.is_idle(id) {
            return Err("a promise of a wrong stream");
        }
        self.last_promise = id;
        self.request(id, head, each)?;
        self.end(id, Endpoint::Client, Trailers::new(), each);
        if id > self.last_of_client {
            self.abort(id, Endpoint::Client, each);
        }
        Ok(())
    }

    /// Opens a stream. That of a malformed request remains closed.
    fn request(
        &mut self,
        id: u32,
        head: Head,
        each: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), &'static str> {
        let Some(request) = head.into_request() else { return Ok(()) };
        if self.open.len() >= MAX_OPEN_STREAMS {
            return Err("more requests than are answered");
        }
        let stream = Stream {
            is_head: request.method == "HEAD",
            is_connect: request.method == "CONNECT",
            is_request_complete: false,
            has_response: false,
            is_response_complete: false,
        };
        self.open.insert(id, stream);
        each(Event::Request(id.into(), request));
        Ok(())
    }

    /// The server has sent a head: of an interim or final response, or trailers.
    pub(super) fn server_head(
        &mut self,
        id: u32,
        head: Head,
        is_last: bool,
        each: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), &'static str> {
        if self.is_idle(id) {
            return Err("a response without a request");
        }
        let Some(stream) = self.open.get_mut(&id) else { return Ok(()) };
        if stream.has_response {
            self.trailers(id, Endpoint::Server, head, is_last, each);
            return Ok(());
        }
        match head.into_response(stream.is_head) {
            // HTTP/2 has no 101 (RFC 9113, 8.6).
            Some(interim) if interim.status < 200 && interim.status != 101 && !is_last => {
                each(Event::Interim(id.into(), interim.status, interim.fields));
            }
            Some(response) if response.status >= 200 => {
                stream.has_response = true;
                let is_upgraded = stream.is_connect && response.status < 300;
                each(Event::Response(id.into(), response));
                if is_upgraded {
                    self.open.remove(&id);
                    each(Event::Upgraded(id.into()));
                } else if is_last {
                    self.end(id, Endpoint::Server, Trailers::new(), each);
                }
            }
            _ => self.abort(id, Endpoint::Server, each),
        }
        Ok(())
    }

    /// An endpoint has sent a head after that of its message.
    fn trailers(
        &mut self,
        id: u32,
        from: Endpoint,
        head: Head,
        is_last: bool,
        each: &mut dyn FnMut(Event<'_>),
    ) {
        if !self.open.get(&id).is_some_and(|stream| stream.is_sent_by(from)) {
            return;
        }
        match head.into_trailers().filter(|_| is_last) {
            Some(trailers) => self.end(id, from, trailers, each),
            None => self.abort(id, from, each),
        }
    }

    /// An endpoint has sent bytes of a body.
    pub(super) fn body(
        &mut self,
        id: u32,
        from: Endpoint,
        bytes: &[u8],
        each: &mut dyn FnMut(Event<'_>),
    ) {
        let Some(stream) = self.open.get(&id) else { return };
        if stream.is_sent_by(from) {
            // A request CONNECT has no body: its client expects that it succeeds.
            if !stream.is_connect || from == Endpoint::Server {
                each(Event::Body(id.into(), from, bytes));
            }
        } else if stream.is_before_head_of(from) {
            self.abort(id, from, each);
        }
    }

    /// The message of an endpoint is complete.
    pub(super) fn end(
        &mut self,
        id: u32,
        from: Endpoint,
        trailers: Trailers,
        each: &mut dyn FnMut(Event<'_>),
    ) {
        let Some(stream) = self.open.get_mut(&id) else { return };
        if !stream.is_sent_by(from) {
            if stream.is_before_head_of(from) {
                self.abort(id, from, each);
            }
            return;
        }
        match from {
            Endpoint::Client => stream.is_request_complete = true,
            Endpoint::Server => stream.is_response_complete = true,
        }
        if stream.is_request_complete && stream.is_response_complete {
            self.open.remove(&id);
        }
        each(Event::End(id.into(), from, trailers));
    }

    pub(super) fn abort(&mut self, id: u32, by: Endpoint, each: &mut dyn FnMut(Event<'_>)) {
        if self.open.remove(&id).is_some() {
            each(Event::Abort(id.into(), by));
        }
    }

    /// An endpoint does not process streams of the other one above a number (RFC 9113, 6.8).
    pub(super) fn go_away(&mut self, by: Endpoint, last: u32, each: &mut dyn FnMut(Event<'_>)) {
        let limit = match by {
            Endpoint::Client => &mut self.last_of_client,
            Endpoint::Server => &mut self.last_of_server,
        };
        *limit = last.min(*limit);
        let is_refused = |id: &u32| is_promised(*id) == (by == Endpoint::Client);
        let refused = self.open.range(last.saturating_add(1)..).map(|(id, _)| *id);
        for id in refused.filter(is_refused).collect::<Vec<_>>() {
            self.abort(id, by, each);
        }
    }

    pub(super) fn abort_all(&mut self, by: Endpoint, each: &mut dyn FnMut(Event<'_>)) {
        for id in std::mem::take(&mut self.open).into_keys() {
            each(Event::Abort(id.into(), by));
        }
    }
}

/// Whether a stream is one of the server, which are even.
fn is_promised(id: u32) -> bool {
    id.is_multiple_of(2)
}
