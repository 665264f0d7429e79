//! Reassembly of the data of one endpoint.

use manyways_unit::Time;

use super::place::Place;
use manyways_unit::ThinVec;
use manyways_wire::stream::Piece;

/// Maximum number of bytes that wait for a gap to close.
pub const HELD_BYTES: usize = 64 * 1024;
/// Maximum number of pieces that wait for a gap to close.
pub const HELD_PIECES: usize = 64;

/// Reassembles the segments of one endpoint.
///
/// Of bytes that pass twice, the first copy counts. Bytes after a gap wait, up to [`HELD_BYTES`] in
/// up to [`HELD_PIECES`]. If there are more, or if the peer acknowledges the missing bytes, the gap
/// becomes a piece of unknown content. At the end, the pieces are contiguous.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// Offset of the first byte that was not passed on.
    next: Option<Place>,
    /// Waiting pieces, in order and without overlaps.
    held: ThinVec<Held>,
}

#[derive(Clone, Debug)]
struct Held {
    begin: u64,
    at: Time,
    bytes: Box<[u8]>,
    length: u64,
}

impl Order {
    /// Offset of the first byte that was not passed on. `None` before the first segment.
    pub fn next(&self) -> Option<u64> {
        self.next.map(Place::get)
    }

    /// Number of waiting bytes. Computed on demand, because there are few pieces, and usually none.
    fn bytes(&self) -> usize {
        self.held.iter().map(|held| held.bytes.len()).sum()
    }

    fn set_next(&mut self, place: u64) {
        self.next = Some(Place::new(place));
    }

    /// Sets the start of the stream, unless it is known.
    pub fn begins(&mut self, place: u64) {
        self.next.get_or_insert(Place::new(place));
    }

