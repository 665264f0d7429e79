//! Datagrams on links with delay, loss and limited rate.

use manyways_unit::{Span, Time};

use super::simulation::{CLIENT, GATEWAY, Link, Piece, Simulation, link};
use crate::mux::{
    CarrierId, Config, Destination, FlowId, Input, Message, Mux, Output, Role, StreamId,
    TransportInfo,
};
use crate::sched::{PathId, SchedulerKind, StreamPolicy};

fn simulation(scheduler: SchedulerKind, links: &[(u64, u64)]) -> (Simulation, Vec<CarrierId>) {
    let mut simulation = Simulation::new();
    simulation.label(1, StreamPolicy { scheduler, ..StreamPolicy::default() });
    let ids = links.iter().enumerate();
    let ids =
        ids.map(|(path, (kbps, rtt))| simulation.attach(path as u8, link(*kbps, *rtt))).collect();
    simulation.run_for(Span::from_millis(500));
    (simulation, ids)
}

/// The numbers of the datagrams that an endpoint received, in order.
fn received_numbers(simulation: &Simulation, end: usize) -> Vec<u64> {
    simulation.datagrams[end].iter().map(|(_, _, piece)| piece.at >> 20).collect()
}

/// The received datagrams of one flow.
fn received_of_flow(simulation: &Simulation, end: usize, flow: u32) -> Vec<u64> {
    let of_flow = simulation.datagrams[end].iter().filter(|(_, id, _)| *id == FlowId(flow));
    of_flow.map(|(_, _, piece)| piece.at >> 20).collect()
}

/// A call: 200 bytes every 10 ms in both directions.
fn call(simulation: &mut Simulation, label: u8, numbers: std::ops::Range<u64>) {
    for number in numbers {
        simulation.datagram(CLIENT, 7, label, number, 200);
        simulation.datagram(GATEWAY, 7, label, number, 200);
        simulation.run_for(Span::from_millis(10));
    }
}

#[test]
fn a_call_is_never_reordered_and_takes_half_a_round_trip_and_little_more() {
    for scheduler in [SchedulerKind::Single, SchedulerKind::BufferAware, SchedulerKind::Ecf] {
        let (mut simulation, ids) = simulation(scheduler, &[(8_000, 50), (9_000, 70)]);
        let bulk = simulation.open(0, 300, 20_000_000);
        let begin = simulation.now;
        // The faster path changes.
        call(&mut simulation, 1, 0..100);
        simulation.set_rtt(ids[0], Span::from_millis(200));
        call(&mut simulation, 1, 100..200);
        simulation.set_rtt(ids[1], Span::from_millis(20));
        call(&mut simulation, 1, 200..300);
        simulation.run_for(Span::from_secs(1));
        for end in [CLIENT, GATEWAY] {
            assert_eq!(
                received_numbers(&simulation, end),
                (0..300).collect::<Vec<u64>>(),
                "{scheduler}"
            );
        }
        // Waits at most for the kernel's part of the download: 16 KiB and one message at 8 Mbit/s.
        for (at, _, piece) in simulation.datagrams[CLIENT].iter().take(100) {
            let sent = begin + Span::from_millis((piece.at >> 20) * 10);
            assert!(at.since(sent) < Span::from_millis(25 + 17 + 5), "{:?}", at.since(sent));
        }
        assert!(simulation.done_at(bulk).is_none(), "the download was there all the time");
    }
}

#[test]
fn a_call_goes_on_over_the_other_path_and_back_to_its_primary() {
    let (mut simulation, ids) = simulation(SchedulerKind::Single, &[(8_000, 50), (9_000, 70)]);
    let policy = StreamPolicy {
        scheduler: SchedulerKind::Single,
        primary: Some(PathId(0)),
        ..StreamPolicy::default()
    };
    simulation.label(1, policy);
    call(&mut simulation, 1, 0..50);
    simulation.detach(ids[0], 0);
    call(&mut simulation, 1, 50..100);
    simulation.attach(0, link(8_000, 50));
    call(&mut simulation, 1, 100..150);
    simulation.run_for(Span::from_millis(100));
    // Two or three packets in flight are lost.
    let came = received_numbers(&simulation, GATEWAY);
    assert!(came.len() >= 147 && came.is_sorted(), "{came:?}");
    let path = |range: std::ops::Range<u64>, carrier: CarrierId| {
        let of_range = |message: &Message<Piece>| match message {
            Message::Datagram { data, .. } => range.contains(&(data.at >> 20)),
            _ => false,
        };
        let sent = simulation.sent.iter().filter(|(_, _, message)| of_range(message));
        sent.filter(|(_, id, _)| *id == carrier).count()
    };
    assert_eq!((path(0..50, ids[0]), path(50..100, ids[1])), (100, 100));
    assert_eq!(path(100..150, CarrierId(2)), 100);
}

