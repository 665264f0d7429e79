//! Fields with a length before them.

/// Reason why a field could not be read.
pub(super) enum End {
    /// The field is truncated.
    Missing,
    /// The field is longer than the structure around it.
    Broken,
}

/// A sequence of bytes that may be truncated.
pub(super) struct Fields<'a> {
    pub(super) there: &'a [u8],
    /// Number of bytes without truncation; at least `there.len()`.
    pub(super) length: usize,
}

impl<'a> Fields<'a> {
    /// The next `length` bytes, as far as present.
    pub(super) fn part(&mut self, length: usize) -> Result<Fields<'a>, End> {
        if length > self.length {
            return Err(End::Broken);
        }
        let (there, rest) = self.there.split_at(length.min(self.there.len()));
        self.there = rest;
        self.length -= length;
        Ok(Fields { there, length })
    }

    /// The next bytes, with their number in `width` bytes before them.
    pub(super) fn sized(&mut self, width: usize) -> Result<Fields<'a>, End> {
        let length = self.number(width)?;
        self.part(length)
    }

    /// All bytes, if none is missing.
    pub(super) fn bytes(self) -> Result<&'a [u8], End> {
        if self.there.len() < self.length { Err(End::Missing) } else { Ok(self.there) }
    }

    /// The next `length` bytes (1 or 2) as a number.
    pub(super) fn number(&mut self, length: usize) -> Result<usize, End> {
        let bytes = self.part(length)?.bytes()?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// The available bytes as 16-bit numbers.
    pub(super) fn numbers(&self) -> Vec<u16> {
        let pairs = self.there.chunks_exact(2);
        pairs
            .map(|pair| pair.iter().fold(0, |number, byte| number << 8 | u16::from(*byte)))
            .collect()
    }
}
