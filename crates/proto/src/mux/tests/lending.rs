//! Paths over lenders: MPBond's set-up in virtual time.

use manyways_unit::{Rate, Size, Span, Time};

use super::simulation::{self, CLIENT, GATEWAY, Link, Simulation};
use crate::mux::{CarrierId, Config, Feedback, HopEstimate, Input, Message, Rebalance, StreamId};
use crate::relay::Class;
use crate::sched::{PathId, SchedulerKind, StreamPolicy};

const BUFFER: Size = Size::from_mib(2);
/// A queue of 150 ms.
const QUEUE: Span = Span::from_millis(150);
/// Rates of the direct path, the lender's path and the pipe in kbit/s.
const RATES: [u64; 3] = [8_000, 10_000, 5_000];

/// A device with a path of its own and one over a lender.
struct Pair {
    simulation: Simulation,
    lent: CarrierId,
}

impl Pair {
    fn new(rates: [u64; 3], scheduler: SchedulerKind, change: impl Fn(&mut Config)) -> Self {
        let [direct, far, pipe] = rates;
        let mut simulation = Simulation::with(change);
        simulation.label(0, StreamPolicy { scheduler, ..StreamPolicy::default() });
        let link = |kbps, rtt| Link { queue: QUEUE, ..simulation::link(kbps, rtt) };
        simulation.attach(0, link(direct, 60));
        let lent = simulation.attach_lent(1, link(pipe, 6), link(far, 60), BUFFER);
        simulation.run_for(Span::from_millis(500));
        Self { simulation, lent }
    }

    fn pams(rates: [u64; 3]) -> Self {
        Self::new(rates, SchedulerKind::Pams, |_| {})
    }

    /// Downloads this many bytes and returns the time in seconds. After 2 s, the pipe gets another
    /// rate.
    fn download(&mut self, bytes: u64, pipe: Option<u64>) -> f64 {
        let (begin, stream) = (self.simulation.now, self.simulation.open(0, 100, bytes));
        if let Some(kbps) = pipe {
            self.simulation.run_for(Span::from_secs(2));
            self.simulation.lent(self.lent).pipe.rate = Rate::from_kbps(kbps);
        }
        self.simulation.run_for(Span::from_secs(60));
        self.check(stream, bytes);
        self.simulation.done_at(stream).expect("an end").since(begin).as_secs_f64()
    }

    /// Downloads this many bytes while the lender's network has 1 Mbit/s from 2 s on, and returns
    /// the time in seconds, and the bytes that the lender had at the change.
    fn download_with_slow_end(&mut self, bytes: u64) -> (f64, u64) {
        let (begin, stream) = (self.simulation.now, self.simulation.open(0, 100, bytes));
        self.simulation.run_for(Span::from_secs(2));
        let backlog = self.simulation.lent(self.lent).backlog(GATEWAY);
        self.simulation.lent(self.lent).path.rate = Rate::from_mbps(1);
        self.simulation.run_for(Span::from_secs(60));
        self.check(stream, bytes);
        (self.simulation.done_at(stream).expect("an end").since(begin).as_secs_f64(), backlog)
    }

    #[track_caller]
    fn check(&self, stream: StreamId, bytes: u64) {
        assert_eq!(self.simulation.violations, Vec::<&str>::new());
        let [client, _] = &self.simulation.applications;
        assert_eq!(client[&stream].received, bytes, "{}", self.simulation.debug_state());
    }

    /// When the lender became suspect.
    fn suspect_at(&self) -> Option<Time> {
        let of = self.simulation.suspects.iter().find(|(_, carrier)| *carrier == self.lent);
        of.map(|(at, _)| *at)
    }

    /// Bytes that each end has received of a stream.
    fn received(&self, stream: StreamId) -> [u64; 2] {
        [CLIENT, GATEWAY].map(|end| self.simulation.applications[end][&stream].received)
    }

    /// The messages of both ends over the lender.
    fn lent_messages(&self) -> impl Iterator<Item = &Message<simulation::Piece>> {
        let over = self.simulation.sent.iter().filter(|(_, carrier, _)| *carrier == self.lent);
        over.map(|(_, _, message)| message)
    }
}

#[test]
fn both_paths_end_at_the_same_time() {
    for (bytes, factor) in [(500_000, 1.2), (4_000_000, 1.06), (10_000_000, 1.04)] {
        // All bytes at the rates of the direct path and of the pipe, and a request.
        let bound = bytes as f64 * 8.0 / 13e6 + 0.06;
        let time = Pair::pams(RATES).download(bytes, None);
        assert!(time < bound * factor, "{bytes} bytes in {time} s, bound {bound} s");
    }
    let time = Pair::new(RATES, SchedulerKind::MinRtt, |_| {}).download(4_000_000, None);
    assert!(time > 3.2, "minrtt fills the lender's buffer: {time} s");
}

