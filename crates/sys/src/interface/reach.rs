//! Whether a socket bound to an interface and one of its addresses reaches a destination: the same
//! route lookups as the kernel's, when sending and when the answer arrives.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Unusable;
use super::kernel::{Address, Kernel, Link, RouteResult};

/// Examples of internet addresses: two DNS root servers for each family. No packet is sent to them;
/// they are only used for route lookups. Two, because a VPN may route one half of the address
/// space. Documentation addresses are unsuitable, because test networks use them.
pub(super) const INTERNET_ADDRESSES: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4)),
    IpAddr::V4(Ipv4Addr::new(193, 0, 14, 129)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0x7fd, 0, 0, 0, 0, 0, 1)),
];

/// Results of the lookups for one interface.
#[derive(Debug, Default)]
pub(super) struct Reach {
    pub addresses: Vec<IpAddr>,
    pub unusable: Vec<(IpAddr, Unusable)>,
    /// Next hops that the kernel returned.
    pub gateways: Vec<IpAddr>,
}

/// Looks up the routes of each of the `addresses` of `link`, in their order.
pub(super) fn look_up(
    kernel: &mut Kernel,
    link: &Link,
    addresses: &[IpAddr],
    destinations: &[IpAddr],
    links: &[Link],
) -> io::Result<Reach> {
    let destinations = if destinations.is_empty() { &INTERNET_ADDRESSES } else { destinations };
    let mut reach = Reach::default();
    for &source in addresses {
        let mut reason = Unusable::NoRoute;
        let mut open = false;
        for &destination in destinations.iter().filter(|to| to.is_ipv4() == source.is_ipv4()) {
            match look_up_route(kernel, link, source, destination, links)? {
                Ok(gateway) => {
                    open = true;
                    reach.gateways.extend(gateway);
                    break;
                }
                // A more informative reason replaces "no route".
                Err(Unusable::NoRoute) => {}
                Err(other) => reason = other,
            }
        }
        if open {
            reach.addresses.push(source);
        } else {
            reach.unusable.push((source, reason));
        }
    }
    Ok(reach)
}

fn look_up_route(
    kernel: &mut Kernel,
    link: &Link,
    source: IpAddr,
    destination: IpAddr,
    links: &[Link],
) -> io::Result<Result<Option<IpAddr>, Unusable>> {
    if link.loopback {
        return Ok(match kernel.route(destination, Some(source), None)? {
            RouteResult::Local => Ok(None),
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
    let mut route = kernel.route(destination, Some(source), Some(link.index))?;
    if let RouteResult::Unicast(hops) = &route
        && through(hops).is_none()
    {
        // With a source, IPv6 treats the interface as a preference, although it is mandatory for a
        // bound socket. Without a source it is mandatory, but rules by source are skipped.
        route = kernel.route(destination, None, Some(link.index))?;
    }
    let gateway = match &route {
        RouteResult::Unicast(hops) => through(hops),
        RouteResult::Forbidden => return Ok(Err(Unusable::Forbidden)),
        RouteResult::Local | RouteResult::Unreachable => None,
    };
    let Some(gateway) = gateway else {
        // For IPv4 with an interface, "forbidden" is returned as "no route".
        return Ok(Err(match kernel.route(destination, Some(source), None)? {
            RouteResult::Forbidden => Unusable::Forbidden,
            _ => Unusable::NoRoute,
        }));
    };
    if source.is_ipv4() && strict_reverse_path(&link.name) {
        // The filter looks up the route back to the sender of a packet, with the rules that match
        // the local address but not with those that match an interface.
        let back = kernel.route(destination, Some(source), None)?;
        let RouteResult::Unicast(hops) = &back else {
            return Ok(Err(filtered_reason(link, None)));
        };
        if !hops.iter().any(|(index, _)| *index == link.index) {
            let expected = hops.first().and_then(|(index, _)| {
                links.iter().find(|other| other.index == *index).map(|other| other.name.clone())
            });
            return Ok(Err(filtered_reason(link, expected)));
        }
    }
    Ok(Ok(gateway))
}

fn filtered_reason(link: &Link, expected: Option<String>) -> Unusable {
    Unusable::StrictReversePath { interface: link.name.clone(), expected }
}

/// The kernel uses the larger of the two settings; 1 is strict, 2 is loose.
pub(crate) fn strict_reverse_path(interface: &str) -> bool {
    let setting = |of: &str| read_setting("ipv4", of, "rp_filter");
    setting("all").max(setting(interface)) == 1
}

/// Whether the reverse path filter looks up routes with the mark of the packet.
pub(crate) fn filters_with_mark(interface: &str) -> bool {
    ["all", interface].iter().any(|of| read_setting("ipv4", of, "src_valid_mark") != 0)
}

/// Returns the addresses usable as sources, best first: IPv4 before IPv6, global before unique
/// local ones, and privacy addresses first if the host prefers them.
pub(super) fn sources(link: &Link, addresses: &[Address]) -> Vec<IpAddr> {
    let privacy = read_setting("ipv6", &link.name, "use_tempaddr") >= 2;
    let mut fit: Vec<&Address> = addresses
        .iter()
        .filter(|address| address.index == link.index && !address.is_unusable)
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
fn read_setting(family: &str, interface: &str, name: &str) -> i64 {
    fs::read_to_string(format!("/proc/sys/net/{family}/conf/{interface}/{name}"))
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}
