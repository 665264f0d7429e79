use std::collections::BTreeMap;

use Endpoint::{Client, Server};

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
struct Simulation {
    /// Round-trip time between the capture point and the client, and the server.
    near: u64,
    far: u64,
    bits: [Bit; 2],
    /// Lost packets, per thousand, on each of the four sections.
    lost: u64,
    /// Packets delayed by 1 ms, per thousand, on each of the four sections.
    delayed: u64,
    /// Microseconds between two packets of the server.
    packet_interval: u64,
    /// Packets of the server per ACK.
    acks: u64,
    /// Captured directions.
    captured: [bool; 2],
    /// Whether the round-trip time of the handshake is known.
    has_handshake: bool,
}

#[derive(Clone, Copy)]
struct Packet {
    from: Endpoint,
    number: u64,
    bit: bool,
}

enum Event {
    Sent,
    Captured(Packet),
    Received(Packet),
}

const SIMULATION: Simulation = Simulation {
    near: 20_000,
    far: 80_000,
    bits: [Bit::Spins; 2],
    lost: 0,
    delayed: 0,
    packet_interval: 100,
    acks: 2,
    captured: [true; 2],
    has_handshake: true,
};

impl Simulation {
    /// Returns the measurements of 10 s.
    fn run(self) -> Spin {
        self.read(&self.packets())
    }

    fn read(self, packets: &[(u64, Endpoint, bool)]) -> Spin {
        let mut spin = Spin::default();
        let min = self.has_handshake.then(|| Span::from_micros((self.near + self.far) / 2));
        for (now, from, bit) in packets {
            if self.captured[*from as usize] {
                spin.handle(time(*now), *from, *bit, min);
            }
        }
        spin
    }

    /// Returns the packets at the capture point.
    fn packets(self) -> Vec<(u64, Endpoint, bool)> {
        let mut packets = Vec::new();
        let mut random = Rng(7);
        let mut events = BTreeMap::from([((0, 0), Event::Sent)]);
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
                Event::Sent => {
                    then(now + self.packet_interval, Event::Sent);
                    Some(Server)
                }
                Event::Captured(packet) => {
                    packets.push((now, packet.from, packet.bit));
                    if let Some(wait) = self.one_way_delay(&mut random, packet.from.other()) {
                        then(now + wait, Event::Received(packet));
                    }
                    None
                }
                Event::Received(packet) => {
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
            if let Some(wait) = self.one_way_delay(&mut random, from) {
                then(now + wait, Event::Captured(packet));
            }
        }
        packets
    }

    /// Time between an endpoint and the capture point. `None` for a lost packet.
    fn one_way_delay(self, random: &mut Rng, end: Endpoint) -> Option<u64> {
        let both = if end == Client { self.near } else { self.far };
        let late = if random.below(1_000) < self.delayed { 1_000 } else { 0 };
        (random.below(1_000) >= self.lost).then_some(both / 2 + late)
    }
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }
}

fn time(micros: u64) -> Time {
    Time::from_nanos(micros * 1_000)
}

/// Asserts that the median is within 1 %.
fn assert_median(samples: &Samples, micros: u64) {
    let median = samples.median().expect("there are samples").as_nanos() as f64 / 1_000.0;
    assert!((median / micros as f64 - 1.0).abs() < 0.01, "{median} for {micros}");
}

fn assert_partial_rtts(simulation: Simulation, many: u64) {
    let spin = simulation.run();
    assert!(spin.is_plausible());
    assert!(spin.server_rtt().count() >= many && spin.client_rtt().count() >= many);
    assert_median(spin.server_rtt(), simulation.far);
    assert_median(spin.client_rtt(), simulation.near);
    assert_median(spin.full_rtt(), simulation.near + simulation.far);
}

#[test]
fn each_half_is_told_by_edges() {
    assert_partial_rtts(SIMULATION, 95);
    assert_partial_rtts(Simulation { near: 60_000, far: 10_000, ..SIMULATION }, 130);
    let spin = SIMULATION.run();
    let exact = |half: &Samples, micros| {
        let min = half.min().unwrap();
        assert!(min >= Span::from_micros(micros) && min <= Span::from_micros(micros + 200));
    };
    exact(spin.server_rtt(), SIMULATION.far);
    exact(spin.client_rtt(), SIMULATION.near);
    assert!((98..=101).contains(&spin.edges(Server)), "{}", spin.edges(Server));
}

#[test]
fn loss_and_disorder_change_no_median() {
    for has_handshake in [true, false] {
        let simulation = Simulation { has_handshake, ..SIMULATION };
        assert_partial_rtts(Simulation { lost: 30, ..simulation }, 90);
        assert_partial_rtts(Simulation { delayed: 50, ..simulation }, 85);
        assert_partial_rtts(Simulation { lost: 20, delayed: 200, ..simulation }, 80);
    }
    // No sample is due to reordering.
    let spin = Simulation { lost: 20, delayed: 200, ..SIMULATION }.run();
    assert!(spin.client_rtt().min().unwrap() >= Span::from_micros(SIMULATION.near - 1_000));
    assert!(spin.server_rtt().min().unwrap() >= Span::from_micros(SIMULATION.far - 1_000));
    assert!(
        spin.full_rtt().min().unwrap()
            >= Span::from_micros(SIMULATION.near + SIMULATION.far - 2_000)
    );
}

#[test]
fn one_direction_tells_the_whole() {
    for captured in [[true, false], [false, true]] {
        for has_handshake in [true, false] {
            let spin = Simulation { captured, has_handshake, delayed: 20, ..SIMULATION }.run();
            assert!(spin.is_plausible());
            assert_median(spin.full_rtt(), SIMULATION.near + SIMULATION.far);
            assert_eq!((spin.server_rtt().count(), spin.client_rtt().count()), (0, 0));
        }
    }
}

#[test]
fn a_half_that_is_shorter_than_the_silences_in_it_is_not_told() {
    // Next to the client, which acknowledges each tenth packet.
    let spin = Simulation { near: 500, acks: 10, ..SIMULATION }.run();
    assert!(spin.is_plausible());
    assert_eq!(spin.client_rtt().count(), 0);
    assert_median(spin.server_rtt(), SIMULATION.far);
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
            let packets =
                Simulation { bits, packet_interval: pace, acks: 1, ..SIMULATION }.packets();
            for captured in [[true, true], [true, false], [false, true]] {
                for has_handshake in [true, false] {
                    let spin = Simulation { captured, has_handshake, ..SIMULATION }.read(&packets);
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
        (spin.edges(Client), spin.full_rtt().count(), spin.full_rtt().median())
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
