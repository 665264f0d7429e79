//! The buffer of a player, and the playback of its content.

use manyways_unit::{Span, Time};

use super::session::{Session, Stall};

/// State of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Playback {
    /// Nothing was played yet.
    Starting,
    Playing,
    Stalled,
    /// Nothing is left to play.
    Over,
}

/// Content that was fetched and not yet played.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    playback: Playback,
    level: Span,
    /// Up to when the playback is known.
    now: Time,
    started: Time,
    /// When the first picture was shown.
    first_picture: Option<Time>,
    played: Span,
    stalls: Vec<Stall>,
    /// Whether no more content comes.
    is_last: bool,
    over_at: Option<Time>,
}

impl Buffer {
    pub(super) fn new(now: Time) -> Self {
        Self {
            playback: Playback::Starting,
            level: Span::ZERO,
            now,
            started: now,
            first_picture: None,
            played: Span::ZERO,
            stalls: Vec::new(),
            is_last: false,
            over_at: None,
        }
    }

    pub(super) fn playback(&self) -> Playback {
        self.playback
    }

    pub(super) fn level(&self) -> Span {
        self.level
    }

    /// When the buffer is empty, if it plays until then.
    pub(super) fn empty_at(&self) -> Option<Time> {
        match self.playback {
            Playback::Playing => Some(self.now + self.level),
            Playback::Over => Some(self.now),
            Playback::Starting | Playback::Stalled => None,
        }
    }

    /// Plays until `now`. A time before the latest one counts as the latest one.
    pub(super) fn advance(&mut self, now: Time) {
        let elapsed = now.since(self.now);
        if self.playback == Playback::Playing {
            let played = elapsed.min(self.level);
            self.level = self.level.saturating_sub(played);
            self.played += played;
            let empty_at = self.now + played;
            if self.level.is_zero() && self.is_last {
                self.finish(empty_at);
            } else if played < elapsed {
                self.playback = Playback::Stalled;
                self.stalls.push(Stall {
                    at: empty_at,
                    position: self.played,
                    duration: Span::ZERO,
                });
            }
        }
        self.now = self.now.max(now);
    }

    /// Adds content.
    pub(super) fn push(&mut self, duration: Span) {
        self.level += duration;
    }

    /// Starts or continues the playback.
    pub(super) fn play(&mut self, now: Time) {
        self.advance(now);
        match self.playback {
            Playback::Starting => self.first_picture = Some(now),
            Playback::Stalled => self.end_stall(now),
            Playback::Playing | Playback::Over => return,
        }
        self.playback = Playback::Playing;
    }

    /// No more content comes: an empty buffer is the end from now on.
    pub(super) fn end(&mut self) {
        self.is_last = true;
        if self.level.is_zero() {
            self.end_stall(self.now);
            self.finish(self.now);
        }
    }

    fn end_stall(&mut self, now: Time) {
        if self.playback == Playback::Stalled
            && let Some(stall) = self.stalls.last_mut()
        {
            stall.duration = now.since(stall.at);
        }
    }

    fn finish(&mut self, now: Time) {
        self.playback = Playback::Over;
        self.over_at.get_or_insert(now);
    }

    /// Adds the playback until `now` to a session.
    pub(super) fn complete(&self, now: Time, session: &mut Session) {
        session.startup = self.first_picture.map(|first| first.since(self.started));
        session.played = self.played;
        session.stalls.clone_from(&self.stalls);
        session.ended = self.over_at.unwrap_or(now);
        if self.playback == Playback::Stalled
            && let Some(stall) = session.stalls.last_mut()
        {
            stall.duration = now.since(stall.at);
        }
    }
}
