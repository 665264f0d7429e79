//! Inputs in an order that a correct shell would not produce: every state of a fetch remains among
//! the combinations in the module's documentation.

use manyways_unit::{Rate, Size, Span, Time};
use proptest::prelude::*;

use crate::estimate::PathEstimate;
use crate::fetch::object::{ObjectState, Versions};
use crate::fetch::path::{Connection, DropCause, PathState};
use crate::fetch::request::RequestKind;
use crate::fetch::transfer::Phase;
use crate::fetch::{
    Config, ContentRange, CutMethod, Fetch, Head, Input, MeteredUse, Object, Output, PathError,
    PathErrorKind, PathId, Range, Ranges, RequestId, Scheduler, Validator,
};

const LENGTH: u64 = 400_000;
/// Maximum number of outputs for one input; a fetch with more outputs is assumed not to end.
const MAX_OUTPUTS: usize = 10_000;

/// A report of a shell. A number identifies a request by its age: 0 and 1 mean requests that the
/// step fits, larger ones mean any request.
#[derive(Clone, Debug)]
enum Step {
    Wait(Span),
    Wakeup,
    Up { path: usize, metered: bool, known: bool },
    Down(usize),
    Connected { path: usize, multiplexed: bool },
    ConnectFailed { path: usize, again: bool },
    Pong(usize),
    TransportRtt(usize),
    PingFailed(usize),
    Response { ago: usize, answer: Response },
    Bytes { ago: usize, length: u64 },
    Finished(usize),
    Failed { ago: usize, class: PathErrorKind, again: bool },
    Late { path: usize, length: u64 },
    Consumed(u64),
}

/// Possible responses of a server.
#[derive(Clone, Copy, Debug)]
enum Response {
    Asked,
    Short,
    Whole,
    WithoutRanges,
    WithoutValidator,
    WithoutLength,
    Encoded,
    OtherVersion,
    WrongRange,
    UnknownWhole,
    Empty,
    LoginPage,
    Redirected,
    Status(u16),
}

fn response() -> impl Strategy<Value = Response> {
    prop_oneof![
        12 => Just(Response::Asked),
        2 => Just(Response::Short),
        2 => Just(Response::Whole),
        1 => Just(Response::WithoutRanges),
        1 => Just(Response::WithoutValidator),
        1 => Just(Response::WithoutLength),
        1 => Just(Response::Encoded),
        1 => Just(Response::OtherVersion),
        1 => Just(Response::WrongRange),
        1 => Just(Response::UnknownWhole),
        1 => Just(Response::Empty),
        1 => Just(Response::LoginPage),
        2 => Just(Response::Redirected),
        1 => prop::sample::select(vec![203, 204, 299, 404, 412, 416, 429, 503, 511])
            .prop_map(Response::Status),
    ]
}

