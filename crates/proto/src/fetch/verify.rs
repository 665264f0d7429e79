//! Verification: whether the object is still the version whose bytes were written.
//!
//! A server that overwrites an object in place sends bytes of both versions in the responses that
//! began before the change. Only a later response shows the change. Therefore a fetch ends with a
//! check on each path: a conditional request for one byte. A response to it on the same connection
//! follows the bytes that the server sent before, so it proves their version (the validator of
//! RFC 9110, section 8.8). The check is sent one response delay before the last byte is due, so
//! that it costs no time on a multiplexed connection.

use std::collections::BTreeMap;

use manyways_unit::{Span, Time};

use super::object::{ObjectState, Versions};
use super::share::seconds;
use super::{Fetch, FetchFailure, Head, Note, Object, Output, PathId, Range, RequestId, Validator};

/// A fetch that is shorter than this does not wait for the response to a check, because that would
/// cost a considerable part of its time.
const MIN_AWAITED_DURATION: Span = Span::from_secs(1);
/// Minimum interval between two checks on a path before all bytes have arrived.
const MIN_CHECK_INTERVAL: Span = Span::from_millis(10);
/// Maximum number of unanswered checks on a path.
const MAX_CHECKS_PER_PATH: usize = 4;
/// Failed checks after which the fetch ends without verification.
const MAX_FAILED_CHECKS: u32 = 3;
/// Time for verification after the last byte has arrived.
const MAX_VERIFICATION_TIME: Span = Span::from_secs(3);

/// Proof, at the end, of the version of the received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum VersionProof {
    /// The server confirmed the version after it had sent the last byte.
    Verified,
    /// The fetch took less than a second, and no response proved the version of the last bytes.
    Unchecked,
    /// The server did not confirm the version in a usable way or in time.
    Unconfirmed,
    /// The server names no version: the object has no usable validator.
    Unidentified,
}

impl VersionProof {
    pub fn name(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Unchecked => "unchecked",
            Self::Unconfirmed => "unconfirmed",
            Self::Unidentified => "unidentified",
        }
    }
}

/// Checks of a fetch, and what they have proved.
#[derive(Debug, Default)]
pub(super) struct Verification {
    /// Checks that have not ended.
    checks: BTreeMap<RequestId, Check>,
    /// Sending time of the latest check that proved the version.
    proved_sent: Option<Time>,
    /// Checks whose connection failed.
    failed: u32,
    /// Whether the server does not answer checks in a usable way.
    is_refused: bool,
    /// Validator and length in a response that described another version.
    other_version: Option<(Option<Validator>, Option<u64>)>,
    /// When the last byte arrived; `None` before.
    complete_since: Option<Time>,
    result: Option<VersionProof>,
}

#[derive(Clone, Copy, Debug)]
struct Check {
    path: PathId,
    sent: Time,
    /// Whether the path had another request.
    is_concurrent: bool,
    is_answered: bool,
}

/// Conclusion from a response about the version.
enum Verdict {
    Same,
    Other,
    Unclear,
}

/// Judges the head of the response to a conditional request for one byte of this object.
fn judge(head: &Head, object: &Object) -> Verdict {
    let is_same_length = head.total_length().is_none_or(|length| Some(length) == object.length);
    match (head.known_status(), &head.validator) {
        (200 | 206 | 412 | 416, Some(_)) if head.validator != object.validator => Verdict::Other,
        // The range is of the version in `If-Range`, and a whole response is not.
        (200 | 206, Some(_)) | (206, None) if is_same_length => Verdict::Same,
        (200, None) => Verdict::Other,
        _ => Verdict::Unclear,
    }
}

impl Fetch {
    pub(super) fn is_check(&self, id: RequestId) -> bool {
        self.verification.checks.contains_key(&id)
    }

    /// Whether a path that takes one request at a time is busy with a check.
    pub(super) fn is_checking(&self, id: PathId) -> bool {
        self.checks_of(id).next().is_some()
    }

    fn checks_of(&self, id: PathId) -> impl Iterator<Item = &Check> {
        self.verification.checks.values().filter(move |check| check.path == id)
    }

    /// Whether the server can be asked for the version.
    fn is_verifiable(&self) -> bool {
        let ObjectState::Ranged(object) = &self.object else { return false };
        object.validator.is_some()
            && object.length.is_some_and(|length| length > 0)
            && self.config.stop_after.is_none()
    }

    /// Whether the fetch may end without a proof.
    fn is_short(&self, now: Time) -> bool {
        self.config.resume.is_none()
            && self.versions == Versions::Agree
            && now.since(self.first_sent_at) < MIN_AWAITED_DURATION
    }

    /// Paths whose latest bytes are not proved to be of the version.
    fn unproved_paths(&self) -> impl Iterator<Item = PathId> {
        self.paths.iter().filter_map(|(id, path)| {
            let last = path.last_useful_at?;
            let is_proved = path.proved_at.is_some_and(|proved| proved >= last);
            let later = self.verification.proved_sent;
            let is_proved = is_proved || later.is_some_and(|sent| self.is_later(sent, *id, last));
            (!is_proved).then_some(*id)
        })
    }

