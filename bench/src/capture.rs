//! Synthetic captures of any size from a simple model of TCP. Equal [`CaptureSpec`]s give equal
//! captures, so that all contenders read the same file.
//!
//! A connection has a handshake, requests, responses in windows that double up to a limit, an
//! acknowledgement for every two segments, occasional losses after the capture point with a
//! retransmission, and an end. Every segment has a TCP timestamp of its sender's clock and echoes
//! the latest one that the sender received (RFC 7323). Half of the connections use HTTP; the
//! payload of the others begins like TLS.

mod frame;
mod source;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Write};

use serde::{Deserialize, Serialize};

pub use self::source::{Source, TIMEOUT, make};

/// Properties of a generated capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, clap::Args)]
pub struct CaptureSpec {
    /// How many connections.
    #[arg(long, value_name = "N")]
    pub flows: u32,
    /// How many packets, about.
    #[arg(long, value_name = "N")]
    pub packets: u64,
    /// The most bytes that are kept of each.
    #[arg(long, value_name = "BYTES")]
    pub snap: usize,
    /// In how many seconds all connections begin.
    #[arg(long, value_name = "SECONDS")]
    pub duration: u64,
    /// No connection ends.
    #[arg(long)]
    pub open: bool,
}

/// Size of a written capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Written {
    pub packets: u64,
    pub bytes: u64,
}

const MSS: u32 = 1_448;
const MILLI: u64 = 1_000_000;

/// A packet that is scheduled to pass the capture point.
struct ScheduledPacket {
    flow: u32,
    is_up: bool,
    seq: u32,
    ack: u32,
    flags: u8,
    length: u32,
    /// Whether it begins the first response of a request or a request, whose bytes are readable.
    is_head: bool,
    /// TCP timestamp and echoed timestamp, in milliseconds.
    timestamp: u32,
    echo: u32,
}

/// A connection that has not ended.
struct Connection {
    flow: u32,
    client_rtt: u64,
    server_rtt: u64,
    /// Remaining responses, in bytes.
    responses: Vec<u32>,
    /// Next sequence number of each side.
    client_seq: u32,
    server_seq: u32,
    stage: Stage,
    random: u64,
    client: Endpoint,
    server: Endpoint,
}

#[derive(Default)]
struct Endpoint {
    /// Round-trip time from the capture point to the endpoint, in nanoseconds.
    rtt: u64,
    /// Capture times of segments that have not arrived at the endpoint.
    in_flight: VecDeque<u64>,
    /// Timestamp of the last segment that arrived.
    last_timestamp: u32,
}

impl Endpoint {
    /// The timestamp of a segment that passes the capture point at `at`; it was sent half a
    /// round-trip time before.
    fn timestamp(&self, at: u64) -> u32 {
        // Offset of the clock, because an echo of zero means that there is none.
        ((at + MILLI - self.rtt / 2) / MILLI) as u32 + 1_000
    }

    /// The echoed timestamp of a segment that passes at `at`: of the latest segment that passed at
    /// least a round-trip time before.
    fn echo(&mut self, at: u64, other: &Self) -> u32 {
        while self.in_flight.front().is_some_and(|passed| *passed + self.rtt <= at) {
            let passed = self.in_flight.pop_front().unwrap_or_default();
            self.last_timestamp = other.timestamp(passed);
        }
        self.last_timestamp
    }
}

enum Stage {
    Syn,
    Request,
    Response { remaining: u32, window: u32, is_first: bool },
    Finished,
}

/// Writes a capture.
///
/// # Errors
/// Errors of the output.
pub fn write(shape: &CaptureSpec, out: &mut dyn Write) -> io::Result<Written> {
    let mut written = Written { packets: 0, bytes: 24 };
    out.write_all(&0xa1b2_3c4d_u32.to_le_bytes())?;
    out.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
    out.write_all(&(shape.snap as u32).to_le_bytes())?;
    out.write_all(&1_u32.to_le_bytes())?;
    // The mean response size for the requested number of packets: two of three packets are data,
    // one is an acknowledgement; ten more belong to the handshake and the end.
    let each = shape.packets / u64::from(shape.flows.max(1));
    let mean = each.saturating_sub(10).max(3) * 2 / 3 * u64::from(MSS);
    let mut queue = EventQueue::default();
    let mut random = 7;
    for flow in 0..shape.flows {
        let at = next_random(&mut random) % (shape.duration * 1_000_000_000).max(1);
        queue.push(at, Event::Begin(flow));
    }
    while let Some((at, event)) = queue.pop() {
        match event {
            Event::Begin(flow) => Box::new(Connection::new(flow, mean)).step(at, shape, &mut queue),
            Event::Step(talk) => talk.step(at, shape, &mut queue),
            Event::Packet(packet) => {
                written.packets += 1;
                written.bytes += frame::write(at, &packet, shape.snap, out)?;
            }
        }
    }
    Ok(written)
}

