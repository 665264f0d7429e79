//! Reads tables from Parquet files.
//!
//! A file may come from anywhere, and the `parquet` crate panics on many malformed ones: negative
//! offsets, indices without a dictionary, texts that are cut off, deeply nested columns, sizes
//! that no memory has. So this program writes with the crate, but reads by itself, with the few
//! encodings that tables have.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use manyways_record::table::{Batch, Data, Kind, Values};

use super::footer::Footer;
use super::pages::{Pages, bytes};
use super::{ANONYMIZED_KEY, ReadError};

/// Number of rows read at once.
const BATCH_ROWS: u64 = 1 << 13;
/// Metadata keys of the schema version, as written by this program and by Arrow.
const VERSION_KEYS: [&str; 2] = ["manyways.schema", "schema"];
const MAGIC: [u8; 4] = *b"PAR1";
/// The length of the metadata, and the magic number.
const TAIL: u64 = 8;
/// Length of the metadata, at most.
const MAX_FOOTER: u64 = 1 << 28;
/// Bytes of all open pages, their dictionaries and the rows that are read at once, at most. A small
/// file can have a hundred columns with large pages.
const MAX_HELD: usize = 1 << 29;

/// A Parquet file.
pub(crate) struct Reader {
    file: File,
    footer: Footer,
    columns: Vec<Column>,
    pub(super) max_held: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// `None` for types that no table has.
    pub(crate) kind: Option<Kind>,
}

impl Reader {
    /// Opens a file and reads its metadata.
    pub(crate) fn open(path: &Path) -> Result<Self, ReadError> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let end = length.checked_sub(TAIL).ok_or(ReadError::NotParquet)?;
        let mut tail = [0; TAIL as usize];
        file.read_exact_at(&mut tail, end)?;
        let ([size @ .., _, _, _, _], [_, _, _, _, magic @ ..]) = (&tail, &tail);
        if *magic != MAGIC {
            return Err(ReadError::NotParquet);
        }
        let size = u64::from(u32::from_le_bytes(*size));
        let end = end.checked_sub(size).filter(|_| size <= MAX_FOOTER);
        let end = end.ok_or(ReadError::Malformed("the length of its metadata is wrong"))?;
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        file.read_exact_at(&mut bytes, end)?;
        let footer = Footer::parse(&bytes, end, length)?;
        let columns = footer.columns.iter();
        let columns = columns.map(|leaf| Column { name: leaf.name.clone(), kind: leaf.kind });
        let columns = columns.collect();
        Ok(Self { file, footer, columns, max_held: MAX_HELD })
    }

    /// Schema version; `None` if the file is not a table of this family, for example
    /// `manyways-flows/`.
    pub(crate) fn version(&self, family: &str) -> Option<&str> {
        VERSION_KEYS.iter().find_map(|key| {
            let mut notes = self.footer.notes.iter();
            let found = notes.find(|note| note.0 == *key && note.1.starts_with(family))?;
            Some(found.1.as_str())
        })
    }

    /// Whether the file is marked as anonymized.
    pub(crate) fn is_anonymized(&self) -> bool {
        self.footer.notes.iter().any(|(key, _)| key == ANONYMIZED_KEY)
    }

    /// The columns in file order.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Passes the values of these columns to `each`, some thousand rows at a time; `None` stands
    /// for a column without values. The inner error is that of `each`.
    pub(crate) fn read(
        &self,
        places: &[Option<usize>],
        mut each: impl FnMut(&Batch) -> io::Result<()>,
    ) -> Result<io::Result<()>, ReadError> {
        for group in &self.footer.groups {
            let column = |place: &Option<usize>| {
                let found = place.and_then(|index| {
                    Some((self.footer.columns.get(index)?, group.chunks.get(index)?))
                });
                let Some((leaf, chunk)) = found else { return Ok(None) };
                let pages = Pages::new(&self.file, leaf, chunk);
                pages.map(|pages| Some((leaf, pages))).map_err(|error| error.of(&leaf.name))
            };
            let mut columns = places.iter().map(column).collect::<Result<Vec<_>, _>>()?;
            let mut remaining = group.rows;
            while remaining > 0 {
                let rows = remaining.min(BATCH_ROWS);
                remaining -= rows;
                let rows = rows as usize;
                let mut held = 0;
                let values = columns.iter_mut().map(|column| match column {
                    Some((leaf, pages)) => {
                        let values = pages.read(rows).map_err(|error| error.of(&leaf.name))?;
                        held += pages.held() + bytes(&values.data);
                        if held > self.max_held {
                            return Err(ReadError::Malformed("its pages are too large"));
                        }
                        Ok(values)
                    }
                    None => Ok(Values { present: vec![false; rows], data: Data::Flag(Vec::new()) }),
                });
                let batch = Batch::of_columns(values.collect::<Result<_, _>>()?);
                let batch = batch.ok_or(ReadError::Malformed("its columns differ in rows"))?;
                if let Err(error) = each(&batch) {
                    return Ok(Err(error));
                }
            }
        }
        Ok(Ok(()))
    }
}
