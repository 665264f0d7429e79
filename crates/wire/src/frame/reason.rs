//! Texts for the reasons why a frame yields no IP packet.

use std::fmt;

use super::SkipReason;
use crate::capture::LinkType;

/// EtherTypes: IEEE values, and below 0x0600 those that Linux defines for cooked headers
/// (`linux/if_ether.h`).
const PROTOCOLS: [(u16, &str); 33] = [
    (0x0003, "Linux: all protocols"),
    (0x000c, "CAN"),
    (0x000d, "CAN FD"),
    (0x00f5, "Phonet"),
    (0x00f6, "IEEE 802.15.4"),
    (0x00f7, "CAIF"),
    (0x00f9, "Qualcomm MAP"),
    (0x00fa, "MCTP"),
    (0x0806, "ARP"),
    (0x0842, "Wake-on-LAN"),
    (0x2000, "CDP"),
    (0x22f0, "AVTP"),
    (0x22f3, "TRILL"),
    (0x6003, "DECnet"),
    (0x8035, "RARP"),
    (0x809b, "AppleTalk"),
    (0x8137, "IPX"),
    (0x8809, "LACP"),
    (0x8863, "PPPoE discovery"),
    (0x886c, "Broadcom"),
    (0x888e, "EAPOL"),
    (0x8892, "PROFINET"),
    (0x8899, "Realtek"),
    (0x88a4, "EtherCAT"),
    (0x88c7, "EAPOL preauthentication"),
    (0x88cc, "LLDP"),
    (0x88e5, "MACsec"),
    (0x88f7, "PTP"),
    (0x8902, "CFM"),
    (0x8906, "FCoE"),
    (0x893a, "IEEE 1905.1"),
    (0x894f, "NSH"),
    (0x9000, "loopback test"),
];

/// Protocols of PPP that are not control protocols (IANA).
const PPP: [(u16, &str); 12] = [
    (0x0023, "OSI"),
    (0x0029, "AppleTalk"),
    (0x002b, "IPX"),
    (0x002d, "compressed TCP"),
    (0x002f, "TCP without compression"),
    (0x0031, "bridging"),
    (0x003d, "multilink"),
    (0x0061, "compressed IP"),
    (0x0067, "compressed UDP"),
    (0x0069, "compressed RTP"),
    (0x00fb, "compressed or encrypted on one link"),
    (0x00fd, "compressed or encrypted"),
];
/// Those of [`PPP`] that contain packets in another form.
const PPP_COMPRESSED: [u16; 6] = [0x002d, 0x0061, 0x0067, 0x0069, 0x00fb, 0x00fd];

/// Service access points of IEEE 802.2.
const ACCESS_POINTS: [(u16, &str); 5] =
    [(0x04, "SNA"), (0x06, "IP"), (0xe0, "IPX"), (0xf0, "NetBIOS"), (0xfe, "OSI")];

/// Address families with the same number on all systems.
const FAMILIES: [(u16, &str); 2] = [(1, "local"), (16, "AppleTalk")];

/// Registered link types that are not read.
const LINKS: [(u16, &str); 26] = [
    (6, "Token Ring"),
    (7, "ARCNET"),
    (8, "SLIP"),
    (10, "FDDI"),
    (100, "ATM"),
    (107, "Frame Relay"),
    (119, "IEEE 802.11 with Prism header"),
    (143, "DOCSIS"),
    (149, "PKTAP or user-defined"),
    (163, "IEEE 802.11 with AVS header"),
    (166, "PPP with direction"),
    (189, "Linux USB"),
    (195, "IEEE 802.15.4"),
    (204, "PPP with direction"),
    (205, "Cisco HDLC with direction"),
    (206, "Frame Relay with direction"),
    (220, "Linux USB"),
    (227, "CAN"),
    (230, "IEEE 802.15.4"),
    (239, "NFLOG"),
    (249, "Windows USB"),
    (251, "Bluetooth LE"),
    (252, "exported PDUs"),
    (253, "netlink"),
    (256, "Bluetooth LE"),
    (258, "PKTAP"),
];

