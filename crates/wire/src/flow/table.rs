//! All connections that pass, by their addresses and ports.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use manyways_trace::{Span, Time};

use super::connection::{Connection, End};
use crate::tcp::{Flags, Segment};

/// What the table may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// So many connections at a time; of more, the one that was looked at longest ago goes.
    pub connections: usize,
    /// A connection of which nothing passes for so long is over.
    pub idle: Span,
}

/// The connections that are not over yet.
#[derive(Debug)]
pub struct Table {
    limits: Limits,
    connections: HashMap<Key, Entry>,
    /// Whom to look at next, and what its last segment was when that was decided.
    turns: VecDeque<(Time, Key)>,
    over: VecDeque<Flow>,
    evicted: u64,
}

/// A connection that is over, or of which the table has no more.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Who began it.
    pub client: SocketAddr,
    /// The other end.
    pub server: SocketAddr,
    /// What passed.
    pub connection: Connection,
}

/// The ends in the order of their addresses, whoever began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key([(IpAddr, u16); 2]);

#[derive(Debug)]
struct Entry {
    /// The client is the key's first end.
    begins_first: bool,
    connection: Connection,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 1 << 20, idle: Span::from_secs(300) }
    }
}

impl Table {
    /// An empty one.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            connections: HashMap::new(),
            turns: VecDeque::new(),
            over: VecDeque::new(),
            evicted: 0,
        }
    }

    /// How many connections are in it.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// So many connections had to go before they were over.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// A segment passes.
    pub fn handle(&mut self, now: Time, from: IpAddr, to: IpAddr, segment: &Segment<'_>) {
        self.take_turns(now);
        let (sender, receiver) = ((from, segment.from), (to, segment.to));
        let is_first = sender <= receiver;
        let key = Key(if is_first { [sender, receiver] } else { [receiver, sender] });
        if self.connections.get(&key).is_some_and(|entry| entry.is_another(is_first, segment)) {
            self.ends(key);
        }
        let entry = self.connections.entry(key).or_insert_with(|| {
            self.turns.push_back((now, key));
            let sender = Connection::sender(segment);
            Entry {
                begins_first: is_first == (sender == End::Client),
                connection: Connection::new(now),
            }
        });
        entry.connection.handle(now, entry.end(is_first), segment);
    }

    /// A connection that is over, in no order.
    pub fn poll(&mut self) -> Option<Flow> {
        self.over.pop_front()
    }

    /// Nothing passes any more: all that are left are over.
    pub fn finish(&mut self) {
        let keys: Vec<Key> = self.connections.keys().copied().collect();
        keys.into_iter().for_each(|key| self.ends(key));
        self.turns.clear();
    }

    /// Looks at a connection or two: those that were silent for long are over.
    fn take_turns(&mut self, now: Time) {
        for _ in 0..2 {
            let is_full = self.connections.len() > self.limits.connections;
            let Some((then, key)) = self.turns.front().copied() else { return };
            if !is_full && now.since(then) <= self.limits.idle {
                return;
            }
            self.turns.pop_front();
            let Some(entry) = self.connections.get(&key) else { continue };
            let last = entry.connection.last();
            if now.since(last) > self.limits.idle {
                self.ends(key);
            } else if is_full {
                self.evicted += 1;
                self.ends(key);
            } else {
                self.turns.push_back((last, key));
            }
        }
    }

    fn ends(&mut self, key: Key) {
        let Some(Entry { begins_first, connection }) = self.connections.remove(&key) else {
            return;
        };
        let [first, second] = key.0.map(SocketAddr::from);
        let (client, server) = if begins_first { (first, second) } else { (second, first) };
        self.over.push_back(Flow { client, server, connection });
    }
}

impl Entry {
    fn end(&self, is_first: bool) -> End {
        if is_first == self.begins_first { End::Client } else { End::Server }
    }

