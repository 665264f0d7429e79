//! Groups segments with MPTCP options into connections.

use std::collections::{HashMap, VecDeque};

use manyways_unit::{Span, Time};

use super::connection::{Connection, Role};
use super::state::{OpenSubflow, State};
use crate::flow::Handshake;
use manyways_wire::mptcp::{Join, Subtype};
use manyways_wire::stream::Endpoint;
use manyways_wire::tcp::Segment;

/// Maximum number of connections with the same token; above it, the oldest receive no further
/// joins.
const MAX_SAME_TOKEN: usize = 4;

/// Limits of [`Connections`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections; above it, the connection examined least recently is evicted.
    pub connections: usize,
    /// Maximum number of subflows of all connections, with the same eviction.
    pub subflows: usize,
    /// Maximum number of subflows of a connection; further ones are ignored.
    pub subflows_per_connection: usize,
    /// Time without an MPTCP option after which a connection is returned. Must exceed the idle
    /// timeout of flows.
    pub idle: Span,
}

/// Counters of state that exceeded a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Connections evicted because there were too many connections or subflows.
    pub evicted: u64,
    /// Connections that were idle for too long.
    pub idle: u64,
    /// Subflows beyond the limit of a connection.
    pub subflows: u64,
    /// Addresses beyond the limit of a connection.
    pub addresses: u64,
    /// Tokens shared by too many connections.
    pub tokens: u64,
}

/// Properties of a flow at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSummary {
    /// Time of the first segment.
    pub started: Time,
    pub handshake: Handshake,
    /// Bytes of the client and of the server, without retransmissions. `None` if the capture has no
    /// segment of that endpoint.
    pub bytes: [Option<u64>; 2],
}

/// The active MPTCP connections.
#[derive(Debug)]
pub struct Connections {
    limits: Limits,
    /// Connection of each flow of the caller.
    flows: HashMap<u64, u64>,
    connections: HashMap<u64, State>,
    /// Connections with a token, latest last.
    tokens: HashMap<u32, Vec<(u64, Endpoint)>>,
    /// Connections in the order of examination, with the time of the last segment when queued.
    examinations: VecDeque<(Time, u64)>,
    ended: VecDeque<Connection>,
    /// Number of subflows of all connections.
    subflows: usize,
    dropped: Dropped,
    next_id: u64,
}

impl Default for Limits {
    /// 65,536 connections and 131,072 subflows, which take about 100 MB, or four times as much if a
    /// peer leaves gaps deliberately; 32 subflows per connection, because no system uses more; 10
    /// minutes.
    fn default() -> Self {
        Self {
            connections: 1 << 16,
            subflows: 1 << 17,
            subflows_per_connection: 32,
            idle: Span::from_secs(600),
        }
    }
}

impl Limits {
    /// Returns the default limits for flows with an idle timeout of `idle`.
    pub fn with_flow_timeout(idle: Span) -> Self {
        let limits = Self::default();
        Self { idle: limits.idle.max(idle + idle), ..limits }
    }
}

