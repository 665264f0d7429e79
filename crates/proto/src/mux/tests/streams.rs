//! Isolation of streams, and their start and end.

use manyways_unit::{Rate, Span, Time};

use super::simulation::{CLIENT, GATEWAY, Piece, Simulation, link};
use super::violations::{ScriptedEndpoint, destination, open};
use crate::mux::{CarrierId, Config, Input, Message, Output, ResetCode, Role, Stream, StreamId};
use crate::sched::{PathId, PathSet, SchedulerKind, StreamPolicy};

const LINKS: [(u64, u64); 2] = [(8_000, 50), (8_000, 70)];

fn treat(scheduler: SchedulerKind) -> StreamPolicy {
    StreamPolicy { scheduler, ..StreamPolicy::default() }
}

fn only(path: u8) -> StreamPolicy {
    StreamPolicy { paths: PathSet::NONE.with(PathId(path)), ..StreamPolicy::default() }
}

fn simulation() -> (Simulation, [CarrierId; 2]) {
    let mut simulation = Simulation::new();
    let carriers = [0, 1].map(|at| simulation.attach(at as u8, link(LINKS[at].0, LINKS[at].1)));
    (simulation, carriers)
}

/// The carriers that sent bytes of a stream, in order.
fn carriers_of(simulation: &Simulation, stream: StreamId) -> Vec<CarrierId> {
    let data = simulation.sent.iter().filter(|(_, _, message)| match message {
        Message::Data { data, .. } => data.source == (stream, Role::Gateway),
        _ => false,
    });
    data.map(|(_, id, _)| *id).collect()
}

#[test]
fn round_robin_takes_turns() {
    let (mut simulation, carriers) = simulation();
    simulation.label(0, treat(SchedulerKind::RoundRobin));
    let stream = simulation.open_quiet(0);
    simulation.run_for(Span::from_millis(500));
    for _ in 0..10 {
        simulation.feed(GATEWAY, stream, 1_000);
        simulation.run_for(Span::from_millis(100));
    }
    let used = carriers_of(&simulation, stream);
    let first = carriers.iter().position(|id| *id == used[0]).unwrap();
    let turns = (0..used.len()).map(|turn| carriers[(first + turn) % 2]);
    assert_eq!(used, turns.collect::<Vec<CarrierId>>());
}

#[test]
fn minrtt_overflows_to_the_slower_path() {
    let (mut simulation, carriers) = simulation();
    simulation.label(0, treat(SchedulerKind::MinRtt));
    let stream = simulation.open(0, 100, 100_000);
    simulation.run_for(Span::from_secs(1));
    let used = carriers_of(&simulation, stream);
    // 16 KiB and one message exceed the kernel's buffer of one path.
    assert_eq!(used[..4], [carriers[0]; 4]);
    assert!(used.contains(&carriers[1]));
}

#[test]
fn a_reader_that_reads_nothing_keeps_no_other_waiting() {
    let (mut simulation, _) = simulation();
    let stuck = simulation.open(0, 100, 50_000_000);
    simulation.applications[CLIENT]
        .entry(stuck)
        .and_modify(|application| application.consumes = false);
    simulation.run_for(Span::from_secs(5));
    assert_eq!(simulation.endpoints[CLIENT].unconsumed_bytes(), 1 << 20, "all that its stream may");
    let begin = simulation.now;
    let quick = simulation.open(0, 100, 1_000);
    let bulk = simulation.open(0, 100, 3_000_000);
    simulation.run_for(Span::from_secs(5));
    let took = |stream| simulation.done_at(stream).unwrap().since(begin).as_millis_f64();
    assert!(took(quick) < 60.0, "{}", took(quick));
    // 16 Mbit/s deliver the data in 1.5 s.
    assert!(took(bulk) < 1_650.0, "{}", took(bulk));
    // The stream continues when its reader does.
    simulation.applications[CLIENT]
        .entry(stuck)
        .and_modify(|application| application.consumes = true);
    simulation.consume(CLIENT, stuck);
    simulation.run_for(Span::from_secs(30));
    assert!(simulation.done_at(stuck).is_some());
}

