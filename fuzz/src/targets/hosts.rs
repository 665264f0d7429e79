//! Messages of hosts to DNS and DHCP servers, and files about hosts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use manyways_flows::device;
use manyways_unit::{Span, Time};
use manyways_wire::dhcp::{self, LeaseLimits, Leases};
use manyways_wire::dns::{
    self, HostsTable, Limits, Lookup, LookupLimits, Lookups, QueriedBy, Resolution, Resolutions,
    Transport,
};

pub(super) const DHCP_WORDS: &[&str] =
    &["c", "\u{35}\u{1}\u{5}", "\u{34}\u{1}\u{3}", "\u{37}\u{3}\u{1}\u{3}\u{6}"];

pub(super) const POOL_WORDS: &[&str] =
    &["prefix,handheld,system\n", "10.20.0.0/16", "2001:db8::/32", ",", "yes", "no", "ios", "\n#"];
pub(super) const HOSTS_TABLE_WORDS: &[&str] = &[
    "time,client,name,address\n",
    "1700000000.25,",
    "10.0.0.1",
    "a.example",
    "192.0.2.1",
    "2001:db8::1",
    ",,",
    "\n",
    "%lo0 ",
];

/// Every pool has a property of its devices, and an error has a line of the file.
pub(super) fn pools(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    match device::pools(bytes) {
        Err(error) => assert!((1..=lines).contains(&error.line)),
        Ok(pools) => {
            assert!(pools.len() <= lines);
            assert!(pools.iter().all(|pool| pool.handheld.is_some() || pool.system.is_some()));
        }
    }
}

/// A file of names, read once and twice: the second read changes nothing.
pub(super) fn hosts_table(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let mut table = HostsTable::default();
    if let Err(error) = table.read(bytes) {
        assert!((1..=lines).contains(&error.line));
        return;
    }
    assert!(table.len() <= lines);
    let mut twice = table.clone();
    assert!(twice.read(bytes).is_ok());
    let text = String::from_utf8_lossy(bytes);
    let addresses = text.split([',', ' ', '\n']).filter_map(|word| word.parse::<IpAddr>().ok());
    for address in addresses.take(16) {
        assert_eq!(table.host(address), twice.host(address));
        for then in [0, 1_700_000_000_250] {
            let then = Time::from_millis(then);
            assert_eq!(table.name(then, address, address), twice.name(then, address, address));
        }
    }
}

/// All bytes as one message in both directions; then as messages of a stream, each preceded by a
/// byte with its direction and truncation.
pub(super) fn dns_lookups(bytes: &[u8]) {
    let limits = LookupLimits { lookups: 4, ..LookupLimits::default() };
    let mut checker = LookupChecker {
        lookups: Lookups::new(limits),
        names: small_memory(),
        sent: 0,
        reported: 0,
        now: 0,
    };
    for cut in [bytes.len(), bytes.len() / 4] {
        for is_up in [true, false] {
            checker.send(is_up, &bytes[..cut], bytes.len());
        }
    }
    let mut rest = bytes;
    while let Some((control, stream)) = rest.split_first() {
        let Some(message) = dns::tcp_message(stream).complete() else { break };
        let cut = message.len().saturating_sub(usize::from(control >> 1));
        checker.send(control & 1 == 0, &message[..cut], message.len());
        rest = &stream[2 + message.len()..];
    }
    checker.lookups.finish();
    checker.check_finished();
    assert!(checker.lookups.is_empty());
    assert_eq!(checker.sent, checker.reported, "each message is in one row");
}

struct LookupChecker {
    lookups: Lookups,
    names: Resolutions,
    /// Number of valid messages that passed, and of messages in the results.
    sent: u64,
    reported: u64,
    now: u64,
}

fn small_memory() -> Resolutions {
    Resolutions::new(Limits { addresses: 64, ..Limits::default() })
}

impl LookupChecker {
    fn send(&mut self, is_up: bool, message: &[u8], length: usize) {
        self.now += 700 * (1 + message.len() as u64 % 16);
        let now = Time::from_millis(self.now);
        let phone = SocketAddr::from(([192, 0, 2, 9], 5_000));
        let server = SocketAddr::from(([192, 0, 2, 53], 53));
        let (from, to) = if is_up { (phone, server) } else { (server, phone) };
        let before = self.lookups.unparsed();
        let info = self.lookups.handle(now, Transport::Udp, from, to, message, length);
        self.sent += 1 - (self.lookups.unparsed() - before);
        assert_eq!(info.is_dns, self.lookups.unparsed() == before);
        assert!(self.lookups.len() <= 4);
        if let Some(resolved) = info.resolution {
            self.names.learn(now, &resolved);
            self.check(now, &resolved);
        }
        self.check_finished();
    }

    fn check(&self, now: Time, resolved: &Resolution) {
        match resolved {
            Resolution::Addresses { client, answered } => {
                assert!((1..=dns::MAX_ADDRESSES).contains(&answered.addresses.len()));
                for (address, _) in &answered.addresses {
                    let known = self.names.name(now, *client, *address);
                    assert_eq!(known, Some((&answered.name, QueriedBy::Client)));
                }
            }
            Resolution::Pointer { address, name, .. } => {
                assert_eq!(self.names.reverse(*address), Some(name));
            }
        }
    }

    fn check_finished(&mut self) {
        while let Some(lookup) = self.lookups.poll() {
            check_lookup(&lookup);
            let replies = lookup.response.as_ref().map_or(0, |reply| reply.responses);
            self.reported += u64::from(lookup.queries) + u64::from(replies);
        }
    }
}

fn check_lookup(lookup: &Lookup) {
    let names = lookup.question.iter().map(|question| &question.name);
    let canonical = lookup.response.iter().filter_map(|reply| reply.canonical_name.as_ref());
    for name in names.chain(canonical) {
        assert!((1..=1_016).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic()));
    }
    let addresses: &[IpAddr] = lookup.response.as_ref().map_or(&[], |reply| &reply.addresses);
    assert!(addresses.len() <= dns::MAX_ADDRESSES);
    assert!(lookup.queried_at.is_some() == (lookup.queries > 0));
    assert!(lookup.queried_at.is_some() || lookup.response.is_some());
}

/// A message, whole and truncated, twice each.
pub(super) fn dhcp(bytes: &[u8]) {
    let limits = LeaseLimits { leases: 2, exchanges: 2, ..LeaseLimits::default() };
    let mut leases = Leases::new(limits);
    let whole = dhcp::Message::read(bytes, bytes.len());
    let part = dhcp::Message::read(&bytes[..bytes.len() / 2], bytes.len());
    if let (Some(whole), Some(part)) = (&whole, &part) {
        assert!(part.is_truncated && part.hardware == whole.hardware);
        assert!(part.kind.is_none() || part.kind == whole.kind);
    }
    let mut now = Time::ZERO;
    for message in [&whole, &part, &part, &whole].into_iter().flatten() {
        let facts = &message.client_info;
        for text in [&facts.fingerprint, &facts.vendor, &facts.hostname].into_iter().flatten() {
            assert!((1..=1_020).contains(&text.len()));
            assert!(text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()));
        }
        now += Span::from_secs(40);
        leases.handle(now, message);
    }
    leases.finish();
    assert_eq!(leases.holder(now, Ipv4Addr::LOCALHOST), None);
    while let Some(lease) = leases.poll() {
        assert!(lease.expires_at.is_none_or(|until| until >= lease.granted_at));
    }
}
