//! Which host has which address, and what it says of itself.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use manyways_unit::{Span, Time};

use super::{Facts, Hardware, Kind, Message};
use manyways_unit::LruMap;

/// What [`Leases`] may hold, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLimits {
    /// So many exchanges that wait for a server's word.
    pub exchanges: usize,
    /// So many addresses; of more, the one goes that was granted longest ago.
    pub leases: usize,
    /// A host that gets no answer for so long gets none.
    pub patience: Span,
}

/// A host has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub address: Ipv4Addr,
    /// When it was granted first, as far as that passed.
    pub from: Time,
    /// When it ends, or did; [`Time::MAX`] for never. None when that was not said.
    pub until: Option<Time>,
    /// The host.
    pub hardware: Hardware,
    /// What the host says of itself; nothing where none of its messages passed.
    pub facts: Facts,
    /// Whether the server's word passed. If not, the host asked for this address, and neither an
    /// answer passed nor that it was refused.
    pub is_confirmed: bool,
}

/// Joins what hosts ask for with what servers grant.
#[derive(Debug, Default)]
pub struct Leases {
    limits: LeaseLimits,
    pub(super) exchanges: LruMap<(u32, Hardware), Exchange>,
    pub(super) leases: LruMap<Ipv4Addr, Lease>,
    over: VecDeque<Lease>,
}

/// What a host said in an exchange so far.
#[derive(Debug)]
pub(super) struct Exchange {
    /// When it did last.
    at: Time,
    /// The address that it asked a server for, or has.
    address: Option<Ipv4Addr>,
    facts: Facts,
}

impl Default for LeaseLimits {
    /// 4,096 exchanges and 32,768 addresses, and a minute for an answer: at most about 120 MB when
    /// every text is as long as can be, and commonly a tenth of it.
    fn default() -> Self {
        Self { exchanges: 1 << 12, leases: 1 << 15, patience: Span::from_secs(60) }
    }
}

impl Leases {
    /// Empty, with these limits.
    pub fn new(limits: LeaseLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// A datagram between the ports 67 and 68 passes.
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
                // Who has an address already is only told the other parameters.
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

    /// Whether a host had this address then, of those that have one now, and which.
    pub fn holder(&self, then: Time, address: Ipv4Addr) -> Option<&Lease> {
        self.leases
            .get(&address)
            .filter(|lease| lease.from <= then && lease.until.is_none_or(|until| then < until))
    }

    /// A lease that is over, was followed by another one, or has no room any more, in no order.
    /// They wait here without a limit: to be called after each message.
    pub fn poll(&mut self) -> Option<Lease> {
        self.over.pop_front()
    }

    /// Nothing passes any more: all leases come out as they are.
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
        // What a host that looks for servers asks for is a wish.
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

    /// No answer passed. Captures that see only what hosts send are like that, and mostly a host
    /// gets what it asks for by name.
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
    /// It ends now, unless it had before.
    fn end(&mut self, now: Time) {
        self.until = Some(self.until.map_or(now, |until| until.min(now)));
    }
}
