//! btsnoop, the format of Android and Linux for Bluetooth HCI. All numbers are big-endian.

use std::collections::HashMap;

use manyways_unit::Time;

use super::number::{Order, Tick};
use super::{FormatError, Interface, LinkType, MAX_BLOCK_LENGTH, MAX_INTERFACES, Packet, Step};

pub(super) const MAGIC: &[u8] = b"btsnoop\0";
pub(super) const HEADER: usize = 16;
/// Length of a record header.
const RECORD_HEADER: usize = 24;
/// The Unix epoch in microseconds since the year 0.
const EPOCH: i64 = 0x00dc_ddb3_0f2f_8000;

#[derive(Clone, Debug)]
pub(super) struct Btsnoop {
    framing: Framing,
    /// Cumulative number of drops in the last record.
    dropped: u32,
    /// Index of the interface for each adapter and link type of the monitor.
    monitor_interfaces: HashMap<(u32, LinkType), usize>,
}

/// Where a record has its packet type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// In the flags of the record.
    Flags,
    /// In the first byte of the packet.
    H4,
    /// In the flags of the record, with the opcodes of the Linux monitor.
    Monitor,
    /// Not supported.
    Other,
}

impl Btsnoop {
    /// Reads the header of the file.
    pub(super) fn begin(header: &[u8; HEADER]) -> Result<(Self, Vec<Interface>), FormatError> {
        if !header.starts_with(MAGIC) {
            return Err(FormatError::Unknown);
        }
        let version = Order::Big.u32(header, 8);
        if version != 1 {
            return Err(FormatError::Version { format: "btsnoop", version });
        }
        let (framing, links) = match Order::Big.u32(header, 12) {
            1001 => (Framing::Flags, vec![LinkType::HCI_DATA, LinkType::HCI_CONTROL]),
            1002 => (Framing::H4, vec![LinkType::HCI_H4]),
            // One interface for each adapter and link type, added with the first packet.
            2001 => (Framing::Monitor, vec![]),
            // Packets of unknown types are returned, so that they are counted.
            other => (Framing::Other, vec![LinkType(u16::try_from(other).unwrap_or(u16::MAX))]),
        };
        let of = |link| new_interface(String::new(), link);
        Ok((
            Self { framing, dropped: 0, monitor_interfaces: HashMap::new() },
            links.into_iter().map(of).collect(),
        ))
    }

    pub(super) fn step<'a>(
        &mut self,
        bytes: &'a [u8],
        interfaces: &mut Vec<Interface>,
    ) -> Result<Step<'a>, FormatError> {
        if bytes.len() < RECORD_HEADER {
            return Ok(Step::More(RECORD_HEADER));
        }
        if bytes.starts_with(&[0; RECORD_HEADER]) {
            return Err(FormatError::Zeros);
        }
        let number = |at| Order::Big.u32(bytes, at);
        let captured = number(4) as usize;
        if captured > MAX_BLOCK_LENGTH {
            return Err(FormatError::Length { object: "a packet", length: captured as u64 });
        }
        let end = RECORD_HEADER + captured;
        let Some(there) = bytes.get(RECORD_HEADER..end) else { return Ok(Step::More(end)) };
        let flags = number(8);
        let (interface, is_sent) = match self.framing {
            Framing::Flags => ((flags >> 1 & 1) as usize, Some(flags & 1 == 0)),
            Framing::H4 | Framing::Other => (0, Some(flags & 1 == 0)),
            Framing::Monitor => match self.monitor_interface(flags, interfaces)? {
                Some(offset) => (offset, sent_by_opcode(flags as u16)),
                // The interface is described before the first packet that uses it.
                None => return Ok(Step::Other(0)),
            },
        };
        let packet = Packet {
            at: time(Order::Big.u64(bytes, 16)),
            interface,
            bytes: there,
            length: captured.max(number(0) as usize),
            is_sent,
            dropped_before: number(12).saturating_sub(self.dropped).into(),
            is_out_of_order: false,
        };
        self.dropped = number(12);
        Ok(Step::Packet(packet, end))
    }

    /// The interface of a monitor packet, named after its adapter as in Linux. `None` if it was
    /// added by this call.
    fn monitor_interface(
        &mut self,
        flags: u32,
        interfaces: &mut Vec<Interface>,
    ) -> Result<Option<usize>, FormatError> {
        let link = match flags as u16 {
            2 | 3 => LinkType::HCI_CONTROL,
            4 | 5 => LinkType::HCI_DATA,
            6 | 7 | 18 | 19 => LinkType::HCI_SYNCHRONOUS,
            _ => LinkType::HCI_MONITOR_OTHER,
        };
        let key = (flags >> 16, link);
        if let Some(offset) = self.monitor_interfaces.get(&key) {
            return Ok(Some(*offset));
        }
        if interfaces.len() == MAX_INTERFACES {
            return Err(FormatError::TooManyInterfaces);
        }
        self.monitor_interfaces.insert(key, interfaces.len());
        interfaces.push(new_interface(format!("hci{}", key.0), link));
        Ok(None)
    }
}

fn new_interface(name: String, link: LinkType) -> Interface {
    Interface { link, snap_length: 0, name, dropped: 0 }
}

/// Direction by opcode of the monitor; `None` for records that are not packets.
fn sent_by_opcode(opcode: u16) -> Option<bool> {
    match opcode {
        2 | 4 | 6 | 18 => Some(true),
        3 | 5 | 7 | 19 => Some(false),
        _ => None,
    }
}

fn time(micros: u64) -> Time {
    let since = (micros as i64).saturating_sub(EPOCH);
    Tick::Nanos(1_000).time(u64::try_from(since).unwrap_or(0), 0)
}
