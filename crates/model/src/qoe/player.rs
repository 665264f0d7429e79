//! A film player without a screen: the segments that it fetches, and the experience of its user.
//!
//! [`Player`] is sans-IO. It returns the segments to fetch ([`Output`]), and receives the progress of
//! the one download at a time ([`Input`]). The same code plays in virtual time ([`super::simulate`]) and
//! over sockets.
//!
//! ```text
//! loading   Idle ──▶ Full (waits for room) ──▶ Delayed (by the rule) ──▶ Fetching ──complete──▶ Idle
//!             ▲                                                             ├──abandoned──▶ Idle
//!             └───────────── Backoff ◀──────────────────failed──────────────┘
//! playback  Starting ──▶ Playing ◀──▶ Stalled
//!                           └──▶ Over
//! ```

mod buffer;
mod session;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use manyways_unit::{Size, Span, Time};

use self::buffer::{Buffer, Playback};
pub use self::session::{Abandoned, Fetched, Pause, Session, Stall};
use super::abr::estimate::{Averaging, Estimator};
use super::abr::{Ended, Progress, Rule, RuleName, View};
use super::film::Film;

/// Minimum time and bytes between two decisions whether to abandon a download.
const PROGRESS_INTERVAL: Span = Span::from_millis(50);
const PROGRESS_SIZE: Size = Size::from_bytes(1_400);
/// Attempts to fetch a segment, and the wait after the first one that failed; doubles.
const ATTEMPTS: u32 = 4;
const FIRST_BACKOFF: Span = Span::from_millis(500);

/// How a film is played.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub rule: RuleName,
    pub averaging: Averaging,
    /// Maximum duration of the content in the buffer: a segment is fetched when it fits.
    pub max_buffer: Span,
    /// Load control: when the buffer is full, nothing is fetched until its level is this.
    pub resume_level: Option<Span>,
    /// Level at which playback starts, and after a stall continues. At the end of the film, less
    /// suffices.
    pub start_level: Span,
    pub restart_level: Span,
    pub abandoning: Abandoning,
}

/// Whether a download may be abandoned for a lower rung of the same segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Abandoning {
    Never,
    /// The segment is then fetched at that rung, or at a lower one.
    #[default]
    Binding,
    /// The rule decides again, as in Sabre: it may select the rung that was abandoned.
    Free,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rule: RuleName::Dynamic,
            averaging: Averaging::default(),
            max_buffer: Span::from_secs(30),
            resume_level: None,
            start_level: Span::ZERO,
            restart_level: Span::ZERO,
            abandoning: Abandoning::default(),
        }
    }
}

/// An event of the download that runs; others are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The first byte of the response, with the size of the segment if the server states it.
    FirstByte { size: Option<Size> },
    /// So many bytes of the segment so far.
    Received(Size),
    /// All bytes of the segment, and their number.
    Complete(Size),
    /// The download failed, without the segment.
    Failed,
}

/// An action for the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Fetch this segment at this rung.
    Fetch { segment: usize, rung: usize },
    /// Stop the download that runs.
    Cancel,
    /// The session is over.
    Finished(Ending),
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The whole film was played.
    Played,
    /// A segment could not be fetched; the segments before it were played.
    Failed { segment: usize },
}

/// Plays a film. A time before one of an earlier call counts as that one.
#[derive(Debug)]
pub struct Player {
    film: Film,
    config: Config,
    rule: Box<dyn Rule>,
    estimator: Estimator,
    buffer: Buffer,
    loading: Loading,
    /// Index of the segment that is fetched next.
    next: usize,
    last_rung: Option<usize>,
    failures: u32,
    outputs: VecDeque<Output>,
    session: Session,
    is_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Loading {
    /// The rung of the next segment is at most this.
    Idle {
        at_most: usize,
    },
    Full {
        since: Time,
        until: Time,
        at_most: usize,
    },
    Delayed {
        since: Time,
        until: Time,
        rung: usize,
    },
    Fetching(Download),
    Backoff {
        until: Time,
    },
    /// Nothing remains to be fetched.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Download {
    rung: usize,
    requested: Time,
    first_byte: Option<Time>,
    size: Option<Size>,
    received: Size,
    /// The latest decision whether to abandon it.
    judged: Time,
    judged_size: Size,
    /// Level of the buffer at the request.
    level: Span,
}

impl Player {
    /// Creates a player whose user starts the film at `now`.
    pub fn new(now: Time, film: Film, config: Config) -> Self {
        let rule = config.rule.create(&film, config.max_buffer);
        let segment = film.usual_duration().as_secs_f64();
        Self {
            rule,
            estimator: Estimator::new(config.averaging, segment),
            buffer: Buffer::new(now),
            loading: Loading::Idle { at_most: usize::MAX },
            next: 0,
            last_rung: None,
            failures: 0,
            outputs: VecDeque::new(),
            session: Session::new(now),
            is_over: false,
            film,
            config,
        }
    }

