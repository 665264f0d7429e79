//! Limit of the bytes that a lender hands to the kernel for the pipe.
//!
//! A congestion control fills the queue of the pipe, and bytes in the kernel or in that queue can
//! neither be recalled nor overtaken by a datagram. The lender has a buffer of its own, so bulk frames
//! wait there: they keep a window with which the queueing delay is [`MAX_QUEUE`]. Where that does not
//! help, because the queue is of others, the window gives up for a while.

use manyways_unit::{Span, Time};

use crate::mux::TransportInfo;
use crate::mux::bulk_window::{BulkWindow, RttSample};

/// Queueing delay on the pipe.
pub const MAX_QUEUE: Span = Span::from_millis(20);
/// Minimum of the window in bytes: two packets.
const MIN_WINDOW: u64 = 2 * 1_448;
/// Interval at which the transport is sampled while bulk frames wait for the window.
pub const QUEUE_INTERVAL: Span = Span::from_millis(1);

/// The limit for one connection.
#[derive(Debug)]
pub struct PipeQueue {
    window: BulkWindow,
    /// Bytes in flight and unsent, as last reported.
    outstanding: u64,
    acknowledged: u64,
}

impl Default for PipeQueue {
    fn default() -> Self {
        Self { window: BulkWindow::new(MAX_QUEUE, MIN_WINDOW), outstanding: 0, acknowledged: 0 }
    }
}

impl PipeQueue {
    /// Processes the state of the connection, right before frames are written.
    pub fn observe(&mut self, now: Time, info: &TransportInfo) {
        self.outstanding = (info.bytes_in_flight() + info.unsent).as_bytes();
        if info.acknowledged > self.acknowledged {
            self.acknowledged = info.acknowledged;
            let sample =
                RttSample { smoothed: info.rtt, deviation: info.rtt_var, min: info.min_rtt };
            self.window.observe(now, sample, self.outstanding);
        }
        // The window is in force while bulk frames wait, as beside a call.
        self.window.on_call(now, 0, self.outstanding, info.rtt);
    }

    /// Whether another bulk frame may be written after `queued` bytes since the last report.
    pub fn has_room(&mut self, now: Time, queued: u64) -> bool {
        let Some(window) = self.window.limit(now, 0) else { return true };
        let has_room = self.outstanding + queued < window;
        if !has_room {
            self.window.on_full();
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use manyways_unit::{Rate, Size};

    use super::*;

    const PACKET: u64 = 1_448;
    const BASE: Span = Span::from_millis(6);

    /// A pipe with a deep queue, into which a lender always has packets to write.
    struct Pipe {
        now: Time,
        queue: PipeQueue,
        /// Bytes per millisecond.
        rate: u64,
        /// Time in the queue that bytes of others cause.
        foreign: Span,
        free_at: Time,
        /// Packets on their way: when they were sent, and when their ACK comes.
        sent: VecDeque<(Time, Time)>,
        info: TransportInfo,
        delivered: u64,
        longest_queue: Span,
    }

    impl Pipe {
        fn new(rate: u64) -> Self {
            Self {
                now: Time::from_millis(1),
                queue: PipeQueue::default(),
                rate,
                foreign: Span::ZERO,
                free_at: Time::ZERO,
                sent: VecDeque::new(),
                info: TransportInfo {
                    rtt_var: Span::ZERO,
                    ..TransportInfo::initial(Span::from_millis(100))
                },
                delivered: 0,
                longest_queue: Span::ZERO,
            }
        }

        fn run(&mut self, millis: u64) {
            (self.delivered, self.longest_queue) = (0, Span::ZERO);
            for _ in 0..millis * 4 {
                while let Some((at, _)) = self.sent.pop_front_if(|(_, acked)| *acked <= self.now) {
                    self.delivered += PACKET;
                    self.info.acknowledged += PACKET;
                    self.info.rtt = self.now.since(at);
                    self.info.min_rtt = self.info.min_rtt.min(self.info.rtt);
                }
                let in_flight = self.sent.len() as u64 * PACKET;
                self.info.in_flight = Some(Size::from_bytes(in_flight));
                self.queue.observe(self.now, &self.info);
                let mut written = 0;
                while in_flight + written < 400_000 && self.queue.has_room(self.now, written) {
                    let rate = Rate::from_bps(self.rate * 8_000);
                    let start = self.free_at.max(self.now);
                    self.longest_queue = self.longest_queue.max(start.since(self.now));
                    self.free_at = start + rate.time_for(Size::from_bytes(PACKET));
                    self.sent.push_back((self.now, self.free_at + self.foreign + BASE));
                    written += PACKET;
                }
                self.now += Span::from_micros(250);
            }
        }
    }

    #[test]
    fn the_queue_is_short_and_the_pipe_is_full() {
        for rate in [125, 625, 12_500] {
            let mut pipe = Pipe::new(rate);
            pipe.run(1_000);
            pipe.run(2_000);
            assert!(pipe.delivered >= rate * 2_000 * 97 / 100, "{} of {rate}", pipe.delivered);
            let packet = Span::from_micros(1_000 * PACKET / rate);
            assert!(
                pipe.longest_queue < MAX_QUEUE + packet * 2 + Span::from_millis(2),
                "{}, {rate}",
                pipe.longest_queue
            );
        }
    }

    #[test]
    fn a_pipe_that_slows_down_has_a_short_queue_soon() {
        let mut pipe = Pipe::new(625);
        pipe.run(1_000);
        pipe.rate = 125;
        pipe.run(500);
        pipe.run(1_000);
        assert!(pipe.longest_queue < Span::from_millis(50), "{}", pipe.longest_queue);
        assert!(pipe.delivered >= 120_000, "{}", pipe.delivered);
    }

    #[test]
    fn a_queue_of_others_does_not_starve_the_lender() {
        let mut pipe = Pipe::new(625);
        pipe.run(1_000);
        pipe.foreign = Span::from_millis(150);
        pipe.run(4_000);
        pipe.run(2_000);
        assert!(pipe.delivered >= 625 * 2_000 * 90 / 100, "{}", pipe.delivered);
    }
}
