//! Counts of refused connections, and which ones are logged one by one.

use std::fmt;

use manyways_unit::{Span, Time};

use super::Abandonment;

/// Refusals of a minute that are logged one by one. The rest is summed, because a flood of
/// strangers would fill the disk.
const LISTED: u64 = 20;
const MINUTE: Span = Span::from_secs(60);

/// Reason for which the connection of a peer is refused or abandoned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RefusalCause {
    /// No handshake in time.
    TimedOut,
    /// Too many handshakes are pending.
    TooMany,
    /// Many strangers connect, and this one does not know the gateway.
    Stranger,
    /// The key is not in the allow file, or was removed from it.
    UnknownKey,
    /// The client expects a gateway with another key.
    OtherGateway,
    /// The peer does not speak the protocol.
    Foreign,
    /// The connection was lost during the handshake.
    Lost,
    /// The key has too many sessions.
    Sessions,
    /// The process lacks descriptors.
    Descriptors,
}

impl RefusalCause {
    pub const ALL: [Self; 9] = [
        Self::TimedOut,
        Self::TooMany,
        Self::Stranger,
        Self::UnknownKey,
        Self::OtherGateway,
        Self::Foreign,
        Self::Lost,
        Self::Sessions,
        Self::Descriptors,
    ];

    /// The label of the metric.
    pub fn name(self) -> &'static str {
        match self {
            Self::TimedOut => "timed-out",
            Self::TooMany => "too-many",
            Self::Stranger => "stranger",
            Self::UnknownKey => "unknown-key",
            Self::OtherGateway => "other-gateway",
            Self::Foreign => "foreign",
            Self::Lost => "lost",
            Self::Sessions => "sessions",
            Self::Descriptors => "descriptors",
        }
    }
}

impl From<Abandonment> for RefusalCause {
    fn from(why: Abandonment) -> Self {
        match why {
            Abandonment::TimedOut => Self::TimedOut,
            Abandonment::TooMany => Self::TooMany,
        }
    }
}

impl fmt::Display for RefusalCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "without a handshake in time",
            Self::TooMany => "because too many handshakes are pending",
            Self::Stranger => "because many strangers connect, and they do not know the gateway",
            Self::UnknownKey => "with an unknown key",
            Self::OtherGateway => "because they expect another gateway",
            Self::Foreign => "without the protocol of manyways bond",
            Self::Lost => "because they broke",
            Self::Sessions => "because their key has too many sessions",
            Self::Descriptors => "for lack of descriptors",
        })
    }
}

/// Counts refusals.
#[derive(Clone, Debug)]
pub struct Refusals {
    totals: [u64; RefusalCause::ALL.len()],
    /// Those of this minute, listed ones included.
    minute: [u64; RefusalCause::ALL.len()],
    /// Those of this minute that were not listed.
    unlisted: [u64; RefusalCause::ALL.len()],
    minute_end: Option<Time>,
}

impl Default for Refusals {
    fn default() -> Self {
        let none = [0; RefusalCause::ALL.len()];
        Self { totals: none, minute: none, unlisted: none, minute_end: None }
    }
}

impl Refusals {
    /// Counts a refusal. Returns whether it is logged on its own.
    pub fn note(&mut self, now: Time, cause: RefusalCause) -> bool {
        let place = cause as usize;
        self.totals[place] += 1;
        self.minute[place] += 1;
        self.minute_end.get_or_insert(now + MINUTE);
        let is_listed = self.minute.iter().sum::<u64>() <= LISTED;
        self.unlisted[place] += u64::from(!is_listed);
        is_listed
    }

    /// At the end of a minute, the refusals that were not logged on their own, most first.
    pub fn poll(&mut self, now: Time) -> Option<Vec<(RefusalCause, u64)>> {
        self.minute_end.take_if(|end| *end <= now)?;
        self.minute = Default::default();
        let unlisted = std::mem::take(&mut self.unlisted);
        let mut counts: Vec<(RefusalCause, u64)> =
            RefusalCause::ALL.into_iter().zip(unlisted).filter(|(_, count)| *count > 0).collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        (!counts.is_empty()).then_some(counts)
    }

    /// Returns the time of the next [`Refusals::poll`].
    pub fn next_wakeup(&self) -> Option<Time> {
        self.minute_end
    }

    /// All refusals so far.
    pub fn totals(&self) -> impl Iterator<Item = (RefusalCause, u64)> {
        RefusalCause::ALL.into_iter().zip(self.totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_a_minute() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.next_wakeup(), None);
        let at = |secs: u64| Time::from_millis(1_000 * secs);
        let note = |refusals: &mut Refusals, cause, count: u64| {
            (0..count).filter(|_| refusals.note(at(5), cause)).count()
        };
        assert_eq!(note(&mut refusals, RefusalCause::UnknownKey, 15), 15);
        assert_eq!(note(&mut refusals, RefusalCause::TimedOut, 15), 5);
        assert_eq!(note(&mut refusals, RefusalCause::TooMany, 9_000), 0);
        assert_eq!((refusals.poll(at(64)), refusals.next_wakeup()), (None, Some(at(65))));
        let counts = vec![(RefusalCause::TooMany, 9_000), (RefusalCause::TimedOut, 10)];
        assert_eq!(refusals.poll(at(65)), Some(counts));
        assert_eq!((refusals.poll(at(65)), refusals.next_wakeup()), (None, None));
        assert!(refusals.note(at(70), RefusalCause::Lost));
        assert_eq!(refusals.poll(at(130)), None, "all were listed");
        let totals: u64 = refusals.totals().map(|(_, count)| count).sum();
        assert_eq!(totals, 9_031);
    }

    #[test]
    fn each_cause_has_its_place() {
        for (place, cause) in RefusalCause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, place);
        }
    }
}
