//! Servers behind simulated links in virtual time. A link has a fixed rate and no queue. A server
//! shares the link among its streams and respects the credit of each.

use std::collections::BTreeMap;

use manyways_unit::{Rate, Size, Span, Time};

use crate::fetch::{
    Config, ContentRange, Fault, FaultClass, Fetch, Head, Input, Note, Output, PathId, Range,
    Ranges, Reason, RequestId, Validator,
};

/// A link delivers pieces of this size, or of its bytes in [`PIECE_TIME`].
const PIECE: u64 = 16_000;
const PIECE_TIME: Span = Span::from_millis(20);
/// Minimum size of a piece: one packet.
const LEAST_PIECE: u64 = 1_440;

#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub rate: Rate,
    pub rtt: Span,
    /// From this time on the link delivers nothing, without an error.
    pub dead_from: Option<Time>,
    pub metered: bool,
    /// Whether the connection is HTTP/2: two concurrent requests, and flow control.
    pub multiplexed: bool,
}

impl Link {
    pub fn new(rate: Rate, rtt: Span) -> Self {
        Self { rate, rtt, dead_from: None, metered: false, multiplexed: true }
    }
}

/// The server of a path.
#[derive(Clone, Debug)]
pub struct Server {
    pub length: u64,
    pub ranges: bool,
    pub accept_ranges: bool,
    pub tells_length: bool,
    pub validator: Option<&'static str>,
    /// Maximum length of the part in a response to a range request.
    pub most: u64,
    /// Each version has different bytes.
    pub version: u8,
}

impl Server {
    pub fn of(length: u64) -> Self {
        Self {
            length,
            ranges: true,
            accept_ranges: true,
            tells_length: true,
            validator: Some("\"v\""),
            most: u64::MAX,
            version: 1,
        }
    }

    /// The byte at an offset.
    pub fn byte(&self, at: u64) -> u8 {
        (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ self.version
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
            status: 200,
            length: self.tells_length.then_some(self.length),
            content_range: None,
            validator,
            refuses_ranges: !self.accept_ranges,
            encoded: false,
        };
        let Some(asked) = range.filter(|_| self.ranges && matches) else { return (head, all) };
        let most = asked.start.saturating_add(self.most);
        let asked = Range::new(asked.start, asked.end.min(self.length).min(most));
        let length = Some(self.length);
        if asked.is_empty() {
            head.status = 416;
            head.content_range = Some(Some(ContentRange { range: None, length }));
            return (head, Range::new(0, 0));
        }
        head.status = 206;
        head.length = Some(asked.len());
        head.content_range = Some(Some(ContentRange { range: Some(asked), length }));
        (head, asked)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    Done,
    Failed(Reason),
}

/// An event at one of the endpoints of a path.
enum Due {
    // At the client.
    Connected,
    Head(RequestId, Box<Head>),
    Piece(RequestId, Range),
    Finished(RequestId),
    Failed(RequestId, Fault),
    Pong,
    // At the server.
    Request(RequestId, Option<Range>, Option<Validator>),
    Credit(RequestId, u64),
    Window(u64),
    Cancel(RequestId),
    Ping,
    /// The link can carry the next piece.
    Free,
}

struct Stream {
    request: RequestId,
    rest: Range,
    credit: u64,
    /// Number of bytes after which the stream fails.
    breaks: Option<u64>,
}

/// A connection, and the messages in flight on it.
#[derive(Default)]
struct Lane {
    due: BTreeMap<(Time, u64), Due>,
    streams: Vec<Stream>,
    window: u64,
    sending: bool,
    /// Index of the stream that sent last.
    last: usize,
}

/// A reader that takes the bytes in order.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// Interval between two reads.
    pub pause: Span,
    /// Maximum number of bytes per read.
    pub most: u64,
    pub taken: u64,
    pub next: Time,
}

