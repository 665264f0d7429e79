//! Link-layer headers before IP.

use super::wifi::{self, WifiFormat};
use super::{Cursor, Layer, SkipReason};
use crate::capture::LinkType;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// MPLS with labels for one receiver.
pub(super) const MPLS: u16 = 0x8847;
/// Transparent Ethernet Bridging: Ethernet inside another protocol.
pub(super) const BRIDGED: u16 = 0x6558;
/// Values of the type field below this are lengths of IEEE 802.3 frames.
pub(super) const MIN_ETHERTYPE: u16 = 0x0600;
const SNAP: [u8; 3] = [0xaa, 0xaa, 0x03];

/// Reads the header of a link type and returns the rest after the header.
pub(super) fn read_link_header(
    link: LinkType,
    rest: Cursor<'_>,
) -> Result<(Layer, Cursor<'_>), SkipReason> {
    let found = match link {
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => Some((Layer::Ip, rest)),
        LinkType::ETHERNET => rest.u16(12).zip(rest.skip(14)).map(ether_layer),
        LinkType::SLL => return cooked(rest.u16(14), rest.skip(16)),
        LinkType::SLL2 => return cooked(rest.u16(0), rest.skip(20)),
        LinkType::NULL | LinkType::LOOP => return family(rest),
        LinkType::PPP => return ppp(rest),
        LinkType::PPPOE => return pppoe(rest),
        // The address shows which of the two (RFC 1547, 4.3.1).
        LinkType::PPP_HDLC if matches!(rest.bytes, [0x0f | 0x8f, ..]) => return cisco_hdlc(rest),
        LinkType::PPP_HDLC => return ppp(rest),
        LinkType::CISCO_HDLC => return cisco_hdlc(rest),
        LinkType::WIFI => Some((Layer::Wifi(WifiFormat::default()), rest)),
        LinkType::RADIOTAP => wifi::radiotap(rest),
        LinkType::PPI => ppi(rest),
        _ => return Err(SkipReason::Link(link)),
    };
    found.ok_or(SkipReason::Broken)
}

/// Reads the header of an EtherType and returns the rest after the header.
pub(super) fn read_ether_header(
    protocol: u16,
    rest: Cursor<'_>,
) -> Result<(Layer, Cursor<'_>), SkipReason> {
    let found = match protocol {
        IPV4 | IPV6 => Some((Layer::Ip, rest)),
        _ if is_vlan(protocol) => rest.u16(2).zip(rest.skip(4)).map(ether_layer),
        MPLS | 0x8848 => mpls(rest),
        0x8864 => return pppoe(rest),
        BRIDGED => Some((Layer::Link(LinkType::ETHERNET), rest)),
        _ if protocol < MIN_ETHERTYPE => return llc(rest),
        _ => return Err(SkipReason::Protocol(protocol)),
    };
    found.ok_or(SkipReason::Broken)
}

/// Whether an EtherType is a VLAN tag: 802.1Q, 802.1ad, and the values used before 802.1ad.
pub(super) fn is_vlan(protocol: u16) -> bool {
    matches!(protocol, 0x8100 | 0x88a8 | 0x9100 | 0x9200)
}

