//! Extracts the tracks of a capture: for TCP the bytes and the ACKs of both directions, for
//! Bluetooth the data of L2CAP channels and RFCOMM.
//!
//! A TCP track has the name `FROM>TO`, with addresses and ports; a Bluetooth track
//! `rfcomm/CHANNEL/sent`, `psm/NUMBER/sent` or, if its opening was not captured, `cid/NUMBER/sent`,
//! or `…/received`. The program at the endpoint knows these values, too. A second track of the same
//! name has the suffix `#2`, the next one `#3`. UDP is not supported: it has no sequence numbers,
//! and its payload is mostly encrypted per hop.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use manyways_unit::{Span, Time};

use super::ChainDirection;
use super::pairing::MAX_TRACKS;
use super::track::{SequenceSource, Track, TrackContent};
use crate::flow::{Connection, Flow, FlowContext, Limits, Reassembler, Table};
use manyways_wire::bluetooth::{Data, Direction, Host};
use manyways_wire::capture::{Interface, Packet};
use manyways_wire::frame::{self, Fragments, IpPacket, SkipReason};
use manyways_wire::stream::{Endpoint, Piece};
use manyways_wire::tcp::{Flags, Segment, Seq};

/// Maximum number of stored pieces of all tracks; above it, half of the pieces of each long track
/// are dropped.
pub const MAX_TOTAL_PIECES: usize = 1 << 22;
/// Minimum number of pieces of a long track.
const LONG_TRACK_PIECES: usize = 1 << 10;
/// Maximum number of concurrent connections.
pub const MAX_CONNECTIONS: usize = 1 << 14;
/// Idle timeout of connections; long, because connections that wait for push messages are idle for
/// long.
pub const IDLE_TIMEOUT: Span = Span::from_secs(3_600);
const TCP: u8 = 6;
/// Time of bytes that were not captured.
const UNKNOWN_TIME: Time = Time::from_nanos(u64::MAX);

/// Extracts the tracks of a capture.
#[derive(Debug)]
pub struct TrackExtractor {
    fragments: Fragments,
    table: Table<TcpConnection>,
    host: Option<Box<Host>>,
    /// Track of each Bluetooth stream.
    streams: HashMap<u64, Option<usize>>,
    output: CaptureTracks,
    names: HashMap<String, u32>,
    piece_count: usize,
    /// Number of the next connection.
    next_number: u32,
}

/// The tracks of a capture.
#[derive(Clone, Debug, Default)]
pub struct CaptureTracks {
    /// In the order of their first pieces. Data of TCP servers, and sent data of a Bluetooth host,
    /// are assumed to go along the chain; [`super::orient()`] corrects this.
    pub tracks: Vec<Track>,
    /// Number of packets.
    pub packets: u64,
    /// Number of TCP packets and Bluetooth data packets.
    pub tracked_packets: u64,
    /// Number of directions without a track, because there are [`MAX_TRACKS`].
    pub skipped: u64,
    /// Number of packets of each link type that is not read.
    pub unread_links: BTreeMap<SkipReason, u64>,
    /// Time of the first and of the last packet.
    pub times: Option<(Time, Time)>,
    /// Connection of each track.
    pub(super) connections: Vec<u32>,
    /// Minimum round-trip time from the capture point to the server of a connection.
    pub(super) server_rtts: HashMap<u32, Span>,
}

/// A TCP connection.
#[derive(Debug, Default)]
struct TcpConnection {
    number: Option<u32>,
    endpoints: [EndpointState; 2],
}

/// State of one endpoint's data.
#[derive(Debug, Default)]
struct EndpointState {
    isn: Option<Seq>,
    reassembler: Reassembler,
    /// Offset after the last captured byte.
    captured_end: u64,
    data_track: TrackSlot,
    /// Offset of the track's first byte.
    base: u64,
    ack_track: TrackSlot,
    /// Its latest acknowledgment number.
    last_ack: Option<Seq>,
}

#[derive(Clone, Copy, Debug, Default)]
enum TrackSlot {
    #[default]
    Unassigned,
    /// Index of the track; `None` if there were too many.
    Assigned(Option<usize>),
}

