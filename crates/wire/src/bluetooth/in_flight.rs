//! Completion times: from the host sending a packet to the controller until the peer has
//! acknowledged the packet, which the controller reports when a buffer is free again (vol 4, part
//! E, 4.1.1).

use std::collections::VecDeque;

use manyways_unit::{Span, Time};

/// Maximum number of packets in a controller that are remembered; the oldest is forgotten first.
/// Controllers have about ten buffers.
pub const MAX_IN_FLIGHT: usize = 256;
/// Idle time after which the controller is taken to have no more packets that were not captured.
/// With uncaptured packets in the controller, completions cannot be attributed to packets.
pub const IDLE_TIMEOUT: Span = Span::from_secs(2);

/// Packets that the host has sent to the controller and that are not completed.
#[derive(Clone, Debug)]
pub(super) struct PacketsInFlight<T> {
    sent: VecDeque<(Time, T)>,
    /// Whether all packets in the controller were captured.
    is_complete: bool,
    /// When a packet was last sent or completed.
    last: Time,
}

impl<T> PacketsInFlight<T> {
    pub(super) fn new(now: Time, is_complete: bool) -> Self {
        Self { sent: VecDeque::new(), is_complete, last: now }
    }

    /// Records a packet that the host sends.
    pub(super) fn push(&mut self, now: Time, of: T) {
        if self.sent.is_empty() && now.since(self.last) >= IDLE_TIMEOUT {
            self.is_complete = true;
        }
        self.sent.push_back((now, of));
        if self.sent.len() > MAX_IN_FLIGHT {
            self.sent.pop_front();
            self.is_complete = false;
        }
        self.last = now;
    }

    /// Completes `count` packets and calls `each` with their completion times, if these are known.
    pub(super) fn complete(&mut self, now: Time, count: u16, mut each: impl FnMut(Span, T)) {
        for _ in 0..count {
            let Some((at, of)) = self.sent.pop_front() else {
                self.is_complete = false;
                break;
            };
            if self.is_complete {
                each(now.since(at), of);
            }
        }
        self.last = now;
    }

    /// Discards all packets, because the capture has lost some.
    pub(super) fn on_dropped(&mut self, now: Time) {
        self.sent.clear();
        self.is_complete = false;
        self.last = now;
    }
}
