//! Choices of each scheduler.

use manyways_unit::{Rate, Size, Span};

use super::{
    Assignment, DeviceWait, PathId, PathView, SchedulerKind, Schedulers, SecondHop, SendRequest,
};

/// A path with this rate, RTT and unsent bytes; its window is the bandwidth-delay product. It has
/// room while less than `FULL_WINDOW` is unsent.
fn path(id: u8, kbps: u64, rtt: u64, unsent: u64) -> PathView {
    let (rate, rtt) = (Rate::from_kbps(kbps), Span::from_millis(rtt));
    PathView {
        path: PathId(id),
        is_writable: unsent < FULL_WINDOW,
        rtt,
        rtt_var: Span::ZERO,
        congestion_window: rate.size_in(rtt),
        in_flight: Size::ZERO,
        unsent: Size::from_bytes(unsent),
        rate,
        delivery_rate: rate,
        window_delay: Span::ZERO,
        drain_time: Span::ZERO,
        second_hop: None,
    }
}

const FULL_WINDOW: u64 = 16_000;

fn job(backlog: u64) -> SendRequest {
    let backlog = Size::from_bytes(backlog);
    SendRequest { backlog, total: backlog, primary: None }
}

fn choose(kind: SchedulerKind, backlog: u64, paths: &[PathView]) -> Assignment {
    Schedulers::default().choose(kind, &job(backlog), paths)
}

fn send(at: usize) -> Assignment {
    Assignment::Send { index: at, ahead: 0 }
}

#[test]
fn with_no_room_anywhere_all_wait() {
    let full = [path(0, 8_000, 50, FULL_WINDOW), path(1, 8_000, 70, FULL_WINDOW)];
    for kind in SchedulerKind::ALL.into_iter().filter(|kind| *kind != SchedulerKind::Redundant) {
        assert_eq!(choose(kind, 1_000_000, &full), Assignment::Wait, "{kind}");
        assert_eq!(choose(kind, 1_000_000, &[]), Assignment::Wait, "{kind}");
    }
}

#[test]
fn with_everything_empty_the_quick_path_is_taken() {
    let paths = [path(0, 8_000, 70, 0), path(1, 8_000, 50, 0)];
    for kind in [SchedulerKind::MinRtt, SchedulerKind::Ecf, SchedulerKind::BufferAware] {
        assert_eq!(choose(kind, 1_000, &paths), send(1), "{kind}");
    }
}

#[test]
fn minrtt_overflows_to_the_next_path_whatever_that_costs() {
    let paths = [path(0, 8_000, 50, FULL_WINDOW), path(1, 100, 900, 0), path(2, 100, 950, 0)];
    assert_eq!(choose(SchedulerKind::MinRtt, 1_000, &paths), send(1));
}

#[test]
fn round_robin_takes_turns_among_those_with_room() {
    let mut schedulers = Schedulers::default();
    let mut paths = [path(0, 8_000, 50, 0), path(3, 8_000, 70, 0), path(7, 8_000, 10, 0)];
    let mut turns = |paths: &[PathView], count: usize| -> Vec<Assignment> {
        (0..count).map(|_| schedulers.choose(SchedulerKind::RoundRobin, &job(9), paths)).collect()
    };
    assert_eq!(turns(&paths, 4), [send(0), send(1), send(2), send(0)]);
    paths[1].is_writable = false;
    assert_eq!(turns(&paths, 3), [send(2), send(0), send(2)]);
    // A removed path changes the indices, not the order.
    assert_eq!(turns(&paths[2..], 1), [send(0)]);
    paths[1].is_writable = true;
    assert_eq!(turns(&paths[..2], 3), [send(0), send(1), send(0)]);
}

#[test]
fn redundant_takes_all() {
    assert_eq!(choose(SchedulerKind::Redundant, 1, &[path(0, 1, 1, 0)]), Assignment::SendOnAll);
}

