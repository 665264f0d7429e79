//! The metadata at the end of a Parquet file.
//!
//! Source: <https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>.
//! After parsing, each part of a column lies between the two magic numbers of the file, and the
//! number of rows is in proportion to the size of the file.

use manyways_record::table::Kind as ValueKind;

use super::ReadError;
use super::thrift::{Input, Kind};

/// Rows for each byte of the file, at most. A page with one value in all of its rows has some
/// hundred of them for each byte.
const MAX_ROWS_PER_BYTE: u64 = 4096;
/// Nesting of columns, at most; tables of this program have none.
const MAX_DEPTH: usize = 16;
/// Bytes of the magic number at the beginning of the file.
const BEGIN: u64 = 4;

/// The metadata, as far as tables need it.
pub(super) struct Footer {
    pub(super) columns: Vec<Leaf>,
    pub(super) groups: Vec<Group>,
    /// Keys and values that the writer added.
    pub(super) notes: Vec<(String, String)>,
}

/// A column with values.
pub(super) struct Leaf {
    pub(super) name: String,
    pub(super) physical: Physical,
    /// `None` for nested or repeated columns and for types that no table has.
    pub(super) kind: Option<ValueKind>,
    /// Whether values may be absent.
    pub(super) is_optional: bool,
}

/// The encoding of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Physical {
    Flag,
    Integer,
    Number,
    Text,
    Other,
}

/// Some rows.
pub(super) struct Group {
    pub(super) rows: u64,
    /// A part of each column.
    pub(super) chunks: Vec<Chunk>,
}

/// The pages of a column in one group.
#[derive(Clone, Copy, Default)]
pub(super) struct Chunk {
    pub(super) codec: i64,
    pub(super) begin: u64,
    pub(super) end: u64,
    values: u64,
}

impl Footer {
    /// Parses the metadata. The file has `length` bytes, and the metadata begins at `end`.
    pub(super) fn parse(bytes: &[u8], end: u64, length: u64) -> Result<Self, ReadError> {
        let mut schema = Schema::default();
        let (mut groups, mut notes) = (Vec::new(), Vec::new());
        Input::new(bytes).fields(Kind::Struct, |input, number, kind| match number {
            2 => input.items(kind, |input, kind| schema.add(Element::parse(input, kind)?)),
            4 => input.items(kind, |input, kind| {
                groups.push(Group::parse(input, kind)?);
                Ok(())
            }),
            5 => input.items(kind, |input, kind| {
                notes.push(note(input, kind)?);
                Ok(())
            }),
            _ => input.skip(kind),
        })?;
        let footer = Self { columns: schema.finish()?, groups, notes };
        footer.check(end, length)?;
        Ok(footer)
    }

    fn check(&self, end: u64, length: u64) -> Result<(), ReadError> {
        let malformed = |what| Err(ReadError::Malformed(what));
        let mut rows = 0_u64;
        for group in &self.groups {
            rows = rows.saturating_add(group.rows);
            if group.chunks.len() != self.columns.len() {
                return malformed("a group of rows has more or fewer columns than the file");
            }
            for (chunk, column) in group.chunks.iter().zip(&self.columns) {
                // Arrow writes a group without rows, which has no pages with any.
                if group.rows > 0 && (chunk.begin < BEGIN || chunk.end > end) {
                    return malformed("a column is outside of the file");
                }
                if column.kind.is_some() && chunk.values != group.rows {
                    return malformed("a column has more or fewer rows than its group");
                }
            }
        }
        match rows > length.saturating_mul(MAX_ROWS_PER_BYTE) {
            true => malformed("it has more rows than a file of its size can have"),
            false => Ok(()),
        }
    }
}

impl Group {
    fn parse(input: &mut Input<'_>, kind: Kind) -> Result<Self, ReadError> {
        let mut group = Self { rows: 0, chunks: Vec::new() };
        input.fields(kind, |input, number, kind| {
            match number {
                1 => input.items(kind, |input, kind| {
                    group.chunks.push(Chunk::parse(input, kind)?);
                    Ok(())
                })?,
                3 => group.rows = input.count(kind)?,
                _ => input.skip(kind)?,
            }
            Ok(())
        })?;
        Ok(group)
    }
}

impl Chunk {
    fn parse(input: &mut Input<'_>, kind: Kind) -> Result<Self, ReadError> {
        let mut chunk = Self::default();
        let (mut size, mut dictionary) = (0, None);
        input.fields(kind, |input, number, kind| match number {
            3 => input.fields(kind, |input, number, kind| {
                match number {
                    4 => chunk.codec = input.number(kind)?,
                    5 => chunk.values = input.count(kind)?,
                    7 => size = input.count(kind)?,
                    9 => chunk.begin = input.count(kind)?,
                    11 => dictionary = Some(input.count(kind)?),
                    _ => input.skip(kind)?,
                }
                Ok(())
            }),
            _ => input.skip(kind),
        })?;
        // A dictionary precedes the other pages. Some programs write 0 if there is none.
        chunk.begin = dictionary.filter(|offset| *offset > 0).unwrap_or(chunk.begin);
        let end = chunk.begin.checked_add(size);
        chunk.end = end.ok_or(ReadError::Malformed("a column is outside of the file"))?;
        Ok(chunk)
    }
}

