//! Measures speed and accuracy of the emulator on this machine.
//!
//! The endpoints count every figure, not the emulator: TCP payload that the receiver read,
//! datagrams that contain their sending time. The delay figures can be compared with those of a
//! bare relay, which only copies packets: they are the minimum of the machine.
//!
//! [`bench()`] is the whole run. Its parts are public, so that another emulator can be measured
//! with the same endpoints, over the same link, in the same run.

pub mod traffic;

use std::io;
use std::net::SocketAddr;

use manyways_sys::clock::Clock;
use manyways_sys::netns::NetNs;
use manyways_sys::thread::process_cpu;
use manyways_trace::LinkTrace;
use manyways_trace::scenario::{
    CapacitySpec, DelaySpec, Discipline, LinkSpec, QueueLimit, QueueSpec,
};
use manyways_unit::{Rate, Size, Span, Time};
use serde::Serialize;

use self::traffic::{Arrivals, DatagramTimes, Pattern, ping, tcp, udp};
use super::registry::Registry;
use super::{DEFAULT_CC, Lab, LabError, LabSpec, Node, address, network};

/// Delay in each direction in every measurement.
pub const DELAY: Span = Span::from_millis(5);
/// Queue in every measurement.
pub const QUEUE: Span = Span::from_millis(100);
/// IP bytes of a full segment, and the TCP payload in it (IPv4, timestamps).
const MTU: u64 = 1500;
const MSS: u64 = 1448;
/// Time after which slow start has ended even at the slowest rate.
pub const WARM_UP: Span = Span::from_secs(2);
/// Pattern for the measurement of the delay: ten datagrams per millisecond, far below the link's
/// rate.
pub const DELAY_PATTERN: Pattern = Pattern {
    size: 172, // 200 IP bytes
    burst: 1,
    interval: Span::from_micros(100),
    duration: Span::from_secs(3),
};
/// The rate of the link over which the delay is measured.
pub const DELAY_LINK_RATE: Rate = Rate::from_mbps(900);

/// Duration of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct BenchConfig {
    /// Duration of each TCP measurement, after two seconds of warm-up.
    pub duration: Span,
    /// Number of delay measurements, bare and emulated alternately.
    pub rounds: u32,
}

/// Results of all measurements.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// Number of processors.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// Long TCP over one link.
    pub rates: Vec<RateFigure>,
    /// Long TCP over four links simultaneously.
    pub together: Vec<RateFigure>,
    /// Delivered bytes compared with the trace, for each second.
    pub trace: TraceFigure,
    /// Added delay of the emulator.
    pub delay: DelayFigure,
    /// Added delay of the bare relay.
    pub bare_delay: DelayFigure,
    /// Share of a core while no packets pass.
    pub idle_cpu: f64,
    /// The targets, with the measured values.
    pub targets: Vec<Target>,
}

manyways_record::document!(BenchReport, "manyways.lab-bench/1");

/// One long TCP connection.
#[derive(Clone, Debug, Serialize)]
pub struct RateFigure {
    /// The link's rate.
    pub set_bps: u64,
    /// Received IP bits per second: payload × 1500/1448.
    pub reached_bps: u64,
    /// `reached_bps` / `set_bps`.
    pub share: f64,
    /// Share of a core that the relay's thread used.
    pub relay_cpu: f64,
}

/// Delivered bytes compared with a trace.
#[derive(Clone, Debug, Serialize)]
pub struct TraceFigure {
    /// Whole seconds with a backlogged queue.
    pub seconds: usize,
    /// Mean rate of the trace.
    pub mean_bps: u64,
    /// Largest difference within one second, in bytes.
    pub worst_bytes: u64,
    /// Largest difference divided by the bytes that the trace allowed in that second.
    pub worst_share: f64,
    /// Seconds with a difference above max(1 %, 2 MTU).
    pub missed: usize,
}

/// Delay in addition to the configured one, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct DelayFigure {
    /// Datagrams that arrived.
    pub packets: usize,
    /// Datagrams that were lost.
    pub lost: u64,
    /// Minimum; a negative value means too early.
    pub min_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
}

/// One target of the emulator.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// The measured quantity.
    pub name: String,
    /// The bound, as in `>= 0.99`.
    pub bound: String,
    pub measured: f64,
    /// Whether the bound holds.
    pub met: bool,
}

