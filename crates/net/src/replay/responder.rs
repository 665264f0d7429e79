//! The recorded response to a request, adapted to it and to the time. No I/O.

mod partial;
mod shortcut;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use manyways_model::matching::{Answer, Difference, Hit, Request, Session};
use manyways_unit::{Span, Time};

use self::partial::Part;
use self::shortcut::Shortcut;
use super::contents::{Contents, End, Prepared, decoded_body};
use super::head::{Head, HeadField};

/// Field of the response to a request that no recorded exchange answers.
pub const MISS_FIELD: (&str, &str) = ("Manyways-Replay", "miss");
const MISS_TEXT: &str = "No recorded exchange answers this request.\n";
/// Fields of the head of a whole response that one without a body, or with a part of it, does not have.
const OF_WHOLE: [&str; 5] =
    ["content-length", "content-range", "transfer-encoding", "trailer", "accept-ranges"];
/// Fields that describe a body, and are left out of 304 (RFC 9110, 15.4.5) and 416.
const OF_CONTENT: [&str; 3] = ["content-type", "content-encoding", "content-language"];

/// The time from a request to its response.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Think {
    /// As the recorded server took it; zero if it is unknown.
    #[default]
    Recorded,
    Zero,
    /// This multiple of the recorded time. Negative numbers count as zero.
    Scaled(f64),
}

/// The answer if no recorded exchange answers its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Miss {
    /// A response with status 404 and [`MISS_FIELD`].
    #[default]
    NotFound,
    /// The connection of HTTP/1 is closed, the stream of HTTP/2 reset.
    Close,
}

/// How a recording is replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Options {
    pub think: Think,
    pub miss: Miss,
}

/// Whether a recorded exchange answered a request. Exchanges are numbers of
/// [`Archive::exchanges`](manyways_wire::archive::Archive::exchanges).
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Hit {
        exchange: usize,
    },
    Approximate {
        exchange: usize,
        /// Share of the weight that is equal, up to 1.
        score: f64,
        differences: Vec<Difference>,
    },
    Miss {
        /// The most similar exchange of the host.
        nearest: Option<usize>,
    },
}

/// The answer to a request.
#[derive(Debug)]
pub struct Reply {
    pub outcome: Outcome,
    /// From the last byte of the request to the first byte of the response.
    pub think: Span,
    /// With their times from the last byte of the request, in order.
    pub interim: Vec<(Span, Arc<Head>)>,
    /// `None` if there is no response.
    pub response: Option<Response>,
    pub end: End,
}

/// A response.
#[derive(Debug)]
pub struct Response {
    pub head: Arc<Head>,
    pub content: Content,
    /// Length of the content.
    pub length: u64,
    pub trailers: Arc<[HeadField]>,
    /// Whether the recorded connection went on after it.
    pub is_continued: bool,
    /// Whether nothing is missing at its end.
    pub is_whole: bool,
}

/// The body of a response.
#[derive(Clone, Debug)]
pub enum Content {
    /// None, and none is expected: the request is HEAD, or the status allows none.
    None,
    Recorded {
        exchange: usize,
        range: Range<u64>,
    },
    Text(Bytes),
}

/// Decides about the requests of one replay.
#[derive(Debug)]
pub struct Responder {
    contents: Arc<Contents>,
    options: Options,
    /// Seconds from the beginning of the recording to that of the replay.
    distance: i64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    session: Session,
    shortcut: Shortcut,
    /// The last head of an exchange, with the seconds by which its dates were moved.
    heads: HashMap<usize, (i64, Arc<Head>)>,
}

impl Responder {
    /// Starts a replay now: at a time since 1970.
    pub fn new(contents: Arc<Contents>, options: Options, now: Time) -> Self {
        let all = 0..contents.archive().exchanges.len();
        let first = all.filter_map(|number| contents.prepared(number)?.recorded).min();
        let distance = first.map_or(0, |first| seconds_between(first, now));
        let shortcut = Shortcut::new(&contents);
        let state = Mutex::new(State { shortcut, ..State::default() });
        Self { contents, options, distance, state }
    }

    pub fn contents(&self) -> &Arc<Contents> {
        &self.contents
    }

