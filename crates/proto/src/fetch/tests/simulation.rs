//! Servers behind simulated links in virtual time. A link has a fixed rate and no queue. A server
//! shares the link among its streams and respects the credit of each.

use std::collections::{BTreeMap, BTreeSet};

use manyways_unit::{Rate, Size, Span, Time};

use crate::fetch::{
    Config, ContentRange, Fetch, FetchFailure, Head, Input, Note, Output, PathError, PathErrorKind,
    PathId, Range, Ranges, RequestId, Validator,
};

/// A link delivers pieces of this size, or of its bytes in [`PIECE_TIME`].
const PIECE: u64 = 16_000;
const PIECE_TIME: Span = Span::from_millis(20);
/// Minimum size of a piece: one packet.
const MIN_PIECE: u64 = 1_440;
/// In bytes (RFC 6928).
const INITIAL_CONGESTION_WINDOW: u64 = 14_480;

#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub rate: Rate,
    pub rtt: Span,
    /// From this time on the link delivers nothing, without an error.
    pub dead_from: Option<Time>,
    /// Between these times the link delivers nothing; all arrives at the end, as after the recovery
    /// of a lost burst.
    pub pause: Option<(Time, Time)>,
    pub metered: bool,
    /// Whether the connection is HTTP/2: two concurrent requests, and flow control.
    pub multiplexed: bool,
    /// Whether the server sends as TCP in slow start: a window that begins with
    /// [`INITIAL_CONGESTION_WINDOW`] and doubles in each round trip in which it is full.
    pub has_slow_start: bool,
}

impl Link {
    pub fn new(rate: Rate, rtt: Span) -> Self {
        Self {
            rate,
            rtt,
            dead_from: None,
            pause: None,
            metered: false,
            multiplexed: true,
            has_slow_start: false,
        }
    }
}

/// The server of a path.
#[derive(Clone, PartialEq, Debug)]
pub struct Server {
    pub length: u64,
    pub ranges: bool,
    pub accept_ranges: bool,
    pub sends_length: bool,
    pub validator: Option<&'static str>,
    pub status: u16,
    /// Host to which the server redirects.
    pub other_host: Option<&'static str>,
    /// Whether it sends a page that must not be stored.
    pub is_page: bool,
    /// Maximum length of the part in a response to a range request.
    pub max_part: u64,
    /// Minimum credit with which the server sends a part of a body.
    pub min_credit: u64,
    /// Time from the arrival of a request to the response.
    pub thinks: Span,
    /// Not zero.
    pub version: u8,
}

impl Server {
    pub fn of(length: u64) -> Self {
        Self {
            length,
            ranges: true,
            accept_ranges: true,
            sends_length: true,
            validator: Some("\"v\""),
            status: 200,
            other_host: None,
            is_page: false,
            max_part: u64::MAX,
            min_credit: 1,
            thinks: Span::ZERO,
            version: 1,
        }
    }

    /// Returns the response head and the range of the body.
    pub fn answer(&self, range: Option<Range>, if_range: Option<&Validator>) -> (Head, Range) {
        let validator = self.validator.map(|tag| {
            Validator::Etag(if self.version == 1 {
                tag.into()
            } else {
                format!("\"{}\"", self.version)
            })
        });
        let matches = if_range.is_none_or(|wanted| Some(wanted) == validator.as_ref());
        let all = Range::new(0, self.length);
        let mut head = Head {
            status: self.status,
            length: self.sends_length.then_some(self.length),
            content_range: None,
            validator,
            refuses_ranges: !self.accept_ranges,
            other_host: self.other_host.map(str::to_owned),
            is_uncacheable_page: self.is_page,
            ..Head::default()
        };
        let is_part = self.ranges && matches && self.status == 200;
        let Some(requested) = range.filter(|_| is_part) else { return (head, all) };
        let max = requested.start.saturating_add(self.max_part);
        let requested = Range::new(requested.start, requested.end.min(self.length).min(max));
        let length = Some(self.length);
        if requested.is_empty() {
            head.status = 416;
            head.content_range = Some(Some(ContentRange { range: None, length }));
            return (head, Range::new(0, 0));
        }
        head.status = 206;
        head.length = Some(requested.len());
        head.content_range = Some(Some(ContentRange { range: Some(requested), length }));
        (head, requested)
    }
}

