//! Files to serve and to compare.

use std::fs::{self, File, Permissions};
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use manyways_unit::Random;
use tempfile::TempDir;

/// Creates a temporary folder that is removed with the returned value. Any user can read it,
/// because servers that root starts drop to another user before they read files.
pub fn folder() -> TempDir {
    let folder =
        tempfile::Builder::new().prefix("manyways-").tempdir().expect("a temporary folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("its permissions");
    folder
}

/// Writes a file of `bytes` incompressible bytes into `folder`, modified one hour ago. Equal seeds
/// give equal bytes.
pub fn object(folder: &Path, name: &str, bytes: u64, seed: u64) -> PathBuf {
    let path = folder.join(name);
    let mut file = BufWriter::new(File::create(&path).expect("a new file"));
    let mut remaining = bytes;
    let mut random = Random::new(seed);
    while remaining > 0 {
        let word = random.next_u64();
        let take = remaining.min(8);
        file.write_all(&word.to_le_bytes()[..take as usize]).expect("room on the disk");
        remaining -= take;
    }
    let file = file.into_inner().expect("room on the disk");
    // Apache marks the ETag of a file as weak if the file was modified within the last second.
    file.set_modified(SystemTime::now() - Duration::from_secs(3600))
        .expect("a new modification time");
    path
}

pub fn same_content(one: &Path, other: &Path) -> bool {
    let open = |path: &Path| {
        let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let length = file.metadata().expect("an open file has a length").len();
        (length, BufReader::new(file).bytes())
    };
    let (one_length, one) = open(one);
    let (other_length, other) = open(other);
    one_length == other_length
        && one.zip(other).all(|(a, b)| a.expect("a readable file") == b.expect("a readable file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_differ_by_seed_and_size_only() {
        let folder = folder();
        let first = object(folder.path(), "a", 100_003, 1);
        assert_eq!(fs::metadata(&first).unwrap().len(), 100_003);
        assert!(same_content(&first, &object(folder.path(), "b", 100_003, 1)));
        assert!(!same_content(&first, &object(folder.path(), "c", 100_003, 2)));
        assert!(!same_content(&first, &object(folder.path(), "d", 100_002, 1)));
    }
}
