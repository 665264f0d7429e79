//! Segmentation of super-packets from a TUN device with `IFF_VNET_HDR`.
//!
//! The kernel leaves segmentation (TSO, USO) and checksums to a device that supports them. Up to 64
//! KiB then arrive as one packet with an [`Offload`] in front. [`plan`] computes its wire packets,
//! [`slice()`] returns a run of them as a smaller super-packet, and [`wire`] returns one of them
//! complete, as on a cable. [`plan`] and [`slice()`] copy only headers and do not allocate.
//!
//! The headers of a segment are derived as in Linux (`tcp_gso_segment`, `__udp_gso_segment`,
//! `inet_gso_segment`): lengths, IPv4 identification (incremented for each), TCP sequence number,
//! PSH and FIN only on the last, CWR only on the first.

pub(crate) mod checksum;
pub(crate) mod header;

#[cfg(test)]
pub(crate) mod test_packets;
#[cfg(test)]
mod tests;

use std::ops::Range;

use self::checksum::{Delta, put_word, word};
use self::header::{Fragment, Ip, TCP, UDP};

/// Maximum size of the IP and transport headers of a super-packet.
///
/// IPv4 needs at most 120; IPv6 has no limit, but Linux stays far below this value.
pub const MAX_HEADER: usize = 256;

/// Buffer for the headers of one slice.
pub type HeaderBuffer = [u8; MAX_HEADER];

const NEEDS_CSUM: u8 = 1;
const GSO_ECN: u8 = 0x80;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Work that the kernel leaves to the device: a `virtio_net_hdr` (Virtio 1.2, section 5.1.6).
///
/// The flag of a verified checksum is not stored: it would only save work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Whether to compute the checksum from `csum_start` to the end of each segment; its field
    /// contains the sum of the pseudo-header.
    pub needs_csum: bool,
    /// Start of the checksummed bytes, from the start of the IP header.
    pub csum_start: u16,
    /// Offset of the checksum field from `csum_start`.
    pub csum_offset: u16,
    pub gso: Gso,
    /// Payload bytes of each segment except the last.
    pub gso_size: u16,
    /// Length of all headers; a hint that may be wrong and is not used here.
    pub hdr_len: u16,
    /// Whether CWR may be set on the first segment.
    pub ecn: bool,
}

/// Kind of segmentation of a super-packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gso {
    /// An ordinary packet, not segmented.
    #[default]
    None,
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP; each segment is a separate datagram.
    UdpL4,
    /// A kind that was not negotiated; [`plan`] rejects it.
    Other(u8),
}

impl Offload {
    /// Reads the header in native byte order, as TUN devices write it.
    pub fn from_bytes(bytes: &[u8; 10]) -> Self {
        let field = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            needs_csum: bytes[0] & NEEDS_CSUM != 0,
            gso: match bytes[1] & !GSO_ECN {
                0 => Gso::None,
                1 => Gso::TcpV4,
                4 => Gso::TcpV6,
                5 => Gso::UdpL4,
                other => Gso::Other(other),
            },
            ecn: bytes[1] & GSO_ECN != 0,
            hdr_len: field(2),
            gso_size: field(4),
            csum_start: field(6),
            csum_offset: field(8),
        }
    }

    /// Writes the header in native byte order.
    pub fn to_bytes(&self) -> [u8; 10] {
        let mut bytes = [0; 10];
        bytes[0] = if self.needs_csum { NEEDS_CSUM } else { 0 };
        bytes[1] = match self.gso {
            Gso::None => 0,
            Gso::TcpV4 => 1,
            Gso::TcpV6 => 4,
            Gso::UdpL4 => 5,
            Gso::Other(other) => other,
        };
        if self.ecn {
            bytes[1] |= GSO_ECN;
        }
        for (at, field) in
            [(2, self.hdr_len), (4, self.gso_size), (6, self.csum_start), (8, self.csum_offset)]
        {
            bytes[at..at + 2].copy_from_slice(&field.to_ne_bytes());
        }
        bytes
    }

    /// Returns the offset of the checksum field; `None` if there is no checksum to compute, or the
    /// field is not within `length` bytes.
    fn checksum_field(&self, length: usize) -> Option<usize> {
        let at = usize::from(self.csum_start) + usize::from(self.csum_offset);
        (self.needs_csum && at + 2 <= length).then_some(at)
    }
}

/// The wire packets ("segments") of one packet. Sizes are bytes from the IP header on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// At least one.
    pub segments: u32,
    /// Size of each segment except the last.
    pub segment: u32,
    /// Size of the last segment, which is the only one of an ordinary packet.
    pub last: u32,
    /// Layout of the packet, for cutting it.
    layout: Layout,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Layout {
    /// Length of the packet.
    length: u32,
    /// Payload bytes of each segment except the last.
    payload: u16,
    /// Length of all headers.
    header: u16,
    /// Offset of the transport header.
    transport: u16,
    v6: bool,
    udp: bool,
}

