//! Name resolution per path: the query is sent to the name servers of one network, over that
//! network, because a content network returns different addresses on each.
//!
//! Literals, `localhost` and `/etc/hosts` have precedence. Otherwise `A` and `AAAA` records are
//! queried in parallel, over UDP and, if the answer is truncated, over TCP; a server that does not
//! know EDNS is queried without it. `manyways_proto::resolve` decides about servers and timeouts. Not supported: search domains (a
//! name is queried unchanged), DNSSEC, mDNS, encrypted DNS, and a cache (a transfer resolves a name
//! once).
//!
//! [`lookup`] takes a discovered interface; [`PathResolver`] contains only the properties that a
//! look-up needs.

pub mod message;
mod query;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use manyways_proto::resolve::{Lookup, LookupConfig, LookupFailure, LookupOutput, sort_by_source};
use manyways_sys::interface::Interface;
use manyways_unit::{Span, Time};
use tokio::time::Instant;

use self::message::is_host_name;
use self::query::Queries;
pub use self::query::QueryError;

/// Why one name server did not answer.
pub type ServerProblem = manyways_proto::resolve::ServerFailure<QueryError>;

/// Properties of a path that a look-up needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathResolver {
    /// Name of the interface to which the sockets are bound; `None` leaves the choice to the
    /// kernel.
    pub interface: Option<String>,
    /// Index of the interface, for name servers with a link-local address; zero if there is none.
    pub index: u32,
    /// Source addresses: the first one of each family is used, and only families in this list are
    /// queried. Empty leaves the choice to the kernel, and both families are queried.
    pub addresses: Vec<IpAddr>,
    /// The name servers. The first four are queried, in this order.
    pub servers: Vec<IpAddr>,
    /// Port of the name servers; zero means 53.
    pub port: u16,
}

/// Why a name has no address on a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The text is neither an address nor a host name.
    #[error("\"{host}\" is not a host name")]
    BadName { host: String },
    /// A name server reports that the name does not exist.
    #[error("the name {host} does not exist, according to {server}")]
    NoSuchName { host: String, server: IpAddr },
    /// The name exists but has no address of a family that the path has.
    #[error("the name {host} has no address that {path} can reach")]
    NoAddress { host: String, path: String },
    /// The path has no name server.
    #[error("no name server is known for {path}")]
    NoServer { path: String },
    /// No name server answered in time or properly.
    #[error("no name server of {path} answers for {host}: {}", problems_text(.problems))]
    NoAnswer {
        host: String,
        path: String,
        /// The last problem of each server.
        problems: Vec<(IpAddr, ServerProblem)>,
    },
}

impl ResolveError {
    /// Whether another path may have another result: it may have other name servers.
    pub fn is_path_specific(&self) -> bool {
        !matches!(self, Self::BadName { .. })
    }

    /// Whether the same query may have another result later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::NoAnswer { .. })
    }

    /// Returns a step that may solve the error.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::BadName { .. } => {
                "use letters, digits, hyphens and dots; write other scripts in their xn-- form"
            }
            Self::NoSuchName { .. } => "check the spelling",
            Self::NoAddress { .. } => {
                "the name may have only IPv6 addresses and the network only IPv4, or the reverse"
            }
            Self::NoServer { .. } => "add a nameserver line to /etc/resolv.conf",
            Self::NoAnswer { .. } => "`manyways paths` shows the name servers of each network",
        }
    }
}

/// Formats the problems of all servers, separated by semicolons.
fn problems_text(problems: &[(IpAddr, ServerProblem)]) -> String {
    let texts: Vec<String> =
        problems.iter().map(|(server, problem)| format!("{server}: {problem}")).collect();
    texts.join("; ")
}

impl From<&Interface> for PathResolver {
    fn from(interface: &Interface) -> Self {
        Self {
            interface: Some(interface.name.clone()),
            index: interface.index,
            addresses: interface.addresses.clone(),
            servers: interface.dns.clone(),
            port: 0,
        }
    }
}

/// Returns the addresses of `host` on `path`, at least one, with the preferred family first. Needs
/// a tokio runtime with I/O and time. Takes at most 26 s with four unresponsive servers.
///
/// # Errors
/// Fails if the name has no address on this path.
pub async fn lookup(path: &Interface, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
    PathResolver::from(path).lookup(host).await
}

impl PathResolver {
    /// As the function [`lookup`].
    ///
    /// # Errors
    /// Fails if the name has no address on this path.
    pub async fn lookup(&self, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if let Ok(literal) = bare.parse::<IpAddr>() {
            return Ok(vec![literal]);
        }
        if !is_host_name(host) {
            return Err(ResolveError::BadName { host: host.to_owned() });
        }
        // One read of a small local file needs no thread.
        let hosts = std::fs::read(Path::new("/etc/hosts")).unwrap_or_default();
        let mut known = message::addresses_in_hosts(&hosts, host);
        if !known.is_empty() {
            sort_by_source(&mut known, &self.addresses);
            return Ok(known);
        }
        // RFC 6761, section 6.3: never queried.
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        if name == "localhost" || name.ends_with(".localhost") {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        self.query_servers(host).await
    }

    async fn query_servers(&self, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let origin = Instant::now();
        let now = || Time::ZERO + Span::from(origin.elapsed());
        let mut core = Lookup::new(LookupConfig::default(), &self.servers, &self.addresses);
        let mut queries = Queries::new(self, host);
        loop {
            while let Some(output) = core.poll(now()) {
                match output {
                    LookupOutput::Query { server, family, transport, edns } => {
                        queries.start(server, family, transport, edns);
                    }
                    LookupOutput::Resolved(mut addresses) => {
                        sort_by_source(&mut addresses, &self.addresses);
                        return Ok(addresses);
                    }
                    LookupOutput::Failed(failure) => return Err(self.error(host, failure)),
                }
            }
            let wakeup = core.next_wakeup().unwrap_or(Time::ZERO).since(Time::ZERO);
            tokio::select! {
                (family, answer) = queries.next() => core.handle(now(), family, answer),
                () = tokio::time::sleep_until(origin + wakeup.into()) => {}
            }
        }
    }

    fn error(&self, host: &str, failure: LookupFailure<QueryError>) -> ResolveError {
        let path = self.interface.clone().unwrap_or_else(|| "this host".to_owned());
        let host = host.to_owned();
        match failure {
            LookupFailure::NoServer => ResolveError::NoServer { path },
            LookupFailure::NoSuchName(server) => ResolveError::NoSuchName { host, server },
            LookupFailure::NoAddress => ResolveError::NoAddress { host, path },
            LookupFailure::NoAnswer(problems) => ResolveError::NoAnswer { host, path, problems },
        }
    }
}

#[cfg(test)]
mod tests;
