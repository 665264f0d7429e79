//! The file in which the clients of a host store the bytes that each path has carried.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use manyways_proto::bond::usage::{Day, PathUsage, Usage, UsageCounts};
use serde::{Deserialize, Serialize};

/// Name of the file in the state folder.
const FILE_NAME: &str = "bond-usage.json";
/// Maximum size, in bytes. A larger file counts as broken.
const MAX_FILE_SIZE: u64 = 1 << 20;

/// Content of the file.
#[derive(Default, Serialize, Deserialize)]
struct Document {
    paths: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    /// First counted day, in days since 1970-01-01 (UTC).
    since: i64,
    bytes: u64,
}

/// The file of the counts; `None` if they are not stored.
#[derive(Clone, Debug)]
pub struct UsageFile(Option<PathBuf>);

impl UsageFile {
    /// Uses the file in this folder. Without a folder, the counts are not stored.
    pub fn within(folder: Option<&Path>) -> Self {
        Self::named(folder, FILE_NAME)
    }

    /// Uses a file with another name, for other bytes than those of bonds.
    pub fn named(folder: Option<&Path>, name: &str) -> Self {
        Self(folder.map(|folder| folder.join(name)))
    }

    /// Reads the counts. A file that cannot be parsed is renamed.
    pub(crate) fn load(&self) -> Usage {
        Usage::new(self.0.as_deref().map(read).unwrap_or_default())
    }

    /// Adds the new counts to the file.
    ///
    /// # Errors
    /// If the file cannot be locked or written. The counts then remain new, and the next call adds
    /// them.
    pub(crate) fn save(&self, usage: &mut Usage) -> io::Result<()> {
        let Some(file) = &self.0 else { return Ok(()) };
        if usage.added_to(UsageCounts::default()).is_none() {
            return Ok(());
        }
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        // Locked until the file is written, because another client may add its counts.
        let lock = File::create(file.with_extension("lock"))?;
        lock.lock()?;
        let Some(counts) = usage.added_to(read(file)) else { return Ok(()) };
        let entry = |(path, usage): (&str, PathUsage)| {
            (path.to_owned(), Entry { since: usage.since.0, bytes: usage.bytes })
        };
        let document = Document { paths: counts.iter().map(entry).collect() };
        let new = file.with_extension("new");
        fs::write(&new, serde_json::to_vec(&document)?)?;
        fs::rename(&new, file)?;
        usage.on_saved(counts);
        Ok(())
    }
}

fn read(file: &Path) -> UsageCounts {
    let text = match fs::metadata(file).map(|facts| (facts.len(), facts.is_file())) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return UsageCounts::default(),
        // Opening another kind, such as a pipe, could wait for ever.
        Ok((_, false)) => Err(io::Error::other("it is not a file")),
        Ok((length, true)) if length > MAX_FILE_SIZE => {
            Err(io::Error::other("the file is too large"))
        }
        _ => fs::read(file),
    };
    let document = text.and_then(|text| Ok(serde_json::from_slice::<Document>(&text)?));
    let document = document.unwrap_or_else(|error| {
        let _ = fs::rename(file, file.with_extension("broken"));
        tracing::warn!(
            "the data usage of this month starts at zero: cannot parse {}: {error}",
            file.display()
        );
        Document::default()
    });
    let usage = |entry: Entry| PathUsage { since: Day(entry.since), bytes: entry.bytes };
    document.paths.into_iter().map(|(path, entry)| (path, usage(entry))).collect()
}

#[cfg(test)]
mod tests {
    use manyways_unit::Size;

    use super::*;

    /// 2024-03-14.
    const PI_DAY: Day = Day(19_796);

    #[test]
    fn two_clients_of_a_host_count_together() {
        let folder = tempfile::tempdir().unwrap();
        let file = UsageFile::within(Some(folder.path()));
        let (mut one, mut two) = (file.load(), file.load());
        one.add("wwan0", 1, PI_DAY, 100);
        two.add("wwan0", 1, PI_DAY, 50);
        file.save(&mut one).unwrap();
        file.save(&mut two).unwrap();
        assert_eq!(two.used("wwan0", 1, PI_DAY).as_bytes(), 150);
        file.save(&mut two).unwrap();
        assert_eq!(file.load().used("wwan0", 1, PI_DAY).as_bytes(), 150);
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let file = UsageFile::within(Some(folder.path()));
        for broken in ["", "{", "[]", "{\"paths\":{\"a\":{\"since\":1,\"bytes\":-1}}}", "\0\0"] {
            fs::write(folder.path().join(FILE_NAME), broken).unwrap();
            let mut usage = file.load();
            assert_eq!(usage.used("a", 1, PI_DAY), Size::ZERO);
            usage.add("a", 1, PI_DAY, 5);
            file.save(&mut usage).unwrap();
            assert_eq!(file.load().used("a", 1, PI_DAY).as_bytes(), 5);
        }
        assert!(folder.path().join("bond-usage.broken").exists());
    }

    #[test]
    fn a_pipe_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE_NAME);
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        let usage = UsageFile::within(Some(folder.path())).load();
        assert_eq!(usage.used("a", 1, PI_DAY), Size::ZERO);
        assert!(!file.exists() && folder.path().join("bond-usage.broken").exists());
    }

    #[test]
    fn without_a_folder_nothing_is_kept() {
        let file = UsageFile::within(None);
        let mut usage = file.load();
        usage.add("a", 1, PI_DAY, 5);
        file.save(&mut usage).unwrap();
        assert_eq!(usage.used("a", 1, PI_DAY).as_bytes(), 5);
    }
}
