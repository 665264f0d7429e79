//! Fields with a length before them.

/// Reason why a field could not be read.
pub(super) enum FieldError {
    /// The field is truncated.
    Truncated,
    /// The field is longer than the structure around it.
    Overlong,
}

/// A sequence of bytes that may be truncated.
pub(super) struct Cursor<'a> {
    pub(super) captured: &'a [u8],
    /// Number of bytes without truncation; at least `there.len()`.
    pub(super) length: usize,
}

impl<'a> Cursor<'a> {
    /// The next `length` bytes, as far as present.
    pub(super) fn take(&mut self, length: usize) -> Result<Cursor<'a>, FieldError> {
        if length > self.length {
            return Err(FieldError::Overlong);
        }
        let (there, rest) = self.captured.split_at(length.min(self.captured.len()));
        self.captured = rest;
        self.length -= length;
        Ok(Cursor { captured: there, length })
    }

    /// The next bytes, with their number in `width` bytes before them.
    pub(super) fn prefixed(&mut self, width: usize) -> Result<Cursor<'a>, FieldError> {
        let length = self.number(width)?;
        self.take(length)
    }

    /// All bytes, if none is missing.
    pub(super) fn bytes(self) -> Result<&'a [u8], FieldError> {
        if self.captured.len() < self.length {
            Err(FieldError::Truncated)
        } else {
            Ok(self.captured)
        }
    }

    /// The next `length` bytes (1 or 2) as a number.
    pub(super) fn number(&mut self, length: usize) -> Result<usize, FieldError> {
        let bytes = self.take(length)?.bytes()?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// The available bytes as 16-bit numbers.
    pub(super) fn numbers(&self) -> Vec<u16> {
        let pairs = self.captured.chunks_exact(2);
        pairs
            .map(|pair| pair.iter().fold(0, |number, byte| number << 8 | u16::from(*byte)))
            .collect()
    }
}
