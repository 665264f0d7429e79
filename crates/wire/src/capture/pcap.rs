//! pcap: a file header, then packets of one interface.

use super::number::{Order, Tick};
use super::{FormatError, Interface, LinkType, MAX_BLOCK_LENGTH, Packet, Step};

pub(super) const HEADER: usize = 24;

/// Microseconds, nanoseconds, and microseconds with a longer packet header (Kuznetsov).
const MICROS: u32 = 0xa1b2_c3d4;
const NANOS: u32 = 0xa1b2_3c4d;
const KUZNETSOV: u32 = 0xa1b2_cd34;

#[derive(Clone, Debug)]
pub(super) struct Pcap {
    order: Order,
    tick: Tick,
    /// Length of a packet header.
    packet_header: usize,
}

pub(super) fn is_magic(bytes: [u8; 4]) -> bool {
    order(bytes).is_some()
}

fn order(bytes: [u8; 4]) -> Option<(Order, u32)> {
    let is_magic = |magic| [MICROS, NANOS, KUZNETSOV].contains(&magic);
    let both =
        [(Order::Little, u32::from_le_bytes(bytes)), (Order::Big, u32::from_be_bytes(bytes))];
    both.into_iter().find(|(_, magic)| is_magic(*magic))
}

impl Pcap {
    /// Reads the header of the file.
    pub(super) fn begin(header: &[u8; HEADER]) -> Result<(Self, Interface), FormatError> {
        let magic = *header.first_chunk().unwrap_or(&[0; 4]);
        let (order, magic) = order(magic).ok_or(FormatError::Unknown)?;
        let version = order.u16(header, 4);
        if version != 2 {
            return Err(FormatError::Version { format: "pcap", version: version.into() });
        }
        let tick = Tick::Nanos(if magic == NANOS { 1 } else { 1_000 });
        let before = if magic == KUZNETSOV { 24 } else { 16 };
        // The upper half is the length of the frame check sequence, which is not used.
        let link = LinkType(order.u32(header, 20) as u16);
        let snap = order.u32(header, 16);
        let interface = Interface {
            link: link.normalized(),
            snap_length: snap,
            name: String::new(),
            dropped: 0,
        };
        Ok((Self { order, tick, packet_header: before }, interface))
    }

    #[inline]
    pub(super) fn step<'a>(&self, bytes: &'a [u8]) -> Result<Step<'a>, FormatError> {
        let Some(header) = bytes.first_chunk::<16>().filter(|_| bytes.len() >= self.packet_header)
        else {
            return Ok(Step::More(self.packet_header));
        };
        let [seconds, part, captured, length] = self.order.four_u32(header);
        let captured = captured as usize;
        if captured == 0 && [seconds, part, length] == [0; 3] {
            return Err(FormatError::Zeros);
        }
        if captured > MAX_BLOCK_LENGTH {
            return Err(FormatError::Length { object: "a packet", length: captured as u64 });
        }
        let end = self.packet_header + captured;
        let Some(there) = bytes.get(self.packet_header..end) else { return Ok(Step::More(end)) };
        let packet = Packet {
            at: self.tick.time(part.into(), seconds.into()),
            interface: 0,
            bytes: there,
            length: captured.max(length as usize),
            is_sent: None,
            dropped_before: 0,
            is_out_of_order: false,
        };
        Ok(Step::Packet(packet, end))
    }
}
