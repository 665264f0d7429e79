//! Packets of one exchange between device and server.

use manyways_unit::Random;

use super::super::{Direction, Draw};

/// Payload bytes of a full-sized packet, and header bytes of every packet.
const FULL: f64 = 1_448.0;
const HEADERS: u32 = 52;
/// A server with a longer think time acknowledges the request first (RFC 9293, 3.8.6.3: within 0.5
/// s; common stacks wait 40 to 200 ms).
const ACKNOWLEDGES_AFTER: f64 = 0.2;
/// Initial window of a sender (RFC 6928), and the largest window of the model, in packets.
const WINDOW: u32 = 10;
const LARGEST_WINDOW: u32 = 64;
/// Share of losses found only by the retransmission timeout, and its seconds.
const FOUND_LATE: f64 = 0.1;
const TIMER: f64 = 1.0;

/// A request and its answer, over a new or a persistent connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exchange {
    /// Probability that the exchange opens a new connection.
    pub connects: f64,
    /// Probability that a new connection uses TLS, which takes two more round trips.
    pub secures: f64,
    /// Direction of the first message.
    pub begins: Direction,
    /// Bytes sent by the device.
    pub up: Draw,
    /// Seconds from the end of the first message to the start of the answer, without the round-trip
    /// time.
    pub thinks: Draw,
    /// Bytes received by the device.
    pub down: Draw,
    /// Seconds after which the server closes a new connection.
    pub closes: Draw,
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
pub(super) struct Player<'a, F> {
    pub(super) now: f64,
    pub(super) path: Path,
    pub(super) random: &'a mut Random,
    pub(super) emit: F,
}

impl<F: FnMut(f64, Direction, u32)> Player<'_, F> {
    /// Generates all packets of an exchange.
    pub(super) fn play(&mut self, exchange: &Exchange) {
        let is_new = self.random.chance(exchange.connects);
        if is_new {
            self.connect(self.path.round_trip);
            if self.random.chance(exchange.secures) {
                self.secure();
            }
        }
        let (up, down) = (exchange.up.from(self.random), exchange.down.from(self.random));
        let thinks = exchange.thinks.from(self.random);
        match exchange.begins {
            Direction::Up => {
                self.up(up);
                if thinks > ACKNOWLEDGES_AFTER {
                    self.pass(self.path.round_trip, Direction::Down, 0);
                }
                self.now += self.path.round_trip + thinks;
                self.down(down);
            }
            Direction::Down => {
                self.down(down);
                self.now += thinks;
                self.up(up);
                self.pass(self.path.round_trip, Direction::Down, 0);
            }
        }
        if is_new {
            self.now += exchange.closes.from(self.random);
            self.close();
        }
    }

    fn pass(&mut self, later: f64, direction: Direction, data: u32) {
        (self.emit)(self.now + later, direction, HEADERS + data);
    }

    fn connect(&mut self, round_trip: f64) {
        self.pass(0.0, Direction::Up, 8);
        self.now += round_trip;
        self.pass(0.0, Direction::Down, 8);
        self.pass(0.0, Direction::Up, 0);
    }

    /// Hellos and certificates, then the messages before the first request.
    fn secure(&mut self) {
        self.up(520.0);
        self.now += self.path.round_trip;
        self.down(3_600.0);
        self.up(130.0);
        self.now += self.path.round_trip;
        self.down(200.0);
    }

    fn up(&mut self, bytes: f64) {
        let mut left = bytes.round();
        while left > 0.0 {
            let data = left.min(FULL);
            self.pass(0.0, Direction::Up, data as u32);
            self.now += data * 8.0 / self.path.up;
            left -= data;
        }
    }

    /// In windows that double each round trip.
    fn down(&mut self, bytes: f64) {
        let mut left = bytes.round();
        let mut window = WINDOW;
        while left > 0.0 {
            let begin = self.now;
            for number in 1..=window {
                let data = left.min(FULL);
                self.pass(0.0, Direction::Down, data as u32);
                self.now += data * 8.0 / self.path.down;
                left -= data;
                let is_last = left <= 0.0;
                if is_last || number.is_multiple_of(2) {
                    self.pass(0.0, Direction::Up, 0);
                }
                if is_last {
                    return;
                }
                if self.random.chance(self.path.loss) {
                    let is_late = self.random.chance(FOUND_LATE);
                    self.now += if is_late { TIMER } else { self.path.round_trip };
                    window = (window / 2).max(2);
                    break;
                }
            }
            self.now = self.now.max(begin + self.path.round_trip);
            window = (window * 2).min(LARGEST_WINDOW);
        }
    }

    fn close(&mut self) {
        self.pass(0.0, Direction::Down, 0);
        self.pass(0.001, Direction::Up, 0);
        self.pass(0.002, Direction::Up, 0);
        self.pass(0.002 + self.path.round_trip, Direction::Down, 0);
    }
}
