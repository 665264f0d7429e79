use manyways_trace::scenario::QueueLimit;
use manyways_trace::{LinkTrace, Steps};
use manyways_unit::Rate;

use super::*;
use crate::Count;

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

/// 1.2 Mbit/s: 1500 bytes take 10 ms. No delay, no loss, no limit.
fn spec() -> DirectionSpec {
    DirectionSpec {
        capacity: CapacitySpec::Constant(Rate::from_kbps(1_200)),
        delay: DelaySpec::Constant(Span::ZERO),
        jitter: Span::ZERO,
        reorder: false,
        loss: LossSpec::None,
        queue: QueueSpec { limit: QueueLimit::Unlimited, discipline: Discipline::DropTail },
    }
}

fn unlimited() -> DirectionSpec {
    DirectionSpec { capacity: CapacitySpec::Unlimited, ..spec() }
}

fn tail(limit: QueueLimit) -> QueueSpec {
    QueueSpec { limit, discipline: Discipline::DropTail }
}

fn packet(id: u64) -> Packet {
    Packet::single(id, Size::from_bytes(1_500))
}

fn train(id: u64, segments: u32) -> Packet {
    Packet { segments, ..packet(id) }
}

fn packets(packets: u64) -> Count {
    Count { packets, size: Size::from_bytes(1_500 * packets) }
}

fn deliver(at: Time, id: u64, first: u32, count: u32) -> Output {
    Output::Deliver { at, id, first, count }
}

fn drop(at: Time, id: u64, first: u32, count: u32, cause: Cause) -> Output {
    Output::Drop { at, id, first, count, cause }
}

fn drain(pipe: &mut Pipe, now: Time) -> Vec<Output> {
    std::iter::from_fn(|| pipe.poll(now)).collect()
}

/// Polls at every wake-up until there is none.
fn run(pipe: &mut Pipe) -> Vec<Output> {
    let mut all = Vec::new();
    while let Some(wakeup) = pipe.next_wakeup() {
        all.extend(drain(pipe, wakeup));
    }
    all
}

#[test]
fn packets_follow_each_other_and_then_travel() {
    let spec = DirectionSpec { delay: DelaySpec::Constant(ms(14)), ..spec() };
    let mut pipe = Pipe::new(&spec, 0);
    assert_eq!(pipe.next_wakeup(), None);
    pipe.handle(at(5), packet(1));
    pipe.handle(at(5), packet(2));
    pipe.handle(at(100), packet(3));
    let expected = [deliver(at(29), 1, 0, 1), deliver(at(39), 2, 0, 1), deliver(at(124), 3, 0, 1)];
    assert_eq!(run(&mut pipe), expected);
    assert_eq!(pipe.stats().delivered, packets(3));
}

#[test]
fn a_late_poll_merges_due_segments_and_keeps_the_last_time() {
    let mut pipe = Pipe::new(&spec(), 0);
    pipe.handle(at(0), Packet { last: Size::from_bytes(150), ..train(7, 4) });
    pipe.handle(at(0), packet(8));
    assert_eq!(drain(&mut pipe, at(25)), [deliver(at(20), 7, 0, 2)]);
    // The last has 150 bytes: 1 ms.
    assert_eq!(drain(&mut pipe, at(99)), [deliver(at(31), 7, 2, 2), deliver(at(41), 8, 0, 1)]);
}

#[test]
fn nothing_is_early() {
    let mut pipe = Pipe::new(&spec(), 0);
    pipe.handle(at(0), packet(1));
    assert_eq!(pipe.next_wakeup(), Some(at(10)));
    assert_eq!(pipe.poll(Time::from_nanos(9_999_999)), None);
    assert_eq!(pipe.poll(at(10)), Some(deliver(at(10), 1, 0, 1)));
    assert_eq!(pipe.poll(at(10)), None);
    // The pipe's time is ahead of the caller's: outputs due later than the caller's time stay.
    pipe.handle(at(30), packet(2));
    pipe.handle(at(50), packet(3));
    assert_eq!(pipe.poll(at(20)), None);
    assert_eq!(pipe.poll(at(50)), Some(deliver(at(40), 2, 0, 1)));
}

