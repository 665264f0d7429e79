//! Which sessions a gateway keeps: [`Sessions`] admits carriers, ends sessions whose clients are gone
//! or not authorized any more, and makes room where a key has too many. [`PendingHandshakes`] bounds
//! the connections that have not proved a key yet.

mod handshakes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use manyways_unit::{Rate, Span, Time};

pub use handshakes::{Abandonment, HandshakeConfig, HandshakeId, PendingHandshakes};

/// What a client may use at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientLimits {
    /// Sessions, each with its carriers.
    pub sessions: u32,
    /// Streams of a session.
    pub streams: u32,
    /// Datagram flows of a session.
    pub flows: u32,
    /// What the applications of all sessions send together, and what they receive. `None`: no limit.
    pub rate: Option<Rate>,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self { sessions: 4, streams: 32_768, flows: 4_096, rate: None }
    }
}

/// The times of [`Sessions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// A session without carriers is kept for this long: its client may be changing networks.
    pub linger: Span,
    /// Where a key has no room for another session, the clients of those that are there get this
    /// long to give a sign of life.
    pub liveness_timeout: Span,
    /// How often sessions are compared with the list of authorized clients, and ended where their
    /// clients are gone.
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

/// A session: the key of its client, and the number that the client gave it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId<K> {
    /// The client's key.
    pub key: K,
    /// A random number.
    pub number: [u8; 16],
}

/// What becomes of a carrier whose client has proved its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It belongs to a session that is there.
    Resume,
    /// It begins a session, which is there from now on.
    Begin,
    /// It is refused.
    Refuse(Refusal),
}

/// Why a carrier is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no such session to resume.
    UnknownSession,
    /// The key has this many sessions, which is all that it may have.
    TooManySessions(usize),
}

/// Why a session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// It makes room for another session of its key, and has no carrier.
    Evicted,
    /// It makes room for another session of its key, and its client gave no sign of life.
    Silent,
    /// It has had no carrier for [`Config::linger`].
    Absent,
    /// The key of its client is not authorized any more.
    KeyRemoved,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Evicted => "it has no carrier, and makes room for another session",
            Self::Silent => "its client gives no sign of life",
            Self::Absent => "its client is gone",
            Self::KeyRemoved => "its key is not in the allow file any more",
        })
    }
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input<K> {
    /// A carrier of a session is attached.
    Attached(SessionId<K>),
    /// A carrier of a session has ended.
    Detached(SessionId<K>),
    /// The client has ended the session.
    Ended(SessionId<K>),
    /// A session has received this many bytes in all, as asked for by [`Output::RequestLiveness`] and
    /// [`Output::CountReceived`].
    Received(SessionId<K>, u64),
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output<K> {
    /// Call [`Sessions::review`].
    Review,
    /// End a session, which is forgotten.
    End(SessionId<K>, EndReason),
    /// Ask the client of a session for a sign of life, and tell what the session has received.
    RequestLiveness(SessionId<K>),
    /// Tell what the session has received.
    CountReceived(SessionId<K>),
    /// Another rate limit holds for a session from now on.
    SetRate(SessionId<K>, Option<Rate>),
    /// The limits of streams and flows have changed. The client was told the previous ones, which
    /// hold for this session.
    LimitsDeferred(SessionId<K>),
}

/// The sessions of a gateway.
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
    /// Since when it has had no carrier.
    absent_since: Option<Time>,
    liveness: Liveness,
    /// Its key was not authorized at the last review.
    is_unlisted: bool,
}

/// Whether its client is asked for a sign of life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Liveness {
    NotAsked,
    /// Until then, what it had received when it was asked is compared with what it has.
    Asked {
        until: Time,
        received: Option<u64>,
    },
    /// The time is over.
    Due {
        received: Option<u64>,
    },
}

impl<K: Copy + Ord> Sessions<K> {
    /// No sessions yet. The first review is due at once.
    pub fn new(now: Time, config: Config) -> Self {
        Self { config, sessions: BTreeMap::new(), review_at: now, outputs: VecDeque::new() }
    }

    /// A client that has proved its key says hello with a carrier. `resumes` tells that the gateway
    /// should know the session; `limits` are those of the key.
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
        let most = limits.sessions as usize;
        if self.count(id.key) >= most {
            self.evict(id.key);
        }
        let count = self.count(id.key);
        if count >= most {
            self.doubt(now, id.key);
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

    /// Takes note of what happened.
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

    /// Compares all sessions with the list of authorized clients. `limits_of` are the limits of a
    /// key; `None` where it is not authorized.
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
            // An editor may empty the file before it fills it again, so one look is not enough.
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

    /// What to do next; nothing where all is done that can be at `now`.
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

    /// When to call [`Sessions::poll`] again if nothing happens before.
    pub fn next_wakeup(&self) -> Time {
        let asked = self.sessions.values().filter_map(|session| match session.liveness {
            Liveness::Asked { until, .. } => Some(until),
            Liveness::NotAsked | Liveness::Due { .. } => None,
        });
        asked.chain([self.review_at]).min().unwrap_or(self.review_at)
    }

    /// Whether there is such a session.
    pub fn contains(&self, id: SessionId<K>) -> bool {
        self.sessions.contains_key(&id)
    }

    /// The keys that have sessions.
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

    /// Ends the session of a key that has been without a carrier for longest, if there is one: its
    /// client may have been killed, and makes room for its successor.
    fn evict(&mut self, key: K) {
        let absent = self.of_key(key).filter_map(|(id, one)| Some((one.absent_since?, *id))).min();
        if let Some((_, id)) = absent {
            self.end(id, EndReason::Evicted);
        }
    }

    /// Asks the clients of a key for signs of life: a device whose power fails tells nothing, and is
    /// to find room when it is back.
    fn doubt(&mut self, now: Time, key: K) {
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
