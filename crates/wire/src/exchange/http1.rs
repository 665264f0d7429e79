//! HTTP/1 (RFC 9112).

mod body;
mod head;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use self::body::{Body, Part};
use self::head::{Framing, HeadBuffer};
use super::{Event, Fault, StreamId};
use crate::stream::Endpoint;

pub use self::head::{MAX_FIELDS, MAX_HEAD_LENGTH};

/// Maximum number of exchanges that are not complete. Pipelining clients have a handful.
pub const MAX_OPEN_EXCHANGES: usize = 1_024;

/// Observes the exchanges of a connection. Memory: one head of [`MAX_HEAD_LENGTH`] in each
/// direction, and a few bytes for each of at most [`MAX_OPEN_EXCHANGES`] exchanges.
#[derive(Debug, Default)]
pub struct Observer {
    client: Side,
    server: Side,
    /// Exchanges that are not complete, the oldest first.
    open: VecDeque<Open>,
    /// Number of the next exchange.
    next: StreamId,
}

/// Position of one direction within its messages.
#[derive(Debug)]
enum Side {
    Head(HeadBuffer),
    /// The body of this exchange.
    Body(StreamId, Body),
    /// Nothing more is read: closed, upgraded or faulty.
    Ended,
}

impl Default for Side {
    fn default() -> Self {
        Self::Head(HeadBuffer::default())
    }
}

/// An exchange that is not complete.
#[derive(Clone, Copy, Debug)]
struct Open {
    id: StreamId,
    is_head: bool,
    is_connect: bool,
    is_request_complete: bool,
    /// The server may answer before the request is complete.
    is_response_complete: bool,
}

