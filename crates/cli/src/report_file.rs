//! Output files of reports and tables.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result};

use crate::failure::Failure;

/// Fails before the work if the folder of an output file does not exist.
pub fn check_folder(file: &Path) -> Result<(), Failure> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            Err(Failure::usage(format!("the folder {} does not exist", folder.display()))
                .hint("create the folder, or name another file"))
        }
        _ => Ok(()),
    }
}

/// Fails if an output is the same file as an input or another output. A folder among the inputs
/// contains tables; outputs inside it are refused too.
pub fn keep_apart(inputs: &[&Path], outputs: &[&Path]) -> Result<(), Failure> {
    for (number, output) in outputs.iter().enumerate() {
        let Some(own) = place(output) else { continue };
        let is_taken = |other: &&&Path| place(other).as_ref() == Some(&own);
        if inputs.iter().chain(&outputs[..number]).any(|other| is_taken(&other)) {
            let failure = Failure::usage(format!("{} is used twice", output.display()));
            return Err(failure.hint("write to another file"));
        }
        let into = |input: &&&Path| input.is_dir() && is_in(output, input);
        if let Some(input) = inputs.iter().find(into) {
            let (output, input) = (output.display(), input.display());
            let failure =
                Failure::usage(format!("{output} would be in {input}, which is an input"));
            return Err(failure.hint("write to another folder"));
        }
    }
    Ok(())
}

/// Identity of a file: device and inode, or the path if the file does not exist yet. `None` for
/// devices and pipes, which a write does not replace.
fn place(path: &Path) -> Option<(u64, u64, PathBuf)> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => None,
        Ok(found) => Some((found.dev(), found.ino(), PathBuf::new())),
        Err(_) => Some((0, 0, std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))),
    }
}

/// Whether a file is below a folder.
fn is_in(file: &Path, folder: &Path) -> bool {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = fs::canonicalize(parent.unwrap_or(Path::new(".")));
    let folder = fs::canonicalize(folder);
    parent.is_ok_and(|parent| folder.is_ok_and(|folder| parent.starts_with(folder)))
}

/// Writes a file atomically: a reader sees the old or the new content, never a part.
pub fn write(file: &Path, text: &str) -> Result<()> {
    replace(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn replace(file: &Path, text: &str) -> io::Result<()> {
    // A symbolic link is kept, and a device or pipe is written to directly.
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
    fn nothing_is_written_over_what_is_read_nor_into_a_folder_of_tables() {
        let folder = tempfile::tempdir().unwrap();
        let (tables, read) = (folder.path().join("tables"), folder.path().join("read.csv"));
        fs::create_dir(&tables).unwrap();
        fs::write(&read, "").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&read, &link).unwrap();
        let (inside, beside) = (tables.join("new.html"), folder.path().join("new.html"));
        let inputs = [tables.as_path(), read.as_path()];
        for refused in [&read, &link, &inside, &tables.join("../tables/new.html")] {
            let failure = keep_apart(&inputs, &[refused]).unwrap_err();
            assert!(failure.is_usage() && failure.hinted().is_some(), "{}", refused.display());
        }
        assert!(keep_apart(&inputs, &[&beside, &beside]).is_err());
        assert!(keep_apart(&inputs, &[&beside, Path::new("/dev/null")]).is_ok());
        assert!(keep_apart(&[], &[]).is_ok());
    }

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
