//! Results of probes as JSON.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use manyways_model::probe::compare::{Purpose, Reason};
use manyways_model::probe::cost::{Cost, LimitReached};
use manyways_model::probe::dns::Lie;
use manyways_model::probe::portal::Verdict;
use manyways_model::probe::trace::Hop;
use manyways_proto::resolve::{Family, Transport};
use manyways_unit::{Rate, Span, quantile};
use serde::Serialize;
use serde_json::Value;

use super::compare::{CompareReport, ComparedNetwork, PURPOSES};
use super::dns::{DnsReport, QueryOutcome, QueryReport};
use super::exec::ExecReport;
use super::http::HttpReport;
use super::load::{LoadReport, LoadedDirection};
use super::page::PageDocument;
use super::peer::message::Direction;
use super::portal::PortalReport;
use super::report::{Ending, Measurement, PingReport, Report};
use super::rrc::RrcReport;
use super::tcp::{TcpReport, TcpSample};
use super::trace::TraceReport;
use super::udp::UdpReport;
use super::video::VideoDocument;
use crate::radio::infer::{TimerDocument, timer_documents};

/// The output of `probe --json`: one result for each network. Times are in seconds, sizes in bytes.
#[derive(Debug, Serialize)]
pub struct Document {
    probe: &'static str,
    target: String,
    results: Vec<ResultDocument>,
}

manyways_record::document!(Document, "manyways.probe/1");

impl Document {
    pub fn new(probe: &'static str, target: String, reports: &[Report]) -> Self {
        Self { probe, target, results: reports.iter().map(ResultDocument::of).collect() }
    }
}

/// The output of `probe compare --json`. Times are in seconds, sizes in bytes, rates in bits a
/// second.
#[derive(Debug, Serialize)]
pub struct CompareDocument {
    target: String,
    complete: bool,
    /// From the measurement to the transfers that the purposes are of.
    after: f64,
    networks: Vec<ComparedDocument>,
    purposes: Vec<PurposeDocument>,
}

manyways_record::document!(CompareDocument, "manyways.probe-compare/1");

#[derive(Debug, Serialize)]
struct ComparedDocument {
    interface: String,
    kind: &'static str,
    round_trip: Option<f64>,
    jitter: Option<f64>,
    loss: Option<f64>,
    down: Option<u64>,
    up: Option<u64>,
    /// Rate of a download while the other networks downloaded too.
    together: Option<u64>,
    used: u64,
    /// The single measurements, as `probe ping --json` and `probe tcp --json` have them.
    results: Vec<ResultDocument>,
}

/// The best network for a purpose.
#[derive(Debug, Serialize)]
struct PurposeDocument {
    purpose: &'static str,
    /// Interface of the best network; null if that is unsure.
    best: Option<String>,
    certainty: f64,
    reason: Option<&'static str>,
    /// Expected seconds of a download, or the rating of a call from 0 to 100, for each network that
    /// could be measured.
    values: BTreeMap<String, Option<f64>>,
}

impl CompareDocument {
    pub fn new(target: String, report: &CompareReport) -> Self {
        let name =
            |index: usize| report.networks.get(index).map(|one| one.ping.context.interface.clone());
        let purpose = |(purpose, compared): &(&'static str, Purpose)| {
            let (indices, comparison) = report.compare(*compared);
            let values = indices.iter().zip(&comparison.values).filter_map(|(index, value)| {
                Some((name(*index)?, Some(*value).filter(|value| value.is_finite())))
            });
            let winner = comparison.winner.and_then(|winner| indices.get(winner).copied());
            PurposeDocument {
                purpose,
                best: winner.and_then(name),
                certainty: comparison.certainty,
                reason: comparison.reason.map(Reason::name),
                values: values.collect(),
            }
        };
        Self {
            target,
            complete: report.is_complete,
            after: report.after.as_secs_f64(),
            networks: report.networks.iter().map(ComparedDocument::of).collect(),
            purposes: PURPOSES.iter().map(purpose).collect(),
        }
    }
}