impl SkipReason {
    /// Stable name of the reason: `link-type`, `ethertype`, `ppp-protocol`, `llc`,
    /// `address-family`, `control`, `encrypted` or `broken`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Link(_) => "link-type",
            Self::Protocol(_) => "ethertype",
            Self::Ppp(_) => "ppp-protocol",
            Self::Llc(_) => "llc",
            Self::Family(_) => "address-family",
            Self::Control => "control",
            Self::Encrypted => "encrypted",
            Self::Broken => "broken",
        }
    }

    /// The link type, or the number of the protocol.
    pub fn number(self) -> Option<u16> {
        self.named().map(|(_, number)| number)
    }

    /// The name of [`SkipReason::number`]; `None` if unknown.
    pub fn name(self) -> Option<&'static str> {
        let (names, number) = self.named()?;
        names.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
    }

    /// A number and the names of its kind.
    fn named(self) -> Option<(&'static [(u16, &'static str)], u16)> {
        match self {
            Self::Link(LinkType(number)) => Some((&LINKS, number)),
            Self::Protocol(number) => Some((&PROTOCOLS, number)),
            Self::Ppp(number) => Some((&PPP, number)),
            Self::Llc(number) => Some((&ACCESS_POINTS, number.into())),
            Self::Family(number) => Some((&FAMILIES, number)),
            Self::Control | Self::Encrypted | Self::Broken => None,
        }
    }

    /// Whether the frame contains a packet in compressed form.
    pub(super) fn is_compressed(self) -> bool {
        matches!(self, Self::Ppp(protocol) if PPP_COMPRESSED.contains(&protocol))
    }

    /// A hint how to capture packets that can be read; `None` if the frame has none, or if no
    /// capture would have others.
    pub fn hint(self) -> Option<&'static str> {
        const MACSEC: u16 = 0x88e5;
        match self {
            Self::Link(LinkType(number)) => match number {
                119 | 163 => Some("capture with radiotap headers"),
                149 | 258 => Some("capture on a single interface, as with `tcpdump -i en0`"),
                189 | 220 | 249 => Some("capture on the network interface instead of the USB bus"),
                239 => Some("capture on the interface of the packets, or on Linux's `any`"),
                251 | 256 => Some("of Bluetooth, captures of HCI are read, as Android's btsnoop"),
                252 => Some("use the capture from which the PDUs were exported"),
                // These contain no packets of IP, or none that could be read from elsewhere.
                195 | 227 | 230 | 253 => None,
                _ => Some(
                    "Ethernet, IEEE 802.11, PPP, Cisco HDLC, raw IP and Linux's `any` are read",
                ),
            },
            Self::Encrypted | Self::Protocol(MACSEC) => {
                Some("capture where the link does not encrypt, for example behind the access point")
            }
            _ if self.is_compressed() => {
                Some("capture behind the link, where the packets are not compressed or encrypted")
            }
            Self::Broken => Some("is the link type right, and the snap length at least 96 bytes?"),
            _ => None,
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.name()) {
            (Self::Protocol(number), Some(name)) => write!(f, "{name} ({number:#06x})"),
            (Self::Protocol(number), None) => write!(f, "ethertype {number:#06x}"),
            (Self::Control, _) => f.write_str("control frames of the link"),
            (Self::Encrypted, _) => f.write_str("encrypted by the link"),
            (Self::Broken, _) => f.write_str("truncated or broken before IP"),
            (_, name) => {
                match self {
                    Self::Ppp(number) => write!(f, "PPP protocol {number:#06x}")?,
                    Self::Llc(number) => write!(f, "LLC {number:#04x}")?,
                    Self::Family(number) => write!(f, "address family {number}")?,
                    Self::Link(LinkType(number)) => write!(f, "link type {number}")?,
                    _ => {}
                }
                name.map_or(Ok(()), |name| write!(f, " ({name})"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_without_ip_is_named_by_its_link_type_or_ethertype() {
        let words = |opaque: SkipReason| opaque.to_string();
        assert_eq!(words(SkipReason::Protocol(0x00f9)), "Qualcomm MAP (0x00f9)");
        assert_eq!(words(SkipReason::Protocol(0x0806)), "ARP (0x0806)");
        assert_eq!(words(SkipReason::Protocol(0x1234)), "ethertype 0x1234");
        assert_eq!(words(SkipReason::Link(LinkType(239))), "link type 239 (NFLOG)");
        assert_eq!(words(SkipReason::Link(LinkType(147))), "link type 147");
        assert_eq!(SkipReason::Protocol(0x00f9).number(), Some(249));
        assert_eq!((SkipReason::Broken.number(), SkipReason::Broken.name()), (None, None));
    }
}
