//! From a frame of any link layer to the IP packet in it, through the headers around the packet.
//!
//! Reads Ethernet with VLANs, Linux cooked headers, PPP and PPPoE, Cisco HDLC, IEEE 802.11, MPLS,
//! and the tunnels VXLAN, GENEVE, GTP-U, CAPWAP, GRE with ERSPAN and PPTP, and IP in IP. If the
//! content of a tunnel cannot be read, the result is the outer packet, so that tunnels lose no
//! packets; [`unread`] then names the content.
//!
//! This module reads IP headers without etherparse, which the lab uses. Packets of the lab are
//! complete, but captured packets can be truncated anywhere, and etherparse 0.21 reads past the end
//! of a truncated IPv6 packet with extension headers.

mod fragments;
mod ip;
mod link;
mod reason;
#[cfg(test)]
mod tests;
mod tunnel;
mod tunnel_id;
mod unread;
mod vlan;
mod wifi;

use std::net::IpAddr;

pub use self::fragments::{Fragments, Reassembled};
pub use self::unread::{Obstacle, Unread, unread};
pub use self::vlan::vlans;
use self::wifi::WifiFormat;
pub use self::wifi::further_packets;
use crate::capture::LinkType;

const TCP: u8 = 6;
/// Maximum number of headers before IP, and of nested tunnels.
const MAX_DEPTH: usize = 8;

/// An IP packet, or a fragment of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPacket<'a> {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// Protocol number of the payload (IANA).
    pub protocol: u8,
    /// The captured bytes of the payload.
    pub payload: &'a [u8],
    /// Number of payload bytes, captured or not.
    pub payload_length: usize,
    /// Number of bytes with all headers.
    pub length: usize,
    /// `None` if the packet is not a fragment.
    pub fragment: Option<Fragment>,
    /// The two ECN bits (RFC 3168).
    pub ecn: u8,
    /// Identification field (RFC 6864); 0 in IPv6 and from senders that do not set the field.
    pub id: u16,
    /// TTL (IPv4) or hop limit (IPv6).
    pub hop_limit: u8,
    /// Whether the packet was inside a tunnel.
    pub is_tunnelled: bool,
}

/// Position of a fragment in its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// Identification that all fragments of a packet share.
    pub id: u32,
    /// Offset of the first byte, in bytes.
    pub offset: u32,
    /// Whether more fragments follow.
    pub has_more: bool,
    /// Identifies the tunnels around the fragment; 0 outside of tunnels.
    pub tunnel: u32,
}

/// Reason why a frame yields no IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SkipReason {
    /// The link type is unknown.
    Link(LinkType),
    /// The frame carries another protocol, given as an EtherType.
    Protocol(u16),
    /// PPP carries another protocol, or an encrypted or compressed packet.
    Ppp(u16),
    /// IEEE 802.2 carries another protocol, given as the destination's service access point.
    Llc(u8),
    /// The header of a loopback frame has another address family.
    Family(u16),
    /// The frame belongs to the link layer: beacons, keep-alives, spanning tree.
    Control,
    /// Encrypted by the link layer.
    Encrypted,
    /// The frame ends within a header, or a header is invalid.
    Broken,
}

/// The unread rest of a frame.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    /// The captured bytes.
    bytes: &'a [u8],
    /// Length in bytes, captured or not.
    length: usize,
}

/// The next header of a [`Cursor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Link(LinkType),
    /// EtherType.
    Ether(u16),
    /// IEEE 802.11.
    Wifi(WifiFormat),
    Ip,
}

/// Returns the IP packet in a frame of `length` bytes, of which `frame` was captured. For nested
/// tunnels, the result is the innermost packet.
#[inline(always)]
pub fn ip_packet<'a>(
    link: LinkType,
    frame: &'a [u8],
    length: usize,
) -> Result<IpPacket<'a>, SkipReason> {
    let rest = Cursor { bytes: frame, length: length.max(frame.len()) };
    // Fast path: most packets are TCP over IPv4 directly after the Ethernet header, and TCP is not
    // a tunnel. The result is large, and inlining avoids a copy.
    if link == LinkType::ETHERNET
        && let Some([0x08, 0x00, .., TCP]) = frame.get(12..24)
        && let Some(found) = rest.skip(14).and_then(ip::v4)
    {
        return Ok(found);
    }
    innermost(Layer::Link(link), rest)
}

