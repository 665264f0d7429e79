//! The tables of a folder, read again.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use manyways_flows::analysis::schemas;
use manyways_record::table::{Batch, Kind, VERSION};
use parquet::errors::ParquetError;
use thiserror::Error;

use super::folder::SHARD;
use super::parquet::reader::Reader;

/// What the file of a table is called, behind its name.
const ENDING: &str = ".parquet";

/// The tables of a folder that a run wrote, or of the shards of many runs in it.
#[derive(Debug)]
pub struct Tables {
    path: PathBuf,
    files: BTreeMap<String, Vec<Part>>,
}

/// A file with rows of a table.
#[derive(Clone, Debug)]
struct Part {
    path: PathBuf,
    /// Whose shard it is.
    shard: Option<String>,
    is_masked: bool,
}

/// Why tables cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TablesError {
    /// There is no such folder.
    #[error("{path} is no folder", path = .0.display())]
    NoFolder(PathBuf),
    /// There is no table in it.
    #[error("{path} has no tables of flows", path = .0.display())]
    Empty(PathBuf),
    /// It cannot be looked into.
    #[error("cannot read {path}: {error}", path = .path.display())]
    Read {
        /// What.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// A file has the name of a table, and is something else.
    #[error("{path} is no table of manyways flows", path = .0.display())]
    Foreign(PathBuf),
    /// It is of another version.
    #[error("{path} is a table of {found}, and this program reads manyways-flows/{VERSION}", path = .path.display())]
    Version {
        /// Which.
        path: PathBuf,
        /// Its version.
        found: String,
    },
    /// It is broken, or no Parquet.
    #[error("{path} cannot be read: {error}", path = .path.display())]
    Broken {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A column has values that a table of ours never has.
    #[error("{path} has values in its column {column} that are not read", path = .path.display())]
    Column {
        /// Which file.
        path: PathBuf,
        /// Which column.
        column: String,
    },
}

impl TablesError {
    /// What the user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Version { .. } => "write the tables again with the manyways of this version",
            _ => "write tables with: manyways flows CAPTURE -o DIR",
        }
    }
}

impl Tables {
    /// Finds the tables of a folder: its own, or those of the shards in it where it has none of that
    /// name. Files of other programs that have not the name of a table are passed over.
    pub fn open(path: &Path) -> Result<Self, TablesError> {
        if !path.is_dir() {
            return Err(TablesError::NoFolder(path.to_owned()));
        }
        let mut files: BTreeMap<String, Vec<Part>> = BTreeMap::new();
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

    /// One file, which has to be the table of that name.
    pub fn file(path: &Path, table: &str) -> Result<Self, TablesError> {
        let is_masked = open(path)?.is_masked();
        let part = Part { path: path.to_owned(), shard: None, is_masked };
        let files = BTreeMap::from([(table.to_owned(), vec![part])]);
        Ok(Self { path: path.to_owned(), files })
    }

    /// Where they are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the tables.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Whether there is a table of this name.
    pub fn has(&self, table: &str) -> bool {
        self.files.contains_key(table)
    }

    /// Whether a table has rows of several shards.
    pub fn is_sharded(&self, table: &str) -> bool {
        self.parts(table).iter().any(|part| part.shard.is_some())
    }

    /// Whether names and addresses of a table are known to be hidden.
    pub fn is_anonymized(&self, table: &str) -> bool {
        self.parts(table).iter().any(|part| part.is_masked)
    }

    /// Name and kind of each column of a table. Of shards, some may have columns that others have
    /// not.
    pub fn columns(&self, table: &str) -> Result<Vec<(String, Kind)>, TablesError> {
        let mut columns: Vec<(String, Kind)> = Vec::new();
        for part in self.parts(table) {
            for column in open(&part.path)?.columns() {
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

    /// Hands out all rows of a table, some thousand at a time: the values of these columns, and which
    /// shard the rows are of. A column that is not there has no value. What goes wrong in `each` is
    /// the inner error.
    pub fn read(
        &self,
        table: &str,
        columns: &[&str],
        mut each: impl FnMut(&Batch, &[Kind], Option<&str>) -> io::Result<()>,
    ) -> Result<io::Result<()>, TablesError> {
        for part in self.parts(table) {
            let reader = open(&part.path)?;
            let (mut places, mut kinds) = (Vec::new(), Vec::new());
            for wanted in columns {
                let place = reader.columns().iter().position(|column| column.name == *wanted);
                let unread = || TablesError::Column {
                    path: part.path.clone(),
                    column: (*wanted).to_owned(),
                };
                let column = place.and_then(|place| reader.columns().get(place));
                // Nothing is of any kind.
                let kind = column.map_or(Some(Kind::Flag), |column| column.kind);
                places.push(place);
                kinds.push(kind.ok_or_else(unread)?);
            }
            let read = reader.read(&places, |batch| each(batch, &kinds, part.shard.as_deref()));
            if let Err(error) = read.map_err(|error| broken(&part.path, error))? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    fn parts(&self, table: &str) -> &[Part] {
        self.files.get(table).map_or(&[], Vec::as_slice)
    }
}

/// Opens a file, and sees to it that it is one of ours.
fn open(path: &Path) -> Result<Reader, TablesError> {
    let reader = Reader::open(path).map_err(|error| broken(path, error))?;
    let expected = format!("manyways-flows/{VERSION}");
    match reader.version() {
        Some(version) if version == expected => Ok(reader),
        Some(version) => {
            Err(TablesError::Version { path: path.to_owned(), found: version.to_owned() })
        }
        None => Err(TablesError::Foreign(path.to_owned())),
    }
}

fn broken(path: &Path, error: ParquetError) -> TablesError {
    let error: Box<dyn std::error::Error + Send + Sync> = match error {
        ParquetError::External(inner) => inner,
        other => Box::new(other),
    };
    TablesError::Broken { path: path.to_owned(), error }
}

/// The tables in this folder itself.
fn find(
    home: &Path,
    shard: Option<&str>,
    files: &mut BTreeMap<String, Vec<Part>>,
) -> Result<(), TablesError> {
    let known: Vec<&str> = schemas().iter().map(|schema| schema.table).collect();
    for path in entries(home)? {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let Some(table) = name.as_deref().and_then(|name| name.strip_suffix(ENDING)) else {
            continue;
        };
        if !known.contains(&table) && !open(&path).is_ok_and(|_| is_plain(table)) {
            continue;
        }
        let is_masked = open(&path)?.is_masked();
        let part = Part { path, shard: shard.map(str::to_owned), is_masked };
        files.entry(table.to_owned()).or_default().push(part);
    }
    Ok(())
}

/// Names of tables become names of files.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The shards in a folder, and their names.
fn shards(path: &Path) -> Result<Vec<(PathBuf, String)>, TablesError> {
    let named = entries(path)?.into_iter().filter_map(|entry| {
        let name = entry.file_name()?.to_string_lossy().strip_prefix(SHARD)?.to_owned();
        entry.is_dir().then_some((entry, name))
    });
    Ok(named.collect())
}

/// What is in a folder, in the order of its names.
fn entries(path: &Path) -> Result<Vec<PathBuf>, TablesError> {
    let wrong = |error| TablesError::Read { path: path.to_owned(), error };
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(wrong)? {
        entries.push(entry.map_err(wrong)?.path());
    }
    entries.sort();
    Ok(entries)
}
