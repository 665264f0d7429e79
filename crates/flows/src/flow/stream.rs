//! One direction of a TCP connection: retransmissions and their causes, losses on either side of
//! the capture point, and round-trip times.
//!
//! Offsets have 64 bits: the 32-bit sequence numbers are unwrapped near the latest ones. Up to
//! [`MAX_UNACKED_SEGMENTS`] unacknowledged segments are stored, and up to [`MAX_HOLES`] gaps that
//! may still be filled.

mod fit;
mod retransmission;
#[cfg(test)]
mod tests;

use manyways_unit::{Span, Time};

pub(super) use self::fit::Reach;
pub use self::retransmission::Retransmissions;
use self::retransmission::{Cause, PendingRetransmission};
use super::offset::Offset;
use super::queue::Queue;
use manyways_unit::Samples;
use manyways_wire::tcp::{Flags, Segment, Seq};

/// Maximum number of stored unacknowledged segments; the oldest are discarded.
pub const MAX_UNACKED_SEGMENTS: usize = 2_048;
/// Maximum number of stored gaps.
pub const MAX_HOLES: usize = 64;
/// Maximum number of bytes in flight (RFC 7323, 2.3).
const MAX_WINDOW: u64 = 1 << 30;
/// Assumed segment size until it is known.
const ASSUMED_MSS: u16 = 1_460;
/// Smaller payloads say nothing about the size of full segments (RFC 9293, 3.7.1).
const MIN_FULL_SIZE: u16 = 536;
/// An ACK of a single segment that takes this much longer than the fastest one was probably delayed
/// (RFC 1122, 4.2.3.2, permits 500 ms; systems use 40 ms and more), unless the next segment follows
/// sooner: its arrival ends the delay, so the longer time is that of a queue.
const DELAYED_ACK_MARGIN: Span = Span::from_millis(35);

/// Returns the offset of the first data byte: far enough from 0 for segments that arrive late.
fn start_offset(first_data: Seq) -> u64 {
    (1 << 32) + u64::from(first_data.0)
}

/// The data of one endpoint.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Sequence number of the first data byte.
    first_data: Seq,
    /// Offset after the last captured byte.
    captured_end: u64,
    /// Cumulative acknowledgment of the peer.
    acked: u64,
    /// Limit of the peer's receive window.
    window_limit: Option<Offset>,
    sent: Queue<SentSegment>,
    /// Time of the latest segment that is acknowledged as a whole.
    last_acked_time: Time,
    /// Consecutive duplicate ACKs while bytes are in flight.
    dup_acks: u32,
    /// Bytes beyond [`Self::acked`] in the latest SACK of the peer.
    sacked_bytes: u32,
    /// `None` while no byte is missing or repeated, as in most streams.
    loss: Option<Box<LossStats>>,
    mss: u16,
    /// Largest payload of at most `mss`; the size of full segments where no SYN has the option.
    own_size: u16,
    has_mss_option: bool,
    has_syn: bool,
    fin: Option<Offset>,
    /// Whether the latest segment was not full and no data waited after it.
    is_app_limited: bool,
    /// Latest TSval of the sender.
    last_tsval: u32,
    has_tsval: bool,
    basic_counts: BasicCounts,
    /// From the capture point to the peer and back.
    receiver_rtt: Samples,
    /// Minimum from the capture point to the sender and back; zero if unknown.
    min_sender_rtt: Span,
}

/// Counters that each stream needs: see [`Counts`].
#[derive(Clone, Copy, Debug, Default)]
struct BasicCounts {
    bytes: u64,
    segments: u32,
    data_segments: u32,
    max_in_flight: u32,
    delayed_acks: u32,
}