pub struct World {
    pub reader: Option<Reader>,
    /// Maximum of the bytes that waited for the reader.
    pub waited: u64,
    /// Lower bound of the first missing offset.
    first_gap: u64,
    pub fetch: Fetch,
    pub now: Time,
    links: Vec<Link>,
    /// Server of each path; identical unless a test changes one.
    pub servers: Vec<Server>,
    lanes: Vec<Lane>,
    serial: u64,
    /// Fails the n-th response of a path after this number of bytes.
    pub breaks: BTreeMap<(PathId, u64), u64>,
    counts: BTreeMap<PathId, u64>,
    breaking: BTreeMap<RequestId, u64>,
    file: Vec<Option<u8>>,
    piece: Option<(PathId, Range)>,
    requests: Vec<(PathId, Option<Range>)>,
    open: BTreeMap<RequestId, PathId>,
    cancels: usize,
    notes: Vec<Note>,
    history: Vec<(Time, u64)>,
    /// Bytes that arrived for a cancelled request.
    late: u64,
    pub restarts: usize,
}

impl World {
    pub fn new(config: Config, server: Server, links: &[Link]) -> Self {
        let mut fetch = Fetch::new(config);
        for (id, link) in links.iter().enumerate() {
            let (path, metered) = (PathId(id), link.metered);
            fetch.handle(Time::ZERO, Input::PathUp { path, metered, known: None });
        }
        Self {
            reader: None,
            waited: 0,
            first_gap: 0,
            fetch,
            now: Time::ZERO,
            links: links.to_vec(),
            lanes: links.iter().map(|_| Lane::default()).collect(),
            serial: 0,
            breaks: BTreeMap::new(),
            counts: BTreeMap::new(),
            breaking: BTreeMap::new(),
            file: vec![None; server.length as usize],
            servers: vec![server; links.len()],
            piece: None,
            requests: Vec::new(),
            open: BTreeMap::new(),
            cancels: 0,
            notes: Vec::new(),
            history: Vec::new(),
            late: 0,
            restarts: 0,
        }
    }

    /// Writes the bytes of an earlier run.
    pub fn put(&mut self, done: &Ranges) {
        for range in done.iter() {
            for at in range.start..range.end {
                self.file[at as usize] = Some(self.servers[0].byte(at));
            }
        }
    }

    pub fn run(&mut self) -> End {
        let end = self.run_unchecked();
        if end == End::Done {
            self.check_file();
        }
        end
    }

    /// As [`World::run`], if the fetched version is not that of the first path.
    pub fn run_unchecked(&mut self) -> End {
        loop {
            if let Some(end) = self.step(Time::MAX) {
                return end;
            }
        }
    }

    /// Whether all bytes belong to the same version.
    pub fn is_one_version(&self) -> bool {
        self.servers.iter().any(|server| {
            self.file.iter().zip(0..).all(|(byte, at)| *byte == Some(server.byte(at)))
        })
    }

    pub fn run_to_the_end(&mut self) -> Time {
        assert_eq!(self.run(), End::Done);
        self.now
    }

    pub fn run_until(&mut self, until: Time) {
        while self.now < until && self.step(until).is_none() {}
    }

    /// Executes the outputs of the core, and then the next event.
    pub fn step(&mut self, until: Time) -> Option<End> {
        while let Some(output) = self.fetch.poll(self.now) {
            if let Some(end) = self.act(output) {
                assert_eq!(self.fetch.poll(self.now), None, "an output after the end");
                assert_eq!(self.fetch.next_wakeup(), None);
                return Some(end);
            }
        }
        self.fetch.check_states();
        let lanes = self.lanes.iter().enumerate();
        let event = lanes.filter_map(|(path, lane)| Some((*lane.due.keys().next()?, path))).min();
        let wakeup = self.fetch.next_wakeup();
        while self.file.get(self.first_gap as usize).is_some_and(Option::is_some) {
            self.first_gap += 1;
        }
        let reads = self.reader.filter(|reader| self.first_gap > reader.taken);
        let reads = reads.map(|reader| reader.next.max(self.now));
        if let (Some(at), Some(reader)) = (reads, &mut self.reader)
            && event.is_none_or(|((next, _), _)| at <= next)
            && wakeup.is_none_or(|next| at <= next)
        {
            self.now = at;
            reader.next = at + reader.pause;
            reader.taken = self.first_gap.min(reader.taken + reader.most);
            self.fetch.handle(at, Input::Taken { upto: reader.taken });
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
            self.happen(PathId(path), due);
        }
        None
    }

    /// Half a round trip from now, plus `more`.
    fn send(&mut self, path: PathId, more: Span, due: Due) {
        let half = Span::from_nanos(self.links[path.0].rtt.as_nanos() / 2);
        self.at(path, self.now + half + more, due);
    }

