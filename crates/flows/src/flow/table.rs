//! Flow table of TCP, by addresses and ports.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, Hasher};
use std::mem;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use manyways_unit::{Span, Time};

use super::connection::{Connection, Fit, HeldPacket, Verdict};
use super::slab::Slab;
use manyways_wire::frame::IpPacket;
use manyways_wire::stream::Endpoint;
use manyways_wire::tcp::{Flags, Segment};

/// A connection that is closed or reset stays in the table for this time, because its last segments
/// may arrive late and would look like another connection.
const LINGER: Span = Span::from_secs(10);
/// Maximum number of connections that hold packets which do not fit; the oldest drop theirs.
const MAX_HOLDING: usize = 256;

/// Limits of a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections; above it, the connection examined least recently is evicted.
    pub connections: usize,
    /// Idle timeout of a connection.
    pub idle: Span,
}

/// The active connections, with a value of the caller for each.
#[derive(Debug)]
pub struct Table<A = ()> {
    limits: Limits,
    /// Index of each entry, by the hash of its key; small enough for the cache of a core.
    index: HashTable<u32>,
    hasher: RandomState,
    entries: Slab<Entry<A>>,
    /// Connections in the order of examination, with the time of the last segment when queued.
    examinations: VecDeque<(Time, EntryRef)>,
    /// Closed connections and their closing time.
    closed: VecDeque<(Time, EntryRef)>,
    /// Connections that hold packets, oldest first.
    holding: VecDeque<EntryRef>,
    /// Packets that wait for `take_replay`.
    replay: Vec<HeldPacket>,
    /// Ended connections that wait for `poll`; no longer found by key.
    ended: VecDeque<u32>,
    /// Number of connections so far.
    count: u64,
    evicted: u64,
}

/// A connection that has ended, or was evicted.
#[derive(Clone, Debug)]
pub struct Flow<A = ()> {
    /// From 0, in the order of first segments.
    pub number: u64,
    /// The endpoint that initiated the connection.
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub connection: Connection,
    /// Value of the caller.
    pub attached: A,
}

/// The connection of a segment.
#[derive(Debug)]
pub struct FlowContext<'a, A> {
    /// See [`Flow::number`].
    pub number: u64,
    /// Sender of the segment.
    pub from: Endpoint,
    /// Offset of the segment's first byte. `None` for RST.
    pub offset: Option<u64>,
    /// State after this segment.
    pub connection: &'a Connection,
    /// Value of the caller.
    pub attached: &'a mut A,
}

/// The two endpoints, sorted by address independently of roles. IPv4 addresses are mapped into
/// IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    /// As unaligned bytes, to save space: there are many keys.
    addresses: [[u8; 16]; 2],
    ports: [u16; 2],
}

/// Refers to an entry, unless its index was reused.
#[derive(Clone, Copy, Debug)]
struct EntryRef {
    index: u32,
    /// Lower 32 bits of the connection's number.
    number: u32,
}

#[derive(Debug)]
struct Entry<A> {
    key: Key,
    number: u64,
    /// Whether the client is the first endpoint of the key.
    is_client_first: bool,
    is_closed: bool,
    has_ended: bool,
    connection: Connection,
    attached: A,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 1 << 20, idle: Span::from_secs(300) }
    }
}

