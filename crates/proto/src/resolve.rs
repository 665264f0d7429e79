//! Which name server of a path is asked for a name, for how long, and what its answers amount to.
//!
//! [`Lookup`] queries the servers one after the other, and all of them again with a longer timeout
//! while none answers. Each server gets one query for each address family that the path has, over
//! UDP and, where the answer is truncated, over TCP. Where one family has addresses, the other is
//! waited for only a little longer (RFC 8305 §3).
//!
//! ```text
//! query   Udp ──truncated──▶ Tcp ──▶ answered, failed or timed out
//! server  both families queried ──first addresses──▶ RESOLUTION_DELAY ──▶ done
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;

use manyways_unit::{Span, Time};

/// How long name servers are waited for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LookupConfig {
    /// How long one query may take, in the first round over all servers and in the later ones. A
    /// mobile network that wakes up takes more than a second.
    pub server_timeouts: [Span; 3],
    /// How long the second family is waited for when the first one has addresses (RFC 8305 §3
    /// recommends 50 ms; cellular name servers need more).
    pub resolution_delay: Span,
    /// At most this many servers are queried.
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

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4: `A` records.
    V4,
    /// IPv6: `AAAA` records.
    V6,
}

/// What carries a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// A datagram.
    Udp,
    /// A connection, for an answer that no datagram holds.
    Tcp,
}

/// The answer to one query; `E` is why there is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QueryAnswer<E> {
    /// The addresses of the name in this family: none where it has only others.
    Addresses(Vec<IpAddr>),
    /// The name does not exist.
    NoSuchName,
    /// The answer is longer than the transport permits.
    Truncated,
    /// The server cannot be reached, or does not answer.
    Failed(E),
}

/// What a lookup asks of the shell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LookupOutput<E> {
    /// Query this server for addresses of this family; the answer goes to [`Lookup::handle`].
    /// A query of the same family that is still under way is over.
    Query {
        /// The server.
        server: IpAddr,
        /// The family.
        family: Family,
        /// What carries the query.
        transport: Transport,
    },
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
    /// No server answered; the last problem of each.
    NoAnswer(Vec<(IpAddr, Problem<E>)>),
}

/// Why one server gave no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem<E> {
    /// Nothing came for this time.
    Timeout(Span),
    /// Its answer is truncated even over TCP.
    Truncated,
    /// The query failed.
    Failed(E),
}

impl<E: fmt::Display> fmt::Display for Problem<E> {
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
    /// The last problem of each server.
    problems: Vec<Option<Problem<E>>>,
    round: usize,
    server: usize,
    queries: Vec<Query<E>>,
    /// When the families that have not answered are given up.
    delay_ends: Option<Time>,
    outputs: VecDeque<LookupOutput<E>>,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Starting,
    Querying,
    Over,
}

#[derive(Debug)]
struct Query<E> {
    family: Family,
    state: QueryState<E>,
}

#[derive(Debug)]
enum QueryState<E> {
    Waiting { transport: Transport, since: Time },
    Done(Outcome<E>),
}

#[derive(Clone, Debug)]
enum Outcome<E> {
    Addresses(Vec<IpAddr>),
    NoSuchName,
    Problem(Problem<E>),
    /// Given up because the other family has addresses.
    Late,
}

impl<E: Clone> Lookup<E> {
    /// Creates a lookup that queries `servers` in this order. `addresses` are those of the path:
    /// only their families are queried, and both where there are none.
    pub fn new(config: LookupConfig, servers: &[IpAddr], addresses: &[IpAddr]) -> Self {
        let servers: Vec<IpAddr> = servers.iter().copied().take(config.max_servers).collect();
        let has = |v6| addresses.is_empty() || addresses.iter().any(|ip| ip.is_ipv6() == v6);
        let families = [(Family::V4, has(false)), (Family::V6, has(true))];
        Self {
            config,
            problems: vec![None; servers.len()],
            servers,
            families: families.into_iter().filter(|(_, has)| *has).map(|(f, _)| f).collect(),
            round: 0,
            server: 0,
            queries: Vec::new(),
            delay_ends: None,
            outputs: VecDeque::new(),
            phase: Phase::Starting,
        }
    }