impl ComparedDocument {
    fn of(network: &ComparedNetwork) -> Self {
        let rate =
            |report: &Option<Report>| ComparedNetwork::rate(report.as_ref()).map(Rate::as_bps);
        Self {
            interface: network.ping.context.interface.clone(),
            kind: network.ping.context.kind,
            round_trip: network.round_trip().map(Span::as_secs_f64),
            jitter: network.jitter().map(Span::as_secs_f64),
            loss: network.loss(),
            down: rate(&network.down),
            up: rate(&network.up),
            together: rate(&network.together),
            used: network.used().as_bytes(),
            results: network.reports().map(ResultDocument::of).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct ResultDocument {
    interface: String,
    kind: &'static str,
    metered: bool,
    ipv4: bool,
    ipv6: bool,
    signal_dbm: Option<f64>,
    /// Whether packets passed shortly before; null if unknown.
    active_before: Option<bool>,
    /// Since the Unix epoch.
    started: f64,
    attempts: u32,
    ending: &'static str,
    message: Option<String>,
    hint: Option<String>,
    predicted: CostDocument,
    used: CostDocument,
    foreign_up: Option<u64>,
    foreign_down: Option<u64>,
    disturbed: Option<bool>,
    #[serde(flatten)]
    measurement: Option<MeasurementDocument>,
}

/// The result of the probe, in a field with its name.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum MeasurementDocument {
    Ping(PingDocument),
    Dns(DnsDocument),
    Trace(TraceDocument),
    Http(HttpDocument),
    Portal(PortalDocument),
    Load(LoadDocument),
    Tcp(TcpDocument),
    Udp(UdpDocument),
    Exec(ExecDocument),
    Page(PageDocument),
    Rrc(RrcDocument),
    Video(VideoDocument),
}

impl ResultDocument {
    fn of(report: &Report) -> Self {
        let context = &report.context;
        let measurement = report.measurement.as_ref().map(|measurement| match measurement {
            Measurement::Ping(ping) => MeasurementDocument::Ping(PingDocument::of(ping)),
            Measurement::Dns(dns) => MeasurementDocument::Dns(DnsDocument::of(dns)),
            Measurement::Trace(trace) => MeasurementDocument::Trace(TraceDocument::of(trace)),
            Measurement::Http(http) => MeasurementDocument::Http(HttpDocument::of(http)),
            Measurement::Portal(portal) => MeasurementDocument::Portal(PortalDocument::of(portal)),
            Measurement::Load(load) => MeasurementDocument::Load(LoadDocument::of(load)),
            Measurement::Tcp(tcp) => MeasurementDocument::Tcp(TcpDocument::of(tcp)),
            Measurement::Udp(udp) => MeasurementDocument::Udp(UdpDocument::of(udp)),
            Measurement::Exec(exec) => MeasurementDocument::Exec(ExecDocument::of(exec)),
            Measurement::Page(page) => MeasurementDocument::Page(PageDocument::of(page)),
            Measurement::Rrc(rrc) => MeasurementDocument::Rrc(RrcDocument::of(rrc)),
            Measurement::Video(video) => MeasurementDocument::Video(VideoDocument::of(video)),
        });
        Self {
            interface: context.interface.clone(),
            kind: context.kind,
            metered: context.is_metered,
            ipv4: context.has_ipv4,
            ipv6: context.has_ipv6,
            signal_dbm: context.signal_dbm,
            active_before: context.is_active_before,
            started: report.started.as_secs_f64(),
            attempts: report.attempts,
            ending: report.ending.name(),
            message: report.ending.message(),
            hint: report.ending.hint(),
            predicted: CostDocument::of(&report.predicted),
            used: CostDocument::of(&report.used),
            foreign_up: report.foreign.map(|foreign| foreign.up.as_bytes()),
            foreign_down: report.foreign.map(|foreign| foreign.down.as_bytes()),
            disturbed: report.foreign.map(|foreign| foreign.is_noticeable()),
            measurement,
        }
    }
}

impl Ending {
    /// Name in documents.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Limit(LimitReached::Cap(_)) => "data-limit",
            Self::Limit(_) => "prediction",
            Self::Stopped => "stopped",
            Self::Failed(_) => "failed",
        }
    }

    /// The step that may help against an early end.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Failed(error) => error.hint(),
            _ => None,
        }
    }

    /// The reason of an early end, as a sentence without a capital.
    pub fn message(&self) -> Option<String> {
        match self {
            Self::Complete | Self::Stopped => None,
            Self::Limit(limit) => Some(limit.to_string()),
            Self::Failed(error) => Some(error.to_string()),
        }
    }
}

