//! Anchors: offsets in a stream that depend only on its bytes, so that equal bytes have equal
//! anchors at each point.

use std::collections::HashMap;

/// Bytes per anchor. A capture with a snap length of 96 bytes, which is common, contains 30 bytes
/// of the payload.
pub(super) const ANCHOR_LEN: usize = 24;
/// Maximum number of anchors of a track; in longer streams, fewer windows are anchors.
pub const MAX_ANCHORS: usize = 1 << 16;
/// Up to this number of anchors, each window is one, so that short messages can be recognised.
const MAX_DENSE_ANCHORS: usize = 1 << 10;
/// Above it, at most one anchor per this many bytes.
const MIN_ANCHOR_SPACING: u64 = 64;
/// An odd number with many bits.
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Weight of the oldest byte of a window.
const OLDEST_WEIGHT: u64 = HASH_FACTOR.wrapping_pow(ANCHOR_LEN as u32);

/// Offset of an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnchorOffset {
    /// A unique offset.
    Unique(u64),
    /// Several offsets: the anchor is ambiguous.
    Ambiguous,
}

/// The anchors of a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Anchors {
    offsets: HashMap<u64, AnchorOffset>,
    /// Windows whose hash ends with this number of zero bits are anchors. The anchors of a stream
    /// with more zero bits are a subset of those with fewer, so any two streams can be compared.
    zero_bits: u32,
    window: [u8; ANCHOR_LEN],
    filled: usize,
    hash: u64,
}

impl Anchors {
    /// Adds the next bytes, of which the first is at offset `place`.
    pub fn push(&mut self, offset: u64, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            self.roll(at, *byte);
        }
    }

    /// Skips unknown bytes.
    pub fn skip(&mut self) {
        (self.filled, self.hash) = (0, 0);
    }

    fn roll(&mut self, at: u64, byte: u8) {
        let slot = &mut self.window[(at % ANCHOR_LEN as u64) as usize];
        let oldest = std::mem::replace(slot, byte);
        self.hash = self.hash.wrapping_mul(HASH_FACTOR).wrapping_add(u64::from(byte) + 1);
        if self.filled < ANCHOR_LEN {
            self.filled += 1;
        } else {
            let remaining = OLDEST_WEIGHT.wrapping_mul(u64::from(oldest) + 1);
            self.hash = self.hash.wrapping_sub(remaining);
        }
        if self.filled < ANCHOR_LEN {
            return;
        }
        let hash = mix(self.hash);
        if hash.trailing_zeros() < self.zero_bits {
            return;
        }
        let begin = at + 1 - ANCHOR_LEN as u64;
        self.offsets
            .entry(hash)
            .and_modify(|anchor| *anchor = AnchorOffset::Ambiguous)
            .or_insert(AnchorOffset::Unique(begin));
        let room = ((at / MIN_ANCHOR_SPACING) as usize).clamp(MAX_DENSE_ANCHORS, MAX_ANCHORS);
        while self.offsets.len() > room && self.zero_bits < u64::BITS {
            self.zero_bits += 1;
            self.offsets.retain(|hash, _| hash.trailing_zeros() >= self.zero_bits);
        }
    }

    /// Number of zero bits at the end of all hashes.
    pub fn zero_bits(&self) -> u32 {
        self.zero_bits
    }

    /// Returns the offset of the bytes with this hash.
    pub fn find(&self, hash: u64) -> Option<AnchorOffset> {
        self.offsets.get(&hash).copied()
    }

    /// Returns all anchors, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, AnchorOffset)> {
        self.offsets.iter().map(|(hash, anchor)| (*hash, *anchor))
    }
}

/// Mixes the lowest bits, which a product lacks (last step of SplitMix64).
fn mix(hash: u64) -> u64 {
    let mixed = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::align::tests::noise;

    fn of(bytes: &[u8], cut: usize) -> Vec<(u64, AnchorOffset)> {
        let mut anchors = Anchors::default();
        for (part, number) in bytes.chunks(cut).zip(0..) {
            anchors.push(number * cut as u64, part);
        }
        let mut all: Vec<_> = anchors.iter().collect();
        all.sort_by_key(|(hash, _)| *hash);
        all
    }

    #[test]
    fn the_same_bytes_have_the_same_anchors_in_any_cut() {
        let bytes = noise(7, 20_000);
        let whole = of(&bytes, 20_000);
        assert_eq!(of(&bytes, 1), whole);
        assert_eq!(of(&bytes, 1_460), whole);
        assert!((500..=MAX_DENSE_ANCHORS).contains(&whole.len()), "{}", whole.len());
        assert_eq!(of(&bytes[..100], 100).len(), 100 - ANCHOR_LEN + 1);
    }

    #[test]
    fn their_number_has_a_limit_and_repeats_are_one() {
        let mut anchors = Anchors::default();
        for block in 0..50 {
            anchors.push(block * 100_000, &noise(block, 100_000));
        }
        let count = anchors.iter().count();
        assert!((MAX_ANCHORS / 3..=MAX_ANCHORS).contains(&count), "{count}");
        assert_eq!(of(&[0; 10_000], 1_000).len(), 1);
        assert!(
            of(&[0; 10_000], 1_000).iter().all(|(_, anchor)| *anchor == AnchorOffset::Ambiguous)
        );
    }

    #[test]
    fn no_window_spans_what_is_not_known() {
        let bytes = noise(1, 2 * ANCHOR_LEN);
        let mut anchors = Anchors::default();
        anchors.push(0, &bytes[..ANCHOR_LEN - 1]);
        anchors.skip();
        anchors.push(1_000, &bytes[ANCHOR_LEN - 1..]);
        let all: Vec<_> = anchors.iter().map(|(_, anchor)| anchor).collect();
        assert_eq!(all.len(), 2);
        assert!(
            all.contains(&AnchorOffset::Unique(1_000))
                && all.contains(&AnchorOffset::Unique(1_001))
        );
    }
}
