//! Leases: which host has which address, and the facts about the host.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use manyways_unit::{Span, Time};

use super::{ClientInfo, Hardware, Kind, Message};
use manyways_unit::LruMap;

/// Memory and time limits of [`Leases`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLimits {
    /// Maximum number of exchanges that wait for the server's reply.
    pub exchanges: usize,
    /// Maximum number of addresses; the lease granted longest ago is removed first.
    pub leases: usize,
    /// Time without a reply after which an exchange has failed.
    pub reply_timeout: Span,
}

/// An address that a host has or had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub address: Ipv4Addr,
    /// When the address was first granted in the capture.
    pub granted_at: Time,
    /// When the lease ends or ended; [`Time::MAX`] if never. `None` if unknown.
    pub expires_at: Option<Time>,
    /// Hardware address of the host.
    pub hardware: Hardware,
    /// Facts from the host's messages; empty if none was captured.
    pub client_info: ClientInfo,
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
    ended: VecDeque<Lease>,
}

/// An exchange that waits for the server's reply.
#[derive(Debug)]
pub(super) struct Exchange {
    /// When the client's last message was captured.
    at: Time,
    /// The address that the client requested or has.
    address: Option<Ipv4Addr>,
    client_info: ClientInfo,
}

impl Default for LeaseLimits {
    /// 4,096 exchanges, 32,768 addresses and one minute for a reply: at most about 120 MB if each
    /// text has its maximum length, typically a tenth of that.
    fn default() -> Self {
        Self { exchanges: 1 << 12, leases: 1 << 15, reply_timeout: Span::from_secs(60) }
    }
}

impl Leases {
    pub fn new(limits: LeaseLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Processes a datagram between the ports 67 and 68.
    pub fn handle(&mut self, now: Time, message: &Message) {
        self.expire_exchanges(now);
        let Some(kind) = message.kind else { return };
        let Message { hardware, .. } = *message;
        let key = (message.transaction_id, hardware);
        match (message.is_reply, kind) {
            (false, Kind::Discover | Kind::Request | Kind::Inform) => {
                self.on_request(now, key, message)
            }
            (false, Kind::Release | Kind::Decline) => {
                let address = message.client_address.or(message.requested);
                self.end_lease(now, address, hardware);
            }
            (true, Kind::Ack) => {
                let exchange = self.exchanges.remove(&key);
                // Replies to DHCPINFORM assign no address; the client keeps its own.
                let Some(address) = message.assigned.or(message.client_address) else { return };
                let lease = message.lease.filter(|_| message.assigned.is_some());
                self.grant(Lease {
                    address,
                    granted_at: now,
                    expires_at: lease.map(|lease| now + lease),
                    hardware,
                    client_info: exchange.map(|exchange| exchange.client_info).unwrap_or_default(),
                    is_confirmed: true,
                });
            }
            (true, Kind::Nak) => {
                let exchange = self.exchanges.remove(&key);
                self.end_lease(now, exchange.and_then(|exchange| exchange.address), hardware);
            }
            _ => {}
        }
    }

    /// The current lease of `address`, if a host had the address at `then`.
    pub fn holder(&self, then: Time, address: Ipv4Addr) -> Option<&Lease> {
        self.leases.get(&address).filter(|lease| {
            lease.granted_at <= then && lease.expires_at.is_none_or(|until| then < until)
        })
    }

    /// Returns the next lease that has ended, was replaced, or was removed because of the limits,
    /// in no particular order. Leases wait here without a limit: call this after each message.
    pub fn poll(&mut self) -> Option<Lease> {
        self.ended.pop_front()
    }

    /// Ends the capture and returns all leases in their current state.
    pub fn finish(&mut self) {
        while let Some((key, exchange)) = self.exchanges.pop_oldest() {
            self.assume_granted(key, exchange);
        }
        while let Some((_, lease)) = self.leases.pop_oldest() {
            self.ended.push_back(lease);
        }
    }

    fn on_request(&mut self, now: Time, key: (u32, Hardware), message: &Message) {
        let empty = || Exchange { at: now, address: None, client_info: ClientInfo::default() };
        let exchange = self.exchanges.refresh_or_insert_with(key, empty);
        exchange.at = now;
        exchange.client_info.update(message.client_info.clone());
        // The address in a DHCPDISCOVER is only a preference.
        if message.kind != Some(Kind::Discover) {
            exchange.address = message.client_address.or(message.requested).or(exchange.address);
        }
        if self.exchanges.len() > self.limits.exchanges
            && let Some((key, exchange)) = self.exchanges.pop_oldest()
        {
            self.assume_granted(key, exchange);
        }
    }

    fn expire_exchanges(&mut self, now: Time) {
        let timeout = self.limits.reply_timeout;
        while self.exchanges.oldest().is_some_and(|oldest| now.since(oldest.at) > timeout) {
            let Some((key, exchange)) = self.exchanges.pop_oldest() else { return };
            self.assume_granted(key, exchange);
        }
    }

    /// Assumes that the server granted an address although no reply was captured: some capture
    /// points see only the clients, and most hosts get the address that they request.
    fn assume_granted(&mut self, (_, hardware): (u32, Hardware), exchange: Exchange) {
        let Exchange { at, address, client_info: facts } = exchange;
        if let Some(address) = address {
            let lease = Lease {
                address,
                granted_at: at,
                expires_at: None,
                hardware,
                client_info: facts,
                is_confirmed: false,
            };
            self.grant(lease);
        }
    }

    fn grant(&mut self, new: Lease) {
        let now = new.granted_at;
        match self.leases.get(&new.address) {
            Some(held)
                if held.hardware == new.hardware && held.expires_at.is_none_or(|u| u >= now) =>
            {
                let address = new.address;
                let held = self.leases.refresh_or_insert_with(address, || new.clone());
                held.expires_at = new.expires_at.or(held.expires_at);
                held.client_info.update(new.client_info);
                held.is_confirmed |= new.is_confirmed;
            }
            _ => {
                if let Some(mut before) = self.leases.insert(new.address, new) {
                    before.end(now);
                    self.ended.push_back(before);
                }
            }
        }
        if self.leases.len() > self.limits.leases {
            self.ended.extend(self.leases.pop_oldest().map(|(_, lease)| lease));
        }
    }

    fn end_lease(&mut self, now: Time, address: Option<Ipv4Addr>, hardware: Hardware) {
        let Some(address) = address else { return };
        if self.leases.get(&address).is_some_and(|lease| lease.hardware == hardware)
            && let Some(mut lease) = self.leases.remove(&address)
        {
            lease.end(now);
            self.ended.push_back(lease);
        }
    }
}

impl Lease {
    /// Ends the lease at `now`, unless it ended earlier.
    fn end(&mut self, now: Time) {
        self.expires_at = Some(self.expires_at.map_or(now, |until| until.min(now)));
    }
}