    /// Whether the server processed a check, sent at that time over any path, after it had sent the
    /// bytes that arrived at `arrived` over `path`. These were under way for half a round trip at
    /// least.
    fn is_later(&self, sent: Time, path: PathId, arrived: Time) -> bool {
        let rtt = self.paths.get(&path).and_then(|path| path.round_trip.min_rtt());
        let half = Span::from_nanos(rtt.unwrap_or_default().as_nanos() / 2);
        sent + half >= arrived
    }

    /// Whether a check under way will prove the bytes that have arrived over a path.
    fn is_being_proved(&self, now: Time, id: PathId) -> bool {
        let last = self.paths.get(&id).and_then(|path| path.last_useful_at);
        let mut checks = self.verification.checks.values();
        checks.any(|check| {
            let covers =
                check.path == id || last.is_none_or(|last| self.is_later(check.sent, id, last));
            covers && !check.is_answered && now < self.check_deadline(check)
        })
    }

    /// When a check counts as lost.
    fn check_deadline(&self, check: &Check) -> Time {
        check.sent + self.unresponsive_timeout(check.path)
    }

    /// Sends checks for the paths that are about to receive their last byte.
    pub(super) fn check_ahead(&mut self, now: Time) {
        let Verification { failed, is_refused, .. } = &self.verification;
        if *failed > 0 || *is_refused || !self.is_verifiable() {
            return;
        }
        // A small object costs one request.
        if self.next_request == self.first_sent + 1 && self.is_short(now) {
            return;
        }
        let is_all_requested = self
            .final_goal()
            .is_some_and(|goal| self.unrequested_gaps(Range::new(0, goal)).len() == 0);
        if !is_all_requested {
            return;
        }
        for id in self.paths.keys().copied().collect::<Vec<_>>() {
            let delay = self.round_trip(id).or(self.response_delay(id)).unwrap_or_default();
            let interval = MIN_CHECK_INTERVAL.max(Span::from_nanos(delay.as_nanos() / 4));
            let is_busy = self.load_of(id) > 0;
            let finish = self.load(now, id).and_then(|load| load.finishes_in());
            // An idle path was checked while it was busy.
            let is_near = is_busy && finish.is_some_and(|finish| finish <= seconds(delay));
            let is_due = self.checks_of(id).all(|check| check.sent + interval <= now)
                && self.checks_of(id).count() < MAX_CHECKS_PER_PATH;
            let contributes = self.paths.get(&id).is_some_and(|path| path.last_useful_at.is_some());
            if is_near && is_due && contributes && self.can_check(now, id) {
                self.send_check(now, id);
            }
        }
    }

    fn can_check(&self, now: Time, id: PathId) -> bool {
        let Some(path) = self.paths.get(&id) else { return false };
        let is_lost = |check: &Check| !check.is_answered && now >= self.check_deadline(check);
        if self.checks_of(id).any(is_lost) {
            return false;
        }
        let is_free = path.is_concurrent() || self.load_of(id) == 0 && !self.is_checking(id);
        path.state.is_ready() && !path.is_draining() && self.is_allowed(path) && is_free
    }

    fn send_check(&mut self, now: Time, path: PathId) {
        let Some(object) = self.object.known() else { return };
        let (Some(length), Some(if_range)) = (object.length, object.validator.clone()) else {
            return;
        };
        let request = RequestId(self.next_request);
        self.next_request += 1;
        let range = Range::new(length - 1, length);
        let is_concurrent = self.load_of(path) > 0 || self.is_checking(path);
        let check = Check { path, sent: now, is_concurrent, is_answered: false };
        self.verification.checks.insert(request, check);
        self.outputs.push_back(Output::Check { request, path, range, if_range });
        let is_multiplexed = self.paths.get(&path).is_some_and(|path| path.is_multiplexed());
        if self.config.read_ahead.is_some() && !is_multiplexed {
            self.outputs.push_back(Output::Credit { request, bytes: u64::MAX });
        }
    }

    /// Proof of the version; `None` before [`Output::Done`].
    pub fn version_proof(&self) -> Option<VersionProof> {
        self.verification.result
    }

