//! Registry of the labs on this machine, and of the host's changes that must be undone after each.
//!
//! A lab's namespaces and processes end with it in all cases. After a killed lab, its folder here
//! and its changes to the host remain; both are recorded before the change is made, so that
//! [`Registry::collect`] can undo them later.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use manyways_sys::netns::NetNs;
use manyways_sys::pid;
use serde::{Deserialize, Serialize};

use super::network;

const ALLOWED_CC: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

const FORWARDING: &str = "net/ipv4/ip_forward";
const FORWARDING_V6: &str = "net/ipv6/conf/all/forwarding";

/// Locked while the registry changes.
const LOCK_FILE: &str = "lock";
/// In a lab's folder, locked by the process that runs the lab.
const LIVENESS_FILE: &str = "life";

/// The folder that contains one folder per lab.
#[derive(Clone, Debug)]
pub struct Registry {
    folder: PathBuf,
}

/// Record of a lab.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    /// Whether the process of the lab was running when the record was read.
    #[serde(skip)]
    alive: bool,
    /// Process that runs the lab, by its id in `pid_namespace`; see [`Record::process`].
    pub pid: i32,
    /// PID namespace in which that process was started: a lab within a lab has a different one. 0
    /// in records of earlier versions.
    #[serde(default)]
    pub pid_namespace: u64,
    /// First process of the sandbox, by its id in `pid_namespace`; see [`Record::sandbox`].
    pub init: i32,
    /// The devices and the process's descriptors of their namespaces.
    #[serde(default)]
    pub devices: Vec<(String, i32)>,
    /// The hosts and the descriptors of their namespaces.
    pub hosts: Vec<(String, i32)>,
    /// Names of the links.
    pub links: Vec<String>,
    /// Environment variables of every command in the lab.
    #[serde(default)]
    pub environment: Vec<(String, String)>,
    /// Changes to the host.
    pub undo: Undo,
}

/// Changes to the host that must be undone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Undo {
    /// A congestion control that was added to the allowed ones.
    pub allowed_cc: Option<String>,
    /// An nftables table.
    pub nft_table: Option<String>,
    /// Inode of the network namespace in which these changes were made. The host of a lab within a
    /// lab is the outer lab.
    #[serde(default)]
    pub network_namespace: Option<u64>,
    /// A network interface. It vanishes with the lab's namespaces, but only after some time.
    #[serde(default)]
    pub interface: Option<String>,
    /// Whether `net.ipv4.ip_forward` was off before.
    pub forwarding: bool,
    /// Whether `net.ipv6.conf.all.forwarding` was off before.
    #[serde(default)]
    pub forwarding_v6: bool,
    /// Interfaces whose `accept_ra` was 1, which means that a forwarding host ignores router
    /// advertisements.
    #[serde(default)]
    pub accept_ra: Vec<String>,
}

/// A lab's folder. Dropping the entry removes it and undoes the changes to the host.
#[derive(Debug)]
pub struct Entry {
    registry: Registry,
    record: Record,
    /// Locked as long as the process lives. A process id is not sufficient: within a lab, in which
    /// other labs can run, the same id means another process.
    _liveness_lock: File,
}

