//! The congestion window of a sender, kept by its application.
//!
//! Slow start ends when the least of the first round trips of a round exceeds the least of all by an
//! eighth (HyStart of Ha and Rhee, PFLDnet 2008, with the limits of Linux). The window then grows as
//! CUBIC's (RFC 9438), or not at all: a transfer of 1 MB sees nothing of this growth.

use std::collections::VecDeque;

use manyways_unit::{Span, Time};

use super::SEGMENT;

/// Ten segments (RFC 6928).
const INITIAL: usize = 10 * SEGMENT;
/// Round trips of a round that are looked at.
const SAMPLES: u32 = 8;
/// Limits of the increase that ends slow start.
const INCREASE: (Span, Span) = (Span::from_millis(4), Span::from_millis(16));
/// Constants of CUBIC: growth in segments/s³, and the factor of a window after a loss.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// Growth per round trip that equals Reno's after such a loss, in segments.
const RENO: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// The least part of a retransmission timeout beyond the round trip (Linux, `TCP_RTO_MIN`).
const MIN_TIMEOUT: Span = Span::from_millis(200);

/// Growth of a window after slow start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    None,
    /// As CUBIC, and smaller after losses.
    Cubic,
}

/// The window of a sender. Sizes are in bytes.
pub struct Window {
    growth: Growth,
    window: f64,
    is_slow_start: bool,
    sent: usize,
    acknowledged: usize,
    /// End of each piece that was sent, and when that was.
    pieces: VecDeque<(usize, Time)>,
    least: Span,
    /// Of the first round trips of this round.
    round_least: Span,
    samples: u32,
    round_end: usize,
    /// Smoothed round trip and its mean deviation (RFC 6298).
    round_trip: Option<(Span, Span)>,
    epoch: Option<Epoch>,
    /// Packets that the link has dropped, and when the sender learns of the last ones.
    dropped: u64,
    loss_at: Option<Time>,
}

/// CUBIC since the end of slow start or the last loss. Windows are in segments.
struct Epoch {
    start: Time,
    /// Where the growth is slowest, and seconds from the start until then.
    plateau: f64,
    seconds: f64,
    /// The window that Reno would have.
    reno: f64,
}

impl Window {
    pub fn new(growth: Growth) -> Self {
        Self {
            growth,
            window: INITIAL as f64,
            is_slow_start: true,
            sent: 0,
            acknowledged: 0,
            pieces: VecDeque::new(),
            least: Span::MAX,
            round_least: Span::MAX,
            samples: 0,
            round_end: 0,
            round_trip: None,
            epoch: None,
            dropped: 0,
            loss_at: None,
        }
    }

    /// Bytes that were sent, and those of them that were acknowledged.
    pub fn sent(&self) -> usize {
        self.sent
    }

    pub fn acknowledged(&self) -> usize {
        self.acknowledged
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.window as usize
    }

    /// Smoothed round trip and its mean deviation; `None` before the first one.
    pub fn round_trip(&self) -> Option<(Span, Span)> {
        self.round_trip
    }

    /// Time without an acknowledgement after which the path stands still.
    pub fn timeout(&self) -> Span {
        let (smoothed, deviation) = self.round_trip.unwrap_or_default();
        let four = Span::from_nanos(4 * deviation.as_nanos());
        smoothed + four.max(MIN_TIMEOUT)
    }

    /// Notes how many of the sent bytes wait for an acknowledgement.
    pub fn on_waiting(&mut self, now: Time, waiting: usize) {
        let newly = self.sent - waiting - self.acknowledged;
        self.acknowledged += newly;
        while let Some((end, at)) = self.pieces.pop_front_if(|piece| piece.0 <= self.acknowledged) {
            if end > self.round_end {
                (self.round_end, self.samples, self.round_least) = (self.sent, 0, Span::MAX);
            }
            let round_trip = now.since(at);
            self.least = self.least.min(round_trip);
            self.on_round_trip(round_trip);
            if self.samples < SAMPLES {
                self.round_least = self.round_least.min(round_trip);
                self.samples += 1;
            }
        }
        let (low, high) = INCREASE;
        let increase = Span::from_nanos(self.least.as_nanos() / 8).max(low).min(high);
        let is_full = self.samples == SAMPLES;
        let is_longer = self.round_least.saturating_sub(self.least) >= increase;
        self.is_slow_start &= !(is_full && is_longer);
        match self.is_slow_start {
            true => self.window += newly as f64,
            false if self.growth == Growth::Cubic && newly > 0 => self.grow(now, newly),
            false => {}
        }
    }

    /// Notes a round trip. The application notes that of the handshake, which slow start ignores.
    pub fn on_round_trip(&mut self, round_trip: Span) {
        let nanos = |span: Span| span.as_nanos();
        self.round_trip = Some(match self.round_trip {
            None => (round_trip, Span::from_nanos(nanos(round_trip) / 2)),
            Some((smoothed, deviation)) => {
                let difference = nanos(smoothed).abs_diff(nanos(round_trip));
                let smoothed = (7 * nanos(smoothed) + nanos(round_trip)) / 8;
                let deviation = (3 * nanos(deviation) + difference) / 4;
                (Span::from_nanos(smoothed), Span::from_nanos(deviation))
            }
        });
    }

