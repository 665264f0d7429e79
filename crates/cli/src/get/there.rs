//! `-c` where the file is there already.

use std::path::{Path, PathBuf};

use manyways_net::fetch::digest::of_file;
use manyways_net::fetch::{Checksum, Job};
use manyways_unit::Size;

use crate::failure::Failure;

/// A file that an earlier run finished.
pub struct There {
    path: PathBuf,
    /// How long it is.
    pub size: Size,
}

/// What became of it.
pub struct Checked {
    /// Where that was asked for.
    pub sha256: Option<[u8; 32]>,
}

impl There {
    /// The job's file, where it is whole as far as can be told without asking the server: it has its
    /// name, something is in it, and nothing unfinished lies beside it. Its version is unknown, so
    /// that asking the server would not tell more.
    pub fn find(job: &Job, size: Option<Size>) -> Option<Self> {
        let path = job.output();
        let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        let unfinished = [".manyways-part", ".manyways"].iter().any(|suffix| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            Path::new(&name).exists()
        });
        let length = Size::from_bytes(found.len());
        let fits = size.is_none_or(|size| size == length);
        (!unfinished && fits && !length.is_zero())
            .then(|| Self { path: path.to_owned(), size: length })
    }

    /// Compares it with what is known of it; blocking.
    pub fn check(&self, checksum: Checksum) -> Result<Checked, Failure> {
        if checksum == Checksum::None {
            return Ok(Checked { sha256: None });
        }
        let name = self.path.display();
        let hash = of_file(&self.path)
            .map_err(|error| Failure::new(format!("{name} cannot be read: {error}")))?;
        match checksum {
            Checksum::Check(wanted) if wanted != hash => {
                let words = format!("{name} is there already, and its checksum is wrong");
                Err(Failure::new(words).hint("run it without -c to fetch the file anew"))
            }
            _ => Ok(Checked { sha256: Some(hash) }),
        }
    }
}

impl std::fmt::Display for There {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, size) = (self.path.display(), self.size);
        write!(
            f,
            "{path} is there already, whole as far as can be told ({size}), so nothing is fetched; "
        )?;
        f.write_str("without -c it is fetched anew")
    }
}

#[cfg(test)]
mod tests {
    use std::fs::write;

    use super::*;

    #[test]
    fn only_a_finished_file_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("film");
        let job = Job::new("http://a/b", &path).unwrap();
        let find = |size| There::find(&job, size).map(|there| there.size.as_bytes());
        assert_eq!(find(None), None);
        write(&path, "").unwrap();
        assert_eq!(find(None), None);
        write(&path, "abc").unwrap();
        assert_eq!(find(None), Some(3));
        assert_eq!(find(Some(Size::from_bytes(3))), Some(3));
        assert_eq!(find(Some(Size::from_bytes(4))), None);
        for suffix in ["manyways-part", "manyways"] {
            let beside = folder.path().join(format!("film.{suffix}"));
            write(&beside, "").unwrap();
            assert_eq!(find(None), None);
            std::fs::remove_file(beside).unwrap();
        }
        let device = Job::new("http://a/b", "/dev/null").unwrap();
        assert!(There::find(&device, None).is_none());
    }

    #[test]
    fn its_hash_decides_where_one_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("film");
        write(&path, "abc").unwrap();
        let there = There { path, size: Size::from_bytes(3) };
        let Ok(Checked { sha256: Some(hash) }) = there.check(Checksum::Report) else {
            panic!("it can be read")
        };
        assert_eq!(hash[..4], [0xba, 0x78, 0x16, 0xbf]);
        assert!(there.check(Checksum::Check(hash)).is_ok());
        assert!(there.check(Checksum::Check([0; 32])).is_err());
        assert!(there.check(Checksum::None).is_ok_and(|checked| checked.sha256.is_none()));
    }
}