#[inline(never)]
fn innermost(layer: Layer, rest: Cursor<'_>) -> Result<IpPacket<'_>, SkipReason> {
    let mut found = decapsulated(layer, rest, |_| {})?;
    // The numbers of the tunnels matter for fragments only, which are rare.
    if let (true, Some(fragment)) = (found.is_tunnelled, &mut found.fragment) {
        decapsulated(layer, rest, |outer| {
            fragment.tunnel = tunnel_id::add(fragment.tunnel, outer);
        })?;
    }
    Ok(found)
}

/// Returns the innermost packet, and passes each tunnel packet around it to `each`.
#[inline]
fn decapsulated<'a>(
    layer: Layer,
    rest: Cursor<'a>,
    mut each: impl FnMut(&IpPacket<'a>),
) -> Result<IpPacket<'a>, SkipReason> {
    let mut found = find_ip(layer, rest)?;
    for _ in 0..MAX_DEPTH {
        let Some(Ok((layer, rest))) = tunnel::decapsulate(&found) else { break };
        let Ok(inner) = find_ip(layer, rest) else { break };
        each(&found);
        found = IpPacket { is_tunnelled: true, ..inner };
    }
    Ok(found)
}

fn find_ip(mut layer: Layer, mut rest: Cursor<'_>) -> Result<IpPacket<'_>, SkipReason> {
    for _ in 0..MAX_DEPTH {
        (layer, rest) = match layer {
            Layer::Ip => return ip::ip_packet(rest).ok_or(SkipReason::Broken),
            Layer::Link(link) => link::read_link_header(link, rest)?,
            Layer::Ether(protocol) => link::read_ether_header(protocol, rest)?,
            Layer::Wifi(format) => wifi::read_wifi_header(format, rest)?,
        };
    }
    Err(SkipReason::Broken)
}

/// Returns the EtherType of a frame without an IP packet, and the captured bytes behind the headers
/// before it; `None` if there is an IP packet, or no EtherType.
pub fn other_protocol(link: LinkType, frame: &[u8]) -> Option<(u16, &[u8])> {
    let (mut layer, mut rest) = (Layer::Link(link), Cursor { bytes: frame, length: frame.len() });
    for _ in 0..MAX_DEPTH {
        let next = match layer {
            Layer::Ip => return None,
            Layer::Link(link) => link::read_link_header(link, rest).ok()?,
            Layer::Wifi(format) => wifi::read_wifi_header(format, rest).ok()?,
            Layer::Ether(protocol) => match link::read_ether_header(protocol, rest) {
                Ok(next) => next,
                Err(SkipReason::Protocol(protocol)) => return Some((protocol, rest.bytes)),
                Err(_) => return None,
            },
        };
        (layer, rest) = next;
    }
    None
}

impl IpPacket<'_> {
    /// Returns the packet without its payload, of which it still has the length.
    pub fn without_payload(&self) -> IpPacket<'static> {
        let Self {
            source,
            destination,
            protocol,
            payload: _,
            payload_length,
            length,
            fragment,
            ecn,
            id,
            hop_limit,
            is_tunnelled,
        } = *self;
        IpPacket {
            source,
            destination,
            protocol,
            payload: &[],
            payload_length,
            length,
            fragment,
            ecn,
            id,
            hop_limit,
            is_tunnelled,
        }
    }
}

impl<'a> Cursor<'a> {
    fn skip(self, count: usize) -> Option<Self> {
        let bytes = self.bytes.get(count..)?;
        Some(Self { bytes, length: self.length - count })
    }

    /// The first `length` bytes; `None` if there are fewer.
    fn limit(self, length: usize) -> Option<Self> {
        let bytes = &self.bytes[..self.bytes.len().min(length)];
        (length <= self.length).then_some(Self { bytes, length })
    }

    fn u8(self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    fn u16(self, at: usize) -> Option<u16> {
        self.bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
    }

    fn u32(self, at: usize) -> Option<u32> {
        self.bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
    }
}
