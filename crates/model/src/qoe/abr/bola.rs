//! BOLA (Spiteri, Urgaonkar, Sitaraman: BOLA, Near-Optimal Bitrate Adaptation for Online Videos, INFOCOM
//! 2016), with its finite-buffer heuristics for the beginning and the end of a film, and abandoning.
//!
//! The variant is BOLA-U: when the buffer suggests a rung above the throughput, one rung above it is
//! taken.

use super::{Decision, Progress, Rule, View, sustainable, utilities};
use crate::qoe::film::Film;

/// γp of the paper in seconds: how much a stall weighs against bitrate.
const GAMMA_P: f64 = 5.0;
/// Segments after the beginning, and before the end, for which the buffer counts as not yet full.
const MIN_SEGMENTS: f64 = 3.0;

#[derive(Debug)]
pub(super) struct Bola {
    utilities: Vec<f64>,
    max_buffer: f64,
    /// The control parameter V · p in seconds.
    control: f64,
    last: usize,
}

impl Bola {
    pub(super) fn new(film: &Film, max_buffer: f64) -> Self {
        let mut bola = Self { utilities: utilities(film, 0.0), max_buffer, control: 0.0, last: 0 };
        bola.set_buffer(film, max_buffer);
        bola
    }

    fn set_buffer(&mut self, film: &Film, buffer: f64) {
        let highest = self.utilities.last().copied().unwrap_or(0.0);
        self.control = (buffer - film.usual_duration().as_secs_f64()) / (highest + GAMMA_P);
    }

    /// Worth of a rung at a level of the buffer, before it is divided by the size.
    fn worth(&self, rung: usize, level: f64) -> f64 {
        self.control * (self.utilities[rung] + GAMMA_P) - level
    }

    fn best_at(&self, view: &View<'_>) -> usize {
        let score = |rung: usize| self.worth(rung, view.level) / view.film.bitrate(rung);
        let better = |best: usize, rung: usize| if score(rung) > score(best) { rung } else { best };
        (1..self.utilities.len()).fold(0, better)
    }
}

impl Rule for Bola {
    fn decide(&mut self, view: &View<'_>) -> Decision {
        let left = view.film.segments().len().saturating_sub(view.segment);
        let from_border = view.segment.min(left) as f64;
        let fills =
            (from_border / 2.0).max(MIN_SEGMENTS) * view.film.usual_duration().as_secs_f64();
        self.set_buffer(view.film, self.max_buffer.min(fills));
        let mut rung = self.best_at(view);
        if rung > self.last
            && let Some(network) = view.network
        {
            let sustained = sustainable(view.film, network.throughput, network.latency);
            if rung > sustained {
                rung = if self.last > sustained { self.last } else { sustained + 1 };
            }
        }
        self.last = rung;
        Decision { rung, wait: 0.0 }
    }

    fn abandon(&mut self, view: &View<'_>, progress: &Progress) -> Option<usize> {
        let left = progress.size - progress.received;
        if progress.received <= 0.0 || left <= 0.0 {
            return None;
        }
        let mut score = self.worth(progress.rung, view.level) / left;
        if score < 0.0 {
            return None;
        }
        let mut found = None;
        for rung in 0..progress.rung {
            let size = progress.size * view.film.bitrate(rung) / view.film.bitrate(progress.rung);
            let other = self.worth(rung, view.level) / size;
            if size < left && other > score {
                (score, found) = (other, Some(rung));
            }
        }
        if let Some(rung) = found {
            self.last = rung;
        }
        found
    }
}
