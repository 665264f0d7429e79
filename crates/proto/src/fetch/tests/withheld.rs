//! Credit that is withheld for an exact end, and the window of the connection.

use manyways_unit::{Rate, Span};

use super::MB;
use super::simulation::{Link, RunOutcome, Server, Simulation};
use crate::fetch::Config;

/// A server that serves streams by turns must not starve both streams of a path near their ends.
#[test]
fn two_requests_with_near_ends_do_not_use_up_the_connection() {
    for mbps in 4..=6 {
        for tenths in 10..60 {
            let fast = Link::new(Rate::from_mbps(10), Span::from_millis(28));
            let slow = Link::new(Rate::from_mbps(mbps), Span::from_millis(100));
            let server = Server::of(tenths * MB / 10);
            let mut simulation = Simulation::new(Config::default(), server, &[fast, slow]);
            simulation.run_to_the_end();
            let longest = simulation.longest_starvation();
            assert!(
                longest <= Span::from_millis(20),
                "{tenths} × 100 KB, {mbps} Mbit/s: no stream could send for {longest}"
            );
        }
    }
}

/// A server that does not send less than 2 KB of a body does not delay the last bytes before an end.
#[test]
fn a_small_rest_of_credit_is_enlarged_if_the_server_does_not_use_it() {
    let link = Link::new(Rate::from_mbps(10), Span::from_millis(60));
    for bytes in (500_000..520_000).step_by(997) {
        let config = Config { stop_after: Some(bytes), ..Config::default() };
        let run = |min_credit| {
            let server = Server { min_credit, ..Server::of(4 * MB) };
            let mut simulation = Simulation::new(config.clone(), server, &[link]);
            assert_eq!(simulation.run_unchecked(), RunOutcome::Done);
            simulation.now
        };
        let (usual, coarse) = (run(1), run(2_048));
        // Two response delays until the credit counts as unused, and one for the rest.
        assert!(coarse <= usual + link.rtt * 4, "{bytes}: {coarse}, not {usual}");
    }
}
