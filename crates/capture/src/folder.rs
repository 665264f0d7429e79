//! The output folder of a run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use manyways_flows::analysis::schemas;
use manyways_record::table::{Batch, Schema};
use thiserror::Error;

use super::parquet::Table;

/// File that marks a folder as output; written last.
pub(super) const MANIFEST: &str = "flows.json";
/// Prefix of the folder of one of several runs. Parts of a cluster job have the same prefix, so
/// that readers find both in the same way.
pub(super) const SHARD_PREFIX: &str = "shard=";
/// File name extension of an incomplete file.
pub(super) const PART_EXTENSION: &str = "part";

/// A folder of tables, each in a file `NAME.parquet`, with `flows.json`, which describes the input.
///
/// Files get their final names when all of them are complete. A folder that is dropped before
/// [`Folder::finish`] leaves no files; a killed run leaves only `*.part` files, which the next run
/// replaces.
pub struct Folder {
    path: PathBuf,
    /// Whether this run created the folder.
    is_new: bool,
    tables: BTreeMap<&'static str, (Table<BufWriter<File>>, u64)>,
}

/// Reason why tables cannot be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The folder contains other results.
    #[error("{path} already contains results", path = .0.display())]
    HasResults(PathBuf),
    /// The folder contains sets of a live capture or shards of a cluster. Readers of the folder
    /// would see its own tables only.
    #[error("{path} contains sets of tables, as a live capture writes them", path = .0.display())]
    Sets(PathBuf),
    /// The folder contains the captures or tables to read.
    #[error("{path} is both input and output", path = .0.display())]
    Input(PathBuf),
    /// Another live capture writes into the folder.
    #[error("another live capture writes into {path}", path = .0.display())]
    Busy(PathBuf),
    /// Error of the file system.
    #[error("cannot write {path}: {error}", path = .path.display())]
    Write {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
}

impl Folder {
    /// Creates a folder, or uses an existing one: with results only if `may_replace`, with sets of
    /// results never.
    pub fn create(path: &Path, may_replace: bool) -> Result<Self, FolderError> {
        let wrong = |error| FolderError::Write { path: path.to_owned(), error };
        if path.join(MANIFEST).exists() && !may_replace {
            return Err(FolderError::HasResults(path.to_owned()));
        }
        let is_new = !path.exists();
        fs::create_dir_all(path).map_err(wrong)?;
        for entry in fs::read_dir(path).map_err(wrong)? {
            if entry.map_err(wrong)?.file_name().to_string_lossy().starts_with(SHARD_PREFIX) {
                return Err(FolderError::Sets(path.to_owned()));
            }
        }
        Ok(Self { path: path.to_owned(), is_new, tables: BTreeMap::new() })
    }

    /// Returns an error if the folder is one of `inputs`, by any path.
    ///
    /// # Errors
    /// [`FolderError::Input`].
    pub fn check_distinct(path: &Path, inputs: &[PathBuf]) -> Result<(), FolderError> {
        let Ok(place) = fs::canonicalize(path) else { return Ok(()) };
        let is_same = |input: &PathBuf| fs::canonicalize(input).is_ok_and(|input| input == place);
        match path.is_dir() && inputs.iter().any(is_same) {
            true => Err(FolderError::Input(path.to_owned())),
            false => Ok(()),
        }
    }

    /// Number of rows of each table so far.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.tables.iter().map(|(name, (_, rows))| (*name, *rows))
    }

    /// Appends rows to their table.
    pub fn write(&mut self, schema: &Schema, batch: &Batch) -> Result<(), FolderError> {
        let path = self.part(&format!("{}.parquet", schema.table));
        let wrong = |error: io::Error| FolderError::Write { path: path.clone(), error };
        if !self.tables.contains_key(schema.table) {
            let file = BufWriter::new(File::create(&path).map_err(wrong)?);
            let table = Table::new(schema, batch.is_anonymized(), file)
                .map_err(|error| wrong(into_io(error)))?;
            self.tables.insert(schema.table, (table, 0));
        }
        let Some((table, rows)) = self.tables.get_mut(schema.table) else { return Ok(()) };
        *rows += batch.rows() as u64;
        table.write(batch).map_err(|error| wrong(into_io(error)))
    }

    /// Completes all files. `manifest` is the content of `flows.json`.
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
        let path = folder.join(format!("{MANIFEST}.{PART_EXTENSION}"));
        fs::write(&path, manifest).map_err(|error| wrong(&path, error))?;
        names.push(MANIFEST.to_owned());
        if is_replaced {
            // A remaining table of the previous run would be attributed to this run.
            let others = schemas().into_iter().map(|schema| format!("{}.parquet", schema.table));
            for other in others.filter(|other| !names.contains(other)) {
                let _ = fs::remove_file(folder.join(other));
            }
        }
        for name in names {
            let path = folder.join(&name);
            fs::rename(folder.join(format!("{name}.{PART_EXTENSION}")), &path)
                .map_err(|error| wrong(&path, error))?;
        }
        Ok(())
    }

    fn part(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.{PART_EXTENSION}"))
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

/// Writes a table as a file and replaces an existing file, or the target of a link. A device or a
/// pipe is written to directly.
///
/// # Errors
/// If a file operation fails.
pub fn write_table(path: &Path, schema: &Schema, batch: &Batch) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let fill = |place: &Path| {
        let file = BufWriter::new(File::create(place)?);
        let mut table = Table::new(schema, false, file).map_err(into_io)?;
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