#[test]
fn without_a_limit_packets_pass_undivided_and_at_once() {
    let mut pipe =
        Pipe::new(&DirectionSpec { queue: tail(QueueLimit::Packets(1)), ..unlimited() }, 0);
    pipe.handle(at(3), train(1, 44));
    assert_eq!(pipe.poll(at(3)), Some(deliver(at(3), 1, 0, 44)));
    assert_eq!(pipe.stats().delivered, packets(44));
    // Segment by segment, because a loss is drawn for each.
    let loss = LossSpec::Independent(1e-18);
    pipe.set_loss(at(3), loss);
    pipe.handle(at(3), train(2, 44));
    assert_eq!(pipe.poll(at(3)), Some(deliver(at(3), 2, 0, 44)));
}

#[test]
fn the_limit_excludes_the_packet_that_is_being_sent() {
    let mut pipe = Pipe::new(&DirectionSpec { queue: tail(QueueLimit::Packets(2)), ..spec() }, 0);
    pipe.handle(at(0), train(1, 4));
    let stats = pipe.stats();
    assert_eq!((stats.backlog, stats.dropped_queue), (packets(3), packets(1)));
    assert_eq!(pipe.poll(at(0)), Some(drop(at(0), 1, 3, 1, Cause::Queue)));
    // A departure at the time of an arrival makes room for it.
    pipe.handle(at(10), packet(2));
    let expected = [
        deliver(at(10), 1, 0, 1),
        deliver(at(20), 1, 1, 1),
        deliver(at(30), 1, 2, 1),
        deliver(at(40), 2, 0, 1),
    ];
    assert_eq!(run(&mut pipe), expected);
}

#[test]
fn an_idle_link_takes_any_packet() {
    let queue = tail(QueueLimit::Bytes(Size::from_bytes(100)));
    let mut pipe = Pipe::new(&DirectionSpec { queue, ..spec() }, 0);
    pipe.handle(at(0), train(1, 2));
    let expected = [drop(at(0), 1, 1, 1, Cause::Queue), deliver(at(10), 1, 0, 1)];
    assert_eq!(run(&mut pipe), expected);
}

#[test]
fn a_queue_in_milliseconds_holds_its_time() {
    let queue = tail(QueueLimit::Time(ms(150)));
    let mut pipe = Pipe::new(&DirectionSpec { queue, ..spec() }, 0);
    pipe.handle(at(0), train(1, 20));
    // One packet is being sent, 150 ms × 1.2 Mbit/s = 15 packets wait.
    assert_eq!(pipe.stats().dropped_queue, packets(4));
    // Twice the rate makes the queue twice as large.
    pipe.set_capacity(at(0), CapacitySpec::Constant(Rate::from_kbps(2_400)));
    pipe.handle(at(0), train(2, 20));
    assert_eq!(pipe.stats().backlog, packets(31));
}

#[test]
fn drop_head_sends_the_newest() {
    let queue = QueueSpec { limit: QueueLimit::Packets(2), discipline: Discipline::DropHead };
    let mut pipe = Pipe::new(&DirectionSpec { queue, ..spec() }, 0);
    for id in 1..=5 {
        pipe.handle(at(0), packet(id));
    }
    let expected = [
        drop(at(0), 2, 0, 1, Cause::Queue),
        drop(at(0), 3, 0, 1, Cause::Queue),
        deliver(at(10), 1, 0, 1),
        deliver(at(20), 4, 0, 1),
        deliver(at(30), 5, 0, 1),
    ];
    assert_eq!(run(&mut pipe), expected);
}