impl Registry {
    /// Returns the registry of this user: `/run/manyways` for root, otherwise below
    /// `XDG_RUNTIME_DIR`.
    ///
    /// Within a lab it is the registry of the outer lab. Call before joining a user namespace, in
    /// which every user looks like root.
    pub fn of_user() -> io::Result<Self> {
        let around = std::env::var_os("LAB_DIR").map(PathBuf::from);
        let around =
            around.as_deref().and_then(Path::parent).filter(|f| f.join(LOCK_FILE).exists());
        let folder = if let Some(folder) = around {
            folder.to_owned()
        } else if manyways_sys::sandbox::is_root() {
            PathBuf::from("/run/manyways")
        } else if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR") {
            Path::new(&runtime).join("manyways")
        } else {
            std::env::temp_dir().join(format!("manyways-{}", manyways_sys::sandbox::user_id()))
        };
        Self::at(folder)
    }

    /// Opens the registry in a folder, which is created if it does not exist.
    pub fn at(folder: PathBuf) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&folder)?;
        let found = fs::symlink_metadata(&folder)?;
        // In /tmp another user could have created the folder.
        if !found.is_dir() || found.uid() != manyways_sys::sandbox::user_id() {
            let message = format!("{} belongs to another user", folder.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        Ok(Self { folder })
    }

    /// Returns the folder of a lab.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Creates a lab's folder. `name` must not be in use.
    pub fn claim(&self, name: &str) -> io::Result<Entry> {
        let _lock = self.lock()?;
        fs::DirBuilder::new().mode(0o755).create(self.folder(name))?;
        let life = File::create(self.folder(name).join(LIVENESS_FILE))?;
        life.lock()?;
        let pid = std::process::id() as i32;
        let pid_namespace = pid::namespace()?;
        let record = Record { name: name.to_owned(), pid, pid_namespace, ..Record::default() };
        let entry = Entry { registry: self.clone(), record, _liveness_lock: life };
        entry.save()?;
        Ok(entry)
    }

    /// Like [`claim`](Self::claim), with the name or the name with the first free number appended:
    /// two labs may each contain a lab, and both derive the name from the same process id.
    pub fn claim_numbered(&self, name: &str) -> io::Result<Entry> {
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut names = [name.to_owned()].into_iter().chain(numbered);
        loop {
            match names.next().map(|name| self.claim(&name)) {
                Some(Err(error)) if error.kind() == io::ErrorKind::AlreadyExists => {}
                claimed => return claimed.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into())),
            }
        }
    }

    /// Returns the records of all labs, running or not.
    pub fn records(&self) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        for folder in fs::read_dir(&self.folder)? {
            let folder = folder?;
            if !folder.file_type()?.is_dir() {
                continue;
            }
            // A folder without a readable record belongs to a lab that died while starting.
            let mut record: Record = fs::read(folder.path().join("lab.json"))
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok())
                .unwrap_or_else(|| Record {
                    name: folder.file_name().to_string_lossy().into_owned(),
                    ..Record::default()
                });
            record.alive = File::open(folder.path().join(LIVENESS_FILE))
                .is_ok_and(|life| matches!(life.try_lock_shared(), Err(TryLockError::WouldBlock)));
            records.push(record);
        }
        records.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(records)
    }

    /// Removes the folders and changes of labs that died, and returns their names.
    pub fn collect(&self) -> io::Result<Vec<String>> {
        let _lock = self.lock()?;
        let (alive, dead): (Vec<_>, Vec<_>) =
            self.records()?.into_iter().partition(Record::is_alive);
        let mut removed = Vec::new();
        for record in dead {
            if undo_changes(&record.undo, &alive) {
                fs::remove_dir_all(self.folder(&record.name))?;
                removed.push(record.name);
            }
        }
        Ok(removed)
    }

    fn lock(&self) -> io::Result<File> {
        let file = File::create(self.folder.join(LOCK_FILE))?;
        file.lock()?;
        Ok(file)
    }
}

impl Record {
    /// Whether the process of the lab was running when the record was read.
    pub fn is_alive(&self) -> bool {
        self.alive
    }

    /// Returns the process that runs the lab, by its id in the caller's PID namespace. `None` if it
    /// is in a lab outside or parallel to the caller's.
    pub fn process(&self) -> Option<i32> {
        match self.pid_namespace {
            0 => Some(self.pid),
            namespace => pid::local_pid(namespace, self.pid),
        }
    }

    /// Returns the first process of the lab's sandbox, like [`process`](Self::process).
    pub fn sandbox(&self) -> Option<i32> {
        match self.process()? {
            owner if owner == self.pid => Some(self.init),
            owner => pid::local_child_pid(owner, self.init),
        }
    }

    /// Sets the lab's environment variables for a command; `folder` is the lab's folder.
    pub(super) fn set_environment(&self, command: &mut Command, folder: &Path) {
        let variables = self.environment.iter().map(|(name, value)| (name, value));
        command.env("LAB_NAME", &self.name).env("LAB_DIR", folder).envs(variables);
    }
}

impl Entry {
    pub fn folder(&self) -> PathBuf {
        self.registry.folder(&self.record.name)
    }

    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Changes the record and saves it.
    pub fn update(&mut self, change: impl FnOnce(&mut Record)) -> io::Result<()> {
        change(&mut self.record);
        self.save()
    }

