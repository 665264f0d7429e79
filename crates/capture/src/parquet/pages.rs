//! The pages with the values of a column.
//!
//! Source: <https://github.com/apache/parquet-format/blob/master/README.md#data-pages>. The
//! encodings are PLAIN, RLE and RLE_DICTIONARY, and the compression is Zstandard or none: the
//! defaults of this program and, with Zstandard, of Arrow.

use std::fs::File;
use std::iter::repeat_n;
use std::os::unix::fs::FileExt;

use manyways_record::table::{Data, Values};
use zstd::bulk::Decompressor;

use super::ReadError;
use super::footer::{Chunk, Leaf, Physical};
use super::runs::Runs;
use super::thrift::{Input, Kind};

/// Largest uncompressed page.
const MAX_PAGE: u64 = 1 << 26;
/// Largest header of a page, which may contain the smallest and the largest text.
const MAX_HEADER: u64 = 1 << 22;
const FIRST_HEADER: u64 = 1 << 9;
/// Bytes of the texts that are read at once, at most. A short index may stand for a long text.
const MAX_TEXT: usize = 1 << 27;

const UNCOMPRESSED: i64 = 0;
const ZSTANDARD: i64 = 6;

const PLAIN: i64 = 0;
const PLAIN_DICTIONARY: i64 = 2;
const RLE: i64 = 3;
const RLE_DICTIONARY: i64 = 8;

/// A position in the pages of a column in one group of rows.
pub(super) struct Pages<'f> {
    file: &'f File,
    physical: Physical,
    is_optional: bool,
    /// `None` without compression.
    decompressor: Option<Decompressor<'static>>,
    /// Begin of the next page.
    at: u64,
    end: u64,
    dictionary: Option<Data>,
    page: Option<Page>,
}

/// A page with rows.
struct Page {
    bytes: Vec<u8>,
    /// Rows that are not read yet.
    rows: usize,
    /// For each row, 1 if it has a value; `None` if all rows have one.
    levels: Option<Runs>,
    values: Encoded,
}

enum Encoded {
    /// Position of the next value in the bytes.
    Plain(usize),
    Flags(Runs),
    /// Places of the values in the dictionary.
    Indices(Runs),
}

/// The header of a page.
#[derive(Default)]
struct Header {
    kind: i64,
    uncompressed: u64,
    compressed: u64,
    values: u64,
    encoding: i64,
    /// Encoding of the levels, in the first version of data pages.
    level_encoding: i64,
    /// Bytes of the levels, in the second version.
    levels: u64,
    repetitions: u64,
    is_uncompressed: bool,
}

impl<'f> Pages<'f> {
    pub(super) fn new(file: &'f File, column: &Leaf, chunk: &Chunk) -> Result<Self, ReadError> {
        let decompressor = match chunk.codec {
            UNCOMPRESSED => None,
            ZSTANDARD => Some(Decompressor::new()?),
            _ => return Err(ReadError::Unsupported("compression other than Zstandard")),
        };
        Ok(Self {
            file,
            physical: column.physical,
            is_optional: column.is_optional,
            decompressor,
            at: chunk.begin,
            end: chunk.end,
            dictionary: None,
            page: None,
        })
    }

    /// The values of the next rows.
    pub(super) fn read(&mut self, rows: usize) -> Result<Values, ReadError> {
        let mut present = Vec::with_capacity(rows);
        let mut data = empty(self.physical)?;
        while present.len() < rows {
            let Some(page) = self.page.as_mut().filter(|page| page.rows > 0) else {
                self.next_page()?;
                continue;
            };
            let first = present.len();
            let count = page.rows.min(rows - first);
            page.rows -= count;
            match &mut page.levels {
                Some(levels) => levels.read(&page.bytes, count, |level, times| {
                    present.resize(present.len() + times, level == 1);
                    Ok(())
                })?,
                None => present.resize(first + count, true),
            }
            let count = present.iter().skip(first).filter(|is_there| **is_there).count();
            match &mut page.values {
                Encoded::Plain(at) => *at = plain(&page.bytes, *at, count, &mut data)?,
                Encoded::Flags(runs) => runs.read(&page.bytes, count, |flag, times| {
                    if let Data::Flag(all) = &mut data {
                        all.resize(all.len() + times, flag == 1);
                    }
                    Ok(())
                })?,
                Encoded::Indices(runs) => {
                    let dictionary = self.dictionary.as_ref();
                    runs.read(&page.bytes, count, |index, times| {
                        copy(dictionary, self::count(index.into()), times, &mut data)
                    })?;
                }
            }
        }
        Ok(Values { present, data })
    }

    /// Bytes of the open page and of the dictionary.
    pub(super) fn held(&self) -> usize {
        let page = self.page.as_ref().map_or(0, |page| page.bytes.len());
        page + self.dictionary.as_ref().map_or(0, bytes)
    }

