//! Extracts the tracks of a capture: for TCP the bytes and the ACKs of both directions, for
//! Bluetooth the data of L2CAP channels and RFCOMM.
//!
//! A TCP track has the name `FROM>TO`, with addresses and ports; a Bluetooth track
//! `rfcomm/CHANNEL/sent`, `psm/NUMBER/sent` or, if its opening was not captured, `cid/NUMBER/sent`,
//! or `…/received`. The program at the endpoint knows these values, too. A second track of the same
//! name has the suffix `#2`, the next one `#3`. UDP is not supported: it has no sequence numbers,
//! and its payload is mostly encrypted per hop.

use std::collections::HashMap;
use std::net::SocketAddr;

use manyways_unit::{Span, Time};

use super::Way;
use super::pairing::TRACKS;
use super::track::{Carries, Origin, Track};
use crate::flow::{Connection, Flow, Limits, Order, Passing, Table};
use manyways_wire::bluetooth::{Data, Direction, Host};
use manyways_wire::capture::{Interface, Packet};
use manyways_wire::frame::{self, Datagram, Fragments};
use manyways_wire::stream::{End, Piece};
use manyways_wire::tcp::{Flags, Segment, Seq};

/// Maximum number of stored pieces of all tracks; above it, half of the pieces of each long track
/// are dropped.
pub const ALL_PIECES: usize = 1 << 22;
/// Minimum number of pieces of a long track.
const LONG: usize = 1 << 10;
/// Maximum number of concurrent connections.
pub const CONNECTIONS: usize = 1 << 14;
/// Idle timeout of connections; long, because connections that wait for push messages are idle for
/// long.
pub const IDLE: Span = Span::from_secs(3_600);
const TCP: u8 = 6;
/// Time of bytes that were not captured.
const NEVER: Time = Time::from_nanos(u64::MAX);

/// Extracts the tracks of a capture.
#[derive(Debug)]
pub struct Follow {
    fragments: Fragments,
    table: Table<Both>,
    host: Option<Box<Host>>,
    /// Track of each Bluetooth stream.
    streams: HashMap<u64, Option<usize>>,
    out: Followed,
    names: HashMap<String, u32>,
    pieces: usize,
    /// Number of the next connection.
    next: u32,
}

/// The tracks of a capture.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    /// In the order of their first pieces. Data of TCP servers, and sent data of a Bluetooth host,
    /// are assumed to go along the chain; [`super::orient()`] corrects this.
    pub tracks: Vec<Track>,
    /// Number of packets.
    pub packets: u64,
    /// Number of TCP packets and Bluetooth data packets.
    pub followed: u64,
    /// Number of directions without a track, because there are [`TRACKS`].
    pub left_out: u64,
    /// Time of the first and of the last packet.
    pub times: Option<(Time, Time)>,
    /// Connection of each track.
    pub(super) connections: Vec<u32>,
    /// Minimum round-trip time from the capture point to the server of a connection.
    pub(super) trips: HashMap<u32, Span>,
}

/// A TCP connection.
#[derive(Debug, Default)]
struct Both {
    number: Option<u32>,
    ends: [Half; 2],
}

/// State of one endpoint's data.
#[derive(Debug, Default)]
struct Half {
    isn: Option<Seq>,
    order: Order,
    /// Offset after the last captured byte.
    top: u64,
    bytes: Tracked,
    /// Offset of the track's first byte.
    base: u64,
    acks: Tracked,
    /// Its latest acknowledgment number.
    acked: Option<Seq>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Tracked {
    #[default]
    NotYet,
    /// Index of the track; `None` if there were too many.
    Since(Option<usize>),
}

impl Default for Follow {
    fn default() -> Self {
        Self {
            fragments: Fragments::default(),
            table: Table::new(Limits { connections: CONNECTIONS, idle: IDLE }),
            host: None,
            streams: HashMap::new(),
            out: Followed::default(),
            names: HashMap::new(),
            pieces: 0,
            next: 0,
        }
    }
}

impl Follow {
    /// Handles a packet that `interface` captured.
    pub fn packet(&mut self, interface: &Interface, packet: &Packet<'_>) {
        self.out.packets += 1;
        let at = packet.at;
        let (first, last) = self.out.times.unwrap_or((at, at));
        self.out.times = Some((first.min(at), last.max(at)));
        if interface.link.is_bluetooth() {
            self.bluetooth(interface, packet);
            return;
        }
        let Ok(datagram) = frame::datagram(interface.link, packet.bytes, packet.length) else {
            return;
        };
        let Some(part) = datagram.fragment else {
            self.segment(at, &datagram);
            return;
        };
        if let Some(whole) = self.fragments.add(at, &datagram, part) {
            let frame::Whole { payload, carried, .. } = whole;
            self.segment(at, &Datagram { payload: &payload, carried, fragment: None, ..datagram });
        }
    }

