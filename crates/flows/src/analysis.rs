//! Analysis of a capture: from packets to rows.
//!
//! An [`Analysis`] takes packets in the order of the capture and returns a [`Record`] for each
//! flow, request or message that has ended. A [`Aggregator`] combines the records of one or more
//! analyses.

mod aggregator;
mod app_reader;
mod application;
mod bluetooth;
mod class;
mod devices;
mod dns;
mod enrichment;
mod exchange;
mod fetch;
mod flow_state;
mod histogram;
mod http;
mod initiator;
mod mptcp;
mod overview;
mod packet;
mod shard;
mod summary;
mod tcp;
#[cfg(test)]
mod tests;
mod timeline;
mod top_entries;
mod udp;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use manyways_unit::Time;
use sha2::{Digest, Sha256};

pub use self::aggregator::{Aggregator, schemas};
use self::app_reader::AppRecord;
use self::application::AppProperties;
pub use self::application::Application;
use self::class::Class;
pub use self::class::Tally;
pub use self::enrichment::Enrichment;
pub use self::exchange::FlowExchange;
pub use self::flow_state::Traffic;
use self::flow_state::{FlowState, Second};
pub use self::histogram::{Histogram, Quantity};
pub use self::http::HttpTransaction;
use self::initiator::Initiators;
pub use self::overview::{
    DeviceKind, EndpointStats, LOSS_BOUNDS, MAX_INITIAL_WINDOW, Overview, SlowTransfer,
    TrafficTotals,
};
pub use self::packet::FlowPacket;
pub use self::shard::shard;
pub use self::summary::{Server, Summary};
pub use self::tcp::TcpFlow;
pub use self::timeline::{Timeline, Volume};
pub use self::top_entries::{EntryCounters, TopEntries};
pub use self::udp::UdpFlow;
use crate::columns::{SCHEMA, columns};
use crate::device;
use crate::filter::{Candidate, Filter};
use crate::flow::{self, FlowContext, HeldPacket, Table};
use crate::server::Organisations;
use manyways_record::table::{Column, Row};
use manyways_unit::Prefix;
use manyways_wire::bluetooth::{Control, Event, Host, StreamSummary};
use manyways_wire::capture::{Interface, LinkType, Packet};
use manyways_wire::dhcp::{self, Leases};
use manyways_wire::dns::{HostsTable, Lookup, Lookups, Resolution, Transport};
use manyways_wire::frame::{self, Fragments, IpPacket, Reassembled, SkipReason, Unread};
use manyways_wire::stream::{Endpoint, Exchange};
use manyways_wire::tcp::Segment;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Ports of DNS and of multicast DNS.
const DNS_PORTS: [u16; 2] = [53, 5353];
const DHCP_PORTS: [u16; 2] = [67, 68];

/// Identifier of a flow in all tables: a hash of protocol, endpoints and start time, so that it is
/// the same in each run; below 2^63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u64);

/// The endpoint of a flow on the local side of the capture point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalEndpoint {
    /// The client; also if the side is unknown.
    #[default]
    Client,
    /// The server.
    Server,
}

/// Options of an [`Analysis`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Settings {
    /// Local prefixes. If neither endpoint of a flow is local, or both are, the client counts as
    /// local.
    pub local: Vec<Prefix>,
    /// Limits of the flow table of TCP, and of that of UDP.
    pub limits: flow::Limits,
    /// Address pools with devices of a known kind.
    pub pools: Vec<device::Pool>,
    /// Organisations by address; `None` for the built-in table.
    pub organisations: Option<Arc<Organisations>>,
    /// Host names of addresses from other sources than the capture.
    pub hosts_table: Option<Arc<HostsTable>>,
    /// Also return a record for each packet.
    pub packets: bool,
    /// Collect the data of a report: [`Summary::overview`] and [`Counters::timeline`].
    pub overview: bool,
    /// Key for the pseudonyms that replace addresses and names; `None` for no anonymization.
    pub pseudonym_key: Option<[u8; 32]>,
    /// Packets before this time do not count.
    pub from: Option<Time>,
    /// Packets at or after this time do not count.
    pub to: Option<Time>,
    /// Packets that do not match do not count. A fragmented packet is matched after reassembly, and
    /// does not count if it stays incomplete.
    pub filter: Option<Arc<Filter>>,
}

