//! Networks that disagree about an object: login pages of captive portals (RFC 8952).
//!
//! Until the user has logged in, a network with a captive portal answers every `http://` request
//! itself: with a page, or with a redirect to one. Both look like the object. A first response is
//! doubtful if it may be such an answer, or if it contradicts the expected length. It describes the
//! object nevertheless, and its bytes are written, but the fetch does not end until each other
//! usable path has answered, for [`Config::stall_timeout`](super::Config::stall_timeout) at most.
//! A path with nothing else to do is asked for one byte; that request is cancelled at the head.
//!
//! [`Rules::judge`] compares answers that cannot be of the same object. The path that they speak
//! against is dropped. If that path described the object, the fetch begins again. If nothing
//! decides, the fetch fails.
//!
//! Servers that prove their identity (TLS) are not mistaken for a portal: only the expected length
//! makes their responses doubtful.

use std::collections::BTreeMap;

use manyways_unit::Time;

use super::object::{FirstRequest, RangeSupport};
use super::path::{DropCause, Path};
use super::request::RequestKind;
use super::retry::is_temporary;
use super::{
    Fetch, FetchFailure, Head, Object, Output, PathError, PathErrorKind, PathId, Range, RequestId,
    Scheduler, Validator,
};

/// Network Authentication Required (RFC 6585 §6).
const LOGIN_REQUIRED: u16 = 511;

/// Statement of a response about the object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evidence {
    pub status: u16,
    /// Length of the object; `None` if the response does not contain it.
    pub length: Option<u64>,
    pub validator: Option<Validator>,
    /// See [`Head::other_host`].
    pub other_host: Option<String>,
    /// See [`Head::is_uncacheable_page`].
    pub is_uncacheable_page: bool,
}

impl From<&Head> for Evidence {
    fn from(head: &Head) -> Self {
        Self {
            status: head.status,
            length: head.total_length(),
            validator: head.validator.clone(),
            other_host: head.other_host.clone(),
            is_uncacheable_page: head.is_uncacheable_page,
        }
    }
}

impl From<&Object> for Evidence {
    fn from(object: &Object) -> Self {
        Self {
            status: 200,
            length: object.length,
            validator: object.validator.clone(),
            other_host: None,
            is_uncacheable_page: false,
        }
    }
}

impl Evidence {
    /// Whether the response describes the object instead of refusing it.
    pub fn is_description(&self) -> bool {
        match self.status {
            206 => true,
            // The object is empty, or shorter than the requested range.
            416 => self.length.is_some(),
            status => Head { status, ..Head::default() }.is_whole(),
        }
    }

    fn is_page(&self) -> bool {
        self.is_uncacheable_page && self.validator.is_none()
    }

    fn has_validator_of(&self, other: &Self) -> bool {
        self.validator.is_some() && self.validator == other.validator
    }

    /// Whether both responses may be of the same object, or of versions with the same length.
    fn fits(&self, other: &Self) -> bool {
        match (self.length, other.length) {
            (Some(own_length), Some(other_length)) => {
                own_length == other_length && self.is_page() == other.is_page()
            }
            _ => {
                let is_same_kind =
                    (self.is_page(), &self.other_host) == (other.is_page(), &other.other_host);
                is_same_kind || self.has_validator_of(other)
            }
        }
    }

    /// Whether both responses are of the same version, as far as they show.
    fn is_same(&self, other: &Self) -> bool {
        self.length.is_some() && (self.length, &self.validator) == (other.length, &other.validator)
    }

    /// Whether this response has a property of a portal that the other one does not have.
    fn is_refuted_by(&self, other: &Self) -> bool {
        self.is_page() && other.validator.is_some()
            || self.other_host.is_some() && other.other_host.is_none()
    }
}

/// Rules for the comparison of responses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Whether the servers prove their identity.
    pub(super) is_authenticated: bool,
    /// The expected length of the object.
    pub(super) length: Option<u64>,
}

/// Result of a comparison of two responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Judgement {
    /// They may be of the same object, or of versions of it.
    Consistent,
    AgainstFirst,
    AgainstSecond,
    Undecided,
}

