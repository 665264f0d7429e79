//! The file with the networks that the user prefers for a while.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{read, within, write};

/// Overrides that are stored, at most: the newest ones.
const MAX: usize = 64;

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
    /// Reads the file in this state folder. Without a folder, nothing is stored.
    pub fn load(folder: Option<&Path>) -> Self {
        let file = within(folder, "overrides.json");
        let lost = "the preferred networks are lost";
        let document: Document = file.as_deref().map(|file| read(file, lost)).unwrap_or_default();
        Self { file, overrides: document.overrides.into_iter().take(MAX).collect() }
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
        let excess = self.overrides.len().saturating_sub(MAX);
        self.overrides.drain(..excess);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn preference(network: &str, until: u64, app: Option<&str>) -> Preference {
        Preference { network: network.to_owned(), until, app: app.map(str::to_owned) }
    }

    #[test]
    fn a_preference_survives_a_restart_and_expires() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = OverridesFile::load(Some(folder.path()));
        file.prefer(100, preference("lte", 200, None)).unwrap();
        file.prefer(100, preference("wifi", 300, Some("zoom"))).unwrap();
        file.prefer(110, preference("wifi", 250, None)).unwrap();
        let again = OverridesFile::load(Some(folder.path()));
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
        let mut file = OverridesFile::load(None);
        for app in 0..MAX as u64 + 10 {
            file.prefer(0, preference("lte", 9, Some(&app.to_string()))).unwrap();
        }
        assert_eq!(file.current(1).count(), MAX);
        assert_eq!(file.current(1).next().unwrap().app.as_deref(), Some("10"));
    }
}