#[test]
fn what_waited_too_long_is_dropped_and_no_more_than_half_a_megabyte_waits() {
    let (mut simulation, ids) = simulation(SchedulerKind::Single, &[(1_000, 50)]);
    simulation.set_silent(ids[0], true);
    for number in 0..200 {
        simulation.datagram(CLIENT, 7, 1, number, 1_000);
    }
    // Seventeen datagrams fill the kernel's buffer.
    simulation.run_for(Span::from_millis(151));
    assert_eq!(simulation.counters(CLIENT).dropped, 200 - 17);
    simulation.set_silent(ids[0], false);
    simulation.datagram(CLIENT, 7, 1, 200, 1_000);
    simulation.run_for(Span::from_secs(1));
    assert_eq!(received_numbers(&simulation, GATEWAY), (0..17).chain([200]).collect::<Vec<u64>>());

    simulation.set_silent(ids[0], true);
    let before = simulation.counters(CLIENT).dropped;
    for number in 0..700 {
        simulation.datagram(CLIENT, 7, 1, 1_000 + number, 1_000);
    }
    let waiting = 700 - 17 - (simulation.counters(CLIENT).dropped - before);
    assert!((400..=524).contains(&waiting), "{waiting}");
}

#[test]
fn empty_datagrams_pass_and_do_not_pile_up() {
    let (mut simulation, ids) = simulation(SchedulerKind::Single, &[(1_000, 50)]);
    simulation.datagram(CLIENT, 7, 1, 0, 0);
    simulation.run_for(Span::from_millis(100));
    assert_eq!(received_numbers(&simulation, GATEWAY), [0]);
    simulation.set_silent(ids[0], true);
    for number in 1..8_000 {
        simulation.datagram(CLIENT, 7, 1, number, 0);
    }
    assert!(simulation.counters(CLIENT).dropped > 2_500);
}

#[test]
fn a_first_packet_of_quic_passes_where_a_carrier_takes_1100_bytes() {
    let (mut simulation, ids) = simulation(SchedulerKind::BufferAware, &[(8_000, 50)]);
    simulation.limit_datagrams(ids[0], 1_100);
    simulation.run_for(Span::from_millis(10));
    for number in 0..20 {
        simulation.datagram(CLIENT, 7, 1, number, 1_200);
    }
    // With long fields.
    for (number, len) in [(0, 1_000), (1, 1_700)] {
        let data = Piece { source: (StreamId(8), Role::Client), at: number << 20, len };
        let (flow, peer) = (FlowId(u32::MAX), Destination::Name("a".repeat(200), 443));
        let input = Input::Datagram { flow, label: 1, peer, data };
        simulation.endpoints[CLIENT].handle(simulation.now, input);
    }
    simulation.run_for(Span::from_millis(200));
    assert_eq!(simulation.counters(CLIENT).dropped, 0);
    assert_eq!(received_of_flow(&simulation, GATEWAY, 7), (0..20).collect::<Vec<u64>>());
    assert_eq!(received_of_flow(&simulation, GATEWAY, u32::MAX), [0, 1]);
    let of_first = simulation.datagrams[GATEWAY].iter().filter(|(_, flow, _)| *flow == FlowId(7));
    assert!(of_first.clone().all(|(_, _, piece)| piece.len == 1_200));
}

