//! A transfer over one TCP connection (smoltcp) on an emulated link, in virtual time.
//!
//! Two properties of smoltcp would decide most transfers of 1 MB, but are not those of today's
//! servers, so they are amended:
//! - It begins with a window of two segments, not with ten (RFC 6928). The sender's window first
//!   grows to ten on the same connection, while the link has no limit and before the transfer begins.
//! - It has no SACK and no HyStart: its slow start overflows a queue, and then it waits a second or
//!   more for a timeout. So the sending application keeps a window of its own ([`SlowStart`]) below
//!   that of the connection. Losses and outages are left to smoltcp.
//!
//! The round trips of a handshake are a byte and its answer each.

#[path = "../../../../crates/link/tests/tcp/link.rs"]
mod link;

use std::collections::VecDeque;

use manyways_trace::scenario::{CapacitySpec, DirectionSpec, LinkSpec};
use manyways_unit::{Span, Time};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer};

use self::link::Link;

/// Bytes that widen the window of smoltcp before a transfer.
const WARM_UP: usize = 1_000_000;
/// Payload of a packet.
const SEGMENT: usize = 1_460;
/// Ten segments.
const INITIAL_WINDOW: usize = 10 * SEGMENT;
/// Time after which a transfer has failed.
pub const PATIENCE: Span = Span::from_secs(120);

/// The direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Down,
    Up,
}

/// A transfer to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    pub way: Way,
    pub bytes: usize,
    /// Round trips before the request, or before the first byte up.
    pub exchanges: usize,
}

/// A simulated transfer.
#[derive(Clone, Debug)]
pub struct Transferred {
    /// When the round trips before the transfer were over; `None` if they never were.
    pub requested: Option<Time>,
    /// Bytes at the receiver, and when they arrived.
    pub arrivals: Vec<(Time, usize)>,
    /// Whether all bytes arrived.
    pub is_complete: bool,
}

/// The window of a sender: slow start, until the least of the first round trips of a round exceeds
/// the least of all by an eighth (HyStart of Ha and Rhee, PFLDnet 2008, with the limits of Linux).
/// CUBIC widens its window so slowly after that that a transfer of 1 MB sees nothing of it.
struct SlowStart {
    window: usize,
    is_over: bool,
    sent: usize,
    acknowledged: usize,
    /// End of each piece that was sent, and when that was.
    pieces: VecDeque<(usize, Time)>,
    least: Span,
    /// Of the first round trips of this round.
    round_least: Span,
    samples: u32,
    round_end: usize,
}

impl SlowStart {
    /// Round trips of a round that are looked at.
    const SAMPLES: u32 = 8;
    /// Limits of the increase that ends slow start.
    const INCREASE: (Span, Span) = (Span::from_millis(4), Span::from_millis(16));

    fn new() -> Self {
        Self {
            window: INITIAL_WINDOW,
            is_over: false,
            sent: 0,
            acknowledged: 0,
            pieces: VecDeque::new(),
            least: Span::MAX,
            round_least: Span::MAX,
            samples: 0,
            round_end: 0,
        }
    }

    /// Notes how many of the sent bytes wait for an acknowledgement.
    fn on_waiting(&mut self, now: Time, waiting: usize) {
        let newly = self.sent - waiting - self.acknowledged;
        self.acknowledged += newly;
        while let Some((end, at)) = self.pieces.pop_front_if(|piece| piece.0 <= self.acknowledged) {
            if end > self.round_end {
                (self.round_end, self.samples, self.round_least) = (self.sent, 0, Span::MAX);
            }
            let round_trip = now.since(at);
            self.least = self.least.min(round_trip);
            if self.samples < Self::SAMPLES {
                self.round_least = self.round_least.min(round_trip);
                self.samples += 1;
            }
        }
        let (low, high) = Self::INCREASE;
        let increase = Span::from_nanos(self.least.as_nanos() / 8).max(low).min(high);
        let is_full = self.samples == Self::SAMPLES;
        self.is_over |= is_full && self.round_least.saturating_sub(self.least) >= increase;
        if !self.is_over {
            self.window += newly;
        }
    }

    /// Bytes that may be sent now.
    fn room(&self) -> usize {
        self.window.saturating_sub(self.sent - self.acknowledged)
    }

    fn on_sent(&mut self, now: Time, bytes: usize) {
        self.sent += bytes;
        self.pieces.push_back((self.sent, now));
    }
}

/// The two ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Device,
    Server,
}

/// A connection, and the time until which it has run.
struct Connection {
    link: Link,
    device: SocketHandle,
    server: SocketHandle,
    now: Time,
    deadline: Time,
}

