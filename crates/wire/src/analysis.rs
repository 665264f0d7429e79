//! From packets to rows: everything that this crate knows of a capture, in one place.
//!
//! An [`Analysis`] is given packets in the order of the capture and hands out [`Record`]s as things
//! come to their end.

mod conversation;
mod shard;
mod summary;
mod survey;
mod tcp;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use manyways_trace::Time;
use ring::digest;

pub use self::conversation::Traffic;
use self::conversation::{Conversation, Second};
pub use self::shard::shard;
pub use self::summary::{Server, Summary};
pub use self::survey::{Survey, schemas};
pub use self::tcp::TcpFlow;
use crate::capture::{LinkType, Packet};
use crate::flow::{self, End, Passing, Table};
use crate::frame::{self, Datagram, Fragments, Opaque};
use crate::table::{Column, Row, columns};
use crate::tcp::Segment;

const TCP: u8 = 6;

/// The number of a flow in all tables: made of its ends and its beginning, so that it is the same
/// in every run, and below 2^63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u64);

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Its first address.
    pub address: IpAddr,
    /// So many bits of it count.
    pub length: u8,
}

/// Which end of a flow is on the local side of the capture point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// The client, also where nobody says.
    #[default]
    Client,
    /// The server.
    Server,
}

/// How to look at a capture.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// What is local; where neither end of a flow is, or both are, the client counts as local.
    pub local: Vec<Prefix>,
    /// Limits of the table of flows.
    pub limits: flow::Limits,
}

/// Something that came out.
#[derive(Clone, Debug)]
pub enum Record {
    /// A TCP flow.
    Tcp(Box<TcpFlow>),
    /// A second of a TCP flow.
    Second(FlowSecond),
}

/// The bytes of a flow in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSecond {
    /// Of which flow.
    pub id: FlowId,
    /// When the second begins.
    pub begins: Time,
    /// Payload of the client and of the server.
    pub bytes: [u64; 2],
}

/// What was counted on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets.
    pub packets: u64,
    /// Their bytes, captured or not.
    pub bytes: u64,
    /// TCP segments among them.
    pub tcp: u64,
    /// Segments whose header was cut or broken.
    pub tcp_broken: u64,
    /// IP packets with something else.
    pub others: u64,
    /// Frames in which no IP packet was found, by the reason.
    pub opaque: std::collections::BTreeMap<Opaque, u64>,
    /// Fragments of IP packets.
    pub fragments: u64,
    /// Packets that the capture says it lost.
    pub missed: u64,
    /// How often the clock stepped back.
    pub steps_back: u64,
    /// When the first packet passed, and the last.
    pub first: Option<Time>,
    /// See [`Counters::first`].
    pub last: Option<Time>,
    /// Flows that had to go before they were over, as there were too many.
    pub evicted: u64,
}

/// Looks at packets.
#[derive(Debug)]
pub struct Analysis {
    settings: Settings,
    fragments: Fragments,
    table: Table<Conversation>,
    records: VecDeque<Record>,
    counters: Counters,
}

impl Counters {
    /// Those of another analysis as well.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.tcp += other.tcp;
        self.tcp_broken += other.tcp_broken;
        self.others += other.others;
        for (opaque, count) in &other.opaque {
            *self.opaque.entry(*opaque).or_default() += count;
        }
        self.fragments += other.fragments;
        self.missed += other.missed;
        self.steps_back += other.steps_back;
        self.first = self.first.into_iter().chain(other.first).min();
        self.last = self.last.max(other.last);
        self.evicted += other.evicted;
    }
}

impl Prefix {
    /// Whether an address is in it.
    pub fn holds(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let ((ours, most), (theirs, length)) = (bits(self.address), bits(address));
        most == length
            && (ours ^ theirs).checked_shr(128 - u32::from(self.length.min(most))).unwrap_or(0) == 0
    }
}

impl std::str::FromStr for Prefix {
    type Err = ();

    /// Reads `ADDRESS` or `ADDRESS/LENGTH`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(most), |length| length.parse().map_err(|_| ()))?;
        if length > most { Err(()) } else { Ok(Self { address, length }) }
    }
}

impl Side {
    /// The end.
    pub fn end(self) -> End {
        match self {
            Self::Client => End::Client,
            Self::Server => End::Server,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        name(self.end())
    }
}

/// The name of an end.
fn name(end: End) -> &'static str {
    match end {
        End::Client => "client",
        End::Server => "server",
    }
}

impl FlowId {
    /// The number of the flow between these ends that began at this time.
    pub fn of(protocol: u8, client: SocketAddr, server: SocketAddr, started: Time) -> Self {
        let mut bytes = Vec::with_capacity(64);
        bytes.push(protocol);
        for end in [client, server] {
            match end.ip() {
                IpAddr::V4(address) => bytes.extend(address.octets()),
                IpAddr::V6(address) => bytes.extend(address.octets()),
            }
            bytes.extend(end.port().to_be_bytes());
        }
        bytes.extend(started.as_nanos().to_be_bytes());
        let hash = digest::digest(&digest::SHA256, &bytes);
        let first = hash.as_ref().first_chunk().copied().unwrap_or_default();
        Self(u64::from_be_bytes(first) >> 1)
    }
}

