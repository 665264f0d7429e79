//! The reports of a player in a page, and the session that they become.

use std::collections::BTreeMap;

use manyways_model::qoe::film::Film;
use manyways_model::qoe::player::{Abandoned, Fetched, Pause, Session, Stall};
use manyways_unit::{Rate, Size, Span, Time};
use serde::Deserialize;

use super::super::report::Carried;

/// Downloads and stalls of a film; no player has more.
const MAX_EVENTS: usize = 100_000;
/// Longest time that a page can report. Sums of times do not overflow.
const MAX_SECONDS: f64 = 1e7;
/// Shorter stalls are artefacts of the browser's media element, which reports that it waits while it
/// changes to another rung.
const MIN_STALL: Span = Span::from_millis(50);
/// Shorter times between two downloads are those that the player itself takes.
const MIN_PAUSE: Span = Span::from_millis(100);

/// Events since the last report of the page. Times in seconds since the player had the manifest.
/// JavaScript has numbers that JSON does not have, and writes null for them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Taken {
    pub now: Option<f64>,
    /// Until the first picture.
    pub startup: Option<f64>,
    /// Of the film.
    pub position: Option<f64>,
    /// When everything was played.
    pub ended: Option<f64>,
    pub loads: Vec<Load>,
    pub stalls: Vec<Waiting>,
    /// The stall that still lasts.
    pub stall: Option<Waiting>,
    /// Sentences.
    pub errors: Vec<String>,
}

/// A download that has ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Load {
    /// Whether it is a segment; otherwise it is a manifest, an index or an initialization.
    pub is_media: bool,
    /// Start and duration of the segment in the film.
    pub start: Option<f64>,
    pub duration: Option<f64>,
    /// Declared rate of the rung in bit/s.
    pub rate: Option<f64>,
    pub requested: Option<f64>,
    pub first_byte: Option<f64>,
    pub complete: Option<f64>,
    /// Level of the buffer at the request.
    pub buffer: Option<f64>,
    /// Of the playback, when the download ended.
    pub position: Option<f64>,
    pub bytes: Option<f64>,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Complete,
    #[default]
    Failed,
    Abandoned,
}

/// A time in which the picture stood still.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Waiting {
    pub at: Option<f64>,
    pub position: Option<f64>,
    pub duration: Option<f64>,
}

/// Everything that a page has reported of a film.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// In the order of their ends.
    loads: Vec<Load>,
    stalls: Vec<Waiting>,
    errors: Vec<String>,
    /// The last report, without these.
    state: Taken,
}

impl Course {
    /// Adds the events since the last report.
    ///
    /// # Errors
    /// One sentence, if it is more than a player can do.
    pub(super) fn extend(&mut self, mut taken: Taken) -> Result<(), String> {
        self.loads.append(&mut taken.loads);
        self.stalls.append(&mut taken.stalls);
        self.errors.append(&mut taken.errors);
        self.state = taken;
        let lengths = [self.loads.len(), self.stalls.len(), self.errors.len()];
        match lengths.iter().any(|length| *length > MAX_EVENTS) {
            true => Err(format!("the player reports more than {MAX_EVENTS} events")),
            false => Ok(()),
        }
    }

    /// The first error of the player, if there is one.
    pub(super) fn error(&self) -> Option<&str> {
        self.errors.first().map(String::as_str)
    }

    /// Whether everything was played.
    pub(super) fn has_ended(&self) -> bool {
        self.state.ended.is_some()
    }

    /// Of the playback, in seconds of the film.
    pub(super) fn position(&self) -> Option<f64> {
        self.state.position
    }

    /// Bytes and number of all downloads.
    pub(super) fn carried(&self) -> Carried {
        let bytes = self.loads.iter().fold(Size::ZERO, |sum, load| sum + load.size());
        Carried { bytes, requests: self.loads.len() as u64 }
    }

    /// The session of this film so far.
    pub(super) fn session(&self, film: &Film) -> Session {
        let state = &self.state;
        let mut parts = Parts::default();
        let places = Places::of(film);
        for load in self.loads.iter().filter(|load| load.is_media) {
            // The page has only the rungs and the part of this film.
            if let Some((place, rung)) = places.find(load).zip(rung(film, load)) {
                parts.add(load, place, rung);
            }
        }
        // At its end, and after an error, a film has nothing to wait for.
        let is_over = self.has_ended() || self.error().is_some();
        let last = state.stall.iter().filter(|_| !is_over);
        let stalls = self.stalls.iter().chain(last).map(|stall| Stall {
            at: time(stall.at),
            position: span(stall.position),
            duration: span(stall.duration),
        });
        Session {
            started: Time::ZERO,
            ended: time(state.ended.or(state.now)),
            startup: state.startup.map(|startup| span(Some(startup))),
            played: match self.has_ended() {
                true => film.duration(),
                false => span(state.position).min(film.duration()),
            },
            segments: parts.kept.into_values().collect(),
            stalls: stalls.filter(|stall| stall.duration >= MIN_STALL).collect(),
            pauses: pauses(&self.loads),
            abandoned: parts.abandoned,
            failures: parts.failures,
            wasted: parts.wasted,
        }
    }
}

