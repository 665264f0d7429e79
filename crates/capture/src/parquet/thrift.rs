//! The compact protocol of Thrift, which encodes the metadata of Parquet files.
//!
//! Source: <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>.
//! Parquet has no sets, maps and UUIDs; they count as malformed.

use super::ReadError;

/// Nesting of skipped values, at most.
const MAX_DEPTH: u8 = 32;
const MAX_VARINT: usize = 10;

/// Bytes that are not parsed yet.
pub(super) struct Input<'a> {
    bytes: &'a [u8],
}

/// Type of a value. An integer has the same encoding in each of its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    True,
    False,
    Byte,
    Integer,
    Double,
    Bytes,
    List,
    Struct,
}

impl Kind {
    fn new(number: u8) -> Result<Self, ReadError> {
        Ok(match number {
            1 => Self::True,
            2 => Self::False,
            3 => Self::Byte,
            4..=6 => Self::Integer,
            7 => Self::Double,
            8 => Self::Bytes,
            9 => Self::List,
            12 => Self::Struct,
            _ => return Err(ReadError::Malformed("a value has an unknown type")),
        })
    }
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Passes number and type of each field to `each`, which parses the value.
    pub(super) fn fields(
        &mut self,
        kind: Kind,
        mut each: impl FnMut(&mut Self, i16, Kind) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        expect(kind == Kind::Struct)?;
        let mut last = 0_i16;
        loop {
            let head = self.byte()?;
            if head & 0xf == 0 {
                return Ok(());
            }
            let number = match head >> 4 {
                0 => i16::try_from(self.zigzag()?).ok(),
                step => last.checked_add(i16::from(step)),
            };
            last = number.ok_or(ReadError::Malformed("the number of a field is too large"))?;
            each(self, last, Kind::new(head & 0xf)?)?;
        }
    }

    /// Passes the type of each item of a list to `each`, which parses the item.
    pub(super) fn items(
        &mut self,
        kind: Kind,
        mut each: impl FnMut(&mut Self, Kind) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        expect(kind == Kind::List)?;
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            few => few.into(),
        };
        // Some programs write an empty list without a type. Each item has at least one byte.
        if count == 0 {
            return Ok(());
        }
        if count > self.bytes.len() as u64 {
            return Err(ReadError::Short);
        }
        let kind = Kind::new(head & 0xf)?;
        (0..count).try_for_each(|_| each(self, kind))
    }

    pub(super) fn number(&mut self, kind: Kind) -> Result<i64, ReadError> {
        expect(kind == Kind::Integer)?;
        self.zigzag()
    }

    /// A number of bytes, rows or values, or an offset.
    pub(super) fn count(&mut self, kind: Kind) -> Result<u64, ReadError> {
        let number = self.number(kind)?;
        u64::try_from(number).map_err(|_| ReadError::Malformed("a size or an offset is negative"))
    }

    pub(super) fn text(&mut self, kind: Kind) -> Result<&'a str, ReadError> {
        expect(kind == Kind::Bytes)?;
        str::from_utf8(self.bytes()?).map_err(|_| ReadError::Malformed("a text is not UTF-8"))
    }

    pub(super) fn skip(&mut self, kind: Kind) -> Result<(), ReadError> {
        self.skip_nested(kind, MAX_DEPTH)
    }

    fn skip_nested(&mut self, kind: Kind, depth: u8) -> Result<(), ReadError> {
        let depth = depth.checked_sub(1);
        let depth = depth.ok_or(ReadError::Malformed("the metadata is nested too deeply"))?;
        match kind {
            Kind::True | Kind::False => Ok(()),
            Kind::Byte => self.byte().map(drop),
            Kind::Integer => self.varint().map(drop),
            Kind::Double => self.take(8).map(drop),
            Kind::Bytes => self.bytes().map(drop),
            Kind::Struct => self.fields(kind, |input, _, kind| input.skip_nested(kind, depth)),
            Kind::List => self.items(kind, |input, kind| match kind {
                // Only a field has the value in its type.
                Kind::True | Kind::False => input.byte().map(drop),
                _ => input.skip_nested(kind, depth),
            }),
        }
    }

    fn bytes(&mut self) -> Result<&'a [u8], ReadError> {
        let length = self.varint()?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ReadError> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(ReadError::Short)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, ReadError> {
        let (first, rest) = self.bytes.split_first().ok_or(ReadError::Short)?;
        self.bytes = rest;
        Ok(*first)
    }

    fn zigzag(&mut self) -> Result<i64, ReadError> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn varint(&mut self) -> Result<u64, ReadError> {
        let mut value = 0;
        for place in 0..MAX_VARINT {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ReadError::Malformed("a number is too long"))
    }
}

fn expect(is_right: bool) -> Result<(), ReadError> {
    if is_right { Ok(()) } else { Err(ReadError::Malformed("a value has a wrong type")) }
}
