//! One direction of a TCP connection: retransmissions and their causes, losses on either side of
//! the capture point, and round-trip times.
//!
//! Offsets have 64 bits: the 32-bit sequence numbers are unwrapped near the latest ones. Up to
//! [`OUTSTANDING`] unacknowledged segments are stored, and up to [`HOLES`] gaps that may still be
//! filled.

mod again;
#[cfg(test)]
mod tests;

use manyways_unit::{Span, Time};

pub use self::again::Again;
use self::again::{Cause, Resent};
use super::place::Place;
use super::queue::Queue;
use manyways_unit::Samples;
use manyways_wire::tcp::{Flags, Segment, Seq};

/// Maximum number of stored unacknowledged segments; the oldest are discarded.
pub const OUTSTANDING: usize = 2_048;
/// Maximum number of stored gaps.
pub const HOLES: usize = 64;
/// Maximum number of bytes in flight (RFC 7323, 2.3).
const LARGEST_WINDOW: u64 = 1 << 30;
/// Assumed segment size until it is known.
const USUAL_MSS: u32 = 1_460;
/// An ACK of a single segment that takes this much longer than the fastest one was probably delayed
/// (RFC 1122, 4.2.3.2, permits 500 ms; systems use 40 ms and more).
const HELD_BACK: Span = Span::from_millis(35);

/// Returns the first offset of a stream: far enough from 0 for segments that arrive late.
fn beginning(first: Seq) -> u64 {
    (1 << 32) + u64::from(first.0)
}

/// The data of one endpoint.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Sequence number of the first byte; of the SYN, if captured.
    first: Seq,
    /// Offset after the last captured byte.
    top: u64,
    /// Cumulative acknowledgment of the peer.
    acked: u64,
    /// Limit of the peer's receive window.
    granted: Option<Place>,
    sent: Queue<Sent>,
    /// Time of the latest segment that is acknowledged as a whole.
    heard: Time,
    /// Consecutive duplicate ACKs while bytes are in flight.
    repeats: u32,
    /// Bytes beyond [`Self::acked`] in the latest SACK of the peer.
    sacked: u32,
    /// `None` while no byte is missing or repeated, as in most streams.
    trouble: Option<Box<Trouble>>,
    mss: u32,
    has_syn: bool,
    fin: Option<Place>,
    /// Whether the latest segment was not full and no data waited after it.
    is_dry: bool,
    /// Latest TSval of the sender.
    latest: u32,
    has_stamp: bool,
    counted: Counted,
    /// From the capture point to the peer and back.
    near: Samples,
    /// Minimum from the capture point to the sender and back; zero if unknown.
    far: Span,
}

/// Counters that each stream needs: see [`Counts`].
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    bytes: u64,
    segments: u32,
    data_segments: u32,
    most_in_flight: u32,
    held_back: u32,
}

/// State of a stream with missing or repeated bytes.
#[derive(Clone, Debug, Default)]
struct Trouble {
    holes: Vec<Hole>,
    /// Bytes that had been sent but not captured when an ACK of the same endpoint passed.
    said: Option<Hole>,
    resent: Vec<Resent>,
    /// Offset whose acknowledgment ends the recovery.
    recovers_to: u64,
    /// How the sender detected the loss.
    recovery: Option<Cause>,
    again: Again,
    reordered: u32,
    duplicated: u32,
    lost_before: u32,
    lost_behind: u32,
    keep_alives: u32,
    window_probes: u32,
    unseen: u64,
}

/// Counters of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments with and without data; at most 2^32 - 1, as for data segments.
    pub segments: u64,
    /// Payload bytes, including retransmissions.
    pub bytes: u64,
    /// Segments with data; a merged segment counts as its original segments.
    pub data_segments: u64,
    /// Retransmitted segments, by cause.
    pub again: Again,
    /// Reordered segments.
    pub reordered: u32,
    /// Packets that the network duplicated.
    pub duplicated: u32,
    /// Segments lost between the sender and the capture point.
    pub lost_before: u32,
    /// Segments lost between the capture point and the receiver.
    pub lost_behind: u32,
    /// Acknowledged bytes that are not in the capture.
    pub unseen: u64,
    /// Keep-alive probes.
    pub keep_alives: u32,
    /// Bytes of zero-window probes.
    pub window_probes: u32,
    /// Maximum number of bytes in flight.
    pub most_in_flight: u32,
    /// ACKs of the peer that were probably delayed.
    pub held_back: u32,
}