#[test]
fn bytes_that_wait_at_a_lender_are_recalled_if_its_pipe_slows_down() {
    let run = |rebalance| {
        let mut pair = Pair::new([5_000, 10_000, 5_000], SchedulerKind::Pams, |config| {
            config.rebalance = rebalance;
        });
        let time = pair.download(4_000_000, Some(1_000));
        let received = pair.simulation.counters(CLIENT);
        (time, received.duplicate as f64 / received.received as f64)
    };
    let (without, _) = run(Rebalance::Off);
    let (published, _) = run(Rebalance::Published);
    let (ours, twice) = run(Rebalance::On);
    assert!(ours < published && published < without * 0.6, "{ours}, {published}, {without} s");
    // 2.5 MB until then, and the rest at 6 Mbit/s.
    assert!(ours < 4.15, "{ours} s");
    assert!(twice < 0.001, "{twice} of the bytes came twice");
}

#[test]
fn the_buffer_of_a_lender_outlasts_its_network() {
    let (time, backlog) = Pair::pams([5_000, 10_000, 5_000]).download_with_slow_end(4_000_000);
    assert!(backlog > 600_000, "{backlog} bytes");
    // As if nothing had changed: 4 MB at 10 Mbit/s.
    assert!(time < 3.4, "{time} s");
}

#[test]
fn the_backlog_of_a_lender_is_estimated() {
    // minrtt fills the buffer.
    let mut pair = Pair::new(RATES, SchedulerKind::MinRtt, |_| {});
    pair.simulation.open(0, 100, 10_000_000);
    for _ in 0..5 {
        pair.simulation.run_for(Span::from_millis(500));
        let actual = pair.simulation.lent(pair.lent).backlog(GATEWAY);
        let (now, mux) = (pair.simulation.now, &pair.simulation.endpoints[GATEWAY]);
        let view = mux.path_view(now, pair.lent).expect("a carrier");
        let hop = view.second_hop.expect("a lender");
        let estimate = hop.backlog().expect("a known rate");
        // The queue of the pipe is behind the lender's buffer, and cannot be distinguished from it.
        let [least, most] =
            [Span::ZERO, QUEUE].map(|queue| hop.rate.time_for(Size::from_bytes(actual)) + queue);
        let (time, error) = (hop.rate.time_for(estimate), Span::from_millis(40));
        assert!(time + error > least && time < most + error, "{estimate}, not {actual} bytes");
        assert!(view.delivery_time() + error > least, "{}", view.delivery_time());
    }
}

#[test]
fn a_faster_pipe_is_used() {
    let time = Pair::pams([5_000, 10_000, 5_000]).download(4_000_000, Some(10_000));
    assert!(time < 2.98, "{time} s: 2.5 MB in 2 s, then 15 Mbit/s");
}

#[test]
fn the_backlog_tells_more_than_the_last_wait() {
    let run = |estimate| {
        let change = |config: &mut Config| config.hop_estimate = estimate;
        let mut pair = Pair::new([5_000, 10_000, 5_000], SchedulerKind::Pams, change);
        pair.download(4_000_000, None)
    };
    let [backlog, delay] = [HopEstimate::Backlog, HopEstimate::Delay].map(run);
    assert!(backlog < delay, "{backlog}, {delay} s");
}

#[test]
fn acks_of_a_client_do_not_wake_the_radio_of_a_lender() {
    for feedback in [Feedback::Flexible, Feedback::Lender] {
        let change = |config: &mut Config| config.feedback = feedback;
        let mut pair = Pair::new(RATES, SchedulerKind::Pams, change);
        pair.download(1_000_000, None);
        let wakes = pair.lent_messages().any(|message| matches!(message, Message::Ack { .. }));
        assert_eq!(wakes, feedback == Feedback::Lender);
        assert_eq!(pair.simulation.lent(pair.lent).passed_on(CLIENT) > 0, wakes);
    }
}

#[test]
fn uploads_use_the_lender_too() {
    let mut pair = Pair::pams([8_000, 5_000, 10_000]);
    let (begin, stream) = (pair.simulation.now, pair.simulation.open(0, 4_000_000, 10));
    pair.simulation.run_for(Span::from_secs(20));
    let [_, gateway] = &pair.simulation.applications;
    assert_eq!(gateway[&stream].received, 4_000_000);
    let (end, _) = gateway[&stream].arrivals.last().expect("arrivals");
    let time = end.since(begin).as_secs_f64();
    assert!(time < 2.75, "{time} s at 13 Mbit/s");
}