#[test]
fn codel_drops_at_the_moment_of_a_departure() {
    let discipline = Discipline::Codel { target: ms(5), interval: ms(100) };
    let queue = QueueSpec { limit: QueueLimit::Unlimited, discipline };
    let mut pipe = Pipe::new(&DirectionSpec { queue, ..spec() }, 0);
    pipe.handle(at(0), train(1, 60));
    let drops: Vec<_> =
        run(&mut pipe).into_iter().filter(|output| matches!(output, Output::Drop { .. })).collect();
    // The sequence computed by hand in the test of CoDel.
    let expected = [(110, 11), (210, 22), (290, 31), (340, 37), (390, 43), (440, 49), (480, 54)]
        .map(|(millis, index)| drop(at(millis), 1, index, 1, Cause::Aqm));
    assert_eq!(drops, expected);
    assert_eq!(pipe.stats().delivered, packets(53));
}

#[test]
fn opportunities_deliver_waiting_packets() {
    let moments = vec![ms(2), ms(4), ms(4), ms(8)];
    let trace = LinkTrace::opportunities(moments, Size::from_bytes(1_504), ms(8)).unwrap();
    let capacity = CapacitySpec::Trace { source: String::new(), trace };
    let queue = tail(QueueLimit::Packets(3));
    let mut pipe = Pipe::new(&DirectionSpec { capacity, queue, ..spec() }, 0);
    // No packet is sent before the first opportunity: all wait, and three fit.
    pipe.handle(at(0), train(1, 5));
    // The opportunity at 2 ms took the first packet and 4 bytes of the second, so that two fit.
    pipe.handle(at(2), train(2, 3));
    let expected = [
        drop(at(0), 1, 3, 2, Cause::Queue),
        deliver(at(2), 1, 0, 1),
        drop(at(2), 2, 2, 1, Cause::Queue),
        deliver(at(4), 1, 1, 2),
        deliver(at(8), 2, 0, 1),
        deliver(at(10), 2, 1, 1),
    ];
    assert_eq!(run(&mut pipe), expected);
    // Unused opportunities are lost: both of 12 ms have passed.
    pipe.handle(at(13), packet(3));
    assert_eq!(run(&mut pipe), [deliver(at(16), 3, 0, 1)]);
}

#[test]
fn a_new_rate_continues_with_the_rest_of_a_packet() {
    let mut pipe = Pipe::new(&spec(), 0);
    pipe.handle(at(0), train(1, 3));
    // 4 of 10 ms sent; the other 7,200 bits take 3 ms at 2.4 Mbit/s, the next packet 5.
    pipe.set_capacity(at(4), CapacitySpec::Constant(Rate::from_kbps(2_400)));
    assert_eq!(pipe.next_wakeup(), Some(at(7)));
    assert_eq!(pipe.poll(at(7)), Some(deliver(at(7), 1, 0, 1)));
    // One of 5 ms sent, then no capacity.
    pipe.set_capacity(at(8), CapacitySpec::Constant(Rate::ZERO));
    assert_eq!(pipe.next_wakeup(), None);
    pipe.set_capacity(at(50), CapacitySpec::Constant(Rate::from_kbps(2_400)));
    assert_eq!(pipe.next_wakeup(), Some(at(54)));
    // Without a limit, the remaining packets depart at once.
    pipe.set_capacity(at(52), CapacitySpec::Unlimited);
    assert_eq!(pipe.next_wakeup(), Some(at(52)));
    assert_eq!(drain(&mut pipe, at(60)), [deliver(at(52), 1, 1, 2)]);
}

#[test]
fn a_packet_crosses_from_a_rate_to_opportunities() {
    let mut pipe = Pipe::new(&spec(), 0);
    pipe.handle(at(0), packet(1));
    let trace = LinkTrace::opportunities(vec![ms(1)], Size::from_bytes(500), ms(1)).unwrap();
    // 600 of 1500 bytes are sent: the other 900 take two opportunities, at 5 and 6 ms.
    pipe.set_capacity(at(4), CapacitySpec::Trace { source: String::new(), trace });
    assert_eq!(run(&mut pipe), [deliver(at(6), 1, 0, 1)]);
}

