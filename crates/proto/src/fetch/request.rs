//! Requests: sending, progress and end of each.

use manyways_unit::{Span, Time};

use super::object::FirstRequest;
use super::transfer::Phase;
use super::{Fetch, FetchFailure, Output, PathError, PathErrorKind, PathId, Range, RequestId};

/// A request that has not ended.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) path: PathId,
    /// Range in the request or in the response; the end is `u64::MAX` if it is unknown.
    pub(super) requested: Range,
    /// Offset of the next byte to arrive.
    pub(super) next_offset: u64,
    /// End of the bytes that are assigned to this request.
    pub(super) end: u64,
    /// End of the credit that the server has.
    pub(super) granted: u64,
    pub(super) kind: RequestKind,
    pub(super) response: ResponseState,
    pub(super) claim: Claim,
    pub(super) sent: Time,
    /// When a byte last arrived, or when it was sent.
    pub(super) received_at: Time,
    /// Whether the path had another request when this one was sent.
    pub(super) is_concurrent: bool,
    /// Expected time from this request to the head of its response.
    pub(super) expected_delay: Option<Span>,
    /// When its assigned bytes were expected to be there, at the time of the assignment; `None` while
    /// no rate is known.
    pub(super) due: Option<Time>,
}

/// Kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestKind {
    /// The whole object, with a plain GET.
    Whole,
    /// A range of whichever version the server has.
    Range,
    /// A range of one version of the object (`If-Range`).
    ConditionalRange,
    /// One byte of whichever object the server has: only the head is of interest.
    Question,
}

/// Progress of the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ResponseState {
    Awaited,
    /// The head has arrived.
    Started,
}

/// Whether other requests cover the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// The remaining bytes are assigned to this request. Others may also cover them: one that raced
    /// against it from the end, or one whose server has credit for them.
    Owner,
    /// The remaining bytes have arrived, or are assigned to another request.
    Raced,
    /// The bytes of this request have arrived. Those that follow were assigned to another request
    /// after the server had received credit for them, and the first copy counts.
    Leftover,
}

impl Request {
    /// Assigned bytes that have not arrived.
    pub(super) fn remaining(&self) -> u64 {
        self.end.saturating_sub(self.next_offset)
    }

    pub(super) fn is_answered(&self) -> bool {
        self.response == ResponseState::Started
    }

    pub(super) fn is_owner(&self) -> bool {
        self.claim == Claim::Owner
    }

    pub(super) fn is_leftover(&self) -> bool {
        self.claim == Claim::Leftover
    }

    pub(super) fn is_plain_get(&self) -> bool {
        self.kind == RequestKind::Whole
    }

    pub(super) fn is_question(&self) -> bool {
        self.kind == RequestKind::Question
    }
}

impl Fetch {
    /// Number of the path's requests.
    pub(super) fn load_of(&self, path: PathId) -> usize {
        self.requests_of(path).count()
    }

    /// The requests of a path, in the order of sending.
    pub(super) fn requests_of(&self, path: PathId) -> impl Iterator<Item = (RequestId, &Request)> {
        self.requests.iter().filter(move |(_, r)| r.path == path).map(|(id, r)| (*id, r))
    }

    /// The requests against which no other request races.
    pub(super) fn owners(&self) -> impl Iterator<Item = (RequestId, &Request)> {
        self.requests.iter().filter(|(_, request)| request.is_owner()).map(|(id, r)| (*id, r))
    }

    /// Sends a request for `requested`, of which the bytes up to `end` are assigned to it.
    pub(super) fn send(&mut self, now: Time, id: PathId, requested: Range, end: u64) {
        let has_validator = self.object.known().is_some_and(|object| object.validator.is_some());
        let asked = match (has_validator, self.uses_plain_get(id, requested)) {
            (true, _) => RequestKind::ConditionalRange,
            (false, false) => RequestKind::Range,
            (false, true) => RequestKind::Whole,
        };
        let requested =
            if asked == RequestKind::Whole { Range::new(0, u64::MAX) } else { requested };
        self.send_request(now, id, asked, requested, end);
    }