/// State of a stream with missing or repeated bytes.
#[derive(Clone, Debug, Default)]
struct LossStats {
    /// Data segments of the current packet that no counter of retransmissions or losses has yet, so
    /// that a packet counts at most once.
    segments_left: u32,
    /// Payload bytes of the current packet.
    packet_bytes: u32,
    holes: Vec<Hole>,
    /// The latest bytes that were acknowledged without being captured: they may be recorded late.
    acked_hole: Option<Hole>,
    /// Bytes that had been sent but not captured when an ACK of the same endpoint passed.
    uncaptured_before_ack: Option<Hole>,
    pending: Vec<PendingRetransmission>,
    /// Offset whose acknowledgment ends the recovery.
    recovery_end: u64,
    /// How the sender detected the loss.
    recovery: Option<Cause>,
    retransmissions: Retransmissions,
    reordered: u32,
    duplicated: u32,
    lost_before: u32,
    lost_after: u32,
    syns_again: u32,
    fins_again: u32,
    keep_alives: u32,
    window_probes: u32,
    uncaptured: u64,
    /// Bytes of the stream of which no copy is in the capture, without those of `holes`.
    never_captured: u64,
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
    pub retransmissions: Retransmissions,
    /// Reordered segments.
    pub reordered: u32,
    /// Packets that the network duplicated.
    pub duplicated: u32,
    /// Segments lost between the sender and the capture point.
    pub lost_before: u32,
    /// Segments lost between the capture point and the receiver.
    pub lost_after: u32,
    /// SYNs that were sent again; not counted as retransmissions, because they carry no data.
    pub syns_again: u32,
    /// FINs without data that were sent again.
    pub fins_again: u32,
    /// Acknowledged bytes that are not in the capture.
    pub uncaptured: u64,
    /// Keep-alive probes.
    pub keep_alives: u32,
    /// Bytes of zero-window probes.
    pub window_probes: u32,
    /// Maximum number of bytes in flight.
    pub max_in_flight: u32,
    /// ACKs of the peer that were probably delayed.
    pub delayed_acks: u32,
}

/// A sent segment; compact, because many are stored.
#[derive(Clone, Copy, Debug)]
struct SentSegment {
    /// Time of its last copy.
    at: Time,
    /// Lower 32 bits of the offsets, which are near the current ones.
    begin: u32,
    end: u32,
    tsval: u32,
    has_tsval: bool,
    /// Number of copies.
    copies: u8,
    /// IP identification of its packet; 0 if not usable.
    ip_id: u16,
}

/// Fields that distinguish copies of a segment.
#[derive(Clone, Copy, Debug)]
struct CopyId {
    /// TSval of the sender.
    tsval: Option<u32>,
    /// See [`Segment::ip_id`].
    ip_id: u16,
}

/// Skipped bytes.
#[derive(Clone, Copy, Debug)]
struct Hole {
    begin: u64,
    end: u64,
    since: Time,
    /// TSval of the segment that skipped them.
    tsval: Option<u32>,
}

/// Result of handling a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentOutcome {
    /// Whether it has new bytes, after all captured ones.
    pub is_new: bool,
    /// Whether it has bytes that were captured or skipped.
    pub is_retransmission: bool,
    /// Whether the sender had sent all its data before: the segment waited for data, not for
    /// permission.
    pub was_app_limited: bool,
    /// Bytes in flight before it.
    pub in_flight: u64,
    /// Offset of its first byte.
    pub begin: u64,
    /// Offset after its last byte.
    pub end: u64,
}

/// Result of handling an ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckOutcome {
    /// Newly acknowledged bytes.
    pub bytes: u64,
    /// Offset up to which all bytes are acknowledged.
    pub acked_to: u64,
    /// Limit of the receive window, as an offset.
    pub window_limit: u64,
    /// Whether the sender had no more data, as far as captured.
    pub is_app_limited: bool,
    /// Time from the capture of the last acknowledged segment to this ACK. `None` if unknown.
    pub receiver_rtt: Option<Span>,
}

impl LossStats {
    fn add_hole(&mut self, hole: Hole) {
        while self.holes.len() >= MAX_HOLES {
            let oldest = self.holes.remove(0);
            self.never_captured += oldest.end - oldest.begin;
        }
        self.holes.push(hole);
    }

    /// Adds bytes that are acknowledged without being captured.
    fn add_acked_hole(&mut self, hole: Hole) {
        self.uncaptured += hole.end - hole.begin;
        self.never_captured += hole.end - hole.begin;
        self.acked_hole = Some(hole);
    }
}

impl SentSegment {
    fn new(at: Time, begin: u64, end: u64, mark: CopyId, copies: u8) -> Self {
        let CopyId { tsval: stamp, ip_id: packet } = mark;
        Self {
            at,
            begin: begin as u32,
            end: end as u32,
            tsval: stamp.unwrap_or(0),
            has_tsval: stamp.is_some(),
            copies,
            ip_id: packet,
        }
    }

    fn tsval(&self) -> Option<u32> {
        self.has_tsval.then_some(self.tsval)
    }