#[test]
fn single_keeps_to_its_primary_and_waits_for_it() {
    let mut paths = [path(0, 8_000, 50, 0), path(1, 8_000, 70, 0), path(2, 8_000, 10, 0)];
    let mut schedulers = Schedulers::default();
    let mut choose = |primary: Option<u8>, paths: &[PathView]| {
        let request = SendRequest { primary: primary.map(PathId), ..job(1_000) };
        schedulers.choose(SchedulerKind::Single, &request, paths)
    };
    assert_eq!(choose(Some(1), &paths), send(1));
    assert_eq!(choose(None, &paths), send(0));
    assert_eq!(choose(Some(9), &paths), send(0), "its primary is not there");
    assert_eq!(choose(Some(0), &paths[1..]), send(0), "the first of the others");
    paths[1].is_writable = false;
    assert_eq!(choose(Some(1), &paths), Assignment::Wait, "not the others");
}

/// The inequalities of algorithm 1 with a backlog of k bytes: the slow path is skipped if (1 +
/// k/CWND_f) RTT_f < (1 + waiting·β)(RTT_s + δ), with δ = max(σ_f, σ_s) and β = 1/4, and k/CWND_s ·
/// RTT_s >= 2 RTT_f + δ.
mod ecf {
    use super::*;

    /// 50 ms with a window of 50,000 bytes, full; and 200 ms with one of 10,000.
    fn paths() -> [PathView; 2] {
        let mut paths = [path(0, 8_000, 50, FULL_WINDOW), path(1, 400, 200, 0)];
        paths[0].congestion_window = Size::from_bytes(50_000);
        paths[1].congestion_window = Size::from_bytes(10_000);
        paths
    }

    #[test]
    fn it_waits_while_rounds_of_the_fast_path_end_sooner() {
        // (1 + 100/50) 50 = 150 < 200, and 100/10 · 200 >= 100.
        assert_eq!(choose(SchedulerKind::Ecf, 100_000, &paths()), Assignment::Wait);
        // Just below (1 + 3) 50 = 200, and there.
        assert_eq!(choose(SchedulerKind::Ecf, 149_990, &paths()), Assignment::Wait);
        assert_eq!(choose(SchedulerKind::Ecf, 150_000, &paths()), send(1));
    }

    #[test]
    fn a_path_that_needs_less_than_two_fast_rounds_is_taken_for_the_little_that_is_left() {
        // k/10 · 200 >= 2 · 50 from 5,000 on.
        assert_eq!(choose(SchedulerKind::Ecf, 4_990, &paths()), send(1));
        assert_eq!(choose(SchedulerKind::Ecf, 5_000, &paths()), Assignment::Wait);
    }

    #[test]
    fn deviation_speaks_for_waiting_and_against_it() {
        let mut paths = paths();
        paths[0].rtt_var = Span::from_millis(40);
        // (1 + k/50) 50 < 240 below 190,000.
        assert_eq!(choose(SchedulerKind::Ecf, 189_990, &paths), Assignment::Wait);
        assert_eq!(choose(SchedulerKind::Ecf, 190_000, &paths), send(1));
        // k/10 · 200 >= 140 from 7,000 on.
        assert_eq!(choose(SchedulerKind::Ecf, 6_990, &paths), send(1));
        assert_eq!(choose(SchedulerKind::Ecf, 7_000, &paths), Assignment::Wait);
    }

    #[test]
    fn once_it_waits_it_takes_a_quarter_more_to_change_its_mind() {
        let (mut schedulers, mut paths) = (Schedulers::default(), paths());
        let mut choose = |backlog, paths: &[PathView]| {
            schedulers.choose(SchedulerKind::Ecf, &job(backlog), paths)
        };
        assert_eq!(choose(150_000, &paths), send(1), "not waiting, 200 >= 200");
        assert_eq!(choose(100_000, &paths), Assignment::Wait);
        assert_eq!(choose(150_000, &paths), Assignment::Wait, "waiting, 200 < 250");
        // A message on the fast path does not change the decision to wait.
        paths[0].is_writable = true;
        assert_eq!(choose(150_000, &paths), send(0));
        paths[0].is_writable = false;
        assert_eq!(choose(199_990, &paths), Assignment::Wait);
        assert_eq!(choose(200_000, &paths), send(1), "(1 + 4) 50 = 250");
        assert_eq!(choose(150_000, &paths), send(1), "and it waits no more");
    }

