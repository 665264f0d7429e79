//! A path of a fetch: a network of this host, and its name resolution.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use manyways_proto::estimate::Conditions;
use manyways_sys::interface::Interface;

use super::dial::plain;
use crate::resolve::{PathResolver, ResolveError};

/// A path to the server: its connections leave through one network interface.
#[derive(Clone)]
pub struct PathSpec {
    /// The interface's name, for the user.
    pub name: String,
    /// Interface to which sockets are bound if the kernel permits; `None` binds only to an address.
    pub device: Option<String>,
    /// Source addresses; sockets are bound to the first one of the server's family. Empty leaves
    /// the address to the kernel.
    pub addresses: Vec<IpAddr>,
    pub metered: bool,
    /// Whether connections use the kernel's Multipath TCP, which may use other interfaces too.
    pub mptcp: bool,
    /// Path estimate of an earlier transfer; `None` if there is none.
    pub known: Option<Conditions>,
    pub names: Arc<dyn Names>,
}

/// Callback that lists the current paths; returns `None` if it cannot.
pub(super) type Watch = dyn Fn() -> Option<Vec<PathSpec>> + Send + Sync;

/// The callback of [`ClientBuilder::watch`](super::ClientBuilder::watch).
#[derive(Clone)]
pub(super) struct Watcher(pub(super) Arc<Watch>);

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}

/// Resolves names over one path.
pub trait Names: Send + Sync {
    /// Returns the addresses of `host`, the preferred one first, or the reason why there are none.
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a>;
}

/// Result of [`Names::lookup`].
pub type Lookup<'a> = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, Unresolved>> + Send + 'a>>;

/// Why a name has no addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unresolved {
    /// A clause without a full stop.
    pub words: String,
    /// Whether a retry may succeed.
    pub again: bool,
}

impl PathSpec {
    /// Creates a path over an interface, with its own name servers.
    pub fn of(interface: &Interface) -> Self {
        Self {
            name: interface.name.clone(),
            device: Some(interface.name.clone()),
            addresses: interface.addresses.clone(),
            metered: interface.metered.is_metered(),
            mptcp: false,
            known: None,
            names: Arc::new(PathResolver::from(interface)),
        }
    }

    /// Creates a path over an interface, with other name servers than the known ones. The queries
    /// are sent over the interface.
    pub fn with_name_servers(interface: &Interface, servers: Vec<IpAddr>) -> Self {
        let resolver = PathResolver { servers, ..PathResolver::from(interface) };
        Self { names: Arc::new(resolver), ..Self::of(interface) }
    }

    /// Creates a path with only a source address: the kernel selects the interface.
    pub fn from_address(name: impl Into<String>, address: IpAddr) -> Self {
        Self {
            name: name.into(),
            device: None,
            addresses: vec![address],
            metered: false,
            mptcp: false,
            known: None,
            names: Arc::new(HostNames),
        }
    }

    /// Creates the path to this host itself: the kernel selects the address, and the host resolves
    /// the name.
    pub fn loopback() -> Self {
        Self { name: "lo".to_owned(), mptcp: false, ..Self::kernel_mptcp() }
    }

    /// Creates a path of the kernel's Multipath TCP: the kernel selects the networks.
    pub fn kernel_mptcp() -> Self {
        Self {
            name: "mptcp".to_owned(),
            device: None,
            addresses: Vec::new(),
            metered: false,
            mptcp: true,
            known: None,
            names: Arc::new(HostNames),
        }
    }

    /// Whether the path has an address of the server's family.
    pub(crate) fn has_family(&self, server: IpAddr) -> bool {
        self.addresses.is_empty() || self.source(server).is_some()
    }

    /// Whether the interface is up and has a carrier, as far as the system reports. Without a
    /// carrier, queries and connections would wait for their timeouts.
    pub(crate) fn has_carrier(&self) -> bool {
        let Some(device) = &self.device else { return true };
        match std::fs::read_to_string(format!("/sys/class/net/{device}/carrier")) {
            Ok(carrier) => carrier.trim() != "0",
            // If an interface is down, a read of the file fails with another error. A missing file
            // may mean that /sys belongs to another network namespace; /proc/self always belongs to
            // this one.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let all = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
                let mut names = all.lines().filter_map(|line| line.split_once(':'));
                all.is_empty() || names.any(|(name, _)| name.trim() == device)
            }
            Err(_) => false,
        }
    }

    /// Returns the source address for a server.
    pub(super) fn source(&self, server: IpAddr) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|own| own.is_ipv4() == server.is_ipv4())
    }
}

impl fmt::Debug for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathSpec")
            .field("name", &self.name)
            .field("device", &self.device)
            .field("addresses", &self.addresses)
            .field("metered", &self.metered)
            .finish_non_exhaustive()
    }
}

impl Names for PathResolver {
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        Box::pin(async move {
            PathResolver::lookup(self, host).await.map_err(|error| Unresolved {
                words: error.to_string(),
                again: matches!(error, ResolveError::NoAnswer { .. }),
            })
        })
    }
}

/// The host's own resolver, `getaddrinfo`.
#[derive(Clone, Copy, Debug)]
pub struct HostNames;

impl Names for HostNames {
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await;
            let found = found.map_err(|error| {
                // The text after the last colon of `failed to lookup address information: Name or
                // service not known`.
                let error = plain(&error);
                let why = error.rsplit(": ").next().unwrap_or_default().to_lowercase();
                // The system reports no reliable distinction between temporary and permanent
                // errors.
                Unresolved { words: format!("the name {host} was not found: {why}"), again: true }
            })?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// A table of names: for tests, and to assign a name to a chosen server.
impl Names for HashMap<String, Vec<IpAddr>> {
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        let found = self.get(host).cloned();
        Box::pin(async move {
            found.ok_or_else(|| Unresolved {
                words: format!("the name {host} does not exist"),
                again: false,
            })
        })
    }
}
