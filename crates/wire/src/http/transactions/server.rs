//! The server's direction: responses.

use manyways_unit::Time;

use super::{ParseState, Transactions};
use crate::http::chunked::{Chunked, Step};
use crate::http::cursor::Cursor;
use crate::http::fields::{self, BodyLength};
use crate::http::head_reader::{Expected, HeadReader, ReadResult};
use crate::http::{Framing, Outcome, Response};

impl Transactions {
    /// Processes the next bytes of the server.
    pub(super) fn read_server(&mut self, rest: &mut Cursor<'_>) {
        let (at, may_begin) = (rest.at, self.may_begin_response());
        match &mut self.server {
            ParseState::Head(assembly) => {
                let result = assembly.read(Expected::Response, rest);
                let times = assembly.times;
                match result {
                    ReadResult::More => {}
                    ReadResult::Complete(bytes) => self.read_response(&bytes, true, times),
                    ReadResult::Truncated(bytes) => self.read_response(&bytes, false, times),
                    ReadResult::NotHead { buffered: held, .. } => {
                        self.server = ParseState::Lost { is_place: false };
                        self.add_stray_response(times, held as u64);
                        self.count_miss(false);
                    }
                }
            }
            ParseState::Remaining(left) => {
                let length = rest.skip(*left);
                *left -= length;
                let is_end = *left == 0;
                self.add_response_bytes(at, length, 0);
                if is_end {
                    self.end(Outcome::Complete);
                }
            }
            ParseState::Chunked(chunked) => {
                let (step, consumed) = chunked.read(rest);
                self.add_response_bytes(at, consumed.length, consumed.content);
                match step {
                    Step::More => {}
                    Step::Done => self.end(Outcome::Complete),
                    Step::Lost => {
                        self.server = ParseState::Lost { is_place: false };
                        if let Some(open) = self.open.first_mut() {
                            open.is_framing_lost = true;
                        }
                    }
                }
            }
            ParseState::UntilClose => {
                let length = rest.skip(u64::MAX);
                self.add_response_bytes(at, length, 0);
            }
            ParseState::Lost { is_place } => {
                if *is_place && may_begin && !rest.bytes.is_empty() {
                    self.server = ParseState::Head(HeadReader::resync());
                    return;
                }
                *is_place = rest.uncaptured > 0;
                let length = rest.skip(u64::MAX);
                self.add_stray_response(Some((at, at)), length);
            }
            ParseState::Closed => {
                rest.skip(u64::MAX);
            }
        }
    }

    /// Processes a header that the server did not finish.
    pub(super) fn end_server_head(&mut self) {
        if let ParseState::Head(assembly) = &mut self.server {
            let assembly = std::mem::take(assembly);
            self.read_response(assembly.buffered(), false, assembly.times);
        }
    }

    /// Counts the bytes of a possible header as data.
    pub(super) fn count_head_as_data(&mut self) {
        if let ParseState::Head(assembly) = &mut self.server {
            let assembly = std::mem::take(assembly);
            self.add_stray_response(assembly.times, assembly.buffered().len() as u64);
        }
    }

    /// Whether a status line after data of unknown end can be a new response and is not part of a
    /// body.
    fn may_begin_response(&self) -> bool {
        let Some(open) = self.open.first() else { return true };
        let has_head = open.response.as_ref().is_some_and(|response| response.status.is_some());
        !has_head || self.has_request_data || self.open.len() > 1 || self.untracked > 0
    }

    fn read_response(&mut self, bytes: &[u8], is_whole: bool, times: Option<(Time, Time)>) {
        self.server = ParseState::Lost { is_place: false };
        let Some((first, last)) = times else { return };
        let length = bytes.len() as u64;
        let Some((response, body)) = fields::response(bytes, is_whole) else {
            self.add_stray_response(times, length);
            return self.count_miss(false);
        };
        self.is_http = Some(true);
        if let Some(open) = self.open.first_mut()
            && let Some(before) = &open.response
        {
            // Bytes without a header were late data of an earlier response, or an interim response.
            if before.status.is_none() {
                open.response = None;
            } else {
                self.end(Outcome::Inferred);
            }
        }
        if self.open.is_empty() {
            self.untracked = self.untracked.saturating_sub(1);
            self.open.push(Box::default());
        }
        self.has_request_data = false;
        let Some(open) = self.open.first_mut() else { return };
        open.header_bytes = open.header_bytes.saturating_add(length);
        let is_lost = response.is_truncated;
        if matches!(response.status, Some(100 | 102..=199)) {
            open.has_interim = true;
            if !is_lost {
                self.server = ParseState::default();
            }
            return;
        }
        let method = open.request.as_ref().map(|request| &*request.method);
        let is_tunnel = method == Some("CONNECT") && matches!(response.status, Some(200..=299));
        let framing = match fields::framing(method, response.status, body) {
            _ if is_tunnel => Some(Framing::NoBody),
            // A truncated header may lack the fields that delimit the body.
            Some(Framing::Length | Framing::Chunked | Framing::Close) if is_lost => None,
            framing => framing,
        };
        let is_switch = is_tunnel || response.status == Some(101);
        open.response =
            Some(Response { framing, first, last, length: open.header_bytes, ..response });
        if is_switch {
            self.end(Outcome::Switched);
            self.close_all(Outcome::ClosedEarly);
            return self.stop();
        }
        self.server = match (framing, body) {
            _ if is_lost => ParseState::Lost { is_place: false },
            (Some(Framing::NoBody), _) | (Some(Framing::Length), BodyLength::Known(0)) => {
                return self.end(Outcome::Complete);
            }
            (Some(Framing::Length), BodyLength::Known(length)) => ParseState::Remaining(length),
            (Some(Framing::Chunked), _) => ParseState::Chunked(Chunked::default()),
            (Some(Framing::Close), _) => ParseState::UntilClose,
            (None | Some(Framing::Length), _) => ParseState::Lost { is_place: false },
        };
    }

    fn add_response_bytes(&mut self, at: Time, length: u64, content: u64) {
        let Some(open) = self.open.first_mut() else { return };
        open.content_bytes = open.content_bytes.saturating_add(content);
        if let Some(response) = open.response.as_mut().filter(|_| length > 0) {
            response.first = response.first.min(at);
            response.last = response.last.max(at);
            response.length = response.length.saturating_add(length);
        }
    }

    /// Counts unidentified bytes: they belong to the current or the next response.
    fn add_stray_response(&mut self, times: Option<(Time, Time)>, length: u64) {
        let Some((first, last)) = times.filter(|_| length > 0) else { return };
        let Some(open) = self.open.first_mut() else { return };
        if open.response.is_some() {
            return self.add_response_bytes(last, length, 0);
        }
        self.has_request_data = false;
        let length = open.header_bytes.saturating_add(length);
        open.response = Some(Response { first, last, length, ..fields::empty_response() });
    }
}
