//! One TCP segment: what its header says, and how much it carries.

mod options;
mod seq;
#[cfg(test)]
mod tests;

pub use self::options::{Options, SackBlocks, Stamps};
pub use self::seq::Seq;

/// A header without options.
const HEADER: usize = 20;

/// A segment, whose payload may have been cut by the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The port that it is from.
    pub from: u16,
    /// The port that it is for.
    pub to: u16,
    /// The number of its first byte, or of its SYN.
    pub seq: Seq,
    /// What its sender expects next; without [`Flags::ACK`] it means nothing.
    pub ack: Seq,
    /// What it is.
    pub flags: Flags,
    /// The window as it stands in the header, without the scale that SYNs agreed on.
    pub window: u16,
    /// What its options say.
    pub options: Options<'a>,
    /// What it carries, as much of it as was captured.
    pub payload: &'a [u8],
    /// How many bytes it carries, captured or not.
    pub length: u32,
    /// The number of the packet that it came in; zero where that says nothing.
    pub packet: u16,
}

/// What a segment is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The last of its sender's bytes were sent.
    pub const FIN: Self = Self(0x01);
    /// The first of its sender's segments.
    pub const SYN: Self = Self(0x02);
    /// The connection is over.
    pub const RST: Self = Self(0x04);
    /// Its payload is to be handed on at once.
    pub const PSH: Self = Self(0x08);
    /// [`Segment::ack`] counts.
    pub const ACK: Self = Self(0x10);
    /// There is urgent data.
    pub const URG: Self = Self(0x20);
    /// A congestion mark came in (in a SYN: the sender can tell of them).
    pub const ECE: Self = Self(0x40);
    /// The sender has slowed down for one (in a SYN: as before).
    pub const CWR: Self = Self(0x80);

    /// Whether it is one of these.
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }
}

impl<'a> Segment<'a> {
    /// Reads the segment that an IP packet carries: `bytes` of it were captured, of `length`. None
    /// where the fixed header is not there, or says of itself that it is too short.
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
            from: short(0),
            to: short(2),
            seq: Seq(long(4)),
            ack: Seq(long(8)),
            flags: Flags(fixed[13]),
            window: short(14),
            options: Options::new(options, bytes.len() < header),
            payload: bytes.get(header..bytes.len().min(length)).unwrap_or_default(),
            length: u32::try_from(length - header).ok()?,
            packet: 0,
        })
    }

    /// The number after its last byte; SYN and FIN count as one each.
    pub fn end(&self) -> Seq {
        let flags = u32::from(self.flags.has(Flags::SYN)) + u32::from(self.flags.has(Flags::FIN));
        self.seq + self.length.wrapping_add(flags)
    }
}
