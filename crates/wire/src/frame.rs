//! From a frame of any link to the IP packet in it, through whatever wraps that.
//!
//! What is read through: Ethernet with VLANs, Linux's cooked headers, PPP and PPPoE, IEEE 802.11,
//! MPLS, and the tunnels VXLAN, GTP-U, CAPWAP, GRE and IP in IP. Where a tunnel's content is not
//! read, the packet that carries it is what comes out: nothing is lost by a tunnel.
//!
//! IP's headers are read here rather than by etherparse, which the lab uses: its packets are whole,
//! while those of a capture are cut anywhere, and going through the extension headers of a cut IPv6
//! packet etherparse 0.21 reads behind their end.

mod fragments;
mod ip;
mod link;
mod reason;
#[cfg(test)]
mod tests;
mod tunnel;
mod vlan;

use std::net::IpAddr;

pub use self::fragments::{Fragments, Whole};
pub use self::vlan::vlans;
use crate::capture::LinkType;

const TCP: u8 = 6;
/// So many headers are read through before IP, and so many packets that carry each other.
const DEPTH: usize = 8;

/// An IP packet, or a fragment of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Who sent it.
    pub source: IpAddr,
    /// Who gets it.
    pub destination: IpAddr,
    /// What it carries, by IANA's number.
    pub protocol: u8,
    /// What it carries, as much of it as was captured.
    pub payload: &'a [u8],
    /// How many bytes it carries, captured or not.
    pub carried: usize,
    /// How many bytes it has, with its headers.
    pub length: usize,
    /// Where it has a part of what was sent only.
    pub fragment: Option<Fragment>,
    /// The two bits that tell of congestion.
    pub ecn: u8,
    /// The number that its sender gave it (RFC 6864); zero in IPv6, and of senders that give none.
    pub id: u16,
    /// How many routers it may still pass.
    pub hop_limit: u8,
    /// It came in a tunnel.
    pub is_tunnelled: bool,
}

/// Which part of a packet a fragment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// The number that all fragments of a packet share.
    pub id: u32,
    /// Where it begins, in bytes.
    pub offset: u32,
    /// Others follow it.
    pub has_more: bool,
}

/// Why no packet comes out of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Opaque {
    /// The link is none that is known here.
    Link(LinkType),
    /// It carries something else, by the number that Ethernet gives it.
    Protocol(u16),
    /// It is the link's own: beacons, keep-alives, spanning trees.
    Control,
    /// It is encrypted by the link.
    Encrypted,
    /// It ends within a header, or a header says what cannot be.
    Broken,
}

/// What is left to read.
#[derive(Clone, Copy)]
struct Rest<'a> {
    /// As much of it as was captured.
    bytes: &'a [u8],
    /// How long it is.
    length: usize,
}

/// What a rest begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Link(LinkType),
    /// By Ethernet's number.
    Ether(u16),
    Ip,
}

/// The packet in a frame of `length` bytes, of which `frame` was captured. Of packets in a tunnel
/// it is the innermost.
#[inline(always)]
pub fn datagram<'a>(
    link: LinkType,
    frame: &'a [u8],
    length: usize,
) -> Result<Datagram<'a>, Opaque> {
    let rest = Rest { bytes: frame, length: length.max(frame.len()) };
    // Most packets are TCP in IPv4 right behind Ethernet's header, and TCP carries no packets. What
    // comes out of here is large, and made in its place only where this is inlined.
    if link == LinkType::ETHERNET
        && let Some([0x08, 0x00, .., TCP]) = frame.get(12..24)
        && let Some(found) = rest.after(14).and_then(ip::v4)
    {
        return Ok(found);
    }
    innermost(link, rest)
}

#[inline(never)]
fn innermost(link: LinkType, rest: Rest<'_>) -> Result<Datagram<'_>, Opaque> {
    let mut found = ip_in(Layer::Link(link), rest)?;
    for _ in 0..DEPTH {
        let Some((layer, rest)) = tunnel::inside(&found) else { break };
        let Ok(inner) = ip_in(layer, rest) else { break };
        found = Datagram { is_tunnelled: true, ..inner };
    }
    Ok(found)
}

fn ip_in(mut layer: Layer, mut rest: Rest<'_>) -> Result<Datagram<'_>, Opaque> {
    for _ in 0..DEPTH {
        (layer, rest) = match layer {
            Layer::Ip => return ip::datagram(rest).ok_or(Opaque::Broken),
            Layer::Link(link) => link::behind(link, rest)?,
            Layer::Ether(protocol) => link::behind_ether(protocol, rest)?,
        };
    }
    Err(Opaque::Broken)
}

impl<'a> Rest<'a> {
    /// Without its first `count` bytes.
    fn after(self, count: usize) -> Option<Self> {
        let bytes = self.bytes.get(count..)?;
        Some(Self { bytes, length: self.length - count })
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
