//! The networks that this host has: what each interface is, which addresses and gateways it
//! holds, and whether a socket bound to it reaches the internet.
//!
//! Nothing here sends a packet and nothing needs a privilege: it is what the kernel says over
//! netlink, `/sys/class/net`, `/proc/sys/net`, and the files that DHCP clients and network
//! managers leave behind.

pub mod announced;
pub(crate) mod kernel;
mod kind;
mod mark;
mod reach;
mod records;
pub mod watch;

use std::fmt;
use std::net::IpAddr;

use kernel::{Address, Kernel, Link};
use kind::Facts;
pub use mark::Mark;
use records::{Record, Records};

use manyways_unit::Prefix;

/// One network interface of this host (of the network namespace of the calling thread).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interface {
    /// The kernel's number for it.
    pub index: u32,
    /// Its name, as `ip link` shows it.
    pub name: String,
    /// What sort of network it is.
    pub kind: Kind,
    /// Addresses to bind a socket to, IPv4 before IPv6. When the interface is usable, only those
    /// that lead out (the others are in [`Interface::stranded`]); when it is not, all it has.
    pub addresses: Vec<IpAddr>,
    /// Addresses that do not lead out although another one of this interface does, and why.
    pub stranded: Vec<(IpAddr, Unusable)>,
    /// The next hops of its default routes, in any routing table, best metric first.
    pub gateways: Vec<IpAddr>,
    /// The name servers that this network announced, or the host's own when it announced none
    /// and is usable.
    pub dns: Vec<IpAddr>,
    /// Whether `dns` is what this network announced; else it may well be another network's, and
    /// refuse to answer over this one.
    pub dns_announced: bool,
    /// Who said so; none where there are no name servers.
    pub dns_source: Option<DnsSource>,
    /// Whether using it costs money by the byte.
    pub metered: Metered,
    /// The largest IP packet in bytes.
    pub mtu: u32,
    /// The metric of its best default route: lower is preferred by the kernel.
    pub metric: Option<u32>,
    /// Whether a socket bound to this interface and to one of its addresses reaches the internet.
    pub usable: Result<(), Unusable>,
}

/// What sort of network an interface leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A wireless LAN.
    Wifi,
    /// A mobile network modem.
    Cellular,
    /// A wired LAN.
    Ethernet,
    /// A Bluetooth personal-area network.
    Bluetooth,
    /// A phone shared over USB.
    UsbTether,
    /// A VPN or another tunnel, which runs over one of the others.
    Tunnel,
    /// Software inside this host: bridges, virtual pairs, dummies.
    Virtual,
    /// The host itself.
    Loopback,
    /// Nothing that we know.
    Other,
}

/// Who knows the name servers of a network, the one that is believed first in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DnsSource {
    /// The emulator, of its own links.
    Lab,
    /// systemd-resolved.
    Resolved,
    /// NetworkManager.
    NetworkManager,
    /// What the network itself said, in DHCP or IPv6's router advertisements.
    Lease,
    /// The per-interface files of `resolvconf`.
    Resolvconf,
    /// `/etc/resolv.conf`, which is of the host as a whole.
    Host,
}

/// Whether bytes on a network cost money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Metered {
    /// Something that knows says that it is free.
    No,
    /// Something that knows says that it is not.
    Yes,
    /// Nobody said; this is a guess.
    Guessed {
        /// The guess.
        metered: bool,
        /// Why, as the end of the sentence "guessed, because …".
        why: &'static str,
    },
}

/// Why an interface or one of its addresses cannot be used; the `Display` is one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// It never leaves the host.
    #[error("it is the loopback interface")]
    Loopback,
    /// It is switched off.
    #[error("it is down")]
    Down,
    /// It is on, but there is no cable, no radio link, or nobody at the other end.
    #[error("it is up but has no carrier")]
    NoCarrier,
    /// It belongs to a bridge or a bond, which is the one to use.
    #[error("it is a part of {of}")]
    PartOf {
        /// The name of the bridge or bond.
        of: String,
    },
    /// It holds no address that could be a source.
    #[error("it has no usable address")]
    NoAddress,
    /// No route leads out of it, in any table that a socket bound to it would use.
    #[error("no route leads out through it")]
    NoRoute,
    /// A rule or route forbids the way out.
    #[error("a routing rule forbids the way out")]
    Forbidden,
    /// Answers that come back on it would be dropped by the kernel's reverse path filter.
    #[error(
        "the strict reverse path filter drops the answers that come back on it{}",
        .expected.as_ref().map(|to| format!(", as the way back leads through {to}")).unwrap_or_default()
    )]
    StrictReversePath {
        /// The interface's name, for the hint.
        interface: String,
        /// Where the kernel expects the answers, when it expects them anywhere.
        expected: Option<String>,
    },
}

impl Kind {
    /// The word for it in output, stable.
    pub fn word(self) -> &'static str {
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
    /// The word for it in output, stable.
    pub fn word(self) -> &'static str {
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
        f.pad(self.word())
    }
}

impl Metered {
    /// Whether to treat it as metered, guess or not.
    pub fn is_metered(self) -> bool {
        matches!(self, Self::Yes | Self::Guessed { metered: true, .. })
    }
}

impl Unusable {
    /// One word for programs, stable.
    pub fn word(&self) -> &'static str {
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

    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Loopback => "it only reaches this host".into(),
            Self::Down => "switch it on, with `ip link set` or the network manager".into(),
            Self::NoCarrier => "plug the cable in or join a network".into(),
            Self::PartOf { of } => format!("use {of} instead"),
            Self::NoAddress => "wait for DHCP, or give it an address".into(),
            Self::NoRoute => "add a default route through it, in the main table with a higher \
                              metric or in a table of its own with an `ip rule` for its address"
                .into(),
            Self::Forbidden => "look for prohibit, unreachable or blackhole in `ip rule` and \
                                `ip route show table all`"
                .into(),
            // The larger one of this setting and that for all counts, and 2 is the largest.
            Self::StrictReversePath { interface, .. } => format!(
                "as root: sysctl -w net/ipv4/conf/{interface}/rp_filter=2, or an `ip rule` for \
                 its address"
            ),
        }
    }
}

