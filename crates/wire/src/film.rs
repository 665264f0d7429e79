//! Films for measurements of players: ladders of rates, and segments of exact lengths.
//!
//! A [`Film`] is what a manifest contains: rungs with the length of each segment. [`Options::plan`]
//! makes a hollow one, whose black pictures (see [`crate::mp4`]) are padded to lengths that vary
//! like those of a real one; [`manifests`] writes the manifests of any.

mod ladder;
mod manifest;
#[cfg(test)]
mod tests;

use manyways_unit::{Random, Rate, Size, Span};

pub use self::ladder::{LADDERS, Ladder, Step, picture_for};
pub use self::manifest::{Layout, index, manifests};
use crate::mp4::{self, LengthError, Track};

/// Limits of a duration.
pub const MIN_DURATION: Span = Span::from_secs(1);
pub const MAX_DURATION: Span = Span::from_secs(6 * 3_600);
/// Limits of the duration of a segment.
pub const MIN_SEGMENT: Span = Span::from_millis(200);
pub const MAX_SEGMENT: Span = Span::from_secs(60);
/// Limits of the rate of a rung.
pub const MIN_RATE: Rate = Rate::from_kbps(10);
pub const MAX_RATE: Rate = Rate::from_mbps(1_000);
pub const MAX_RUNGS: usize = 32;
/// Maximum number of segments of all rungs together, each of which may be a file.
pub const MAX_SEGMENTS: u64 = 100_000;

const MILLISECOND: u64 = 1_000_000;

/// A film in several rates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Film {
    pub duration: Span,
    /// Duration of each segment; the last one may be shorter.
    pub segment: Span,
    /// With rising rates.
    pub rungs: Vec<Rung>,
}

/// One rate of a film.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rung {
    /// Its folder and its id in manifests, such as `253k`.
    pub name: String,
    /// The declared rate.
    pub rate: Rate,
    pub width: u16,
    pub height: u16,
    /// Codec of RFC 6381.
    pub codec: String,
    /// Length of the initialization segment.
    pub init: Size,
    /// Length of each segment.
    pub segments: Vec<Size>,
}

/// The parameters of a film.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    pub steps: Vec<Step>,
    pub duration: Span,
    pub segment: Span,
    /// Standard deviation of the lengths of segments of equal duration, relative to their mean.
    pub variation: f64,
    pub seed: u64,
}

/// A film that cannot be made; one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilmError {
    #[error("a film lasts from {MIN_DURATION} to {MAX_DURATION}, not {0}")]
    Duration(Span),
    #[error("a segment lasts from {MIN_SEGMENT} to {MAX_SEGMENT}, not {0}")]
    Segment(Span),
    #[error("a segment of {0} is longer than the film")]
    LongSegment(Span),
    #[error("{0} is not a whole number of milliseconds")]
    Fraction(Span),
    #[error("the variation is from 0 to 1, not {0}")]
    Variation(String),
    #[error("a film has from 1 to {MAX_RUNGS} rungs, not {0}")]
    Rungs(usize),
    #[error("the rate of a rung is from {MIN_RATE} to {MAX_RATE}, not {0}")]
    Rate(Rate),
    #[error("two rungs have the rate {0}")]
    SameRate(Rate),
    #[error("the film has {0} segments in all rungs, and {MAX_SEGMENTS} is the maximum")]
    Segments(u64),
    #[error("segment {number} of the rung {rung} has {length}, but {error}")]
    Length { rung: String, number: usize, length: Size, error: LengthError },
}

impl Options {
    /// A film of these rungs, in any order, whose segments vary by a fifth.
    pub fn new(steps: Vec<Step>, duration: Span, segment: Span) -> Self {
        Self { steps, duration, segment, variation: 0.2, seed: 1 }
    }

    /// Returns the film without the lengths that its encoder decides: those of `init` are zero, and
    /// there are no segments.
    ///
    /// # Errors
    /// If a parameter is outside its limits.
    pub fn outline(&self) -> Result<Film, FilmError> {
        self.check()?;
        let mut steps = self.steps.clone();
        steps.sort_by_key(|step| step.rate);
        if let Some(pair) = steps.windows(2).find(|pair| pair[0].rate == pair[1].rate) {
            return Err(FilmError::SameRate(pair[0].rate));
        }
        let rung = |step: Step| Rung {
            name: name(step.rate),
            rate: step.rate,
            width: step.width,
            height: step.height,
            codec: Track::new(step.width, step.height, self.duration).codec(),
            init: Size::ZERO,
            segments: Vec::new(),
        };
        let film = Film {
            duration: self.duration,
            segment: self.segment,
            rungs: steps.into_iter().map(rung).collect(),
        };
        let segments = film.spans().len() as u64 * film.rungs.len() as u64;
        if segments > MAX_SEGMENTS {
            return Err(FilmError::Segments(segments));
        }
        Ok(film)
    }

