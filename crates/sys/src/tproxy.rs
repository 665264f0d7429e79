//! Rules that bring traffic of this host, or traffic that it forwards, to a transparent proxy of
//! ours: nftables TPROXY, a routing rule and a routing table with one entry.
//!
//! What the host sends itself is marked where it leaves; the mark leads it to the loopback device,
//! and there it is handed to the proxy's socket with its addresses as they were. What comes in on
//! an interface is handed over at once.
//!
//! A proxy that dies must not cut the host off. The rules hold only as long as
//! [`Installed::refresh`] is called: a set in the kernel forgets after [`Rules::patience`], and
//! whatever finds no proxy in the meantime empties that set itself. So [`WhenDead`] holds after
//! `SIGKILL` as well, without anybody who would have to notice.
//!
//! Open the proxy's sockets ([`crate::socket::transparent`]) on `127.0.0.1` and `::1`, with
//! [`Names::own_mark`] on each, and on every other socket of the proxy; then install.
//!
//! Left alone are sockets that are bound to an interface, connections that were there before, and
//! whatever the firewall does not track.
//!
//! All of it acts in the network namespace of the calling thread, needs `CAP_NET_ADMIN`, `nft` and
//! `ip`, and blocks for some milliseconds.

mod command;
mod installed;
mod probe;
mod script;

use std::io;

use manyways_unit::Span;

use crate::interface;
use manyways_unit::Prefix;

pub use installed::{Installed, Missing, is_left, remove};
pub use probe::{NoCgroups, can_match_cgroup};

/// Which traffic goes to which proxy, and what does not.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Where the rules are kept, and the marks they use.
    pub names: Names,
    /// What happens to new connections and datagrams, by family and protocol.
    pub to: Targets,
    /// Which traffic is meant: whatever one of these selects.
    pub what: Vec<Selection>,
    /// Destinations that are reached directly: the gateway's own address, [`private`] networks,
    /// those that are [`connected`]. Loopback, link-local, multicast and broadcast destinations,
    /// this host's own addresses, and DHCP, are always reached directly.
    pub direct: Vec<Prefix>,
    /// Users whose traffic is never taken, in addition to what bears [`Names::own_mark`].
    pub own_users: Vec<u32>,
    /// What happens when there is no proxy.
    pub when_dead: WhenDead,
    /// How long the rules hold without [`Installed::refresh`]; some seconds. What matters is a proxy
    /// that hangs: a dead one is noticed at once.
    pub patience: Span,
}

/// The names and numbers that no other program on this host may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The nftables table (of the family inet).
    pub nft: String,
    /// The routing table.
    pub route_table: u32,
    /// The priority of the routing rule; smaller than that of rules by source address.
    pub priority: u32,
    /// Bits of a packet's and a connection's mark that say "to the proxy".
    pub mark: u32,
    /// Bits of a socket's mark that say "the proxy's own".
    pub own_mark: u32,
}

impl Default for Names {
    /// Of what is often seen on a host, only Calico uses these bits.
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

/// A target for each kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Targets {
    /// Of TCP over IPv4.
    pub tcp_v4: Target,
    /// Of TCP over IPv6.
    pub tcp_v6: Target,
    /// Of UDP over IPv4.
    pub udp_v4: Target,
    /// Of UDP over IPv6.
    pub udp_v6: Target,
}

/// Where traffic of one kind goes while the proxy lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To the proxy's socket at this port of `127.0.0.1` or `::1`.
    Proxy(u16),
    /// Nowhere: it is rejected at once, so that an application can try the other family.
    Reject,
    /// Where it would go anyway.
    Direct,
}

/// A part of the traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All that this host sends.
    All,
    /// What processes of these users send.
    Users(Vec<u32>),
    /// What processes in this cgroup (of version 2), or in one below it, send. A path from the root
    /// of the hierarchy, as in `/proc/PID/cgroup`; the cgroup must be there. One that is removed
    /// and made again is another one: [`Installed::check`] tells. See [`can_match_cgroup`].
    Cgroup(String),
    /// What this host sends from sockets that bear all bits of this mark.
    Marked(u32),
    /// What this host sends to these destinations.
    To(Vec<Prefix>),
    /// What comes in on these interfaces and is not meant for this host.
    From(Vec<String>),
}

/// What happens to the selected traffic while there is no proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenDead {
    /// It flows as if there were no rules.
    Open,
    /// It is rejected at once, until the rules are removed.
    Closed,
}

/// Why rules could not be installed, changed or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program is not there.
    #[error("`{program}` is not there: install {package}")]
    NoProgram {
        /// Its name.
        program: &'static str,
        /// The package that has it, in Debian's names.
        package: &'static str,
    },
    /// We may not.
    #[error("not permitted to change the firewall: run it as root, or with CAP_NET_ADMIN")]
    NotPermitted,
    /// The kernel cannot do it.
    #[error("this kernel lacks {what}: load or install its module {module}")]
    KernelLacks {
        /// What is lacking.
        what: &'static str,
        /// The module that has it.
        module: &'static str,
    },
    /// Another living process has installed rules of the same names.
    #[error("process {pid} has its rules installed already: stop it first")]
    InUse {
        /// That process.
        pid: i32,
    },
    /// Somebody else uses the number of our routing rule or table.
    #[error("{what} is in use by another program (`{by}`): choose another number")]
    Taken {
        /// The rule or table.
        what: String,
        /// What is there.
        by: String,
    },
    /// A cgroup cannot be matched.
    #[error("the cgroup {path} cannot be selected: {why}")]
    Cgroup {
        /// Its path.
        path: String,
        /// Why not.
        why: NoCgroups,
    },
    /// Something in the rules cannot be written down.
    #[error("{0}")]
    Senseless(String),
    /// A program refused, in its own words.
    #[error("`{program}` failed: {said}")]
    Refused {
        /// The program.
        program: &'static str,
        /// What it said.
        said: String,
    },
    /// A program could not be run.
    #[error("cannot run `{program}`: {error}")]
    NotRun {
        /// The program.
        program: &'static str,
        /// Why not.
        #[source]
        error: io::Error,
    },
}

/// The networks that are private to a site, a household or a provider (RFC 1918, 6598, 4193).
pub fn private() -> Vec<Prefix> {
    ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"]
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect()
}

/// Destinations that are always reached directly, whatever the rules say, and what they are:
/// `loopback`.
pub fn never() -> impl Iterator<Item = (Prefix, &'static str)> {
    script::NEVER.iter().filter_map(|(text, what)| Some((text.parse().ok()?, *what)))
}

/// The networks that this host has an address in now, as far as they are more than one address.
pub fn connected() -> Result<Vec<Prefix>, interface::ListError> {
    Ok(Prefix::merge(interface::subnets()?))
}

#[cfg(test)]
mod tests;
