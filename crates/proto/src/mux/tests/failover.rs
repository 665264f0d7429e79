//! Effects on applications when paths stall, fail and return.

use manyways_unit::{Span, Time};

use super::world::{CLIENT, GATEWAY, Piece, World, link};
use crate::mux::{CarrierId, Input, Message, ResetCode, StreamId};
use crate::sched::{Kind, PathId, Treatment};

const LINKS: [(u64, u64); 2] = [(7_040, 50), (9_185, 70)];

fn treat(scheduler: Kind) -> Treatment {
    Treatment { scheduler, ..Treatment::default() }
}

/// A stream of 1 Mbit/s from the gateway, 1,250 bytes every 10 ms, over both links. The scheduler
/// `minrtt` uses only the faster one.
struct Play {
    world: World,
    stream: StreamId,
    carriers: [CarrierId; 2],
}

impl Play {
    fn begin(treatment: Treatment) -> Self {
        let mut world = World::new();
        world.label(0, treatment);
        let carriers = [0, 1].map(|path| {
            let (kbps, rtt) = LINKS[path];
            world.attach(path as u8, link(kbps, rtt))
        });
        let stream = world.open_quiet(0);
        let mut play = Self { world, stream, carriers };
        play.on(500);
        play
    }

    /// Runs for this number of milliseconds.
    fn on(&mut self, millis: u64) {
        for _ in 0..millis / 10 {
            self.world.feed(GATEWAY, self.stream, 1_250);
            self.world.run_for(Span::from_millis(10));
        }
    }

    /// The longest stall so far in milliseconds, after all data has arrived.
    #[track_caller]
    fn stall(&mut self) -> f64 {
        self.world.run_for(Span::from_secs(1));
        let [client, gateway] = &self.world.applications;
        assert_eq!(client[&self.stream].received, gateway[&self.stream].to_write);
        assert_eq!(self.world.breaches, Vec::<&str>::new());
        self.world.longest_stall(CLIENT, self.stream).as_millis_f64()
    }
}

#[test]
fn a_black_hole_stalls_a_stream_for_less_than_a_quarter_of_a_second() {
    for scheduler in [Kind::MinRtt, Kind::Single, Kind::Ecf, Kind::BufferAware] {
        let mut play = Play::begin(treat(scheduler));
        play.world.set_silent(play.carriers[0], true);
        play.on(1_000);
        let stall = play.stall();
        // The timeout is 50 + 4·2 + 10 ms, the oldest message is at most 10 ms younger, and the
        // other path takes 35 ms.
        assert!((60.0..125.0).contains(&stall), "{scheduler}: {stall} ms");
        // The client detects the stall too, because its ACKs are not acknowledged.
        let suspects: Vec<CarrierId> = play.world.suspects.iter().map(|(_, id)| *id).collect();
        assert_eq!(suspects, [play.carriers[0]; 2]);
        assert_eq!(play.world.recoveries, []);
    }
}

#[test]
fn a_path_that_was_only_silent_for_a_while_recovers() {
    let mut play = Play::begin(treat(Kind::MinRtt));
    play.world.set_silent(play.carriers[0], true);
    play.on(300);
    assert_eq!(play.world.suspects.len(), 2);
    play.world.set_silent(play.carriers[0], false);
    play.on(2_000);
    play.stall();
    let recoveries: Vec<CarrierId> = play.world.recoveries.iter().map(|(_, id)| *id).collect();
    assert_eq!(recoveries, [play.carriers[0]; 2]);
}

#[test]
fn an_interface_that_goes_down_stalls_a_stream_for_the_way_over_the_other() {
    for scheduler in [Kind::MinRtt, Kind::Single, Kind::Ecf, Kind::BufferAware] {
        let mut play = Play::begin(treat(scheduler));
        play.world.detach(play.carriers[0], 0);
        play.on(1_000);
        let stall = play.stall();
        // 35 ms after the last message over the removed path.
        assert!(stall < 35.0 + 10.0 + 2.0, "{scheduler}: {stall} ms");
    }
}

