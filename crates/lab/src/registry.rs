//! Which labs run on this machine, and what must be undone on the host when one has gone.
//!
//! A lab's namespaces and processes end with it, whatever happens. What outlives a killed lab is
//! its folder here and what it changed on the host; both are written down before the change is
//! made, so that [`Registry::collect`] can take them back later.

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

/// Held while the registry changes.
const LOCK: &str = "lock";
/// In a lab's folder, held by the process that runs it.
const LIFE: &str = "life";

/// The folder with one folder a lab.
#[derive(Clone, Debug)]
pub struct Registry {
    folder: PathBuf,
}

/// What is written down about a lab.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub name: String,
    /// Whether its process was there when this was read.
    #[serde(skip)]
    alive: bool,
    /// The process that runs it, by its id in `pid_namespace`; see [`Record::process`].
    pub pid: i32,
    /// The process namespace in which that process was started: a lab within a lab has another one. 0
    /// in records of earlier versions.
    #[serde(default)]
    pub pid_namespace: u64,
    /// First process of its sandbox, by its id in `pid_namespace`; see [`Record::sandbox`].
    pub init: i32,
    /// The process's descriptor of the device's namespace.
    pub device_fd: i32,
    /// The hosts and the descriptors of their namespaces.
    pub hosts: Vec<(String, i32)>,
    /// The links.
    pub links: Vec<String>,
    /// Environment variables of every command in it.
    #[serde(default)]
    pub environment: Vec<(String, String)>,
    /// What it changed on the host.
    pub undo: Undo,
}

/// What to take back on the host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Undo {
    /// A congestion control that was added to the allowed ones.
    pub allowed_cc: Option<String>,
    /// An nftables table.
    pub nft_table: Option<String>,
    /// The network namespace that these were made in, by its inode. A lab within a lab has that lab's for
    /// a host.
    #[serde(default)]
    pub network_namespace: Option<u64>,
    /// A network interface. It vanishes with the lab's namespaces, but the kernel takes its time.
    #[serde(default)]
    pub interface: Option<String>,
    /// `net.ipv4.ip_forward` was off before.
    pub forwarding: bool,
    /// `net.ipv6.conf.all.forwarding` was off before.
    #[serde(default)]
    pub forwarding_v6: bool,
    /// Interfaces of which `accept_ra` was 1, which would mean no more router advertisements on a host
    /// that forwards.
    #[serde(default)]
    pub accept_ra: Vec<String>,
}

/// A lab's folder; its removal, and what must be undone, happen when this is dropped.
#[derive(Debug)]
pub struct Entry {
    registry: Registry,
    record: Record,
    /// Locked as long as the process lives. A process id would not do: within a lab, where other
    /// labs can run, it means another process.
    _life: File,
}

impl Registry {
    /// The registry of this user: `/run/manyways` for root, else below `XDG_RUNTIME_DIR`.
    ///
    /// Within a lab it is the registry of that lab. Ask before joining a user namespace, in which
    /// everybody looks like root.
    pub fn of_user() -> io::Result<Self> {
        let around = std::env::var_os("LAB_DIR").map(PathBuf::from);
        let around = around.as_deref().and_then(Path::parent).filter(|f| f.join(LOCK).exists());
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

    /// The registry in a folder, which is made if it is not there.
    pub fn at(folder: PathBuf) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&folder)?;
        let found = fs::symlink_metadata(&folder)?;
        // In /tmp anybody could have made it before.
        if !found.is_dir() || found.uid() != manyways_sys::sandbox::user_id() {
            let sentence = format!("{} belongs to another user", folder.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, sentence));
        }
        Ok(Self { folder })
    }

    /// A lab's folder.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes a lab's folder. `name` must not be in use.
    pub fn claim(&self, name: &str) -> io::Result<Entry> {
        let _lock = self.lock()?;
        fs::DirBuilder::new().mode(0o755).create(self.folder(name))?;
        let life = File::create(self.folder(name).join(LIFE))?;
        life.lock()?;
        let pid = std::process::id() as i32;
        let pid_namespace = pid::namespace()?;
        let record = Record { name: name.to_owned(), pid, pid_namespace, ..Record::default() };
        let entry = Entry { registry: self.clone(), record, _life: life };
        entry.save()?;
        Ok(entry)
    }

    /// [`claim`](Self::claim) of the name, or of the name with the first number behind it that is free:
    /// two labs may each hold a lab, and both of these make their name of the same process id.
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

    /// What is written down about every lab, running or not.
    pub fn records(&self) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        for folder in fs::read_dir(&self.folder)? {
            let folder = folder?;
            if !folder.file_type()?.is_dir() {
                continue;
            }
            // A folder without a readable record was left by a lab that died while starting.
            let mut record: Record = fs::read(folder.path().join("lab.json"))
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok())
                .unwrap_or_else(|| Record {
                    name: folder.file_name().to_string_lossy().into_owned(),
                    ..Record::default()
                });
            record.alive = File::open(folder.path().join(LIFE))
                .is_ok_and(|life| matches!(life.try_lock_shared(), Err(TryLockError::WouldBlock)));
            records.push(record);
        }
        records.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(records)
    }

    /// Removes what labs that died have left, and gives their names.
    pub fn collect(&self) -> io::Result<Vec<String>> {
        let _lock = self.lock()?;
        let (alive, dead): (Vec<_>, Vec<_>) =
            self.records()?.into_iter().partition(Record::is_alive);
        let mut removed = Vec::new();
        for record in dead {
            if take_back(&record.undo, &alive) {
                fs::remove_dir_all(self.folder(&record.name))?;
                removed.push(record.name);
            }
        }
        Ok(removed)
    }

    fn lock(&self) -> io::Result<File> {
        let file = File::create(self.folder.join(LOCK))?;
        file.lock()?;
        Ok(file)
    }
}