/// A sent segment; compact, because many are stored.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// Time of its last copy.
    at: Time,
    /// Lower 32 bits of the offsets, which are near the current ones.
    begin: u32,
    end: u32,
    stamp: u32,
    has_stamp: bool,
    /// Number of copies.
    copies: u8,
    /// IP identification of its packet; 0 if not usable.
    packet: u16,
}

/// Fields that distinguish copies of a segment.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// TSval of the sender.
    stamp: Option<u32>,
    /// See [`Segment::packet`].
    packet: u16,
}

/// Skipped bytes.
#[derive(Clone, Copy, Debug)]
struct Hole {
    begin: u64,
    end: u64,
    since: Time,
    /// TSval of the segment that skipped them.
    stamp: Option<u32>,
}

/// Result of handling a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Whether it has new bytes, after all captured ones.
    pub is_new: bool,
    /// Whether it has bytes that were captured or skipped.
    pub is_again: bool,
    /// Whether the sender had sent all its data before: the segment waited for data, not for
    /// permission.
    pub was_dry: bool,
    /// Bytes in flight before it.
    pub in_flight: u64,
    /// Offset of its first byte.
    pub begin: u64,
    /// Offset after its last byte.
    pub end: u64,
}

/// Result of handling an ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// Newly acknowledged bytes.
    pub bytes: u64,
    /// Offset up to which all bytes are acknowledged.
    pub to: u64,
    /// Limit of the receive window, as an offset.
    pub granted: u64,
    /// Whether the sender had no more data, as far as captured.
    pub is_dry: bool,
    /// Time from the capture of the last acknowledged segment to this ACK. `None` if unknown.
    pub near: Option<Span>,
}

impl Trouble {
    fn skips(&mut self, hole: Hole) {
        while self.holes.len() >= HOLES {
            self.holes.remove(0);
        }
        self.holes.push(hole);
    }
}

impl Sent {
    fn new(at: Time, begin: u64, end: u64, mark: Mark, copies: u8) -> Self {
        let Mark { stamp, packet } = mark;
        Self {
            at,
            begin: begin as u32,
            end: end as u32,
            stamp: stamp.unwrap_or(0),
            has_stamp: stamp.is_some(),
            copies,
            packet,
        }
    }

    fn stamp(&self) -> Option<u32> {
        self.has_stamp.then_some(self.stamp)
    }

    /// Returns the start and end offset, in a stream that has reached `top`.
    fn places(&self, top: u64) -> (u64, u64) {
        let begin = Seq(self.begin).unwrap(top);
        (begin, begin + u64::from(self.end.wrapping_sub(self.begin)))
    }
}

impl Stream {
    /// Creates a stream with its first segment.
    pub fn new(segment: &Segment<'_>) -> Self {
        let first = beginning(segment.seq);
        Self {
            first: segment.seq,
            top: first,
            acked: first,
            heard: Time::ZERO,
            granted: None,
            sent: Queue::default(),
            repeats: 0,
            sacked: 0,
            trouble: None,
            mss: USUAL_MSS,
            has_syn: segment.flags.has(Flags::SYN),
            fin: None,
            is_dry: true,
            latest: 0,
            has_stamp: false,
            counted: Counted::default(),
            near: Samples::default(),
            far: Span::ZERO,
        }
    }