#[test]
fn many_streams_that_cannot_go_keep_no_other_waiting() {
    let (mut simulation, carriers) = simulation();
    simulation.label(1, only(1));
    simulation.set_silent(carriers[1], true);
    let stuck: Vec<StreamId> = (0..300).map(|_| simulation.open(1, 1_000, 1_000)).collect();
    simulation.run_for(Span::from_secs(1));
    let begin = simulation.now;
    let stream = simulation.open(0, 100, 1_000);
    simulation.run_for(Span::from_secs(1));
    let took = simulation.done_at(stream).expect("it ends").since(begin).as_millis_f64();
    assert!(took < 60.0, "{took} ms");
    // Nor with resets of all these streams that wait for a removed path.
    simulation.detach(carriers[1], 0);
    for stream in &stuck {
        simulation.reset(CLIENT, *stream);
    }
    let stream = simulation.open(0, 100, 1_000);
    let begin = simulation.now;
    simulation.run_for(Span::from_secs(1));
    assert!(simulation.done_at(stream).unwrap().since(begin) < Span::from_millis(60));
    simulation.attach(1, link(8_000, 70));
    simulation.run_for(Span::from_secs(1));
    assert!(
        simulation.endpoints.iter().all(|end| end.stream_count() == 0),
        "{}",
        simulation.debug_state()
    );
}

#[test]
fn a_treatment_that_spares_a_path_leaves_it_without_a_byte() {
    for spared in 0..2 {
        // The credit must be granted many times, also while the path is full.
        let mut simulation = Simulation::with(|config| config.credit = 300_000);
        for (path, (kbps, rtt)) in (0..).zip(LINKS) {
            simulation.attach(path, link(kbps, rtt));
        }
        simulation.label(3, only(1 - spared));
        simulation.run_for(Span::from_millis(100));
        let streams = [simulation.open(3, 3_000_000, 10), simulation.open(3, 300, 30_000_000)];
        for number in 0..50 {
            simulation.datagram(CLIENT, 1, 3, number, 100);
            simulation.run_for(Span::from_millis(20));
            simulation.datagram(GATEWAY, 1, 3, number, 100);
        }
        simulation.run_for(Span::from_secs(20));
        simulation.reset(CLIENT, streams[1]);
        let flow = crate::mux::FlowId(1);
        simulation.endpoints[CLIENT].handle(simulation.now, Input::CloseFlow { flow });
        simulation.run_for(Span::from_secs(2));
        assert_eq!(simulation.datagrams.each_ref().map(Vec::len), [50, 50]);
        assert!(simulation.done_at(streams[0]).is_some());
        assert!(simulation.endpoints.iter().all(|end| end.stream_count() == 0));
        assert_eq!(simulation.traffic.get(&PathId(spared)), None);
    }
}

#[test]
fn a_notice_goes_the_way_that_its_stream_may_go_by_then() {
    let (mut simulation, carriers) = simulation();
    simulation.label(1, only(1));
    let stream = simulation.open(1, 1_000, 10_000_000);
    simulation.run_for(Span::from_millis(500));
    simulation.detach(carriers[1], 0);
    // The stream waits for a removed path.
    simulation.reset(CLIENT, stream);
    simulation.run_for(Span::from_millis(500));
    assert!(simulation.endpoints[GATEWAY].stream_policy(stream).is_some());
    simulation.endpoints[CLIENT].handle(simulation.now, Input::Assign { stream, label: 0 });
    simulation.run_for(Span::from_millis(500));
    assert!(
        simulation.endpoints.iter().all(|end| end.stream_count() == 0),
        "{}",
        simulation.debug_state()
    );
}