/// An output of an [`Analysis`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Record {
    Tcp(Box<TcpFlow>),
    Udp(Box<UdpFlow>),
    /// One second of a TCP flow.
    Second(FlowSecond),
    /// An HTTP/1 request and its response.
    Http(Box<HttpTransaction>),
    /// An inferred request and its response.
    Exchange(FlowExchange),
    /// A DNS query and its response.
    Lookup(Box<Lookup>),
    /// Names and addresses of a DNS response, and the time of the response.
    Resolved(Time, Box<Resolution>),
    /// A DHCP lease.
    Lease(Box<dhcp::Lease>),
    /// A segment with MPTCP options.
    Multipath(Box<Multipath>),
    /// A Bluetooth stream.
    Stream(Box<StreamSummary>),
    /// A Bluetooth control message.
    Control(Box<Control>),
    Packet(FlowPacket),
}

/// The header of a segment with MPTCP options. The aggregator needs it because different shards may
/// analyse the subflows of one connection.
#[derive(Clone, Debug)]
pub struct Multipath {
    pub at: Time,
    pub id: FlowId,
    /// The sender.
    pub from: Endpoint,
    /// The TCP header with the captured part of its options.
    pub header: Vec<u8>,
    /// Original length of the segment in bytes.
    pub length: usize,
}

/// Payload bytes of a flow in one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSecond {
    pub id: FlowId,
    pub begins: Time,
    /// From the client and from the server.
    pub bytes: [u64; 2],
}

/// Packet counters of an [`Analysis`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub packets: u64,
    /// Sum of the original lengths.
    pub bytes: u64,
    /// TCP segments.
    pub tcp: u64,
    pub udp: u64,
    /// Packets of Bluetooth HCI.
    pub bluetooth: u64,
    /// Segments with an incomplete or invalid header.
    pub tcp_malformed: u64,
    /// Datagrams with an incomplete or invalid header.
    pub udp_malformed: u64,
    /// IP packets with another protocol.
    pub other_protocols: u64,
    /// These IP packets by protocol, and the datagrams of tunnels whose content is not read.
    pub unread: Tally<Unread>,
    /// Frames without a decodable IP packet, by reason.
    pub undecoded: Tally<SkipReason>,
    /// All fragments of IP packets.
    pub fragments: u64,
    /// Fragments that complete no packet. The fragment that completes a packet counts in the class
    /// of the packet.
    pub other_fragments: u64,
    /// Analysed packets in the second and later subframes of IEEE 802.11 frames (A-MSDU). The frame
    /// counts once, in the class of its first packet.
    pub subframes: u64,
    /// Those that are not analysed, because other endpoints exchange them.
    pub unread_subframes: u64,
    /// Packets that the capture reports as lost.
    pub dropped: u64,
    /// Packets that are earlier than the previous packet of the capture, whether or not they match
    /// the filter.
    pub clock_steps_back: u64,
    /// Time of the earliest packet. `None` without packets.
    pub first: Option<Time>,
    /// Time of the latest packet. `None` without packets.
    pub last: Option<Time>,
    /// Flows removed before their end, because the table was full.
    pub evicted: u64,
    /// Bytes over time; empty without [`Settings::overview`].
    pub timeline: Timeline,
}