    /// Returns the start and end offset, in a stream that has reached `top`.
    fn offsets(&self, top: u64) -> (u64, u64) {
        let begin = Seq(self.begin).to_offset(top);
        (begin, begin + u64::from(self.end.wrapping_sub(self.begin)))
    }
}

impl Stream {
    /// Creates a stream with its first segment.
    pub fn new(segment: &Segment<'_>) -> Self {
        let has_syn = segment.flags.has(Flags::SYN);
        let first_data = segment.seq + u32::from(has_syn);
        let first = start_offset(first_data) - u64::from(has_syn);
        Self {
            first_data,
            captured_end: first,
            acked: first,
            last_acked_time: Time::ZERO,
            window_limit: None,
            sent: Queue::default(),
            dup_acks: 0,
            sacked_bytes: 0,
            loss: None,
            mss: ASSUMED_MSS,
            own_size: 0,
            has_mss_option: false,
            has_syn,
            fin: None,
            is_app_limited: true,
            last_tsval: 0,
            has_tsval: false,
            basic_counts: BasicCounts::default(),
            receiver_rtt: Samples::default(),
            min_sender_rtt: Span::ZERO,
        }
    }

    /// Sets the size of full segments, in bytes, as an option of a SYN states it.
    pub fn set_mss(&mut self, mss: u16) {
        (self.mss, self.has_mss_option) = (mss.max(1), true);
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        let BasicCounts {
            bytes,
            segments,
            data_segments,
            max_in_flight: most_in_flight,
            delayed_acks: held_back,
        } = self.basic_counts;
        let all = Counts {
            segments: segments.into(),
            bytes,
            data_segments: data_segments.into(),
            max_in_flight: most_in_flight,
            delayed_acks: held_back,
            ..Counts::default()
        };
        let Some(loss) = &self.loss else { return all };
        Counts {
            retransmissions: loss.retransmissions,
            reordered: loss.reordered,
            duplicated: loss.duplicated,
            lost_before: loss.lost_before,
            lost_after: loss.lost_after,
            syns_again: loss.syns_again,
            fins_again: loss.fins_again,
            uncaptured: loss.uncaptured,
            keep_alives: loss.keep_alives,
            window_probes: loss.window_probes,
            ..all
        }
    }

    /// Returns the number of retransmissions of lost segments, and how many of these were caused by
    /// a timeout.
    pub(super) fn loss_retransmissions(&self) -> (u32, u32) {
        let again = self.loss.as_ref().map(|loss| &loss.retransmissions);
        again.map_or((0, 0), |retransmissions| {
            (retransmissions.fast + retransmissions.timeout, retransmissions.timeout)
        })
    }

    pub fn has_data(&self) -> bool {
        self.basic_counts.bytes > 0
    }

    fn loss_mut(&mut self) -> &mut LossStats {
        self.loss.get_or_insert_default()
    }

    /// Round-trip times from the capture point to the receiver.
    pub fn receiver_rtt(&self) -> &Samples {
        &self.receiver_rtt
    }

    /// Whether the latest segment was not full and no data waited after it.
    pub(super) fn is_app_limited(&self) -> bool {
        self.is_app_limited
    }

    /// Whether the sender is in loss recovery.
    pub fn is_recovering(&self) -> bool {
        self.loss.as_ref().is_some_and(|loss| loss.recovery_end > self.acked)
    }

    /// Number of bytes in flight, as seen from the capture point.
    pub fn in_flight(&self) -> u64 {
        self.captured_end.saturating_sub(self.acked)
    }

    /// Offset of the first byte, or of the SYN.
    pub fn first(&self) -> u64 {
        self.data_start() - u64::from(self.has_syn)
    }

    /// Offset of the first data byte.
    pub fn data_start(&self) -> u64 {
        start_offset(self.first_data)
    }

    /// Offset after the last data byte. `None` until the FIN passes.
    pub fn fin(&self) -> Option<u64> {
        self.fin.map(Offset::get)
    }

    fn window_limit(&self) -> Option<u64> {
        self.window_limit.map(Offset::get)
    }

    /// Offset after the last data byte that the peer has acknowledged.
    pub fn acked(&self) -> u64 {
        self.acked.min(self.fin().unwrap_or(self.acked))
    }

    /// Capture time of the latest segment that the peer has acknowledged as a whole; zero if there
    /// is none.
    pub fn last_acked_time(&self) -> Time {
        self.last_acked_time
    }

