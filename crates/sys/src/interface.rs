//! Discovery of the networks of this host: the kind of each interface, its addresses and gateways,
//! and whether a socket bound to it reaches the internet.
//!
//! Discovery sends no packets and needs no privileges. It reads netlink, `/sys/class/net`,
//! `/proc/sys/net`, and the files that DHCP clients and network managers write.

mod alias;
pub mod announcement;
mod counters;
mod default;
mod flags;
mod host_config;
pub(crate) mod kernel;
mod kind;
pub(crate) mod reach;
pub mod watch;
pub mod wifi;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

pub use alias::InterfaceAlias;
pub use counters::{Counters, counters};
pub use flags::is_running;
use host_config::{HostConfig, InterfaceConfig};
use kernel::{Address, Kernel, Link};
use kind::DeviceFacts;

pub use default::{DefaultInterface, default_interfaces};

use manyways_unit::Prefix;

/// One network interface of this host (of the network namespace of the calling thread).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interface {
    /// Interface index of the kernel.
    pub index: u32,
    /// Name, as printed by `ip link`.
    pub name: String,
    /// Kind of the network.
    pub kind: Kind,
    /// Addresses to bind a socket to, IPv4 before IPv6. If the interface is usable, only addresses
    /// with a route to the internet (the others are in [`Interface::unusable_addresses`]);
    /// otherwise all addresses.
    pub addresses: Vec<IpAddr>,
    /// Addresses without a route to the internet, although another address of this interface has
    /// one, with the reason.
    pub unusable_addresses: Vec<(IpAddr, Unusable)>,
    /// The next hops of its default routes, in any routing table, best metric first.
    pub gateways: Vec<IpAddr>,
    /// The name servers that this network announced, or the host's if it announced none and is
    /// usable.
    pub dns: Vec<IpAddr>,
    /// Whether this network announced `dns`. If not, the name servers may belong to another network
    /// and refuse queries over this one.
    pub dns_announced: bool,
    /// Source of `dns`; `None` if there are no name servers.
    pub dns_source: Option<DnsSource>,
    /// Whether bytes on the network cost money.
    pub metered: Metered,
    /// Maximum IP packet size in bytes.
    pub mtu: u32,
    /// Metric of the best default route; the kernel prefers lower ones. `None` without a default
    /// route.
    pub metric: Option<u32>,
    /// Whether a socket bound to this interface and one of its addresses reaches the internet.
    pub usable: Result<(), Unusable>,
}

/// Kind of the network that an interface leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Wireless LAN.
    Wifi,
    /// Mobile network modem.
    Cellular,
    /// Wired LAN.
    Ethernet,
    /// Bluetooth personal-area network.
    Bluetooth,
    /// Phone shared over USB.
    UsbTether,
    /// VPN or another tunnel, which runs over one of the others.
    Tunnel,
    /// Software inside this host: bridges, virtual pairs, dummies.
    Virtual,
    /// Loopback interface.
    Loopback,
    /// Unknown kind.
    Other,
}

/// Source of a network's name servers, in decreasing order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DnsSource {
    /// The emulator, for its links.
    Lab,
    /// systemd-resolved.
    Resolved,
    /// NetworkManager.
    NetworkManager,
    /// DHCP or IPv6 router advertisements of the network.
    Lease,
    /// The per-interface files of `resolvconf`.
    Resolvconf,
    /// `/etc/resolv.conf`, which applies to the whole host.
    Host,
}

/// Whether bytes on a network cost money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Metered {
    /// Configured or announced as free.
    No,
    /// Configured or announced as metered.
    Yes,
    /// Unknown; a guess.
    Guessed {
        metered: bool,
        /// Reason, as the end of the sentence "guessed, because …".
        reason: &'static str,
    },
}

