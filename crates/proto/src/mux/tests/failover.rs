//! Effects on applications when paths stall, fail and return.

use manyways_unit::{Span, Time};

use super::simulation::{CLIENT, GATEWAY, Piece, Simulation, link};
use crate::mux::{
    CarrierId, Config, Input, Message, Mux, Output, ResetCode, Role, StreamId, TransportInfo,
};
use crate::sched::{PathId, PathSet, SchedulerKind, StreamPolicy};

const LINKS: [(u64, u64); 2] = [(7_040, 50), (9_185, 70)];

fn treat(scheduler: SchedulerKind) -> StreamPolicy {
    StreamPolicy { scheduler, ..StreamPolicy::default() }
}

/// A stream of 1 Mbit/s from the gateway, 1,250 bytes every 10 ms, over both links. The scheduler
/// `minrtt` uses only the faster one.
struct Playback {
    simulation: Simulation,
    stream: StreamId,
    carriers: [CarrierId; 2],
}

impl Playback {
    fn begin(policy: StreamPolicy) -> Self {
        let mut simulation = Simulation::new();
        simulation.label(0, policy);
        let carriers = [0, 1].map(|path| {
            let (kbps, rtt) = LINKS[path];
            simulation.attach(path as u8, link(kbps, rtt))
        });
        let stream = simulation.open_quiet(0);
        let mut play = Self { simulation, stream, carriers };
        play.run_for(500);
        play
    }

    /// Runs for this number of milliseconds.
    fn run_for(&mut self, millis: u64) {
        for _ in 0..millis / 10 {
            self.simulation.feed(GATEWAY, self.stream, 1_250);
            self.simulation.run_for(Span::from_millis(10));
        }
    }

    /// The longest stall so far in milliseconds, after all data has arrived.
    #[track_caller]
    fn stall(&mut self) -> f64 {
        self.simulation.run_for(Span::from_secs(1));
        let [client, gateway] = &self.simulation.applications;
        assert_eq!(client[&self.stream].received, gateway[&self.stream].to_write);
        assert_eq!(self.simulation.violations, Vec::<&str>::new());
        self.simulation.longest_stall(CLIENT, self.stream).as_millis_f64()
    }
}

#[test]
fn a_black_hole_stalls_a_stream_for_less_than_a_quarter_of_a_second() {
    for scheduler in [
        SchedulerKind::MinRtt,
        SchedulerKind::Single,
        SchedulerKind::Ecf,
        SchedulerKind::BufferAware,
    ] {
        let mut play = Playback::begin(treat(scheduler));
        play.simulation.set_silent(play.carriers[0], true);
        play.run_for(1_000);
        let stall = play.stall();
        // The timeout is 50 + 4·2 + 10 ms, the oldest message is at most 10 ms younger, and the
        // other path takes 35 ms.
        assert!((60.0..125.0).contains(&stall), "{scheduler}: {stall} ms");
        // The client detects the stall too, because its ACKs are not acknowledged.
        let suspects: Vec<CarrierId> = play.simulation.suspects.iter().map(|(_, id)| *id).collect();
        assert_eq!(suspects, [play.carriers[0]; 2]);
        assert_eq!(play.simulation.recoveries, []);
    }
}

#[test]
fn a_path_that_was_only_silent_for_a_while_recovers() {
    let mut play = Playback::begin(treat(SchedulerKind::MinRtt));
    play.simulation.set_silent(play.carriers[0], true);
    play.run_for(300);
    assert_eq!(play.simulation.suspects.len(), 2);
    play.simulation.set_silent(play.carriers[0], false);
    play.run_for(2_000);
    play.stall();
    let recoveries: Vec<CarrierId> = play.simulation.recoveries.iter().map(|(_, id)| *id).collect();
    assert_eq!(recoveries, [play.carriers[0]; 2]);
}

#[test]
fn an_interface_that_goes_down_stalls_a_stream_for_the_way_over_the_other() {
    for scheduler in [
        SchedulerKind::MinRtt,
        SchedulerKind::Single,
        SchedulerKind::Ecf,
        SchedulerKind::BufferAware,
    ] {
        let mut play = Playback::begin(treat(scheduler));
        play.simulation.detach(play.carriers[0], 0);
        play.run_for(1_000);
        let stall = play.stall();
        // 35 ms after the last message over the removed path.
        assert!(stall < 35.0 + 10.0 + 2.0, "{scheduler}: {stall} ms");
    }
}

