//! The state of a fetch: paths, requests, the bytes that are there; and what each input does.

use std::collections::{BTreeMap, VecDeque};

use manyways_trace::{Size, Span, Time};

use super::answer::judge;
use super::{
    Allowance, Config, Fault, FaultClass, Head, Input, Note, Object, Output, PathId, PathStats,
    Range, Ranges, Reason, RequestId, Unfit,
};
use crate::estimate::Throughput;

/// The download of one object. See the module's documentation.
#[derive(Debug)]
pub struct Fetch {
    pub(super) config: Config,
    pub(super) paths: BTreeMap<PathId, Path>,
    pub(super) requests: BTreeMap<RequestId, Request>,
    /// Known from the first answer on, or from an earlier run.
    pub(super) object: Option<Object>,
    /// Bytes of different answers may be mixed.
    pub(super) spread: bool,
    /// A range request was answered as it should be.
    ranges_work: bool,
    /// A range request was answered with the whole object.
    ranges_refused: bool,
    /// Some path's answer was of another version.
    changed: bool,
    pub(super) done: Ranges,
    pub(super) outputs: VecDeque<Output>,
    next_request: u64,
    restarts: u32,
    over: bool,
    /// When choices were made last.
    polled: Time,
}

/// Where a path is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// To be connected at this moment.
    Waiting(Time),
    Connecting(Time),
    /// Connected since, and without a request.
    Idle(Time),
    Busy(RequestId),
    /// Not to be used any more, unless its interface comes back.
    Dropped,
}

#[derive(Debug)]
pub(super) struct Path {
    pub(super) state: State,
    pub(super) metered: bool,
    pub(super) throughput: Throughput,
    /// From a request to the head of its answer, the latest.
    pub(super) delay: Option<Span>,
    failures: u32,
    fault: Option<Fault>,
    /// The status with which its server refused the first request.
    refused: Option<u16>,
    stats: PathStats,
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) path: PathId,
    /// What the server was asked for, or announced; `u64::MAX` ends it where that is not known.
    pub(super) wire: Range,
    /// The next byte to arrive.
    pub(super) pos: u64,
    /// Up to here the bytes are its own.
    pub(super) end: u64,
    /// Nothing but the first answer tells what the object is.
    opening: bool,
    plain: bool,
    pub(super) answered: bool,
    /// All that it owed is also asked for elsewhere.
    pub(super) racing: bool,
    sent: Time,
    /// When anything came last.
    pub(super) last: Time,
}

impl Fetch {
    /// A fetch without paths yet: tell it of them with [`Input::PathUp`].
    pub fn new(config: Config) -> Self {
        let (object, done) = match config.resume.clone() {
            Some((object, done)) => (Some(object), done),
            None => (None, Ranges::new()),
        };
        let mut outputs = VecDeque::new();
        if let Some(object) = &object {
            outputs.push_back(Output::Sized(object.length));
        }
        Self {
            spread: object.is_some(),
            config: Config { chunk: config.chunk.max(Size::from_bytes(1)), ..config },
            paths: BTreeMap::new(),
            requests: BTreeMap::new(),
            object,
            ranges_work: false,
            ranges_refused: false,
            changed: false,
            done,
            outputs,
            next_request: 0,
            restarts: 0,
            over: false,
            polled: Time::ZERO,
        }
    }

    /// Takes in what happened. Inputs about requests that are over are ignored; after the end only
    /// [`Input::Late`] counts.
    pub fn handle(&mut self, now: Time, input: Input) {
        if self.over && !matches!(input, Input::Late { .. }) {
            return;
        }
        match input {
            Input::Late { path, length } => {
                if let Some(path) = self.paths.get_mut(&path) {
                    path.stats.duplicate += length;
                }
            }
            Input::PathUp { path, metered } => self.path_up(now, path, metered),
            Input::PathDown { path } => {
                let fault = Fault::lasting(FaultClass::Down, "its interface is gone");
                self.fail_path(now, path, fault);
            }
            Input::Connected { path } => {
                if let Some(path) = self.paths.get_mut(&path)
                    && matches!(path.state, State::Connecting(_))
                {
                    path.state = State::Idle(now);
                }
            }
            Input::ConnectFailed { path, fault } => {
                if self.paths.get(&path).is_some_and(|p| matches!(p.state, State::Connecting(_))) {
                    self.fail_path(now, path, fault);
                }
            }
            Input::Head { request, head } => self.head(now, request, &head),
            Input::Bytes { request, length } => self.bytes(now, request, length),
            Input::Finished { request } => self.finished(now, request),
            Input::Failed { request, fault } => self.fail_request(now, request, fault),
        }
    }