/// A server's answer to every request until this time, without a body.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    pub until: Time,
    pub status: u16,
    pub retry_after: Option<Span>,
    pub is_redirected: bool,
}

impl Refusal {
    pub fn new(until: Time, status: u16) -> Self {
        Self { until, status, retry_after: None, is_redirected: false }
    }
}

/// In place of the version of a byte that is missing.
const MISSING: u8 = 0;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunOutcome {
    Done,
    Failed(FetchFailure),
}

/// An event at one of the endpoints of a path.
enum LinkEvent {
    // At the client.
    Connected,
    ConnectFailed(PathError),
    Head(RequestId, Box<Head>),
    /// With the version of its bytes.
    Piece(RequestId, Range, u8),
    Finished(RequestId),
    Failed(RequestId, PathError),
    Pong,
    // At the server.
    Request(RequestId, Option<Range>, Option<Validator>),
    Credit(RequestId, u64),
    Window(u64),
    /// The server may send this number of bytes on the connection, in total.
    Allowance(u64),
    Cancel(RequestId),
    Ping,
    /// The client's TCP has acknowledged this many bytes.
    Acked(u64),
    /// The link can carry the next piece.
    LinkFree,
}

struct Stream {
    request: RequestId,
    remaining: Range,
    /// Negative after a SETTINGS frame with smaller windows.
    credit: i128,
    /// Number of bytes after which the stream fails.
    fails_after: Option<u64>,
}

/// A connection, and the messages in flight on it.
#[derive(Default)]
struct Lane {
    due: BTreeMap<(Time, u64), LinkEvent>,
    streams: Vec<Stream>,
    /// Requests that the server cancelled before it answered them.
    cancelled: BTreeSet<RequestId>,
    window: u64,
    sending: bool,
    /// Bytes that the server has sent, and may send, in total.
    sent: u64,
    allowance: u64,
    connection: ConnectionWindow,
    /// When the server last used up the allowance although streams have credit.
    starved_since: Option<Time>,
    /// When the link has carried all that was sent.
    busy_until: Time,
    /// Index of the stream that sent last.
    last: usize,
    /// Bytes of the congestion window beyond the initial one.
    window_growth: u64,
    in_flight: u64,
}

/// The client's side of the flow control of a connection: a byte counts from its arrival until its
/// credit is granted again, or its stream ends.
#[derive(Default)]
struct ConnectionWindow {
    size: u64,
    received: u64,
    withheld: BTreeMap<RequestId, u64>,
    allowance: u64,
}

impl ConnectionWindow {
    /// Returns the server's allowance if it has grown.
    fn grown(&mut self) -> Option<u64> {
        let free = self.size.saturating_sub(self.withheld.values().sum());
        let allowance = self.received + free;
        let has_grown = allowance > self.allowance;
        self.allowance = self.allowance.max(allowance);
        has_grown.then_some(allowance)
    }
}

/// A reader that takes the bytes in order.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// Interval between two reads.
    pub pause: Span,
    /// Maximum number of bytes per read.
    pub max_read: u64,
    pub consumed: u64,
    pub next: Time,
}

fn refused() -> PathError {
    PathError::transient(PathErrorKind::Refused, "connection refused")
}