/// Reasons why an interface or one of its addresses cannot be used; the `Display` is one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// The loopback interface.
    #[error("it is the loopback interface")]
    Loopback,
    /// The interface is down.
    #[error("it is down")]
    Down,
    /// The interface is up, but there is no cable, no radio link, or no peer.
    #[error("it is up but has no carrier")]
    NoCarrier,
    /// A part of a bridge or a bond, which is to be used instead.
    #[error("it is a part of {controller}")]
    PartOf {
        /// Name of the bridge or bond.
        controller: String,
    },
    /// No address that can be a source address.
    #[error("it has no usable address")]
    NoAddress,
    /// No route to the internet, in any table that a socket bound to the interface uses.
    #[error("it has no route to the destination")]
    NoRoute,
    /// A rule or route forbids the destination.
    #[error("a routing rule rejects outgoing traffic")]
    Forbidden,
    /// The kernel's reverse path filter would drop answers on this interface.
    #[error(
        "the strict reverse path filter drops answers that arrive on it{}",
        .expected.as_ref().map(|to| format!(", because the route back uses {to}")).unwrap_or_default()
    )]
    StrictReversePath {
        /// Name of the interface, for the hint.
        interface: String,
        /// Interface on which the kernel expects the answers; `None` if it expects them on none.
        expected: Option<String>,
    },
}

impl Kind {
    /// Returns the stable name for output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wifi => "wifi",
            Self::Cellular => "cellular",
            Self::Ethernet => "ethernet",
            Self::Bluetooth => "bluetooth",
            Self::UsbTether => "usb-tether",
            Self::Tunnel => "tunnel",
            Self::Virtual => "virtual",
            Self::Loopback => "loopback",
            Self::Other => "other",
        }
    }
}

impl DnsSource {
    /// Returns the stable name for output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Resolved => "systemd-resolved",
            Self::NetworkManager => "networkmanager",
            Self::Lease => "dhcp",
            Self::Resolvconf => "resolvconf",
            Self::Host => "resolv.conf",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Metered {
    /// Whether to treat the network as metered, including guesses.
    pub fn is_metered(self) -> bool {
        matches!(self, Self::Yes | Self::Guessed { metered: true, .. })
    }
}

impl Unusable {
    /// Returns the stable name for output.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Down => "down",
            Self::NoCarrier => "no-carrier",
            Self::PartOf { .. } => "part-of",
            Self::NoAddress => "no-address",
            Self::NoRoute => "no-route",
            Self::Forbidden => "forbidden",
            Self::StrictReversePath { .. } => "strict-reverse-path",
        }
    }

    /// Returns a hint for the user.
    pub fn hint(&self) -> String {
        match self {
            Self::Loopback => "use another interface: loopback reaches only this host".into(),
            Self::Down => "set it up, with `ip link set` or the network manager".into(),
            Self::NoCarrier => "connect the cable or join a network".into(),
            Self::PartOf { controller: of } => format!("use {of} instead"),
            Self::NoAddress => "wait for DHCP, or give it an address".into(),
            Self::NoRoute => "add a default route through it, in the main table with a higher \
                              metric or in a separate table with an `ip rule` for its address"
                .into(),
            Self::Forbidden => "look for prohibit, unreachable or blackhole in `ip rule` and \
                                `ip route show table all`"
                .into(),
            // The larger value of this setting and the one for `all` applies, and 2 is the largest.
            Self::StrictReversePath { interface, .. } => format!(
                "as root: sysctl -w net/ipv4/conf/{interface}/rp_filter=2, or an `ip rule` for \
                 its address"
            ),
        }
    }
}

/// Reasons why the interfaces could not be listed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// The kernel's netlink socket failed.
    #[error("the kernel does not list the network interfaces: {0}")]
    Netlink(#[source] std::io::Error),
}

/// Lists the interfaces of this host in the kernel's order of preference (by the metric of the
/// default route, then by index). Interfaces without a default route are last.
///
/// `usable` refers to the internet in general; [`list_towards`] tests the route to given servers,
/// which may be in the local network.
pub fn list() -> Result<Vec<Interface>, ListError> {
    list_towards(&[])
}

/// Returns the addresses of this host (of the network namespace of the calling thread), including
/// loopback.
///
/// # Errors
/// If the kernel does not return them.
pub fn addresses() -> Result<Vec<IpAddr>, ListError> {
    let addresses = Kernel::open().and_then(|mut kernel| kernel.addresses());
    Ok(addresses.map_err(ListError::Netlink)?.into_iter().map(|address| address.ip).collect())
}