#[test]
fn a_gateway_that_is_told_of_a_dead_interface_does_not_wait_until_it_notices() {
    let mut play = Playback::begin(treat(SchedulerKind::Single));
    play.simulation.disconnect_link(play.carriers[0]);
    play.run_for(1_000);
    let stall = play.stall();
    // An RTT of 35 ms on the other path; data in flight is at most 25 ms old.
    assert!((60.0..90.0).contains(&stall), "{stall} ms");
    assert_eq!(play.simulation.suspects, []);
}

#[test]
fn a_path_that_is_back_before_anybody_could_be_told_of_its_end_is_used() {
    let mut play = Playback::begin(treat(SchedulerKind::Single));
    for carrier in play.carriers {
        play.simulation.disconnect_link(carrier);
    }
    play.run_for(200);
    let (kbps, rtt) = LINKS[0];
    play.simulation.attach(0, link(kbps, rtt));
    play.run_for(500);
    let stall = play.stall();
    assert!(stall < 300.0, "{stall} ms");
}

#[test]
fn redundant_streams_do_not_notice_that_a_path_stalls() {
    for silent in 0..2 {
        let mut play = Playback::begin(treat(SchedulerKind::Redundant));
        let before = play.simulation.longest_stall(CLIENT, play.stream).as_millis_f64();
        assert!(before < 60.0, "{before} ms");
        play.simulation.set_silent(play.carriers[silent], true);
        play.run_for(1_000);
        let stall = play.stall();
        // The difference of the paths, and the interval between writes.
        assert!(stall < before.max(10.0 + 10.0 + 2.0), "{silent}: {stall} ms");
        assert_eq!(play.simulation.counters(GATEWAY).spurious, 0);
    }
}

#[test]
fn the_end_of_a_redundant_stream_and_its_beginning_come_over_the_other_path_too() {
    let mut simulation = Simulation::new();
    simulation.label(0, treat(SchedulerKind::Redundant));
    let [quick, _] = LINKS.map(|(kbps, rtt)| (kbps, rtt));
    let dead = simulation.attach(0, link(quick.0, quick.1));
    simulation.attach(1, link(9_185, 70));
    simulation.run_for(Span::from_millis(500));
    simulation.set_silent(dead, true);
    let begin = simulation.now;
    // No data at first, as with a mail server.
    let stream = simulation.open(0, 0, 1_000);
    simulation.run_for(Span::from_secs(2));
    let took = simulation.done_at(stream).unwrap().since(begin).as_millis_f64();
    assert!(took < 75.0, "{took} ms");
    assert!(simulation.endpoints.iter().all(|end| end.stream_count() == 0 && end.ready.is_empty()));
}

#[test]
fn an_end_that_is_said_by_itself_comes_over_the_other_path_too() {
    let mut simulation = Simulation::new();
    simulation.label(0, treat(SchedulerKind::Redundant));
    let dead = simulation.attach(0, link(7_040, 50));
    simulation.attach(1, link(9_185, 70));
    let stream = simulation.open_quiet(0);
    simulation.run_for(Span::from_millis(500));
    simulation.set_silent(dead, true);
    simulation.endpoints[GATEWAY].handle(simulation.now, Input::Finish { stream });
    simulation.run_for(Span::from_millis(37));
    assert_eq!(simulation.applications[CLIENT][&stream].end, Some(Ok(())));
}

#[test]
fn what_may_take_no_other_path_is_neither_sent_again_nor_counted() {
    let only = StreamPolicy { paths: [PathId(0)].into_iter().collect(), ..StreamPolicy::default() };
    let mut play = Playback::begin(only);
    play.simulation.set_silent(play.carriers[0], true);
    play.simulation.sent.clear();
    play.run_for(500);
    let stream = play.stream;
    let input = Input::Reset { stream, code: ResetCode::Aborted };
    play.simulation.endpoints[GATEWAY].handle(play.simulation.now, input);
    play.simulation.run_for(Span::from_secs(2));
    assert_eq!(play.simulation.counters(GATEWAY).reinjected, 0);
    assert!(play.simulation.sent.iter().all(|(_, id, _)| *id == play.carriers[0]));
    let resets = play.simulation.sent.iter();
    let resets = resets.filter(|(_, _, message)| matches!(message, Message::Reset { .. }));
    assert_eq!(resets.count(), 1);
}