    /// Sets the size of full segments, in bytes.
    pub fn set_mss(&mut self, mss: u32) {
        self.mss = mss.max(1);
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        let Counted { bytes, segments, data_segments, most_in_flight, held_back } = self.counted;
        let all = Counts {
            segments: segments.into(),
            bytes,
            data_segments: data_segments.into(),
            most_in_flight,
            held_back,
            ..Counts::default()
        };
        let Some(trouble) = &self.trouble else { return all };
        Counts {
            again: trouble.again,
            reordered: trouble.reordered,
            duplicated: trouble.duplicated,
            lost_before: trouble.lost_before,
            lost_behind: trouble.lost_behind,
            unseen: trouble.unseen,
            keep_alives: trouble.keep_alives,
            window_probes: trouble.window_probes,
            ..all
        }
    }

    /// Returns the number of retransmissions of lost segments, and how many of these were caused by
    /// a timeout.
    pub(super) fn repairs(&self) -> (u32, u32) {
        let again = self.trouble.as_ref().map(|trouble| &trouble.again);
        again.map_or((0, 0), |again| (again.fast + again.timeout, again.timeout))
    }

    pub fn has_data(&self) -> bool {
        self.counted.bytes > 0
    }

    fn trouble(&mut self) -> &mut Trouble {
        self.trouble.get_or_insert_default()
    }

    /// Round-trip times from the capture point to the receiver.
    pub fn near(&self) -> &Samples {
        &self.near
    }

    /// Whether the latest segment was not full and no data waited after it.
    pub(super) fn is_dry(&self) -> bool {
        self.is_dry
    }