#[derive(Debug, Serialize)]
struct CostDocument {
    up: u64,
    down: u64,
    duration: f64,
    energy_joules: Option<f64>,
}

impl CostDocument {
    fn of(cost: &Cost) -> Self {
        Self {
            up: cost.up.as_bytes(),
            down: cost.down.as_bytes(),
            duration: cost.duration.as_secs_f64(),
            energy_joules: cost.energy.map(|energy| energy.as_joules()),
        }
    }
}

#[derive(Debug, Serialize)]
struct PingDocument {
    address: IpAddr,
    method: &'static str,
    sent: u64,
    received: u64,
    refused: u64,
    loss: Option<f64>,
    duplicates: u64,
    reordered: u64,
    min: Option<f64>,
    median: Option<f64>,
    mean: Option<f64>,
    p90: Option<f64>,
    max: Option<f64>,
    jitter: Option<f64>,
    /// In the order of sending; null without an answer.
    round_trips: Vec<Option<f64>>,
}

impl PingDocument {
    fn of(ping: &PingReport) -> Self {
        let seconds = |span: Option<Span>| span.map(|span| span.as_secs_f64());
        let summary = &ping.summary;
        Self {
            address: ping.address,
            method: ping.method.name(),
            sent: summary.sent,
            received: summary.received,
            refused: ping.refused,
            loss: summary.loss,
            duplicates: summary.duplicates,
            reordered: summary.reordered,
            min: seconds(summary.min),
            median: seconds(summary.median),
            mean: seconds(summary.mean),
            p90: seconds(summary.p90),
            max: seconds(summary.max),
            jitter: seconds(summary.jitter),
            round_trips: ping.echoes.iter().map(|echo| seconds(echo.round_trip)).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct DnsDocument {
    /// A wrong answer: `rewritten-no-name`, `private`, `portal`, `denied`.
    lie: Option<&'static str>,
    rewrites_missing_names: Option<bool>,
    queries: Vec<QueryDocument>,
}

impl DnsDocument {
    fn of(dns: &DnsReport) -> Self {
        Self {
            lie: dns.lie.map(Lie::name),
            rewrites_missing_names: dns.rewrites_missing_names,
            queries: dns.queries.iter().map(QueryDocument::of).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct QueryDocument {
    server: IpAddr,
    second: bool,
    record: &'static str,
    transport: &'static str,
    time: Option<f64>,
    outcome: &'static str,
    addresses: Vec<IpAddr>,
    message: Option<String>,
}

impl QueryDocument {
    fn of(query: &QueryReport) -> Self {
        let (outcome, addresses, message) = match &query.outcome {
            QueryOutcome::Addresses(addresses) => ("addresses", addresses.clone(), None),
            QueryOutcome::NoSuchName => ("no-such-name", Vec::new(), None),
            QueryOutcome::Truncated => ("truncated", Vec::new(), None),
            QueryOutcome::Failed(error) => ("failed", Vec::new(), Some(error.to_string())),
            QueryOutcome::TimedOut => ("timed-out", Vec::new(), None),
        };
        Self {
            server: query.server,
            second: query.is_second,
            record: match query.family {
                Family::V4 => "A",
                Family::V6 => "AAAA",
            },
            transport: match query.transport {
                Transport::Udp => "udp",
                Transport::Tcp => "tcp",
            },
            time: query.time.map(|time| time.as_secs_f64()),
            outcome,
            addresses,
            message,
        }
    }
}

#[derive(Debug, Serialize)]
struct TraceDocument {
    address: IpAddr,
    method: &'static str,
    reached: bool,
    delay: Option<DelayDocument>,
    loss: Option<LossDocument>,
    hops: Vec<HopDocument>,
}

#[derive(Debug, Serialize)]
struct DelayDocument {
    hop: usize,
    after: Option<usize>,
    delay: f64,
}

#[derive(Debug, Serialize)]
struct LossDocument {
    hop: usize,
    after: Option<usize>,
    loss: f64,
    confidence: f64,
}

#[derive(Debug, Serialize)]
struct HopDocument {
    hop: usize,
    addresses: Vec<IpAddr>,
    sent: u64,
    received: usize,
    min: Option<f64>,
    median: Option<f64>,
    max: Option<f64>,
}

impl TraceDocument {
    fn of(trace: &TraceReport) -> Self {
        let hop = |(index, hop): (usize, &Hop)| {
            let mut sorted = hop.round_trips.clone();
            sorted.sort_unstable();
            let seconds = |span: Option<Span>| span.map(|span| span.as_secs_f64());
            HopDocument {
                hop: index + 1,
                addresses: hop.addresses.clone(),
                sent: hop.sent,
                received: sorted.len(),
                min: seconds(sorted.first().copied()),
                median: seconds(quantile::of_sorted(&sorted, 0.5)),
                max: seconds(sorted.last().copied()),
            }
        };
        Self {
            address: trace.address,
            method: trace.method.name(),
            reached: trace.is_reached,
            delay: trace.delay.map(|onset| DelayDocument {
                hop: onset.hop,
                after: onset.after,
                delay: onset.delay.as_secs_f64(),
            }),
            loss: trace.loss.map(|onset| LossDocument {
                hop: onset.hop,
                after: onset.after,
                loss: onset.loss,
                confidence: onset.confidence,
            }),
            hops: trace.hops.iter().enumerate().map(hop).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct HttpDocument {
    server: Option<SocketAddr>,
    addresses: Vec<IpAddr>,
    protocol: Option<&'static str>,
    status: Option<u16>,
    location: Option<String>,
    lookup: Option<f64>,
    connect: Option<f64>,
    tls: Option<f64>,
    first_byte: Option<f64>,
    body: Option<f64>,
    total: Option<f64>,
    body_bytes: u64,
    whole: bool,
}

impl HttpDocument {
    fn of(http: &HttpReport) -> Self {
        let seconds = |span: Option<Span>| span.map(|span| span.as_secs_f64());
        let phases = &http.phases;
        Self {
            server: http.server,
            addresses: http.addresses.clone(),
            protocol: http.protocol,
            status: http.status,
            location: http.location.clone(),
            lookup: seconds(phases.lookup),
            connect: seconds(phases.connect),
            tls: seconds(phases.tls),
            first_byte: seconds(phases.first_byte),
            body: seconds(phases.body),
            total: seconds(phases.total),
            body_bytes: http.body.as_bytes(),
            whole: http.is_complete,
        }
    }
}

#[derive(Debug, Serialize)]
struct PortalDocument {
    /// `validated`, `captive`, `dns-lies` or `no-internet`.
    verdict: Option<&'static str>,
    login: Option<String>,
    encrypted: Option<bool>,
    lie: Option<&'static str>,
    page: HttpDocument,
}

impl PortalDocument {
    fn of(portal: &PortalReport) -> Self {
        let login = match &portal.verdict {
            Some(Verdict::Captive { login }) => login.clone(),
            _ => None,
        };
        Self {
            verdict: portal.verdict.as_ref().map(Verdict::name),
            login,
            encrypted: portal.is_encrypted,
            lie: portal.lie.map(Lie::name),
            page: HttpDocument::of(&portal.http),
        }
    }
}

#[derive(Debug, Serialize)]
struct TcpDocument {
    direction: Direction,
    bytes: u64,
    duration: f64,
    first_byte: Option<f64>,
    /// In bits a second.
    rate: Option<u64>,
    ramp: Option<f64>,
    error: Option<f64>,
    stable: Option<bool>,
    slots: Vec<u64>,
    samples: Vec<SampleDocument>,
}

#[derive(Debug, Serialize)]
struct SampleDocument {
    at: f64,
    rtt: Option<f64>,
    cwnd: u32,
    retransmitted: u32,
}

impl TcpDocument {
    fn of(tcp: &TcpReport) -> Self {
        let sample = |sample: &TcpSample| SampleDocument {
            at: sample.at.as_secs_f64(),
            rtt: sample.rtt.map(Span::as_secs_f64),
            cwnd: sample.cwnd,
            retransmitted: sample.retransmitted,
        };
        Self {
            direction: tcp.direction,
            bytes: tcp.bytes.as_bytes(),
            duration: tcp.duration.as_secs_f64(),
            first_byte: tcp.first_byte.map(Span::as_secs_f64),
            rate: tcp.estimate.map(|estimate| estimate.rate.as_bps()),
            ramp: tcp.estimate.map(|estimate| estimate.ramp.as_secs_f64()),
            error: tcp.estimate.and_then(|estimate| estimate.error),
            stable: tcp.estimate.map(|estimate| estimate.is_stable),
            slots: tcp.slots.clone(),
            samples: tcp.samples.iter().map(sample).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct UdpDocument {
    direction: Direction,
    sent: u64,
    received: u64,
    dropped: u64,
    loss: Option<f64>,
    duplicates: u64,
    reordered: u64,
    mean_gap: Option<f64>,
    median_gap: Option<f64>,
    p90_gap: Option<f64>,
    median_variation: Option<f64>,
    p90_variation: Option<f64>,
    max_variation: Option<f64>,
}

impl UdpDocument {
    fn of(udp: &UdpReport) -> Self {
        let seconds = |span: Option<Span>| span.map(|span| span.as_secs_f64());
        let summary = &udp.summary;
        Self {
            direction: udp.direction,
            sent: summary.sent,
            received: summary.received,
            dropped: summary.dropped,
            loss: summary.loss,
            duplicates: summary.duplicates,
            reordered: summary.reordered,
            mean_gap: seconds(summary.mean_gap),
            median_gap: seconds(summary.median_gap),
            p90_gap: seconds(summary.p90_gap),
            median_variation: seconds(summary.median_variation),
            p90_variation: seconds(summary.p90_variation),
            max_variation: seconds(summary.max_variation),
        }
    }
}

#[derive(Debug, Serialize)]
struct LoadDocument {
    idle: Vec<f64>,
    directions: Vec<LoadedDocument>,
}

#[derive(Debug, Serialize)]
struct LoadedDocument {
    direction: Direction,
    loaded: Vec<f64>,
    /// In bits a second.
    rate: Option<u64>,
    idle_median: Option<f64>,
    loaded_median: Option<f64>,
    queueing: Option<f64>,
    bufferbloat: Option<bool>,
    /// Round trips a minute.
    responsiveness: Option<f64>,
}

impl LoadDocument {
    fn of(load: &LoadReport) -> Self {
        let seconds = |spans: &[Span]| spans.iter().map(|span| span.as_secs_f64()).collect();
        let direction = |loaded: &LoadedDirection| LoadedDocument {
            direction: loaded.direction,
            loaded: seconds(&loaded.loaded),
            rate: loaded.rate.map(Rate::as_bps),
            idle_median: loaded.summary.map(|summary| summary.idle.as_secs_f64()),
            loaded_median: loaded.summary.map(|summary| summary.loaded.as_secs_f64()),
            queueing: loaded.summary.map(|summary| summary.queueing().as_secs_f64()),
            bufferbloat: loaded.summary.map(|summary| summary.bufferbloat().is_some()),
            responsiveness: loaded.summary.map(|summary| summary.responsiveness),
        };
        Self {
            idle: seconds(&load.idle),
            directions: load.directions.iter().map(direction).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct ExecDocument {
    exit_code: Option<i32>,
    signal: Option<i32>,
    /// The output: as it is if it is JSON, else as a text.
    output: Value,
    truncated: bool,
}

impl ExecDocument {
    fn of(exec: &ExecReport) -> Self {
        Self {
            exit_code: exec.exit_code,
            signal: exec.signal,
            output: exec.json().unwrap_or_else(|| Value::String(exec.output.clone())),
            truncated: exec.is_truncated,
        }
    }
}

#[derive(Debug, Serialize)]
struct RrcDocument {
    method: String,
    file: String,
    planned: usize,
    answered: usize,
    disturbed: u64,
    lost: u64,
    no_timer: Option<String>,
    timers: Vec<TimerDocument>,
}

impl RrcDocument {
    fn of(rrc: &RrcReport) -> Self {
        let found = rrc.timers.as_ref();
        let timers = found.and_then(|found| found.as_deref().ok()).unwrap_or_default();
        Self {
            method: rrc.method.clone(),
            file: rrc.file.display().to_string(),
            planned: rrc.planned,
            answered: rrc.answered,
            disturbed: rrc.disturbed,
            lost: rrc.lost,
            no_timer: found.and_then(|found| found.as_ref().err()).map(ToString::to_string),
            timers: timer_documents(timers),
        }
    }
}
