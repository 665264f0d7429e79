//! A transfer over one TCP connection (smoltcp) on an emulated link, in virtual time.
//!
//! Two properties of smoltcp would decide most transfers of 1 MB, but are not those of today's
//! servers, so they are amended:
//! - It begins with a window of two segments, not with ten (RFC 6928). The sender's window first
//!   grows to ten on the same connection, while the link has no limit and before the transfer begins.
//! - It has no SACK and no HyStart: its slow start overflows a queue, and then it waits a second or
//!   more for a timeout. So the sending application keeps a separate window ([`Window`]) below
//!   that of the connection. Losses and outages are left to smoltcp.
//!
//! The round trips of a handshake are a byte and its answer each.

#[path = "../../crates/link/tests/tcp/link.rs"]
mod link;
mod multipath;
mod window;

use manyways_trace::scenario::{CapacitySpec, DirectionSpec, LinkSpec};
use manyways_unit::{Span, Time};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer};

use self::link::Link;
pub use self::multipath::download_over_both;
pub use self::window::Growth;
use self::window::Window;

/// Bytes that widen the window of smoltcp before a transfer.
const WARM_UP: usize = 1_000_000;
/// Payload of a packet.
const SEGMENT: usize = 1_460;
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
    /// Growth of the window after slow start.
    pub growth: Growth,
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
    /// Over a link that has no limit yet. Each end has room for this many bytes, and for the first
    /// ones.
    fn new(spec: &LinkSpec, bytes: usize) -> Self {
        let room = bytes.max(WARM_UP);
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

    /// Packets from `sender` that the link has dropped.
    fn dropped(&self, sender: End) -> u64 {
        let [down, up] = self.link.pipes();
        let pipes = if sender == End::Server { down } else { up };
        pipes.iter().map(|pipe| pipe.stats().dropped_packets()).sum()
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
    let (mut window, mut received) = (Window::new(order.growth), 0);
    while received < order.bytes && connection.now < connection.deadline {
        let now = connection.now;
        connection.link.pump(now);
        let waiting = connection.socket(sender).send_queue();
        window.on_waiting(now, waiting);
        window.on_dropped(now, connection.dropped(sender));
        // Packet by packet, so that each one has a round trip.
        while window.sent() < order.bytes && window.room() >= SEGMENT {
            let count = connection.send(sender, SEGMENT.min(order.bytes - window.sent()));
            window.on_sent(now, count);
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
