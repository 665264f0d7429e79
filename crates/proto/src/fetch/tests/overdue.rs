//! Paths whose last bytes are late.

use manyways_unit::{Rate, Size, Span};

use super::MB;
use super::simulation::{Link, Server, Simulation};
use crate::fetch::Config;

const PAUSE: Span = Span::from_millis(450);

fn links() -> [Link; 2] {
    let link = |mbps, rtt| Link::new(Rate::from_mbps(mbps), Span::from_millis(rtt));
    [link(11, 28), link(25, 64)]
}

/// A path loses a burst near the end, and takes 450 ms to recover it.
#[test]
fn an_idle_path_races_against_a_late_one() {
    let undisturbed =
        Simulation::new(Config::default(), Server::of(4 * MB), &links()).run_to_the_end();
    for path in [0, 1] {
        for before in (5..120).step_by(5) {
            let mut links = links();
            let from = undisturbed - Span::from_millis(before);
            links[path].pause = Some((from, from + PAUSE));
            let mut simulation = Simulation::new(Config::default(), Server::of(4 * MB), &links);
            simulation.run_until(from);
            let remaining = 4 * MB - simulation.fetch.done().total();
            let end = simulation.run_to_the_end();
            // Half the time of the race, the race, and the shortest delay that counts.
            let other = links[1 - path];
            let race = other.rtt + other.rate.time_for(Size::from_bytes(remaining));
            let most =
                undisturbed + Span::from_nanos(race.as_nanos() * 3 / 2) + Span::from_millis(60);
            assert!(
                end <= most,
                "path {path} paused {before} ms before {undisturbed}: {end}, at most {most}"
            );
            assert!(simulation.wasted() <= remaining, "{} bytes", simulation.wasted());
        }
    }
}

/// Both paths deliver at the expected rates, so nothing is requested twice.
#[test]
fn paths_in_time_are_not_raced_against() {
    for bytes in [MB, 4 * MB, 20 * MB] {
        let mut simulation = Simulation::new(Config::default(), Server::of(bytes), &links());
        simulation.run_to_the_end();
        let wasted = simulation.wasted();
        assert!(wasted * 100 < bytes, "{wasted} bytes of {bytes}");
    }
}
