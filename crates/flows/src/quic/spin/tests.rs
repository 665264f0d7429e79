use std::collections::BTreeMap;

use End::{Client, Server};

use super::*;

/// How an endpoint sets the bit.
#[derive(Clone, Copy, PartialEq)]
enum Bit {
    Spins,
    Random,
    Constant,
}

/// A download, with a capture point between its endpoints.
#[derive(Clone, Copy)]
struct World {
    /// Round-trip time between the capture point and the client, and the server.
    near: u64,
    far: u64,
    bits: [Bit; 2],
    /// Lost packets, per thousand, on each of the four sections.
    lost: u64,
    /// Packets delayed by 1 ms, per thousand, on each of the four sections.
    late: u64,
    /// Microseconds between two packets of the server.
    pace: u64,
    /// Packets of the server per ACK.
    acks: u64,
    /// Captured directions.
    captured: [bool; 2],
    /// Whether the round-trip time of the handshake is known.
    has_handshake: bool,
}

#[derive(Clone, Copy)]
struct Packet {
    from: End,
    number: u64,
    bit: bool,
}

enum Event {
    Sends,
    Passes(Packet),
    Comes(Packet),
}

const WORLD: World = World {
    near: 20_000,
    far: 80_000,
    bits: [Bit::Spins; 2],
    lost: 0,
    late: 0,
    pace: 100,
    acks: 2,
    captured: [true; 2],
    has_handshake: true,
};

impl World {
    /// Returns the measurements of 10 s.
    fn run(self) -> Spin {
        self.read(&self.packets())
    }

    fn read(self, packets: &[(u64, End, bool)]) -> Spin {
        let mut spin = Spin::default();
        let least = self.has_handshake.then(|| Span::from_micros((self.near + self.far) / 2));
        for (now, from, bit) in packets {
            if self.captured[*from as usize] {
                spin.handle(time(*now), *from, *bit, least);
            }
        }
        spin
    }

    /// Returns the packets at the capture point.
    fn packets(self) -> Vec<(u64, End, bool)> {
        let mut packets = Vec::new();
        let mut random = Random(7);
        let mut events = BTreeMap::from([((0, 0), Event::Sends)]);
        let mut order = 0;
        // Highest packet number that each endpoint has received, and its bit.
        let mut seen = [(0, true), (0, false)];
        let mut numbers = [0; 2];
        while let Some(((now, _), event)) = events.pop_first() {
            if now > 10_000_000 {
                break;
            }
            let mut then = |at, event| {
                order += 1;
                events.insert((at, order), event);
            };
            let sender = match event {
                Event::Sends => {
                    then(now + self.pace, Event::Sends);
                    Some(Server)
                }
                Event::Passes(packet) => {
                    packets.push((now, packet.from, packet.bit));
                    if let Some(wait) = self.way(&mut random, packet.from.other()) {
                        then(now + wait, Event::Comes(packet));
                    }
                    None
                }
                Event::Comes(packet) => {
                    let end = packet.from.other();
                    let seen = &mut seen[end as usize];
                    *seen =
                        if packet.number > seen.0 { (packet.number, packet.bit) } else { *seen };
                    (end == Client && packet.number.is_multiple_of(self.acks)).then_some(Client)
                }
            };
            let Some(from) = sender else { continue };
            let bit = match self.bits[from as usize] {
                Bit::Spins => seen[from as usize].1 == (from == Server),
                Bit::Random => random.below(2) == 1,
                Bit::Constant => true,
            };
            numbers[from as usize] += 1;
            let packet = Packet { from, number: numbers[from as usize], bit };
            if let Some(wait) = self.way(&mut random, from) {
                then(now + wait, Event::Passes(packet));
            }
        }
        packets
    }

    /// Time between an endpoint and the capture point. `None` for a lost packet.
    fn way(self, random: &mut Random, end: End) -> Option<u64> {
        let both = if end == Client { self.near } else { self.far };
        let late = if random.below(1_000) < self.late { 1_000 } else { 0 };
        (random.below(1_000) >= self.lost).then_some(both / 2 + late)
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }
}

fn time(micros: u64) -> Time {
    Time::from_nanos(micros * 1_000)
}

/// Asserts that the median is within 1 %.
fn is_about(samples: &Samples, micros: u64) {
    let median = samples.median().expect("there are samples").as_nanos() as f64 / 1_000.0;
    assert!((median / micros as f64 - 1.0).abs() < 0.01, "{median} for {micros}");
}

fn tells_both_halves(world: World, many: u64) {
    let spin = world.run();
    assert!(spin.is_plausible());
    assert!(spin.to_server().count() >= many && spin.to_client().count() >= many);
    is_about(spin.to_server(), world.far);
    is_about(spin.to_client(), world.near);
    is_about(spin.whole(), world.near + world.far);
}

