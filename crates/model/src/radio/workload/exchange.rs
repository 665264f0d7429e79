//! Packets of one exchange between device and server.

use manyways_unit::Random;

use super::super::{Direction, Sampler};

/// Payload bytes of a full-sized packet, and header bytes of every packet.
const MAX_PAYLOAD: f64 = 1_448.0;
const HEADER_BYTES: u32 = 52;
/// A server with a longer think time acknowledges the request first (RFC 9293, 3.8.6.3: within 0.5
/// s; common stacks wait 40 to 200 ms).
const ACK_DELAY: f64 = 0.2;
/// Initial window of a sender (RFC 6928), and the largest window of the model, in packets.
const INITIAL_WINDOW: u32 = 10;
const MAX_WINDOW: u32 = 64;
/// Share of losses found only by the retransmission timeout, and its seconds.
const TIMEOUT_SHARE: f64 = 0.1;
const RETRANSMISSION_TIMEOUT: f64 = 1.0;

/// A request and its answer, over a new or a persistent connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exchange {
    /// Probability that the exchange opens a new connection.
    pub connect_probability: f64,
    /// Probability that a new connection uses TLS, which takes two more round trips.
    pub tls_probability: f64,
    /// Direction of the first message.
    pub first_direction: Direction,
    /// Bytes sent by the device.
    pub up: Sampler,
    /// Seconds from the end of the first message to the start of the answer, without the round-trip
    /// time.
    pub think_time: Sampler,
    /// Bytes received by the device.
    pub down: Sampler,
    /// Seconds after which the server closes a new connection.
    pub close_delay: Sampler,
}

/// The path between the device and a server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Path {
    /// In seconds.
    pub round_trip: f64,
    /// In bit/s.
    pub down: f64,
    /// In bit/s.
    pub up: f64,
    /// Share of lost packets towards the device.
    pub loss: f64,
}

/// Generates the packets of an exchange, not in order, and passes each to a callback.
pub(super) struct PacketGenerator<'a, F> {
    pub(super) now: f64,
    pub(super) path: Path,
    pub(super) random: &'a mut Random,
    pub(super) emit: F,
}

impl<F: FnMut(f64, Direction, u32)> PacketGenerator<'_, F> {
    /// Generates all packets of an exchange.
    pub(super) fn generate(&mut self, exchange: &Exchange) {
        let is_new = self.random.chance(exchange.connect_probability);
        if is_new {
            self.connect(self.path.round_trip);
            if self.random.chance(exchange.tls_probability) {
                self.tls_handshake();
            }
        }
        let (up, down) = (exchange.up.sample(self.random), exchange.down.sample(self.random));
        let thinks = exchange.think_time.sample(self.random);
        match exchange.first_direction {
            Direction::Up => {
                self.send_up(up);
                if thinks > ACK_DELAY {
                    self.emit_packet(self.path.round_trip, Direction::Down, 0);
                }
                self.now += self.path.round_trip + thinks;
                self.send_down(down);
            }
            Direction::Down => {
                self.send_down(down);
                self.now += thinks;
                self.send_up(up);
                self.emit_packet(self.path.round_trip, Direction::Down, 0);
            }
        }
        if is_new {
            self.now += exchange.close_delay.sample(self.random);
            self.close();
        }
    }

    fn emit_packet(&mut self, later: f64, direction: Direction, data: u32) {
        (self.emit)(self.now + later, direction, HEADER_BYTES + data);
    }

    fn connect(&mut self, round_trip: f64) {
        self.emit_packet(0.0, Direction::Up, 8);
        self.now += round_trip;
        self.emit_packet(0.0, Direction::Down, 8);
        self.emit_packet(0.0, Direction::Up, 0);
    }

    /// Hellos and certificates, then the messages before the first request.
    fn tls_handshake(&mut self) {
        self.send_up(520.0);
        self.now += self.path.round_trip;
        self.send_down(3_600.0);
        self.send_up(130.0);
        self.now += self.path.round_trip;
        self.send_down(200.0);
    }

    fn send_up(&mut self, bytes: f64) {
        let mut remaining = bytes.round();
        while remaining > 0.0 {
            let data = remaining.min(MAX_PAYLOAD);
            self.emit_packet(0.0, Direction::Up, data as u32);
            self.now += data * 8.0 / self.path.up;
            remaining -= data;
        }
    }

    /// In windows that double each round trip.
    fn send_down(&mut self, bytes: f64) {
        let mut remaining = bytes.round();
        let mut window = INITIAL_WINDOW;
        while remaining > 0.0 {
            let begin = self.now;
            for number in 1..=window {
                let data = remaining.min(MAX_PAYLOAD);
                self.emit_packet(0.0, Direction::Down, data as u32);
                self.now += data * 8.0 / self.path.down;
                remaining -= data;
                let is_last = remaining <= 0.0;
                if is_last || number.is_multiple_of(2) {
                    self.emit_packet(0.0, Direction::Up, 0);
                }
                if is_last {
                    return;
                }
                if self.random.chance(self.path.loss) {
                    let is_late = self.random.chance(TIMEOUT_SHARE);
                    self.now += if is_late { RETRANSMISSION_TIMEOUT } else { self.path.round_trip };
                    window = (window / 2).max(2);
                    break;
                }
            }
            self.now = self.now.max(begin + self.path.round_trip);
            window = (window * 2).min(MAX_WINDOW);
        }
    }

    fn close(&mut self) {
        self.emit_packet(0.0, Direction::Down, 0);
        self.emit_packet(0.001, Direction::Up, 0);
        self.emit_packet(0.002, Direction::Up, 0);
        self.emit_packet(0.002 + self.path.round_trip, Direction::Down, 0);
    }
}
