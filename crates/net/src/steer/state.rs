//! The files of the state: sizes of earlier transfers, preferred networks, marks of networks.
//!
//! Each file is read and written on its own, so that a broken one does not cost the others. Only its
//! user can open it. It is replaced as a whole, and a file that cannot be parsed is put aside.

mod history;
mod marks;
mod overrides;

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::history::HistoryFile;
pub use self::marks::MarksFile;
pub use self::overrides::{Clocks, MAX_PREFERENCE, OverridesFile, Preference};

/// Maximum size of a file, in bytes. A larger file counts as broken.
const MAX_FILE: u64 = 8 << 20;

/// Reads a document; the default one without a file, or if the file is broken.
fn read<T: DeserializeOwned + Default>(file: &Path, lost: &str) -> T {
    let text = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // Opening another kind, such as a pipe, could wait for ever.
        if !fs::metadata(file)?.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        fs::File::open(file)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > MAX_FILE {
            true => Err(io::Error::other("the file is too large")),
            false => Ok(bytes),
        }
    };
    let document = match text() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return T::default(),
        Err(error) => Err(error),
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
    };
    document.unwrap_or_else(|error| {
        let broken = file.with_extension("broken");
        let _ = fs::rename(file, &broken);
        tracing::warn!("{lost}: cannot read {}: {error}", file.display());
        T::default()
    })
}

/// Replaces a file.
fn write(file: &Path, document: &impl Serialize) -> io::Result<()> {
    create_folder(file)?;
    let new = file.with_extension("new");
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(true).mode(0o600);
    let mut opened = open.open(&new)?;
    opened.write_all(&serde_json::to_vec(document)?)?;
    opened.sync_all()?;
    fs::rename(&new, file)
}

fn create_folder(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(folder) => fs::DirBuilder::new().recursive(true).mode(0o700).create(folder),
        None => Ok(()),
    }
}

/// The file of this name in a folder of `steer`; `None` without a folder.
fn within(folder: Option<&Path>, name: &str) -> Option<PathBuf> {
    folder.map(|folder| folder.join("steer").join(name))
}
