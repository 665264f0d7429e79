//! Sessions of a gateway. [`Sessions`] admits carriers, ends sessions of disconnected or
//! unauthorized clients, and evicts sessions of a key with too many. [`PendingHandshakes`] limits
//! the connections of unauthenticated peers.

mod handshakes;
mod refusals;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use manyways_unit::{Rate, Span, Time};

pub use handshakes::{Abandonment, HandshakeConfig, HandshakeId, PendingHandshakes, Standing};
pub use refusals::{RefusalCause, Refusals};

/// Limits of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ClientLimits {
    /// Maximum number of sessions; each may have several carriers.
    pub sessions: u32,
    /// Maximum number of streams of a session.
    pub streams: u32,
    /// Maximum number of datagram flows of a session.
    pub flows: u32,
    /// Rate limit of all sessions together, for each direction. `None` for no limit.
    pub rate: Option<Rate>,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self { sessions: 4, streams: 32_768, flows: 4_096, rate: None }
    }
}

/// Timing of [`Sessions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Time for which a session without carriers is kept, because its client may be changing
    /// networks.
    pub linger: Span,
    /// Time in which the clients of a key with too many sessions must send data to keep their
    /// sessions.
    pub liveness_timeout: Span,
    /// Interval between reviews, which end sessions of disconnected clients and of removed keys.
    pub review_interval: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            linger: Span::from_secs(45),
            liveness_timeout: Span::from_secs(5),
            review_interval: Span::from_secs(5),
        }
    }
}

/// Identifier of a session: the key of the client, and a number that the client assigns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId<K> {
    pub key: K,
    /// Random number.
    pub number: [u8; 16],
}

/// Result for a carrier of an authenticated client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// The carrier belongs to an existing session.
    Resume,
    /// The carrier starts a new session.
    Begin,
    Refuse(Refusal),
}

/// Reason for which a carrier is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The session to resume does not exist.
    UnknownSession,
    /// The key has this number of sessions, which is its limit.
    TooManySessions(usize),
}

/// Reason for which a session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// Evicted for another session of the key, because it has no carrier.
    Evicted,
    /// Evicted for another session of the key, because its client did not respond.
    Silent,
    /// Without carrier for [`Config::linger`].
    Absent,
    /// The key of the client is no longer authorized.
    KeyRemoved,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Evicted => "it has no carrier, and makes room for another session",
            Self::Silent => "its client gives no sign of life",
            Self::Absent => "its client is gone",
            Self::KeyRemoved => "its key was removed from the allow file",
        })
    }
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input<K> {
    /// A carrier of a session was attached.
    Attached(SessionId<K>),
    /// A carrier of a session has ended.
    Detached(SessionId<K>),
    /// The client has ended the session.
    Ended(SessionId<K>),
    /// Total bytes that a session has received; response to [`Output::RequestLiveness`] and
    /// [`Output::CountReceived`].
    Received(SessionId<K>, u64),
}

/// An action for the shell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output<K> {
    /// Call [`Sessions::review`].
    Review,
    /// End a session, which is already removed.
    End(SessionId<K>, EndReason),
    /// Ping the client of a session, and report the bytes that the session has received.
    RequestLiveness(SessionId<K>),
    /// Report the bytes that the session has received.
    CountReceived(SessionId<K>),
    /// Change the rate limit of a session.
    SetRate(SessionId<K>, Option<Rate>),
    /// The limits of streams and flows have changed. The session keeps the limits from its start,
    /// which the client knows.
    LimitsDeferred(SessionId<K>),
}

/// Sessions of a gateway.
#[derive(Debug)]
pub struct Sessions<K> {
    config: Config,
    sessions: BTreeMap<SessionId<K>, Session>,
    review_at: Time,
    outputs: VecDeque<Output<K>>,
}

#[derive(Debug)]
struct Session {
    limits: ClientLimits,
    carriers: u32,
    /// Time since which the session has no carrier.
    absent_since: Option<Time>,
    liveness: Liveness,
    /// Whether the key was not authorized in the last review.
    is_unlisted: bool,
}

/// State of a liveness check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Liveness {
    NotAsked,
    /// At `until`, the current count of received bytes is compared with `received`.
    Asked {
        until: Time,
        received: Option<u64>,
    },
    /// The time has expired.
    Due {
        received: Option<u64>,
    },
}

impl<K: Copy + Ord> Sessions<K> {
    /// Creates the state without sessions. The first review is due at once.
    pub fn new(now: Time, config: Config) -> Self {
        Self { config, sessions: BTreeMap::new(), review_at: now, outputs: VecDeque::new() }
    }

    /// Processes the hello of an authenticated client on a new carrier. `resumes` is whether the
    /// client expects that the gateway has the session; `limits` are the limits of the key.
    pub fn admit(
        &mut self,
        now: Time,
        id: SessionId<K>,
        resumes: bool,
        limits: ClientLimits,
    ) -> Admission {
        if self.sessions.contains_key(&id) {
            return Admission::Resume;
        }
        if resumes {
            return Admission::Refuse(Refusal::UnknownSession);
        }
        let max = limits.sessions as usize;
        if self.count(id.key) >= max {
            self.evict(id.key);
        }
        let count = self.count(id.key);
        if count >= max {
            self.check_liveness(now, id.key);
            return Admission::Refuse(Refusal::TooManySessions(count));
        }
        let session = Session {
            limits,
            carriers: 0,
            absent_since: Some(now),
            liveness: Liveness::NotAsked,
            is_unlisted: false,
        };
        self.sessions.insert(id, session);
        Admission::Begin
    }

