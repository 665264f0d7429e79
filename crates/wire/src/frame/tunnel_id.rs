//! Which tunnels are around a packet, for the fragments in them.

use std::net::IpAddr;

use super::{Cursor, IpPacket};

const UDP: u8 = 17;
const GRE: u8 = 47;
const GTP: u16 = 2152;
const VXLAN: u16 = 4789;
const GENEVE: u16 = 6081;

/// Adds the tunnel packet `outer` to the tunnels around it. The two directions of a tunnel have
/// different values.
pub(super) fn add(tunnels: u32, outer: &IpPacket<'_>) -> u32 {
    let rest = Cursor { bytes: outer.payload, length: outer.payload_length };
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    };
    let parts: [u128; 5] = [
        number(outer.source),
        number(outer.destination),
        u128::from(outer.protocol),
        // The destination port is the kind of the tunnel. The source port is not a part: it may
        // differ between the fragments of a packet.
        u128::from(rest.u16(2).filter(|_| outer.protocol == UDP).unwrap_or_default()),
        u128::from(identifier(outer.protocol, rest).unwrap_or_default()),
    ];
    // FNV-1a.
    let bytes = parts.iter().flat_map(|part| part.to_be_bytes());
    bytes.fold(tunnels ^ 0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// Number of the network or of the session in the tunnel's header; `None` if it has none.
fn identifier(protocol: u8, rest: Cursor<'_>) -> Option<u32> {
    match protocol {
        GRE => {
            let flags = rest.u16(0)?;
            let has_checksum = flags & 0x8000 != 0;
            let key = rest.u32(if has_checksum { 8 } else { 4 });
            key.filter(|_| flags & 0x2000 != 0)
        }
        UDP => match [rest.u16(0)?, rest.u16(2)?] {
            [_, VXLAN | GENEVE] => rest.u32(12).map(|field| field >> 8),
            ports if ports.contains(&GTP) => rest.u32(12),
            _ => None,
        },
        _ => None,
    }
}
