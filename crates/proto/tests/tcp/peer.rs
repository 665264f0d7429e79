//! A client and a server that speak a minimal protocol like HTTP over one TCP connection.
//!
//! Requests have a fixed length. Responses are frames, as in HTTP/2; the open streams send in turn,
//! each within its credit. As with a kernel, the server's send buffer still contains bytes of a
//! request when the request is cancelled.

use std::collections::HashMap;

use manyways_proto::fetch::{ContentRange, Head, Range, RequestId, Validator};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer};

use crate::link::Link;

/// Larger than the bytes in flight on any link of these tests.
const RECEIVE_BUFFER: usize = 2 << 20;
/// Object bytes in one frame, as in nginx by default.
const FRAME: usize = 8 << 10;
/// Bytes that a server sends in a TLS handshake.
const CERTIFICATES: usize = 3_000;

const COMMAND_LENGTH: usize = 32;
const FRAME_HEAD: usize = 16;

/// Properties that differ between the protocols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Without TLS; cancelling a request closes its connection.
    Http1,
    /// One more round trip for TLS; a connection survives the cancelling of its requests.
    Http2,
}

/// The object of all servers.
pub struct Object {
    pub length: u64,
    pattern: Vec<u8>,
}

impl Object {
    /// Period of the pattern: a prime, so that offsets that could be confused have different bytes.
    const PERIOD: u64 = 65_521;

    pub fn new(length: u64) -> Self {
        let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        // Two periods, so that every slice is contiguous.
        let twice = (0..Self::PERIOD).chain(0..Self::PERIOD);
        Self { length, pattern: twice.map(byte).collect() }
    }

