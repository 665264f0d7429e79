//! A server, a device, and a capture point between them.

use std::cell::Cell;

use manyways_flows::flow::Connection;
use manyways_trace::scenario::{
    CapacitySpec, DelaySpec, DirectionSpec, Discipline, LossSpec, QueueLimit, QueueSpec,
};
use manyways_unit::{Rate, Span, Time};
use manyways_wire::capture::LinkType;
use manyways_wire::frame;
use manyways_wire::stream::Endpoint;
use manyways_wire::tcp::Segment;
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer};

use crate::link::{Link, Passed};

/// Payload of smoltcp in a packet of 1500 bytes.
pub const MSS: u32 = 1_460;

pub fn hop(delay: u64, capacity: CapacitySpec, loss: LossSpec) -> DirectionSpec {
    DirectionSpec {
        capacity,
        delay: DelaySpec::Constant(Span::from_millis(delay)),
        jitter: Span::ZERO,
        reorder: false,
        loss,
        queue: QueueSpec {
            limit: QueueLimit::Time(Span::from_millis(300)),
            discipline: Discipline::DropTail,
        },
    }
}

pub fn free(delay: u64) -> DirectionSpec {
    hop(delay, CapacitySpec::Unlimited, LossSpec::None)
}

pub fn at(mbps: u64, delay: u64) -> DirectionSpec {
    hop(delay, CapacitySpec::Constant(Rate::from_mbps(mbps)), LossSpec::None)
}

/// The path between the two endpoints, and their TCP options.
pub struct Simulation {
    /// Towards the device; the first hop is next to the server.
    pub down: [DirectionSpec; 2],
    /// From the device; the first hop is next to it.
    pub up: [DirectionSpec; 2],
    pub has_timestamps: bool,
    /// Receive buffer of the device, in bytes.
    pub receive_buffer: usize,
}

impl Simulation {
    /// A path with these one-way delays, in milliseconds, from the capture point to the server and
    /// to the device.
    pub fn new(remote: u64, local: u64) -> Self {
        Self {
            down: [free(remote), free(local)],
            up: [free(local), free(remote)],
            has_timestamps: true,
            receive_buffer: 1 << 20,
        }
    }
}

/// Result of a run.
pub struct RunResult {
    pub link: Link,
    pub connection: Connection,
}

/// The application at a socket: acts at a time, and returns the time of its next action.
pub trait Application {
    fn act(&mut self, now: Time, socket: &mut Socket<'static>) -> Option<Time>;
}

impl<F: FnMut(Time, &mut Socket<'static>) -> Option<Time>> Application for F {
    fn act(&mut self, now: Time, socket: &mut Socket<'static>) -> Option<Time> {
        self(now, socket)
    }
}

thread_local! {
    /// Clock of both endpoints' timestamps: smoltcp calls a function without a time argument.
    static CLOCK: Cell<Time> = const { Cell::new(Time::ZERO) };
}

impl Simulation {
    /// Runs both applications until the device has received `bytes` bytes.
    pub fn run(
        &self,
        bytes: usize,
        mut server: impl Application,
        mut device: impl Application,
    ) -> RunResult {
        let ways = [&self.down, &self.up].map(|hops| [&hops[0], &hops[1]]);
        let mut link = Link::chain(&ways[0], &ways[1], 3);
        let (has_stamps, receives) = (self.has_timestamps, self.receive_buffer);
        let [caller, listener] = link.connect(80, || {
            let received = SocketBuffer::new(vec![0; receives]);
            let mut socket = Socket::new(received, SocketBuffer::new(vec![0; 1 << 20]));
            socket.set_congestion_control(CongestionControl::Reno);
            socket.set_ack_delay(None);
            if has_stamps {
                socket.set_tsval_generator(Some(|| (CLOCK.get().as_nanos() / 1_000_000) as u32));
            }
            socket
        });
        let (mut now, mut received) = (Time::ZERO, 0);
        let mut connection = Connection::new(now);
        while received < bytes {
            CLOCK.set(now);
            link.pump(now);
            let socket = link.device.socket(caller);
            while socket.can_recv() {
                received += socket.recv(|bytes| (bytes.len(), bytes.len())).unwrap();
            }
            let wishes = [
                server.act(now, link.server.socket(listener)),
                device.act(now, link.device.socket(caller)),
            ];
            link.pump(now);
            for passed in link.take_passed() {
                handle_passed(&mut connection, &passed);
            }
            let next = link.next_wakeup(now).into_iter().chain(wishes.into_iter().flatten()).min();
            now = next.expect("it goes on").max(now + Span::from_nanos(1));
            assert!(now < Time::ZERO + Span::from_secs(120), "{received} of {bytes} bytes came");
        }
        RunResult { link, connection }
    }

    /// Downloads `bytes` bytes at full rate.
    pub fn download(&self, bytes: usize) -> RunResult {
        self.run(bytes, Download(bytes), |_: Time, _: &mut Socket<'static>| None)
    }
}

/// A server that sends this number of bytes at once.
pub struct Download(pub usize);

impl Application for Download {
    fn act(&mut self, _: Time, socket: &mut Socket<'static>) -> Option<Time> {
        while self.0 > 0 && socket.can_send() {
            self.0 -= send(socket, self.0);
        }
        None
    }
}

/// Returns the number of bytes that the socket accepted.
pub fn send(socket: &mut Socket<'static>, bytes: usize) -> usize {
    socket
        .send(|free| {
            let count = free.len().min(bytes);
            (count, count)
        })
        .unwrap()
}

fn handle_passed(connection: &mut Connection, passed: &Passed) {
    let found = frame::ip_packet(LinkType::RAW, &passed.bytes, passed.bytes.len()).unwrap();
    let segment = Segment::read(found.payload, found.payload_length).unwrap();
    let from = if passed.is_down { Endpoint::Server } else { Endpoint::Client };
    connection.handle(passed.at, from, &segment);
}
