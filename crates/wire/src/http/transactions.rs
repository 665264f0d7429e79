//! The exchanges of one connection, followed packet by packet.

mod client;
mod server;
#[cfg(test)]
mod tests;

use super::chunked::Chunked;
use super::cursor::Cursor;
use super::head_reader::HeadReader;
use super::{CapturedBody, Framing, Outcome, Request, Response, Summary, Transaction};
use crate::stream::{Endpoint, Piece};
use manyways_unit::ThinVec;

/// Maximum number of requests that wait for responses. Further requests are not kept, so that their
/// responses have no request. Pipelining clients have a handful.
pub const MAX_PENDING_REQUESTS: usize = 64;
/// Number of positions without HTTP, at which HTTP could have begun, after which the connection is
/// taken for another protocol. A capture that begins within a body needs two.
const MAX_MISSES: u8 = 3;

/// Follows the HTTP/1 exchanges of one connection.
///
/// Input: the bytes of both directions, ordered within each direction, and each request before its
/// response. Missing bytes are handled as far as possible: a body of known length continues by its
/// length; after a truncated header or broken chunk framing, all bytes of the server belong to the
/// response until the next request. Memory: between exchanges only this value, otherwise at most
/// one header of [`MAX_HEAD_LENGTH`](super::MAX_HEAD_LENGTH) bytes in each direction and
/// [`MAX_PENDING_REQUESTS`] requests.
#[derive(Clone, Debug, Default)]
pub struct Transactions {
    client: ParseState,
    server: ParseState,
    /// Exchanges that have not ended, the oldest first.
    open: ThinVec<Box<OpenTransaction>>,
    /// Number of later requests that were not kept.
    untracked: u64,
    /// Whether the request being sent was kept.
    is_tracked: bool,
    ended: ThinVec<Box<Transaction>>,
    count: u64,
    /// The endpoint that sent last.
    last_sender: Option<Endpoint>,
    /// Whether the client has sent data since the latest response began.
    has_request_data: bool,
    has_server_data: bool,
    is_http: Option<bool>,
    misses: u8,
    is_finished: bool,
    summary: Summary,
}

/// Position of one direction within its messages.
#[derive(Clone, Debug)]
enum ParseState {
    Head(HeadReader),
    /// A body with this number of remaining bytes.
    Remaining(u64),
    Chunked(Chunked),
    /// A body that ends with the connection.
    UntilClose,
    /// Data whose end is unknown.
    Lost {
        /// Whether a header may begin with the next byte: after missing bytes, or after data of the
        /// other endpoint.
        is_place: bool,
    },
    /// After the FIN.
    Closed,
}

/// An exchange that has not ended.
#[derive(Clone, Debug, Default)]
struct OpenTransaction {
    request: Option<Request>,
    is_pipelined: bool,
    response: Option<Response>,
    has_interim: bool,
    /// Bytes of interim responses, later of all headers.
    header_bytes: u64,
    /// Bytes of content in chunks.
    content_bytes: u64,
    /// Whether the chunk framing was lost.
    is_framing_lost: bool,
}

impl Default for ParseState {
    fn default() -> Self {
        Self::Head(HeadReader::default())
    }
}

impl Transactions {
    /// Processes the next bytes of one direction. [`Self::poll`] returns the exchanges that ended.
    pub fn handle(&mut self, from: Endpoint, piece: &Piece<'_>) {
        let mut rest = Cursor::new(piece);
        if rest.is_empty() || self.is_finished {
            return;
        }
        let has_turned = self.last_sender.replace(from) != Some(from);
        let state = match from {
            Endpoint::Client => &mut self.client,
            Endpoint::Server => &mut self.server,
        };
        if let ParseState::Lost { is_place } = state {
            *is_place |= has_turned;
        }
        match from {
            Endpoint::Client => {
                self.has_request_data = true;
                while !rest.is_empty() && !self.is_finished {
                    self.read_client(&mut rest);
                }
            }
            Endpoint::Server => {
                self.has_server_data = true;
                while !rest.is_empty() && !self.is_finished {
                    self.read_server(&mut rest);
                }
            }
        }
    }

