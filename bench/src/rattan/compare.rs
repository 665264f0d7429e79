//! The run: in each round, every measurement over both emulators, one after the other.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use manyways_lab::bench::traffic::{Arrivals, DatagramTimes, tcp, udp};
use manyways_lab::bench::{
    DELAY, DELAY_LINK_RATE, DELAY_PATTERN, DelayFigure, DelaySamples, WARM_UP, device, ip_rate,
    lab, link,
};
use manyways_lab::registry::Registry;
use manyways_lab::{DEFAULT_CC, Lab, LabError, Node};
use manyways_rig::machine;
use manyways_rig::sample::Quartiles;
use manyways_rig::sockets::counter;
use manyways_sys::clock::Clock;
use manyways_sys::netns::NetNs;
use manyways_trace::scenario::CapacitySpec;
use manyways_unit::{Rate, Size, Span, Time};
use serde::Serialize;

use super::{Rattan, RattanError, install};
use crate::rattan;

/// Name and version of the report's schema.
pub const SCHEMA: &str = "manyways.bench-rattan/1";

/// Link rates of the TCP measurements.
const RATES: [Rate; 5] = [
    Rate::from_mbps(10),
    Rate::from_mbps(100),
    Rate::from_mbps(500),
    Rate::from_mbps(1_000),
    Rate::from_mbps(2_500),
];

/// The enlarged receive buffer of Rattan's sockets; larger than Rattan ever fills.
pub const WIDE_BUFFER: Size = Size::from_mib(32);

pub struct Config {
    /// Duration of each TCP measurement, after [`WARM_UP`].
    pub length: Span,
    /// Number of rounds.
    pub rounds: u32,
    /// Number of Rattan's worker threads.
    pub workers: u32,
    /// Path of Rattan, or the reason why it is not available.
    pub binary: Result<PathBuf, String>,
}

/// All figures of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// Number of available processors.
    pub cores: usize,
    /// As in `/proc/sys/kernel/osrelease`.
    pub kernel: String,
    pub rattan_version: &'static str,
    pub rattan_workers: u32,
    /// Reason why Rattan could not run; in this case the report has no figures. `None` if it ran.
    pub unavailable: Option<String>,
    /// Number of rounds.
    pub rounds: u32,
    /// Duration of each TCP measurement, without its warm-up.
    pub length_seconds: f64,
    /// Results of the TCP measurements, by rate.
    pub rates: Vec<RateCase>,
    /// Delay above the configured delay.
    pub delay: Option<DelayCase>,
    /// Reasons of failed measurements, which are left out.
    pub failures: Vec<String>,
}

/// One link rate over both emulators.
#[derive(Debug, Serialize)]
pub struct RateCase {
    /// Configured rate of the link.
    pub set_bps: u64,
    /// In the order of the measurements.
    pub rounds: Vec<RateRound>,
    pub manyways: Option<RateSummary>,
    pub rattan: Option<RateSummary>,
    /// Rattan with larger socket buffers.
    pub rattan_wide: Option<RateSummary>,
    /// Share of manyways divided by that of Rattan, pair by pair.
    pub ratio: Option<Quartiles>,
    /// Share of manyways divided by that of Rattan with larger socket buffers, pair by pair.
    pub ratio_wide: Option<Quartiles>,
}

/// One round of TCP measurements.
#[derive(Debug, Serialize)]
pub struct RateRound {
    /// `None` if the measurement failed.
    pub manyways: Option<RateSample>,
    /// `None` if the measurement failed.
    pub rattan: Option<RateSample>,
    /// Rattan with a receive buffer of [`WIDE_BUFFER`]; `None` if the measurement failed.
    pub rattan_wide: Option<RateSample>,
}

/// The result of one long TCP connection.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RateSample {
    /// Received IP bits per second divided by the configured rate.
    pub share: f64,
    /// Share of a core that the emulator used.
    pub cpu: f64,
    /// Segments that the sender retransmitted, including the warm-up.
    pub retransmitted: u64,
}

/// Statistics over the rounds.
#[derive(Debug, Serialize)]
pub struct RateSummary {
    /// Quartiles of [`RateSample::share`].
    pub share: Quartiles,
    /// Quartiles of [`RateSample::cpu`].
    pub cpu: Quartiles,
    /// Quartiles of [`RateSample::retransmitted`].
    pub retransmitted: Quartiles,
}

