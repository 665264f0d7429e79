//! Link-layer headers before IP.

use super::{Layer, Opaque, Rest};
use crate::capture::LinkType;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Transparent Ethernet Bridging: Ethernet inside another protocol.
pub(super) const BRIDGED: u16 = 0x6558;
/// Values of the type field below this are lengths of IEEE 802.3 frames.
const LEAST_PROTOCOL: u16 = 0x0600;
const SNAP: [u8; 3] = [0xaa, 0xaa, 0x03];

/// Reads the header of a link type and returns the rest after the header.
pub(super) fn behind(link: LinkType, rest: Rest<'_>) -> Result<(Layer, Rest<'_>), Opaque> {
    let found = match link {
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => Some((Layer::Ip, rest)),
        LinkType::ETHERNET => rest.u16(12).zip(rest.after(14)).map(ether),
        LinkType::SLL => return cooked(rest.u16(14), rest.after(16)),
        LinkType::SLL2 => return cooked(rest.u16(0), rest.after(20)),
        LinkType::NULL | LinkType::LOOP => family(rest),
        LinkType::PPP => return ppp(rest),
        LinkType::PPPOE => return pppoe(rest),
        LinkType::WIFI => return wifi(rest),
        LinkType::RADIOTAP => radiotap(rest),
        _ => return Err(Opaque::Link(link)),
    };
    found.ok_or(Opaque::Broken)
}

/// Reads the header of an EtherType and returns the rest after the header.
pub(super) fn behind_ether(protocol: u16, rest: Rest<'_>) -> Result<(Layer, Rest<'_>), Opaque> {
    let found = match protocol {
        IPV4 | IPV6 => Some((Layer::Ip, rest)),
        _ if is_vlan(protocol) => rest.u16(2).zip(rest.after(4)).map(ether),
        0x8847 | 0x8848 => mpls(rest),
        0x8864 => return pppoe(rest),
        BRIDGED => Some((Layer::Link(LinkType::ETHERNET), rest)),
        _ if protocol < LEAST_PROTOCOL => return llc(rest),
        _ => return Err(Opaque::Protocol(protocol)),
    };
    found.ok_or(Opaque::Broken)
}

/// Whether an EtherType is a VLAN tag: 802.1Q, 802.1ad, and the values used before 802.1ad.
pub(super) fn is_vlan(protocol: u16) -> bool {
    matches!(protocol, 0x8100 | 0x88a8 | 0x9100 | 0x9200)
}