impl Default for TrackExtractor {
    fn default() -> Self {
        Self {
            fragments: Fragments::default(),
            table: Table::new(Limits { connections: MAX_CONNECTIONS, idle: IDLE_TIMEOUT }),
            host: None,
            streams: HashMap::new(),
            output: CaptureTracks::default(),
            names: HashMap::new(),
            piece_count: 0,
            next_number: 0,
        }
    }
}

impl TrackExtractor {
    /// Handles a packet that `interface` captured.
    pub fn handle_packet(&mut self, interface: &Interface, packet: &Packet<'_>) {
        self.output.packets += 1;
        let at = packet.at;
        let (first, last) = self.output.times.unwrap_or((at, at));
        self.output.times = Some((first.min(at), last.max(at)));
        if interface.link.is_bluetooth() {
            self.handle_bluetooth(interface, packet);
            return;
        }
        let (link, bytes, length) = (interface.link, packet.bytes, packet.length);
        match frame::ip_packet(link, bytes, length) {
            Ok(datagram) => self.handle_datagram(at, &datagram),
            Err(reason @ SkipReason::Link(_)) => {
                *self.output.unread_links.entry(reason).or_default() += 1;
            }
            Err(_) => {}
        }
        for datagram in frame::further_packets(link, bytes, length).flatten() {
            self.handle_datagram(at, &datagram);
        }
    }

    fn handle_datagram(&mut self, at: Time, datagram: &IpPacket<'_>) {
        let Some(part) = datagram.fragment else {
            self.handle_tcp(at, datagram);
            return;
        };
        if let Some(whole) = self.fragments.add(at, datagram, part) {
            self.handle_tcp(at, &whole.packet(datagram));
        }
    }

    /// Ends the capture and returns the tracks.
    pub fn finish(mut self) -> CaptureTracks {
        self.table.finish();
        self.collect_ended();
        if let Some(mut host) = self.host.take() {
            host.finish(|data| self.handle_bluetooth_data(&data));
        }
        self.output
    }

    fn handle_tcp(&mut self, now: Time, datagram: &IpPacket<'_>) {
        if datagram.protocol == TCP
            && let Some(segment) = Segment::read(datagram.payload, datagram.payload_length)
        {
            self.output.tracked_packets += 1;
            self.handle_segment(now, datagram, &segment, true);
        }
    }

    /// Handles a segment, and earlier ones that it explains if it `is_first` handled now.
    fn handle_segment(
        &mut self,
        now: Time,
        datagram: &IpPacket<'_>,
        segment: &Segment<'_>,
        is_first: bool,
    ) {
        let Self { table, output: out, names, next_number: next, piece_count: pieces, .. } = self;
        let (source, destination) = (datagram.source, datagram.destination);
        let Some(context) = table.handle(now, datagram, segment) else {
            for held in table.take_replay().into_iter().filter(|_| is_first) {
                let packet = held.packet();
                if let Some(segment) = Segment::read(packet.payload, packet.payload_length) {
                    self.handle_segment(held.at, &packet, &segment, false);
                }
            }
            return;
        };
        let FlowContext { from, offset: place, connection, attached, .. } = context;
        let number = *attached.number.get_or_insert_with(|| {
            *next += 1;
            *next - 1
        });
        let ends = [
            SocketAddr::new(source, segment.source_port),
            SocketAddr::new(destination, segment.destination_port),
        ];
        let mut out = TrackSink { tracks: out, names, piece_count: pieces, number };
        if !segment.flags.has(Flags::RST) {
            attached.handle_segment(now, (from, ends, place), connection, segment, &mut out);
        }
        self.thin();
        self.collect_ended();
    }

    /// Completes ended connections.
    fn collect_ended(&mut self) {
        while let Some(Flow { connection, mut attached, .. }) = self.table.poll() {
            for endpoint in &mut attached.endpoints {
                let TrackSlot::Assigned(Some(track)) = endpoint.data_track else { continue };
                let Some(track) = self.output.tracks.get_mut(track) else { continue };
                // Bytes after the gap passed, the gap did not.
                endpoint
                    .reassembler
                    .on_ack(UNKNOWN_TIME, endpoint.captured_end, |piece| push_piece(track, piece));
            }
            let handshake = connection.handshake();
            // Next to the server, a coarse clock may record SYN and SYN/ACK with the same time.
            let is_beside = handshake.syn.is_some() && handshake.syn == handshake.syn_ack;
            let rtt = handshake.server_rtt().or(is_beside.then_some(Span::ZERO)).or_else(|| {
                connection.stream(Endpoint::Client).and_then(|stream| stream.receiver_rtt().min())
            });
            if let (Some(number), Some(rtt)) = (attached.number, rtt) {
                self.output.server_rtts.insert(number, rtt);
            }
        }
    }

