//! A lab that runs during a test.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use manyways_tests::{Finished, Running, finish, folder, manyways};
use tempfile::TempDir;

/// Deadline of all waits, far above the expected times.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Links without a rate limit.
pub const TWO_LINKS: [&str; 4] = ["--link", "wifi:delay=1ms", "--link", "lte:delay=2ms"];

/// Polls until `look` returns a value, for at most [`PATIENCE`].
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Kernel settings that all labs share; a test that changes them takes the write lock.
static HOST: RwLock<()> = RwLock::new(());

/// Other labs of these tests may run concurrently.
pub fn among_others() -> RwLockReadGuard<'static, ()> {
    HOST.read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// No other lab of these tests runs concurrently.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    HOST.write().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A unique name for a lab.
pub fn name(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// `manyways lab shell` with these options; more can be added.
pub fn lab_shell(options: &[&str]) -> Command {
    let mut command = manyways();
    command.args(["lab", "shell"]).args(options);
    command
}

/// Runs a shell script in a new lab and returns its output.
#[track_caller]
pub fn script_in(options: &[&str], script: &str) -> Finished {
    let _guard = among_others();
    finish(lab_shell(options).args(["--", "sh", "-c", script]))
}

/// Path of the scenarios' server script.
pub fn nginx_script() -> String {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/nginx.sh"));
    path.canonicalize().expect("the scenarios are there").display().to_string()
}

/// The option for a server with `/8M`, `/1M` and `/address`.
pub fn nginx() -> [String; 2] {
    ["--far".into(), format!("sh {} origin", nginx_script())]
}

/// A lab whose command waits until the value is dropped.
pub struct Lab {
    pub name: String,
    pub process: Running,
    log: TempDir,
    _guard: Option<RwLockReadGuard<'static, ()>>,
}

impl Lab {
    #[track_caller]
    pub fn start(options: &[&str]) -> Self {
        let guard = among_others();
        let mut lab = Self::start_alone(options);
        lab._guard = Some(guard);
        lab
    }

    /// For a caller that holds the guard.
    #[track_caller]
    pub fn start_alone(options: &[&str]) -> Self {
        let name = name("test");
        let mut command = lab_shell(options);
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

    pub fn set(&self, words: &[&str]) -> Finished {
        finish(manyways().args(["lab", "set", "--lab", &self.name]).args(words))
    }

    /// The lab's folder, which its commands have as `LAB_DIR`.
    pub fn folder(&self) -> PathBuf {
        self.device("echo $LAB_DIR").succeeded().stdout.trim().into()
    }
}

/// The running processes of a lab, as readable text.
pub fn processes_of(lab: &str) -> String {
    let mut found = String::new();
    for process in fs::read_dir("/proc").expect("/proc is there").flatten() {
        let mark = format!("LAB_NAME={lab}");
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
            let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            let _ = writeln!(found, "{} {command}", process.file_name().to_string_lossy());
        }
    }
    found
}