impl Observer {
    /// Reads the next bytes of an endpoint.
    ///
    /// # Errors
    /// The bytes are not HTTP/1. The open exchanges are reported as aborted, and all further bytes
    /// are ignored.
    pub fn handle(
        &mut self,
        from: Endpoint,
        mut bytes: &[u8],
        each: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let read = match (self.side(from), from) {
                (Side::Ended, _) => return Ok(()),
                (Side::Body(..), _) => self.read_body(from, bytes, each),
                (Side::Head(_), Endpoint::Client) => self.read_request(bytes, each),
                (Side::Head(_), Endpoint::Server) => self.read_response(bytes, each),
            };
            match read {
                Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
                Err(what) => {
                    self.abort(from, each);
                    return Err(Fault { from, what });
                }
            }
        }
        Ok(())
    }

    /// Ends one direction, after all its bytes: by a FIN, or a TLS `close_notify`. A client that
    /// closes its direction may still read the response.
    pub fn end(&mut self, from: Endpoint, each: &mut dyn FnMut(Event<'_>)) {
        let side = std::mem::replace(self.side(from), Side::Ended);
        match (from, side) {
            (Endpoint::Server, Side::Body(id, Body::UntilClose)) => {
                self.end_message(id, from, Vec::new(), each);
                self.abort(from, each);
            }
            (Endpoint::Server, _) => self.abort(from, each),
            (Endpoint::Client, Side::Body(id, _)) => self.abort_one(id, from, each),
            (Endpoint::Client, _) => {}
        }
    }

    /// Ends the connection at once, as a TCP reset of this endpoint does, or the end of the
    /// observation: all open exchanges are aborted.
    pub fn abort(&mut self, by: Endpoint, each: &mut dyn FnMut(Event<'_>)) {
        (self.client, self.server) = (Side::Ended, Side::Ended);
        self.open.drain(..).for_each(|open| each(Event::Abort(open.id, by)));
    }

    /// Whether an exchange is not complete.
    pub fn is_busy(&self) -> bool {
        !self.open.is_empty()
    }

    fn side(&mut self, of: Endpoint) -> &mut Side {
        match of {
            Endpoint::Client => &mut self.client,
            Endpoint::Server => &mut self.server,
        }
    }

    /// Reads bytes of a request's head. Returns how many.
    fn read_request(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(Event<'_>),
    ) -> Result<usize, &'static str> {
        let Side::Head(buffer) = &mut self.client else { return Ok(bytes.len()) };
        let (length, head) = buffer.push(bytes)?;
        let Some(head) = head else { return Ok(length) };
        if self.open.len() >= MAX_OPEN_EXCHANGES {
            return Err("more requests than are answered");
        }
        let (request, framing) = head::request(&head)?;
        let id = self.next;
        self.next += 1;
        self.open.push_back(Open {
            id,
            is_head: request.method == "HEAD",
            is_connect: request.method == "CONNECT",
            is_request_complete: false,
            is_response_complete: false,
        });
        each(Event::Request(id, request));
        self.begin_body(Endpoint::Client, id, framing, each);
        Ok(length)
    }

    /// Reads bytes of a response's head. Returns how many.
    fn read_response(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(Event<'_>),
    ) -> Result<usize, &'static str> {
        let Side::Head(buffer) = &mut self.server else { return Ok(bytes.len()) };
        let (length, head) = buffer.push(bytes)?;
        let Some(head) = head else { return Ok(length) };
        let unanswered = self.open.iter().find(|open| !open.is_response_complete);
        let open = *unanswered.ok_or("a response without a request")?;
        let (response, framing) = head::response(&head, open.is_head)?;
        let status = response.status;
        if (100..200).contains(&status) && status != 101 {
            each(Event::Interim(open.id, status, response.fields));
            return Ok(length);
        }
        each(Event::Response(open.id, response));
        if status == 101 || open.is_connect && (200..300).contains(&status) {
            each(Event::Upgraded(open.id));
            (self.client, self.server) = (Side::Ended, Side::Ended);
            // No other response can follow.
            self.open.retain(|other| other.id != open.id);
            self.open.drain(..).for_each(|open| each(Event::Abort(open.id, Endpoint::Server)));
            return Ok(bytes.len());
        }
        self.begin_body(Endpoint::Server, open.id, framing, each);
        Ok(length)
    }

    fn begin_body(
        &mut self,
        from: Endpoint,
        id: StreamId,
        framing: Framing,
        each: &mut dyn FnMut(Event<'_>),
    ) {
        match Body::new(framing) {
            Some(body) => *self.side(from) = Side::Body(id, body),
            None => self.end_message(id, from, Vec::new(), each),
        }
    }

    /// Reads bytes of a body. Returns how many.
    fn read_body(
        &mut self,
        from: Endpoint,
        bytes: &[u8],
        each: &mut dyn FnMut(Event<'_>),
    ) -> Result<usize, &'static str> {
        let Side::Body(id, body) = self.side(from) else { return Ok(bytes.len()) };
        let id = *id;
        let (length, part) = body.read(bytes)?;
        match part {
            Part::Framing => {}
            Part::Content { bytes, is_last } => {
                each(Event::Body(id, from, bytes));
                if is_last {
                    self.end_message(id, from, Vec::new(), each);
                }
            }
            Part::End(trailers) => self.end_message(id, from, trailers, each),
        }
        Ok(length)
    }

    /// Ends the message of an endpoint; the next one begins with a head.
    fn end_message(
        &mut self,
        id: StreamId,
        from: Endpoint,
        trailers: super::Trailers,
        each: &mut dyn FnMut(Event<'_>),
    ) {
        each(Event::End(id, from, trailers));
        *self.side(from) = Side::default();
        let Some(index) = self.open.iter().position(|open| open.id == id) else { return };
        let Some(open) = self.open.get_mut(index) else { return };
        match from {
            Endpoint::Client => open.is_request_complete = true,
            Endpoint::Server => open.is_response_complete = true,
        }
        if open.is_request_complete && open.is_response_complete {
            self.open.remove(index);
        }
    }

    fn abort_one(&mut self, id: StreamId, by: Endpoint, each: &mut dyn FnMut(Event<'_>)) {
        let before = self.open.len();
        self.open.retain(|open| open.id != id);
        if self.open.len() < before {
            each(Event::Abort(id, by));
        }
    }
}
