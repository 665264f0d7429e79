//! What a session does on links of certain kinds.

use manyways_trace::{Rate, Size, Span, Time};

use super::world::{CLIENT, GATEWAY, World, link};
use crate::sched::{Kind, PathId, PathSet, Treatment};

fn treat(scheduler: Kind) -> Treatment {
    Treatment { scheduler, ..Treatment::default() }
}

/// Milliseconds until a download of so many bytes is done.
fn download(scheduler: Kind, links: &[(u64, u64)], bytes: u64) -> f64 {
    let mut world = World::new();
    world.label(0, treat(scheduler));
    for (path, (kbps, rtt)) in links.iter().enumerate() {
        world.attach(path as u8, link(*kbps, *rtt));
    }
    let stream = world.open(0, 300, bytes);
    world.run_for(Span::from_secs(120));
    world.done_at(stream).expect("it ends").since(Time::ZERO).as_millis_f64()
}

#[test]
fn bulk_takes_all_paths_and_a_slow_one_never_holds_it_back() {
    for links in [[(8_000, 50), (10_000, 70)], [(40_000, 50), (5_000, 70)], [(50_000, 10), (50_000, 200)]] {
        let bytes = 10_000_000;
        let sum: u64 = links.iter().map(|(kbps, _)| kbps).sum();
        let fluid = Rate::from_kbps(sum).time_for(Size::from_bytes(bytes)).as_millis_f64();
        let shortest = links.iter().map(|(_, rtt)| *rtt).min().unwrap() as f64;
        let took = download(Kind::BufferAware, &links, bytes);
        // What the messages say of themselves, and the last one's time.
        assert!(took < fluid * 1.015 + shortest + 12.0, "{links:?}: {took} ms, fluid {fluid} ms");
    }
}

#[test]
fn a_small_answer_takes_the_quick_path_alone() {
    let took = download(Kind::BufferAware, &[(7_040, 50), (9_185, 70)], 1_000);
    assert!(took < 53.0, "{took} ms");
}
