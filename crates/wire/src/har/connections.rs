//! Connections of a file that lists only requests.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use manyways_unit::{Span, Time};

use super::entry::Draft;
use crate::archive::{Connection, Exchange, Protocol, Tls};

/// Connections so far, found by the drafts that they carried.
#[derive(Default)]
struct Finder {
    connections: Vec<Connection>,
    /// The end of the last exchange on each connection.
    busy_until: Vec<Time>,
    by_identifier: HashMap<Key, usize>,
    by_host: HashMap<HostKey, BTreeSet<(Time, usize)>>,
}

/// Identifies a connection. Entries without a server address have that of the latest entry with the
/// same identifier.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    identifier: String,
    /// Only in HTTP/1: a connection of HTTP/2 may carry several hosts (RFC 9113, 9.1.1).
    host: Option<String>,
    is_secure: bool,
    port: u16,
    version: Version,
    address: Option<IpAddr>,
}

type HostKey = (String, bool, u16, Version);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Version {
    One,
    Two,
    Three,
}

/// Returns the exchanges, sorted by start, with their connections and think times.
pub(super) fn assign(mut drafts: Vec<Draft>) -> (Vec<Exchange>, Vec<Connection>) {
    drafts.sort_by_key(|draft| draft.exchange.started);
    let has_identifiers = drafts.iter().any(|draft| draft.identifier.is_some());
    let mut finder = Finder::default();
    let mut exchanges = Vec::with_capacity(drafts.len());
    for mut draft in drafts {
        let index = match &draft.identifier {
            Some(identifier) => Some(finder.identified(identifier.clone(), &draft)),
            None if has_identifiers && !draft.is_transferred => None,
            None => Some(finder.inferred(&draft)),
        };
        if let Some(connection) = index.and_then(|index| finder.connections.get_mut(index)) {
            complete(connection, &mut draft);
        }
        draft.exchange.connection = index;
        exchanges.push(draft.exchange);
    }
    for exchange in &mut exchanges {
        let connection = exchange.connection.and_then(|index| finder.connections.get(index));
        let rtt = connection.and_then(|connection| connection.rtt);
        exchange.think = exchange.timings.wait.zip(rtt).map(|(wait, rtt)| wait.saturating_sub(rtt));
    }
    (exchanges, finder.connections)
}

impl Finder {
    fn identified(&mut self, identifier: String, draft: &Draft) -> usize {
        let version = version(draft);
        let with_address = Key {
            identifier,
            host: (version == Version::One).then(|| draft.url.host.clone()),
            is_secure: draft.url.is_secure,
            port: draft.url.port,
            version,
            address: draft.server,
        };
        let without = Key { address: None, ..with_address.clone() };
        let exact = self.by_identifier.get(&with_address).copied();
        // An address that becomes known belongs to the connection that had none.
        let latest = self.by_identifier.get(&without).copied().filter(|latest| {
            self.connections.get(*latest).is_some_and(|connection| connection.server.is_none())
        });
        let index = exact.or(latest).unwrap_or_else(|| self.open(draft));
        self.by_identifier.insert(with_address, index);
        self.by_identifier.insert(without, index);
        self.occupy(index, draft);
        index
    }

    fn inferred(&mut self, draft: &Draft) -> usize {
        let asked = draft.exchange.started + opening(&draft.exchange);
        let known = self.by_host.entry(host_key(draft)).or_default();
        let free = if version(draft) == Version::One {
            // The one that was used last. A time to connect means that the entry opened one.
            let is_new = draft.exchange.timings.connect.is_some_and(|connect| !connect.is_zero());
            known.range(..=(asked, usize::MAX)).next_back().filter(|_| !is_new)
        } else {
            known.last()
        };
        let free = free.map(|(_, index)| *index);
        let index = free.unwrap_or_else(|| self.open(draft));
        self.occupy(index, draft);
        index
    }

    fn occupy(&mut self, index: usize, draft: &Draft) {
        let Some(busy_until) = self.busy_until.get_mut(index) else { return };
        let known = self.by_host.entry(host_key(draft)).or_default();
        known.remove(&(*busy_until, index));
        *busy_until = end(&draft.exchange).max(*busy_until);
        known.insert((*busy_until, index));
    }

    fn open(&mut self, draft: &Draft) -> usize {
        let url = &draft.url;
        self.busy_until.push(Time::ZERO);
        self.connections.push(Connection {
            server: None,
            client_port: draft.client_port,
            protocol: draft.exchange.request.protocol,
            tls: url.is_secure.then(|| Tls {
                server_name: url.server_name(),
                alpn: None,
                certificate: None,
            }),
            opened: None,
            closed: None,
            rtt: None,
        });
        self.connections.len() - 1
    }
}

/// Adds to a connection what one of its drafts states.
fn complete(connection: &mut Connection, draft: &mut Draft) {
    let address = draft.server.map(|address| SocketAddr::new(address, draft.url.port));
    connection.server = connection.server.or(address);
    connection.client_port = connection.client_port.or(draft.client_port);
    connection.rtt = match (connection.rtt, draft.rtt) {
        (Some(known), Some(other)) => Some(known.min(other)),
        (known, other) => known.or(other),
    };
    let timings = &draft.exchange.timings;
    if connection.opened.is_none() && timings.connect.is_some_and(|connect| !connect.is_zero()) {
        let before = [timings.blocked, timings.dns].into_iter().flatten().sum::<Span>();
        connection.opened = Some(draft.exchange.started + before);
    }
    let alpn = draft.alpn.take().or_else(|| {
        // HTTP/1 needs no negotiation, HTTP/2 and HTTP/3 always have one.
        match draft.exchange.request.protocol {
            Protocol::Http10 | Protocol::Http11 => None,
            Protocol::Http2 => Some("h2".to_owned()),
            Protocol::Http3 => Some("h3".to_owned()),
        }
    });
    if let Some(tls) = &mut connection.tls {
        tls.alpn = tls.alpn.take().or(alpn);
    }
}

fn host_key(draft: &Draft) -> HostKey {
    (draft.url.host.clone(), draft.url.is_secure, draft.url.port, version(draft))
}

fn version(draft: &Draft) -> Version {
    match draft.exchange.request.protocol {
        Protocol::Http10 | Protocol::Http11 => Version::One,
        Protocol::Http2 => Version::Two,
        Protocol::Http3 => Version::Three,
    }
}

/// From the start to the first byte of the request.
fn opening(exchange: &Exchange) -> Span {
    let timings = &exchange.timings;
    [timings.blocked, timings.dns, timings.connect].into_iter().flatten().sum()
}

fn end(exchange: &Exchange) -> Time {
    let timings = &exchange.timings;
    let transfer: Span = [timings.send, timings.wait, timings.receive].into_iter().flatten().sum();
    exchange.started + opening(exchange) + transfer
}