enum Event {
    Begin(u32),
    Step(Box<Connection>),
    Packet(ScheduledPacket),
}

/// Events sorted by time; events of the same time keep their insertion order.
#[derive(Default)]
struct EventQueue {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    slots: Vec<Option<Event>>,
    free: Vec<u32>,
    count: u64,
}

impl EventQueue {
    fn push(&mut self, at: u64, event: Event) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(event);
        self.heap.push(Reverse((at, self.count, slot)));
        self.count += 1;
    }

    fn pop(&mut self) -> Option<(u64, Event)> {
        let Reverse((at, _, slot)) = self.heap.pop()?;
        self.free.push(slot);
        Some((at, self.slots[slot as usize].take()?))
    }
}

impl Connection {
    fn new(flow: u32, mean: u64) -> Self {
        let mut random = u64::from(flow) + 1;
        let near = (1 + next_random(&mut random) % 8) * MILLI / 2;
        let far = (5 + next_random(&mut random) % 60) * MILLI;
        // One to four responses, some of which are up to eight times as long as others.
        let count = 1 + next_random(&mut random) % 4;
        let answers = (0..count)
            .map(|_| {
                let scale = [1, 1, 2, 4, 8][next_random(&mut random) as usize % 5];
                (mean / count * scale * 10 / 32).clamp(300, 1 << 30) as u32
            })
            .collect();
        let (client, server) =
            [near, far].map(|away| Endpoint { rtt: away, ..Endpoint::default() }).into();
        let (up, down, stage) = (1_000, 5_000, Stage::Syn);
        Self {
            flow,
            client_rtt: near,
            server_rtt: far,
            responses: answers,
            client_seq: up,
            server_seq: down,
            stage,
            random,
            client,
            server,
        }
    }

    /// Must be called in the order in which the packets of one side pass.
    fn packet(&mut self, at: u64, is_up: bool, flags: u8, length: u32) -> ScheduledPacket {
        let (seq, ack) = if is_up {
            (self.client_seq, self.server_seq)
        } else {
            (self.server_seq, self.client_seq)
        };
        let (own, other) = match is_up {
            true => (&mut self.client, &mut self.server),
            false => (&mut self.server, &mut self.client),
        };
        let (tsval, echo) = (own.timestamp(at), own.echo(at, other));
        other.in_flight.push_back(at);
        ScheduledPacket {
            flow: self.flow,
            is_up,
            seq,
            ack,
            flags,
            length,
            is_head: false,
            timestamp: tsval,
            echo,
        }
    }

    /// Schedules a packet without payload.
    fn send(&mut self, queue: &mut EventQueue, at: u64, is_up: bool, flags: u8) {
        let packet = self.packet(at, is_up, flags, 0);
        queue.push(at, Event::Packet(packet));
    }

    /// Schedules the next packets of the connection, and its next turn.
    fn step(mut self: Box<Self>, now: u64, shape: &CaptureSpec, queue: &mut EventQueue) {
        let (near, far) = (self.client_rtt, self.server_rtt);
        match self.stage {
            Stage::Syn => {
                let syn = ScheduledPacket { ack: 0, ..self.packet(now, true, 0x02, 0) };
                queue.push(now, Event::Packet(syn));
                self.client_seq += 1;
                self.send(queue, now + far, false, 0x12);
                self.server_seq += 1;
                self.send(queue, now + far + near, true, 0x10);
                self.stage = Stage::Request;
                queue.push(now + far + near + near / 4, Event::Step(self));
            }
            Stage::Request => {
                let length = 120 + (next_random(&mut self.random) % 400) as u32;
                let packet =
                    ScheduledPacket { is_head: true, ..self.packet(now, true, 0x18, length) };
                queue.push(now, Event::Packet(packet));
                self.client_seq = self.client_seq.wrapping_add(length);
                let remaining = self.responses.pop().unwrap_or(300);
                self.stage = Stage::Response { remaining, window: 10, is_first: true };
                let think = next_random(&mut self.random) % 20 * MILLI;
                queue.push(now + far + think, Event::Step(self));
            }
            Stage::Response { remaining: left, window, is_first } => {
                self.respond(now, left, window, is_first, queue);
            }
            Stage::Finished if shape.open => {}
            Stage::Finished => {
                self.send(queue, now, true, 0x11);
                self.client_seq = self.client_seq.wrapping_add(1);
                self.send(queue, now + far, false, 0x11);
                self.server_seq = self.server_seq.wrapping_add(1);
                self.send(queue, now + far + near, true, 0x10);
            }
        }
    }

