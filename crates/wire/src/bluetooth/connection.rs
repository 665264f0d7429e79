//! A connection to another device.

use std::collections::VecDeque;

use manyways_unit::{Span, Time};

use super::Out;
use super::assembly::{Added, Assembly, HEADER, whole_length};
use super::channel::{Channel, FIRST_DYNAMIC};
use super::completion::Outstanding;
use super::control::{Address, Direction};
use super::rest::Rest;
use super::rfcomm;
use super::signalling::{self, Request};
use super::stream::Ending;
use super::streams::{Key, Streams};

/// Maximum number of channels of a connection; the oldest is forgotten first.
pub const CHANNELS: usize = 64;
/// Maximum number of channel requests without an answer; the oldest is forgotten first.
pub const REQUESTS: usize = 32;

#[derive(Clone, Debug)]
pub(super) struct Connection {
    assemblies: [Assembly; 2],
    pub(super) channels: Vec<Channel>,
    pub(super) requests: VecDeque<Request>,
    pub(super) streams: Streams,
    /// Channel ID of each packet, and the first byte of its payload.
    outstanding: Outstanding<Option<(u16, Option<u8>)>>,
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
            outstanding: Outstanding::new(now, is_from_start),
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
    pub(super) fn passes(
        &mut self,
        direction: Direction,
        is_continued: bool,
        part: Rest<'_>,
        out: &mut Out<'_>,
    ) {
        self.last = out.now;
        if !is_continued {
            self.gives_up(direction, out);
        }
        let [sent, received] = &mut self.assemblies;
        let assembly = if direction == Direction::Sent { sent } else { received };
        if direction == Direction::Sent {
            let header = match is_continued {
                true => assembly.header(),
                false => part.u16(2).map(|cid| (cid, part.u8(HEADER))),
            };
            self.outstanding.push(out.now, header);
        }
        // Most packets have one fragment and are not copied.
        if !is_continued && whole_length(part) == Some(part.length) {
            return self.packet(direction, out.now, part, false, out);
        }
        let added = match is_continued {
            true => assembly.add(out.now, part),
            false => assembly.begin(out.now, part),
        };
        match added {
            Added::Part => {}
            Added::Orphan => out.counts.orphans += 1,
            Added::TooLong => {
                out.counts.broken += 1;
                self.gives_up(direction, out);
            }
            Added::Headless => out.counts.headless += 1,
            Added::Last => self.takes(direction, false, out),
        }
    }

    /// Processes the completion of `count` packets by the controller.
    pub(super) fn completes(&mut self, now: Time, count: u16) {
        let Self { outstanding, channels, streams, .. } = self;
        outstanding.complete(now, count, |span: Span, header| {
            let Some((cid, first)) = header else { return };
            let mut complete = |key: Key| {
                if let Some(stream) = streams.find(key) {
                    stream.completed(span);
                }
            };
            complete((Direction::Sent, cid, None));
            let is_rfcomm = channels
                .iter()
                .any(|channel| channel.to[0] == cid && channel.psm == Some(rfcomm::PSM));
            if let (true, Some(address)) = (is_rfcomm, first) {
                complete((Direction::Sent, cid, Some(address >> 2)));
            }
        });
    }

    /// Records that the capture lost `count` packets, of this connection or of others.
    pub(super) fn misses(&mut self, count: u64, out: &mut Out<'_>) {
        self.gives_up(Direction::Sent, out);
        self.gives_up(Direction::Received, out);
        self.streams.misses(count);
        self.outstanding.misses(out.now);
        for channel in &mut self.channels {
            channel.left = [None, None];
            channel.session.misses();
        }
    }

    /// Ends the connection and its streams.
    pub(super) fn ends(mut self, ending: Ending, out: &mut Out<'_>) {
        self.gives_up(Direction::Sent, out);
        self.gives_up(Direction::Received, out);
        self.streams.end_all(ending, out);
    }

    /// Opens a channel with the MTU and the initial credits of each direction.
    pub(super) fn opens(
        &mut self,
        channel: Channel,
        mtu: [Option<u16>; 2],
        credits: [Option<u64>; 2],
        out: &mut Out<'_>,
    ) {
        for direction in [Direction::Sent, Direction::Received] {
            let cid = channel.to[direction.index()];
            self.closes(direction, cid, Ending::Closed, out);
            // Data before the opening belonged to an earlier channel with this ID.
            self.streams.end_channel(direction, cid, Ending::Closed, out);
        }
        if let (true, Some(oldest)) = (self.channels.len() >= CHANNELS, self.channels.first()) {
            let cid = oldest.to[Direction::Sent.index()];
            self.closes(Direction::Sent, cid, Ending::Evicted, out);
        }
        for direction in [Direction::Sent, Direction::Received] {
            let index = direction.index();
            let key = (direction, channel.to[index], None);
            let stream = self.streams.begin(key, channel.psm, out);
            stream.open(out.now, mtu[index], credits[index]);
        }
        self.channels.push(channel);
    }

    /// Closes the channel with destination ID `cid` in this direction.
    pub(super) fn closes(
        &mut self,
        direction: Direction,
        cid: u16,
        ending: Ending,
        out: &mut Out<'_>,
    ) {
        let place = self.channels.iter().position(|it| it.to[direction.index()] == cid);
        let Some(channel) = place.map(|place| self.channels.remove(place)) else { return };
        for direction in [Direction::Sent, Direction::Received] {
            self.streams.end_channel(direction, channel.to[direction.index()], ending, out);
        }
    }

    /// Ends an incomplete packet. Its captured beginning counts as data: a fragment missed by the
    /// capture is more likely than one that was never sent.
    fn gives_up(&mut self, direction: Direction, out: &mut Out<'_>) {
        self.takes(direction, true, out);
    }

    fn takes(&mut self, direction: Direction, is_incomplete: bool, out: &mut Out<'_>) {
        let assembly = &mut self.assemblies[direction.index()];
        let whole = if is_incomplete { assembly.take_incomplete() } else { assembly.take() };
        let Some(whole) = whole else { return };
        let rest = Rest::new(&whole.bytes, whole.length);
        self.packet(direction, whole.at, rest, is_incomplete, out);
        self.assemblies[direction.index()].reuse(whole);
    }

    /// Reads an L2CAP packet (vol 3, part A, 3).
    fn packet(
        &mut self,
        direction: Direction,
        at: Time,
        rest: Rest<'_>,
        is_incomplete: bool,
        out: &mut Out<'_>,
    ) {
        let (Some(cid), Some(payload)) = (rest.u16(2), rest.after(HEADER)) else {
            out.counts.headless += 1;
            return;
        };
        if signalling::CIDS.contains(&cid) {
            return signalling::handle(self, direction, at, cid, payload, out);
        }
        let Self { channels, streams, .. } = self;
        let index = direction.index();
        let key = (direction, cid, None);
        let Some(channel) = channels.iter_mut().find(|channel| channel.to[index] == cid) else {
            let stream = streams.begin(key, None, out);
            stream.add(at, payload, is_incomplete);
            if cid >= FIRST_DYNAMIC {
                (out.data)(stream.data(at, payload));
            }
            return;
        };
        let stream = streams.begin(key, channel.psm, out);
        if channel.is_credit_based {
            stream.spend(at);
            match channel.segment(direction, payload) {
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
        let frame = rfcomm::Passed { to: channel.to, direction, at, payload, is_incomplete };
        channel.session.handle(frame, streams, out);
    }
}
