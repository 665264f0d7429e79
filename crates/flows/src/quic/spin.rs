//! Round trips by the spin bit (RFC 9000, 17.4; RFC 9312, 3.8.2).
//!
//! The client inverts the bit when its own value returns, and the server echoes the received value.
//! So an edge, the first packet with the other value, circulates: from the client's edge to the
//! server's edge with the same value is the round trip to the server, and from there to the
//! client's next edge the round trip to the client. Delays of an endpoint before it sends are
//! included.
//!
//! Packet numbers are encrypted, so reordering is detected by time alone: see [`Spin::handle`].

use manyways_unit::{Span, Time};

use manyways_unit::Samples;
use manyways_wire::stream::Endpoint;

/// A sample counts if the time without packets before its edge was at most this fraction of it
/// (1/8), because the arrival of the other value in that time is unknown.
const MAX_GAP_DIVISOR: u64 = 8;
/// Without a handshake, an edge that is earlier by this factor than the longest of the last spins
/// is due to reordering.
const EARLY_FACTOR: u64 = 10;
/// Number of recent spins per direction for this comparison.
const RECENT_SPINS: usize = 8;
/// Minimum number of edges of a signal.
const MIN_EDGES: u64 = 4;
/// An endpoint with fewer packets need not show a signal.
const MIN_PACKETS: u64 = 16;
/// Reordering changes the bit shortly after an edge. Later changes that are too early for the next
/// edge come from a random bit (RFC 9000, 17.4): a signal has at most one per this many edges.
const EDGES_PER_STRAY: u64 = 4;

/// Measurements of a connection's spin bit.
#[derive(Clone, Debug, Default)]
pub struct Spin {
    ends: [Edges; 2],
    /// Round trips to the client, and to the server.
    partial_rtts: [Samples; 2],
}

/// State of one direction.
#[derive(Clone, Debug, Default)]
struct Edges {
    packets: u64,
    /// The previous packet.
    last: Option<(Time, bool)>,
    /// Time of the previous edge, and its new value.
    edge: Option<(Time, bool)>,
    /// Changes that are too late for reordering, and too early for an edge.
    stray: u64,
    edges: u64,
    /// Number of edges that follow the matching edge of the other direction.
    alternating: u64,
    /// Times between edges.
    full_rtt: Samples,
    /// The latest of these times in microseconds, newest first.
    recent: [u32; RECENT_SPINS],
}

/// An edge of the spin bit.
struct Edge {
    /// Time of the previous edge.
    previous: Option<Time>,
    /// Time without packets before this edge.
    gap: Span,
}

impl Spin {
    /// Handles a packet of endpoint `from`. An edge less than `min` after the previous one of its
    /// direction is due to reordering; `min` is half the round-trip time of the handshake, if
    /// known.
    pub(super) fn handle(&mut self, now: Time, from: Endpoint, bit: bool, min: Option<Span>) {
        let other = self.ends[from.other() as usize].edge;
        let sender = &mut self.ends[from as usize];
        let Some(Edge { previous: before, gap: silence }) = sender.on_packet(now, bit, min) else {
            return;
        };
        let is_prompt = |span: Span| silence.as_nanos() <= span.as_nanos() / MAX_GAP_DIVISOR;
        if let Some(whole) = before.map(|before| now.since(before)).filter(|span| is_prompt(*span))
        {
            sender.full_rtt.push(whole);
            sender.recent.rotate_right(1);
            sender.recent[0] = u32::try_from(whole.as_nanos() / 1_000).unwrap_or(u32::MAX);
        }
        // The server echoes the value, the client inverts it.
        let cause = other.filter(|(at, value)| {
            (*value == bit) == (from == Endpoint::Server)
                && before.is_none_or(|before| *at >= before)
        });
        let Some((at, _)) = cause else { return };
        sender.alternating += 1;
        let half = now.since(at);
        if is_prompt(half) {
            self.partial_rtts[from as usize].push(half);
        }
    }

    /// Number of edges of this endpoint.
    pub fn edges(&self, end: Endpoint) -> u64 {
        self.ends[end as usize].edges
    }

    /// Round-trip times from the capture point to the server.
    pub fn server_rtt(&self) -> &Samples {
        &self.partial_rtts[Endpoint::Server as usize]
    }

    /// Round-trip times from the capture point to the client.
    pub fn client_rtt(&self) -> &Samples {
        &self.partial_rtts[Endpoint::Client as usize]
    }

    /// Complete round-trip times, from the direction with more samples; works with one captured
    /// direction.
    pub fn full_rtt(&self) -> &Samples {
        let [client, server] = self.ends.each_ref().map(|end| &end.full_rtt);
        if client.count() > server.count() { client } else { server }
    }

    /// Whether the bit behaves like one that both endpoints support: in each direction with enough
    /// packets there are enough edges, and edges follow their cause. Random and constant bits do
    /// not.
    pub fn is_plausible(&self) -> bool {
        let mut busy = self.ends.iter().filter(|end| end.packets >= MIN_PACKETS).peekable();
        let are_both = self.ends.iter().all(|end| end.packets >= MIN_PACKETS);
        busy.peek().is_some()
            && busy.all(|end| {
                end.edges >= MIN_EDGES
                    && end.stray * EDGES_PER_STRAY <= end.edges
                    && (!are_both || end.alternating * 4 >= end.edges * 3)
            })
            && self.ends.iter().any(|end| end.full_rtt.count() * 4 >= end.edges.max(MIN_EDGES))
    }
}

impl Edges {
    fn on_packet(&mut self, now: Time, bit: bool, min: Option<Span>) -> Option<Edge> {
        self.packets += 1;
        let (last, was) = self.last.replace((now, bit))?;
        if was == bit {
            return None;
        }
        let longest = self.recent.iter().max().copied().unwrap_or_default();
        let min = min.unwrap_or(Span::from_micros(u64::from(longest) / EARLY_FACTOR));
        let since = self.edge.map(|(at, _)| now.since(at));
        if let Some(since) = since.filter(|since| *since < min) {
            self.stray += u64::from(since > Span::from_nanos(min.as_nanos() / 2));
            return None;
        }
        self.edges += 1;
        // Two edges to the same value: the edge between them was taken for reordering.
        let before = self.edge.replace((now, bit)).filter(|(_, value)| *value != bit);
        Some(Edge { previous: before.map(|(at, _)| at), gap: now.since(last) })
    }
}

#[cfg(test)]
mod tests;
