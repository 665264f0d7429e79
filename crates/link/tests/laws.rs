//! Properties of every pipe, for any spec, packets and poll times.

use std::collections::HashMap;

use manyways_link::{Cause, Output, Packet, Pipe};
use manyways_trace::scenario::{
    CapacitySpec, DelaySpec, DirectionSpec, Discipline, LinkState, LossSpec, QueueLimit, QueueSpec,
};
use manyways_trace::{LinkTrace, Steps};
use manyways_unit::{Rate, Size, Span, Time};
use proptest::prelude::*;

/// One action of a caller, `after` the previous one.
#[derive(Clone, Debug)]
struct Step {
    after: Span,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    Arrive { segments: u32, segment: Size, last: Size },
    Restart(Span),
    Capacity(CapacitySpec),
    Delay(DelaySpec),
    Jitter(Span),
    Loss(LossSpec),
    Queue(QueueSpec),
    State(LinkState),
}

/// Polls of the caller, in addition to the one at the end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PollTimes {
    /// Never.
    AtTheEnd,
    /// After each step.
    AfterSteps,
    /// Exactly at the wake-ups of the pipe.
    AtWakeups,
    /// Before each step, at it, and at times without a wake-up.
    Often,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Delivered(Time),
    Dropped(Time, Cause),
}

fn micros(range: std::ops::Range<u64>) -> impl Strategy<Value = Span> {
    range.prop_map(Span::from_micros)
}

fn capacity() -> impl Strategy<Value = CapacitySpec> {
    let rate = || prop_oneof![1 => Just(0), 9 => 100_000_u64..50_000_000].prop_map(Rate::from_bps);
    let steps =
        (rate(), prop::collection::btree_map(1_u64..50_000, rate(), 0..5), 50_000_u64..90_000);
    let steps = steps.prop_map(|(first, more, period)| {
        let all = std::iter::once((0, first)).chain(more);
        let steps = all.map(|(at, rate)| (Span::from_micros(at), rate)).collect();
        let steps = Steps::new(steps, Span::from_micros(period)).expect("steps in order");
        CapacitySpec::Trace { source: String::new(), trace: LinkTrace::Rates(steps) }
    });
    let moments = (prop::collection::vec(0_u64..=20, 1..15), 1_u64..3_000);
    let moments = moments.prop_map(|(mut at, size)| {
        at.sort_unstable();
        let at = at.into_iter().map(Span::from_millis).collect();
        let size = Size::from_bytes(size);
        let trace =
            LinkTrace::opportunities(at, size, Span::from_millis(20)).expect("moments in order");
        CapacitySpec::Trace { source: String::new(), trace }
    });
    prop_oneof![
        1 => Just(CapacitySpec::Unlimited),
        3 => rate().prop_map(CapacitySpec::Constant),
        3 => steps,
        3 => moments,
    ]
}

fn delay() -> impl Strategy<Value = DelaySpec> {
    let steps = prop::collection::vec(0_u64..40_000, 1..4).prop_map(|delays| {
        let period = Span::from_millis(10 * delays.len() as u64);
        let steps = (0..).zip(delays);
        let steps = steps.map(|(i, delay)| (Span::from_millis(i * 10), Span::from_micros(delay)));
        let steps = Steps::new(steps.collect(), period).expect("steps in order");
        DelaySpec::Trace { source: String::new(), steps }
    });
    prop_oneof![micros(0..40_000).prop_map(DelaySpec::Constant), steps]
}

fn loss() -> impl Strategy<Value = LossSpec> {
    let bursts = (0.0..0.3, 0.1..1.0, 0.0..0.1, 0.5..1.0);
    let bursts = bursts.prop_map(|(to_bad, to_good, loss_good, loss_bad)| {
        LossSpec::GilbertElliott { to_bad, to_good, loss_good, loss_bad }
    });
    prop_oneof![2 => Just(LossSpec::None), 1 => (0.0..1.0).prop_map(LossSpec::Independent), 1 => bursts]
}

fn queue() -> impl Strategy<Value = QueueSpec> {
    let limit = prop_oneof![
        (0_u64..50_000).prop_map(|bytes| QueueLimit::Bytes(Size::from_bytes(bytes))),
        (0_u64..40).prop_map(QueueLimit::Packets),
        micros(0..100_000).prop_map(QueueLimit::Time),
        Just(QueueLimit::Unlimited),
    ];
    let codel = (micros(100..5_000), micros(1_000..50_000))
        .prop_map(|(target, interval)| Discipline::Codel { target, interval });
    let discipline = prop_oneof![Just(Discipline::DropTail), Just(Discipline::DropHead), codel];
    (limit, discipline).prop_map(|(limit, discipline)| QueueSpec { limit, discipline })
}

