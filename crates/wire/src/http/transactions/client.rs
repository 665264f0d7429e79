//! The client's direction: requests.

use manyways_unit::Time;

use super::{Exchange, OUTSTANDING, Reading, Transactions};
use crate::http::assembly::{Assembly, Kind, Taken};
use crate::http::chunked::{Chunked, Step};
use crate::http::fields::{self, Body};
use crate::http::rest::Rest;
use crate::http::{Ending, Request};

impl Transactions {
    /// Processes the next bytes of the client.
    pub(super) fn client(&mut self, rest: &mut Rest<'_>) {
        let (at, is_behind) = (rest.at, self.is_behind());
        match &mut self.client {
            Reading::Head(assembly) => {
                let kind = if assembly.is_guess { Kind::LikelyRequest } else { Kind::Request };
                if assembly.times.is_none() {
                    assembly.is_behind = is_behind;
                }
                let taken = assembly.take(kind, rest);
                let (times, is_behind) = (assembly.times, assembly.is_behind);
                match taken {
                    Taken::More => {}
                    Taken::Whole(bytes) => self.request(&bytes, true, times, is_behind),
                    Taken::Cut(bytes) => self.request(&bytes, false, times, is_behind),
                    Taken::Not { held, is_other } => {
                        self.client = Reading::Lost { is_place: false };
                        self.sent_more(times.map_or(at, |(_, last)| last), held as u64);
                        self.miss(is_other);
                    }
                }
            }
            Reading::Left(left) => {
                let length = rest.skip(*left);
                *left -= length;
                let is_end = *left == 0;
                self.sent(at, length);
                if is_end {
                    self.sent_all();
                }
            }
            Reading::Chunked(chunked) => {
                let (step, took) = chunked.take(rest);
                self.sent(at, took.length);
                match step {
                    Step::More => {}
                    Step::Done => self.sent_all(),
                    Step::Lost => self.client = Reading::Lost { is_place: false },
                }
            }
            Reading::Lost { is_place } => {
                if *is_place && !rest.bytes.is_empty() {
                    self.client = Reading::Head(Assembly::guess());
                    return;
                }
                *is_place = rest.unknown > 0;
                let length = rest.skip(u64::MAX);
                self.sent_more(at, length);
            }
            Reading::Endless | Reading::Closed => {
                rest.skip(u64::MAX);
            }
        }
    }

    /// Processes a header that the client did not finish.
    pub(super) fn cut_client(&mut self) {
        let Reading::Head(assembly) = std::mem::take(&mut self.client) else { return };
        self.request(assembly.held(), false, assembly.times, assembly.is_behind);
    }

    fn request(
        &mut self,
        bytes: &[u8],
        is_whole: bool,
        times: Option<(Time, Time)>,
        is_behind: bool,
    ) {
        self.client = Reading::Lost { is_place: false };
        let Some((first, last)) = times else { return };
        let Some((request, body)) = fields::request(bytes, is_whole) else {
            return self.miss(false);
        };
        self.client = match body {
            _ if request.is_cut => Reading::Lost { is_place: false },
            // The following bytes belong to the tunnel, unless it is refused.
            _ if request.method == "CONNECT" => Reading::Lost { is_place: false },
            Body::Unsaid | Body::Length(0) => Reading::default(),
            Body::Length(length) => Reading::Left(length),
            Body::Chunked => Reading::Chunked(Chunked::default()),
            Body::Endless | Body::Broken => Reading::Lost { is_place: false },
        };
        let is_whole = match self.client {
            Reading::Head(_) => true,
            _ => !request.is_cut && request.method == "CONNECT",
        };
        let length = bytes.len() as u64;
        self.asked(Request { first, last, length, is_whole, ..request }, is_behind);
    }

    fn asked(&mut self, request: Request, is_behind: bool) {
        self.is_http = Some(true);
        self.summary.requests += 1;
        self.summary.first_request.get_or_insert(request.first);
        if self.is_last_guessed() {
            self.lose_head();
            self.end(Ending::Guessed);
        }
        // Without bytes of the server no exchange ends, so the oldest is removed.
        if !self.has_server && self.open.len() >= OUTSTANDING {
            self.end(Ending::Unseen);
        }
        self.is_kept = self.unkept == 0 && self.open.len() < OUTSTANDING;
        if self.is_kept {
            let request = Some(request);
            self.open.push(Box::new(Exchange { request, is_behind, ..Exchange::default() }));
        } else {
            self.unkept += 1;
        }
    }

    /// The request that is being sent; `None` if it already has its response.
    fn sending(&mut self) -> Option<&mut Exchange> {
        let last = self.open.last_mut().filter(|open| self.is_kept && open.request.is_some());
        last.map(|open| &mut **open)
    }

    fn sent(&mut self, at: Time, length: u64) {
        if let Some(request) = self.sending().and_then(|open| open.request.as_mut()) {
            request.last = request.last.max(at);
            request.length = request.length.saturating_add(length);
        }
    }

    /// Counts unidentified bytes: they belong to a request of unknown end, until its response
    /// begins.
    fn sent_more(&mut self, at: Time, length: u64) {
        let is_open = |request: &Request| !request.is_whole;
        let belongs = self.sending().is_some_and(|open| {
            open.response.is_none() && open.request.as_ref().is_some_and(is_open)
        });
        if belongs && length > 0 {
            self.sent(at, length);
        }
    }

    fn sent_all(&mut self) {
        self.client = Reading::default();
        if let Some(request) = self.sending().and_then(|open| open.request.as_mut()) {
            request.is_whole = true;
        }
    }
}
