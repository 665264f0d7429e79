//! Leases: which host has which address, and the facts about the host.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use manyways_unit::{Span, Time};

use super::{Facts, Hardware, Kind, Message};
use manyways_unit::LruMap;

/// Memory and time limits of [`Leases`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLimits {
    /// Maximum number of exchanges that wait for the server's reply.
    pub exchanges: usize,
    /// Maximum number of addresses; the lease granted longest ago is removed first.
    pub leases: usize,
    /// Time without a reply after which an exchange has failed.
    pub patience: Span,
}

/// An address that a host has or had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub address: Ipv4Addr,
    /// When the address was first granted in the capture.
    pub from: Time,
    /// When the lease ends or ended; [`Time::MAX`] if never. `None` if unknown.
    pub until: Option<Time>,
    /// Hardware address of the host.
    pub hardware: Hardware,
    /// Facts from the host's messages; empty if none was captured.
    pub facts: Facts,
    /// Whether the server's DHCPACK was captured. If not, the host requested this address and
    /// neither an answer nor a refusal was captured.
    pub is_confirmed: bool,
}

/// Joins requests of hosts with the leases that servers grant.
#[derive(Debug, Default)]
pub struct Leases {
    limits: LeaseLimits,
    pub(super) exchanges: LruMap<(u32, Hardware), Exchange>,
    pub(super) leases: LruMap<Ipv4Addr, Lease>,
    over: VecDeque<Lease>,
}

/// An exchange that waits for the server's reply.
#[derive(Debug)]
pub(super) struct Exchange {
    /// When the client's last message was captured.
    at: Time,
    /// The address that the client requested or has.
    address: Option<Ipv4Addr>,
    facts: Facts,
}

impl Default for LeaseLimits {
    /// 4,096 exchanges, 32,768 addresses and one minute for a reply: at most about 120 MB if each
    /// text has its maximum length, typically a tenth of that.
    fn default() -> Self {
        Self { exchanges: 1 << 12, leases: 1 << 15, patience: Span::from_secs(60) }
    }
}

impl Leases {
    pub fn new(limits: LeaseLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Processes a datagram between the ports 67 and 68.
    pub fn handle(&mut self, now: Time, message: &Message) {
        self.give_up(now);
        let Some(kind) = message.kind else { return };
        let Message { hardware, .. } = *message;
        let key = (message.exchange, hardware);
        match (message.is_reply, kind) {
            (false, Kind::Discover | Kind::Request | Kind::Inform) => self.asks(now, key, message),
            (false, Kind::Release | Kind::Decline) => {
                let address = message.client.or(message.requested);
                self.ends(now, address, hardware);
            }
            (true, Kind::Ack) => {
                let exchange = self.exchanges.remove(&key);
                // Replies to DHCPINFORM assign no address; the client keeps its own.
                let Some(address) = message.assigned.or(message.client) else { return };
                let lease = message.lease.filter(|_| message.assigned.is_some());
                self.grant(Lease {
                    address,
                    from: now,
                    until: lease.map(|lease| now + lease),
                    hardware,
                    facts: exchange.map(|exchange| exchange.facts).unwrap_or_default(),
                    is_confirmed: true,
                });
            }
            (true, Kind::Nak) => {
                let exchange = self.exchanges.remove(&key);
                self.ends(now, exchange.and_then(|exchange| exchange.address), hardware);
            }
            _ => {}
        }
    }

    /// The current lease of `address`, if a host had the address at `then`.
    pub fn holder(&self, then: Time, address: Ipv4Addr) -> Option<&Lease> {
        self.leases
            .get(&address)
            .filter(|lease| lease.from <= then && lease.until.is_none_or(|until| then < until))
    }

    /// Returns the next lease that has ended, was replaced, or was removed because of the limits,
    /// in no particular order. Leases wait here without a limit: call this after each message.
    pub fn poll(&mut self) -> Option<Lease> {
        self.over.pop_front()
    }

    /// Ends the capture and returns all leases in their current state.
    pub fn finish(&mut self) {
        while let Some((key, exchange)) = self.exchanges.pop_oldest() {
            self.assume(key, exchange);
        }
        while let Some((_, lease)) = self.leases.pop_oldest() {
            self.over.push_back(lease);
        }
    }

    fn asks(&mut self, now: Time, key: (u32, Hardware), message: &Message) {
        let empty = || Exchange { at: now, address: None, facts: Facts::default() };
        let exchange = self.exchanges.renew(key, empty);
        exchange.at = now;
        exchange.facts.learn(message.facts.clone());
        // The address in a DHCPDISCOVER is only a preference.
        if message.kind != Some(Kind::Discover) {
            exchange.address = message.client.or(message.requested).or(exchange.address);
        }
        if self.exchanges.len() > self.limits.exchanges
            && let Some((key, exchange)) = self.exchanges.pop_oldest()
        {
            self.assume(key, exchange);
        }
    }

    fn give_up(&mut self, now: Time) {
        let patience = self.limits.patience;
        while self.exchanges.oldest().is_some_and(|oldest| now.since(oldest.at) > patience) {
            let Some((key, exchange)) = self.exchanges.pop_oldest() else { return };
            self.assume(key, exchange);
        }
    }

    /// Assumes that the server granted an address although no reply was captured: some capture
    /// points see only the clients, and most hosts get the address that they request.
    fn assume(&mut self, (_, hardware): (u32, Hardware), exchange: Exchange) {
        let Exchange { at, address, facts } = exchange;
        if let Some(address) = address {
            let lease =
                Lease { address, from: at, until: None, hardware, facts, is_confirmed: false };
            self.grant(lease);
        }
    }

    fn grant(&mut self, new: Lease) {
        let now = new.from;
        match self.leases.get(&new.address) {
            Some(held) if held.hardware == new.hardware && held.until.is_none_or(|u| u >= now) => {
                let address = new.address;
                let held = self.leases.renew(address, || new.clone());
                held.until = new.until.or(held.until);
                held.facts.learn(new.facts);
                held.is_confirmed |= new.is_confirmed;
            }
            _ => {
                if let Some(mut before) = self.leases.insert(new.address, new) {
                    before.end(now);
                    self.over.push_back(before);
                }
            }
        }
        if self.leases.len() > self.limits.leases {
            self.over.extend(self.leases.pop_oldest().map(|(_, lease)| lease));
        }
    }

    fn ends(&mut self, now: Time, address: Option<Ipv4Addr>, hardware: Hardware) {
        let Some(address) = address else { return };
        if self.leases.get(&address).is_some_and(|lease| lease.hardware == hardware)
            && let Some(mut lease) = self.leases.remove(&address)
        {
            lease.end(now);
            self.over.push_back(lease);
        }
    }
}

impl Lease {
    /// Ends the lease at `now`, unless it ended earlier.
    fn end(&mut self, now: Time) {
        self.until = Some(self.until.map_or(now, |until| until.min(now)));
    }
}
