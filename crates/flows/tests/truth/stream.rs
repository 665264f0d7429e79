//! Round-trip times and losses.

use manyways_flows::flow::{AckClock, Counts, Stream};
use manyways_trace::scenario::{CapacitySpec, LossSpec};
use manyways_unit::Span;
use manyways_wire::stream::Endpoint;

use crate::link::Link;
use crate::simulation::{MSS, RunResult, Simulation, at, free, hop};

fn stream(result: &RunResult) -> &Stream {
    result.connection.stream(Endpoint::Server).unwrap()
}

fn counts(result: &RunResult) -> Counts {
    stream(result).counts()
}

fn ack_clock(result: &RunResult) -> &AckClock {
    result.connection.ack_clock(Endpoint::Server).unwrap()
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
    let result = Simulation::new(30, 4).download(10_000);
    is_near(result.connection.handshake().server_rtt(), 60);
    is_near(result.connection.handshake().client_rtt(), 8);
}

#[test]
fn the_near_half_is_the_way_to_the_device_and_back_wherever_the_queue_is() {
    for (remote, local) in [(10, 1), (5, 40), (40, 5), (20, 20)] {
        let simulation = Simulation::new(remote, local);
        // The queue is before the capture point.
        let before = Simulation { down: [at(8, remote), free(local)], ..simulation };
        let result = before.download(1_000_000);
        assert!(stream(&result).receiver_rtt().count() >= 100);
        is_near(stream(&result).receiver_rtt().median(), 2 * local);
        is_near(stream(&result).receiver_rtt().min(), 2 * local);
        // The queue is after the capture point: the minimum is that of the first packets.
        let behind = Simulation { down: [free(remote), at(8, local)], ..before };
        let result = behind.download(1_000_000);
        let near = stream(&result).receiver_rtt();
        assert!(near.min().unwrap() < Span::from_millis(2 * local + 2));
        assert!(near.median().unwrap() > Span::from_millis(2 * local + 10), "of a full queue");
    }
}

#[test]
fn the_far_half_is_the_way_to_the_server_and_back() {
    for (remote, local) in [(5, 1), (10, 40), (40, 5)] {
        // The queue is after the capture point, so only the near part includes it.
        let simulation =
            Simulation { down: [free(remote), at(8, local)], ..Simulation::new(remote, local) };
        let result = simulation.download(1_000_000);
        let far = ack_clock(&result).sender_rtt();
        assert!(far.count() >= 100 && ack_clock(&result).timestamp_samples() == far.count());
        is_near(far.median(), 2 * remote);
        is_near(far.min(), 2 * remote);
        // Complete round-trip times are never shorter than without a queue.
        let whole = ack_clock(&result).full_rtt().min().unwrap();
        assert!(whole >= Span::from_millis(2 * (local + remote)), "{whole}");
        // Without timestamps, while the window is in slow start. Segments arrive one by one;
        // otherwise smoltcp would acknowledge all at once.
        let down = [free(remote), at(100, local)];
        let simulation =
            Simulation { has_timestamps: false, down, ..Simulation::new(remote, local) };
        let result = simulation.download(300_000);
        let far = ack_clock(&result).sender_rtt();
        assert!(
            far.count() >= 50 && ack_clock(&result).timestamp_samples() == 0,
            "{}",
            far.count()
        );
        is_near(far.median(), 2 * remote);
    }
}

#[test]
fn where_nothing_is_lost_nothing_is_said_to_be() {
    let simulation = Simulation {
        down: [at(20, 20), free(5)],
        receive_buffer: 300_000,
        ..Simulation::new(20, 5)
    };
    let result = simulation.download(2_000_000);
    assert_eq!(losses(&result.link), [0, 0]);
    let counts = counts(&result);
    assert_eq!((counts.retransmissions.total(), counts.lost_before, counts.lost_after), (0, 0, 0));
    assert_eq!((counts.reordered, counts.duplicated, counts.uncaptured), (0, 0, 0));
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
        let result = Simulation { down, ..Simulation::new(10, 10) }.download(1_500_000);
        let lost = losses(&result.link);
        assert_eq!(result.connection.handshake().syn_acks, 1, "the server's SYN is no data");
        assert!(lost[0] + lost[1] >= 3, "{lost:?}");
        assert_eq!([counts(&result).lost_before, counts(&result).lost_after].map(u64::from), lost);
    }
}