/// Runs all measurements, which takes a few minutes. `progress` receives a message before each.
pub fn bench(
    registry: &Registry,
    config: BenchConfig,
    progress: &mut dyn FnMut(&str),
) -> Result<BenchReport, LabError> {
    let rates = [10, 100, 1_000, 2_500, 10_000].map(Rate::from_mbps).into_iter().map(|rate| {
        progress(&format!("TCP at {rate}"));
        measure_rates(registry, &config, &[rate]).map(|mut figures| figures.remove(0))
    });
    let rates = rates.collect::<Result<Vec<_>, _>>()?;
    progress("TCP over four links at 500 Mbit/s each");
    let together = measure_rates(registry, &config, &[Rate::from_mbps(500); 4])?;
    progress("UDP against a trace");
    let trace = compare_with_trace(registry)?;
    let (mut emulated, mut bare) = (DelaySamples::default(), DelaySamples::default());
    for round in 1..=config.rounds {
        progress(&format!("UDP delay, round {round} of {}", config.rounds));
        bare.add(measure_delay(registry, true)?);
        emulated.add(measure_delay(registry, false)?);
    }
    progress("an idle lab");
    let idle_cpu = measure_idle_cpu(registry)?;
    let (delay, bare_delay) = (emulated.summary(DELAY), bare.summary(Span::ZERO));
    let targets = targets(&rates, &together, &trace, delay, bare_delay, idle_cpu);
    Ok(BenchReport {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .map(|text| text.trim().to_owned())
            .unwrap_or_default(),
        rates,
        together,
        trace,
        delay,
        bare_delay,
        idle_cpu,
        targets,
    })
}

fn targets(
    rates: &[RateFigure],
    together: &[RateFigure],
    trace: &TraceFigure,
    delay: DelayFigure,
    bare: DelayFigure,
    idle_cpu: f64,
) -> Vec<Target> {
    let at_least = |name: String, bound: f64, measured: f64| Target {
        name,
        bound: format!(">= {bound}"),
        measured,
        met: measured >= bound,
    };
    let at_most = |name: String, bound: f64, measured: f64| Target {
        name,
        bound: format!("<= {bound}"),
        measured,
        met: measured <= bound,
    };
    let mut targets = Vec::new();
    for figure in rates {
        let rate = Rate::from_bps(figure.set_bps);
        // At 10 Gbit/s the target is 80 %, on two cores that also run both endpoints.
        let bound = if figure.set_bps >= 10_000_000_000 { 0.8 } else { 0.99 };
        targets.push(at_least(format!("TCP share of {rate}"), bound, figure.share));
        if figure.set_bps == 100_000_000 {
            let name = format!("relay CPU at {rate}, share of a core");
            targets.push(at_most(name, 0.3, figure.relay_cpu));
        }
    }
    let worst = together.iter().map(|figure| figure.share).fold(f64::INFINITY, f64::min);
    targets.push(at_least("worst share of four links at 500 Mbit/s at once".into(), 0.99, worst));
    targets.push(at_most(
        format!("seconds of {} off the trace by more than max(1 %, 2 MTU)", trace.seconds),
        0.0,
        trace.missed as f64,
    ));
    for (name, bound, measured, floor) in [
        ("median", 0.1, delay.p50_us, bare.p50_us),
        ("90th percentile", 0.2, delay.p90_us, bare.p90_us),
        ("99th percentile", 1.5, delay.p99_us, bare.p99_us),
    ] {
        let name = format!("added delay in ms, {name} (bare relay: {:.3})", floor / 1e3);
        targets.push(at_most(name, bound, measured / 1e3));
    }
    targets.push(at_least("added delay in ms, smallest".into(), 0.0, delay.min_us / 1e3));
    targets.push(at_most("relay CPU when idle, share of a core".into(), 0.01, idle_cpu));
    targets
}

fn system(error: io::Error) -> LabError {
    LabError::System { doing: "measure", error }
}

/// Returns the link for all measurements.
pub fn link(index: usize, capacity: CapacitySpec) -> LinkSpec {
    let mut link = LinkSpec::new(format!("link{index}"));
    for direction in [&mut link.down, &mut link.up] {
        direction.capacity = capacity.clone();
        direction.delay = DelaySpec::Constant(DELAY);
        direction.queue =
            QueueSpec { limit: QueueLimit::Time(QUEUE), discipline: Discipline::DropTail };
    }
    link
}

