//! pcapng: sections of blocks with options.

use manyways_unit::Time;

use super::number::{Order, Tick};
use super::{FormatError, Interface, LinkType, MAX_BLOCK_LENGTH, MAX_INTERFACES, Packet, Step};

/// Type of the section header block, a palindrome in both byte orders.
pub(super) const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// Block type and length; the length is repeated at the end of the block.
const BLOCK_OVERHEAD: usize = 12;
/// Type, length, byte order and version of a section header block.
const SECTION_HEADER: usize = 16;
/// Offset of the packet bytes in the content of a packet block.
const PACKET_OFFSET: usize = 20;

#[derive(Clone, Debug)]
pub(super) struct Pcapng {
    order: Order,
    clocks: Vec<Clock>,
    /// Number of `clocks` of earlier sections; each section numbers its interfaces from 0.
    section_base: usize,
}

#[derive(Clone, Copy, Debug)]
struct Clock {
    tick: Tick,
    /// Offset of the clock, in seconds since the Unix epoch.
    offset: i64,
}

impl Default for Pcapng {
    fn default() -> Self {
        Self { order: Order::Little, clocks: Vec::new(), section_base: 0 }
    }
}

impl Pcapng {
    pub(super) fn step<'a>(
        &mut self,
        bytes: &'a [u8],
        interfaces: &mut Vec<Interface>,
        last: &mut Time,
    ) -> Result<Step<'a>, FormatError> {
        let is_section = bytes.starts_with(&SECTION);
        let head = if is_section { SECTION_HEADER } else { BLOCK_OVERHEAD };
        if bytes.len() < head {
            return Ok(Step::More(head));
        }
        if is_section {
            self.begin_section(bytes)?;
        }
        let length = self.order.u32(bytes, 4);
        let whole = length as usize;
        if !(BLOCK_OVERHEAD..=MAX_BLOCK_LENGTH).contains(&whole) || !whole.is_multiple_of(4) {
            return Err(match bytes.starts_with(&[0; 8]) {
                true => FormatError::Zeros,
                false => FormatError::Length { object: "a block", length: length.into() },
            });
        }
        let Some(block) = bytes.get(..whole) else { return Ok(Step::More(whole)) };
        let end = self.order.u32(block, whole - 4);
        if end != length {
            return Err(FormatError::LengthMismatch { first: length, last: end });
        }
        let content = &block[8..whole - 4];
        match self.order.u32(block, 0) {
            kind @ (PACKET | OLD_PACKET) => self.packet(content, kind == OLD_PACKET, last, whole),
            SIMPLE_PACKET => self.simple_packet(content, interfaces, *last, whole),
            kind => {
                match kind {
                    INTERFACE => self.read_interface(content, interfaces)?,
                    STATISTICS => self.read_statistics(content, interfaces),
                    _ if is_section => self.section_base = self.clocks.len(),
                    _ => {}
                }
                Ok(Step::Other(whole))
            }
        }
    }

    /// Reads the byte order of a section, whose interfaces are numbered from 0 again.
    fn begin_section(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        const MAGIC: u32 = 0x1a2b_3c4d;
        let mut orders = [Order::Little, Order::Big].into_iter();
        let order = orders.find(|order| order.u32(bytes, 8) == MAGIC);
        self.order = order.ok_or(FormatError::Unknown)?;
        match self.order.u16(bytes, 12) {
            1 => Ok(()),
            version => Err(FormatError::Version { format: "pcapng", version: version.into() }),
        }
    }

    fn read_interface(
        &mut self,
        content: &[u8],
        interfaces: &mut Vec<Interface>,
    ) -> Result<(), FormatError> {
        if content.len() < 8 {
            let length = (content.len() + BLOCK_OVERHEAD) as u64;
            return Err(FormatError::Length { object: "the description of an interface", length });
        }
        if interfaces.len() >= MAX_INTERFACES {
            return Err(FormatError::TooManyInterfaces);
        }
        let mut clock = Clock { tick: Tick::Nanos(1_000), offset: 0 };
        let mut name = String::new();
        for (kind, value) in self.options(&content[8..]) {
            match (kind, value) {
                (2, text) => name = String::from_utf8_lossy(text).into_owned(),
                (9, [byte]) => clock.tick = Tick::from_option(*byte),
                (14, [_, _, _, _, _, _, _, _]) => clock.offset = self.order.u64(value, 0) as i64,
                _ => {}
            }
        }
        let link = LinkType(self.order.u16(content, 0)).normalized();
        let snap = self.order.u32(content, 4);
        interfaces.push(Interface { link, snap_length: snap, name, dropped: 0 });
        self.clocks.push(clock);
        Ok(())
    }

    /// Reads interface statistics; the last block for an interface has the final counts.
    fn read_statistics(&self, content: &[u8], interfaces: &mut [Interface]) {
        let interface = self.order.u32(content, 0);
        let Some(index) = self.index(interface) else { return };
        let mut lost = 0_u64;
        for (kind, value) in self.options(content.get(12..).unwrap_or_default()) {
            // Packets dropped by the interface (`isb_ifdrop`) and by the system (`isb_osdrop`).
            if matches!(kind, 5 | 7) && value.len() == 8 {
                lost = lost.saturating_add(self.order.u64(value, 0));
            }
        }
        interfaces[index].dropped = lost;
    }

    fn index(&self, interface: u32) -> Option<usize> {
        let index = self.section_base.checked_add(interface as usize)?;
        (index < self.clocks.len()).then_some(index)
    }

    /// Reads a packet block; the obsolete type differs only in its first four bytes.
    fn packet<'a>(
        &self,
        content: &'a [u8],
        is_old: bool,
        last: &mut Time,
        whole: usize,
    ) -> Result<Step<'a>, FormatError> {
        let (interface, lost_before) = match (is_old, self.order.u16(content, 2)) {
            (false, _) => (self.order.u32(content, 0), 0),
            // 0xffff means unknown.
            (true, u16::MAX) => (self.order.u16(content, 0).into(), 0),
            (true, lost) => (self.order.u16(content, 0).into(), lost.into()),
        };
        let index = self.index(interface).ok_or(FormatError::Interface(interface))?;
        let captured = self.order.u32(content, 12);
        let too_long = FormatError::Length { object: "a packet", length: captured.into() };
        // `get` rejects a length beyond the end of the block.
        let ends = PACKET_OFFSET.saturating_add(captured as usize);
        let there = content.get(PACKET_OFFSET..ends).ok_or(too_long)?;
        let clock = self.clocks[index];
        let mut packet = Packet {
            at: clock.tick.time(self.ticks(content, 4), clock.offset),
            interface: index,
            bytes: there,
            length: captured.max(self.order.u32(content, 16)) as usize,
            is_sent: None,
            dropped_before: lost_before,
            is_out_of_order: false,
        };
        for (kind, value) in
            self.options(content.get(ends.next_multiple_of(4)..).unwrap_or_default())
        {
            match (kind, value.len()) {
                (2, 4) => {
                    packet.is_sent = match self.order.u32(value, 0) & 3 {
                        1 => Some(false),
                        2 => Some(true),
                        _ => None,
                    }
                }
                (4, 8) => packet.dropped_before = self.order.u64(value, 0),
                _ => {}
            }
        }
        *last = packet.at;
        Ok(Step::Packet(packet, whole))
    }

    /// Reads a packet of interface 0 without a timestamp.
    fn simple_packet<'a>(
        &self,
        content: &'a [u8],
        interfaces: &[Interface],
        last: Time,
        whole: usize,
    ) -> Result<Step<'a>, FormatError> {
        let index = self.index(0).ok_or(FormatError::Interface(0))?;
        let length = self.order.u32(content, 0) as usize;
        let there = content.get(4..).unwrap_or_default();
        let snap = match interfaces[index].snap_length as usize {
            0 => usize::MAX,
            snap => snap,
        };
        let captured = length.min(snap).min(there.len());
        let packet = Packet {
            at: last,
            interface: index,
            bytes: &there[..captured],
            length,
            is_sent: None,
            dropped_before: 0,
            is_out_of_order: false,
        };
        Ok(Step::Packet(packet, whole))
    }

    /// A timestamp: two 32-bit numbers, the upper one first in both byte orders.
    fn ticks(&self, content: &[u8], at: usize) -> u64 {
        u64::from(self.order.u32(content, at)) << 32 | u64::from(self.order.u32(content, at + 4))
    }

    /// Codes and values of the options, until the end of the list or the first invalid option.
    fn options<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = (u16, &'a [u8])> {
        let (order, mut rest) = (self.order, bytes);
        std::iter::from_fn(move || {
            let (kind, length) = (order.u16(rest, 0), usize::from(order.u16(rest, 2)));
            let value = rest.get(4..4 + length)?;
            rest = rest.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
            (kind != 0).then_some((kind, value))
        })
    }
}