/// Why the interfaces could not be listed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// The kernel's netlink socket failed.
    #[error("the kernel does not list the network interfaces: {0}")]
    Netlink(#[source] std::io::Error),
}

/// The interfaces of this host, the one that the kernel prefers first (by the metric of the
/// default route, then by index), those without a default route last.
///
/// `usable` asks for the way to the internet at large; [`list_towards`] asks for the way to a
/// certain server, which may be in the local network.
pub fn list() -> Result<Vec<Interface>, ListError> {
    list_towards(&[])
}

/// The addresses of this host (of the network namespace of the calling thread), loopback's too.
///
/// # Errors
/// Where the kernel does not tell.
pub fn addresses() -> Result<Vec<IpAddr>, ListError> {
    let addresses = Kernel::open().and_then(|mut kernel| kernel.addresses());
    Ok(addresses.map_err(ListError::Netlink)?.into_iter().map(|address| address.ip).collect())
}

/// An interface that packets can be captured on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The kernel's number for it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What it is, by ARP's number (`ARPHRD_`).
    pub hardware: u16,
    /// Whether it is switched on.
    pub is_up: bool,
}

/// All interfaces, in the order of their numbers, of whatever kind and use.
///
/// # Errors
/// Where the kernel does not tell.
pub fn devices() -> Result<Vec<Device>, ListError> {
    let links = Kernel::open().and_then(|mut kernel| kernel.links()).map_err(ListError::Netlink)?;
    let device = |link: Link| Device {
        index: link.index,
        name: link.name,
        hardware: link.hardware,
        is_up: link.up,
    };
    let mut devices: Vec<Device> = links.into_iter().map(device).collect();
    devices.sort_by_key(|device| device.index);
    Ok(devices)
}

/// As [`list`], with `usable` meaning that at least one of the `destinations` can be reached.
/// An empty list means the internet at large.
pub fn list_towards(destinations: &[IpAddr]) -> Result<Vec<Interface>, ListError> {
    let mut kernel = Kernel::open().map_err(ListError::Netlink)?;
    let links = kernel.links().map_err(ListError::Netlink)?;
    let addresses = kernel.addresses().map_err(ListError::Netlink)?;
    let defaults = kernel.default_routes().map_err(ListError::Netlink)?;
    let records = Records::read();

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
        let mark = Mark::parse(&link.alias);
        let kind = mark
            .as_ref()
            .and_then(|mark| mark.kind)
            .unwrap_or_else(|| kind::classify(link, &Facts::read(link)));
        let record = match &mark {
            // An emulated link has no records, and files with its index are another's.
            Some(mark) => Record {
                dns: mark.dns.clone(),
                dns_source: (!mark.dns.is_empty()).then_some(DnsSource::Lab),
                ..Record::default()
            },
            None if link.loopback => Record::default(),
            None => records.of(link, &reach.all),
        };
        let metered = metered(kind, mark.as_ref(), &record);
        let dns_announced = !record.dns.is_empty();
        let (dns, dns_source) = match reach.usable {
            Ok(()) if !dns_announced && !link.loopback => {
                let host = records.host().to_vec();
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
            addresses: if reach.usable.is_ok() { reach.open } else { reach.all },
            stranded: if reach.usable.is_ok() { reach.stranded } else { Vec::new() },
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

/// The networks that this host holds an address in, on all its interfaces but loopback, as far as
/// such a network is more than one address.
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

/// The ways out of one interface.
struct Ways {
    all: Vec<IpAddr>,
    open: Vec<IpAddr>,
    stranded: Vec<(IpAddr, Unusable)>,
    gateways: Vec<IpAddr>,
    usable: Result<(), Unusable>,
}

fn reach(
    kernel: &mut Kernel,
    link: &Link,
    addresses: &[Address],
    destinations: &[IpAddr],
    links: &[Link],
) -> std::io::Result<Ways> {
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
        Some(of.map_or(Unusable::NoAddress, |of| Unusable::PartOf { of }))
    } else {
        None
    };
    if let Some(why) = closed {
        let (open, stranded, gateways) = (Vec::new(), Vec::new(), Vec::new());
        return Ok(Ways { all, open, stranded, gateways, usable: Err(why) });
    }
    let found = reach::ask(kernel, link, &all, destinations, links)?;
    let usable = if found.addresses.is_empty() {
        // Of several reasons, the one that is not a mere lack says the most.
        let mut reasons = found.stranded.iter().map(|(_, why)| why);
        let telling = reasons.clone().find(|why| **why != Unusable::NoRoute);
        Err(telling.or_else(|| reasons.next()).cloned().unwrap_or(Unusable::NoRoute))
    } else {
        Ok(())
    };
    Ok(Ways {
        all,
        open: found.addresses,
        stranded: found.stranded,
        gateways: found.gateways,
        usable,
    })
}

fn metered(kind: Kind, mark: Option<&Mark>, record: &Record) -> Metered {
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
        Kind::Cellular => Metered::Guessed { metered: true, why: "it is a mobile network" },
        Kind::UsbTether | Kind::Bluetooth => {
            Metered::Guessed { metered: true, why: "it is a phone's connection" }
        }
        _ => Metered::Guessed { metered: false, why: "nothing says that it is metered" },
    }
}

#[cfg(test)]
mod tests;
