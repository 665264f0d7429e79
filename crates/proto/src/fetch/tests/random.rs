//! In any order of events, every byte is written once, and the fetch ends.

use manyways_unit::{Rate, Size, Span, Time};
use proptest::prelude::*;

use super::simulation::{Link, RunOutcome, Server, Simulation};
use crate::fetch::{
    Config, CutMethod, FetchFailure, MeteredUse, PathError, PathErrorKind, PathId, Scheduler,
};

#[derive(Clone, Debug)]
enum Event {
    Break(usize),
    Down(usize),
    Up(usize),
    Rate(usize, u64),
    /// The path's server changes to another version.
    Change(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let path = 0usize..3;
    prop_oneof![
        4 => path.clone().prop_map(Event::Break),
        2 => path.clone().prop_map(Event::Down),
        2 => path.clone().prop_map(Event::Up),
        3 => (path.clone(), 0u64..20_000).prop_map(|(path, kbps)| Event::Rate(path, kbps)),
        1 => path.prop_map(Event::Change),
    ]
}

fn link() -> impl Strategy<Value = Link> {
    let dead = prop_oneof![3 => Just(None), 1 => (0u64..3_000).prop_map(Some)];
    let flags = (any::<bool>(), prop::bool::weighted(0.7));
    (20u64..5_000, 1u64..400, dead, flags).prop_map(|(kbps, rtt, dead, (metered, multiplexed))| {
        Link {
            rate: Rate::from_kbps(kbps),
            rtt: Span::from_millis(rtt),
            dead_from: dead.map(Time::from_millis),
            pause: None,
            metered,
            multiplexed,
            has_slow_start: false,
        }
    })
}

/// The scheduler, and the length that the caller expects.
fn config() -> impl Strategy<Value = Config> {
    let scheduler = prop_oneof![
        4 => Just(Scheduler::MpH2),
        1 => (1_000u64..60_000).prop_map(|bytes| Scheduler::FixedChunk(Size::from_bytes(bytes))),
        1 => Just(Scheduler::MsPlayer),
        1 => Just(Scheduler::EqualSplit),
        1 => Just(Scheduler::Single),
    ];
    let range_end = prop_oneof![3 => Just(CutMethod::Window), 1 => Just(CutMethod::Reset)];
    let length = prop_oneof![2 => Just(None), 1 => (0u64..200_000).prop_map(Some)];
    (scheduler, prop::bool::weighted(0.8), range_end, length).prop_map(
        |(scheduler, pipelining, range_end, length)| Config {
            scheduler,
            pipelining,
            cut_method: range_end,
            length,
            ..Config::default()
        },
    )
}

fn server() -> impl Strategy<Value = Server> {
    let rarely = || prop::bool::weighted(0.15);
    let most = prop_oneof![3 => Just(u64::MAX), 1 => 500u64..50_000];
    (0u64..150_000, rarely(), rarely(), rarely(), rarely(), most).prop_map(
        |(length, no_ranges, says_none, no_length, no_validator, most)| Server {
            ranges: !no_ranges,
            accept_ranges: !says_none,
            sends_length: !no_length,
            validator: (!no_validator).then_some("\"v\""),
            max_part: most,
            ..Server::of(length)
        },
    )
}

fn allowance() -> impl Strategy<Value = MeteredUse> {
    prop_oneof![
        3 => Just(MeteredUse::Unlimited),
        1 => Just(MeteredUse::Forbidden),
        2 => (0u64..120_000).prop_map(|bytes| MeteredUse::Limit(Size::from_bytes(bytes))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_byte_once_and_an_end(
        links in prop::collection::vec(link(), 1..4),
        server in server(),
        metered in allowance(),
        config in config(),
        exact in any::<bool>(),
        events in prop::collection::vec((0u64..4_000, event()), 0..12),
    ) {
        let length = config.length.map(|wrong| if exact { server.length } else { wrong });
        let config = Config { metered, length, ..config };
        let mut simulation = Simulation::new(config, server.clone(), &links);
        let mut events = events;
        events.sort_by_key(|(at, _)| *at);
        let mut end = None;
        let mut changed = false;
        for (at, event) in events {
            // The simulation checks every write.
            while end.is_none() && simulation.now < Time::from_millis(at) {
                end = simulation.step(Time::from_millis(at));
            }
            if end.is_some() {
                break;
            }
            let on = |path: usize| PathId(path % links.len());
            match event {
                Event::Break(path) => {
                    simulation.fail_request(on(path), PathError::transient(PathErrorKind::Reset, "broke"));
                }
                Event::Down(path) => simulation.set_up(on(path), false),
                Event::Up(path) => simulation.set_up(on(path), true),
                Event::Rate(path, kbps) => simulation.set_rate(on(path), Rate::from_kbps(kbps.max(1))),
                // Without a validator a change cannot be detected.
                Event::Change(path) if server.validator.is_some() => {
                    changed = true;
                    simulation.servers[on(path).0].version = 2;
                }
                Event::Change(_) => {}
            }
        }
        let mut steps = 0;
        let end = loop {
            if let Some(end) = end {
                break end;
            }
            steps += 1;
            prop_assert!(steps < 200_000, "it does not end");
            end = simulation.step(Time::MAX);
        };
        let healthy = links.iter().all(|link| link.dead_from.is_none());
        let is_usable = |link: &Link| !link.metered || metered != MeteredUse::Forbidden;
        let has_path = links.iter().any(is_usable);
        match end {
            // The mixture test below covers a version that changes during a fetch.
            RunOutcome::Done if !changed => simulation.check_file(),
            RunOutcome::Done => {}
            RunOutcome::Failed(FetchFailure::MeteredLimitReached) => prop_assert!(links.iter().any(|l| l.metered)),
            RunOutcome::Failed(FetchFailure::Changed) => prop_assert!(changed),
            RunOutcome::Failed(_) => prop_assert!(!healthy || !has_path || simulation.now > Time::ZERO),
        }
        if let MeteredUse::Limit(limit) = metered
            && server.ranges
            && server.accept_ranges
            && server.sends_length
            && !changed
        {
            prop_assert!(simulation.fetch.metered_bytes() <= limit + Size::from_bytes(16_000));
        }
    }

    #[test]
    fn healthy_paths_always_deliver(
        mut links in prop::collection::vec(link(), 1..5),
        length in 0u64..300_000,
        config in config(),
        exact in any::<bool>(),
    ) {
        links.iter_mut().for_each(|link| link.dead_from = None);
        let config = Config { length: config.length.filter(|_| !exact).or(exact.then_some(length)), ..config };
        let mut simulation = Simulation::new(config, Server::of(length), &links);
        simulation.run_to_the_end();
    }
}

/// Paths whose servers have different versions never produce a mixture.
#[test]
fn no_mixture_of_versions() {
    let link = |mbps| Link::new(Rate::from_mbps(mbps), Span::from_millis(30));
    for other in 0..3 {
        let links = [link(8), link(9), link(20)];
        let mut simulation = Simulation::new(Config::default(), Server::of(1_500_000), &links);
        simulation.servers[other].version = 2;
        assert_eq!(simulation.run_unchecked(), RunOutcome::Done);
        assert!(simulation.is_one_version());
    }
}
