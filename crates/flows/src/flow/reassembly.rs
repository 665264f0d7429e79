//! Reassembly of the data of one endpoint.

use manyways_unit::Time;

use super::offset::Offset;
use manyways_unit::ThinVec;
use manyways_wire::stream::Piece;

/// Maximum number of bytes that wait for a gap to close.
pub const MAX_PENDING_BYTES: usize = 64 * 1024;
/// Maximum number of pieces that wait for a gap to close.
pub const MAX_PENDING_PIECES: usize = 64;

/// Reassembles the segments of one endpoint.
///
/// Of bytes that pass twice, the first copy counts. Bytes after a gap wait, up to
/// [`MAX_PENDING_BYTES`] in up to [`MAX_PENDING_PIECES`]. If there are more, or if the peer
/// acknowledges the missing bytes, the gap becomes a piece of unknown content. At the end, the
/// pieces are contiguous.
#[derive(Clone, Debug, Default)]
pub struct Reassembler {
    /// Offset of the first byte that was not passed on.
    next_offset: Option<Offset>,
    /// Waiting pieces, in order and without overlaps.
    pending: ThinVec<PendingPiece>,
}

#[derive(Clone, Debug)]
struct PendingPiece {
    begin: u64,
    at: Time,
    bytes: Box<[u8]>,
    length: u64,
}

impl Reassembler {
    /// Offset of the first byte that was not passed on. `None` before the first segment.
    pub fn next_offset(&self) -> Option<u64> {
        self.next_offset.map(Offset::get)
    }

    /// Number of waiting bytes. Computed on demand, because there are few pieces, and usually none.
    fn pending_bytes(&self) -> usize {
        self.pending.iter().map(|pending| pending.bytes.len()).sum()
    }

    fn set_next(&mut self, offset: u64) {
        self.next_offset = Some(Offset::new(offset));
    }

    /// Sets the start of the stream, unless it is known.
    pub fn set_start(&mut self, offset: u64) {
        self.next_offset.get_or_insert(Offset::new(offset));
    }

