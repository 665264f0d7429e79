//! Downloads by [`manyways_proto::fetch::Fetch`] over real TCP (smoltcp's Reno) and emulated links
//! (`manyways-link`), in virtual time: the cost or gain of scheduling decisions.
//!
//! The times are the same on every machine; `expected.txt` contains them. A change that affects
//! them includes the new table, which a failing test prints, after a check that the change is an
//! improvement.

#[path = "../../../link/tests/tcp/link.rs"]
mod link;
mod peer;
mod simulation;

use std::thread;

use manyways_trace::scenario::{
    CapacitySpec, DelaySpec, DirectionSpec, Discipline, LossSpec, QueueLimit, QueueSpec,
};
use manyways_trace::{LinkTrace, Steps};
use manyways_unit::{Rate, Size, Span, Time};

use manyways_proto::estimate::PathEstimate;
use manyways_proto::fetch::{Config, Scheduler};
use peer::Protocol::{self, Http1, Http2};
use simulation::{Outcome, PathSpec, Simulation, fluid_bound, perfect};

const MB: u64 = 1_000_000;

/// Queue limit of the links, as in the demonstration.
const QUEUE: Span = Span::from_millis(150);

/// A link with this rate in both directions. The server's send buffer is slightly smaller than the
/// queue, so that TCP alone causes no loss. Without SACK, smoltcp needs seconds for a recovery that
/// takes a kernel one round trip, and the table would show that instead of the fetch's decisions.
/// Separate cases cover lost packets.
fn path(mbps: u64, rtt: Span) -> PathSpec {
    with_capacity(CapacitySpec::Constant(Rate::from_mbps(mbps)), Rate::from_mbps(mbps), rtt)
}

fn with_capacity(capacity: CapacitySpec, mean: Rate, rtt: Span) -> PathSpec {
    let direction = DirectionSpec {
        capacity,
        delay: DelaySpec::Constant(Span::from_nanos(rtt.as_nanos() / 2)),
        jitter: Span::ZERO,
        reorder: false,
        loss: LossSpec::None,
        queue: QueueSpec { limit: QueueLimit::Time(QUEUE), discipline: Discipline::DropTail },
    };
    // The queue also contains the headers of the packets.
    let send_buffer = Size::from_bytes(mean.size_in(QUEUE).as_bytes() * 9 / 10);
    PathSpec { down: direction.clone(), up: direction, silent_from: None, send_buffer }
}

fn wifi() -> PathSpec {
    path(10, Span::from_millis(28))
}

fn lte() -> PathSpec {
    path(5, Span::from_millis(65))
}

/// A rate that changes every 400 ms, between 2 and 12 Mbit/s.
fn changing(rtt: Span) -> PathSpec {
    let mbps = [6, 9, 12, 7, 3, 2, 5, 8, 11, 4];
    let steps =
        (0..).zip(mbps).map(|(i, mbps)| (Span::from_millis(400 * i), Rate::from_mbps(mbps)));
    let steps = Steps::new(steps.collect(), Span::from_secs(4)).expect("steps in order");
    let trace = LinkTrace::Rates(steps);
    let mean = trace.mean_rate();
    with_capacity(CapacitySpec::Trace { source: String::new(), trace }, mean, rtt)
}

fn silent_from(path: PathSpec, secs: u64) -> PathSpec {
    PathSpec { silent_from: Some(Time::ZERO + Span::from_secs(secs)), ..path }
}

/// A queue that TCP's slow start overruns.
fn shallow(mut path: PathSpec) -> PathSpec {
    path.down.queue.limit = QueueLimit::Time(Span::from_millis(50));
    path
}

fn lossy(mut path: PathSpec, probability: f64) -> PathSpec {
    path.down.loss = LossSpec::Independent(probability);
    path.up.loss = LossSpec::Independent(probability);
    path
}

struct Case {
    name: &'static str,
    length: u64,
    protocol: Protocol,
    paths: Vec<PathSpec>,
    /// Maximum duration, as a multiple of the fluid bound.
    max_ratio: f64,
}

fn cases() -> Vec<Case> {
    let case =
        |name, protocol, paths, max| Case { name, length: 8 * MB, protocol, paths, max_ratio: max };
    let ms = Span::from_millis;
    let equal = || path(10, ms(40));
    vec![
        case("wifi alone", Http2, vec![wifi()], 1.1),
        case("lte alone", Http2, vec![lte()], 1.1),
        case("wifi and lte", Http2, vec![wifi(), lte()], 1.15),
        case("wifi and lte, http/1.1", Http1, vec![wifi(), lte()], 1.15),
        case("lte first", Http2, vec![lte(), wifi()], 1.2),
        Case { length: MB, ..case("wifi and lte, 1 MB", Http2, vec![wifi(), lte()], 2.0) },
        case("equal", Http2, vec![equal(), equal()], 1.2),
        case("40 and 1 mbit/s", Http2, vec![path(40, ms(20)), path(1, ms(80))], 1.3),
        case("1 and 40 mbit/s", Http2, vec![path(1, ms(80)), path(40, ms(20))], 1.5),
        case("three", Http2, vec![wifi(), lte(), path(20, ms(40))], 1.35),
        case("changing rate and lte", Http2, vec![changing(ms(28)), lte()], 1.2),
        case("wifi silent from 2 s", Http2, vec![silent_from(wifi(), 2), lte()], 1.25),
        case("lte silent from 2 s", Http2, vec![wifi(), silent_from(lte(), 2)], 1.2),
        case("50 ms queues", Http2, vec![shallow(wifi()), shallow(lte())], 2.0),
        case("1 % lost both ways", Http2, vec![lossy(wifi(), 0.01), lossy(lte(), 0.01)], 3.5),
    ]
}

