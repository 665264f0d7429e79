//! The file with the marks of networks: running flows keep theirs over a restart.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{read, within, write};

/// Greatest number of a mark.
const MAX: u32 = 15;

#[derive(Default, Serialize, Deserialize)]
struct Document {
    marks: BTreeMap<String, u32>,
}

/// The number of the mark of each network, from 1 to 15.
#[derive(Debug)]
pub struct MarksFile {
    file: Option<PathBuf>,
    saved: BTreeMap<String, u32>,
    pub marks: BTreeMap<String, u32>,
}

impl MarksFile {
    /// Reads the file in this state folder. Without a folder, nothing is stored.
    pub fn load(folder: Option<&Path>) -> Self {
        let file = within(folder, "marks.json");
        let lost = "flows that began before may end";
        let document: Document = file.as_deref().map(|file| read(file, lost)).unwrap_or_default();
        let mut marks = BTreeMap::new();
        for (name, number) in document.marks {
            let is_free = !marks.values().any(|one| *one == number);
            if (1..=MAX).contains(&number) && is_free {
                marks.insert(name, number);
            }
        }
        Self { file, saved: marks.clone(), marks }
    }

    /// Writes the file, if anything is new.
    ///
    /// # Errors
    /// The file cannot be written; the next call tries again.
    pub fn save(&mut self) -> io::Result<()> {
        let Some(file) = self.file.as_deref().filter(|_| self.saved != self.marks) else {
            return Ok(());
        };
        write(file, &Document { marks: self.marks.clone() })?;
        self.saved.clone_from(&self.marks);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_pipe_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("steer/marks.json");
        fs::create_dir(folder.path().join("steer")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        assert!(MarksFile::load(Some(folder.path())).marks.is_empty());
        assert!(!file.exists() && file.with_extension("broken").exists());
    }

    #[test]
    fn marks_survive_a_restart_and_wrong_ones_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = MarksFile::load(Some(folder.path()));
        file.marks.insert("wlan0".to_owned(), 3);
        file.save().unwrap();
        assert_eq!(MarksFile::load(Some(folder.path())).marks["wlan0"], 3);
        let text = r#"{"marks":{"a":0,"b":16,"c":4,"d":4,"e":5}}"#;
        fs::write(folder.path().join("steer/marks.json"), text).unwrap();
        let names: Vec<String> = MarksFile::load(Some(folder.path())).marks.into_keys().collect();
        assert_eq!(names, ["c", "e"]);
    }
}