impl Analysis {
    /// Nothing was seen yet.
    pub fn new(settings: Settings) -> Self {
        let table = Table::new(settings.limits);
        Self {
            settings,
            fragments: Fragments::default(),
            table,
            records: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many connections are being followed.
    pub fn live(&self) -> usize {
        self.table.len()
    }

    /// A packet passes, on a link of this type.
    pub fn packet(&mut self, link: LinkType, packet: &Packet<'_>) {
        let counters = &mut self.counters;
        counters.packets += 1;
        counters.bytes += packet.length as u64;
        counters.missed += packet.lost_before;
        counters.steps_back += u64::from(counters.last.is_some_and(|last| packet.at < last));
        counters.first = Some(counters.first.map_or(packet.at, |first| first.min(packet.at)));
        counters.last = counters.last.max(Some(packet.at));
        match frame::datagram(link, packet.bytes, packet.length) {
            Ok(datagram) => self.datagram(packet.at, &datagram),
            Err(opaque) => *counters.opaque.entry(opaque).or_default() += 1,
        }
    }

    /// What came out; none until something else is over.
    pub fn poll(&mut self) -> Option<Record> {
        self.records.pop_front()
    }

    /// The capture is over, and so is everything in it.
    pub fn finish(&mut self) {
        self.table.finish();
        self.collect();
        self.counters.evicted = self.table.evicted();
    }

    fn datagram(&mut self, now: Time, datagram: &Datagram<'_>) {
        let Some(part) = datagram.fragment else {
            self.carried(now, datagram);
            return;
        };
        self.counters.fragments += 1;
        if let Some(whole) = self.fragments.add(now, datagram, part) {
            let frame::Whole { payload, carried } = whole;
            let datagram = Datagram { payload: &payload, carried, fragment: None, ..*datagram };
            self.carried(now, &datagram);
        }
    }

    fn carried(&mut self, now: Time, datagram: &Datagram<'_>) {
        if datagram.protocol != TCP {
            self.counters.others += 1;
            return;
        }
        let Some(segment) = Segment::read(datagram.payload, datagram.carried) else {
            self.counters.tcp_broken += 1;
            return;
        };
        self.counters.tcp += 1;
        self.segment(now, datagram, &segment);
    }

    fn segment(&mut self, now: Time, datagram: &Datagram<'_>, segment: &Segment<'_>) {
        let Datagram { source, destination, length, ecn, .. } = *datagram;
        let Some(passing) = self.table.handle(now, source, destination, segment) else { return };
        let Passing { from, connection, attached, .. } = passing;
        attached.traffic.add(from, length, ecn);
        if segment.length > 0
            && let Some(second) = attached.carries(now, from, segment.length)
        {
            let ends = [(source, segment.from), (destination, segment.to)].map(SocketAddr::from);
            let [client, server] = match from {
                End::Client => ends,
                End::Server => [ends[1], ends[0]],
            };
            let id = FlowId::of(TCP, client, server, connection.started());
            self.records.push_back(Record::Second(FlowSecond::of(id, second)));
        }
        self.collect();
    }

    /// Flows that are over.
    fn collect(&mut self) {
        while let Some(over) = self.table.poll() {
            let flow::Flow { client, server, connection, attached, .. } = over;
            let id = FlowId::of(TCP, client, server, connection.started());
            if let Some(second) = attached.second {
                self.records.push_back(Record::Second(FlowSecond::of(id, second)));
            }
            let local = self.settings.side(client.ip(), server.ip());
            let Conversation { traffic, .. } = attached;
            let flow = TcpFlow { id, client, server, connection, traffic, local };
            self.records.push_back(Record::Tcp(Box::new(flow)));
        }
    }
}

impl Settings {
    /// Which end is local.
    fn side(&self, client: IpAddr, server: IpAddr) -> Side {
        let is_local = |address| self.local.iter().any(|prefix| prefix.holds(address));
        if is_local(server) && !is_local(client) { Side::Server } else { Side::Client }
    }
}

impl FlowSecond {
    fn of(id: FlowId, second: Second) -> Self {
        Self { id, begins: second.begins, bytes: second.bytes }
    }
}

impl Row for FlowSecond {
    const TABLE: &'static str = "seconds";
    const ABOUT: &'static str = "A second of a TCP flow in which payload passed.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "flow" Count "The flow's number in all tables." |second| second.id.0;
        "second" Time "When the second begins." |second| second.begins;
        both "bytes" Count "Bytes of payload, those sent again included"
            |second, end| second.bytes[end as usize];
    };
}
