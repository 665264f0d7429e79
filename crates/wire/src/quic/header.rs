//! Headers of all packets in a datagram (RFC 8999; RFC 9000, 12.2 and 17; RFC 9369, 3.2).

use super::frame::Fields;

/// The versions whose headers are known.
pub const ONE: u32 = 1;
pub const TWO: u32 = 0x6b33_43cf;
/// The last drafts of version 1, with the same headers.
pub const DRAFTS: std::ops::RangeInclusive<u32> = 0xff00_001b..=0xff00_0022;
/// Maximum length of a connection ID in these versions.
const ID_LIMIT: usize = 20;
/// Maximum number of packets read from a datagram. There are four sets of keys, with one packet
/// each.
const PACKET_LIMIT: usize = 6;

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    Long(Long<'a>),
    Short(Short),
}

/// A packet with a long header, as used during connection establishment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Long<'a> {
    pub version: u32,
    pub kind: Kind,
    /// The fixed bit, which is set unless the peer allows other values (RFC 9287).
    pub is_fixed: bool,
    pub destination: &'a [u8],
    pub source: &'a [u8],
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
    Negotiation,
    /// A packet of an unknown version.
    Unknown,
}

/// A packet with a short header, as used after connection establishment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    pub is_fixed: bool,
    pub spin: bool,
    /// Length in bytes: the rest of the datagram.
    pub length: usize,
}

/// Iterator over the packets of a datagram.
pub struct Packets<'a> {
    rest: &'a [u8],
    /// Length of the rest, captured or not.
    length: usize,
    /// All packets of a datagram have the same destination connection ID.
    destination: Option<&'a [u8]>,
    left: usize,
}

impl Long<'_> {
    /// Whether the version is known and defines the type of the packet.
    pub fn is_known(&self) -> bool {
        !matches!(self.kind, Kind::Unknown | Kind::Negotiation)
    }
}

impl<'a> Packets<'a> {
    /// The packets of a datagram of `length` bytes, of which `captured` was captured.
    pub fn of(captured: &'a [u8], length: usize) -> Self {
        let length = length.max(captured.len());
        Self { rest: captured, length, destination: None, left: PACKET_LIMIT }
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    fn next(&mut self) -> Option<Packet<'a>> {
        self.left = self.left.checked_sub(1)?;
        let first = *self.rest.first()?;
        let is_fixed = first & 0x40 != 0;
        if first & 0x80 == 0 {
            // After other packets, bytes with another connection ID are padding.
            let is_packet = self
                .destination
                .is_none_or(|id| is_fixed && self.rest.get(1..1 + id.len()) == Some(id));
            let length = self.length;
            self.left = 0;
            let short = Short { is_fixed, spin: first & 0x20 != 0, length };
            return is_packet.then_some(Packet::Short(short));
        }
        let long = Long::parse(self.rest, self.length)?;
        if self.destination.is_some_and(|id| id != long.destination) {
            return None;
        }
        self.destination = Some(long.destination);
        let length = long.length.unwrap_or(self.length);
        self.rest = self.rest.get(length..).unwrap_or_default();
        self.length -= length;
        Some(Packet::Long(long))
    }
}

impl<'a> Long<'a> {
    /// Reads a long header. `None` if the header is truncated within its connection IDs, or is
    /// invalid in its version.
    fn parse(captured: &'a [u8], whole: usize) -> Option<Self> {
        let mut fields = Fields(captured);
        let first = fields.byte()?;
        let version = u32::from_be_bytes(*fields.bytes(4)?.first_chunk()?);
        let kind = Kind::of(version, first >> 4 & 3);
        let limit = match kind {
            Kind::Negotiation | Kind::Unknown => usize::from(u8::MAX),
            _ => ID_LIMIT,
        };
        let destination = fields.short_bytes(limit)?;
        let source = fields.short_bytes(limit)?;
        let mut length = None;
        if matches!(kind, Kind::Initial | Kind::ZeroRtt | Kind::Handshake) {
            let token = if kind == Kind::Initial { fields.number() } else { Some(0) };
            if token.is_some_and(|token| token > whole) {
                return None;
            }
            let rest = token.and_then(|token| fields.bytes(token)).and_then(|_| fields.number());
            length = rest.map(|rest| rest.saturating_add(captured.len() - fields.0.len()));
            if length.is_some_and(|length| length > whole) {
                return None;
            }
        }
        Some(Self { version, kind, is_fixed: first & 0x40 != 0, destination, source, length })
    }
}

impl Kind {
    fn of(version: u32, kind: u8) -> Self {
        let kinds = [Self::Initial, Self::ZeroRtt, Self::Handshake, Self::Retry];
        let at = match version {
            0 => return Self::Negotiation,
            TWO => kind.wrapping_sub(1) & 3,
            ONE => kind,
            _ if DRAFTS.contains(&version) => kind,
            _ => return Self::Unknown,
        };
        kinds[usize::from(at)]
    }
}