/// Starts a lab for a measurement; `bare` disables the emulation.
pub fn lab(registry: &Registry, links: Vec<LinkSpec>, bare: bool) -> Result<Lab, LabError> {
    let spec = LabSpec {
        bare,
        numbered: true,
        ..LabSpec::new(format!("bench-{}", std::process::id()), links)
    };
    Lab::start(registry, spec)
}

/// Applies the TCP settings of a lab to another namespace. The host must allow [`DEFAULT_CC`] while
/// the namespace is in use: see [`Entry::allow_cc`](super::registry::Entry::allow_cc).
pub fn prepare(namespace: &NetNs) -> io::Result<()> {
    namespace.run(|| network::kernel_settings(DEFAULT_CC))
}

/// Returns the device's IPv4 address on a link, with a port chosen by the kernel.
pub fn device(link: usize) -> SocketAddr {
    (address::device(link)[0], 0).into()
}

/// Measures one long TCP connection per link, all simultaneously.
fn measure_rates(
    registry: &Registry,
    config: &BenchConfig,
    rates: &[Rate],
) -> Result<Vec<RateFigure>, LabError> {
    let links =
        rates.iter().enumerate().map(|(i, rate)| link(i, CapacitySpec::Constant(*rate))).collect();
    let lab = lab(registry, links, false)?;
    let (far, near) = (lab.namespace(Node::Host(0)), lab.namespace(Node::Device(0)));
    let length = WARM_UP + config.duration;
    let clock = Clock::start();
    let before = lab.relay().snapshot().map_err(system)?;
    let arrivals = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..rates.len())
            .map(|index| scope.spawn(move || tcp(far, near, device(index), length)))
            .collect();
        senders
            .into_iter()
            .map(|sender| {
                sender.join().unwrap_or_else(|_| Err(io::Error::other("a sender panicked")))
            })
            .collect::<io::Result<Vec<_>>>()
    })
    .map_err(system)?;
    let after = lab.relay().snapshot().map_err(system)?;
    let wall = Span::from_nanos(clock.now().as_nanos());
    let relay_cpu = (after.cpu - before.cpu).as_secs_f64() / wall.as_secs_f64();
    Ok(rates
        .iter()
        .zip(arrivals)
        .map(|(set, arrivals)| {
            let reached = ip_rate(&arrivals, Time::ZERO + WARM_UP);
            RateFigure {
                set_bps: set.as_bps(),
                reached_bps: reached.as_bps(),
                share: reached.as_bps() as f64 / set.as_bps() as f64,
                relay_cpu,
            }
        })
        .collect())
}

/// Returns the rate after `from`, in IP bytes.
pub fn ip_rate(arrivals: &Arrivals, from: Time) -> Rate {
    let start = arrivals.partition_point(|(at, _)| *at < from);
    match (arrivals.get(start), arrivals.last()) {
        (Some((begun, before)), Some((ended, after))) => {
            let payload = after - before;
            Rate::of(Size::from_bytes(payload * MTU / MSS), ended.since(*begun))
        }
        _ => Rate::ZERO,
    }
}

/// Builds a trace that changes every 100 ms between 2 and 40 Mbit/s, in Mahimahi's model.
fn test_trace() -> Result<LinkTrace, LabError> {
    let mut at = Vec::new();
    let mut credit = 0;
    for millisecond in 0..8_000_u64 {
        let step = millisecond / 100;
        let mbps = 2 + (step * 7 + step * step * 3) % 39;
        credit += mbps * 125; // bytes per millisecond
        while credit >= 1504 {
            credit -= 1504;
            at.push(Span::from_millis(millisecond));
        }
    }
    LinkTrace::opportunities(at, Size::from_bytes(1504), Span::from_secs(8))
        .map_err(|error| LabError::Spec(error.to_string()))
}

