//! Reads tables from Parquet files.

use std::fs::File;
use std::io;
use std::path::Path;

use manyways_record::table::{Batch, Data, Kind, Values};
use parquet::basic::{LogicalType, TimeUnit, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::ANONYMIZED_KEY;

/// Number of rows read at once.
const BATCH_ROWS: usize = 1 << 13;
/// Metadata keys of the schema version, as written by this program and by Arrow.
const VERSION_KEYS: [&str; 2] = ["manyways.schema", "schema"];

/// A Parquet file.
pub(crate) struct Reader {
    reader: SerializedFileReader<File>,
    columns: Vec<Column>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// `None` for types that no table has.
    pub(crate) kind: Option<Kind>,
}

impl Reader {
    /// Opens a file and reads its metadata.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| ParquetError::External(Box::new(error)))?;
        let reader = SerializedFileReader::new(file)?;
        let columns = reader.metadata().file_metadata().schema_descr().columns().iter();
        let columns = columns.map(|column| {
            // Tables have no nested and no repeated columns.
            let is_plain = column.path().parts().len() == 1 && column.max_rep_level() == 0;
            let kind = kind(column.physical_type(), column.logical_type_ref());
            Column { name: column.path().string(), kind: kind.filter(|_| is_plain) }
        });
        let columns = columns.collect();
        Ok(Self { reader, columns })
    }

    /// Schema version; `None` if the file is not a table of this family, for example
    /// `manyways-flows/`.
    pub(crate) fn version(&self, family: &str) -> Option<&str> {
        let notes = self.reader.metadata().file_metadata().key_value_metadata()?;
        let is_ours = |value: &&str| value.starts_with(family);
        VERSION_KEYS.iter().find_map(|key| {
            let mut values = notes.iter().filter(|note| note.key == *key);
            values.find_map(|note| note.value.as_deref().filter(is_ours))
        })
    }

    /// Whether the file is marked as anonymized.
    pub(crate) fn is_anonymized(&self) -> bool {
        let notes = self.reader.metadata().file_metadata().key_value_metadata();
        notes.is_some_and(|notes| notes.iter().any(|note| note.key == ANONYMIZED_KEY))
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
    ) -> Result<io::Result<()>> {
        for group in 0..self.reader.num_row_groups() {
            let group = self.reader.get_row_group(group)?;
            let mut remaining = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
            let column = |place: &Option<usize>| {
                place.map(|index| group.get_column_reader(index)).transpose()
            };
            let mut columns = places.iter().map(column).collect::<Result<Vec<_>>>()?;
            while remaining > 0 {
                let rows = remaining.min(BATCH_ROWS);
                remaining -= rows;
                let values = columns.iter_mut().map(|column| match column {
                    Some(column) => values(column, rows),
                    None => Ok(Values { present: vec![false; rows], data: Data::Flag(Vec::new()) }),
                });
                let batch = Batch::of_columns(values.collect::<Result<_>>()?);
                let batch = batch.filter(|batch| batch.rows() == rows || places.is_empty());
                let Some(batch) = batch else {
                    let what = "a column has fewer rows than its row group";
                    return Err(ParquetError::General(what.to_owned()));
                };
                if let Err(error) = each(&batch) {
                    return Ok(Err(error));
                }
            }
        }
        Ok(Ok(()))
    }
}

/// The kind of values with these types; `None` if no table has these types.
fn kind(physical: Physical, logical: Option<&LogicalType>) -> Option<Kind> {
    match (physical, logical) {
        (Physical::INT64, Some(LogicalType::Timestamp(stamp))) => {
            (stamp.unit == TimeUnit::NANOS).then_some(Kind::Time)
        }
        (Physical::INT64, None) => Some(Kind::Count),
        (Physical::INT64, Some(LogicalType::Integer(_))) => Some(Kind::Count),
        (Physical::DOUBLE, None) => Some(Kind::Number),
        (Physical::BOOLEAN, None) => Some(Kind::Flag),
        (Physical::BYTE_ARRAY, Some(LogicalType::String)) => Some(Kind::Text),
        _ => None,
    }
}

/// The next rows of a column.
fn values(column: &mut ColumnReader, rows: usize) -> Result<Values> {
    match column {
        ColumnReader::Int64ColumnReader(column) => read_values(column, rows, Data::Integer),
        ColumnReader::DoubleColumnReader(column) => read_values(column, rows, Data::Number),
        ColumnReader::BoolColumnReader(column) => read_values(column, rows, Data::Flag),
        ColumnReader::ByteArrayColumnReader(column) => {
            let mut fault = None;
            let values = read_values(column, rows, |texts: Vec<ByteArray>| {
                let (mut all, mut ends) = (String::new(), Vec::with_capacity(texts.len()));
                for text in &texts {
                    match text.as_utf8() {
                        Ok(text) => all.push_str(text),
                        Err(error) => fault = Some(error),
                    }
                    ends.push(all.len());
                }
                Data::Text(all, ends)
            })?;
            fault.map_or(Ok(values), Err)
        }
        _ => Err(ParquetError::General("a column has an unsupported type".to_owned())),
    }
}

fn read_values<T: DataType>(
    column: &mut ColumnReaderImpl<T>,
    rows: usize,
    data: impl FnOnce(Vec<T::T>) -> Data,
) -> Result<Values> {
    let (mut levels, mut values) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    let mut read = 0;
    // A read may stop at the end of a page.
    while read < rows {
        let (more, ..) = column.read_records(rows - read, Some(&mut levels), None, &mut values)?;
        if more == 0 {
            break;
        }
        read += more;
    }
    // A column without absent values has no levels.
    let present = match levels.is_empty() {
        true => vec![true; read],
        false => levels.iter().map(|level| *level > 0).collect(),
    };
    Ok(Values { present, data: data(values) })
}
