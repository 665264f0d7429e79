//! The devices with which this one is paired, in a file.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use manyways_proto::bond::pairing::{MAX_NAME, is_device_name};
use serde::{Deserialize, Serialize};

use crate::bond::key::PublicKey;

/// Maximum size of a file in bytes.
const MAX_FILE_SIZE: u64 = 1 << 20;
/// File of a lender.
const BORROWERS: &str = "borrowers.json";
/// File of a client.
const LENDERS: &str = "lenders.json";

/// A device with which this one is paired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PairedDevice {
    pub name: String,
    pub key: PublicKey,
    pub role: PairedRole,
}

/// The part of the other device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PairedRole {
    /// It lends its network, and listens at this address. The random number of the pairing shows a
    /// client that the device was paired again.
    Lender { address: SocketAddr, pairing: u64 },
    /// It uses the network of this device, to reach this gateway only.
    Borrower { gateway: Vec<SocketAddr>, gateway_key: PublicKey },
}

/// The file with the paired devices of one kind.
#[derive(Clone, Debug)]
pub struct PairFile(PathBuf);

/// Failure to read or write the paired devices.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", .path.display())]
pub struct PairFileError {
    path: PathBuf,
    #[source]
    error: io::Error,
}

/// Failure to add a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddDeviceError {
    #[error("another device is paired under the name {0}")]
    NameTaken(String),
    #[error("{0}")]
    File(#[from] PairFileError),
}

#[derive(Serialize, Deserialize, Default)]
struct Document {
    devices: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pairing: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<Vec<SocketAddr>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway_key: Option<String>,
}

impl Entry {
    fn of(device: &PairedDevice) -> Self {
        let (name, key) = (device.name.clone(), device.key.to_string());
        match &device.role {
            PairedRole::Lender { address, pairing } => Self {
                name,
                key,
                address: Some(*address),
                pairing: Some(*pairing),
                gateway: None,
                gateway_key: None,
            },
            PairedRole::Borrower { gateway, gateway_key } => Self {
                name,
                key,
                address: None,
                pairing: None,
                gateway: Some(gateway.clone()),
                gateway_key: Some(gateway_key.to_string()),
            },
        }
    }

    fn device(self) -> Option<PairedDevice> {
        let role = match (self.address, self.gateway, self.gateway_key) {
            (Some(address), None, None) => {
                PairedRole::Lender { address, pairing: self.pairing.unwrap_or_default() }
            }
            (None, Some(gateway), Some(key)) => {
                PairedRole::Borrower { gateway, gateway_key: key.parse().ok()? }
            }
            _ => return None,
        };
        let key = self.key.parse().ok()?;
        is_device_name(&self.name).then_some(PairedDevice { name: self.name, key, role })
    }
}

impl PairFile {
    /// The devices that borrow the network of this one.
    pub fn borrowers(folder: &Path) -> Self {
        Self(folder.join(BORROWERS))
    }

    /// The devices that lend their network to this one.
    pub fn lenders(folder: &Path) -> Self {
        Self(folder.join(LENDERS))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns all devices; none if there is no file.
    ///
    /// # Errors
    /// If the file cannot be read, or was not written by this program.
    pub fn read(&self) -> Result<Vec<PairedDevice>, PairFileError> {
        let text = match fs::metadata(&self.0).map(|facts| (facts.len(), facts.is_file())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Ok((length, is_file)) if !is_file || length > MAX_FILE_SIZE => {
                Err(io::Error::other("not a file of paired devices"))
            }
            _ => fs::read(&self.0),
        };
        let devices = text.and_then(|text| {
            let document: Document = serde_json::from_slice(&text)?;
            let devices: Option<Vec<PairedDevice>> =
                document.devices.into_iter().map(Entry::device).collect();
            devices.ok_or_else(|| io::Error::other("a device has a wrong key or name"))
        });
        devices.map_err(|error| self.failed(error))
    }

    /// Adds a device, in place of its own earlier entry.
    ///
    /// # Errors
    /// If the file cannot be read or written, or another device has this name.
    pub fn add(&self, device: PairedDevice) -> Result<(), AddDeviceError> {
        let name = device.name.clone();
        let mut is_taken = false;
        self.change(|devices| {
            is_taken = devices.iter().any(|one| one.name == name && one.key != device.key);
            if !is_taken {
                devices.retain(|other| other.key != device.key);
                devices.push(device);
            }
        })?;
        if is_taken { Err(AddDeviceError::NameTaken(name)) } else { Ok(()) }
    }

    /// Adds a device in place of its own earlier entry, with a number behind its name if another
    /// device has the name or it is one of `taken`. Returns its name.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn add_renamed(
        &self,
        mut device: PairedDevice,
        taken: &[String],
    ) -> Result<String, PairFileError> {
        let mut name = String::new();
        self.change(|devices| {
            devices.retain(|other| other.key != device.key);
            let is_free = |name: &String| {
                !taken.contains(name) && devices.iter().all(|one| one.name != *name)
            };
            device.name = free_name(&device.name, is_free);
            name.clone_from(&device.name);
            devices.push(device);
        })?;
        Ok(name)
    }