fn row(case: &Case) -> (String, f64) {
    let Outcome { took, duplicate, requests, useful, .. } =
        Simulation::new(case.length, case.protocol, &case.paths).run();
    let bound = fluid_bound(case.length, &case.paths).as_secs_f64();
    let ratio = took.as_secs_f64() / bound;
    let shares = useful.iter().map(|useful| format!("{:.2}", *useful as f64 / MB as f64));
    let row = format!(
        "{:<24}{bound:>8.3}{:>9.3}{ratio:>7.3}{requests:>10}{:>14}  {}\n",
        case.name,
        took.as_secs_f64(),
        duplicate / 1_000,
        shares.collect::<Vec<_>>().join(" + "),
    );
    (row, ratio)
}

#[test]
fn downloads_take_the_times_of_the_table() {
    let cases = cases();
    let rows: Vec<(String, f64)> = thread::scope(|scope| {
        let runs: Vec<_> = cases.iter().map(|case| scope.spawn(|| row(case))).collect();
        runs.into_iter().map(|run| run.join().expect("the download works")).collect()
    });
    let mut table = format!(
        "{:<24}{:>8}{:>9}{:>7}{:>10}{:>14}  {}\n",
        "case", "bound s", "took s", "ratio", "requests", "duplicate kB", "MB a path"
    );
    table.extend(rows.iter().map(|(row, _)| row.as_str()));
    println!("{table}");
    for (case, (_, ratio)) in cases.iter().zip(&rows) {
        assert!(*ratio <= case.max_ratio, "{}: {ratio:.3}, at most {}", case.name, case.max_ratio);
    }
    assert!(
        table == include_str!("expected.txt"),
        "other times than those in expected.txt; where they are meant, the table is now\n{table}"
    );
}

/// Rates of two links in Mbit/s, the object's length, and the maximum duration as a multiple of the
/// perfect scheduler's.
type Cell = (u64, u64, u64, f64);

/// A small object leaves little time to compensate for a late start on the second path.
const CELLS: [Cell; 10] = [
    (5, 5, 1 << 19, 1.08),
    (5, 5, 1 << 21, 1.02),
    (5, 10, 1 << 19, 1.06),
    (5, 10, 1 << 21, 1.02),
    (10, 5, 1 << 20, 1.07),
    (10, 5, 1 << 22, 1.02),
    (18, 32, 5 * MB, 1.02),
    (40, 5, 6 * MB, 1.02),
    (20, 20, 6 * MB, 1.02),
    (100, 10, 8 * MB, 1.04),
];

/// Tolerance for known path estimates, which hold for a settled TCP connection and mislead during
/// slow start.
const KNOWN_ESTIMATE_TOLERANCE: f64 = 0.06;

/// T* (the duration with a perfect scheduler), and as multiples of it the durations of the best
/// single path, of MP-H2 (size unknown, size known, path estimates known) and of fixed chunks
/// (1 MiB and 256 KiB).
fn against_perfect(&(a, b, length, most): &Cell) -> (String, bool) {
    let ms = Span::from_millis;
    let specs = [path(a, ms(28)), path(b, ms(65))];
    let of = |scheduler| Config { scheduler, ..Config::default() };
    let alone = specs.each_ref().map(|spec| {
        Simulation::with(of(Scheduler::Single), length, Http2, std::slice::from_ref(spec), &[])
            .run()
    });
    let perfect = perfect(length, &alone).as_secs_f64();
    let best = alone.iter().map(|outcome| outcome.took).min().expect("there are two");
    let sized = || Config { length: Some(length), ..Config::default() };
    let known = [(a, 28), (b, 65)]
        .map(|(mbps, rtt)| PathEstimate { rate: Rate::from_mbps(mbps), rtt: ms(rtt) });
    let run = |config, known: &[PathEstimate]| {
        Simulation::with(config, length, Http2, &specs, known).run().took.as_secs_f64() / perfect
    };
    let ours = [run(Config::default(), &[]), run(sized(), &[]), run(sized(), &known)];
    let chunks = [1024, 256].map(|kib| run(of(Scheduler::FixedChunk(Size::from_kib(kib))), &[]));
    let right = ours[..2].iter().all(|ratio| *ratio <= most)
        && ours[2] <= most + KNOWN_ESTIMATE_TOLERANCE
        && chunks.iter().all(|chunk| ours[0] <= *chunk);
    let kilobytes = length / 1_000;
    let best = best.as_secs_f64() / perfect;
    let mut row = format!("{a:>3} + {b:<3}{kilobytes:>8}{perfect:>8.3}{most:>7.3}{best:>7.3}");
    row.extend(ours.iter().chain(&chunks).map(|ratio| format!("{ratio:>7.3}")));
    (row, right)
}

