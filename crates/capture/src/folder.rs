//! The folder that takes the tables of a run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use manyways_flows::analysis::schemas;
use manyways_record::table::{Batch, Schema, VERSION};
use thiserror::Error;

use super::parquet::Table;

/// What tells a folder of ours: it is written last.
pub(super) const MANIFEST: &str = "flows.json";
/// What the folder of one of several runs is called, before its name. The parts of a cluster's work
/// have it as well: whoever asks finds all of them in the same way.
pub(super) const SHARD: &str = "shard=";
/// What a file is called until it is whole.
pub(super) const PART: &str = "part";

/// A folder of tables, each a file `NAME.parquet`, and `flows.json`, which says what was read.
///
/// Files get their names when all of them are whole. A folder that is dropped before
/// [`Folder::finish`] leaves nothing behind; a run that is killed leaves `*.part` files only, which
/// the next one replaces.
pub struct Folder {
    path: PathBuf,
    /// This run made the folder.
    is_new: bool,
    tables: BTreeMap<&'static str, (Table<BufWriter<File>>, u64)>,
}

/// Why tables cannot be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FolderError {
    /// There are other results in it.
    #[error("{path} already has results in it", path = .0.display())]
    Taken(PathBuf),
    /// Sets of a live capture, or shards of a cluster, are in the folder. Those who ask about the
    /// folder would see its own tables only.
    #[error("{path} has sets of tables in it, as of a live capture", path = .0.display())]
    Sets(PathBuf),
    /// The captures or tables that are read are in the folder.
    #[error("{path} is read and would be written into", path = .0.display())]
    Input(PathBuf),
    /// A live capture writes into it.
    #[error("another live capture writes into {path}", path = .0.display())]
    Busy(PathBuf),
    /// The system refuses.
    #[error("cannot write {path}: {error}", path = .path.display())]
    Write {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
}

impl Folder {
    /// Makes a folder, or takes one that is there. One that has results is taken only if
    /// `may_replace`, one that has sets of results never.
    pub fn create(path: &Path, may_replace: bool) -> Result<Self, FolderError> {
        let wrong = |error| FolderError::Write { path: path.to_owned(), error };
        if path.join(MANIFEST).exists() && !may_replace {
            return Err(FolderError::Taken(path.to_owned()));
        }
        let is_new = !path.exists();
        fs::create_dir_all(path).map_err(wrong)?;
        for entry in fs::read_dir(path).map_err(wrong)? {
            if entry.map_err(wrong)?.file_name().to_string_lossy().starts_with(SHARD) {
                return Err(FolderError::Sets(path.to_owned()));
            }
        }
        Ok(Self { path: path.to_owned(), is_new, tables: BTreeMap::new() })
    }

    /// Refuses a folder that is one of `inputs`, by whatever path.
    ///
    /// # Errors
    /// [`FolderError::Input`].
    pub fn keep_apart(path: &Path, inputs: &[PathBuf]) -> Result<(), FolderError> {
        let Ok(place) = fs::canonicalize(path) else { return Ok(()) };
        let is_same = |input: &PathBuf| fs::canonicalize(input).is_ok_and(|input| input == place);
        match path.is_dir() && inputs.iter().any(is_same) {
            true => Err(FolderError::Input(path.to_owned())),
            false => Ok(()),
        }
    }

    /// How many rows each table has so far.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.tables.iter().map(|(name, (_, rows))| (*name, *rows))
    }

    /// Adds rows to their table.
    pub fn write(&mut self, schema: &Schema, batch: &Batch) -> Result<(), FolderError> {
        let path = self.part(&format!("{}.parquet", schema.table));
        let wrong = |error: io::Error| FolderError::Write { path: path.clone(), error };
        if !self.tables.contains_key(schema.table) {
            let file = BufWriter::new(File::create(&path).map_err(wrong)?);
            let table = Table::new(schema, &version(), batch.is_masked(), file)
                .map_err(|error| wrong(into_io(error)))?;
            self.tables.insert(schema.table, (table, 0));
        }
        let Some((table, rows)) = self.tables.get_mut(schema.table) else { return Ok(()) };
        *rows += batch.rows() as u64;
        table.write(batch).map_err(|error| wrong(into_io(error)))
    }

    /// Gives all files their names. `manifest` is what `flows.json` says.
    pub fn finish(mut self, manifest: &str) -> Result<(), FolderError> {
        let folder = self.path.clone();
        let wrong = |path: &Path, error| FolderError::Write { path: path.to_owned(), error };
        let is_replaced = fs::remove_file(folder.join(MANIFEST)).is_ok();
        let mut names = Vec::new();
        self.is_new = false;
        for (name, (table, _)) in std::mem::take(&mut self.tables) {
            let name = format!("{name}.parquet");
            table.close().map_err(|error| wrong(&folder.join(&name), into_io(error)))?;
            names.push(name);
        }
        let path = folder.join(format!("{MANIFEST}.{PART}"));
        fs::write(&path, manifest).map_err(|error| wrong(&path, error))?;
        names.push(MANIFEST.to_owned());
        if is_replaced {
            // A table of the run before would be taken for one of this run.
            let others = schemas().into_iter().map(|schema| format!("{}.parquet", schema.table));
            for other in others.filter(|other| !names.contains(other)) {
                let _ = fs::remove_file(folder.join(other));
            }
        }
        for name in names {
            let path = folder.join(&name);
            fs::rename(folder.join(format!("{name}.{PART}")), &path)
                .map_err(|error| wrong(&path, error))?;
        }
        Ok(())
    }

    fn part(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.{PART}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for name in self.tables.keys() {
            let _ = fs::remove_file(self.part(&format!("{name}.parquet")));
        }
        if self.is_new {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// The version of the schemas of all tables of flows.
fn version() -> String {
    format!("manyways-flows/{VERSION}")
}

/// Writes a table of any kind as a file, in the place of one that is there: of a link, in that of what
/// it points to. What is there and no file, as a device or a pipe, is written to. `version` is that of
/// the table's schema: a name, a slash and a number.
///
/// # Errors
/// Where the system refuses.
pub fn write_table(path: &Path, schema: &Schema, version: &str, batch: &Batch) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let fill = |place: &Path| {
        let file = BufWriter::new(File::create(place)?);
        let mut table = Table::new(schema, version, false, file).map_err(into_io)?;
        table.write(batch).and_then(|()| table.close()).map_err(into_io)
    };
    if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return fill(&path);
    }
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let written = fill(&part).and_then(|()| fs::rename(&part, &path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

fn into_io(error: parquet::errors::ParquetError) -> io::Error {
    match error {
        parquet::errors::ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(inner) => io::Error::other(inner),
        },
        other => io::Error::other(other),
    }
}