    /// Ends one direction: all bytes and the FIN were processed.
    pub fn on_fin(&mut self, from: Endpoint) {
        if self.is_finished {
            return;
        }
        match from {
            Endpoint::Client => {
                self.end_client_head();
                self.client = ParseState::Closed;
            }
            Endpoint::Server => {
                self.end_server_head();
                match self.server {
                    ParseState::UntilClose => self.end(Outcome::Complete),
                    ParseState::Remaining(_) | ParseState::Chunked(_) => {
                        self.end(Outcome::ClosedEarly)
                    }
                    ParseState::Lost { .. } if self.is_end_unknown() => self.end(Outcome::Inferred),
                    ParseState::Lost { .. } | ParseState::Head(_) | ParseState::Closed => {}
                }
                self.server = ParseState::Closed;
            }
        }
    }

    /// Ends the connection because of a reset.
    pub fn on_reset(&mut self) {
        self.end_all(Outcome::Reset);
    }

    /// Ends the connection because it is forgotten or the capture ends.
    pub fn finish(&mut self) {
        let is_closed = matches!(self.server, ParseState::Closed);
        self.end_all(if is_closed { Outcome::ClosedEarly } else { Outcome::Open });
    }

    /// Returns the next ended exchange. Call this until it returns `None`, after each call of the
    /// other methods.
    #[inline]
    pub fn poll(&mut self) -> Option<Transaction> {
        self.ended.remove(0).map(|ended| *ended)
    }

    /// Whether the connection is HTTP/1; `None` as long as neither direction has shown it. A
    /// direction without captured bytes never shows it.
    pub fn is_http(&self) -> Option<bool> {
        self.is_http
    }

    /// Whether no further exchange will end, except those that [`Self::poll`] still returns: the
    /// connection is or has become another protocol, was reset, or was finished.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Statistics of the ended exchanges.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Whether a message that begins now begins before an earlier response is complete.
    fn is_pipelined(&self) -> bool {
        let is_idle = self.open.is_empty() && self.untracked == 0;
        !is_idle && !self.is_only_end_unknown()
    }

    /// Whether the only open exchange is a response of unknown end, so that a new request ends it.
    fn is_only_end_unknown(&self) -> bool {
        self.open.len() == 1 && self.untracked == 0 && self.is_end_unknown()
    }

    /// Whether the current response has an unknown end.
    fn is_end_unknown(&self) -> bool {
        let is_lost = match &self.server {
            ParseState::Lost { .. } => true,
            ParseState::Head(assembly) => assembly.is_resync,
            _ => false,
        };
        is_lost && self.open.first().is_some_and(|open| open.response.is_some())
    }

    /// Counts a position at which a message could have begun but did not.
    fn count_miss(&mut self, is_other: bool) {
        if self.is_http.is_some() {
            return;
        }
        self.misses += 1;
        if is_other || self.misses >= MAX_MISSES {
            self.is_http = Some(false);
            self.stop();
        }
    }

    fn stop(&mut self) {
        self.is_finished = true;
        (self.client, self.server) = (ParseState::Closed, ParseState::Closed);
    }

    /// Ends the exchange whose response is current.
    fn end(&mut self, ending: Outcome) {
        self.server = ParseState::default();
        if let Some(open) = self.open.remove(0) {
            self.close(*open, ending);
        }
    }

    fn end_all(&mut self, ending: Outcome) {
        if self.is_finished {
            return;
        }
        self.end_client_head();
        self.end_server_head();
        if self.is_end_unknown() {
            self.end(Outcome::Inferred);
        }
        self.close_all(if self.has_server_data { ending } else { Outcome::ServerNotCaptured });
        self.stop();
    }

    fn close_all(&mut self, ending: Outcome) {
        while let Some(open) = self.open.remove(0) {
            self.close(*open, ending);
        }
    }

    fn close(&mut self, open: OpenTransaction, ending: Outcome) {
        let is_pipelined = open.request.is_some() && self.has_server_data;
        let transaction = Transaction {
            index: self.count,
            is_pipelined: is_pipelined.then_some(open.is_pipelined),
            has_interim: open.has_interim,
            response: open.response.map(|response| {
                let body = response.length.saturating_sub(open.header_bytes);
                let seen = match response.framing {
                    Some(Framing::NoBody) => CapturedBody::Content(0),
                    _ if response.is_truncated => CapturedBody::WithHeader(response.length),
                    Some(Framing::Chunked) if open.is_framing_lost => CapturedBody::Framed(body),
                    Some(Framing::Chunked) => CapturedBody::Content(open.content_bytes),
                    _ => CapturedBody::Content(body),
                };
                Response { body: seen, ..response }
            }),
            request: open.request,
            outcome: ending,
        };
        self.count += 1;
        self.summary.add(transaction.request.as_ref(), transaction.response.as_ref());
        self.ended.push(Box::new(transaction));
    }
}
