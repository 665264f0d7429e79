//! Captures of any size, made of conversations that a simple model of TCP holds: the same ones for
//! the same [`Shape`], so that all contenders read the same file.
//!
//! A connection has a handshake, a question, an answer that comes in windows which double until
//! they are large, acknowledgements of two segments each, now and then a segment that is lost
//! behind the capture point and comes again, and an end. Every segment has stamps. Half of the
//! connections speak HTTP, the others something that begins like TLS.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

/// What a capture is like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How many connections.
    pub flows: u32,
    /// How many packets, about.
    pub packets: u64,
    /// The most bytes that are kept of each.
    pub snap: usize,
    /// How long all of it takes, in seconds, about.
    pub lasts: u64,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    /// Packets.
    pub packets: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

const MSS: u32 = 1_448;
const MILLI: u64 = 1_000_000;

/// A packet that is going to pass.
struct Passing {
    flow: u32,
    is_up: bool,
    seq: u32,
    ack: u32,
    flags: u8,
    length: u32,
    /// The first question or answer, which has readable bytes.
    is_head: bool,
}

/// A connection that is still at it.
struct Talk {
    flow: u32,
    near: u64,
    far: u64,
    /// Answers that are still to come, in bytes.
    answers: Vec<u32>,
    /// The next bytes of each side.
    up: u32,
    down: u32,
    stage: Stage,
    random: u64,
}

enum Stage {
    Syn,
    Ask,
    Answer { left: u32, window: u32, is_first: bool },
    Over,
}

/// Writes a capture.
pub fn write(shape: &Shape, out: &mut dyn Write) -> io::Result<Written> {
    let mut written = Written { packets: 0, bytes: 24 };
    out.write_all(&0xa1b2_3c4d_u32.to_le_bytes())?;
    out.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
    out.write_all(&(shape.snap as u32).to_le_bytes())?;
    out.write_all(&1_u32.to_le_bytes())?;
    // The mean answer that makes about so many packets: of three packets two are data, one is an
    // acknowledgement; ten more belong to the beginning and the end.
    let each = shape.packets / u64::from(shape.flows.max(1));
    let mean = u32::try_from(each.saturating_sub(10).max(3) * 2 / 3).unwrap_or(1) * MSS;
    let mut order = Order::default();
    let mut random = 7;
    for flow in 0..shape.flows {
        let at = draw(&mut random) % (shape.lasts * 1_000_000_000).max(1);
        order.push(at, Event::Turn(Box::new(Talk::new(flow, mean))));
    }
    while let Some((at, event)) = order.pop() {
        match event {
            Event::Turn(talk) => talk.turn(at, &mut order),
            Event::Packet(packet) => {
                written.packets += 1;
                written.bytes += frame(at, &packet, shape.snap, out)?;
            }
        }
    }
    Ok(written)
}

enum Event {
    Turn(Box<Talk>),
    Packet(Passing),
}

/// Events by time; those of one time in the order in which they were put in.
#[derive(Default)]
struct Order {
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    events: std::collections::HashMap<u64, Event>,
    count: u64,
}

impl Order {
    fn push(&mut self, at: u64, event: Event) {
        self.heap.push(Reverse((at, self.count)));
        self.events.insert(self.count, event);
        self.count += 1;
    }

    fn pop(&mut self) -> Option<(u64, Event)> {
        let Reverse((at, number)) = self.heap.pop()?;
        self.events.remove(&number).map(|event| (at, event))
    }
}

impl Talk {
    fn new(flow: u32, mean: u32) -> Self {
        let mut random = u64::from(flow) + 1;
        let near = (1 + draw(&mut random) % 8) * MILLI / 2;
        let far = (5 + draw(&mut random) % 60) * MILLI;
        // One to four answers, of which some are ten times as long as others.
        let count = 1 + draw(&mut random) % 4;
        let answers = (0..count)
            .map(|_| {
                let scale = [1, 1, 2, 4, 8][draw(&mut random) as usize % 5];
                (mean / count as u32 * scale * 10 / 32).max(300)
            })
            .collect();
        Self { flow, near, far, answers, up: 1_000, down: 5_000, stage: Stage::Syn, random }
    }

    fn packet(&self, is_up: bool, flags: u8, length: u32, is_head: bool) -> Passing {
        let (seq, ack) = if is_up { (self.up, self.down) } else { (self.down, self.up) };
        Passing { flow: self.flow, is_up, seq, ack, flags, length, is_head }
    }

    /// Says what passes from now on, until it is this connection's turn again.
    fn turn(mut self: Box<Self>, now: u64, order: &mut Order) {
        let (near, far) = (self.near, self.far);
        match self.stage {
            Stage::Syn => {
                let syn = Passing { ack: 0, ..self.packet(true, 0x02, 0, false) };
                order.push(now, Event::Packet(syn));
                self.up += 1;
                order.push(now + far, Event::Packet(self.packet(false, 0x12, 0, false)));
                self.down += 1;
                order.push(now + far + near, Event::Packet(self.packet(true, 0x10, 0, false)));
                self.stage = Stage::Ask;
                order.push(now + far + near + near / 4, Event::Turn(self));
            }
            Stage::Ask => {
                let length = 120 + (draw(&mut self.random) % 400) as u32;
                order.push(now, Event::Packet(self.packet(true, 0x18, length, true)));
                self.up += length;
                let left = self.answers.pop().unwrap_or(300);
                self.stage = Stage::Answer { left, window: 10, is_first: true };
                let think = draw(&mut self.random) % 20 * MILLI;
                order.push(now + far + think, Event::Turn(self));
            }
            Stage::Answer { left, window, is_first } => self.answer(now, left, window, is_first, order),
            Stage::Over => {
                order.push(now, Event::Packet(self.packet(true, 0x11, 0, false)));
                self.up += 1;
                order.push(now + far, Event::Packet(self.packet(false, 0x11, 0, false)));
                self.down += 1;
                order.push(now + far + near, Event::Packet(self.packet(true, 0x10, 0, false)));
            }
        }
    }