pub struct Simulation {
    pub reader: Option<Reader>,
    /// Maximum of the bytes that waited for the reader.
    pub max_waiting: u64,
    /// Lower bound of the first missing offset, if there is a reader.
    first_gap: u64,
    pub fetch: Fetch,
    pub now: Time,
    links: Vec<Link>,
    /// Server of each path; identical unless a test changes one.
    pub servers: Vec<Server>,
    lanes: Vec<Lane>,
    serial: u64,
    /// Fails the n-th response of a path after this number of bytes.
    pub failures: BTreeMap<(PathId, u64), u64>,
    counts: BTreeMap<PathId, u64>,
    failing: BTreeMap<RequestId, u64>,
    /// The version of each byte. Whole slices are compared and filled, since a test makes thousands
    /// of transfers.
    file: Vec<u8>,
    piece: Option<(u8, Range)>,
    requests: Vec<(PathId, Option<Range>)>,
    open: BTreeMap<RequestId, PathId>,
    cancels: usize,
    longest_starvation: Span,
    /// Number of checks.
    pub checks: usize,
    /// The server does not answer checks.
    pub drops_checks: bool,
    /// The servers of these paths no longer answer PINGs.
    pub ignores_pings: BTreeSet<PathId>,
    /// The servers of these paths refuse requests.
    pub refusals: BTreeMap<PathId, Refusal>,
    /// Responses on a connection at the same time; the server refuses more.
    pub max_responses: usize,
    /// All connection attempts are refused until then.
    pub down_until: Time,
    check_ids: BTreeSet<RequestId>,
    notes: Vec<Note>,
    /// Paths whose redirects were forgotten.
    pub forgotten: Vec<PathId>,
    /// Number of received bytes after each event.
    pub history: Vec<(Time, u64)>,
    /// Bytes that arrived for a cancelled request.
    late: u64,
    pub restarts: usize,
    /// Offset of the excerpt that is fetched.
    offset: u64,
}

impl Simulation {
    pub fn new(config: Config, server: Server, links: &[Link]) -> Self {
        let offset = config.excerpt.map_or(0, |excerpt| excerpt.start);
        let mut fetch = Fetch::new(config);
        for (id, link) in links.iter().enumerate() {
            let (path, metered) = (PathId(id), link.metered);
            fetch.handle(Time::ZERO, Input::PathUp { path, metered, known: None });
        }
        Self {
            reader: None,
            max_waiting: 0,
            first_gap: 0,
            fetch,
            now: Time::ZERO,
            links: links.to_vec(),
            lanes: links.iter().map(|_| Lane::default()).collect(),
            serial: 0,
            failures: BTreeMap::new(),
            counts: BTreeMap::new(),
            failing: BTreeMap::new(),
            file: vec![MISSING; server.length as usize],
            servers: vec![server; links.len()],
            piece: None,
            requests: Vec::new(),
            open: BTreeMap::new(),
            cancels: 0,
            longest_starvation: Span::ZERO,
            checks: 0,
            drops_checks: false,
            ignores_pings: BTreeSet::new(),
            refusals: BTreeMap::new(),
            max_responses: usize::MAX,
            down_until: Time::ZERO,
            check_ids: BTreeSet::new(),
            notes: Vec::new(),
            forgotten: Vec::new(),
            history: Vec::new(),
            late: 0,
            restarts: 0,
            offset,
        }
    }

    /// Writes the bytes of an earlier run.
    pub fn write_existing(&mut self, done: &Ranges) {
        for range in done.iter() {
            self.file[range.start as usize..range.end as usize].fill(self.servers[0].version);
        }
    }

    pub fn run(&mut self) -> RunOutcome {
        let end = self.run_unchecked();
        if end == RunOutcome::Done {
            self.check_file();
        }
        end
    }

    /// As [`Simulation::run`], if the fetched version is not that of the first path.
    pub fn run_unchecked(&mut self) -> RunOutcome {
        loop {
            if let Some(end) = self.step(Time::MAX) {
                return end;
            }
        }
    }

    /// Whether all bytes belong to the same version.
    pub fn is_one_version(&self) -> bool {
        self.file.first().is_none_or(|version| *version != MISSING && self.is_all_of(*version))
    }

    pub fn is_all_of(&self, version: u8) -> bool {
        self.file == vec![version; self.file.len()]
    }

