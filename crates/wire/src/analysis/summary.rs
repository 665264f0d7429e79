//! What a run adds up to, in a few numbers.

use std::collections::HashMap;

use manyways_trace::Span;

use super::TcpFlow;
use crate::flow::{End, Limit, LimitedBy, Samples};

/// So many servers are counted apart; when there are more, the smaller half of them is counted
/// together.
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
    pub rtt: Samples,
    /// Each flow's median local half.
    pub local_rtt: Samples,
    /// Each flow's median remote half.
    pub remote_rtt: Samples,
    /// How long servers were kept back by what, in all flows together.
    pub limited_by: LimitedBy,
    servers: HashMap<String, Server>,
    others: Server,
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
    pub(super) fn add(&mut self, flow: &TcpFlow) {
        self.flows += 1;
        self.valid += u64::from(flow.connection.is_valid());
        let mut bytes = 0;
        for end in [End::Client, End::Server] {
            let Some(counts) = flow.connection.stream(end).map(|stream| stream.counts()) else {
                continue;
            };
            bytes += counts.bytes;
            self.bytes[end as usize] += counts.bytes;
            self.data_segments += counts.data_segments;
            self.again += u64::from(counts.again.all());
            self.spurious += u64::from(counts.again.spurious);
            self.unseen += counts.unseen;
        }
        self.lost[0] += flow.lost(true).0;
        self.lost[1] += flow.lost(false).0;
        push(&mut self.rtt, flow.rtt());
        push(&mut self.local_rtt, flow.local_rtt());
        push(&mut self.remote_rtt, flow.remote_rtt());
        let limited_by = flow.connection.limited_by(End::Server);
        for limit in Limit::ALL {
            self.limited_by.add(limit, limited_by.span(limit));
        }
        self.serves(flow.server_name(), bytes);
    }

    /// The servers with the most bytes, at most so many, and what all others have.
    pub fn servers(&self, most: usize) -> (Vec<(&str, Server)>, Server) {
        let mut all: Vec<(&str, Server)> =
            self.servers.iter().map(|(name, server)| (name.as_str(), *server)).collect();
        all.sort_unstable_by(|one, other| (other.1.bytes, one.0).cmp(&(one.1.bytes, other.0)));
        let rest = all.split_off(most.min(all.len()));
        let others = rest.iter().fold(self.others, |sum, (_, server)| sum.with(server));
        (all, others)
    }

    fn serves(&mut self, name: String, bytes: u64) {
        if self.servers.len() >= SERVERS {
            let mut sizes: Vec<u64> = self.servers.values().map(|server| server.bytes).collect();
            let (_, middle, _) = sizes.select_nth_unstable(SERVERS / 2);
            let (middle, others) = (*middle, &mut self.others);
            self.servers.retain(|_, server| {
                let stays = server.bytes > middle;
                if !stays {
                    *others = others.with(server);
                }
                stays
            });
        }
        let server = self.servers.entry(name).or_default();
        *server = server.with(&Server { flows: 1, bytes });
    }
}

impl Server {
    fn with(self, other: &Self) -> Self {
        Self { flows: self.flows + other.flows, bytes: self.bytes + other.bytes }
    }
}

fn push(samples: &mut Samples, span: Option<Span>) {
    if let Some(span) = span {
        samples.push(span);
    }
}
