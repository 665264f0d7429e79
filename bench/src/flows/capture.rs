//! Synthetic captures of any size from a simple model of TCP. Equal [`Shape`]s give equal captures,
//! so that all contenders read the same file.
//!
//! A connection has a handshake, requests, responses in windows that double up to a limit, an
//! acknowledgement for every two segments, occasional losses after the capture point with a
//! retransmission, and an end. Every segment has a TCP timestamp of its sender's clock and echoes
//! the latest one that the sender received (RFC 7323). Half of the connections use HTTP; the
//! payload of the others begins like TLS.
//! others something that begins like TLS.

mod frame;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// Properties of a generated capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, clap::Args)]
pub struct Shape {
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
    pub lasts: u64,
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
struct Passing {
    flow: u32,
    is_up: bool,
    seq: u32,
    ack: u32,
    flags: u8,
    length: u32,
    /// Whether it begins the first response of a request or a request, whose bytes are readable.
    is_head: bool,
    /// TCP timestamp and echoed timestamp, in milliseconds.
    stamp: u32,
    echo: u32,
}

/// A connection that has not ended.
struct Talk {
    flow: u32,
    near: u64,
    far: u64,
    /// Remaining responses, in bytes.
    answers: Vec<u32>,
    /// Next sequence number of each side.
    up: u32,
    down: u32,
    stage: Stage,
    random: u64,
    client: End,
    server: End,
}

#[derive(Default)]
struct End {
    /// Round-trip time from the capture point to the endpoint, in nanoseconds.
    away: u64,
    /// Capture times of segments that have not arrived at the endpoint.
    coming: VecDeque<u64>,
    /// Timestamp of the last segment that arrived.
    seen: u32,
}

impl End {
    /// The timestamp of a segment that passes the capture point at `at`; it was sent half a
    /// round-trip time before.
    fn stamp(&self, at: u64) -> u32 {
        // Offset of the clock, because an echo of zero means that there is none.
        ((at + MILLI - self.away / 2) / MILLI) as u32 + 1_000
    }

    /// The echoed timestamp of a segment that passes at `at`: of the latest segment that passed at
    /// least a round-trip time before.
    fn echo(&mut self, at: u64, other: &Self) -> u32 {
        while self.coming.front().is_some_and(|passed| *passed + self.away <= at) {
            let passed = self.coming.pop_front().unwrap_or_default();
            self.seen = other.stamp(passed);
        }
        self.seen
    }
}

enum Stage {
    Syn,
    Ask,
    Answer { left: u32, window: u32, is_first: bool },
    Over,
}

/// Writes a capture.
///
/// # Errors
/// Errors of the output.
pub fn write(shape: &Shape, out: &mut dyn Write) -> io::Result<Written> {
    let mut written = Written { packets: 0, bytes: 24 };
    out.write_all(&0xa1b2_3c4d_u32.to_le_bytes())?;
    out.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
    out.write_all(&(shape.snap as u32).to_le_bytes())?;
    out.write_all(&1_u32.to_le_bytes())?;
    // The mean response size for the requested number of packets: two of three packets are data,
    // one is an acknowledgement; ten more belong to the handshake and the end.
    let each = shape.packets / u64::from(shape.flows.max(1));
    let mean = each.saturating_sub(10).max(3) * 2 / 3 * u64::from(MSS);
    let mut order = Order::default();
    let mut random = 7;
    for flow in 0..shape.flows {
        let at = draw(&mut random) % (shape.lasts * 1_000_000_000).max(1);
        order.push(at, Event::Begin(flow));
    }
    while let Some((at, event)) = order.pop() {
        match event {
            Event::Begin(flow) => Box::new(Talk::new(flow, mean)).turn(at, shape, &mut order),
            Event::Turn(talk) => talk.turn(at, shape, &mut order),
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
    Turn(Box<Talk>),
    Packet(Passing),
}

/// Events sorted by time; events of the same time keep their insertion order.
#[derive(Default)]
struct Order {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    events: Vec<Option<Event>>,
    free: Vec<u32>,
    count: u64,
}

impl Order {
    fn push(&mut self, at: u64, event: Event) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() as u32 - 1
        });
        self.events[slot as usize] = Some(event);
        self.heap.push(Reverse((at, self.count, slot)));
        self.count += 1;
    }

