use manyways_trace::scenario::{
    CapacitySpec, DelaySpec, DirectionSpec, LinkState, QueueLimit, QueueSpec,
};
use manyways_trace::{LinkTrace, Steps};
use manyways_unit::{Rate, Size, Span};
use proptest::prelude::*;

use super::*;
use crate::{Output, Packet};

const KINDS: [NetworkKind; 2] = [NetworkKind::Bluetooth, NetworkKind::Wifi];
const BLUETOOTH: usize = 0;
const WIFI: usize = 1;
const DOWN: usize = 0;
const UP: usize = 1;

impl Member for [Pipe; 2] {
    fn directions(&mut self) -> [&mut Pipe; 2] {
        self.each_mut()
    }
}

/// Links in one air, and the rule for their use.
struct Air {
    links: Vec<[Pipe; 2]>,
    medium: Medium,
    outputs: Vec<(usize, Output)>,
    sent: u64,
}

impl Air {
    fn new(links: &[(NetworkKind, CapacitySpec)]) -> Self {
        let pipes = |(_, capacity): &(NetworkKind, CapacitySpec)| {
            let queue =
                QueueSpec { limit: QueueLimit::Unlimited, ..DirectionSpec::default().queue };
            let capacity = capacity.clone();
            let spec = DirectionSpec { capacity, queue, ..DirectionSpec::default() };
            [0, 1].map(|seed| Pipe::new(&spec, seed))
        };
        let kinds = links.iter().map(|(kind, _)| *kind).enumerate();
        let links = links.iter().map(pipes).collect();
        Self { links, medium: Medium::new(kinds), outputs: Vec::new(), sent: 0 }
    }

    /// Bluetooth and Wi-Fi of 1.2 Mbit/s: 1500 bytes take 10 ms alone.
    fn bluetooth_and_wifi() -> Self {
        Self::new(&KINDS.map(|kind| (kind, kbit(1_200))))
    }

    fn pipe(&mut self, now: Time, link: usize, direction: usize) -> &mut Pipe {
        self.medium.advance(now, &mut self.links);
        &mut self.links[link][direction]
    }

    fn send(&mut self, now: Time, link: usize, direction: usize, bytes: u64) {
        self.sent += 1;
        let packet = Packet::single(self.sent, Size::from_bytes(bytes));
        self.pipe(now, link, direction).handle(now, packet);
    }

    fn poll(&mut self, now: Time) {
        self.medium.advance(now, &mut self.links);
        for (index, link) in self.links.iter_mut().enumerate() {
            for pipe in link {
                self.outputs.extend(std::iter::from_fn(|| pipe.poll(now)).map(|out| (index, out)));
            }
        }
    }

    /// Polls at each wake-up up to `end`.
    fn run_until(&mut self, from: Time, end: Time) {
        let mut now = from;
        loop {
            self.poll(now);
            let pipes = self.links.iter().flatten().filter_map(Pipe::next_wakeup);
            match pipes.chain(self.medium.next_wakeup()).min() {
                Some(next) if next <= end => now = next.max(now),
                _ => break,
            }
        }
    }

    /// Returns the times of the packets of a link, in nanoseconds.
    fn times(&self, link: usize) -> Vec<u64> {
        let own = self.outputs.iter().filter(|(of, _)| *of == link);
        own.map(|(_, output)| output.at().as_nanos()).collect()
    }

    /// Polls at each wake-up to the end and returns the times of both links.
    fn run(mut self) -> [Vec<u64>; 2] {
        self.run_until(Time::ZERO, Time::MAX);
        [self.times(0), self.times(1)]
    }
}

fn kbit(rate: u64) -> CapacitySpec {
    CapacitySpec::Constant(Rate::from_kbps(rate))
}

/// A delivery opportunity of 1500 bytes every `millis`.
fn every(millis: u64) -> LinkTrace {
    let period = Span::from_millis(millis);
    LinkTrace::opportunities(vec![period], Size::from_bytes(1_500), period).unwrap()
}

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

/// Nanoseconds in which a packet that takes `millis` alone is sent at a rate of this many hundredths.
fn slowed(millis: u64, share: u64) -> u64 {
    (millis * 100_000_000).div_ceil(share)
}

const MS: u64 = 1_000_000;

#[test]
fn a_link_alone_in_its_air_has_its_rate() {
    let mut air = Air::bluetooth_and_wifi();
    for direction in [DOWN, UP] {
        air.send(at(0), BLUETOOTH, direction, 1_500);
    }
    air.send(at(10), WIFI, DOWN, 1_500);
    // A packet that arrives as the other link becomes idle is not slowed.
    assert_eq!(air.run(), [vec![10 * MS, 10 * MS], vec![20 * MS]]);
}

