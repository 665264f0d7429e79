//! From segments with options to connections.

use std::collections::{HashMap, VecDeque};

use manyways_unit::{Span, Time};

use super::connection::{Connection, Role};
use super::state::{Open, State};
use crate::flow::Handshake;
use manyways_wire::mptcp::{Join, Subtype};
use manyways_wire::stream::End;
use manyways_wire::tcp::Segment;

/// So many connections may have the same token; of more, the first ones get no joins any more.
const NAMESAKES: usize = 4;

/// What [`Connections`] may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// So many connections at a time; of more, the one that was looked at longest ago goes.
    pub connections: usize,
    /// So many subflows of all connections at a time, in the same way.
    pub subflows: usize,
    /// So many subflows of a connection; more are not followed.
    pub each: usize,
    /// A connection in which no option passes for so long is told, over or not. It is to be longer
    /// than a flow may be silent.
    pub idle: Span,
}

/// What did not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Connections that had to go before they were over: there were too many, or too many subflows.
    pub evicted: u64,
    /// Connections that were silent for too long.
    pub idle: u64,
    /// Subflows that were too many for their connection.
    pub subflows: u64,
    /// Addresses that were too many for their connection.
    pub addresses: u64,
    /// Tokens that too many connections had.
    pub tokens: u64,
}

/// What a flow was, when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// When its first segment passed.
    pub started: Time,
    /// How it began.
    pub handshake: Handshake,
    /// How many bytes the client sent, and the server, those that were sent again not counted; none
    /// where no segment of that end passed.
    pub bytes: [Option<u64>; 2],
}

/// The connections of MPTCP that are not over yet.
#[derive(Debug)]
pub struct Connections {
    limits: Limits,
    /// By the caller's flows.
    flows: HashMap<u64, u64>,
    connections: HashMap<u64, State>,
    /// Whose token it is, those that began last at the end.
    tokens: HashMap<u32, Vec<(u64, End)>>,
    /// Whom to look at next, and when its last segment had passed when that was decided.
    turns: VecDeque<(Time, u64)>,
    over: VecDeque<Connection>,
    /// How many subflows all connections remember.
    subflows: usize,
    dropped: Dropped,
    began: u64,
}

impl Default for Limits {
    /// 65,536 connections and 131,072 subflows, which take about 100 MB, and four times as much
    /// where somebody leaves gaps on purpose; 32 subflows a connection, as no system has more; 10
    /// minutes.
    fn default() -> Self {
        Self { connections: 1 << 16, subflows: 1 << 17, each: 32, idle: Span::from_secs(600) }
    }
}