/// Sends UDP at more than the trace's rate, so that the queue is never empty.
fn compare_with_trace(registry: &Registry) -> Result<TraceFigure, LabError> {
    let trace = test_trace()?;
    let LinkTrace::Opportunities { at, size, period } = trace.clone() else {
        return Err(LabError::Spec("the trace has no opportunities".into()));
    };
    let capacity = CapacitySpec::Trace { source: "made".into(), trace: trace.clone() };
    let lab = lab(registry, vec![link(0, capacity)], false)?;
    let pattern = Pattern {
        size: 1472,
        burst: 8,
        interval: Span::from_millis(2), // 48 Mbit/s of IP bytes
        duration: Span::from_secs(10),
    };
    let restarted = lab.relay().restart(Span::ZERO, Vec::new()).map_err(system)?;
    let (far, near) = (lab.namespace(Node::Host(0)), lab.namespace(Node::Device(0)));
    let clock = lab.relay().clock();
    let (trips, _) = udp(far, near, device(0), pattern, clock).map_err(system)?;
    let mut seconds = 0;
    let (mut worst_bytes, mut worst_share, mut missed) = (0, 0.0_f64, 0);
    // The first second fills the queue, and the last ones are incomplete.
    for second in 1..9_u64 {
        let (start, end) = (Span::from_secs(second), Span::from_secs(second + 1));
        let allowed = {
            let until = |t: Span| {
                let laps = t.as_nanos() / period.as_nanos();
                let rest = Span::from_nanos(t.as_nanos() % period.as_nanos());
                laps * at.len() as u64 + at.partition_point(|x| *x < rest) as u64
            };
            (until(end) - until(start)) * size.as_bytes()
        };
        let within = |trip: &&DatagramTimes| {
            // Departure from the link, in the trace's time.
            let remaining = trip.arrived.since(restarted) - DELAY;
            remaining >= start && remaining < end
        };
        let delivered = trips.iter().filter(within).count() as u64 * MTU;
        let difference = delivered.abs_diff(allowed);
        seconds += 1;
        worst_bytes = worst_bytes.max(difference);
        worst_share = worst_share.max(difference as f64 / allowed as f64);
        if difference > (allowed / 100).max(2 * MTU) {
            missed += 1;
        }
    }
    Ok(TraceFigure {
        seconds,
        mean_bps: trace.mean_rate().as_bps(),
        worst_bytes,
        worst_share,
        missed,
    })
}

/// Datagrams of one or more measurements.
#[derive(Debug, Default)]
pub struct DelaySamples {
    delays: Vec<f64>,
    lost: u64,
}

impl DelaySamples {
    /// Adds one measurement: the datagrams that arrived, and the number sent.
    pub fn add(&mut self, (trips, sent): (Vec<DatagramTimes>, u64)) {
        self.lost += sent.saturating_sub(trips.len() as u64);
        let micros = |t: Time| t.as_nanos() as f64 / 1e3;
        self.delays.extend(trips.iter().map(|trip| micros(trip.arrived) - micros(trip.sent)));
    }

    /// Returns the delay in addition to the configured one.
    pub fn summary(mut self, configured: Span) -> DelayFigure {
        self.delays.sort_by(f64::total_cmp);
        let base = configured.as_nanos() as f64 / 1e3;
        let at = |share: f64| {
            let index = (self.delays.len().saturating_sub(1)) as f64 * share;
            self.delays.get(index.round() as usize).map_or(f64::NAN, |value| value - base)
        };
        DelayFigure {
            packets: self.delays.len(),
            lost: self.lost,
            min_us: at(0.0),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
        }
    }
}

/// Runs one measurement of the delay.
fn measure_delay(registry: &Registry, bare: bool) -> Result<(Vec<DatagramTimes>, u64), LabError> {
    let lab = lab(registry, vec![link(0, CapacitySpec::Constant(DELAY_LINK_RATE))], bare)?;
    let (far, near) = (lab.namespace(Node::Host(0)), lab.namespace(Node::Device(0)));
    udp(far, near, device(0), DELAY_PATTERN, Clock::start()).map_err(system)
}

/// Measures the share of a core that an idle lab uses, after traffic has passed: a timer that stays
/// armed would not show in a new lab.
fn measure_idle_cpu(registry: &Registry) -> Result<f64, LabError> {
    let lab = lab(registry, vec![link(0, CapacitySpec::Constant(Rate::from_mbps(100)))], false)?;
    let (far, near) = (lab.namespace(Node::Host(0)), lab.namespace(Node::Device(0)));
    ping(far, near, device(0), 10).map_err(system)?;
    let clock = Clock::start();
    let before = process_cpu().map_err(system)?;
    std::thread::sleep(Span::from_secs(3).into());
    let after = process_cpu().map_err(system)?;
    drop(lab);
    Ok((after - before).as_secs_f64() / Span::from_nanos(clock.now().as_nanos()).as_secs_f64())
}