impl<A: Default> Table<A> {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            index: HashTable::new(),
            hasher: RandomState::default(),
            entries: Slab::default(),
            examinations: VecDeque::new(),
            closed: VecDeque::new(),
            holding: VecDeque::new(),
            replay: Vec::new(),
            ended: VecDeque::new(),
            count: 0,
            evicted: 0,
        }
    }

    /// Number of active connections.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Number of connections evicted because the table was full.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Handles the segment in an IP packet. Returns its connection; `None` if its numbers do not fit
    /// the connection between these endpoints: then it counts nowhere, unless [`Self::take_replay`]
    /// returns it.
    // Called for each packet, and the result is large.
    #[inline(always)]
    pub fn handle(
        &mut self,
        now: Time,
        packet: &IpPacket<'_>,
        segment: &Segment<'_>,
    ) -> Option<FlowContext<'_, A>> {
        if self.is_examination_due(now) {
            self.examine(now);
        }
        let (sender, receiver) = (packet.source, packet.destination);
        let (key, is_first) =
            Key::of((sender, segment.source_port), (receiver, segment.destination_port));
        let hash = self.hasher.hash_one(key);
        let found = self.find(hash, &key).map(|(index, entry)| {
            // A clock that steps back by more than the timeout ends a connection, too.
            let silence = now.distance(entry.connection.last());
            if silence > self.limits.idle || entry.is_new_connection(is_first, segment) {
                return (index, None);
            }
            (index, Some(entry.connection.fit(now, entry.endpoint(is_first), segment)))
        });
        let (index, fit) = match found {
            Some((index, Some(fit))) => (index, fit),
            found => {
                found.into_iter().for_each(|(index, _)| self.end(index));
                (self.insert(now, (hash, key), is_first, segment), Fit::Fits)
            }
        };
        let mut is_ack_fitting = true;
        if fit != Fit::Fits {
            match self.on_unfit(fit, index, (now, is_first), packet, segment) {
                Ok(counts) => is_ack_fitting = counts,
                Err(verdict) => {
                    self.follow(index, verdict);
                    return None;
                }
            }
        }
        let entry = self.entries.get_mut(index)?;
        let end = entry.endpoint(is_first);
        let at = entry.connection.accept(now, end, segment, is_ack_fitting);
        if !entry.is_closed && entry.connection.is_closed() {
            entry.is_closed = true;
            self.closed.push_back((now, EntryRef { index, number: entry.number as u32 }));
        }
        let Entry { number, connection, attached, .. } = entry;
        Some(FlowContext { number: *number, from: end, offset: at, connection, attached })
    }

    /// Handles numbers of a segment that do not fit its connection. Returns whether its
    /// acknowledgment number counts all the same, or what the segment shows.
    #[inline(never)]
    fn on_unfit(
        &mut self,
        fit: Fit,
        index: u32,
        (now, is_first): (Time, bool),
        packet: &IpPacket<'_>,
        segment: &Segment<'_>,
    ) -> Result<bool, Verdict> {
        let Some(entry) = self.entries.get_mut(index) else { return Err(Verdict::Unclear) };
        let end = entry.endpoint(is_first);
        if fit == Fit::Refused {
            return Err(entry.connection.on_refused(now, end, packet, segment));
        }
        let (counts, verdict) = entry.connection.on_refused_ack(end, segment);
        if let Verdict::Continues(of, mut packets) = verdict {
            packets.push(HeldPacket::new(now, packet));
            return Err(Verdict::Continues(of, packets));
        }
        Ok(counts)
    }

    /// Returns the packets whose connection the latest segment has shown, itself included, because
    /// they did not fit before. They are to be handled now.
    pub fn take_replay(&mut self) -> Vec<HeldPacket> {
        mem::take(&mut self.replay)
    }

    /// Does what a segment shows that does not fit.
    #[inline(never)]
    fn follow(&mut self, index: u32, verdict: Verdict) {
        match verdict {
            Verdict::Unclear => self.limit_holding(index),
            Verdict::NewConnection(packets) => {
                self.end(index);
                self.replay = packets;
            }
            Verdict::Continues(end, packets) => {
                let first = packets.first().zip(self.entries.get_mut(index));
                let continues = first.is_some_and(|(held, entry)| {
                    let packet = held.packet();
                    let segment = Segment::read(packet.payload, packet.payload_length);
                    segment
                        .is_some_and(|segment| entry.connection.continue_at(end, &segment, held.at))
                });
                if !continues {
                    self.end(index);
                }
                self.replay = packets;
            }
        }
    }

    /// Limits the number of connections that hold packets.
    fn limit_holding(&mut self, index: u32) {
        let Some(entry) = self.entries.get(index) else { return };
        let turn = EntryRef { index, number: entry.number as u32 };
        let is_in = |other: &EntryRef| other.index == index && other.number == turn.number;
        if !entry.connection.holds_packets() || self.holding.iter().any(is_in) {
            return;
        }
        self.holding.push_back(turn);
        if self.holding.len() > MAX_HOLDING
            && let Some(oldest) = self.holding.pop_front()
            && let Some(entry) = self.entries.get_mut(oldest.index)
            && entry.number as u32 == oldest.number
        {
            entry.connection.release_packets();
        }
    }

    /// Ends closed connections after their linger time, and idle connections, as a segment at `now`
    /// does; but all of them at once.
    pub fn advance(&mut self, now: Time) {
        loop {
            let before = self.examinations.len();
            self.examine(now);
            // An examined connection that stays returns to the end of the queue.
            let is_due = |(then, _): &(Time, EntryRef)| now.distance(*then) > self.limits.idle;
            if self.examinations.len() == before && !self.examinations.front().is_some_and(is_due) {
                return;
            }
        }
    }

    /// Whether an ended connection waits for [`Self::poll`].
    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Returns an ended connection, in no particular order.
    pub fn poll(&mut self) -> Option<Flow<A>> {
        let index = self.ended.pop_front()?;
        self.take(index)
    }

    fn take(&mut self, index: u32) -> Option<Flow<A>> {
        let entry = self.entries.take(index)?;
        let Entry { key, number, is_client_first: begins_first, connection, attached, .. } = entry;
        let (client, server) = key.endpoints(begins_first);
        Some(Flow { number, client, server, connection, attached })
    }

    /// Ends all remaining connections, in the order of their first segments.
    pub fn finish(&mut self) {
        let entries = self.entries.iter().filter(|(_, entry)| !entry.has_ended);
        let mut left: Vec<_> = entries.map(|(index, entry)| (entry.number, index)).collect();
        left.sort_unstable();
        left.into_iter().for_each(|(_, index)| self.end(index));
        self.examinations.clear();
        self.closed.clear();
    }

    /// Returns the entry of a key, and its index.
    fn find(&self, hash: u64, key: &Key) -> Option<(u32, &Entry<A>)> {
        let mut found = None;
        let is_it = |place: &u32| {
            found = self.entries.get(*place).filter(|entry| entry.key == *key);
            found.is_some()
        };
        let index = *self.index.find(hash, is_it)?;
        Some((index, found?))
    }

    fn insert(
        &mut self,
        now: Time,
        (hash, key): (u64, Key),
        is_first: bool,
        segment: &Segment<'_>,
    ) -> u32 {
        let sender = Connection::guess_sender(segment);
        let number = self.count;
        self.count += 1;
        let index = self.entries.insert(Entry {
            key,
            number,
            is_client_first: is_first == (sender == Endpoint::Client),
            is_closed: false,
            has_ended: false,
            connection: Connection::new(now),
            attached: A::default(),
        });
        let Self { index: places, entries, hasher, .. } = self;
        places.insert_unique(hash, index, |index| {
            entries.get(*index).map_or(0, |entry| hasher.hash_one(entry.key))
        });
        self.examinations.push_back((now, EntryRef { index, number: number as u32 }));
        index
    }

    /// Whether a connection must be examined. Called for each packet.
    #[inline]
    fn is_examination_due(&self, now: Time) -> bool {
        let is_due = |turns: &VecDeque<(Time, EntryRef)>, after| {
            turns.front().is_some_and(|(then, _)| now.distance(*then) > after)
        };
        is_due(&self.closed, LINGER)
            || is_due(&self.examinations, self.limits.idle)
            || self.index.len() > self.limits.connections
    }

    /// Ends closed connections after their linger time, and examines one or two others for
    /// idleness.
    #[inline(never)]
    fn examine(&mut self, now: Time) {
        while let Some((then, turn)) = self.closed.front().copied()
            && now.distance(then) > LINGER
        {
            self.closed.pop_front();
            if self.entry(turn).is_some() {
                self.end(turn.index);
            }
        }
        for _ in 0..2 {
            let is_full = self.index.len() > self.limits.connections;
            let Some((then, turn)) = self.examinations.front().copied() else { return };
            if !is_full && now.distance(then) <= self.limits.idle {
                return;
            }
            self.examinations.pop_front();
            let Some(entry) = self.entry(turn) else { continue };
            let last = entry.connection.last();
            if !is_full && then > now {
                // The clock has stepped back, or only this packet is wrong: wait for the timeout.
                self.examinations.push_back((now, turn));
            } else if now.distance(last) > self.limits.idle {
                self.end(turn.index);
            } else if is_full {
                self.evicted += 1;
                self.end(turn.index);
            } else {
                self.examinations.push_back((last, turn));
            }
        }
    }

    fn entry(&self, turn: EntryRef) -> Option<&Entry<A>> {
        let entry = self.entries.get(turn.index)?;
        (entry.number as u32 == turn.number && !entry.has_ended).then_some(entry)
    }

    fn end(&mut self, index: u32) {
        let Some(entry) = self.entries.get_mut(index) else { return };
        entry.has_ended = true;
        let hash = self.hasher.hash_one(entry.key);
        if let Ok(found) = self.index.find_entry(hash, |other| *other == index) {
            found.remove();
        }
        self.ended.push_back(index);
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [one, other] = self.addresses;
        let [first, second] = self.ports;
        state.write_u128(u128::from_ne_bytes(one));
        state.write_u128(u128::from_ne_bytes(other));
        state.write_u32(u32::from(first) << 16 | u32::from(second));
    }
}

