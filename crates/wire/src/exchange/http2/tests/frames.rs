//! Frames, and blocks without compression.

pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;
/// The block of `GET https /`, by the static table.
pub(super) const GET: &[u8] = &[0x82, 0x87, 0x84];

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A frame with padding. Fields such as a promised stream are in the content.
pub(super) fn padded(kind: u8, flags: u8, stream: u32, padding: u8, content: &[u8]) -> Vec<u8> {
    let payload = [&[padding], content, &vec![0; padding.into()]].concat();
    frame(kind, flags | PADDED, stream, &payload)
}

pub(super) fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings(&[])[..]].concat()
}

pub(super) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let setting = |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(4, 0, 0, &values.iter().flat_map(setting).collect::<Vec<_>>())
}

pub(super) fn data(stream: u32, flags: u8, content: &[u8]) -> Vec<u8> {
    frame(0, flags, stream, content)
}

/// A complete head.
pub(super) fn headers(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(1, flags | END_HEADERS, stream, block)
}

pub(super) fn continuation(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(9, flags, stream, block)
}

pub(super) fn promise(stream: u32, promised: u32, block: &[u8]) -> Vec<u8> {
    frame(5, END_HEADERS, stream, &[&promised.to_be_bytes()[..], block].concat())
}

pub(super) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(3, 0, stream, &code.to_be_bytes())
}

pub(super) fn goaway(last_stream: u32, code: u32) -> Vec<u8> {
    frame(7, 0, 0, &[&last_stream.to_be_bytes()[..], &code.to_be_bytes(), b"why"].concat())
}

/// Fields without indexing.
pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let field = |(name, value): &(&str, &str)| {
        [&[0][..], &string(name.as_bytes()), &string(value.as_bytes())].concat()
    };
    fields.iter().flat_map(field).collect()
}

/// A string without Huffman code.
pub(super) fn string(bytes: &[u8]) -> Vec<u8> {
    [&integer(0, 7, bytes.len())[..], bytes].concat()
}

/// An integer behind the bits of a representation (RFC 7541, 5.1).
pub(super) fn integer(representation: u8, prefix_bits: u32, value: usize) -> Vec<u8> {
    let max = (1 << prefix_bits) - 1;
    if value < max {
        return vec![representation | value as u8];
    }
    let (mut bytes, mut rest) = (vec![representation | max as u8], value - max);
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}