    /// Verifies the object after all bytes have arrived. Returns whether the fetch is done.
    pub(super) fn verify(&mut self, now: Time) -> bool {
        let is_first_turn = self.verification.complete_since.is_none();
        let since = *self.verification.complete_since.get_or_insert(now);
        let has_validator = self.object.known().is_some_and(|object| object.validator.is_some());
        if !self.is_verifiable() {
            let result =
                if has_validator { VersionProof::Unchecked } else { VersionProof::Unidentified };
            self.verification.result = Some(result);
            return true;
        }
        let unproved: Vec<PathId> = self.unproved_paths().collect();
        if unproved.is_empty() {
            self.verification.result = Some(VersionProof::Verified);
            // A sequential connection can be used again after its response has ended.
            return !self.verification.checks.values().any(|check| {
                let path = self.paths.get(&check.path);
                check.is_answered && path.is_some_and(|path| !path.is_multiplexed())
            });
        }
        if self.is_short(since) {
            self.verification.result = Some(VersionProof::Unchecked);
            return true;
        }
        let may_connect = self.paths.values().any(|path| path.state.is_alive());
        let is_over = now >= since + MAX_VERIFICATION_TIME
            || self.verification.failed >= MAX_FAILED_CHECKS
            || self.verification.is_refused
            || !may_connect;
        if is_over {
            self.verification.result = Some(VersionProof::Unconfirmed);
            self.outputs.push_back(Output::Note(Note::Unverified));
            return true;
        }
        // A check that is sent now proves all bytes. The first response of any path counts, because
        // earlier checks may wait in a queue, and a path may have become slow. No path has another
        // request.
        if is_first_turn || !unproved.iter().all(|id| self.is_being_proved(now, *id)) {
            let is_recent = |check: &Check| check.sent + MIN_CHECK_INTERVAL > now;
            let free = self.paths.keys().copied().filter(|id| self.can_check(now, *id));
            let free = free.filter(|id| !self.checks_of(*id).any(is_recent));
            free.collect::<Vec<_>>().into_iter().for_each(|id| self.send_check(now, id));
        }
        false
    }

    /// When verification gives up, or a check counts as lost.
    pub(super) fn verification_wakeup(&self) -> Option<Time> {
        let end = self.verification.complete_since? + MAX_VERIFICATION_TIME;
        let unanswered = self.verification.checks.values().filter(|check| !check.is_answered);
        let deadlines = unanswered.map(|check| self.check_deadline(check));
        deadlines.filter(|at| *at > self.scheduled_at).chain([end]).min()
    }

    /// The head of the response to a check.
    pub(super) fn on_check_head(&mut self, now: Time, id: RequestId, head: &Head) {
        let Some(check) = self.verification.checks.get(&id).copied() else { return };
        if check.is_concurrent && self.limits_concurrency(check.path, head.status) {
            return self.cancel_check(id);
        }
        if self.weigh(now, check.path, head) {
            return;
        }
        let Some(check) = self.verification.checks.get_mut(&id) else { return };
        let Some(object) = self.object.known() else { return };
        check.is_answered = true;
        let check = *check;
        match judge(head, object) {
            Verdict::Same => {
                let sent = &mut self.verification.proved_sent;
                *sent = (*sent).max(Some(check.sent));
                if let Some(path) = self.paths.get_mut(&check.path) {
                    path.proved_at = Some(now);
                }
                if head.is_whole() {
                    self.cancel_check(id);
                }
            }
            Verdict::Other => {
                self.cancel_check(id);
                let other = (head.validator.clone(), head.total_length());
                match self.verification.other_version.replace(other.clone()) {
                    Some(before) if before == other => self.on_object_changed(now),
                    // Servers behind one address with different validators, or a validator for each
                    // response: these prove nothing.
                    Some(_) => self.verification.is_refused = true,
                    None if self.can_check(now, check.path) => self.send_check(now, check.path),
                    None => {}
                }
            }
            Verdict::Unclear => {
                self.cancel_check(id);
                self.verification.is_refused = true;
            }
        }
    }

    pub(super) fn on_check_end(&mut self, id: RequestId) {
        if self.verification.checks.remove(&id).is_some_and(|check| !check.is_answered) {
            self.verification.failed += 1;
        }
    }

    fn cancel_check(&mut self, id: RequestId) {
        if self.verification.checks.remove(&id).is_some() {
            self.outputs.push_back(Output::Cancel { request: id });
        }
    }

    /// Cancels the checks of a path, or all checks.
    pub(super) fn cancel_checks(&mut self, on: Option<PathId>) {
        let checks = self.verification.checks.iter();
        let checks = checks.filter(|(_, check)| on.is_none_or(|path| check.path == path));
        let checks: Vec<RequestId> = checks.map(|(id, _)| *id).collect();
        checks.into_iter().for_each(|id| self.cancel_check(id));
    }

    /// Begins again, or fails: the server has changed the object whose bytes were written, and these
    /// may be of both versions.
    pub(super) fn on_object_changed(&mut self, now: Time) {
        self.versions = Versions::Differ;
        if self.renewals_left == 0 {
            return self.fail(FetchFailure::Changed);
        }
        let requests: Vec<RequestId> = self.requests.keys().copied().collect();
        requests.into_iter().for_each(|id| self.cancel(now, id));
        self.cancel_checks(None);
        self.restart_with_new_version(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_judged_by_the_class_of_an_unknown_status() {
        let validator = Some(Validator::Etag("\"a\"".into()));
        let object = Object { length: Some(10), validator: validator.clone() };
        for (status, same) in [(200, true), (299, true), (203, false), (204, false)] {
            let head =
                Head { status, length: Some(10), validator: validator.clone(), ..Head::default() };
            assert_eq!(matches!(judge(&head, &object), Verdict::Same), same, "{status}");
        }
    }
}
