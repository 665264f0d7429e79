//! A reader takes the bytes in order, and no byte too far ahead of it is requested.

use manyways_unit::{Rate, Span, Time};
use proptest::prelude::*;

use super::simulation::{Link, Reader, RunOutcome, Server, Simulation};
use super::{MB, lte, wifi};
use crate::fetch::{Config, PathId};

const READ_AHEAD: u64 = 500_000;

fn simulation(server: Server, links: &[Link], pause: Span, max: u64) -> Simulation {
    let config = Config { read_ahead: Some(READ_AHEAD), ..Config::default() };
    let mut simulation = Simulation::new(config, server, links);
    simulation.reader = Some(Reader { pause, max_read: max, consumed: 0, next: Time::ZERO });
    simulation
}

fn plain(link: Link) -> Link {
    Link { multiplexed: false, ..link }
}

/// The reader takes no bytes for a minute, for which the server is not blamed.
#[test]
fn a_reader_that_pauses_costs_no_request() {
    for link in [wifi(), plain(wifi())] {
        for server in
            [Server::of(2 * MB), Server { ranges: false, validator: None, ..Server::of(2 * MB) }]
        {
            let mut simulation = simulation(server, &[link], Span::from_secs(60), MB);
            simulation.run_to_the_end();
            assert_eq!(simulation.requests(), [(PathId(0), None)]);
            assert!(
                simulation.max_waiting <= READ_AHEAD + 128 * 1024,
                "{} bytes waited",
                simulation.max_waiting
            );
        }
    }
}

#[test]
fn a_fast_reader_costs_little_time() {
    let links = [wifi(), lte()];
    let free = Simulation::new(Config::default(), Server::of(8 * MB), &links).run_to_the_end();
    let mut simulation = simulation(Server::of(8 * MB), &links, Span::from_millis(1), MB);
    let took = simulation.run_to_the_end();
    assert!(took.as_secs_f64() < 1.2 * free.as_secs_f64(), "{took}, {free} without a reader");
    assert!(simulation.requests().len() < 120, "{} requests", simulation.requests().len());
}

/// A player gives a segment up if it sees the rate of one network where there are two.
#[test]
fn a_reader_sees_the_rate_of_all_paths_early() {
    const GRACE: Time = Time::from_millis(500);
    const LENGTH: u64 = 2_500_000;
    let links = [28, 65].map(|rtt| Link::new(Rate::from_mbps(5), Span::from_millis(rtt)));
    // The least share of the arrived bytes that the reader has after a while, the end, and the requests.
    let run = |first: Option<u64>, links: &[Link]| {
        let config = Config {
            length: Some(LENGTH),
            read_ahead: Some(16 * MB),
            first_read_ahead: first,
            ..Config::default()
        };
        let mut simulation = Simulation::new(config, Server::of(LENGTH), links);
        let reader = Reader { pause: Span::ZERO, max_read: MB, consumed: 0, next: Time::ZERO };
        simulation.reader = Some(reader);
        let mut least = 1.0_f64;
        let ended = loop {
            if let Some(outcome) = simulation.step(Time::MAX) {
                break outcome;
            }
            let consumed = simulation.reader.map_or(0, |reader| reader.consumed);
            if simulation.now >= GRACE {
                least = least.min(consumed as f64 / simulation.fetch.done().total() as f64);
            }
        };
        assert_eq!(ended, RunOutcome::Done);
        (least, simulation.now, simulation.requests().len())
    };
    let first = Some(360_000);
    let (alone, fastest, _) = run(None, &links);
    let (together, ended, _) = run(first, &links);
    assert!(alone < 0.6 && together > 0.7, "{alone}, {together}");
    assert!(ended.as_secs_f64() < 1.1 * fastest.as_secs_f64(), "{ended}, {fastest}");
    // Where a response cannot end early, pieces at the beginning would cost connections.
    let sequential = links.map(plain);
    assert_eq!(run(first, &sequential), run(None, &sequential));
}

fn link() -> impl Strategy<Value = Link> {
    (20u64..5_000, 1u64..400, any::<bool>()).prop_map(|(kbps, rtt, multiplexed)| Link {
        multiplexed,
        ..Link::new(Rate::from_kbps(kbps), Span::from_millis(rtt))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn what_waits_is_bounded_and_all_comes(
        length in 0u64..1_500_000,
        links in prop::collection::vec(link(), 1..4),
        (ranges, sends_length) in (prop::bool::weighted(0.8), prop::bool::weighted(0.9)),
        (pause, most) in (1u64..20_000, 20_000u64..600_000),
        breaks in prop::collection::vec(0u64..600_000, 0..3),
    ) {
        let server = Server { ranges, sends_length, ..Server::of(length) };
        let mut simulation = simulation(server, &links, Span::from_millis(pause), most);
        if ranges && sends_length {
            for (nth, after) in breaks.into_iter().enumerate() {
                simulation.failures.insert((PathId(nth % links.len()), nth as u64), after);
            }
        }
        prop_assert_eq!(simulation.run(), RunOutcome::Done);
        // One window per stream may be in flight.
        let windows = links.len() as u64 * 2 * 256 * 1024;
        prop_assert!(simulation.max_waiting <= READ_AHEAD + windows, "{} bytes waited", simulation.max_waiting);
    }
}