    /// Removes the device of this name. Returns whether there was one.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn remove(&self, name: &str) -> Result<bool, PairFileError> {
        let mut found = false;
        self.change(|devices| {
            let before = devices.len();
            devices.retain(|device| device.name != name);
            found = devices.len() < before;
        })?;
        Ok(found)
    }

    fn change(&self, edit: impl FnOnce(&mut Vec<PairedDevice>)) -> Result<(), PairFileError> {
        let failed = |error| self.failed(error);
        if let Some(folder) = self.0.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        // Another process may add a device, too.
        let lock = fs::File::create(self.0.with_extension("lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut devices = self.read()?;
        edit(&mut devices);
        let document = Document { devices: devices.iter().map(Entry::of).collect() };
        let new = self.0.with_extension("new");
        let written =
            serde_json::to_vec_pretty(&document).map_err(io::Error::from).and_then(|text| {
                let mut options = fs::OpenOptions::new();
                let mut file =
                    options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
                file.write_all(&text)?;
                file.sync_all()?;
                fs::rename(&new, &self.0)
            });
        written.map_err(failed)
    }

    fn failed(&self, error: io::Error) -> PairFileError {
        PairFileError { path: self.0.clone(), error }
    }
}

/// Returns a name, or else the first free one of those with a number behind it.
fn free_name(name: &str, is_free: impl Fn(&String) -> bool) -> String {
    let numbered = (2..u32::MAX).map(|number| {
        let number = format!("-{number}");
        // A device name is ASCII.
        let length = name.len().min(MAX_NAME - number.len());
        format!("{}{number}", &name[..length])
    });
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(is_free).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, key: u8) -> PairedDevice {
        let address = SocketAddr::from(([192, 168, 1, 7], 4434));
        PairedDevice {
            name: name.to_owned(),
            key: PublicKey([key; 32]),
            role: PairedRole::Lender { address, pairing: u64::MAX },
        }
    }

    #[test]
    fn devices_are_added_paired_again_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = PairFile::lenders(&folder.path().join("state"));
        assert_eq!(file.read().unwrap(), []);
        for (name, key) in [("phone", 3), ("tablet", 2), ("phone", 3), ("watch", 2)] {
            file.add(device(name, key)).unwrap();
        }
        assert_eq!(file.read().unwrap(), [device("phone", 3), device("watch", 2)]);
        assert!(file.remove("phone").unwrap() && !file.remove("phone").unwrap());
        assert_eq!(file.read().unwrap(), [device("watch", 2)]);
        let role = PairedRole::Borrower {
            gateway: vec![SocketAddr::from(([203, 0, 113, 1], 4433))],
            gateway_key: PublicKey([9; 32]),
        };
        let laptop = PairedDevice { role, ..device("laptop", 5) };
        let file = PairFile::borrowers(folder.path());
        file.add(laptop.clone()).unwrap();
        assert_eq!(file.read().unwrap(), [laptop]);
    }

    #[test]
    fn a_device_does_not_replace_another_one_of_the_same_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = PairFile::lenders(folder.path());
        file.add(device("localhost", 1)).unwrap();
        let second = file.add(device("localhost", 2));
        assert!(matches!(second, Err(AddDeviceError::NameTaken(name)) if name == "localhost"));
        assert_eq!(file.read().unwrap(), [device("localhost", 1)]);
        let taken = ["localhost-2".to_owned()];
        for _ in 0..2 {
            let name = file.add_renamed(device("localhost", 2), &taken).unwrap();
            assert_eq!(name, "localhost-3", "also if it is paired again");
        }
        assert_eq!(file.read().unwrap(), [device("localhost", 1), device("localhost-3", 2)]);
        let long = "x".repeat(MAX_NAME);
        assert_eq!(file.add_renamed(device(&long, 3), &[]).unwrap(), long);
        let numbered = file.add_renamed(device(&long, 4), &[]).unwrap();
        assert!(is_device_name(&numbered) && numbered.ends_with("x-2"), "{numbered}");
    }

    #[test]
    fn a_foreign_file_is_an_error_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = PairFile::lenders(folder.path());
        for text in ["", "{}", "{\"devices\":[{\"name\":\"a b\",\"key\":\"x\"}]}", "[1]"] {
            fs::write(file.path(), text).unwrap();
            assert!(file.read().is_err(), "{text}");
            assert!(file.add(device("phone", 1)).is_err(), "{text}");
            assert_eq!(fs::read_to_string(file.path()).unwrap(), text);
        }
    }
}