    /// Processes an event that happened at `now`.
    pub fn handle(&mut self, now: Time, input: Input<K>) {
        match input {
            Input::Attached(id) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.carriers += 1;
                    session.absent_since = None;
                }
            }
            Input::Detached(id) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.carriers = session.carriers.saturating_sub(1);
                    if session.carriers == 0 {
                        session.absent_since = Some(now);
                    }
                }
            }
            Input::Ended(id) => drop(self.sessions.remove(&id)),
            Input::Received(id, bytes) => {
                let Some(session) = self.sessions.get_mut(&id) else { return };
                match &mut session.liveness {
                    Liveness::NotAsked => {}
                    Liveness::Asked { received, .. } => *received = Some(bytes),
                    Liveness::Due { received } => {
                        let is_silent = *received == Some(bytes);
                        session.liveness = Liveness::NotAsked;
                        if is_silent {
                            self.end(id, EndReason::Silent);
                        }
                    }
                }
            }
        }
    }

    /// Compares all sessions with the authorized clients. `limits_of` returns the limits of a key,
    /// or `None` if the key is not authorized.
    pub fn review(&mut self, now: Time, limits_of: impl Fn(&K) -> Option<ClientLimits>) {
        let mut ended = Vec::new();
        for (id, session) in &mut self.sessions {
            let limits = limits_of(&id.key);
            if let Some(limits) = limits {
                let before = std::mem::replace(&mut session.limits, limits);
                if before.rate != limits.rate {
                    self.outputs.push_back(Output::SetRate(*id, limits.rate));
                }
                if (before.streams, before.flows) != (limits.streams, limits.flows) {
                    self.outputs.push_back(Output::LimitsDeferred(*id));
                }
            }
            // An editor may truncate the file before it writes the new content, so two reviews must
            // agree.
            let was_unlisted = std::mem::replace(&mut session.is_unlisted, limits.is_none());
            let linger = self.config.linger;
            if limits.is_none() && was_unlisted {
                ended.push((*id, EndReason::KeyRemoved));
            } else if session.absent_since.is_some_and(|since| now.since(since) > linger) {
                ended.push((*id, EndReason::Absent));
            }
        }
        for (id, reason) in ended {
            self.end(id, reason);
        }
    }

    /// Returns the next action, or `None` if nothing is to be done at `now`.
    pub fn poll(&mut self, now: Time) -> Option<Output<K>> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        for (id, session) in &mut self.sessions {
            if let Liveness::Asked { until, received } = session.liveness
                && until <= now
            {
                session.liveness = Liveness::Due { received };
                return Some(Output::CountReceived(*id));
            }
        }
        if self.review_at <= now {
            self.review_at = now + self.config.review_interval;
            return Some(Output::Review);
        }
        None
    }

    /// Returns the time of the next [`Sessions::poll`] if no input arrives before.
    pub fn next_wakeup(&self) -> Time {
        let asked = self.sessions.values().filter_map(|session| match session.liveness {
            Liveness::Asked { until, .. } => Some(until),
            Liveness::NotAsked | Liveness::Due { .. } => None,
        });
        asked.chain([self.review_at]).min().unwrap_or(self.review_at)
    }

    pub fn contains(&self, id: SessionId<K>) -> bool {
        self.sessions.contains_key(&id)
    }

    /// Returns the keys with at least one session.
    pub fn keys(&self) -> BTreeSet<K> {
        self.sessions.keys().map(|id| id.key).collect()
    }

    fn of_key(&mut self, key: K) -> impl Iterator<Item = (&SessionId<K>, &mut Session)> {
        self.sessions.iter_mut().filter(move |(id, _)| id.key == key)
    }

    fn count(&mut self, key: K) -> usize {
        self.of_key(key).count()
    }

    fn end(&mut self, id: SessionId<K>, reason: EndReason) {
        if self.sessions.remove(&id).is_some() {
            self.outputs.push_back(Output::End(id, reason));
        }
    }

    /// Ends the session of a key with the longest time without a carrier, if there is one. Its
    /// client may have been killed, and its successor needs the place.
    fn evict(&mut self, key: K) {
        let absent = self.of_key(key).filter_map(|(id, one)| Some((one.absent_since?, *id))).min();
        if let Some((_, id)) = absent {
            self.end(id, EndReason::Evicted);
        }
    }

    /// Starts a liveness check of all sessions of a key. A device that lost power did not end its
    /// session, and must be able to start another one.
    fn check_liveness(&mut self, now: Time, key: K) {
        let until = now + self.config.liveness_timeout;
        let mut asked = Vec::new();
        for (id, session) in self.of_key(key) {
            if session.liveness == Liveness::NotAsked {
                session.liveness = Liveness::Asked { until, received: None };
                asked.push(Output::RequestLiveness(*id));
            }
        }
        self.outputs.extend(asked);
    }
}

#[cfg(test)]
mod tests;
