//! Writes tables as Parquet files, and reads them.

mod footer;
mod pages;
pub(super) mod reader;
mod runs;
#[cfg(test)]
mod tests;
mod thrift;

use std::io::{self, Write};
use std::sync::Arc;

use manyways_record::table::{Batch, Data, Kind, Schema, Values};
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};
use thiserror::Error;

/// Metadata key of files with anonymized names and addresses.
const ANONYMIZED_KEY: &str = "manyways.anonymized";

/// Reason why a Parquet file cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is not a Parquet file")]
    NotParquet,
    /// A value is longer than the part of the file that contains it.
    #[error("it is malformed: a part of it is cut off")]
    Short,
    #[error("it is malformed: {0}")]
    Malformed(&'static str),
    /// Correct, but not part of any table.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    #[error("column {column}: {error}")]
    Column {
        /// Name of the column.
        column: String,
        #[source]
        error: Box<ReadError>,
    },
}

impl ReadError {
    /// The error as that of a column.
    fn of(self, column: &str) -> Self {
        Self::Column { column: column.to_owned(), error: Box::new(self) }
    }
}

/// A Parquet file that is being written.
pub(super) struct Table<W: Write + Send> {
    writer: SerializedFileWriter<W>,
}

impl<W: Write + Send> Table<W> {
    /// Creates a file. Its metadata contains the descriptions of the columns, and whether names and
    /// addresses are anonymized.
    pub(super) fn new(schema: &Schema, is_masked: bool, out: W) -> Result<Self> {
        let mut notes = vec![
            key_value("manyways.schema", schema.id.to_owned()),
            key_value("manyways.table", schema.about.to_owned()),
        ];
        if is_masked {
            notes.push(key_value(ANONYMIZED_KEY, "true".to_owned()));
        }
        for (name, kind, about) in &schema.columns {
            notes.push(key_value(
                &format!("manyways.column.{name}"),
                format!("{}{about}", unit(*kind)),
            ));
        }
        let properties = WriterProperties::builder()
            .set_created_by(concat!("manyways ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_key_value_metadata(Some(notes))
            .build();
        let fields = schema.columns.iter().map(|(name, kind, _)| field(name, *kind));
        let root = Type::group_type_builder(schema.table)
            .with_fields(fields.collect::<Result<_>>()?)
            .build()?;
        Ok(Self { writer: SerializedFileWriter::new(out, Arc::new(root), Arc::new(properties))? })
    }

    /// Writes rows as a separate row group.
    pub(super) fn write(&mut self, batch: &Batch) -> Result<()> {
        if batch.rows() == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        let mut columns = batch.columns().iter();
        while let Some(mut column) = group.next_column()? {
            let Some(Values { present, data }) = columns.next() else { break };
            let levels: Vec<i16> = present.iter().map(|is_there| i16::from(*is_there)).collect();
            let levels = Some(levels.as_slice());
            match data {
                Data::Integer(all) => column.typed::<Int64Type>().write_batch(all, levels, None)?,
                Data::Number(all) => column.typed::<DoubleType>().write_batch(all, levels, None)?,
                Data::Flag(all) => column.typed::<BoolType>().write_batch(all, levels, None)?,
                Data::Text(all, ends) => {
                    let begins = std::iter::once(&0).chain(ends);
                    let texts: Vec<ByteArray> =
                        begins.zip(ends).map(|(begin, end)| all[*begin..*end].into()).collect();
                    column.typed::<ByteArrayType>().write_batch(&texts, levels, None)?
                }
            };
            column.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Writes the footer of the file.
    pub(super) fn close(self) -> Result<()> {
        self.writer.close().map(drop)
    }
}

fn key_value(key: &str, value: String) -> KeyValue {
    KeyValue::new(key.to_owned(), value)
}

/// Unit of the values of a column.
fn unit(kind: Kind) -> &'static str {
    match kind {
        Kind::Time => "[UTC] ",
        Kind::Span => "[s] ",
        _ => "",
    }
}

fn field(name: &str, kind: Kind) -> Result<TypePtr> {
    let (physical, logical) = match kind {
        Kind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::NANOS))),
        Kind::Count | Kind::Flow => (Physical::INT64, None),
        Kind::Span | Kind::Number => (Physical::DOUBLE, None),
        Kind::Flag => (Physical::BOOLEAN, None),
        Kind::Text | Kind::Address | Kind::Name => {
            (Physical::BYTE_ARRAY, Some(LogicalType::String))
        }
    };
    let built = Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()?;
    Ok(Arc::new(built))
}
