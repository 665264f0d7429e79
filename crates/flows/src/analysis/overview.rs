//! Data of a report: histograms, and the largest servers, clients and slow flows.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use manyways_unit::{Rate, Size, Span, Time};

use super::top_entries::{EntryCounters, TopEntries};
use super::{FlowExchange, Histogram, HttpTransaction, TcpFlow, UdpFlow};
use crate::flow::{Estimate, LimitedBy, SenderLimit};
use manyways_record::table::Anonymizer;
use manyways_wire::dns::Lookup;
use manyways_wire::stream::Endpoint;

/// Maximum number of servers, and of clients, with separate counters.
const MAX_ENDPOINTS: usize = 1 << 12;
/// Maximum number of slow flows.
const MAX_SLOW_TRANSFERS: usize = 12;
/// Minimum number of data segments of a slow flow, because shorter flows are limited by their
/// initial window: the very long flows of the paper (campus Wi-Fi, 5.2).
const MIN_SLOW_SEGMENTS: u64 = 50;
/// Larger initial windows, in segments, are counted together.
pub const MAX_INITIAL_WINDOW: u64 = 64;
/// Upper bounds of the classes of loss; flows without loss have their own class.
pub const LOSS_BOUNDS: [f64; 3] = [0.001, 0.01, 0.05];

/// Statistics of all flows of a run, in bounded memory.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// Servicing rate of each HTTP flow.
    pub servicing_rate: Histogram<Rate>,
    /// Response times of HTTP/1.
    pub responses: Histogram<Span>,
    /// Response times of inferred exchanges, most of which are encrypted.
    pub inferred_responses: Histogram<Span>,
    /// Latencies of DNS queries.
    pub lookups: Histogram<Span>,
    /// Flows with data by their loss on the local and on the remote side: none, up to each value of
    /// [`LOSS_BOUNDS`], more.
    pub losses: [[u64; LOSS_BOUNDS.len() + 2]; 2],
    /// Flows by their initial window in segments; the key `WINDOWS + 1` stands for all larger ones.
    pub initial_windows: BTreeMap<u64, u64>,
    /// Flows with only a lower bound of the initial window.
    pub lower_bound_windows: u64,
    /// Traffic by the protocols of the tables `tcp` and `udp`.
    pub protocols: BTreeMap<(&'static str, &'static str), TrafficTotals>,
    /// Sender limits of servers, by the kind of the client's device.
    pub limited_by: BTreeMap<DeviceKind, LimitedBy>,
    servers: TopEntries<EndpointStats, MAX_ENDPOINTS>,
    clients: TopEntries<EndpointStats, MAX_ENDPOINTS>,
    slow_transfers: Vec<SlowTransfer>,
}

/// Kind of device that a flow belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    Handheld,
    /// Any other device.
    Other,
    /// A device of unknown kind.
    Unknown,
}

/// Number of flows and their payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficTotals {
    pub flows: u64,
    /// Payload bytes: from clients, then from servers.
    pub bytes: [u64; 2],
}

/// Statistics of the flows of one server name, or of one client.
#[derive(Clone, Debug, Default)]
pub struct EndpointStats {
    /// TCP and UDP flows.
    pub traffic: TrafficTotals,
    /// Median round-trip time of each TCP flow.
    pub rtt: Histogram<Span>,
    /// Median of each TCP flow between capture point and local endpoint.
    pub local_rtt: Histogram<Span>,
    /// Median of each TCP flow between capture point and remote endpoint.
    pub remote_rtt: Histogram<Span>,
    /// Median response time of each flow.
    pub response_time: Histogram<Span>,
    /// Data segments of both endpoints.
    pub data_segments: u64,
    /// Segments lost on the local and on the remote side.
    pub lost: [u64; 2],
    /// Sender limits of the servers.
    pub limited_by: LimitedBy,
    /// Organisation of a server, or operating system of a client; `None` if unknown.
    pub description: Option<String>,
}