fn ether_layer((protocol, rest): (u16, Cursor<'_>)) -> (Layer, Cursor<'_>) {
    (Layer::Ether(protocol), rest)
}

/// Continues after a Linux cooked header; values below 0x0600 are defined by Linux.
fn cooked(
    protocol: Option<u16>,
    rest: Option<Cursor<'_>>,
) -> Result<(Layer, Cursor<'_>), SkipReason> {
    match protocol.zip(rest).ok_or(SkipReason::Broken)? {
        (1 | 4, rest) => llc(rest),
        (protocol, _) if protocol < MIN_ETHERTYPE => Err(SkipReason::Protocol(protocol)),
        found => Ok(ether_layer(found)),
    }
}

/// Reads the LLC header (IEEE 802.2).
pub(super) fn llc(rest: Cursor<'_>) -> Result<(Layer, Cursor<'_>), SkipReason> {
    /// Spanning tree.
    const BRIDGES: u8 = 0x42;
    /// A test of the link, or SNAP with another control field.
    const LINK: [u8; 2] = [0x00, SNAP[0]];
    if !rest.bytes.starts_with(&SNAP) {
        return Err(match *rest.bytes {
            [target, _, _, ..] if target == BRIDGES || LINK.contains(&target) => {
                SkipReason::Control
            }
            [target, _, _, ..] => SkipReason::Llc(target),
            _ => SkipReason::Broken,
        });
    }
    match rest.u16(6).zip(rest.skip(8)).ok_or(SkipReason::Broken)? {
        (protocol, _) if protocol < MIN_ETHERTYPE => Err(SkipReason::Control),
        found => Ok(ether_layer(found)),
    }
}

/// Reads the address family, four bytes in the byte order of the capturing host.
fn family(rest: Cursor<'_>) -> Result<(Layer, Cursor<'_>), SkipReason> {
    let (number, rest) = rest.u32(0).zip(rest.skip(4)).ok_or(SkipReason::Broken)?;
    let number = if number > 0xffff { number.swap_bytes() } else { number };
    match u16::try_from(number).unwrap_or(u16::MAX) {
        // IPv6 has a different number on each BSD and on macOS; the IP header contains the version.
        2 | 10 | 24 | 28 | 30 => Ok((Layer::Ip, rest)),
        number if number < MIN_ETHERTYPE => Err(SkipReason::Family(number)),
        number => Ok((Layer::Ether(number), rest)),
    }
}

fn ppp(rest: Cursor<'_>) -> Result<(Layer, Cursor<'_>), SkipReason> {
    let framed = rest.bytes.starts_with(&[0xff, 0x03]);
    let rest = rest.skip(if framed { 2 } else { 0 }).ok_or(SkipReason::Broken)?;
    let first = rest.u8(0).ok_or(SkipReason::Broken)?;
    // An odd first byte is a compressed protocol field of one byte (RFC 1661, 6.5).
    let (protocol, taken) = match first & 1 {
        1 => (first.into(), 1),
        _ => (rest.u16(0).ok_or(SkipReason::Broken)?, 2),
    };
    let rest = rest.skip(taken).ok_or(SkipReason::Broken)?;
    match protocol {
        0x0021 | 0x0057 => Ok((Layer::Ip, rest)),
        0x0281 | 0x0283 => Ok((Layer::Ether(MPLS), rest)),
        0x0053 | 0x0055 => Err(SkipReason::Encrypted),
        // A part of the framing only: 0x00ff is not assigned.
        0x00ff => Err(SkipReason::Broken),
        // Numbers from 0x4000 are control protocols (RFC 1661, 2).
        _ if protocol < 0x4000 => Err(SkipReason::Ppp(protocol)),
        _ => Err(SkipReason::Control),
    }
}

fn pppoe(rest: Cursor<'_>) -> Result<(Layer, Cursor<'_>), SkipReason> {
    let (head, inner) = rest.u16(0).zip(rest.skip(6)).ok_or(SkipReason::Broken)?;
    // Version 1, type 1, and the code of session data.
    if head != 0x1100 {
        return Err(SkipReason::Control);
    }
    ppp(inner)
}

fn mpls(mut rest: Cursor<'_>) -> Option<(Layer, Cursor<'_>)> {
    let mut is_last = false;
    while !is_last {
        is_last = rest.u8(2)? & 1 == 1;
        rest = rest.skip(4)?;
    }
    // MPLS does not identify the payload. A zero nibble begins the control word of an Ethernet
    // pseudowire.
    match rest.u8(0)? >> 4 {
        4 | 6 => Some((Layer::Ip, rest)),
        0 => Some((Layer::Link(LinkType::ETHERNET), rest.skip(4)?)),
        _ => Some((Layer::Link(LinkType::ETHERNET), rest)),
    }
}

/// Reads the header of Cisco HDLC: address, control field and an EtherType.
fn cisco_hdlc(rest: Cursor<'_>) -> Result<(Layer, Cursor<'_>), SkipReason> {
    /// Keep-alives and addresses (SLARP), which share the number with RARP.
    const SLARP: u16 = 0x8035;
    match rest.u16(2).zip(rest.skip(4)).ok_or(SkipReason::Broken)? {
        (SLARP, _) => Err(SkipReason::Control),
        (protocol, _) if protocol < MIN_ETHERTYPE => Err(SkipReason::Protocol(protocol)),
        found => Ok(ether_layer(found)),
    }
}

/// Reads the header of PPI, which is little-endian and contains the link type of the packet.
fn ppi(rest: Cursor<'_>) -> Option<(Layer, Cursor<'_>)> {
    const HEADER: usize = 8;
    let length = usize::from(rest.u16(2)?.swap_bytes());
    let link = u16::try_from(rest.u32(4)?.swap_bytes()).ok()?;
    let inner = rest.skip(length).filter(|_| length >= HEADER)?;
    Some((Layer::Link(LinkType(link).normalized()), inner))
}