#[test]
fn both_directions_are_slower_while_the_other_link_is_busy() {
    let mut air = Air::bluetooth_and_wifi();
    for _ in 0..20 {
        air.send(at(0), WIFI, DOWN, 1_500);
    }
    air.send(at(0), BLUETOOTH, DOWN, 1_500);
    air.send(at(0), BLUETOOTH, UP, 3_000);
    let [bluetooth, wifi] = air.run();
    assert_eq!(bluetooth, [slowed(10, 53), slowed(20, 53)]);
    // In 37.7 ms of 0.93 times the rate, Wi-Fi sent 3.5 packets; it then has its whole rate.
    assert_eq!(wifi[2], slowed(30, 93));
    let lost = slowed(20, 53) * 7 / 100;
    assert!(wifi[19].abs_diff(200 * MS + lost) <= 1, "{}", wifi[19]);
}

#[test]
fn a_packet_continues_at_another_rate() {
    let mut air = Air::bluetooth_and_wifi();
    // At 1.2 Mbit/s Bluetooth sends 6 of 12 kbit in 5 ms, and then 636 bit a millisecond until Wi-Fi
    // has sent 480 bit.
    air.send(at(0), BLUETOOTH, DOWN, 1_500);
    air.send(at(5), WIFI, UP, 60);
    let idle = 5 * MS + slowed(480, 93) / 1_200;
    let [bluetooth, wifi] = air.run();
    assert!(wifi[0].abs_diff(idle) <= 1, "{wifi:?}");
    let expected = 10 * MS + (idle - 5 * MS) * 47 / 100;
    assert!(bluetooth[0].abs_diff(expected) <= 1, "{bluetooth:?}");
}

#[test]
fn more_links_slow_a_link_no_further() {
    let kinds = [NetworkKind::Bluetooth, NetworkKind::Wifi, NetworkKind::Wifi];
    let mut air = Air::new(&kinds.map(|kind| (kind, kbit(1_200))));
    for link in 0..3 {
        air.send(at(0), link, DOWN, 1_500);
        air.send(at(0), link, DOWN, 15_000);
    }
    air.run_until(at(0), at(50));
    assert_eq!(air.times(0), [slowed(10, 53)]);
    assert_eq!(air.times(1), [slowed(10, 93)]);
    assert_eq!(air.times(2), [slowed(10, 93)]);
}

#[test]
fn a_link_that_cannot_send_is_idle() {
    // A link that is paused, waits for its radio, is down, or has no limit.
    let cases: [fn(&mut Pipe); 4] = [
        |pipe| pipe.set_state(at(0), LinkState::Paused),
        |pipe| pipe.pause_until(at(0), at(1_000)),
        |pipe| pipe.set_state(at(0), LinkState::Silent),
        |pipe| pipe.set_capacity(at(0), CapacitySpec::Unlimited),
    ];
    for case in cases {
        let mut air = Air::bluetooth_and_wifi();
        case(air.pipe(at(0), WIFI, DOWN));
        air.send(at(0), WIFI, DOWN, 1_500);
        air.send(at(0), BLUETOOTH, DOWN, 1_500);
        air.run_until(at(0), at(500));
        assert_eq!(air.times(BLUETOOTH), [10 * MS]);
    }
}

#[test]
fn a_link_becomes_busy_at_the_end_of_its_pause() {
    // With opportunities, packets wait after the pause for the first one.
    let trace = CapacitySpec::Trace { source: String::new(), trace: every(40) };
    for capacity in [kbit(1_200), trace] {
        let mut air =
            Air::new(&[(NetworkKind::Bluetooth, kbit(1_200)), (NetworkKind::Wifi, capacity)]);
        air.pipe(at(0), WIFI, DOWN).pause_until(at(0), at(5));
        air.send(at(0), WIFI, DOWN, 15_000);
        air.send(at(0), BLUETOOTH, DOWN, 1_500);
        air.run_until(at(0), at(30));
        assert_eq!(air.times(BLUETOOTH), [5 * MS + slowed(5, 53)]);
    }
}

#[test]
fn a_link_that_goes_down_leaves_the_air_at_once() {
    let mut air = Air::bluetooth_and_wifi();
    air.send(at(0), WIFI, DOWN, 15_000);
    air.send(at(0), BLUETOOTH, DOWN, 1_500);
    air.run_until(at(0), at(10));
    air.pipe(at(10), WIFI, DOWN).set_state(at(10), LinkState::Silent);
    air.run_until(at(10), at(100));
    // Bluetooth sent 53 hundredths of its packet; the time is rounded up with the rest of a bit.
    assert!(air.times(BLUETOOTH)[0].abs_diff(14_700_000) <= 1);
}

