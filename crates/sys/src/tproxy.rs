//! Rules that redirect traffic of this host, or traffic that it forwards, to a transparent proxy:
//! nftables TPROXY, a routing rule and a routing table with one entry.
//!
//! Outgoing traffic of the host is marked. The mark routes it to the loopback device, where the
//! proxy's socket receives it with its original addresses. Traffic that enters on an interface is
//! passed to the socket directly.
//!
//! A proxy that dies must not cut the host off. The rules apply only as long as
//! [`Installed::refresh`] is called: a set in the kernel expires after [`Rules::lifetime`], and the
//! first packet that finds no proxy empties that set itself. Therefore [`FailMode`] applies after
//! `SIGKILL`, too, without another process that supervises the proxy.
//!
//! Open the proxy's sockets ([`crate::socket::transparent`]) on `127.0.0.1` and `::1`, with
//! [`Names::own_mark`] on each, and on every other socket of the proxy; then install.
//!
//! Not redirected are sockets bound to an interface, connections from before the installation, and
//! traffic that the firewall does not track.
//!
//! All functions act in the network namespace of the calling thread, need `CAP_NET_ADMIN`, `nft`
//! and `ip`, and block for some milliseconds.

pub(crate) mod command;
pub(crate) mod holder;
mod installed;
pub(crate) mod probe;
pub(crate) mod script;

use std::io;

use manyways_unit::Span;

use crate::interface;
use manyways_unit::Prefix;

pub use installed::{Installed, Missing, has_leftover, remove};
pub use probe::{CgroupError, can_match_cgroup};

/// Selection of traffic, and the proxy that it is redirected to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rules {
    /// Names of the rules' objects, and the marks.
    pub names: Names,
    /// Treatment of new connections and datagrams, by family and protocol.
    pub targets: Targets,
    /// Selected traffic: the union of these selections.
    pub selections: Vec<Selection>,
    /// Destinations that are reached directly: the gateway's own address, [`private`] networks, the
    /// [`connected`] ones. Loopback, link-local, multicast and broadcast destinations, this host's
    /// own addresses, and DHCP are always reached directly.
    pub direct: Vec<Prefix>,
    /// Users whose traffic is never redirected, in addition to traffic with [`Names::own_mark`].
    pub own_users: Vec<u32>,
    /// Treatment of selected traffic without a proxy.
    pub fail_mode: FailMode,
    /// Time for which the rules apply without [`Installed::refresh`]; some seconds. It matters for
    /// a proxy that hangs: a dead one is detected at once.
    pub lifetime: Span,
}

impl Rules {
    /// Rules with the default names; traffic without a proxy passes.
    pub fn new(targets: Targets, selections: Vec<Selection>, lifetime: Span) -> Self {
        Self {
            names: Names::default(),
            targets,
            selections,
            direct: Vec::new(),
            own_users: Vec::new(),
            fail_mode: FailMode::Direct,
            lifetime,
        }
    }
}

/// Names and numbers that no other program on this host may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The nftables table (of the family inet).
    pub nft: String,
    /// The routing table.
    pub route_table: u32,
    /// Priority of the routing rule; smaller than that of rules by source address.
    pub priority: u32,
    /// Bits of a packet's and a connection's mark that mean "to the proxy".
    pub mark: u32,
    /// Bits of a socket's mark that mean "of the proxy".
    pub own_mark: u32,
}

impl Default for Names {
    /// Of the programs often found on a host, only Calico uses these bits.
    fn default() -> Self {
        Self {
            nft: "manyways-bond".to_owned(),
            route_table: 4917,
            priority: 417,
            mark: 0x1000_0000,
            own_mark: 0x2000_0000,
        }
    }
}

/// Target of each kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Targets {
    /// TCP over IPv4.
    pub tcp_v4: Target,
    /// TCP over IPv6.
    pub tcp_v6: Target,
    /// UDP over IPv4.
    pub udp_v4: Target,
    /// UDP over IPv6.
    pub udp_v6: Target,
}

/// Treatment of one kind of traffic while the proxy lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To the proxy's socket at this port of `127.0.0.1` or `::1`.
    Proxy(u16),
    /// Rejected at once, so that an application can try the other family.
    Reject,
    /// Not redirected.
    Direct,
}

/// A selection of traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All traffic that this host sends.
    All,
    /// Traffic of processes of these users.
    Users(Vec<u32>),
    /// Traffic of processes in this cgroup (version 2), or in one below it. A path from the root of
    /// the hierarchy, as in `/proc/PID/cgroup`; the cgroup must exist. A cgroup that is removed and
    /// created again no longer matches, which [`Installed::check`] detects. See
    /// [`can_match_cgroup`].
    Cgroup(String),
    /// Traffic from sockets with all bits of this mark.
    Marked(u32),
    /// Traffic of this host to these destinations.
    To(Vec<Prefix>),
    /// Traffic that enters on these interfaces and is not addressed to this host.
    From(Vec<String>),
}

/// Treatment of selected traffic while there is no proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailMode {
    /// Not redirected, as without rules.
    Direct,
    /// Rejected at once, until the rules are removed.
    Blocked,
}

/// Reasons why rules could not be installed, changed or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program is not installed.
    #[error("`{program}` is not installed: install {package}")]
    NoProgram {
        program: &'static str,
        /// The package that contains it, with its Debian name.
        package: &'static str,
    },
    /// The process lacks the permission.
    #[error("not permitted to change the firewall: run it as root, or with CAP_NET_ADMIN")]
    NotPermitted,
    /// The kernel lacks a feature.
    #[error("this kernel lacks {feature}: load or install its module {module}")]
    MissingKernelFeature {
        /// The missing feature.
        feature: &'static str,
        /// The module that provides it.
        module: &'static str,
    },
    /// Another living process has installed rules with the same names.
    #[error("process {pid} has already installed interception rules: stop this process first")]
    InUse { pid: i32 },
    /// Another program uses the number of the routing rule or table.
    #[error("{number} is in use by another program (`{by}`): choose another number")]
    NumberInUse {
        /// The rule or table.
        number: String,
        /// The existing rule or route.
        by: String,
    },
    /// A cgroup cannot be matched.
    #[error("the cgroup {path} cannot be selected: {reason}")]
    Cgroup { path: String, reason: CgroupError },
    /// A value in the rules is invalid.
    #[error("{0}")]
    InvalidValue(String),
    /// A program failed, with its own message.
    #[error("`{program}` failed: {stderr}")]
    Refused {
        program: &'static str,
        /// The first line of its standard error.
        stderr: String,
    },
    /// A program could not be started.
    #[error("cannot run `{program}`: {error}")]
    NotStarted {
        program: &'static str,
        #[source]
        error: io::Error,
    },
}

/// Returns the networks that are private to a site, a household or a provider (RFC 1918, 6598,
/// 4193).
pub fn private() -> Vec<Prefix> {
    ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"]
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect()
}

/// Returns destinations that are always reached directly, whatever the rules, with their meaning,
/// such as `loopback`.
pub fn never_redirected() -> impl Iterator<Item = (Prefix, &'static str)> {
    script::NEVER_REDIRECTED.iter().filter_map(|(text, what)| Some((text.parse().ok()?, *what)))
}

/// Returns the networks of this host's current addresses, without networks of a single address.
pub fn connected() -> Result<Vec<Prefix>, interface::ListError> {
    Ok(Prefix::merge(interface::subnets()?))
}

#[cfg(test)]
pub(crate) mod tests;