    fn pop(&mut self) -> Option<(u64, Event)> {
        let Reverse((at, _, slot)) = self.heap.pop()?;
        self.free.push(slot);
        Some((at, self.events[slot as usize].take()?))
    }
}

impl Talk {
    fn new(flow: u32, mean: u64) -> Self {
        let mut random = u64::from(flow) + 1;
        let near = (1 + draw(&mut random) % 8) * MILLI / 2;
        let far = (5 + draw(&mut random) % 60) * MILLI;
        // One to four responses, some of which are up to eight times as long as others.
        let count = 1 + draw(&mut random) % 4;
        let answers = (0..count)
            .map(|_| {
                let scale = [1, 1, 2, 4, 8][draw(&mut random) as usize % 5];
                (mean / count * scale * 10 / 32).clamp(300, 1 << 30) as u32
            })
            .collect();
        let (client, server) = [near, far].map(|away| End { away, ..End::default() }).into();
        let (up, down, stage) = (1_000, 5_000, Stage::Syn);
        Self { flow, near, far, answers, up, down, stage, random, client, server }
    }

    /// Must be called in the order in which the packets of one side pass.
    fn packet(&mut self, at: u64, is_up: bool, flags: u8, length: u32) -> Passing {
        let (seq, ack) = if is_up { (self.up, self.down) } else { (self.down, self.up) };
        let (own, other) = match is_up {
            true => (&mut self.client, &mut self.server),
            false => (&mut self.server, &mut self.client),
        };
        let (stamp, echo) = (own.stamp(at), own.echo(at, other));
        other.coming.push_back(at);
        Passing { flow: self.flow, is_up, seq, ack, flags, length, is_head: false, stamp, echo }
    }

    /// Schedules a packet without payload.
    fn send(&mut self, order: &mut Order, at: u64, is_up: bool, flags: u8) {
        let packet = self.packet(at, is_up, flags, 0);
        order.push(at, Event::Packet(packet));
    }

    /// Schedules the next packets of the connection, and its next turn.
    fn turn(mut self: Box<Self>, now: u64, shape: &Shape, order: &mut Order) {
        let (near, far) = (self.near, self.far);
        match self.stage {
            Stage::Syn => {
                let syn = Passing { ack: 0, ..self.packet(now, true, 0x02, 0) };
                order.push(now, Event::Packet(syn));
                self.up += 1;
                self.send(order, now + far, false, 0x12);
                self.down += 1;
                self.send(order, now + far + near, true, 0x10);
                self.stage = Stage::Ask;
                order.push(now + far + near + near / 4, Event::Turn(self));
            }
            Stage::Ask => {
                let length = 120 + (draw(&mut self.random) % 400) as u32;
                let ask = Passing { is_head: true, ..self.packet(now, true, 0x18, length) };
                order.push(now, Event::Packet(ask));
                self.up = self.up.wrapping_add(length);
                let left = self.answers.pop().unwrap_or(300);
                self.stage = Stage::Answer { left, window: 10, is_first: true };
                let think = draw(&mut self.random) % 20 * MILLI;
                order.push(now + far + think, Event::Turn(self));
            }
            Stage::Answer { left, window, is_first } => {
                self.answer(now, left, window, is_first, order);
            }
            Stage::Over if shape.open => {}
            Stage::Over => {
                self.send(order, now, true, 0x11);
                self.up = self.up.wrapping_add(1);
                self.send(order, now + far, false, 0x11);
                self.down = self.down.wrapping_add(1);
                self.send(order, now + far + near, true, 0x10);
            }
        }
    }

