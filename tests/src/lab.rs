//! A lab that runs during a test.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use manyways_rig::assert_no_panic;
use manyways_rig::testbed::Namespace;

use crate::{Finished, Folder, Running, finish, folder, manyways};

/// Locked by tests that have a lab: all labs share some kernel settings of the host. The lock holds
/// between processes, since each test may have its own, and ends when the file is closed.
fn host_file() -> File {
    let path = std::env::temp_dir().join("manyways-tests.lock");
    File::options().create(true).append(true).open(path).expect("the lock's file can be opened")
}

/// Other labs of these tests may run concurrently.
pub fn shared_host() -> File {
    let file = host_file();
    file.lock_shared().expect("a file can be locked");
    file
}

/// No other lab of these tests runs concurrently.
pub fn alone() -> File {
    let file = host_file();
    file.lock().expect("a file can be locked");
    file
}

/// A unique name for a lab.
pub fn lab_name(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Prints the namespace of a process.
const LOOK: &str = "readlink /proc/self/ns/net";

/// A lab whose command waits until the value is dropped.
pub struct Lab {
    pub name: String,
    pub process: Running,
    log: Folder,
    _guard: Option<File>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        // It may panic at its end.
        self.process.end();
        if std::thread::panicking() {
            eprintln!("lab {}:\n{}", self.name, self.stderr());
        } else {
            assert_no_panic(&self.stderr());
        }
    }
}

impl Lab {
    /// Starts `manyways lab shell` with these options.
    #[track_caller]
    pub fn start(options: &[&str]) -> Self {
        let guard = shared_host();
        let mut lab = Self::start_alone(options);
        lab._guard = Some(guard);
        lab
    }

    /// For a caller that holds the guard.
    #[track_caller]
    pub fn start_alone(options: &[&str]) -> Self {
        let name = lab_name("test");
        let mut command = manyways();
        command.args(["lab", "shell"]).args(options);
        command.args(["--name", &name, "--", "sh", "-c", "echo ready; exec sleep 1000"]);
        let log = folder();
        let stderr = File::create(log.path().join("stderr")).expect("room for a log");
        let mut process = Running::start(command.stdout(Stdio::piped()).stderr(stderr));
        let mut line = String::new();
        let stdout = process.stdout().expect("piped above");
        BufReader::new(stdout).read_line(&mut line).expect("a pipe can be read");
        let lab = Self { name, process, log, _guard: None };
        assert_eq!(line, "ready\n", "the lab does not start: {}", lab.stderr());
        lab
    }

    /// Standard error of the lab so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(self.log.path().join("stderr")).unwrap_or_default()
    }

    /// Runs a script on the device.
    #[track_caller]
    pub fn device(&self, script: &str) -> Finished {
        finish(manyways().args(["lab", "enter", &self.name, "--", "sh", "-c", script]))
    }

    /// Runs a script on a server host.
    #[track_caller]
    pub fn host(&self, host: &str, script: &str) -> Finished {
        let words = ["lab", "enter", &self.name, "--host", host, "--", "sh", "-c", script];
        finish(manyways().args(words))
    }

    /// Changes a link with `lab set`.
    pub fn set(&self, words: &[&str]) -> Finished {
        finish(manyways().args(["lab", "set", "--lab", &self.name]).args(words))
    }

    /// The lab's status, from `lab status --json`.
    #[track_caller]
    pub fn status(&self) -> serde_json::Value {
        let done = finish(manyways().args(["lab", "status", "--json", &self.name]));
        serde_json::from_str(&done.expect_success().stdout).expect("it is JSON")
    }

    /// The lab's folder, which its commands have as `LAB_DIR`.
    pub fn folder(&self) -> PathBuf {
        self.device("echo $LAB_DIR").expect_success().stdout.trim().into()
    }

    /// The namespace of the first device, or of a server host.
    #[track_caller]
    pub fn namespace(&self, host: Option<&str>) -> Namespace {
        let done = host.map_or_else(|| self.device(LOOK), |host| self.host(host, LOOK));
        self.open_namespace(&done.expect_success().stdout)
    }

    /// The namespace of a device.
    #[track_caller]
    pub fn device_namespace(&self, device: &str) -> Namespace {
        let words = ["lab", "enter", &self.name, "--device", device, "--", "sh", "-c", LOOK];
        self.open_namespace(&finish(manyways().args(words)).expect_success().stdout)
    }

    fn open_namespace(&self, name: &str) -> Namespace {
        // No process needs to be in the namespace, but the lab has a descriptor of it.
        let open = fs::read_dir(format!("/proc/{}/fd", self.process.pid())).expect("the lab runs");
        let is_it = |path: &PathBuf| {
            fs::read_link(path).is_ok_and(|link| link.as_os_str() == name.trim_end())
        };
        let found = open.flatten().map(|entry| entry.path()).find(is_it);
        Namespace::open(&found.unwrap_or_else(|| panic!("the lab has no namespace {name}")))
    }
}