impl Key {
    /// Returns the key of a packet, and whether its sender is the first endpoint.
    #[inline]
    fn of(sender: (IpAddr, u16), receiver: (IpAddr, u16)) -> (Self, bool) {
        let (one, other) = (number(sender.0), number(receiver.0));
        let is_first = one < other || one == other && sender.1 <= receiver.1;
        let (addresses, ports) = match is_first {
            true => ([one, other], [sender.1, receiver.1]),
            false => ([other, one], [receiver.1, sender.1]),
        };
        (Self { addresses: addresses.map(u128::to_ne_bytes), ports }, is_first)
    }

    /// Returns the client and the server.
    fn endpoints(&self, begins_first: bool) -> (SocketAddr, SocketAddr) {
        let end = |index: usize| {
            let address = Ipv6Addr::from(u128::from_ne_bytes(self.addresses[index]));
            SocketAddr::new(address.to_canonical(), self.ports[index])
        };
        if begins_first { (end(0), end(1)) } else { (end(1), end(0)) }
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => 0xffff << 32 | u128::from(u32::from(address)),
        IpAddr::V6(address) => address.into(),
    }
}

impl<A> Entry<A> {
    fn endpoint(&self, is_first: bool) -> Endpoint {
        if is_first == self.is_client_first { Endpoint::Client } else { Endpoint::Server }
    }