fn ether((protocol, rest): (u16, Rest<'_>)) -> (Layer, Rest<'_>) {
    (Layer::Ether(protocol), rest)
}

/// Continues after a Linux cooked header; values below 0x0600 are defined by Linux.
fn cooked(protocol: Option<u16>, rest: Option<Rest<'_>>) -> Result<(Layer, Rest<'_>), Opaque> {
    match protocol.zip(rest).ok_or(Opaque::Broken)? {
        (1 | 4, rest) => llc(rest),
        (protocol, _) if protocol < LEAST_PROTOCOL => Err(Opaque::Protocol(protocol)),
        found => Ok(ether(found)),
    }
}

/// Reads the LLC header (IEEE 802.2).
fn llc(rest: Rest<'_>) -> Result<(Layer, Rest<'_>), Opaque> {
    if !rest.bytes.starts_with(&SNAP) {
        return Err(if rest.bytes.len() < SNAP.len() { Opaque::Broken } else { Opaque::Control });
    }
    match rest.u16(6).zip(rest.after(8)).ok_or(Opaque::Broken)? {
        (protocol, _) if protocol < LEAST_PROTOCOL => Err(Opaque::Control),
        found => Ok(ether(found)),
    }
}

/// Reads the address family, four bytes in the byte order of the capturing host.
fn family(rest: Rest<'_>) -> Option<(Layer, Rest<'_>)> {
    let number = rest.u32(0)?;
    let number = if number > 0xffff { number.swap_bytes() } else { number };
    // IPv6 has a different number on each BSD and on macOS; the IP header contains the version.
    let layer = match number {
        2 | 10 | 24 | 28 | 30 => Layer::Ip,
        _ => Layer::Ether(u16::try_from(number).unwrap_or(u16::MAX)),
    };
    Some((layer, rest.after(4)?))
}

fn ppp(rest: Rest<'_>) -> Result<(Layer, Rest<'_>), Opaque> {
    let framed = rest.bytes.starts_with(&[0xff, 0x03]);
    let rest = rest.after(if framed { 2 } else { 0 }).ok_or(Opaque::Broken)?;
    let first = rest.u8(0).ok_or(Opaque::Broken)?;
    // An odd first byte is a compressed protocol field of one byte (RFC 1661, 6.5).
    let (protocol, taken) = match first & 1 {
        1 => (first.into(), 1),
        _ => (rest.u16(0).ok_or(Opaque::Broken)?, 2),
    };
    let rest = rest.after(taken).ok_or(Opaque::Broken)?;
    match protocol {
        0x0021 | 0x0057 => Ok((Layer::Ip, rest)),
        0x0281 | 0x0283 => Ok((Layer::Ether(0x8847), rest)),
        0x0053 => Err(Opaque::Encrypted),
        // A part of the framing only: 0x00ff is not assigned.
        0x00ff => Err(Opaque::Broken),
        _ => Err(Opaque::Control),
    }
}

fn pppoe(rest: Rest<'_>) -> Result<(Layer, Rest<'_>), Opaque> {
    let (head, inner) = rest.u16(0).zip(rest.after(6)).ok_or(Opaque::Broken)?;
    // Version 1, type 1, and the code of session data.
    if head != 0x1100 {
        return Err(Opaque::Control);
    }
    ppp(inner)
}

fn mpls(mut rest: Rest<'_>) -> Option<(Layer, Rest<'_>)> {
    let mut is_last = false;
    while !is_last {
        is_last = rest.u8(2)? & 1 == 1;
        rest = rest.after(4)?;
    }
    // MPLS does not identify the payload. A zero nibble begins the control word of an Ethernet
    // pseudowire.
    match rest.u8(0)? >> 4 {
        4 | 6 => Some((Layer::Ip, rest)),
        0 => Some((Layer::Link(LinkType::ETHERNET), rest.after(4)?)),
        _ => Some((Layer::Link(LinkType::ETHERNET), rest)),
    }
}

fn radiotap(rest: Rest<'_>) -> Option<(Layer, Rest<'_>)> {
    let length = rest.u16(2)?.swap_bytes();
    Some((Layer::Link(LinkType::WIFI), rest.after(usize::from(length).max(8))?))
}

/// Reads IEEE 802.11, which is little-endian.
fn wifi(rest: Rest<'_>) -> Result<(Layer, Rest<'_>), Opaque> {
    const DATA: u8 = 2;
    let kind = rest.u8(0).ok_or(Opaque::Broken)?;
    let flags = rest.u8(1).ok_or(Opaque::Broken)?;
    let (subtype, is_bridged) = (kind >> 4, flags & 3 == 3);
    // The third bit of the subtype marks frames without data.
    if kind & 3 != 0 || kind >> 2 & 3 != DATA || subtype & 4 != 0 {
        return Err(Opaque::Control);
    }
    if flags & 0x40 != 0 {
        return Err(Opaque::Encrypted);
    }
    let mut header = if is_bridged { 30 } else { 24 };
    if subtype & 8 != 0 {
        let control = rest.u8(header).ok_or(Opaque::Broken)?;
        if control & 0x80 != 0 {
            // An aggregate of several frames (A-MSDU).
            return Err(Opaque::Control);
        }
        header += if flags & 0x80 != 0 { 6 } else { 2 };
    }
    llc(rest.after(header).ok_or(Opaque::Broken)?)
}
