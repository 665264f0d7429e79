//! The file with the sizes of earlier transfers.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use manyways_model::radio::Direction;
use manyways_model::select::{History, HistoryEntry, HistoryKey};
use manyways_unit::Time;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use super::{read, within, write};
use crate::base64;

/// Bytes of the key of the hashes.
const KEY: usize = 32;

/// Content of the file: the key of the hashes, and the sizes by hashed names.
#[derive(Default, Serialize, Deserialize)]
struct Document {
    key: String,
    sizes: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    app: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<u64>,
    up: bool,
    /// Nanoseconds since 1970.
    at: u64,
    /// Weight of each bucket.
    buckets: BTreeMap<u16, f64>,
}

/// The sizes of earlier transfers, and the file in which they are stored.
///
/// Names of hosts and applications are hashed with a random key of this file: a reader of the
/// hashes cannot try names.
#[derive(Debug)]
pub struct HistoryFile {
    file: Option<PathBuf>,
    key: [u8; KEY],
    pub history: History,
    is_changed: bool,
}

impl HistoryFile {
    /// Reads the file in this state folder. Without a folder, nothing is stored.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn load(folder: Option<&Path>) -> io::Result<Self> {
        let file = within(folder, "history.json");
        let lost = "the sizes of earlier transfers are lost";
        let document: Document = file.as_deref().map(|file| read(file, lost)).unwrap_or_default();
        let key =
            base64::decode(document.key.as_bytes()).and_then(|key| <[u8; KEY]>::try_from(key).ok());
        let Some(key) = key else {
            let mut key = [0; KEY];
            let filled = SystemRandom::new().fill(&mut key);
            filled.map_err(|_| io::Error::other("the system has no random numbers"))?;
            // Without its key, the hashes are of no use.
            return Ok(Self { file, key, history: History::default(), is_changed: false });
        };
        let entry = |entry: Entry| HistoryEntry {
            key: HistoryKey {
                app: entry.app,
                host: entry.host,
                direction: if entry.up { Direction::Up } else { Direction::Down },
            },
            at: Time::from_nanos(entry.at),
            buckets: entry.buckets.into_iter().collect(),
        };
        let history = History::of_entries(document.sizes.into_iter().map(entry));
        Ok(Self { file, key, history, is_changed: false })
    }

    /// The key for an application and a host.
    pub fn key(&self, app: Option<&str>, host: Option<&str>, direction: Direction) -> HistoryKey {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.key);
        let hash = |name: &str| {
            let tag = hmac::sign(&key, name.to_ascii_lowercase().as_bytes());
            tag.as_ref().iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
        };
        HistoryKey { app: app.map(hash), host: host.map(hash), direction }
    }

    /// Adds a transfer that has ended at this time of the wall clock.
    pub fn add(&mut self, now: Time, key: HistoryKey, size: manyways_unit::Size) {
        self.history.add(now, key, size);
        self.is_changed = true;
    }

    /// Writes the file, if there is anything new.
    ///
    /// # Errors
    /// The file cannot be written; the next call tries again.
    pub fn save(&mut self) -> io::Result<()> {
        let Some(file) = self.file.as_deref().filter(|_| self.is_changed) else { return Ok(()) };
        let entry = |entry: HistoryEntry| Entry {
            app: entry.key.app,
            host: entry.key.host,
            up: entry.key.direction == Direction::Up,
            at: entry.at.as_nanos(),
            buckets: entry.buckets.into_iter().collect(),
        };
        let sizes = self.history.entries().map(entry).collect();
        write(file, &Document { key: base64::encode(&self.key), sizes })?;
        self.is_changed = false;
        Ok(())
    }

    /// Forgets all transfers, also in the file, and the key.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn clear(&mut self) -> io::Result<()> {
        self.history.clear();
        self.is_changed = false;
        let removed = self.file.as_deref().map_or(Ok(()), fs::remove_file);
        removed.or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use manyways_unit::Size;

    use super::*;

    const NOW: Time = Time::from_millis(1_700_000_000_000);

    #[test]
    fn sizes_survive_a_restart_and_names_are_not_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = HistoryFile::load(Some(folder.path())).unwrap();
        let key = file.key(Some("browser"), Some("Video.Example"), Direction::Down);
        for _ in 0..5 {
            file.add(NOW, key, Size::from_bytes(1_000_000));
        }
        file.save().unwrap();
        let path = folder.path().join("steer/history.json");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("xample") && !text.contains("browser"));
        let again = HistoryFile::load(Some(folder.path())).unwrap();
        let key = again.key(Some("browser"), Some("video.example"), Direction::Down);
        assert!(again.history.sizes(NOW, key, false).median() > Size::from_bytes(600_000));
        let up = again.key(Some("browser"), Some("video.example"), Direction::Up);
        assert_eq!(again.history.sizes(NOW, up, false).median(), Size::from_bytes(3_000));
    }

    #[test]
    fn a_torn_file_is_put_aside_and_a_cleared_one_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("steer/history.json");
        fs::create_dir(folder.path().join("steer")).unwrap();
        for torn in ["", "{\"key\":\"AA", "[]", "{\"key\":\"\",\"sizes\":[{\"up\":1}]}", "\0"] {
            fs::write(&path, torn).unwrap();
            let mut file = HistoryFile::load(Some(folder.path())).unwrap();
            let key = file.key(None, Some("a"), Direction::Down);
            file.add(NOW, key, Size::from_bytes(1));
            file.save().unwrap();
            assert!(path.exists());
        }
        assert!(path.with_extension("broken").exists());
        let mut file = HistoryFile::load(Some(folder.path())).unwrap();
        file.clear().unwrap();
        file.clear().unwrap();
        assert!(!path.exists());
    }
}
