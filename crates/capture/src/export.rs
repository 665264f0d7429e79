//! Exports the tables of a folder in formats of other programs.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use manyways_flows::export::ipfix::{Biflow, Writer};
use manyways_flows::export::{csv, tstat::Log};
use manyways_record::table::Value;
use thiserror::Error;

use super::folder::PART_EXTENSION;
use super::tables::{Tables, TablesError};

/// Name of the column with the shard of a row.
const SHARD_COLUMN: &str = "shard";
/// Tables of flows, with their IP protocol numbers.
const FLOW_TABLES: [(&str, u8); 2] = [("tcp", 6), ("udp", 17)];

/// An export format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One CSV file for each table.
    Csv,
    /// The flow logs of Tstat.
    Tstat,
    /// One IPFIX file.
    Ipfix,
}

/// An export of tables.
pub struct Export<'a> {
    tables: &'a Tables,
    format: Format,
    /// Names of the tables or logs to write.
    names: Vec<String>,
}

/// Statistics of an exported table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedTable {
    /// Name of the file, or of the table if the format has one file for all.
    pub name: String,
    /// Number of rows written.
    pub rows: u64,
    /// Number of rows left out, because required values are missing.
    pub skipped: u64,
}

/// Reason why an export failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The tables cannot be read.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// The folder has no table or log of this name.
    #[error("{path} has no table or log {name}", path = .path.display())]
    Name {
        path: PathBuf,
        name: String,
        /// Names that exist.
        known: Vec<String>,
    },
    /// The folder has no tables of flows.
    #[error("{path} has no table of flows, which this format needs", path = .0.display())]
    NoFlows(PathBuf),
    /// The file already exists.
    #[error("{path} already exists", path = .0.display())]
    AlreadyExists(PathBuf),
    /// Output files need a folder, and the path is not a folder; or the output is a file, and the
    /// path is a folder.
    #[error("{path} is {file_type}", path = .path.display())]
    WrongFileType {
        path: PathBuf,
        /// Type of the existing object.
        file_type: &'static str,
    },
    /// Error of the file system.
    #[error("cannot write {path}: {error}", path = .path.display())]
    Write {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// The reader of the output has closed it.
    #[error("the reader of the output has closed it")]
    Closed,
}

impl<'a> Export<'a> {
    /// Creates an export of all tables that the format supports, or of the one with this name.
    pub fn new(
        tables: &'a Tables,
        format: Format,
        name: Option<&str>,
    ) -> Result<Self, ExportError> {
        let logs = Log::ALL.iter().filter(|log| tables.has(log.table()));
        let flows = FLOW_TABLES.iter().map(|(table, _)| *table).filter(|table| tables.has(table));
        let mut names: Vec<String> = match format {
            Format::Csv => tables.names().map(str::to_owned).collect(),
            Format::Tstat => logs.map(|log| log.name().to_owned()).collect(),
            Format::Ipfix => flows.map(str::to_owned).collect(),
        };
        if names.is_empty() {
            return Err(ExportError::NoFlows(tables.path().to_owned()));
        }
        if let Some(name) = name {
            if !names.iter().any(|known| known == name) {
                let (path, name) = (tables.path().to_owned(), name.to_owned());
                return Err(ExportError::Name { path, name, known: names });
            }
            names.retain(|known| known == name);
        }
        Ok(Self { tables, format, names })
    }

    /// Whether the output is a single file.
    pub fn is_single_file(&self) -> bool {
        self.format == Format::Ipfix || self.names.len() == 1
    }

    /// Writes all tables one after the other.
    pub fn write(&self, mut out: impl Write) -> Result<Vec<ExportedTable>, ExportError> {
        let written = self.write_tables(&mut out, Path::new("standard output"))?;
        match out.flush() {
            Err(error) => Err(failed(Path::new("standard output"), error)),
            Ok(()) => Ok(written),
        }
    }

    /// Writes a single file.
    pub fn write_file(
        &self,
        path: &Path,
        may_replace: bool,
    ) -> Result<Vec<ExportedTable>, ExportError> {
        if path.is_dir() {
            return Err(ExportError::WrongFileType {
                path: path.to_owned(),
                file_type: "a folder",
            });
        }
        if path.exists() && !path.is_file() {
            // A pipe or a device cannot be replaced.
            let mut out = create(path)?;
            let written = self.write_tables(&mut out, path)?;
            out.flush().map_err(|error| failed(path, error))?;
            return Ok(written);
        }
        check_replaceable(path, may_replace)?;
        let part = part_path(path);
        let mut out = create(&part)?;
        let written = self.write_tables(&mut out, path).and_then(|written| {
            out.flush().map_err(|error| failed(path, error))?;
            Ok(written)
        });
        rename_or_remove(written, &[(part, path.to_owned())])
    }

    /// Writes one file for each name into a folder. Files get their final names when all of them
    /// are complete.
    pub fn write_folder(
        &self,
        path: &Path,
        may_replace: bool,
    ) -> Result<Vec<ExportedTable>, ExportError> {
        if path.exists() && !path.is_dir() {
            return Err(ExportError::WrongFileType {
                path: path.to_owned(),
                file_type: "not a folder",
            });
        }
        let files: Vec<(PathBuf, PathBuf)> = self
            .names
            .iter()
            .map(|name| path.join(self.file_name(name)))
            .map(|file| (part_path(&file), file))
            .collect();
        files.iter().try_for_each(|(_, file)| check_replaceable(file, may_replace))?;
        fs::create_dir_all(path).map_err(|error| failed(path, error))?;
        let mut written = Ok(Vec::new());
        for (name, (part, file)) in self.names.iter().zip(&files) {
            let Ok(all) = &mut written else { break };
            let done = create(part).and_then(|mut out| {
                let done = self.write_table(name, &mut out, file)?;
                out.flush().map_err(|error| failed(file, error))?;
                Ok(ExportedTable { name: self.file_name(name), ..done })
            });
            match done {
                Ok(done) => all.push(done),
                Err(error) => written = Err(error),
            }
        }
        rename_or_remove(written, &files)
    }

