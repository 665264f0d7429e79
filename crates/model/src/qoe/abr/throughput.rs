//! The throughput rule of dash.js (Spiteri, Sitaraman, Sparacio: From Theory to Practice, MMSys 2018).

use super::{Decision, Progress, Rule, View, sustainable};

/// Part of the estimate that is used.
const SAFETY: f64 = 0.9;
/// Part of the buffer within which a segment must arrive: at the start, and at least.
const FIRST_BUFFER_SAFETY: f64 = 0.9;
const BUFFER_SAFETY: f64 = 0.5;
/// A download is abandoned if it takes longer than so many segments.
const ABANDON_AFTER: f64 = 1.8;
/// Age of a download below which it is not abandoned, in seconds.
const GRACE: f64 = 0.5;

/// The highest rung below the estimate, with a margin that grows as the session lasts; never one whose
/// segment would empty the buffer.
#[derive(Debug, Default)]
pub(super) struct Throughput {
    buffer: InsufficientBuffer,
}

/// The highest rung whose segment arrives before the buffer is empty.
#[derive(Debug)]
pub(super) struct InsufficientBuffer {
    safety: f64,
}

impl Default for InsufficientBuffer {
    fn default() -> Self {
        Self { safety: FIRST_BUFFER_SAFETY }
    }
}

impl InsufficientBuffer {
    /// The largest rung up to `rung` that is safe.
    pub(super) fn limit(&mut self, view: &View<'_>, rung: usize) -> usize {
        let Some(network) = view.network else { return rung };
        let bits = self.safety * (view.level - network.latency) * network.throughput;
        self.safety = (self.safety * FIRST_BUFFER_SAFETY).max(BUFFER_SAFETY);
        let duration = view.film.usual_duration().as_secs_f64();
        let is_unsafe = |rung: &usize| view.film.bitrate(*rung + 1) * duration > bits;
        (0..rung).find(is_unsafe).unwrap_or(rung)
    }
}

impl Rule for Throughput {
    fn decide(&mut self, view: &View<'_>) -> Decision {
        let Some(network) = view.network else { return Decision { rung: 0, wait: 0.0 } };
        let rung = sustainable(view.film, network.throughput * SAFETY, network.latency);
        Decision { rung: self.buffer.limit(view, rung), wait: 0.0 }
    }

    fn abandon(&mut self, view: &View<'_>, progress: &Progress) -> Option<usize> {
        let time = progress.elapsed - progress.first_byte;
        if progress.elapsed < GRACE || time <= 0.0 {
            return None;
        }
        let throughput = progress.received / time;
        let left = progress.size - progress.received;
        let duration = view.film.usual_duration().as_secs_f64();
        if progress.elapsed + left / throughput <= ABANDON_AFTER * duration {
            return None;
        }
        let latency = view.network.map_or(0.0, |network| network.latency);
        let rung = sustainable(view.film, throughput * SAFETY, latency);
        let size = progress.size * view.film.bitrate(rung) / view.film.bitrate(progress.rung);
        (rung < progress.rung && size < left).then_some(rung)
    }
}