#[test]
fn a_shorter_delay_does_not_let_packets_overtake() {
    let mut spec = DirectionSpec { delay: DelaySpec::Constant(ms(50)), ..unlimited() };
    for (reorder, second) in [(false, 50), (true, 20)] {
        spec.reorder = reorder;
        let mut pipe = Pipe::new(&spec, 0);
        pipe.handle(at(0), packet(1));
        pipe.set_delay(at(10), DelaySpec::Constant(ms(10)));
        pipe.handle(at(10), packet(2));
        pipe.handle(at(60), packet(3));
        let mut expected =
            [deliver(at(50), 1, 0, 1), deliver(at(second), 2, 0, 1), deliver(at(70), 3, 0, 1)];
        expected.sort_by_key(Output::at);
        assert_eq!(drain(&mut pipe, at(100)), expected);
    }
}

#[test]
fn a_delay_trace_is_read_when_the_packet_leaves_the_wire() {
    let steps = Steps::new(vec![(ms(0), ms(30)), (ms(15), ms(80))], ms(30)).unwrap();
    let delay = DelaySpec::Trace { source: String::new(), steps };
    let mut pipe = Pipe::new(&DirectionSpec { delay, ..spec() }, 0);
    pipe.handle(at(0), train(1, 3));
    pipe.handle(at(200), packet(2));
    // Departures at 10, 20, 30 and 210 ms; the third would arrive at 60 and waits for the second.
    let expected = [deliver(at(40), 1, 0, 1), deliver(at(100), 1, 1, 2), deliver(at(240), 2, 0, 1)];
    assert_eq!(run(&mut pipe), expected);
}

#[test]
fn a_restart_moves_all_traces_and_keeps_the_packets() {
    let steps = Steps::new(vec![(ms(0), Rate::ZERO), (ms(100), Rate::from_kbps(1_200))], ms(200));
    let trace = LinkTrace::Rates(steps.unwrap());
    let delays = Steps::new(vec![(ms(0), ms(1)), (ms(100), ms(7))], ms(200)).unwrap();
    let capacity = CapacitySpec::Trace { source: String::new(), trace };
    let delay = DelaySpec::Trace { source: String::new(), steps: delays };
    let mut pipe = Pipe::new(&DirectionSpec { capacity, delay, ..spec() }, 0);
    pipe.handle(at(0), train(1, 2));
    assert_eq!(pipe.next_wakeup(), Some(at(100)));
    pipe.restart(at(50), ms(95));
    assert_eq!(run(&mut pipe), [deliver(at(72), 1, 0, 1), deliver(at(82), 1, 1, 1)]);
    // In the middle of a packet: half of it before the restart, the rest when the rate returns.
    pipe.handle(at(100), packet(2));
    pipe.restart(at(105), ms(0));
    assert_eq!(run(&mut pipe), [deliver(at(217), 2, 0, 1)]);
}

#[test]
fn jitter_stays_in_its_bounds_and_in_order() {
    let spec = DirectionSpec { delay: DelaySpec::Constant(ms(10)), jitter: ms(4), ..unlimited() };
    let mut pipe = Pipe::new(&spec, 3);
    for id in 0..2_000 {
        pipe.handle(at(id * 20), packet(id));
    }
    let delays: Vec<_> = run(&mut pipe)
        .iter()
        .zip(0..)
        .map(|(output, id)| output.at().since(at(id * 20)).as_nanos())
        .collect();
    let (min, max) = (*delays.iter().min().unwrap(), *delays.iter().max().unwrap());
    assert!((6_000_000..6_050_000).contains(&min), "{min}");
    assert!((13_950_000..=14_000_000).contains(&max), "{max}");
    // The mean of 2,000 has a standard deviation of 8 / √12 / √2000 = 0.05 ms.
    let mean = delays.iter().sum::<u64>() / 2_000;
    assert!((9_800_000..10_200_000).contains(&mean), "{mean}");
}