    /// Whether a segment begins another connection between the same ports: a SYN after the end of
    /// this connection, or if nothing but other SYNs has passed. Another SYN must be answered first.
    fn is_new_connection(&self, is_first: bool, segment: &Segment<'_>) -> bool {
        if !segment.flags.has(Flags::SYN) || segment.flags.has(Flags::ACK) {
            return false;
        }
        let (connection, from) = (&self.connection, self.endpoint(is_first));
        let is_reset = connection.reset().is_some();
        let was_over = is_reset || connection.first_fin().is_some();
        let Some(sender) = connection.stream(from) else { return was_over };
        if sender.is_own_syn(segment) {
            return is_reset;
        }
        was_over || connection.stream(from.other()).is_none() && !sender.has_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHONE: [u8; 4] = [192, 0, 2, 9];
    const SERVER: [u8; 4] = [192, 0, 2, 1];

    /// Sequence numbers of the SYNs.
    const ISNS: [u32; 2] = [7, 9];

    fn datagram(is_up: bool, payload: &[u8], length: usize) -> IpPacket<'_> {
        let (source, destination) = if is_up { (PHONE, SERVER) } else { (SERVER, PHONE) };
        IpPacket {
            source: source.into(),
            destination: destination.into(),
            protocol: 6,
            payload,
            payload_length: length,
            length: length + 20,
            fragment: None,
            ecn: 0,
            id: 0,
            hop_limit: 64,
            is_tunnelled: false,
        }
    }