    /// Schedules one window of a response.
    fn answer(
        mut self: Box<Self>,
        now: u64,
        mut left: u32,
        window: u32,
        is_first: bool,
        order: &mut Order,
    ) {
        let (near, far) = (self.near, self.far);
        let mut at = now;
        let lost = draw(&mut self.random)
            .is_multiple_of(100)
            .then(|| draw(&mut self.random) as u32 % window);
        let mut missing = None;
        for index in 0..window {
            if left == 0 {
                break;
            }
            let length = left.min(MSS);
            left -= length;
            let flags = if left == 0 { 0x18 } else { 0x10 };
            let is_head = is_first && index == 0;
            let packet = Passing { is_head, ..self.packet(at, false, flags, length) };
            order.push(at, Event::Packet(packet));
            if lost == Some(index) && index + 4 < window && left > 4 * MSS {
                missing = Some((self.down, length));
            }
            self.down = self.down.wrapping_add(length);
            let acked = missing.map_or(self.down, |(begin, _)| begin);
            if index % 2 == 1 || left == 0 || missing.is_some() {
                let ack = Passing { ack: acked, ..self.packet(at + near, true, 0x10, 0) };
                order.push(at + near, Event::Packet(ack));
            }
            at += 12_000;
        }
        let mut next = now + near + far;
        if let Some((begin, length)) = missing {
            let again = Passing { seq: begin, ..self.packet(next, false, 0x10, length) };
            order.push(next, Event::Packet(again));
            self.send(order, next + near, true, 0x10);
            next += near + far;
        }
        self.stage = match (left, self.answers.is_empty()) {
            (0, true) => Stage::Over,
            (0, false) => Stage::Ask,
            _ => Stage::Answer { left, window: (window * 2).min(64), is_first: false },
        };
        if left == 0 {
            next = next.max(at + near) + draw(&mut self.random) % 300 * MILLI;
        }
        order.push(next.max(at), Event::Turn(self));
    }
}

/// Returns the next pseudo-random number (xorshift64*).
fn draw(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { flows: 50, packets: 10_000, snap: 96, lasts: 5, open: false };

    /// Time, direction, flags, timestamp and echoed timestamp of each packet.
    fn packets(shape: &Shape) -> Vec<(u64, bool, u8, u32, u32)> {
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
        let open = self::packets(&Shape { open: true, ..SHAPE });
        assert_eq!(open.len(), packets.len() - 150);
    }

    #[test]
    fn the_same_shape_gives_the_same_bytes() {
        let of = |shape: &Shape| {
            let mut file = Vec::new();
            write(shape, &mut file).unwrap();
            file
        };
        assert!(of(&SHAPE) == of(&SHAPE));
        assert!(of(&SHAPE) != of(&Shape { lasts: 6, ..SHAPE }));
        // Long packets are not truncated with the larger snap length.
        let whole = of(&Shape { snap: 65_535, ..SHAPE }).len();
        assert!(whole > 8 * of(&SHAPE).len(), "{whole}");
    }

    #[test]
    fn an_echo_is_a_round_trip_old() {
        let packets = packets(&Shape { flows: 1, ..SHAPE });
        let mut talk = Talk::new(0, 0);
        let mut stamps = [Vec::new(), Vec::new()];
        for (at, is_up, flags, stamp, echo) in packets {
            let own = if is_up { &mut talk.client } else { &mut talk.server };
            if flags != 0x02 {
                // The latest timestamp of the other side that passed at least a round-trip time
                // before.
                let due = stamps[usize::from(!is_up)].iter().rev();
                let due = due.copied().find(|(passed, _): &(u64, u32)| passed + own.away <= at);
                assert_eq!(due.map(|(_, stamp)| stamp), Some(echo));
            }
            stamps[usize::from(is_up)].push((at, stamp));
        }
    }
}
