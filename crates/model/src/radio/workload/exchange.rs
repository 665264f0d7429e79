//! What passes when two ends talk once.

use manyways_unit::Random;

use super::super::{Direction, Draw};

/// Bytes of data in a full packet, and of the headers in every packet.
const FULL: f64 = 1_448.0;
const HEADERS: u32 = 52;
/// A server that takes longer to answer acknowledges meanwhile (RFC 9293, 3.8.6.3: within half a
/// second; usual stacks wait for 40 to 200 ms).
const ACKNOWLEDGES_AFTER: f64 = 0.2;
/// The first window of a sender (RFC 6928), and the largest that is played, in packets.
const WINDOW: u32 = 10;
const LARGEST_WINDOW: u32 = 64;
/// One loss in so many is only found by a timer, which takes so many seconds.
const FOUND_LATE: f64 = 0.1;
const TIMER: f64 = 1.0;

/// A question and its answer, perhaps on a connection of their own.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exchange {
    /// The probability that a connection is made for it.
    pub connects: f64,
    /// The probability that a new connection is encrypted, which takes two more round trips.
    pub secures: f64,
    /// Who speaks first.
    pub begins: Direction,
    /// Bytes that the device sends.
    pub up: Draw,
    /// Seconds from the end of the first to the beginning of the answer, without the way.
    pub thinks: Draw,
    /// Bytes that the device receives.
    pub down: Draw,
    /// Seconds after which a connection of its own is closed by the server.
    pub closes: Draw,
}

/// The way between the device and a server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Path {
    /// Seconds.
    pub round_trip: f64,
    /// Towards the device, bit/s.
    pub down: f64,
    /// From the device, bit/s.
    pub up: f64,
    /// The share of packets towards the device that are lost.
    pub loss: f64,
}

/// Plays an exchange: where it is, and who hears of its packets. They do not come in order.
pub(super) struct Player<'a, F> {
    pub(super) now: f64,
    pub(super) path: Path,
    pub(super) random: &'a mut Random,
    pub(super) emit: F,
}

impl<F: FnMut(f64, Direction, u32)> Player<'_, F> {
    /// All packets of an exchange.
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

    /// Hellos and certificates; then what is exchanged before the first question.
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

    /// In windows that double with each round trip.
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