impl Record {
    /// Whether the process that runs the lab was there when the record was read.
    pub fn is_alive(&self) -> bool {
        self.alive
    }

    /// The process that runs the lab, by its id in the caller's process namespace. None where it is in a
    /// lab beside or around the caller's.
    pub fn process(&self) -> Option<i32> {
        match self.pid_namespace {
            0 => Some(self.pid),
            namespace => pid::seen_here(namespace, self.pid),
        }
    }

    /// The first process of the lab's sandbox, as [`process`](Self::process).
    pub fn sandbox(&self) -> Option<i32> {
        match self.process()? {
            owner if owner == self.pid => Some(self.init),
            owner => pid::child_seen_here(owner, self.init),
        }
    }

    /// Gives a command the lab's environment variables; `folder` is the lab's.
    pub(super) fn tell(&self, command: &mut Command, folder: &Path) {
        let variables = self.environment.iter().map(|(name, value)| (name, value));
        command.env("LAB_NAME", &self.name).env("LAB_DIR", folder).envs(variables);
    }
}

impl Entry {
    /// The lab's folder.
    pub fn folder(&self) -> PathBuf {
        self.registry.folder(&self.record.name)
    }

    /// What is written down.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Changes what is written down.
    pub fn update(&mut self, change: impl FnOnce(&mut Record)) -> io::Result<()> {
        change(&mut self.record);
        self.save()
    }

    /// Lets namespaces choose `cc`, which the host must allow.
    ///
    /// # Errors
    /// `NotFound` when the kernel does not have it; `PermissionDenied` without root.
    pub fn allow_cc(&mut self, cc: &str) -> io::Result<()> {
        let _lock = self.registry.lock()?;
        let allowed = fs::read_to_string(ALLOWED_CC)?;
        if allowed.split_whitespace().any(|name| name == cc) {
            // Allowed for another lab's sake: whichever goes last takes it back.
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
            // The kernel's word for a congestion control that it does not have.
            const ENOENT: i32 = 2;
            if error.raw_os_error() == Some(ENOENT) {
                io::Error::new(io::ErrorKind::NotFound, "this kernel does not have it")
            } else {
                error
            }
        })
    }

    /// Lets the caller's network namespace forward IPv4, and IPv6 where that is asked for, and writes down
    /// which of that has to be taken back.
    pub fn allow_forwarding(&mut self, v6: bool) -> io::Result<()> {
        let _lock = self.registry.lock()?;
        let own = NetNs::current()?.inode()?;
        // Allowed for another lab's sake: whichever goes last takes it back.
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
        let accept_ra = if forwarding_v6 { accepting()? } else { Vec::new() };
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
            // Before, because a host that begins to forward drops the routes of those with 1.
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
        // Renamed into place, so that nobody ever reads half of it.
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
        let _ = take_back(&self.record.undo, &others);
        if let Err(error) = fs::remove_dir_all(self.folder()) {
            tracing::warn!(%error, "cannot remove {}", self.folder().display());
        }
    }
}

/// The interfaces, present and future, that follow router advertisements only while the host does not
/// forward.
fn accepting() -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in fs::read_dir("/proc/sys/net/ipv6/conf")? {
        let folder = folder?;
        let value = fs::read_to_string(folder.path().join("accept_ra")).unwrap_or_default();
        // What `all` says holds for no interface.
        if let Ok(name) = folder.file_name().into_string()
            && value.trim() == "1"
            && name != "all"
        {
            found.push(name);
        }
    }
    Ok(found)
}

/// Takes back what a lab changed on the host, but for what another lab needs too. False where that is
/// left to a process outside the lab that this process is in.
fn take_back(undo: &Undo, others: &[Record]) -> bool {
    if let Some(cc) = &undo.allowed_cc
        && !others.iter().any(|other| other.undo.allowed_cc == undo.allowed_cc)
        && let Ok(allowed) = fs::read_to_string(ALLOWED_CC)
    {
        let kept: Vec<_> = allowed.split_whitespace().filter(|name| name != cc).collect();
        let _ = fs::write(ALLOWED_CC, kept.join(" "));
    }
    let Some(made_in) = undo.network_namespace else {
        take_back_network(undo, others);
        return true;
    };
    if NetNs::current().and_then(|own| own.inode()).is_ok_and(|own| own == made_in) {
        take_back_network(undo, others);
        return true;
    }
    // A lab within a lab changed that lab's network, and a lab beside this one that of the host.
    match NetNs::find(made_in) {
        Some(there) => there
            .run(|| {
                take_back_network(undo, others);
                Ok(())
            })
            .is_ok(),
        // Gone, unless only those around this lab can see it.
        None => std::env::var_os("LAB_NAME").is_none(),
    }
}

fn take_back_network(undo: &Undo, others: &[Record]) {
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

    /// Each of two labs can hold a lab, in which the first process has the same id.
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
            fs::write(registry.folder(name).join(LIFE), "").unwrap();
            fs::write(registry.folder(name).join("lab.json"), text).unwrap();
        }
        assert_eq!(registry.collect().unwrap(), ["dead", "torn"]);
        assert_eq!(names(&registry), ["living"]);
    }
}
