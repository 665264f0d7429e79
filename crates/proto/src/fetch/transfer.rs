//! The state of a fetch: paths, requests, the bytes that are there; and what each input does.

use std::collections::{BTreeMap, VecDeque};

use manyways_unit::{Size, Span, Time};

use super::answer::{judge, judge_whole};
use super::{
    Allowance, Config, Fault, FaultClass, Head, Input, Note, Object, Output, PathId, PathStats,
    Range, Ranges, Reason, RequestId, Scheduler, Unfit,
};
use crate::estimate::{Conditions, RoundTrip, Throughput};

/// The pause after a failure doubles so often at most.
const MOST_DOUBLED: u32 = 4;

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
    pub(super) ranges_work: bool,
    /// A range request was answered with the whole object.
    pub(super) ranges_refused: bool,
    /// Some path's answer was of another version.
    pub(super) changed: bool,
    /// It was begun anew because the object had changed; that happens once.
    pub(super) renewed: bool,
    /// Parts are of no use: the object is asked for as a whole.
    pub(super) all_at_once: bool,
    /// The length that the caller told, while nothing speaks against it.
    pub(super) expected: Option<u64>,
    /// Nothing from here on is asked for yet: whoever takes the bytes is not far enough.
    pub(super) horizon: u64,
    pub(super) done: Ranges,
    pub(super) outputs: VecDeque<Output>,
    pub(super) next_request: u64,
    pub(super) restarts: u32,
    pub(super) over: bool,
    /// Some path has brought something that was needed.
    pub(super) came: bool,
    /// When that was last, or when it began.
    pub(super) useful_at: Time,
    /// When a path joined or came back last.
    pub(super) joined_at: Time,
    /// It was said that nothing comes.
    pub(super) told_quiet: bool,
    /// When choices were made last.
    pub(super) polled: Time,
}

/// Where a path is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// To be connected at this moment.
    Waiting(Time),
    Connecting(Time),
    /// Connected, and without a request since then if it has none.
    Ready(Time),
    /// Its interface is gone, and may come back.
    Down,
    /// Not to be used any more, unless its interface was gone and comes back.
    Dropped,
}

impl State {
    /// Neither gone nor given up.
    pub(super) fn is_alive(self) -> bool {
        !matches!(self, Self::Down | Self::Dropped)
    }
}