fn direction() -> impl Strategy<Value = DirectionSpec> {
    let jitter = prop_oneof![Just(Span::ZERO), micros(0..30_000)];
    (capacity(), delay(), jitter, any::<bool>(), loss(), queue()).prop_map(
        |(capacity, delay, jitter, reorder, loss, queue)| DirectionSpec {
            capacity,
            delay,
            jitter,
            reorder,
            loss,
            queue,
        },
    )
}

fn arrival() -> impl Strategy<Value = Action> {
    let segments = prop_oneof![3 => Just(1), 1 => 0_u32..50];
    (segments, 1_u64..3_000, 1_u64..3_000).prop_map(|(segments, segment, last)| Action::Arrive {
        segments,
        segment: Size::from_bytes(segment),
        last: Size::from_bytes(last),
    })
}

fn arrivals() -> impl Strategy<Value = Vec<Step>> {
    let step = (micros(0..10_000), arrival()).prop_map(|(after, action)| Step { after, action });
    prop::collection::vec(step, 1..40)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let state = prop_oneof![
        Just(LinkState::Up),
        Just(LinkState::Paused),
        Just(LinkState::Silent),
        Just(LinkState::NoCarrier)
    ];
    let action = prop_oneof![
        20 => arrival(),
        1 => micros(0..100_000).prop_map(Action::Restart),
        1 => capacity().prop_map(Action::Capacity),
        1 => delay().prop_map(Action::Delay),
        1 => micros(0..10_000).prop_map(Action::Jitter),
        1 => loss().prop_map(Action::Loss),
        1 => queue().prop_map(Action::Queue),
        1 => state.prop_map(Action::State),
    ];
    let after = prop_oneof![1 => Just(Span::ZERO), 3 => micros(0..10_000)];
    let step = (after, action).prop_map(|(after, action)| Step { after, action });
    prop::collection::vec(step, 1..60)
}

fn act(pipe: &mut Pipe, now: Time, id: u64, action: &Action) {
    match action.clone() {
        Action::Arrive { segments, segment, last } => {
            pipe.handle(now, Packet { id, segments, segment, last });
        }
        Action::Restart(offset) => pipe.restart(now, offset),
        Action::Capacity(spec) => pipe.set_capacity(now, spec),
        Action::Delay(spec) => pipe.set_delay(now, spec),
        Action::Jitter(jitter) => pipe.set_jitter(now, jitter),
        Action::Loss(spec) => pipe.set_loss(now, spec),
        Action::Queue(spec) => pipe.set_queue(now, spec),
        Action::State(state) => pipe.set_state(now, state),
    }
}

/// Runs all steps, then sets the link down to empty it. Returns the outputs with the times of their
/// polls; `watch` receives the pipe after each step.
fn run(
    spec: &DirectionSpec,
    seed: u64,
    steps: &[Step],
    polls: PollTimes,
    mut watch: impl FnMut(&Pipe, &[(Time, Output)]),
) -> Vec<(Time, Output)> {
    let mut pipe = Pipe::new(spec, seed);
    let mut outputs = Vec::new();
    let mut now = Time::ZERO;
    let end = Step { after: Span::from_millis(200), action: Action::State(LinkState::Silent) };
    for (id, step) in (0..).zip(steps.iter().chain([&end])) {
        let next = now + step.after;
        if polls == PollTimes::AtWakeups {
            while let Some(wakeup) = pipe.next_wakeup().filter(|wakeup| *wakeup <= next) {
                now = wakeup.max(now);
                drain(&mut pipe, now, &mut outputs);
            }
        }
        if polls == PollTimes::Often {
            let pause = Span::from_nanos(next.since(now).as_nanos() / 3);
            for moment in [now + pause, now + pause + pause, next] {
                drain(&mut pipe, moment, &mut outputs);
            }
        }
        now = next;
        act(&mut pipe, now, id, &step.action);
        if matches!(polls, PollTimes::AfterSteps | PollTimes::Often) {
            drain(&mut pipe, now, &mut outputs);
        }
        watch(&pipe, &outputs);
    }
    drain(&mut pipe, now, &mut outputs);
    watch(&pipe, &outputs);
    outputs
}

fn drain(pipe: &mut Pipe, now: Time, outputs: &mut Vec<(Time, Output)>) {
    outputs.extend(std::iter::from_fn(|| pipe.poll(now)).map(|output| (now, output)));
}

