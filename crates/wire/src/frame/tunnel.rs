//! Tunnels: packets inside packets.

mod gre;

use super::link::{BRIDGED, MIN_ETHERTYPE, MPLS};
use super::unread::Obstacle;
use super::wifi::WifiFormat;
use super::{Cursor, IpPacket, Layer};

pub(super) const IPV4: u8 = 4;
pub(super) const UDP: u8 = 17;
pub(super) const IPV6: u8 = 41;
pub(super) const GRE: u8 = 47;

pub(super) const GTP: u16 = 2152;
pub(super) const TEREDO: u16 = 3544;
pub(super) const VXLAN: u16 = 4789;
pub(super) const VXLAN_GPE: u16 = 4790;
pub(super) const CAPWAP: u16 = 5247;
pub(super) const GENEVE: u16 = 6081;
/// The port of VXLAN that Linux used before its registration and still has as its default.
pub(super) const LINUX_VXLAN: u16 = 8472;

/// The packet in a tunnel packet, or the reason why its content is not read.
pub(super) type Content<'a> = Result<(Layer, Cursor<'a>), Obstacle>;

/// The content of a tunnel packet; `None` if the packet is not a tunnel.
pub(super) fn decapsulate<'a>(outer: &IpPacket<'a>) -> Option<Content<'a>> {
    if outer.fragment.is_some_and(|part| part.offset > 0) {
        return None;
    }
    let rest = Cursor { bytes: outer.payload, length: outer.payload_length };
    match outer.protocol {
        IPV4 | IPV6 => Some(Ok((Layer::Ip, rest))),
        GRE => Some(gre::gre(rest)),
        UDP => over_udp(rest).map(|(_, content)| content),
        _ => None,
    }
}