/// Turns the packets of one capture or shard into records.
pub struct Analysis {
    settings: Settings,
    fragments: Fragments,
    tcp: Table<FlowState>,
    udp: crate::udp::Table,
    lookups: Lookups,
    leases: Leases,
    host: Option<Box<Host>>,
    /// Used for the table of packets only.
    initiators: Initiators,
    records: VecDeque<Record>,
    counters: Counters,
    /// Flows evicted before the last [`Analysis::take_counters`].
    evicted_before: u64,
}

impl Counters {
    /// Adds the frames of a packet of this class, the last of which passes at `at`. As this is the
    /// only place that counts packets and classes, the classes add up to the packets; only `undecoded`,
    /// the class of those without an IP packet, is counted where the class is made.
    #[inline]
    fn count(&mut self, at: Time, frames: u64, bytes: usize, class: Class) {
        match class {
            Class::Tcp => self.tcp += 1,
            Class::TcpMalformed => self.tcp_malformed += 1,
            Class::Udp => self.udp += 1,
            Class::UdpMalformed => self.udp_malformed += 1,
            Class::OtherIp => self.other_protocols += 1,
            // `undecoded` has its number.
            Class::NotIp => {}
            Class::Bluetooth => self.bluetooth += 1,
            Class::Fragment => self.other_fragments += 1,
        }
        self.other_fragments += frames - 1;
        self.packets += frames;
        self.bytes += bytes as u64;
        if self.last.is_some_and(|last| last <= at) {
            // The fast path: most packets are in order.
            self.last = Some(at);
            return;
        }
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
        self.last = self.last.max(Some(at));
    }

    /// Adds the counters of another analysis.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.tcp += other.tcp;
        self.udp += other.udp;
        self.bluetooth += other.bluetooth;
        self.tcp_malformed += other.tcp_malformed;
        self.udp_malformed += other.udp_malformed;
        self.other_protocols += other.other_protocols;
        self.unread.add_all(&other.unread);
        self.undecoded.add_all(&other.undecoded);
        self.fragments += other.fragments;
        self.other_fragments += other.other_fragments;
        self.subframes += other.subframes;
        self.unread_subframes += other.unread_subframes;
        self.dropped += other.dropped;
        self.clock_steps_back += other.clock_steps_back;
        self.first = self.first.into_iter().chain(other.first).min();
        self.last = self.last.max(other.last);
        self.evicted += other.evicted;
        self.timeline.add(&other.timeline);
    }
}

impl LocalEndpoint {
    pub fn end(self) -> Endpoint {
        match self {
            Self::Client => Endpoint::Client,
            Self::Server => Endpoint::Server,
        }
    }

    /// Returns `client` or `server`.
    pub fn name(self) -> &'static str {
        endpoint_name(self.end())
    }
}

fn endpoint_name(end: Endpoint) -> &'static str {
    match end {
        Endpoint::Client => "client",
        Endpoint::Server => "server",
    }
}

impl FlowId {
    /// Returns the identifier of the flow between these endpoints whose first packet in the capture
    /// has the time `started`.
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
        let hash = Sha256::digest(bytes);
        let first = hash.first_chunk().copied().unwrap_or_default();
        Self(u64::from_be_bytes(first) >> 1)
    }
}

impl Analysis {
    pub fn new(settings: Settings) -> Self {
        let tcp = Table::new(settings.limits);
        let flow::Limits { connections, idle } = settings.limits;
        let udp = crate::udp::Table::new(crate::udp::Limits { flows: connections, idle });
        Self {
            settings,
            fragments: Fragments::default(),
            tcp,
            udp,
            lookups: Lookups::new(Default::default()),
            leases: Leases::new(Default::default()),
            host: None,
            initiators: Initiators::default(),
            records: VecDeque::new(),
            counters: Counters::default(),
            evicted_before: 0,
        }
    }

    /// Returns the counters since the start or the last [`Self::take_counters`].
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Number of flows in the flow tables.
    pub fn active_flows(&self) -> usize {
        self.tcp.len() + self.udp.len()
    }

