//! How long the first bytes of an application's connection are waited for: they travel with the
//! request for a connection, and may name the server.

use manyways_unit::{Span, Time};

/// The times of [`FirstBytes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The first byte is waited for no longer: in some protocols the server speaks first.
    pub first: Span,
    /// The rest of a name that has begun is waited for this long after each piece.
    pub name: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self { first: Span::from_millis(20), name: Span::from_millis(200) }
    }
}

/// The first bytes of one connection.
#[derive(Clone, Copy, Debug)]
pub struct FirstBytes {
    config: Config,
    deadline: Time,
}

impl FirstBytes {
    /// A connection begins.
    pub fn new(now: Time, config: Config) -> Self {
        Self { config, deadline: now + config.first }
    }

    /// More bytes have come.
    pub fn received(&mut self, now: Time) {
        self.deadline = now + self.config.name;
    }

    /// Until when to wait for more; `None` where no more are waited for. More are needed where there
    /// are none, and where a name has begun whose end has not come.
    pub fn deadline(&self, now: Time, needs_more: bool) -> Option<Time> {
        Some(self.deadline).filter(|deadline| needs_more && now < *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn a_silent_application_costs_little_and_a_name_that_has_begun_more() {
        let mut first = FirstBytes::new(at(0), Config::default());
        assert_eq!(first.deadline(at(0), true), Some(at(20)));
        assert_eq!(first.deadline(at(20), true), None, "the server may speak first");
        first.received(at(15));
        assert_eq!(first.deadline(at(15), false), None, "that is all there is to know");
        assert_eq!(first.deadline(at(15), true), Some(at(215)));
        first.received(at(200));
        assert_eq!(first.deadline(at(200), true), Some(at(400)));
        assert_eq!(first.deadline(at(400), true), None, "its end does not come");
    }
}
