//! Flow table of UDP, by addresses and ports.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use manyways_unit::{Span, Time};

use super::Flow;
use manyways_wire::frame;
use manyways_wire::stream::{Endpoint, Exchange};
use manyways_wire::udp::Datagram;

/// Maximum number of queue entries of ended flows, in addition to those of active ones.
const MAX_STALE_ENTRIES: usize = 64;

/// Limits of a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of flows; above it, the flow examined least recently is evicted.
    pub flows: usize,
    /// Idle timeout of a flow.
    pub idle: Span,
}

/// The active flows.
#[derive(Debug)]
pub struct Table {
    limits: Limits,
    flows: HashMap<Key, Entry>,
    /// Flows in the order of examination, with their number and the time of the last datagram when
    /// queued.
    examinations: VecDeque<(Time, Key, u64)>,
    /// Number of flows so far.
    count: u64,
    ended: VecDeque<EndedFlow>,
    evicted: u64,
}

/// A flow that has ended, or was evicted.
#[derive(Debug)]
pub struct EndedFlow {
    /// The endpoint that sent the first datagram.
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub flow: Flow,
    /// An exchange that was active at the end.
    pub exchange: Option<Exchange>,
}

/// The flow of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct FlowContext {
    pub client: SocketAddr,
    pub server: SocketAddr,
    /// Time of the flow's first datagram in the capture.
    pub started: Time,
    /// Sender of the datagram.
    pub from: Endpoint,
    /// An exchange of the flow that this datagram ends.
    pub exchange: Option<Exchange>,
}

/// The two endpoints, sorted by address independently of roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key([(IpAddr, u16); 2]);

#[derive(Debug)]
struct Entry {
    /// Whether the client is the first endpoint of the key.
    is_client_first: bool,
    /// Distinguishes flows between the same endpoints.
    number: u64,
    flow: Flow,
}

impl Default for Limits {
    /// The same values as for TCP.
    fn default() -> Self {
        let crate::flow::Limits { connections: flows, idle } = crate::flow::Limits::default();
        Self { flows, idle }
    }
}

impl Table {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            flows: HashMap::new(),
            examinations: VecDeque::new(),
            count: 0,
            ended: VecDeque::new(),
            evicted: 0,
        }
    }

    /// Number of active flows.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Number of flows evicted because the table was full.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Handles a datagram; `is_dns` is whether it is a DNS message.
    pub fn handle(
        &mut self,
        now: Time,
        packet: &frame::IpPacket<'_>,
        datagram: &Datagram<'_>,
        is_dns: bool,
    ) -> FlowContext {
        self.examine(now);
        let sender = (packet.source, datagram.source_port);
        let receiver = (packet.destination, datagram.destination_port);
        let is_first = sender <= receiver;
        let key = Key(if is_first { [sender, receiver] } else { [receiver, sender] });
        let is_another = |entry: &Entry| {
            // A clock that steps back by more than the timeout ends a flow, too.
            let silence = now.distance(entry.flow.last());
            silence > self.limits.idle || entry.is_new_flow(is_first, datagram)
        };
        if self.flows.get(&key).is_some_and(is_another) {
            self.end(key);
        }
        if !self.flows.contains_key(&key) {
            self.requeue(now, key);
        }
        let entry = self.flows.entry(key).or_insert_with(|| Entry {
            is_client_first: is_first == (Flow::sender(datagram) == Endpoint::Client),
            number: self.count,
            flow: Flow::new(now, datagram),
        });
        if is_dns {
            entry.flow.mark_dns();
        }
        let from = entry.endpoint(is_first);
        let exchange = entry.flow.handle(now, from, datagram, packet.length, packet.ecn);
        let ends = [sender, receiver].map(SocketAddr::from);
        let [client, server] = if from == Endpoint::Client { ends } else { [ends[1], ends[0]] };
        FlowContext { client, server, started: entry.flow.first(), from, exchange }
    }

    /// Ends all flows that are idle at `now`.
    pub fn advance(&mut self, now: Time) {
        loop {
            let before = self.examinations.len();
            self.examine(now);
            // An examined flow that stays returns to the end of the queue.
            let is_due = |(then, ..): &(Time, Key, u64)| now.distance(*then) > self.limits.idle;
            if self.examinations.len() == before && !self.examinations.front().is_some_and(is_due) {
                return;
            }
        }
    }

    /// Returns an ended flow, in no particular order.
    pub fn poll(&mut self) -> Option<EndedFlow> {
        self.ended.pop_front()
    }

    /// Ends all remaining flows.
    pub fn finish(&mut self) {
        let keys: Vec<Key> = self.flows.keys().copied().collect();
        keys.into_iter().for_each(|key| self.end(key));
        self.examinations.clear();
    }

    /// Examines one or two flows, and ends idle ones.
    fn examine(&mut self, now: Time) {
        for _ in 0..2 {
            let is_full = self.flows.len() > self.limits.flows;
            let Some((then, key, number)) = self.examinations.front().copied() else { return };
            if !is_full && now.distance(then) <= self.limits.idle {
                return;
            }
            self.examinations.pop_front();
            let same = self.flows.get(&key).filter(|entry| entry.number == number);
            let Some(entry) = same else { continue };
            let last = entry.flow.last();
            if !is_full && then > now {
                // The clock has stepped back, or only this packet is wrong: wait for the timeout.
                self.examinations.push_back((now, key, number));
            } else if now.distance(last) > self.limits.idle {
                self.end(key);
            } else if is_full {
                self.evicted += 1;
                self.end(key);
            } else {
                self.examinations.push_back((last, key, number));
            }
        }
    }

    fn requeue(&mut self, now: Time, key: Key) {
        if self.examinations.len() > self.flows.len() * 2 + MAX_STALE_ENTRIES {
            // Reused ports leave entries of ended flows in the queue.
            let flows = &self.flows;
            self.examinations.retain(|(_, key, number)| {
                flows.get(key).is_some_and(|entry| entry.number == *number)
            });
        }
        self.count += 1;
        self.examinations.push_back((now, key, self.count));
    }

    fn end(&mut self, key: Key) {
        let Some(Entry { is_client_first: begins_first, mut flow, .. }) = self.flows.remove(&key)
        else {
            return;
        };
        let [first, second] = key.0.map(SocketAddr::from);
        let (client, server) = if begins_first { (first, second) } else { (second, first) };
        let exchange = flow.end();
        self.ended.push_back(EndedFlow { client, server, flow, exchange });
    }
}

impl Entry {
    fn endpoint(&self, is_first: bool) -> Endpoint {
        if is_first == self.is_client_first { Endpoint::Client } else { Endpoint::Server }
    }

    fn is_new_flow(&self, is_first: bool, datagram: &Datagram<'_>) -> bool {
        self.endpoint(is_first) == Endpoint::Client && self.flow.is_new_flow(datagram)
    }
}

#[cfg(test)]
mod tests;