    /// CUBIC's growth for acknowledged bytes (RFC 9438, 4.2 to 4.4).
    fn grow(&mut self, now: Time, newly: usize) {
        let segments = self.window / SEGMENT as f64;
        let epoch = self.epoch.get_or_insert(Epoch {
            start: now,
            plateau: segments,
            seconds: 0.0,
            reno: segments,
        });
        let share = newly as f64 / self.window;
        epoch.reno += RENO * share;
        let round_trip = self.round_trip.unwrap_or_default().0;
        let since = (now.since(epoch.start) + round_trip).as_secs_f64();
        let target = C * (since - epoch.seconds).powi(3) + epoch.plateau;
        let target = target.max(epoch.reno).clamp(segments, 1.5 * segments);
        self.window += (target - segments) * share * SEGMENT as f64;
    }

    /// Notes how many packets the link has dropped until now. The sender learns of that a round trip
    /// later, as by duplicate acknowledgements; its window then shrinks once for all that it had
    /// sent before.
    pub fn on_dropped(&mut self, now: Time, dropped: u64) {
        if self.growth == Growth::None {
            return;
        }
        if dropped > self.dropped && self.loss_at.is_none() {
            self.loss_at = Some(now + self.round_trip.unwrap_or_default().0);
        }
        self.dropped = dropped;
        if self.loss_at.is_some_and(|at| at <= now) {
            self.loss_at = None;
            self.is_slow_start = false;
            let segments = self.window / SEGMENT as f64;
            let smaller = (BETA * segments).max(2.0);
            let seconds = ((segments - smaller) / C).cbrt();
            self.epoch = Some(Epoch { start: now, plateau: segments, seconds, reno: smaller });
            self.window = smaller * SEGMENT as f64;
        }
    }

    /// Bytes that may be sent now.
    pub fn room(&self) -> usize {
        self.size().saturating_sub(self.sent - self.acknowledged)
    }

    pub fn on_sent(&mut self, now: Time, bytes: usize) {
        self.sent += bytes;
        self.pieces.push_back((self.sent, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Span = Span::from_millis(50);

    /// Sends and acknowledges whole windows for this many round trips, each as long as `round_trip`
    /// returns for the window. Returns the windows in segments.
    fn windows(window: &mut Window, rounds: u64, round_trip: impl Fn(usize) -> Span) -> Vec<usize> {
        let mut now = Time::ZERO;
        let mut seen = Vec::new();
        for _ in 0..rounds {
            while window.room() >= SEGMENT {
                window.on_sent(now, SEGMENT);
            }
            now += round_trip(window.size() / SEGMENT);
            window.on_waiting(now, 0);
            seen.push(window.size() / SEGMENT);
        }
        seen
    }

    #[test]
    fn slow_start_doubles_until_the_round_trips_increase() {
        let mut window = Window::new(Growth::None);
        let longer = |segments| ROUND_TRIP + Span::from_millis(if segments > 50 { 10 } else { 0 });
        assert_eq!(windows(&mut window, 5, longer), [20, 40, 80, 80, 80]);
        assert_eq!(window.round_trip().map(|(smoothed, _)| smoothed > ROUND_TRIP), Some(true));
    }

    #[test]
    fn the_window_then_grows_as_cubic_and_shrinks_once_per_loss() {
        let mut window = Window::new(Growth::Cubic);
        let longer = |segments| ROUND_TRIP + Span::from_millis(if segments > 50 { 10 } else { 0 });
        let seen = windows(&mut window, 3 + 100, longer);
        // 6 s of 60 ms: 0.4 · 6³ segments, less what grows only with the next acknowledgements.
        let last = seen[102] as f64;
        assert!((last - (80.0 + 0.4 * 216.0)).abs() < 10.0, "{last}");

        let now = Time::ZERO + Span::from_secs(100);
        let before = window.size();
        window.on_dropped(now, 3);
        window.on_dropped(now, 5);
        assert_eq!(window.size(), before);
        let learned = now + Span::from_millis(70);
        window.on_dropped(learned, 5);
        window.on_dropped(learned + Span::from_secs(1), 5);
        assert_eq!(window.size(), (before as f64 * 0.7) as usize);
    }

    #[test]
    fn a_timeout_is_the_round_trip_and_200_ms_at_least() {
        let mut window = Window::new(Growth::Cubic);
        assert_eq!(window.timeout(), MIN_TIMEOUT);
        window.on_round_trip(ROUND_TRIP);
        assert_eq!(window.timeout(), Span::from_millis(250));
        window.on_round_trip(Span::from_millis(450));
        // Smoothed 100 ms, deviation (3 · 25 + 400) / 4 ms.
        assert_eq!(window.timeout(), Span::from_millis(575));
    }
}
