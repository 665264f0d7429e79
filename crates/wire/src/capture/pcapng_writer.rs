//! The few pcapng blocks that a capture needs, in the machine's byte order.

/// Timestamps count nanoseconds: ten to the minus nine of a second.
const NANOSECONDS: u8 = 9;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

const COMMENT: u16 = 1;

/// Which way a packet went, seen from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Inbound = 1,
    Outbound = 2,
}

/// Section header: the file's first block.
pub fn section(out: &mut Vec<u8>) {
    block(out, SECTION, |out| {
        out.extend_from_slice(&0x1a2b_3c4d_u32.to_ne_bytes());
        out.extend_from_slice(&1_u16.to_ne_bytes());
        out.extend_from_slice(&0_u16.to_ne_bytes());
        // Of unknown length, so that it can grow.
        out.extend_from_slice(&u64::MAX.to_ne_bytes());
        option(out, 4, concat!("manyways ", env!("CARGO_PKG_VERSION")).as_bytes());
        end(out);
    });
}

/// Interface description; there is one interface a file, number 0, because libpcap refuses a second
/// one of the same link type (it compares the number in the file with its own). `link` is the
/// registry's number of how packets begin, and `snap` the most bytes of one, where that is not zero.
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

/// Enhanced packet; `at` counts nanoseconds since the Unix epoch. It had `length` bytes, of which
/// these are there.
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

/// Interface statistics, from `start` to `end` in nanoseconds since the Unix epoch.
pub fn statistics(out: &mut Vec<u8>, start: u64, end_of_capture: u64, received: u64, missed: u64) {
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
        option(out, 4, &(received + missed).to_ne_bytes());
        option(out, 5, &missed.to_ne_bytes());
        end(out);
    });
}

/// A block: its kind, its length before and after, and what `fill` puts between.
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
    // Names come from people; the length must fit its field.
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&code.to_ne_bytes());
    out.extend_from_slice(&(value.len() as u16).to_ne_bytes());
    padded(out, value);
}

fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; 4]);
}

/// Blocks count in words of four bytes.
fn padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
}