fn note(input: &mut Input<'_>, kind: Kind) -> Result<(String, String), ReadError> {
    let (mut key, mut value) = (String::new(), String::new());
    input.fields(kind, |input, number, kind| {
        match number {
            1 => input.text(kind)?.clone_into(&mut key),
            2 => input.text(kind)?.clone_into(&mut value),
            _ => input.skip(kind)?,
        }
        Ok(())
    })?;
    Ok((key, value))
}

/// A column, or a group of columns.
#[derive(Default)]
struct Element {
    name: String,
    physical: Option<i64>,
    repetition: i64,
    children: u64,
    logical: Option<Logical>,
}

/// Meaning of the values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Logical {
    Text,
    Nanoseconds,
    Integer,
    Other,
}

impl Element {
    fn parse(input: &mut Input<'_>, kind: Kind) -> Result<Self, ReadError> {
        let mut element = Self::default();
        input.fields(kind, |input, number, kind| {
            match number {
                1 => element.physical = Some(input.number(kind)?),
                3 => element.repetition = input.number(kind)?,
                4 => input.text(kind)?.clone_into(&mut element.name),
                5 => element.children = input.count(kind)?,
                10 => element.logical = Some(Logical::parse(input, kind)?),
                _ => input.skip(kind)?,
            }
            Ok(())
        })?;
        Ok(element)
    }

    fn physical(&self) -> Physical {
        match self.physical {
            Some(0) => Physical::Flag,
            Some(2) => Physical::Integer,
            Some(5) => Physical::Number,
            Some(6) => Physical::Text,
            _ => Physical::Other,
        }
    }

    /// The kind of the values; `None` if no table has these types.
    fn kind(&self) -> Option<ValueKind> {
        match (self.physical(), self.logical) {
            (Physical::Integer, Some(Logical::Nanoseconds)) => Some(ValueKind::Time),
            (Physical::Integer, None | Some(Logical::Integer)) => Some(ValueKind::Count),
            (Physical::Number, None) => Some(ValueKind::Number),
            (Physical::Flag, None) => Some(ValueKind::Flag),
            (Physical::Text, Some(Logical::Text)) => Some(ValueKind::Text),
            _ => None,
        }
    }
}

impl Logical {
    fn parse(input: &mut Input<'_>, kind: Kind) -> Result<Self, ReadError> {
        let mut logical = Self::Other;
        input.fields(kind, |input, number, kind| {
            match number {
                1 => logical = Self::Text,
                8 => {
                    return input.fields(kind, |input, number, kind| match number {
                        2 => input.fields(kind, |input, number, kind| {
                            if number == 3 {
                                logical = Self::Nanoseconds;
                            }
                            input.skip(kind)
                        }),
                        _ => input.skip(kind),
                    });
                }
                10 => logical = Self::Integer,
                _ => {}
            }
            input.skip(kind)
        })?;
        Ok(logical)
    }
}

/// The elements so far, in depth-first order.
#[derive(Default)]
struct Schema {
    columns: Vec<Leaf>,
    /// Names of the groups that contain the next element, and how many of their elements are
    /// missing; the first one is the file.
    groups: Vec<(String, u64)>,
    has_root: bool,
}

impl Schema {
    fn add(&mut self, element: Element) -> Result<(), ReadError> {
        if !self.has_root {
            self.has_root = true;
            self.groups.push((String::new(), element.children));
            return Ok(());
        }
        while self.groups.last().is_some_and(|(_, missing)| *missing == 0) {
            self.groups.pop();
        }
        let depth = self.groups.len();
        let group = self.groups.last_mut().filter(|_| depth <= MAX_DEPTH);
        let (_, missing) = group.ok_or(ReadError::Malformed("the columns are not one tree"))?;
        *missing -= 1;
        if element.children > 0 {
            self.groups.push((element.name, element.children));
        } else if element.physical.is_some() {
            // Tables have no nested and no repeated columns.
            let is_plain = depth == 1 && matches!(element.repetition, 0 | 1);
            let kind = element.kind().filter(|_| is_plain);
            let physical = element.physical();
            let mut name = String::new();
            for (group, _) in self.groups.iter().skip(1) {
                name.push_str(group);
                name.push('.');
            }
            name.push_str(&element.name);
            let is_optional = element.repetition == 1;
            self.columns.push(Leaf { name, physical, kind, is_optional });
        }
        Ok(())
    }

    fn finish(self) -> Result<Vec<Leaf>, ReadError> {
        let is_whole = self.has_root && self.groups.iter().all(|(_, missing)| *missing == 0);
        match is_whole {
            true => Ok(self.columns),
            false => Err(ReadError::Malformed("the columns are not one tree")),
        }
    }
}
