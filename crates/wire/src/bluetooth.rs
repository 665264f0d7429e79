//! Follows the traffic between a Bluetooth host and its controller: connections, signalling on
//! them, and the streams that they carry.
//!
//! [`Host`] takes each packet of an HCI capture (btsnoop, or pcap of the Linux monitor),
//! reassembles L2CAP packets, follows the opening and closing of channels, and reads RFCOMM and
//! credits. The bytes of a stream go to the caller's function as [`Data`]; each control message is
//! an [`Event::Control`], and each stream is an [`Event::Stream`] when it has ended.
//!
//! A channel whose opening was not captured has no PSM and is not guessed to be RFCOMM. Packets
//! without a direction are only counted, because channel numbers belong to the receiver. The
//! content of ERTM and streaming mode is counted but not read; the checksum of RFCOMM frames is not
//! verified. Part and section numbers are those of the Bluetooth Core Specification 5.4.

mod channel;
mod connection;
mod control;
mod credits;
mod cursor;
mod hci;
mod in_flight;
mod layouts;
mod reassembly;
mod rfcomm;
mod signalling;
mod stream;
mod streams;

use std::collections::{BTreeMap, VecDeque};

use manyways_unit::Time;

use self::connection::Connection;
pub use self::connection::{MAX_CHANNELS, MAX_REQUESTS};
pub use self::control::{Address, Control, Direction, Layer};
pub use self::credits::Credits;
use self::cursor::Cursor;
use self::hci::{HciPacket, Kind};
pub use self::in_flight::{IDLE_TIMEOUT, MAX_IN_FLIGHT};
pub use self::signalling::MAX_SIGNALS;
pub use self::stream::{Close, Data, StreamId, StreamSummary};
pub use self::streams::MAX_STREAMS;
use crate::capture::{Interface, Packet};

/// Maximum number of connections; the least recently used one is evicted first.
pub const MAX_CONNECTIONS: usize = 64;

/// An output of [`Host`].
#[derive(Clone, Debug)]
pub enum Event {
    /// A message that controls a connection, a channel or a stream.
    Control(Control),
    /// A stream has ended.
    Stream(StreamSummary),
}

/// Packets by kind, and packets that could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// HCI command packets.
    pub commands: u64,
    /// HCI event packets.
    pub events: u64,
    /// ACL data packets, which are read.
    pub acl: u64,
    /// Synchronous and isochronous data packets, mostly audio.
    pub synchronous: u64,
    /// Packets of other link types and of unknown kinds.
    pub other: u64,
    /// ACL data packets without a direction.
    pub undirected: u64,
    /// Packets truncated within a header.
    pub truncated: u64,
    /// Continuations of a packet whose beginning was not captured.
    pub orphan_fragments: u64,
    /// Packets with contradictory or invalid headers.
    pub malformed: u64,
    /// Connections evicted because of [`MAX_CONNECTIONS`].
    pub evicted: u64,
    /// Packets that the capture reports as dropped.
    pub dropped: u64,
}

/// Reads the traffic between a host and its controllers.
#[derive(Debug, Default)]
pub struct Host {
    connections: BTreeMap<(u16, u16), Connection>,
    events: VecDeque<Event>,
    counts: Counts,
    /// Number of streams so far.
    streams: u64,
    /// Time of the last packet.
    now: Time,
}

/// Destinations of everything that is learned from a packet.
struct Sink<'a> {
    now: Time,
    events: &'a mut VecDeque<Event>,
    counts: &'a mut Counts,
    streams: &'a mut u64,
    data: &'a mut dyn FnMut(Data<'_>),
}

impl Host {
    /// Processes a packet. Stream data goes to `data`, including the first part of a packet that
    /// stays incomplete, as soon as that is known.
    ///
    /// Adapters are distinguished by the number at the end of the interface name (`hci1`), or by
    /// the adapter index in each packet of the Linux monitor.
    pub fn handle(
        &mut self,
        interface: &Interface,
        packet: &Packet<'_>,
        mut data: impl FnMut(Data<'_>),
    ) {
        self.now = packet.at;
        let passed = HciPacket::read(interface, packet);
        let Self { connections, events, counts, streams, now } = self;
        let mut out = Sink { now: *now, events, counts, streams, data: &mut data };
        if packet.dropped_before > 0 {
            out.counts.dropped = out.counts.dropped.saturating_add(packet.dropped_before);
            connections.values_mut().for_each(|it| it.on_dropped(packet.dropped_before, &mut out));
        }
        let Some(HciPacket { adapter, kind, direction, payload: rest }) = passed else {
            out.counts.other += 1;
            return;
        };
        match (kind, direction) {
            (Kind::Command, _) => {
                out.counts.commands += 1;
                hci::command(adapter, rest, connections, &mut out);
            }
            (Kind::Event, _) => {
                out.counts.events += 1;
                hci::event(adapter, rest, connections, &mut out);
            }
            (Kind::Synchronous, _) => out.counts.synchronous += 1,
            (Kind::Acl, None) => {
                out.counts.acl += 1;
                out.counts.undirected += 1;
            }
            (Kind::Acl, Some(direction)) => {
                out.counts.acl += 1;
                Self::read_acl(adapter, direction, rest, connections, &mut out);
            }
        }
    }

    /// Returns the next event.
    pub fn poll(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ends the capture and all remaining streams.
    pub fn finish(&mut self, mut data: impl FnMut(Data<'_>)) {
        let Self { connections, events, counts, streams, now } = self;
        let mut out = Sink { now: *now, events, counts, streams, data: &mut data };
        for connection in std::mem::take(connections).into_values() {
            connection.end(Close::CaptureEnd, &mut out);
        }
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Reads an ACL data packet (vol 4, part E, 5.4.2).
    fn read_acl(
        adapter: u16,
        direction: Direction,
        rest: Cursor<'_>,
        connections: &mut BTreeMap<(u16, u16), Connection>,
        out: &mut Sink<'_>,
    ) {
        let (Some(first), Some(length)) = (rest.u16(0), rest.u16(2)) else {
            out.counts.truncated += 1;
            return;
        };
        let (handle, boundary, broadcast) = (first & 0x0fff, first >> 12 & 3, first >> 14);
        if broadcast != 0 {
            return;
        }
        let key = (adapter, handle);
        if !connections.contains_key(&key) {
            let connection = Connection::new(adapter, handle, None, false, out.now);
            insert_connection(connections, key, connection, out);
        }
        let Some(connection) = connections.get_mut(&key) else { return };
        let Some(payload) = rest.skip(4) else { return };
        let payload = payload.first(length.into());
        connection.on_acl_data(direction, boundary == 1, payload, out);
    }
}

/// Adds a connection and ends a previous one with the same handle, whose end was not captured.
fn insert_connection(
    connections: &mut BTreeMap<(u16, u16), Connection>,
    key: (u16, u16),
    connection: Connection,
    out: &mut Sink<'_>,
) {
    if let Some(before) = connections.remove(&key) {
        before.end(Close::Disconnected, out);
    }
    if connections.len() >= MAX_CONNECTIONS {
        let oldest = connections.iter().min_by_key(|(_, it)| it.last()).map(|(key, _)| *key);
        if let Some(given_up) = oldest.and_then(|oldest| connections.remove(&oldest)) {
            out.counts.evicted += 1;
            given_up.end(Close::Evicted, out);
        }
    }
    connections.insert(key, connection);
}
