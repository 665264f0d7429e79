//! Decompression of field blocks (HPACK, RFC 7541).

mod huffman;
mod table;
#[cfg(test)]
mod tests;

use self::table::Table;

/// Maximum size of a dynamic table, as RFC 7541, 4.1 counts it. Browsers permit 64 KiB.
pub const MAX_TABLE_SIZE: usize = 1024 * 1024;
/// Size of the dynamic table until the encoder changes it (RFC 9113, 6.5.2).
pub(super) const INITIAL_TABLE_SIZE: usize = 4_096;
/// Bytes that each entry counts besides those of its name and value (RFC 7541, 4.1).
pub(super) const ENTRY_OVERHEAD: usize = 32;
/// Maximum number of bytes of an integer behind its prefix: enough for 32 bits.
const MAX_INTEGER_BYTES: u32 = 5;

const INVALID: &str = "a head that cannot be decompressed";

/// Decodes the field blocks of one direction of a connection, in their order.
#[derive(Debug)]
pub(super) struct Decoder {
    table: Table,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { table: Table::new(INITIAL_TABLE_SIZE) }
    }
}

impl Decoder {
    /// Decodes a block, and passes each name and value to `each`, whose errors it returns. The
    /// receiver of the block permits a dynamic table of up to `max_table_size`.
    ///
    /// After an error, the table is not that of the encoder, and no block can be decoded.
    pub(super) fn decode(
        &mut self,
        block: &[u8],
        max_table_size: usize,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        let (mut name, mut value) = (Vec::new(), Vec::new());
        let mut cursor = Cursor { rest: block };
        let mut is_start = true;
        while let Some(first) = cursor.byte() {
            if first & 0b1110_0000 == 0b0010_0000 {
                let size = cursor.integer(first, 5).filter(|_| is_start).ok_or(INVALID)?;
                if size > max_table_size.min(MAX_TABLE_SIZE) {
                    return Err("heads that need more memory than permitted");
                }
                self.table.resize(size);
                continue;
            }
            is_start = false;
            if first & 0b1000_0000 != 0 {
                let index = cursor.integer(first, 7).ok_or(INVALID)?;
                let (name, value) = self.table.get(index).ok_or(INVALID)?;
                each(name, value)?;
                continue;
            }
            let is_added = first & 0b0100_0000 != 0;
            let index = cursor.integer(first, if is_added { 6 } else { 4 }).ok_or(INVALID)?;
            name.clear();
            value.clear();
            match index {
                0 => cursor.string(&mut name).ok_or(INVALID)?,
                _ => name.extend(self.table.get(index).ok_or(INVALID)?.0),
            }
            cursor.string(&mut value).ok_or(INVALID)?;
            if is_added {
                self.table.insert(&name, &value);
            }
            each(&name, &value)?;
        }
        Ok(())
    }
}

/// The bytes of a block that are not read yet.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    fn byte(&mut self) -> Option<u8> {
        self.rest.split_off_first().copied()
    }

    /// Reads an integer whose first byte has a prefix of this number of bits (RFC 7541, 5.1).
    fn integer(&mut self, first: u8, prefix_bits: u32) -> Option<usize> {
        let max = (1 << prefix_bits) - 1;
        let mut value = u64::from(first) & max;
        if value < max {
            return usize::try_from(value).ok();
        }
        for index in 0..MAX_INTEGER_BYTES {
            let byte = self.byte()?;
            value += u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return usize::try_from(value).ok();
            }
        }
        None
    }

    /// Appends a string (RFC 7541, 5.2). It becomes at most 8/5 as long as its code.
    fn string(&mut self, into: &mut Vec<u8>) -> Option<()> {
        let first = self.byte()?;
        let length = self.integer(first, 7)?;
        let bytes = self.rest.split_off(..length)?;
        if first & 0b1000_0000 != 0 {
            huffman::decode(bytes, into)
        } else {
            into.extend(bytes);
            Some(())
        }
    }
}
