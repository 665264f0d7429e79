//! The file with the networks that the user prefers for a while.

use std::io;
use std::path::{Path, PathBuf};

use manyways_unit::{Span, Time};
use serde::{Deserialize, Serialize};

use super::{read, within, write};

/// Overrides that are stored, at most: the newest ones.
const MAX: usize = 64;
/// Seconds for which a network can be preferred, at most: a year, whatever the wall clock and the file
/// state.
pub const MAX_PREFERENCE: u64 = 366 * 86_400;

/// Two clocks, read at the same moment.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// Seconds since 1970, which a user or a time server may set.
    pub wall: u64,
    /// Of this process, which is never set.
    pub steady: Time,
}

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

/// A preference, and its end at the latest by the steady clock of this process.
#[derive(Debug)]
struct Held {
    preference: Preference,
    end: Time,
}

/// The preferences, which survive a restart.
#[derive(Debug)]
pub struct OverridesFile {
    file: Option<PathBuf>,
    overrides: Vec<Held>,
}

impl Preference {
    fn left(&self, wall: u64) -> Span {
        Span::from_secs(self.until.saturating_sub(wall).min(MAX_PREFERENCE))
    }
}

impl Held {
    fn new(clocks: Clocks, preference: Preference) -> Self {
        let end = clocks.steady + preference.left(clocks.wall);
        Self { preference, end }
    }

    /// A wall clock that is set back prolongs nothing.
    fn left(&self, clocks: Clocks) -> Span {
        self.preference.left(clocks.wall).min(self.end.since(clocks.steady))
    }
}

impl OverridesFile {
    /// Reads the file in this state folder. Without a folder, nothing is stored.
    pub fn load(clocks: Clocks, folder: Option<&Path>) -> Self {
        let file = within(folder, "overrides.json");
        let lost = "the preferred networks are lost";
        let document: Document = file.as_deref().map(|file| read(file, lost)).unwrap_or_default();
        let stored = document.overrides.into_iter().map(|one| Held::new(clocks, one));
        let mut overrides: Vec<Held> = stored.collect();
        keep_newest(&mut overrides);
        Self { file, overrides }
    }

    /// The preferences that have not expired, with the time that is left.
    pub fn current(&self, clocks: Clocks) -> impl Iterator<Item = (&Preference, Span)> {
        let with_rest = self.overrides.iter().map(move |one| (&one.preference, one.left(clocks)));
        with_rest.filter(|(_, left)| !left.is_zero())
    }

    /// Adds a preference in the place of another one for the same application, or for all.
    ///
    /// # Errors
    /// The file cannot be written. The preference holds until the end of this process.
    pub fn prefer(&mut self, clocks: Clocks, preference: Preference) -> io::Result<()> {
        self.overrides
            .retain(|one| !one.left(clocks).is_zero() && one.preference.app != preference.app);
        self.overrides.push(Held::new(clocks, preference));
        keep_newest(&mut self.overrides);
        self.save()
    }

    /// Ends the preference for an application, or that for all; false if there is none.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn end(&mut self, app: Option<&str>) -> io::Result<bool> {
        let before = self.overrides.len();
        self.overrides.retain(|one| one.preference.app.as_deref() != app);
        let has_ended = self.overrides.len() < before;
        if has_ended {
            self.save()?;
        }
        Ok(has_ended)
    }

    fn save(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let overrides = self.overrides.iter().map(|one| one.preference.clone()).collect();
        write(file, &Document { overrides })
    }
}

