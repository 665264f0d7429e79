//! Credit that is withheld for an exact end, and the window of the connection.

use manyways_unit::{Rate, Span};

use super::MB;
use super::simulation::{Link, Server, Simulation};
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