    fn handle_bluetooth(&mut self, interface: &Interface, packet: &Packet<'_>) {
        let mut host = self.host.take().unwrap_or_default();
        if packet.dropped_before > 0 {
            // The number and the stream of the lost bytes are unknown.
            for track in self.streams.values().flatten() {
                self.output.tracks.get_mut(*track).into_iter().for_each(|track| track.skip(0));
            }
        }
        host.handle(interface, packet, |data| self.handle_bluetooth_data(&data));
        while host.poll().is_some() {}
        self.host = Some(host);
        self.thin();
    }

    fn handle_bluetooth_data(&mut self, data: &Data<'_>) {
        self.output.tracked_packets += 1;
        let Self { output: out, names, piece_count: pieces, next_number: next, streams, .. } = self;
        let stream = &data.stream;
        let track = streams.entry(stream.number).or_insert_with(|| {
            let (direction, said) = match stream.direction {
                Direction::Sent => (ChainDirection::Forward, "sent"),
                Direction::Received => (ChainDirection::Reverse, "received"),
            };
            let name = match (stream.server_channel(), data.psm) {
                (Some(channel), _) => format!("rfcomm/{channel}/{said}"),
                (None, Some(psm)) => format!("psm/{psm}/{said}"),
                (None, None) => format!("cid/{}/{said}", stream.cid),
            };
            // Each Bluetooth direction counts as a connection, so that its matches alone determine
            // its orientation.
            *next += 1;
            TrackSink { tracks: out, names, piece_count: pieces, number: *next - 1 }
                .open_track(direction, name, None)
        });
        if let Some(track) = *track {
            TrackSink { tracks: out, names, piece_count: pieces, number: 0 }
                .update_track(track, |track| push_piece(track, data.piece));
        }
    }

    /// Drops pieces above the limit.
    fn thin(&mut self) {
        if self.piece_count <= MAX_TOTAL_PIECES {
            return;
        }
        let tracks = &mut self.output.tracks;
        tracks
            .iter_mut()
            .filter(|track| track.runs().len() >= LONG_TRACK_PIECES)
            .for_each(Track::thin);
        self.piece_count = tracks.iter().map(|track| track.runs().len()).sum();
    }
}

/// Destination of the tracks.
struct TrackSink<'a> {
    tracks: &'a mut CaptureTracks,
    names: &'a mut HashMap<String, u32>,
    piece_count: &'a mut usize,
    number: u32,
}

impl TrackSink<'_> {
    fn open_track(
        &mut self,
        direction: ChainDirection,
        name: String,
        origin: Option<SequenceSource>,
    ) -> Option<usize> {
        let tracks = &mut self.tracks.tracks;
        if tracks.len() >= MAX_TRACKS {
            self.tracks.skipped += 1;
            return None;
        }
        let count = self.names.entry(name.clone()).or_default();
        *count += 1;
        let name = if *count > 1 { format!("{name}#{count}") } else { name };
        tracks.push(Track::new(direction, name, origin));
        self.tracks.connections.push(self.number);
        Some(tracks.len() - 1)
    }

    fn update_track(&mut self, track: usize, change: impl FnOnce(&mut Track)) {
        let Some(track) = self.tracks.tracks.get_mut(track) else { return };
        let before = track.runs().len();
        change(track);
        *self.piece_count = (*self.piece_count + track.runs().len()).saturating_sub(before);
    }
}

/// Adds bytes to a track, captured or not.
fn push_piece(track: &mut Track, piece: Piece<'_>) {
    match piece.at {
        UNKNOWN_TIME => track.skip(piece.length),
        _ => track.push(piece),
    }
}

