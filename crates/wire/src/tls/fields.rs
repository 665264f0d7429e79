//! Bytes that are cut into fields by lengths within them.

/// Why a field could not be read.
pub(super) enum End {
    /// It is not there yet.
    Missing,
    /// It does not fit into what it is a part of.
    Broken,
}

/// Bytes of which only the first may be there.
pub(super) struct Fields<'a> {
    pub(super) there: &'a [u8],
    /// How many there are when all are there: at least `there.len()`.
    pub(super) length: usize,
}

impl<'a> Fields<'a> {
    /// The next `length` bytes, as many of them as are there.
    pub(super) fn part(&mut self, length: usize) -> Result<Fields<'a>, End> {
        if length > self.length {
            return Err(End::Broken);
        }
        let (there, rest) = self.there.split_at(length.min(self.there.len()));
        self.there = rest;
        self.length -= length;
        Ok(Fields { there, length })
    }

    /// The next bytes, of which a number of `width` bytes before them says how many they are.
    pub(super) fn sized(&mut self, width: usize) -> Result<Fields<'a>, End> {
        let length = self.number(width)?;
        self.part(length)
    }

    /// All of it.
    pub(super) fn bytes(self) -> Result<&'a [u8], End> {
        if self.there.len() < self.length { Err(End::Missing) } else { Ok(self.there) }
    }

    /// The next `length` bytes (1 or 2) as a number.
    pub(super) fn number(&mut self, length: usize) -> Result<usize, End> {
        let bytes = self.part(length)?.bytes()?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// What is there as numbers of two bytes.
    pub(super) fn numbers(&self) -> Vec<u16> {
        let pairs = self.there.chunks_exact(2);
        pairs
            .map(|pair| pair.iter().fold(0, |number, byte| number << 8 | u16::from(*byte)))
            .collect()
    }
}