#[test]
fn parts_that_come_mixed_with_others_are_joined() {
    // Round robin over two paths: the parts of two datagrams interleave.
    for scheduler in [SchedulerKind::RoundRobin, SchedulerKind::Redundant] {
        let (mut simulation, ids) = simulation(scheduler, &[(500, 50), (500, 50)]);
        for id in ids {
            simulation.limit_datagrams(id, 1_100);
        }
        simulation.run_for(Span::from_millis(10));
        for number in 0..6 {
            simulation.datagram(CLIENT, 7, 1, number, 1_200);
        }
        simulation.run_for(Span::from_millis(400));
        let mut came = received_numbers(&simulation, GATEWAY);
        came.sort_unstable();
        assert_eq!(came, [0, 1, 2, 3, 4, 5], "{scheduler}");
    }
}

#[test]
fn the_longest_datagram_passes_over_each_carrier() {
    for (limit, parts) in [(None, 4), (Some(1_200), 57)] {
        let (mut simulation, ids) = simulation(SchedulerKind::Single, &[(100_000, 20)]);
        if let Some(limit) = limit {
            simulation.limit_datagrams(ids[0], limit);
        }
        simulation.run_for(Span::from_millis(10));
        for (number, len) in [(0, 65_507), (1, 100), (2, 65_508)] {
            simulation.datagram(CLIENT, 7, 1, number, len);
        }
        simulation.run_for(Span::from_millis(200));
        let mut came = received_numbers(&simulation, GATEWAY);
        came.sort_unstable();
        assert_eq!((came, simulation.counters(CLIENT).dropped), (vec![0, 1], 1), "{parts} parts");
    }
}

#[test]
fn a_redundant_datagram_comes_once_and_as_soon_as_the_first_copy() {
    let (mut simulation, ids) = simulation(SchedulerKind::Redundant, &[(8_000, 150), (8_000, 70)]);
    let begin = simulation.now;
    for number in 0..100 {
        simulation.datagram(CLIENT, 7, 1, number, 200);
        simulation.run_for(Span::from_millis(10));
        if number == 49 {
            simulation.set_silent(ids[1], true);
        }
    }
    simulation.run_for(Span::from_secs(1));
    assert_eq!(received_numbers(&simulation, GATEWAY).len(), 100);
    for (at, _, piece) in &simulation.datagrams[GATEWAY] {
        let number = piece.at >> 20;
        let path = if number < 46 { 35 } else { 75 };
        let took = at.since(begin + Span::from_millis(number * 10));
        assert!(took < Span::from_millis(path + 2), "{number}: {took:?}");
    }
}

#[test]
fn streams_without_credit_do_not_hold_datagrams_up() {
    let mut simulation = Simulation::with(|config| {
        config.credit = 50_000;
        config.stream_credit = 50_000;
    });
    simulation.attach(0, link(8_000, 50));
    for _ in 0..3 {
        let stream = simulation.open(0, 100_000, 10);
        simulation.applications[GATEWAY].entry(stream).and_modify(|app| app.consumes = false);
    }
    simulation.run_for(Span::from_secs(1));
    assert_eq!(simulation.endpoints[GATEWAY].unconsumed_bytes(), 50_000);
    let begin = simulation.now;
    simulation.datagram(CLIENT, 7, 0, 0, 200);
    simulation.run_for(Span::from_secs(1));
    assert_eq!(received_numbers(&simulation, GATEWAY), [0]);
    assert!(simulation.datagrams[GATEWAY][0].0.since(begin) < Span::from_millis(26));
}

#[test]
fn an_answer_whose_treatment_is_not_known_takes_the_path_of_the_question() {
    let (mut simulation, ids) = simulation(SchedulerKind::Single, &[(8_000, 20), (8_000, 70)]);
    let only = StreamPolicy { paths: [PathId(1)].into_iter().collect(), ..StreamPolicy::default() };
    simulation.label(2, only);
    simulation.set_silent(ids[1], false);
    simulation.datagram(CLIENT, 7, 2, 0, 100);
    simulation.run_for(Span::from_millis(36));
    simulation.datagram(GATEWAY, 7, 9, 0, 100);
    simulation.run_for(Span::from_millis(100));
    let carriers: Vec<CarrierId> = simulation
        .sent
        .iter()
        .filter(|(_, _, message)| matches!(message, Message::Datagram { .. }))
        .map(|(_, id, _)| *id)
        .collect();
    assert_eq!(carriers, [ids[1], ids[1]]);
}

