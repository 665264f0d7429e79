//! Rotation of a live capture: a sequence of sets of tables, each in its own complete folder.

mod rotation;

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use manyways_unit::Time;

pub(super) use self::rotation::Rotation;
use super::folder::{Folder, FolderError, MANIFEST, SHARD_PREFIX};

/// Prefix of the folder of an incomplete set.
const PART_PREFIX: &str = ".part=";
/// Prefix of a folder that is being removed.
const REMOVED_PREFIX: &str = ".old=";
/// File with the packets of a set.
const CAPTURE_FILE: &str = "capture.pcapng";
/// Format of the times in names, without colons, which some file systems do not allow.
const TIME_FORMAT: &str = "0000-00-00T00-00-00Z";

/// A folder of sets. The name of each set is `shard=` and its start time; a set appears complete or
/// not at all. Incomplete sets of a killed run are removed by the next run.
#[derive(Debug)]
pub struct Sets {
    path: PathBuf,
    /// Held until the end, because two writers would remove each other's files.
    _lock: File,
    max_sets: Option<usize>,
    current: Option<CurrentSet>,
}

struct CurrentSet {
    name: String,
    part: PathBuf,
    folder: Folder,
}

impl std::fmt::Debug for CurrentSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Sets {
    /// Creates a folder for sets, or continues one. After each set, the oldest ones are removed so
    /// that at most `keep` are left.
    pub fn create(path: &Path, keep: Option<usize>) -> Result<Self, FolderError> {
        let wrong = |error| FolderError::Write { path: path.to_owned(), error };
        fs::create_dir_all(path).map_err(wrong)?;
        // Readers of this folder would ignore the sets and read these tables only.
        if path.join(MANIFEST).exists() {
            return Err(FolderError::HasResults(path.to_owned()));
        }
        let lock = File::open(path).map_err(wrong)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FolderError::Busy(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(wrong(error)),
        }
        let sets = Self { path: path.to_owned(), _lock: lock, max_sets: keep, current: None };
        for name in sets.names()?.iter().filter(|name| is_leftover(name)) {
            let left = path.join(name);
            let removed =
                if left.is_dir() { fs::remove_dir_all(&left) } else { fs::remove_file(&left) };
            removed.map_err(|error| FolderError::Write { path: left, error })?;
        }
        Ok(sets)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves a file with packets into the current set.
    pub(super) fn add_file(&self, file: &Path) -> Result<(), FolderError> {
        let Some(open) = &self.current else { return Ok(()) };
        fs::rename(file, open.part.join(CAPTURE_FILE))
            .map_err(|error| FolderError::Write { path: file.to_owned(), error })
    }

    /// Starts a set.
    pub(super) fn begin(&mut self, at: Time) -> Result<(), FolderError> {
        let name = self.unused_name(&format_time(at));
        let part = self.path.join(format!("{PART_PREFIX}{name}"));
        let folder = Folder::create(&part, true)?;
        self.current = Some(CurrentSet { name, part, folder });
        Ok(())
    }

    /// Folder of the current set.
    pub(super) fn folder(&mut self) -> Option<&mut Folder> {
        self.current.as_mut().map(|open| &mut open.folder)
    }

    /// Completes the current set and removes the oldest ones beyond the limit. `manifest` is the
    /// content of its `flows.json`.
    pub(super) fn finish(&mut self, manifest: &str) -> Result<Option<PathBuf>, FolderError> {
        let Some(CurrentSet { name, part, folder }) = self.current.take() else { return Ok(None) };
        folder.finish(manifest)?;
        let whole = self.path.join(format!("{SHARD_PREFIX}{name}"));
        fs::rename(&part, &whole)
            .map_err(|error| FolderError::Write { path: whole.clone(), error })?;
        self.prune()?;
        Ok(Some(whole))
    }

    fn prune(&self) -> Result<(), FolderError> {
        let Some(keep) = self.max_sets else { return Ok(()) };
        let mut names: Vec<String> =
            self.names()?.into_iter().filter(|name| is_set(name)).collect();
        names.sort();
        let more = names.len().saturating_sub(keep);
        for name in names.iter().take(more) {
            // Renamed first, so that readers see a set complete or not at all.
            let (path, old) =
                (self.path.join(name), self.path.join(format!("{REMOVED_PREFIX}{name}")));
            fs::rename(&path, &old)
                .and_then(|()| fs::remove_dir_all(&old))
                .map_err(|error| FolderError::Write { path, error })?;
        }
        Ok(())
    }

    /// An unused name; the clock may have been set back to a time that was used.
    fn unused_name(&self, stamp: &str) -> String {
        let is_taken = |name: &str| self.path.join(format!("{SHARD_PREFIX}{name}")).exists();
        let others = (2..).map(|number| format!("{stamp}-{number}"));
        let mut all = std::iter::once(stamp.to_owned()).chain(others);
        all.find(|name| !is_taken(name)).unwrap_or_default()
    }

    fn names(&self) -> Result<Vec<String>, FolderError> {
        let wrong = |error| FolderError::Write { path: self.path.clone(), error };
        let entries = fs::read_dir(&self.path).map_err(wrong)?;
        let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
        entries
            .filter_map(|entry| entry.map(name).transpose())
            .collect::<Result<_, _>>()
            .map_err(wrong)
    }
}

impl Drop for Sets {
    /// Removes an incomplete set, whose files cannot be read.
    fn drop(&mut self) {
        if let Some(CurrentSet { part, folder, .. }) = self.current.take() {
            drop(folder);
            let _ = fs::remove_dir_all(part);
        }
    }
}

/// Whether `name` is that of a set of a live capture. Other shards, for example of a cluster, are
/// never removed.
fn is_set(name: &str) -> bool {
    let Some(stamp) = name.strip_prefix(SHARD_PREFIX) else { return false };
    let Some((time, number)) = stamp.split_at_checked(TIME_FORMAT.len()) else { return false };
    let fits = |(is, form): (u8, u8)| if form == b'0' { is.is_ascii_digit() } else { is == form };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    time.bytes().zip(TIME_FORMAT.bytes()).all(fits)
        && (number.is_empty() || number.strip_prefix('-').is_some_and(is_number))
}

/// Whether the file or folder is left from a killed run.
fn is_leftover(name: &str) -> bool {
    let name = name.strip_suffix(".pcapng").unwrap_or(name);
    let part = name.strip_prefix(PART_PREFIX).map(|stamp| format!("{SHARD_PREFIX}{stamp}"));
    part.is_some_and(|name| is_set(&name)) || name.strip_prefix(REMOVED_PREFIX).is_some_and(is_set)
}

/// Path of an incomplete file of packets, of the set number `set_index` that begins at `start`.
pub(super) fn capture_part(folder: &Path, start: Time, set_index: u64) -> PathBuf {
    folder.join(format!("{PART_PREFIX}{}-{set_index}.pcapng", format_time(start)))
}

/// A time in the format of names.
fn format_time(at: Time) -> String {
    let moment = UNIX_EPOCH + Duration::from_nanos(at.as_nanos());
    humantime::format_rfc3339_seconds(moment).to_string().replace(':', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn at(seconds: u64) -> Time {
        Time::from_millis((1_769_860_800 + seconds) * 1_000)
    }

    #[test]
    fn sets_appear_complete_and_the_oldest_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sets");
        let mut sets = Sets::create(&path, Some(2)).unwrap();
        // The shard of a cluster, not a set.
        fs::create_dir(path.join("shard=a.pcap-0123456789ab")).unwrap();
        for second in [0, 300, 600] {
            sets.begin(at(second)).unwrap();
            assert!(!names(&path).contains(&format!("shard={}", format_time(at(second)))));
            let whole = sets.finish("{}").unwrap().unwrap();
            assert_eq!(fs::read_to_string(whole.join(MANIFEST)).unwrap(), "{}");
        }
        let left = ["shard=2026-01-31T12-05-00Z", "shard=2026-01-31T12-10-00Z"];
        assert_eq!(names(&path), [&left[..], &["shard=a.pcap-0123456789ab"]].concat());
        // The clock was set back, so that the same second occurs again.
        sets.begin(at(600)).unwrap();
        sets.finish("{}").unwrap();
        assert!(names(&path).contains(&"shard=2026-01-31T12-10-00Z-2".to_owned()));
    }

    #[test]
    fn only_leftovers_of_killed_runs_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        let left = [".part=2026-01-31T12-05-00Z", ".old=shard=2026-01-31T11-05-00Z-2"];
        let others = [".part=mine", "shard=x", "notes"];
        fs::write(capture_part(path, at(0), 7), "").unwrap();
        for name in left.iter().chain(&others) {
            fs::create_dir(path.join(name)).unwrap();
            fs::write(path.join(name).join("tcp.parquet.part"), "PAR1").unwrap();
        }
        let mut sets = Sets::create(path, None).unwrap();
        assert_eq!(names(path), [".part=mine", "notes", "shard=x"]);
        // A second writer is refused.
        assert!(matches!(Sets::create(path, None), Err(FolderError::Busy(_))));
        // An abandoned set leaves no files.
        sets.begin(at(0)).unwrap();
        assert_eq!(names(path).len(), 4);
        drop(sets);
        assert_eq!(names(path), [".part=mine", "notes", "shard=x"]);
        fs::write(path.join(MANIFEST), "{}").unwrap();
        assert!(matches!(Sets::create(path, None), Err(FolderError::HasResults(_))));
    }

    #[test]
    fn names_of_sets() {
        assert_eq!(format_time(at(0)), "2026-01-31T12-00-00Z");
        assert!(is_set("shard=2026-01-31T12-00-00Z") && is_set("shard=2026-01-31T12-00-00Z-17"));
        for other in [
            "2026-01-31T12-00-00Z",
            "shard=2026-01-31T12:00:00Z",
            "shard=a",
            "shard=",
            "shard=2026-01-31T12-00-00Z-",
            "shard=2026-01-31T12-00-00Zx",
        ] {
            assert!(!is_set(other), "{other}");
        }
    }
}