    /// Handles a packet that `interface` captured.
    pub fn handle_packet(&mut self, interface: &Interface, packet: &Packet<'_>) {
        let Settings { from, to, .. } = &self.settings;
        if from.is_some_and(|from| packet.at < from) || to.is_some_and(|to| packet.at >= to) {
            return;
        }
        // The filter cannot be applied to lost packets: all of them count.
        self.counters.dropped += packet.dropped_before;
        self.counters.clock_steps_back += u64::from(packet.is_out_of_order);
        if let Some(filter) = self.settings.filter.take() {
            self.handle_filtered(&filter, interface, packet);
            self.settings.filter = Some(filter);
            return;
        }
        let is_ethernet = interface.link == LinkType::ETHERNET;
        if !is_ethernet && interface.link.is_bluetooth() {
            let class = self.handle_bluetooth(interface, packet);
            self.count(packet.at, 1, packet.length, class);
            return;
        }
        // Matched by reference, because the value is large.
        let found = &frame::ip_packet(interface.link, packet.bytes, packet.length);
        let class = match found {
            Ok(datagram) => self.handle_datagram((interface, packet), datagram),
            Err(opaque) => self.count_undecoded(*opaque),
        };
        self.count(packet.at, 1, packet.length, class);
        if !is_ethernet {
            self.handle_subframes((interface, packet), found, None);
        }
    }

    /// Handles the packets after the first one of an aggregate (A-MSDU). Those between other
    /// addresses than the first one are only counted, because their flows may be in other shards.
    fn handle_subframes(
        &mut self,
        (interface, packet): (&Interface, &Packet<'_>),
        first: &Result<IpPacket<'_>, SkipReason>,
        filter: Option<&Filter>,
    ) {
        let link = interface.link;
        for found in frame::further_packets(link, packet.bytes, packet.length).flatten() {
            let of = |packet: &IpPacket<'_>| {
                let IpPacket { source, destination, .. } = *packet;
                (source.min(destination), source.max(destination))
            };
            let candidate = Candidate {
                link,
                frame: packet.bytes,
                length: packet.length,
                datagram: Ok(&found),
            };
            if filter.is_some_and(|filter| !filter.matches(&candidate)) {
                continue;
            }
            if first.as_ref().is_ok_and(|first| of(first) == of(&found)) && found.fragment.is_none()
            {
                self.counters.subframes += 1;
                self.handle_transport((interface, packet), found.length, &found);
            } else {
                self.counters.unread_subframes += 1;
            }
        }
    }

    /// Ends flows and queries whose idle timeout has passed at `now`. Needed for live captures
    /// without packets; at the end of a file [`Self::finish`] suffices.
    pub fn advance(&mut self, now: Time) {
        self.tcp.advance(now);
        self.udp.advance(now);
        self.lookups.advance(now);
        self.collect_tcp();
        self.collect_names();
    }

    /// Returns the counters and resets them. Flows continue.
    pub fn take_counters(&mut self) -> Counters {
        self.count_evicted();
        let counters = std::mem::take(&mut self.counters);
        self.evicted_before += counters.evicted;
        counters
    }

    /// Returns the next record. `None` until another flow, request or message ends.
    pub fn poll(&mut self) -> Option<Record> {
        self.records.pop_front()
    }

    /// Ends the capture and everything in it.
    pub fn finish(&mut self) {
        self.tcp.finish();
        self.udp.finish();
        self.lookups.finish();
        self.leases.finish();
        self.collect_tcp();
        self.collect_names();
        if let Some(host) = &mut self.host {
            host.finish(|_| {});
            while let Some(event) = host.poll() {
                self.records.push_back(Record::of(event));
            }
        }
        self.count_evicted();
    }

    fn count_evicted(&mut self) {
        self.counters.evicted = self.tcp.evicted() + self.udp.evicted() - self.evicted_before;
    }