    /// Whether the sender is in loss recovery.
    pub fn is_recovering(&self) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| trouble.recovers_to > self.acked)
    }

    /// Number of bytes in flight, as seen from the capture point.
    pub fn in_flight(&self) -> u64 {
        self.top.saturating_sub(self.acked)
    }

    /// Offset of the first byte, or of the SYN.
    pub fn first(&self) -> u64 {
        beginning(self.first)
    }

    /// Offset of the first data byte.
    pub fn begin(&self) -> u64 {
        self.first() + u64::from(self.has_syn)
    }

    /// Offset after the last data byte. `None` until the FIN passes.
    pub fn fin(&self) -> Option<u64> {
        self.fin.map(Place::get)
    }

    fn granted(&self) -> Option<u64> {
        self.granted.map(Place::get)
    }

    /// Offset after the last data byte that the peer has acknowledged.
    pub fn acked(&self) -> u64 {
        self.acked.min(self.fin().unwrap_or(self.acked))
    }

    /// Capture time of the latest segment that the peer has acknowledged as a whole; zero if there
    /// is none.
    pub fn heard(&self) -> Time {
        self.heard
    }

    /// Number of captured data bytes, each counted once.
    pub fn length(&self) -> u64 {
        self.top.min(self.fin().unwrap_or(self.top)).saturating_sub(self.begin())
    }

    /// Unwraps a sequence number near the current offset.
    pub fn place(&self, seq: Seq) -> u64 {
        seq.unwrap(self.top)
    }

    /// Handles a segment of the sender; `far` is the minimum round-trip time between the capture
    /// point and the sender.
    pub fn sends(&mut self, now: Time, segment: &Segment<'_>, far: Option<Span>) -> Seen {
        self.far = far.unwrap_or_default();
        self.counted.segments = self.counted.segments.saturating_add(1);
        self.counted.bytes += u64::from(segment.length);
        let begin = self.place(segment.seq);
        let end = begin + u64::from(segment.end().after(segment.seq) as u32);
        // An old FIN must not end the stream.
        if segment.flags.has(Flags::FIN) && end > self.first() && end >= self.acked {
            self.fin = self.fin.or(Some(Place::new(end - 1)));
        }
        let mark = Mark {
            stamp: segment.options.stamps().map(|stamps| stamps.value),
            packet: segment.packet,
        };
        let stamp = mark.stamp;
        let in_flight = self.in_flight();
        let seen = Seen { in_flight, begin, end, ..Seen::default() };
        if self.asks(segment, begin) {
            return seen;
        }
        if begin == end {
            // A segment without data that is after the last captured byte and within the window was
            // sent after bytes that have not passed yet.
            if begin > self.top && self.granted().is_some_and(|granted| begin <= granted) {
                let said = Hole { begin: self.top, end: begin, since: now, stamp };
                self.trouble().said = Some(said);
            }
            self.ticks(stamp);
            return seen;
        }
        // Divisions would dominate the cost of this function.
        let carried = match segment.length > self.mss {
            true => segment.length.div_ceil(self.mss),
            false => (segment.length > 0).into(),
        };
        self.counted.data_segments = self.counted.data_segments.saturating_add(carried);
        let seen = match end > self.top {
            true => {
                let seen = self.advances(now, begin, end, mark);
                let most = self.mss.saturating_sub(segment.options.length() as u32).max(1);
                // A sender sets PSH when it has sent all its data (RFC 9293, 3.9.1): a short
                // segment without PSH fills up a window.
                let is_full = segment.length == most
                    || segment.length > most && segment.length.is_multiple_of(most);
                self.is_dry = !is_full && (segment.length == 0 || segment.flags.has(Flags::PSH));
                seen
            }
            false => self.sends_again(now, begin, end, mark),
        };
        self.ticks(stamp);
        Seen { in_flight, ..seen }
    }

    /// Stores the sender's TSval.
    fn ticks(&mut self, stamp: Option<u32>) {
        if let Some(stamp) = stamp {
            (self.latest, self.has_stamp) = (stamp, true);
        }
    }

    fn stamp(&self) -> Option<u32> {
        self.has_stamp.then_some(self.latest)
    }

    /// Whether a segment is only a keep-alive or a zero-window probe.
    fn asks(&mut self, segment: &Segment<'_>, begin: u64) -> bool {
        let says_more = segment.flags.has(Flags(Flags::SYN.0 | Flags::FIN.0 | Flags::RST.0));
        let is_said = begin + 1 == self.top && self.acked >= self.top;
        let is_beyond = segment.length == 1 && self.granted() == Some(begin);
        if says_more || segment.length > 1 || !(is_said || is_beyond) {
            return false;
        }
        match self.granted() == Some(self.acked) {
            true => self.trouble().window_probes += 1,
            false => self.trouble().keep_alives += 1,
        }
        is_said
    }

    /// Handles a segment with new bytes, and possibly with old ones.
    fn advances(&mut self, now: Time, begin: u64, end: u64, mark: Mark) -> Seen {
        let (is_again, stamp) = (begin < self.top, mark.stamp);
        self.fills_holes(now, begin, end, mark);
        if begin > self.top {
            let hole = Hole { begin: self.top, end: begin, since: now, stamp };
            self.trouble().skips(hole);
        }
        let was_sent = self.was_sent(now, begin.max(self.top), end, stamp);
        while self.sent.front().is_some_and(|sent| sent.places(self.top).0 + LARGEST_WINDOW < end) {
            self.sent.pop_front();
        }
        let copies = if is_again || was_sent.is_some() { 2 } else { 1 };
        self.sent.push_back(Sent::new(now, begin.max(self.top), end, mark, copies));
        self.top = end;
        if self.sent.len() > OUTSTANDING {
            self.sent.pop_front();
        }
        if let Some((begin, end)) = was_sent {
            self.repairs_hole(begin, end);
        }
        let in_flight = u32::try_from(self.in_flight()).unwrap_or(u32::MAX);
        self.counted.most_in_flight = self.counted.most_in_flight.max(in_flight);
        Seen { is_new: true, is_again, was_dry: self.is_dry, begin, end, ..Seen::default() }
    }

    /// Handles an ACK of the peer.
    pub fn is_acked(&mut self, now: Time, ack: &Segment<'_>, window: u64) -> Acked {
        if !ack.flags.has(Flags::ACK) {
            return Acked { to: self.acked, granted: self.acked, ..Acked::default() };
        }
        let before = self.acked;
        let to = ack.ack.unwrap(self.acked);
        self.look_at_sack(ack, to);
        let mut near = None;
        if to > self.acked {
            near = self.moves_on(now, to);
        } else if to == self.acked && self.is_repeat(ack, to + window) {
            self.repeats += 1;
        }
        if to >= self.acked {
            self.granted = Some(Place::new(to + window));
        }
        let granted = self.granted().unwrap_or(self.acked);
        let is_dry = self.is_dry;
        Acked { bytes: self.acked - before, to: self.acked, granted, is_dry, near }
    }

    /// Whether an ACK is a duplicate (RFC 5681, 2); with SACK, the reported blocks count, not the
    /// number of ACKs.
    fn is_repeat(&self, ack: &Segment<'_>, granted: u64) -> bool {
        let is_bare = ack.length == 0 && !ack.flags.has(Flags(Flags::SYN.0 | Flags::FIN.0));
        is_bare && self.top > self.acked && (self.granted() == Some(granted) || self.sacked > 0)
    }

    /// Advances the cumulative acknowledgment. Returns the round-trip time of the last byte; `None`
    /// if unknown.
    fn moves_on(&mut self, now: Time, to: u64) -> Option<Span> {
        let (mut newest, mut bytes, mut is_clear) = (None, 0, true);
        let mut reached = self.acked;
        while let Some(sent) = self.sent.front_mut() {
            let (begin, end) = sent.places(self.top);
            if begin >= to {
                break;
            }
            newest = Some(sent.at);
            reached = end;
            bytes += end.min(to) - begin;
            // Karn's algorithm: the ACK may belong to any copy.
            is_clear &= sent.copies == 1;
            if end > to {
                // Merged at the capture point, but acknowledged in part.
                sent.begin = to as u32;
                break;
            }
            self.heard = self.heard.max(sent.at);
            self.sent.pop_front();
        }
        // The ACK of a filled gap was triggered by the gap's bytes, not by the last byte.
        is_clear &= !self.is_recovering() && self.repeats == 0 && self.sacked == 0;
        let at = newest.filter(|_| is_clear && to <= reached);
        // Clocks of captures may step back.
        let near = at.filter(|at| now > *at).and_then(|at| self.measure(now.since(at), bytes));
        self.forget_holes(to);
        if to > self.top {
            self.trouble().unseen += to - self.top;
            self.top = to;
        }
        self.acked = to;
        self.repeats = 0;
        near
    }

    fn measure(&mut self, trip: Span, bytes: u64) -> Option<Span> {
        let least = self.near.least().unwrap_or(trip);
        if bytes <= u64::from(self.mss) && trip.saturating_sub(least) >= HELD_BACK {
            self.counted.held_back += 1;
            return None;
        }
        self.near.push(trip);
        Some(trip)
    }

    /// Skipped bytes that are acknowledged reached the receiver without being captured.
    fn forget_holes(&mut self, to: u64) {
        let Some(trouble) = &mut self.trouble else { return };
        let mut unseen = 0;
        trouble.holes.retain_mut(|hole| {
            unseen += to.min(hole.end).saturating_sub(hole.begin);
            hole.begin = hole.begin.max(to);
            hole.begin < hole.end
        });
        trouble.unseen += unseen;
    }

    fn look_at_sack(&mut self, ack: &Segment<'_>, to: u64) {
        if ack.options.is_usual() {
            self.sacked = 0;
            return;
        }
        let blocks = ack.options.sack();
        let mut beyond = 0_u64;
        for (index, (begin, end)) in blocks.as_slice().iter().enumerate() {
            let (begin, end) = (begin.unwrap(to), end.unwrap(to));
            if begin >= end {
                continue;
            }
            let is_within =
                |other: &(Seq, Seq)| other.0.unwrap(to) <= begin && end <= other.1.unwrap(to);
            // RFC 2883: the first block reports duplicate bytes.
            let is_double = index == 0
                && (end <= to.max(self.acked) || blocks.as_slice().iter().skip(1).any(is_within));
            if is_double {
                self.came_twice(begin, end);
            } else if end > to {
                beyond += end - begin.max(to);
            }
        }
        self.sacked = u32::try_from(beyond).unwrap_or(u32::MAX);
    }
}