fn class() -> impl Strategy<Value = PathErrorKind> {
    prop_oneof![
        Just(PathErrorKind::Reset),
        Just(PathErrorKind::GoAway),
        Just(PathErrorKind::Truncated),
        Just(PathErrorKind::EnhanceYourCalm),
        Just(PathErrorKind::RefusedStream),
        Just(PathErrorKind::Http1Required),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let path = || 0usize..3;
    let ago = || prop_oneof![4 => Just(0usize), 2 => Just(1), 1 => 2usize..5];
    let flag = any::<bool>;
    prop_oneof![
        3 => (1u64..300).prop_map(|ms| Step::Wait(Span::from_millis(ms))),
        2 => Just(Step::Wakeup),
        2 => (path(), prop::bool::weighted(0.3), flag())
            .prop_map(|(path, metered, known)| Step::Up { path, metered, known }),
        1 => path().prop_map(Step::Down),
        8 => (path(), prop::bool::weighted(0.7))
            .prop_map(|(path, multiplexed)| Step::Connected { path, multiplexed }),
        1 => (path(), flag()).prop_map(|(path, again)| Step::ConnectFailed { path, again }),
        1 => path().prop_map(Step::Pong),
        1 => path().prop_map(Step::TransportRtt),
        1 => path().prop_map(Step::PingFailed),
        8 => (ago(), response()).prop_map(|(ago, answer)| Step::Response { ago, answer }),
        12 => (ago(), 1u64..60_000).prop_map(|(ago, length)| Step::Bytes { ago, length }),
        3 => ago().prop_map(Step::Finished),
        2 => (ago(), class(), prop::bool::weighted(0.8))
            .prop_map(|(ago, class, again)| Step::Failed { ago, class, again }),
        1 => (path(), 1u64..50_000).prop_map(|(path, length)| Step::Late { path, length }),
        1 => (0u64..LENGTH).prop_map(Step::Consumed),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 0..160)
}

fn config() -> impl Strategy<Value = Config> {
    let scheduler = prop_oneof![
        5 => Just(Scheduler::MpH2),
        1 => Just(Scheduler::FixedChunk(Size::from_bytes(50_000))),
        1 => Just(Scheduler::MsPlayer),
        1 => Just(Scheduler::EqualSplit),
        1 => Just(Scheduler::Single),
    ];
    let metered = prop_oneof![
        3 => Just(MeteredUse::Unlimited),
        1 => Just(MeteredUse::Forbidden),
        2 => (0u64..LENGTH).prop_map(|bytes| MeteredUse::Limit(Size::from_bytes(bytes))),
    ];
    let length = prop_oneof![3 => Just(None), 1 => Just(Some(LENGTH)), 1 => Just(Some(LENGTH * 2))];
    let ahead = prop_oneof![3 => Just(None), 1 => (1u64..LENGTH).prop_map(Some)];
    let stop = prop_oneof![4 => Just(None), 1 => (1u64..LENGTH).prop_map(Some)];
    let resume = prop_oneof![4 => Just(false), 1 => Just(true)];
    let end = prop_oneof![3 => Just(CutMethod::Window), 1 => Just(CutMethod::Reset)];
    (scheduler, metered, length, ahead, stop, resume, end, any::<bool>()).prop_map(
        |(scheduler, metered, length, ahead, stop_after, resume, range_end, pipelining)| Config {
            scheduler,
            metered,
            length,
            read_ahead: ahead,
            stop_after,
            cut_method: range_end,
            pipelining,
            resume: resume.then(|| {
                let done: Ranges =
                    [Range::new(0, 1_000), Range::new(70_000, 90_000)].into_iter().collect();
                (Object { length: Some(LENGTH), validator: Some(version("\"1\"")) }, done)
            }),
            ..Config::default()
        },
    )
}

fn version(tag: &str) -> Validator {
    Validator::Etag(tag.to_owned())
}

/// The head of `answer` to a request for `range`.
fn head(answer: Response, range: Option<Range>) -> Head {
    let whole = Head {
        status: 200,
        length: Some(LENGTH),
        content_range: None,
        validator: Some(version("\"1\"")),
        ..Head::default()
    };
    let part = |range: Range, length: Option<u64>| Head {
        status: 206,
        length: Some(range.len()),
        content_range: Some(Some(ContentRange { range: Some(range), length })),
        ..whole.clone()
    };
    let unsatisfied = ContentRange { range: None, length: Some(LENGTH) };
    let asked = range.map(|range| Range::new(range.start, range.end.min(LENGTH)));
    if asked.is_some_and(Range::is_empty) {
        return Head { status: 416, content_range: Some(Some(unsatisfied)), ..whole };
    }
    let good = asked.map_or(whole.clone(), |requested| part(requested, Some(LENGTH)));
    match (answer, asked) {
        (Response::Asked, _) => good,
        (Response::Short, Some(requested)) => part(
            Range::new(requested.start, requested.start + requested.len().div_ceil(2)),
            Some(LENGTH),
        ),
        (Response::Whole | Response::Short, _) => whole,
        (Response::WithoutRanges, _) => Head { refuses_ranges: true, ..good },
        (Response::WithoutValidator, _) => Head { validator: None, ..good },
        (Response::WithoutLength, _) => Head { length: None, ..whole },
        (Response::Encoded, _) => Head { is_encoded: true, ..good },
        (Response::OtherVersion, _) => Head { validator: Some(version("\"2\"")), ..whole },
        (Response::WrongRange, Some(requested)) => {
            part(Range::new(requested.start + 1, requested.end), Some(LENGTH))
        }
        (Response::UnknownWhole, Some(requested)) => part(requested, None),
        (Response::WrongRange | Response::UnknownWhole, None) => {
            part(Range::new(0, LENGTH), Some(LENGTH))
        }
        (Response::Empty, _) => Head { length: Some(0), ..whole },
        (Response::LoginPage, _) => {
            Head { length: Some(37), validator: None, is_uncacheable_page: true, ..whole }
        }
        (Response::Redirected, _) => Head { other_host: Some("other.test".into()), ..good },
        (Response::Status(status), _) => Head { status, length: None, ..whole },
    }
}

/// A sent request.
#[derive(Debug)]
struct SentRequest {
    id: RequestId,
    range: Option<Range>,
    answered: bool,
}

/// A fetch, and all requests that it has sent.
#[derive(Debug)]
struct DrivenFetch {
    fetch: Fetch,
    now: Time,
    requests: Vec<SentRequest>,
    connecting: Vec<PathId>,
}

impl DrivenFetch {
    fn new(config: Config) -> Self {
        let fetch = Fetch::new(config);
        let mut driven =
            Self { fetch, now: Time::ZERO, requests: Vec::new(), connecting: Vec::new() };
        for (path, metered) in [(0, false), (1, true)] {
            driven
                .fetch
                .handle(Time::ZERO, Input::PathUp { path: PathId(path), metered, known: None });
        }
        driven.take(&Step::Wakeup);
        driven
    }

    /// The request `ago` before the last one, for a step that fits answered requests or not.
    fn ago(&self, ago: usize, answered: bool) -> Option<(RequestId, Option<Range>)> {
        let fits = |request: &&SentRequest| {
            request.answered == answered && self.fetch.is_under_way(request.id)
        };
        let found = match ago {
            0 | 1 => self.requests.iter().rev().filter(fits).nth(ago),
            any => self.requests.iter().rev().nth(any - 2),
        };
        found.map(|request| (request.id, request.range))
    }

    fn input(&self, step: &Step) -> Option<Input> {
        let fault = |class, again| PathError {
            kind: class,
            message: "it broke".to_owned(),
            is_retryable: again,
        };
        Some(match *step {
            Step::Wait(_) | Step::Wakeup => return None,
            Step::Up { path, metered, known } => {
                let conditions =
                    PathEstimate { rate: Rate::from_mbps(4), rtt: Span::from_millis(30) };
                Input::PathUp { path: PathId(path), metered, known: known.then_some(conditions) }
            }
            Step::Down(path) => Input::PathDown { path: PathId(path) },
            Step::Connected { path, multiplexed } => {
                let connecting = self.connecting.last().copied();
                let path = connecting.unwrap_or(PathId(path));
                Input::Connected { path, multiplexed, rtt: None }
            }
            Step::ConnectFailed { path, again } => Input::ConnectFailed {
                path: PathId(path),
                error: fault(PathErrorKind::Connect, again),
            },
            Step::Pong(path) => Input::Pong { path: PathId(path) },
            Step::TransportRtt(path) => {
                Input::TransportRtt { path: PathId(path), rtt: Span::from_millis(20) }
            }
            Step::PingFailed(path) => Input::PingFailed { path: PathId(path) },
            Step::Response { ago, answer } => {
                let (request, range) = self.ago(ago, false)?;
                Input::Head { request, head: head(answer, range) }
            }
            Step::Bytes { ago, length } => Input::Bytes { request: self.ago(ago, true)?.0, length },
            Step::Finished(ago) => Input::Finished { request: self.ago(ago, true)?.0 },
            Step::Failed { ago, class, again } => {
                Input::Failed { request: self.ago(ago, true)?.0, error: fault(class, again) }
            }
            Step::Late { path, length } => Input::Late { path: PathId(path), length },
            Step::Consumed(upto) => Input::Consumed { end: upto },
        })
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Wait(span) => self.now += *span,
            Step::Wakeup => self.now = self.now.max(self.fetch.next_wakeup().unwrap_or(self.now)),
            _ => {}
        }
        if let Some(input) = self.input(step) {
            match &input {
                Input::Head { request, .. } => {
                    let sent = self.requests.iter_mut().find(|sent| sent.id == *request);
                    sent.into_iter().for_each(|sent| sent.answered = true);
                }
                Input::Connected { path, .. } => self.connecting.retain(|other| other != path),
                _ => {}
            }
            self.fetch.handle(self.now, input);
        }
        let mut outputs = 0;
        while let Some(output) = self.fetch.poll(self.now) {
            outputs += 1;
            assert!(outputs < MAX_OUTPUTS, "the outputs do not end at {}", self.now);
            match output {
                Output::Request { request: id, range, .. } => {
                    self.requests.push(SentRequest { id, range, answered: false });
                }
                Output::Check { request: id, range, .. } => {
                    self.requests.push(SentRequest { id, range: Some(range), answered: false });
                }
                Output::Connect { path, .. } => self.connecting.push(path),
                _ => {}
            }
        }
        self.fetch.check_states();
    }
}