    /// Handles bytes at the offset `place`; passes on all bytes that are in order.
    pub fn pass(&mut self, place: u64, piece: Piece<'_>, mut each: impl FnMut(Piece<'_>)) {
        let next = self.next.get_or_insert(Place::new(place)).get();
        let Some((place, piece)) = after(next, place, piece) else { return };
        if place > next {
            self.hold(place, piece);
            while self.bytes() > HELD_BYTES || self.held.len() > HELD_PIECES {
                let Some(first) = self.held.first().map(|held| held.begin) else { break };
                self.reach(piece.at, first, &mut each);
            }
            return;
        }
        self.set_next(place.saturating_add(piece.length));
        each(piece);
        self.go_on(&mut each);
    }

    /// Handles an ACK up to `place`: bytes that did not pass until now never will.
    pub fn acked(&mut self, now: Time, place: u64, mut each: impl FnMut(Piece<'_>)) {
        if self.next().is_some_and(|next| next < place) {
            self.reach(now, place, &mut each);
        }
    }

    /// Ends the stream and passes on all waiting pieces.
    pub fn end(&mut self, mut each: impl FnMut(Piece<'_>)) {
        while let Some((at, begin)) = self.held.first().map(|held| (held.at, held.begin)) {
            self.reach(at, begin, &mut each);
        }
    }

    /// Passes on all bytes before `place`, and the contiguous bytes after it.
    fn reach(&mut self, now: Time, place: u64, each: &mut impl FnMut(Piece<'_>)) {
        self.go_on(each);
        while let Some(next) = self.next().filter(|next| *next < place) {
            let first = self.held.first().map_or(place, |held| held.begin.min(place));
            if first > next {
                self.set_next(first);
                each(Piece::unknown(now, first - next));
            }
            self.go_on(each);
        }
        self.go_on(each);
    }

    /// Passes on the waiting pieces that are contiguous with the stream.
    fn go_on(&mut self, each: &mut impl FnMut(Piece<'_>)) {
        while let Some(next) = self.next()
            && self.held.first().is_some_and(|held| held.begin <= next)
        {
            let Some(held) = self.held.remove(0) else { return };
            let piece = Piece { at: held.at, bytes: &held.bytes, length: held.length };
            let Some((place, piece)) = after(next, held.begin, piece) else { continue };
            self.set_next(place.saturating_add(piece.length));
            each(piece);
        }
    }

    fn hold(&mut self, place: u64, piece: Piece<'_>) {
        let index = self.held.partition_point(|held| held.begin <= place);
        let before = index.checked_sub(1).and_then(|index| self.held.get(index));
        let known = before.map_or(0, |held| held.begin.saturating_add(held.length));
        let Some((begin, mut piece)) = after(known, place, piece) else { return };
        // Waiting bytes passed earlier and take precedence.
        if let Some(behind) = self.held.get(index) {
            let room = behind.begin.saturating_sub(begin);
            let there = usize::try_from(room).unwrap_or(usize::MAX).min(piece.bytes.len());
            piece = Piece { bytes: &piece.bytes[..there], length: piece.length.min(room), ..piece };
        }
        if piece.length == 0 {
            return;
        }
        let Piece { at, bytes, length } = piece;
        self.held.insert(index, Held { begin, at, bytes: bytes.into(), length });
    }
}

/// Returns the part of a piece from `next` on. `None` if nothing is left.
fn after(next: u64, place: u64, piece: Piece<'_>) -> Option<(u64, Piece<'_>)> {
    let known = next.saturating_sub(place);
    if known >= piece.length {
        return None;
    }
    let skipped = usize::try_from(known).unwrap_or(usize::MAX).min(piece.bytes.len());
    let bytes = &piece.bytes[skipped..];
    Some((place.max(next), Piece { bytes, length: piece.length - known, ..piece }))
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
        Piece::whole(Time::ZERO, bytes)
    }

    fn text(sink: &Sink) -> &str {
        std::str::from_utf8(&sink.0).unwrap()
    }

    #[test]
    fn what_comes_late_or_twice_is_in_its_place_once() {
        let (mut order, mut sink) = (Order::default(), Sink::default());
        order.begins(100);
        for (place, bytes) in [(104, "efg"), (102, "cd"), (100, "ab"), (100, "AB"), (105, "FGh")] {
            order.pass(place, whole(bytes.as_bytes()), |piece| sink.take(piece));
        }
        assert_eq!((text(&sink), order.next()), ("abcdefgh", Some(108)));
        assert_eq!((order.bytes(), order.held.len()), (0, 0));
    }

    #[test]
    fn what_the_other_end_has_and_nobody_saw_is_unknown() {
        let (mut order, mut sink) = (Order::default(), Sink::default());
        order.pass(0, whole(b"ab"), |piece| sink.take(piece));
        order.pass(4, whole(b"ef"), |piece| sink.take(piece));
        order.pass(8, whole(b"ij"), |piece| sink.take(piece));
        assert_eq!(text(&sink), "ab");
        order.acked(Time::ZERO, 5, |piece| sink.take(piece));
        assert_eq!(text(&sink), "ab..ef");
        order.end(|piece| sink.take(piece));
        assert_eq!(text(&sink), "ab..ef..ij");
        order.acked(Time::ZERO, 12, |piece| sink.take(piece));
        assert_eq!(text(&sink), "ab..ef..ij..");
    }

    #[test]
    fn little_is_held() {
        let (mut order, mut sink) = (Order::default(), Sink::default());
        order.begins(0);
        let bytes = [b'x'; 1_000];
        for place in 1..200 {
            order.pass(place * 2_000, whole(&bytes), |piece| sink.take(piece));
            assert!(order.bytes() <= HELD_BYTES && order.held.len() <= HELD_PIECES);
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
            let (mut order, mut sink) = (Order::default(), Sink::default());
            order.begins(1_000);
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
                order.pass(1_000 + begin as u64, piece, |piece| sink.take(piece));
            }
            order.end(|piece| sink.take(piece));
            order.acked(Time::ZERO, 1_400, |piece| sink.take(piece));
            prop_assert_eq!(sink.0.len(), 400);
            for (index, byte) in sink.0.iter().enumerate() {
                prop_assert!(*byte == text[index] || *byte == b'.', "{index}");
                prop_assert!(is_known[index] || *byte == b'.');
            }
        }
    }
}
