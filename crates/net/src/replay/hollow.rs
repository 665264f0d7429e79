//! Bytes for bodies of which the recording has only the length.
//!
//! The bytes have the content coding of the response, so that a client can decode them, and exactly
//! the recorded encoded length: blocks without compression contain spaces if the type is text, else
//! pseudo-random bytes, which differ from exchange to exchange.

use std::sync::OnceLock;

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Crc;

/// A content coding in which bytes can be wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    /// RFC 1952.
    Gzip,
    /// `deflate`: the zlib format (RFC 1950).
    Zlib,
    /// `br` (RFC 7932).
    Brotli,
    /// RFC 8878.
    Zstd,
}

/// Length of the pseudo-random bytes that repeat.
const PATTERN: usize = 1 << 17;
/// Longest piece of an uncoded body.
const PIECE: u64 = 1 << 16;
/// Longest stored block of deflate (RFC 1951, 3.2.4).
const DEFLATE_BLOCK: u64 = 65_535;
/// Longest meta-block of Brotli with a length of four nibbles.
const BROTLI_BLOCK: u64 = 65_536;
/// Longest block of zstd (RFC 8878, 3.1.1.2.3), and the window that the frame asks for.
const ZSTD_BLOCK: u64 = 128 * 1024;
/// Space, as a literal of deflate's fixed code (RFC 1951, 3.2.6).
const SPACE: u16 = 0x30 + b' ' as u16;

impl Coding {
    /// Reads the value of `Content-Encoding`. `None` for other and for several codings.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let value = value.trim_ascii().to_ascii_lowercase();
        match &value[..] {
            b"" | b"identity" => Some(Self::Identity),
            b"gzip" | b"x-gzip" => Some(Self::Gzip),
            b"deflate" => Some(Self::Zlib),
            b"br" => Some(Self::Brotli),
            b"zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Length of the shortest stream; shorter bodies cannot have the coding.
    pub(super) fn min_length(self) -> u64 {
        match self {
            Self::Identity => 0,
            Self::Gzip => 20,
            Self::Zlib => 8,
            Self::Brotli => 1,
            Self::Zstd => 9,
        }
    }

    /// Bytes before and after the blocks, bytes around each block, and its longest content.
    fn layout(self) -> (u64, u64, u64) {
        match self {
            Self::Identity => (0, 0, PIECE),
            Self::Gzip => (18, 5, DEFLATE_BLOCK),
            Self::Zlib => (6, 5, DEFLATE_BLOCK),
            Self::Brotli => (1, 3, BROTLI_BLOCK),
            Self::Zstd => (6, 3, ZSTD_BLOCK),
        }
    }
}

/// The pieces of a hollow body.
#[derive(Debug)]
pub(super) struct Hollow {
    coding: Coding,
    fill: Fill,
    is_begun: bool,
    is_ended: bool,
    /// Bytes of content that remain.
    content: u64,
    /// Blocks that remain.
    blocks: u64,
    /// Bytes that are too few for a block.
    rest: u64,
    check: Check,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    Spaces,
    /// Pseudo-random bytes from this position of the pattern.
    Random(usize),
}

/// The checksum of the coding.
#[derive(Debug)]
enum Check {
    None,
    Crc(Crc),
    Adler { a: u32, b: u32 },
}

impl Hollow {
    /// Prepares a body of `length` encoded bytes. `seed` identifies its exchange. If the length is
    /// below [`Coding::min_length`], the bytes are not coded.
    pub(super) fn new(coding: Coding, length: u64, is_text: bool, seed: u64) -> Self {
        let coding = if length < coding.min_length() { Coding::Identity } else { coding };
        let (around, each, longest) = coding.layout();
        let room = length - around;
        // A meta-block of Brotli cannot be empty; an empty last block of the others can.
        let least = if coding == Coding::Brotli { each + 1 } else { each };
        let (blocks, rest) = match room {
            _ if coding == Coding::Identity => (room.div_ceil(longest), 0),
            _ if room < least => (0, room),
            _ => (room.div_ceil(each + longest), 0),
        };
        let fill = match is_text {
            true => Fill::Spaces,
            false => Fill::Random((mix(seed) % PATTERN as u64) as usize),
        };
        Self {
            coding,
            fill,
            is_begun: false,
            is_ended: length == 0,
            content: room - rest - blocks * each,
            blocks,
            rest,
            check: match coding {
                Coding::Gzip => Check::Crc(Crc::new()),
                Coding::Zlib => Check::Adler { a: 1, b: 0 },
                _ => Check::None,
            },
        }
    }

    /// Length of the next block's content. Each block after it must have at least one byte.
    fn next_length(&self) -> u64 {
        let (.., longest) = self.coding.layout();
        let later = self.blocks.saturating_sub(1);
        // Only Brotli needs the bytes for later blocks, but the lengths may be the same for all.
        longest.min(self.content - later.min(self.content))
    }