impl Fetch {
    /// Panics unless the state is one of the combinations in the module's documentation.
    pub fn check_states(&self) {
        self.check_object();
        for (id, path) in &self.paths {
            let load = self.load_of(*id);
            let is_fine = match path.state {
                PathState::Ready { connection: Connection::Sequential, .. } => load <= 1,
                PathState::Ready { connection: Connection::Multiplexed, .. } => load <= 2,
                PathState::Ready { connection: Connection::Draining, .. } => load == 1,
                PathState::Dropped(DropCause::OtherVersion) => {
                    load == 0 && self.versions == Versions::Differ
                }
                PathState::Dropped(DropCause::Refused(_)) => load == 0 && self.object.is_unknown(),
                _ => load == 0,
            };
            assert!(is_fine || self.is_finished(), "{load} requests on {path:?} of {self:#?}");
        }
        for request in self.requests.values() {
            let is_fine = request.next_offset <= request.requested.end
                && request.end <= request.requested.end
                && (!request.is_question() || self.is_doubtful() && !request.is_answered())
                && self.paths.contains_key(&request.path);
            assert!(is_fine, "{request:?} of {self:#?}");
            let owed = Range::new(request.next_offset, request.end);
            let is_needless = !owed.is_empty() && self.done.covers(owed);
            assert!(!is_needless || !request.is_owner(), "{request:?} of {self:#?}");
        }
    }

    fn check_object(&self) {
        let mut requests = self.requests.values();
        let is_fine = match &self.object {
            _ if self.phase == Phase::Finished => requests.next().is_none(),
            ObjectState::Unknown { .. } => {
                self.done.is_empty()
                    && !self.is_doubtful()
                    && requests.all(|r| !r.is_answered() && r.kind != RequestKind::ConditionalRange)
            }
            ObjectState::Ranged(_) => true,
            ObjectState::WholeOnly { .. } => {
                let mut rest = self.requests.values().filter(|request| !request.is_question());
                let is_waiting = self.is_doubtful() && self.is_complete();
                (rest.next().is_some() || is_waiting)
                    && requests.all(|r| r.kind == RequestKind::Whole || r.requested.start == 0)
            }
        };
        assert!(is_fine, "{self:#?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_input_leads_out_of_the_documented_states(config in config(), steps in steps()) {
        let mut driven = DrivenFetch::new(config);
        for step in &steps {
            driven.take(step);
        }
    }
}