    fn at(&mut self, path: PathId, at: Time, due: Due) {
        self.serial += 1;
        self.lanes[path.0].due.insert((at, self.serial), due);
    }

    fn happen(&mut self, path: PathId, due: Due) {
        let link = self.links[path.0];
        if link.dead_from.is_some_and(|dead| self.now >= dead) {
            return;
        }
        let lane = &mut self.lanes[path.0];
        let stream = |lane: &mut Lane, id: RequestId| {
            lane.streams.iter().position(|stream| stream.request == id)
        };
        let input = match due {
            Due::Request(request, range, if_range) => {
                let window = match (link.multiplexed, self.reader) {
                    (true, _) => lane.window,
                    (false, None) => u64::MAX,
                    (false, Some(_)) => 0,
                };
                let breaks = self.breaking.remove(&request);
                let (head, rest) = self.servers[path.0].answer(range, if_range.as_ref());
                lane.streams.push(Stream { request, rest, credit: window, breaks });
                self.send(path, Span::ZERO, Due::Head(request, Box::new(head)));
                return self.go_on(path);
            }
            Due::Credit(request, bytes) => {
                if let Some(i) = stream(lane, request) {
                    let credit = &mut lane.streams[i].credit;
                    *credit = credit.saturating_add(bytes);
                }
                return self.go_on(path);
            }
            Due::Window(bytes) => {
                let more = bytes.saturating_sub(lane.window);
                lane.window = bytes;
                lane.streams.iter_mut().for_each(|stream| stream.credit += more);
                return self.go_on(path);
            }
            Due::Cancel(request) => {
                lane.streams.retain(|stream| stream.request != request);
                return;
            }
            Due::Ping => return self.send(path, Span::ZERO, Due::Pong),
            Due::Free => {
                lane.sending = false;
                return self.go_on(path);
            }
            Due::Connected => Input::Connected { path, multiplexed: link.multiplexed },
            Due::Failed(request, fault) => {
                self.open.remove(&request);
                Input::Failed { request, fault }
            }
            Due::Finished(request) => {
                self.open.remove(&request);
                Input::Finished { request }
            }
            Due::Head(request, head) => Input::Head { request, head: *head },
            Due::Pong => Input::Pong { path },
            Due::Piece(request, piece) if !self.open.contains_key(&request) => {
                self.late += piece.len();
                Input::Late { path, length: piece.len() }
            }
            Due::Piece(request, piece) => {
                self.piece = Some((path, piece));
                Input::Bytes { request, length: piece.len() }
            }
        };
        self.fetch.handle(self.now, input);
        if let Some(reader) = self.reader {
            let waiting = self.fetch.done().total().saturating_sub(reader.taken);
            self.waited = self.waited.max(waiting);
        }
        self.history.push((self.now, self.fetch.done().total()));
    }

    /// Sends a server's next piece if the link is free and a stream has credit.
    fn go_on(&mut self, path: PathId) {
        let rate = self.links[path.0].rate;
        let lane = &mut self.lanes[path.0];
        if lane.sending || lane.streams.is_empty() {
            return;
        }
        let count = lane.streams.len();
        let turn = (1..=count).map(|i| (lane.last + i) % count).find(|i| {
            let stream = &lane.streams[*i];
            stream.credit > 0 || stream.rest.is_empty()
        });
        let Some(turn) = turn else { return };
        lane.last = turn;
        let stream = &mut lane.streams[turn];
        let request = stream.request;
        let piece = rate.size_in(PIECE_TIME).as_bytes().clamp(LEAST_PIECE, PIECE);
        let mut length = stream.rest.len().min(piece).min(stream.credit);
        if let Some(left) = &mut stream.breaks {
            length = length.min(*left);
            *left -= length;
        }
        if length == 0 {
            let broken = stream.breaks == Some(0) && !stream.rest.is_empty();
            lane.streams.remove(turn);
            let fault = Fault::passing(FaultClass::Reset, "the connection broke");
            let due = if broken { Due::Failed(request, fault) } else { Due::Finished(request) };
            self.send(path, Span::ZERO, due);
            return self.go_on(path);
        }
        let start = stream.rest.start;
        stream.rest.start += length;
        stream.credit -= length;
        lane.sending = true;
        let time = rate.time_for(Size::from_bytes(length));
        self.send(path, time, Due::Piece(request, Range::new(start, start + length)));
        self.at(path, self.now + time, Due::Free);
    }