    /// Reads a dictionary or a page with rows.
    fn next_page(&mut self) -> Result<(), ReadError> {
        if self.at >= self.end {
            return Err(ReadError::Malformed("it has fewer rows than its group"));
        }
        let (header, length) = self.header()?;
        let begin = self.at + length;
        let next = begin.checked_add(header.compressed).filter(|next| *next <= self.end);
        self.at = next.ok_or(ReadError::Malformed("a page is longer than its column"))?;
        if header.compressed.max(header.uncompressed) > MAX_PAGE {
            return Err(ReadError::Malformed("a page is too large"));
        }
        let mut bytes = vec![0; usize::try_from(header.compressed).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, begin)?;
        match header.kind {
            0 => self.page = Some(self.first_version(&header, bytes)?),
            2 => self.dictionary = Some(self.dictionary(&header, bytes)?),
            3 => self.page = Some(self.second_version(&header, bytes)?),
            // An index, or a kind of the future.
            _ => {}
        }
        Ok(())
    }

    /// The header of the next page, and its length.
    fn header(&self) -> Result<(Header, u64), ReadError> {
        let room = (self.end - self.at).min(MAX_HEADER);
        let mut length = FIRST_HEADER.min(room);
        loop {
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
            self.file.read_exact_at(&mut bytes, self.at)?;
            let mut input = Input::new(&bytes);
            match Header::parse(&mut input) {
                Ok(header) => return Ok((header, length - input.len() as u64)),
                Err(ReadError::Short) if length < room => length = (length * 8).min(room),
                Err(error) => return Err(error),
            }
        }
    }

    fn dictionary(&mut self, header: &Header, bytes: Vec<u8>) -> Result<Data, ReadError> {
        if !matches!(header.encoding, PLAIN | PLAIN_DICTIONARY) {
            return Err(ReadError::Unsupported("a dictionary that is not plain"));
        }
        let bytes = self.uncompressed(bytes, header.uncompressed)?;
        let mut data = empty(self.physical)?;
        plain(&bytes, 0, count(header.values), &mut data)?;
        Ok(data)
    }

    fn first_version(&mut self, header: &Header, bytes: Vec<u8>) -> Result<Page, ReadError> {
        let bytes = self.uncompressed(bytes, header.uncompressed)?;
        let (mut levels, mut at) = (None, 0);
        if self.is_optional {
            if header.level_encoding != RLE {
                return Err(ReadError::Unsupported("an old encoding of absent values"));
            }
            let end = prefixed(&bytes, 0)?;
            levels = Some(Runs::new(1, 4, end)?);
            at = end;
        }
        self.page(header, bytes, levels, at)
    }

    fn second_version(&mut self, header: &Header, mut bytes: Vec<u8>) -> Result<Page, ReadError> {
        let begin = count(header.repetitions);
        let at = begin.saturating_add(count(header.levels));
        if at > bytes.len() {
            return Err(ReadError::Short);
        }
        if !header.is_uncompressed && self.decompressor.is_some() {
            let size = header.uncompressed.checked_sub(at as u64).ok_or(ReadError::Short)?;
            // A page without values has nothing to decompress.
            let values = match size {
                0 => Vec::new(),
                _ => self.uncompressed(bytes.split_off(at), size)?,
            };
            bytes.truncate(at);
            bytes.extend(values);
        }
        let levels = self.is_optional.then(|| Runs::new(1, begin, at)).transpose()?;
        self.page(header, bytes, levels, at)
    }

    /// A page with values from a position on.
    fn page(
        &self,
        header: &Header,
        bytes: Vec<u8>,
        levels: Option<Runs>,
        at: usize,
    ) -> Result<Page, ReadError> {
        let values = match (header.encoding, self.physical) {
            (PLAIN, Physical::Flag) => Encoded::Flags(Runs::bits(at, bytes.len())),
            (PLAIN, _) => Encoded::Plain(at),
            // A page without a value may also lack the runs.
            (RLE, Physical::Flag) if at == bytes.len() => Encoded::Flags(Runs::bits(at, at)),
            (RLE, Physical::Flag) => {
                let end = prefixed(&bytes, at)?;
                Encoded::Flags(Runs::new(1, at + 4, end)?)
            }
            (PLAIN_DICTIONARY | RLE_DICTIONARY, _) => match bytes.get(at) {
                Some(width) => Encoded::Indices(Runs::new(*width, at + 1, bytes.len())?),
                None => Encoded::Plain(at),
            },
            _ => return Err(ReadError::Unsupported("an encoding that tables do not have")),
        };
        Ok(Page { bytes, rows: count(header.values), levels, values })
    }

    fn uncompressed(&mut self, bytes: Vec<u8>, size: u64) -> Result<Vec<u8>, ReadError> {
        let Some(decompressor) = &mut self.decompressor else { return Ok(bytes) };
        let size = count(size);
        match decompressor.decompress(&bytes, size) {
            Ok(bytes) if bytes.len() == size => Ok(bytes),
            _ => Err(ReadError::Malformed("a page cannot be decompressed")),
        }
    }
}

