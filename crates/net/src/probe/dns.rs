//! Queries to a name server: how long its answers take, and whether they are true.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use manyways_model::probe::cost::{Plan, Transfer};
use manyways_model::probe::dns::{Answer, Lie, lie};
use manyways_proto::resolve::{Edns, Family, Transport};
use manyways_unit::{Size, Span};
use tokio::time::timeout;

use super::contract::{InvalidParameter, Probe, ProbeError, Run, Running, ip_header};
use super::report::Measurement;
use crate::resolve::message::{DnsAnswer, is_host_name};
use crate::resolve::{PathResolver, QueryError};

/// Queries for the addresses of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dns {
    pub name: String,
    pub transport: Transport,
    /// The name server; by default the first one of the network.
    pub server: Option<IpAddr>,
    /// A second name server, with whose answers those of the first are compared.
    pub second: Option<IpAddr>,
    /// Number of rounds, each with one query for each family.
    pub count: u64,
    /// Time to wait for an answer.
    pub timeout: Span,
}

/// Result of queries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DnsReport {
    pub queries: Vec<QueryReport>,
    /// A wrong answer of the first server.
    pub lie: Option<Lie>,
    /// Whether the first server gave an address for a name that cannot exist; `None` without an
    /// answer.
    pub rewrites_missing_names: Option<bool>,
}

/// One query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueryReport {
    pub server: IpAddr,
    /// Whether it is the second server.
    pub is_second: bool,
    pub family: Family,
    pub transport: Transport,
    /// Until the whole answer, with the connection of TCP; `None` without an answer.
    pub time: Option<Span>,
    pub outcome: QueryOutcome,
}

/// The answer to a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QueryOutcome {
    /// Empty if the name has no address of the family.
    Addresses(Vec<IpAddr>),
    NoSuchName,
    /// Longer than a datagram.
    Truncated,
    /// The reason.
    Failed(QueryError),
    TimedOut,
}

impl Dns {
    /// Queries for a name over UDP to the network's own name server.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            transport: Transport::Udp,
            server: None,
            second: None,
            count: 3,
            timeout: Span::from_secs(5),
        }
    }

    /// The servers, with whether each is the second one.
    fn servers(&self, first: IpAddr) -> impl Iterator<Item = (IpAddr, bool)> {
        [(first, false)].into_iter().chain(self.second.map(|second| (second, true)))
    }

    /// Maximum bytes of one query over UDP and, after a truncated answer, over TCP.
    fn one(&self) -> Transfer {
        const QUERY: u64 = 12 + 255 + 4 + 11;
        const UDP_ANSWER: u64 = 4_096;
        // Handshake, answer of the largest length in segments, and acknowledgements.
        const TCP_UP: u64 = 60 * 40 + QUERY + 2;
        const TCP_DOWN: u64 = 65_537 + 60 * 60;
        let ip = 40;
        Transfer {
            start: Span::ZERO,
            duration: self.timeout * 2,
            up: Size::from_bytes(ip + UDP_HEADER + QUERY + TCP_UP),
            down: Size::from_bytes(ip + UDP_HEADER + UDP_ANSWER + TCP_DOWN),
        }
    }

    async fn ask(
        &self,
        run: &mut Run,
        resolver: &PathResolver,
        (server, is_second): (IpAddr, bool),
        family: Family,
        name: &str,
        transport: Transport,
    ) -> Result<QueryReport, ProbeError> {
        let (header, query) = (ip_header(server), name.len() as u64 + 40);
        let bytes = |size: u64| match transport {
            Transport::Udp => Size::from_bytes(size + header + UDP_HEADER),
            // Its packets, and those of the handshake and the end.
            Transport::Tcp => Size::from_bytes(size + (size / 1_200 + 4) * (header + 40)),
        };
        run.spend(bytes(query), Size::ZERO)?;
        let sent = run.now();
        let query = resolver.query(server, name, family, transport, Edns::Offered);
        let answer = timeout(Duration::from(self.timeout), query).await;
        let time = answer.is_ok().then(|| run.now().since(sent));
        if let Ok(Ok(response)) = &answer {
            run.spend(Size::ZERO, bytes(response.length as u64))?;
        }
        let answer = answer.map(|response| response.map(|response| response.answer));
        let outcome = match answer {
            Err(_) => QueryOutcome::TimedOut,
            Ok(Err(error)) => QueryOutcome::Failed(error),
            Ok(Ok(DnsAnswer::Addresses(addresses))) => QueryOutcome::Addresses(addresses),
            Ok(Ok(DnsAnswer::NoSuchName)) => QueryOutcome::NoSuchName,
            Ok(Ok(DnsAnswer::Truncated)) => QueryOutcome::Truncated,
            Ok(Ok(DnsAnswer::Failed(code))) => QueryOutcome::Failed(QueryError::Response(code)),
            Ok(Ok(DnsAnswer::Unrelated)) => QueryOutcome::Failed(QueryError::Unrelated),
        };
        if !path_is_up(run) {
            return Err(ProbeError::InterfaceLost(run.path().name.clone()));
        }
        Ok(QueryReport { server, is_second, family, transport, time, outcome })
    }
}

fn path_is_up(run: &Run) -> bool {
    run.path().has_carrier()
}

