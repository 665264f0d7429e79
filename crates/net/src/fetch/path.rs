//! A path as the fetch sees it: a network of this host, and how names are resolved over it.

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

/// One of the ways to the server: connections over it leave through one network interface.
#[derive(Clone)]
pub struct PathSpec {
    /// What people call it: the interface's name.
    pub name: String,
    /// Bind to this interface where the kernel lets us; `None` binds to an address only.
    pub device: Option<String>,
    /// Source addresses; the first of the server's family is bound to. Empty leaves it to the
    /// kernel.
    pub addresses: Vec<IpAddr>,
    /// Its bytes cost money.
    pub metered: bool,
    /// Connect with the kernel's Multipath TCP, which may use other interfaces too.
    pub mptcp: bool,
    /// What it was worth when it was used last, where that is known.
    pub known: Option<Conditions>,
    /// How names become addresses.
    pub names: Arc<dyn Names>,
}

/// Which paths there are now, where that can be told.
pub(super) type Watch = dyn Fn() -> Option<Vec<PathSpec>> + Send + Sync;

/// Somebody who knows which paths there are.
#[derive(Clone)]
pub(super) struct Watcher(pub(super) Arc<Watch>);

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}

/// Resolves names over one path.
pub trait Names: Send + Sync {
    /// The addresses of `host`, best first, or why there are none, as a clause.
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a>;
}

/// What [`Names::lookup`] returns.
pub type Lookup<'a> = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, Unresolved>> + Send + 'a>>;

/// Why a name has no addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unresolved {
    /// A clause without a full stop.
    pub words: String,
    /// Asking again may help.
    pub again: bool,
}

impl PathSpec {
    /// A path out of an interface, with its own name servers.
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

    /// The same with other name servers than those that the interface is known to have. They are
    /// asked over it.
    pub fn with_name_servers(interface: &Interface, servers: Vec<IpAddr>) -> Self {
        let resolver = PathResolver { servers, ..PathResolver::from(interface) };
        Self { names: Arc::new(resolver), ..Self::of(interface) }
    }

    /// A path that is nothing but a source address: the kernel chooses the interface.
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

    /// This host itself: the kernel chooses the address, and the host resolves the name.
    pub fn loopback() -> Self {
        Self { name: "lo".to_owned(), mptcp: false, ..Self::kernel_mptcp() }
    }

    /// One connection of the kernel's Multipath TCP: the kernel chooses the networks.
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

    /// Whether a server of this family can be reached.
    pub(crate) fn has_family(&self, server: IpAddr) -> bool {
        self.addresses.is_empty() || self.source(server).is_some()
    }

    /// Whether its interface is up and has a carrier, as far as the system tells. Without one, name
    /// servers and servers would be waited for in vain.
    pub(crate) fn has_carrier(&self) -> bool {
        let Some(device) = &self.device else { return true };
        match std::fs::read_to_string(format!("/sys/class/net/{device}/carrier")) {
            Ok(carrier) => carrier.trim() != "0",
            // An interface that is down has the file, and refuses to read it. A missing file may
            // mean that /sys is not of this network namespace; /proc always is.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let all = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
                let mut names = all.lines().filter_map(|line| line.split_once(':'));
                all.is_empty() || names.any(|(name, _)| name.trim() == device)
            }
            Err(_) => false,
        }
    }

    /// The source address towards a server.
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

/// The host's own resolver: whatever `getaddrinfo` says.
#[derive(Clone, Copy, Debug)]
pub struct HostNames;

impl Names for HostNames {
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await;
            let found = found.map_err(|error| {
                // Of `failed to lookup address information: Name or service not known`, the end.
                let error = plain(&error);
                let why = error.rsplit(": ").next().unwrap_or_default().to_lowercase();
                // The system does not say in a reliable way whether that will stay so.
                Unresolved { words: format!("the name {host} was not found: {why}"), again: true }
            })?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// A table of names: for tests, and to point a name at a server of one's choice.
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
