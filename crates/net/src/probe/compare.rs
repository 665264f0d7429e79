//! All networks of a host beside each other: the measurements of the crowd app of S. Deng et al.
//! (WiFi, LTE, or Both?, IMC 2014), and which network suits a purpose.

use std::sync::Arc;

use manyways_model::probe::compare::{
    AT_ONCE, Comparison, NetworkMeasurement, Purpose, Transfer, compare,
};
use manyways_model::probe::cost::{Cost, LimitReached, Plan};
use manyways_unit::{Rate, Size, Span};
use tokio::sync::watch;

use super::contract::{InvalidParameter, Options, Probe, measure};
use super::network::Network;
use super::peer::client::ProbeServer;
use super::peer::message::Direction;
use super::ping::{Ping, PingMethod};
use super::report::{Ending, Measurement, Report};
use super::tcp::{Tcp, TcpReport};

/// Measurements of several networks with one server.
#[derive(Clone, Debug)]
pub struct Compare {
    pub server: ProbeServer,
    /// Of each transfer.
    pub bytes: Size,
    /// Number of round trips.
    pub pings: u64,
    /// Maximum duration of each transfer.
    pub duration: Span,
    /// From the measurement to the transfers and calls that the networks are compared for.
    pub after: Span,
    /// Bytes that earlier comparisons used on each network, which count for the data limit.
    pub spent: Vec<(String, Size)>,
}

/// The measurements of a comparison.
#[derive(Clone, Debug)]
pub struct CompareReport {
    pub networks: Vec<ComparedNetwork>,
    /// Whether all networks were measured to the end.
    pub is_complete: bool,
    /// From the measurement to the transfers and calls that the networks are compared for.
    pub after: Span,
}

/// The measurements of a network.
#[derive(Clone, Debug)]
pub struct ComparedNetwork {
    pub ping: Report,
    /// `None` if an earlier measurement of the network failed or the comparison was stopped.
    pub down: Option<Report>,
    pub up: Option<Report>,
    /// Download while all other networks downloaded too.
    pub together: Option<Report>,
}

/// Purposes for which networks are compared, with their names in documents and tables.
pub const PURPOSES: [(&str, Purpose); 4] = [
    ("10kb", Purpose::Download(Size::from_bytes(10_000))),
    ("1mb", Purpose::Download(Size::from_bytes(1_000_000))),
    ("10mb", Purpose::Download(Size::from_bytes(10_000_000))),
    ("call", Purpose::Call),
];

impl Compare {
    /// As the crowd app: 1 MB in each direction, and ten round trips.
    pub fn new(server: ProbeServer) -> Self {
        Self {
            server,
            bytes: Size::from_bytes(1_000_000),
            pings: 10,
            duration: Span::from_secs(30),
            after: AT_ONCE,
            spent: Vec::new(),
        }
    }

    fn ping(&self) -> Ping {
        let method = PingMethod::Tcp(self.server.port);
        Ping { method, count: self.pings, ..Ping::new(self.server.host.clone()) }
    }

    fn transfer(&self, direction: Direction) -> Tcp {
        Tcp {
            duration: self.duration,
            is_full: true,
            bytes: self.bytes,
            ..Tcp::new(self.server.clone(), direction)
        }
    }

    fn spent(&self, network: &Network) -> Size {
        let name = &network.interface().name;
        let spent = self.spent.iter().find(|(interface, _)| interface == name);
        spent.map_or(Size::ZERO, |(_, spent)| *spent)
    }

    /// The maximum cost on each of several networks.
    ///
    /// # Errors
    /// A parameter is invalid.
    pub fn cost(&self, networks: usize, options: &Options) -> Result<Cost, InvalidParameter> {
        let down = self.transfer(Direction::Down).plan()?;
        let mut plan: Plan = self
            .ping()
            .plan()?
            .then(Span::ZERO, &down)
            .then(Span::ZERO, &self.transfer(Direction::Up).plan()?);
        if networks > 1 {
            plan = plan.then(Span::ZERO, &down);
        }
        Ok(plan.cost(options.radio.as_ref()))
    }

