use manyways_unit::Rate;
use proptest::prelude::*;

use super::*;

const CLOCK: TraceClock = TraceClock { origin: Time::ZERO, offset: Span::ZERO };

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

fn rates(steps: &[(u64, u64)], period: u64) -> Capacity {
    let steps = steps.iter().map(|(at, kbps)| (ms(*at), Rate::from_kbps(*kbps))).collect();
    Capacity::Rates(Rates::new(Steps::new(steps, ms(period)).unwrap()))
}

fn opportunities(at: &[u64], period: u64) -> Capacity {
    let at = at.iter().map(|at| ms(*at)).collect();
    let trace = LinkTrace::opportunities(at, Size::from_bytes(1504), ms(period)).unwrap();
    Capacity::new(&CapacitySpec::Trace { source: String::new(), trace })
}

/// Returns the departures of a backlog that exists from `start`.
fn departures(capacity: &Capacity, clock: TraceClock, start: u64, sizes: &[u64]) -> Vec<u64> {
    let mut cursor = capacity.begin(clock, Time::from_millis(start));
    let mut seen = Vec::new();
    for size in sizes {
        match capacity.carry(clock, cursor, nanobits_of(Size::from_bytes(*size))) {
            Some(next) => cursor = next,
            None => break,
        }
        seen.push(cursor.at.as_nanos());
    }
    seen
}

fn millis(times: &[u64]) -> Vec<u64> {
    times.iter().map(|time| time * 1_000_000).collect()
}

#[test]
fn a_constant_rate_rounds_up_and_never_adds_up_the_rounding() {
    // 12,000 bits at 7 Mbit/s take 1,714,285.71… ns; seven of them exactly 12 ms.
    let seen = departures(&Capacity::Constant(7_000_000), CLOCK, 0, &[1500; 7]);
    let exact = [1_714_286, 3_428_572, 5_142_858, 6_857_143, 8_571_429, 10_285_715, 12_000_000];
    assert_eq!(seen, exact);
}

#[test]
fn a_rate_of_zero_carries_nothing_ever() {
    let zero = Capacity::Constant(0);
    assert!(departures(&zero, CLOCK, 0, &[1]).is_empty());
    assert_eq!(zero.ready(CLOCK, Cursor::START), None);
    let zeros = rates(&[(0, 0), (5, 0)], 10);
    assert!(departures(&zeros, CLOCK, 0, &[1]).is_empty());
    assert_eq!(zeros.ready(CLOCK, Cursor::START), None);
}

#[test]
fn a_packet_straddles_steps_and_waits_through_zero() {
    // 10,000 bits in the first 10 ms, none in the next 10, repeated.
    let half = rates(&[(0, 1000), (10, 0)], 20);
    // 12,000 bits: 10,000 by 10 ms, 2,000 by 22 ms. Then 8,000 by 30 ms, 4,000 by 44 ms.
    assert_eq!(departures(&half, CLOCK, 0, &[1500, 1500]), millis(&[22, 44]));
    // 1,250 bytes end with the step.
    assert_eq!(departures(&half, CLOCK, 0, &[1250, 1250]), millis(&[10, 30]));
    // If the start is in the pause, the wire is ready at the end of the pause.
    let start = half.begin(CLOCK, Time::from_millis(13));
    assert_eq!(half.ready(CLOCK, start), Some(Time::from_millis(20)));
    assert_eq!(departures(&half, CLOCK, 13, &[125]), millis(&[21]));
    // 50 periods: 500,000 bits by 990 ms, the last of them at the end of a step.
    assert_eq!(departures(&half, CLOCK, 0, &[62_500]), millis(&[990]));
}

#[test]
fn the_fraction_of_a_nanosecond_survives_a_step() {
    // 1 kbit/s: a bit takes 1 ms. Then 7 Gbit/s: a bit takes 1/7 ns.
    let steps = vec![(Span::ZERO, Rate::from_kbps(1)), (ms(1), Rate::from_bps(7_000_000_000))];
    let two = Capacity::Rates(Rates::new(Steps::new(steps, ms(2)).unwrap()));
    // Cumulative bits after the first ms: 7, 15, 23, 31 → ceil(n / 7) = 1, 3, 4, 5 ns.
    let seen = departures(&two, CLOCK, 0, &[1; 4]);
    assert_eq!(seen, [1_000_001, 1_000_003, 1_000_004, 1_000_005]);
}

#[test]
fn opportunities_are_shared_split_and_lost_as_in_mahimahi() {
    let four = opportunities(&[2, 4, 4, 8], 8);
    // The first packet leaves 4 bytes to the second, which ends at 4 and leaves 8 to the third,
    // which ends with the other opportunity at 4 and leaves 12 to the fourth.
    assert_eq!(departures(&four, CLOCK, 0, &[1500; 5]), millis(&[2, 4, 4, 8, 10]));
    // Small packets share one opportunity; 1504 bytes fill it.
    assert_eq!(departures(&four, CLOCK, 0, &[500, 1000, 4, 1]), millis(&[2, 2, 2, 4]));
    // A large packet continues with the next opportunity: 1504 + 1496.
    assert_eq!(departures(&four, CLOCK, 0, &[3000, 8, 1]), millis(&[4, 4, 4]));
    // Eleven periods of four opportunities and one more.
    assert_eq!(departures(&four, CLOCK, 0, &[45 * 1504]), millis(&[90]));
    // A packet at the time of an opportunity cannot use it, nor either of the two at 4 ms.
    assert_eq!(departures(&four, CLOCK, 2, &[1500]), millis(&[4]));
    assert_eq!(departures(&four, CLOCK, 4, &[1500]), millis(&[8]));
    // An opportunity at exactly the period ends the period; the next one starts with it.
    assert_eq!(departures(&four, CLOCK, 7, &[1504, 1504]), millis(&[8, 10]));
}