    /// The next thing to do, or `None` when there is nothing to do before [`Fetch::next_wakeup`]
    /// or the next input. After [`Output::Done`] or [`Output::Failed`] there is nothing any more.
    pub fn poll(&mut self, now: Time) -> Option<Output> {
        if self.outputs.is_empty() && !self.over {
            self.polled = now;
            self.expire(now);
            self.schedule(now);
            self.conclude();
        }
        self.outputs.pop_front()
    }

    /// When to poll again although nothing happened.
    pub fn next_wakeup(&self) -> Option<Time> {
        if self.over {
            return None;
        }
        let paths = self.paths.values().filter_map(|path| match path.state {
            State::Waiting(until) => self.wants(path).then_some(until),
            State::Connecting(since) => Some(since + self.config.connect),
            _ => None,
        });
        let requests = self.requests.values().map(|request| self.stalls_at(request));
        // A choice that was not taken when its time came waits for an input.
        let choice = self.schedule_wakeup().filter(|at| *at > self.polled);
        paths.chain(requests).chain(choice).min()
    }

    /// Whether something is still wanted of this request. Bytes of any other are [`Input::Late`].
    pub fn is_under_way(&self, request: RequestId) -> bool {
        self.requests.contains_key(&request)
    }

    /// The object, as far as it is known.
    pub fn object(&self) -> Option<&Object> {
        self.object.as_ref()
    }

    /// The bytes that are there: those of an earlier run, and every [`Output::Write`] so far.
    pub fn done(&self) -> &Ranges {
        &self.done
    }

    /// Whether what is done can be continued by a later run: its version is known, and the server
    /// is not known to refuse ranges.
    pub fn resumable(&self) -> bool {
        self.spread
    }

    /// What a path did so far; nothing for a path that never was.
    pub fn stats(&self, now: Time, path: PathId) -> PathStats {
        self.paths.get(&path).map_or_else(PathStats::default, |path| PathStats {
            rate: path.throughput.rate(now),
            ..path.stats
        })
    }

    /// The bytes that metered paths brought, needed or not.
    pub fn metered_bytes(&self) -> Size {
        let metered = self.paths.values().filter(|path| path.metered);
        Size::from_bytes(metered.map(|path| path.stats.useful + path.stats.duplicate).sum())
    }

    fn path_up(&mut self, now: Time, id: PathId, metered: bool) {
        let waiting = State::Waiting(now);
        match self.paths.get_mut(&id) {
            Some(path) if path.state == State::Dropped => {
                path.state = waiting;
                path.failures = 0;
                path.refused = None;
            }
            Some(_) => {}
            None => {
                let path = Path {
                    state: waiting,
                    metered,
                    throughput: Throughput::default(),
                    delay: None,
                    failures: 0,
                    fault: None,
                    refused: None,
                    stats: PathStats::default(),
                };
                self.paths.insert(id, path);
            }
        }
    }

    /// What a path may still bring, with what it was asked for already.
    pub(super) fn budget(&self, path: PathId) -> u64 {
        let metered = |id: PathId| self.paths.get(&id).is_some_and(|path| path.metered);
        if !metered(path) {
            return u64::MAX;
        }
        match self.config.metered {
            Allowance::All => u64::MAX,
            Allowance::Nothing => 0,
            Allowance::Limit(limit) => {
                let owed = self.requests.values().filter(|request| metered(request.path));
                let owed: u64 = owed.map(|request| request.end.saturating_sub(request.pos)).sum();
                limit.saturating_sub(self.metered_bytes()).as_bytes().saturating_sub(owed)
            }
        }
    }

