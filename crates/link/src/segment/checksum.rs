//! The internet checksum (RFC 1071) and its incremental update (RFC 1624).

/// Returns the ones' complement sum of `bytes`, not complemented, as if a zero byte followed an odd
/// last one.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    // Sums of native-endian words differ from the big-endian one by a byte swap only (RFC 1071,
    // section 2B), and wide words fold to the same sum as narrow ones.
    let (blocks, rest) = bytes.as_chunks::<16>();
    let mut lanes = [0_u64; 4];
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let mut tail = [0; 16];
    tail[..rest.len()].copy_from_slice(rest);
    for (lane, word) in lanes.iter_mut().zip(tail.as_chunks::<4>().0) {
        *lane += u64::from(u32::from_ne_bytes(*word));
    }
    let mut total: u64 = lanes.iter().map(|lane| (lane & 0xffff_ffff) + (lane >> 32)).sum();
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    u16::from_be(total as u16)
}

/// Ones' complement addition.
pub(crate) fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

/// Returns the sum of the pseudo-header for `length` bytes of `protocol`; `addresses` is the source
/// followed by the destination.
pub(crate) fn pseudo(addresses: &[u8], protocol: u8, length: u16) -> u16 {
    add(add(sum(addresses), u16::from(protocol)), length)
}

/// Change of the ones' complement sum over some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta(u16);

impl Delta {
    /// Replaces `old` by `new`; both must be at an even offset of the summed bytes.
    pub fn change(&mut self, old: &[u8], new: &[u8]) {
        self.word(sum(old), sum(new));
    }

    /// Replaces one word, or a sum of words, by another.
    pub fn word(&mut self, old: u16, new: u16) {
        self.0 = add(self.0, add(!old, new));
    }

    /// Updates a sum that is not complemented.
    pub fn apply_to_sum(self, sum: u16) -> u16 {
        add(sum, self.0)
    }

    /// Updates a finished checksum (RFC 1624, equation 3).
    pub fn apply(self, checksum: u16) -> u16 {
        !add(!checksum, self.0)
    }
}

/// Reads the big-endian word at `at`, which must be in range.
pub(crate) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Writes the big-endian word at `at`, which must be in range.
pub(crate) fn put_word(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(bytes: &[u8]) -> u16 {
        bytes
            .chunks(2)
            .map(|pair| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
            .fold(0, add)
    }

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624() {
        let mut delta = Delta::default();
        delta.word(0x5555, 0x3285);
        assert_eq!(delta.apply(0xdd2f), 0x0000);
    }

    proptest! {
        #[test]
        fn the_fast_sum_is_the_plain_one(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(sum(&bytes), plain(&bytes));
        }

        #[test]
        fn a_mended_checksum_verifies(
            mut bytes in prop::collection::vec(any::<u8>(), 40),
            new in prop::collection::vec(any::<u8>(), 10),
        ) {
            let before = !sum(&bytes);
            let mut delta = Delta::default();
            delta.change(&bytes[6..16], &new);
            bytes[6..16].copy_from_slice(&new);
            // Zero has two representations in ones' complement.
            prop_assert_eq!(add(sum(&bytes), delta.apply(before)), 0xffff);
        }
    }
}