/// The content of a tunnel over UDP, and its port; `None` if ports or header are not those of a
/// tunnel.
pub(super) fn over_udp(rest: Cursor<'_>) -> Option<(u16, Content<'_>)> {
    let ports = [rest.u16(0)?, rest.u16(2)?];
    // The source port of VXLAN and GENEVE is arbitrary.
    let (port, read): (u16, fn(Cursor<'_>) -> Option<Content<'_>>) = match ports {
        [_, port @ (VXLAN | LINUX_VXLAN)] => (port, vxlan),
        [_, VXLAN_GPE] => (VXLAN_GPE, vxlan_gpe),
        [_, GENEVE] => (GENEVE, geneve),
        _ if ports.contains(&GTP) => (GTP, gtp),
        _ if ports.contains(&CAPWAP) => (CAPWAP, capwap),
        _ if ports.contains(&TEREDO) => (TEREDO, teredo),
        _ => return None,
    };
    Some((port, read(rest.skip(8)?)?))
}

/// The content of a tunnel that gives its type as an EtherType.
fn of_ethertype(protocol: u16, inner: Option<Cursor<'_>>) -> Content<'_> {
    match inner {
        None => Err(Obstacle::Broken),
        // Not an EtherType, and no length either as in Ethernet.
        Some(_) if protocol < MIN_ETHERTYPE => Err(Obstacle::Unsupported),
        Some(inner) => Ok((Layer::Ether(protocol), inner)),
    }
}

/// Reads VXLAN (RFC 7348), and Group Policy, which uses some of its reserved bits.
fn vxlan(rest: Cursor<'_>) -> Option<Content<'_>> {
    const HAS_NETWORK: u8 = 0x08;
    // Receivers ignore all other bits.
    let is_vxlan = rest.u8(0)? & HAS_NETWORK != 0;
    is_vxlan.then(|| of_ethertype(BRIDGED, rest.skip(8)))
}

/// Reads VXLAN-GPE (draft-ietf-nvo3-vxlan-gpe), which adds a version and the type of the content.
fn vxlan_gpe(rest: Cursor<'_>) -> Option<Content<'_>> {
    const VERSION: u8 = 0x30;
    const HAS_NETWORK: u8 = 0x08;
    const HAS_TYPE: u8 = 0x04;
    const MANAGEMENT: u8 = 0x01;
    let (flags, content) = (rest.u8(0)?, rest.u8(3)?);
    if flags & VERSION != 0 || flags & HAS_NETWORK == 0 {
        return None;
    }
    let inner = rest.skip(8);
    Some(match content {
        _ if flags & MANAGEMENT != 0 => Err(Obstacle::NotIp),
        _ if flags & HAS_TYPE == 0 => of_ethertype(BRIDGED, inner),
        1 | 2 => inner.map(|inner| (Layer::Ip, inner)).ok_or(Obstacle::Broken),
        3 => of_ethertype(BRIDGED, inner),
        5 => of_ethertype(MPLS, inner),
        _ => Err(Obstacle::Unsupported),
    })
}

/// Reads GENEVE (RFC 8926).
fn geneve(rest: Cursor<'_>) -> Option<Content<'_>> {
    const CONTROL: u8 = 0x80;
    let (first, flags, protocol) = (rest.u8(0)?, rest.u8(1)?, rest.u16(2)?);
    let (version, options) = (first >> 6, usize::from(first & 0x3f) * 4);
    if version != 0 {
        return None;
    }
    Some(match flags & CONTROL {
        0 => of_ethertype(protocol, rest.skip(8 + options)),
        _ => Err(Obstacle::NotIp),
    })
}

/// Reads GTP-U, version 1.
fn gtp(rest: Cursor<'_>) -> Option<Content<'_>> {
    const USER_DATA: u8 = 0xff;
    let flags = rest.u8(0)?;
    if flags & 0xf0 != 0x30 || rest.u8(1)? != USER_DATA {
        return None;
    }
    let inner = gtp_header(flags, rest).and_then(|header| rest.skip(header));
    let Some((inner, first)) = inner.and_then(|inner| Some((inner, inner.u8(0)?))) else {
        return Some(Err(Obstacle::Broken));
    };
    // The session determines the type of the content, and there are sessions of Ethernet.
    Some(if matches!(first >> 4, 4 | 6) {
        Ok((Layer::Ip, inner))
    } else {
        Err(Obstacle::Unsupported)
    })
}

/// Length of the header with its extensions.
fn gtp_header(flags: u8, rest: Cursor<'_>) -> Option<usize> {
    if flags & 7 == 0 {
        return Some(8);
    }
    let mut header = 12;
    let mut next = if flags & 4 != 0 { rest.u8(11)? } else { 0 };
    while next != 0 {
        let words = usize::from(rest.u8(header)?);
        if words == 0 {
            return None;
        }
        header += words * 4;
        next = rest.u8(header - 1)?;
    }
    Some(header)
}

/// Reads data packets between an access point and its controller (CAPWAP, RFC 5415).
fn capwap(rest: Cursor<'_>) -> Option<Content<'_>> {
    const ENCRYPTED: u32 = 1;
    let head = rest.u32(0)?;
    let (preamble, length) = (head >> 24, head >> 19 & 0x1f);
    if preamble == ENCRYPTED {
        return Some(Err(Obstacle::Encrypted));
    }
    if preamble != 0 || length < 2 {
        return None;
    }
    let [is_native, is_fragment, is_keep_alive] = [0x100, 0x80, 0x08].map(|bit| head & bit != 0);
    let is_first = rest.u16(6)? & 0xfff8 == 0;
    let inner = rest.skip(length as usize * 4);
    Some(match (inner, head >> 9 & 0x1f) {
        _ if is_keep_alive => Err(Obstacle::NotIp),
        _ if is_fragment && !is_first => Err(Obstacle::Unsupported),
        (None, _) => Err(Obstacle::Broken),
        (inner, _) if !is_native => of_ethertype(BRIDGED, inner),
        (Some(inner), 1) => Ok((Layer::Wifi(capwap_wifi(inner)), inner)),
        (Some(_), _) => Err(Obstacle::Unsupported),
    })
}

/// Cisco's access points swap the bytes of the frame control field. These frames pass a
/// distribution system, so the byte of the flags has one of the lowest bits, and the type has none.
fn capwap_wifi(frame: Cursor<'_>) -> WifiFormat {
    let is_data = |at| frame.u8(at).is_some_and(|kind| kind & 0x0f == 0x08);
    WifiFormat { is_padded: false, is_swapped: !is_data(0) && is_data(1) }
}

/// Recognises Teredo (RFC 4380): IPv6, after an authentication or an origin indication.
fn teredo(rest: Cursor<'_>) -> Option<Content<'_>> {
    const ORIGIN: u16 = 0;
    const AUTHENTICATION: u16 = 1;
    let first = rest.u16(0)?;
    let is_teredo = first >> 12 == 6 || [ORIGIN, AUTHENTICATION].contains(&first);
    is_teredo.then_some(Err(Obstacle::Unsupported))
}