impl Rules {
    fn has_wrong_length(self, evidence: &Evidence) -> bool {
        self.length.is_some_and(|expected| evidence.length != Some(expected))
    }

    /// Whether a response may come from a captive portal, or contradicts the expected length.
    pub(super) fn is_doubtful(self, evidence: &Evidence) -> bool {
        let may_be_portal = evidence.other_host.is_some() || evidence.is_page();
        self.has_wrong_length(evidence) || may_be_portal && !self.is_authenticated
    }

    /// Compares the responses of two paths.
    pub(super) fn judge(self, first: &Evidence, second: &Evidence) -> Judgement {
        match (first.status == LOGIN_REQUIRED, second.status == LOGIN_REQUIRED) {
            (true, false) => return Judgement::AgainstFirst,
            (false, true) => return Judgement::AgainstSecond,
            _ => {}
        }
        match (first.is_description(), second.is_description()) {
            (true, true) => {}
            (true, false) => return self.judge_refusal(first, second),
            (false, true) => return self.judge_refusal(second, first),
            (false, false) => return Judgement::Consistent,
        }
        if first.fits(second) {
            return Judgement::Consistent;
        }
        match (self.has_wrong_length(first), self.has_wrong_length(second)) {
            (true, false) => return Judgement::AgainstFirst,
            (false, true) => return Judgement::AgainstSecond,
            _ => {}
        }
        if self.is_authenticated || !self.is_doubtful(first) && !self.is_doubtful(second) {
            return Judgement::Consistent;
        }
        // A page does not prevail over a response that is not one.
        let may_prevail =
            |winner: &Evidence, loser: &Evidence| !winner.is_page() || loser.is_page();
        match (first.is_refuted_by(second), second.is_refuted_by(first)) {
            (true, false) if may_prevail(second, first) => Judgement::AgainstFirst,
            (false, true) if may_prevail(first, second) => Judgement::AgainstSecond,
            (true, _) | (_, true) => Judgement::Undecided,
            (false, false) => {
                // The servers of one site may have different versions.
                let are_versions = first.validator.is_some()
                    && second.validator.is_some()
                    && first.other_host == second.other_host;
                if are_versions { Judgement::Consistent } else { Judgement::Undecided }
            }
        }
    }

    /// Compares a description of the object with a refusal by another path's server. Servers also
    /// refuse an object because of the client's address or of their load, so that alone the refusal
    /// does not contradict a response with a validator.
    fn judge_refusal(self, description: &Evidence, refusal: &Evidence) -> Judgement {
        let is_missing = matches!(refusal.status, 404 | 410);
        let contradicts = !self.is_authenticated
            && self.is_doubtful(description)
            && (is_missing || description.validator.is_none());
        if contradicts { Judgement::Undecided } else { Judgement::Consistent }
    }

    /// The error of a path whose response was judged not to be of the object.
    fn error(self, evidence: &Evidence) -> PathError {
        match (&evidence.other_host, self.length) {
            _ if evidence.status == LOGIN_REQUIRED => login_required(),
            (_, Some(expected)) if self.has_wrong_length(evidence) && !evidence.is_page() => {
                let length =
                    evidence.length.map_or("an unknown number of".into(), |n| n.to_string());
                let words = format!("its server has {length} bytes there, not {expected}");
                PathError::permanent(PathErrorKind::UnusableResponse, words)
            }
            (host, _) => {
                let host = host.as_ref().map_or(String::new(), |host| format!(", from {host},"));
                let words = format!(
                    "its answer{host} looks like a login page of the network (captive portal)"
                );
                PathError::permanent(PathErrorKind::CaptivePortal, words)
            }
        }
    }
}

/// The error of a path whose network answers with [`LOGIN_REQUIRED`].
fn login_required() -> PathError {
    let words = "the network requires a login (status 511)";
    PathError::permanent(PathErrorKind::CaptivePortal, words)
}

/// The error of a path whose server refuses the object with this status.
pub(super) fn refusal(status: u16) -> PathError {
    let words = format!("the server answered with status {status}");
    match status {
        LOGIN_REQUIRED => login_required(),
        _ if is_temporary(status) => PathError::transient(PathErrorKind::Unavailable, words),
        _ => PathError::permanent(PathErrorKind::UnusableResponse, words),
    }
}

