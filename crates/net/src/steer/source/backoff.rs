//! Growing waits between attempts to reach a source.

use manyways_unit::Span;

const MIN: Span = Span::from_secs(1);
const MAX: Span = Span::from_secs(60);
/// A source that worked this long was not the cause of the previous failures.
const STABLE: Span = Span::from_secs(10);

/// The wait before the next attempt: it doubles from a second to a minute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    next: Span,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { next: MIN }
    }

    /// Returns the wait after a failure of a source that had worked for `worked`.
    pub(super) fn on_failure(&mut self, worked: Span) -> Span {
        if worked >= STABLE {
            self.next = MIN;
        }
        let wait = self.next;
        self.next = (wait * 2).min(MAX);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_until_the_source_works_for_a_while() {
        let mut backoff = Backoff::new();
        let waits: Vec<_> = (0..8).map(|_| backoff.on_failure(Span::from_secs(9))).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60].map(Span::from_secs));
        assert_eq!(backoff.on_failure(Span::from_secs(10)), Span::from_secs(1));
        assert_eq!(backoff.on_failure(Span::ZERO), Span::from_secs(2));
    }
}
