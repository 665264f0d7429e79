//! A bit writer for H.264 (ITU-T H.264) that knows two pictures: black, and the previous one again.
//!
//! A black picture is one macroblock of literal samples (I_PCM), and all others predict theirs from
//! it without a residual, at eight bits each. A repeated picture skips all macroblocks.

/// Constrained baseline: no picture comes out of order, so a decoder shows each at once.
const PROFILE: u8 = 66;
const CONSTRAINTS: u8 = 0xc0;
/// Black of the luma and the chroma samples in the limited range.
const LUMA: u8 = 16;
const CHROMA: u8 = 128;
/// Sides of a macroblock.
const MACROBLOCK: u16 = 16;
/// Levels with their maximum number of macroblocks in a picture (table A-1). The rates of the
/// levels allow 25 of them a second.
const LEVELS: [(u8, u32); 6] =
    [(11, 99), (13, 396), (30, 1_620), (31, 3_600), (40, 8_192), (51, 36_864)];

/// Dimensions of the pictures, in luma samples; even.
#[derive(Clone, Copy, Debug)]
pub struct Picture {
    pub width: u16,
    pub height: u16,
}

impl Picture {
    pub fn new(width: u16, height: u16) -> Self {
        let even = |side: u16| side.max(2) & !1;
        Self { width: even(width), height: even(height) }
    }

    /// Profile, constraint flags and level.
    pub fn profile(&self) -> [u8; 3] {
        let size = self.columns() * self.rows();
        let fitting = LEVELS.iter().find(|(_, max)| size <= *max);
        [PROFILE, CONSTRAINTS, fitting.map_or(62, |(level, _)| *level)]
    }

    fn columns(&self) -> u32 {
        u32::from(self.width.div_ceil(MACROBLOCK))
    }

    fn rows(&self) -> u32 {
        u32::from(self.height.div_ceil(MACROBLOCK))
    }

    /// The NAL unit of the sequence parameter set (7.3.2.1.1).
    pub fn sequence_parameters(&self) -> Vec<u8> {
        let mut bits = Bits::default();
        self.profile().iter().for_each(|byte| bits.write(u32::from(*byte), 8));
        // Identifier; 4 bits of frame numbers; output in decoding order; one reference picture.
        [0, 0, 2, 1].iter().for_each(|value| bits.unsigned(*value));
        bits.write(0, 1);
        bits.unsigned(self.columns() - 1);
        bits.unsigned(self.rows() - 1);
        // Frames, not fields; direct_8x8_inference_flag.
        bits.write(0b11, 2);
        // Rows and columns that are cut off, in pairs: left, right, top, bottom.
        let cut = |side: u16| u32::from((MACROBLOCK - side % MACROBLOCK) % MACROBLOCK / 2);
        let (right, bottom) = (cut(self.width), cut(self.height));
        let is_cropped = right + bottom > 0;
        bits.write(u32::from(is_cropped), 1);
        if is_cropped {
            [0, right, 0, bottom].iter().for_each(|value| bits.unsigned(*value));
        }
        // No usability information.
        bits.write(0, 1);
        bits.into_unit(7, 3)
    }

    /// The NAL unit of the picture parameter set (7.3.2.2).
    pub fn picture_parameters(&self) -> Vec<u8> {
        let mut bits = Bits::default();
        // Identifiers of both sets; CAVLC; one slice group; one reference picture in both lists.
        bits.unsigned(0);
        bits.unsigned(0);
        bits.write(0, 2);
        [0, 0, 0].iter().for_each(|value| bits.unsigned(*value));
        // No weighted prediction; quantizers and the offset of chroma are those of the standard.
        bits.write(0, 3);
        [0, 0, 0].iter().for_each(|value| bits.unsigned(*value));
        // Slices control the deblocking filter.
        bits.write(0b100, 3);
        bits.into_unit(8, 3)
    }

    /// A sample with a black IDR picture. Successive ones need a different `parity`, 0 or 1.
    pub fn intra(&self, parity: u32) -> Vec<u8> {
        let mut bits = Bits::default();
        // First macroblock, only I slices, parameter set, frame number.
        [0, 7, 0].iter().for_each(|value| bits.unsigned(*value));
        bits.write(0, 4);
        bits.unsigned(parity);
        // Earlier pictures are shown, and this one is a short-term reference; quantizer.
        bits.write(0, 2);
        bits.unsigned(0);
        bits.unsigned(NO_DEBLOCKING);
        bits.unsigned(I_PCM);
        bits.align();
        (0..256).for_each(|_| bits.write(u32::from(LUMA), 8));
        (0..128).for_each(|_| bits.write(u32::from(CHROMA), 8));
        for macroblock in 1..self.columns() * self.rows() {
            bits.unsigned(PREDICTED);
            // Chroma is predicted from the mean too; the quantizer does not change.
            bits.unsigned(0);
            bits.unsigned(0);
            // No coefficients, in the table that the number of those of the neighbours selects
            // (9.2.1): 16 in literal samples.
            match macroblock == 1 && self.columns() > 1 || macroblock == self.columns() {
                true => bits.write(0b00_0011, 6),
                false => bits.write(1, 1),
            }
        }
        length_prefixed(bits.into_unit(5, 3))
    }

