//! Removal of entries after an idle timeout, for example datagram flows, which have no explicit
//! end.

use std::collections::HashMap;
use std::hash::Hash;

use manyways_unit::{Span, Time};

/// Idle timeout of a datagram flow (RFC 4787 REQ-5 requires at least 2 minutes).
pub const FLOW_IDLE_TIMEOUT: Span = Span::from_secs(150);

/// Values by key, with the time of their last use.
#[derive(Clone, Debug)]
pub struct IdleTable<K, V> {
    timeout: Span,
    entries: HashMap<K, (Time, V)>,
    sweep_at: Time,
}

impl<K: Copy + Eq + Hash, V> IdleTable<K, V> {
    /// Creates an empty table with this idle timeout.
    pub fn new(now: Time, timeout: Span) -> Self {
        Self { timeout, entries: HashMap::new(), sweep_at: now + sweep_interval(timeout) }
    }

    /// Returns a value and records its use.
    pub fn use_at(&mut self, now: Time, key: K) -> Option<&mut V> {
        let (used, value) = self.entries.get_mut(&key)?;
        *used = now;
        Some(value)
    }

    /// Returns a value without recording a use.
    pub fn get(&self, key: K) -> Option<&V> {
        self.entries.get(&key).map(|(_, value)| value)
    }

    /// Adds or replaces a value.
    pub fn insert(&mut self, now: Time, key: K, value: V) {
        self.entries.insert(key, (now, value));
    }

    pub fn remove(&mut self, key: K) -> Option<V> {
        self.entries.remove(&key).map(|(_, value)| value)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes and returns the values that exceed the timeout. Does nothing before the next sweep,
    /// so that an entry may stay for up to 10 % longer.
    pub fn expire(&mut self, now: Time) -> Vec<(K, V)> {
        if now < self.sweep_at {
            return Vec::new();
        }
        self.sweep_at = now + sweep_interval(self.timeout);
        let timeout = self.timeout;
        self.entries
            .extract_if(|_, (used, _)| now.since(*used) > timeout)
            .map(|(key, (_, value))| (key, value))
            .collect()
    }

    /// Returns the time of the next [`IdleTable::expire`], or `None` if the table is empty.
    pub fn next_wakeup(&self) -> Option<Time> {
        (!self.entries.is_empty()).then_some(self.sweep_at)
    }
}

fn sweep_interval(timeout: Span) -> Span {
    Span::from_nanos(timeout.as_nanos() / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    #[test]
    fn what_is_used_stays_and_what_is_not_goes() {
        let mut table = IdleTable::new(at(0), FLOW_IDLE_TIMEOUT);
        assert_eq!(table.next_wakeup(), None);
        table.insert(at(0), 1, 'a');
        table.insert(at(0), 2, 'b');
        assert_eq!(table.use_at(at(100), 2), Some(&mut 'b'));
        assert_eq!(table.use_at(at(100), 3), None);
        assert_eq!(table.len(), 2);
        let mut gone = Vec::new();
        while let Some(wakeup) = table.next_wakeup() {
            gone.extend(table.expire(wakeup).into_iter().map(|(key, _)| (wakeup, key)));
            assert!(table.next_wakeup().is_none_or(|next| next > wakeup));
        }
        // 150 s after their last use, plus the delay of the sweep.
        assert_eq!(gone, [(at(165), 1), (at(255), 2)]);
        assert!(table.is_empty());
    }
}