/// Delay over both emulators and over the bare relay.
#[derive(Debug, Serialize)]
pub struct DelayCase {
    /// In the order of the measurements.
    pub rounds: Vec<DelayRound>,
    pub manyways: Option<DelaySummary>,
    /// The bare relay, which shows the delay of the machine itself.
    pub bare: Option<DelaySummary>,
    pub rattan: Option<DelaySummary>,
    /// Median delay that Rattan adds divided by the one that manyways adds, pair by pair.
    pub ratio: Option<Quartiles>,
}

/// One round of delay measurements.
#[derive(Debug, Serialize)]
pub struct DelayRound {
    /// `None` if the measurement failed.
    pub manyways: Option<DelayFigure>,
    /// A relay without emulation; `None` if the measurement failed.
    pub bare: Option<DelayFigure>,
    /// `None` if the measurement failed.
    pub rattan: Option<DelayFigure>,
}

/// Statistics over the rounds, in microseconds.
#[derive(Debug, Serialize)]
pub struct DelaySummary {
    /// Of the minimum of each round.
    pub min_us: Quartiles,
    /// Of the median of each round.
    pub p50_us: Quartiles,
    /// Of the 90th percentile of each round.
    pub p90_us: Quartiles,
    /// Of the 99th percentile of each round.
    pub p99_us: Quartiles,
    /// Lost datagrams over all rounds.
    pub lost: u64,
    /// Sent datagrams over all rounds.
    pub sent: u64,
}

/// Measures everything. Calls `progress` with the name of each measurement before its start.
///
/// Must be called while the process has a single thread.
pub fn compare(config: &Config, progress: &mut dyn FnMut(&str)) -> Result<Report, LabError> {
    let mut report = Report {
        schema: SCHEMA,
        cores: machine::cores(),
        kernel: machine::kernel(),
        rattan_version: install::VERSION,
        rattan_workers: config.workers,
        unavailable: None,
        rounds: config.rounds,
        length_seconds: config.length.as_secs_f64(),
        rates: Vec::new(),
        delay: None,
        failures: Vec::new(),
    };
    let binary = match &config.binary {
        Ok(binary) => binary,
        Err(reason) => {
            report.unavailable = Some(reason.clone());
            return Ok(report);
        }
    };
    if !manyways_sys::sandbox::is_root() {
        report.unavailable = Some("not run: it needs root".into());
        return Ok(report);
    }
    let registry = Registry::of_user().map_err(system)?;
    registry.collect().map_err(system)?;
    // Rattan's namespaces must use the same congestion control as those of a lab.
    let mut claim = registry.claim(&format!("rattan-{}", std::process::id())).map_err(system)?;
    claim
        .allow_cc(DEFAULT_CC)
        .map_err(|error| LabError::CongestionControl { cc: DEFAULT_CC.to_owned(), error })?;

    let start = |rate| Rattan::start(binary, rate, config.workers);
    progress("whether Rattan runs");
    if let Err(error) = start(RATES[0]) {
        report.unavailable = Some(format!("not run: {error}"));
        return Ok(report);
    }

    let mut bench = Bench { registry: &registry, start_rattan: &start, failures: Vec::new() };
    let mut rates: Vec<(Rate, Vec<RateRound>)> = RATES.map(|rate| (rate, Vec::new())).into();
    let mut delays = Vec::new();
    for round in 1..=config.rounds {
        let of = format!("round {round} of {}", config.rounds);
        for (rate, rounds) in &mut rates {
            progress(&format!("TCP at {rate}, {of}"));
            rounds.push(bench.rate_round(*rate, WARM_UP + config.length, round));
        }
        progress(&format!("UDP delay, {of}"));
        delays.push(bench.delay_round(round % 2 == 1));
    }
    report.failures = bench.failures;
    report.rates = rates.into_iter().map(|(rate, rounds)| rate_case(rate, rounds)).collect();
    report.delay = Some(delay_case(delays));
    Ok(report)
}

struct Bench<'a> {
    registry: &'a Registry,
    start_rattan: &'a dyn Fn(Rate) -> Result<Rattan, RattanError>,
    failures: Vec<String>,
}

