//! A reader takes the bytes in order, and no byte too far ahead of it is requested.

use manyways_unit::{Rate, Span, Time};
use proptest::prelude::*;

use super::world::{End, Link, Reader, Server, World};
use super::{MB, lte, wifi};
use crate::fetch::{Config, PathId};

const AHEAD: u64 = 500_000;

fn world(server: Server, links: &[Link], pause: Span, most: u64) -> World {
    let config = Config { ahead: Some(AHEAD), ..Config::default() };
    let mut world = World::new(config, server, links);
    world.reader = Some(Reader { pause, most, taken: 0, next: Time::ZERO });
    world
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
            let mut world = world(server, &[link], Span::from_secs(60), MB);
            world.run_to_the_end();
            assert_eq!(world.requests(), [(PathId(0), None)]);
            assert!(world.waited <= AHEAD + 128 * 1024, "{} bytes waited", world.waited);
        }
    }
}

#[test]
fn a_fast_reader_costs_little_time() {
    let links = [wifi(), lte()];
    let free = World::new(Config::default(), Server::of(8 * MB), &links).run_to_the_end();
    let mut world = world(Server::of(8 * MB), &links, Span::from_millis(1), MB);
    let took = world.run_to_the_end();
    assert!(took.as_secs_f64() < 1.2 * free.as_secs_f64(), "{took}, {free} without a reader");
    assert!(world.requests().len() < 120, "{} requests", world.requests().len());
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
        (ranges, tells_length) in (prop::bool::weighted(0.8), prop::bool::weighted(0.9)),
        (pause, most) in (1u64..20_000, 20_000u64..600_000),
        breaks in prop::collection::vec(0u64..600_000, 0..3),
    ) {
        let server = Server { ranges, tells_length, ..Server::of(length) };
        let mut world = world(server, &links, Span::from_millis(pause), most);
        if ranges && tells_length {
            for (nth, after) in breaks.into_iter().enumerate() {
                world.breaks.insert((PathId(nth % links.len()), nth as u64), after);
            }
        }
        prop_assert_eq!(world.run(), End::Done);
        // One window per stream may be in flight.
        let windows = links.len() as u64 * 2 * 256 * 1024;
        prop_assert!(world.waited <= AHEAD + windows, "{} bytes waited", world.waited);
    }
}
