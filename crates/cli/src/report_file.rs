//! Where reports go.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result};

use crate::failure::Failure;

/// Says before the work whether there is a folder for a file.
pub fn check_folder(file: &Path) -> Result<(), Failure> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            Err(Failure::usage(format!("there is no folder {}", folder.display()))
                .hint("make it, or name another file"))
        }
        _ => Ok(()),
    }
}

/// Writes a file, in the place of one that is there. Whoever reads it sees the old one or the new
/// one, never a part.
pub fn write(file: &Path, text: &str) -> Result<()> {
    replace(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn replace(file: &Path, text: &str) -> io::Result<()> {
    // A link stays one. What is there and no file, a terminal or a pipe, is written to.
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    if fs::metadata(&file).is_ok_and(|found| !found.is_file()) {
        return fs::write(&file, text);
    }
    let mut part = file.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, &file));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_a_link_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a.html"), folder.path().join("b.html"));
        write(&file, "one").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, "two").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        write(Path::new("/dev/null"), "three").unwrap();
        assert!(!Path::new("/dev/null").is_file());
        assert!(write(&folder.path().join("none/a.html"), "four").is_err());
        assert!(check_folder(&folder.path().join("none/a.html")).is_err());
        assert!(check_folder(Path::new("a.html")).is_ok());
    }
}
