//! A connection to another device.

use std::collections::VecDeque;

use manyways_unit::{Span, Time};

use super::Sink;
use super::channel::{Channel, FIRST_DYNAMIC};
use super::control::{Address, Direction};
use super::cursor::Cursor;
use super::in_flight::PacketsInFlight;
use super::reassembly::{FragmentResult, HEADER, Reassembly, packet_length};
use super::rfcomm;
use super::signalling::{self, Request};
use super::stream::Close;
use super::streams::{Key, Streams};

/// Maximum number of channels of a connection; the oldest is forgotten first.
pub const MAX_CHANNELS: usize = 64;
/// Maximum number of channel requests without an answer; the oldest is forgotten first.
pub const MAX_REQUESTS: usize = 32;

#[derive(Clone, Debug)]
pub(super) struct Connection {
    assemblies: [Reassembly; 2],
    pub(super) channels: Vec<Channel>,
    pub(super) requests: VecDeque<Request>,
    pub(super) streams: Streams,
    /// Channel ID of each packet, and the first byte of its payload.
    in_flight: PacketsInFlight<Option<(u16, Option<u8>)>>,
    last: Time,
}

impl Connection {
    /// Creates a connection; `is_from_start` if its beginning was captured.
    pub(super) fn new(
        adapter: u16,
        handle: u16,
        peer: Option<Address>,
        is_from_start: bool,
        now: Time,
    ) -> Self {
        Self {
            assemblies: Default::default(),
            channels: Vec::new(),
            requests: VecDeque::new(),
            streams: Streams::new(adapter, handle, peer),
            in_flight: PacketsInFlight::new(now, is_from_start),
            last: now,
        }
    }

    pub(super) fn peer(&self) -> Option<Address> {
        self.streams.peer
    }

    /// Time of the last ACL data packet.
    pub(super) fn last(&self) -> Time {
        self.last
    }

    /// Processes an ACL data packet: an L2CAP packet or a fragment of one.
    pub(super) fn on_acl_data(
        &mut self,
        direction: Direction,
        is_continued: bool,
        part: Cursor<'_>,
        out: &mut Sink<'_>,
    ) {
        self.last = out.now;
        if !is_continued {
            self.flush_incomplete(direction, out);
        }
        let [sent, received] = &mut self.assemblies;
        let assembly = if direction == Direction::Sent { sent } else { received };
        if direction == Direction::Sent {
            let header = match is_continued {
                true => assembly.header(),
                false => part.u16(2).map(|cid| (cid, part.u8(HEADER))),
            };
            self.in_flight.push(out.now, header);
        }
        // Most packets have one fragment and are not copied.
        if !is_continued && packet_length(part) == Some(part.length) {
            return self.read_packet(direction, out.now, part, false, out);
        }
        let added = match is_continued {
            true => assembly.add(out.now, part),
            false => assembly.begin(out.now, part),
        };
        match added {
            FragmentResult::Incomplete => {}
            FragmentResult::Orphan => out.counts.orphan_fragments += 1,
            FragmentResult::TooLong => {
                out.counts.malformed += 1;
                self.flush_incomplete(direction, out);
            }
            FragmentResult::TruncatedHeader => out.counts.truncated += 1,
            FragmentResult::Complete => self.take_packet(direction, false, out),
        }
    }

    /// Processes the completion of `count` packets by the controller.
    pub(super) fn on_completed(&mut self, now: Time, count: u16) {
        let Self { in_flight: outstanding, channels, streams, .. } = self;
        outstanding.complete(now, count, |span: Span, header| {
            let Some((cid, first)) = header else { return };
            let mut complete = |key: Key| {
                if let Some(stream) = streams.find(key) {
                    stream.add_completion(span);
                }
            };
            complete((Direction::Sent, cid, None));
            let is_rfcomm = channels.iter().any(|channel| {
                channel.destination_cids[0] == cid && channel.psm == Some(rfcomm::PSM)
            });
            if let (true, Some(address)) = (is_rfcomm, first) {
                complete((Direction::Sent, cid, Some(address >> 2)));
            }
        });
    }

    /// Records that the capture lost `count` packets, of this connection or of others.
    pub(super) fn on_dropped(&mut self, count: u64, out: &mut Sink<'_>) {
        self.flush_incomplete(Direction::Sent, out);
        self.flush_incomplete(Direction::Received, out);
        self.streams.on_dropped(count);
        self.in_flight.on_dropped(out.now);
        for channel in &mut self.channels {
            channel.sdu_remaining = [None, None];
            channel.session.on_dropped();
        }
    }

