//! What passes between a Bluetooth host and its controller: connections, what is agreed on over
//! them, and the streams that they carry.
//!
//! A [`Host`] is given each packet of a capture of the HCI (btsnoop, or pcap of Linux's monitor). It
//! puts L2CAP's packets together, follows which channels are opened for what, and reads RFCOMM and
//! credits on the way. What a stream carries goes to whoever asks for it as [`Data`]; each message
//! that controls something is an [`Event::Control`], and each stream is an [`Event::Stream`] once
//! it is over.
//!
//! A channel whose opening was not captured has no PSM, and nobody guesses whether it is RFCOMM.
//! Packets without a direction are counted only: the numbers of channels are the receiver's. What
//! ERTM and streaming mode carry is counted and not read, nor is the check sum of RFCOMM's frames.
//! Part and section numbers here are those of the Bluetooth Core Specification 5.4.

mod assembly;
mod channel;
mod completion;
mod connection;
mod control;
mod credits;
mod forms;
mod hci;
mod rest;
mod rfcomm;
mod signalling;
mod stream;
mod streams;

use std::collections::{BTreeMap, VecDeque};

use manyways_unit::Time;

pub use self::completion::{OUTSTANDING, QUIET};
use self::connection::Connection;
pub use self::connection::{CHANNELS, REQUESTS};
pub use self::control::{Address, Control, Direction, Layer};
pub use self::credits::Credits;
use self::hci::{Kind, Passed};
use self::rest::Rest;
pub use self::signalling::COMMANDS;
pub use self::stream::{Data, Ending, StreamId, StreamSummary};
pub use self::streams::STREAMS;
use crate::capture::{Interface, Packet};

/// So many connections at a time; of more, the one that was used longest ago is given up.
pub const CONNECTIONS: usize = 64;

/// What a host learned.
#[derive(Clone, Debug)]
pub enum Event {
    /// A message that controls a connection, a channel or a stream.
    Control(Control),
    /// A stream is over.
    Stream(StreamSummary),
}

/// How many packets of each kind passed, and of how many nothing could be learned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commands to the controller.
    pub commands: u64,
    /// Its events.
    pub events: u64,
    /// Packets of data, which are read.
    pub acl: u64,
    /// Synchronous and isochronous packets, mostly sound.
    pub synchronous: u64,
    /// Packets of other links, and of kinds that are not known.
    pub other: u64,
    /// Packets of data of which nobody says who sent them.
    pub undirected: u64,
    /// Packets that the capture cut before it is clear what they belong to.
    pub headless: u64,
    /// Packets that go on with one whose beginning was not captured.
    pub orphans: u64,
    /// Packets that say of themselves what cannot be.
    pub broken: u64,
    /// Connections that were given up for others.
    pub evicted: u64,
    /// What the capture itself lost, by its own words.
    pub lost: u64,
}

/// Reads what passes between a host and its controllers.
#[derive(Debug, Default)]
pub struct Host {
    connections: BTreeMap<(u16, u16), Connection>,
    events: VecDeque<Event>,
    counts: Counts,
    /// So many streams began so far.
    streams: u64,
    /// When the last packet passed.
    now: Time,
}

/// Where what is learned goes.
struct Out<'a> {
    now: Time,
    events: &'a mut VecDeque<Event>,
    counts: &'a mut Counts,
    streams: &'a mut u64,
    data: &'a mut dyn FnMut(Data<'_>),
}

impl Host {
    /// A packet passes. What it adds to a stream goes to `data`, and so do the beginnings of packets
    /// that stay incomplete, once that is clear.
    ///
    /// Adapters are told apart by the number at the end of the interface's name (`hci1`), or by
    /// what Linux's monitor says in each packet.
    pub fn handle(
        &mut self,
        interface: &Interface,
        packet: &Packet<'_>,
        mut data: impl FnMut(Data<'_>),
    ) {
        self.now = packet.at;
        let passed = Passed::read(interface, packet);
        let Self { connections, events, counts, streams, now } = self;
        let mut out = Out { now: *now, events, counts, streams, data: &mut data };
        if packet.lost_before > 0 {
            out.counts.lost = out.counts.lost.saturating_add(packet.lost_before);
            connections.values_mut().for_each(|it| it.misses(packet.lost_before, &mut out));
        }
        let Some(Passed { adapter, kind, direction, rest }) = passed else {
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
                Self::acl(adapter, direction, rest, connections, &mut out);
            }
        }
    }

    /// What was learned next.
    pub fn poll(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Nothing passes any more: all streams that are left are over.
    pub fn finish(&mut self, mut data: impl FnMut(Data<'_>)) {
        let Self { connections, events, counts, streams, now } = self;
        let mut out = Out { now: *now, events, counts, streams, data: &mut data };
        for connection in std::mem::take(connections).into_values() {
            connection.ends(Ending::Finished, &mut out);
        }
    }

    /// How many packets of each kind passed.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// A packet of data (vol 4, part E, 5.4.2).
    fn acl(
        adapter: u16,
        direction: Direction,
        rest: Rest<'_>,
        connections: &mut BTreeMap<(u16, u16), Connection>,
        out: &mut Out<'_>,
    ) {
        let (Some(first), Some(length)) = (rest.u16(0), rest.u16(2)) else {
            out.counts.headless += 1;
            return;
        };
        let (handle, boundary, broadcast) = (first & 0x0fff, first >> 12 & 3, first >> 14);
        if broadcast != 0 {
            return;
        }
        let key = (adapter, handle);
        if !connections.contains_key(&key) {
            let connection = Connection::new(adapter, handle, None, false, out.now);
            begins(connections, key, connection, out);
        }
        let Some(connection) = connections.get_mut(&key) else { return };
        let Some(payload) = rest.after(4) else { return };
        let payload = payload.first(length.into());
        connection.passes(direction, boundary == 1, payload, out);
    }
}

/// A connection is there now. One of the same handle, whose end was not captured, is over.
fn begins(
    connections: &mut BTreeMap<(u16, u16), Connection>,
    key: (u16, u16),
    connection: Connection,
    out: &mut Out<'_>,
) {
    if let Some(before) = connections.remove(&key) {
        before.ends(Ending::Disconnected, out);
    }
    if connections.len() >= CONNECTIONS {
        let oldest = connections.iter().min_by_key(|(_, it)| it.last()).map(|(key, _)| *key);
        if let Some(given_up) = oldest.and_then(|oldest| connections.remove(&oldest)) {
            out.counts.evicted += 1;
            given_up.ends(Ending::Evicted, out);
        }
    }
    connections.insert(key, connection);
}
