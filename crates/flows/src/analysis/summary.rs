//! Totals of a run.

use manyways_unit::Span;

use super::busiest::{Busiest, Share};
use super::{Distribution, Overview, TcpFlow};
use crate::flow::{Limit, LimitedBy};
use manyways_record::table::Mask;
use manyways_wire::stream::End;

/// Maximum number of servers with separate counters.
const SERVERS: usize = 1 << 16;

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
    pub again: u64,
    /// The spurious ones of these retransmissions.
    pub spurious: u64,
    /// Segments lost on the local and on the remote side of the capture point.
    pub lost: [u64; 2],
    /// Bytes that were acknowledged but are not in the capture.
    pub unseen: u64,
    /// Median round-trip time of each flow.
    pub rtt: Distribution<Span>,
    /// Median round-trip time of each flow between capture point and local endpoint.
    pub local_rtt: Distribution<Span>,
    /// Median round-trip time of each flow between capture point and remote endpoint.
    pub remote_rtt: Distribution<Span>,
    /// Time of each sender limit of the servers, summed over all flows.
    pub limited_by: LimitedBy,
    /// Data of a report; `None` without [`Settings::overview`](super::Settings::overview).
    pub overview: Option<Box<Overview>>,
    servers: Busiest<Server, SERVERS>,
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
    pub(super) fn add(&mut self, flow: &TcpFlow, mut mask: Option<&mut Mask>) {
        self.flows += 1;
        self.valid += u64::from(flow.connection.is_valid());
        let mut bytes = 0;
        for end in [End::Client, End::Server] {
            let sent = flow.connection.bytes(end);
            bytes += sent;
            self.bytes[end as usize] += sent;
            let Some(counts) = flow.connection.stream(end).map(|stream| stream.counts()) else {
                continue;
            };
            self.data_segments += counts.data_segments;
            self.again += u64::from(counts.again.all());
            self.spurious += u64::from(counts.again.spurious);
            self.unseen += counts.unseen;
        }
        self.lost[0] += flow.lost(true).0;
        self.lost[1] += flow.lost(false).0;
        self.rtt.extend(flow.rtt());
        self.local_rtt.extend(flow.local_rtt());
        self.remote_rtt.extend(flow.remote_rtt());
        let limited_by = flow.connection.limited_by(End::Server);
        for limit in Limit::ALL {
            self.limited_by.add(limit, limited_by.span(limit));
        }
        let mut shown = |text: String| match &mut mask {
            Some(mask) => mask.name(&text),
            None => text,
        };
        let name = flow.joined.name.clone().map(&mut shown);
        let address = shown(flow.server.ip().to_string());
        self.servers.at(address, name, &Server { flows: 1, bytes });
        if let Some(overview) = &mut self.overview {
            overview.tcp(flow, mask);
        }
    }

    /// Returns the servers with the most bytes, at most `most`, and the sum of the others.
    pub fn servers(&self, most: usize) -> (Vec<(&str, Server)>, Server) {
        self.servers.largest(most)
    }
}

impl Share for Server {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn add(&mut self, other: &Self) {
        self.flows += other.flows;
        self.bytes += other.bytes;
    }
}