    /// Decides about a request, whose last byte has arrived. Its body has its content coding, and may be
    /// cut behind [`MAX_MATCHED_BODY`](super::MAX_MATCHED_BODY) bytes. `now` is the time since 1970.
    pub fn respond(&self, request: &Request<'_>, now: Time) -> Reply {
        let mut state = self.lock();
        if let Some(exchange) = state.shortcut.find(request)
            && let Some(prepared) = self.contents.prepared(exchange)
        {
            let head = self.head(&mut state, exchange, prepared, now);
            drop(state);
            let hit = Outcome::Hit { exchange };
            return self.whole(hit, exchange, prepared, head, request.method == "HEAD");
        }
        let body = decoded_body(request.fields, request.body);
        let asked = Request { body: &body, ..*request };
        let answer = self.contents.index().find(&mut state.session, &asked);
        if let Answer::Hit(hit) = &answer {
            state.shortcut.learn(request, *hit);
        }
        let (hit, outcome) = match answer {
            Answer::Hit(hit) => (hit, Outcome::Hit { exchange: hit.id }),
            Answer::Approximate { hit, score, differences } => {
                (hit, Outcome::Approximate { exchange: hit.id, score, differences })
            }
            Answer::Miss { nearest } => {
                return self.miss(nearest.map(|candidate| candidate.id), request.method == "HEAD");
            }
        };
        let Some(prepared) = self.contents.prepared(hit.id) else {
            return self.unanswered(outcome, hit.id);
        };
        let head = self.head(&mut state, hit.id, prepared, now);
        drop(state);
        self.answer(outcome, hit, prepared, head, request)
    }

    /// An answer from the whole recorded response.
    fn answer(
        &self,
        outcome: Outcome,
        hit: Hit,
        prepared: &Prepared,
        head: Arc<Head>,
        request: &Request<'_>,
    ) -> Reply {
        let is_whole = prepared.status == 200 && prepared.end == End::Complete;
        let is_head = request.method == "HEAD";
        let adapted = match is_whole {
            true if hit.is_conditional && partial::is_not_modified(&head, request.fields) => {
                Some((not_modified(&head), None))
            }
            true if hit.is_range && !is_head => {
                match partial::range(&head, request.fields, prepared.length) {
                    Part::Whole => None,
                    Part::Range(range) => Some((part(&head, &range, prepared.length), Some(range))),
                    Part::Unsatisfiable => {
                        Some((unsatisfiable(&head, prepared.length), Some(0..0)))
                    }
                }
            }
            _ => None,
        };
        let mut reply = self.whole(outcome, hit.id, prepared, head, is_head);
        if let (Some((head, range)), Some(response)) = (adapted, &mut reply.response) {
            response.head = Arc::new(head);
            response.trailers = Arc::default();
            response.length = range.as_ref().map_or(0, |range| range.end - range.start);
            response.content = match range {
                Some(range) => Content::Recorded { exchange: hit.id, range },
                None => Content::None,
            };
        }
        reply
    }

    fn whole(
        &self,
        outcome: Outcome,
        exchange: usize,
        prepared: &Prepared,
        head: Arc<Head>,
        is_head: bool,
    ) -> Reply {
        let is_empty = is_head || matches!(prepared.status, 204 | 304);
        let length = if is_empty { 0 } else { prepared.length };
        let content = match is_empty {
            true => Content::None,
            false => Content::Recorded { exchange, range: 0..length },
        };
        let trailers = if is_empty { Arc::default() } else { prepared.trailers.clone() };
        let interim = prepared.interim.iter().map(|interim| {
            let protocol = Some(prepared.protocol);
            let head =
                Head::new(interim.status, reason(interim.status), protocol, interim.fields.clone());
            (self.scaled(interim.after), Arc::new(head))
        });
        let interim = interim.collect();
        let is_continued = prepared.is_continued;
        let end = if is_empty { End::Complete } else { prepared.end };
        let is_whole = end == End::Complete;
        Reply {
            outcome,
            think: self.think(exchange),
            interim,
            response: Some(Response { head, content, length, trailers, is_continued, is_whole }),
            end,
        }
    }

    /// The exchange has no response.
    fn unanswered(&self, outcome: Outcome, exchange: usize) -> Reply {
        let end = self.contents.exchange(exchange).map_or(End::Abort, End::of);
        let think = self.think(exchange);
        Reply { outcome, think, interim: Vec::new(), response: None, end }
    }