#[test]
fn jitter_reorders_only_if_allowed() {
    let order = |reorder| {
        let spec = DirectionSpec {
            delay: DelaySpec::Constant(ms(10)),
            jitter: ms(20),
            reorder,
            ..unlimited()
        };
        let mut pipe = Pipe::new(&spec, 3);
        for id in 0..100 {
            pipe.handle(at(id), packet(id));
        }
        let seen = run(&mut pipe);
        assert!(seen.is_sorted_by_key(Output::at));
        // A delay below zero would deliver before the arrival.
        for output in &seen {
            let Output::Deliver { at: when, id, .. } = *output else { panic!("{output:?}") };
            assert!(when >= at(id) && when <= at(id) + ms(30) || !reorder);
        }
        let ids = seen.into_iter().map(|output| match output {
            Output::Deliver { id, .. } | Output::Drop { id, .. } => id,
        });
        ids.collect::<Vec<_>>()
    };
    assert!(order(false).is_sorted());
    assert!(!order(true).is_sorted());
    assert_eq!(order(true).len(), 100);
}

#[test]
fn loss_takes_capacity_and_is_reported_when_the_wire_has_carried_it() {
    let spec = DirectionSpec {
        loss: LossSpec::Independent(1.0),
        delay: DelaySpec::Constant(ms(5)),
        ..spec()
    };
    let mut pipe = Pipe::new(&spec, 0);
    pipe.handle(at(0), train(1, 2));
    pipe.set_loss(at(12), LossSpec::None);
    let seen = drain(&mut pipe, at(100));
    assert_eq!(seen, [drop(at(10), 1, 0, 1, Cause::Loss), deliver(at(25), 1, 1, 1)]);
}

#[test]
fn loss_does_not_shift_the_jitter_nor_jitter_the_loss() {
    let outputs = |jitter, loss| {
        let delay = DelaySpec::Constant(ms(9));
        let mut pipe = Pipe::new(&DirectionSpec { jitter, delay, loss, ..unlimited() }, 11);
        (0..500).for_each(|id| pipe.handle(at(id * 20), packet(id)));
        run(&mut pipe)
    };
    let delivered = |output: &Output| matches!(output, Output::Deliver { .. });
    let lossless = outputs(ms(5), LossSpec::None);
    let lossy = outputs(ms(5), LossSpec::Independent(0.2));
    let survivors: Vec<_> = lossy.iter().copied().filter(delivered).collect();
    assert!((350..450).contains(&survivors.len()));
    assert!(survivors.iter().all(|output| lossless.contains(output)));
    let lost = |outputs: Vec<Output>| outputs.into_iter().filter(|output| !delivered(output));
    let steady = outputs(Span::ZERO, LossSpec::Independent(0.2));
    assert!(lost(steady).eq(lost(lossy)));
}

#[test]
fn a_link_that_goes_down_drops_its_packets() {
    for state in [LinkState::Silent, LinkState::NoCarrier] {
        for reorder in [false, true] {
            let delay = DelaySpec::Constant(ms(15));
            let mut pipe = Pipe::new(&DirectionSpec { delay, reorder, ..spec() }, 0);
            pipe.handle(at(0), train(1, 5));
            // At 25 ms one has arrived, one is in flight, one is being sent, two wait.
            pipe.set_state(at(25), state);
            assert_eq!(pipe.next_wakeup(), Some(at(25)));
            pipe.handle(at(30), train(2, 2));
            let seen = drain(&mut pipe, at(1_000));
            let expected = [
                deliver(at(25), 1, 0, 1),
                drop(at(25), 1, 1, 4, Cause::Down),
                drop(at(30), 2, 0, 2, Cause::Down),
            ];
            assert_eq!(seen, expected);
            assert_eq!(pipe.stats().dropped_down, packets(6));
            assert_eq!(pipe.stats().backlog, packets(0));
            pipe.set_state(at(2_000), LinkState::Up);
            pipe.handle(at(2_000), packet(3));
            assert_eq!(run(&mut pipe), [deliver(at(2_025), 3, 0, 1)]);
        }
    }
}