    /// Ends the capture and returns the tracks.
    pub fn finish(mut self) -> Followed {
        self.table.finish();
        self.collect();
        if let Some(mut host) = self.host.take() {
            host.finish(|data| self.carried(&data));
        }
        self.out
    }

    fn segment(&mut self, now: Time, datagram: &Datagram<'_>) {
        if datagram.protocol != TCP {
            return;
        }
        let Some(segment) = Segment::read(datagram.payload, datagram.carried) else { return };
        self.out.followed += 1;
        let Self { table, out, names, next, pieces, .. } = self;
        let (source, destination) = (datagram.source, datagram.destination);
        let Some(passing) = table.handle(now, source, destination, &segment) else { return };
        let Passing { from, place, connection, attached, .. } = passing;
        let number = *attached.number.get_or_insert_with(|| {
            *next += 1;
            *next - 1
        });
        let ends =
            [SocketAddr::new(source, segment.from), SocketAddr::new(destination, segment.to)];
        let mut out = Out { out, names, pieces, number };
        if !segment.flags.has(Flags::RST) {
            attached.passes(now, (from, ends, place), connection, &segment, &mut out);
        }
        self.thin();
        self.collect();
    }

    /// Completes ended connections.
    fn collect(&mut self) {
        while let Some(Flow { connection, mut attached, .. }) = self.table.poll() {
            for half in &mut attached.ends {
                let Tracked::Since(Some(track)) = half.bytes else { continue };
                let Some(track) = self.out.tracks.get_mut(track) else { continue };
                // Bytes after the gap passed, the gap did not.
                half.order.acked(NEVER, half.top, |piece| passed(track, piece));
            }
            let handshake = connection.handshake();
            // Next to the server, a coarse clock may record SYN and SYN/ACK with the same time.
            let is_beside = handshake.syn.is_some() && handshake.syn == handshake.answer;
            let trip = handshake.to_server().or(is_beside.then_some(Span::ZERO)).or_else(|| {
                connection.stream(End::Client).and_then(|stream| stream.near().least())
            });
            if let (Some(number), Some(trip)) = (attached.number, trip) {
                self.out.trips.insert(number, trip);
            }
        }
    }

    fn bluetooth(&mut self, interface: &Interface, packet: &Packet<'_>) {
        let mut host = self.host.take().unwrap_or_default();
        if packet.lost_before > 0 {
            // The number and the stream of the lost bytes are unknown.
            for track in self.streams.values().flatten() {
                self.out.tracks.get_mut(*track).into_iter().for_each(|track| track.skip(0));
            }
        }
        host.handle(interface, packet, |data| self.carried(&data));
        while host.poll().is_some() {}
        self.host = Some(host);
        self.thin();
    }

    fn carried(&mut self, data: &Data<'_>) {
        self.out.followed += 1;
        let Self { out, names, pieces, next, streams, .. } = self;
        let stream = &data.stream;
        let track = streams.entry(stream.number).or_insert_with(|| {
            let (way, said) = match stream.direction {
                Direction::Sent => (Way::Along, "sent"),
                Direction::Received => (Way::Against, "received"),
            };
            let name = match (stream.server_channel(), data.psm) {
                (Some(channel), _) => format!("rfcomm/{channel}/{said}"),
                (None, Some(psm)) => format!("psm/{psm}/{said}"),
                (None, None) => format!("cid/{}/{said}", stream.cid),
            };
            // Each Bluetooth direction counts as a connection, so that its matches alone determine
            // its orientation.
            *next += 1;
            Out { out, names, pieces, number: *next - 1 }.open(way, name, None)
        });
        if let Some(track) = *track {
            Out { out, names, pieces, number: 0 }.change(track, |track| passed(track, data.piece));
        }
    }

    /// Drops pieces above the limit.
    fn thin(&mut self) {
        if self.pieces <= ALL_PIECES {
            return;
        }
        let tracks = &mut self.out.tracks;
        tracks.iter_mut().filter(|track| track.runs().len() >= LONG).for_each(Track::thin);
        self.pieces = tracks.iter().map(|track| track.runs().len()).sum();
    }
}

/// Destination of the tracks.
struct Out<'a> {
    out: &'a mut Followed,
    names: &'a mut HashMap<String, u32>,
    pieces: &'a mut usize,
    number: u32,
}

