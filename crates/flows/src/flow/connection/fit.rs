//! Which segments belong to a connection, by their numbers.
//!
//! A sequence number fits if the sender could have used it: within the window of the peer and two
//! more, which also covers segments that were sent without being captured, and for each silent round
//! trip two more windows. An acknowledgment number fits if the peer could have sent these bytes. If
//! the scale of the window is unknown, the flow's own rate takes its place.

use manyways_unit::{Span, Time};
use manyways_wire::stream::Endpoint;
use manyways_wire::tcp::{Flags, Segment};

use super::Connection;
use crate::flow::stream::Reach;

/// The largest window without a scale (RFC 7323, 2.2).
const MIN_WINDOW: u64 = 65_535;
/// The largest window (RFC 7323, 2.3).
const MAX_WINDOW: u64 = 1 << 30;
/// Assumed for a window of unknown scale.
const UNKNOWN_WINDOW: u64 = 1 << 20;
/// A flow may become this many times as fast as it was.
const MAX_ACCELERATION: u128 = 8;
/// Assumed for the round trip if it is unknown or shorter.
const MIN_ROUND_TRIP: Span = Span::from_micros(100);

/// Whether the numbers of a segment fit a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::flow) enum Fit {
    Fits,
    /// The sequence number fits, the acknowledgment number does not.
    AckRefused,
    Refused,
}

impl Connection {
    /// Decides whether a segment fits. Called for each packet.
    #[inline]
    pub(in crate::flow) fn fit(&self, now: Time, from: Endpoint, segment: &Segment<'_>) -> Fit {
        const UNUSUAL: Flags = Flags(Flags::SYN.0 | Flags::RST.0);
        if let (Some(own), Some(peer)) = (self.stream(from), self.stream(from.other()))
            && !segment.flags.has(UNUSUAL)
            && own.is_next(segment)
            && (!segment.flags.has(Flags::ACK) || peer.is_next_ack(segment.ack))
        {
            return Fit::Fits;
        }
        self.fit_slowly(now, from, segment)
    }

    #[inline(never)]
    fn fit_slowly(&self, now: Time, from: Endpoint, segment: &Segment<'_>) -> Fit {
        if self.stream(from.other()).is_none()
            && self.doubts.as_ref().is_some_and(|doubts| doubts.follows_syn(from, segment))
        {
            // Initial sequence numbers of the same ports may be near each other.
            return Fit::Refused;
        }
        let (is_syn, has_ack) = (segment.flags.has(Flags::SYN), segment.flags.has(Flags::ACK));
        let (own, peer) = (self.stream(from), self.stream(from.other()));
        // Next to a SYN there is nothing but its answer, or nothing of this connection (RFC 5961, 4).
        const HANDSHAKE: Reach = Reach { back: 0, forth: MIN_WINDOW, is_scale_known: false };
        let fits = match own {
            None => true,
            Some(own) if is_syn => own.is_own_syn(segment),
            Some(own) if peer.is_none() && own.is_syn_only() => own.fits(segment, HANDSHAKE),
            Some(own) => own.fits(segment, self.reach(now, from)),
        };
        if !fits {
            return Fit::Refused;
        }
        let Some(peer) = peer.filter(|_| has_ack) else { return Fit::Fits };
        let reach = match own.is_none() && peer.is_syn_only() {
            true => HANDSHAKE,
            false => self.reach(now, from.other()),
        };
        match peer.fits_ack(segment.ack, reach) {
            true => Fit::Fits,
            // The first segment of an endpoint has nothing else that shows its connection.
            false if own.is_none() => Fit::Refused,
            false => Fit::AckRefused,
        }
    }

    /// How far the numbers of this endpoint's next segment may be from its last ones.
    fn reach(&self, now: Time, of: Endpoint) -> Reach {
        let silence = now.since(self.last).as_nanos();
        let receiver = &self.endpoints[of.other() as usize];
        if receiver.syn_options.is_none() {
            let life = self.last.since(self.started).as_nanos().max(1);
            let rate = u128::from(self.bytes(of)) * MAX_ACCELERATION;
            let more = u64::try_from(rate * u128::from(silence) / u128::from(life));
            let forth = more.unwrap_or(MAX_WINDOW).min(MAX_WINDOW - UNKNOWN_WINDOW);
            return Reach {
                back: UNKNOWN_WINDOW,
                forth: UNKNOWN_WINDOW + forth,
                is_scale_known: false,
            };
        }
        let window = receiver.windows.map_or(0, |windows| u64::from(windows.max)).max(MIN_WINDOW);
        let halves = [Endpoint::Client, Endpoint::Server].map(|end| self.min_rtt_to(end));
        let round_trip: Span =
            halves.into_iter().flatten().fold(Span::ZERO, |sum, half| sum + half);
        let trips = 2 * (silence / round_trip.max(MIN_ROUND_TRIP).as_nanos() + 1);
        let forth = window.saturating_mul(trips).min(MAX_WINDOW);
        Reach { back: 2 * window, forth, is_scale_known: true }
    }
}