    #[test]
    fn what_waits_in_other_streams_counts() {
        let (mut schedulers, small) = (Schedulers::default(), job(1_000).backlog);
        let request = SendRequest { backlog: small, ..job(100_000) };
        assert_eq!(schedulers.choose(SchedulerKind::Ecf, &request, &paths()), Assignment::Wait);
    }
}

mod buffer_aware {
    use super::*;

    #[test]
    fn what_waits_in_the_kernel_counts_before_the_round_trip() {
        // 25 ms, and 8 ms for 8,000 bytes before; or 30 ms.
        let paths = [path(0, 8_000, 50, 8_000), path(1, 8_000, 60, 0)];
        assert_eq!(choose(SchedulerKind::BufferAware, 1_000, &paths), send(1));
        let paths = [path(0, 8_000, 50, 4_000), path(1, 8_000, 60, 0)];
        assert_eq!(choose(SchedulerKind::BufferAware, 1_000, &paths), send(0));
    }

    /// A path of 8 Mbit/s that delivers new data after 25 + 16 ms, and a path with 241 ms.
    fn paths() -> [PathView; 2] {
        [path(0, 8_000, 50, 16_000), path(1, 8_000, 482, 0)]
    }

    #[test]
    fn a_slow_path_brings_what_the_fast_would_not_have_brought_by_then() {
        // Within the difference of 200 ms, the fast path delivers 200,000 bytes.
        let ahead = Assignment::Send { index: 1, ahead: 200_000 };
        assert_eq!(choose(SchedulerKind::BufferAware, 1_000_000, &paths()), ahead);
        assert_eq!(choose(SchedulerKind::BufferAware, 200_001, &paths()), ahead);
        assert_eq!(choose(SchedulerKind::BufferAware, 200_000, &paths()), Assignment::Wait);
        assert_eq!(choose(SchedulerKind::BufferAware, 1_000, &paths()), Assignment::Wait);
    }

    #[test]
    fn a_stream_has_its_share_of_what_the_fast_path_brings() {
        let (mut schedulers, quarter) = (Schedulers::default(), job(100_000).backlog);
        let request = SendRequest { backlog: quarter, ..job(400_000) };
        let assignment = schedulers.choose(SchedulerKind::BufferAware, &request, &paths());
        assert_eq!(assignment, Assignment::Send { index: 1, ahead: 50_000 });
    }

    #[test]
    fn all_faster_paths_count_and_slower_ones_do_not() {
        let [fast, slow] = paths();
        let other = PathView { path: PathId(2), rate: Rate::from_kbps(4_000), ..fast };
        // Half the rate and 16,000 bytes of the same: 25 + 32 ms, so 184 ms at 4 Mbit/s.
        let ahead = 200_000 + 92_000;
        let slower = path(3, 8_000, 900, FULL_WINDOW);
        let assignment =
            choose(SchedulerKind::BufferAware, 1_000_000, &[fast, slow, other, slower]);
        assert_eq!(assignment, Assignment::Send { index: 1, ahead });
    }

    #[test]
    fn a_path_whose_rate_is_not_known_is_judged_by_its_round_trip() {
        let unknown = PathView { rate: Rate::ZERO, ..path(0, 8_000, 50, 4_000) };
        let paths = [unknown, path(1, 8_000, 60, 0)];
        assert_eq!(choose(SchedulerKind::BufferAware, 1_000, &paths), send(0));
    }
}

#[test]
fn every_scheduler_has_a_word_that_names_it() {
    for kind in SchedulerKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    let unknown = "fastest".parse::<SchedulerKind>().unwrap_err().to_string();
    assert!(SchedulerKind::ALL.iter().all(|kind| unknown.contains(kind.name())), "{unknown}");
}