    /// Passes a segment between a port of the client and port 443 of the server.
    fn pass(table: &mut Table, secs: u64, port: u16, is_up: bool, seq: u32, flags: u8) {
        let ack = ISNS[usize::from(is_up)] + 1;
        pass_ack(table, secs, port, is_up, [seq, ack], flags);
    }

    fn pass_ack(
        table: &mut Table,
        secs: u64,
        port: u16,
        is_up: bool,
        numbers: [u32; 2],
        flags: u8,
    ) {
        let ports = if is_up { [port, 443] } else { [443, port] };
        let mut bytes = ports.map(u16::to_be_bytes).concat();
        bytes.extend(numbers.map(u32::to_be_bytes).concat());
        bytes.extend([0x50, flags, 1, 0, 0, 0, 0, 0]);
        let segment = Segment::read(&bytes, 20).unwrap();
        let now = Time::ZERO + Span::from_secs(secs);
        table.handle(now, &datagram(is_up, &bytes, 20), &segment);
    }

    fn ports(table: &mut Table) -> Vec<u16> {
        std::iter::from_fn(|| table.poll()).map(|flow| flow.client.port()).collect()
    }

    #[test]
    fn both_directions_are_one_connection_whoever_comes_first() {
        let mut table = Table::new(Limits::default());
        pass(&mut table, 0, 5_000, true, 7, 0x02);
        pass(&mut table, 0, 5_000, false, 9, 0x12);
        // Of the next connection the SYN/ACK passes first; of the third neither SYN passes.
        pass(&mut table, 0, 5_001, false, 9, 0x12);
        pass(&mut table, 0, 5_002, false, 9, 0x10);
        assert_eq!(table.len(), 3);
        table.finish();
        let flows: Vec<Flow> = std::iter::from_fn(|| table.poll()).collect();
        assert!(table.is_empty());
        for flow in &flows {
            assert_eq!(flow.client.ip(), IpAddr::from(PHONE));
            assert_eq!(flow.server, SocketAddr::from((SERVER, 443)));
            assert!(flow.connection.stream(Endpoint::Server).is_some());
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
        pass_ack(&mut table, 3, 1, false, [9, 7_001], 0x14);
        pass(&mut table, 4, 1, true, 7_000, 0x02);
        assert_eq!(ports(&mut table), [1], "the one before was reset");
    }

    #[test]
    fn there_is_a_limit() {
        let mut table = Table::new(Limits { connections: 10, ..Limits::default() });
        let mut over = 0;
        for port in 0..1_000 {
            pass(&mut table, 0, port, true, 7, 0x02);
            assert!(table.len() <= 11);
            over += ports(&mut table).len();
        }
        assert_eq!((table.evicted(), over), (989, 989));
        assert!(table.examinations.len() <= 11 && table.entries.slot_count() <= 12);
    }

    #[test]
    fn few_connections_hold_packets_that_do_not_fit() {
        let mut table = Table::new(Limits::default());
        for port in 1..=300 {
            pass(&mut table, 0, port, true, 7, 0x02);
            pass(&mut table, 0, port, false, 9, 0x12);
            pass(&mut table, 1, port, true, 2_000_000_000, 0x10);
        }
        let holding: Vec<u32> = (table.entries.iter())
            .filter(|(_, entry)| entry.connection.holds_packets())
            .map(|(index, _)| index)
            .collect();
        // The latest ones.
        assert_eq!(holding, (300 - MAX_HOLDING as u32..300).collect::<Vec<u32>>());
    }

    #[test]
    fn who_was_closed_goes_soon() {
        let mut table = Table::new(Limits::default());
        for port in 1..=3 {
            pass(&mut table, 0, port, true, 7, 0x02);
            pass(&mut table, 0, port, false, 9, 0x12);
        }
        pass(&mut table, 1, 1, true, 8, 0x11);
        pass(&mut table, 2, 2, true, 8, 0x11);
        pass(&mut table, 2, 2, false, 10, 0x11);
        pass(&mut table, 3, 3, false, 10, 0x14);
        // The last ACK still belongs to the connection.
        pass(&mut table, 12, 2, true, 9, 0x10);
        assert_eq!(table.len(), 3);
        pass(&mut table, 20, 9, true, 7, 0x02);
        assert_eq!(ports(&mut table), [2, 3], "the other end of the first one did not close it");
    }

    #[test]
    fn time_ends_what_was_closed_or_silent_without_a_segment() {
        let mut table = Table::new(Limits::default());
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        for port in 1..=9 {
            pass(&mut table, 0, port, true, 7, 0x02);
        }
        pass(&mut table, 5, 1, false, 9, 0x14);
        pass(&mut table, 200, 2, true, 8, 0x10);
        assert_eq!(ports(&mut table), [1], "a segment ends what was closed");
        pass(&mut table, 250, 9, false, 9, 0x14);
        table.advance(at(260));
        assert_eq!(table.len(), 8);
        table.advance(at(261));
        assert_eq!(ports(&mut table), [9]);
        table.advance(at(300));
        assert_eq!(table.len(), 7);
        // All at once, whatever their number.
        table.advance(at(301));
        let mut over = ports(&mut table);
        over.sort_unstable();
        assert_eq!((over, table.len()), ((3..=8).collect(), 1));
        table.advance(at(501));
        assert_eq!((ports(&mut table), table.evicted()), (vec![2], 0));
        table.advance(at(9_999));
        assert!(table.examinations.is_empty());
    }

    #[test]
    fn a_clock_that_steps_back_ends_connections_as_one_that_steps_forward() {
        let mut table = Table::new(Limits::default());
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        pass(&mut table, 10_000, 5_001, true, 7, 0x02);
        pass(&mut table, 10_000, 5_002, true, 7, 0x02);
        pass(&mut table, 9_800, 5_001, true, 8, 0x10);
        assert_eq!(ports(&mut table), Vec::<u16>::new(), "200 s may be a correction of the clock");
        pass(&mut table, 9_000, 5_001, true, 9, 0x10);
        let over = table.poll().unwrap();
        let duration = over.connection.last().since(over.connection.started());
        assert_eq!((over.client.port(), duration), (5_001, Span::from_secs(200)));
        assert_eq!(over.connection.first(), at(10_000));
        // The second connection ends after the timeout, not when the clock is back at 10,300 s.
        table.advance(at(9_300));
        assert_eq!((ports(&mut table), table.len()), (vec![], 2));
        table.advance(at(9_301));
        let mut over = ports(&mut table);
        over.sort_unstable();
        assert_eq!(over, [5_001, 5_002]);
    }

    #[test]
    fn one_packet_with_a_wrong_time_ends_no_other_connection() {
        let mut table = Table::new(Limits::default());
        for port in 5_001..=5_009 {
            pass(&mut table, 10_000, port, true, 7, 0x02);
        }
        pass(&mut table, 0, 5_010, true, 7, 0x02);
        pass(&mut table, 10_001, 5_011, true, 7, 0x02);
        pass(&mut table, 10_002, 5_011, true, 8, 0x10);
        table.advance(Time::ZERO + Span::from_secs(10_003));
        assert_eq!((ports(&mut table), table.len()), (vec![], 11));
    }

    #[test]
    fn each_has_something_of_the_callers() {
        let mut table: Table<u32> = Table::new(Limits::default());
        let mut numbers = Vec::new();
        for port in [5_001, 5_002, 5_001, 5_001] {
            let mut bytes = [port, 443_u16].map(u16::to_be_bytes).concat();
            bytes.extend([7, 5].map(u32::to_be_bytes).concat());
            bytes.extend([0x50, 0x10, 1, 0, 0, 0, 0, 0]);
            let segment = Segment::read(&bytes, 20).unwrap();
            let packet = datagram(true, &bytes, 20);
            let context = table.handle(Time::ZERO, &packet, &segment).unwrap();
            assert_eq!(
                (context.from, context.connection.started()),
                (Endpoint::Client, Time::ZERO)
            );
            *context.attached += 1;
            numbers.push(context.number);
        }
        assert_eq!(numbers, [0, 1, 0, 0]);
        table.finish();
        let flows: Vec<(u64, u32)> =
            std::iter::from_fn(|| table.poll()).map(|flow| (flow.number, flow.attached)).collect();
        assert_eq!(flows, [(0, 3), (1, 1)]);
    }
}
