//! Probes of a network in two stages: pings and a query first, and a burst if the monitor wants it.

use std::sync::Arc;

use manyways_model::probe::burst::BurstSummary;
use manyways_model::probe::round_trips::Echo;
use manyways_model::select::Indicator;
use manyways_unit::{Rate, Size, Span};

use crate::probe::{
    Direction, Dns, Ending, InvalidParameter, Measurement, Network, Options, Ping, PingMethod,
    Probe, ProbeServer, QueryOutcome, QueryReport, Report, Udp, measure,
};

/// Pings of a stage (table 3.2 of Delphi), and their interval. Waiting for the last answer is part of
/// the decision's delay.
const PINGS: u64 = 10;
const INTERVAL: Span = Span::from_millis(100);
const TIMEOUT: Span = Span::from_millis(900);
/// Datagrams of a burst, their payload, and their rate. Delphi's burst has 200 KB.
const DATAGRAMS: u64 = 50;
const PAYLOAD: u16 = 1_200;
const RATE: Rate = Rate::from_mbps(60);

/// The targets of the probes.
#[derive(Clone, Debug)]
pub struct Targets {
    /// Name or address for pings; by default the gateway of the network.
    pub ping: Option<String>,
    pub method: PingMethod,
    /// Name for the query.
    pub name: Option<String>,
    /// Server of the burst; without one, only own traffic shows rates.
    pub server: Option<ProbeServer>,
}

/// The results of a stage.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Stage {
    /// NaN where nothing was measured.
    pub values: Vec<(Indicator, f64)>,
    /// Bytes of both directions.
    pub used: Size,
    /// Why something is missing, as a sentence.
    pub missing: Option<String>,
}

impl Targets {
    /// Pings and a query.
    ///
    /// # Errors
    /// A parameter is invalid.
    pub async fn first(
        &self,
        network: &Network,
        options: &Options,
    ) -> Result<Stage, InvalidParameter> {
        let mut stage = Stage::default();
        let gateway = || network.interface().gateways.first().map(ToString::to_string);
        if let Some(target) = self.ping.clone().or_else(gateway) {
            let ping = Ping {
                method: self.method,
                count: PINGS,
                interval: INTERVAL,
                timeout: TIMEOUT,
                ..Ping::new(target)
            };
            let report = run(&ping, network, options).await?;
            let echoes = match &report.measurement {
                Some(Measurement::Ping(ping)) => ping.echoes.as_slice(),
                _ => &[],
            };
            stage.add(&report, ping_values(echoes));
        } else {
            stage.missing = Some(format!("{} has no gateway to ping", network.interface().name));
        }
        if let Some(name) = &self.name {
            let dns = Dns { count: 1, timeout: TIMEOUT, ..Dns::new(name) };
            let options = Options { spent: options.spent + stage.used, ..options.clone() };
            let report = run(&dns, network, &options).await?;
            let queries = match &report.measurement {
                Some(Measurement::Dns(dns)) => dns.queries.as_slice(),
                _ => &[],
            };
            stage.add(&report, vec![(Indicator::DnsTime, dns_time(queries))]);
        }
        Ok(stage)
    }

    /// The burst; `None` without a server.
    ///
    /// # Errors
    /// A parameter is invalid.
    pub async fn burst(
        &self,
        network: &Network,
        options: &Options,
    ) -> Result<Option<Stage>, InvalidParameter> {
        let Some(burst) = self.udp() else { return Ok(None) };
        let report = run(&burst, network, options).await?;
        let mut stage = Stage::default();
        let values = match &report.measurement {
            Some(Measurement::Udp(udp)) => burst_values(&udp.summary),
            _ => Vec::new(),
        };
        stage.add(&report, values);
        Ok(Some(stage))
    }

    /// Bytes of a burst in both directions, at most.
    ///
    /// # Errors
    /// A parameter is invalid.
    pub fn burst_cost(&self) -> Result<Size, InvalidParameter> {
        let Some(burst) = self.udp() else { return Ok(Size::ZERO) };
        let cost = burst.plan()?.cost(None);
        Ok(cost.up + cost.down)
    }

    fn udp(&self) -> Option<Udp> {
        let udp = Udp::new(self.server.clone()?, Direction::Down);
        Some(Udp { packets: DATAGRAMS, size: PAYLOAD, rate: RATE, ..udp })
    }
}

async fn run(
    probe: &dyn Probe,
    network: &Network,
    options: &Options,
) -> Result<Report, InvalidParameter> {
    measure(probe, network, options, std::future::pending(), Arc::new(|_| {})).await
}

impl Stage {
    fn add(&mut self, report: &Report, values: Vec<(Indicator, f64)>) {
        self.values.extend(values);
        self.used = self.used + report.used.up + report.used.down;
        let why = match &report.ending {
            Ending::Failed(error) => Some(error.to_string()),
            Ending::Limit(limit) => Some(limit.to_string()),
            Ending::Complete | Ending::Stopped => None,
        };
        self.missing = self.missing.take().or(why);
    }
}

