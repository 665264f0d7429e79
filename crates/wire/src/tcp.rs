//! One TCP segment (RFC 9293): header, options and payload length.

mod options;
mod seq;
#[cfg(test)]
mod tests;

pub use self::options::{Options, SackBlocks, Timestamps};
pub use self::seq::Seq;

/// Length of a header without options.
const HEADER: usize = 20;

/// A segment, whose payload may be truncated by the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number of the first byte, or of the SYN.
    pub seq: Seq,
    /// Next sequence number that the sender expects; undefined without [`Flags::ACK`].
    pub ack: Seq,
    pub flags: Flags,
    /// Receive window as in the header, without the window scale of the SYNs.
    pub window: u16,
    pub options: Options<'a>,
    /// The captured bytes of the payload.
    pub payload: &'a [u8],
    /// Number of payload bytes, captured or not.
    pub length: u32,
    /// Identification field of the IPv4 packet (RFC 791); 0 if unknown.
    pub ip_id: u16,
}

/// The control bits of a segment (RFC 9293, 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender has no more data.
    pub const FIN: Self = Self(0x01);
    /// Synchronizes sequence numbers: the first segment of each direction.
    pub const SYN: Self = Self(0x02);
    /// Resets the connection.
    pub const RST: Self = Self(0x04);
    /// The receiver should pass the payload to the application at once.
    pub const PSH: Self = Self(0x08);
    /// [`Segment::ack`] is valid.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is valid.
    pub const URG: Self = Self(0x20);
    /// A congestion mark was received; in a SYN: the sender supports ECN (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// The sender has reduced its congestion window after a mark; in a SYN: as for [`Flags::ECE`].
    pub const CWR: Self = Self(0x80);

    /// Whether at least one bit of `flags` is set.
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }
}

impl<'a> Segment<'a> {
    /// Reads the segment in an IP packet whose payload has `length` bytes, of which `bytes` were
    /// captured. `None` if the fixed header is incomplete, or if its data offset is invalid.
    #[inline(always)]
    pub fn read(bytes: &'a [u8], length: usize) -> Option<Self> {
        let fixed: &[u8; HEADER] = bytes.first_chunk()?;
        let short = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let long = |at: usize| {
            u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        let header = usize::from(fixed[12] >> 4) * 4;
        if header < HEADER || header > length {
            return None;
        }
        let options = bytes.get(HEADER..header.min(bytes.len())).unwrap_or_default();
        Some(Self {
            source_port: short(0),
            destination_port: short(2),
            seq: Seq(long(4)),
            ack: Seq(long(8)),
            flags: Flags(fixed[13]),
            window: short(14),
            options: Options::new(options, bytes.len() < header),
            payload: bytes.get(header..bytes.len().min(length)).unwrap_or_default(),
            length: u32::try_from(length - header).ok()?,
            ip_id: 0,
        })
    }

    /// Sequence number after the last byte; SYN and FIN count as one each.
    pub fn end(&self) -> Seq {
        let flags = u32::from(self.flags.has(Flags::SYN)) + u32::from(self.flags.has(Flags::FIN));
        self.seq + self.length.wrapping_add(flags)
    }
}