    /// A window's worth of an answer.
    fn answer(mut self: Box<Self>, now: u64, mut left: u32, window: u32, is_first: bool, order: &mut Order) {
        let (near, far) = (self.near, self.far);
        let mut at = now;
        let lost = (draw(&mut self.random) % 100 == 0).then(|| draw(&mut self.random) as u32 % window);
        let mut missing = None;
        for index in 0..window {
            if left == 0 {
                break;
            }
            let length = left.min(MSS);
            left -= length;
            let flags = if left == 0 { 0x18 } else { 0x10 };
            let packet = self.packet(false, flags, length, is_first && index == 0);
            order.push(at, Event::Packet(packet));
            if lost == Some(index) && index + 4 < window && left > 4 * MSS {
                missing = Some((self.down, length));
            }
            self.down += length;
            let acked = missing.map_or(self.down, |(begin, _)| begin);
            if index % 2 == 1 || left == 0 || missing.is_some() {
                let ack = Passing { ack: acked, ..self.packet(true, 0x10, 0, false) };
                order.push(at + near, Event::Packet(ack));
            }
            at += 12_000;
        }
        let mut next = now + near + far;
        if let Some((begin, length)) = missing {
            let again = Passing { seq: begin, ..self.packet(false, 0x10, length, false) };
            order.push(next, Event::Packet(again));
            order.push(next + near, Event::Packet(self.packet(true, 0x10, 0, false)));
            next += near + far;
        }
        self.stage = match (left, self.answers.is_empty()) {
            (0, true) => Stage::Over,
            (0, false) => Stage::Ask,
            _ => Stage::Answer { left, window: (window * 2).min(64), is_first: false },
        };
        if left == 0 {
            next = at + near + draw(&mut self.random) % 300 * MILLI;
        }
        order.push(next.max(at), Event::Turn(self));
    }
}

/// The packet as the file has it; how many bytes that took.
fn frame(at: u64, packet: &Passing, snap: usize, out: &mut dyn Write) -> io::Result<u64> {
    let is_web = packet.flow % 2 == 0;
    let syn = packet.flags & 0x02 != 0;
    let options: &[u8] = match syn {
        true => &[2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7],
        false => &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1],
    };
    let mut bytes = [0_u8; 14 + 20 + 40];
    bytes[12] = 8;
    let header = 20 + options.len();
    let length = 20 + header + packet.length as usize;
    let ip = &mut bytes[14..];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    ip[8] = 64;
    ip[9] = 6;
    let [_, a, b, c] = packet.flow.to_be_bytes();
    let client = [10, a, b, c];
    let server = [198, 18, (packet.flow % 7) as u8, (packet.flow % 251) as u8];
    let (from, to) = if packet.is_up { (client, server) } else { (server, client) };
    ip[12..16].copy_from_slice(&from);
    ip[16..20].copy_from_slice(&to);
    let tcp = &mut ip[20..];
    let ports = (40_000_u16, if is_web { 80_u16 } else { 443 });
    let (from, to) = if packet.is_up { ports } else { (ports.1, ports.0) };
    tcp[..2].copy_from_slice(&from.to_be_bytes());
    tcp[2..4].copy_from_slice(&to.to_be_bytes());
    tcp[4..8].copy_from_slice(&packet.seq.to_be_bytes());
    tcp[8..12].copy_from_slice(&packet.ack.to_be_bytes());
    tcp[12] = (header / 4 << 4) as u8;
    tcp[13] = packet.flags;
    tcp[14..16].copy_from_slice(&8_192_u16.to_be_bytes());
    tcp[20..header].copy_from_slice(options);
    // Stamps tick in milliseconds, and echo what the other end is known to have sent.
    let now = (at / MILLI) as u32 + 1;
    let stamps = if syn { 8 } else { 4 };
    tcp[20 + stamps..24 + stamps].copy_from_slice(&now.to_be_bytes());
    let there = (14 + length).min(snap);
    out.write_all(&((at / 1_000_000_000) as u32 + 1_700_000_000).to_le_bytes())?;
    out.write_all(&((at % 1_000_000_000) as u32).to_le_bytes())?;
    out.write_all(&(there as u32).to_le_bytes())?;
    out.write_all(&((14 + length) as u32).to_le_bytes())?;
    let headers = 14 + 20 + header;
    out.write_all(&bytes[..headers.min(there)])?;
    let mut rest = there.saturating_sub(headers);
    let head: &[u8] = match (is_web, packet.is_up) {
        (true, true) => b"GET /an/object/of/some/length HTTP/1.1\r\nHost: www.example.net\r\n\r\n",
        (true, false) => b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nServer: one\r\n\r\n",
        (false, true) => b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        (false, false) => b"\x17\x03\x03\x40\x00",
    };
    if packet.is_head {
        let there = head.len().min(rest);
        out.write_all(&head[..there])?;
        rest -= there;
    }
    const FILL: [u8; 1_500] = [b'x'; 1_500];
    out.write_all(&FILL[..rest])?;
    Ok(16 + there as u64)
}

/// The next of a row of numbers that look random (xorshift64*).
fn draw(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}