    pub fn film(&self) -> &Film {
        &self.film
    }

    /// Duration of the content in the buffer at `now`.
    pub fn level(&mut self, now: Time) -> Span {
        self.buffer.advance(now);
        self.buffer.level()
    }

    /// The session up to `now`.
    pub fn session(&mut self, now: Time) -> Session {
        let now = self.buffer.advance(now);
        let mut session = self.session.clone();
        self.buffer.complete(now, &mut session);
        session
    }

    /// Handles an event of the download that runs.
    pub fn handle(&mut self, now: Time, input: Input) {
        let now = self.buffer.advance(now);
        let Loading::Fetching(mut download) = self.loading else { return };
        match input {
            Input::FirstByte { size } => {
                download.first_byte.get_or_insert(now);
                download.size = size.or(download.size);
                self.loading = Loading::Fetching(download);
            }
            Input::Received(size) => {
                download.first_byte.get_or_insert(now);
                download.received = size;
                self.loading = Loading::Fetching(download);
                self.judge(now, download);
            }
            Input::Complete(size) => {
                download.first_byte.get_or_insert(now);
                download.received = size;
                self.complete(now, download);
            }
            Input::Failed => self.fail(now, download),
        }
    }

    /// Returns the next action.
    pub fn poll(&mut self, now: Time) -> Option<Output> {
        let now = self.buffer.advance(now);
        self.load(now);
        if self.outputs.is_empty() && !self.is_over && self.buffer.playback() == Playback::Over {
            self.is_over = true;
            let failed = self.next < self.film.segments().len();
            self.outputs.push_back(Output::Finished(match failed {
                true => Ending::Failed { segment: self.next },
                false => Ending::Played,
            }));
        }
        self.outputs.pop_front()
    }

    /// When to call [`Player::poll`] without an input.
    pub fn next_wakeup(&self) -> Option<Time> {
        match self.loading {
            Loading::Full { until, .. }
            | Loading::Delayed { until, .. }
            | Loading::Backoff { until } => Some(until),
            Loading::Idle { .. } | Loading::Fetching(_) => None,
            Loading::Done => self.buffer.empty_at().filter(|_| !self.is_over),
        }
    }

    /// When the playback ends, once nothing remains to be fetched.
    pub fn plays_without_network_until(&self) -> Option<Time> {
        matches!(self.loading, Loading::Done).then(|| self.next_wakeup())?
    }

    /// Moves the loading on as far as it can be at `now`.
    fn load(&mut self, now: Time) {
        loop {
            match self.loading {
                Loading::Idle { .. } if self.next == self.film.segments().len() => {
                    self.loading = Loading::Done;
                    self.buffer.end();
                }
                Loading::Idle { at_most } => match self.room_in() {
                    Some(wait) => {
                        self.loading = Loading::Full { since: now, until: now + wait, at_most };
                    }
                    None => self.decide(now, at_most),
                },
                Loading::Full { since, until, at_most } if now >= until => {
                    self.session.pauses.push(Pause { at: since, duration: now.since(since) });
                    self.rule.on_full(now.since(since).as_secs_f64());
                    self.decide(now, at_most);
                }
                Loading::Delayed { since, until, rung } if now >= until => {
                    self.session.pauses.push(Pause { at: since, duration: now.since(since) });
                    self.fetch(now, rung);
                }
                Loading::Backoff { until } if now >= until => {
                    self.loading = Loading::Idle { at_most: usize::MAX };
                }
                _ => return,
            }
        }
    }

    /// Time until the next segment may be fetched; `None` if it fits into the buffer now. A buffer that
    /// does not play is never full: it would stay so.
    fn room_in(&self) -> Option<Span> {
        let segment = self.film.segments().get(self.next)?;
        let level = self.buffer.level();
        let surplus = (level + segment.duration).saturating_sub(self.config.max_buffer);
        if surplus.is_zero() || self.buffer.playback() != Playback::Playing {
            return None;
        }
        let to_resume = self.config.resume_level.map(|resume| level.saturating_sub(resume));
        // The next segment may be longer than the buffer.
        Some(surplus.max(to_resume.unwrap_or_default()).min(level)).filter(|wait| !wait.is_zero())
    }

