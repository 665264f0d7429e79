//! How much flowed over each path since its data plan began anew, also before this run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use manyways_unit::Size;
use serde::{Deserialize, Serialize};

/// The file's name in the folder for state.
const FILE: &str = "bond-usage.json";
/// A file that is larger is not ours.
const MOST: u64 = 1 << 20;
/// Paths that are remembered.
const PATHS: usize = 256;

/// A day, counted from 1970-01-01 (UTC).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Day(pub i64);

/// What was counted, by path.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Book {
    paths: BTreeMap<String, Entry>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Entry {
    /// The day with which counting began.
    since: Day,
    bytes: u64,
}

/// The count, in memory and in a file. Several clients of a host add to the same one.
#[derive(Debug)]
pub struct Usage {
    file: Option<PathBuf>,
    book: Book,
    /// What is not in the file yet: the first day of its month, and bytes.
    fresh: BTreeMap<String, (Day, u64)>,
}

impl Day {
    /// Today.
    #[expect(clippy::disallowed_methods, reason = "data plans begin anew by the calendar")]
    pub fn today() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_secs() / 86_400).unwrap_or_default())
    }

    /// The last day that was the `from_day`th of a month.
    fn month_began(self, from_day: u8) -> Self {
        let day = self.day_of_month();
        let from_day = i64::from(from_day.clamp(1, 28));
        if day >= from_day {
            return Self(self.0 - (day - from_day));
        }
        let last = Self(self.0 - day);
        Self(last.0 - (last.day_of_month() - from_day))
    }

    /// From 1 to 31 (Howard Hinnant, "chrono-compatible low-level date algorithms",
    /// `civil_from_days`).
    fn day_of_month(self) -> i64 {
        let days = self.0 + 719_468;
        let of_era = days.rem_euclid(146_097);
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        of_year - (153 * month + 2) / 5 + 1
    }
}

impl Book {
    /// Adds bytes of the month that began on `since`. Those of months before are forgotten.
    fn add(&mut self, path: &str, since: Day, bytes: u64) {
        if self.paths.len() >= PATHS && !self.paths.contains_key(path) {
            return;
        }
        let entry = self.paths.entry(path.to_owned()).or_insert(Entry { since, bytes: 0 });
        if entry.since < since {
            *entry = Entry { since, bytes: 0 };
        }
        entry.bytes = entry.bytes.saturating_add(bytes);
    }

    fn used(&self, path: &str, since: Day) -> u64 {
        self.paths.get(path).filter(|entry| entry.since >= since).map_or(0, |entry| entry.bytes)
    }
}

impl Usage {
    /// What the file in `folder` says; nothing and no file without one. One that does not read is
    /// put aside.
    pub fn open(folder: Option<&Path>) -> Self {
        let file = folder.map(|folder| folder.join(FILE));
        let book = file.as_deref().map(read).unwrap_or_default();
        Self { file, book, fresh: BTreeMap::new() }
    }

    /// So much flowed over a path, whose month begins with that day.
    pub fn add(&mut self, path: &str, from_day: u8, today: Day, bytes: u64) {
        let since = today.month_began(from_day);
        self.book.add(path, since, bytes);
        let fresh = self.fresh.entry(path.to_owned()).or_insert((since, 0));
        if fresh.0 < since {
            *fresh = (since, 0);
        }
        fresh.1 = fresh.1.saturating_add(bytes);
    }

    /// What flowed over it this month.
    pub fn used(&self, path: &str, from_day: u8, today: Day) -> Size {
        Size::from_bytes(self.book.used(path, today.month_began(from_day)))
    }

    /// Writes what is new to the file.
    ///
    /// # Errors
    /// Where that fails; what is new stays new.
    pub fn save(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        if self.fresh.values().all(|(_, bytes)| *bytes == 0) {
            return Ok(());
        }
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        // Held until it is written: another client may add what it has, too.
        let lock = File::create(file.with_extension("lock"))?;
        lock.lock()?;
        let mut book = read(file);
        for (path, (since, bytes)) in &self.fresh {
            book.add(path, *since, *bytes);
        }
        let new = file.with_extension("new");
        fs::write(&new, serde_json::to_vec(&book)?)?;
        fs::rename(&new, file)?;
        self.book = book;
        self.fresh.clear();
        Ok(())
    }
}