#[test]
fn what_a_vanished_lender_had_is_sent_again() {
    let mut pair = Pair::pams(RATES);
    let stream = pair.simulation.open(0, 100, 4_000_000);
    pair.simulation.run_for(Span::from_secs(1));
    assert!(pair.simulation.lent(pair.lent).backlog(GATEWAY) > 10_000);
    pair.simulation.detach_lent(pair.lent);
    pair.simulation.run_for(Span::from_secs(20));
    pair.check(stream, 4_000_000);
    assert!(pair.simulation.longest_stall(CLIENT, stream) < Span::from_millis(250));
}

#[test]
fn a_silent_pipe_is_noticed_though_the_lender_answers() {
    let mut pair = Pair::pams(RATES);
    let stream = pair.simulation.open(0, 100, 6_000_000);
    pair.simulation.run_for(Span::from_secs(1));
    let now = pair.simulation.now;
    pair.simulation.lent(pair.lent).set_pipe_silent(now, true);
    pair.simulation.run_for(Span::from_secs(20));
    pair.check(stream, 6_000_000);
    let stall = pair.simulation.longest_stall(CLIENT, stream);
    assert!(stall < Span::from_millis(600), "{stall}");
}

#[test]
fn a_lender_with_a_silent_network_is_noticed_though_its_pipe_works() {
    for bytes in [[100, 6_000_000], [6_000_000, 100]] {
        let mut pair = Pair::pams(RATES);
        let stream = pair.simulation.open(0, bytes[0], bytes[1]);
        pair.simulation.run_for(Span::from_secs(1));
        let now = pair.simulation.now;
        pair.simulation.lent(pair.lent).set_path_silent(now, true);
        pair.simulation.run_for(Span::from_secs(20));
        pair.check(stream, bytes[1]);
        let [_, gateway] = &pair.simulation.applications;
        assert_eq!(gateway[&stream].received, bytes[0]);
        let receiver = if bytes[1] > bytes[0] { CLIENT } else { GATEWAY };
        let stall = pair.simulation.longest_stall(receiver, stream);
        assert!(stall < Span::from_millis(900), "{stall}");
        // Later streams do not wait for it.
        let (begin, next) = (pair.simulation.now, pair.simulation.open(0, 100, 100_000));
        pair.simulation.run_for(Span::from_secs(5));
        pair.check(next, 100_000);
        let end = pair.simulation.done_at(next).expect("an end");
        assert!(end.since(begin) < Span::from_millis(300), "{}", end.since(begin));
    }
}

#[test]
fn a_pipe_that_comes_and_goes_each_second_costs_no_bytes() {
    for is_pipe in [true, false] {
        let mut pair = Pair::pams(RATES);
        let stream = pair.simulation.open(0, 100, 12_000_000);
        for silent in [true, false].repeat(8) {
            pair.simulation.run_for(Span::from_millis(500));
            let (now, lent) = (pair.simulation.now, pair.simulation.lent(pair.lent));
            match is_pipe {
                true => lent.set_pipe_silent(now, silent),
                false => lent.set_path_silent(now, silent),
            }
        }
        pair.simulation.run_for(Span::from_secs(20));
        pair.check(stream, 12_000_000);
        let end = pair.simulation.done_at(stream).expect("an end");
        // The direct path alone has 8 Mbit/s.
        assert!(end.since(Time::ZERO) < Span::from_millis(14_000), "{end}");
    }
}

#[test]
fn a_lender_that_leaves_gets_nothing_new_and_nothing_is_repeated() {
    let mut pair = Pair::pams(RATES);
    let stream = pair.simulation.open(0, 100, 4_000_000);
    pair.simulation.run_for(Span::from_secs(1));
    for end in [CLIENT, GATEWAY] {
        let carrier = pair.lent;
        pair.simulation.endpoints[end].handle(pair.simulation.now, Input::Retire { carrier });
    }
    let before = pair.lent_messages().filter(|message| message.is_traffic()).count();
    pair.simulation.run_for(Span::from_secs(20));
    pair.check(stream, 4_000_000);
    let after = pair.lent_messages().filter(|message| message.is_traffic()).count();
    assert_eq!(before, after);
    assert_eq!(pair.simulation.counters(CLIENT).duplicate, 0);
}

