//! Headers of all packets in a datagram (RFC 8999; RFC 9000, 12.2 and 17; RFC 9369, 3.2).

use super::{frame::Cursor, version};

/// The versions whose headers are known.
pub const VERSION_1: u32 = 1;
pub const VERSION_2: u32 = 0x6b33_43cf;
/// The last drafts of version 1, with the same headers.
pub const DRAFT_VERSIONS: std::ops::RangeInclusive<u32> = 0xff00_001b..=0xff00_0022;
/// Maximum length of a connection ID in these versions.
const MAX_CID_LENGTH: usize = 20;
/// Maximum number of packets read from a datagram. There are four sets of keys, with one packet
/// each.
const MAX_PACKETS: usize = 6;

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    Long(LongHeader<'a>),
    Short(ShortHeader),
}

/// A packet with a long header, as used during connection establishment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongHeader<'a> {
    pub version: u32,
    pub kind: Kind,
    /// The fixed bit, which is set unless the peer allows other values (RFC 9287).
    pub fixed_bit: bool,
    pub destination_cid: &'a [u8],
    pub source_cid: &'a [u8],
    /// Length of the packet in bytes; `None` without a length field, or if the field was truncated.
    pub length: Option<usize>,
}

/// Packet type of a long header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Initial,
    ZeroRtt,
    Handshake,
    Retry,
    /// Version Negotiation (RFC 8999, 6).
    VersionNegotiation,
    /// A packet of an unknown version.
    Unknown,
}

/// A packet with a short header, as used after connection establishment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortHeader {
    pub fixed_bit: bool,
    pub spin_bit: bool,
    /// Length in bytes: the rest of the datagram.
    pub length: usize,
}

/// Iterator over the packets of a datagram.
pub struct Packets<'a> {
    rest: &'a [u8],
    /// Length of the rest, captured or not.
    length: usize,
    /// All packets of a datagram have the same destination connection ID.
    destination_cid: Option<&'a [u8]>,
    remaining_packets: usize,
}

impl LongHeader<'_> {
    /// Whether the version is known and defines the type of the packet.
    pub fn is_known(&self) -> bool {
        !matches!(self.kind, Kind::Unknown | Kind::VersionNegotiation)
    }
}

impl<'a> Packets<'a> {
    /// The packets of a datagram of `length` bytes, of which `captured` was captured.
    pub fn new(captured: &'a [u8], length: usize) -> Self {
        let length = length.max(captured.len());
        Self { rest: captured, length, destination_cid: None, remaining_packets: MAX_PACKETS }
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    fn next(&mut self) -> Option<Packet<'a>> {
        self.remaining_packets = self.remaining_packets.checked_sub(1)?;
        let first = *self.rest.first()?;
        let is_fixed = first & 0x40 != 0;
        if first & 0x80 == 0 {
            // After other packets, bytes with another connection ID are padding.
            let is_packet = self
                .destination_cid
                .is_none_or(|id| is_fixed && self.rest.get(1..1 + id.len()) == Some(id));
            let length = self.length;
            self.remaining_packets = 0;
            let short = ShortHeader { fixed_bit: is_fixed, spin_bit: first & 0x20 != 0, length };
            return is_packet.then_some(Packet::Short(short));
        }
        let long = LongHeader::parse(self.rest, self.length)?;
        if self.destination_cid.is_some_and(|id| id != long.destination_cid) {
            return None;
        }
        self.destination_cid = Some(long.destination_cid);
        let length = long.length.unwrap_or(self.length);
        self.rest = self.rest.get(length..).unwrap_or_default();
        self.length -= length;
        Some(Packet::Long(long))
    }
}

impl<'a> LongHeader<'a> {
    /// Reads a long header. `None` if the header is truncated within its connection IDs, or is
    /// invalid in its version.
    fn parse(captured: &'a [u8], whole: usize) -> Option<Self> {
        let mut fields = Cursor(captured);
        let first = fields.byte()?;
        let version = u32::from_be_bytes(*fields.bytes(4)?.first_chunk()?);
        let kind = Kind::of(version, first >> 4 & 3);
        let limit = match kind {
            Kind::VersionNegotiation | Kind::Unknown => usize::from(u8::MAX),
            _ => MAX_CID_LENGTH,
        };
        let [destination, source] = match version::shares_lengths(version) {
            true => fields.shared_lengths()?,
            false => [fields.prefixed_bytes(limit)?, fields.prefixed_bytes(limit)?],
        };
        let mut length = None;
        if matches!(kind, Kind::Initial | Kind::ZeroRtt | Kind::Handshake) {
            let token = if kind == Kind::Initial { fields.varint() } else { Some(0) };
            if token.is_some_and(|token| token > whole) {
                return None;
            }
            let rest = token.and_then(|token| fields.bytes(token)).and_then(|_| fields.varint());
            length = rest.map(|rest| rest.saturating_add(captured.len() - fields.0.len()));
            if length.is_some_and(|length| length > whole) {
                return None;
            }
        }
        Some(Self {
            version,
            kind,
            fixed_bit: first & 0x40 != 0,
            destination_cid: destination,
            source_cid: source,
            length,
        })
    }
}

impl Kind {
    fn of(version: u32, kind: u8) -> Self {
        let kinds = [Self::Initial, Self::ZeroRtt, Self::Handshake, Self::Retry];
        let at = match version {
            0 => return Self::VersionNegotiation,
            VERSION_2 => kind.wrapping_sub(1) & 3,
            VERSION_1 => kind,
            _ if DRAFT_VERSIONS.contains(&version) => kind,
            _ => return Self::Unknown,
        };
        kinds[usize::from(at)]
    }
}