/// Contradictions between a packet and its offload header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedPacket {
    /// The packet is empty or longer than any IP packet.
    #[error("invalid packet length: {0} bytes")]
    Length(usize),
    /// The checksum field is outside the packet or does not belong to the transport header.
    #[error("the checksum field is outside the packet or does not belong to the transport header")]
    Checksum,
    /// Unknown kind of segmentation.
    #[error("segmentation kind {0} is not known")]
    Kind(u8),
    /// Segments without payload.
    #[error("segments without payload")]
    SegmentSize,
    /// The headers do not match the kind of segmentation.
    #[error("the headers do not match the kind of segmentation")]
    Headers,
}

/// Computes the wire packets of a packet.
///
/// A packet without segmentation is one segment, whatever its bytes are. A packet with segmentation
/// must have the headers of its kind, and their length must match the packet.
///
/// # Errors
/// [`MalformedPacket`] if the offload header does not match the bytes; the kernel would also reject
/// the packet.
pub fn plan(packet: &[u8], offload: &Offload) -> Result<Plan, MalformedPacket> {
    let length = u32::try_from(packet.len()).map_err(|_| MalformedPacket::Length(packet.len()))?;
    if length == 0 {
        return Err(MalformedPacket::Length(0));
    }
    if offload.needs_csum && offload.checksum_field(packet.len()).is_none() {
        return Err(MalformedPacket::Checksum);
    }
    let (v6, protocol) = match offload.gso {
        Gso::None => {
            let layout = Layout { length, ..Layout::default() };
            return Ok(Plan { segments: 1, segment: length, last: length, layout });
        }
        Gso::TcpV4 => (Some(false), TCP),
        Gso::TcpV6 => (Some(true), TCP),
        Gso::UdpL4 => (None, UDP),
        Gso::Other(kind) => return Err(MalformedPacket::Kind(kind)),
    };
    if offload.gso_size == 0 {
        return Err(MalformedPacket::SegmentSize);
    }
    let ip = Ip::parse(packet).ok_or(MalformedPacket::Headers)?;
    if v6.is_some_and(|v6| v6 != ip.v6)
        || ip.protocol != protocol
        || ip.fragment != Fragment::Unfragmented
        || ip.end != packet.len()
    {
        return Err(MalformedPacket::Headers);
    }
    let udp = protocol == UDP;
    let header = ip.transport + transport_header(&packet[ip.transport..], udp)?;
    if header > MAX_HEADER {
        return Err(MalformedPacket::Headers);
    }
    let place = (usize::from(offload.csum_start), usize::from(offload.csum_offset));
    if offload.needs_csum && place != (ip.transport, checksum_offset(udp)) {
        return Err(MalformedPacket::Checksum);
    }
    let payload = packet.len() - header;
    let size = usize::from(offload.gso_size);
    // Headers without payload are still one packet.
    let segments = payload.div_ceil(size).max(1);
    let last = (header + payload - (segments - 1) * size) as u32;
    Ok(Plan {
        segments: segments as u32,
        segment: if segments == 1 { last } else { (header + size) as u32 },
        last,
        layout: Layout {
            length,
            payload: offload.gso_size,
            header: header as u16,
            transport: ip.transport as u16,
            v6: ip.v6,
            udp,
        },
    })
}

/// Returns the length of the transport header at the start of `bytes`.
fn transport_header(bytes: &[u8], udp: bool) -> Result<usize, MalformedPacket> {
    let length =
        if udp { 8 } else { usize::from(bytes.get(12).ok_or(MalformedPacket::Headers)? >> 4) * 4 };
    if (!udp && length < 20) || length > bytes.len() {
        return Err(MalformedPacket::Headers);
    }
    Ok(length)
}

fn checksum_offset(udp: bool) -> usize {
    if udp { 6 } else { 16 }
}

/// A run of segments of a packet as a separate packet: headers, payload and offload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Part of the [`HeaderBuffer`] with the headers of the slice; empty if `payload` includes
    /// them.
    pub header: Range<usize>,
    /// Bytes of the original packet that follow.
    pub payload: Range<usize>,
    /// Work that is still left to the device.
    pub offload: Offload,
}

impl Slice {
    /// Creates a buffer to which [`slice()`] writes headers.
    pub fn header_buffer() -> HeaderBuffer {
        [0; MAX_HEADER]
    }

    /// Returns the headers of the slice; `buffer` must be the one that [`slice()`] wrote to.
    pub fn header<'a>(&self, buffer: &'a HeaderBuffer) -> &'a [u8] {
        &buffer[self.header.clone()]
    }

    /// Bytes of headers and payload.
    pub fn len(&self) -> usize {
        self.header.len() + self.payload.len()
    }

    /// Never true for a slice of a planned packet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Cuts `count` segments from `first` out of a packet: writes their headers to `header` and returns