/// Returns the name of the interface that has an address, which belongs to one interface only if it is
/// link-local; `None` if this host does not have it.
///
/// # Errors
/// If the kernel does not return the addresses.
pub fn owner(address: SocketAddr) -> Result<Option<String>, ListError> {
    let mut kernel = Kernel::open().map_err(ListError::Netlink)?;
    let scope = match address {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let addresses = kernel.addresses().map_err(ListError::Netlink)?;
    let has = |own: &&Address| own.ip == address.ip() && (scope == 0 || scope == own.index);
    let Some(index) = addresses.iter().find(has).map(|own| own.index) else { return Ok(None) };
    let links = kernel.links().map_err(ListError::Netlink)?;
    Ok(links.into_iter().find(|link| link.index == index).map(|link| link.name))
}

/// An interface that can be captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Interface index of the kernel.
    pub index: u32,
    pub name: String,
    /// Type of the device: an `ARPHRD_` number.
    pub hardware: u16,
    /// Whether the interface is up (administratively).
    pub is_up: bool,
    /// Maximum IP packet size in bytes.
    pub mtu: u32,
}

/// Lists all interfaces in the order of their indexes, of any kind.
///
/// # Errors
/// If the kernel does not return them.
pub fn devices() -> Result<Vec<Device>, ListError> {
    let links = Kernel::open().and_then(|mut kernel| kernel.links()).map_err(ListError::Netlink)?;
    let device = |link: Link| Device {
        index: link.index,
        name: link.name,
        hardware: link.hardware,
        is_up: link.up,
        mtu: link.mtu,
    };
    let mut devices: Vec<Device> = links.into_iter().map(device).collect();
    devices.sort_by_key(|device| device.index);
    Ok(devices)
}

/// Like [`list`], but `usable` means that at least one of `destinations` is reachable. An empty
/// list means the internet in general.
pub fn list_towards(destinations: &[IpAddr]) -> Result<Vec<Interface>, ListError> {
    let mut kernel = Kernel::open().map_err(ListError::Netlink)?;
    let links = kernel.links().map_err(ListError::Netlink)?;
    let addresses = kernel.addresses().map_err(ListError::Netlink)?;
    let defaults = kernel.default_routes().map_err(ListError::Netlink)?;
    let records = HostConfig::read();

    let mut interfaces = Vec::with_capacity(links.len());
    for link in &links {
        let reach = reach(&mut kernel, link, &addresses, destinations, &links)
            .map_err(ListError::Netlink)?;
        let mut gateways = Vec::new();
        let own = defaults.iter().filter(|route| route.index == link.index);
        for gateway in own.clone().filter_map(|route| route.gateway).chain(reach.gateways) {
            if !gateways.contains(&gateway) {
                gateways.push(gateway);
            }
        }
        let mark = InterfaceAlias::parse(&link.alias);
        let kind = mark
            .as_ref()
            .and_then(|mark| mark.kind)
            .unwrap_or_else(|| kind::classify(link, &DeviceFacts::read(link)));
        let record = match &mark {
            // An emulated link has no records; files with its index belong to another interface.
            Some(mark) => InterfaceConfig {
                dns: mark.dns.clone(),
                dns_source: (!mark.dns.is_empty()).then_some(DnsSource::Lab),
                ..InterfaceConfig::default()
            },
            None if link.loopback => InterfaceConfig::default(),
            None => records.interface_config(link, &reach.sources),
        };
        let metered = metered(kind, mark.as_ref(), &record);
        let dns_announced = !record.dns.is_empty();
        let (dns, dns_source) = match reach.usable {
            Ok(()) if !dns_announced && !link.loopback => {
                let host = records.name_servers().to_vec();
                let source = (!host.is_empty()).then_some(DnsSource::Host);
                (host, source)
            }
            _ => (record.dns, record.dns_source),
        };
        interfaces.push(Interface {
            index: link.index,
            name: link.name.clone(),
            kind,
            metered,
            addresses: if reach.usable.is_ok() { reach.usable_sources } else { reach.sources },
            unusable_addresses: if reach.usable.is_ok() {
                reach.unusable_sources
            } else {
                Vec::new()
            },
            gateways,
            dns,
            dns_announced,
            dns_source,
            mtu: link.mtu,
            metric: own.map(|route| route.metric).min(),
            usable: reach.usable,
        });
    }
    interfaces
        .sort_by_key(|interface| (interface.metric.is_none(), interface.metric, interface.index));
    Ok(interfaces)
}

