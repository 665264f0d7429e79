//! Labs of these tests, and what they leave.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

pub use manyways_tests::testbed::{PATIENCE, eventually, eventually_gone};
use manyways_tests::{Finished, finish, manyways};
pub use manyways_tests::{Lab, alone, lab_name as name, shared_host};

/// Links without a rate limit.
pub const TWO_LINKS: [&str; 4] = ["--link", "wifi:delay=1ms", "--link", "lte:delay=2ms"];

/// `manyways lab shell` with these options; more can be added.
pub fn lab_shell(options: &[&str]) -> Command {
    let mut command = manyways();
    command.args(["lab", "shell"]).args(options);
    command
}

/// Runs a shell script in a new lab and returns its output.
#[track_caller]
pub fn script_in(options: &[&str], script: &str) -> Finished {
    let _guard = shared_host();
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