#[test]
fn a_flow_that_ends_is_told_once_and_only_to_a_peer_that_knows_it() {
    let (mut simulation, ids) = simulation(SchedulerKind::Single, &[(8_000, 50)]);
    simulation.datagram(CLIENT, 7, 1, 0, 100);
    simulation.run_for(Span::from_millis(100));
    simulation.set_silent(ids[0], true);
    simulation.sent.clear();
    for flow in [7, 7, 8] {
        simulation.endpoints[CLIENT]
            .handle(simulation.now, Input::CloseFlow { flow: FlowId(flow) });
    }
    simulation.set_silent(ids[0], false);
    simulation.run_for(Span::from_millis(100));
    let closed = |message: &Message<Piece>| matches!(message, Message::CloseFlow { .. });
    assert_eq!(simulation.sent.iter().filter(|(_, _, message)| closed(message)).count(), 1);
    assert!(simulation.now > Time::ZERO);
}

/// Bytes of `stream` and of flow 9, and the maximum delay of a call. All three share a path of 8
/// Mbit/s for 4 s, and flow 9 sends twice that rate.
fn shared(of_stream: u8, of_flow: u8) -> (u64, u64, Span) {
    let (mut simulation, _) = simulation(SchedulerKind::BufferAware, &[(8_000, 50)]);
    let policy = |priority| StreamPolicy { priority, ..StreamPolicy::default() };
    for (label, priority) in [(1, of_stream.max(of_flow)), (2, of_stream), (3, of_flow)] {
        simulation.label(label, policy(priority));
    }
    let stream = simulation.open(2, 300, 20_000_000);
    // The client opens the flows.
    simulation.datagram(CLIENT, 9, 3, 0, 100);
    simulation.datagram(CLIENT, 7, 1, 0, 100);
    simulation.run_for(Span::from_millis(500));
    let (begin, before) = (simulation.now, simulation.applications[CLIENT][&stream].received);
    for step in 0..400 {
        for packet in 0..20 {
            simulation.datagram(GATEWAY, 9, 3, step * 20 + packet, 1_000);
        }
        simulation.datagram(GATEWAY, 7, 1, step, 200);
        simulation.run_for(Span::from_millis(10));
    }
    let flow = received_of_flow(&simulation, CLIENT, 9);
    assert!(flow.is_sorted());
    // Except the datagrams in flight.
    assert!(received_of_flow(&simulation, CLIENT, 7).len() >= 395, "none is dropped");
    let calls = simulation.datagrams[CLIENT].iter().filter(|(_, flow, _)| *flow == FlowId(7));
    let late =
        calls.map(|(at, _, piece)| at.since(begin + Span::from_millis((piece.at >> 20) * 10)));
    let received = simulation.applications[CLIENT][&stream].received - before;
    (received, flow.len() as u64 * 1_000, late.max().unwrap())
}

#[test]
fn a_flow_that_fills_the_queue_takes_half_and_leaves_calls_in_peace() {
    let (stream, flow, late) = shared(1, 1);
    // 4 s at 1 MB/s, except the bytes of the call.
    assert!((1_750_000..2_100_000).contains(&stream), "{stream}");
    assert!((1_750_000..2_100_000).contains(&flow), "{flow}");
    // Half an RTT, the kernel's buffer, and one message.
    assert!(late < Span::from_millis(25 + 17 + 5), "{late}");
}

#[test]
fn datagrams_and_streams_go_by_their_priority() {
    let (stream, flow, _) = shared(2, 1);
    assert!(stream > 3_700_000 && flow < 200_000, "{stream} {flow}");
    let (stream, flow, _) = shared(1, 2);
    assert!(stream < 200_000 && flow > 3_700_000, "{stream} {flow}");
}

