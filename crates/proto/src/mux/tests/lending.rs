//! Paths over lenders: MPBond's set-up in virtual time.

use manyways_unit::{Rate, Size, Span, Time};

use super::simulation::{self, CLIENT, GATEWAY, Link, Simulation};
use crate::mux::{CarrierId, Config, Feedback, HopEstimate, Input, Message, Rebalance, StreamId};
use crate::sched::{SchedulerKind, StreamPolicy};

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
