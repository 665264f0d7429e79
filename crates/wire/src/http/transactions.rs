//! The exchanges of one connection, followed packet by packet.

mod client;
mod server;
#[cfg(test)]
mod tests;

use super::assembly::Assembly;
use super::chunked::Chunked;
use super::rest::Rest;
use super::{Ending, Framing, Request, Response, Seen, Summary, Transaction};
use crate::stream::{End, Piece};
use manyways_unit::ThinVec;

/// Maximum number of requests that wait for responses. Further requests are not kept, so that their
/// responses have no request. Pipelining clients have a handful.
pub const OUTSTANDING: usize = 64;
/// Number of positions without HTTP, at which HTTP could have begun, after which the connection is
/// taken for another protocol. A capture that begins within a body needs two.
const MISS_LIMIT: u8 = 3;

/// Follows the HTTP/1 exchanges of one connection.
///
/// Input: the bytes of both directions, ordered within each direction, and each request before its
/// response. Missing bytes are handled as far as possible: a body of known length continues by its
/// length; after a truncated header or broken chunk framing, all bytes of the server belong to the
/// response until the next request. Memory: between exchanges only this value, otherwise at most
/// one header of [`HEAD_LIMIT`](super::HEAD_LIMIT) bytes in each direction and [`OUTSTANDING`]
/// requests.
#[derive(Clone, Debug, Default)]
pub struct Transactions {
    client: Reading,
    server: Reading,
    /// Exchanges that have not ended, the oldest first.
    open: ThinVec<Box<Exchange>>,
    /// Number of later requests that were not kept.
    unkept: u64,
    /// Whether the request being sent was kept.
    is_kept: bool,
    ended: ThinVec<Box<Transaction>>,
    count: u64,
    /// The endpoint that sent last.
    last: Option<End>,
    /// Whether the client has sent data since the latest response began.
    has_asked: bool,
    has_server: bool,
    is_http: Option<bool>,
    misses: u8,
    is_over: bool,
    summary: Summary,
}

/// Position of one direction within its messages.
#[derive(Clone, Debug)]
enum Reading {
    Head(Assembly),
    /// A body with this number of remaining bytes.
    Left(u64),
    Chunked(Chunked),
    /// A body that ends with the connection.
    Endless,
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
struct Exchange {
    request: Option<Request>,
    is_behind: bool,
    response: Option<Response>,
    has_interim: bool,
    /// Bytes of interim responses, later of all headers.
    heads: u64,
    /// Bytes of content in chunks.
    content: u64,
    /// Whether the chunk framing was lost.
    is_lost: bool,
}

impl Default for Reading {
    fn default() -> Self {
        Self::Head(Assembly::default())
    }
}

impl Transactions {
    /// Processes the next bytes of one direction. [`Self::poll`] returns the exchanges that ended.
    pub fn handle(&mut self, from: End, piece: &Piece<'_>) {
        let mut rest = Rest::new(piece);
        if rest.is_empty() || self.is_over {
            return;
        }
        let has_turned = self.last.replace(from) != Some(from);
        let reading = match from {
            End::Client => &mut self.client,
            End::Server => &mut self.server,
        };
        if let Reading::Lost { is_place } = reading {
            *is_place |= has_turned;
        }
        match from {
            End::Client => {
                self.has_asked = true;
                while !rest.is_empty() && !self.is_over {
                    self.client(&mut rest);
                }
            }
            End::Server => {
                self.has_server = true;
                while !rest.is_empty() && !self.is_over {
                    self.server(&mut rest);
                }
            }
        }
    }

    /// Ends one direction: all bytes and the FIN were processed.
    pub fn closed(&mut self, from: End) {
        if self.is_over {
            return;
        }
        match from {
            End::Client => {
                self.cut_client();
                self.client = Reading::Closed;
            }
            End::Server => {
                self.cut_server();
                match self.server {
                    Reading::Endless => self.end(Ending::Whole),
                    Reading::Left(_) | Reading::Chunked(_) => self.end(Ending::Early),
                    Reading::Lost { .. } if self.is_guessing() => self.end(Ending::Guessed),
                    Reading::Lost { .. } | Reading::Head(_) | Reading::Closed => {}
                }
                self.server = Reading::Closed;
            }
        }
    }

    /// Ends the connection because of a reset.
    pub fn reset(&mut self) {
        self.end_all(Ending::Reset);
    }

    /// Ends the connection because it is forgotten or the capture ends.
    pub fn finish(&mut self) {
        let is_closed = matches!(self.server, Reading::Closed);
        self.end_all(if is_closed { Ending::Early } else { Ending::Open });
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
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Statistics of the ended exchanges.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Whether a message that begins now begins before an earlier response is complete.
    fn is_behind(&self) -> bool {
        let is_idle = self.open.is_empty() && self.unkept == 0;
        !is_idle && !self.is_last_guessed()
    }

    /// Whether the only open exchange is a response of unknown end, so that a new request ends it.
    fn is_last_guessed(&self) -> bool {
        self.open.len() == 1 && self.unkept == 0 && self.is_guessing()
    }

    /// Whether the current response has an unknown end.
    fn is_guessing(&self) -> bool {
        let is_lost = match &self.server {
            Reading::Lost { .. } => true,
            Reading::Head(assembly) => assembly.is_guess,
            _ => false,
        };
        is_lost && self.open.first().is_some_and(|open| open.response.is_some())
    }

    /// Counts a position at which a message could have begun but did not.
    fn miss(&mut self, is_other: bool) {
        if self.is_http.is_some() {
            return;
        }
        self.misses += 1;
        if is_other || self.misses >= MISS_LIMIT {
            self.is_http = Some(false);
            self.over();
        }
    }

    fn over(&mut self) {
        self.is_over = true;
        (self.client, self.server) = (Reading::Closed, Reading::Closed);
    }

    /// Ends the exchange whose response is current.
    fn end(&mut self, ending: Ending) {
        self.server = Reading::default();
        if let Some(open) = self.open.remove(0) {
            self.close(*open, ending);
        }
    }

    fn end_all(&mut self, ending: Ending) {
        if self.is_over {
            return;
        }
        self.cut_client();
        self.cut_server();
        if self.is_guessing() {
            self.end(Ending::Guessed);
        }
        self.close_all(if self.has_server { ending } else { Ending::Unseen });
        self.over();
    }

    fn close_all(&mut self, ending: Ending) {
        while let Some(open) = self.open.remove(0) {
            self.close(*open, ending);
        }
    }

    fn close(&mut self, open: Exchange, ending: Ending) {
        let is_pipelined = open.request.is_some() && self.has_server;
        let transaction = Transaction {
            index: self.count,
            is_pipelined: is_pipelined.then_some(open.is_behind),
            has_interim: open.has_interim,
            response: open.response.map(|response| {
                let body = response.length.saturating_sub(open.heads);
                let seen = match response.framing {
                    Some(Framing::Bodiless) => Seen::Content(0),
                    _ if response.is_cut => Seen::WithHead(response.length),
                    Some(Framing::Chunked) if open.is_lost => Seen::Framed(body),
                    Some(Framing::Chunked) => Seen::Content(open.content),
                    _ => Seen::Content(body),
                };
                Response { seen, ..response }
            }),
            request: open.request,
            ending,
        };
        self.count += 1;
        self.summary.add(transaction.request.as_ref(), transaction.response.as_ref());
        self.ended.push(Box::new(transaction));
    }
}