    fn begin(&mut self, out: &mut BytesMut) {
        match self.coding {
            Coding::Identity => {}
            // No name, no time; the system is unknown.
            Coding::Gzip => out.put_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]),
            // Window of 32 KiB, no compression.
            Coding::Zlib => out.put_slice(&[0x78, 0x01]),
            Coding::Brotli => {}
            // No checksum, no length; window of 128 KiB.
            Coding::Zstd => out.put_slice(&[0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3]),
        }
        if self.blocks > 0 {
            return;
        }
        match self.coding {
            Coding::Gzip | Coding::Zlib => self.fixed_block(out),
            Coding::Brotli => {
                // Empty meta-blocks with metadata; the first begins with the window bits.
                let first = if self.rest > 0 { 0x0c } else { 0x06 };
                out.put_u8(first);
                out.put_bytes(0x06, self.rest.saturating_sub(1) as usize);
                if self.rest > 0 {
                    out.put_u8(0x03);
                }
                self.is_ended = true;
            }
            Coding::Identity | Coding::Zstd => {}
        }
    }

    /// A block of 2 to 4 bytes in deflate's fixed code, with 0 to 2 spaces.
    fn fixed_block(&mut self, out: &mut BytesMut) {
        let spaces = self.rest.saturating_sub(2).min(2);
        // Last block, fixed code: bits are written from the least significant one.
        let (mut bits, mut count) = (0b011_u64, 3);
        for _ in 0..spaces {
            bits |= u64::from((SPACE as u8).reverse_bits()) << count;
            count += 8;
            self.check.update(b" ");
        }
        // The end of the block has the code 0000000.
        count += 7;
        for byte in bits.to_le_bytes().iter().take(usize::div_ceil(count, 8)) {
            out.put_u8(*byte);
        }
    }

    fn block_head(&self, length: u64, is_first: bool, is_last: bool, out: &mut BytesMut) {
        match self.coding {
            Coding::Identity => {}
            Coding::Gzip | Coding::Zlib => {
                out.put_u8(u8::from(is_last));
                out.put_u16_le(length as u16);
                out.put_u16_le(!length as u16);
            }
            Coding::Brotli => {
                // Not the last, four nibbles, the length less one, uncompressed.
                let bits = (length.saturating_sub(1) << 3) | 1 << 19;
                // The stream begins with a bit for a window of 64 KiB.
                let bits = if is_first { bits << 1 } else { bits };
                out.put_slice(bits.to_le_bytes().get(..3).unwrap_or_default());
            }
            Coding::Zstd => {
                // Raw block.
                let head = length << 3 | u64::from(is_last);
                out.put_slice(head.to_le_bytes().get(..3).unwrap_or_default());
            }
        }
    }

    fn end(&mut self, length: u64, out: &mut BytesMut) {
        match &self.check {
            Check::Crc(crc) => {
                out.put_u32_le(crc.sum());
                out.put_u32_le(length as u32);
            }
            Check::Adler { a, b } => out.put_u32(b << 16 | a),
            Check::None if self.coding == Coding::Brotli => out.put_u8(0x03),
            Check::None => {}
        }
    }

    fn fill(&mut self, length: u64, out: &mut BytesMut) {
        let start = out.len();
        let mut left = length as usize;
        match &mut self.fill {
            Fill::Spaces => out.put_bytes(b' ', left),
            Fill::Random(at) => {
                while left > 0 {
                    let part = pattern().get(*at..).unwrap_or_default();
                    let part = part.get(..left).unwrap_or(part);
                    out.put_slice(part);
                    left -= part.len();
                    *at = (*at + part.len()) % PATTERN;
                }
            }
        }
        self.check.update(out.get(start..).unwrap_or_default());
    }
}

impl Iterator for Hollow {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_ended {
            return None;
        }
        let mut out = BytesMut::new();
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        if is_first {
            self.begin(&mut out);
        }
        if self.is_ended {
            return Some(out.freeze());
        }
        if self.blocks > 0 {
            let length = self.next_length();
            let is_last = self.blocks == 1;
            out.reserve(length as usize + 16);
            self.block_head(length, is_first, is_last, &mut out);
            self.fill(length, &mut out);
            (self.content, self.blocks) = (self.content - length, self.blocks - 1);
        }
        if self.blocks == 0 {
            let total = self.check.length();
            self.end(total, &mut out);
            self.is_ended = true;
        }
        Some(out.freeze())
    }
}

impl Check {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::None => {}
            Self::Crc(crc) => crc.update(bytes),
            Self::Adler { a, b } => {
                // The sums of so many bytes fit in 32 bits (RFC 1950, 9).
                for part in bytes.chunks(5_552) {
                    for byte in part {
                        *a += u32::from(*byte);
                        *b += *a;
                    }
                    (*a, *b) = (*a % 65_521, *b % 65_521);
                }
            }
        }
    }

    /// Number of bytes, modulo 2^32, where the checksum needs it.
    fn length(&self) -> u64 {
        match self {
            Self::Crc(crc) => u64::from(crc.amount()),
            Self::None | Self::Adler { .. } => 0,
        }
    }
}

/// SplitMix64 (G. Steele et al., OOPSLA 2014).
fn mix(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

fn pattern() -> &'static [u8] {
    static PATTERN_BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN_BYTES
        .get_or_init(|| (0..PATTERN as u64 / 8).flat_map(|at| mix(at).to_le_bytes()).collect())
}

#[cfg(test)]
mod tests;