    /// Number of captured data bytes, each counted once.
    pub fn unique_bytes(&self) -> u64 {
        let end = self.captured_end.min(self.fin().unwrap_or(self.captured_end));
        let length = end.saturating_sub(self.data_start());
        let missing = self.loss.as_ref().map_or(0, |loss| {
            let holes: u64 = loss.holes.iter().map(|hole| hole.end - hole.begin).sum();
            holes + loss.never_captured
        });
        // A second FIN, at another place, has a number and no byte.
        length.saturating_sub(missing).min(self.basic_counts.bytes)
    }

    /// Unwraps a sequence number near the current offset.
    pub fn offset_of(&self, seq: Seq) -> u64 {
        seq.to_offset(self.captured_end)
    }

    /// Handles a segment of the sender; `sender_rtt` is the minimum round-trip time between the
    /// capture point and the sender.
    pub fn on_segment(
        &mut self,
        now: Time,
        segment: &Segment<'_>,
        sender_rtt: Option<Span>,
    ) -> SegmentOutcome {
        self.min_sender_rtt = sender_rtt.unwrap_or_default();
        self.basic_counts.segments = self.basic_counts.segments.saturating_add(1);
        self.basic_counts.bytes += u64::from(segment.length);
        let begin = self.offset_of(segment.seq);
        let end = begin + u64::from(segment.end().distance_from(segment.seq) as u32);
        // An old FIN must not end the stream.
        if segment.flags.has(Flags::FIN) && end > self.first() && end >= self.acked {
            if self.fin.is_none() && end <= self.captured_end {
                // Its number was acknowledged as if it were a byte.
                let loss = self.loss_mut();
                loss.never_captured = loss.never_captured.saturating_sub(1);
                loss.uncaptured = loss.uncaptured.saturating_sub(1);
            }
            self.fin = self.fin.or(Some(Offset::new(end - 1)));
        }
        let mark = CopyId {
            tsval: segment.options.timestamps().map(|timestamps| timestamps.tsval),
            ip_id: segment.ip_id,
        };
        let stamp = mark.tsval;
        let in_flight = self.in_flight();
        let outcome = SegmentOutcome { in_flight, begin, end, ..SegmentOutcome::default() };
        if self.adopt_syn(segment) && segment.length == 0 || self.on_probe(segment, begin) {
            return outcome;
        }
        if begin == end {
            // A segment without data that is after the last captured byte and within the window was
            // sent after bytes that have not passed yet.
            if begin > self.captured_end
                && self.window_limit().is_some_and(|granted| begin <= granted)
            {
                let said = Hole { begin: self.captured_end, end: begin, since: now, tsval: stamp };
                self.loss_mut().uncaptured_before_ack = Some(said);
            }
            self.update_tsval(stamp);
            return outcome;
        }
        let carried = self.carried_segments(segment.length);
        if begin != self.captured_end || self.loss.is_some() {
            let loss = self.loss_mut();
            (loss.segments_left, loss.packet_bytes) = (carried, segment.length);
        }
        self.basic_counts.data_segments = self.basic_counts.data_segments.saturating_add(carried);
        if end <= self.captured_end {
            let outcome = match segment.length == 0 {
                true => self.on_control_again(now, segment, begin, mark),
                false => self.on_retransmission(now, begin, end, mark),
            };
            self.update_tsval(stamp);
            return SegmentOutcome { in_flight, ..outcome };
        }
        // Most segments are here: copies of the outcome would dominate the cost of this function.
        let was_app_limited = self.is_app_limited;
        let max = u32::from(self.mss).saturating_sub(segment.options.length() as u32).max(1);
        // A sender sets PSH when it has sent all its data (RFC 9293, 3.9.1): a short segment without
        // PSH fills up a window.
        let is_full =
            segment.length == max || segment.length > max && segment.length.is_multiple_of(max);
        self.is_app_limited = !is_full && (segment.length == 0 || segment.flags.has(Flags::PSH));
        let is_retransmission = self.on_new_data(now, begin, end, mark);
        self.update_tsval(stamp);
        SegmentOutcome { is_new: true, is_retransmission, was_app_limited, in_flight, begin, end }
    }

    /// Returns the number of segments in a packet, which may be merged from several.
    fn carried_segments(&mut self, length: u32) -> u32 {
        // Divisions would dominate the cost of this function.
        if length <= self.mss.into() {
            if !self.has_mss_option {
                self.own_size = self.own_size.max(u16::try_from(length).unwrap_or(u16::MAX));
            }
            return (length > 0).into();
        }
        let is_told = self.has_mss_option || self.own_size < MIN_FULL_SIZE;
        length.div_ceil(if is_told { self.mss } else { self.own_size }.into())
    }

