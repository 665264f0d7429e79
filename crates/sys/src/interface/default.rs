//! The interfaces that the kernel chooses for internet traffic of a socket without any choice of its
//! own.

use std::io;
use std::net::IpAddr;

use super::ListError;
use super::kernel::{Kernel, Link, RouteResult};
use super::reach::INTERNET_ADDRESSES;

/// An interface that the kernel chooses for a family.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DefaultInterface {
    /// Whether for IPv4, and not IPv6.
    pub is_ipv4: bool,
    /// Name of the interface.
    pub name: String,
    /// The next hop; `None` on a point-to-point link.
    pub gateway: Option<IpAddr>,
}

/// Returns the interfaces of internet traffic that neither the application nor a mark assigns to
/// one: for each family usually one, several if routes divide the address space, none without a
/// route.
///
/// # Errors
/// If the kernel does not return its routes.
pub fn default_interfaces() -> Result<Vec<DefaultInterface>, ListError> {
    look_up().map_err(ListError::Netlink)
}

fn look_up() -> io::Result<Vec<DefaultInterface>> {
    let mut kernel = Kernel::open()?;
    let links: Vec<Link> = kernel.links()?;
    let mut found = Vec::new();
    for destination in INTERNET_ADDRESSES {
        let RouteResult::Unicast(hops) = kernel.route(destination, None, None)? else { continue };
        let is_ipv4 = destination.is_ipv4();
        found.extend(hops.into_iter().filter_map(|(index, gateway)| {
            let link = links.iter().find(|link| link.index == index)?;
            Some(DefaultInterface { is_ipv4, name: link.name.clone(), gateway })
        }));
    }
    found.sort();
    found.dedup();
    Ok(found)
}