    fn act(&mut self, output: Output) -> Option<End> {
        match output {
            Output::Connect { path, window } => {
                self.hang_up(path);
                self.lanes[path.0].window = window;
                let at = self.now + self.links[path.0].rtt;
                self.at(path, at, Due::Connected);
            }
            Output::Disconnect { path } => self.hang_up(path),
            Output::Request { request, path, range, if_range } => {
                let most = if self.links[path.0].multiplexed { 2 } else { 1 };
                let there = self.open.values().filter(|on| **on == path).count();
                assert!(there < most, "{} requests on one path", there + 1);
                self.open.insert(request, path);
                self.requests.push((path, range));
                let count = self.counts.entry(path).or_default();
                if let Some(after) = self.breaks.get(&(path, *count)) {
                    self.breaking.insert(request, *after);
                }
                *count += 1;
                self.send(path, Span::ZERO, Due::Request(request, range, if_range));
            }
            Output::Cancel { request } => {
                self.cancels += 1;
                if let Some(path) = self.open.remove(&request) {
                    if self.links[path.0].multiplexed {
                        self.send(path, Span::ZERO, Due::Cancel(request));
                    } else {
                        self.hang_up(path);
                    }
                }
            }
            Output::Window { path, bytes } => self.send(path, Span::ZERO, Due::Window(bytes)),
            Output::Credit { request, bytes } => {
                if let Some(path) = self.open.get(&request).copied() {
                    self.send(path, Span::ZERO, Due::Credit(request, bytes));
                }
            }
            Output::Ping { path } => {
                if self.links[path.0].multiplexed {
                    self.send(path, Span::ZERO, Due::Ping);
                } else {
                    let rtt = self.links[path.0].rtt;
                    self.fetch.handle(self.now, Input::TransportRtt { path, rtt });
                }
            }
            Output::RangeEnd { .. } | Output::Ended { .. } => {}
            Output::Write { at, skip, length, .. } => {
                let (path, piece) = self.piece.expect("a write without a piece");
                assert_eq!(piece.start + skip, at);
                assert!(at + length <= piece.end);
                for at in at..at + length {
                    let byte = self.servers[path.0].byte(at);
                    let before = self.file[at as usize].replace(byte);
                    assert_eq!(before, None, "byte {at} is written twice");
                }
            }
            Output::Restart => {
                self.restarts += 1;
                self.file.fill(None);
            }
            Output::Sized(_) => {}
            Output::Note(note) => self.notes.push(note),
            Output::Done => return Some(End::Done),
            Output::Failed(reason) => return Some(End::Failed(reason)),
        }
        None
    }

    /// Checks that every byte exists and equals the server's.
    pub fn check_file(&self) {
        for (at, byte) in self.file.iter().enumerate() {
            assert_eq!(*byte, Some(self.servers[0].byte(at as u64)), "byte {at}");
        }
    }

    /// Discards all messages in flight.
    fn hang_up(&mut self, path: PathId) {
        self.lanes[path.0] = Lane::default();
        self.open.retain(|_, on| *on != path);
    }

    /// Fails a request on `path`, or its connection attempt.
    pub fn break_off(&mut self, path: PathId, fault: Fault) {
        let requests: Vec<RequestId> =
            self.open.iter().filter(|(_, on)| **on == path).map(|(id, _)| *id).collect();
        self.hang_up(path);
        if requests.is_empty() {
            self.fetch.handle(self.now, Input::ConnectFailed { path, fault: fault.clone() });
        }
        for request in requests {
            self.fetch.handle(self.now, Input::Failed { request, fault: fault.clone() });
        }
    }

    /// Removes or restores an interface.
    pub fn set_up(&mut self, path: PathId, up: bool) {
        if !up {
            self.hang_up(path);
            self.fetch.handle(self.now, Input::PathDown { path });
        } else {
            let metered = self.links[path.0].metered;
            self.fetch.handle(self.now, Input::PathUp { path, metered, known: None });
        }
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
