//! Any events in any order: every stream delivers exactly its bytes, once and in order.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use manyways_unit::{Rate, Size, Span, Time};
use proptest::prelude::*;

use super::simulation::{self, CLIENT, GATEWAY, Link, Simulation};
use crate::mux::ResetCode;
use crate::sched::{PathId, PathSet, SchedulerKind, StreamPolicy};

#[derive(Clone, Debug)]
enum Event {
    Open { up: u64, down: u64, label: u8, takes: bool },
    Die { carrier: usize, share: u8 },
    Return { path: u8 },
    Silent { carrier: usize, silent: bool },
    Rate { carrier: usize, kbps: u64 },
    Relabel { label: u8, scheduler: usize, paths: u32, primary: Option<u8>, priority: u8 },
    Assign { stream: usize, label: u8 },
    Reset { end: usize, stream: usize },
    Consume { end: usize },
    Datagrams { end: usize, flow: u32, label: u8, lengths: Vec<usize> },
    Limit { carrier: usize, datagram: usize },
    Rtt { carrier: usize, millis: u64 },
    Lend { pipe: Link, far: Link, kib: u64 },
    Pipe { lender: usize, kbps: u64, silent: bool },
    TakeAway { lender: usize },
    Retire { lender: usize, end: usize },
}

fn event() -> impl Strategy<Value = Event> {
    let size = || prop_oneof![Just(0u64), 1u64..3_000, 3_000u64..400_000];
    prop_oneof![
        4 => (size(), size(), 0u8..4, prop::bool::weighted(0.8))
            .prop_map(|(up, down, label, takes)| Event::Open { up, down, label, takes }),
        2 => (0usize..3, any::<u8>()).prop_map(|(carrier, share)| Event::Die { carrier, share }),
        2 => (0u8..3).prop_map(|path| Event::Return { path }),
        2 => (0usize..3, any::<bool>())
            .prop_map(|(carrier, silent)| Event::Silent { carrier, silent }),
        1 => (0usize..3, 50u64..20_000).prop_map(|(carrier, kbps)| Event::Rate { carrier, kbps }),
        2 => (0u8..4, 0..SchedulerKind::ALL.len(), 0u32..16, prop::option::of(0u8..3), 0u8..3).prop_map(
            |(label, scheduler, paths, primary, priority)| Event::Relabel {
                label, scheduler, paths, primary, priority
            }
        ),
        1 => (0usize..8, 0u8..4).prop_map(|(stream, label)| Event::Assign { stream, label }),
        1 => (0usize..2, 0usize..8).prop_map(|(end, stream)| Event::Reset { end, stream }),
        1 => (0usize..2).prop_map(|end| Event::Consume { end }),
        2 => (0usize..2, 0u32..3, 0u8..4, prop::collection::vec(0usize..2_500, 1..30)).prop_map(
            |(end, flow, label, lengths)| Event::Datagrams { end, flow, label, lengths }
        ),
        1 => (0usize..3, 300usize..1_400)
            .prop_map(|(carrier, datagram)| Event::Limit { carrier, datagram }),
        // Messages on one carrier overtake messages on another one.
        1 => (0usize..3, 1u64..500).prop_map(|(carrier, millis)| Event::Rtt { carrier, millis }),
        2 => (link(), link(), 1u64..512)
            .prop_map(|(pipe, far, kib)| Event::Lend { pipe, far, kib }),
        2 => (0usize..2, 50u64..20_000, prop::bool::weighted(0.2))
            .prop_map(|(lender, kbps, silent)| Event::Pipe { lender, kbps, silent }),
        1 => (0usize..2).prop_map(|lender| Event::TakeAway { lender }),
        1 => (0usize..2, 0usize..2).prop_map(|(lender, end)| Event::Retire { lender, end }),
    ]
}

fn link() -> impl Strategy<Value = Link> {
    (50u64..50_000, 1u64..300).prop_map(|(kbps, rtt)| simulation::link(kbps, rtt))
}

/// Number of times that an end has recalled messages in a scenario, of all scenarios.
static RECALLED: AtomicU64 = AtomicU64::new(0);

#[test]
fn every_stream_delivers_its_bytes_once_and_in_order() {
    any_scenario();
    let recalled = RECALLED.load(Ordering::Relaxed);
    assert!(recalled > 0, "no scenario recalls anything from a lender");
}