impl Load {
    fn size(&self) -> Size {
        // Negative numbers become zero; a sum of sizes saturates.
        Size::from_bytes(self.bytes.unwrap_or_default() as u64)
    }
}

/// The segments of a session.
#[derive(Default)]
struct Parts {
    /// The one that is played, by its index in the film.
    kept: BTreeMap<usize, Fetched>,
    /// Downloads of segments that failed before.
    failed: BTreeMap<usize, u32>,
    abandoned: Vec<Abandoned>,
    failures: u32,
    wasted: Size,
}

impl Parts {
    fn add(&mut self, load: &Load, Place { index, start, duration }: Place, rung: usize) {
        let size = load.size();
        match load.outcome {
            Outcome::Failed => {
                self.failures += 1;
                self.wasted += size;
                *self.failed.entry(index).or_default() += 1;
            }
            Outcome::Abandoned => self.abandoned.push(Abandoned {
                segment: index,
                rung,
                at: time(load.complete),
                received: size,
            }),
            Outcome::Complete => {
                let requested = time(load.requested);
                let complete = time(load.complete).max(requested);
                let fetched = Fetched {
                    rung,
                    duration,
                    size,
                    requested,
                    first_byte: time(load.first_byte).clamp(requested, complete),
                    complete,
                    level: span(load.buffer),
                    attempts: self.failed.remove(&index).unwrap_or_default() + 1,
                };
                let is_late = span(load.position) > start;
                match self.kept.get(&index) {
                    // It had already been played, at least in part.
                    Some(_) if is_late => self.wasted += size,
                    Some(before) => {
                        self.wasted += before.size;
                        self.kept.insert(index, fetched);
                    }
                    None => drop(self.kept.insert(index, fetched)),
                }
            }
        }
    }
}

/// A segment of a film.
#[derive(Clone, Copy)]
struct Place {
    index: usize,
    start: Span,
    duration: Span,
}

/// All segments of a film.
struct Places(Vec<Place>);

impl Places {
    fn of(film: &Film) -> Self {
        let mut start = Span::ZERO;
        let places = film.segments().iter().enumerate().map(|(index, segment)| {
            let place = Place { index, start, duration: segment.duration };
            start += segment.duration;
            place
        });
        Self(places.collect())
    }

    /// The one that contains the middle of a loaded one: players round times differently.
    fn find(&self, load: &Load) -> Option<Place> {
        let middle = span(load.start) + span(load.duration.map(|duration| duration / 2.0));
        let after = self.0.partition_point(|place| place.start <= middle);
        let place = *self.0.get(after.checked_sub(1)?)?;
        (middle < place.start + place.duration).then_some(place)
    }
}

fn rung(film: &Film, load: &Load) -> Option<usize> {
    let rate = Rate::from_bps(load.rate.unwrap_or_default().round() as u64);
    film.rungs().iter().position(|rung| *rung == rate)
}

/// Times without a download after one that was complete, from the first segment on.
fn pauses(loads: &[Load]) -> Vec<Pause> {
    let mut loads: Vec<&Load> = loads.iter().skip_while(|load| !load.is_media).collect();
    loads.sort_by_key(|load| time(load.requested));
    let mut pauses = Vec::new();
    let mut before: Option<(Time, Outcome)> = None;
    for load in loads {
        let requested = time(load.requested);
        if let Some((ended, Outcome::Complete)) = before {
            let duration = requested.since(ended);
            if duration >= MIN_PAUSE {
                pauses.push(Pause { at: ended, duration });
            }
        }
        let ended = time(load.complete);
        if before.is_none_or(|(before, _)| before <= ended) {
            before = Some((ended, load.outcome));
        }
    }
    pauses
}

/// A number of seconds of the page.
fn span(seconds: Option<f64>) -> Span {
    Span::from_secs_f64(seconds.unwrap_or_default().clamp(0.0, MAX_SECONDS))
}

fn time(seconds: Option<f64>) -> Time {
    Time::ZERO + span(seconds)
}

#[cfg(test)]
mod tests;
