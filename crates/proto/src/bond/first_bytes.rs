//! Wait for the first bytes of an application's connection. The connection request contains them,
//! and they may name the server.

use manyways_unit::{Span, Time};

/// Timeouts of [`FirstBytes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Maximum wait for the first byte: in some protocols the server sends first.
    pub first_byte_timeout: Span,
    /// Maximum wait for the rest of an incomplete name, after each piece.
    pub name_timeout: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self { first_byte_timeout: Span::from_millis(20), name_timeout: Span::from_millis(200) }
    }
}

/// Deadline of the first bytes of one connection.
#[derive(Clone, Copy, Debug)]
pub struct FirstBytes {
    config: Config,
    deadline: Time,
}

impl FirstBytes {
    /// Creates the state of a connection that starts at `now`.
    pub fn new(now: Time, config: Config) -> Self {
        Self { config, deadline: now + config.first_byte_timeout }
    }

    /// Extends the deadline after received bytes.
    pub fn on_received(&mut self, now: Time) {
        self.deadline = now + self.config.name_timeout;
    }

    /// Returns the deadline, or `None` if there is nothing to wait for. `needs_more` is true if no
    /// byte was received, or if a name is incomplete.
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
        first.on_received(at(15));
        assert_eq!(first.deadline(at(15), false), None, "that is all there is to know");
        assert_eq!(first.deadline(at(15), true), Some(at(215)));
        first.on_received(at(200));
        assert_eq!(first.deadline(at(200), true), Some(at(400)));
        assert_eq!(first.deadline(at(400), true), None, "its end does not come");
    }
}
