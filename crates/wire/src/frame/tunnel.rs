//! Tunnels: packets inside packets.

use super::link::BRIDGED;
use super::{Cursor, IpPacket, Layer};
use crate::capture::LinkType;

const IPV4: u8 = 4;
const UDP: u8 = 17;
const IPV6: u8 = 41;
const GRE: u8 = 47;

const GTP: u16 = 2152;
const VXLAN: u16 = 4789;
const CAPWAP: u16 = 5247;

/// The content of a tunnel packet; `None` if the packet is not a tunnel that can be read.
pub(super) fn decapsulate<'a>(outer: &IpPacket<'a>) -> Option<(Layer, Cursor<'a>)> {
    if outer.fragment.is_some_and(|part| part.offset > 0) {
        return None;
    }
    let rest = Cursor { bytes: outer.payload, length: outer.payload_length };
    match outer.protocol {
        IPV4 | IPV6 => Some((Layer::Ip, rest)),
        GRE => gre(rest),
        UDP => {
            let content = rest.skip(8)?;
            let ports = [rest.u16(0)?, rest.u16(2)?];
            // The source port of VXLAN is arbitrary.
            match ports {
                [_, VXLAN] => vxlan(content),
                _ if ports.contains(&GTP) => gtp(content),
                _ if ports.contains(&CAPWAP) => capwap(content),
                _ => None,
            }
        }
        _ => None,
    }
}

fn gre(rest: Cursor<'_>) -> Option<(Layer, Cursor<'_>)> {
    let (flags, protocol) = (rest.u16(0)?, rest.u16(2)?);
    // Version 0 without source routes, which are deprecated (RFC 2784).
    if flags & 0x4007 != 0 {
        return None;
    }
    let fields = [0x8000, 0x2000, 0x1000].iter().filter(|field| flags & **field != 0).count();
    Some((Layer::Ether(protocol), rest.skip(4 + 4 * fields)?))
}

fn vxlan(rest: Cursor<'_>) -> Option<(Layer, Cursor<'_>)> {
    // The flag for a valid VNI is set, and reserved bits are zero.
    let (flags, number) = (rest.u32(0)?, rest.u32(4)?);
    if flags != 0x0800_0000 || number & 0xff != 0 {
        return None;
    }
    Some((Layer::Ether(BRIDGED), rest.skip(8)?))
}

/// Reads GTP-U, version 1.
fn gtp(rest: Cursor<'_>) -> Option<(Layer, Cursor<'_>)> {
    const USER_DATA: u8 = 0xff;
    let flags = rest.u8(0)?;
    if flags & 0xf0 != 0x30 || rest.u8(1)? != USER_DATA {
        return None;
    }
    let mut header = 8;
    if flags & 7 != 0 {
        header += 4;
        let mut next = if flags & 4 != 0 { rest.u8(11)? } else { 0 };
        while next != 0 {
            let words = usize::from(rest.u8(header)?);
            if words == 0 {
                return None;
            }
            header += words * 4;
            next = rest.u8(header - 1)?;
        }
    }
    let inner = rest.skip(header)?;
    matches!(inner.u8(0)? >> 4, 4 | 6).then_some((Layer::Ip, inner))
}

/// Reads data packets between an access point and its controller (CAPWAP, RFC 5415).
fn capwap(rest: Cursor<'_>) -> Option<(Layer, Cursor<'_>)> {
    let head = rest.u32(0)?;
    let (preamble, length) = (head >> 24, head >> 19 & 0x1f);
    let [is_native, is_fragment, is_keep_alive] = [0x100, 0x80, 0x08].map(|bit| head & bit != 0);
    let is_first = rest.u16(6)? & 0xfff8 == 0;
    // Not encrypted, and not a later fragment.
    if preamble != 0 || length < 2 || is_keep_alive || is_fragment && !is_first {
        return None;
    }
    let inner = rest.skip(length as usize * 4)?;
    match (is_native, head >> 9 & 0x1f) {
        (false, _) => Some((Layer::Ether(BRIDGED), inner)),
        (true, 1) => Some((Layer::Link(LinkType::WIFI), inner)),
        (true, _) => None,
    }
}