    /// Allows namespaces to choose `cc`, which the host must allow.
    ///
    /// # Errors
    /// `NotFound` if the kernel does not have it; `PermissionDenied` without root.
    pub fn allow_cc(&mut self, cc: &str) -> io::Result<()> {
        let _lock = self.registry.lock()?;
        let allowed = fs::read_to_string(ALLOWED_CC)?;
        if allowed.split_whitespace().any(|name| name == cc) {
            // Allowed for another lab: the last of these labs to end undoes it.
            let lent = self
                .registry
                .records()?
                .iter()
                .any(|other| other.is_alive() && other.undo.allowed_cc.as_deref() == Some(cc));
            if lent {
                self.update(|record| record.undo.allowed_cc = Some(cc.to_owned()))?;
            }
            return Ok(());
        }
        let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
        if !available.split_whitespace().any(|name| name == cc) {
            // The kernel may have it as a module.
            let module = format!("tcp_{cc}");
            let _ = network::run("modprobe", &["-q", &module], "");
        }
        self.update(|record| record.undo.allowed_cc = Some(cc.to_owned()))?;
        fs::write(ALLOWED_CC, format!("{} {cc}", allowed.trim())).map_err(|error| {
            // The kernel's error for a congestion control that it does not have.
            const ENOENT: i32 = 2;
            if error.raw_os_error() == Some(ENOENT) {
                io::Error::new(io::ErrorKind::NotFound, "this kernel does not have it")
            } else {
                error
            }
        })
    }

    /// Enables forwarding of IPv4, and of IPv6 if `v6`, in the caller's network namespace. Records
    /// the changes that must be undone.
    pub fn allow_forwarding(&mut self, v6: bool) -> io::Result<()> {
        let _lock = self.registry.lock()?;
        let own = NetNs::current()?.inode()?;
        // Enabled for another lab: the last of these labs to end undoes it.
        let lent: Vec<Undo> = self
            .registry
            .records()?
            .into_iter()
            .filter(|other| other.is_alive() && other.undo.network_namespace == Some(own))
            .map(|other| other.undo)
            .collect();
        let is_off = |key: &str| {
            fs::read_to_string(Path::new("/proc/sys").join(key)).map(|value| value.trim() == "0")
        };
        let forwarding = is_off(FORWARDING)?;
        let forwarding_v6 = v6 && is_off(FORWARDING_V6)?;
        let accept_ra = if forwarding_v6 { accept_ra_interfaces()? } else { Vec::new() };
        self.update(|record| {
            let undo = &mut record.undo;
            undo.network_namespace = Some(own);
            undo.forwarding = forwarding || lent.iter().any(|other| other.forwarding);
            if v6 {
                undo.forwarding_v6 = forwarding_v6 || lent.iter().any(|other| other.forwarding_v6);
                undo.accept_ra = accept_ra.clone();
                undo.accept_ra.extend(lent.into_iter().flat_map(|other| other.accept_ra));
                undo.accept_ra.sort();
                undo.accept_ra.dedup();
            }
        })?;
        if forwarding {
            network::sysctl(FORWARDING, "1")?;
        }
        if forwarding_v6 {
            // Set first, because a host that starts to forward drops the routes of interfaces with
            // 1.
            for interface in &accept_ra {
                network::sysctl(&format!("net/ipv6/conf/{interface}/accept_ra"), "2")?;
            }
            network::sysctl(FORWARDING_V6, "1")?;
        }
        Ok(())
    }

    fn save(&self) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(&self.record)?;
        let file = self.folder().join("lab.json");
        // Renamed into place, so that a reader never sees a partial file.
        let fresh = self.folder().join("lab.json.new");
        fs::write(&fresh, text)?;
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o644))?;
        fs::rename(fresh, file)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Ok(_lock) = self.registry.lock() else { return };
        let others: Vec<_> = self
            .registry
            .records()
            .unwrap_or_default()
            .into_iter()
            .filter(|other| other.name != self.record.name && other.is_alive())
            .collect();
        let _ = undo_changes(&self.record.undo, &others);
        if let Err(error) = fs::remove_dir_all(self.folder()) {
            tracing::warn!(%error, "cannot remove {}", self.folder().display());
        }
    }
}

/// Returns the interfaces, including the defaults for new ones, that accept router advertisements
/// only while the host does not forward.
fn accept_ra_interfaces() -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in fs::read_dir("/proc/sys/net/ipv6/conf")? {
        let folder = folder?;
        let value = fs::read_to_string(folder.path().join("accept_ra")).unwrap_or_default();
        // The value of `all` applies to no interface.
        if let Ok(name) = folder.file_name().into_string()
            && value.trim() == "1"
            && name != "all"
        {
            found.push(name);
        }
    }
    Ok(found)
}

