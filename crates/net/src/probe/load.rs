//! Round trips of an idle network, and of one under load.

use std::sync::Arc;

use manyways_model::probe::cost::Plan;
use manyways_model::probe::load::LoadSummary;
use manyways_unit::{Rate, Size, Span, Time};

use super::contract::{InvalidParameter, Probe, ProbeError, Run, Running};
use super::peer::client::ProbeServer;
use super::peer::message::Direction;
use super::ping::{Ping, PingMethod};
use super::report::Measurement;
use super::tcp::Tcp;

/// Round trips to a probe server, first alone and then beside a bulk transfer in each direction.
#[derive(Clone, Debug)]
pub struct Load {
    pub server: ProbeServer,
    pub directions: Vec<Direction>,
    /// Of each transfer.
    pub duration: Span,
    /// Maximum bytes of each transfer.
    pub bytes: Size,
}

/// Result of a load probe.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LoadReport {
    /// Round trips without load.
    pub idle: Vec<Span>,
    pub directions: Vec<LoadedDirection>,
}

/// Round trips beside a transfer.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadedDirection {
    pub direction: Direction,
    /// Sent after the transfer has had time to fill the queues.
    pub loaded: Vec<Span>,
    /// Of the transfer.
    pub rate: Option<Rate>,
    /// `None` with too few round trips.
    pub summary: Option<LoadSummary>,
}

impl Load {
    /// Part of a transfer in which it may still fill the queues.
    const RAMP: f64 = 0.3;
    const INTERVAL: Span = Span::from_millis(50);
    const TIMEOUT: Span = Span::from_secs(3);
    const IDLE_COUNT: u64 = 20;

    pub fn new(server: ProbeServer) -> Self {
        Self {
            server,
            directions: vec![Direction::Down, Direction::Up],
            duration: Span::from_secs(6),
            bytes: Size::from_bytes(300_000_000),
        }
    }

    /// Handshakes, because any user may send them and the server answers them in its kernel.
    fn ping(&self, count: u64) -> Ping {
        Ping {
            method: PingMethod::Tcp(self.server.port),
            count,
            interval: Self::INTERVAL,
            timeout: Self::TIMEOUT,
            ..Ping::new(self.server.host.clone())
        }
    }

    fn loaded_count(&self) -> u64 {
        (self.duration.as_nanos() / Self::INTERVAL.as_nanos()).max(1)
    }

    fn transfer(&self, direction: Direction) -> Tcp {
        Tcp {
            duration: self.duration,
            is_full: true,
            bytes: self.bytes,
            ..Tcp::new(self.server.clone(), direction)
        }
    }

    async fn measure(&self, run: &mut Run) -> Result<(), ProbeError> {
        let silent = || run.part(Arc::new(|_| {}));
        let (mut alone, mut parts) = (silent(), Vec::new());
        for direction in &self.directions {
            parts.push((*direction, silent(), silent()));
        }
        let mut report = LoadReport::default();
        self.ping(Self::IDLE_COUNT).run(&mut alone).await?;
        report.idle = round_trips(&alone, Time::ZERO);
        run.report(Measurement::Load(report.clone()));
        for (direction, mut pings, mut bulk) in parts {
            let begin = run.now();
            let (ping, transfer) = (self.ping(self.loaded_count()), self.transfer(direction));
            let (answered, transferred) =
                tokio::join!(ping.run(&mut pings), transfer.run(&mut bulk));
            transferred?;
            answered?;
            let full = begin + Span::from_secs_f64(self.duration.as_secs_f64() * Self::RAMP);
            let loaded = round_trips(&pings, full);
            let rate = match bulk.measurement() {
                Some(Measurement::Tcp(tcp)) => tcp.estimate.map(|estimate| estimate.rate),
                _ => None,
            };
            let summary = LoadSummary::of(&report.idle, &loaded);
            report.directions.push(LoadedDirection { direction, loaded, rate, summary });
            run.report(Measurement::Load(report.clone()));
        }
        Ok(())
    }
}

/// Round trips of the packets that were sent from `from` on.
fn round_trips(run: &Run, from: Time) -> Vec<Span> {
    let Some(Measurement::Ping(ping)) = run.measurement() else { return Vec::new() };
    let sent = ping.echoes.iter().filter(|echo| echo.sent >= from);
    sent.filter_map(|echo| echo.round_trip).collect()
}

impl Probe for Load {
    fn name(&self) -> &'static str {
        "load"
    }

    fn target(&self) -> String {
        self.server.name()
    }

    fn plan(&self) -> Result<Plan, InvalidParameter> {
        if self.directions.is_empty() {
            return Err(InvalidParameter("no direction is named".to_owned()));
        }
        let mut plan = self.ping(Self::IDLE_COUNT).plan()?;
        for direction in &self.directions {
            let loaded = self.ping(self.loaded_count()).plan()?;
            // Beside each other; one after the other is an upper bound of the duration.
            plan =
                plan.then(Span::ZERO, &loaded).then(Span::ZERO, &self.transfer(*direction).plan()?);
        }
        Ok(plan)
    }

    fn run<'a>(&'a self, run: &'a mut Run) -> Running<'a> {
        Box::pin(self.measure(run))
    }
}
