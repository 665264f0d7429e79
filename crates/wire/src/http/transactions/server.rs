//! The server's direction: responses.

use manyways_unit::Time;

use super::{Reading, Transactions};
use crate::http::assembly::{Assembly, Kind, Taken};
use crate::http::chunked::{Chunked, Step};
use crate::http::fields::{self, Body};
use crate::http::rest::Rest;
use crate::http::{Ending, Framing, Response};

impl Transactions {
    /// Processes the next bytes of the server.
    pub(super) fn server(&mut self, rest: &mut Rest<'_>) {
        let (at, may_begin) = (rest.at, self.may_begin());
        match &mut self.server {
            Reading::Head(assembly) => {
                let taken = assembly.take(Kind::Response, rest);
                let times = assembly.times;
                match taken {
                    Taken::More => {}
                    Taken::Whole(bytes) => self.response(&bytes, true, times),
                    Taken::Cut(bytes) => self.response(&bytes, false, times),
                    Taken::Not { held, .. } => {
                        self.server = Reading::Lost { is_place: false };
                        self.received_more(times, held as u64);
                        self.miss(false);
                    }
                }
            }
            Reading::Left(left) => {
                let length = rest.skip(*left);
                *left -= length;
                let is_end = *left == 0;
                self.received(at, length, 0);
                if is_end {
                    self.end(Ending::Whole);
                }
            }
            Reading::Chunked(chunked) => {
                let (step, took) = chunked.take(rest);
                self.received(at, took.length, took.content);
                match step {
                    Step::More => {}
                    Step::Done => self.end(Ending::Whole),
                    Step::Lost => {
                        self.server = Reading::Lost { is_place: false };
                        if let Some(open) = self.open.first_mut() {
                            open.is_lost = true;
                        }
                    }
                }
            }
            Reading::Endless => {
                let length = rest.skip(u64::MAX);
                self.received(at, length, 0);
            }
            Reading::Lost { is_place } => {
                if *is_place && may_begin && !rest.bytes.is_empty() {
                    self.server = Reading::Head(Assembly::guess());
                    return;
                }
                *is_place = rest.unknown > 0;
                let length = rest.skip(u64::MAX);
                self.received_more(Some((at, at)), length);
            }
            Reading::Closed => {
                rest.skip(u64::MAX);
            }
        }
    }

    /// Processes a header that the server did not finish.
    pub(super) fn cut_server(&mut self) {
        if let Reading::Head(assembly) = &mut self.server {
            let assembly = std::mem::take(assembly);
            self.response(assembly.held(), false, assembly.times);
        }
    }

    /// Counts the bytes of a possible header as data.
    pub(super) fn lose_head(&mut self) {
        if let Reading::Head(assembly) = &mut self.server {
            let assembly = std::mem::take(assembly);
            self.received_more(assembly.times, assembly.held().len() as u64);
        }
    }

    /// Whether a status line after data of unknown end can be a new response and is not part of a
    /// body.
    fn may_begin(&self) -> bool {
        let Some(open) = self.open.first() else { return true };
        let has_head = open.response.as_ref().is_some_and(|response| response.status.is_some());
        !has_head || self.has_asked || self.open.len() > 1 || self.unkept > 0
    }

    fn response(&mut self, bytes: &[u8], is_whole: bool, times: Option<(Time, Time)>) {
        self.server = Reading::Lost { is_place: false };
        let Some((first, last)) = times else { return };
        let length = bytes.len() as u64;
        let Some((response, body)) = fields::response(bytes, is_whole) else {
            self.received_more(times, length);
            return self.miss(false);
        };
        self.is_http = Some(true);
        if let Some(open) = self.open.first_mut()
            && let Some(before) = &open.response
        {
            // Bytes without a header were late data of an earlier response, or an interim response.
            if before.status.is_none() {
                open.response = None;
            } else {
                self.end(Ending::Guessed);
            }
        }
        if self.open.is_empty() {
            self.unkept = self.unkept.saturating_sub(1);
            self.open.push(Box::default());
        }
        self.has_asked = false;
        let Some(open) = self.open.first_mut() else { return };
        open.heads = open.heads.saturating_add(length);
        let is_lost = response.is_cut;
        if matches!(response.status, Some(100 | 102..=199)) {
            open.has_interim = true;
            if !is_lost {
                self.server = Reading::default();
            }
            return;
        }
        let method = open.request.as_ref().map(|request| &*request.method);
        let is_tunnel = method == Some("CONNECT") && matches!(response.status, Some(200..=299));
        let framing = match fields::framing(method, response.status, body) {
            _ if is_tunnel => Some(Framing::Bodiless),
            // A truncated header may lack the fields that delimit the body.
            Some(Framing::Length | Framing::Chunked | Framing::Close) if is_lost => None,
            framing => framing,
        };
        let is_switch = is_tunnel || response.status == Some(101);
        open.response = Some(Response { framing, first, last, length: open.heads, ..response });
        if is_switch {
            self.end(Ending::Switched);
            self.close_all(Ending::Early);
            return self.over();
        }
        self.server = match (framing, body) {
            _ if is_lost => Reading::Lost { is_place: false },
            (Some(Framing::Bodiless), _) | (Some(Framing::Length), Body::Length(0)) => {
                return self.end(Ending::Whole);
            }
            (Some(Framing::Length), Body::Length(length)) => Reading::Left(length),
            (Some(Framing::Chunked), _) => Reading::Chunked(Chunked::default()),
            (Some(Framing::Close), _) => Reading::Endless,
            (None | Some(Framing::Length), _) => Reading::Lost { is_place: false },
        };
    }

    fn received(&mut self, at: Time, length: u64, content: u64) {
        let Some(open) = self.open.first_mut() else { return };
        open.content = open.content.saturating_add(content);
        if let Some(response) = open.response.as_mut().filter(|_| length > 0) {
            response.first = response.first.min(at);
            response.last = response.last.max(at);
            response.length = response.length.saturating_add(length);
        }
    }

    /// Counts unidentified bytes: they belong to the current or the next response.
    fn received_more(&mut self, times: Option<(Time, Time)>, length: u64) {
        let Some((first, last)) = times.filter(|_| length > 0) else { return };
        let Some(open) = self.open.first_mut() else { return };
        if open.response.is_some() {
            return self.received(last, length, 0);
        }
        self.has_asked = false;
        let length = open.heads.saturating_add(length);
        open.response = Some(Response { first, last, length, ..fields::no_response() });
    }
}
