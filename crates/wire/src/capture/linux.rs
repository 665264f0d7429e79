//! Frames as read from a Linux packet socket, converted to the form that capture files have: VLAN
//! tags that the network card removed are inserted again.

use super::LinkType;

/// PACKET_OUTGOING (packet(7)).
const OUTGOING: u8 = 4;
/// Offset of a VLAN tag in an Ethernet frame: after both addresses.
const VLAN_TAG_OFFSET: usize = 12;
/// Length of the cooked header, version 2.
const SLL2_HEADER: usize = 20;
/// ARPHRD_LOOPBACK.
const LOOPBACK: u16 = 772;

/// Metadata of a frame from the kernel (packet(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameMetadata {
    /// EtherType of the content.
    pub protocol: u16,
    /// Interface index.
    pub interface: u32,
    /// ARP hardware type of the interface.
    pub hardware: u16,
    /// Packet type: 0 is addressed to this host, 4 is sent by this host.
    pub kind: u8,
    /// Link-layer address of the sender, and its length.
    pub address: ([u8; 8], u8),
    /// The removed VLAN tag: EtherType and tag control information.
    pub vlan: Option<(u16, u16)>,
}

impl FrameMetadata {
    /// Whether this host sends the frame.
    pub fn is_sent(&self) -> bool {
        self.kind == OUTGOING
    }

    /// Whether the frame is a duplicate: a loopback interface delivers each sent frame as received,
    /// too.
    pub fn is_copy(&self) -> bool {
        self.hardware == LOOPBACK && self.is_sent()
    }

    /// Writes the frame as in files of this link type, from the `bytes` that the kernel returned.
    /// Returns the number of bytes added to the frame.
    pub fn write(&self, link: LinkType, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let tag = self.vlan.map(|(protocol, tag)| {
            let ([a, b], [c, d]) = (protocol.to_be_bytes(), tag.to_be_bytes());
            [a, b, c, d]
        });
        if link == LinkType::SLL2 {
            let [first, second] =
                tag.map_or([None; 2], |[a, b, c, d]| [Some([a, b]), Some([c, d])]);
            out.extend(first.unwrap_or(self.protocol.to_be_bytes()));
            out.extend([0; 2]);
            out.extend(self.interface.to_be_bytes());
            out.extend(self.hardware.to_be_bytes());
            out.extend([self.kind, self.address.1.min(8)]);
            out.extend(self.address.0);
            let mut added = SLL2_HEADER;
            if let Some(second) = second {
                out.extend(second);
                out.extend(self.protocol.to_be_bytes());
                added += 4;
            }
            out.extend(bytes);
            return added;
        }
        match (tag, bytes.split_at_checked(VLAN_TAG_OFFSET)) {
            (Some(tag), Some((addresses, rest))) if link == LinkType::ETHERNET => {
                out.extend(addresses);
                out.extend(tag);
                out.extend(rest);
                tag.len()
            }
            _ => {
                out.extend(bytes);
                0
            }
        }
    }
}

