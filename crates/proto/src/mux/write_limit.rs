//! Write credit of the application: enough data for every path, limited by the send buffer.

use manyways_unit::{Rate, Span};

use super::{Mux, Output, Payload, StreamId};

/// Minimum limit for written and unsent bytes of a stream.
const MIN_UNSENT_LIMIT: u64 = 128 << 10;
/// Maximum limit for written and unsent bytes of a stream.
const MAX_UNSENT_LIMIT: u64 = 4 << 20;
/// Bytes that a stream may keep even if other streams fill the send buffer.
const MIN_UNACKED_LIMIT: u64 = 16 << 10;

impl<P: Payload> Mux<P> {
    /// Returns the bytes that the application may write to `stream` now. After it has written all
    /// of them, or if the result is 0, [`Output::Writable`] reports when writing can continue.
    pub fn writable_bytes(&mut self, stream: StreamId) -> usize {
        let (max, most_kept) = (self.max_unsent(), self.max_unacked());
        let Some(stream) = self.streams.get_mut(&stream) else { return 0 };
        if !stream.send.is_open() {
            return 0;
        }
        let room = max.saturating_sub(stream.send.pending_bytes());
        // Data that the peer does not accept is not read from the application either.
        let room = room.min(most_kept.saturating_sub(stream.send.unacked_bytes()));
        stream.is_write_blocked = room == 0;
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// Returns the limit for unsent bytes of a stream: twice the bytes that all paths send until
    /// the slowest one delivers. With less, a scheduler could not decide which bytes a slow path
    /// skips.
    pub(super) fn max_unsent(&self) -> u64 {
        let slowest =
            self.carriers.iter().map(|carrier| carrier.unblocked_view().delivery_time()).max();
        let slowest = slowest.unwrap_or_default() + Span::from_millis(20);
        let rate: Rate = self.carriers.iter().map(|carrier| carrier.transport_info.rate).sum();
        (rate.size_in(slowest).as_bytes() * 2).clamp(MIN_UNSENT_LIMIT, MAX_UNSENT_LIMIT)
    }

    /// Returns the limit for bytes of a stream that are kept for retransmission: half of the unused
    /// send buffer, so that some buffer remains for other streams. Without the limit, a peer that
    /// acknowledges nothing could make this endpoint buffer all requested data.
    pub(super) fn max_unacked(&self) -> u64 {
        (self.config.max_unacked.saturating_sub(self.unacked_bytes) / 2).max(MIN_UNACKED_LIMIT)
    }

    pub(super) fn notify_writable(&mut self, id: StreamId) {
        let (max, most_kept) = (self.max_unsent(), self.max_unacked());
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let room = stream.send.is_open() && stream.send.pending_bytes() * 2 <= max;
        let held = stream.send.unacked_bytes() <= most_kept / 4 * 3;
        if stream.is_write_blocked && room && held {
            stream.is_write_blocked = false;
            self.outputs.push_back(Output::Writable { stream: id });
        }
    }
}
