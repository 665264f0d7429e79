//! The timers of a radio: [`radio::probe`](crate::radio::probe) as a probe.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use manyways_model::probe::cost::{Plan, Transfer};
use manyways_model::radio::gap_sweep::{GapSweep, InferredTimer, ProbeSchedule, infer_timers};
use manyways_model::radio::infer::InferenceError;
use manyways_unit::{Size, Span};

use super::contract::{InvalidParameter, Probe, ProbeError, Run, Running, ip_header, lookup};
use super::report::Measurement;
use crate::radio::probe::{self as gaps, PROBE_TIMEOUT, ProbeFile, Prober};

/// Probes after gaps of different lengths.
#[derive(Clone, Debug)]
pub struct Rrc {
    /// Name or address.
    pub target: String,
    /// TCP port; by default ICMP echoes, or the first port that answers.
    pub port: Option<u16>,
    pub sweep: GapSweep,
    /// Of the order of the gaps.
    pub seed: u64,
    /// File of the results; by default `radio-probe-INTERFACE.csv`.
    pub output: Option<PathBuf>,
    /// Whether an existing file is continued.
    pub is_resumed: bool,
}

/// Result of the probes so far.
#[derive(Clone, Debug)]
pub struct RrcReport {
    pub method: String,
    pub file: PathBuf,
    pub planned: usize,
    pub answered: usize,
    pub disturbed: u64,
    pub lost: u64,
    /// `None` until the probe has ended.
    pub timers: Option<Result<Vec<InferredTimer>, InferenceError>>,
}

impl Rrc {
    pub fn new(target: impl Into<String>) -> Self {
        Self {
            target: target.into(),
            port: None,
            sweep: GapSweep::DEFAULT,
            seed: 1,
            output: None,
            is_resumed: false,
        }
    }

    /// Maximum bytes of a probe and its answer: a handshake whose packets are sent again until the
    /// timeout, which is more than an echo.
    fn one(address: Option<IpAddr>) -> (Size, Size) {
        const SYNS: u64 = 4;
        let packet = address.map_or(40, ip_header) + 40;
        (Size::from_bytes((SYNS + 2) * packet), Size::from_bytes(SYNS * packet))
    }

    async fn measure(&self, run: &mut Run) -> Result<(), ProbeError> {
        let address = run.resolve(&self.target).await?;
        let is_stopped = Stop(Arc::default());
        let stop = Arc::clone(&is_stopped.0);
        let (probe, mut part) = (self.clone(), run.same());
        // The gaps are exact only on a thread of their own.
        let done = tokio::task::spawn_blocking(move || probe.sweep(&mut part, address, &stop));
        done.await.unwrap_or_else(|error| Err(ProbeError::Radio(error.to_string())))
    }

    fn sweep(&self, run: &mut Run, address: IpAddr, stop: &AtomicBool) -> Result<(), ProbeError> {
        let failed = |error: gaps::ProbeError| ProbeError::Radio(error.to_string());
        let (up, down) = Self::one(Some(address));
        for _ in 0..Self::OPENING {
            run.spend(up, down)?;
        }
        let interface = run.network().interface().clone();
        let mut line = Prober::open(&interface.name, &interface.addresses, address, self.port)
            .map_err(failed)?;
        let path = self.output.clone();
        let path =
            path.unwrap_or_else(|| PathBuf::from(format!("radio-probe-{}.csv", interface.name)));
        let mut file = ProbeFile::open(&path, self.is_resumed).map_err(|error| {
            ProbeError::Radio(format!("cannot write {}: {error}", path.display()))
        })?;
        let mut plan = ProbeSchedule::new(&self.sweep, self.seed, &file.planned_gaps())
            .map_err(|error| ProbeError::Radio(error.to_string()))?;
        let method = line.method().description();
        let report = |plan: &ProbeSchedule, timers| {
            Measurement::Rrc(RrcReport {
                method: method.clone(),
                file: path.clone(),
                planned: plan.planned(),
                answered: plan.answered(),
                disturbed: plan.disturbed(),
                lost: plan.lost(),
                timers,
            })
        };
        run.report(report(&plan, None));
        let mut limit = run.spend(up, down);
        let mut pause = |plan: &ProbeSchedule, wait: Span| {
            if wait.is_zero() {
                // A probe is done, and the next one is paid for before its gap begins.
                run.report(report(plan, None));
                limit = run.spend(up, down);
            }
            thread::sleep(Duration::from(wait));
            run.block_while_paused(stop);
            limit.is_ok() && !stop.load(Ordering::Relaxed)
        };
        let done = gaps::run(&mut line, &mut plan, &mut file, &mut pause);
        run.report(report(&plan, Some(infer_timers(file.probes()))));
        limit?;
        done.map(drop).map_err(failed)
    }

    /// Probes until a method is found.
    const OPENING: u64 = 3;
}

/// Ends the thread of a probe that is dropped.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Probe for Rrc {
    fn name(&self) -> &'static str {
        "rrc"
    }

    fn target(&self) -> String {
        match self.port {
            Some(port) if self.target.contains(':') => format!("[{}]:{port}", self.target),
            Some(port) => format!("{}:{port}", self.target),
            None => self.target.clone(),
        }
    }

    /// Every gap may be disturbed once; with more disturbances the file is to be continued.
    fn plan(&self) -> Result<Plan, InvalidParameter> {
        let schedule = ProbeSchedule::new(&self.sweep, self.seed, &[])
            .map_err(|error| InvalidParameter(error.to_string()))?;
        let probes = 2 * schedule.planned() as u64;
        let (up, down) = Self::one(self.target.parse().ok());
        let times = |one: Size| Size::from_bytes((probes + 1 + Self::OPENING) * one.as_bytes());
        let round_trips = Span::from_secs(1) * probes + PROBE_TIMEOUT * Self::OPENING;
        let transfer = Transfer {
            start: Span::ZERO,
            duration: schedule.remaining() * 2 + round_trips,
            up: times(up),
            down: times(down),
        };
        Ok(Plan::new(vec![lookup(&self.target)]).then(Span::ZERO, &Plan::new(vec![transfer])))
    }

    fn can_pause(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, run: &'a mut Run) -> Running<'a> {
        Box::pin(self.measure(run))
    }
}