impl Connection {
    /// Over a link that has no limit yet. Each end has room for this many bytes.
    fn new(spec: &LinkSpec, room: usize) -> Self {
        let free = |way: &DirectionSpec| DirectionSpec {
            capacity: CapacitySpec::Unlimited,
            ..way.clone()
        };
        let mut link = Link::new(&free(&spec.down), &free(&spec.up), 1);
        let [device, server] = link.connect(443, || {
            let buffer = || SocketBuffer::new(vec![0; room]);
            let mut socket = Socket::new(buffer(), buffer());
            socket.set_congestion_control(CongestionControl::Cubic);
            socket.set_ack_delay(None);
            socket.set_nagle_enabled(false);
            socket
        });
        Self { link, device, server, now: Time::ZERO, deadline: Time::ZERO + PATIENCE }
    }

    /// The traces of the link are at `position` now.
    fn limit(&mut self, spec: &LinkSpec, position: Span) {
        self.link.down().set_capacity(self.now, spec.down.capacity.clone());
        self.link.up().set_capacity(self.now, spec.up.capacity.clone());
        self.link.down().restart(self.now, position);
        self.link.up().restart(self.now, position);
        self.deadline = self.now + PATIENCE;
    }

    fn socket(&mut self, end: End) -> &mut Socket<'static> {
        match end {
            End::Device => self.link.device.socket(self.device),
            End::Server => self.link.server.socket(self.server),
        }
    }

    /// Sends bytes, for which there must be room. Until the handshake is over, nothing is sent.
    fn send(&mut self, from: End, bytes: usize) -> usize {
        let fill = |free: &mut [u8]| (free.len().min(bytes), free.len().min(bytes));
        self.socket(from).send(fill).unwrap_or_default()
    }

    /// Takes the bytes that have arrived, and returns their number.
    fn take(&mut self, at: End) -> usize {
        self.socket(at).recv(|bytes| (bytes.len(), bytes.len())).unwrap_or_default()
    }

    /// Waits until bytes arrive; `None` if that takes too long.
    fn receive(&mut self, at: End) -> Option<()> {
        while self.now < self.deadline {
            self.link.pump(self.now);
            if self.take(at) > 0 {
                return Some(());
            }
            self.now = self.link.next_wakeup(self.now)?;
        }
        None
    }

    /// A byte to the server, and its answer.
    fn round_trip(&mut self) -> Option<()> {
        self.send(End::Device, 1);
        self.receive(End::Server)?;
        self.send(End::Server, 1);
        self.receive(End::Device)
    }

    /// Connects, and widens the window of the sender.
    fn widen(&mut self, sender: End, receiver: End) {
        let mut left = WARM_UP;
        while self.socket(sender).send_queue() > 0 || left > 0 {
            self.link.pump(self.now);
            left -= self.send(sender, left);
            self.take(receiver);
            self.link.pump(self.now);
            match self.link.next_wakeup(self.now) {
                Some(next) => self.now = next,
                None => return,
            }
        }
    }
}

/// Runs a transfer that begins at `start`, when the traces of the link are at `offset` + `start`.
pub fn transfer(spec: &LinkSpec, offset: Span, start: Time, order: Order) -> Transferred {
    let (sender, receiver) = match order.way {
        Way::Down => (End::Server, End::Device),
        Way::Up => (End::Device, End::Server),
    };
    let mut connection = Connection::new(spec, order.bytes);
    connection.widen(sender, receiver);
    let began = connection.now;
    connection.limit(spec, offset + start.since(Time::ZERO));
    let outside = |now: Time| start + now.since(began);

    let mut found = Transferred { requested: None, arrivals: Vec::new(), is_complete: false };
    for _ in 0..order.exchanges {
        if connection.round_trip().is_none() {
            return found;
        }
    }
    found.requested = Some(outside(connection.now));
    if order.way == Way::Down {
        connection.send(End::Device, 1);
        if connection.receive(End::Server).is_none() {
            return found;
        }
    }
    let (mut slow_start, mut received) = (SlowStart::new(), 0);
    while received < order.bytes && connection.now < connection.deadline {
        let now = connection.now;
        connection.link.pump(now);
        let waiting = connection.socket(sender).send_queue();
        slow_start.on_waiting(now, waiting);
        // Packet by packet, so that each one has a round trip.
        while slow_start.sent < order.bytes && slow_start.room() >= SEGMENT {
            let count = connection.send(sender, SEGMENT.min(order.bytes - slow_start.sent));
            slow_start.on_sent(now, count);
        }
        let count = connection.take(receiver);
        if count > 0 {
            received += count;
            found.arrivals.push((outside(now), count));
        }
        connection.link.pump(now);
        let Some(next) = connection.link.next_wakeup(now) else { break };
        connection.now = next;
    }
    found.is_complete = received >= order.bytes;
    found
}
