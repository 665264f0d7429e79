//! The client's direction: requests.

use manyways_unit::Time;

use super::{MAX_PENDING_REQUESTS, OpenTransaction, ParseState, Transactions};
use crate::http::chunked::{Chunked, Step};
use crate::http::cursor::Cursor;
use crate::http::fields::{self, BodyLength};
use crate::http::head_reader::{Expected, HeadReader, ReadResult};
use crate::http::{Outcome, Request};

impl Transactions {
    /// Processes the next bytes of the client.
    pub(super) fn read_client(&mut self, rest: &mut Cursor<'_>) {
        let (at, is_behind) = (rest.at, self.is_pipelined());
        match &mut self.client {
            ParseState::Head(assembly) => {
                let kind =
                    if assembly.is_resync { Expected::LikelyRequest } else { Expected::Request };
                if assembly.times.is_none() {
                    assembly.is_pipelined = is_behind;
                }
                let result = assembly.read(kind, rest);
                let (times, is_behind) = (assembly.times, assembly.is_pipelined);
                match result {
                    ReadResult::More => {}
                    ReadResult::Complete(bytes) => {
                        self.read_request(&bytes, true, times, is_behind)
                    }
                    ReadResult::Truncated(bytes) => {
                        self.read_request(&bytes, false, times, is_behind)
                    }
                    ReadResult::NotHead { buffered: held, is_other_protocol: is_other } => {
                        self.client = ParseState::Lost { is_place: false };
                        self.add_stray_request(times.map_or(at, |(_, last)| last), held as u64);
                        self.count_miss(is_other);
                    }
                }
            }
            ParseState::Remaining(left) => {
                let length = rest.skip(*left);
                *left -= length;
                let is_end = *left == 0;
                self.add_request_bytes(at, length);
                if is_end {
                    self.end_request();
                }
            }
            ParseState::Chunked(chunked) => {
                let (step, consumed) = chunked.read(rest);
                self.add_request_bytes(at, consumed.length);
                match step {
                    Step::More => {}
                    Step::Done => self.end_request(),
                    Step::Lost => self.client = ParseState::Lost { is_place: false },
                }
            }
            ParseState::Lost { is_place } => {
                if *is_place && !rest.bytes.is_empty() {
                    self.client = ParseState::Head(HeadReader::resync());
                    return;
                }
                *is_place = rest.uncaptured > 0;
                let length = rest.skip(u64::MAX);
                self.add_stray_request(at, length);
            }
            ParseState::UntilClose | ParseState::Closed => {
                rest.skip(u64::MAX);
            }
        }
    }

    /// Processes a header that the client did not finish.
    pub(super) fn end_client_head(&mut self) {
        let ParseState::Head(assembly) = std::mem::take(&mut self.client) else { return };
        self.read_request(assembly.buffered(), false, assembly.times, assembly.is_pipelined);
    }

    fn read_request(
        &mut self,
        bytes: &[u8],
        is_whole: bool,
        times: Option<(Time, Time)>,
        is_behind: bool,
    ) {
        self.client = ParseState::Lost { is_place: false };
        let Some((first, last)) = times else { return };
        let Some((request, body)) = fields::request(bytes, is_whole) else {
            return self.count_miss(false);
        };
        self.client = match body {
            _ if request.is_truncated => ParseState::Lost { is_place: false },
            // The following bytes belong to the tunnel, unless it is refused.
            _ if request.method == "CONNECT" => ParseState::Lost { is_place: false },
            BodyLength::Undeclared | BodyLength::Known(0) => ParseState::default(),
            BodyLength::Known(length) => ParseState::Remaining(length),
            BodyLength::Chunked => ParseState::Chunked(Chunked::default()),
            BodyLength::UntilClose | BodyLength::Invalid => ParseState::Lost { is_place: false },
        };
        let is_whole = match self.client {
            ParseState::Head(_) => true,
            _ => !request.is_truncated && request.method == "CONNECT",
        };
        let length = bytes.len() as u64;
        self.on_request(
            Request { first, last, length, is_complete: is_whole, ..request },
            is_behind,
        );
    }

    fn on_request(&mut self, request: Request, is_behind: bool) {
        self.is_http = Some(true);
        self.summary.requests += 1;
        self.summary.first_request.get_or_insert(request.first);
        if self.is_only_end_unknown() {
            self.count_head_as_data();
            self.end(Outcome::Inferred);
        }
        // Without bytes of the server no exchange ends, so the oldest is removed.
        if !self.has_server_data && self.open.len() >= MAX_PENDING_REQUESTS {
            self.end(Outcome::ServerNotCaptured);
        }
        self.is_tracked = self.untracked == 0 && self.open.len() < MAX_PENDING_REQUESTS;
        if self.is_tracked {
            let request = Some(request);
            self.open.push(Box::new(OpenTransaction {
                request,
                is_pipelined: is_behind,
                ..OpenTransaction::default()
            }));
        } else {
            self.untracked += 1;
        }
    }

    /// The request that is being sent; `None` if it already has its response.
    fn current_request(&mut self) -> Option<&mut OpenTransaction> {
        let last = self.open.last_mut().filter(|open| self.is_tracked && open.request.is_some());
        last.map(|open| &mut **open)
    }

    fn add_request_bytes(&mut self, at: Time, length: u64) {
        if let Some(request) = self.current_request().and_then(|open| open.request.as_mut()) {
            request.last = request.last.max(at);
            request.length = request.length.saturating_add(length);
        }
    }

    /// Counts unidentified bytes: they belong to a request of unknown end, until its response
    /// begins.
    fn add_stray_request(&mut self, at: Time, length: u64) {
        let is_open = |request: &Request| !request.is_complete;
        let belongs = self.current_request().is_some_and(|open| {
            open.response.is_none() && open.request.as_ref().is_some_and(is_open)
        });
        if belongs && length > 0 {
            self.add_request_bytes(at, length);
        }
    }

    fn end_request(&mut self) {
        self.client = ParseState::default();
        if let Some(request) = self.current_request().and_then(|open| open.request.as_mut()) {
            request.is_complete = true;
        }
    }
}