impl TcpConnection {
    fn handle_segment(
        &mut self,
        now: Time,
        (from, [source, destination], place): (Endpoint, [SocketAddr; 2], Option<u64>),
        connection: &Connection,
        segment: &Segment<'_>,
        out: &mut TrackSink<'_>,
    ) {
        let (is_syn, is_ack) = (segment.flags.has(Flags::SYN), segment.flags.has(Flags::ACK));
        let other = from.other();
        if is_syn {
            self.endpoints[from as usize].isn.get_or_insert(segment.seq);
            if is_ack {
                let isn = Seq(segment.ack.0.wrapping_sub(1));
                self.endpoints[other as usize].isn.get_or_insert(isn);
            }
        }
        let direction = match from {
            Endpoint::Server => ChainDirection::Forward,
            Endpoint::Client => ChainDirection::Reverse,
        };
        let isns = [from, other].map(|end| self.endpoints[end as usize].isn);
        let origin = |carries, first, [isn, other_isn]: [Option<Seq>; 2]| {
            Some(SequenceSource {
                sender: source,
                receiver: destination,
                content: carries,
                first_seq: first,
                isn,
                peer_isn: other_isn,
            })
        };
        if is_ack {
            let theirs = &mut self.endpoints[other as usize];
            if let (TrackSlot::Assigned(Some(track)), Some(stream)) =
                (theirs.data_track, connection.stream(other))
                && theirs.reassembler.next_offset().is_some_and(|next| next < stream.acked())
            {
                // The receiver has the bytes, so the capture missed them.
                let reassembler = &mut theirs.reassembler;
                out.update_track(track, |track| {
                    reassembler
                        .on_ack(UNKNOWN_TIME, stream.acked(), |piece| push_piece(track, piece));
                });
            }
            let ours = &mut self.endpoints[from as usize];
            let before = *ours.last_ack.get_or_insert(segment.ack);
            if let Ok(more @ 1..) = u32::try_from(segment.ack.distance_from(before)) {
                ours.last_ack = Some(segment.ack);
                if let TrackSlot::Unassigned = ours.ack_track {
                    let carries = TrackContent::Acknowledgements;
                    let origin = origin(carries, before, [isns[1], isns[0]]);
                    let name = format!("ack {source}>{destination}");
                    ours.ack_track = TrackSlot::Assigned(out.open_track(direction, name, origin));
                }
                if let TrackSlot::Assigned(Some(track)) = ours.ack_track {
                    out.update_track(track, |track| {
                        track.push(Piece::uncaptured(now, more.into()))
                    });
                }
            }
        }
        let (Some(offset), Some(stream)) = (place, connection.stream(from)) else { return };
        let endpoint = &mut self.endpoints[from as usize];
        if connection.syn_options(from).is_some() {
            endpoint.reassembler.set_start(stream.data_start());
        }
        if let TrackSlot::Unassigned = endpoint.data_track {
            endpoint.base = endpoint.reassembler.next_offset().unwrap_or(offset);
            let number = (segment.seq + u32::from(is_syn)).0;
            let first =
                Seq(number.wrapping_add((endpoint.base as u32).wrapping_sub(offset as u32)));
            let origin = origin(TrackContent::Bytes, first, isns);
            endpoint.data_track = TrackSlot::Assigned(out.open_track(
                direction,
                format!("{source}>{destination}"),
                origin,
            ));
        }
        if let TrackSlot::Assigned(Some(track)) = endpoint.data_track {
            out.update_track(track, |track| endpoint.handle_data(now, offset, segment, track));
        }
    }
}

impl EndpointState {
    /// Handles a segment with data at `offset`.
    fn handle_data(&mut self, now: Time, offset: u64, segment: &Segment<'_>, track: &mut Track) {
        let end = offset.saturating_add(segment.length.into());
        self.captured_end = self.captured_end.max(end);
        let next = self.reassembler.next_offset().unwrap_or(offset);
        let again = offset.max(self.base)..end.min(next);
        if !again.is_empty() {
            track.on_retransmission(again.start - self.base, again.end - again.start);
        }
        let base = self.base;
        let piece = Piece { at: now, bytes: segment.payload, length: segment.length.into() };
        self.reassembler.push(offset, piece, |piece| {
            // If too many bytes wait, the gap before them is given up with this time.
            let at = base.saturating_add(track.length());
            let is_gap = piece.bytes.is_empty() && piece.at == now && !(offset..end).contains(&at);
            match is_gap {
                true => track.skip(piece.length),
                false => push_piece(track, piece),
            }
        });
    }
}

#[cfg(test)]
mod tests;
