//! BBA (Huang, Johari, McKeown, Trunnell, Watson: A Buffer-Based Approach to Rate Adaptation, SIGCOMM
//! 2014): the level of the buffer alone selects the bitrate.
//!
//! From the paper: the chunk map of BBA-1 from a reservoir to a cushion, with the hysteresis of
//! algorithm 1, and the reservoir that the sizes of the next segments need. Its numbers are for a buffer
//! of 240 seconds; a smaller buffer has the same proportions. Different from BBA-2: at the start, the
//! estimate of the throughput selects the bitrate, as in Mobilyzer (§4.5.2), until the map selects no
//! less or the buffer falls.

use super::{Decision, Rule, View, sustainable};

/// Buffer of the paper in seconds, and its shortest and longest reservoir.
const BUFFER: f64 = 240.0;
const MIN_RESERVOIR: f64 = 8.0;
const MAX_RESERVOIR: f64 = 140.0;
/// Part of the buffer up to which the map rises.
const CUSHION_END: f64 = 0.9;
/// Buffers ahead of the player whose sizes give the reservoir.
const LOOK_AHEAD: f64 = 2.0;

#[derive(Debug)]
pub(super) struct Bba {
    /// At most that of the paper.
    max_buffer: f64,
    is_starting: bool,
    /// Level at the previous decision.
    level: f64,
}

impl Bba {
    pub(super) fn new(max_buffer: f64) -> Self {
        Self { max_buffer: max_buffer.min(BUFFER), is_starting: true, level: 0.0 }
    }

    /// Seconds of the buffer that the next segments need at the lowest rung, if the network carries just
    /// its nominal bitrate.
    fn reservoir(&self, view: &View<'_>) -> f64 {
        let (film, mut needed, mut most) = (view.film, 0.0, 0.0_f64);
        let mut ahead = 0.0;
        for (index, segment) in film.segments().iter().enumerate().skip(view.segment) {
            let duration = segment.duration.as_secs_f64();
            needed += film.bits(index, 0) / film.bitrate(0) - duration;
            most = most.max(needed);
            ahead += duration;
            if ahead > LOOK_AHEAD * self.max_buffer {
                break;
            }
        }
        let scale = self.max_buffer / BUFFER;
        let least = (MIN_RESERVOIR * scale).max(film.usual_duration().as_secs_f64());
        most.max(least).min(MAX_RESERVOIR * scale)
    }

    /// The rung that the level of the buffer selects.
    fn mapped(&self, view: &View<'_>) -> usize {
        let film = view.film;
        let highest = film.highest();
        let (low, high) = (self.reservoir(view), CUSHION_END * self.max_buffer);
        if view.level <= low {
            return 0;
        }
        if view.level >= high {
            return highest;
        }
        let duration = film.usual_duration().as_secs_f64();
        let [least, most] = [0, highest].map(|rung| film.bitrate(rung) * duration);
        let permitted = least + (most - least) * (view.level - low) / (high - low);
        let bits = |rung: usize| film.bits(view.segment, rung);
        let last = view.last.unwrap_or(0);
        if last < highest && permitted >= bits(last + 1) {
            return (0..=highest).rev().find(|rung| bits(*rung) < permitted).unwrap_or(0);
        }
        if last > 0 && permitted <= bits(last - 1) {
            return (0..=highest).find(|rung| bits(*rung) > permitted).unwrap_or(highest);
        }
        last
    }
}

impl Rule for Bba {
    fn decide(&mut self, view: &View<'_>) -> Decision {
        let falls = view.level < self.level;
        self.level = view.level;
        let mapped = self.mapped(view);
        let sustained = view.network.map_or(0, |now| sustainable(view.film, now.throughput, 0.0));
        self.is_starting &= !falls && mapped < sustained;
        let rung = if self.is_starting { sustained } else { mapped };
        Decision { rung, wait: 0.0 }
    }
}
