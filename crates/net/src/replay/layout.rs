//! The servers of a recording as hosts of a lab: addresses, names, distances and ports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use manyways_unit::Span;
use manyways_wire::archive::Archive;

/// The network of hosts whose addresses are unknown, or cannot be in a lab: a part of the block for
/// benchmarks (RFC 2544) that labs leave free.
const FIRST_MADE_UP: u32 = u32::from_be_bytes([198, 18, 128, 0]);
/// Ports that browsers try for every name, even if the recording lacks one of them.
const USUAL_PORTS: [u16; 2] = [80, 443];

/// A host of the replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutHost {
    pub address: IpAddr,
    /// The recorded address. `None` if the recording lacks it.
    pub recorded: Option<IpAddr>,
    /// Names that lead to it, in lower case.
    pub names: Vec<String>,
    /// Round-trip time in addition to [`Layout::rtt`].
    pub extra_rtt: Span,
}

/// The hosts of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub hosts: Vec<LayoutHost>,
    pub ports: Vec<u16>,
    /// Round-trip time to the nearest host. `None` if the recording has none.
    pub rtt: Option<Span>,
    /// Hosts with another address than the recorded one.
    pub made_up: usize,
}

impl Layout {
    /// Returns the hosts of a recording. An address for which `is_usable` is false is replaced, and
    /// so is an unknown one: one for each host name. With `is_single`, one host has all names, at
    /// the distance of the nearest.
    pub fn new(archive: &Archive, is_single: bool, is_usable: impl Fn(IpAddr) -> bool) -> Self {
        let mut draft = Draft::default();
        for connection in &archive.connections {
            let Some(server) = connection.server else { continue };
            draft.ports.insert(server.port());
            let host = draft.recorded.entry(server.ip()).or_default();
            host.rtt = host.rtt.into_iter().chain(connection.rtt).min();
            let name = connection.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
            host.names.extend(name.and_then(host_name));
        }
        for exchange in &archive.exchanges {
            let Some((name, port)) = authority(&exchange.request.url) else { continue };
            draft.ports.insert(port);
            let server = archive.connection_of(exchange).and_then(|connection| connection.server);
            match (server, name.parse::<IpAddr>()) {
                // Several names share a connection of HTTP/2 only if they lead to one address.
                (Some(server), named) => {
                    let host = draft.recorded.entry(server.ip()).or_default();
                    host.names.extend(named.is_err().then(|| host_name(&name)).flatten());
                }
                (None, Ok(address)) => drop(draft.recorded.entry(address).or_default()),
                (None, Err(_)) => draft.unplaced.extend(host_name(&name)),
            }
        }
        draft.finish(is_single, is_usable)
    }

    /// Returns where a recorded server is now.
    pub fn address_of(&self, recorded: IpAddr) -> Option<IpAddr> {
        match &self.hosts[..] {
            [only] => Some(only.address),
            hosts => Some(hosts.iter().find(|host| host.recorded == Some(recorded))?.address),
        }
    }

    /// Returns the first address of a name, or an address in text.
    pub fn address_named(&self, name: &str) -> Option<IpAddr> {
        if let Ok(address) = name.parse() {
            return self.address_of(address);
        }
        let name = host_name(name)?;
        Some(self.hosts.iter().find(|host| host.names.contains(&name))?.address)
    }
}

#[derive(Default)]
struct Draft {
    recorded: BTreeMap<IpAddr, DraftHost>,
    /// Names without an address.
    unplaced: BTreeSet<String>,
    ports: BTreeSet<u16>,
}

#[derive(Default)]
struct DraftHost {
    names: BTreeSet<String>,
    rtt: Option<Span>,
}

impl Draft {
    fn finish(mut self, is_single: bool, is_usable: impl Fn(IpAddr) -> bool) -> Layout {
        let known: BTreeSet<&String> =
            self.recorded.values().flat_map(|host| &host.names).collect();
        let unplaced: Vec<String> =
            self.unplaced.iter().filter(|name| !known.contains(name)).cloned().collect();
        self.ports.extend(USUAL_PORTS);
        let rtt = self.recorded.values().filter_map(|host| host.rtt).min();
        let mut next = FIRST_MADE_UP;
        let mut make_up = || {
            next += 1;
            IpAddr::from(Ipv4Addr::from(next))
        };
        let mut made_up = 0;
        let nearest = rtt.unwrap_or_default();
        let mut hosts: Vec<LayoutHost> = Vec::new();
        for (address, host) in self.recorded {
            let extra_rtt = host.rtt.map_or(Span::ZERO, |rtt| rtt.saturating_sub(nearest));
            let is_kept = is_usable(address);
            made_up += usize::from(!is_kept);
            let recorded = Some(address);
            let address = if is_kept { address } else { make_up() };
            let names = host.names.into_iter().collect();
            hosts.push(LayoutHost { address, recorded, names, extra_rtt });
        }
        for name in unplaced {
            made_up += 1;
            let (address, names) = (make_up(), vec![name]);
            hosts.push(LayoutHost { address, recorded: None, names, extra_rtt: Span::ZERO });
        }
        if is_single && let Some(first) = hosts.first() {
            let names: BTreeSet<String> =
                hosts.iter().flat_map(|host| host.names.clone()).collect();
            let (address, recorded) = (first.address, first.recorded);
            let names = names.into_iter().collect();
            hosts = vec![LayoutHost { address, recorded, names, extra_rtt: Span::ZERO }];
        }
        Layout { hosts, ports: self.ports.into_iter().collect(), rtt, made_up }
    }
}