    /// Measures the networks one after the other, and then the downloads together. `stop` becomes
    /// true to end early.
    ///
    /// # Errors
    /// A parameter is invalid.
    pub async fn run(
        &self,
        networks: &[Network],
        options: &Options,
        stop: watch::Receiver<bool>,
        progress: &(dyn Fn(&Network, &str) + Send + Sync),
    ) -> Result<CompareReport, InvalidParameter> {
        let one = async |probe: &dyn Probe, network: &Network, spent: Size| {
            let spent = spent + self.spent(network);
            let options = Options { spent, ..options.clone() };
            let mut stop = stop.clone();
            let stopped = async move {
                if stop.wait_for(|is_stopped| *is_stopped).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            measure(probe, network, &options, stopped, Arc::new(|_| {})).await
        };
        let mut found: Vec<ComparedNetwork> = Vec::new();
        for network in networks {
            progress(network, "ping");
            let ping = one(&self.ping(), network, Size::ZERO).await?;
            let mut compared = ComparedNetwork { ping, down: None, up: None, together: None };
            if is_whole(&compared.ping) {
                progress(network, "down");
                let probe = self.transfer(Direction::Down);
                let down = one(&probe, network, compared.used()).await?;
                let is_down = is_whole(&down);
                compared.down = Some(down);
                if is_down {
                    progress(network, "up");
                    let probe = self.transfer(Direction::Up);
                    compared.up = Some(one(&probe, network, compared.used()).await?);
                }
            }
            found.push(compared);
        }
        let is_alone = found.iter().all(ComparedNetwork::is_measured);
        if is_alone && networks.len() > 1 {
            let probe = self.transfer(Direction::Down);
            let together = networks.iter().zip(&found).map(|(network, compared)| {
                let (one, probe, spent) = (&one, &probe, compared.used());
                async move {
                    progress(network, "together");
                    one(probe, network, spent).await
                }
            });
            let together = join_all(together).await;
            for (compared, report) in found.iter_mut().zip(together) {
                compared.together = Some(report?);
            }
        }
        let is_whole = |report: Option<&Report>| report.is_some_and(is_whole);
        let is_complete = is_alone
            && found.iter().all(|one| networks.len() == 1 || is_whole(one.together.as_ref()));
        Ok(CompareReport { networks: found, is_complete, after: self.after })
    }
}

/// Runs futures of one kind side by side, and returns their results in their order.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(move |context| {
        for (future, result) in running.iter_mut().filter(|(_, result)| result.is_none()) {
            if let std::task::Poll::Ready(ready) = future.as_mut().poll(context) {
                *result = Some(ready);
            }
        }
        match running.iter().all(|(_, result)| result.is_some()) {
            true => std::task::Poll::Ready(
                running.iter_mut().filter_map(|(_, result)| result.take()).collect(),
            ),
            false => std::task::Poll::Pending,
        }
    })
    .await
}

fn is_whole(report: &Report) -> bool {
    matches!(report.ending, Ending::Complete)
}

impl ComparedNetwork {
    fn is_measured(&self) -> bool {
        let reports = [Some(&self.ping), self.down.as_ref(), self.up.as_ref()];
        reports.into_iter().all(|report| report.is_some_and(is_whole))
    }

    /// The measurements that were made.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        let more = [&self.down, &self.up, &self.together];
        std::iter::once(&self.ping).chain(more.into_iter().flatten())
    }

    /// Bytes of both directions.
    pub fn used(&self) -> Size {
        let used = self.reports().map(|report| (report.used.up + report.used.down).as_bytes());
        Size::from_bytes(used.sum())
    }

    /// Median round trip.
    pub fn round_trip(&self) -> Option<Span> {
        let Some(Measurement::Ping(ping)) = &self.ping.measurement else { return None };
        ping.summary.median
    }

    /// Lost share of the round trips.
    pub fn loss(&self) -> Option<f64> {
        let Some(Measurement::Ping(ping)) = &self.ping.measurement else { return None };
        ping.summary.loss
    }

    /// Mean difference of consecutive round trips.
    pub fn jitter(&self) -> Option<Span> {
        let Some(Measurement::Ping(ping)) = &self.ping.measurement else { return None };
        ping.summary.jitter
    }

    /// A transfer; `None` if it ended early, because its rate may be that of its slow start.
    fn transfer(report: Option<&Report>) -> Option<Transfer> {
        let report = report.filter(|report| is_whole(report))?;
        let Some(Measurement::Tcp(tcp)) = &report.measurement else { return None };
        let TcpReport { bytes, duration, first_byte, estimate, .. } = *tcp;
        Some(Transfer { bytes, duration, first_byte, estimate })
    }

    /// The rate of a transfer; `None` if it ended early.
    pub fn rate(report: Option<&Report>) -> Option<Rate> {
        Self::transfer(report).map(|transfer| transfer.rate())
    }

    /// The input of the comparison; `None` if a part is missing.
    pub fn measurement(&self) -> Option<NetworkMeasurement> {
        let Some(Measurement::Ping(ping)) = &self.ping.measurement else { return None };
        let together = Self::transfer(self.together.as_ref());
        NetworkMeasurement::of(
            &ping.summary,
            &Self::transfer(self.down.as_ref())?,
            together.as_ref(),
        )
    }
}

impl CompareReport {
    /// Whether the data limit of a network ended a measurement.
    pub fn is_limited(&self) -> bool {
        let mut reports = self.networks.iter().flat_map(ComparedNetwork::reports);
        reports.any(|report| matches!(report.ending, Ending::Limit(LimitReached::Cap(_))))
    }

    /// Compares the measured networks for a purpose. Returns their indices too, to which those of
    /// the comparison refer.
    pub fn compare(&self, purpose: Purpose) -> (Vec<usize>, Comparison) {
        let measured = self.networks.iter().enumerate();
        let measured = measured.filter_map(|(index, one)| Some((index, one.measurement()?)));
        let (indices, networks): (Vec<usize>, Vec<NetworkMeasurement>) = measured.unzip();
        let comparison = compare(&networks, purpose, self.after);
        (indices, comparison)
    }
}
