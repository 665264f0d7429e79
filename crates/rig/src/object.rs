//! Files to serve and to compare.

use std::fs::{self, File, Permissions};
use std::io::{BufReader, BufWriter, Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use manyways_unit::Random;
use tempfile::TempDir;

use crate::process::{assert_no_panic, reports_panic};

/// Creates a temporary folder that is removed with the returned value. Any user can read it,
/// because servers that root starts drop to another user before they read files.
pub fn folder() -> Folder {
    let folder =
        tempfile::Builder::new().prefix("manyways-").tempdir().expect("a temporary folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("its permissions");
    Folder(folder)
}

/// A temporary folder. If a program has reported a panic in one of its files, the end of the folder
/// is a [`fault!`](crate::fault!).
#[derive(Debug)]
pub struct Folder(TempDir);

/// Larger files are not outputs of programs.
const MAX_OUTPUT: u64 = 4 << 20;

impl Deref for Folder {
    type Target = TempDir;

    fn deref(&self) -> &TempDir {
        &self.0
    }
}

impl DerefMut for Folder {
    fn deref_mut(&mut self) -> &mut TempDir {
        &mut self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for path in files(self.path()) {
            let output = fs::read(&path).unwrap_or_default();
            let output = String::from_utf8_lossy(&output);
            if thread::panicking() && reports_panic(&output) {
                eprintln!("{}:\n{output}", path.display());
            } else if !thread::panicking() {
                assert_no_panic(&output);
            }
        }
    }
}

/// The files below a folder that may be the output of a program.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(about) if about.is_dir() => found.extend(files(&entry.path())),
            Ok(about) if about.is_file() && about.len() <= MAX_OUTPUT => found.push(entry.path()),
            _ => {}
        }
    }
    found
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
    fn a_panic_in_a_file_of_the_folder_is_a_fault() {
        let end = |words: &str| {
            let folder = folder();
            fs::create_dir(folder.path().join("out")).unwrap();
            fs::write(folder.path().join("out/said"), words).unwrap();
            std::panic::catch_unwind(|| drop(folder))
        };
        assert!(end("all is well").is_ok());
        let message = end("thread 'main' (7) panicked at crates/net/src/lib.rs:1:1:").unwrap_err();
        assert!(message.downcast_ref::<String>().unwrap().starts_with(crate::FAULT));
    }

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
