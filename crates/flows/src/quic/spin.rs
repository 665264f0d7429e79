//! Round trips by the spin bit (RFC 9000, 17.4; RFC 9312, 3.8.2).
//!
//! The client turns the bit once the one that it sent came back, and the server sends what it got.
//! So an edge, the first packet with the other value, goes round: from the client's edge to the
//! server's with the same value is the way to the server and back, and from there to the client's
//! next one the way to the client and back. What an end waits before it sends is in it.
//!
//! The numbers of packets are secret, so what is out of order is guessed by time alone: see
//! [`Spin::handle`].

use manyways_unit::{Span, Time};

use manyways_unit::Samples;
use manyways_wire::stream::End;

/// A sample counts when its sender was silent before its edge for at most this part of it: nobody
/// knows when in that silence the other value came to it.
const SILENCE: u64 = 8;
/// Without a handshake, an edge that is as much earlier as this than the longest of the last spins
/// is out of order.
const EARLY: u64 = 10;
/// So many spins of each direction are kept for that.
const RECENT: usize = 8;
/// With fewer edges it is no signal.
const FEW: u64 = 4;
/// An end that sends fewer packets than this has no need to turn the bit.
const IDLE: u64 = 16;
/// Changes of disorder come soon after an edge. Later ones, but too early for the next edge, are
/// those of who sets the bit at random (RFC 9000, 17.4): of a signal at most one for so many edges.
const WILD: u64 = 4;

/// How the spin bit of a connection moves.
#[derive(Clone, Debug, Default)]
pub struct Spin {
    ends: [Edges; 2],
    /// Trips to the client and back, and to the server and back.
    halves: [Samples; 2],
}

/// One direction.
#[derive(Clone, Debug, Default)]
struct Edges {
    packets: u64,
    /// The packet before.
    last: Option<(Time, bool)>,
    /// The edge before, and what it turned to.
    edge: Option<(Time, bool)>,
    /// Changes that are too late for disorder, and too early for an edge.
    wild: u64,
    edges: u64,
    /// The edges that follow the right one of the other direction.
    in_turn: u64,
    /// From edge to edge.
    whole: Samples,
    /// The latest of these in microseconds, the newest first.
    recent: [u32; RECENT],
}

/// What a packet is.
struct Edge {
    /// When the edge before passed.
    before: Option<Time>,
    /// So long there was no packet.
    silence: Span,
}

impl Spin {
    /// A packet of that end with this bit. An edge less than `least` after the one before in its
    /// direction is out of order: half the round trip of the handshake, where that is known.
    pub(super) fn handle(&mut self, now: Time, from: End, bit: bool, least: Option<Span>) {
        let other = self.ends[from.other() as usize].edge;
        let sender = &mut self.ends[from as usize];
        let Some(Edge { before, silence }) = sender.edge(now, bit, least) else { return };
        let is_prompt = |span: Span| silence.as_nanos() <= span.as_nanos() / SILENCE;
        if let Some(whole) = before.map(|before| now.since(before)).filter(|span| is_prompt(*span))
        {
            sender.whole.push(whole);
            sender.recent.rotate_right(1);
            sender.recent[0] = u32::try_from(whole.as_nanos() / 1_000).unwrap_or(u32::MAX);
        }
        // The server sends what it got, the client the opposite.
        let cause = other.filter(|(at, value)| {
            (*value == bit) == (from == End::Server) && before.is_none_or(|before| *at >= before)
        });
        let Some((at, _)) = cause else { return };
        sender.in_turn += 1;
        let half = now.since(at);
        if is_prompt(half) {
            self.halves[from as usize].push(half);
        }
    }

    /// How many edges of this end passed.
    pub fn edges(&self, end: End) -> u64 {
        self.ends[end as usize].edges
    }

    /// From the capture point to the server and back.
    pub fn to_server(&self) -> &Samples {
        &self.halves[End::Server as usize]
    }

    /// From the capture point to the client and back.
    pub fn to_client(&self) -> &Samples {
        &self.halves[End::Client as usize]
    }

    /// All the way round, from the direction that has more of it: also where one only was captured.
    pub fn whole(&self) -> &Samples {
        let [client, server] = self.ends.each_ref().map(|end| &end.whole);
        if client.count() > server.count() { client } else { server }
    }

    /// Whether it moves as one that both ends turn: in all directions that have packets, as often as
    /// it should, and each edge after its cause. Random and constant bits do not.
    pub fn is_plausible(&self) -> bool {
        let mut busy = self.ends.iter().filter(|end| end.packets >= IDLE).peekable();
        let are_both = self.ends.iter().all(|end| end.packets >= IDLE);
        busy.peek().is_some()
            && busy.all(|end| {
                end.edges >= FEW
                    && end.wild * WILD <= end.edges
                    && (!are_both || end.in_turn * 4 >= end.edges * 3)
            })
            && self.ends.iter().any(|end| end.whole.count() * 4 >= end.edges.max(FEW))
    }
}

impl Edges {
    fn edge(&mut self, now: Time, bit: bool, least: Option<Span>) -> Option<Edge> {
        self.packets += 1;
        let (last, was) = self.last.replace((now, bit))?;
        if was == bit {
            return None;
        }
        let longest = self.recent.iter().max().copied().unwrap_or_default();
        let least = least.unwrap_or(Span::from_micros(u64::from(longest) / EARLY));
        let since = self.edge.map(|(at, _)| now.since(at));
        if let Some(since) = since.filter(|since| *since < least) {
            self.wild += u64::from(since > Span::from_nanos(least.as_nanos() / 2));
            return None;
        }
        self.edges += 1;
        // Twice to the same value: the edge between was taken for one out of order.
        let before = self.edge.replace((now, bit)).filter(|(_, value)| *value != bit);
        Some(Edge { before: before.map(|(at, _)| at), silence: now.since(last) })
    }
}

#[cfg(test)]
mod tests;