impl Bench<'_> {
    fn rate_round(&mut self, rate: Rate, length: Span, round: u32) -> RateRound {
        let what = format!("TCP at {rate}, round {round}");
        let mut found = RateRound { manyways: None, rattan: None, rattan_wide: None };
        // The first contender changes from round to round.
        for turn in 0..3 {
            match (turn + round) % 3 {
                0 => {
                    let sample = self.rate_of_lab(rate, length);
                    found.manyways = self.or_failure(&format!("{what}, manyways"), sample);
                }
                1 => {
                    let sample = self.rate_of_rattan(rate, length, None);
                    found.rattan = self.or_failure(&format!("{what}, Rattan"), sample);
                }
                _ => {
                    let sample = self.rate_of_rattan(rate, length, Some(WIDE_BUFFER));
                    let what = format!("{what}, Rattan with larger buffers");
                    found.rattan_wide = self.or_failure(&what, sample);
                }
            }
        }
        found
    }

    fn rate_of_lab(&self, rate: Rate, length: Span) -> Result<RateSample, LabError> {
        let lab = self.lab(rate, false)?;
        let cpu = || Ok(lab.relay().snapshot()?.cpu);
        long_tcp(&Endpoints::of_lab(&lab), rate, length, &cpu).map_err(system)
    }

    fn rate_of_rattan(
        &self,
        rate: Rate,
        length: Span,
        buffer: Option<Size>,
    ) -> Result<RateSample, RattanError> {
        let rattan = (self.start_rattan)(rate)?;
        if let Some(buffer) = buffer {
            rattan.enlarge_buffers(buffer).map_err(rattan::system("give it larger buffers"))?;
        }
        long_tcp(&Endpoints::of_rattan(&rattan), rate, length, &|| rattan.cpu())
            .map_err(rattan::system("measure"))
    }

    fn delay_round(&mut self, ours_first: bool) -> DelayRound {
        let ours = |bare| {
            let lab = self.lab(DELAY_LINK_RATE, bare)?;
            trickle(&Endpoints::of_lab(&lab)).map_err(system)
        };
        let theirs = || {
            let rattan = (self.start_rattan)(DELAY_LINK_RATE)?;
            trickle(&Endpoints::of_rattan(&rattan)).map_err(rattan::system("measure"))
        };
        let ((bare, manyways), rattan) = in_order(ours_first, || (ours(true), ours(false)), theirs);
        let mut figure = |what, trips, configured| {
            let mut all = DelaySamples::default();
            all.add(self.or_failure(what, trips)?);
            Some(all.summary(configured))
        };
        DelayRound {
            manyways: figure("UDP delay, manyways", manyways, DELAY),
            bare: figure("UDP delay, bare relay", bare, Span::ZERO),
            rattan: figure(
                "UDP delay, Rattan",
                rattan.map_err(|error| LabError::Spec(error.to_string())),
                DELAY,
            ),
        }
    }

    fn lab(&self, rate: Rate, bare: bool) -> Result<Lab, LabError> {
        lab(self.registry, vec![link(0, CapacitySpec::Constant(rate))], bare)
    }

    fn or_failure<T, E: Display>(&mut self, what: &str, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.failures.push(format!("{what}: {error}"))).ok()
    }
}

fn in_order<A, B>(a_first: bool, a: impl FnOnce() -> A, b: impl FnOnce() -> B) -> (A, B) {
    if a_first {
        let a = a();
        (a, b())
    } else {
        let b = b();
        (a(), b)
    }
}

/// Sender and receiver of a measurement.
struct Endpoints<'a> {
    sender: &'a NetNs,
    receiver: &'a NetNs,
    address: SocketAddr,
}

impl<'a> Endpoints<'a> {
    fn of_lab(lab: &'a Lab) -> Self {
        Self {
            sender: lab.namespace(Node::Host(0)),
            receiver: lab.namespace(Node::Device(0)),
            address: device(0),
        }
    }

    fn of_rattan(rattan: &'a Rattan) -> Self {
        let (receiver, address) = rattan.left();
        Self { sender: rattan.right(), receiver, address }
    }
}

fn long_tcp(
    ends: &Endpoints<'_>,
    set: Rate,
    length: Span,
    cpu: &dyn Fn() -> io::Result<Span>,
) -> io::Result<RateSample> {
    let clock = Clock::start();
    let before = cpu()?;
    let arrivals: Arrivals = tcp(ends.sender, ends.receiver, ends.address, length)?;
    let used = cpu()?.saturating_sub(before);
    let wall = clock.now().since(Time::ZERO);
    let reached = ip_rate(&arrivals, Time::ZERO + WARM_UP);
    Ok(RateSample {
        share: reached.as_bps() as f64 / set.as_bps() as f64,
        cpu: used.as_secs_f64() / wall.as_secs_f64(),
        retransmitted: ends.sender.run(retransmitted)?,
    })
}

