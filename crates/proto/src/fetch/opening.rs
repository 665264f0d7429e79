//! Responses: the first one describes the object, and later ones must be of the same object.

use manyways_unit::{Span, Time};

use super::doubt::refusal;
use super::object::{FirstRequest, ObjectState, Versions, WholeOnly};
use super::path::{DropCause, PathState};
use super::request::{Claim, Request, RequestKind, ResponseState};
use super::response::{check_range_response, check_whole_response};
use super::{
    Fetch, FetchFailure, Head, Note, Object, Output, PathError, PathErrorKind, Range, RequestId,
    UnusableResponse,
};

/// Description of the object in a first response head.
enum FirstResponse {
    /// The length of the object; `None` if it is unknown.
    Object(Option<u64>),
    /// The length that the caller expected is wrong: the requested range is past the end.
    PastEnd,
    /// The server refuses the object with this status.
    Refused(u16),
}

impl Fetch {
    pub(super) fn on_head(&mut self, now: Time, id: RequestId, head: &Head) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        if request.is_question() {
            return self.on_answer(now, id, head);
        }
        if request.is_answered() {
            let error =
                PathError::transient(PathErrorKind::Protocol, "a second answer to one request");
            return self.on_request_failed(now, id, error);
        }
        request.response = ResponseState::Started;
        let (path, delay) = (request.path, now.since(request.sent));
        self.observe_server_time(path, delay);
        if let Some(path) = self.paths.get_mut(&path) {
            path.on_arrival(now);
            path.first_response_at.get_or_insert(now);
            path.response_delay = Some(delay);
            if !path.throughput.is_running() {
                path.throughput.resume(now);
                path.window.begin_round(now);
            }
        }
        if self.object.is_unknown() {
            self.on_first_response(now, id, head);
        } else {
            self.on_later_response(now, id, head);
        }
    }

    fn on_first_response(&mut self, now: Time, id: RequestId, head: &Head) {
        let Some(path) = self.requests.get(&id).map(|request| request.path) else { return };
        let length = match self.read_first_response(id, head) {
            Ok(FirstResponse::Object(length)) => length,
            Ok(FirstResponse::PastEnd) => {
                self.object = ObjectState::Unknown { expected_length: None };
                return self.cancel(now, id);
            }
            Ok(FirstResponse::Refused(status)) => {
                self.on_refusal(path, head);
                return self.on_refused_status(now, id, status, head.retry_after);
            }
            Err(words) => return self.fail(FetchFailure::InvalidResponse(words.to_owned())),
        };
        let reason = self.whole_only_because(head, length);
        let Some(request) = self.requests.get(&id) else { return };
        let start = request.requested.start;
        let is_part = head.status == 206 && Some(request.requested.len()) != length;
        // A part that cannot be combined with other responses is of no use if the whole object may
        // be requested.
        if reason.is_some() && is_part && (start > 0 || self.budget(path) == u64::MAX) {
            self.object = ObjectState::Unknown { expected_length: None };
            self.first_request = FirstRequest::Whole;
            return self.cancel(now, id);
        }
        if !self.admit(now, path, head) {
            return;
        }
        self.set_object(now, id, head, length, reason);
        self.report_whole_only();
    }

    /// Notes why only one path is used, unless the object is doubtful.
    pub(super) fn report_whole_only(&mut self) {
        // With only one path the note has no meaning.
        if let Some(reason) = self.whole_only()
            && self.paths.len() > 1
            && !self.is_doubtful()
        {
            self.outputs.push_back(Output::Note(reason.into()));
        }
    }

    /// Reads the object's description in a first response, or returns the contradiction in it.
    fn read_first_response(
        &mut self,
        id: RequestId,
        head: &Head,
    ) -> Result<FirstResponse, &'static str> {
        let Some(request) = self.requests.get_mut(&id) else { return Ok(FirstResponse::PastEnd) };
        if head.is_whole() {
            return Ok(FirstResponse::Object(head.length));
        }
        match (head.status, request.is_plain_get(), head.content_range) {
            (206, false, Some(Some(content_range))) => {
                let object = Object { length: content_range.length, validator: None };
                let Ok(range) = check_range_response(head, request.requested, &object) else {
                    return Err("its Content-Range is not the requested range");
                };
                request.requested = range;
                if content_range.length.is_none() {
                    return Err("it sent a part of the object and not the whole length");
                }
                self.ranges.on_partial_response();
                Ok(FirstResponse::Object(content_range.length))
            }
            (206, true, _) => Err("it sent a part of the object although all was asked for"),
            (206, false, _) => Err("its Content-Range is missing or unreadable"),
            // An empty object has no range that could be requested.
            (416, false, Some(Some(range))) if range.length == Some(0) => {
                Ok(FirstResponse::Object(Some(0)))
            }
            (416, false, _) if request.requested.start > 0 => Ok(FirstResponse::PastEnd),
            (status, ..) => Ok(FirstResponse::Refused(status)),
        }
    }

    /// Returns why no other response can be combined with this first one; `None` if others can.
    fn whole_only_because(&self, head: &Head, length: Option<u64>) -> Option<WholeOnly> {
        if head.is_encoded {
            Some(WholeOnly::Encoded)
        } else if head.status == 203 {
            Some(WholeOnly::Transformed)
        } else if length.is_none() {
            Some(WholeOnly::NoLength)
        } else if head.refuses_ranges || self.ranges.is_ignored() {
            Some(WholeOnly::NoRanges)
        } else if head.validator.is_none() {
            Some(WholeOnly::NoValidator)
        } else {
            None
        }
    }

    /// Adopts the object of a first response.
    fn set_object(
        &mut self,
        now: Time,
        id: RequestId,
        head: &Head,
        length: Option<u64>,
        why: Option<WholeOnly>,
    ) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let mut why = why;
        if head.is_whole() {
            // A server that ignores ranges sends the whole object, whatever was requested.
            if !request.is_plain_get() {
                self.ranges.on_whole_response();
                if request.requested.start > 0 {
                    why = why.or(Some(WholeOnly::NoRanges));
                }
            }
            request.requested = Range::new(0, length.unwrap_or(u64::MAX));
            request.next_offset = 0;
        }
        let (path, requested, planned_end) = (request.path, request.requested, request.end);
        let planned_end = self.object.take_expected_length().map(|_| planned_end);
        let budget = self.budget_without(path, Some(id)).saturating_add(requested.start);
        let object = Object { length, validator: head.validator.clone() };
        self.object = match why {
            None => ObjectState::Ranged(object),
            Some(why) => ObjectState::WholeOnly { object, reason: why },
        };
        let goal = self.goal().unwrap_or(u64::MAX);
        if let Some(request) = self.requests.get_mut(&id) {
            request.end = requested.end.min(budget).min(goal);
            if self.object.is_ranged() {
                request.end = request.end.min(planned_end.unwrap_or(u64::MAX));
            }
        }
        self.clamp_other_requests(now, id, length);
        self.grant(id);
        self.outputs.push_back(Output::LengthKnown(length));
        self.report_refusals();
    }

    /// The object exists after all, so each path whose server refused it gets a note. If all refuse
    /// it, the failure of the fetch reports that once.
    fn report_refusals(&mut self) {
        for (id, path) in &mut self.paths {
            if path.state.refusal().is_some()
                && let Some(fault) = path.error.clone()
            {
                path.state = PathState::Dropped(DropCause::Failed);
                self.outputs.push_back(Output::Note(Note::Dropped { path: *id, error: fault }));
            }
        }
    }

    /// Limits the other requests, which were sent before the length was known, to the length.
    fn clamp_other_requests(&mut self, now: Time, first: RequestId, length: Option<u64>) {
        let is_repeated = self.requests.get(&first).is_some_and(Request::is_plain_get);
        let others: Vec<RequestId> =
            self.requests.keys().copied().filter(|id| *id != first).collect();
        for id in others {
            let Some(request) = self.requests.get(&id) else { continue };
            let limit = length.unwrap_or(0);
            let is_duplicate = is_repeated && request.is_plain_get();
            let is_useless = is_duplicate && self.is_late_at(request) > now;
            if !self.object.is_ranged() || request.requested.start >= limit || is_useless {
                self.cancel(now, id);
                continue;
            }
            let Some(request) = self.requests.get_mut(&id) else { continue };
            request.requested.end = request.requested.end.min(limit);
            request.end = request.end.min(limit);
            if is_duplicate {
                // Its path is not used until it has answered.
                request.claim = Claim::Raced;
            }
        }
    }

    /// Drops the path of a first response that does not deliver the object. Another path may reach
    /// another server, or a server that decides by country. With a temporary status it asks again
    /// later.
    fn on_refused_status(
        &mut self,
        now: Time,
        id: RequestId,
        status: u16,
        retry_after: Option<Span>,
    ) {
        let Some(path) = self.requests.remove(&id).map(|request| request.path) else { return };
        self.outputs.push_back(Output::Cancel { request: id });
        self.fail_path_until(now, path, refusal(status), DropCause::Refused(status), retry_after);
    }

    /// Checks that a later response is of the same object.
    fn on_later_response(&mut self, now: Time, id: RequestId, head: &Head) {
        let Some(path) = self.requests.get(&id).map(|request| request.path) else { return };
        if self.weigh(now, path, head) {
            return;
        }
        let Some(request) = self.requests.get_mut(&id) else { return };
        let Some(object) = self.object.known() else { return };
        let is_concurrent = request.is_concurrent;
        let judged = match (request.kind, object.length) {
            // The request was sent before another response became the first one.
            (RequestKind::Whole, Some(length)) => {
                check_whole_response(head, object).map(|()| Range::new(0, length))
            }
            (asked, _) => check_range_response(head, request.requested, object).and_then(|range| {
                // Without If-Range only the validator identifies the version of the bytes.
                let is_proved = asked == RequestKind::ConditionalRange || head.validator.is_some();
                if is_proved { Ok(range) } else { Err(UnusableResponse::Changed) }
            }),
        };
        let unfit = match judged {
            Ok(_) if request.is_plain_get() && !request.is_owner() => return self.cancel(now, id),
            Ok(range) => {
                request.requested = range;
                request.end = request.end.min(range.end);
                if !request.is_plain_get() {
                    self.ranges.on_partial_response();
                }
                self.grant(id);
                // Its bytes may have arrived over another path.
                return self.advance(now, id);
            }
            Err(unfit) => unfit,
        };
        if unfit == UnusableResponse::NoRanges && !self.ranges.works() {
            return self.fall_back_to_whole(now, id);
        }
        self.cancel(now, id);
        // The same server had the version whose bytes it sent, so it has changed the object. Another
        // server may always have had another version.
        let is_same_server = self
            .paths
            .get(&path)
            .is_some_and(|path| path.last_useful_at.is_some_and(|last| last >= path.connected_at));
        if unfit == UnusableResponse::Changed && is_same_server {
            return self.on_object_changed(now);
        }
        if is_concurrent && self.limits_concurrency(path, head.status) {
            return;
        }
        let error = match unfit {
            UnusableResponse::Status(_) if head.is_temporary_refusal() => {
                PathError::transient(PathErrorKind::Unavailable, unfit.to_string())
            }
            _ => PathError::permanent(PathErrorKind::UnusableResponse, unfit.to_string()),
        };
        if unfit == UnusableResponse::Changed {
            self.versions = Versions::Differ;
            self.fail_path_with(now, path, error, DropCause::OtherVersion);
        } else {
            self.fail_path_until(now, path, error, DropCause::Failed, head.retry_after);
        }
    }

    /// Continues without range requests, which the server does not support. Only a plain response
    /// can continue.
    fn fall_back_to_whole(&mut self, now: Time, asker: RequestId) {
        self.ranges.on_whole_response();
        self.object.restrict(WholeOnly::NoRanges);
        if !self.is_doubtful() {
            self.outputs.push_back(Output::Note(Note::NoRanges));
        }
        self.cancel(now, asker);
        let ranged = self.requests.iter().filter(|(_, request)| !request.is_plain_get());
        let ranged: Vec<RequestId> = ranged.map(|(id, _)| *id).collect();
        ranged.into_iter().for_each(|id| self.cancel(now, id));
        // One that is not answered repeats the first request.
        let plain = self.requests.iter().min_by_key(|(id, request)| (!request.is_answered(), **id));
        let plain = plain.map(|(id, request)| (*id, request.path));
        let others =
            self.requests.keys().copied().filter(|id| plain.is_some_and(|(p, _)| p != *id));
        let others: Vec<RequestId> = others.collect();
        others.into_iter().for_each(|id| self.cancel(now, id));
        match plain {
            Some((id, path)) => {
                let more = self.budget(path);
                if let Some(plain) = self.requests.get_mut(&id) {
                    plain.end = plain.requested.end.min(plain.end.saturating_add(more));
                    plain.claim = Claim::Owner;
                }
                self.extend(now, id);
            }
            None => {
                let words = "the server does not answer range requests";
                self.restart(now, PathError::permanent(PathErrorKind::UnusableResponse, words));
            }
        }
    }
}