/// A flow whose server was limited for a long time.
#[derive(Clone, Debug)]
pub struct SlowTransfer {
    /// Identifier of the flow in all tables.
    pub flow: u64,
    pub started: Time,
    /// Address of the client.
    pub client: String,
    /// Name of the server.
    pub server: String,
    /// Bytes that the server sent.
    pub bytes: u64,
    /// Time in which the server had data to send, and was limited by a window, loss or the path.
    pub busy: Span,
    /// `bytes` per `busy`.
    pub rate: Rate,
    /// Time of each sender limit.
    pub limited_by: LimitedBy,
    /// Median round-trip time, and its local and remote part.
    pub rtt: [Option<Span>; 3],
    /// Share of segments lost on the local and on the remote side, 0 to 1.
    pub loss: [Option<f64>; 2],
}

impl Overview {
    /// Returns the servers with the most bytes, at most `max`, and the sum of the others. Keys are
    /// registered domains, or else names or addresses.
    pub fn servers(&self, max: usize) -> (Vec<(&str, EndpointStats)>, EndpointStats) {
        self.servers.largest(max)
    }

    /// Returns the clients with the most bytes by address, at most `max`, and the sum of the
    /// others.
    pub fn clients(&self, max: usize) -> (Vec<(&str, EndpointStats)>, EndpointStats) {
        self.clients.largest(max)
    }

    /// Returns the flows with the lowest [`SlowTransfer::rate`], slowest first, of those with at
    /// least 50 data segments of the server.
    pub fn slow_transfers(&self) -> &[SlowTransfer] {
        &self.slow_transfers
    }

    pub(super) fn add_tcp(&mut self, flow: &TcpFlow, mut anonymizer: Option<&mut Anonymizer>) {
        let bytes = [Endpoint::Client, Endpoint::Server].map(|end| flow.connection.bytes(end));
        let totals = TrafficTotals { flows: 1, bytes };
        let protocol = flow.application.protocol.unwrap_or("nothing");
        self.protocols.entry(("tcp", protocol)).or_default().add(&totals);
        let limited_by = *flow.connection.limited_by(Endpoint::Server);
        let class = match flow.enrichment.is_handheld() {
            Some(true) => DeviceKind::Handheld,
            Some(false) => DeviceKind::Other,
            None => DeviceKind::Unknown,
        };
        add_limits(self.limited_by.entry(class).or_default(), &limited_by);
        let http = flow.application.http.as_ref();
        self.servicing_rate.push_some(http.and_then(|http| http.servicing_rate()));
        match flow.initial_window() {
            Some((segments, Estimate { is_valid: true, .. })) => {
                *self.initial_windows.entry(segments.min(MAX_INITIAL_WINDOW + 1)).or_default() += 1;
            }
            Some(_) => self.lower_bound_windows += 1,
            None => {}
        }
        let sides = [true, false];
        let lost = sides.map(|is_local| flow.lost(is_local));
        let loss = sides.map(|is_local| flow.loss_rate(is_local));
        for (classes, rate) in self.losses.iter_mut().zip(loss) {
            let Some(rate) = rate else { continue };
            let above = LOSS_BOUNDS.iter().filter(|end| rate > **end).count();
            let class = if rate > 0.0 { above + 1 } else { 0 };
            classes.iter_mut().skip(class).take(1).for_each(|count| *count += 1);
        }
        let rtt = [flow.rtt(), flow.local_rtt(), flow.remote_rtt()];
        let mut endpoint = EndpointStats {
            traffic: totals,
            data_segments: lost[0].1,
            lost: lost.map(|(lost, _)| lost),
            limited_by,
            description: flow.enrichment.organisation.clone(),
            ..EndpointStats::default()
        };
        endpoint.rtt.push_some(rtt[0]);
        endpoint.local_rtt.push_some(rtt[1]);
        endpoint.remote_rtt.push_some(rtt[2]);
        endpoint.response_time.push_some(flow.application.response_times.median());
        let mut shown = |text: String| match &mut anonymizer {
            Some(anonymizer) => anonymizer.pseudonym(&text),
            None => text,
        };
        let server =
            flow.enrichment.domain().or_else(|| flow.enrichment.name.clone()).map(&mut shown);
        let texts =
            [flow.server.ip().to_string(), flow.client.ip().to_string(), flow.server_name()];
        let [address, client, name] = texts.map(shown);
        self.servers.add_address(address, server, &endpoint);
        endpoint.description = flow.enrichment.system().map(str::to_owned);
        self.clients.add_name(client.clone(), &endpoint);

        let idle = limited_by.span(SenderLimit::Application) + limited_by.span(SenderLimit::Think);
        let busy = limited_by.total().saturating_sub(idle);
        let server = flow.connection.stream(Endpoint::Server);
        let segments = server.map_or(0, |stream| stream.counts().data_segments);
        if segments < MIN_SLOW_SEGMENTS || busy.is_zero() {
            return;
        }
        let rate = Rate::of(Size::from_bytes(bytes[1]), busy);
        let id = anonymizer.map_or(flow.id.0, |anonymizer| anonymizer.flow_pseudonym(flow.id.0));
        let slow = SlowTransfer {
            flow: id,
            started: flow.started(),
            client,
            server: name,
            bytes: bytes[1],
            busy,
            rate,
            limited_by,
            rtt,
            loss,
        };
        let key = |slow: &SlowTransfer| (slow.rate, Reverse(slow.busy), slow.started, slow.flow);
        let index = self.slow_transfers.partition_point(|other| key(other) < key(&slow));
        if index < MAX_SLOW_TRANSFERS {
            self.slow_transfers.insert(index, slow);
            self.slow_transfers.truncate(MAX_SLOW_TRANSFERS);
        }
    }

