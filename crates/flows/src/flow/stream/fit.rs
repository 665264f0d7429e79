//! Which numbers fit a stream.

use manyways_wire::tcp::{Flags, Segment, Seq};

use super::Stream;

/// Numbers within this distance fit any stream: all windows without a scale.
const NEAR: u32 = 65_535;
/// SACK blocks at most this far after the captured bytes count, if the window does not reach there:
/// the bytes may have been sent without being captured.
const SACK_REACH: u64 = 1 << 24;

/// How far numbers may be from those that a stream has reached, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::flow) struct Reach {
    /// Before the acknowledged bytes.
    pub back: u64,
    /// After the captured bytes, and after the window if its scale is known.
    pub forth: u64,
    pub is_scale_known: bool,
}

impl Stream {
    /// Whether a segment obviously continues the stream. Called for each packet.
    #[inline]
    pub(in crate::flow) fn is_next(&self, segment: &Segment<'_>) -> bool {
        let distance = segment.seq.distance_from(Seq(self.captured_end as u32));
        distance.unsigned_abs() <= NEAR && segment.length <= NEAR
    }

    /// Whether an acknowledgment number obviously is of this stream. Called for each packet.
    #[inline]
    pub(in crate::flow) fn is_next_ack(&self, ack: Seq) -> bool {
        ack.distance_from(Seq(self.acked as u32)).unsigned_abs() <= NEAR
    }

    /// Whether the sequence numbers of a segment, which is not a SYN, fit.
    pub(in crate::flow) fn fits(&self, segment: &Segment<'_>, reach: Reach) -> bool {
        let begin = self.offset_of(segment.seq);
        let end = begin + u64::from(segment.end().distance_from(segment.seq).max(0) as u32);
        self.is_within(begin, reach) && self.is_within(end, reach)
    }

    /// Whether an acknowledgment number fits.
    pub(in crate::flow) fn fits_ack(&self, ack: Seq, reach: Reach) -> bool {
        self.is_within(ack.to_offset(self.acked), reach)
    }

    fn is_within(&self, offset: u64, reach: Reach) -> bool {
        let first = if self.has_syn { self.first() } else { 0 };
        let granted = self.window_limit().filter(|_| reach.is_scale_known).unwrap_or(0);
        offset >= first.max(self.acked.saturating_sub(reach.back))
            && offset <= self.captured_end.max(granted).saturating_add(reach.forth)
    }

    /// Whether nothing but a SYN has passed.
    pub(in crate::flow) fn is_syn_only(&self) -> bool {
        self.has_syn && !self.has_data()
    }

    /// Whether a SYN is that of this stream, recorded again or late.
    pub(in crate::flow) fn is_own_syn(&self, segment: &Segment<'_>) -> bool {
        self.offset_of(segment.seq) + 1 == self.data_start()
    }

    /// Adds the SYN of a stream that was captured from its first data byte on. Returns false if the
    /// segment is not a SYN, or another one.
    pub(super) fn adopt_syn(&mut self, segment: &Segment<'_>) -> bool {
        let is_late = segment.flags.has(Flags::SYN) && !self.has_syn && self.is_own_syn(segment);
        self.has_syn |= is_late;
        is_late
    }

    /// Whether the end of a SACK block fits.
    pub(super) fn fits_sack(&self, end: u64) -> bool {
        end <= self.captured_end.saturating_add(SACK_REACH).max(self.window_limit().unwrap_or(0))
    }

    /// Continues the stream at a number that does not fit. Returns false if that would be nonsense:
    /// before the captured bytes, or further than a window reaches.
    pub(in crate::flow) fn skip_to(&mut self, now: manyways_unit::Time, seq: Seq) -> bool {
        let begin = self.offset_of(seq);
        if begin < self.captured_end || begin - self.captured_end > super::MAX_WINDOW {
            return false;
        }
        if begin > self.captured_end {
            let hole =
                super::Hole { begin: self.captured_end, end: begin, since: now, tsval: None };
            self.loss_mut().add_hole(hole);
            self.captured_end = begin;
        }
        true
    }
}