/// Round trips; unknown without an answer, so that the network counts as silent.
fn ping_values(echoes: &[Echo]) -> Vec<(Indicator, f64)> {
    let found: Vec<f64> =
        echoes.iter().filter_map(|echo| Some(echo.round_trip?.as_secs_f64())).collect();
    let count = found.len() as f64;
    let mean = found.iter().sum::<f64>() / count;
    let deviation = found.iter().map(|one| (one - mean).abs()).sum::<f64>() / count;
    vec![
        (Indicator::PingMin, found.iter().copied().fold(f64::NAN, f64::min)),
        (Indicator::PingMax, found.iter().copied().fold(f64::NAN, f64::max)),
        (Indicator::PingMean, mean),
        (Indicator::PingDeviation, deviation),
    ]
}

/// Seconds of the first query with an answer; NaN without one.
fn dns_time(queries: &[QueryReport]) -> f64 {
    let is_answered = |outcome: &QueryOutcome| {
        matches!(outcome, QueryOutcome::Addresses(_) | QueryOutcome::NoSuchName)
    };
    let answered = queries.iter().find(|query| is_answered(&query.outcome));
    answered.and_then(|query| query.time).map_or(f64::NAN, |time| time.as_secs_f64())
}

/// Rate, loss and gaps; the rate is 0 if fewer than two datagrams have arrived. It is not above that
/// of the sender: datagrams that waited somewhere arrive at the same time.
fn burst_values(summary: &BurstSummary) -> Vec<(Indicator, f64)> {
    let seconds = |gap: Option<Span>| gap.map_or(f64::NAN, |gap| gap.as_secs_f64());
    let bits = f64::from(PAYLOAD) * 8.0;
    let mean = seconds(summary.mean_gap);
    let rate = |gap: Span| (bits / gap.as_secs_f64() / 1e6).min(RATE.as_mbps_f64());
    let rate = summary.mean_gap.map_or(0.0, rate);
    vec![
        (Indicator::UdpRate, rate),
        (Indicator::UdpLoss, summary.loss.unwrap_or(f64::NAN)),
        (Indicator::UdpGapMean, mean),
        (Indicator::UdpGapMedian, seconds(summary.median_gap)),
        (Indicator::UdpGapP90, seconds(summary.p90_gap)),
    ]
}

#[cfg(test)]
mod tests {
    use manyways_model::probe::burst::{Arrival, summary};
    use manyways_unit::Time;

    use super::*;

    fn value(values: &[(Indicator, f64)], wanted: Indicator) -> f64 {
        values.iter().find(|(one, _)| *one == wanted).unwrap().1
    }

    #[test]
    fn round_trips_are_those_that_were_answered() {
        let echo = |millis: Option<u64>| Echo {
            sent: Time::ZERO,
            round_trip: millis.map(Span::from_millis),
        };
        let values = ping_values(&[echo(Some(20)), echo(None), echo(Some(40))]);
        let found = [Indicator::PingMin, Indicator::PingMax, Indicator::PingMean];
        let found = found.map(|one| value(&values, one));
        assert!((found[2] - 0.030).abs() < 1e-9 && found[..2] == [0.020, 0.040], "{found:?}");
        assert!((value(&values, Indicator::PingDeviation) - 0.010).abs() < 1e-9);
        // Each value is unknown, so that the monitor sees a silent network.
        assert!(ping_values(&[echo(None)]).iter().all(|(_, value)| value.is_nan()));
    }

    #[test]
    fn a_burst_shows_the_rate_by_its_gaps() {
        let arrival = |sequence| Arrival {
            sequence,
            sent: Time::from_millis(sequence),
            received: Time::from_millis(1_000 + 4 * sequence),
        };
        let all: Vec<Arrival> = (0..25).map(arrival).collect();
        let values = burst_values(&summary(50, 0, &all));
        // 1,200 bytes in 4 ms.
        assert!((value(&values, Indicator::UdpRate) - 2.4).abs() < 1e-9);
        assert_eq!(value(&values, Indicator::UdpLoss), 0.5);
        let none = burst_values(&summary(50, 0, &[]));
        assert_eq!(
            (value(&none, Indicator::UdpRate), value(&none, Indicator::UdpLoss)),
            (0.0, 1.0)
        );
    }

    #[test]
    fn datagrams_that_arrive_at_once_show_no_more_than_the_rate_of_the_sender() {
        for gap in [Span::ZERO, Span::from_micros(2)] {
            let arrival = |sequence| Arrival {
                sequence,
                sent: Time::from_millis(sequence),
                received: Time::from_millis(1_000) + gap * sequence,
            };
            let all: Vec<Arrival> = (0..50).map(arrival).collect();
            let values = burst_values(&summary(50, 0, &all));
            assert_eq!(value(&values, Indicator::UdpRate), RATE.as_mbps_f64());
        }
    }
}