#[test]
fn what_a_suspect_path_holds_takes_another_one_as_soon_as_it_may() {
    let on = |paths: &[u8]| StreamPolicy {
        paths: paths.iter().map(|path| PathId(*path)).collect(),
        ..StreamPolicy::default()
    };
    // The policy of the label changes, or the label of the stream.
    for is_assigned in [false, true] {
        let mut play = Playback::begin(on(&[0]));
        play.simulation.set_silent(play.carriers[0], true);
        play.run_for(500);
        assert_eq!(play.simulation.counters(GATEWAY).reinjected, 0);
        play.simulation.label(u8::from(is_assigned), on(&[1]));
        if is_assigned {
            let input = Input::Assign { stream: play.stream, label: 1 };
            play.simulation.endpoints[CLIENT].handle(play.simulation.now, input);
        }
        play.run_for(500);
        play.stall();
    }
    // The second path got data when the first one was suspect, and then fell silent too.
    let mut play = Playback::begin(on(&[0, 1]));
    play.simulation.attach(2, link(9_185, 70));
    play.run_for(100);
    play.simulation.set_silent(play.carriers[0], true);
    play.simulation.set_silent(play.carriers[1], true);
    play.run_for(500);
    play.simulation.set_silent(play.carriers[0], false);
    play.run_for(1_000);
    play.stall();
}

#[test]
fn a_suspect_path_that_returns_is_used_again_and_what_was_sent_twice_is_counted() {
    let mut play = Playback::begin(treat(SchedulerKind::MinRtt));
    let before = play.simulation.counters(GATEWAY);
    assert_eq!((before.reinjected, before.spurious), (0, 0));
    play.simulation.set_silent(play.carriers[0], true);
    play.run_for(200);
    play.simulation.set_silent(play.carriers[0], false);
    let returned = play.simulation.now;
    play.run_for(1_000);
    play.stall();
    let after = play.simulation.counters(GATEWAY);
    // Data in flight at the stall: up to 70 ms before the suspicion, and 25 ms before that.
    assert!((5_000..20_000).contains(&after.reinjected), "{after:?}");
    assert_eq!(after.spurious, after.reinjected, "it brought all of it after all");
    let again = |(at, id, message): &&(Time, CarrierId, _)| {
        let bytes: Option<&Piece> = Message::payload(message);
        *id == play.carriers[0] && *at > returned && bytes.is_some()
    };
    assert!(play.simulation.sent.iter().filter(again).count() > 80);
    // The application received each byte once; the copies were counted.
    assert_eq!(play.simulation.counters(CLIENT).duplicate, after.spurious);
}

#[test]
fn a_path_that_stalls_again_and_again_costs_no_more_than_a_twentieth() {
    let mut simulation = Simulation::with(|config| config.max_reinjection_budget = 30_000);
    let flaky = simulation.attach(0, link(8_000, 50));
    simulation.attach(1, link(8_000, 70));
    simulation.open(0, 100, 60_000_000);
    for _ in 0..40 {
        simulation.run_for(Span::from_millis(300));
        simulation.set_silent(flaky, true);
        simulation.run_for(Span::from_millis(200));
        simulation.set_silent(flaky, false);
    }
    let counters = simulation.counters(GATEWAY);
    let max = 30_000 + counters.sent / 20 + 16_384;
    assert!((100_000..=max).contains(&counters.reinjected), "{counters:?}");
}

#[test]
fn a_path_that_failed_and_says_nothing_is_not_used_again() {
    let mut play = Playback::begin(treat(SchedulerKind::MinRtt));
    play.simulation.set_silent(play.carriers[0], true);
    play.run_for(300);
    play.simulation.sent.clear();
    play.run_for(20_000);
    // The stalled path seems better: its queue is empty and its RTT unchanged.
    assert!(play.simulation.sent.iter().all(|(_, id, _)| *id == play.carriers[1]));
}