#[test]
fn what_would_wait_for_a_full_window_goes_where_it_arrives_sooner() {
    // The slow path has no unsent data, but its window opens only after an RTT.
    let slow = PathView { window_delay: Span::from_millis(70), ..path(0, 8_000, 70, 0) };
    let fast = path(1, 8_000, 50, FULL_WINDOW - 1);
    assert_eq!(fast.delivery_time(), Span::from_micros(40_999));
    assert_eq!(choose(SchedulerKind::BufferAware, 1_000, &[slow, fast]), send(1));
    // The fast path has no room, but completes the rest earlier.
    let full = path(1, 8_000, 50, FULL_WINDOW);
    assert_eq!(choose(SchedulerKind::BufferAware, 10_000, &[slow, full]), Assignment::Wait);
    let open = PathView { window_delay: Span::ZERO, ..slow };
    assert_eq!(choose(SchedulerKind::BufferAware, 10_000, &[open, full]), send(0));
}

#[test]
fn what_would_stand_in_a_queue_of_the_network_goes_where_it_arrives_sooner() {
    // The path with the smaller RTT has room, but earlier data has filled its queue.
    let near = PathView { drain_time: Span::from_millis(100), ..path(0, 8_000, 50, 0) };
    let far = path(1, 8_000, 70, 0);
    assert_eq!(near.delivery_time(), Span::from_millis(100));
    assert_eq!(choose(SchedulerKind::BufferAware, 1_000, &[near, far]), send(1));
    let shallow = PathView { drain_time: Span::from_millis(20), ..near };
    assert_eq!(shallow.delivery_time(), Span::from_millis(25), "the way takes longer");
    assert_eq!(choose(SchedulerKind::BufferAware, 1_000, &[shallow, far]), send(0));
}

/// Paths of MPBond's set-up: 8 Mbit/s direct, and 10 Mbit/s to a device that passes on 5.
mod pams {
    use super::*;

    const MINE: [SchedulerKind; 3] =
        [SchedulerKind::MinPad, SchedulerKind::PublishedPams, SchedulerKind::Pams];

    fn lent(unsent: u64, backlog: u64) -> PathView {
        let wait = DeviceWait::Backlog { bytes: Size::from_bytes(backlog), lag: Span::ZERO };
        let hop = SecondHop { rate: Rate::from_kbps(5_000), delay: Span::from_millis(3), wait };
        PathView { second_hop: Some(hop), ..path(1, 10_000, 60, unsent) }
    }

    #[test]
    fn the_backlog_of_the_device_counts() {
        // 30 ms, and 33 ms with nothing at the device; 62,500 bytes there take 100 ms.
        let direct = path(0, 8_000, 60, 0);
        for kind in MINE {
            let to = |other: PathView| choose(kind, 1_000_000, &[direct, other]);
            assert_eq!(to(lent(0, 0)), send(0), "{kind}");
            // 40,000 bytes unsent on the direct path take 40 ms.
            let busy = PathView { is_writable: true, ..path(0, 8_000, 60, 40_000) };
            let to = |other: PathView| choose(kind, 1_000_000, &[busy, other]);
            assert_eq!(to(lent(0, 0)), send(1), "{kind}");
            assert_eq!(to(lent(0, 62_500)), send(0), "{kind}");
        }
    }

    #[test]
    fn the_delay_is_that_of_the_slower_half() {
        let view = |unsent, backlog, kbps| {
            let mut view = lent(unsent, backlog);
            view.second_hop =
                view.second_hop.map(|hop| SecondHop { rate: Rate::from_kbps(kbps), ..hop });
            view
        };
        let millis = |view: PathView| view.delivery_time().as_nanos() / 1_000_000;
        // 12,500 bytes: 10 ms to the device, then 20 ms or 2 ms.
        assert_eq!(millis(view(12_500, 0, 5_000)), 43);
        assert_eq!(millis(view(12_500, 0, 50_000)), 43);
        assert_eq!(millis(view(12_500, 50_000, 5_000)), 100);
        // Bytes in flight are before it, too; what the device passes on meanwhile is not.
        let mut flying = view(0, 25_000, 5_000);
        flying.in_flight = Size::from_bytes(37_500);
        assert_eq!(millis(flying), 100);
        let wait = |wait| {
            let mut view = flying;
            view.second_hop = view.second_hop.map(|hop| SecondHop { wait, ..hop });
            millis(view)
        };
        // Some of the bytes have arrived, but that is not known yet.
        let (bytes, lag) = (Size::from_bytes(25_000), Span::from_millis(40));
        assert_eq!(wait(DeviceWait::Backlog { bytes, lag }), 60);
        assert_eq!(wait(DeviceWait::Measured(Span::from_millis(40))), 73);
        let unknown = view(0, 1_000_000, 0);
        assert_eq!(millis(unknown), 33, "its rate is not known yet");
        assert_eq!(unknown.end_rate(), Rate::from_mbps(10));
        assert_eq!(lent(0, 0).end_rate(), Rate::from_mbps(5));
    }

