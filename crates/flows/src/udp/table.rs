//! All flows of UDP that pass, by their addresses and ports.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use manyways_unit::{Span, Time};

use super::Flow;
use manyways_wire::frame;
use manyways_wire::stream::{End, Exchange};
use manyways_wire::udp::Datagram;

/// So many turns of flows that are over may be left, beside one for each that is not.
const SPARE: usize = 64;

/// What the table may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// So many flows at a time; of more, the one that was looked at longest ago goes.
    pub flows: usize,
    /// A flow of which nothing passes for so long is over.
    pub idle: Span,
}

/// The flows that are not over yet.
#[derive(Debug)]
pub struct Table {
    limits: Limits,
    flows: HashMap<Key, Entry>,
    /// Whom to look at next, with its number, and what its last datagram was when that was decided.
    turns: VecDeque<(Time, Key, u64)>,
    /// How many there have been.
    count: u64,
    over: VecDeque<Ended>,
    evicted: u64,
}

/// A flow that is over, or of which the table has no more.
#[derive(Debug)]
pub struct Ended {
    /// Who began it.
    pub client: SocketAddr,
    /// The other end.
    pub server: SocketAddr,
    /// What passed.
    pub flow: Flow,
    /// Its last exchange, where one was going on.
    pub exchange: Option<Exchange>,
}

/// The flow that a datagram belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Passing {
    /// Who began it.
    pub client: SocketAddr,
    /// The other end.
    pub server: SocketAddr,
    /// When it began.
    pub started: Time,
    /// Who sent the datagram.
    pub from: End,
    /// An exchange of the flow that is over with it.
    pub exchange: Option<Exchange>,
}

/// The ends in the order of their addresses, whoever began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key([(IpAddr, u16); 2]);

#[derive(Debug)]
struct Entry {
    /// The client is the key's first end.
    begins_first: bool,
    /// There may have been others between the same ends.
    number: u64,
    flow: Flow,
}

impl Default for Limits {
    fn default() -> Self {
        Self { flows: 1 << 20, idle: Span::from_secs(120) }
    }
}

impl Table {
    /// An empty one.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            flows: HashMap::new(),
            turns: VecDeque::new(),
            count: 0,
            over: VecDeque::new(),
            evicted: 0,
        }
    }

    /// How many flows are in it.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// So many flows had to go before they were over.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// A datagram passes, in this packet. `is_dns` is whether it is a question to a name server or an
    /// answer to one.
    pub fn handle(
        &mut self,
        now: Time,
        packet: &frame::Datagram<'_>,
        datagram: &Datagram<'_>,
        is_dns: bool,
    ) -> Passing {
        self.take_turns(now);
        let sender = (packet.source, datagram.from);
        let receiver = (packet.destination, datagram.to);
        let is_first = sender <= receiver;
        let key = Key(if is_first { [sender, receiver] } else { [receiver, sender] });
        let is_another = |entry: &Entry| {
            now.since(entry.flow.last()) > self.limits.idle || entry.is_another(is_first, datagram)
        };
        if self.flows.get(&key).is_some_and(is_another) {
            self.ends(key);
        }
        if !self.flows.contains_key(&key) {
            self.takes_another_turn(now, key);
        }
        let entry = self.flows.entry(key).or_insert_with(|| Entry {
            begins_first: is_first == (Flow::sender(datagram) == End::Client),
            number: self.count,
            flow: Flow::new(now, datagram),
        });
        if is_dns {
            entry.flow.speaks_dns();
        }
        let from = entry.end(is_first);
        let exchange = entry.flow.handle(now, from, datagram, packet.length, packet.ecn);
        let ends = [sender, receiver].map(SocketAddr::from);
        let [client, server] = if from == End::Client { ends } else { [ends[1], ends[0]] };
        Passing { client, server, started: entry.flow.started(), from, exchange }
    }

    /// Time goes by without a datagram: all flows that were silent for long are over.
    pub fn advance(&mut self, now: Time) {
        loop {
            let before = self.turns.len();
            self.take_turns(now);
            // Whoever is looked at and stays takes its turn again behind all others.
            let is_due = |(then, ..): &(Time, Key, u64)| now.since(*then) > self.limits.idle;
            if self.turns.len() == before && !self.turns.front().is_some_and(is_due) {
                return;
            }
        }
    }

    /// A flow that is over, in no order.
    pub fn poll(&mut self) -> Option<Ended> {
        self.over.pop_front()
    }

    /// Nothing passes any more: all that are left are over.
    pub fn finish(&mut self) {
        let keys: Vec<Key> = self.flows.keys().copied().collect();
        keys.into_iter().for_each(|key| self.ends(key));
        self.turns.clear();
    }

    /// Looks at a flow or two: those that were silent for long are over.
    fn take_turns(&mut self, now: Time) {
        for _ in 0..2 {
            let is_full = self.flows.len() > self.limits.flows;
            let Some((then, key, number)) = self.turns.front().copied() else { return };
            if !is_full && now.since(then) <= self.limits.idle {
                return;
            }
            self.turns.pop_front();
            let same = self.flows.get(&key).filter(|entry| entry.number == number);
            let Some(entry) = same else { continue };
            let last = entry.flow.last();
            if now.since(last) > self.limits.idle {
                self.ends(key);
            } else if is_full {
                self.evicted += 1;
                self.ends(key);
            } else {
                self.turns.push_back((last, key, number));
            }
        }
    }

    fn takes_another_turn(&mut self, now: Time, key: Key) {
        if self.turns.len() > self.flows.len() * 2 + SPARE {
            // Ports that are used again and again leave some that are over.
            let flows = &self.flows;
            self.turns.retain(|(_, key, number)| {
                flows.get(key).is_some_and(|entry| entry.number == *number)
            });
        }
        self.count += 1;
        self.turns.push_back((now, key, self.count));
    }

    fn ends(&mut self, key: Key) {
        let Some(Entry { begins_first, mut flow, .. }) = self.flows.remove(&key) else { return };
        let [first, second] = key.0.map(SocketAddr::from);
        let (client, server) = if begins_first { (first, second) } else { (second, first) };
        let exchange = flow.end();
        self.over.push_back(Ended { client, server, flow, exchange });
    }
}

impl Entry {
    fn end(&self, is_first: bool) -> End {
        if is_first == self.begins_first { End::Client } else { End::Server }
    }

    fn is_another(&self, is_first: bool, datagram: &Datagram<'_>) -> bool {
        self.end(is_first) == End::Client && self.flow.is_another(datagram)
    }
}

#[cfg(test)]
mod tests;