#[test]
fn with_every_path_suspect_the_first_that_lives_goes_on() {
    for returns in 0..2 {
        let mut play = Playback::begin(treat(SchedulerKind::BufferAware));
        for id in play.carriers {
            play.simulation.set_silent(id, true);
        }
        play.run_for(2_000);
        play.simulation.set_silent(play.carriers[returns], false);
        let back = play.simulation.now;
        play.run_for(500);
        let stream = &play.simulation.applications[CLIENT][&play.stream];
        let first = stream.arrivals.iter().find(|(at, _)| *at >= back).unwrap().0;
        assert!(first.since(back) < Span::from_millis(100), "{:?}", first.since(back));
        play.stall();
    }
}

#[test]
fn single_fails_over_and_comes_back_to_its_primary() {
    let primary = StreamPolicy { primary: Some(PathId(1)), ..treat(SchedulerKind::Single) };
    let mut play = Playback::begin(primary);
    let used = |play: &mut Playback| {
        play.simulation.traffic.clear();
        play.run_for(1_000);
        let traffic =
            |path| play.simulation.traffic.get(&PathId(path)).copied().unwrap_or_default();
        (traffic(0) > 100_000, traffic(1) > 100_000)
    };
    assert_eq!(used(&mut play), (false, true));
    play.simulation.detach(play.carriers[1], 0);
    assert_eq!(used(&mut play), (true, false));
    play.simulation.attach(1, link(9_185, 70));
    assert_eq!(used(&mut play), (false, true));
    play.stall();
}

#[test]
fn a_bulk_transfer_survives_that_a_fast_path_stalls_with_much_on_its_way() {
    let mut simulation = Simulation::new();
    let fast = simulation.attach(0, link(100_000, 100));
    simulation.attach(1, link(20_000, 70));
    let stream = simulation.open(0, 100, 100_000_000);
    simulation.run_for(Span::from_secs(2));
    simulation.set_silent(fast, true);
    simulation.run_for(Span::from_secs(5));
    let stall = simulation.longest_stall(CLIENT, stream).as_millis_f64();
    // 1.2 MB were in flight; the other path delivers them within 0.5 s.
    assert!(stall < 1_000.0, "{stall} ms");
}

/// A message that is reinjected because its carrier is suspect must not return to a suspect carrier:
/// it would be reinjected again at once, for ever, while the shell polls.
#[test]
fn a_notice_of_a_suspect_path_is_sent_over_another_one_and_only_once() {
    const CARRIERS: [CarrierId; 2] = [CarrierId(0), CarrierId(1)];
    let only_lte = PathSet::NONE.with(PathId(1));
    // The other carrier has room, or gets it later.
    for has_room in [true, false] {
        let mut now = Time::from_millis(1_000);
        let mut client: Mux<Piece> = Mux::new(Config::new(Role::Client));
        let info = TransportInfo::initial(Span::from_millis(20));
        for (path, carrier) in (0..).zip(CARRIERS) {
            let path = PathId(path);
            client.handle(now, Input::Attach { carrier, path, transport_info: info });
        }
        client.handle(now, Input::Writable { carrier: CARRIERS[1], bytes: 1 << 20 });
        let policy = StreamPolicy { paths: only_lte, ..StreamPolicy::default() };
        client.handle(now, Input::Relabel { id: 3, stream_policy: policy });
        let poll = |client: &mut Mux<Piece>, now| {
            let mut sent = Vec::new();
            while let Some(output) = client.poll(now) {
                if let Output::Send { carrier, message: Message::Relabel(_) } = output {
                    sent.push(carrier);
                }
                assert!(sent.len() < 10, "it does not end");
            }
            sent
        };
        assert_eq!(poll(&mut client, now), [CARRIERS[1]]);
        // No ACK arrives.
        let mut sent = Vec::new();
        for _ in 0..100 {
            now += Span::from_millis(20);
            if has_room {
                client.handle(now, Input::Writable { carrier: CARRIERS[0], bytes: 1 << 20 });
            }
            sent.extend(poll(&mut client, now));
        }
        assert_eq!(sent, if has_room { vec![CARRIERS[0]] } else { vec![] });
        client.handle(now, Input::Writable { carrier: CARRIERS[0], bytes: 1 << 20 });
        sent.extend(poll(&mut client, now));
        assert_eq!(sent, [CARRIERS[0]]);
    }
}