    pub fn run_to_the_end(&mut self) -> Time {
        assert_eq!(self.run(), RunOutcome::Done);
        self.now
    }

    pub fn run_until(&mut self, until: Time) {
        while self.now < until && self.step(until).is_none() {}
    }

    /// Executes the outputs of the core, and then the next event.
    pub fn step(&mut self, until: Time) -> Option<RunOutcome> {
        while let Some(output) = self.fetch.poll(self.now) {
            if let Some(end) = self.execute(output) {
                assert_eq!(self.fetch.poll(self.now), None, "an output after the end");
                assert_eq!(self.fetch.next_wakeup(), None);
                return Some(end);
            }
        }
        self.fetch.check_states();
        let lanes = self.lanes.iter().enumerate();
        let event = lanes.filter_map(|(path, lane)| Some((*lane.due.keys().next()?, path))).min();
        let wakeup = self.fetch.next_wakeup();
        if self.reader.is_some() {
            let rest = &self.file[self.first_gap as usize..];
            let read = rest.iter().position(|version| *version == MISSING);
            self.first_gap += read.unwrap_or(rest.len()) as u64;
        }
        let reads = self.reader.filter(|reader| self.first_gap > reader.consumed);
        let reads = reads.map(|reader| reader.next.max(self.now));
        if let (Some(at), Some(reader)) = (reads, &mut self.reader)
            && event.is_none_or(|((next, _), _)| at <= next)
            && wakeup.is_none_or(|next| at <= next)
        {
            self.now = at;
            reader.next = at + reader.pause;
            reader.consumed = self.first_gap.min(reader.consumed + reader.max_read);
            self.fetch.handle(at, Input::Consumed { end: reader.consumed });
            return None;
        }
        let next = event.map(|((at, _), _)| at).into_iter().chain(wakeup).min();
        let next = next.expect("nothing will ever happen again");
        assert!(
            next > self.now || event.is_some_and(|((at, _), _)| at <= self.now),
            "the core spins at {}",
            self.now
        );
        if next >= until {
            self.now = until;
            return None;
        }
        self.now = self.now.max(next);
        if let Some((key @ (at, _), path)) = event
            && at <= self.now
            && let Some(due) = self.lanes[path].due.remove(&key)
        {
            self.process(PathId(path), due);
        }
        None
    }

    /// Half a round trip from now, plus `more`.
    fn send(&mut self, path: PathId, more: Span, due: LinkEvent) {
        let half = Span::from_nanos(self.links[path.0].rtt.as_nanos() / 2);
        self.at(path, self.now + half + more, due);
    }

    fn at(&mut self, path: PathId, at: Time, due: LinkEvent) {
        self.serial += 1;
        self.lanes[path.0].due.insert((at, self.serial), due);
    }

