//! Loads in a lab, one after the other: beside each other they would take longer.

use std::fmt::Write as _;

use manyways_rig::launch::DriveError;
use manyways_unit::Span;

use super::Subject;
use super::load::Loaded;
use crate::shell::Shell;

/// A load with all its starts takes no longer.
const PATIENCE: Span = Span::from_secs(60);

/// A lab with its servers and loads.
pub struct Lab {
    /// Value of `--link`.
    pub link: String,
    /// Commands of servers.
    pub servers: Vec<String>,
    /// Commands before the loads.
    pub before: Vec<String>,
    /// Options of `known-page-load`.
    pub loads: Vec<String>,
}

/// The printed result of a load, or the reason of its failure.
pub type Outcome = Result<Loaded, String>;

impl Lab {
    /// A lab with the servers of these pages.
    pub fn of(link: String, subjects: &[Subject]) -> Self {
        Self {
            link,
            servers: subjects.iter().flat_map(|subject| subject.servers.iter().cloned()).collect(),
            before: subjects.iter().map(|subject| subject.before.clone()).collect(),
            loads: Vec::new(),
        }
    }

    /// Runs all loads.
    pub fn run(&self, shell: &Shell<'_>) -> Result<Vec<Outcome>, DriveError> {
        let mut script = String::new();
        for command in &self.before {
            let _ = writeln!(script, "{command}");
        }
        for (index, load) in self.loads.iter().enumerate() {
            let _ = writeln!(
                script,
                "\"$BENCH\" known-page-load {load} >load{index}.json 2>load{index}.log || true"
            );
            for kind in ["json", "log"] {
                shell.write(&format!("load{index}.{kind}"), "")?;
            }
        }
        shell.write("loads.sh", script)?;
        let mut command = shell.command(shell.manyways());
        command.args(["lab", "shell", "--link", &self.link]);
        for server in &self.servers {
            command.args(["--far", server]);
        }
        command.args(["--", "sh", "-eu", "loads.sh"]);
        let ran = shell.finish(&mut command, PATIENCE * (self.loads.len() as u64 + 1))?;
        let outcome = |index| {
            let read = |kind: &str| {
                std::fs::read_to_string(shell.path(&format!("load{index}.{kind}")))
                    .unwrap_or_default()
            };
            serde_json::from_str(&read("json")).map_err(|_| match (&ran, read("log")) {
                (Err(reason), log) if log.is_empty() => reason.clone(),
                (_, log) => format!("a load failed: {}", log.trim()),
            })
        };
        Ok((0..self.loads.len()).map(outcome).collect())
    }
}