#[test]
fn a_lender_may_drop_only_what_was_recalled() {
    let mut pair = Pair::pams(RATES);
    let carrier = pair.lent;
    let client = &mut pair.simulation.endpoints[CLIENT];
    client.handle(pair.simulation.now, Input::Dropped { carrier });
    pair.simulation.run_for(Span::from_millis(1));
    assert_eq!(pair.simulation.violations, ["a wrong drop"]);

    let mut pair = Pair::pams(RATES);
    let (now, direct) = (pair.simulation.now, pair.simulation.carrier_ids()[0]);
    let client = &mut pair.simulation.endpoints[CLIENT];
    for (carrier, first, last) in [(pair.lent, 0, 3), (pair.lent, 9, 4), (direct, 0, 3)] {
        client.handle(now, Input::Message { carrier, message: Message::Recalled { first, last } });
    }
    for _ in 0..5 {
        client.handle(now, Input::Dropped { carrier: pair.lent });
    }
    pair.simulation.run_for(Span::from_millis(1));
    assert_eq!(
        pair.simulation.violations,
        ["it recalled messages of a carrier without a lender", "a wrong drop"]
    );
}

#[test]
fn a_lender_that_withholds_a_direction_is_left_though_the_other_one_works() {
    for (end, class, feedback) in [
        (CLIENT, Class::Bulk, Feedback::Flexible),
        (GATEWAY, Class::Bulk, Feedback::Flexible),
        // The ACKs of uploads, and of downloads.
        (GATEWAY, Class::Control, Feedback::Flexible),
        (CLIENT, Class::Control, Feedback::Lender),
    ] {
        let mut pair = Pair::new(RATES, SchedulerKind::Pams, |config| config.feedback = feedback);
        let bytes = [30_000_000, 30_000_000];
        let streams = [
            pair.simulation.open(0, bytes[CLIENT], 100),
            pair.simulation.open(0, 100, bytes[GATEWAY]),
        ];
        pair.simulation.run_for(Span::from_secs(2));
        assert_eq!(pair.suspect_at(), None, "{class} of {end}");
        let begin = pair.simulation.now;
        pair.simulation.lent(pair.lent).withheld.push((end, class));
        pair.simulation.run_for(Span::from_secs(100));
        let suspect_at = pair.suspect_at().expect("a suspect lender").since(begin);
        assert!(suspect_at < Span::from_millis(3_500), "{class} of {end}: {suspect_at}");
        assert_eq!(pair.received(streams[0]), [100, bytes[CLIENT]], "{class} of {end}");
        assert_eq!(pair.received(streams[1]), [bytes[GATEWAY], 100], "{class} of {end}");
        for (receiver, stream) in [(GATEWAY, streams[0]), (CLIENT, streams[1])] {
            let stall = pair.simulation.longest_stall(receiver, stream);
            assert!(stall < Span::from_millis(4_500), "{class} of {end}, to {receiver}: {stall}");
        }
        // Without the messages that permit it, a drop is wrong, and would end the path.
        let violations = pair.simulation.violations.iter();
        assert!(violations.clone().all(|one| *one == "a wrong drop" && class == Class::Control));
        // It stays suspect where it withholds, whatever else comes over it.
        let is_suspect = pair.simulation.endpoints
            [if class == Class::Bulk { end } else { 1 - end }]
        .carriers()
        .any(|(id, is_suspect)| id == pair.lent && is_suspect);
        assert!(is_suspect, "{class} of {end}");
    }
}

#[test]
fn a_lender_that_withholds_datagrams_is_left_though_it_passes_on_the_rest() {
    for end in [CLIENT, GATEWAY] {
        let mut pair = Pair::pams(RATES);
        let calls = StreamPolicy {
            scheduler: SchedulerKind::Single,
            primary: Some(PathId(1)),
            ..StreamPolicy::default()
        };
        pair.simulation.label(1, calls);
        pair.simulation.open(0, 20_000_000, 40_000_000);
        let mut number = 0;
        let mut call = |pair: &mut Pair, count: u64| {
            for _ in 0..count {
                for from in [CLIENT, GATEWAY] {
                    pair.simulation.datagram(from, 1, 1, number, 200);
                }
                number += 1;
                pair.simulation.run_for(Span::from_millis(20));
            }
        };
        call(&mut pair, 50);
        assert_eq!(pair.suspect_at(), None);
        let begin = pair.simulation.now;
        pair.simulation.lent(pair.lent).withheld.push((end, Class::Datagram));
        call(&mut pair, 250);
        let suspect_at = pair.suspect_at().expect("a suspect lender").since(begin);
        assert!(suspect_at < Span::from_millis(2_200), "{suspect_at}");
        let arrived = pair.simulation.datagrams[1 - end].iter();
        let late = arrived.filter(|(at, ..)| at.since(begin) > Span::from_millis(2_300)).count();
        assert!(late >= 130, "{late} of 135 datagrams");
        // It gets a further trial, which is longer ago each time.
        call(&mut pair, 2_000);
        let trials = pair.simulation.suspects.iter().filter(|(_, id)| *id == pair.lent).count();
        assert!((2..=3).contains(&trials), "{trials} trials in 40 s");
        pair.simulation.lent(pair.lent).withheld.clear();
        call(&mut pair, 4_000);
        let is_suspect = |end: usize| {
            pair.simulation.endpoints[end]
                .carriers()
                .any(|(id, suspect)| id == pair.lent && suspect)
        };
        assert!(!is_suspect(CLIENT) && !is_suspect(GATEWAY), "it mends its ways");
    }
}

