//! Decides which name server of a path is queried, with which timeout, and with which result.
//!
//! [`Lookup`] queries one server after the other, and all of them again with a longer timeout while
//! none answers. Each server gets one query for each address family of the path: over UDP and, if
//! the answer is truncated, over TCP. A server that may not know EDNS, because its response is an
//! error or it is silent, is queried without EDNS from then on (RFC 6891 §6.2.2, §7). When one
//! family has addresses, the wait for the other is limited to the resolution delay (RFC 8305 §3).
//!
//! ```text
//! query   Udp ──truncated──▶ Tcp ──▶ answered, failed or timed out
//!         Offered ──error of EDNS──▶ Omitted, once
//! server  both families queried ──first addresses──▶ RESOLUTION_DELAY ──▶ done
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;

use manyways_unit::{Span, Time};

/// Timeouts and limits of a lookup.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LookupConfig {
    /// Timeout of one query, for each round over all servers. A mobile network that leaves idle
    /// needs more than a second.
    pub server_timeouts: [Span; 3],
    /// Wait for the second family after the first one has addresses. RFC 8305 §3 recommends 50 ms;
    /// cellular name servers need more.
    pub resolution_delay: Span,
    /// Maximum number of servers that are queried.
    pub max_servers: usize,
}

impl Default for LookupConfig {
    fn default() -> Self {
        Self {
            server_timeouts: [Span::from_millis(1500), Span::from_secs(2), Span::from_secs(3)],
            resolution_delay: Span::from_millis(250),
            max_servers: 4,
        }
    }
}

/// Address family of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4: `A` records.
    V4,
    /// IPv6: `AAAA` records.
    V6,
}

/// Transport protocol of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    Udp,
    /// For an answer that exceeds a datagram.
    Tcp,
}

/// Whether a query announces the extensions of DNS (RFC 6891) by an OPT record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edns {
    Offered,
    /// For a server that does not know EDNS.
    Omitted,
}

/// The answer to one query; `E` is the error of a query without an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QueryAnswer<E> {
    /// The addresses of the name in this family; empty if it has only others.
    Addresses(Vec<IpAddr>),
    /// The name does not exist.
    NoSuchName,
    /// The answer is longer than the transport permits.
    Truncated,
    /// The server reports an error that a query without EDNS may not have.
    EdnsError(E),
    /// The server cannot be reached or does not answer.
    Failed(E),
}

/// An action of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LookupOutput<E> {
    /// Query this server for addresses of this family, and report the answer to [`Lookup::handle`].
    /// The query replaces an unanswered one for the same family.
    Query { server: IpAddr, family: Family, transport: Transport, edns: Edns },
    /// The addresses of the name, at least one. There are no further outputs.
    Resolved(Vec<IpAddr>),
    /// The name has no address on this path. There are no further outputs.
    Failed(LookupFailure<E>),
}

/// Why a lookup found no address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LookupFailure<E> {
    /// The path has no name server.
    NoServer,
    /// This server reports that the name does not exist.
    NoSuchName(IpAddr),
    /// The name exists, but has no address of a family that the path has.
    NoAddress,
    /// No server answered; the last problem of each server.
    NoAnswer(Vec<(IpAddr, ServerFailure<E>)>),
}

/// Why a server gave no usable answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerFailure<E> {
    /// No answer within this time.
    Timeout(Span),
    /// Its answer is truncated even over TCP.
    Truncated,
    /// The query failed.
    Failed(E),
}

