//! Names of the packets that IP packets carry and that are not read.

use std::fmt;

use super::tunnel::{self, GRE, IPV4, IPV6, UDP};
use super::{Cursor, IpPacket, Layer, SkipReason, TCP};

/// Content of an IP packet that is neither TCP, nor UDP, nor a tunnel whose content is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Unread {
    /// Another IP protocol.
    Protocol(u8),
    /// GRE with content of this type, an EtherType or a number of GRE's own.
    Gre(u16, Obstacle),
    /// A tunnel over UDP, by its port.
    Udp(u16, Obstacle),
}

/// Reason why the content of a tunnel is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Obstacle {
    /// A format that is not supported.
    Unsupported,
    /// The content is not an IP packet: ARP, spanning tree, keep-alives.
    NotIp,
    /// Encrypted or compressed.
    Encrypted,
    /// The packet ends within a header, or a header is invalid.
    Broken,
}

/// IP protocols (IANA).
const PROTOCOLS: [(u8, &str); 29] = [
    (0, "hop-by-hop options"),
    (1, "ICMP"),
    (2, "IGMP"),
    (4, "IPv4"),
    (33, "DCCP"),
    (41, "IPv6"),
    (43, "routing header"),
    (44, "fragment header"),
    (46, "RSVP"),
    (47, "GRE"),
    (50, "ESP"),
    (51, "AH"),
    (58, "ICMPv6"),
    (59, "no content"),
    (60, "destination options"),
    (88, "EIGRP"),
    (89, "OSPF"),
    (94, "IPIP"),
    (97, "EtherIP"),
    (98, "encapsulation header"),
    (103, "PIM"),
    (108, "IPComp"),
    (112, "VRRP"),
    (115, "L2TPv3"),
    (132, "SCTP"),
    (135, "mobility header"),
    (136, "UDP-Lite"),
    (137, "MPLS"),
    (143, "Ethernet"),
];

/// Types of content in GRE; those of EtherTypes are in the table of [`SkipReason`].
const GRE_TYPES: [(u16, &str); 11] = [
    (0x0800, "IPv4"),
    (0x2001, "NHRP"),
    (0x22eb, "ERSPAN type III"),
    (0x6558, "Ethernet"),
    (0x6559, "Frame Relay"),
    (0x8847, "MPLS"),
    (0x8848, "MPLS"),
    (0x86dd, "IPv6"),
    (0x880b, "PPP"),
    (0x883e, "WCCP"),
    (0x88be, "ERSPAN"),
];
/// Types that Aruba's access points use.
const ARUBA: std::ops::RangeInclusive<u16> = 0x8200..=0x83ff;
/// The protocol that finds endpoints of tunnels, not a tunnel.
const NHRP: u16 = 0x2001;

/// Names the content of a packet that is not read; `None` for TCP, and for UDP without a tunnel.
pub fn unread(packet: &IpPacket<'_>) -> Option<Unread> {
    if packet.protocol == TCP {
        return None;
    }
    let rest = Cursor { bytes: packet.payload, length: packet.payload_length };
    if packet.protocol == UDP {
        let (port, content) = tunnel::over_udp(rest)?;
        return Some(Unread::Udp(port, Obstacle::of(content)));
    }
    let is_gre = packet.protocol == GRE;
    let content = tunnel::decapsulate(packet).zip(rest.u16(2).filter(|_| is_gre));
    Some(match content {
        Some((content, number)) => Unread::Gre(number, Obstacle::of(content)),
        None => Unread::Protocol(packet.protocol),
    })
}

impl Obstacle {
    /// The obstacle of a tunnel whose outer packet is the result of reading.
    fn of(content: tunnel::Content<'_>) -> Self {
        let (layer, rest) = match content {
            Ok(content) => content,
            Err(obstacle) => return obstacle,
        };
        match super::find_ip(layer, rest) {
            // Too many nested tunnels.
            Ok(_) => Self::Unsupported,
            Err(SkipReason::Protocol(number)) if layer == Layer::Ether(number) => Self::Unsupported,
            Err(SkipReason::Link(_)) => Self::Unsupported,
            Err(reason) if reason.is_compressed() => Self::Encrypted,
            Err(SkipReason::Encrypted) => Self::Encrypted,
            Err(SkipReason::Broken) => Self::Broken,
            Err(_) => Self::NotIp,
        }
    }