#[test]
fn an_honest_lender_with_a_slow_way_up_is_not_suspect() {
    for kbps in [2_000, 500, 300] {
        for feedback in [Feedback::Flexible, Feedback::Lender] {
            let mut pair =
                Pair::new(RATES, SchedulerKind::Pams, |config| config.feedback = feedback);
            let up = Link { queue: QUEUE, ..simulation::link(kbps, 60) };
            pair.simulation.lent(pair.lent).path_up = Some(up);
            let streams =
                [pair.simulation.open(0, 8_000_000, 100), pair.simulation.open(0, 100, 20_000_000)];
            pair.simulation.run_for(Span::from_secs(60));
            assert_eq!(pair.received(streams[0]), [100, 8_000_000]);
            assert_eq!(pair.received(streams[1]), [20_000_000, 100]);
            assert_eq!(pair.suspect_at(), None, "{kbps} kbit/s, {feedback:?}");
        }
    }
}

#[test]
fn the_round_trip_time_that_a_lender_claims_does_not_hide_its_silence() {
    for claimed in [Span::ZERO, Span::from_secs(4_000)] {
        let mut pair = Pair::pams(RATES);
        pair.simulation.detach_lent(pair.lent);
        let link = |kbps, rtt| Link { queue: QUEUE, ..simulation::link(kbps, rtt) };
        let (pipe, far) = (link(RATES[2], 6), link(RATES[1], 60));
        pair.lent = pair.simulation.attach_lent_with(1, pipe, far, BUFFER, claimed);
        let stream = pair.simulation.open(0, 6_000_000, 100);
        pair.simulation.run_for(Span::from_secs(1));
        let now = pair.simulation.now;
        let view = pair.simulation.endpoints[CLIENT].path_view(now, pair.lent).expect("a carrier");
        let delay = view.second_hop.expect("a lender").delay;
        assert!(delay < Span::from_millis(100), "{delay}");
        pair.simulation.lent(pair.lent).set_path_silent(now, true);
        pair.simulation.run_for(Span::from_secs(30));
        assert_eq!(pair.received(stream), [100, 6_000_000]);
        let stall = pair.simulation.longest_stall(GATEWAY, stream);
        assert!(stall < Span::from_secs(1), "{claimed}: {stall}");
    }
}

#[test]
fn an_honest_lender_that_holds_acks_is_not_accused() {
    let change = |config: &mut Config| config.feedback = Feedback::OnDemand;
    let mut pair = Pair::new([5_000, 10_000, 5_000], SchedulerKind::Pams, change);
    pair.simulation.lent(pair.lent).holds_acks = true;
    let streams =
        [pair.simulation.open(0, 4_000_000, 100), pair.simulation.open(0, 100, 4_000_000)];
    pair.simulation.run_for(Span::from_millis(1_500));
    // The client recalls messages from the lender, while the download waits for the pipe and the
    // gateway has nothing to acknowledge.
    pair.simulation.lent(pair.lent).path_up =
        Some(Link { queue: QUEUE, ..simulation::link(50, 60) });
    pair.simulation.lent(pair.lent).pipe.rate = Rate::from_mbps(2);
    pair.simulation.run_for(Span::from_secs(60));
    assert!(pair.simulation.counters(CLIENT).recalled > 0);
    assert_eq!(pair.simulation.violations, Vec::<&str>::new());
    assert_eq!(pair.received(streams[0]), [100, 4_000_000]);
    assert_eq!(pair.received(streams[1]), [4_000_000, 100]);
}