    /// Takes in the answer to the latest query of this family.
    pub fn handle(&mut self, now: Time, family: Family, answer: QueryAnswer<E>) {
        let query = self.queries.iter_mut().find(|query| query.family == family);
        let Some(Query { state, .. }) = query else { return };
        let QueryState::Waiting { transport, .. } = *state else { return };
        let outcome = match (answer, transport) {
            (QueryAnswer::Truncated, Transport::Udp) => {
                let transport = Transport::Tcp;
                *state = QueryState::Waiting { transport, since: now };
                if let Some(server) = self.servers.get(self.server).copied() {
                    self.outputs.push_back(LookupOutput::Query { server, family, transport });
                }
                return;
            }
            (QueryAnswer::Truncated, Transport::Tcp) => Outcome::Problem(Problem::Truncated),
            (QueryAnswer::Addresses(addresses), _) => {
                if !addresses.is_empty() {
                    self.delay_ends = Some(now + self.config.resolution_delay);
                }
                Outcome::Addresses(addresses)
            }
            (QueryAnswer::NoSuchName, _) => Outcome::NoSuchName,
            (QueryAnswer::Failed(error), _) => Outcome::Problem(Problem::Failed(error)),
        };
        *state = QueryState::Done(outcome);
    }

    /// The next thing to do, or `None` before the next input or [`Lookup::next_wakeup`].
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

    /// When to poll again although nothing happened.
    pub fn next_wakeup(&self) -> Option<Time> {
        if self.phase == Phase::Over {
            return None;
        }
        let deadlines = self.queries.iter().filter_map(|query| self.deadline(query));
        deadlines.min()
    }

    /// When a query that is under way is given up.
    fn deadline(&self, query: &Query<E>) -> Option<Time> {
        match query.state {
            QueryState::Waiting { since, .. } => {
                let timeout = since + self.timeout();
                Some(self.delay_ends.map_or(timeout, |delay| delay.min(timeout)))
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
        self.delay_ends = None;
        let transport = Transport::Udp;
        let query = |family: &Family| Query {
            family: *family,
            state: QueryState::Waiting { transport, since: now },
        };
        self.queries = self.families.iter().map(query).collect();
        let queries = self.families.iter().map(|family| LookupOutput::Query {
            server,
            family: *family,
            transport,
        });
        self.outputs.extend(queries);
    }

    fn expire(&mut self, now: Time) {
        let (timeout, delay_ends) = (self.timeout(), self.delay_ends);
        for query in &mut self.queries {
            let QueryState::Waiting { since, .. } = query.state else { continue };
            if delay_ends.is_some_and(|at| at <= now) {
                query.state = QueryState::Done(Outcome::Late);
            } else if since + timeout <= now {
                query.state = QueryState::Done(Outcome::Problem(Problem::Timeout(timeout)));
            }
        }
    }

    /// Ends the lookup, or goes on to the next server, once all queries of this one are over.
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
                Outcome::Problem(found) => problem = Some(found),
                Outcome::Late => {}
            }
        }
        let server = self.servers.get(self.server).copied();
        match (problem, server) {
            _ if !addresses.is_empty() => self.end(LookupOutput::Resolved(addresses)),
            (_, Some(server)) if is_missing => {
                self.end(LookupOutput::Failed(LookupFailure::NoSuchName(server)));
            }
            (Some(problem), _) => self.go_on(now, problem),
            _ => self.end(LookupOutput::Failed(LookupFailure::NoAddress)),
        }
    }

    /// Queries the next server, or the first one again in the next round.
    fn go_on(&mut self, now: Time, problem: Problem<E>) {
        if let Some(last) = self.problems.get_mut(self.server) {
            *last = Some(problem);
        }
        self.server += 1;
        if self.server == self.servers.len() {
            (self.server, self.round) = (0, self.round + 1);
        }
        if self.round < self.config.server_timeouts.len() {
            return self.query_server(now);
        }
        let problems = self.servers.iter().copied().zip(std::mem::take(&mut self.problems));
        let problems = problems.filter_map(|(server, problem)| Some((server, problem?))).collect();
        self.end(LookupOutput::Failed(LookupFailure::NoAnswer(problems)));
    }

    fn end(&mut self, output: LookupOutput<E>) {
        self.outputs.push_back(output);
        self.queries.clear();
        self.phase = Phase::Over;
    }
}

/// Sorts the addresses of a server, the family to try first in front: IPv6 (RFC 6724), unless the
/// path's only IPv6 address is a unique local one and the server's is not, or the path has none.
/// Such packets are hardly ever answered. `own` are the path's addresses; empty leaves the choice
/// to the kernel.
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