proptest! {
    fn any_scenario(
        links in prop::collection::vec(link(), 1..4),
        events in prop::collection::vec((0u64..400, event()), 1..40),
        credit in prop_oneof![Just(64u64 << 10), Just(32 << 20)],
    ) {
        let mut simulation = Simulation::with(|config| {
            config.credit = credit.max(32 << 10);
            config.stream_credit = 32 << 10;
            config.max_stream_credit = 256 << 10;
        });
        simulation.confirms = true;
        for (path, link) in links.iter().enumerate() {
            simulation.attach(path as u8, *link);
        }
        let mut streams = Vec::new();
        let mut datagrams = [Vec::new(), Vec::new()];
        for (pause, event) in events {
            let carriers = simulation.carrier_ids();
            let lenders: Vec<_> = simulation.lent.iter().map(|lent| lent.id).collect();
            match event {
                Event::Lend { pipe, far, kib } => {
                    simulation.attach_lent(3, pipe, far, Size::from_kib(kib));
                }
                Event::Pipe { lender, kbps, silent } => {
                    if let Some(id) = lenders.get(lender) {
                        let now = simulation.now;
                        simulation.lent(*id).pipe.rate = Rate::from_kbps(kbps);
                        simulation.lent(*id).set_pipe_silent(now, silent);
                    }
                }
                Event::TakeAway { lender } => {
                    if let Some(id) = lenders.get(lender) {
                        simulation.detach_lent(*id);
                    }
                }
                Event::Retire { lender, end } => {
                    if let Some(id) = lenders.get(lender) {
                        let input = crate::mux::Input::Retire { carrier: *id };
                        simulation.endpoints[end].handle(simulation.now, input);
                    }
                }
                Event::Open { up, down, label, takes } => {
                    let stream = simulation.open(label, up, down);
                    for applications in &mut simulation.applications {
                        applications.get_mut(&stream).unwrap().consumes = takes;
                    }
                    streams.push(stream);
                }
                Event::Die { carrier, share } => {
                    if let Some(id) = carriers.get(carrier) {
                        simulation.detach(*id, share);
                    }
                }
                Event::Return { path } => {
                    if let Some(link) = links.get(usize::from(path)) {
                        simulation.attach(path, *link);
                    }
                }
                Event::Silent { carrier, silent } => {
                    if let Some(id) = carriers.get(carrier) {
                        simulation.set_silent(*id, silent);
                    }
                }
                Event::Rate { carrier, kbps } => {
                    if let Some(id) = carriers.get(carrier) {
                        simulation.set_rate(*id, Rate::from_kbps(kbps));
                    }
                }
                Event::Relabel { label, scheduler, paths, primary, priority } => simulation.label(label, StreamPolicy {
                    scheduler: SchedulerKind::ALL[scheduler],
                    paths: PathSet::from_bits(paths),
                    primary: primary.map(PathId),
                    priority,
                }),
                Event::Assign { stream, label } => {
                    if let Some(stream) = streams.get(stream) {
                        let input = crate::mux::Input::Assign { stream: *stream, label };
                        simulation.endpoints[CLIENT].handle(simulation.now, input);
                    }
                }
                Event::Reset { end, stream } => {
                    if let Some(stream) = streams.get(stream) {
                        simulation.reset(end, *stream);
                    }
                }
                Event::Datagrams { end, flow, label, lengths } => {
                    for len in lengths {
                        let number = datagrams[end].len() as u64;
                        simulation.datagram(end, flow, label, number, len);
                        datagrams[end].push((flow, len));
                    }
                }
                Event::Limit { carrier, datagram } => {
                    if let Some(id) = carriers.get(carrier) {
                        simulation.limit_datagrams(*id, datagram);
                    }
                }
                Event::Rtt { carrier, millis } => {
                    if let Some(id) = carriers.get(carrier) {
                        simulation.set_rtt(*id, Span::from_millis(millis));
                    }
                }
                Event::Consume { end } => {
                    for stream in &streams {
                        simulation.consume(end, *stream);
                    }
                }
            }
            simulation.run_for(Span::from_millis(pause));
            for end in &simulation.endpoints {
                prop_assert!(end.unconsumed_bytes() <= credit.max(32 << 10), "more is held than granted");
            }
        }
        // After all faults have ended, all data is delivered.
        for id in simulation.carrier_ids() {
            simulation.set_silent(id, false);
        }
        for lender in &mut simulation.lent {
            lender.set_pipe_silent(simulation.now, false);
        }
        for label in 0..4 {
            let scheduler = SchedulerKind::ALL[usize::from(label)];
            simulation.label(label, StreamPolicy { scheduler, ..StreamPolicy::default() });
        }
        for (path, link) in links.iter().enumerate() {
            simulation.attach(path as u8, *link);
        }
        let mut last = Time::ZERO;
        for _ in 0..400 {
            for stream in &streams {
                for end in [CLIENT, GATEWAY] {
                    simulation.applications[end].get_mut(stream).unwrap().consumes = true;
                    simulation.consume(end, *stream);
                }
            }
            simulation.run_for(Span::from_secs(2));
            last = simulation.now;
            if simulation.endpoints.iter().all(|end| end.stream_count() == 0) {
                break;
            }
        }
        prop_assert_eq!(&simulation.violations, &Vec::<&str>::new());
        for stream in &streams {
            for (end, peer) in [(CLIENT, GATEWAY), (GATEWAY, CLIENT)] {
                let (own, other) =
                    (&simulation.applications[end][stream], &simulation.applications[peer][stream]);
                if own.end == Some(Ok(())) {
                    prop_assert_eq!(own.received, other.to_write);
                }
                let was_reset = [own.end, other.end].iter().any(|end| {
                    matches!(end, Some(Err(ResetCode::Aborted)))
                });
                prop_assert!(was_reset || own.end.is_some(), "{:?} has not ended at {}: {:?}\n{}", stream, last, own, simulation.debug_state());
            }
        }
        // Each datagram arrived complete and once, or not at all.
        for (sent, came) in datagrams.iter().zip(simulation.datagrams.iter().rev()) {
            let mut numbers = BTreeSet::new();
            for (_, flow, piece) in came {
                let number = piece.at >> 20;
                prop_assert_eq!(sent[number as usize], (flow.0, piece.len));
                prop_assert!(numbers.insert(number), "{} came twice", number);
            }
        }
        for end in &simulation.endpoints {
            RECALLED.fetch_add((end.counters().recalled > 0).into(), Ordering::Relaxed);
            prop_assert_eq!(end.stream_count(), 0, "streams are left");
            prop_assert_eq!(end.unconsumed_bytes(), 0);
        }
    }
}
