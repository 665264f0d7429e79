//! Small numbers as runs of equal or of packed ones.
//!
//! Source: <https://parquet.apache.org/docs/file-format/data-pages/encodings/>, RLE.

use super::ReadError;

/// Width of a number in bits, at most.
const MAX_WIDTH: u8 = 32;

/// A position in a sequence of numbers.
pub(super) struct Runs {
    /// Bits of each number.
    width: u8,
    /// Begin of the next run.
    at: usize,
    end: usize,
    run: Run,
    /// Numbers of this run that are not read yet.
    left: usize,
}

enum Run {
    Equal(u32),
    /// Position of the next number in bits.
    Packed(usize),
}

impl Runs {
    /// The runs in a part of a page.
    pub(super) fn new(width: u8, at: usize, end: usize) -> Result<Self, ReadError> {
        match width <= MAX_WIDTH {
            true => Ok(Self { width, at, end, run: Run::Equal(0), left: 0 }),
            false => Err(ReadError::Malformed("an index has too many bits")),
        }
    }

    /// A single packed run without a header, of numbers with one bit.
    pub(super) fn bits(at: usize, end: usize) -> Self {
        let left = end.saturating_sub(at).saturating_mul(8);
        Self { width: 1, at: end, end, run: Run::Packed(at.saturating_mul(8)), left }
    }

    /// Passes the next `count` numbers of a page to `each`, with the number of repetitions.
    pub(super) fn read(
        &mut self,
        page: &[u8],
        mut count: usize,
        mut each: impl FnMut(u32, usize) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let page = page.get(..self.end).ok_or(ReadError::Short)?;
        while count > 0 {
            if self.left == 0 {
                self.next_run(page)?;
                continue;
            }
            let (number, times) = match &mut self.run {
                Run::Equal(number) => (*number, self.left.min(count)),
                Run::Packed(bit) => {
                    // The last run may be shorter than its header states.
                    let Some(number) = unpack(page, *bit, self.width) else {
                        self.left = 0;
                        continue;
                    };
                    *bit = bit.saturating_add(self.width.into());
                    (number, 1)
                }
            };
            self.left -= times;
            count -= times;
            each(number, times)?;
        }
        Ok(())
    }

    fn next_run(&mut self, page: &[u8]) -> Result<(), ReadError> {
        let mut header = 0_u64;
        for place in 0.. {
            let byte = self.byte(page)?;
            header |= u64::from(byte & 0x7f) << (7 * place);
            match byte & 0x80 {
                0 => break,
                // A run has less than 2^31 numbers.
                _ if place == 4 => return Err(ReadError::Malformed("a run is too long")),
                _ => {}
            }
        }
        let length = usize::try_from(header >> 1).unwrap_or(usize::MAX);
        if header & 1 == 1 {
            self.run = Run::Packed(self.at.saturating_mul(8));
            self.left = length.saturating_mul(8);
            let bytes = length.saturating_mul(self.width.into());
            self.at = self.at.saturating_add(bytes).min(self.end);
        } else {
            let mut number = 0_u64;
            for place in 0..self.width.div_ceil(8) {
                number |= u64::from(self.byte(page)?) << (8 * place);
            }
            if number >> self.width != 0 {
                return Err(ReadError::Malformed("a number of a run is too large"));
            }
            self.run = Run::Equal(number as u32);
            self.left = length;
        }
        Ok(())
    }

    fn byte(&mut self, page: &[u8]) -> Result<u8, ReadError> {
        let byte = *page.get(self.at).ok_or(ReadError::Short)?;
        self.at += 1;
        Ok(byte)
    }
}

/// The number with `width` bits at a position in bits; `None` behind the end.
fn unpack(page: &[u8], bit: usize, width: u8) -> Option<u32> {
    let rest = page.get(bit / 8..)?;
    let shift = (bit % 8) as u32;
    let mut window = [0; 8];
    match rest.first_chunk() {
        Some(whole) => window = *whole,
        None => {
            window.get_mut(..rest.len())?.copy_from_slice(rest);
            if shift + u32::from(width) > 8 * rest.len() as u32 {
                return None;
            }
        }
    }
    let mask = (1_u64 << width) - 1;
    Some(((u64::from_le_bytes(window) >> shift) & mask) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(width: u8, bytes: &[u8], count: usize) -> Result<Vec<u32>, ReadError> {
        let mut numbers = Vec::new();
        let mut runs = Runs::new(width, 0, bytes.len())?;
        // In two parts, which may be in the middle of a run.
        for part in [count / 2, count - count / 2] {
            runs.read(bytes, part, |number, times| {
                numbers.extend(std::iter::repeat_n(number, times));
                Ok(())
            })?;
        }
        Ok(numbers)
    }

    #[test]
    fn numbers_of_equal_and_packed_runs_are_read_in_their_order() {
        // The example of the specification: 0 to 7 with three bits.
        let packed = [3, 0x88, 0xc6, 0xfa];
        assert_eq!(all(3, &packed, 8).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
        let both = [6, 5, 3, 0x88, 0xc6, 0xfa, 4, 1];
        assert_eq!(all(3, &both, 13).unwrap(), [5, 5, 5, 0, 1, 2, 3, 4, 5, 6, 7, 1, 1]);
        assert_eq!(all(12, &[4, 0x34, 0x2], 2).unwrap(), [0x234, 0x234]);
        assert_eq!(all(0, &[3], 8).unwrap(), [0; 8]);
        // Without the rest of the last group.
        assert_eq!(all(3, &packed[..2], 2).unwrap(), [0, 1]);
        assert_eq!(all(32, &[3, 1, 2, 3, 4], 1).unwrap(), [0x0403_0201]);
    }

    #[test]
    fn malformed_runs_are_errors() {
        for (width, bytes, count) in [
            (3, &[][..], 1),
            (3, &[6], 3),
            (3, &[6, 5], 4),
            (3, &[3, 0x88], 3),
            (3, &[6, 8], 3),
            (1, &[0xff; 20], 1),
            (1, &[0, 0, 0], 1),
            (33, &[6, 5], 1),
            (255, &[6, 5], 1),
        ] {
            assert!(all(width, bytes, count).is_err(), "{width} {bytes:?}");
        }
        // Two thousand million numbers are not stored.
        let mut count = 0;
        let mut runs = Runs::new(1, 0, 6).unwrap();
        let read = runs.read(&[0xfe, 0xff, 0xff, 0xff, 0xf, 1], 1 << 30, |_, times| {
            count += times;
            Ok(())
        });
        assert!(read.is_ok());
        assert_eq!(count, 1 << 30);
    }
}