    /// Handles a packet if it matches the filter.
    fn handle_filtered(&mut self, filter: &Filter, interface: &Interface, packet: &Packet<'_>) {
        let link = interface.link;
        let of = |length, datagram| Candidate { link, frame: packet.bytes, length, datagram };
        let found = match link.is_bluetooth() {
            true => Err(SkipReason::Link(link)),
            false => frame::ip_packet(link, packet.bytes, packet.length),
        };
        if let Ok(datagram) = &found
            && let Some(part) = datagram.fragment
        {
            let Some(whole) = self.fragments.add(packet.at, datagram, part) else { return };
            let frames = frame_bytes(&whole, packet, datagram);
            let (parts, whole) = (whole.fragments, whole.packet(datagram));
            if filter.matches(&of(frames, Ok(&whole))) {
                self.counters.fragments += parts as u64;
                let class = self.handle_whole((interface, packet), frames, &whole);
                self.count(packet.at, parts as u64, frames, class);
            }
            return;
        }
        // An unsupported link type is reported whatever the filter is.
        let is_unread = matches!(found, Err(SkipReason::Link(link)) if !link.is_bluetooth());
        let candidate = of(packet.length, found.as_ref().map_err(|opaque| *opaque));
        if !is_unread && !filter.matches(&candidate) {
            return;
        }
        let class = match &found {
            Ok(datagram) => self.handle_whole((interface, packet), packet.length, datagram),
            Err(_) if link.is_bluetooth() => self.handle_bluetooth(interface, packet),
            Err(opaque) => self.count_undecoded(*opaque),
        };
        self.count(packet.at, 1, packet.length, class);
        self.handle_subframes((interface, packet), &found, Some(filter));
    }

    #[inline]
    fn count(&mut self, at: Time, frames: u64, bytes: usize, class: Class) {
        self.counters.count(at, frames, bytes, class);
        if self.settings.overview {
            self.counters.timeline.record(at, Volume { flows: [0; 2], all: bytes as u64 });
        }
    }

    fn count_undecoded(&mut self, reason: SkipReason) -> Class {
        self.counters.undecoded.add(reason, 1);
        Class::NotIp
    }

    fn handle_bluetooth(&mut self, interface: &Interface, packet: &Packet<'_>) -> Class {
        let host = self.host.get_or_insert_default();
        host.handle(interface, packet, |_| {});
        while let Some(event) = host.poll() {
            self.records.push_back(Record::of(event));
        }
        Class::Bluetooth
    }

