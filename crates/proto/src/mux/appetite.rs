//! Write credit of the application: enough data for every path, limited by the send buffer.

use manyways_unit::{Rate, Span};

use super::{Mux, Output, Payload, StreamId};

/// Minimum limit for written and unsent bytes of a stream.
const LEAST_APPETITE: u64 = 128 << 10;
/// Maximum limit for written and unsent bytes of a stream.
const MOST_APPETITE: u64 = 4 << 20;
/// Bytes that a stream may keep even if other streams fill the send buffer.
const LEAST_KEPT: u64 = 16 << 10;

impl<P: Payload> Mux<P> {
    /// Returns the bytes that the application may write to `stream` now. After it has written all
    /// of them, or if the result is 0, [`Output::Hungry`] reports when writing can continue.
    pub fn appetite(&mut self, stream: StreamId) -> usize {
        let (most, most_kept) = (self.most_waiting(), self.most_kept());
        let Some(stream) = self.streams.get_mut(&stream) else { return 0 };
        if !stream.send.is_open() {
            return 0;
        }
        let room = most.saturating_sub(stream.send.waiting());
        // Data that the peer does not accept is not read from the application either.
        let room = room.min(most_kept.saturating_sub(stream.send.held()));
        stream.full = room == 0;
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// Returns the limit for unsent bytes of a stream: twice the bytes that all paths send until
    /// the slowest one delivers. With less, a scheduler could not decide which bytes a slow path
    /// skips.
    pub(super) fn most_waiting(&self) -> u64 {
        let slowest = self.carriers.iter().map(|carrier| carrier.open_view().arrival()).max();
        let slowest = slowest.unwrap_or_default() + Span::from_millis(20);
        let rate: Rate = self.carriers.iter().map(|carrier| carrier.condition.rate).sum();
        (rate.size_in(slowest).as_bytes() * 2).clamp(LEAST_APPETITE, MOST_APPETITE)
    }

    /// Returns the limit for bytes of a stream that are kept for retransmission: half of the unused
    /// send buffer, so that some buffer remains for other streams. Without the limit, a peer that
    /// acknowledges nothing could make this endpoint buffer all requested data.
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
