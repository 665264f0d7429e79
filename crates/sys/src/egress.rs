//! Rules that choose the network of each new flow of this host: connections and datagrams of other
//! applications, which know nothing of it. Running flows stay on their network.
//!
//! A chain in the kernel marks the first packet of a flow, and its connection, with the chosen
//! network. The mark selects a routing table with the default route of this network, and the source
//! address is translated, because the application's socket has one of another network. If the
//! packet leaves by another interface all the same, the flow loses its mark, so that a mark always
//! means that the flow uses this network.
//!
//! Left alone are flows from before the installation (of UDP: those that the kernel tracked), those
//! with a mark of their own, and all that do not leave by an interface that the host itself would
//! use for the internet: destinations in local networks, with specific routes or rules, sockets
//! bound to another interface or to an address of it, VPNs. An application that binds to the
//! interface that the host uses anyway stays there; one that binds only to the address of this
//! interface cannot be distinguished from one that binds to none.
//!
//! A program that dies must not leave the host with an old choice. The choice applies only as long
//! as [`Egress::refresh`] is called: a set in the kernel expires after the lifetime. New flows then
//! follow the host's own routes, and running ones stay where they are, until the leftover is
//! removed.
//!
//! All functions act in the network namespace of the calling thread, need `CAP_NET_ADMIN`, `nft`
//! and `ip`, and block for some milliseconds.

mod destinations;
mod installed;
mod routing;
mod script;

use std::io;
use std::net::IpAddr;

use crate::tproxy;

pub use installed::{Egress, has_leftover, is_valid_name, remove_leftover};

/// Largest number of destinations with a separate choice.
pub const MAX_DESTINATIONS: usize = 512;

/// Names and numbers that no other program on this host may use, and processes to leave alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Names {
    /// The nftables table (of the family inet).
    pub nft: String,
    /// The first of 64 routing tables; those in use are skipped.
    pub route_table: u32,
    /// Bits of a packet's and a connection's mark that contain the network. Flows with any mark of
    /// another program are left alone.
    pub mask: u32,
    /// Number of the protocol (`proto` of `ip route`) that identifies own routes and rules.
    pub protocol: u8,
    /// Cgroups (version 2) of processes that are left alone, as paths from the root of the
    /// hierarchy. See [`tproxy::can_match_cgroup`].
    pub spared_cgroups: Vec<String>,
}

impl Default for Names {
    /// Beside the bits of [`tproxy::Names`].
    fn default() -> Self {
        Self {
            nft: "manyways-steer".to_owned(),
            route_table: 4930,
            mask: 0x0f00_0000,
            protocol: 77,
            spared_cgroups: Vec::new(),
        }
    }
}

/// A network that flows can be assigned to. For a family without a next hop, and while its interface
/// is missing or down, the host's own routes apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressNetwork {
    /// Name of the interface; it need not exist.
    pub interface: String,
    /// Next hop of IPv4 packets.
    pub v4: Option<NextHop>,
    /// Next hop of IPv6 packets.
    pub v6: Option<NextHop>,
    /// Mark of its flows: other than zero, within [`Names::mask`]. Running flows keep it: after a
    /// restart, an interface must have the same mark, or they break.
    pub mark: u32,
}

/// The way to the internet on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// A router in the network of the interface.
    Gateway(IpAddr),
    /// The other end of a point-to-point link, which must have an address of this family here.
    PointToPoint,
}

impl EgressNetwork {
    /// A network with the first gateway of each family.
    pub fn new(interface: &str, gateways: &[IpAddr], mark: u32) -> Self {
        let first = |v4| gateways.iter().find(|ip| ip.is_ipv4() == v4).copied();
        Self {
            interface: interface.to_owned(),
            v4: first(true).map(NextHop::Gateway),
            v6: first(false).map(NextHop::Gateway),
            mark,
        }
    }

    /// A network on a point-to-point link.
    pub fn point_to_point(interface: &str, v4: bool, v6: bool, mark: u32) -> Self {
        let hop = |has: bool| has.then_some(NextHop::PointToPoint);
        Self { interface: interface.to_owned(), v4: hop(v4), v6: hop(v6), mark }
    }
}

/// Reasons why the choice of networks could not be installed, changed or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The firewall or the routing cannot be changed, or a value is invalid.
    #[error(transparent)]
    Rules(#[from] tproxy::Error),
    /// Another living process chooses networks.
    #[error("process {pid} already chooses the networks of this host: stop this process first")]
    InUse { pid: i32 },
    /// Other programs use all numbers in question.
    #[error("{what} are all in use by other programs: remove one of them")]
    NoFreeNumber {
        /// The numbers, such as `the routing tables 4930 to 4993`.
        what: String,
    },
    /// Answers would be dropped.
    #[error(
        "the strict reverse path filter would drop answers on {interface}: run `sysctl -w \
         net.ipv4.conf.{interface}.rp_filter=2`, and the same for `all` if it is 1 there"
    )]
    StrictReversePath { interface: String },
    /// The interface is not one of the installed networks.
    #[error("{interface:?} is not one of the networks to choose from")]
    UnknownNetwork { interface: String },
    /// The kernel does not return its routes.
    #[error("cannot read the routes of this host: {0}")]
    Routes(#[source] io::Error),
}

#[cfg(test)]
mod tests;
