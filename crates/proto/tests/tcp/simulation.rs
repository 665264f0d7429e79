//! A fetch over several links with one server each, in virtual time.

use manyways_proto::estimate::PathEstimate;
use manyways_proto::fetch::{Config, Fetch, Input, Output, PathId, Range, Ranges, RequestId};
use manyways_trace::LinkTrace;
use manyways_trace::scenario::{CapacitySpec, DelaySpec, DirectionSpec, LinkState};
use manyways_unit::{Rate, Size, Span, Time};

use crate::link::Link;
use crate::peer::{Connection, Object, Protocol, ServerMessage};

/// Maximum duration of a case.
const MAX_DURATION: Time = Time::from_millis(300_000);

/// A path: a link, and the time at which it becomes silent in both directions.
#[derive(Clone)]
pub struct PathSpec {
    pub down: DirectionSpec,
    pub up: DirectionSpec,
    pub silent_from: Option<Time>,
    /// Size of the server's send buffer.
    pub send_buffer: Size,
}

struct Path {
    link: Link,
    connection: Option<Connection>,
    /// A request that waits for a connection.
    waiting: Option<(RequestId, Option<Range>)>,
    port: u16,
    /// Round trip without a queue, as the handshake of TCP measures it.
    rtt: Span,
    /// Initial window of the streams of the next connection.
    window: u64,
    silent_from: Option<Time>,
    send_buffer: usize,
    /// When the link must be served next.
    due: Option<Time>,
}

/// Result of a fetch.
pub struct Outcome {
    pub took: Time,
    /// Bytes of the object that arrived more than once.
    pub duplicate: u64,
    pub requests: u64,
    /// Useful bytes of each path.
    pub useful: Vec<u64>,
    /// Number of received bytes over time.
    pub curve: Vec<(Time, u64)>,
}

pub struct Simulation {
    fetch: Fetch,
    now: Time,
    paths: Vec<Path>,
    object: Object,
    protocol: Protocol,
    done: Ranges,
    curve: Vec<(Time, u64)>,
    piece: (RequestId, Vec<u8>),
    is_finished: bool,
}

impl Simulation {
    pub fn new(length: u64, protocol: Protocol, specs: &[PathSpec]) -> Self {
        Self::with(Config::default(), length, protocol, specs, &[])
    }

    /// Creates a simulation with a configuration, and with known path estimates.
    pub fn with(
        config: Config,
        length: u64,
        protocol: Protocol,
        specs: &[PathSpec],
        known: &[PathEstimate],
    ) -> Self {
        let mut fetch = Fetch::new(config);
        for path in 0..specs.len() {
            let path = PathId(path);
            let known = known.get(path.0).copied();
            fetch.handle(Time::ZERO, Input::PathUp { path, metered: false, known });
        }
        let path = |(seed, spec): (u64, &PathSpec)| Path {
            link: Link::new(&spec.down, &spec.up, 2 * seed),
            connection: None,
            waiting: None,
            port: 80,
            rtt: round_trip(spec),
            window: u64::MAX,
            silent_from: spec.silent_from,
            send_buffer: spec.send_buffer.as_bytes() as usize,
            due: Some(Time::ZERO),
        };
        Self {
            fetch,
            now: Time::ZERO,
            paths: (1..).zip(specs).map(path).collect(),
            object: Object::new(length),
            protocol,
            done: Ranges::new(),
            curve: Vec::new(),
            piece: (RequestId(0), Vec::new()),
            is_finished: false,
        }
    }

    /// Runs to the end; panics if a byte is wrong, is written twice or never arrives.
    pub fn run(mut self) -> Outcome {
        self.drain();
        while !self.is_finished {
            for path in 0..self.paths.len() {
                if self.paths[path].due.is_some_and(|due| due <= self.now) {
                    self.serve(path);
                }
            }
            self.drain();
            if self.is_finished {
                break;
            }
            let links = self.paths.iter().filter_map(|path| path.due);
            let silences = self.paths.iter().filter_map(|path| path.silent_from);
            let next = links.chain(silences).chain(self.fetch.next_wakeup()).min();
            let next = next.expect("an unfinished fetch waits for something");
            self.now = self.now.max(next);
            assert!(self.now < MAX_DURATION, "it does not end: {} are there", self.done.total());
            for path in &mut self.paths {
                if path.silent_from.is_some_and(|from| from <= self.now) {
                    path.silent_from = None;
                    path.link.down().set_state(self.now, LinkState::Silent);
                    path.link.up().set_state(self.now, LinkState::Silent);
                    path.due = Some(self.now);
                }
            }
        }
        assert_eq!(self.done.total(), self.object.length);
        let stats = (0..self.paths.len()).map(|path| self.fetch.stats(self.now, PathId(path)));
        let stats: Vec<_> = stats.collect();
        Outcome {
            took: self.now,
            duplicate: stats.iter().map(|stats| stats.duplicate).sum(),
            requests: stats.iter().map(|stats| stats.requests).sum(),
            useful: stats.iter().map(|stats| stats.useful).collect(),
            curve: self.curve,
        }
    }

