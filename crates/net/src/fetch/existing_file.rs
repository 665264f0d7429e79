//! A file that an earlier run completed, for a run that would continue it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use manyways_proto::fetch::ExistingFileState;
use manyways_unit::Size;

use super::digest::file_sha256;
use super::sink::OutputFile;
use super::{Checksum, Job};

/// A file that is complete, as far as can be known without the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExistingFile {
    path: PathBuf,
    length: Size,
}

/// Why an existing file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExistingFileError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}", path = .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// The file has a different SHA-256.
    #[error("{path} exists, and its checksum is wrong", path = .path.display())]
    Checksum {
        path: PathBuf,
        /// The SHA-256 of the file.
        found: [u8; 32],
    },
}

impl ExistingFile {
    /// Returns the job's file if it is complete: it has its final name, is not empty, has the
    /// expected size if one is given, and there is no part file or resume file for it.
    pub fn find(job: &Job) -> Option<Self> {
        let path = job.output();
        let output = OutputFile::locate(path).ok()?;
        let found = std::fs::metadata(&output.path).ok().filter(std::fs::Metadata::is_file);
        let state = ExistingFileState {
            length: found.map(|found| Size::from_bytes(found.len())),
            has_unfinished: output.part.exists() || output.resume_file.exists(),
        };
        let length = state.complete_length(job.size)?;
        Some(Self { path: path.to_owned(), length })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn length(&self) -> Size {
        self.length
    }

    /// Compares the file with a checksum. Returns its SHA-256 if one is requested. Blocks.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or has a different SHA-256.
    pub fn check(&self, checksum: Checksum) -> Result<Option<[u8; 32]>, ExistingFileError> {
        if checksum == Checksum::None {
            return Ok(None);
        }
        let path = || self.path.clone();
        let found = file_sha256(&self.path)
            .map_err(|source| ExistingFileError::Unreadable { path: path(), source })?;
        match checksum {
            Checksum::Check(wanted) if wanted != found => {
                Err(ExistingFileError::Checksum { path: path(), found })
            }
            _ => Ok(Some(found)),
        }
    }
}

impl fmt::Display for ExistingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path.display(), self.length)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::write;

    use super::*;

    #[test]
    fn unfinished_files_and_devices_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("film");
        let job = Job::new("http://a/b", &path).unwrap();
        let find = |size| ExistingFile::find(&job.clone().size(size)).map(|file| file.length);
        assert_eq!(find(None), None);
        write(&path, "abc").unwrap();
        assert_eq!(find(None), Some(Size::from_bytes(3)));
        assert_eq!(find(Some(Size::from_bytes(4))), None);
        for suffix in ["manyways-part", "manyways"] {
            let beside = folder.path().join(format!("film.{suffix}"));
            write(&beside, "").unwrap();
            assert_eq!(find(None), None);
            std::fs::remove_file(beside).unwrap();
        }
        assert_eq!(ExistingFile::find(&Job::new("http://a/b", "/dev/null").unwrap()), None);
    }

    #[test]
    fn the_hash_decides_where_one_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("film");
        write(&path, "abc").unwrap();
        let file = ExistingFile { path, length: Size::from_bytes(3) };
        let hash = file.check(Checksum::Report).unwrap().unwrap();
        assert_eq!(hash[..4], [0xba, 0x78, 0x16, 0xbf]);
        assert!(file.check(Checksum::Check(hash)).is_ok());
        let wrong = file.check(Checksum::Check([0; 32])).unwrap_err();
        assert!(matches!(wrong, ExistingFileError::Checksum { found, .. } if found == hash));
        assert_eq!(file.check(Checksum::None).unwrap(), None);
    }
}