#[test]
fn what_is_to_be_said_many_times_is_said_once() {
    let (mut simulation, carriers) = simulation();
    simulation.run_for(Span::from_millis(500));
    for id in carriers {
        simulation.endpoints[CLIENT]
            .handle(simulation.now, Input::Writable { carrier: id, bytes: 0 });
    }
    for priority in 0..100 {
        simulation.label(7, StreamPolicy { priority, ..StreamPolicy::default() });
    }
    simulation.run_for(Span::from_millis(500));
    let told = simulation.sent.iter().filter_map(|(_, _, message)| match message {
        Message::Relabel(label) => Some((label.version, label.stream_policy.priority)),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<(u64, u8)>>(), [(100, 99)]);
}

#[test]
fn the_more_urgent_stream_goes_first() {
    let (mut simulation, _) = simulation();
    simulation.label(1, StreamPolicy { priority: 2, ..StreamPolicy::default() });
    let bulk = simulation.open(0, 100, 20_000_000);
    simulation.run_for(Span::from_secs(2));
    let begin = simulation.now;
    let urgent = simulation.open(1, 100, 2_000_000);
    simulation.run_for(Span::from_secs(2));
    // Alone, the transfer would take a second and an RTT.
    let took = simulation.done_at(urgent).unwrap().since(begin).as_millis_f64();
    assert!(took < 1_150.0, "{took} ms");
    // A stream, or its label, gets a higher priority while the stream waits among others.
    for assign in [true, false] {
        let label = if assign { 0 } else { 2 };
        let (begin, streams) =
            (simulation.now, [0; 20].map(|_| simulation.open(label, 100, 1_000_000)));
        simulation.run_for(Span::from_millis(100));
        if assign {
            let input = Input::Assign { stream: streams[19], label: 1 };
            simulation.endpoints[CLIENT].handle(simulation.now, input);
        } else {
            simulation.label(2, StreamPolicy { priority: 2, ..StreamPolicy::default() });
        }
        simulation.run_for(Span::from_secs(if assign { 1 } else { 11 }));
        assert!(simulation.done_at(streams[19]).is_some_and(|at| at > begin), "{assign}");
        let others = streams[..19].iter().filter(|id| simulation.done_at(**id).is_some()).count();
        assert_eq!(others, if assign { 0 } else { 19 });
        for stream in &streams {
            simulation.reset(CLIENT, *stream);
        }
    }
    assert!(simulation.done_at(bulk).is_none());
}

#[test]
fn a_scheduler_is_switched_in_mid_stream() {
    let (mut simulation, carriers) = simulation();
    let stream = simulation.open(0, 100, 30_000_000);
    for kind in SchedulerKind::ALL.into_iter().chain(SchedulerKind::ALL.into_iter().rev()) {
        simulation.label(0, treat(kind));
        simulation.run_for(Span::from_millis(700));
        assert_eq!(simulation.applications[CLIENT][&stream].end, None);
    }
    simulation.label(0, only(1));
    simulation.run_for(Span::from_millis(100));
    let from = simulation.sent.len();
    simulation.run_for(Span::from_millis(500));
    let other = |(_, id, message): &&(Time, CarrierId, Message<Piece>)| {
        *id == carriers[0] && message.payload().is_some()
    };
    assert_eq!(simulation.sent[from..].iter().filter(other).count(), 0);
    simulation.label(0, treat(SchedulerKind::BufferAware));
    simulation.run_for(Span::from_secs(20));
    assert!(simulation.done_at(stream).is_some());
    assert!(simulation.endpoints.iter().all(|end| end.stream_count() == 0));
}

#[test]
fn the_first_bytes_come_with_the_question_where_to_after_half_a_round_trip() {
    let (mut simulation, _) = simulation();
    simulation.run_for(Span::from_millis(500));
    let begin = simulation.now;
    let stream = simulation.open(0, 1_000, 10);
    simulation.run_for(Span::from_millis(100));
    let (at, bytes) = simulation.applications[GATEWAY][&stream].arrivals[0];
    assert_eq!(bytes, 1_000);
    // 25 ms, and one for the bytes.
    assert!(at.since(begin) < Span::from_millis(27), "{:?}", at.since(begin));
}

#[test]
fn bytes_that_overtake_the_question_where_to_wait_for_it() {
    let (mut simulation, carriers) = simulation();
    simulation.label(0, treat(SchedulerKind::RoundRobin));
    simulation.set_rtt(carriers[0], Span::from_millis(400));
    simulation.set_rtt(carriers[1], Span::from_millis(20));
    let stream = simulation.open(0, 40_000, 10);
    simulation.run_for(Span::from_millis(100));
    assert_eq!(simulation.applications[GATEWAY][&stream].received, 0);
    assert!(simulation.endpoints[GATEWAY].unconsumed_bytes() > 0);
    simulation.run_for(Span::from_millis(400));
    assert_eq!(simulation.applications[GATEWAY][&stream].received, 40_000);
}

#[test]
fn a_half_closed_stream_goes_on_in_the_other_direction() {
    for (end, peer) in [(CLIENT, GATEWAY), (GATEWAY, CLIENT)] {
        let (mut simulation, _) = simulation();
        let stream = simulation.open_quiet(0);
        simulation.run_for(Span::from_millis(200));
        simulation.endpoints[end].handle(simulation.now, Input::Finish { stream });
        simulation.run_for(Span::from_millis(200));
        assert_eq!(simulation.applications[peer][&stream].end, Some(Ok(())));
        for _ in 0..20 {
            simulation.feed(peer, stream, 50_000);
            simulation.run_for(Span::from_millis(100));
        }
        assert_eq!(simulation.applications[end][&stream].received, 1_000_001);
        assert_eq!(simulation.applications[end][&stream].end, None);
        simulation.endpoints[peer].handle(simulation.now, Input::Finish { stream });
        simulation.run_for(Span::from_millis(200));
        assert_eq!(simulation.applications[end][&stream].end, Some(Ok(())));
        assert!(simulation.applications.iter().all(|applications| applications[&stream].closed));
    }
}

#[test]
fn the_reason_of_a_reset_arrives() {
    use ResetCode::*;
    for code in
        [Aborted, Refused, Unreachable, Timeout, NameNotFound, Forbidden, Limit, SessionEnded]
    {
        let (mut simulation, _) = simulation();
        let stream = simulation.open(0, 10_000, 10_000_000);
        simulation.run_for(Span::from_millis(200));
        simulation.endpoints[GATEWAY].handle(simulation.now, Input::Reset { stream, code });
        simulation.applications[GATEWAY].entry(stream).and_modify(|app| app.end = Some(Err(code)));
        simulation.run_for(Span::from_secs(1));
        assert_eq!(simulation.applications[CLIENT][&stream].end, Some(Err(code)));
        assert!(simulation.applications.iter().all(|applications| applications[&stream].closed));
        assert!(simulation.endpoints.iter().all(|end| end.unconsumed_bytes() == 0));
    }
}

#[test]
fn a_connection_is_confirmed_once_if_the_client_asks() {
    let confirmed = |faced: &mut ScriptedEndpoint| {
        let outputs = std::mem::take(&mut faced.outputs);
        let is_confirmation = |output: &&Output<Piece>| {
            matches!(
                output,
                Output::Opened { .. } | Output::Send { message: Message::Opened { .. }, .. }
            )
        };
        outputs.iter().filter(is_confirmation).count()
    };
    let stream = StreamId(0);
    let asks = |confirm: bool| match open(0, 10) {
        Message::Open { stream, label, destination, data, .. } => {
            Message::Open { stream, label, destination, confirm, data }
        }
        _ => unreachable!("a request"),
    };
    for confirm in [false, true] {
        let mut gateway = ScriptedEndpoint::new(Role::Gateway, |_| {});
        gateway.receive(asks(confirm));
        assert_eq!(confirmed(&mut gateway), 0, "it is not connected yet");
        gateway.handle(Input::Opened { stream });
        assert_eq!(confirmed(&mut gateway), usize::from(confirm));
        // The carrier is lost with the message.
        gateway.handle(Input::Detach { carrier: CarrierId(0) });
        gateway.attach(CarrierId(1), 0);
        gateway.handle(Input::Finish { stream });
        assert_eq!(confirmed(&mut gateway), usize::from(confirm));
        let mut gateway = ScriptedEndpoint::new(Role::Gateway, |_| {});
        gateway.receive(asks(confirm));
        gateway.handle(Input::Reset { stream, code: ResetCode::Refused });
        gateway.handle(Input::Opened { stream });
        assert_eq!(confirmed(&mut gateway), 0);
        let mut client = ScriptedEndpoint::new(Role::Client, |_| {});
        let destination = destination();
        client.handle(Input::Open { stream, label: 0, destination, confirm });
        for expected in [usize::from(confirm), 0] {
            client.receive(Message::Opened { stream });
            assert_eq!(confirmed(&mut client), expected);
            assert_eq!(client.violations(), Vec::<&str>::new());
        }
    }
}

#[test]
fn the_last_label_that_a_stream_was_given_holds_whatever_arrives_first() {
    // The `Open` message has offset 0, and arrives last, first, or twice.
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2], [2, 0, 1], [0, 2, 1]] {
        for again in [false, true] {
            let mut gateway = ScriptedEndpoint::new(Role::Gateway, |_| {});
            let (stream, said) = (StreamId(0), [open(0, 10), assign(7, 1), assign(5, 2)]);
            for index in order {
                gateway.receive(said[index].clone());
            }
            if again {
                gateway.receive(open(0, 10));
                gateway.receive(assign(7, 1));
            }
            assert_eq!(gateway.mux.streams[&stream].label, 5, "{order:?}");
            assert_eq!(gateway.violations(), Vec::<&str>::new());
        }
    }
    let (mut simulation, _) = simulation();
    let stream = simulation.open_quiet(0);
    simulation.run_for(Span::from_millis(100));
    for label in [1, 2, 3] {
        simulation.endpoints[CLIENT].handle(simulation.now, Input::Assign { stream, label });
        simulation.run_for(Span::from_millis(1));
    }
    simulation.run_for(Span::from_millis(100));
    let said = simulation.sent.iter().filter_map(|(_, _, message)| match message {
        Message::Assign { label, revision, .. } => Some((*label, *revision)),
        _ => None,
    });
    assert_eq!(said.collect::<Vec<(u8, u32)>>(), [(1, 1), (2, 2), (3, 3)]);
    assert_eq!(simulation.endpoints[GATEWAY].streams[&stream].label, 3);
}