    fn miss(&self, nearest: Option<usize>, is_head: bool) -> Reply {
        let outcome = Outcome::Miss { nearest };
        let (think, interim) = (Span::ZERO, Vec::new());
        if self.options.miss == Miss::Close {
            return Reply { outcome, think, interim, response: None, end: End::Abort };
        }
        let fields = [
            ("Content-Type", "text/plain"),
            ("Content-Length", &MISS_TEXT.len().to_string()),
            ("Cache-Control", "no-store"),
            MISS_FIELD,
        ];
        let fields = fields
            .map(|(name, value)| HeadField::new(name, Bytes::copy_from_slice(value.as_bytes())));
        let text = Bytes::from_static(MISS_TEXT.as_bytes());
        let response = Response {
            head: Arc::new(Head::new(404, reason(404), None, fields.into())),
            content: if is_head { Content::None } else { Content::Text(text) },
            length: if is_head { 0 } else { MISS_TEXT.len() as u64 },
            trailers: Arc::default(),
            is_continued: true,
            is_whole: true,
        };
        Reply { outcome, think, interim, response: Some(response), end: End::Complete }
    }

    /// The recorded head with its dates moved: `Last-Modified` by the same seconds during a whole replay,
    /// because clients send it back, and other dates by those since this exchange was recorded.
    fn head(
        &self,
        state: &mut State,
        exchange: usize,
        prepared: &Prepared,
        now: Time,
    ) -> Arc<Head> {
        let by = prepared.recorded.map_or(0, |recorded| seconds_between(recorded, now));
        if let Some((last, head)) = state.heads.get(&exchange)
            && *last == by
        {
            return head.clone();
        }
        let moved = |(field, date): &(HeadField, Option<_>)| {
            let mut field = field.clone();
            let date: Option<super::dates::DateAt> = *date;
            if let Some(date) = date {
                let by = if field.is("last-modified") { self.distance } else { by };
                let mut value = field.value.to_vec();
                date.write_moved(by, &mut value);
                field.value = value.into();
            }
            field
        };
        let fields = prepared.fields.iter().map(moved).collect();
        let head = Head::new(prepared.status, &prepared.reason, Some(prepared.protocol), fields);
        let head = Arc::new(head);
        state.heads.insert(exchange, (by, head.clone()));
        head
    }

    fn think(&self, exchange: usize) -> Span {
        let recorded = self.contents.exchange(exchange).and_then(|exchange| exchange.think);
        self.scaled(recorded.unwrap_or(Span::ZERO))
    }

    fn scaled(&self, span: Span) -> Span {
        match self.options.think {
            Think::Recorded => span,
            Think::Zero => Span::ZERO,
            Think::Scaled(factor) => Span::from_secs_f64(span.as_secs_f64() * factor),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outcome {
    /// The exchange that answered.
    pub fn exchange(&self) -> Option<usize> {
        match self {
            Self::Hit { exchange } | Self::Approximate { exchange, .. } => Some(*exchange),
            Self::Miss { .. } => None,
        }
    }
}

/// Whole seconds, rounded, from a time to a later one; negative if it is earlier.
fn seconds_between(from: Time, to: Time) -> i64 {
    let rounded = |span: Span| ((span.as_nanos() + 500_000_000) / 1_000_000_000) as i64;
    rounded(to.since(from)) - rounded(from.since(to))
}

fn reason(status: u16) -> &'static str {
    let status = http::StatusCode::from_u16(status).ok();
    status.and_then(|status| status.canonical_reason()).unwrap_or_default()
}

fn not_modified(head: &Head) -> Head {
    let is_left_out =
        |field: &HeadField| OF_WHOLE.iter().chain(&OF_CONTENT).any(|name| field.is(name));
    let fields = head.fields.iter().filter(|field| !is_left_out(field)).cloned();
    Head::new(304, reason(304), head.protocol, fields.collect())
}

fn part(head: &Head, range: &Range<u64>, length: u64) -> Head {
    let sent = (range.end - range.start).to_string();
    let place = format!("bytes {}-{}/{length}", range.start, range.end.saturating_sub(1));
    with_range(head, 206, &sent, place, &[])
}

fn unsatisfiable(head: &Head, length: u64) -> Head {
    with_range(head, 416, "0", format!("bytes */{length}"), &OF_CONTENT)
}

fn with_range(head: &Head, status: u16, length: &str, range: String, without: &[&str]) -> Head {
    let is_left_out = |field: &HeadField| {
        OF_WHOLE.iter().chain(without).any(|name| field.is(name)) && !field.is("accept-ranges")
    };
    let mut fields: Vec<HeadField> =
        head.fields.iter().filter(|field| !is_left_out(field)).cloned().collect();
    fields.push(HeadField::new("Content-Range", range));
    fields.push(HeadField::new("Content-Length", length.to_owned()));
    Head::new(status, reason(status), head.protocol, fields)
}

#[cfg(test)]
mod tests;