    /// Whether this begins another connection between the same ports: a SYN after the end of this
    /// one, or with another number.
    fn is_another(&self, is_first: bool, segment: &Segment<'_>) -> bool {
        if !segment.flags.has(Flags::SYN) || segment.flags.has(Flags::ACK) {
            return false;
        }
        let was_over = self.connection.reset().is_some() || self.connection.first_fin().is_some();
        let sender = self.connection.stream(self.end(is_first));
        was_over || sender.is_some_and(|stream| stream.first() != stream.place(segment.seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHONE: [u8; 4] = [192, 0, 2, 9];
    const SITE: [u8; 4] = [192, 0, 2, 1];

    /// A segment between two ports, towards the site or from it.
    fn pass(table: &mut Table, secs: u64, port: u16, is_up: bool, seq: u32, flags: u8) {
        let ports = if is_up { [port, 443] } else { [443, port] };
        let mut bytes = ports.map(u16::to_be_bytes).concat();
        bytes.extend([seq, 5].map(u32::to_be_bytes).concat());
        bytes.extend([0x50, flags, 1, 0, 0, 0, 0, 0]);
        let segment = Segment::read(&bytes, 20).unwrap();
        let (from, to) = if is_up { (PHONE, SITE) } else { (SITE, PHONE) };
        let now = Time::ZERO + Span::from_secs(secs);
        table.handle(now, from.into(), to.into(), &segment);
    }

    fn ports(table: &mut Table) -> Vec<u16> {
        std::iter::from_fn(|| table.poll()).map(|flow| flow.client.port()).collect()
    }

    #[test]
    fn both_directions_are_one_connection_whoever_comes_first() {
        let mut table = Table::new(Limits::default());
        pass(&mut table, 0, 5_000, true, 7, 0x02);
        pass(&mut table, 0, 5_000, false, 9, 0x12);
        // Of this one the server's answer passes first, of that neither SYN.
        pass(&mut table, 0, 5_001, false, 9, 0x12);
        pass(&mut table, 0, 5_002, false, 9, 0x10);
        assert_eq!(table.len(), 3);
        table.finish();
        let flows: Vec<Flow> = std::iter::from_fn(|| table.poll()).collect();
        assert!(table.is_empty());
        for flow in &flows {
            assert_eq!(flow.client.ip(), IpAddr::from(PHONE));
            assert_eq!(flow.server, SocketAddr::from((SITE, 443)));
            assert!(flow.connection.stream(End::Server).is_some());
        }
        assert_eq!(flows.len(), 3);
    }

    #[test]
    fn who_is_silent_for_long_is_over() {
        let mut table = Table::new(Limits::default());
        pass(&mut table, 0, 1, true, 7, 0x02);
        pass(&mut table, 1, 2, true, 7, 0x02);
        pass(&mut table, 200, 1, true, 8, 0x10);
        pass(&mut table, 320, 3, true, 7, 0x02);
        assert_eq!((ports(&mut table), table.len()), (vec![2], 2));
        pass(&mut table, 501, 3, true, 8, 0x10);
        assert_eq!((ports(&mut table), table.evicted()), (vec![1], 0));
    }

    #[test]
    fn a_port_that_is_used_again_is_another_connection() {
        let mut table = Table::new(Limits::default());
        pass(&mut table, 0, 1, true, 7, 0x02);
        pass(&mut table, 1, 1, true, 7, 0x02);
        assert_eq!(ports(&mut table), Vec::<u16>::new(), "the same SYN again");
        pass(&mut table, 2, 1, true, 7_000, 0x02);
        assert_eq!(ports(&mut table), [1]);
        pass(&mut table, 3, 1, false, 9, 0x14);
        pass(&mut table, 4, 1, true, 7_000, 0x02);
        assert_eq!(ports(&mut table), [1], "the one before was reset");
    }

    #[test]
    fn there_is_a_limit() {
        let mut table = Table::new(Limits { connections: 10, ..Limits::default() });
        for port in 0..1_000 {
            pass(&mut table, 0, port, true, 7, 0x02);
            assert!(table.len() <= 11);
        }
        assert_eq!(table.evicted(), 989);
        assert_eq!(ports(&mut table).len(), 989);
        assert!(table.turns.len() <= 11);
    }
}