fn assign(label: u8, revision: u32) -> Message<Piece> {
    Message::Assign { stream: StreamId(0), label, revision }
}

#[test]
fn an_idle_stream_is_small() {
    let size = size_of::<Stream<Piece>>() + size_of::<StreamId>();
    // A table is up to half empty.
    assert!(size * 2 < 1_024, "{size} bytes");
    let mut simulation = Simulation::new();
    simulation.attach(0, link(100_000, 20));
    let config = Config::new(Role::Gateway);
    assert!(config.streams >= 20_000);
    let streams: Vec<StreamId> = (0..200).map(|_| simulation.open_quiet(0)).collect();
    simulation.run_for(Span::from_secs(5));
    for end in &simulation.endpoints {
        for id in &streams {
            let stream = &end.streams[id];
            assert_eq!((stream.send.unacked_bytes(), stream.receive.unconsumed_bytes()), (0, 0));
            assert_eq!((stream.copies.capacity(), stream.queue_key), (0, None));
        }
        assert!(end.control_keys.is_empty() && end.ready.is_empty() && end.blocked.is_empty());
        assert!(end.carriers.iter().all(|carrier| carrier.sent.is_empty()));
    }
}

#[test]
fn readers_that_were_fast_and_pause_leave_credit_for_others() {
    let mut simulation = Simulation::new();
    simulation.attach(0, link(1_000_000, 40));
    let mut paused = Vec::new();
    // For example videos: each fills its buffer at full rate, and its player then pauses.
    for _ in 0..8 {
        let stream = simulation.open(0, 100, 400_000_000);
        simulation.run_for(Span::from_millis(600));
        simulation.applications[CLIENT].get_mut(&stream).unwrap().consumes = false;
        simulation.run_for(Span::from_millis(300));
        paused.push(stream);
    }
    let page = simulation.open(0, 100, 100_000);
    simulation.run_for(Span::from_secs(2));
    assert!(
        simulation.done_at(page).is_some(),
        "the others hold all: {}",
        simulation.debug_state()
    );
}