/// The answers of the paths, and whether the object is doubtful.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// The latest answer of each path.
    answers: BTreeMap<PathId, Evidence>,
    /// The response that describes the object; `None` if there is none, or if it is of an earlier
    /// run.
    pub(super) object: Option<(PathId, Evidence)>,
    /// Until when a doubtful object waits for the answers of other paths; `None` if it does not.
    pub(super) until: Option<Time>,
    /// The object whose complete file was wrong.
    pub(super) rejected: Option<Evidence>,
}

impl Doubt {
    /// Notes an answer. A server that serves no request now adds nothing to an earlier one.
    fn record(&mut self, path: PathId, evidence: Evidence) {
        if !is_temporary(evidence.status) || !self.answers.contains_key(&path) {
            self.answers.insert(path, evidence);
        }
    }

    /// Whether a path has answered, and has nothing to add later.
    fn has_answered(&self, path: PathId) -> bool {
        self.answers.get(&path).is_some_and(|answer| !is_temporary(answer.status))
    }

    /// Forgets the answer of a path that may now reach another network.
    pub(super) fn on_path_returned(&mut self, path: PathId) {
        self.answers.remove(&path);
    }

    /// Forgets all answers: the object may have changed.
    pub(super) fn on_other_object(&mut self) {
        self.answers.clear();
    }
}

impl Fetch {
    /// Whether the object may be a login page, and other paths are being asked. Its bytes must not
    /// yet be passed on.
    pub fn is_doubtful(&self) -> bool {
        self.doubt.until.is_some()
    }

    fn rules(&self) -> Rules {
        let length = self.config.length.filter(|length| *length > 0);
        Rules { is_authenticated: self.config.is_authenticated, length }
    }

    /// The response that describes the object; of an earlier run if there is no path.
    pub(super) fn description(&self) -> Option<(Option<PathId>, Evidence)> {
        match &self.doubt.object {
            Some((path, evidence)) => Some((Some(*path), evidence.clone())),
            None => self.object.known().map(|object| (None, Evidence::from(object))),
        }
    }

    /// Notes that the server of a path refuses the object.
    pub(super) fn on_refusal(&mut self, path: PathId, head: &Head) {
        self.doubt.record(path, Evidence::from(head));
    }

    /// Compares a first response with the earlier answers of other paths. Returns whether it may
    /// describe the object.
    pub(super) fn admit(&mut self, now: Time, path: PathId, head: &Head) -> bool {
        let evidence = Evidence::from(head);
        if self.doubt.rejected.as_ref().is_some_and(|rejected| rejected.is_same(&evidence)) {
            let words = "its server has the same file with the wrong checksum";
            let error = PathError::permanent(PathErrorKind::UnusableResponse, words);
            self.fail_path(now, path, error);
            return false;
        }
        let rules = self.rules();
        let others = self.doubt.answers.clone().into_iter().filter(|(other, _)| *other != path);
        for (other, answer) in others {
            match rules.judge(&evidence, &answer) {
                Judgement::AgainstFirst => {
                    self.drop_refuted(now, path, &evidence);
                    return false;
                }
                Judgement::AgainstSecond => self.drop_refuted(now, other, &answer),
                Judgement::Consistent | Judgement::Undecided => {}
            }
        }
        if rules.is_doubtful(&evidence) {
            self.doubt.until = Some(now + self.config.stall_timeout);
        }
        self.doubt.object = Some((path, evidence.clone()));
        self.doubt.answers.insert(path, evidence);
        self.settle_doubt(now);
        !self.is_finished()
    }