#[derive(Debug)]
pub(super) struct Path {
    pub(super) state: State,
    pub(super) metered: bool,
    /// Its connection takes several requests at once, and has flow control for each.
    pub(super) multiplexed: bool,
    /// No new requests until those that are under way have ended.
    pub(super) draining: bool,
    pub(super) throughput: Throughput,
    pub(super) round_trip: RoundTrip,
    /// From a request to the head of its answer, the latest.
    pub(super) delay: Option<Span>,
    pub(super) known: Option<Conditions>,
    /// When anything of an answer came last, or when it was asked for something while idle.
    pub(super) heard: Time,
    /// The flow-control window of its streams.
    pub(super) window: u64,
    /// What came since when: the measure of its window.
    pub(super) round: (Time, u64),
    /// What came in each of the last rounds.
    pub(super) rounds: VecDeque<u64>,
    /// What comes in a round does not grow as in slow start any more.
    pub(super) settled: bool,
    /// When the PING that is under way was sent.
    pub(super) ping_sent: Option<Time>,
    pub(super) last_ping: Option<Time>,
    /// When a round trip was measured last.
    pub(super) measured_at: Time,
    pub(super) pings: u32,
    /// What is asked for is a PING's round trip and not the kernel's.
    pub(super) takes_pings: bool,
    pub(super) failures: u32,
    pub(super) fault: Option<Fault>,
    /// Its server has another version of the object.
    pub(super) changed: bool,
    /// The status with which its server refused the first request.
    pub(super) refused: Option<u16>,
    pub(super) stats: PathStats,
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
    /// Up to here the server may send.
    pub(super) granted: u64,
    pub(super) plain: bool,
    /// It said which version of the object it wants.
    pub(super) conditional: bool,
    pub(super) answered: bool,
    /// All that it owed is also asked for elsewhere.
    pub(super) racing: bool,
    pub(super) sent: Time,
    /// How long the head of its answer was expected to take when it was sent.
    pub(super) expected: Option<Span>,
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
        let config_length = config.length.filter(|length| object.is_none() && *length > 0);
        Self {
            spread: object.is_some(),
            horizon: config.ahead.unwrap_or(u64::MAX),
            config,
            paths: BTreeMap::new(),
            requests: BTreeMap::new(),
            object,
            ranges_work: false,
            ranges_refused: false,
            changed: false,
            renewed: false,
            all_at_once: false,
            expected: config_length,
            done,
            outputs,
            next_request: 0,
            restarts: 0,
            over: false,
            came: false,
            useful_at: Time::ZERO,
            joined_at: Time::ZERO,
            told_quiet: false,
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
                    path.stats.tail += length;
                }
            }
            Input::PathUp { path, metered, known } => self.path_up(now, path, metered, known),
            Input::PathDown { path } => self.path_down(path),
            Input::Connected { path, multiplexed } => self.connected(now, path, multiplexed),
            Input::Pong { path } => {
                if let Some(path) = self.paths.get_mut(&path)
                    && let Some(sent) = path.ping_sent.take()
                {
                    path.measured_at = now;
                    path.round_trip.observe(now.since(sent));
                    path.takes_pings = true;
                }
            }
            Input::TransportRtt { path, rtt } => {
                if let Some(path) = self.paths.get_mut(&path) {
                    path.ping_sent = None;
                    path.measured_at = now;
                    path.round_trip.observe(rtt);
                    path.takes_pings = false;
                }
            }
            Input::ConnectFailed { path, fault } => {
                if self.paths.get(&path).is_some_and(|p| matches!(p.state, State::Connecting(_))) {
                    self.fail_path(now, path, fault);
                }
            }
            Input::Head { request, head } => self.head(now, request, &head),
            Input::Bytes { request, length } => self.bytes(now, request, length),
            Input::Taken { upto } => self.taken(now, upto),
            Input::Finished { request } => self.finished(now, request),
            Input::Failed { request, fault } => self.fail_request(now, request, fault),
        }
    }

    /// The next thing to do, or `None` when there is nothing to do before [`Fetch::next_wakeup`]
    /// or the next input. After [`Output::Done`] or [`Output::Failed`] there is nothing any more.
    pub fn poll(&mut self, now: Time) -> Option<Output> {
        if self.outputs.is_empty() && !self.over {
            self.polled = now;
            self.say_quiet(now);
            self.expire(now);
            self.schedule(now);
            self.ping(now);
            self.conclude(now);
        }
        let output = self.outputs.pop_front();
        if matches!(output, Some(Output::Done | Output::Failed(_))) {
            // What was still to be done about a path is not worth it any more.
            self.outputs.clear();
        }
        output
    }

    /// When to poll again although nothing happened.
    pub fn next_wakeup(&self) -> Option<Time> {
        if self.over {
            return None;
        }
        let paths = self.paths.iter().filter_map(|(id, path)| match path.state {
            State::Waiting(until) => self.wants(*id, path).then_some(until),
            State::Connecting(since) => Some(since + self.config.connect),
            _ => None,
        });
        let requests = self.requests.values().filter(|request| !self.is_held(request));
        let requests = requests.map(|request| self.stalls_at(request));
        // A choice that was not taken when its time came waits for an input.
        let choice = self.schedule_wakeup().filter(|at| *at > self.polled);
        let pings = self.paths.iter().filter_map(|(id, path)| self.pings_at(*id, path));
        let pings = pings.filter(|at| *at > self.polled);
        let silence = self.silence_matters_at();
        paths.chain(requests).chain(choice).chain(pings).chain(silence).min()
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
            rtt: path.round_trip.mean().or(path.delay),
            ..path.stats
        })
    }

    /// How long the head of a request's answer was expected to take when it was sent.
    pub fn expected_delay(&self, request: RequestId) -> Option<Span> {
        self.requests.get(&request)?.expected
    }

    /// The application round trip of a path that was measured last.
    pub fn last_round_trip(&self, path: PathId) -> Option<Span> {
        self.paths.get(&path)?.round_trip.last()
    }

    /// The bytes that metered paths brought, needed or not.
    pub fn metered_bytes(&self) -> Size {
        let metered = self.paths.values().filter(|path| path.metered);
        Size::from_bytes(metered.map(|path| path.stats.useful + path.stats.duplicate).sum())
    }

    fn path_up(&mut self, now: Time, id: PathId, metered: bool, known: Option<Conditions>) {
        let waiting = State::Waiting(now);
        if self.paths.is_empty() {
            self.useful_at = now;
        }
        match self.paths.get_mut(&id) {
            Some(path) => {
                path.metered = metered;
                path.known = known.or(path.known);
                if !path.state.is_alive() {
                    self.joined_at = now;
                    path.state = waiting;
                    path.failures = 0;
                    path.refused = None;
                    path.changed = false;
                }
            }
            None => {
                self.joined_at = now;
                let path = Path {
                    state: waiting,
                    metered,
                    multiplexed: false,
                    draining: false,
                    throughput: Throughput::default(),
                    round_trip: RoundTrip::default(),
                    delay: None,
                    known,
                    heard: now,
                    window: self.first_window(known),
                    round: (now, 0),
                    rounds: VecDeque::new(),
                    settled: false,
                    ping_sent: None,
                    last_ping: None,
                    measured_at: now,
                    pings: 0,
                    takes_pings: true,
                    failures: 0,
                    fault: None,
                    changed: false,
                    refused: None,
                    stats: PathStats::default(),
                };
                self.paths.insert(id, path);
            }
        }
    }

    /// A path that was given up is not gone: it comes back only where that is told once more.
    fn path_down(&mut self, id: PathId) {
        let Some(path) = self.paths.get_mut(&id) else { return };
        if !path.state.is_alive() {
            return;
        }
        let fault = Fault::passing(FaultClass::Down, "its link is down");
        path.state = State::Down;
        path.fault = Some(fault.clone());
        self.take_back(id, fault);
        self.outputs.push_back(Output::Disconnect { path: id });
    }

    pub(super) fn connect(&mut self, now: Time, id: PathId) {
        let window = self.first_window(self.paths.get(&id).and_then(|path| path.known));
        let Some(path) = self.paths.get_mut(&id) else { return };
        path.state = State::Connecting(now);
        path.window = window;
        self.outputs.push_back(Output::Connect { path: id, window: path.window });
    }

    fn connected(&mut self, now: Time, id: PathId, multiplexed: bool) {
        let Some(path) = self.paths.get_mut(&id) else { return };
        if !matches!(path.state, State::Connecting(_)) {
            return;
        }
        path.state = State::Ready(now);
        path.multiplexed = multiplexed;
        path.draining = false;
        path.ping_sent = None;
        path.last_ping = None;
        path.round = (now, 0);
        path.rounds.clear();
        path.settled = false;
    }

    /// How far the fetch may go for now, once that is known and bytes of several answers may be
    /// mixed.
    pub(super) fn goal(&self) -> Option<u64> {
        Some(self.aim()?.min(self.horizon))
    }

    /// How far it goes in the end.
    pub(super) fn aim(&self) -> Option<u64> {
        let length = match &self.object {
            Some(object) if self.spread => object.length?,
            Some(_) => return None,
            None => self.expected?,
        };
        Some(length.min(self.config.stop_after.unwrap_or(u64::MAX)))
    }

    /// What a path may still bring, with what it was asked for already.
    pub(super) fn budget(&self, path: PathId) -> u64 {
        self.budget_but(path, None)
    }

    /// The same, with what one request has to bring.
    fn budget_but(&self, path: PathId, but: Option<RequestId>) -> u64 {
        let metered = |id: PathId| self.paths.get(&id).is_some_and(|path| path.metered);
        if !metered(path) {
            return u64::MAX;
        }
        match self.config.metered {
            Allowance::All => u64::MAX,
            Allowance::Nothing => 0,
            Allowance::Limit(limit) => {
                // What the server has credit for may come, wanted or not.
                let owed = |request: &Request| {
                    let open = if self.can_cut(request.path) { request.granted } else { 0 };
                    request.end.max(open.min(request.wire.end)).saturating_sub(request.pos)
                };
                let others = self.requests.iter().filter(|(id, _)| Some(**id) != but);
                let others = others.filter(|(_, request)| metered(request.path));
                let owed: u64 = others.map(|(_, request)| owed(request)).sum();
                limit.saturating_sub(self.metered_bytes()).as_bytes().saturating_sub(owed)
            }
        }
    }

    /// Sends a request for `wire`, of which the bytes up to `end` are wanted.
    pub(super) fn send(&mut self, now: Time, id: PathId, wire: Range, end: u64) {
        let idle = self.load_of(id) == 0;
        let expected = self.response_delay(id);
        let chunked =
            matches!(self.config.scheduler, Scheduler::FixedChunk(_)) && !self.all_at_once;
        // The first answer tells most when all is asked for: length, validator, ranges or not.
        let plain =
            self.object.is_none() && wire.start == 0 && !chunked && self.budget(id) == u64::MAX;
        let wire = if plain { Range::new(0, u64::MAX) } else { wire };
        let Some(path) = self.paths.get_mut(&id) else { return };
        let request = RequestId(self.next_request);
        self.next_request += 1;
        path.stats.requests += 1;
        if idle {
            path.heard = now;
        }
        let granted = match path.multiplexed {
            true => wire.start.saturating_add(path.window),
            false if self.config.ahead.is_some() => wire.start,
            false => u64::MAX,
        };
        let validator = self.object.as_ref().and_then(|object| object.validator.clone());
        self.requests.insert(
            request,
            Request {
                path: id,
                wire,
                pos: wire.start,
                end,
                granted,
                plain,
                conditional: validator.is_some(),
                answered: false,
                racing: false,
                sent: now,
                expected,
            },
        );
        let range = (!plain).then_some(wire);
        self.outputs.push_back(Output::Request { request, path: id, range, if_range: validator });
        if end < wire.end {
            self.outputs.push_back(Output::RangeEnd { request, end });
        }
        self.grant(request);
    }

    fn head(&mut self, now: Time, id: RequestId, head: &Head) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        if request.answered {
            let fault = Fault::passing(FaultClass::Protocol, "a second answer to one request");
            return self.fail_request(now, id, fault);
        }
        request.answered = true;
        if let Some(path) = self.paths.get_mut(&request.path) {
            path.heard = now;
            path.delay = Some(now.since(request.sent));
            if !path.throughput.is_running() {
                path.throughput.resume(now);
                path.round = (now, 0);
            }
        }
        if self.object.is_none() { self.open(now, id, head) } else { self.check(now, id, head) }
    }

    /// The first answer: it says what the object is.
    fn open(&mut self, now: Time, id: RequestId, head: &Head) {
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
            // The length that the caller told is wrong.
            (416, false, _) if request.wire.start > 0 => {
                self.expected = None;
                return self.cancel(now, id);
            }
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
        let part = head.status == 206 && Some(request.wire.len()) != length;
        if note.is_some() && part {
            // A part that cannot be put together with others is of no use where all may be asked
            // for.
            let (path, start) = (request.path, request.wire.start);
            if start > 0 || self.budget(path) == u64::MAX {
                self.expected = None;
                self.all_at_once = true;
                return self.cancel(now, id);
            }
        }
        let Some(request) = self.requests.get_mut(&id) else { return };
        self.spread = note.is_none();
        if head.status == 200 {
            // A server without ranges sends all, whatever was asked for.
            self.ranges_refused |= !request.plain;
            self.spread &= request.plain || request.wire.start == 0;
            request.wire = Range::new(0, length.unwrap_or(u64::MAX));
            request.pos = 0;
        }
        let (path, wire) = (request.path, request.wire);
        let planned = self.expected.take().map(|_| request.end);
        let budget = self.budget_but(path, Some(id)).saturating_add(wire.start);
        self.object = Some(Object { length, validator: head.validator.clone() });
        let goal = self.goal().unwrap_or(u64::MAX);
        if let Some(request) = self.requests.get_mut(&id) {
            request.end = wire.end.min(budget).min(goal);
            if self.spread {
                request.end = request.end.min(planned.unwrap_or(u64::MAX));
            }
        }
        self.settle_others(now, id, length);
        self.grant(id);
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

    /// What others were asked for before the length was known has to be within it.
    fn settle_others(&mut self, now: Time, first: RequestId, length: Option<u64>) {
        let others: Vec<RequestId> =
            self.requests.keys().copied().filter(|id| *id != first).collect();
        for id in others {
            let Some(request) = self.requests.get_mut(&id) else { continue };
            let limit = length.unwrap_or(0);
            if !self.spread || request.wire.start >= limit {
                self.cancel(now, id);
            } else if !request.plain {
                request.wire.end = request.wire.end.min(limit);
                request.end = request.end.min(limit);
            }
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
        let judged = match (request.plain, object.length) {
            // It was asked for all before another answer came first.
            (true, Some(length)) => judge_whole(head, object).map(|()| Range::new(0, length)),
            _ => judge(head, request.wire, object).and_then(|range| {
                // Without If-Range only the validator tells which version the bytes are of.
                let proved = request.conditional || head.validator.is_some();
                if proved { Ok(range) } else { Err(Unfit::Changed) }
            }),
        };
        let unfit = match judged {
            Ok(range) => {
                request.wire = range;
                request.end = request.end.min(range.end);
                self.ranges_work |= !request.plain;
                return self.grant(id);
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
        if unfit == Unfit::Changed {
            self.changed = true;
            if let Some(path) = self.paths.get_mut(&path) {
                path.changed = true;
            }
        }
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
        let past = piece.end.saturating_sub(request.end.max(piece.start));
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
        let on = request.path;
        if let Some(path) = self.paths.get_mut(&on) {
            path.heard = now;
            path.throughput.observe(now, length);
            path.stats.useful += useful;
            path.stats.duplicate += length - useful;
            path.stats.tail += past;
            if useful > 0 {
                path.failures = 0;
            }
        }
        if useful > 0 {
            self.hear(now);
        }
        self.size_window(now, on, length);
        self.grant(id);
        self.advance(now, id);
        // Where two race for the same bytes, the others may have nothing left to bring.
        if self.requests.values().any(|request| request.racing) {
            let others: Vec<RequestId> = self.requests.keys().copied().collect();
            others.into_iter().for_each(|id| self.advance(now, id));
        }
    }

    /// After progress: does this request go on, take more, or end?
    pub(super) fn advance(&mut self, now: Time, id: RequestId) {
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
            if self.paths.values().any(|path| !path.metered && path.state.is_alive()) {
                let words = "its allowance is spent, and nothing can be added to what it brought";
                return self.fail_path(now, path, Fault::lasting(FaultClass::Unfit, words));
            }
            return self.fail(Reason::AllowanceSpent);
        }
        let (path, rest) = (request.path, Range::new(request.pos, request.wire.end));
        let goal = self.goal().unwrap_or(0);
        let free = self.free(rest).next().filter(|free| free.start == rest.start);
        if let Some(free) = free
            && free.start >= goal
            && self.aim() > Some(free.start)
            && !request.racing
        {
            // It goes on when more was taken.
            return;
        }
        let more = free.map_or(0, |free| free.end.min(goal).saturating_sub(free.start));
        let more = if request.racing { 0 } else { self.stretch(now, path, more) };
        match self.requests.get_mut(&id) {
            Some(request) if more > 0 => {
                request.end = request.pos + more;
                self.prolonged(id);
            }
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
        self.outputs.push_back(Output::Ended { request: id });
        self.rest(now, path);
    }

    /// Ends a request that is not wanted any more.
    fn cancel(&mut self, now: Time, id: RequestId) {
        if let Some(request) = self.requests.remove(&id) {
            self.outputs.push_back(Output::Cancel { request: id });
            self.rest(now, request.path);
        }
    }

    /// One of a path's requests is over.
    fn rest(&mut self, now: Time, id: PathId) {
        let busy = self.load_of(id) > 0;
        let Some(path) = self.paths.get_mut(&id) else { return };
        if busy {
            // What comes next is of another answer.
            return;
        }
        path.throughput.pause();
        if !matches!(path.state, State::Ready(_)) {
            return;
        }
        path.state = State::Ready(now);
        if path.draining {
            path.draining = false;
            path.state = State::Waiting(now);
            self.outputs.push_back(Output::Disconnect { path: id });
        }
    }

    fn fail_request(&mut self, now: Time, id: RequestId, fault: Fault) {
        let Some(request) = self.requests.get(&id) else { return };
        let path = request.path;
        // A server that takes no more requests still answers those before.
        if fault.class == FaultClass::GoAway && self.load_of(path) > 1 {
            self.requests.remove(&id);
            if let Some(path) = self.paths.get_mut(&path) {
                path.draining = true;
            }
            return;
        }
        self.requests.remove(&id);
        self.fail_path(now, path, fault);
    }

    /// Takes a path's requests back and decides when the path is tried again.
    fn fail_path(&mut self, now: Time, id: PathId, fault: Fault) {
        let attempts = self.config.attempts;
        let quiet = self.is_quiet(now);
        let Some(path) = self.paths.get_mut(&id) else { return };
        if !path.state.is_alive() {
            return;
        }
        path.failures += 1;
        path.fault = Some(fault.clone());
        // Where all are silent, that is no fault of this path; the silence has an end of its own.
        let dropped = !fault.again || (path.failures >= attempts && !quiet);
        if dropped {
            path.state = State::Dropped;
        } else {
            let pause = self.config.pause * (1 << (path.failures - 1).min(MOST_DOUBLED));
            path.state = State::Waiting(now + pause);
        }
        if dropped {
            self.outputs.push_back(Output::Disconnect { path: id });
            // When it was the last one, the end says it all.
            if self.paths.values().any(|path| path.state != State::Dropped) {
                let fault = fault.clone();
                self.outputs.push_back(Output::Note(Note::Dropped { path: id, fault }));
            }
        }
        self.take_back(id, fault);
    }

    /// What a path was asked for is free for others.
    fn take_back(&mut self, id: PathId, fault: Fault) {
        let lost: Vec<RequestId> = self.requests_of(id).map(|(id, _)| id).collect();
        for request in lost {
            self.requests.remove(&request);
            self.outputs.push_back(Output::Cancel { request });
        }
        if let Some(path) = self.paths.get_mut(&id) {
            path.throughput.pause();
            path.draining = false;
        }
        // Bytes without a version cannot be continued by another answer.
        if self.requests.is_empty() && self.object.is_some() && !self.spread {
            self.restart(fault);
        }
    }

    fn restart(&mut self, fault: Fault) {
        if self.restarts >= self.config.restarts {
            return self.fail(Reason::CannotContinue(fault));
        }
        self.restarts += 1;
        self.begin_anew();
    }

    fn begin_anew(&mut self) {
        self.object = None;
        self.spread = false;
        if !self.done.is_empty() {
            self.done = Ranges::new();
            // What came so far was of no use in the end.
            for path in self.paths.values_mut() {
                path.stats.duplicate += std::mem::take(&mut path.stats.useful);
            }
            self.outputs.push_back(Output::Note(Note::Restarted));
            self.outputs.push_back(Output::Restart);
        }
    }

    /// The object has changed under way, and nobody has the version that was begun: its new
    /// version is fetched, once. Whether that happened.
    fn renew(&mut self, now: Time) -> bool {
        if self.renewed || self.config.resume.is_some() {
            return false;
        }
        self.renewed = true;
        self.changed = false;
        for path in self.paths.values_mut().filter(|path| path.changed) {
            path.changed = false;
            path.failures = 0;
            path.state = State::Waiting(now);
        }
        self.begin_anew();
        self.schedule(now);
        true
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
    pub(super) fn wants(&self, id: PathId, path: &Path) -> bool {
        let single = self.config.scheduler == Scheduler::Single;
        let first = || {
            let mut alive = self.paths.iter().filter(|(_, path)| path.state.is_alive());
            alive.all(|(other, path)| {
                (path.metered, *other) >= (self.paths.get(&id).is_some_and(|p| p.metered), id)
            })
        };
        (self.object.is_none() || self.spread) && self.allowed(path) && (!single || first())
    }

    fn stalls_at(&self, request: &Request) -> Time {
        let others = self
            .paths
            .iter()
            .any(|(id, path)| *id != request.path && path.state.is_alive() && self.allowed(path));
        let movable = self.object.is_none() || self.spread;
        let patience = if others && movable { self.config.stall } else { self.config.stall_alone };
        let heard = self.paths.get(&request.path).map_or(request.sent, |path| path.heard);
        heard + patience
    }

    /// Gives up what took too long.
    fn expire(&mut self, now: Time) {
        let waiting = self.requests.iter().filter(|(_, r)| !self.is_held(r));
        let stalled = waiting.filter(|(_, r)| self.stalls_at(r) <= now);
        let stalled: BTreeMap<PathId, Span> = stalled
            .filter_map(|(_, r)| Some((r.path, now.since(self.paths.get(&r.path)?.heard))))
            .collect();
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
            self.fail_path(now, path, Fault::passing(FaultClass::Stalled, words));
        }
    }

    /// Is the fetch over?
    fn conclude(&mut self, now: Time) {
        if self.over {
            return;
        }
        if let Some(Object { length: Some(length), .. }) = self.object
            && self.done.covers(Range::new(0, self.aim().unwrap_or(length)))
        {
            return self.end(Output::Done);
        }
        let alive = self.paths.values().any(|path| path.state != State::Dropped);
        if let Some(goal) = self.goal().filter(|goal| alive && self.aim() > Some(*goal))
            && self.done.covers(Range::new(0, goal))
        {
            // It goes on when more was taken.
            return;
        }
        if self.gives_up_at() <= now && !self.waits_for_reader() {
            return self.fail(self.silence(now));
        }
        // Who said no will not say yes when another network comes back.
        let may_return = self.came || self.paths.values().all(|path| path.state != State::Dropped);
        let hope = |(id, path): (&PathId, &Path)| match path.state {
            State::Waiting(_) | State::Connecting(_) => self.wants(*id, path),
            State::Down => may_return && self.wants(*id, path),
            _ => false,
        };
        if !self.requests.is_empty() || self.paths.iter().any(hope) {
            return;
        }
        let refusal = self.paths.values().find_map(|path| path.refused);
        let agree = |path: &Path| path.state != State::Dropped || path.refused == refusal;
        let reason = if let Some(status) = refusal.filter(|_| self.paths.values().all(agree)) {
            Reason::Status(status)
        } else if self.paths.values().any(|path| path.state.is_alive()) {
            Reason::AllowanceSpent
        } else if self.changed {
            if self.renew(now) {
                return;
            }
            Reason::Changed
        } else {
            self.no_path_left()
        };
        self.fail(reason);
    }
}