    fn handle_datagram(
        &mut self,
        (interface, packet): (&Interface, &Packet<'_>),
        datagram: &IpPacket<'_>,
    ) -> Class {
        let Some(part) = datagram.fragment else {
            return self.handle_whole((interface, packet), packet.length, datagram);
        };
        self.counters.fragments += 1;
        let Some(whole) = self.fragments.add(packet.at, datagram, part) else {
            return Class::Fragment;
        };
        let frames = frame_bytes(&whole, packet, datagram);
        self.handle_whole((interface, packet), frames, &whole.packet(datagram))
    }

    /// Handles a whole packet that no counter has yet.
    #[inline]
    fn handle_whole(
        &mut self,
        of: (&Interface, &Packet<'_>),
        frames: usize,
        datagram: &IpPacket<'_>,
    ) -> Class {
        let class = self.handle_transport(of, frames, datagram);
        let content = match class {
            Class::Udp => frame::unread(datagram),
            Class::OtherIp => frame::unread(datagram).or(Some(Unread::Protocol(datagram.protocol))),
            _ => None,
        };
        content.into_iter().for_each(|content| self.counters.unread.add(content, 1));
        class
    }

    /// `frames` is the original length of all frames of the packet, in bytes.
    fn handle_transport(
        &mut self,
        (interface, packet): (&Interface, &Packet<'_>),
        frames: usize,
        datagram: &IpPacket<'_>,
    ) -> Class {
        let (bytes, length) = (datagram.payload, datagram.payload_length);
        let (class, flow) = match datagram.protocol {
            TCP => match &mut Segment::read(bytes, length) {
                Some(segment) => {
                    segment.ip_id = datagram.id;
                    (Class::Tcp, self.handle_segment(packet.at, datagram, segment, true))
                }
                None => (Class::TcpMalformed, None),
            },
            UDP => match manyways_wire::udp::Datagram::read(bytes, length) {
                Some(carried) => (Class::Udp, self.handle_udp(packet.at, datagram, &carried)),
                None => (Class::UdpMalformed, None),
            },
            _ => (Class::OtherIp, None),
        };
        if let (true, Some((_, from))) = (self.settings.overview, flow) {
            let mut volume = Volume::default();
            volume.flows[from as usize] = frames as u64;
            self.counters.timeline.record(packet.at, volume);
        }
        if self.settings.packets {
            let IpPacket { source, destination, length, .. } = *datagram;
            let client = match flow {
                Some((_, Endpoint::Client)) => source,
                Some((_, Endpoint::Server)) => destination,
                None => self.initiators.client(datagram),
            };
            let server = if client == source { destination } else { source };
            if flow.is_some() {
                self.initiators.learn(client, server);
            }
            let is_from_client = client == source;
            let is_up = is_from_client
                == (self.settings.local_endpoint(client, server) == LocalEndpoint::Client);
            self.records.push_back(Record::Packet(FlowPacket {
                at: packet.at,
                length: u32::try_from(length).unwrap_or(u32::MAX),
                is_up,
                interface: packet.interface as u16,
                network: interface.network(),
                flow: flow.map(|(id, _)| id),
                application: None,
            }));
        }
        class
    }

    /// Handles a TCP segment, and earlier ones that it explains if it `is_first` handled now.
    /// Returns its flow and its sender; `None` if it does not fit its connection.
    // Called for each packet, and never more than two deep.
    #[inline(always)]
    fn handle_segment(
        &mut self,
        now: Time,
        datagram: &IpPacket<'_>,
        segment: &Segment<'_>,
        is_first: bool,
    ) -> Option<(FlowId, Endpoint)> {
        let Some(context) = self.tcp.handle(now, datagram, segment) else {
            let packets = self.tcp.take_replay();
            return if is_first { self.replay(&packets) } else { None };
        };
        let FlowContext { from, offset: place, connection, attached, .. } = context;
        // Computed only when needed, which is rare.
        let ends = || {
            let sender = SocketAddr::new(datagram.source, segment.source_port);
            let receiver = SocketAddr::new(datagram.destination, segment.destination_port);
            if from == Endpoint::Client { (sender, receiver) } else { (receiver, sender) }
        };
        let port =
            if from == Endpoint::Client { segment.destination_port } else { segment.source_port };
        let id = attached.id_or_insert(|| {
            let (client, server) = ends();
            FlowId::of(TCP, client, server, connection.first())
        });
        attached.traffic.add(from, datagram.length, datagram.ecn);
        let records = &mut self.records;
        if segment.length > 0
            && let Some(second) = attached.count_payload(now, from, segment.length)
        {
            records.push_back(Record::Second(FlowSecond::of(id, second)));
        }
        if segment.options.may_have_mptcp() {
            let header = datagram.payload.len() - segment.payload.len();
            records.push_back(Record::Multipath(Box::new(Multipath {
                at: now,
                id,
                from,
                header: datagram.payload[..header].to_vec(),
                length: datagram.payload_length,
            })));
        }
        let FlowState { reader: reads, properties: learned, .. } = attached;
        let about = (connection, port);
        let lookups = &mut self.lookups;
        reads.handle_segment(now, from, about, place, segment, |read| {
            make_record(read, id, ends(), learned.get_or_insert_default(), lookups, records);
        });
        if self.tcp.has_ended() {
            self.collect_tcp();
        }
        if port == DNS_PORTS[0] {
            self.collect_names();
        }
        Some((id, from))
    }

    /// Handles packets whose connection is known by now. Returns the flow and the sender of the last.
    #[inline(never)]
    fn replay(&mut self, packets: &[HeldPacket]) -> Option<(FlowId, Endpoint)> {
        let mut last = None;
        for held in packets {
            let packet = held.packet();
            last = Segment::read(packet.payload, packet.payload_length).and_then(|mut segment| {
                segment.ip_id = packet.id;
                self.handle_segment(held.at, &packet, &segment, false)
            });
        }
        last
    }

    /// Handles a UDP datagram. Returns its flow and its sender if packets are recorded.
    fn handle_udp(
        &mut self,
        now: Time,
        packet: &IpPacket<'_>,
        datagram: &manyways_wire::udp::Datagram<'_>,
    ) -> Option<(FlowId, Endpoint)> {
        let ports = [datagram.source_port, datagram.destination_port];
        let mut is_dns = false;
        if ports.iter().any(|port| DNS_PORTS.contains(port)) {
            let from = SocketAddr::new(packet.source, datagram.source_port);
            let to = SocketAddr::new(packet.destination, datagram.destination_port);
            let (bytes, length) = (datagram.payload, datagram.length);
            let info = self.lookups.handle(now, Transport::Udp, from, to, bytes, length);
            is_dns = info.is_dns;
            self.records.extend(info.resolution.map(|one| Record::Resolved(now, Box::new(one))));
            self.collect_names();
        }
        let context = self.udp.handle(now, packet, datagram, is_dns);
        let crate::udp::FlowContext { client, server, started, from, exchange } = context;
        // A hash for each packet would dominate the cost of the analysis.
        let id = || FlowId::of(UDP, client, server, started);
        let passed = self.settings.packets.then(|| (id(), from));
        if let Some(exchange) = exchange {
            self.records.push_back(Record::exchange(id(), (client, server), "quic", exchange));
        }
        if ports.iter().all(|port| DHCP_PORTS.contains(port))
            && let Some(message) = dhcp::Message::read(datagram.payload, datagram.length)
        {
            self.leases.handle(now, &message);
            self.collect_names();
        }
        self.collect_udp();
        passed
    }

    /// Makes records of ended flows.
    fn collect_tcp(&mut self) {
        while let Some(over) = self.tcp.poll() {
            let flow::Flow { client, server, connection, attached, .. } = over;
            let id = attached.id();
            let FlowState { traffic, second, reader: mut reads, properties: mut learned, .. } =
                attached;
            let id = id.unwrap_or_else(|| FlowId::of(TCP, client, server, connection.first()));
            let (lookups, records) = (&mut self.lookups, &mut self.records);
            reads.finish(server.port(), |read| {
                let learned = learned.get_or_insert_default();
                make_record(read, id, (client, server), learned, lookups, records);
            });
            if let Some(second) = second {
                records.push_back(Record::Second(FlowSecond::of(id, second)));
            }
            let learned = learned.map(|learned| *learned).unwrap_or_default();
            let application = Application::from_reader(learned, reads);
            let local = self.settings.local_endpoint(client.ip(), server.ip());
            records.push_back(Record::Tcp(Box::new(TcpFlow {
                id,
                client,
                server,
                connection,
                traffic,
                application,
                local,
                enrichment: Enrichment::default(),
            })));
        }
        self.collect_udp();
    }

    fn collect_udp(&mut self) {
        while let Some(over) = self.udp.poll() {
            let crate::udp::EndedFlow { client, server, flow, exchange } = over;
            let id = FlowId::of(UDP, client, server, flow.first());
            if let Some(exchange) = exchange {
                self.records.push_back(Record::exchange(id, (client, server), "quic", exchange));
            }
            let local = self.settings.local_endpoint(client.ip(), server.ip());
            let joined = Enrichment::default();
            let flow = UdpFlow { id, client, server, flow, local, enrichment: joined };
            self.records.push_back(Record::Udp(Box::new(flow)));
        }
    }

    fn collect_names(&mut self) {
        while let Some(lookup) = self.lookups.poll() {
            self.records.push_back(Record::Lookup(Box::new(lookup)));
        }
        while let Some(lease) = self.leases.poll() {
            self.records.push_back(Record::Lease(Box::new(lease)));
        }
    }
}

/// Returns the original length of all frames of a fragmented packet; `packet` is its last frame.
fn frame_bytes(whole: &Reassembled, packet: &Packet<'_>, datagram: &IpPacket<'_>) -> usize {
    // The headers in front of IP have the same length in each frame.
    whole.length + whole.fragments * packet.length.saturating_sub(datagram.length)
}

/// Makes a record of an element that was read in a flow.
fn make_record(
    read: AppRecord,
    id: FlowId,
    (client, server): (SocketAddr, SocketAddr),
    properties: &mut AppProperties,
    lookups: &mut Lookups,
    records: &mut VecDeque<Record>,
) {
    match read {
        AppRecord::Transaction(transaction) => {
            if let Some(span) = transaction.response_time() {
                properties.response_times.push(span);
            }
            let row = HttpTransaction { id, client, server, transaction: *transaction };
            properties.add_request(&row);
            records.push_back(Record::Http(Box::new(row)));
        }
        AppRecord::Exchange(exchange, protocol) => {
            properties.response_times.push(exchange.response_time());
            records.push_back(Record::exchange(id, (client, server), protocol, exchange));
        }
        AppRecord::Message(at, from, message) => {
            let (from, to) =
                if from == Endpoint::Client { (client, server) } else { (server, client) };
            let length = message.len();
            let info = lookups.handle(at, Transport::Tcp, from, to, &message, length);
            records.extend(info.resolution.map(|one| Record::Resolved(at, Box::new(one))));
        }
    }
}

impl Record {
    fn of(event: Event) -> Self {
        match event {
            Event::Control(control) => Self::Control(Box::new(control)),
            Event::Stream(stream) => Self::Stream(Box::new(stream)),
        }
    }

    fn exchange(
        id: FlowId,
        (client, server): (SocketAddr, SocketAddr),
        protocol: &'static str,
        exchange: Exchange,
    ) -> Self {
        Self::Exchange(FlowExchange { id, client, server, protocol, exchange })
    }
}

impl Settings {
    fn local_endpoint(&self, client: IpAddr, server: IpAddr) -> LocalEndpoint {
        let is_flipped = self.is_local(server) && !self.is_local(client);
        if is_flipped { LocalEndpoint::Server } else { LocalEndpoint::Client }
    }

    fn is_local(&self, address: IpAddr) -> bool {
        self.local.iter().any(|prefix| prefix.contains(address))
    }
}

impl FlowSecond {
    fn of(id: FlowId, second: Second) -> Self {
        Self { id, begins: second.begins, bytes: second.bytes }
    }

    /// Adds a row of the same second, which exists if the clock of the capture stepped back. Returns
    /// false if it is another second.
    fn merge(&mut self, other: &Self) -> bool {
        let is_same = (self.id, self.begins) == (other.id, other.begins);
        if is_same {
            self.bytes = [0, 1].map(|end| self.bytes[end] + other.bytes[end]);
        }
        is_same
    }
}

impl Row for FlowSecond {
    const TABLE: &'static str = "seconds";
    const SCHEMA: &'static str = SCHEMA;
    const ABOUT: &'static str = "A second of a TCP flow in which payload passed.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "flow" Flow "The flow's number in all tables." |second| second.id.0;
        "second" Time "Start of the second." |second| second.begins;
        both "bytes" Count "Bytes of payload, including retransmissions"
            |second, end| second.bytes[end as usize];
    };
}