/// Segments that the calling thread's namespace has retransmitted since its creation.
fn retransmitted() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
    counter(&text, "Tcp:", "RetransSegs").ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn trickle(ends: &Endpoints<'_>) -> io::Result<(Vec<DatagramTimes>, u64)> {
    udp(ends.sender, ends.receiver, ends.address, DELAY_PATTERN, Clock::start())
}

fn rate_case(rate: Rate, rounds: Vec<RateRound>) -> RateCase {
    let summary = |samples: Vec<RateSample>| {
        let of = |value: fn(&RateSample) -> f64| Quartiles::of(samples.iter().map(value));
        Some(RateSummary {
            share: of(|sample| sample.share)?,
            cpu: of(|sample| sample.cpu)?,
            retransmitted: of(|sample| sample.retransmitted as f64)?,
        })
    };
    let ratio = |theirs: fn(&RateRound) -> Option<RateSample>| {
        let of_pair = |round: &RateRound| Some(round.manyways?.share / theirs(round)?.share);
        Quartiles::of(rounds.iter().filter_map(of_pair))
    };
    RateCase {
        set_bps: rate.as_bps(),
        manyways: summary(rounds.iter().filter_map(|round| round.manyways).collect()),
        rattan: summary(rounds.iter().filter_map(|round| round.rattan).collect()),
        rattan_wide: summary(rounds.iter().filter_map(|round| round.rattan_wide).collect()),
        ratio: ratio(|round| round.rattan),
        ratio_wide: ratio(|round| round.rattan_wide),
        rounds,
    }
}

fn delay_case(rounds: Vec<DelayRound>) -> DelayCase {
    let summary = |figures: Vec<DelayFigure>| {
        let of = |value: fn(&DelayFigure) -> f64| Quartiles::of(figures.iter().map(value));
        let lost = figures.iter().map(|figure| figure.lost).sum();
        Some(DelaySummary {
            min_us: of(|figure| figure.min_us)?,
            p50_us: of(|figure| figure.p50_us)?,
            p90_us: of(|figure| figure.p90_us)?,
            p99_us: of(|figure| figure.p99_us)?,
            lost,
            sent: lost + figures.iter().map(|figure| figure.packets as u64).sum::<u64>(),
        })
    };
    let ratio = |round: &DelayRound| Some(round.rattan?.p50_us / round.manyways?.p50_us);
    DelayCase {
        manyways: summary(rounds.iter().filter_map(|round| round.manyways).collect()),
        bare: summary(rounds.iter().filter_map(|round| round.bare).collect()),
        rattan: summary(rounds.iter().filter_map(|round| round.rattan).collect()),
        ratio: Quartiles::of(rounds.iter().filter_map(ratio)),
        rounds,
    }
}

fn system(error: io::Error) -> LabError {
    LabError::System { doing: "measure", error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_that_of_a_pair_and_a_failed_one_counts_on_neither_side() {
        let sample = |share| RateSample { share, cpu: 0.5, retransmitted: 3 };
        let round = |ours, theirs: Option<f64>| RateRound {
            manyways: Some(sample(ours)),
            rattan: theirs.map(sample),
            rattan_wide: None,
        };
        let case = rate_case(
            Rate::from_mbps(10),
            vec![round(0.8, Some(0.4)), round(0.9, None), round(1.0, Some(1.0))],
        );
        assert_eq!(case.ratio.unwrap().median, 1.5);
        assert_eq!(case.manyways.unwrap().share.median, 0.9);
        assert_eq!(case.rattan.unwrap().share.median, 0.7);
        assert!(rate_case(Rate::from_mbps(10), vec![round(1.0, None)]).rattan.is_none());
    }

    #[test]
    fn without_a_binary_the_report_says_why() {
        let config = Config {
            length: Span::from_secs(1),
            rounds: 1,
            workers: 1,
            binary: Err("not built: no network".into()),
        };
        let report = compare(&config, &mut |_| ()).unwrap();
        assert_eq!(report.unavailable.as_deref(), Some("not built: no network"));
        let table = rattan::table::markdown(&report);
        assert!(table.contains("Rattan: not built: no network"), "{table}");
    }
}