    /// Stable name of the obstacle: `unsupported`, `not-ip`, `encrypted` or `broken`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Unsupported => "unsupported",
            Self::NotIp => "not-ip",
            Self::Encrypted => "encrypted",
            Self::Broken => "broken",
        }
    }
}

impl Unread {
    /// Stable name of the carrier: `ip-protocol`, `gre-protocol` or `udp-port`.
    pub fn carrier(self) -> &'static str {
        match self {
            Self::Protocol(_) => "ip-protocol",
            Self::Gre(..) => "gre-protocol",
            Self::Udp(..) => "udp-port",
        }
    }

    /// The number of the IP protocol, the type in GRE, or the UDP port.
    pub fn number(self) -> u16 {
        match self {
            Self::Protocol(number) => number.into(),
            Self::Gre(number, _) | Self::Udp(number, _) => number,
        }
    }

    /// The name of [`Unread::number`]; `None` if unknown.
    pub fn name(self) -> Option<&'static str> {
        fn find<T: Copy + PartialEq>(
            names: &[(T, &'static str)],
            number: T,
        ) -> Option<&'static str> {
            names.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
        }
        match self {
            Self::Protocol(number) => find(&PROTOCOLS, number),
            Self::Gre(number, _) if ARUBA.contains(&number) => Some("Aruba"),
            Self::Gre(number, _) => {
                find(&GRE_TYPES, number).or_else(|| SkipReason::Protocol(number).name())
            }
            Self::Udp(port, _) => Some(match port {
                tunnel::GTP => "GTP-U",
                tunnel::TEREDO => "Teredo",
                tunnel::VXLAN | tunnel::LINUX_VXLAN => "VXLAN",
                tunnel::VXLAN_GPE => "VXLAN-GPE",
                tunnel::CAPWAP => "CAPWAP",
                tunnel::GENEVE => "GENEVE",
                _ => return None,
            }),
        }
    }

    /// Reason why the content is not read; `None` for a protocol that is not a tunnel.
    pub fn obstacle(self) -> Option<Obstacle> {
        const ESP: u8 = 50;
        const AH: u8 = 51;
        const IPCOMP: u8 = 108;
        /// IPIP, EtherIP, L2TPv3, MPLS and Ethernet.
        const TUNNELS: [u8; 5] = [94, 97, 115, 137, 143];
        match self {
            Self::Gre(NHRP, _) => Some(Obstacle::NotIp),
            Self::Gre(_, obstacle) | Self::Udp(_, obstacle) => Some(obstacle),
            Self::Protocol(ESP | IPCOMP) => Some(Obstacle::Encrypted),
            Self::Protocol(number) if TUNNELS.contains(&number) => Some(Obstacle::Unsupported),
            // These are read.
            Self::Protocol(IPV4 | IPV6 | GRE | AH) => Some(Obstacle::Broken),
            Self::Protocol(_) => None,
        }
    }

    /// A hint how to capture the content; `None` if there is nothing to read.
    pub fn hint(self) -> Option<&'static str> {
        match self.obstacle()? {
            Obstacle::Unsupported => Some("capture before or after the tunnel"),
            Obstacle::Encrypted => {
                Some("capture where the packets are not encrypted or compressed")
            }
            Obstacle::Broken => Some("is the snap length at least 192 bytes?"),
            Obstacle::NotIp => None,
        }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(number) => write!(f, "IP protocol {number}")?,
            Self::Gre(number, _) => write!(f, "GRE protocol {number:#06x}")?,
            Self::Udp(port, _) => write!(f, "UDP port {port}")?,
        }
        if let Some(name) = self.name() {
            write!(f, " ({name})")?;
        }
        match self.obstacle() {
            None => Ok(()),
            Some(Obstacle::Unsupported) => f.write_str(": not read"),
            Some(Obstacle::NotIp) => f.write_str(": no IP packet inside"),
            Some(Obstacle::Encrypted) => f.write_str(": encrypted or compressed"),
            Some(Obstacle::Broken) => f.write_str(": truncated or broken"),
        }
    }
}