/// Returns the host and the port of a URL.
pub(super) fn authority(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    let default = if scheme == "https" { 443 } else { 80 };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().unwrap_or(default)),
        _ => (authority, default),
    };
    Some((host.trim_matches(['[', ']']).to_owned(), port))
}

/// Returns a name as a resolver knows it. `None` for an address.
fn host_name(name: &str) -> Option<String> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    (!name.is_empty() && name.parse::<IpAddr>().is_err()).then_some(name)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use manyways_unit::Time;
    use manyways_wire::archive::{Connection, Exchange, Protocol, Request, Timings, Tls};

    use super::*;

    fn connection(server: &str, name: Option<&str>, rtt: Option<u64>) -> Connection {
        let server: SocketAddr = server.parse().unwrap();
        Connection {
            server: Some(server),
            client_port: None,
            protocol: Protocol::Http2,
            tls: name.map(|name| Tls { server_name: Some(name.to_owned()), ..Tls::default() }),
            opened: None,
            closed: None,
            rtt: rtt.map(Span::from_millis),
        }
    }

    fn exchange(connection: Option<usize>, url: &str) -> Exchange {
        Exchange {
            connection,
            stream: None,
            page: None,
            started: Time::ZERO,
            timings: Timings::default(),
            request: Request {
                method: "GET".to_owned(),
                url: url.to_owned(),
                protocol: Protocol::Http2,
                fields: Vec::new(),
                body: None,
                trailers: Vec::new(),
            },
            response: None,
            think: None,
            abort: None,
        }
    }

    fn archive() -> Archive {
        Archive {
            connections: vec![
                connection("192.0.2.1:443", Some("a.example"), Some(30)),
                connection("192.0.2.1:443", Some("a.example"), Some(20)),
                connection("[2001:db8::1]:8443", Some("B.example."), Some(50)),
                connection("127.0.0.1:80", None, None),
            ],
            exchanges: vec![
                exchange(Some(0), "https://a.example/"),
                // On a connection of another name.
                exchange(Some(1), "https://c.example/x"),
                exchange(Some(3), "http://localhost/"),
                exchange(None, "https://d.example:444/"),
                exchange(None, "https://a.example/2"),
                exchange(None, "http://192.0.2.9/"),
                exchange(Some(2), "https://[2001:db8::1]:8443/"),
            ],
            ..Archive::default()
        }
    }

    fn host(address: &str, recorded: &str, names: &[&str], extra: u64) -> LayoutHost {
        LayoutHost {
            address: address.parse().unwrap(),
            recorded: recorded.parse().ok(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            extra_rtt: Span::from_millis(extra),
        }
    }

    #[test]
    fn every_recorded_address_is_a_host_with_its_names_and_distance() {
        let layout = Layout::new(&archive(), false, |address| !address.is_loopback());
        let expected = [
            host("198.18.128.1", "127.0.0.1", &["localhost"], 0),
            host("192.0.2.1", "192.0.2.1", &["a.example", "c.example"], 0),
            host("192.0.2.9", "192.0.2.9", &[], 0),
            host("2001:db8::1", "2001:db8::1", &["b.example"], 30),
            host("198.18.128.2", "", &["d.example"], 0),
        ];
        assert_eq!((&layout.hosts[..], layout.made_up), (&expected[..], 2));
        assert_eq!(layout.ports, [80, 443, 444, 8443]);
        assert_eq!(layout.rtt, Some(Span::from_millis(20)));
        let address = |text: &str| text.parse().ok();
        assert_eq!(layout.address_of("127.0.0.1".parse().unwrap()), address("198.18.128.1"));
        assert_eq!(layout.address_of("192.0.2.77".parse().unwrap()), None);
        for (name, expected) in
            [("C.example", "192.0.2.1"), ("192.0.2.9", "192.0.2.9"), ("d.example.", "198.18.128.2")]
        {
            assert_eq!(layout.address_named(name), address(expected), "{name}");
        }
    }

    #[test]
    fn one_server_has_all_names() {
        let layout = Layout::new(&archive(), true, |_| true);
        let names = ["a.example", "b.example", "c.example", "d.example", "localhost"];
        assert_eq!(layout.hosts, [host("127.0.0.1", "127.0.0.1", &names, 0)]);
        let anywhere = "192.0.2.9".parse().unwrap();
        assert_eq!(layout.address_of(anywhere), "127.0.0.1".parse().ok());
        assert_eq!(Layout::new(&Archive::default(), true, |_| true).hosts, []);
    }
}