/// Only the transport acknowledges datagrams.
#[test]
fn a_call_leaves_a_path_that_is_silent() {
    let schedulers = [SchedulerKind::Single, SchedulerKind::BufferAware];
    for (scheduler, mute) in schedulers.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let (mut simulation, ids) = simulation(scheduler, &[(8_000, 50), (9_000, 70)]);
        simulation.hides_in_flight = mute;
        call(&mut simulation, 1, 0..25);
        simulation.run_for(Span::from_secs(2));
        assert_eq!(simulation.suspects, [], "{scheduler}, {mute}: nothing is missed");
        call(&mut simulation, 1, 25..50);
        simulation.set_silent(ids[0], true);
        call(&mut simulation, 1, 50..150);
        simulation.run_for(Span::from_millis(200));
        for end in [CLIENT, GATEWAY] {
            let missed = 150 - received_numbers(&simulation, end).len();
            // 50 + 4·2 + 10 + 200 ms, and the age of the data in flight.
            assert!((20..=33).contains(&missed), "{scheduler}, {mute}: {missed} are missed");
        }
        assert_eq!(simulation.suspects.len(), 2, "both ends have their own call");
    }
}

#[test]
fn a_late_reply_does_not_open_a_closed_flow_again_at_the_client() {
    let (mut simulation, _) = simulation(SchedulerKind::Single, &[(8_000, 100)]);
    simulation.datagram(CLIENT, 7, 1, 0, 200);
    simulation.run_for(Span::from_secs(1));
    simulation.datagram(GATEWAY, 7, 1, 0, 200);
    let close = Input::CloseFlow { flow: FlowId(7) };
    simulation.endpoints[CLIENT].handle(simulation.now, close);
    simulation.run_for(Span::from_secs(1));
    assert_eq!(received_numbers(&simulation, CLIENT), []);
    assert_eq!(simulation.endpoints.each_ref().map(|end| end.datagrams.flow_count()), [0, 0]);
}

#[test]
fn a_part_of_a_datagram_does_not_open_a_flow() {
    let (mut simulation, ids) = simulation(SchedulerKind::Single, &[(8_000, 100)]);
    let part = |index: u8| Input::Message {
        carrier: ids[0],
        message: Message::Part {
            flow: FlowId(7),
            number: 0,
            index,
            count: 2,
            label: 1,
            peer: Destination::Address([192, 0, 2, 1].into(), 3_478),
            data: Piece {
                source: (StreamId(7), Role::Client),
                at: 500 * u64::from(index),
                len: 500,
            },
        },
    };
    simulation.endpoints[GATEWAY].handle(simulation.now, part(1));
    simulation.run_for(Span::from_secs(1));
    assert_eq!(simulation.endpoints[GATEWAY].datagrams.flow_count(), 0);
    simulation.endpoints[GATEWAY].handle(simulation.now, part(0));
    simulation.run_for(Span::from_secs(1));
    assert_eq!(received_numbers(&simulation, GATEWAY), [0]);
    assert_eq!(simulation.endpoints[GATEWAY].datagrams.flow_count(), 1);
}

/// Three paths with long queues: a call, 50 datagrams a second each way, begins beside a download.
/// Returns the received bytes of the download, and the delays of the call towards the client.
fn call_beside_download(hides_in_flight: bool) -> (u64, Vec<Span>) {
    let mut simulation = Simulation::new();
    simulation.hides_in_flight = hides_in_flight;
    simulation.label(1, StreamPolicy::default());
    for (path, (kbps, rtt)) in [(50_000, 16), (150_000, 44), (140_000, 56)].into_iter().enumerate()
    {
        let queue = Span::from_millis(150);
        simulation.attach(path as u8, Link { queue, ..link(kbps, rtt) });
    }
    simulation.run_for(Span::from_millis(500));
    let stream = simulation.open(1, 300, 1 << 30);
    simulation.run_for(Span::from_secs(1));
    let (begin, before) = (simulation.now, simulation.applications[CLIENT][&stream].received);
    for number in 0..300 {
        simulation.datagram(CLIENT, 7, 1, number, 1_000);
        simulation.datagram(GATEWAY, 7, 1, number, 1_000);
        simulation.run_for(Span::from_millis(20));
    }
    let received = simulation.applications[CLIENT][&stream].received - before;
    simulation.run_for(Span::from_secs(1));
    let numbers = received_numbers(&simulation, CLIENT);
    assert_eq!(numbers, (0..300).collect::<Vec<u64>>(), "none is lost or overtaken");
    let late = simulation.datagrams[CLIENT]
        .iter()
        .map(|(at, _, piece)| at.since(begin + Span::from_millis((piece.at >> 20) * 20)));
    (received, late.collect())
}