#[test]
fn an_opportunity_at_zero_follows_the_one_at_the_period() {
    let both = opportunities(&[0, 10], 10);
    assert_eq!(departures(&both, CLOCK, 5, &[1504; 4]), millis(&[10, 10, 20, 20]));
    assert_eq!(departures(&both, CLOCK, 10, &[1504]), millis(&[20]));
}

#[test]
fn an_offset_moves_the_trace() {
    let clock = TraceClock::new(Time::from_millis(100), ms(3));
    let four = opportunities(&[2, 4, 4, 8], 8);
    assert_eq!(departures(&four, clock, 100, &[1504; 4]), millis(&[101, 101, 105, 107]));
    let half = rates(&[(0, 1000), (10, 0)], 20);
    let clock = TraceClock::new(Time::from_millis(100), ms(15));
    assert_eq!(departures(&half, clock, 100, &[125]), millis(&[106]));
}

#[test]
fn events_beyond_the_maximum_time_never_happen() {
    let slow = Capacity::Constant(1);
    assert!(slow.carry(CLOCK, Cursor::START, nanobits_of(Size::MAX)).is_none());
    let rare = opportunities(&[u64::MAX], u64::MAX);
    assert!(rare.carry(CLOCK, Cursor::START, nanobits_of(Size::MAX)).is_none());
    let slow = rates(&[(0, 1)], u64::MAX);
    assert!(slow.carry(CLOCK, Cursor::START, nanobits_of(Size::MAX)).is_none());
}

fn any_capacity() -> impl Strategy<Value = Capacity> {
    let steps = prop::collection::btree_map(1_u64..5_000, 0_u64..50_000_000, 0..6);
    let stepped = (0_u64..50_000_000, steps, 5_000_u64..9_000).prop_map(|(first, more, period)| {
        let all = std::iter::once((0, first)).chain(more);
        let steps = all.map(|(at, bps)| (Span::from_micros(at), Rate::from_bps(bps))).collect();
        Capacity::Rates(Rates::new(Steps::new(steps, Span::from_micros(period)).unwrap()))
    });
    let moments = prop::collection::vec(0_u64..5_000, 1..8);
    let moments = (moments, 5_000_u64..9_000, 1_u64..3_000).prop_map(|(mut at, period, size)| {
        at.sort_unstable();
        let at = at.into_iter().map(Span::from_micros).collect();
        let size = Size::from_bytes(size);
        let trace = LinkTrace::opportunities(at, size, Span::from_micros(period)).unwrap();
        Capacity::new(&CapacitySpec::Trace { source: String::new(), trace })
    });
    prop_oneof![(1_u64..50_000_000).prop_map(Capacity::Constant), stepped, moments]
}

proptest! {
    /// `carry` and `offered` are inverse: a backlog departs in the first nanosecond by which its
    /// bits were offered.
    #[test]
    fn departures_are_the_first_moment_by_which_the_bits_were_offered(
        capacity in any_capacity(),
        start in 0_u64..20_000_000,
        offset in 0_u64..20_000_000,
        sizes in prop::collection::vec(1_u64..9_000, 1..20),
    ) {
        let clock = TraceClock::new(Time::from_nanos(start / 2), Span::from_nanos(offset));
        let begin = capacity.begin(clock, Time::from_nanos(start));
        let (mut cursor, mut bits) = (begin, 0);
        for size in sizes {
            let need = nanobits_of(Size::from_bytes(size));
            bits += need;
            let Some(next) = capacity.carry(clock, cursor, need) else { break };
            prop_assert!(next.at >= cursor.at);
            prop_assert!(capacity.offered(clock, begin, next.at) >= bits);
            if next.at > begin.at {
                let before = Time::from_nanos(next.at.as_nanos() - 1);
                prop_assert!(capacity.offered(clock, begin, before) < bits);
            }
            let ready = capacity.ready(clock, cursor).unwrap();
            prop_assert!(ready <= next.at);
            prop_assert!(capacity.offered(clock, cursor, next.at) >= need);
            cursor = next;
        }
    }

    /// The bits of a window do not depend on how it is divided.
    #[test]
    fn windows_add_up(
        capacity in any_capacity(),
        start in 0_u64..20_000_000,
        first in 0_u64..30_000_000,
        second in 0_u64..30_000_000,
    ) {
        let [a, b, c] = [start, start + first, start + first + second].map(Time::from_nanos);
        let from = |at| capacity.begin(CLOCK, at);
        let cut = capacity.offered(CLOCK, from(a), b) + capacity.offered(CLOCK, from(b), c);
        prop_assert_eq!(capacity.offered(CLOCK, from(a), c), cut);
    }
}
