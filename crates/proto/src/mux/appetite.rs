//! How much an application may write: enough that no path runs dry, and no more than this end can
//! keep.

use manyways_unit::{Rate, Span};

use super::{Mux, Output, Payload, StreamId};

/// What a stream may have written and not sent at least.
const LEAST_APPETITE: u64 = 128 << 10;
/// …and at most: what the faster paths could send before a slow one delivers is less.
const MOST_APPETITE: u64 = 4 << 20;
/// What a stream may keep however much the others do.
const LEAST_KEPT: u64 = 16 << 10;

impl<P: Payload> Mux<P> {
    /// How many bytes the application may write to a stream now. When it has written so many, or
    /// this is zero, [`Output::Hungry`] says when it may go on.
    pub fn appetite(&mut self, stream: StreamId) -> usize {
        let (most, most_kept) = (self.most_waiting(), self.most_kept());
        let Some(stream) = self.streams.get_mut(&stream) else { return 0 };
        if !stream.send.is_open() {
            return 0;
        }
        let room = most.saturating_sub(stream.send.waiting());
        // What a peer does not take in is not read from the application either.
        let room = room.min(most_kept.saturating_sub(stream.send.held()));
        stream.full = room == 0;
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// So much may wait in a stream: what all paths send until the slowest of them delivers, or a
    /// scheduler could not tell what a slow path may skip.
    pub(super) fn most_waiting(&self) -> u64 {
        let slowest = self.carriers.iter().map(|carrier| carrier.open_view().arrival()).max();
        let slowest = slowest.unwrap_or_default() + Span::from_millis(20);
        let rate: Rate = self.carriers.iter().map(|carrier| carrier.condition.rate).sum();
        (rate.size_in(slowest).as_bytes() * 2).clamp(LEAST_APPETITE, MOST_APPETITE)
    }

    /// So much of a stream may be kept to be sent again: half of what is left for all, so that none
    /// ever has nothing, or a peer that acknowledges nothing would make this end keep all that it
    /// asks for.
    pub(super) fn most_kept(&self) -> u64 {
        (self.config.most_kept.saturating_sub(self.kept) / 2).max(LEAST_KEPT)
    }

    pub(super) fn tell_hungry(&mut self, id: StreamId) {
        let (most, most_kept) = (self.most_waiting(), self.most_kept());
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let room = stream.send.is_open() && stream.send.waiting() * 2 <= most;
        let held = stream.send.held() <= most_kept / 4 * 3;
        if stream.full && room && held {
            stream.full = false;
            self.outputs.push_back(Output::Hungry { stream: id });
        }
    }
}
