//! RobustMPC (Yin, Jindal, Sekar, Sinopoli: A Control-Theoretic Approach for Dynamic Adaptive Video
//! Streaming over HTTP, SIGCOMM 2015): the rungs of the next five segments that are best for a
//! pessimistic throughput, of which the first one is taken.
//!
//! A sequence is as good as the sum of its bitrates, less its changes of bitrate, less its stalls; a
//! second of stall weighs as much as a segment at the highest bitrate. The throughput is the harmonic
//! mean of five downloads, divided by one plus the largest error of the latest five predictions. The
//! paper has a table of solutions for speed; here the search is complete, and leaves out sequences that
//! cannot become better.

use super::{Decision, Ended, Rule, View};

/// Segments that are planned.
const HORIZON: usize = 5;
/// Downloads from which the throughput is predicted.
const WINDOW: usize = 5;

#[derive(Debug)]
pub(super) struct RobustMpc {
    max_buffer: f64,
    /// Bits per second of the latest downloads, latency included.
    throughputs: Vec<f64>,
    /// Relative errors of the latest predictions.
    errors: Vec<f64>,
    /// Harmonic mean at the latest decision.
    predicted: Option<f64>,
}

impl RobustMpc {
    pub(super) fn new(max_buffer: f64) -> Self {
        Self { max_buffer, throughputs: Vec::new(), errors: Vec::new(), predicted: None }
    }

    fn harmonic_mean(&self) -> Option<f64> {
        let inverse: f64 = self.throughputs.iter().map(|one| 1.0 / one).sum();
        (inverse > 0.0).then(|| self.throughputs.len() as f64 / inverse)
    }
}

fn push(window: &mut Vec<f64>, value: f64) {
    window.push(value);
    if window.len() > WINDOW {
        window.remove(0);
    }
}

impl Rule for RobustMpc {
    fn decide(&mut self, view: &View<'_>) -> Decision {
        let Some(mean) = self.harmonic_mean() else { return Decision { rung: 0, wait: 0.0 } };
        self.predicted = Some(mean);
        let error = self.errors.iter().copied().fold(0.0, f64::max);
        let plan = Search { view, throughput: mean / (1.0 + error), max_buffer: self.max_buffer };
        Decision { rung: plan.best().rung, wait: 0.0 }
    }

    fn on_ended(&mut self, _view: &View<'_>, ended: &Ended) {
        if ended.abandoned_for.is_some() || ended.elapsed <= 0.0 || ended.received <= 0.0 {
            return;
        }
        let throughput = ended.received / ended.elapsed;
        if let Some(predicted) = self.predicted.take() {
            push(&mut self.errors, (predicted - throughput).abs() / throughput);
        }
        push(&mut self.throughputs, throughput);
    }
}

/// The search for the best sequence of rungs.
pub(super) struct Search<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) throughput: f64,
    pub(super) max_buffer: f64,
}

/// The best sequence: its first rung, and its worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Best {
    pub(super) rung: usize,
    pub(super) worth: f64,
}

/// A sequence so far.
#[derive(Clone, Copy)]
struct Prefix {
    first: Option<usize>,
    last: Option<usize>,
    level: f64,
    worth: f64,
}

impl Search<'_> {
    pub(super) fn best(&self) -> Best {
        let mut best = Best { rung: 0, worth: f64::NEG_INFINITY };
        let view = self.view;
        let start = Prefix { first: None, last: view.last, level: view.level, worth: 0.0 };
        self.extend(view.segment, start, &mut best);
        best
    }

    fn end(&self) -> usize {
        (self.view.segment + HORIZON).min(self.view.film.segments().len())
    }

    fn extend(&self, segment: usize, prefix: Prefix, best: &mut Best) {
        let film = self.view.film;
        let left = self.end().saturating_sub(segment);
        if left == 0 {
            if let Some(rung) = prefix.first.filter(|_| prefix.worth > best.worth) {
                *best = Best { rung, worth: prefix.worth };
            }
            return;
        }
        // Each further segment is worth the highest bitrate at most.
        if prefix.worth + left as f64 * quality(film.bitrate(film.highest())) <= best.worth {
            return;
        }
        for rung in 0..film.rungs().len() {
            self.extend(segment + 1, self.step(segment, prefix, rung), best);
        }
    }

    fn step(&self, segment: usize, prefix: Prefix, rung: usize) -> Prefix {
        let film = self.view.film;
        let time = film.bits(segment, rung) / self.throughput;
        let stall = (time - prefix.level).max(0.0);
        let duration = film.segments()[segment].duration.as_secs_f64();
        let level = ((prefix.level - time).max(0.0) + duration).min(self.max_buffer);
        let change = prefix
            .last
            .map_or(0.0, |last| (quality(film.bitrate(rung)) - quality(film.bitrate(last))).abs());
        let worth =
            quality(film.bitrate(rung)) - change - quality(film.bitrate(film.highest())) * stall;
        Prefix {
            first: prefix.first.or(Some(rung)),
            last: Some(rung),
            level,
            worth: prefix.worth + worth,
        }
    }
}

/// In Mbit/s.
fn quality(bitrate: f64) -> f64 {
    bitrate / 1e6
}