    /// Compares a later response with the object. Returns whether that has decided against a path;
    /// then the request has ended.
    pub(super) fn weigh(&mut self, now: Time, path: PathId, head: &Head) -> bool {
        let Some((describer, mut object)) = self.description() else { return false };
        let rules = self.rules();
        if describer.is_none() {
            // It is not known whether the earlier run was redirected.
            object.other_host.clone_from(&head.other_host);
        }
        let evidence = Evidence::from(head);
        match rules.judge(&object, &evidence) {
            Judgement::AgainstSecond => {
                self.drop_refuted(now, path, &evidence);
                return true;
            }
            Judgement::AgainstFirst => {
                // A server may change its own answer.
                if let Some(loser) = describer.filter(|describer| *describer != path) {
                    self.doubt.answers.insert(path, evidence);
                    self.discard_object(now, loser, &object);
                    return true;
                }
            }
            Judgement::Consistent | Judgement::Undecided => {}
        }
        let is_confirmed = evidence.is_description() && evidence.is_same(&object);
        if is_confirmed && self.is_doubtful() && !rules.is_doubtful(&evidence) {
            self.doubt.object = Some((path, evidence.clone()));
            self.end_doubt(now);
            self.report_whole_only();
        }
        self.doubt.record(path, evidence);
        false
    }

    /// The head of the response to a question.
    pub(super) fn on_answer(&mut self, now: Time, id: RequestId, head: &Head) {
        let Some(path) = self.requests.get(&id).map(|request| request.path) else { return };
        self.cancel(now, id);
        if !self.weigh(now, path, head) && is_temporary(head.status) {
            let error = refusal(head.status);
            self.fail_path_until(now, path, error, DropCause::Failed, head.retry_after);
        }
    }

    /// Drops a path whose answer was judged not to be of the object.
    fn drop_refuted(&mut self, now: Time, path: PathId, evidence: &Evidence) {
        self.doubt.answers.remove(&path);
        self.outputs.push_back(Output::ForgetRedirect { path });
        let error = self.rules().error(evidence);
        self.fail_path_with(now, path, error, DropCause::Refuted);
    }

    /// Begins again without the path that described the object.
    fn discard_object(&mut self, now: Time, loser: PathId, evidence: &Evidence) {
        let requests: Vec<RequestId> = self.requests.keys().copied().collect();
        requests.into_iter().for_each(|id| self.cancel(now, id));
        self.ranges = RangeSupport::Untested;
        self.first_request = FirstRequest::Scheduled;
        self.revive_other_versions(now);
        self.reset(now, None);
        self.drop_refuted(now, loser, evidence);
    }

    /// Ends the doubt if all paths have answered, or in time.
    pub(super) fn settle_doubt(&mut self, now: Time) {
        let Some(until) = self.doubt.until else { return };
        let is_waiting = self.paths.iter().any(|(id, path)| self.is_askable(*id, path));
        if now < until && is_waiting {
            return;
        }
        self.end_doubt(now);
        let Some((path, object)) = self.doubt.object.clone() else { return };
        let rules = self.rules();
        let others = self
            .doubt
            .answers
            .iter()
            .filter(|(_, answer)| rules.judge(&object, answer) == Judgement::Undecided);
        let mut answers: Vec<_> = others.map(|(id, answer)| (*id, answer.clone())).collect();
        if !answers.is_empty() && !self.config.checks_file {
            answers.push((path, object));
            answers.sort_by_key(|(path, _)| *path);
            return self.fail(FetchFailure::Disagreement(answers));
        }
        self.report_whole_only();
    }

    /// Cancels the questions.
    pub(super) fn end_doubt(&mut self, now: Time) {
        self.doubt.until = None;
        let asked = self.requests.iter();
        let asked = asked.filter(|(_, request)| request.is_question());
        let asked: Vec<RequestId> = asked.map(|(id, _)| *id).collect();
        asked.into_iter().for_each(|id| self.cancel(now, id));
    }

    /// Whether the answer of a path is missing and can be expected.
    fn is_askable(&self, id: PathId, path: &Path) -> bool {
        path.state.is_alive()
            && self.is_allowed(path)
            && self.config.scheduler != Scheduler::Single
            && !self.doubt.has_answered(id)
    }

    /// Asks the idle paths about a doubtful object.
    pub(super) fn ask_about_object(&mut self, now: Time) {
        if !self.is_doubtful() {
            return;
        }
        for id in self.free_paths() {
            let is_askable = self.paths.get(&id).is_some_and(|path| self.is_askable(id, path));
            if is_askable && self.load_of(id) == 0 {
                // Nothing is assigned to the request.
                self.send_request(now, id, RequestKind::Question, Range::new(0, 1), 0);
            }
        }
    }
}