    #[test]
    fn bytes_on_their_way_do_not_wait_at_the_device() {
        let hop = |kbps, wait| SecondHop {
            rate: Rate::from_kbps(kbps),
            delay: Span::from_millis(3),
            wait,
        };
        let lag = Span::from_millis(37);
        let backlog = |kbps, bytes| {
            let bytes = Size::from_bytes(bytes);
            hop(kbps, DeviceWait::Backlog { bytes, lag }).backlog().map(Size::as_bytes)
        };
        // 25,000 bytes have left the device in the last 40 ms.
        assert_eq!(backlog(5_000, 62_500), Some(37_500));
        assert_eq!(backlog(5_000, 20_000), Some(0));
        assert_eq!(backlog(0, 62_500), None, "its rate is not known yet");
        assert_eq!(backlog(0, 0), Some(0));
        let waited = hop(5_000, DeviceWait::Measured(Span::from_millis(40)));
        assert_eq!(waited.backlog(), Some(Size::from_bytes(25_000)));
        assert_eq!(waited.rtt(), Span::from_millis(6));
    }

    #[test]
    fn as_published_the_throughput_is_the_delivery_rate() {
        // The window overstates the rate of the direct path, with 20,000 unsent bytes: 30 + 20 ms, but
        // in fact 30 + 80. The device delivers in 83 ms.
        let overstated = PathView {
            delivery_rate: Rate::from_kbps(2_000),
            is_writable: true,
            ..path(0, 8_000, 60, 20_000)
        };
        for kind in [SchedulerKind::MinPad, SchedulerKind::PublishedPams] {
            assert_eq!(choose(kind, 1_000_000, &[overstated, lent(0, 31_250)]), send(1), "{kind}");
            let exact = PathView { delivery_rate: overstated.rate, ..overstated };
            assert_eq!(choose(kind, 1_000_000, &[exact, lent(0, 31_250)]), send(0), "{kind}");
        }
        // In 27 ms, a full path that delivers 2 Mbit/s delivers 6,750 bytes, not 27,000.
        let full = PathView { is_writable: false, unsent: Size::ZERO, ..overstated };
        let later = lent(0, 15_000);
        assert_eq!(choose(SchedulerKind::PublishedPams, 8_000, &[full, later]), send(1));
        let exact = PathView { delivery_rate: full.rate, ..full };
        assert_eq!(choose(SchedulerKind::PublishedPams, 8_000, &[exact, later]), Assignment::Wait);
    }

    #[test]
    fn a_small_rest_is_left_to_a_busy_path_that_delivers_it_sooner() {
        // The device needs 70 ms more than the direct path, as published 103, which delivers 1,000
        // bytes in each.
        let paths = [path(0, 8_000, 60, FULL_WINDOW), lent(0, 72_500)];
        for (kind, small, large) in [
            (SchedulerKind::MinPad, send(1), send(1)),
            (SchedulerKind::PublishedPams, Assignment::Wait, send(1)),
            (SchedulerKind::Pams, Assignment::Wait, Assignment::Send { index: 1, ahead: 70_000 }),
        ] {
            assert_eq!(choose(kind, 70_000, &paths), small, "{kind}");
            assert_eq!(choose(kind, 1_000_000, &paths), large, "{kind}");
        }
    }
}