/// Undoes the changes of a lab to the host, except those that another lab needs. Returns false if
/// this is left to a process outside the lab in which the caller runs.
fn undo_changes(undo: &Undo, others: &[Record]) -> bool {
    if let Some(cc) = &undo.allowed_cc
        && !others.iter().any(|other| other.undo.allowed_cc == undo.allowed_cc)
        && let Ok(allowed) = fs::read_to_string(ALLOWED_CC)
    {
        let kept: Vec<_> = allowed.split_whitespace().filter(|name| name != cc).collect();
        let _ = fs::write(ALLOWED_CC, kept.join(" "));
    }
    let Some(made_in) = undo.network_namespace else {
        undo_network_changes(undo, others);
        return true;
    };
    if NetNs::current().and_then(|own| own.inode()).is_ok_and(|own| own == made_in) {
        undo_network_changes(undo, others);
        return true;
    }
    // A lab within a lab changed the outer lab's network, and a lab on the host changed the host's.
    match NetNs::find(made_in) {
        Some(there) => there
            .run(|| {
                undo_network_changes(undo, others);
                Ok(())
            })
            .is_ok(),
        // Removed, unless only processes outside this lab can see it.
        None => std::env::var_os("LAB_NAME").is_none(),
    }
}

fn undo_network_changes(undo: &Undo, others: &[Record]) {
    let needed = |what: fn(&Undo) -> bool| {
        let same = |other: &&Record| other.undo.network_namespace == undo.network_namespace;
        others.iter().filter(same).any(|other| what(&other.undo))
    };
    if let Some(table) = &undo.nft_table {
        let _ = network::run("nft", &["delete", "table", "inet", table], "");
    }
    if let Some(interface) = &undo.interface {
        let _ = network::ip(&format!("link del {interface}\n"));
    }
    if undo.forwarding && !needed(|other| other.forwarding) {
        let _ = network::sysctl(FORWARDING, "0");
    }
    if undo.forwarding_v6 && !needed(|other| other.forwarding_v6) {
        let _ = network::sysctl(FORWARDING_V6, "0");
        for interface in &undo.accept_ra {
            let _ = network::sysctl(&format!("net/ipv6/conf/{interface}/accept_ra"), "1");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry() -> (tempfile::TempDir, Registry) {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::at(folder.path().join("labs")).unwrap();
        (folder, registry)
    }

    fn names(registry: &Registry) -> Vec<String> {
        registry.records().unwrap().into_iter().map(|record| record.name).collect()
    }

    #[test]
    fn a_lab_is_listed_while_its_entry_lives() {
        let (_folder, registry) = registry();
        let entry = registry.claim("one").unwrap();
        assert_eq!(names(&registry), ["one"]);
        assert!(registry.records().unwrap()[0].is_alive());
        drop(entry);
        assert!(names(&registry).is_empty());
    }

    #[test]
    fn a_name_is_taken_once() {
        let (_folder, registry) = registry();
        let _entry = registry.claim("one").unwrap();
        let error = registry.claim("one").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }

    /// Each of two labs can contain a lab whose first process has the same id.
    #[test]
    fn a_generated_name_that_is_taken_gets_a_number() {
        let (_folder, registry) = registry();
        let entries = [(); 3].map(|()| registry.claim_numbered("lab-3").unwrap());
        assert_eq!(names(&registry), ["lab-3", "lab-3-2", "lab-3-3"]);
        drop(entries);
        assert!(names(&registry).is_empty());
    }

    #[test]
    fn a_lab_of_a_process_namespace_elsewhere_has_no_process_here() {
        let (_folder, registry) = registry();
        let entry = registry.claim("one").unwrap();
        let own = std::process::id() as i32;
        assert_eq!(entry.record().process(), Some(own));
        let elsewhere = Record { pid_namespace: 1, ..entry.record().clone() };
        assert_eq!((elsewhere.process(), elsewhere.sandbox()), (None, None));
    }

    #[test]
    fn collecting_takes_the_dead_and_leaves_the_living() {
        let (_folder, registry) = registry();
        let _living = registry.claim("living").unwrap();
        let dead = Record { name: "dead".into(), pid: 1, ..Record::default() };
        for (name, text) in [("dead", serde_json::to_string(&dead).unwrap()), ("torn", "{".into())]
        {
            fs::create_dir(registry.folder(name)).unwrap();
            fs::write(registry.folder(name).join(LIVENESS_FILE), "").unwrap();
            fs::write(registry.folder(name).join("lab.json"), text).unwrap();
        }
        assert_eq!(registry.collect().unwrap(), ["dead", "torn"]);
        assert_eq!(names(&registry), ["living"]);
    }
}
