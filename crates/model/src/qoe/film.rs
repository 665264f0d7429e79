//! A film: segments in time, each available in several bitrates.

use manyways_unit::{Rate, Size, Span};

/// A film of at least one segment and one rung.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Film {
    rungs: Vec<Rate>,
    segments: Vec<Segment>,
    /// The most frequent duration of a segment.
    usual_duration: Span,
}

/// A part of a film, which begins where the previous one ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub duration: Span,
    /// Size at each rung; `None` where it is not known before the segment is fetched.
    pub sizes: Vec<Option<Size>>,
}

/// Why a film cannot be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidFilm {
    #[error("the film has no bitrate")]
    NoRung,
    #[error("the film has no segment")]
    NoSegment,
    #[error("a bitrate of the film is not higher than the one before it")]
    RungsOutOfOrder,
    #[error("segment {0} has no duration")]
    NoDuration(usize),
    #[error("segment {0} does not have a size for each bitrate")]
    Sizes(usize),
}

impl Film {
    /// Creates a film. `rungs` are its nominal bitrates, from low to high.
    ///
    /// # Errors
    /// Something is missing or out of order.
    pub fn new(rungs: Vec<Rate>, segments: Vec<Segment>) -> Result<Self, InvalidFilm> {
        if rungs.first().is_none_or(|first| first.is_zero()) {
            return Err(InvalidFilm::NoRung);
        }
        if rungs.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(InvalidFilm::RungsOutOfOrder);
        }
        if segments.is_empty() {
            return Err(InvalidFilm::NoSegment);
        }
        if let Some(index) = segments.iter().position(|one| one.duration.is_zero()) {
            return Err(InvalidFilm::NoDuration(index));
        }
        if let Some(index) = segments.iter().position(|one| one.sizes.len() != rungs.len()) {
            return Err(InvalidFilm::Sizes(index));
        }
        let usual_duration = usual_duration(&segments);
        Ok(Self { rungs, segments, usual_duration })
    }

    /// Nominal bitrates, from low to high.
    pub fn rungs(&self) -> &[Rate] {
        &self.rungs
    }

    /// Index of the highest rung.
    pub fn highest(&self) -> usize {
        self.rungs.len() - 1
    }

    /// Nominal bitrate of a rung in bits per second; that of the highest one for a larger index.
    pub fn bitrate(&self, rung: usize) -> f64 {
        self.rungs[rung.min(self.highest())].as_bps() as f64
    }

    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The most frequent duration of a segment, and of several the longest one.
    pub fn usual_duration(&self) -> Span {
        self.usual_duration
    }

    pub fn duration(&self) -> Span {
        self.segments.iter().fold(Span::ZERO, |sum, segment| sum + segment.duration)
    }

    /// Bits of a segment at a rung; if its size is unknown, those of its nominal bitrate.
    pub fn bits(&self, segment: usize, rung: usize) -> f64 {
        let Some(one) = self.segments.get(segment) else { return 0.0 };
        let known = one.sizes.get(rung).copied().flatten();
        known.map_or_else(
            || self.bitrate(rung) * one.duration.as_secs_f64(),
            |size| size.as_bits() as f64,
        )
    }

    /// The film, again and again, until it is at least this long. A longer film is cut.
    pub fn with_duration(&self, duration: Span) -> Self {
        let mut left = duration;
        let mut segments = Vec::new();
        for segment in self.segments.iter().cycle() {
            if left.is_zero() && !segments.is_empty() {
                break;
            }
            left = left.saturating_sub(segment.duration);
            segments.push(segment.clone());
        }
        Self { segments, ..self.clone() }
    }
}

fn usual_duration(segments: &[Segment]) -> Span {
    let mut counts = std::collections::BTreeMap::new();
    for segment in segments {
        *counts.entry(segment.duration).or_insert(0_usize) += 1;
    }
    let most = counts.into_iter().max_by_key(|(duration, count)| (*count, *duration));
    most.map_or(Span::ZERO, |(duration, _)| duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(seconds: u64, rungs: usize) -> Segment {
        Segment { duration: Span::from_secs(seconds), sizes: vec![None; rungs] }
    }

    #[test]
    fn a_film_that_lacks_something_is_refused() {
        let rungs = || vec![Rate::from_kbps(300), Rate::from_kbps(900)];
        let of = |rungs: Vec<Rate>, segments: Vec<Segment>| Film::new(rungs, segments).unwrap_err();
        assert_eq!(of(Vec::new(), vec![segment(2, 0)]), InvalidFilm::NoRung);
        assert_eq!(of(vec![Rate::ZERO], vec![segment(2, 1)]), InvalidFilm::NoRung);
        assert_eq!(of(rungs(), Vec::new()), InvalidFilm::NoSegment);
        assert_eq!(of(rungs(), vec![segment(2, 2), segment(0, 2)]), InvalidFilm::NoDuration(1));
        assert_eq!(of(rungs(), vec![segment(2, 1)]), InvalidFilm::Sizes(0));
        let mut falling = rungs();
        falling.reverse();
        assert_eq!(of(falling, vec![segment(2, 2)]), InvalidFilm::RungsOutOfOrder);
    }

    #[test]
    fn a_film_is_repeated_or_cut_to_a_duration() {
        let segments = vec![segment(4, 1), segment(4, 1), segment(1, 1)];
        let film = Film::new(vec![Rate::from_kbps(300)], segments).unwrap();
        assert_eq!(film.usual_duration(), Span::from_secs(4));
        assert_eq!(film.duration(), Span::from_secs(9));
        assert_eq!(film.with_duration(Span::from_secs(18)).segments().len(), 6);
        assert_eq!(film.with_duration(Span::from_secs(5)).segments().len(), 2);
        assert_eq!(film.bits(0, 0), 1_200_000.0);
    }
}