    fn file_name(&self, name: &str) -> String {
        if self.format == Format::Csv { format!("{name}.csv") } else { name.to_owned() }
    }

    fn write_tables(
        &self,
        out: &mut impl Write,
        place: &Path,
    ) -> Result<Vec<ExportedTable>, ExportError> {
        if self.format == Format::Ipfix {
            return self.ipfix(out, place);
        }
        self.names.iter().map(|name| self.write_table(name, out, place)).collect()
    }

    fn write_table(
        &self,
        name: &str,
        out: &mut impl Write,
        place: &Path,
    ) -> Result<ExportedTable, ExportError> {
        let log = Log::ALL.into_iter().find(|log| log.name() == name);
        match log.filter(|_| self.format == Format::Tstat) {
            Some(log) => self.tstat(log, out, place),
            None => self.csv(name, out, place),
        }
    }

    /// Rows of shards have the name of the shard in an additional last column.
    fn csv(
        &self,
        name: &str,
        out: &mut impl Write,
        place: &Path,
    ) -> Result<ExportedTable, ExportError> {
        let columns = self.tables.columns(name)?;
        let mut names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let wanted = names.clone();
        let is_sharded = self.tables.is_sharded(name) && !names.contains(&SHARD_COLUMN);
        if is_sharded {
            names.push(SHARD_COLUMN);
        }
        let mut text = String::new();
        csv::header(names, &mut text);
        out.write_all(text.as_bytes()).map_err(|error| failed(place, error))?;
        let mut rows = 0;
        let read = self.tables.read(name, &wanted, |batch, kinds, shard| {
            text.clear();
            for mut row in batch.iter(kinds) {
                if is_sharded {
                    row.push(shard.map_or(Value::Absent, Value::from));
                }
                csv::line(&row, &mut text);
                rows += 1;
            }
            out.write_all(text.as_bytes())
        })?;
        read.map_err(|error| failed(place, error))?;
        Ok(ExportedTable { name: name.to_owned(), rows, skipped: 0 })
    }

    fn tstat(
        &self,
        log: Log,
        out: &mut impl Write,
        place: &Path,
    ) -> Result<ExportedTable, ExportError> {
        let is_anonymized = self.tables.is_anonymized(log.table());
        let mut text = String::new();
        log.header(&mut text);
        out.write_all(text.as_bytes()).map_err(|error| failed(place, error))?;
        let mut rows = 0;
        let read = self.tables.read(log.table(), log.input_columns(), |batch, kinds, _| {
            text.clear();
            for row in batch.iter(kinds) {
                rows += u64::from(log.line(row, is_anonymized, &mut text));
            }
            out.write_all(text.as_bytes())
        })?;
        read.map_err(|error| failed(place, error))?;
        Ok(ExportedTable { name: log.name().to_owned(), rows, skipped: 0 })
    }

    fn ipfix(&self, out: &mut impl Write, place: &Path) -> Result<Vec<ExportedTable>, ExportError> {
        let (mut writer, mut bytes) = (Writer::new(), Vec::new());
        let mut written = Vec::new();
        for name in &self.names {
            let Some((_, protocol)) = FLOW_TABLES.iter().find(|(table, _)| table == name) else {
                continue;
            };
            let (mut rows, mut left_out) = (0, 0);
            let read = self.tables.read(name, Biflow::COLUMNS, |batch, kinds, _| {
                bytes.clear();
                for row in batch.iter(kinds) {
                    match Biflow::of(*protocol, row) {
                        Some(flow) => {
                            writer.push(&flow, &mut bytes);
                            rows += 1;
                        }
                        None => left_out += 1,
                    }
                }
                out.write_all(&bytes)
            })?;
            read.map_err(|error| failed(place, error))?;
            written.push(ExportedTable { name: name.clone(), rows, skipped: left_out });
        }
        bytes.clear();
        writer.finish(&mut bytes);
        out.write_all(&bytes).map_err(|error| failed(place, error))?;
        Ok(written)
    }
}

fn create(path: &Path) -> Result<BufWriter<File>, ExportError> {
    File::create(path).map(BufWriter::new).map_err(|error| failed(path, error))
}

/// Name of an incomplete file.
fn part_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(PART_EXTENSION);
    name.into()
}

fn check_replaceable(path: &Path, may_replace: bool) -> Result<(), ExportError> {
    let is_taken = path.exists() || path.is_symlink();
    if is_taken && !may_replace { Err(ExportError::AlreadyExists(path.to_owned())) } else { Ok(()) }
}

/// Renames the files if all were written; otherwise removes them.
fn rename_or_remove(
    written: Result<Vec<ExportedTable>, ExportError>,
    files: &[(PathBuf, PathBuf)],
) -> Result<Vec<ExportedTable>, ExportError> {
    let renamed = written.and_then(|written| {
        for (part, file) in files {
            fs::rename(part, file).map_err(|error| failed(file, error))?;
        }
        Ok(written)
    });
    if renamed.is_err() {
        for (part, _) in files {
            let _ = fs::remove_file(part);
        }
    }
    renamed
}

fn failed(path: &Path, error: io::Error) -> ExportError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => ExportError::Closed,
        _ => ExportError::Write { path: path.to_owned(), error },
    }
}

#[cfg(test)]
mod tests;
