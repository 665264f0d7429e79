//! What a run adds up to, in a few numbers.

use manyways_unit::Span;

use super::busiest::{Busiest, Share};
use super::{Distribution, Overview, TcpFlow};
use crate::flow::{Limit, LimitedBy};
use manyways_record::table::Mask;
use manyways_wire::stream::End;

/// So many servers are counted apart.
const SERVERS: usize = 1 << 16;

/// A few numbers about all flows.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// TCP connections.
    pub flows: u64,
    /// Those with a whole handshake and without a reset.
    pub valid: u64,
    /// Bytes of payload: from clients, then from servers.
    pub bytes: [u64; 2],
    /// Data segments of both.
    pub data_segments: u64,
    /// Segments that were sent again, and of these those that need not have been.
    pub again: u64,
    /// See [`Summary::again`].
    pub spurious: u64,
    /// Segments lost on the local and on the remote side of the capture point.
    pub lost: [u64; 2],
    /// Bytes that passed and the capture missed.
    pub unseen: u64,
    /// Each flow's median round trip.
    pub rtt: Distribution<Span>,
    /// Each flow's median local half.
    pub local_rtt: Distribution<Span>,
    /// Each flow's median remote half.
    pub remote_rtt: Distribution<Span>,
    /// How long servers were kept back by what, in all flows together.
    pub limited_by: LimitedBy,
    /// What a report tells besides, where it was asked for.
    pub overview: Option<Box<Overview>>,
    servers: Busiest<Server, SERVERS>,
}

/// What went to a server, or to those of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// Connections.
    pub flows: u64,
    /// Bytes of payload in both directions.
    pub bytes: u64,
}

impl Summary {
    /// Of nothing yet, with or without an overview.
    pub(super) fn new(has_overview: bool) -> Self {
        Self { overview: has_overview.then(Box::default), ..Self::default() }
    }

    /// One more flow; with a mask, nobody's name or address is kept.
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

    /// The servers with the most bytes, at most so many, and what all others have.
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