#[test]
fn a_download_leaves_a_call_the_fastest_path_without_a_queue() {
    let (received, late) = call_beside_download(false);
    let worst = late[50..].iter().max().unwrap();
    // Half of the shortest round trip, the target delay of 5 ms, and a message of 4 ms.
    assert!(*worst < Span::from_millis(8 + 5 + 4 + 3), "{worst}");
    // 6 s at 340 Mbit/s.
    assert!(received > 6 * 340 * 125_000 * 95 / 100, "{received}");
}

#[test]
fn a_transport_that_hides_its_bytes_in_flight_yields_too() {
    let (received, late) = call_beside_download(true);
    let worst = late[50..].iter().max().unwrap();
    // The acknowledgements of messages are up to 10 ms late, and come in bursts.
    assert!(*worst < Span::from_millis(8 + 5 + 4 + 13), "{worst}");
    assert!(received > 6 * 340 * 125_000 * 90 / 100, "{received}");
}

/// Two carriers, of which the second one becomes the faster one during a call: datagrams wait so
/// that they do not overtake others, and meanwhile no carrier accepts more.
#[test]
fn a_call_that_moves_while_no_carrier_accepts_more_does_not_keep_the_shell_busy() {
    let mut mux: Mux<Piece> = Mux::new(Config::new(Role::Client));
    let [slow, fast] = [0, 1].map(CarrierId);
    let mut now = Time::from_millis(1);
    let report = |mux: &mut Mux<Piece>, now, carrier, rtt, acknowledged| {
        let info = TransportInfo { acknowledged, ..TransportInfo::initial(Span::from_millis(rtt)) };
        mux.handle(now, Input::TransportInfo { carrier, transport_info: info });
    };
    for (carrier, rtt) in [(slow, 60), (fast, 100)] {
        let transport_info = TransportInfo::initial(Span::from_millis(rtt));
        let path = PathId(carrier.0 as u8);
        mux.handle(now, Input::Attach { carrier, path, transport_info });
        mux.handle(now, Input::Writable { carrier, bytes: 10_000 });
    }
    let send = |mux: &mut Mux<Piece>, now| {
        let peer = Destination::Address([192, 0, 2, 1].into(), 3_478);
        let data = Piece { source: (StreamId(7), Role::Client), at: 0, len: 200 };
        mux.handle(now, Input::Datagram { flow: FlowId(7), label: 1, peer, data });
        let outputs: Vec<Output<Piece>> = std::iter::from_fn(|| mux.poll(now)).collect();
        outputs.into_iter().find_map(|output| match output {
            Output::Send { carrier, message: Message::Datagram { .. } } => Some(carrier),
            _ => None,
        })
    };
    for _ in 0..10 {
        now += Span::from_millis(10);
        assert_eq!(send(&mut mux, now), Some(slow));
    }
    report(&mut mux, now, slow, 60, 1);
    report(&mut mux, now, fast, 10, 1);
    now += Span::from_millis(10);
    assert_eq!(send(&mut mux, now), None, "it would overtake the last one");
    let due = mux.next_wakeup().expect("it waits for a time");
    assert!(due > now && due <= now + Span::from_millis(50), "{due:?}");
    for carrier in [slow, fast] {
        mux.handle(now, Input::Writable { carrier, bytes: 0 });
    }
    assert!(std::iter::from_fn(|| mux.poll(due)).next().is_none());
    assert!(mux.next_wakeup().is_none_or(|at| at > due), "nothing is to be done");
    mux.handle(due, Input::Writable { carrier: fast, bytes: 10_000 });
    assert!(matches!(mux.poll(due), Some(Output::Send { carrier, .. }) if carrier == fast));
}