#[test]
fn a_paused_link_keeps_its_packets_until_it_is_up() {
    let queue = tail(QueueLimit::Packets(3));
    let delay = DelaySpec::Constant(ms(15));
    let mut pipe = Pipe::new(&DirectionSpec { delay, queue, ..spec() }, 0);
    pipe.handle(at(0), train(1, 4));
    // At 25 ms one has arrived, one is in flight, one is being sent, one waits.
    pipe.set_state(at(25), LinkState::Paused);
    pipe.handle(at(50), train(2, 3));
    let seen = drain(&mut pipe, at(1_000));
    let continued = [deliver(at(45), 1, 0, 3), drop(at(50), 2, 2, 1, Cause::Queue)];
    assert_eq!(seen, continued);
    assert_eq!((pipe.next_wakeup(), pipe.stats().backlog), (None, packets(3)));
    pipe.set_state(at(2_000), LinkState::Up);
    let rest = [(2_025, 1, 3, 1), (2_035, 2, 0, 1), (2_045, 2, 1, 1)];
    assert_eq!(run(&mut pipe), rest.map(|(time, id, first, n)| deliver(at(time), id, first, n)));
    // A paused link that goes down drops its packets.
    pipe.set_state(at(3_000), LinkState::Paused);
    pipe.handle(at(3_000), packet(3));
    pipe.set_state(at(3_001), LinkState::Silent);
    assert_eq!(run(&mut pipe), [drop(at(3_001), 3, 0, 1, Cause::Down)]);
}

#[test]
fn a_paused_link_without_limit_keeps_its_packets_too() {
    let mut pipe = Pipe::new(&unlimited(), 0);
    pipe.set_state(at(0), LinkState::Paused);
    pipe.handle(at(1), train(1, 3));
    assert_eq!((drain(&mut pipe, at(500)), pipe.next_wakeup()), (vec![], None));
    pipe.set_state(at(600), LinkState::Up);
    assert_eq!(run(&mut pipe), [deliver(at(600), 1, 0, 3)]);
}

#[test]
fn packets_dropped_with_the_link_delay_no_later_ones() {
    let mut pipe =
        Pipe::new(&DirectionSpec { delay: DelaySpec::Constant(ms(100)), ..unlimited() }, 0);
    pipe.handle(at(0), packet(1));
    pipe.set_state(at(10), LinkState::Silent);
    pipe.set_delay(at(20), DelaySpec::Constant(ms(5)));
    pipe.set_state(at(20), LinkState::Up);
    pipe.handle(at(20), packet(2));
    assert_eq!(run(&mut pipe), [drop(at(10), 1, 0, 1, Cause::Down), deliver(at(25), 2, 0, 1)]);
}

#[test]
fn a_packet_of_no_segments_is_ignored() {
    let mut pipe = Pipe::new(&spec(), 0);
    pipe.handle(at(0), train(1, 0));
    pipe.set_state(at(0), LinkState::Silent);
    pipe.handle(at(0), train(2, 0));
    assert_eq!(drain(&mut pipe, at(100)), []);
    assert_eq!(pipe.stats(), Stats::default());
}

#[test]
fn a_busy_link_wakes_its_shell_once_a_packet() {
    let spec = DirectionSpec { delay: DelaySpec::Constant(ms(100)), ..spec() };
    let mut pipe = Pipe::new(&spec, 0);
    pipe.handle(at(0), train(1, 50));
    let mut wakeups = 0;
    while let Some(wakeup) = pipe.next_wakeup() {
        wakeups += 1;
        drain(&mut pipe, wakeup);
    }
    // One for the first departure, then one per delivery.
    assert_eq!(wakeups, 51);
}

