//! Parses the frames of a block, with the layout of `linux/if_packet.h`. Although the kernel writes
//! the offsets, no offset is followed beyond the block.

use manyways_unit::Time;

/// Offsets in a block of the number of frames, and of the offset of the first frame.
const COUNT_OFFSET: usize = 12;
const FIRST_FRAME_OFFSET: usize = 16;
/// Bytes of a frame's header, and offset of the link-layer address after it.
const HEADER_SIZE: usize = 48;
const ADDRESS_OFFSET: usize = HEADER_SIZE + 20;

/// A captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Time since the Unix epoch.
    pub at: Time,
    /// Captured bytes, at most the snap length.
    pub bytes: &'a [u8],
    /// Original length in bytes.
    pub length: usize,
    /// VLAN tag that was removed from the frame: its protocol, and the tag control information.
    pub vlan: Option<(u16, u16)>,
    /// EtherType of the payload.
    pub protocol: u16,
    /// Index of the interface.
    pub interface: u32,
    /// Type of the device: an `ARPHRD_` number.
    pub hardware: u16,
    /// Packet type (`PACKET_`): 0 is for this host, 4 is sent by this host.
    pub kind: u8,
    /// Link-layer address of the sender, and its length.
    pub address: ([u8; 8], u8),
}

/// Iterates over the frames of a block that the kernel has released.
pub(super) fn frames(block: &[u8]) -> impl Iterator<Item = Frame<'_>> {
    let count = u32_at(block, COUNT_OFFSET).unwrap_or(0);
    let mut next = u32_at(block, FIRST_FRAME_OFFSET).map(|first| first as usize);
    (0..count).map_while(move |_| {
        let begin = next.take()?;
        let header = block.get(begin..)?;
        // The last frame has no successor.
        let step = u32_at(header, 0)? as usize;
        next = (step > 0).then_some(begin.checked_add(step)?);
        frame(header)
    })
}

fn frame(header: &[u8]) -> Option<Frame<'_>> {
    let (seconds, nanos) = (u32_at(header, 4)?, u32_at(header, 8)?);
    let (captured, length) = (u32_at(header, 12)? as usize, u32_at(header, 16)? as usize);
    let status = u32_at(header, 20)?;
    let begin = usize::from(u16_at(header, 24)?);
    let vlan = (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| {
        let protocol = match status & libc::TP_STATUS_VLAN_TPID_VALID {
            0 => libc::ETH_P_8021Q as u16,
            _ => u16_at(header, 36).unwrap_or_default(),
        };
        (protocol, u32_at(header, 32).unwrap_or_default() as u16)
    });
    let link = header.get(HEADER_SIZE..ADDRESS_OFFSET)?;
    Some(Frame {
        at: Time::from_nanos(u64::from(seconds) * 1_000_000_000 + u64::from(nanos)),
        bytes: header.get(begin..begin.checked_add(captured)?)?,
        length: length.max(captured),
        vlan,
        protocol: u16_at(link, 2)?.to_be(),
        interface: u32_at(link, 4)?,
        hardware: u16_at(link, 8)?,
        kind: *link.get(10)?,
        address: (*link.get(12..)?.first_chunk()?, *link.get(11)?),
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Builds a block of these frames: content, status and VLAN tag.
    fn block(frames: &[(&[u8], u32, [u16; 2])]) -> Vec<u8> {
        let mut block = vec![0; 48];
        block[12..16].copy_from_slice(&(frames.len() as u32).to_ne_bytes());
        block[16..20].copy_from_slice(&48_u32.to_ne_bytes());
        for (index, (content, status, [tag, protocol])) in frames.iter().enumerate() {
            let whole = (ADDRESS_OFFSET + content.len()).next_multiple_of(16);
            let next = if index + 1 == frames.len() { 0 } else { whole as u32 };
            let mut bytes =
                [next, 7, 9, content.len() as u32, 99, *status].map(u32::to_ne_bytes).concat();
            bytes.extend([ADDRESS_OFFSET as u16, 0].map(u16::to_ne_bytes).concat());
            bytes.extend([0, u32::from(*tag)].map(u32::to_ne_bytes).concat());
            bytes.extend(protocol.to_ne_bytes());
            bytes.resize(HEADER_SIZE, 0);
            bytes.extend(17_u16.to_ne_bytes());
            bytes.extend(0x0800_u16.to_be_bytes());
            bytes.extend(3_u32.to_ne_bytes());
            bytes.extend(772_u16.to_ne_bytes());
            bytes.extend([4, 6, 1, 2, 3, 4, 5, 6, 0, 0]);
            bytes.extend(*content);
            bytes.resize(whole, 0);
            block.extend(bytes);
        }
        block
    }

    #[test]
    fn each_frame_matches_the_kernels_layout() {
        let tagged = libc::TP_STATUS_VLAN_VALID;
        let whole = tagged | libc::TP_STATUS_VLAN_TPID_VALID;
        let block = block(&[(b"one", 1, [5, 6]), (b"", tagged, [5, 6]), (b"33", whole, [5, 6])]);
        let found: Vec<Frame> = frames(&block).collect();
        let first = Frame {
            at: Time::from_nanos(7_000_000_009),
            bytes: b"one",
            length: 99,
            vlan: None,
            protocol: 0x0800,
            interface: 3,
            hardware: 772,
            kind: 4,
            address: ([1, 2, 3, 4, 5, 6, 0, 0], 6),
        };
        let second = Frame { bytes: b"", vlan: Some((0x8100, 5)), ..first };
        assert_eq!(found, [first, second, Frame { bytes: b"33", vlan: Some((6, 5)), ..first }]);
    }

    proptest! {
        #[test]
        fn no_number_leads_out_of_the_block(
            at in 0_usize..200,
            number in any::<u32>(),
            length in 0_usize..240,
        ) {
            let mut block = block(&[(b"one", 1, [0; 2]), (b"second", 1, [0; 2])]);
            if let Some(place) = block.get_mut(at..at + 4) {
                place.copy_from_slice(&number.to_ne_bytes());
            }
            block.truncate(length);
            prop_assert!(frames(&block).count() <= 1 << 8);
        }
    }
}
