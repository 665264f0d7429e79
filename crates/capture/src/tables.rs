//! Reads the tables of a folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use manyways_flows::SCHEMA;
use manyways_flows::analysis::schemas;
use manyways_record::table::{Batch, Kind, Schema};
use thiserror::Error;

use super::folder::SHARD_PREFIX;
use super::parquet::ReadError;
use super::parquet::reader::{Column, Reader};

/// File name extension of tables.
const TABLE_EXTENSION: &str = ".parquet";

/// The tables in the folder of a run, or of the shards (subfolders) of many runs.
#[derive(Debug)]
pub struct Tables {
    path: PathBuf,
    files: BTreeMap<String, Vec<TableFile>>,
}

/// A file with rows of a table.
#[derive(Clone, Debug)]
struct TableFile {
    path: PathBuf,
    /// Name of the shard; `None` for a table in the folder itself.
    shard: Option<String>,
    is_anonymized: bool,
}

/// Reason why tables cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TablesError {
    /// The path is not a folder.
    #[error("{path} is not a folder", path = .0.display())]
    NotAFolder(PathBuf),
    /// The folder contains no table.
    #[error("{path} has no tables of flows", path = .0.display())]
    Empty(PathBuf),
    /// The folder cannot be read.
    #[error("cannot read {path}: {error}", path = .path.display())]
    Read {
        path: PathBuf,
        /// Error of the system.
        #[source]
        error: io::Error,
    },
    /// A file with the name of a table that is not a table.
    #[error("{path} is not a table of manyways flows", path = .0.display())]
    NotATable(PathBuf),
    /// A table of another schema version.
    #[error("{path} has the schema {found}, but this program reads {expected}", path = .path.display())]
    Version {
        path: PathBuf,
        /// Version in the file.
        found: String,
        /// Version of the program.
        expected: &'static str,
    },
    /// The file is broken, or not Parquet.
    #[error("{path} cannot be read: {error}", path = .path.display())]
    Invalid {
        path: PathBuf,
        #[source]
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A column with values of a type that no table has.
    #[error("column {column} of {path} has an unsupported type", path = .path.display())]
    Column {
        path: PathBuf,
        /// Name of the column.
        column: String,
    },
}

impl TablesError {
    /// Hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Version { .. } => "write the tables again with this version of manyways",
            _ => "write tables with: manyways flows CAPTURE -o DIR",
        }
    }
}

impl Tables {
    /// Finds the tables of a folder: its own, or those of the shards in it for tables that the
    /// folder itself lacks. Other files are ignored.
    pub fn open(path: &Path) -> Result<Self, TablesError> {
        if !path.is_dir() {
            return Err(TablesError::NotAFolder(path.to_owned()));
        }
        let mut files: BTreeMap<String, Vec<TableFile>> = BTreeMap::new();
        find(path, None, &mut files)?;
        let mut of_shards = BTreeMap::new();
        for (home, name) in shards(path)? {
            find(&home, Some(&name), &mut of_shards)?;
        }
        for (table, parts) in of_shards {
            files.entry(table).or_insert(parts);
        }
        if files.is_empty() {
            return Err(TablesError::Empty(path.to_owned()));
        }
        Ok(Self { path: path.to_owned(), files })
    }

    /// Reads a single file as the table of this name.
    pub fn file(path: &Path, table: &str) -> Result<Self, TablesError> {
        let is_masked = open(path, table)?.is_anonymized();
        let part = TableFile { path: path.to_owned(), shard: None, is_anonymized: is_masked };
        let files = BTreeMap::from([(table.to_owned(), vec![part])]);
        Ok(Self { path: path.to_owned(), files })
    }