#[test]
fn a_wire_that_is_held_starts_late() {
    let mut pipe = Pipe::new(&spec(), 0);
    // The packet that is being sent continues, and the next one waits.
    pipe.handle(at(0), train(1, 2));
    pipe.pause_until(at(5), at(100));
    assert_eq!(run(&mut pipe), [deliver(at(10), 1, 0, 1), deliver(at(110), 1, 1, 1)]);
    // A new time replaces the previous one, whether later or earlier.
    pipe.pause_until(at(200), at(400));
    pipe.handle(at(210), packet(2));
    assert_eq!(pipe.next_wakeup(), Some(at(400)));
    pipe.pause_until(at(220), at(300));
    assert_eq!(run(&mut pipe), [deliver(at(310), 2, 0, 1)]);
    pipe.pause_until(at(400), at(500));
    pipe.handle(at(410), packet(3));
    // A time in the past ends the delay now: nothing happens in the past.
    pipe.pause_until(at(420), at(0));
    assert_eq!(run(&mut pipe), [deliver(at(430), 3, 0, 1)]);
    pipe.handle(at(600), packet(4));
    assert_eq!(run(&mut pipe), [deliver(at(610), 4, 0, 1)]);
}

#[test]
fn without_limit_all_that_is_held_passes_together() {
    let delay = DelaySpec::Constant(ms(5));
    let mut pipe = Pipe::new(&DirectionSpec { delay, ..unlimited() }, 0);
    pipe.pause_until(at(0), at(100));
    pipe.handle(at(1), train(1, 3));
    pipe.handle(at(50), packet(2));
    assert_eq!(pipe.stats().backlog, packets(4));
    assert_eq!(run(&mut pipe), [deliver(at(105), 1, 0, 3), deliver(at(105), 2, 0, 1)]);
}

#[test]
fn held_packets_wait_in_the_queue_within_its_limit() {
    let mut pipe = Pipe::new(&DirectionSpec { queue: tail(QueueLimit::Packets(2)), ..spec() }, 0);
    pipe.pause_until(at(0), at(100));
    pipe.handle(at(1), train(1, 4));
    let expected = [drop(at(1), 1, 2, 2, Cause::Queue), deliver(at(120), 1, 0, 2)];
    assert_eq!(drain(&mut pipe, at(200)), expected);
}

#[test]
fn opportunities_during_a_hold_are_lost() {
    let trace = LinkTrace::opportunities(vec![ms(10)], Size::from_bytes(1_500), ms(10)).unwrap();
    let capacity = CapacitySpec::Trace { source: String::new(), trace };
    let mut pipe = Pipe::new(&DirectionSpec { capacity, ..spec() }, 0);
    pipe.handle(at(1), packet(1));
    pipe.pause_until(at(2), at(35));
    pipe.handle(at(3), packet(2));
    assert_eq!(run(&mut pipe), [deliver(at(40), 1, 0, 1), deliver(at(50), 2, 0, 1)]);
}

#[test]
fn a_wire_is_busy_from_the_first_bit_to_the_last() {
    let delay = DelaySpec::Constant(ms(1_000));
    let mut pipe = Pipe::new(&DirectionSpec { delay, ..spec() }, 0);
    assert_eq!(pipe.last_busy(at(5)), None);
    pipe.handle(at(5), train(1, 2));
    assert_eq!(pipe.last_busy(at(20)), Some(at(20)));
    assert_eq!(pipe.last_busy(at(90)), Some(at(25)));
    // A packet that waits for the end of a hold does not make the wire busy.
    pipe.pause_until(at(100), at(200));
    pipe.handle(at(150), packet(2));
    assert_eq!(pipe.last_busy(at(199)), Some(at(25)));
    assert_eq!(pipe.last_busy(at(201)), Some(at(201)));
}