    fn process(&mut self, path: PathId, due: LinkEvent) {
        let link = self.links[path.0];
        if link.dead_from.is_some_and(|dead| self.now >= dead) {
            return;
        }
        if let Some((from, to)) = link.pause
            && (from..to).contains(&self.now)
        {
            return self.at(path, to, due);
        }
        let lane = &mut self.lanes[path.0];
        let stream = |lane: &mut Lane, id: RequestId| {
            lane.streams.iter().position(|stream| stream.request == id)
        };
        let input = match due {
            LinkEvent::Request(request, ..) if lane.cancelled.contains(&request) => return,
            LinkEvent::Request(request, range, if_range) => {
                let window = match (link.multiplexed, self.reader) {
                    (true, _) => lane.window,
                    (false, None) => u64::MAX,
                    (false, Some(_)) => 0,
                };
                let breaks = self.failing.remove(&request);
                let (mut head, mut rest) = self.servers[path.0].answer(range, if_range.as_ref());
                let busy = Refusal::new(Time::MAX, 503);
                let refusal = match lane.streams.len() < self.max_responses {
                    true => self.refusals.get(&path).filter(|refusal| self.now < refusal.until),
                    false => Some(&busy),
                };
                if let Some(refusal) = refusal {
                    let &Refusal { status, retry_after, is_redirected, .. } = refusal;
                    head = Head { status, retry_after, is_redirected, ..Head::default() };
                    rest = Range::new(0, 0);
                }
                lane.streams.push(Stream {
                    request,
                    remaining: rest,
                    credit: i128::from(window),
                    fails_after: breaks,
                });
                let waits = lane.busy_until.since(self.now);
                self.send(path, waits, LinkEvent::Head(request, Box::new(head)));
                return self.send_next_piece(path);
            }
            LinkEvent::Credit(request, bytes) => {
                if let Some(i) = stream(lane, request) {
                    lane.streams[i].credit += i128::from(bytes);
                }
                return self.send_next_piece(path);
            }
            LinkEvent::Window(bytes) => {
                let more = i128::from(bytes) - i128::from(lane.window);
                lane.window = bytes;
                lane.streams.iter_mut().for_each(|stream| stream.credit += more);
                return self.send_next_piece(path);
            }
            LinkEvent::Allowance(total) => {
                lane.allowance = lane.allowance.max(total);
                return self.send_next_piece(path);
            }
            LinkEvent::Cancel(request) => {
                lane.streams.retain(|stream| stream.request != request);
                lane.cancelled.insert(request);
                return;
            }
            LinkEvent::Ping if self.ignores_pings.contains(&path) => return,
            LinkEvent::Ping => return self.send(path, Span::ZERO, LinkEvent::Pong),
            LinkEvent::LinkFree => {
                lane.sending = false;
                return self.send_next_piece(path);
            }
            LinkEvent::Acked(bytes) => {
                if 2 * lane.in_flight > INITIAL_CONGESTION_WINDOW + lane.window_growth {
                    lane.window_growth += bytes;
                }
                lane.in_flight -= bytes;
                return self.send_next_piece(path);
            }
            LinkEvent::Connected => {
                let (multiplexed, rtt) = (link.multiplexed, Some(link.rtt));
                Input::Connected { path, multiplexed, rtt }
            }
            LinkEvent::ConnectFailed(error) => Input::ConnectFailed { path, error },
            LinkEvent::Failed(request, fault) => {
                self.open.remove(&request);
                Input::Failed { request, error: fault }
            }
            LinkEvent::Finished(request) => {
                self.open.remove(&request);
                self.release(path, request, u64::MAX);
                Input::Finished { request }
            }
            LinkEvent::Head(request, head) => Input::Head { request, head: *head },
            LinkEvent::Pong => Input::Pong { path },
            LinkEvent::Piece(request, piece, _) if !self.open.contains_key(&request) => {
                self.late += piece.len();
                self.receive(path, None, piece.len());
                Input::Late { path, length: piece.len() }
            }
            LinkEvent::Piece(request, piece, version) => {
                self.piece = Some((version, piece));
                self.receive(path, Some(request), piece.len());
                Input::Bytes { request, length: piece.len() }
            }
        };
        self.fetch.handle(self.now, input);
        if let Some(reader) = self.reader {
            let waiting = self.fetch.done().total().saturating_sub(reader.consumed);
            self.max_waiting = self.max_waiting.max(waiting);
        }
        self.history.push((self.now, self.fetch.done().total()));
    }

    /// Counts bytes that arrived; those of an ended stream are released at once.
    fn receive(&mut self, path: PathId, request: Option<RequestId>, bytes: u64) {
        let connection = &mut self.lanes[path.0].connection;
        connection.received += bytes;
        if let Some(request) = request {
            *connection.withheld.entry(request).or_default() += bytes;
        }
        self.allow(path);
    }

    /// Releases received bytes of a stream.
    fn release(&mut self, path: PathId, request: RequestId, bytes: u64) {
        let connection = &mut self.lanes[path.0].connection;
        if let Some(withheld) = connection.withheld.get_mut(&request) {
            *withheld = withheld.saturating_sub(bytes);
            if *withheld == 0 {
                connection.withheld.remove(&request);
            }
        }
        self.allow(path);
    }

