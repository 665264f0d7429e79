//! The file with the networks that the user prefers for a while.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{read, within, write};

/// Overrides that are stored, at most: the newest ones.
const MAX: usize = 64;
/// Seconds for which a network can be preferred, at most: a year.
pub const MAX_PREFERENCE: u64 = 366 * 86_400;

/// A network that the user prefers for a while.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Preference {
    /// Its name.
    pub network: String,
    /// Seconds since 1970.
    pub until: u64,
    /// Only for this application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct Document {
    overrides: Vec<Preference>,
}

/// The preferences, which survive a restart.
#[derive(Debug)]
pub struct OverridesFile {
    file: Option<PathBuf>,
    overrides: Vec<Preference>,
}

impl OverridesFile {
    /// Reads the file in this state folder at `now`, in seconds since 1970. Without a folder, nothing is stored.
    pub fn load(folder: Option<&Path>, now: u64) -> Self {
        let file = within(folder, "overrides.json");
        let lost = "the preferred networks are lost";
        let document: Document = file.as_deref().map(|file| read(file, lost)).unwrap_or_default();
        let mut overrides = document.overrides;
        keep_newest(&mut overrides);
        for one in &mut overrides {
            // `prefer` writes no later time, but other programs may.
            one.until = one.until.min(now.saturating_add(MAX_PREFERENCE));
        }
        Self { file, overrides }
    }

    /// The preferences that have not expired at `now`, in seconds since 1970.
    pub fn current(&self, now: u64) -> impl Iterator<Item = &Preference> {
        self.overrides.iter().filter(move |one| now < one.until)
    }

    /// Adds a preference in the place of another one for the same application, or for all.
    ///
    /// # Errors
    /// The file cannot be written. The preference holds until the end of this process.
    pub fn prefer(&mut self, now: u64, preference: Preference) -> io::Result<()> {
        self.overrides.retain(|one| now < one.until && one.app != preference.app);
        self.overrides.push(preference);
        keep_newest(&mut self.overrides);
        self.save()
    }

    /// Ends the preference for an application, or that for all; false if there is none.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn end(&mut self, app: Option<&str>) -> io::Result<bool> {
        let before = self.overrides.len();
        self.overrides.retain(|one| one.app.as_deref() != app);
        let has_ended = self.overrides.len() < before;
        if has_ended {
            self.save()?;
        }
        Ok(has_ended)
    }

    fn save(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        write(file, &Document { overrides: self.overrides.clone() })
    }
}

/// The newest ones are the last ones.
fn keep_newest(overrides: &mut Vec<Preference>) {
    let excess = overrides.len().saturating_sub(MAX);
    overrides.drain(..excess);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preference(network: &str, until: u64, app: Option<&str>) -> Preference {
        Preference { network: network.to_owned(), until, app: app.map(str::to_owned) }
    }

    #[test]
    fn a_preference_survives_a_restart_and_expires() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = OverridesFile::load(Some(folder.path()), 100);
        file.prefer(100, preference("lte", 200, None)).unwrap();
        file.prefer(100, preference("wifi", 300, Some("zoom"))).unwrap();
        file.prefer(110, preference("wifi", 250, None)).unwrap();
        let again = OverridesFile::load(Some(folder.path()), 100);
        let current = |file: &OverridesFile, now| -> Vec<String> {
            file.current(now).map(|one| format!("{} {:?}", one.network, one.app)).collect()
        };
        assert_eq!(current(&again, 120), ["wifi Some(\"zoom\")", "wifi None"]);
        assert_eq!(current(&again, 250), ["wifi Some(\"zoom\")"]);
        // A clock that was set back revives nothing that was replaced.
        assert_eq!(current(&again, 0).len(), 2);
        let mut again = again;
        assert!(again.end(Some("zoom")).unwrap() && !again.end(Some("zoom")).unwrap());
    }

    #[test]
    fn there_is_a_limit() {
        let mut file = OverridesFile::load(None, 0);
        for app in 0..MAX as u64 + 10 {
            file.prefer(0, preference("lte", 9, Some(&app.to_string()))).unwrap();
        }
        assert_eq!(file.current(1).count(), MAX);
        assert_eq!(file.current(1).next().unwrap().app.as_deref(), Some("10"));
    }

    #[test]
    fn of_a_file_of_another_program_the_newest_count_and_for_a_year() {
        let folder = tempfile::tempdir().unwrap();
        let overrides: Vec<Preference> =
            (0..MAX + 10).map(|app| preference("lte", u64::MAX, Some(&app.to_string()))).collect();
        write(&folder.path().join("steer/overrides.json"), &Document { overrides }).unwrap();
        let file = OverridesFile::load(Some(folder.path()), 1_000);
        let apps: Vec<&str> = file.current(1_000).filter_map(|one| one.app.as_deref()).collect();
        assert_eq!((apps.len(), apps[0], apps[MAX - 1]), (MAX, "10", "73"));
        assert!(file.current(1_000).all(|one| one.until == 1_000 + MAX_PREFERENCE));
    }
}
