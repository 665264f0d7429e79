//! Output files of reports and tables.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
pub fn check_distinct(inputs: &[&Path], outputs: &[&Path]) -> Result<(), Failure> {
    for (number, output) in outputs.iter().enumerate() {
        let Some(own) = file_identity(output) else { continue };
        let is_taken = |other: &&&Path| file_identity(other).as_ref() == Some(&own);
        if inputs.iter().chain(&outputs[..number]).any(|other| is_taken(&other)) {
            let hint = "write to another file";
            return Failure::refuse(format!("{} is used twice", output.display()), hint);
        }
        let into = |input: &&&Path| input.is_dir() && is_in(output, input);
        if let Some(input) = inputs.iter().find(into) {
            let (output, input) = (output.display(), input.display());
            let hint = "write to another folder";
            return Failure::refuse(
                format!("{output} would be in {input}, which is an input"),
                hint,
            );
        }
    }
    Ok(())
}

/// Identity of a file: device and inode, or the path if the file does not exist yet. `None` for
/// devices and pipes, which a write does not replace.
fn file_identity(path: &Path) -> Option<(u64, u64, PathBuf)> {
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
    let mut part = PartFile::create(file)?;
    part.write_all(text.as_bytes())?;
    part.close()
}

/// A file that gets its final name when it is complete, and is removed otherwise.
pub struct PartFile {
    out: BufWriter<File>,
    /// Temporary and final path; `None` for a device or pipe.
    paths: Option<(PathBuf, PathBuf)>,
}

impl PartFile {
    /// A symbolic link is kept, and a device or pipe is written to directly.
    pub fn create(file: &Path) -> io::Result<Self> {
        let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        if fs::metadata(&file).is_ok_and(|found| !found.is_file()) {
            let out = BufWriter::new(File::options().write(true).open(&file)?);
            return Ok(Self { out, paths: None });
        }
        let mut part = file.clone().into_os_string();
        part.push(".part");
        let out = BufWriter::new(File::create(&part)?);
        Ok(Self { out, paths: Some((part.into(), file)) })
    }

    /// Writes the rest, and renames the file.
    pub fn close(mut self) -> io::Result<()> {
        self.out.flush()?;
        if let Some((part, file)) = &self.paths {
            fs::rename(part, file)?;
        }
        self.paths = None;
        Ok(())
    }
}

impl Write for PartFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if let Some((part, _)) = &self.paths {
            let _ = fs::remove_file(part);
        }
    }
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
            let failure = check_distinct(&inputs, &[refused]).unwrap_err();
            assert!(failure.is_usage() && failure.hint_text().is_some(), "{}", refused.display());
        }
        assert!(check_distinct(&inputs, &[&beside, &beside]).is_err());
        assert!(check_distinct(&inputs, &[&beside, Path::new("/dev/null")]).is_ok());
        assert!(check_distinct(&[], &[]).is_ok());
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
