//! One direction of a connection, as it passes: what was sent again and why, what was lost on which
//! side of the capture point, and how long bytes and their acknowledgements take.
//!
//! Bytes are numbered without end: the 32 bits of a segment are unwrapped near the last ones. What
//! was sent and is not acknowledged yet is kept, up to [`OUTSTANDING`] segments; what was skipped
//! and may yet come is kept as holes, up to [`HOLES`].

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

/// So many segments on their way are remembered; of more, the oldest are forgotten.
pub const OUTSTANDING: usize = 2_048;
/// So many gaps are remembered.
pub const HOLES: usize = 64;
/// No more bytes than this are on their way (RFC 7323, 2.3).
const LARGEST_WINDOW: u64 = 1 << 30;
/// What a segment is believed to carry while nobody has said it.
const USUAL_MSS: u32 = 1_460;
/// An acknowledgement of a single segment that comes this much later than the fastest one was
/// probably held back in the hope of another (RFC 1122, 4.2.3.2, allows half a second; systems
/// take 40 ms and more).
const HELD_BACK: Span = Span::from_millis(35);

/// Where a stream begins: far enough from zero for all that may come late.
fn beginning(first: Seq) -> u64 {
    (1 << 32) + u64::from(first.0)
}

/// What one end sends.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The number of the first byte; of its SYN, where that was seen.
    first: Seq,
    /// The place behind the last byte that was seen.
    top: u64,
    /// What the other end has, by its own words.
    acked: u64,
    /// Up to where the other end has room.
    granted: Option<Place>,
    sent: Queue<Sent>,
    /// When the latest segment passed of which all is acknowledged.
    heard: Time,
    /// Acknowledgements in a row that say the same, while bytes are on their way.
    repeats: u32,
    /// Bytes beyond [`Self::acked`] that the other end has, by its latest SACK.
    sacked: u32,
    /// Of most streams nothing is lost or comes twice.
    trouble: Option<Box<Trouble>>,
    mss: u32,
    has_syn: bool,
    fin: Option<Place>,
    /// Its last segment was not full, and nothing waited behind it.
    is_dry: bool,
    /// The latest stamp of its own clock, where it has one.
    latest: u32,
    has_stamp: bool,
    counted: Counted,
    /// From the capture point to the other end and back.
    near: Samples,
    /// From the capture point to its sender and back, at least; zero where nobody knows.
    far: Span,
}

/// What every stream adds up to: see [`Counts`].
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    bytes: u64,
    segments: u32,
    data_segments: u32,
    most_in_flight: u32,
    held_back: u32,
}

/// What is kept of a stream in which something is missing, or came again.
#[derive(Clone, Debug, Default)]
struct Trouble {
    holes: Vec<Hole>,
    /// What had been sent without having passed when an acknowledgement of the same end passed.
    said: Option<Hole>,
    resent: Vec<Resent>,
    /// Until this is acknowledged the sender repairs what was lost…
    recovers_to: u64,
    /// …which it learned this way.
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

/// What a stream adds up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments, with and without data. Like those with data, no more than 2^32 - 1 are counted.
    pub segments: u64,
    /// Bytes that were carried, those that were sent again included.
    pub bytes: u64,
    /// Segments with data; merged ones count as the ones that they were.
    pub data_segments: u64,
    /// Segments that were sent again, by cause.
    pub again: Again,
    /// Segments that came late because something on the way overtook them.
    pub reordered: u32,
    /// The same packet twice, which nobody had sent twice.
    pub duplicated: u32,
    /// Lost between the sender and the capture point.
    pub lost_before: u32,
    /// Lost between the capture point and the receiver.
    pub lost_behind: u32,
    /// Bytes that were acknowledged and never seen: the capture missed them.
    pub unseen: u64,
    /// Segments that only ask whether the other end is alive.
    pub keep_alives: u32,
    /// Bytes into a window that was closed, to ask whether it still is.
    pub window_probes: u32,
    /// The most bytes that were on their way at a time.
    pub most_in_flight: u32,
    /// Acknowledgements that were probably held back.
    pub held_back: u32,
}

