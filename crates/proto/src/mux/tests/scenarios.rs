//! Downloads over links with different rates and delays.

use manyways_unit::{Span, Time};

use super::simulation::{Simulation, link};
use crate::sched::{SchedulerKind, StreamPolicy};

fn treat(scheduler: SchedulerKind) -> StreamPolicy {
    StreamPolicy { scheduler, ..StreamPolicy::default() }
}

/// Duration of a download of `bytes` in milliseconds.
fn download(scheduler: SchedulerKind, links: &[(u64, u64)], bytes: u64) -> f64 {
    let mut simulation = Simulation::new();
    simulation.label(0, treat(scheduler));
    for (path, (kbps, rtt)) in links.iter().enumerate() {
        simulation.attach(path as u8, link(*kbps, *rtt));
    }
    let stream = simulation.open(0, 300, bytes);
    simulation.run_for(Span::from_secs(120));
    simulation.done_at(stream).expect("it ends").since(Time::ZERO).as_millis_f64()
}

#[test]
fn bulk_takes_all_paths_and_a_slow_one_never_holds_it_back() {
    for links in
        [[(8_000, 50), (10_000, 70)], [(40_000, 50), (5_000, 70)], [(50_000, 10), (50_000, 200)]]
    {
        let bytes = 10_000_000;
        let bound = all_at_full_rate(&links, bytes);
        let took = download(SchedulerKind::BufferAware, &links, bytes);
        // Headers of the messages, and the time of the last message.
        assert!(took < bound * 1.01 + 12.0, "{links:?}: {took} ms, bound {bound} ms");
    }
}

/// Time in milliseconds in which all links deliver `bytes` at full rate, each half an RTT late,
/// after a request over the fastest link.
fn all_at_full_rate(links: &[(u64, u64)], bytes: u64) -> f64 {
    let request = links.iter().map(|(_, rtt)| *rtt).min().unwrap() as f64 / 2.0;
    let brought = |ms: f64| -> f64 {
        links.iter().map(|(kbps, rtt)| *kbps as f64 / 8.0 * (ms - *rtt as f64 / 2.0).max(0.0)).sum()
    };
    let mut ms = 0.0;
    while brought(ms) < bytes as f64 {
        ms += 0.1;
    }
    request + ms
}

#[test]
fn a_small_answer_takes_the_quick_path_alone() {
    let took = download(SchedulerKind::BufferAware, &[(7_040, 50), (9_185, 70)], 1_000);
    assert!(took < 53.0, "{took} ms");
}