impl Header {
    fn parse(input: &mut Input<'_>) -> Result<Self, ReadError> {
        let mut header = Self { kind: -1, ..Self::default() };
        input.fields(Kind::Struct, |input, number, kind| {
            match number {
                1 => header.kind = input.number(kind)?,
                2 => header.uncompressed = input.count(kind)?,
                3 => header.compressed = input.count(kind)?,
                // A data page, or a dictionary.
                5 | 7 => input.fields(kind, |input, number, kind| {
                    match number {
                        1 => header.values = input.count(kind)?,
                        2 => header.encoding = input.number(kind)?,
                        3 if matches!(kind, Kind::Integer) => {
                            header.level_encoding = input.number(kind)?;
                        }
                        _ => input.skip(kind)?,
                    }
                    Ok(())
                })?,
                8 => input.fields(kind, |input, number, kind| {
                    match number {
                        1 => header.values = input.count(kind)?,
                        4 => header.encoding = input.number(kind)?,
                        5 => header.levels = input.count(kind)?,
                        6 => header.repetitions = input.count(kind)?,
                        7 => header.is_uncompressed = kind == Kind::False,
                        _ => input.skip(kind)?,
                    }
                    Ok(())
                })?,
                _ => input.skip(kind)?,
            }
            Ok(())
        })?;
        Ok(header)
    }
}

/// A number of values or bytes; one that the memory cannot have fails later.
fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Bytes that values occupy.
pub(super) fn bytes(data: &Data) -> usize {
    match data {
        Data::Flag(all) => all.len(),
        Data::Integer(all) => 8 * all.len(),
        Data::Number(all) => 8 * all.len(),
        Data::Text(all, ends) => all.len() + 8 * ends.len(),
    }
}

fn empty(physical: Physical) -> Result<Data, ReadError> {
    Ok(match physical {
        Physical::Flag => Data::Flag(Vec::new()),
        Physical::Integer => Data::Integer(Vec::new()),
        Physical::Number => Data::Number(Vec::new()),
        Physical::Text => Data::Text(String::new(), Vec::new()),
        Physical::Other => return Err(ReadError::Unsupported("a type that tables do not have")),
    })
}

/// The end of a part of a page that begins with its length.
fn prefixed(bytes: &[u8], at: usize) -> Result<usize, ReadError> {
    let length = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(ReadError::Short)?;
    let end = at.saturating_add(4).saturating_add(count(u32::from_le_bytes(*length).into()));
    if end <= bytes.len() { Ok(end) } else { Err(ReadError::Short) }
}

/// Adds values from a position in a page on, and returns the position behind them.
fn plain(bytes: &[u8], at: usize, count: usize, data: &mut Data) -> Result<usize, ReadError> {
    let rest = bytes.get(at..).ok_or(ReadError::Short)?;
    let words = || {
        let part = rest.get(..count.saturating_mul(8)).ok_or(ReadError::Short)?;
        Ok::<_, ReadError>(part.as_chunks::<8>().0)
    };
    match data {
        Data::Integer(all) => all.extend(words()?.iter().map(|word| i64::from_le_bytes(*word))),
        Data::Number(all) => all.extend(words()?.iter().map(|word| f64::from_le_bytes(*word))),
        Data::Flag(_) => return Err(ReadError::Unsupported("a dictionary of flags")),
        Data::Text(all, ends) => {
            let mut rest = rest;
            for _ in 0..count {
                let (length, behind) = rest.split_first_chunk().ok_or(ReadError::Short)?;
                let length = self::count(u32::from_le_bytes(*length).into());
                let (text, behind) = behind.split_at_checked(length).ok_or(ReadError::Short)?;
                let text = str::from_utf8(text);
                let text = text.map_err(|_| ReadError::Malformed("a text is not UTF-8"))?;
                add(text, all, ends)?;
                rest = behind;
            }
            return Ok(bytes.len() - rest.len());
        }
    }
    Ok(at + 8 * count)
}

fn add(text: &str, all: &mut String, ends: &mut Vec<usize>) -> Result<(), ReadError> {
    if all.len() + text.len() > MAX_TEXT {
        return Err(ReadError::Malformed("its texts are too long"));
    }
    all.push_str(text);
    ends.push(all.len());
    Ok(())
}

/// Adds a value of a dictionary some times.
fn copy(
    dictionary: Option<&Data>,
    index: usize,
    times: usize,
    data: &mut Data,
) -> Result<(), ReadError> {
    const MISSING: ReadError = ReadError::Malformed("a value is not in the dictionary");
    match (dictionary, data) {
        (Some(Data::Integer(from)), Data::Integer(all)) => {
            all.extend(repeat_n(*from.get(index).ok_or(MISSING)?, times));
        }
        (Some(Data::Number(from)), Data::Number(all)) => {
            all.extend(repeat_n(*from.get(index).ok_or(MISSING)?, times));
        }
        (Some(Data::Text(from, starts)), Data::Text(all, ends)) => {
            let end = *starts.get(index).ok_or(MISSING)?;
            let begin = index.checked_sub(1).and_then(|before| starts.get(before)).copied();
            let text = from.get(begin.unwrap_or(0)..end).ok_or(MISSING)?;
            (0..times).try_for_each(|_| add(text, all, ends))?;
        }
        _ => return Err(MISSING),
    }
    Ok(())
}