/// Many of these are kept, so that they are small.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// When its last copy passed.
    at: Time,
    /// The lower halves of its places: it is near those that pass now.
    begin: u32,
    end: u32,
    stamp: u32,
    has_stamp: bool,
    /// How often it passed.
    copies: u8,
    /// The number of its packet; zero where that says nothing.
    packet: u16,
}

/// What tells copies of a segment apart.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// The sender's clock.
    stamp: Option<u32>,
    /// See [`Segment::packet`].
    packet: u16,
}

/// Bytes that were skipped.
#[derive(Clone, Copy, Debug)]
struct Hole {
    begin: u64,
    end: u64,
    since: Time,
    /// The sender's clock by the segment that skipped them.
    stamp: Option<u32>,
}

/// What a segment brought that others look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// It has bytes that were never seen, behind all others.
    pub is_new: bool,
    /// It has what was seen, or what had been skipped.
    pub is_again: bool,
    /// Before it the sender had sent all that it had: it is sent because there was something to
    /// send, and not because it was allowed to.
    pub was_dry: bool,
    /// So many bytes were on their way before it.
    pub in_flight: u64,
    /// Where it begins.
    pub begin: u64,
    /// Where it ends.
    pub end: u64,
}

/// What an acknowledgement did that others look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// So many bytes are acknowledged that were not before.
    pub bytes: u64,
    /// All before this place is.
    pub to: u64,
    /// And up to there the other end has room.
    pub granted: u64,
    /// Who sends had nothing more to send, as far as it has passed.
    pub is_dry: bool,
    /// How long the last of them took to the receiver, and this acknowledgement back, where that
    /// can be told.
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

    /// Where it begins and ends, in a stream that has come to `top`.
    fn places(&self, top: u64) -> (u64, u64) {
        let begin = Seq(self.begin).unwrap(top);
        (begin, begin + u64::from(self.end.wrapping_sub(self.begin)))
    }
}

impl Stream {
    /// A stream whose first segment this is.
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

    /// The other end takes segments of so many bytes.
    pub fn set_mss(&mut self, mss: u32) {
        self.mss = mss.max(1);
    }

    /// What was added up so far.
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

    /// How many segments were sent again as they were lost, and how many of them by a timer.
    pub(super) fn repairs(&self) -> (u32, u32) {
        let again = self.trouble.as_ref().map(|trouble| &trouble.again);
        again.map_or((0, 0), |again| (again.fast + again.timeout, again.timeout))
    }

    /// It has carried something.
    pub fn has_data(&self) -> bool {
        self.counted.bytes > 0
    }

    fn trouble(&mut self) -> &mut Trouble {
        self.trouble.get_or_insert_default()
    }

    /// How long bytes took from here to the receiver and their acknowledgement back to here.
    pub fn near(&self) -> &Samples {
        &self.near
    }

    /// Its last segment was not full, and nothing waited behind it.
    pub(super) fn is_dry(&self) -> bool {
        self.is_dry
    }