impl Default for Connections {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Connections {
    /// None yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            flows: HashMap::new(),
            connections: HashMap::new(),
            tokens: HashMap::new(),
            turns: VecDeque::new(),
            over: VecDeque::new(),
            subflows: 0,
            dropped: Dropped::default(),
            began: 0,
        }
    }

    /// How many connections are not over.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// What did not fit so far.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// A segment of this flow passes, and an end of the flow sent it. Only those say something here
    /// that may have an option of MPTCP ([`manyways_wire::tcp::Options::may_have_mptcp`]).
    pub fn handle(&mut self, now: Time, flow: u64, from: End, segment: &Segment<'_>) {
        self.take_turns(now);
        if segment.options.is_cut() {
            self.is_cut(flow, from);
        }
        for option in segment.options.mptcp().filter_map(Subtype::read) {
            let id = match self.flows.get(&flow) {
                Some(id) => *id,
                None => self.place(now, flow, from, &option),
            };
            let id = self.place_by_answer(id, flow, from, &option);
            let Some(state) = self.connections.get_mut(&id) else { continue };
            // Clocks of captures step back.
            state.last = state.last.max(now);
            let before = state.tokens();
            state.handle(flow, from, segment, &option);
            let after = state.tokens();
            for end in [End::Client, End::Server] {
                if let (None, Some(token)) = (before[end as usize], after[end as usize]) {
                    self.is_called(token, id, end);
                }
            }
        }
    }

    /// A flow is over. Those that had no option are nothing here.
    pub fn ended(&mut self, flow: u64, summary: &Summary) {
        let Some(id) = self.flows.remove(&flow) else { return };
        let Some(state) = self.connections.get_mut(&id) else { return };
        self.subflows -= usize::from(state.ignored.remove(&flow));
        if state.ended(flow, summary) {
            self.tell(id);
        }
    }

    /// A connection that is over, in no order.
    pub fn poll(&mut self) -> Option<Connection> {
        self.over.pop_front()
    }

    /// Nothing passes any more: all that are left are told, in the order in which they began.
    pub fn finish(&mut self) {
        let mut ids: Vec<u64> = self.connections.keys().copied().collect();
        ids.sort_unstable();
        ids.into_iter().for_each(|id| self.tell(id));
        self.turns.clear();
    }

    /// Of a segment's options some were not captured.
    fn is_cut(&mut self, flow: u64, from: End) {
        let state = self.flows.get(&flow).and_then(|id| self.connections.get_mut(id));
        if let Some(open) = state.and_then(|state| state.open(flow)) {
            open.is_cut(from);
        }
    }

    /// The connection that a flow belongs to whose first option this is.
    fn place(&mut self, now: Time, flow: u64, from: End, option: &Subtype<'_>) -> u64 {
        let ask = match option {
            Subtype::Join(Join::Ask { token, nonce, .. }) => Some((*token, *nonce)),
            _ => None,
        };
        let known = ask.and_then(|(token, _)| self.tokens.get(&token)?.last().copied());
        let (id, whose) = known.unwrap_or_else(|| {
            let id = self.begin(now);
            if let Some((token, _)) = ask {
                self.is_called(token, id, from.other());
                if let Some(state) = self.connections.get_mut(&id) {
                    state.asked[from.other() as usize] = Some(token);
                }
            }
            (id, from.other())
        });
        self.flows.insert(flow, id);
        let Some(state) = self.connections.get_mut(&id) else { return id };
        if state.subflows.len() >= self.limits.each {
            state.ignored.insert(flow);
            self.dropped.subflows += 1;
        } else {
            let mut open = Open::new(now, flow, whose == from);
            open.ask = ask;
            state.subflows.push(open);
        }
        self.subflows += 1;
        id
    }

    /// The connection that a flow belongs to when the answer to its join has passed: where others
    /// have the same token, the answer's hash shows which.
    fn place_by_answer(&mut self, id: u64, flow: u64, from: End, option: &Subtype<'_>) -> u64 {
        let Subtype::Join(Join::Answer { hmac, nonce, .. }) = option else { return id };
        let Some(state) = self.connections.get_mut(&id) else { return id };
        let Some(open) = state.open(flow).filter(|open| open.row.role == Role::Joined) else {
            return id;
        };
        let Some((token, asked)) = open.ask else { return id };
        let (asker, nonces) = (open.end(from).other(), [*nonce, asked]);
        let is_verified = state.verifies(asker, nonces, *hmac);
        if let Some(open) = state.open(flow) {
            open.row.is_verified = is_verified;
        }
        if is_verified == Some(true) {
            return id;
        }
        let others = self.tokens.get(&token).map_or(&[][..], Vec::as_slice);
        let fits = others.iter().rev().find(|(other, whose)| {
            let state = self.connections.get(other).filter(|state| state.id != id);
            state.is_some_and(|s| s.verifies(whose.other(), nonces, *hmac) == Some(true))
        });
        match fits.copied() {
            Some((other, whose)) => self.moves(flow, id, other, whose != from),
            None => id,
        }
    }

    /// A subflow turns out to be another connection's.
    fn moves(&mut self, flow: u64, id: u64, other: u64, is_reversed: bool) -> u64 {
        let is_full =
            self.connections.get(&other).is_none_or(|s| s.subflows.len() >= self.limits.each);
        let Some(state) = self.connections.get_mut(&id).filter(|_| !is_full) else { return id };
        let Some(at) = state.subflows.iter().position(|open| open.row.flow == flow) else {
            return id;
        };
        let mut open = state.subflows.remove(at);
        let is_left_empty = state.subflows.is_empty();
        if open.row.is_reversed != is_reversed {
            open.turn();
        }
        open.row.is_verified = Some(true);
        if let Some(state) = self.connections.get_mut(&other) {
            state.subflows.push(open);
        }
        self.flows.insert(flow, other);
        if is_left_empty {
            self.forget(id);
        }
        other
    }

    fn begin(&mut self, now: Time) -> u64 {
        let id = self.began;
        self.began += 1;
        self.connections.insert(id, State::new(id, now));
        self.turns.push_back((now, id));
        id
    }

    /// An end of a connection has this token.
    fn is_called(&mut self, token: u32, id: u64, end: End) {
        let namesakes = self.tokens.entry(token).or_default();
        namesakes.push((id, end));
        if namesakes.len() > NAMESAKES {
            namesakes.remove(0);
            self.dropped.tokens += 1;
        }
    }

    /// Looks at a connection or two: those that were silent for long are told. Where there are too
    /// many, it goes on until there are not: each look takes one out for good.
    fn take_turns(&mut self, now: Time) {
        let mut looks = 0;
        loop {
            let is_full = self.connections.len() > self.limits.connections
                || self.subflows > self.limits.subflows;
            // Those that are over have turns yet.
            let is_long = self.turns.len() / 2 > self.limits.connections;
            let Some((then, id)) = self.turns.front().copied() else { return };
            let is_due = is_long || now.since(then) > self.limits.idle;
            if !is_full && (looks == 2 || !is_due) {
                return;
            }
            looks = (looks + 1).min(2);
            self.turns.pop_front();
            let Some(last) = self.connections.get(&id).map(|state| state.last) else { continue };
            if now.since(last) > self.limits.idle {
                self.dropped.idle += 1;
                self.tell(id);
            } else if is_full {
                self.dropped.evicted += 1;
                self.tell(id);
            } else {
                self.turns.push_back((last, id));
            }
        }
    }

    fn tell(&mut self, id: u64) {
        if let Some(state) = self.forget(id) {
            self.over.push_back(state.into_row());
        }
    }

    fn forget(&mut self, id: u64) -> Option<State> {
        let state = self.connections.remove(&id)?;
        self.subflows -= state.subflows.len() + state.ignored.len();
        self.dropped.addresses += state.dropped;
        let flows = state.subflows.iter().map(|open| &open.row.flow).chain(&state.ignored);
        for flow in flows {
            self.flows.remove(flow);
        }
        let tokens = state.tokens().into_iter().chain(state.asked).flatten();
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
    /// Whether nothing is left behind.
    pub(super) fn holds_nothing(&self) -> bool {
        self.connections.is_empty()
            && self.flows.is_empty()
            && self.tokens.is_empty()
            && self.turns.is_empty()
            && self.subflows == 0
    }

    pub(super) fn turns(&self) -> usize {
        self.turns.len()
    }
}