impl Out<'_> {
    fn open(&mut self, way: Way, name: String, origin: Option<Origin>) -> Option<usize> {
        let tracks = &mut self.out.tracks;
        if tracks.len() >= TRACKS {
            self.out.left_out += 1;
            return None;
        }
        let count = self.names.entry(name.clone()).or_default();
        *count += 1;
        let name = if *count > 1 { format!("{name}#{count}") } else { name };
        tracks.push(Track::new(way, name, origin));
        self.out.connections.push(self.number);
        Some(tracks.len() - 1)
    }

    fn change(&mut self, track: usize, change: impl FnOnce(&mut Track)) {
        let Some(track) = self.out.tracks.get_mut(track) else { return };
        let before = track.runs().len();
        change(track);
        *self.pieces = (*self.pieces + track.runs().len()).saturating_sub(before);
    }
}

/// Adds bytes to a track, captured or not.
fn passed(track: &mut Track, piece: Piece<'_>) {
    match piece.at {
        NEVER => track.skip(piece.length),
        _ => track.push(piece),
    }
}

impl Both {
    fn passes(
        &mut self,
        now: Time,
        (from, [source, destination], place): (End, [SocketAddr; 2], Option<u64>),
        connection: &Connection,
        segment: &Segment<'_>,
        out: &mut Out<'_>,
    ) {
        let (is_syn, is_ack) = (segment.flags.has(Flags::SYN), segment.flags.has(Flags::ACK));
        let other = from.other();
        if is_syn {
            self.ends[from as usize].isn.get_or_insert(segment.seq);
            if is_ack {
                let isn = Seq(segment.ack.0.wrapping_sub(1));
                self.ends[other as usize].isn.get_or_insert(isn);
            }
        }
        let way = match from {
            End::Server => Way::Along,
            End::Client => Way::Against,
        };
        let isns = [from, other].map(|end| self.ends[end as usize].isn);
        let origin = |carries, first, [isn, other_isn]: [Option<Seq>; 2]| {
            Some(Origin { from: source, to: destination, carries, first, isn, other_isn })
        };
        if is_ack {
            let theirs = &mut self.ends[other as usize];
            if let (Tracked::Since(Some(track)), Some(stream)) =
                (theirs.bytes, connection.stream(other))
                && theirs.order.next().is_some_and(|next| next < stream.acked())
            {
                // The receiver has the bytes, so the capture missed them.
                let order = &mut theirs.order;
                out.change(track, |track| {
                    order.acked(NEVER, stream.acked(), |piece| passed(track, piece));
                });
            }
            let ours = &mut self.ends[from as usize];
            let before = *ours.acked.get_or_insert(segment.ack);
            if let Ok(more @ 1..) = u32::try_from(segment.ack.after(before)) {
                ours.acked = Some(segment.ack);
                if let Tracked::NotYet = ours.acks {
                    let carries = Carries::Acknowledgements;
                    let origin = origin(carries, before, [isns[1], isns[0]]);
                    let name = format!("ack {source}>{destination}");
                    ours.acks = Tracked::Since(out.open(way, name, origin));
                }
                if let Tracked::Since(Some(track)) = ours.acks {
                    out.change(track, |track| track.push(Piece::unknown(now, more.into())));
                }
            }
        }
        let (Some(place), Some(stream)) = (place, connection.stream(from)) else { return };
        let half = &mut self.ends[from as usize];
        if connection.hello(from).is_some() {
            half.order.begins(stream.begin());
        }
        if let Tracked::NotYet = half.bytes {
            half.base = half.order.next().unwrap_or(place);
            let number = (segment.seq + u32::from(is_syn)).0;
            let first = Seq(number.wrapping_add((half.base as u32).wrapping_sub(place as u32)));
            let origin = origin(Carries::Bytes, first, isns);
            half.bytes = Tracked::Since(out.open(way, format!("{source}>{destination}"), origin));
        }
        if let Tracked::Since(Some(track)) = half.bytes {
            out.change(track, |track| half.passes(now, place, segment, track));
        }
    }
}

impl Half {
    /// Handles a segment with data at offset `place`.
    fn passes(&mut self, now: Time, place: u64, segment: &Segment<'_>, track: &mut Track) {
        let end = place.saturating_add(segment.length.into());
        self.top = self.top.max(end);
        let next = self.order.next().unwrap_or(place);
        let again = place.max(self.base)..end.min(next);
        if !again.is_empty() {
            track.again(again.start - self.base, again.end - again.start);
        }
        let base = self.base;
        let piece = Piece { at: now, bytes: segment.payload, length: segment.length.into() };
        self.order.pass(place, piece, |piece| {
            // If too many bytes wait, the gap before them is given up with this time.
            let at = base.saturating_add(track.length());
            let is_gap = piece.bytes.is_empty() && piece.at == now && !(place..end).contains(&at);
            match is_gap {
                true => track.skip(piece.length),
                false => passed(track, piece),
            }
        });
    }
}

#[cfg(test)]
mod tests;
