//! VLAN tags of a frame.

use super::{Cursor, MAX_DEPTH};
use crate::capture::LinkType;

/// The VLAN IDs (IEEE 802.1Q), outermost first; empty if the link type has no tags. Tags inside
/// tunnels are ignored.
pub fn vlans(link: LinkType, frame: &[u8]) -> impl Iterator<Item = u16> + '_ {
    let rest = Cursor { bytes: frame, length: frame.len() };
    let mut next = match link {
        LinkType::ETHERNET => rest.u16(12).zip(rest.skip(14)),
        LinkType::SLL => rest.u16(14).zip(rest.skip(16)),
        LinkType::SLL2 => rest.u16(0).zip(rest.skip(20)),
        _ => None,
    };
    let tags = std::iter::from_fn(move || {
        let (protocol, rest) = next?;
        if !super::link::is_vlan(protocol) {
            return None;
        }
        let tag = rest.u16(0)?;
        next = rest.u16(2).zip(rest.skip(4));
        Some(tag & 0xfff)
    });
    tags.take(MAX_DEPTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_tags_are_read_until_they_are_truncated() {
        let tagged = [0x88, 0xa8, 0x20, 0x64, 0x81, 0x00, 0xa0, 0xc8, 0x08, 0x00, 0x45];
        let frame = [&[0; 12][..], &tagged].concat();
        let of = |frame: &[u8]| vlans(LinkType::ETHERNET, frame).collect::<Vec<_>>();
        assert_eq!(of(&frame), [100, 200]);
        assert_eq!(of(&frame[..18]), [100]);
        assert_eq!(of(&frame[..15]), [0; 0]);
        assert_eq!(of(&[&[0; 12][..], &tagged[8..]].concat()), [0; 0]);
        let cooked = [&[0; 14][..], &tagged].concat();
        assert_eq!(vlans(LinkType::SLL, &cooked).collect::<Vec<_>>(), [100, 200]);
        assert_eq!(vlans(LinkType::RAW, &frame).count(), 0);
    }
}