    /// Handles another copy of a SYN or FIN without data: no data is lost with it.
    fn on_control_again(
        &mut self,
        now: Time,
        segment: &Segment<'_>,
        begin: u64,
        mark: CopyId,
    ) -> SegmentOutcome {
        let disorder =
            |stream: &Self| stream.loss.as_ref().map_or(0, |loss| loss.reordered + loss.duplicated);
        let before = disorder(self);
        let outcome = self.on_retransmission(now, begin, begin + 1, mark);
        if disorder(self) == before {
            let loss = self.loss_mut();
            match segment.flags.has(Flags::SYN) {
                true => loss.syns_again += 1,
                false => loss.fins_again += 1,
            }
        }
        outcome
    }

    /// Stores the sender's TSval.
    fn update_tsval(&mut self, tsval: Option<u32>) {
        if let Some(tsval) = tsval {
            (self.last_tsval, self.has_tsval) = (tsval, true);
        }
    }

    fn tsval(&self) -> Option<u32> {
        self.has_tsval.then_some(self.last_tsval)
    }

    /// Whether a segment is only a keep-alive or a zero-window probe.
    fn on_probe(&mut self, segment: &Segment<'_>, begin: u64) -> bool {
        let says_more = segment.flags.has(Flags(Flags::SYN.0 | Flags::FIN.0 | Flags::RST.0));
        if segment.length > 1 || says_more {
            return false;
        }
        let is_said = begin + 1 == self.captured_end && self.acked >= self.captured_end;
        let is_closed = self.window_limit() == Some(self.acked);
        // Of some systems a probe carries the next byte, each time again (RFC 9293, 3.8.6.1).
        let is_beyond = segment.length == 1 && is_closed && begin == self.acked;
        if !(is_said || is_beyond) {
            return false;
        }
        match is_closed {
            true => self.loss_mut().window_probes += 1,
            false => self.loss_mut().keep_alives += 1,
        }
        // The first of them also is data, which the receiver may accept.
        is_said || begin < self.captured_end
    }

    /// Handles a segment with new bytes. Returns whether it also has old ones.
    fn on_new_data(&mut self, now: Time, begin: u64, end: u64, mark: CopyId) -> bool {
        let (is_again, stamp) = (begin < self.captured_end, mark.tsval);
        self.fill_holes(now, begin, end, mark);
        if begin > self.captured_end {
            let hole = Hole { begin: self.captured_end, end: begin, since: now, tsval: stamp };
            self.loss_mut().add_hole(hole);
        }
        let was_sent = self.sent_before(now, begin.max(self.captured_end), end, stamp);
        while self
            .sent
            .front()
            .is_some_and(|sent| sent.offsets(self.captured_end).0 + MAX_WINDOW < end)
        {
            self.sent.pop_front();
        }
        let copies = if is_again || was_sent.is_some() { 2 } else { 1 };
        self.sent.push_back(SentSegment::new(now, begin.max(self.captured_end), end, mark, copies));
        self.captured_end = end;
        if self.sent.len() > MAX_UNACKED_SEGMENTS {
            self.sent.pop_front();
        }
        if let Some((begin, end)) = was_sent {
            self.on_hole_retransmission(begin, end);
        }
        let in_flight = u32::try_from(self.in_flight()).unwrap_or(u32::MAX);
        self.basic_counts.max_in_flight = self.basic_counts.max_in_flight.max(in_flight);
        is_again
    }

    /// Handles an ACK of the peer.
    pub fn on_ack(&mut self, now: Time, ack: &Segment<'_>, window: u64) -> AckOutcome {
        if !ack.flags.has(Flags::ACK) {
            return AckOutcome {
                acked_to: self.acked,
                window_limit: self.acked,
                ..AckOutcome::default()
            };
        }
        let before = self.acked;
        let to = ack.ack.to_offset(self.acked);
        self.on_sack(ack, to);
        let mut receiver_rtt = None;
        if to > self.acked {
            receiver_rtt = self.advance_ack(now, to);
        } else if to == self.acked && self.is_duplicate_ack(ack, to + window) {
            self.dup_acks += 1;
        }
        if to >= self.acked {
            self.window_limit = Some(Offset::new(to + window));
        }
        let granted = self.window_limit().unwrap_or(self.acked);
        let is_dry = self.is_app_limited;
        AckOutcome {
            bytes: self.acked - before,
            acked_to: self.acked,
            window_limit: granted,
            is_app_limited: is_dry,
            receiver_rtt,
        }
    }

