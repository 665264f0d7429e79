//! Connection attempts to the addresses of one server, with a delay between them.

use std::collections::VecDeque;
use std::net::SocketAddr;

use manyways_unit::{Span, Time};

#[derive(Debug)]
pub(super) struct Attempts {
    addresses: Vec<SocketAddr>,
    waiting: VecDeque<SocketAddr>,
    trying: Vec<SocketAddr>,
    delay: Span,
    next_at: Time,
}

impl Attempts {
    pub(super) fn new(now: Time, delay: Span, addresses: Vec<SocketAddr>) -> Self {
        let waiting = addresses.iter().copied().collect();
        Self { addresses, waiting, trying: Vec::new(), delay, next_at: now }
    }

    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub(super) fn is_trying(&self, address: SocketAddr) -> bool {
        self.trying.contains(&address)
    }

    /// Whether every attempt has ended.
    pub(super) fn is_exhausted(&self) -> bool {
        self.waiting.is_empty() && self.trying.is_empty()
    }

    /// Returns the next address to connect to, if its attempt is due.
    pub(super) fn poll(&mut self, now: Time) -> Option<SocketAddr> {
        let address = self.waiting.pop_front_if(|_| self.next_at <= now)?;
        self.trying.push(address);
        self.next_at = now + self.delay;
        Some(address)
    }

    /// Ends a failed attempt. The next one need not wait.
    pub(super) fn on_failed(&mut self, now: Time, address: SocketAddr) {
        if let Some(at) = self.trying.iter().position(|trying| *trying == address) {
            self.trying.swap_remove(at);
            self.next_at = now;
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(self.next_at)
    }
}