    /// Returns the bytes from `at` on, at most [`Self::PERIOD`].
    pub fn bytes(&self, at: u64, count: usize) -> &[u8] {
        let start = (at % Self::PERIOD) as usize;
        &self.pattern[start..start + count]
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Command {
    Hello,
    Get { request: RequestId, range: Option<Range> },
    Cancel { request: RequestId },
    Credit { request: RequestId, bytes: u64 },
    Window { bytes: u64 },
    Ping,
}

impl Command {
    fn to_bytes(self) -> [u8; COMMAND_LENGTH] {
        let words = match self {
            Self::Hello => [0; 4],
            Self::Get { request, range: None } => [1, request.0, 0, 0],
            Self::Get { request, range: Some(range) } => [2, request.0, range.start, range.end],
            Self::Cancel { request } => [3, request.0, 0, 0],
            Self::Credit { request, bytes } => [4, request.0, bytes, 0],
            Self::Window { bytes } => [5, 0, bytes, 0],
            Self::Ping => [6, 0, 0, 0],
        };
        let mut bytes = [0; COMMAND_LENGTH];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let word = |i: usize| u64_of(&bytes[8 * i..]);
        let request = RequestId(word(1));
        match word(0) {
            0 => Self::Hello,
            1 => Self::Get { request, range: None },
            2 => Self::Get { request, range: Some(Range::new(word(2), word(3))) },
            3 => Self::Cancel { request },
            4 => Self::Credit { request, bytes: word(2) },
            5 => Self::Window { bytes: word(2) },
            6 => Self::Ping,
            other => panic!("an order of kind {other}: the stream is out of step"),
        }
    }
}

fn u64_of(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// A message in a frame.
#[derive(Debug)]
pub enum ServerMessage {
    /// The path can take requests.
    Connected,
    Head(RequestId, Head),
    Bytes(RequestId, Vec<u8>),
    Finished(RequestId),
    Pong,
}

/// Type of the content after a frame's header, which contains a request's number and a length.
#[derive(Clone, Copy)]
enum FrameKind {
    Hello = 0,
    Head = 1,
    Bytes = 2,
    Finished = 3,
    Pong = 4,
}

/// Both endpoints of one TCP connection over a link.
pub struct Connection {
    client: SocketHandle,
    server: SocketHandle,
    protocol: Protocol,
    is_secured: bool,
    connected: bool,
    /// Requests whose responses are incomplete.
    current: Vec<RequestId>,
    commands: Vec<u8>,
    answers: Vec<u8>,
    asked: Vec<u8>,
    /// Bytes that the server sends before it continues with the bodies.
    replies: Vec<u8>,
    bodies: Vec<Body>,
    window: u64,
    /// The client's windows of its streams.
    stream_windows: HashMap<RequestId, StreamWindow>,
    /// The stream windows of the client's last SETTINGS.
    initial_window: u64,
    /// Index of the stream that sent last.
    last_sent: usize,
}

/// Receive window of a stream at the client.
struct StreamWindow {
    /// Bytes that the server may still send.
    announced: i128,
    /// Bytes that the client could take.
    available: i128,
}

impl StreamWindow {
    /// The bytes of the WINDOW_UPDATE frame that is due: as in the crate `h2`, which the client uses,
    /// a frame is sent when it adds at least half of the remaining window.
    fn update(&mut self) -> Option<u64> {
        let more = self.available - self.announced;
        let is_due = more > 0 && more >= self.announced / 2;
        is_due.then(|| {
            self.announced = self.available;
            u64::try_from(more).expect("it is positive and was granted")
        })
    }
}

/// Remaining bytes of a response.
struct Body {
    request: RequestId,
    remaining: Range,
    /// Negative after a SETTINGS frame with smaller windows.
    credit: i128,
}

impl Connection {
    /// Connects; `send_buffer` is the size of the server's send buffer in bytes.
    pub fn dial(link: &mut Link, port: u16, protocol: Protocol, send_buffer: usize) -> Self {
        let [client, server] = link.connect(port, || {
            let mut socket = Socket::new(
                SocketBuffer::new(vec![0; RECEIVE_BUFFER]),
                SocketBuffer::new(vec![0; send_buffer]),
            );
            socket.set_congestion_control(CongestionControl::Reno);
            socket.set_nagle_enabled(false);
            socket
        });
        Self {
            client,
            server,
            protocol,
            is_secured: false,
            connected: false,
            current: Vec::new(),
            commands: Vec::new(),
            answers: Vec::new(),
            asked: Vec::new(),
            replies: Vec::new(),
            bodies: Vec::new(),
            window: u64::MAX,
            stream_windows: HashMap::new(),
            initial_window: u64::MAX,
            last_sent: 0,
        }
    }

    pub fn is_connected(&self) -> bool {
        self.connected
    }

    pub fn is_busy_with(&self, request: RequestId) -> bool {
        self.current.contains(&request)
    }

    pub fn request(&mut self, request: RequestId, range: Option<Range>) {
        self.current.push(request);
        let window = i128::from(self.initial_window);
        self.stream_windows.insert(request, StreamWindow { announced: window, available: window });
        self.commands.extend(Command::Get { request, range }.to_bytes());
    }

    pub fn credit(&mut self, request: RequestId, bytes: u64) {
        let Some(window) = self.stream_windows.get_mut(&request) else { return };
        window.available += i128::from(bytes);
        if let Some(bytes) = window.update() {
            self.commands.extend(Command::Credit { request, bytes }.to_bytes());
        }
    }

    /// Sets the initial window, as the SETTINGS of the handshake; without flow control there is
    /// none.
    pub fn start_with_window(&mut self, bytes: u64) {
        self.window = if self.protocol == Protocol::Http2 { bytes } else { u64::MAX };
        self.initial_window = self.window;
    }

    pub fn set_window(&mut self, bytes: u64) {
        self.commands.extend(Command::Window { bytes }.to_bytes());
        let more = i128::from(bytes) - i128::from(self.initial_window);
        self.initial_window = bytes;
        for window in self.stream_windows.values_mut() {
            window.announced += more;
            window.available += more;
        }
    }

    pub fn ping(&mut self) {
        self.commands.extend(Command::Ping.to_bytes());
    }

    /// Cancels a request. Returns whether the connection can still be used.
    pub fn cancel(&mut self, link: &mut Link, request: RequestId) -> bool {
        self.current.retain(|current| *current != request);
        self.stream_windows.remove(&request);
        match self.protocol {
            Protocol::Http2 => {
                self.commands.extend(Command::Cancel { request }.to_bytes());
                true
            }
            Protocol::Http1 => {
                self.abort(link);
                false
            }
        }
    }

    pub fn abort(&self, link: &mut Link) {
        link.device.socket(self.client).abort();
    }

    /// Serves both sockets. Returns the messages that the client received.
    pub fn serve(&mut self, link: &mut Link, object: &Object) -> Vec<ServerMessage> {
        self.answer(link, object);
        let socket = link.device.socket(self.client);
        let mut found = Vec::new();
        if socket.may_send() && !self.is_secured {
            self.is_secured = true;
            match self.protocol {
                Protocol::Http1 => {
                    self.connected = true;
                    found.push(ServerMessage::Connected);
                }
                // No request is sent before the path is connected.
                Protocol::Http2 => self.commands.extend(Command::Hello.to_bytes()),
            }
        }
        if socket.can_send() && !self.commands.is_empty() {
            let sent = socket.send_slice(&self.commands).expect("it can");
            self.commands.drain(..sent);
        }
        while socket.can_recv() {
            let take = |bytes: &mut [u8]| {
                self.answers.extend_from_slice(bytes);
                (bytes.len(), ())
            };
            socket.recv(take).expect("it can");
        }
        let mut read = 0;
        while let Some((answer, size)) = self.frame(&self.answers[read..]) {
            read += size;
            match &answer {
                ServerMessage::Connected => self.connected = true,
                ServerMessage::Finished(request) => {
                    self.current.retain(|current| current != request);
                    self.stream_windows.remove(request);
                }
                ServerMessage::Bytes(request, bytes) => {
                    if let Some(window) = self.stream_windows.get_mut(request) {
                        window.announced -= bytes.len() as i128;
                        window.available -= bytes.len() as i128;
                        if let Some(bytes) = window.update() {
                            let update = Command::Credit { request: *request, bytes };
                            self.commands.extend(update.to_bytes());
                        }
                    }
                }
                _ => {}
            }
            found.push(answer);
        }
        self.answers.drain(..read);
        found
    }

    fn frame(&self, bytes: &[u8]) -> Option<(ServerMessage, usize)> {
        let (head, rest) = bytes.split_at_checked(FRAME_HEAD)?;
        let request = RequestId(u64_of(head));
        let length = u32::from_be_bytes(head[8..12].try_into().expect("four bytes")) as usize;
        let payload = rest.get(..length)?;
        let answer = match head[12] {
            kind if kind == FrameKind::Hello as u8 => ServerMessage::Connected,
            kind if kind == FrameKind::Head as u8 => {
                ServerMessage::Head(request, read_head(payload))
            }
            kind if kind == FrameKind::Bytes as u8 => {
                ServerMessage::Bytes(request, payload.to_vec())
            }
            kind if kind == FrameKind::Finished as u8 => ServerMessage::Finished(request),
            kind if kind == FrameKind::Pong as u8 => ServerMessage::Pong,
            other => panic!("a frame of kind {other}: the stream is out of step"),
        };
        Some((answer, FRAME_HEAD + length))
    }

    /// Serves the server's socket.
    fn answer(&mut self, link: &mut Link, object: &Object) {
        let socket = link.server.socket(self.server);
        while socket.can_recv() {
            let take = |bytes: &mut [u8]| {
                self.asked.extend_from_slice(bytes);
                (bytes.len(), ())
            };
            socket.recv(take).expect("it can");
        }
        let whole = self.asked.len() / COMMAND_LENGTH * COMMAND_LENGTH;
        for order in self.asked.drain(..whole).collect::<Vec<_>>().chunks_exact(COMMAND_LENGTH) {
            match Command::from_bytes(order) {
                Command::Hello => frame(&mut self.replies, 0, FrameKind::Hello, &[0; CERTIFICATES]),
                Command::Get { request, range } => {
                    let max = if self.protocol == Protocol::Http2 { 2 } else { 1 };
                    // A request for one byte is a check, which does not count.
                    let is_check = range.is_some_and(|range| range.len() == 1);
                    let open = self.bodies.iter().filter(|body| body.remaining.len() > 1).count();
                    assert!(is_check || open < max, "too many requests on one connection");
                    let all = Range::new(0, object.length);
                    let part = range.map_or(all, |r| Range::new(r.start, r.end.min(all.end)));
                    assert!(!part.is_empty(), "nothing was asked for");
                    let head = write_head(range.is_some(), part, object.length);
                    frame(&mut self.replies, request.0, FrameKind::Head, &head);
                    self.bodies.push(Body {
                        request,
                        remaining: part,
                        credit: i128::from(self.window),
                    });
                }
                Command::Cancel { request } => {
                    self.bodies.retain(|body| body.request != request);
                }
                Command::Credit { request, bytes } => {
                    let body = self.bodies.iter_mut().find(|body| body.request == request);
                    if let Some(body) = body {
                        body.credit += i128::from(bytes);
                    }
                }
                Command::Window { bytes } => {
                    let more = i128::from(bytes) - i128::from(self.window);
                    self.window = bytes;
                    for body in &mut self.bodies {
                        body.credit += more;
                    }
                }
                Command::Ping => frame(&mut self.replies, 0, FrameKind::Pong, &[0; 8]),
            }
        }
        while socket.can_send() {
            if self.replies.is_empty() && !self.next_frame(object) {
                break;
            }
            let sent = socket.send_slice(&self.replies).expect("it can");
            self.replies.drain(..sent);
        }
    }

    fn next_frame(&mut self, object: &Object) -> bool {
        let count = self.bodies.len();
        let may = |body: &Body| body.credit > 0 || body.remaining.is_empty();
        let turn = (1..=count).map(|i| (self.last_sent + i) % count);
        let Some(turn) = turn.into_iter().find(|i| may(&self.bodies[*i])) else { return false };
        self.last_sent = turn;
        let Body { request, remaining: rest, credit } = &mut self.bodies[turn];
        let allowed = u64::try_from((*credit).max(0)).unwrap_or(u64::MAX);
        let count = rest.len().min(FRAME as u64).min(allowed) as usize;
        if count == 0 {
            frame(&mut self.replies, request.0, FrameKind::Finished, &[]);
            self.bodies.remove(turn);
            return true;
        }
        frame(&mut self.replies, request.0, FrameKind::Bytes, object.bytes(rest.start, count));
        rest.start += count as u64;
        *credit -= count as i128;
        true
    }
}

fn frame(into: &mut Vec<u8>, request: u64, kind: FrameKind, payload: &[u8]) {
    into.extend(request.to_be_bytes());
    into.extend((payload.len() as u32).to_be_bytes());
    into.extend([kind as u8, 0, 0, 0]);
    into.extend_from_slice(payload);
}

/// Length of a typical response head; padding replaces the irrelevant fields.
const HEAD: usize = 200;

fn write_head(partial: bool, part: Range, length: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let words = [u64::from(partial), part.start, part.end, length];
    for (place, word) in head.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    head
}

fn read_head(bytes: &[u8]) -> Head {
    let word = |i: usize| u64_of(&bytes[8 * i..]);
    let (partial, part, length) = (word(0) == 1, Range::new(word(1), word(2)), word(3));
    let content_range = ContentRange { range: Some(part), length: Some(length) };
    Head {
        status: if partial { 206 } else { 200 },
        length: Some(part.len()),
        content_range: partial.then_some(Some(content_range)),
        validator: Some(Validator::Etag("\"v\"".to_owned())),
        refuses_ranges: false,
        ..Head::default()
    }
}