    /// Whether an ACK is a duplicate (RFC 5681, 2); with SACK, the reported blocks count, not the
    /// number of ACKs.
    fn is_duplicate_ack(&self, ack: &Segment<'_>, granted: u64) -> bool {
        let is_bare = ack.length == 0 && !ack.flags.has(Flags(Flags::SYN.0 | Flags::FIN.0));
        is_bare
            && self.captured_end > self.acked
            && (self.window_limit() == Some(granted) || self.sacked_bytes > 0)
    }

    /// Advances the cumulative acknowledgment. Returns the round-trip time of the last byte; `None`
    /// if unknown.
    fn advance_ack(&mut self, now: Time, to: u64) -> Option<Span> {
        let (mut newest, mut bytes, mut is_clear) = (None, 0, true);
        let mut reached = self.acked;
        while let Some(sent) = self.sent.front_mut() {
            let (begin, end) = sent.offsets(self.captured_end);
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
            self.last_acked_time = self.last_acked_time.max(sent.at);
            self.sent.pop_front();
        }
        // The ACK of a filled gap was triggered by the gap's bytes, not by the last byte.
        is_clear &= !self.is_recovering() && self.dup_acks == 0 && self.sacked_bytes == 0;
        let at = newest.filter(|_| is_clear && to <= reached);
        // Clocks of captures may step back.
        let receiver_rtt =
            at.filter(|at| now > *at).and_then(|at| self.add_receiver_rtt(now, at, bytes));
        self.remove_holes(now, to);
        if to > self.captured_end {
            let hole = Hole { begin: self.captured_end, end: to, since: now, tsval: None };
            self.loss_mut().add_acked_hole(hole);
            self.captured_end = to;
        }
        self.acked = to;
        self.dup_acks = 0;
        receiver_rtt
    }

    /// Adds the time from `at`, when the last acknowledged segment passed, to its ACK.
    fn add_receiver_rtt(&mut self, now: Time, at: Time, bytes: u64) -> Option<Span> {
        let rtt = now.since(at);
        let min = self.receiver_rtt.min().unwrap_or(rtt);
        let is_late = rtt.saturating_sub(min) >= DELAYED_ACK_MARGIN;
        let is_followed =
            || self.sent.front().is_some_and(|next| next.at < at + DELAYED_ACK_MARGIN);
        if bytes <= u64::from(self.mss) && is_late && !is_followed() {
            self.basic_counts.delayed_acks += 1;
            return None;
        }
        self.receiver_rtt.push(rtt);
        Some(rtt)
    }

    /// Skipped bytes that are acknowledged reached the receiver without being captured.
    fn remove_holes(&mut self, now: Time, to: u64) {
        let Some(loss) = &mut self.loss else { return };
        while let Some(index) = loss.holes.iter().position(|hole| hole.begin < to) {
            let hole = loss.holes.remove(index);
            loss.add_acked_hole(Hole { end: hole.end.min(to), since: now, ..hole });
            if hole.end > to {
                loss.holes.insert(index, Hole { begin: to, ..hole });
            }
        }
    }

    fn on_sack(&mut self, ack: &Segment<'_>, to: u64) {
        if ack.options.has_only_timestamps() {
            self.sacked_bytes = 0;
            return;
        }
        let blocks = ack.options.sack();
        let mut beyond = 0_u64;
        for (index, (begin, end)) in blocks.as_slice().iter().enumerate() {
            let (begin, end) = (begin.to_offset(to), end.to_offset(to));
            if begin >= end || !self.fits_sack(end) {
                continue;
            }
            let is_within =
                |other: &(Seq, Seq)| other.0.to_offset(to) <= begin && end <= other.1.to_offset(to);
            // RFC 2883: the first block reports duplicate bytes.
            let is_double = index == 0
                && (end <= to.max(self.acked) || blocks.as_slice().iter().skip(1).any(is_within));
            if is_double {
                self.on_dsack(begin, end);
            } else if end > to {
                beyond += end - begin.max(to);
            }
        }
        self.sacked_bytes = u32::try_from(beyond).unwrap_or(u32::MAX);
    }
}
