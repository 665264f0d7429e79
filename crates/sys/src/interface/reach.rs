//! Whether a socket bound to an interface and one of its addresses reaches a destination: the same
//! route lookups as the kernel's, when sending and when the answer arrives.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Unusable;
use super::kernel::{Address, Kernel, Link, Way};

/// Examples of internet addresses: two DNS root servers for each family. No packet is sent to them;
/// they are only used for route lookups. Two, because a VPN may route one half of the address
/// space. Documentation addresses are unsuitable, because test networks use them.
const ANYWHERE: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4)),
    IpAddr::V4(Ipv4Addr::new(193, 0, 14, 129)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0x7fd, 0, 0, 0, 0, 0, 1)),
];

/// Results of the lookups for one interface.
#[derive(Debug, Default)]
pub(super) struct Reach {
    pub addresses: Vec<IpAddr>,
    pub stranded: Vec<(IpAddr, Unusable)>,
    /// Next hops that the kernel returned.
    pub gateways: Vec<IpAddr>,
}

/// Looks up the routes of each of the `addresses` of `link`, in their order.
pub(super) fn ask(
    kernel: &mut Kernel,
    link: &Link,
    addresses: &[IpAddr],
    destinations: &[IpAddr],
    links: &[Link],
) -> io::Result<Reach> {
    let destinations = if destinations.is_empty() { &ANYWHERE } else { destinations };
    let mut reach = Reach::default();
    for &source in addresses {
        let mut why = Unusable::NoRoute;
        let mut open = false;
        for &destination in destinations.iter().filter(|to| to.is_ipv4() == source.is_ipv4()) {
            match one(kernel, link, source, destination, links)? {
                Ok(gateway) => {
                    open = true;
                    reach.gateways.extend(gateway);
                    break;
                }
                // A more informative reason replaces "no route".
                Err(Unusable::NoRoute) => {}
                Err(other) => why = other,
            }
        }
        if open {
            reach.addresses.push(source);
        } else {
            reach.stranded.push((source, why));
        }
    }
    Ok(reach)
}

fn one(
    kernel: &mut Kernel,
    link: &Link,
    source: IpAddr,
    destination: IpAddr,
    links: &[Link],
) -> io::Result<Result<Option<IpAddr>, Unusable>> {
    if link.loopback {
        return Ok(match kernel.way(destination, Some(source), None)? {
            Way::Local => Ok(None),
            _ => Err(Unusable::Loopback),
        });
    }
    // A lookup with an output interface skips the loopback routes and finds the default route; no
    // host sends these packets out.
    if destination.is_loopback() {
        return Ok(Err(Unusable::NoRoute));
    }
    let through = |hops: &[(u32, Option<IpAddr>)]| {
        hops.iter().find(|(index, _)| *index == link.index).map(|(_, gateway)| *gateway)
    };
    let mut way = kernel.way(destination, Some(source), Some(link.index))?;
    if let Way::Out(hops) = &way
        && through(hops).is_none()
    {
        // With a source, IPv6 treats the interface as a preference, although it is mandatory for a
        // bound socket. Without a source it is mandatory, but rules by source are skipped.
        way = kernel.way(destination, None, Some(link.index))?;
    }
    let gateway = match &way {
        Way::Out(hops) => through(hops),
        Way::Forbidden => return Ok(Err(Unusable::Forbidden)),
        Way::Local | Way::Nowhere => None,
    };
    let Some(gateway) = gateway else {
        // For IPv4 with an interface, "forbidden" is returned as "no route".
        return Ok(Err(match kernel.way(destination, Some(source), None)? {
            Way::Forbidden => Unusable::Forbidden,
            _ => Unusable::NoRoute,
        }));
    };
    if source.is_ipv4() && strict_reverse_path(&link.name) {
        // The filter looks up the route back to the sender of a packet, with the rules that match
        // the local address but not with those that match an interface.
        let back = kernel.way(destination, Some(source), None)?;
        let Way::Out(hops) = &back else {
            return Ok(Err(filtered(link, None)));
        };
        if !hops.iter().any(|(index, _)| *index == link.index) {
            let expected = hops.first().and_then(|(index, _)| {
                links.iter().find(|other| other.index == *index).map(|other| other.name.clone())
            });
            return Ok(Err(filtered(link, expected)));
        }
    }
    Ok(Ok(gateway))
}

fn filtered(link: &Link, expected: Option<String>) -> Unusable {
    Unusable::StrictReversePath { interface: link.name.clone(), expected }
}

/// The kernel uses the larger of the two settings; 1 is strict, 2 is loose.
fn strict_reverse_path(interface: &str) -> bool {
    let setting = |of: &str| setting("ipv4", of, "rp_filter");
    setting("all").max(setting(interface)) == 1
}

/// Returns the addresses usable as sources, best first: IPv4 before IPv6, global before unique
/// local ones, and privacy addresses first if the host prefers them.
pub(super) fn sources(link: &Link, addresses: &[Address]) -> Vec<IpAddr> {
    let privacy = setting("ipv6", &link.name, "use_tempaddr") >= 2;
    let mut fit: Vec<&Address> = addresses
        .iter()
        .filter(|address| address.index == link.index && !address.unfit)
        .filter(|address| address.routable || link.loopback)
        .collect();
    fit.sort_by_key(|address| {
        let local = matches!(address.ip, IpAddr::V6(ip) if ip.is_unique_local());
        (address.ip.is_ipv6(), local, address.temporary != privacy)
    });
    fit.into_iter().map(|address| address.ip).collect()
}

/// Returns a setting, or zero, the kernel's default for both settings read here, if it cannot be
/// read.
fn setting(family: &str, interface: &str, name: &str) -> i64 {
    fs::read_to_string(format!("/proc/sys/net/{family}/conf/{interface}/{name}"))
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}