    /// A sample that repeats the previous picture; `index` counts from 1 after an IDR picture.
    pub fn repeated(&self, index: u32) -> Vec<u8> {
        let mut bits = Bits::default();
        [0, 5, 0].iter().for_each(|value| bits.unsigned(*value));
        bits.write(index % 16, 4);
        // The lists of reference pictures and the marking are those of the standard; quantizer.
        bits.write(0, 3);
        bits.unsigned(0);
        bits.unsigned(NO_DEBLOCKING);
        bits.unsigned(self.columns() * self.rows());
        length_prefixed(bits.into_unit(1, 2))
    }
}

const NO_DEBLOCKING: u32 = 1;
/// Type of a macroblock of literal samples in an I slice (table 7-11).
const I_PCM: u32 = 25;
/// Type of a macroblock in an I slice, predicted as a whole from the mean of its neighbours.
const PREDICTED: u32 = 3;

fn length_prefixed(unit: Vec<u8>) -> Vec<u8> {
    [&(unit.len() as u32).to_be_bytes()[..], &unit].concat()
}

/// Bits, the first one in the highest bit of a byte.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    /// Unused bits of the last byte.
    free: u32,
}

impl Bits {
    /// Writes the `count` lowest bits of `value`, the highest one first.
    fn write(&mut self, value: u32, count: u32) {
        for place in (0..count).rev() {
            if self.free == 0 {
                self.bytes.push(0);
                self.free = 8;
            }
            self.free -= 1;
            if let Some(last) = self.bytes.last_mut() {
                *last |= ((value >> place & 1) as u8) << self.free;
            }
        }
    }

    /// Writes an Exp-Golomb code, `ue(v)` (9.1). Zero is also that of a signed value, `se(v)`.
    fn unsigned(&mut self, value: u32) {
        let length = (value + 1).ilog2();
        self.write(0, length);
        self.write(value + 1, length + 1);
    }

    /// Fills the last byte with zeros.
    fn align(&mut self) {
        self.free = 0;
    }

    /// Returns a NAL unit: its header, and the bits with their end mark and with bytes that prevent
    /// the emulation of a start code (7.4.1).
    fn into_unit(mut self, kind: u8, reference: u8) -> Vec<u8> {
        self.write(1, 1);
        let mut unit = vec![reference << 5 | kind];
        let mut zeros = 0;
        for byte in self.bytes {
            if zeros == 2 && byte <= 3 {
                unit.push(3);
                zeros = 0;
            }
            zeros = if byte == 0 { zeros + 1 } else { 0 };
            unit.push(byte);
        }
        unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bits of a NAL unit, without the bytes that prevent start codes.
    fn bits(unit: &[u8]) -> String {
        unit.iter().map(|byte| format!("{byte:08b}")).collect()
    }

    #[test]
    fn codes_are_those_of_the_standard() {
        // Table 9-2.
        for (value, code) in
            [(0, "1"), (1, "010"), (2, "011"), (3, "00100"), (7, "0001000"), (25, "000011010")]
        {
            let mut written = Bits::default();
            written.unsigned(value);
            let all = bits(&written.bytes);
            assert!(all.starts_with(code) && !all[code.len()..].contains('1'), "{value}: {all}");
        }
    }

    #[test]
    fn no_unit_contains_a_start_code() {
        let mut written = Bits::default();
        [0, 0, 0, 0, 0, 1, 0, 0, 4].iter().for_each(|byte| written.write(*byte, 8));
        let unit = written.into_unit(7, 3);
        assert_eq!(unit, [0x67, 0, 0, 3, 0, 0, 3, 0, 1, 0, 0, 4, 0x80]);
    }

    #[test]
    fn a_black_picture_is_literal_once_and_then_predicted() {
        // Two by two macroblocks.
        let unit = &Picture::new(32, 32).intra(0)[4..];
        // The header, with the type of the macroblock at its end.
        let header = "1 0001000 1 0000 1 00 1 010 000011010".replace(' ', "");
        assert_eq!(bits(&unit[1..5])[..header.len()], header);
        let literal = &unit[1 + header.len().div_ceil(8)..];
        assert_eq!(literal[..256], [LUMA; 256]);
        assert_eq!(literal[256..384], [CHROMA; 128]);
        // Beside and below the first one another table is in use; then the end mark.
        let rest = "00100 1 1 000011 00100 1 1 000011 00100 1 1 1 1".replace(' ', "");
        assert_eq!(bits(&literal[384..])[..rest.len()], rest);
    }

    #[test]
    fn a_repeated_picture_skips_all_macroblocks() {
        let unit = &Picture::new(32, 32).repeated(17)[4..];
        let expected = "1 00110 1 0001 000 1 010 00101 1".replace(' ', "");
        assert_eq!(unit[0], 0x41);
        assert_eq!(bits(&unit[1..])[..expected.len()], expected);
    }
}