    /// Handles bytes at `offset`; passes on all bytes that are in order.
    pub fn push(&mut self, offset: u64, piece: Piece<'_>, mut each: impl FnMut(Piece<'_>)) {
        let next = self.next_offset.get_or_insert(Offset::new(offset)).get();
        let Some((place, piece)) = tail_from(next, offset, piece) else { return };
        if place > next {
            self.insert(place, piece);
            while self.pending_bytes() > MAX_PENDING_BYTES
                || self.pending.len() > MAX_PENDING_PIECES
            {
                let Some(first) = self.pending.first().map(|pending| pending.begin) else { break };
                self.advance_to(piece.at, first, &mut each);
            }
            return;
        }
        self.set_next(place.saturating_add(piece.length));
        each(piece);
        self.flush_ready(&mut each);
    }

    /// Handles an ACK up to `offset`: bytes that did not pass until now never will.
    pub fn on_ack(&mut self, now: Time, offset: u64, mut each: impl FnMut(Piece<'_>)) {
        if self.next_offset().is_some_and(|next| next < offset) {
            self.advance_to(now, offset, &mut each);
        }
    }

    /// Ends the stream and passes on all waiting pieces.
    pub fn finish(&mut self, mut each: impl FnMut(Piece<'_>)) {
        while let Some((at, begin)) =
            self.pending.first().map(|pending| (pending.at, pending.begin))
        {
            self.advance_to(at, begin, &mut each);
        }
    }

    /// Passes on all bytes before `offset`, and the contiguous bytes after it.
    fn advance_to(&mut self, now: Time, offset: u64, each: &mut impl FnMut(Piece<'_>)) {
        self.flush_ready(each);
        while let Some(next) = self.next_offset().filter(|next| *next < offset) {
            let first = self.pending.first().map_or(offset, |pending| pending.begin.min(offset));
            if first > next {
                self.set_next(first);
                each(Piece::uncaptured(now, first - next));
            }
            self.flush_ready(each);
        }
        self.flush_ready(each);
    }

    /// Passes on the waiting pieces that are contiguous with the stream.
    fn flush_ready(&mut self, each: &mut impl FnMut(Piece<'_>)) {
        while let Some(next) = self.next_offset()
            && self.pending.first().is_some_and(|pending| pending.begin <= next)
        {
            let Some(pending) = self.pending.remove(0) else { return };
            let piece = Piece { at: pending.at, bytes: &pending.bytes, length: pending.length };
            let Some((place, piece)) = tail_from(next, pending.begin, piece) else { continue };
            self.set_next(place.saturating_add(piece.length));
            each(piece);
        }
    }

    fn insert(&mut self, offset: u64, piece: Piece<'_>) {
        let index = self.pending.partition_point(|pending| pending.begin <= offset);
        let before = index.checked_sub(1).and_then(|index| self.pending.get(index));
        let known = before.map_or(0, |pending| pending.begin.saturating_add(pending.length));
        let Some((begin, mut piece)) = tail_from(known, offset, piece) else { return };
        // Waiting bytes passed earlier and take precedence.
        if let Some(behind) = self.pending.get(index) {
            let room = behind.begin.saturating_sub(begin);
            let there = usize::try_from(room).unwrap_or(usize::MAX).min(piece.bytes.len());
            piece = Piece { bytes: &piece.bytes[..there], length: piece.length.min(room), ..piece };
        }
        if piece.length == 0 {
            return;
        }
        let Piece { at, bytes, length } = piece;
        self.pending.insert(index, PendingPiece { begin, at, bytes: bytes.into(), length });
    }
}

/// Returns the part of a piece from `next` on. `None` if nothing is left.
fn tail_from(next: u64, offset: u64, piece: Piece<'_>) -> Option<(u64, Piece<'_>)> {
    let known = next.saturating_sub(offset);
    if known >= piece.length {
        return None;
    }
    let skipped = usize::try_from(known).unwrap_or(usize::MAX).min(piece.bytes.len());
    let bytes = &piece.bytes[skipped..];
    Some((offset.max(next), Piece { bytes, length: piece.length - known, ..piece }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Passed-on bytes; unknown ones are dots.
    #[derive(Default)]
    struct Sink(Vec<u8>);

    impl Sink {
        fn take(&mut self, piece: Piece<'_>) {
            assert!(piece.length > 0 && piece.bytes.len() as u64 <= piece.length);
            self.0.extend(piece.bytes);
            let unknown = piece.length - piece.bytes.len() as u64;
            self.0.extend((0..unknown).map(|_| b'.'));
        }
    }

    fn whole(bytes: &[u8]) -> Piece<'_> {
        Piece::captured(Time::ZERO, bytes)
    }

    fn text(sink: &Sink) -> &str {
        std::str::from_utf8(&sink.0).unwrap()
    }

    #[test]
    fn what_comes_late_or_twice_is_in_its_place_once() {
        let (mut reassembler, mut sink) = (Reassembler::default(), Sink::default());
        reassembler.set_start(100);
        for (offset, bytes) in [(104, "efg"), (102, "cd"), (100, "ab"), (100, "AB"), (105, "FGh")] {
            reassembler.push(offset, whole(bytes.as_bytes()), |piece| sink.take(piece));
        }
        assert_eq!((text(&sink), reassembler.next_offset()), ("abcdefgh", Some(108)));
        assert_eq!((reassembler.pending_bytes(), reassembler.pending.len()), (0, 0));
    }

    #[test]
    fn what_the_other_end_has_and_nobody_saw_is_unknown() {
        let (mut reassembler, mut sink) = (Reassembler::default(), Sink::default());
        reassembler.push(0, whole(b"ab"), |piece| sink.take(piece));
        reassembler.push(4, whole(b"ef"), |piece| sink.take(piece));
        reassembler.push(8, whole(b"ij"), |piece| sink.take(piece));
        assert_eq!(text(&sink), "ab");
        reassembler.on_ack(Time::ZERO, 5, |piece| sink.take(piece));
        assert_eq!(text(&sink), "ab..ef");
        reassembler.finish(|piece| sink.take(piece));
        assert_eq!(text(&sink), "ab..ef..ij");
        reassembler.on_ack(Time::ZERO, 12, |piece| sink.take(piece));
        assert_eq!(text(&sink), "ab..ef..ij..");
    }

    #[test]
    fn little_is_held() {
        let (mut reassembler, mut sink) = (Reassembler::default(), Sink::default());
        reassembler.set_start(0);
        let bytes = [b'x'; 1_000];
        for offset in 1..200 {
            reassembler.push(offset * 2_000, whole(&bytes), |piece| sink.take(piece));
            assert!(
                reassembler.pending_bytes() <= MAX_PENDING_BYTES
                    && reassembler.pending.len() <= MAX_PENDING_PIECES
            );
        }
        assert!(sink.0.len() > 200_000);
        assert!(sink.0[..2_000].iter().all(|byte| *byte == b'.'));
    }

    proptest! {
        /// Pieces of a text, cut, reordered and repeated: if all of it passed, the output is the
        /// text.
        #[test]
        fn any_order_gives_the_stream(
            cuts in prop::collection::vec((0_usize..400, 1_usize..60, 0_usize..60), 1..40),
        ) {
            let text: Vec<u8> = (0..400_u32).map(|n| b'a' + (n * 7 % 26) as u8).collect();
            let (mut reassembler, mut sink) = (Reassembler::default(), Sink::default());
            reassembler.set_start(1_000);
            let mut is_known = vec![false; 400];
            for (begin, length, there) in cuts {
                let part = &text[begin..(begin + length).min(400)];
                let there = there.min(part.len());
                let piece = Piece {
                    at: Time::ZERO,
                    bytes: &part[..there],
                    length: part.len() as u64,
                };
                is_known[begin..begin + there].fill(true);
                reassembler.push(1_000 + begin as u64, piece, |piece| sink.take(piece));
            }
            reassembler.finish(|piece| sink.take(piece));
            reassembler.on_ack(Time::ZERO, 1_400, |piece| sink.take(piece));
            prop_assert_eq!(sink.0.len(), 400);
            for (index, byte) in sink.0.iter().enumerate() {
                prop_assert!(*byte == text[index] || *byte == b'.', "{index}");
                prop_assert!(is_known[index] || *byte == b'.');
            }
        }
    }
}
