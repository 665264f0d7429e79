//! GRE (RFC 2784, RFC 2890), ERSPAN in it, and the variant of PPTP (RFC 2637).

use super::{Content, of_ethertype};
use crate::capture::LinkType;
use crate::frame::link::BRIDGED;
use crate::frame::unread::Obstacle;
use crate::frame::{Cursor, Layer};

const PPP: u16 = 0x880b;
const ERSPAN: u16 = 0x88be;
const ERSPAN_3: u16 = 0x22eb;

const HAS_CHECKSUM: u16 = 0x8000;
const HAS_KEY: u16 = 0x2000;
const HAS_SEQUENCE: u16 = 0x1000;
/// Source routes, whose header has a variable length (RFC 1701), and the other bits with which a
/// receiver discards a packet (RFC 2784, 2.3). The bits after these are ignored.
const DISCARDED: u16 = 0x4c00;
const VERSION: u16 = 0x0007;

pub(super) fn gre(rest: Cursor<'_>) -> Content<'_> {
    let (flags, protocol) = rest.u16(0).zip(rest.u16(2)).ok_or(Obstacle::Broken)?;
    match flags & VERSION {
        0 if flags & DISCARDED == 0 => {}
        1 if protocol == PPP => return pptp(flags, rest),
        _ => return Err(Obstacle::Unsupported),
    }
    let fields = [HAS_CHECKSUM, HAS_KEY, HAS_SEQUENCE].map(|field| flags & field != 0);
    let header = 4 + 4 * fields.into_iter().filter(|is_here| *is_here).count();
    let inner = rest.skip(header).ok_or(Obstacle::Broken)?;
    match protocol {
        // A keep-alive.
        _ if inner.length == 0 => Err(Obstacle::NotIp),
        // Type I has no header.
        ERSPAN if flags & HAS_SEQUENCE == 0 => of_ethertype(BRIDGED, Some(inner)),
        ERSPAN | ERSPAN_3 => erspan(inner),
        PPP => Ok((Layer::Link(LinkType::PPP), inner)),
        _ => of_ethertype(protocol, Some(inner)),
    }
}

/// Reads the header of ERSPAN, type II or III (draft-foschiano-erspan).
fn erspan(rest: Cursor<'_>) -> Content<'_> {
    const HAS_SUBHEADER: u16 = 1;
    match rest.u8(0).ok_or(Obstacle::Broken)? >> 4 {
        1 => of_ethertype(BRIDGED, rest.skip(8)),
        2 => {
            let last = rest.u16(10).ok_or(Obstacle::Broken)?;
            let inner = rest.skip(if last & HAS_SUBHEADER == 0 { 12 } else { 20 });
            match last >> 10 & 0x1f {
                0 => of_ethertype(BRIDGED, inner),
                2 => inner.map(|inner| (Layer::Ip, inner)).ok_or(Obstacle::Broken),
                _ => Err(Obstacle::Unsupported),
            }
        }
        _ => Err(Obstacle::Unsupported),
    }
}

/// Reads version 1, in which the key contains the length of the content.
fn pptp(flags: u16, rest: Cursor<'_>) -> Content<'_> {
    const HAS_ACKNOWLEDGMENT: u16 = 0x0080;
    if flags & HAS_KEY == 0 || flags & (HAS_CHECKSUM | DISCARDED) != 0 {
        return Err(Obstacle::Unsupported);
    }
    let length = usize::from(rest.u16(4).ok_or(Obstacle::Broken)?);
    // Only an acknowledgment.
    if flags & HAS_SEQUENCE == 0 || length == 0 {
        return Err(Obstacle::NotIp);
    }
    let header = if flags & HAS_ACKNOWLEDGMENT == 0 { 12 } else { 16 };
    let inner = rest.skip(header).and_then(|inner| inner.limit(length));
    Ok((Layer::Link(LinkType::PPP), inner.ok_or(Obstacle::Broken)?))
}