    pub(super) fn add_udp(&mut self, flow: &UdpFlow, mut anonymizer: Option<&mut Anonymizer>) {
        let totals = TrafficTotals { flows: 1, bytes: flow.payload() };
        self.protocols.entry(("udp", flow.protocol())).or_default().add(&totals);
        let about = flow.enrichment.organisation.clone();
        let mut endpoint =
            EndpointStats { traffic: totals, description: about, ..EndpointStats::default() };
        let quic = flow.flow.quic();
        endpoint
            .response_time
            .push_some(quic.and_then(|quic| quic.inferred_response_times().median()));
        let mut shown = |text: String| match &mut anonymizer {
            Some(anonymizer) => anonymizer.pseudonym(&text),
            None => text,
        };
        let server =
            flow.enrichment.domain().or_else(|| flow.enrichment.name.clone()).map(&mut shown);
        let [address, client] =
            [flow.server.ip(), flow.client.ip()].map(|ip| shown(ip.to_string()));
        self.servers.add_address(address, server, &endpoint);
        endpoint.description = flow.enrichment.system().map(str::to_owned);
        self.clients.add_name(client, &endpoint);
    }

    pub(super) fn add_http(&mut self, row: &HttpTransaction) {
        self.responses.push_some(row.transaction.response_time());
    }

    pub(super) fn add_exchange(&mut self, row: &FlowExchange) {
        self.inferred_responses.push(row.exchange.response_time());
    }

    pub(super) fn add_lookup(&mut self, row: &Lookup) {
        self.lookups.push_some(row.latency());
    }
}

fn add_limits(sum: &mut LimitedBy, more: &LimitedBy) {
    for limit in SenderLimit::ALL {
        sum.add(limit, more.span(limit));
    }
}

impl TrafficTotals {
    fn add(&mut self, other: &Self) {
        self.flows += other.flows;
        for (sum, more) in self.bytes.iter_mut().zip(other.bytes) {
            *sum += more;
        }
    }

    /// Sum of both directions.
    pub fn total_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

impl EntryCounters for EndpointStats {
    fn size(&self) -> u64 {
        self.traffic.total_bytes()
    }

    fn add(&mut self, other: &Self) {
        self.traffic.add(&other.traffic);
        self.rtt.add(&other.rtt);
        self.local_rtt.add(&other.local_rtt);
        self.remote_rtt.add(&other.remote_rtt);
        self.response_time.add(&other.response_time);
        self.data_segments += other.data_segments;
        for (sum, more) in self.lost.iter_mut().zip(other.lost) {
            *sum += more;
        }
        add_limits(&mut self.limited_by, &other.limited_by);
        if self.description.is_none() {
            self.description.clone_from(&other.description);
        }
    }
}