    /// Sends the server a larger allowance.
    fn allow(&mut self, path: PathId) {
        if let Some(total) = self.lanes[path.0].connection.grown() {
            self.send(path, Span::ZERO, LinkEvent::Allowance(total));
        }
    }

    /// Sends a server's next piece if the link is free and a stream has credit.
    fn send_next_piece(&mut self, path: PathId) {
        let Link { rate, rtt, multiplexed, has_slow_start, .. } = self.links[path.0];
        let lane = &mut self.lanes[path.0];
        if lane.sending || lane.streams.is_empty() {
            return;
        }
        let min_credit = self.servers[path.0].min_credit;
        let allowed = if multiplexed { lane.allowance - lane.sent } else { u64::MAX };
        let count = lane.streams.len();
        let turn = (1..=count).map(|i| (lane.last + i) % count).find(|i| {
            let stream = &lane.streams[*i];
            stream.credit >= i128::from(stream.remaining.len().min(min_credit))
        });
        let Some(turn) = turn else { return };
        let congestion_window = INITIAL_CONGESTION_WINDOW + lane.window_growth;
        let room = match has_slow_start {
            true => congestion_window.saturating_sub(lane.in_flight),
            false => u64::MAX,
        };
        let stream = &mut lane.streams[turn];
        if !stream.remaining.is_empty() {
            if room == 0 {
                return;
            }
            if allowed == 0 {
                lane.starved_since.get_or_insert(self.now);
                return;
            }
        }
        if let Some(since) = lane.starved_since.take() {
            self.longest_starvation = self.longest_starvation.max(self.now.since(since));
        }
        lane.last = turn;
        let request = stream.request;
        let piece = rate.size_in(PIECE_TIME).as_bytes().clamp(MIN_PIECE, PIECE);
        let credit = u64::try_from(stream.credit.max(0)).unwrap_or(u64::MAX);
        let max = piece.min(credit).min(allowed).min(room);
        let mut length = stream.remaining.len().min(max);
        if let Some(remaining) = &mut stream.fails_after {
            length = length.min(*remaining);
            *remaining -= length;
        }
        if length == 0 {
            let broken = stream.fails_after == Some(0) && !stream.remaining.is_empty();
            lane.streams.remove(turn);
            let error = PathError::transient(PathErrorKind::Reset, "the connection broke");
            let due = if broken {
                LinkEvent::Failed(request, error)
            } else {
                LinkEvent::Finished(request)
            };
            self.send(path, Span::ZERO, due);
            return self.send_next_piece(path);
        }
        let start = stream.remaining.start;
        stream.remaining.start += length;
        stream.credit -= i128::from(length);
        lane.sent += length;
        lane.sending = true;
        let time = rate.time_for(Size::from_bytes(length));
        lane.busy_until = self.now + time;
        let piece = Range::new(start, start + length);
        self.send(path, time, LinkEvent::Piece(request, piece, self.servers[path.0].version));
        if has_slow_start {
            self.lanes[path.0].in_flight += length;
            self.at(path, self.now + time + rtt, LinkEvent::Acked(length));
        }
        self.at(path, self.now + time, LinkEvent::LinkFree);
    }

