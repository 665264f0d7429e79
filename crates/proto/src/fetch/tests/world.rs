//! Servers behind links: a fluid model, one request a path, under virtual time.

use std::collections::BTreeMap;

use manyways_trace::{Rate, Size, Span, Time};

use crate::fetch::{
    Config, ContentRange, Fault, FaultClass, Fetch, Head, Input, Note, Output, PathId, Range,
    Ranges, Reason, RequestId, Validator,
};

/// A link delivers pieces of this size, or of what it carries in [`PIECE_TIME`].
const PIECE: u64 = 16_000;
const PIECE_TIME: Span = Span::from_millis(20);
/// A packet is the least.
const LEAST_PIECE: u64 = 1_440;

#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub rate: Rate,
    pub rtt: Span,
    /// From here on nothing comes any more, and nobody says so.
    pub dead_from: Option<Time>,
    pub metered: bool,
}

impl Link {
    pub fn new(rate: Rate, rtt: Span) -> Self {
        Self { rate, rtt, dead_from: None, metered: false }
    }
}

/// What every path's server has.
#[derive(Clone, Debug)]
pub struct Server {
    pub length: u64,
    pub ranges: bool,
    pub accept_ranges: bool,
    pub tells_length: bool,
    pub validator: Option<&'static str>,
    /// It answers a range with so much of its beginning at most.
    pub most: u64,
    /// Another version has other bytes.
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