    /// It repairs a loss.
    pub fn is_recovering(&self) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| trouble.recovers_to > self.acked)
    }

    /// So many bytes are on their way, as far as can be known here.
    pub fn in_flight(&self) -> u64 {
        self.top.saturating_sub(self.acked)
    }

    /// The place of its first byte, or of its SYN.
    pub fn first(&self) -> u64 {
        beginning(self.first)
    }

    /// The place of its first byte of data.
    pub fn begin(&self) -> u64 {
        self.first() + u64::from(self.has_syn)
    }

    /// The place behind its last byte of data, once its FIN has passed.
    pub fn fin(&self) -> Option<u64> {
        self.fin.map(Place::get)
    }

    fn granted(&self) -> Option<u64> {
        self.granted.map(Place::get)
    }

    /// The place behind the last byte of data that the other end has, by its own words.
    pub fn acked(&self) -> u64 {
        self.acked.min(self.fin().unwrap_or(self.acked))
    }

    /// The other end has all that passed until then, by its own words; the beginning of time where it
    /// has nothing.
    pub fn heard(&self) -> Time {
        self.heard
    }

    /// How many bytes of data it has, each counted once, as far as they are known to have passed.
    pub fn length(&self) -> u64 {
        self.top.min(self.fin().unwrap_or(self.top)).saturating_sub(self.begin())
    }

    /// The place of a number near what passes now.
    pub fn place(&self, seq: Seq) -> u64 {
        seq.unwrap(self.top)
    }

    /// Its sender, which is so `far` from the capture point and back, sent this segment.
    pub fn sends(&mut self, now: Time, segment: &Segment<'_>, far: Option<Span>) -> Seen {
        self.far = far.unwrap_or_default();
        self.counted.segments = self.counted.segments.saturating_add(1);
        self.counted.bytes += u64::from(segment.length);
        let begin = self.place(segment.seq);
        let end = begin + u64::from(segment.end().after(segment.seq) as u32);
        // One from long ago ends nothing.
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
            // What is behind the last byte that passed, where there is room for that, was sent after
            // bytes that have not passed yet.
            if begin > self.top && self.granted().is_some_and(|granted| begin <= granted) {
                let said = Hole { begin: self.top, end: begin, since: now, stamp };
                self.trouble().said = Some(said);
            }
            self.ticks(stamp);
            return seen;
        }
        // Divisions take longer than all the rest of this.
        let carried = match segment.length > self.mss {
            true => segment.length.div_ceil(self.mss),
            false => (segment.length > 0).into(),
        };
        self.counted.data_segments = self.counted.data_segments.saturating_add(carried);
        let seen = match end > self.top {
            true => {
                let seen = self.advances(now, begin, end, mark);
                let most = self.mss.saturating_sub(segment.options.length() as u32).max(1);
                // Who has sent all that there was says so (RFC 9293, 3.9.1): a short segment without
                // that fills up a window.
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

    /// Its sender's clock says this.
    fn ticks(&mut self, stamp: Option<u32>) {
        if let Some(stamp) = stamp {
            (self.latest, self.has_stamp) = (stamp, true);
        }
    }

    fn stamp(&self) -> Option<u32> {
        self.has_stamp.then_some(self.latest)
    }

    /// Whether it asks for an acknowledgement only: of all that was said before, or of a window
    /// that was closed.
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

    /// Bytes that nobody saw before, and perhaps some that everybody did.
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

    /// The other end says what it has.
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

    /// RFC 5681, 2; with SACK, what it says counts and not that it is said.
    fn is_repeat(&self, ack: &Segment<'_>, granted: u64) -> bool {
        let is_bare = ack.length == 0 && !ack.flags.has(Flags(Flags::SYN.0 | Flags::FIN.0));
        is_bare && self.top > self.acked && (self.granted() == Some(granted) || self.sacked > 0)
    }

    /// How long the last byte and its acknowledgement took, where that can be told.
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
            // Karn: nobody knows which copy this is for.
            is_clear &= sent.copies == 1;
            if end > to {
                // Merged here, and not where it is acknowledged.
                sent.begin = to as u32;
                break;
            }
            self.heard = self.heard.max(sent.at);
            self.sent.pop_front();
        }
        // Nor when that came which was missing before it.
        is_clear &= !self.is_recovering() && self.repeats == 0 && self.sacked == 0;
        let at = newest.filter(|_| is_clear && to <= reached);
        // Clocks of captures step back: nothing takes no time.
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

    /// What was skipped and is acknowledged has passed without being seen.
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
            // RFC 2883: the first block says what came twice.
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
