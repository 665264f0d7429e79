//! Texts for the reasons why a frame yields no IP packet.

use std::fmt;

use super::SkipReason;
use crate::capture::LinkType;

/// EtherTypes: IEEE values, and below 0x0600 those that Linux defines for cooked headers
/// (`linux/if_ether.h`).
const PROTOCOLS: [(u16, &str); 31] = [
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
    (0x9000, "loopback test"),
];

/// Registered link types that are not read.
const LINKS: [(u16, &str); 20] = [
    (6, "Token Ring"),
    (10, "FDDI"),
    (50, "PPP in HDLC"),
    (104, "Cisco HDLC"),
    (107, "Frame Relay"),
    (119, "IEEE 802.11 with Prism header"),
    (143, "DOCSIS"),
    (163, "IEEE 802.11 with AVS header"),
    (189, "Linux USB"),
    (192, "PPI"),
    (195, "IEEE 802.15.4"),
    (220, "Linux USB"),
    (227, "CAN"),
    (230, "IEEE 802.15.4"),
    (239, "NFLOG"),
    (249, "Windows USB"),
    (251, "Bluetooth LE"),
    (252, "exported PDUs"),
    (253, "netlink"),
    (256, "Bluetooth LE"),
];

impl SkipReason {
    /// Hint for the user of a capture; `None` if nearly every capture has such frames.
    pub fn hint(self) -> Option<&'static str> {
        match self {
            Self::Link(_) => Some("capture on an Ethernet interface, or on Linux's `any`"),
            Self::Protocol(_) | Self::Control | Self::Encrypted | Self::Broken => None,
        }
    }

    /// Stable name of the reason: `link-type`, `ethertype`, `control`, `encrypted` or `broken`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Link(_) => "link-type",
            Self::Protocol(_) => "ethertype",
            Self::Control => "control",
            Self::Encrypted => "encrypted",
            Self::Broken => "broken",
        }
    }

    /// The link type or the EtherType.
    pub fn number(self) -> Option<u16> {
        match self {
            Self::Link(LinkType(number)) | Self::Protocol(number) => Some(number),
            Self::Control | Self::Encrypted | Self::Broken => None,
        }
    }

    /// The name of [`SkipReason::number`]; `None` if unknown.
    pub fn name(self) -> Option<&'static str> {
        let (names, number): (&[(u16, &str)], u16) = match self {
            Self::Link(LinkType(number)) => (&LINKS, number),
            Self::Protocol(number) => (&PROTOCOLS, number),
            Self::Control | Self::Encrypted | Self::Broken => return None,
        };
        names.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.name()) {
            (Self::Link(LinkType(number)), Some(name)) => write!(f, "link type {number} ({name})"),
            (Self::Link(LinkType(number)), None) => write!(f, "link type {number}"),
            (Self::Protocol(number), Some(name)) => write!(f, "{name} ({number:#06x})"),
            (Self::Protocol(number), None) => write!(f, "ethertype {number:#06x}"),
            (Self::Control, _) => f.write_str("control frames of the link"),
            (Self::Encrypted, _) => f.write_str("encrypted by the link"),
            (Self::Broken, _) => f.write_str("truncated or broken before IP"),
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