    /// Serves a link and the programs at both of its endpoints.
    fn serve(&mut self, index: usize) {
        let path = &mut self.paths[index];
        path.due = None;
        path.link.pump(self.now);
        if let Some(mut connection) = path.connection.take() {
            if connection.is_connected()
                && let Some((request, range)) = path.waiting.take()
            {
                connection.request(request, range);
            }
            let answers = connection.serve(&mut path.link, &self.object);
            path.connection = Some(connection);
            for answer in answers {
                self.take(index, answer);
            }
        }
        let path = &mut self.paths[index];
        path.link.pump(self.now);
        // Bytes that a program has queued in the meantime are sent now.
        path.due = path.due.into_iter().chain(path.link.next_wakeup(self.now)).min();
    }

    fn take(&mut self, path: usize, answer: ServerMessage) {
        let input = match answer {
            // The fetch considers the path connected; its request waits for this reconnection.
            ServerMessage::Connected if self.paths[path].waiting.is_some() => {
                self.paths[path].due = Some(self.now);
                return;
            }
            ServerMessage::Connected => {
                let multiplexed = self.protocol == Protocol::Http2;
                let rtt = Some(self.paths[path].rtt);
                Input::Connected { path: PathId(path), multiplexed, rtt }
            }
            ServerMessage::Pong => Input::Pong { path: PathId(path) },
            ServerMessage::Head(request, head) => Input::Head { request, head },
            ServerMessage::Finished(request) => Input::Finished { request },
            ServerMessage::Bytes(request, bytes) => {
                let length = bytes.len() as u64;
                self.piece = (request, bytes);
                Input::Bytes { request, length }
            }
        };
        self.fetch.handle(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.fetch.poll(self.now) {
            self.execute(output);
        }
    }

    fn request(&mut self, request: RequestId, id: PathId, range: Option<Range>) {
        let path = &mut self.paths[id.0];
        path.due = Some(self.now);
        match &mut path.connection {
            Some(connection) if connection.is_connected() => connection.request(request, range),
            _ => path.waiting = Some((request, range)),
        }
        if path.connection.is_none() {
            self.dial(id);
        }
    }

    fn execute(&mut self, output: Output) {
        match output {
            Output::Connect { path, window, .. } => {
                self.paths[path.0].window = window;
                if self.paths[path.0].connection.as_ref().is_some_and(Connection::is_connected) {
                    let multiplexed = self.protocol == Protocol::Http2;
                    let rtt = Some(self.paths[path.0].rtt);
                    self.fetch.handle(self.now, Input::Connected { path, multiplexed, rtt });
                } else {
                    self.close_connection(path);
                    self.dial(path);
                }
            }
            Output::Disconnect { path } => self.close_connection(path),
            Output::Request { request, path, range, .. } => self.request(request, path, range),
            Output::Check { request, path, range, .. } => self.request(request, path, Some(range)),
            Output::Window { path, bytes } => {
                self.on_connection(path, |connection| connection.set_window(bytes));
            }
            // The peer has no window for the connection.
            Output::ConnectionWindow { .. } => {}
            Output::Ping { path } => match self.protocol {
                Protocol::Http2 => self.on_connection(path, Connection::ping),
                // The RTT measurement of the kernel is not simulated.
                Protocol::Http1 => {}
            },
            Output::Credit { request, bytes } => {
                let busy =
                    |path: &Path| path.connection.as_ref().is_some_and(|c| c.is_busy_with(request));
                if let Some(path) = self.paths.iter().position(busy) {
                    self.on_connection(PathId(path), |c| c.credit(request, bytes));
                }
            }
            Output::Cut { .. } | Output::Ended { .. } | Output::ForgetRedirect { .. } => {}
            Output::Cancel { request } => {
                for path in &mut self.paths {
                    if path.waiting.is_some_and(|(waiting, _)| waiting == request) {
                        path.waiting = None;
                    } else if let Some(connection) = &mut path.connection
                        && connection.is_busy_with(request)
                    {
                        if !connection.cancel(&mut path.link, request) {
                            path.connection = None;
                        }
                        path.due = Some(self.now);
                    }
                }
            }
            Output::Write { request, offset: at, skip, length } => {
                let (of, piece) = &self.piece;
                assert_eq!(*of, request, "a write of another request's bytes");
                let bytes = &piece[skip as usize..(skip + length) as usize];
                assert!(bytes == self.object.bytes(at, bytes.len()), "wrong bytes at {at}");
                let before = self.done.total();
                self.done.insert(Range::new(at, at + length));
                assert_eq!(self.done.total(), before + length, "bytes at {at} written twice");
                self.curve.push((self.now, before + length));
            }
            Output::Done => self.is_finished = true,
            Output::LengthKnown(length) => assert_eq!(length, Some(self.object.length)),
            Output::Note(_) => {}
            output @ (Output::Restart | Output::Failed(_)) => {
                panic!("{output:?} at {}", self.now)
            }
        }
    }

    fn on_connection(&mut self, path: PathId, act: impl FnOnce(&mut Connection)) {
        let path = &mut self.paths[path.0];
        if let Some(connection) = &mut path.connection {
            act(connection);
            path.due = Some(self.now);
        }
    }

    fn dial(&mut self, path: PathId) {
        let Path { link, connection, port, due, send_buffer, window, .. } = &mut self.paths[path.0];
        *connection = Some(Connection::dial(link, *port, self.protocol, *send_buffer));
        *port += 1;
        if let Some(connection) = connection {
            connection.start_with_window(*window);
        }
        *due = Some(self.now);
    }

    fn close_connection(&mut self, path: PathId) {
        let path = &mut self.paths[path.0];
        path.waiting = None;
        if let Some(connection) = path.connection.take() {
            connection.abort(&mut path.link);
            path.due = Some(self.now);
        }
    }
}

/// Lower bound of the duration of a fetch over these links: all links at full rate, after the
/// smallest request delay.
pub fn fluid_bound(length: u64, specs: &[PathSpec]) -> Span {
    let step = Span::from_millis(1);
    let (mut now, mut sent) = (Time::ZERO, Size::ZERO);
    while sent.as_bytes() < length {
        let up = specs.iter().filter(|spec| spec.silent_from.is_none_or(|from| now < from));
        let rate: Rate = up.map(|spec| rate(&spec.down.capacity, now)).sum();
        sent += rate.size_in(step);
        now += step;
    }
    now.since(Time::ZERO) + specs.iter().map(round_trip).min().unwrap_or_default()
}

fn round_trip(spec: &PathSpec) -> Span {
    delay(&spec.down.delay) + delay(&spec.up.delay)
}

fn rate(capacity: &CapacitySpec, now: Time) -> Rate {
    match capacity {
        CapacitySpec::Constant(rate) => *rate,
        CapacitySpec::Trace { trace: LinkTrace::Rates(steps), .. } => {
            *steps.at(now.since(Time::ZERO))
        }
        other => panic!("no bound is known for {other:?}"),
    }
}

fn delay(delay: &DelaySpec) -> Span {
    match delay {
        DelaySpec::Constant(delay) => *delay,
        other => panic!("no bound is known for {other:?}"),
    }
}

/// Duration with a perfect scheduler over these transports: the time at which the bytes that each
/// path receives alone sum to the length of the object.
pub fn perfect(length: u64, alone: &[Outcome]) -> Time {
    let by = |outcome: &Outcome, at: Time| {
        let before = outcome.curve.partition_point(|(when, _)| *when <= at);
        before.checked_sub(1).map_or(0, |last| outcome.curve[last].1)
    };
    let mut times: Vec<Time> =
        alone.iter().flat_map(|outcome| outcome.curve.iter().map(|(at, _)| *at)).collect();
    times.sort_unstable();
    let there = |at: &Time| alone.iter().map(|outcome| by(outcome, *at)).sum::<u64>() < length;
    let first = times.partition_point(there);
    times.get(first).copied().unwrap_or(Time::MAX)
}