    /// Schedules one window of a response.
    fn respond(
        mut self: Box<Self>,
        now: u64,
        mut remaining: u32,
        window: u32,
        is_first: bool,
        queue: &mut EventQueue,
    ) {
        let (near, far) = (self.client_rtt, self.server_rtt);
        let mut at = now;
        let lost = next_random(&mut self.random)
            .is_multiple_of(100)
            .then(|| next_random(&mut self.random) as u32 % window);
        let mut missing = None;
        for index in 0..window {
            if remaining == 0 {
                break;
            }
            let length = remaining.min(MSS);
            remaining -= length;
            let flags = if remaining == 0 { 0x18 } else { 0x10 };
            let is_head = is_first && index == 0;
            let packet = ScheduledPacket { is_head, ..self.packet(at, false, flags, length) };
            queue.push(at, Event::Packet(packet));
            if lost == Some(index) && index + 4 < window && remaining > 4 * MSS {
                missing = Some((self.server_seq, length));
            }
            self.server_seq = self.server_seq.wrapping_add(length);
            let acked = missing.map_or(self.server_seq, |(begin, _)| begin);
            if index % 2 == 1 || remaining == 0 || missing.is_some() {
                let ack = ScheduledPacket { ack: acked, ..self.packet(at + near, true, 0x10, 0) };
                queue.push(at + near, Event::Packet(ack));
            }
            at += 12_000;
        }
        let mut next = now + near + far;
        if let Some((begin, length)) = missing {
            let again = ScheduledPacket { seq: begin, ..self.packet(next, false, 0x10, length) };
            queue.push(next, Event::Packet(again));
            self.send(queue, next + near, true, 0x10);
            next += near + far;
        }
        self.stage = match (remaining, self.responses.is_empty()) {
            (0, true) => Stage::Finished,
            (0, false) => Stage::Request,
            _ => Stage::Response { remaining, window: (window * 2).min(64), is_first: false },
        };
        if remaining == 0 {
            next = next.max(at + near) + next_random(&mut self.random) % 300 * MILLI;
        }
        queue.push(next.max(at), Event::Step(self));
    }
}

/// Returns the next pseudo-random number (xorshift64*).
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: CaptureSpec =
        CaptureSpec { flows: 50, packets: 10_000, snap: 96, duration: 5, open: false };

    /// Time, direction, flags, timestamp and echoed timestamp of each packet.
    fn packets(shape: &CaptureSpec) -> Vec<(u64, bool, u8, u32, u32)> {
        let mut file = Vec::new();
        let written = write(shape, &mut file).unwrap();
        assert_eq!(written.bytes, file.len() as u64);
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let (mut at, mut packets) = (24, Vec::new());
        while at < file.len() {
            let there = word(at + 8) as usize;
            let time = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4));
            let tcp = &file[at + 16 + 34..at + 16 + there];
            let stamps = if tcp[13] & 0x02 != 0 { 28 } else { 24 };
            let stamp = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
            let is_up = tcp[..2] == 40_000_u16.to_be_bytes();
            packets.push((time, is_up, tcp[13], stamp(stamps), stamp(stamps + 4)));
            at += 16 + there;
        }
        assert_eq!(packets.len() as u64, written.packets);
        packets
    }

    #[test]
    fn a_capture_has_about_what_was_asked_for_in_order() {
        let packets = packets(&SHAPE);
        assert!((8_000..12_000).contains(&packets.len()), "{}", packets.len());
        assert!(packets.is_sorted_by_key(|packet| packet.0));
        let count = |flags| packets.iter().filter(|packet| packet.2 == flags).count();
        assert_eq!((count(0x02), count(0x12), count(0x11)), (50, 50, 100));
        let open = self::packets(&CaptureSpec { open: true, ..SHAPE });
        assert_eq!(open.len(), packets.len() - 150);
    }

    #[test]
    fn the_same_shape_gives_the_same_bytes() {
        let of = |shape: &CaptureSpec| {
            let mut file = Vec::new();
            write(shape, &mut file).unwrap();
            file
        };
        assert!(of(&SHAPE) == of(&SHAPE));
        assert!(of(&SHAPE) != of(&CaptureSpec { duration: 6, ..SHAPE }));
        // Long packets are not truncated with the larger snap length.
        let whole = of(&CaptureSpec { snap: 65_535, ..SHAPE }).len();
        assert!(whole > 8 * of(&SHAPE).len(), "{whole}");
    }

    #[test]
    fn an_echo_is_a_round_trip_old() {
        let packets = packets(&CaptureSpec { flows: 1, ..SHAPE });
        let mut talk = Connection::new(0, 0);
        let mut stamps = [Vec::new(), Vec::new()];
        for (at, is_up, flags, tsval, echo) in packets {
            let own = if is_up { &mut talk.client } else { &mut talk.server };
            if flags != 0x02 {
                // The latest timestamp of the other side that passed at least a round-trip time
                // before.
                let due = stamps[usize::from(!is_up)].iter().rev();
                let due = due.copied().find(|(passed, _): &(u64, u32)| passed + own.rtt <= at);
                assert_eq!(due.map(|(_, tsval)| tsval), Some(echo));
            }
            stamps[usize::from(is_up)].push((at, tsval));
        }
    }
}