impl LinkType {
    /// Link type of raw frames of an interface with this ARP hardware type. `None` if only the
    /// cooked header is known to work.
    pub fn from_hardware(hardware: u16) -> Option<Self> {
        match hardware {
            1 | LOOPBACK => Some(Self::ETHERNET),
            // Interfaces without a link-layer header: TUN, WireGuard, modems.
            0xfffe | 519 => Some(Self::RAW),
            801 => Some(Self::WIFI),
            803 => Some(Self::RADIOTAP),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame;

    /// An IPv4 packet without payload, of an unassigned protocol.
    fn ip() -> Vec<u8> {
        let mut ip = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0];
        ip.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        ip
    }

    fn read(
        link: LinkType,
        metadata: &FrameMetadata,
        bytes: &[u8],
        length: usize,
    ) -> Option<(u8, usize)> {
        let mut out = vec![7];
        let added = metadata.write(link, bytes, &mut out);
        assert_eq!(out.len(), 1 + bytes.len() + added);
        let found = frame::ip_packet(link, &out[1..], length + added).ok()?;
        Some((found.protocol, found.length))
    }

    #[test]
    fn a_removed_vlan_tag_is_inserted_again() {
        let mut bytes = vec![1; 12];
        bytes.extend([0x08, 0x00]);
        bytes.extend(ip());
        let metadata = FrameMetadata { vlan: Some((0x8100, 0x2007)), ..FrameMetadata::default() };
        let mut out = Vec::new();
        assert_eq!(metadata.write(LinkType::ETHERNET, &bytes, &mut out), 4);
        assert_eq!(out[..18], [&[1; 12][..], &[0x81, 0, 0x20, 7, 0x08, 0]].concat());
        assert_eq!(out[18..], ip());
        assert_eq!(read(LinkType::ETHERNET, &metadata, &bytes, bytes.len()), Some((253, 20)));
        // A provider tag, in a frame that still contains another tag.
        let inner = [&bytes[..12], &out[12..]].concat();
        let metadata = FrameMetadata { vlan: Some((0x88a8, 1)), ..FrameMetadata::default() };
        assert_eq!(read(LinkType::ETHERNET, &metadata, &inner, inner.len()), Some((253, 20)));
        // Too short for a tag.
        assert_eq!(read(LinkType::ETHERNET, &metadata, &bytes[..11], 11), None);
    }

    #[test]
    fn cooked_headers_are_read_back() {
        let metadata = FrameMetadata {
            protocol: 0x0800,
            interface: 7,
            hardware: 512,
            ..FrameMetadata::default()
        };
        assert_eq!(read(LinkType::SLL2, &metadata, &ip(), 20), Some((253, 20)));
        let tagged = FrameMetadata { vlan: Some((0x8100, 9)), kind: OUTGOING, ..metadata };
        assert_eq!(read(LinkType::SLL2, &tagged, &ip(), 20), Some((253, 20)));
        assert!(tagged.is_sent() && !tagged.is_copy());
        assert!(FrameMetadata { hardware: LOOPBACK, ..tagged }.is_copy());
        assert!(!FrameMetadata { hardware: LOOPBACK, ..metadata }.is_copy());
        let mut out = Vec::new();
        let address = ([1, 2, 3, 4, 5, 6, 0, 0], 6);
        FrameMetadata { address, ..tagged }.write(LinkType::SLL2, &[], &mut out);
        let expected =
            [0x81, 0, 0, 0, 0, 0, 0, 7, 2, 0, 4, 6, 1, 2, 3, 4, 5, 6, 0, 0, 0, 9, 0x08, 0];
        assert_eq!(out, expected);
    }

    #[test]
    fn devices_begin_their_frames_in_their_own_way() {
        let of = LinkType::from_hardware;
        assert_eq!(
            [of(1), of(LOOPBACK), of(0xfffe)].map(Option::unwrap),
            [LinkType::ETHERNET, LinkType::ETHERNET, LinkType::RAW]
        );
        // PPP, and an IP-in-IP tunnel.
        assert_eq!((of(512), of(768)), (None, None));
    }

    proptest! {
        #[test]
        fn all_input_is_preserved(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            vlan in prop::option::of((any::<u16>(), any::<u16>())),
            link in prop::sample::select(vec![
                LinkType::ETHERNET, LinkType::SLL2, LinkType::RAW, LinkType::WIFI,
            ]),
        ) {
            let metadata = FrameMetadata { vlan, ..FrameMetadata::default() };
            let mut out = Vec::new();
            let added = metadata.write(link, &bytes, &mut out);
            prop_assert_eq!(out.len(), bytes.len() + added);
            prop_assert!(out.ends_with(&bytes[bytes.len().min(VLAN_TAG_OFFSET)..]));
        }
    }
}
