//! What is asked and answered on one connection, followed as its bytes pass.

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

/// So many requests that wait for their answers are kept. What is answered beyond that has no
/// request. Clients that do so at all have a handful.
pub const OUTSTANDING: usize = 64;
/// At so many places HTTP could have begun and did not, before it is taken for something else. A
/// capture that begins within a body needs two of them.
const MISS_LIMIT: u8 = 3;

/// Follows the HTTP/1 transactions of one connection.
///
/// It is told of the bytes of both directions in the order in which they passed, as far as the
/// order within each direction allows: of a request before its answer. Where bytes are not known
/// it goes on by what is: a body of known length by that; after a head that was cut, and in a body
/// whose chunks were, all that the server sends counts for the answer until the client's next
/// request. Between transactions it holds no more than itself, and at most a head of
/// [`HEAD_LIMIT`](super::HEAD_LIMIT) bytes each way and [`OUTSTANDING`] requests otherwise.
#[derive(Clone, Debug, Default)]
pub struct Transactions {
    client: Reading,
    server: Reading,
    /// Those that have not ended, the one that is answered first.
    open: ThinVec<Box<Exchange>>,
    /// Requests behind them that there was no room for.
    unkept: u64,
    /// The request that is being sent was kept.
    is_kept: bool,
    ended: ThinVec<Box<Transaction>>,
    count: u64,
    /// Who sent last.
    last: Option<End>,
    /// The client sent something after the latest answer began.
    has_asked: bool,
    has_server: bool,
    is_http: Option<bool>,
    misses: u8,
    is_over: bool,
    summary: Summary,
}

/// Where in its messages an end is.
#[derive(Clone, Debug)]
enum Reading {
    Head(Assembly),
    /// A body that has so many bytes more.
    Left(u64),
    Chunked(Chunked),
    /// A body up to the connection's end.
    Endless,
    /// In something whose end is not known.
    Lost {
        /// A head may begin with the next byte: some before it are unknown, or the other end spoke.
        is_place: bool,
    },
    /// It sends no more.
    Closed,
}

/// A transaction that has not ended.
#[derive(Clone, Debug, Default)]
struct Exchange {
    request: Option<Request>,
    is_behind: bool,
    response: Option<Response>,
    has_interim: bool,
    /// The bytes of interim answers, then those of all heads.
    heads: u64,
    /// What was in the body's chunks.
    content: u64,
    /// Where the next of them begins is not known.
    is_lost: bool,
}

impl Default for Reading {
    fn default() -> Self {
        Self::Head(Assembly::default())
    }
}

impl Transactions {
    /// Goes on with the next bytes of one direction. [`Self::poll`] has what ended with them.
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

    /// This end sends no more: its FIN passed, and all before it.
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

    /// The connection was reset.
    pub fn reset(&mut self) {
        self.end_all(Ending::Reset);
    }

    /// Nothing more will come: the connection is forgotten, or the capture ends.
    pub fn finish(&mut self) {
        let is_closed = matches!(self.server, Reading::Closed);
        self.end_all(if is_closed { Ending::Early } else { Ending::Open });
    }

    /// The next transaction that ended. To be asked until there is none after each call of the
    /// others.
    #[inline]
    pub fn poll(&mut self) -> Option<Transaction> {
        self.ended.remove(0).map(|ended| *ended)
    }

    /// Whether this is HTTP/1; none while neither end has shown it. An end of which no byte is
    /// known never does.
    pub fn is_http(&self) -> Option<bool> {
        self.is_http
    }

    /// No transaction comes any more, but for those that [`Self::poll`] has: it is something else,
    /// became something else, was reset or was finished.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// What those add up to that ended.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Whether what begins now begins before something else was answered whole.
    fn is_behind(&self) -> bool {
        let is_idle = self.open.is_empty() && self.unkept == 0;
        !is_idle && !self.is_last_guessed()
    }

    /// Whether all that is open is one answer whose end is not known, so that a request ends it.
    fn is_last_guessed(&self) -> bool {
        self.open.len() == 1 && self.unkept == 0 && self.is_guessing()
    }

    /// Whether an answer passes whose end is not known.
    fn is_guessing(&self) -> bool {
        let is_lost = match &self.server {
            Reading::Lost { .. } => true,
            Reading::Head(assembly) => assembly.is_guess,
            _ => false,
        };
        is_lost && self.open.first().is_some_and(|open| open.response.is_some())
    }

    /// A message could have begun and did not.
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

    /// Ends the transaction that is answered.
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