/// Returns the networks of this host's addresses on all interfaces except loopback, without
/// networks of a single address.
pub fn subnets() -> Result<Vec<Prefix>, ListError> {
    let addresses = Kernel::open().and_then(|mut kernel| kernel.addresses());
    let addresses = addresses.map_err(ListError::Netlink)?;
    let mut subnets: Vec<Prefix> = addresses
        .into_iter()
        .filter(|address| !address.ip.is_loopback())
        .map(|address| address.subnet)
        .filter(|subnet| subnet.length() < if subnet.address().is_ipv4() { 32 } else { 128 })
        .collect();
    subnets.sort();
    subnets.dedup();
    Ok(subnets)
}

/// Usable and unusable addresses of one interface.
struct AddressReach {
    sources: Vec<IpAddr>,
    usable_sources: Vec<IpAddr>,
    unusable_sources: Vec<(IpAddr, Unusable)>,
    gateways: Vec<IpAddr>,
    usable: Result<(), Unusable>,
}

fn reach(
    kernel: &mut Kernel,
    link: &Link,
    addresses: &[Address],
    destinations: &[IpAddr],
    links: &[Link],
) -> std::io::Result<AddressReach> {
    let all = reach::sources(link, addresses);
    let of = link
        .controller
        .and_then(|index| links.iter().find(|other| other.index == index))
        .map(|other| other.name.clone());
    let closed = if !link.up {
        Some(Unusable::Down)
    } else if !link.carrier {
        Some(Unusable::NoCarrier)
    } else if all.is_empty() {
        Some(of.map_or(Unusable::NoAddress, |of| Unusable::PartOf { controller: of }))
    } else {
        None
    };
    if let Some(reason) = closed {
        let (open, unusable, gateways) = (Vec::new(), Vec::new(), Vec::new());
        return Ok(AddressReach {
            sources: all,
            usable_sources: open,
            unusable_sources: unusable,
            gateways,
            usable: Err(reason),
        });
    }
    let found = reach::look_up(kernel, link, &all, destinations, links)?;
    let usable = if found.addresses.is_empty() {
        // Among several reasons, one other than a missing route is the most informative.
        let mut reasons = found.unusable.iter().map(|(_, reason)| reason);
        let telling = reasons.clone().find(|reason| **reason != Unusable::NoRoute);
        Err(telling.or_else(|| reasons.next()).cloned().unwrap_or(Unusable::NoRoute))
    } else {
        Ok(())
    };
    Ok(AddressReach {
        sources: all,
        usable_sources: found.addresses,
        unusable_sources: found.unusable,
        gateways: found.gateways,
        usable,
    })
}

fn metered(kind: Kind, mark: Option<&InterfaceAlias>, record: &InterfaceConfig) -> Metered {
    if let Some(metered) = mark.and_then(|mark| mark.metered) {
        return if metered { Metered::Yes } else { Metered::No };
    }
    if record.announced_metered {
        return Metered::Yes;
    }
    if let Some(metered) = record.managed_metered {
        return metered;
    }
    match kind {
        Kind::Loopback | Kind::Virtual => Metered::No,
        Kind::Cellular => Metered::Guessed { metered: true, reason: "it is a mobile network" },
        Kind::UsbTether | Kind::Bluetooth => {
            Metered::Guessed { metered: true, reason: "it is a phone's connection" }
        }
        _ => Metered::Guessed { metered: false, reason: "no source reports it as metered" },
    }
}

#[cfg(test)]
mod tests;