#[test]
fn a_gateway_that_is_told_of_a_dead_interface_does_not_wait_until_it_notices() {
    let mut play = Play::begin(treat(Kind::Single));
    play.world.unplug(play.carriers[0]);
    play.on(1_000);
    let stall = play.stall();
    // An RTT of 35 ms on the other path; data in flight is at most 25 ms old.
    assert!((60.0..90.0).contains(&stall), "{stall} ms");
    assert_eq!(play.world.suspects, []);
}

#[test]
fn a_path_that_is_back_before_anybody_could_be_told_of_its_end_is_used() {
    let mut play = Play::begin(treat(Kind::Single));
    for carrier in play.carriers {
        play.world.unplug(carrier);
    }
    play.on(200);
    let (kbps, rtt) = LINKS[0];
    play.world.attach(0, link(kbps, rtt));
    play.on(500);
    let stall = play.stall();
    assert!(stall < 300.0, "{stall} ms");
}

#[test]
fn redundant_streams_do_not_notice_that_a_path_stalls() {
    for silent in 0..2 {
        let mut play = Play::begin(treat(Kind::Redundant));
        let before = play.world.longest_stall(CLIENT, play.stream).as_millis_f64();
        assert!(before < 60.0, "{before} ms");
        play.world.set_silent(play.carriers[silent], true);
        play.on(1_000);
        let stall = play.stall();
        // The difference of the paths, and the interval between writes.
        assert!(stall < before.max(10.0 + 10.0 + 2.0), "{silent}: {stall} ms");
        assert_eq!(play.world.counters(GATEWAY).spurious, 0);
    }
}

#[test]
fn the_end_of_a_redundant_stream_and_its_beginning_come_over_the_other_path_too() {
    let mut world = World::new();
    world.label(0, treat(Kind::Redundant));
    let [quick, _] = LINKS.map(|(kbps, rtt)| (kbps, rtt));
    let dead = world.attach(0, link(quick.0, quick.1));
    world.attach(1, link(9_185, 70));
    world.run_for(Span::from_millis(500));
    world.set_silent(dead, true);
    let begin = world.now;
    // No data at first, as with a mail server.
    let stream = world.open(0, 0, 1_000);
    world.run_for(Span::from_secs(2));
    let took = world.done_at(stream).unwrap().since(begin).as_millis_f64();
    assert!(took < 75.0, "{took} ms");
    assert!(world.ends.iter().all(|end| end.stream_count() == 0 && end.ready.is_empty()));
}

#[test]
fn an_end_that_is_said_by_itself_comes_over_the_other_path_too() {
    let mut world = World::new();
    world.label(0, treat(Kind::Redundant));
    let dead = world.attach(0, link(7_040, 50));
    world.attach(1, link(9_185, 70));
    let stream = world.open_quiet(0);
    world.run_for(Span::from_millis(500));
    world.set_silent(dead, true);
    world.ends[GATEWAY].handle(world.now, Input::Finish { stream });
    world.run_for(Span::from_millis(37));
    assert_eq!(world.applications[CLIENT][&stream].end, Some(Ok(())));
}

#[test]
fn what_may_take_no_other_path_is_neither_sent_again_nor_counted() {
    let only = Treatment { paths: [PathId(0)].into_iter().collect(), ..Treatment::default() };
    let mut play = Play::begin(only);
    play.world.set_silent(play.carriers[0], true);
    play.world.sent.clear();
    play.on(500);
    let stream = play.stream;
    let input = Input::Reset { stream, code: ResetCode::Aborted };
    play.world.ends[GATEWAY].handle(play.world.now, input);
    play.world.run_for(Span::from_secs(2));
    assert_eq!(play.world.counters(GATEWAY).reinjected, 0);
    assert!(play.world.sent.iter().all(|(_, id, _)| *id == play.carriers[0]));
    let resets = play.world.sent.iter();
    let resets = resets.filter(|(_, _, message)| matches!(message, Message::Reset { .. }));
    assert_eq!(resets.count(), 1);
}