    /// Returns a hollow film. The lengths of its segments are log-normal with the variation, and the
    /// same in all rungs in proportion to the rate, because a scene that is hard to encode is so at every
    /// rate. They are scaled so that the mean of each rung is its rate, boxes included.
    ///
    /// # Errors
    /// As [`Self::outline`], and if a segment would be too short for its pictures, or too long.
    pub fn plan(&self) -> Result<Film, FilmError> {
        let mut film = self.outline()?;
        let spans = film.spans();
        let weights = self.weights(&spans);
        for rung in &mut film.rungs {
            let track = Track::new(rung.width, rung.height, self.duration);
            rung.init = Size::from_bytes(track.init().len() as u64);
            // All segments have the same duration, except for the last one.
            let [usual, last] = [film.segment, spans[spans.len() - 1]];
            let minima = [usual, last].map(|span| track.min_segment(span));
            let (mut exact, mut before) = (0.0, 0);
            for (at, (span, weight)) in spans.iter().zip(&weights).enumerate() {
                // Rounds the sum, so that the mean is exact.
                exact += rung.rate.as_bps() as f64 / 8.0 * span.as_secs_f64() * weight;
                let length = Size::from_bytes(exact.round() as u64 - before);
                before = exact.round() as u64;
                let minimum = minima[usize::from(*span != usual)];
                mp4::padding(length, minimum).map_err(|error| FilmError::Length {
                    rung: rung.name.clone(),
                    number: at + 1,
                    length,
                    error,
                })?;
                rung.segments.push(length);
            }
        }
        Ok(film)
    }

    /// A factor for the length of each segment; their mean, weighted with the durations, is 1.
    fn weights(&self, spans: &[Span]) -> Vec<f64> {
        let mut random = Random::new(self.seed);
        // The variation of a log-normal number depends on the deviation of its logarithm alone.
        let deviation = (1.0 + self.variation * self.variation).ln().sqrt();
        let drawn: Vec<f64> =
            spans.iter().map(|_| (deviation * normal(&mut random)).exp()).collect();
        let total: f64 = spans.iter().map(|span| span.as_secs_f64()).sum();
        let weighted: f64 =
            spans.iter().zip(&drawn).map(|(span, one)| span.as_secs_f64() * one).sum();
        drawn.into_iter().map(|one| one * total / weighted).collect()
    }

    fn check(&self) -> Result<(), FilmError> {
        let is_whole = |span: &Span| span.as_nanos().is_multiple_of(MILLISECOND);
        if !(MIN_DURATION..=MAX_DURATION).contains(&self.duration) {
            return Err(FilmError::Duration(self.duration));
        }
        if !(MIN_SEGMENT..=MAX_SEGMENT).contains(&self.segment) {
            return Err(FilmError::Segment(self.segment));
        }
        if self.segment > self.duration {
            return Err(FilmError::LongSegment(self.segment));
        }
        if let Some(span) = [self.duration, self.segment].into_iter().find(|span| !is_whole(span)) {
            return Err(FilmError::Fraction(span));
        }
        if !(0.0..=1.0).contains(&self.variation) {
            return Err(FilmError::Variation(self.variation.to_string()));
        }
        if self.steps.is_empty() || self.steps.len() > MAX_RUNGS {
            return Err(FilmError::Rungs(self.steps.len()));
        }
        let rates = self.steps.iter().map(|step| step.rate);
        match rates.into_iter().find(|rate| !(MIN_RATE..=MAX_RATE).contains(rate)) {
            Some(rate) => Err(FilmError::Rate(rate)),
            None => Ok(()),
        }
    }
}

impl Film {
    /// The duration of each segment.
    pub fn spans(&self) -> Vec<Span> {
        let (all, one) = (self.duration.as_nanos(), self.segment.as_nanos().max(1));
        let mut spans = vec![self.segment; (all / one) as usize];
        if !all.is_multiple_of(one) {
            spans.push(Span::from_nanos(all % one));
        }
        spans
    }

    /// The length of all segments of all rungs.
    pub fn length(&self) -> Size {
        self.rungs.iter().map(Rung::length).sum()
    }
}

impl Rung {
    /// The length of all segments.
    pub fn length(&self) -> Size {
        self.segments.iter().copied().sum()
    }

    /// The mean rate, which differs from the declared one if an encoder missed it.
    pub fn mean(&self, film: &Film) -> Rate {
        Rate::of(self.length(), film.duration)
    }

    /// The rate of the segment with the highest one.
    pub fn peak(&self, film: &Film) -> Rate {
        let spans = film.spans();
        let rates = self.segments.iter().zip(&spans).map(|(length, span)| Rate::of(*length, *span));
        rates.max().unwrap_or_default()
    }
}

/// The name of a rung: its rate in kbit/s, or in bit/s if that is not a whole number.
fn name(rate: Rate) -> String {
    match rate.as_bps() {
        bps if bps.is_multiple_of(1_000) => format!("{}k", bps / 1_000),
        bps => bps.to_string(),
    }
}

/// A number of the standard normal distribution (Box and Muller, "A note on the generation of
/// random normal deviates", 1958).
fn normal(random: &mut Random) -> f64 {
    let positive: f64 = 1.0 - random.uniform();
    let radius = (-2.0 * positive.ln()).sqrt();
    radius * (std::f64::consts::TAU * random.uniform()).cos()
}