/// More streams than could each have the window of a single one.
#[test]
fn readers_that_were_fast_and_pause_together_leave_credit_for_others() {
    let mut simulation = Simulation::new();
    simulation.attach(0, link(4_000_000, 40));
    let all: Vec<StreamId> = (0..60).map(|_| simulation.open(0, 100, 400_000_000)).collect();
    simulation.run_for(Span::from_millis(600));
    for stream in &all {
        simulation.applications[CLIENT].get_mut(stream).unwrap().consumes = false;
    }
    simulation.run_for(Span::from_secs(2));
    let page = simulation.open(0, 100, 3_000_000);
    let begin = simulation.now;
    simulation.run_for(Span::from_secs(2));
    let took = simulation.done_at(page).expect("the others do not hold all").since(begin);
    // 1 MB per RTT.
    assert!(took < Span::from_millis(300), "{} ms", took.as_millis_f64());
    // Their held bytes are all leases, which become free when the streams end.
    for stream in all {
        simulation.reset(CLIENT, stream);
    }
    simulation.run_for(Span::from_secs(2));
    assert_eq!(
        (simulation.endpoints[CLIENT].unconsumed_bytes(), simulation.endpoints[CLIENT].leased),
        (0, 0)
    );
}

/// Otherwise streams that are filled slowly could get more credit together than the session has.
#[test]
fn a_grant_counts_as_long_as_the_stream_is_in_use() {
    let mut simulation = Simulation::new();
    let carrier = simulation.attach(0, link(1_000_000, 40));
    let stream = simulation.open_quiet(0);
    simulation.feed(GATEWAY, stream, 20_000_000);
    simulation.run_for(Span::from_secs(3));
    // Bytes come slowly, and the application pauses.
    simulation.set_rate(carrier, Rate::from_kbps(100));
    simulation.feed(GATEWAY, stream, 20_000_000);
    simulation.run_for(Span::from_secs(2));
    simulation.applications[CLIENT].get_mut(&stream).unwrap().consumes = false;
    for _ in 0..3 {
        let client = &simulation.endpoints[CLIENT];
        assert!(client.unconsumed_bytes() < 200_000, "{}", client.unconsumed_bytes());
        assert!(client.leased > 4 << 20, "{}", client.leased);
        simulation.run_for(Span::from_secs(3));
    }
}