#[test]
fn opportunities_and_steps_are_shared() {
    let steps = vec![(Span::ZERO, Rate::from_kbps(1_200)), (Span::from_millis(15), Rate::ZERO)];
    let rates = LinkTrace::Rates(Steps::new(steps, Span::from_millis(20)).unwrap());
    // 2820 bytes need 5320.8 of Bluetooth's capacity: four opportunities, or two periods of 2250
    // bytes and 5.5 ms.
    for (trace, expected) in [(every(10), 40 * MS), (rates, 45_471_699)] {
        let capacity = CapacitySpec::Trace { source: String::new(), trace };
        let mut air =
            Air::new(&[(NetworkKind::Bluetooth, capacity), (NetworkKind::Wifi, kbit(1_200))]);
        air.send(at(0), WIFI, DOWN, 60_000);
        air.send(at(0), BLUETOOTH, DOWN, 2_820);
        assert_eq!(air.run()[BLUETOOTH], [expected]);
    }
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    after: Span,
    link: usize,
    direction: usize,
    bytes: u64,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let after = prop_oneof![Just(0), 0_u64..30_000];
    let arrival = (after, 0..2_usize, 0..2_usize, 40_u64..1_500).prop_map(
        |(after, link, direction, bytes)| Arrival {
            after: Span::from_micros(after),
            link,
            direction,
            bytes,
        },
    );
    prop::collection::vec(arrival, 1..60)
}

/// Returns the times of all packets of each link; `air` shares it or not.
fn outcome(arrivals: &[Arrival], is_shared: bool, polls: bool) -> [Vec<u64>; 2] {
    let mut air = Air::bluetooth_and_wifi();
    if !is_shared {
        air.medium = Medium::new([]);
    }
    let mut now = Time::ZERO;
    for arrival in arrivals {
        let next = now + arrival.after;
        if polls {
            air.run_until(now, next);
        }
        now = next;
        air.send(now, arrival.link, arrival.direction, arrival.bytes);
    }
    if polls {
        air.run_until(now, Time::MAX);
    }
    air.poll(Time::MAX);
    let sorted = |link| {
        let mut times = air.times(link);
        times.sort_unstable();
        times
    };
    [sorted(BLUETOOTH), sorted(WIFI)]
}

proptest! {
    #[test]
    fn the_times_of_polls_change_nothing(arrivals in arrivals()) {
        // A late poll reports several packets with the time of each.
        prop_assert_eq!(outcome(&arrivals, true, true), outcome(&arrivals, true, false));
    }

    #[test]
    fn a_wake_up_is_never_late(arrivals in arrivals(), delay in 0_u64..50) {
        let mut air = Air::bluetooth_and_wifi();
        // Wi-Fi wakes its shell when packets arrive, not when they depart.
        for direction in [DOWN, UP] {
            let delay = DelaySpec::Constant(Span::from_millis(delay));
            air.pipe(at(0), WIFI, direction).set_delay(at(0), delay);
        }
        let mut now = Time::ZERO;
        let end = Arrival { after: Span::from_secs(10), link: 0, direction: 0, bytes: 40 };
        for arrival in arrivals.iter().chain([&end]) {
            let next = now + arrival.after;
            loop {
                let before = air.outputs.len();
                air.poll(now);
                for (_, output) in &air.outputs[before..] {
                    prop_assert_eq!(output.at(), now);
                }
                let pipes = air.links.iter().flatten().filter_map(Pipe::next_wakeup);
                match pipes.chain(air.medium.next_wakeup()).min() {
                    Some(wakeup) if wakeup < next => now = wakeup.max(now),
                    _ => break,
                }
            }
            now = next;
            air.send(now, arrival.link, arrival.direction, arrival.bytes);
        }
    }

    #[test]
    fn no_packet_is_faster_than_alone_or_slower_than_its_share(arrivals in arrivals()) {
        let shared = outcome(&arrivals, true, false);
        let alone = outcome(&arrivals, false, false);
        for (link, share) in [(BLUETOOTH, 53), (WIFI, 93)] {
            prop_assert_eq!(shared[link].len(), alone[link].len());
            for (shared, alone) in shared[link].iter().zip(&alone[link]) {
                prop_assert!(alone <= shared);
                prop_assert!(*shared <= slowed(alone.div_ceil(MS), share));
            }
        }
    }
}
