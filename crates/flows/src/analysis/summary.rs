//! Totals of a run.

use std::collections::BTreeMap;

use manyways_unit::Span;

use super::top_entries::{EntryCounters, TopEntries};
use super::{Histogram, Overview, TcpFlow, UdpFlow};
use crate::flow::{LimitedBy, SenderLimit};
use manyways_record::table::Anonymizer;
use manyways_wire::stream::Endpoint;

/// Maximum number of servers with separate counters.
const MAX_SERVERS: usize = 1 << 16;
/// Maximum number of versions of QUIC with separate counters.
const MAX_VERSIONS: usize = 64;

/// Totals of all flows.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub flows: u64,
    /// Connections with a complete handshake and without a reset.
    pub valid: u64,
    /// Payload bytes: from clients, then from servers.
    pub bytes: [u64; 2],
    /// Data segments of both directions.
    pub data_segments: u64,
    /// Retransmitted data segments.
    pub retransmitted: u64,
    /// The spurious ones of these retransmissions.
    pub spurious: u64,
    /// Segments lost on the local and on the remote side of the capture point.
    pub lost: [u64; 2],
    /// SYNs, and FINs without data, that were sent again: no data segments.
    pub controls_again: [u64; 2],
    /// Segments whose numbers do not fit their connection, and acknowledgment numbers of others.
    pub refused: [u64; 2],
    /// Bytes that were acknowledged but are not in the capture.
    pub uncaptured: u64,
    /// Median round-trip time of each flow.
    pub rtt: Histogram<Span>,
    /// Median round-trip time of each flow between capture point and local endpoint.
    pub local_rtt: Histogram<Span>,
    /// Median round-trip time of each flow between capture point and remote endpoint.
    pub remote_rtt: Histogram<Span>,
    /// Time of each sender limit of the servers, summed over all flows.
    pub limited_by: LimitedBy,
    /// Flows of QUIC whose ClientHello could not be decrypted, by version; 0 stands for all versions
    /// beyond the first 64.
    pub undecrypted: BTreeMap<u32, u64>,
    /// Data of a report; `None` without [`Settings::overview`](super::Settings::overview).
    pub overview: Option<Box<Overview>>,
    servers: TopEntries<Server, MAX_SERVERS>,
}

/// Traffic of one server, or of all servers with one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// TCP connections.
    pub flows: u64,
    /// Payload bytes in both directions.
    pub bytes: u64,
}

impl Summary {
    pub(super) fn new(has_overview: bool) -> Self {
        Self { overview: has_overview.then(Box::default), ..Self::default() }
    }

    /// Adds a flow. With a mask, stores pseudonyms in place of names and addresses.
    pub(super) fn add(&mut self, flow: &TcpFlow, mut anonymizer: Option<&mut Anonymizer>) {
        self.flows += 1;
        self.valid += u64::from(flow.connection.is_valid());
        let mut bytes = 0;
        for end in [Endpoint::Client, Endpoint::Server] {
            let sent = flow.connection.bytes(end);
            bytes += sent;
            self.bytes[end as usize] += sent;
            self.refused[0] += u64::from(flow.connection.refused(end));
            self.refused[1] += u64::from(flow.connection.refused_acks(end));
            let Some(counts) = flow.connection.stream(end).map(|stream| stream.counts()) else {
                continue;
            };
            self.data_segments += counts.data_segments;
            self.retransmitted += u64::from(counts.retransmissions.total());
            self.spurious += u64::from(counts.retransmissions.spurious);
            self.controls_again[0] += u64::from(counts.syns_again);
            self.controls_again[1] += u64::from(counts.fins_again);
            self.uncaptured += counts.uncaptured;
        }
        self.lost[0] += flow.lost(true).0;
        self.lost[1] += flow.lost(false).0;
        self.rtt.push_some(flow.rtt());
        self.local_rtt.push_some(flow.local_rtt());
        self.remote_rtt.push_some(flow.remote_rtt());
        let limited_by = flow.connection.limited_by(Endpoint::Server);
        for limit in SenderLimit::ALL {
            self.limited_by.add(limit, limited_by.span(limit));
        }
        let mut shown = |text: String| match &mut anonymizer {
            Some(anonymizer) => anonymizer.pseudonym(&text),
            None => text,
        };
        let name = flow.enrichment.name.clone().map(&mut shown);
        let address = shown(flow.server.ip().to_string());
        self.servers.add_address(address, name, &Server { flows: 1, bytes });
        if let Some(overview) = &mut self.overview {
            overview.add_tcp(flow, anonymizer);
        }
    }

    pub(super) fn add_udp(&mut self, flow: &UdpFlow, anonymizer: Option<&mut Anonymizer>) {
        if let Some(version) = flow.undecrypted_version() {
            let is_listed =
                self.undecrypted.len() < MAX_VERSIONS || self.undecrypted.contains_key(&version);
            *self.undecrypted.entry(if is_listed { version } else { 0 }).or_default() += 1;
        }
        if let Some(overview) = &mut self.overview {
            overview.add_udp(flow, anonymizer);
        }
    }

    /// Returns the servers with the most bytes, at most `max`, and the sum of the others.
    pub fn servers(&self, max: usize) -> (Vec<(&str, Server)>, Server) {
        self.servers.largest(max)
    }
}

impl EntryCounters for Server {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn add(&mut self, other: &Self) {
        self.flows += other.flows;
        self.bytes += other.bytes;
    }
}
