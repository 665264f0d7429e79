//! BOLA-E (Spiteri, Sitaraman, Sparacio: From Theory to Practice, MMSys 2018): BOLA with a virtual part
//! of the buffer, the placeholder, so that it begins at the rung of the throughput and does not fall when
//! the player could not load; and with the insufficient-buffer rule.

use super::throughput::InsufficientBuffer;
use super::{Decision, Ended, Progress, Rule, View, sustainable, utilities};
use crate::qoe::film::Film;

/// Level in seconds below which the lowest rung is best.
const MIN_BUFFER: f64 = 10.0;
/// Seconds that the buffer must have for each rung.
const BUFFER_OF_RUNG: f64 = 2.0;
/// Relative difference of scores that is none; the lower rung is taken.
const TIE: f64 = 1e-9;

#[derive(Debug)]
pub(super) struct BolaE {
    utilities: Vec<f64>,
    /// γp in seconds, and V · p.
    gamma_p: f64,
    control: f64,
    placeholder: f64,
    last: usize,
    is_steady: bool,
    buffer: InsufficientBuffer,
}

impl BolaE {
    pub(super) fn new(film: &Film, max_buffer: f64) -> Self {
        let utilities = utilities(film, 1.0);
        let rungs = utilities.len() as f64;
        let buffer = (MIN_BUFFER + BUFFER_OF_RUNG * rungs).max(max_buffer);
        let highest = utilities.last().copied().unwrap_or(1.0);
        // With one rung there is nothing to decide, and γp would be zero.
        let gamma_p = ((highest - 1.0) / (buffer / MIN_BUFFER - 1.0)).max(1e-9);
        Self {
            utilities,
            gamma_p,
            control: MIN_BUFFER / gamma_p,
            placeholder: 0.0,
            last: 0,
            is_steady: false,
            buffer: InsufficientBuffer::default(),
        }
    }

    fn worth(&self, rung: usize, level: f64) -> f64 {
        self.control * (self.utilities[rung] + self.gamma_p) - level
    }

    fn best_at(&self, film: &Film, level: f64) -> usize {
        let score = |rung: usize| self.worth(rung, level) / film.bitrate(rung);
        // At the minimum level of a rung, two rungs are equally good, except for rounding. The higher one would
        // soon be abandoned again.
        let is_better =
            |rung: usize, best: usize| score(rung) > score(best) + TIE * score(best).abs();
        let better = |best: usize, rung: usize| if is_better(rung, best) { rung } else { best };
        (1..self.utilities.len()).fold(0, better)
    }

    /// Level above which a rung is preferred to all lower ones.
    fn min_level(&self, film: &Film, rung: usize) -> f64 {
        let (rate, utility) = (film.bitrate(rung), self.utilities[rung]);
        let level = |lower: usize| {
            let (low, worth) = (film.bitrate(lower), self.utilities[lower]);
            self.control * (self.gamma_p + (rate * worth - low * utility) / (rate - low))
        };
        (0..rung).map(level).fold(0.0, f64::max)
    }

    /// Level above which nothing should be fetched at a rung.
    fn max_level(&self, rung: usize) -> f64 {
        self.worth(rung, 0.0)
    }
}

impl Rule for BolaE {
    fn decide(&mut self, view: &View<'_>) -> Decision {
        let (film, level) = (view.film, view.level);
        let Some(network) = view.network else { return Decision { rung: self.last, wait: 0.0 } };
        let sustained = sustainable(film, network.throughput, network.latency);
        if !self.is_steady {
            self.is_steady = true;
            self.placeholder = (self.min_level(film, sustained) - level).max(0.0);
            return Decision { rung: sustained, wait: 0.0 };
        }
        let mut rung = self.best_at(film, level + self.placeholder);
        if rung > self.last && rung > sustained {
            rung = self.last.max(sustained) + 1;
        }
        let surplus = (level + self.placeholder - self.max_level(rung)).max(0.0);
        let virtual_part = surplus.min(self.placeholder);
        self.placeholder -= virtual_part;
        let mut wait = if rung == film.highest() { 0.0 } else { surplus - virtual_part };
        let safe = self.buffer.limit(view, rung);
        if safe < rung {
            wait = 0.0;
            self.placeholder = self.placeholder.min((self.min_level(film, safe) - level).max(0.0));
        }
        Decision { rung: safe, wait }
    }

    fn on_full(&mut self, seconds: f64) {
        self.placeholder += seconds;
    }

    fn on_ended(&mut self, view: &View<'_>, ended: &Ended) {
        self.last = ended.rung;
        let level = view.level;
        match ended.abandoned_for {
            None => {
                let before = level + ended.elapsed;
                let most = (self.max_level(ended.rung) - before).max(0.0);
                self.placeholder = self.placeholder.min(most);
                if level > 0.0 {
                    let least = self.min_level(view.film, ended.rung) - before;
                    self.placeholder = self.placeholder.max(least);
                }
            }
            Some(rung) => {
                let wanted = if rung > 0 { self.min_level(view.film, rung) } else { MIN_BUFFER };
                self.placeholder = self.placeholder.min((wanted - level).max(0.0));
            }
        }
    }

    fn abandon(&mut self, view: &View<'_>, progress: &Progress) -> Option<usize> {
        let left = progress.size - progress.received;
        if progress.received <= 0.0 || left <= 0.0 {
            return None;
        }
        // Another request has its own latency, in which this download would continue.
        let level = (view.level + self.placeholder - progress.first_byte).max(0.0);
        let throughput = progress.received / (progress.elapsed - progress.first_byte);
        let left = left - progress.first_byte * throughput;
        if left <= 0.0 {
            return None;
        }
        let mut score = self.worth(progress.rung, level) / left;
        let mut found = None;
        for rung in 0..progress.rung {
            let size = progress.size * view.film.bitrate(rung) / view.film.bitrate(progress.rung);
            let other = self.worth(rung, level) / size;
            if size < left && other > score {
                (score, found) = (other, Some(rung));
            }
        }
        found
    }
}
