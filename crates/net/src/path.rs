//! Paths: the networks of this host, and connections over each of them.
//!
//! A [`PathSpec`] describes a path. [`connect`] connects it to a server over TCP, [`tls::handshake`]
//! adds TLS, and [`socket`] and [`udp_socket`] bind other sockets to the path.

mod answers;
mod connect;
mod happy_eyeballs;
mod names;
mod socket;
pub mod tls;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use manyways_proto::estimate::PathEstimate;
use manyways_sys::interface::{self, Interface};

#[cfg(feature = "fetch")]
pub(crate) use answers::FirstAnswers;
pub use answers::SharedAddresses;
#[cfg(feature = "fetch")]
pub(crate) use connect::connect_if;
pub use connect::{ConnectError, connect};
pub use happy_eyeballs::{RaceError, race};
pub use names::{HostResolver, Lookup, LookupError, Names};
#[cfg(feature = "probe")]
pub(crate) use socket::bind;
pub use socket::{plain, socket, udp_socket};
pub use tls::{Trust, TrustError};

use crate::resolve::PathResolver;

/// A path to the server: its connections leave through one network interface.
#[derive(Clone)]
#[non_exhaustive]
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
    pub estimate: Option<PathEstimate>,
    pub resolver: Arc<dyn Names>,
}

impl PathSpec {
    /// Creates a path over an interface, with its own name servers.
    pub fn from_interface(interface: &Interface) -> Self {
        Self {
            name: interface.name.clone(),
            device: Some(interface.name.clone()),
            addresses: interface.addresses.clone(),
            metered: interface.metered.is_metered(),
            mptcp: false,
            estimate: None,
            resolver: Arc::new(PathResolver::from(interface)),
        }
    }

    /// Creates a path over an interface, with other name servers than the known ones. The queries
    /// are sent over the interface.
    pub fn with_name_servers(interface: &Interface, servers: Vec<IpAddr>) -> Self {
        let resolver = PathResolver { servers, ..PathResolver::from(interface) };
        Self { resolver: Arc::new(resolver), ..Self::from_interface(interface) }
    }

    /// Creates a path with only a source address: the kernel selects the interface.
    pub fn from_address(name: impl Into<String>, address: IpAddr) -> Self {
        Self {
            name: name.into(),
            device: None,
            addresses: vec![address],
            metered: false,
            mptcp: false,
            estimate: None,
            resolver: Arc::new(HostResolver),
        }
    }

    /// Creates the path over a device that lends its network: connections to it do not use this
    /// host's networks by name.
    pub fn lender(name: &str) -> Self {
        Self { name: name.to_owned(), mptcp: false, ..Self::kernel_mptcp() }
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
            estimate: None,
            resolver: Arc::new(HostResolver),
        }
    }

    /// Whether the path has an address of the server's family.
    pub fn has_family(&self, server: IpAddr) -> bool {
        self.addresses.is_empty() || self.source(server).is_some()
    }

    /// Whether the interface is up and has a carrier, as far as the system reports. Without a
    /// carrier, queries and connections would wait for their timeouts.
    pub fn has_carrier(&self) -> bool {
        let Some(device) = &self.device else { return true };
        match std::fs::read_to_string(format!("/sys/class/net/{device}/carrier")) {
            Ok(carrier) => carrier.trim() != "0",
            // If an interface is down, a read of the file fails with another error. A missing file
            // may mean that /sys belongs to another network namespace.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                interface::is_running(device).unwrap_or(true)
            }
            Err(_) => false,
        }
    }

    /// Returns the source address for a server; `None` leaves it to the kernel.
    pub fn source(&self, server: IpAddr) -> Option<IpAddr> {
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