impl Default for Connections {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Connections {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            flows: HashMap::new(),
            connections: HashMap::new(),
            tokens: HashMap::new(),
            examinations: VecDeque::new(),
            ended: VecDeque::new(),
            subflows: 0,
            dropped: Dropped::default(),
            next_id: 0,
        }
    }

    /// Number of active connections.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Returns the counters of state that exceeded a limit.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Handles a segment that endpoint `from` sent in a flow. Segments without a possible MPTCP
    /// option ([`manyways_wire::tcp::Options::may_have_mptcp`]) may be omitted.
    pub fn handle(&mut self, now: Time, flow: u64, from: Endpoint, segment: &Segment<'_>) {
        self.examine(now);
        if segment.options.is_truncated() {
            self.on_truncated_options(flow, from);
        }
        for option in segment.options.mptcp().filter_map(Subtype::read) {
            let id = match self.flows.get(&flow) {
                Some(id) => *id,
                None => self.find_or_create(now, flow, from, &option),
            };
            let id = self.find_by_syn_ack(id, flow, from, &option);
            let Some(state) = self.connections.get_mut(&id) else { continue };
            // Clocks of captures may step back.
            state.last = state.last.max(now);
            let before = state.tokens();
            state.handle(flow, from, segment, &option);
            let after = state.tokens();
            for end in [Endpoint::Client, Endpoint::Server] {
                if let (None, Some(token)) = (before[end as usize], after[end as usize]) {
                    self.register_token(token, id, end);
                }
            }
        }
    }

    /// Handles the end of a flow. Flows without MPTCP options are ignored.
    pub fn on_flow_end(&mut self, flow: u64, summary: &FlowSummary) {
        let Some(id) = self.flows.remove(&flow) else { return };
        let Some(state) = self.connections.get_mut(&id) else { return };
        self.subflows -= usize::from(state.ignored.remove(&flow));
        if state.on_flow_end(flow, summary) {
            self.end(id);
        }
    }

    /// Returns an ended connection, in no particular order.
    pub fn poll(&mut self) -> Option<Connection> {
        self.ended.pop_front()
    }

    /// Ends all remaining connections, in the order of their first segments.
    pub fn finish(&mut self) {
        let mut ids: Vec<u64> = self.connections.keys().copied().collect();
        ids.sort_unstable();
        ids.into_iter().for_each(|id| self.end(id));
        self.examinations.clear();
    }

    /// Handles a segment whose options were not captured completely.
    fn on_truncated_options(&mut self, flow: u64, from: Endpoint) {
        let state = self.flows.get(&flow).and_then(|id| self.connections.get_mut(id));
        if let Some(open) = state.and_then(|state| state.open_subflow(flow)) {
            open.on_truncated_options(from);
        }
    }

    /// Finds or creates the connection of a flow with its first MPTCP option.
    fn find_or_create(
        &mut self,
        now: Time,
        flow: u64,
        from: Endpoint,
        option: &Subtype<'_>,
    ) -> u64 {
        let ask = match option {
            Subtype::Join(Join::Syn { token, nonce, .. }) => Some((*token, *nonce)),
            _ => None,
        };
        let known = ask.and_then(|(token, _)| self.tokens.get(&token)?.last().copied());
        let (id, endpoint) = known.unwrap_or_else(|| {
            let id = self.create(now);
            if let Some((token, _)) = ask {
                self.register_token(token, id, from.other());
                if let Some(state) = self.connections.get_mut(&id) {
                    state.join_tokens[from.other() as usize] = Some(token);
                }
            }
            (id, from.other())
        });
        self.flows.insert(flow, id);
        let Some(state) = self.connections.get_mut(&id) else { return id };
        if state.subflows.len() >= self.limits.subflows_per_connection {
            state.ignored.insert(flow);
            self.dropped.subflows += 1;
        } else {
            let mut open = OpenSubflow::new(now, flow, endpoint == from);
            open.join_request = ask;
            state.subflows.push(open);
        }
        self.subflows += 1;
        id
    }

    /// Finds the connection of a flow again when the SYN/ACK of its join passes: if several
    /// connections have the token, the HMAC identifies the right one.
    fn find_by_syn_ack(&mut self, id: u64, flow: u64, from: Endpoint, option: &Subtype<'_>) -> u64 {
        let Subtype::Join(Join::SynAck { hmac, nonce, .. }) = option else { return id };
        let Some(state) = self.connections.get_mut(&id) else { return id };
        let Some(open) = state.open_subflow(flow).filter(|open| open.row.role == Role::Joined)
        else {
            return id;
        };
        let Some((token, asked)) = open.join_request else { return id };
        let (asker, nonces) = (open.to_connection_end(from).other(), [*nonce, asked]);
        let is_verified = state.verify_join(asker, nonces, *hmac);
        if let Some(open) = state.open_subflow(flow) {
            open.row.is_verified = is_verified;
        }
        if is_verified == Some(true) {
            return id;
        }
        let others = self.tokens.get(&token).map_or(&[][..], Vec::as_slice);
        let fits = others.iter().rev().find(|(other, endpoint)| {
            let state = self.connections.get(other).filter(|state| state.id != id);
            state.is_some_and(|s| s.verify_join(endpoint.other(), nonces, *hmac) == Some(true))
        });
        match fits.copied() {
            Some((other, whose)) => self.move_subflow(flow, id, other, whose != from),
            None => id,
        }
    }

    /// Moves a subflow to another connection.
    fn move_subflow(&mut self, flow: u64, id: u64, other: u64, is_reversed: bool) -> u64 {
        let is_full = self
            .connections
            .get(&other)
            .is_none_or(|s| s.subflows.len() >= self.limits.subflows_per_connection);
        let Some(state) = self.connections.get_mut(&id).filter(|_| !is_full) else { return id };
        let Some(at) = state.subflows.iter().position(|open| open.row.flow == flow) else {
            return id;
        };
        let mut open = state.subflows.remove(at);
        let is_left_empty = state.subflows.is_empty();
        if open.row.is_reversed != is_reversed {
            open.reverse();
        }
        open.row.is_verified = Some(true);
        if let Some(state) = self.connections.get_mut(&other) {
            state.subflows.push(open);
        }
        self.flows.insert(flow, other);
        if is_left_empty {
            self.remove(id);
        }
        other
    }

    fn create(&mut self, now: Time) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.connections.insert(id, State::new(id, now));
        self.examinations.push_back((now, id));
        id
    }

    /// Registers the token of an endpoint.
    fn register_token(&mut self, token: u32, id: u64, end: Endpoint) {
        let namesakes = self.tokens.entry(token).or_default();
        namesakes.push((id, end));
        if namesakes.len() > MAX_SAME_TOKEN {
            namesakes.remove(0);
            self.dropped.tokens += 1;
        }
    }

    /// Examines one or two connections, and returns idle ones. Above a limit, continues until the
    /// number is within it: each step removes a connection.
    fn examine(&mut self, now: Time) {
        let mut looks = 0;
        loop {
            let is_full = self.connections.len() > self.limits.connections
                || self.subflows > self.limits.subflows;
            // Ended connections still have queue entries.
            let is_long = self.examinations.len() / 2 > self.limits.connections;
            let Some((then, id)) = self.examinations.front().copied() else { return };
            let is_due = is_long || now.since(then) > self.limits.idle;
            if !is_full && (looks == 2 || !is_due) {
                return;
            }
            looks = (looks + 1).min(2);
            self.examinations.pop_front();
            let Some(last) = self.connections.get(&id).map(|state| state.last) else { continue };
            if now.since(last) > self.limits.idle {
                self.dropped.idle += 1;
                self.end(id);
            } else if is_full {
                self.dropped.evicted += 1;
                self.end(id);
            } else {
                self.examinations.push_back((last, id));
            }
        }
    }

    fn end(&mut self, id: u64) {
        if let Some(state) = self.remove(id) {
            self.ended.push_back(state.into_row());
        }
    }

    fn remove(&mut self, id: u64) -> Option<State> {
        let state = self.connections.remove(&id)?;
        self.subflows -= state.subflows.len() + state.ignored.len();
        self.dropped.addresses += state.dropped;
        let flows = state.subflows.iter().map(|open| &open.row.flow).chain(&state.ignored);
        for flow in flows {
            self.flows.remove(flow);
        }
        let tokens = state.tokens().into_iter().chain(state.join_tokens).flatten();
        for token in tokens {
            if let Some(namesakes) = self.tokens.get_mut(&token) {
                namesakes.retain(|(other, _)| *other != id);
                if namesakes.is_empty() {
                    self.tokens.remove(&token);
                }
            }
        }
        Some(state)
    }
}

#[cfg(test)]
impl Connections {
    /// Whether no state is left.
    pub(super) fn is_drained(&self) -> bool {
        self.connections.is_empty()
            && self.flows.is_empty()
            && self.tokens.is_empty()
            && self.examinations.is_empty()
            && self.subflows == 0
    }

    pub(super) fn queued_examinations(&self) -> usize {
        self.examinations.len()
    }
}