const UDP_HEADER: u64 = 8;

/// A name below `invalid`, which never exists (RFC 6761, 6.4).
fn missing_name() -> String {
    format!("n{:016x}.invalid", RandomState::new().build_hasher().finish())
}

impl Probe for Dns {
    fn name(&self) -> &'static str {
        "dns"
    }

    fn target(&self) -> String {
        self.name.clone()
    }

    fn plan(&self) -> Result<Plan, InvalidParameter> {
        const MAX_COUNT: u64 = 1_000;
        let refuse = |text: String| Err(InvalidParameter(text));
        if !is_host_name(&self.name) {
            return refuse(format!("`{}` is not a host name", self.name));
        }
        if !(1..=MAX_COUNT).contains(&self.count) {
            return refuse(format!("the count is from 1 to {MAX_COUNT}"));
        }
        if self.timeout.is_zero() {
            return refuse("the timeout is zero".to_owned());
        }
        let servers = 1 + u64::from(self.second.is_some());
        // Two families in each round, and the missing name at the end.
        let queries = self.count * 2 * servers + 1;
        Ok(Plan::repeated(self.one(), queries, self.one().duration))
    }

    fn run<'a>(&'a self, run: &'a mut Run) -> Running<'a> {
        Box::pin(self.measure(run))
    }
}

impl Dns {
    async fn measure(&self, run: &mut Run) -> Result<(), ProbeError> {
        let resolver = run.network().resolver();
        let Some(first) = self.server.or_else(|| resolver.servers.first().copied()) else {
            return Err(ProbeError::NoNameServer(run.path().name.clone()));
        };
        let mut report = DnsReport { queries: Vec::new(), lie: None, rewrites_missing_names: None };
        for _ in 0..self.count {
            for server in self.servers(first) {
                for family in [Family::V4, Family::V6] {
                    let mut transport = self.transport;
                    loop {
                        let query =
                            self.ask(run, &resolver, server, family, &self.name, transport).await?;
                        let is_truncated = query.outcome == QueryOutcome::Truncated;
                        report.queries.push(query);
                        report.lie = self.lie(&report.queries);
                        run.report(Measurement::Dns(report.clone()));
                        if !is_truncated || transport == Transport::Tcp {
                            break;
                        }
                        transport = Transport::Tcp;
                    }
                }
            }
        }
        let missing = missing_name();
        let server = (first, false);
        let query = self.ask(run, &resolver, server, Family::V4, &missing, self.transport).await?;
        report.rewrites_missing_names = match query.outcome {
            QueryOutcome::Addresses(addresses) => Some(!addresses.is_empty()),
            QueryOutcome::NoSuchName => Some(false),
            _ => None,
        };
        run.report(Measurement::Dns(report));
        Ok(())
    }

    /// Compares the latest answers of the two servers.
    fn lie(&self, queries: &[QueryReport]) -> Option<Lie> {
        let second = self.second.map(|_| answer(queries, true))?;
        lie(&answer(queries, false), &second, None)
    }
}

/// The answer of a server for the name: the addresses of both families.
fn answer(queries: &[QueryReport], is_second: bool) -> Answer {
    let mut addresses = Vec::new();
    let mut is_answered = false;
    for query in queries.iter().filter(|query| query.is_second == is_second) {
        match &query.outcome {
            QueryOutcome::Addresses(found) => {
                is_answered = true;
                addresses.extend(
                    found
                        .iter()
                        .filter(|one| !addresses.contains(*one))
                        .copied()
                        .collect::<Vec<_>>(),
                );
            }
            QueryOutcome::NoSuchName => return Answer::NoName,
            _ => {}
        }
    }
    if is_answered { Answer::Addresses(addresses) } else { Answer::Failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(is_second: bool, outcome: QueryOutcome) -> QueryReport {
        QueryReport {
            server: IpAddr::from([192, 0, 2, 1]),
            is_second,
            family: Family::V4,
            transport: Transport::Udp,
            time: Some(Span::from_millis(20)),
            outcome,
        }
    }

    #[test]
    fn only_a_second_server_makes_a_lie() {
        let private = QueryOutcome::Addresses(vec![IpAddr::from([10, 0, 0, 1])]);
        let public = QueryOutcome::Addresses(vec![IpAddr::from([192, 0, 2, 7])]);
        let queries = [query(false, private), query(true, public)];
        let alone = Dns::new("example.org");
        assert_eq!(alone.lie(&queries), None);
        let compared = Dns { second: Some(IpAddr::from([192, 0, 2, 2])), ..alone };
        assert_eq!(compared.lie(&queries), Some(Lie::Private(IpAddr::from([10, 0, 0, 1]))));
        // Without an answer nothing is known.
        let silent = [query(false, QueryOutcome::TimedOut), queries[1].clone()];
        assert_eq!(compared.lie(&silent), None);
    }

    #[test]
    fn a_name_that_is_no_host_name_is_refused() {
        assert!(Dns::new("example.org").plan().is_ok());
        for name in ["", "a b", "https://example.org/"] {
            assert!(Dns::new(name).plan().is_err(), "{name}");
        }
        assert!(is_host_name(&missing_name()));
    }
}