    /// Path of the folder or file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    pub fn has(&self, table: &str) -> bool {
        self.files.contains_key(table)
    }

    /// Whether a table has rows of shards.
    pub fn is_sharded(&self, table: &str) -> bool {
        self.table_files(table).iter().any(|part| part.shard.is_some())
    }

    /// Whether a table is marked as anonymized.
    pub fn is_anonymized(&self, table: &str) -> bool {
        self.table_files(table).iter().any(|part| part.is_anonymized)
    }

    /// Names and kinds of the columns of a table, over all shards, whose columns may differ.
    pub fn columns(&self, table: &str) -> Result<Vec<(String, Kind)>, TablesError> {
        let mut columns: Vec<(String, Kind)> = Vec::new();
        for part in self.table_files(table) {
            for column in open(&part.path, table)?.columns() {
                let unread =
                    || TablesError::Column { path: part.path.clone(), column: column.name.clone() };
                let kind = column.kind.ok_or_else(unread)?;
                match columns.iter().find(|(name, _)| *name == column.name) {
                    Some((_, known)) if *known != kind => return Err(unread()),
                    Some(_) => {}
                    None => columns.push((column.name.clone(), kind)),
                }
            }
        }
        Ok(columns)
    }

    /// Passes all rows of a table to `each`, some thousand at a time: the values of these columns,
    /// and the shard of the rows. A missing column has no values. The inner error is that of
    /// `each`.
    pub fn read(
        &self,
        table: &str,
        columns: &[&str],
        mut each: impl FnMut(&Batch, &[Kind], Option<&str>) -> io::Result<()>,
    ) -> Result<io::Result<()>, TablesError> {
        for part in self.table_files(table) {
            let reader = open(&part.path, table)?;
            let (mut places, mut kinds) = (Vec::new(), Vec::new());
            for wanted in columns {
                let place = reader.columns().iter().position(|column| column.name == *wanted);
                let unread = || TablesError::Column {
                    path: part.path.clone(),
                    column: (*wanted).to_owned(),
                };
                let column = place.and_then(|index| reader.columns().get(index));
                // The kind of a missing column does not matter.
                let kind = column.map_or(Some(Kind::Flag), |column| column.kind);
                places.push(place);
                kinds.push(kind.ok_or_else(unread)?);
            }
            let read = reader.read(&places, |batch| each(batch, &kinds, part.shard.as_deref()));
            if let Err(error) = read.map_err(|error| invalid_file(&part.path, error))? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    fn table_files(&self, table: &str) -> &[TableFile] {
        self.files.get(table).map_or(&[], Vec::as_slice)
    }
}

/// Opens a file and checks that it contains this table, in the version of this program. A table
/// that this program does not have needs the version of the family.
fn open(path: &Path, table: &str) -> Result<Reader, TablesError> {
    let known = schemas().into_iter().find(|schema| schema.table == table);
    open_version(path, known.map_or(SCHEMA, |schema| schema.id))
}

/// Opens a file and checks that it has this schema.
fn open_version(path: &Path, expected: &'static str) -> Result<Reader, TablesError> {
    let reader = Reader::open(path).map_err(|error| invalid_file(path, error))?;
    let family = expected.find('/').map_or(expected, |slash| &expected[..=slash]);
    match reader.version(family) {
        Some(version) if version == expected => Ok(reader),
        Some(found) => {
            let (path, found) = (path.to_owned(), found.to_owned());
            Err(TablesError::Version { path, found, expected })
        }
        None => Err(TablesError::NotATable(path.to_owned())),
    }
}

/// Passes all rows of a file with this schema to `each`, some thousand at a time, with the columns
/// of the schema. A missing column has no values.
///
/// # Errors
/// The file cannot be read, or has another schema.
pub fn read_table(
    path: &Path,
    schema: &Schema,
    mut each: impl FnMut(&Batch, &[Kind]),
) -> Result<(), TablesError> {
    let reader = open_version(path, schema.id)?;
    let mut places = Vec::new();
    for (name, kind, _) in &schema.columns {
        let place = reader.columns().iter().position(|column| column.name == *name);
        let found = place.and_then(|index| reader.columns().get(index));
        let is_alike = |column: &Column| column.kind.is_some_and(|found| found.is_alike(*kind));
        if found.is_some_and(|column| !is_alike(column)) {
            let (path, column) = (path.to_owned(), (*name).to_owned());
            return Err(TablesError::Column { path, column });
        }
        places.push(place);
    }
    let kinds: Vec<Kind> = schema.columns.iter().map(|(_, kind, _)| *kind).collect();
    let read = reader.read(&places, |batch| {
        each(batch, &kinds);
        Ok(())
    });
    read.map_err(|error| invalid_file(path, error))?
        .map_err(|error| TablesError::Read { path: path.to_owned(), error })
}

fn invalid_file(path: &Path, error: ReadError) -> TablesError {
    let error: Box<dyn std::error::Error + Send + Sync> = match error {
        ReadError::Io(inner) => Box::new(inner),
        other => Box::new(other),
    };
    TablesError::Invalid { path: path.to_owned(), error }
}

/// Adds the tables in this folder itself.
fn find(
    home: &Path,
    shard: Option<&str>,
    files: &mut BTreeMap<String, Vec<TableFile>>,
) -> Result<(), TablesError> {
    let known: Vec<&str> = schemas().iter().map(|schema| schema.table).collect();
    for path in entries(home)? {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let Some(table) = name.as_deref().and_then(|name| name.strip_suffix(TABLE_EXTENSION))
        else {
            continue;
        };
        if !known.contains(&table) && !open(&path, table).is_ok_and(|_| is_safe_name(table)) {
            continue;
        }
        let is_masked = open(&path, table)?.is_anonymized();
        let part = TableFile { path, shard: shard.map(str::to_owned), is_anonymized: is_masked };
        files.entry(table.to_owned()).or_default().push(part);
    }
    Ok(())
}

/// Whether a table name is safe as a file name.
fn is_safe_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The shards in a folder, with their names.
fn shards(path: &Path) -> Result<Vec<(PathBuf, String)>, TablesError> {
    let named = entries(path)?.into_iter().filter_map(|entry| {
        let name = entry.file_name()?.to_string_lossy().strip_prefix(SHARD_PREFIX)?.to_owned();
        entry.is_dir().then_some((entry, name))
    });
    Ok(named.collect())
}

/// The entries of a folder, sorted by name.
fn entries(path: &Path) -> Result<Vec<PathBuf>, TablesError> {
    let wrong = |error| TablesError::Read { path: path.to_owned(), error };
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(wrong)? {
        entries.push(entry.map_err(wrong)?.path());
    }
    entries.sort();
    Ok(entries)
}
