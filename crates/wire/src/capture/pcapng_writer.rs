//! Writes the pcapng blocks of a capture, in native byte order.

/// Timestamps in units of 10^-9 s (`if_tsresol`).
const NANOSECONDS: u8 = 9;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

const COMMENT: u16 = 1;

/// Direction of a packet, seen from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Inbound = 1,
    Outbound = 2,
}

/// Writes the section header block, the first of a file.
pub fn section(out: &mut Vec<u8>) {
    block(out, SECTION, |out| {
        out.extend_from_slice(&0x1a2b_3c4d_u32.to_ne_bytes());
        out.extend_from_slice(&1_u16.to_ne_bytes());
        out.extend_from_slice(&0_u16.to_ne_bytes());
        // Unknown length, so that the section can grow.
        out.extend_from_slice(&u64::MAX.to_ne_bytes());
        option(out, 4, concat!("manyways ", env!("CARGO_PKG_VERSION")).as_bytes());
        end(out);
    });
}

/// Writes the interface description block. A file has one interface, number 0, because libpcap
/// rejects a second one: libpcap compares the registered link type with its own number. `link` is
/// the registered link-layer type, and `snap` the snap length, 0 for none.
pub fn interface(out: &mut Vec<u8>, name: &str, link: u16, snap: u32) {
    block(out, INTERFACE, |out| {
        out.extend_from_slice(&link.to_ne_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&snap.to_ne_bytes());
        option(out, 2, name.as_bytes());
        option(out, 9, &[NANOSECONDS]);
        end(out);
    });
}

/// Writes an enhanced packet block; `at` is in nanoseconds since the Unix epoch, `length` is the
/// original length of the packet in bytes.
pub fn packet(
    out: &mut Vec<u8>,
    at: u64,
    packet: &[u8],
    length: usize,
    direction: Direction,
    comment: Option<&str>,
) {
    block(out, PACKET, |out| {
        for field in [0, (at >> 32) as u32, at as u32, packet.len() as u32, length as u32] {
            out.extend_from_slice(&field.to_ne_bytes());
        }
        padded(out, packet);
        option(out, 2, &(direction as u32).to_ne_bytes());
        if let Some(comment) = comment {
            option(out, COMMENT, comment.as_bytes());
        }
        end(out);
    });
}

/// Writes the interface statistics block, with times in nanoseconds since the Unix epoch.
pub fn statistics(out: &mut Vec<u8>, start: u64, end_of_capture: u64, received: u64, dropped: u64) {
    let stamp = |at: u64| {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&((at >> 32) as u32).to_ne_bytes());
        bytes[4..].copy_from_slice(&(at as u32).to_ne_bytes());
        bytes
    };
    block(out, STATISTICS, |out| {
        out.extend_from_slice(&0_u32.to_ne_bytes());
        out.extend_from_slice(&stamp(end_of_capture));
        option(out, 2, &stamp(start));
        option(out, 3, &stamp(end_of_capture));
        option(out, 4, &(received + dropped).to_ne_bytes());
        option(out, 5, &dropped.to_ne_bytes());
        end(out);
    });
}

/// Writes a block: type, length, the content that `fill` appends, and the length again.
fn block(out: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
    fill(out);
    let length = ((out.len() - begin + 4) as u32).to_ne_bytes();
    out.extend_from_slice(&length);
    out[begin + 4..begin + 8].copy_from_slice(&length);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    // Names and comments have no bound; the length field has 16 bits.
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&code.to_ne_bytes());
    out.extend_from_slice(&(value.len() as u16).to_ne_bytes());
    padded(out, value);
}

fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; 4]);
}

/// Pads to a multiple of four bytes.
fn padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
}