/// Returns the outcome of each segment. A run of segments has the time of its last.
fn outcomes(outputs: &[(Time, Output)]) -> HashMap<(u64, u32), Outcome> {
    let mut fates = HashMap::new();
    for (_, output) in outputs {
        let (id, first, count, outcome) = match *output {
            Output::Deliver { at, id, first, count } => (id, first, count, Outcome::Delivered(at)),
            Output::Drop { at, id, first, count, cause } => {
                (id, first, count, Outcome::Dropped(at, cause))
            }
        };
        assert!(count > 0);
        for index in first..first + count {
            let before = fates.insert((id, index), outcome);
            assert_eq!(before, None, "segment {index} of {id} is reported twice");
        }
    }
    fates
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_segment_is_reported_exactly_once(
        spec in direction(),
        steps in steps(),
        seed: u64,
    ) {
        for polls in [PollTimes::AtTheEnd, PollTimes::AfterSteps, PollTimes::AtWakeups] {
            let outputs = run(&spec, seed, &steps, polls, |pipe, outputs| {
                let stats = pipe.stats();
                let inside = [stats.backlog, stats.in_flight];
                let causes = [Cause::Queue, Cause::Aqm, Cause::Loss, Cause::Down];
                let gone = causes.map(|cause| stats.dropped(cause));
                let all = inside.iter().chain(&gone).chain([&stats.delivered]);
                let sum = all.fold((0, Size::ZERO), |sum, count| {
                    (sum.0 + count.packets, sum.1 + count.size)
                });
                assert_eq!(sum, (stats.arrived.packets, stats.arrived.size));
                let delivered = outputs.iter().map(|(_, output)| match output {
                    Output::Deliver { count, .. } => u64::from(*count),
                    Output::Drop { .. } => 0,
                });
                assert_eq!(delivered.sum::<u64>(), stats.delivered.packets);
            });
            let fates = outcomes(&outputs);
            let mut expected = 0;
            for (id, step) in (0..).zip(&steps) {
                if let Action::Arrive { segments, .. } = step.action {
                    expected += segments as usize;
                    prop_assert!((0..segments).all(|index| fates.contains_key(&(id, index))));
                }
            }
            prop_assert_eq!(fates.len(), expected, "something was created");
        }
    }

    #[test]
    fn the_moments_of_polls_change_nothing(spec in direction(), steps in steps(), seed: u64) {
        let exact = run(&spec, seed, &steps, PollTimes::AtWakeups, |_, _| ());
        // Polls at the wake-ups deliver at the exact times.
        for (polled, output) in &exact {
            if let Output::Deliver { at, .. } = output {
                prop_assert_eq!(polled, at);
            }
        }
        let exact = outcomes(&exact);
        for polls in [PollTimes::AtTheEnd, PollTimes::AfterSteps, PollTimes::Often] {
            let outputs = run(&spec, seed, &steps, polls, |_, _| ());
            prop_assert!(outputs.is_sorted_by_key(|(_, output)| output.at()));
            prop_assert!(outputs.iter().all(|(polled, output)| output.at() <= *polled));
            for (_, output) in &outputs {
                // All segments of a run arrived by its end, and the last one at its end.
                match *output {
                    Output::Deliver { at, id, first, count } => {
                        for index in first..first + count {
                            let Outcome::Delivered(when) = exact[&(id, index)] else {
                                return Err(TestCaseError::fail("delivered, but dropped before"));
                            };
                            prop_assert!(when <= at);
                        }
                        prop_assert_eq!(exact[&(id, first + count - 1)], Outcome::Delivered(at));
                    }
                    Output::Drop { at, id, first, count, cause } => {
                        for index in first..first + count {
                            prop_assert_eq!(exact[&(id, index)], Outcome::Dropped(at, cause));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_same_seed_and_input_give_the_same_output(
        spec in direction(),
        steps in steps(),
        seed: u64,
    ) {
        let once = || run(&spec, seed, &steps, PollTimes::AfterSteps, |_, _| ());
        prop_assert_eq!(once(), once());
    }

    #[test]
    fn order_is_kept_unless_jitter_may_reorder(
        spec in direction().prop_map(|spec| DirectionSpec { reorder: false, ..spec }),
        steps in steps(),
        seed: u64,
    ) {
        let outputs = run(&spec, seed, &steps, PollTimes::AtWakeups, |_, _| ());
        let delivered: Vec<_> = outputs
            .iter()
            .filter_map(|(_, output)| match output {
                Output::Deliver { id, first, .. } => Some((*id, *first)),
                Output::Drop { .. } => None,
            })
            .collect();
        prop_assert!(delivered.is_sorted());
    }

    /// In any window between two deliveries, a link carries at most its capacity plus the packet
    /// that was being sent when the window began.
    #[test]
    fn never_faster_than_the_capacity_in_any_window(
        spec in direction().prop_map(|spec| DirectionSpec {
            delay: DelaySpec::Constant(Span::from_millis(3)),
            jitter: Span::ZERO,
            reorder: false,
            ..spec
        }),
        steps in arrivals(),
        seed: u64,
    ) {
        let outputs = run(&spec, seed, &steps, PollTimes::AtWakeups, |_, _| ());
        let mut departures = Vec::new();
        for (_, output) in outputs {
            let Output::Deliver { at, id, first, count } = output else { continue };
            let Action::Arrive { segments, segment, last } = steps[id as usize].action else {
                panic!("{id} is not a packet");
            };
            let sizes = (first..first + count)
                .map(|index| if index + 1 == segments { last } else { segment });
            departures.extend(sizes.map(|size| (at - Span::from_millis(3), size.as_bytes())));
        }
        for (i, (from, _)) in departures.iter().enumerate() {
            let mut bytes = 0;
            for (until, size) in &departures[i + 1..] {
                bytes += size;
                let Some(nano_bits) = offered(&spec.capacity, *from, *until) else { return Ok(()) };
                let allowed = nano_bits + u128::from(*size) * 8_000_000_000;
                prop_assert!(u128::from(bytes) * 8_000_000_000 <= allowed, "{from} to {until}");
            }
        }
    }

    /// While packets wait, a link carries its capacity, minus at most one packet.
    #[test]
    fn never_slower_than_the_capacity_while_packets_wait(
        capacity in capacity(),
        sizes in prop::collection::vec(1_u64..3_000, 2..60),
    ) {
        let spec = DirectionSpec {
            capacity,
            delay: DelaySpec::Constant(Span::ZERO),
            jitter: Span::ZERO,
            reorder: false,
            loss: LossSpec::None,
            queue: QueueSpec { limit: QueueLimit::Unlimited, discipline: Discipline::DropTail },
        };
        let mut pipe = Pipe::new(&spec, 0);
        for (id, size) in (0..).zip(&sizes) {
            pipe.handle(Time::ZERO, Packet::single(id, Size::from_bytes(*size)));
        }
        let (mut first, mut nano_bits) = (None, 0);
        while let Some(wakeup) = pipe.next_wakeup() {
            while let Some(output) = pipe.poll(wakeup) {
                let Output::Deliver { at, id, .. } = output else { panic!("{output:?}") };
                nano_bits += u128::from(sizes[id as usize]) * 8_000_000_000;
                let first = *first.get_or_insert(at);
                if at > first {
                    let before = at - Span::from_nanos(1);
                    let Some(offered) = offered(&spec.capacity, first, before) else { return Ok(()) };
                    prop_assert!(offered < nano_bits, "{first} to {before}");
                }
            }
        }
    }
}

/// Nano-bits that the spec offers from `from` to `until`, both included, counted one by one. `None`
/// if there is no limit.
fn offered(spec: &CapacitySpec, from: Time, until: Time) -> Option<u128> {
    let (from, until) = (from.as_nanos(), until.as_nanos());
    match spec {
        CapacitySpec::Unlimited => None,
        CapacitySpec::Constant(rate) => Some(u128::from(rate.as_bps()) * u128::from(until - from)),
        CapacitySpec::Trace { trace: LinkTrace::Rates(steps), .. } => {
            let (mut sum, mut position) = (0, from);
            while position < until {
                let period = steps.period().as_nanos();
                let (lap, within) = (position / period * period, position % period);
                let ends = steps.steps().iter().map(|step| step.0.as_nanos()).chain([period]);
                let end = ends.filter(|end| *end > within).min().unwrap_or(period) + lap;
                let end = end.min(until);
                let rate = steps.at(Span::from_nanos(position)).as_bps();
                sum += u128::from(rate) * u128::from(end - position);
                position = end;
            }
            Some(sum)
        }
        CapacitySpec::Trace { trace: LinkTrace::Opportunities { at, size, period }, .. } => {
            let laps = (0..=until / period.as_nanos()).map(|lap| lap * period.as_nanos());
            let moments = laps.flat_map(|lap| at.iter().map(move |at| at.as_nanos() + lap));
            let within = moments.filter(|moment| (from..=until).contains(moment)).count();
            Some(size.as_bits() * 1_000_000_000 * within as u128)
        }
    }
}