#[test]
fn connections_that_are_idle_keep_nothing_from_others() {
    let mut simulation = Simulation::new();
    simulation.attach(0, link(1_000_000, 40));
    let idle: Vec<StreamId> = (0..16).map(|_| simulation.open_quiet(0)).collect();
    for stream in &idle {
        simulation.feed(GATEWAY, *stream, 20_000_000);
        simulation.run_for(Span::from_millis(300));
    }
    assert!(simulation.endpoints[CLIENT].streams[&idle[0]].receive.granted() > Some(24_000_000));
    simulation.run_for(Span::from_secs(1));
    let begin = simulation.now;
    let bulk = simulation.open(0, 100, 50_000_000);
    simulation.run_for(Span::from_secs(2));
    let took = simulation.done_at(bulk).unwrap().since(begin);
    assert!(took < Span::from_millis(500), "{} ms", took.as_millis_f64());
}

#[test]
fn copies_of_a_closed_stream_count_as_received() {
    let mut simulation = Simulation::new();
    simulation.label(0, treat(SchedulerKind::Redundant));
    simulation.attach(0, link(8_000, 10));
    simulation.attach(1, link(8_000, 1_000));
    simulation.open(0, 300, 0);
    simulation.run_for(Span::from_secs(5));
    let counters = simulation.counters(GATEWAY);
    assert_eq!((counters.received, counters.duplicate), (600, 300));
}
