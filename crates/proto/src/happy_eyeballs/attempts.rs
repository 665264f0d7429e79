//! Connection attempts to the addresses of one server, with a delay between them.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use manyways_unit::Time;

use super::Config;

#[derive(Debug)]
pub(super) struct Attempts {
    addresses: Vec<SocketAddr>,
    waiting: VecDeque<SocketAddr>,
    /// Running attempts and their deadlines.
    running: BTreeMap<SocketAddr, Option<Time>>,
    /// Time of the next attempt; `None` until a running one fails.
    next_at: Option<Time>,
}

impl Attempts {
    /// Creates attempts that start at `now`. Duplicate addresses are ignored.
    pub(super) fn new(now: Time, addresses: Vec<SocketAddr>) -> Self {
        let mut waiting = VecDeque::new();
        for address in &addresses {
            if !waiting.contains(address) {
                waiting.push_back(*address);
            }
        }
        Self { addresses, waiting, running: BTreeMap::new(), next_at: Some(now) }
    }

    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the addresses of the running attempts.
    pub(super) fn running(&self) -> impl Iterator<Item = SocketAddr> {
        self.running.keys().copied()
    }

    pub(super) fn is_running(&self, address: SocketAddr) -> bool {
        self.running.contains_key(&address)
    }

    /// Whether every attempt has ended.
    pub(super) fn is_exhausted(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Returns the next address to connect to, if its attempt is due.
    pub(super) fn start_next(&mut self, now: Time, config: &Config) -> Option<SocketAddr> {
        let is_due = self.next_at.is_some_and(|at| at <= now);
        let address = self.waiting.pop_front_if(|_| is_due)?;
        self.running.insert(address, config.attempt_timeout.map(|timeout| now + timeout));
        self.next_at = config.attempt_delay.map(|delay| now + delay);
        Some(address)
    }

    /// Returns a running attempt whose deadline has passed.
    pub(super) fn overdue(&self, now: Time) -> Option<SocketAddr> {
        let is_overdue = |until: &Option<Time>| until.is_some_and(|until| until <= now);
        self.running.iter().find(|(_, until)| is_overdue(until)).map(|(address, _)| *address)
    }

    /// Ends a failed attempt. The next one need not wait.
    pub(super) fn on_failed(&mut self, now: Time, address: SocketAddr) {
        if self.running.remove(&address).is_some() {
            self.next_at = Some(now);
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        let next = self.next_at.filter(|_| !self.waiting.is_empty());
        next.into_iter().chain(self.running.values().flatten().copied()).min()
    }
}