    fn execute(&mut self, output: Output) -> Option<RunOutcome> {
        match output {
            Output::Connect { path, window, connection_window } => {
                self.close_connection(path);
                let lane = &mut self.lanes[path.0];
                lane.window = window;
                lane.connection.size = connection_window;
                lane.allowance = connection_window;
                lane.connection.allowance = connection_window;
                let at = self.now + self.links[path.0].rtt;
                let due = match self.now < self.down_until {
                    true => LinkEvent::ConnectFailed(refused()),
                    false => LinkEvent::Connected,
                };
                self.at(path, at, due);
            }
            Output::Disconnect { path } => self.close_connection(path),
            Output::Request { request, path, range, if_range } => {
                let max = if self.links[path.0].multiplexed { 2 } else { 1 };
                let open = self.open.iter();
                let open = open.filter(|(id, on)| **on == path && !self.check_ids.contains(id));
                let there = open.count();
                assert!(there < max, "{} requests on one path", there + 1);
                self.open.insert(request, path);
                self.requests.push((path, range));
                let count = self.counts.entry(path).or_default();
                if let Some(after) = self.failures.get(&(path, *count)) {
                    self.failing.insert(request, *after);
                }
                *count += 1;
                let thinks = self.servers[path.0].thinks;
                self.send(path, thinks, LinkEvent::Request(request, range, if_range));
            }
            Output::Check { request, path, range, if_range } => {
                self.checks += 1;
                self.check_ids.insert(request);
                if !self.drops_checks {
                    self.open.insert(request, path);
                    let due = LinkEvent::Request(request, Some(range), Some(if_range));
                    self.send(path, self.servers[path.0].thinks, due);
                }
            }
            Output::Cancel { request } => {
                self.cancels += usize::from(!self.check_ids.contains(&request));
                if let Some(path) = self.open.remove(&request) {
                    self.release(path, request, u64::MAX);
                    if self.links[path.0].multiplexed {
                        self.send(path, Span::ZERO, LinkEvent::Cancel(request));
                    } else {
                        self.close_connection(path);
                    }
                }
            }
            Output::Window { path, bytes } => self.send(path, Span::ZERO, LinkEvent::Window(bytes)),
            Output::ConnectionWindow { path, bytes } => {
                self.lanes[path.0].connection.size = bytes;
                self.allow(path);
            }
            Output::Credit { request, bytes } => {
                if let Some(path) = self.open.get(&request).copied() {
                    self.send(path, Span::ZERO, LinkEvent::Credit(request, bytes));
                    self.release(path, request, bytes);
                }
            }
            Output::Ping { path } => {
                if self.links[path.0].multiplexed {
                    self.send(path, Span::ZERO, LinkEvent::Ping);
                } else if self.open_requests(path) > 0 {
                    // The exchange holds the connection.
                    self.fetch.handle(self.now, Input::PingFailed { path });
                } else {
                    let rtt = self.links[path.0].rtt;
                    self.fetch.handle(self.now, Input::TransportRtt { path, rtt });
                }
            }
            Output::Cut { .. } | Output::Ended { .. } => {}
            Output::ForgetRedirect { path } => self.forgotten.push(path),
            Output::Write { offset: at, skip, length, .. } => {
                let (version, piece) = self.piece.expect("a write without a piece");
                let at = at + self.offset;
                assert_eq!(piece.start + skip, at);
                assert!(at + length <= piece.end);
                let part = &mut self.file[at as usize..(at + length) as usize];
                assert!(*part == vec![MISSING; part.len()], "bytes after {at} are written twice");
                part.fill(version);
            }
            Output::Restart => {
                self.restarts += 1;
                self.file.fill(MISSING);
            }
            Output::LengthKnown(_) => {}
            Output::Note(note) => self.notes.push(note),
            Output::Done => return Some(RunOutcome::Done),
            Output::Failed(reason) => return Some(RunOutcome::Failed(reason)),
        }
        None
    }

    /// Checks that every byte exists and equals the server's.
    pub fn check_file(&self) {
        let version = self.servers[0].version;
        let wrong = || self.file.iter().position(|byte| *byte != version);
        assert!(self.is_all_of(version), "the first wrong or missing byte is {:?}", wrong());
    }

    /// Checks that these bytes, and no others, exist and equal the server's.
    pub fn check_part(&self, part: Range) {
        for (version, at) in self.file.iter().zip(0..) {
            let is_in = part.start <= at && at < part.end;
            assert_eq!(*version, if is_in { self.servers[0].version } else { MISSING }, "{at}");
        }
    }