impl<E: fmt::Display> fmt::Display for ServerFailure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(span) => write!(f, "no answer within {} s", span.as_secs_f64()),
            Self::Truncated => f.write_str("the answer is truncated even over TCP"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

/// The lookup of one name over one path.
#[derive(Debug)]
pub struct Lookup<E> {
    config: LookupConfig,
    servers: Vec<IpAddr>,
    families: Vec<Family>,
    /// Last problem of each server.
    failures: Vec<Option<ServerFailure<E>>>,
    /// Of the next query to each server.
    edns: Vec<Edns>,
    round: usize,
    server: usize,
    queries: Vec<Query<E>>,
    /// End of the resolution delay; `None` while no family has addresses.
    delay_until: Option<Time>,
    outputs: VecDeque<LookupOutput<E>>,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Starting,
    Querying,
    Finished,
}

#[derive(Debug)]
struct Query<E> {
    family: Family,
    state: QueryState<E>,
}

#[derive(Debug)]
enum QueryState<E> {
    Waiting { transport: Transport, edns: Edns, since: Time },
    Done(Outcome<E>),
}

#[derive(Clone, Debug)]
enum Outcome<E> {
    Addresses(Vec<IpAddr>),
    NoSuchName,
    Failure(ServerFailure<E>),
    /// Ended by the resolution delay: the other family has addresses.
    Superseded,
}

impl<E: Clone> Lookup<E> {
    /// Creates a lookup that queries `servers` in this order. `addresses` are the path's own: only
    /// their families are queried, or both families if there are none.
    pub fn new(config: LookupConfig, servers: &[IpAddr], addresses: &[IpAddr]) -> Self {
        let servers: Vec<IpAddr> = servers.iter().copied().take(config.max_servers).collect();
        let has = |v6| addresses.is_empty() || addresses.iter().any(|ip| ip.is_ipv6() == v6);
        let families = [(Family::V4, has(false)), (Family::V6, has(true))];
        Self {
            config,
            failures: vec![None; servers.len()],
            edns: vec![Edns::Offered; servers.len()],
            servers,
            families: families.into_iter().filter(|(_, has)| *has).map(|(f, _)| f).collect(),
            round: 0,
            server: 0,
            queries: Vec::new(),
            delay_until: None,
            outputs: VecDeque::new(),
            phase: Phase::Starting,
        }
    }

    /// Applies the answer to the latest query of this family.
    pub fn handle(&mut self, now: Time, family: Family, answer: QueryAnswer<E>) {
        let query = self.queries.iter_mut().find(|query| query.family == family);
        let Some(Query { state, .. }) = query else { return };
        let QueryState::Waiting { transport, edns, .. } = *state else { return };
        let mut query_again = |transport, edns| {
            *state = QueryState::Waiting { transport, edns, since: now };
            if let Some(server) = self.servers.get(self.server).copied() {
                self.outputs.push_back(LookupOutput::Query { server, family, transport, edns });
            }
        };
        let outcome = match (answer, transport) {
            (QueryAnswer::Truncated, Transport::Udp) => return query_again(Transport::Tcp, edns),
            (QueryAnswer::EdnsError(_), _) if edns == Edns::Offered => {
                query_again(transport, Edns::Omitted);
                return self.omit_edns();
            }
            (QueryAnswer::Truncated, Transport::Tcp) => Outcome::Failure(ServerFailure::Truncated),
            (QueryAnswer::Addresses(addresses), _) => {
                if !addresses.is_empty() {
                    self.delay_until = Some(now + self.config.resolution_delay);
                }
                Outcome::Addresses(addresses)
            }
            (QueryAnswer::NoSuchName, _) => Outcome::NoSuchName,
            (QueryAnswer::EdnsError(error) | QueryAnswer::Failed(error), _) => {
                Outcome::Failure(ServerFailure::Failed(error))
            }
        };
        *state = QueryState::Done(outcome);
    }

    /// Queries the current server without EDNS from now on.
    fn omit_edns(&mut self) {
        if let Some(edns) = self.edns.get_mut(self.server) {
            *edns = Edns::Omitted;
        }
    }

    /// Returns the next action; `None` if there is none before the next input or
    /// [`Lookup::next_wakeup`].
    pub fn poll(&mut self, now: Time) -> Option<LookupOutput<E>> {
        if self.phase == Phase::Starting {
            self.phase = Phase::Querying;
            self.query_server(now);
        }
        if self.phase == Phase::Querying {
            self.expire(now);
            self.conclude(now);
        }
        self.outputs.pop_front()
    }

    /// When to poll again without an input; `None` after the end.
    pub fn next_wakeup(&self) -> Option<Time> {
        if self.phase == Phase::Finished {
            return None;
        }
        let deadlines = self.queries.iter().filter_map(|query| self.deadline(query));
        deadlines.min()
    }

    /// When an unanswered query times out.
    fn deadline(&self, query: &Query<E>) -> Option<Time> {
        match query.state {
            QueryState::Waiting { since, .. } => {
                let timeout = since + self.timeout();
                Some(self.delay_until.map_or(timeout, |delay| delay.min(timeout)))
            }
            QueryState::Done(_) => None,
        }
    }

    fn timeout(&self) -> Span {
        self.config.server_timeouts.get(self.round).copied().unwrap_or_default()
    }

    fn query_server(&mut self, now: Time) {
        let Some(server) = self.servers.get(self.server).copied() else {
            return self.end(LookupOutput::Failed(LookupFailure::NoServer));
        };
        self.delay_until = None;
        let transport = Transport::Udp;
        let edns = self.edns.get(self.server).copied().unwrap_or(Edns::Offered);
        let query = |family: &Family| Query {
            family: *family,
            state: QueryState::Waiting { transport, edns, since: now },
        };
        self.queries = self.families.iter().map(query).collect();
        let queries = self.families.iter().map(|family| LookupOutput::Query {
            server,
            family: *family,
            transport,
            edns,
        });
        self.outputs.extend(queries);
    }

    fn expire(&mut self, now: Time) {
        let (timeout, delay_ends) = (self.timeout(), self.delay_until);
        for query in &mut self.queries {
            let QueryState::Waiting { since, .. } = query.state else { continue };
            if delay_ends.is_some_and(|at| at <= now) {
                query.state = QueryState::Done(Outcome::Superseded);
            } else if since + timeout <= now {
                query.state = QueryState::Done(Outcome::Failure(ServerFailure::Timeout(timeout)));
            }
        }
    }

    /// Ends the lookup or continues with the next server, when all queries to this server have
    /// ended.
    fn conclude(&mut self, now: Time) {
        let outcomes: Option<Vec<Outcome<E>>> = self
            .queries
            .iter()
            .map(|query| match &query.state {
                QueryState::Done(outcome) => Some(outcome.clone()),
                QueryState::Waiting { .. } => None,
            })
            .collect();
        let Some(outcomes) = outcomes else { return };
        let (mut addresses, mut is_missing, mut problem) = (Vec::new(), false, None);
        for outcome in outcomes {
            match outcome {
                Outcome::Addresses(found) => addresses.extend(found),
                Outcome::NoSuchName => is_missing = true,
                Outcome::Failure(found) => problem = Some(found),
                Outcome::Superseded => {}
            }
        }
        let server = self.servers.get(self.server).copied();
        match (problem, server) {
            _ if !addresses.is_empty() => self.end(LookupOutput::Resolved(addresses)),
            (_, Some(server)) if is_missing => {
                self.end(LookupOutput::Failed(LookupFailure::NoSuchName(server)));
            }
            (Some(problem), _) => self.try_next_server(now, problem),
            _ => self.end(LookupOutput::Failed(LookupFailure::NoAddress)),
        }
    }

    /// Queries the next server, or the first one in the next round.
    fn try_next_server(&mut self, now: Time, problem: ServerFailure<E>) {
        // A firewall may drop queries or responses with EDNS.
        if matches!(problem, ServerFailure::Timeout(_)) {
            self.omit_edns();
        }
        if let Some(last) = self.failures.get_mut(self.server) {
            *last = Some(problem);
        }
        self.server += 1;
        if self.server == self.servers.len() {
            (self.server, self.round) = (0, self.round + 1);
        }
        if self.round < self.config.server_timeouts.len() {
            return self.query_server(now);
        }
        let problems = self.servers.iter().copied().zip(std::mem::take(&mut self.failures));
        let problems = problems.filter_map(|(server, problem)| Some((server, problem?))).collect();
        self.end(LookupOutput::Failed(LookupFailure::NoAnswer(problems)));
    }

    fn end(&mut self, output: LookupOutput<E>) {
        self.outputs.push_back(output);
        self.queries.clear();
        self.phase = Phase::Finished;
    }
}

/// Sorts the addresses of a server, with the preferred family first. IPv6 is preferred (RFC 6724)
/// if the path has an IPv6 address of the same kind as the server, unique local or global; other
/// IPv6 packets are hardly ever answered. `own` are the addresses of the path. If there are none,
/// IPv6 is first and the kernel selects the source.
pub fn sort_by_source(addresses: &mut [IpAddr], own: &[IpAddr]) {
    let is_unique_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unique_local());
    let has_source = |address: &IpAddr| {
        let mut sources = own.iter().filter(|ip| ip.is_ipv6());
        sources.any(|source| is_unique_local(source) == is_unique_local(address))
    };
    addresses.sort_by_key(|address| match address {
        IpAddr::V6(_) if own.is_empty() || has_source(address) => 0,
        IpAddr::V4(_) => 1,
        IpAddr::V6(_) => 2,
    });
}

#[cfg(test)]
mod tests;