    /// Ends the connection and its streams.
    pub(super) fn end(mut self, ending: Close, out: &mut Sink<'_>) {
        self.flush_incomplete(Direction::Sent, out);
        self.flush_incomplete(Direction::Received, out);
        self.streams.end_all(ending, out);
    }

    /// Opens a channel with the MTU and the initial credits of each direction.
    pub(super) fn open_channel(
        &mut self,
        channel: Channel,
        mtu: [Option<u16>; 2],
        credits: [Option<u64>; 2],
        out: &mut Sink<'_>,
    ) {
        for direction in [Direction::Sent, Direction::Received] {
            let cid = channel.destination_cids[direction.index()];
            self.close_channel(direction, cid, Close::Closed, out);
            // Data before the opening belonged to an earlier channel with this ID.
            self.streams.end_channel(direction, cid, Close::Closed, out);
        }
        if let (true, Some(oldest)) = (self.channels.len() >= MAX_CHANNELS, self.channels.first()) {
            let cid = oldest.destination_cids[Direction::Sent.index()];
            self.close_channel(Direction::Sent, cid, Close::Evicted, out);
        }
        for direction in [Direction::Sent, Direction::Received] {
            let index = direction.index();
            let key = (direction, channel.destination_cids[index], None);
            let stream = self.streams.get_or_insert(key, channel.psm, out);
            stream.open(out.now, mtu[index], credits[index]);
        }
        self.channels.push(channel);
    }

    /// Closes the channel with destination ID `cid` in this direction.
    pub(super) fn close_channel(
        &mut self,
        direction: Direction,
        cid: u16,
        ending: Close,
        out: &mut Sink<'_>,
    ) {
        let place =
            self.channels.iter().position(|it| it.destination_cids[direction.index()] == cid);
        let Some(channel) = place.map(|offset| self.channels.remove(offset)) else { return };
        for direction in [Direction::Sent, Direction::Received] {
            self.streams.end_channel(
                direction,
                channel.destination_cids[direction.index()],
                ending,
                out,
            );
        }
    }

    /// Ends an incomplete packet. Its captured beginning counts as data: a fragment missed by the
    /// capture is more likely than one that was never sent.
    fn flush_incomplete(&mut self, direction: Direction, out: &mut Sink<'_>) {
        self.take_packet(direction, true, out);
    }

    fn take_packet(&mut self, direction: Direction, is_incomplete: bool, out: &mut Sink<'_>) {
        let assembly = &mut self.assemblies[direction.index()];
        let whole = if is_incomplete { assembly.take_incomplete() } else { assembly.take() };
        let Some(whole) = whole else { return };
        let rest = Cursor::new(&whole.bytes, whole.length);
        self.read_packet(direction, whole.at, rest, is_incomplete, out);
        self.assemblies[direction.index()].reuse(whole);
    }

    /// Reads an L2CAP packet (vol 3, part A, 3).
    fn read_packet(
        &mut self,
        direction: Direction,
        at: Time,
        rest: Cursor<'_>,
        is_incomplete: bool,
        out: &mut Sink<'_>,
    ) {
        let (Some(cid), Some(payload)) = (rest.u16(2), rest.skip(HEADER)) else {
            out.counts.truncated += 1;
            return;
        };
        if signalling::CIDS.contains(&cid) {
            return signalling::handle(self, direction, at, cid, payload, out);
        }
        let Self { channels, streams, .. } = self;
        let index = direction.index();
        let key = (direction, cid, None);
        let Some(channel) =
            channels.iter_mut().find(|channel| channel.destination_cids[index] == cid)
        else {
            let stream = streams.get_or_insert(key, None, out);
            stream.add(at, payload, is_incomplete);
            if cid >= FIRST_DYNAMIC {
                (out.data)(stream.data(at, payload));
            }
            return;
        };
        let stream = streams.get_or_insert(key, channel.psm, out);
        if channel.is_credit_based {
            stream.spend(at);
            match channel.sdu_payload(direction, payload) {
                Some(payload) => {
                    stream.add(at, payload, is_incomplete);
                    (out.data)(stream.data(at, payload));
                }
                None => stream.add(at, payload, is_incomplete),
            }
            return;
        }
        stream.add(at, payload, is_incomplete);
        if !channel.is_basic() {
            return;
        }
        if channel.psm != Some(rfcomm::PSM) {
            return (out.data)(stream.data(at, payload));
        }
        let frame = rfcomm::Frame {
            destination_cids: channel.destination_cids,
            direction,
            at,
            payload,
            is_incomplete,
        };
        channel.session.handle(frame, streams, out);
    }
}