    /// The byte that belongs at a place.
    pub fn byte(&self, at: u64) -> u8 {
        (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ self.version
    }

    /// How it answers, and which bytes follow.
    pub fn answer(&self, range: Option<Range>, if_range: Option<&Validator>) -> (Head, Range) {
        let validator = self.validator.map(|tag| {
            Validator::Etag(if self.version == 1 { tag.into() } else { "\"other\"".into() })
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

/// What is on its way over a path.
enum Due {
    Connected,
    Head(RequestId, Box<Head>, Range),
    Piece(RequestId, Range, Range),
    Finished(RequestId),
    Failed(RequestId, Fault),
}

pub struct World {
    pub fetch: Fetch,
    pub now: Time,
    links: Vec<Link>,
    /// Each path's server; they are alike unless a test changes one.
    pub servers: Vec<Server>,
    /// What is to happen, per path: at most one thing at a time.
    due: BTreeMap<PathId, (Time, Due)>,
    /// Breaks the n-th answer of a path after so many bytes.
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
    pub restarts: usize,
}

impl World {
    pub fn new(config: Config, server: Server, links: &[Link]) -> Self {
        let mut fetch = Fetch::new(config);
        for (id, link) in links.iter().enumerate() {
            fetch.handle(Time::ZERO, Input::PathUp { path: PathId(id), metered: link.metered });
        }
        Self {
            fetch,
            now: Time::ZERO,
            links: links.to_vec(),
            due: BTreeMap::new(),
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
            restarts: 0,
        }
    }

    /// Bytes that an earlier run left in the file.
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

    /// As [`World::run`], where it is not the first path's version that is fetched.
    pub fn run_unchecked(&mut self) -> End {
        loop {
            if let Some(end) = self.step(Time::MAX) {
                return end;
            }
        }
    }

    /// Whether all bytes are of the same version, whichever that is.
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

    /// Does what the core wants, then lets the next thing happen.
    pub fn step(&mut self, until: Time) -> Option<End> {
        while let Some(output) = self.fetch.poll(self.now) {
            if let Some(end) = self.act(output) {
                assert_eq!(self.fetch.poll(self.now), None, "an output after the end");
                assert_eq!(self.fetch.next_wakeup(), None);
                return Some(end);
            }
        }
        let event = self.due.iter().map(|(path, (at, _))| (*at, *path)).min();
        let wakeup = self.fetch.next_wakeup();
        let next = event.map(|(at, _)| at).into_iter().chain(wakeup).min();
        let next = next.expect("nothing will ever happen again");
        assert!(next > self.now || event.is_some_and(|(at, _)| at <= self.now), "the core spins");
        if next >= until {
            self.now = until;
            return None;
        }
        self.now = self.now.max(next);
        if let Some((at, path)) = event
            && at <= self.now
            && let Some((_, due)) = self.due.remove(&path)
        {
            self.happen(path, due);
        }
        None
    }

    fn happen(&mut self, path: PathId, due: Due) {
        let link = self.links[path.0];
        if link.dead_from.is_some_and(|dead| self.now >= dead) {
            return;
        }
        let piece_time = |range: Range| link.rate.time_for(Size::from_bytes(range.len()));
        let input = match due {
            Due::Connected => Input::Connected { path },
            Due::Failed(request, fault) => {
                self.open.remove(&request);
                Input::Failed { request, fault }
            }
            Due::Finished(request) => {
                self.open.remove(&request);
                Input::Finished { request }
            }
            Due::Head(request, head, body) => {
                let next = self.next_piece(request, body, link.rate);
                let at =
                    self.now + next.as_ref().map_or(Span::ZERO, |(range, _)| piece_time(*range));
                self.due.insert(path, (at, self.due_piece(request, next)));
                Input::Head { request, head: *head }
            }
            Due::Piece(request, piece, rest) => {
                let next = self.next_piece(request, rest, link.rate);
                let at =
                    self.now + next.as_ref().map_or(Span::ZERO, |(range, _)| piece_time(*range));
                self.due.insert(path, (at, self.due_piece(request, next)));
                self.piece = Some((path, piece));
                Input::Bytes { request, length: piece.len() }
            }
        };
        self.fetch.handle(self.now, input);
        self.history.push((self.now, self.fetch.done().total()));
    }

    fn next_piece(
        &mut self,
        request: RequestId,
        body: Range,
        rate: Rate,
    ) -> Option<(Range, Range)> {
        let piece = rate.size_in(PIECE_TIME).as_bytes().clamp(LEAST_PIECE, PIECE);
        let mut length = body.len().min(piece);
        if let Some(left) = self.breaking.get_mut(&request) {
            length = length.min(*left);
            *left -= length;
        }
        let cut = body.start + length;
        (length > 0).then(|| (Range::new(body.start, cut), Range::new(cut, body.end)))
    }

    fn due_piece(&self, request: RequestId, next: Option<(Range, Range)>) -> Due {
        match next {
            Some((piece, rest)) => Due::Piece(request, piece, rest),
            None if self.breaking.get(&request) == Some(&0) => {
                let fault = Fault::passing(FaultClass::Reset, "the connection broke");
                Due::Failed(request, fault)
            }
            None => Due::Finished(request),
        }
    }

    fn act(&mut self, output: Output) -> Option<End> {
        match output {
            Output::Connect { path } => {
                let at = self.now + self.links[path.0].rtt;
                self.due.insert(path, (at, Due::Connected));
            }
            Output::Disconnect { path } => {
                self.due.remove(&path);
                self.open.retain(|_, on| *on != path);
            }
            Output::Request { request, path, range, if_range } => {
                assert!(!self.open.values().any(|on| *on == path), "two requests on one path");
                self.open.insert(request, path);
                self.requests.push((path, range));
                let count = self.counts.entry(path).or_default();
                if let Some(after) = self.breaks.get(&(path, *count)) {
                    self.breaking.insert(request, *after);
                }
                *count += 1;
                let (head, body) = self.servers[path.0].answer(range, if_range.as_ref());
                let at = self.now + self.links[path.0].rtt;
                self.due.insert(path, (at, Due::Head(request, Box::new(head), body)));
            }
            Output::Cancel { request } => {
                self.cancels += 1;
                if let Some(path) = self.open.remove(&request) {
                    self.due.remove(&path);
                }
            }
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

    /// Every byte is there and is the server's.
    pub fn check_file(&self) {
        for (at, byte) in self.file.iter().enumerate() {
            assert_eq!(*byte, Some(self.servers[0].byte(at as u64)), "byte {at}");
        }
    }

    /// A request on `path` breaks off, or its connection attempt does.
    pub fn break_off(&mut self, path: PathId, fault: Fault) {
        self.due.remove(&path);
        let request = self.open.iter().find(|(_, on)| **on == path).map(|(id, _)| *id);
        match request {
            Some(request) => {
                self.open.remove(&request);
                self.fetch.handle(self.now, Input::Failed { request, fault });
            }
            None => self.fetch.handle(self.now, Input::ConnectFailed { path, fault }),
        }
    }

    /// An interface goes away or comes back.
    pub fn set_up(&mut self, path: PathId, up: bool) {
        if !up {
            self.due.remove(&path);
            self.open.retain(|_, on| *on != path);
            self.fetch.handle(self.now, Input::PathDown { path });
        } else {
            let metered = self.links[path.0].metered;
            self.fetch.handle(self.now, Input::PathUp { path, metered });
        }
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

    /// Bytes that came for nothing.
    pub fn wasted(&self) -> u64 {
        (0..self.links.len()).map(|path| self.fetch.stats(self.now, PathId(path)).duplicate).sum()
    }

    /// How many bytes were there at that time.
    pub fn done_by(&self, at: Time) -> u64 {
        let before = self.history.iter().take_while(|(when, _)| *when <= at);
        before.last().map_or(0, |(_, done)| *done)
    }
}
