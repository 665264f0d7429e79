//! The routers on the way to a target, and where on it delay and loss begin.
//!
//! All probes have the header fields by which routers choose among equal routes in common, as those
//! of Paris traceroute (B. Augustin et al., Avoiding traceroute anomalies, IMC 2006); their numbers
//! are in fields that no router looks at.

mod packet;
mod socket;

use std::net::IpAddr;
use std::time::Duration;

use manyways_model::probe::cost::{Plan, Transfer};
use manyways_model::probe::trace::{
    DelayOnset, Hop, LossOnset, NextProbe, TraceConfig, TraceSchedule, delay_onset, loss_onset,
};
use manyways_unit::{Size, Span, Time};
use tokio::time::timeout;

use self::socket::TraceSocket;
use super::contract::{InvalidParameter, Probe, ProbeError, Run, Running, ip_header, lookup};
use super::report::Measurement;

/// Probes of the route to a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// Name or address.
    pub target: String,
    pub method: TraceMethod,
    /// Number of probes to each hop.
    pub rounds: u64,
    pub max_hops: usize,
    /// From one probe to the next.
    pub interval: Span,
    /// Time to wait for an answer.
    pub timeout: Span,
}

/// Kind of the probes of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceMethod {
    /// ICMP echoes.
    Icmp,
    /// Datagrams to this port.
    Udp(u16),
    /// SYN packets to this port.
    Tcp(u16),
}

/// Result of a trace.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceReport {
    pub address: IpAddr,
    pub method: TraceMethod,
    /// From TTL 1 on; up to the target if it has answered.
    pub hops: Vec<Hop>,
    pub is_reached: bool,
    pub delay: Option<DelayOnset>,
    pub loss: Option<LossOnset>,
}

impl TraceMethod {
    /// The first port of traceroute.
    pub const UDP_PORT: u16 = 33_434;

    pub fn name(self) -> &'static str {
        match self {
            Self::Icmp => "icmp",
            Self::Udp(_) => "udp",
            Self::Tcp(_) => "tcp",
        }
    }
}

impl Trace {
    pub const MAX_HOPS: usize = 64;
    /// The numbers of the probes have 16 bits.
    pub const MAX_PROBES: u64 = 65_000;
    const MIN_INTERVAL: Span = Span::from_millis(2);
    const GRACE: Span = Span::from_millis(500);

    pub fn new(target: impl Into<String>) -> Self {
        Self {
            target: target.into(),
            method: TraceMethod::Icmp,
            rounds: 10,
            max_hops: 30,
            interval: Span::from_millis(20),
            timeout: Span::from_secs(1),
        }
    }

    fn config(&self) -> TraceConfig {
        TraceConfig {
            rounds: self.rounds,
            max_hops: self.max_hops,
            interval: self.interval,
            timeout: self.timeout,
        }
    }

    /// Maximum bytes of a probe and its answers.
    fn one(&self, address: Option<IpAddr>) -> Transfer {
        let ip = address.map_or(40, ip_header);
        // Routers quote up to this (RFC 1812, 4.3.2.3; RFC 4443, 2.4c). A port that accepts a SYN
        // repeats its answer until it gets the kernel's reset.
        let answer = if address.is_some_and(|address| address.is_ipv4()) { 576 } else { 1_280 };
        let reset = if matches!(self.method, TraceMethod::Tcp(_)) { ip + 20 } else { 0 };
        Transfer {
            start: Span::ZERO,
            duration: self.timeout,
            up: Size::from_bytes(ip + packet::LENGTH as u64 + reset),
            down: Size::from_bytes(answer),
        }
    }

    async fn measure(&self, run: &mut Run) -> Result<(), ProbeError> {
        let address = run.resolve(&self.target).await?;
        let socket = TraceSocket::open(run.path(), address, self.method).await?;
        let mut schedule = TraceSchedule::new(self.config());
        let mut buffer = vec![0; 2_048];
        loop {
            let now = run.now();
            match schedule.next(now) {
                NextProbe::Done => {
                    self.report(run, address, &schedule, socket.is_reached());
                    return Ok(());
                }
                // The answers that are under way still count.
                NextProbe::Send { .. } if run.is_paused() => {
                    let until = now + self.timeout;
                    self.receive(run, &socket, &mut schedule, until, &mut buffer).await?;
                    if run.now() >= until {
                        run.pause_point().await;
                    }
                }
                NextProbe::Send { ttl } => {
                    let one = self.one(Some(address));
                    run.spend(one.up, one.down)?;
                    let number = schedule.send(run.now());
                    socket.send(run.path(), ttl, number as u16).await?;
                }
                NextProbe::Wait(until) => {
                    self.receive(run, &socket, &mut schedule, until, &mut buffer).await?;
                }
            }
        }
    }

    /// Receives an answer, or waits until this time.
    async fn receive(
        &self,
        run: &mut Run,
        socket: &TraceSocket,
        schedule: &mut TraceSchedule,
        until: Time,
        buffer: &mut [u8],
    ) -> Result<(), ProbeError> {
        let wait = Duration::from(until.since(run.now()));
        let Ok(answer) = timeout(wait, socket.receive(buffer)).await else { return Ok(()) };
        let answer =
            answer.map_err(|error| ProbeError::io(run.path(), "receive answers", error))?;
        if let Some(number) = schedule.whole_number(answer.number) {
            schedule.receive(run.now(), number, answer.from, answer.is_end);
            self.report(run, socket.target(), schedule, socket.is_reached());
        }
        Ok(())
    }

    fn report(&self, run: &mut Run, address: IpAddr, schedule: &TraceSchedule, is_reached: bool) {
        let hops = schedule.hops().to_vec();
        run.report(Measurement::Trace(TraceReport {
            address,
            method: self.method,
            is_reached,
            delay: delay_onset(&hops),
            loss: loss_onset(&hops),
            hops,
        }));
    }
}

impl Probe for Trace {
    fn name(&self) -> &'static str {
        "trace"
    }

    fn target(&self) -> String {
        self.target.clone()
    }

    fn plan(&self) -> Result<Plan, InvalidParameter> {
        let refuse = |text: String| Err(InvalidParameter(text));
        if !(1..=Self::MAX_HOPS).contains(&self.max_hops) {
            return refuse(format!("the maximum number of hops is from 1 to {}", Self::MAX_HOPS));
        }
        let probes = self.rounds.saturating_mul(self.max_hops as u64);
        if !(1..=Self::MAX_PROBES).contains(&probes) {
            return refuse(format!(
                "the rounds times the maximum number of hops is from 1 to {}",
                Self::MAX_PROBES
            ));
        }
        if self.interval < Self::MIN_INTERVAL {
            return refuse(format!("the interval is at least {}", Self::MIN_INTERVAL));
        }
        if self.timeout.is_zero() {
            return refuse("the timeout is zero".to_owned());
        }
        let one = self.one(self.target.parse().ok());
        // The first round waits for all its answers before the second one begins.
        let duration = self.timeout * 2 + Self::GRACE;
        let lookup = Plan::new(vec![lookup(&self.target)]);
        let probes = Plan::repeated(Transfer { duration, ..one }, probes, self.interval);
        Ok(lookup.then(Span::ZERO, &probes))
    }

    fn can_pause(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, run: &'a mut Run) -> Running<'a> {
        Box::pin(self.measure(run))
    }
}