/// The folder of this user for what is to be remembered: that of the lab within one.
pub fn state_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    if let Some(folder) = set("XDG_STATE_HOME") {
        return Some(folder.join("manyways"));
    }
    if let Some(folder) = set("LAB_DIR").filter(|folder| folder.is_dir()) {
        return Some(folder);
    }
    if manyways_sys::sandbox::is_root() {
        return Some(PathBuf::from("/var/lib/manyways"));
    }
    Some(set("HOME")?.join(".local/state/manyways"))
}

fn read(file: &Path) -> Book {
    let text = match fs::metadata(file).map(|facts| facts.len()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Book::default(),
        Ok(length) if length > MOST => Err(io::Error::other("it is too large")),
        _ => fs::read(file),
    };
    let book = text.and_then(|text| Ok(serde_json::from_slice::<Book>(&text)?));
    book.unwrap_or_else(|error| {
        let aside = file.with_extension("broken");
        let _ = fs::rename(file, &aside);
        tracing::warn!(
            "what flowed this month is counted anew: {} does not read ({error})",
            file.display()
        );
        Book::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2024-03-14: a leap year.
    const PI_DAY: Day = Day(19_796);

    #[test]
    fn a_month_begins_on_its_day() {
        assert_eq!(PI_DAY.day_of_month(), 14);
        assert_eq!(Day(0).day_of_month(), 1);
        assert_eq!(PI_DAY.month_began(1), Day(19_783));
        assert_eq!(PI_DAY.month_began(14), PI_DAY);
        // The 15th of February.
        assert_eq!(PI_DAY.month_began(15), Day(19_768));
        for day in 0..40_000 {
            let began = Day(day).month_began(15);
            assert_eq!(began.day_of_month(), 15, "{day}");
            assert!((0..31).contains(&(day - began.0)), "{day}");
        }
    }

    #[test]
    fn a_new_month_begins_at_nothing_and_a_clock_that_jumps_back_loses_nothing() {
        let mut usage = Usage::open(None);
        usage.add("wwan0", 1, PI_DAY, 100);
        usage.add("wwan0", 1, Day(PI_DAY.0 + 17), 20);
        assert_eq!(usage.used("wwan0", 1, PI_DAY).as_bytes(), 120);
        let april = Day(PI_DAY.0 + 18);
        assert_eq!(usage.used("wwan0", 1, april), Size::ZERO);
        usage.add("wwan0", 1, april, 7);
        assert_eq!(usage.used("wwan0", 1, april).as_bytes(), 7);
        usage.add("wwan0", 1, PI_DAY, 1);
        assert_eq!(usage.used("wwan0", 1, april).as_bytes(), 8);
    }

    #[test]
    fn two_clients_of_a_host_count_together() {
        let folder = tempfile::tempdir().unwrap();
        let mut one = Usage::open(Some(folder.path()));
        let mut two = Usage::open(Some(folder.path()));
        one.add("wwan0", 1, PI_DAY, 100);
        two.add("wwan0", 1, PI_DAY, 50);
        one.save().unwrap();
        two.save().unwrap();
        assert_eq!(two.used("wwan0", 1, PI_DAY).as_bytes(), 150);
        two.save().unwrap();
        assert_eq!(Usage::open(Some(folder.path())).used("wwan0", 1, PI_DAY).as_bytes(), 150);
    }

    #[test]
    fn a_file_that_does_not_read_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        for broken in ["", "{", "[]", "{\"paths\":{\"a\":{\"since\":1,\"bytes\":-1}}}", "\0\0"] {
            fs::write(folder.path().join(FILE), broken).unwrap();
            let mut usage = Usage::open(Some(folder.path()));
            assert_eq!(usage.used("a", 1, PI_DAY), Size::ZERO);
            usage.add("a", 1, PI_DAY, 5);
            usage.save().unwrap();
            assert_eq!(Usage::open(Some(folder.path())).used("a", 1, PI_DAY).as_bytes(), 5);
        }
        assert!(folder.path().join("bond-usage.broken").exists());
    }
}
