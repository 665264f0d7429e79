//! IEEE 802.11, and the radiotap header before it.

use super::{Cursor, IpPacket, Layer, MAX_DEPTH, SkipReason, link};
use crate::capture::LinkType;

/// Differences of captured frames from frames on the air.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WifiFormat {
    /// Zeros between header and payload align the payload to four bytes.
    pub(super) is_padded: bool,
    /// The two bytes of the frame control field are swapped.
    pub(super) is_swapped: bool,
}

/// The payload of a data frame.
enum Payload<'a> {
    /// One packet after an LLC header.
    Single(Cursor<'a>),
    /// Subframes (A-MSDU).
    Aggregate(Subframes<'a>),
}

/// Iterator over the subframes of an A-MSDU, each from its LLC header to its end.
struct Subframes<'a> {
    rest: Option<Cursor<'a>>,
}

/// Returns the IP packets in the subframes (A-MSDU) of an IEEE 802.11 frame after the first one,
/// which [`ip_packet`](super::ip_packet) reads; nothing for other frames.
pub fn further_packets(
    link: LinkType,
    frame: &[u8],
    length: usize,
) -> impl Iterator<Item = Result<IpPacket<'_>, SkipReason>> {
    let rest = Cursor { bytes: frame, length: length.max(frame.len()) };
    subframes(link, rest).into_iter().flatten().skip(1).map(|subframe| {
        let (layer, rest) = link::llc(subframe)?;
        super::innermost(layer, rest)
    })
}

fn subframes(link: LinkType, mut rest: Cursor<'_>) -> Option<Subframes<'_>> {
    let mut layer = Layer::Link(link);
    for _ in 0..MAX_DEPTH {
        (layer, rest) = match layer {
            Layer::Link(link @ (LinkType::WIFI | LinkType::RADIOTAP | LinkType::PPI)) => {
                link::read_link_header(link, rest).ok()?
            }
            Layer::Wifi(format) => match payload(format, rest) {
                Ok(Payload::Aggregate(all)) => return Some(all),
                _ => return None,
            },
            _ => return None,
        };
    }
    None
}

pub(super) fn radiotap(rest: Cursor<'_>) -> Option<(Layer, Cursor<'_>)> {
    const DATA_PAD: u8 = 0x20;
    let length = usize::from(rest.u16(2)?.swap_bytes()).max(8);
    let inner = rest.skip(length)?;
    let flags = radiotap_flags(rest.limit(length)?).unwrap_or_default();
    let format = WifiFormat { is_padded: flags & DATA_PAD != 0, is_swapped: false };
    Some((Layer::Wifi(format), inner))
}

/// The flags field of a radiotap header. Fields follow the bitmaps of present fields, each aligned
/// to its size; the first bitmap has the bits of the flags and of the time before them.
fn radiotap_flags(header: Cursor<'_>) -> Option<u8> {
    const TIME: u32 = 1;
    const FLAGS: u32 = 1 << 1;
    const ANOTHER_BITMAP: u32 = 1 << 31;
    let bitmap = |at| header.u32(at).map(u32::swap_bytes);
    let present = bitmap(4)?;
    let (mut last, mut at) = (present, 8);
    while last & ANOTHER_BITMAP != 0 {
        last = bitmap(at)?;
        at += 4;
    }
    if present & TIME != 0 {
        at = at.next_multiple_of(8) + 8;
    }
    if present & FLAGS != 0 { header.u8(at) } else { None }
}

/// Reads the header of a frame; of an aggregate, the result is the first subframe.
pub(super) fn read_wifi_header(
    format: WifiFormat,
    rest: Cursor<'_>,
) -> Result<(Layer, Cursor<'_>), SkipReason> {
    match payload(format, rest)? {
        Payload::Single(rest) => link::llc(rest),
        Payload::Aggregate(mut all) => link::llc(all.next().ok_or(SkipReason::Broken)?),
    }
}

fn payload(format: WifiFormat, rest: Cursor<'_>) -> Result<Payload<'_>, SkipReason> {
    const DATA: u8 = 2;
    let control = rest.u8(0).zip(rest.u8(1)).ok_or(SkipReason::Broken)?;
    let (kind, flags) = if format.is_swapped { (control.1, control.0) } else { control };
    let (subtype, is_bridged) = (kind >> 4, flags & 3 == 3);
    // The third bit of the subtype marks frames without data.
    if kind & 3 != 0 || kind >> 2 & 3 != DATA || subtype & 4 != 0 {
        return Err(SkipReason::Control);
    }
    if flags & 0x40 != 0 {
        return Err(SkipReason::Encrypted);
    }
    let mut header = if is_bridged { 30 } else { 24 };
    let mut is_aggregate = false;
    if subtype & 8 != 0 {
        is_aggregate = rest.u8(header).ok_or(SkipReason::Broken)? & 0x80 != 0;
        header += if flags & 0x80 != 0 { 6 } else { 2 };
    }
    if format.is_padded {
        header = header.next_multiple_of(4);
    }
    let rest = rest.skip(header).ok_or(SkipReason::Broken)?;
    Ok(match is_aggregate {
        true => Payload::Aggregate(Subframes { rest: Some(rest) }),
        false => Payload::Single(rest),
    })
}

impl<'a> Iterator for Subframes<'a> {
    type Item = Cursor<'a>;

    fn next(&mut self) -> Option<Cursor<'a>> {
        /// Two addresses and the length of the payload.
        const HEADER: usize = 14;
        let rest = self.rest.take()?;
        let length = usize::from(rest.u16(HEADER - 2)?);
        let subframe = rest.skip(HEADER)?.limit(length)?;
        // Every subframe but the last is padded to a multiple of four bytes.
        self.rest = rest.skip((HEADER + length).next_multiple_of(4));
        Some(subframe)
    }
}