    pub(super) fn send(&mut self, now: Time, id: PathId, wire: Range, end: u64, opening: bool) {
        let Some(path) = self.paths.get_mut(&id) else { return };
        let request = RequestId(self.next_request);
        self.next_request += 1;
        path.state = State::Busy(request);
        path.stats.requests += 1;
        let plain = opening && wire == Range::new(0, u64::MAX);
        let validator = self.object.as_ref().and_then(|object| object.validator.clone());
        self.requests.insert(
            request,
            Request {
                path: id,
                wire,
                pos: wire.start,
                end,
                opening,
                plain,
                answered: false,
                racing: false,
                sent: now,
                last: now,
            },
        );
        let range = (!plain).then_some(wire);
        self.outputs.push_back(Output::Request { request, path: id, range, if_range: validator });
    }

    fn head(&mut self, now: Time, id: RequestId, head: &Head) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        if request.answered {
            let fault = Fault::passing(FaultClass::Protocol, "a second answer to one request");
            return self.fail_request(now, id, fault);
        }
        request.answered = true;
        request.last = now;
        let opening = request.opening;
        if let Some(path) = self.paths.get_mut(&request.path) {
            path.delay = Some(now.since(request.sent));
            path.throughput.resume(now);
        }
        if opening { self.open(id, head) } else { self.check(now, id, head) }
    }

    /// The first answer: it says what the object is.
    fn open(&mut self, id: RequestId, head: &Head) {
        let chunk = self.config.chunk.as_bytes();
        let Some(request) = self.requests.get_mut(&id) else { return };
        let length = match (head.status, request.plain, head.content_range) {
            (200, _, _) => head.length,
            (206, false, Some(Some(content_range))) => {
                let object = Object { length: content_range.length, validator: None };
                match judge(head, request.wire, &object) {
                    Ok(range) => request.wire = range,
                    Err(_) => return self.nonsense("its Content-Range is not what was asked for"),
                }
                if content_range.length.is_none() {
                    return self.nonsense("it sent a part of the object and not the whole length");
                }
                self.ranges_work = true;
                content_range.length
            }
            (206, true, _) => {
                return self.nonsense("it sent a part of the object although all was asked for");
            }
            (206, false, _) => return self.nonsense("its Content-Range is missing or unreadable"),
            // Nothing of an empty object can be in a range.
            (416, false, Some(Some(range))) if range.length == Some(0) => Some(0),
            (status, ..) => return self.refuse(id, status),
        };
        let note = if head.encoded {
            Some(Note::Encoded)
        } else if length.is_none() {
            Some(Note::NoLength)
        } else if head.refuses_ranges || self.ranges_refused {
            Some(Note::NoRanges)
        } else if head.validator.is_none() {
            Some(Note::NoValidator)
        } else {
            None
        };
        self.spread = note.is_none();
        if head.status == 200 {
            request.wire.end = length.unwrap_or(u64::MAX);
        }
        let path = request.path;
        let wire = request.wire;
        request.end = request.pos;
        let budget = self.budget(path);
        if let Some(request) = self.requests.get_mut(&id) {
            request.end = match (self.spread, budget) {
                (false, u64::MAX) => wire.end,
                (false, budget) => wire.end.min(budget),
                (true, budget) => wire.end.min(chunk).min(budget),
            };
        }
        self.object = Some(Object { length, validator: head.validator.clone() });
        self.outputs.push_back(Output::Sized(length));
        // Not before: where every server refuses, the end says it once for all.
        for (id, path) in &mut self.paths {
            if path.refused.take().is_some()
                && let Some(fault) = path.fault.clone()
            {
                self.outputs.push_back(Output::Note(Note::Dropped { path: *id, fault }));
            }
        }
        // With one path there is nothing to say about not using another.
        if let Some(note) = note
            && self.paths.len() > 1
        {
            self.outputs.push_back(Output::Note(note));
        }
    }

    /// The first answer is none that brings the object. Another path may be luckier: it may talk to
    /// another server, or come from another country.
    fn refuse(&mut self, id: RequestId, status: u16) {
        let Some(path) = self.requests.remove(&id).map(|request| request.path) else { return };
        self.outputs.push_back(Output::Cancel { request: id });
        let Some(path) = self.paths.get_mut(&path) else { return };
        path.throughput.pause();
        path.state = State::Dropped;
        path.refused = Some(status);
        let words = format!("the server answered with status {status}");
        path.fault = Some(Fault::lasting(FaultClass::Unfit, words));
    }

    /// A later answer: it must be of the same object.
    fn check(&mut self, now: Time, id: RequestId, head: &Head) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let Some(object) = &self.object else { return };
        let path = request.path;
        let unfit = match judge(head, request.wire, object) {
            Ok(range) => {
                request.wire = range;
                request.end = request.end.min(range.end);
                self.ranges_work = true;
                return;
            }
            Err(unfit) => unfit,
        };
        let words = match unfit {
            Unfit::NoRanges if !self.ranges_work => {
                return self.give_up_ranges(now, id);
            }
            Unfit::NoRanges => "the server answered a range request with the whole object".into(),
            Unfit::Changed => "the server has another version of the object there".into(),
            Unfit::NoContentRange => {
                "the server sent a part of the object without Content-Range".into()
            }
            Unfit::WrongContentRange => {
                "the server sent another part of the object than was asked for".into()
            }
            Unfit::Status(status) => format!("the server answered with status {status}"),
        };
        let busy = matches!(unfit, Unfit::Status(429 | 500..=599));
        let fault = Fault { class: FaultClass::Unfit, words, again: busy };
        self.changed |= unfit == Unfit::Changed;
        self.cancel(now, id);
        self.fail_path(now, path, fault);
    }

    /// The server has no ranges after all. Nothing but a plain answer can go on.
    fn give_up_ranges(&mut self, now: Time, asker: RequestId) {
        self.ranges_refused = true;
        self.spread = false;
        self.outputs.push_back(Output::Note(Note::NoRanges));
        self.cancel(now, asker);
        let ranged: Vec<RequestId> =
            self.requests.iter().filter(|(_, r)| !r.plain).map(|(id, _)| *id).collect();
        ranged.into_iter().for_each(|id| self.cancel(now, id));
        match self.requests.keys().next().copied() {
            Some(plain) => {
                let Some(path) = self.requests.get(&plain).map(|r| r.path) else { return };
                let more = self.budget(path);
                if let Some(plain) = self.requests.get_mut(&plain) {
                    plain.end = plain.wire.end.min(plain.end.saturating_add(more));
                }
            }
            None => {
                let words = "the server does not answer range requests";
                self.restart(Fault::lasting(FaultClass::Unfit, words));
            }
        }
    }

    fn bytes(&mut self, now: Time, id: RequestId, length: u64) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let piece = Range::new(request.pos, request.pos.saturating_add(length));
        if !request.answered || piece.end > request.wire.end {
            let words = "the server sent more than it announced";
            let fault = Fault::passing(FaultClass::Protocol, words);
            self.outputs.push_back(Output::Disconnect { path: request.path });
            return self.fail_request(now, id, fault);
        }
        request.pos = piece.end;
        request.last = now;
        let mut useful = 0;
        for gap in self.done.gaps(piece) {
            useful += gap.len();
            let skip = gap.start - piece.start;
            self.outputs.push_back(Output::Write {
                request: id,
                at: gap.start,
                skip,
                length: gap.len(),
            });
        }
        self.done.insert(piece);
        if let Some(path) = self.paths.get_mut(&request.path) {
            path.throughput.observe(now, length);
            path.stats.useful += useful;
            path.stats.duplicate += length - useful;
            if useful > 0 {
                path.failures = 0;
            }
        }
        self.advance(now, id);
        // Where two race for the same bytes, the others may have nothing left to bring.
        if self.requests.values().any(|request| request.racing) {
            let others: Vec<RequestId> = self.requests.keys().copied().collect();
            others.into_iter().for_each(|id| self.advance(now, id));
        }
    }

    /// After progress: does this request go on, take more, or end?
    fn advance(&mut self, now: Time, id: RequestId) {
        let Some(request) = self.requests.get(&id) else { return };
        if !request.answered || request.pos >= request.wire.end {
            return;
        }
        let owed = Range::new(request.pos, request.end);
        if !self.done.covers(owed) {
            if request.racing && !self.is_owned(owed) {
                // The one that raced against it is gone.
                if let Some(request) = self.requests.get_mut(&id) {
                    request.racing = false;
                }
            }
            return;
        }
        if !self.spread {
            // Only an allowance ends the single request before its end. Nothing can go on from
            // there, but a path without a price can bring all of it.
            let path = request.path;
            if self.paths.values().any(|path| !path.metered && path.state != State::Dropped) {
                let words = "its allowance is spent, and nothing can be added to what it brought";
                return self.fail_path(now, path, Fault::lasting(FaultClass::Unfit, words));
            }
            return self.fail(Reason::AllowanceSpent);
        }
        let (path, rest) = (request.path, Range::new(request.pos, request.wire.end));
        let free = self.free(rest).next().filter(|free| free.start == rest.start);
        let more = free.map_or(0, Range::len).min(self.config.chunk.as_bytes());
        let more = more.min(self.budget(path));
        match self.requests.get_mut(&id) {
            Some(request) if more > 0 && !request.racing => request.end = request.pos + more,
            _ => self.cancel(now, id),
        }
    }

    /// Whether a request that counts owes some of these bytes.
    fn is_owned(&self, range: Range) -> bool {
        self.requests
            .values()
            .any(|request| !request.racing && request.pos < range.end && range.start < request.end)
    }

    /// The parts of `within` that are neither there nor asked for.
    pub(super) fn free(&self, within: Range) -> std::vec::IntoIter<Range> {
        let mut taken = self.done.clone();
        for request in self.requests.values().filter(|request| !request.racing) {
            taken.insert(Range::new(request.pos, request.end));
        }
        taken.gaps(within).collect::<Vec<_>>().into_iter()
    }

    fn finished(&mut self, now: Time, id: RequestId) {
        let Some(request) = self.requests.get(&id) else { return };
        let (path, pos, wire) = (request.path, request.pos, request.wire);
        if !request.answered {
            let fault = Fault::passing(FaultClass::Protocol, "an end without an answer");
            return self.fail_request(now, id, fault);
        }
        if pos < wire.end && wire.end < u64::MAX {
            let words = "the server ended the body before its announced length";
            return self.fail_request(now, id, Fault::passing(FaultClass::Truncated, words));
        }
        if let Some(object) = &mut self.object
            && object.length.is_none()
        {
            object.length = Some(pos);
            self.outputs.push_back(Output::Sized(Some(pos)));
        }
        self.requests.remove(&id);
        self.rest(now, path);
    }

    /// Ends a request that is not wanted any more.
    fn cancel(&mut self, now: Time, id: RequestId) {
        if let Some(request) = self.requests.remove(&id) {
            self.outputs.push_back(Output::Cancel { request: id });
            self.rest(now, request.path);
        }
    }

    fn rest(&mut self, now: Time, path: PathId) {
        if let Some(path) = self.paths.get_mut(&path) {
            path.throughput.pause();
            path.state = State::Idle(now);
        }
    }

    fn fail_request(&mut self, now: Time, id: RequestId, fault: Fault) {
        if let Some(request) = self.requests.get(&id) {
            self.fail_path(now, request.path, fault);
        }
    }

    /// Takes a path's request back and decides when the path is tried again.
    fn fail_path(&mut self, now: Time, id: PathId, fault: Fault) {
        let attempts = self.config.attempts;
        let Some(path) = self.paths.get_mut(&id) else { return };
        if path.state == State::Dropped {
            return;
        }
        let request = match path.state {
            State::Busy(request) => self.requests.remove(&request),
            _ => None,
        };
        path.throughput.pause();
        path.failures += 1;
        path.fault = Some(fault.clone());
        if fault.again && path.failures < attempts {
            let pause = self.config.pause * (1 << (path.failures - 1).min(6));
            path.state = State::Waiting(now + pause);
        } else {
            path.state = State::Dropped;
            self.outputs.push_back(Output::Disconnect { path: id });
            // When it was the last one, the end says it all.
            if self.paths.values().any(|path| path.state != State::Dropped) {
                let fault = fault.clone();
                self.outputs.push_back(Output::Note(Note::Dropped { path: id, fault }));
            }
        }
        // Bytes without a version cannot be continued by another answer.
        if request.is_some() && self.object.is_some() && !self.spread {
            self.restart(fault);
        }
    }

    fn restart(&mut self, fault: Fault) {
        if self.restarts >= self.config.restarts {
            return self.fail(Reason::CannotContinue(fault));
        }
        self.restarts += 1;
        self.object = None;
        if !self.done.is_empty() {
            self.done = Ranges::new();
            self.outputs.push_back(Output::Note(Note::Restarted));
            self.outputs.push_back(Output::Restart);
        }
    }

    fn nonsense(&mut self, words: &str) {
        self.fail(Reason::Nonsense(words.to_owned()));
    }

    fn fail(&mut self, reason: Reason) {
        self.end(Output::Failed(reason));
    }

    fn end(&mut self, how: Output) {
        for (id, _) in std::mem::take(&mut self.requests) {
            self.outputs.push_back(Output::Cancel { request: id });
        }
        self.outputs.push_back(how);
        self.over = true;
    }

    /// Whether a path may be used at all.
    pub(super) fn allowed(&self, path: &Path) -> bool {
        !path.metered
            || match self.config.metered {
                Allowance::All => true,
                Allowance::Nothing => false,
                Allowance::Limit(limit) => self.metered_bytes() < limit,
            }
    }

    /// Whether a path that is not connected should be.
    pub(super) fn wants(&self, path: &Path) -> bool {
        (self.object.is_none() || self.spread) && self.allowed(path)
    }

    pub(super) fn stalls_at(&self, request: &Request) -> Time {
        let others = self.paths.iter().any(|(id, path)| {
            *id != request.path && path.state != State::Dropped && self.allowed(path)
        });
        let movable = self.object.is_none() || self.spread;
        let patience = if others && movable { self.config.stall } else { self.config.stall_alone };
        request.last + patience
    }

    /// Gives up what took too long.
    fn expire(&mut self, now: Time) {
        let stalled = self.requests.iter().filter(|(_, r)| self.stalls_at(r) <= now);
        let stalled: Vec<(PathId, Span)> =
            stalled.map(|(_, r)| (r.path, now.since(r.last))).collect();
        for (path, silence) in stalled {
            let words = format!("nothing came for {:.0} s", silence.as_secs_f64());
            self.outputs.push_back(Output::Disconnect { path });
            self.fail_path(now, path, Fault::passing(FaultClass::Stalled, words));
        }
        let late = self.paths.iter().filter(|(_, path)| {
            matches!(path.state, State::Connecting(since) if since + self.config.connect <= now)
        });
        let late: Vec<PathId> = late.map(|(id, _)| *id).collect();
        for path in late {
            self.outputs.push_back(Output::Disconnect { path });
            let words = format!("no connection within {:.0} s", self.config.connect.as_secs_f64());
            self.fail_path(now, path, Fault::passing(FaultClass::Connect, words));
        }
    }

    /// Is the fetch over?
    fn conclude(&mut self) {
        if self.over {
            return;
        }
        if let Some(Object { length: Some(length), .. }) = self.object
            && self.done.total() == length
        {
            return self.end(Output::Done);
        }
        let hope = |path: &Path| match path.state {
            State::Waiting(_) | State::Connecting(_) => self.wants(path),
            _ => false,
        };
        if !self.requests.is_empty() || self.paths.values().any(hope) {
            return;
        }
        let refusal = self.paths.values().find_map(|path| path.refused);
        let agree = |path: &Path| path.state != State::Dropped || path.refused == refusal;
        let reason = if let Some(status) = refusal.filter(|_| self.paths.values().all(agree)) {
            Reason::Status(status)
        } else if self.paths.values().any(|path| path.state != State::Dropped) {
            Reason::AllowanceSpent
        } else if self.changed {
            Reason::Changed
        } else {
            let faults = self.paths.iter();
            let faults = faults.filter_map(|(id, path)| Some((*id, path.fault.clone()?)));
            Reason::NoPathLeft(faults.collect())
        };
        self.fail(reason);
    }
}