#[test]
fn close_to_a_perfect_scheduler_and_never_behind_fixed_chunks() {
    let rows: Vec<(String, bool)> = thread::scope(|scope| {
        let runs: Vec<_> = CELLS.iter().map(|cell| scope.spawn(|| against_perfect(cell))).collect();
        runs.into_iter().map(|run| run.join().expect("it works")).collect()
    });
    let head = "links        kB    T* s   most   best  plain    +fs  +bw/l  1 MiB 256 KiB";
    let table: Vec<&str> = rows.iter().map(|(row, _)| row.as_str()).collect();
    println!("{head}\n{}", table.join("\n"));
    let wrong: Vec<&str> =
        rows.iter().filter(|(_, right)| !right).map(|(r, _)| r.as_str()).collect();
    assert!(wrong.is_empty(), "{head}\n{}", wrong.join("\n"));
}

/// Rates of two links now, and as a previous transfer left them, in Mbit/s; the object's length.
type Memory = ((u64, u64), (u64, u64), u64);

const MEMORIES: [Memory; 12] = [
    ((5, 40), (40, 5), 1 << 19),
    ((5, 40), (40, 5), 4 * MB),
    ((40, 5), (5, 40), 1 << 19),
    ((40, 5), (5, 40), 4 * MB),
    ((10, 10), (50, 2), 1 << 19),
    ((10, 10), (50, 2), 4 * MB),
    ((10, 10), (2, 50), 1 << 19),
    ((10, 10), (2, 50), 4 * MB),
    ((20, 5), (1, 1), 4 * MB),
    ((20, 5), (100, 100), 4 * MB),
    ((4, 30), (30, 30), 1 << 19),
    ((4, 30), (30, 30), 4 * MB),
];

/// Durations with a wrong and with the right memory, as multiples of that without one.
fn memory_ratios(&(now, then, length): &Memory) -> [f64; 3] {
    let ms = Span::from_millis;
    let specs = [path(now.0, ms(28)), path(now.1, ms(65))];
    let estimates = |(a, b): (u64, u64)| {
        [(a, 28), (b, 65)]
            .map(|(mbps, rtt)| PathEstimate { rate: Rate::from_mbps(mbps), rtt: ms(rtt) })
    };
    let run = |known: &[PathEstimate]| {
        Simulation::with(Config::default(), length, Http2, &specs, known).run().took.as_secs_f64()
    };
    let [none, wrong, right] = [run(&[]), run(&estimates(then)), run(&estimates(now))];
    [none, wrong / none, right / none]
}

/// A transfer with the right memory may be slower by as much as an unlucky split costs.
const MAX_WITH_MEMORY: f64 = 1.07;

#[test]
fn a_wrong_memory_costs_little() {
    let rows = thread::scope(|scope| {
        let runs = MEMORIES.each_ref().map(|memory| scope.spawn(|| memory_ratios(memory)));
        runs.map(|run| run.join().expect("it works"))
    });
    let rows = MEMORIES.iter().zip(rows);
    let table: Vec<String> = rows
        .clone()
        .map(|(memory, [none, wrong, right])| {
            format!("{memory:?}: {none:.3} s; wrong {wrong:.3}, right {right:.3}")
        })
        .collect();
    println!("{}", table.join("\n"));
    let is_fine = |[_, wrong, right]: [f64; 3]| wrong.max(right) <= MAX_WITH_MEMORY;
    assert!(rows.clone().all(|(_, row)| is_fine(row)), "{}", table.join("\n"));
}

/// Duration of a download over one path with windows that follow the rate, as a multiple of that
/// with windows that never limit it.
fn window_cost(mbps: u64, rtt: u64) -> f64 {
    let specs = [path(mbps, Span::from_millis(rtt))];
    // About as long as the start of the connection takes, which the windows must not slow down.
    let length = Rate::from_mbps(mbps).size_in(Span::from_millis(800)).as_bytes();
    let run = |read_ahead| {
        let config = Config { read_ahead, ..Config::default() };
        Simulation::with(config, length, Http2, &specs, &[]).run().took.as_secs_f64()
    };
    run(Some(2 * length)) / run(None)
}

#[test]
fn windows_that_follow_the_rate_do_not_limit_it() {
    let links = [(5, 65), (10, 28), (20, 40), (40, 20), (40, 65), (100, 28), (100, 65), (200, 40)];
    let costs = thread::scope(|scope| {
        let runs = links.map(|(mbps, rtt)| scope.spawn(move || window_cost(mbps, rtt)));
        runs.map(|run| run.join().expect("it works"))
    });
    let table: Vec<String> = links
        .iter()
        .zip(costs)
        .map(|((mbps, rtt), cost)| format!("{mbps} Mbit/s, {rtt} ms: {cost:.3}"))
        .collect();
    println!("{}", table.join("\n"));
    assert!(costs.iter().all(|cost| *cost <= 1.02), "{}", table.join("\n"));
}
