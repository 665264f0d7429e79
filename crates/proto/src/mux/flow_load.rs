//! Distinguishes the datagrams of calls from those of large transfers, by a token bucket.

use manyways_unit::{Rate, Span, Time};

/// Maximum mean rate of a call.
const MAX_CALL_RATE: Rate = Rate::from_mbps(4);
/// Size of the token bucket, as the time in which it fills.
const BURST_TIME: Span = Span::from_secs(1);
/// Datagrams before a flow counts as a call: a query of a name is none.
const MIN_CALL_DATAGRAMS: u32 = 8;

/// The sent load of a flow of datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowLoad {
    tokens: u64,
    filled_at: Time,
    datagrams: u32,
    /// Whether the flow has exceeded the bucket, which was not full since.
    is_heavy: bool,
}

impl FlowLoad {
    pub(super) fn new() -> Self {
        let tokens = MAX_CALL_RATE.size_in(BURST_TIME).as_bytes();
        Self { tokens, filled_at: Time::ZERO, datagrams: 0, is_heavy: false }
    }

    /// Records a datagram of `bytes`.
    pub(super) fn on_sent(&mut self, now: Time, bytes: usize) {
        let max = MAX_CALL_RATE.size_in(BURST_TIME).as_bytes();
        let new = MAX_CALL_RATE.size_in(now.since(self.filled_at)).as_bytes();
        // Fractions of a byte are not lost: the time counts on until it is worth some.
        if new > 0 {
            (self.tokens, self.filled_at) = (self.tokens.saturating_add(new).min(max), now);
        }
        self.datagrams = self.datagrams.saturating_add(1);
        let bytes = bytes as u64;
        self.is_heavy = match self.is_heavy {
            true => self.tokens < max,
            false => bytes > self.tokens,
        };
        self.tokens = self.tokens.saturating_sub(bytes);
    }

    /// Returns whether other data yields to the flow.
    pub(super) fn is_call(&self) -> bool {
        !self.is_heavy && self.datagrams >= MIN_CALL_DATAGRAMS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `bytes` every `micros` for `millis`; returns the load after it.
    fn send(mut load: FlowLoad, from: u64, millis: u64, micros: u64, bytes: usize) -> FlowLoad {
        let mut at = 0;
        while at < millis * 1_000 {
            let now = Time::from_millis(from) + Span::from_micros(at);
            load.on_sent(now, bytes);
            at += micros;
        }
        load
    }

    #[test]
    fn a_call_is_one_from_its_eighth_datagram_on_and_stays_one() {
        let load = send(FlowLoad::new(), 1, 140, 20_000, 1_000);
        assert!(!load.is_call());
        let load = send(load, 141, 20, 20_000, 1_000);
        assert!(load.is_call());
        // 3.2 Mbit/s, of a conference with video.
        let load = send(load, 200, 60_000, 2_500, 1_000);
        assert!(load.is_call());
    }

    #[test]
    fn a_download_is_none_until_it_has_paused() {
        let load = send(FlowLoad::new(), 1, 1_000, 100, 1_200);
        assert!(!load.is_call());
        let load = send(load, 1_001, 2_000, 2_000, 1_200);
        assert!(!load.is_call(), "4.8 Mbit/s");
        let load = send(load, 4_500, 1, 1_000, 1_200);
        assert!(load.is_call(), "the bucket is full again");
    }
}
