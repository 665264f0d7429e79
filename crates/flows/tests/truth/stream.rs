//! Round-trip times and losses.

use manyways_flows::flow::{Counts, Releases, Stream};
use manyways_trace::scenario::{CapacitySpec, LossSpec};
use manyways_unit::Span;
use manyways_wire::stream::End;

use crate::link::Link;
use crate::world::{MSS, Seen, World, at, free, hop};

fn stream(seen: &Seen) -> &Stream {
    seen.connection.stream(End::Server).unwrap()
}

fn counts(seen: &Seen) -> Counts {
    stream(seen).counts()
}

fn releases(seen: &Seen) -> &Releases {
    seen.connection.releases(End::Server).unwrap()
}

/// Number of lost packets of each of the server's hops, in order.
fn losses(link: &Link) -> [u64; 2] {
    [0, 1].map(|hop| {
        let stats = link.pipes()[0][hop].stats();
        stats.dropped_queue.packets + stats.dropped_loss.packets
    })
}

/// Asserts an error of at most 2 %, or 0.3 ms.
fn is_near(measured: Option<Span>, truth: u64) {
    let (measured, truth) = (measured.unwrap().as_millis_f64(), truth as f64);
    assert!((measured - truth).abs() <= (truth * 0.02).max(0.3), "{measured} is not {truth}");
}

#[test]
fn the_halves_of_the_handshake_are_the_ways_to_both_ends() {
    let seen = World::new(30, 4).download(10_000);
    is_near(seen.connection.handshake().to_server(), 60);
    is_near(seen.connection.handshake().to_client(), 8);
}

#[test]
fn the_near_half_is_the_way_to_the_device_and_back_wherever_the_queue_is() {
    for (remote, local) in [(10, 1), (5, 40), (40, 5), (20, 20)] {
        let world = World::new(remote, local);
        // The queue is before the capture point.
        let before = World { down: [at(8, remote), free(local)], ..world };
        let seen = before.download(1_000_000);
        assert!(stream(&seen).near().count() >= 100);
        is_near(stream(&seen).near().median(), 2 * local);
        is_near(stream(&seen).near().least(), 2 * local);
        // The queue is after the capture point: the minimum is that of the first packets.
        let behind = World { down: [free(remote), at(8, local)], ..before };
        let seen = behind.download(1_000_000);
        let near = stream(&seen).near();
        assert!(near.least().unwrap() < Span::from_millis(2 * local + 2));
        assert!(near.median().unwrap() > Span::from_millis(2 * local + 10), "of a full queue");
    }
}

#[test]
fn the_far_half_is_the_way_to_the_server_and_back() {
    for (remote, local) in [(5, 1), (10, 40), (40, 5)] {
        // The queue is after the capture point, so only the near part includes it.
        let world = World { down: [free(remote), at(8, local)], ..World::new(remote, local) };
        let seen = world.download(1_000_000);
        let far = releases(&seen).far();
        assert!(far.count() >= 100 && releases(&seen).by_stamp() == far.count());
        is_near(far.median(), 2 * remote);
        is_near(far.least(), 2 * remote);
        // Complete round-trip times are never shorter than without a queue.
        let whole = releases(&seen).whole().least().unwrap();
        assert!(whole >= Span::from_millis(2 * (local + remote)), "{whole}");
        // Without timestamps, while the window is in slow start. Segments arrive one by one;
        // otherwise smoltcp would acknowledge all at once.
        let down = [free(remote), at(100, local)];
        let world = World { has_stamps: false, down, ..World::new(remote, local) };
        let seen = world.download(300_000);
        let far = releases(&seen).far();
        assert!(far.count() >= 50 && releases(&seen).by_stamp() == 0, "{}", far.count());
        is_near(far.median(), 2 * remote);
    }
}

#[test]
fn where_nothing_is_lost_nothing_is_said_to_be() {
    let world = World { down: [at(20, 20), free(5)], receives: 300_000, ..World::new(20, 5) };
    let seen = world.download(2_000_000);
    assert_eq!(losses(&seen.link), [0, 0]);
    let counts = counts(&seen);
    assert_eq!((counts.again.all(), counts.lost_before, counts.lost_behind), (0, 0, 0));
    assert_eq!((counts.reordered, counts.duplicated, counts.unseen), (0, 0, 0));
    assert_eq!(counts.bytes, 2_000_000);
    let full = u64::from(MSS - 12);
    assert!(counts.data_segments.abs_diff(2_000_000_u64.div_ceil(full)) <= 2, "{counts:?}");
}

/// Losses that smoltcp, which has no SACK, repairs without spurious retransmissions.
#[test]
fn each_loss_is_on_its_side_of_the_capture_point() {
    for is_before in [true, false] {
        let lossy = hop(10, CapacitySpec::Unlimited, LossSpec::Independent(0.004));
        let down = if is_before { [lossy, free(10)] } else { [free(10), lossy] };
        let seen = World { down, ..World::new(10, 10) }.download(1_500_000);
        let lost = losses(&seen.link);
        assert_eq!(seen.connection.handshake().answers, 1, "the server's SYN is no data");
        assert!(lost[0] + lost[1] >= 3, "{lost:?}");
        assert_eq!([counts(&seen).lost_before, counts(&seen).lost_behind].map(u64::from), lost);
    }
}