#[test]
fn each_half_is_told_by_edges() {
    tells_both_halves(WORLD, 95);
    tells_both_halves(World { near: 60_000, far: 10_000, ..WORLD }, 130);
    let spin = WORLD.run();
    let exact = |half: &Samples, micros| {
        let least = half.least().unwrap();
        assert!(least >= Span::from_micros(micros) && least <= Span::from_micros(micros + 200));
    };
    exact(spin.to_server(), WORLD.far);
    exact(spin.to_client(), WORLD.near);
    assert!((98..=101).contains(&spin.edges(Server)), "{}", spin.edges(Server));
}

#[test]
fn loss_and_disorder_change_no_median() {
    for has_handshake in [true, false] {
        let world = World { has_handshake, ..WORLD };
        tells_both_halves(World { lost: 30, ..world }, 90);
        tells_both_halves(World { late: 50, ..world }, 85);
        tells_both_halves(World { lost: 20, late: 200, ..world }, 80);
    }
    // No sample is due to reordering.
    let spin = World { lost: 20, late: 200, ..WORLD }.run();
    assert!(spin.to_client().least().unwrap() >= Span::from_micros(WORLD.near - 1_000));
    assert!(spin.to_server().least().unwrap() >= Span::from_micros(WORLD.far - 1_000));
    assert!(spin.whole().least().unwrap() >= Span::from_micros(WORLD.near + WORLD.far - 2_000));
}

#[test]
fn one_direction_tells_the_whole() {
    for captured in [[true, false], [false, true]] {
        for has_handshake in [true, false] {
            let spin = World { captured, has_handshake, late: 20, ..WORLD }.run();
            assert!(spin.is_plausible());
            is_about(spin.whole(), WORLD.near + WORLD.far);
            assert_eq!((spin.to_server().count(), spin.to_client().count()), (0, 0));
        }
    }
}

#[test]
fn a_half_that_is_shorter_than_the_silences_in_it_is_not_told() {
    // Next to the client, which acknowledges each tenth packet.
    let spin = World { near: 500, acks: 10, ..WORLD }.run();
    assert!(spin.is_plausible());
    assert_eq!(spin.to_client().count(), 0);
    is_about(spin.to_server(), WORLD.far);
}

#[test]
fn bits_that_nobody_turns_tell_nothing() {
    use Bit::{Constant, Random, Spins};
    for bits in [
        [Constant, Constant],
        [Constant, Spins],
        [Spins, Constant],
        [Random, Random],
        [Random, Spins],
        [Spins, Random],
        [Random, Constant],
        [Constant, Random],
    ] {
        // From dense traffic to one packet per round trip.
        for pace in [500, 2_000, 5_000, 20_000, 100_000, 300_000] {
            let packets = World { bits, pace, acks: 1, ..WORLD }.packets();
            for captured in [[true, true], [true, false], [false, true]] {
                for has_handshake in [true, false] {
                    let spin = World { captured, has_handshake, ..WORLD }.read(&packets);
                    let what = (bits.map(|bit| bit as u8), pace, captured, has_handshake);
                    assert!(!spin.is_plausible(), "{what:?} {spin:?}");
                }
            }
        }
    }
}

#[test]
fn clocks_that_step_back_are_no_round_trips() {
    let mut spin = Spin::default();
    for n in 0..200_u64 {
        let from = if n % 2 == 0 { Client } else { Server };
        spin.handle(time(1_000 - n), from, n / 40 % 2 == 0, None);
    }
    assert!(spin.edges(Client) > 0 && !spin.is_plausible());
}

/// One packet per millisecond; the bit changes after each of `turns` milliseconds.
fn turned_at(turns: &[u64]) -> Spin {
    let mut spin = Spin::default();
    for n in 0..1_000 {
        let bit = turns.iter().filter(|turn| **turn <= n).count() % 2 == 1;
        spin.handle(time(n * 1_000), Client, bit, Some(Span::from_millis(50)));
    }
    spin
}

#[test]
fn an_edge_that_was_missed_is_in_no_sample() {
    let samples = |turns: &[u64]| {
        let spin = turned_at(turns);
        (spin.edges(Client), spin.whole().count(), spin.whole().median())
    };
    assert_eq!(samples(&[100, 200, 300]), (3, 2, Some(Span::from_millis(100))));
    // The change at 120 is too early; the time from it to 200 is not a spin.
    assert_eq!(samples(&[100, 120, 200, 260]), (3, 1, Some(Span::from_millis(60))));
}

#[test]
fn a_few_edges_are_no_signal() {
    assert!(turned_at(&[100, 200, 300, 400, 500]).is_plausible());
    assert!(!turned_at(&[100, 200, 300]).is_plausible());
}