    pub(super) fn send_request(
        &mut self,
        now: Time,
        id: PathId,
        kind: RequestKind,
        requested: Range,
        end: u64,
    ) {
        let is_idle = self.load_of(id) == 0;
        let is_concurrent = !is_idle || self.is_checking(id);
        let expected_delay = self.response_delay(id);
        let object = self.object.known().filter(|_| kind == RequestKind::ConditionalRange);
        let validator = object.and_then(|object| object.validator.clone());
        // A refused request that is repeated does not count.
        if self.object.is_unknown() && self.phase == Phase::Opening && self.requests.is_empty() {
            (self.first_sent, self.first_sent_at) = (self.next_request, now);
        }
        let Some(path) = self.paths.get_mut(&id) else { return };
        let request = RequestId(self.next_request);
        self.next_request += 1;
        path.stats.requests += u64::from(kind != RequestKind::Question);
        if is_idle {
            path.last_activity_at = now;
        }
        let granted = match path.is_multiplexed() {
            true => requested.start.saturating_add(path.window.size),
            false if self.config.read_ahead.is_some() => requested.start,
            false => u64::MAX,
        };
        let sent = Request {
            path: id,
            requested,
            next_offset: requested.start,
            end,
            granted,
            kind,
            response: ResponseState::Awaited,
            claim: Claim::Owner,
            sent: now,
            received_at: now,
            is_concurrent,
            expected_delay,
            due: None,
        };
        self.requests.insert(request, sent);
        self.set_due(now, request);
        let range = (kind != RequestKind::Whole).then_some(requested);
        self.outputs.push_back(Output::Request { request, path: id, range, if_range: validator });
        if end < requested.end && kind != RequestKind::Question {
            self.outputs.push_back(Output::Cut { request, end });
        }
        self.grant(request);
    }

    /// Whether a request for `requested` becomes a plain GET. The first response to a plain GET is
    /// the most informative one (length, validator, range support).
    fn uses_plain_get(&self, path: PathId, requested: Range) -> bool {
        let by_chunks =
            self.config.scheduler.is_by_chunks() && self.first_request == FirstRequest::Scheduled;
        self.object.is_unknown()
            && requested.start == 0
            && !by_chunks
            && self.budget(path) == u64::MAX
    }

