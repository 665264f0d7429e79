//! The events of a film that was played.

use manyways_unit::{Rate, Size, Span, Time};

use crate::qoe::film::Film;

/// A session: everything from the start of a film to its end, or until now.
///
/// Its duration is the sum of the startup, the playback and the stalls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub started: Time,
    pub ended: Time,
    /// Until the first picture; `None` if there was none.
    pub startup: Option<Span>,
    /// Duration of the content that was played.
    pub played: Span,
    /// Segments in the order of the film, from the first one.
    pub segments: Vec<Fetched>,
    pub stalls: Vec<Stall>,
    /// Times in which nothing was fetched because the buffer was full, or the rule waited.
    pub pauses: Vec<Pause>,
    pub abandoned: Vec<Abandoned>,
    /// Downloads that failed, and their bytes.
    pub failures: u32,
    pub wasted: Size,
}

/// A segment in the buffer, or played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub rung: usize,
    pub duration: Span,
    pub size: Size,
    pub requested: Time,
    pub first_byte: Time,
    pub complete: Time,
    /// Level of the buffer at the request.
    pub level: Span,
    /// Downloads of the segment that failed, and this one.
    pub attempts: u32,
}

/// A time in which the playback stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    pub at: Time,
    /// Duration of the film that was played before.
    pub position: Span,
    pub duration: Span,
}

/// A time in which nothing was fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    pub at: Time,
    pub duration: Span,
}

/// A download that was given up for a lower rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandoned {
    pub segment: usize,
    pub rung: usize,
    pub at: Time,
    /// Bytes that arrived before.
    pub received: Size,
}

impl Session {
    pub(super) fn new(now: Time) -> Self {
        Self {
            started: now,
            ended: now,
            startup: None,
            played: Span::ZERO,
            segments: Vec::new(),
            stalls: Vec::new(),
            pauses: Vec::new(),
            abandoned: Vec::new(),
            failures: 0,
            wasted: Size::ZERO,
        }
    }

    pub fn duration(&self) -> Span {
        self.ended.since(self.started)
    }

    pub fn stalled(&self) -> Span {
        self.stalls.iter().fold(Span::ZERO, |sum, stall| sum + stall.duration)
    }

    pub fn paused(&self) -> Span {
        self.pauses.iter().fold(Span::ZERO, |sum, pause| sum + pause.duration)
    }

    /// Stalled time as a part of playback and stalls, from 0 to 1.
    pub fn stall_ratio(&self) -> f64 {
        let stalled = self.stalled().as_secs_f64();
        let all = stalled + self.played.as_secs_f64();
        if all > 0.0 { stalled / all } else { 0.0 }
    }

    /// Mean nominal bitrate of the fetched film, weighted by duration; zero without a segment.
    pub fn mean_bitrate(&self, film: &Film) -> Rate {
        let seconds: f64 = self.segments.iter().map(|one| one.duration.as_secs_f64()).sum();
        let bits = |one: &Fetched| film.bitrate(one.rung) * one.duration.as_secs_f64();
        let bits: f64 = self.segments.iter().map(bits).sum();
        Rate::from_bps(if seconds > 0.0 { (bits / seconds).round() as u64 } else { 0 })
    }

    /// Changes of the rung from one segment to the next.
    pub fn switches(&self) -> usize {
        self.segments.windows(2).filter(|pair| pair[0].rung != pair[1].rung).count()
    }

    /// Mean throughput of the downloads of segments, from request to end.
    pub fn throughput(&self) -> Rate {
        let bytes = self.segments.iter().fold(Size::ZERO, |sum, one| sum + one.size);
        let time = |one: &Fetched| one.complete.since(one.requested);
        let time = self.segments.iter().fold(Span::ZERO, |sum, one| sum + time(one));
        Rate::of(bytes, time)
    }

    /// Bytes of downloads that were abandoned or failed.
    pub fn wasted(&self) -> Size {
        self.abandoned.iter().fold(self.wasted, |sum, one| sum + one.received)
    }
}