/// the range of their payload, which is not copied.
///
/// `plan` must be the result of [`plan`] for these bytes. Segments after the last are omitted, but
/// at least one is returned. The checksum field of a slice of a super-packet contains the sum of
/// the pseudo-header, as `needs_csum` requires.
///
/// # Panics
/// If `packet` is shorter than the planned one.
pub fn slice(
    packet: &[u8],
    offload: &Offload,
    plan: &Plan,
    first: u32,
    count: u32,
    header: &mut HeaderBuffer,
) -> Slice {
    let layout = &plan.layout;
    let first = first.min(plan.segments - 1);
    let count = count.clamp(1, plan.segments - first);
    if count == plan.segments {
        let mut offload = *offload;
        if count == 1 {
            (offload.gso, offload.gso_size, offload.ecn) = (Gso::None, 0, false);
        }
        return Slice { header: 0..0, payload: 0..layout.length as usize, offload };
    }
    let (headers, size) = (usize::from(layout.header), usize::from(layout.payload));
    let start = headers + first as usize * size;
    let is_last = first + count == plan.segments;
    let end = if is_last { layout.length as usize } else { start + count as usize * size };
    let length = headers + (end - start);

    let bytes = &mut header[..headers];
    bytes.copy_from_slice(&packet[..headers]);
    let transport = usize::from(layout.transport);
    if layout.v6 {
        put_word(bytes, 4, (length - 40) as u16);
    } else {
        put_word(bytes, 2, length as u16);
        let id = word(bytes, 4).wrapping_add(first as u16);
        put_word(bytes, 4, id);
        put_word(bytes, 10, 0);
        let sum = checksum::sum(&bytes[..transport]);
        put_word(bytes, 10, !sum);
    }
    let (whole, part) = (layout.length as usize - transport, length - transport);
    let field = transport + checksum_offset(layout.udp);
    let old = word(bytes, field);
    let mut needs_csum = true;
    if offload.needs_csum {
        let mut delta = Delta::default();
        delta.word(whole as u16, part as u16);
        put_word(bytes, field, delta.apply_to_sum(old));
    } else if layout.udp && !layout.v6 && old == 0 {
        needs_csum = false;
    } else {
        let (addresses, protocol) = if layout.v6 {
            (&bytes[8..40], if layout.udp { UDP } else { TCP })
        } else {
            (&bytes[12..20], bytes[9])
        };
        let sum = checksum::pseudo(addresses, protocol, part as u16);
        put_word(bytes, field, sum);
    }
    if layout.udp {
        put_word(bytes, transport + 4, part as u16);
    } else {
        let tcp = &mut bytes[transport..];
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let sequence = sequence.wrapping_add((start - headers) as u32);
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        if first > 0 {
            tcp[13] &= !CWR;
        }
        if !is_last {
            tcp[13] &= !(PSH | FIN);
        }
    }
    let cut = count > 1;
    let offload = Offload {
        needs_csum,
        csum_start: if needs_csum { layout.transport } else { 0 },
        csum_offset: if needs_csum { checksum_offset(layout.udp) as u16 } else { 0 },
        gso: if cut { offload.gso } else { Gso::None },
        gso_size: if cut { layout.payload } else { 0 },
        hdr_len: if cut { layout.header } else { 0 },
        ecn: cut && first == 0 && offload.ecn,
    };
    Slice { header: 0..headers, payload: start..end, offload }
}

/// Appends segment `index` of a packet to `out`, complete and with its checksum, as on a cable.
///
/// # Panics
/// Like [`slice()`].
pub fn wire(packet: &[u8], offload: &Offload, plan: &Plan, index: u32, out: &mut Vec<u8>) {
    let mut header = Slice::header_buffer();
    let part = slice(packet, offload, plan, index, 1, &mut header);
    let begin = out.len();
    out.extend_from_slice(part.header(&header));
    out.extend_from_slice(&packet[part.payload.clone()]);
    finish_checksum(&mut out[begin..], &part.offload);
}

/// Computes the checksum that was left to the device, in one wire packet. Has no effect if there is
/// none, or if its field is outside the packet.
pub fn finish_checksum(packet: &mut [u8], offload: &Offload) {
    if let Some(field) = offload.checksum_field(packet.len()) {
        let sum = !checksum::sum(&packet[usize::from(offload.csum_start)..]);
        // Zero would mean that the UDP datagram has no checksum (RFC 768); 0xffff is the same
        // number.
        let udp = usize::from(offload.csum_offset) == checksum_offset(true);
        put_word(packet, field, if udp && sum == 0 { 0xffff } else { sum });
    }
}