/// The newest ones are the last ones.
fn keep_newest(overrides: &mut Vec<Held>) {
    let excess = overrides.len().saturating_sub(MAX);
    overrides.drain(..excess);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preference(network: &str, until: u64, app: Option<&str>) -> Preference {
        Preference { network: network.to_owned(), until, app: app.map(str::to_owned) }
    }

    /// Both clocks at the same number.
    fn both(secs: u64) -> Clocks {
        clocks(secs, secs)
    }

    fn clocks(wall: u64, steady: u64) -> Clocks {
        Clocks { wall, steady: Time::ZERO + Span::from_secs(steady) }
    }

    /// The seconds that are left of the only preference.
    fn left(file: &OverridesFile, clocks: Clocks) -> Option<f64> {
        file.current(clocks).next().map(|(_, left)| left.as_secs_f64())
    }

    #[test]
    fn a_preference_survives_a_restart_and_expires() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = OverridesFile::load(both(100), Some(folder.path()));
        file.prefer(both(100), preference("lte", 200, None)).unwrap();
        file.prefer(both(100), preference("wifi", 300, Some("zoom"))).unwrap();
        file.prefer(both(110), preference("wifi", 250, None)).unwrap();
        let again = OverridesFile::load(both(110), Some(folder.path()));
        let current = |file: &OverridesFile, now| -> Vec<String> {
            let current = file.current(both(now));
            current.map(|(one, _)| format!("{} {:?}", one.network, one.app)).collect()
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
        let mut file = OverridesFile::load(both(0), None);
        for app in 0..MAX as u64 + 10 {
            file.prefer(both(0), preference("lte", 9, Some(&app.to_string()))).unwrap();
        }
        assert_eq!(file.current(both(1)).count(), MAX);
        assert_eq!(file.current(both(1)).next().unwrap().0.app.as_deref(), Some("10"));
    }

    #[test]
    fn a_wall_clock_that_is_set_back_by_a_day_prolongs_no_preference() {
        const DAY: u64 = 86_400;
        let start = 30 * DAY;
        let mut file = OverridesFile::load(clocks(start, 0), None);
        file.prefer(clocks(start, 5), preference("lte", start + 600, None)).unwrap();
        assert_eq!(left(&file, clocks(start + 60, 65)), Some(540.0));
        assert_eq!(left(&file, clocks(start - DAY + 60, 65)), Some(540.0));
        assert_eq!(left(&file, clocks(start - DAY + 599, 604)), Some(1.0));
        assert_eq!(left(&file, clocks(start - DAY + 600, 605)), None);
        // One that is made after the step lasts as long.
        let after = clocks(start - DAY + 700, 705);
        file.prefer(after, preference("wifi", after.wall + 600, None)).unwrap();
        assert_eq!(left(&file, clocks(after.wall + 1, 706)), Some(599.0));
        assert_eq!(file.current(after).count(), 1, "the other one has expired");
    }

    #[test]
    fn a_wall_clock_that_is_set_forward_by_a_day_ends_a_preference() {
        const DAY: u64 = 86_400;
        let start = 30 * DAY;
        let mut file = OverridesFile::load(clocks(start, 0), None);
        file.prefer(clocks(start, 5), preference("lte", start + 600, None)).unwrap();
        // As after a night of sleep, in which the steady clock stands.
        assert_eq!(left(&file, clocks(start + DAY, 10)), None);
        // The step was a mistake: the rest of the time applies again.
        assert_eq!(left(&file, clocks(start + 10, 15)), Some(590.0));
        file.prefer(clocks(start + DAY, 20), preference("wifi", start + DAY + 600, None)).unwrap();
        let current = clocks(start + DAY + 1, 21);
        assert_eq!((file.overrides.len(), left(&file, current)), (1, Some(599.0)));
    }

    #[test]
    fn an_end_beyond_all_clocks_is_a_year_away_at_most() {
        let mut file = OverridesFile::load(both(0), None);
        file.prefer(both(7), preference("lte", u64::MAX, None)).unwrap();
        assert_eq!(left(&file, both(7)), Some(MAX_PREFERENCE as f64));
        assert_eq!(left(&file, both(7 + MAX_PREFERENCE)), None);
    }

    #[test]
    fn of_a_file_of_another_program_the_newest_count_and_for_a_year() {
        let folder = tempfile::tempdir().unwrap();
        let overrides: Vec<Preference> =
            (0..MAX + 10).map(|app| preference("lte", u64::MAX, Some(&app.to_string()))).collect();
        write(&folder.path().join("steer/overrides.json"), &Document { overrides }).unwrap();
        let file = OverridesFile::load(both(1_000), Some(folder.path()));
        let current: Vec<(&Preference, Span)> = file.current(both(1_000)).collect();
        let apps: Vec<&str> = current.iter().filter_map(|(one, _)| one.app.as_deref()).collect();
        assert_eq!((apps.len(), apps[0], apps[MAX - 1]), (MAX, "10", "73"));
        assert!(current.iter().all(|(_, left)| left.as_secs_f64() == MAX_PREFERENCE as f64));
    }
}