#[test]
fn a_suspect_path_that_returns_is_used_again_and_what_was_sent_twice_is_counted() {
    let mut play = Play::begin(treat(Kind::MinRtt));
    let before = play.world.counters(GATEWAY);
    assert_eq!((before.reinjected, before.spurious), (0, 0));
    play.world.set_silent(play.carriers[0], true);
    play.on(200);
    play.world.set_silent(play.carriers[0], false);
    let returned = play.world.now;
    play.on(1_000);
    play.stall();
    let after = play.world.counters(GATEWAY);
    // Data in flight at the stall: up to 70 ms before the suspicion, and 25 ms before that.
    assert!((5_000..20_000).contains(&after.reinjected), "{after:?}");
    assert_eq!(after.spurious, after.reinjected, "it brought all of it after all");
    let again = |(at, id, message): &&(Time, CarrierId, _)| {
        let bytes: Option<&Piece> = Message::payload(message);
        *id == play.carriers[0] && *at > returned && bytes.is_some()
    };
    assert!(play.world.sent.iter().filter(again).count() > 80);
    // The application received each byte once; the copies were counted.
    assert_eq!(play.world.counters(CLIENT).repeated, after.spurious);
}

#[test]
fn a_path_that_stalls_again_and_again_costs_no_more_than_a_twentieth() {
    let mut world = World::with(|config| config.reinjection = 30_000);
    let flaky = world.attach(0, link(8_000, 50));
    world.attach(1, link(8_000, 70));
    world.open(0, 100, 60_000_000);
    for _ in 0..40 {
        world.run_for(Span::from_millis(300));
        world.set_silent(flaky, true);
        world.run_for(Span::from_millis(200));
        world.set_silent(flaky, false);
    }
    let counters = world.counters(GATEWAY);
    let most = 30_000 + counters.sent / 20 + 16_384;
    assert!((100_000..=most).contains(&counters.reinjected), "{counters:?}");
}

#[test]
fn a_path_that_failed_and_says_nothing_is_not_used_again() {
    let mut play = Play::begin(treat(Kind::MinRtt));
    play.world.set_silent(play.carriers[0], true);
    play.on(300);
    play.world.sent.clear();
    play.on(20_000);
    // The stalled path seems better: its queue is empty and its RTT unchanged.
    assert!(play.world.sent.iter().all(|(_, id, _)| *id == play.carriers[1]));
}

#[test]
fn with_every_path_suspect_the_first_that_lives_goes_on() {
    for returns in 0..2 {
        let mut play = Play::begin(treat(Kind::BufferAware));
        for id in play.carriers {
            play.world.set_silent(id, true);
        }
        play.on(2_000);
        play.world.set_silent(play.carriers[returns], false);
        let back = play.world.now;
        play.on(500);
        let stream = &play.world.applications[CLIENT][&play.stream];
        let first = stream.arrivals.iter().find(|(at, _)| *at >= back).unwrap().0;
        assert!(first.since(back) < Span::from_millis(100), "{:?}", first.since(back));
        play.stall();
    }
}

#[test]
fn single_fails_over_and_comes_back_to_its_primary() {
    let primary = Treatment { primary: Some(PathId(1)), ..treat(Kind::Single) };
    let mut play = Play::begin(primary);
    let used = |play: &mut Play| {
        play.world.traffic.clear();
        play.on(1_000);
        let traffic = |path| play.world.traffic.get(&PathId(path)).copied().unwrap_or_default();
        (traffic(0) > 100_000, traffic(1) > 100_000)
    };
    assert_eq!(used(&mut play), (false, true));
    play.world.detach(play.carriers[1], 0);
    assert_eq!(used(&mut play), (true, false));
    play.world.attach(1, link(9_185, 70));
    assert_eq!(used(&mut play), (false, true));
    play.stall();
}

#[test]
fn a_bulk_transfer_survives_that_a_fast_path_stalls_with_much_on_its_way() {
    let mut world = World::new();
    let fast = world.attach(0, link(100_000, 100));
    world.attach(1, link(20_000, 70));
    let stream = world.open(0, 100, 100_000_000);
    world.run_for(Span::from_secs(2));
    world.set_silent(fast, true);
    world.run_for(Span::from_secs(5));
    let stall = world.longest_stall(CLIENT, stream).as_millis_f64();
    // 1.2 MB were in flight; the other path delivers them within 0.5 s.
    assert!(stall < 1_000.0, "{stall} ms");
}