    /// Discards all messages in flight.
    fn close_connection(&mut self, path: PathId) {
        self.lanes[path.0] = Lane::default();
        self.open.retain(|_, on| *on != path);
    }

    /// Fails a request on `path`, or its connection attempt.
    pub fn fail_request(&mut self, path: PathId, fault: PathError) {
        let requests: Vec<RequestId> =
            self.open.iter().filter(|(_, on)| **on == path).map(|(id, _)| *id).collect();
        self.close_connection(path);
        if requests.is_empty() {
            self.fetch.handle(self.now, Input::ConnectFailed { path, error: fault.clone() });
        }
        for request in requests {
            self.fetch.handle(self.now, Input::Failed { request, error: fault.clone() });
        }
    }

    /// Number of open requests on `path`.
    pub fn open_requests(&self, path: PathId) -> usize {
        self.open.values().filter(|on| **on == path).count()
    }

    /// Fails the latest request on `path`; its connection remains.
    pub fn refuse_request(&mut self, path: PathId, error: PathError) {
        let request = self.open.iter().rfind(|(_, on)| **on == path).map(|(id, _)| *id);
        let request = request.expect("an open request");
        self.open.remove(&request);
        self.fetch.handle(self.now, Input::Failed { request, error });
    }

    /// The server goes down until then: it resets the connections, and refuses new ones.
    pub fn shut_down(&mut self, until: Time) {
        self.down_until = until;
        for path in 0..self.links.len() {
            let reset = PathError::transient(PathErrorKind::Reset, "the connection broke");
            self.fail_request(PathId(path), reset);
        }
    }

    /// Removes or restores an interface.
    pub fn set_up(&mut self, path: PathId, up: bool) {
        if !up {
            self.close_connection(path);
            self.fetch.handle(self.now, Input::PathDown { path });
        } else {
            let metered = self.links[path.0].metered;
            self.fetch.handle(self.now, Input::PathUp { path, metered, known: None });
        }
    }

    /// From now on, and for this time, the path delivers nothing; all arrives at the end. Pauses do
    /// not overlap.
    pub fn pause(&mut self, path: PathId, pause: Span) {
        self.links[path.0].pause = Some((self.now, self.now + pause));
    }

    /// Stops or resumes the delivery over a path.
    pub fn set_dead(&mut self, path: PathId, dead: bool) {
        self.links[path.0].dead_from = dead.then_some(self.now);
    }

    /// Adds a path to a server like the first one.
    pub fn join(&mut self, link: Link) {
        let path = PathId(self.links.len());
        self.links.push(link);
        self.lanes.push(Lane::default());
        self.servers.push(self.servers[0].clone());
        self.set_up(path, true);
    }

    pub fn set_rate(&mut self, path: PathId, rate: Rate) {
        self.links[path.0].rate = rate;
    }

    pub fn requests(&self) -> &[(PathId, Option<Range>)] {
        &self.requests
    }

    pub fn cancels(&self) -> usize {
        self.cancels
    }

    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Window of the streams of a path's server.
    pub fn window(&self, path: PathId) -> u64 {
        self.lanes[path.0].window
    }

    /// Longest time for which the window of a connection kept the server from sending.
    pub fn longest_starvation(&self) -> Span {
        let open = self.lanes.iter().filter_map(|lane| lane.starved_since);
        let open = open.map(|since| self.now.since(since));
        open.fold(self.longest_starvation, Span::max)
    }

    /// Bytes that arrived for cancelled requests.
    pub fn wasted(&self) -> u64 {
        (0..self.links.len()).map(|path| self.fetch.stats(self.now, PathId(path)).duplicate).sum()
    }

    /// Number of received bytes at that time.
    pub fn done_by(&self, at: Time) -> u64 {
        let before = self.history.iter().take_while(|(when, _)| *when <= at);
        before.last().map_or(0, |(_, done)| *done)
    }
}