    fn decide(&mut self, now: Time, at_most: usize) {
        let (view, rule) = self.view();
        let (rung, wait) = match view.network {
            // Nothing is known.
            None => (0, Span::ZERO),
            Some(_) => {
                let decision = rule.decide(&view);
                (decision.rung.min(at_most), Span::from_secs_f64(decision.wait))
            }
        };
        // A download that failed repeatedly may be missing at this rung only.
        let rung = if self.failures + 1 >= ATTEMPTS { 0 } else { rung };
        // A wait must not outlast the content of the buffer.
        match wait.min(self.buffer.level()) {
            Span::ZERO => self.fetch(now, rung),
            wait => self.loading = Loading::Delayed { since: now, until: now + wait, rung },
        }
    }

    fn fetch(&mut self, now: Time, rung: usize) {
        self.loading = Loading::Fetching(Download {
            rung,
            requested: now,
            first_byte: None,
            size: None,
            received: Size::ZERO,
            judged: now,
            judged_size: Size::ZERO,
            level: self.buffer.level(),
        });
        self.outputs.push_back(Output::Fetch { segment: self.next, rung });
    }

    fn view(&mut self) -> (View<'_>, &mut dyn Rule) {
        let view = View {
            film: &self.film,
            segment: self.next,
            level: self.buffer.level().as_secs_f64(),
            network: self.estimator.estimate(),
            last: self.last_rung,
        };
        (view, &mut *self.rule)
    }

    /// Decides whether to abandon a download.
    fn judge(&mut self, now: Time, download: Download) {
        let since = now.since(download.judged);
        let more = download.received.saturating_sub(download.judged_size);
        let is_first = self.estimator.estimate().is_none();
        let is_off = self.config.abandoning == Abandoning::Never || is_first;
        if is_off || since < PROGRESS_INTERVAL || more < PROGRESS_SIZE {
            return;
        }
        self.loading =
            Loading::Fetching(Download { judged: now, judged_size: download.received, ..download });
        let size = match download.size {
            Some(size) => size.as_bits() as f64,
            None => self.film.bits(self.next, download.rung),
        };
        let progress = Progress {
            rung: download.rung,
            size,
            received: download.received.as_bits() as f64,
            elapsed: now.since(download.requested).as_secs_f64(),
            first_byte: download.latency(now).as_secs_f64(),
        };
        let (view, rule) = self.view();
        let Some(rung) = rule.abandon(&view, &progress) else { return };
        self.session.abandoned.push(Abandoned {
            segment: self.next,
            rung: download.rung,
            at: now,
            received: download.received,
        });
        self.end(now, download, Some(rung));
        let at_most = if self.config.abandoning == Abandoning::Free { usize::MAX } else { rung };
        self.loading = Loading::Idle { at_most };
        self.outputs.push_back(Output::Cancel);
    }

    fn complete(&mut self, now: Time, download: Download) {
        let Some(segment) = self.film.segments().get(self.next) else { return };
        let duration = segment.duration;
        let from_first_byte = now.since(download.requested + download.latency(now));
        self.session.segments.push(Fetched {
            rung: download.rung,
            duration,
            size: download.received,
            requested: download.requested,
            first_byte: download.requested + download.latency(now),
            complete: now,
            level: download.level,
            attempts: self.failures + 1,
        });
        self.buffer.push(duration);
        let needed = match self.buffer.playback() {
            Playback::Starting => self.config.start_level,
            _ => self.config.restart_level,
        };
        let is_last = self.next + 1 == self.film.segments().len();
        let is_full = self.buffer.level() >= self.config.max_buffer;
        if is_last || is_full || self.buffer.level() >= needed {
            self.buffer.play(now);
        }
        self.end(now, download, None);
        self.estimator.push(
            download.received.as_bits() as f64,
            from_first_byte.as_secs_f64(),
            download.latency(now).as_secs_f64(),
        );
        self.failures = 0;
        self.next += 1;
        self.last_rung = Some(download.rung);
        self.loading = Loading::Idle { at_most: usize::MAX };
    }

    fn end(&mut self, now: Time, download: Download, abandoned_for: Option<usize>) {
        let ended = Ended {
            rung: download.rung,
            received: download.received.as_bits() as f64,
            elapsed: now.since(download.requested).as_secs_f64(),
            first_byte: download.latency(now).as_secs_f64(),
            abandoned_for,
        };
        let (view, rule) = self.view();
        rule.on_ended(&view, &ended);
    }

    fn fail(&mut self, now: Time, download: Download) {
        self.session.wasted += download.received;
        self.session.failures += 1;
        self.failures += 1;
        if self.failures == ATTEMPTS {
            self.loading = Loading::Done;
            self.buffer.end();
            // The rest of the buffer is played.
            self.buffer.play(now);
            return;
        }
        let backoff = FIRST_BACKOFF * (1 << (self.failures - 1));
        self.loading = Loading::Backoff { until: now + backoff };
    }
}

impl Download {
    /// From the request to the first byte.
    fn latency(&self, now: Time) -> Span {
        self.first_byte.unwrap_or(now).since(self.requested)
    }
}