    pub(super) fn on_bytes(&mut self, now: Time, id: RequestId, length: u64) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let path = request.path;
        let piece = Range::new(request.next_offset, request.next_offset.saturating_add(length));
        if !request.is_answered() || piece.end > request.requested.end {
            let words = "the server sent more than it announced";
            let error = PathError::transient(PathErrorKind::Protocol, words);
            self.outputs.push_back(Output::Disconnect { path });
            return self.on_request_failed(now, id, error);
        }
        request.next_offset = piece.end;
        request.received_at = now;
        let past_end = piece.end.saturating_sub(request.end.max(piece.start));
        let useful = self.write(id, piece);
        if let Some(path) = self.paths.get_mut(&path) {
            path.on_arrival(now);
            path.throughput.observe(now, length);
            path.stats.useful += useful;
            path.stats.duplicate += length - useful;
            path.stats.overshoot += past_end;
            if useful > 0 {
                path.last_useful_at = Some(now);
                path.failures.count = 0;
            }
        }
        self.check_estimate(now, path);
        if self.requests.get(&id).is_some_and(|request| request.due.is_none()) {
            self.set_due(now, id);
        }
        if useful > 0 {
            self.on_useful_bytes(now);
        }
        self.adjust_window(now, path, length);
        self.grant(id);
        // The bytes may be those of other requests.
        let all: Vec<RequestId> = self.requests.keys().copied().collect();
        all.into_iter().for_each(|id| self.advance(now, id));
        self.give_up_ends(now);
    }

    /// Writes the bytes of a piece that are not written yet. Returns their number.
    fn write(&mut self, request: RequestId, piece: Range) -> u64 {
        let mut useful = 0;
        for gap in self.done.gaps(piece) {
            useful += gap.len();
            let (at, skip, length) = (gap.start, gap.start - piece.start, gap.len());
            self.outputs.push_back(Output::Write { request, offset: at, skip, length });
        }
        self.done.insert(piece);
        useful
    }

    /// After progress, decides whether a request continues, is extended or ends.
    pub(super) fn advance(&mut self, now: Time, id: RequestId) {
        let Some(request) = self.requests.get(&id) else { return };
        let owed = Range::new(request.next_offset, request.end);
        if !request.is_answered() {
            let is_needless = request.is_owner() && !owed.is_empty() && self.done.covers(owed);
            if is_needless && !request.is_question() {
                self.cancel(now, id);
            }
            return;
        }
        if request.next_offset >= request.requested.end {
            return;
        }
        if !self.done.covers(owed) {
            // If the request that raced against this one has ended, the bytes belong to this one
            // again.
            if !request.is_owner()
                && !self.is_requested(owed)
                && let Some(request) = self.requests.get_mut(&id)
            {
                request.claim = Claim::Owner;
            }
            return;
        }
        if self.object.is_ranged() {
            self.extend_or_cancel(now, id)
        } else {
            self.end_whole(now, id)
        }
    }

    /// Ends the response that delivers the whole object: only the limit for metered paths ends such
    /// a response early. No response can be combined with it, but an unmetered path can fetch the
    /// whole object.
    fn end_whole(&mut self, now: Time, id: RequestId) {
        let Some(path) = self.requests.get(&id).map(|request| request.path) else { return };
        if self.paths.values().any(|path| !path.metered && path.state.is_alive()) {
            let words = "its allowance is spent, and nothing can be added to what it brought";
            return self.fail_path(
                now,
                path,
                PathError::permanent(PathErrorKind::UnusableResponse, words),
            );
        }
        self.fail(FetchFailure::MeteredLimitReached);
    }

    /// Decides about a request that has received all assigned bytes. The request is extended into
    /// following bytes that no other request covers, or is cancelled.
    fn extend_or_cancel(&mut self, now: Time, id: RequestId) {
        let Some(request) = self.requests.get(&id) else { return };
        let rest = Range::new(request.next_offset, request.requested.end);
        let (path, is_owner) = (request.path, request.is_owner());
        let goal = self.goal().unwrap_or(0);
        let gap = self.unrequested_gaps(rest).next().filter(|gap| gap.start == rest.start);
        if let Some(gap) = gap
            && gap.start >= goal
            && self.final_goal() > Some(gap.start)
            && is_owner
        {
            // The request continues when the reader has taken more bytes.
            return;
        }
        let more = gap.filter(|_| is_owner);
        let more = more.map_or(0, |gap| gap.end.min(goal).saturating_sub(gap.start));
        let more = self.extension(now, path, more);
        match self.requests.get_mut(&id) {
            Some(request) if more > 0 => {
                request.end = request.next_offset + more;
                self.extend(now, id);
            }
            _ => self.leave_or_cancel(now, id),
        }
    }

    /// Ends a request whose bytes have arrived. If the server has credit for following bytes that
    /// have not arrived over another path, the request continues until they have.
    fn leave_or_cancel(&mut self, now: Time, id: RequestId) {
        let Some(request) = self.requests.get(&id) else { return };
        let credit = Range::new(request.next_offset, request.granted.min(request.requested.end));
        // With a limit for metered paths, no byte may come twice.
        let may_continue = request.is_owner()
            && self.can_cut_freely(request.path)
            && self.budget(request.path) == u64::MAX;
        if !may_continue || credit.is_empty() || self.done.covers(credit) {
            return self.cancel(now, id);
        }
        if let Some(request) = self.requests.get_mut(&id) {
            request.end = credit.end;
            request.claim = Claim::Leftover;
        }
    }

    /// Whether the remaining range of an owner overlaps these bytes.
    fn is_requested(&self, range: Range) -> bool {
        self.owners().any(|(_, r)| r.next_offset < range.end && range.start < r.end)
    }

    /// The parts of `within` that are neither received nor requested.
    pub(super) fn unrequested_gaps(&self, within: Range) -> std::vec::IntoIter<Range> {
        let mut taken = self.done.clone();
        for (_, request) in self.owners() {
            taken.insert(Range::new(request.next_offset, request.end));
        }
        taken.gaps(within).collect::<Vec<_>>().into_iter()
    }

    pub(super) fn on_finished(&mut self, now: Time, id: RequestId) {
        let Some(request) = self.requests.get(&id) else { return };
        let (path, end) = (request.path, request.next_offset);
        let is_short = end < request.requested.end && request.requested.end < u64::MAX;
        if !request.is_answered() {
            let error = PathError::transient(PathErrorKind::Protocol, "an end without an answer");
            return self.on_request_failed(now, id, error);
        }
        if is_short {
            let words = "the server ended the body before its announced length";
            let error = PathError::transient(PathErrorKind::Truncated, words);
            return self.on_request_failed(now, id, error);
        }
        if let Some(object) = self.object.known_mut()
            && object.length.is_none()
        {
            object.length = Some(end);
            self.outputs.push_back(Output::LengthKnown(Some(end)));
        }
        if let Some(request) = self.requests.remove(&id) {
            self.on_chunk_complete(&request);
        }
        self.outputs.push_back(Output::Ended { request: id });
        self.on_request_gone(now, path);
    }

    /// Ends a request that is no longer needed.
    pub(super) fn cancel(&mut self, now: Time, id: RequestId) {
        if let Some(request) = self.requests.remove(&id) {
            self.outputs.push_back(Output::Cancel { request: id });
            self.on_request_gone(now, request.path);
        }
    }

    pub(super) fn on_request_failed(&mut self, now: Time, id: RequestId, error: PathError) {
        use PathErrorKind::{GoAway, Http1Required, RefusedStream, Reset};
        let Some(request) = self.requests.get(&id) else { return };
        let path = request.path;
        let is_complete = request.is_answered() && request.next_offset >= request.requested.end;
        if is_complete && matches!(error.kind, GoAway | Reset) {
            // For example a reset with NO_ERROR instead of END_STREAM.
            return self.on_finished(now, id);
        }
        // The server still answers the other requests on the connection.
        let drains = matches!(error.kind, GoAway | Http1Required | RefusedStream);
        let drains = drains && self.load_of(path) > 1;
        self.requests.remove(&id);
        if drains { self.drain(path) } else { self.fail_path(now, path, error) }
    }
}
